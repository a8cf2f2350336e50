"""What would trap on the host: division by zero, the overflowing quotient, wide shifts, conversions of NaN."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hostile.kernels import module, success
from tests.hostile.sandbox import Job, Sandbox

ALL, SIGN, LONG_SIGN = 0xFFFFFFFF, 0x80000000, 0x8000000000000000
NAN, INF, MINUS_INF = "0f7FC00000", "0f7F800000", "0fFF800000"
DOUBLE_NAN = "0d7FF8000000000000"

#: instruction → the low 32 bits of its result in %r1 (or in the low half of %rd1); ``None``: not defined, but harmless
ROWS: dict[str, int | None] = {
    "div.u32 %r1, 7, %r9;": ALL,
    "div.s32 %r1, 7, %r9;": None,
    "rem.u32 %r1, 7, %r9;": None,
    "rem.s32 %r1, 7, %r9;": None,
    "div.u64 %rd1, 7, %rd9;": None,
    "div.s64 %rd1, -7, %rd9;": None,
    "rem.u64 %rd1, 7, %rd9;": None,
    "rem.s64 %rd1, 7, %rd9;": None,
    "div.s16 %h1, 7, %h9; cvt.u32.u16 %r1, %h1;": None,
    "rem.u16 %h1, 7, %h9; cvt.u32.u16 %r1, %h1;": None,
    "mov.b32 %r2, 0x80000000; div.s32 %r1, %r2, -1;": None,
    "mov.b32 %r2, 0x80000000; rem.s32 %r1, %r2, -1;": None,
    "mov.b64 %rd2, 0x8000000000000000; div.s64 %rd1, %rd2, -1;": None,
    "mov.b64 %rd2, 0x8000000000000000; rem.s64 %rd1, %rd2, -1;": None,
    "mov.b16 %h2, 0x8000; div.s16 %h1, %h2, -1; cvt.u32.u16 %r1, %h1;": None,
    "mov.b32 %r2, 0x80000000; abs.s32 %r1, %r2;": SIGN,
    "mov.b32 %r2, 0x80000000; neg.s32 %r1, %r2;": SIGN,
    "shl.b32 %r1, 1, 32;": 0,
    "mov.u32 %r2, 0xffffffff; shl.b32 %r1, 1, %r2;": 0,
    "mov.u32 %r2, 33; shr.u32 %r1, -1, %r2;": 0,
    "mov.u32 %r2, 33; shr.s32 %r1, -5, %r2;": ALL,
    "mov.u32 %r2, 64; shr.s64 %rd1, -5, %r2;": ALL,
    "mov.u32 %r2, 64; shl.b64 %rd1, 1, %r2;": 0,
    "mov.u32 %r2, 16; mov.b16 %h2, -1; shl.b16 %h1, %h2, %r2; cvt.u32.u16 %r1, %h1;": 0,
    "mov.u32 %r2, 0x80000000; mov.b16 %h2, -1; shr.s16 %h1, %h2, %r2; cvt.u32.u16 %r1, %h1;": 0xFFFF,
    "mov.u32 %r2, 200; bfe.u32 %r1, -1, %r2, 8;": 0,
    "mov.u32 %r2, 255; bfe.s32 %r1, 5, 0, %r2;": 5,
    "mov.u32 %r2, 255; bfi.b32 %r1, -1, 7, %r2, 4;": 7,
    "mov.u32 %r2, 40; shf.l.wrap.b32 %r1, 0, 1, %r2;": 1 << 8,
    "mov.u32 %r2, 40; shf.l.clamp.b32 %r1, 7, 1, %r2;": 7,
    f"cvt.rzi.s32.f32 %r1, {NAN};": 0,
    f"cvt.rzi.u32.f32 %r1, {INF};": ALL,
    f"cvt.rzi.s32.f32 %r1, {INF};": 0x7FFFFFFF,
    f"cvt.rzi.s32.f32 %r1, {MINUS_INF};": SIGN,
    f"cvt.rzi.u32.f32 %r1, {MINUS_INF};": 0,
    f"cvt.rni.u8.f32 %r1, {INF};": 255,
    f"cvt.rni.s64.f32 %rd1, {INF};": ALL,
    f"cvt.rni.s64.f64 %rd1, {DOUBLE_NAN};": 0,
    "cvt.rzi.u64.f64 %rd1, 0d7FEFFFFFFFFFFFFF;": ALL,
    "div.rn.f32 %f1, 0f3F800000, 0f00000000; mov.b32 %r1, %f1;": 0x7F800000,
    "div.rn.f32 %f1, 0f00000000, 0f00000000; mov.b32 %r1, %f1;": 0x7FFFFFFF,
    "sqrt.rn.f32 %f1, 0fBF800000; mov.b32 %r1, %f1;": 0x7FFFFFFF,
    "rcp.rn.f32 %f1, 0f80000000; mov.b32 %r1, %f1;": 0xFF800000,
    "div.rn.f64 %fd1, 0d3FF0000000000000, 0d0000000000000000; mov.b64 %rd1, %fd1;": 0,
    "lg2.approx.f32 %f1, 0f00000000; mov.b32 %r1, %f1;": 0xFF800000,
    "sin.approx.f32 %f1, 0f7F800000; mov.b32 %r1, %f1;": 0x7FFFFFFF,
}


def text_of(instruction: str, guard: str) -> str:
    result = "cvt.u32.u64 %r1, %rd1;" if "%rd1," in instruction or "%rd1, %fd1" in instruction else ""
    body = f"""
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd5, %r0, 4;
    add.u64 %rd0, %rd0, %rd5;
    setp.lt.u32 %p1, %r0, 16;
    {guard}
    {instruction} {result}
    st.global.u32 [%rd0], %r1;
