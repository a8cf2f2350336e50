"""Why a simulated launch takes as long as it does: the reason, the line and what would help, of kernels that each is bound by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.models.simulation import Simulation, estimate_of
from gpuperf_engine.timing.simulated_why import explain_simulated
from gpuperf_engine.timing.why import MIN_GAIN
from tests.support import needs_assembler
from tests.timing.test_simulation import COPY, HEAD, loop, profile

pytestmark = needs_assembler

#: of each kernel the body, CTAs, threads, words of its arrays and the machine; what its warps wait for first, the opcode that they
#: wait for, and the text of its line
CHAIN = "\n".join("fma.rn.f32 %f1, %f1, %f1, %f1;" for _ in range(4))
WIDE = "\n".join(f"fma.rn.f32 %f{n}, %f{n}, %f{n}, %f20;" for n in range(1, 17))
START = "\n".join(f"cvt.rn.f32.u32 %f{n}, %r1;" for n in range(1, 21))
SUM = "\n".join(f"add.f32 %f1, %f1, %f{n};" for n in range(2, 17))
LAST = "st.global.f32 [%q2], %f1;"
CONFLICTS = f"""and.b32 %r6, %r1, 31; mul.lo.u32 %r6, %r6, 128; mov.u32 %r7, tile; add.u32 %r6, %r6, %r7; mov.f32 %f1, 0f00000000;
{loop("ld.volatile.shared.f32 %f2, [%r6]; add.f32 %f1, %f1, %f2;", 64)}{LAST}"""
POINTERS = (
    "mov.u32 %r6, tile;\n"
    + loop("ld.volatile.shared.u32 %r6, [%r6]; and.b32 %r6, %r6, 28;", 64)
    + "cvt.rn.f32.u32 %f1, %r6;"
)
BARRIER = (
    f"mov.f32 %f1, 0f3F800000; setp.gt.u32 %p2, %r1, 31;\n@%p2 bra B;\n{loop(CHAIN, 64)}B: bar.sync 0; {LAST}"
)
STRIDED = """shl.b32 %r6, %r4, 5; mul.wide.u32 %q3, %r6, 4; add.s64 %q4, %q1, %q3; ld.global.f32 %f1, [%q4];
mul.wide.u32 %q6, %r4, 4; add.s64 %q5, %q2, %q6; st.global.f32 [%q5], %f1;"""
CASES = {
    "chain": (loop(CHAIN, 64) + LAST, 84, 32, 64, "rtx-a6000", "wait", "FFMA", "fma.rn.f32"),
    "pointers": (POINTERS + LAST, 84, 32, 64, "rtx-a6000", "short_scoreboard", "LDS", "ld.volatile.shared"),
    "conflicts": (CONFLICTS, 84, 32, 64, "rtx-a6000", "mio_throttle", "LDS", "ld.volatile.shared"),
    "crowd": (CONFLICTS, 84, 1024, 64, "rtx-a6000", "mio_throttle", "LDS", "ld.volatile.shared"),
    "arithmetic": (
        f"{START}\n{loop(WIDE, 64)}{SUM}{LAST}", 108, 1024, 64, "a100-sxm-40gb", "math_pipe_throttle", "FFMA", "fma.rn.f32",
    ),
    "barrier": (BARRIER, 84, 256, 64, "rtx-a6000", "barrier", "FFMA", "fma.rn.f32"),
    "stream": (COPY, 4096, 256, 1 << 20, "rtx-a6000", "long_scoreboard", "LDG.E", "ld.global"),
    "strided": (STRIDED, 512, 256, 1 << 22, "rtx-a6000", "long_scoreboard", "LDG.E", "ld.global"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reason_that_binds_a_kernel_comes_first(name: str) -> None:
    body, grid, block, words, machine, cause, opcode, text = CASES[name]
    given = profile(body, grid, block, words)
    found = ge.estimate(given, machine, model="simulation", why=True)
    causes: dict[str, float] = {}
    for row in found.stalls:
        causes[row.cause] = causes.get(row.cause, 0.0) + row.cycles
    assert max(causes, key=lambda key: causes[key]) == cause
    lines: dict[tuple[str, int], float] = {}
    for row in found.stalls:
        if row.cause == cause:
            lines[row.on.opcode, row.on.line] = lines.get((row.on.opcode, row.on.line), 0.0) + row.cycles
    first, line = max(lines, key=lambda key: lines[key])
    assert first == opcode
    assert text in given.records[0].program.kernel.module.text.split("\n")[line - 1]
    # instructions of the launch by clocks: all that its warps did and waited for, as it was seen on one SM
    assert sum(row.cycles for row in found.stalls) == pytest.approx(
        sum(row.stalled for row in found.stalled)
        * given.records[0].plan.ctas
        / seen_ctas(found, grid, machine)
    )
    assert found.time_us >= max(found.bounds.values())
    if name in ("stream", "strided"):
        assert found.limiter == "dram"
    if name == "arithmetic":
        assert found.limiter == "fma"
    if name in ("conflicts", "crowd"):
        assert found.bounds["shared"] == pytest.approx(found.bounds["lsu"], rel=0.01)
    assert all(MIN_GAIN * found.time_us <= row.gain_us < found.time_us for row in found.advice)
    assert [row.gain_us for row in found.advice] == sorted(
        (row.gain_us for row in found.advice), reverse=True
    )


def seen_ctas(found: ge.Estimate, grid: int, machine: str) -> int:
    """CTAs that were simulated: all of the SM, or those that the note names."""
    words = found.notes[0].split()
    if "CTAs;" in words:
        return int(words[words.index("of", words.index("its") - 2) - 1])
    return -(-grid // load_machine(machine).sm_count)


def advised(name: str) -> tuple[ge.Estimate, dict[str, ge.Advice]]:
    body, grid, block, words, machine, *_ = CASES[name]
    found = ge.estimate(profile(body, grid, block, words), machine, model="simulation", why=True)
    return found, {row.what: row for row in found.advice}


def test_no_bank_conflicts_are_predicted_to_save_what_they_cost() -> None:
    _, rows = advised("crowd")
    clock = load_machine("rtx-a6000").clock_mhz
    # 64 turns of 32 warps, 32 wavefronts in place of 2 clocks of the unit
    saved = 64 * 32 * (32 - 2) / clock
    assert rows["no bank conflicts"].gain_us == pytest.approx(saved, rel=0.05)
    assert rows["no bank conflicts"].line is not None and rows["no bank conflicts"].line.opcode == "LDS"


def test_lanes_side_by_side() -> None:
    found, rows = advised("strided")
    (row,) = [row for what, row in rows.items() if what.startswith("its lanes contiguous")]
    near = ge.estimate(profile(COPY, 512, 256, 1 << 22), "rtx-a6000", model="simulation")
    assert row.gain_us == pytest.approx(found.time_us - near.time_us, rel=0.1)


HIDDEN = "its latency hidden (issued earlier, or more warps)"
IN_L1 = "its repeated loads hit in L1"


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_latency_hidden_and_loads_in_l1(rounds: int) -> None:
    # 32 links, a line each, in rounds
    wrap = f"add.s64 %q3, %q3, 128; sub.s64 %q5, %q3, %q1; and.b64 %q5, %q5, {128 * 32 // rounds - 1}; add.s64 %q3, %q1, %q5;"
    chase = "mov.u64 %q3, %q1;\n" + loop(f"ld.global.u64 %q4, [%q3]; add.s64 %q3, %q3, %q4; {wrap}", 32)
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 26)
    kernel = ge.parse(HEAD + chase + "st.global.u64 [%q2], %q3;\nret;\n}\n", path="own.ptx")["k"]
    given = device.launch(kernel, 84, 32, [device.zeros(1 << 16, np.float32), device.zeros(64, np.float32)])
    # nothing stays in L1
    a6000 = replace(load_machine("rtx-a6000"), l1_bytes=0)
    found = ge.estimate(given, a6000, model="simulation", why=True)
    assert found.limiter == "latency"
    assert (found.stalls[0].cause, found.stalls[0].on.opcode) == ("long_scoreboard", "LDG.E")
    gains = {row.what: row.gain_us for row in found.advice}
    if rounds == 1:
        # what is touched once cannot be found in L1
        assert IN_L1 not in gains and HIDDEN in gains
        return
    # all rounds but the first come from L2
    links = 24 * (a6000.latencies["l2"] - a6000.latencies["l1"]) / a6000.clock_mhz
    assert gains[IN_L1] == pytest.approx(links, rel=0.05)
    assert gains[HIDDEN] > gains[IN_L1]


def test_one_more_cta_where_shared_memory_keeps_it_away() -> None:
    # CTAs of a warp that load and wait for it; a large tile leaves room for few of them
    body = COPY + "mov.u32 %r7, tile; st.shared.f32 [%r7], %f1;"
    given = profile(body, 84 * 24, 32, 1 << 16)
    machine = replace(load_machine("rtx-a6000"), shared_per_sm=20 << 10)
    found = ge.estimate(given, machine, model="simulation", why=True)
    assert (found.ctas_per_sm, found.occupancy_limiter) == (2, "shared")
    (row,) = [row for row in found.advice if "CTAs per SM" in row.what]
    assert "3 CTAs per SM instead of 2" in row.what and row.line is None
    # a third more of them at once
    assert row.gain_us == pytest.approx((found.time_us - found.launch_us) / 3, rel=0.2)


def test_gains_are_those_of_another_simulation() -> None:
    body, grid, block, words, machine, *_ = CASES["conflicts"]
    record = profile(body, grid, block, words).records[0].each
    simulation = Simulation(record, load_machine(machine))
    found = explain_simulated(estimate_of(simulation), simulation)
    (row,) = [row for row in found.advice if row.what == "no bank conflicts"]
    text = next(at for at, item in enumerate(found.stalled) if item.text.startswith("LDS"))
    every = {at: 4 for at, item in enumerate(found.stalled) if item.ptx_line == found.stalled[text].ptx_line}
    again = simulation.changed_us(every, 0.0)
    assert row.gain_us == pytest.approx(found.time_us - found.launch_us - again)


def test_lines_add_up() -> None:
    given = profile(*CASES["barrier"][:4])
    found = ge.estimate(given, "rtx-a6000", model="simulation")
    for by in ("source", "ptx"):
        lines = found.stalled_lines(by)
        assert sum(line.stalled for line in lines) == pytest.approx(
            sum(item.stalled for item in found.stalled)
        )
        assert sum(line.issued for line in lines) == sum(item.issued for item in found.stalled)
        assert all(sum(line.stalls.values()) == pytest.approx(line.stalled) for line in lines)
    # seven of eight warps wait for the chain of the first
    assert found.stalled_lines("ptx")[0].at != "ptx:0"
    assert (
        sum(item.caused for item in found.stalled if item.text.startswith("FFMA")) > 0.8 * found.warp_clocks
    )
