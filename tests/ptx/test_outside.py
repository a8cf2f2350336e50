"""What nvcc up to version 3 wrote outside of functions: registers, and prototypes without a semicolon."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

OLD = """.version 2.1
.target sm_20
.reg .u32 %ra<4>; .reg .u32 %rv<4>; .reg .pred %pv<2>;
.local .u32 kept[4];
.func (.param .s32 ret) twice (.param .s32 p)

.visible .func (.param .s32 ret) thrice (.param .s32 p)

.file 1 "old.cu"
.func (.param .s32 ret) twice (.param .s32 p)
{
    .reg .u32 %r<4>; .loc 1 1 0
$LDWbegin_twice:
    ld.param.u32 %r1, [p]; mul.lo.s32 %r3, %r1, 2; st.param.s32 [ret], %r3; ret;
$LDWend_twice:
}
.visible .func (.param .s32 ret) thrice (.param .s32 p)
{
    .reg .u32 %r<4>;
    ld.param.u32 %r1, [p]; mul.lo.s32 %r3, %r1, 3; st.param.s32 [ret], %r3; ret;
}
.entry k (.param .u64 to)
{
    .reg .u64 %rd<4>; .reg .u32 %ra<2>; .param .s32 given; .param .s32 got;
    cvt.s32.u16 %rv1, %tid.x;
    and.b32 %rv2, %rv1, 1; setp.ne.u32 %pv1, %rv2, 0;
    mov.u64 %rd1, twice; @!%pv1 bra $first; mov.u64 %rd1, thrice;
$first:
    st.param.u32 [given], %rv1;
which: .callprototype (.param .s32 _) _ (.param .s32 _);
    call (got), %rd1, (given), which;
    ld.param.s32 %ra1, [got]; st.local.u32 [kept+4], %ra1; ld.local.u32 %rv3, [kept+4];
    ld.param.u64 %rd2, [to]; mul.wide.u32 %rd3, %rv1, 4; add.u64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %rv3;
    exit;
$LDWend_k:
}
"""


def test_runs(backend: str) -> None:
    device = ge.Device(backend=backend)
    out = device.zeros(40, np.uint32)
    device.launch(ge.parse(OLD, path="old.ptx")["k"], 1, 40, [out])
    assert out.numpy().tolist() == [3 * t if t % 2 else 2 * t for t in range(40)]


def test_registers_shared_by_functions_are_refused() -> None:
    text = OLD.replace("mul.lo.s32 %r3, %r1, 2;", "mul.lo.s32 %r3, %r1, %ra2;")
    with pytest.raises(ge.PtxError, match="'%ra2', declared outside functions, which only kernels can use"):
        ge.Device().launch(ge.parse(text, path="old.ptx")["k"], 1, 1, [None])


def test_device_memory_is_beyond_32_bits() -> None:
    text = ".version 3.0 .target sm_20 .address_size 32 .entry k (.param .u32 to) { ret; }"
    device = ge.Device()
    with pytest.raises(ge.LaunchError, match=r"64-bit addresses, this module's have 32\n.*address_size 64"):
        device.launch(ge.parse(text, path="narrow.ptx")["k"], 1, 1, [device.zeros(1, np.uint32)])
