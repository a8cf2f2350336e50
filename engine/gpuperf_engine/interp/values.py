"""Values of the reference backend: one NumPy array per PTX value, one element per lane.

An element holds the value's bits: signed integer types are signed arrays, ``pred`` is ``bool``, ``b128`` an object array of
Python integers, all others, including floating point, unsigned arrays of the type's width (at least 8 bits), so that operations
other than arithmetic preserve NaN payloads. Arrays have shape ``(32,)`` for a warp, or ``(1,)`` if all lanes are equal;
any shapes that broadcast are accepted. Arrays of values are never modified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..isa.primitives import PRIMITIVES, Number, Value
from ..isa.types import ScalarType, scalar_type
from . import softfloat
from .softfloat import FORMATS, Format
from .wide import clz64, multiply64

__all__ = ["LaneValue", "Lanes", "dtype_of"]

Lanes: TypeAlias = npt.NDArray[Any]
"""An element for each lane; its type is that of the value, address or mask that it holds."""

_U32 = scalar_type("u32")
_PRED = scalar_type("pred")
_WIDE_MASK = (1 << 128) - 1


@cache
def dtype_of(type: ScalarType) -> np.dtype[Any]:
    """The dtype of the arrays that hold values of a type."""
    if type.is_predicate:
        return np.dtype(np.bool_)
    if type.bits == 128:
        return np.dtype(object)
    return np.dtype(f"{'i' if type.is_signed and type.lanes == 1 else 'u'}{type.bytes}")


class LaneValue(Value):
    """A value with its lanes in ``data``."""

    __slots__ = ("data",)

    def __init__(self, data: Lanes, type: ScalarType) -> None:
        self.data = data
        self.type = type

    def __repr__(self) -> str:
        return f"LaneValue({self.data!r}, {self.type})"

    def apply(self, primitive: str, *others: Value, **attributes: object) -> Value:
        return _PRIMITIVES[primitive](self, *others, **attributes)

    def constant(self, value: Number, type: ScalarType) -> Value:
        return _constant(value, math.copysign(1.0, value), type)


@lru_cache(maxsize=4096)
def _constant(value: Number, sign: float, type: ScalarType) -> LaneValue:
    """``sign`` distinguishes −0.0 from 0.0 in the cache's key."""
    form = FORMATS.get(type.name)
    if type.is_predicate:
        data = np.array([bool(value)])
    elif form is not None:
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
            data = softfloat.from_integer(np.array([value], np.uint64 if value >= 0 else np.int64), form)
        else:
            data = softfloat.from_double(np.array([value], np.float64), form)
    elif type.bits == 128:
        data = np.array([int(value) & _WIDE_MASK], dtype=object)
    else:
        raw = np.array([int(value) & ((1 << type.bits) - 1)], np.uint64).astype(f"u{type.bytes}")
        data = raw.view(dtype_of(type))
    data.flags.writeable = False
    return LaneValue(data, type)


def _form(value: LaneValue) -> Format | None:
    return FORMATS.get(value.type.name)


def _unsigned(value: LaneValue) -> Lanes:
    """The bits as an unsigned array."""
    data = value.data
    return data.view(f"u{data.dtype.itemsize}") if data.dtype.kind == "i" else data


def _wrap(value: LaneValue, data: Lanes) -> LaneValue:
    """A result of the operand's type, with its bits as signed if the type is."""
    if data.dtype == object:
        data = data & _WIDE_MASK
    elif value.data.dtype.kind == "i" and data.dtype.kind == "u":
        data = data.view(value.data.dtype)
    return LaneValue(data, value.type)


def _float_or_integer(
    integer: Callable[[Lanes, Lanes], Lanes], floating: Callable[[Lanes, Lanes, Format, str], Lanes]
) -> Callable[..., LaneValue]:
    def primitive(a: LaneValue, b: LaneValue, rounding: str = "rn") -> LaneValue:
        form = _form(a)
        if form is not None:
            return LaneValue(floating(a.data, b.data, form, rounding), a.type)
        return _wrap(a, integer(_unsigned(a), _unsigned(b)))

    return primitive


