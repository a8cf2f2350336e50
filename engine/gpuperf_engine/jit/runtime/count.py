"""Runtime of generated code: sectors and wavefronts from the addresses of the lanes, as ``simt.counters`` defines them.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...simt.atomic_targets import GOLDEN, HALF, MIXED, OFFSET, SLOT_SHIFT, WORD_SHIFT
from ..ir.abi import Context
from ..ir.access_records import SITE_BYTES, Counter, Target
from .intrinsics import (
    bits_count,
    first_of,
    load64,
    most_alike,
    neighbours,
    numbers,
    sectors_of,
    store64,
    trailing_zeros,
    unsigned_less,
)


def bump(context: Context, site: int, counter: int, amount: int) -> int:
    """Add to a counter of a site."""
    cell = context.SITES + site * SITE_BYTES + counter
    store64(cell, load64(cell) + amount)
    return amount


def count_sectors(context: Context, site: int, mask: int, addresses: int, size: int, loads: int) -> int:
    """Add the distinct 32-byte sectors and 128-byte lines of the active lanes, and of loads the wavefronts in the banks of L1, to a
    site's counters; returns sectors + 64 · lines."""
    sectors = sectors_of(addresses, mask)
    bump(context, site, Counter.SECTORS, sectors & 63)
    bump(context, site, Counter.LINES, sectors >> 6)
    if loads:
        distinct = (sectors & 63) == bits_count(mask)
        both = wavefronts_of(context, mask, addresses, size, 0, distinct)
        bump(context, site, Counter.GLOBAL_WAVEFRONTS, both & 63)
    return sectors


def count_local(context: Context, site: int, mask: int, addresses: int, size: int) -> int:
    """Add the sectors of an access of local memory, in which word w of lane l lies at 128 · w + 4 · l: in each group of eight
    lanes one for every word. Addresses may be those of the window."""
    seen = context.SCRATCH
    words = 1
    if size > 4:
        words = size >> 2
    numbers(seen, addresses, trailing_zeros(words * 4), -1, 3)
    return bump(context, site, Counter.LOCAL_SECTORS, bits_count(first_of(seen, mask)) * words)


def count_lanes(
    context: Context, site: int, mask: int, addresses: int, size: int, space: int, loads: int
) -> int:
    """Count a whole access by its space."""
    if context.COUNTING == 0 or mask == 0:
        return 0
    if space == 1:
        return count_wavefronts(context, site, mask, addresses, size, loads)
    if space == 2:
        return count_local(context, site, mask, addresses, size)
    if space == 3:
        return count_windows(context, site, mask, addresses, size, loads)
    return count_sectors(context, site, mask, addresses, size, loads)


def in_window(context: Context, mask: int, addresses: int, window: int) -> int:
    """Return the active lanes whose addresses are in the shared or local window."""
    span = context.WINDOW_BYTES
    inside = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if unsigned_less(load64(addresses + lane * 8) - window, span):
            inside = inside | 1 << lane
    return inside


def count_atomic(
    context: Context, site: int, mask: int, addresses: int, size: int, space: int, combined: int
) -> int:
    """Count an atomic: the hardware serialises lanes of one address, in shared memory one wavefront each. ``combined``: in global
    memory those of half a warp are one operation."""
    if context.COUNTING == 0 or mask == 0:
        return 0
    count_lanes(context, site, mask, addresses, size, space, 0)
    shared = 0
    if space == 1:
        shared = mask
    elif space == 3:
        shared = in_window(context, mask, addresses, context.SHARED_WINDOW)
    if shared:
        most = most_alike(addresses, shared)
        bump(context, site, Counter.SHARED_SERIALIZATIONS, most)
        bump(context, site, Counter.WAVEFRONTS, most - 1)
    rest = mask & ~shared
    if rest and space == 3:
        rest = rest & ~in_window(context, rest, addresses, context.LOCAL_WINDOW)
    if rest:
        most = most_alike(addresses, rest)
        bump(context, site, Counter.SERIALIZATIONS, most)
        if context.TARGETS:
            count_targets(context, rest, addresses, combined, most)
    return 0


def count_targets(context: Context, mask: int, addresses: int, combined: int, most: int) -> int:
    """Count lanes by their addresses, as ``simt.atomic_targets`` defines. ``most``: the most lanes with one address."""
    if most == bits_count(mask):
        target = target_of(context, mask, addresses)
        target.LANES = target.LANES + most
        if combined:
            target.SAVED = target.SAVED + most - (mask & ((1 << HALF) - 1) != 0) - (mask >> HALF != 0)
        return 0
    again = 0
    if combined and most > 1:
        # half and word together
        seen = context.SCRATCH
        numbers(seen, addresses, WORD_SHIFT, -1, trailing_zeros(HALF))
        again = mask & ~first_of(seen, mask)
    table = context.TARGETS
    while mask:
        word = load64(addresses + trailing_zeros(mask) * 8) >> WORD_SHIFT
        mask = mask & (mask - 1)
        target = Target(table + ((word * GOLDEN + OFFSET) >> SLOT_SHIFT) * Target.BYTES)
        target.LANES = target.LANES + 1
        known = target.WORD
        if known != word and known != MIXED:
            enter_word(target, word)
    while again:
        target = target_of(context, again, addresses)
        target.SAVED = target.SAVED + 1
        again = again & (again - 1)
    return 0


