"""Text that explains a predicted time: stalls by line, and advice. Works on plain data, as in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..core.metric import significant
from ..core.numbers import number
from ..core.records import AdviceRow, StallRow

if TYPE_CHECKING:
    from gpuperf_engine.results import Advice, CodeLine, Stall

__all__ = ["advice_rows", "advice_text", "stall_rows", "stall_text", "why_lines"]

_MOST = 8
"""Most listed stalls."""

_LEAST = 0.01
"""Least part of all stall cycles of a listed stall."""


def stall_rows(stalls: Iterable[Stall], shown: Callable[[str], str] = str) -> list[StallRow]:
    """Those of the most cycles, instructions of one source line and opcode together; ``shown`` is how a place in the source is
    written. The rest, and what is less than ``_LEAST`` of all, is left out."""
    found: dict[tuple[str, str, str], list[float]] = {}
    total = 0.0
    for stall in stalls:
        key = stall.cause, _at(stall.at, shown), _at(stall.on, shown)
        row = found.setdefault(key, [0.0, 0.0])
        row[0] += stall.cycles
        row[1] += stall.times
        total += stall.cycles
    rows: list[StallRow] = [
        {
            "cause": cause,
            "at": at,
            "on": on,
            "cycles": significant(cycles),
            "times": significant(times),
            "share": significant(cycles / total),
        }
        for (cause, at, on), (cycles, times) in found.items()
    ]
    rows.sort(key=lambda row: (-row["cycles"], row["at"], row["on"], row["cause"]))
    return [row for row in rows[:_MOST] if row["share"] >= _LEAST]


def advice_rows(advice: Iterable[Advice], shown: Callable[[str], str] = str) -> list[AdviceRow]:
    """All of it, the largest gain first."""
    return [
        {
            "what": item.what,
            "line": "" if item.line is None else _at(item.line, shown),
            "gain_us": significant(item.gain_us),
        }
        for item in advice
    ]


def _at(line: CodeLine, shown: Callable[[str], str]) -> str:
    return f"{line.opcode} at {shown(line.position)}"


def stall_text(row: StallRow) -> str:
    """``fma.rn.f32 at saxpy.cu:8 waits 547 cycles for ld.global.f32 at saxpy.cu:8``, the cycles of a mean wait."""
    mean = max(1, round(row["cycles"] / row["times"]))
    on = "" if row["on"] == row["at"] else f" for {row['on']}"
    return f"{row['at']} waits {number(mean)} {'cycle' if mean == 1 else 'cycles'}{on}"


def advice_text(row: AdviceRow, time_us: float) -> str:
    """A change with its predicted gain."""
    share = f"{100 * row['gain_us'] / time_us:.0f} %"
    line = f"{row['line']}: " if row["line"] else ""
    return f"predicted gain {row['gain_us']:.3g} µs ({share}): {line}{row['what']}"


def why_lines(
    stalls: Sequence[Stall], advice: Sequence[Advice], time_us: float, shown: Callable[[str], str] = str
) -> Iterator[str]:
    """For a terminal."""
    for row in stall_rows(stalls, shown):
        yield f"stall {100 * row['share']:3.0f} % {row['cause']}: {stall_text(row)}"
    for item in advice_rows(advice, shown):
        yield advice_text(item, time_us)
