"""What orders accesses of shared memory, and of global memory by several blocks, and what is told where nothing does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.addresses.disjoint import Form, are_apart, are_threads_apart, are_values_apart
from gpuperf_engine.jit.runtime_libraries import load_races

HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<10>; .reg .b16 %h<4>;
.shared .align 16 .b8 sm[4096]; .shared .align 8 .b64 bar; .shared .b32 flag;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r0, 2; mov.u32 %r3, sm; add.u32 %r4, %r3, %r2;
xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0;
ld.param.u64 %rd0, [data]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1; mov.u32 %r6, bar; mov.u32 %r7, flag;
"""
#: lines of the text before the body
BEFORE = HEAD.count("\n")
OTHER = "ld.shared.u32 %r9, [%r5];"
INIT = "@%p0 mbarrier.init.shared.b64 [%r6], 64;\n@%p0 st.shared.u32 [%r7], 0;\nbar.sync 0;\n"
WAIT = "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra wait;\n"
ARRIVE = "mbarrier.arrive.relaxed.cta.shared.b64 %rd2, [%r6];\n"
RELAXED_WAIT = WAIT.replace("parity", "parity.relaxed.cta")
#: the second warp waits until the flag is set
SPIN = "@%p1 bra done;\nspin: ld.{0}.shared.u32 %r9, [%r7]; setp.eq.u32 %p2, %r9, 0; @%p2 bra spin;\n"
COPY = "cp.async.ca.shared.global [%r4], [%rd1], 4;\n"
BULK = (
    "@%p0 mbarrier.init.shared.b64 [%r6], 1;\nbar.sync 0;\n"
    "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 256;\n"
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd0], 256, [%r6];\n"
)

ORDERED = {
    "a barrier": f"st.shared.u32 [%r4], %r0; bar.sync 0; {OTHER}",
    "a barrier with a result": f"st.shared.u32 [%r4], %r0; barrier.red.popc.u32 %r8, 0, %p0; {OTHER}",
    "a barrier of so many threads": f"st.shared.u32 [%r4], %r0; bar.sync 3, 64; {OTHER}",
    "one arrives, one waits": "@!%p1 bra second;\nst.shared.u32 [%r4], %r0; bar.arrive 1, 64; bra done;\n"
    f"second: bar.sync 1, 64; {OTHER}\ndone:",
    "an mbarrier": f"{INIT}st.shared.u32 [%r4], %r0; mbarrier.arrive.shared.b64 %rd2, [%r6];\n{WAIT}{OTHER}",
    "a relaxed mbarrier between fences": f"{INIT}st.shared.u32 [%r4], %r0; fence.acq_rel.cta; {ARRIVE}"
    f"{RELAXED_WAIT}fence.acq_rel.cta; {OTHER}",
    "a relaxed arrival behind a fence": f"{INIT}st.shared.u32 [%r4], %r0; fence.acq_rel.cta; {ARRIVE}{WAIT}{OTHER}",
    "a flag and fences": f"{INIT}st.shared.u32 [%r4], %r0; membar.cta; @%p0 st.volatile.shared.u32 [%r7], 1;\n"
    + SPIN.format("volatile")
    + f"membar.cta; {OTHER}\ndone:",
    "a flag and fences, and no mbarrier": "@%p0 st.shared.u32 [%r7], 0;\nbar.sync 0;\n"
    "st.shared.u32 [%r4], %r0; membar.cta; @%p0 st.volatile.shared.u32 [%r7], 1;\n"
    + SPIN.format("volatile")
    + f"membar.cta; {OTHER}\ndone:",
    "a flag that is released and acquired": f"{INIT}st.shared.u32 [%r4], %r0;\n"
    "@%p0 st.release.cta.shared.u32 [%r7], 1;\n" + SPIN.format("acquire.cta") + f"{OTHER}\ndone:",
    "an atomic that is released, and a relaxed flag with a fence": f"{INIT}st.shared.u32 [%r4], %r0;\n"
    "@%p0 red.release.cta.shared.add.u32 [%r7], 1;\n"
    + SPIN.format("relaxed.cta")
    + f"fence.acq_rel.cta; {OTHER}\ndone:",
    "a lock": f"{INIT}setp.ne.u32 %p3, %r0, 0; setp.ne.u32 %p4, %r0, 32; and.pred %p3, %p3, %p4; @%p3 bra done;\n"
    "lock: atom.acquire.cta.shared.cas.b32 %r8, [%r7], 0, 1; setp.ne.u32 %p2, %r8, 0; @%p2 bra lock;\n"
    "ld.shared.u32 %r9, [sm+2048]; add.u32 %r9, %r9, 1; st.shared.u32 [sm+2048], %r9;\n"
    "atom.release.cta.shared.exch.b32 %r8, [%r7], 0;\ndone:",
    "copies that are waited for": f"{COPY}cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; {OTHER}",
    "all copies waited for": f"{COPY}cp.async.wait_all; bar.sync 0; {OTHER}",
    "the older one of two groups": f"{COPY}cp.async.commit_group;\n"
    "add.u32 %r8, %r4, 1024; cp.async.ca.shared.global [%r8], [%rd1], 4; cp.async.commit_group;\n"
    f"cp.async.wait_group 1; bar.sync 0; {OTHER}",
    "copies that arrive at an mbarrier": f"{INIT}{COPY}cp.async.mbarrier.arrive.noinc.shared.b64 [%r6];\n{WAIT}{OTHER}",
    "a bulk copy that is waited for": f"{BULK}{WAIT}{OTHER}",
    "atomics": "atom.shared.add.u32 %r8, [sm], 1; red.shared.max.u32 [sm], %r0;",
    "the lanes of one warp": "xor.b32 %r8, %r4, 4; st.shared.u32 [%r4], %r0; ld.shared.u32 %r9, [%r8]; st.shared.u32 [%r8], %r9;",
    "bytes of one word": "add.u32 %r8, %r3, %r1; cvt.u16.u32 %h0, %r0; st.shared.u8 [%r8], %h0; ld.shared.u8 %h1, [%r8];",
    "one value from all": "st.shared.u32 [sm], 7;",
    "all read": f"{OTHER} ld.shared.u32 %r10, [%r4];",
    "words at other places": "st.shared.u32 [%r4], %r0; ld.shared.u32 %r9, [%r5+2048];",
}

