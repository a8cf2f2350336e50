"""Table 2 of Liu and Grover: the model's column, the published errors, and what a fit to the measurements reaches."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from gpuperf_engine.errors import EngineError
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.warp_specialization import (
    PAPER,
    Derived,
    Measurement,
    Problem,
    Tiling,
    calibrate,
    predict_one,
)
from gpuperf_engine.warp_specialization.table2 import SM_COUNT, rows

MEASURED = [Measurement(row.problem, row.tiling, row.measured) for row in rows()]


def test_the_column_of_the_model() -> None:
    assert len(rows()) == 36
    for row in rows():
        assert predict_one(row.problem, row.tiling, PAPER).total_us == pytest.approx(row.model, rel=1e-9)


def test_the_columns_are_as_they_should_be() -> None:
    """The printed error is (model - measurement) / measurement with the columns as this module has them, to its two decimals, on
    every row; and the model depends on waves and stages alone, which a measurement does not."""
    for row in rows():
        assert 100 * (row.measured - row.model) / row.measured == pytest.approx(row.error_percent, abs=0.0051)
    assert len({row.model for row in rows()}) == 6
    assert len({row.measured for row in rows()}) == 36
    # as published: 4.85 % in the mean, 17.47 % at worst
    errors = [abs(row.error_percent) for row in rows()]
    assert (round(mean(errors), 2), max(errors)) == (4.85, 17.47)


def test_a_fit_to_the_measurements() -> None:
    found = calibrate(MEASURED, SM_COUNT, source="Table 2")
    assert (mean(found.fit), max(found.fit)) == pytest.approx((0.864, 3.223), abs=0.001)
    # each row judged by a fit to the other 35
    assert (mean(found.left_out), max(found.left_out)) == pytest.approx((1.129, 4.120), abs=0.001)


def test_derived_times_beside_the_measurements() -> None:
    """The table names neither a GPU nor a type; an RTX A6000 has as many SMs. ``docs/warp-specialization.md`` prints these errors."""
    machine = load_machine("rtx-a6000")
    assert machine.sm_count == SM_COUNT
    errors = [
        100
        * (
            predict_one(replace(row.problem, dtype="f16"), row.tiling, Derived(machine, "f16")).total_us
            / row.measured
            - 1
        )
        for row in rows()
    ]
    assert (min(errors), max(errors)) == pytest.approx((-52, -5), abs=0.6)
    assert mean(map(abs, errors)) == pytest.approx(26, abs=0.5)


def test_a_row_is_not_judged_by_itself() -> None:
    """A row that is far off spoils its own left-out error, not its influence on it: the fit to the other rows stays what it is."""
    whole = calibrate(MEASURED, SM_COUNT, source="Table 2")
    other = Measurement(MEASURED[7].problem, MEASURED[7].tiling, 2 * MEASURED[7].us)
    spoilt = calibrate([*MEASURED[:7], other, *MEASURED[8:]], SM_COUNT, source="Table 2")
    predicted = [
        us * (1 + error / 100) for us in [MEASURED[7].us] for error in (whole.left_out[7], -whole.left_out[7])
    ]
    assert min(abs(100 * abs(one / other.us - 1) - spoilt.left_out[7]) for one in predicted) < 1e-6


def test_known_coefficients_come_back() -> None:
    """Times worked out by hand from coefficients: loads or MATH limit, with one buffer or more, one DMA warp or two."""
    init, epilogue, element, load, byte, contention, fma = 2.0, 0.5, 1e-5, 0.2, 1e-5, 2e-8, 1e-6
    given = []
    generator = np.random.default_rng(0)
    limited = set()
    for _ in range(60):
        m, n = (int(x) for x in generator.choice([256, 512, 1024, 2048], 2))
        k = int(generator.choice([256, 512, 1024]))
        tm, tn, tk = (int(x) for x in generator.choice([32, 64, 128], 3))
        tiles = (m // tm) * (n // tn)
        waves, stages = -(-tiles // 10), k // tk
        depth, dma = int(generator.integers(1, 4)), int(generator.integers(1, 3))
        of_byte = byte + contention * tiles / waves
        a, b = (load + side * tk * 2 * of_byte for side in (tm, tn))
        loads = a + b if dma == 1 else max(a, b)
        math = tm * tn * tk * fma
        limited.add((math > loads, depth == 1, dma))
        last = loads + (stages - 1) * (loads + math if depth == 1 else max(loads, math))
        us = init + waves * (last + math + epilogue + tm * tn * element)
        given.append(Measurement(Problem(m, n, k, "f16"), Tiling(tm, tn, tk, depth, dma), us))
    assert len(limited) == 8
    found = calibrate(given, 10, source="by hand", multiply_add_us=fma).parameters
    numbers = (
        found.init_us,
        found.epilogue_us,
        found.element_us,
        found.load_us,
        found.byte_us,
        found.contention_us,
    )
    assert numbers == pytest.approx((init, epilogue, element, load, byte, contention), rel=1e-6)


def test_too_few_measurements() -> None:
    with pytest.raises(EngineError, match="6 measurements cannot fix 6 coefficients"):
        calibrate(MEASURED[:6], SM_COUNT, source="Table 2")
    wrong = [*MEASURED[:6], Measurement(Problem(1, 1, 1), Tiling(64, 64, 64), 0.0)]
    with pytest.raises(EngineError, match="64x64x64 took 0 us"):
        calibrate(wrong, SM_COUNT, source="Table 2")
