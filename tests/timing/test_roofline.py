"""Predictions beside kernels that were measured from DRAM-bound to bound by single-precision arithmetic."""

from __future__ import annotations

from statistics import mean

import pytest

from tests.timing.roofline import MACHINES, measured, predicted


@pytest.mark.parametrize(
    ("gpu", "memory", "arithmetic"),
    [("a100_40", 0.15, 0.08), ("a40", 0.02, 0.10), ("h200", 0.02, 0.13), ("l40", 0.02, 0.11)],
)
def test_mean_error(gpu: str, memory: float, arithmetic: float) -> None:
    """``docs/accuracy.md`` prints these; no machine description takes a number from these rows."""
    for bound, most in (("memory", memory), ("arithmetic", arithmetic)):
        # every fifth row: the whole table is the accuracy page's
        rows = [row for row in measured() if row.gpu == gpu and row.bound == bound][::5]
        assert rows
        found = mean(abs(row.rate / predicted(row) - 1) for row in rows)
        assert most - 0.02 < found < most, (bound, found)


def test_the_rows() -> None:
    rows = list(measured())
    assert len(rows) == 123 and {row.gpu for row in rows} == set(MACHINES)
