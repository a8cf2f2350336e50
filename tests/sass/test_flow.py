"""Executions of machine code from counts of PTX: small kernels beside machine code by hand, whose executions are counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.assemble import instructions_of
from gpuperf_engine.sass.counts import ptx_counts
from gpuperf_engine.sass.flow import Executions, executions
from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.simplex import LinearProgram, _Tableau
from tests.sass.listings import written
from tests.support import head

HEAD = head("7.0", "sm_80") + (
    ".visible .entry k(.param .u64 data, .param .u32 n)\n{\n.reg .pred %p, %q; .reg .b32 %t, %n, %i; .reg .f32 %x, %y; .reg .b64 %a;\n"
)
#: 1 to 3 of every kernel
START = "ld.param.u64 %a, [data];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\n"


def both(
    ptx: str, machine: str, *, grid: int, block: int, n: int = 0, function: str = ""
) -> tuple[Executions, Executions, ge.Profile]:
    """Executions by warps and by threads."""
    before, _, after = HEAD.partition(".visible")
    kernel = ge.parse(f"{before}{function}.visible{after}{START}{ptx}}}\n", path="k.ptx")["k"]
    device = ge.Device(memory_bytes=1 << 24)
    profile = device.launch(kernel, grid, block, [device.zeros(4096, np.float32), np.uint32(n)])
    graph = build_graph(written(f".function k\n{machine}"), "k")
    instructions = instructions_of(kernel)
    counts = ptx_counts(profile.records, instructions)
    threads = executions(graph, instructions, counts, threads=True)
    assert threads is not None
    warps = executions(graph, instructions, counts, threads=False, never=threads.never, most=threads.certain)
    assert warps is not None
    return warps, threads, profile


def determined(found: Executions) -> list[int]:
    assert (found.greatest, found.whole, found.unexplained) == (found.least, True, frozenset())
    return [found.blocks[index] for index in sorted(found.blocks)]


SIDES = """
setp.lt.u32 %p, %t, %n;
@%p bra FEW;
add.u32 %t, %t, 5;
bra.uni MEET;
FEW:
xor.b32 %t, %t, 3;
MEET:
st.global.u32 [%a], %t;
ret;
"""


def test_a_join_is_executed_by_each_part_of_a_warp() -> None:
    """Three warps: of the first 7 lanes take the branch, of the others none."""
    machine = """
    ISETP.LT P0, PT, R0, c[0x0][0x168], PT # 4
    BSSY B0, `(.L_out) # 5
    @P0 BRA `(.L_few)
    IADD3 R0, R0, 0x5, RZ # 6
    BRA `(.L_in) # 7
    .L_few:
    LOP3.LUT R0, R0, 0x3, RZ, 0x3c, !PT # 8
    .L_in:
    BSYNC B0 # 7
    .L_out:
    STG.E [R2.64], R0 # 9
    EXIT # 10
    """
    warps, threads, _ = both(SIDES, machine, grid=1, block=96, n=7)
    assert determined(warps) == [3, 3, 1, 4, 3]
    assert determined(threads) == [96, 89, 7, 96, 96]
    assert warps.least == 3 * 3 + 3 * 2 + 1 + 4 + 3 * 2


def test_a_branch_that_became_predicates_is_executed_by_all() -> None:
    machine = """
    ISETP.LT P0, PT, R0, c[0x0][0x168], PT # 4
    @!P0 IADD3 R0, R0, 0x5, RZ # 6
    @P0 LOP3.LUT R0, R0, 0x3, RZ, 0x3c, !PT # 8
    STG.E [R2.64], R0 # 9
    EXIT # 10
    """
    warps, threads, profile = both(SIDES, machine, grid=1, block=96, n=7)
    assert (determined(warps), determined(threads)) == ([3], [96])
    assert warps.least == 15 != profile.warp_instructions


def test_a_store_that_lost_its_guard_outweighs_what_was_moved_behind_it() -> None:
    """Three warps, 7 lanes of the first store: ten products, which all compute in PTX, were moved to where these go on."""
    ptx = (
        "setp.lt.u32 %p, %t, %n;\n"
        + "fma.rn.f32 %y, %x, %x, %y;\n" * 10
        + "@%p st.global.f32 [%a], %y;\nret;\n"
    )
    products = "".join(f"FFMA R1, R4, R4, R1 # {number}\n" for number in range(5, 15))
    machine = f"""
    ISETP.GE P0, PT, R0, c[0x0][0x168], PT # 4
    @P0 EXIT # 15
    {products}STG.E [R2.64], R1 # 15
    EXIT # 16
    """
    warps, threads, _ = both(ptx, machine, grid=1, block=96, n=7)
    assert [warps.blocks[index] for index in sorted(warps.blocks)] == [3, 1]
    assert [threads.blocks[index] for index in sorted(threads.blocks)] == [96, 7]


LOOP = """
mov.u32 %i, 0;
TURN:
ld.global.f32 %x, [%a];
fma.rn.f32 %y, %x, %x, %y;
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, %n;
@%p bra TURN;
st.global.f32 [%a+4], %y;
ret;
"""


def test_copies_of_an_unrolled_loop_share_its_count() -> None:
    """Eleven turns: two of the main loop's four and three single ones. What divides them so is not in the counts of PTX, but it is
    among the solutions. The addition is there once for four turns: it ties nothing."""
    machine = """
    IADD3 R4, R5, -0x3, RZ # 8
    ISETP.GE P0, PT, R5, 0x4, PT # 8
    @!P0 BRA `(.L_rest) # 8
    .L_main:
    LDG.E R0, [R2.64] # 5
    LDG.E R1, [R2.64] # 5
    LDG.E R6, [R2.64] # 5
    LDG.E R7, [R2.64] # 5
    FFMA R8, R0, R0, R8 # 6
    FFMA R8, R1, R1, R8 # 6
    FFMA R8, R6, R6, R8 # 6
    FFMA R8, R7, R7, R8 # 6
    IADD3 R9, R9, 0x4, RZ # 7
    ISETP.LT P0, PT, R9, R4, PT # 8
    @P0 BRA `(.L_main) # 8
    .L_rest:
    LOP3.LUT P0, R5, R5, 0x3, RZ, 0xc0, !PT # 8
    @!P0 BRA `(.L_end) # 8
    .L_one:
    LDG.E R0, [R2.64] # 5
    FFMA R8, R0, R0, R8 # 6
    IADD3 R9, R9, 0x1, RZ # 7
    ISETP.LT P0, PT, R9, R5, PT # 8
    @P0 BRA `(.L_one) # 8
    .L_end:
    STG.E [R2.64+0x4], R8 # 10
    EXIT # 11
    """
    warps, _, _ = both(LOOP, machine, grid=5, block=32, n=11)
    assert warps.least < 5 * (3 + 2 * 11 + 2 + 3 * 5 + 2) < warps.greatest
    assert {1, 3} <= warps.open and not warps.open & {0, 4}
    assert (warps.blocks[0], warps.blocks[2], warps.blocks[4]) == (5, 5, 5)
    assert warps.solutions is not None
    for main, single, fits in (
        (2, 3, True),
        (1, 7, True),
        (0, 11, True),
        (2, 4, False),
        (3, 0, False),
        (1, 3, False),
    ):
        blocks = {0: 5, 1: 5 * main, 2: 5, 3: 5 * single, 4: 5}
        assert warps.solutions.have(blocks) == fits, (main, single)
    assert not warps.solutions.have({**blocks, 4: 6}) and not warps.solutions.have({**blocks, 9: 1})


def test_what_was_moved_out_of_a_loop_is_outvoted() -> None:
    machine = """
    LDG.E R0, [R2.64] # 5
    S2R R5, SR_TID.X # 3
    MOV R1, c[0x0][0x168] # 2
    MOV R4, 0x0 # 4
    .L_turn:
    FFMA R8, R0, R0, R8 # 6
    IADD3 R9, R9, 0x1, RZ # 7
    ISETP.LT P0, PT, R9, R5, PT # 8
    @P0 BRA `(.L_turn) # 9
    STG.E [R2.64+0x4], R8 # 10
    EXIT # 11
    """
    warps, threads, _ = both(LOOP, machine, grid=2, block=64, n=9)
    assert [warps.blocks[index] for index in range(3)] == [4, 36, 4]
    assert [threads.blocks[index] for index in range(3)] == [128, 1152, 128]


def test_a_loop_that_nobody_enters_does_not_run() -> None:
    """Its flow would be conserved too: the way into it is that of the PTX branch."""
    ptx = "setp.ge.u32 %p, %t, %n;\n@%p bra DONE;\n" + LOOP.replace("ret;", "DONE:\nret;")
    machine = """
    ISETP.GE P0, PT, R0, c[0x0][0x168], PT # 4
    @P0 EXIT # 5
    ULDC.64 UR4, c[0x0][0x118]
    .L_turn:
    LDG.E R0, [R2.64] # 7
    FFMA R8, R0, R0, R8 # 8
    IADD3 R9, R9, 0x1, RZ # 9
    ISETP.LT P0, PT, R9, R5, PT # 10
    @P0 BRA `(.L_turn) # 11
    STG.E [R2.64+0x4], R8 # 12
    EXIT # 13
    """
    warps, threads, _ = both(ptx, machine, grid=1, block=96, n=40)
    assert determined(warps) == [3, 2, 80, 2]
    assert determined(threads) == [96, 40, 1600, 40]


def test_a_slow_path_is_a_range() -> None:
    """Whether a division takes it depends on operands: no count tells. The function has 3 instructions, the way to it 2."""
    machine = """
    FCHK P0, R0, R1 # 4
    FFMA R4, R0, R1, R2
    @!P0 BRA `(.L_fast)
    MOV R9, 0x60
    CALL.REL.NOINC `($__internal_0_$slow)
    .L_fast:
    STG.E [R2.64], R4 # 5
    EXIT # 6
    .function $__internal_0_$slow
    FMUL R4, R4, 4
    FMUL R4, R4, 0.25
    RET.REL.NODEC R2 `(k)
    """
    ptx = "div.rn.f32 %x, %y, %y;\nst.global.f32 [%a], %x;\nret;\n"
    warps, threads, _ = both(ptx, machine, grid=3, block=32)
    assert (threads.least, threads.greatest) == (96 * 5, 96 * (5 + 2 + 3))
    assert (warps.least, warps.whole) == (3 * 5, True)
    assert warps.blocks[0] == warps.blocks[2] == 3 and warps.blocks[1] == warps.blocks[3] == 0
    assert {1, 3} <= warps.open and threads.never == frozenset()


def test_sums_of_launches_are_counted_together() -> None:
    kernel = ge.parse(f"{HEAD}{START}{SIDES}}}\n", path="k.ptx")["k"]
    device = ge.Device(memory_bytes=1 << 24)
    data = device.zeros(64, np.float32)
    profiles = [device.launch(kernel, 1, block, [data, np.uint32(4)]) for block in (32, 64)]
    instructions = instructions_of(kernel)
    counts = ptx_counts(ge.add_profiles(profiles).records, instructions)
    assert (counts.warps, counts.threads) == (3, 96)
    branch = counts.of[5]
    assert (branch.warps, branch.threads, branch.diverged, branch.taken) == (3, 96, 2, 8)
    taken, other = counts.sides(5)
    assert (taken.threads, taken.warps, sorted(taken.numbers)) == (8, 2, [8])
    assert (other.threads, other.warps, sorted(other.numbers)) == (88, 3, [6, 7])
    assert counts.of[9].requests == 3


def test_profiles_without_counters_say_so() -> None:
    from dataclasses import replace

    kernel = ge.parse(f"{HEAD}{START}{SIDES}}}\n", path="k.ptx")["k"]
    device = ge.Device(memory_bytes=1 << 24)
    profile = device.launch(kernel, 1, 32, [device.zeros(8, np.float32), np.uint32(4)])
    with pytest.raises(ge.NotObserved, match="counters of 'k' are not in this profile"):
        ge.machine_code(replace(profile, records=()), "a100-sxm-80gb")


def program(*rows: tuple[dict[int, int], int], costs: list[float]) -> LinearProgram:
    linear = LinearProgram()
    for cost in costs:
        linear.variable(cost)
    for row, right in rows:
        linear.equal(row, right)
    return linear


def test_linear_programs() -> None:
    """x + y = 10, x + s = 4: every x to 4 costs nothing; with a cost of y it is 4."""
    rows: Any = ({0: 1, 1: 1}, 10), ({0: 1, 2: 1}, 4)
    free = program(*rows, costs=[0, 0, 0]).solve({0: 1})
    assert free is not None and (free.values, free.least, free.greatest, free.whole) == (
        [0, 10, 4],
        0,
        4,
        True,
    )
    assert program(*rows, costs=[0, 0, 0]).allows({0: 3}, 0) and not program(*rows, costs=[0, 0, 0]).allows(
        {0: 5}, 0
    )
    assert program(*rows, costs=[0, 1, 0]).allows({0: 3}, 7) and not program(*rows, costs=[0, 1, 0]).allows(
        {0: 3}, 6
    )
    bound = program(*rows, costs=[0, 1, 0]).solve({0: 1})
    assert bound is not None and (bound.values, bound.least, bound.greatest) == ([4, 6, 0], 4, 4)
    assert bound.cost == pytest.approx(6)
    assert program(({0: 1}, 3), ({0: 1}, 4), costs=[0]).solve({0: 1}) is None


def test_phase_1_is_shared_by_programs_that_differ_in_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is solved again without a cost has the solution of one that never had it, until a row is added."""
    rows: Any = ({0: 1, 1: 1}, 10), ({0: 1, 2: 1}, 4), ({1: 1, 3: -1}, 7)
    begun: list[int] = []
    feasible = _Tableau.feasible
    monkeypatch.setattr(_Tableau, "feasible", lambda self: (begun.append(1), feasible(self))[1])
    again = program(*rows, costs=[0, 1, 0, 0])
    assert again.solve({0: 1}) == program(*rows, costs=[0, 1, 0, 0]).solve({0: 1})
    again.free([1])
    assert again.solve({0: 1}) == program(*rows, costs=[0, 0, 0, 0]).solve({0: 1}) and len(begun) == 3
    again.equal({0: 1}, 2)
    assert again.solve({0: 1}) == program(*rows, ({0: 1}, 2), costs=[0, 0, 0, 0]).solve({0: 1})


