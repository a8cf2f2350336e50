"""The CUDA math library as nvcc puts it into kernels: within its documented error of the exact value, on both backends alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from .bounds import BESSEL, BINARY, FAST, UNARY
from .running import Array, run

POINTS = 64
WIDTHS = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])


def _points(low: float, high: float, dtype: Any) -> Array:
    """Points of both magnitudes and places: evenly, and crowded towards zero where the range allows."""
    even = np.linspace(low, high, POINTS // 2)
    top = max(abs(low), abs(high))
    least = low if low > 0 else top * 1e-6
    crowded = np.geomspace(max(least, 1e-30), top, POINTS // 2)
    crowded[::2] *= -1 if low < 0 else 1
    points: Array = np.clip(np.concatenate([even, crowded]), low, high).astype(dtype)
    points[np.abs(points) > top] = top / 2
    inside = (points.astype(np.float64) >= low) & (points.astype(np.float64) <= high)
    return np.where(inside, points, dtype((low + high) / 2)).astype(dtype)


def _error(found: Any, exact: mpf) -> float:
    """Distance from the exact value rounded to the type, in its units in the last place, as the guide counts."""
    if mpmath.isinf(exact) or not np.isfinite(found):
        return 0.0 if float(found) == float(exact) else math.inf
    nearest = type(found)(exact)
    if not np.isfinite(nearest):
        return 0.0 if found == nearest else math.inf
    return float(abs(mpf(float(found)) - mpf(float(nearest))) / mpf(float(np.spacing(np.abs(nearest)))))


def _file(dtype: Any) -> tuple[str, str]:
    return ("math_single", "f") if dtype is np.float32 else ("math_double", "")


def _check(found: Array, arguments: tuple[Array, ...], exact: Callable[..., Any], bound: float) -> None:
    for place, value in enumerate(found):
        given = [float(argument[place]) for argument in arguments]
        error = _error(value, exact(*map(mpf, given)))
        assert error <= bound, f"{given}: {value!r} is {error:.2f} ulp off"


@WIDTHS
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: Any) -> None:
    exact, single, double, low, high = UNARY[name]
    file, suffix = _file(dtype)
    x = _points(low, high, dtype)
    (_, found), _ = run(file, f"k_{name}{suffix}", 2, POINTS // 2, [x, np.zeros_like(x)])
    _check(found, (x,), exact, single if dtype is np.float32 else double)


@WIDTHS
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: Any) -> None:
    exact, single, double = BINARY[name]
    file, suffix = _file(dtype)
    x, y = _points(0.01, 20, dtype), _points(-8, 8, dtype)[::-1].copy()
    (_, _, found), _ = run(file, f"k_{name}{suffix}", 2, POINTS // 2, [x, y, np.zeros_like(x)])
    _check(found, (x, y), exact, single if dtype is np.float32 else double)


@WIDTHS
@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name: str, dtype: Any) -> None:
    exact, single, double = BESSEL[name]
    file, suffix = _file(dtype)
    x = np.linspace(2.5, 30, POINTS).astype(dtype)
    (_, _, found), _ = run(file, f"k_{name}{suffix}", 2, POINTS // 2, [x, x, np.zeros_like(x)])
    expected = np.array([float(exact(mpf(float(value)))) for value in x])
    np.testing.assert_allclose(found, expected, rtol=0, atol=single if dtype is np.float32 else double)


@pytest.mark.parametrize("name", FAST)
def test_fast(name: str) -> None:
    exact, absolute, ulp, low, high = FAST[name]
    x = _points(low, high, np.float32)
    (_, found), _ = run("math_single", f"k_{name}", 2, POINTS // 2, [x, np.zeros_like(x)])
    for given, value in zip(x, found, strict=True):
        want = exact(mpf(float(given)))
        assert abs(mpf(float(value)) - want) <= absolute or _error(value, want) <= ulp, (
            f"{given}: {value!r}, not {want}"
        )


# Exact functions: NumPy and Python have them.

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.999,
    -7.25,
    8388607.5,
    1e10,
    -1e10,
    1e-40,
    -1e-40,
    1e-45,
    1e-310,
    5e-324,
    3.4e38,
    1e300,
    math.inf,
    -math.inf,
    math.nan,
    0.49999997,
    4503599627370495.5,
    123.456,
    -123.456,
    65504.0,
    1e-7,
    7.0,
    -3.0,
]
EXACT: dict[str, Callable[[Any], Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "fabs": np.abs,
    "round": lambda x: np.copysign(np.trunc(np.abs(x)) + (np.abs(x) - np.trunc(np.abs(x)) >= 0.5), x),
    "logb": lambda x: np.array([_logb(float(value)) for value in x], x.dtype),
}


def _logb(value: float) -> float:
    if value == 0:
        return -math.inf
    if math.isinf(value) or math.isnan(value):
        return abs(value)
    return math.frexp(value)[1] - 1.0


def _same(found: Array, expected: Array) -> None:
    """Equal bits, any NaN for a NaN."""
    bits = f"u{found.dtype.itemsize}"
    nan = np.isnan(found) & np.isnan(expected) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
    wrong = ~(nan | (found.view(bits) == expected.astype(found.dtype).view(bits)))
    assert not wrong.any(), f"{found[wrong]} is not {expected[wrong]} at {np.flatnonzero(wrong)}"


def _special(dtype: Any) -> Array:
    with np.errstate(over="ignore"):
        return np.array(SPECIAL, dtype)


@WIDTHS
@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str, dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = _special(dtype)
    (_, found), _ = run(file, f"k_{name}{suffix}", 1, len(x), [x, np.zeros_like(x)])
    with np.errstate(all="ignore"):
        _same(found, EXACT[name](x))


PAIRED: dict[str, Callable[[Any, Any], Any]] = {
    "copysign": np.copysign,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "nextafter": np.nextafter,
    "remainder": lambda x, y: np.array([_remainder(float(a), float(b))[0] for a, b in zip(x, y)]),
}


def _remainder(a: float, b: float) -> tuple[float, int]:
    """IEEE remainder and the quotient's low bits with its sign."""
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan, 0
    if math.isinf(b):
        return a, 0
    with mpmath.workprec(3000):
        quotient = int(mpmath.nint(mpf(a) / mpf(b)))
    return math.remainder(a, b), (abs(quotient) & 7) * (-1 if (a < 0) != (b < 0) else 1)


