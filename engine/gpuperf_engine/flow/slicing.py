"""Slices: as little of a program as decides what is asked.

``control``    decides where every thread goes (HyPA's filtered dependency graph, Metz et al.): from the guards of branches, returns
               and exits, indices of ``brx.idx``, pointers of indirect calls, numbers and counts of barriers back to their
               roots; and in which lanes the guards of other instructions hold, which counts of floating-point operations need.
``addresses``  decides also which addresses every memory instruction accesses, in which lanes. Memory instructions run; values that
               they move and that the slice does not need are undefined.
``values``     the whole program.

A read of memory in the slice brings in every write that may reach it, with its address, value and guard; those bring in theirs.
Waits on mbarriers always run, and so does all that may change those. A barrier with a result, and a ``.sync`` exchange at which
lanes may meet lanes that stand at another, bring in those others.
Branches, calls, barriers and ``trap`` always run; ``printf`` does not, unless its result decides something, and kernels that use the
heap (``malloc``) run whole. Warp-synchronising instructions run where lanes of a warp may get ahead of each
other, for there they decide who waits for whom; elsewhere only if their result is wanted. So lanes diverge, converge and wait
exactly as they do in the whole program, and every count of blocks and branches is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..isa.effects import (
    BRANCH,
    CALL,
    INDIRECT_BRANCH,
    MBARRIER_WAIT,
    RETURN,
    TENSOR,
    THREAD_EXIT,
    TRAP,
    WARPGROUP_COMMIT,
    WARPGROUP_FENCE,
    WARPGROUP_WAIT,
)
from ..ptx.syntax import Address, Instruction, Register
from .blocks import BasicBlock, synchronises
from .dependence import Aliases, Dependence
from .operands import matched, reads, registers_in
from .ssa import Merge, Node

__all__ = ["DEMANDS", "Slice", "slice_program"]

#: each contains the ones before
DEMANDS = ("control", "addresses", "values")
#: what decides by itself how lanes go on
_DECIDES = frozenset((BRANCH, RETURN, THREAD_EXIT, TRAP))


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """What runs for a demand.

    ``instructions`` run. Of those in ``complete`` every operand is right; the others only do what is asked of them: a call its
    jump, a store under ``addresses`` its access. Of ``guards`` the guard is evaluated, to count the lanes, and nothing else.
    """

    demand: str
    dependence: Dependence = field(repr=False)
    aliases: Aliases | None
    instructions: frozenset[Instruction] = field(repr=False)
    complete: frozenset[Instruction] = field(repr=False)
    guards: frozenset[Instruction] = field(default=frozenset(), repr=False)


def slice_program(
    dependence: Dependence, demand: str, aliases: Aliases | None = None, *, counted: bool = True
) -> Slice:
    """The slice of a program for one of ``DEMANDS``. ``aliases`` is what the launch knows (``dependence.Aliases``); ``counted``:
    whether it decides also in which lanes instructions run that neither jump nor access memory."""
    every = [item for block in dependence.program.blocks for item in block.instructions]
    if demand == "values":
        return _whole(dependence, demand, aliases, every)
    divergent = any(item.may_diverge for item in dependence.program.uniformity)
    if any(item.system is not None and item.system.observes_heap for item in every):
        return _whole(dependence, demand, aliases, every)
    slicer = _Slicer(dependence, aliases, _partners(every, divergent))
    for node in dependence.guards.values():
        slicer.want(node)
    for block in dependence.program.blocks:
        for instruction in block.instructions:
            _keep(slicer, block, instruction, divergent, demand == "addresses")
    for instruction in dependence.program.predicated if counted else ():
        slicer.want_guard(instruction)
    slicer.finish()
    if any(item.system is not None and item.system.effect == "print" for item in slicer.complete):
        return _whole(dependence, demand, aliases, every)
    guards = frozenset(dependence.program.predicated) - slicer.executed
    return Slice(demand, dependence, aliases, frozenset(slicer.executed), frozenset(slicer.complete), guards)


def _whole(
    dependence: Dependence, demand: str, aliases: Aliases | None, every: Iterable[Instruction]
) -> Slice:
    """Everything: what the heap gives depends on all calls before, what ``printf`` returns on its text."""
    whole = frozenset(every)
    return Slice(demand, dependence, aliases, whole, whole)


class _Slicer:
    def __init__(
        self,
        dependence: Dependence,
        aliases: Aliases | None,
        partners: dict[Instruction, Sequence[Instruction]],
    ) -> None:
        self.dependence = dependence
        self.aliases = aliases
        self.partners = partners
        self.executed: set[Instruction] = set()
        self.complete: set[Instruction] = set()
        self._seen: set[Node] = set()
        self._stack: list[Node] = []

    def want(self, node: Node) -> None:
        """The value of a node is needed."""
        if node not in self._seen:
            self._seen.add(node)
            self._stack.append(node)

    def keep(self, instruction: Instruction, registers: Iterable[Register]) -> None:
        """An instruction runs; of its operands these registers are needed, and its guard."""
        self.executed.add(instruction)
        for node in self.dependence.origins_of(instruction, registers):
            self.want(node)
        self.want_guard(instruction)

    def want_guard(self, instruction: Instruction) -> None:
        """In which lanes the guard of an instruction holds is needed."""
        if instruction.guard is not None:
            for node in self.dependence.origins_of(instruction, [instruction.guard.register]):
                self.want(node)

    def finish(self) -> None:
        """Bring in everything that is needed."""
        while self._stack:
            node = self._stack.pop()
            for source in self.dependence.sources(node):
                self.want(source)
            if isinstance(node, Merge):
                continue
            self.executed.add(node)
            self.complete.add(node)
            for other in (
                *self.dependence.writers_of(node, self.aliases),
                *self.partners.get(node, ()),
            ):
                self.want(other)


def _partners(
    instructions: Iterable[Instruction], divergent: bool
) -> dict[Instruction, Sequence[Instruction]]:
    """Instructions whose results may be made of each other's operands: of barriers with a result, as the threads of a CTA may
    come to one barrier at several of them, and of ``.sync`` exchanges with the same opcode, where lanes of a warp may."""
    groups: dict[str, list[Instruction]] = {}
    for item in instructions:
        if item.effect.is_barrier and item.form.destinations:
            groups.setdefault("barrier", []).append(item)
        elif divergent and synchronises(item):
            groups.setdefault(item.opcode, []).append(item)
    return {item: group for group in groups.values() for item in group}


def _keep(
    slicer: _Slicer, block: BasicBlock, instruction: Instruction, divergent: bool, addresses: bool
) -> None:
    """Let an instruction run that the demand asks for by itself."""
    effect = instruction.effect
    if effect in _DECIDES:
        slicer.keep(instruction, ())
    elif effect is INDIRECT_BRANCH:
        slicer.want(instruction)
    elif instruction.system is not None:
        if instruction.system.effect == "assert":
            slicer.want(instruction)
    elif effect is CALL:
        target = instruction.call
        slicer.keep(
            instruction, [target.register] if target is not None and target.register is not None else []
        )
    elif effect.is_barrier:
        slicer.keep(instruction, _operands(instruction, "a", "b"))
    elif effect in (WARPGROUP_FENCE, WARPGROUP_COMMIT, WARPGROUP_WAIT):
        slicer.keep(instruction, ())
    elif effect is MBARRIER_WAIT or (addresses and effect is TENSOR):
        slicer.want(instruction)
    else:
        if (
            divergent
            and block.synchronises
            and instruction is block.instructions[0]
            and _converges(instruction)
        ):
            # rows and tiles are reached for where they are met
            slicer.keep(
                instruction, (*_operands(instruction, "membermask", "stride"), *_addressed(instruction))
            )
        if addresses and effect.site and instruction.form.space not in (None, "param"):
            copied = reads(instruction) if effect.copies else ()
            slicer.keep(instruction, (*_addressed(instruction), *_operands(instruction, "stride"), *copied))


def _converges(instruction: Instruction) -> bool:
    """Whether lanes wait for each other there when it runs; matrix instructions that are not run do not."""
    return instruction.form.row.runs


def _operands(instruction: Instruction, *names: str) -> Iterator[Register]:
    for slot, operand in matched(instruction):
        if slot.name in names:
            yield from registers_in(operand)


def _addressed(instruction: Instruction) -> Iterator[Register]:
    for operand in instruction.operands:
        if isinstance(operand, Address):
            yield from registers_in(operand)
