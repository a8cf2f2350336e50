"""Samples that stand for CTAs of different length: where they are, and which of them an SM runs. The expected values are arithmetic,
or those of a list schedule of all CTAs: each next one goes where a CTA ended first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.sm_records import END
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.sass.sm.areas import Areas, slabs_of, spread
from gpuperf_engine.sass.sm.classes import Classes
from gpuperf_engine.sass.sm.streams import Class
from tests.support import needs_assembler

Grid = tuple[int, int, int]
Floats = NDArray[np.float64]
GRIDS = [
    (64, 12, 8),
    (16, 12, 8),
    (8, 12, 1),
    (64, 1, 1),
    (1, 1, 999983),
    (61, 67, 1),
    (3, 5, 64),
    (4096, 1, 32),
    (2, 1000, 2),
]


@pytest.mark.parametrize("count", [2, 12, 64, 1024])
@pytest.mark.parametrize("grid", GRIDS)
def test_places_are_evenly_spread_along_each_axis(grid: Grid, count: int) -> None:
    found = spread(grid, count)
    numbers = found @ [1, grid[0], grid[0] * grid[1]]
    assert (np.diff(numbers) > 0).all() and len(found) == min(count, prod(grid))
    assert ((found >= 0) & (found < np.array(grid))).all()
    if prod(grid) < 16 * count:
        # others are in the place of those that were there already
        return
    for axis, size in enumerate(grid):
        ordered = np.sort(found[:, axis])
        parts = (np.arange(count) * size // count, -(-np.arange(1, count + 1) * size // count))
        assert ((ordered >= parts[0]) & (ordered < parts[1])).all()
        assert ordered.mean() == pytest.approx((size - 1) / 2)


@pytest.mark.parametrize("count", range(1, 28))
@pytest.mark.parametrize("grid", [(3, 3, 3), (2, 13, 1), (27, 1, 1), (1, 9, 3)])
def test_no_place_is_there_twice(grid: Grid, count: int) -> None:
    assert len(np.unique(spread(grid, count), axis=0)) == min(count, prod(grid))


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize(
    "grid", [(64, 64, 64), (128, 96, 1), (256, 1000, 1), (512, 1, 2048), (4096, 4096, 1), (1 << 20, 1, 1)]
)
def test_what_repeats_along_an_axis_is_seen(grid: Grid, period: int) -> None:
    found = spread(grid, 64)
    for axis in (axis for axis in range(3) if grid[axis] > 1):
        assert (np.bincount(found[:, axis] % period, minlength=period) >= 2).all()


def test_samples_stand_for_those_nearest_along_the_axis_that_decides() -> None:
    grid = (64, 12, 8)
    places = spread(grid, 12)
    for axis in (0, 1):
        # as another axis changes a little
        work = places[:, axis] * 10.0 + places[:, 2]
        slabs, kinds = slabs_of(grid, places, work)
        assert (slabs.of(places) == kinds).all() and slabs.count == 12
        counted = slabs.counted()
        assert counted.sum() == prod(grid)
        # the mean of what is linear
        assert counted @ (places[:, axis][np.argsort(kinds)]) / prod(grid) == pytest.approx(
            (grid[axis] - 1) / 2
        )
    # an axis of two: the six samples of each half stand for it
    places = spread((2, 500, 1), 12)
    slabs, kinds = slabs_of((2, 500, 1), places, np.where(places[:, 0] == 1, 50.0, 7.0))
    assert slabs.counted().tolist() == [500, 500] and (kinds == places[:, 0]).all()
    # all CTAs stand for themselves
    slabs, kinds = slabs_of((3, 2, 2), spread((3, 2, 2), 12), np.arange(12.0))
    assert slabs.counted().tolist() == [1] * 12 and kinds.tolist() == list(range(12))


WORK: dict[str, Callable[[NDArray[np.int64], int], NDArray[np.float64]]] = {
    "rising": lambda at, size: 20.0 + 200.0 * (at + 1) / size,
    "falling": lambda at, size: 20.0 + 200.0 * (size - at) / size,
    "middle": lambda at, size: 20.0 + 200.0 * np.exp(-((4.0 * at / size - 2.0) ** 2)),
}
UNEVEN: list[tuple[str, Grid]] = [
    *((name, (ctas, 1, 1)) for name in WORK for ctas in (1000, 3000)), ("rising", (64, 12, 8)), ("rising", (16, 12, 8)),
    ("rising", (32, 12, 2)), ("middle", (24, 40, 1)), ("falling", (8, 50, 3)),
]  # fmt: skip


def sampled(name: str, grid: Grid) -> tuple[Classes, Floats]:
    """Classes of twelve samples, and the work of each CTA of the grid. It depends on the first axis."""

    def one(length: int) -> Class:
        nothing = (np.zeros(0, kind) for kind in (np.uint8, np.int64, np.uint8, np.uint32))
        return Class(np.full(1, END, np.uint32), np.zeros(1, np.int64), *nothing, issued=length)

    places = spread(grid, 12)
    slabs, kinds = slabs_of(grid, places, WORK[name](places[:, 0], grid[0]))
    means = [float(WORK[name](places[kinds == kind, 0], grid[0]).mean()) for kind in range(slabs.count)]
    order = np.argsort(np.negative(means), kind="stable")
    firsts = tuple(range(slabs.count + 1))
    classes, slabs = tuple(one(round(means[kind])) for kind in order), slabs.named(np.argsort(order))
    made = Classes(classes, (), {}, grid, slabs=slabs, firsts=firsts, alike=False)
    return made, WORK[name](np.arange(prod(grid)) % grid[0], grid[0])


def listed(work: Floats, sms: int, resident: int) -> Floats:
    """The work of each SM, whose CTAs share it, in a list schedule."""
    running: list[list[float]] = [[] for _ in range(sms)]
    given, ends = np.zeros(sms), [0.0] * sms
    left = list(work[::-1])
    for sm in list(range(sms)) * resident:
        if left:
            running[sm].append(left.pop())
            given[sm] += running[sm][-1]
    events = [(min(ctas) * len(ctas), sm) for sm, ctas in enumerate(running) if ctas]
    heapq.heapify(events)
    while left:
        now, sm = heapq.heappop(events)
        ctas = running[sm]
        gone = min(ctas)
        running[sm] = [one - gone for one in ctas if one > gone]
        ends[sm] = now
        while left and len(running[sm]) < resident:
            running[sm].append(left.pop())
            given[sm] += running[sm][-1]
        heapq.heappush(events, (now + min(running[sm]) * len(running[sm]), sm))
    return given


@pytest.mark.parametrize("resident", [1, 2, 5])
@pytest.mark.parametrize(("name", "grid"), UNEVEN)
def test_an_sm_has_the_work_of_the_one_that_ends_last(name: str, grid: Grid, resident: int) -> None:
    made, work = sampled(name, grid)
    ctas = -(-prod(grid) // 82)
    seen = made.on_sm(ctas, 82, ctas, resident)
    most, mean, longest = listed(work, 82, resident).max(), work.sum() / 82, work.max()
    assert len(seen) == ctas
    # as much as the last CTAs add, give or take half of one; of five at once, those that end first are not always on the SM with least
    assert made.work[seen].sum() == pytest.approx(most, abs=(0.55 if resident < 5 else 1.1) * longest)
    assert made.work[seen].sum() > mean - 0.25 * longest
    # what is extrapolated from some waves is the same SM
    assert ctas * made.work_of_sm(ctas, 82, resident) == pytest.approx(
        made.work[seen].sum(), abs=0.5 * longest
    )


@pytest.mark.parametrize(("name", "grid"), UNEVEN)
def test_the_slowest_sm_if_all_ctas_start_at_once(name: str, grid: Grid) -> None:
    made, work = sampled(name, grid)
    for sms in (prod(grid), 700, 331, 96):
        ctas = -(-prod(grid) // sms)
        each = np.zeros(ctas * sms)
        each[: len(work)] = work
        most = each.reshape(ctas, sms).sum(axis=0).max()
        seen = made.on_sm(ctas, sms, ctas, ctas)
        assert made.work[seen].sum() == pytest.approx(most, rel=0.1)


ROUNDS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
.reg .b32 %r<16>; .reg .b64 %q<8>; .reg .f32 %f<4>; .reg .pred %p<4>;
.shared .align 16 .b8 tile[32768];
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r4, %r3, %r2, %r1;
mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; ld.global.u32 %r6, [%q4]; mov.f32 %f1, 0f00000000; mov.u32 %r5, 0;
N: fma.rn.f32 %f1, %f1, %f1, %f1;
fma.rn.f32 %f1, %f1, %f1, %f1;
fma.rn.f32 %f1, %f1, %f1, %f1;
fma.rn.f32 %f1, %f1, %f1, %f1;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r6;
@%p1 bra N;
add.s64 %q5, %q2, %q3; st.global.f32 [%q5], %f1;
ret;
}
"""