#: the body, and kind, lines of the body (from 1 on) and x of the threads of what is found
RACES = {
    "reads what another warp stores": (f"st.shared.u32 [%r4], %r0;\n{OTHER}", ("RAW", 1, 2, 0, 32)),
    "stores where another has read": (
        "@%p1 ld.shared.u32 %r9, [%r5];\n@!%p1 st.shared.u32 [%r4], %r0;",
        ("WAR", 1, 2, 0, 32),
    ),
    "stores where another has stored": ("st.shared.u32 [sm+8], %r0;", ("WAW", 1, 1, 31, 32)),
    "a barrier of the wrong threads": (
        f"st.shared.u32 [%r4], %r0;\nadd.u32 %r8, %r1, 1; bar.sync %r8, 32;\n{OTHER}",
        ("RAW", 1, 3, 32, 0),
    ),
    "an mbarrier that nobody waits for": (
        f"{INIT}st.shared.u32 [%r4], %r0;\nmbarrier.arrive.shared.b64 %rd2, [%r6];\n{OTHER}",
        ("RAW", 4, 6, 0, 32),
    ),
    # the second warp completes the phase, and the first loads before it
    "a relaxed arrival without a fence before": (
        f"{INIT}st.shared.u32 [%r4], %r0;\n{ARRIVE}{WAIT}fence.acq_rel.cta;\n{OTHER}",
        ("RAW", 4, 8, 32, 0),
    ),
    "a relaxed wait without a fence behind": (
        f"{INIT}st.shared.u32 [%r4], %r0;\nmbarrier.arrive.shared.b64 %rd2, [%r6];\n{RELAXED_WAIT}{OTHER}",
        ("RAW", 4, 7, 32, 0),
    ),
    "a flag without a fence before": (
        f"{INIT}@%p1 st.shared.u32 [%r4], %r0;\n@%p0 st.volatile.shared.u32 [%r7], 1;\n"
        + SPIN.format("volatile")
        + f"membar.cta;\n{OTHER}\ndone:",
        ("RAW", 4, 9, 0, 32),
    ),
    "a flag without a fence behind": (
        f"{INIT}@%p1 st.shared.u32 [%r4], %r0;\nmembar.cta; @%p0 st.volatile.shared.u32 [%r7], 1;\n"
        + SPIN.format("volatile")
        + f"{OTHER}\ndone:",
        ("RAW", 4, 8, 0, 32),
    ),
    "a flag that is not a flag": (
        f"{INIT}membar.cta; @%p0 st.shared.u32 [%r7], 1;\n{SPIN.format('volatile')}membar.cta;\ndone:",
        ("RAW", 4, 6, 0, 32),
    ),
    "copies that nobody waits for": (
        f"{COPY}cp.async.commit_group; bar.sync 0;\n{OTHER}",
        ("RAW", 1, 3, 32, 0),
    ),
    "the newer one of two groups": (
        f"cp.async.commit_group;\n{COPY}cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;\n{OTHER}",
        ("RAW", 2, 4, 32, 0),
    ),
    "one's own copy": (f"{COPY}cp.async.commit_group;\nld.shared.u32 %r9, [%r4];", ("RAW", 1, 3, 0, 0)),
    "a bulk copy that nobody waits for": (
        f"{BULK}bar.sync 0;\n@!%p1 ld.shared.u32 %r9, [%r5];",
        ("RAW", 4, 6, 0, 32),
    ),
    "an atomic and a load": (
        "atom.shared.add.u32 %r8, [sm], 1;\nld.shared.u32 %r9, [sm];",
        ("WAR", 2, 1, 0, 32),
    ),
    "a vector and a part of it": (
        "shl.b32 %r8, %r0, 4; add.u32 %r8, %r8, %r3;\n@%p1 st.shared.v4.u32 [%r8], {%r0, %r1, %r2, %r3};\n"
        "@!%p1 ld.shared.u64 %rd3, [sm+8];",
        ("RAW", 2, 3, 0, 32),
    ),
    "generic addresses": (
        "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3; cvt.u64.u32 %rd4, %r5; cvta.shared.u64 %rd4, %rd4;\n"
        "st.u32 [%rd3], %r0;\nld.u32 %r9, [%rd4];",
        ("RAW", 2, 3, 0, 32),
    ),
    "generic addresses in shared operands": (
        "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3; cvt.u64.u32 %rd4, %r5; cvta.shared.u64 %rd4, %rd4;\n"
        "st.shared.u32 [%rd3], %r0;\nld.shared.u32 %r9, [%rd4];",
        ("RAW", 2, 3, 0, 32),
    ),
    "one byte": (
        "add.u32 %r8, %r3, %r0; cvt.u16.u32 %h0, %r0;\n@%p1 st.shared.u8 [%r8], %h0;\nxor.b32 %r8, %r8, 32;\n"
        "@!%p1 ld.shared.u8 %h1, [%r8];",
        ("RAW", 2, 4, 3, 32),
    ),
    "rows of a matrix": (
        "st.shared.u32 [%r4], %r0;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r3];",
        ("RAW", 1, 2, 0, 32),
    ),
}


