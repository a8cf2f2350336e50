import numpy as np
import pytest
from histograms import histogram, running_totals


@pytest.mark.parametrize("count", [1000, 4096])
def test_histogram(count):
    values = np.random.default_rng(0).integers(0, 256, count, np.uint8)
    np.testing.assert_array_equal(histogram(values), np.bincount(values, minlength=256))


def test_one_value():
    counts = histogram(np.full(512, 7, np.uint8))
    assert counts[7] == 512 and counts.sum() == 512


@pytest.mark.parametrize("count", [128, 1000])
def test_running_totals(count):
    values = np.arange(count, dtype=np.float32) % 8
    np.testing.assert_array_equal(running_totals(values), np.cumsum(values))
