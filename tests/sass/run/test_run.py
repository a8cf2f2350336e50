"""Machine code that is run: a recorded listing counted by hand, code by hand beside PTX that does the same, and kernels through the
programs where they are."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.device.first_inputs import FirstInputs
from gpuperf_engine.jit import cache
from gpuperf_engine.profile.merged import MergedLaunches
from gpuperf_engine.profile.stored import Contents, profile_from, stored
from gpuperf_engine.sass.flow import Executions
from gpuperf_engine.sass.ordering import Unordered
from gpuperf_engine.sass.run.deciding import rounded_otherwise
from gpuperf_engine.sass.run.machine import _Runner
from gpuperf_engine.sass.ways import Counted, _compared, _of_one_order
from gpuperf_engine.simt.program import program_of
from tests.sass.listings import WALK, WALK_PTX, listing_text, stand_in
from tests.support import head

stands_in = pytest.mark.skipif(os.name != "posix", reason="shell scripts stand in for the programs")
INPUTS = frozenset({"memory", "inputs"})


def walk(backend: str, length: int, block: int = 64) -> ge.Profile:
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24, backend=backend)
    data = device.array(np.arange(3, 67, dtype=np.uint32))
    return device.launch(ge.parse(WALK_PTX, path="walk.ptx")["walk"], 1, block, [data, np.uint32(length)])


@stands_in
def test_a_recorded_listing_counted_by_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    """Threads 0 to 39 take max(1, t) turns of a loop that was unrolled by four: thread 0 one in front of it, t ≥ 4 ⌈(t − 3) / 4⌉ of
    the copy, 1 to 7 in the first warp and 8 or 9 in the second. So 8 + 2 parts come to the inner BSYNC, 1 + 2 to the outer one."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    code = ge.machine_code(walk(backend, 40), "rtx-3090")
    turns = [[-(-(t - 3) // 4) for t in range(first, last)] for first, last in ((4, 32), (32, 40))]
    parts = [len(set(turns[0])) + 1, len(set(turns[1]))]
    blocks = {
        0x000: (9, 2, 64),
        0x090: (12, 2, 40),
        0x150: (2, 2, 36),
        0x170: (14, max(turns[0]) + max(turns[1]), sum(map(sum, turns))),
        0x250: (1, sum(parts), 40),
        0x260: (12, 2, 40),
        0x320: (1, 1 + 2, 64),
        0x330: (2, 2, 64),
    }
    executed = {item.address: (item.warps, item.threads) for item in code.instructions}
    assert {at: executed[at] for at in blocks} == {at: row[1:] for at, row in blocks.items()}
    assert code.warp_instructions == sum(size * warps for size, warps, _ in blocks.values()) == 311
    assert code.thread_instructions == sum(size * threads for size, _, threads in blocks.values()) == 4360
    assert (code.ways, code.residue, code.notes) == ("run", 0.0, ())
    assert code.least == code.greatest == code.warp_instructions
    assert all(item.exact for item in code.instructions)


@stands_in
def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    code = ge.machine_code(walk("llvm", 0), "rtx-3090")
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert code.warp_instructions == 2 * 12


@stands_in
def test_counts_of_a_run_come_back_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other inputs are not taken for these."""
    kept: dict[str, bytes] = {}
    kind = SimpleNamespace(key=cache.key, read=kept.get, keep=kept.__setitem__)
    monkeypatch.setattr("gpuperf_engine.sass.code.cache", kind)
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    first = ge.machine_counts(walk("llvm", 40), "rtx-3090")
    assert (first.ways, first.warp_instructions, first.residue) == ("run", 311, 0.0)

    def broken(*_: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("gpuperf_engine.sass.ways.run", broken)
    assert ge.machine_counts(walk("llvm", 40), "rtx-3090") == first
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    other = [device.zeros(64, np.uint32), np.uint32(40)]
    profile = device.launch(ge.parse(WALK_PTX, path="walk.ptx")["walk"], 1, 64, other)
    with pytest.raises(AssertionError, match="run again"):
        ge.machine_counts(profile, "rtx-3090")


@stands_in
def test_the_same_code_of_two_architectures_is_run_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    launched: list[int] = []
    launch = _Runner.launch
    monkeypatch.setattr(_Runner, "launch", lambda self, *given: (launched.append(1), launch(self, *given))[1])
    profile = walk("llvm", 40)
    codes = [ge.machine_code(profile, machine) for machine in ("rtx-3090", "rtx-4090")]
    assert len(launched) == 1
    assert [code.ways for code in codes] == ["run", "run"]
    assert codes[0].warp_instructions == codes[1].warp_instructions == 311
    ge.machine_code(walk("llvm", 8), "rtx-4090")
    assert len(launched) == 2


@stands_in
def test_where_no_counts_fit_the_code_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The counts of the walk by hand; without inputs there is nothing to say."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    monkeypatch.setattr("gpuperf_engine.sass.ways.executions", lambda *_, **__: None)
    counts = ge.machine_counts(walk("llvm", 40), "rtx-3090")
    assert (counts.ways, counts.warp_instructions, counts.residue) == ("run", 311, 0.0)
    device = ge.Device(memory_bytes=1 << 24)
    args = [device.zeros(64, np.uint32), np.uint32(40)]
    profile = device.launch(ge.parse(WALK_PTX, path="walk.ptx")["walk"], 1, 64, args)
    with pytest.raises(ge.MachineError, match="no executions of the machine code of 'walk' for sm_86 fit"):
        ge.machine_counts(profile, "rtx-3090")


BY_HAND = (
    ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %r<8>; .reg .pred %p;\n"
    "ld.param.u64 %a, [p];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %a, %r0, 4, %a;\nBODY"
    "st.global.u32 [%a], %r1;\nret;\n}\n"
)
START = """
.function k
S2R R0, SR_TID.X # 2
IMAD.MOV.U32 R2, RZ, RZ, 0x4 # 3
IMAD.WIDE.U32 R2, R0, R2, c[0x0][0x160] # 3
"""
END = "STG.E [R2.64], R1 # 99\nEXIT # 99\n"


def kernel_by_hand(body: str) -> ge.Function:
    return ge.parse(head("7.0", "sm_80") + BY_HAND.replace("BODY", body), path="k.ptx")["k"]


def by_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, machine: str, block: int = 64
) -> ge.MachineCode:
    """The machine code beside PTX, both of which write a word for each thread."""
    listing = tmp_path / "k.txt"
    listing.write_text(listing_text(START + machine), encoding="utf-8")
    stand_in(monkeypatch, tmp_path, listing, "k")
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    kernel, data = kernel_by_hand(body), device.zeros(block, np.uint32)
    profile = device.launch(kernel, 1, block, [data])
    code = ge.machine_code(profile, "a100-sxm-80gb")
    # what was run leaves nothing behind
    again = device.launch(kernel, 1, block, [data])
    assert again.warp_instructions == profile.warp_instructions
    return code


@stands_in
def test_what_the_counts_of_ptx_decide_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gpuperf_engine.sass.ways.run", None)
    listing = tmp_path / "k.txt"
    listing.write_text(listing_text(START + "IADD3 R1, R0, 0x1, RZ # 4\n" + END), encoding="utf-8")
    stand_in(monkeypatch, tmp_path, listing, "k")
    device = ge.Device(observe=INPUTS, memory_bytes=1 << 24)
    kernel = kernel_by_hand("add.u32 %r1, %r0, 1;\n")
    counts = ge.machine_counts(device.launch(kernel, 1, 64, [device.zeros(64, np.uint32)]), "a100-sxm-80gb")
    assert (counts.ways, counts.residue, counts.warp_instructions) == ("flow", 0.0, 2 * 6)


def warps_at(code: ge.MachineCode) -> list[tuple[int, int]]:
    """Of each instruction, executions by warps and threads."""
    return [(item.warps, item.threads) for item in code.instructions[3:]]


@stands_in
def test_lanes_stay_apart_without_a_barrier(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A branch outside of all regions: nobody brings the two parts together, so each executes the rest by itself."""
    body = "setp.lt.u32 %p, %r0, 40;\nadd.u32 %r1, %r0, 1;\n@%p bra FEW;\nadd.u32 %r1, %r0, 2;\nFEW:\n"
    machine = """
    ISETP.GE.U32.AND P0, PT, R0, 0x28, PT # 4
    IADD3 R1, R0, 0x1, RZ # 5
    @!P0 BRA `(.L_few) # 6
    IADD3 R1, R0, 0x2, RZ # 7
.L_few:
    STG.E [R2.64], R1 # 8
    EXIT # 9
    """
    code = by_hand(monkeypatch, tmp_path, body, machine)
    assert "run" in code.ways
    assert warps_at(code) == [(2, 64)] * 3 + [(1, 24)] + [(3, 64)] * 2


@stands_in
def test_a_call_returns_to_where_it_was_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two calls of one function by all lanes, a third by half of each warp: 2 + 2 + 2 executions of its instructions."""
    body = (
        "mul.lo.u32 %r1, %r0, 3;\nadd.u32 %r1, %r1, 7;\nmul.lo.u32 %r1, %r1, 3;\nadd.u32 %r1, %r1, 7;\nand.b32 %r2, %r0, 1;\n"
        "setp.ne.u32 %p, %r2, 0;\n@%p bra EVEN;\nmul.lo.u32 %r1, %r1, 3;\nadd.u32 %r1, %r1, 7;\nEVEN:\n"
    )
    machine = """
    IMAD.MOV.U32 R1, RZ, RZ, R0 # 4
    MOV R6, 0x60
    CALL.REL.NOINC `(twist)
    MOV R6, 0x80
    CALL.REL.NOINC `(twist)
    LOP3.LUT P0, RZ, R0, 0x1, RZ, 0xc0, !PT # 8
    BSSY B0, `(.L_met)
    @P0 BRA `(.L_even) # 10
    MOV R6, 0xc0
    CALL.REL.NOINC `(twist)
.L_even:
    BSYNC B0
.L_met:
    STG.E [R2.64], R1 # 13
    EXIT # 14
    .function twist
    IMAD R1, R1, 0x3, RZ
    IADD3 R1, R1, 0x7, RZ
    RET.REL.NODEC R6 `(k)
    """
    code = by_hand(monkeypatch, tmp_path, body, machine)
    assert code.ways == "flow and run"
    assert warps_at(code) == [
        *[(2, 64)] * 8,
        *[(2, 32)] * 2,
        (4, 64),
        *[(2, 64)] * 2,
        *[(6, 160)] * 3,
    ]


@stands_in
def test_lanes_that_part_in_a_function_meet_where_the_region_of_the_caller_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two warps, whose even and odd lanes part in the function and return apart: two executions of what follows the call, one behind
    the end of the region."""
    machine = """
    IMAD.MOV.U32 R1, RZ, RZ, R0
    LOP3.LUT P0, RZ, R0, 0x1, RZ, 0xc0, !PT
    BSSY B0, `(.L_met)
    MOV R6, 0x80
    CALL.REL.NOINC `(odd)
    BSYNC B0
.L_met:
    STG.E [R2.64], R1 # 9
    EXIT # 10
    .function odd
    @!P0 BRA `(.L_even)
    IMAD R1, R1, 0x3, RZ
.L_even:
    RET.REL.NODEC R6 `(k)
    """
    body = "mov.u32 %r1, %r0;\nand.b32 %r2, %r0, 1;\nsetp.eq.u32 %p, %r2, 0;\n@!%p mul.lo.u32 %r1, %r1, 3;\n"
    code = by_hand(monkeypatch, tmp_path, body, machine)
    assert "run" in code.ways
    assert warps_at(code) == [*[(2, 64)] * 5, (4, 64), *[(2, 64)] * 2, (2, 64), (2, 32), (4, 64)]


BROKEN = """
and.b32 %r2, %r0, 3; setp.lt.u32 %p, %r2, 2; add.u32 %r1, %r0, 1; @!%p add.u32 %r1, %r1, 16;
"""


@stands_in
@pytest.mark.parametrize("way", ["a branch", "none", "a far jump"])
def test_lanes_that_leave_a_region_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """Of each warp 8 lanes leave in the first turn and 8 in the second; 16 stay, and go on together behind the end of the region. What
    the region around it still has is executed by three parts, and what is behind that by all."""
    falls = way == "none"
    leave = (
        "@P0 BREAK B1\n"
        + {
            "a branch": "@P0 BRA `(.L_out)",
            "none": "@!P0 BRA `(.L_on)\nBRA `(.L_out)\n.L_on:",
            "a far jump": "@P0 CALL.REL.NOINC `(.L_out)",
        }[way]
    )
    machine = f"""
    IMAD.MOV.U32 R1, RZ, RZ, R0 # 4
    LOP3.LUT R5, R0, 0x3, RZ, 0xc0, !PT # 4
    MOV R4, RZ # 4
    BSSY B0, `(.L_all) # 5
    BSSY B1, `(.L_stay) # 5
.L_turn:
    ISETP.EQ.AND P0, PT, R4, R5, PT # 5
    {leave}
    IADD3 R4, R4, 0x1, RZ # 6
    ISETP.LT.AND P1, PT, R4, 0x2, PT # 6
    @P1 BRA `(.L_turn) # 6
    BSYNC B1 # 7
.L_stay:
    IADD3 R1, R1, 0x10, RZ # 7
.L_out:
    IADD3 R1, R1, 0x1, RZ # 6
    BSYNC B0 # 6
.L_all:
    STG.E [R2.64], R1 # 8
    EXIT # 9
    """
    code = by_hand(monkeypatch, tmp_path, BROKEN, machine)
    assert "run" in code.ways, code.notes
    # two warps: two turns, of 32 and 24 lanes
    expected = [*[(2, 64)] * 5, *[(4, 64 + 48)] * 3]
    expected += [(4, 32)] if falls else []  # those that leave, and come to a branch of their own
    expected += [*[(4, 48 + 32)] * 3, *[(2, 32)] * 2, *[(6, 64)] * 2, *[(2, 64)] * 2]
    assert warps_at(code) == expected


LOWER = "and.b32 %r2, %r0, 16; setp.ne.u32 %p, %r2, 0; add.u32 %r1, %r0, 0; @!%p add.u32 %r1, %r1, 1;\n"


@stands_in
@pytest.mark.parametrize(("named", "known"), [("0xffff", True), ("0x1ffff", False)])
def test_lanes_that_are_all_here_need_not_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, known: bool
) -> None:
    """The lower half of each warp waits for itself; for a lane of the other half it would have to wait."""
    machine = f"""
    LOP3.LUT P0, RZ, R0, 0x10, RZ, 0xc0, !PT # 5
    IADD3 R1, R0, RZ, RZ # 6
    MOV R5, {named}
    BSSY B0, `(.L_met)
    @P0 BRA `(.L_upper)
    WARPSYNC R5
    IADD3 R1, R1, 0x1, RZ # 7
.L_upper:
    BSYNC B0
.L_met:
    STG.E [R2.64], R1 # 8
    EXIT # 9
    """
    code = by_hand(monkeypatch, tmp_path, LOWER, machine)
    assert ("run" in code.ways) == known, code.notes
    if known:
        assert warps_at(code) == [*[(2, 64)] * 5, *[(2, 32)] * 2, (4, 64), *[(2, 64)] * 2]
    else:
        assert "WARPSYNC by part of a warp" in code.notes[-1]


@stands_in
@pytest.mark.parametrize("where", ["together", "in a region", "where others ended", "where others may end"])
def test_a_branch_of_turing_if_lanes_of_the_warp_are_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """``BRA.DIV`` without a mask: lanes that ended do not count, those that wait at the end of the region do, and what those do that
    are elsewhere is not known if they may end there."""
    ends = where == "where others may end"
    machine = f"""
    LOP3.LUT P0, RZ, R0, 0x10, RZ, 0xc0, !PT # 5
    {"@P0 EXIT" if where == "where others ended" else "NOP"}
    BSSY B0, `(.L_met)
    {"@P0 BRA `(.L_upper)" if ends or where == "in a region" else "NOP"}
    BRA.DIV `(.L_slow)
    IADD3 R1, R0, 0x1, RZ # 7
    BRA `(.L_upper)
.L_slow:
    IADD3 R1, R0, 0x1, RZ # 7
.L_upper:
    {"@P0 EXIT" if ends else "NOP"}
    BSYNC B0
.L_met:
    STG.E [R2.64], R1 # 8
    EXIT # 9
    """
    body = {
        "together": "add.u32 %r1, %r0, 1;\n",
        "in a region": "and.b32 %r2, %r0, 16; setp.ne.u32 %p, %r2, 0; mov.u32 %r1, 0; @!%p add.u32 %r1, %r0, 1;\n",
    }.get(where, "and.b32 %r2, %r0, 16; setp.ne.u32 %p, %r2, 0; @%p exit; add.u32 %r1, %r0, 1;\n")
    code = by_hand(monkeypatch, tmp_path, body, machine)
    if ends:
        assert code.ways == "flow" and "BRA.DIV by part of a warp" in code.notes[-1]
        return
    assert "run" in code.ways, code.notes
    fast, slow = (
        ((0, 0), (2, 32)) if where == "in a region" else ((2, 64 // (1 + (where != "together"))), (0, 0))
    )
    assert (warps_at(code)[5], warps_at(code)[7]) == (fast, slow)


@stands_in
def test_a_way_out_of_a_region_that_is_not_known_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = """
    ISETP.EQ.AND P0, PT, R0, RZ, PT # 4
    BSSY B0, `(.L_all) # 5
    @P0 BREAK B0
    IADD3 R1, R0, 0x1, RZ # 6
    BSYNC B0
.L_all:
    STG.E [R2.64], R1 # 8
    EXIT # 9
    """
    code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", machine)
    assert code.notes[-1] == "the machine code was not run: a BREAK that is not known here"


@stands_in
def test_a_parameter_by_an_index_that_counts_from_in_front_of_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The parameters of sm_80 begin at 0x160: 8 behind 0x158."""
    machine = """
    MOV R4, 0x8 # 4
    LDC R5, c[0x0][R4+0x158] # 4
    IADD3 R5, R5, -c[0x0][0x160], RZ # 4
    IADD3 R1, R0, R5, 0x1 # 4
    """
    code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", machine + END)
    assert "run" in code.ways, code.notes


@stands_in
def test_an_exit_by_two_predicates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the second warp the 12 odd threads from 41 on end."""
    body = (
        ".reg .pred %q; cvt.rn.f32.u32 %r1, %r0; mul.rn.f32 %r1, %r1, 0f3FC00000; setp.ge.u32 %p, %r0, 40; and.b32 %r2, %r0, 1;\n"
        "setp.ne.and.u32 %q, %r2, 0, %p; @%q exit;\n"
    )
    machine = """
    I2FP.F32.U32 R1, R0 # 4
    MOV R4, 0x40400000 # 5
    FMUL.D2 R1, R1, R4 # 5
    ISETP.GE.U32.AND P0, PT, R0, 0x28, PT # 6
    LOP3.LUT P1, RZ, R0, 0x1, RZ, 0xc0, !PT # 7
    @P0 EXIT P1 # 9
    """
    code = by_hand(monkeypatch, tmp_path, body, machine + END)
    assert "run" in code.ways, code.notes
    assert warps_at(code) == [*[(2, 64)] * 6, *[(2, 52)] * 2]


@stands_in
def test_a_call_out_of_the_code_ends_the_run_where_it_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``printf`` and the like: nobody comes there, or thread 63."""
    for most, ways in ((64, "run"), (63, "not run")):
        machine = f"""
        IADD3 R1, R0, 0x1, RZ # 4
        ISETP.LT.U32.AND P0, PT, R0, {most:#x}, PT # 4
        @P0 BRA `(.L_past) # 4
        CALL.ABS.NOINC R4 # 4
.L_past:
        """
        code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", machine + END)
        assert ("run" in code.ways) == (ways == "run"), code.notes
    assert "a call that is not known here (0x0060 CALL.ABS.NOINC R4)" in code.notes[-1]


@stands_in
def test_code_that_does_something_else_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", "IADD3 R1, R0, 0x2, RZ # 4\n" + END)
    assert code.ways == "flow"
    assert code.notes == ("the machine code was not run: it leaves other bytes in memory than the PTX",)


@stands_in
def test_code_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By how much the PTX executes, not by what a launch may execute at most: a kernel may come near that."""
    endless = ".L_on:\nIADD3 R1, R1, 0x1, RZ # 4\nISETP.NE.AND P0, PT, R0, -0x1, PT # 4\n@P0 BRA `(.L_on)\n"
    code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", endless + END)
    assert code.ways == "flow"
    assert re.search(r"not run: 1,0\d\d,\d\d\d warp instructions executed", code.notes[-1]), code.notes


#: 0.1 · i + 0.1 for each thread i, rounded once or twice
TWICE = "cvt.rn.f32.u32 %r1, %r0;\nmov.b32 %r2, 0f3DCCCCCD;\nmul.f32 %r1, %r1, %r2;\nadd.f32 %r1, %r1, %r2;\n"
ONCE = "I2FP.F32.U32 R1, R0 # 4\nIMAD.MOV.U32 R4, RZ, RZ, 0x3dcccccd # 5\nFFMA R1, R1, R4, R4 # 7\n"


@stands_in
def test_results_that_are_rounded_otherwise_are_those_of_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ptxas fuses what PTX leaves to it. The bytes differ, the executions do not depend on them."""
    code = by_hand(monkeypatch, tmp_path, TWICE, ONCE + END)
    assert (code.ways, code.notes, code.warp_instructions) == ("flow and run", (), 2 * 8)
    # 1 % more is not a rounding
    other = by_hand(monkeypatch, tmp_path, TWICE, ONCE.replace("0x3dcccccd", "0x3dd00000") + END)
    assert other.notes == ("the machine code was not run: it leaves other bytes in memory than the PTX",)


@stands_in
def test_what_an_approximation_decides_is_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A branch by a power of two that a GPU may round otherwise, of which the PTX counts do not tell: 2² is 4 or a little
    less. If the branch is the same for numbers beside it, the run tells; what a fused product decides is known."""
    branch = "ISETP.GE.U32.AND P0, PT, R6, 0x3f800000, PT # 7\n@!P0 BRA `(.L_on)\nNOP\n.L_on:\n"
    power = "MOV R6, 0x40000000\nMUFU.EX2 R6, R6\n"
    code = by_hand(monkeypatch, tmp_path, TWICE, ONCE + power + branch.replace("3f8", "408") + END)
    assert code.ways == "flow and run"
    assert code.notes[-1].endswith("and are not certain where these leave something open")
    assert code.residue > 0
    assert [item.exact for item in code.instructions if item.opcode == "NOP"] == [False]
    code = by_hand(monkeypatch, tmp_path, TWICE, ONCE + power + branch + END)
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert code.notes[-1].endswith("it executes the same if each is moved by a unit in its last place")
    assert [item.exact for item in code.instructions if item.opcode == "NOP"] == [False]
    code = by_hand(monkeypatch, tmp_path, TWICE, ONCE + "FADD R6, R1, R1\n" + branch + END)
    assert "run" in code.ways
    # 0.2 + 0.2 · i >= 1 from thread 4 on, so a part of the first warp alone
    assert warps_at(code)[-3] == (2, 60)


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        (np.float32([1, 2, 3]), np.float32([1, 2, 3.01]), True),
        (np.float32([1, 2, 3]), np.float32([1, 2, 3.5]), False),
        (np.float16([1, 2, 3, 4]), np.float16([1, 2.002, 3, 4]), True),
        (np.float64([1e300, 2]), np.float64([1e300, 2.000001]), True),
        (np.int32([1000, 2000]), np.int32([1000, 2001]), False),
        (np.uint32([7]), np.uint32([7]), True),
    ],
)
def test_what_was_rounded_otherwise(one: np.ndarray, other: np.ndarray, near: bool) -> None:
    """To 2⁻⁶ of a value, or of the mean of the array; integers are no roundings of each other."""
    halves = one.dtype == np.float16
    assert rounded_otherwise(one.view(np.uint8), other.view(np.uint8), halves=halves) == near


@stands_in
def test_barriers_in_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Thread 0 makes one for the 64 threads, all of which arrive and wait: the second warp finds it complete at once, the first asks
    until it is. The first test is in front of the loop and has the line of the addition."""
    body = """
.shared .align 8 .b64 m; .reg .b64 %s; .reg .pred %q;
setp.ne.u32 %p, %r0, 0; @%p bra MADE; mbarrier.init.shared.b64 [m], 64; MADE: bar.sync 0;
mbarrier.arrive.shared.b64 %s, [m];
AGAIN: mbarrier.test_wait.shared.b64 %q, [m], %s; @!%q bra AGAIN;
add.u32 %r1, %r0, 1;
"""
    machine = """
    BSSY B0, `(.L_made) # 5
    ISETP.NE.U32.AND P0, PT, R0, RZ, PT # 4
    @P0 BRA `(.L_join) # 5
    MOV R4, 0x1fff80 # 6
    MOV R5, 0x7ffe0000 # 6
    SYNCS.EXCH.64 URZ, [RZ], R4 # 6
.L_join:
    BSYNC B0 # 6
.L_made:
    BAR.SYNC.DEFER_BLOCKING 0x0 # 7
    SYNCS.ARRIVE.TRANS64.A1T0 RZ, [RZ], RZ # 8
    SYNCS.PHASECHK.TRANS64 P1, [RZ], RZ # 11
    @!P1 BRA `(.L_again) # 11
.L_on:
    IADD3 R1, R0, 0x1, RZ # 11
    STG.E [R2.64], R1 # 12
    EXIT # 13
.L_again:
    SYNCS.PHASECHK.TRANS64 P1, [RZ], RZ # 9
    @!P1 BRA `(.L_again) # 10
    BRA `(.L_on) # 10
    """
    code = by_hand(monkeypatch, tmp_path, body, machine)
    assert "run" in code.ways and code.residue == 0, code.notes
    by_text = {item.text: item.warps for item in code.instructions}
    assert by_text["SYNCS.EXCH.64 URZ, [RZ], R4"] == 1
    assert by_text["SYNCS.ARRIVE.TRANS64.A1T0 RZ, [RZ], RZ"] == by_text["IADD3 R1, R0, 0x1, RZ"] == 2


LOCK = """
.shared .b32 lock; .reg .b32 %l; add.u32 %r1, %r0, 1; and.b32 %l, %r0, 31; setp.ne.u32 %p, %l, 0; @%p bra OPEN;
SPIN: atom.shared.cas.b32 %l, [lock], 0, 1; setp.ne.u32 %p, %l, 0; @%p bra SPIN;
st.shared.b32 [lock+4], %r0; atom.shared.exch.b32 %l, [lock], 0; OPEN:
"""
LOCK_MACHINE = """
IADD3 R1, R0, 0x1, RZ # 4
LOP3.LUT P0, RZ, R0, 0x1f, RZ, 0xc0, !PT # 6
BSSY B0, `(.L_open) # 7
@P0 BRA `(.L_join) # 7
MOV R6, 0x1 # 8
.L_spin:
ATOMS.CAS R5, [RZ], RZ, R6 # 8
ISETP.NE.U32.AND P0, PT, R5, RZ, PT # 9
@P0 BRA `(.L_spin) # 10
STS [0x4], R0 # 11
ATOMS.EXCH RZ, [RZ], RZ # 12
.L_join:
BSYNC B0 # 12
.L_open:
STG.E [R2.64], R1 # 13
EXIT # 14
"""


@stands_in
@pytest.mark.parametrize("observe", [INPUTS, frozenset({"memory"})])
def test_a_spin_lock_is_counted_in_one_order_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, observe: frozenset[str]
) -> None:
    """One lane of each of two warps takes it: three instructions of a turn each, at least; how many turns there are is a matter of
    order, by the counts of PTX as in a run."""
    monkeypatch.setattr(f"{__name__}.INPUTS", observe)
    body = LOCK.replace(".shared .b32 lock;", ".shared .b32 lock[2];")
    code = by_hand(monkeypatch, tmp_path, body, LOCK_MACHINE)
    assert code.ways == ("flow and run" if observe & {"inputs"} else "flow")
    by_text = {item.text: item for item in code.instructions}
    turns = by_text["ATOMS.CAS R5, [RZ], RZ, R6"]
    assert turns.warps >= 2
    assert code.residue == pytest.approx(3 * turns.warps / code.warp_instructions)
    assert [item.text.split()[0] for item in code.instructions if not item.exact] == [
        "ATOMS.CAS",
        "ISETP.NE.U32.AND",
        "@P0",
    ]
    assert code.notes[-1].startswith(f"the order in which threads run decides about {3 * turns.warps} of ")
    line = (
        BY_HAND.replace("BODY", body).partition("SPIN")[0].count("\n") + 1 + head("7.0", "sm_80").count("\n")
    )
    assert f"by the branch at line {line} of the PTX" in code.notes[-1]


@stands_in
def test_what_the_assembler_makes_of_an_atomic_is_counted_in_one_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sum in floating point as a loop: of PTX nothing depends on the order, of the machine code the turns do."""
    body = ".shared .b32 sum; add.u32 %r1, %r0, 1; mov.b32 %r2, 0f3F800000; red.shared.add.f32 [sum], %r2;\n"
    machine = """
    IADD3 R1, R0, 0x1, RZ # 4
    BSSY B0, `(.L_out) # 6
.L_again:
    LDS R4, [RZ] # 6
    FADD R5, R4, 1 # 6
    ATOMS.CAST.SPIN R5, [RZ], R4, R5 # 6
    ISETP.EQ.U32.AND P0, PT, R5, 0x1, PT # 6
    @!P0 BRA `(.L_again) # 6
    BSYNC B0 # 6
.L_out:
    STG.E [R2.64], R1 # 7
    EXIT # 8
    """
    code = by_hand(monkeypatch, tmp_path, body, machine)
    loop = [item for item in code.instructions if not item.exact]
    assert [item.opcode for item in loop[:2]] == ["LDS", "FADD"] and len(loop) == 5
    assert code.residue >= sum(item.warps for item in loop) / code.warp_instructions
    assert "a loop that the assembler adds around an atomic" in code.notes[-1]


@stands_in
@pytest.mark.parametrize(
    "line",
    [
        "BRA `(nowhere)",
        "@!P0 BRA",
        "BRX R2 -0x120",
        "BRA.DIV",
        "LOP3.LUT R1, {R2",
        "ATOMS.CAST.SPIN P0",
        "EXIT R1",
    ],
)
def test_what_another_disassembler_may_write_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    """The counts of PTX stand."""
    machine = f"IADD3 R1, R0, 0x1, RZ # 4\n{line}\n{END}"
    code = by_hand(monkeypatch, tmp_path, "add.u32 %r1, %r0, 1;\n", machine)
    assert code.ways == "flow" and code.notes[-1].startswith("the machine code was not run: ")


@stands_in
def test_what_is_not_known_ends_the_run_where_it_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An opcode that nobody knows, in front of threads that come there and behind a branch that nobody takes."""
    body = "add.u32 %r1, %r0, 1;\n"
    reached = "IADD3 R1, R0, 0x1, RZ # 4\nFROB R1, R1\n" + END
    code = by_hand(monkeypatch, tmp_path, body, reached)
    assert code.ways == "flow"
    assert code.notes == ("the machine code was not run: FROB is not known here (0x0040 FROB R1, R1)",)
    passed = "IADD3 R1, R0, 0x1, RZ # 4\nISETP.GE.U32.AND P0, PT, R0, 0x40, PT # 4\n@!P0 BRA `(.L_on)\nFROB R1, R1\n.L_on:\n"
    code = by_hand(monkeypatch, tmp_path, body, passed + END)
    assert "run" in code.ways


def counted(blocks: dict[int, int], left_open: frozenset[int], whole: bool = True) -> Counted:
    total = sum(blocks.values())
    warps = Executions(blocks, total, total, left_open, frozenset(), whole)
    return Counted(warps, warps, total, total, 0.5 if left_open else 0.0, ("open",), "flow")


@pytest.mark.parametrize(
    ("left_open", "whole", "residue"),
    [({2}, True, 0.0), ({1}, True, 8 / 16), (set(), True, 8 / 16), (set(), False, 0.0)],
)
def test_a_run_must_agree_with_each_block_that_the_counts_decide(
    left_open: set[int], whole: bool, residue: float
) -> None:
    """Three blocks of one instruction: the ways differ in the last, 8 executions or 2."""
    graph: Any = SimpleNamespace(blocks=[SimpleNamespace(index=at, start=at, end=at + 1) for at in range(3)])
    by_flow = counted({0: 4, 1: 4, 2: 8}, frozenset(left_open), whole)
    by_run = replace(counted({0: 4, 1: 4, 2: 2}, frozenset()), ways="run", notes=())
    both = _compared(by_flow, by_run, graph)
    assert (both.ways, both.residue, both.warps.blocks[2]) == ("run", residue, 2)
    assert bool(both.notes) == (residue > 0)
    assert both.unsettled == ({2} if residue else set())  # not exact
    # what the order of threads decides there is uncertain once
    ordered = _of_one_order(both, graph, Unordered(frozenset({2}), frozenset(), ()))
    assert (ordered.residue, ordered.unsettled) == (residue or 2 / 10, {2})


def test_where_lanes_converge_is_up_to_the_machine_code() -> None:
    graph: Any = SimpleNamespace(blocks=[SimpleNamespace(index=at, start=at, end=at + 1) for at in range(3)])
    by_flow = counted({0: 4, 1: 4, 2: 2}, frozenset(), True)
    by_run = replace(counted({0: 4, 1: 4, 2: 3}, frozenset()), ways="run", notes=(), threads=by_flow.threads)
    both = _compared(by_flow, by_run, graph)
    assert (both.ways, both.residue, both.unsettled, both.warps.blocks[2]) == ("run", 1 / 11, {2}, 3)
    assert (both.least, both.greatest, both.apart) == (10, 11, frozenset())
    assert both.notes == (
        "PTX counts give 10 warp instructions, a run of the machine code 11: its lanes converge elsewhere than those of the PTX, "
        "and execute the same",
    )


def of_program(starts: list[int], lengths: list[int] | None = None) -> ge.Profile:
    """Launches of the walk as a program makes them that frees its memory and ends, from words that begin with these numbers."""
    device = ge.Device(memory_bytes=1 << 24, history=0)
    device.first_inputs = FirstInputs()
    kernel, merged = ge.parse(WALK_PTX, path="walk.ptx")["walk"], MergedLaunches()
    data = device.zeros(64, np.uint32)
    for start, length in zip(starts, lengths or [40] * len(starts)):
        data.copy_from(np.arange(start, start + 64, dtype=np.uint32))
        merged.add(device.launch(kernel, 1, 64, [data, np.uint32(length)]))
    device.free(data)
    contents = Contents()
    rows = [json.loads(json.dumps(stored(profile, contents))) for profile in merged.profiles()]
    known = Contents(np.concatenate(contents.arrays))
    return ge.add_profiles([profile_from(program_of(kernel), row, known) for row in rows])


@stands_in
def test_launches_of_a_program_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each executes what the walk does by hand."""
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    profile = of_program([3, 5, 3, 3])
    (record,) = profile.records
    assert [times for _, times in record.kept] == [3, 1]
    code = ge.machine_code(profile, "rtx-3090")
    assert (code.ways, code.residue, code.notes) == ("run", 0.0, ())
    assert (code.warp_instructions, code.thread_instructions) == (4 * 311, 4 * 4360)
    assert code.shared_load_requests == 0
    assert ge.machine_counts(profile, "rtx-3090").warp_instructions == 4 * 311


@stands_in
def test_launches_that_were_not_kept_stay_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of four is run: of the others what the counts of PTX leave open stays so."""
    monkeypatch.setattr("gpuperf_engine.device.first_inputs.MOST_SMALL_KEPT", 1)
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    profile = of_program([3, 4, 5, 6])
    by_flow = ge.machine_code(profile, "rtx-3090", running=False)
    code = ge.machine_code(profile, "rtx-3090")
    assert (code.ways, code.warp_instructions) == ("run", 4 * 311)
    assert code.residue == pytest.approx(3 / 4 * by_flow.residue)
    assert by_flow.residue > 0
    assert (code.least, code.greatest) == (by_flow.least, max(by_flow.greatest, 4 * 311))
    assert code.notes == (
        "3 of 4 launches were not run: they are counted like the first launch with the same PTX counts",
    )
    assert not all(item.exact for item in code.instructions)


@stands_in
def test_launches_that_are_added_up_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three with different counts, of which two are one record: together what each executes by itself."""
    monkeypatch.setattr("gpuperf_engine.profile.merged.DISTINCT", 1)
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    profile = of_program([3, 4, 5, 5], [40, 8, 24, 24])
    assert [record.times for record in profile.records] == [1, 3]
    code = ge.machine_code(profile, "rtx-3090")
    each = [ge.machine_code(walk("llvm", length), "rtx-3090") for length in (40, 8, 24, 24)]
    assert (code.ways, code.residue, code.notes) == ("run", 0.0, ())
    assert code.warp_instructions == sum(one.warp_instructions for one in each)
    assert code.thread_instructions == sum(one.thread_instructions for one in each)


@stands_in
def test_launches_that_were_run_and_others_are_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The inputs of the third were not kept: of it alone the counts of PTX leave something open."""
    monkeypatch.setattr("gpuperf_engine.device.first_inputs.MOST_SMALL_KEPT", 2)
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    code = ge.machine_code(of_program([3, 4, 5], [40, 8, 24]), "rtx-3090")
    run, flow = (
        [ge.machine_code(walk("llvm", length), "rtx-3090", running=running) for length in lengths]
        for lengths, running in (((40, 8), True), ((24,), False))
    )
    assert flow[0].residue > 0
    assert code.ways == "run"
    assert code.warp_instructions == sum(one.warp_instructions for one in (*run, *flow))
    certain = sum(one.warp_instructions for one in run)
    assert code.residue == pytest.approx(flow[0].residue * flow[0].greatest / (certain + flow[0].greatest))
    assert code.greatest == certain + flow[0].greatest
    assert code.notes[-1] == "1 of 3 launches were not run: the PTX counts alone tell what they execute"


def test_without_inputs_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if os.name != "posix":
        pytest.skip("shell scripts stand in for the programs")
    stand_in(monkeypatch, tmp_path, WALK, "walk")
    device = ge.Device(memory_bytes=1 << 24)
    module = ge.parse(WALK_PTX, path="walk.ptx")
    profile = device.launch(module["walk"], 1, 64, [device.zeros(64, np.uint32), np.uint32(40)])
    assert ge.machine_code(profile, "rtx-3090").ways == "flow"
