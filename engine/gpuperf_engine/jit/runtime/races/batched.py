"""Runtime of generated code: words of global memory that the lanes of one instruction access at once, and that later instructions
access in the same groups.

A bit of each word tells whether it has been accessed. The first access of words by an instruction is recorded in one ``Batch``,
appended to those before it. This takes less time than a ``Word`` for each, since most of these records would miss the host's caches.
Most words are accessed again by an instruction that accesses exactly the words of a batch. A word that is accessed in any other way
leaves its batch and gets a ``Word`` or, where CTAs may wait for one another, an entry of its line. Before several threads run CTAs,
all words leave their batches.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Batch, Batches, Line, LineAccess, LineEntry, LineRoom, Race, Word
from ..intrinsics import (
    batch_claim,
    batch_compare,
    batch_holding,
    batch_keep,
    batch_places,
    batch_row,
    batch_same,
    leading_zeros,
    load16,
    load32,
    load64,
    store32,
    store64,
    trailing_zeros,
    unsigned_less,
)
from .blocks import race_segment_at
from .lines import race_fresh, race_strength
from .warps import race_entry, race_precedes
from .words import race_accessor_at, race_comes_before, race_word_bytes


def race_batch_at(context: Context, number: int) -> Batch:
    """A batch, by its number."""
    return Batch(context.RACE_BATCHES + Batches.ROWS + number * Batch.BYTES)


def race_batch_places(context: Context, number: int) -> int:
    """The host address of the numbers of its words."""
    return context.RACE_BATCHES + Batches.PLACES + number * Batches.PLACES_BYTES


def race_batch_differs(context: Context, number: int) -> int:
    """The host address of its masks of bytes that held several values."""
    return context.RACE_BATCHES + Batches.DIFFERS + number * Batches.DIFFERS_BYTES


def race_batch_slot(context: Context, mask: int) -> int:
    """The slot of a batch with the words at ``Batches.WORDS``: a hash of the first word."""
    first = load32(context.RACE_BATCHES + Batches.WORDS + trailing_zeros(mask) * 4)
    return first * 2654435761 >> 20 & (Batches.SLOTS - 1)


def race_batched(context: Context, access: LineAccess, mask: int, addresses: int, count: int) -> int:
    """Record accesses by lanes at arbitrary addresses, of ``count`` words each. Returns the lanes that are not recorded."""
    batches = context.RACE_BATCHES
    if Batches(batches).NEXT >= Batches.MOST or count > Batch.WIDEST:
        return mask
    Batches(batches).ACCESSES += 1
    words = batches + Batches.WORDS
    origin = context.RACE_FROM
    if batch_places(mask, addresses, origin, context.RACE_BATCHED, batches, words, context.RACE_UNIT) == 0:
        return mask
    first = load32(words + trailing_zeros(mask) * 4)
    known = load64(race_bits_at(context, first)) >> (first & 63) & 1
    if known and race_batch_again(context, access, mask, count):
        return 0
    fresh = batch_claim(mask, words, context.RACE_BITS, count, Batch.LEAST)
    if fresh:
        race_batch_new(context, access, fresh, count)
    return mask & ~fresh


def race_batched_row(
    context: Context, access: LineAccess, lane: int, start: int, count: int, power: int
) -> int:
    """Record accesses of ``count`` adjacent words by adjacent lanes from ``lane`` on, 1 << ``power`` words each; returns how many
    words are recorded."""
    batches = context.RACE_BATCHES
    if Batches(batches).NEXT >= Batches.MOST or start - context.RACE_FROM >= context.RACE_BATCHED:
        return 0
    Batches(batches).ACCESSES += 1
    place = (start - context.RACE_FROM) >> context.RACE_UNIT
    batch_row(batches + Batches.WORDS, place - (lane << power), power)
    mask = ((1 << (count >> power)) - 1) << lane
    if race_row_is_fresh(context, place, count) == 0:
        return race_batch_again(context, access, mask, 1 << power) * count
    race_row_mark(context, place, count)
    race_batch_new(context, access, mask, 1 << power)
    return count


def race_bits_at(context: Context, place: int) -> int:
    """The host address of the 64 bits that include the bit of a word. Addresses are permuted, as words 4 KiB apart would otherwise
    share few sets of the host's cache."""
    where = place >> 6 << 3
    return context.RACE_BITS + (where ^ (where >> Batches.BLOCK & Batches.TURNS) << Batches.TURN)


