"""Runtime of generated code: agents that are groups of ``cp.async``, of bulk copies and of ``wgmma``.

Each warp has an agent for its copies and one for its products; its time is that of a group. For clocks see ``races_clocks``.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, Race, State
from .compile_python import load32, load64, store32, store64
from .races_clocks import race_me, race_more, race_proxy, race_tick


def race_groups(context: int, cta: int, state: int, kind: int, left: int) -> int:
    """``cp.async.commit_group`` (kind 0), ``wait_group`` for all groups but the last ``left`` ones (1), ``wait_all`` (2)."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = race_me(record, warp)
    count = load64(me + Race.GROUPS)
    if load64(me + Race.COPIES) == 0:
        store64(me + Race.COPIES, race_tick(record))
    time = load64(me + Race.COPIES)
    if kind == 0:
        store64(me + Race.RING + (count % Race.RING_SIZE) * 8, time)
        store64(me + Race.GROUPS, count + 1)
    elif kind == 1:
        if left >= count or left >= Race.RING_SIZE:
            return 0
        time = load64(me + Race.RING + ((count - left - 1) % Race.RING_SIZE) * 8)
    if kind and load32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4) < (Race.ASYNCHRONOUS | time):
        store32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4, Race.ASYNCHRONOUS | time)
    if kind != 1:
        store64(me + Race.COPIES, race_tick(record))
    return 0


def race_copies(context: int) -> int:
    """What follows is done by the ``cp.async`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    warp = load64(me + Race.EPOCH) & 31
    race_more(record)
    if load64(me + Race.COPIES) == 0:
        store64(me + Race.COPIES, race_tick(record))
    epoch = (Race.ASYNCHRONOUS | load64(me + Race.COPIES)) << 8 | (Race.OF_COPIES + warp)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | epoch)
    return 0


def race_source(context: int) -> int:
    """What follows is read by a bulk or tensor copy of the open group of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    race_more(record)
    if load64(me + Race.BULK) == 0:
        store64(me + Race.BULK, race_tick(record))
    agent = Race.OF_COPIES + (load64(me + Race.EPOCH) & 31)
    epoch = (Race.ASYNCHRONOUS | load64(me + Race.BULK)) << 8 | agent
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | epoch)
    return 0


def race_bulk_groups(cta: int, state: int, waits: int, left: int) -> int:
    """``cp.async.bulk.commit_group``, or (``waits``) ``wait_group`` for all groups but the last ``left`` ones: these have read
    their sources, with ``.read`` and without. Groups of all threads of a warp are counted together: a wait is for no less than it
    says."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = race_me(record, warp)
    count = load64(me + Race.BULK_GROUPS)
    if waits == 0:
        time = load64(me + Race.BULK)
        if time == 0 and count:
            time = load64(me + Race.BULK_RING + ((count - 1) % Race.RING_SIZE) * 8)
        store64(me + Race.BULK_RING + (count % Race.RING_SIZE) * 8, time)
        store64(me + Race.BULK_GROUPS, count + 1)
        store64(me + Race.BULK, 0)
        return 0
    if left >= count or left >= Race.RING_SIZE:
        return 0
    time = load64(me + Race.BULK_RING + ((count - left - 1) % Race.RING_SIZE) * 8)
    if time and load32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4) < (Race.ASYNCHRONOUS | time):
        store32(me + Race.CLOCK + (Race.OF_COPIES + warp) * 4, Race.ASYNCHRONOUS | time)
    return 0


def race_products(context: int) -> int:
    """What follows is done by the ``wgmma`` of the running warp, until ``RACE_AGENT`` is 0 again."""
    me = load64(context + Context.RACE_WARP)
    if me == 0:
        return 0
    record = load64(me + Race.RECORD)
    warp = load64(me + Race.EPOCH) & 31
    race_more(record)
    if load64(me + Race.PRODUCTS) == 0:
        store64(me + Race.PRODUCTS, race_tick(record))
    epoch = (Race.ASYNCHRONOUS | load64(me + Race.PRODUCTS)) << 8 | (Race.OF_PRODUCTS + warp)
    store64(context + Context.RACE_AGENT, load64(record + Race.RANK) << 32 | epoch)
    return 0


def race_commit_products(cta: int, state: int) -> int:
    """``wgmma.commit_group``, whose groups ``State.COMMITS`` counts."""
    record = load64(cta + Cta.RACES)
    if record == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
    place = me + Race.PRODUCTS_RING + (load32(state + State.COMMITS) % Race.RING_SIZE) * 8
    store64(place, load64(me + Race.PRODUCTS))
    store64(me + Race.PRODUCTS, race_tick(record))
    return 0


def race_wait_products(context: int, cta: int, state: int) -> int:
    """A warp has waited for groups of products of its warpgroup."""
    record = load64(cta + Cta.RACES)
    wanted = load32(state + State.WANTED)
    if record == 0 or wanted == 0:
        return 0
    warp = load32(state + State.INDEX)
    me = race_me(record, warp)
    other = warp & -4
    while other < load64(context + Context.WARPS) and other < (warp | 3) + 1:
        ring = race_me(record, other) + Race.PRODUCTS_RING
        time = load64(ring + ((wanted - 1) % Race.RING_SIZE) * 8)
        if time:
            time = time | Race.ASYNCHRONOUS
            if load32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4) < time:
                store32(me + Race.CLOCK + (Race.OF_PRODUCTS + other) * 4, time)
        other += 1
    return race_proxy(cta, state)
