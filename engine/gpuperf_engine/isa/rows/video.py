"""Scalar video instructions (manual: "Scalar Video Instructions"): on words, halves or bytes of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..model import Accepts
from ..primitives import Value, maximum, minimum, select
from ..table import Modifier, Options, instruction
from ..types import ScalarType, scalar_type

S32, U32 = scalar_type("s32"), scalar_type("u32")
S64, U64 = scalar_type("s64"), scalar_type("u64")
PARTS = {"asel": "part", "bsel": "part", "dsel": "part"}
VIDEO: Options = {
    "category": "integer",
    "unit": "alu",
    "since": (2, 0),
    "target": 20,
    "dtype": "u32 s32",
    "atype": "u32 s32",
    "btype": "u32 s32",
}
COMPARISONS = "eq ne lt le gt ge"
SECOND = "add min max"
_OPERATIONS: dict[str, Callable[[Value, Value], Value]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": minimum,
    "vmax": maximum,
}


def part(word: Value, kind: ScalarType, selector: str | None) -> Value:
    """A word, half or byte, extended by the signedness of its type."""
    word = word.bits(kind)
    if selector:
        width = 8 if selector[0] == "b" else 16
        word = (word << (32 - width * (int(selector[1]) + 1))) >> (32 - width)
    return word.convert(S64)


def wrapped(number: Value, bits: int) -> Value:
    """A number in so many bits, the highest its sign."""
    return (number << (64 - bits)) >> (64 - bits)


def limited(number: Value, signed: bool, width: int) -> Value:
    """A number limited to the range of an integer of that width."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return minimum(maximum(number, low), high)


def _finish(
    result: Value, c: Value | None, kind: ScalarType, sat: bool | None, op2: str | None, dsel: str | None
) -> Value:
    """Saturation, then the second operation or the merge (manual: optSaturate, optSecOp, optMerge). The second operation works on
    33-bit signed numbers."""
    width = 32 if not dsel else 8 if dsel[0] == "b" else 16
    result = limited(result, kind.is_signed, width) if sat else wrapped(result, 33)
    if op2 and c is not None:
        third = part(c, kind, None)
        result = result + third if op2 == "add" else (minimum if op2 == "min" else maximum)(result, third)
    word = result.convert(U32)
    if not dsel or c is None:
        return word
    shift = width * int(dsel[1])
    mask = ((1 << width) - 1) << shift
    return ((word << shift) & mask) | (c.bits(U32) & (0xFFFFFFFF ^ mask))


#: The three forms of the manual: alone, with a second operation, with a merge.
_FORMS = (
    ("", "d:dtype, a{.asel}:atype, b{.bsel}:btype"),
    ("{.op2}", "d{.dsel}:dtype, a{.asel}:atype, b{.bsel}:btype, c:dtype"),
)


def _third(modifiers: Mapping[str, Modifier]) -> str:
    return (
        "a part of the destination and a second operation exclude each other"
        if modifiers.get("op2") and modifiers.get("dsel")
        else ""
    )


def _arithmetic(name: str) -> None:
    operation = _OPERATIONS[name]

    def semantics(
        a: Value, b: Value, c: Value | None = None, *, dtype: ScalarType, atype: ScalarType, btype: ScalarType,
        sat: bool | None, op2: str | None, asel: str | None, bsel: str | None, dsel: str | None,
    ) -> Value:  # fmt: skip
        return _finish(operation(part(a, atype, asel), part(b, btype, bsel)), c, dtype, sat, op2, dsel)

    _add(name, "dtype.atype.btype{.sat}", semantics, f"{name[1:]} of words, halves or bytes", **VIDEO)


def _shift(name: str) -> None:
    def semantics(
        a: Value, b: Value, c: Value | None = None, *, dtype: ScalarType, atype: ScalarType, mode: str,
        sat: bool | None, op2: str | None, asel: str | None, bsel: str | None, dsel: str | None,
    ) -> Value:  # fmt: skip
        amount = part(b, U32, bsel)
        amount = minimum(amount, 32) if mode == "clamp" else amount & 31
        number = part(a, atype, asel)
        shifted = number << amount.bits(U64) if name == "vshl" else number >> amount.bits(U64)
        return _finish(wrapped(shifted, 34), c, dtype, sat, op2, dsel)

    options = {key: value for key, value in VIDEO.items() if key != "btype"}
    documentation = (
        f"a shifted {'left' if name == 'vshl' else 'right'} by b (clamp: at most 32; wrap: modulo 32)"
    )
    forms = "dtype.atype.u32{.sat}.mode"
    _add(name, forms, semantics, documentation, "u32", mode="clamp wrap", **options)


