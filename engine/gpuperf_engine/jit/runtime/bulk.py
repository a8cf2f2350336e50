"""Runtime of generated code: bulk copies, in pieces of 16 bytes.

Written in the subset of ``compile_python`` and compiled, never run as Python. Addresses of shared memory are as in ``reach``. ``how``:
bits of ``Bulk``.
"""

from __future__ import annotations

from ...isa.mbarriers import Mbarrier
from ..ir.abi import Context, Cta, State
from ..ir.access_records import Counter
from ..ir.copy_records import Bulk
from .count import bump, count_words
from .intrinsics import (
    call,
    load8,
    load32,
    load64,
    store8,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
)
from .mbarrier import in_rank, mbarrier_change, mbarrier_report, refuse_mbarrier
from .memory import reach
from .races.groups import race_source
from .races.mbarriers import race_bulk
from .races.shared_memory import race_range


def count_bulk(context: Context, site: int, address: int, size: int, how: int, again: int) -> int:
    """Count the units that a range covers; ``again``: the same bytes go to a further CTA."""
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
    """Return the address of the mbarrier that a copy signals."""
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
    reported: int,
) -> int:
    """Signal ``size`` copied bytes to the mbarrier of a lane, in the CTA of that rank of a multicast (of a pair of CTAs, the one
    whose rank has the parity of the mbarrier's CTA); ``reported``: the bytes had a reported pattern. Returns 1 if invalid."""
    if mbarriers == 0:
        return 0
    mbarrier = load64(mbarriers + lane * 8)
    if how & Bulk.GENERIC and not unsigned_less(mbarrier - context.SHARED_WINDOW, context.WINDOW_BYTES):
        refuse_mbarrier(context, site, lane, mbarrier, Mbarrier.NOT_SHARED, 0, 0)
        return 1
    mbarrier = mbarrier_of_copy(context, cta, mbarrier, rank, how)
    if reported and mbarrier_report(context, cta, site | Bulk.SIGNALS, lane, mbarrier, 512) == 0:
        return 1
    context.RACE_ARRIVED = 0
    mbarrier_change(context, cta, site | Bulk.SIGNALS, lane, mbarrier, Mbarrier.COMPLETE | 512, 1, size)
    return context.FAULTED


def bulk_checked(
    context: Context,
    cta: Cta,
    site: int,
    lane: int,
    source: int,
    target: int,
    size: int,
    how: int,
    bytes: int,
    edges: int,
    reads: int,
    writes: int,
) -> int:
    """Check for races in bytes of shared memory that follow one another, where a copy moves all of them; ``reads`` and ``writes`` as
    ``reach`` takes them. 16 if those that it reads need no other check, + 32 if those that it writes need none."""
    done = 0
    if how & Bulk.TO_GLOBAL:
        race_source(context)
    whole = edges == 0 and how & Bulk.ANSWER == 0
    if whole and reads & 1 and race_range(context, cta, site, lane, source, size, 8):
        done = 16
    if how & Bulk.TO_GLOBAL:
        store64(context + Context.RACE_AGENT, 0)
    whole = edges == 0 and bytes == 65535
    if whole and writes & 1 and race_range(context, cta, site, lane, target, size, writes & 12):
        done += 32
    return done


def reach_source(
    context: Context, cta: Cta, state: State, site: int, lane: int, source: int, size: int, reads: int
) -> int:
    """As ``reach``, where a copy from shared memory reads, whose races are those of the copy."""
    race_source(context)
    host = reach(context, cta, state, site, lane, source, size, reads)
    store64(context + Context.RACE_AGENT, 0)
    return host


def bulk_bytes(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    source: int,
    read_host: int,
    write_host: int,
    chosen: int,
    edges: int,
    reads: int,
) -> int:
    """Some of 16 bytes: those with a bit in ``chosen``. Without ``edges`` all have been reached, at ``read_host``. Returns 1 if
    invalid."""
    index = 0
    while index < 16:
        if (chosen >> index) & 1:
            host = read_host + index
            if edges:
                host = reach(context, cta, state, site, lane, source + index, 1, reads & 15)
                if host == 0:
                    context.FAULT_WORD = 1
                    return 1
            store8(write_host + index, load8(host))
        index += 1
    return 0


