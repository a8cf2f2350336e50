"""What orders accesses of the shared memory of a cluster, and what is told where nothing does.

Manual: "Memory Consistency Model" ("Release and Acquire Patterns", "Synchronizes order", "Scope"), ``barrier.cluster`` (``arrive`` has
``.release`` unless ``.relaxed`` is given, ``wait`` has ``.acquire``), "mbarrier" (``arrive`` releases, ``test_wait`` and ``try_wait``
acquire), ``st.async``, ``red.async`` and ``cp.async.bulk`` (complete when the mbarrier at the destination has been told of the bytes).
"""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
HEAD = f""".version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {{
.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<10>;
.shared .align 128 .b8 sm[4096]; .shared .align 8 .b64 bar; .shared .b32 flag;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r0, 2; mov.u32 %r3, sm; add.u32 %r4, %r3, %r2;
xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; mov.u32 %r6, bar; mov.u32 %r7, flag;
mov.u32 %r10, %cluster_ctarank; mov.u32 %r11, %cluster_nctarank; add.u32 %r12, %r10, 1; rem.u32 %r12, %r12, %r11;
add.u32 %r13, %r10, %r11; sub.u32 %r13, %r13, 1; rem.u32 %r13, %r13, %r11; setp.eq.u32 %p2, %r10, 0; setp.eq.u32 %p8, %r10, 1;
mapa.shared::cluster.u32 %r14, %r4, %r12; mapa.shared::cluster.u32 %r15, %r5, %r12; mapa.shared::cluster.u32 %r16, %r6, %r12;
mapa.shared::cluster.u32 %r17, %r7, %r12; mapa.shared::cluster.u32 %r18, %r3, %r12; and.pred %p3, %p0, %p2;
ld.param.u64 %rd0, [data]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1;
@%p0 mbarrier.init.shared.b64 [%r6], COUNT; @%p0 st.shared.u32 [%r7], 0;
{SYNC}
"""
#: lines of the text before the body
BEFORE = HEAD.count("\n")
#: the word that another warp of the CTA before has for its own
OWN = "ld.shared.u32 %r20, [%r5];"
WAIT = "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r6], 0; @!%p4 bra wait;\n"
ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r16];\n"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 256;\n"
BULK = "@%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r18], [%r3], 256, [%r16];\n"
MULTICAST = (
    "mov.b16 %h0, 3;\n@%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%r3], [%rd0], 256, [%r6], %h0;\n"
)
#: the first CTA sets the flag of the second, which waits for it
SET = "@%p3 st.{0}.shared::cluster.u32 [%r17], 1;\n"
SPIN = "@!%p8 bra done;\nspin: ld.{0}.shared.u32 %r21, [%r7]; setp.eq.u32 %p4, %r21, 0; @%p4 bra spin;\n"

#: the body, and arrivals of the mbarrier
ORDERED = {
    "a load from a peer": ("st.shared.u32 [%r4], %r0; {sync} ld.shared::cluster.u32 %r20, [%r15];", 1),
    "a store after a load from a peer": (
        "ld.shared::cluster.u32 %r20, [%r14]; {sync} st.shared.u32 [%r4], %r0;",
        1,
    ),
    "a store to a peer": ("st.shared::cluster.u32 [%r14], %r0; {sync}" + OWN, 1),
    "generic addresses": (
        "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd4, %rd3, %r12; st.u32 [%rd4], %r0; {sync}"
        "ld.u32 %r20, [%rd3];",
        1,
    ),
    "a release and an acquire that are spelt out": (
        "st.shared::cluster.u32 [%r14], %r0; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
        + OWN,
        1,
    ),
    "a fence, and a relaxed arrival": (
        "st.shared::cluster.u32 [%r14], %r0; fence.acq_rel.cluster; barrier.cluster.arrive.relaxed;"
        "barrier.cluster.wait;" + OWN,
        1,
    ),
    "phase after phase": (
        "st.shared::cluster.u32 [%r14], %r0; {sync}"
        + OWN
        + "{sync} st.shared::cluster.u32 [%r14], %r2; {sync}"
        + OWN,
        1,
    ),
    "what two warps store to a peer": (
        "@%p1 st.shared::cluster.u32 [%r18], %r0; bar.sync 0; @!%p1 st.shared::cluster.u32 [%r18], %r0;\n"
        "{sync} ld.shared.u32 %r20, [%r3];",
        1,
    ),
    "an arrival at a peer": ("st.shared::cluster.u32 [%r14], %r0;\n" + ARRIVE + WAIT + OWN, 64),
    "an arrival at a peer, learned by one warp for all": (
        "st.shared::cluster.u32 [%r14], %r0;\n"
        + ARRIVE
        + "@%p1 bra all;\n"
        + WAIT
        + "all: bar.sync 0;\n"
        + OWN,
        64,
    ),
    "an empty slot told by its reader": (
        # the owner's warps read, then let the peer overwrite
        "ld.shared.u32 %r20, [%r4]; mapa.shared::cluster.u32 %r22, %r6, %r13;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];\n"
        + WAIT
        + "st.shared::cluster.u32 [%r14], %r0;",
        64,
    ),
    "an asynchronous store that is waited for": (
        EXPECT
        + "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r14], %r0, [%r16];\n"
        + WAIT
        + OWN,
        1,
    ),
    "an asynchronous reduction that is waited for": (
        EXPECT
        + "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r14], %r0, [%r16];\n"
        + WAIT
        + OWN,
        1,
    ),
    "a bulk copy to a peer that is waited for": (
        "st.shared.u32 [%r4], %r0; add.u32 %r18, %r18, 1024; fence.proxy.async.shared::cta; bar.sync 0;\n"
        + EXPECT
        + BULK
        + WAIT
        + "ld.shared.u32 %r20, [%r5+1024];",
        1,
    ),
    "a multicast that all wait for": (EXPECT + MULTICAST + WAIT + OWN, 1),
    "atomics": ("atom.shared::cluster.add.u32 %r20, [%r18], 1; red.shared.add.u32 [%r3], 1;", 1),
    "a flag that is released and acquired in the cluster": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0; bar.sync 0;\n"
        + SET.format("release.cluster")
        + SPIN.format("acquire.cluster")
        + "bar.sync 0;\n"
        + OWN
        + "\ndone:",
        1,
    ),
    "a flag and fences of the cluster": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0; bar.sync 0; fence.acq_rel.cluster;\n"
        + SET.format("relaxed.cluster")
        + SPIN.format("relaxed.cluster")
        + "fence.acq_rel.cluster;\n"
        + OWN
        + "\ndone:",
        1,
    ),
    "each its own half": (
        "st.shared::cluster.u32 [%r14+1024], %r0; st.shared.u32 [%r4], %r0; {sync} ld.shared.u32 %r20, [%r5+1024];",
        1,
    ),
}

