"""Translates what a warp recorded of mbarriers and copies (``sass.run.asynchronous``) into the stream that ``sm.core`` reads.

Written in the subset of ``compile_python`` and compiled, never run as Python. For mbarriers, the stream has a count, then for each
mbarrier a word (its number, the CTA · 2⁸, lanes · 2¹⁶) and the value. For a copy, it has a word (its kind, the mbarrier · 2⁸, the CTA
that receives it · 2¹⁶, the bits in which the CTA of the mbarrier differs · 2²⁴) and the mask of the CTAs that receive it, or ``END``
twice if no copy was issued. Mbarriers and kinds of copies are numbered in the order of their first use.
"""

from __future__ import annotations

from ...ir.sm_records import END, Copy, Stream
from ..intrinsics import load8, load32, store32


def sm_sites(s: Stream, block: int, at: int, ends: int) -> int:
    """The number of sites of a block whose record is at ``at``; -1 if there is no such block, or the record ends beyond ``ends``."""
    if block >= s.BLOCKS:
        return -1
    sites = load32(s.FIRST_SITE + 4 * block + 4) - load32(s.FIRST_SITE + 4 * block)
    if at + 8 + 128 * sites > ends:
        return -1
    return sites


def sm_mbarrier(s: Stream, word: int) -> int:
    """The number of an mbarrier, by the index of its word in shared memory; 255 if there are too many."""
    number = 0
    while number < s.MBARRIER_COUNT:
        if load32(s.MBARRIERS + 4 * number) == word:
            return number
        number += 1
    if number < 255:
        store32(s.MBARRIERS + 4 * number, word)
        s.MBARRIER_COUNT = number + 1
    return number


def sm_signals(s: Stream, words: int, reserved: int, out: int) -> int:
    """Append a signal or test of mbarriers, and return the end of the stream. Lanes with the same mbarrier and value are combined.
    Those in the first ``reserved`` KiB of shared memory, which belong to the system, are left out."""
    count = 0
    lane = 0
    while lane < 32:
        word = load32(words + 4 * lane)
        if word != END and (word & 4194303) >= reserved * 256:
            value = load32(words + 128 + 4 * lane)
            number = sm_mbarrier(s, word & 4194303) | (word >> 22 & 255) << 8
            at = out + 4
            ends = at + 8 * count
            while at < ends:
                if (load32(at) & 65535) == number and load32(at + 4) == value:
                    break
                at += 8
            if at == ends:
                store32(at, number)
                store32(at + 4, value)
                count += 1
            store32(at, load32(at) + 65536)
        lane += 1
    store32(out, count)
    return out + 4 + 8 * count


def sm_copy_kind(s: Stream, key: int, form: int) -> int:
    """The number of a kind of copies; 255 if there are too many."""
    number = 0
    while number < s.COPY_COUNT:
        copy = Copy(s.COPIES + number * Copy.BYTES)
        if copy.KEY == key and copy.FORM == form:
            return number
        number += 1
    if number < 255:
        copy = Copy(s.COPIES + number * Copy.BYTES)
        copy.KEY = key
        copy.FORM = form
        s.COPY_COUNT = number + 1
    return number


def sm_copy(s: Stream, words: int, site: int, out: int) -> int:
    """Append a copy, and return the end of the stream. The site has the number of its group of copies, and 1 for copies of bytes, for
    which this number is the key."""
    bulk = load8(site + 3)
    named = load32(words + 8)
    low = load32(words + 12)
    high = load32(words + 16)
    if low == END and high == END:
        store32(out, END)
        store32(out + 4, END)
        return out + 8
    form = load8(site + 2) | bulk << 8
    key = low | high << 32
    if bulk:
        form = form | (named & 65535) << 16
        key = load8(site + 1)
    barrier = load32(words + 4)
    number = 255
    rank = 0
    if barrier != END:
        number = sm_mbarrier(s, (barrier & 16777215) >> 2)
        rank = barrier >> 24
    there = load32(words) >> 24
    if load32(words) == END or load8(site + 2) == 4:
        there = rank
    store32(out, sm_copy_kind(s, key, form) | number << 8 | there << 16 | (there ^ rank) << 24)
    store32(out + 4, named >> 16)
    return out + 8


def sm_copied(s: Stream) -> int:
    """Write only the copies that a warp recorded to ``OUT``: the number of the kind, then seven words with the address (two words) or
    the coordinates. Returns the end; 0 as ``sm_stream``."""
    at = s.WORDS
    ends = at + 4 * s.COUNT
    out = s.OUT
    while at < ends:
        block = load32(at)
        sites = sm_sites(s, block, at, ends)
        if sites < 0:
            return 0
        at += 8
        site = load32(s.FIRST_SITE + 4 * block)
        last = site + sites
        while site < last:
            record = s.SITES + 4 * site
            if load8(record) == 5 and load32(at + 12) != END:
                if out + 32 > s.OUT_ENDS:
                    return 0
                sm_copy(s, at, record, out)
                store32(out, load32(out) & 255)
                field = 0
                while field < 7:
                    store32(out + 4 + 4 * field, load32(at + 12 + 4 * field))
                    field += 1
                out += 32
            at += 128
            site += 1
    return out
