"""Accesses at addresses that are computed in all threads before a launch that is repeated: what of them needs no check."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.jit.ir.race_records import Race as Layout
from gpuperf_engine.jit.races.checks import race_flags

#: %r0 … %r3: %tid, %ctaid, %ntid, and the number of the thread among all; %r5 … %r7: numbers that are given
HEAD = """.version 8.0
.target sm_80
.address_size 64
.global .u32 table[16384];
.visible .entry k(.param .u64 to, .param .u64 from, .param .u64 dump, .param .u32 a, .param .u32 b, .param .u32 c) {
.reg .b32 %r<24>; .reg .b64 %rd<9>; .reg .pred %p<5>; .reg .b16 %h<4>;
ld.param.u64 %rd0, [to]; ld.param.u64 %rd1, [from]; ld.param.u64 %rd5, [dump];
ld.param.u32 %r5, [a]; ld.param.u32 %r6, [b]; ld.param.u32 %r7, [c];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
"""
LOAD = "mul.wide.u32 %rd2, {0}, 4; add.u64 %rd2, %rd1, %rd2; ld.global.u32 {1}, [%rd2];"
AT = "mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd0, %rd4;"
STORE = f"{AT} st.global.u32 [%rd4], %r3;"
SUM = f"{AT} ld.global.u32 %r9, [%rd4]; add.u32 %r9, %r9, 1; st.global.u32 [%rd4], %r9;"
TRANSPOSE = "div.u32 %r8, %r3, %r5; rem.u32 %r4, %r3, %r5; mad.lo.u32 %r4, %r4, %r6, %r8;"
GUARD = "mul.lo.u32 %r10, %r5, %r6; setp.ge.u32 %p0, %r3, %r10; @%p0 bra END;"
GRID, BLOCK = 80, 64
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
    """Launches of one kernel on one device."""

    def __init__(self, body: str, index: NDArray[np.uint32] | None = None, words: int = 4 * COUNT) -> None:
        self.device = ge.Device(observe=set(), memory_bytes=1 << 20)
        self.kernel = ge.parse(f"{HEAD}{body}\nEND: ret; }}\n", path="k.ptx")["k"]
        self.to = self.device.zeros(words, np.uint32, name="to")
        self.index = self.device.array(np.arange(COUNT, dtype=np.uint32) if index is None else index)
        self.dump = self.device.zeros(COUNT, np.uint32)

    def run(self, *numbers: int, grid: int = GRID) -> set[tuple[str, int, int]]:
        """Kinds of races with their blocks."""
        given = [self.to, self.index, self.dump, *numbers, *(0,) * (3 - len(numbers))]
        races = self.device.launch(self.kernel, grid, BLOCK, given).races
        return {(race.kind, race.first.block[0], race.second.block[0]) for race in races}

    def thrice(self, *numbers: int) -> set[tuple[str, int, int]]:
        """The same, of three launches that are the same."""
        found = [self.run(*numbers) for _ in range(3)]
        assert found[0] == found[1] == found[2]
        return found[0]


def bits(flags: Flags) -> int:
    return int(np.bitwise_or.reduce(flags[-1])) & (AMONG | WITHIN)


#: bodies with the numbers that they are given: each thread, or each warp, has elements of its own
APART = {
    "transposed": (TRANSPOSE + STORE, (64, 80)),
    "transposed, loaded and stored": (TRANSPOSE + SUM, (80, 64)),
    "a part of the threads": (GUARD + TRANSPOSE + STORE, (61, 79)),
    "by its own guard": ("setp.lt.u32 %p0, %r3, %r7; rem.u32 %r4, %r3, %r7;" + STORE.replace("st.", "@%p0 st."), (0, 0, 5000)),
    "bits turned round": ("brev.b32 %r4, %r3; shr.u32 %r4, %r4, 19;" + STORE, ()),
    "a hash": ("mul.lo.u32 %r4, %r3, %r5; and.b32 %r4, %r4, 8191; xor.b32 %r4, %r4, 5;" + STORE, (2741,)),
    "half as many, by shorter types": (
        "cvt.u16.u32 %h0, %r3; shl.b16 %h0, %h0, 1; xor.b16 %h0, %h0, 5; cvt.u32.u16 %r4, %h0;" + STORE, ()),
    "an index that is changed": (LOAD.format("%r3", "%r4") + "xor.b32 %r4, %r4, 5;" + STORE, ()),
    "an index of an index": (LOAD.format("%r3", "%r4") + LOAD.format("%r4", "%r4") + "xor.b32 %r4, %r4, 1;" + STORE, ()),
    "one of two sides": (
        "and.b32 %r8, %r3, 1; setp.eq.u32 %p0, %r8, 0; @%p0 bra EVEN; rem.u32 %r4, %r3, %r5; add.u32 %r4, %r4, 8000; bra ON;\n"
        "EVEN: sub.u32 %r4, %r5, %r3;\nON:" + STORE, (COUNT,)),
    "one that may be another one": (
        "rem.u32 %r4, %r3, %r5; and.b32 %r8, %r3, 1; setp.eq.u32 %p0, %r8, 0; @%p0 add.u32 %r4, %r4, 8000;" + STORE, (COUNT,)),
    "a loop over the grid": (
        "mov.u32 %r11, %nctaid.x; mul.lo.u32 %r11, %r11, %r2; mov.u32 %r12, %r3; setp.ge.u32 %p0, %r12, %r7; @%p0 bra END;\n"
        "LOOP: xor.b32 %r4, %r12, 5;" + SUM + "add.u32 %r12, %r12, %r11; setp.lt.u32 %p0, %r12, %r7; @%p0 bra LOOP;",
        (0, 0, 3 * COUNT - 8)),
    "a loop that is tested first": (
        "mov.u32 %r11, %nctaid.x; mul.lo.u32 %r11, %r11, %r2; mov.u32 %r12, %r3; mov.u32 %r13, 0;\n"
        "LOOP: setp.ge.u32 %p0, %r12, %r7; @%p0 bra END; xor.b32 %r4, %r13, %r3; xor.b32 %r4, %r4, 5;" + STORE
        + "add.u32 %r12, %r12, %r11; add.u32 %r13, %r13, 8192; bra LOOP;", (0, 0, 2 * COUNT)),
    "a variable": (
        "mov.u64 %rd0, table; brev.b32 %r4, %r3; shr.u32 %r4, %r4, 19;" + STORE, ()),
    "elements of the same thread": (
        TRANSPOSE + "shl.b32 %r4, %r4, 1;" + STORE + "st.global.u32 [%rd4+4], %r0; ld.global.v2.u32 {%r8, %r9}, [%rd4];", (64, 80)),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_each_warp_has_alone_needs_no_check(name: str, flags: Flags) -> None:
    body, numbers = APART[name]
    launches = Launches(body)
    assert launches.thrice(*numbers) == set()
    assert [bits([item]) != 0 for item in flags] == [True, True, False]
    # and the fourth is not looked at again
    assert launches.run(*numbers) == set()
    assert flags[-1] is flags[-2]


#: the same with what makes two blocks meet: which kinds
SHARED = {
    "too narrow": (TRANSPOSE + STORE, (64, 79), {"WAW"}),
    "another part of the threads": (GUARD.replace("ge", "gt") + TRANSPOSE + STORE, (61, 79), {"WAW"}),
    "the other side": (
        "and.b32 %r8, %r3, 1; setp.eq.u32 %p0, %r8, 0; @%p0 bra EVEN; add.u32 %r4, %r3, 1279; bra ON;\n"
        "EVEN: sub.u32 %r4, %r5, %r3;\nON:"
        + STORE, (COUNT,), {"WAW"}),
    "the neighbour is read": (TRANSPOSE + STORE + "ld.global.u32 %r9, [%rd4+4];", (64, 80), {"RAW", "WAR"}),
    "a loop that goes on too long": (
        "mov.u32 %r12, %r3; LOOP: xor.b32 %r4, %r12, 5;" + STORE
        + "add.u32 %r12, %r12, 2560; setp.lt.u32 %p0, %r12, %r7; @%p0 bra LOOP;", (0, 0, COUNT), {"WAW"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_what_two_blocks_have_is_found(name: str, flags: Flags) -> None:
    body, numbers, kinds = SHARED[name]
    found = Launches(body).thrice(*numbers)
    assert {kind for kind, *_ in found} <= kinds
    assert found
    assert bits(flags) != 0


def test_blocks_are_apart_but_not_the_warps_of_each(flags: Flags) -> None:
    launches = Launches("rem.u32 %r4, %r0, 32; mad.lo.u32 %r4, %r1, 32, %r4; xor.b32 %r4, %r4, 5;" + STORE)
    assert launches.thrice() == {("WAW", 0, 0)}
    assert bits(flags) == WITHIN


def test_what_is_loaded_is_compared_at_each_launch(flags: Flags) -> None:
    """Two threads that are given one index race, as soon as they are."""
    launches, index = Launches(APART["an index that is changed"][0]), np.arange(COUNT, dtype=np.uint32)
    assert launches.thrice() == set()
    assert bits(flags) == 0
    index[70 * BLOCK] = index[20 * BLOCK]
    launches.index.copy_from(index)
    assert launches.thrice() == {("WAW", 20, 70)}
    launches.index.copy_from(np.arange(COUNT, dtype=np.uint32))
    assert launches.thrice() == set()
    assert bits(flags) == 0


def test_a_condition_that_depends_on_what_is_stored_is_no_condition(flags: Flags) -> None:
    """Who comes there is not known before the launch: both are taken to."""
    body = "ld.global.u32 %r8, [%rd5]; setp.ne.u32 %p0, %r8, 0; @%p0 bra END; rem.u32 %r4, %r3, %r5;"
    launches = Launches(body + STORE + "st.global.u32 [%rd5], %r5;")
    launches.dump.copy_from(np.ones(COUNT, np.uint32))
    assert launches.thrice(2) == set()
    assert bits(flags) == AMONG | WITHIN


OPERATIONS = (
    "add.u32 {d}, {a}, {b};", "sub.u32 {d}, {a}, {b};", "mul.lo.u32 {d}, {a}, {k};", "xor.b32 {d}, {a}, {k};",
    "shr.u32 {d}, {a}, {s};", "shl.b32 {d}, {a}, {s};", "div.u32 {d}, {a}, {k};", "rem.u32 {d}, {a}, {k};", "brev.b32 {d}, {a};",
    "min.u32 {d}, {a}, {b};", "max.s32 {d}, {a}, {b};", "setp.lt.u32 %p0, {a}, {b}; selp.b32 {d}, {a}, {b}, %p0;",
    "and.b32 {d}, {a}, {k};", "popc.b32 {d}, {a};", "setp.gt.s32 %p0, {a}, {k}; @%p0 mov.u32 {d}, {b};", "bfe.u32 {d}, {a}, {s}, 9;",
    "mad.lo.s32 {d}, {a}, {k}, {b};", "not.b32 {d}, {a};", "prmt.b32 {d}, {a}, {b}, 0x2143;",
    "setp.ne.u32 %p0, {a}, {k}; @%p0 bra S{n}; add.u32 {d}, {a}, 77; S{n}:",
)  # fmt: skip


def test_random_addresses(flags: Flags) -> None:
    """Kernels that store where random operations lead, and tell where that was: elements are no one else's where NumPy says so."""
    made = random.Random(4)
    told: Counter[tuple[bool, bool]] = Counter()
    for number in range(40):
        registers = ["%r3", "%r0", "%r1", "%r14", "%r15", "%r16"]
        body = LOAD.format("%r3", "%r14") + "mov.u32 %r15, %r3; mov.u32 %r16, %r0;"
        for step in range(made.choice((1, 2, 3))):
            body += made.choice(OPERATIONS).format(
                d=made.choice(registers[3:]), a=made.choice(registers), b=made.choice(registers), n=step,
                k=made.choice((3, 5, 64, 80, 641, 2741, 5119)), s=made.choice((1, 3, 6)),
            )  # fmt: skip
        body += f"rem.u32 %r4, {made.choice(registers[3:])}, {made.choice((16384, 16381))}; mov.u32 %r17, -1;"
        body += f"setp.lt.u32 %p1, {made.choice(registers)}, {made.choice((COUNT, 4000, 3))}; @!%p1 bra OUT; mov.u32 %r17, %r4;"
        dump = "mul.wide.u32 %rd6, %r3, 4; add.u64 %rd6, %rd5, %rd6; st.global.u32 [%rd6], %r17;"
        index = np.random.default_rng(number).permutation(COUNT).astype(np.uint32)
        launches = Launches(f"{body}{STORE}\nOUT: {dump}", index, 16384)
        found = launches.thrice()
        places = launches.dump.numpy()
        threads = np.flatnonzero(places != 0xFFFFFFFF)
        by_warp = {*zip(places[threads].tolist(), (threads // 32).tolist())}
        by_block = {(place, warp // (BLOCK // 32)) for place, warp in by_warp}
        within = len(by_warp) == len({place for place, _ in by_warp})
        among = len(by_block) == len({place for place, _ in by_block})
        assert bool(found) == (not within)
        proven = bits(flags) & AMONG == 0, bits(flags) & WITHIN == 0
        assert proven <= (among, within)
        assert not proven[0] or among
        assert not proven[1] or within
        told[(proven == (among, within), within)] += 1
    # what is apart is proved, if linear forms have not told already
    assert told[False, True] == 0
    assert told[True, True] > 5
    assert told[True, False] + told[False, False] > 5
