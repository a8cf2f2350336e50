"""Runtime of generated code: the order that mbarriers establish, and the copies that complete on them.

An mbarrier has a clock for its current phase and one for the completed phases. For clocks see ``races.clocks``.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta
from ...ir.race_records import Race, RaceClock, RaceMbarrier
from ..intrinsics import copy, unsigned_less
from .clocks import (
    race_acquire,
    race_asynchronous,
    race_clock,
    race_fenced,
    race_join_clock,
    race_join_clocks,
    race_known,
    race_more,
    race_release,
    race_tick,
    race_twin,
)


def race_mbarrier(record: Race, address: int) -> RaceMbarrier:
    """The record of an mbarrier of the CTA; mbarriers beyond ``MOST_MBARRIERS`` share the last record."""
    slot = 0
    count = record.SLOTS
    found = RaceMbarrier(record.MBARRIERS)
    while slot < count:
        found = RaceMbarrier(record.MBARRIERS + slot * record.MBARRIER)
        if found.ADDRESS == address:
            return found
        slot += 1
    if count + record.BULK_AGENTS < Race.MOST_MBARRIERS:
        record.SLOTS = count + 1
        found = RaceMbarrier(record.MBARRIERS + count * record.MBARRIER)
        found.ADDRESS = address
        # discard what an earlier CTA had acquired of others
        found.ARRIVING[Race.OF_OTHERS] = 0
        done = race_done(record, found)
        done.TIMES[Race.OF_OTHERS] = 0
    return found


def race_done(record: Race, found: RaceMbarrier) -> RaceClock:
    """The clock of the completed phases of an mbarrier."""
    return RaceClock(found + RaceMbarrier.ARRIVING + record.CLOCK_BYTES)


def race_bulk(context: Context, cta: Cta, address: int) -> int:
    """The following accesses are by a bulk or tensor copy that completes on the mbarrier at an address, as in ``reach``, until
    ``RACE_AGENT`` is 0 again."""
    cluster = cta.CLUSTER
    if cta.RACES == 0 or address >> 32:
        return 0
    if cluster:
        address = (address + cta.WINDOW) & 4294967295
        if not unsigned_less(address >> 24, cluster.SIZE):
            return 0
        cta = cluster.PEERS[address >> 24]
        address = address & 16777215
    record = cta.RACES
    race_more(record)
    found = race_mbarrier(record, address)
    agent = Race.OF_MBARRIERS + (found - record.MBARRIERS) // record.MBARRIER
    time = race_tick(record)
    found.ARRIVING[agent] = Race.ASYNCHRONOUS | time
    return race_asynchronous(context, record, agent, time)


def race_arrive_mbarrier(context: Context, cta: Cta, address: int, copies: int, completes: int) -> int:
    """The running warp arrives at an mbarrier of a CTA, or completes bytes of it; ``copies``: on completion of its ``cp.async``.
    ``completes``: a copy is complete, which an implicit proxy fence follows."""
    theirs = cta.RACES
    if theirs == 0:
        return 0
    me = context.RACE_WARP
    record = me.RECORD
    turn = record.RANK ^ theirs.RANK
    clock = RaceClock(race_mbarrier(theirs, address) + RaceMbarrier.ARRIVING)
    if context.RACE_ARRIVED == clock:
        return 0
    context.RACE_ARRIVED = clock
    race_release(record, me, clock, turn)
    if record.TWIN and completes:
        race_join_clock(record, race_twin(record, clock), race_known(me), turn)
    if copies and me.COPIES:
        agent = turn << 8 | Race.OF_COPIES | (me.EPOCH & 127)
        clock.TIMES[agent] = (Race.ASYNCHRONOUS | me.COPIES) ^ turn
        me.COPIES = race_tick(record)
    return 0


def race_arrive_relaxed(context: Context, cta: Cta, address: int) -> int:
    """The running warp arrives at an mbarrier of a CTA with ``.relaxed``: it releases what it had done before its last fence."""
    theirs = cta.RACES
    me = context.RACE_WARP
    if theirs == 0 or me.FENCED == 0:
        return 0
    record = me.RECORD
    clock = RaceClock(race_mbarrier(theirs, address) + RaceMbarrier.ARRIVING)
    return race_join_clocks(record, clock, race_fenced(record, me), record.RANK ^ theirs.RANK)


def race_complete_mbarrier(cta: Cta, address: int) -> int:
    """A phase of an mbarrier is complete."""
    record = cta.RACES
    if record == 0:
        return 0
    found = race_mbarrier(record, address)
    size = record.CLOCK_BYTES
    if record.STEP == 1 and record.TWIN == 0 and record.SEGMENTS == 0:
        size = record.AGENTS * 4
    copy(race_done(record, found), found + RaceMbarrier.ARRIVING, size)
    return 0


def race_acquire_mbarrier(context: Context, cta: Cta, address: int, relaxed: int) -> int:
    """The running warp has observed that a phase of an mbarrier of a CTA is complete; ``relaxed``: only a later fence acquires."""
    theirs = cta.RACES
    if theirs == 0:
        return 0
    me = context.RACE_WARP
    record = me.RECORD
    turn = record.RANK ^ theirs.RANK
    clock = race_done(theirs, race_mbarrier(theirs, address))
    if relaxed:
        me.READ = 1
        return race_join_clocks(record, race_clock(record, Race.EVERYTHING), clock, turn)
    return race_acquire(record, me, context.WARPS, clock, turn)
