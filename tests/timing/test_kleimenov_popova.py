"""The fix-points: corrected they reach the closed form, as printed they do not; Newton's method reaches the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf_engine.timing.models.kleimenov_popova import closed_form, fix_point, loaded_latency

cycles = st.floats(1.0, 1e6)


@st.composite
def works(draw: st.DrawFn):
    """max over a few straight lines a + n * latency: what the time of a path can be, and where the lines' slopes are."""
    lines = draw(st.lists(st.tuples(st.floats(0.0, 1e5), st.integers(0, 1000)), min_size=1, max_size=4))
    floor = draw(cycles)

    def time(latency: float) -> tuple[float, float]:
        return max([(floor, 0.0), *((a + n * latency, float(n)) for a, n in lines)])

    return time


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    time=works(), latency=st.floats(1.0, 1000.0), traffic=st.floats(0.0, 1e9), bandwidth=st.floats(1.0, 1e4)
)
def test_corrected_fix_point_is_the_closed_form(
    time, latency: float, traffic: float, bandwidth: float
) -> None:
    expected = max(time(latency)[0], traffic / bandwidth)
    assert closed_form(lambda x: time(x)[0], latency, traffic, bandwidth) == expected
    reached = fix_point(lambda x: time(x)[0], latency, traffic, bandwidth)
    assert reached.time == pytest.approx(expected, rel=1e-6)
    assert reached.latency >= latency
    newton = loaded_latency(time, latency, traffic, bandwidth)
    assert newton.time == pytest.approx(expected, rel=1e-6)
    assert newton.latency >= latency
    assert newton.iterations <= 10


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    a=st.floats(0.0, 1e4), n=st.integers(1, 1000), latency=st.floats(1.0, 1000.0), factor=st.floats(1.0, 50.0)
)
def test_both_ways_reach_the_same_latency(a: float, n: int, latency: float, factor: float) -> None:
    bound = factor * (a + n * latency)
    iterated = fix_point(lambda x: a + n * x, latency, bound, 1.0, tolerance=1e-12, max_iterations=20_000)
    newton = loaded_latency(lambda x: (a + n * x, float(n)), latency, bound, 1.0)
    assert newton.latency == pytest.approx((bound - a) / n, rel=1e-6)
    assert iterated.latency == pytest.approx(newton.latency, rel=1e-3)


def test_printed_rule_lowers_the_latency_under_the_hardwares() -> None:
    # 100 cycles of work and one load of 400; 10 bytes through 1 byte per cycle need no more than that.
    def time(latency: float) -> float:
        return 100 + latency

    assert fix_point(time, 400.0, 10.0, 1.0).time == 500
    printed = fix_point(time, 400.0, 10.0, 1.0, as_printed=True)
    assert printed.latency < 1
    assert printed.time == pytest.approx(100, abs=1)


def test_printed_rule_stops_while_the_time_stands_still() -> None:
    # The issue bound of 1000 hides the first steps of the latency: 2000 bytes through 1 byte per cycle need 2000 cycles.
    def time(latency: float) -> float:
        return max(1000.0, 10 * latency)

    assert fix_point(time, 20.0, 2000.0, 1.0, as_printed=True).time == 1000
    assert fix_point(time, 20.0, 2000.0, 1.0).time == pytest.approx(2000)


def test_worked_example() -> None:
    # 50 + 2 * latency cycles at 100: 250. 1000 bytes at 2 bytes per cycle need 500: the latency rises to 225.
    reached = fix_point(lambda latency: 50 + 2 * latency, 100.0, 1000.0, 2.0)
    assert reached.time == pytest.approx(500)
    assert reached.latency == pytest.approx(225)


def test_work_that_waits_for_no_load_has_no_fix_point() -> None:
    reached = fix_point(lambda _latency: 10.0, 100.0, 1000.0, 1.0)
    assert (reached.time, reached.latency) == (1000, 100)
    newton = loaded_latency(lambda _latency: (10.0, 0.0), 100.0, 1000.0, 1.0)
    assert (newton.time, newton.latency) == (1000, 100)
