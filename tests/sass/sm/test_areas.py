"""Where the CTAs of a grid take the same path, and which of them an SM runs: against all CTAs of the grid, or arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.sm import areas as areas_module
from gpuperf_engine.sass.sm.areas import areas_of, spread
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.sharing import reuse_of
from gpuperf_engine.sass.sm.streams import Class
from gpuperf_engine.timing.models.simulation import simulated
from tests.support import needs_assembler

Grid = tuple[int, int, int]
Places = NDArray[np.int64]
Guard = Callable[[Places, Places, Places, Grid], NDArray[np.bool_]]

GUARDS: dict[str, Guard] = {
    "first columns": lambda x, y, z, grid: x >= grid[0] // 5,
    "one column": lambda x, y, z, grid: x >= 1,
    "two columns": lambda x, y, z, grid: x >= 2,
    "quarter": lambda x, y, z, grid: x >= grid[0] // 4,
    "all but two columns": lambda x, y, z, grid: x >= grid[0] - 2,
    "last columns": lambda x, y, z, grid: x < grid[0] - grid[0] // 6,
    "columns between": lambda x, y, z, grid: (x < grid[0] // 3) | (x >= grid[0] // 2),
    "rows": lambda x, y, z, grid: y >= max(1, grid[1] // 7),
    "both axes": lambda x, y, z, grid: (x >= max(1, grid[0] // 4)) | (y >= max(1, grid[1] // 4)),
    "either axis": lambda x, y, z, grid: (x >= max(1, grid[0] // 4)) & (y >= max(1, grid[1] // 3)),
    "planes": lambda x, y, z, grid: z >= 1,
    "triangle": lambda x, y, z, grid: x > y,
    "other triangle": lambda x, y, z, grid: x + y >= grid[0],
    "steep triangle": lambda x, y, z, grid: x > 3 * y + 2,
    "number": lambda x, y, z, grid: y * grid[0] + x >= grid[0] * grid[1] // 3 + 5,
    "number in a plane": lambda x, y, z, grid: (z * grid[1] + y) * grid[0] + x >= prod(grid) // 9 + 1,
}
#: Powers of two, odd and long: the first ones are examined whole.
GRIDS = [
    (64, 1, 1), (61, 67, 1), (16, 16, 16), (256, 256, 1), (255, 251, 1), (1024, 96, 1), (7, 5000, 1), (1 << 20, 1, 1), (999983, 1, 1),
    (64, 64, 64), (33, 61, 40), (100000, 3, 3),
]  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("grid", GRIDS)
def test_areas_of_guards_are_exact(grid: Grid, guard: str) -> None:
    examined = 0

    def path(places: Places) -> NDArray[np.int64]:
        nonlocal examined
        examined += len(places)
        assert (places >= 0).all() and (places < np.array(grid)).all()
        return GUARDS[guard](*places.T, grid).astype(np.int64)

    found = areas_of(path, grid, 4)
    index = np.arange(prod(grid))
    every = GUARDS[guard](index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1]), grid)
    limit = areas_module.MOST_PROBED // 4
    assert examined <= limit + 4096
    if guard in ("triangle", "other triangle", "steep triangle") and examined > limit - 4096:
        # As long a border is not followed to its end: what is left is drawn.
        assert np.mean(found.first(len(index)) != every) < 0.002
        return
    assert (found.first(len(index)) == every).all()
    assert found.counted().tolist() == np.bincount(every, minlength=found.count).tolist()
    some = np.array([0, 1, grid[0], len(index) // 3, len(index)])
    assert found.before(some)[:, -1].tolist() == [
        int((every == found.count - 1)[:count].sum()) for count in some
    ]
    places = spread(grid, 100)
    assert (found.of(places) == path(places)).all()
    assert found.of(np.array([[-1, 0, 0], [0, grid[1], 0]])).tolist() == [-1, -1]


@pytest.mark.parametrize("grid", [(64, 1, 1), (256, 256, 1), (61, 67, 1), (1024, 8, 4), (4, 512, 32)])
def test_spread_places_do_not_repeat_along_an_axis(grid: Grid) -> None:
    found = spread(grid, 24)
    assert ((found >= 0) & (found < np.array(grid))).all()
    for axis, size in enumerate(grid):
        # Each quarter of each axis has some of them.
        if size > 1:
            assert (np.bincount(found[:, axis] * 4 // size, minlength=4) >= 3).all()


def classes(kinds: list[int], grid: Grid, lengths: list[int], samples: list[int]) -> Classes:
    """Streams of so many words for the kinds; ``kinds``: of each CTA."""

    def one(length: int) -> Class:
        stream = np.full(length, END, np.uint32)
        return Class(
            stream,
            np.zeros(1, np.int64),
            *(np.zeros(0, kind) for kind in (np.uint8, np.int64, np.uint8, np.uint32)),
            issued=length,
        )

    found = areas_of(lambda places: np.array(kinds)[places @ [1, grid[0], grid[0] * grid[1]]], grid, 1)
    firsts = np.cumsum([0, *samples]).tolist()
    streams = tuple(one(length) for length, count in zip(lengths, samples) for _ in range(count))
    return Classes(streams, (), {}, grid, areas=found, firsts=tuple(firsts))


@pytest.mark.parametrize("step", [1, 7, 64, 108, 128])
@pytest.mark.parametrize("working", [1, 2, 3, 16, 63])
def test_an_sm_has_its_part_of_the_working_ctas(working: int, step: int) -> None:
    """Columns of 64 by 64, whose number is a multiple of that of the SMs or not."""
    kinds = [int(number % 64 >= working) for number in range(4096)]
    made = classes(kinds, (64, 64, 1), [100, 2], [1, 1])
    ctas = -(-4096 // step)
    seen = made.on_sm(ctas, step, ctas)
    assert len(seen) == ctas and (seen == 0).sum() == -(-working * 64 // step)
    # Any part of them has as many, but for one or what a row has.
    parts = np.cumsum(seen == 0) - np.arange(1, ctas + 1) * working / 64
    assert (parts > -1).all() and (parts <= 1 + 64 / step).all()
    mean = (seen == 0).mean() * 100 + (seen == 1).mean() * 2
    assert made.work_of_sm(ctas, step, 1) == pytest.approx(mean)
    assert made.shares() @ [1, 0] == working / 64
    assert made.equal(4096) == pytest.approx((4096 - 64 * working) * 0.02 + 64 * working)


def test_ctas_that_start_at_once_stay_where_they_are() -> None:
    # of 16 CTAs on 4 SMs each fourth works: all are on one SM
    kinds = [int(number % 4 != 2) for number in range(16)]
    made = classes(kinds, (16, 1, 1), [50, 1], [1, 1])
    assert made.on_sm(4, 4, 4).tolist() == [0, 1, 1, 1]
    assert made.on_sm(4, 4, 4, 4).tolist() == [0, 0, 0, 0]


def test_samples_of_a_kind_alternate() -> None:
    kinds = [number // 200 for number in range(600)]
    made = classes(kinds, (600, 1, 1), [9, 6, 3], [2, 1, 3])
    seen = made.on_sm(600, 1, 600)
    assert np.bincount(seen).tolist() == [100, 100, 200, 67, 67, 66]
    assert not made.exact
    # in the order of the grid, if they are few
    assert made.on_sm(60, 10, 60).tolist() == [0, 1] * 10 + [2] * 20 + [3, 4, 5] * 6 + [3, 4]
    assert made.longest == 0


def test_only_ctas_that_touch_a_group_share_its_sectors() -> None:
    """Each row of eight by eight CTAs reads its own 32 sectors, and only three columns do."""
    sectors, moves = np.arange(32), (0, 256, 0)
    places = np.array([number for number in range(64) if number % 8 < 3])
    found = reuse_of(sectors, moves, (8, 8, 1), 6, places=places, ctas=len(places))
    assert (found.once, found.summed) == (2 * 32, 6 * 32)
    assert (found.once_of_all, found.summed_of_all) == (8 * 32, 24 * 32)
    every = reuse_of(sectors, moves, (8, 8, 1), 6)
    assert (every.once, every.once_of_all, every.summed_of_all) == (32, 8 * 32, 64 * 32)


HEAD = """.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .pred %p<6>; .reg .b32 %r<24>; .reg .f32 %f<8>; .reg .b64 %q<8>;
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b]; ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.x; mad.lo.u32 %r5, %r3, %r4, %r2;
mov.u32 %r6, %tid.x; mov.u32 %r7, %ntid.x; mad.lo.u32 %r8, %r5, %r7, %r6; add.u32 %r9, %r2, %r3;
"""
#: by guard: PTX that sets %p1 for CTAs that have nothing to do, and whether a CTA has something to do
IDLE: dict[str, tuple[str, Callable[[Places, Places, int, Grid], NDArray[np.bool_]]]] = {
    "x": ("setp.ge.u32 %p1, %r2, %r1;", lambda x, y, n, grid: x < n),
    "y": ("setp.ge.u32 %p1, %r3, %r1;", lambda x, y, n, grid: y < n),
    "not x": ("setp.lt.u32 %p1, %r2, %r1;", lambda x, y, n, grid: x >= n),
    "x and y": (
        "max.u32 %r10, %r2, %r3; setp.ge.u32 %p1, %r10, %r1;",
        lambda x, y, n, grid: (x < n) & (y < n),
    ),
    "triangle": ("setp.ge.u32 %p1, %r9, %r1;", lambda x, y, n, grid: x + y < n),
    "number": ("setp.ge.u32 %p1, %r5, %r1;", lambda x, y, n, grid: y * grid[0] + x < n),
}
NEVER = "setp.ne.u32 %p1, %r6, %r6;"
COPY = """mul.wide.u32 %q3, %r8, 16; add.u64 %q4, %q1, %q3; add.u64 %q5, %q2, %q3;
ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%q4]; st.global.v4.f32 [%q5], {%f1, %f2, %f3, %f4};"""
SUMS = (
    "mov.u32 %r10, 0;\nL:\n"
    + "\n".join(f"fma.rn.f32 %f{n % 4}, %f{n % 4}, %f5, %f6;" for n in range(96))
    + "\nadd.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 6;\n@%p2 bra L;\nst.global.f32 [%q1], %f1;"
)
CASES = [
    ("x", 1, (64, 64, 1)), ("x", 2, (64, 64, 1)), ("x", 15, (64, 64, 1)), ("x", 16, (64, 64, 1)), ("x", 17, (64, 64, 1)),
    ("x", 25, (64, 64, 1)), ("x", 62, (64, 64, 1)), ("x", 64, (64, 64, 1)), ("x", 7, (61, 67, 1)), ("x", 100, (256, 32, 1)),
    ("x", 300, (2048, 1024, 1)), ("y", 1, (64, 64, 1)), ("y", 16, (64, 64, 1)), ("y", 33, (61, 67, 1)), ("y", 5, (8, 600, 1)),
    ("y", 100, (2048, 2048, 1)), ("not x", 240, (256, 32, 1)), ("x and y", 16, (64, 64, 1)), ("x and y", 9, (61, 67, 1)),
    ("triangle", 40, (64, 64, 1)), ("triangle", 30, (61, 67, 1)), ("triangle", 900, (2048, 2048, 1)), ("number", 1000, (64, 64, 1)),
    ("number", 3333, (61, 67, 1)), ("number", 700, (4096, 1, 1)), ("number", 999, (4099, 1, 1)),
]  # fmt: skip


@cache
def estimated(guard: str, body: str, n: int, grid: Grid, assembled: bool = False) -> ge.Estimate:
    """The estimate of a launch of CTAs of 128 threads, of which one is executed. The second array contains ``n``."""
    device = ge.Device({"memory", "inputs"}, memory_bytes=1 << 30)
    text = f"{HEAD}{guard}\n@%p1 bra END;\n{body}\nEND:\nret;\n}}\n"
    given = [device.zeros(1 << 20, np.float32), device.array(np.full(1 << 10, n, np.uint32))]
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 128, [*given, n])
    record = profile.records[0]
    record = replace(record, plan=replace(record.plan, grid=grid))
    return simulated(
        record,
        load_machine("rtx-a6000"),
        expanded=None if assembled else replace(profile.resources, shared_bytes=0),
    )


def clocks(found: ge.Estimate, name: str) -> float:
    """A bound in clocks; the clock rate depends on what is busy."""
    return found.bounds[name] * found.cycles / (found.time_us - found.launch_us)


def working(kind: str, n: int, grid: Grid) -> int:
    x, y = np.meshgrid(np.arange(grid[0]), np.arange(grid[1]))
    return int(IDLE[kind][1](x, y, n, grid).sum())


@pytest.mark.parametrize(("kind", "n", "grid"), CASES)
def test_traffic_is_that_of_ctas_that_have_something_to_do(kind: str, n: int, grid: Grid) -> None:
    found, every = estimated(IDLE[kind][0], COPY, n, grid), estimated(NEVER, COPY, 0, grid)
    share = working(kind, n, grid) / prod(grid)
    # Stores of the whole grid open rows of DRAM more often than those of few CTAs.
    assert clocks(found, "dram") == pytest.approx(share * clocks(every, "dram"), rel=0.04)
    assert not any("CTAs differ" in note for note in found.notes)


@pytest.mark.parametrize(("kind", "n", "grid"), CASES[::2])
def test_the_sm_with_most_work_has_its_part_of_it(kind: str, n: int, grid: Grid) -> None:
    found, sms = estimated(IDLE[kind][0], SUMS, n, grid), load_machine("rtx-a6000").sm_count
    ends = [estimated(IDLE[kind][0], SUMS, bound, (sms, 1, 1)) for bound in (0, 1 << 30)]
    busy, ctas = (-(-count // sms) for count in (working(kind, n, grid), prod(grid)))
    none, each = sorted(clocks(end, "issue") for end in ends)
    assert clocks(found, "issue") == pytest.approx(busy * each + (ctas - busy) * none, rel=0.01)


#: The bound is in memory.
LOADED = "ld.global.u32 %r1, [%q2]; setp.ge.u32 %p1, %r2, %r1;"


@pytest.mark.parametrize(
    ("n", "grid"), [(5, (256, 32, 1)), (64, (256, 32, 1)), (200, (251, 33, 1)), (30, (4096, 1, 1))]
)
def test_guards_with_loaded_bounds(n: int, grid: Grid) -> None:
    found, known = estimated(LOADED, SUMS, n, grid), estimated(IDLE["x"][0], SUMS, n, grid)
    # each warp issues two instructions more
    ctas = -(-prod(grid) // load_machine("rtx-a6000").sm_count)
    assert clocks(known, "issue") <= clocks(found, "issue") <= 1.01 * clocks(known, "issue") + 3 * ctas


@needs_assembler
@pytest.mark.parametrize(("kind", "n", "grid"), CASES[2:8:2])
def test_guards_in_machine_code(kind: str, n: int, grid: Grid) -> None:
    found, sms = estimated(IDLE[kind][0], SUMS, n, grid, True), load_machine("rtx-a6000").sm_count
    ends = [estimated(IDLE[kind][0], SUMS, bound, (sms, 1, 1), True) for bound in (0, 1 << 30)]
    busy, ctas = (-(-count // sms) for count in (working(kind, n, grid), prod(grid)))
    none, each = sorted(clocks(end, "issue") for end in ends)
    assert clocks(found, "issue") == pytest.approx(busy * each + (ctas - busy) * none, rel=0.01)
