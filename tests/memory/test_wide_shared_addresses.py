"""Addresses of shared memory in 64 bits: in a shared operand a generic address counts as its low 32 bits ("truncated if the register
width exceeds the state space address width"), and from sm_90 on the low 32 bits of an address without a state space are enough for
instructions that access only shared memory, as in their machine code. Every instruction, both backends, against arithmetic."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import BACKENDS

HEAD = """.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .align 64 .b8 map[128]) {{
.reg .b32 %v, %w, %t, %k, %z, %four<4>, %m<8>, %near<4>; .reg .b64 %out, %in, %all, %state, %wide<4>, %off<4>, %mixed<4>, %map;
.reg .pred %p, %first, %odd; .reg .b16 %mask;
.shared .align 128 .b8 pad[128]; .shared .align 128 .b8 tile[4096]; .shared .align 8 .b64 bar;
st.shared.u32 [pad], 0; ld.param.u64 %out, [out]; ld.param.u64 %all, [data]; mov.b64 %map, map; cvta.param.u64 %map, %map;
mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; and.b32 %z, %t, 1; setp.ne.u32 %odd, %z, 0; mad.lo.u32 %k, %t, 3, 1;
mad.wide.u32 %in, %t, 4, %all; mad.wide.u32 %out, %t, 4, %out;
mov.u32 %near0, tile; mad.lo.u32 %near1, %t, 4, %near0; mad.lo.u32 %near2, %t, 16, %near0; mov.u32 %near3, bar;
"""
HEAD += "".join(
    f"cvt.u64.u32 %off{n}, %near{n}; cvta.shared.u64 %wide{n}, %off{n};"
    f"selp.b64 %mixed{n}, %wide{n}, %off{n}, %odd;\n"
    for n in range(4)
)
#: how the address comes: in 32 bits, in 64 with an upper half of zero or that of the window, or either by lane
WAYS = ("near", "off", "wide", "mixed")
#: TILE: the start of a tile, WORD and ROW: word and 16 bytes of the thread in it, BAR: a barrier; what is left in %v
READY = "@%first mbarrier.init.shared.b64 [BAR], {};\n bar.sync 0;\n"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p, [BAR], 0;\n@!%p bra W;\n"
EXPECT = READY.format(1) + "@%first mbarrier.arrive.expect_tx.shared.b64 %state, [BAR], 128;\n bar.sync 0;\n"
TOLD = "mbarrier::complete_tx::bytes"
FILL, READ = "st.shared.u32 [%near1], %k;\n", "ld.shared.u32 %v, [%near1];\n"
RESULT = "fence.proxy.async; bar.sync 0;\n"
MOVED = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bar.sync 0; ld.global.u32 %v, [%in];\n"
EIGHT = "{%m0, %m1, %m2, %m3, %m4, %m5, %m6, %m7}"
PLAIN = {
    "a store and a load": (
        "st.shared.u32 [WORD+128], %k; bar.sync 0; ld.shared.u32 %v, [WORD+128];",
        lambda t: 3 * t + 1,
    ),
    "vectors": (
        "st.shared.v4.u32 [ROW], {%t, %k, %t, %k}; ld.shared.v2.u32 {%w, %v}, [ROW+8]; add.u32 %v, %v, %w;",
        lambda t: 4 * t + 1,
    ),
    "bytes": ("st.shared.u8 [WORD+2], %k; ld.shared.s8 %v, [WORD+2];", lambda t: 3 * t + 1),
    "one address of all lanes": (
        "@%first st.shared.u32 [TILE+8], 77; bar.sync 0; ld.shared.u32 %v, [TILE+8];",
        lambda t: 77,
    ),
    "a guarded load": (f"{FILL} mov.u32 %v, 5; @%odd ld.shared.u32 %v, [WORD];", lambda t: 3 * t + 1 if t % 2 else 5),
    "atomics": (
        "st.shared.u32 [TILE], 0; bar.sync 0; red.shared.add.u32 [TILE], %t; atom.shared.inc.u32 %w, [TILE], 99999; bar.sync 0;"
        "ld.volatile.shared.u32 %v, [TILE];",
        lambda t: 31 * 32 // 2 + 32,
    ),
    "a compare and swap": (
        f"{FILL} atom.shared.cas.b32 %w, [WORD], %k, 9; ld.shared.u32 %v, [WORD]; add.u32 %v, %v, %w;",
        lambda t: 9 + 3 * t + 1,
    ),
    "cp.async": ("cp.async.ca.shared.global [WORD], [%in], 4; cp.async.wait_all;" + READ, lambda t: 5 * t + 2),
    "a part with cp.async": (
        "cp.async.ca.shared.global [WORD], [%in], 4, 1; cp.async.wait_all;" + READ,
        lambda t: (5 * t + 2) % 256,
    ),
    "wmma": (
        "".join(f"st.shared.u32 [%near1+{128 * n}], %k;" for n in range(8))
        + f"wmma.load.c.sync.aligned.row.m16n16k16.shared.s32 {EIGHT}, [TILE], 16;"
        + f"wmma.store.d.sync.aligned.row.m16n16k16.shared.s32 [TILE+1024], {EIGHT}, 16;"
        + "ld.shared.u32 %v, [%near1+1408];",
        lambda t: 3 * t + 1,
    ),
    "a bulk copy to shared memory": (
        f"{EXPECT} @%first cp.async.bulk.shared::cluster.global.{TOLD} [TILE], [%all], 128, [BAR];\n{WAIT}{READ}",
        lambda t: 5 * t + 2,
    ),
    "a bulk copy to global memory": (
        f"{FILL}{RESULT}@%first cp.async.bulk.global.shared::cta.bulk_group [%all], [TILE], 128;{MOVED}",
        lambda t: 3 * t + 1,
    ),
    "a bulk copy in shared memory": (
        f"{FILL}{RESULT}{EXPECT}@%first cp.async.bulk.shared::cluster.shared::cta.{TOLD} [TILE+256], [TILE], 128, [BAR];"
        f"\n{WAIT} ld.shared.u32 %v, [%near1+256];",
        lambda t: 3 * t + 1,
    ),
    "a bulk reduction": (
        f"{FILL}{RESULT}@%first cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%all], [TILE], 128;{MOVED}",
        lambda t: 3 * t + 1 + 5 * t + 2,
    ),
    "a tensor copy to shared memory": (
        f"{EXPECT} @%first cp.async.bulk.tensor.1d.shared::cluster.global.tile.{TOLD} [TILE], [%map, {{0}}], [BAR];"
        f"\n{WAIT}{READ}",
        lambda t: 5 * t + 2,
    ),
    "a tensor copy to global memory": (
        f"{FILL}{RESULT}@%first cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%map, {{0}}], [TILE];{MOVED}",
        lambda t: 3 * t + 1,
    ),
    "a tensor map": (
        "".join(f"st.shared.u32 [%near1+{128 * n}], 0;" for n in range(2))
        + "bar.sync 0; @%first tensormap.replace.tile.global_address.shared::cta.b1024.b64 [TILE], %all; mov.u32 %v, 3;",
        lambda t: 3,
    ),
}  # fmt: skip
#: those that may leave out the state space, and access shared memory only
SHARED_ONLY = {
    "ldmatrix": (f"{FILL} bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%v}}, [ROW];", lambda t: 3 * t + 1),
    "stmatrix": (f"stmatrix.sync.aligned.m8n8.x1.shared.b16 [ROW], {{%k}}; bar.sync 0; {READ}", lambda t: 3 * t + 1),
    "an mbarrier": (
        READY.format(32)
        + "mbarrier.arrive.shared.b64 %state, [BAR];\nW: mbarrier.try_wait.shared.b64 %p, [BAR], %state;\n@!%p bra W;\n"
        "mbarrier.test_wait.parity.shared.b64 %p, [BAR], 1; selp.u32 %v, 1, 2, %p; bar.sync 0;\n"
        "@%first mbarrier.inval.shared.b64 [BAR];",
        lambda t: 2,
    ),
    "copies that arrive": (
        READY.format(32)
        + "cp.async.ca.shared.global [%near1], [%in], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [BAR];\n"
        + WAIT
        + READ,
        lambda t: 5 * t + 2,
    ),
    "st.async": (
        f"{EXPECT} st.async.shared::cluster.{TOLD}.b32 [WORD], %k, [BAR];\n{WAIT}{READ}",
        lambda t: 3 * t + 1,
    ),
    "red.async": (
        f"st.shared.u32 [%near0], 4;{EXPECT} red.async.relaxed.cluster.shared::cluster.{TOLD}.add.u32 [TILE], %t, [BAR];\n"
        f"{WAIT} ld.shared.u32 %v, [%near0];",
        lambda t: 4 + 31 * 32 // 2,
    ),
    "st.bulk": (
        f"{FILL} bar.sync 0; @%first st.bulk.weak.shared::cta [TILE], 64, 0;\nbar.sync 0; {READ}",
        lambda t: 0 if t < 16 else 3 * t + 1,
    ),
    "a request for another cluster": (
        f"{FILL}{READY.format(1)}@%first mbarrier.arrive.expect_tx.shared.b64 %state, [BAR], 16;\n"
        f"@%first clusterlaunchcontrol.try_cancel.async.shared::cta.{TOLD}.b128 [TILE], [BAR];\n{WAIT}{READ}",
        lambda t: 0 if t < 4 else 3 * t + 1,
    ),
    "tcgen05.alloc": (
        f"{FILL} bar.sync 0; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [TILE], 32; bar.sync 0;\n"
        f"ld.shared.u32 %w, [%near0]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %w, 32; {READ}",
        lambda t: 3 * t + 1 if t else 0,
    ),
    "tcgen05.commit": (
        f"{READY.format(1)} @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [BAR];\n"
        f"{WAIT} mov.u32 %v, 8;",
        lambda t: 8,
    ),
}  # fmt: skip
CASES = PLAIN | SHARED_ONLY
#: the state spaces in these, except of the accesses that only fill and read the tile, or copy in front of an arrival
_SPACE = re.compile(
    r"((?:cp\.async\.mbarrier|ldmatrix|stmatrix|mbarrier|st\.async|red\.async|st\.bulk|clusterlaunch|tcgen05)\S*?)\.shared(?:::c\w+)?"
)


def text(body: str, way: str, target: str = "sm_100a") -> str:
    for number, name in enumerate(("TILE", "WORD", "ROW", "BAR")):
        body = re.sub(rf"\[{name}\b", f"[%{way}{number}", body)
    return f"{HEAD.format(target=target)}{body}\nst.global.u32 [%out], %v; ret; }}"


def launched(backend: str, source: str, observe: set[str] | None = None) -> tuple[list[int], ge.Profile]:
    device = ge.Device(observe or {"memory"}, backend=backend, memory_bytes=1 << 20)
    out = device.zeros(32, np.uint32, name="out")
    data = device.array(np.arange(2, 162, 5, dtype=np.uint32), name="data")
    kernel = ge.parse(source, path="wide.ptx")["k"]
    profile = device.launch(kernel, 1, 32, [out, data, ge.TensorMap(data, (32,))])
    return out.numpy().tolist(), profile


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_every_instruction(backend: str, case: str, way: str) -> None:
    body, wanted = CASES[case]
    found, _ = launched(backend, text(body, way))
    assert found == [wanted(t) for t in range(32)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", SHARED_ONLY)
def test_without_a_state_space(backend: str, case: str, way: str) -> None:
    """Machine code of sm_90 and later reads 32 bits. ptxas refuses registers of 32 bits for ``mbarrier`` alone."""
    body, wanted = SHARED_ONLY[case]
    lines = _SPACE.sub(lambda m: m[0] if way == "near" and m[0].startswith("mbarrier") else m[1], body)
    assert lines != body or (case == "an mbarrier" and way == "near")
    found, _ = launched(backend, text(lines, way))
    assert found == [wanted(t) for t in range(32)]


@pytest.mark.parametrize("case", CASES)
def test_what_is_observed(backend: str, case: str) -> None:
    """Counts and values are those of the same instructions with addresses of 32 bits."""
    observe = {"memory", "accesses"}
    near, *others = (launched(backend, text(CASES[case][0], way), observe)[1] for way in WAYS)
    for profile in others:
        assert profile.sites == near.sites
        assert repr(profile.values) == repr(near.values)
        assert (profile.races, profile.remarks) == ((), ())


def test_bank_conflicts(backend: str) -> None:
    """32 lanes at every fourth word need four wavefronts, and each of 16 bytes as many, which are the least."""
    _, profile = launched(
        backend, text("st.shared.u32 [ROW], %k; st.shared.v4.u32 [ROW], {%k, %k, %k, %k};", "wide")
    )
    found = [
        (site.wavefronts, site.ideal_wavefronts, site.shared_lanes)
        for site in profile.sites
        if site.opcode.startswith("st.shared")
    ]
    assert found[1:] == [(4, 1, 32), (4, 4, 32)]


def test_clusters(backend: str) -> None:
    """The memory of rank r begins at r · 2^24. Each thread stores to its peer, adds, copies and arrives there."""
    source = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2 {
.reg .b32 r, t, v, w, m; .reg .b64 o, own, peer, bar, far, st; .reg .pred p, first;
.shared .align 16 .b8 pad[128]; .shared .align 16 .b8 tile[512]; .shared .align 8 .b64 one;
ld.param.u64 o, [out]; mov.u32 r, %cluster_ctarank; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; xor.b32 m, r, 1;
mov.u64 own, tile; cvta.shared.u64 own, own; mad.wide.u32 own, t, 4, own; mapa.u64 peer, own, m;
mov.u64 bar, one; cvta.shared.u64 bar, bar; mapa.u64 far, bar, m; st.shared.u32 [pad], 0;
@first mbarrier.init.shared::cta.b64 [bar], 32; @first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 256;
barrier.cluster.arrive; barrier.cluster.wait;
mad.lo.u32 v, r, 1000, t; st.shared::cluster.u32 [peer], v; red.shared::cluster.add.u32 [peer], 5;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far];
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [peer+128], v, [far];
@first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [peer+256], [own], 128, [far];
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [bar], 0;
@!p bra W;
ld.shared::cta.u32 v, [own]; ld.shared::cluster.u32 w, [own+128]; shl.b32 w, w, 16; or.b32 v, v, w;
mad.lo.u32 r, r, 32, t; mad.wide.u32 o, r, 4, o; st.global.u32 [o], v;
barrier.cluster.arrive; barrier.cluster.wait; ret; }
"""
    device = ge.Device(backend=backend)
    out = device.zeros((2, 32), np.uint32)
    device.launch(ge.parse(source, path="wide.ptx")["k"], 2, 32, [out])
    assert out.numpy().tolist() == [
        [(1000 * peer + t) << 16 | 1000 * peer + t + 5 for t in range(32)] for peer in (1, 0)
    ]


@pytest.mark.parametrize("form", ["", ".shared::cluster"])
@pytest.mark.parametrize("generic", [False, True], ids=["offset", "generic"])
def test_commits_of_a_cluster(backend: str, form: str, generic: bool) -> None:
    """The first block of each cluster commits to the barriers of both, at an offset within shared memory."""
    source = f""".version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2 {{
.reg .b32 r, t; .reg .b64 o, bar, at; .reg .b16 mask; .reg .pred p, first, commits;
.shared .align 16 .b8 pad[128]; .shared .align 8 .b64 one;
ld.param.u64 o, [out]; mov.u32 r, %cluster_ctarank; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0; mov.b16 mask, 3;
mov.u64 bar, one; mov.u64 at, bar; {"cvta.shared.u64 at, at;" * generic} st.shared.u32 [pad], 0;
@first mbarrier.init.shared::cta.b64 [bar], 1;
barrier.cluster.arrive; barrier.cluster.wait;
setp.eq.and.u32 commits, r, 0, first;
@commits tcgen05.commit.cta_group::1.mbarrier::arrive::one{form}.multicast::cluster.b64 [at], mask;
W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [bar], 0;
@!p bra W;
mov.u32 t, %ctaid.x; mad.wide.u32 o, t, 4, o; add.u32 t, t, 7; @first st.global.u32 [o], t;
barrier.cluster.arrive; barrier.cluster.wait; ret; }}
"""
    device = ge.Device(backend=backend)
    out = device.zeros(4, np.uint32)
    device.launch(ge.parse(source, path="wide.ptx")["k"], 4, 32, [out])
    assert out.numpy().tolist() == [7, 8, 9, 10]


#: an instruction, the target, what the address is, and what the message says
REFUSED = [
    ("ld.shared.u32 %v, [{}];", "sm_90", "ld.param.u64 {}, [data];", "ld.shared.u32: 4-byte load from shared address beyond 4 GiB"),
    ("st.shared.v4.u32 [{}+16], {{%t, %t, %t, %t}};", "sm_90", "ld.param.u64 {}, [data];", "shared address beyond 4 GiB"),
    ("atom.shared.add.u32 %v, [{}], 1;", "sm_90", "mov.u64 {0}, loc; cvta.local.u64 {0}, {0};", "beyond 4 GiB"),
    # one more, and one less, than the upper half of the window
    ("ld.shared.u32 %v, [{}];", "sm_90", "add.u64 {}, %wide0, 4294967296;", "beyond 4 GiB"),
    ("ld.shared.u32 %v, [{}];", "sm_90", "sub.u64 {}, %wide0, 4294967296;", "beyond 4 GiB"),
    ("mbarrier.inval.shared.b64 [{}];", "sm_90", "ld.param.u64 {}, [data];", "beyond 4 GiB"),
    ("cp.async.ca.shared.global [{}], [%in], 4;", "sm_90", "ld.param.u64 {}, [data];", "beyond 4 GiB"),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%v}}, [{}];", "sm_90", "ld.param.u64 {}, [data];", "beyond 4 GiB"),
    # in the window, as with 32 bits
    ("ld.shared.u32 %v, [{}];", "sm_90", "add.u64 {}, %wide0, 8192;", "shared address 0x2080: beyond the"),
    ("st.shared.u32 [{}+2], %t;", "sm_90", "mov.u64 {}, %wide0;", "misaligned st.shared.u32: 4-byte store to shared address 0x82"),
    # without a state space
    ("mbarrier.inval.b64 [{}];", "sm_90", "ld.param.u64 {}, [data];", "the address is not in shared memory"),
    ("mbarrier.inval.b64 [{}];", "sm_90", "add.u64 {}, %off0, 4294967296;", "the address is not in shared memory"),
    ("mbarrier.inval.b64 [{}];", "sm_80", "mov.u64 {}, %off0;", "at 0x80: the address is not in shared memory"),
    ("ldmatrix.sync.aligned.m8n8.x1.b16 {{%v}}, [{}];", "sm_89", "mov.u64 {}, %off0;", "0x80: null pointer"),
    ("ldmatrix.sync.aligned.m8n8.x1.b16 {{%v}}, [{}];", "sm_90", "ld.param.u64 {}, [data];", "is global memory"),
    ("ld.u32 %v, [{}];", "sm_90", "mov.u64 {}, %off0;", "0x80: null pointer"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0].split()[0]} {case[1]} {case[2]}")
