"""Kernels that run every form of the instruction table that computes, on values where semantics break."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpuperf_engine.errors import EngineError
from gpuperf_engine.isa.effects import PURE
from gpuperf_engine.isa.evaluation import has_semantics
from gpuperf_engine.isa.table import Form, Row, lookup, rows
from tests.isa.assembler import instruction_text, opcodes, target_of

#: letters of registers, as the assembler of the ISA tests names them: PTX type, bytes
REGISTERS = {
    "c": ("b8", 1),
    "h": ("b16", 2),
    "r": ("b32", 4),
    "l": ("b64", 8),
    "f": ("f32", 4),
    "d": ("f64", 8),
    "g": ("f16", 2),
}
COUNT = 9
CTAS = 6

WORDS_8 = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x55, 0x3C)
WORDS_16 = (
    0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x3F80,
    0x7F80, 0x5555,
)  # fmt: skip
WORDS_32 = (
    0, 1, 2, 3, 5, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x3F800000, 0xBF800000, 0x7F800000,
    0xFF800000, 0x7FC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x4F000000, 0xCF000000, 0x4F800000,
    0x5F000000, 0x3F000000, 0x40200000, 0xC0200000, 0x33800000, 0x477FF000, 0x12345678, 0x3C003C00, 0x7C01FC00, 0x7F807FC1,
)  # fmt: skip
WORDS_64 = (
    0, 1, 2, 3, 63, 64, 65, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 0x3FF0000000000000, 0xBFF0000000000000,
    0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 1, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
    0x7FEFFFFFFFFFFFFF, 0x41E0000000000000, 0xC1E0000000000000, 0x43E0000000000000, 0x4004000000000000, 0x36A0000000000000,
    0x380FFFFFF0000000, 0x47EFFFFFE0000000, 0x123456789ABCDEF0, 0x00000001FFFFFFFF, 0xFFFFFFFF00000000, 1 << 53, (1 << 53) + 1,
)  # fmt: skip
TABLES = {1: WORDS_8, 2: WORDS_16, 4: WORDS_32, 8: WORDS_64}


def forms(row: Row) -> Iterator[tuple[str, Form]]:
    """Opcodes of a row with one form each, that compute without memory."""
    for opcode in opcodes(row, 24):
        try:
            found = lookup(opcode)
        except EngineError:
            continue
        for form in found:
            if form.row is row and has_semantics(form) and form.effect is PURE:
                yield opcode, form


def lines() -> dict[str, list[str]]:
    """All instructions that are tested, by a target that has them."""
    made: dict[str, dict[str, None]] = {}
    for row in rows():
        if (
            row.effect is PURE
            and row.semantics is not None
            and row.applied.checked is None
            and row.available.removed is None
        ):
            of_target = made.setdefault(target_of(row), {})
            of_target |= dict.fromkeys(instruction_text(form) for _, form in forms(row))
    return {
        target: [line for line in found if "q" not in line.split(" ", 1)[1]] for target, found in made.items()
    }


def inputs(seed: int = 7) -> npt.NDArray[np.uint64]:
    """Shape (CTAs · 32, letters, COUNT): the registers' first values."""
    generator = np.random.default_rng(seed)
    data = np.zeros((CTAS * 32, len(REGISTERS), COUNT), np.uint64)
    for place, (_, size) in enumerate(REGISTERS.values()):
        table = np.array(TABLES[size], np.uint64)
        special = table[generator.integers(0, len(table), (CTAS * 32, COUNT))]
        anything = generator.integers(0, 1 << 63, (CTAS * 32, COUNT), dtype=np.uint64) * np.uint64(2)
        data[:, place] = np.where(
            generator.random((CTAS * 32, COUNT)) < 0.8, special, anything >> np.uint64(64 - 8 * size)
        )
    return data


def kernel(part: list[str], target: str) -> tuple[str, int]:
    """A module that runs the instructions one after the other and stores what each writes; and the words stored per thread."""
    head = f".version 9.4\n.target {target}\n.address_size 64\n"
    head += ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
    body = [f".reg .{kind} {letter}<{COUNT}>;" for letter, (kind, _) in REGISTERS.items()]
    body += [f".reg .pred p<{COUNT}>;", ".reg .b32 %t<9>;", ".reg .b64 %a<9>;"]
    body += ["mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %tid.x;", "mad.lo.u32 %t0, %t0, 32, %t1;"]
    body += ["ld.param.u64 %a0, [in];", "ld.param.u64 %a1, [out];"]
    body += [f"mul.wide.u32 %a2, %t0, {8 * len(REGISTERS) * COUNT};", "add.u64 %a0, %a0, %a2;"]
    named = set(re.findall(r"\b[a-z]\d\b", " ".join(line.split(" ", 1)[1] for line in part)))
    for place, (letter, (kind, _)) in enumerate(REGISTERS.items()):
        body += [
            f"ld.global.{'b16' if kind == 'f16' else kind} {letter}{i}, [%a0+{8 * (place * COUNT + i)}];"
            for i in range(COUNT)
            if letter == "r" or f"{letter}{i}" in named
        ]
    body += [f"setp.lt.s32 p{i}, r{i}, r{(i + 1) % COUNT};" for i in range(COUNT)]
    stores: list[str] = []
    for line in part:
        body.append(line)
        if ".cc." in line:
            body += ["addc.u32 %t2, 0, 0;", f"st.global.u32 [%a1+{8 * len(stores)}], %t2;"]
            stores.append(line)
        first = line.split(" ", 1)[1].split(",")[0]
        if "{" in first:
            first = line.split("{")[1].split("}")[0]
        for name in first.replace("|", ",").replace(";", "").split(","):
            name = name.strip()
            if name.startswith("p"):
                body.append(f"selp.u32 %t2, 1, 0, {name};")
                body.append(f"st.global.u32 [%a1+{8 * len(stores)}], %t2;")
            else:
                kind = REGISTERS[name[0]][0]
                body.append(f"st.global.{'b16' if kind == 'f16' else kind} [%a1+{8 * len(stores)}], {name};")
            stores.append(line)
    size = 8 * len(stores)
    text = head + "\n".join(body).replace(
        "ld.param.u64 %a1, [out];", f"ld.param.u64 %a1, [out];\nmad.wide.u32 %a1, %t0, {size}, %a1;"
    )
    return text + "\nret;\n}\n", len(stores)
