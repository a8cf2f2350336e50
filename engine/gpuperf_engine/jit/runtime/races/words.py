"""Runtime of generated code: words of global memory, where CTAs cannot wait for one another and form no clusters.

While only one CTA has accessed a word, only its last store and its last load are recorded (``Word``), and accesses of other warps of
the CTA are checked against these. A word that several CTAs access has a cell; see ``races.global_memory``. Most words are accessed by
only one warp, and those of all lanes of an instruction are processed at once.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Accessor, Accessors, Line, LineAccess, LineEntry, LineRoom, Race, Window, Word
from ..intrinsics import (
    acquire64,
    add64,
    compare_swap64,
    copy,
    load16,
    load32,
    release64,
)
from .clocks import race_happened_before
from .lines import race_entry_at, race_filled, race_fresh, race_host, race_strength, race_valued
from .warps import race_replayed, race_within


def race_accessor(context: Context, cta: int, epoch: int) -> int:
    """The number of the current accessor; 0: all numbers are in use."""
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
    """The number of the accessor in a ``STORED`` or ``LOADED`` field."""
    return content >> 32 & Word.NUMBERS


def race_word_at(context: Context, address: int) -> Word:
    """The record of the word at an address."""
    return Word(context.RACE_WORDS + ((address - context.RACE_FROM) >> context.RACE_UNIT) * Word.BYTES)


def race_word_bytes(context: Context) -> int:
    """A mask of the bytes of a word."""
    return (1 << (1 << context.RACE_UNIT)) - 1


def race_word_cell(context: Context, stored: int) -> Line:
    """The cell of a word that several CTAs access."""
    return Line(context.RACE_CELLS + (stored & 4294967295) * Line.CELL)


def race_word_room(context: Context, stored: int) -> LineRoom:
    """The room of a word that several CTAs access."""
    return LineRoom(
        context.RACE_CELLS + Word.MOST_SHARED * Line.CELL + (stored & 4294967295) * LineRoom.BYTES
    )


def race_lock(context: Context, word: Word) -> int:
    """Lock a word with those that share its lock, if several threads run CTAs; returns the word that has the lock."""
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
    """Record an access of a word that at most one CTA has accessed, after checking it against those of other warps; returns the new
    ``STORED``."""
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
    """Whether the accesses of an accessor of the same CTA happened before the current access."""
    if number == 0 or number == access.ACCESSOR or number < Race(access.RECORD).OLDEST:
        return 1
    return race_happened_before(context.RACE_WARP, race_accessor_at(context, number).EPOCH)


def race_word_stores(context: Context, access: LineAccess, word: Word, stored: int, loaded: int) -> int:
    """Record a store to a word that only one CTA has accessed; returns the new ``STORED``."""
    differs = 0
    if access.FLAGS & Race.IS_STRONG:
        differs = race_word_bytes(context)
    elif access.IMAGE:
        host = race_host(context, access.START)
        if stored and stored & Word.NONE == 0:
            place = access.START & (Line.BYTES - 1)
            differs = race_bytes_differ(load32(host + place) ^ load32(access.IMAGE + place))
            differs = differs & race_word_bytes(context)
        if context.RACE_LOCKED:
            race_valued(access, host)
    if differs:
        if loaded == 0:
            loaded = access.ACCESSOR << 32 | Word.NOTHING
        word.LOADED = loaded | differs << Word.DIFFERS
    stored = stored & Word.WINDOWED
    if access.STRONG & 2:
        stored = stored | Word.ATOMIC
    return access.ACCESSOR << 32 | stored | access.INFO


def race_bytes_differ(bits: int) -> int:
    """A mask of the bytes of a word that are not zero."""
    return (
        (bits & 255 != 0)
        + (bits >> 8 & 255 != 0) * 2
        + (bits >> 16 & 255 != 0) * 4
        + (bits >> 24 & 255 != 0) * 8
    )


def race_comes_before(context: Context, access: LineAccess, storer: int) -> int:
    """Whether only this CTA has accessed a word, and the access of an accessor to it (the upper half of ``STORED``, or the number of
    the accessor that loaded it) happened before the current access."""
    if storer == access.BEFORE:
        return 1
    if storer != storer & Word.NUMBERS or race_accessor_at(context, storer).CTA != access.NUMBER:
        return 0
    within = access.FLAGS & Race.WITHIN
    if within and race_word_window(access) and race_accessor_before(context, access, storer) == 0:
        return 0
    access.BEFORE = storer
    return 1


# -- a word of several CTAs --------------------------------------------------------------------------------------------------


def race_word_weaker(context: Context, access: LineAccess, content: int) -> int:
    """Whether the last store or load of a word must be kept beside an access of the same kind, because it is
    atomic and the access is not, or because it is weaker."""
    if access.STRONG & 2 == 0 and access.STORES and content & Word.ATOMIC:
        return 1
    if access.STRONG == 0 or content == 0 or content < 0 or content & Word.NONE:
        return 0
    site = (content & Word.BEHIND) >> 14
    return access.STRONG & ~race_strength(load16(context.RACE_SITES + 2 * site))


def race_word_shared(context: Context, access: LineAccess, stored: int, loaded: int) -> int:
    """Move a word that only one CTA had accessed to a cell, for an access by another CTA or of another strength. Returns the new
    ``STORED``; 0: all cells are in use."""
    number = add64(context.RACE_ACCESSORS + Accessors.CELLS, 1)
    if number >= Word.MOST_SHARED:
        return 0
    shared = context.RACE_ACCESSORS_FROM << 32 | Word.SHARED | number
    cell = race_word_cell(context, shared)
    room = race_word_room(context, shared)
    start = access.START
    offset = start & (Line.BYTES - 1)
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
        copy(room + LineRoom.VALUES + offset, race_host(context, start) + offset, 1 << context.RACE_UNIT)
    one.STRONG = one.STRONG & 2
    other.STRONG = other.STRONG & 2
    return shared


def race_word_pair(
    context: Context, one: LineEntry, other: LineEntry, stored: int, loaded: int, offset: int
) -> int:
    """Copy the last store and the last load of a word, ``offset`` bytes from the start of its line, to two entries."""
    one.WHO = 0
    other.WHO = 0
    if stored and stored & Word.NONE == 0:
        race_word_entry(context, one, stored, offset)
    if loaded and (loaded < 0) == 0:
        race_word_entry(context, other, loaded, offset)
    return 0


def race_word_entry(context: Context, entry: LineEntry, content: int, offset: int) -> int:
    """As ``race_word_pair``, for one of them."""
    accessor = race_accessor_at(context, race_accessor_of(content))
    info = content & Word.BEHIND
    entry.WHO = accessor.CTA
    entry.BY = info
    unit = context.RACE_UNIT
    entry.MASK = race_word_bytes(context) << offset
    entry.AT = offset | unit << LineEntry.POWER | ((1 << unit) - 1) << LineEntry.LENGTH
    entry.STRONG = race_strength(load16(context.RACE_SITES + 2 * (info >> 14)))
    entry.EPOCH = accessor.EPOCH
    return 0


def race_word_replayed(context: Context, access: LineAccess, stored: int, loaded: int) -> int:
    """Copy the recorded accesses of a word that only one CTA had accessed to the window of the CTA."""
    pair = LineEntry(context.SCRATCH + LineAccess.PLACE + LineAccess.PAIR)
    offset = access.START & (Line.BYTES - 1)
    race_word_pair(context, pair, LineEntry(pair + LineEntry.BYTES), stored, loaded, offset)
    return race_replayed(context, access, pair, race_host(context, access.START))
