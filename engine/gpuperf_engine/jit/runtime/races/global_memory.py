"""Runtime of generated code: checks accesses to global memory against one another, by lines or by words.

Where no CTA can wait for another one, nothing orders accesses of several CTAs, and CTAs may run concurrently, in any order. The
record of a line or word does not depend on this order: it has the CTAs with the lowest numbers, and the bytes that held several
values. When all CTAs have ended, ``race_settle`` compares the accesses to lines and words that several of them accessed. Accesses of
one CTA are checked against one another while it runs, and so are those of CTAs that may wait for one another (see ``races.warps``).
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.race_records import Line, LineAccess, LineEntry, LineRoom, Race, Window, Word
from ..intrinsics import (
    acquire64,
    compare_swap,
    copy,
    release8,
    release64,
    trailing_zeros,
    unsigned_less,
)
from .batched import race_apart
from .lines import (
    race_differs,
    race_entry_at,
    race_filled,
    race_fresh,
    race_host,
    race_kept,
    race_set,
    race_valued,
)
from .scattered import race_in_line
from .warps import (
    race_cell,
    race_ordered,
    race_place,
    race_replayed,
    race_room,
    race_stale,
    race_tagged,
    race_within,
)
from .words import (
    race_accessor_at,
    race_accessor_of,
    race_lock,
    race_unlock,
    race_word_alone,
    race_word_at,
    race_word_cell,
    race_word_room,
    race_word_shared,
    race_word_weaker,
    race_word_window,
)


def race_line(context: Context, access: LineAccess, lane: int, start: int, part: int, image: int) -> int:
    """Check an access of ``part`` bytes within a line, by lanes from ``lane`` on."""
    if part > Line.BYTES - (start & (Line.BYTES - 1)):
        return 0
    access.IMAGE = image
    if access.FLAGS & Race.WORDS:
        if context.RACE_SEGMENTS == 0:
            return race_words_in_line(context, access, lane, start, part)
        race_apart(context, start, part)
    race_part(access, lane, start, part)
    if context.RACE_SEGMENTS:
        return race_ordered(context, access)
    place = start - context.RACE_FROM
    lines = context.RACE_LINES
    if lines == 0:
        if access.FLAGS & Race.WITHIN:
            race_within(context, access)
        return 0
    if not unsigned_less(place, context.RACE_SPAN):
        return 0
    line = place >> Line.BITS
    cell = Line(lines + line * Line.CELL)
    room = LineRoom(context.RACE_ROOMS + line * LineRoom.BYTES)
    if cell.FULL and race_changes_nothing(context, access, cell, room):
        record = Race(access.RECORD)
        if record and record.WINDOW:
            race_within(context, access)
        return 0
    locked = context.RACE_LOCKED
    if locked:
        while compare_swap(cell + Line.LOCK, 0, 1):
            continue
    race_first(context, access, cell, room)
    if locked:
        release8(cell + Line.LOCK, 0)
    return 0


def race_part(access: LineAccess, lane: int, start: int, part: int) -> int:
    """Set the fields of the access for the bytes of one line; parameters as in ``race_line``."""
    offset = start & (Line.BYTES - 1)
    access.START = start
    access.MASK = -1
    if part < Line.BYTES:
        access.MASK = ((1 << part) - 1) << offset
    access.INFO = (access.INFO & -32) | lane
    access.SHAPE = offset | trailing_zeros(access.SIZE) << LineEntry.POWER | (part - 1) << LineEntry.LENGTH
    return 0


def race_words_in_line(context: Context, access: LineAccess, lane: int, start: int, part: int) -> int:
    """As ``race_line``, word by word."""
    if access.ACCESSOR == 0 or not unsigned_less(start - context.RACE_FROM, context.RACE_SPAN):
        return 0
    power = trailing_zeros(access.SIZE)
    step = 1 << context.RACE_UNIT
    race_apart(context, start, part)
    done = race_in_line(context, access, lane, start, 0, part, access.IMAGE)
    while done < part:
        some = done + Word.TOGETHER * step
        while done < part and done < some:
            race_part(access, lane + (done >> power), start + done, step)
            race_check_word(context, access)
            done += step
        done = race_in_line(context, access, lane, start, done, part, access.IMAGE)
    return 0


def race_check_word(context: Context, access: LineAccess) -> int:
    """Check an access of a word against those of the same CTA, and record it for the comparison after all CTAs have ended."""
    start = access.START
    word = race_word_at(context, start)
    first = context.RACE_ACCESSORS_FROM
    stored = acquire64(word + Word.STORED)
    if stored & Word.SHARED and race_accessor_of(stored) >= first:
        cell = race_word_cell(context, stored)
        if race_changes_nothing(context, access, cell, race_word_room(context, stored)):
            if access.FLAGS & Race.WITHIN and race_word_window(access):
                race_within(context, access)
            return 0
    lock = Word(race_lock(context, word))
    stored = word.STORED
    held = stored & Word.LOCKED
    stored = stored & Word.UNLOCKED
    loaded = word.LOADED
    if race_accessor_of(stored) < first:
        stored = 0
    if race_accessor_of(loaded) < first:
        loaded = 0
    known = race_accessor_of(stored)
    if known == 0:
        known = race_accessor_of(loaded)
    if stored & Word.SHARED == 0:
        last = stored
        if access.STORES == 0:
            last = loaded
        own = known == 0 or race_accessor_at(context, known).CTA == access.NUMBER
        if own and race_word_weaker(context, access, last) == 0:
            word.STORED = held | race_word_alone(context, access, word, stored, loaded)
            return race_unlock(context, lock)
        stored = race_word_shared(context, access, stored, loaded)
        if stored:
            release64(word + Word.STORED, held | stored)
    if stored:
        race_several(context, access, race_word_cell(context, stored), race_word_room(context, stored))
    return race_unlock(context, lock)


def race_changes_nothing(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Whether an access leaves the record of a line unchanged: its entries are all of CTAs with lower numbers, and the store does not
    add a byte with several values. The line is not locked, so that CTAs that all store to one flag do not wait for one another."""
    last = room + LineRoom.LOADERS
    if access.STORES:
        last = room + LineRoom.STORERS
    known = acquire64(last)
    if known >> 32 != context.RACE_FIRST or known & 4294967295 >= access.NUMBER:
        return 0
    if room.KEPT_OF == access.NUMBER:
        return 0
    if access.STORES == 0:
        return 1
    if access.MASK & ~room.STORED:
        return 0
    left = access.MASK & ~cell.DIFFERS
    if left == 0:
        return 1
    if access.FLAGS & Race.IS_STRONG:
        return 0
    return race_differs(access, race_host(context, access.START), left) == 0


