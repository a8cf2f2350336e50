"""Loops of one function: heads, bodies, nesting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .blocks import BasicBlock, natural_loop
from .dominators import immediate_dominators

__all__ = ["Loop", "find_loops"]


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop of all back edges to one head. Numbers are indices of blocks in the program.

    ``depth`` is 1 for an outermost loop. An irreducible loop (``reducible`` false) can be entered at other blocks than its head; its
    body is all blocks on cycles through the head.
    """

    head: int
    body: frozenset[int]
    latches: tuple[int, ...]
    depth: int
    reducible: bool


def find_loops(blocks: Sequence[BasicBlock]) -> tuple[Loop, ...]:
    """The loops of one function, in the order of their heads."""
    first = blocks[0].index
    bodies: dict[int, set[int]] = {}
    latches: dict[int, list[int]] = {}
    for block in blocks:
        for head in sorted(block.back_edges):
            bodies.setdefault(head, set()).update(natural_loop(blocks, block.index, head, first))
            latches.setdefault(head, []).append(block.index)
    dominator = immediate_dominators(
        [[target - first for target in block.successors if target >= 0] for block in blocks], 0
    )
    return tuple(
        Loop(
            head,
            frozenset(bodies[head]),
            tuple(latches[head]),
            sum(head in other for other in bodies.values()),
            all(_dominates(head - first, source - first, dominator) for source in latches[head]),
        )
        for head in sorted(bodies)
    )


def _dominates(above: int, node: int, dominator: Sequence[int]) -> bool:
    while node not in (0, above):
        node = dominator[node]
    return node == above
