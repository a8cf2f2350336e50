"""``wmma.load`` and ``wmma.store`` without an assembler: what traces record, the machine instructions, and addresses, lines and times
against those of the code of ``ptxas``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.sass.sm.launch import Traced
from gpuperf_engine.timing.models.simulation import Simulation, simulated
from tests.support import needs_assembler

from .test_tracing import LANES, of_space, records, start_of

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
A100 = load_machine("a100-sxm-80gb")
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .b32 %x<16>; .reg .f32 %f<8>; .reg .b32 %r<4>; .reg .b64 %d<4>;
.shared .align 128 .b8 tile[16384];
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u32 %r0, [n]; mov.u64 %d2, tile; cvta.shared.u64 %d3, %d2;
"""
#: Registers of a fragment, by matrix, shape and type.
REGISTERS = {
    "a.m16n16k16.f16": 8, "b.m16n16k16.f16": 8, "a.m32n8k16.f16": 8, "b.m8n32k16.f16": 8, "a.m8n32k16.bf16": 2, "a.m16n16k16.bf16": 4,
    "a.m16n16k8.tf32": 4, "b.m16n16k8.tf32": 4, "a.m16n16k16.s8": 2, "b.m16n16k16.s8": 2, "b.m32n8k16.s8": 1,
    "c.m16n16k16.f16": 4, "c.m16n16k16.f32": 8, "c.m8n32k16.s32": 8, "d.m16n16k16.f16": 4, "d.m16n16k16.f32": 8, "d.m8n32k16.f32": 8,
}  # fmt: skip
#: The opcodes of accesses in shared memory and in global memory, by matrix, layout, shape and type.
ACCESSES = {
    "a.row.m16n16k16.f16": ("LDSM.16.M88.4", "4 LDG.E"),
    "a.col.m16n16k16.f16": ("LDSM.16.MT88.4", "4 LDG.E, 4 MOVM.16.MT88"),
    "b.row.m16n16k16.f16": ("LDSM.16.MT88.4", "4 LDG.E, 4 MOVM.16.MT88"),
    "b.col.m16n16k16.f16": ("LDSM.16.M88.4", "4 LDG.E"),
    "a.row.m32n8k16.f16": ("2 LDSM.16.M88.4", "8 LDG.E"),
    "b.row.m8n32k16.f16": ("2 LDSM.16.MT88.4", "8 LDG.E, 8 MOVM.16.MT88"),
    "a.col.m8n32k16.bf16": ("LDSM.16.MT88.2", "2 LDG.E, 2 MOVM.16.MT88"),
    "a.row.m16n16k16.bf16": ("LDSM.16.M88.4", "4 LDG.E"),
    "a.row.m16n16k8.tf32": ("4 LDS", "4 LDG.E"),
    "b.row.m16n16k8.tf32": ("4 LDS", "4 LDG.E"),
    "a.row.m16n16k16.s8": ("LDSM.16.M88.2", "2 LDG.E"),
    "a.col.m16n16k16.s8": ("8 LDS.U8, 2 PRMT", "8 LDG.E.U8, 2 PRMT"),
    "b.row.m16n16k16.s8": ("8 LDS.U8, 2 PRMT", "8 LDG.E.U8, 2 PRMT"),
    "b.col.m32n8k16.s8": ("LDSM.16.M88", "LDG.E"),
    "c.row.m16n16k16.f16": ("4 LDS", "4 LDG.E"),
    "c.row.m16n16k16.f32": ("4 LDS.64", "4 LDG.E.64"),
    "c.col.m8n32k16.s32": ("4 LDS.64", "4 LDG.E.64"),
    "d.col.m16n16k16.f16": ("4 MOVM.16.MT88, 4 STS", "4 MOVM.16.MT88, 4 STG.E"),
    "d.row.m16n16k16.f32": ("4 STS.64", "4 STG.E.64"),
    "d.col.m16n16k16.f32": ("8 STS", "8 STG.E"),
    "d.row.m8n32k16.f32": ("8 STS", "8 STG.E"),
}


def launched(body: str, stride: int = 48) -> tuple[LaunchRecord, ge.Profile]:
    """A launch of a body as one warp, with two arrays and a distance between lines."""
    device = ge.Device(races="off", memory_bytes=1 << 24)
    given = [device.zeros(1 << 14, np.uint8), device.zeros(1 << 14, np.uint8), np.uint32(stride)]
    profile = device.launch(ge.parse(f"{HEAD}{body} ret;\n}}", path="k.ptx")["k"], 1, 32, given)
    return profile.records[0], profile


def expanded(record: LaunchRecord, profile: ge.Profile) -> Traced:
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    return Simulation(record, A100, expanded=resources).code().trace()


def statement(name: str, space: str, stride: str) -> str:
    """A load, and a store of what it has loaded, or a store of what is loaded."""
    matrix, layout, shape, kind = name.split(".")
    letter, type = ("%f", "f32") if kind == "f32" else ("%x", "b32")
    values = [f"{letter}{at}" for at in range(REGISTERS[f"{matrix}.{shape}.{kind}"])]
    place = {"shared": "%d2", "global": "%d0"}.get(space, "%d3")
    fragment, suffix = f"{{{', '.join(values)}}}", f"{'.' * bool(space)}{space}.{kind}"
    if matrix == "d":
        loads = [f"ld.global.{type} {value}, [%d1+{4 * at}];" for at, value in enumerate(values)]
        moved = f"wmma.store.d.sync.aligned.{layout}.{shape}{suffix} [{place}], {fragment}, {stride};"
        return " ".join([*loads, moved])
    moved = f"wmma.load.{matrix}.sync.aligned.{layout}.{shape}{suffix} {fragment}, [{place}], {stride};"
    return " ".join(
        [moved, *(f"st.global.{type} [%d1+{4 * at}], {value};" for at, value in enumerate(values))]
    )


