"""Conversions and directed roundings against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from .running import Array, run

MODES = ("rn", "rz", "rd", "ru")
FORMATS = {np.float16: (11, -14, 15), np.float32: (24, -126, 127), np.float64: (53, -1022, 1023)}
VALUES = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999997,
    1e-10,
    -1e-10,
    127.5,
    128.0,
    -128.5,
    255.5,
    256.0,
    32767.5,
    -32769.0,
    65503.9,
    65519.9,
    65520.0,
    65536.0,
    -70000.0,
    2147483520.0,
    2147483647.5,
    2147483648.0,
    -2147483648.0,
    -2147483904.0,
    4294967040.0,
    4294967296.0,
    9.2e18,
    9223372036854775808.0,
    -9223372036854775808.0,
    1.8e19,
    18446744073709551616.0,
    1e30,
    -1e30,
    1 / 3,
    -2 / 3,
    1e-6,
    6e-8,
    2.9e-8,
    3.1e-8,
    1e-40,
    -1e-45,
    3.4e38,
    1e39,
    1e300,
    1e-300,
    16777217.0,
    9007199254740993.0,
    2049.0,
    2051.0,
    math.inf,
    -math.inf,
    math.nan,
    0.1,
    0.7,
    123456.789,
    -98765.4321,
    5e-324,
    1.0,
    -1.0,
    3.0,
    1000000.5,
]


def whole(value: Fraction, mode: str) -> int:
    """The integer that a rounding mode gives."""
    down = math.floor(value)
    if mode == "rd" or (mode == "rz" and value >= 0):
        return down
    if mode in ("ru", "rz"):
        return math.ceil(value)
    rest = value - down
    return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down & 1))


def rounded(value: Fraction, dtype: Any, mode: str) -> float:
    """A fraction as a number of a format; overflow by the mode (IEEE 754, section 7.4)."""
    precision, least, most = FORMATS[dtype]
    if value == 0:
        return 0.0
    exponent = (
        math.frexp(float(value))[1] - 1
        if abs(value) > Fraction(5e-324) and abs(value) < Fraction(1.7e308)
        else 0
    )
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    result = whole(value / unit, mode) * unit
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** most
    if abs(result) > largest:
        inward = mode == "rz" or (mode == "rd" and value > 0) or (mode == "ru" and value < 0)
        return math.copysign(float(largest) if inward else math.inf, value)
    return math.copysign(float(result), value)


def integer(value: float, bits: int, is_signed: bool, mode: str, source: int) -> int:
    """cvt to an integer (PTX manual): saturating; NaN gives 0, or the top bit alone from f64 or to 64 bits."""
    if math.isnan(value):
        top = 1 << bits - 1
        return (-top if is_signed else top) if bits == 64 or source == 64 else 0
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, whole(Fraction(value), mode)))


def number(value: float, dtype: Any, mode: str) -> int:
    """A number rounded to a format, by its bits."""
    if not math.isfinite(value):
        if math.isnan(value):
            return {2: 0x7FFF, 4: 0x7FFFFFFF, 8: (1 << 63) - 1}[np.dtype(dtype).itemsize]
        made = dtype(value)
    else:
        made = dtype(math.copysign(rounded(Fraction(value), dtype, mode), value))
    return int(made.view(f"u{made.itemsize}"))


def _values(dtype: Any) -> Array:
    with np.errstate(over="ignore"):
        made: Array = np.resize(np.array(VALUES).astype(dtype), 64)
    return made


KINDS = {
    "int": (32, True),
    "uint": (32, False),
    "ll": (64, True),
    "ull": (64, False),
    "short": (16, True),
    "ushort": (16, False),
}


def _compare(expected: list[list[int]], found: Array, x: Array) -> None:
    for place, (row, got) in enumerate(zip(expected, found.tolist(), strict=True)):
        for given, want, value in zip(x.tolist(), row, got, strict=True):
            assert value == want & (1 << 64) - 1, (
                f"result {place} of {given!r}: {value:#x}, not {want & (1 << 64) - 1:#x}"
            )


def _to_integers(x: Array, kinds: list[str], source: int) -> list[list[int]]:
    return [[integer(v, *KINDS[kind], mode, source) for v in x.tolist()] for kind in kinds for mode in MODES]


def test_from_single() -> None:
    x = _values(np.float32)
    small = np.abs(x) < 30000  # conversions to narrow integers are undefined beyond
    x = np.where(small, x, np.float32(99.5))
    for given in (x, _values(np.float32)):
        rows = _to_integers(given, ["int", "uint", "ll", "ull"], 32)
        rows += [[number(float(v), np.float16, mode) for v in given] for mode in MODES]
        rows.append([int(bits) for bits in given.view(np.uint32)])
        (_, out), _ = run("conversions", "from_single", 2, 32, [given, np.zeros((26, 64), np.uint64)])
        _compare(rows, out[: len(rows)], given)
        exact = given.astype(np.float64)
        nan = np.isnan(exact)
        assert (out[25].view(np.float64)[~nan] == exact[~nan]).all()
        if given is x:
            cut = np.trunc(exact).astype(np.int64)
            positive = exact >= 0
            assert (out[21] == cut.astype(np.uint8)).all()
            assert (out[22].view(np.int64) == cut.astype(np.int8)).all()
            assert (out[23] == cut.astype(np.uint16))[positive].all()
            assert (out[24].view(np.int64) == cut.astype(np.int16)).all()


def test_from_double() -> None:
    x = _values(np.float64)
    rows = _to_integers(x, ["int", "uint", "ll", "ull"], 64)
    rows += [[number(float(v), np.float32, mode) for v in x] for mode in MODES]
    bits = x.view(np.uint64).tolist()
    rows += [
        [b >> 32 for b in bits],
        [b & 0xFFFFFFFF for b in bits],
        [(b << 32 | b >> 32) & (1 << 64) - 1 for b in bits],
    ]
    rows.append([number(float(v), np.float16, "rn") for v in x])
    (_, out), _ = run("conversions", "from_double", 2, 32, [x, np.zeros((len(rows), 64), np.uint64)])
    _compare(rows, out, x)


def test_from_half() -> None:
    x = np.concatenate([_values(np.float16)[:60], np.array([6e-8, 65504, 1023.5, -0.3], np.float16)])
    rows = _to_integers(x, ["int", "uint", "ll", "ull", "short", "ushort"], 16)
    (_, out), _ = run("conversions", "from_half", 2, 32, [x.view(np.uint16), np.zeros((27, 64), np.uint64)])
    finite = np.isfinite(x)
    _compare(
        [[v for v, keep in zip(row, finite) if keep] for row in rows], out[: len(rows), finite], x[finite]
    )
    assert (
        out[24, ~np.isnan(x)].astype(np.uint32).view(np.float32) == x[~np.isnan(x)].astype(np.float32)
    ).all()


INTEGERS = [
    0,
    1,
    -1,
    2,
    127,
    128,
    -128,
    -129,
    255,
    256,
    32767,
    32768,
    -32769,
    65504,
    65519,
    65520,
    65536,
    2049,
    2051,
    -70000,
    16777217,
    16777219,
    -16777217,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**53 + 1,
    2**53 + 3,
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
]


def _as(value: int, bits: int, is_signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if is_signed and value >> (bits - 1) else value


def test_from_integer() -> None:
    x = np.array(INTEGERS, np.int64)

    def row(dtype: Any, mode: str, bits: int, is_signed: bool) -> list[int]:
        found = []
        for v in INTEGERS:
            made = dtype(rounded(Fraction(_as(v, bits, is_signed)), dtype, mode))
            found.append(int(made.view(f"u{made.itemsize}")))
        return found

    rows = [row(np.float32, mode, *KINDS[kind]) for kind in ("int", "uint", "ll", "ull") for mode in MODES]
    rows += [row(np.float64, "rn", 32, True), row(np.float64, "rn", 32, False)]
    rows += [row(np.float64, mode, 64, is_signed) for is_signed in (True, False) for mode in MODES]
    rows += [row(np.float32, "rn", *kind) for kind in ((8, True), (8, False), (16, True), (16, False))]
    rows += [[_as(v, 8, True) for v in INTEGERS], [_as(v, 16, False) for v in INTEGERS]]
    halves = (
        ("rn", 32, True),
        ("rz", 32, False),
        ("rd", 64, True),
        ("ru", 64, False),
        ("rn", 16, True),
        ("rn", 16, False),
    )
    rows += [row(np.float16, *how) for how in halves]
    (_, out), _ = run("conversions", "from_integer", 1, 32, [x, np.zeros((len(rows), 32), np.uint64)])
    _compare(rows, out, x)


def _root(value: Fraction, dtype: Any, mode: str) -> float:
    """The square root, from an integer root with a sticky bit."""
    shift = 2 * (1200 if dtype is np.float64 else 200)
    scaled = value * 2**shift
    below = math.isqrt(math.floor(scaled))
    exact = Fraction(below) if below * below == scaled else Fraction(2 * below + 1, 2)
    return rounded(exact / 2 ** (shift // 2), dtype, mode)


EXACT: list[Callable[[Fraction, Fraction, Fraction], Fraction]] = [
    lambda a, b, c: a + b,
    lambda a, b, c: a - b,
    lambda a, b, c: a * b,
    lambda a, b, c: a / b,
    lambda a, b, c: 1 / a,
    lambda a, b, c: a,  # the root
    lambda a, b, c: a * b + c,
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_directed_rounding(dtype: Any) -> None:
    rng = np.random.default_rng(11)
    scale = (
        2.0 ** rng.integers(-60, 60, (3, 64))
        if dtype is np.float32
        else 2.0 ** rng.integers(-500, 500, (3, 64))
    )
    x, y, z = (rng.uniform(-2, 2, (3, 64)) * scale).astype(dtype)
    x[:8], y[:8] = 3, [1 / 3, 7, 1e-3, -5, 1e30, 1e-30, 11, 13]
    z[8:16] = -x[8:16] * y[8:16]
    if dtype is np.float32:
        x[16:20], y[16:20] = 1e30, [1e30, -1e30, 1e-30, 1e9]
        x[20:24], y[20:24] = 1e-30, [1e-10, -1e-12, 1e-15, 1e-20]
    name = "rounded_single" if dtype is np.float32 else "rounded_double"
    out = np.zeros((28, 64), np.uint32 if dtype is np.float32 else np.float64)
    (_, _, _, found), _ = run("conversions", name, 2, 32, [x, y, z, out])
    found = found.view(dtype)
    for place in range(28):
        mode, operation = MODES[place // 7], place % 7
        for lane in range(64):
            a, b, c = (Fraction(float(v[lane])) for v in (x, y, z))
            if operation == 5:
                if a < 0:
                    assert math.isnan(found[place, lane])
                    continue
                want = _root(a, dtype, mode)
            else:
                exact = EXACT[operation](a, b, c)
                want = rounded(exact, dtype, mode) if exact else (-0.0 if mode == "rd" else 0.0)
            assert found[place, lane] == want, (
                f"operation {operation} {mode} of {float(a)!r}, {float(b)!r}, {float(c)!r}"
            )
