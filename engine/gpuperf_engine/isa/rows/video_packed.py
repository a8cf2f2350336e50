"""SIMD video instructions on the halves or bytes of words (manual: "SIMD Video Instructions")."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model import Accepts
from ..primitives import Value, maximum, minimum, select
from ..table import Modifier, Options, instruction
from ..types import ScalarType, scalar_type
from .video import COMPARISONS, VIDEO

S32, U32 = scalar_type("s32"), scalar_type("u32")
PACKED: Options = {**VIDEO, "since": (3, 0), "target": 30}


def _average(a: Value, b: Value) -> Value:
    """The mean, halves rounded away from zero."""
    both = a + b
    return select(both.compare("ge", 0), both + 1, both) >> 1


_OPERATIONS: dict[str, Callable[[Value, Value], Value]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": _average,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": minimum,
    "vmax": maximum,
}


def _exclusive(modifiers: Mapping[str, Modifier]) -> str:
    return "'.sat' and '.add' exclude each other" if modifiers.get("sat") and modifiers.get("add") else ""


def _pieces(a: Value, b: Value, kind: ScalarType, lanes: int, chosen: str) -> list[Value]:
    """The halves or bytes that a selector names among those of a (low) and b (high), lowest first, extended by the signedness
    of the type."""
    width = 32 // lanes
    pieces = []
    for digit in reversed(chosen[1:]):
        word, index = (a, int(digit)) if int(digit) < lanes else (b, int(digit) - lanes)
        pieces.append(((word.bits(kind) << (32 - width * (index + 1))) >> (32 - width)).bits(S32))
    return pieces


def _gather(pieces: list[Value], c: Value, mask: str | None, add: bool | None) -> Value:
    """The results in the positions of the mask, and c in the others; or the sum of the results and c."""
    width = 32 // len(pieces)
    positions = [int(digit) for digit in mask[1:]] if mask else range(len(pieces))
    if add:
        total = c.bits(S32)
        for position in positions:
            total = total + pieces[position]
        return total
    mask_of_c = 0xFFFFFFFF ^ sum(((1 << width) - 1) << (width * position) for position in positions)
    word = c.bits(U32) & mask_of_c
    for position in positions:
        word = word | ((pieces[position].bits(U32) & ((1 << width) - 1)) << (width * position))
    return word


def _selectors(lanes: int) -> dict[str, str]:
    source, mask = ("halves", "half_mask") if lanes == 2 else ("bytes", "byte_mask")
    return {"asel": source, "bsel": source, "mask": mask}


def _operands(dtype: str) -> str:
    return f"d{{.mask}}:{dtype}, a{{.asel}}:atype%, b{{.bsel}}:btype%, c:{dtype}%"


#: The default selectors.
_FIRST = {2: ("h10", "h32"), 4: ("b3210", "b7654")}


def _packed(name: str, lanes: int) -> None:
    operation = _OPERATIONS[name]
    width = 32 // lanes

    @instruction(
        f"{name}{lanes}.dtype.atype.btype{{.sat}}{{.add}} {_operands('dtype')}",
        documentation=f"{name[1:]} of {'halves' if lanes == 2 else 'bytes'} of a and b, those outside the mask from c; "
        ".add: c plus the sum of those in the mask.",
        accepts=Accepts(selectors=_selectors(lanes), valid=_exclusive),
        **PACKED,
    )
    def packed(
        a: Value, b: Value, c: Value, *, dtype: ScalarType, atype: ScalarType, btype: ScalarType,
        sat: bool | None, add: bool | None, asel: str | None, bsel: str | None, mask: str | None,
    ) -> Value:  # fmt: skip
        first, second = (chosen or usual for chosen, usual in zip((asel, bsel), _FIRST[lanes]))
        results = [
            operation(*pair)
            for pair in zip(_pieces(a, b, atype, lanes, first), _pieces(a, b, btype, lanes, second))
        ]
        if sat:
            top = width - dtype.is_signed
            low = -(1 << top) if dtype.is_signed else 0
            results = [minimum(maximum(result, low), (1 << top) - 1) for result in results]
        return _gather(results, c, mask, add)


def _compared(lanes: int) -> None:
    @instruction(
        f"vset{lanes}.atype.btype.cmp{{.add}} {_operands('u32')}",
        documentation=f"1 or 0 for {'halves' if lanes == 2 else 'bytes'} of a and b, as they compare, those outside the mask from "
        "c; .add: c plus the sum of those in the mask.",
        accepts=Accepts(selectors=_selectors(lanes)),
        cmp=COMPARISONS,
        **{name: value for name, value in PACKED.items() if name != "dtype"},
    )
    def compared(
        a: Value, b: Value, c: Value, *, atype: ScalarType, btype: ScalarType, cmp: str,
        add: bool | None, asel: str | None, bsel: str | None, mask: str | None,
    ) -> Value:  # fmt: skip
        first, second = (chosen or usual for chosen, usual in zip((asel, bsel), _FIRST[lanes]))
        results = [
            select(x.compare(cmp, y), c.constant(1, S32), 0)
            for x, y in zip(_pieces(a, b, atype, lanes, first), _pieces(a, b, btype, lanes, second))
        ]
        return _gather(results, c, mask, add)


for _lanes in (2, 4):
    for _name in _OPERATIONS:
        _packed(_name, _lanes)
    _compared(_lanes)