def launch(body: str, races: str = "note", grid: int = 1, block: int = 64, lines: str = "") -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    module = ge.parse(f"{HEAD}{lines}{body}\nret; }}\n", path="k.ptx")
    return device.launch(module["k"], grid, block, [device.array(np.arange(1024, dtype=np.uint32))])


@pytest.fixture(params=("checked", "proved"))
def worth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of a few warps for which nothing is proved, and as if they were large."""
    if request.param == "proved":
        monkeypatch.setattr("gpuperf_engine.jit.races.checks._WORTH_IT", 0)
        monkeypatch.setattr("gpuperf_engine.jit.races.checks._WORTH_FORMS", 0)


@pytest.mark.usefixtures("worth")
@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    assert launch(ORDERED[name], grid=3).races == ()


@pytest.mark.usefixtures("worth")
@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_is_a_race(name: str) -> None:
    body, (kind, first, second, one, other) = RACES[name]
    profile = launch(body, grid=3)
    race = profile.races[0]
    lines = [int(access.location.split(":")[1]) - BEFORE for access in (race.first, race.second)]
    assert (race.kind, *lines, race.first.thread[0], race.second.thread[0]) == (
        kind,
        first,
        second,
        one,
        other,
    )
    assert race.space == "shared" and race.count >= 3 and race.first.block == race.second.block == (0, 0, 0)
    assert race.message in profile.notes


@pytest.mark.parametrize("name", [*ORDERED, *RACES])
def test_launches_know_nothing_of_those_before(name: str) -> None:
    """What one launch allocates serves the next."""
    body = ORDERED[name] if name in ORDERED else RACES[name][0]
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    kernel = ge.parse(f"{HEAD}{body}\nret; }}\n", path="k.ptx")["k"]
    data = device.array(np.arange(1024, dtype=np.uint32))
    first, *others = [device.launch(kernel, 3, 64, [data]).races for _ in range(3)]
    assert bool(first) == (name in RACES)
    assert others == [first, first]


def test_what_is_told_of_a_race() -> None:
    lines = '.file 1 "k.cu"\n.loc 1 12 3\n'
    race = launch(f"st.shared.u32 [%r4], %r0;\n.loc 1 14 1\n{OTHER}", lines=lines).races[0]
    assert race.object == "sm" and race.address == 0
    assert race.message == (
        f"k.cu:14 (k.ptx:{BEFORE + 5}:1): race on shared memory (RAW): ld.shared.u32 by thread (32, 0, 0) of block (0, 0, 0) "
        f"reads what st.shared.u32 by thread (0, 0, 0) at k.cu:12 (k.ptx:{BEFORE + 3}:1) has stored, at sm, "
        "with nothing between that orders them"
    )


def test_races_of_blocks_of_one_warp_load_the_functions_that_find_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else in the process may have loaded them."""
    loaded = []
    monkeypatch.setattr("gpuperf_engine.jit.launch.load_races", lambda: loaded.append(load_races()))
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    kernel = ge.parse(f"{GLOBAL}st.global.u32 [%rd5], %r3;\nret; }}\n", path="k.ptx")["k"]
    array = device.zeros(64, np.uint32)
    assert device.launch(kernel, 2, 32, [array, array]).races and loaded


def test_a_race_is_an_error_if_asked_for() -> None:
    body = RACES["reads what another warp stores"][0]
    with pytest.raises(ge.RaceError, match=r"k\.ptx:\d+:1: race on shared memory \(RAW\).*\n  kernel k\n"):
        launch(body, "error")
    assert launch(ORDERED["a barrier"], "error").races == launch(body, "off").races == ()
    with pytest.raises(ge.UnknownName, match="note"):
        launch(body, "notes")


def test_the_reference_backend_says_that_it_does_not_look() -> None:
    device = ge.Device(races="note", backend="reference", memory_bytes=1 << 20)
    text = f"{HEAD}{RACES['reads what another warp stores'][0]}\nret; }}\n"
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [device.zeros(1024, np.uint32)])
    assert profile.races == ()
    assert profile.remarks == ("k.ptx:4:17: 'k': races are detected on the backend 'llvm' only",)


def test_blocks_are_told_apart_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block that is named is the first one, and how often is a sum."""
    body = f"mov.u32 %r8, %ctaid.x; setp.lt.u32 %p2, %r8, 700; @%p2 bra done;\nst.shared.u32 [%r4], %r0;\n{OTHER}\ndone:"
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
        found.append(launch(body, grid=2000).races)
    assert found[0] == found[1]
    assert found[0][0].first.block == (700, 0, 0) and found[0][0].count == 1300 * 32


GLOBAL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<4>; .reg .b16 %h<4>;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; add.u32 %r4, %r3, 5;
ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
mul.wide.u32 %rd5, %r0, 4; add.u64 %rd5, %rd0, %rd5; setp.eq.u32 %p0, %r0, 0;
"""
AHEAD = GLOBAL.count("\n")


@pytest.mark.parametrize("other", [None, 5, 2345])
def test_a_flag_of_many_blocks_on_any_number_of_cores(
    other: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks store 7, or one of them 8: then each has a race with each, and the first ones are told."""
    body = f"setp.eq.u32 %p1, %r1, {other or 0xFFFF}; selp.u32 %r5, 8, 7, %p1; st.global.u32 [%rd0], %r5;"
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
        device = ge.Device(observe=set(), memory_bytes=1 << 20)
        array = device.zeros(64, np.uint32)
        kernel = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")["k"]
        found.append(device.launch(kernel, 3000, 64, [array, array]).races)
    assert found[0] == found[1]
    assert [(race.kind, race.first.block[0], race.second.block[0]) for race in found[0]] == (
        [] if other is None else [("WAW", 0, 1)]
    )


@pytest.mark.parametrize("threads", [1, 4])
def test_lanes_that_load_again_do_not_hide_an_exact_race(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the lanes load the words that the other half has loaded: whether the block came first to the line must not matter."""
    monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda: threads)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
    monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
    body = (
        "rem.u32 %r5, %r1, 64; and.b32 %r6, %r0, 15; mad.lo.u32 %r7, %r5, 16, %r6; mul.wide.u32 %rd6, %r7, 4;\n"
        "add.u64 %rd6, %rd0, %rd6; ld.global.u32 %r8, [%rd6]; @%p0 st.global.u32 [%rd6], %r1;"
    )
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    array = device.zeros(1024, np.uint32)
    kernel = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")["k"]
    races = device.launch(kernel, 3000, 32, [array, array]).races
    assert {(race.kind, race.first.block[0], race.second.block[0]) for race in races} == {
        (kind, 0, 64) for kind in ("RAW", "WAR", "WAW")
    }


