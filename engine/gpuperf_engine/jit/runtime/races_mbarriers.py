"""Runtime of generated code: what mbarriers order, and the copies that complete on them.

An mbarrier has clocks of its phase and of those completed. For clocks see ``races_clocks``.
"""

from __future__ import annotations

from ..ir.abi import Cluster, Context, Cta, Race
from .compile_python import copy, load64, store32, store64, unsigned_less
from .races_clocks import race_acquire, race_join_clock, race_more, race_release, race_tick


def race_mbarrier(record: int, address: int) -> int:
    """The record of an mbarrier of the CTA; beyond ``MOST_MBARRIERS`` the last one is shared."""
    slot = 0
    count = load64(record + Race.SLOTS)
    while slot < count:
        found = load64(record + Race.MBARRIERS) + slot * load64(record + Race.MBARRIER)
        if load64(found) == address:
            return found
        slot += 1
    if count < Race.MOST_MBARRIERS:
        store64(record + Race.SLOTS, count + 1)
        found = load64(record + Race.MBARRIERS) + count * load64(record + Race.MBARRIER)
        store64(found, address)
        # what an earlier CTA had acquired of others is not known to this one
        store32(found + Race.ARRIVING + Race.OF_OTHERS * 4, 0)
        store32(race_done(record, found) + Race.OF_OTHERS * 4, 0)
    return found


def race_done(record: int, found: int) -> int:
    """The clock of the completed phases of an mbarrier."""
    return found + Race.ARRIVING + load64(record + Race.CLOCK_BYTES)


def race_bulk(context: int, cta: int, address: int) -> int:
    """What follows is done by a bulk or tensor copy that completes on the mbarrier at an address, as ``reach`` takes it, until
    ``RACE_AGENT`` is 0 again."""
    cluster = load64(cta + Cta.CLUSTER)
    if load64(cta + Cta.RACES) == 0 or address >> 32:
        return 0
    if cluster:
        address = (address + load64(cta + Cta.WINDOW)) & 4294967295
        if not unsigned_less(address >> 24, load64(cluster + Cluster.SIZE)):
            return 0
        cta = load64(cluster + Cluster.PEERS + (address >> 24) * 8)
        address = address & 16777215
    record = load64(cta + Cta.RACES)
    race_more(record)
    found = race_mbarrier(record, address)
    agent = Race.OF_MBARRIERS + (found - load64(record + Race.MBARRIERS)) // load64(record + Race.MBARRIER)
    time = Race.ASYNCHRONOUS | race_tick(record)
    store32(found + Race.ARRIVING + agent * 4, time)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | time << 8 | agent)
    return 0


def race_arrive_mbarrier(context: int, cta: int, address: int, copies: int, completes: int) -> int:
    """The running warp arrives at an mbarrier of a CTA, or completes bytes of it; ``copies``: when its ``cp.async`` are complete. An
    implicit proxy fence follows a copy that is complete (``completes``)."""
    theirs = load64(cta + Cta.RACES)
    if theirs == 0:
        return 0
    me = load64(context + Context.RACE_WARP)
    record = load64(me + Race.RECORD)
    turn = load64(record + Race.RANK) ^ load64(theirs + Race.RANK)
    clock = race_mbarrier(theirs, address) + Race.ARRIVING
    if load64(context + Context.RACE_ARRIVED) == clock:
        return 0
    store64(context + Context.RACE_ARRIVED, clock)
    race_release(record, me, clock, turn)
    twin = load64(record + Race.TWIN)
    if twin and completes:
        race_join_clock(record, clock + twin, me + Race.CLOCK, turn)
    if copies and load64(me + Race.COPIES):
        agent = turn << 8 | Race.OF_COPIES | (load64(me + Race.EPOCH) & 127)
        store32(clock + agent * 4, (Race.ASYNCHRONOUS | load64(me + Race.COPIES)) ^ turn)
        store64(me + Race.COPIES, race_tick(record))
    return 0


def race_complete_mbarrier(cta: int, address: int) -> int:
    """A phase of an mbarrier is complete."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    found = race_mbarrier(record, address)
    size = load64(record + Race.CLOCK_BYTES)
    if load64(record + Race.STEP) == 1 and load64(record + Race.TWIN) == 0:
        size = load64(record + Race.AGENTS) * 4
    copy(race_done(record, found), found + Race.ARRIVING, size)
    return 0


def race_acquire_mbarrier(context: int, cta: int, address: int) -> int:
    """The running warp has found a phase of an mbarrier of a CTA complete."""
    theirs = load64(cta + Cta.RACES)
    if theirs == 0:
        return 0
    me = load64(context + Context.RACE_WARP)
    record = load64(me + Race.RECORD)
    turn = load64(record + Race.RANK) ^ load64(theirs + Race.RANK)
    clock = race_done(theirs, race_mbarrier(theirs, address))
    return race_acquire(record, me, load64(context + Context.WARPS), clock, turn)
