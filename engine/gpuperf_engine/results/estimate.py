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
    """Predicted time of one profile on one machine. ``bounds`` maps each resource to its minimum time in µs; ``time_us`` includes
    ``launch_us`` and is never below any bound; ``limiter`` names the resource that limits the time.

    For a simulated launch, ``assembler`` generated the simulated machine code (``ptxas 13.0.88``), and ``stalled`` has its
    instructions in address order, with the clocks that warps of one SM waited before each (``warp_clocks``, the resident clocks of
    all warps of the SM, are either ``stalled`` or those in which an instruction is ``issued``); otherwise both are empty.
    ``model_revision`` is raised whenever predictions of the simulation change, and is 0 for all other models. ``stalls``, those
    with the most cycles first, and ``advice``, that with the largest predicted gain first, are present if they were requested
    (``why``) and the simulation or Kleimenov-Popova predicted the time. ``l2_read_sectors``: the 32-byte sectors that are read from L2
    (``lts__t_sectors_op_read.sum``), modelled; ``None`` if the launch was not simulated, or not enough of its CTAs could be traced."""

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
    l2_read_sectors: int | None = None

    @property
    def warp_clocks(self) -> float:
        """The resident clocks of all warps of the simulated SM, in total: in each clock a warp either issues or is stalled."""
        return sum(item.issued + item.stalled for item in self.stalled)

    def stalled_lines(self, by: str = "source") -> tuple[StalledLine, ...]:
        """``stalled`` by source line (``source``; by PTX line if that is not known) or by PTX line (``ptx``), the line that caused
        the most first."""
        by_line: dict[str, list[StalledInstruction]] = {}
        for item in self.stalled:
            at = item.source if by == "source" and item.source else f"ptx:{item.ptx_line}"
            by_line.setdefault(at, []).append(item)
        lines = [_line(at, items) for at, items in by_line.items()]
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