AMONG_BLOCKS_ORDERED = {
    "each its own element": "ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, 1; st.global.u32 [%rd3], %r5;",
    "what the neighbour reads is in another array": "ld.global.u32 %r5, [%rd3+4]; st.global.u32 [%rd4], %r5;",
    "all read": "ld.global.u32 %r5, [%rd0]; ld.global.u32 %r6, [%rd5]; st.global.u32 [%rd3+8192], %r5;",
    "one value from all": "st.global.u32 [%rd0], 7;",
    "a flag that is set by whoever finds something": "@%p0 st.global.u32 [%rd0], 1;",
    "atomics": "red.global.add.u32 [%rd5], 1; red.relaxed.gpu.global.max.u32 [%rd5], %r3;",
    "split over blocks, with atomics": "ld.global.u32 %r5, [%rd4]; red.global.add.u32 [%rd5], %r5;",
    "bytes of one word": "cvt.u64.u32 %rd6, %r1; add.u64 %rd6, %rd0, %rd6; cvt.u16.u32 %h0, %r1;\n"
    "@%p0 st.global.u8 [%rd6], %h0; @%p0 ld.global.u8 %h1, [%rd6];",
    "one element of each block": "mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd0, %rd6; @%p0 st.global.u32 [%rd6], %r4;",
    "a store that is volatile": "@%p0 st.volatile.global.u32 [%rd0], %r1;",
    "vectors": "mul.wide.u32 %rd6, %r3, 16; add.u64 %rd6, %rd0, %rd6; ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd6];\n"
    "st.global.v4.u32 [%rd6], {%r6, %r5, %r8, %r7};",
}

#: the body, and for each finding kind, lines of the body, blocks and threads (x), and the object
AMONG_BLOCKS = {
    "reads what a later block stores": (
        "ld.global.u32 %r5, [%rd3+4];\nst.global.u32 [%rd3], %r4;",
        [("WAR", 1, 2, 0, 0, 31, 32, "a + 128"), ("WAR", 1, 2, 0, 1, 63, 0, "a + 256")],
    ),
    "reads what an earlier block stores": (
        "@%p0 st.global.u32 [%rd3], %r4;\nsub.u64 %rd3, %rd3, 256; setp.ne.u32 %p1, %r1, 0;\n@%p1 ld.global.u32 %r5, [%rd3];",
        [("RAW", 1, 3, 0, 1, 0, 0, "a")],
    ),
    "a sum without atomics": (
        "ld.global.u32 %r5, [%rd5];\nadd.u32 %r5, %r5, 1;\nst.global.u32 [%rd5], %r5;",
        [
            ("WAR", 1, 3, 0, 1, 0, 0, "a"),
            ("RAW", 3, 1, 0, 1, 0, 0, "a"),
            ("WAW", 3, 3, 0, 1, 0, 0, "a"),
        ],
    ),
    "an atomic and a load": (
        "@%p0 red.global.add.u32 [%rd0], 1;\n@!%p0 ld.global.u32 %r5, [%rd5+-4];",
        [("RAW", 1, 2, 0, 1, 0, 1, "a"), ("WAR", 2, 1, 0, 1, 1, 0, "a")],
    ),
    "an atomic and a store": (
        "@%p0 red.global.add.u32 [%rd0], 1;\nsetp.eq.u32 %p1, %r0, 1; @%p1 st.global.u32 [%rd0], %r4;",
        [
            ("WAW", 1, 2, 0, 1, 0, 1, "a"),
            ("WAW", 2, 1, 0, 1, 1, 0, "a"),
            ("WAW", 2, 2, 0, 1, 1, 1, "a"),
        ],
    ),
    "anywhere": (
        "mul.wide.u32 %rd6, %r0, 68; add.u64 %rd6, %rd0, %rd6; mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %rd6, %rd7;\n"
        "ld.global.u32 %r5, [%rd7+4];\nst.global.u32 [%rd7], %r4;",
        [("WAR", 2, 3, 0, 1, 0, 0, "a + 4")],
    ),
    "generic addresses": (
        "ld.u32 %r5, [%rd3+4];\nst.u32 [%rd3], %r4;",
        [("WAR", 1, 2, 0, 0, 31, 32, "a + 128"), ("WAR", 1, 2, 0, 1, 63, 0, "a + 256")],
    ),
    "a copy to shared memory": (
        ".shared .align 16 .b8 sm[4096]; mov.u32 %r6, sm; shl.b32 %r7, %r0, 2; add.u32 %r6, %r6, %r7;\n"
        "cp.async.ca.shared.global [%r6], [%rd3+4], 4;\nst.global.u32 [%rd3], %r4;",
        [("WAR", 2, 3, 0, 0, 0, 1, "a + 4"), ("WAR", 2, 3, 0, 1, 63, 0, "a + 256")],
    ),
}


def launch_blocks(body: str, grid: int = 3, races: str = "note", same: bool = False) -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    a, b = (device.array(np.zeros(4096, np.uint32), name=name) for name in "ab")
    module = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")
    profile = device.launch(module["k"], grid, 64, [a, a if same else b])
    again = device.launch(module["k"], grid, 64, [a, a if same else b])
    assert bool(again.races) == bool(profile.races)
    return profile


