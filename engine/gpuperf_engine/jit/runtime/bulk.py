"""Runtime of generated code: bulk copies, in pieces of 16 bytes.

Written in the subset of ``compile_python`` and compiled, never run as Python. Addresses of shared memory are given as ``reach`` takes
them. ``how``: bits of ``Bulk``.
"""

from __future__ import annotations

from ...isa.mbarriers import Mbarrier
from ..ir.abi import Context, Cta, State
from ..ir.access_records import Counter
from ..ir.copy_records import Bulk
from .compile_python import call, load8, load32, load64, store8, store64, trailing_zeros, unsigned_less
from .count import bump, count_words
from .mbarrier import in_rank, mbarrier_change, mbarrier_report, refuse_mbarrier
from .memory import reach
from .races_groups import race_source
from .races_mbarriers import race_bulk
from .races_shared import race_range


def count_bulk(context: Context, site: int, address: int, size: int, how: int, again: int) -> int:
    """Count the units that a range touches; ``again``: the same bytes go to a further CTA."""
    if context.COUNTING == 0 or size == 0:
        return 0
    waves = (size + 127) >> 7
    bump(context, site, Counter.WAVEFRONTS, waves)
    bump(context, site, Counter.IDEAL, waves)
    if again:
        return 0
    bump(context, site, Counter.LANES, size >> 4)
    if how & (Bulk.FROM_GLOBAL | Bulk.TO_GLOBAL):
        last = address + size - 1
        bump(context, site, Counter.SECTORS, (last >> 5) - (address >> 5) + 1)
        bump(context, site, Counter.LINES, (last >> 7) - (address >> 7) + 1)
    return 0


def mbarrier_of_copy(context: Context, cta: Cta, mbarrier: int, rank: int, how: int) -> int:
    """Where the mbarrier lies that a copy signals."""
    if how & Bulk.GENERIC:
        mbarrier = (mbarrier - context.SHARED_WINDOW - cta.WINDOW) & 4294967295
    if how & Bulk.MULTICAST:
        if how & Bulk.PAIRED:
            rank = (rank & -2) | (((mbarrier + cta.WINDOW) >> 24) & 1)
        mbarrier = in_rank(cta, mbarrier, rank)
    return mbarrier


def signal_copied(
    context: Context,
    cta: Cta,
    site: int,
    mbarriers: int,
    lane: int,
    rank: int,
    how: int,
    size: int,
    found: int,
) -> int:
    """So many bytes have come: the mbarrier of a lane, in the CTA of that rank of a multicast, is signalled (of a pair of CTAs the one
    whose rank is odd or even as that of the mbarrier); ``found``: and that something is to be reported. 1 if refused."""
    if mbarriers == 0:
        return 0
    mbarrier = load64(mbarriers + lane * 8)
    if how & Bulk.GENERIC and not unsigned_less(mbarrier - context.SHARED_WINDOW, context.WINDOW_BYTES):
        refuse_mbarrier(context, site, lane, mbarrier, Mbarrier.NOT_SHARED, 0, 0)
        return 1
    mbarrier = mbarrier_of_copy(context, cta, mbarrier, rank, how)
    if found and mbarrier_report(context, cta, site | Bulk.SIGNALS, lane, mbarrier, 512) == 0:
        return 1
    context.RACE_ARRIVED = 0
    mbarrier_change(context, cta, site | Bulk.SIGNALS, lane, mbarrier, Mbarrier.COMPLETE | 512, 1, size)
    return context.FAULTED


def bulk_move(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    source: int,
    target: int,
    size: int,
    how: int,
    bytes: int,
    edges: int,
    combine: int,
) -> int:
    """One copy; ``bytes`` has the bits of those of each piece that are copied, ``edges`` bytes left out at the ends (eight bits
    and the next), ``combine`` is the function of a reduction. 1 if
    refused."""
    reads = 8 + 1
    if how & Bulk.FROM_GLOBAL:
        reads = 8
    writes = 4 + 1
    if how & Bulk.TO_GLOBAL:
        writes = 4
    if combine:
        writes += 8
    done = 0
    while unsigned_less(done, size):
        if done & 511 == 0:
            reads = reads & 15
            writes = writes & 15
            left = size - done
            whole = edges == 0 and how & Bulk.ANSWER == 0
            if how & Bulk.TO_GLOBAL:
                race_source(context)
            if whole and reads & 1 and race_range(context, cta, site, lane, source + done, left, 8):
                reads += 16
            if how & Bulk.TO_GLOBAL:
                store64(context + Context.RACE_AGENT, 0)
            whole = edges == 0 and bytes == 65535
            if (
                whole
                and writes & 1
                and race_range(context, cta, site, lane, target + done, left, writes & 12)
            ):
                writes += 16
        come = 0
        chosen = bytes
        if done == 0:
            chosen = chosen & (65535 << (edges & 15))
        if done + 16 == size:
            chosen = chosen & (65535 >> (edges >> 8))
        if how & Bulk.ANSWER == 0 and (edges == 0 or chosen == 65535):
            apart = how & Bulk.TO_GLOBAL and reads & 16 == 0
            if apart:
                race_source(context)
            come = reach(context, cta, state, site, lane, source + done, 16, reads)
            if apart:
                store64(context + Context.RACE_AGENT, 0)
            if come == 0:
                context.FAULT_WORD = 1
                return 1
        go = reach(context, cta, state, site, lane, target + done, 16, writes)
        if go == 0:
            return 1
        if how & Bulk.ANSWER:
            store64(go + 8, 0)
            store64(go, 0)
        elif combine:
            call(combine, go, come, 0)
        elif chosen == 65535:
            low = load64(come)
            store64(go + 8, load64(come + 8))
            store64(go, low)
        else:
            index = 0
            while index < 16:
                if (chosen >> index) & 1:
                    one = come + index
                    if edges:
                        one = reach(context, cta, state, site, lane, source + done + index, 1, reads & 15)
                        if one == 0:
                            context.FAULT_WORD = 1
                            return 1
                    store8(go + index, load8(one))
                index += 1
        done += 16
    return 0


