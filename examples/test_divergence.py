"""Lanes that go their own ways: Collatz lengths, the Mandelbrot set, interpreted expressions, a slow path."""

import numpy as np
import pytest


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "rtx-4090"])
@pytest.mark.parametrize("n", [1 << 16, 1000])
def test_collatz(gpuperf, n):
    length = gpuperf.empty(n, np.uint32)

    collatz = gpuperf.kernel("kernels/collatz.ptx", entry="collatz")
    collatz[(n + 255) // 256, 256](np.uint32(n), length)

    left, value, steps = np.arange(n), np.arange(1, n + 1), np.zeros(n, np.uint32)
    while (running := value > 1).any():
        left, value = left[running], value[running]
        steps[left] += 1
        value = np.where(value & 1, 3 * value + 1, value >> 1)
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


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_carrier(gpuperf):
    """One phase in eight is large: its lane calls the long argument reduction while the others wait."""
    n, omega = 10_000, 6.25
    rng = np.random.default_rng(19)
    host = rng.random(n) * np.where(rng.random(n) < 1 / 8, 1e15, 1e2)
    t, y = gpuperf.array(host), gpuperf.empty(n, np.float64)

    carrier = gpuperf.kernel("kernels/carrier.ptx", entry="carrier")
    carrier[(n + 127) // 128, 128](np.int32(n), np.float64(omega), t, y)

    np.testing.assert_allclose(y.numpy(), np.sin(omega * host), rtol=1e-15, atol=2e-16)


INSTRUCTION = np.dtype([("operation", np.int32), ("constant", np.float32)])
CONSTANT, VARIABLE, ADD, SUBTRACT, MULTIPLY = range(5)


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_expressions(gpuperf):
    """A population of polynomials by Horner's rule, each with its own degree, interpreted one per thread."""
    count, x = 5000, np.float32(0.7)
    rng = np.random.default_rng(20)
    coefficients = [rng.standard_normal(rng.integers(1, 12)) for _ in range(count)]
    code, starts = [], [0]
    for first, *rest in coefficients:
        code.append((CONSTANT, first))
        for coefficient in rest:
            code += [(VARIABLE, 0), (MULTIPLY, 0), (CONSTANT, coefficient), (ADD, 0)]
        starts.append(len(code))
    instructions, values = gpuperf.array(np.array(code, INSTRUCTION)), gpuperf.empty(count, np.float32)

    evaluate = gpuperf.kernel("kernels/expressions.ptx", entry="evaluate")
    first = gpuperf.array(np.array(starts, np.int32))
    evaluate[(count + 127) // 128, 128](np.int32(count), first, instructions, x, values)

    expected = [np.polyval(polynomial, 0.7) for polynomial in coefficients]
    np.testing.assert_allclose(values.numpy(), expected, rtol=1e-4, atol=1e-5)
