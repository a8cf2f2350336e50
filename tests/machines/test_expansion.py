"""The expansion of PTX into machine instructions: the file is sound, and ptxas agrees where it can be asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import MachineError
from gpuperf_engine.machines.expansion import expansion_of, load_rules
from gpuperf_engine.machines.machine import load_machine, machine_ids
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.sass.sm.operations import unit_of_opcode
from tests.support import head, needs_assembler


@pytest.mark.parametrize(
    ("opcode", "capability", "units"),
    [
        ("ld.param.u64", (8, 0), {}),
        ("mov.b64", (8, 0), {}),
        ("cvta.to.global.u64", (8, 0), {}),
        ("add.s64", (8, 0), {"alu": 2}),
        ("add.s64", (12, 0), {"alu": 1}),
        ("max.u64", (8, 0), {"alu": 4}),
        ("max.u64", (12, 0), {"alu": 1}),
        ("add.s32", (8, 0), None),
        ("add.rn.f64", (8, 0), None),
        ("add.f64", (8, 0), None),
        ("setp.lt.u64", (8, 0), {"alu": 2}),
        ("setp.lt.f64", (8, 0), None),
        ("setp.lt.and.s64", (8, 0), {"alu": 2}),
        ("set.eq.u32.s64", (8, 0), {"alu": 2}),
        ("shl.b64", (8, 0), {"alu": 2}),
        ("mul.lo.s64", (8, 0), {"imad": 3, "alu": 1}),
        ("mul.wide.s32", (8, 0), None),
        ("div.s32", (8, 0), {"alu": 12, "imad": 9, "xu": 3}),
        ("div.rn.f32", (8, 0), {"fma": 5, "xu": 2, "cbu": 3}),
        ("div.rn.ftz.f32", (8, 0), {"fma": 5, "xu": 2, "cbu": 3}),
        ("sqrt.rn.f64", (8, 0), {"fp64": 8, "xu": 1, "alu": 6, "cbu": 3}),
        ("ex2.approx.ftz.f32", (8, 0), None),
        ("ex2.approx.f32", (8, 0), {"xu": 1, "fma": 2, "alu": 1}),
        ("cvt.rn.f64.s32", (8, 0), {"xu": 1}),
        ("cvt.rn.f64.s32", (8, 9), {"fp64": 1}),
        ("cvt.rn.f32.f64", (7, 0), {"xu": 1}),
        ("cvt.rn.f32.s32", (8, 0), None),
        ("cvt.rn.f32.s32", (9, 0), {"alu": 1}),
        ("cvt.rn.f16.f32", (7, 0), {"xu": 1}),
        ("cvt.rn.f16.f32", (8, 0), {"alu": 1}),
        ("cvt.f32.f16", (8, 0), {"fp16": 1}),
        ("cvt.u32.u64", (8, 0), {}),
        ("cvt.u64.u32", (8, 0), {}),
        ("cvt.s64.s32", (8, 0), {"alu": 1}),
        ("cvt.rzi.s32.f32", (8, 0), None),
        ("vote.sync.ballot.b32", (8, 0), {"alu": 1}),
        # half of what the dense product of the shape takes; one unit is m16n8k8 of halves
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (8, 0), {"tensor": 2}),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (8, 0), {"tensor": 1}),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", (8, 0), {"tensor": 2}),
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", (8, 0), {"tensor": 1}),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", (8, 0), {"tensor": 2}),
        ("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", (8, 0), {"tensor": 1}),
        ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32", (8, 0), {"tensor": 2}),
        ("mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32", (8, 0), {"tensor": 1}),
        ("mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32", (8, 0), {"tensor": 2}),
        ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", (8, 9), {"tensor": 2}),
        # 16 x n x k for each warp, m16n8k8 of halves the unit: 16 · 128 · 16 / 1024, and the same for twice the k of half the bits
        # TF32 has half the rate; what ptxas converts takes as long as the other type
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", (8, 0), {"tensor": 2}),
        ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", (8, 9), {"tensor": 2}),
        ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", (9, 0), {"tensor": 4}),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", (8, 6), {"tensor": 2}),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", (9, 0), {"tensor": 4}),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", (12, 0), {"tensor": 16}),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", (8, 9), {"tensor": 2}),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", (9, 0), {"tensor": 4}),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", (9, 0), {"tensor": 2}),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32", (12, 0), {"tensor": 2}),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
            (12, 0),
            {"tensor": 2},
        ),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", (8, 0), {"tensor": 1}),
        ("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", (10, 0), {"tensor": 2}),
        # tensor cores with 1/16 of the rate, or 256 multiply-adds by the other units
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (8, 0), {"tensor": 4}),
        ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", (9, 0), {"tensor": 32}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (8, 6), {"fp64": 8}),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64", (12, 0), {"fp64": 8}),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", (7, 0), {"tensor": 1}),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", (8, 0), {"fma": 32}),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", (9, 0), {"tensor": 32}),
        ("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8", (9, 0), {"tensor": 32}),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16", (9, 0), {"tensor": 2}),
        ("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", (9, 0), {"tensor": 64}),
        ("wgmma.commit_group.sync.aligned", (9, 0), {}),
        ("min.f32", (8, 0), None),
        ("neg.f32", (8, 0), {}),
        ("abs.s32", (8, 0), None),
    ],
)
def test_expansions(opcode: str, capability: tuple[int, int], units: dict[str, int] | None) -> None:
    found = expansion_of(opcode, capability)
    assert (None if found is None else dict(found.units)) == units


#: What is measured: the opcode, the type of the result, those of the operands, and constants behind them.
MEASURED = [
    *((f"{name}.approx.f32", "f32", "f32") for name in ("rcp", "sqrt", "rsqrt", "lg2", "ex2")),
    *((f"{name}.approx.ftz.f32", "f32", "f32") for name in ("rcp", "sqrt", "rsqrt", "lg2", "ex2", "sin")),
    *((f"{name}{ftz}.f32", "f32", "f32 f32") for name in ("div.approx", "div.full") for ftz in ("", ".ftz")),
    *((f"{name}.s64", "b64", "b64 b64") for name in ("add", "sub", "mul.lo", "min", "max")),
    *((f"{name}.b64", "b64", "b64 b64") for name in ("and", "xor")),
    ("not.b64", "b64", "b64"), ("shr.u64", "b64", "b64 7"), ("popc.b64", "b32", "b64"),
    ("brev.b64", "b64", "b64"), ("cvt.u64.u32", "b64", "b32"), ("cvt.u64.u16", "b64", "b16"), ("cvt.s64.s32", "b64", "b32"),
    ("bfe.u64", "b64", "b64 5 7"), ("bfi.b64", "b64", "b64 b64 5 7"), ("min.f64", "f64", "f64 f64"),
    ("copysign.f64", "f64", "f64 f64"),
    ("cvt.rn.f32.f64", "f32", "f64"), ("cvt.rn.f64.s32", "f64", "b32"), ("clz.b32", "b32", "b32"), ("mul.hi.u64", "b64", "b64 b64"),
]  # fmt: skip
#: Opcodes of copies: an instruction that is one in the table may be on the unit of additions or of multiplications.
COPIES = ("MOV", "IMAD.MOV", "HFMA2", "CS2R")


def measured(opcode: str, result: str, operands: str, count: int, architecture: int) -> Counter[str]:
    """The machine instructions of a kernel with so many independent ones between loads and stores, but loads and stores."""
    lines = []
    for at in range(count):
        given = []
        for number, kind in enumerate(operands.split()):
            if not kind[0].isdigit():
                lines.append(
                    f".reg .{kind} %a{at}_{number}; ld.global.{kind} %a{at}_{number}, [%rd2+{32 * at + 8 * number}];"
                )
            given.append(kind if kind[0].isdigit() else f"%a{at}_{number}")
        lines.append(
            f".reg .{result} %b{at}; {opcode} %b{at}, {', '.join(given)}; st.global.{result} [%rd4+{8 * at}], %b{at};"
        )
    text = (
        head("8.7", f"sm_{architecture}")
        + ".visible .entry k(.param .u64 a, .param .u64 b)\n{ .reg .b32 %r<2>; .reg .b64 %rd<6>; ld.param.u64 %rd0, [a];"
        + "ld.param.u64 %rd1, [b]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4096; add.s64 %rd2, %rd0, %rd5;"
        + "add.s64 %rd4, %rd1, %rd5;\n" + "\n".join(lines) + "ret; }\n"
    )  # fmt: skip
    listing = disassemble(assemble(ge.parse(text, path="k.ptx")["k"], f"sm_{architecture}"))
    return Counter(item.opcode for item in listing.instructions if item.base not in ("LDG", "STG", "NOP"))


@needs_assembler
@pytest.mark.parametrize("architecture", [75, 90, 120])
@pytest.mark.parametrize(("opcode", "result", "operands"), MEASURED)
def test_expansions_are_those_of_the_assembler(
    opcode: str, result: str, operands: str, architecture: int
) -> None:
    few, many = (measured(opcode, result, operands, count, architecture) for count in (4, 12))
    found: Counter[str] = Counter()
    for name in many | few:
        if name.startswith(COPIES):
            unit = "copy"
        else:
            unit = unit_of_opcode(name, architecture)
        found[unit] += many[name] - few[name]
    expansion = expansion_of(opcode, divmod(architecture, 10))
    # those without a rule here are functions of one instruction
    wanted = Counter({"xu": 1} if expansion is None else dict(expansion.units))
    # the assembler has additions, shifts and copies on either of two units
    either = ("alu", "imad", "copy")
    assert sum(found[unit] for unit in either) / 8 == pytest.approx(
        sum(wanted[unit] for unit in either), abs=0.2
    )
    for unit in ("xu", "fma", "fp64", "fp16", "cbu"):
        assert found[unit] / 8 == pytest.approx(wanted[unit], abs=0.2), unit


def test_chains_are_parts_of_their_expansions_and_units_are_described() -> None:
    machines = [load_machine(identifier) for identifier in machine_ids()]
    # matrix instructions need sm_70, which is newer than machines without tensor cores
    assert all(("tensor" in machine.lanes) == (machine.compute_capability >= (7, 0)) for machine in machines)
    lanes = {"tensor"}.union(set.intersection(*(set(machine.lanes) for machine in machines)))
    for rule in load_rules():
        assert rule.patterns
        for unit, count in rule.expansion.chain.items():
            assert count <= rule.expansion.units[unit]
        assert set(rule.expansion.units) <= lanes, rule.patterns


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('{match: ["a"], units: {alu: 1}, source: X}', "unknown source 'X'"),
        ('{match: ["a"], units: {alu: 1}, source: assumed}', "an assumed expansion without a note"),
        ('{match: ["a"], units: {alw: 1}, source: S}', "unknown unit 'alw'"),
        ('{match: ["a"], units: {alu: 0}, source: S}', "0 is too small"),
        ('{match: ["a"], units: {alu: 1}, chain: {alu: 2}, source: S}', "2 alu in a chain of 1"),
        ("{match: a, units: {}, source: S}", "expected a list"),
        ('{match: ["a"], units: {}, source: S, nite: x}', "unknown key 'nite'"),
    ],
)
def test_faults_are_named_with_position(tmp_path: Path, rule: str, message: str) -> None:
    path = tmp_path / "expansion.yaml"
    path.write_text(f"schema: 1\nsources: {{S: text}}\nrules:\n  - {rule}\n")
    with pytest.raises(MachineError, match=message) as caught:
        load_rules(path)
    assert "expansion.yaml:4:" in str(caught.value)
