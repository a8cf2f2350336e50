"""Constants of the LLVM backend: bit patterns of floating-point numbers, and folding of integer operations."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...isa.types import ScalarType, scalar_type

if TYPE_CHECKING:
    from .values import NativeValue

__all__ = ["float_bits", "fold"]


def float_bits(value: float, type: ScalarType) -> int:
    """Bit pattern of a Python float in a float type, rounded to nearest even."""
    if type.name == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    if type.name == "f16":
        return _narrow(value, 5, 10)
    if type.name == "bf16":
        return _narrow(value, 8, 7)
    return _narrow(value, 8, 23)


def _narrow(value: float, exponent_bits: int, fraction_bits: int) -> int:
    """Round to nearest even in a narrower format, from the exact value of the double."""
    raw = int.from_bytes(struct.pack("<d", value), "little")
    sign = raw >> 63 << (exponent_bits + fraction_bits)
    top = (1 << exponent_bits) - 1
    if value != value:
        return (1 << (exponent_bits + fraction_bits)) - 1
    infinity = sign | top << fraction_bits
    if value in (float("inf"), float("-inf")):
        return infinity
    numerator, denominator = abs(value).as_integer_ratio()
    if not numerator:
        return sign
    bias = top >> 1
    exponent = max(numerator.bit_length() - denominator.bit_length(), 1 - bias - 1)
    while (
        numerator >= denominator << (exponent + 1)
        if exponent >= -1
        else numerator << -(exponent + 1) >= denominator
    ):
        exponent += 1
    while exponent > 1 - bias and (
        numerator < denominator << exponent if exponent >= 0 else numerator << -exponent < denominator
    ):
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    shift = fraction_bits - exponent
    scaled, below = (numerator << shift, denominator) if shift >= 0 else (numerator, denominator << -shift)
    quotient, rest = divmod(scaled, below)
    if 2 * rest > below or (2 * rest == below and quotient & 1):
        quotient += 1
    encoded = quotient + ((exponent + bias - 1) << fraction_bits)
    return min(sign | encoded, infinity)


def fold(primitive: str, values: Sequence[NativeValue], attributes: dict[str, Any]) -> NativeValue | None:
    """Integer constants, computed here."""
    first = values[0]
    kind = first.type
    if kind.is_float and primitive not in ("bits", "and", "or", "xor", "not"):
        return None
    numbers = [value.number or 0 for value in values]
    signed = [_signed(number, value.type) for number, value in zip(numbers, values)]
    result: int | None = None
    type = kind
    if primitive in _ARITHMETIC:
        result = _ARITHMETIC[primitive](*numbers)
    elif primitive == "shl":
        result = numbers[0] << min(numbers[1], kind.bits)
    elif primitive == "shr":
        result = signed[0] >> min(numbers[1], kind.bits)
    elif primitive == "compare" and attributes["op"] in _RELATIONS:
        result, type = (
            int(_RELATIONS[attributes["op"]](signed[0], _signed(numbers[1], kind))),
            scalar_type("pred"),
        )
    elif primitive == "convert" and not attributes["type"].is_float and not attributes.get("saturate"):
        result, type = signed[0], attributes["type"]
    elif primitive == "bits" or primitive == "predicate_to":
        result, type = numbers[0], attributes["type"]
    elif primitive == "minimum":
        result = min(signed)
    elif primitive == "maximum":
        result = max(signed)
    if result is None:
        return None
    return first.constant_bits(result & ((1 << type.bits) - 1), type)


def _signed(number: int, type: ScalarType) -> int:
    return number - (1 << type.bits) if type.is_signed and number >> (type.bits - 1) else number


_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
