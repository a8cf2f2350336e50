"""The stack of ``alloca`` in the reference backend.

Each function has its own stack pointer, which a call passes to the function called, so that a return frees the callee's
allocations. It is stored as the distance from the end of the thread's local memory; 0 is an empty stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..isa.evaluation import evaluate
from ..isa.types import scalar_type
from ..ptx.syntax import Instruction
from ..simt.faults import bad_stack
from .operands import Guarded, Prepare, destinations, every_lane, integer, lane_value, sources
from .values import LaneValue

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["StackStep"]

_U64 = scalar_type("u64")


class StackStep:
    """``alloca``, ``stacksave`` or ``stackrestore``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.number = to.number
        self.end = to.program.local_area
        self.readers = sources(to, instruction)
        self.targets = destinations(instruction)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        guard, active = self.guarded(warp)
        kind = self.instruction.form.type
        assert kind is not None
        depth = warp.stack_depth(self.number)
        end = integer(self.end, _U64)
        before = LaneValue(end.data - depth, _U64)
        operands = [read(warp) for read in self.readers]
        (result,) = evaluate(self.instruction.form, [*operands, before.convert(kind)])
        after = every_lane(lane_value(result.convert(_U64)))
        size = (
            every_lane(lane_value(operands[0])) if operands and isinstance(operands[0], LaneValue) else after
        )
        bad = active & ((after < warp.stack_top) | (after > end.data))
        if self.instruction.form.row.name == "alloca":
            bad |= active & ((size.astype(np.uint64) > before.data) | (after > before.data))
        if bad.any():
            lane = int(bad.argmax())
            raise bad_stack(warp.position(), self.instruction, lane, int(size[lane]))
        warp.stack_depths[self.number] = np.where(active, end.data - after, depth)
        for target in self.targets:
            if target is not None:
                warp.write(target, lane_value(result), guard)
