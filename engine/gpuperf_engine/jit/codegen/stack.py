"""The stack of ``alloca`` as LLVM IR: each function's stack pointer is a vector in the warp's state; see ``interp.stack``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...isa.effects import STACK
from ...isa.evaluation import evaluate
from ...isa.primitives import Value
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction
from ..ir.codes import Event
from ..ir.operands import LANES, Ref
from ..ir.values import NativeValue
from .handlers import handles

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["pass_stack", "write_stack"]

U64 = scalar_type("u64")
_VECTOR = f"<{LANES} x i64>"


@handles(STACK)
def write_stack(to: BlockWriter, instruction: Instruction) -> None:
    """``alloca``, ``stacksave`` or ``stackrestore``."""
    writer, program = to.writer, to.generator.program
    kind = instruction.form.type
    assert kind is not None
    guard = to.guard(instruction)
    mask = to.effective_mask(guard)
    cell = to.writer.at("%st", to.generator.slots.stack[to.number])
    depth = to.value(U64, writer.load(_VECTOR, cell, 64))
    end = to.constant(program.local_area, U64)
    before = _native(end - depth)
    given: list[Value] = list(to.sources(instruction))
    (allocated,) = evaluate(instruction.form, [*given, before.convert(kind)])
    after = _native(allocated.convert(U64))
    size = _native(given[0].convert(U64)) if given else after
    lowest = to.constant(program.local_static, U64)
    if program.frame_bytes:
        top = writer.field("%st", to.generator.slots.top, _VECTOR, 64)
        lowest = _native(lowest + to.value(U64, top))
    bad = after.compare("lt", lowest) | after.compare("gt", end)
    if instruction.form.row.name == "alloca":
        bad = bad | size.compare("gt", before) | after.compare("gt", before)
    to.report(size)
    index = to.block.instructions.index(instruction)
    to.error(writer.and_(to.bits_of(_native(bad)), mask), Event.ALLOCA, str(index))
    new = _native(end - after)
    text = writer.select(to.spread(mask), new.vector(), depth.vector())
    writer.store(text, cell, 64)
    to.assign(instruction, [_native(allocated)], guard)


def pass_stack(to: BlockWriter, number: int, mask: Ref) -> None:
    """Pass the stack pointer to a function that the lanes of a mask call."""
    slots, writer = to.generator.slots, to.writer
    if not slots.stack:
        return
    own = writer.field("%st", slots.stack[to.number], _VECTOR, 64)
    cell = to.writer.at("%st", slots.stack[number])
    old = writer.load(_VECTOR, cell, 64)
    text = writer.select(to.spread(mask), own, old)
    writer.store(text, cell, 64)


def _native(value: object) -> NativeValue:
    assert isinstance(value, NativeValue)
    return value
