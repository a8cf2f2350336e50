"""Stores by threads that the async proxy reads: which fences let it see them, and what is told where there is none.

Manual: "Async proxy" (bulk and tensor copies are performed in it; accesses of the same memory by two proxies need a fence; an implicit
one follows a copy that is complete), "Proxy-preserved base causality order" (the fence lies along the path from one access to the
other, in whichever thread), ``wgmma.mma_async`` (performed in the async proxy), ``cp.async``, ``st.async`` and ``red.async`` (in the
generic one), ``fence.proxy.async`` (with a state space, of accesses of that one).
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .align 64 .b8 map[128]) {
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<10>; .reg .f32 %f<8>;
.shared .align 128 .b8 sm[8192]; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r0, 2; mov.u32 %r3, sm; add.u32 %r4, %r3, %r2; xor.b32 %r5, %r4, 128;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; mov.u32 %r6, bar; mov.b64 %rd5, map; cvta.param.u64 %rd5, %rd5;
ld.param.u64 %rd0, [data]; add.u64 %rd2, %rd0, 2048; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1;
mov.b64 %rd3, 0x4000800010000; cvt.u64.u32 %rd4, %r3; shr.u64 %rd4, %rd4, 4; or.b64 %rd3, %rd3, %rd4;
@%p0 mbarrier.init.shared.b64 [%r6], COUNT;
bar.sync 0;
"""
#: lines of the text before the body
BEFORE = HEAD.count("\n")
STORE = "st.shared.u32 [%r4], %r0;\n"
FENCE = "fence.proxy.async.shared::cta;\n"
MEET = "bar.sync 0;\n"
OUT = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 512;\n"
COMMIT = "@%p0 cp.async.bulk.commit_group;\n"
READ = "@%p0 cp.async.bulk.wait_group.read 0;\n"
#: to other bytes of global memory, from other bytes of shared memory
ELSEWHERE = "add.u64 %rd2, %rd2, 512; add.u32 %r3, %r3, 512;\n" + OUT
TENSOR = "@%p0 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd5, {0}], [%r3];\n"
TOLD = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
PRODUCT = (
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd3, %rd3, 0, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
)
WAIT = "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra wait;\n"
IN = (
    "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 512;\n"
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd0], 512, [%r6];\n"
)

FENCED = {
    "by those that store": STORE + FENCE + MEET + OUT,
    "by the one that copies": STORE + MEET + "@%p0 " + FENCE + OUT,
    "by another thread, between barriers": STORE + MEET + "@!%p1 " + FENCE + MEET + OUT,
    "of all state spaces": STORE + "fence.proxy.async;\n" + MEET + OUT,
    "of one direction": STORE
    + "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;\n"
    + MEET
    + OUT,
    "before an arrival": STORE + FENCE + "mbarrier.arrive.shared.b64 %rd6, [%r6];\n" + WAIT + OUT,
    "a tensor copy": STORE + FENCE + MEET + TENSOR,
    "a product": STORE + FENCE + MEET + PRODUCT,
    "one fence for what all copies have brought": "cp.async.ca.shared.global [%r4], [%rd1], 4; cp.async.wait_all;\n"
    + FENCE
    + MEET
    + PRODUCT,
    "the async proxy alone": IN + WAIT + OUT,
    "what a copy has brought": IN + WAIT + "ld.shared.u32 %r9, [%r4];",
    "a copy to where threads have read": "ld.shared.u32 %r9, [%r5];\n" + MEET + IN + WAIT,
    "each time anew": (
        STORE + FENCE + MEET + OUT + "@%p0 cp.async.bulk.commit_group;\n"
        "@%p0 cp.async.bulk.wait_group.read 0;\n" + MEET
    )
    * 2,
    "a copy of a tensor map, by the generic proxy": STORE
    + MEET
    + "@!%p1 bra done;\ntensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r3], 128;\n"
    + "done:\n",
    "a copy of other bytes": "st.shared.u32 [%r4+1024], %r0;\n" + MEET + OUT,
}

