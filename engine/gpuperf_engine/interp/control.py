"""Terminators of the reference backend. They move the running path, and return a status if the warp stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..flow.blocks import EXIT, BasicBlock
from ..flow.operands import matched
from ..isa.effects import BARRIER, BRANCH, CALL, CLUSTER_BARRIER, INDIRECT_BRANCH, RETURN, THREAD_EXIT
from ..isa.types import scalar_type
from ..ptx.syntax import Guard, Instruction, Operand, Register, Variable
from ..simt.barriers import BARRIERS
from ..simt.faults import bad_barrier, bad_cluster_barrier, bad_target, divergent_barrier, lanes_of
from ..simt.launch import MAX_THREADS
from ..simt.rule_breaches import Breach
from ..simt.schedule import Status
from ..simt.system import SystemCall
from .calls import Call, argument_reader, put_bytes
from .handlers import End, ends
from .operands import Prepare, as_type, bits_of, destinations, every_lane, reader
from .values import LaneValue

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["BarrierEnd", "make_end"]

_U32, _U64, _PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")


def make_end(to: Prepare, block: BasicBlock) -> End:
    """The terminator of a block; see ``flow.blocks.BasicBlock`` for the kinds."""
    if block.kind == "branch":  # includes guarded returns and exits, and the guard of a call or barrier
        return _leave_branch(block) if EXIT in block.successors else _branch(block)
    if block.terminator is None:
        return _return_end(to, block) if block.kind == "return" else _fall(to, block)
    handler = ends.for_effect(block.terminator.effect)
    assert handler is not None, block.terminator.effect
    return handler(to, block)


@ends(RETURN)
def _return_end(to: Prepare, block: BasicBlock) -> End:
    return _exit if block.function == 0 else _return


@ends(THREAD_EXIT)
def _exit_end(to: Prepare, block: BasicBlock) -> End:
    return _exit


def _guard_mask(guard: Guard) -> Callable[[ReferenceWarp], int]:
    register, negated = guard.register, guard.negated

    def read(warp: ReferenceWarp) -> int:
        bits = bits_of(warp.read(register))
        return warp.mask & (~bits if negated else bits)

    return read


@ends(BRANCH)
def _fall(to: Prepare, block: BasicBlock) -> End:
    target = block.successors[0]
    guard = block.terminator.guard if block.counted and block.terminator is not None else None
    if guard is None:
        return lambda warp: warp.go(block, target)
    guard_mask = _guard_mask(guard)

    def end(warp: ReferenceWarp) -> Status | None:
        warp.count_taken(block.index, guard_mask(warp))
        return warp.go(block, target)

    return end


def _branch(block: BasicBlock) -> End:
    assert block.guard is not None
    guard_mask = _guard_mask(block.guard)
    then, other = block.successors

    def end(warp: ReferenceWarp) -> Status | None:
        taken = guard_mask(warp)
        if block.counted:
            warp.count_taken(block.index, taken)
        rest = warp.mask & ~taken
        if not rest or not taken:
            return warp.go(block, then if taken else other)
        if block.counted:
            warp.counters.divergent[block.index] += 1
        over = warp.pay(block, other if then == block.reconvergence else then)
        warp.paths.branch([(then, taken), (other, rest)], block.reconvergence)
        return warp.end_slice(block) if over else None

    return end


def _leave_branch(block: BasicBlock) -> End:
    """A guarded ``ret`` or ``exit``."""
    assert block.guard is not None
    guard_mask = _guard_mask(block.guard)
    other = block.successors[1]
    ends = block.leaves == "exit" or block.function == 0

    def end(warp: ReferenceWarp) -> Status | None:
        taken = guard_mask(warp)
        rest = warp.mask & ~taken
        warp.count_taken(block.index, taken)
        if taken and rest:
            warp.counters.divergent[block.index] += 1
        if not taken:
            return warp.go(block, other)
        if ends:
            warp.paths.exit(taken)
            return warp.go(block, other) if rest else None
        if not rest:
            warp.paths.jump(EXIT)
            return None
        over = warp.pay(block, other)
        warp.paths.branch([(EXIT, taken), (other, rest)], EXIT)
        return warp.end_slice(block) if over else None

    return end


@ends(INDIRECT_BRANCH)
def _indirect(to: Prepare, block: BasicBlock) -> End:
    instruction = block.terminator
    assert instruction is not None
    index_reader = reader(
        to, next(operand for slot, operand in matched(instruction) if slot.role == "source"), _U32
    )
    successors = block.successors
    guard_mask = _guard_mask(instruction.guard) if instruction.guard is not None else None

    def end(warp: ReferenceWarp) -> Status | None:
        index = every_lane(index_reader(warp))
        if guard_mask is not None:
            warp.count_taken(block.index, guard_mask(warp))
        sides: dict[int, int] = dict.fromkeys(successors, 0)
        for lane in lanes_of(warp.mask):
            number = int(index[lane])
            if number >= len(successors):
                raise bad_target(warp.position(), instruction, lane, number, len(successors))
            sides[successors[number]] |= 1 << lane
        taken = [target for target, lanes in sides.items() if lanes]
        if len(taken) == 1:
            return warp.go(block, taken[0])
        if block.counted:
            warp.counters.divergent[block.index] += 1
        over = warp.pay(block, next((target for target in taken if target in block.back_edges), EXIT))
        warp.paths.branch(list(sides.items()), block.reconvergence)
        return warp.end_slice(block) if over else None

    return end


@ends(CALL)
def _call(to: Prepare, block: BasicBlock) -> End:
    if block.terminator is not None and block.terminator.system is not None:
        return _system(to, block)
    call = Call(to, block)
    entries, recursive = to.program.entries, to.program.recursive

    def end(warp: ReferenceWarp) -> Status | None:
        groups = [(number, lanes) for number, lanes in call.groups(warp) if lanes]
        over = any(number in recursive for number, _ in groups) and warp.spend(1)
        if len(groups) == 1:
            number = groups[0][0]
            warp.paths.call(number, entries[number], call.back, call.enter(warp, number, warp.mask))
        else:
            warp.paths.call_each([((call, number), lanes) for number, lanes in groups], call.back)
        return warp.end_slice(block) if over else None

    return end


def _system(to: Prepare, block: BasicBlock) -> End:
    """A system call, which is executed immediately."""
    instruction = block.terminator
    assert instruction is not None and instruction.call is not None and instruction.call.function is not None
    target, function = instruction.call, instruction.call.function
    arguments = [
        argument_reader(to, formal, argument) for formal, argument in zip(function.params, target.arguments)
    ]

    def end(warp: ReferenceWarp) -> Status | None:
        size, local = warp.local_bytes, warp.local.bytes
        call = SystemCall(
            instruction,
            warp.position(),
            warp.cta.arena.memory,
            warp.mask,
            tuple(every_lane(read(warp)).astype(np.uint64) for read in arguments),
            lambda lane: local[lane * size : (lane + 1) * size],
            warp.cta.shared.bytes[: warp.cta.plan.shared_bytes],
        )
        results = call.perform()
        for formal, result in zip(function.returns, target.returns):
            value = LaneValue(results, _U64)
            if isinstance(result, Variable):
                put_bytes(warp, result, 0, as_type(value, formal.type), warp.active)
            elif isinstance(result, Register):
                warp.put(result, as_type(value, formal.type), warp.active)
        return warp.go(block, block.successors[0])

    return end


def _return(warp: ReferenceWarp) -> Status | None:
    warp.paths.jump(EXIT)
    return None


def _exit(warp: ReferenceWarp) -> Status | None:
    warp.paths.exit(warp.mask)
    return None


@ends(BARRIER)
class BarrierEnd:
    """``bar`` and ``barrier``."""

    def __init__(self, to: Prepare, block: BasicBlock) -> None:
        instruction = block.terminator
        assert instruction is not None
        words = instruction.opcode.split(".")
        self.block = block
        self.instruction = instruction
        self.aligned = instruction.form.row.name == "bar" or "aligned" in words
        self.waits = "arrive" not in words
        self._prepare(to, instruction)

    def _prepare(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        self.number = reader(to, operands["a"], _U32)
        self.threads = reader(to, operands["b"], _U32) if "b" in operands else None
        self.predicate = reader(to, operands["c"], _PRED) if "c" in operands else None
        self.targets = destinations(instruction)
        self.operation = instruction.form.modifier("op")

    def __call__(self, warp: ReferenceWarp) -> Status | None:
        paths = warp.paths
        whole = paths.mask == paths.live
        if self.aligned and not whole:
            paths.gather()
            return None
        waits = self._arrive(warp, paths.mask)
        if whole:
            warp.at_barrier = self
            return Status.WAITS if waits else Status.READY
        if waits:
            paths.wait(self.block.successors[0])
            return None
        return warp.go(self.block, self.block.successors[0])

    def arrive_diverged(self, warp: ReferenceWarp, lanes: int) -> tuple[int, bool]:
        """Lanes of a diverged warp arrive at an aligned barrier. Returns the block where they continue, and whether they wait.
        Raises if violations of the rule are errors."""
        rest = warp.paths.live & ~lanes
        if warp.cta.plan.strict == "error":
            raise divergent_barrier(warp.position(), self.instruction, lanes, rest)
        first = lanes_of(lanes)[0]
        warp.counters.breaches.append(
            Breach("aligned-barrier", self.instruction, warp.cta.index, warp.index, first, lanes | rest << 32)
        )
        return self.block.successors[0], self._arrive(warp, lanes)

    def _arrive(self, warp: ReferenceWarp, lanes: int) -> bool:
        """Lanes arrive. Returns whether they must wait."""
        paths = warp.paths
        first = lanes_of(lanes)[0]
        number, expected = self._operands(warp, first)
        holds = bits_of(self.predicate(warp)) if self.predicate is not None else 0
        warp.cta.barriers.arrive(
            number,
            warp.index,
            lanes,
            live=paths.live,
            expected=expected,
            waits=self.waits,
            holds=holds,
        )
        return self.waits

    def _operands(self, warp: ReferenceWarp, lane: int) -> tuple[int, int]:
        """Barrier and thread count (0: all) of the lowest lane."""
        number = int(every_lane(self.number(warp))[lane])
        if number >= BARRIERS:
            raise bad_barrier(warp.position(), self.instruction, lane, f"barrier {number}")
        if self.threads is None:
            return number, 0
        expected = int(every_lane(self.threads(warp))[lane])
        if expected == 0 or expected % 32 or expected > MAX_THREADS:
            raise bad_barrier(
                warp.position(), self.instruction, lane, f"{expected} threads for barrier {number}"
            )
        return number, expected

    def result(self, warp: ReferenceWarp, lanes: int, true: int, false: int) -> None:
        """Write the result of ``.red`` to waiting lanes."""

        if self.operation is None or self.targets[0] is None:
            return
        if self.operation == "popc":
            value = LaneValue(np.array([true], np.uint32), _U32)
        else:
            value = LaneValue(np.array([false == 0 if self.operation == "and" else true > 0]), _PRED)
        warp.put(self.targets[0], value, warp.lanes_array(lanes))


@ends(CLUSTER_BARRIER)
class ClusterEnd(BarrierEnd):
    """``barrier.cluster``: ``.arrive`` never waits, ``.wait`` only for a barrier that is not complete."""

    def _prepare(self, to: Prepare, instruction: Instruction) -> None:
        """It has no operands."""

    def _arrive(self, warp: ReferenceWarp, lanes: int) -> bool:
        barrier, own = warp.cta.cluster.barrier, (warp.cta.rank, warp.index)
        if not self.waits:
            if not barrier.arrive(own, lanes):
                raise bad_cluster_barrier(warp.position(), self.instruction, lanes_of(lanes)[0])
            return False
        complete = barrier.wait(own, lanes)
        if complete is None:
            raise bad_cluster_barrier(warp.position(), self.instruction, lanes_of(lanes)[0])
        return not complete

    def result(self, warp: ReferenceWarp, lanes: int, true: int, false: int) -> None:
        """It has no result."""
