"""Accesses at addresses that depend on indices in memory: what of them needs no check, as no two indices are the same."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.race_records import Race as Layout
from gpuperf_engine.jit.races.checks import race_flags

#: %r0 … %r3: %tid, %ctaid, %ntid, and the number of the thread among all; %rd2: where its index lies; %rd0: an array of as many words
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from, .param .u32 count) {
.reg .b32 %r<12>; .reg .b64 %rd<9>; .reg .pred %p<3>;
ld.param.u64 %rd0, [to]; ld.param.u64 %rd1, [from]; ld.param.u32 %r10, [count];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3;
"""
AT = "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd0, %rd4;"
ELEMENT = f"ld.global.u32 %r4, [%rd2]; {AT}"
ROW = f"ld.global.u32 %r4, [%rd3]; mad.lo.u32 %r4, %r4, %r2, %r0; {AT}"
STORE = "st.global.u32 [%rd4], %r3;"
SUM = f"ld.global.u32 %r5, [%rd4]; add.u32 %r5, %r5, %r3; {STORE}"
GRID, BLOCK = 160, 64
COUNT = GRID * BLOCK
AMONG, WITHIN = Layout.AMONG, Layout.WITHIN

Flags = list[NDArray[np.uint16]]


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Flags:
    """Those of each launch, by site."""
    seen: Flags = []

    def noted(*given: object) -> NDArray[np.uint16]:
        seen.append(race_flags(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr("gpuperf_engine.jit.races.memory.race_flags", noted)
    return seen


class Launches:
    """Launches of one kernel on one device. ``index``: what it loads, elements of any type."""

    def __init__(self, body: str, index: NDArray[np.generic], words: int = 4 * COUNT) -> None:
        self.device = ge.Device(observe=set(), memory_bytes=1 << 22)
        self.kernel = ge.parse(f"{HEAD}{body}\nret; }}\n", path="k.ptx")["k"]
        self.to, self.index = self.device.zeros(words, np.uint32, name="to"), self.device.array(index)

    def run(self, grid: int = GRID, count: int = COUNT) -> set[tuple[str, int, int]]:
        """Kinds of races with their blocks."""
        races = self.device.launch(self.kernel, grid, BLOCK, [self.to, self.index, count]).races
        return {(race.kind, race.first.block[0], race.second.block[0]) for race in races}


def permutation(count: int = COUNT) -> NDArray[np.uint32]:
    return np.random.default_rng(5).permutation(count).astype(np.uint32)


def bits(flags: Flags) -> int:
    return int(np.bitwise_or.reduce(flags[-1])) & (AMONG | WITHIN)


@pytest.mark.parametrize(
    ("body", "index"),
    [
        (ELEMENT + STORE, permutation()),
        (ELEMENT + SUM, permutation()),
        (f"{ELEMENT}{SUM} bar.sync 0;" * 2, permutation()),
        (ROW + SUM, permutation(GRID)),
        (ELEMENT.replace("u32 %r4, [", "s32 %r4, [") + SUM, permutation()),
        # a bulk of numbers that is not dense, from somewhere on
        (ELEMENT + STORE, 3 * permutation() + 17),
        # pairs and what lies in them
        (ELEMENT.replace("%r4, 4", "%r4, 8") + "st.global.u32 [%rd4], %r3; st.global.u32 [%rd4+4], %r3;", permutation()),
        (ELEMENT.replace("%r4, 4", "%r4, 8") + "st.global.v2.u32 [%rd4], {%r3, %r3};", permutation()),
        # 64 bits; every second element, the others are 0
        ("shl.b64 %rd2, %rd2, 1; sub.u64 %rd2, %rd2, %rd1; ld.global.u64 %rd5, [%rd2]; shl.b64 %rd5, %rd5, 2;"
         "add.u64 %rd4, %rd0, %rd5;" + STORE, permutation().astype(np.uint64)),
        ("shl.b64 %rd2, %rd2, 1; sub.u64 %rd2, %rd2, %rd1;" + ELEMENT + STORE, permutation().astype(np.uint64)),
        # two indices of each thread
        ("shl.b64 %rd2, %rd2, 1; sub.u64 %rd2, %rd2, %rd1;" + ELEMENT + STORE + ELEMENT.replace("rd2", "rd2+4") + STORE,
         permutation(2 * COUNT)),
    ],
)  # fmt: skip
def test_distinct_indices_need_no_check(body: str, index: NDArray[np.generic], flags: Flags) -> None:
    assert Launches(body, index).run() == set()
    assert bits(flags) == 0


@pytest.mark.parametrize(
    ("body", "index"),
    [
        # neighbours, which may be the same
        (ELEMENT + STORE + ELEMENT.replace("rd2]", "rd2+4]") + STORE, np.append(permutation(), np.uint32(COUNT))),
        # more bytes than lie between two elements
        (ELEMENT + STORE + "st.global.u32 [%rd4+4], %r3;", 2 * permutation()),
        # rows that are shorter than blocks
        (ROW.replace("%r2,", "32,") + STORE, permutation(GRID)),
        # what is loaded decides less than the place
        (ELEMENT.replace("%r4, 4", "%r4, 4; and.b64 %rd4, %rd4, 1020") + STORE, permutation()),
        ("ld.global.u32 %r4, [%rd2]; ld.global.u32 %r5, [%rd3]; sub.u32 %r4, %r4, %r5; add.u32 %r4, %r4, 20000;" + AT + STORE,
         permutation()),
        # elements that all threads load
        (f"ld.global.u32 %r4, [%rd1]; {AT} {STORE}", permutation()),
        (f"ld.global.u32 %r4, [%rd3]; {AT} {STORE}", permutation()),
        # an array that is stored to
        (ELEMENT + STORE + "st.global.u32 [%rd2], %r4;", permutation()),
        # another access of the array
        (ELEMENT + STORE + "ld.global.u32 %r5, [%rd0];", permutation()),
    ],
)  # fmt: skip
def test_what_may_be_at_one_place_is_checked(body: str, index: NDArray[np.generic], flags: Flags) -> None:
    Launches(body, index).run()
    assert bits(flags) != 0


def test_rows_of_blocks_and_elements_of_threads(flags: Flags) -> None:
    """Two blocks that are given one row; then the threads of each block are still apart."""
    index = permutation(GRID)
    index[100] = index[20]
    assert Launches(ROW + STORE, index).run() == {("WAW", 20, 100)}
    assert bits(flags) == AMONG


def test_elements_that_are_the_same(flags: Flags) -> None:
    launches, index = Launches(ELEMENT + STORE, permutation()), permutation()
    assert launches.run() == set()
    index[90 * BLOCK] = index[40 * BLOCK]
    launches.index.copy_from(index)
    for _ in range(2):
        assert launches.run() == {("WAW", 40, 90)}
    launches.index.copy_from(permutation())
    for _ in range(2):
        assert launches.run() == set()
    assert [bits([item]) != 0 for item in flags] == [False, True, True, False, False]


def test_a_launch_that_changes_indices(flags: Flags) -> None:
    """The kernel is the same, and what its launches are given; between them another one stores to the array."""
    launches = Launches(ELEMENT + STORE, permutation())
    change = ge.parse(f"{HEAD} mov.u32 %r4, 7; st.global.u32 [%rd2], %r4; ret; }}\n", path="c.ptx")["k"]
    assert launches.run() == set()
    launches.device.launch(change, 2, BLOCK, [launches.to, launches.index, COUNT])
    assert launches.run() == {("WAW", 0, 1), ("WAW", 0, 0)}
    assert bits(flags) != 0


def test_indices_behind_those_that_are_loaded(flags: Flags) -> None:
    """Only blocks that run load; the last one leaves out what lies behind the array."""
    guarded = f"setp.lt.u32 %p0, %r3, %r10; @!%p0 bra END; {ELEMENT}{STORE} END:"
    index = permutation()
    index[COUNT // 2 :] = 0
    launches = Launches(guarded, index)
    assert launches.run(grid=GRID // 2) == set()
    assert bits(flags) == 0
    launches = Launches(guarded, permutation(COUNT - 7))
    assert launches.run(count=COUNT - 7) == set()
    assert bits(flags) == 0
    # another array may lie behind this one
    launches = Launches(guarded, permutation(COUNT - 7))
    launches.device.zeros(4, np.uint32)
    assert launches.run(count=COUNT // 2) == set()


def test_a_loop_over_indices(flags: Flags) -> None:
    body = f"""setp.ge.u32 %p0, %r3, %r10; @%p0 bra END;
    LOOP: mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2; {ELEMENT}{SUM}
    add.u32 %r3, %r3, {COUNT // 4}; setp.lt.u32 %p0, %r3, %r10; @%p0 bra LOOP; END:"""
    assert Launches(body, permutation()).run(grid=GRID // 4) == set()
    assert bits(flags) == 0
    index = permutation()
    index[COUNT - 1] = index[0]
    found = Launches(body, index).run(grid=GRID // 4)
    assert found == {(kind, 0, GRID // 4 - 1) for kind in ("RAW", "WAR", "WAW")}
