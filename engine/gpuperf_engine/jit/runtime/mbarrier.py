"""Runtime of generated code: mbarrier objects (``isa.mbarriers`` defines their bits).

Written in the subset of ``compile_python`` and compiled, never run as Python. ``how`` are numbers of ``Mbarrier``, + 256 where
addresses are generic, + 512 where they may be those of other CTAs of the cluster.
A ``site`` below 0 is −1 − the place of the instruction in its block.
"""

from __future__ import annotations

from ...isa.mbarriers import COUNT_MAX, SMALL_MAX, Mbarrier
from ...isa.rules import Noted
from ..ir.abi import Context, Cta, Entry, State
from ..ir.codes import AREA_SHIFT, Wait
from .cluster import breach, cluster_cta
from .intrinsics import load32, load64, store64, trailing_zeros, unsigned_less
from .memory import fault, mark
from .races.mbarriers import (
    race_acquire_mbarrier,
    race_arrive_mbarrier,
    race_arrive_relaxed,
    race_complete_mbarrier,
)


def refuse_mbarrier(
    context: Context, site: int, lane: int, address: int, problem: int, word: int, amount: int
) -> int:
    """Record the first operation that an object does not allow, for the message."""
    if context.FAULTED == 0:
        context.FAULT_WORD = word
        context.FAULT_AMOUNT = amount
    return fault(context, site, lane, address, problem)


def mbarrier_at(context: Context, cta: Cta, site: int, lane: int, address: int, how: int) -> int:
    """Return the host address of one lane's object, or 0 after recording the fault; sets ``OWNER`` to its CTA."""
    local = address
    if how & 256:
        local = address - context.SHARED_WINDOW
        if not unsigned_less(local, context.WINDOW_BYTES):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.NOT_SHARED, 0, 0)
    elif cta.CLUSTER:
        # addresses of shared memory are relative to the start of the CTA's own
        local = (local + cta.WINDOW) & 4294967295
    owner = cta
    offset = local
    if cta.CLUSTER:
        owner = Cta(0)
        if local >> 24 == cta.RANK or how & 512:
            owner = cluster_cta(context, cta, site, lane, local, how & 15 == Mbarrier.ARRIVE)
        offset = local & 16777215
    limit = context.SHARED_BYTES
    if owner == 0 or offset & 7 or limit < 8 or unsigned_less(limit - 8, offset):
        return fault(context, site, lane, local, 1)
    context.OWNER = owner
    return owner.SHARED + offset


def in_rank(cta: Cta, offset: int, rank: int) -> int:
    """Map an address of shared memory to the CTA of that rank; an address outside shared memory stays, and is invalid."""
    whole = (offset + cta.WINDOW) & 4294967295
    if offset >> 32 or whole >> 28:
        return offset
    return ((rank << 24) + (whole & 16777215) - cta.WINDOW) & 4294967295


def is_object(word: int) -> int:
    """Whether the bits are those of an object that is initialised."""
    if word >> Mbarrier.TAG == Mbarrier.REPORTING:
        return word & Mbarrier.UNUSED == 0
    return word >> Mbarrier.TAG == Mbarrier.VALID


def is_ended(word: int) -> int:
    """Whether the bits are those of an object that was invalidated."""
    none = (word >> Mbarrier.TRANSACTIONS) & 2097151 == 1048576
    fits = word & COUNT_MAX <= (word >> Mbarrier.EXPECTED) & COUNT_MAX
    return (word >> Mbarrier.TAG) & 3 == Mbarrier.ENDED and none and fits


def most(word: int) -> int:
    """The highest count of arrivals of an object's layout."""
    if word >> Mbarrier.TAG == Mbarrier.REPORTING:
        return SMALL_MAX
    return COUNT_MAX