def race_row_is_fresh(context: Context, place: int, count: int) -> int:
    """Whether none of ``count`` adjacent words has been accessed."""
    first = place & 63
    end = first + count
    bits = load64(race_bits_at(context, place)) >> first
    if end < 64:
        return bits & ((1 << count) - 1) == 0
    while bits == 0 and end > 64:
        place += 64
        end -= 64
        bits = load64(race_bits_at(context, place))
        if end < 64:
            bits = bits & ((1 << end) - 1)
    return bits == 0


def race_row_mark(context: Context, place: int, count: int) -> int:
    """Set the bits of adjacent words: they have been accessed."""
    first = place & 63
    at = race_bits_at(context, place)
    end = first + count
    race_spans(context, place, place + count - 1)
    if end < 64:
        store64(at, load64(at) | ((1 << count) - 1) << first)
        return 0
    store64(at, load64(at) | -1 << first)
    while end > 64:
        place += 64
        end -= 64
        at = race_bits_at(context, place)
        bits = -1
        if end < 64:
            bits = (1 << end) - 1
        store64(at, load64(at) | bits)
    return 0


def race_spans(context: Context, first: int, last: int) -> int:
    """Extend the range of accessed words."""
    batches = Batches(context.RACE_BATCHES)
    if first < batches.LOWEST:
        batches.LOWEST = first
    if last > batches.HIGHEST:
        batches.HIGHEST = last
    return 0


def race_batch_new(context: Context, access: LineAccess, mask: int, count: int) -> int:
    """Append a batch with the words at ``Batches.WORDS``, which were not accessed before."""
    claim = access.ACCESSOR << 32 | access.INFO & -32
    batches = Batches(context.RACE_BATCHES)
    number = batches.NEXT
    batches.NEXT = number + 1
    batch_keep(race_batch_places(context, number), batches + Batches.WORDS)
    batch = race_batch_at(context, number)
    batch.STORED = claim * (access.STORES != 0)
    batch.LOADED = claim * (access.STORES == 0)
    batch.MASK = mask
    batch.COUNT = count
    batch.LEFT = 0
    batch.DIFFERING = 0
    batch.ATOMIC = access.STRONG != 0
    slot = race_batch_slot(context, mask)
    batch.BEFORE = batches.LAST[slot]
    batches.LAST[slot] = number
    return 0


def race_batch_again(context: Context, access: LineAccess, mask: int, count: int) -> int:
    """Record an access of the words at ``Batches.WORDS`` if they are exactly those of a batch, and all earlier accesses are by the
    same accessor or happened before; return 0 otherwise."""
    number = race_batch_like(context, mask, count)
    if number == 0:
        return 0
    known = race_batch_at(context, number)
    me = access.ACCESSOR
    storer = known.STORED >> 32
    loader = known.LOADED >> 32
    if storer and storer != me and race_batch_precedes(context, access, storer) == 0:
        return 0
    if loader and loader != me and race_batch_precedes(context, access, loader) == 0:
        return 0
    claim = me << 32 | access.INFO & -32
    atomic = access.STRONG != 0
    if access.STORES == 0:
        if loader == 0 or race_batch_epoch(context, loader) != access.EPOCH:
            known.LOADED = claim
        return 1
    if storer and known.ATOMIC != atomic:
        # a weak store does not replace an atomic one, nor the reverse
        return 0
    known.ATOMIC = atomic
    if storer and access.VALUES and context.RACE_SEGMENTS == 0:
        data = context.RACE_FROM + context.ARENA
        differs = race_batch_differs(context, number)
        places = race_batch_places(context, number)
        unit = context.RACE_UNIT
        batch_compare(mask, places, data, access.VALUES, differs, access.SIZE, unit, known.DIFFERING)
        known.DIFFERING = 1
    known.STORED = claim
    return 1


