"""The sectors that the loads of a launch read from L2: the CTAs of an SM, traced with their own addresses, share its L1.

L1 evicts a random line. The first CTAs go to the SMs in turn; after that an SM takes the next one whenever one of its own ends. CTAs
of an SM share its units and end at regular intervals; how many CTAs the other SMs take meanwhile, each of which ends its own at other
times, is random (Poisson).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ...results import LINE_BYTES
from ..run.writer import NotRun
from .asynchronous import Copies, Named, ctas_of
from .classes import Classes
from .launch import Traced
from .numbers import SmNumbers
from .operations import Operations
from .settings import MOST_INSTRUCTIONS, MOST_LOOKED_UP, READ_CTAS, READ_WORDS
from .simulate import Memory, run_sms
from .streams import LOCAL_GROUP, classes_together, named_of

__all__ = ["ctas_of_sms", "read_sectors"]


def read_sectors(
    traced: Traced, numbers: SmNumbers, resident: int, shared_per_cta: int, instructions: float
) -> int:
    """The sectors that all loads of the launch read from L2. Arguments as for ``Traced.timed``; ``instructions``: those of a CTA.

    Raises ``NotRun`` if the CTAs copy in bulk or form clusters, or execute too much for enough of them to be traced.
    """
    plan, classes = traced.record.plan, traced.classes
    if classes.cluster > 1 or (classes.copying is not None and classes.copying.named.kind_count):
        raise NotRun("bulk copies, and CTAs of clusters, share L1 in ways that are not simulated")
    if any(group.space == "image" for group in classes.groups):
        raise NotRun("the layout of textures and surfaces is not published")
    sms, numbers = numbers.sm_count, traced.used(numbers)
    resident = min(resident, traced.ctas_of_sm(numbers))
    # Those that have nothing to do are not traced.
    instructions *= plan.ctas / classes.equal(plan.ctas)
    most = min(
        2 * resident + READ_CTAS,
        READ_WORDS // max(1, classes.words * plan.warps_per_cta),
        int(MOST_INSTRUCTIONS // max(1.0, instructions)),
    )
    memory = _memory(traced, numbers, resident, shared_per_cta)
    operations = traced.operations(numbers)
    named = named_of(traced.tracer, [0] * len(traced.tracer.sites))
    read, counted = 0, 0
    ctas, places = plan.ctas, classes.working(MOST_LOOKED_UP)
    if places is not None:
        ctas = len(places)
        resident = min(resident, -(-ctas // min(sms, ctas)))
    for words in _words_of(traced, ctas_of_sms(ctas, sms, resident, most), places):
        reads = _reads(
            traced, Named(named.sites.copy(), named.firsts), operations, numbers, memory, words, resident
        )
        # The first CTAs of a part fill L1, and the last ones have it for themselves.
        if ctas > sms * most:
            reads = reads[resident:-resident]
        read, counted = read + int(reads.sum()), counted + len(reads)
    return round(read * ctas / counted)


def ctas_of_sms(ctas: int, sms: int, resident: int, most: int) -> list[NDArray[np.int64]]:
    """The CTAs of some SMs in order, ``most`` altogether: of the SMs if these are all their CTAs, else a part of one in the middle of
    the grid. Raises ``NotRun`` if ``most`` is too small for a part."""
    sms = min(sms, ctas)
    each, draws = -(-ctas // sms), np.random.default_rng(0)
    if each > most:
        if most < 3 * resident:
            raise NotRun("its CTAs execute too much for enough of them to be traced")
        places = np.cumsum(1 + draws.poisson(sms - 1, most))
        return [(ctas // 2 + places - int(places[-1]) // 2) % ctas]
    room = each + 1 + 4 * int(each**0.5)
    steps = 1 + draws.poisson(sms - 1, (sms, room))
    steps[:, :resident] = sms
    steps[:, 0] = np.arange(sms)
    # Before an SM takes a further CTA, all of them are full.
    steps[:, resident] = sms - np.arange(sms) + draws.integers(sms, size=sms)
    owners = np.argsort(np.cumsum(steps, axis=1), axis=None, kind="stable")[:ctas] // room
    count = min(sms, most // each)
    chosen = (2 * np.arange(count) + 1) * sms // (2 * count)
    return [np.flatnonzero(owners == sm) for sm in chosen]


def _words_of(
    traced: Traced, sms: list[NDArray[np.int64]], places: NDArray[np.int64] | None
) -> Iterator[list[list[NDArray[np.uint32]]]]:
    """The records of the CTAs of each SM, traced in one run if they fit into one; ``places``: their numbers in the grid, if these are
    others."""
    plan = traced.record.plan
    wide, tall, _ = plan.grid

    def whole(ctas: NDArray[np.int64]) -> list[list[NDArray[np.uint32]]]:
        ctas = ctas if places is None else places[ctas]
        at = zip((ctas % wide).tolist(), (ctas // wide % tall).tolist(), (ctas // (wide * tall)).tolist())
        return traced.tracer.whole(traced.record, ctas_of(list(at), plan.cluster), traced.classes.words)

    try:
        every = iter(whole(np.concatenate(sms)))
    except NotRun:
        yield from map(whole, sms)
        return
    for own in sms:
        yield list(islice(every, len(own)))


def _reads(
    traced: Traced,
    named: Named,
    operations: Operations,
    numbers: SmNumbers,
    memory: Memory,
    words: list[list[NDArray[np.uint32]]],
    resident: int,
) -> NDArray[np.uint64]:
    """The sectors that each of the CTAs of an SM reads; ``named``: the sites, without mbarriers and copies; ``words``: their
    records."""
    plan = traced.record.plan
    classes = classes_together(named, words)
    ran = np.arange(len(words), dtype=np.int64)
    return run_sms(
        operations,
        Classes(classes, (), {}, plan.grid),
        Copies(mbarriers=named.mbarrier_count),
        numbers,
        memory,
        ran,
        min(resident, len(words)),
        plan.warps_per_cta,
    ).reads


def _memory(traced: Traced, numbers: SmNumbers, resident: int, shared_per_cta: int) -> Memory:
    """The memory of the simulation of time, with one group for all global accesses, and one for the local memory of each CTA."""
    memory, classes = traced.memory(numbers, resident, shared_per_cta, "cold"), traced.classes
    spaces = [group.space for group in classes.groups]
    weights = np.array(
        [len(classes.typical.touched(number)) * (space == "global") for number, space in enumerate(spaces)]
    )
    total = max(1, int(weights.sum()))
    local = max((share for share, space in zip(memory.shares, spaces) if space == "local"), default=0.0)

    def mean(values: tuple[float, ...]) -> tuple[float, ...]:
        return (float(np.dot(weights, values)) / total,)

    unit = max(1, numbers.shared_unit)
    shared = max(numbers.shared_unit, -(-resident * shared_per_cta // unit) * unit)
    shares = (*mean(memory.shares), *[0.0] * (LOCAL_GROUP - 1), *[local] * LOCAL_GROUP)
    return replace(
        memory,
        l1_lines=max(0, numbers.l1_bytes - shared) // LINE_BYTES,
        shares=shares,
        filled=(),
        behind=mean(memory.behind),
        rows=mean(memory.rows),
        drawn=True,
        together=True,
    )
