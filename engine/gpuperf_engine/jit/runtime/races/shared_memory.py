"""Runtime of generated code: checks each access to shared memory against earlier ones.

For epochs and clocks see ``races.clocks``.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta
from ...ir.race_records import Race, RaceWarp
from ..intrinsics import (
    load8,
    load16,
    load32,
    load64,
    pieces_loaded,
    pieces_stored,
    store32,
    store64,
    trailing_zeros,
)
from .clocks import race_epoch, race_happened_before, race_known, race_twin
from .flags import race_flag
from .reports import race_report_shared


def race_same(context: Context, cta: Cta, place: int, done: int, size: int) -> int:
    """Whether a lane stores the value that memory already has: bytes of its access from ``done`` on."""
    value = context.RACE_VALUE
    width = context.RACE_WIDTH
    if value == 0:
        return 0
    host = cta.SHARED + place
    index = 0
    while index < size:
        at = done + index
        if load8(host + index) != load8(value + at // width * width * 32 + at % width):
            return 0
        index += 1
    return 1


def race_against(
    context: Context,
    cta: Cta,
    me: RaceWarp,
    cell: int,
    plane: int,
    epoch: int,
    info: int,
    place: int,
    kind: int,
) -> int:
    """Whether an access has a race with the one whose epoch is in a cell; the race is reported unless both are stores."""
    last = load32(cell)
    if last == epoch & 4294967295 or race_happened_before(me, last) or (epoch & last & Race.STRONG):
        return 0
    behind = load32(cell + plane)
    if behind & info & 480 == 0:
        return 0
    if kind != Race.WAW:
        race_report_shared(context, cta, behind, info, place, kind)
    return 1


def race_word(
    context: Context, cta: Cta, record: Race, me: RaceWarp, epoch: int, info: int, start: int, done: int, size: int, writes: int
) -> int:  # fmt: skip
    """Check and record an access of one lane to bytes of a word."""
    plane = record.PLANE
    cell = record.PLANES + (start & -4)
    kind = Race.RAW
    if writes:
        kind = Race.WAW
    behind = load32(cell + plane)
    if race_against(context, cta, me, cell, plane, epoch, info, start, kind) and writes:
        plain = (epoch | load32(cell)) & Race.STRONG == 0
        if not plain or race_same(context, cta, start, done, size) == 0:
            race_report_shared(context, cta, behind, info, start, kind)
    if writes:
        race_against(context, cta, me, cell + Race.READER * plane, plane, epoch, info, start, Race.WAR)
        race_against(context, cta, me, cell + Race.OTHER * plane, plane, epoch, info, start, Race.WAR)
        if load32(cell) == epoch & 4294967295:
            info = info | (behind & 480)
        store32(cell, epoch)
        store32(cell + plane, info)
        return 0
    cell += Race.READER * plane
    last = load32(cell)
    if last != epoch & 4294967295 and race_happened_before(me, last) == 0:
        cell += 2 * plane
        last = load32(cell)
    if last == epoch & 4294967295:
        info = info | (load32(cell + plane) & 480)
    store32(cell, epoch)
    store32(cell + plane, info)
    return 0


def race_words(
    context: Context, cta: Cta, record: Race, me: RaceWarp, epoch: int, info: int, place: int, size: int, writes: int
) -> int:  # fmt: skip
    """As ``race_word``, for whole words. An epoch equal to that of the previous word needs one comparison."""
    plane = record.PLANE
    first = record.PLANES + place
    base = me.BASE
    written = epoch
    done = 0
    while done < size:
        cell = first + done
        bad = 0
        last = load32(cell)
        if last >= base and last != written and epoch & last & Race.STRONG == 0:
            written = last
            bad = race_happened_before(me, last) == 0
        one = load32(cell + Race.READER * plane)
        if writes and one >= base:
            # if the first reader is before the base, so is the other one
            if epoch & one & Race.STRONG == 0:
                bad = bad | (race_happened_before(me, one) == 0)
            one = load32(cell + Race.OTHER * plane)
            if one >= base and epoch & one & Race.STRONG == 0:
                bad = bad | (race_happened_before(me, one) == 0)
        if bad:
            race_word(context, cta, record, me, epoch, info, place + done, done, 4, writes)
            written = epoch
        elif writes:
            store32(cell, epoch)
            store32(cell + plane, info)
        elif one != epoch:
            cell += Race.READER * plane
            if one >= base and race_happened_before(me, one) == 0:
                cell += 2 * plane
            store32(cell, epoch)
            store32(cell + plane, info)
        done += 4
    return 0


def race_happened_before_cached(me: RaceWarp, epoch: int) -> int:
    """As ``race_happened_before``, for memory of the own CTA. The result stays true, so the warp caches the last epochs for which it
    was."""
    kept = (epoch & 64) >> 3 | epoch & 7
    if me.KNOWN[kept] == epoch:
        return 1
    if race_happened_before(me, epoch) == 0:
        return 0
    me.KNOWN[kept] = epoch
    return 1


def race_visible(me: RaceWarp, epoch: int, proxy: int) -> int:
    """As ``race_happened_before_cached``. With ``proxy``, an access of a warp or its ``cp.async`` must also be visible to the async
    proxy, by a proxy fence."""
    if proxy and epoch & 127 < Race.OF_MBARRIERS:
        record = me.RECORD
        if race_twin(record, race_known(me)).TIMES[epoch & me.MASK] < epoch >> 8:
            return 0
    return race_happened_before_cached(me, epoch)


def race_pieces(context: Context, cta: Cta, site: int, lane: int, mask: int, places: int, how: int) -> int:
    """Check and record accesses of 16 bytes to shared memory of a CTA: by lane l at ``places[l]``, or, if ``lane`` is not −1, all by
    this lane. Returns whether all accesses were checked and recorded. ``how``: 4 writes, 8 reads, 16 recorded already."""
    flags = load16(context.RACE_SITES + 2 * site)
    record = cta.RACES
    if flags & Race.CHECKED == 0 or record == 0 or record.NOW == Race.LAST:
        return 1
    me = context.RACE_WARP
    if flags & Race.IS_STRONG or me.RECORD != record or context.SHARED_BYTES < 16:
        return 0
    epoch = race_epoch(context, record.RANK)
    info = site << 14 | (me.EPOCH & 31) << 9 | 480
    each = lane < 0
    if each == 0:
        info = info | lane
    limit = context.SHARED_BYTES - 16
    if how & 4:
        return pieces_stored(record, me, epoch, info, each, mask, places, limit)
    proxy = flags & Race.ASYNC_PROXY
    return pieces_loaded(record, me, epoch, info, each, mask, places, limit, proxy, how & 16)


def race_range(context: Context, cta: Cta, site: int, lane: int, start: int, size: int, how: int) -> int:
    """As ``race_pieces``, for a lane that accesses up to 32 adjacent pieces."""
    places = context.SCRATCH + Race.PLACES
    count = 0
    while count < 32 and count * 16 < size:
        store64(places + count * 8, start + count * 16)
        count += 1
    return race_pieces(context, cta, site, lane, (1 << count) - 1, places, how)


def race_at(context: Context, cta: Cta, site: int, lane: int, place: int, size: int, how: int) -> int:
    """Check and record an access of one lane of the running warp to shared memory of a CTA. ``how``: 4 writes, 8 reads."""
    flags = load16(context.RACE_SITES + 2 * site)
    record = cta.RACES
    me = context.RACE_WARP
    if flags & Race.CHECKED == 0 or record == 0 or record.NOW == Race.LAST:
        return 0
    own = me.RECORD
    turn = 0
    if own != record:
        turn = own.RANK ^ record.RANK
    epoch = race_epoch(context, record.RANK)
    info = site << 14 | (me.EPOCH & 31) << 9 | lane | turn << Race.RANK_PLACE
    proxy = flags & Race.ASYNC_PROXY and how & 8 and turn == 0
    if proxy:
        race_unfenced(context, cta, record, me, info, place, size)
    if flags & Race.IS_STRONG:
        epoch = epoch | Race.STRONG
    if turn and own.NOW == Race.LAST:
        return 0
    me.TURN = turn
    if size == 4 and place & 3 == 0 and race_among_atomics(record, me, epoch, info, place, flags, how):
        me.TURN = 0
        return 0
    if turn:
        race_parts(context, cta, record, me, epoch, info, place, size, how & 4)
        me.TURN = 0
    elif (place | size) & 3 == 0:
        race_words(context, cta, record, me, epoch & 4294967295, info | 480, place, size, how & 4)
    else:
        race_parts(context, cta, record, me, epoch, info, place, size, how & 4)
    # most atomics order nothing
    plain = flags | Race.NARROW == Race.CHECKED | Race.IS_STRONG | Race.NARROW
    if flags & Race.IS_STRONG and not (plain and me.READ and not me.FENCED):
        race_flag(context, site, how)
    return 0


def race_unfenced(
    context: Context, cta: Cta, record: Race, me: RaceWarp, info: int, place: int, size: int
) -> int:  # fmt: skip
    """The async proxy reads words: report stores by warps and their ``cp.async`` that happened before without a proxy fence in
    between."""
    cell = record.PLANES + (place & -4)
    plane = record.PLANE
    twin = race_twin(record, race_known(me))
    seen = 0
    done = 0
    while done < size:
        last = load32(cell + done)
        hidden = last & 127 < Race.OF_MBARRIERS and twin.TIMES[last & me.MASK] < last >> 8
        if last != seen and hidden and race_happened_before(me, last):
            behind = load32(cell + done + plane)
            race_report_shared(context, cta, behind, info | 480, place + done, Race.RAW | Race.UNFENCED)
        seen = last
        done += 4
    return 0


def race_among_atomics(
    record: Race, me: RaceWarp, epoch: int, info: int, place: int, flags: int, how: int
) -> int:  # fmt: skip
    """Whether an atomic that orders nothing accesses a word after only other atomics; if so, it is recorded."""
    if flags | Race.NARROW != Race.CHECKED | Race.IS_STRONG | Race.NARROW or me.READ == 0:
        return 0
    plane = record.PLANE
    cell = record.PLANES + place
    last = load32(cell)
    if how & 4 == 0 or me.FENCED or (last & Race.STRONG == 0 and race_precedes_all(me, last) == 0):
        return 0
    if race_precedes_all(me, load32(cell + Race.READER * plane)) == 0:
        return 0
    # in memory of the own CTA the other reader is never later
    if me.TURN and race_precedes_all(me, load32(cell + Race.OTHER * plane)) == 0:
        return 0
    store32(cell, epoch)
    store32(cell + plane, info | 480)
    return 1


def race_precedes_all(me: RaceWarp, epoch: int) -> int:
    """Whether there was no access; or, in the own CTA, it came before the last barrier of all warps; or, in another CTA, it happened
    before."""
    if epoch == 0 or me.TURN == 0:
        return epoch < me.BASE
    return race_happened_before(me, epoch)


def race_parts(
    context: Context, cta: Cta, record: Race, me: RaceWarp, epoch: int, info: int, place: int, size: int, writes: int
) -> int:  # fmt: skip
    """As ``race_words``, for any bytes."""
    done = 0
    while done < size:
        start = place + done
        part = 4 - (start & 3)
        if part > size - done:
            part = size - done
        bits = ((1 << part) - 1) << (start & 3)
        race_word(context, cta, record, me, epoch, info | bits << 5, start, done, part, writes)
        done += part
    return 0


def race_lanes(
    context: Context, site: int, mask: int, addresses: int, values: int, width: int, size: int, how: int
) -> int:
    """Check accesses to shared memory lane by lane; ``values``: the host address of the stored values, element e of lane l at
    ``values[e · 32 + l]``."""
    cta = context.CTA
    context.RACE_WIDTH = width
    if size == 16 and race_pieces(context, cta, site, -1, mask, addresses, how):
        mask = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if values:
            context.RACE_VALUE = values + lane * width
        race_at(context, cta, site, lane, load64(addresses + lane * 8), size, how)
    context.RACE_VALUE = 0
    return 0