def _add(
    name: str, types: str, semantics: Callable[..., Value], text: str, second: str = "btype", **options: Any
) -> None:
    """Rows for both numbers of operands."""
    for op2, operands in _FORMS:
        more: Options = {"op2": SECOND} if op2 else {}
        selectors = PARTS if op2 else {"asel": "part", "bsel": "part"}
        also = "; then the second operation with c, or the low part put into c" if op2 else ""
        instruction(
            f"{name}.{types}{op2} {operands.replace('btype', second)}",
            documentation=f"{text}{also}.",
            accepts=Accepts(selectors=selectors, valid=_third if op2 else None),
            **options,
            **more,
        )(semantics)


def compared(
    a: Value, b: Value, c: Value | None = None, *, atype: ScalarType, btype: ScalarType, cmp: str,
    op2: str | None, asel: str | None, bsel: str | None, dsel: str | None,
) -> Value:  # fmt: skip
    """1 if the comparison of two parts holds, else 0."""
    holds = part(a, atype, asel).compare(cmp, part(b, btype, bsel))
    number = select(holds, a.constant(1, S64), 0)
    return _finish(number, c, U32, None, op2, dsel)


for _name in _OPERATIONS:
    _arithmetic(_name)
for _name in ("vshl", "vshr"):
    _shift(_name)
for _op2, _operands in _FORMS:
    _options: Options = {key: value for key, value in VIDEO.items() if key != "dtype"}
    if _op2:
        _options.update(op2=SECOND)
    instruction(
        f"vset.atype.btype.cmp{_op2} {_operands.replace('dtype', 'u32')}",
        documentation="1 or 0, as words, halves or bytes compare"
        + ("; then the second operation with c, or the low part put into c." if _op2 else "."),
        accepts=Accepts(
            selectors=PARTS if _op2 else {"asel": "part", "bsel": "part"}, valid=_third if _op2 else None
        ),
        cmp=COMPARISONS,
        **_options,
    )(compared)


def _negation(modifiers: Mapping[str, Modifier]) -> str:
    product = bool(modifiers.get("a_negated")) != bool(modifiers.get("b_negated"))
    if product and modifiers.get("c_negated"):
        return "either the product or c can be negated, not both"
    if modifiers.get("po") and any(modifiers.get(f"{name}_negated") for name in "abc"):
        return "'.po' and negated operands exclude each other"
    return ""


@instruction(
    "vmad.dtype.atype.btype{.po}{.sat}{.scale} d:dtype, {-}a{.asel}:atype, {-}b{.bsel}:btype, {-}c:dtype",
    scale="shr7 shr15",
    accepts=Accepts(selectors={"asel": "part", "bsel": "part"}, valid=_negation),
    **{**VIDEO, "unit": "imad"},
)
def vmad(
    a: Value, b: Value, c: Value, *, atype: ScalarType, btype: ScalarType, po: bool | None, sat: bool | None,
    scale: str | None, asel: str | None, bsel: str | None,
    a_negated: bool | None, b_negated: bool | None, c_negated: bool | None,
) -> Value:  # fmt: skip
    """a · b + c of words, halves or bytes, each negated if so written, plus 1 (.po), shifted right by 7 or 15, limited to u32
    or, if an operand is signed or negated, to s32 (.sat)."""
    first, second = part(a, atype, asel), part(b, btype, bsel)
    low, high = first * second, _upper(first, second)
    inverted = bool(a_negated) != bool(b_negated)
    signed = atype.is_signed or btype.is_signed or inverted or bool(c_negated)
    third = c.bits(U32)
    if inverted:
        low, high = ~low, ~high
    elif c_negated:
        third = ~third
    addend = third.bits(S32 if signed else U32).convert(S64)
    low, high = _sum(low, high, addend, addend >> 63)
    if po or inverted or c_negated:
        low, high = _sum(low, high, addend.constant(1, S64), addend.constant(0, S64))
    if scale:
        amount = int(scale[3:])
        low = ((low.bits(U64) >> amount) | (high.bits(U64) << (64 - amount))).bits(S64)
        high = (low >> 63) if signed else high.constant(0, S64)
    if not sat:
        return low.convert(U32)
    if signed:
        fits = high.compare("eq", low >> 63)
        beyond = select(high.compare("lt", 0), high.constant(-(1 << 31), S64), (1 << 31) - 1)
        return select(fits, limited(low, True, 32), beyond).convert(U32)
    large = high.compare("ne", 0) | low.bits(U64).compare("gt", 0xFFFFFFFF)
    return select(large, low.constant(0xFFFFFFFF, S64), low).convert(U32)


def _upper(a: Value, b: Value) -> Value:
    """The upper half of the 128-bit product of two numbers of at most 33 bits, which is its sign unless both are unsigned:
    that of two 32-bit numbers fits 64 bits without one."""
    negative = (a ^ b).compare("lt", 0) & a.compare("ne", 0) & b.compare("ne", 0)
    return select(negative, a.constant(-1, S64), 0)


def _sum(low: Value, high: Value, other_low: Value, other_high: Value) -> tuple[Value, Value]:
    """The sum of two 128-bit numbers."""
    total = low + other_low
    carry = select(total.bits(U64).compare("lt", low.bits(U64)), total.constant(1, S64), 0)
    return total, high + other_high + carry
