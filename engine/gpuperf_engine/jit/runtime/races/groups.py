"""Runtime of generated code: the agents of groups of ``cp.async``, of bulk copies and of ``wgmma``.

Each warp has one agent for its ``cp.async``, one for its bulk copies and one for its ``wgmma``; the times of these agents are those
of their groups. For clocks see ``races.clocks``.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta, State
from ...ir.race_records import Race, RaceWarp
from .clocks import race_asynchronous, race_me, race_more, race_proxy, race_tick


def race_groups(context: Context, cta: Cta, state: State, kind: int, left: int) -> int:
    """``cp.async.commit_group`` (kind 0), ``wait_group`` for all groups but the last ``left`` ones (1), ``wait_all`` (2)."""
    record = cta.RACES
    if record == 0:
        return 0
    warp = state.INDEX
    me = race_me(record, warp)
    count = me.GROUPS
    if me.COPIES == 0:
        me.COPIES = race_tick(record)
    time = me.COPIES
    if kind == 0:
        me.RING[count % RaceWarp.RING_SIZE] = time
        me.GROUPS = count + 1
    elif kind == 1:
        if left >= count or left >= RaceWarp.RING_SIZE:
            return 0
        time = me.RING[(count - left - 1) % RaceWarp.RING_SIZE]
    if kind and me.CLOCK[Race.OF_COPIES + warp] < (Race.ASYNCHRONOUS | time):
        me.CLOCK[Race.OF_COPIES + warp] = Race.ASYNCHRONOUS | time
    if kind != 1:
        me.COPIES = race_tick(record)
    return 0


def race_copies(context: Context) -> int:
    """The following accesses are by the ``cp.async`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = context.RACE_WARP
    if me == 0:
        return 0
    record = me.RECORD
    race_more(record)
    if me.COPIES == 0:
        me.COPIES = race_tick(record)
    return race_asynchronous(context, record, Race.OF_COPIES + (me.EPOCH & 31), me.COPIES)


def race_source(context: Context) -> int:
    """The following reads are by a bulk or tensor copy in the open group of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = context.RACE_WARP
    if me == 0:
        return 0
    record = me.RECORD
    race_more(record)
    if me.BULK == 0:
        me.BULK = race_tick(record)
    if me.BULK_AGENT == 0:
        me.BULK_AGENT = race_bulk_agent(record, me.EPOCH & 31)
    return race_asynchronous(context, record, me.BULK_AGENT, me.BULK)


def race_bulk_agent(record: Race, warp: int) -> int:
    """An agent for the bulk copies of a warp that complete by groups: an agent that no mbarrier uses if there is one, otherwise that
    of the warp's ``cp.async``."""
    count = record.BULK_AGENTS + 1
    if count > Race.MOST_OF_BULK or record.SLOTS + count > Race.MOST_MBARRIERS:
        return Race.OF_COPIES + warp
    record.BULK_AGENTS = count
    return Race.OF_MBARRIERS + Race.MOST_MBARRIERS - count


def race_bulk_groups(cta: Cta, state: State, waits: int, left: int) -> int:
    """``cp.async.bulk.commit_group``, or (``waits``) ``wait_group`` for all groups but the last ``left`` ones: these have read their
    sources, with and without ``.read``. The groups of all threads of a warp are counted together, so a wait
    may be taken to include more groups than it does, never fewer."""
    record = cta.RACES
    if record == 0:
        return 0
    me = race_me(record, state.INDEX)
    count = me.BULK_GROUPS
    if waits == 0:
        time = me.BULK
        if time == 0 and count:
            time = me.BULK_RING[(count - 1) % RaceWarp.RING_SIZE]
        me.BULK_RING[count % RaceWarp.RING_SIZE] = time
        me.BULK_GROUPS = count + 1
        me.BULK = 0
        return 0
    if left >= count or left >= RaceWarp.RING_SIZE:
        return 0
    time = me.BULK_RING[(count - left - 1) % RaceWarp.RING_SIZE]
    agent = me.BULK_AGENT
    if time and me.CLOCK[agent] < (Race.ASYNCHRONOUS | time):
        me.CLOCK[agent] = Race.ASYNCHRONOUS | time
    return 0


def race_products(context: Context) -> int:
    """The following accesses are by the ``wgmma`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = context.RACE_WARP
    if me == 0:
        return 0
    record = me.RECORD
    race_more(record)
    if me.PRODUCTS == 0:
        me.PRODUCTS = race_tick(record)
    return race_asynchronous(context, record, Race.OF_PRODUCTS + (me.EPOCH & 31), me.PRODUCTS)


def race_commit_products(cta: Cta, state: State) -> int:
    """``wgmma.commit_group``; ``State.COMMITS`` counts the groups."""
    record = cta.RACES
    if record == 0:
        return 0
    me = race_me(record, state.INDEX)
    me.PRODUCTS_RING[state.COMMITS % RaceWarp.RING_SIZE] = me.PRODUCTS
    me.PRODUCTS = race_tick(record)
    return 0


def race_wait_products(context: Context, cta: Cta, state: State) -> int:
    """A warp has waited for groups of ``wgmma`` of its warpgroup."""
    record = cta.RACES
    wanted = state.WANTED
    if record == 0 or wanted == 0:
        return 0
    warp = state.INDEX
    me = race_me(record, warp)
    other = warp & -4
    while other < context.WARPS and other < (warp | 3) + 1:
        time = race_me(record, other).PRODUCTS_RING[(wanted - 1) % RaceWarp.RING_SIZE]
        if time:
            time = time | Race.ASYNCHRONOUS
            if me.CLOCK[Race.OF_PRODUCTS + other] < time:
                me.CLOCK[Race.OF_PRODUCTS + other] = time
        other += 1
    return race_proxy(cta, state)