def mbarrier_settle(
    context: Context, cta: Cta, host: int, arrivals: int, expected: int, transactions: int
) -> int:
    """Store an object with these counts, in its next phase if nothing is pending."""
    old = load64(host)
    phase = (old >> Mbarrier.PARITY) & 1
    waited = (old & COUNT_MAX) != 0 or ((old >> Mbarrier.TRANSACTIONS) & 2097151) != 1048576
    flags = 0
    if old >> Mbarrier.TAG == Mbarrier.REPORTING:
        flags = (old >> Mbarrier.REPORT) & 7
    if arrivals == 0 and transactions == 0 and waited:
        phase = phase ^ 1
        arrivals = expected
        if old >> Mbarrier.TAG == Mbarrier.REPORTING:
            # reported in this phase becomes reported in the last one; without, the conditional phase ends as well
            flags = ((flags & 1) << 1) | ((flags & 4) ^ (4 - ((flags & 1) << 2)))
        cta.PHASES += 1
        context.PASSED += 1
    state = ((old >> Mbarrier.TAG) << Mbarrier.TAG) | (phase << Mbarrier.PARITY) | (flags << Mbarrier.REPORT)
    state = state | ((transactions + 1048576) << Mbarrier.TRANSACTIONS)
    store64(host, state | (expected << Mbarrier.EXPECTED) | arrivals)
    return 1


def show_phase(context: Context, cta: Cta, host: int, word: int) -> int:
    """Before an object is initialised again, let warps that wait for a phase of it which is complete go on; returns whether there were
    any."""
    phase = (word >> Mbarrier.PARITY) & 1
    awaited = (host - cta.SHARED) | 2 | (1 - phase)
    state = cta.STATES
    warps = context.WARPS
    some = 0
    while warps:
        if state.AWAITED == awaited:
            state.AWAITED = 0
            state.EXPIRED = 2
            if state.WAIT == Wait.SUSPENDED:
                state.WAIT = Wait.RUNNABLE
            some = 1
        state = State(state + context.STATE_BYTES)
        warps -= 1
    return some


