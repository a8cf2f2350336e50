"""What orders accesses of global memory in clusters, and what is told where nothing does.

Manual: as ``test_cluster_races``. Blocks of one cluster can wait for one another, those of several cannot.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

import gpuperf_engine as ge

ARRIVE = "barrier.cluster.arrive.aligned;"
WAIT = "barrier.cluster.wait.aligned;"
SYNC = f"{ARRIVE} {WAIT}\n"
#: %rd2: a word of each thread; %rd3: that of the same thread of the next block of the cluster; %rd4: of the next warp of the own
#: block; %rd5: the first word of the cluster
HEAD = f""".version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {{
.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<10>; .shared .align 8 .b64 bar; .shared .b32 flag; .shared .align 16 .b8 sm[1024];
mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %clusterid.x;
add.u32 %r4, %r1, 1; rem.u32 %r4, %r4, %r2; mul.lo.u32 %r5, %r3, %r2; add.u32 %r6, %r5, %r1; add.u32 %r7, %r5, %r4;
ld.param.u64 %rd0, [data]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd0, %rd1; mul.wide.u32 %rd2, %r6, 256; add.u64 %rd2, %rd1, %rd2;
mul.wide.u32 %rd3, %r7, 256; add.u64 %rd3, %rd1, %rd3; xor.b32 %r8, %r0, 32; mul.wide.u32 %rd4, %r8, 4; add.u64 %rd4, %rd0, %rd4;
mul.wide.u32 %rd5, %r6, 256; add.u64 %rd4, %rd4, %rd5; mul.wide.u32 %rd5, %r5, 256; add.u64 %rd5, %rd0, %rd5;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r0, 32; mov.u32 %r10, bar; mov.u32 %r11, flag;
mad.lo.u32 %r9, %r6, 64, %r0; mapa.shared::cluster.u32 %r12, %r10, %r4; mapa.shared::cluster.u32 %r13, %r11, %r4;
@%p0 mbarrier.init.shared.b64 [%r10], 64; @%p0 st.shared.u32 [%r11], 0;
{SYNC}"""
BEFORE = HEAD.count("\n")
STORE = "st.global.u32 [%rd2], %r9;\n"
LOAD = "ld.global.u32 %r20, [%rd3];\n"
#: each block tells the next one, which waits
TOLD = (
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];\n"
    "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra wait;\n"
)
BEHIND = "sub.u32 %r21, %r2, 2; add.u32 %r21, %r21, %r4; rem.u32 %r21, %r21, %r2; add.u32 %r21, %r21, %r5;\n"
LOAD_BEHIND = (
    BEHIND + "mul.wide.u32 %rd6, %r21, 256; add.u64 %rd6, %rd1, %rd6;\nld.global.u32 %r20, [%rd6];\n"
)
FLAG = (
    "bar.sync 0;\n@%p0 st.{0}.shared::cluster.u32 [%r13], 1;\n"
    "@!%p0 bra join;\nspin: ld.{1}.shared.u32 %r22, [%r11]; setp.eq.u32 %p4, %r22, 0; @%p4 bra spin;\njoin: bar.sync 0;\n"
)

ORDERED = {
    "its own": STORE + "ld.global.u32 %r20, [%rd2];\n",
    "a barrier of the cluster": STORE + SYNC + LOAD,
    "a relaxed barrier behind a fence": STORE
    + "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n"
    + LOAD,
    "there and back": STORE + SYNC + "st.global.u32 [%rd3], %r0;\n" + SYNC + "ld.global.u32 %r20, [%rd4];\n",
    "an mbarrier": STORE + TOLD + LOAD_BEHIND,
    "a flag": STORE + FLAG.format("release.cluster", "acquire.cluster") + LOAD_BEHIND,
    "atomics": "red.global.add.u32 [%rd5], 1; red.global.add.u32 [%rd0], 1;\n",
    "one value": "st.global.u32 [%rd5], 7; st.global.u32 [%rd0], 7;\n",
    "all load": LOAD + "ld.global.u32 %r21, [%rd0]; st.global.u32 [%rd2+16384], %r20;\n",
    "warps of a block": STORE + "bar.sync 0; ld.global.u32 %r20, [%rd4];\n",
    "an element that one block loads and another one stores behind the barrier": LOAD
    + SYNC
    + "st.global.u32 [%rd2], %r20;\n",
}
#: the body, and what is found in a grid of two clusters of two blocks: kind, lines, and blocks. The second block of a cluster is the
#: last to arrive at the barrier before, and so the first to go on.
RACES = {
    "no barrier": (STORE + LOAD, {("RAW", 1, 2, 1, 0), ("WAR", 2, 1, 1, 0)}),
    "a barrier of the block": (
        STORE + "bar.sync 0;\n" + LOAD,
        {("RAW", 1, 3, 1, 0), ("WAR", 3, 1, 1, 0)},
    ),
    "an arrival that nobody waits for": (
        STORE + ARRIVE + "\n" + LOAD + WAIT,
        {("RAW", 1, 3, 1, 0), ("WAR", 3, 1, 1, 0)},
    ),
    "a relaxed barrier without a fence": (
        STORE + "barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n" + LOAD,
        {("RAW", 1, 3, 0, 1)},
    ),
    "warps of a block": (STORE + "ld.global.u32 %r20, [%rd4];\n", {("RAW", 1, 2, 0, 0), ("WAR", 2, 1, 0, 0)}),
    "several values": ("@%p0 st.global.u32 [%rd5], %r9;\n", {("WAW", 1, 1, 1, 0)}),
    "a flag whose scope is the block": (
        STORE + FLAG.format("release.cta", "acquire.cluster") + LOAD_BEHIND,
        {("RAW", 1, 9, 0, 1)},
    ),
    "another cluster": (
        STORE + SYNC + "xor.b32 %r20, %r6, 2; mul.wide.u32 %rd6, %r20, 256;\n"
        "add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r21, [%rd6];\n",
        {("RAW", 1, 4, 0, 2), ("WAR", 4, 1, 0, 2)},
    ),
    "several values of all clusters": (
        "setp.eq.and.u32 %p5, %r1, 1, %p0; @%p5 st.global.u32 [%rd0], %r9;\n",
        {("WAW", 1, 1, 1, 3)},
    ),
    "an atomic of the scope of a block": (
        "@%p0 red.relaxed.cta.global.add.u32 [%rd5], 1;\n",
        {("WAW", 1, 1, 1, 0)},
    ),
}


#: an atomic whose result is used: blocks may wait for others
TAKEN = "atom.global.add.u32 %r30, [%rd0+65024], 1;\n"
#: of each cluster one thread sets a flag, for which one thread of the next one waits
NEXT = (
    "add.u32 %r23, %r3, 1; mul.wide.u32 %rd7, %r23, 4; add.u64 %rd7, %rd0, %rd7; setp.eq.and.u32 %p5, %r1, 0, %p0;\n"
    "{before}\n@%p5 st{store}.global.u32 [%rd7+64512], 1;\n"
    "setp.ne.u32 %p6, %r3, 0; and.pred %p6, %p6, %p5; @!%p6 bra behind;\n"
    "look: ld{load}.global.u32 %r24, [%rd7+64508]; setp.eq.u32 %p7, %r24, 0; @%p7 bra look;\n{after}\nbehind: "
)
#: an element of the cluster before, of its second block
EARLIER = (
    "setp.eq.u32 %p6, %r3, 0; @%p6 bra done; sub.u32 %r25, %r5, 1; mul.wide.u32 %rd8, %r25, 256; add.u64 %rd8, %rd1, %rd8;\n"
    "ld.global.u32 %r26, [%rd8];\ndone: "
)
RELEASED = NEXT.format(before="", store=".release.gpu", load=".acquire.gpu", after="")
FENCED = NEXT.format(before="membar.gl;", store=".volatile", load=".volatile", after="membar.gl;")
#: the second block of each cluster waits for a flag of the first one in global memory
INSIDE = (
    "mul.wide.u32 %rd7, %r3, 4; add.u64 %rd7, %rd0, %rd7; setp.eq.and.u32 %p5, %r1, 0, %p0; setp.eq.and.u32 %p6, %r1, 1, %p0;\n"
    "bar.sync 0; {before}\n@%p5 st{store}.global.u32 [%rd7+64512], 1;\n"
    "@!%p6 bra behind;\n"
    "look: ld{load}.global.u32 %r24, [%rd7+64512]; setp.eq.u32 %p7, %r24, 0; @%p7 bra look;\n{after}\nbehind: bar.sync 0;\n"
    "setp.eq.u32 %p6, %r1, 1; add.u64 %rd8, %rd5, %rd1; sub.u64 %rd8, %rd8, %rd0; @%p6 ld.global.u32 %r26, [%rd8];\n"
)
ORDERED["a flag in global memory whose scope is the cluster"] = STORE + INSIDE.format(
    before="", store=".release.cluster", load=".acquire.cluster", after=""
)
ORDERED["a flag in global memory, with fences of the cluster"] = STORE + INSIDE.format(
    before="fence.acq_rel.cluster;", store=".volatile", load=".volatile", after="fence.acq_rel.cluster;"
)
ORDERED["an atomic whose scope is the cluster"] = "red.relaxed.cluster.global.add.u32 [%rd5], 1;\n"
ORDERED |= {f"{name}, where blocks may wait": TAKEN + body for name, body in ORDERED.items()}
ORDERED["a flag of another cluster"] = STORE + SYNC + RELEASED + SYNC + EARLIER
ORDERED["a flag of another cluster, with fences"] = STORE + SYNC + FENCED + SYNC + EARLIER
RACES |= {
    f"{name}, where blocks may wait": (TAKEN.replace("\n", " ") + body, found)
    for name, (body, found) in RACES.items()
}
RACES["a flag of another cluster, no barrier before"] = (
    STORE + RELEASED + SYNC + EARLIER,
    {("RAW", 1, 10, 1, 2)},
)
RACES["a flag of another cluster, no barrier behind"] = (
    STORE + SYNC + RELEASED + EARLIER,
    {("RAW", 1, 10, 1, 2)},
)
RACES["a flag of another cluster, no fence before"] = (
    STORE + SYNC + FENCED.replace("membar.gl;", "", 1) + SYNC + EARLIER,
    {("RAW", 1, 11, 1, 2)},
)
RACES["a flag of another cluster, whose scope is a cluster"] = (
    STORE
    + SYNC
    + NEXT.format(before="", store=".release.cluster", load=".acquire.cluster", after="")
    + SYNC
    + EARLIER,
    {("RAW", 1, 11, 1, 2), ("RAW", 5, 7, 0, 2)},
)
for side in ("before", "after"):
    fences = {"before": "membar.gl;", "after": "membar.gl;", side: "fence.acq_rel.cluster;"}
    RACES[f"a flag of another cluster, the fence {side} of the scope of a cluster"] = (
        STORE + SYNC + NEXT.format(store=".volatile", load=".volatile", **fences) + SYNC + EARLIER,
        {("RAW", 1, 11, 1, 2)},
    )
for taken in ("", TAKEN.replace("\n", " ")):
    RACES[f"an atomic of the scope of a cluster{', where blocks may wait' * bool(taken)}"] = (
        f"{taken}@%p0 red.relaxed.cluster.global.add.u32 [%rd0], 1;\n",
        {("WAW", 1, 1, 0, 2)},
    )


def launch(body: str, cluster: int = 2, clusters: int = 2, races: str = "note") -> ge.Profile:
    device = ge.Device(observe=set(), races=races, memory_bytes=1 << 20)
    module = ge.parse(f"{HEAD}{body}{SYNC}ret; }}\n", path="k.ptx")
    data = device.array(np.zeros(1 << 14, np.uint32))
    return device.launch(module["k"], cluster * clusters, 64, [data], cluster=cluster)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str) -> None:
    for cluster, clusters in ((2, 1), (2, 3), (3, 2), (16, 1)):
        assert launch(ORDERED[name], cluster, clusters).races == ()


@pytest.mark.parametrize("name", RACES)
def test_what_nothing_orders_is_a_race(name: str) -> None:
    body, wanted = RACES[name]
    found = set()
    for race in launch(body).races:
        first, second = (
            (int(access.location.split(":")[1]) - BEFORE, access.block[0])
            for access in (race.first, race.second)
        )
        assert race.space == "global"
        found.add((race.kind, first[0], second[0], first[1], second[1]))
    assert found == wanted


def test_blocks_of_a_grid_of_several_axes_are_named() -> None:
    """Of clusters of 2 × 2 blocks the third one, at (0, 1), stores what its neighbours load."""
    body = """setp.eq.u32 %p3, %r3, 0; mov.u32 %r14, %clusterid.y; setp.eq.and.u32 %p3, %r14, 1, %p3; @!%p3 bra done;
        setp.eq.and.u32 %p4, %r1, 3, %p0; @%p4 st.global.u32 [%rd0], %r9;
        setp.eq.and.u32 %p5, %r1, 2, %p0; @%p5 ld.global.u32 %r20, [%rd0];
        done: """
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    kernel = ge.parse(f"{HEAD}{body}{SYNC}ret; }}\n", path="k.ptx")["k"]
    (race,) = device.launch(kernel, (4, 6), 64, [device.zeros(1 << 14, np.uint32)], cluster=(2, 2)).races
    assert race.kind in ("RAW", "WAR")
    assert {(access.opcode[:2], access.block) for access in (race.first, race.second)} == {
        ("st", (1, 3, 0)),
        ("ld", (0, 3, 0)),
    }


def test_clusters_are_told_apart_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in (1, 4):
        monkeypatch.setattr("gpuperf_engine.device.device.host_threads", lambda threads=threads: threads)
        monkeypatch.setattr("gpuperf_engine.jit.dispatch.WORTH_IT", 0.0)
        body = "@%p0 st.global.u32 [%rd0], %r9;\n" + STORE + LOAD
        found.append(launch(body, clusters=60).races)
    assert found[0] == found[1] and {race.kind for race in found[0]} == {"RAW", "WAR", "WAW"}


def test_a_race_in_a_cluster_is_an_error_if_asked_for() -> None:
    with pytest.raises(ge.RaceError, match=r"race on global memory \(RAW\)"):
        launch(RACES["no barrier"][0], races="error")
    assert launch(RACES["no barrier"][0], races="off").races == ()


CLUSTERS, BLOCKS, WARPS, PLACES = 2, 2, 2, 3


@dataclass(frozen=True)
class Step:
    """``what``: st or ld of a place; bar or sync, at which block or cluster wait; arrive at an mbarrier, or wait for it: number
    ``place`` in the block of rank ``target``."""

    agent: int
    what: str
    place: int = 0
    target: int = 0

    @property
    def cluster(self) -> int:
        return self.agent // (BLOCKS * WARPS)


def random_steps(made: random.Random) -> list[Step]:
    """In an order in which they can run; each mbarrier is arrived at once, before it is waited for."""
    steps: list[Step] = []
    arrivals: list[Step] = []
    for _ in range(made.randint(8, 24)):
        agent = made.randrange(CLUSTERS * BLOCKS * WARPS)
        what = made.choice(("st", "ld", "ld", "bar", "sync", "sync", "sync", "arrive", "wait", "wait"))
        if what == "arrive":
            arrivals.append(Step(agent, what, len(arrivals), made.randrange(BLOCKS)))
            steps.append(arrivals[-1])
        elif what == "wait":
            if arrivals:
                told = made.choice(arrivals)
                block = told.cluster * BLOCKS + told.target
                steps.append(Step(block * WARPS + made.randrange(WARPS), what, told.place, told.target))
        else:
            steps.append(Step(agent, what, made.randrange(PLACES)))
    return steps


def waiting(step: Step) -> set[int]:
    """The agents that take part in a step."""
    size = {"bar": WARPS, "sync": WARPS * BLOCKS}.get(step.what, 1)
    return {*range(step.agent // size * size, step.agent // size * size + size)}


def unordered(steps: list[Step]) -> set[tuple[int, int]]:
    """Pairs of steps that conflict and are not in causality order: that of each program, of barriers, and of mbarriers."""
    after: dict[int, set[int]] = {number: set() for number in range(len(steps))}
    for number in reversed(range(len(steps))):
        step = steps[number]
        for later in range(number + 1, len(steps)):
            other = steps[later]
            told = (step.what, other.what) == ("arrive", "wait") and step.place == other.place
            if waiting(step) & waiting(other) or told:
                after[number] |= {later} | after[later]
    return {
        (number, later)
        for number, step in enumerate(steps)
        for later in range(number + 1, len(steps))
        if (step.what, steps[later].what) in (("st", "st"), ("st", "ld"), ("ld", "st"))
        and step.place == steps[later].place
        and step.agent != steps[later].agent
        and later not in after[number]
    }


def written(steps: list[Step], waits: bool) -> tuple[str, int]:
    """A kernel in which each step is a line, and where the first one is; ``waits``: its blocks may wait for other clusters."""
    head = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data) {{
.reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .pred %p<6>; .shared .align 8 .b64 bars[32];
mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %clusterid.x; shr.u32 %r3, %r0, 5;
mad.lo.u32 %r4, %r2, {BLOCKS}, %r1; mad.lo.u32 %r5, %r4, {WARPS}, %r3; and.b32 %r6, %r0, 31; setp.eq.u32 %p0, %r6, 0;
ld.param.u64 %rd0, [data]; mov.u32 %r7, bars; setp.lt.u32 %p1, %r0, 32; shl.b32 %r8, %r0, 3; add.u32 %r8, %r7, %r8;
@%p1 mbarrier.init.shared.b64 [%r8], 1;
barrier.cluster.arrive; barrier.cluster.wait;
"""
    lines = []
    for number, step in enumerate(steps):
        mine = f"setp.eq.and.u32 %p2, %r5, {step.agent}, %p0;"
        if step.what == "st":
            lines.append(f"{mine} @%p2 st.global.u32 [%rd0+{64 * step.place}], {number + 1};")
        elif step.what == "ld":
            lines.append(f"{mine} @%p2 ld.global.u32 %r9, [%rd0+{64 * step.place}];")
        elif step.what == "bar":
            lines.append(
                f"setp.ne.u32 %p2, %r4, {step.agent // WARPS}; @%p2 bra s{number}; bar.sync 0; s{number}:"
            )
        elif step.what == "sync":
            lines.append(
                f"setp.ne.u32 %p2, %r2, {step.cluster}; @%p2 bra s{number}; barrier.cluster.arrive; barrier.cluster.wait; s{number}:"
            )
        elif step.what == "arrive":
            lines.append(
                f"{mine} mov.u32 %r10, {step.target}; add.u32 %r11, %r7, {8 * step.place}; "
                "mapa.shared::cluster.u32 %r11, %r11, %r10; "
                "@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];"
            )
        else:
            lines.append(
                f"{mine} @!%p2 bra s{number}; w{number}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, "
                f"[%r7+{8 * step.place}], 0; @!%p3 bra w{number}; s{number}:"
            )
    taken = "atom.global.add.u32 %r9, [%rd0+2048], 1;" if waits else ""
    end = f"barrier.cluster.arrive; barrier.cluster.wait;\n{taken}\nret; }}\n"
    return head + "\n".join(lines) + "\n" + end, head.count("\n") + 1


@pytest.mark.parametrize("waits", [False, True])
def test_random_programs_of_clusters(waits: bool) -> None:
    """Each race that is told is one, and hardly any is not told."""
    made = random.Random(2)
    racy = told = free = 0
    for _ in range(15):
        steps = random_steps(made)
        text, first = written(steps, waits)
        device = ge.Device(observe=set(), memory_bytes=1 << 20)
        kernel = ge.parse(text, path="k.ptx")["k"]
        data = device.zeros(1024, np.uint32)
        races = device.launch(kernel, CLUSTERS * BLOCKS, 32 * WARPS, [data], cluster=BLOCKS).races
        found = {
            tuple(sorted(int(access.location.split(":")[1]) - first for access in (race.first, race.second)))
            for race in races
        }
        wanted = unordered(steps)
        assert found <= wanted, "\n".join(map(str, enumerate(steps)))
        racy += bool(wanted)
        told += bool(found)
        free += not wanted
    assert free >= 5 and told > 0.9 * racy > 5
