"""Floating-point, conversion and approximate semantics, against numbers worked out by hand, exact fractions and mpmath."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .reference import decode, run

WORD = st.integers(0, 2**32 - 1)
HALF = st.integers(0, 2**16 - 1)
ONE, TWO, INFINITY, NAN = 0x3F800000, 0x40000000, 0x7F800000, 0x7FFFFFFF
MINUS = 0x80000000


def f32(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


def f64(number: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", number))[0]


@pytest.mark.parametrize(
    ("opcode", "sources", "expected"),
    [
        ("add.f32", (ONE, f32(2**-24)), ONE),
        ("add.rp.f32", (ONE, f32(2**-24)), ONE + 1),
        ("add.rm.f32", (ONE, ONE | MINUS), MINUS),
        ("add.f32", (ONE, ONE | MINUS), 0),
        ("add.f32", (1, 1), 2),
        ("add.ftz.f32", (1, 1), 0),
        ("add.ftz.f32", (1 | MINUS, 1 | MINUS), MINUS),
        ("add.sat.f32", (ONE, ONE), ONE),
        ("add.sat.f32", (NAN, ONE), 0),
        ("add.sat.f32", (MINUS, MINUS), 0),
        ("add.f32", (0x7FC12345, ONE), NAN),
        ("sub.f32", (INFINITY, INFINITY), NAN),
        ("mul.rz.f32", (ONE + 1, ONE + 1), ONE + 2),
        ("mul.rp.f32", (ONE + 1, ONE + 1), ONE + 3),
        ("mul.ftz.f32", (f32(2.0**-100), f32(2.0**-40)), 0),
        ("mul.f32", (f32(2.0**-100), f32(2.0**-40)), f32(2.0**-140)),
        ("mul.rn.f64", (f64(3.0), f64(7.0)), f64(21.0)),
        ("fma.rn.f32", (ONE + 1, ONE + 1, f32(-1 - 2**-22)), f32(2.0**-46)),
        ("fma.rz.ftz.sat.f32", (TWO, TWO, ONE), ONE),
        ("mad.rn.f64", (f64(2.0), f64(3.0), f64(4.0)), f64(10.0)),
        ("div.rn.f32", (ONE, f32(3.0)), 0x3EAAAAAB),
        ("div.rz.f32", (ONE, f32(3.0)), 0x3EAAAAAA),
        ("div.full.f32", (ONE, 0), INFINITY),
        ("div.approx.ftz.f32", (0, 1), NAN),
        ("abs.ftz.f32", (1 | MINUS,), 0),
        ("abs.f64", (f64(-2.5),), f64(2.5)),
        ("neg.f32", (0x7FC00001,), 0xFFC00001),
        ("min.f32", (0, MINUS), MINUS),
        ("max.f32", (0, MINUS), 0),
        ("min.f32", (NAN, ONE), ONE),
        ("min.NaN.f32", (0x7FC00000, ONE), NAN),
        ("max.f32", (0x7FC00000, 0x7FC00000), NAN),
        ("min.xorsign.abs.f32", (f32(-3.0), f32(2.0)), f32(-2.0)),
        ("max.NaN.xorsign.abs.f32", (f32(-3.0), f32(-2.0)), f32(3.0)),
        ("rcp.rn.f32", (f32(3.0),), 0x3EAAAAAB),
        ("rcp.approx.ftz.f32", (MINUS | 1,), MINUS | INFINITY),
        ("sqrt.rn.f32", (TWO,), 0x3FB504F3),
        ("sqrt.rm.f32", (TWO,), 0x3FB504F3),
        ("sqrt.rp.f64", (f64(2.0),), f64(math.sqrt(2.0))),
        ("sqrt.approx.f32", (f32(-1.0),), NAN),
        ("copysign.f32", (MINUS, ONE), MINUS | ONE),
        ("add.f16", (0x3C00, 0x1400), 0x3C01),
        ("add.f16x2", (0x3C007BFF, 0x3C007BFF), 0x40007C00),
        ("add.sat.f16x2", (0x3C00BC00, 0x3C00BC00), 0x3C000000),
        ("mul.ftz.f16", (0x0400, 0x3800), 0),
        ("mul.f16", (0x0400, 0x3800), 0x0200),
        ("sub.bf16", (0x3F80, 0x3F80), 0),
        ("fma.rn.relu.f16x2", (0x3C003C00, 0xC0004000, 0x3C003C00), 0x00004200),
        ("fma.rn.bf16x2", (0x3F804000, 0x40004000, 0x3F803F80), 0x404040A0),
        ("neg.f16x2", (0x3C00BC00,), 0xBC003C00),
        ("max.NaN.bf16", (0x7FC0, 0x3F80), 0x7FFF),
        ("min.f16x2", (0x7E003C00, 0x3C004000), 0x3C003C00),
        ("min.xorsign.abs.f16", (0xC200, 0x4000), 0xC000),
        ("set.lt.f16x2.f16x2", (0x3C004000, 0x40003C00), 0x3C000000),
        ("set.lt.u32.f16x2", (0x3C004000, 0x40003C00), 0xFFFF0000),
        ("set.gt.u32.f16", (0x4000, 0x3C00), 0xFFFFFFFF),
        ("set.eq.bf16.f32", (ONE, ONE), 0x3F80),
        ("set.lt.bf16.f16", (0x3C00, 0x4000), 0x3F80),
        ("set.gtu.bf16.f16", (0x3C00, 0x4000), 0),
    ],
)
def test_by_hand(opcode: str, sources: tuple[int, ...], expected: int) -> None:
    assert [hex(result) for result in run(opcode, *sources)] == [hex(expected)]


def test_packed_comparison() -> None:
    """The predicates are those of the low and of the high lanes, combined with c."""
    assert run("setp.lt.f16x2", 0x3C004000, 0x40003C00) == (0, 1)
    assert run("setp.lt.and.f16x2", 0x3C004000, 0x40003C00, 0) == (0, 0)
    assert run("setp.ltu.or.bf16x2", 0x7FFF3F80, 0x3F803F80, 0) == (0, 1)
    assert run("setp.gt.f16", 0x4000, 0x3C00) == (1,)


@pytest.mark.parametrize(
    ("op", "truths"),
    [("eq", "0100"), ("ne", "1010"), ("lt", "1000"), ("ge", "0110"), ("equ", "0101"), ("neu", "1011"), ("ltu", "1001"),
     ("leu", "1101"), ("gtu", "0011"), ("geu", "0111"), ("num", "1110"), ("nan", "0001")],
)  # fmt: skip
def test_float_comparison(op: str, truths: str) -> None:
    pairs = ((ONE, TWO), (0, MINUS), (TWO, ONE), (NAN, ONE))
    assert "".join(str(run(f"setp.{op}.f32", *pair)[0]) for pair in pairs) == truths


@pytest.mark.parametrize(
    ("op", "truths"),
    [("finite", "110100"), ("infinite", "001000"), ("number", "111100"), ("notanumber", "000011"), ("normal", "110000"),
     ("subnormal", "000100")],
)  # fmt: skip
def test_testp(op: str, truths: str) -> None:
    patterns = (MINUS, ONE, INFINITY | MINUS, 0x007FFFFF, NAN, 0xFF800001)
    assert "".join(str(run(f"testp.{op}.f32", pattern)[0]) for pattern in patterns) == truths


@pytest.mark.parametrize(
    ("opcode", "sources", "expected"),
    [
        ("cvt.u32.u8", (0xFF,), 0xFF),
        ("cvt.s32.s8", (0xFF,), 0xFFFFFFFF),
        ("cvt.u8.u32", (0x1FF,), 0xFF),
        ("cvt.sat.u8.s32", (0xFFFFFFFF,), 0),
        ("cvt.sat.s8.s32", (200,), 127),
        ("cvt.sat.s32.u32", (0xFFFFFFFF,), 0x7FFFFFFF),
        ("cvt.pack.sat.s16.s32", (40000, 0xFFFFFFFF), 0x7FFFFFFF),
        ("cvt.pack.sat.u16.s32", (5, 0xFFFFFFFF), 0x00050000),
        ("cvt.pack.sat.u8.s32.b32", (300, 7, 0x1234), 0x1234FF07),
        ("cvt.pack.sat.s4.s32.b32", (0xFFFFFF00, 100, 1), 0x00000187),
        ("cvt.rn.f32.u32", (0xFFFFFFFF,), 0x4F800000),
        ("cvt.rz.f32.u32", (0xFFFFFFFF,), 0x4F7FFFFF),
        ("cvt.rn.f64.s64", (2**64 - 1,), f64(-1.0)),
        ("cvt.rn.f16.s32", (65536,), 0x7C00),
        ("cvt.rn.sat.f32.s32", (5,), ONE),
        ("cvt.rzi.s32.f32", (f32(-2.5),), 0xFFFFFFFE),
        ("cvt.rmi.s32.f32", (f32(-2.5),), 0xFFFFFFFD),
        ("cvt.rni.s32.f32", (f32(2.5),), 2),
        ("cvt.rpi.s32.f64", (f64(2.1),), 3),
        ("cvt.rzi.u32.f32", (f32(-5.0),), 0),
        ("cvt.rzi.s32.f32", (NAN,), 0),
        ("cvt.rzi.s64.f32", (NAN,), 1 << 63),
        ("cvt.rzi.u64.f32", (NAN,), 1 << 63),
        ("cvt.rzi.s32.f64", (f64(math.nan),), 1 << 31),
        ("cvt.rzi.u32.f64", (f64(math.nan),), 1 << 31),
        ("cvt.rzi.s32.f32", (INFINITY,), 0x7FFFFFFF),
        ("cvt.rpi.ftz.s32.f32", (1,), 0),
        ("cvt.rpi.s32.f32", (1,), 1),
        ("cvt.rzi.u8.f32", (f32(300.0),), 255),
        ("cvt.rn.f32.f64", (f64(1 + 2**-24),), ONE),
        ("cvt.rp.f32.f64", (f64(1 + 2**-24),), ONE + 1),
        ("cvt.rn.ftz.f32.f64", (f64(2.0**-140),), 0),
        ("cvt.f64.f32", (1,), f64(2.0**-149)),
        ("cvt.f64.f32", (0xFFC12345,), 0x7FFFFFFFFFFFFFFF),
        ("cvt.f32.f16", (0x0001,), f32(2.0**-24)),
        ("cvt.ftz.f32.f16", (0x0001,), f32(2.0**-24)),
        ("cvt.rn.ftz.f16.f32", (1,), 0),
        ("cvt.rn.f16.f32", (f32(65520.0),), 0x7C00),
        ("cvt.rn.satfinite.f16.f32", (f32(65520.0),), 0x7BFF),
        ("cvt.rn.satfinite.f16.f32", (INFINITY | MINUS,), 0xFBFF),
        ("cvt.rn.relu.f16.f32", (f32(-1.0),), 0),
        ("cvt.rn.bf16.f32", (0x3F808000,), 0x3F80),
        ("cvt.rz.bf16.f32", (0x3F80FFFF,), 0x3F80),
        ("cvt.rn.satfinite.bf16.f32", (0x7F7FFFFF,), 0x7F7F),
        ("cvt.rn.bf16.f32", (0x7F7FFFFF,), 0x7F80),
        ("cvt.f32.bf16", (0x3FC0,), f32(1.5)),
        # 1 + 3·2⁻⁸ and 1 + 2⁻⁸, halfway between neighbours in bf16; ptxas 13.0 makes one code of these and of those with .rn
        ("cvt.bf16.f16", (0x3C0C,), 0x3F82),
        ("cvt.bf16.f16", (0x3C04,), 0x3F80),
        ("cvt.rz.bf16.f16", (0x3C0C,), 0x3F81),
        ("cvt.f16.bf16", (0x4780,), 0x7C00),
        ("cvt.f16.bf16", (0x3F81,), 0x3C08),
        ("cvt.rn.f16x2.f32", (ONE, TWO), 0x3C004000),
        ("cvt.rn.relu.bf16x2.f32", (f32(-1.0), TWO), 0x00004000),
        ("cvt.rni.f32.f32", (f32(2.5),), TWO),
        ("cvt.rmi.f64.f64", (f64(-0.5),), f64(-1.0)),
        ("cvt.rzi.f32.f32", (f32(-0.5),), MINUS),
        ("cvt.sat.f32.f32", (f32(-3.0),), 0),
        ("cvt.ftz.sat.f32.f32", (NAN,), 0),
        ("cvt.rna.tf32.f32", (0x3F801000,), 0x3F802000),
        ("cvt.rn.tf32.f32", (0x3F801000,), 0x3F800000),
        ("cvt.rz.tf32.f32", (0x3F801FFF,), 0x3F800000),
        ("cvt.rn.relu.tf32.f32", (f32(-2.0),), 0),
        ("cvt.rna.tf32.f32", (0x7F7FFFFF,), INFINITY),
        ("cvt.rna.satfinite.tf32.f32", (0x7F7FFFFF,), 0x7F7FE000),
        ("cvt.rna.tf32.f32", (0xFFC00001,), NAN),
        ("cvt.rn.satfinite.e4m3x2.f32", (f32(1.0), f32(-448.0)), 0x38FE),
        ("cvt.rn.satfinite.e5m2x2.f32", (f32(1e9), NAN), 0x7B7F),
        ("cvt.rn.satfinite.relu.e4m3x2.f32", (f32(-1.0), f32(2.0**-9)), 0x0001),
        ("cvt.rn.satfinite.e4m3x2.f16x2", (0x3C00C000,), 0x38C0),
        ("cvt.rn.f16x2.e4m3x2", (0x38FE,), 0x3C00DF00),
        ("cvt.rn.f16x2.e5m2x2", (0x3C7F,), 0x3C007FFF),
    ],
)
def test_conversion(opcode: str, sources: tuple[int, ...], expected: int) -> None:
    assert [hex(result) for result in run(opcode, *sources)] == [hex(expected)]


def eight_bit_numbers(mantissa: int, bias: int, top: int) -> dict[int, Fraction]:
    """Pattern → number of the non-negative finite numbers of an 8-bit format."""
    numbers = {}
    for code in range(top + 1):
        exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
        whole = fraction + ((1 << mantissa) if exponent else 0)
        numbers[code] = whole * Fraction(2) ** (max(exponent, 1) - bias - mantissa)
    return numbers


EIGHT = {"e4m3x2": eight_bit_numbers(3, 7, 0x7E), "e5m2x2": eight_bit_numbers(2, 15, 0x7B)}


def nearest_code(form: str, number: Fraction | float) -> int:
    if number != number:
        return 0x7F
    codes = EIGHT[form]
    sign = 0x80 if number < 0 else 0
    if isinstance(number, float):
        return sign | max(codes)
    return sign | min(codes, key=lambda code: (abs(codes[code] - abs(number)), code % 2))


@given(st.sampled_from(["e4m3x2", "e5m2x2"]), WORD, st.integers(0x3A000000, 0x48000000))
@example("e4m3x2", 0x43E80000, 0x3B800000)
def test_to_eight_bits(form: str, wild: int, near: int) -> None:
    for pattern in (wild, near, near | MINUS):
        number = decode("f32", pattern)
        expected = nearest_code(form, number)
        if pattern & MINUS and number == number:
            expected |= 0x80
        assert run(f"cvt.rn.satfinite.{form}.f32", pattern, 0) == (expected << 8,)


@pytest.mark.parametrize("form", EIGHT)
def test_from_eight_bits(form: str) -> None:
    for code, number in EIGHT[form].items():
        (pair,) = run(f"cvt.rn.f16x2.{form}", code << 8 | code | 0x80)
        assert decode("f16", pair >> 16) == number
        assert decode("f16", pair & 0xFFFF) == -number
    if form == "e5m2x2":
        assert run("cvt.rn.f16x2.e5m2x2", 0x7CFC) == (0x7C00FC00,)


def close(opcode: str, pattern: int, exact: mpmath.mpf, absolute: float, relative: float) -> None:
    (found,) = run(opcode, pattern)
    number = decode("f32", found)
    assert number == number, (opcode, hex(pattern))
    if isinstance(number, float):
        assert abs(exact) > 3.4e38, (opcode, hex(pattern))
        return
    error = abs(mpmath.mpf(number.numerator) / number.denominator - exact)
    assert error <= max(absolute, relative * abs(exact), 2.0**-149), (opcode, hex(pattern), error)


@given(st.floats(-3.1415927410125732, 3.1415927410125732, width=32))
def test_sine_and_cosine(x: float) -> None:
    close("sin.approx.f32", f32(x), mpmath.sin(x), 2**-20.5, 0)
    close("cos.approx.f32", f32(x), mpmath.cos(x), 2**-20.5, 0)


@given(st.floats(-(2.0**20), 2.0**20, width=32))
def test_sine_far_out(x: float) -> None:
    close("sin.approx.f32", f32(x), mpmath.sin(x), 2**-20.5, 0)


@given(st.floats(-160, 130, width=32))
@example(128.0)
@example(-149.0)
@example(0.0)
def test_exponential(x: float) -> None:
    close("ex2.approx.f32", f32(x), mpmath.mpf(2) ** x, 0, 2**-22.5)


@given(st.floats(min_value=2.0**-149, max_value=3.4028234663852886e38, width=32))
@example(1.0)
@example(1.0000001192092896)
def test_logarithm(x: float) -> None:
    middle = 0.5 < x < 2
    close("lg2.approx.f32", f32(x), mpmath.log(x, 2), 2**-22 if middle else 0, 0 if middle else 2**-22)


@given(st.floats(min_value=2.0**-149, max_value=3.4028234663852886e38, width=32))
def test_reciprocal_root(x: float) -> None:
    close("rsqrt.approx.f32", f32(x), 1 / mpmath.sqrt(x), 0, 2**-22.9)


@given(st.floats(-30, 30, width=32))
@example(2.0**-149)
def test_hyperbolic_tangent(x: float) -> None:
    close("tanh.approx.f32", f32(x), mpmath.tanh(x), 0, 2**-11)


@pytest.mark.parametrize(
    ("opcode", "pattern", "expected"),
    [
        ("sin.approx.f32", MINUS, MINUS),
        ("sin.approx.f32", INFINITY, NAN),
        ("sin.approx.ftz.f32", 1, 0),
        ("cos.approx.f32", 0, ONE),
        ("cos.approx.f32", NAN, NAN),
        ("ex2.approx.f32", INFINITY | MINUS, 0),
        ("ex2.approx.f32", INFINITY, INFINITY),
        ("ex2.approx.f32", NAN, NAN),
        ("ex2.approx.ftz.f32", f32(-130.0), 0),
        ("lg2.approx.f32", MINUS, INFINITY | MINUS),
        ("lg2.approx.f32", f32(-1.0), NAN),
        ("lg2.approx.f32", INFINITY | MINUS, NAN),
        ("lg2.approx.f32", INFINITY, INFINITY),
        ("lg2.approx.f32", NAN, NAN),
        ("lg2.approx.ftz.f32", 1, INFINITY | MINUS),
        ("lg2.approx.f32", 1, f32(-149.0)),
        ("rsqrt.approx.f32", MINUS, INFINITY | MINUS),
        ("rsqrt.approx.f32", INFINITY, 0),
        ("rsqrt.approx.f32", f32(-4.0), NAN),
        ("tanh.approx.f32", INFINITY | MINUS, f32(-1.0)),
        ("tanh.approx.f32", MINUS, MINUS),
        ("tanh.approx.f32", NAN, NAN),
        ("tanh.approx.f16x2", 0x7C000000, 0x3C000000),
        ("ex2.approx.f16x2", 0x3C000000, 0x40003C00),
        ("ex2.approx.ftz.bf16", 0x3F80, 0x4000),
        ("rcp.approx.ftz.f64", f64(4.0) | 0xFFFF, f64(0.25)),
        ("rcp.approx.ftz.f64", 1, f64(math.inf)),
        ("rsqrt.approx.ftz.f64", f64(4.0) | 0xFFFF, f64(0.5)),
        ("rsqrt.approx.f64", f64(16.0), f64(0.25)),
    ],
)  # fmt: skip
def test_special_cases(opcode: str, pattern: int, expected: int) -> None:
    """The manual's tables of special values."""
    assert [hex(result) for result in run(opcode, pattern)] == [hex(expected)]


@given(st.integers(0, 2**64 - 1))
def test_gross_reciprocal(pattern: int) -> None:
    (found,) = run("rcp.approx.ftz.f64", pattern)
    assert found & 0xFFFFFFFF == 0
    number, result = decode("f64", pattern), decode("f64", found)
    if isinstance(number, Fraction) and isinstance(result, Fraction) and number and result:
        assert abs(result * number - 1) < Fraction(1, 2**19)