def test_refused(case: tuple[str, str, str, str]) -> None:
    """Another upper half is almost always that of a pointer to something else. Both backends say the same."""
    instruction, target, made, wanted = case
    body = f".local .b32 loc[4]; .reg .b64 %x; {made.format('%x')} mov.u32 %v, 0;\n{instruction.format('%x')}"
    messages = []
    for backend in BACKENDS:
        with pytest.raises((ge.MemoryFault, ge.TrapError)) as caught:
            launched(backend, text(body, "near", target))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert wanted in messages[0], messages[0]
    if "beyond 4 GiB" in wanted:
        assert "cvta.to.shared makes one of shared memory of it" in messages[0]


@pytest.mark.parametrize("way", ["wide", "mixed"])
@pytest.mark.parametrize("space", [".shared", ""])
def test_deadlocks(space: str, way: str) -> None:
    """A wait that cannot end names the barrier by its address within shared memory."""
    body = f"{READY.format(70)} mbarrier.arrive{space}.b64 %state, [BAR];\n"
    body += f"W: mbarrier.try_wait{space}.b64 %p, [BAR], %state;\n@!%p bra W;\n"
    messages = []
    for backend in BACKENDS:
        with pytest.raises(ge.Deadlock) as caught:
            launched(backend, text(body, way))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    # the barrier is behind 128 and 4096 bytes, and misses 70 - 32 arrivals
    assert "for 38 arrivals and 0 bytes of the phase of parity 0 of the mbarrier at 0x1080," in messages[0]
