"""Streams of words that the simulation reads, from what warps recorded. None of this needs an assembler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.sass.sm.asynchronous import Named
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.sharing import Group
from gpuperf_engine.sass.sm.streams import Class, class_of, named_of

from .machines import decoded


def test_vectors_of_local_memory_have_a_line_for_each_word_of_each_lane() -> None:
    """Lanes that index their local arrays differently: 128 lines an access, more than words were recorded."""
    local, width, accesses = 2, 4, 200
    named = Named(np.array([[local, width, 0, 0]] * 2, np.uint8), np.array([0, 1], np.uint32))
    lanes = 4 * accesses * np.arange(32)
    recorded = [word for n in range(accesses) for word in (0, END, *(lanes + 4 * n))]
    made = class_of(named, [np.array(recorded, np.uint32)])
    assert len(made.lines) == len(np.unique(made.lines)) == accesses * 32 * width
    # a word for the block and one for the access, then one for each of its lines
    assert len(made.stream) == accesses * (2 + 32 * width) + 1
    assert made.stream[1] == width | 32 * width << 8 | 32 << 16


@pytest.mark.parametrize(
    ("flags", "apart", "passes"), [(0, 32, 2), (0, 2, 2), (0, 1, 4), (64, 32, 2), (64, 2, 4), (64, 1, 4)]
)
def test_registers_of_neighbours_are_packed_on_volta_and_turing(flags: int, apart: int, passes: int) -> None:
    """The rule of NVIDIA Developer Forums 77228, for 7.0 to 7.5; 64: only where all lanes access the same."""
    named = Named(np.array([[0, 4, 0, flags]] * 2, np.uint8), np.array([0, 1], np.uint32))
    recorded = [0, END, *(n // apart * 4 for n in range(32))]
    made = class_of(named, [np.array(recorded, np.uint32)])
    assert made.stream[1] & 255 == passes


PAIRS = [lane // 2 for lane in range(32)]
QUADS = [lane // 4 for lane in range(32)]
#: lanes that share with the lane two further
CROSSED = [lane // 4 * 2 + lane % 2 for lane in range(32)]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(
    ("width", "places", "load", "stored"),
    [
        (4, list(range(32)), 4, 4), (4, [0] * 32, 2, 4), (4, PAIRS, 2, 4), (4, CROSSED, 2, 4), (4, QUADS, 2, 4),
        (4, [lane // 8 for lane in range(32)], 2, 4), (4, [lane % 8 for lane in range(32)], 4, 4),
        (4, [lane % 16 for lane in range(32)], 4, 4), (4, [lane % 4 for lane in range(32)], 4, 4),
        (4, [2 * (lane // 16) for lane in range(32)], 2, 4), (4, [2 * (lane % 16) for lane in range(32)], 8, 8),
        (4, [31 - lane for lane in PAIRS], 2, 4), (4, [2 * lane for lane in range(32)], 8, 8),
        (4, [8 * lane for lane in range(32)], 32, 32),
        (2, list(range(32)), 2, 2), (2, [0] * 32, 1, 2), (2, PAIRS, 1, 2), (2, CROSSED, 1, 2), (2, QUADS, 1, 2),
        (2, [lane ^ 3 for lane in range(32)], 2, 2), (2, [lane % 16 for lane in range(32)], 2, 2),
        # neighbours share, but as many different words meet in a bank
        (2, [2 * lane for lane in PAIRS], 2, 2), (4, [2 * lane for lane in PAIRS], 4, 4),
    ],
)  # fmt: skip
def test_registers_are_packed_from_ampere_on(
    width: int, places: list[int], load: int, stored: int, store: bool
) -> None:
    # measured on an RTX 5090: cicuvc/nvidia-sass-document 020c888, notes/sm90/arch/shared_bank_conflicts.md, 3.2 and 3.3; on an A100
    # LDS.128 of 2, 4, 8, 16 and 32 lanes with one address took 57, 55, 52, 51 and 51 % of the time of different addresses, LDS.64 64,
    # 59, 58, 58 and 58 %, with an addition each (kzwrime/gpu_shm_microbench d8b1207); on an A10 and an H100 two addresses, of 16 lanes
    # each, are two wavefronts, and lanes i and i + 16 are not packed (NVIDIA Developer Forums 373160)
    named = Named(np.array([[0, width, 0, 32 if store else 16]] * 2, np.uint8), np.array([0, 1], np.uint32))
    made = class_of(named, [np.array([0, END, *(width * place for place in places)], np.uint32)])
    assert made.stream[1] & 255 == (stored if store else load)


@pytest.mark.parametrize(
    ("rows", "columns", "each"),
    [
        # places of A and B, in vectors of four words, that the lanes of a warp load
        ([lane // 16 for lane in range(32)], [lane % 16 for lane in range(32)], 3.0),
        ([lane // 2 * 2 for lane in range(32)], [lane % 2 for lane in range(32)], 3.0),
        (PAIRS, [lane % 2 for lane in range(32)], 2.0),
    ],
)
def test_loads_of_products_take_the_wavefronts_counted_on_ga102(
    rows: list[int], columns: list[int], each: float
) -> None:
    # mohabdr0805/gemm 9695c49, README: v5, v6 as first written, v6. On an RTX 3080 402656753, 402657199 and 268438126 wavefronts were
    # counted for 134217728 loads of shared memory
    named = Named(np.array([[0, 4, 0, 16]] * 2, np.uint8), np.array([0, 1], np.uint32))
    made = [
        class_of(named, [np.array([0, END, *(4 * n for n in places)], np.uint32)])
        for places in (rows, columns)
    ]
    assert sum(int(one.stream[1]) & 255 for one in made) / 2 == each


def ending(words: int) -> Class:
    """A CTA without accesses, with so many words."""
    none = np.zeros(0, np.uint8)
    stream, starts, lines = np.zeros(words, np.uint32), np.zeros(1, np.int64), np.zeros(0, np.int64)
    return Class(stream, starts, none, lines, none, none.astype(np.uint32))


def test_the_sm_with_the_most_work() -> None:
    """Eight CTAs on three SMs, the first of which has the CTA that ends at once, the second the last of the grid."""
    of_place = {(x, 0, 0): x for x in range(3)}
    classes = Classes((ending(1), ending(9), ending(5)), (), of_place, (8, 1, 1))
    assert classes.on_sm(3, 3, 3).tolist() == [1, 1, 2]
    assert Classes((ending(9), ending(9), ending(9)), (), of_place, (8, 1, 1)).on_sm(3, 3, 3).tolist() == [
        0,
        1,
        1,
    ]


def test_ctas_of_an_sm_are_those_of_their_place_in_the_grid() -> None:
    grid, ends = (5, 3, 1), {0: 0, 4: 2}
    of_place = {(x, y, z): x + 3 * y for x in range(3) for y in range(3) for z in (0,)}
    classes = Classes((ending(1),) * 9, (), of_place, grid)
    for step in (1, 2, 7):
        seen = classes.on_sm(-(-15 // step), step, 15 // step)
        places = [(number * step % 5, number * step // 5) for number in range(15 // step)]
        assert seen.tolist() == [ends.get(x, 1) + 3 * {0: 0, 2: 2}.get(y, 1) for x, y in places]
    # the first of as many CTAs as a grid may have are not those of all
    billions = Classes((ending(1),) * 9, (), of_place, (2**31 - 1, 65535, 65535))
    assert billions.on_sm((2**31 - 1) * 65535 * 65535 // 84, 84, 3).tolist() == [0, 1, 1]


@pytest.mark.parametrize("grid", [(1, 1, 1), (2, 1, 1), (3, 4, 1), (7, 2, 5)])
def test_the_part_of_each_class_is_that_of_its_ctas(grid: tuple[int, int, int]) -> None:
    one = ending(1)
    of_place = {(x, y, z): min(x, y, z) for x in range(3) for y in range(3) for z in range(3)}
    classes = Classes((one,) * 3, (), of_place, grid)
    every = classes.on_sm(int(np.prod(grid)), 1, int(np.prod(grid)))
    assert classes.shares().tolist() == pytest.approx(
        (np.bincount(every, minlength=3) / np.prod(grid)).tolist()
    )
    assert Classes((one,) * 4, (), {}, grid, cluster=2).shares().tolist() == [0.5, 0.5]


def test_the_typical_of_sampled_ctas_accesses_memory() -> None:
    """The middle of four ended at once: the nearest that did not stands for the traffic of all."""

    def accessing(groups: list[int]) -> Class:
        count = len(groups)
        return Class(
            np.zeros(1, np.uint32), np.zeros(1, np.int64), np.array(groups, np.uint8), np.arange(count, dtype=np.int64),
            np.full(count, 15, np.uint8), np.zeros(count, np.uint32),
        )  # fmt: skip

    groups = (Group("shared", False, (0, 0, 0)), Group("global", False, None))
    busy, idle, other = accessing([1, 1]), accessing([]), accessing([0])
    assert Classes((idle, busy, idle, other), groups, {}, (4, 1, 1)).typical is busy
    assert Classes((busy, other, busy, idle), groups, {}, (4, 1, 1)).typical.lines.tolist() == [0, 1]
    assert Classes((idle, idle), groups, {}, (2, 1, 1)).typical is idle
    # in clusters the first CTA stands for the others
    assert Classes((busy, idle, idle, busy), groups, {}, (4, 1, 1), cluster=2).typical is busy


@pytest.mark.parametrize(
    ("number", "flags"), [(70, 0), (75, 0), (80, 16), (86, 16), (90, 16), (100, 16), (120, 16)]
)
def test_wide_loads_of_shared_memory_are_packed_on_every_machine(number: int, flags: int) -> None:
    code = decoded(["LDS.128 R4, [R2]", "STS.128 [R2], R4", "EXIT"])
    sites = tuple(SimpleNamespace(position=at, space="shared") for at in (0, 1))
    tracer: Any = SimpleNamespace(
        graph=SimpleNamespace(listing=code), number=number, sites=sites, of_block={0: sites}
    )
    named = named_of(tracer, [0, 0])
    assert named.sites[0, 3] == flags
    assert named.sites[1, 3] & 32