def holds_pattern(
    context: Context, cta: Cta, state: State, site: int, lane: int, source: int, size: int, kind: int
) -> int:
    """Whether bytes of global memory hold a pattern that is reported; ``kind``: 1 + its place in ``Bulk.PATTERNS``."""
    done = 0
    while unsigned_less(done, size):
        come = reach(context, cta, state, site, lane, source + done, 16, 8)
        if come == 0:
            return 0
        first = load64(come)
        if kind == 1 and first & 4294967295 == 2147483648:
            return 1
        if kind == 2 and first & 65535 == 32768:
            return 1
        if kind == 3 and first & 255 == 128:
            return 1
        if kind == 4 and first & 15 == 8:
            return 1
        index = 0
        while kind == 5 and index < 16:
            if load8(come + index) == 255:
                return 1
            index += 1
        done += 16
    return 0


def bulk_lanes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    sources: int,
    targets: int,
    sizes: int,
    mbarriers: int,
    words: int,
    how: int,
    combine: int,
) -> int:
    """One instruction, lane after lane; ``words`` are ranks of a multicast, or bits of the bytes to copy. 1 if refused."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        size = load32(sizes + lane * 4)
        source = load64(sources + lane * 8)
        target = load64(targets + lane * 8)
        if size & 15:
            place = target
            if how & Bulk.TO_GLOBAL == 0:
                place = (target + cta.WINDOW * (cta.CLUSTER != 0)) & 4294967295
            refuse_mbarrier(context, site, lane, place, Mbarrier.SIZE, 0, size)
            return 1
        bytes = 65535
        edges = 0
        ranks = 1
        if how & Bulk.MASKED:
            bytes = load32(words + lane * 4)
        if how & Bulk.EDGES:
            edges = load32(words + lane * 4)
            if edges & 240 or edges >> 12:
                wrong = edges & 255
                if wrong < 16:
                    wrong = edges >> 8
                refuse_mbarrier(context, site, lane, target, Mbarrier.EDGE, 0, wrong)
                return 1
        if how & Bulk.MULTICAST:
            ranks = load32(words + lane * 4)
            if how & Bulk.ANSWER:
                ranks = 1
                if context.CLUSTER_CTAS:
                    ranks = (1 << context.CLUSTER_CTAS) - 1
        if how & Bulk.GENERIC:
            window = context.SHARED_WINDOW
            if not unsigned_less(target - window, context.WINDOW_BYTES):
                refuse_mbarrier(context, site, lane, target, Mbarrier.NOT_SHARED, 0, 0)
                return 1
            target = (target - window - cta.WINDOW) & 4294967295
        again = 0
        while ranks:
            rank = trailing_zeros(ranks)
            ranks = ranks & (ranks - 1)
            to = target
            if how & Bulk.MULTICAST:
                to = in_rank(cta, target, rank)
            if mbarriers and how & Bulk.TO_GLOBAL == 0:
                race_bulk(
                    context, cta, mbarrier_of_copy(context, cta, load64(mbarriers + lane * 8), rank, how)
                )
            refused = bulk_move(context, cta, state, site, lane, source, to, size, how, bytes, edges, combine)
            context.RACE_AGENT = 0
            if refused:
                return 1
            kind = how >> Bulk.REPORT
            found = kind and holds_pattern(context, cta, state, site, lane, source, size, kind)
            if signal_copied(context, cta, site, mbarriers, lane, rank, how, size, found):
                return 1
            place = to
            if how & Bulk.FROM_GLOBAL:
                place = source
            count_bulk(context, site, place, size, how, again)
            if combine and how & Bulk.TO_GLOBAL:
                count_words(context, to, to + size)
            again = 1
    return 0


def fill_lanes(
    context: Context, cta: Cta, state: State, site: int, mask: int, targets: int, sizes: int, generic: int
) -> int:
    """``st.bulk``. 1 if refused."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        target = load64(targets + lane * 8)
        size = load64(sizes + lane * 8)
        near = 1
        if generic:
            near = 3
            if not unsigned_less(target - context.SHARED_WINDOW, context.WINDOW_BYTES):
                refuse_mbarrier(context, site, lane, target, Mbarrier.NOT_SHARED, 0, 0)
                return 1
        if size & 7:
            place = target
            if generic == 0:
                place = (target + cta.WINDOW * (cta.CLUSTER != 0)) & 4294967295
            refuse_mbarrier(context, site, lane, place, Mbarrier.WORDS, 0, size)
            return 1
        done = 0
        while unsigned_less(done, size):
            host = reach(context, cta, state, site, lane, target + done, 8, 4 + near)
            if host == 0:
                return 1
            store64(host, 0)
            done += 8
        if context.COUNTING:
            waves = (size + 127) >> 7
            bump(context, site, Counter.WAVEFRONTS, waves)
            bump(context, site, Counter.IDEAL, waves)
            bump(context, site, Counter.LANES, size >> 3)
    return 0
