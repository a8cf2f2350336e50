"""Structured values: what an instruction accesses is a line over the index of the element."""

from __future__ import annotations

from ..device.thresholds import Thresholds
from ..results import ValueRecord
from .matches import Match

__all__ = ["structured_values"]


def structured_values(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """``base + slope · index`` for at least the part ``fits`` of the accesses; a slope of 0 is a single value."""
    line = record.affine
    if (
        line is None
        or line.slope == 0
        or line.fits < thresholds.fits * record.count
        or record.distinct < thresholds.line
    ):
        return None
    base = line.base - line.slope * line.start
    return Match(
        "structured-values",
        line.fits / record.count,
        f"element i is {base:g} + {line.slope:g} · i",
        record.bytes if record.kind == "load" else 0,
        "compute the values from the index instead of loading them"
        if record.kind == "load"
        else "let what reads the values compute them from the index",
        severity="fail" if record.kind == "load" else "note",
        evidence={"base": base, "slope": line.slope},
    )