def race_batch_precedes(context: Context, access: LineAccess, number: int) -> int:
    """Whether the accesses of an accessor, or of a segment, to a batch happened before the current access."""
    if context.RACE_SEGMENTS:
        return race_precedes(context, access, number)
    return race_comes_before(context, access, number)


def race_batch_epoch(context: Context, number: int) -> int:
    """The epoch of an accessor, or of a segment; a segment of another CTA gets a value that no epoch of this CTA equals."""
    if context.RACE_SEGMENTS:
        segment = race_segment_at(context, number)
        return segment.EPOCH | (segment.CTA != context.CTA.INDEX) << 32
    return race_accessor_at(context, number).EPOCH


def race_batch_like(context: Context, mask: int, count: int) -> int:
    """The number of the batch with the words at ``Batches.WORDS``; 0 if there is none, or if words have left it."""
    batches = Batches(context.RACE_BATCHES)
    number = batches.LAST[race_batch_slot(context, mask)]
    end = batches.NEXT
    tries = Batch.NEAR
    while tries and number and number < end:
        known = race_batch_at(context, number)
        alike = known.MASK == mask and known.COUNT == count and known.LEFT == 0
        if alike and batch_same(mask, batches + Batches.WORDS, race_batch_places(context, number)):
            return number
        end = number
        number = known.BEFORE
        tries -= 1
    return 0


# -- words that leave their batch --------------------------------------------------------------------------------------------


def race_apart(context: Context, start: int, length: int) -> int:
    """Adjacent words leave their batches; words that were not accessed before are marked as accessed outside of batches."""
    if context.RACE_BITS == 0 or not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return 0
    place = (start - context.RACE_FROM) >> context.RACE_UNIT
    end = place + (length >> context.RACE_UNIT)
    left = Batches(context.RACE_BATCHES).LEFT
    race_spans(context, place, end - 1)
    while place < end:
        at = race_bits_at(context, place)
        known = load64(at)
        bit = 1 << (place & 63)
        number = context.RACE_NUMBERS + place * 4
        if known & bit == 0:
            store64(at, known | bit)
            store32(number, left)
        elif load32(number) != left:
            race_number_words(context)
            batch = load32(number)
            store32(number, left)
            race_word_of(context, batch, place)
        place += 1
    return 0


def race_number_words(context: Context) -> int:
    """Set ``RACE_NUMBERS`` of the words of all new batches to the number of their batch."""
    batches = Batches(context.RACE_BATCHES)
    while batches.NUMBERED < batches.NEXT:
        batches.NUMBERED += 1
        race_batch_words(context, batches.NUMBERED - 1, 0)
    return 0


def race_batch_words(context: Context, number: int, apart: int) -> int:
    """Set ``RACE_NUMBERS`` of each word of a batch to the number of the batch; with ``apart``, the words that are still in it leave
    it instead."""
    batch = race_batch_at(context, number)
    places = race_batch_places(context, number)
    left = batch.MASK
    while left:
        place = load32(places + trailing_zeros(left) * 4)
        left = left & (left - 1)
        end = place + batch.COUNT
        while place < end:
            if apart == 0:
                store32(context.RACE_NUMBERS + place * 4, number)
            elif load32(context.RACE_NUMBERS + place * 4) == number:
                race_word_of(context, number, place)
            place += 1
    return 0


def race_word_of(context: Context, number: int, place: int) -> int:
    """A word leaves its batch: its accesses go to its ``Word``, or to its line. If several lanes access the word, the last one is
    recorded as storing it and the first one as loading it."""
    batch = race_batch_at(context, number)
    count = batch.COUNT
    inside = place & (count - 1)
    lanes = batch_holding(batch.MASK, race_batch_places(context, number), place - inside)
    last = 63 - leading_zeros(lanes)
    if context.RACE_SEGMENTS:
        return race_line_of(context, number, last, trailing_zeros(lanes))
    differs = 0
    if batch.DIFFERING:
        differs = load16(race_batch_differs(context, number) + 2 * last) >> (inside << context.RACE_UNIT)
        differs = differs & race_word_bytes(context)
    if batch.ATOMIC:
        differs = race_word_bytes(context)
    stored = batch.STORED
    loaded = batch.LOADED
    if loaded:
        loaded = loaded | trailing_zeros(lanes)
    elif differs:
        loaded = stored & -4294967296 | Word.NOTHING
    if stored:
        stored = stored | last | Word.ATOMIC * (batch.ATOMIC != 0)
    batch.LEFT = 1
    word = Word(context.RACE_WORDS + place * Word.BYTES)
    word.STORED = stored
    word.LOADED = loaded | differs << Word.DIFFERS
    return 0