def race_several(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """As ``race_check_word``, for a word that several CTAs access."""
    if access.STORES:
        stored = room.STORED
        race_stored(context, access, cell, stored & access.MASK)
        room.STORED = stored | access.MASK
    if access.FLAGS & Race.WITHIN and race_word_window(access):
        if room.KEPT_OF == access.NUMBER:
            room.KEPT_OF = 0
            race_replayed(context, access, LineEntry(room + LineRoom.KEPT), room + LineRoom.VALUES)
        if race_within(context, access) and access.STORES == 0:
            return 0
    return race_among(context, access, cell, room)


def race_first(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Record an access while only one warp has accessed the line; otherwise check it against those of the same CTA, and record it for
    the comparison after all CTAs have ended."""
    launch = context.RACE_FIRST
    number = access.NUMBER
    mask = access.MASK
    start = access.START
    strong = access.STRONG
    window = Window(0)
    epoch = number
    if access.RECORD:
        window = Race(access.RECORD).WINDOW
    if window:
        epoch = access.EPOCH
    if cell.LAUNCH != launch:
        race_fresh(cell, launch)
        cell.OWNER = number
    if cell.FULL == 0:
        entry = race_entry_at(cell, room, access.STORES == 0)
        beside = race_entry_at(cell, room, access.STORES != 0)
        known = entry.WHO
        other = beside.WHO
        fresh = known == 0 and other == 0
        agent = 127
        if window:
            agent = context.RACE_WARP.MASK
        alone = cell.OWNER == number and (known == 0 or (known ^ epoch) & agent == 0)
        # unless another line has replaced this one in the window
        kept = window != 0 and (fresh or race_tag(access, window, start) == race_tagged(access, start))
        if alone and (kept or window == 0) and (other == 0 or (other ^ epoch) & agent == 0):
            if access.FLAGS & Race.IMAGE:
                race_stale(context, access, room, beside)
            same = known == epoch and entry.STRONG == strong
            over = entry.MASK & ~mask == 0 and entry.STRONG == strong
            if known == 0 or same or over:
                if access.STORES:
                    race_stored(context, access, cell, mask & entry.MASK * (known != 0))
                elif same and entry.MASK & mask == mask:
                    return 0
                if window and fresh:
                    window.TAGS[race_place(access, start)] = race_tagged(access, start)
                if same:
                    return race_kept(access, entry)
                return race_set(access, entry, epoch, strong)
        race_split(context, cell, room, kept, start)
    if access.STORES:
        stored = room.STORED
        race_stored(context, access, cell, stored & mask)
        room.STORED = stored | mask
    if window:
        if room.KEPT_OF == number:
            race_moved(context, access, window, room)
        known = race_within(context, access)
        if known and access.STORES == 0:
            return 0
    return race_among(context, access, cell, room)


def race_tag(access: LineAccess, window: Window, start: int) -> int:
    """The tag in a window of the cell that a line maps to."""
    return window.TAGS[race_place(access, start)]


def race_split(context: Context, cell: Line, room: LineRoom, kept: int, start: int) -> int:
    """A second warp accesses a line: convert the entries of its cell from a warp's to a CTA's."""
    race_filled(cell, room)
    owner = cell.OWNER
    stored = race_entry_at(cell, room, 0)
    loaded = race_entry_at(cell, room, 1)
    if kept:
        room.KEPT_OF = owner
        copy(room + LineRoom.KEPT, stored, 2 * LineEntry.BYTES)
        copy(room + LineRoom.VALUES, race_host(context, start), Line.BYTES)
    room.STORED = 0
    if stored.WHO:
        room.STORED = stored.MASK
        stored.WHO = owner
        stored.STRONG = stored.STRONG & 2
    if loaded.WHO:
        loaded.WHO = owner
        loaded.STRONG = loaded.STRONG & 2
    return 0


def race_moved(context: Context, access: LineAccess, window: Window, room: LineRoom) -> int:
    """Move the accesses of a line's only warp to the window of its CTA, unless another line has replaced it there."""
    start = access.START
    room.KEPT_OF = 0
    if race_tag(access, window, start) != race_tagged(access, start) or Race(access.RECORD).AGAIN:
        return 0
    cell = race_cell(access, window, start)
    race_fresh(cell, 0)
    copy(race_room(access, window, start) + LineRoom.VALUES, room + LineRoom.VALUES, Line.BYTES)
    copy(cell + Line.PAIR, room + LineRoom.KEPT, 2 * LineEntry.BYTES)
    who = race_entry_at(cell, room, 0).WHO
    if who == 0:
        who = race_entry_at(cell, room, 1).WHO
    cell.OWNER = (who & context.RACE_WARP.MASK) + 1
    return 0


def race_stored(context: Context, access: LineAccess, cell: Line, stored: int) -> int:
    """Record which bytes a store changes, among those that were stored before."""
    if access.FLAGS & Race.IS_STRONG:
        cell.DIFFERS = cell.DIFFERS | access.MASK
    elif access.IMAGE:
        host = race_host(context, access.START)
        left = stored & ~cell.DIFFERS
        if left:
            left = race_differs(access, host, left)
            cell.DIFFERS = cell.DIFFERS | left
        if context.RACE_LOCKED:
            # other threads run CTAs at the same time: store the values here, so that the next comparison sees them
            race_valued(access, host)
    return 0


def race_among(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """Record an access of a CTA for the comparison after all CTAs have ended."""
    number = access.NUMBER
    mask = access.MASK
    strong = access.STRONG & 2
    mine = number << 1 | (strong != 0)
    known = 0
    own = 0
    free = 0
    highest = 0
    last = 0
    index = 0
    while index < 2 * LineRoom.PAIRS:
        entry = race_entry_at(cell, room, index)
        who = entry.WHO
        key = who << 1 | (entry.STRONG != 0)
        conflicts = (access.STORES or index & 1 == 0) and strong & entry.STRONG == 0
        if who and who != number and conflicts and mask & entry.MASK:
            race_suspect(context, room, access)
        if index & 1 == (access.STORES == 0):
            if who == 0:
                free += 1
                if own == 0:
                    own = entry
            elif key == mine:
                known = entry
            elif key > highest:
                highest = key
                last = entry
        index += 1
    if known:
        entry = LineEntry(known)
        again = access.FLAGS & Race.WORDS == 0 or entry.EPOCH == access.EPOCH
        if access.STORES == 0 and entry.MASK & mask == mask and again:
            # as where only one CTA has the line or word, so the result does not depend on which CTA came first
            return 0
        return race_kept(access, entry)
    # keep the CTAs with the lowest numbers, independently of the order in which they ran
    if own == 0 and highest > mine:
        own = last
    if own:
        race_set(access, LineEntry(own), number, strong)
        if free < 2:
            race_publish(context, access, cell, room)
    return 0


def race_publish(context: Context, access: LineAccess, cell: Line, room: LineRoom) -> int:
    """All entries of stores, or of loads, are in use: publish the highest number among them."""
    highest = 0
    index = 0
    if access.STORES == 0:
        index = 1
    while index < 2 * LineRoom.PAIRS:
        who = race_entry_at(cell, room, index).WHO
        if who > highest:
            highest = who
        index += 2
    last = room + LineRoom.LOADERS
    if access.STORES:
        last = room + LineRoom.STORERS
    return release64(last, context.RACE_FIRST << 32 | highest)


def race_suspect(context: Context, room: LineRoom, access: LineAccess) -> int:
    """Record that CTAs may have accessed the same bytes of a line or word."""
    room.SUSPECT = 1
    if access.FLAGS & Race.WORDS:
        return 0
    line = (access.START - context.RACE_FROM) >> Line.BITS
    if line < context.RACE_LOWEST:
        context.RACE_LOWEST = line
    if line > context.RACE_HIGHEST:
        context.RACE_HIGHEST = line
    return 0