def cycles(rounds: NDArray[np.int64], grid: tuple[int, int], machine: Machine) -> float:
    """Of CTAs of a warp that waits for itself, three on an SM. ``rounds``: of the loop of each CTA."""
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 26)
    given = device.array(rounds.astype(np.uint32)), device.zeros(len(rounds), np.float32)
    profile = device.launch(ge.parse(ROUNDS, path="own.ptx")["k"], grid, 32, list(given))
    found = ge.estimate(profile, machine, model="simulation")
    assert found.model == "simulation" and found.ctas_per_sm == 3
    return found.cycles


@needs_assembler
@pytest.mark.parametrize(
    ("grid", "axis"), [((16, 6), 0), ((16, 20), 0), ((8, 2), 0), ((10, 9), 0), ((6, 40), 1), ((300, 1), 0)]
)
@pytest.mark.parametrize("falling", [False, True])
def test_launches_end_with_their_last_cta(grid: tuple[int, int], axis: int, falling: bool) -> None:
    """Each slot of an SM is a queue of its own, as CTAs take no time from one another."""
    number = np.arange(prod(grid))
    at = (number % grid[0], number // grid[0])[axis]
    rounds = 40 + 400 * ((grid[axis] - 1 - at) if falling else at) // grid[axis]
    machine = replace(load_machine("rtx-a6000"), sm_count=8)
    short, long = (cycles(np.full(1, count), (1, 1), machine) for count in (40, 440))
    each = (long - short) / 400
    slots = [0.0] * 24
    for count in rounds:
        heapq.heapreplace(slots, slots[0] + short + (count - 40) * each)
    found = cycles(rounds, grid, machine)
    assert found == pytest.approx(max(slots), rel=0.1)


def test_the_kinds_of_many_places_are_those_of_few() -> None:
    """Also outside the grid, and where there is no box."""
    grid = (7, 3, 2)
    starts, ends = np.array([[0, 0, 0], [2, 0, 0], [0, 1, 1]]), np.array([[2, 3, 1], [7, 2, 2], [1, 3, 2]])
    areas = Areas(grid, starts, ends, np.array([2, 0, 1]), 3)
    places = np.stack(np.meshgrid(*(np.arange(-1, size + 1) for size in grid)), axis=-1).reshape(-1, 3)
    few = np.concatenate([areas.of(place[None]) for place in places])
    assert areas.of(places).tolist() == few.tolist()
    assert set(few.tolist()) == {-1, 0, 1, 2}
