"""Every primitive on lanes against Python integers and plain definitions, inactive-lane hazards included."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from gpuperf_engine.interp.values import LaneValue, dtype_of
from gpuperf_engine.isa import primitives
from gpuperf_engine.isa.types import ScalarType, scalar_type

INTEGERS = [f"{kind}{bits}" for kind in "sub" for bits in (8, 16, 32, 64)]


def lanes(type_name: str, *values: int) -> LaneValue:
    """Values given as integers (bit patterns for floating-point types)."""
    type_ = scalar_type(type_name)
    if type_.is_predicate:
        return LaneValue(np.array([bool(value) for value in values]), type_)
    if type_.bits == 128:
        return LaneValue(np.array(values, dtype=object), type_)
    masked = [value & ((1 << type_.bits) - 1) for value in values]
    raw = np.array(masked, np.uint64).astype(f"u{type_.bytes}")
    return LaneValue(raw.view(dtype_of(type_)), type_)


def ints(value: primitives.Value) -> list[int]:
    assert isinstance(value, LaneValue)
    assert value.data.dtype == dtype_of(value.type)
    return [int(item) for item in value.data.tolist()]


def f32(*values: float) -> LaneValue:
    return LaneValue(np.array(values, np.float32).view(np.uint32), scalar_type("f32"))


def floats(value: primitives.Value) -> list[float]:
    assert isinstance(value, LaneValue)
    view = {16: np.float16, 32: np.float32, 64: np.float64}[value.type.bits]
    return [float(item) for item in value.data.view(view)]


def wrap(value: int, type_: ScalarType) -> int:
    value &= (1 << type_.bits) - 1
    return value - (1 << type_.bits) if type_.is_signed and value >> (type_.bits - 1) else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def binary(op: str, a: int, b: int, type_: ScalarType) -> int:
    """By the definitions in ``words.PRIMITIVES``."""
    bits = type_.bits
    if op == "div":
        return wrap(truncated(a, b) if b else -1, type_)
    if op == "rem":
        return wrap(a - truncated(a, b) * b if b else a, type_)
    amount = b & ((1 << bits) - 1)
    results = {
        "add": a + b, "sub": a - b, "mul": a * b, "high": (a * b) >> bits, "and": a & b, "or": a | b, "xor": a ^ b,
        "minimum": min(a, b), "maximum": max(a, b),
        "shl": a << amount if amount < bits else 0, "shr": a >> min(amount, bits),
    }  # fmt: skip
    return wrap(results[op], type_)


BINARY = ["add", "sub", "mul", "high", "div", "rem", "and", "or", "xor", "minimum", "maximum", "shl", "shr"]


def words_of(bits: int, made: random.Random, count: int) -> list[int]:
    edges = [0, 1, 2, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, bits - 1, bits, bits + 1]
    return [
        made.choice((made.choice(edges), made.getrandbits(bits), made.randint(0, 70 % (1 << bits))))
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", BINARY)
def test_integer_operations(op: str, name: str) -> None:
    type_, made = scalar_type(name), random.Random(f"{op} {name}")
    a, b = (lanes(name, *words_of(type_.bits, made, 200)) for _ in range(2))
    amount = b.bits(scalar_type(f"u{type_.bits}")) if op in ("shl", "shr") else b
    found = ints(a.apply(op, amount))
    assert found == [binary(op, x, y, type_) for x, y in zip(ints(a), ints(b))]


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_operations_of_one_operand(name: str) -> None:
    type_ = scalar_type(name)
    bits = type_.bits
    patterns = [0, 1, 2, 0x5A % (1 << bits), (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1]
    value = lanes(name, *patterns)
    numbers = ints(value)
    assert ints(~value) == [wrap(~number, type_) for number in numbers]
    assert ints(-value) == [wrap(-number, type_) for number in numbers]
    assert ints(abs(value)) == [wrap(abs(number), type_) for number in numbers]
    assert ints(primitives.popc(value)) == [bin(word).count("1") for word in patterns]
    assert ints(primitives.clz(value)) == [bits - word.bit_length() for word in patterns]
    reversed_bits = [int(format(word, f"0{bits}b")[::-1], 2) for word in patterns]
    assert ints(primitives.brev(value)) == [wrap(word, type_) for word in reversed_bits]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_integer_conversions(source: str, target: str) -> None:
    from_type, to_type = scalar_type(source), scalar_type(target)
    bits = from_type.bits
    value = lanes(source, 0, 1, 0x7F, 0x80, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1)
    numbers = ints(value)
    assert ints(value.convert(to_type)) == [wrap(number, to_type) for number in numbers]
    low = -(1 << (to_type.bits - 1)) if to_type.is_signed else 0
    high = (1 << (to_type.bits - to_type.is_signed)) - 1
    clamped = [min(max(number, low), high) for number in numbers]
    assert ints(value.convert(to_type, saturate=True)) == clamped


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize(
    "rounding,rule", [("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)]
)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_become_integers(source: str, rounding: str, rule: Any, target: str) -> None:
    type_ = scalar_type(target)
    numbers = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.25,
        -0.75,
        127.0,
        128.0,
        -128.0,
        -129.0,
        255.0,
        256.0,
        32768.0,
    ]
    numbers += [float(2.0**power) for power in (31, 32, 62, 63, 64, 90)] if source != "f16" else []
    numbers += [-number for number in numbers[-6:]]
    make = lanes("f64", 0)
    value = LaneValue(np.array(numbers, np.float64).view(np.uint64), scalar_type("f64")).convert(
        scalar_type(source)
    )
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    high = (1 << (type_.bits - type_.is_signed)) - 1
    exact = LaneValue(value.data, value.type).convert(scalar_type("f64"))  # type: ignore[attr-defined]
    wanted = [min(max(rule(number), low), high) for number in floats(exact)]
    assert ints(value.convert(type_, rounding=rounding)) == wanted
    special = [make.constant(number, scalar_type(source)) for number in (math.inf, -math.inf, math.nan)]
    assert [ints(item.convert(type_, rounding=rounding))[0] for item in special] == [high, low, 0]


def test_saturating_conversions_to_floats() -> None:
    value = f32(-1.0, -0.0, 0.25, 1.0, 1.5, math.inf, math.nan)
    for name in ("f16", "f32", "f64"):
        found = value.convert(scalar_type(name), rounding="rn", saturate=True)
        assert floats(found) == [0.0, 0.0, 0.25, 1.0, 1.0, 1.0, 0.0]
        assert ints(found)[1] == 0  # +0
    assert floats(lanes("s32", -5, 0, 1, 7).convert(scalar_type("f32"), saturate=True)) == [
        0.0,
        0.0,
        1.0,
        1.0,
    ]


def test_float_comparisons_and_nan() -> None:
    a = f32(1.0, 2.0, math.nan, 0.0, -math.inf)
    b = f32(2.0, 2.0, 1.0, -0.0, math.nan)
    wanted = {
        "eq": [0, 1, 0, 1, 0], "ne": [1, 0, 0, 0, 0], "lt": [1, 0, 0, 0, 0], "le": [1, 1, 0, 1, 0], "gt": [0, 0, 0, 0, 0],
        "ge": [0, 1, 0, 1, 0], "equ": [0, 1, 1, 1, 1], "neu": [1, 0, 1, 0, 1], "ltu": [1, 0, 1, 0, 1],
        "leu": [1, 1, 1, 1, 1], "gtu": [0, 0, 1, 0, 1], "geu": [0, 1, 1, 1, 1], "num": [1, 1, 0, 1, 0],
        "nan": [0, 0, 1, 0, 1],
    }  # fmt: skip
    for op, row in wanted.items():
        for name in ("f16", "bf16", "f32", "f64"):
            found = a.convert(scalar_type(name)).compare(op, b.convert(scalar_type(name)))
            assert ints(found) == row, (op, name)


def test_minimum_and_maximum_order_zeros_and_drop_one_nan() -> None:
    a = lanes("f32", 0x80000000, 0x00000000, 0x7FC00001, 0x3F800000, 0x7F800001, 0x00000001)
    b = lanes("f32", 0x00000000, 0x80000000, 0x3F800000, 0x7FFFFFFF, 0xFFC00000, 0x80000001)
    canonical = 0x7FFFFFFF
    assert ints(primitives.minimum(a, b)) == [
        0x80000000,
        0x80000000,
        0x3F800000,
        0x3F800000,
        canonical,
        0x80000001,
    ]
    assert ints(primitives.maximum(a, b)) == [0, 0, 0x3F800000, 0x3F800000, canonical, 1]
    assert ints(primitives.minimum(a, b, nan=True)) == [
        0x80000000,
        0x80000000,
        canonical,
        canonical,
        canonical,
        0x80000001,
    ]
    assert ints(primitives.maximum(a, b, nan=True))[2:5] == [canonical] * 3


def test_bit_operations_keep_nan_payloads() -> None:
    value = lanes("f32", 0x7F800001, 0xFFC12345, 0x80000000)
    assert ints(-value) == [0xFF800001, 0x7FC12345, 0]
    assert ints(abs(value)) == [0x7F800001, 0x7FC12345, 0]
    assert ints(value.flush()) == [0x7F800001, 0xFFC12345, 0x80000000]
    assert ints(value.bits(scalar_type("s32"))) == [0x7F800001, 0xFFC12345 - (1 << 32), -(1 << 31)]
    assert ints(primitives.select(lanes("pred", 1, 0, 1), value, lanes("f32", 1, 2, 3))) == [
        0x7F800001,
        2,
        0x80000000,
    ]


def test_flush_and_integral_rounding() -> None:
    assert ints(lanes("f32", 1, 0x807FFFFF, 0x00800000, 0).flush()) == [0, 0x80000000, 0x00800000, 0]
    assert ints(lanes("f16", 0x03FF, 0x8001, 0x0400).flush()) == [0, 0x8000, 0x0400]
    value = f32(-0.25, 0.5, 1.5, 2.5, math.inf)
    for rounding, wanted in {
        "rni": [-0.0, 0.0, 2.0, 2.0, math.inf],
        "rzi": [-0.0, 0.0, 1.0, 2.0, math.inf],
        "rmi": [-1.0, 0.0, 1.0, 2.0, math.inf],
        "rpi": [-0.0, 1.0, 2.0, 3.0, math.inf],
    }.items():
        found = value.apply("round_integral", rounding=rounding)
        assert floats(found) == wanted
        assert math.copysign(1, floats(found)[0]) == -1
    assert ints(lanes("f32", 0x7F800001).apply("round_integral", rounding="rni")) == [0x7FFFFFFF]


def test_constants_and_mixed_operands() -> None:
    value = f32(1.0, 2.0)
    assert floats(value + 1) == [2.0, 3.0]
    assert floats(0.5 - value) == [-0.5, -1.5]
    zero, minus = value.constant(0.0, value.type), value.constant(-0.0, value.type)
    assert (ints(zero), ints(minus)) == ([0], [0x80000000])
    assert ints(value.constant(-1, scalar_type("u16"))) == [0xFFFF]
    assert ints(value.constant(2**24 + 1, scalar_type("f32"))) == [0x4B800000]
    assert ints(value.constant(0.1, scalar_type("f16"))) == [0x2E66]
    assert ints(value.constant_bits(0x7F800001, scalar_type("f32"))) == [0x7F800001]
    assert ints(value.constant(3, scalar_type("s8")) + lanes("s8", 126, 1)) == [-127, 4]


def test_128_bit_values_are_put_together_and_taken_apart() -> None:
    low, high = lanes("b64", 0xFFFFFFFFFFFFFFFF, 5), lanes("b64", 1, 0x8000000000000000)
    whole = primitives.concat([low, high])
    assert ints(whole) == [0x1FFFFFFFFFFFFFFFF, (0x8000000000000000 << 64) | 5]
    assert [ints(piece) for piece in primitives.split(whole, 2)] == [ints(low), ints(high)]
    assert ints(~whole) == [(1 << 128) - 1 - number for number in ints(whole)]
    assert ints(whole.compare("eq", whole ^ 1)) == [0, 0]
    assert ints(primitives.select(lanes("pred", 0, 1), whole, whole ^ whole)) == [0, ints(whole)[1]]


def test_predicates() -> None:
    p, q = lanes("pred", 0, 0, 1, 1), lanes("pred", 0, 1, 0, 1)
    assert ints(p & q) == [0, 0, 0, 1]
    assert ints(p | q) == [0, 1, 1, 1]
    assert ints(p ^ q) == [0, 1, 1, 0]
    assert ints(~p) == [1, 1, 0, 0]
    assert ints(p.apply("predicate_to", type=scalar_type("u32"))) == [0, 0, 1, 1]
    assert ints(primitives.select(p, q, ~q)) == [1, 0, 0, 1]
