"""Runtime of generated code: the order that fences, atomics and flags establish within a CTA and its cluster.

One clock of the CTA, and one of the cluster, has everything that was released, by any flag. For clocks see ``races.clocks``.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta, State
from ...ir.race_records import Race, RaceClock, RaceWarp
from ..intrinsics import load16
from .blocks import race_fence_blocks, race_flag_blocks
from .clocks import (
    race_acquire,
    race_clock,
    race_fenced,
    race_join_clocks,
    race_me,
    race_release,
    race_shared,
)


def race_acquire_flags(context: Context, cta: Cta, record: Race, me: RaceWarp, narrow: int) -> int:
    """A warp acquires everything that flags have released; ``narrow``: only in its CTA."""
    warps = context.WARPS
    race_acquire(record, me, warps, race_clock(record, Race.EVERYTHING), 0)
    if narrow == 0 and record.STEP > 1:
        clock = race_clock(race_shared(cta), Race.EVERYWHERE)
        race_acquire(record, me, warps, clock, record.RANK)
    return 0


def race_fence(context: Context, cta: Cta, state: State, scope: int) -> int:
    """``fence`` and ``membar``: later writes of flags release what comes before the fence, and the fence acquires what flags read
    earlier had released. ``scope``: 1 the CTA, 2 the cluster, 0 all."""
    record = cta.RACES
    if record == 0:
        return 0
    # without clusters, the cluster scope is the CTA
    narrow = scope == 1 or (scope == 2 and record.STEP == 1)
    me = race_me(record, state.INDEX)
    if me.READ:
        race_acquire_flags(context, cta, record, me, narrow)
    if scope == 0 and context.RACE_SEGMENTS:
        race_fence_blocks(context, record, me)
    race_release(record, me, race_fenced(record, me), 0)
    me.FENCED = me.FENCED | (3 - 2 * narrow)
    return 0


def race_flag(context: Context, site: int, how: int) -> int:
    """An atomic, or a load or store that is ``volatile``, ``relaxed`` or stronger. ``how``: 4 writes, 8 reads."""
    me = context.RACE_WARP
    if me == 0:
        return 0
    record = me.RECORD
    cta = record.CTA
    flags = load16(context.RACE_SITES + 2 * site)
    narrow = flags & Race.NARROW
    far = RaceClock(0)
    if narrow == 0 and record.STEP > 1:
        far = race_clock(race_shared(cta), Race.EVERYWHERE)
    if how & 4:
        if flags & Race.RELEASES:
            race_release(record, me, race_clock(record, Race.EVERYTHING), 0)
            if far:
                race_release(record, me, far, record.RANK)
        elif me.FENCED:
            race_join_clocks(record, race_clock(record, Race.EVERYTHING), race_fenced(record, me), 0)
            if far and me.FENCED & 2:
                race_join_clocks(record, far, race_fenced(record, me), record.RANK)
    if how & 8:
        me.READ = 1
        if flags & Race.ACQUIRES:
            race_acquire_flags(context, cta, record, me, narrow)
    if flags & (Race.NARROW | Race.IN_CLUSTER) == 0 and context.RACE_SEGMENTS:
        race_flag_blocks(context, record, me, flags, how)
    return 0