@pytest.mark.usefixtures("worth")
@pytest.mark.parametrize("name", AMONG_BLOCKS_ORDERED)
def test_what_blocks_do_apart_is_no_race(name: str) -> None:
    assert launch_blocks(AMONG_BLOCKS_ORDERED[name]).races == ()


@pytest.mark.usefixtures("worth")
@pytest.mark.parametrize("name", AMONG_BLOCKS)
def test_what_blocks_do_to_the_same_memory_is_a_race(name: str) -> None:
    body, wanted = AMONG_BLOCKS[name]
    found = []
    for race in launch_blocks(body).races:
        assert race.space == "global" and race.message in launch_blocks(body).notes
        sides = (race.first, race.second)
        found.append(
            (
                race.kind,
                *(int(side.location.split(":")[1]) - AHEAD for side in sides),
                *(side.block[0] for side in sides),
                *(side.thread[0] for side in sides),
                race.object,
            )
        )
    assert sorted(found) == sorted(wanted)
    assert launch_blocks(body, races="off").races == ()
    alone = launch_blocks(body, grid=1).races
    assert len(alone) == sum(item[3] == item[4] for item in wanted)


def test_arrays_are_told_apart_by_what_is_given() -> None:
    body = AMONG_BLOCKS_ORDERED["what the neighbour reads is in another array"]
    assert launch_blocks(body).races == ()
    assert [
        (race.kind, race.first.block[0], race.second.block[0])
        for race in launch_blocks(body, same=True).races
    ] == [
        ("WAR", 0, 0),
        ("WAR", 0, 1),
    ]


def test_what_an_earlier_launch_did_is_no_race() -> None:
    device = ge.Device(observe=set(), races="error", memory_bytes=1 << 20)
    a, b = (device.zeros(4096, np.uint32) for _ in "ab")
    body = AMONG_BLOCKS_ORDERED["what the neighbour reads is in another array"]
    kernel = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")["k"]
    for _ in range(4):
        device.launch(kernel, 3, 64, [a, b])
        a, b = b, a


def test_races_among_blocks_are_the_same_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.LOCKED", 0.0)
        body = AMONG_BLOCKS["reads what a later block stores"][0]
        device = ge.Device(observe=set(), races="note", memory_bytes=1 << 22)
        module = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")
        array = device.zeros(1 << 18, np.uint32)
        found.append(device.launch(module["k"], 2000, 64, [array, array]).races)
    assert found[0] == found[1] != ()


def test_addresses_that_are_told_apart_are() -> None:
    """Held against all bytes of all threads."""

    def places(form: Form) -> Iterator[int]:
        for counts in product(*(range(most + 1) for _, most in form.steps)):
            yield form.constant + sum(step * count for (step, _), count in zip(form.steps, counts))

    made = random.Random(3)
    told: Counter[tuple[str, bool]] = Counter()
    for _ in range(3000):
        elements = made.choice((1, 1, 2))
        extents = [*(made.choice((1, 1, 2, 3) if elements < 2 else (1, 1, 1, 2)) for _ in range(6)), elements]
        numbers = tuple(made.choice((0, 1, 2, 4, 4, 8, 12, 16, -4, 24, 48)) for _ in range(7))
        where = [(axis, bit) for axis in range(6) for bit in range((extents[axis] - 1).bit_length())]
        some = made.sample(where, made.randint(0, len(where)))
        bits = tuple((key, made.choice((4, 8, -4, 16, 24))) for key in sorted(some))
        forms = []
        for _ in range(made.choice((1, 1, 2, 3))):
            steps = {
                made.choice((2, 4, 8, 12, 24, 48, 64)): made.choice((1, 2))
                for _ in range(made.choice((0, 0, 1, 2)))
            }
            forms.append(Form(made.choice((0, 4, 8, 48)), numbers, tuple(steps.items()), bits))
        size = made.choice((1, 2, 4, 8))
        owners: dict[tuple[object, ...], tuple[int, ...]] = {}
        blocks = threads = values = False
        for index in product(*map(range, extents)):
            indexed = sum(number * place for number, place in zip(numbers, index))
            indexed += sum(number * (index[axis] >> bit & 1) for (axis, bit), number in bits)
            for start in (indexed + place for form in forms for place in places(form)):
                for byte in range(start, start + size):
                    blocks |= owners.setdefault(("block", byte), index[3:6]) != index[3:6]
                    threads |= owners.setdefault((byte, *index[3:]), index[:3]) != index[:3]
                    values |= owners.setdefault(("value", byte), index[6:]) != index[6:]
        if extents[6] == 1:
            apart = are_apart(forms, size, extents)
            assert not (apart and blocks)
            told["blocks", apart] += 1
        for name, answer, shared in (
            ("threads", are_threads_apart(forms, size, extents), threads),
            ("values", are_values_apart(forms, size, extents), values),
        ):
            assert not (answer and shared)
            told[name, answer] += extents[6] > 1
    assert all(
        told[name, answer] > 100 for name in ("blocks", "threads", "values") for answer in (True, False)
    )


