"""Explanations in words: loops, divergent branches, hot lines.

Of plain data, as in JSON: a report is judged and shown again without the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..core.numbers import number
from ..core.records import Cause, ExplainedBranch, ExplainedLoop, Explanation

__all__ = ["because", "divergence", "explanation_tables", "marks", "place"]

_NAMED = ("data", "atomic", "parameter")


def because(causes: Sequence[Cause]) -> str:
    """``data of offsets and %tid.x, against parameter n``: causes of divergence, then the other operands of the condition.

    Without a cause of divergence, only the operands; ``constants`` if these have no parameter.
    """
    parting = [_cause(cause) for cause in causes if cause["varies"]]
    others = [_cause(cause) for cause in causes if not cause["varies"] and cause["kind"] in _NAMED]
    if parting:
        return _listed(parting) + (f", against {_listed(others)}" if others else "")
    return _listed(others or [_cause(cause) for cause in causes]) or "constants"


def _cause(cause: Cause) -> str:
    name = cause["name"] or "an unknown object"
    words = {"data": f"data of {name}", "atomic": f"atomics on {name}", "parameter": f"parameter {name}"}
    return words.get(cause["kind"], f"%{name}")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def place(path: str, row: Mapping[str, object]) -> str:
    """``spmv.ptx:108–139 (spmv.cu:14)``."""
    lines = str(row["line"])
    if row.get("last_line", row["line"]) != row["line"]:
        lines += f"–{row['last_line']}"
    return f"{path}:{lines}" + (f" ({row['source']})" if row["source"] else "")


def divergence(explanation: Explanation | None, path: str, line: int = 0) -> str:
    """Describe the branch at a ``line`` of PTX, or else the most divergent one, in one line; empty if none diverges or is known."""
    if explanation is None or not explanation["branches"]:
        return ""
    branches = [row for row in explanation["branches"] if row["line"] == line] or explanation["branches"]
    where, divergent, executed, cause = _together(branches, path)[0]
    return f"lanes diverge {number(divergent)} of {number(executed)} times at {where}: decided by {cause}"


def marks(explanation: Explanation, path: str) -> dict[str, list[str]]:
    """Return annotations for lines of the PTX, by ``file:line``: trip counts at the first line of a loop, causes at branches."""
    by_line: dict[str, list[str]] = {}
    for loop in explanation["loops"]:
        mean = "" if loop["mean"] is None else f", {loop['mean']:.4g} per entry"
        words = f"{_number(loop['iterations'])} iterations{mean}, {loop['lanes']:.3g} lanes"
        where = f"{path}:{loop['line']}"
        by_line.setdefault(where, []).append(
            f"loop to line {loop['last_line']}: {words}, decided by {because(loop['causes'])}"
        )
    for branch in explanation["branches"]:
        times = f"{number(branch['divergent'])} of {number(branch['executed'])} times"
        where = f"{path}:{branch['line']}"
        by_line.setdefault(where, []).append(f"lanes diverge {times}, decided by {because(branch['causes'])}")
    return by_line


def explanation_tables(
    explanation: Explanation, path: str, total: int, limit: int = 5
) -> Iterator[tuple[tuple[int, ...], list[tuple[str, ...]]]]:
    """Tables of the hottest lines, the longest loops and the branches that diverge most, ``limit`` of each: the columns that hold
    numbers, and the rows, a head first.

    ``total`` is the number of thread instructions, ``path`` the name of the PTX.
    """
    lines: list[tuple[str, ...]] = [
        (
            f"{row['path']}:{row['line']}",
            number(row["thread_instructions"]),
            f"{100 * row['thread_instructions'] / total:.1f} %",
            number(row["divergent"]),
        )
        for row in explanation["lines"]
    ]
    loops: list[tuple[str, ...]] = [
        (
            place(path, row),
            _number(row["entries"]),
            _number(row["iterations"]),
            _mean(row),
            f"{row['lanes']:.3g}",
            because(row["causes"]),
        )
        for row in explanation["loops"]
    ]
    branches: list[tuple[str, ...]] = [
        (where, number(divergent), number(executed), cause)
        for where, divergent, executed, cause in _together(explanation["branches"], path)
    ]
    tables: list[tuple[tuple[int, ...], tuple[str, ...], list[tuple[str, ...]]]] = [
        ((1, 2, 3), ("hot line", "thread instructions", "share", "divergent"), lines),
        ((1, 2, 3, 4), ("loop", "entries", "iterations", "mean", "lanes", "decided by"), loops),
        ((1, 2), ("divergent branch", "divergent", "executed", "decided by"), branches),
    ]
    for numbers, head, rows in tables:
        if rows:
            yield numbers, [head, *rows[:limit]]


def _together(branches: Sequence[ExplainedBranch], path: str) -> list[tuple[str, int, int, str]]:
    """(place, divergent, executed, cause), those of one source line with one cause added up: the copies of an unrolled loop."""
    groups: dict[tuple[str | int, str], list[ExplainedBranch]] = {}
    for row in branches:
        groups.setdefault((row["source"] or row["line"], because(row["causes"])), []).append(row)
    merged = []
    for (_, cause), rows in groups.items():
        lines = sorted(row["line"] for row in rows)
        where = place(path, {"line": lines[0], "last_line": lines[-1], "source": rows[0]["source"]})
        where += f", {len(rows)} branches" if len(rows) > 1 else ""
        merged.append(
            (where, sum(row["divergent"] for row in rows), sum(row["executed"] for row in rows), cause)
        )
    return sorted(merged, key=lambda group: -group[1])


def _mean(loop: ExplainedLoop) -> str:
    """``59.6``, or ``59.6 (0–178)`` where single threads were counted."""
    mean = "" if loop["mean"] is None else f"{loop['mean']:.4g}"
    return mean if loop["least"] is None else f"{mean} ({loop['least']:,}–{loop['most']:,})"


def _number(value: int | None) -> str:
    return "?" if value is None else number(value)