def mbarrier_change(
    context: Context, cta: Cta, site: int, lane: int, address: int, how: int, count: int, moved: int
) -> int:
    """Perform the operation of one lane; ``moved``: the transactions that it adds. Returns the previous object, 0 if invalid."""
    host = mbarrier_at(context, cta, site, lane, address, how)
    if host == 0:
        return 0
    cta = context.OWNER
    kind = how & 15
    old = load64(host)
    was = is_ended(old)
    shown = 0
    if kind == Mbarrier.INIT and (was or is_object(old)):
        shown = show_phase(context, cta, host, old)
    if shown and breach(context, cta, Noted.UNSEEN_PHASE, site, lane, address):
        return refuse_mbarrier(context, site, lane, address, Mbarrier.UNSEEN, old, 0)
    if was and kind != Mbarrier.INIT and kind != Mbarrier.INVAL:
        if breach(context, cta, Noted.AFTER_INVAL, site, lane, address):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.USED, old, 0)
        old += 1 << Mbarrier.TAG
        store64(host, old)
    if kind == Mbarrier.INIT:
        tag = Mbarrier.VALID + ((how & Mbarrier.REPORTS) != 0)
        if count == 0 or count > most(tag << Mbarrier.TAG):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.COUNT, old, count)
        distance = cta.SHARED_SHADOW
        if distance:
            cta.MARKED = 1
            mark(host + distance, 8)
        state = (tag << Mbarrier.TAG) | (1048576 << Mbarrier.TRANSACTIONS)
        store64(host, state | (count << Mbarrier.EXPECTED) | count)
        return old
    if is_object(old) == 0:
        if kind != Mbarrier.INVAL:
            return refuse_mbarrier(context, site, lane, address, Mbarrier.UNINITIALISED, old, 0)
        if breach(context, cta, Noted.INVALID_AGAIN, site, lane, address):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.INVALID, old, 0)
        return old
    if kind == Mbarrier.INVAL:
        left = old - (1 << Mbarrier.TAG)
        if is_ended(left) == 0:
            left = 0
        store64(host, left)
        return old
    if kind == Mbarrier.LAYOUT:
        return old
    arrivals = old & COUNT_MAX
    expected = (old >> Mbarrier.EXPECTED) & most(old)
    transactions = ((old >> Mbarrier.TRANSACTIONS) & 2097151) - 1048576
    if how & 2048 and kind != Mbarrier.EXPECT and kind != Mbarrier.COMPLETE:
        race_arrive_relaxed(context, cta, host - cta.SHARED)
    elif kind != Mbarrier.EXPECT:
        race_arrive_mbarrier(context, cta, host - cta.SHARED, how & 1024, kind == Mbarrier.COMPLETE)
    if kind == Mbarrier.CHECK:
        if arrivals == most(old):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.TOO_MANY, old, count)
        return old
    if kind == Mbarrier.COMPLETE:
        transactions -= moved
    else:
        transactions += moved
    if kind == Mbarrier.ARRIVE and (count == 0 or count > most(old)):
        return refuse_mbarrier(context, site, lane, address, Mbarrier.COUNT, old, count)
    if transactions > COUNT_MAX or transactions < -COUNT_MAX:
        return refuse_mbarrier(context, site, lane, address, Mbarrier.RANGE, old, moved)
    if kind == Mbarrier.ARRIVE:
        if count > arrivals or (how & Mbarrier.DROP and count > expected):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.TOO_MANY, old, count)
        arrivals -= count
        if how & Mbarrier.DROP:
            expected -= count
        if how & Mbarrier.STAYS and arrivals == 0 and transactions == 0:
            return refuse_mbarrier(context, site, lane, address, Mbarrier.COMPLETES, old, count)
    phases = cta.PHASES
    mbarrier_settle(context, cta, host, arrivals, expected, transactions)
    if phases != cta.PHASES:
        race_complete_mbarrier(cta, host - cta.SHARED)
    return old


def mbarrier_report(context: Context, cta: Cta, site: int, lane: int, address: int, how: int) -> int:
    """Note in an object that something is to be reported. Returns 0 if invalid."""
    host = mbarrier_at(context, cta, site, lane, address, how)
    if host == 0:
        return 0
    old = load64(host)
    if is_object(old) == 0:
        return refuse_mbarrier(context, site, lane, address, Mbarrier.UNINITIALISED, old, 0)
    if old >> Mbarrier.TAG != Mbarrier.REPORTING:
        return refuse_mbarrier(context, site, lane, address, Mbarrier.NO_REPORT, old, 0)
    store64(host, old | (1 << Mbarrier.REPORT))
    return 1


def mbarrier_multicast(
    context: Context,
    cta: Cta,
    site: int,
    mask: int,
    addresses: int,
    counts: int,
    moved: int,
    how: int,
    words: int,
) -> int:
    """As ``mbarrier_lanes``, in all CTAs of the cluster whose bit in a lane's word is set."""
    context.RACE_ARRIVED = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        more = 0
        if moved:
            more = load32(moved + lane * 4)
        count = load32(counts + lane * 4)
        ranks = load32(words + lane * 4)
        while ranks:
            rank = trailing_zeros(ranks)
            ranks = ranks & (ranks - 1)
            address = load64(addresses + lane * 8)
            if how & 256:
                window = context.SHARED_WINDOW
                if unsigned_less(address - window, context.WINDOW_BYTES):
                    address = window + (((address - window) & 16777215) | (rank << 24))
            else:
                address = in_rank(cta, address, rank)
            mbarrier_change(context, cta, site, lane, address, how, count, more)
            if context.FAULTED:
                return 1
    return 0


