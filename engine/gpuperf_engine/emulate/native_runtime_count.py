"""Runtime of generated code: sectors and wavefronts from the addresses of the lanes, as ``observe`` defines them.

Written in the subset of ``native_script`` and compiled, never run as Python.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from .native_layout import SITE_BYTES, Context, Counter
from .native_script import bits_count, fill, load64, store64, trailing_zeros, unsigned_less


def bump(context: int, site: int, counter: int, amount: int) -> int:
    """Add to a counter of a site."""
    cell = load64(context + Context.SITES) + site * SITE_BYTES + counter
    store64(cell, load64(cell) + amount)
    return amount


def found(table: int, used: int, number: int) -> int:
    """The cell of a number in a table of 64 of which ``used`` are taken: its own if it is there, else a free one."""
    cell = (number * -7046029254386353131) >> 58
    while (used >> cell) & 1 and load64(table + cell * 8) != number:
        cell = (cell + 1) & 63
    return cell


def count_sectors(context: int, site: int, mask: int, addresses: int) -> int:
    """Add the distinct 32-byte sectors and 128-byte lines of the active lanes to a site's counters."""
    seen = load64(context + Context.SCRATCH)
    used = 0
    lines = 0
    last = -1
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        sector = load64(addresses + lane * 8) >> 5
        if sector != last:
            cell = found(seen, used, sector)
            if ((used >> cell) & 1) == 0:
                store64(seen + cell * 8, sector)
                used = used | 1 << cell
                line = found(seen + 512, lines, sector >> 2)
                store64(seen + 512 + line * 8, sector >> 2)
                lines = lines | 1 << line
        last = sector
    bump(context, site, Counter.LINES, bits_count(lines))
    return bump(context, site, Counter.SECTORS, bits_count(used))


def count_local(context: int, site: int, mask: int, addresses: int, size: int, base: int) -> int:
    """Add the sectors of an access of local memory, in which word w of lane l lies at 128 · w + 4 · l: in each group of eight
    lanes one for every word."""
    seen = load64(context + Context.SCRATCH)
    words = 1
    if size > 4:
        words = size >> 2
    count = 0
    start = 0
    while start < 32:
        group = mask & (255 << start)
        used = 0
        while group:
            lane = trailing_zeros(group)
            group = group & (group - 1)
            place = (load64(addresses + lane * 8) - base) // (words * 4)
            cell = found(seen, used, place)
            store64(seen + cell * 8, place)
            used = used | 1 << cell
        count += bits_count(used) * words
        start += 8
    return bump(context, site, Counter.LOCAL_SECTORS, count)


def count_lanes(context: int, site: int, mask: int, addresses: int, size: int, space: int, loads: int) -> int:
    """Count a whole access by its space."""
    if load64(context + Context.COUNTING) == 0 or mask == 0:
        return 0
    if space == 1:
        return count_wavefronts(context, site, mask, addresses, size, loads)
    if space == 2:
        return count_local(context, site, mask, addresses, size, 0)
    if space == 3:
        return count_windows(context, site, mask, addresses, size, loads)
    return count_sectors(context, site, mask, addresses)


def in_window(context: int, mask: int, addresses: int, window: int) -> int:
    """The active lanes whose addresses lie in the shared or local window."""
    span = load64(context + Context.WINDOW_BYTES)
    inside = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        if unsigned_less(load64(addresses + lane * 8) - window, span):
            inside = inside | 1 << lane
    return inside


def count_atomic(
    context: int, site: int, mask: int, addresses: int, size: int, space: int, loads: int
) -> int:
    """Count an atomic: lanes that hit the same address take turns, in shared memory each in a wavefront of its own."""
    if load64(context + Context.COUNTING) == 0 or mask == 0:
        return 0
    count_lanes(context, site, mask, addresses, size, space, 0)
    shared = 0
    if space == 1:
        shared = mask
    elif space == 3:
        shared = in_window(context, mask, addresses, load64(context + Context.SHARED_WINDOW))
    if shared:
        most = turns(shared, addresses)
        bump(context, site, Counter.SHARED_TURNS, most)
        bump(context, site, Counter.WAVEFRONTS, most - 1)
    if mask & ~shared:
        bump(context, site, Counter.TURNS, turns(mask & ~shared, addresses))
    return 0


