"""Blocks whose executions depend on the order in which threads run.

The *results* of atomics, of volatile, relaxed and acquire loads, ``%clock``, ``%smid`` and the like depend on it. So do all values
computed from these; memory to which such a value was stored, or stored at such an address, or by lanes that it selected; and memory
that ``exch``, ``cas`` and floating-point sums modify. If a program takes locks (a loop around ``cas`` or ``exch`` that their result
ends), loads of memory that other threads store depend on it too. A branch on such a value decides how often the blocks up to its
reconvergence point are executed, and all values that these compute depend on the order as well.

This is a may-analysis: it also includes values that are the same in every order. It ignores plain accesses that race.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..isa.effects import ATOMIC, MBARRIER, MBARRIER_WAIT, REDUCTION, STORE
from ..isa.special import special_register
from ..ptx.syntax import Instruction, SpecialRegister
from .blocks import BasicBlock
from .dependence import Aliases, Dependence, Layout
from .operands import writes
from .ssa import Node
from .uniformity import observes_others

__all__ = ["Ordered", "by_order", "observes_order"]

_KEPT = frozenset(("exch", "cas"))
_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))


@dataclass(frozen=True, slots=True)
class Ordered:
    """Indices of the ``blocks`` whose executions depend on the order, and the ``branches`` that decide whether they run."""

    blocks: frozenset[int] = frozenset()
    branches: frozenset[Instruction] = frozenset()


def observes_order(program: Layout) -> bool:
    """Whether a program may depend on the order of threads, or on the duration of waits."""
    return any(_is_source(item) for block in program.blocks for item in block.instructions)


def by_order(dependence: Dependence, aliases: Aliases | None = None) -> tuple[Ordered, Ordered]:
    """The blocks that depend on the order of threads, and those that only depend on the duration of a phase of an mbarrier.
    ``aliases``: those of the launch."""
    every = [item for block in dependence.program.blocks for item in block.instructions]
    sources = [item for item in every if _is_source(item)]
    waits = [item for item in sources if item.effect in (MBARRIER, MBARRIER_WAIT)]
    others = [item for item in sources if item.effect not in (MBARRIER, MBARRIER_WAIT)]
    decided, waiting = (
        _Spread(dependence, aliases, some).result() if some else Ordered() for some in (others, waits)
    )
    return decided, Ordered(waiting.blocks - decided.blocks, waiting.branches - decided.branches)


def _is_source(item: Instruction) -> bool:
    return observes_others(item) or any(
        isinstance(operand, SpecialRegister) and special_register(operand.name).virtual
        for operand in item.operands
    )


class _Spread:
    """The closure of instructions, memory and blocks that depend on the results of some instructions."""

    def __init__(self, dependence: Dependence, aliases: Aliases | None, sources: list[Instruction]) -> None:
        self.dependence = dependence
        self.aliases = aliases
        self.all = dependence.program.blocks
        self.of: dict[int, frozenset[int]] = {}
        self.known: set[Node] = set()
        self.marked: set[int] = set()
        #: instructions whose effect on memory depends on the order
        self.stored: set[Instruction] = set()
        self.left: list[Node] = []
        self.block_of = {item: block for block in self.all for item in block.instructions}
        self.users, self.readers = self._edges()
        self.branches = self._branches()
        for item in sources:
            self.reach(item)
        if any(item.effect is ATOMIC or item.effect is REDUCTION for item in sources):
            for item in self.block_of:
                if item.effect in (ATOMIC, REDUCTION) and _leaves_order(item):
                    self.store(item)
        if self._locks(sources):
            for writer, readers in self.readers.items():
                for item in readers if writer.effect is STORE else ():
                    self.reach(item)

    def result(self) -> Ordered:
        deciding: set[Instruction] = set()
        while self.left:
            node = self.left.pop()
            for user in self.users[node]:
                self.reach(user)
                if isinstance(user, Instruction) and user in self.readers:
                    self.store(user)
            for block in self.branches.get(node, ()):
                if block.terminator is not None:
                    deciding.add(block.terminator)
                for index in self.behind(block):
                    self.mark(index)
        return Ordered(frozenset(self.marked), frozenset(deciding))

    def reach(self, node: Node) -> None:
        if node not in self.known:
            self.known.add(node)
            self.left.append(node)

    def store(self, item: Instruction) -> None:
        if item not in self.stored:
            self.stored.add(item)
            for reader in self.readers[item]:
                self.reach(reader)

    def mark(self, index: int) -> None:
        """Marks a block whose executions depend on the order, and with it all values that it defines and stores."""
        if index in self.marked:
            return
        self.marked.add(index)
        block = self.all[index]
        for item in block.instructions:
            if item in self.readers:
                self.store(item)
            if writes(item):
                self.reach(item)
        if block.terminator is not None and block.terminator.call is not None:
            for number in self.dependence.program.callees(block.terminator.call):
                for called in self.dependence.program.blocks_of(number):
                    self.mark(called.index)

    def behind(self, block: BasicBlock) -> frozenset[int]:
        """The blocks between a branch and its reconvergence point."""
        known = self.of.get(block.index)
        if known is None:
            seen: set[int] = set()
            left = [*block.successors]
            while left:
                index = left.pop()
                if index >= 0 and index != block.reconvergence and index not in seen:
                    seen.add(index)
                    left += self.all[index].successors
            known = self.of[block.index] = frozenset(seen)
        return known

    def _edges(self) -> tuple[defaultdict[Node, list[Node]], dict[Instruction, list[Instruction]]]:
        """The users of each value, and the possible readers of each write."""
        dependence = self.dependence
        users: defaultdict[Node, list[Node]] = defaultdict(list)
        seen: set[Node] = set()
        left: list[Node] = [*self.block_of, *dependence.guards.values()]
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            for source in dependence.sources(node):
                users[source].append(node)
                left.append(source)
        readers: dict[Instruction, list[Instruction]] = {item: [] for item in dependence.writing}
        for item in self.block_of:
            for writer in dependence.writers_of(item, self.aliases):
                readers[writer].append(item)
        return users, readers

    def _branches(self) -> dict[Node, list[BasicBlock]]:
        """The branches on each value."""
        branches: defaultdict[Node, list[BasicBlock]] = defaultdict(list)
        for block in self.all:
            for node in self._conditions(block):
                branches[node].append(block)
        return branches

    def _conditions(self, block: BasicBlock) -> Iterator[Node]:
        guard = self.dependence.guards.get(block.index)
        if guard is not None:
            yield guard
        if block.terminator is not None and block.kind in ("branch", "indirect"):
            yield from self.dependence.uses.get(block.terminator, ())

    def _locks(self, sources: list[Instruction]) -> bool:
        """Whether a result of ``cas`` or ``exch`` decides whether a loop around it continues."""
        for item in sources:
            if item.effect is ATOMIC and not _KEPT.isdisjoint(item.opcode.split(".")):
                seen: set[Node] = set()
                left: list[Node] = [item]
                while left:
                    node = left.pop()
                    if node in seen:
                        continue
                    seen.add(node)
                    left += self.users[node]
                    index = self.block_of[item].index
                    if any(index in self.behind(block) for block in self.branches.get(node, ())):
                        return True
        return False


def _leaves_order(item: Instruction) -> bool:
    """Whether the final value in memory depends on the order of these atomics."""
    words = {*item.opcode.split(".")}
    return not words.isdisjoint(_KEPT) or ("add" in words and not words.isdisjoint(_FLOATS))
