"""Runtime of generated code: splits the accesses of lanes to global memory into lines, which ``races.global_memory`` checks."""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineAccess, Race
from ..intrinsics import (
    alike,
    copy,
    in_row,
    last_of,
    leading_zeros,
    load16,
    load32,
    load64,
    trailing_zeros,
)
from .batched import race_batched
from .blocks import race_again, race_segment
from .clocks import race_epoch, race_shared
from .flags import race_flag
from .global_memory import race_line
from .lines import race_strength
from .scattered import race_beside, race_scattered
from .words import race_accessor


def race_row(context: Context, site: int, mask: int, first: int, values: int, size: int, how: int) -> int:
    """Check accesses to global memory by adjacent lanes; ``first`` is the address of lane 0. ``values``: the host address of the
    stored values, lane after lane, with 64 readable bytes before and after them; or 0. ``how``: 4 the lanes store, 8 they load, 16
    each lane accesses a vector of several elements."""
    access = race_access(context, site, values, size, how)
    power = trailing_zeros(size)
    while mask:
        lane = trailing_zeros(mask)
        lanes = trailing_zeros(~(mask >> lane))
        mask = mask & ~(((1 << lanes) - 1) << lane)
        start = first + lane * size
        end = start + lanes * size
        if access.FLAGS & Race.WORDS:
            done = race_beside(context, access, lane, start, end - start)
            start += done
            lane += done >> power
        while start < end:
            part = Line.BYTES - (start & (Line.BYTES - 1))
            if part > end - start:
                part = end - start
            race_line(context, access, lane, start, part, race_image(access, start, first))
            start += part
            lane += part >> power
    return 0


def race_image(access: LineAccess, start: int, first: int) -> int:
    """The host address of the value for the first byte of a line, if lane 0 stores at ``first``."""
    return access.VALUES + (access.VALUES != 0) * ((start & (0 - Line.BYTES)) - first)


def race_anywhere(
    context: Context, site: int, mask: int, addresses: int, values: int, size: int, how: int
) -> int:
    """As ``race_row``, for lanes at arbitrary addresses. ``how``: 32 all lanes store one value at one address. Returns the lanes
    whose values must be stored."""
    access = race_access(context, site, values, size, how)
    power = trailing_zeros(size)
    if how & 32 and mask:
        lane = 63 - leading_zeros(mask)
        start = load64(addresses + lane * 8)
        race_line(context, access, lane, start, size, race_image(access, start, start - lane * size))
        return mask
    if how & 4 and context.RACE_LOCKED:
        # of lanes that store at one address only the last one is checked: the detector must not compare its value with one of the
        # other lanes
        mask = last_of(addresses, mask)
    given = mask
    lane = trailing_zeros(mask)
    if mask >> lane & 2 == 0 or load64(addresses + lane * 8 + 8) != load64(addresses + lane * 8) + size:
        mask = race_scattered(context, access, mask, addresses)
    if how & 4 and mask:
        mask = last_of(addresses, mask)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        first = start - lane * size
        lanes = 1
        if mask >> lane & 2 and load64(addresses + lane * 8 + 8) == start + size:
            # a lane that begins a line after a full row may have the address of later lanes
            lanes = trailing_zeros(~((mask & in_row(addresses, lane, size)) >> lane | 1))
            if start + (lanes - 1) * size & (Line.BYTES - 1) == 0:
                lanes -= 1
        mask = mask & (-1 << (lane + lanes))
        end = start + lanes * size
        part = Line.BYTES - (start & (Line.BYTES - 1))
        while part < end - start:
            race_line(context, access, lane, start, part, race_image(access, start, first))
            start += part
            lane += part >> power
            part = Line.BYTES
        if how & 4 == 0 and mask and load64(addresses + trailing_zeros(mask) * 8) == start:
            # all of these lanes load from one address
            mask = mask & ~race_first_of(alike(addresses, lane, 8), mask)
        race_line(context, access, lane, start, end - start, race_image(access, start, first))
    return given


def race_atomics(context: Context, site: int, mask: int, addresses: int, size: int, how: int) -> int:
    """Record atomics of lanes in batches of words; ``how`` as in ``reach``. Returns the lanes whose atomics are recorded."""
    flags = load16(context.RACE_SITES + 2 * site)
    kinds = Race.WORDS | Race.IS_STRONG | Race.NARROW | Race.ACQUIRES | Race.RELEASES
    if flags & kinds != Race.WORDS | Race.IS_STRONG or context.RACE_BITS == 0 or mask == 0:
        return 0
    race_flag(context, site, how)
    access = race_access(context, site, 0, size, how)
    if access.ACCESSOR == 0:
        return 0
    return mask & ~race_batched(context, access, mask, addresses, size >> context.RACE_UNIT)


