"""Packed and mixed floating point, extremes with signs, reductions of floats over a warp: exact fractions, both backends."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

import gpuperf_engine as ge

from .reference import LAYOUTS, Exact, decode, float_sum, product
from .running import Words, run_lines

ROUNDINGS = ("rn", "rz", "rm", "rp")
KINDS = {"f16": 16, "bf16": 16, "f32": 32}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


def patterns(kind: str, count: int, seed: object) -> list[int]:
    """Any bits; numbers near one with few bits, so that sums and products tie; special numbers."""
    generator = random.Random(repr((kind, seed)))
    layout = LAYOUTS[kind]
    special = (
        0,
        1,
        layout.infinity,
        layout.infinity - 1,
        layout.nan,
        layout.infinity + 1,
        1 << layout.fraction,
        (1 << layout.fraction) - 1,
    )
    found = []
    for _ in range(count):
        choice = generator.randrange(4)
        if choice == 0:
            word = generator.getrandbits(KINDS[kind])
        elif choice == 1:
            word = generator.choice(special) | (layout.sign if generator.random() < 0.5 else 0)
        else:
            word = ((layout.bias + generator.randrange(-14, 14)) << layout.fraction) | generator.getrandbits(
                layout.fraction
            )
            word = (word & ~((1 << generator.randrange(layout.fraction)) - 1)) | (
                layout.sign if generator.random() < 0.5 else 0
            )
        found.append(word)
    return found


def flushed(kind: str, pattern: int) -> int:
    layout = LAYOUTS[kind]
    return pattern if pattern & layout.infinity else pattern & layout.sign


def result(kind: str, number: Fraction | float, rounding: str, zero_is_negative: bool) -> int:
    """The pattern of an exact number."""
    from gpuperf_engine.isa.types import scalar_type

    return Exact(0, scalar_type(kind))._real(number, rounding, zero_is_negative).pattern


def arithmetic(name: str, given: list[tuple[str, int]], to: str, rounding: str) -> int:
    """add, sub, mul or fma of patterns of any types, rounded once to ``to``."""
    numbers = [decode(kind, pattern) for kind, pattern in given]
    signs = [bool(pattern & LAYOUTS[kind].sign) for kind, pattern in given]
    if name == "sub":
        numbers[1], signs[1] = -numbers[1], not signs[1]
    if name in ("mul", "fma"):
        middle, sign = product(numbers[0], numbers[1]), signs[0] != signs[1]
        if name == "mul":
            return result(to, middle, rounding, sign)
        numbers, signs = [middle, numbers[2]], [sign, signs[2]]
    a, b = numbers
    if isinstance(a, float) or isinstance(b, float):
        return result(to, float_sum(a, b), rounding, False)
    if a == b == 0:
        return result(
            to, Fraction(0), rounding, signs[0] and signs[1] if signs[0] == signs[1] else rounding == "rm"
        )
    return result(to, a + b, rounding, rounding == "rm")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_pairs_of_singles(name: str, rounding: str) -> None:
    count = 3 if name == "fma" else 2
    columns = [[(high << 32) | low for high, low in zip(patterns("f32", 200, (name, place)), patterns("f32", 200, place))]
               for place in range(count)]  # fmt: skip
    given: Words = np.array(columns, np.uint64).T.copy()
    registers = [f"l{place + 1}" for place in range(count)]
    lines = [
        (f"{name}.{rounding}{ftz}.f32x2 l0, {', '.join(registers)};", ["l0"], registers)
        for ftz in ("", ".ftz")
    ]
    for ftz, found in zip((False, True), run_lines(lines, [given, given])):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            expected = 0
            for shift in (0, 32):
                lane = [("f32", x >> shift & 0xFFFFFFFF) for x in row]
                if ftz:
                    lane = [(kind, flushed(kind, x)) for kind, x in lane]
                value = arithmetic(name, lane, "f32", rounding)
                expected |= (flushed("f32", value) if ftz else value) << shift
            assert got == expected, (ftz, [hex(x) for x in row], hex(got), hex(expected))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "fma"])
def test_mixed(name: str, kind: str) -> None:
    kinds = [kind, kind, "f32"] if name == "fma" else [kind, "f32"]
    given: Words = np.array(
        [patterns(each, 300, (name, place)) for place, each in enumerate(kinds)], np.uint64
    ).T.copy()
    registers = [("f" if each == "f32" else "h") + str(place + 1) for place, each in enumerate(kinds)]
    spelled = [(rounding, sat) for rounding in ROUNDINGS for sat in ("", ".sat")]
    lines = [
        (f"{name}.{rounding}{sat}.f32.{kind} f0, {', '.join(registers)};", ["f0"], registers)
        for rounding, sat in spelled
    ]
    for (rounding, sat), found in zip(spelled, run_lines(lines, [given] * len(lines))):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            value = arithmetic(name, list(zip(kinds, row)), "f32", rounding)
            if sat:
                number = decode("f32", value)
                value = 0 if number != number or number <= 0 else min(value, 0x3F800000)
            assert got == value, (rounding, sat, [hex(x) for x in row])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "fma"])
def test_mixed_pairs(name: str, kind: str) -> None:
    kinds = [kind, "f32", "f32"] if name == "fma" else [kind, "f32"]
    columns = []
    for place, each in enumerate(kinds):
        low, high = patterns(each, 150, (name, place)), patterns(each, 150, (name, place, 1))
        columns.append([y << KINDS[each] | x for x, y in zip(low, high)])
    given: Words = np.array(columns, np.uint64).T.copy()
    registers = [("l" if each == "f32" else "r") + str(place + 1) for place, each in enumerate(kinds)]
    types = ".".join("f32x2" if each == "f32" else f"{each}x2" for each in kinds)
    lines = [
        (f"{name}.{rounding}.f32x2.{types} l0, {', '.join(registers)};", ["l0"], registers)
        for rounding in ROUNDINGS
    ]
    for rounding, found in zip(ROUNDINGS, run_lines(lines, [given] * 4)):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            expected = 0
            for lane in (0, 1):
                operands = [
                    (each, x >> lane * KINDS[each] & ((1 << KINDS[each]) - 1)) for each, x in zip(kinds, row)
                ]
                expected |= arithmetic(name, operands, "f32", rounding) << 32 * lane
            assert got == expected, (rounding, [hex(x) for x in row])


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_narrowed(name: str) -> None:
    columns = [
        [y << 32 | x for x, y in zip(patterns("f32", 200, (name, place)), patterns("f32", 200, place))]
        for place in (0, 1)
    ]
    given: Words = np.array(columns, np.uint64).T.copy()
    lines = [
        (f"{name}.rz.ftz.f16x2.f32x2.f32x2 r0, l1, l2;", ["r0"], ["l1", "l2"]),
        (f"{name}.rz.bf16x2.f32x2.f32x2 r0, l1, l2;", ["r0"], ["l1", "l2"]),
    ]
    for kind, found in zip(("f16", "bf16"), run_lines(lines, [given, given])):
        for row, got in zip(given.tolist(), found[:, 0].tolist()):
            expected = 0
            for lane in (0, 1):
                operands = [("f32", x >> 32 * lane & 0xFFFFFFFF) for x in row]
                if kind == "f16":
                    operands = [(each, flushed(each, x)) for each, x in operands]
                value = arithmetic(name, operands, kind, "rz")
                expected |= (flushed(kind, value) if kind == "f16" else value) << 16 * lane
            assert got == expected, (kind, [hex(x) for x in row])


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_extremes_with_signs(kind: str) -> None:
    """.xorsign.abs: the smaller or larger magnitude with the exclusive or of the signs; a NaN keeps out of it."""
    layout = LAYOUTS[kind]
    given: Words = np.array([patterns(kind, 300, 1), patterns(kind, 300, 2)], np.uint64).T.copy()
    letter = "f" if kind == "f32" else "h"
    spelled = [(name, nan) for name in ("min", "max") for nan in ("", ".NaN")]
    lines = [
        (
            f"{name}{nan}.xorsign.abs.{kind} {letter}0, {letter}1, {letter}2;",
            [f"{letter}0"],
            [f"{letter}1", f"{letter}2"],
        )
        for name, nan in spelled
    ]
    for (name, nan), found in zip(spelled, run_lines(lines, [given] * 4)):
        for (a, b), got in zip(given.tolist(), found[:, 0].tolist()):
            x, y = a & ~layout.sign, b & ~layout.sign
            unordered = [each > layout.infinity for each in (x, y)]
            if all(unordered) or (nan and any(unordered)):
                expected = NAN[kind]
            else:
                rest = [each for each in (x, y) if each <= layout.infinity]
                expected = (min if name == "min" else max)(rest) | ((a ^ b) & layout.sign)
            assert got == expected, (name, nan, hex(a), hex(b))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_products_out_of_bounds(kind: str) -> None:
    """fma.oob: +0 where a or b is the NaN that fills tensors; every other NaN stays one."""
    one = LAYOUTS[kind].bias << LAYOUTS[kind].fraction
    rows = [
        (0xFFF7, one, one),
        (one, 0x7FF7, 0x7FFF),
        (0x7FFF, one, one),
        (one, one, one),
        (one | 0x8000, one, 0),
        (one, one, 0x7FF7),
    ]
    given = np.array(rows, np.uint64)
    lines = [
        (f"fma.rn.oob{relu}.{kind} h0, h1, h2, h3;", ["h0"], ["h1", "h2", "h3"]) for relu in ("", ".relu")
    ]
    plain, positive = run_lines(lines, [given, given])
    two = one + (1 << LAYOUTS[kind].fraction)
    assert plain[:, 0].tolist() == [0, 0, 0x7FFF, two, one | 0x8000, 0x7FFF]
    assert positive[:, 0].tolist() == [0, 0, 0x7FFF, two, 0, 0x7FFF]


REDUX = """
.version 8.8
.target sm_100f
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 mask)
{
.reg .b32 r<5>; .reg .f32 f<9>; .reg .b64 l<5>; .reg .pred p;
ld.param.u64 l0, [in]; ld.param.u64 l1, [out]; ld.param.u32 r0, [mask];
mov.u32 r1, %tid.x; mul.wide.u32 l2, r1, 4; add.u64 l0, l0, l2; add.u64 l1, l1, l2;
ld.global.f32 f0, [l0];
shr.u32 r2, r0, r1; and.b32 r2, r2, 1; setp.eq.u32 p, r2, 0;
@p bra DONE;
"""


@pytest.mark.parametrize("op", ["min", "max"])
def test_reductions(op: str, backend: str) -> None:
    """Over full and partial masks and single lanes: NaN loses without .NaN, −0 is below +0, .abs takes magnitudes."""
    spelled = [magnitude + nan for magnitude in ("", ".abs") for nan in ("", ".NaN")]
    body = [
        f"redux.sync.{op}{words}.f32 f1, f0, r0; st.global.f32 [l1+{128 * place}], f1;"
        for place, words in enumerate(spelled)
    ]
    module = ge.parse(REDUX + "\n".join([*body, "DONE:", "ret;", "}"]), path="redux.ptx")
    generator = random.Random(op)
    for mask in (0xFFFFFFFF, 0x80000000, 1, 0x0F0F00F1, 0x00010002):
        for fill in (None, 0xFFC00001, 0x80000000):
            words = patterns("f32", 32, (op, mask)) if fill is None else [fill] * 32
            if fill == 0x80000000:
                words[generator.randrange(32)] = 0
            device = ge.Device(backend=backend)
            source, target = (
                device.array(np.array(words, np.uint32)),
                device.zeros(32 * len(spelled), np.uint32),
            )
            device.launch(module["k"], grid=1, block=32, args=[source, target, np.uint32(mask)])
            found = target.numpy().reshape(len(spelled), 32)
            members = [lane for lane in range(32) if mask >> lane & 1]
            for place, modifiers in enumerate(spelled):
                taken = [words[lane] & (0x7FFFFFFF if "abs" in modifiers else 0xFFFFFFFF) for lane in members]
                numbers = [x for x in taken if x & 0x7FFFFFFF <= 0x7F800000]
                if not numbers or ("NaN" in modifiers and len(numbers) < len(taken)):
                    expected = 0x7FFFFFFF
                else:
                    expected = (min if op == "min" else max)(
                        numbers, key=lambda x: -(x & 0x7FFFFFFF) - 1 if x >> 31 else x
                    )
                assert {int(found[place, lane]) for lane in members} == {expected}, (hex(mask), modifiers)
