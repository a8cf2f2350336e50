"""Atomics on the same address of global memory, which L2 does one after the other, at most one in a clock.

How many lanes come to the hottest address of a launch is counted (``simt.atomic_targets``). Integer sums, extremes and bitwise
operations of lanes that share an address are combined before they reach L2; exchanges, compare-and-swap and floating-point operations
are not.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...machines.machine import Machine
from ...profile.build import LaunchRecord
from ...simt.atomic_targets import HALF, WORD_SHIFT, HottestAddress, are_combined
from ...simt.counters import SITE_COLUMNS

__all__ = ["Contention", "contention"]

_COLUMN = {name: number for number, name in enumerate(SITE_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Contention:
    """``operations`` follow each other at the hottest address of the launch, ``hottest`` says at which, for people; ``waits`` are the
    cycles that a request waits for its own lanes, by number of the memory instruction."""

    operations: float
    hottest: str
    waits: dict[int, float]


def contention(record: LaunchRecord, machine: Machine) -> Contention:
    """Of the atomics of one launch whose memory behaviour was observed."""
    assert record.observation.sites is not None
    waits: dict[int, float] = {}
    for site in record.program.sites:
        if site.kind not in ("atomic", "reduction"):
            continue
        row = record.observation.sites[site.index]
        requests = int(row[_COLUMN["requests"]]) - int(row[_COLUMN["elsewhere"]])
        serializations = int(row[_COLUMN["serializations"]])
        together = machine.atomic_lanes if are_combined(site.instruction) else 1
        if serializations > requests * together:
            waits[site.index] = (serializations / requests / together - 1.0) / machine.atomic_rate
    hottest = record.observation.hottest
    # where a machine combines more or fewer lanes than were counted together, the least that it can be
    operations = max(
        hottest.operations * HALF / max(HALF, machine.atomic_lanes), hottest.lanes / machine.atomic_lanes
    )
    return Contention(operations, _described(hottest, record), waits)


def _described(hottest: HottestAddress, record: LaunchRecord) -> str:
    most = f"atomics: {hottest.lanes:,} lanes on one address of global memory"
    if hottest.word is None:
        return f"{most} at most"
    address, plan = hottest.word << WORD_SHIFT, record.plan
    for (start, size), name in zip(plan.pointed_at, plan.names, strict=True):
        if start <= address < start + size:
            return f"{most}, byte {address - start:,} of {name!r}"
    return f"{most}, {plan.describe(address)}"
