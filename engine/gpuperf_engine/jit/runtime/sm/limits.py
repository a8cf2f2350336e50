"""Checks that the stream of a warp names only what exists, so that ``sm.core`` reads and writes no other memory.

Written in the subset of ``compile_python`` and compiled, never run as Python. A stream is read as ``sm.core`` reads it, without its
times.
"""

from __future__ import annotations

from ...ir.sm_records import END, Copy, Kind, Limits, Op, Signal
from ..intrinsics import load32, load64


def sm_mbarrier_fits(most: Limits, number: int, rank: int) -> int:
    """Whether a CTA of the cluster has an mbarrier."""
    return number < most.MBARRIERS and (most.GROUP == 1 or rank < most.GROUP)


def sm_signals_fit(most: Limits, place: int) -> int:
    """The end of the signals to mbarriers at ``place``; 0 if one does not fit."""
    if place + 4 > most.ENDS:
        return 0
    count = load32(place)
    place += 4
    if place + 8 * count > most.ENDS:
        return 0
    while count:
        word = load32(place)
        if sm_mbarrier_fits(most, word & 255, word >> 8 & 255) == 0:
            return 0
        place += 8
        count -= 1
    return place


def sm_copy_fits(most: Limits, place: int) -> int:
    """The end of the copy at ``place``; 0 if it does not fit."""
    if place + 8 > most.ENDS:
        return 0
    word = load32(place)
    if word == END:
        return place + 8
    if word & 255 >= most.KINDS:
        return 0
    way = Copy(most.COPIES + (word & 255) * Copy.BYTES).WAY
    rank = word >> 16 & 255
    if way == 0:
        # of a pair of CTAs, the mbarrier of either may be told
        if word >> 24 and most.GROUP > 1 and most.GROUP & 1:
            return 0
        rank = 0
    if (way == 0 or way == 4) and (word >> 8 & 255) >= most.MBARRIERS:
        return 0
    if way == 4 and rank >= most.GROUP:
        return 0
    return place + 8


def sm_lines_fit(most: Limits, place: int) -> int:
    """The end of the access at ``place``; 0 if one of its lines does not fit."""
    if place + 4 > most.ENDS:
        return 0
    lines = load32(place) >> 8 & 255
    place += 4
    if place + 4 * lines > most.ENDS:
        return 0
    while lines:
        if load32(place) >> 4 >= most.LINES:
            return 0
        place += 4
        lines -= 1
    return place


def sm_words_fit(most: Limits, op: Op, place: int) -> int:
    """The end of the words at ``place`` of an instruction; 0 if they do not fit."""
    kind = op.KIND
    if kind >= Kind.INIT and op.ARGUMENT & Signal.STATE:
        place += 4
    if kind >= Kind.INIT or kind == Kind.TENSOR_COMMIT:
        return sm_signals_fit(most, place)
    if kind == Kind.TRANSFER:
        return sm_copy_fits(most, place)
    if kind == Kind.TENSOR or kind == Kind.ALLOCATE or kind == Kind.IMAGE or kind < Kind.TRANSFER:
        place += 4
    elif kind >= Kind.SHARED and kind != Kind.SHUFFLE:
        if kind == Kind.COPY:
            place += 4
        place = sm_lines_fit(most, place)
    if place > most.ENDS:
        return 0
    return place


def sm_fits(most: Limits) -> int:
    """Whether a stream consists of whole blocks that fit, and the word that ends it."""
    place = most.AT
    ends = most.ENDS
    while place + 4 <= ends:
        number = load32(place)
        place += 4
        if number == END:
            return place == ends
        if number >= most.BLOCKS:
            return 0
        block = most.BLOCK + 16 * number
        op = Op(load64(block))
        last = load64(block + 8)
        while op < last:
            if op.KIND >= Kind.NAMED_BARRIER:
                place = sm_words_fit(most, op, place)
                if place == 0:
                    return 0
            op = Op(op + Op.BYTES)
    return 0
