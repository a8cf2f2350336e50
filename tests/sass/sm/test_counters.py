"""Counters of a warp, which instructions of variable latency hold until their registers are read or written, and others wait for.

Huerta et al., "Dissecting and Modeling the Architecture of Modern GPU Cores" (MICRO 2025), section 4: an instruction waits until all
that hold a counter of its mask have released it, those whose result it does not read too. Reproduced on an A100
(Strelizia-zerotwo/A100-modern-gpu-reproduction 68cb7ef).
"""

from __future__ import annotations

import pytest

from .machines import TOY, access, run, waited

START = TOY.turnaround
SLOW = 32  # wavefronts


def end(*code: str, words: list[int]) -> int:
    return int(run([*code, "EXIT"], [words]).ended)


@pytest.mark.parametrize(("own", "waits_for"), [(1, "R8"), (0, "R9")])
def test_a_wait_is_for_all_that_hold_the_counter(own: int, waits_for: str) -> None:
    # two loads, the second of which takes longer: with counters of their own only the first is waited for
    loads = ["2: LDS R8, [R2] &wr=0", f"2: LDS R9, [R2] &wr={own}"]
    words = access(1) + access(SLOW)
    found = end(*loads, "FADD R10, R8, R8 &req={0}", words=words)
    assert found == end(*loads, f"FADD R10, {waits_for}, {waits_for}", words=words)


def test_a_register_is_written_again_when_the_queue_has_read_it() -> None:
    # a sub-partition takes four clocks for each
    stores = [f"STS [R2], R{4 + number} &rd=3" for number in range(20)]
    other = end(*stores, "IADD3 R40, R41, R42, RZ", words=access(1) * 20)
    same = end(*stores, "IADD3 R23, R41, R42, RZ &req={3}", words=access(1) * 20)
    assert same - START == pytest.approx(20 * TOY.address_clocks, abs=3)
    assert other < same - 3 * TOY.address_clocks


def test_a_group_of_copies_holds_the_counter_of_its_commit() -> None:
    copy = ["LDGSTS.E [R5], [R2.64]", "LDGDEPBAR &wr=0"]
    far = [*access(1), *access(1, {0: 1})]
    waits = [
        int(run([*copy, text, "EXIT"], [far], lines=1).ended) - START
        for text in ("DEPBAR.LE SB0, 0x0", "IADD3 R8, R9, R10, RZ &req={0}", "IADD3 R8, R9, R10, RZ")
    ]
    assert waits[0] == pytest.approx(TOY.latencies["dram"], abs=12)
    assert waits[1] == pytest.approx(waits[0], abs=4)
    assert waits[2] < 20


def test_what_is_waited_for_is_the_instruction_that_holds_the_counter_last() -> None:
    code = ["2: LDS R8, [R2] &wr=0", "2: LDS R9, [R2] &wr=0", "FADD R10, R8, R8 &req={0}", "EXIT"]
    found = waited(code, run(code, [access(1) + access(SLOW)]))
    assert {(at, on) for at, cause, on in found if cause == "short_scoreboard"} == {(2, 1)}