#: the body, and lines of the body (from 1 on) of what is stored and of what reads it
UNFENCED = {
    "a copy": (STORE + MEET + OUT, [(1, 3)]),
    "a tensor copy": (STORE + MEET + TENSOR, [(1, 3)]),
    "a product": (STORE + MEET + PRODUCT, [(1, 4)]),
    "a fence of other memory": (STORE + "fence.proxy.async.global;\n" + MEET + OUT, [(1, 4)]),
    "a fence of another kind": (STORE + "fence.acq_rel.gpu;\n" + MEET + OUT, [(1, 4)]),
    "a fence before the stores": (FENCE + STORE + MEET + OUT, [(2, 4)]),
    "a fence between two stores": (STORE + FENCE + STORE + MEET + OUT, [(3, 5)]),
    "a fence in a thread that knows nothing of the stores": (
        "@%p1 " + STORE + "@!%p1 " + FENCE + MEET + OUT,
        [(1, 4)],
    ),
    "a fence of some of those that store": (STORE + "@%p1 " + FENCE + MEET + OUT, [(1, 4)]),
    "what copies of the generic proxy have brought": (
        "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.wait_all;\n" + MEET + PRODUCT,
        [(1, 5)],
    ),
    "an atomic": ("red.shared.add.u32 [%r4], %r0;\n" + MEET + OUT, [(1, 3)]),
    "the second time": (STORE + FENCE + MEET + OUT + COMMIT + READ + MEET + STORE + MEET + OUT, [(8, 10)]),
    "an arrival": (STORE + "mbarrier.arrive.shared.b64 %rd6, [%r6];\n" + WAIT + OUT, [(1, 4)]),
    "changed after a copy has brought it": (IN + WAIT + MEET + STORE + MEET + OUT, [(5, 7)]),
}


GONE = STORE + FENCE + MEET + OUT + COMMIT
#: the body, and lines of a copy that reads shared memory and of what overwrites it
UNREAD = {
    "no wait": (GONE + MEET + STORE, [(4, 7)]),
    "no group": (STORE + FENCE + MEET + OUT + MEET + STORE, [(4, 6)]),
    "a wait for all groups but this one": (GONE + READ.replace(" 0;", " 1;") + MEET + STORE, [(4, 8)]),
    "a wait by another warp": (
        GONE + "setp.eq.u32 %p3, %r0, 64;\n" + READ.replace("%p0", "%p3") + MEET + STORE,
        [(4, 9)],
    ),
    "a wait behind the barrier": (GONE + MEET + READ + STORE, [(4, 8)]),
    "a wait before the copy": (STORE + FENCE + MEET + READ + OUT + COMMIT + MEET + STORE, [(5, 8)]),
    "a tensor copy": (GONE.replace(OUT, TENSOR) + MEET + STORE, [(4, 7)]),
    "a copy into what is read": (GONE + IN, [(4, 7)]),
    "the thread that copies": (GONE + "@%p0 st.shared.u32 [%r3], %r1;\n", [(4, 6)]),
}
#: a wait for copies of one kind is none for those of the other (manual, "cp.async.wait_group", "cp.async.bulk.wait_group")
FETCH = "cp.async.ca.shared.global [%r4+1024], [%rd1], 4;\ncp.async.commit_group;\n"
for _wait in ("cp.async.wait_all;\n", "cp.async.wait_group 0;\n"):
    UNREAD[f"{_wait[:-2]} alone"] = (GONE + FETCH + _wait + MEET + STORE, [(4, 10)])
READ_BEFORE = {
    "a wait for what is read": GONE + READ + MEET + STORE,
    "a wait for the whole copy": GONE + READ.replace(".read", "") + MEET + STORE,
    "the thread that copies": GONE + READ + "@%p0 st.shared.u32 [%r3], %r1;\n",
    "a wait for the group before": GONE + ELSEWHERE + COMMIT + READ.replace(" 0;", " 1;") + MEET + STORE,
    "a copy into what is read": GONE + READ + IN,
    "a tensor copy": GONE.replace(OUT, TENSOR) + READ + MEET + STORE,
    "an empty group": GONE + COMMIT + READ + MEET + STORE,
    "those that read, too": GONE + "ld.shared.u32 %r9, [%r5];\n",
}


def launch(body: str, races: str = "note", block: int = 128) -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    count = 1 if IN in body else 128
    module = ge.parse(f"{HEAD.replace('COUNT', str(count))}{body}\nret; }}\n", path="k.ptx")
    data = device.array(np.zeros(4096, np.uint32))
    made = ge.TensorMap(device.array(np.zeros(1024, np.uint32)), (128,))
    return device.launch(module["k"], 2, block, [data, made])


