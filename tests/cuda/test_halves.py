"""Half precision, bfloat16 and 8-bit floats against exact arithmetic rounded by ml_dtypes and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .running import Array, run

FILE = "halves"
N = 64
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    2.0,
    3.0,
    -7.0,
    100.0,
    0.1,
    -0.3,
    65504.0,
    -65504.0,
    1e-4,
    -6e-5,
    6e-8,
    np.inf,
    -np.inf,
    np.nan,
    0.999,
    10.25,
    -11.5,
    0.0625,
    2048.0,
    4.75,
    -0.75,
    12.0,
    1000.0,
    0.007,
    -9.5,
]
KINDS = pytest.mark.parametrize("kind", ["half", "bfloat"])


def _dtype(kind: str) -> Any:
    return np.dtype(np.float16 if kind == "half" else ml_dtypes.bfloat16)


def _inputs(kind: str) -> tuple[Array, Array, Array]:
    values = np.array(FLOATS).astype(_dtype(kind))
    positive = np.abs(np.nan_to_num(np.array(FLOATS), nan=3.0, posinf=9.0, neginf=5.0)).astype(_dtype(kind))
    return (
        np.concatenate([values, values[::-1]]),
        np.concatenate([np.roll(values, 5), values]),
        np.concatenate([positive, positive]),
    )


def _clamp(x: Array) -> Array:
    return np.where(np.isnan(x), 0, np.clip(x, 0, 1))


def _largest(x: Array, y: Array, pick: Any, spread: bool) -> Array:
    result = pick(x, y)
    tie = x == y  # −0 is below +0
    result = np.where(
        tie & (np.signbit(x) | np.signbit(y)),
        np.where(pick(1, 0) == 1, np.where(np.signbit(x), y, x), np.where(np.signbit(x), x, y)),
        result,
    )
    return np.where(np.isnan(x) | np.isnan(y), np.nan, result) if spread else result


ARITHMETIC: list[Callable[[Array, Array, Array], Array]] = [
    lambda a, b, c: a + b,
    lambda a, b, c: a - b,
    lambda a, b, c: a * b,
    lambda a, b, c: a / b,
    lambda a, b, c: a * b + c,
    lambda a, b, c: _clamp(a + b),
    lambda a, b, c: _clamp(a - b),
    lambda a, b, c: _clamp(a * b),
    lambda a, b, c: _clamp(a * b + c),
    lambda a, b, c: a + b,
    lambda a, b, c: a * b,
    lambda a, b, c: np.where(a * b + c > 0, a * b + c, np.where(np.isnan(a * b + c), np.nan, 0)),
    lambda a, b, c: -a,
    lambda a, b, c: np.abs(a),
    lambda a, b, c: _largest(a, b, np.fmax, False),
    lambda a, b, c: _largest(a, b, np.fmin, False),
    lambda a, b, c: _largest(a, b, np.fmax, True),
    lambda a, b, c: _largest(a, b, np.fmin, True),
]
UNORDERED = lambda x, y: np.isnan(x) | np.isnan(y)  # noqa: E731
FLAGS: list[Callable[[Array, Array], Array]] = [
    lambda a, b: a == b,
    lambda a, b: (a != b) & ~UNORDERED(a, b),
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: (a == b) | UNORDERED(a, b),
    lambda a, b: (a != b) | UNORDERED(a, b),
    lambda a, b: (a < b) | UNORDERED(a, b),
    lambda a, b: (a >= b) | UNORDERED(a, b),
    lambda a, b: np.isnan(a),
    lambda a, b: np.isinf(a),
]
ROUNDINGS = [np.ceil, np.floor, np.rint, np.trunc]
FUNCTIONS: list[tuple[str, Callable[[Array, Array], Array]]] = [
    ("sqrt", lambda a, c: np.sqrt(c)),
    ("rsqrt", lambda a, c: 1 / np.sqrt(c)),
    ("rcp", lambda a, c: 1 / c),
    ("exp", lambda a, c: np.exp(a)),
    ("exp2", lambda a, c: np.exp2(a)),
    ("exp10", lambda a, c: 10.0**a),
    ("log", lambda a, c: np.log(c)),
    ("log2", lambda a, c: np.log2(c)),
    ("log10", lambda a, c: np.log10(c)),
    ("sin", lambda a, c: np.sin(a)),
    ("cos", lambda a, c: np.cos(a)),
    ("tanh", lambda a, c: np.tanh(a)),
]


def _bits(values: Array) -> Array:
    return values.view(np.uint16)


def _steps(values: Array) -> Array:
    """Numbers in order of magnitude, one apart for neighbours."""
    raw = _bits(values).astype(np.int64)
    return np.where(raw & 0x8000, -(raw & 0x7FFF), raw)


@KINDS
def test_single(kind: str) -> None:
    dtype = _dtype(kind)
    x, y, z = _inputs(kind)
    count = len(ARITHMETIC) + len(FLAGS) + len(ROUNDINGS) + len(FUNCTIONS)
    arrays = [_bits(x), _bits(y), _bits(z), np.zeros((count, N), np.uint16)]
    (*_, out), _ = run(FILE, f"{kind}_single", 2, 32, arrays)
    a, b, c = (v.astype(np.float64) for v in (x, y, z))
    with np.errstate(all="ignore"):
        for place, exact in enumerate(ARITHMETIC):
            want, found = exact(a, b, c).astype(dtype), out[place].view(dtype)
            same = (
                (_bits(want) == out[place])
                | (np.isnan(want) & np.isnan(found))
                | ((want == 0) & (found == 0))
            )
            assert same.all(), (
                f"{place}: {a[~same]}, {b[~same]}, {c[~same]}: {found[~same]}, not {want[~same]}"
            )
        for place, holds in enumerate(FLAGS, len(ARITHMETIC)):
            assert (out[place] == holds(a, b)).all(), place
        start = len(ARITHMETIC) + len(FLAGS)
        for place, function in enumerate(ROUNDINGS, start):
            want, found = function(a).astype(dtype), out[place].view(dtype)
            assert ((want == found) | (np.isnan(want) & np.isnan(found))).all(), place
        for place, (name, near) in enumerate(FUNCTIONS, start + len(ROUNDINGS)):
            want, found = near(a, c).astype(dtype), out[place].view(dtype)
            same = (np.isnan(want) & np.isnan(found)) | (
                np.abs(_steps(want) - _steps(found)) <= 2
            )  # within two units in the last place
            if name in ("sin", "cos"):
                same |= ~np.isfinite(a) | (np.abs(a) > 1000)
            assert same.all(), f"{name}: {a[~same]}, {c[~same]}: {found[~same]}, not {want[~same]}"


@KINDS
def test_pairs(kind: str) -> None:
    """Each half of a pair as the single operation gives it."""
    dtype = _dtype(kind)
    x, y, z = _inputs(kind)
    arrays = [_bits(v).view(np.uint32) for v in (x, y, z)]
    (*_, out), _ = run(FILE, f"{kind}_pairs", 1, 32, [*arrays, np.zeros((44, 32), np.uint32)])
    halves = out.view(np.uint16)
    a, b, c = (v.astype(np.float64) for v in (x, y, z))
    order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13]
    with np.errstate(all="ignore"):
        for place, number in enumerate(order):
            want, found = ARITHMETIC[number](a, b, c).astype(dtype), halves[place].view(dtype)
            same = (want == found) | (np.isnan(want) & np.isnan(found))
            assert same.all(), (
                f"{place}: {a[~same]}, {b[~same]}, {c[~same]}: {found[~same]}, not {want[~same]}"
            )
        one = np.array(1).astype(dtype)
        for place, holds in ((17, FLAGS[0]), (18, FLAGS[1]), (19, FLAGS[2])):
            assert (halves[place].view(dtype) == np.where(holds(a, b), one, 0 * one)).all()
        assert (halves[22] == np.where(a == b, 0xFFFF, 0)).all()
        assert (halves[23] == np.where(FLAGS[8](a, b), 0xFFFF, 0)).all()
        assert (out[24] == (a >= b).reshape(-1, 2).all(1)).all()
        assert (out[25] == FLAGS[7](a, b).reshape(-1, 2).all(1)).all()


def test_eight_bits() -> None:
    x = np.array([v for v in FLOATS if not np.isnan(v)] + [448.0], np.float32)
    (_, out), _ = run(FILE, "eight_bits", 1, 32, [x, np.zeros((10, 32), np.uint32)])
    for place, dtype, top in ((0, ml_dtypes.float8_e4m3fn, 448.0), (1, ml_dtypes.float8_e5m2, 57344.0)):
        exact = np.clip(x, -top, top).astype(dtype)  # the constructors saturate
        assert (out[place] == exact.view(np.uint8)).all()
        assert (out[place + 2].view(np.float32) == exact.astype(np.float32)).all()
    pair = np.stack(
        [np.clip(v, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for v in (x, -x)]
    ).astype(np.uint32)
    assert (out[4] == (pair[0] | pair[1] << 8)).all()


def test_bfloat_conversions() -> None:
    x = np.array(FLOATS, np.float32)
    (_, out), _ = run(FILE, "bfloat_conversions", 1, 32, [x, np.zeros((12, 32), np.uint32)])
    finite = np.isfinite(x)
    nearest = x.astype(ml_dtypes.bfloat16)
    raw = x.view(np.uint32)
    cut = raw >> 16
    up = cut + (raw & 0xFFFF != 0)
    negative = np.signbit(x)
    for place, want in enumerate(
        [
            nearest.view(np.uint16),
            cut,
            np.where(negative, up, cut),
            np.where(negative, cut, up),
            nearest.view(np.uint16),
        ]
    ):
        assert (out[place] == want)[finite].all(), place
    assert (out[5].view(np.float32) == nearest.astype(np.float32))[~np.isnan(x)].all()
