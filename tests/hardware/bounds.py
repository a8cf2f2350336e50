"""How far a GPU's result may be from the exact one: the PTX manual's error of every approximation, one row each.

Everything that has no row here must be equal bit for bit. Inputs for which the manual has a table of results (zeros,
infinities, NaN, negative numbers under a root) must be equal bit for bit too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

import mpmath

__all__ = ["BOUNDS", "FORMATS", "Bound", "within"]

mpmath.mp.prec = 120
TWO_PI = 2 * mpmath.pi


@dataclass(frozen=True)
class Format:
    """A floating-point type: width in bits, bits of the significand after the point, exponent of the least normal number."""

    bits: int
    fraction: int
    least: int

    @property
    def bias(self) -> int:
        return 1 - self.least

    def value(self, word: int) -> Any:
        """The number that a pattern stands for, exactly, or a float infinity or NaN."""
        if self.bits == 64:
            number = struct.unpack("<d", struct.pack("<Q", word))[0]
        else:
            exponent = word >> self.fraction & ((1 << (self.bits - 1 - self.fraction)) - 1)
            mantissa = word & ((1 << self.fraction) - 1)
            if exponent == (1 << (self.bits - 1 - self.fraction)) - 1:
                number = float("nan") if mantissa else float("inf")
            elif exponent:
                number = Fraction((1 << self.fraction) + mantissa) * Fraction(2) ** (
                    exponent - self.bias - self.fraction
                )
            else:
                number = Fraction(mantissa) * Fraction(2) ** (self.least - self.fraction)
            number = -number if word >> (self.bits - 1) else number
        if isinstance(number, float) and number - number != 0:
            return number
        exact = Fraction(number)
        return mpmath.mpf(exact.numerator) / exact.denominator

    def ulp(self, exact: Any) -> Any:
        """The distance of neighbours around a number."""
        exponent = mpmath.floor(mpmath.log(abs(exact), 2)) if exact else self.least
        return mpmath.mpf(2) ** (max(exponent, self.least) - self.fraction)


FORMATS = {
    "f32": Format(32, 23, -126),
    "f64": Format(64, 52, -1022),
    "f16": Format(16, 10, -14),
    "bf16": Format(16, 7, -126),
}
Function = Callable[..., Any]


@dataclass(frozen=True)
class Bound:
    """The largest error of opcodes like ``pattern``: ``absolute``, ``relative`` or in ``ulps``, whichever allows most, where
    ``holds`` says so of the operands. ``stated`` is False where the manual gives no number and ours is a choice."""

    pattern: str
    section: str
    exact: Function
    absolute: float = 0.0
    relative: float = 0.0
    ulps: float = 0.0
    holds: Function = lambda *operands: True
    stated: bool = True

    def __str__(self) -> str:
        parts = [f"{self.absolute:.3g} absolute"] if self.absolute else []
        parts += [f"2^{mpmath.nstr(mpmath.log(self.relative, 2), 4)} relative"] if self.relative else []
        parts += [f"{self.ulps:g} ulp"] if self.ulps else []
        where = f"PTX ISA {self.section}" + ("" if self.stated else ", which states no number")
        return f"{' or '.join(parts) or 'no error'} ({where})"


def _positive(a: Any) -> bool:
    return bool(a > 0)


#: sections of the PTX ISA manual, version 9.0
BOUNDS = (
    Bound("rcp.approx*.f32", "9.7.3.13", lambda a: 1 / a, ulps=1),
    Bound("rcp.approx.ftz.f64", "9.7.3.14", lambda a: 1 / a, relative=2**-19, stated=False),
    Bound("sqrt.approx*.f32", "9.7.3.15", mpmath.sqrt, relative=2**-23, holds=_positive),
    Bound("rsqrt.approx*.f32", "9.7.3.16", lambda a: 1 / mpmath.sqrt(a), relative=2**-22.9, holds=_positive),
    Bound("rsqrt.approx.f64", "9.7.3.16", lambda a: 1 / mpmath.sqrt(a), ulps=2, holds=_positive, stated=False),
    Bound("rsqrt.approx.ftz.f64", "9.7.3.17", lambda a: 1 / mpmath.sqrt(a), relative=2**-19, holds=_positive,
          stated=False),
    *(
        row
        for name, section in (("sin", "9.7.3.18"), ("cos", "9.7.3.19"))
        for row in (
            Bound(f"{name}.approx*.f32", section, getattr(mpmath, name), absolute=2**-20.5,
                  holds=lambda a: abs(a) <= TWO_PI),
            Bound(f"{name}.approx*.f32", section, getattr(mpmath, name), absolute=2**-14.7,
                  holds=lambda a: abs(a) <= 50 * TWO_PI),
            # only best effort: no more is known than that the result is a sine
            Bound(f"{name}.approx*.f32", section, lambda a: 0, absolute=1.0),
        )
    ),
    Bound("lg2.approx*.f32", "9.7.3.20", lambda a: mpmath.log(a, 2), absolute=2**-22,
          holds=lambda a: 0.5 < a < 2),
    Bound("lg2.approx*.f32", "9.7.3.20", lambda a: mpmath.log(a, 2), relative=2**-22, holds=_positive),
    Bound("ex2.approx*.f32", "9.7.3.21", lambda a: mpmath.mpf(2) ** a, ulps=2.5),
    Bound("tanh.approx.f32", "9.7.3.22", mpmath.tanh, relative=2**-11),
    Bound("tanh.approx.f16*", "9.7.4.9", mpmath.tanh, absolute=2**-10.987),
    Bound("tanh.approx.bf16*", "9.7.4.9", mpmath.tanh, absolute=2**-8),
    Bound("ex2.approx.f16*", "9.7.4.10", lambda a: mpmath.mpf(2) ** a, relative=2**-9.9),
    Bound("ex2.approx.ftz.bf16*", "9.7.4.10", lambda a: mpmath.mpf(2) ** a, relative=2**-7),
    Bound("div.approx*.f32", "9.7.3.8", lambda a, b: a / b, ulps=2,
          holds=lambda a, b: mpmath.mpf(2) ** -126 <= abs(b) <= mpmath.mpf(2) ** 126),
    Bound("div.approx*.f32", "9.7.3.8", lambda a, b: 0, holds=lambda a, b: abs(b) > 1),
    # divisors below the least normal number
    Bound("div.approx*.f32", "9.7.3.8", lambda a, b: 0, absolute=float("inf"), stated=False),
    Bound("div.full*.f32", "9.7.3.8", lambda a, b: a / b, ulps=2),
)  # fmt: skip


def within(opcode: str, form: Format, result: int, operands: tuple[int, ...]) -> Bound | None:
    """The row that allows this result for these operands (patterns), if one does."""
    values = [form.value(word) for word in operands]
    flush = ".ftz" in opcode
    tiny = mpmath.mpf(2) ** form.least
    if any(isinstance(value, float) for value in values):
        return None
    if flush:
        values = [value if abs(value) >= tiny else mpmath.mpf(0) for value in values]
    if "approx.ftz.f64" in opcode:
        values = [form.value(word >> 32 << 32) for word in operands]
    if any(value == 0 for value in values):
        return None  # the manual's table says what comes out
    found = form.value(result)
    if isinstance(found, float) and found != found:
        return None
    row = next((row for row in BOUNDS if fnmatchcase(opcode, row.pattern) and row.holds(*values)), None)
    if row is None:
        return None
    exact = mpmath.mpf(row.exact(*values))
    allowed = max(row.absolute, row.relative * abs(exact), row.ulps * form.ulp(exact))
    if flush and abs(exact) < tiny:
        allowed = max(allowed, abs(exact))
    # a result cannot be closer than its own grid
    allowed = max(allowed, form.ulp(exact) / 2 if exact else 0)
    if isinstance(found, float):  # an infinity
        largest = (2 - mpmath.mpf(2) ** -form.fraction) * mpmath.mpf(2) ** (1 - form.least)
        beyond = abs(exact) + allowed >= largest and (found > 0) == (exact > 0)
        return row if beyond or mpmath.isinf(allowed) else None
    return row if abs(found - exact) <= allowed else None
