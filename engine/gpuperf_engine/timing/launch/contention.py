"""Atomics on the same address of global memory, which L2 executes one after another, at most one per clock.

The number of lanes at the hottest address of a launch is counted (``simt.atomic_targets``). Integer additions, minima, maxima and
bitwise operations of lanes with the same address are combined before they reach L2; exchanges, compare-and-swap and floating-point
operations are not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ...machines.machine import Machine
from ...profile.build import LaunchRecord
from ...sass.assemble import instructions_of
from ...simt.atomic_targets import HALF, WORD_SHIFT, HottestAddress, are_combined
from ...simt.counters import SITE_COLUMNS

__all__ = ["Contention", "contention"]

_COLUMN = {name: number for number, name in enumerate(SITE_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Contention:
    """``operations``: serialised at the hottest address of the launch; ``hottest``: describes the address for users; ``waits``: cycles
    that a request waits for its own lanes, by number of the memory instruction."""

    operations: float
    hottest: str
    waits: dict[int, float]


def contention(record: LaunchRecord, machine: Machine, combined: Collection[int] = frozenset()) -> Contention:
    """The contention of one launch whose memory behaviour was observed. ``combined``: the numbers of the instructions
    (``sass.assemble.instructions_of``) of which each warp executes one operation, whatever the number of its lanes."""
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
    if combined:
        hottest = _of_warps(record, hottest, combined)
    # If the machine combines more or fewer lanes than the count assumes, the lower bound.
    operations = max(
        hottest.operations * HALF / max(HALF, machine.atomic_lanes), hottest.lanes / machine.atomic_lanes
    )
    return Contention(operations, _described(hottest, record), waits)


def _of_warps(record: LaunchRecord, hottest: HottestAddress, combined: Collection[int]) -> HottestAddress:
    """The hottest address without the lanes of warps that execute one operation, but for one lane of each; it may be another then."""
    number_of = {item: number for number, item in enumerate(instructions_of(record.program.kernel), 1)}
    sites = record.observation.sites
    assert sites is not None
    lanes = hottest.lanes
    for site in record.program.sites:
        if number_of.get(site.instruction) in combined:
            row = {name: int(sites[site.index][number]) for name, number in _COLUMN.items()}
            lanes -= (
                row["lanes"] - row["shared_lanes"] - row["local_lanes"] - row["requests"] + row["elsewhere"]
            )
    lanes = max(0, lanes)
    return replace(hottest, lanes=lanes, operations=min(hottest.operations, lanes))


def _described(hottest: HottestAddress, record: LaunchRecord) -> str:
    most = f"atomics: {hottest.lanes:,} lanes on one address of global memory"
    if hottest.word is None:
        return f"{most} at most"
    address, plan = hottest.word << WORD_SHIFT, record.plan
    for (start, size), name in zip(plan.pointed_at, plan.names, strict=True):
        if start <= address < start + size:
            return f"{most}, byte {address - start:,} of {name!r}"
    return f"{most}, {plan.describe(address)}"