def test_what_is_fixed_although_it_could_move_by_itself() -> None:
    """x + y = 0 leaves each 0; in x + y = 10 both may be any share."""
    none = program(({0: 1, 1: 1}, 0), costs=[0, 0]).solve({0: 1, 1: 1})
    assert none is not None and none.fixed == {0, 1}
    some = program(({0: 1, 1: 1}, 10), ({2: 1}, 3), costs=[0, 0, 0]).solve({0: 1, 1: 1, 2: 1})
    assert some is not None and (some.fixed, some.least, some.greatest) == ({2}, 13, 13)


def test_what_moves_together_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty diamonds that go the ways of the first: of 80 blocks one is moved up and down, none by itself."""
    moves: list[int] = []
    minimise = _Tableau.minimise
    monkeypatch.setattr(_Tableau, "minimise", lambda *args: (moves.append(1), minimise(*args))[1])
    rows = [({0: 1, 1: 1}, 10)]
    rows += [({2 * n: 1, 2 * n + 1: 1}, 10) for n in range(1, 40)]
    rows += [({2 * n: 1, 0: -1}, 0) for n in range(1, 40)]
    solution = program(*rows, costs=[0.0] * 80).solve(dict.fromkeys(range(80), 1))
    assert solution is not None
    assert (solution.fixed, solution.least, solution.greatest) == (frozenset(), 400, 400)
    assert len(moves) < 10


def test_large_counts_are_exact_and_fractions_are_said() -> None:
    large = 10**15 + 7
    exact = program(({0: 1, 1: -1}, 3), ({0: 1}, large), costs=[0, 0]).solve({1: 1})
    assert exact is not None and (exact.values, exact.whole) == ([large, large - 3], True)
    half = program(({0: 2}, 7), costs=[0]).solve({0: 1})
    assert half is not None and not half.whole


def test_an_exchange_is_not_its_copy_for_lanes_that_stand_apart() -> None:
    """What is around the copy has the line of the exchange too, and is there once; the warps are whole."""
    machine = """
    S2R R0, SR_TID.X # 3
    BRA.DIV UR4, `(.L_apart) # 4
    SHFL.BFLY PT, R0, R0, 0x1, 0x1f # 4
.L_on:
    STG.E [R2.64], R0 # 5
    EXIT # 6
.L_apart:
    MOV R4, 0x1 # 4
    MOV R5, 0x1f # 4
    WARPSYNC.COLLECTIVE R4, `(.L_met) # 4
    SHFL.BFLY PT, R0, R0, R4, R5 # 4
    ENDCOLLECTIVE # 4