BIG = {
    "each its own element": (
        "ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, 1; st.global.u32 [%rd3], %r5;",
        False,
    ),
    "two elements each": (
        "shl.b32 %r5, %r3, 3; cvt.u64.u32 %rd6, %r5; add.u64 %rd6, %rd0, %rd6; ld.global.u32 %r5, [%rd6+4];\n"
        "st.global.u32 [%rd6], %r5; st.global.u32 [%rd6+4], %r5;",
        False,
    ),
    "that of the next thread": ("ld.global.u32 %r5, [%rd3+4]; st.global.u32 [%rd3], %r5;", True),
    "that of the first thread": ("ld.global.u32 %r5, [%rd5]; st.global.u32 [%rd3], %r4;", True),
    "a register that a loop changes": (
        "mov.u64 %rd6, %rd3; mov.u32 %r6, 0;\nmore: st.global.u32 [%rd6], %r4; add.u64 %rd6, %rd6, 256; add.u32 %r6, %r6, 1;\n"
        "setp.lt.u32 %p1, %r6, 2; @%p1 bra more;",
        True,
    ),
    "a guarded register": (
        "mov.u64 %rd6, %rd3; setp.eq.u32 %p1, %r1, 3; @%p1 sub.u64 %rd6, %rd6, 256; st.global.u32 [%rd6], %r4;",
        True,
    ),
}


@pytest.mark.parametrize("name", BIG)
def test_what_is_proved_for_big_launches_is_right(name: str) -> None:
    body, races = BIG[name]
    device = ge.Device(observe=set(), races="note", memory_bytes=1 << 22)
    module = ge.parse(f"{GLOBAL}{body}\nret; }}\n", path="k.ptx")
    array = device.array(np.arange(1 << 18, dtype=np.uint32))
    assert bool(device.launch(module["k"], 1500, 64, [array, array]).races) == races


