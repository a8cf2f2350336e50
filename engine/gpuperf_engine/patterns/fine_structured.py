"""Structured values: what an instruction accesses is an affine function of the index of the element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..device.contents import percent
from ..device.thresholds import Thresholds
from ..memory.arena import are_addresses
from ..results import AffineFit, ValueRecord
from .matches import Match

__all__ = ["structured_match", "structured_values"]


def structured_values(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """``base + slope · i``, of an array of several axes with a slope along each, for at least the part ``fits`` of the accesses that
    are held against it, if those before are a quarter at most; a function without slopes is a single value."""
    line = record.affine
    if (
        line is None
        or not any(line.slopes)
        or line.fits < thresholds.fits * (record.count - line.before)
        or 4 * line.before > record.count
        or record.distinct < thresholds.line
    ):
        return None
    bounds = record.minimum, record.maximum
    if record.type[0] != "f" and are_addresses(int(bounds[0] or 0), int(bounds[1] or 0), record.width):
        return None
    slope = line.slope if line.every == 1 else line.slope / line.every
    slopes = {"slopes": list(line.slopes)} if line.beyond else {}
    return structured_match(
        record.kind == "load",
        _text(line),
        line.fits,
        record.count,
        record.width,
        line.before,
        {"base": line.at_zero, "slope": slope, **slopes},
    )


def structured_match(
    loads: bool, text: str, fits: int, count: int, width: int, before: int, evidence: Mapping[str, Any]
) -> Match:
    """So many of the accesses are on a function of the index; those ``before`` were not held against it, and may be."""
    whole = fits == count
    advice = (
        "compute the values from the index instead of loading them"
        if loads
        else "let the readers of the values compute them from the index"
    )
    return Match(
        "structured-values",
        fits / count,
        text + ("" if whole else f" in {'at least ' if before else ''}{percent(fits, count)}"),
        fits * width if loads else 0,
        advice + ("" if whole else ", but for the others"),
        severity="fail" if loads and whole else "note",
        evidence=evidence,
    )


def _text(line: AffineFit) -> str:
    if line.every > 1:
        return f"element {line.start} is {line.base:g}, and {line.slope:g} more every {line.every} elements"
    names = "xyz"[: len(line.slopes)] if line.beyond else "i"
    terms = " + ".join(f"{slope:g} · {name}" for slope, name in zip(line.slopes, names))
    return f"element {'(' + ', '.join(reversed(names)) + ')' if line.beyond else names} is {line.at_zero:g} + {terms}"
