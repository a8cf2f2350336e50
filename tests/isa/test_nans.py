"""The bits of NaNs: arithmetic gives the canonical one, whatever only moves a value keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.running import collect

QUIET, SIGNALLING = 0xFFF6EDF9, 0x7F800001
CANONICAL = 0x7FFFFFFF
#: %f1 holds QUIET, %f2 SIGNALLING, %f3 2.0; %p1 holds in the lower 16 lanes; the result in %f0
ROWS = {
    "add.f32 %f0, %f1, %f3;": (CANONICAL, CANONICAL),
    "mul.ftz.f32 %f0, %f3, %f2;": (CANONICAL, CANONICAL),
    "fma.rn.f32 %f0, %f3, %f3, %f1;": (CANONICAL, CANONICAL),
    "add.sat.f32 %f0, %f1, %f3;": (0, 0),
    "min.f32 %f0, %f1, %f2;": (CANONICAL, CANONICAL),
    "min.f32 %f0, %f1, %f3;": (0x40000000, 0x40000000),
    "neg.f32 %f0, %f1;": (QUIET ^ 0x80000000, QUIET ^ 0x80000000),
    "mov.f32 %f0, %f2;": (SIGNALLING, SIGNALLING),
    "selp.f32 %f0, %f1, %f2, %p1;": (QUIET, SIGNALLING),
    "add.f32 %f4, %f1, %f3; selp.f32 %f0, %f4, %f1, %p1;": (CANONICAL, QUIET),
    "add.f32 %f4, %f1, %f3; selp.f32 %f0, %f2, %f4, %p1;": (SIGNALLING, CANONICAL),
    "add.f32 %f4, %f1, %f3; selp.f32 %f0, %f4, 0f7FC00001, %p1;": (CANONICAL, 0x7FC00001),
    "add.f32 %f4, %f1, %f3; selp.f32 %f0, %f4, 0f3F800000, %p1;": (CANONICAL, 0x3F800000),
    "mov.f32 %f0, %f1; @%p1 add.f32 %f0, %f0, %f3;": (CANONICAL, QUIET),
    "mov.f32 %f0, %f2; @!%p1 mul.ftz.sat.f32 %f0, %f0, %f3;": (SIGNALLING, 0),
    "mov.f32 %f0, %f2; @%p1 bra END; add.f32 %f0, %f0, %f3; END:": (SIGNALLING, CANONICAL),
}


@pytest.mark.parametrize("instruction", ROWS)
def test_bits(backend: str, instruction: str) -> None:
    body = f"""
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 16;
    mov.b32 %f1, {QUIET:#x};
    mov.b32 %f2, {SIGNALLING:#x};
    shr.u32 %r2, %r1, 5;
    or.b32 %r2, %r2, 0x40000000;
    mov.b32 %f3, %r2;
    {instruction}
    mov.b32 %r0, %f0;"""
    out, _ = collect(backend, body)
    low, high = ROWS[instruction]
    np.testing.assert_array_equal(out, np.repeat(np.array([low, high], np.uint32), 16))