def words_of(body: str, space: str) -> list[NDArray[np.uint32]]:
    """The words of the accesses of a warp to a space."""
    record, profile = launched(body)
    found = expanded(record, profile)
    words = found.tracer.whole(record, [(0, 0, 0)], 1 << 12)
    warp = [*records(words[0][0], found.tracer.of_block)]
    return [row for row, _ in of_space(found.tracer, warp, space)]  # type: ignore[arg-type]


@pytest.mark.parametrize("stride", ["48", "%r0"])
def test_rows_of_a_matrix_in_shared_memory(stride: str) -> None:
    """``LDSM`` of four matrices of 8 × 8: below one another, then beside these."""
    (row,) = words_of(statement("a.row.m16n16k16.f16", "shared", stride), "shared")
    line, beside = LANES % 8 + LANES // 8 % 2 * 8, LANES // 16
    np.testing.assert_array_equal(row, (line * 48 * 2 + beside * 16) // 4)


@pytest.mark.parametrize("stride", ["48", "%r0"])
def test_columns_of_a_matrix_in_shared_memory(stride: str) -> None:
    """Each lane loads four elements of 4 bytes: of row lane / 4 and 8 further, of column lane % 4 and 4 further."""
    rows = words_of(statement("a.col.m16n16k8.tf32", "shared", stride), "shared")
    row, column = LANES // 4, LANES % 4
    expected = [(column + across) * 48 + row + down for across in (0, 4) for down in (0, 8)]
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("stride", ["48", "%r0"])
def test_sums_in_global_memory(stride: str) -> None:
    """Each lane stores pairs of sums: of row lane / 4 and 8 further, of column 2 · (lane % 4) and 8 further."""
    body = statement("d.row.m16n16k16.f32", "global", stride)
    record, _ = launched(body)
    start = start_of(record, 0)
    row, column = LANES // 4, 2 * (LANES % 4)
    expected = [start + (row + down) * 48 + column + across for across in (0, 8) for down in (0, 8)]
    np.testing.assert_array_equal(words_of(body, "global")[-4:], expected)


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("name", ACCESSES)
def test_opcodes(name: str, space: str) -> None:
    record, profile = launched(statement(name, space, "%r0"))
    opcodes = Counter[str]()
    number = next(
        item.index + 1 for item in record.program.kernel.instructions if item.opcode.startswith("wmma")
    )
    for item in expanded(record, profile).tracer.graph.listing.instructions:
        opcode = item.text.split()[0]
        if item.ptx == number and opcode.startswith(("LD", "ST", "MOVM", "PRMT")):
            opcodes[opcode] += 1
    told = ACCESSES[name][space == "global"].split(", ")
    wanted = {part.split()[-1]: int(part.split()[0]) if " " in part else 1 for part in told}
    assert opcodes == wanted


def test_other_shapes_stay_out() -> None:
    body = (
        ".reg .f64 %w; wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%w}, [%d0]; st.global.f64 [%d1], %w;"
    )
    record, profile = launched(body)
    with pytest.raises(NotRun, match="simulated on machine code only"):
        expanded(record, profile)


def accesses(record: LaunchRecord, found: Traced) -> Counter[tuple[str, bytes]]:
    """The accesses of a warp: their opcodes, and the words of the lanes that matter; the order of matrices does not."""
    words = found.tracer.whole(record, [(0, 0, 0)], 1 << 12)[0][0]
    counted = Counter[tuple[str, bytes]]()
    for block, _, rows in records(words, found.tracer.of_block):
        for site, row in zip(found.tracer.of_block[block], rows):
            opcode = found.tracer.graph.listing.instructions[found.tracer.sites[site].position].opcode
            if opcode.startswith("LDSM"):
                matrices = row.reshape(4, 8)[: {"4": 4, "2": 2}.get(opcode[-1], 1)]
                row = np.array(sorted(matrices.tolist()), np.uint32)
            counted[opcode, row.tobytes()] += 1
    return counted


@needs_assembler
@pytest.mark.parametrize(("space", "stride"), [("shared", "%r0"), ("global", "48"), ("", "%r0")])
@pytest.mark.parametrize("name", ACCESSES)
def test_accesses_are_those_of_the_machine_code(name: str, space: str, stride: str) -> None:
    record, profile = launched(statement(name, space, stride))
    theirs = Simulation(record, A100).code().trace()
    assert accesses(record, expanded(record, profile)) == accesses(record, theirs)


@needs_assembler
@pytest.mark.parametrize("target", ["rtx-a6000", "a100-sxm-80gb"])
def test_a_product_takes_as_long_as_on_the_machine_code(target: str) -> None:
    device, machine = ge.Device(races="off"), load_machine(target)
    kernel = ge.parse((KERNELS / "tensor_gemm.ptx").read_text(encoding="utf-8"), path="gemm")["hgemm_wmma"]
    a, b, c = (device.zeros((512, 512), kind) for kind in (np.float16, np.float16, np.float32))
    arguments = [np.int32(512), np.int32(512), a, b, c]
    profile = device.launch(kernel, (16, 16), 128, arguments, demand="addresses")
    record = profile.records[0]
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    ours, theirs = (
        Simulation(record, machine, expanded=given).code().trace().classes.classes
        for given in (resources, None)
    )
    for one, other in zip(ours, theirs, strict=True):
        touched, reference = (dict(zip(each.lines.tolist(), each.sectors.tolist())) for each in (one, other))
        assert touched == reference
    assert simulated(record, machine, expanded=resources).time_us == pytest.approx(
        simulated(record, machine).time_us, rel=0.1
    )
