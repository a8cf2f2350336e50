"""Registers that hold fragments of products: those that ptxas accepts, of CUDA 13.0 as recorded here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import gpuperf_engine as ge

from .assembler import PTXAS

BITS, WORDS, ANY = {"b32"}, {"b32", "u32", "s32"}, {"b32", "u32", "s32", "f32"}
MMA, WMMA = "mma.sync.aligned", "wmma.mma.sync.aligned.row.col"
#: instruction, registers of d, a, b, c, which of them is tried, and the types that ptxas accepts there
CASES = [
    (f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32", "4424", "a", BITS),
    (f"{MMA}.m16n8k16.row.col.f32.bf16.bf16.f32", "4424", "b", BITS),
    (f"{MMA}.m16n8k8.row.col.f32.tf32.tf32.f32", "4424", "a", BITS),
    (f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16", "2422", "d", BITS),
    (f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16", "2422", "c", BITS),
    (f"{MMA}.m16n8k32.row.col.s32.s8.u8.s32", "4424", "a", ANY),
    (f"{MMA}.m16n8k64.row.col.s32.u4.s4.s32", "4424", "b", ANY),
    (f"{MMA}.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "4424", "a", ANY),
    (f"{MMA}.m16n8k32.row.col.f32.e4m3.e5m2.f32", "4424", "a", ANY),
    (
        f"{MMA}.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        "4424",
        "a",
        BITS,
    ),
    (f"{MMA}.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", "4424", "b", ANY),
    (f"{WMMA}.m16n16k16.f32.f32", "8888", "a", BITS),
    (f"{WMMA}.m16n16k16.f16.f16", "4884", "c", BITS),
    (f"{WMMA}.m16n16k16.f32.bf16.bf16.f32", "8448", "b", BITS),
    (f"{WMMA}.m16n16k16.s32.s8.s8.s32", "8228", "a", WORDS),
]


def text_of(case: tuple[str, str, str, set[str]], type: str) -> str:
    opcode, counts, tried, _ = case
    sums = {"s32": "s32", "f16": "b32"}.get(opcode.split(".row.col.")[1].replace("m16n16k16.", "")[:3], "f32")
    types = {"d": sums, "a": "b32", "b": "b32", "c": sums} | {tried: type}
    registers = " ".join(f".reg .{types[name]} %{name}<9>;" for name in "dabc")
    operands = ", ".join(
        "{" + ", ".join(f"%{name}{index}" for index in range(int(count))) + "}"
        for name, count in zip("dabc", counts)
    )
    if "block_scale" in opcode:
        registers += " .reg .b32 %e<9>; .reg .b16 %h<9>;"
        operands += ", %e0, {%h0, %h1}, %e1, {%h2, %h3}"
    head = f".version 8.7\n.target {target_of(case)}\n.address_size 64\n.visible .entry k()"
    return f"{head}\n{{\n{registers}\n{opcode} {operands};\nret;\n}}\n"


def target_of(case: tuple[str, str, str, set[str]]) -> str:
    return "sm_120a" if "kind::" in case[0] else "sm_89"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_registers_of_fragments(case: tuple[str, str, str, set[str]]) -> None:
    for type in sorted(ANY):
        text = text_of(case, type)
        if type in case[3]:
            assert ge.parse(text)["k"].instructions
        else:
            with pytest.raises(
                ge.PtxError, match=f"{case[2]} must be a .b32 value, found a .{type} register"
            ):
                ge.parse(text)["k"]


@pytest.mark.skipif(PTXAS is None, reason="no ptxas on the PATH")
def test_the_record_is_that_of_ptxas(tmp_path: Path) -> None:
    for case in CASES:
        accepted = set()
        for type in sorted(ANY):
            given = tmp_path / "k.ptx"
            given.write_text(text_of(case, type))
            command = [str(PTXAS), "-arch", target_of(case), str(given), "-o", str(tmp_path / "k.cubin")]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                accepted.add(type)
        assert accepted == case[3], case
