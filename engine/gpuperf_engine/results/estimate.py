"""Predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .stalls import Advice, Stall

__all__ = ["Estimate", "StalledInstruction", "StalledLine"]


@dataclass(frozen=True, slots=True)
class StalledInstruction:
    """A machine instruction on the SM that was simulated: its ``address`` and ``text``, how often warps ``issued`` it, and the
    clocks that they waited before it, all together, and by reason (``stalls``, the longest first; names as ``Stall.cause``).
    ``caused``: the clocks for which it made warps wait, here or elsewhere; ``waited_for``: those that warps waited for it, by reason,
    where a busy pipe or queue is one of the instruction that waits. ``ptx_line``: of the PTX instruction that it was made of, 0
    for code of
    the assembler's own; ``source``: ``path:line`` of the program, empty without ``.loc``."""

    address: int
    text: str
    issued: int
    stalled: float
    caused: float = 0.0
    ptx_line: int = 0
    source: str = ""
    stalls: Mapping[str, float] = field(default_factory=dict)
    waited_for: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StalledLine:
    """The same of all instructions of a line, ``at``: ``path:line`` of the program, or the line of the PTX (``ptx:12``); ``ptx:0`` is
    code of the assembler's own."""

    at: str
    issued: int
    stalled: float
    caused: float
    stalls: Mapping[str, float]
    waited_for: Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """Predicted time of one profile on one machine. ``bounds`` maps each resource to the time in µs below which it cannot
    go; ``time_us`` includes ``launch_us`` and is never below any bound; ``limiter`` names what decides.

    ``assembler``: what made the machine code that was simulated (``ptxas 13.0.88``), and ``stalled``: where the warps of one SM
    waited, in its order (``warp_clocks`` of them, one SM's warps by the clocks that they were there, are ``stalled`` or those in which
    an instruction is ``issued``); both empty unless it was simulated. ``model_revision`` is raised whenever the simulation comes
    to predict
    other times, and 0 of all other models. ``stalls``, those of the most cycles first, and ``advice``, that of the largest predicted
    gain first, are there where they were asked for (``why``) and the simulation or Kleimenov-Popova predicted."""

    machine: str
    machine_revision: int
    model: str
    time_us: float
    launch_us: float
    cycles: float
    limiter: str
    bounds: Mapping[str, float]
    occupancy: float
    ctas_per_sm: int
    occupancy_limiter: str
    waves: float
    notes: tuple[str, ...] = ()
    timeline: tuple[Any, ...] = ()
    stalled: tuple[StalledInstruction, ...] = ()
    stalls: tuple[Stall, ...] = ()
    advice: tuple[Advice, ...] = ()
    assembler: str = ""
    model_revision: int = 0

    @property
    def warp_clocks(self) -> float:
        """Clocks for which the warps of the simulated SM were there, together: each either issues or is stalled."""
        return sum(item.issued + item.stalled for item in self.stalled)

    def stalled_lines(self, by: str = "source") -> tuple[StalledLine, ...]:
        """``stalled`` by line of the program (``source``; of the PTX where that is not known) or of the PTX (``ptx``), the line that
        caused the most first."""
        found: dict[str, list[StalledInstruction]] = {}
        for item in self.stalled:
            at = item.source if by == "source" and item.source else f"ptx:{item.ptx_line}"
            found.setdefault(at, []).append(item)
        lines = [_line(at, items) for at, items in found.items()]
        return tuple(sorted(lines, key=lambda line: (-line.caused, -line.stalled, line.at)))


def _line(at: str, items: list[StalledInstruction]) -> StalledLine:
    return StalledLine(
        at,
        sum(item.issued for item in items),
        sum(item.stalled for item in items),
        sum(item.caused for item in items),
        _sums(item.stalls for item in items),
        _sums(item.waited_for for item in items),
    )


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for name, clocks in part.items():
            sums[name] = sums.get(name, 0.0) + clocks
    return dict(sorted(sums.items(), key=lambda row: (-row[1], row[0])))