.L_met:
    BRA `(.L_on)
    """
    ptx = "shfl.sync.bfly.b32 %t, %t, 1, 31, -1;\nst.global.u32 [%a], %t;\nret;\n"
    warps, threads, _ = both(ptx, machine, grid=1, block=96)
    assert determined(warps)[:3] == [3, 3, 3] and not any(determined(warps)[3:])
    assert determined(threads)[:3] == [96, 96, 96] and not any(determined(threads)[3:])


def test_products_of_matrices_are_made_of_several_and_their_loads_of_any_number() -> None:
    """A loop of 4 turns, 3 warps: the product of 16 x 16 x 16 is two of 16 x 8 x 16, the load is four. 12 times, not 6 or 3."""
    machine = """
    S2R R0, SR_TID.X # 3
    .L_turn:
    LDG.E R4, [R2.64] # 5
    LDG.E R5, [R2.64+0x10] # 5
    LDG.E R6, [R2.64+0x80] # 5
    LDG.E R7, [R2.64+0x90] # 5
    HMMA.16816.F32 R8, R4, R20, R8 # 6
    HMMA.16816.F32 R12, R4, R22, R12 # 6
    IADD3 R1, R1, 0x1, RZ # 7
    ISETP.LT.U32.AND P0, PT, R1, c[0x0][0x168], PT # 8
    @P0 BRA `(.L_turn) # 9
    EXIT # 10
    """
    ptx = f"""
