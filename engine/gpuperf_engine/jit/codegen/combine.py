"""Reductions of bulk and tensor copies as runtime functions, one per opcode, which the loop over their pieces calls by address.

The arguments of ``combine_function("combine_cp.reduce.async.bulk.…")`` are the addresses of old and new values, and the number of
their type in a tensor map. It combines 16 bytes of a bulk copy, or one element of a tensor copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...isa.evaluation import evaluate, has_semantics
from ...isa.rows.tensor import combine_elements
from ...isa.table import lookup
from ...isa.tensor_maps import ELEMENTS, REDUCTIONS
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction
from ..ir.emitter import Emitter
from ..ir.operands import Ref, constant, scalar_ll
from ..ir.values import NativeValue
from ..runtime.matrix_functions import internal_functions

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["COMBINE_PREFIX", "combine_address", "combine_function", "combined_types"]

COMBINE_PREFIX = "combine_"
_PIECE = 16


def combined_types(operation: str) -> dict[int, str]:
    """The element types that a tensor reduction accepts, by number."""
    names = REDUCTIONS[operation].split()
    return {number: item.name for number, item in enumerate(ELEMENTS) if item.name in names}


def combine_address(to: BlockWriter, instruction: Instruction) -> Ref:
    """The function for an instruction, as i64 for the runtime."""
    name = COMBINE_PREFIX + instruction.form.opcode
    to.writer.needs[name] = f'declare i32 @"{name}"(ptr, ptr, ptr)'
    return to.writer.number(f'@"{name}"')


def combine_function(name: str, wide: bool = False) -> str:
    """The IR of a function, with the vector functions that it calls. ``wide``: the host has AVX-512."""
    form = next(
        item
        for item in lookup(name.removeprefix(COMBINE_PREFIX))
        if has_semantics(item) or item.modifier("dim")
    )
    writer = Emitter()
    writer.start("entry")
    if has_semantics(form):
        kind = scalar_type(str(form.modifier("type")))
        for offset in range(0, _PIECE, kind.bytes):
            cells = _cells(writer, offset)
            old, new = (_value(writer, str(kind), cell) for cell in cells)
            _put(writer, evaluate(form, [old, new])[0], cells[0])
    else:
        operation = str(form.modifier("op"))
        types = combined_types(operation)
        kinds = writer.number("%kind")
        writer.switch(kinds, "done", ((number, f"type{number}") for number in types))
        for number, element in types.items():
            writer.start(f"type{number}")
            writer.forget()
            old, new = (_value(writer, element.removesuffix(".ftz"), cell) for cell in _cells(writer, 0))
            _put(writer, combine_elements(old, new, op=operation, element=element), "%target")
            writer.jump("done")
        writer.start("done")
    writer.give(constant("i32", 0))
    head = f'define i32 @"{name}"(ptr %target, ptr %source, ptr %kind) nounwind {{'
    return "\n".join([*internal_functions(writer, wide), head, *writer.lines, "}", ""])


def _cells(writer: Emitter, offset: int) -> tuple[Ref, Ref]:
    """The addresses of an old and a new value."""
    if offset == 0:
        return Ref("ptr", "%target"), Ref("ptr", "%source")
    old, new = (writer.place(base, offset) for base in ("%target", "%source"))
    return old, new


def _value(writer: Emitter, name: str, cell: str) -> NativeValue:
    kind = scalar_type(name)
    loaded = writer.load(scalar_ll(kind), cell, kind.bytes)
    return NativeValue(writer, kind, loaded, True)


def _put(writer: Emitter, value: object, cell: str) -> None:
    assert isinstance(value, NativeValue)
    kind = value.type
    writer.store(value.clean().scalar(), cell, kind.bytes)