#: the body, arrivals of the mbarrier, and for each finding both lines of the body (from 1 on) with their blocks (x), and the block
#: whose memory it is
RACES = {
    "a load from a peer": (
        "st.shared.u32 [%r4], %r0;\nld.shared::cluster.u32 %r20, [%r15];",
        1,
        [((1, 0), (2, 1), 0), ((1, 1), (2, 0), 1)],
    ),
    "a store to what a peer has read": (
        "@!%p2 bra other;\nld.shared::cluster.u32 %r20, [%r14];\nother: @!%p2 st.shared.u32 [%r4], %r0;",
        1,
        [((2, 0), (3, 1), 1)],
    ),
    "two that store": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\n@!%p2 st.shared.u32 [%r5], %r2;",
        1,
        [((1, 0), (2, 1), 1)],
    ),
    "a barrier of one CTA": (
        "st.shared::cluster.u32 [%r14], %r0;\nbar.sync 0;\n@!%p2 " + OWN,
        1,
        [((1, 0), (3, 1), 1)],
    ),
    "generic addresses": (
        "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd4, %rd3, %r12;\n@%p2 st.u32 [%rd4], %r0;\n"
        "@!%p2 ld.u32 %r20, [%rd3];",
        1,
        [((2, 0), (3, 1), 1)],
    ),
    "generic addresses in shared operands": (
        "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd4, %rd3, %r12;\n@%p2 st.shared::cluster.u32 [%rd4], %r0;\n"
        "@!%p2 ld.shared.u32 %r20, [%rd3];",
        1,
        [((2, 0), (3, 1), 1)],
    ),
    "a relaxed arrival without a fence": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\nbarrier.cluster.arrive.relaxed; barrier.cluster.wait;\n@!%p2 "
        + OWN,
        1,
        [((1, 0), (3, 1), 1)],
    ),
    "between arrival and wait": (
        "barrier.cluster.arrive;\n@%p2 st.shared::cluster.u32 [%r14], %r0;\nbarrier.cluster.wait;\n@!%p2 "
        + OWN,
        1,
        [((2, 0), (4, 1), 1)],
    ),
    "an arrival that nobody waits for": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\n" + ARRIVE + "@!%p2 " + OWN,
        64,
        [((1, 0), (3, 1), 1)],
    ),
    "an arrival of one warp only": (
        # the other warp of the peer stores as well, and nothing says when
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\n@%p1 "
        + ARRIVE
        + "@%p2 bra done;\n"
        + WAIT
        + OWN
        + "\ndone:",
        32,
        [((1, 0), (5, 1), 1)],
    ),
    "an asynchronous store that nobody waits for": (
        "@%p2 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r14], %r0, [%r16];\n@!%p2 " + OWN,
        1,
        [((1, 0), (2, 1), 1)],
    ),
    "a bulk copy to a peer that nobody waits for": (
        "@%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r18], [%r3+1024], 256, [%r16];\n"
        "@!%p2 " + OWN,
        1,
        [((1, 0), (2, 1), 1)],
    ),
    "a multicast that nobody waits for": (
        MULTICAST + "@!%p2 " + OWN,
        1,
        [((2, 0), (3, 1), 1)],
    ),
    "an atomic and a load": (
        "@%p2 atom.shared::cluster.add.u32 %r20, [%r18], 1;\n@!%p2 ld.shared.u32 %r20, [%r3];",
        1,
        [((1, 0), (2, 1), 1)],
    ),
    "a flag whose scope is the CTA": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\nbar.sync 0;\n"
        + SET.format("release.cta")
        + SPIN.format("acquire.cluster")
        + OWN
        + "\ndone:",
        1,
        [((1, 0), (6, 1), 1)],
    ),
    "a fence whose scope is the CTA": (
        "@%p2 st.shared::cluster.u32 [%r14], %r0;\nbar.sync 0;\nfence.acq_rel.cta;\n"
        + SET.format("relaxed.cluster")
        + SPIN.format("relaxed.cluster")
        + "fence.acq_rel.cluster;\n"
        + OWN
        + "\ndone:",
        1,
        [((1, 0), (8, 1), 1)],
    ),
}


