"""Which branches decide what value arrives: at a join, which side was taken; behind a loop, on which trip it ended; in
memory, whether it was stored.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from .blocks import EXIT, BasicBlock
from .dominators import immediate_dominators
from .loops import Loop, find_loops

__all__ = ["Deciders", "may_end"]


class Deciders:
    """The deciding branches of one function, found on demand. Blocks are named by their indices in the program."""

    def __init__(self, blocks: Sequence[BasicBlock]) -> None:
        self._blocks = {block.index: block for block in blocks}
        self._first = blocks[0].index
        self._loops = find_loops(blocks)
        self._dominator = immediate_dominators(
            [[target - self._first for target in block.successors if target >= 0] for block in blocks], 0
        )
        self._joins: dict[int, tuple[int, ...]] = {}
        self._ends: dict[tuple[int, int], tuple[int, ...]] = {}
        self._over: dict[int, frozenset[int]] | None = None

    def at_join(self, block: int) -> tuple[int, ...]:
        """The branches that decide through which of its predecessors a block is entered: those on the way from its immediate
        dominator to it."""
        found = self._joins.get(block)
        if found is None:
            found = self._joins[block] = tuple(self._between(block))
        return found

    def on_leaving(self, made: int, used: int) -> tuple[int, ...]:
        """The branches that end the loops which a value made in one block leaves on its way to another: threads that leave on
        different trips take different values along."""
        found = self._ends.get((made, used))
        if found is None:
            left = (loop for loop in self._loops if made in loop.body and used not in loop.body)
            ends = dict.fromkeys(
                index for loop in left for index in sorted(loop.body) if may_end(self._blocks[index], loop)
            )
            found = self._ends[made, used] = tuple(ends)
        return found

    def over(self, block: int) -> frozenset[int]:
        """The branches that decide whether a block is executed: those on whose way to their reconvergence point it lies."""
        if self._over is None:
            found: dict[int, set[int]] = {}
            for branch in self._blocks.values():
                if len(set(branch.successors)) > 1:
                    for index in self._sides(branch):
                        found.setdefault(index, set()).add(branch.index)
            self._over = {index: frozenset(branches) for index, branches in found.items()}
        return self._over.get(block, frozenset())

    def _sides(self, branch: BasicBlock) -> set[int]:
        return set().union(
            *(
                _reached(target, branch.reconvergence, lambda index: self._blocks[index].successors)
                for target in branch.successors
                if target not in (EXIT, branch.reconvergence)
            )
        ) - {branch.reconvergence}

    def _between(self, block: int) -> Iterator[int]:
        above = self._dominator[block - self._first] + self._first
        if above == block:
            return
        forward = _reached(above, block, lambda index: self._blocks[index].successors)
        before: dict[int, list[int]] = {}
        for index in forward:
            for target in self._blocks[index].successors:
                before.setdefault(target, []).append(index)
        backward = _reached(block, above, lambda index: before.get(index, ()))
        for index in sorted(forward & backward):
            if index != block and len(set(self._blocks[index].successors)) > 1:
                yield index


def may_end(block: BasicBlock, loop: Loop) -> bool:
    """Whether a condition at the end of a block of a loop can leave the loop."""
    return block.kind in ("branch", "indirect") and any(
        target not in loop.body for target in block.successors
    )


def _reached(start: int, stop: int, follow: Callable[[int], Iterable[int]]) -> set[int]:
    """All that a walk from ``start`` meets, which does not go on from ``stop``."""
    found, stack = {start}, [start]
    while stack:
        for target in follow(stack.pop()):
            if target >= 0 and target not in found:
                found.add(target)
                if target != stop:
                    stack.append(target)
    return found