END:
    ret;"""
    return module(body, ".param .u64 out")


@pytest.mark.parametrize("instruction", ROWS)
def test_in_active_lanes(sandbox: Sandbox, backend: str, instruction: str) -> None:
    job = Job(text_of(instruction, ""), backend=backend, args=[np.zeros(32, np.uint32)])
    (out,) = success(sandbox, job).outputs
    expected = ROWS[instruction]
    if expected is not None:
        assert out.tolist() == [expected] * 32
    assert len(set(out.tolist())) == 1


@pytest.mark.parametrize("instruction", ROWS)
def test_in_inactive_lanes(sandbox: Sandbox, backend: str, instruction: str) -> None:
    job = Job(text_of(instruction, "@%p1 bra END;"), backend=backend, args=[np.full(32, 9, np.uint32)])
    (out,) = success(sandbox, job).outputs
    assert out[:16].tolist() == [9] * 16
    if ROWS[instruction] is not None:
        assert out[16:].tolist() == [ROWS[instruction]] * 16


@pytest.mark.parametrize("instruction", ROWS)
def test_both_backends_agree(sandbox: Sandbox, instruction: str) -> None:
    text, start = text_of(instruction, ""), [np.zeros(32, np.uint32)]
    one, other = (
        success(sandbox, Job(text, backend=name, args=start)).outputs[0] for name in ("reference", "llvm")
    )
    np.testing.assert_array_equal(one, other)


def test_operands_that_differ_per_lane(sandbox: Sandbox, backend: str) -> None:
    """Every third lane divides by zero, every third by −1."""
    body = """
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd5, %r0, 4;
    add.u64 %rd0, %rd0, %rd5;
    rem.u32 %r2, %r0, 3;
    sub.s32 %r2, %r2, 1;
    mov.b32 %r3, 0x80000000;
    div.s32 %r1, %r3, %r2;
    setp.eq.s32 %p1, %r2, 1;
    @%p1 st.global.u32 [%rd0], %r1;
    ret;"""
    job = Job(module(body, ".param .u64 out"), backend=backend, args=[np.zeros(32, np.uint32)])
    (out,) = success(sandbox, job).outputs
    assert out.tolist() == [SIGN if lane % 3 == 2 else 0 for lane in range(32)]
