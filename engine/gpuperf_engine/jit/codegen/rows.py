"""Matrices between memory and the registers of a warp as LLVM IR: ldmatrix, stmatrix, wmma.load, wmma.store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...flow.operands import matched
from ...isa.evaluation import evaluate
from ...isa.fragments import LANES, Move
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction
from ..ir.access_records import Counter
from ..ir.operands import Ref
from ..ir.values import NativeValue
from .memory import SPACES, Access, address_value, takes_short
from .operands import address_operand
from .values import record_piece

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["write_rows"]

U32 = scalar_type("u32")


class _Piece(Access):
    """One of the accesses."""

    def __init__(
        self, to: BlockWriter, instruction: Instruction, mask: Ref, move: Move, address: NativeValue
    ) -> None:
        self.to, self.instruction, self.guard, self.mask = to, instruction, None, mask
        self.site = to.generator.program.site_of[instruction]
        self.name = instruction.form.space or "generic"
        self.space = SPACES[self.name]
        self.type, self.count = scalar_type(f"b{8 * move.bytes}"), move.count
        self.bytes = move.bytes * move.count
        self.address = address

    def values(self) -> list[NativeValue]:
        """Load."""
        if self.form.alone:
            return [self.to.value(self.type, self.call("load"))]
        return self.load()

    def put(self, values: list[NativeValue]) -> None:
        """Store."""
        if self.form.alone:
            self.call("store", values[0].bits_as(self.type).vector())
        else:
            self.store([value.bits_as(self.type) for value in values])


def write_rows(to: BlockWriter, instruction: Instruction, mask: Ref) -> None:
    """One instruction, by the lanes of an i32 mask."""
    form = instruction.form
    moves = form.moves
    assert moves is not None
    pieces = []
    for move in moves.parts:
        some = mask if move.lanes == LANES else to.writer.and_(mask, (1 << move.lanes) - 1)
        pieces.append(
            _Piece(to, instruction, some, move, _address(to, instruction, move, moves.bits, moves.inner))
        )
    to.bump_site(instruction, Counter.LANES, to.generator.lanes_of(pieces[0].mask))
    if form.destinations:
        loaded: list[NativeValue] = []
        for piece in pieces:
            values = piece.values()
            record_piece(piece, values, len(loaded))
            loaded += values
        results = [item for item in evaluate(form, loaded) if isinstance(item, NativeValue)]
        to.assign(instruction, results, None)
        return
    slot = next(slot for slot in form.sources if slot.name == "b")
    given = [value.clean() for value in to.sources(instruction)[: slot.vector]]
    stored = [item for item in evaluate(form, given) if isinstance(item, NativeValue)]
    first = 0
    for piece in pieces:
        values = stored[first : first + piece.count]
        record_piece(piece, values, first)
        piece.put(values)
        first += piece.count


def _address(to: BlockWriter, instruction: Instruction, move: Move, bits: int, inner: int) -> NativeValue:
    """The lanes' addresses: base + line · distance + offset."""
    space = SPACES[instruction.form.space or "generic"]
    base = address_value(to, address_operand(instruction)[1], space, takes_short(to, instruction))
    if not any(move.lines) and not any(move.offsets):
        return base
    kind = scalar_type(f"u{base.type.bits}")
    operands = {slot.name: operand for slot, operand in matched(instruction)}
    distance = to.constant(inner, U32)
    if "stride" in operands:
        distance = to.source(operands["stride"], U32)
    scaled = _native(_native(distance.convert(kind)) * bits >> 3)
    return _native(
        _native(base.bits_as(kind) + scaled * _lanes(to, move.lines, kind)) + _lanes(to, move.offsets, kind)
    )


def _lanes(to: BlockWriter, numbers: tuple[int, ...], type: object) -> NativeValue:
    kind = scalar_type(str(type))
    return to.value(kind, f"<{', '.join(f'i{kind.bits} {number}' for number in numbers)}>")


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
