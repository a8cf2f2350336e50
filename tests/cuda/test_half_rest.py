"""Half precision and bfloat16: conversions from and to integers, comparisons, moves; exact fractions and NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .running import Array, run

FILE = "half_rest"
KINDS = pytest.mark.parametrize("kind", ["half", "bfloat"])
MODES = ("rn", "rz", "rd", "ru")
#: of the formats: bits of precision, largest exponent
FORMATS = {"half": (11, 15), "bfloat": (8, 127)}


def dtype(kind: str) -> Any:
    return np.dtype(np.float16 if kind == "half" else ml_dtypes.bfloat16)


def numbers(kind: str) -> Array:
    """64 patterns: near integers and their limits, small, special."""
    values = [
        0.0, -0.0, 0.25, -0.25, 0.5, -0.5, 0.75, 1.5, -1.5, 2.5, -2.5, 3.5, 7.0, -7.0, 100.5, 127.0, 127.5, 128.0, -128.0, -129.0,
        255.0, 255.5, 256.0, 1000.5, -1000.5, 2047.0, 2048.0, 32752.0, 32768.0, -32768.0, 65504.0, -65504.0, 6e-8, -6e-8, 1e-4,
        2147483648.0, -2147483648.0, 4294967296.0, 9.3e18, -9.3e18, 1.9e19, 1e30, math.inf, -math.inf, math.nan,
    ]  # fmt: skip
    with np.errstate(over="ignore"):
        made = np.array(values).astype(dtype(kind))
    rng = np.random.default_rng(5)
    more = rng.integers(0, 1 << 16, 64 - len(made)).astype(np.uint16).view(dtype(kind))
    return np.concatenate([made, more]).view(np.uint16)


def whole(value: Fraction, mode: str) -> int:
    down = math.floor(value)
    rest = value - down
    if mode == "rn":
        return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1))
    if mode == "rz":
        return down + (value < 0 and rest > 0)
    return down + (mode == "ru" and rest > 0)


#: bits, signed, roundings; conversions to 8 bits have one
INTEGERS = [(32, True, MODES), (32, False, MODES), (16, True, MODES), (16, False, MODES), (64, True, MODES), (64, False, MODES),
            (8, True, ("rz",)), (8, False, ("rz",))]  # fmt: skip


def limited(value: float, bits: int, signed: bool, mode: str, kind: str) -> int:
    """NaN gives 0, or the top bit alone to 64 bits; else the nearest of the range (CUDA Math API, "Half Precision Conversion")."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if math.isnan(value):
        return (1 << 63) - (1 << 64) * signed if bits == 64 else 0
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, whole(Fraction(value), mode)))


@KINDS
def test_to_integers(kind: str) -> None:
    x = numbers(kind)
    (_, out), _ = run(FILE, f"{kind}_to_integers", 2, 32, [x, np.zeros((26, 64), np.uint64)])
    place = 0
    for bits, signed, modes in INTEGERS:
        for mode in modes:
            for value, found in zip(x.view(dtype(kind)).astype(float).tolist(), out[place].tolist()):
                want = limited(value, bits, signed, mode, kind) & (1 << 64) - 1
                assert found == want, (
                    f"{value!r} to {'s' if signed else 'u'}{bits} {mode}: {found:#x}, not {want:#x}"
                )
            place += 1
    assert place == 26


WHOLE = [
    0, 1, -1, 2, 3, 127, -128, 255, 256, 257, 259, 2047, 2049, 2051, -2049, 4097, 32767, -32768, 65503, 65504, 65519, 65520,
    65535, -65520,
    70000,
    1 << 24, (1 << 24) + 1, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, (1 << 63) - 1, -(1 << 63),
]  # fmt: skip


def rounded(value: int, kind: str, mode: str) -> int:
    """The pattern of an integer in a format; overflow by the mode (IEEE 754, section 7.4)."""
    precision, most = FORMATS[kind]
    sign = 0x8000 if value < 0 else 0
    size = abs(value)
    if size == 0:
        return 0
    exponent = size.bit_length() - 1
    up = {"rn": "rn", "rz": "rz", "rd": "ru" if sign else "rz", "ru": "rz" if sign else "ru"}[mode]
    steps = whole(Fraction(size) / Fraction(2) ** (exponent - precision + 1), up)
    if steps >> precision:
        steps, exponent = steps >> 1, exponent + 1
    infinity = (2 * most + 1) << (precision - 1)
    if exponent > most:
        return sign | (infinity if up in ("rn", "ru") else infinity - 1)
    return sign | (exponent + most) << (precision - 1) | steps & ((1 << precision - 1) - 1)