mov.u32 %i, 0;
TURN:
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{", ".join(f"%a{i}" for i in range(8))}}}, [%a], %m;
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {{{", ".join(f"%d{i}" for i in range(8))}}},
 {{{", ".join(f"%a{i}" for i in range(8))}}}, {{{", ".join(f"%a{i}" for i in range(8))}}}, {{{", ".join(f"%d{i}" for i in range(8))}}};
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, %n;
@%p bra TURN;
ret;
"""
    ptx = f".reg .b32 %a<8>, %m; .reg .f32 %d<8>;\nmov.u32 %m, 16;\n{ptx}"
    machine = (
        machine.replace("# 10", "# 11").replace("# 9", "# 10").replace("# 8", "# 9").replace("# 7", "# 8")
    )
    machine = machine.replace("# 6", "# 7").replace("# 5", "# 6")
    warps, threads, _ = both(ptx, machine, grid=3, block=32, n=4)
    assert determined(warps) == [3, 12, 3]
    assert determined(threads) == [96, 384, 96]


def test_lines_of_neighbours_in_a_copy_for_lanes_that_stand_apart_tie_nothing() -> None:
    """Two moves with the lines of additions stand in the copy, once each; the additions are two instructions each."""
    machine = """
    S2R R0, SR_TID.X # 3
    BRA.DIV UR4, `(.L_apart) # 4
    SHFL.BFLY PT, R0, R0, 0x1, 0x1f # 4
.L_on:
    IADD3 R0, R0, 0x5, RZ # 5
    IADD3 R0, R0, 0x1, RZ # 5
    IADD3 R1, R0, 0x7, RZ # 6
    IADD3 R1, R1, 0x1, RZ # 6
    STG.E [R2.64], R1 # 7
    EXIT # 8
.L_apart:
    PRMT R4, R5, 0x5410, R6 # 5
    PRMT R5, R5, 0x5410, R6 # 6
    WARPSYNC.COLLECTIVE R4, `(.L_met) # 4
    SHFL.BFLY PT, R0, R0, R4, R5 # 4
    ENDCOLLECTIVE # 4
