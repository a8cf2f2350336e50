"""Activations of recursive functions as LLVM IR: the saved state of callers, and the local variables of each activation.

Registers and parameters have one slot per function in a warp's state. A call that may recurse to its own function first copies the
live state of the caller, of all lanes, to an *area* outside the state; after the call the returning lanes restore it. The number of
the area is in the call's entry on the stack (``kind``, from bit ``AREA_SHIFT`` on), so that entries can be reordered; free areas
are a list linked through their first word (``State.FREE``).

Local variables of a recursive function are in frames on a stack per lane: ``Slots.bases`` is the frame of the current activation,
``Slots.top`` that of the next one, both relative to ``Program.local_static``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...flow.blocks import BasicBlock
from ...flow.parameters import live_words
from ...isa.types import scalar_type
from ...ptx.syntax import Register
from ...simt.program import MAX_DEPTH, Program
from ...simt.stack_entries import CALL_FRAME
from ..ir.abi import State
from ..ir.codes import AREA_SHIFT, EXIT_CODE, NO_AREA, Event
from ..ir.operands import LANES, Ref, constant
from ..ir.values import NativeValue
from .slots import Slots

if TYPE_CHECKING:
    from .block import BlockWriter
    from .generator import CodeGenerator

__all__ = [
    "CAPACITY",
    "Areas",
    "enter_activation",
    "entry_of",
    "give_back",
    "keep",
    "leave_activation",
    "take_back",
]

#: areas of a warp: one for each nested call, for lanes that wait to make an indirect call or have left a group early, and number 0,
#: which means none
CAPACITY = MAX_DEPTH + 4 * LANES
_HEADER = 64
U64 = scalar_type("u64")
_VECTOR = f"<{LANES} x i64>"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A saved value: its offsets in the state and in the area; ``bits`` per lane, 1 for a word with one bit per lane."""

    place: int
    area: int
    bits: int


