"""Control dependence: the branches that decide which definition of a value is used: at a φ by the side taken, after a loop by the
iteration that left it, in memory by whether the store ran. Source: Ferrante, Ottenstein and Warren, TOPLAS 9 (1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from .blocks import EXIT, BasicBlock
from .dominators import immediate_dominators
from .loops import Loop, find_loops

__all__ = ["ControlDependence", "may_end"]


class ControlDependence:
    """Control dependence in one function, computed on demand. Blocks are given by their index in the program."""

    def __init__(self, blocks: Sequence[BasicBlock]) -> None:
        self._blocks = {block.index: block for block in blocks}
        self._first = blocks[0].index
        self._loops = find_loops(blocks)
        self._dominator = immediate_dominators(
            [[target - self._first for target in block.successors if target >= 0] for block in blocks], 0
        )
        self._joins: dict[int, tuple[int, ...]] = {}
        self._ends: dict[tuple[int, int], tuple[int, ...]] = {}
        self._of_block: dict[int, frozenset[int]] | None = None

    def of_predecessor(self, block: int) -> tuple[int, ...]:
        """The branches that decide through which predecessor control enters a block: those between its immediate
        dominator and the block."""
        if block not in self._joins:
            self._joins[block] = tuple(self._between(block))
        return self._joins[block]

    def of_loop_exits(self, defined: int, used: int) -> tuple[int, ...]:
        """The branches that end the loops between a value's definition (block ``defined``) and its use (block ``used``): threads
        that leave a loop in different iterations keep different values."""
        if (defined, used) not in self._ends:
            left = (loop for loop in self._loops if defined in loop.body and used not in loop.body)
            ends = dict.fromkeys(
                index for loop in left for index in sorted(loop.body) if may_end(self._blocks[index], loop)
            )
            self._ends[defined, used] = tuple(ends)
        return self._ends[defined, used]

    def of_block(self, block: int) -> frozenset[int]:
        """The branches that decide whether a block runs: it lies between them and their reconvergence point."""
        if self._of_block is None:
            deciding: dict[int, set[int]] = {}
            for branch in self._blocks.values():
                if len(set(branch.successors)) > 1:
                    for index in self._sides(branch):
                        deciding.setdefault(index, set()).add(branch.index)
            self._of_block = {index: frozenset(branches) for index, branches in deciding.items()}
        return self._of_block.get(block, frozenset())

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
    """The blocks reachable from ``start`` on paths that end at ``stop``."""
    reached, stack = {start}, [start]
    while stack:
        for target in follow(stack.pop()):
            if target >= 0 and target not in reached:
                reached.add(target)
                if target != stop:
                    stack.append(target)
    return reached
