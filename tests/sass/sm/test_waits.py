"""Stalls of an SM on small code, counted on paper. None of this needs an assembler."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gpuperf_engine.sass.graph import build_graph
from gpuperf_engine.sass.sm.operations import Operations
from gpuperf_engine.sass.sm.waits import caused_by

from .machines import TOY, access, decoded, run, run_roles, waited

START = 100  # the turnaround of a CTA
LATENCIES = TOY.latencies


def first(texts: list[str], warps: list[list[int]], **options: object) -> tuple[tuple[int, str, int], float]:
    """The longest wait, and its clocks."""
    found = waited(texts, run(texts, warps, **options))  # type: ignore[arg-type]
    return max(found.items(), key=lambda item: item[1])


def test_a_chain_waits_for_the_latency_of_its_unit() -> None:
    code = ["FFMA R1, R1, R2, R1"] * 3 + ["EXIT"]
    seen = run(code, [[]])
    # each is issued 4 clocks after the one before, one of them its own
    assert waited(code, seen) == {(1, "wait", 0): 3, (2, "wait", 1): 3}


def test_a_result_of_memory_is_waited_for_where_it_is_used() -> None:
    code = ["LDG.E R8, [R2.64]", "IADD3 R9, R3, 0x1, RZ", "FADD R10, R8, R8", "EXIT"]
    seen = run(code, [access(1, {0: 1})], lines=1, share=0.0)
    # issued at 0; the port lets half a clock pass; IADD3 at 1, so that 198 clocks are left
    assert waited(code, seen) == {(2, "long_scoreboard", 0): LATENCIES["l2"] - 2}
    code[0] = "LDS R8, [R2]"
    seen = run(code, [access(4)])
    # four wavefronts, three more than one
    assert waited(code, seen) == {(2, "short_scoreboard", 0): LATENCIES["shared"] + 3 - 2}


def test_the_function_unit_and_its_pipe() -> None:
    code = ["MUFU.RCP R1, R2", "MUFU.RCP R3, R2", "FADD R4, R3, R3", "EXIT"]
    seen = run(code, [[]])
    # four lanes: 8 clocks for each instruction
    assert waited(code, seen) == {(1, "mio_throttle", 1): 7, (2, "short_scoreboard", 1): LATENCIES["xu"] - 1}


@pytest.mark.parametrize(("lanes", "busy"), [(16, 2), (8, 4)])
def test_independent_arithmetic_waits_for_its_pipe(lanes: int, busy: int) -> None:
    numbers = replace(TOY, lanes={**TOY.lanes, "fma": lanes})
    code = [f"FFMA R{8 + 2 * n}, R1, R2, c[0x0][0x160]" for n in range(10)] + ["EXIT"]
    seen = run(code, [[]], numbers=numbers)
    assert waited(code, seen, numbers) == {(n, "math_pipe_throttle", n): busy - 1 for n in range(1, 10)}
    # of two warps the second waits for the pipe as well, which the first has each time
    two = waited(code, run(code, [[]] * 8, numbers=numbers), numbers)
    assert {cause for _, cause, _ in two} == {"math_pipe_throttle"}


def test_register_ports_hold_the_dispatch_up() -> None:
    # R1, R3 and R5 are in one bank: three clocks, in which the first reads them, then the next; EXIT reads nothing
    code = ["FFMA R8, R1, R3, R5"] * 4 + ["EXIT"]
    code = [text.replace("R8", f"R{8 + 2 * n}") for n, text in enumerate(code)]
    assert waited(code, run(code, [[]])) == {(n, "dispatch_stall", n): 2 for n in range(1, 4)}


def test_warps_that_could_issue_are_not_selected() -> None:
    # two warps of one sub-partition; the youngest issues as long as it can
    numbers = replace(TOY, parts=1)
    code = [f"FADD R{8 + 2 * n}, R1, RZ" for n in range(6)] + ["EXIT"]
    seen = run(code, [[], []], numbers=numbers)
    assert waited(code, seen, numbers) == {(0, "not_selected", 0): 7}


def test_the_memory_queue_is_full() -> None:
    # The unit that all share takes an access of 32 wavefronts for 32 clocks; five wait in the queue.
    code = [f"LDS R{8 + n}, [R2]" for n in range(8)] + ["EXIT"]
    seen = run(code, [access(32) * 8])
    # LDS n goes to the unit at 32 n; LDS 5 is issued when LDS 0 has gone (4 clocks of the address unit: at once), 6 after 1, 7 after 2
    assert waited(code, seen) == {(6, "mio_throttle", 6): 32 - 6, (7, "mio_throttle", 7): 31}
    code = [f"LDG.E R{8 + n}, [R2.64]" for n in range(8)] + ["EXIT"]
    seen = run(code, [access(32, {0: 15}) * 8], lines=1)
    assert waited(code, seen) == {(6, "lg_throttle", 6): 32 - 6, (7, "lg_throttle", 7): 31}


def test_a_barrier_is_waited_for_where_it_stands_and_traced_to_what_the_last_warp_waits_for() -> None:
    # Warp 1 loads, adds and arrives; warp 0, of another sub-partition, has its line in L1 soon.
    code = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8", "BAR.SYNC 0x0", "EXIT"]
    near, far = [0], access(1, {0: 15})
    seen = run(code, [near, far], lines=1, share=0.0)
    found = waited(code, seen)
    # a lane-less load takes 30; 128 bytes from L2 take the port 2 clocks more than the latency
    last = LATENCIES["l2"] + 2
    assert found[1, "long_scoreboard", 0] == (last - 1) + (LATENCIES["l1"] - 1)
    behind = {on: clocks for (at, cause, on), clocks in found.items() if (at, cause) == (2, "barrier")}
    # warp 0 arrives at 31 and waits until warp 1 does, for its load; then both for the barrier
    waits = last - LATENCIES["l1"]
    assert sum(behind.values()) == (waits - 1 + LATENCIES["barrier"]) + (LATENCIES["barrier"] - 1)
    assert behind[0] == pytest.approx(waits, abs=2)


def test_shares_of_what_the_last_warp_did() -> None:
    # While warp 1 waits, warp 0 waits for two loads of shared memory, one after the other, then for a load from L2.
    code = [
        "LDS R8, [R2]", "LDS R9, [R8]", "LDG.E R10, [R9.64]", "FADD R11, R10, R10", "BAR.SYNC 0x0", "EXIT",
    ]  # fmt: skip
    slow = [*access(1), *access(1), *access(1, {0: 1})]
    fast = [0, 0, 0]
    found = waited(code, run(code, [slow, fast], lines=1, share=0.0))
    behind = {on: clocks for (at, cause, on), clocks in found.items() if (at, cause) == (4, "barrier")}
    own = behind.pop(4)
    assert own >= LATENCIES["barrier"]
    # the loads without lanes took the latencies of both too, so that what is left is the wait for L2
    assert set(behind) <= {0, 1, 2} and behind[2] == max(behind.values())


CODE = {
    "chain": ["FFMA R1, R1, R2, R1"] * 40,
    "memory": [f"LDG.E R{8 + n}, [R2.64]" for n in range(20)] + ["FADD R40, R8, R27"],
    "shared": [f"LDS R{8 + n}, [R2]" for n in range(20)] + ["FADD R40, R8, R27"],
    "barrier": ["LDS R8, [R2]", "FADD R9, R8, R8", "BAR.SYNC 0x0"] * 5,
    "both": [
        "LDG.E R8, [R2.64]",
        "FFMA R9, R8, R10, R12",
        "MUFU.RCP R3, R9",
        "BAR.SYNC 0x0",
        "STG.E [R2.64], R3",
    ]
    * 4,
}


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize(("warps", "ctas", "resident"), [(1, 1, 1), (6, 1, 1), (8, 7, 3), (3, 40, 2)])
def test_the_sum_over_all_reasons_is_the_warps_by_clocks(
    name: str, warps: int, ctas: int, resident: int
) -> None:
    code = [*CODE[name], "EXIT"]
    accesses = sum(text.startswith(("LD", "ST")) for text in code)
    each = [
        [
            word
            for n in range(accesses)
            for word in access(1 + n % 3, {} if name in ("shared", "barrier") else {n % 8: 1 + warp})
        ]
        for warp in range(warps)
    ]
    seen = run(code, each, lines=8, share=0.4, ctas=ctas, resident=resident)
    operations = Operations(build_graph(decoded(code), "k"), TOY)
    total = sum(waited(code, seen).values()) + int(seen.issued.sum())
    assert total == seen.resident_clocks
    if (ctas, name) == (1, "barrier"):
        # the warps of a CTA leave the last barrier together, and issue EXIT
        assert total == pytest.approx(warps * (seen.ended - START), abs=2 * warps)
    # what instructions caused is what was waited for, but for the selection and for ports that were not
    caused = caused_by(operations, seen)
    causes = Counter[str]()
    for (_, cause, _), clocks in waited(code, seen).items():
        causes[cause] += clocks
    assert caused.sum() == pytest.approx(sum(causes.values()) - causes["not_selected"])


def test_what_is_changed_at_an_instruction() -> None:
    from gpuperf_engine.jit.ir.sm_records import Change

    load = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8", "EXIT"]
    words = access(8, {n: 1 for n in range(8)})
    before = run(load, [words], lines=8, share=1.0)
    hidden = run(load, [words], lines=8, changed={0: Change.HIDDEN})
    assert hidden.ended == START + 3 and hidden.dram_sectors == before.dram_sectors == 8
    # what is touched for the first time is not in L1, what was there before is
    assert run(load, [words], lines=8, changed={0: Change.NEAR}).ended == before.ended
    twice = [*load[:2], "LDG.E R10, [R2.64]", "FADD R11, R10, R10", "EXIT"]
    far = run(twice, [words * 2], lines=8, l1_lines=1)
    assert far.l2_sectors == 16 and far.again.tolist() == [0, 0, 8, 0, 0]
    near = run(twice, [words * 2], lines=8, l1_lines=1, changed={2: Change.NEAR})
    assert near.l2_sectors == 8 and near.ended == before.ended + 1 + LATENCIES["l1"] + 7
    # 32 lanes of one word: one line of four sectors
    beside = run(load, [words], lines=8, changed={0: Change.SIDE_BY_SIDE | Change.NO_CONFLICTS})
    assert (beside.dram_sectors, beside.lsu_clocks) == (4, 2)
    shared = ["LDS.64 R8, [R2]", "FADD R10, R8, R8", "EXIT"]
    assert (
        run(shared, [access(32)], changed={0: Change.NO_CONFLICTS}).ended
        == START + LATENCIES["shared"] + 1 + 2
    )
    barrier = ["LDG.E R8, [R2.64]", "FADD R9, R8, R8", "BAR.SYNC 0x0", "EXIT"]
    held = run(barrier, [[0], words], lines=8)
    free = run(barrier, [[0], words], lines=8, changed={2: Change.NO_BARRIER})
    assert held.ended == free.ended + LATENCIES["barrier"] - 1
    assert np.all(free.finished < held.finished)


def test_a_long_way_to_a_barrier_is_shared_by_what_is_remembered() -> None:
    # Warp 1 comes from a chain of 300 links, warp 0 does not execute it: all of the wait is for the chain, in even shares.
    chain = ["FFMA R1, R1, R2, R1"] * 300
    seen = run_roles([[*chain, "BAR.SYNC 0x0"], ["BAR.SYNC 0x0"]], [(1, []), (0, [])])
    code = ["@P0 BRA `(.L_1)", *chain, "BAR.SYNC 0x0", "EXIT", "BAR.SYNC 0x0", "EXIT"]
    behind = {
        on: clocks
        for (_, cause, on), clocks in waited(code, seen).items()
        if cause == "barrier" and on <= 300
    }
    # of each of 64 shares less than a clock is lost
    assert sum(behind.values()) == pytest.approx(300 * 4, abs=64)
    assert len(behind) > 50 and max(behind.values()) < 2 * 1200 / len(behind)
