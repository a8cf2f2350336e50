"""Slices: the part of a program that computes what a demand needs.

``control``    the control flow of every thread (HyPA's filtered dependency graph, Metz et al.): backwards from the guards of branches,
               returns and exits, indices of ``brx.idx``, pointers of indirect calls, numbers and counts of barriers; and the lanes in
               which the guards of other instructions hold, which counts of floating-point operations need.
``addresses``  additionally the addresses of every memory instruction, in its active lanes. Memory instructions run; values that they
               move but the slice does not need are undefined.
``values``     the whole program.

A slice with a read of memory also contains every write that may reach it, with its address, value and guard, transitively.
Waits on mbarriers always run, and so do all instructions that may change mbarriers. A slice with a barrier that has a result also
contains the other barriers that may be the same one; likewise for ``.sync`` exchanges in which lanes at different instructions may
take part.
Branches, calls, barriers and ``trap`` always run; ``printf`` runs only if its result is needed, and kernels that use the heap
(``malloc``) run completely. Warp-synchronising instructions run if lanes of the warp may be at different instructions, as they then
decide which lanes wait; otherwise only if their result is needed. So lanes diverge, converge and wait exactly as in the whole program,
and all counts of blocks and branches are the same.
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

#: each contains the previous ones
DEMANDS = ("control", "addresses", "values")
#: effects that direct control flow and always run
_DECIDES = frozenset((BRANCH, RETURN, THREAD_EXIT, TRAP))


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The instructions that run for a demand.

    ``instructions`` run. All operands of those in ``complete`` are computed; the others run without some of their operands: a call for
    its jump, a store under ``addresses`` for its access. For those in ``guards`` only the guard is evaluated, to count lanes.
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
    """The slice of a program for one of ``DEMANDS``. ``aliases``: those of the launch (``dependence.Aliases``); ``counted``:
    whether it also contains the guards of instructions that neither jump nor access memory."""
    every = [item for block in dependence.program.blocks for item in block.instructions]
    if demand == "values":
        return _whole_program(dependence, demand, aliases, every)
    divergent = any(item.may_diverge for item in dependence.program.uniformity)
    if any(item.system is not None and item.system.observes_heap for item in every):
        return _whole_program(dependence, demand, aliases, every)
    slicer = _Slicer(dependence, aliases, _partners(every, divergent))
    for node in dependence.guards.values():
        slicer.want(node)
    for block in dependence.program.blocks:
        for instruction in block.instructions:
            _keep_required(slicer, block, instruction, divergent, demand == "addresses")
    for instruction in dependence.program.predicated if counted else ():
        slicer.want_guard(instruction)
    slicer.finish()
    if any(item.system is not None and item.system.effect == "print" for item in slicer.complete):
        return _whole_program(dependence, demand, aliases, every)
    guards = frozenset(dependence.program.predicated) - slicer.executed
    return Slice(demand, dependence, aliases, frozenset(slicer.executed), frozenset(slicer.complete), guards)


def _whole_program(
    dependence: Dependence, demand: str, aliases: Aliases | None, every: Iterable[Instruction]
) -> Slice:
    """The whole program: addresses from the heap depend on all previous calls, results of ``printf`` on its text."""
    instructions = frozenset(every)
    return Slice(demand, dependence, aliases, instructions, instructions)


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
        """Add a node whose value is needed."""
        if node not in self._seen:
            self._seen.add(node)
            self._stack.append(node)

    def keep(self, instruction: Instruction, registers: Iterable[Register]) -> None:
        """Add an instruction that runs, with its guard and some of its registers."""
        self.executed.add(instruction)
        for node in self.dependence.origins_of(instruction, registers):
            self.want(node)
        self.want_guard(instruction)

    def want_guard(self, instruction: Instruction) -> None:
        """Add the guard of an instruction."""
        if instruction.guard is not None:
            for node in self.dependence.origins_of(instruction, [instruction.guard.register]):
                self.want(node)

    def finish(self) -> None:
        """Add everything that the nodes depend on."""
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
    """Instructions whose results may depend on each other's operands: barriers with a result, as threads of a CTA may arrive at one
    barrier by different instructions, and ``.sync`` exchanges with the same opcode, as lanes of a diverged warp may."""
    groups: dict[str, list[Instruction]] = {}
    for item in instructions:
        if item.effect.is_barrier and item.form.destinations:
            groups.setdefault("barrier", []).append(item)
        elif divergent and synchronises(item):
            groups.setdefault(item.opcode, []).append(item)
    return {item: group for group in groups.values() for item in group}


def _keep_required(
    slicer: _Slicer, block: BasicBlock, instruction: Instruction, divergent: bool, addresses: bool
) -> None:
    """Add an instruction if the demand requires it directly."""
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
            # rows and tiles are accessed by this instruction itself
            slicer.keep(
                instruction, (*_operands(instruction, "membermask", "stride"), *_addressed(instruction))
            )
        if addresses and effect.site and instruction.form.space not in (None, "param"):
            copied = reads(instruction) if effect.copies else ()
            slicer.keep(instruction, (*_addressed(instruction), *_operands(instruction, "stride"), *copied))


def _converges(instruction: Instruction) -> bool:
    """Whether lanes wait for each other when it runs, which excludes matrix instructions that only count."""
    return instruction.form.row.runs


def _operands(instruction: Instruction, *names: str) -> Iterator[Register]:
    for slot, operand in matched(instruction):
        if slot.name in names:
            yield from registers_in(operand)


def _addressed(instruction: Instruction) -> Iterator[Register]:
    for operand in instruction.operands:
        if isinstance(operand, Address):
            yield from registers_in(operand)
