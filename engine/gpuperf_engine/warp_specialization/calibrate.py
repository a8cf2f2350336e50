"""Parameters from measurements: relative least squares, with coefficients that cannot be negative.

While loads limit, the total is linear in the coefficients, and while MATH limits it is linear too, so rows are sorted into the two by
the fit before until none changes sides. The rate of MATH is given: it shows only where it limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    """What was fitted, and |predicted / measured - 1| in percent: ``fit`` of every row by the fit to all rows, ``left_out`` of every
    row by a fit to all others."""

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
    times = np.array([row.us for row in rows])
    columns, span, math = _columns(rows, sm_count, multiply_add_us)
    by_math = np.zeros(len(rows), bool)
    best = np.zeros(_TERMS)
    for _ in range(_ROUNDS):
        loads = np.where(by_math, span.filled, span.whole)
        behind = np.where(by_math, math.whole, math.last)
        design = np.concatenate([columns[:, :1], columns[:, 1:3], loads[..., None] * span.columns], axis=1)
        # A measurement can be less than the time of MATH alone: then nothing is left for the rest.
        left = np.maximum(times - behind, 0.0)
        best = _least_squares(design / times[:, None], left / times)
        now = math.whole - math.last > (span.whole - span.filled) * (span.columns @ best[3:])
        if (now == by_math).all():
            break
        by_math = now
    init, epilogue, element, load, byte, contention = (float(value) for value in best)
    return Coefficients(
        "calibrated", source, sm_count, init, load / 2, epilogue, byte, contention, multiply_add_us, element
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """How often the loads of a stage are on the way to the end while they limit (``whole``) and while MATH does (``filled``), and what
    they are linear in: 1, bytes, bytes times active CTAs."""

    columns: Floats
    whole: Floats
    filled: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Math:
    """µs of MATH on the way to the end: of all stages, and of the last."""

    whole: Floats
    last: Floats


def _columns(
    rows: Sequence[Measurement], sm_count: int, multiply_add_us: float
) -> tuple[Floats, _Spans, _Math]:
    tilings = Tilings.of(row.tiling for row in rows)
    if (tilings.dma_warps != 1).any() or (tilings.depth < 2).any():
        raise EngineError(
            "measurements with two DMA warps, or with one buffer, cannot be fitted",
            hint="give those of kernels with one DMA warp and at least two buffers",
        )
    one = [Tilings.of([row.tiling]) for row in rows]
    waves, stages, tiles = (
        np.array([int(part[0]) for part in parts], np.float64)
        for parts in (
            [tiling.waves(row.problem, sm_count) for tiling, row in zip(one, rows, strict=True)],
            [tiling.stages(row.problem) for tiling, row in zip(one, rows, strict=True)],
            [tiling.tiles(row.problem) for tiling, row in zip(one, rows, strict=True)],
        )
    )
    size = np.array([row.problem.elements.bytes for row in rows])
    moved = (tilings.m + tilings.n) * tilings.k * size
    area = (tilings.m * tilings.n).astype(np.float64)
    unit = np.ones(len(rows))
    of_math = waves * area * tilings.k * multiply_add_us
    return (
        np.stack([unit, waves, waves * area], axis=1),
        _Spans(np.stack([unit, moved, moved * tiles / waves], axis=1), waves * stages, waves),
        _Math(of_math * stages, of_math),
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
