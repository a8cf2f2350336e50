"""Runtime of generated code: mbarrier objects (``isa.mbarriers`` says what their bits are).

Written in the subset of ``native_script`` and compiled, never run as Python. ``how`` are numbers of ``Mbarrier``, + 256 where
addresses are generic, + 512 where they may be those of other CTAs of the cluster.
A ``site`` below 0 is −1 − the place of the instruction in its block.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from ..isa.mbarriers import COUNT_MAX, Mbarrier
from .native_layout import Context, Cta, State
from .native_runtime_cluster import cluster_cta
from .native_runtime_memory import fault, mark
from .native_script import load32, load64, store32, store64, trailing_zeros, unsigned_less


def refuse_mbarrier(
    context: int, site: int, lane: int, address: int, problem: int, word: int, amount: int
) -> int:
    """Note the first operation that an object does not allow, for the message."""
    if load64(context + Context.FAULTED) == 0:
        store64(context + Context.FAULT_WORD, word)
        store64(context + Context.FAULT_AMOUNT, amount)
    return fault(context, site, lane, address, problem)


def mbarrier_at(context: int, cta: int, site: int, lane: int, address: int, how: int) -> int:
    """Host address of one lane's object, or 0 after noting the fault; the CTA that has it is in ``OWNER``."""
    place = address
    if how & 256:
        place = address - load64(context + Context.SHARED_WINDOW)
        if not unsigned_less(place, load64(context + Context.WINDOW_BYTES)):
            return refuse_mbarrier(context, site, lane, address, Mbarrier.NOT_SHARED, 0, 0)
    elif load64(cta + Cta.CLUSTER):
        # addresses of shared memory are given from the start of the CTA's own on
        place = (place + load64(cta + Cta.WINDOW)) & 4294967295
    owner = cta
    offset = place
    if load64(cta + Cta.CLUSTER):
        owner = 0
        if place >> 24 == load64(cta + Cta.RANK) or how & 512:
            owner = cluster_cta(context, cta, place)
        offset = place & 16777215
    limit = load64(context + Context.SHARED_BYTES)
    if owner == 0 or offset & 7 or limit < 8 or unsigned_less(limit - 8, offset):
        return fault(context, site, lane, place, 1)
    store64(context + Context.OWNER, owner)
    return load64(owner + Cta.SHARED) + offset


def mbarrier_settle(
    context: int, cta: int, host: int, arrivals: int, expected: int, transactions: int
) -> int:
    """Store an object with these counts, in its next phase if nothing is pending any more."""
    old = load64(host)
    phase = (old >> Mbarrier.PARITY) & 1
    waited = (old & COUNT_MAX) != 0 or ((old >> Mbarrier.TRANSACTIONS) & 2097151) != 1048576
    if arrivals == 0 and transactions == 0 and waited:
        phase = phase ^ 1
        arrivals = expected
        store64(cta + Cta.PHASES, load64(cta + Cta.PHASES) + 1)
        store64(context + Context.PASSED, load64(context + Context.PASSED) + 1)
    made = (Mbarrier.VALID << Mbarrier.TAG) | (phase << Mbarrier.PARITY)
    made = made | ((transactions + 1048576) << Mbarrier.TRANSACTIONS)
    store64(host, made | (expected << Mbarrier.EXPECTED) | arrivals)
    return 1


def mbarrier_change(
    context: int, cta: int, site: int, lane: int, address: int, how: int, count: int, moved: int
) -> int:
    """One operation of one lane; ``moved`` are the transactions that it adds. Gives the object as it was, 0 where refused."""
    host = mbarrier_at(context, cta, site, lane, address, how)
    if host == 0:
        return 0
    cta = load64(context + Context.OWNER)
    kind = how & 15
    old = load64(host)
    if kind == Mbarrier.INIT:
        if count == 0 or count > COUNT_MAX:
            return refuse_mbarrier(context, site, lane, address, Mbarrier.COUNT, old, count)
        distance = load64(cta + Cta.SHARED_SHADOW)
        if distance:
            store64(cta + Cta.MARKED, 1)
            mark(host + distance, 8)
        made = (Mbarrier.VALID << Mbarrier.TAG) | (1048576 << Mbarrier.TRANSACTIONS)
        store64(host, made | (count << Mbarrier.EXPECTED) | count)
        return old
    if (old >> Mbarrier.TAG) != Mbarrier.VALID:
        return refuse_mbarrier(context, site, lane, address, Mbarrier.UNINITIALISED, old, 0)
    if kind == Mbarrier.INVAL:
        store64(host, 0)
        return old
    arrivals = old & COUNT_MAX
    expected = (old >> Mbarrier.EXPECTED) & COUNT_MAX
    transactions = ((old >> Mbarrier.TRANSACTIONS) & 2097151) - 1048576
    if kind == Mbarrier.CHECK:
        if arrivals == COUNT_MAX:
            return refuse_mbarrier(context, site, lane, address, Mbarrier.TOO_MANY, old, count)
        return old
    if kind == Mbarrier.COMPLETE:
        transactions -= moved
    else:
        transactions += moved
    if kind == Mbarrier.ARRIVE and (count == 0 or count > COUNT_MAX):
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
    mbarrier_settle(context, cta, host, arrivals, expected, transactions)
    return old


def mbarrier_lanes(
    context: int, cta: int, site: int, mask: int, addresses: int, counts: int, moved: int, how: int
) -> int:
    """One instruction, lane after lane; the objects as they were take the place of the addresses. ``moved`` 0: no transactions."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        more = 0
        if moved:
            more = load32(moved + lane * 4)
        address = load64(addresses + lane * 8)
        count = load32(counts + lane * 4)
        old = mbarrier_change(context, cta, site, lane, address, how, count, more)
        if load64(context + Context.FAULTED):
            return 1
        store64(addresses + lane * 8, old)
    return 0


def mbarrier_wait(
    context: int, cta: int, state: int, site: int, mask: int, addresses: int, states: int, how: int
) -> int:
    """The lanes whose phases are complete, + 2^32 if the wait is over, + 2^33 if it gives up. ``how``: 1 where
    parities are given, + 256 generic."""
    rest = mask
    complete = 0
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        address = load64(addresses + lane * 8)
        host = mbarrier_at(context, cta, site, lane, address, how)
        if host == 0:
            return 4294967296
        word = load64(host)
        given = load64(states + lane * 8)
        if (word >> Mbarrier.TAG) != Mbarrier.VALID:
            refuse_mbarrier(context, site, lane, address, Mbarrier.UNINITIALISED, word, 0)
            return 4294967296
        if (how & 1) == 0:
            if (given >> Mbarrier.TAG) != Mbarrier.VALID:
                refuse_mbarrier(context, site, lane, address, Mbarrier.STATE, word, 0)
                return 4294967296
            given = given >> Mbarrier.PARITY
        if (((word >> Mbarrier.PARITY) ^ given) & 1) != 0:
            complete = complete | 1 << lane
    if complete == mask:
        store32(state + State.EXPIRED, 0)
        return complete | 4294967296
    if load32(state + State.EXPIRED) == 0:
        return complete
    store32(state + State.EXPIRED, 0)
    return complete | 12884901888


def others_can_run(state: int) -> int:
    """Whether another split of the warp than the running one is ready to run."""
    depth = load32(state + State.DEPTH)
    live = load32(state + State.LIVE)
    entry = state + State.STACK
    while depth:
        if load32(entry + 12) == 1 and load32(entry + 4) & live:
            return 1
        entry += State.ENTRY
        depth -= 1
    return 0
