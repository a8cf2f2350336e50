"""Counts of example kernels worked out by hand from their PTX, as formulas in the size.

Each number of instructions was counted in the committed file: a change of the file asks for a new count.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
SECTOR_WORDS = 8  # a sector is 32 bytes


@dataclass(frozen=True)
class Counts:
    """What one launch must count; sectors are of global memory; buffers begin on a border."""

    thread_instructions: int
    warp_instructions: int
    branches_executed: int
    branches_divergent: int
    load_sectors: int
    store_sectors: int
    opcodes: dict[str, int]


def saxpy(n: int) -> Counts:
    """Blocks of 256. All threads: 4 ld.param, 3 mov, mad, setp, bra, ret; those with an element: 9 more."""
    threads = -(-n // 256) * 256
    return Counts(
        thread_instructions=11 * threads + 9 * n,
        warp_instructions=11 * (threads // WARP) + 9 * -(-n // WARP),
        branches_executed=threads // WARP,
        branches_divergent=int(n % WARP != 0),
        load_sectors=2 * -(-n // SECTOR_WORDS),
        store_sectors=-(-n // SECTOR_WORDS),
        opcodes={
            "fma.rn.f32": n,
            "ld.global.nc.f32": n,
            "ld.global.f32": n,
            "st.global.f32": n,
            "setp.ge.s32": threads,
            "mov.u32": 3 * threads,
            "ret": threads,
        },
    )


def transpose(entry: str, rows: int, cols: int) -> Counts:
    """Sides are multiples of 32, so every guard lets every thread pass; four elements per thread.

    4 ld.param, 17 up to the first branch, 5 per element moved in and 4 between two of them, 11 across the
    barrier, 5 per element moved out and 4 between, ret. With a pitch of 32 words a shift and an addition take
    the place of the multiply-add, before the first branch and after the barrier.
    """
    threads = rows * cols // 4
    each = 4 + 17 + 4 * 5 + 3 * 4 + 11 + 4 * 5 + 3 * 4 + 1 + (2 if entry == "transpose_conflicts" else 0)
    return Counts(
        thread_instructions=each * threads,
        warp_instructions=each * threads // WARP,
        branches_executed=8 * threads // WARP,
        branches_divergent=0,
        load_sectors=rows * cols // SECTOR_WORDS,
        store_sectors=rows * cols // SECTOR_WORDS,
        opcodes={
            "ld.global.nc.f32": rows * cols,
            "st.shared.f32": rows * cols,
            "ld.shared.f32": rows * cols,
            "st.global.f32": rows * cols,
            "bar.sync": threads,
        },
    )


def sgemm_tiled(m: int, n: int, k: int) -> Counts:
    """Sizes are multiples of 16. 17 through the loop's guard, 20 to set the loop up, 73 per tile, 10 after.

    A warp is two rows of a tile: it loads two pieces of 64 bytes of each factor per tile.
    """
    threads, tiles = m * n, k // 16
    each = 17 + 20 + 73 * tiles + 10
    return Counts(
        thread_instructions=each * threads,
        warp_instructions=each * threads // WARP,
        branches_executed=(2 + 3 * tiles) * threads // WARP,
        branches_divergent=0,
        load_sectors=2 * threads * tiles // SECTOR_WORDS,
        store_sectors=threads // SECTOR_WORDS,
        opcodes={
            "fma.rn.f32": m * n * k,
            "ld.shared.f32": 2 * m * n * k,
            "st.shared.f32": 2 * threads * tiles,
            "ld.global.nc.f32": 2 * threads * tiles,
            "st.global.f32": threads,
            "bar.sync": 2 * threads * tiles,
        },
    )


def relu6(elements: int, block: int) -> Counts:
    """A multiple of 4 * block elements: every thread has four. 8 through the guard, 15 for the quad, ret."""
    threads = elements // 4
    return Counts(
        thread_instructions=24 * threads,
        warp_instructions=24 * threads // WARP,
        branches_executed=threads // WARP,
        branches_divergent=0,
        load_sectors=elements // SECTOR_WORDS,
        store_sectors=elements // SECTOR_WORDS,
        opcodes={"max.f32": elements, "min.f32": elements, "ld.global.v4.f32": threads},
    )


def convolution_1x1(channels: int, plane: int, filters: int) -> Counts:
    """One image; pixels and filters are multiples of 64, channels of 16. 163 up to the loop, 369 per step, 85 after.

    A step copies the tiles of the next: the first are copied before the loop, and in the last step zeros. A warp stores 64
    pixels of two filters with every instruction, but a quarter of them: 16 sectors, 16 times.
    """
    blocks, steps = plane // 64 * filters // 64, channels // 16
    threads = 256 * blocks
    each = 163 + 369 * steps + 85
    return Counts(
        thread_instructions=each * threads,
        warp_instructions=each * threads // WARP,
        branches_executed=(2 + steps) * threads // WARP,
        branches_divergent=0,
        load_sectors=2 * 64 * 16 // SECTOR_WORDS * steps * blocks,
        store_sectors=16 * 16 * threads // WARP,
        opcodes={
            "fma.rn.f32": channels * plane * filters,
            "ld.shared.v4.f32": 32 * steps * threads,
            "cp.async.ca.shared.global": 8 * (1 + steps) * threads,
            "st.global.f32": plane * filters,
            "bar.sync": steps * threads,
        },
    )