def count_words(context: Context, start: int, end: int) -> int:
    """Count a reduction by a bulk copy, one operation on each word of these bytes."""
    if context.COUNTING == 0 or context.TARGETS == 0:
        return 0
    word = start >> WORD_SHIFT
    last = (end - 1) >> WORD_SHIFT
    while word <= last:
        target = slot_of(context, word)
        target.LANES = target.LANES + 1
        word += 1
    return 0


def target_of(context: Context, mask: int, addresses: int) -> Target:
    """Return the slot of the lowest lane's address, and count its access."""
    return slot_of(context, load64(addresses + trailing_zeros(mask) * 8) >> WORD_SHIFT)


def slot_of(context: Context, word: int) -> Target:
    """Return the slot of a word, and count an access to it."""
    target = Target(context.TARGETS + ((word * GOLDEN + OFFSET) >> SLOT_SHIFT) * Target.BYTES)
    known = target.WORD
    if known != word and known != MIXED:
        enter_word(target, word)
    return target


def enter_word(target: Target, word: int) -> int:
    """Assign a slot to a word."""
    if target.WORD:
        target.WORD = MIXED
    else:
        target.WORD = word
    return 0


def count_windows(context: Context, site: int, mask: int, addresses: int, size: int, loads: int) -> int:
    """A generic access: sectors of the lanes in the arena and in the local window, wavefronts of those in the shared window,
    lanes and requests of each."""
    in_shared = in_window(context, mask, addresses, context.SHARED_WINDOW)
    in_local = in_window(context, mask, addresses, context.LOCAL_WINDOW)
    if in_shared:
        bump(context, site, Counter.SHARED_LANES, bits_count(in_shared))
        bump(context, site, Counter.SHARED_REQUESTS, 1)
        count_wavefronts(context, site, in_shared, addresses, size, loads)
    if in_local:
        bump(context, site, Counter.LOCAL_LANES, bits_count(in_local))
        bump(context, site, Counter.LOCAL_REQUESTS, 1)
        count_local(context, site, in_local, addresses, size)
    plain = mask & ~(in_shared | in_local)
    if plain:
        count_sectors(context, site, plain, addresses, size, loads)
    elif mask:
        bump(context, site, Counter.ELSEWHERE, 1)
    return 0


def paired(mask: int, addresses: int, distance: int) -> int:
    """Whether lanes l and l xor ``distance`` have the same address, wherever both are active."""
    partners = ((mask >> 1) & 1431655765) | ((mask << 1) & 2863311530)
    if distance == 2:
        partners = ((mask >> 2) & 858993459) | ((mask << 2) & 3435973836)
    return (mask & partners & ~neighbours(addresses, distance)) == 0


def count_wavefronts(context: Context, site: int, mask: int, addresses: int, size: int, loads: int) -> int:
    """Add the wavefronts of a shared access and their ideal number to a site's counters; returns wavefronts + 64 · ideal."""
    wavefronts = wavefronts_of(context, mask, addresses, size, loads, 0)
    bump(context, site, Counter.WAVEFRONTS, wavefronts & 63)
    bump(context, site, Counter.IDEAL, wavefronts >> 6)
    return wavefronts


def wavefronts_of(context: Context, mask: int, addresses: int, size: int, merges: int, distinct: int) -> int:
    """Wavefronts of an access and their ideal number, as wavefronts + 64 · ideal.

    Words of 8 and 16 bytes take a phase per half and quarter warp; two phases are merged as in ``simt.counters`` if ``merges``. A
    phase takes the most different words that one bank has. ``distinct``: no two lanes are known to have the same word.
    """
    seen = context.SCRATCH
    banks = seen + 256
    width = 4
    if size > 4:
        width = size
    lanes = 128 // width
    down = trailing_zeros(width)
    different = mask
    if distinct == 0:
        numbers(seen, addresses, down, -1, trailing_zeros(lanes))
        different = first_of(seen, mask)
    numbers(banks, addresses, down, lanes - 1, 5)
    total = 0
    ideal = 0
    start = 0
    while start < 32:
        phase = mask & (((1 << lanes) - 1) << start)
        both = phase
        if lanes < 32:
            both = mask & (((1 << (2 * lanes)) - 1) << start)
        start += 2 * lanes
        needed = 0
        if phase:
            needed = most_alike(banks, different & phase)
            ideal += 1
        if both & ~phase:
            needed += most_alike(banks, different & both & ~phase)
            ideal += 1
            if merges and phase and (paired(both, addresses, 1) or paired(both, addresses, 2)):
                numbers(seen, addresses, down, -1, 5)
                merged = most_alike(banks, first_of(seen, both))
                if merged < needed:
                    needed = merged
                    ideal -= 1
        total += needed
    return total + 64 * ideal
