"""Machine instructions that Hopper and Blackwell brought: the run must leave the same bytes as the PTX."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.ways import _trapped
from tests.sass.listings import written
from tests.support import head, needs_assembler

PAIRS = """.visible .entry k(.param .u64 out, .param .f32 s)
{
.reg .f32 %f<12>; .reg .b32 %r<9>; .reg .b64 %q<30>; .reg .b16 %h;
ld.param.u64 %q1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %q1, %r1, 64, %q1; ld.param.f32 %f9, [s];
ld.global.v2.b64 {%q2, %q3}, [%q1]; ld.global.v2.b64 {%q4, %q5}, [%q1+16];
add.rn.f32x2 %q6, %q2, %q3; mul.rn.f32x2 %q7, %q4, %q5; fma.rn.f32x2 %q8, %q2, %q4, %q5; fma.rn.ftz.f32x2 %q9, %q3, %q3, %q7;
mov.b64 %q10, {%f9, %f9}; mul.rn.f32x2 %q11, %q2, %q10; mov.b64 {%f1, %f2}, %q2; neg.f32 %f1, %f1; neg.f32 %f2, %f2;
mov.b64 %q12, {%f1, %f2}; add.rn.f32x2 %q12, %q12, %q3; mov.b64 %q13, {%f2, %f1}; fma.rn.f32x2 %q13, %q13, %q4, %q12;
mov.b64 %q14, 0x3f0000003f000000; mul.rn.f32x2 %q14, %q14, %q5; mov.b64 %q16, 0x3f0000003e000000; mul.rn.f32x2 %q16, %q16, %q5;
sub.rn.f32x2 %q17, %q3, %q16; add.rm.f32x2 %q18, %q2, %q16;
redux.sync.max.f32 %f3, %f1, -1; redux.sync.min.abs.NaN.f32 %f4, %f2, -1; redux.sync.max.NaN.f32 %f6, %f2, -1;
mov.b32 %r5, %f1; redux.sync.max.s32 %r5, %r5, -1; redux.sync.min.u32 %r6, %r5, -1; redux.sync.add.s32 %r7, %r1, -1;
mov.b64 %q15, {%f3, %f4}; mov.b64 %q19, {%r5, %r6}; mov.b32 %r8, %f6; mov.b64 %q20, {%r8, %r7};
cvt.rn.f16.f32 %h, %f1; cvt.f32.f16 %f7, %h; sub.f32 %f7, %f7, %f2; mov.b32 %r8, %f7; mov.b64 %q21, {%r8, %r1};
xor.b64 %q6, %q6, %q16; xor.b64 %q7, %q7, %q17; xor.b64 %q9, %q9, %q18; xor.b64 %q11, %q11, %q19; xor.b64 %q12, %q12, %q20;
mov.b64 {%f10, %f11}, %q3; neg.f32 %f11, %f11; mov.b64 %q22, {%f10, %f11}; fma.rn.f32x2 %q22, %q22, %q4, %q5;
neg.f32 %f10, %f10; neg.f32 %f11, %f11; mov.b64 %q23, {%f10, %f11}; mul.rn.f32x2 %q23, %q23, %q4;
xor.b64 %q6, %q6, %q22; xor.b64 %q7, %q7, %q23;
xor.b64 %q13, %q13, %q15; xor.b64 %q14, %q14, %q21; st.global.v2.b64 [%q1], {%q6, %q7}; st.global.v2.b64 [%q1+16], {%q8, %q9};
st.global.v2.b64 [%q1+32], {%q11, %q12}; st.global.v2.b64 [%q1+48], {%q13, %q14}; ret;
}
"""


@needs_assembler
def test_pairs_of_singles_and_reductions_of_a_warp() -> None:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array(np.random.default_rng(1).standard_normal(64 * 16).astype(np.float32))
    kernel = ge.parse(head("8.8", "sm_100a") + PAIRS, path="k.ptx")["k"]
    code = counted_code(device.launch(kernel, 1, 64, [data, np.float32(1.7)]), "sm_100a")
    assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ())
    assert {"FADD2", "FMUL2", "FFMA2", "CREDUX"} <= code.by_opcode.keys()
    assert any(".HI_LO.NP" in item.text for item in code.instructions)


PRODUCTS = """.visible .entry k(.param .u64 out)
{
.reg .f32 %f<24>; .reg .b32 %r<32>; .reg .b64 %q<3>; .reg .pred %p;
.shared .align 1024 .b8 tile[4096];
ld.param.u64 %q1, [out]; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 500; mov.u32 %r30, tile; mad.lo.u32 %r31, %r1, 16, %r30;
cvt.rn.f32.u32 %f20, %r1; mul.f32 %f21, %f20, 0f3F000000; st.shared.v4.f32 [%r31], {%f20, %f21, %f20, %f21};
shr.u32 %r30, %r30, 4; cvt.u64.u32 %q2, %r30; or.b64 %q2, %q2, 0x0000001000010000; bar.sync 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0;
mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0; mov.b32 %r10, %f20; mov.b32 %r11, %f21; mov.b32 %r12, %f20; mov.b32 %r13, %f21;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, %q2, %q2, %p, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f0, %f1, %f2, %f3}, %q2, %q2, 1, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e4m3 {%r6, %r7}, %q2, %q2, 1, 1, 1;
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r2, %r3, %r4, %r5}, %q2, %q2, 1;
wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, %q2, 1, 1, 1;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mad.wide.u32 %q1, %r1, 48, %q1; st.global.v4.f32 [%q1], {%f0, %f1, %f2, %f3}; st.global.v4.b32 [%q1+16], {%r2, %r3, %r4, %r5};
st.global.v2.b32 [%q1+32], {%r6, %r7}; ret;
}
"""


@needs_assembler
def test_products_of_warpgroups_of_every_type() -> None:
    device = ge.Device(observe={"memory", "inputs"}, races="off", memory_bytes=1 << 24)
    out = device.zeros(128 * 12, np.uint32)
    kernel = ge.parse(head("8.6", "sm_90a") + PRODUCTS, path="k.ptx")["k"]
    code = counted_code(device.launch(kernel, 1, 128, [out]), "sm_90a")
    assert out.numpy().any()
    assert (code.ways, code.residue, code.notes) == ("flow and run", 0.0, ())
    assert {"HGMMA", "QGMMA", "IGMMA"} <= code.by_opcode.keys()


@pytest.mark.parametrize(
    "name", ["$__internal_0_$__cuda_sm10x_tcgen05_guardrail_trap_unallocated_columns", "f"]
)
def test_what_ends_a_launch_is_not_executed_by_one_that_ended(name: str) -> None:
    graph = build_graph(
        written(
            f"""
            .function k
            @P0 BRA `(.L_well) # 1
            CALL.REL.NOINC `({name}) # 1
            .L_well:
            EXIT # 2
            .function {name}
            BPT.TRAP 0x1
            BRA `(.L_well)
            """
        ),
        "k",
    )
    trapped = {graph.instructions(graph.blocks[index])[0].base for index in _trapped(graph)}
    assert trapped == ({"CALL", "BPT", "BRA"} if "trap" in name else set())


#: each block stores a word of each thread into the other's shared memory and waits for those that it gets; arrivals return states
SIGNALS = """.visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1
{
.reg .b32 %r<20>; .reg .b64 %q<9>; .reg .pred %p, %w;
.shared .align 8 .b64 bar; .shared .align 8 .b64 own; .shared .align 16 .b8 box[256]; .shared .align 16 .b8 tile[1024];
ld.param.u64 %q1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, own; mov.u32 %r4, box; mov.u32 %r5, tile;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r3], 64;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 256; mbarrier.arrive.shared.b64 %q2, [%r2];
READY: barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1; mad.lo.u32 %r7, %r1, 4, %r4; mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, 64, %r1;
mad.wide.u32 %q1, %r8, 16, %q1; ld.global.u32 %r9, [%q1];
mapa.shared::cluster.u32 %r10, %r7, %r6; mapa.shared::cluster.u32 %r11, %r2, %r6;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r10], %r9, [%r11];
mad.lo.u32 %r12, %r1, 16, %r5; cp.async.ca.shared.global [%r12], [%q1], 16; cp.async.mbarrier.arrive.shared.b64 [%r3];
mbarrier.arrive.shared.b64 %q3, [%r3];
WAIT: mbarrier.try_wait.shared.b64 %w, [%r3], %q3; @!%w bra WAIT;
MORE: mbarrier.try_wait.parity.shared.b64 %w, [%r2], 0; @!%w bra MORE;
ld.shared.u32 %r13, [%r7]; ld.shared.v4.u32 {%r14, %r15, %r16, %r17}, [%r12]; mov.u32 %r18, %cluster_ctaid.x;
mad.lo.u32 %r14, %r14, 3, %r13; add.u32 %r15, %r15, %r18; st.global.v4.u32 [%q1], {%r14, %r15, %r16, %r13};
barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""


@needs_assembler
@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a"])
def test_stores_that_signal_and_states_of_barriers(architecture: str) -> None:
    device = ge.Device(observe={"memory", "inputs"}, races="off", memory_bytes=1 << 24)
    given = np.arange(128 * 4, dtype=np.uint32)
    data = device.array(given)
    kernel = ge.parse(head("8.1", "sm_90") + SIGNALS, path="k.ptx")["k"]
    code = counted_code(device.launch(kernel, 2, 64, [data], cluster=2), architecture)
    first = given.reshape(2, 64, 4)[::-1, :, 0].ravel()  # of the same thread of the other block
    np.testing.assert_array_equal(data.numpy().reshape(-1, 4)[:, 3], first)
    assert "run" in code.ways, code.notes
    assert code.residue == 0
    assert {"STAS", "SYNCS", "ARRIVES", "UCGABAR_ARV"} <= code.by_opcode.keys()
