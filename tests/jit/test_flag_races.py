"""Words that many threads set to the same: what of it is checked, and what is found where one of them sets another value."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.races.checks import race_flags

#: %r0 … %r3: %tid, %ctaid, its warp and 0, which no compiler knows; %rd0: an array that is only stored to
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 flags, .param .u64 zero, .param .u32 step) {
.reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .b16 %h<3>; .reg .f32 %f<3>; .reg .pred %p<4>;
ld.param.u64 %rd0, [flags]; ld.param.u64 %rd1, [zero]; ld.param.u32 %r4, [step];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shr.u32 %r2, %r0, 5; ld.global.u32 %r3, [%rd1]; mov.u32 %r5, 1; mov.u16 %h0, 1;
mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd0, %rd2; mov.f32 %f0, 0f3F800000; mov.u32 %r6, 16843009;
"""
BEFORE = HEAD.count("\n")
#: stores that need no check among blocks, nor among warps: all store the same
SAME = {
    "a word": "st.global.u32 [%rd2], %r5;",
    "an immediate": "st.global.u32 [%rd2], 7;",
    "a parameter": "st.global.u32 [%rd2], %r4;",
    "a float": "st.global.f32 [%rd2], %f0;",
    "a byte": "st.global.u8 [%rd2], %h0;",
    "a pair": "st.global.v2.u32 [%rd2], {%r5, %r5};",
    "two stores": "st.global.u32 [%rd2], %r5; setp.eq.u32 %p0, %r0, 9; @%p0 st.global.u32 [%rd2+8], 1;",
    "bytes and words": "st.global.u32 [%rd2], 0; mov.u16 %h1, 0; st.global.u8 [%rd2+1], %h1;",
    "a pattern": "st.global.u32 [%rd2], %r6; st.global.u8 [%rd2], %h0;",
}
#: those that need one
CHECKED = {
    "the thread": "st.global.u32 [%rd2], %r0;",
    "two values": "st.global.u32 [%rd2], %r5; st.global.u32 [%rd2+4], 2;",
    "a pair of two": "st.global.v2.u32 [%rd2], {%r5, %r4};",
    "other sizes": "st.global.u32 [%rd2], %r5; st.global.u8 [%rd2], %h0;",
    "a load, too": "st.global.u32 [%rd2], %r5; ld.global.u32 %r7, [%rd2+64];",
    "an atomic, too": "st.global.u32 [%rd2], %r5; red.global.add.u32 [%rd2+64], 1;",
    "one of two": "setp.lt.u32 %p0, %r0, 9; mov.u32 %r7, 1; @%p0 mov.u32 %r7, 2; st.global.u32 [%rd2], %r7;",
    "halves of a register": "mov.b32 {%h0, %h1}, %r6; st.global.u16 [%rd2], %h1;",
}


def launched(body: str, grid: int = 8, block: int = 256) -> ge.Profile:
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    kernel = ge.parse(f"{HEAD}{body}\nret; }}\n", path="k.ptx")["k"]
    arrays = device.zeros(1024, np.uint32), device.zeros(1, np.uint32)
    return device.launch(kernel, grid, block, [*arrays, 5])


def flags(body: str, **shape: int) -> list[tuple[bool, bool]]:
    """Of each site in the array, whether it is checked among blocks, and among warps."""
    record = launched(body, **shape).records[0]
    found = race_flags(record.program, record.plan, ge.Device(memory_bytes=1 << 20).memory)
    return [(bool(bits & 16), bool(bits & 128)) for bits in found[1 : len(record.program.sites)].tolist()]


@pytest.mark.parametrize("name", SAME)
def test_stores_of_one_value_are_not_checked(name: str) -> None:
    assert {*flags(SAME[name])} == {(False, False)}


@pytest.mark.parametrize("name", CHECKED)
def test_what_may_store_several_values_is_checked(name: str) -> None:
    assert (True, True) in flags(CHECKED[name])


