"""Pairs of instructions on halves, as counted by hand and, if it is here, as ``ptxas`` makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from tests.support import needs_assembler

from .machine_code import code, roots, text

THREAD = (
    "mov.u32 %r4, %tid.x; mul.wide.u32 %rd4, %r4, 32; add.s64 %rd5, %rd1, %rd4; add.s64 %rd6, %rd2, %rd4;\n"
)
#: Registers of halves beyond those of the head.
MORE = ".reg .b16 %a<40>, %b<40>, %c<70>, %d<40>;\n"
ARITHMETIC = ("HADD2", "HMUL2", "HFMA2")


def vector(name: str, count: int, address: str) -> str:
    """Loads halves, two in a word."""
    words = [f"ld.global.u32 %r{20 + at}, [{address}+{4 * at}];" for at in range(count // 2)]
    return "".join(
        f"{word} mov.b32 {{%{name}{2 * at}, %{name}{2 * at + 1}}}, %r{20 + at};"
        for at, word in enumerate(words)
    )


def stored(name: str, count: int) -> str:
    """Stores halves, two in a word."""
    return "".join(
        f"mov.b32 %r{40 + at}, {{%{name}{2 * at}, %{name}{2 * at + 1}}}; st.global.u32 [%rd6+{4 * at}], %r{40 + at};"
        for at in range(count // 2)
    )


def single(name: str, count: int) -> str:
    """Loads halves one by one."""
    return "".join(f"ld.global.u16 %{name}{at}, [%rd5+{2 * at}];" for at in range(count))


def singly(name: str, count: int) -> str:
    """Stores halves one by one."""
    return "".join(f"st.global.u16 [%rd6+{2 * at}], %{name}{at};" for at in range(count))


def each(operation: str, count: int) -> str:
    return "".join(operation.format(at, at + 1) for at in range(count))


ADDED = each("add.f16 %d{0}, %a{0}, %b{0};", 8)
FUSED = each("fma.rn.f16 %d{0}, %a{0}, %b{0}, %c{0};", 8)
#: What eight results become: instructions on halves, and ``PRMT``.
CASES: dict[str, tuple[str, int, int]] = {
    "sums of vectors": (vector("a", 8, "%rd5") + vector("b", 8, "%rd6") + ADDED + stored("d", 8), 4, 0),
    "one factor for all": (
        vector("a", 8, "%rd5") + "ld.global.u16 %b0, [%rd6];" + each("mul.f16 %d{0}, %a{0}, %b0;", 8) + stored("d", 8), 4, 0,
    ),
    "products and sums of vectors": (
        vector("a", 8, "%rd5") + vector("b", 8, "%rd6+16") + vector("c", 8, "%rd6") + FUSED + stored("d", 8), 4, 0,
    ),
    "contracted products": (
        vector("a", 8, "%rd5") + vector("b", 8, "%rd6+16") + vector("c", 8, "%rd6")
        + each("mul.f16 %b2{0}, %a{0}, %b{0}; add.f16 %d{0}, %b2{0}, %c{0};", 8) + stored("d", 8), 4, 0,
    ),
    "in another order": (
        vector("a", 2, "%rd5") + vector("b", 2, "%rd6") + "add.f16 %d1, %a1, %b1; add.f16 %d0, %a0, %b0;" + stored("d", 2), 1, 0,
    ),
    "a result that is used in between": (
        vector("a", 2, "%rd5") + "mul.f16 %d0, %a0, %a0; sub.f16 %c0, %d0, %a1; mul.f16 %d1, %a1, %a1;"
        + "st.global.u16 [%rd5+64], %c0;" + stored("d", 2), 2, 0,
    ),
    "exchanged halves": (
        vector("a", 2, "%rd5") + vector("b", 2, "%rd6") + "add.f16 %d0, %a0, %b1; add.f16 %d1, %a1, %b0;" + stored("d", 2), 2, 1,
    ),
    "a chain": (
        vector("a", 8, "%rd5") + "mov.b16 %d0, 0;" + each("add.f16 %d{1}, %d{0}, %a{0};", 8) + "st.global.u16 [%rd6], %d8;", 8, 0,
    ),
    "two chains": (
        vector("a", 8, "%rd5") + "mov.b16 %d0, 0; mov.b16 %c0, 0;"
        + "".join(f"add.f16 %d{at + 1}, %d{at}, %a{2 * at}; add.f16 %c{at + 1}, %c{at}, %a{2 * at + 1};" for at in range(4))
        + "mov.b32 %r40, {%d4, %c4}; st.global.u32 [%rd6], %r40;", 4, 0,
    ),
    "a tree of neighbours": (
        vector("a", 8, "%rd5") + "".join(f"add.f16 %b{at}, %a{2 * at}, %a{2 * at + 1};" for at in range(4))
        + "add.f16 %c0, %b0, %b1; add.f16 %c1, %b2, %b3; add.f16 %d0, %c0, %c1; st.global.u16 [%rd6], %d0;", 6, 2,
    ),
    "a tree of opposites": (
        vector("a", 8, "%rd5") + "".join(f"add.f16 %b{at}, %a{at}, %a{at + 4};" for at in range(4))
        + "add.f16 %c0, %b0, %b2; add.f16 %c1, %b1, %b3; add.f16 %d0, %c0, %c1; st.global.u16 [%rd6], %d0;", 4, 0,
    ),
    "loaded one by one": (single("a", 8) + vector("b", 8, "%rd6") + ADDED + stored("d", 8), 4, 4),
    "loaded and stored one by one": (
        single("a", 8) + "add.s64 %rd7, %rd5, %rd6;" + single("b", 8).replace("%rd5", "%rd7") + ADDED + singly("d", 8), 4, 12,
    ),
}  # fmt: skip


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:]
from tests.timing.expanded.test_packing import CASES, MORE, THREAD, code
for body, _, _ in CASES.values():
    for item in code(MORE + THREAD + body).graph.listing.instructions:
        print(repr(item))
"""


