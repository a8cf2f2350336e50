"""Rooflines as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from ..core.numbers import number
from .picture import line, picture, point, words

if TYPE_CHECKING:
    from gpuperf_engine.timing.roofline import Roofline

__all__ = ["roofline_svg"]

_LEFT, _TOP, _ACROSS, _DOWN = 90.0, 50.0, 620.0, 360.0
_SLOPES = {"DRAM, data sheet": "second dashed", "DRAM, sustained": "second", "L2": "fourth"}
_POINTS = {"DRAM": "second", "L2": "fourth"}
_GIGA = 1e3
"""Divisor from work or bytes per µs to 10⁹ per second, the unit of the axes."""


def roofline_svg(roofline: Roofline, title: str) -> str:
    """Both axes logarithmic: work per byte across, work per second up. Numbers and sources where a line or point is pointed at."""
    highest = max(ceiling.rate for ceiling in roofline.ceilings)
    lowest_slope = min(slope.rate for slope in roofline.slopes)
    fastest_slope = max(slope.rate for slope in roofline.slopes)
    intensities = [item.intensity for item in roofline.points] + [
        highest / lowest_slope,
        highest / fastest_slope,
    ]
    x0, x1 = floor(log10(min(intensities)) - 0.3), ceil(log10(max(intensities)) + 0.3)
    rates = [item.rate for item in roofline.points] + [ceiling.rate for ceiling in roofline.ceilings]
    y0, y1 = floor(log10(min(rates) / _GIGA) - 0.3), ceil(log10(highest / _GIGA) + 0.2)

    def across(intensity: float) -> float:
        return _LEFT + _ACROSS * (log10(intensity) - x0) / (x1 - x0)

    def up(rate: float) -> float:
        return _TOP + _DOWN * (1 - (log10(rate / _GIGA) - y0) / (y1 - y0))

    def parts() -> Iterator[str]:
        yield words(title, _LEFT, 22)
        for power in range(x0, x1 + 1):
            x = across(10.0**power)
            yield line([(x, _TOP), (x, _TOP + _DOWN)], "grid")
            yield words(f"{10.0**power:g}", x, _TOP + _DOWN + 18, anchor="middle")
        for power in range(y0, y1 + 1):
            y = up(_GIGA * 10.0**power)
            yield line([(_LEFT, y), (_LEFT + _ACROSS, y)], "grid")
            yield words(f"{10.0**power:g}", _LEFT - 8, y + 4, anchor="end")
        yield words(f"{roofline.unit} per byte", _LEFT + _ACROSS / 2, _TOP + _DOWN + 38, anchor="middle")
        yield words(f"10⁹ {roofline.unit} per second", 18, _TOP + _DOWN / 2, anchor="middle", turned=True)
        for ceiling in roofline.ceilings:
            start = max(10.0**x0, ceiling.rate / fastest_slope)
            about = f"{ceiling.name}: {number(ceiling.rate / _GIGA)} · 10⁹ a second ({ceiling.source})"
            yield line(
                [(across(start), up(ceiling.rate)), (_LEFT + _ACROSS, up(ceiling.rate))], "third", about
            )
            yield words(ceiling.name, _LEFT + _ACROSS - 4, up(ceiling.rate) - 6, anchor="end")
        for index, slope in enumerate(roofline.slopes):
            start = max(10.0**x0, _GIGA * 10.0**y0 / slope.rate)
            end = min(highest / slope.rate, 10.0**x1)
            about = f"{slope.name}: {number(slope.rate / _GIGA)} GB/s ({slope.source})"
            style = _SLOPES[slope.name]
            yield line(
                [(across(start), up(start * slope.rate)), (across(end), up(end * slope.rate))], style, about
            )
            y = _TOP + _DOWN - 12 - 18 * index
            yield line([(_LEFT + _ACROSS - 210, y - 4), (_LEFT + _ACROSS - 180, y - 4)], style)
            yield words(slope.name, _LEFT + _ACROSS - 172, y)
        for item in roofline.points:
            about = f"{item.intensity:.4g} {roofline.unit} per byte of {item.level}, {number(item.rate / _GIGA)} · 10⁹ a second"
            yield point(across(item.intensity), up(item.rate), _POINTS[item.level], about)
            # on both sides, as what comes from DRAM alone has both in one place
            side, anchor = (8, "start") if item.level == "DRAM" else (-8, "end")
            yield words(item.level, across(item.intensity) + side, up(item.rate) + 2 * side, anchor=anchor)

    return picture(title, _LEFT + _ACROSS + 30, _TOP + _DOWN + 56, parts())
