"""64-bit integers in halves: the same results as NumPy's and those of the kernels as they are, and as many instructions as an
assembler needs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.timing.expanded.code import code_of
from gpuperf_engine.timing.expanded.halving import halved
from gpuperf_engine.timing.expanded.launch import rewritten
from gpuperf_engine.timing.launch.allocation import Allocation
from tests.support import head, needs_assembler

from .machine_code import LATENCIES, LEVELS
from .rewritten import LANES, LOOPS, WORDS, Both, looped, run
from .test_rewriting import count, whole

_Values = dict[str, NDArray[np.uint64]]
DATA = np.arange(WORDS, dtype=np.uint32) * np.uint32(2654435761)
#: %rd3 and %rd4: 64 bits that differ by lane; %r9: 32 of them.
LOADED = """mul.wide.u32 %rd2, %r0, 8; add.s64 %rd2, %rd0, %rd2; ld.global.u64 %rd3, [%rd2]; ld.global.u64 %rd4, [%rd2+256];
ld.global.u32 %r9, [%rd2+512];"""
FIRST, SECOND = (DATA[64 * at : 64 * at + 64].view(np.uint64) for at in (0, 1))
THIRD = DATA[128:192:2].astype(np.uint64)
ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def stored(*registers: str) -> str:
    """Stores both halves of registers."""
    text = ""
    for at, register in enumerate(registers):
        text += f"mov.b64 {{%r20, %r21}}, {register};"
        text += f"st.global.u32 [%rd1+{256 * at}], %r20; st.global.u32 [%rd1+{256 * at + 128}], %r21;"
    return text


def halves(*values: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
    return [
        (value >> np.uint64(32 * half) & np.uint64(0xFFFFFFFF)).astype(np.int64)
        for value in values
        for half in (0, 1)
    ]


def made(both: Both) -> Counter[str]:
    assert both.made is not None
    return Counter(item.opcode for item in both.made.kernel.instructions)


@pytest.mark.parametrize(
    ("text", "expected", "left"),
    [
        # a mask without upper half, which then is zero
        ("and.b64 %rd5, %rd3, 1020;", FIRST & np.uint64(1020), {"and.b32": 1}),
        ("and.b64 %rd5, %rd3, -4294967296;", FIRST & np.uint64(0xFFFFFFFF00000000), {}),
        ("and.b64 %rd5, %rd3, -4294967041;", FIRST & np.uint64(0xFFFFFFFF000000FF), {"and.b32": 1}),
        ("or.b64 %rd5, %rd3, 255;", FIRST | np.uint64(255), {"or.b32": 1}),
        ("xor.b64 %rd5, %rd3, -1;", ~FIRST, {"not.b32": 2}),
        ("not.b64 %rd5, %rd3;", ~FIRST, {"not.b32": 2}),
        ("xor.b64 %rd5, %rd3, %rd4;", FIRST ^ SECOND, {"xor.b32": 2}),
        # shifts
        ("shr.u64 %rd5, %rd3, 0;", FIRST, {}),
        ("shr.u64 %rd5, %rd3, 7;", FIRST >> np.uint64(7), {"shf.r.wrap.b32": 1, "shr.u32": 1}),
        ("shr.u64 %rd5, %rd3, 32;", FIRST >> np.uint64(32), {"shr.u32": 0}),
        ("shr.u64 %rd5, %rd3, 40;", FIRST >> np.uint64(40), {"shr.u32": 1}),
        ("shr.u64 %rd5, %rd3, 64;", FIRST & np.uint64(0), {}),
        ("shr.s64 %rd5, %rd3, 7;", (FIRST.view(np.int64) >> 7).view(np.uint64), {"shf.r.wrap.b32": 1, "shr.s32": 1}),
        ("shr.s64 %rd5, %rd3, 40;", (FIRST.view(np.int64) >> 40).view(np.uint64), {"shr.s32": 2}),
        ("shr.s64 %rd5, %rd3, 99;", (FIRST.view(np.int64) >> 63).view(np.uint64), {"shr.s32": 2}),
        ("shl.b64 %rd6, %rd3, 9; or.b64 %rd5, %rd6, 1;",
         FIRST << np.uint64(9) | np.uint64(1), {"shf.l.wrap.b32": 1, "shl.b32": 1, "or.b32": 1}),
        ("shl.b64 %rd6, %rd3, 33; or.b64 %rd5, %rd6, 1;", FIRST << np.uint64(33) | np.uint64(1), {"shl.b32": 1, "or.b32": 0}),
        ("and.b64 %rd6, %rd3, 255; shl.b64 %rd7, %rd6, 28; or.b64 %rd5, %rd7, %rd4;",
         (FIRST & np.uint64(255)) << np.uint64(28) | SECOND,
         {"and.b32": 1, "shl.b32": 1, "shr.u32": 1, "or.b32": 2}),
        # numbers of 32 bits
        ("cvt.u64.u32 %rd6, %r9; and.b64 %rd5, %rd6, 4095;", THIRD & np.uint64(4095), {"and.b32": 1}),
        ("cvt.s64.s32 %rd6, %r9; or.b64 %rd5, %rd6, 3;",
         (THIRD.astype(np.uint32).view(np.int32).astype(np.int64) | 3).view(np.uint64), {"or.b32": 1, "shr.s32": 1}),
        ("cvt.u16.u32 %h1, %r9; cvt.s64.s16 %rd6, %h1; xor.b64 %rd5, %rd6, 1;",
         (THIRD.astype(np.uint16).view(np.int16).astype(np.int64) ^ 1).view(np.uint64), {"xor.b32": 1}),
        ("mov.b64 %rd6, {%r9, %r0}; not.b64 %rd5, %rd6;", ~(THIRD | LANES.astype(np.uint64) << np.uint64(32)), {"not.b32": 2}),
        # bits that are inserted in one half, and across both
        ("bfi.b64 %rd5, %rd3, %rd4, 4, 9;", SECOND & ~np.uint64(511 << 4) | (FIRST & np.uint64(511)) << np.uint64(4), {"bfi.b32": 1}),
        ("bfi.b64 %rd5, %rd3, %rd4, 40, 24;",
         SECOND & np.uint64((1 << 40) - 1) | (FIRST & np.uint64((1 << 24) - 1)) << np.uint64(40), {"bfi.b32": 1}),
        ("bfi.b64 %rd6, %rd3, %rd4, 30, 9; not.b64 %rd5, %rd6;",
         ~(SECOND & ~np.uint64(511 << 30) | (FIRST & np.uint64(511)) << np.uint64(30)), {"bfi.b64": 1}),
        # choices between constants
        ("setp.lt.u32 %p1, %r0, 9; selp.b64 %rd6, 256, 0, %p1; or.b64 %rd5, %rd6, %rd3;",
         FIRST | np.where(LANES < 9, 256, 0).astype(np.uint64),
         {"selp.b32": 1, "or.b32": 1}),
        # bits that are counted
        ("and.b64 %rd6, %rd3, 65535; popc.b64 %r2, %rd6; cvt.u64.u32 %rd5, %r2;",
         np.bitwise_count(FIRST & np.uint64(65535)).astype(np.uint64), {"popc.b32": 1, "add.s32": 0}),
        ("popc.b64 %r2, %rd3; cvt.u64.u32 %rd5, %r2;", np.bitwise_count(FIRST).astype(np.uint64), {"popc.b32": 2, "add.s32": 1}),
        ("or.b64 %rd6, %rd3, -4294967296; popc.b64 %r2, %rd6; cvt.u64.u32 %rd5, %r2;",
         np.bitwise_count(FIRST | np.uint64(0xFFFFFFFF00000000)).astype(np.uint64),
         {"popc.b32": 1, "add.s32": 1}),
        # of which only the lower half is needed
        ("add.s64 %rd6, %rd3, %rd4; cvt.u32.u64 %r2, %rd6; cvt.u64.u32 %rd5, %r2;",
         (FIRST + SECOND) & np.uint64(0xFFFFFFFF), {"add.s32": 1, "add.s64": 2}),
        ("mad.lo.s64 %rd6, %rd3, %rd4, 5; cvt.u16.u64 %h1, %rd6; cvt.u64.u16 %rd5, %h1;",
         (FIRST * SECOND + np.uint64(5)) & np.uint64(65535), {"mad.lo.s32": 1}),
        ("mul.wide.u32 %rd6, %r9, %r9; sub.s64 %rd7, 3, %rd6; cvt.u32.u64 %r2, %rd7; cvt.u64.u32 %rd5, %r2;",
         (np.uint64(3) - THIRD * THIRD) & np.uint64(0xFFFFFFFF), {"mul.lo.s32": 1, "sub.s32": 1, "mul.wide.u32": 2}),
        # of which both are
        ("and.b64 %rd6, %rd3, 255; add.s64 %rd5, %rd6, %rd4;", (FIRST & np.uint64(255)) + SECOND, {"and.b32": 1, "add.s64": 3}),
        # comparisons of one half
        ("and.b64 %rd6, %rd3, 255; setp.lt.u64 %p1, %rd6, 99; selp.u64 %rd5, 1, 2, %p1;",
         np.where((FIRST & np.uint64(255)) < 99, 1, 2).astype(np.uint64), {"setp.lt.u32": 1}),
        ("and.b64 %rd6, %rd3, -4294967296; setp.eq.s64 %p1, %rd6, 0; selp.u64 %rd5, 1, 2, %p1;",
         np.where(FIRST >> np.uint64(32), 2, 1).astype(np.uint64), {"setp.eq.u32": 1}),
        ("or.b64 %rd6, %rd3, -9223372036854775808; setp.lt.s64 %p1, %rd6, 0; selp.u64 %rd5, 1, 2, %p1;",
         np.full(32, 1, np.uint64), {"setp.lt.s64": 1}),
    ],
)  # fmt: skip
def test_operations(text: str, expected: NDArray[np.uint64], left: dict[str, int]) -> None:
    """``left``: how many of some instructions there are then."""
    both = run(LOADED + text + stored("%rd5"), words=2, rewrite=halved)
    both.check(halves(expected))
    opcodes = made(both)
    assert {name: opcodes[name] for name in left} == left
    assert not [
        name
        for name in opcodes
        if name.endswith(".b64") and name.split(".")[0] in ("and", "or", "xor", "not", "popc")
    ]


def test_a_value_that_is_needed_whole_is_put_together_once_for_each_use() -> None:
    body = "xor.b64 %rd5, %rd3, %rd4; add.s64 %rd6, %rd5, 1; sub.s64 %rd7, %rd5, %rd6;"
    both = run(LOADED + body + stored("%rd5", "%rd6", "%rd7"), words=6, rewrite=halved)
    value = FIRST ^ SECOND
    both.check(halves(value, value + np.uint64(1), np.full(32, ONES)))


def test_what_predicates_set_keeps_its_old_value_elsewhere() -> None:
    body = """setp.lt.u32 %p1, %r0, 20; setp.lt.u32 %p2, %r0, 10; and.b64 %rd5, %rd3, 65535; @%p1 xor.b64 %rd5, %rd4, %rd3;
    @!%p2 add.s64 %rd5, %rd5, %rd5; @%p2 shr.u64 %rd5, %rd5, 3;"""
    both = run(LOADED + body + stored("%rd5"), words=2, rewrite=halved)
    value = np.where(LANES < 20, FIRST ^ SECOND, FIRST & np.uint64(65535))
    both.check(halves(np.where(LANES < 10, value >> np.uint64(3), value + value)))


def test_a_half_is_no_constant_if_another_path_sets_another_one() -> None:
    """The upper half of %rd5 is zero in front of the loop, and not behind its first iteration."""
    body = "shl.b64 %rd6, %rd5, 5; xor.b64 %rd5, %rd6, %rd3; add.u32 %r2, %r2, 1;"
    before = LOADED + "mov.u32 %r2, 0; mov.b64 %rd5, 77;"
    both = run(looped(body, "setp.lt.u32 %p1, %r2, %r1;", before, stored("%rd5")), 6, words=2, rewrite=halved)
    value = np.full(32, 77, np.uint64)
    for _ in range(6):
        value = value << np.uint64(5) ^ FIRST
    both.check(halves(value))


def test_constants_live_through_loops() -> None:
    """The upper half stays zero, and is neither shifted nor combined."""
    body = "shr.u64 %rd6, %rd5, 1; xor.b64 %rd5, %rd6, 255; add.u32 %r2, %r2, 1;"
    before = LOADED + "mov.u32 %r2, 0; and.b64 %rd5, %rd3, 65535;"
    both = run(looped(body, "setp.lt.u32 %p1, %r2, %r1;", before, stored("%rd5")), 6, words=2, rewrite=halved)
    value = FIRST & np.uint64(65535)
    for _ in range(6):
        value = value >> np.uint64(1) ^ np.uint64(255)
    both.check(halves(value))
    assert made(both)["shf.r.wrap.b32"] == 0 and made(both)["xor.b32"] == 1


@pytest.mark.parametrize(
    ("test", "opcode"),
    [
        ("cvt.u64.u32 %rd6, %r9; setp.lt.u64 %p1, %rd6, 2147483648;", "setp.lt.u32"),
        ("cvt.u64.u32 %rd6, %r9; setp.lt.s64 %p1, %rd6, 2147483648;", "setp.lt.u32"),
        ("mov.b64 %rd7, 0; mov.b64 {%r2, %r3}, %rd3; mov.b64 %rd6, %rd3; setp.ne.s64 %p1, %rd6, %rd7;", ""),
    ],
)
def test_comparisons_alone(test: str, opcode: str) -> None:
    """One of lower halves is written though nothing else is in halves; of one with unknown halves nothing is."""
    both = run(LOADED + test + "selp.u32 %r4, 1, 2, %p1; st.global.u32 [%rd1], %r4;", rewrite=halved)
    both.check([np.where(THIRD < 2**31, 1, 2) if opcode else np.full(32, 1)])
    assert (both.made is not None and made(both)[opcode] == 1) if opcode else both.made is None


def test_addresses_of_32_bits() -> None:
    """In shared and local memory; a global access needs the whole index."""
    body = """.local .align 8 .b8 room[256]; .reg .b64 %a<4>; mov.u64 %a0, room; mov.u64 %a1, tile; and.b32 %r3, %r0, 31;
    mul.wide.u32 %rd5, %r3, 8; add.s64 %a2, %a0, %rd5; st.local.u64 [%a2], %rd3; add.s64 %a3, %a1, %rd5; st.shared.u64 [%a3+8], %rd4;
    ld.local.u64 %rd6, [%a2]; ld.shared.u64 %rd7, [%a3+8]; add.s64 %rd8, %rd0, %rd5; ld.global.u64 %rd9, [%rd8+256];"""
    both = run(LOADED + body + stored("%rd6", "%rd7", "%rd9"), words=6, rewrite=halved)
    both.check(halves(FIRST, SECOND, SECOND))
    # of the sums those of two pointers and one index are left, and the product is computed for both widths
    assert made(both)["add.s64"] == 3 and made(both)["add.s32"] == 2 and made(both)["mul.wide.u32"] == 3


def test_addresses_in_constant_memory() -> None:
    """``nvcc`` masks an index to look up in a table in 64 bits."""
    table = """mov.u64 %rd5, table; shr.u32 %r3, %r9, 14; cvt.u64.u32 %rd6, %r3; and.b64 %rd7, %rd6, 124; add.s64 %rd8, %rd5, %rd7;
    ld.const.u32 %r4, [%rd8+4];"""
    variables = f".const .align 4 .b32 table[33] = {{{', '.join(str(7 * at) for at in range(33))}}};\n"
    both = run(LOADED + table + "st.global.u32 [%rd1], %r4;", functions=variables, rewrite=halved)
    both.check([7 * ((THIRD.astype(np.int64) >> 16 & 31) + 1)])
    assert made(both)["and.b64"] == 0 and made(both)["add.s64"] == 2 and made(both)["and.b32"] == 1


OPERATIONS: dict[str, Callable[[NDArray[np.uint64], NDArray[np.uint64]], NDArray[np.uint64]]] = {
    "and.b64": lambda one, other: one & other,
    "or.b64": lambda one, other: one | other,
    "xor.b64": lambda one, other: one ^ other,
    "add.s64": lambda one, other: one + other,
    "sub.s64": lambda one, other: one - other,
    "mul.lo.s64": lambda one, other: one * other,
}
CONSTANTS = (0, 1, 255, 0xFFFFFFFF, -1, -256, -4294967296, 0x0F0F0F0F0F0F0F0F, 1 << 40)


def random_lines(choices: random.Random, values: _Values, lines: int) -> str:
    """Random operations, with their results by NumPy in ``values``."""
    text = ""
    full = np.uint64(0xFFFFFFFFFFFFFFFF)
    for _ in range(lines):
        target = f"%rd{choices.randrange(8) + 5}"
        source = f"%rd{choices.randrange(10) + 3}"
        one = values[source]
        guard, holds = "", np.ones(32, bool)
        if choices.randrange(4) == 0:
            bound = choices.randrange(32)
            text += f"setp.lt.u32 %p1, %r0, {bound};\n"
            guard, holds = "@%p1 ", bound > LANES
        kind = choices.randrange(9)
        if kind < 4:
            name = list(OPERATIONS)[choices.randrange(len(OPERATIONS))]
            if choices.randrange(2):
                constant = CONSTANTS[choices.randrange(len(CONSTANTS))]
                other, operand = np.full(32, constant & int(full), np.uint64), str(constant)
            else:
                operand = f"%rd{choices.randrange(10) + 3}"
                other = values[operand]
            result = OPERATIONS[name](one, other)
            text += f"{guard}{name} {target}, {source}, {operand};\n"
        elif kind < 6:
            amount = choices.randrange(70)
            name = ("shl.b64", "shr.u64", "shr.s64")[choices.randrange(3)]
            by = np.uint64(min(amount, 63))
            if name == "shr.s64":
                result = (one.view(np.int64) >> by.astype(np.int64)).view(np.uint64)
            else:
                result = (one << by if name == "shl.b64" else one >> by) * np.uint64(amount < 64)
            text += f"{guard}{name} {target}, {source}, {amount};\n"
        elif kind == 6:
            text += f"cvt.u32.u64 %r2, {source}; {guard}cvt.{('u64.u32', 's64.s32')[choices.randrange(2)]} {target}, %r2;\n"
            low = (one & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            signed = text.rstrip().rpartition("cvt.")[2].startswith("s64")
            result = low.view(np.int32).astype(np.int64).view(np.uint64) if signed else low.astype(np.uint64)
        elif kind == 7:
            operand = f"%rd{choices.randrange(10) + 3}"
            bound = choices.randrange(1 << 16)
            text += (
                f"setp.gt.u64 %p2, {source}, {bound}; {guard}selp.b64 {target}, {operand}, {bound}, %p2;\n"
            )
            result = np.where(one > np.uint64(bound), values[operand], np.uint64(bound))
        else:
            text += f"popc.b64 %r2, {source}; {guard}mov.b64 {target}, {{%r2, %r0}};\n"
            result = np.bitwise_count(one).astype(np.uint64) | LANES.astype(np.uint64) << np.uint64(32)
        values[target] = np.where(holds, result, values[target])
    return text


@pytest.mark.parametrize("seed", range(12 * LOOPS))
def test_random_operations(seed: int) -> None:
    """Of 60 in a row, some under predicates."""
    choices = random.Random(7000 + seed)
    values = {"%rd3": FIRST, "%rd4": SECOND}
    start = LOADED
    for at in range(5, 13):
        values[f"%rd{at}"] = np.full(32, CONSTANTS[at - 5] & 0xFFFFFFFFFFFFFFFF, np.uint64)
        start += f"mov.b64 %rd{at}, {CONSTANTS[at - 5]};\n"
    text = random_lines(choices, values, 60)
    results = [f"%rd{at}" for at in range(5, 13)]
    for rewrite in (halved, whole):
        both = run(start + text + stored(*results), words=16, rewrite=rewrite)
        both.check(halves(*(values[one] for one in results)))
        assert both.made is not None


def test_nothing_is_written_without_reason() -> None:
    body = "mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd0, %rd5; ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd1], %r2;"
    both = run(body, rewrite=halved)
    assert both.made is None and count(both, "add.s64", made=False) == 2


#: As nvcc writes it: each register is set once.
LIFE = """
.reg .b64 %lNEXT; { .reg .b64 %c<8>; .reg .b32 %count; .reg .pred %q; shr.u64 %c0, %rd5, BIT; and.b64 %c1, %c0, 7;
  shl.b64 %c2, %rd6, 3; and.b64 %c3, %c2, 56; or.b64 %c4, %c1, %c3;
  popc.b64 %count, %c4; setp.eq.s32 %q, %count, 3; selp.b64 %c5, MASK, 0, %q;
  or.b64 %lNEXT, %lLAST, %c5; }