def counted(opcodes: list[str]) -> tuple[int, int]:
    found = Counter(opcodes)
    return sum(found[one] for one in ARITHMETIC), found["PRMT"]


@pytest.mark.parametrize("name", CASES)
def test_pairs(name: str) -> None:
    body, halves, moves = CASES[name]
    assert counted(roots(code(MORE + THREAD + body))) == (halves, moves)


@needs_assembler
@pytest.mark.parametrize("name", CASES)
def test_pairs_are_those_of_the_assembler(name: str) -> None:
    body, halves, _ = CASES[name]
    listing = disassemble(assemble(ge.parse(text(MORE + THREAD + body), path="k.ptx")["k"], "sm_86"))
    assert counted([item.base for item in listing.instructions])[0] == halves


PACKS = {
    "loaded one by one": ("ld.global.u16 %a0, [%rd5]; ld.global.u16 %a1, [%rd5+6];", ["PRMT"]),
    "converted": (
        "ld.global.f32 %f0, [%rd5]; ld.global.f32 %f1, [%rd6]; cvt.rn.f16.f32 %a0, %f0; cvt.rn.f16.f32 %a1, %f1;",
        ["F2FP"],
    ),
    "unpacked": ("ld.global.u32 %r20, [%rd5]; mov.b32 {%a0, %a1}, %r20;", []),
    "exchanged": ("ld.global.u32 %r20, [%rd5]; mov.b32 {%a1, %a0}, %r20;", ["PRMT"]),
}


def packed(name: str) -> tuple[str, list[str]]:
    body, expected = PACKS[name]
    return f"{MORE}{THREAD}{body} mov.b32 %r40, {{%a0, %a1}}; st.global.u32 [%rd6], %r40;", expected


@pytest.mark.parametrize("name", PACKS)
def test_packs(name: str) -> None:
    body, expected = packed(name)
    assert [one for one in roots(code(body)) if one in ("PRMT", "F2FP")] == expected


@needs_assembler
@pytest.mark.parametrize("name", PACKS)
def test_packs_are_those_of_the_assembler(name: str) -> None:
    body, expected = packed(name)
    listing = disassemble(assemble(ge.parse(text(body), path="k.ptx")["k"], "sm_86"))
    assert [item.base for item in listing.instructions if item.base in ("PRMT", "F2FP")] == expected


def test_sums_of_a_loop_share_registers() -> None:
    """32 sums that are carried from one iteration to the next are halves of 16 registers, beside 8 of other values."""
    sums = [f"fma.rn.f16 %c{at}, %a{at}, %a{at}, %c{at};" for at in range(32)]
    body = f"""{MORE}{THREAD}{each("mov.b16 %c{0}, 0;", 32)} mov.u32 %r9, 0;
    L: {vector("a", 32, "%rd5")} {"".join(sums)} bar.sync 0; add.s64 %rd5, %rd5, 64;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, %r1; @%p1 bra L; {stored("c", 32)}"""
    made = code(body)
    assert counted(roots(made)) == (16, 0)
    assert made.registers <= 16 + 16 + 8


def test_code_is_the_same_whatever_the_seed_of_hashes() -> None:
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", SCRIPT, *map(str, (root, root / "engine", root / "examples"))]
    first, second = (
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, timeout=120
        ).stdout
        for seed in "12"
    )
    assert first == second != b""
