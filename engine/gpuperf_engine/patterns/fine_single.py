"""Single values: all accesses of an instruction carry one value, exactly or to some bits of the mantissa."""

from __future__ import annotations

import math

from ..device.contents import half_as_wide
from ..device.thresholds import Thresholds
from ..results import ValueRecord
from .matches import Match

__all__ = ["approximate_values", "flag_match", "single_match", "single_value"]


def single_value(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """All accesses carry one value; zero, of either sign, by a rule of its own. Accesses of one element are none, since they say
    nothing of the others, but stores to an object that has no others, as a flag is."""
    flag = record.kind == "store" and record.elements == 1 and record.count > 1
    if not record.single or not (record.several_elements or flag):
        return None
    zero = record.zeros == record.count
    value = 0 if zero else record.top[0][0] if record.top else record.minimum
    return flag_match(value, record.bytes, record.width) if flag else single_match(value, record.bytes)


def flag_match(value: float | None, moved: int, width: int) -> Match:
    """All stores to the only element of an object carry one value."""
    return Match(
        "single-value" if value else "single-zero",
        1.0,
        f"all are {value}, and it is the only element",
        moved - width,
        "let one thread store it, or only those that find a different value there",
        severity="note",
        evidence={"value": value},
    )


def single_match(value: float | None, moved: int) -> Match:
    """All accesses carry one value."""
    return Match(
        "single-value" if value or value is None else "single-zero",
        1.0,
        f"all are {value}",
        moved,
        "skip the access if the value is known, or keep the value in a register or a constant",
        evidence={"value": value},
    )


def approximate_values(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """All values are one to so many bits of the mantissa: |v − middle| ≤ 2^-(bits + 1) · |largest|."""
    low, high, bits = record.minimum, record.maximum, thresholds.mantissa_of(record.width)
    if (
        not bits
        or record.mantissa_bits is None
        or record.nans
        or low is None
        or high is None
        or not record.several_elements
    ):
        return None
    largest, spread = max(abs(low), abs(high)), high - low
    if not 0 < spread <= 2.0**-bits * largest:
        return None
    middle, rmse = low + spread / 2, None
    if record.mean is not None and record.deviation is not None:
        rmse = math.hypot(record.deviation, record.mean - middle)
    error = "" if rmse is None else f" (root mean square error {rmse:.2g})"
    half = half_as_wide(low, high, record.width)
    rounded = "" if half is None else f"; {half[0]} holds them within {half[1]:.2g}"
    return Match(
        "approximate-values",
        1.0,
        f"all are {middle:.6g} to {bits} bits of the mantissa, none further off than {spread / 2:.2g}{error}{rounded}",
        record.bytes,
        "if the error is acceptable, use the one value, or a type with a shorter mantissa",
        severity="note",
        evidence={
            "value": middle,
            "bits": bits,
            "bound": spread / 2,
            **({} if rmse is None else {"rmse": rmse}),
            **({} if half is None else {"narrower": half[0], "narrower_error": half[1]}),
        },
    )
