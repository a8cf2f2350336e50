"""Repeated results, what is moved out of loops, and all rewriting together, against the kernels as they are and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.sass.run.writer import NotRun
from gpuperf_engine.simt.program import Program, program_of
from gpuperf_engine.timing.expanded.barriers import with_constants
from gpuperf_engine.timing.expanded.hoisting import hoisted
from gpuperf_engine.timing.expanded.launch import rewritten
from gpuperf_engine.timing.expanded.opcodes import pieces_of
from gpuperf_engine.timing.expanded.repeats import without_repeats
from gpuperf_engine.timing.expanded.rewriting import Rewritten
from tests.engine.random_kernels import Seeded

from .rewritten import LANES, LOOPS, Both, looped, run
from .test_unrolling import random_loop

STORE = "st.global.u32 [%rd1], %r9;"


def hoisted_from_all(program: Program) -> Rewritten | None:
    return hoisted(program, {item for block in program.blocks for item in block.instructions})


def whole(program: Program) -> Rewritten | None:
    made, origins = rewritten(program, 86)
    if not origins:
        return None
    return Rewritten(made.kernel, tuple(origins[item] for item in made.kernel.instructions))


def count(both: Both, opcode: str, *, made: bool = True) -> int:
    kernel = both.made.kernel if made and both.made is not None else both.record.program.kernel
    return sum(item.opcode == opcode for item in kernel.instructions)


def test_a_result_is_computed_once() -> None:
    body = """
    add.u32 %r2, %r0, %r1; mul.lo.u32 %r3, %r2, 5; cvt.u16.u32 %h0, %r3; cvt.u32.u16 %r4, %h0;
    mul.lo.u32 %r5, %r2, 5; cvt.u16.u32 %h1, %r5; cvt.u32.u16 %r6, %h1;
    mad.lo.u32 %r9, %r4, 3, %r6;"""
    both = run(body + STORE, 7, rewrite=without_repeats)
    both.check([5 * (LANES + 7) * 4])
    # what follows from the same is the same, too
    assert [count(both, name) for name in ("mul.lo.u32", "cvt.u16.u32", "cvt.u32.u16")] == [1, 1, 1]


def test_parts_of_a_register_are_other_results_than_all_of_it() -> None:
    """``mov`` writes both halves of a number, one of them, or all of it."""
    body = """
    mul.wide.u32 %rd3, %r0, 16777259; mov.b64 {%r2, %r3}, %rd3; mov.b64 {%r4, _}, %rd3; mov.b64 {_, %r5}, %rd3; mov.b64 %rd4, %rd3;
    mov.b64 {%r6, %r7}, %rd3; shl.b64 %rd5, %rd4, 3; cvt.u32.u64 %r8, %rd5; add.u32 %r9, %r2, %r3; add.u32 %r9, %r9, %r4;
    mad.lo.u32 %r9, %r5, 3, %r9; mad.lo.u32 %r9, %r6, 5, %r9; mad.lo.u32 %r9, %r7, 7, %r9; add.u32 %r9, %r9, %r8;"""
    both = run(body + STORE, rewrite=without_repeats)
    assert both.made is not None and count(both, "mov.b64") == 4
    low, high = (LANES * 16777259) & 0xFFFFFFFF, (LANES * 16777259) >> 32
    both.check([low * (1 + 1 + 5 + 8) + high * (1 + 3 + 7)])


def test_operands_that_change_give_other_results() -> None:
    body = """
    mov.u32 %r2, %r0; mul.lo.u32 %r3, %r2, 5; add.u32 %r2, %r2, 1; mul.lo.u32 %r4, %r2, 5;
    mad.lo.u32 %r9, %r3, 1000, %r4;"""
    both = run(body + STORE, rewrite=without_repeats)
    assert both.made is None
    both.check([5000 * LANES + 5 * LANES + 5])


def test_registers_that_are_set_again_keep_their_results() -> None:
    """The second product is used, then overwritten; the third is set in one of two branches."""
    body = """
    mul.lo.u32 %r2, %r0, 5; mul.lo.u32 %r3, %r0, 5; add.u32 %r9, %r2, %r3; mov.u32 %r3, 1; add.u32 %r9, %r9, %r3;
    setp.lt.u32 %p1, %r0, 9; mul.lo.u32 %r4, %r0, 5; @%p1 bra SET; bra.uni END;
    SET: mul.lo.u32 %r4, %r0, 7; END: mad.lo.u32 %r9, %r4, 1000, %r9;"""
    both = run(body + STORE, rewrite=without_repeats)
    both.check([1000 * np.where(LANES < 9, 7, 5) * LANES + 10 * LANES + 1])


def test_results_under_predicates_and_of_exchanges_are_kept_apart() -> None:
    body = """
    setp.lt.u32 %p1, %r0, 9; mov.u32 %r2, 1; mov.u32 %r3, 2; @%p1 add.u32 %r2, %r0, 7; @!%p1 add.u32 %r3, %r0, 7;
    shfl.sync.down.b32 %r4, %r0, 1, 31, -1; shfl.sync.down.b32 %r5, %r4, 1, 31, -1; shfl.sync.down.b32 %r6, %r0, 1, 31, -1;
    mad.lo.u32 %r9, %r2, 100, %r3; mad.lo.u32 %r9, %r5, 10000, %r9; add.u32 %r9, %r9, %r6;"""
    both = run(body + STORE, rewrite=without_repeats)
    assert both.made is None
    first, second = np.where(LANES < 9, LANES + 7, 1), np.where(LANES < 9, 2, LANES + 7)
    both.check([100 * first + second + 10000 * np.minimum(LANES + 2, 31) + np.minimum(LANES + 1, 31)])


def test_a_value_of_the_iteration_before_is_not_that_of_this_one() -> None:
    """%r4 is set behind its use, so that the two products of %r4 differ in each iteration."""
    body = "mul.lo.u32 %r5, %r4, 3; add.u32 %r4, %r0, %r2; mul.lo.u32 %r6, %r4, 3; add.u32 %r9, %r9, %r5; xor.b32 %r9, %r9, %r6;"
    both = run(
        looped(body + "add.u32 %r2, %r2, 1;", "setp.lt.u32 %p1, %r2, %r1;", "mov.u32 %r2, 0; mov.u32 %r4, 7; mov.u32 %r9, 0;", STORE),
        11, rewrite=without_repeats,
    )  # fmt: skip
    total, held = np.zeros(32, np.int64), np.full(32, 7, np.int64)
    for turn in range(11):
        total, held = total + 3 * held, LANES + turn
        total ^= 3 * held
    both.check([total])


def test_what_no_iteration_changes_is_computed_in_front() -> None:
    """Also if it depends on another such result; what the counter decides stays."""
    body = """
    mul.lo.u32 %r3, %r0, 12; xor.b32 %r4, %r3, 85; mul.lo.u32 %r5, %r2, 3; add.u32 %r6, %r4, %r5; add.u32 %r9, %r9, %r6;
    add.u32 %r2, %r2, 1;"""
    text = looped(body, "setp.lt.u32 %p1, %r2, %r1;", "mov.u32 %r2, 0; mov.u32 %r9, 0;", STORE)
    both = run(text, 6, rewrite=hoisted_from_all)
    both.check([6 * (12 * LANES ^ 85) + 3 * 15])
    assert both.made is not None
    kernel = both.made.kernel
    place = {item.opcode: item.index for item in kernel.instructions}
    start = kernel.labels["L"]
    assert place["xor.b32"] < start <= place["setp.lt.u32"]
    assert [item.index < start for item in kernel.instructions if item.opcode == "mul.lo.u32"] == [
        True,
        False,
    ]


def test_loops_that_are_entered_at_several_places_and_results_set_twice_stay() -> None:
    body = "mul.lo.u32 %r3, %r0, 12; add.u32 %r9, %r9, %r3; mul.lo.u32 %r3, %r0, 5; add.u32 %r9, %r9, %r3; add.u32 %r2, %r2, 1;"
    before = "mov.u32 %r2, 0; mov.u32 %r9, 0; setp.lt.u32 %p2, %r0, 9; @%p2 bra L; add.u32 %r9, %r9, 1;"
    both = run(looped(body, "setp.lt.u32 %p1, %r2, %r1;", before, STORE), 6, rewrite=hoisted_from_all)
    assert both.made is None
    both.check([6 * 17 * LANES + (LANES >= 9)])


def test_nested_loops_move_to_the_outermost() -> None:
    sums = "add.u32 %r9, %r9, %r3; add.u32 %r9, %r9, %r4; add.u32 %r2, %r2, 1;"
    inner = looped(
        f"mul.lo.u32 %r3, %r0, 12; mul.lo.u32 %r4, %r5, 3; {sums}",
        "setp.lt.u32 %p1, %r2, %r1;",
        "mov.u32 %r2, 0;",
    )
    before = "mov.u32 %r5, 0; mov.u32 %r9, 0; OUTER:"
    text = f"{before} {inner} add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra OUTER; {STORE}"
    both = run(text, 3, rewrite=hoisted_from_all)
    both.check([3 * 4 * 12 * LANES + 3 * 3 * 6])
    assert both.made is not None
    kernel = both.made.kernel
    first, second = (item.index for item in kernel.instructions if item.opcode == "mul.lo.u32")
    assert first < kernel.labels["OUTER"] <= second < kernel.labels["L"]


def test_barriers_with_constants_in_registers() -> None:
    """As inline assembly of CUTLASS has them; a number that the launch gives stays in its register, and is refused."""
    body = "mov.u32 %r10, 5; mov.u32 %r11, 32; bar.sync %r10, %r11; bar.sync 1, %r1; mad.lo.u32 %r9, %r0, 3, %r1;"
    both = run(body + STORE, 32, rewrite=with_constants)
    both.check([3 * LANES + 32])
    assert both.made is not None
    program = program_of(both.made.kernel)
    barriers = [item for item in both.made.kernel.instructions if item.opcode == "bar.sync"]
    first, second = ([getattr(one, "value", None) for one in item.operands] for item in barriers)
    assert first == [5, 32] and second == [1, None]
    assert with_constants(program) is None
    assert [piece.opcode for piece in pieces_of(barriers[0], 90)] == ["BAR.SYNC.DEFER_BLOCKING 0x5, 0x20"]
    with pytest.raises(NotRun, match="numbers or counts in registers"):
        pieces_of(barriers[1], 90)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("bound", ["8", "%r1"])
def test_loops_with_barriers_and_matrices(bound: str, barrier: bool) -> None:
    """Each lane adds what the one beside it has stored, or what ``ldmatrix`` gives it: words 4 · (lane / 4) + lane % 4 of the tile."""
    access = (
        "st.shared.u32 [%r10], %r9; bar.sync 0; ld.shared.u32 %r3, [%r11]; bar.sync 0;"
        if barrier
        else "st.shared.u32 [%r10], %r9; bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r12];"
    )
    body = f"{access} mad.lo.u32 %r9, %r9, 3, %r3; add.u32 %r2, %r2, 1;"
    before = """
    mov.u32 %r5, tile; mad.lo.u32 %r10, %r0, 4, %r5; xor.b32 %r6, %r0, 1; mad.lo.u32 %r11, %r6, 4, %r5; and.b32 %r7, %r0, 7;
    mad.lo.u32 %r12, %r7, 16, %r5; mov.u32 %r2, 0; add.u32 %r9, %r0, 1;"""
    both = run(looped(body, f"setp.lt.u32 %p1, %r2, {bound};", before, STORE), 8, rewrite=whole)
    total = LANES + 1
    for _ in range(8):
        total = (3 * total + (total[LANES ^ 1] if barrier else total)) & 0xFFFFFFFF
    both.check([total])
    # lanes that wait for one another keep a loop as it is, unless all warps wait
    branches = count(both, "bra")
    if barrier:
        assert branches == 0 if bound == "8" else branches > 1
    else:
        assert branches == 1


@pytest.mark.parametrize("seed", range(3 * LOOPS))
def test_random_loops(seed: int) -> None:
    """Of 12 loops each."""
    choices = Seeded(2000 + seed)
    fill = looped("st.shared.u32 [%r5], %r2; add.u32 %r5, %r5, 4; add.u32 %r2, %r2, 1;", "setp.lt.u32 %p1, %r2, 2048;",
                  "mov.u32 %r2, 0; mov.u32 %r5, tile; mov.u32 %r10, %r0;")  # fmt: skip
    text = fill + "\n".join(random_loop(choices, number) for number in range(12))
    for rewrite in (without_repeats, hoisted_from_all, whole):
        both = run(text, 0, 12, rewrite=rewrite)
        assert both.results.std(axis=1).min() > 0
        both.check()
