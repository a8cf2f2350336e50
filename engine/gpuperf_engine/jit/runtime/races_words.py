"""Runtime of generated code: words of global memory, where CTAs cannot wait for one another and form no clusters.

While one CTA has a word, its last store and its last load are all that is kept of it (``Word``), and what other warps of the CTA do is
held against these. A word that several CTAs access has a cell, see ``races_global``. Most words are accessed by one warp alone: of the
lanes of an instruction those are dealt with at once.
"""

from __future__ import annotations

from ..ir.abi import Context
from ..ir.race_records import Accessor, Accessors, Line, LineAccess, LineEntry, LineRoom, Race, Window, Word
from .compile_python import (
    acquire64,
    add64,
    claimed,
    claimed_beside,
    compare_swap64,
    copy,
    last_of,
    load16,
    load32,
    load64,
    release64,
    store32,
    trailing_zeros,
    unsigned_less,
)
from .races_clocks import race_happened_before
from .races_lines import race_entry_at, race_filled, race_fresh, race_host, race_strength, race_valued
from .races_warps import race_replayed, race_within


def race_accessor(context: Context, cta: int, epoch: int) -> int:
    """The number of who accesses memory now; 0: there is none left."""
    number = context.RACE_ACCESSOR
    row = race_accessor_at(context, number)
    if number and row.CTA == cta and row.EPOCH == epoch:
        return number
    number += 1
    if number >= context.RACE_ACCESSORS_END:
        number = add64(context.RACE_ACCESSORS + Accessors.NEXT, Accessors.SOME)
        if number + Accessors.SOME > Word.NUMBERS:
            context.RACE_ACCESSOR = 0
            context.RACE_ACCESSORS_END = 0
            return 0
        context.RACE_ACCESSORS_END = number + Accessors.SOME
    context.RACE_ACCESSOR = number
    row = race_accessor_at(context, number)
    row.CTA = cta
    row.EPOCH = epoch
    return number


def race_accessor_at(context: Context, number: int) -> Accessor:
    """The row of an accessor."""
    return Accessor(context.RACE_ACCESSORS + Accessors.ROWS + number * Accessor.BYTES)


def race_accessor_of(content: int) -> int:
    """The number of the accessor of a store or load of a word."""
    return content >> 32 & Word.NUMBERS


def race_word_at(context: Context, address: int) -> Word:
    """The record of the word at an address."""
    return Word(context.RACE_WORDS + ((address - context.RACE_FROM) >> 2) * Word.BYTES)


def race_word_cell(context: Context, stored: int) -> Line:
    """The cell of a shared word."""
    return Line(context.RACE_CELLS + (stored & 4294967295) * Line.CELL)


def race_word_room(context: Context, stored: int) -> LineRoom:
    """And its room."""
    return LineRoom(
        context.RACE_CELLS + Word.MOST_SHARED * Line.CELL + (stored & 4294967295) * LineRoom.BYTES
    )


def race_lock(context: Context, word: Word) -> int:
    """Lock a word, and those beside it that lie in 16 bytes, if several threads run CTAs; gives the word that is the lock."""
    lock = Word(word & (0 - Word.LOCKS))
    while context.RACE_LOCKED:
        stored = acquire64(lock + Word.STORED)
        if stored < 0:
            continue
        if compare_swap64(lock + Word.STORED, stored, stored | Word.LOCKED) == stored:
            break
    return lock


def race_unlock(context: Context, lock: Word) -> int:
    """Unlock words."""
    if context.RACE_LOCKED:
        release64(lock + Word.STORED, lock.STORED & Word.UNLOCKED)
    return 0


# -- one word ----------------------------------------------------------------------------------------------------------------


def race_word_alone(context: Context, access: LineAccess, word: Word, stored: int, loaded: int) -> int:
    """Note an access of a word that one CTA has, or none, after holding it against those of other warps; gives the new ``STORED``."""
    storer = race_accessor_of(stored)
    loader = race_accessor_of(loaded)
    me = access.ACCESSOR
    beside = (stored == 0 or storer == me) and (loaded == 0 or loader == me)
    if (beside == 0 or stored & Word.WINDOWED) and access.FLAGS & Race.WITHIN and race_word_window(access):
        apart = race_accessor_before(context, access, storer) and race_accessor_before(
            context, access, loader
        )
        if apart == 0 or stored & Word.WINDOWED:
            if stored & Word.WINDOWED == 0:
                race_word_replayed(context, access, stored, loaded)
                if stored == 0:
                    stored = me << 32 | Word.NONE
                stored = stored | Word.WINDOWED
            if race_within(context, access) and access.STORES == 0:
                return stored
    if access.STORES:
        return race_word_stores(context, access, word, stored, loaded)
    if loaded < 0 or loader != me:
        same = 0
        if loaded and (loaded < 0) == 0:
            same = race_accessor_at(context, loader).EPOCH == access.EPOCH
        if same == 0:
            word.LOADED = me << 32 | access.INFO | loaded & 15 << Word.DIFFERS
    return stored


