"""Parameters from measurements: relative least squares, with coefficients that cannot be negative.

The total is linear in the coefficients where loads limit, and also where MATH limits. The fit is repeated, with rows classified by the
previous fit, until no row changes its class. The rate of MATH is an input, as it affects only rows that MATH limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import EngineError
from .parameters import Coefficients
from .predict import predict
from .problem import Problem, Tiling, Tilings
from .recurrence import Floats

__all__ = ["Calibration", "Measurement", "calibrate"]

_TERMS = 6
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Measurement:
    """A product that took ``us`` on a GPU in this configuration."""

    problem: Problem
    tiling: Tiling
    us: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted numbers, and |predicted / measured - 1| in percent: ``fit`` of every row by the fit to all rows, ``left_out`` of
    every row by a fit to all others."""

    parameters: Coefficients
    fit: tuple[float, ...]
    left_out: tuple[float, ...]


def calibrate(
    measurements: Sequence[Measurement], sm_count: int, *, source: str, multiply_add_us: float = 0.0
) -> Calibration:
    """Fit T_INIT, the start of a load, the time of a byte alone and for each active CTA, and the epilogue with its time per element.

    ``multiply_add_us`` is the time of a multiply-add, 0 where MATH is hidden behind loads. Raises :class:`EngineError` for fewer than
    seven measurements, and times that are not positive.
    """
    if len(measurements) <= _TERMS:
        raise EngineError(
            f"{len(measurements)} measurements cannot fix {_TERMS} coefficients",
            hint=f"give at least {_TERMS + 1}",
        )
    for row in measurements:
        if not row.us > 0:
            raise EngineError(f"{row.tiling} took {row.us:g} us", hint="times are positive numbers of us")

    def fit(given: Sequence[Measurement]) -> Coefficients:
        return _fit(given, sm_count, source, multiply_add_us)

    whole = fit(measurements)
    apart = [fit([*measurements[:i], *measurements[i + 1 :]]) for i in range(len(measurements))]
    return Calibration(
        whole,
        tuple(_error(row, whole) for row in measurements),
        tuple(_error(row, found) for row, found in zip(measurements, apart, strict=True)),
    )


def _error(row: Measurement, parameters: Coefficients) -> float:
    total = predict(row.problem, Tilings.of([row.tiling]), parameters).total
    return abs(float(total[0]) / row.us - 1.0) * 100.0


def _fit(rows: Sequence[Measurement], sm_count: int, source: str, multiply_add_us: float) -> Coefficients:
    given = _arrange(rows, sm_count, multiply_add_us)
    by_math = np.zeros(len(rows), bool)
    best = np.zeros(_TERMS)
    for _ in range(_ROUNDS):
        # where MATH limits, only the first loads are on the critical path; with one buffer, all loads and all MATH are
        loads = given.waves * np.where(by_math & ~given.alternating, 1.0, given.stages)
        math = given.waves * given.math * np.where(by_math | given.alternating, given.stages, 1.0)
        design = np.concatenate([given.fixed, loads[:, None] * given.span], axis=1)
        # a measurement can be less than the time of MATH alone: then the rest is 0
        left = np.maximum(given.times - math, 0.0)
        best = _least_squares(design / given.times[:, None], left / given.times)
        now = given.math > given.span @ best[3:]
        if (now == by_math).all():
            break
        by_math = now
    init, epilogue, element, load, byte, contention = (float(value) for value in best)
    return Coefficients(
        "calibrated", source, sm_count, init, load, epilogue, byte, contention, multiply_add_us, element
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Measurements as columns. ``fixed`` are the regressors of T_INIT and the epilogue, ``span`` those of the time until both loads
    of a stage are complete: loads one after the other, their bytes, and bytes times active CTAs. ``math`` are µs of MATH of a
    stage; ``alternating`` marks one buffer."""

    times: Floats
    fixed: Floats
    span: Floats
    math: Floats
    waves: Floats
    stages: Floats
    alternating: npt.NDArray[np.bool_]


def _arrange(rows: Sequence[Measurement], sm_count: int, multiply_add_us: float) -> _Rows:
    tilings = Tilings.of(row.tiling for row in rows)
    counts = [
        (
            int(one.waves(row.problem, sm_count)[0]),
            int(one.stages(row.problem)[0]),
            int(one.tiles(row.problem)[0]),
        )
        for row, one in ((row, Tilings.of([row.tiling])) for row in rows)
    ]
    waves, stages, tiles = np.array(counts, np.float64).T
    size = np.array([row.problem.elements.bytes for row in rows])
    two = tilings.dma_warps == 2
    moved = np.where(two, np.maximum(tilings.m, tilings.n), tilings.m + tilings.n) * tilings.k * size
    area = (tilings.m * tilings.n).astype(np.float64)
    return _Rows(
        times=np.array([row.us for row in rows]),
        fixed=np.stack([np.ones(len(rows)), waves, waves * area], axis=1),
        span=np.stack([np.where(two, 1.0, 2.0), moved, moved * tiles / waves], axis=1),
        math=area * tilings.k * multiply_add_us,
        waves=waves,
        stages=stages,
        alternating=tilings.depth == 1,
    )


def _least_squares(design: Floats, target: Floats) -> Floats:
    """Least squares without negative coefficients (Lawson and Hanson, *Solving Least Squares Problems*, chapter 23)."""
    scale = np.abs(design).max(axis=0)
    scale[scale == 0.0] = 1.0
    a = design / scale
    count = a.shape[1]
    free = np.zeros(count, bool)
    found = np.zeros(count)
    for _ in range(3 * count):
        slope = a.T @ (target - a @ found)
        slope[free] = -np.inf
        if free.all() or slope.max() <= 1e-12:
            break
        free[int(slope.argmax())] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(a[:, free], target, rcond=None)[0]
            below = free & (trial <= 0.0)
            if not below.any():
                break
            step = np.min(found[below] / (found[below] - trial[below]))
            found = found + step * (trial - found)
            free &= found > 1e-14
        found = trial
    return np.asarray(found / scale, np.float64)
