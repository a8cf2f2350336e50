"""The primitives in which semantics are written, and the abstract values that they work on.

Semantics are written once, on ``Value`` objects. Each backend decides what a value is (NumPy lanes, LLVM vectors, affine
expressions) by implementing ``Value.apply`` for the primitives named in ``PRIMITIVES``. Every primitive is *total*: it is
defined for all bit patterns in all lanes, active or not, and never traps.

A value carries its scalar type. Predicates are values of type ``pred``. A value of a ``b`` type behaves as unsigned.
Python ``int`` and ``float`` operands are converted to constants of the other operand's type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .types import ScalarType, scalar_type

__all__ = [
    "PRIMITIVES",
    "Value",
    "brev",
    "choose",
    "clz",
    "compare",
    "concat",
    "copysign",
    "fma",
    "high",
    "is_nan",
    "maximum",
    "minimum",
    "permute",
    "popc",
    "select",
    "split",
    "sqrt",
]

#: name → (operands, what it computes). Integer results wrap modulo 2^bits. ``rounding`` is one of rn rz rm rp (default rn).
#: Floating-point primitives act on f16, bf16, f32 and f64, give the correctly rounded IEEE 754 result, keep subnormals (the
#: ``evaluation`` applies .ftz through ``flush``), and return the canonical NaN of the type (f32 0x7fffffff, f64 0x7fffffffffffffff,
#: f16/bf16 0x7fff) whenever the result is NaN, except ``neg``, ``abs``, ``select`` and ``bits``, which are bit operations.
PRIMITIVES: dict[str, tuple[int, str]] = {
    "add": (2, "a + b (rounding= for floats)"),
    "sub": (2, "a − b (rounding= for floats)"),
    "mul": (2, "a · b, low half for integers (rounding= for floats)"),
    "high": (2, "high half of the double-width integer product, by the signedness of the type"),
    "div": (
        2,
        "integers: truncating; x/0 gives all ones, INT_MIN/−1 gives INT_MIN. floats: rounded (rounding=)",
    ),
    "rem": (2, "integers: x − trunc(x/y)·y; x rem 0 gives x, INT_MIN rem −1 gives 0"),
    "fma": (3, "a · b + c with one rounding (rounding=)"),
    "sqrt": (1, "square root, rounded (rounding=)"),
    "and": (2, "bitwise and (any type, predicates too)"),
    "or": (2, "bitwise or"),
    "xor": (2, "bitwise exclusive or"),
    "not": (1, "bitwise complement"),
    "neg": (1, "two's complement, or sign bit flipped for floats"),
    "abs": (1, "absolute value (INT_MIN stays), or sign bit cleared for floats"),
    "shl": (2, "left shift; amount is an unsigned integer value of any width; amounts ≥ width give 0"),
    "shr": (2, "right shift, arithmetic if the type is signed; amounts ≥ width give 0 or the sign"),
    "minimum": (2, "integers by signedness; floats: −0 < +0, a single NaN loses (nan=True: NaN wins)"),
    "maximum": (2, "as minimum"),
    "compare": (
        2,
        (
            "predicate; op=: eq ne lt le gt ge (integers by signedness; floats false on NaN, ne too) "
            "and equ neu ltu leu gtu geu num nan for floats (true on NaN, except num)"
        ),
    ),
    "select": (3, "first where the predicate (receiver) is true, else second; any type"),
    "popc": (1, "number of one bits, as u32"),
    "clz": (1, "leading zeros, as u32; width for 0"),
    "brev": (1, "bits reversed"),
    "convert": (
        1,
        (
            "type=, rounding=, saturate=: value conversion. int→int extends by the source's signedness or truncates "
            "(saturate: clamps to the range of the result); int→float and float→float round (saturate: clamps to [0,1], "
            "NaN → 0); float→int rounds by rounding= in rni rzi rmi rpi, clamps to the range of the result, NaN → 0"
        ),
    ),
    "bits": (1, "type=: the same bits as another type of the same width (b1 ↔ pred not included)"),
    "round_integral": (1, "float → integral value in the same type; rounding= rni rzi rmi rpi"),
    "flush": (1, "subnormal → zero of the same sign; other values, NaN payloads too, unchanged"),
    "predicate_to": (1, "type=: predicate → 0 or 1 of an integer type"),
    "permute": (1, "lanes=: in each lane the value of the lane that the 32-tuple names; any type"),
    "choose": (
        2,
        "lanes=: the receiver in the lanes where the 32-tuple of bools is true, else the other; any type",
    ),
}

Number = int | float


class Value(ABC):
    """One PTX value per lane. Immutable. ``type`` is its scalar type."""

    __slots__ = ("type",)
    type: ScalarType

    @property
    def known(self) -> int | None:
        """The bit pattern if the value is known to be one constant in all lanes, so that semantics can use a shorter sequence.
        Backends may always return ``None``."""
        return None

    @abstractmethod
    def apply(self, primitive: str, *others: Value, **attributes: object) -> Value:
        """The result of a primitive of ``PRIMITIVES`` with this value as first operand."""

    @abstractmethod
    def constant(self, value: Number, type: ScalarType) -> Value:
        """A constant, the same in every lane: an ``int`` (taken modulo 2^bits; for float types converted exactly or
        rounded to nearest even) or a ``float``."""

    def constant_bits(self, pattern: int, type: ScalarType) -> Value:
        """A constant of any type by its bit pattern."""
        raw = self.constant(pattern, scalar_type(f"b{type.bits}"))
        return raw if type.is_bits else raw.bits(type)

    def _other(self, other: Value | Number, like: ScalarType | None = None) -> Value:
        # numbers first: an abstract class takes far longer than a built-in one to say what its instances are
        return self.constant(other, like or self.type) if isinstance(other, (int, float)) else other

    def __add__(self, other: Value | Number) -> Value:
        return self.apply("add", self._other(other))

    def __radd__(self, other: Number) -> Value:
        return self._other(other).apply("add", self)

    def __sub__(self, other: Value | Number) -> Value:
        return self.apply("sub", self._other(other))

    def __rsub__(self, other: Number) -> Value:
        return self._other(other).apply("sub", self)

    def __mul__(self, other: Value | Number) -> Value:
        return self.apply("mul", self._other(other))

    def __rmul__(self, other: Number) -> Value:
        return self._other(other).apply("mul", self)

    def __and__(self, other: Value | Number) -> Value:
        return self.apply("and", self._other(other))

    def __or__(self, other: Value | Number) -> Value:
        return self.apply("or", self._other(other))

    def __xor__(self, other: Value | Number) -> Value:
        return self.apply("xor", self._other(other))

    def __invert__(self) -> Value:
        return self.apply("not")

    def __neg__(self) -> Value:
        return self.apply("neg")

    def __abs__(self) -> Value:
        return self.apply("abs")

    def __lshift__(self, amount: Value | Number) -> Value:
        return self.apply("shl", self._other(amount, scalar_type("u32")))

    def __rshift__(self, amount: Value | Number) -> Value:
        return self.apply("shr", self._other(amount, scalar_type("u32")))

    def add(self, other: Value | Number, rounding: str = "rn") -> Value:
        return self.apply("add", self._other(other), rounding=rounding)

    def sub(self, other: Value | Number, rounding: str = "rn") -> Value:
        return self.apply("sub", self._other(other), rounding=rounding)

    def mul(self, other: Value | Number, rounding: str = "rn") -> Value:
        return self.apply("mul", self._other(other), rounding=rounding)

    def div(self, other: Value | Number, rounding: str = "rn") -> Value:
        return self.apply("div", self._other(other), rounding=rounding)

    def rem(self, other: Value | Number) -> Value:
        return self.apply("rem", self._other(other))

    def compare(self, op: str, other: Value | Number) -> Value:
        """Predicate ``self op other``; the operators are those of the PTX manual (see ``PRIMITIVES``)."""
        return self.apply("compare", self._other(other), op=op)

    def convert(self, type: ScalarType, rounding: str | None = None, saturate: bool = False) -> Value:
        if type == self.type and not saturate and rounding is None:
            return self
        return self.apply("convert", type=type, rounding=rounding, saturate=saturate)

    def bits(self, type: ScalarType) -> Value:
        return self if type == self.type else self.apply("bits", type=type)

    def flush(self) -> Value:
        return self.apply("flush")


def permute(a: Value, lanes: tuple[int, ...]) -> Value:
    """An exchange of lanes: lane i of the result is lane ``lanes[i]`` of ``a``; all 32 lanes take part."""
    return a.apply("permute", lanes=lanes)


def choose(lanes: tuple[bool, ...], yes: Value, no: Value) -> Value:
    """``yes`` in the lanes marked, ``no`` in the others."""
    return yes.apply("choose", no, lanes=lanes)


def select(condition: Value, yes: Value, no: Value | Number) -> Value:
    """``yes`` where the predicate holds, else ``no``, lane by lane."""
    return condition.apply("select", yes, yes._other(no))


def compare(op: str, a: Value, b: Value | Number) -> Value:
    return a.compare(op, b)


def fma(a: Value, b: Value, c: Value, rounding: str = "rn") -> Value:
    """``a · b + c`` rounded once."""
    return a.apply("fma", b, c, rounding=rounding)


def sqrt(a: Value, rounding: str = "rn") -> Value:
    return a.apply("sqrt", rounding=rounding)


def high(a: Value, b: Value) -> Value:
    return a.apply("high", b)


def minimum(a: Value, b: Value | Number, nan: bool = False) -> Value:
    return a.apply("minimum", a._other(b), nan=nan)


def maximum(a: Value, b: Value | Number, nan: bool = False) -> Value:
    return a.apply("maximum", a._other(b), nan=nan)


def popc(a: Value) -> Value:
    return a.apply("popc")


def clz(a: Value) -> Value:
    return a.apply("clz")


def brev(a: Value) -> Value:
    return a.apply("brev")


def is_nan(a: Value) -> Value:
    return a.compare("nan", a)


def copysign(magnitude: Value, sign: Value) -> Value:
    """``magnitude`` with the sign bit of ``sign``, both of one float type."""
    raw = scalar_type(f"b{magnitude.type.bits}")
    top = 1 << (magnitude.type.bits - 1)
    mixed = (magnitude.bits(raw) & (top - 1)) | (sign.bits(raw) & top)
    return mixed.bits(magnitude.type)


def split(a: Value, parts: int) -> tuple[Value, ...]:
    """The value's bits in ``parts`` equal pieces, least significant first (``mov.b64 {lo, hi}, d``)."""
    raw, piece = scalar_type(f"b{a.type.bits}"), scalar_type(f"b{a.type.bits // parts}")
    whole = a.bits(raw)
    return tuple((whole >> (index * piece.bits)).convert(piece) for index in range(parts))


def concat(pieces: Sequence[Value]) -> Value:
    """Pieces of one width side by side, the first least significant (``mov.b64 d, {lo, hi}``)."""
    width = pieces[0].type.bits
    piece, whole = scalar_type(f"b{width}"), scalar_type(f"b{width * len(pieces)}")
    result = pieces[0].bits(piece).convert(whole)
    for index, value in enumerate(pieces[1:], 1):
        result = result | (value.bits(piece).convert(whole) << (index * width))
    return result
