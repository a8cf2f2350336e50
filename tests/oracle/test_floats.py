"""Floating point: hand-worked edge cases, NumPy for round-to-nearest, exact fractions for every mode."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from . import floats
from .float_table import FLOATS
from .floats import BF16, F16, F32, F64, Format
from .kernels import check

Array = NDArray[Any]


@pytest.mark.parametrize(("text", "widths", "width", "cases"), FLOATS, ids=[row[0] for row in FLOATS])
def test_instruction(
    text: str, widths: tuple[int, ...], width: int, cases: dict[tuple[int, ...], int]
) -> None:
    check(text, widths, width, cases)


# -- every format and mode against exact fractions


def value(f: Format, bits: int) -> Fraction:
    """A non-negative finite number by the definition of the format."""
    field, mantissa = bits >> f.mantissa_bits, bits & ((1 << f.mantissa_bits) - 1)
    bias = (1 << (f.exponent_bits - 1)) - 1
    if field == 0:
        return Fraction(mantissa, 1 << f.mantissa_bits) * Fraction(2) ** (1 - bias)
    return (1 + Fraction(mantissa, 1 << f.mantissa_bits)) * Fraction(2) ** (field - bias)


def rounded(f: Format, exact: Fraction, mode: str) -> int:
    """Correct rounding by search: the neighbours of the exact value among all numbers of the format."""
    sign = f.sign_bit if exact < 0 else 0
    size = abs(exact)
    top = ((1 << f.exponent_bits) - 1) << f.mantissa_bits  # infinity takes the place of the next power of two
    low, high = 0, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(f, middle) <= size else (low, middle)
    if value(f, low) == size:
        return sign | low
    below, above = size - value(f, low), value(f, high) - size
    if size >= value(f, top) or mode == "rn":
        if mode == "rn":
            up = above < below or (above == below and high % 2 == 0)
        else:
            up = mode == ("rm" if exact < 0 else "rp")
    else:
        up = mode == ("rm" if exact < 0 else "rp")
    return sign | (high if up else low)


def samples(f: Format, count: int, seed: int) -> list[int]:
    """Finite patterns: uniform in the bits, near 1, subnormal, few mantissa bits (ties)."""
    rng = random.Random(seed)
    width = 1 + f.exponent_bits + f.mantissa_bits
    result: list[int] = []
    while len(result) < count:
        bits = rng.getrandbits(width)
        kind = rng.randrange(4)
        if kind == 1:
            bits = bits & ~(f.infinity) | (f.bias + rng.randrange(-3, 4)) << f.mantissa_bits
        elif kind == 2:
            bits &= ~f.infinity
        elif kind == 3:
            bits &= ~((1 << (f.mantissa_bits - 3)) - 1)
        if bits & f.infinity != f.infinity:
            result.append(bits)
    return result


def number(f: Format, bits: int) -> Fraction:
    magnitude = value(f, bits & (f.sign_bit - 1))
    return -magnitude if bits & f.sign_bit else magnitude


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("f", [F16, BF16, F32, F64], ids=lambda f: f.name)
def test_arithmetic_is_the_exact_result_rounded_once(f: Format, mode: str) -> None:
    xs, ys, zs = (samples(f, 40, seed) for seed in (1, 2, 3))
    for x, y, z in zip(xs, ys, zs, strict=True):
        a, b, c = number(f, x), number(f, y), number(f, z)
        pairs = [
            (floats.add(f, x, y, mode), a + b),
            (floats.mul(f, x, y, mode), a * b),
            (floats.fma(f, x, y, z, mode), a * b + c),
        ]
        if b:
            pairs.append((floats.div(f, x, y, mode), a / b))
        for found, exact in pairs:
            if exact:
                assert found == rounded(f, exact, mode), (hex(x), hex(y), hex(z))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_square_roots_bracket_their_argument(mode: str) -> None:
    for x in samples(F32, 60, 4):
        x &= F32.sign_bit - 1
        root = floats.sqrt(F32, x, mode)
        square, a = number(F32, root) ** 2, number(F32, x)
        if mode in ("rz", "rm"):
            assert square <= a < number(F32, root + 1) ** 2
        elif mode == "rp" and x:
            assert number(F32, root - 1) ** 2 < a <= square
        elif x:
            low, high = number(F32, root - 1), number(F32, root + 1)
            assert ((low + number(F32, root)) / 2) ** 2 <= a <= ((high + number(F32, root)) / 2) ** 2


@pytest.mark.parametrize(
    ("f", "dtype", "unsigned"),
    [(F16, np.float16, np.uint16), (F32, np.float32, np.uint32), (F64, np.float64, np.uint64)],
    ids=["f16", "f32", "f64"],
)
def test_round_to_nearest_agrees_with_numpy(f: Format, dtype: type, unsigned: type) -> None:
    special = [0, f.sign_bit, 1, f.infinity, f.infinity | f.sign_bit, f.nan, f.largest, f.one]
    xs: Array = np.array(samples(f, 300, 5) + special * len(special), unsigned)
    ys: Array = np.array(samples(f, 300, 6) + [s for s in special for _ in special], unsigned)
    with np.errstate(all="ignore"):
        a: Array = xs.view(dtype)
        b: Array = ys.view(dtype)
        expected = {"add": a + b, "mul": a * b, "div": a / b}
        for name, values in expected.items():
            function = getattr(floats, name)
            found = [function(f, int(x), int(y)) for x, y in zip(xs, ys, strict=True)]
            for got, want, bits in zip(found, values, values.view(unsigned), strict=True):
                assert got == (f.nan if np.isnan(want) else int(bits))
        roots = np.sqrt(a)
        for x, want, bits in zip(xs, roots, roots.view(unsigned), strict=True):
            assert floats.sqrt(f, int(x)) == (f.nan if np.isnan(want) else int(bits))


@pytest.mark.parametrize(
    ("target", "dtype", "unsigned"),
    [(F16, np.float16, np.uint16), (F32, np.float32, np.uint32)],
    ids=["f16", "f32"],
)
def test_narrowing_agrees_with_numpy(target: Format, dtype: type, unsigned: type) -> None:
    xs = np.array(samples(F64, 200, 7) + [int(x) << 29 for x in samples(F32, 10, 8)], np.uint64)
    scaled = np.array([float(np.uint64(x).view(np.float64)) for x in xs])
    scaled = np.concatenate([scaled, np.ldexp(np.frexp(scaled)[0], 3), np.ldexp(np.frexp(scaled)[0], -20)])
    with np.errstate(all="ignore"):
        for x, want in zip(scaled.view(np.uint64), scaled.astype(dtype).view(unsigned), strict=True):
            assert floats.convert(F64, target, int(x)) == int(want)
