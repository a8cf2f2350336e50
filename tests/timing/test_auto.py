"""Which model predicts by default: the first possible one of both simulations and the model of counts, and what notes say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.errors import UnknownName
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.timing.estimate import EXPANDED, MODELS, Predictor
from gpuperf_engine.timing.expanded.launch import REVISION as EXPANSION
from gpuperf_engine.timing.models.simulation import REVISION
from tests.support import needs_assembler
from tests.timing.test_simulation import COPY, HEAD, inputs_of, profile

TARGET = "rtx-a6000"
MISSING = "GPUPERF_PTXAS names a file that does not exist: /nonexistent/ptxas"


@pytest.fixture(autouse=True)
def _no_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason that is said is the same whether or not the machine has one."""
    monkeypatch.setenv("GPUPERF_PTXAS", "/nonexistent/ptxas")


def copy() -> ge.Profile:
    return profile(COPY, 512, 256, 1 << 17)


def by_tickets() -> ge.Profile:
    """A launch whose threads take the next of 4096 pieces of work until none is left. How these are divided is known of no
    simulation."""
    ticket = "L: atom.global.add.u32 %r6, [%q1], 1; setp.lt.u32 %p1, %r6, 4096; @%p1 bra L;"
    return inputs_of(ticket + "st.global.f32 [%q2], 0f00000000;", np.zeros(64, np.uint32), 4)[0]


def test_without_an_assembler_the_expanded_code_is_simulated() -> None:
    given = copy()
    found, asked = ge.estimate(given, TARGET), ge.estimate(given, TARGET, model=EXPANDED)
    assert (found.model, found.assembler) == ("simulation-expanded", "")
    assert found.notes[0] == f"simulation: not possible, so simulation-expanded is used: {MISSING}"
    assert found == replace(asked, notes=found.notes) and found.notes[1:] == asked.notes
    assert "without an assembler" in asked.notes[0]
    # comparable only with the same simulation and the same expansion
    assert found.model_revision == 1000 * REVISION + EXPANSION
    # 512 KiB are read
    assert found.l2_read_sectors == pytest.approx(512 * 1024 / 32, rel=0.01)


@needs_assembler
def test_the_expanded_code_needs_none_and_is_the_same_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without = ge.estimate(copy(), TARGET, model=EXPANDED)
    monkeypatch.delenv("GPUPERF_NVDISASM")
    monkeypatch.delenv("GPUPERF_PTXAS")
    assert ge.estimate(copy(), TARGET, model=EXPANDED) == without
    assert ge.estimate(copy(), TARGET).model == "simulation"


def test_why_it_takes_its_time() -> None:
    given = profile(COPY, 4096, 256, 1 << 20)
    found, plain = ge.estimate(given, "h100-sxm", why=True), ge.estimate(given, "h100-sxm")
    assert found.model == EXPANDED and found.time_us == plain.time_us and found.notes == plain.notes
    longest = found.stalls[0]
    assert (longest.cause, longest.at.opcode, longest.on.opcode) == ("long_scoreboard", "STG.E", "LDG.E")
    assert found.advice[0].gain_us > 0 and not plain.stalls and not plain.advice


def test_both_reasons_are_said_where_neither_simulation_is_possible() -> None:
    given = by_tickets()
    found, other = ge.estimate(given, TARGET), ge.estimate(given, TARGET, model=MODELS[0])
    assert (found.model, found.time_us) == ("kleimenov-popova", other.time_us)
    first, second = found.notes[0].split("; ", 1)
    assert first == f"simulation: not possible: {MISSING}"
    assert second.startswith("simulation-expanded: not possible, so kleimenov-popova is used: ")
    assert "depends on the order in which the CTAs execute its atomics" in second
    assert ge.estimate(given, TARGET, model=EXPANDED).notes[0] == second


def test_one_reason_for_both_is_said_once(toy: Machine) -> None:
    older = replace(toy, memory_queue=None)
    found = ge.estimate(profile(COPY, 8, 256, 1 << 11), older)
    assert found.model == "kleimenov-popova"
    assert found.notes[0].startswith(
        "simulation and simulation-expanded: not possible, so kleimenov-popova is used: the description of toy lacks"
    )


def test_given_resources_decide_the_occupancy() -> None:
    given = copy()
    few = ge.estimate(given, TARGET)
    many = ge.estimate(given, TARGET, resources=replace(given.resources, registers=128))
    assert few.model == many.model == EXPANDED
    assert (few.ctas_per_sm, many.ctas_per_sm, many.occupancy_limiter) == (6, 2, "registers")
    more = ge.estimate(given, TARGET, resources=replace(given.resources, registers=128), why=True)
    assert more.time_us == many.time_us


def test_warm_caches_hold_what_the_launch_left() -> None:
    given = copy()
    cold, warm = (ge.estimate(given, TARGET, caches=state) for state in ("cold", "warm"))
    assert cold.model == warm.model == EXPANDED
    assert warm.bounds.get("dram", 0.0) < cold.bounds["dram"] and warm.time_us < cold.time_us


def test_reads_displace_what_others_wrote() -> None:
    """Half a MiB is read and as much written; L2 is larger. DRAM moves three parts in place of two."""
    given = copy()
    cold, dirty = (ge.estimate(given, TARGET, caches=state) for state in ("cold", "dirty"))
    assert dirty.model == EXPANDED and dirty.time_us > cold.time_us
    assert dirty.bounds["dram"] == pytest.approx(1.5 * cold.bounds["dram"], rel=0.01)


LOOP = """ld.param.u32 %r9, [n]; mov.u32 %r5, 0; mov.f32 %f1, 0f3F800000;
L: fma.rn.f32 %f1, %f1, %f1, %f1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r9; @%p1 bra L;
mul.wide.u32 %q3, %r4, 4; add.s64 %q4, %q1, %q3; st.global.f32 [%q4], %f1; ret;
}
"""


def test_launches_are_told_apart_by_their_parameters_and_add_up() -> None:
    device = ge.Device(memory_bytes=1 << 26)
    kernel = ge.parse(HEAD.replace(".param .u64 b", ".param .u64 b, .param .u32 n") + LOOP, path="own.ptx")[
        "k"
    ]
    arrays = [device.zeros(1 << 12, np.float32) for _ in range(2)]
    few, many, again = (device.launch(kernel, 8, 128, [*arrays, np.uint32(n)]) for n in (10, 1000, 10))
    predictor = Predictor(TARGET)
    one, two, three = (predictor.estimate(run) for run in (few, many, again))
    assert {one.model, two.model} == {EXPANDED} and one is three
    # 990 more turns, each of which waits for a multiply-add
    least = 990 * load_machine(TARGET).latencies["fma"]
    assert two.cycles - one.cycles >= least
    whole = predictor.estimate(ge.add_profiles([few, many, again]))
    assert whole.time_us == pytest.approx(2 * one.time_us + two.time_us)
    assert whole.l2_read_sectors == 2 * (one.l2_read_sectors or 0) + (two.l2_read_sectors or 0)


def test_savings_are_those_of_the_counts() -> None:
    given = copy()
    savings = [
        Predictor(TARGET, model=model).saving_us(given, loads=0.5) for model in ("auto", EXPANDED, MODELS[0])
    ]
    assert savings[0] == savings[1] == savings[2] > 0


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown time model 'simulation-expandet'") as caught:
        ge.estimate(copy(), TARGET, model="simulation-expandet")
    assert "did you mean 'simulation-expanded'" in str(caught.value)