def cut(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


@KINDS
def test_from_integers(kind: str) -> None:
    x = np.array(WHOLE, np.int64)
    (_, out), _ = run(FILE, f"{kind}_from_integers", 1, 32, [x, np.zeros((24, 32), np.uint64)])
    place = 0
    for bits, signed, _ in INTEGERS[:6]:
        for mode in MODES:
            for value, found in zip(WHOLE, out[place].tolist()):
                want = rounded(cut(value, bits, signed), kind, mode)
                assert found == want, (
                    f"{value} as {'s' if signed else 'u'}{bits} {mode}: {found:#x}, not {want:#x}"
                )
            place += 1


COMPARISONS: list[Callable[[Array, Array], Array]] = [
    lambda a, b: a == b,
    lambda a, b: (a < b) | (a > b),
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]


@KINDS
def test_comparisons(kind: str) -> None:
    x = numbers(kind)
    y = np.concatenate([x[:16], np.roll(x, 3)[16:]])
    (_, _, out), _ = run(
        FILE, f"{kind}_compare", 1, 32, [x.view(np.uint32), y.view(np.uint32), np.zeros((38, 32), np.uint32)]
    )
    a, b = (v.view(dtype(kind)).astype(np.float64) for v in (x, y))
    unordered = np.isnan(a) | np.isnan(b)
    truths = [holds(a, b) & ~unordered for holds in COMPARISONS]
    truths += [truth | unordered for truth in truths]
    one = np.array(1).astype(dtype(kind)).view(np.uint16)
    for place, truth in enumerate(truths):
        assert (out[place].view(np.uint16) == np.where(truth, one, 0)).all(), place
        assert (out[12 + place].view(np.uint16) == np.where(truth, 0xFFFF, 0)).all(), place
        assert (out[24 + place] == truth.reshape(-1, 2).all(1)).all(), place
    assert (out[36] == truths[9].reshape(-1, 2)[:, 0]).all()
    assert (out[37] == truths[10].reshape(-1, 2)[:, 0]).all()


def _steps(values: Array) -> Array:
    raw = values.view(np.uint16).astype(np.int64)
    return np.where(raw & 0x8000, -(raw & 0x7FFF), raw)


@KINDS
def test_functions(kind: str) -> None:
    """Sums exactly rounded, functions within two units in the last place (CUDA Math API)."""
    x = numbers(kind)
    x = x[np.abs(x.view(dtype(kind)).astype(np.float64)) < 3000][:32]
    x = np.concatenate([x, x])
    y = np.roll(x, 7)
    (_, _, out), _ = run(
        FILE, f"{kind}_functions", 1, 32, [x.view(np.uint32), y.view(np.uint32), np.zeros((9, 32), np.uint32)]
    )
    a, b = (v.view(dtype(kind)).astype(np.float64) for v in (x, y))
    for place, exact in enumerate((a + b, a - b, a * b, a - b)):
        with np.errstate(over="ignore"):
            want = exact.astype(dtype(kind))
        found = out[place].view(dtype(kind))
        assert ((want == found) | (np.isnan(want) & np.isnan(found))).all(), place
    tanh = np.tanh(a)
    with np.errstate(all="ignore"):
        wanted = [10.0**a, np.log10(a), tanh, tanh, tanh]
    for place, exact in enumerate(wanted, 4):
        with np.errstate(over="ignore"):
            want = exact.astype(dtype(kind))
        found = out[place].view(dtype(kind))
        near = np.abs(_steps(want) - _steps(found)) <= 2
        assert (near | (np.isnan(want) & np.isnan(found))).all(), (place, a[~near], found[~near], want[~near])


@KINDS
def test_moves(kind: str) -> None:
    count = 15 if kind == "bfloat" else 14
    x, y = numbers(kind), np.roll(numbers(kind), 9)
    s = np.linspace(-40000, 40000, 32).astype(np.float32)
    arrays = [x.view(np.uint32), y.view(np.uint32), s, np.zeros((count, 32), np.uint32)]
    (*_, out), _ = run(FILE, f"{kind}_moves", 1, 32, arrays)
    a, b = x.reshape(-1, 2).astype(np.uint32), y.reshape(-1, 2).astype(np.uint32)

    def pair(low: Array, high: Array) -> Array:
        joined: Array = low.astype(np.uint32) | high.astype(np.uint32) << 16
        return joined

    def narrow(values: Array) -> Array:
        with np.errstate(over="ignore"):
            made: Array = values.astype(dtype(kind)).view(np.uint16)
        return made

    wide = x.view(dtype(kind)).astype(np.float32).reshape(-1, 2)
    wanted = [
        pair(a[:, 1], a[:, 1]), pair(a[:, 0], b[:, 1]), pair(b[:, 0], a[:, 1]), pair(a[:, 1], b[:, 1]), pair(a[:, 0], b[:, 0]),
        pair(a[:, 0], b[:, 1]), pair(a[:, 1], a[:, 0]), wide[:, 0], wide[:, 1], wide[:, 0], wide[:, 1],
        pair(narrow(s), narrow(-s)), pair(narrow(s), narrow(s)), pair(narrow(s), narrow(s * 2)), narrow(s),
    ]  # fmt: skip
    for place, (found, want) in enumerate(zip(out, wanted)):
        if want.dtype == np.float32:
            numeric = found.view(np.float32)
            assert ((numeric == want) | (np.isnan(numeric) & np.isnan(want))).all(), place
        else:
            assert (found == want).all(), place
