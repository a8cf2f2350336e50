"""Runtime of generated code: sectors and wavefronts from the addresses of the lanes, as ``observe`` defines them.

Written in the subset of ``native_script`` and compiled, never run as Python.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from .native_layout import Context
from .native_script import bits_count, load64, store64, trailing_zeros, unsigned_less


def count_sectors(context: int, site: int, mask: int, addresses: int) -> int:
    """Add the distinct 32-byte sectors of the active lanes to a site's counter."""
    seen = load64(context + Context.SCRATCH)
    count = 0
    last = -1
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        sector = load64(addresses + lane * 8) >> 5
        if sector != last:
            index = 0
            while index < count and load64(seen + index * 8) != sector:
                index += 1
            if index == count:
                store64(seen + count * 8, sector)
                count += 1
        last = sector
    counter = load64(context + Context.SITES) + site * 56 + 16
    store64(counter, load64(counter) + count)
    return count


def count_lanes(context: int, site: int, mask: int, addresses: int, size: int, space: int) -> int:
    """Count a whole access by its space."""
    if load64(context + Context.COUNTING) == 0 or mask == 0:
        return 0
    if space == 1:
        return count_wavefronts(context, site, mask, addresses, size)
    if space == 3:
        return count_windows(context, site, mask, addresses, size)
    return count_sectors(context, site, mask, addresses)


def count_atomic(context: int, site: int, mask: int, addresses: int, size: int, space: int) -> int:
    """Count an atomic: in shared memory, lanes that hit the same address go one after the other."""
    if load64(context + Context.COUNTING) == 0 or mask == 0:
        return 0
    shared = mask
    if space != 1:
        count_lanes(context, site, mask, addresses, size, space)
        shared = 0
        rest = mask
        while space == 3 and rest:
            lane = trailing_zeros(rest)
            rest = rest & (rest - 1)
            window = load64(addresses + lane * 8) - load64(context + Context.SHARED_WINDOW)
            if unsigned_less(window, load64(context + Context.WINDOW_BYTES)):
                shared = shared | 1 << lane
        if shared == 0:
            return 0
    else:
        count_wavefronts(context, site, mask, addresses, size)
    most = 1
    rest = shared
    while rest:
        address = load64(addresses + trailing_zeros(rest) * 8)
        others = rest
        same = 0
        while others:
            lane = trailing_zeros(others)
            others = others & (others - 1)
            if load64(addresses + lane * 8) == address:
                same += 1
                rest = rest & ~(1 << lane)
        if same > most:
            most = same
    counter = load64(context + Context.SITES) + site * 56 + 24
    store64(counter, load64(counter) + most - 1)
    return 0


def count_windows(context: int, site: int, mask: int, addresses: int, size: int) -> int:
    """A generic access: sectors of the lanes in the arena, wavefronts of those in the shared window, lanes in each."""
    shared = load64(context + Context.SHARED_WINDOW)
    local = load64(context + Context.LOCAL_WINDOW)
    span = load64(context + Context.WINDOW_BYTES)
    in_shared = 0
    in_local = 0
    rest = mask
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        address = load64(addresses + lane * 8)
        if unsigned_less(address - shared, span):
            in_shared = in_shared | 1 << lane
        elif unsigned_less(address - local, span):
            in_local = in_local | 1 << lane
    counters = load64(context + Context.SITES) + site * 56
    store64(counters + 40, load64(counters + 40) + bits_count(in_shared))
    store64(counters + 48, load64(counters + 48) + bits_count(in_local))
    if in_shared:
        count_wavefronts(context, site, in_shared, addresses, size)
    plain = mask & ~(in_shared | in_local)
    if plain:
        count_sectors(context, site, plain, addresses)
    return 0


def count_wavefronts(context: int, site: int, mask: int, addresses: int, size: int) -> int:
    """Add the wavefronts of a shared access and their ideal number to a site's counters; gives wavefronts + 64 · ideal.

    Words of 8 and 16 bytes take a phase per half and quarter warp; in a phase each bank gives one word per wavefront.
    """
    seen = load64(context + Context.SCRATCH)
    banks = seen + 1024
    lanes = 32
    words = 1
    if size > 4:
        words = size >> 2
        lanes = 32 // words
    total = 0
    ideal = 0
    start = 0
    while start < 32:
        phase = mask & (((1 << lanes) - 1) << start)
        start += lanes
        if phase:
            ideal += 1
            bank = 0
            while bank < 32:
                store64(banks + bank * 8, 0)
                bank += 1
            count = 0
            most = 0
            while phase:
                lane = trailing_zeros(phase)
                phase = phase & (phase - 1)
                word = load64(addresses + lane * 8) >> 2
                part = 0
                while part < words:
                    index = 0
                    while index < count and load64(seen + index * 8) != word:
                        index += 1
                    if index == count:
                        store64(seen + count * 8, word)
                        count += 1
                        cell = banks + (word & 31) * 8
                        store64(cell, load64(cell) + 1)
                        if load64(cell) > most:
                            most = load64(cell)
                    word += 1
                    part += 1
            total += most
    counters = load64(context + Context.SITES) + site * 56
    store64(counters + 24, load64(counters + 24) + total)
    store64(counters + 32, load64(counters + 32) + ideal)
    return total + 64 * ideal
