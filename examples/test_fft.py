"""A batch of 512-point Fourier transforms in double precision."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
@pytest.mark.parametrize("batch", [64, 3])
def test_fft512(gpuperf, batch):
    rng = np.random.default_rng(14)
    host = rng.standard_normal((batch, 512)) + 1j * rng.standard_normal((batch, 512))
    data = gpuperf.array(host.view(np.float64))  # pairs of doubles, as double2 lies in memory

    fft512 = gpuperf.kernel("kernels/fft512.ptx", entry="fft512")
    fft512[batch, 64](data)

    np.testing.assert_allclose(data.numpy().view(np.complex128), np.fft.fft(host), rtol=1e-10, atol=1e-11)
