"""The fix-points of Kleimenov and Popova (2021): a latency rises until the required bandwidth is available.

Each iteration multiplies the latency of a level by the factor by which its bandwidth is exceeded. The printed rule has two errors. A
factor below one lowers the latency below that of the hardware; and the iteration ends when the *time* no longer changes, which also
happens while something else than this latency limits it. ``as_printed=False`` corrects both: the factor is at least one, and the
iteration ends when the bandwidth is no longer exceeded. The result is then ``max(time(latency), traffic / bandwidth)``: the maximum of
a latency bound and a bandwidth bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FixPoint", "closed_form", "fix_point", "loaded_latency"]


@dataclass(frozen=True, slots=True)
class FixPoint:
    """The end of the iteration: ``time`` in cycles, the effective ``latency`` in cycles, and the number of iterations."""

    time: float
    latency: float
    iterations: int


def closed_form(time: Callable[[float], float], latency: float, traffic: float, bandwidth: float) -> float:
    """The time at the corrected fix-point."""
    return max(time(latency), traffic / bandwidth)


def fix_point(
    time: Callable[[float], float],
    latency: float,
    traffic: float,
    bandwidth: float,
    *,
    as_printed: bool = False,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> FixPoint:
    """Raise ``latency`` (cycles) until ``traffic`` (bytes) fits through ``bandwidth`` (bytes per cycle).

    ``time`` maps a latency to the cycles of the work and is monotonic. If it is constant (no instruction waits for a load), the
    latency has no fix-point: the time is then the bandwidth bound and the latency the unloaded one.
    """
    started = latency
    bound = traffic / bandwidth
    now = time(latency)
    for iteration in range(1, max_iterations + 1):
        factor = bound / now if now > 0.0 else 0.0
        if not as_printed:
            if factor <= 1.0 + tolerance:
                return FixPoint(now, latency, iteration)
            if latency > 1e18:
                return FixPoint(max(now, bound), started, iteration)
        latency *= factor
        previous, now = now, time(latency)
        if as_printed and abs(now - previous) <= tolerance * max(1.0, now):
            return FixPoint(now, latency, iteration)
    return FixPoint(now if as_printed else max(now, bound), latency, max_iterations)


def loaded_latency(
    time: Callable[[float], tuple[float, float]], latency: float, traffic: float, bandwidth: float
) -> FixPoint:
    """The corrected fix-point in few evaluations: Newton's method on a convex, piecewise linear ``time``.

    ``time`` maps a latency to the cycles and to the number of these latencies in sequence on the critical path (the slope). If
    the slope is zero, no latency reaches the bound, and the result is the unloaded latency.
    """
    bound = traffic / bandwidth
    now, slope = time(latency)
    unloaded = latency
    for iteration in range(1, 33):
        if (latency == unloaded and now >= bound) or abs(now - bound) <= 1e-9 * max(1.0, bound):
            return FixPoint(max(now, bound), latency, iteration)
        if slope <= 0.0:
            return FixPoint(max(now, bound), unloaded, iteration)
        latency = max(unloaded, latency + (bound - now) / slope)
        now, slope = time(latency)
    return FixPoint(max(time(unloaded)[0], bound), latency, 32)
