"""Stall counts and yields, by hand and against the machine code of an assembler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.targets import sm_number
from gpuperf_engine.sass.assemble import assemble
from gpuperf_engine.sass.disassemble import disassemble
from gpuperf_engine.sass.listing import NEVER, Decoded
from gpuperf_engine.sass.registers import PREDICATES, Accesses, accesses_of
from gpuperf_engine.sass.sm.operations import unit_of_opcode
from gpuperf_engine.timing.expanded.stalls import stalls_of
from tests.support import needs_assembler

from .machine_code import code

EXAMPLES = Path(__file__).parents[3] / "examples"
UNITS = {
    "LDS": "lsu",
    "STG": "lsu",
    "FFMA": "fma",
    "IADD3": "alu",
    "ISETP": "alu",
    "MUFU": "xu",
    "BRA": "cbu",
}
#: Instructions that end a basic block.
ENDS = frozenset(("BRA", "EXIT", "BSYNC", "CALL", "RET", "BRX", "BAR", "WARPSYNC"))


def stalls(*instructions: str) -> list[tuple[int, bool]]:
    """Of instructions as ``opcode written read …``, registers as numbers, predicates as ``P0``, ``-`` for none."""

    def number(text: str) -> int:
        return PREDICATES + int(text[1:]) if text[0] == "P" else int(text)

    opcodes, accesses = list[str](), list[Accesses]()
    for opcode, written, *read in map(str.split, instructions):
        opcodes.append(opcode)
        writes = () if written == "-" else (number(written),)
        accesses.append(Accesses(tuple(map(number, read)), writes, (), ()))
    return stalls_of(opcodes, accesses, lambda opcode: UNITS[opcode.partition(".")[0]], lambda _: 4.0)


def test_accesses_to_memory_are_four_clocks_apart() -> None:
    assert stalls("LDS.128 1 0", "LDS 2 0", "STG - 0 5") == [(4, False), (4, False), (1, False)]


def test_what_is_between_two_accesses_waits_for_the_second() -> None:
    """As ptxas 13.0 stalls ``LDS FFMA LDS FFMA`` in the sums of a convolution, in which each product adds to the one before."""
    found = stalls("LDS 5 0", "FFMA 9 1 9", "LDS 6 0", "FFMA 9 2 9", "LDS 7 0")
    assert found == [(1, False), (3, True), (1, False), (3, True), (1, False)]
    found = stalls("LDS 5 0", "FFMA 9 1 9", "FFMA 8 1 8", "LDS 6 0")
    assert found == [(1, False), (1, False), (2, False), (1, False)]


def test_results_of_fixed_latency_are_waited_for() -> None:
    assert stalls("FFMA 9 1", "FFMA 8 9") == [(4, True), (1, False)]
    assert stalls("FFMA 9 1", "IADD3 2 3", "FFMA 8 9") == [(1, False), (3, True), (1, False)]
    # by scoreboards, not by stall counts
    assert stalls("MUFU 9 1", "FFMA 8 9") == [(1, False)] * 2
    assert stalls("FFMA 9 1", "LDS 9 0", "FFMA 8 9") == [(1, False)] * 3


def test_branches_wait_for_predicates() -> None:
    assert stalls("ISETP P0 1", "BRA - P0") == [(13, True), (5, False)]
    assert stalls("ISETP P0 1", "IADD3 2 3", "BRA - P0") == [(1, False), (12, True), (5, False)]
    assert stalls("ISETP P0 1", "FFMA 2 P0") == [(4, True), (1, False)]


def test_an_empty_block_has_none() -> None:
    assert stalls() == []


def test_instructions_carry_them() -> None:
    """Of the listing of a kernel, not only of the rule."""
    body = """mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; mov.u32 %r4, tile; add.u32 %r5, %r4, %r3; mov.f32 %f0, 0f00000000;
    """ + "".join(
        f"ld.shared.f32 %f{at}, [%r5+{128 * at}]; fma.rn.f32 %f0, %f{at}, %f{at}, %f0;\n"
        for at in range(1, 33)
    )
    made = code(body + "st.global.f32 [%rd1], %f0;", architecture=86)
    items = [item for item in made.graph.listing.instructions if item.base in ("LDS", "FFMA")]
    assert [item.base for item in items] == ["LDS"] * 10 + ["FFMA", "LDS"] * 22 + ["FFMA"] * 10
    between = [item.control for item in items[10:54]]
    assert [(one.stall, one.yields) for one in between] == [(3, True), (1, False)] * 22
    assert {item.control.stall for item in items[:9]} == {4}


# -- against an assembler ----------------------------------------------------------------------------------------------


def assembled(architecture: int) -> Iterator[list[Decoded]]:
    """The basic blocks of the kernels of the examples, without the accesses of no lane that ptxas inserts."""
    for path in sorted(EXAMPLES.glob("kernels/*.ptx")):
        module = ge.parse(path.read_text(encoding="utf-8"), path=path.name)
        if module.target.endswith("a") or sm_number(module.target) > architecture:
            continue
        for kernel in module.kernels.values():
            block: list[Decoded] = []
            for item in disassemble(assemble(kernel, f"sm_{architecture}")).instructions:
                if item.predicate not in NEVER:
                    block.append(item)
                if item.base in ENDS:
                    yield block
                    block = []


@needs_assembler
@pytest.mark.parametrize("architecture", [80, 86, 90])
def test_the_assembler_stalls_likewise(architecture: int) -> None:
    """Accesses to memory are four clocks apart; of the instructions of fixed latency behind which three clocks or more pass here nine
    tenths are ones behind which it has the warp yield, and three quarters of those are found, apart from those with two clocks. It
    knows more: latencies by operand, and units that take two clocks."""
    told: Counter[tuple[bool, bool]] = Counter()
    apart: Counter[bool] = Counter()
    for block in assembled(architecture):
        found = stalls_of(
            [item.opcode for item in block],
            [accesses_of(item) for item in block],
            lambda opcode: unit_of_opcode(opcode, architecture),
            lambda _: 4.0,
        )
        units = [unit_of_opcode(item.opcode, architecture) for item in block]
        for item, unit, following, (_, yields) in zip(block, units, units[1:], found):
            if unit == following == "lsu":
                apart[item.control.stall >= 4] += 1
            if unit in ("fma", "alu", "imad", "fp16") and item.control.stall != 2:
                told[yields, item.control.yields] += 1
    assert apart[True] > 400 and not apart[False]
    assert told[True, True] > 9 * told[True, False]
    assert told[True, True] > 3 * told[False, True]