class Areas:
    """The saved state of the calls of a program. ``of``: the possibly recursive calls, by block; ``bytes``: the size of an area."""

    def __init__(self, program: Program, slots: Slots) -> None:
        self.of: dict[int, tuple[_Piece, ...]] = {}
        self.bytes = 0
        for number in sorted(program.recursive):
            blocks = program.blocks_of(number)
            begins, behind = live_words(program.functions[number], blocks)
            # values that an activation reads before writing them are those of its caller
            formals = set(program.functions[number].params)
            inherited = {word for word in begins if word[0] not in formals}
            for block in blocks:
                if callees := _callees(program, block):
                    words = behind[block.index] | inherited
                    words_kept = [(slots.parameter(item) + 4 * LANES * word, 32) for item, word in words]
                    words_kept += _registers(program, slots, block)
                    words_kept += [(slots.bases[callee], 64) for callee in callees if callee in slots.bases]
                    words_kept += [(slots.stack[number], 64)] if slots.stack else []
                    words_kept.append((slots.carry[number], 1))
                    self._lay_out(block, words_kept)

    def _lay_out(self, block: BasicBlock, words: list[tuple[int, int]]) -> None:
        pieces, end = [], _HEADER
        for offset, bits in sorted(set(words), key=lambda item: (-item[1], item[0])):
            pieces.append(_Piece(offset, end, bits))
            end += 4 if bits == 1 else LANES * bits // 8
        self.of[block.index] = tuple(pieces)
        self.bytes = max(self.bytes, -(-end // 64) * 64)


def _callees(program: Program, block: BasicBlock) -> list[int]:
    """The candidates of a call, if one of them may call the caller; else none."""
    call = None if block.terminator is None or block.kind != "call" else block.terminator.call
    if call is None or (call.function is not None and call.function.system is not None):
        return []
    callees = program.callees(call)
    return callees if program.recursive.intersection(callees) else []


def _registers(program: Program, slots: Slots, block: BasicBlock) -> list[tuple[int, int]]:
    """Offsets and bits of the registers that are live after a call, without constant ones, which are the same in all activations."""
    uniform = program.uniformity[block.function].uniform
    call = block.terminator.call if block.terminator is not None else None
    results = {item for item in call.returns if isinstance(item, Register)} if call is not None else set()
    own = slots.of[block.function]
    wanted = ((block.live_out | slots.returned[block.function]) - results - uniform) & own.keys()
    return [(own[item], 1 if item.type.is_predicate else item.type.bits) for item in wanted]


def _area(generator: CodeGenerator, index: Ref) -> Ref:
    """The address of an area by its number, an i32."""
    writer = generator.writer
    offset = writer.mul(writer.zext(index, "i64"), generator.areas.bytes)
    return writer.place("%areas", offset)


def keep(to: BlockWriter) -> Ref:
    """Before a possibly recursive call: save the live state of the caller to a new area. Returns its number as i32."""
    generator, writer = to.generator, to.writer
    cells = [writer.at("%st", offset) for offset in (State.FREE, State.AREAS)]
    free, used = (writer.load("i32", cell) for cell in cells)
    none, fresh = writer.icmp("eq", free, 0), writer.add(used, 1)
    index = writer.select(none, fresh, free)
    generator.guarded_stop(writer.icmp("uge", index, CAPACITY), to.block.index, Event.DEPTH)
    area = _area(generator, index)
    after = writer.select(none, constant("i32", 0), writer.load("i32", area))
    most = writer.select(none, fresh, used)
    for cell, value in zip(cells, (after, most)):
        writer.store(value, cell)
    for piece in generator.areas.of[to.block.index]:
        kind = _kind(piece)
        source, target = writer.at("%st", piece.place), writer.at(area, piece.area)
        value = writer.load(kind, source, _align(piece))
        writer.store(value, target, _align(piece))
    return index


def take_back(to: BlockWriter) -> None:
    """After such a call: restore the state in the returning lanes, and free the area."""
    generator, writer = to.generator, to.writer
    index = writer.field("%st", State.AREA, "i32")
    area = _area(generator, index)
    for piece in generator.areas.of[to.block.index]:
        kind, target = _kind(piece), writer.at("%st", piece.place)
        kept = writer.field(area, piece.area, kind, _align(piece))
        now = writer.load(kind, target, _align(piece))
        if piece.bits == 1:
            ours = writer.and_(kept, to.mask)
            others = writer.and_(now, writer.xor(to.mask, -1))
            merged = writer.or_(ours, others)
        else:
            merged = writer.select(to.lanes, kept, now)
        writer.store(merged, target, _align(piece))
    give_back(generator, index, area)
    writer.set_field("%st", State.AREA, constant("i32", 0))


def give_back(generator: CodeGenerator, index: Ref, area: str = "") -> None:
    """Free an area."""
    writer = generator.writer
    cell = writer.at("%st", State.FREE)
    writer.store(writer.load("i32", cell), area or _area(generator, index))
    writer.store(index, cell)


def _kind(piece: _Piece) -> str:
    return "i32" if piece.bits == 1 else f"<{LANES} x i{piece.bits}>"


def _align(piece: _Piece) -> int:
    return 4 if piece.bits == 1 else 32


def entry_of(generator: CodeGenerator, number: int, area: Ref | None) -> tuple[Ref, Ref]:
    """Kind and identity of the frame of a call of function ``number`` with a saved area."""
    if area is None:
        # without an area, the entry has the number of the function instead
        return constant("i32", CALL_FRAME | NO_AREA + number << AREA_SHIFT), constant(
            "i32", EXIT_CODE + number
        )
    writer = generator.writer
    kind = writer.or_(writer.shl(area, AREA_SHIFT), CALL_FRAME)
    return kind, writer.add(area, EXIT_CODE + NO_AREA)


def enter_activation(to: BlockWriter, number: int, mask: Ref) -> None:
    """The lanes of a mask call function ``number``: increment the depth, and allocate a frame for its local variables."""
    generator, writer, program = to.generator, to.writer, to.generator.program
    if not program.recursive:
        return
    cell = writer.at("%st", State.CALLS)
    calls = writer.load("i32", cell)
    generator.guarded_stop(writer.icmp("uge", calls, MAX_DEPTH), to.block.index, Event.DEPTH)
    writer.store(writer.add(calls, 1), cell)
    if number not in program.frame_bytes:
        return
    size, room = program.frame_bytes[number], program.local_area - program.local_static
    cells = [writer.at("%st", offset) for offset in (generator.slots.bases[number], generator.slots.top)]
    base, top = (to.value(U64, writer.load(_VECTOR, cell, 64)) for cell in cells)
    after = _native(top + size)
    reached = after
    if generator.slots.stack:
        own = writer.at("%st", generator.slots.stack[to.number])
        reached = _native(after + to.value(U64, writer.load(_VECTOR, own, 64)))
    full = to.bits_of(_native(reached.compare("gt", room)))
    to.error(writer.and_(full, mask), Event.LOCALS)
    for cell, new, old in ((cells[0], top, base), (cells[1], after, top)):
        _put(to, cell, new, old, mask)


def leave_activation(to: BlockWriter, number: int) -> None:
    """Free the frame of function ``number`` in the returning lanes."""
    generator, program = to.generator, to.generator.program
    if number in program.frame_bytes:
        cell = to.writer.at("%st", generator.slots.top)
        top = to.value(U64, to.writer.load(_VECTOR, cell, 64))
        _put(to, cell, _native(top - program.frame_bytes[number]), top, to.mask)


def _put(to: BlockWriter, cell: str, new: NativeValue, old: NativeValue, mask: Ref) -> None:
    lanes = to.spread(mask)
    to.writer.store(to.writer.select(lanes, new.vector(), old.vector()), cell, 64)


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
