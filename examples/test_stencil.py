"""Heat diffusion on a grid, a five-point stencil, several steps between two fields."""

import numpy as np
import pytest


def heat_step(field):
    around = field[1:-1, :-2] + field[1:-1, 2:] + field[:-2, 1:-1] + field[2:, 1:-1]
    after = field.copy()
    after[1:-1, 1:-1] = 0.5 * field[1:-1, 1:-1] + 0.125 * around
    return after


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])
@pytest.mark.parametrize(("width", "height"), [(512, 512), (301, 77)])
@pytest.mark.parametrize("entry", ["heat_step", "heat_step_shared"])
def test_heat(gpuperf, entry, width, height):
    host = np.random.default_rng(9).random((height, width), np.float32)
    now, after = gpuperf.array(host), gpuperf.empty((height, width), np.float32)

    step = gpuperf.kernel("kernels/stencil.ptx", entry=entry)
    expected = host.astype(np.float64)
    for _ in range(4):
        step[((width + 31) // 32, (height + 7) // 8), (32, 8)](np.int32(width), np.int32(height), now, after)
        now, after = after, now
        expected = heat_step(expected)

    np.testing.assert_allclose(now.numpy(), expected, rtol=1e-5)