.L_met:
    BRA `(.L_on)
    """
    ptx = "shfl.sync.bfly.b32 %t, %t, 1, 31, -1;\nadd.u32 %t, %t, 6;\nadd.u32 %t, %t, 8;\nst.global.u32 [%a], %t;\nret;\n"
    warps, _, _ = both(ptx, machine, grid=1, block=96)
    assert [warps.blocks.get(index, 0) for index in range(6)] == [3, 3, 3, 0, 0, 0]


def test_a_branch_of_many_ways_parts_a_warp_more_than_once() -> None:
    """The lanes of a warp go four ways and meet: the join is executed by four parts, though the branch diverged once."""
    machine = (
        """
    S2R R0, SR_TID.X # 3
    BSSY B0, `(.L_met) # 5
    BRX R4 -0x20 (*"BRANCH_TARGETS .L_a,.L_b,.L_c,.L_d"*) # 5
.L_a:
    IADD3 R1, R0, 0x1, RZ # 6
    BRA `(.L_met) # 7
.L_b:
    IMAD R1, R0, R5, RZ # 8
    BRA `(.L_met) # 9
.L_c:
    LOP3.LUT R1, R0, R5, RZ, 0x3c, !PT # 10
    BRA `(.L_met) # 11
.L_d:
    POPC R1, R0 # 12
.L_join:
    BSYNC B0 # 12
.L_met:
    STG.E [R2.64], R1 # 13
    EXIT # 14
    """.replace("`(.L_met) # 7", "`(.L_join) # 7")
        .replace("`(.L_met) # 9", "`(.L_join) # 9")
        .replace("`(.L_met) # 11", "`(.L_join) # 11")
    )
    ptx = """
and.b32 %n, %t, 3;
PLACES: .branchtargets A, B, C, D;
brx.idx %n, PLACES;
A: add.u32 %i, %t, 1; bra OUT;
B: mul.lo.u32 %i, %t, %t; bra OUT;
C: xor.b32 %i, %t, 5; bra OUT;
D: popc.b32 %i, %t;
OUT: st.global.u32 [%a], %i;
ret;
"""
    warps, threads, _ = both(ptx, machine, grid=1, block=64)
    assert determined(warps) == [2, 2, 2, 2, 2, 8, 2]
    assert determined(threads) == [64, 16, 16, 16, 16, 64, 64]


