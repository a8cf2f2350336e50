"""Runtime functions on vectors of floating-point numbers, for hosts with AVX-512 and for others: exact numbers, rounded once."""

from __future__ import annotations

import ctypes
import random
import re
from fractions import Fraction
from functools import cache
from math import inf, isqrt, nan

import numpy as np
import pytest

from gpuperf_engine.jit import llvm
from gpuperf_engine.jit.ir.operands import LANES
from gpuperf_engine.jit.ir.vectors import vector_function

from ..isa.reference import LAYOUTS, decode, encode

WIDE = [False, pytest.param(True, marks=pytest.mark.skipif(not llvm.host().wide, reason="needs AVX-512"))]
#: bits of the numbers of a vector
BITS = {"i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
MODES = ["rz", "rm", "rp"]
#: numbers of vectors of each test
VECTORS = 12


@cache
def compiled(name: str, wide: bool) -> tuple[llvm.Library, list[int], int]:
    """A function that applies another one to the vectors at addresses; the bits of its operands, and of its result."""
    text = vector_function(name, wide)
    match = re.search(r"define <32 x (\w+)> [^(]*\((.*?)\)", text)
    assert match
    result, given = match[1], re.findall(r"<32 x (\w+)>", match[2])
    loads = [f"%v{i} = load <32 x {kind}>, ptr %p{i}, align 64" for i, kind in enumerate(given)]
    values = ", ".join(f"<32 x {kind}> %v{i}" for i, kind in enumerate(given))
    lines = [
        f"define void @apply(ptr %to, {', '.join(f'ptr %p{i}' for i in range(len(given)))}) {{",
        *loads,
        f'%r = call <32 x {result}> @"{name}"({values})',
        f"store <32 x {result}> %r, ptr %to, align 64",
        "ret void",
        "}",
    ]
    content = llvm.compile_object("\n".join([text, *lines, ""]), 1)
    library = llvm.link([content], ("apply",), {})
    return library, [BITS[kind] for kind in given], BITS[result]


def applied(name: str, wide: bool, *operands: list[int]) -> list[int]:
    """The results for patterns of operands, 32 of each."""
    library, given, result = compiled(name, wide)
    room = np.zeros((len(given) + 2) * 256, np.uint8)
    start = -room.ctypes.data % 64
    places = [room[start + 256 * index :][:256] for index in range(len(given) + 1)]
    for place, bits, values in zip(places[1:], given, operands):
        place[: LANES * bits // 8].view(f"u{bits // 8}")[:] = values
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(places))(library.addresses["apply"])
    function(*(place.ctypes.data for place in places))
    found: list[int] = places[0][: LANES * result // 8].view(f"u{result // 8}").tolist()
    return found


def pattern(kind: str, generator: random.Random) -> int:
    """A number: any, near 1, or at a bound of the format."""
    layout = LAYOUTS[kind]
    width = layout.exponent + layout.fraction + 1
    sign = generator.getrandbits(1) * layout.sign
    way = generator.randrange(4)
    if way == 0:
        return generator.getrandbits(width)
    if way == 1:
        bounds = 0, 1, 2, 1 << layout.fraction, layout.infinity, layout.infinity - 1, layout.nan
        return sign | generator.choice([*bounds, (1 << layout.fraction) - 1])
    near = layout.bias + generator.randrange(-3, 4) if way == 2 else generator.randrange(1 << layout.exponent)
    few = generator.getrandbits(layout.fraction) & -1 << generator.randrange(layout.fraction)
    return sign | near << layout.fraction & layout.infinity | few


def rounded_root(kind: str, number: Fraction, mode: str) -> int:
    """A square root: exact, or between two neighbours of many more bits than the format has."""
    scale = 4**700
    whole = number.numerator * scale // number.denominator
    root = isqrt(whole)
    inexact = root * root != whole or whole * number.denominator != number.numerator * scale
    return encode(kind, Fraction(2 * root + inexact, 2 * 2**700), mode)


def expected(word: str, kind: str, to: str, mode: str, given: list[int]) -> int | None:
    """The result by IEEE 754, ``None`` for a NaN; of operands with infinities by Python's arithmetic."""
    numbers = [decode(kind, item) for item in given]
    signs = [bool(item & LAYOUTS[kind].sign) for item in given]
    if any(isinstance(item, float) for item in numbers):
        return special(word, to, numbers, signs)
    exact = [item for item in numbers if isinstance(item, Fraction)]
    layout = LAYOUTS[to]
    if word == "sqrt":
        if not exact[0]:
            return signs[0] * layout.sign
        return None if exact[0] < 0 else rounded_root(to, exact[0], mode)
    if word == "div":
        if not exact[1]:
            return None if not exact[0] else (signs[0] ^ signs[1]) * layout.sign | layout.infinity
        return encode(to, exact[0] / exact[1], mode, signs[0] ^ signs[1])
    if word in ("mul", "cvt"):
        negative = signs[0] if word == "cvt" else signs[0] ^ signs[1]
        return encode(to, exact[0] * (1 if word == "cvt" else exact[1]), mode, negative)
    if word == "fma":
        a, b = exact[0] * exact[1], exact[2]
        signs = [signs[0] ^ signs[1], signs[2]]
    else:
        a, b = exact[0], -exact[1] if word == "sub" else exact[1]
        signs = [signs[0], signs[1] ^ (word == "sub")]
    # a sum of exactly zero of numbers of two signs is −0 only if it is rounded down (IEEE 754, 6.3)
    negative = all(signs) or (mode == "rm" and any(signs))
    return encode(to, a + b, mode, negative)


def special(word: str, to: str, numbers: list[Fraction | float], signs: list[bool]) -> int | None:
    layout = LAYOUTS[to]
    # of a finite number only the sign matters, and whether it is zero
    small = [
        item if isinstance(item, float) else (0.0 if not item else 1.0) * (-1) ** sign
        for item, sign in zip(numbers, signs)
    ]
    small = [-0.0 if not item and sign else item for item, sign in zip(small, signs)]
    a, b, c = [*small, 0.0, 0.0][:3]
    if word == "sqrt":
        value = a if a > 0 else nan
    elif word == "div":
        if abs(b) == inf and abs(a) < inf:
            return (signs[0] ^ signs[1]) * layout.sign
        value = nan if a != a or b != b or abs(b) == inf else inf * (-1) ** (signs[0] ^ signs[1])
    elif word == "cvt":
        value = a
    else:
        value = {"add": a + b, "sub": a - b, "mul": a * b, "fma": a * b + c}[word]
    if value != value:
        return None
    assert abs(value) == inf
    return layout.infinity | (value < 0) * layout.sign


def check(name: str, wide: bool, word: str, kind: str, to: str, mode: str, count: int) -> None:
    generator = random.Random(name)
    layout = LAYOUTS[to]
    for _ in range(VECTORS):
        operands = [[pattern(kind, generator) for _ in range(LANES)] for _ in range(count)]
        for found, *given in zip(applied(name, wide, *operands), *operands):
            wanted = expected(word, kind, to, mode, given)
            shown = f"{name}{tuple(map(hex, given))} = {found:#x}"
            if wanted is None:
                assert found & (layout.sign - 1) > layout.infinity, shown
            else:
                assert found == wanted, f"{shown}, not {wanted:#x}"


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("word", ["add", "sub", "mul", "div", "fma", "sqrt"])
def test_arithmetic_rounds_as_asked(word: str, kind: str, mode: str, wide: bool) -> None:
    check(f"v_{word}_{kind}_{mode}", wide, word, kind, kind, mode, {"fma": 3, "sqrt": 1}.get(word, 2))


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_multiplied_and_added_with_one_rounding(kind: str, wide: bool) -> None:
    check(f"v_fma_{kind}_rn", wide, "fma", kind, kind, "rn", 3)


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("mode", ["rn", *MODES])
@pytest.mark.parametrize(("kind", "to"), [("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16")])
def test_conversions_round_once(kind: str, to: str, mode: str, wide: bool) -> None:
    check(f"v_{kind}_{to}_{mode}", wide, "cvt", kind, to, mode, 1)


@pytest.mark.parametrize("wide", WIDE)
def test_every_half_as_a_float(wide: bool) -> None:
    for first in range(0, 1 << 16, LANES):
        given = list(range(first, first + LANES))
        for item, found in zip(given, applied("v_f16_f32", wide, given)):
            wanted = expected("cvt", "f16", "f32", "rn", [item])
            if wanted is None:
                assert found & 0x7FFFFFFF > 0x7F800000
            else:
                assert found == wanted


@pytest.mark.parametrize("mode", ["rn", "rna", "rz"])
def test_floats_with_ten_fraction_bits(mode: str) -> None:
    """``cvt.….tf32.f32``: rounded to nearest, ties to even or away from zero, or towards zero; the other 13 bits are zero."""
    generator = random.Random(mode)
    for _ in range(VECTORS):
        given = [pattern("f32", generator) for _ in range(LANES)]
        for item, found in zip(given, applied(f"v_f32_tf32_{mode}", False, given)):
            number = decode("f32", item)
            if isinstance(number, float):
                assert found == (0x7FFFE000 if number != number else item)
                continue
            # below infinity neighbours of the format have patterns 2^13 apart, so the pattern rounds as the number does
            steps = Fraction(item & 0x7FFFFFFF, 1 << 13)
            low = int(steps)
            half = steps - low
            up = mode != "rz" and (
                half > Fraction(1, 2) or (half == Fraction(1, 2) and (mode == "rna" or low % 2 == 1))
            )
            assert found == (item & 0x80000000) | (low + up) << 13


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("word", ["div", "rem"])
def test_integer_division(word: str, kind: str, wide: bool) -> None:
    """Truncated quotients; all ones, or the dividend, for a division by zero; the smallest number by −1 wraps. 64-bit numbers of 32
    bits in all lanes are divided as such."""
    bits, signed = int(kind[1:]), kind[0] == "s"
    generator = random.Random(word + kind)
    bounds = [(1 << 31) + delta for delta in (-1, 0, 1)] + [(1 << 32) - 1, 1 << 32, 0, 1, 2, 3]
    for limit in [1 << bits, 1 << 32, 1 << 31, 100] * VECTORS:
        operands = []
        for _ in range(2):
            small = [generator.randrange(limit) - signed * (limit // 2) for _ in range(LANES)]
            values = [
                generator.choice([item, item, item, *(b for b in bounds if b <= limit)]) for item in small
            ]
            operands.append([item * generator.choice([1, 1 - 2 * signed]) % (1 << bits) for item in values])
        for found, *given in zip(applied(f"v_{word}_{kind}", wide, *operands), *operands):
            a, b = (item - (1 << bits) * (signed and item >> (bits - 1)) for item in given)
            quotient = -1 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            wanted = quotient if word == "div" else a - quotient * b if b else a
            assert found == wanted % (1 << bits), f"{word}.{kind} {a}, {b}"