def turns(mask: int, addresses: int) -> int:
    """The most active lanes that have one address."""
    most = 0
    while mask:
        address = load64(addresses + trailing_zeros(mask) * 8)
        others = mask
        same = 0
        while others:
            lane = trailing_zeros(others)
            others = others & (others - 1)
            if load64(addresses + lane * 8) == address:
                same += 1
                mask = mask & ~(1 << lane)
        if same > most:
            most = same
    return most


def count_windows(context: int, site: int, mask: int, addresses: int, size: int, loads: int) -> int:
    """A generic access: sectors of the lanes in the arena and in the local window, wavefronts of those in the shared window,
    lanes and requests of each."""
    local = load64(context + Context.LOCAL_WINDOW)
    in_shared = in_window(context, mask, addresses, load64(context + Context.SHARED_WINDOW))
    in_local = in_window(context, mask, addresses, local)
    if in_shared:
        bump(context, site, Counter.SHARED_LANES, bits_count(in_shared))
        bump(context, site, Counter.SHARED_REQUESTS, 1)
        count_wavefronts(context, site, in_shared, addresses, size, loads)
    if in_local:
        bump(context, site, Counter.LOCAL_LANES, bits_count(in_local))
        bump(context, site, Counter.LOCAL_REQUESTS, 1)
        count_local(context, site, in_local, addresses, size, local)
    plain = mask & ~(in_shared | in_local)
    if plain:
        count_sectors(context, site, plain, addresses)
    elif mask:
        bump(context, site, Counter.ELSEWHERE, 1)
    return 0


def passes(context: int, mask: int, addresses: int, width: int) -> int:
    """The wavefronts of lanes that are served together: the most different words of ``width`` bytes (4 or more) in one bank."""
    seen = load64(context + Context.SCRATCH)
    banks = seen + 1024
    fill(banks, 0, 256)
    used = 0
    most = 0
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        word = load64(addresses + lane * 8) // width
        cell = found(seen, used, word)
        if ((used >> cell) & 1) == 0:
            store64(seen + cell * 8, word)
            used = used | 1 << cell
            bank = banks + word % (128 // width) * 8
            store64(bank, load64(bank) + 1)
            if load64(bank) > most:
                most = load64(bank)
    return most


def paired(mask: int, addresses: int, distance: int) -> int:
    """Whether each active lane whose number differs from another's in the bit ``distance`` only has that one's address."""
    rest = mask
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        other = lane ^ distance
        if (mask >> other) & 1 and load64(addresses + lane * 8) != load64(addresses + other * 8):
            return 0
    return 1


def count_wavefronts(context: int, site: int, mask: int, addresses: int, size: int, loads: int) -> int:
    """Add the wavefronts of a shared access and their ideal number to a site's counters; gives wavefronts + 64 · ideal.

    Words of 8 and 16 bytes take a phase per half and quarter warp; two phases of a load are merged as ``observe`` tells.
    """
    width = 4
    if size > 4:
        width = size
    lanes = 128 // width
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
            needed = passes(context, phase, addresses, width)
            ideal += 1
        if both & ~phase:
            needed += passes(context, both & ~phase, addresses, width)
            ideal += 1
            if loads and phase and (paired(both, addresses, 1) or paired(both, addresses, 2)):
                merged = passes(context, both, addresses, width)
                if merged < needed:
                    needed = merged
                    ideal -= 1
        total += needed
    bump(context, site, Counter.WAVEFRONTS, total)
    bump(context, site, Counter.IDEAL, ideal)
    return total + 64 * ideal
