"""Bulk and tensor copies, mbarriers and products of warpgroups in ``model="simulation"``, from PTX of our own and of the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from tests.support import needs_assembler

pytestmark = needs_assembler
KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
#: copies so many bytes %r1 times, one copy after the other; then runs ``END``
CHASE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 turns, .param .align 64 .b8 unused[64], .param .u64 a)
{
.reg .b32 %r<12>; .reg .b64 %q<8>; .reg .pred %p<4>;
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b64 full;
ld.param.u32 %r1, [turns]; ld.param.u64 %q1, [a];
mov.u32 %r2, tile; mov.u32 %r3, full; mov.u32 %r4, 0; mov.u32 %r5, 0;
mbarrier.init.shared::cta.b64 [%r3], 1;
L:
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%q1], 1024, [%r3];
W:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], %r5;
@!%p1 bra W;
END
xor.b32 %r5, %r5, 1; add.u64 %q1, %q1, 1024; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r1;
@%p2 bra L;
ret;
}
"""


def chased(ends: str, machine: str = "h100-sxm") -> ge.Estimate:
    device = ge.Device(races="off")
    kernel = ge.parse(CHASE.replace("END", ends), path="chase.ptx")["k"]
    profile = device.launch(kernel, 1, 1, [np.int32(64), bytes(64), device.zeros(1 << 16, np.uint8)])
    return ge.estimate(profile, machine, model="simulation")


@pytest.mark.parametrize("name", ["h100-sxm", "b200"])
def test_a_chase_of_bulk_copies_takes_their_latency(name: str) -> None:
    found = chased("ld.shared.u32 %r6, [%r2]; add.u32 %r2, %r2, 0; st.shared.u32 [%r2+4], %r6;", name)
    machine = load_machine(name)
    assert found.model == "simulation"
    # beside the latency, which is that of a few bytes, what 1024 take through the port
    step = (found.cycles - machine.cta_turnaround) / 64
    assert step == pytest.approx(machine.latencies["tma_dram"] + 1024 / machine.l2_sm_bandwidth, rel=0.05)
    assert found.bounds["l2"] < found.time_us


def test_what_copies_bring_may_not_decide() -> None:
    found = chased("ld.shared.u32 %r6, [%r2]; setp.eq.u32 %p3, %r6, 77; @%p3 bra L;")
    assert found.model != "simulation"
    assert "shared memory that copies or products write" in found.notes[0]


#: clusters of two CTAs copy what a list in global memory names, until it names -1; lists of 32 are read once, into shared memory
LISTED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 list) .explicitcluster .reqnctapercluster 2, 1, 1
{
.reg .b32 %r<16>; .reg .b64 %q<12>; .reg .pred %p<4>;
.shared .align 128 .b8 tile[1024];
.shared .align 8 .b64 full;
.shared .align 4 .b8 room[4096];
.shared .align 4 .b8 order[128];
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [list];
mov.u32 %r1, %tid.x; mov.u32 %r2, %clusterid.x; mov.u32 %r3, tile; mov.u32 %r4, full; mov.u32 %r5, order;
setp.gt.u32 %p1, %r1, 31;
shl.b32 %r6, %r1, 2; add.u32 %r7, %r5, %r6;
@%p1 bra WAIT;
mad.lo.u32 %r8, %r2, 32, %r1; mul.wide.u32 %q3, %r8, 4; add.u64 %q3, %q2, %q3;
ld.global.u32 %r8, [%q3]; st.shared.u32 [%r7], %r8;
setp.ne.u32 %p2, %r1, 0;
@%p2 bra WAIT;
mbarrier.init.shared::cta.b64 [%r4], 1;
WAIT:
MEET
setp.ne.u32 %p1, %r1, 32;
@%p1 bra END;
mov.u32 %r9, 0; mov.u32 %r12, 0;
L:
ld.shared.s32 %r10, [%r5];
setp.lt.s32 %p2, %r10, 0;
@%p2 bra DONE;
mad.wide.u32 %q4, %r10, 1024, %q1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%q4], 1024, [%r4];
W:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], %r9;
@!%p3 bra W;
ld.shared.u32 %r11, [%r3]; add.u32 %r12, %r12, %r11;
xor.b32 %r9, %r9, 1; add.u32 %r5, %r5, 4;
bra L;
DONE:
st.global.u32 [%q1], %r12;
END:
ret;
}
"""
MEET = "barrier.cluster.arrive; barrier.cluster.wait;"


def listed(
    count: int, meet: str = MEET, observe: frozenset[str] = frozenset({"memory", "inputs"})
) -> ge.Estimate:
    device = ge.Device(races="off", observe=set(observe))
    order = np.full((8, 32), -1, np.int32)
    order[:, :count] = np.arange(8 * count).reshape(8, count)
    kernel = ge.parse(LISTED.replace("MEET", meet), path="listed.ptx")["k"]
    profile = device.launch(
        kernel, 16, 64, [device.zeros(1 << 18, np.uint8), device.array(order.reshape(-1))]
    )
    return ge.estimate(profile, "h100-sxm", model="simulation")


def test_the_order_of_tiles_may_lie_in_memory() -> None:
    few, many = listed(8), listed(24)
    machine = load_machine("h100-sxm")
    assert {few.model, many.model} == {"simulation"}
    step = (many.cycles - few.cycles) / 16
    # the list is read before each copy
    copy = machine.latencies["tma_dram"] + 1024 / machine.l2_sm_bandwidth
    assert step == pytest.approx(machine.latencies["shared"] + copy, rel=0.05)
    unknown = listed(8, observe=frozenset({"memory"}))
    assert unknown.model != "simulation" and 'observe={"inputs"}' in unknown.notes[0]


def test_what_warps_pass_on_by_mbarriers_may_not_decide() -> None:
    """Nothing waits for one where warps are traced, so that what the other has stored might not be there yet."""
    found = listed(8, meet="")
    assert found.model != "simulation"
    assert "values passed in shared memory" in found.notes[0]


#: so many products as a word in memory says; all threads store their sums
COUNTED = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 count, .param .u64 sums)
{
.reg .b32 %r<8>; .reg .f32 %f<6>; .reg .b64 %q<8>; .reg .pred %p<3>;
.shared .align 128 .b8 tile[4096];
ld.param.u64 %q1, [count]; ld.param.u64 %q2, [sums];
ld.global.u32 %r1, [%q1]; mov.u32 %r3, tile; shr.u32 %r3, %r3, 4; cvt.u64.u32 %q3, %r3; mov.u32 %r2, %tid.x;
mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
setp.eq.u32 %p1, 0, 0;
L:
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %q3, %q3, %p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0;
@%p2 bra L;
mad.wide.u32 %q2, %r2, 16, %q2;
st.global.v4.f32 [%q2], {%f1, %f2, %f3, %f4};
ret;
}
"""


