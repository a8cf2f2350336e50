"""Launches in which results of atomics decide. In a trace their CTAs run one after the other. Expected values are arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.sm.areas import last_of
from gpuperf_engine.timing.models.simulation import NotRun, Simulation, simulated

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 counter, .param .u64 array)
{
.reg .b32 %r<12>; .reg .b64 %q<12>; .reg .f32 %f<8>; .reg .pred %p<4>; .shared .align 4 .b8 told[4];
ld.param.u64 %q1, [counter]; ld.param.u64 %q2, [array];
cvta.to.global.u64 %q1, %q1; cvta.to.global.u64 %q2, %q2;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; mov.u32 %r5, %nctaid.x;
mov.f32 %f1, 0f3F800000; mul.wide.u32 %q3, %r4, 4; add.u64 %q4, %q2, %q3;
"""
#: The thread that finds that the results of all other CTAs are there adds up 4096 times.
LAST = """st.global.f32 [%q4], %f1; setp.ne.u32 %p1, %r1, 0; @%p1 bra E;
membar.gl; atom.global.add.u32 %r6, [%q1], 1; add.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r6, %r5; @%p2 bra E;
mov.u32 %r7, 0;
L: fma.rn.f32 %f1, %f1, %f1, %f1; fma.rn.f32 %f1, %f1, %f1, %f1; fma.rn.f32 %f1, %f1, %f1, %f1; fma.rn.f32 %f1, %f1, %f1, %f1;
add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 1024; @%p3 bra L;
st.global.f32 [%q2], %f1;
E: """
QUEUE = """L: setp.ne.u32 %p1, %r1, 0; @%p1 bra W; atom.global.add.u32 %r6, [%q1], 1; st.shared.u32 [told], %r6;
W: bar.sync 0; ld.shared.u32 %r6, [told]; bar.sync 0; setp.ge.u32 %p2, %r6, 64; @%p2 bra E;
mul.wide.u32 %q5, %r6, 4; add.u64 %q6, %q2, %q5; st.global.f32 [%q6], %f1; bra L;
E: """
A100 = load_machine("a100-sxm-80gb")


def launched(body: str, ctas: int, block: int = 64) -> ge.Profile:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 26)
    kernel = ge.parse(HEAD + body + "\nret;\n}\n", path="own.ptx")["k"]
    return device.launch(
        kernel, ctas, block, [device.zeros(4, np.uint32), device.zeros(ctas * block, np.float32)]
    )


def expanded(profile: ge.Profile) -> Simulation:
    record = profile.records[0]
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    return Simulation(record, A100, expanded=resources)


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (7, 5, 1), (7, 5, 3), (1, 1, 3), (1, 4, 1)])
def test_the_last_cta_is_one_of_a_kind(grid: tuple[int, int, int]) -> None:
    areas, count = last_of(grid), grid[0] * grid[1] * grid[2]
    assert areas.first(count).tolist() == [0] * (count - 1) + [1]


@pytest.mark.parametrize("ctas", [2, 64, 500])
def test_what_the_last_cta_does_comes_after_all_others(ctas: int) -> None:
    """4096 multiply-adds that wait for one another, 4 clocks each."""
    profile = launched(LAST, ctas)
    record = profile.records[0]
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    classes = expanded(profile).code().trace().classes
    assert classes.areas is not None and classes.areas.counted().sum() == ctas
    assert 1 in classes.areas.counted().tolist()
    without = launched(LAST.replace("%p2 bra E;", "%p2 bra E; bra E;"), ctas)
    times = [simulated(item.records[0], A100, expanded=resources).time_us for item in (profile, without)]
    assert (times[0] - times[1]) * A100.clock_mhz == pytest.approx(4 * 4096, rel=0.15)


def test_ctas_that_take_the_next_piece_of_work_are_refused() -> None:
    with pytest.raises(NotRun, match="the order in which the CTAs execute its atomics"):
        expanded(launched(QUEUE, 16)).code().trace()
    # of a launch of one CTA all orders are the same
    assert expanded(launched(QUEUE, 1)).code().trace().classes.atomics


def test_only_samples_of_many_ctas_take_part() -> None:
    ticket = "atom.global.add.u32 %r6, [%q1], 1; mul.wide.u32 %q6, %r6, 4; add.s64 %q7, %q2, %q6; st.global.f32 [%q7], %f1;"
    few, many = (expanded(launched(ticket, ctas)).code().trace() for ctas in (64, 10_000))
    assert few.tracer.takes_all(few.record.plan) and not many.tracer.takes_all(many.record.plan)
    assert many.classes.areas is None and len(many.classes.classes) == 12


def test_lanes_that_are_combined_are_one_operation() -> None:
    """2¹⁶ threads count in one word: at an address that is the same for a warp in 2¹¹ operations; at one that is loaded, which is the
    same but not known to be, in one for each thread."""
    add = "red.global.add.u32 [%q7], 1;"
    same = "mov.u64 %q7, %q1;"
    loaded = "ld.global.u32 %r7, [%q4]; cvt.u64.u32 %q5, %r7; add.u64 %q7, %q1, %q5;"
    for address, operations in ((same, 1 << 11), (loaded, 1 << 16)):
        profile = launched(address + add, 256, 256)
        found = simulated(profile.records[0], A100, expanded=replace(profile.resources, shared_bytes=0))
        assert found.bounds["atomics"] * A100.clock_mhz == pytest.approx(
            operations / A100.atomic_rate, rel=0.01
        )