@pytest.mark.parametrize("name", FENCED)
def test_what_a_fence_lets_the_async_proxy_see(name: str) -> None:
    assert [race for race in launch(FENCED[name]).races if race.space == "shared"] == []


@pytest.mark.parametrize("name", UNFENCED)
def test_what_no_fence_lets_the_async_proxy_see(name: str) -> None:
    body, wanted = UNFENCED[name]
    found = set()
    for race in launch(body).races:
        if race.space == "shared":
            assert (race.kind, race.missing) == ("RAW", "fence.proxy.async")
            found.add(tuple(int(side.location.split(":")[1]) - BEFORE for side in (race.first, race.second)))
    assert sorted(found) == wanted


@pytest.mark.parametrize("name", UNREAD)
def test_what_overwrites_the_source_of_a_copy(name: str) -> None:
    body, wanted = UNREAD[name]
    races = [race for race in launch(body).races if race.space == "shared"]
    lines = [
        tuple(int(side.location.split(":")[1]) - BEFORE for side in (race.first, race.second))
        for race in races
    ]
    assert ({(race.kind, race.missing) for race in races}, lines) == ({("WAR", "")}, wanted)


@pytest.mark.parametrize("name", READ_BEFORE)
def test_what_waits_until_the_source_of_a_copy_has_been_read(name: str) -> None:
    assert [race for race in launch(READ_BEFORE[name]).races if race.space == "shared"] == []


@pytest.mark.parametrize("wait", [READ, READ.replace(".read", "")])
@pytest.mark.parametrize("waits", [True, False])
def test_a_wait_for_bulk_copies_is_none_for_others(wait: str, waits: bool) -> None:
    """Neither for what ``cp.async`` stores to shared memory nor for what it loads from global memory."""
    body = (
        # one warp copies, and waits
        f"@!%p1 bra other;\n{FETCH}other: {'cp.async.wait_all;' * waits}\n{GONE}{wait}{MEET}ld.shared.u32 %r9, [%r5+1024];\n"
        "sub.u32 %r7, %r5, %r3; cvt.u64.u32 %rd6, %r7; add.u64 %rd6, %rd0, %rd6; st.global.u32 [%rd6], %r0;"
    )
    found = {
        (race.space, race.kind)
        for race in launch(body).races
        if race.first.opcode.startswith("cp.async.ca") and race.first.block == race.second.block
    }
    assert found == (set() if waits else {("shared", "RAW"), ("global", "WAR")})


@pytest.mark.parametrize("waits", [True, False])
def test_copies_of_more_warps_than_have_agents_of_their_own(waits: bool) -> None:
    """Each of 20 warps copies what it has stored, and stores again."""
    body = (
        f"{STORE}{FENCE}and.b32 %r7, %r0, 31; setp.eq.u32 %p3, %r7, 0; add.u64 %rd6, %rd1, 4096;\n"
        "@%p3 cp.async.bulk.global.shared::cta.bulk_group [%rd6], [%r4], 128;\n"
        f"@%p3 {COMMIT.removeprefix('@%p0 ')}{READ.replace('%p0', '%p3') * waits}{STORE}"
    )
    races = [race for race in launch(body, block=640).races if race.space == "shared"]
    assert {(race.kind, race.first.thread[0]) for race in races} == (set() if waits else {("WAR", 0)})


def test_what_nothing_orders_is_told_as_such() -> None:
    """A fence alone does not help where there is no barrier."""
    for body in (STORE + OUT, STORE + FENCE + OUT):
        told = {race.missing for race in launch(body).races if race.space == "shared"}
        # the copy of the first thread comes after what its own warp has stored
        assert told == ({"", "fence.proxy.async"} if FENCE not in body else {""})


def test_what_is_told_of_a_missing_fence() -> None:
    race = next(race for race in launch(STORE + MEET + OUT).races if race.space == "shared")
    assert race.message == (
        f"k.ptx:{BEFORE + 3}:1: race on shared memory (RAW): cp.async.bulk.global.shared::cta.bulk_group by thread (0, 0, 0) of "
        f"block (0, 0, 0) reads what st.shared.u32 by thread (0, 0, 0) at k.ptx:{BEFORE + 1}:1 has stored, at sm, "
        "with no fence.proxy.async between"
    )
    assert race.to_dict()["missing"] == "fence.proxy.async"
    with pytest.raises(ge.RaceError, match=r"fence\.proxy\.async after the stores and before the barrier"):
        launch(STORE + MEET + OUT, "error")
