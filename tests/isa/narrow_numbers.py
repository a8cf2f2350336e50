"""Narrow formats by their tables of numbers: every code's value as an exact fraction, and rounding by search in the table.

Written from the PTX manual ("Alternate Floating-Point Data Formats", "cvt") and the OCP Microscaling specification alone.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

__all__ = ["FORMS", "MEMORY", "Form", "fixed", "half_stochastic", "number", "power", "scale_of"]

#: format of a 16- or 32-bit source: bits of exponent and fraction
WIDE = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}


#: of numbers and codes that are remembered: operands repeat in many instructions
MEMORY = 1 << 16


@lru_cache(MEMORY)
def number(kind: str, pattern: int) -> Fraction | float:
    """The number of a pattern; infinities and NaN as floats."""
    exponent_bits, fraction_bits = WIDE[kind]
    sign = -1 if pattern >> (exponent_bits + fraction_bits) else 1
    exponent = pattern >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = pattern & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    whole = fraction + (bool(exponent) << fraction_bits)
    return sign * whole * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


@dataclass(frozen=True)
class Form:
    """A format by its widths and bias; ``infinity`` and ``nan`` are codes, or ``None``."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    signed: bool = True

    @property
    def width(self) -> int:
        return self.signed + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1) if self.signed else 0

    @property
    def past(self) -> int:
        """What stands for numbers that are too large where they are not limited."""
        found = self.nan if self.infinity is None else self.infinity
        assert found is not None
        return found

    @cached_property
    def values(self) -> list[Fraction]:
        """The non-negative finite numbers by code."""
        found = []
        for code in range(self.largest + 1):
            field, fraction = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
            whole = fraction + (bool(field) << self.mantissa)
            found.append(whole * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa))
        return found

    def decoded(self, code: int) -> Fraction | float:
        magnitude = code & ~self.sign & ((1 << self.width) - 1)
        sign = -1 if code & self.sign else 1
        if magnitude == self.infinity:
            return sign * math.inf
        if magnitude > self.largest:
            return math.nan
        return sign * self.values[magnitude]

    def encoded(
        self,
        value: Fraction | float,
        negative: bool,
        rounding: str = "rn",
        random: int = 0,
        finite: bool = True,
    ) -> int:
        """The code of a number, ``negative`` the sign of its source (which zeros have too); ``random`` are the 16 bits of rs."""
        if value != value:
            return self.largest if self.nan is None else self.nan
        sign = self.sign if negative else 0
        if value in (math.inf, -math.inf):
            assert finite or self.nan is not None
            return sign | (self.largest if finite else self.past)
        size = abs(Fraction(value))
        values = self.values
        low = bisect.bisect_right(values, size) - 1
        step = values[low] - values[low - 1] if low == self.largest else values[low + 1] - values[low]
        share = (size - values[low]) / step
        if rounding == "rn":
            up = share > Fraction(1, 2) or (share == Fraction(1, 2) and low % 2 == 1)
        elif rounding == "rs":
            up = math.floor(share * 65536) + random >= 65536
        else:
            up = rounding == "rp" and share > 0
        code = low + up
        if code <= self.largest or finite or (rounding == "rz"):
            return sign | min(code, self.largest)
        return sign | self.past


FORMS = {
    "e4m3": Form(4, 3, 7, 0x7E, nan=0x7F),
    "e5m2": Form(5, 2, 15, 0x7B, infinity=0x7C, nan=0x7F),
    "e2m3": Form(2, 3, 1, 0x1F),
    "e3m2": Form(3, 2, 3, 0x1F),
    "e2m1": Form(2, 1, 1, 0x07),
    "ue5m3": Form(5, 3, 15, 0xFE, nan=0xFF, signed=False),
}


_POWERS = [Fraction(2) ** (code - 127) for code in range(255)]


@lru_cache(MEMORY)
def power(value: Fraction | float, rounding: str, finite: bool) -> int:
    """The ue8m0 code of a magnitude."""
    if value != value:
        return 0xFF
    top = 0xFE if finite else 0xFF
    if abs(value) == math.inf:
        return top
    size = abs(Fraction(value))
    low = max(bisect.bisect_right(_POWERS, size) - 1, 0)
    exact = Fraction(2) ** (low - 127) == size
    return min(low + (rounding == "rp" and not exact and size > Fraction(1, 2**127)), top)


def scale_of(code: int) -> Fraction | float:
    return math.nan if code == 255 else Fraction(2) ** (code - 127)


def fixed(value: Fraction | float, rounding: str) -> int:
    """The s2f6 code: 64ths, in two's complement."""
    if value != value:
        return 127
    if value in (math.inf, -math.inf):
        return 127 if value > 0 else 128
    exact = Fraction(value) * 64
    whole = math.floor(exact)
    rest = exact - whole
    if rounding == "rn":
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    else:
        whole += exact < 0 and rest > 0
    return max(-128, min(127, whole)) & 0xFF


@lru_cache(MEMORY)
def half_stochastic(kind: str, pattern: int, random: int, finite: bool) -> int:
    """f32 to f16 (13 random bits) or bf16 (16): away from zero where the share of the unit in the last place and the random bits
    carry."""
    exponent_bits, fraction_bits = WIDE[kind]
    value = number("f32", pattern)
    sign = (pattern >> 31) << 15
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if value != value:
        return 0x7FFF
    if abs(value) == math.inf:
        return sign | (infinity - 1 if finite else infinity)
    size = abs(Fraction(value))
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = 1 - bias
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (exponent - fraction_bits)
    steps = math.floor(size / unit)
    bits = 13 if kind == "f16" else 16
    steps += math.floor((size / unit - steps) * 2**bits) + (random & ((1 << bits) - 1)) >= 2**bits
    # the leading bit of the steps counts the exponent's field up
    code = steps + ((exponent + bias - 1) << fraction_bits)
    return sign | min(code, infinity - 1 if finite else infinity)
