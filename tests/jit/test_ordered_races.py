"""Races in global memory among blocks that wait for one another, and among warps of one block: pairs of programs, one that the memory
model orders and one that it does not (PTX manual, "Memory Consistency Model": release and acquire patterns, synchronizes, causality
order)."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag) {
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<8>; .shared .b32 told; .shared .align 16 .b8 tile[1024]; .shared .b64 bar;
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; add.u32 %r4, %r3, 7;
ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [flag]; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd0, %rd2;
mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd0, %rd3; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0;
add.u64 %rd4, %rd2, -256; mov.u32 %r10, tile; shl.b32 %r11, %r0, 2; add.u32 %r11, %r10, %r11; xor.b32 %r12, %r0, 32;
mul.wide.u32 %rd5, %r12, 4; add.u64 %rd5, %rd0, %rd5; mul.wide.u32 %rd6, %r1, 256; add.u64 %rd5, %rd5, %rd6; add.u64 %rd6, %rd0, %rd6;
"""
#: the last block adds what all have stored
LAST = """st.global.u32 [%rd2], %r4;
bar.sync 0;
@!%p0 bra join;
{before}
atom{how}.global.inc.u32 %r5, [%rd1], 2;
{after}
st.shared.u32 [told], %r5;
join: bar.sync 0;
ld.shared.u32 %r5, [told]; setp.ne.u32 %p2, %r5, 2; @%p2 bra done;
ld.global.u32 %r6, [%rd3+128];
"""
#: ``FLAG``: block 0 stores, and sets a flag for which the next one waits
FLAG = """@!%p1 bra second;
st.global.u32 [%rd2], %r4;
bar.sync 0;
{before}
@%p0 st{store}.global.u32 [%rd1], 1;
bra done;
second: @!%p0 bra join;
spin: ld{load}.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra spin;
{after}
join: {barrier}
ld.global.u32 %r6, [%rd3];
"""
#: one thread of each block adds to an element
LOCK = """@!%p0 bra done;
lock: atom{take}.global.cas.b32 %r5, [%rd1], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra lock;
{before}
ld.global.u32 %r6, [%rd0]; add.u32 %r6, %r6, %r4;
st.global.u32 [%rd0], %r6;
{after}
atom{give}.global.exch.b32 %r5, [%rd1], 0;
"""
TICKETS = """@!%p0 bra done;
atom.global.add.u32 %r7, [%rd1], 1;
wait: ld{load}.global.u32 %r5, [%rd1+64]; setp.ne.u32 %p2, %r5, %r7; @%p2 bra wait;
{before}
ld.global.u32 %r6, [%rd0]; add.u32 %r6, %r6, %r4;
st.global.u32 [%rd0], %r6;
{after}
add.u32 %r7, %r7, 1; st{store}.global.u32 [%rd1+64], %r7;
"""
#: each block adds to the sums of the one before: two hops
CHAIN = """mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %rd1, %rd7;
st.global.u32 [%rd2], %r4;
@%p1 bra first;
@!%p0 bra join;
spin: ld.acquire.gpu.global.u32 %r5, [%rd7+-4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra spin;
join: bar.sync 0;
first: bar.sync 1;
@%p0 st.{store}.global.u32 [%rd7], 1;
setp.ne.u32 %p2, %r1, 2; @%p2 bra done;
ld.global.u32 %r6, [%rd3];
"""
GRID = """st.global.u32 [%rd2], %r4;
{sync}
add.u32 %r5, %r3, 64; rem.u32 %r5, %r5, 192; mul.wide.u32 %rd7, %r5, 4; add.u64 %rd7, %rd0, %rd7;
ld.global.u32 %r6, [%rd7];
"""
#: as ``grid.sync`` of cooperative groups
SYNC = """bar.sync 0;
@!%p0 bra join;
membar.gl; atom.global.add.u32 %r5, [%rd1], 1;
spin: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, 3; @%p2 bra spin;
membar.gl;
join: bar.sync 0;"""
TAKEN = "atom.global.add.u32 %r7, [%rd1+128], 1;\n"

