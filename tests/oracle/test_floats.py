"""Floating point: hand-worked edge cases, NumPy for round-to-nearest, exact fractions for every mode."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from . import floats
from .floats import BF16, F16, F32, F64, Format
from .kernels import evaluate

Array = NDArray[Any]
NAN, INF, NEG = 0x7FFFFFFF, 0x7F800000, 0x80000000
ONE, TWO, HALF, MAX, TINY = 0x3F800000, 0x40000000, 0x3F000000, 0x7F7FFFFF, 0x00000001
ULP24 = 0x33800000  # 2^-24, half an ulp of 1.0
LEAST_NORMAL = 0x00800000

TABLE: list[tuple[str, tuple[int, ...], int, dict[tuple[int, ...], int]]] = [
    # 1 + 2^-24 is half way: to even; then up, down and towards zero
    (
        "add.f32 $d, $0, $1;",
        (32, 32),
        32,
        {
            (ONE, ULP24): ONE,
            (ONE + 1, ULP24): ONE + 2,
            (MAX, MAX): INF,
            (INF, INF | NEG): NAN,
            (NEG, NEG): NEG,
            (NEG, 0): 0,
            (ONE, ONE | NEG): 0,
        },
    ),
    (
        "add.rp.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(ONE, TINY): ONE + 1, (ONE | NEG, ULP24 | NEG): ONE | NEG, (MAX | NEG, MAX | NEG): MAX | NEG},
    ),
    (
        "add.rm.f32 $d, $0, $1;",
        (32, 32),
        32,
        {
            (ONE, ULP24): ONE,
            (ONE, ONE | NEG): NEG,
            (0, NEG): NEG,
            (MAX, MAX): MAX,
            (MAX | NEG, MAX | NEG): INF | NEG,
            (ONE, TINY | NEG): ONE - 1,
        },
    ),
    ("add.rz.f32 $d, $0, $1;", (32, 32), 32, {(ONE, ULP24 | NEG): ONE - 1, (MAX, MAX): MAX}),
    (
        "add.ftz.f32 $d, $0, $1;",
        (32, 32),
        32,
        {
            (TINY, TINY): 0,
            (TINY | NEG, TINY | NEG): NEG,
            (ONE, TINY): ONE,
            (LEAST_NORMAL + 1, LEAST_NORMAL | NEG): 0,
        },
    ),
    (
        "add.sat.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(ONE, ONE): ONE, (ONE, TWO | NEG): 0, (INF, INF | NEG): 0, (HALF, 0): HALF},
    ),
    ("sub.f32 $d, $0, $1;", (32, 32), 32, {(ONE, ONE): 0, (INF, INF): NAN, (ONE, HALF): HALF}),
    (
        "mul.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(TINY, HALF): 0, (3, HALF): 2, (INF, 0): NAN, (NEG, ONE): NEG, (0x7FC12345, ONE): NAN},
    ),
    ("mul.rp.f32 $d, $0, $1;", (32, 32), 32, {(TINY, HALF): TINY, (TINY | NEG, HALF): NEG}),
    # (1 + 2^-12)² = 1 + 2^-11 + 2^-24 is half way; what a third addend of 2^-80 adds decides
    (
        "fma.rn.f32 $d, $0, $1, $2;",
        (32, 32, 32),
        32,
        {
            (0x3F800800, 0x3F800800, 0): 0x3F801000,
            (0x3F800800, 0x3F800800, 0x17800000): 0x3F801001,
            (0x3F800800, 0x3F800800, 0x17800000 | NEG): 0x3F801000,
            (INF, 0, ONE): NAN,
            (INF, ONE, INF | NEG): NAN,
            (ONE, ONE, ONE | NEG): 0,
            (NEG, ONE, NEG): NEG,
        },
    ),
    ("fma.rz.f32 $d, $0, $1, $2;", (32, 32, 32), 32, {(0x3F800800, 0x3F800800, 0x17800000): 0x3F801000}),
    (
        "div.rn.f32 $d, $0, $1;",
        (32, 32),
        32,
        {
            (ONE, 0x40400000): 0x3EAAAAAB,
            (ONE, 0): INF,
            (ONE, NEG): INF | NEG,
            (0, 0): NAN,
            (INF, INF): NAN,
            (ONE, INF): 0,
            (TINY, TWO): 0,
        },
    ),
    ("div.rz.f32 $d, $0, $1;", (32, 32), 32, {(ONE, 0x40400000): 0x3EAAAAAA}),
    ("rcp.rp.f32 $d, $0;", (32,), 32, {(0x40400000,): 0x3EAAAAAB, (0,): INF, (INF | NEG,): NEG}),
    ("sqrt.rn.f32 $d, $0;", (32,), 32, {(TWO,): 0x3FB504F3, (NEG,): NEG, (ONE | NEG,): NAN, (INF,): INF}),
    ("sqrt.rp.f32 $d, $0;", (32,), 32, {(TWO,): 0x3FB504F4, (0x40800000,): TWO}),
    (
        "min.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(0, NEG): NEG, (NEG, 0): NEG, (NAN, ONE): ONE, (NAN, 0x7FC00000): NAN},
    ),
    (
        "max.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(0, NEG): 0, (NEG, 0): 0, (ONE, NAN): ONE, (INF | NEG, ONE | NEG): ONE | NEG},
    ),
    ("max.NaN.f32 $d, $0, $1;", (32, 32), 32, {(ONE, NAN): NAN, (ONE, TWO): TWO}),
    (
        "min.xorsign.abs.f32 $d, $0, $1;",
        (32, 32),
        32,
        {(ONE | NEG, TWO): ONE | NEG, (TWO | NEG, ONE | NEG): ONE},
    ),
    ("neg.ftz.f32 $d, $0;", (32,), 32, {(TINY,): NEG, (ONE,): ONE | NEG}),
    ("abs.f32 $d, $0;", (32,), 32, {(ONE | NEG,): ONE, (NEG,): 0}),
    ("copysign.f32 $d, $0, $1;", (32, 32), 32, {(NEG, ONE): ONE | NEG, (ONE, TWO | NEG): TWO}),
    ("testp.subnormal.f32 $d, $0;", (32,), 1, {(TINY,): 1, (ONE,): 0, (NEG,): 0}),
    ("testp.normal.f32 $d, $0;", (32,), 1, {(TINY,): 0, (ONE,): 1, (NEG,): 1, (INF,): 0, (NAN,): 0}),
    ("testp.notanumber.f32 $d, $0;", (32,), 1, {(NAN,): 1, (INF,): 0}),
    ("setp.lt.f32 $d, $0, $1;", (32, 32), 1, {(NAN, ONE): 0, (ONE | NEG, ONE): 1, (NEG, 0): 0}),
    ("setp.ltu.f32 $d, $0, $1;", (32, 32), 1, {(NAN, ONE): 1, (TWO, ONE): 0}),
    ("setp.ne.f32 $d, $0, $1;", (32, 32), 1, {(NAN, NAN): 0, (ONE, TWO): 1}),
    ("setp.neu.f32 $d, $0, $1;", (32, 32), 1, {(NAN, NAN): 1, (ONE, ONE): 0}),
    ("setp.num.f32 $d, $0, $1;", (32, 32), 1, {(NAN, ONE): 0, (ONE, ONE): 1}),
    ("setp.eq.ftz.f32 $d, $0, $1;", (32, 32), 1, {(TINY, 0): 1}),
    # conversions
    ("cvt.rn.f32.s32 $d, $0;", (32,), 32, {(0x01000001,): 0x4B800000, (0xFFFFFFFF,): ONE | NEG}),
    ("cvt.rp.f32.u32 $d, $0;", (32,), 32, {(0x01000001,): 0x4B800001, (0xFFFFFFFF,): 0x4F800000}),
    ("cvt.rz.f32.u64 $d, $0;", (64,), 32, {(0xFFFFFFFFFFFFFFFF,): 0x5F7FFFFF}),
    (
        "cvt.rzi.s32.f32 $d, $0;",
        (32,),
        32,
        {
            (0xBFC00000,): 0xFFFFFFFF,
            (INF,): 0x7FFFFFFF,
            (NAN,): 0,
            (0x4F000000,): 0x7FFFFFFF,
            (0xCF800000,): 0x80000000,
        },
    ),
    ("cvt.rni.s32.f32 $d, $0;", (32,), 32, {(0x3F000000,): 0, (0x3FC00000,): 2, (0x40200000,): 2}),
    ("cvt.rmi.s32.f32 $d, $0;", (32,), 32, {(0xBF000000,): 0xFFFFFFFF}),
    ("cvt.rpi.u32.f32 $d, $0;", (32,), 32, {(TINY,): 1, (ONE | NEG,): 0}),
    ("cvt.rpi.ftz.u32.f32 $d, $0;", (32,), 32, {(TINY,): 0}),
    ("cvt.rzi.u64.f32 $d, $0;", (32,), 64, {(NAN,): 1 << 63, (0x5F800000,): (1 << 64) - 1}),
    (
        "cvt.rzi.s32.f64 $d, $0;",
        (64,),
        32,
        {(0x7FF8000000000000,): 0x80000000, (0xC1E0000000200000,): 0x80000000},
    ),
    ("cvt.rni.f32.f32 $d, $0;", (32,), 32, {(0x40200000,): TWO, (0xBE800000,): NEG, (0x3FC00000,): TWO}),
    (
        "cvt.rn.f32.f64 $d, $0;",
        (64,),
        32,
        {
            (0x3FF0000010000000,): ONE,
            (0x3FF0000010000001,): ONE + 1,
            (0x7FEFFFFFFFFFFFFF,): INF,
            (0x36A0000000000000,): TINY,
        },
    ),
    ("cvt.rn.ftz.f32.f64 $d, $0;", (64,), 32, {(0x36A0000000000000,): 0}),
    ("cvt.f64.f32 $d, $0;", (32,), 64, {(TINY,): 0x36A0000000000000, (INF | NEG,): 0xFFF0000000000000}),
    ("cvt.sat.f32.f32 $d, $0;", (32,), 32, {(TWO,): ONE, (NAN,): 0, (HALF,): HALF}),
    (
        "cvt.rn.f16.f32 $d, $0;",
        (32,),
        16,
        {(0x477FF000,): 0x7C00, (0x477FE000,): 0x7BFF, (0x33000000,): 0, (0x33000001,): 1, (NAN,): 0x7FFF},
    ),
    ("cvt.rz.f16.f32 $d, $0;", (32,), 16, {(0x477FF000,): 0x7BFF}),
    ("cvt.f32.f16 $d, $0;", (16,), 32, {(1,): 0x33800000, (0xFC00,): INF | NEG}),
    (
        "cvt.rn.bf16.f32 $d, $0;",
        (32,),
        16,
        {(0x3F808000,): 0x3F80, (0x3F818000,): 0x3F82, (0x3F808001,): 0x3F81},
    ),
    ("cvt.f32.bf16 $d, $0;", (16,), 32, {(0x3F81,): 0x3F810000}),
    ("cvt.rn.f16x2.f32 $d, $0, $1;", (32, 32), 32, {(ONE, TWO): 0x3C004000}),
    ("cvt.rn.relu.bf16x2.f32 $d, $0, $1;", (32, 32), 32, {(ONE | NEG, TWO): 0x00004000}),
    ("cvt.rn.satfinite.f16x2.f32 $d, $0, $1;", (32, 32), 32, {(INF, MAX | NEG): 0x7BFFFBFF}),
    ("cvt.rna.tf32.f32 $d, $0;", (32,), 32, {(0x3F801000,): 0x3F802000, (0x3F800FFF,): 0x3F800000}),
    ("cvt.rn.f16.s32 $d, $0;", (32,), 16, {(2049,): 0x6800, (2051,): 0x6802}),
    # 8 bits: largest finite numbers 448 and 57344, least 2^-9 and 2^-16; ties to even
    (
        "cvt.rn.satfinite.e4m3x2.f32 $d, $0, $1;",
        (32, 32),
        16,
        {
            (ONE, TWO | NEG): 0x38C0,
            (0x43E00000, 0x43E80000): 0x7E7E,
            (INF | NEG, NAN): 0xFE7F,
            (0x3B000000, 0x3A800000): 0x0100,
            (0x3F880000, 0x3F980000): 0x383A,
            (NEG, 0): 0x8000,
        },
    ),
    (
        "cvt.rn.satfinite.relu.e5m2x2.f32 $d, $0, $1;",
        (32, 32),
        16,
        {(ONE, ONE | NEG): 0x3C00, (0x47800000, 0x37800000): 0x7B01, (NAN, 0x3F900000): 0x7F3C},
    ),
    ("cvt.rn.satfinite.e4m3x2.f16x2 $d, $0;", (32,), 16, {(0x3C00C000,): 0x38C0}),
    ("cvt.rn.f16x2.e4m3x2 $d, $0;", (16,), 32, {(0x7E01,): 0x5F001800, (0x7FB8,): 0x7FFFBC00}),
    ("cvt.rn.f16x2.e5m2x2 $d, $0;", (16,), 32, {(0x7CFC,): 0x7C00FC00, (0x3C01,): 0x3C000100}),
    # half precision
    (
        "add.f16 $d, $0, $1;",
        (16, 16),
        16,
        {
            (0x3C00, 0x1000): 0x3C00,
            (0x3C01, 0x1000): 0x3C02,
            (0x7BFF, 0x7BFF): 0x7C00,
            (1, 1): 2,
            (0x7E00, 0): 0x7FFF,
        },
    ),
    ("add.ftz.f16 $d, $0, $1;", (16, 16), 16, {(1, 1): 0}),
    ("fma.rn.f16x2 $d, $0, $1, $2;", (32, 32, 32), 32, {(0x40003C00, 0x42004000, 0x3C00C000): 0x47000000}),
    (
        "fma.rn.relu.f16 $d, $0, $1, $2;",
        (16, 16, 16),
        16,
        {(0xBC00, 0x3C00, 0): 0, (0x3C00, 0x3C00, 0): 0x3C00},
    ),
    ("fma.rn.sat.f16 $d, $0, $1, $2;", (16, 16, 16), 16, {(0x4000, 0x4000, 0): 0x3C00}),
    (
        "fma.rn.bf16 $d, $0, $1, $2;",
        (16, 16, 16),
        16,
        {(0x3F81, 0x3F81, 0): 0x3F82, (0x3F81, 0x3F81, 0x0001): 0x3F82},
    ),
    ("mul.bf16x2 $d, $0, $1;", (32, 32), 32, {(0x3F804000, 0x40004040): 0x400040C0}),
    ("max.f16x2 $d, $0, $1;", (32, 32), 32, {(0x3C007E00, 0x40003C00): 0x40003C00}),
    ("neg.f16x2 $d, $0;", (32,), 32, {(0x3C00BC00,): 0xBC003C00}),
    # doubles
    (
        "add.f64 $d, $0, $1;",
        (64, 64),
        64,
        {
            (0x3FF0000000000000, 0x3CA0000000000000): 0x3FF0000000000000,
            (0x3FF0000000000001, 0x3CA0000000000000): 0x3FF0000000000002,
        },
    ),
    (
        "fma.rn.f64 $d, $0, $1, $2;",
        (64, 64, 64),
        64,
        {(0x3FF0000000000001, 0x3FF0000000000001, 0xBFF0000000000002): 0x3970000000000000},
    ),
    ("min.f64 $d, $0, $1;", (64, 64), 64, {(1 << 63, 0): 1 << 63}),
    ("mov.f64 $d, 0d4000000000000000;", (), 64, {(): 0x4000000000000000}),
    ("mov.f32 $d, 1.5;", (), 32, {(): 0x3FC00000}),
    # exact or nearly exact results of the approximations
    (
        "ex2.approx.f32 $d, $0;",
        (32,),
        32,
        {(0x40400000,): 0x41000000, (0x44C80000,): INF, (INF | NEG,): 0, (INF,): INF, (0,): ONE},
    ),
    (
        "lg2.approx.f32 $d, $0;",
        (32,),
        32,
        {(0x41000000,): 0x40400000, (0,): INF | NEG, (ONE | NEG,): NAN, (INF,): INF},
    ),
    ("rsqrt.approx.f32 $d, $0;", (32,), 32, {(0x40800000,): HALF, (0,): INF, (NEG,): INF | NEG, (INF,): 0}),
    ("sin.approx.f32 $d, $0;", (32,), 32, {(0,): 0, (NEG,): NEG, (INF,): NAN}),
    ("cos.approx.ftz.f32 $d, $0;", (32,), 32, {(TINY,): ONE}),
    ("tanh.approx.f32 $d, $0;", (32,), 32, {(INF | NEG,): ONE | NEG, (NEG,): NEG}),
    ("rcp.approx.ftz.f64 $d, $0;", (64,), 64, {(0x4000000000000000,): 0x3FE0000000000000}),
    ("sqrt.approx.ftz.f32 $d, $0;", (32,), 32, {(TINY,): 0, (0x40800000,): TWO}),
    ("div.full.f32 $d, $0, $1;", (32, 32), 32, {(ONE, TWO): HALF}),
]


@pytest.mark.parametrize(("text", "widths", "width", "cases"), TABLE, ids=[row[0] for row in TABLE])
def test_instruction(
    text: str, widths: tuple[int, ...], width: int, cases: dict[tuple[int, ...], int]
) -> None:
    assert [hex(x) for x in evaluate(text, widths, list(cases), width)] == [hex(x) for x in cases.values()]


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
