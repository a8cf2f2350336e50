"""Runtime of generated code: stores of 256 bits that leave out elements.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ..ir.abi import Context, Cta, State
from ..ir.access_records import SiteCache
from .access.lanes import move
from .intrinsics import load64, trailing_zeros, unsigned_less
from .memory import mark, note, reach, refill


def store_parts(
    context: Context,
    cta: Cta,
    state: State,
    site: int,
    mask: int,
    addresses: int,
    values: int,
    width: int,
    count: int,
    how: int,
    parts: int,
) -> int:
    """Stores to global memory as of ``store_lanes``, only of the elements with a bit in ``parts``. Returns 1 if invalid."""
    size = width * count
    cache = SiteCache(context.CACHE + site * SiteCache.BYTES)
    while mask:
        lane = trailing_zeros(mask)
        mask = mask & (mask - 1)
        address = load64(addresses + lane * 8)
        offset = address - cache.START
        span = cache.SPAN
        good = 0
        if address & (size - 1) == 0:
            good = 1
            if span < size or unsigned_less(span - size, offset):
                good = refill(context, site, address, size, 4)
        # records the fault
        if good == 0 and reach(context, cta, state, site, lane, address, size, how) == 0:
            return 1
        left = parts
        while left:
            element = trailing_zeros(left)
            left = left & (left - 1)
            target = address + element * width
            if good and cache.TRACKED:
                mark(target + context.SHADOW, width)
            if good:
                note(context, target, width, 4)
            host = target + context.ARENA
            move(host, values + element * width * 32, width, width, lane, 0, 1)
    return 0
