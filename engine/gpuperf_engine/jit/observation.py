"""The counters of all workers of a launch, as an ``Observation``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..isa.tensor_memory import WORK
from ..simt.atomic_targets import hottest_of
from ..simt.counters import Observation
from ..simt.padding import merge
from ..simt.rule_breaches import first_breaches
from .codegen.waits import remarks_on
from .ir.abi import Context
from .ir.race_records import Segment
from .launch import Launch
from .races.findings import races_of

__all__ = ["observation_of"]


def observation_of(launch: Launch) -> Observation:
    """The observation of a launch that has ended."""
    program, contexts = launch.program, launch.contexts
    first = contexts[0]
    counters = first.counters.copy()
    for context in contexts[1:]:
        counters += context.counters
    counted, tables = "memory" in launch.observe, launch.code.tables
    if counted:
        tables.fill(counters)
    observation = tables.layout.observation(counters, counted)
    if counted and first.targets.size:
        observation.hottest = hottest_of([context.targets for context in contexts])
    if any([context.is_remarkable for context in contexts]):
        _add_remarkable(launch, observation)
    _settle_races(launch)
    if any([context.races[0] for context in contexts]):
        observation.races = races_of(program, launch.plan, (context.races for context in contexts))
    observation.threads = launch.threads
    if launch.cancels:
        observation.cancelled = launch.plan.cluster_ctas * first.get(Context.CANCELLED)
    if first.tensor_work.size:
        totals = np.sum([context.tensor_work for context in contexts], axis=0).tolist()
        observation.tensor_work = {name: total for name, total in zip(WORK, totals) if total}
    if launch.values is not None:
        context = contexts[0]
        complete = not context.get(Context.VALUE_LEFT_OUT)
        observation.values = launch.values.records(
            context.address,
            context.get(Context.VALUE_USED),
            launch.memory,
            observation.uninitialized,
            complete,
        )
        if not complete:
            observation.notes = launch.values.note
    if any([context.left for context in contexts]):
        observation.remarks = (*remarks_on(program, sum((context.left for context in contexts), Counter())),)
    if launch.races.orders:
        observation.remarks = (*observation.remarks, *_race_remarks(launch))
    return observation


def _add_remarkable(launch: Launch, observation: Observation) -> None:
    """Set the sites that read uninitialised memory, accesses past objects, and breaches of rules."""
    for context in launch.contexts:
        for site, read in context.blank_reads().items():
            observation.blank[site] = min(read, observation.blank.get(site, read))
        merge(observation.beyond, context.overruns())
    observation.uninitialized = frozenset(observation.blank)
    breaches = [item for context in launch.contexts for item in context.breaches()]
    if breaches:
        observation.breaches = first_breaches(breaches)


def causes(launch: Launch) -> Iterator[str]:
    """What may be the cause of an error that ended a launch: the first read of uninitialised memory, and the first race."""
    unseen = {int(site) for context in launch.contexts for site in context.unseen[:-1, 0].nonzero()[0]}
    if unseen:
        instruction = launch.program.sites[min(unseen)].instruction
        place = instruction.span if instruction.location is None else instruction.location.described
        yield f"before that, {instruction.opcode} at {place} has read uninitialised memory"
    races = races_of(launch.program, launch.plan, (context.races for context in launch.contexts))
    yield from (f"before that: {race.message}" for race in races[:1])


def _settle_races(launch: Launch) -> None:
    """Compare accesses to lines and words of global memory by CTAs that may have run concurrently."""
    if not launch.races.pairs_unsettled:
        return
    first = min(context.get(Context.RACE_LOWEST) for context in launch.contexts)
    if launch.races.spans_lines(first):
        last = max(context.get(Context.RACE_HIGHEST) for context in launch.contexts)
        launch.functions["race_settle"](launch.contexts[0].address, first, last)
    if launch.races.shared_words:
        launch.functions["race_settle_words"](launch.contexts[0].address, 0, launch.races.shared_words)


def _race_remarks(launch: Launch) -> Iterator[str]:
    most = Segment.MOST - 1
    if launch.contexts[0].get(Context.RACE_SEGMENT_COUNT) == most:
        kernel = launch.program.kernel
        yield (
            f"{kernel.span}: {kernel.name!r}: after {most:,} segments between fences and barriers accesses of global memory were "
            "no longer checked for races"
        )
