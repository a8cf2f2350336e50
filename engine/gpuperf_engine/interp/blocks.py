"""Blocks prepared for the reference backend: each instruction becomes a step that is called with the warp."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..errors import EngineError, Unsupported
from ..flow.blocks import BasicBlock
from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    CALL,
    FENCE,
    HINT,
    IMAGE_QUERY,
    LOAD,
    MBARRIER,
    MBARRIER_WAIT,
    PURE,
    REDUCTION,
    STACK,
    STORE,
    SURFACE,
    TENSOR_ALLOC,
    TENSOR_COPY,
    TENSOR_FREE,
    TENSOR_MAP,
    TENSOR_ORDER,
    TENSOR_PRODUCT,
    TENSOR_SHIFT,
    TEXTURE,
    TRAP,
    WARPGROUP_COMMIT,
    WARPGROUP_FENCE,
    WARPGROUP_WAIT,
)
from ..isa.evaluation import evaluate
from ..isa.types import scalar_type
from ..ptx.syntax import Instruction
from ..simt.effects import completes_at_issue, signals_mbarrier
from ..simt.faults import meaningless_operands, trap
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .bulk import AnswerStep, BulkStep, FillStep, SignalStep
from .calls import Call, parameter_step
from .control import BarrierEnd, make_end
from .copy import CopyStep
from .exchange import Exchange
from .handlers import End, Step, handles
from .images import ImageStep
from .mbarrier import MbarrierStep, WaitStep
from .memory import MemoryStep
from .operands import (
    Guarded,
    Prepare,
    bits_of,
    destinations,
    every_lane,
    guard_of,
    integer,
    lane_value,
    sources,
)
from .stack import StackStep
from .tensor import ReplaceStep, TensorStep
from .tensor_products import TensorProduct
from .tensor_steps import AllocStep, FreeStep, TensorCopy, TensorShift
from .values import LaneValue
from .warpgroup import CommitStep, GroupFence, GroupWait

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["Block", "make_step", "prepare", "refusal"]

_U32, _PRED = scalar_type("u32"), scalar_type("pred")


class Block:
    """One prepared block: the ``.sync`` instruction or the wait (on an mbarrier or for the warpgroup) that it starts with, the
    ``steps`` of the other instructions, and its terminator, ``end``."""

    __slots__ = ("barrier", "basic", "counts", "end", "index", "steps", "sync", "wait")

    def __init__(self, to: Prepare, block: BasicBlock) -> None:
        self.basic = block
        self.index = block.index
        self.counts = block.counts
        self.sync: Exchange | None = None
        self.wait: WaitStep | GroupFence | GroupWait | AllocStep | None = None
        instructions = block.instructions
        first = make_step(to, instructions[0]) if block.synchronises or block.waits else None
        if isinstance(first, Exchange):
            self.sync = first
        elif isinstance(first, (WaitStep, GroupFence, GroupWait, AllocStep)):
            self.wait = first
        if first is not None:
            instructions = instructions[1:]
        if instructions and instructions[-1].effect.ends_block:
            instructions = instructions[:-1]
        self.steps = tuple(_step(to, instruction) for instruction in instructions)
        self.end: End = _end(to, block)
        self.barrier = self.end if isinstance(self.end, BarrierEnd) else None


def prepare(program: Program, plan: LaunchPlan) -> list[Block]:
    """All blocks of a program for one launch."""
    makers = [Prepare(program, plan, number) for number in range(len(program.functions))]
    return [Block(makers[block.function], block) for block in program.blocks]


def _step(to: Prepare, instruction: Instruction) -> Step:
    """The step of an instruction. If it cannot be run, the step raises, so that it is an error only if it is reached."""
    try:
        return make_step(to, instruction)
    except EngineError as error:
        return _failing(to, instruction, error)


def _failing(to: Prepare, instruction: Instruction, error: EngineError) -> Step:
    guarded = Guarded(to, instruction)

    def step(warp: ReferenceWarp) -> None:
        if guarded(warp)[1].any():
            raise error

    return step


def _end(to: Prepare, block: BasicBlock) -> End:
    """The terminator of a block. If it cannot be run, it is an error only if it is reached, as in ``_step``."""
    try:
        return make_end(to, block)
    except Unsupported as error:
        reason = error

    def end(warp: ReferenceWarp) -> NoReturn:
        raise reason

    return end


def refusal(
    warp: ReferenceWarp, program: Program, plan: LaunchPlan, block: BasicBlock, index: int
) -> EngineError:
    """The error of a warp that reaches an instruction that cannot be run."""
    to, instruction = Prepare(program, plan, block.function), block.instructions[index]
    try:
        if instruction.effect is CALL:
            Call(to, block).groups(warp)
        elif instruction is block.terminator:
            make_end(to, block)
        else:
            make_step(to, instruction)
    except EngineError as error:
        return error
    return Unsupported(f"{instruction.opcode} cannot be run here", span=instruction.span)


def make_step(to: Prepare, instruction: Instruction) -> Step:
    """One instruction, prepared. Raises ``Unsupported`` if it cannot be run."""
    handler = handles.for_effect(instruction.effect)
    if handler is None or not instruction.form.row.runs:
        raise Unsupported(
            f"{instruction.opcode} is known and counted, but cannot be run yet", span=instruction.span
        )
    return handler(to, instruction)


@handles(LOAD, STORE, ATOMIC, REDUCTION)
def _access(to: Prepare, instruction: Instruction) -> Step:
    if instruction.form.space == "param":
        return parameter_step(to, instruction)
    return (SignalStep if signals_mbarrier(instruction) else MemoryStep)(to, instruction)


@handles(ASYNC_COPY)
def _copy(to: Prepare, instruction: Instruction) -> Step:
    return (_guard_only if completes_at_issue(instruction) else CopyStep)(to, instruction)


@handles(BULK_COPY)
def _copy_many(to: Prepare, instruction: Instruction) -> Step:
    modifiers = instruction.form.modifiers
    if "dim" in modifiers:
        return TensorStep(to, instruction)
    if "dst" in modifiers:
        return BulkStep(to, instruction)
    return (AnswerStep if signals_mbarrier(instruction) else FillStep)(to, instruction)


handles(TENSOR_MAP)(ReplaceStep)
handles(MBARRIER)(MbarrierStep)
handles(MBARRIER_WAIT)(WaitStep)
handles(WARPGROUP_FENCE)(GroupFence)
handles(WARPGROUP_COMMIT)(CommitStep)
handles(WARPGROUP_WAIT)(GroupWait)
handles(TENSOR_ALLOC)(AllocStep)
handles(TENSOR_FREE)(FreeStep)
handles(TENSOR_COPY)(TensorCopy)
handles(TENSOR_SHIFT)(TensorShift)
handles(TENSOR_PRODUCT)(TensorProduct)
handles(STACK)(StackStep)
handles(TEXTURE, SURFACE, IMAGE_QUERY)(ImageStep)


@handles(PURE)
def _compute(to: Prepare, instruction: Instruction) -> Step:
    form = instruction.form
    readers = sources(to, instruction)
    targets = destinations(instruction)
    function = to.number
    reads_carry, writes_carry = form.reads_carry, form.writes_carry
    reads_rank, is_checked = form.reads_rank, form.row.applied.checked is not None
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = to.program.predicated_of.get(instruction)

    def step(warp: ReferenceWarp) -> None:
        where = None
        if guard is not None:
            where = guard(warp)
            if counter is not None:
                warp.count_guard(counter, warp.active & where)
        values: list[LaneValue | int] = [read(warp) for read in readers]
        if reads_carry:
            values.append(warp.read_carry(function))
        if reads_rank:
            values.append(integer(warp.cta.rank, _U32))
        results = evaluate(form, values)
        if is_checked:
            active = warp.active if where is None else warp.active & where
            if wrong := bits_of(LaneValue(every_lane(lane_value(results[-1])) & active, _PRED)):
                raise meaningless_operands(warp.position(), instruction, wrong)
        for target, value in zip(targets, results):
            if target is not None:
                warp.write(target, lane_value(value), where)
        if writes_carry:
            active = warp.active if where is None else warp.active & where
            warp.put_carry(function, lane_value(results[-1]), active)

    return step


@handles(FENCE, HINT, TENSOR_ORDER)
def _guard_only(to: Prepare, instruction: Instruction) -> Step:
    """A step that only counts the lanes whose guard holds; destinations (cache policies) become 0."""
    guarded = Guarded(to, instruction)

    def step(warp: ReferenceWarp) -> None:
        guarded(warp)

    return step


@handles(TRAP)
def _guarded_trap(to: Prepare, instruction: Instruction) -> Step:
    guarded = Guarded(to, instruction)

    def step(warp: ReferenceWarp) -> None:
        _, active = guarded(warp)
        if active.any():
            raise trap(warp.position(), instruction, sum(1 << lane for lane in active.nonzero()[0].tolist()))

    return step