def _magnitude(value: LaneValue) -> tuple[Lanes, Lanes]:
    """Whether each lane is negative, and its absolute value as unsigned bits."""
    raw = _unsigned(value)
    if not value.type.is_signed:
        return np.zeros(raw.shape, np.bool_), raw
    negative = value.data < 0
    return negative, np.where(negative, ~raw + raw.dtype.type(1), raw)


def _div(a: LaneValue, b: LaneValue, rounding: str = "rn") -> LaneValue:
    form = _form(a)
    if form is not None:
        return LaneValue(softfloat.divide(a.data, b.data, form, rounding), a.type)
    (a_negative, dividend), (b_negative, divisor) = _magnitude(a), _magnitude(b)
    one = dividend.dtype.type(1)
    zero = divisor == 0
    quotient = dividend // np.where(zero, one, divisor)
    quotient = np.where(a_negative ^ b_negative, ~quotient + one, quotient)
    return _wrap(a, np.where(zero, ~dividend.dtype.type(0), quotient))


def _rem(a: LaneValue, b: LaneValue) -> LaneValue:
    (negative, dividend), (_, divisor) = _magnitude(a), _magnitude(b)
    one = dividend.dtype.type(1)
    zero = divisor == 0
    remainder = dividend % np.where(zero, one, divisor)
    remainder = np.where(negative, ~remainder + one, remainder)
    return _wrap(a, np.where(zero, _unsigned(a), remainder))


def _high(a: LaneValue, b: LaneValue) -> LaneValue:
    bits = a.type.bits
    if bits < 64:
        wide = np.int64 if a.type.is_signed else np.uint64
        product = a.data.astype(wide) * b.data.astype(wide)
        return LaneValue((product >> wide(bits)).astype(a.data.dtype), a.type)
    left, right = _unsigned(a), _unsigned(b)
    high, _ = multiply64(left, right)
    if a.type.is_signed:
        zero = np.uint64(0)
        high = high - np.where(a.data < 0, right, zero) - np.where(b.data < 0, left, zero)
    return _wrap(a, high)


def _fma(a: LaneValue, b: LaneValue, c: LaneValue, rounding: str = "rn") -> LaneValue:
    form = _form(a)
    if form is None:
        return _wrap(a, _unsigned(a) * _unsigned(b) + _unsigned(c))
    return LaneValue(softfloat.fma(a.data, b.data, c.data, form, rounding), a.type)


def _sqrt(a: LaneValue, rounding: str = "rn") -> LaneValue:
    return LaneValue(softfloat.square_root(a.data, FORMATS[a.type.name], rounding), a.type)


def _not(a: LaneValue) -> LaneValue:
    return _wrap(a, a.data ^ _WIDE_MASK if a.data.dtype == object else ~a.data)


def _sign_bit(a: LaneValue) -> Lanes:
    return cast(Lanes, a.data.dtype.type(1 << (a.type.bits - 1)))


def _neg(a: LaneValue) -> LaneValue:
    if a.type.is_float:
        return LaneValue(a.data ^ _sign_bit(a), a.type)
    raw = _unsigned(a)
    return _wrap(a, -raw if raw.dtype == object else ~raw + raw.dtype.type(1))


def _abs(a: LaneValue) -> LaneValue:
    if a.type.is_float:
        return LaneValue(a.data & ~_sign_bit(a), a.type)
    return _wrap(a, _magnitude(a)[1])


def _shift_amount(a: LaneValue, amount: LaneValue) -> Lanes:
    """The amount clamped to the width, in the dtype of the bits; NumPy's shifts by the width or more return 0 or the sign."""
    return np.minimum(_unsigned(amount), min(a.type.bits, 255)).astype(a.data.dtype)


def _shl(a: LaneValue, amount: LaneValue) -> LaneValue:
    return _wrap(a, a.data << _shift_amount(a, amount))


def _shr(a: LaneValue, amount: LaneValue) -> LaneValue:
    return _wrap(a, a.data >> _shift_amount(a, amount))


