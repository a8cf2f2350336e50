"""Frequent values: one value makes up much of what an instruction accesses, or of what it adds to memory in vain."""

from __future__ import annotations

from ..device.contents import percent
from ..device.thresholds import Thresholds
from ..results import ValueRecord
from .matches import Match

__all__ = ["frequent_values", "idle_atomics"]


def frequent_values(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """One value has at least the part ``frequent`` of the accesses, by the count that is certain: up to an eighth of all may
    be missing from it, but for zeros."""
    # 0.0 and −0.0 are one value
    pairs = [pair for pair in record.top if pair[0] != 0]
    pairs += [(0, record.zeros)] if record.zeros else []
    if not pairs or not record.several_elements:
        return None
    value, count = max(pairs, key=lambda pair: pair[1])
    if count < thresholds.frequent * record.count:
        return None
    fraction = count / record.count
    return Match(
        "frequent-values",
        fraction,
        f"{count:,} ({percent(count, record.count)}) are {value}",
        count * record.bytes // record.count,
        f"test for {value} first and skip the dependent computation, or store only the other values",
        severity="note",
        evidence={"value": value, "count": count},
    )


def idle_atomics(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """At least the part ``frequent`` of what an atomic adds, or combines in another way, is 0 and leaves memory as it is."""
    if record.neutral is None or not record.zeros or record.zeros < thresholds.frequent * record.count:
        return None
    fraction = record.zeros / record.count
    whole = record.zeros == record.count
    return Match(
        "single-zero" if whole else "frequent-values",
        fraction,
        f"{'all' if whole else f'{record.zeros:,} ({percent(record.zeros, record.count)})'} are 0, and do not change it",
        record.zeros * record.width,
        "test for 0 first and skip the atomic",
        severity="note",
        evidence={"value": 0, "count": record.zeros},
    )
