"""Translates what the warps of a CTA recorded (``sass.run.tracing``) into the streams that ``sm.core`` reads.

Written in the subset of ``compile_python`` and compiled, never run as Python. A stream consists of words of 32 bits: the number of a
block, then for each of its accesses a word (wavefronts, lines · 2⁸, lanes · 2¹⁶, turns in L2 · 2²⁴) and a word for each line (its
number · 16, its sectors); ``END`` after the last block. Lines are numbered in the order in which the CTA first touches them.
"""

from __future__ import annotations

from ...ir.sm_records import END, MOST_OF_ACCESS, SINGLE, Stream
from ..intrinsics import load8, load32, load64, store8, store32, store64
from .copies import sm_copy, sm_signals, sm_sites


def sm_line(s: Stream, group: int, line: int) -> int:
    """The number of a line of a group; 0 if the table is full."""
    key = (line << 8 | group) + 1
    at = (key * 11400714819323198485 >> 20) & s.MASK
    while 1:
        cell = s.TABLE + at * 16
        known = load64(cell)
        if known == key:
            return load64(cell + 8)
        if known == 0:
            number = s.UNIQUE
            if number >= s.MASK - (s.MASK >> 2):
                return 0
            store64(cell, key)
            store64(cell + 8, number)
            store8(s.GROUPS + number, group)
            store64(s.LINES + 8 * number, line)
            s.UNIQUE = number + 1
            return number
        at = (at + 1) & s.MASK
    return 0


def sm_passes(s: Stream, words: int, first: int, last: int, width: int) -> int:
    """The wavefronts of an access by lanes ``first`` to ``last`` - 1 of ``width`` words each: the largest number of distinct words in
    one bank."""
    scratch = s.SCRATCH
    bank = 0
    while bank < 32:
        store64(scratch + 8 * bank, 0)
        bank += 1
    most = 0
    lane = first
    while lane < last:
        word = load32(words + 4 * lane)
        if word != END:
            part = 0
            while part < width:
                bank = (word + part) & 31
                count = load64(scratch + 8 * bank)
                seen = 0
                row = scratch + 256 + 256 * bank
                known = 0
                while seen < count:
                    if load64(row + 8 * seen) == word + part:
                        known = 1
                        break
                    seen += 1
                if known == 0:
                    store64(row + 8 * count, word + part)
                    store64(scratch + 8 * bank, count + 1)
                    if count + 1 > most:
                        most = count + 1
                part += 1
        lane += 1
    return most


def sm_alike(words: int, distance: int) -> int:
    """Whether all pairs of lanes with the distance access the same words."""
    lane = 0
    while lane < 32:
        one = load32(words + 4 * lane)
        other = load32(words + 4 * (lane ^ distance))
        if one != other and one != END and other != END:
            return 0
        lane += 1
    return 1


def sm_wavefronts(s: Stream, words: int, width: int, packed: int) -> int:
    """The wavefronts of an access of ``width`` words per lane: halves of the warp access two words, quarters four. Twice as many
    lanes are served at once if registers are ``packed`` and neighbouring lanes access the same words, with 2 only if no lanes
    conflict then."""
    if width == 1:
        return sm_passes(s, words, 0, 32, 1)
    step = 32 // width
    if packed and (sm_alike(words, 1) or sm_alike(words, 2)):
        together = sm_by_lanes(s, words, width, 2 * step)
        if packed == 1 or together >> 8 < 2:
            return together & 255
    return sm_by_lanes(s, words, width, step) & 255


def sm_by_lanes(s: Stream, words: int, width: int, step: int) -> int:
    """The wavefronts of an access that serves ``step`` lanes at once, those of the slowest of them · 2⁸."""
    total = 0
    most = 0
    first = 0
    while first < 32:
        passes = sm_passes(s, words, first, first + step, width)
        total += passes
        if passes > most:
            most = passes
        first += step
    return total | most << 8


def sm_most(words: int, same: int) -> int:
    """The number of lanes that access the most accessed word, or bank: ``same`` has the bits in which the numbers of two words agree
    then, ``END`` (all) or 31."""
    most = 0
    lane = 0
    while lane < 32:
        word = load32(words + 4 * lane)
        if word != END:
            count = 0
            other = 0
            while other < 32:
                if load32(words + 4 * other) != END and (load32(words + 4 * other) ^ word) & same == 0:
                    count += 1
                other += 1
            if count > most:
                most = count
        lane += 1
    return most


