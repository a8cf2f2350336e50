"""The time of a path, worked out by hand on the toy machine's units: dependences, pipes, loops and shares of branches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.timing.launch.inputs import Block, Instruction, Loop
from gpuperf_engine.timing.models.path_time import PathTime, path_time

LOAD = 400.0


@pytest.fixture
def measure(toy: Machine):
    def measure(*parts: Block | Loop, as_printed: bool = False) -> PathTime:
        return path_time(parts, toy.lanes, {**toy.latencies, "global": LOAD}, as_printed=as_printed)

    return measure


def fma(*reads: int, to: int) -> Instruction:
    return Instruction("fma", "fma", reads, (to,))


def load(*reads: int, to: int) -> Instruction:
    return Instruction("lsu", "global", reads, (to,))


def test_nothing_takes_no_time(measure) -> None:
    assert measure() == PathTime(0.0, 0.0, 0.0, 0)
    assert measure(Block(())).cycles == 0


def test_dependent_instructions_wait_for_the_latency(measure) -> None:
    # Issued at 0, 5, 10; the last result is there at 15.
    assert measure(Block((fma(to=1), fma(1, to=2), fma(2, to=3)))).cycles == 15


def test_independent_instructions_issue_one_per_cycle(measure) -> None:
    # Issued at 0, 1, 2; the last result is there at 7.
    assert measure(Block((fma(to=1), fma(to=2), fma(to=3)))).cycles == 7


def test_a_narrow_pipe_holds_the_next_of_its_own_kind(measure) -> None:
    # fp64 has 4 lanes: issued at 0, 8, 16; 16 + 10.
    double = [Instruction("fp64", "fp64", (), (register,)) for register in (1, 2, 3)]
    assert measure(Block(tuple(double))).cycles == 26
    # An fma between them issues at 1 and disturbs nobody; in the paper's rule it waits until 8.
    mixed = Block((double[0], fma(to=9), fma(9, to=10)))
    assert measure(mixed).cycles == 11
    assert measure(mixed, as_printed=True).cycles == 8 + 5 + 5


def test_loads_in_a_row_and_side_by_side(measure) -> None:
    beside = measure(Block((load(to=1), load(to=2), fma(1, 2, to=3))))
    # The second load issues after the first has left the 8 lanes, at 4, and is there at 404.
    assert beside == PathTime(409.0, 1.0, 2.0, 3)
    chained = measure(Block((load(to=1), load(1, to=2), fma(2, to=3))))
    assert chained == PathTime(805.0, 2.0, 2.0, 3)


def test_what_costs_nothing_passes_its_operands_on(measure) -> None:
    move = Instruction("none", "none", (1,), (2,))
    assert measure(Block((fma(to=1), move, fma(2, to=3)))).cycles == 10


def test_a_loop_multiplies_its_steady_state(measure) -> None:
    # A chain of one fma per iteration: 5 cycles each.
    assert measure(Loop((Block((fma(1, to=1),)),), 1000)).cycles == 5000
    # Four chains side by side: still 5 cycles per iteration; the last of them ends 3 later.
    chains = tuple(fma(register, to=register) for register in range(4))
    assert measure(Loop((Block(chains),), 1000)).cycles == 5 * 999 + 3 + 5
    # Ten independent ones: bound by issue, 10 cycles per iteration.
    wide = tuple(fma(register, to=register) for register in range(10))
    assert measure(Loop((Block(wide),), 1000)).cycles == 10 * 999 + 9 + 5


def test_a_load_for_the_next_iteration_overlaps(measure) -> None:
    # Use, then load for next time: 400 + 1 per iteration; load and use at once: the fma's 5 come on top.
    ahead = measure(Loop((Block((fma(1, 2, to=2), load(to=1))),), 100))
    assert ahead.cycles == pytest.approx(100 * 401, abs=401)
    chased = measure(Loop((Block((load(1, to=1),)),), 100))
    assert chased == PathTime(40_000.0, 100.0, 100.0, 1)


def test_loops_nest(measure) -> None:
    inner = Loop((Block((fma(1, to=1),)),), 10)
    assert measure(Loop((inner,), 10)).cycles == 500


@pytest.mark.parametrize(("trips", "cycles"), [(0, 0), (1, 5), (2.5, 12.5), (0.5, 2.5), (12.5, 62.5)])
def test_trips_may_be_an_average(measure, trips: float, cycles: float) -> None:
    assert measure(Loop((Block((fma(1, to=1),)),), trips)).cycles == pytest.approx(cycles)


def test_a_branch_counts_by_its_share(measure) -> None:
    chain = (fma(1, to=1), fma(1, to=1))
    assert measure(Block(chain, weight=0.5), Block((fma(1, to=2),))).cycles == pytest.approx(10)
    assert measure(Block(chain, weight=0.0), Block((fma(1, to=2),))).cycles == 5


def test_an_unknown_unit_or_latency_raises(toy: Machine) -> None:
    with pytest.raises(KeyError):
        path_time((Block((Instruction("tensor"),)),), toy.lanes, toy.latencies)
    with pytest.raises(KeyError):
        path_time((Block((load(to=1),)),), toy.lanes, toy.latencies)


registers = st.lists(st.integers(0, 5), max_size=3).map(tuple)
instructions = st.builds(
    Instruction,
    st.sampled_from(["fma", "alu", "imad", "fp64", "lsu"]),
    st.sampled_from(["fma", "alu", "global", "shared", "none"]),
    registers,
    registers,
) | st.builds(Instruction, st.just("none"), st.just("none"), registers, registers)
bodies = st.lists(instructions, min_size=1, max_size=8).map(tuple)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(body=bodies, trips=st.integers(0, 60))
def test_extrapolated_loops_are_those_followed_to_the_end(toy: Machine, body, trips: int) -> None:
    latencies = {**toy.latencies, "global": LOAD}
    followed = path_time((Block(body * trips),), toy.lanes, latencies)
    extrapolated = path_time((Loop((Block(body),), trips),), toy.lanes, latencies)
    assert extrapolated.cycles == pytest.approx(followed.cycles, rel=0.02, abs=10)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(body=bodies, more=instructions, at=st.integers(0, 8), latency=st.floats(1, 500))
def test_more_work_or_latency_never_takes_less(
    toy: Machine, body, more: Instruction, at: int, latency: float
) -> None:
    def cycles(instructions, load_latency: float) -> float:
        latencies = {**toy.latencies, "global": load_latency}
        return path_time((Block(instructions),), toy.lanes, latencies).cycles

    reader = Instruction(more.unit, more.latency, more.reads, ())
    assert cycles((*body[:at], reader, *body[at:]), LOAD) >= cycles(body, LOAD)
    assert cycles(body, latency + 1) >= cycles(body, latency)
