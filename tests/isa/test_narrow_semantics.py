"""Conversions to and from narrow formats: against tables of exact fractions, ml_dtypes, and numbers of the manual."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from .narrow_numbers import FORMS, MEMORY, fixed, half_stochastic, number, power, scale_of
from .reference import encode
from .running import Words, run_lines

NAN, INFINITY, MINUS = 0x7FFFFFFF, 0x7F800000, 0x80000000
#: registers of the packed types
PACKED = {"e4m3": "h", "e5m2": "h", "e2m3": "h", "e3m2": "h", "ue5m3": "h", "e2m1": "c"}
SIGNED = [name for name in FORMS if name != "ue5m3"]


def single(value: Fraction) -> int:
    return encode("f32", value)


def near(name: str) -> list[int]:
    """Patterns of f32 where rounding to a format is decided: numbers, midpoints, their neighbours; and special numbers."""
    values = FORMS[name].values
    marks = list(values)
    marks += [(low + high) / 2 for low, high in itertools.pairwise(values)]
    marks += [
        values[-1] + (values[-1] - values[-2]) / 2,
        values[-1] * 2,
        values[1] / 2,
        values[1] / 4,
        Fraction(1, 2**126),
    ]
    patterns = {single(mark) + step for mark in marks for step in (-1, 0, 1) if single(mark) + step >= 0}
    patterns |= {
        0,
        1,
        0x007FFFFF,
        0x00800000,
        0x00400000,
        0x00400001,
        INFINITY,
        INFINITY - 1,
        NAN,
        0x7F800001,
        0x7FC00000,
        0x3DCCCCCD,
    }
    generator = random.Random(name)
    patterns |= {generator.getrandbits(31) for _ in range(100)}
    return sorted(patterns | {pattern | MINUS for pattern in patterns})


def halves(kind: str) -> list[int]:
    """Patterns of f16 or bf16: every exponent, some fractions; special numbers."""
    generator = random.Random(kind)
    return sorted(
        {generator.getrandbits(16) for _ in range(600)}
        | {0, 1, 0x8000, 0x8001, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7FFF, 0xFFC1}
    )


def pairs(patterns: list[int]) -> Words:
    """Each pattern with another one."""
    return np.array([(x, patterns[(7 * i + 3) % len(patterns)]) for i, x in enumerate(patterns)], np.uint64)


def clamped(value: Fraction | float, negative: bool, relu: bool) -> tuple[Fraction | float, bool]:
    if relu and negative and value == value:
        return Fraction(0), False
    return value, negative


@lru_cache(MEMORY)
def code_of(name: str, kind: str, pattern: int, how: str, relu: bool = False, **options: object) -> int:
    """The code that a source pattern of a type gives."""
    negative = bool(pattern >> (15 if kind != "f32" else 31))
    value, negative = clamped(number(kind, pattern), negative, relu)
    return FORMS[name].encoded(value, negative, how, **options)  # type: ignore[arg-type]


def joined(name: str, upper: int, lower: int) -> int:
    return upper << (4 if name == "e2m1" else 8) | lower


@pytest.mark.parametrize("name", SIGNED)
def test_singles_to_narrow(name: str) -> None:
    given = pairs(near(name))
    spelled = [
        (".rn", ""),
        (".rn", ".relu"),
        (".rz", ""),
        (".rz", ".relu"),
        (".rz", ".pzo"),
        (".rn", ".relu.pzo"),
    ]
    lines = [
        (
            f"cvt{rounding}.satfinite{other}.{name}x2.f32 {PACKED[name]}0, f1, f2;",
            [f"{PACKED[name]}0"],
            ["f1", "f2"],
        )
        for rounding, other in spelled
    ]
    for (rounding, other), found in zip(spelled, run_lines(lines, [given] * len(lines))):
        for (a, b), got in zip(given.tolist(), found[:, 0].tolist()):
            codes = [code_of(name, "f32", x, rounding[1:], "relu" in other) for x in (a, b)]
            if "pzo" in other:
                codes = [0 if code == FORMS[name].sign else code for code in codes]
            assert got == joined(name, *codes), (rounding, other, hex(a), hex(b))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", SIGNED)
def test_halves_to_narrow(name: str, kind: str) -> None:
    given = pairs(halves(kind))
    packed = (given[:, :1] << np.uint64(16)) | given[:, 1:]
    spelled = [(".rn", ""), (".rn", ".relu"), (".rz", ""), (".rn", ".pzo")]
    lines = [
        (
            f"cvt{rounding}.satfinite{other}.{name}x2.{kind}x2 {PACKED[name]}0, r1;",
            [f"{PACKED[name]}0"],
            ["r1"],
        )
        for rounding, other in spelled
    ]
    for (rounding, other), found in zip(spelled, run_lines(lines, [packed] * len(lines))):
        for (a, b), got in zip(given.tolist(), found[:, 0].tolist()):
            codes = [code_of(name, kind, x, rounding[1:], "relu" in other) for x in (a, b)]
            if "pzo" in other:
                codes = [0 if code == FORMS[name].sign else code for code in codes]
            assert got == joined(name, *codes), (rounding, other, hex(a), hex(b))


DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNED)
def test_tables_are_those_of_ml_dtypes(name: str) -> None:
    form = FORMS[name]
    codes = np.arange(1 << form.width, dtype=np.uint8)
    theirs = codes.view(DTYPES[name]).astype(np.float64)
    for code, value in zip(codes.tolist(), theirs.tolist()):
        ours = form.decoded(code)
        assert (ours != ours and value != value) or float(ours) == value, code
    patterns = [x for x in near(name) if abs(number("f32", x)) <= form.values[-1]]
    rounded = np.array(patterns, np.uint32).view(np.float32).astype(DTYPES[name]).view(np.uint8)
    assert [code_of(name, "f32", x, "rn") for x in patterns] == rounded.tolist()


def results(kind: str, value: Fraction | float, negative: bool, relu: bool, finite: bool) -> int:
    """f16 or bf16 of a number that may be too large for it."""
    if value != value:
        return 0x7FFF
    value, negative = clamped(value, negative, relu)
    infinity = 0x7C00 if kind == "f16" else 0x7F80
    sign = 0x8000 if negative else 0
    code = infinity if abs(value) == math.inf else encode(kind, abs(Fraction(value)))
    return sign | (min(code, infinity - 1) if finite else code)


def every(name: str) -> tuple[Words, list[tuple[int, int]]]:
    """Packed operands with every code in both places, and the codes (upper, lower)."""
    count = 1 << FORMS[name].width
    codes = [(code, (code * 5 + 3) % count) for code in range(count)]
    return np.array([[joined(name, *pair)] for pair in codes], np.uint64), codes


@pytest.mark.parametrize("name", FORMS)
def test_narrow_to_halves(name: str) -> None:
    form = FORMS[name]
    given, codes = every(name)
    others = [""] if name == "ue5m3" else ["", ".relu"]
    lines = [
        (f"cvt.rn{other}.f16x2.{name}x2 r0, {PACKED[name]}1;", ["r0"], [f"{PACKED[name]}1"])
        for other in others
    ]
    for other, found in zip(others, run_lines(lines, [given] * len(lines))):
        for pair, got in zip(codes, found[:, 0].tolist()):
            upper, lower = (
                results("f16", form.decoded(code), bool(code & form.sign), bool(other), False)
                for code in pair
            )
            assert got == upper << 16 | lower, (other, pair)


def test_bits_beyond_six_do_not_count() -> None:
    given = np.array([[0xC0C1]], np.uint64)
    (found,) = run_lines([("cvt.rn.f16x2.e3m2x2 r0, h1;", ["r0"], ["h1"])], [given])
    assert found[0, 0] == 0x00002C00  # 2^-4


@pytest.mark.parametrize("name", FORMS)
def test_narrow_to_bfloats(name: str) -> None:
    form = FORMS[name]
    given, codes = every(name)
    generator = random.Random(name)
    scales = [generator.choice((0, 1, 2, 100, 126, 127, 128, 130, 250, 253, 254, 255, generator.randrange(256))) << 8
              | generator.randrange(256) for _ in codes]  # fmt: skip
    scaled = np.column_stack([given[:, 0], np.array(scales, np.uint64)])
    lines, operands, options = [], [], []
    for relu in [""] if name == "ue5m3" else ["", ".relu"]:
        for finite in ("", ".satfinite"):
            register = PACKED[name]
            lines.append((f"cvt.rn{relu}{finite}.bf16x2.{name}x2 r0, {register}1;", ["r0"], [f"{register}1"]))
            lines.append(
                (
                    f"cvt.rn{relu}{finite}.scaled::n2::ue8m0.bf16x2.{name}x2 r0, {register}1, h2;",
                    ["r0"],
                    [f"{register}1", "h2"],
                )
            )
            operands += [given, scaled]
            options += [(bool(relu), bool(finite), False), (bool(relu), bool(finite), True)]
    for (relu, finite, is_scaled), found in zip(options, run_lines(lines, operands)):
        for pair, factor, got in zip(codes, scales, found[:, 0].tolist()):
            halves = []
            for code, byte in zip(pair, (factor >> 8, factor & 0xFF)):
                value = form.decoded(code)
                if is_scaled:
                    by = scale_of(byte)
                    value = math.nan if by != by else value * by
                halves.append(results("bf16", value, bool(code & form.sign), relu, finite))
            assert got == halves[0] << 16 | halves[1], (relu, finite, pair, hex(factor))


@pytest.mark.parametrize("name", SIGNED)
def test_one_scale(name: str) -> None:
    """Division by one power of two; subnormal sources count as zero; a finite number stays finite."""
    generator = random.Random(name)
    register = PACKED[name]
    patterns = near(name)
    scales = [generator.choice((0, 1, 64, 120, 126, 127, 128, 140, 200, 254, 255)) for _ in patterns]
    given = np.column_stack([pairs(patterns), np.array(scales, np.uint64)])
    sixteen = {kind: pairs(halves(kind)) for kind in ("f16", "bf16")}
    packed = {
        kind: np.column_stack([
            (two[:, 0] << np.uint64(16)) | two[:, 1],
            np.array([generator.choice((0, 90, 127, 130, 254, 255)) for _ in two], np.uint64),
        ])
        for kind, two in sixteen.items()
    }  # fmt: skip
    lines = [
        (
            f"cvt.rz.satfinite.scaled::n1::ue8m0.{name}x2.f32 {register}0, f1, f2, c3;",
            [f"{register}0"],
            ["f1", "f2", "c3"],
        )
    ]
    lines += [
        (
            f"cvt.rn.satfinite.scaled::n1::ue8m0.{name}x2.{kind}x2 {register}0, r1, c3;",
            [f"{register}0"],
            ["r1", "c3"],
        )
        for kind in packed
    ]
    singles, *rest = run_lines(lines, [given, *packed.values()])
    for (a, b, scale), got in zip(given.tolist(), singles[:, 0].tolist()):
        codes = [over(name, "f32", pattern, scale, "rz") for pattern in (a, b)]
        assert got == joined(name, *codes), (hex(a), hex(b), scale)
    for (kind, two), found in zip(sixteen.items(), rest):
        for (a, b), scale, got in zip(two.tolist(), packed[kind][:, 1].tolist(), found[:, 0].tolist()):
            codes = [over(name, kind, pattern, scale, "rn") for pattern in (a, b)]
            assert got == joined(name, *codes), (kind, hex(a), hex(b), scale)


LEAST = {"f32": Fraction(1, 2**126), "f16": Fraction(1, 2**14), "bf16": Fraction(1, 2**126)}


def over(name: str, kind: str, pattern: int, scale: int, rounding: str) -> int:
    value, by = number(kind, pattern), scale_of(scale)
    if abs(value) < LEAST[kind]:
        value = Fraction(0)
    value = math.nan if by != by else value / by if isinstance(value, Fraction) else value
    return FORMS[name].encoded(value, bool(pattern >> (31 if kind == "f32" else 15)), rounding)


def test_unsigned() -> None:
    """ue5m3 takes magnitudes; too large is NaN, but under rz, or the largest number with .satfinite."""
    given = pairs(near("ue5m3"))
    sixteen = {kind: pairs(halves(kind)) for kind in ("f16", "bf16")}
    spelled = [(rounding, finite) for rounding in (".rn", ".rz", ".rp") for finite in ("", ".satfinite")]
    lines = [
        (f"cvt{rounding}{finite}.ue5m3x2.f32 h0, f1, f2;", ["h0"], ["f1", "f2"])
        for rounding, finite in spelled
    ]
    operands = [given] * len(lines)
    for kind, two in sixteen.items():
        lines += [
            (f"cvt{rounding}{finite}.ue5m3x2.{kind}x2 h0, r1;", ["h0"], ["r1"])
            for rounding, finite in spelled
        ]
        operands += [(two[:, :1] << np.uint64(16)) | two[:, 1:]] * len(spelled)
    found = iter(run_lines(lines, operands))
    for kind, two in {"f32": given, **sixteen}.items():
        for rounding, finite in spelled:
            for (a, b), got in zip(two.tolist(), next(found)[:, 0].tolist()):
                codes = [code_of("ue5m3", kind, x, rounding[1:], finite=bool(finite)) for x in (a, b)]
                assert got == codes[0] << 8 | codes[1], (rounding, finite, kind, hex(a), hex(b))


def test_powers() -> None:
    patterns = near("e4m3")
    given = pairs(patterns)
    two = pairs(halves("bf16"))
    spelled = [(rounding, finite) for rounding in ("rz", "rp") for finite in ("", ".satfinite")]
    lines = [
        (f"cvt.{rounding}{finite}.ue8m0x2.f32 h0, f1, f2;", ["h0"], ["f1", "f2"])
        for rounding, finite in spelled
    ]
    lines += [
        (f"cvt.{rounding}{finite}.ue8m0x2.bf16x2 h0, r1;", ["h0"], ["r1"]) for rounding, finite in spelled
    ]
    packed = (two[:, :1] << np.uint64(16)) | two[:, 1:]
    found = run_lines(lines, [given] * 4 + [packed] * 4)
    for place, (kind, operands) in enumerate((("f32", given), ("bf16", two))):
        for (rounding, finite), results_ in zip(spelled, found[4 * place :]):
            for (a, b), got in zip(operands.tolist(), results_[:, 0].tolist()):
                upper, lower = (power(number(kind, x), rounding, bool(finite)) for x in (a, b))
                assert got == upper << 8 | lower, (rounding, finite, hex(a), hex(b))
    theirs = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert [float(scale_of(code)) for code in range(255)] == theirs.tolist()


def test_powers_to_bfloats() -> None:
    given = np.array([[code << 8 | 255 - code] for code in range(256)], np.uint64)
    (found,) = run_lines([("cvt.rn.bf16x2.ue8m0x2 r0, h1;", ["r0"], ["h1"])], [given])
    for (pair,), got in zip(given.tolist(), found[:, 0].tolist()):
        upper, lower = (
            results("bf16", scale_of(code), False, False, False) for code in (pair >> 8, pair & 0xFF)
        )
        assert got == upper << 16 | lower


def fixed_points() -> list[int]:
    marks = [Fraction(step, 256) for step in range(-520, 521, 3)]
    patterns = {encode("f32", mark) + step for mark in marks if mark for step in (-1, 0, 1)}
    return sorted(
        patterns
        | {0, 1, MINUS, INFINITY, INFINITY | MINUS, NAN, 0x42000000, 0xC2000000, 0x4F000000, 0xFF7FFFFF}
    )


@pytest.mark.parametrize("rounding", ["rn", "rz"])
def test_singles_to_fixed(rounding: str) -> None:
    given = pairs(fixed_points())
    generator = random.Random(1)
    scales = [
        generator.choice((0, 120, 125, 127, 129, 140, 254, 255)) << 8 | generator.choice((1, 127, 128))
        for _ in given
    ]
    scaled = np.column_stack([given, np.array(scales, np.uint64)])
    lines = [
        (f"cvt.{rounding}.satfinite{relu}.s2f6x2.f32 h0, f1, f2;", ["h0"], ["f1", "f2"])
        for relu in ("", ".relu")
    ]
    lines.append(
        (f"cvt.{rounding}.satfinite.scaled::n2::ue8m0.s2f6x2.f32 h0, f1, f2, h3;", ["h0"], ["f1", "f2", "h3"])
    )
    plain, positive, divided = run_lines(lines, [given, given, scaled])
    for place, (a, b) in enumerate(given.tolist()):
        numbers = [number("f32", x) for x in (a, b)]
        upper, lower = (fixed(value, rounding) for value in numbers)
        assert plain[place, 0] == upper << 8 | lower, (hex(a), hex(b))
        upper, lower = (
            fixed(value if value != value else max(value, Fraction(0)), rounding) for value in numbers
        )
        assert positive[place, 0] == upper << 8 | lower, (hex(a), hex(b))
        factors = [scale_of(byte) for byte in (scales[place] >> 8, scales[place] & 0xFF)]
        upper, lower = (
            fixed(math.nan if by != by else value if isinstance(value, float) else value / by, rounding)
            for value, by in zip(numbers, factors)
        )
        assert divided[place, 0] == upper << 8 | lower, (hex(a), hex(b), hex(scales[place]))


def test_fixed_and_bfloats() -> None:
    two = pairs(halves("bf16"))
    packed = (two[:, :1] << np.uint64(16)) | two[:, 1:]
    every_code = np.array(
        [[code << 8 | 255 - code, (127 + code % 7) << 8 | (code * 37) & 0xFF] for code in range(256)],
        np.uint64,
    )
    down, up, scaled = run_lines(
        [
            ("cvt.rn.satfinite.s2f6x2.bf16x2 h0, r1;", ["h0"], ["r1"]),
            ("cvt.rn.bf16x2.s2f6x2 r0, h1;", ["r0"], ["h1"]),
            ("cvt.rn.satfinite.relu.scaled::n2::ue8m0.bf16x2.s2f6x2 r0, h1, h2;", ["r0"], ["h1", "h2"]),
        ],
        [packed, every_code[:, :1], every_code],
    )
    for (a, b), got in zip(two.tolist(), down[:, 0].tolist()):
        assert got == fixed(number("bf16", a), "rn") << 8 | fixed(number("bf16", b), "rn")
    for (pair, factor), plain, product in zip(every_code.tolist(), up[:, 0].tolist(), scaled[:, 0].tolist()):
        values = [Fraction(byte - 256 * (byte >> 7), 64) for byte in (pair >> 8, pair & 0xFF)]
        upper, lower = (results("bf16", value, value < 0, False, False) for value in values)
        assert plain == upper << 16 | lower
        factors = [scale_of(byte) for byte in (factor >> 8, factor & 0xFF)]
        upper, lower = (
            results("bf16", by if by != by else value * by, value < 0, True, True)
            for value, by in zip(values, factors)
        )
        assert product == upper << 16 | lower


def reversed_bits(word: int) -> int:
    return int(f"{word:016b}"[::-1], 2)


def random_bits(name: str, word: int) -> list[int]:
    """The 16 bits for a, b, e and f (manual: figures "Random bits layout"; reversed for the first of each two)."""
    if name == "e2m1":
        upper, lower = (word >> 24) << 8 | word >> 8 & 0xFF, (word >> 16 & 0xFF) << 8 | word & 0xFF
    else:
        upper, lower = word >> 16, word & 0xFFFF
    return [reversed_bits(upper), upper, reversed_bits(lower), lower]


def test_random_bits() -> None:
    """Worked out by hand."""
    assert random_bits("e4m3", 0x12345678) == [0x2C48, 0x1234, 0x1E6A, 0x5678]
    assert random_bits("e2m1", 0x12345678) == [0x6A48, 0x1256, 0x1E2C, 0x3478]


def quarters(name: str) -> Iterator[tuple[list[int], int]]:
    generator = random.Random(name)
    patterns = near(name)
    for _ in range(500):
        yield (
            [generator.choice(patterns) for _ in range(4)],
            generator.choice((0, 0xFFFFFFFF, generator.getrandbits(32))),
        )


@pytest.mark.parametrize("name", SIGNED)
def test_four_with_random_bits(name: str) -> None:
    given = np.array([[*numbers, word] for numbers, word in quarters(name)], np.uint64)
    register = "h" if name == "e2m1" else "r"
    step = 4 if name == "e2m1" else 8
    lines = [
        (
            f"cvt.rs{relu}.satfinite.{name}x4.f32 {register}0, {{f1, f2, f3, f4}}, r5;",
            [f"{register}0"],
            ["f1", "f2", "f3", "f4", "r5"],
        )
        for relu in ("", ".relu")
    ]
    for relu, found in zip(("", ".relu"), run_lines(lines, [given, given])):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            expected = 0
            for pattern, bits in zip(row[:4], random_bits(name, row[4])):
                expected = expected << step | code_of(name, "f32", pattern, "rs", bool(relu), random=bits)
            assert got == expected, (relu, [hex(x) for x in row])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_with_random_bits(kind: str) -> None:
    generator = random.Random(kind)
    marks = [
        0,
        1,
        0x33800000,
        0x387FC000,
        0x38800000,
        0x477FE000,
        0x477FFFFF,
        0x47800000,
        0x7F7F0000,
        0x7F7FFFFF,
        INFINITY,
        NAN,
        0x3F800001,
    ]
    patterns = [mark | sign for mark in marks for sign in (0, MINUS)]
    patterns += [
        generator.randrange(0x33000000, 0x48000000) | generator.choice((0, MINUS)) for _ in range(400)
    ]
    patterns += [generator.getrandbits(32) for _ in range(200)]
    given = np.column_stack(
        [pairs(patterns), np.array([generator.getrandbits(32) for _ in patterns], np.uint64)]
    )
    spelled = [(relu, finite) for relu in ("", ".relu") for finite in ("", ".satfinite")]
    lines = [
        (f"cvt.rs{relu}{finite}.{kind}x2.f32 r0, f1, f2, r3;", ["r0"], ["f1", "f2", "r3"])
        for relu, finite in spelled
    ]
    for (relu, finite), found in zip(spelled, run_lines(lines, [given] * 4)):
        for (a, b, word), got in zip(given.tolist(), found[:, 0].tolist()):
            halves_ = []
            for pattern, bits in ((a, word >> 16), (b, word & 0xFFFF)):
                if relu and pattern >> 31 and (pattern & 0x7FFFFFFF) <= INFINITY:
                    pattern = 0
                halves_.append(half_stochastic(kind, pattern, bits, bool(finite)))
            assert got == halves_[0] << 16 | halves_[1], (relu, finite, hex(a), hex(b), hex(word))


def test_positive_zero() -> None:
    given = np.array([[MINUS, 0x80000001], [0xB3000000, 0xBF800000], [NAN, 0]], np.uint64)
    lines = [
        ("cvt.rz.pzo.f16x2.f32 r0, f1, f2;", ["r0"], ["f1", "f2"]),
        ("cvt.rn.pzo.bf16x2.f32 r0, f1, f2;", ["r0"], ["f1", "f2"]),
        ("cvt.rn.pzo.f16.f32 h0, f1;", ["h0"], ["f1"]),
        ("cvt.rz.pzo.tf32.f32 r0, f2;", ["r0"], ["f1", "f2"]),
    ]
    f16, bf16, scalar, tf32 = run_lines(lines, [given, given, given[:, :1].copy(), given])
    assert [hex(int(x)) for x in f16[:, 0]] == ["0x0", "0xbc00", "0x7fff0000"]
    assert [hex(int(x)) for x in bf16[:, 0]] == ["0x0", "0xb300bf80", "0x7fff0000"]
    assert [hex(int(x)) for x in scalar[:, 0]] == ["0x0", "0x0", "0x7fff"]
    assert [hex(int(x)) for x in tf32[:, 0]] == ["0x0", "0xbf800000", "0x0"]