def counted(count: int, apart: bool) -> ge.Estimate:
    device = ge.Device(races="off", observe={"memory", "inputs"})
    held = device.zeros(1 << 12, np.uint32)
    number = device.array(np.array([count], np.uint32))
    where = number if apart else held
    if not apart:
        where = device.array(np.full(1 << 12, count, np.uint32))
        held = where
    kernel = ge.parse(COUNTED, path="counted.ptx")["k"]
    profile = device.launch(kernel, 1, 128, [where, held])
    return ge.estimate(profile, "h100-sxm", model="simulation")


def test_sums_are_stored_where_nothing_that_decides_lies() -> None:
    few, many = counted(4, True), counted(20, True)
    assert {few.model, many.model} == {"simulation"}
    # from product to product at least the latency of the tensor cores
    assert many.cycles - few.cycles > 16 * load_machine("h100-sxm").latencies["tensor"]
    same = counted(4, False)
    assert same.model != "simulation" and "that it stores to" in same.notes[0]


def product(entry: str, file: str, size: int, depth: int) -> ge.Estimate:
    device = ge.Device(races="off")
    a, b = (device.zeros((size, depth), np.float16) for _ in range(2))
    c = device.zeros((size, size), np.float32)
    if entry == "hgemm_tma":
        a, b = (ge.TensorMap(item, (128, 64), swizzle="128B") for item in (a, b))  # type: ignore[assignment]
    kernel = ge.parse((KERNELS / f"{file}.ptx").read_text(encoding="utf-8"), path=file)[entry]
    arguments = [np.int32(size), np.int32(depth), a, b, c]
    profile = device.launch(kernel, (size // 128, size // 128), 384, arguments, shared_bytes=98304)
    return ge.estimate(profile, "h100-sxm", model="simulation")


def test_products_of_the_examples() -> None:
    """Tensor copies beat copies of threads."""
    tma = product("hgemm_tma", "warpgroup_gemm_tma", 256, 512)
    specialised = product("hgemm_specialised", "warpgroup_gemm", 256, 512)
    found = (tma, specialised)
    assert {item.model for item in found} == {"simulation"}
    assert 1.1 * tma.time_us < specialised.time_us
    # of one CTA 8 stages of two times four products of 64 clocks, on the one SM that has most
    h100 = load_machine("h100-sxm")
    busy = 8 * 2 * 4 * 64
    assert tma.bounds["tensor"] == pytest.approx(h100.microseconds(busy, busy / tma.cycles))
    assert all(item.time_us >= max(item.bounds.values()) for item in found)


#: one lane copies boxes, one after the other, while the others of its warp wait for it
ELECTED = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u32 turns)
{
.reg .b32 %r<12>; .reg .b64 %q<4>; .reg .pred %p<6>;
.shared .align 1024 .b8 tile[8192];
.shared .align 8 .b8 full[8];
mov.b64 %q1, map; cvta.param.u64 %q1, %q1; ld.param.u32 %r1, [turns];
mov.u32 %r2, tile; mov.u32 %r3, full; mov.u32 %r4, %tid.x; mov.u32 %r5, %ctaid.x; mov.u32 %r6, 0;
setp.ne.u32 %p1, %r4, 0; @%p1 bra begun;
mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
begun: bar.sync 0;
setp.gt.u32 %p1, %r4, 31; @%p1 bra joined;
elect.sync _|%p2, -1; @!%p2 bra joined;
again:
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 8192;
shl.b32 %r8, %r6, 6; shl.b32 %r9, %r5, 6;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%q1, {%r8, %r9}], [%r3];
and.b32 %r10, %r6, 1;
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], %r10; @!%p3 bra W;
add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, %r1; @%p4 bra again;
joined: bar.warp.sync -1; bar.sync 0;
ret;
}
"""


def test_lanes_may_wait_for_one_that_copies() -> None:
    """Of most CTAs only the first boxes are traced, so that the lane that copies them never gets to the others."""
    turns, ctas = 100, 264
    device = ge.Device(races="off")
    boxes = ge.TensorMap(device.zeros((64 * ctas, 64 * turns), np.float16), (64, 64), swizzle="128B")
    profile = device.launch(ge.parse(ELECTED, path="elected.ptx")["k"], ctas, 64, [boxes, np.int32(turns)])
    found = ge.estimate(profile, "h100-sxm", model="simulation")
    assert found.model == "simulation", found.notes
    # two CTAs on each SM: every copy waits for the one before
    assert found.time_us >= load_machine("h100-sxm").microseconds(
        turns * load_machine("h100-sxm").latencies["tma_l2"]
    )


#: a store to shared memory and a fence, so often
FENCED = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u32 turns)
{
.reg .b32 %r<6>; .reg .pred %p<2>;
.shared .align 4 .b8 word[128];
ld.param.u32 %r1, [turns]; mov.u32 %r2, word; mov.u32 %r3, 0;
L:
st.shared.u32 [%r2], %r3;
FENCE;
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r1;
@%p1 bra L;
ret;
}
"""