def _extreme(smaller: bool) -> Callable[..., LaneValue]:
    def primitive(a: LaneValue, b: LaneValue, nan: bool = False) -> LaneValue:
        form = _form(a)
        if form is None:
            return LaneValue((np.minimum if smaller else np.maximum)(a.data, b.data), a.type)
        left, right = _ordered(a.data, form), _ordered(b.data, form)
        first = left < right if smaller else left > right
        result = np.where(first, a.data, b.data)
        a_nan, b_nan = softfloat.is_nan(a.data, form), softfloat.is_nan(b.data, form)
        canonical = form.dtype.type(form.nan)
        if nan:
            result = np.where(a_nan | b_nan, canonical, result)
        else:
            result = np.where(a_nan, np.where(b_nan, canonical, b.data), np.where(b_nan, a.data, result))
        return LaneValue(result, a.type)

    return primitive


def _ordered(raw: Lanes, form: Format) -> Lanes:
    """Unsigned keys in the order of the numbers, −0 below +0."""
    top = form.dtype.type(1 << (form.bits - 1))
    return np.where(raw & top, ~raw, raw | top)


_ORDERED: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare(a: LaneValue, b: LaneValue, op: str) -> LaneValue:
    form = _form(a)
    if form is None:
        return LaneValue(_ORDERED[op](a.data, b.data).astype(np.bool_, copy=False), _PRED)
    unordered = softfloat.is_nan(a.data, form) | softfloat.is_nan(b.data, form)
    if op in ("num", "nan"):
        return LaneValue(unordered if op == "nan" else ~unordered, _PRED)
    left, right = softfloat.to_double(a.data, form), softfloat.to_double(b.data, form)
    with np.errstate(invalid="ignore"):
        holds = _ORDERED[op[:2]](left, right)
    return LaneValue(holds | unordered if op.endswith("u") else holds & ~unordered, _PRED)


def _select(condition: LaneValue, yes: LaneValue, no: LaneValue) -> LaneValue:
    return LaneValue(np.where(condition.data, yes.data, no.data), yes.type)


def _popc(a: LaneValue) -> LaneValue:
    return LaneValue(np.bitwise_count(_unsigned(a)).astype(np.uint32), _U32)


def _clz(a: LaneValue) -> LaneValue:
    zeros = clz64(_unsigned(a).astype(np.uint64)) - (64 - a.type.bits)
    return LaneValue(zeros.astype(np.uint32), _U32)


def _brev(a: LaneValue) -> LaneValue:
    word = _unsigned(a).astype(np.uint64)
    for step, mask in (
        (1, 0x5555555555555555),
        (2, 0x3333333333333333),
        (4, 0x0F0F0F0F0F0F0F0F),
        (8, 0x00FF00FF00FF00FF),
        (16, 0x0000FFFF0000FFFF),
        (32, 0x00000000FFFFFFFF),
    ):
        if step < a.type.bits:
            shift, low = np.uint64(step), np.uint64(mask)
            word = ((word >> shift) & low) | ((word & low) << shift)
    return _wrap(a, word.astype(_unsigned(a).dtype))


def _convert(
    a: LaneValue, type: ScalarType, rounding: str | None = None, saturate: bool = False
) -> LaneValue:
    source, target = _form(a), FORMATS.get(type.name)
    if source is not None and target is not None:
        return _float_to_float(a, source, target, type, rounding, saturate)
    if source is not None:
        return _float_to_integer(softfloat.to_double(a.data, source), type, rounding or "rzi")
    if target is not None:
        return _saturated(softfloat.from_integer(a.data, target, rounding or "rn"), target, type, saturate)
    return _integer_to_integer(a, type, saturate)


def _float_to_float(
    a: LaneValue, source: Format, target: Format, type: ScalarType, rounding: str | None, saturate: bool
) -> LaneValue:
    value = softfloat.to_double(a.data, source)
    if rounding is not None and rounding.endswith("i"):
        value, rounding = _integral(value, rounding), "rn"
    return _saturated(softfloat.from_double(value, target, rounding or "rn"), target, type, saturate)


def _saturated(raw: Lanes, form: Format, type: ScalarType, saturate: bool) -> LaneValue:
    if saturate:
        value = softfloat.to_double(raw, form)
        one = softfloat.from_double(np.ones(1), form)
        raw = np.where(value > 0, np.where(value > 1, one, raw), form.dtype.type(0))
    return LaneValue(raw, type)


