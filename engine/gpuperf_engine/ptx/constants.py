"""Literals and constant expressions (PTX manual, "Constants" and "Constant Expressions").

Integer constants are 64 bits wide: signed unless they carry ``U`` or need the top bit; an operation is unsigned if one
of its operands is, except that shifts take the type of the left one and comparisons give a signed result.
"""

from __future__ import annotations

import struct

__all__ = [
    "Constant",
    "ConstantError",
    "binary",
    "bits_of",
    "cast",
    "decimal",
    "double_bits",
    "integer",
    "single_bits",
    "unary",
    "value_of",
]

#: (value, kind) with kind ``s64``, ``u64``, ``f32`` or ``f64``; see ``raw.Number``.
Constant = tuple[int, str]

_MASK = (1 << 64) - 1
_RADIX = {"x": 16, "X": 16, "b": 2, "B": 2}
_COMPARISON = frozenset(["==", "!=", "<", "<=", ">", ">="])


class ConstantError(Exception):
    """An invalid constant; the caller adds the position."""


def _wrap(value: int, kind: str) -> Constant:
    value &= _MASK
    if kind == "s64" and value >> 63:
        value -= 1 << 64
    return value, kind


def integer(text: str) -> Constant:
    """An integer literal: decimal, ``0x``, ``0b``, octal with a leading ``0``, optionally ``U``."""
    digits = text[:-1] if text[-1] == "U" else text
    if len(digits) > 66:
        raise ConstantError(f"integer constant of {len(digits)} digits does not fit 64 bits")
    if len(digits) > 1 and digits[0] == "0":
        radix = _RADIX.get(digits[1])
        value = int(digits, 8) if radix is None else int(digits[2:], radix)
    else:
        value = int(digits)
    if value > _MASK:
        raise ConstantError(f"integer constant {digits} does not fit 64 bits")
    return value, "u64" if text[-1] == "U" or value >> 63 else "s64"


def single_bits(text: str) -> Constant:
    """``0f`` and eight hexadecimal digits."""
    return int(text[2:], 16), "f32"


def double_bits(text: str) -> Constant:
    """``0d`` and sixteen hexadecimal digits."""
    return int(text[2:], 16), "f64"


def bits_of(value: float, kind: str) -> int:
    """The bit pattern of a number as ``f32`` (rounded to nearest even, too large ones infinite) or ``f64``."""
    if kind == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def decimal(text: str) -> Constant:
    """A decimal floating-point literal: a double."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ConstantError("floating-point constant is larger than a double can be")
    return bits_of(value, "f64"), "f64"


def value_of(constant: Constant) -> int | float:
    """The number of a constant."""
    pattern, kind = constant
    if kind == "f64":
        return float(struct.unpack("<d", pattern.to_bytes(8, "little"))[0])
    if kind == "f32":
        return float(struct.unpack("<f", pattern.to_bytes(4, "little"))[0])
    return pattern


def _floating(operator: str, a: Constant, b: Constant) -> Constant:
    if "f" not in a[1][0] or "f" not in b[1][0]:
        raise ConstantError(f"operator {operator!r} mixes integer and floating-point constants")
    left, right = float(value_of(a)), float(value_of(b))
    if operator in _COMPARISON:
        return int(_compare(operator, left, right)), "s64"
    try:
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        elif operator == "/":
            result = left / right
        else:
            raise ConstantError(f"operator {operator!r} is not defined for floating-point constants")
    except ZeroDivisionError:
        raise ConstantError("division by zero in a constant expression") from None
    return bits_of(result, "f64"), "f64"


def _compare(operator: str, left: float, right: float) -> bool:
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


def binary(operator: str, a: Constant, b: Constant) -> Constant:
    """``a operator b``. Raises ``ConstantError`` for division by zero and for operands that the operator does not accept."""
    if a[1][0] == "f" or b[1][0] == "f":
        return _floating(operator, a, b)
    kind = "u64" if "u64" in (a[1], b[1]) else "s64"
    left, right = _wrap(a[0], kind)[0], _wrap(b[0], kind)[0]
    if operator in _COMPARISON:
        return int(_compare(operator, left, right)), "s64"
    if operator == "&&":
        return int(bool(left) and bool(right)), "s64"
    if operator == "||":
        return int(bool(left) or bool(right)), "s64"
    if operator in ("<<", ">>"):
        amount = b[0] & _MASK
        if operator == "<<":
            return _wrap(a[0] << amount if amount < 64 else 0, a[1])
        return _wrap(a[0] >> min(amount, 64), a[1])
    if operator in ("/", "%"):
        if right == 0:
            raise ConstantError("division by zero in a constant expression")
        quotient = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            quotient = -quotient
        return _wrap(quotient if operator == "/" else left - quotient * right, kind)
    result = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "&": left & right,
        "|": left | right,
        "^": left ^ right,
    }[operator]
    return _wrap(result, kind)


def unary(operator: str, a: Constant) -> Constant:
    """``operator a`` for ``+ - ! ~``."""
    if a[1][0] == "f":
        if operator == "-" and a[1] == "f64":
            return a[0] ^ (1 << 63), "f64"
        if operator == "+":
            return a
        raise ConstantError(f"operator {operator!r} is not defined for this floating-point constant")
    if operator == "-":
        return _wrap(-a[0], a[1])
    if operator == "~":
        return _wrap(~a[0], a[1])
    if operator == "!":
        return int(a[0] == 0), "s64"
    return a


def cast(type_name: str, a: Constant) -> Constant:
    """``(.s64) a`` or ``(.u64) a``."""
    if type_name not in (".s64", ".u64"):
        raise ConstantError(f"cast to {type_name}: constant expressions know the casts (.s64) and (.u64)")
    if a[1][0] == "f":
        raise ConstantError("a floating-point constant cannot be cast")
    return _wrap(a[0], type_name[1:])
