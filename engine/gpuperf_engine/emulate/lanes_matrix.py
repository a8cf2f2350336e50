"""``ldmatrix`` and ``stmatrix`` of the reference backend: one access of 16 bytes per row. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..flow.operands import MATRIX_ROW
from ..isa.frame import evaluate
from ..isa.types import scalar_type
from ..ptx.syntax import Instruction
from .diagnose import lanes_of
from .lanes_memory import MemoryStep, address_reader
from .lanes_operands import Prepare, address_operand, every_lane, lane_value
from .lanes_values import LaneValue

if TYPE_CHECKING:
    from .lanes_warp import LanesWarp

__all__ = ["MatrixRows"]

_B32 = scalar_type("b32")
_WORDS = MATRIX_ROW // 4


class MatrixRows:
    """The rows of up to four 8×8 matrices; the first eight lanes for each matrix give their addresses."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.spelling = instruction.spelling
        self.loads = bool(self.spelling.destinations)
        space = self.spelling.space or "generic"
        self.step = MemoryStep(to, instruction, "load" if self.loads else "store", space, MATRIX_ROW)
        self.addresses = address_reader(to, address_operand(instruction), space)
        self.rows = 8 * int(str(self.spelling.modifier("num"))[1:])

    def __call__(self, warp: LanesWarp, participants: int, fragments: list[LaneValue]) -> list[LaneValue]:
        """Carry it out; the fragments loaded, or none."""
        rows = np.array([lane for lane in lanes_of(participants) if lane < self.rows])
        addresses = every_lane(self.addresses(warp))[rows]
        parts = self.step.reach(warp, rows, addresses)
        if warp.counters.sites is not None and self.step.site is not None:
            self.step.tally(warp.counters.sites[self.step.site], rows, addresses)
        if self.loads:
            words = [np.zeros(32, np.uint32) for _ in range(_WORDS)]
            for region, lanes, offsets, _ in parts:
                for place, data in enumerate(words):
                    data[lanes] = region.gather(offsets + 4 * place, _B32)
            return [
                lane_value(made)
                for made in evaluate(self.spelling, [LaneValue(data, _B32) for data in words])
            ]
        stored = [every_lane(lane_value(word)) for word in evaluate(self.spelling, fragments)]
        for region, lanes, offsets, _ in parts:
            for place, data in enumerate(stored):
                region.scatter(offsets + 4 * place, data[lanes], _B32)
        return []