_INTEGRAL: dict[str, Callable[[Lanes], Lanes]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _integral(value: Lanes, rounding: str) -> Lanes:
    with np.errstate(invalid="ignore"):
        return _INTEGRAL[rounding](value)


def _float_to_integer(value: Lanes, type: ScalarType, rounding: str) -> LaneValue:
    whole = _integral(value, rounding)
    low = -(1 << (type.bits - 1)) if type.is_signed else 0
    high = (1 << (type.bits - 1 if type.is_signed else type.bits)) - 1
    over, under = whole >= float(high + 1), whole < float(low)
    inside = np.where(over | under | np.isnan(value), 0.0, whole)
    dtype = dtype_of(type)
    result = inside.astype(np.int64 if type.is_signed else np.uint64).astype(dtype)
    return LaneValue(np.where(over, dtype.type(high), np.where(under, dtype.type(low), result)), type)


def _integer_to_integer(a: LaneValue, type: ScalarType, saturate: bool) -> LaneValue:
    dtype = dtype_of(type)
    if type.bits == 128:
        value = a.data.astype(object)
        return LaneValue(value & _WIDE_MASK if type.is_bits or not a.type.is_signed else value, type)
    if a.data.dtype == object:
        return LaneValue((a.data & ((1 << type.bits) - 1)).astype(f"u{type.bytes}").view(dtype), type)
    data = a.data
    if saturate:
        bounds, own = np.iinfo(dtype), np.iinfo(data.dtype)
        low, high = max(int(bounds.min), int(own.min)), min(int(bounds.max), int(own.max))
        data = np.clip(data, data.dtype.type(low), data.dtype.type(high))
    return LaneValue(data.astype(dtype), type)


def _bits(a: LaneValue, type: ScalarType) -> LaneValue:
    return LaneValue(a.data.view(dtype_of(type)) if a.data.dtype != object else a.data, type)


def _round_integral(a: LaneValue, rounding: str) -> LaneValue:
    form = FORMATS[a.type.name]
    return LaneValue(
        softfloat.from_double(_integral(softfloat.to_double(a.data, form), rounding), form), a.type
    )


def _flush(a: LaneValue) -> LaneValue:
    form = FORMATS[a.type.name]
    subnormal = (a.data & form.dtype.type(form.infinity << form.low)) == 0
    return LaneValue(np.where(subnormal, a.data & _sign_bit(a), a.data), a.type)


def _predicate_to(a: LaneValue, type: ScalarType) -> LaneValue:
    return LaneValue(a.data.astype(dtype_of(type)), type)


def _permute(a: LaneValue, lanes: tuple[int, ...]) -> LaneValue:
    return a if a.data.shape == (1,) else LaneValue(a.data[list(lanes)], a.type)


def _choose(a: LaneValue, b: LaneValue, lanes: tuple[bool, ...]) -> LaneValue:
    return LaneValue(np.where(np.array(lanes), a.data, b.data), a.type)


_PRIMITIVES: dict[str, Callable[..., LaneValue]] = {
    "add": _float_or_integer(lambda a, b: a + b, softfloat.add),
    "sub": _float_or_integer(lambda a, b: a - b, softfloat.subtract),
    "mul": _float_or_integer(lambda a, b: a * b, softfloat.multiply),
    "high": _high,
    "div": _div,
    "rem": _rem,
    "fma": _fma,
    "sqrt": _sqrt,
    "and": lambda a, b: _wrap(a, a.data & b.data),
    "or": lambda a, b: _wrap(a, a.data | b.data),
    "xor": lambda a, b: _wrap(a, a.data ^ b.data),
    "not": _not,
    "neg": _neg,
    "abs": _abs,
    "shl": _shl,
    "shr": _shr,
    "minimum": _extreme(smaller=True),
    "maximum": _extreme(smaller=False),
    "compare": _compare,
    "select": _select,
    "popc": _popc,
    "clz": _clz,
    "brev": _brev,
    "convert": _convert,
    "bits": _bits,
    "round_integral": _round_integral,
    "flush": _flush,
    "predicate_to": _predicate_to,
    "permute": _permute,
    "choose": _choose,
}
if set(_PRIMITIVES) != set(PRIMITIVES):
    raise AssertionError(f"primitives without lanes: {sorted(set(PRIMITIVES) ^ set(_PRIMITIVES))}")
