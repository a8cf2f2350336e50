"""The best configuration of a space for a product on a machine: by exhaustive search, or by z3 (``smt``), with the same result.

There are two goals. ``time``: the least total. ``waiting``: the least time that MATH warps wait for loads, in all waves together,
which is the purpose of warp specialisation. Ties are broken by the other goal, then by less shared memory, fewer warps, and smaller
extents. Times are compared in whole femtoseconds, so that rounding has no influence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from ..errors import LaunchError, UnknownName, nearest
from ..machines.machine import Machine
from .parameters import Parameters
from .predict import Prediction, predict_one
from .problem import Integers, Problem, TileSpace, Tiling, Tilings, feasible
from .smt import encode, solve

__all__ = ["GOALS", "SOLVERS", "Candidates", "best_tiling", "candidates", "exhaustive"]

GOALS = ("time", "waiting")
SOLVERS = ("exhaustive", "z3")
FEMTOSECONDS = 1e9
"""In a µs."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The feasible configurations of a space, with stage times in whole femtoseconds and the keys of the goals."""

    tilings: Tilings
    total: Integers
    waiting: Integers
    shared: Integers

    def order(self, goal: str) -> Integers:
        """Indices, the best first."""
        tilings = self.tilings
        first, second = (self.total, self.waiting) if goal == "time" else (self.waiting, self.total)
        keys = (first, second, self.shared, tilings.warps(), tilings.m, tilings.n, tilings.k)
        return np.lexsort((tilings.dma_warps, *reversed(keys)))


def best_tiling(
    problem: Problem,
    machine: Machine,
    parameters: Parameters,
    *,
    space: TileSpace | None = None,
    goal: str = "time",
    solver: str = "exhaustive",
) -> Prediction:
    """The best configuration of ``space`` that fits the SM of ``machine``.

    Raises :class:`UnknownName` for an unknown goal or solver, :class:`LaunchError` where nothing fits, and
    :class:`~gpuperf_engine.errors.Unsupported` if z3 is asked for and not installed.
    """
    for given, known, noun in ((goal, GOALS, "goal"), (solver, SOLVERS, "solver")):
        if given not in known:
            raise UnknownName(f"unknown {noun} {given!r}", hint=nearest(given, known, noun=noun))
    space = space or TileSpace()
    if solver == "z3":
        found = solve(encode(problem, machine, parameters, space, _femtoseconds), goal)
    else:
        found = exhaustive(problem, machine, parameters, space, goal)
    if found is None:
        raise LaunchError(
            f"none of {len(space)} configurations of a product of {problem.dtype} fits on an SM of {machine.id}",
            hint="try smaller tiles, fewer buffers or other numbers of warps",
        )
    return predict_one(problem, found, parameters)


def candidates(problem: Problem, machine: Machine, parameters: Parameters, space: TileSpace) -> Candidates:
    """Every configuration of the space that fits."""
    tilings = space.all()
    tilings = tilings.where(feasible(problem, machine, tilings, space.spare_registers))
    times = parameters.stage_times(problem, tilings)
    load_a, load_b, math, epilogue = (
        _femtoseconds(part) for part in (times.load_a, times.load_b, times.math, times.epilogue)
    )
    span = np.where(tilings.dma_warps == 2, np.maximum(load_a, load_b), load_a + load_b)
    period = np.where(tilings.depth == 1, span + math, np.maximum(span, math))
    stages, waves = tilings.stages(problem), tilings.waves(problem, parameters.sm_count)
    total = np.asarray(waves * (span + (stages - 1) * period + math + epilogue), np.int64)
    waiting = np.asarray(waves * (span + (stages - 1) * (period - math)), np.int64)
    return Candidates(tilings, total, waiting, tilings.shared_bytes(problem))


def exhaustive(
    problem: Problem, machine: Machine, parameters: Parameters, space: TileSpace, goal: str
) -> Tiling | None:
    """Return the best configuration by exhaustive search; ``None`` if none fits."""
    every = candidates(problem, machine, parameters, space)
    return every.tilings.at(int(every.order(goal)[0])) if len(every.tilings) else None


def _femtoseconds(times: object) -> Integers:
    found = np.rint(np.asarray(times, np.float64) * FEMTOSECONDS)
    assert found.size == 0 or found.max() < inf
    return found.astype(np.int64)
