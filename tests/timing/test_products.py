"""The products that are written for the tests compute what they should; how long they are predicted to take is in
``test_simulation.py``."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.timing import products


@pytest.mark.parametrize("stage", range(1, 12))
def test_each_stage_is_the_product(stage: int) -> None:
    size = 128 if stage > 4 else 64
    rng = np.random.default_rng(stage)
    a, b, c = (rng.standard_normal((size, size), np.float32) for _ in range(3))
    device = ge.Device()
    result = device.array(c)
    grid, block = products.shape(stage, size)
    given = [device.array(a), device.array(b), result, np.uint32(size), np.float32(2), np.float32(0.5)]
    device.launch(products.kernel(stage), grid=grid, block=block, args=given)
    expected = 2 * a.astype(np.float64) @ b + 0.5 * c
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-3)
