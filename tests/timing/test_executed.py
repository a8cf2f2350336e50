"""What a simulated launch executes: the source bytes of copies, the CTAs of the slowest SM, and as much as was counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.sass.registers import accesses_of
from gpuperf_engine.sass.run import needed
from gpuperf_engine.sass.sm.launch import Timed
from gpuperf_engine.timing.models.executed import check_executed
from gpuperf_engine.timing.models.simulation import NotRun, Simulation
from tests.support import head, needs_assembler

MODELS = [pytest.param("simulation", marks=needs_assembler), "simulation-expanded"]
TARGET = "a100-sxm-80gb"


def launched(body: str, grid: int, words: int, block: int = 256) -> ge.Profile:
    """``%r1``: the thread, ``%r2``: the CTA, ``%r4``: the thread in the grid, ``%q1``: the address of an array of ``words`` floats."""
    device = ge.Device(observe={"memory"}, memory_bytes=1 << 27)
    text = head("8.0", "sm_80") + (
        ".visible .entry k(.param .u64 a)\n{\n.reg .b32 %r<16>; .reg .b64 %q<8>; .reg .f32 %f<8>; .reg .pred %p<4>;\n"
        ".shared .align 16 .b8 tile[4096];\nld.param.u64 %q1, [a];\n"
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;\n"
        f"{body}\nret;\n}}\n"
    )
    return device.launch(ge.parse(text, path="own.ptx")["k"], grid, block, [device.zeros(words, np.float32)])


def copied(copy: str, reading: int) -> ge.Profile:
    """16 bytes for each of 256 threads, of which the first ``reading`` read any."""
    return launched(
        f"""mul.wide.u32 %q2, %r4, 16; add.s64 %q2, %q1, %q2; shl.b32 %r5, %r1, 4; mov.u32 %r6, tile; add.u32 %r5, %r5, %r6;
        setp.lt.u32 %p1, %r1, {reading}; not.pred %p2, %p1; selp.b32 %r7, 16, 0, %p1;
        {copy} cp.async.wait_all; bar.sync 0;""",
        4096,
        4096 * 1024,
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "copy",
    [
        "cp.async.cg.shared.global [%r5], [%q2], 16, %r7;",
        "cp.async.ca.shared.global [%r5], [%q2], 16, %r7;",
        "cp.async.cg.shared.global [%r5], [%q2], 16, %p2;",
        "cp.async.cg.shared.global [%r5], [%q2], 16, !%p1;",
        "@%p1 cp.async.cg.shared.global [%r5], [%q2], 16, %r7;",
    ],
)
def test_a_copy_without_source_bytes_reads_nothing(copy: str, model: str) -> None:
    for reading in (256, 96, 0):
        launch = copied(copy, reading)
        for target in (TARGET, "h100-sxm", "rtx-5090"):
            found = ge.estimate(launch, target, model=model)
            assert found.model == model
            assert found.l2_read_sectors == 4096 * reading * 16 // 32


FIRST = """setp.{}.u32 %p1, %r2, 0; @%p1 ret;
mov.f32 %f1, 0f3F800000; mov.u32 %r5, 0;
L: fma.rn.f32 %f1, %f1, %f1, %f1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 4000; @%p1 bra L;
mul.wide.u32 %q2, %r4, 4; add.s64 %q2, %q1, %q2; st.global.f32 [%q2], %f1;"""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("condition", ["eq", "ne"])
def test_a_launch_lasts_as_long_as_its_longest_cta(condition: str, model: str) -> None:
    """The first CTA ends at once, or all others do. The chain of 4000 additions takes four clocks for each."""
    found = ge.estimate(launched(FIRST.format(condition), 20, 20 * 32, 32), TARGET, model=model)
    assert found.model == model
    clock = load_machine(TARGET).clock_mhz
    assert found.time_us > 4000 * 4 / clock


@needs_assembler
def test_a_trace_that_executes_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the slice had lost the operands of an instruction that decides how often a loop is executed."""
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    body = """mul.wide.u32 %q2, %r4, 4; add.s64 %q2, %q1, %q2; mov.f32 %f1, 0f3F800000;
    xor.b32 %r6, %r2, 1024; selp.b32 %r7, %r6, 7, %p0; mov.u32 %r5, 0;
    L: st.volatile.global.f32 [%q2], %f1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r7; @%p1 bra L;"""
    body = "setp.lt.u32 %p0, %r2, 100000;\n" + body
    right = ge.estimate(launched(body, 64, 64 * 256), TARGET, model="simulation")
    assert right.model == "simulation"
    monkeypatch.setattr(
        needed, "bits_of_operands", lambda item, _wanted: dict.fromkeys(accesses_of(item).reads, 0)
    )
    wrong = ge.estimate(launched(body, 64, 64 * 256), TARGET, model="simulation")
    assert wrong.model == "kleimenov-popova"
    assert "stores, atomics and barriers" in wrong.notes[0]


def simulated_by(model: str, profile: ge.Profile) -> tuple[Timed, LaunchRecord]:
    (record,) = profile.records
    simulation = Simulation(record, load_machine(TARGET))
    if model != "simulation":
        simulation = replace(simulation, expanded=profile.resources)
    return simulation.timed(), record


@pytest.mark.parametrize("model", MODELS)
def test_executions_are_compared_with_those_counted(model: str) -> None:
    found = launched(
        "mul.wide.u32 %q2, %r4, 4; add.s64 %q2, %q1, %q2; bar.sync 0; st.global.u32 [%q2], %r4;",
        64,
        64 * 256,
    )
    timed, record = simulated_by(model, found)
    check_executed(timed, record)
    with pytest.raises(NotRun, match=r"a simulated CTA executes 1.6 stores, .* and 16.0 were counted"):
        check_executed(replace(timed, simulated=10 * timed.simulated), record)


@pytest.mark.parametrize("model", MODELS)
def test_ctas_that_seldom_store_need_not_be_among_the_simulated_ones(model: str) -> None:
    """A hash of its number lets one CTA in 256 store; what all others execute is compared then."""
    chain = "fma.rn.f32 %f1, %f1, %f1, %f1;" * 40
    body = f"""mov.f32 %f1, 0f3F800000; {chain} mul.lo.u32 %r5, %r2, 2654435761; shr.u32 %r5, %r5, 24;
        setp.ne.u32 %p1, %r5, 255; @%p1 bra END; mul.wide.u32 %q2, %r1, 4; add.s64 %q2, %q1, %q2; st.global.f32 [%q2], %f1; END:"""
    found = launched(body, 30_000, 256)
    assert ge.estimate(found, TARGET, model=model).model == model
    timed, record = simulated_by(model, found)
    none = replace(timed, instructions=tuple(item for item in timed.instructions if item.base != "STG"))
    check_executed(none, record)
    with pytest.raises(NotRun, match=r"a simulated CTA executes .* instructions, and .* of PTX were counted"):
        check_executed(replace(none, simulated=100 * timed.simulated), record)