LOOPS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .s32 thread, .param .s32 block, .param .s32 from, .param .s32 by, .param .s32 to) {
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<4>;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
ld.param.u64 %rd0, [a]; ld.param.s32 %r4, [thread]; ld.param.s32 %r5, [block]; ld.param.s32 %r6, [from];
ld.param.s32 %r7, [by]; ld.param.s32 %r8, [to];
mad.lo.s32 %r9, %r0, %r4, %r6; mad.lo.s32 %r9, %r1, %r5, %r9;
"""
STORE = "mul.wide.s32 %rd1, {0}, 4; add.s64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r3;\n"
AROUND = {
    "tested at the end": "setp.ge.s32 %p0, %r9, %r8; @%p0 bra done;\n"
    f"more: {STORE.format('%r9')}add.s32 %r9, %r9, %r7; setp.lt.s32 %p0, %r9, %r8; @%p0 bra more;\ndone:",
    "tested at the head": f"more: setp.ge.s32 %p0, %r9, %r8; @%p0 bra done;\n{STORE.format('%r9')}"
    "add.s32 %r9, %r7, %r9; bra more;\ndone:",
    "two at a time": f"more: {STORE.format('%r9')}add.s32 %r10, %r9, %r7;\n{STORE.format('%r10')}"
    "add.s32 %r9, %r10, %r7; setp.le.s32 %p0, %r9, %r8; @!%p0 bra done; bra more;\ndone:",
    "a counter of its own": f"mov.u32 %r10, 4;\nmore: {STORE.format('%r9')}add.s32 %r9, %r9, %r7;\n"
    "sub.s32 %r10, %r10, 1; setp.ne.s32 %p0, %r10, 0; @%p0 bra more;",
    "a pointer": "mul.wide.s32 %rd1, %r9, 4; add.s64 %rd1, %rd0, %rd1; mul.wide.s32 %rd2, %r7, 4; mov.u32 %r10, 0;\n"
    "more: st.global.u32 [%rd1], %r3; add.s64 %rd1, %rd1, %rd2;\n"
    "add.s32 %r10, %r10, 1; setp.lt.u32 %p0, %r10, 5; @%p0 bra more;",
    "one loop in another one": "mov.u32 %r10, 0;\n"
    f"outer: mov.u32 %r11, 0;\nmore: add.s32 %r12, %r9, %r11; {STORE.format('%r12')}add.s32 %r11, %r11, 1;\n"
    "setp.lt.s32 %p0, %r11, 3; @%p0 bra more;\n"
    "add.s32 %r9, %r9, %r7; add.s32 %r10, %r10, 1; setp.lt.s32 %p0, %r10, 3; @%p0 bra outer;",
    "one loop after another one": f"setp.ge.s32 %p0, %r9, %r8; @%p0 bra rest;\n"
    f"more: {STORE.format('%r9')}add.s32 %r9, %r9, %r7; setp.lt.s32 %p0, %r9, %r8; @%p0 bra more;\n"
    f"rest: {STORE.format('%r9')}add.s32 %r9, %r9, %r7; add.s32 %r13, %r8, %r7; setp.lt.s32 %p0, %r9, %r13; @%p0 bra rest;",
    "down": "neg.s32 %r7, %r7; add.s32 %r9, %r9, 2048;\n"
    f"more: {STORE.format('%r9')}add.s32 %r9, %r9, %r7; setp.gt.s32 %p0, %r9, %r8; @%p0 bra more;",
    # 12, 4, 4294967292: the third one is greater than 2 too
    "a counter that passes 0": f"mov.u32 %r10, 12; mov.u32 %r11, 0;\nmore: {STORE.format('%r9')}add.s32 %r9, %r9, %r7;\n"
    "add.u32 %r11, %r11, 1; setp.eq.u32 %p1, %r11, 8; @%p1 bra done;\n"
    "sub.u32 %r10, %r10, 8; setp.gt.u32 %p0, %r10, 2; @%p0 bra more;\ndone:",
    "a change that is not always made": f"more: {STORE.format('%r9')}setp.gt.u32 %p1, %r0, 7; @%p1 add.s32 %r9, %r9, 1;\n"
    "add.s32 %r9, %r9, %r7; setp.lt.s32 %p0, %r9, %r8; @%p0 bra more;",
    "a change that depends on the block": f"more: {STORE.format('%r9')}add.s32 %r9, %r9, %r7; add.s32 %r9, %r9, %r1;\n"
    "setp.lt.s32 %p0, %r9, %r8; @%p0 bra more;",
}


BITS = {
    "a row and a column": "shr.u32 %r4, %r0, {a}; and.b32 %r10, %r0, {m}; mul.lo.u32 %r4, %r4, {n}; add.u32 %r9, %r4, %r10;",
    "fields put together": "shl.b32 %r4, %r0, {b}; and.b32 %r4, %r4, {k}; and.b32 %r10, %r0, {m}; or.b32 %r9, %r4, %r10;",
    "a field put into another": "bfe.u32 %r4, %r0, {a}, 5; and.b32 %r10, %r0, {m}; bfi.b32 %r9, %r4, %r10, {b}, 5;",
    "a field of a sum": "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, 3; shr.s32 %r4, %r4, {h}; xor.b32 %r9, %r4, 4096;",
    "a field of a block": "shl.b32 %r4, %r1, 8; or.b32 %r4, %r4, %r0; shr.u32 %r4, %r4, {h}; and.b32 %r9, %r4, {f};",
}


def proves(
    kernel: ge.Kernel, grid: int, block: int, values: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, bool]:
    """Whether it is proved of a launch that no two blocks access the same bytes, and whether blocks race. Races are the same where
    nothing is proved."""
    found, seen = [], []

    def noted(*given: object) -> bool:
        seen.append(are_apart(*given))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr("gpuperf_engine.jit.races.places.are_apart", noted)
    for least in (1 << 30, 0):
        monkeypatch.setattr("gpuperf_engine.jit.races.checks._WORTH_FORMS", least)
        kernel.memo.pop("race flags", None)
        device = ge.Device(observe=set(), races="note", memory_bytes=1 << 20)
        array = device.zeros(1 << 14, np.uint32)
        found.append(device.launch(kernel, grid, block, [array, *values]).races)
    assert found[0] == found[1], values
    return any(seen), any(race.first.block != race.second.block for race in found[0])


@pytest.mark.parametrize("name", BITS)
def test_what_is_proved_of_bits_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = random.Random(name)
    told: Counter[tuple[bool, bool]] = Counter()
    for _ in range(25):
        a, b = made.choice((3, 4, 5)), made.choice((3, 4, 5))
        ones = (1 << made.choice((a, a, b))) - 1
        numbers = {
            "a": a,
            "b": b,
            "m": ones,
            "n": made.choice((ones + 1, 48, ones)),
            "k": made.choice((2040, 2032, 992)),
            "h": made.choice((1, 2, 3)),
            "f": made.choice((2047, 127, 31)),
        }
        body = (
            BITS[name].format(**numbers)
            + "mul.lo.u32 %r12, %r1, %r5; add.u32 %r9, %r9, %r12;\n"
            + STORE.format("%r9")
        )
        kernel = ge.parse(f"{LOOPS}{body}ret; }}\n", path="k.ptx")["k"]
        values = (0, made.choice((0, 64, 256, 1024)), 0, 0, 0)
        told[proves(kernel, made.choice((2, 3)), made.choice((40, 64, 128)), values, monkeypatch)] += 1
    assert not told[True, True] and told[True, False] > 2 and told[False, True] > 2, told


@pytest.mark.parametrize("name", AROUND)
def test_what_is_proved_of_loops_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against what is found where nothing is proved."""
    made = random.Random(name)
    kernel = ge.parse(f"{LOOPS}{AROUND[name]}\nret; }}\n", path="k.ptx")["k"]
    proved = raced = 0
    for _ in range(60):
        grid, block = made.choice((2, 3, 5)), made.choice((8, 32))
        thread = made.choice((1, 1, 2, 3))
        own = made.choice((block * thread, block * thread, 1, block, 2 * block, 4 * block * thread + 1))
        by = made.choice((grid * own, grid * own, own, 1, block * thread, grid * own + 1))
        values = (thread, own, made.choice((0, 3)), by, made.choice((1, 2, 4)) * grid * block * thread)
        some = proves(kernel, grid, block, values, monkeypatch)
        proved += some[0]
        raced += some[1]
    assert raced > 5
    assert (proved > 5) == (name not in UNPROVED)


UNPROVED = {
    "a change that is not always made",
    "a change that depends on the block",
}


@pytest.mark.parametrize("adjacent", [True, False])
def test_the_threads_of_a_race_are_those_that_access_the_byte(adjacent: bool) -> None:
    """Every second lane stores a byte, to x[lane] or, side by side, to x[lane / 2]; then lane 5 of the second warp loads one."""
    lane, byte = (10, 5) if adjacent else (30, 30)
    body = f"""and.b32 %r8, %r0, 1; setp.eq.u32 %p2, %r8, 0; and.pred %p2, %p2, %p1;
shr.u32 %r8, %r0, {int(adjacent)}; cvt.u64.u32 %rd2, %r8; add.u64 %rd2, %rd0, %rd2; @%p2 st.global.u8 [%rd2], %r0;
setp.eq.u32 %p3, %r0, 37; @%p3 ld.global.u8 %r9, [%rd0+{byte}];
ret; }}"""
    device = ge.Device(memory_bytes=1 << 24)
    (race,) = device.launch(ge.parse(HEAD + body)["k"], 1, 64, [device.zeros(64, np.uint8, name="x")]).races
    assert (race.kind, race.object, race.second.thread) == ("RAW", f"x + {byte}", (37, 0, 0))
    assert race.nearby or race.first.thread == (lane, 0, 0)
    assert race.nearby == ("near there" in race.message) == adjacent


@pytest.mark.parametrize(
    ("stores", "space", "place"),
    [
        ("st.global.u32 [%rd0+128], %r8;", "global", 128),
        ("st.global.v2.u32 [%rd0+128], {7, %r8};", "global", 132),
        ("mov.b64 %rd2, {7, %r8}; st.global.u64 [%rd0+128], %rd2;", "global", 128),
        ("@%p1 st.global.u8 [%rd0+130], 9; @!%p1 st.global.u32 [%rd0+128], %r8;", "global", 130),
        ("mov.b64 %rd2, {7, %r8}; st.shared.u64 [sm+128], %rd2;", "shared", 128),
    ],
)
def test_a_race_is_at_the_first_byte_of_an_element(stores: str, space: str, place: int) -> None:
    """Two warps, then two blocks, store words whose upper halves differ."""
    for number in ["%r1"] + ["%ctaid.x"] * (space == "global" and "u8" not in stores):
        body = f"mov.u32 %r8, {number}; shl.b32 %r8, %r8, 16;\n{stores} ret; }}"
        device = ge.Device(memory_bytes=1 << 24)
        kernel = ge.parse(HEAD + body)["k"]
        grid = 1 + (number != "%r1")
        races = device.launch(kernel, grid, 64, [device.zeros(256, np.uint8, name="x")]).races
        name = "x" if space == "global" else "sm"
        assert races and {(race.kind, race.object) for race in races} == {("WAW", f"{name} + {place}")}


def test_an_error_names_what_may_have_caused_it() -> None:
    """The second warp reads what the first has stored without a barrier, then words that nobody has, and stores out of bounds."""
    body = f"""@%p1 st.shared.u32 [%r4], %r0; @!%p1 {OTHER}
@!%p1 ld.shared.u32 %r9, [%r4+1024];
@!%p1 st.global.u32 [%rd0+1024], %r9;
ret; }}"""
    device = ge.Device(memory_bytes=1 << 24)
    with pytest.raises(ge.MemoryFault) as caught:
        device.launch(ge.parse(HEAD + body, path="k.ptx")["k"], 1, 64, [device.zeros(64, np.uint8, name="x")])
    unseen, race = caught.value.causes
    assert unseen == f"before that, ld.shared.u32 at k.ptx:{BEFORE + 2}:1 has read uninitialised memory"
    assert race.startswith(f"before that: k.ptx:{BEFORE + 1}:") and "race on shared memory (RAW)" in race


def test_an_error_names_kernels_of_cxx_as_their_source_does() -> None:
    name = "_ZN4math5scaleIfEEvPf"
    text = HEAD.replace("entry k(", f"entry {name}(") + "st.shared.u32 [%r3], %r0;\nret; }"
    device = ge.Device(memory_bytes=1 << 20, races="error")
    with pytest.raises(ge.RaceError) as caught:
        device.launch(ge.parse(text, path="k.ptx")[name], 1, 64, [device.zeros(64, np.uint8)])
    assert caught.value.details[0] == "kernel math::scale<float>"


@pytest.mark.parametrize("apart", [1 << 33, 1 << 37])
def test_lines_and_words_far_apart_are_different_ones(apart: int) -> None:
    """Each of two warps stores a word of its own; at the same address it is a race."""
    body = """mul.wide.u32 %rd2, %r1, 1; mul.lo.u64 %rd2, %rd2, %rd3; add.u64 %rd2, %rd0, %rd2; st.global.u32 [%rd2], %r0;
ret; }"""
    text = (
        (HEAD + body)
        .replace("data)", "data, .param .u64 apart)")
        .replace("ld.param.u64", "ld.param.u64 %rd3, [apart]; ld.param.u64", 1)
    )
    try:
        device = ge.Device(memory_bytes=(1 << 37) + (1 << 20), observe=())
    except ge.EngineError:
        pytest.skip("the host reserves no 128 GiB")
    kernel, data = ge.parse(text, path="k.ptx")["k"], device.empty(1 << 37 | 64, np.uint8)
    assert not device.launch(kernel, 1, 64, [data, apart]).races
    assert [race.kind for race in device.launch(kernel, 1, 64, [data, 0]).races] == ["WAW"]


UNWRITTEN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
    .reg .b16 %h; .reg .b32 %r<8>; .reg .pred %p<3>; .shared .align 4 .b8 tile[512];
    mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, {size}; mov.u32 %r3, tile; add.u32 %r2, %r3, %r2;
    {first}
    setp.lt.u32 %p0, %r1, 16;
    @%p0 st.shared.u{bits} [%r2], {value};
    and.b32 %r4, %r1, 31; mul.lo.u32 %r4, %r4, {size}; add.u32 %r4, %r3, %r4;
    {second};
    ret; }}"""


@pytest.mark.parametrize("first", ["", "st.shared.u{bits} [%r2], {value}; bar.sync 0;"])
@pytest.mark.parametrize(
    ("size", "value", "second", "kinds"),
    [
        (4, "%r1", "ld.shared.u{bits} {value}, [%r4]", {"RAW": 16}),
        (1, "%h", "ld.shared.u{bits} {value}, [%r4]", {"RAW": 16}),
        # the pattern of memory that nothing has written
        (4, "%r1", "mov.u32 %r1, 0x5BD1E995; @%p1 st.shared.u{bits} [%r4], {value}", {"WAW": 16}),
    ],
)
def test_conflicts_are_counted_once_where_memory_is_unwritten(
    first: str, size: int, value: str, second: str, kinds: dict[str, int]
) -> None:
    """Of 32 words, or bytes, the first warp has stored 16, which the second one accesses."""
    options = {"size": size, "bits": 8 * size, "value": value}
    given = {name: text.format(**options) for name, text in (("first", first), ("second", second))}
    body = UNWRITTEN.format(**options, **given).replace(
        "setp.lt.u32 %p0", "cvt.u16.u32 %h, %r1; setp.ge.u32 %p1, %r1, 32;\n    setp.lt.u32 %p0", 1
    )
    races = ge.Device(observe=()).launch(ge.parse(body, path="k.ptx")["k"], 1, 64).races
    assert {race.kind: race.count for race in races} == kinds