def mbarrier_lanes(
    context: Context, cta: Cta, site: int, mask: int, addresses: int, counts: int, moved: int, how: int
) -> int:
    """Execute one instruction, lane after lane; the previous objects replace the addresses. ``moved`` 0: no transactions."""
    context.RACE_ARRIVED = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        more = 0
        if moved:
            more = load32(moved + lane * 4)
        address = load64(addresses + lane * 8)
        count = load32(counts + lane * 4)
        old = mbarrier_change(context, cta, site, lane, address, how, count, more)
        if context.FAULTED:
            return 1
        store64(addresses + lane * 8, old)
    return 0


def mbarrier_wait(
    context: Context, cta: Cta, state: State, site: int, mask: int, addresses: int, states: int, how: int
) -> int:
    """Return the lanes whose phases are complete, + 2^32 if the wait is over, + 2^33 if it expires; or −1 if the warp must yield
    first, as it has completed a phase since it resumed. The report flags replace the states. ``how``: 1 if the operands are
    parities, + 2 for conditional phases, + 256 generic, + 2048 relaxed."""
    rest = mask
    complete = 0
    # all lanes, as ``State.AWAITED``; −1: they differ
    awaited = 0
    seen = state.EXPIRED == 2
    state.AWAITED = 0
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        address = load64(addresses + lane * 8)
        host = mbarrier_at(context, cta, site, lane, address, how)
        if host == 0:
            return 4294967296
        word = load64(host)
        if seen:
            owner = context.OWNER
            race_acquire_mbarrier(context, owner, host - owner.SHARED, how & 2048)
            store64(states + lane * 8, 0)
            continue
        given = load64(states + lane * 8)
        if is_ended(word):
            if breach(context, cta, Noted.AFTER_INVAL, site, lane, address):
                refuse_mbarrier(context, site, lane, address, Mbarrier.USED, word, 0)
                return 4294967296
            word += 1 << Mbarrier.TAG
        if is_object(word) == 0:
            refuse_mbarrier(context, site, lane, address, Mbarrier.UNINITIALISED, word, 0)
            return 4294967296
        if (how & 1) == 0:
            if is_object(given) == 0:
                refuse_mbarrier(context, site, lane, address, Mbarrier.STATE, word, 0)
                return 4294967296
            given = given >> Mbarrier.PARITY
        phase = word >> Mbarrier.PARITY
        if how & 2 and word >> Mbarrier.TAG == Mbarrier.REPORTING:
            phase = word >> Mbarrier.CONDITIONAL
        own = (host - cta.SHARED) | 2 | (given & 1)
        if word >> Mbarrier.TAG == Mbarrier.REPORTING or (awaited and awaited != own):
            own = -1
        awaited = own
        reported = 0
        if ((phase ^ given) & 1) != 0:
            complete = complete | 1 << lane
            owner = context.OWNER
            race_acquire_mbarrier(context, owner, host - owner.SHARED, how & 2048)
            if word >> Mbarrier.TAG == Mbarrier.REPORTING:
                reported = (word >> Mbarrier.REPORTED) & 1
        store64(states + lane * 8, reported)
    if seen:
        state.EXPIRED = 0
        return mask | 4294967296
    if awaited > 0 and awaited < 4294967296:
        state.AWAITED = awaited
    if complete == mask:
        if mask and state.BEGAN != (cta.PHASES + 1) & 4294967295:
            return -1
        state.EXPIRED = 0
        state.AWAITED = 0
        return complete | 4294967296
    if state.EXPIRED == 0:
        return complete
    state.EXPIRED = 0
    state.AWAITED = 0
    return complete | 12884901888


def others_can_run(state: State) -> int:
    """Whether another path of the warp than the running one is ready to run."""
    depth = state.DEPTH
    live = state.LIVE
    entry = Entry(state + State.STACK)
    while depth:
        if entry.KIND & ((1 << AREA_SHIFT) - 1) == 1 and entry.MASK & live:
            return 1
        entry = Entry(entry + State.ENTRY)
        depth -= 1
    return 0