def race_word_window(access: LineAccess) -> Window:
    """The window of the CTA; 0: it has none."""
    if access.RECORD:
        return Race(access.RECORD).WINDOW
    return Window(0)


def race_accessor_before(context: Context, access: LineAccess, number: int) -> int:
    """Whether what an accessor of the same CTA did comes before what the warp does now."""
    if number == 0 or number == access.ACCESSOR or number < Race(access.RECORD).OLDEST:
        return 1
    return race_happened_before(context.RACE_WARP, race_accessor_at(context, number).EPOCH)


def race_word_stores(context: Context, access: LineAccess, word: Word, stored: int, loaded: int) -> int:
    """Note a store to a word that one CTA has; gives the new ``STORED``."""
    differs = 0
    if access.FLAGS & Race.IS_STRONG:
        differs = 15
    elif access.IMAGE:
        host = race_host(context, access.START)
        if stored and stored & Word.NONE == 0:
            place = access.START & (Line.BYTES - 4)
            differs = race_bytes_differ(load32(host + place) ^ load32(access.IMAGE + place))
        if context.RACE_LOCKED:
            race_valued(access, host)
    if differs:
        if loaded == 0:
            loaded = access.ACCESSOR << 32 | Word.NOTHING
        word.LOADED = loaded | differs << Word.DIFFERS
    return access.ACCESSOR << 32 | stored & Word.WINDOWED | access.INFO


def race_bytes_differ(bits: int) -> int:
    """The bytes of a word, a bit each, some of whose bits are set."""
    return (
        (bits & 255 != 0)
        + (bits >> 8 & 255 != 0) * 2
        + (bits >> 16 & 255 != 0) * 4
        + (bits >> 24 & 255 != 0) * 8
    )


# -- a word of several CTAs --------------------------------------------------------------------------------------------------


def race_word_weaker(context: Context, access: LineAccess, content: int) -> int:
    """Whether the last store or load of a word would not be forgotten for an access of the same kind, as that is atomic, say."""
    if access.STRONG == 0 or content == 0 or content < 0 or content & Word.NONE:
        return 0
    site = (content & Word.BEHIND) >> 14
    return access.STRONG & ~race_strength(load16(context.RACE_SITES + 2 * site))


def race_word_shared(context: Context, access: LineAccess, stored: int, loaded: int) -> int:
    """A word that one CTA has had gets a cell: another CTA accesses it, or the same one in another way. Gives the new ``STORED``; 0:
    there is no cell left."""
    number = add64(context.RACE_ACCESSORS + Accessors.CELLS, 1)
    if number >= Word.MOST_SHARED:
        return 0
    shared = context.RACE_ACCESSORS_FROM << 32 | Word.SHARED | number
    cell = race_word_cell(context, shared)
    room = race_word_room(context, shared)
    start = access.START
    offset = start & (Line.BYTES - 4)
    race_fresh(cell, context.RACE_FIRST)
    race_filled(cell, room)
    cell.OWNER = (start - context.RACE_FROM) >> Line.BITS
    cell.DIFFERS = (loaded >> Word.DIFFERS & 15) << offset
    one = race_entry_at(cell, room, 0)
    other = race_entry_at(cell, room, 1)
    race_word_pair(context, one, other, stored, loaded, offset)
    room.STORED = one.MASK * (one.WHO != 0)
    cta = one.WHO | other.WHO
    if stored & Word.WINDOWED == 0 and cta:
        room.KEPT_OF = cta
        copy(room + LineRoom.KEPT, one, 2 * LineEntry.BYTES)
        copy(room + LineRoom.VALUES + offset, race_host(context, start) + offset, 4)
    one.STRONG = one.STRONG & 2
    other.STRONG = other.STRONG & 2
    return shared


def race_word_pair(
    context: Context, one: LineEntry, other: LineEntry, stored: int, loaded: int, offset: int
) -> int:
    """Put what is noted of the stores and of the loads of a word, ``offset`` bytes from the start of its line, in entries."""
    one.WHO = 0
    other.WHO = 0
    if stored and stored & Word.NONE == 0:
        race_word_entry(context, one, stored, offset)
    if loaded and (loaded < 0) == 0:
        race_word_entry(context, other, loaded, offset)
    return 0


def race_word_entry(context: Context, entry: LineEntry, content: int, offset: int) -> int:
    """As ``race_word_pair``, of one."""
    accessor = race_accessor_at(context, race_accessor_of(content))
    info = content & Word.BEHIND
    entry.WHO = accessor.CTA
    entry.BY = info
    entry.MASK = 15 << offset
    entry.AT = offset | 2 << LineEntry.POWER | 3 << LineEntry.LENGTH
    entry.STRONG = race_strength(load16(context.RACE_SITES + 2 * (info >> 14)))
    entry.EPOCH = accessor.EPOCH
    return 0


