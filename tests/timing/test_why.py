"""Stalls and what-if predictions, worked out by hand on the toy machine: a cycle is a nanosecond, a load from DRAM
takes 400, an fma 5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.profile.total import add_profiles
from gpuperf_engine.results import CodeLine, Estimate
from gpuperf_engine.timing.launch.inputs import NO_ORIGIN, Block, Instruction, Loop, Path
from gpuperf_engine.timing.models.path_time import Wait, path_stalls, path_time
from tests.timing.counted import estimate
from tests.timing.test_adapt import kernel, run


def fma(*reads: int, to: int, origin: int = NO_ORIGIN) -> Instruction:
    return Instruction("fma", "fma", reads, (to,), origin=origin)


def load(*reads: int, to: int, origin: int = NO_ORIGIN) -> Instruction:
    return Instruction("lsu", "global", reads, (to,), origin=origin)


@pytest.fixture
def waits(toy: Machine):
    def waits(*parts: Block | Loop) -> dict[Wait, tuple[float, float]]:
        return path_stalls(parts, toy.lanes, {**toy.latencies, "global": 400.0})

    return waits


def test_who_waits_for_whom(waits) -> None:
    # 10 at 0; 11 at 4, when the first has left the 8 lanes of the LSU, 3 after its turn; 12 has its turn at 5 and starts at 404; the
    # last result is there 5 cycles after that issue, 4 after the next turn.
    path = Block((load(to=1, origin=10), load(to=2, origin=11), fma(1, 2, to=3, origin=12)))
    assert waits(path) == {
        Wait(11, 10, "lsu"): (3.0, 1.0),
        Wait(12, 11): (399.0, 1.0),
        Wait(NO_ORIGIN, 12): (4.0, 1.0),
    }


def test_what_costs_nothing_passes_on_for_whom(waits) -> None:
    move = Instruction("none", "none", (1,), (2,), origin=11)
    found = waits(Block((load(to=1, origin=10), move, fma(2, to=3, origin=12))))
    assert found[Wait(12, 10)] == (399.0, 1.0)


def test_iterations_that_are_not_followed_wait_like_the_last(waits) -> None:
    # a chain: every fma but the first waits 4 cycles for the one of the iteration before
    found = waits(Loop((Block((fma(1, to=1, origin=10),)),), 1000))
    assert found == {Wait(10, 10): (999 * 4.0, 999.0), Wait(NO_ORIGIN, 10): (4.0, 1.0)}


def test_a_share_of_a_branch_has_its_share_of_the_waits(waits) -> None:
    found = waits(Block((load(to=1, origin=10),)), Block((fma(1, to=1, origin=11),), 0.25))
    # its turn is at 1
    assert found[Wait(11, 10)] == (0.25 * 399, 0.25)


REGISTERS = st.integers(0, 5)
ITEMS = st.builds(
    lambda unit, latency, reads, to, origin: Instruction(unit, latency, reads, to, origin=origin),
    st.sampled_from(["fma", "fp64", "lsu", "none"]),
    st.sampled_from(["none", "fma", "global"]),
    st.tuples(REGISTERS, REGISTERS),
    st.tuples(REGISTERS),
    st.integers(0, 3),
)
BLOCKS = st.builds(Block, st.lists(ITEMS, max_size=5).map(tuple), st.sampled_from([1.0, 0.5, 0.3]))
PARTS = st.recursive(
    BLOCKS,
    lambda inner: st.builds(
        Loop, st.lists(inner, max_size=3).map(tuple), st.sampled_from([0.5, 1.0, 3.0, 20.0, 12.5])
    ),
    max_leaves=5,
)


def issued(path: Path) -> float:
    total = 0.0
    for part in path:
        if isinstance(part, Loop):
            total += part.trips * issued(part.body)
        else:
            total += part.weight * sum(item.unit != "none" for item in part.instructions)
    return total


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(PARTS, max_size=4).map(tuple))
def test_waits_and_issue_are_all_of_the_time(toy: Machine, path: Path) -> None:
    latencies = {**toy.latencies, "global": 400.0}
    found = path_stalls(path, toy.lanes, latencies)
    assert all(cycles > 0 and times > 0 for cycles, times in found.values())
    total = sum(cycles for cycles, _ in found.values()) + issued(path)
    assert total == pytest.approx(path_time(path, toy.lanes, latencies).cycles, rel=1e-9, abs=1e-6)


INDEX = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd10, %r1, STRIDE; add.s64 %rd11, %rd0, %rd10;\n"


def predicted(text: str, toy: Machine, **launch: int) -> Estimate:
    return estimate(run(text, **launch), toy, why=True)


def test_a_load_is_what_its_use_waits_for(toy: Machine) -> None:
    text = kernel(
        INDEX.replace("STRIDE", "4")
        + "ld.global.f32 %f1, [%rd11];\nfma.rn.f32 %f2, %f1, %f1, %f1;\nst.global.f32 [%rd11], %f2;"
    )
    lines = text.splitlines()
    at, on = (
        1 + next(n for n, line in enumerate(lines) if line.startswith(word)) for word in ("fma", "ld.global")
    )
    found = predicted(text, toy, grid=2, block=64)
    stall = found.stalls[0]
    # 4 warps: the load issues, the fma has its turn one cycle later and waits for the other 399
    assert (stall.cause, stall.cycles, stall.times, stall.mean) == ("long_scoreboard", 4 * 399, 4, 399)
    assert (stall.at, stall.on) == (
        CodeLine("k.ptx", at, "fma.rn.f32", "fma"),
        CodeLine("k.ptx", on, "ld.global.f32", "lsu"),
    )
    assert [row.cycles for row in found.stalls] == sorted((row.cycles for row in found.stalls), reverse=True)
    # without its latency the fma issues one cycle after the load: 399 cycles less of waiting, of all else nothing
    hidden = next(row for row in found.advice if row.line == stall.on)
    assert 0.390 < hidden.gain_us <= 0.399
    assert hidden.gain_us <= found.time_us - max(
        bound for name, bound in found.bounds.items() if name != "latency"
    )


def test_a_barrier_is_passed_by_all_warps_of_a_cta(toy: Machine) -> None:
    found = predicted(kernel("bar.sync 0;"), toy, grid=3, block=128)
    (stall,) = [row for row in found.stalls if row.cause == "barrier"]
    # 16 threads a clock are 4 sub-partitions of 8 lanes: a warp in a cycle, so 4 cycles for the 4 warps of a CTA; 12 warps wait so
    assert (stall.cycles, stall.times, stall.at.opcode) == (12 * 4, 12, "bar.sync")


def test_lanes_side_by_side_need_fewer_sectors(toy: Machine) -> None:
    # 32 lanes 32 bytes apart touch a sector each; side by side they would fill 4
    text = kernel(
        INDEX.replace("STRIDE", "32") + "ld.global.f32 %f1, [%rd11];\nst.global.f32 [%rd11+4], %f1;"
    )
    found = predicted(text, toy, grid=64, block=512)
    what = [row.what for row in found.advice if "sectors" in row.what]
    requests = 64 * 16
    assert what and all(
        f"{4 * requests:,} sectors" in row and f"in place of {32 * requests:,}" in row for row in what
    )
    near = predicted(text.replace(", 32;", ", 4;"), toy, grid=64, block=512)
    assert not [row for row in near.advice if "sectors" in row.what]
    # what is left still has the sectors of the other instruction: it takes no less than if all lanes were side by side
    assert all(row.gain_us <= found.time_us - near.time_us for row in found.advice if "sectors" in row.what)


def test_bank_conflicts_cost_what_their_absence_saves(toy: Machine) -> None:
    def text(stride: int) -> str:
        shared = ".shared .align 4 .b8 tile[4096];\n"
        body = (
            f"mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, {stride}, %r2;\nmov.u32 %r4, 0;\n"
        )
        body += "L: ld.shared.f32 %f1, [%r3];\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 64;\n@%p1 bra L;\n"
        return kernel(body, before=shared)

    slow, fast = predicted(text(128), toy), predicted(text(4), toy)
    (row,) = [row for row in slow.advice if "bank conflicts" in row.what]
    assert row.what.startswith("64 wavefronts") and "in place of 2,048" in row.what
    assert row.gain_us == pytest.approx(slow.time_us - fast.time_us)
    assert not [row for row in fast.advice if "bank conflicts" in row.what]


def test_contention_is_advised_against(toy: Machine) -> None:
    found = predicted(
        kernel("mov.f32 %f1, 0f3F800000;\nred.global.add.f32 [%rd0], %f1;"), toy, grid=64, block=512
    )
    (row,) = [row for row in found.advice if "atomics" in row.what]
    assert found.limiter == "atomics" and row.line is not None and row.line.opcode == "red.global.add.f32"
    # it can save what is above the next bound at most
    rest = max(bound for name, bound in found.bounds.items() if name != "atomics")
    assert 0.9 * (found.time_us - rest - 1) < row.gain_us <= found.time_us - rest


def test_registers_that_keep_a_cta_away(toy: Machine) -> None:
    text = kernel(INDEX.replace("STRIDE", "4") + "ld.global.f32 %f1, [%rd11];\nst.global.f32 [%rd11], %f1;")
    profile = run(text, grid=64, block=128)
    used = replace(profile.resources, registers=255)
    found = estimate(profile, toy, resources=used, why=True)
    # 65536 registers hold 8 warps of 32 x 256 registers, 2 CTAs; 3 CTAs are 12 warps, 3 on each sub-partition of 16384: 5461 for each,
    # in units of 256 5376, 168 for a thread
    assert (found.ctas_per_sm, found.occupancy_limiter) == (2, "registers")
    (row,) = [row for row in found.advice if "registers" in row.what]
    assert row.what.startswith("168 registers per thread instead of 255") and row.what.endswith(
        "3 CTAs per SM instead of 2"
    )
    fewer = estimate(profile, toy, resources=replace(used, registers=168))
    assert row.gain_us == pytest.approx(found.time_us - fewer.time_us)


def test_launches_add_up(toy: Machine) -> None:
    text = kernel(INDEX.replace("STRIDE", "4") + "ld.global.f32 %f1, [%rd11];\nst.global.f32 [%rd11], %f1;")
    device = ge.Device()
    array = device.array(np.ones(4096, np.float32))
    k = ge.parse(text, path="k.ptx")["k"]
    one, two = (device.launch(k, 2, 64, [array]) for _ in range(2))
    both = estimate(add_profiles([one, two]), toy, why=True)
    alone = estimate(one, toy, why=True)
    assert [row.cycles for row in both.stalls] == [2 * row.cycles for row in alone.stalls]
    assert [row.gain_us for row in both.advice] == pytest.approx([2 * row.gain_us for row in alone.advice])


def test_only_the_default_model_says_why(toy: Machine) -> None:
    profile = run(kernel("bar.sync 0;"))
    assert estimate(profile, toy, why=True).stalls
    assert not estimate(profile, toy, model="roofline", why=True).stalls
    assert not estimate(profile, toy).stalls