"""
TABLES = """
{ .reg .b64 %c<5>; .reg .b32 %s<3>; shr.u32 %s0, %r40, SHIFT; cvt.u64.u32 %c0, %s0; and.b64 %c1, %c0, 1020; mov.u64 %c2, table;
  add.s64 %c3, %c2, %c1; ld.const.u32 %s1, [%c3]; xor.b32 %r40, %s1, %r40; }
"""
KERNELS = {
    "life": ".reg .b64 %l0; mov.b64 %l0, 0;" + "".join(
        LIFE.replace("BIT", str(at)).replace("MASK", str(1 << at)).replace("NEXT", str(at)).replace("LAST", str(at - 1))
        for at in range(1, 33)) + "mov.b64 %rd7, %l32;",
    "tables": "cvt.u32.u64 %r40, %rd5;" + "".join(TABLES.replace("SHIFT", str(at % 24)) for at in range(40))
              + "cvt.u64.u32 %rd7, %r40;",
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize("architecture", [75, 80, 90])
@pytest.mark.parametrize("name", KERNELS)
def test_as_many_instructions_as_the_assembler_has(name: str, architecture: int) -> None:
    """Integer instructions, without copies, in kernels as people's: a game of life by bits, and look-ups in tables of constants."""
    text = (
        head("8.0", f"sm_{architecture}")
        + ".const .align 4 .b8 table[1024];\n"
        + ".visible .entry k(.param .u64 a)\n{ .reg .b32 %r<64>; .reg .b64 %rd<16>; ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x;"
        + "mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; ld.global.u64 %rd5, [%rd3]; ld.global.u64 %rd6, [%rd3+8];"
        + KERNELS[name] + "st.global.u64 [%rd3], %rd7; ret; }\n"
    )  # fmt: skip
    parsed = ge.parse(text, path="k.ptx")
    listing = disassemble(assemble(parsed["k"], f"sm_{architecture}"))
    program, origins = rewritten(program_of(parsed["k"]), architecture)
    spaces = tuple(site.space for site in program.sites)
    code = code_of(program, architecture, spaces, Allocation(253), LATENCIES, origins, LEVELS)
    kinds = (
        "LOP3",
        "SHF",
        "SEL",
        "POPC",
        "ISETP",
        "IADD3",
        "LEA",
        "PRMT",
        "LDC",
        "IMAD.SHL",
        "IMAD.IADD",
        "IMAD.WIDE",
        "VIADD",
    )

    def counted(opcodes: list[str]) -> int:
        return sum(opcode.startswith(kinds) for opcode in opcodes)

    ours = counted([item.opcode for item in code.graph.listing.instructions])
    theirs = counted([item.opcode for item in listing.instructions])
    assert theirs > 40
    assert ours == pytest.approx(theirs, rel=0.05)
