"""Stores that change nothing or that nobody reads, loads of what the thread has loaded before, and of what nobody stored."""

from __future__ import annotations

from ..device.contents import percent
from ..device.thresholds import Thresholds
from ..results import ValueRecord
from .matches import Match

__all__ = ["dead_stores", "repeated_loads", "silent_stores", "uninitialized_reads"]


def silent_stores(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """At least the part ``redundant`` of the stores find the bits that they store (Lepak and Lipasti, "Silent stores for free", MICRO
    2000)."""
    if record.kind != "store" or not record.silent or record.silent < thresholds.redundant * record.count:
        return None
    fraction = record.silent / record.count
    return Match(
        "silent-stores",
        fraction,
        f"{record.silent:,} ({percent(record.silent, record.count)}) are there already",
        record.silent * record.width,
        "skip the store if the value does not change",
        evidence={"silent": record.silent},
    )


def dead_stores(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """At least the part ``redundant`` of the bytes stored are overwritten by their thread before anybody reads them (``DeadSpy``:
    Chabbi and Mellor-Crummey, CGO 2012)."""
    if not record.dead_bytes or record.dead_bytes < thresholds.redundant * record.bytes:
        return None
    assert record.overwriter is not None
    line, source = record.overwriter
    fraction = record.dead_bytes / record.bytes
    return Match(
        "dead-stores",
        fraction,
        f"{record.dead_bytes:,} bytes ({percent(record.dead_bytes, record.bytes)}) their thread overwrites at "
        f"{source or f'line {line}'} before anybody reads them",
        record.dead_bytes,
        "keep the value in a register and store only the last one",
        evidence={"dead_bytes": record.dead_bytes, "overwriter": source or f"line {line}"},
    )


def repeated_loads(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """At least the part ``redundant`` of the loads find what the thread has loaded from there before."""
    if not record.reloads or record.reloads < thresholds.redundant * record.count:
        return None
    fraction = record.reloads / record.count
    return Match(
        "repeated-loads",
        fraction,
        f"{record.reloads:,} ({percent(record.reloads, record.count)}) the thread has loaded before, and they are the same",
        record.reloads * record.width,
        "load before the loop and keep the value in a register; __restrict__ lets the compiler do so",
        severity="note",
        evidence={"reloads": record.reloads},
    )


def uninitialized_reads(record: ValueRecord, thresholds: Thresholds) -> Match | None:
    """The instruction read memory that nobody had written."""
    if record.kind != "load" or not record.uninitialized:
        return None
    return Match(
        "uninitialized-reads",
        1.0,
        "some of them are uninitialised",
        0,
        "write the memory before it is read, or do not read it",
    )