def test_opcodes_that_do_the_same_are_copies_of_one_instruction() -> None:
    """Nine turns: two of the main loop's four and a single one. An addition is another opcode in each copy."""
    machine = """
    ISETP.GE P0, PT, R5, 0x4, PT # 8
    @!P0 BRA `(.L_rest) # 8
    .L_main:
    LDG.E R0, [R2.64] # 5
    LDG.E R1, [R2.64] # 5
    LDG.E R6, [R2.64] # 5
    LDG.E R7, [R2.64] # 5
    IADD3 R8, R0, R8, RZ # 6
    VIADD R8, R1, 0x3 # 6
    IADD3 R8, R6, R8, RZ # 6
    IMAD.IADD R8, R7, 0x1, R8 # 6
    ISETP.LT P0, PT, R9, R4, PT # 8
    @P0 BRA `(.L_main) # 8
    .L_rest:
    LDG.E R0, [R2.64] # 5
    IADD3 R8, R0, R8, RZ # 6
    STG.E [R2.64+0x4], R8 # 9
    EXIT # 10
    """
    ptx = """
mov.u32 %i, 0;
TURN: ld.global.u32 %t, [%a]; add.u32 %n, %n, %t; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 9; @%p bra TURN;
st.global.u32 [%a+4], %n; ret;
"""
    warps, _, _ = both(ptx, machine, grid=5, block=32)
    assert [warps.blocks[index] for index in range(3)] == [5, 10, 5]
    assert not warps.unexplained


def test_a_loop_of_the_assembler_turns_once_and_is_said_to_be_unexplained() -> None:
    """A warp group asks for registers until it has them: no count of PTX bounds how often."""
    machine = """
    S2R R0, SR_TID.X # 3
    .L_again:
    USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0 # 4
    PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0 # 4
    @!P0 BRA `(.L_again) # 4
    STG.E [R2.64], R0 # 5
    EXIT # 6
    """
    warps, threads, _ = both("bar.sync 0;\nst.global.u32 [%a], %t;\nret;\n", machine, grid=2, block=96)
    assert [warps.blocks[index] for index in range(3)] == [6, 6, 6] and warps.least == 6 * 6
    assert threads.least == 6 * 6 * 32 and warps.unexplained == threads.unexplained == {1}


