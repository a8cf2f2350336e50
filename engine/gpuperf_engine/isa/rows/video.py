"""SIMD video instructions on the halves or bytes of words (manual: "SIMD Video Instructions"), without masks and selectors.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..table import instruction
from ..types import ScalarType, scalar_type
from ..words import Value, maximum, minimum, select

S32, U32 = scalar_type("s32"), scalar_type("u32")
VIDEO: dict[str, Any] = {
    "category": "integer",
    "unit": "alu",
    "since": (3, 0),
    "target": 30,
    "dtype": "u32 s32",
    "atype": "u32 s32",
    "btype": "u32 s32",
    "valid": lambda modifiers: (
        "'.sat' and '.add' exclude each other" if modifiers.get("sat") and modifiers.get("add") else ""
    ),
}
_COMPARISONS = "eq ne lt le gt ge"
_OPERATIONS: dict[str, Callable[[Value, Value], Value]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": lambda a, b: (a + b + 1) >> 1,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": minimum,
    "vmax": maximum,
}


def _piece(word: Value, sign: ScalarType, width: int, index: int) -> Value:
    """One half or byte of a word, extended by the signedness of ``sign``."""
    return ((word.bits(sign) << (32 - width * (index + 1))) >> (32 - width)).bits(S32)


def _gather(pieces: list[Value], c: Value, dtype: ScalarType, sat: bool | None, add: bool | None) -> Value:
    """The results side by side, or their sum added to c."""
    width = 32 // len(pieces)
    if add:
        total = c.bits(S32)
        for piece in pieces:
            total = total + piece
        return total
    word = c.constant(0, U32)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if dtype.is_signed else (0, (1 << width) - 1)
    for index, piece in enumerate(pieces):
        limited = minimum(maximum(piece, low), high) if sat else piece
        word = word | ((limited.bits(U32) & ((1 << width) - 1)) << (width * index))
    return word


def _packed(name: str, lanes: int) -> None:
    operation = _OPERATIONS[name]
    width = 32 // lanes

    @instruction(
        f"{name}{lanes}.dtype.atype.btype{{.sat}}{{.add}} d:b32, a:b32, b:b32, c:b32",
        documentation=f"{name[1:]} of the {'halves' if lanes == 2 else 'bytes'} of a and b; .add: their sum plus c.",
        **VIDEO,
    )
    def packed(
        a: Value,
        b: Value,
        c: Value,
        *,
        dtype: ScalarType,
        atype: ScalarType,
        btype: ScalarType,
        sat: bool | None,
        add: bool | None,
    ) -> Value:
        pieces = [
            operation(_piece(a, atype, width, index), _piece(b, btype, width, index))
            for index in range(lanes)
        ]
        return _gather(pieces, c, dtype, sat, add)


def _compared(lanes: int) -> None:
    width = 32 // lanes

    @instruction(
        f"vset{lanes}.atype.btype.cmp{{.add}} d:b32, a:b32, b:b32, c:b32",
        documentation=f"1 or 0 for each of the {'halves' if lanes == 2 else 'bytes'}, as they compare; .add: their sum plus c.",
        **{name: value for name, value in VIDEO.items() if name not in ("dtype", "valid")},
        cmp=_COMPARISONS,
    )
    def compared(
        a: Value, b: Value, c: Value, *, atype: ScalarType, btype: ScalarType, cmp: str, add: bool | None
    ) -> Value:
        pieces = []
        for index in range(lanes):
            holds = _piece(a, atype, width, index).compare(cmp, _piece(b, btype, width, index))
            pieces.append(select(holds, c.constant(1, S32), 0))
        return _gather(pieces, c, U32, None, add)


for _lanes in (2, 4):
    for _name in _OPERATIONS:
        _packed(_name, _lanes)
    _compared(_lanes)
