"""Textures and surfaces, for ``sm.core``: the texture units, which the sub-partitions share, take the quads of a warp that have an
active lane one after the other; their data pass through L1 like those of loads. Which texels are in L1 is not known: a given share
of those that lanes fetch comes from L2, and of these a share from DRAM.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import FRACTION, Image, Op, Slot, Sm, Warp
from ..intrinsics import load32, separate
from .memory import sm_below, sm_lead


def sm_far_sectors(sm: Sm, sectors: int) -> int:
    """How many of some sectors DRAM moves."""
    left = sm.FAR_LEFT + sectors * sm.IMAGE_SHARE
    sm.FAR_LEFT = left & 65535
    return left >> 16


def sm_moved_sectors(sm: Sm, sectors: int, start: int) -> int:
    """When the last of some sectors has passed L2 or DRAM, in clocks after a hit in L1."""
    far = sm_far_sectors(sm, sectors)
    near = sectors - far
    late = 0
    longer = sm.LATENCY_L2 - sm.LATENCY_L1
    if near:
        late = sm_below(sm, start, near, 0)
    if far:
        late = sm_below(sm, start, far, 1)
        longer = sm.LATENCY_DRAM - sm.LATENCY_L1
    return late + longer


@separate
def sm_image(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """Execute an instruction on a texture or surface: returns when its result is ready. The stream has a word (its quads with an
    active lane, active lanes · 2⁸)."""
    word = load32(warp.PLACE)
    warp.PLACE += 4
    start = sm.COMMON[op.PIPE]
    if start < now:
        start = now
    sm.IMAGED = start
    if word == 0:
        return start + sm.LATENCY_TEX
    lanes = word >> 8
    cost = (word & 255) * sm.QUAD_COST
    sm.IMAGE_BUSY += cost
    end = start + (cost + (1 << FRACTION) - 1 >> FRACTION)
    sm.COMMON[op.PIPE] = end
    waves = (lanes * sm.TEXEL + 127) // 128 * sm.WAVE
    served = end
    if served < sm.LSU:
        served = sm.LSU
    sm.LSU = served + waves
    sm.LSU_BUSY += waves
    op.MOVED += waves
    op.LANES += lanes
    how = op.ARGUMENT
    ready = served + sm.LATENCY_TEX
    sm_lead(sm, Slot(warp.SLOT), served)
    if how & Image.FETCH:
        left = sm.FETCHED_LEFT + lanes * sm.FETCH_SHARE
        sm.FETCHED_LEFT = left & 65535
        if left >> 16:
            ready += sm_moved_sectors(sm, left >> 16, served)
        elif how & Image.ATOMIC:
            ready += sm.LATENCY_L2 - sm.LATENCY_L1
    if how & Image.STORE:
        left = sm.STORED_LEFT + lanes * sm.STORE_SHARE
        sm.STORED_LEFT = left & 65535
        if left >> 16:
            sm_moved_sectors(sm, left >> 16, served)
    return ready
