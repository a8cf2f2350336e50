"""Sums of a launch's counters. Counts by opcode and by line are linear in the counters of blocks, guards and memory
instructions: a sparse matrix, built once per program, times their vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..ptx.syntax import Instruction
from ..simt.counters import SITE_COLUMNS, Observation
from ..simt.program import BasicBlock, Program

__all__ = ["Columns", "Row", "Sums"]

_SECTORS, _LOCAL, _WAVEFRONTS, _IDEAL = map(
    SITE_COLUMNS.index, ("sectors", "local_sectors", "wavefronts", "ideal")
)


class Columns:
    """Where the counters of a program are in the vector."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._blocks = len(program.blocks)

    @staticmethod
    def counters(observation: Observation) -> NDArray[np.int64]:
        """All counters of blocks and guards; int64, or Python integers where they need more."""
        seen = observation
        parts = (seen.block_warps, seen.block_lanes, seen.divergent, seen.taken, seen.predicated)
        return np.concatenate(parts)

    @staticmethod
    def of_sites(observation: Observation) -> NDArray[np.int64]:
        """Sectors and conflicts of each memory instruction, concatenated."""
        rows = observation.sites
        if rows is None:
            return np.zeros(0, np.int64)
        sectors = rows[:, _SECTORS] + rows[:, _LOCAL]
        return np.concatenate([sectors, rows[:, _WAVEFRONTS] - rows[:, _IDEAL]])

    def warps(self, block: int) -> int:
        """Executions of a block by warps."""
        return block

    def lanes(self, block: int) -> int:
        """Executions of a block by lanes."""
        return self._blocks + block

    def divergent(self, block: int) -> int:
        """Executions of its counted branch in which lanes diverged."""
        return 2 * self._blocks + block

    def lanes_on(self, instruction: Instruction, block: BasicBlock) -> int:
        """Lanes of an instruction of a block whose guard, if it has one, held."""
        if instruction.guard is None:
            return self.lanes(block.index)
        counter = self._program.predicated_of.get(instruction)
        if counter is not None:
            return 4 * self._blocks + counter
        if block.counted and instruction is block.terminator:
            return 3 * self._blocks + block.index
        # a guarded call or barrier: the lanes of its own block, the target of the uncounted branch
        return self.lanes(self._program.block_of[instruction])


class Row(Counter[int]):
    """One sum: a weight by column."""

    def add(self, other: Row, weight: int = 1) -> None:
        """Add another sum so many times."""
        for column, count in other.items():
            self[column] += weight * count


class Sums:
    """The rows as a matrix."""

    def __init__(self, rows: Sequence[Row]) -> None:
        # an empty sum gets a column with weight 0, as ``reduceat`` requires one
        parts = [row or Row({0: 0}) for row in rows]
        self._columns = np.array([column for row in parts for column in row], np.intp)
        self._weights = np.array([weight for row in parts for weight in row.values()], np.int64)
        self._starts = np.array([0, *accumulate(map(len, parts))][:-1], np.intp)
        self._heaviest = max((row.total() for row in parts), default=0)

    def of(self, counters: NDArray[np.int64]) -> list[int]:
        """The sums, exact."""
        if not self._starts.size:
            return []
        if not counters.size:
            return [0] * self._starts.size
        if max(int(counters.max()), -int(counters.min())) * self._heaviest >= 1 << 63:
            counters = counters.astype(object)
        sums: list[int] = np.add.reduceat(counters[self._columns] * self._weights, self._starts).tolist()
        return sums
