"""A listing of pseudo machine instructions that is made from PTX."""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx.syntax import Instruction
from ...sass.graph import Graph
from ...simt.program import Program

__all__ = ["Code", "Recorded"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded access: the position of its pseudo machine instruction in the listing, the PTX instruction it is made of (``None``:
    a spilled register, whose address in local memory is the constant ``word`` in 4-byte words), the operand (0: the address of a load,
    store or atomic, or the destination of ``cp.async``; 1: the source of ``cp.async``), and the state space: ``global``, ``shared``,
    ``local``; of a generic address ``generic``, followed by a second entry ``window``."""

    position: int
    instruction: Instruction | None
    operand: int
    space: str
    word: int = 0


@dataclass(eq=False)
class Code:
    """``graph.blocks[i]`` belongs to ``program.blocks[i]``: as many blocks in the same order, of which some may be empty. ``sites``
    are in the order of their positions; ``of_block``: the indices of the sites of each block."""

    program: Program
    graph: Graph
    sites: tuple[Recorded, ...]
    of_block: dict[int, list[int]]
