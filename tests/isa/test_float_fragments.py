"""Matrices are moved to and from floating-point registers as they are: compilers of inline assembly choose them ("=f")."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import BACKENDS

TEXT = """.version 8.7
.target sm_100a
.address_size 64
.shared .align 16 .b32 words[64]; .shared .b32 columns;
.visible .entry k(.param .u64 from, .param .u64 into)
{
.reg .b32 %t, %a, %w, %x; .reg .b64 %p, %q; .reg .f32 %f<4>; .reg .b64 %o;
ld.param.u64 %p, [from]; ld.param.u64 %q, [into]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %p, %p, %o; add.u64 %q, %q, %o;
mov.u32 %w, words; shl.b32 %a, %t, 2; add.u32 %a, %a, %w; ld.global.b32 %x, [%p]; st.shared.b32 [%a], %x;
bar.warp.sync -1;
// each of the eight lanes names a row of eight halves
and.b32 %a, %t, 7; shl.b32 %a, %a, 4; add.u32 %a, %a, %w;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%f0}, [%a];
movmatrix.sync.aligned.m8n8.trans.b16 %f1, %f0;
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%a+128], {%f1};
bar.warp.sync -1;
shl.b32 %a, %t, 2; add.u32 %a, %a, %w; ld.shared.b32 %x, [%a+128];
st.global.b32 [%q], %x;
mov.u32 %w, columns; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%w], 32; ld.shared.b32 %w, [%w];
tcgen05.st.sync.aligned.32x32b.x2.b32 [%w], {%f0, %f1}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%f3, %f2}, [%w]; tcgen05.wait::ld.sync.aligned;
st.global.f32 [%q+128], %f2; st.global.f32 [%q+256], %f3;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %w, 32;
ret;
}
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_floating_point_registers_hold_fragments_of_bits(backend: str) -> None:
    # patterns of signalling NaNs too, which no conversion may quiet
    halves = np.random.default_rng(3).integers(0, 1 << 16, (8, 8), dtype=np.uint16)
    halves[2, 1::2] = 0x7F81
    device = ge.Device(backend=backend)  # type: ignore[arg-type]
    given, out = device.array(halves.reshape(-1).view(np.uint32)), device.zeros(96, np.uint32)
    device.launch(ge.parse(TEXT, path="k.ptx")["k"], 1, 32, [given, out])
    turned, second, first = out.numpy().reshape(3, 32)
    np.testing.assert_array_equal(turned.view(np.uint16).reshape(8, 8), halves.T)
    # lane 4r + c holds elements 2c and 2c + 1 of row r
    np.testing.assert_array_equal(first.view(np.uint16).reshape(8, 8), halves)
    np.testing.assert_array_equal(second.view(np.uint16).reshape(8, 8), halves.T)
