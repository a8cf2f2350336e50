"""Runtime of generated code: instructions that access many words of global memory, most of which only one warp has accessed.

See ``races.words``. Words that other warps have accessed are then checked one by one.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineAccess, Race, Word
from ..intrinsics import (
    claimed,
    claimed_beside,
    compare_swap64,
    copy,
    last_of,
    load32,
    load64,
    release64,
    renewed,
    store32,
    trailing_zeros,
    unsigned_less,
)
from .batched import race_apart, race_batched, race_batched_row
from .words import (
    race_accessor_at,
    race_bytes_differ,
    race_comes_before,
    race_lock,
    race_unlock,
    race_word_at,
    race_word_bytes,
)


def race_scattered(context: Context, access: LineAccess, mask: int, addresses: int) -> int:
    """Record accesses of whole words by lanes at arbitrary addresses, if no other warp has accessed the words or its accesses
    happened before. Returns the lanes that are left."""
    size = access.SIZE
    unit = context.RACE_UNIT
    count = size >> unit
    me = access.ACCESSOR
    if me == 0 or count == 0 or access.FLAGS & (Race.IS_STRONG | Race.WORDS) != Race.WORDS:
        return mask
    claim = me << 32 | access.INFO
    locked = context.RACE_LOCKED
    if locked and count > Word.TOGETHER:
        return mask
    if context.RACE_BITS:
        mask = race_batched(context, access, mask, addresses, count)
        if mask == 0 or context.RACE_SEGMENTS:
            return mask
        left = mask
        while left:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            race_apart(context, load64(addresses + lane * 8), size)
    left = mask
    tried = count > 1 or locked or race_is_fresh(context, access, mask, addresses)
    if tried and count <= Word.TOGETHER:
        left = claimed(
            mask,
            addresses,
            context.RACE_WORDS,
            context.RACE_FROM,
            context.RACE_FROM + context.ARENA,
            context.RACE_SPAN,
            claim,
            context.RACE_ACCESSORS_FROM,
            access.STORES,
            count,
            locked == 0,
            Word.POWER - unit,
        )
    if locked and size == 4 and count == 1:
        left = left | race_scattered_locked(context, access, mask & ~left, addresses, claim)
    elif locked:
        left = mask
    if left and access.STORES:
        left = last_of(addresses, left)
    some = left & (left - 1)
    if count == 1 and size == 4 and locked == 0 and some & (some - 1):
        left = race_renewed(context, access, left, addresses, claim)
    rest = 0
    while left:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        start = load64(addresses + lane * 8)
        value = access.VALUES + lane * size
        done = race_noted(context, access, claim | lane, start, count, start, value)
        rest = rest | (done ^ 1) << lane
    return rest


def race_is_fresh(context: Context, access: LineAccess, mask: int, addresses: int) -> int:
    """Whether no other accessor has accessed the word of the first lane."""
    start = load64(addresses + trailing_zeros(mask) * 8)
    if not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return 1
    word = race_word_at(context, start)
    first = context.RACE_ACCESSORS_FROM
    loader = word.LOADED >> 32 & Word.NUMBERS
    fresh = loader < first or loader == access.ACCESSOR
    return fresh and word.STORED >> 32 & Word.NUMBERS < first


def race_renewed(context: Context, access: LineAccess, mask: int, addresses: int, claim: int) -> int:
    """Record accesses of single words by lanes, if earlier accesses are by the same accessor, or by another one and happened before.
    Returns the lanes that are left."""
    start = load64(addresses + trailing_zeros(mask) * 8)
    if not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return mask
    word = race_word_at(context, start)
    first = context.RACE_ACCESSORS_FROM
    me = access.ACCESSOR
    before = word.STORED >> 32 & Word.FLAGGED
    if before == me or before & Word.NUMBERS < first:
        before = word.LOADED >> 32 & Word.NUMBERS
    again = 0
    if before == me or before < first or race_comes_before(context, access, before) == 0:
        before = me
    else:
        again = race_epoch_of(context, before) != access.EPOCH
    return renewed(
        mask,
        addresses,
        context.RACE_WORDS,
        context.RACE_FROM,
        context.RACE_FROM + context.ARENA,
        context.RACE_SPAN,
        claim,
        first,
        before,
        again,
        access.STORES,
        access.VALUES,
    )


def race_scattered_locked(context: Context, access: LineAccess, mask: int, addresses: int, claim: int) -> int:
    """Record accesses of single words by lanes. The words had no other accessor when they were looked up without a lock, which is
    checked again here. Returns the lanes that are left."""
    words = context.RACE_WORDS
    origin = context.RACE_FROM
    first = context.RACE_ACCESSORS_FROM
    arena = context.ARENA
    me = access.ACCESSOR
    stores = access.STORES
    values = access.VALUES
    rest = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        start = load64(addresses + lane * 8)
        word = Word(words + ((start - origin) << 2))
        lock = Word(word & (0 - Word.LOCKS))
        held = lock.STORED
        if held < 0 or compare_swap64(lock + Word.STORED, held, held | Word.LOCKED) != held:
            rest = rest | 1 << lane
            continue
        stored = word.STORED
        loader = word.LOADED >> 32 & Word.NUMBERS
        if stored >> 32 & Word.NUMBERS < first and (loader < first or (stores and loader == me)):
            if stores:
                if values:
                    store32(start + arena, load32(values + lane * 4))
                word.STORED = claim | lane | stored & Word.LOCKED
            else:
                word.LOADED = claim | lane
        else:
            rest = rest | 1 << lane
        release64(lock + Word.STORED, lock.STORED & Word.UNLOCKED)
    return rest


def race_beside(context: Context, access: LineAccess, lane: int, start: int, length: int) -> int:
    """Record accesses by adjacent lanes, across any number of lines; returns the number of bytes before the first word that is not
    recorded."""
    if access.ACCESSOR == 0 or context.RACE_LOCKED or access.FLAGS & Race.IS_STRONG:
        return 0
    if not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return 0
    unit = context.RACE_UNIT
    power = trailing_zeros(access.SIZE >> unit)
    if context.RACE_BITS:
        if race_batched_row(context, access, lane, start, length >> unit, power):
            return length
        if context.RACE_SEGMENTS:
            return 0
        race_apart(context, start, length)
    at = race_word_at(context, start)
    claim = access.ACCESSOR << 32 | access.INFO | lane
    first = context.RACE_ACCESSORS_FROM
    return claimed_beside(at, length >> unit, claim, first, power, access.STORES) << unit


def race_in_line(
    context: Context, access: LineAccess, lane: int, start: int, done: int, part: int, image: int
) -> int:
    """Record accesses of ``part`` bytes of whole words by adjacent lanes from ``lane`` on, after the first ``done`` bytes; returns
    the number of bytes before the first word that is not recorded. ``image``: the host address of the value for the first byte of the
    line."""
    if access.FLAGS & Race.IS_STRONG:
        return done
    claim = access.ACCESSOR << 32 | (access.INFO & -32) | lane
    power = trailing_zeros(access.SIZE)
    unit = context.RACE_UNIT
    together = Word.TOGETHER << unit
    while done < part:
        place = start + done
        if context.RACE_LOCKED == 0:
            at = race_word_at(context, place)
            some = claim + (done >> power)
            first = context.RACE_ACCESSORS_FROM
            done += (
                claimed_beside(at, (part - done) >> unit, some, first, power - unit, access.STORES) << unit
            )
            if done == part:
                break
            place = start + done
        size = together - (place & (together - 1))
        if size > part - done:
            size = part - done
        value = image + (place & (Line.BYTES - 1))
        if race_noted(context, access, claim, place, size >> unit, start, value) == 0:
            break
        done += size
    return done


def race_noted(
    context: Context, access: LineAccess, claim: int, place: int, count: int, start: int, value: int
) -> int:
    """Record an access of a few words, which share a lock, if all their earlier accesses are by the same accessor, or by one of the
    same CTA and happened before; return 0 otherwise. ``claim``: the accessor and the details of the access; ``start``: the address of
    its lane; ``value``: the host address of the stored values."""
    first = context.RACE_ACCESSORS_FROM
    me = access.ACCESSOR
    stores = access.STORES
    power = trailing_zeros(access.SIZE)
    if not unsigned_less(place - context.RACE_FROM, context.RACE_SPAN):
        return 0
    word = race_word_at(context, place)
    lock = Word(race_lock(context, word))
    end = word + count * Word.BYTES
    free = 1
    while free and word < end:
        storer = word.STORED >> 32 & Word.FLAGGED
        loader = word.LOADED >> 32 & Word.NUMBERS
        if storer != me and (storer & Word.NUMBERS < first) == 0:
            free = race_comes_before(context, access, storer)
        if free and loader != me and (loader < first) == 0:
            free = race_comes_before(context, access, loader)
        word = Word(word + Word.BYTES)
    word = Word(end - count * Word.BYTES)
    if free == 0:
        word = Word(end)
    host = place + context.ARENA
    known = access.VALUES != 0
    step = 1 << context.RACE_UNIT
    while word < end:
        content = claim + ((place - start) >> power)
        loaded = word.LOADED
        loader = loaded >> 32 & Word.NUMBERS
        if stores == 0:
            if loader < first:
                word.LOADED = content
            elif loaded < 0 or race_epoch_of(context, loader) != access.EPOCH:
                word.LOADED = content | loaded & 15 << Word.DIFFERS
        else:
            if known and (word.STORED >> 32 & Word.NUMBERS < first) == 0:
                differs = race_bytes_differ(load32(host) ^ load32(value)) & race_word_bytes(context)
                if differs:
                    if loader < first:
                        loaded = me << 32 | Word.NOTHING
                    word.LOADED = loaded | differs << Word.DIFFERS
            word.STORED = content | word.STORED & Word.LOCKED
            if known and context.RACE_LOCKED:
                copy(host, value, step)
        place += step
        host += step
        value += step
        word = Word(word + Word.BYTES)
    race_unlock(context, lock)
    return free


def race_epoch_of(context: Context, number: int) -> int:
    """The epoch of an accessor."""
    return race_accessor_at(context, number).EPOCH
