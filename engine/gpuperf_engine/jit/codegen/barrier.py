"""CTA barriers as LLVM IR: the warp stores what it waits for and stops; the scheduler resumes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import EngineError
from ...flow.operands import matched
from ...isa.effects import BARRIER, CLUSTER_BARRIER
from ...isa.types import scalar_type
from ...ptx.syntax import Instruction, Operand
from ...simt.launch import MAX_THREADS
from ..ir.abi import State
from ..ir.codes import GATHER_CODE, RETURN_CODE, BarrierResult, Event, Status
from ..ir.operands import LANES, Ref, constant
from ..ir.values import NativeValue
from .handlers import ends

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = ["ArrivesDiverged", "is_loose", "write_barrier"]

U32 = scalar_type("u32")
PRED = scalar_type("pred")


class ArrivesDiverged(EngineError):
    """A warp is diverged at a barrier. Internal: the launch restarts with code that counts the lanes there."""


def is_loose(instruction: Instruction) -> bool:
    """Whether the lanes of a warp may arrive at this barrier separately."""
    return instruction.form.row.name == "barrier" and "aligned" not in instruction.opcode.split(".")


@ends(CLUSTER_BARRIER)
def write_cluster_barrier(to: BlockWriter) -> None:
    """``barrier.cluster``."""
    assert to.block.terminator is not None
    parts = to.block.terminator.opcode.split(".")
    _write_arrival(to, 4 if "wait" in parts else 5 if "relaxed" in parts else 3)


@ends(BARRIER)
def write_barrier(to: BlockWriter) -> None:
    """``bar`` and ``barrier``; see ``Barrier`` for what the scheduler does."""
    block, writer, generator = to.block, to.writer, to.generator
    instruction = block.terminator
    assert instruction is not None
    parts = instruction.opcode.split(".")
    operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
    number = _scalar(to, to.source(operands["a"], U32))
    generator.guarded_stop(writer.icmp("uge", number, 16), block.index, Event.BARRIER_ID, number)
    writer.set_field("%st", State.BARRIER_ID, number)
    warps = constant("i32", 0)
    if "b" in operands:
        threads = _scalar(to, to.source(operands["b"], U32))
        uneven = writer.icmp("ne", writer.and_(threads, 31), 0)
        none = writer.icmp("eq", threads, 0)
        many = writer.icmp("ugt", threads, MAX_THREADS)
        bad = writer.or_(writer.or_(uneven, none), many)
        generator.guarded_stop(bad, block.index, Event.BARRIER_COUNT, threads)
        warps = writer.lshr(threads, 5)
    writer.set_field("%st", State.BARRIER_WARPS, warps)
    kind = 1 if "arrive" in parts else 2 if "red" in parts else 0
    holds = constant("i32", 0)
    if "c" in operands:
        holds = writer.and_(to.mask, to.bits_of(to.source(operands["c"], PRED)))
    writer.set_field("%st", State.BARRIER_LANES, holds)
    _write_arrival(to, kind, parts)


def _write_arrival(to: BlockWriter, kind: int, parts: list[str] | None = None) -> None:
    """The warp stops here, all its lanes together; ``parts`` are the words of a barrier with a result."""
    from .terminators import edge

    block, writer, generator = to.block, to.writer, to.generator
    instruction = block.terminator
    assert instruction is not None
    writer.set_field("%st", State.BARRIER_KIND, constant("i32", kind))
    to.flush()
    # an aligned barrier gathers lanes that left a reconvergence point early
    gathering = GATHER_CODE + block.index
    generator.resumable.add(gathering)
    writer.jump(f"g{block.index}")
    writer.start(f"g{block.index}")
    writer.forget()
    live, here = writer.load("i32", "%live"), writer.load("i32", "%mask")
    by_lanes = generator.diverged
    if not by_lanes or not is_loose(instruction):
        event = Event.DIVERGED if is_loose(instruction) else Event.DIVERGENT_BARRIER
        generator.guarded_stop(writer.icmp("ne", live, here), gathering, event)
    if kind >= 3 and not by_lanes:
        # lanes must alternate arriving and waiting
        there = writer.field("%st", State.CLUSTER, "i32")
        wrong = writer.icmp("eq" if kind == 4 else "ne", there, 0)
        generator.guarded_stop(wrong, block.index, Event.CLUSTER_ORDER)
    code = RETURN_CODE + block.index
    generator.resumable.add(code)
    if by_lanes:
        generator.stop(str(code), Status.EVENT, Event.ARRIVES, str(block.index))
    else:
        generator.stop(str(code), Status.BARRIER)
    writer.start(f"r{block.index}")
    writer.forget()
    if kind == 2 and parts is not None:
        to.restart()
        to.assign(instruction, [_result_of_lanes(to, parts) if by_lanes else _result(to, parts)], None)
        to.flush()
    writer.jump(edge(to, block.successors[0]))


def _result(to: BlockWriter, parts: list[str]) -> NativeValue:
    """The result of ``.red``, which the scheduler stored in the state."""
    writer = to.writer
    if "popc" in parts:
        return to.value(U32, writer.field("%st", State.BARRIER_COUNT, "i32"), True)
    field = State.BARRIER_ALL if "and" in parts else State.BARRIER_ANY
    word = writer.field("%st", field, "i32")
    return to.value(PRED, writer.icmp("ne", word, 0), True)


def _result_of_lanes(to: BlockWriter, parts: list[str]) -> NativeValue:
    """The same where warps may be diverged: each lane has the result of its own barrier."""
    cell = to.writer.at("%st", State.MEMBERS)
    left = to.value(U32, to.writer.load(f"<{LANES} x i32>", cell, 64))
    if "popc" in parts:
        return left._and(left.constant(BarrierResult.COUNT, U32))
    bit = left._and(left.constant(BarrierResult.ALL if "and" in parts else BarrierResult.ANY, U32))
    return bit._compare(bit.constant(0, U32), "ne")


def _scalar(to: BlockWriter, value: NativeValue) -> Ref:
    """A value that must be the same in all lanes: that of the first active one."""
    return value.scalar() if value.uniform else to.first_lane(value).text