def race_word_replayed(context: Context, access: LineAccess, stored: int, loaded: int) -> int:
    """Tell the window of the CTA what other warps did to a word that it has had alone."""
    pair = LineEntry(context.SCRATCH + LineAccess.PLACE + LineAccess.PAIR)
    offset = access.START & (Line.BYTES - 4)
    race_word_pair(context, pair, LineEntry(pair + LineEntry.BYTES), stored, loaded, offset)
    return race_replayed(context, access, pair, race_host(context, access.START))


# -- many words --------------------------------------------------------------------------------------------------------------


def race_scattered(context: Context, access: LineAccess, mask: int, addresses: int) -> int:
    """Note accesses by lanes at any addresses, of whole words, as far as no other warp has accessed these. Gives the lanes that are
    left."""
    size = access.SIZE
    count = size >> 2
    me = access.ACCESSOR
    if me == 0 or count == 0 or access.FLAGS & (Race.IS_STRONG | Race.WORDS) != Race.WORDS:
        return mask
    claim = me << 32 | access.INFO
    locked = context.RACE_LOCKED
    result = claimed(
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
    )
    left = result & 4294967295
    again = result >> 32
    if locked and count == 1:
        left = left | race_scattered_locked(context, access, mask & ~left, addresses, claim)
    elif locked:
        left = mask
    if left and access.STORES:
        left = last_of(addresses, left)
    rest = 0
    while left:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        start = load64(addresses + lane * 8)
        value = access.VALUES + lane * size
        done = race_noted(context, access, claim | lane, start, count, start, value, again >> lane & 1)
        rest = rest | (done ^ 1) << lane
    return rest


def race_scattered_locked(context: Context, access: LineAccess, mask: int, addresses: int, claim: int) -> int:
    """Note accesses of single words by lanes, which nobody had accessed a moment ago. Gives the lanes that are left."""
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
    """Note accesses by lanes side by side, however many lines they lie in; gives the bytes up to those that others have accessed."""
    if access.ACCESSOR == 0 or context.RACE_LOCKED or access.FLAGS & Race.IS_STRONG:
        return 0
    if not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return 0
    at = race_word_at(context, start)
    claim = access.ACCESSOR << 32 | access.INFO | lane
    power = trailing_zeros(access.SIZE >> 2)
    return claimed_beside(at, length >> 2, claim, context.RACE_ACCESSORS_FROM, power, access.STORES) << 2


def race_in_line(
    context: Context, access: LineAccess, lane: int, start: int, done: int, part: int, image: int
) -> int:
    """Note accesses by lanes side by side from ``lane`` on, of ``part`` bytes of whole words, after the first ``done`` ones; gives the
    bytes up to those that others have accessed. ``image``: where their values would begin if those of the line did there."""
    if access.FLAGS & Race.IS_STRONG:
        return done
    claim = access.ACCESSOR << 32 | (access.INFO & -32) | lane
    power = trailing_zeros(access.SIZE)
    while done < part:
        place = start + done
        if context.RACE_LOCKED == 0:
            at = race_word_at(context, place)
            some = claim + (done >> power)
            first = context.RACE_ACCESSORS_FROM
            done += claimed_beside(at, (part - done) >> 2, some, first, power - 2, access.STORES) << 2
            if done == part:
                break
            place = start + done
        size = 16 - (place & 15)
        if size > part - done:
            size = part - done
        value = image + (place & (Line.BYTES - 1))
        if race_noted(context, access, claim, place, size >> 2, start, value, 1) == 0:
            break
        done += size
    return done


def race_noted(
    context: Context, access: LineAccess, claim: int, place: int, count: int, start: int, value: int, again: int
) -> int:  # fmt: skip
    """Note an access of a few words that are locked together, if nobody but the same accessor has accessed them, or else give 0.
    ``claim``: what is noted of it; ``start``: the address of its lane; ``value``: where lie the values that are stored; ``again``:
    whether what is stored there may be the accessor's."""
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
    while word < end:
        storer = word.STORED >> 32 & Word.FLAGGED
        loaded = word.LOADED
        loader = loaded >> 32 & Word.NUMBERS
        free = free & ((storer == me) | (storer & Word.NUMBERS < first)) & ((loader < first) | (loader == me))
        word = Word(word + Word.BYTES)
    word = Word(end - count * Word.BYTES)
    host = place + context.ARENA
    known = access.VALUES != 0
    while free and word < end:
        content = claim + ((place - start) >> power)
        loaded = word.LOADED
        loader = loaded >> 32 & Word.NUMBERS
        if stores == 0:
            if loader < first:
                word.LOADED = content
            elif loaded < 0:
                word.LOADED = content | loaded & 15 << Word.DIFFERS
        else:
            if known and again and word.STORED >> 32 & Word.NUMBERS == me:
                differs = race_bytes_differ(load32(host) ^ load32(value)) << Word.DIFFERS
                if differs:
                    if loader < first:
                        loaded = me << 32 | Word.NOTHING
                    word.LOADED = loaded | differs
            word.STORED = content | word.STORED & Word.LOCKED
            if known and context.RACE_LOCKED:
                store32(host, load32(value))
        place += 4
        host += 4
        value += 4
        word = Word(word + Word.BYTES)
    race_unlock(context, lock)
    return free
