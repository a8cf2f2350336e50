"""Blocks whose executions depend on the order in which threads run.

The *result* of an atomic, a volatile, relaxed or acquire load and ``%clock``, ``%smid`` and the like depend on it; so does all that is
computed from these, what memory holds where such a value was stored, or stored at such an address, or by lanes that it chose, and
what ``exch``, ``cas`` and sums in floating point leave there. Where a lock is taken (a loop around ``cas`` or ``exch`` whose end its
result decides), so do loads of what other threads store. A branch on such a value decides how often the blocks are executed that
follow before its lanes meet again; all that these compute depends on the order too.

May, not must: of a value that is the same in any order nothing is known here. Plain accesses that race are not looked at.
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
    """``blocks`` by their index whose executions depend on the order, and the ``branches`` that decide about them."""

    blocks: frozenset[int] = frozenset()
    branches: frozenset[Instruction] = frozenset()


def observes_order(program: Layout) -> bool:
    """Whether anything in a program may depend on the order of threads, or on how long a wait takes."""
    return any(_is_source(item) for block in program.blocks for item in block.instructions)


def by_order(dependence: Dependence, aliases: Aliases | None = None) -> tuple[Ordered, Ordered]:
    """What the order of threads decides in a program, and what only how long a phase of an mbarrier takes. ``aliases`` is what the
    launch knows."""
    every = [item for block in dependence.program.blocks for item in block.instructions]
    sources = [item for item in every if _is_source(item)]
    asked = [item for item in sources if item.effect in (MBARRIER, MBARRIER_WAIT)]
    others = [item for item in sources if item.effect not in (MBARRIER, MBARRIER_WAIT)]
    decided, waiting = (
        _Spread(dependence, aliases, some).result() if some else Ordered() for some in (others, asked)
    )
    return decided, Ordered(waiting.blocks - decided.blocks, waiting.branches - decided.branches)


def _is_source(item: Instruction) -> bool:
    return observes_others(item) or any(
        isinstance(operand, SpecialRegister) and special_register(operand.name).virtual
        for operand in item.operands
    )


class _Spread:
    """From some instructions to all that depends on their results."""

    def __init__(self, dependence: Dependence, aliases: Aliases | None, sources: list[Instruction]) -> None:
        self.dependence = dependence
        self.aliases = aliases
        self.all = dependence.program.blocks
        self.of: dict[int, frozenset[int]] = {}
        self.known: set[Node] = set()
        self.marked: set[int] = set()
        #: whose effect on memory depends on the order
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
        """The executions of a block depend on the order, and so does all that it leaves."""
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
        """The blocks between a branch and where its lanes meet."""
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
        """Who uses a value, and who may read what an instruction writes."""
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
        """By value the branches that it decides."""
        found: defaultdict[Node, list[BasicBlock]] = defaultdict(list)
        for block in self.all:
            for node in self._conditions(block):
                found[node].append(block)
        return found

    def _conditions(self, block: BasicBlock) -> Iterator[Node]:
        guard = self.dependence.guards.get(block.index)
        if guard is not None:
            yield guard
        if block.terminator is not None and block.kind in ("branch", "indirect"):
            yield from self.dependence.uses.get(block.terminator, ())

    def _locks(self, sources: list[Instruction]) -> bool:
        """Whether a result of ``cas`` or ``exch`` decides about a loop around it."""
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
                    here = self.block_of[item].index
                    if any(here in self.behind(block) for block in self.branches.get(node, ())):
                        return True
        return False


def _leaves_order(item: Instruction) -> bool:
    """Whether what an atomic leaves in memory depends on which came first."""
    words = {*item.opcode.split(".")}
    return not words.isdisjoint(_KEPT) or ("add" in words and not words.isdisjoint(_FLOATS))
