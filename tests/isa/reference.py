"""A reference value: one lane, big integers and exact fractions, written from the manual's words alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from gpuperf_engine.isa.evaluation import evaluate
from gpuperf_engine.isa.primitives import Value
from gpuperf_engine.isa.table import lookup
from gpuperf_engine.isa.types import ScalarType, scalar_type

PRED, U32 = scalar_type("pred"), scalar_type("u32")


@dataclass(frozen=True)
class Layout:
    """A binary floating-point format: bits of exponent and fraction, and its canonical NaN."""

    exponent: int
    fraction: int
    nan: int

    @cached_property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @cached_property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @cached_property
    def sign(self) -> int:
        return 1 << (self.exponent + self.fraction)


LAYOUTS = {
    "f16": Layout(5, 10, 0x7FFF),
    "bf16": Layout(8, 7, 0x7FFF),
    "f32": Layout(8, 23, 0x7FFFFFFF),
    "f64": Layout(11, 52, 0x7FFFFFFFFFFFFFFF),
}


@lru_cache(1 << 14)
def decode(kind: str, pattern: int) -> Fraction | float:
    """The number of a pattern: a fraction, or a float for infinities and NaN."""
    layout = LAYOUTS[kind]
    sign = -1 if pattern & layout.sign else 1
    magnitude = pattern & (layout.sign - 1)
    if magnitude > layout.infinity:
        return math.nan
    if magnitude == layout.infinity:
        return sign * math.inf
    exponent, fraction = magnitude >> layout.fraction, magnitude & ((1 << layout.fraction) - 1)
    if exponent:
        fraction |= 1 << layout.fraction
    return scaled(sign * fraction, max(exponent, 1) - layout.bias - layout.fraction)


def scaled(number: int, exponent: int) -> Fraction:
    """number · 2^exponent."""
    return Fraction(number << exponent) if exponent >= 0 else Fraction(number, 1 << -exponent)


def _rounded(numerator: int, denominator: int, rounding: str) -> int:
    """An integer near a quotient; ``rounding`` is one of rn rz rm rp, with or without a final i."""
    low, rest = divmod(numerator, denominator)
    if not rest:
        return low
    if rounding[:2] == "rn":
        return low + (2 * rest > denominator or (2 * rest == denominator and low % 2 == 1))
    return {"rz": low + (numerator < 0), "rm": low, "rp": low + 1}[rounding[:2]]


def encode(kind: str, number: Fraction, rounding: str = "rn", negative_zero: bool = False) -> int:
    """The pattern of a number rounded to a format."""
    layout = LAYOUTS[kind]
    numerator, denominator = number.numerator, number.denominator
    if not numerator:
        return layout.sign if negative_zero else 0
    sign, magnitude = layout.sign if numerator < 0 else 0, abs(numerator)
    exponent = magnitude.bit_length() - denominator.bit_length()
    exponent -= magnitude << max(-exponent, 0) < denominator << max(exponent, 0)
    exponent = max(exponent, 1 - layout.bias)
    unit = exponent - layout.fraction

    steps = abs(_rounded(numerator << max(-unit, 0), denominator << max(unit, 0), rounding))
    # a pattern is the count of steps below the exponent's field, which the leading bit of the steps carries into
    pattern = ((exponent + layout.bias - 1) << layout.fraction) + steps
    if pattern >= layout.infinity:
        away = rounding == "rn" or (rounding == "rp" and not sign) or (rounding == "rm" and sign)
        return sign | (layout.infinity if away else layout.infinity - 1)
    return sign | pattern


_NAMES = {"and": "_and_", "or": "_or_", "not": "_not_"}


class Exact(Value):
    """One value: a bit pattern of a type."""

    __slots__ = ("is_known", "pattern")

    def __init__(self, pattern: int, type: ScalarType, is_known: bool = False) -> None:
        self.type = type
        self.is_known = is_known
        self.pattern = int(pattern) & ((1 << type.bits) - 1)

    def __repr__(self) -> str:
        return f"{self.type}:{self.pattern:#x}"

    @property
    def known(self) -> int | None:
        return self.pattern if self.is_known else None

    @property
    def integer(self) -> int:
        top = 1 << (self.type.bits - 1)
        return self.pattern - 2 * top if self.type.is_signed and self.pattern & top else self.pattern

    @property
    def number(self) -> Fraction | float:
        return decode(self.type.name, self.pattern)

    @property
    def negative(self) -> bool:
        return bool(self.pattern >> (self.type.bits - 1))

    def constant(self, value: float, type: ScalarType) -> Exact:
        if not type.is_float:
            return Exact(int(value), type)
        if isinstance(value, float) and not math.isfinite(value):
            layout = LAYOUTS[type.name]
            infinity = layout.infinity | (layout.sign if value < 0 else 0)
            return Exact(layout.nan if math.isnan(value) else infinity, type)
        negative_zero = math.copysign(1.0, value) < 0
        return Exact(encode(type.name, Fraction(value), negative_zero=negative_zero), type)

    def apply(self, primitive: str, *others: Value, **attributes: object) -> Exact:
        return getattr(self, _NAMES.get(primitive) or "_" + primitive)(*others, **attributes)

    def _same(self, pattern: int) -> Exact:
        return Exact(pattern, self.type)

    def _real(self, number: Fraction | float, rounding: str = "rn", negative_zero: bool = False) -> Exact:
        if isinstance(number, float):
            layout = LAYOUTS[self.type.name]
            if math.isnan(number):
                return self._same(layout.nan)
            return self._same(layout.infinity | (layout.sign if number < 0 else 0))
        return self._same(encode(self.type.name, number, rounding, negative_zero))

    def _add(self, other: Exact, rounding: str = "rn") -> Exact:
        assert self.type == other.type, (self.type, other.type)
        if not self.type.is_float:
            return self._same(self.pattern + other.pattern)
        a, b = self.number, other.number
        if isinstance(a, float) or isinstance(b, float):
            return self._real(float_sum(a, b))
        both = self.negative and other.negative
        cancel = rounding == "rm" and not (a == b == 0 and not self.negative and not other.negative)
        return self._real(a + b, rounding, both or cancel)

    def _sub(self, other: Exact, rounding: str = "rn") -> Exact:
        if not self.type.is_float:
            return self._same(self.pattern - other.pattern)
        return self._add(
            other if isinstance(other.number, float) and math.isnan(other.number) else other._neg(), rounding
        )

    def _mul(self, other: Exact, rounding: str = "rn") -> Exact:
        assert self.type == other.type
        if not self.type.is_float:
            return self._same(self.pattern * other.pattern)
        return self._real(product(self.number, other.number), rounding, self.negative != other.negative)

    def _high(self, other: Exact) -> Exact:
        return self._same((self.integer * other.integer) >> self.type.bits)

    def _div(self, other: Exact, rounding: str = "rn") -> Exact:
        if not self.type.is_float:
            if other.integer == 0:
                return self._same(-1)
            quotient = abs(self.integer) // abs(other.integer)
            return self._same(-quotient if (self.integer < 0) != (other.integer < 0) else quotient)
        a, b, negative = self.number, other.number, self.negative != other.negative
        if isinstance(b, float):
            nan = math.isnan(b) or isinstance(a, float)
            return self._real(math.nan if nan else Fraction(0), rounding, negative)
        if b == 0 or isinstance(a, float):
            nan = a == 0 or (isinstance(a, float) and math.isnan(a))
            return self._real(math.nan if nan else -math.inf if negative else math.inf)
        return self._real(a / b, rounding, negative)

    def _rem(self, other: Exact) -> Exact:
        if other.integer == 0:
            return self
        remainder = abs(self.integer) % abs(other.integer)
        return self._same(-remainder if self.integer < 0 else remainder)

    def _fma(self, other: Exact, addend: Exact, rounding: str = "rn") -> Exact:
        assert self.type == other.type == addend.type
        middle, negative = product(self.number, other.number), self.negative != other.negative
        c = addend.number
        if isinstance(middle, float) or isinstance(c, float):
            return self._real(float_sum(middle, c))
        plus_zero = middle == c == 0 and not negative and not addend.negative
        zero = (middle == c == 0 and negative and addend.negative) or (rounding == "rm" and not plus_zero)
        return self._real(middle + c, rounding, zero)

    def _sqrt(self, rounding: str = "rn") -> Exact:
        number = self.number
        if isinstance(number, float):
            return self._real(math.nan if math.isnan(number) or number < 0 else number)
        if number <= 0:
            return self if number == 0 else self._real(math.nan)
        scale = 2 ** (2 * 1200)
        root = math.isqrt(number.numerator * scale * number.denominator)
        exact = root * root == number.numerator * scale * number.denominator
        found = Fraction(2 * root + (not exact), 2 * number.denominator * 2**1200)
        return self._real(found, rounding)

    def _and_(self, other: Exact) -> Exact:
        return self._same(self.pattern & other.pattern)

    def _or_(self, other: Exact) -> Exact:
        return self._same(self.pattern | other.pattern)

    def _xor(self, other: Exact) -> Exact:
        return self._same(self.pattern ^ other.pattern)

    def _not_(self) -> Exact:
        return self._same(~self.pattern)

    def _neg(self) -> Exact:
        return self._same(self.pattern ^ (1 << (self.type.bits - 1)) if self.type.is_float else -self.pattern)

    def _abs(self) -> Exact:
        return self._same(
            self.pattern & ((1 << (self.type.bits - 1)) - 1) if self.type.is_float else abs(self.integer)
        )

    def _shl(self, amount: Exact) -> Exact:
        return self._same(self.pattern << amount.pattern if amount.pattern < self.type.bits else 0)

    def _shr(self, amount: Exact) -> Exact:
        return self._same(self.integer >> min(amount.pattern, self.type.bits))

    def _extreme(self, other: Exact, nan: bool, larger: bool) -> Exact:
        assert self.type == other.type
        if not self.type.is_float:
            return self if (self.integer > other.integer) == larger else other
        a, b = self.number, other.number
        if a != a or b != b:
            if nan or (a != a and b != b):
                return self._real(math.nan)
            return other if a != a else self
        if a == b:
            return self if self.negative != larger else other
        return self if (a > b) == larger else other

    def _minimum(self, other: Exact, nan: bool = False) -> Exact:
        return self._extreme(other, nan, False)

    def _maximum(self, other: Exact, nan: bool = False) -> Exact:
        return self._extreme(other, nan, True)

    def _compare(self, other: Exact, op: str) -> Exact:
        assert self.type == other.type, (self.type, other.type)
        a: Any = self.number if self.type.is_float else self.integer
        b: Any = other.number if self.type.is_float else other.integer
        unordered = a != a or b != b
        if op in ("num", "nan"):
            return Exact(unordered == (op == "nan"), PRED)
        if unordered:
            return Exact(op.endswith("u") and len(op) == 3, PRED)
        truth = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op[:2]]
        return Exact(truth, PRED)

    def _select(self, yes: Exact, no: Exact) -> Exact:
        assert self.type == PRED and yes.type == no.type, (self.type, yes.type, no.type)
        return yes if self.pattern else no

    def _popc(self) -> Exact:
        return Exact(self.pattern.bit_count(), U32)

    def _clz(self) -> Exact:
        return Exact(self.type.bits - self.pattern.bit_length(), U32)

    def _brev(self) -> Exact:
        return self._same(int(f"{self.pattern:0{self.type.bits}b}"[::-1], 2))

    def _convert(self, type: ScalarType, rounding: str | None = None, saturate: bool = False) -> Exact:
        signed = type.is_signed
        low, high = (
            (-(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1) if signed else (0, (1 << type.bits) - 1)
        )
        number: Fraction | float = self.number if self.type.is_float else Fraction(self.integer)
        if not type.is_float:
            if not self.type.is_float:
                return Exact(min(max(self.integer, low), high) if saturate else self.integer, type)
            if isinstance(number, float):
                return Exact(0 if math.isnan(number) else high if number > 0 else low, type)
            return Exact(
                min(max(_rounded(number.numerator, number.denominator, rounding or "rzi"), low), high), type
            )
        target = Exact(0, type)
        zero = self.type.is_float and self.negative
        result = target._real(number, rounding or "rn", zero)
        if saturate:
            result = result._maximum(target)._minimum(target.constant(1.0, type))
        return result

    def _bits(self, type: ScalarType) -> Exact:
        assert type.bits == self.type.bits, (self.type, type)
        return Exact(self.pattern, type)

    def _round_integral(self, rounding: str) -> Exact:
        number = self.number
        if isinstance(number, float):
            return self._real(number)
        return self._real(
            Fraction(_rounded(number.numerator, number.denominator, rounding)), "rn", self.negative
        )

    def _flush(self) -> Exact:
        layout = LAYOUTS[self.type.name]
        return self._same(self.pattern & layout.sign) if not self.pattern & layout.infinity else self

    def _predicate_to(self, type: ScalarType) -> Exact:
        return Exact(self.pattern, type)

    def _permute(self, lanes: tuple[int, ...]) -> Exact:
        """All lanes hold one value."""
        return self

    def _choose(self, other: Exact, lanes: tuple[bool, ...]) -> Exact:
        return self if lanes[0] else other


def product(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    """a · b with infinities and NaN."""
    if not isinstance(a, float) and not isinstance(b, float):
        return a * b
    if a != a or b != b or a == 0 or b == 0:
        return math.nan
    return math.inf if (a > 0) == (b > 0) else -math.inf


def float_sum(a: Fraction | float, b: Fraction | float) -> float:
    """a + b where at least one is infinite or NaN."""
    if not isinstance(a, float):
        return float(b)
    return a if not isinstance(b, float) else a + b


def value(number: float, kind: str) -> Exact:
    """A value by its number (ints: pattern of integer and bit types)."""
    return Exact(0, U32).constant(number, scalar_type(kind))


def run(opcode: str, *patterns: int, alternative: int = 0, known: bool = False) -> tuple[int, ...]:
    """The bit patterns that an instruction gives for source bit patterns. ``alternative`` chooses among its forms; if ``known``
    the sources say that they are constants."""
    form = lookup(opcode)[alternative]
    slots = [source for source in form.sources for _ in range(source.vector)]
    types = [source.type for source in slots]
    if form.reads_carry:
        types.append(PRED)
    if form.reads_rank:
        types.append(U32)
    if form.effect.atomic or form.effect.exchanges:
        types = [form.type] * len(patterns)
    assert len(types) == len(patterns), (opcode, types)
    constants = [slot.constant for slot in slots] + [False] * 3
    sources = [
        pattern if constant else Exact(pattern, type or U32, known)
        for pattern, type, constant in zip(patterns, types, constants)
    ]
    return tuple(result.pattern for result in evaluate(form, sources) if isinstance(result, Exact))
