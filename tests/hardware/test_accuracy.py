"""The statistics of the accuracy page, on numbers worked out by hand; the page says what is unmeasured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import accuracy, measurements
from benchmarks.accuracy import Point, directions, score, spearman
from gpuperf_engine.timing.calibration.judged import judged
from tests.hardware import collect

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_errors_are_of_the_measured_time() -> None:
    found = score([Point("a", 10, 11), Point("b", 10, 5), Point("c", 2, 2)])
    assert (found.count, found.mean, found.median) == (3, pytest.approx(0.2), pytest.approx(0.1))
    assert (found.worst, found.signed) == (pytest.approx(0.5), pytest.approx(-0.4 / 3))
    with pytest.raises(ValueError, match="no points"):
        score([])


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        # ranks 1 2 3 4 5 and 2 1 4 3 5: 1 − 6 · (1 + 1 + 1 + 1) / (5 · 24)
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
        # equal values share their ranks: 1.5 1.5 3 against 1 2 3
        ([7, 7, 9], [1, 2, 3], math.sqrt(3) / 2),
    ],
)
def test_rank_correlation(one: list[float], other: list[float], value: float) -> None:
    assert spearman(one, other) == pytest.approx(value)


def test_a_constant_side_has_no_rank_correlation() -> None:
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_direction_is_asked_for_what_differs_by_more_than_five_percent() -> None:
    base = Point("base", 100, 50)
    pairs = [
        (base, Point("slower, and said so", 106, 51)),
        (base, Point("slower, said to be faster", 106, 49)),
        (base, Point("faster, and said so", 90, 40)),
        (base, Point("slower, said to be the same", 150, 50)),
        (base, Point("too near", 104.9, 20)),
    ]
    assert directions(pairs) == (4, 2)


def document(*names: str, caches: str = "warm", **more: Any) -> dict[str, Any]:
    """A made-up document: every case took 10 µs."""
    cases = [{"name": name, "caches": caches, "median_us": 10.0} for name in names]
    return {
        "gpu": "MADE UP",
        "driver": "1",
        "cuda": "13.0",
        "date": "2026-01-01T00:00:00Z",
        "machine": "h100-sxm",
        "cases": cases,
        **more,
    }


def test_the_judged_half_is_judged_by_itself() -> None:
    times = {"saxpy-65536": 12.0, "haxpy-65536": 5.0}
    assert judged("saxpy-65536") and not judged("haxpy-65536")
    lines = accuracy.own(document(*times), lambda case, machine, caches: times[case.name])
    assert "| judged half, warm caches | 1 | 20.0 % | 20.0 % | 20.0 % | 20.0 % | nan |" in lines
    assert "| calibrating half, warm caches | 1 | 50.0 % | 50.0 % | 50.0 % | -50.0 % | nan |" in lines
    assert not any("cold" in line and "half" in line and line.startswith("| judged") for line in lines)


def test_pairs_are_judged_where_one_of_them_is() -> None:
    made = document("piped_1", "piped_4", "strided_1", "strided_2")
    for case, time in zip(made["cases"], (20.0, 10.0, 10.0, 20.0)):
        case["median_us"] = time
    assert not judged("strided_1") and not judged("strided_2") and judged("piped_1")
    says = {"piped_1": 5.0, "piped_4": 4.0, "strided_1": 1.0, "strided_2": 1.0}
    lines = accuracy.own(made, lambda case, machine, caches: says[case.name])
    assert "| warm caches, one of the two in the judged half | 1 of 1 | 1 |" in lines


def test_a_timed_case_is_predicted_warm_and_cold() -> None:
    case = next(item for item in collect.timed().TIMED if item.name == "saxpy-65536")
    warm, cold = (accuracy.predicted(case, "h100-sxm", caches) for caches in ("warm", "cold"))
    assert 0.9 < warm <= cold < 5


def test_the_page_says_what_is_unmeasured_while_nothing_is_measured() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert ("Nothing yet: `benchmarks/hardware` holds no measurement." in text) == (
        not measurements.documents()
    )
    for label in ("six kernels, V100", "held out", "`h200-sxm`, beyond twice L2"):
        assert label in text
