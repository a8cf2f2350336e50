"""Basic blocks that only follow one another because lanes or warps wait between them.

Here a block ends wherever a warp may have to wait (``flow.blocks``). An assembler orders the instructions of such blocks as those of
one: ``ptxas`` 13.0 moves loads of matrices between products, arithmetic across shuffles, and, behind and in front of ``BAR.SYNC``,
arithmetic and products, but no access to memory."""

from __future__ import annotations

from dataclasses import replace

from ...flow.blocks import BasicBlock
from ...simt.program import Program

__all__ = ["as_one", "chains_of", "predecessors_of"]


def chains_of(program: Program) -> list[list[BasicBlock]]:
    """The blocks in their order, those that an assembler has as one in one list. A wait on an mbarrier or for a warpgroup begins a
    list."""
    before = predecessors_of(program)
    chains: list[list[BasicBlock]] = []
    for block in program.blocks:
        earlier = chains[-1][-1] if chains else None
        if (
            earlier is not None
            and earlier.kind in ("fall", "barrier")
            and before.get(block.index) == [earlier.index]
            and not block.waits
        ):
            chains[-1].append(block)
        else:
            chains.append([block])
    return chains


def predecessors_of(program: Program) -> dict[int, list[int]]:
    """The indices of the predecessors of each block that has any."""
    before: dict[int, list[int]] = {}
    for block in program.blocks:
        for target in block.successors:
            before.setdefault(target, []).append(block.index)
    return before


def as_one(chain: list[BasicBlock]) -> BasicBlock:
    """A block with the instructions of all, that begins as the first and ends as the last."""
    first, last = chain[0], chain[-1]
    if first is last:
        return first
    return replace(
        last,
        index=first.index,
        label=first.label,
        instructions=tuple(item for block in chain for item in block.instructions),
        synchronises=first.synchronises,
        live_in=first.live_in,
    )
