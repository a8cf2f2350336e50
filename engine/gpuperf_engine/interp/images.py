"""Textures and surfaces in the reference backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..flow.operands import matched
from ..isa.evaluation import evaluate
from ..isa.images.image import Image
from ..isa.primitives import Value
from ..isa.types import scalar_type
from ..memory.images import image_fault
from ..ptx.syntax import Address, Instruction
from .memory import address_reader
from .operands import (
    Guarded,
    Prepare,
    Reader,
    destinations,
    every_lane,
    lane_value,
    reader,
    sources,
)
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["ImageStep"]

_U32, _U64, _B32 = scalar_type("u32"), scalar_type("u64"), scalar_type("b32")


class ImageStep:
    """One instruction on an image, for the active lanes."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.form = instruction.form
        self.handle, self.values = _operands(to, instruction)
        self.targets = destinations(instruction)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        guard, active = self.guarded(warp)
        handles = every_lane(self.handle(warp))
        image = _LanesImage(warp, handles, active)
        values = [image, *(read(warp) for read in self.values)]
        results = evaluate(self.form, cast("Sequence[Value]", values))
        if image.refused.any():
            lane = int(image.refused.argmax())
            images = warp.cta.arena.memory.images
            raise image_fault(warp.position().thread(lane), self.instruction, int(handles[lane]), images)
        for target, value in zip(self.targets, results):
            if target is not None:
                warp.write(target, lane_value(value), guard)


def _operands(
    to: Prepare, instruction: Instruction
) -> tuple[Reader, list[Callable[[ReferenceWarp], LaneValue | int]]]:
    """The handle, and the operands of the semantics."""
    values = sources(to, instruction)
    for _, operand in matched(instruction):
        if isinstance(operand, Address):
            return address_reader(to, operand, "global"), values
    return reader(to, instruction.operands[-1], _U64), values[1:]


class _LanesImage(Image):
    def __init__(self, warp: ReferenceWarp, handles: Lanes, active: Lanes) -> None:
        memory = warp.cta.arena.memory
        self.region, self.touched = warp.cta.arena.region, memory.touched
        self.origin = np.uint64(memory.origin)
        self.images = memory.images
        self.table, self.numbers = self.images.rows, self.images.find(handles)
        self.rows = self.table[self.numbers]
        self.active = active
        self.refused: Lanes = np.zeros(32, np.bool_)

    def word(self, index: int) -> Value:
        return LaneValue(self.rows[:, index], _U32)

    def word_of(self, handle: Value, index: int) -> Value:
        numbers = self.images.find(every_lane(lane_value(handle)))
        return LaneValue(self.table[numbers, index], _U32)

    def word_behind(self, index: int, rows: Value) -> Value:
        return LaneValue(self.table[self.numbers + every_lane(lane_value(rows)), index], _U32)

    def _where(self, where: Value) -> Lanes:
        lanes: Lanes = every_lane(lane_value(where)) & self.active
        return lanes

    def _offsets(self, address: Value, lanes: Lanes) -> Lanes:
        offsets = every_lane(lane_value(address))[lanes] - self.origin
        return offsets.astype(np.int64)

    def load(self, address: Value, where: Value) -> Value:
        lanes = self._where(where)
        data = np.zeros(32, np.uint32)
        data[lanes] = self.region.gather(self._offsets(address, lanes), _U32)
        return LaneValue(data, _B32)

    def store(self, address: Value, value: Value, where: Value) -> None:
        lanes = self._where(where)
        stored, offsets = lane_value(value), self._offsets(address, lanes)
        self.region.scatter(offsets, every_lane(stored)[lanes], stored.type)
        self._mark(offsets, stored.type.bytes)

    def _mark(self, offsets: Lanes, size: int) -> None:
        self.region.mark(offsets, size)

    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        lanes = self._where(where)
        operand = lane_value(value)
        data, offsets = every_lane(operand)[lanes], self._offsets(address, lanes)
        combine = {
            "add": np.add,
            "min": np.minimum,
            "max": np.maximum,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
        }
        unique, lane_of = np.unique(offsets, return_inverse=True)
        cells = unique[:, None] + np.arange(operand.type.bytes)
        words = self.region.bytes[cells].view(dtype_of(operand.type)).reshape(-1)
        cast("Any", combine[op]).at(words, lane_of, data)
        self.region.bytes[cells] = words.reshape(-1, 1).view(np.uint8)
        self._mark(offsets, operand.type.bytes)

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        return yes() if self._where(condition).any() else no()

    def refuse(self, where: Value) -> None:
        self.refused |= self._where(where)
