"""Operations of matrix products: from the fragments that the operands of every row hold, and from known shapes."""

from __future__ import annotations

from math import isqrt

import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.matrix_work import TENSOR, matrix_work
from gpuperf_engine.isa.table import rows
from tests.isa.assembler import forms

#: elements of a type in 32 bits; of a fragment of 64-bit registers there is one in each
PER_WORD = {"f64": 1, "tf32": 1, "f16": 2, "bf16": 2, "s8": 4, "u8": 4, "s4": 8, "u4": 8, "b1": 32}
BYTES = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


@pytest.mark.parametrize(
    ("opcode", "name", "per_warp"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "tensor_fp16", 2 * 16 * 8 * 16),
        ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "tensor_bf16", 2 * 16 * 8 * 8),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "tensor_tf32", 2 * 16 * 8 * 8),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "tensor_fp64", 2 * 8 * 8 * 4),
        # four quarters of a warp make a product each
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "tensor_fp16", 4 * 2 * 8 * 8 * 4),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "tensor_int8", 2 * 16 * 8 * 32),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "tensor_int1", 2 * 16 * 8 * 256),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32", "tensor_fp8", 2 * 16 * 8 * 32),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "tensor_fp6", 2 * 16 * 8 * 32),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            "tensor_fp4",
            2 * 16 * 8 * 64,
        ),
        # of every two elements along k one is stored
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "tensor_fp16", 2 * 16 * 8 * 16),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "tensor_tf32", 2 * 16 * 8 * 8),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16", "tensor_fp16", 2 * 16 * 16 * 16),
        ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32", "tensor_int8", 2 * 32 * 8 * 16),
        # four warps share the 64 rows
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "tensor_fp16", 2 * 16 * 256 * 16),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2", "tensor_fp8", 2 * 16 * 8 * 32),
    ],
)  # fmt: skip
def test_known_shapes(opcode: str, name: str, per_warp: int) -> None:
    assert matrix_work(opcode) == (name, per_warp // 32)


@pytest.mark.parametrize(
    "opcode",
    [
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16",
        "wmma.store.d.sync.aligned.row.m16n16k16.f32",
        "movmatrix.sync.aligned.m8n8.trans.b16",
        "wgmma.commit_group.sync.aligned",
        "fma.rn.f32",
    ],
)
def test_other_instructions_have_none(opcode: str) -> None:
    assert matrix_work(opcode) is None


def test_every_product_of_the_table_has_its_work() -> None:
    """Of a dense product of a warp, m·k, k·n and m·n are what the fragments hold: the square root of their product is m·n·k."""
    checked = 0
    for row in rows():
        if row.name not in ("mma", "wmma", "wgmma") or row.unit != "tensor":
            continue
        for form in forms(row, 40):
            words = form.opcode.split(".")
            if words[0] == "wgmma" and words[1] != "mma_async":
                continue
            work = matrix_work(form.opcode)
            assert work is not None and work[0] in TENSOR.values() and work[1] > 0, form.opcode
            factors = [word for word in words if word in PER_WORD]
            if words[0] != "mma" or words[1].startswith("sp") or len(factors) < 2 or set(words) & set(BYTES):
                continue
            if "m8n8k4" in words and factors[-1] == "f16":
                continue  # four products
            d, a, b = (32 * slot.vector for slot in form.operands[:3])
            if form.operands[0].type.name == "b32":
                d *= 2
            first, second = factors[1:3] if len(factors) == 4 else factors
            a, b = a * PER_WORD[first], b * PER_WORD[second]
            assert work[1] * 32 == 2 * isqrt(a * b * d), form.opcode
            checked += 1
    assert checked > 20


def test_a_run_counts_them() -> None:
    """Three products of two warps, one of them under a guard that holds nowhere."""
    product = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3}, {%f1,%f2,%f3,%f4};"
    text = f"""
    .version 7.0
    .target sm_80
    .address_size 64
    .visible .entry k()
    {{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<5>;
    setp.ne.u32 %p1, 1, 1;
    {product}
    {product}
    @%p1 {product}
    fma.rn.f32 %f1, %f1, %f1, %f1;
    ret;
    }}"""
    for backend in ("llvm", "reference"):
        profile = ge.Device(backend=backend).launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [])
        assert profile.flops == {"hp": 0, "sp": 2 * 64, "dp": 0, "tensor_fp16": 2 * 2 * (2 * 16 * 8 * 8)}