#: two accesses of one array, of which the ranges are known, and whether each is checked among blocks
PLACES = {
    "a load of another word": ("st.global.u32 [%rd0], %r0; ld.global.u32 %r7, [%rd0+4];", (True, False)),
    "a load of the word": ("st.global.u32 [%rd0], %r0; ld.global.u32 %r7, [%rd0];", (True, True)),
    "a load of a part": (
        "st.global.v4.u32 [%rd0], {%r0, %r0, %r0, %r0}; ld.global.u8 %r7, [%rd0+15];",
        (True, True),
    ),
    "words side by side": (
        "st.global.v4.u32 [%rd0], {%r0, %r0, %r0, %r0}; ld.global.u8 %r7, [%rd0+16];",
        (True, False),
    ),
    "a counter": ("red.global.add.u32 [%rd0], %r5; st.global.u32 [%rd0+4], %r0;", (False, True)),
    "a counter of the block": (
        "red.relaxed.cta.global.add.u32 [%rd0], %r5; st.global.u32 [%rd0+4], 1;",
        (True, False),
    ),
    "rows of all": (
        "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3+1024], %r1; ld.global.u32 %r7, [%rd3];",
        (True, False),
    ),
    "rows that overlap": (
        "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3+1020], %r1; ld.global.u32 %r7, [%rd3];",
        (True, True),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_in_one_array(name: str) -> None:
    body, checked = PLACES[name]
    assert tuple(among for among, _ in flags(body)) == checked
    kinds = {race.kind for race in launched(body).races}
    assert kinds == {"WAW"} | ({"RAW", "WAR"} if checked == (True, True) else set())


def test_a_value_of_the_block_is_checked_among_blocks() -> None:
    assert flags("st.global.u32 [%rd2], %r1;") == [(True, False)]
    assert flags("mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3], %r1;") == [
        (False, False)
    ]


@pytest.mark.parametrize("different", [0, 3, 5, 30, 31])
@pytest.mark.parametrize("kind", ["u32", "v2", "red"])
def test_one_warp_that_stores_another_value(different: int, kind: str) -> None:
    """The value is read from memory, so each store is looked at; 32 warps of one block store it but one."""
    store = {
        "u32": "st.global.u32 [%rd2], %r7;",
        "v2": "st.global.v2.u32 [%rd2], {%r7, %r7};",
        "red": "setp.ne.u32 %p1, %r2, DIFFERENT; @%p1 red.global.add.u32 [%rd2], %r7;\n@!%p1 st.global.u32 [%rd2], %r7;",
    }[kind].replace("DIFFERENT", str(different))
    body = f"setp.eq.u32 %p0, %r2, {different}; selp.u32 %r7, 9, %r3, %p0;\n{store}"
    profile = launched(body, grid=1, block=1024)
    assert profile.races and {race.kind for race in profile.races} == {"WAW"}
    for race in profile.races:
        warps = [access.thread[0] // 32 for access in (race.first, race.second)]
        assert different in warps and warps[0] != warps[1]


def test_all_warps_store_what_one_has_loaded() -> None:
    """Of a warp that loads the word before it stores there, the first one has loaded before the others store, others after that."""
    store = "add.u32 %r7, %r3, 3; st.global.u32 [%rd2], %r7; st.global.u32 [%rd2+4], %r7;\n"
    assert launched(store, grid=1, block=1024).races == ()
    for warp in (0, 17, 31):
        load = f"setp.eq.u32 %p0, %r2, {warp}; @%p0 ld.global.u32 %r8, [%rd2+4];\n"
        found = {
            (race.kind, *(int(item.location.split(":")[1]) - BEFORE for item in (race.first, race.second)))
            for race in launched(load + store, grid=1, block=1024).races
        }
        assert found == {*[("RAW", 2, 1)] * (warp > 0), *[("WAR", 1, 2)] * (warp < 31)}


def test_an_address_of_what_has_no_source() -> None:
    """Lanes that are on are in no index that is known: all blocks store their mask, in full, to the same word."""
    body = "activemask.b32 %r7; and.b32 %r8, %r7, 4; mul.wide.u32 %rd3, %r8, 4; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3], %r1;"
    (race,) = launched(body, grid=8, block=32).races
    assert race.kind == "WAW" and race.first.block != race.second.block