def race_texels(context: Context, site: int, mask: int, addresses: int, sizes: int) -> int:
    """As ``race_row``, for loads through a texture or surface; ``sizes``: the bytes of each lane's access, in four bytes per lane."""
    while mask:
        lane = trailing_zeros(mask)
        size = load32(sizes + lane * 4)
        start = load64(addresses + lane * 8)
        some = mask & alike(sizes, lane, 4)
        if start & (size - 1):
            # a row of narrow texels may begin at any address
            some = 1 << lane
            race_row(context, site, some, start - lane * size, 0, size, 8)
        else:
            race_anywhere(context, site, some, addresses, 0, size, 8)
        mask = mask & ~some
    return 0


def race_loose(context: Context, site: int, mask: int, addresses: int, values: int, size: int) -> int:
    """As ``race_row``, for stores through a surface at addresses that are not multiples of their size."""
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        race_row(context, site, 1 << lane, load64(addresses + lane * 8) - lane * size, values, size, 4)
    return 0


def race_first_of(lanes: int, mask: int) -> int:
    """The lanes of ``lanes`` below the first lane of the mask that is not in ``lanes``."""
    others = mask & ~lanes
    return mask & lanes & ((others & (0 - others)) - 1)


def race_alone(context: Context, site: int, lane: int, address: int, size: int, how: int) -> int:
    """As ``race_row``, for one lane."""
    values = context.RACE_VALUE
    if values:
        width = context.RACE_WIDTH
        buffer = context.SCRATCH + LineAccess.PLACE + LineAccess.BUFFER + (address & (Line.BYTES - 1))
        done = 0
        while done < size:
            copy(buffer + done, values + done * 32, width)
            done += width
        values = buffer - lane * size
    access = race_access(context, site, values, size, how)
    return race_line(context, access, lane, address, size, race_image(access, address, address - lane * size))


def race_access(context: Context, site: int, values: int, size: int, how: int) -> LineAccess:
    """Fill the fields of ``LineAccess`` that are the same for all lines of an instruction of the running warp."""
    access = LineAccess(context.SCRATCH + LineAccess.PLACE)
    cta = context.CTA
    record = cta.RACES
    flags = load16(context.RACE_SITES + 2 * site)
    access.CTA = cta
    access.RECORD = record
    access.FLAGS = flags
    access.STRONG = race_strength(flags)
    access.STORES = how & 4
    access.VALUES = values
    access.SIZE = size
    access.INFO = site << 14 | context.STATE.INDEX << 9
    access.NUMBER = context.RACE_FIRST + cta.INDEX
    access.EPOCH = 0
    access.RANK = 0
    access.UNIT = Line.BITS
    if record:
        race_again(context, record)
        access.EPOCH = race_epoch(context, record.RANK)
    if context.CLUSTER_CTAS > 1:
        race_in_cluster(context, access)
    if flags & Race.WORDS:
        access.BEFORE = 0
        race_accesses_words(context, access)
    return access


def race_accesses_words(context: Context, access: LineAccess) -> int:
    """Prepare a check by words. Where CTAs may wait for one another, lines are checked, except for accesses that fit in batches of
    words."""
    record = Race(access.RECORD)
    if context.RACE_SEGMENTS == 0:
        access.UNIT = context.RACE_UNIT
        access.ACCESSOR = race_accessor(context, access.NUMBER, access.EPOCH)
        return 0
    access.ACCESSOR = 0
    if record and record.NOW != Race.LAST:
        access.ACCESSOR = race_segment(context, access.CTA, record, access.EPOCH)
    return 0


def race_in_cluster(context: Context, access: LineAccess) -> int:
    """The CTAs of a cluster are checked against one another like the warps of a CTA."""
    cta = access.CTA
    rank = cta.RANK
    access.RANK = rank
    access.NUMBER = context.RACE_FIRST + cta.CLUSTER.NUMBER
    access.INFO = access.INFO | rank << Race.RANK_PLACE
    if access.RECORD == 0 or context.RACE_SEGMENTS:
        return 0
    access.RECORD = race_shared(cta)
    access.EPOCH = race_epoch(context, 0)
    return 0
