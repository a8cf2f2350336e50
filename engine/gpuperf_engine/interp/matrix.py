"""Matrices between memory and the registers of a warp in the reference backend: ldmatrix, stmatrix, wmma.load, wmma.store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..flow.operands import matched
from ..isa.evaluation import evaluate
from ..isa.types import scalar_type
from ..ptx.syntax import Instruction
from ..simt.effects import takes_short_addresses
from ..simt.faults import lanes_of
from .memory import MemoryStep, address_reader
from .operands import Prepare, address_operand, every_lane, lane_value, reader
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["MatrixRows"]


class MatrixRows:
    """All accesses of one instruction."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.form = instruction.form
        self.loads = bool(self.form.destinations)
        moves = self.form.moves
        assert moves is not None
        kind = "load" if self.loads else "store"
        self.steps = [
            (move, MemoryStep(to, instruction, kind, size=move.bytes * move.count)) for move in moves.parts
        ]
        self.bits, self.inner = moves.bits, moves.inner
        space = self.form.space or "generic"
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, address_operand(instruction), space, short)
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        stride = operands.get("stride")
        self.stride = None if stride is None else reader(to, stride, scalar_type("u32"))
        self.registers = sum(slot.vector for slot in self.form.sources if slot.name == "b")

    def __call__(self, warp: ReferenceWarp, participants: int, fragments: list[LaneValue]) -> list[LaneValue]:
        """Execute it; returns the loaded fragments, or none."""
        base = every_lane(self.addresses(warp))
        inner = np.full(32, self.inner, np.uint64) if self.stride is None else every_lane(self.stride(warp))
        distance = inner.astype(np.uint64) * np.uint64(self.bits) >> np.uint64(3)
        values: list[LaneValue] = []
        if not self.loads:
            values = [lane_value(result) for result in evaluate(self.form, fragments[: self.registers])]
        loaded: list[LaneValue] = []
        first = 0
        for index, (move, step) in enumerate(self.steps):
            lanes = np.array([lane for lane in lanes_of(participants) if lane < move.lanes])
            offsets = np.array(move.lines, np.uint64) * distance + np.array(move.offsets, np.uint64)
            addresses = (base + offsets)[lanes]
            parts = step.reach(warp, lanes, addresses)
            if warp.counters.sites is not None and step.site is not None:
                step.tally(warp.counters.sites[step.site], lanes, addresses, again=index > 0)
            type = scalar_type(f"b{8 * move.bytes}")
            moved = [] if self.loads else [every_lane(values.pop(0)) for _ in range(move.count)]
            if not self.loads:
                self._record(warp, step, lanes, addresses, moved, first)
            for element in range(move.count):
                data = np.zeros(32, f"u{move.bytes}") if self.loads else moved[element]
                for region, some, offsets_in_region, *_ in parts:
                    if self.loads:
                        data[some] = region.gather(offsets_in_region + element * move.bytes, type)
                    else:
                        region.scatter(offsets_in_region + element * move.bytes, data[some], type)
                if self.loads:
                    moved.append(data)
            if self.loads:
                self._record(warp, step, lanes, addresses, moved, first)
            loaded += [LaneValue(data, type) for data in moved]
            first += move.count
        return [lane_value(result) for result in evaluate(self.form, loaded)] if self.loads else []

    def _record(
        self,
        warp: ReferenceWarp,
        step: MemoryStep,
        lanes: Lanes,
        addresses: Lanes,
        moved: list[Lanes],
        first: int,
    ) -> None:
        """Record the values of one access, if values are observed: its words, of which ``first`` is the index of the first, or their
        halves."""
        recorder = warp.counters.values
        slots = () if recorder is None or step.site is None else recorder.slots.get(step.site, ())
        addresses = step.recorded(warp, addresses)
        for index, data in enumerate(moved if slots else ()):
            bytes = slots[0].kind.bits // 8
            halves = data.reshape(-1, 1).view(f"u{bytes}")
            for half in range(halves.shape[1]):
                slot = slots[(first + index) * halves.shape[1] + half]
                assert recorder is not None
                # the recorder adds the offset of the element
                recorded = addresses + np.uint64(index * data.itemsize + half * bytes)
                recorded -= np.uint64(slot.element * bytes)
                part = np.ascontiguousarray(halves[lanes, half])
                loader = warp.number if self.loads else 0
                recorder.add(
                    slot, step.space, lanes, recorded, part, not self.loads, loader, warp.number, part=half
                )
