"""The recurrences of Liu and Grover (equations 1 to 3) and their closed form.

In stage i the loads of A and B start at S_a(i) and S_b(i), MATH at S_m(i). One DMA warp loads A, then B; two load them concurrently.
The buffer of stage i is free when MATH of stage i - M has ended, where M is the depth::

    one DMA warp:   S_a(i) = max(S_b(i-1) + L_b(i-1),  S_m(i-M) + T(i-M))     S_b(i) = S_a(i) + L_a(i)
    two DMA warps:  S_a(i) = max(S_a(i-1) + L_a(i-1),  S_m(i-M) + T(i-M))     S_b(i) likewise with L_b
    both:           S_m(i) = max(S_a(i) + L_a(i),  S_b(i) + L_b(i),  S_m(i-1) + T(i-1))

A term whose index is below the first stage is absent. For constant stage times, with L the time until both loads are complete
(L_a + L_b, or the longer with two warps), S_m(S) = L + (S - 1) · P, where P = max(L, T) for M >= 2 and P = L + T for M = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .problem import Integers

__all__ = ["Floats", "StageStarts", "load_span", "math_start", "math_wait", "stage_starts"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StageStarts:
    """Start times of the load of A, the load of B and MATH of each stage, as arrays of shape (..., stages), in the unit of the
    inputs."""

    a: Floats
    b: Floats
    math: Floats


def stage_starts(
    load_a: npt.ArrayLike,
    load_b: npt.ArrayLike,
    math: npt.ArrayLike,
    *,
    stages: int,
    depth: npt.ArrayLike = 2,
    dma_warps: npt.ArrayLike = 1,
) -> StageStarts:
    """The recurrences for many configurations at once.

    Times have the shape (configurations, stages), or broadcast to it (a column for constant times); ``depth`` and ``dma_warps``
    broadcast to (configurations,).
    """
    depths, warps = np.asarray(depth, np.int64), np.asarray(dma_warps, np.int64)
    times = [np.atleast_1d(np.asarray(part, np.float64)) for part in (load_a, load_b, math)]
    shape = np.broadcast_shapes(*(part.shape[:-1] for part in times), depths.shape, warps.shape)
    la, lb, t = (np.broadcast_to(part, (*shape, stages)) for part in times)
    depths, two = np.broadcast_to(depths, shape), np.broadcast_to(warps, shape) == 2
    # row M-1+i of ``free`` is the end of MATH of stage i; earlier rows have passed from the start
    most = int(depths.max())
    free = np.full((most + stages, *shape), -np.inf)
    a, b, m = (np.zeros((*shape, stages)) for _ in range(3))
    a_free = b_free = m_free = np.zeros(shape)
    for i in range(stages):
        row = most + i - depths
        buffer = np.maximum(np.take_along_axis(free, row[None], axis=0)[0], 0.0)
        a[..., i] = np.maximum(a_free, buffer)
        a_end = a[..., i] + la[..., i]
        b[..., i] = np.where(two, np.maximum(b_free, buffer), a_end)
        b_end = b[..., i] + lb[..., i]
        m[..., i] = np.maximum(np.maximum(a_end, b_end), m_free)
        m_free = free[most + i] = m[..., i] + t[..., i]
        a_free, b_free = np.where(two, a_end, b_end), b_end
    return StageStarts(a, b, m)


def load_span(load_a: Floats, load_b: Floats, dma_warps: Integers | int) -> Floats:
    """Return the time from the start of a stage's loads until both are complete."""
    return np.where(np.asarray(dma_warps) == 2, np.maximum(load_a, load_b), load_a + load_b)


def _period(span: Floats, math: Floats, depth: Integers | int) -> Floats:
    return np.where(np.asarray(depth) == 1, span + math, np.maximum(span, math))


def math_start(
    load_a: Floats, load_b: Floats, math: Floats, *, stages: Integers, depth: Integers, dma_warps: Integers
) -> Floats:
    """Return S_m of the last of ``stages`` in closed form, for constant stage times. Arguments broadcast."""
    span = load_span(load_a, load_b, dma_warps)
    return span + (stages - 1) * _period(span, math, depth)


def math_wait(
    load_a: Floats, load_b: Floats, math: Floats, *, stages: Integers, depth: Integers, dma_warps: Integers
) -> Floats:
    """Return the total time that the MATH warps of a tile wait for loads, for constant stage times."""
    span = load_span(load_a, load_b, dma_warps)
    return span + (stages - 1) * (_period(span, math, depth) - math)
