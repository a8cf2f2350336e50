"""Conditions: the outcomes of branches under which a block runs, and which decide between the two definitions of a φ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ptx.syntax import Guard, Instruction
from .blocks import BasicBlock
from .dominators import immediate_dominators, predecessors

__all__ = ["Condition", "Conditions"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A branch, and whether it is taken (its guard holds)."""

    branch: Instruction
    guard: Guard
    taken: bool


class Conditions:
    """The conditions of one function. Blocks are given by their index in the program."""

    def __init__(self, blocks: Sequence[BasicBlock]) -> None:
        self._first = first = blocks[0].index
        self._blocks = blocks
        graph = [[target - first for target in block.successors if target >= 0] for block in blocks]
        self._dominator = immediate_dominators(graph, 0)
        self._before = predecessors(graph)

    def of_block(self, block: int) -> list[Condition]:
        """Necessary conditions of a block, the nearest first; they need not be sufficient."""
        node = block - self._first
        conditions = []
        while node:
            above = self._dominator[node]
            taken = self._side(above, node)
            if taken is not None:
                conditions += self._condition(above, taken)
            node = above
        return conditions

    def of_edge(self, source: int, target: int) -> list[Condition]:
        """Necessary conditions of an edge."""
        taken = self._blocks[source - self._first].successors[0] == target
        return [*self._condition(source - self._first, taken), *self.of_block(source)]

    def choice(self, block: int) -> tuple[Condition, Sequence[int]] | None:
        """The branch that decides through which of two predecessors control enters a block, and the positions of the predecessor
        if it is taken and if not; ``None`` if there is no such branch."""
        node = block - self._first
        above, before = self._dominator[node], self._before[node]
        if len(before) != 2 or not node:
            return None
        sides = [self._side(above, node, source) for source in before]
        branch = self._condition(above, True)
        if None in sides or sides[0] == sides[1] or not branch:
            return None
        return branch[0], (sides.index(True), sides.index(False))

    def predecessors(self, block: int) -> list[int]:
        """The predecessors of a block, in the order of the sources of its merges (``ssa``)."""
        return [item + self._first for item in self._before[block - self._first]]

    def _condition(self, node: int, taken: bool) -> list[Condition]:
        """The condition of the branch at the end of a block, if there is one."""
        block = self._blocks[node]
        if not _decides(block):
            return []
        assert block.terminator is not None and block.guard is not None
        return [Condition(block.terminator, block.guard, taken)]

    def _side(self, above: int, node: int, source: int | None = None) -> bool | None:
        """Whether the branch at the end of ``above`` is taken on every path to ``node``, of which it is the immediate dominator, or to
        its predecessor ``source``; ``None`` if both outcomes are possible."""
        block = self._blocks[above]
        if source is not None and source != above:
            node = source
            while self._dominator[node] != above:
                node = self._dominator[node]
        target = node + self._first
        if not _decides(block) or target not in block.successors:
            return None
        # every other predecessor must be dominated by the node: then control has passed it before
        if source != above and any(
            item != above and not self._dominates(node, item) for item in self._before[node]
        ):
            return None
        return block.successors[0] == target

    def _dominates(self, above: int, node: int) -> bool:
        while node not in (0, above):
            node = self._dominator[node]
        return node == above


def _decides(block: BasicBlock) -> bool:
    guarded = block.guard is not None and block.terminator is not None
    return block.kind == "branch" and guarded and len({*block.successors}) == 2