@pytest.mark.parametrize(
    "fence, memory",
    [
        ("fence.acq_rel.cta", ["l1"]),
        # a fence of the CTA, and one of the proxies
        ("fence.proxy.async.shared::cta", ["l1", "shared"]),
        ("fence.acq_rel.gpu", ["l2"]),
    ],
)
def test_a_fence_waits_for_the_memory_that_it_is_about(fence: str, memory: list[str]) -> None:
    kernel = ge.parse(FENCED.replace("FENCE", fence), path="fenced.ptx")["k"]
    few, many = (
        ge.estimate(ge.Device().launch(kernel, 1, 32, [np.uint32(turns)]), "h100-sxm", model="simulation")
        for turns in (64, 192)
    )
    assert {few.model, many.model} == {"simulation"}
    # beside it a store, an addition, a comparison and a branch
    step = (many.cycles - few.cycles) / 128
    latency = sum(load_machine("h100-sxm").latencies[name] for name in memory)
    assert latency <= step < latency + 40


#: copies of 512 bytes by a warp, each to a place of its own
COPIED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{
.reg .b32 %r<4>; .reg .b64 %q<4>;
.shared .align 128 .b8 tile[32768];
ld.param.u64 %q1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %q2, %r1, 16; add.u64 %q1, %q1, %q2;
mov.u32 %r2, tile; shl.b32 %r1, %r1, 4; add.u32 %r2, %r2, %r1;
COPIES
cp.async.wait_all;
ret;
}
"""


@pytest.mark.parametrize("level, clocks", [("cg", 4), ("ca", 5)])
def test_copies_write_to_shared_memory(level: str, clocks: int) -> None:
    """128 bytes a clock; what comes through L1 takes one more."""
    copies = "\n".join(
        f"cp.async.{level}.shared.global [%r2+{512 * count}], [%q1+{512 * count}], 16;" for count in range(64)
    )
    kernel = ge.parse(COPIED.replace("COPIES", copies), path="copied.ptx")["k"]
    device = ge.Device()
    profile = device.launch(kernel, 1, 32, [device.zeros(32768, np.uint8)])
    found = ge.estimate(profile, "a100-sxm-80gb", model="simulation")
    machine = load_machine("a100-sxm-80gb")
    assert found.model == "simulation"
    assert found.bounds["l1"] == pytest.approx(machine.microseconds(64 * clocks, 0.0), rel=1e-6)


ADD = """.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 width)
{
.reg .b32 %r<8>; .reg .b64 %q<4>; .reg .f32 %f<2>;
ld.param.u64 %q1, [a]; ld.param.u64 %q2, [b]; ld.param.u32 %r1, [width];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;
mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ntid.y; mov.u32 %r7, %tid.y; mad.lo.u32 %r5, %r5, %r6, %r7;
mad.lo.u32 %r2, %r5, %r1, %r2;
mul.wide.u32 %q3, %r2, 4; add.u64 %q1, %q1, %q3; add.u64 %q2, %q2, %q3;
ld.global.f32 %f1, [%q1]; add.f32 %f1, %f1, %f1; st.global.f32 [%q2], %f1;
ret;
}
"""


@pytest.mark.parametrize("block", [(8, 32), (16, 16), (32, 8), (64, 4)])
def test_what_is_touched_once_comes_from_dram_whatever_the_shape_of_ctas(block: tuple[int, int]) -> None:
    device, (wide, tall) = ge.Device(races="off"), (512, 512)
    arrays = [device.zeros(wide * tall, np.float32) for _ in range(2)]
    grid = (wide // block[0], tall // block[1])
    profile = device.launch(ge.parse(ADD)["k"], grid, block, [*arrays, np.int32(wide)])
    found = ge.estimate(profile, "a100-sxm-80gb", model="simulation")
    machine = load_machine("a100-sxm-80gb")
    least = 2 * 4 * wide * tall / machine.dram_bytes_per_cycle(machine.dram_sustained_mixed)
    assert found.bounds["dram"] == pytest.approx(machine.microseconds(least, 0.0), rel=0.01)


#: TIMES times: the lanes of a warp add to a word of shared memory, whose mbarrier they all wait for
ASYNC_SUMS = """.version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<12>; .reg .b64 %q<4>; .reg .pred %p<4>;
.shared .align 8 .b64 full;
.shared .align 8 .b8 room[512];
ld.param.u64 %q1, [out]; mov.u32 %r3, %tid.x; setp.eq.u32 %p1, %r3, 0;
mov.u32 %r1, room; mov.u32 %r2, full; shl.b32 %r4, %r3, SHIFT; add.u32 %r4, %r1, %r4; mov.u32 %r5, 0;
st.shared.b32 [%r4], 0;
@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
bar.sync 0;
mapa.shared::cluster.u32 %r6, %r4, 0; mapa.shared::cluster.u32 %r7, %r2, 0; mov.u32 %r8, 0; mov.b64 %q2, 1;
L:
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 32*SIZE;
ADD
W:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], %r5;
@!%p2 bra W;
xor.b32 %r5, %r5, 1; add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, TIMES;
@%p3 bra L;
ld.shared.u32 %r9, [%r4]; mul.wide.u32 %q3, %r3, 4; add.u64 %q1, %q1, %q3; st.global.u32 [%q1], %r9;
ret;
}
"""


@pytest.mark.parametrize(("kind", "size"), [("add.u32", 4), ("inc.u32", 4), ("add.u64", 8)])
def test_red_async_tells_its_mbarrier_of_its_bytes(kind: str, size: int) -> None:
    """Phases that depend on each other take as long as those of ``st.async``, and at least the signal and its answer."""
    value = "%q2" if size == 8 else "16"
    forms = {
        "red": f"red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.{kind} [%r6], {value}, [%r7];",
        "st": f"st.async.weak.mbarrier::complete_tx::bytes.shared::cluster.b{8 * size} [%r6], {value}, [%r7];",
    }
    took = {}
    for name, add in forms.items():
        for times in (16, 48):
            text = ASYNC_SUMS.replace("ADD", add).replace("SHIFT", str(size.bit_length() - 1))
            text = text.replace("SIZE", str(size)).replace("TIMES", str(times))
            device = ge.Device(races="off")
            profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [device.zeros(32, np.uint32)])
            found = ge.estimate(profile, "h100-sxm", model="simulation")
            assert found.model == "simulation", found.notes
            took[name, times] = found.cycles
    steps = {name: (took[name, 48] - took[name, 16]) / 32 for name in forms}
    assert steps["red"] == pytest.approx(steps["st"], rel=0.02)
    assert steps["red"] >= load_machine("h100-sxm").latencies["shared"]
