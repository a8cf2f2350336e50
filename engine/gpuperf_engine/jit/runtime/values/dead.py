"""Runtime of generated code: dead stores, where a warp needs more than vectors (see ``values.stores`` and ``simt.dead_stores``).

Written in the subset of ``compile_python`` and compiled, never run as Python. An *entry* describes the last store to a word: epoch,
thread and slot + 1 of a weak store, and how it covers the word (``memory.store_shadow``); 0 if there was no store since the last read.
"""

from __future__ import annotations

from ...ir.abi import Context
from ...ir.access_records import ValueRow, Values
from ..intrinsics import load64, store64, unsigned_less


def values_dead(context: Context, start: int, slot: int, bytes: int, overwriter: int, index: int) -> int:
    """So many bytes of the object there, which the slot − 1 stored, were overwritten unread: whole words, or bytes that have the
    number ``index`` in theirs (else −1). Each part of words has a slot."""
    record = values_stored(context, start, slot)
    if record and load64(record + Values.PARTS):
        parts = load64(record + Values.PARTS)
        if index < 0:
            bytes = bytes >> parts
            part = (1 << parts) - 1
            while part:
                values_lost(values_stored(context, start, slot + part), bytes, overwriter)
                part -= 1
        elif index >> (2 - parts):
            record = values_stored(context, start, slot + (index >> (2 - parts)))
    return values_lost(record, bytes, overwriter)


def values_stored(context: Context, start: int, slot: int) -> int:
    """Return the record of slot − 1 of the object there, or 0."""
    record = load64(context.VALUE_ROWS + (slot - 1) * ValueRow.BYTES + ValueRow.FIRST)
    while record and (load64(record + Values.SPACE) or load64(record + Values.START) != start):
        record = load64(record + Values.NEXT)
    return record


def values_lost(record: int, bytes: int, overwriter: int) -> int:
    """Count dead bytes of a record."""
    if record == 0:
        return 0
    store64(record + Values.DEAD, load64(record + Values.DEAD) + bytes)
    lead = load64(record + Values.LEAD)
    if load64(record + Values.OVERWRITER) == overwriter + 1:
        lead += bytes
    elif lead >= bytes:
        lead -= bytes
    else:
        store64(record + Values.OVERWRITER, overwriter + 1)
        lead = bytes - lead
    store64(record + Values.LEAD, lead)
    return 0


def values_traced(context: Context, slot: int, address: int, size: int, who: int, entry: int) -> int:
    """An element of a lane: its words and bytes get an entry, or, if that is −1, what they hold of a thread is dead (``who``: as an
    entry without slot). The lanes of a warp store at once: all of them come to the one before any comes to the other."""
    row = context.VALUE_ROWS + slot * ValueRow.BYTES
    start = load64(row + ValueRow.START)
    done = 0
    while done < size:
        byte = address + done
        part = size - done
        if part > 4:
            part = 4
        word = byte & -4
        held = load64(context.STORE_WORDS + 2 * word)
        if unsigned_less(held, context.STORE_EPOCH):
            held = 0
        spread = held & Values.SPREADS
        if part == 4 and spread == 0:
            values_entry(context, slot, start, context.STORE_WORDS + 2 * word, -1, who, entry)
        else:
            if spread != Values.MIXED and (held or entry):
                held = values_split(context, word, held)
            places = context.STORE_BYTES + 8 * word
            index = byte & 3
            end = index + part
            while held and index < end:
                values_entry(context, slot, start, places + 8 * index, index, who, entry)
                index += 1
        done += part
    return 0


def values_split(context: Context, word: int, held: int) -> int:
    """Split the entry of a word into entries of its bytes."""
    first = held & ~Values.SPREADS
    second = first
    third = first
    fourth = first
    step = 1 << Values.THREAD
    if held & Values.SPREADS == Values.BYTES:
        second += step
        third += 2 * step
        fourth += 3 * step
    elif held & Values.SPREADS == Values.HALVES:
        third += step
        fourth += step
    places = context.STORE_BYTES + 8 * word
    store64(places, first)
    store64(places + 8, second)
    store64(places + 16, third)
    store64(places + 24, fourth)
    mixed = context.STORE_EPOCH | Values.MIXED
    store64(context.STORE_WORDS + 2 * word, mixed)
    return mixed


def values_entry(
    context: Context, slot: int, start: int, place: int, index: int, who: int, entry: int
) -> int:
    """A word, or a byte of one; as ``values_traced``."""
    held = load64(place)
    if entry != -1:
        store64(place, entry)
    elif not unsigned_less(held, context.STORE_EPOCH) and held & -65536 == who:
        bytes = 4
        if index >= 0:
            bytes = 1
        values_dead(context, start, held & 65535, bytes, slot, index)
    return 0