ORDERED = {
    "the last block": LAST.format(how="", before="membar.gl;", after="membar.gl;"),
    "the last block, system": LAST.format(how="", before="fence.acq_rel.sys;", after="fence.sc.sys;"),
    "the last block, by an atomic": LAST.format(how=".acq_rel.gpu", before="", after=""),
    "all threads fence": LAST.format(how="", before="", after="membar.gl;").replace(
        "bar.sync 0;", "membar.gl; bar.sync 0;", 1
    ),
    "a flag, acquired": FLAG.format(
        before="", store=".release.gpu", load=".acquire.gpu", after="", barrier="bar.sync 0;"
    ),
    "a volatile flag": FLAG.format(
        before="membar.gl;", store=".volatile", load=".volatile", after="membar.gl;", barrier="bar.sync 0;"
    ),
    "a relaxed flag": FLAG.format(
        before="fence.acq_rel.gpu;",
        store=".relaxed.gpu",
        load=".relaxed.gpu",
        after="fence.acq_rel.gpu;",
        barrier="bar.sync 0;",
    ),
    "a lock": LOCK.format(take=".acquire.gpu", before="", after="", give=".release.gpu"),
    "a lock with fences": LOCK.format(take="", before="membar.gl;", after="membar.gl;", give=""),
    "tickets": TICKETS.format(load=".acquire.gpu", before="", after="", store=".release.gpu"),
    "tickets, volatile": TICKETS.format(
        load=".volatile", before="membar.gl;", after="membar.gl;", store=".volatile"
    ),
    "a chain": CHAIN.format(store="release.gpu"),
    "a barrier of the grid": GRID.format(sync=SYNC),
    "places that an atomic gives": "atom.global.add.u32 %r5, [%rd1], 1; mul.wide.u32 %rd7, %r5, 4; add.u64 %rd7, %rd0, %rd7;\n"
    "st.global.u32 [%rd7], %r4;",
    "atomics and volatile flags": "atom.global.add.u32 %r5, [%rd1], 1; ld.volatile.global.u32 %r6, [%rd1];",
    "a loop that begins with a plain load": "ld.global.u32 %r5, [%rd0];\n"
    "more: add.u32 %r6, %r5, %r4; atom.global.cas.b32 %r7, [%rd0], %r5, %r6;\n"
    "setp.ne.u32 %p2, %r7, %r5; mov.u32 %r5, %r7; @%p2 bra more;",
    "one value": f"{TAKEN}st.global.u32 [%rd0], 7;",
    "its own": f"{TAKEN}st.global.u32 [%rd2], %r4; ld.global.u32 %r5, [%rd2];",
}
#: the body, and of each finding kind, opcodes, and blocks
RACES = {
    "the last block, no fence before": (
        LAST.format(how="", before="", after="membar.gl;"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "the last block, no fence behind": (
        LAST.format(how="", before="membar.gl;", after=""),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "the last block, fences of the block": (
        LAST.format(how="", before="membar.cta;", after="membar.cta;"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "the last block, no barrier": (
        LAST.format(how="", before="membar.gl;", after="membar.gl;").replace("bar.sync 0;", "", 1),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "a flag that is not released": (
        FLAG.format(before="", store=".relaxed.gpu", load=".acquire.gpu", after="", barrier="bar.sync 0;"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a flag that is not acquired": (
        FLAG.format(before="", store=".release.gpu", load=".relaxed.gpu", after="", barrier="bar.sync 0;"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a flag of the scope of a block": (
        FLAG.format(before="", store=".release.cta", load=".acquire.cta", after="", barrier="bar.sync 0;"),
        [
            ("RAW", "st.global.u32", "ld.global.u32", 0, 1),
            ("RAW", "st.release.cta.global.u32", "ld.acquire.cta.global.u32", 0, 1),
        ],
    ),
    "a flag of the scope of a cluster, where each block is one": (
        FLAG.format(
            before="", store=".release.cluster", load=".acquire.cluster", after="", barrier="bar.sync 0;"
        ),
        [
            ("RAW", "st.global.u32", "ld.global.u32", 0, 1),
            ("RAW", "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32", 0, 1),
        ],
    ),
    "a fence of the scope of a cluster before": (
        FLAG.format(
            before="fence.acq_rel.cluster;",
            store=".volatile",
            load=".volatile",
            after="membar.gl;",
            barrier="bar.sync 0;",
        ),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a fence of the scope of a cluster behind": (
        FLAG.format(
            before="membar.gl;",
            store=".volatile",
            load=".volatile",
            after="fence.sc.cluster;",
            barrier="bar.sync 0;",
        ),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a plain flag": (
        FLAG.format(
            before="membar.gl;", store="", load=".volatile", after="membar.gl;", barrier="bar.sync 0;"
        ),
        [
            ("RAW", "st.global.u32", "ld.global.u32", 0, 1),
            ("RAW", "st.global.u32", "ld.volatile.global.u32", 0, 1),
        ],
    ),
    "those that do not wait": (
        FLAG.format(before="", store=".release.gpu", load=".acquire.gpu", after="", barrier=""),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a lock that is not released": (
        LOCK.format(take=".acquire.gpu", before="", after="", give=""),
        [("WAW", "st.global.u32", "st.global.u32", 0, 1), ("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a lock that is not acquired": (
        LOCK.format(take="", before="", after="membar.gl;", give=""),
        [("WAW", "st.global.u32", "st.global.u32", 0, 1), ("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "tickets without a fence": (
        TICKETS.format(load=".volatile", before="membar.gl;", after="", store=".volatile"),
        [("WAW", "st.global.u32", "st.global.u32", 0, 1), ("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "a chain that is broken": (
        CHAIN.format(store="relaxed.gpu"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "no barrier of the grid": (
        GRID.format(sync=f"bar.sync 0;\n{TAKEN}"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2), ("WAR", "ld.global.u32", "st.global.u32", 0, 1)],
    ),
    "a barrier of the grid without fences": (
        GRID.format(sync=SYNC.replace("membar.gl;", "")),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "a loop whose plain load is another one's": (
        f"{TAKEN}@%p0 atom.global.cas.b32 %r5, [%rd0], %r1, 7;\nadd.u64 %rd7, %rd0, 0; ld.global.u32 %r6, [%rd7];",
        [("RAW", "atom.global.cas.b32", "ld.global.u32", 0, 1)],
    ),
    "fences of a proxy": (
        LAST.format(how="", before="fence.proxy.async;", after="fence.proxy.async;"),
        [("RAW", "st.global.u32", "ld.global.u32", 0, 2)],
    ),
    "a flag that no thread of the block reads": (
        "@%p1 st.global.u32 [%rd2], %r4;\n@%p1 st.release.gpu.global.u32 [%rd1], 1;\n"
        "@%p1 ld.relaxed.gpu.global.u32 %r5, [%rd1];\nmembar.gl;\n@!%p1 ld.global.u32 %r6, [%rd3];",
        [("RAW", "st.global.u32", "ld.global.u32", 0, 1)],
    ),
    "an atomic of the scope of a block": (
        f"{TAKEN}@%p0 red.relaxed.cta.global.add.u32 [%rd0], 1;",
        [("WAW", "red.relaxed.cta.global.add.u32", "red.relaxed.cta.global.add.u32", 0, 1)],
    ),
    "an atomic and a plain load": (
        f"{TAKEN}@!%p1 bra second;\n@%p0 red.global.add.u32 [%rd0], 1;\nbra done;\nsecond: @%p0 ld.global.u32 %r6, [%rd0];",
        [("RAW", "red.global.add.u32", "ld.global.u32", 0, 1)],
    ),
}


def launch(body: str, grid: int = 3, races: str = "note", block: int = 64) -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    data, flag = (device.array(np.zeros(4096, np.uint32), name=name) for name in ("data", "flag"))
    module = ge.parse(f"{HEAD}{body}\ndone: ret; }}\n", path="k.ptx")
    return device.launch(module["k"], grid, block, [data, flag])


def found_in(profile: ge.Profile) -> set[tuple[str, str, str, int, int]]:
    assert all(race.space == "global" for race in profile.races)
    return {
        (race.kind, race.first.opcode, race.second.opcode, race.first.block[0], race.second.block[0])
        for race in profile.races
    }


@pytest.mark.parametrize("name", ORDERED)
def test_blocks_that_are_ordered_have_no_race(name: str) -> None:
    assert launch(ORDERED[name]).races == ()


@pytest.mark.parametrize("name", RACES)
def test_blocks_that_nothing_orders_have_a_race(name: str) -> None:
    body, wanted = RACES[name]
    assert found_in(launch(body)) & set(wanted) == set(wanted)
    assert launch(body, races="off").races == ()


OTHER = "ld.global.u32 %r6, [%rd5];"
COPY = "shl.b32 %r13, %r12, 2; add.u32 %r13, %r10, %r13;\ncp.async.ca.shared.global [%r11], [%rd2], 4;\n"
ORDERED_WARPS = {
    "a barrier": f"st.global.u32 [%rd2], %r4; bar.sync 0; {OTHER}",
    "a flag": "setp.lt.u32 %p2, %r0, 32; mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %rd1, %rd7; @!%p2 bra second;\n"
    "st.global.u32 [%rd2], %r4; @%p0 st.release.cta.global.u32 [%rd7], 1; bra done;\n"
    "second: ld.acquire.cta.global.u32 %r5, [%rd7]; setp.eq.u32 %p3, %r5, 0; @%p3 bra second;\n" + OTHER,
    "atomics": "red.global.add.u32 [%rd0], 1; red.relaxed.cta.global.add.u32 [%rd6], 1;",
    "one value": "st.global.u32 [%rd6], 7;",
    "its own": "st.global.u32 [%rd2], %r4; ld.global.u32 %r5, [%rd2]; st.global.u32 [%rd2], %r5;",
    "bytes": "cvt.u64.u32 %rd7, %r3; add.u64 %rd7, %rd0, %rd7; st.global.u8 [%rd7], %r4; ld.global.u8 %r5, [%rd7];",
    "in turn": f"st.global.u32 [%rd2], %r4; bar.sync 0; {OTHER} bar.sync 0; add.u32 %r6, %r6, 1; st.global.u32 [%rd5], %r6;",
    "copies that are waited for": f"{COPY}cp.async.wait_all; bar.sync 0; st.global.u32 [%rd5], %r4;",
}
RACES_OF_WARPS = {
    "no barrier": (f"st.global.u32 [%rd2], %r4;\n{OTHER}", ("RAW", 0, 32)),
    "a barrier that comes late": (
        f"st.global.u32 [%rd2], %r4; bar.sync 0;\n{OTHER}\nst.global.u32 [%rd2], %r6;",
        ("WAR", 0, 32),
    ),
    "several values": ("st.global.u32 [%rd6], %r0;", ("WAW", 31, 63)),
    "a barrier of one warp": (f"st.global.u32 [%rd2], %r4; bar.warp.sync -1;\n{OTHER}", ("RAW", 0, 32)),
    "an atomic and a load": ("red.global.add.u32 [%rd2], 1;\n" + OTHER, ("RAW", 0, 32)),
    "copies that nobody waits for": (
        f"{COPY}cp.async.commit_group; bar.sync 0;\nst.global.u32 [%rd5], %r4;",
        ("WAR", 32, 0),
    ),
}


LOADED = (
    "mov.u32 %r13, bar; @%p0 mbarrier.init.shared.b64 [%r13], 1;\nbar.sync 0;\n"
    "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r13], 256;\n"
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd6], 256, [%r13];\n"
)
WAITED = "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r13], 0; @!%p2 bra wait;\n"
STORED = (
    "st.shared.u32 [%r11], %r4; fence.proxy.async.shared::cta; bar.sync 0;\n@%p0 {};\n"
    "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;\n"
)
BULK_STORE = STORED.format("cp.async.bulk.global.shared::cta.bulk_group [%rd6], [%r10], 256")
BULK_SUM = STORED.format("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd6], [%r10], 256")
ORDERED_WARPS["a bulk copy that is waited for"] = f"{LOADED}{WAITED}st.global.u32 [%rd2], %r4;"
ORDERED_WARPS["a bulk copy to global memory"] = f"{BULK_STORE}bar.sync 0; {OTHER}"
RACES_OF_WARPS["a bulk copy that nobody waits for"] = (
    f"{LOADED}bar.sync 0;\n@!%p0 st.global.u32 [%rd2], %r4;",
    ("WAR", 0, 1),
)
RACES_OF_WARPS["a bulk copy to global memory, no barrier"] = (
    f"{BULK_STORE}setp.ge.u32 %p3, %r0, 32; @%p3 ld.global.u32 %r6, [%rd2];",
    ("RAW", 0, 32),
)
RACES_OF_WARPS["a bulk sum, no barrier"] = (
    f"{BULK_SUM}setp.ge.u32 %p3, %r0, 32; @%p3 ld.global.u32 %r6, [%rd2];",
    ("RAW", 0, 32),
)
BULK_AMONG = {
    "all read": (LOADED.replace("%rd6", "%rd0") + WAITED, []),
    "all add": (BULK_SUM.replace("%rd6", "%rd0"), []),
    "each its own": (BULK_STORE, []),
    "one reads what others store": (
        f"{LOADED}{WAITED}xor.b32 %r7, %r1, 1; mul.wide.u32 %rd8, %r7, 256; add.u64 %rd8, %rd8, %rd3; st.global.u32 [%rd8], %r4;",
        ["WAR", "RAW"],
    ),
    "one copies what others read": (f"{BULK_STORE}ld.global.u32 %r6, [%rd3];", ["RAW"]),
}


@pytest.mark.parametrize("name", BULK_AMONG)
def test_bulk_copies_of_several_blocks(name: str) -> None:
    body, kinds = BULK_AMONG[name]
    for waiting in ("", "ld.volatile.global.u32 %r7, [%rd1+512];\n"):
        found = [race.kind for race in launch(waiting + body).races if race.first.block != race.second.block]
        assert sorted(set(found)) == sorted(kinds)


@pytest.mark.parametrize("name", ORDERED_WARPS)
@pytest.mark.parametrize("waits", [False, True])
def test_warps_that_are_ordered_have_no_race(name: str, waits: bool) -> None:
    """Also where blocks may wait for one another."""
    body = ORDERED_WARPS[name]
    waiting = "ld.volatile.global.u32 %r7, [%rd1+512];\n" * waits
    assert launch(waiting + body, grid=1).races == ()
    assert [race for race in launch(waiting + body).races if race.first.block == race.second.block] == []


@pytest.mark.parametrize("name", RACES_OF_WARPS)
@pytest.mark.parametrize("waits", [False, True])
def test_warps_that_nothing_orders_have_a_race(name: str, waits: bool) -> None:
    body, (kind, first, second) = RACES_OF_WARPS[name]
    for grid in (1, 3):
        race = launch("ld.volatile.global.u32 %r7, [%rd1+512];\n" * waits + body, grid=grid).races[0]
        assert (race.space, race.kind, race.first.block[0], race.second.block[0]) == ("global", kind, 0, 0)
        assert (race.first.thread[0], race.second.thread[0]) == (first, second)


def test_blocks_that_end_release_nothing() -> None:
    """Those that run one after the other here, as not all fit."""
    body = f"{TAKEN}@%p0 ld.global.u32 %r6, [%rd0];\n@%p0 st.global.u32 [%rd0], %r4;"
    wanted = {
        ("RAW", "st.global.u32", "ld.global.u32", 0, 1),
        ("WAR", "ld.global.u32", "st.global.u32", 0, 1),
        ("WAW", "st.global.u32", "st.global.u32", 0, 1),
    }
    assert found_in(launch(body, grid=5000)) == wanted


def test_the_same_races_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of which those with low numbers come to lines last, and which meet others in many lines."""
    body = (
        "mul.lo.u32 %r5, %r3, 40503; rem.u32 %r5, %r5, 50000; mul.wide.u32 %rd7, %r5, 4; add.u64 %rd7, %rd0, %rd7;\n"
        "mov.u32 %r8, 0;\nmore: ld.global.u32 %r6, [%rd7]; add.u32 %r6, %r6, %r1; st.global.u32 [%rd7], %r6;\n"
        "add.u64 %rd7, %rd7, 4; red.global.add.u32 [%rd7+8], 1; add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 9; @%p2 bra more;\n"
        "@%p0 st.global.u32 [%rd2], 7; @%p0 st.global.u32 [%rd2+4], %r1;"
    )
    found = []
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        device = ge.Device(observe=set(), races="note", memory_bytes=1 << 22)
        data, flag = (device.zeros(1 << 18, np.uint32, name=name) for name in ("data", "flag"))
        module = ge.parse(f"{HEAD}{body}\ndone: ret; }}\n", path="k.ptx")
        found.append(device.launch(module["k"], 1000, 64, [data, flag]).races)
    assert found[0] != ()
    assert all(other == found[0] for other in found[1:])


#: block 0 stores and sets a flag, for which all threads wait; then warps of a block wait for one another, or set flags of their block
PASSED_ON = """@%p1 st.global.u32 [%rd2], %r4;
bar.sync 0;
@%p0 st.release.gpu.global.u32 [%rd1], 1;
spin: ld.{0}.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra spin;
{1}ld.global.u32 %r6, [%rd3];"""
WAYS = {
    "an mbarrier": "mov.u32 %r13, bar; @%p0 mbarrier.init.shared.b64 [%r13], 64;\nbar.sync 0;\n"
    f"mbarrier.arrive.shared.b64 %rd9, [%r13];\n{WAITED}",
    "a fence": "fence.acq_rel.cta; st.relaxed.cta.shared.u32 [told], 1; ld.acquire.cta.shared.u32 %r5, [told];\n",
}


@pytest.mark.parametrize("name", WAYS)
def test_what_blocks_of_an_earlier_launch_acquired_orders_nothing(name: str) -> None:
    assert launch(PASSED_ON.format("acquire", WAYS[name]), grid=2).races == ()
    wanted = ("RAW", "st.global.u32", "ld.global.u32", 0, 1)
    assert wanted in found_in(launch(PASSED_ON.format("relaxed", WAYS[name]), grid=2))


@pytest.mark.parametrize("warp", (1, 3))
def test_a_release_is_no_acquire_where_the_async_proxy_reads(warp: int) -> None:
    """What the async proxy sees has clocks of its own: these are not released to other blocks."""
    body = (
        "@%p1 ld.relaxed.gpu.global.u32 %r5, [%rd1+256]; mul.wide.u32 %rd6, %r1, 1024; add.u64 %rd6, %rd0, %rd6;\n"
        f"{BULK_STORE}st.release.gpu.global.u32 [%rd1+512], 1; @%p1 bra done;\n"
        f"shr.u32 %r7, %r0, 5; setp.ne.u32 %p2, %r7, {warp}; @%p2 bra done;\n"
        "membar.gl; ld.global.u32 %r6, [%rd3];"
    )
    races = launch(body.replace("], 256;", "], 1024;"), grid=2, block=256).races
    assert "ld.global.u32" in {race.second.opcode for race in races if race.first.block != race.second.block}