def launch(body: str, count: int, cluster: int = 2, clusters: int = 1, races: str = "note") -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    text = HEAD.replace("COUNT", str(count)).replace(".reg .pred", ".reg .b16 %h<4>; .reg .pred")
    module = ge.parse(f"{text}{body.replace('{sync}', SYNC)}\n{SYNC}\nret; }}\n", path="k.ptx")
    data = device.array(np.arange(1024, dtype=np.uint32))
    return device.launch(module["k"], cluster * clusters, 64, [data], cluster=cluster)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    body, count = ORDERED[name]
    for cluster, clusters in ((2, 1), (2, 3), (3, 2), (16, 1)):
        if cluster == 2 or MULTICAST not in body:
            assert launch(body, count, cluster, clusters).races == ()


@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_is_a_race(name: str) -> None:
    body, count, wanted = RACES[name]
    found = []
    for race in launch(body, count, clusters=2).races:
        first, second = (
            (int(access.location.split(":")[1]) - BEFORE, access.block[0])
            for access in (race.first, race.second)
        )
        _, _, owner = race.object.partition(" of block ")
        number = int(owner.strip("()").split(",")[0]) if owner else second[1]
        found.append((*sorted((first, second)), number))
        stores = [not access.opcode.startswith("ld.") for access in (race.first, race.second)]
        assert race.kind == {(1, 0): "RAW", (0, 1): "WAR", (1, 1): "WAW"}[tuple(map(int, stores))]
        assert race.space == "shared" and race.count in (64, 128, 256)
    assert sorted(found) == wanted


def test_what_is_told_of_a_race() -> None:
    """The second warp of block 2 has not released what it has stored to the memory of block 3, from word 32 on."""
    body, count, _ = RACES["an arrival of one warp only"]
    profile = launch(body, count, clusters=2)
    (race,) = profile.races
    where = f"k.ptx:{BEFORE + 1}:1"
    assert race.message == (
        f"k.ptx:{BEFORE + 5}:1: race on shared memory (RAW): ld.shared.u32 by thread (0, 0, 0) of block (1, 0, 0) reads what "
        f"st.shared::cluster.u32 by thread (32, 0, 0) of block (0, 0, 0) at {where} has stored, at sm + 128, "
        "with nothing between that orders them"
    )
    assert race.message in profile.notes
    body, count, _ = RACES["a load from a peer"]
    message = launch(body, count).races[0].message
    assert "(0, 0, 0) of block (0, 0, 0) reads what" in message
    assert "(32, 0, 0) of block (1, 0, 0) at" in message and "at sm + 128 of block (1, 0, 0)" in message


@pytest.mark.parametrize("cluster", [3, 8, 16])
def test_each_pair_of_a_large_cluster(cluster: int) -> None:
    """Each CTA stores to the next one, which reads without waiting: all of them race, and none other."""
    profile = launch(RACES["a load from a peer"][0], 1, cluster)
    pairs = {(race.first.block[0], race.second.block[0]) for race in profile.races}
    assert profile.races and all((a - b) % cluster in (1, cluster - 1) for a, b in pairs)
    # each of the 64 words of a CTA once, by whichever of the two comes later
    assert sum(race.count for race in profile.races) == 64 * cluster


def test_clusters_are_told_apart_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    body, count, _ = RACES["a load from a peer"]
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        found.append(launch(body, count, clusters=300).races)
    assert found[0] == found[1] and found[0][0].count == 300 * 64


def test_a_race_in_a_cluster_is_an_error_if_asked_for() -> None:
    body, count, _ = RACES["a load from a peer"]
    with pytest.raises(ge.RaceError, match=r"race on shared memory \(RAW\).*at sm \+ 128 of block"):
        launch(body, count, races="error")
    assert launch(body, count, races="off").races == ()