def test_a_loop_whose_only_bound_is_outvoted_turns_once() -> None:
    """A load in the loop has the line of one behind it: together they are as often there as the loop alone. Both are outvoted by what
    is known of the blocks around, and nothing else bounds the loop."""
    machine = """
    S2R R0, SR_TID.X # 3
    .L_more:
    LDG.E R4, [R2.64] # 5
    FADD R5, R4, 1
    ISETP.EQ.U32.AND P0, PT, R5, 0x1, PT
    @!P0 BRA `(.L_more)
    LDG.E R6, [R2.64] # 5
    STG.E [R2.64], R6 # 6
    EXIT # 7
    """
    ptx = "add.u32 %t, %t, 1;\nld.global.f32 %x, [%a];\nst.global.f32 [%a], %x;\nret;\n"
    warps, threads, _ = both(ptx, machine, grid=1, block=96)
    assert [warps.blocks[index] for index in range(3)] == [3, 3, 3]
    assert [threads.blocks[index] for index in range(3)] == [96, 96, 96]
    assert warps.unexplained == threads.unexplained == {1}


def test_an_outvoted_count_decides_nothing() -> None:
    """Two turns, of a main loop of four copies or of a rest of two: half a turn of the one, or one of the other, fit the loads. The
    additions stand before the main loop alone, and are more than either; they must not draw it towards themselves."""
    machine = """
    ISETP.GE P0, PT, R5, 0x4, PT # 8
    @!P0 BRA `(.L_rest) # 8
    IADD3 R9, R9, 0x4, RZ # 7
    .L_main:
    LDG.E R0, [R2.64] # 5
    LDG.E R1, [R2.64] # 5
    LDG.E R6, [R2.64] # 5
    LDG.E R7, [R2.64] # 5
    ISETP.LT P0, PT, R9, R4, PT # 8
    @P0 BRA `(.L_main) # 8
    .L_rest:
    @P0 BRA `(.L_end) # 8
    LDG.E R0, [R2.64] # 5
    LDG.E R1, [R2.64] # 5
    .L_end:
    STG.E [R2.64+0x4], R8 # 10
    EXIT # 11
    """
    warps, threads, _ = both(LOOP, machine, grid=2, block=64, n=2)
    for found, whole in ((warps, 4), (threads, 128)):
        assert found.blocks[0] == found.blocks[3] == found.blocks[5] == whole
        assert {1, 2, 4} <= found.open and not found.open & {0, 3, 5}
    assert not threads.never & {1, 2, 4}


def test_lanes_that_part_in_a_function_return_one_after_the_other() -> None:
    """96 threads, 3 warps, half-way between even and odd lanes: nothing in the function brings them together, the caller's ``BSYNC``
    does."""
    ptx = """
    and.b32 %i, %t, 1;
    {.param .b32 a; .param .b32 b;
    st.param.b32 [a], %i;
    call (b), f, (a);
    ld.param.b32 %i, [b];}
    st.global.u32 [%a], %i;
    ret;
    """
    function = """.func (.param .b32 o) f (.param .b32 i)
{
.reg .pred %p; .reg .b32 %x;
ld.param.b32 %x, [i];
setp.eq.u32 %p, %x, 0;
@%p bra EVEN;
mul.lo.u32 %x, %x, 3;
EVEN:
st.param.b32 [o], %x;
ret;
}
"""
    machine = """
    BSSY B0, `(.L_out)
    LOP3.LUT R0, R0, 0x1, RZ, 0xc0, !PT # 4
    MOV R6, 0x40 # 6
    CALL.REL.NOINC `(f) # 6
    BSYNC B0
    .L_out:
    STG.E [R2.64], R0 # 8
    EXIT # 9
    .function f
    ISETP.EQ.U32.AND P0, PT, R0, RZ, PT # 11
    @P0 BRA `(.L_even) # 12
    IMAD R0, R0, 0x3, RZ # 13
    .L_even:
    RET.REL.NODEC R6 `(k)
    """
    warps, threads, _ = both(ptx, machine, grid=1, block=96, function=function)
    assert determined(warps) == [3, 6, 3, 3, 3, 6]
    assert determined(threads) == [96, 96, 96, 96, 48, 96]