def race_line_of(context: Context, number: int, lane: int, first: int) -> int:
    """Words of a batch that are adjacent within a line, including those of a lane, leave the batch for the line; ``first``: the first
    lane with the same words."""
    batch = race_batch_at(context, number)
    places = race_batch_places(context, number)
    count = batch.COUNT
    unit = context.RACE_UNIT
    place = load32(places + 4 * lane)
    low = lane
    high = lane
    if lane == first:
        while race_goes_on(context, number, low - 1, load32(places + 4 * low) - count, place):
            low -= 1
        while race_goes_on(context, number, high + 1, load32(places + 4 * high) + count, place):
            high += 1
        first = low
    place = load32(places + 4 * low)
    end = place + (high - low + 1) * count
    access = LineAccess(context.SCRATCH + LineAccess.PLACE)
    start = context.RACE_FROM + (place << unit)
    offset = start & (Line.BYTES - 1)
    length = (end - place) << unit
    access.START = start
    access.MASK = -1
    if length < Line.BYTES:
        access.MASK = ((1 << length) - 1) << offset
    access.SHAPE = (
        offset | trailing_zeros(count << unit) << LineEntry.POWER | (length - 1) << LineEntry.LENGTH
    )
    while place < end:
        store32(context.RACE_NUMBERS + place * 4, Batches(context.RACE_BATCHES).LEFT)
        place += 1
    batch.LEFT = 1
    if batch.STORED:
        strong = 0
        if batch.ATOMIC:
            strong = race_strength(Race.IS_STRONG)
        race_line_noted(context, access, batch.STORED | low, 4, strong)
    if batch.LOADED:
        race_line_noted(context, access, batch.LOADED | first, 0, 0)
    return 0


def race_goes_on(context: Context, number: int, lane: int, place: int, near: int) -> int:
    """Whether a lane of a batch accesses the word with the number ``place``, and this word is still in the batch and in the same line
    as the word ``near``."""
    if lane < 0 or lane > 31 or race_batch_at(context, number).MASK >> lane & 1 == 0:
        return 0
    if load32(race_batch_places(context, number) + 4 * lane) != place:
        return 0
    words = Line.BITS - context.RACE_UNIT
    return place >> words == near >> words and load32(context.RACE_NUMBERS + place * 4) == number


def race_line_noted(context: Context, access: LineAccess, content: int, stores: int, strength: int) -> int:
    """Record a store or a load of a batch in the line at ``START``."""
    number = content >> 32
    segment = race_segment_at(context, number)
    epoch = access.EPOCH
    info = access.INFO
    strong = access.STRONG
    before = access.STORES
    image = access.IMAGE
    access.EPOCH = segment.EPOCH
    access.INFO = content & Word.BEHIND
    access.STRONG = strength
    access.STORES = stores
    access.IMAGE = 0
    line = (access.START - context.RACE_FROM) >> Line.BITS
    cell = Line(context.RACE_LINES + line * Line.CELL)
    room = LineRoom(context.RACE_ROOMS + line * LineRoom.BYTES)
    if cell.LAUNCH != context.RACE_FIRST:
        race_fresh(cell, context.RACE_FIRST)
    who = (segment.CTA << 7 | segment.EPOCH & 127) + 1
    # earlier accesses were already checked against this one
    race_entry(context, access, cell, room, who, number, 0)
    access.EPOCH = epoch
    access.INFO = info
    access.STRONG = strong
    access.STORES = before
    access.IMAGE = image
    return 0


def race_all_apart(context: Context, first: int, last: int) -> int:
    """All words of all batches leave them: several threads will run CTAs."""
    race_number_words(context)
    while first < last:
        race_batch_words(context, first, 1)
        first += 1
    return 0
