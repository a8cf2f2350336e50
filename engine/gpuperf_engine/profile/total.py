"""Several launches of one kernel added up: a gate case is judged by the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from .._arguments import takes_annotated
from ..errors import EngineError
from ..flow.slicing import DEMANDS
from ..results import (
    BlockProfile,
    Branches,
    BranchProfile,
    LineProfile,
    Memory,
    Profile,
    Resources,
    SiteProfile,
)

__all__ = ["add_profiles"]


@takes_annotated
def add_profiles(profiles: Sequence[Profile]) -> Profile:
    """The sum of the profiles of launches of the same kernel, in launch order; shapes are those of the first launch,
    resources the largest. Raises ``EngineError`` if there are none."""
    if not profiles:
        raise EngineError("no profiles to add")
    if len(profiles) == 1:
        return profiles[0]
    first = profiles[0]
    memories = [profile.observed_memory for profile in profiles]
    return replace(
        first,
        launches=sum(profile.launches for profile in profiles),
        demand=min((profile.demand for profile in profiles), key=DEMANDS.index),
        share_executed=_share(profiles, "share_executed"),
        slice_share=_share(profiles, "slice_share"),
        method="classes" if all(profile.method == "classes" for profile in profiles) else "every block",
        method_reason=next((profile.method_reason for profile in profiles if profile.method_reason), ""),
        thread_instructions=sum(profile.thread_instructions for profile in profiles),
        warp_instructions=sum(profile.warp_instructions for profile in profiles),
        thread_instructions_predicated_on=sum(
            profile.thread_instructions_predicated_on for profile in profiles
        ),
        opcodes=_counts([profile.opcodes for profile in profiles]),
        warp_opcodes=_counts([profile.warp_opcodes for profile in profiles]),
        by_category=_counts([profile.by_category for profile in profiles]),
        units=_counts([profile.units for profile in profiles]),
        flops=_counts([profile.flops for profile in profiles]),
        nvprof={name: sum(profile.nvprof[name] for profile in profiles) for name in first.nvprof},
        branches=Branches(
            sum(profile.branches.executed for profile in profiles),
            sum(profile.branches.divergent for profile in profiles),
        ),
        resources=Resources(
            max(profile.resources.registers for profile in profiles),
            max(profile.resources.shared_bytes for profile in profiles),
            max(profile.resources.local_bytes for profile in profiles),
            first.resources.source,
            max(profile.resources.spill_stores for profile in profiles),
            max(profile.resources.spill_loads for profile in profiles),
        ),
        blocks=_rows([profile.blocks for profile in profiles], BlockProfile, 6),
        branch_sites=_rows([profile.branch_sites for profile in profiles], BranchProfile, 3),
        by_line=_rows([profile.by_line for profile in profiles], LineProfile, 3),
        by_source_line=_rows([profile.by_source_line for profile in profiles], LineProfile, 3),
        sites=_rows([profile.sites for profile in profiles], SiteProfile, 7),
        observed_memory=None if any(memory is None for memory in memories) else _memories(memories),
        remarks=tuple(dict.fromkeys(remark for profile in profiles for remark in profile.remarks)),
        notes=tuple(dict.fromkeys(note for profile in profiles for note in profile.notes)),
        races=tuple(dict.fromkeys(race for profile in profiles for race in profile.races)),
        cancelled_ctas=sum(profile.cancelled_ctas for profile in profiles),
        waited=any(profile.waited for profile in profiles),
        printed="".join(profile.printed for profile in profiles),
        observed_footprint=None,
        observed_values=None,
        observed_proofs=None,
        observed_threads=None,
        seconds=sum(profile.seconds for profile in profiles),
        records=tuple(record for profile in profiles for record in profile.records),
    )


def _share(profiles: Sequence[Profile], name: str) -> float:
    """The mean of a share of thread instructions, weighted by these."""
    every = sum(profile.thread_instructions for profile in profiles)
    part = sum(getattr(profile, name) * profile.thread_instructions for profile in profiles)
    return part / every if every else 1.0


def _counts(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        for key, count in part.items():
            total[key] += count
    return dict(sorted(total.items()))


def _rows(parts: Sequence[tuple[Any, ...]], kind: type[Any], identity: int) -> tuple[Any, ...]:
    """Merges records with equal first ``identity`` fields, adding the other fields."""
    values_of = attrgetter(*(item.name for item in fields(kind)))
    total: dict[tuple[object, ...], list[int]] = {}
    for row in (row for part in parts for row in part):
        values = values_of(row)
        key = values[:identity]
        sums = total.setdefault(key, [0] * (len(values) - identity))
        for index, value in enumerate(values[identity:]):
            sums[index] += value
    return tuple(kind(*key, *sums) for key, sums in total.items())


def _memories(parts: Sequence[Memory | None]) -> Memory:
    observed = [part for part in parts if part is not None]
    sums = {
        item.name: sum(getattr(part, item.name) for part in observed)
        for item in fields(Memory)
        if item.name != "accesses"
    }
    return Memory(**sums, accesses=_counts([part.accesses for part in observed]))
