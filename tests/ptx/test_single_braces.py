"""Braces around one value: where ptxas takes them, and where it does not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import gpuperf_engine as ge

SCALED = (
    "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
    "{%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}, "
)
SPARSE = (
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
    "{%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%f1, %f2, %f3, %f4}, "
)
ACCEPTED = (
    SCALED + "%r7, {%h1, %h1}, %r8, {%h1, %h1};",
    SCALED + "{%r7}, {%h1, %h1}, {%r8}, {%h1, %h1};",
    SCALED + "{%r7}, {%h1, %h1}, %r8, {%h1, %h1};",
    SPARSE + "%r9, 0;",
    SPARSE + "{%r9}, 0;",
    "ld.global.b32 {%r1}, [%rd1];",
    "st.global.b32 [%rd1], {%r1};",
)
#: ptxas takes these, and which of the two it means is told nowhere
AMBIGUOUS = (
    SPARSE + "{%r9, %r9}, 0;",
    SCALED + "{%r7, %r7}, {%h1, %h1}, {%r8}, {%h1, %h1};",
)
REFUSED = (
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, {%r2};",
    "add.s32 {%r1}, %r2, %r3;",
    "add.s32 %r1, {%r2}, %r3;",
)


def module(statement: str) -> str:
    return f""".version 8.8
.target sm_120a
.address_size 64
.visible .entry k()
{{
    .reg .b16 %h<3>;
    .reg .b32 %r<10>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<2>;
    {statement}
    ret;
}}
"""


@pytest.mark.parametrize("statement", ACCEPTED)
def test_taken(statement: str) -> None:
    assert len(ge.parse(module(statement))["k"].instructions) == 2


@pytest.mark.parametrize("statement", [*REFUSED, *AMBIGUOUS])
def test_refused(statement: str) -> None:
    with pytest.raises(ge.EngineError, match=r"found a vector|one value"):
        ge.parse(module(statement))["k"]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("statement", [*ACCEPTED, *REFUSED])
def test_as_ptxas_does(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(module(statement))
    done = subprocess.run(
        ["ptxas", "-arch=sm_120a", str(path), "-o", "/dev/null"], capture_output=True, check=False
    )
    assert (done.returncode == 0) is (statement in ACCEPTED)
