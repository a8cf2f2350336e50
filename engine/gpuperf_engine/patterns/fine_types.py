"""Heavy types: what an instruction accesses fits a narrower type exactly."""

from __future__ import annotations

from ..device.thresholds import Thresholds
from ..results import ValueRecord
from .matches import Match

__all__ = ["heavy_type", "rounded_type"]

#: bytes, bits of the fraction, largest number, least normal one (PTX ISA, "Alternate Floating-Point Data Formats"; IEEE 754)
_FLOATS = {
    "e4m3": (1, 3, 448.0, 2.0**-6),
    "e5m2": (1, 2, 57344.0, 2.0**-14),
    "f16": (2, 10, 65504.0, 2.0**-14),
    "bf16": (2, 7, 2.0**127 * (2 - 2.0**-7), 2.0**-126),
    "f32": (4, 23, 2.0**127 * (2 - 2.0**-23), 2.0**-126),
}
_INTEGERS = {
    f"{sign}{bits}": (
        bits // 8,
        *((-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign == "s" else (0, (1 << bits) - 1)),
    )
    for bits in (8, 16, 32)
    for sign in "us"
}


def heavy_type(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """The narrowest type that holds all values exactly: an integer, a float, or an index of 8 bits into a dictionary."""
    narrower = _narrower(record)
    if narrower is not None and record.several_elements:
        name, width = narrower
        return Match(
            "heavy-type",
            1.0,
            f"all fit {name} exactly, instead of {record.type}",
            record.count * (record.width - width),
            f"store the values as {name}",
            severity="note",
            evidence={"narrower": name},
        )
    # as many different values as elements are no dictionary, however often each is accessed
    values = min(record.count, record.elements or 0)
    few = record.distinct_exact and record.distinct <= min(
        thresholds.dictionary, thresholds.distinct * values
    )
    saved = record.count * (record.width - 1) - record.distinct * record.width
    if not few or saved <= 0 or not record.several_elements:
        return None
    return Match(
        "heavy-type",
        1.0,
        f"they have {record.distinct} distinct values only",
        saved,
        f"store an 8-bit index into a table of the {record.distinct} values",
        severity="note",
        evidence={"narrower": "dictionary", "distinct": record.distinct},
    )


def rounded_type(record: ValueRecord, approximate: Match) -> Match | None:
    """Of values that are about one: a float half as wide that holds them but for rounding."""
    name, error = (approximate.evidence.get(key) for key in ("narrower", "narrower_error"))
    if name is None:
        return None
    return Match(
        "heavy-type",
        1.0,
        f"all fit {name} within {error:.2g}, instead of {record.type}",
        record.bytes // 2,
        f"if the result bears the rounding, store the values as {name}",
        severity="note",
        evidence={"narrower": name, "narrower_error": error},
    )


def _narrower(record: ValueRecord) -> tuple[str, int] | None:
    low, high = record.minimum, record.maximum
    if low is None or high is None or record.nans:
        return None
    if record.mantissa_bits is not None:
        largest, least = max(abs(low), abs(high)), record.smallest
        for name, (width, fraction, most, normal) in _FLOATS.items():
            fits = record.mantissa_bits <= fraction and largest <= most and (least is None or least >= normal)
            if width < record.width and fits:
                return name, width
    elif record.type[0] in "us":
        for name, (width, lowest, highest) in _INTEGERS.items():
            if width < record.width and lowest <= low and high <= highest:
                return name, width
    return None
