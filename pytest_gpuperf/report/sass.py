"""Source, PTX and machine code side by side, with what is executed, as the report shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..core.records import Case, ListingRow, StalledCode

if TYPE_CHECKING:
    from gpuperf_engine import MachineInstruction

__all__ = ["heat", "is_global", "machine_listing"]

_GLOBAL = ("LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG")
"""Opcodes that the sectors of their PTX instruction are shown at."""


def machine_listing(record: Case, listing: ListingRow | None, limit: int) -> dict[str, Any]:
    """The machine code of the target whose instructions the record holds; source and PTX where they are other ones than on the row
    before. ``heat`` is 0 to 9: of a simulated launch by the clocks that warps wait before an instruction, else by its issue cycles
    (executions by warps times stall cycles), as parts of those of the hottest. ``simulated``: whether stalls are known. Of more rows
    than ``limit`` those that are hottest together, one after the other.
    """
    target, rows, stalled = next(
        (
            (name, found["machine_code"]["instructions"], found["machine_code"].get("stalled", []))
            for name, found in record["detail"]["targets"].items()
            if found.get("machine_code", {}).get("instructions")
        ),
        ("", [], []),
    )
    most = max((warps * stall for _, _, _, warps, _, _, stall, _ in rows), default=0) or 1
    text = dict(listing["lines"]) if listing is not None else {}
    original = listing["source"] if listing is not None else {}
    sectors = {row[0]: row[3] for row in record["detail"]["lines"]}
    sources = record["detail"]["sources"]
    previous, line, lines = "", 0, []
    simulated = len(stalled) == len(rows) > 0
    longest = max((waited for waited, _, _ in stalled), default=0.0) or 1.0
    clocks = [waited for waited, _, _ in stalled] if simulated else [row[3] * row[6] for row in rows]
    shown = _hottest(clocks, limit)
    for number in shown:
        address, code, at, warps, threads, exact, stall, waits = rows[number]
        waited, reason, caused = stalled[number] if simulated else (0.0, "", 0.0)
        source = sources.get(str(at), "")
        lines.append(
            {
                "source": source if source != previous else "",
                "original": _original(source, original) if source != previous else "",
                "ptx": f"{at} {' '.join(text.get(at, '').split())}" if at not in (0, line) else "",
                "warps": _count(warps, exact),
                "threads": _count(threads, exact),
                "stall": stall,
                "waits": waits,
                "sectors": _nonzero(sectors.pop(at, 0)) if warps and is_global(code) else "",
                "address": f"{address:04x}",
                "code": code,
                "stalled": _share(waited),
                "reason": reason if _share(waited) else "",
                "caused": _share(caused),
                "heat": min(9, int(10 * waited / longest) if simulated else 10 * warps * stall // (most + 1)),
            }
        )
        previous, line = source, at
    entry: Mapping[str, Any] = record["measured"].get("targets", {}).get(target, {})
    return {
        "target": target,
        "architecture": entry.get("machine_code", {}).get("architecture", ""),
        "lines": lines,
        "simulated": simulated,
        "left_out": len(rows) - len(lines),
        "before": shown.start,
    }


def _hottest(clocks: Sequence[float], limit: int) -> range:
    """The ``limit`` rows in a row that have the most clocks together; the first of those that have as many."""
    size = min(max(0, limit), len(clocks))
    sums = [0.0, *accumulate(clocks)]
    start = max(range(len(clocks) - size + 1), key=lambda first: sums[first + size] - sums[first])
    return range(start, start + size)


def _original(source: str, texts: Mapping[str, str]) -> str:
    return " ".join([source.rpartition("/")[2], *texts.get(source, "").split()])


def heat(
    instructions: Sequence[MachineInstruction], stalled: Sequence[StalledCode], steps: int = 5
) -> list[int]:
    """Of each instruction 0 to ``steps``: clocks that warps wait before it, if the launch was simulated, else its executions by warps
    times stall cycles, as parts of those of the hottest."""
    if stalled:
        clocks = [waited for waited, _, _ in stalled]
    else:
        clocks = [float(item.warps * item.stall) for item in instructions]
    most = max(clocks, default=0.0) or 1.0
    return [round(steps * one / most) for one in clocks]


def _share(part: float) -> str:
    """In percent; nothing where it rounds to none."""
    shown = f"{100 * part:.1f} %"
    return "" if shown == "0.0 %" else shown


def _count(count: int, exact: bool) -> str:
    return (f"{count:,}" if exact else f"{count:,}?") if count or not exact else ""


def is_global(code: str) -> bool:
    """Whether a machine instruction accesses global memory, or may."""
    opcode = next(word for word in code.split() if not word.startswith("@"))
    return opcode.partition(".")[0] in _GLOBAL


def _nonzero(count: int) -> str:
    return f"{count:,}" if count else ""
