"""Terminators in warp-class execution: as in ``interp.control``, on masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..affine.lanes import lanes_of
from ..affine.space import Refusal
from ..affine.values import Affine
from ..flow.blocks import EXIT, BasicBlock
from ..flow.operands import matched
from ..interp.operands import Prepare
from ..isa.effects import BARRIER, BRANCH, CALL, CLUSTER_BARRIER, INDIRECT_BRANCH, RETURN, THREAD_EXIT
from ..isa.types import scalar_type
from ..ptx.syntax import Immediate, Instruction
from .calls import Call
from .handlers import End, ends
from .operands import guard_of, reader

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["make_end"]

_U32 = scalar_type("u32")


def make_end(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    """The terminator of a block; see ``flow.blocks.BasicBlock`` for the kinds."""
    if block.kind == "branch":  # includes guarded returns and exits, and the guard of a call or barrier
        return _branch(run, block)
    if block.terminator is None:
        return (_return if block.kind == "return" else _fall)(run, to, block)
    handler = ends.for_effect(block.terminator.effect)
    assert handler is not None, block.terminator.effect
    return handler(run, to, block)


@ends(RETURN)
def _return(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    return _exit(run, to, block) if block.function == 0 else lambda state: state.paths.jump(EXIT)


@ends(THREAD_EXIT)
def _exit(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    return lambda state: state.paths.exit(state.paths.mask)


@ends(CALL)
def _call(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    try:
        return Call(run, to, block)
    except Refusal as refusal:
        reason = refusal

        def end(state: State) -> None:
            raise reason

        return end


def _refuse(block: BasicBlock, reason: str) -> End:
    instruction = block.terminator
    assert instruction is not None

    def end(state: State) -> None:
        raise Refusal(f"{instruction.opcode} at {instruction.span.path}:{instruction.span.line}: {reason}")

    return end


def _count(state: State, counter: int, number: int) -> None:
    state.counts[counter] = state.counts.get(counter, 0) + number


@ends(BRANCH)
def _fall(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    target = block.successors[0]
    guard = block.terminator.guard if block.counted and block.terminator is not None else None
    if guard is None:
        return lambda state: state.paths.jump(target)
    guard_mask, taken = guard_of(guard), run.taken(block.index)

    def end(state: State) -> None:
        _count(state, taken, guard_mask(state).bit_count())
        state.paths.jump(target)

    return end


def _branch(run: WarpClassRun, block: BasicBlock) -> End:
    assert block.guard is not None
    guard_mask = guard_of(block.guard)
    then, other = block.successors
    taken_counter, divergent = run.taken(block.index), run.divergent(block.index)
    counted = block.counted
    leaves = then == EXIT
    all_end = block.leaves == "exit" or block.function == 0

    def end(state: State) -> None:
        paths = state.paths
        taken = guard_mask(state)
        rest = paths.mask & ~taken
        if counted:
            _count(state, taken_counter, taken.bit_count())
            if taken and rest:
                _count(state, divergent, 1)
        if not taken:
            paths.jump(other)
        elif leaves and all_end:
            paths.exit(taken)
            if rest:
                paths.jump(other)
        elif not rest:
            paths.jump(then)
        else:
            paths.branch([(then, taken), (other, rest)], EXIT if leaves else block.reconvergence)

    return end


@ends(INDIRECT_BRANCH)
def _indirect(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    instruction = block.terminator
    assert instruction is not None
    read = reader(
        run, to, next(operand for slot, operand in matched(instruction) if slot.role == "source"), _U32
    )
    successors = block.successors
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    taken, divergent = run.taken(block.index), run.divergent(block.index)

    def end(state: State) -> None:
        index = read(state)
        assert isinstance(index, Affine)
        paths = state.paths
        known = run.space.known(index.lanes, paths.mask)
        sides: dict[int, int] = dict.fromkeys(successors, 0)
        for lane in lanes_of(paths.mask):
            number = known[lane if len(known) > 1 else 0] & 0xFFFFFFFF
            if number >= len(successors):
                raise Refusal(
                    f"{instruction.opcode} at line {instruction.span.line}: target {number} does not exist"
                )
            sides[successors[number]] |= 1 << lane
        if guard is not None:
            _count(state, taken, guard(state).bit_count())
        targets = [target for target, lanes in sides.items() if lanes]
        if len(targets) == 1:
            paths.jump(targets[0])
            return
        if block.counted:
            _count(state, divergent, 1)
        paths.branch(list(sides.items()), block.reconvergence)

    return end


def barrier_number(instruction: Instruction) -> int | None:
    """The number of a barrier of all warps of the CTA without a result, ``None`` for other barriers."""
    words = instruction.opcode.split(".")
    if "cluster" in words or "arrive" in words or "red" in words:
        return None
    operands = {slot.name: operand for slot, operand in matched(instruction)}
    number = operands.get("a")
    if "b" in operands or not isinstance(number, Immediate):
        return None
    return number.value


@ends(BARRIER, CLUSTER_BARRIER)
def _barrier(run: WarpClassRun, to: Prepare, block: BasicBlock) -> End:
    instruction = block.terminator
    assert instruction is not None
    if barrier_number(instruction) is None:
        return _refuse(block, "a barrier of some warps, or with a result")
    aligned = instruction.form.row.name == "bar" or "aligned" in instruction.opcode.split(".")
    target = block.successors[0]
    partial = _refuse(block, "some lanes of a warp arrive without the others")

    def end(state: State) -> None:
        paths = state.paths
        if paths.mask == paths.live:
            paths.jump(target)
        elif aligned:
            paths.gather()
        else:
            partial(state)

    return end
