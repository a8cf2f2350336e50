"""The model's L1 beside measured strided loads: where it is near, and where it is known not to be."""

from __future__ import annotations

from statistics import mean

import pytest

from tests.timing.strides import GROUPS, measured, predicted, sectors


@pytest.mark.parametrize(
    ("label", "gpu", "least", "most"),
    [
        ("strides 0, 1, 2, 4, 8", "a100", 0.0, 0.12),
        ("strides 0, 1, 2, 4, 8", "h200", 0.0, 0.12),
        ("strides 0, 1, 2, 4, 8", "a40", 0.5, 0.7),
        ("strides 16, 32, 64", "a100", 0.6, 0.75),
        ("all others", "a100", 0.25, 0.4),
    ],
)
def test_mean_error(label: str, gpu: str, least: float, most: float) -> None:
    """``docs/accuracy.md`` prints these; what is above 12 % is a known fault of the model, not an aim."""
    rows = [row for row in measured() if GROUPS[label](row) and row.gpu == gpu]
    assert len(rows) >= 5
    assert least <= mean(abs(predicted(row) / row.cycles - 1) for row in rows) <= most


def test_sectors_of_a_warp() -> None:
    assert [sectors(stride, 4) for stride in (0, 1, 2, 3, 8, 9)] == [1, 4, 8, 12, 32, 32]
    assert [sectors(stride, 8) for stride in (0, 1, 2, 4)] == [1, 8, 16, 32]