def sm_elsewhere(words: int) -> int:
    """Whether generic addresses are in shared memory, by their upper words."""
    lane = 0
    while lane < 32:
        if load32(words + 4 * lane) != END:
            return load32(words + 128 + 4 * lane) == 256
        lane += 1
    return 0


def sm_named(words: int, lanes: int) -> int:
    """The number of active lanes among the first ``lanes``; the other lanes are masked out."""
    named = 0
    lane = 0
    while lane < 32:
        if lane >= lanes:
            store32(words + 4 * lane, END)
        if load32(words + 4 * lane) != END:
            named += 1
        lane += 1
    return named


def sm_quads(words: int) -> int:
    """Of an access to an image: the quads of lanes that are active, active lanes · 2⁸."""
    found = 0
    lane = 0
    while lane < 32:
        active = 0
        part = 0
        while part < 4:
            if load32(words + 4 * (lane + part)) != END:
                active += 1
            part += 1
        found += (active > 0) + (active << 8)
        lane += 4
    return found


def sm_first(words: int) -> int:
    """The word of the lowest active lane; ``END`` without one."""
    lane = 0
    while lane < 32:
        if load32(words + 4 * lane) != END:
            return load32(words + 4 * lane)
        lane += 1
    return END


def sm_which(numbers: int, count: int, number: int) -> int:
    """The index of a number in an array; -1 if it is not there."""
    while count:
        count -= 1
        if load64(numbers + 8 * count) == number:
            return count
    return -1


def sm_sectors(s: Stream, words: int, group: int, width: int, local: int, at: int) -> int:
    """Write the words of the lines that an access touches, as far as there is room; returns their number. Each word of a lane in
    local memory is in a separate line of its warp."""
    scratch = s.SCRATCH
    parts = 1
    if local:
        parts = width
    count = 0
    lane = 0
    while lane < 32:
        word = load32(words + 4 * lane)
        part = 0
        while word != END and part < parts:
            line = word >> 5
            sector = 1 << (word >> 3 & 3)
            if local:
                line = (word + part) << 5 | s.WARP
                sector = 1 << (lane >> 3)
            which = sm_which(scratch, count, line)
            if which < 0 and count < 128:
                which = count
                store64(scratch + 8 * count, line)
                store32(at + 4 * count, sm_line(s, group, line) << 4)
                count += 1
            if which >= 0:
                touched = load32(at + 4 * which) | sector
                store32(at + 4 * which, touched)
                known = s.SECTORS + (touched >> 4)
                store8(known, load8(known) | sector)
            part += 1
        lane += 1
    return count


def sm_stored_words(s: Stream, words: int, width: int, at: int, count: int) -> int:
    """Record the words that a store writes in the ``count`` lines at ``at``. Returns the number of lines of which it writes
    sectors in part, plus ``SINGLE`` if it writes no two words of 8 aligned bytes in any of these."""
    partial = 0
    pairs = 0
    which = 0
    while which < count:
        number = load32(at + 4 * which) >> 4
        line = load64(s.LINES + 8 * number)
        written = 0
        lane = 0
        while lane < 32:
            word = load32(words + 4 * lane)
            part = 0
            while word != END and part < width:
                if word + part >> 5 == line:
                    written |= 1 << (word + part & 31)
                part += 1
            lane += 1
        known = s.WRITTEN + 4 * number
        store32(known, load32(known) | written)
        sector = 0
        whole = 1
        while sector < 4:
            bits = written >> 8 * sector & 255
            if bits and bits != 255:
                whole = 0
                pairs = pairs | bits & bits >> 1 & 85
            sector += 1
        partial += 1 - whole
        which += 1
    if partial and pairs == 0:
        return partial + SINGLE
    return partial


def sm_turns(words: int) -> int:
    """The turns that L2 needs for an atomic: in each sector, the number of lanes at the most accessed word."""
    turns = 0
    lane = 0
    while lane < 32:
        sector = load32(words + 4 * lane) >> 3
        most = 0
        first = 1
        other = 0
        while other < 32 and load32(words + 4 * lane) != END:
            word = load32(words + 4 * other)
            if word != END and word >> 3 == sector:
                if other < lane:
                    first = 0
                count = 0
                third = 0
                while third < 32:
                    if load32(words + 4 * third) == word:
                        count += 1
                    third += 1
                if count > most:
                    most = count
            other += 1
        if first:
            turns += most
        lane += 1
    return turns


