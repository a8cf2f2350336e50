"""Predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .stalls import Advice, Stall

__all__ = ["Estimate", "StalledInstruction"]


@dataclass(frozen=True, slots=True)
class StalledInstruction:
    """A machine instruction on the SM that was simulated: its ``address`` and ``text``, how often warps ``issued`` it, and the
    clocks that
    they waited before it, all together."""

    address: int
    text: str
    issued: int
    stalled: int


@dataclass(frozen=True)
class Estimate:
    """Predicted time of one profile on one machine. ``bounds`` maps each resource to the time in µs below which it cannot
    go; ``time_us`` includes ``launch_us`` and is never below any bound; ``limiter`` names what decides.

    ``stalled``: where the warps of one SM waited, in the order of the machine code; empty unless it was simulated. ``stalls``, those
    of the most cycles first, and ``advice``, that of the largest predicted gain first, are there where they were asked for
    (``why``) and the default model predicted."""

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
