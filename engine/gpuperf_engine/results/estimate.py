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

    ``assembler``: what made the machine code that was simulated (``ptxas 13.0.88``), and ``stalled``: where the warps of one SM
    waited, in its order; both empty unless it was simulated. ``model_revision`` is raised whenever the simulation comes to predict
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