def cancel_following(context: Context) -> int:
    """Cancel the next cluster in launch order that has not started, or the next CTA in a launch without clusters."""
    number = context.FOLLOWING
    context.ASKED += 1
    context.ANSWER = 0
    if number < context.UNITS:
        context.FOLLOWING = number + 1
        context.CANCELLED += 1
        context.ANSWER = number + 1
    return 0


def put_answer(context: Context, host: int) -> int:
    """Write the response to a cancel request: 1 and the coordinates of the cluster's first CTA, or zeros."""
    number = context.ANSWER
    store64(host, 0)
    store64(host + 8, 0)
    if number:
        store32(host, 1)
        number -= 1
        axis = 0
        while axis < 3:
            clusters = context.CLUSTERS[axis]
            store32(host + 4 + axis * 4, number % clusters * context.CLUSTER_SHAPE[axis])
            number = number // clusters
            axis += 1
    return 0


def bulk_piece(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    source: int,
    read_host: int,
    write_host: int,
    how: int,
    chosen: int,
    edges: int,
    combine: int,
    reads: int,
) -> int:
    """Sixteen bytes at ``write_host``: an answer, combined, or copied where a bit is in ``chosen``. Returns 1 if invalid."""
    if how & Bulk.ANSWER:
        put_answer(context, write_host)
    elif combine:
        call(combine, write_host, read_host, 0)
    else:
        return bulk_bytes(
            context, cta, state, site, lane, source, read_host, write_host, chosen, edges, reads
        )
    return 0


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
    and the next), ``combine`` is the function of a reduction. Returns 1 if invalid."""
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
            checked = bulk_checked(
                context, cta, site, lane, source + done, target + done, size - done, how, bytes, edges, reads & 15, writes & 15,
            )  # fmt: skip
            reads = reads & 15 | checked & 16
            writes = writes & 15 | checked >> 1 & 16
        chosen = bytes
        if done == 0:
            chosen = chosen & (65535 << (edges & 15))
        if done + 16 == size:
            chosen = chosen & (65535 >> (edges >> 8))
        read_host = 0
        if how & Bulk.ANSWER == 0 and (edges == 0 or chosen == 65535):
            if how & Bulk.TO_GLOBAL and reads & 16 == 0:
                read_host = reach_source(context, cta, state, site, lane, source + done, 16, reads)
            else:
                read_host = reach(context, cta, state, site, lane, source + done, 16, reads)
            if read_host == 0:
                context.FAULT_WORD = 1
                return 1
        write_host = reach(context, cta, state, site, lane, target + done, 16, writes)
        if write_host == 0:
            return 1
        if chosen == 65535 and combine == 0 and how & Bulk.ANSWER == 0:
            low = load64(read_host)
            store64(write_host + 8, load64(read_host + 8))
            store64(write_host, low)
        elif bulk_piece(
            context, cta, state, site, lane, source + done, read_host, write_host, how, chosen, edges, combine, reads,
        ):  # fmt: skip
            return 1
        done += 16
    return 0


def holds_pattern(
    context: Context, cta: Cta, state: State, site: int, lane: int, source: int, size: int, kind: int
) -> int:
    """Whether bytes of global memory hold a pattern that is reported; ``kind``: 1 + its index in ``Bulk.PATTERNS``."""
    done = 0
    while unsigned_less(done, size):
        host = reach(context, cta, state, site, lane, source + done, 16, 8)
        if host == 0:
            return 0
        first = load64(host)
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
            if load8(host + index) == 255:
                return 1
            index += 1
        done += 16
    return 0


def bulk_refused(
    context: Context, cta: Cta, site: int, lane: int, target: int, size: int, edges: int, how: int
) -> int:
    """Whether a copy is invalid; records the error."""
    if size & 15:
        address = target
        if how & Bulk.TO_GLOBAL == 0:
            address = (target + cta.WINDOW * (cta.CLUSTER != 0)) & 4294967295
        refuse_mbarrier(context, site, lane, address, Mbarrier.SIZE, 0, size)
        return 1
    if edges & 240 or edges >> 12:
        wrong = edges & 255
        if wrong < 16:
            wrong = edges >> 8
        refuse_mbarrier(context, site, lane, target, Mbarrier.EDGE, 0, wrong)
        return 1
    if how & Bulk.GENERIC and not unsigned_less(target - context.SHARED_WINDOW, context.WINDOW_BYTES):
        refuse_mbarrier(context, site, lane, target, Mbarrier.NOT_SHARED, 0, 0)
        return 1
    return 0


def bulk_ranks(context: Context, words: int, lane: int, how: int) -> int:
    """The ranks of the CTAs to which a copy goes, one bit each."""
    if how & Bulk.MULTICAST == 0:
        return 1
    if how & Bulk.ANSWER == 0:
        return load32(words + lane * 4)
    if context.CLUSTER_CTAS:
        return (1 << context.CLUSTER_CTAS) - 1
    return 1


def bulk_copy(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    lane: int,
    rank: int,
    source: int,
    target: int,
    size: int,
    mbarriers: int,
    how: int,
    bytes: int,
    edges: int,
    combine: int,
    again: int,
) -> int:
    """One copy to one CTA, with the mbarrier that it signals; ``again``: the same bytes have gone to another CTA. Returns 1 if
    invalid."""
    to = target
    if how & Bulk.MULTICAST:
        to = in_rank(cta, target, rank)
    if mbarriers and how & Bulk.TO_GLOBAL == 0:
        race_bulk(context, cta, mbarrier_of_copy(context, cta, load64(mbarriers + lane * 8), rank, how))
    refused = bulk_move(context, cta, state, site, lane, source, to, size, how, bytes, edges, combine)
    context.RACE_AGENT = 0
    if refused:
        return 1
    kind = how >> Bulk.REPORT
    reported = kind and holds_pattern(context, cta, state, site, lane, source, size, kind)
    if signal_copied(context, cta, site, mbarriers, lane, rank, how, size, reported):
        return 1
    counted = to
    if how & Bulk.FROM_GLOBAL:
        counted = source
    left = edges & 255
    if context.VALUE_RANGE and again == 0 and unsigned_less(left + (edges >> 8), size):
        first = counted + left
        host = first + context.ARENA
        if combine:
            # valid, in the memory of one CTA, and already checked for races
            host = reach(context, cta, state, site, lane, source, 16, 16 + 8 + 1)
        call(context.VALUE_RANGE, context, first, size - left - (edges >> 8), host, bytes)
    if combine and how & Bulk.TO_GLOBAL:
        count_words(context, to, to + size)
    return count_bulk(context, site, counted, size, how, again)


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
    """One instruction, lane after lane; ``words`` are ranks of a multicast, or bits of the bytes to copy. Returns 1 if invalid."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        size = load32(sizes + lane * 4)
        source = load64(sources + lane * 8)
        target = load64(targets + lane * 8)
        bytes = 65535
        if how & Bulk.MASKED:
            bytes = load32(words + lane * 4)
        edges = 0
        if how & Bulk.EDGES:
            edges = load32(words + lane * 4)
        if bulk_refused(context, cta, site, lane, target, size, edges, how):
            return 1
        if how & Bulk.GENERIC:
            target = (target - context.SHARED_WINDOW - cta.WINDOW) & 4294967295
        if how & Bulk.ANSWER:
            cancel_following(context)
        ranks = bulk_ranks(context, words, lane, how)
        again = 0
        while ranks:
            rank = trailing_zeros(ranks)
            ranks = ranks & (ranks - 1)
            if bulk_copy(
                context,
                cta,
                state,
                site,
                lane,
                rank,
                source,
                target,
                size,
                mbarriers,
                how,
                bytes,
                edges,
                combine,
                again,
            ):
                return 1
            again = 1
    return 0


def fill_lanes(
    context: Context, cta: Cta, state: State, site: int, mask: int, targets: int, sizes: int, generic: int
) -> int:
    """``st.bulk``. Returns 1 if invalid."""
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
            address = target
            if generic == 0:
                address = (target + cta.WINDOW * (cta.CLUSTER != 0)) & 4294967295
            refuse_mbarrier(context, site, lane, address, Mbarrier.WORDS, 0, size)
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