def _pairs(dtype: Any) -> tuple[Array, Array]:
    values = _special(dtype)
    values = values[
        ~np.isfinite(values) | (np.abs(values) < 1e12) & ((np.abs(values) > 1e-8) | (values == 0))
    ]
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    whole = len(x) // 64 * 64
    return x[:whole].copy(), y[:whole].copy()


@WIDTHS
@pytest.mark.parametrize("name", PAIRED)
def test_paired(name: str, dtype: Any) -> None:
    file, suffix = _file(dtype)
    x, y = _pairs(dtype)
    keep = ~((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y)))  # fmax(+0, -0) is either
    (_, _, found), _ = run(file, f"k_{name}{suffix}", len(x) // 64, 64, [x, y, np.zeros_like(x)])
    with np.errstate(all="ignore"):
        _same(found[keep], PAIRED[name](x, y).astype(dtype)[keep])


@WIDTHS
def test_classes(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = _special(dtype)
    for name in ("isfinite", "isinf", "isnan", "signbit"):
        expected = getattr(np, name)(x)
        (_, _, found), _ = run(file, f"k_{name}", 1, len(x), [x, x, np.zeros(len(x), np.int32)])
        assert (found.astype(bool) == expected).all(), name
    (_, _, found), _ = run(file, f"k_ilogb{suffix}", 1, len(x), [x, x, np.zeros(len(x), np.int32)])
    for value, exponent in zip(x.tolist(), found.tolist(), strict=True):
        if value == 0 or math.isnan(value):
            assert exponent == -(2**31)
        elif math.isinf(value):
            assert exponent == 2**31 - 1
        else:
            assert exponent == math.frexp(value)[1] - 1


@WIDTHS
def test_taking_apart(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = _special(dtype)
    x = x[np.isfinite(x)]
    zeros = np.zeros_like(x)
    (_, fraction, exponent), _ = run(
        file, f"k_frexp{suffix}", 1, len(x), [x, zeros, np.zeros(len(x), np.int32)]
    )
    expected = np.frexp(x)
    _same(fraction, expected[0])
    _same(exponent, expected[1])
    (_, fraction, whole), _ = run(file, f"k_modf{suffix}", 1, len(x), [x, zeros, zeros])
    expected = np.modf(x)
    _same(fraction, expected[0])
    _same(whole, expected[1])


@WIDTHS
def test_remquo(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x, y = _pairs(dtype)
    arrays = [x, y, np.zeros_like(x), np.zeros(len(x), np.int32)]
    (_, _, rest, quotient), _ = run(file, f"k_remquo{suffix}", len(x) // 64, 64, arrays)
    wanted = [_remainder(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    _same(rest, np.array([item[0] for item in wanted], dtype))
    finite = ~np.isnan(rest)
    assert (np.abs(quotient[finite]) % 8 == np.abs(np.array([item[1] for item in wanted]))[finite]).all()


@WIDTHS
def test_scaling(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = np.repeat(np.array([1.5, -3.0, 0.0, -0.0, 1e-40, 7.0, math.inf, 1.25], dtype), 8)
    y = np.tile(np.array([0, 1, -1, 100, -100, 150, -150, 3000], dtype), 8)
    for name in ("ldexp", "scalbn"):
        (_, _, found), _ = run(file, f"k_{name}{suffix}", 2, 32, [x, y, np.zeros_like(x)])
        with np.errstate(all="ignore"):
            exact = np.array([dtype(_ldexp(float(a), int(b))) for a, b in zip(x, y, strict=True)])
        _same(found, exact)


def _ldexp(a: float, b: int) -> float:
    if a == 0 or math.isinf(a):
        return a
    try:
        return math.ldexp(a, b)
    except OverflowError:
        return math.copysign(math.inf, a)


@WIDTHS
def test_sine_and_cosine(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = _points(-1e5, 1e5, dtype)
    for name, sine, cosine in (("sincos", mpmath.sin, mpmath.cos), ("sincospi", mpmath.sinpi, mpmath.cospi)):
        (_, one, other), _ = run(
            file, f"k_{name}{suffix}", 2, POINTS // 2, [x, np.zeros_like(x), np.zeros_like(x)]
        )
        _check(one, (x,), sine, 2)
        _check(other, (x,), cosine, 2)


@WIDTHS
def test_rounding_to_integers(dtype: Any) -> None:
    file, suffix = _file(dtype)
    x = _special(dtype)
    x = x[np.abs(x) < 1e9]
    nearest = np.rint(x.astype(np.float64)).astype(np.int64)
    away = np.array(
        [math.floor(abs(v) + 0.5) * (1 if v >= 0 else -1) if abs(v) != 0.49999997 else 0 for v in x.tolist()],
        np.int64,
    )
    for name, expected in ((f"lrint{suffix}", nearest), (f"lround{suffix}", away)):
        (_, _, found), _ = run(file, f"k_{name}", 1, len(x), [x, x, np.zeros(len(x), np.int64)])
        small = np.abs(x) < 1e6
        assert (found[small] == expected[small]).all()


def test_norms_of_vectors() -> None:
    x = np.linspace(-3, 4, 5 * 32).astype(np.float32)
    (_, found), _ = run("math_single", "k_normf", 1, 32, [x, np.zeros(64, np.float32)])
    norm = np.sqrt((x.reshape(32, 5).astype(np.float64) ** 2).sum(1))
    np.testing.assert_allclose(found[::2], norm, rtol=1e-6)
    np.testing.assert_allclose(found[1::2], 1 / norm, rtol=1e-6)
