"""Loops whose trip counts differ from lane to lane: Collatz lengths and the Mandelbrot set."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])
@pytest.mark.parametrize("n", [1 << 16, 1000])
def test_collatz(gpuperf, n):
    length = gpuperf.empty(n, np.uint32)

    collatz = gpuperf.kernel("kernels/collatz.ptx", entry="collatz")
    collatz[(n + 255) // 256, 256](np.uint32(n), length)

    value, steps = np.arange(1, n + 1), np.zeros(n, np.uint32)
    while (running := value > 1).any():
        steps += running
        value = np.where(value % 2 == 0, value // 2, np.where(running, 3 * value + 1, value))
    np.testing.assert_array_equal(length.numpy(), steps)


# struct View of mandelbrot.cu, which the kernel takes by value.
VIEW = np.dtype(
    [
        ("left", np.float32),
        ("top", np.float32),
        ("dx", np.float32),
        ("dy", np.float32),
        ("width", np.int32),
        ("height", np.int32),
        ("max_iterations", np.int32),
    ]
)


def escape_times(view):
    """In double precision: near the border of the set single precision may escape a step earlier or later."""
    c = view["left"] + view["dx"] * np.arange(view["width"], dtype=np.float64)
    c = c + 1j * (view["top"] + view["dy"] * np.arange(view["height"], dtype=np.float64))[:, None]
    z, times, inside = np.zeros_like(c), np.zeros(c.shape, np.int32), np.ones(c.shape, np.bool_)
    for _ in range(view["max_iterations"]):
        inside &= z.real**2 + z.imag**2 <= 4
        times += inside
        z[inside] = z[inside] ** 2 + c[inside]
    return times


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])
@pytest.mark.parametrize(("width", "height"), [(320, 240), (101, 33)])
def test_mandelbrot(gpuperf, width, height):
    view = np.array([(-2.1, -1.2, 2.8 / width, 2.4 / height, width, height, 200)], VIEW)[0]
    times = gpuperf.empty((height, width), np.int32)

    mandelbrot = gpuperf.kernel("kernels/mandelbrot.ptx", entry="mandelbrot")
    mandelbrot[((width + 15) // 16, (height + 15) // 16), (16, 16)](view, times)

    assert np.mean(times.numpy() != escape_times(view)) < 0.01
