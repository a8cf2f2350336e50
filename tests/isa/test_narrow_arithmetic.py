"""Arithmetic on four numbers of 8, 6 and 4 bits, on bytes and halves as integers, and products without carries: exact values."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from .narrow_numbers import FORMS, scale_of
from .reference import product
from .running import Words, run_lines

#: bits from one number of a packed operand to the next, and the register that holds four
PLACES = {
    "e5m2": (8, "r"),
    "e4m3": (8, "r"),
    "e3m2": (8, "r"),
    "e2m3": (8, "r"),
    "e2m1": (4, "h"),
    "e2m1p4": (8, "r"),
    "ue8m0": (8, "r"),
}


def packed(kind: str, generator: random.Random) -> int:
    step, _ = PLACES[kind]
    word = 0
    for place in range(4):
        code = generator.choice(
            (
                0,
                0x80,
                0x7F,
                0x7E,
                0x7C,
                0x7B,
                0x01,
                0x38,
                0x3C,
                generator.getrandbits(8),
                generator.getrandbits(8),
            )
        )
        if kind == "ue8m0":
            code = generator.choice((127, 126, 130, 118, 140, 110, 0, 254, 255, generator.getrandbits(8)))
        word |= (code & ((1 << step) - 1)) << step * place
    return word


@cache
def number(kind: str, code: int) -> tuple[Fraction | float, bool]:
    """The number and whether its sign is negative."""
    if kind == "ue8m0":
        return scale_of(code), False
    form = FORMS[kind.removesuffix("p4")]
    return form.decoded(code), bool(code & form.sign)


def numbers(kind: str, word: int) -> list[tuple[Fraction | float, bool]]:
    """Each number and whether its sign is negative."""
    step, _ = PLACES[kind]
    return [number(kind, word >> step * place & ((1 << step) - 1)) for place in range(4)]


Signed = tuple[Fraction | float, bool]


def total(a: Signed, b: Signed) -> Signed:
    """The exact sum and its sign; zeros of two signs give +0."""
    (x, x_negative), (y, y_negative) = a, b
    if isinstance(x, float) or isinstance(y, float):
        value = x + y if isinstance(x, float) and isinstance(y, float) else x if isinstance(x, float) else y
        return value, value < 0
    value = x + y
    return value, value < 0 if value else x_negative and y_negative


def times(a: Signed, b: Signed) -> Signed:
    return product(a[0], b[0]), a[1] != b[1]


NAMES = list(PLACES)


@pytest.mark.parametrize("to", ["e4m3", "e5m2"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_four(name: str, to: str) -> None:
    generator = random.Random(name + to)
    kinds = [(left, right) for left in NAMES for right in NAMES]
    lines, operands, options = [], [], []
    for left, right in kinds if name in ("mul", "fma") else [(left, to) for left in NAMES]:
        finite = generator.choice(("", ".satfinite"))
        second = f".{right}x4" if name in ("mul", "fma") else ""
        registers = [f"{PLACES[left][1]}1", f"{PLACES[right][1]}2"] + (["r3"] if name == "fma" else [])
        lines.append(
            (f"{name}.rn{finite}.{to}x4.{left}x4{second} r0, {', '.join(registers)};", ["r0"], registers)
        )
        columns = [left, right] + ([to] if name == "fma" else [])
        rows = [[packed(kind, generator) for kind in columns] for _ in range(16)]
        operands.append(np.array(rows, np.uint64))
        options.append((columns, bool(finite)))
    for line, given, (columns, finite), found in zip(
        lines, operands, options, run_lines(lines, operands, target="sm_100a")
    ):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            expected = 0
            for place, lane in enumerate(zip(*(numbers(kind, word) for kind, word in zip(columns, row)))):
                if name == "mul":
                    value, negative = times(lane[0], lane[1])
                elif name == "fma":
                    value, negative = total(times(lane[0], lane[1]), lane[2])
                else:
                    second_ = lane[1] if name == "add" else (-lane[1][0], not lane[1][1])
                    value, negative = total(lane[0], second_)
                expected |= FORMS[to].encoded(value, negative, finite=finite) << 8 * place
            assert got == expected, (line[0], [hex(x) for x in row], hex(got), hex(expected))


def test_one_rounding() -> None:
    """2^100 + 2^-16 is above 2^100; 1 + 2^-4 is half way between two e4m3 numbers, and what is far below it decides."""
    one, sixteenth = 0x38, 0x18  # 1, 2^-4
    given = np.array([[sixteenth, one, one], [sixteenth, one, one]], np.uint64)
    (found,) = run_lines(
        [("fma.rn.e4m3x4.e4m3x4.e4m3x4 r0, r1, r2, r3;", ["r0"], ["r1", "r2", "r3"])],
        [given],
        target="sm_100a",
    )
    assert found[:, 0].tolist() == [one, one]
    tie = np.array([[127 - 60, 0x38 | 0x80, sixteenth]], np.uint64)  # −2^-60 + 2^-4
    (found,) = run_lines(
        [("fma.rn.e5m2x4.ue8m0x4.e4m3x4 r0, r1, r2, r3;", ["r0"], ["r1", "r2", "r3"])],
        [tie],
        target="sm_100a",
    )
    assert found[0, 0] & 0xFF == FORMS["e5m2"].encoded(
        FORMS["e5m2"].decoded(sixteenth) - Fraction(1, 2**60), False
    )


BITS = {"u8x4": 8, "s8x4": 8, "u16x2": 16, "s16x2": 16, "u32": 32}


def parts(kind: str, word: int) -> list[int]:
    bits = BITS[kind]
    found = [word >> shift & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    return [part - (part >> (bits - 1) << bits) for part in found] if kind[0] == "s" else found


def word_of(kind: str, values: list[int], saturate: bool = False) -> int:
    bits = BITS[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    word = 0
    for place, value in enumerate(values):
        value = max(low, min(high, value)) if saturate else value
        word |= (value & ((1 << bits) - 1)) << place * bits
    return word


def words(seed: int) -> Words:
    generator = random.Random(seed)
    edges = (
        0,
        0xFFFFFFFF,
        0x80808080,
        0x7F7F7F7F,
        0x80008000,
        0x7FFF7FFF,
        0x00FF00FF,
        0x01010101,
        0x80000000,
    )
    rows = [(x, y) for x in edges for y in edges] + [
        (generator.getrandbits(32), generator.getrandbits(32)) for _ in range(60)
    ]
    return np.array(rows, np.uint64)


@pytest.mark.parametrize("kind", BITS)
def test_sums_of_lanes(kind: str) -> None:
    given = words(1)
    names = ["add", "add.sat", "sub", "sub.sat"] if BITS[kind] == 8 else ["add.sat"]
    lines = [(f"{name}.{kind} r0, r1, r2;", ["r0"], ["r1", "r2"]) for name in names]
    for name, found in zip(names, run_lines(lines, [given] * len(lines))):
        for (x, y), got in zip(given.tolist(), found[:, 0].tolist()):
            sign = 1 if name.startswith("add") else -1
            values = [a + sign * b for a, b in zip(parts(kind, x), parts(kind, y))]
            assert got == word_of(kind, values, "sat" in name), (name, hex(x), hex(y))


@pytest.mark.parametrize("kind", ["u8x4", "s8x4"])
def test_extremes_of_lanes(kind: str) -> None:
    given = words(2)
    spelled = ["min", "max"] + (["min.relu", "max.relu", "neg"] if kind == "s8x4" else [])
    lines = [
        (f"{name}.{kind} r0, r1{'' if name == 'neg' else ', r2'};", ["r0"], ["r1", "r2"]) for name in spelled
    ]
    for name, found in zip(spelled, run_lines(lines, [given] * len(lines))):
        for (x, y), got in zip(given.tolist(), found[:, 0].tolist()):
            pairs = list(zip(parts(kind, x), parts(kind, y)))
            if name == "neg":
                values = [-a for a, _ in pairs]
            else:
                values = [(min if name.startswith("min") else max)(pair) for pair in pairs]
            if "relu" in name:
                values = [max(value, 0) for value in values]
            assert got == word_of(kind, values), (name, hex(x), hex(y))


@pytest.mark.parametrize("kind", ["u8x4", "s8x4", "u16x2", "s16x2"])
def test_comparisons_of_lanes(kind: str) -> None:
    given = words(3)
    operators = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }  # fmt: skip
    names = dict(operators)
    if kind[0] == "u":
        names |= {"lo": operators["lt"], "ls": operators["le"], "hi": operators["gt"], "hs": operators["ge"]}
    lines = [(f"set.{name}.{kind} r0, r1, r2;", ["r0"], ["r1", "r2"]) for name in names]
    for (name, holds), found in zip(names.items(), run_lines(lines, [given] * len(lines))):
        for (x, y), got in zip(given.tolist(), found[:, 0].tolist()):
            values = [-1 if holds(a, b) else 0 for a, b in zip(parts(kind, x), parts(kind, y))]
            assert got == word_of(kind, values), (name, hex(x), hex(y))


def test_products_without_carries() -> None:
    generator = random.Random(9)
    edges = (0, 1, 2, (1 << 64) - 1, 1 << 63, 0xAAAAAAAAAAAAAAAA)
    rows = [(x, y, generator.getrandbits(64)) for x in edges for y in edges]
    rows += [tuple(generator.getrandbits(64) for _ in range(3)) for _ in range(40)]
    given = np.array(rows, np.uint64)
    lines = [(f"clmad.{mode}.u64 l0, l1, l2, l3;", ["l0"], ["l1", "l2", "l3"]) for mode in ("lo", "hi")]
    for shift, found in zip((0, 64), run_lines(lines, [given, given])):
        for (a, b, c), got in zip(given.tolist(), found[:, 0].tolist()):
            whole = 0
            for place in range(64):
                if a >> place & 1:
                    whole ^= b << place
            assert got == (whole >> shift & (1 << 64) - 1) ^ c
