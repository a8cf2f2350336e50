"""Values of the affine backend: the primitives of ``isa.primitives`` on affine numbers of 32 lanes.

An integer is held modulo 2^bits as ``lanes.Lanes``; a predicate is a mask of lanes. Values of other types are bit patterns that are
the same for all points of the piece, and the reference backend evaluates primitives on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..isa.primitives import PRIMITIVES, Number, Value
from ..isa.types import ScalarType, scalar_type
from .arithmetic import (
    and_known,
    bounded,
    difference,
    disjoint,
    product,
    scaled,
    shifted,
    total_of,
    truncated,
)
from .lanes import FULL, Lanes, add, constant, gathered, lanes_of, merge, reduce, scale
from .space import Refusal, Space

__all__ = ["Affine", "Mask", "from_patterns"]

_U32 = scalar_type("u32")
_PRED = scalar_type("pred")


class Affine(Value):
    """One number per lane."""

    __slots__ = ("lanes", "space")

    def __init__(self, lanes: Lanes, type: ScalarType, space: Space) -> None:
        self.lanes = lanes
        self.type = type
        self.space = space

    def __repr__(self) -> str:
        return f"Affine({self.lanes}, {self.type})"

    @property
    def known(self) -> int | None:
        lanes = self.lanes
        if len(lanes.base) == 1 and len(lanes.parts) == 1 and lanes.concrete:
            return lanes.base[0] & ((1 << self.type.bits) - 1)
        return None

    def apply(self, primitive: str, *others: Value, **attributes: object) -> Value:
        if primitive == "bits":
            target = attributes["type"]
            assert isinstance(target, ScalarType)
            return Affine(self.lanes, target, self.space)
        if primitive == "convert":
            target = attributes["type"]
            assert isinstance(target, ScalarType)
            if _number(self.type) and _number(target):
                return _convert(self, target, bool(attributes.get("saturate")))
        elif _number(self.type):
            primitive_ = _PRIMITIVES.get(primitive)
            if primitive_ is not None:
                return primitive_(self, *others, **attributes)
        return _concretely(primitive, (self, *others), attributes)

    def constant(self, value: Number, type: ScalarType) -> Value:
        return _constant(self.space, value, type)


class Mask(Value):
    """A predicate."""

    __slots__ = ("mask", "space")

    def __init__(self, mask: int, space: Space) -> None:
        self.mask = mask
        self.space = space
        self.type = _PRED

    def __repr__(self) -> str:
        return f"Mask({self.mask:#x})"

    @property
    def known(self) -> int | None:
        active = self.space.active
        own = self.mask & active
        return None if own and own != active else int(own != 0)

    def apply(self, primitive: str, *others: Value, **attributes: object) -> Value:
        if primitive == "not":
            return Mask(FULL & ~self.mask, self.space)
        if primitive == "select":
            return _select(self, *others)
        if primitive == "predicate_to":
            target = attributes["type"]
            assert isinstance(target, ScalarType)
            one = Affine(constant(1), target, self.space)
            return _select(self, one, Affine(constant(0), target, self.space))
        (other,) = others
        assert isinstance(other, Mask)
        if primitive == "and":
            return Mask(self.mask & other.mask, self.space)
        if primitive == "or":
            return Mask(self.mask | other.mask, self.space)
        different = self.mask ^ other.mask
        if primitive == "xor" or attributes.get("op") == "ne":
            return Mask(different, self.space)
        if attributes.get("op") == "eq":
            return Mask(FULL & ~different, self.space)
        raise Refusal(f"'{primitive}' of predicates")

    def constant(self, value: Number, type: ScalarType) -> Value:
        return _constant(self.space, value, type)


def from_patterns(space: Space, patterns: Sequence[int], type: ScalarType) -> Value:
    """A value from bit patterns: one for all lanes, or 32."""
    if type.is_predicate:
        if len(patterns) == 1:
            return Mask(FULL if patterns[0] else 0, space)
        return Mask(sum(1 << lane for lane, bit in enumerate(patterns) if bit), space)
    return Affine(reduce(Lanes(tuple(patterns), ((FULL, (), 0),)), type.bits), type, space)


def _number(type: ScalarType) -> bool:
    return type.kind in "sub" and type.lanes == 1


def _constant(space: Space, value: Number, type: ScalarType) -> Value:
    if type.is_predicate:
        return Mask(FULL if value else 0, space)
    if isinstance(value, int) and _number(type):
        return Affine(reduce(constant(value), type.bits), type, space)
    patterns, _ = space.concretely("constant", [], {"value": value, "type": type})
    return from_patterns(space, patterns, type)


def _concretely(primitive: str, operands: Sequence[Value], attributes: dict[str, object]) -> Value:
    """A primitive on known values."""
    space = operands[0].space  # type: ignore[attr-defined]
    given: list[tuple[Sequence[int], str]] = []
    for operand in operands:
        if isinstance(operand, Mask):
            given.append(([operand.mask >> lane & 1 for lane in range(32)], "pred"))
        else:
            assert isinstance(operand, Affine)
            wide = (1 << operand.type.bits) - 1
            known = space.known(operand.lanes, space.active)
            given.append(([pattern & wide for pattern in known], operand.type.name))
    patterns, name = space.concretely(primitive, given, attributes)
    return from_patterns(space, patterns, scalar_type(name))


def _lanes(value: Value) -> Lanes:
    assert isinstance(value, Affine)
    return value.lanes


def _exact(a: Affine, signed: bool | None = None) -> Lanes:
    """The exact number of a value."""
    return a.space.normalised(
        a.lanes, a.type.bits, a.type.is_signed if signed is None else signed, a.space.active
    )


def _add(a: Affine, b: Value, rounding: str = "rn") -> Value:
    return Affine(total_of(a.space, a.lanes, _lanes(b), a.type.bits), a.type, a.space)


def _sub(a: Affine, b: Value, rounding: str = "rn") -> Value:
    return Affine(difference(a.space, a.lanes, _lanes(b), a.type.bits), a.type, a.space)


def _neg(a: Affine) -> Value:
    return Affine(scale(a.lanes, -1, a.type.bits), a.type, a.space)


def _not(a: Affine) -> Value:
    return Affine(add(scale(a.lanes, -1, a.type.bits), constant(-1), a.type.bits), a.type, a.space)


def _mul(a: Affine, b: Value, rounding: str = "rn") -> Value:
    return Affine(product(a.space, a.lanes, _lanes(b), a.type.bits), a.type, a.space)


def _high(a: Affine, b: Value) -> Value:
    assert isinstance(b, Affine)
    bits = a.type.bits
    wide = product(a.space, bounded(_exact(a), bits), bounded(_exact(b), bits), 0)
    return Affine(reduce(shifted(a.space, wide, bits), bits), a.type, a.space)


def _divided(a: Affine, b: Value) -> tuple[Lanes, Lanes]:
    assert isinstance(b, Affine)
    divisors = a.space.known(_exact(b), a.space.active)
    return truncated(a.space, _exact(a), divisors, a.type.is_signed)


def _div(a: Affine, b: Value, rounding: str = "rn") -> Value:
    return Affine(reduce(_divided(a, b)[0], a.type.bits), a.type, a.space)


def _rem(a: Affine, b: Value) -> Value:
    return Affine(reduce(_divided(a, b)[1], a.type.bits), a.type, a.space)


def _amounts(space: Space, b: Value, bits: int) -> Sequence[int]:
    """Shift counts, at most the width."""
    assert isinstance(b, Affine)
    wide = (1 << b.type.bits) - 1
    return [min(count & wide, bits) for count in space.known(b.lanes, space.active)]


def _shl(a: Affine, b: Value) -> Value:
    counts = _amounts(a.space, b, a.type.bits)
    settled = a.space.settled(a.lanes, a.space.active)
    factors = [1 << count for count in counts]
    return Affine(scaled(settled, factors, a.type.bits, a.space.active), a.type, a.space)


def _shr(a: Affine, b: Value) -> Value:
    space, active = a.space, a.space.active
    counts = _amounts(space, b, a.type.bits)
    exact = _exact(a)
    if len(set(counts)) == 1:
        return Affine(reduce(shifted(space, exact, counts[0]), a.type.bits), a.type, space)
    results = []
    for count in set(counts[lane] for lane in lanes_of(active)):
        own = sum(1 << lane for lane in lanes_of(active) if counts[lane] == count)
        part = space.floor_div(exact, 1 << count, own)
        results += [(mask, linear, shift, part.base) for mask, linear, shift in part.of(own)]
    return Affine(reduce(gathered(results), a.type.bits), a.type, space)


def _bitwise(primitive: str, signs: tuple[int, int]) -> Callable[..., Value]:
    """A bitwise primitive as s·(a + b) + t·(a & b), with ``signs`` (s, t)."""
    both, common = signs

    def word(a: Affine, b: Value) -> Value:
        assert isinstance(b, Affine)
        space, bits = a.space, a.type.bits
        mask = b.known
        if mask is None and a.known is not None:
            a, b, mask = b, a, a.known
        if mask is not None:
            shared = and_known(space, a.lanes, mask, bits)
        elif a.lanes.concrete and b.lanes.concrete:
            return _concretely(primitive, (a, b), {})
        elif disjoint(space, a.lanes, b.lanes, bits) or disjoint(space, b.lanes, a.lanes, bits):
            shared = constant(0)
        else:
            return _few(primitive, a, b)
        result = scale(shared, common, bits)
        if both:
            result = total_of(space, total_of(space, a.lanes, b.lanes, bits), result, bits)
        return Affine(result, a.type, space)

    return word


def _few(primitive: str, a: Affine, b: Affine) -> Value:
    """A bitwise primitive of two unknown numbers, one of which becomes known by splitting the piece."""
    space, active = a.space, a.space.active
    if space.values(a.lanes, active) < space.values(b.lanes, active):
        a, b = b, a
    known = space.known(b.lanes, active)
    if len(set(known)) == 1:
        one = Affine(constant(known[0]), b.type, space)
        return a.apply(primitive, one)
    return _concretely(primitive, (a, b), {})


def _compare(a: Affine, b: Value, op: str) -> Value:
    assert isinstance(b, Affine)
    space, active = a.space, a.space.active
    if op in ("eq", "ne"):
        distance = difference(space, a.lanes, b.lanes, a.type.bits)
        exact = space.normalised(distance, a.type.bits, True, active)
        lanes = space.nonnegative(exact, active)
        if lanes:
            lanes &= space.nonnegative(scale(exact, -1, 0), lanes)
        return Mask(lanes if op == "eq" else active & ~lanes, space)
    left, right = _exact(a), _exact(b)
    if op in ("lt", "ge"):  # a ≥ b
        lanes = space.nonnegative(difference(space, left, right, 0), active)
        return Mask(lanes if op == "ge" else active & ~lanes, space)
    lanes = space.nonnegative(difference(space, right, left, 0), active)  # a ≤ b
    return Mask(lanes if op == "le" else active & ~lanes, space)


def _extreme(op: str) -> Callable[..., Value]:
    def word(a: Affine, b: Value, nan: bool = False) -> Value:
        chosen = _compare(a, b, op)
        return _select(chosen, a, b)

    return word


def _select(condition: Value, yes: Value, no: Value) -> Value:
    assert isinstance(condition, Mask)
    if isinstance(yes, Mask):
        assert isinstance(no, Mask)
        return Mask(yes.mask & condition.mask | no.mask & ~condition.mask, condition.space)
    active, own = condition.space.active, condition.mask & condition.space.active
    if own == active:
        return yes
    if not own:
        return no
    return Affine(merge(own, _lanes(yes), _lanes(no)), yes.type, condition.space)


def _abs(a: Affine) -> Value:
    if not a.type.is_signed:
        return a
    exact = _exact(a)
    positive = a.space.nonnegative(exact, a.space.active)
    magnitude = merge(positive, exact, scale(exact, -1, 0))
    return Affine(reduce(magnitude, a.type.bits), a.type, a.space)


def _convert(a: Affine, type: ScalarType, saturate: bool) -> Value:
    space = a.space
    if saturate:
        exact = _exact(a)
        low, high = (
            (-(1 << (type.bits - 1)), (1 << (type.bits - 1)) - 1)
            if type.is_signed
            else (0, (1 << type.bits) - 1)
        )
        for limit, sign in ((low, 1), (high, -1)):
            inside = total_of(space, scale(exact, sign, 0), constant(-sign * limit), 0)
            in_range = space.nonnegative(inside, space.active)
            exact = merge(in_range, exact, constant(limit)) if in_range != space.active else exact
        return Affine(reduce(exact, type.bits), type, space)
    if type.bits <= a.type.bits:
        return Affine(a.lanes if type.bits == a.type.bits else reduce(a.lanes, type.bits), type, space)
    return Affine(bounded(_exact(a), a.type.bits), type, space)


#: primitives on integers; ``Mask`` has ``select``, ``predicate_to`` and predicates; all others require known values
_PRIMITIVES: dict[str, Callable[..., Value]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "high": _high,
    "div": _div,
    "rem": _rem,
    "and": _bitwise("and", (0, 1)),
    "or": _bitwise("or", (1, -1)),
    "xor": _bitwise("xor", (1, -2)),
    "not": _not,
    "neg": _neg,
    "abs": _abs,
    "shl": _shl,
    "shr": _shr,
    "minimum": _extreme("le"),
    "maximum": _extreme("ge"),
    "compare": _compare,
}
if not set(_PRIMITIVES) <= set(PRIMITIVES):
    raise AssertionError("not words: " + " ".join(set(_PRIMITIVES) - set(PRIMITIVES)))
