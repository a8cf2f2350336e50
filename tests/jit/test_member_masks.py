"""Code of exchanges between lanes: whether lanes are in their member mask is checked only where they may not be."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.codegen.function import generate
from gpuperf_engine.jit.ir.codes import Event
from gpuperf_engine.simt.program import program_of

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    {body}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;", 0),
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", 0),
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xfffffffe;", 1),
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, %r1;", 1),
        ("bar.warp.sync 0xffffffff;", 0),
        ("bar.warp.sync 0x7fffffff;", 1),
    ],
)
def test_full_masks_are_not_checked(body: str, checks: int) -> None:
    program = program_of(ge.parse(KERNEL.format(body=body), path="k.ptx")["k"])
    ir, _ = generate(program, False, False, False, False, False)
    events = [line.strip() for line in ir.splitlines() if line.strip().startswith("store i32")]
    assert sum(line.startswith(f"store i32 {Event.MEMBER_MASK}, ") for line in events) == checks
