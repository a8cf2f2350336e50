"""Generic accesses that name a variable in shared or local memory. ptxas compiles them to accesses of that memory."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = """.version 8.6
.target sm_90
.address_size 64
.const .u32 con[4] = {7, 8, 9, 10}; .global .u32 glo[4] = {1, 2, 3, 4}; .shared .align 16 .u32 sha[64];
.visible .entry k(.param .u64 to) {
.reg .b64 a, b; .reg .b32 t, x, y; .local .align 8 .u32 loc[4];
ld.param.u64 a, [to]; mov.u32 t, %tid.x; mul.wide.u32 b, t, 4; add.u64 a, a, b; mov.u32 x, 0;
"""


def kernel(lines: str) -> ge.Kernel:
    return ge.parse(f"{HEAD}{lines} st.global.u32 [a], x; ret; }}", path="named.ptx")["k"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("st.u32 [sha+4], 5; ld.u32 x, [sha+4];", 5),
        ("st.v2.u32 [sha], {5, 6}; ld.v2.u32 {x, y}, [sha]; add.u32 x, x, y;", 11),
        ("st.volatile.u32 [sha], 5; ld.relaxed.cta.u32 x, [sha];", 5),
        ("st.u32 [loc+4], t; ld.u32 x, [loc+4]; sub.u32 x, x, t;", 0),
        ("ld.u32 x, [glo+8];", 3),
        ("st.u32 [sha], 0; bar.sync 0; atom.add.u32 y, [sha], 1; bar.sync 0; ld.u32 x, [sha];", 32),
        ("st.u32 [sha], 0; bar.sync 0; red.add.u32 [sha], 2; bar.sync 0; ld.shared.u32 x, [sha];", 64),
    ],
)
def test_memory_is_that_of_the_variable(backend: str, lines: str, expected: int) -> None:
    device = ge.Device(backend=backend)
    out = device.zeros(32, np.uint32)
    profile = device.launch(kernel(lines), 1, 32, [out])
    assert out.numpy().tolist() == [expected] * 32
    assert profile.memory.global_load_sectors == (1 if "glo" in lines else 0)
    assert profile.memory.global_store_sectors == 4


@pytest.mark.parametrize(
    ("line", "space"),
    [
        ("ld.u32 x, [con];", "const"),
        ("ld.u32 x, [to];", "param"),
        ("st.u32 [con], 1;", "const"),
        ("atom.add.u32 x, [loc], 1;", "local"),
    ],
)
def test_other_variables_are_refused(line: str, space: str) -> None:
    with pytest.raises(ge.PtxError, match=rf"a variable in \.{space} is not accessed by generic addresses"):
        kernel(line)