def sm_access(s: Stream, words: int, site: int, out: int) -> int:
    """Append an access, and return the end of the stream. The site has the kind of memory (0 shared, 1 global, 2 local, 3 an mbarrier,
    4 the value of an mbarrier operation, 5 a copy, 6 generic, 7 a word, 8 an image), the words of a lane, the group, and flags: 1 for
    an atomic or a reserved mbarrier, twice the log2 of 32 / its lanes, 16 if registers are packed only where no lanes conflict (of an
    atomic: if the lanes at one word are one), 32 for a store, 64 if they are packed only if all lanes access the same word, 128 if
    the data do not come from L1."""
    space = load8(site)
    if space == 3:
        return sm_signals(s, words, load8(site + 3), out)
    if space == 7:
        store32(out, sm_first(words))
        return out + 4
    if space == 8:
        store32(out, sm_quads(words))
        return out + 4
    if space == 4:  # part of the preceding signal
        return out
    if space == 5:
        return sm_copy(s, words, site, out)
    if space == 6:
        space = 1 - sm_elsewhere(words)
    width = load8(site + 1)
    how = load8(site + 3)
    lanes = sm_named(words, 32 >> (how >> 1 & 7))
    if lanes == 0:
        store32(out, 0)
        return out + 4
    passes = width
    if how & 1:
        # a bank changes one word at a time
        if space == 0 and how & 16:
            passes = sm_passes(s, words, 0, 32, 1)
        elif space == 0:
            passes = sm_most(words, 31)
        else:
            passes = sm_most(words, END)
    elif how >> 7:
        passes = 0
    elif space != 2:
        packed = 0
        if space == 0 and (how & 32) == 0 and ((how & 64) == 0 or sm_most(words, END) == lanes):
            packed = 1 + (how >> 4 & 1)
        passes = sm_wavefronts(s, words, width, packed)
    count = 0
    turns = 0
    if space:
        count = sm_sectors(s, words, load8(site + 2), width, space == 2, out + 4)
    if space == 1:
        if how & 1:
            turns = sm_turns(words)
        elif how & 32:
            turns = sm_stored_words(s, words, width, out + 4, count)
    store32(out, passes | count << 8 | lanes << 16 | turns << 24)
    return out + 4 + 4 * count


def sm_off(words: int, mask: int, space: int) -> int:
    """Mask out the lanes that did not execute a block; the words of a copy are not per lane."""
    lane = 0
    while lane < 32 and space != 5:
        if (mask >> lane & 1) == 0:
            store32(words + 4 * lane, END)
        lane += 1
    return 0


def sm_stream(s: Stream) -> int:
    """Translate what a warp recorded into its stream; returns the end of the stream, 0 if a record is not whole or names a block
    that does not exist, or the stream has no room for it."""
    at = s.WORDS
    ends = at + 4 * s.COUNT
    out = s.OUT
    while at < ends:
        block = load32(at)
        sites = sm_sites(s, block, at, ends)
        if sites < 0 or out + 4 + sites * MOST_OF_ACCESS > s.OUT_ENDS:
            return 0
        mask = load32(at + 4)
        store32(out, block)
        out += 4
        at += 8
        site = load32(s.FIRST_SITE + 4 * block)
        last = site + sites
        while site < last:
            if mask != END:
                sm_off(at, mask, load8(s.SITES + 4 * site))
            out = sm_access(s, at, s.SITES + 4 * site, out)
            at += 128
            site += 1
    store32(out, END)
    return out + 4


def sm_blocks(s: Stream) -> int:
    """Add to the words at ``OUT`` (64 bits, by number of a block) how often a warp executed each; returns 1, 0 as ``sm_stream``."""
    at = s.WORDS
    ends = at + 4 * s.COUNT
    while at < ends:
        block = load32(at)
        sites = sm_sites(s, block, at, ends)
        if sites < 0:
            return 0
        count = s.OUT + 8 * block
        store64(count, load64(count) + 1)
        at += 8 + 128 * sites
    return 1
