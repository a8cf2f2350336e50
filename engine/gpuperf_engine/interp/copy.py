"""``cp.async`` of the reference backend: copies when it is issued, so groups and waits do nothing."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from ..flow.operands import matched
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Immediate, Instruction
from ..simt.counters import LINE_BYTES, SITE_COLUMNS, sectors, wavefronts
from .memory import MemoryStep, address_reader
from .operands import Guarded, Prepare, every_lane, reader
from .values import Lanes

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["CopyStep"]


class CopyStep:
    """Copies of 4, 8 or 16 bytes from global to shared memory; bytes beyond a source size, or all with ``ignore``, become 0."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        length = operands["bytes"]
        target, source = operands["d"], operands["a"]
        assert isinstance(length, Immediate)
        assert isinstance(target, Address)
        assert isinstance(source, Address)
        self.bytes = length.value
        self.source = MemoryStep(to, instruction, "load", "global", self.bytes)
        self.target = MemoryStep(to, instruction, "store", "shared", self.bytes)
        self.byte = copy(self.source)
        self.byte.bytes = 1
        self.read_source = address_reader(to, source, "global")
        self.read_target = address_reader(to, target, "shared")
        source_bytes, ignored = operands.get("source_bytes"), operands.get("ignore")
        self.read_size = None if source_bytes is None else reader(to, source_bytes, scalar_type("u32"))
        self.read_ignore = None if ignored is None else reader(to, ignored, scalar_type("pred"))
        self.guarded = Guarded(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: ReferenceWarp) -> None:
        _, active = self.guarded(warp)
        lanes = np.flatnonzero(active)
        if not lanes.size:
            return
        sources, targets = every_lane(self.read_source(warp)), every_lane(self.read_target(warp))
        sizes = self._sizes(warp)
        data = np.zeros((32, self.bytes), np.uint8)
        whole = lanes[sizes[lanes] == self.bytes]
        if whole.size:
            for part in self.source.reach(warp, whole, sources[whole]):
                data[part.lanes] = part.region.bytes[part.offsets[:, None] + np.arange(self.bytes)]
        for lane in lanes[(sizes[lanes] > 0) & (sizes[lanes] < self.bytes)]:
            if sources[lane] % self.bytes:
                self.source.reach(warp, np.array([lane]), sources[lane : lane + 1])
            addresses = sources[lane] + np.arange(sizes[lane], dtype=np.uint64)
            for part in self.byte.reach(warp, np.repeat(lane, sizes[lane]), addresses):
                data[lane, : sizes[lane]] = part.region.bytes[part.offsets]
        for part in self.target.reach(warp, lanes, targets[lanes]):
            part.region.bytes[part.offsets[:, None] + np.arange(self.bytes)] = data[part.lanes]
        self._record(warp, lanes, sizes, sources, data)
        if warp.counters.sites is not None:
            self._count(
                warp.counters.sites[self.site], lanes, lanes[sizes[lanes] > 0], sources, targets[lanes]
            )

    def _record(self, warp: ReferenceWarp, lanes: Lanes, sizes: Lanes, sources: Lanes, data: Lanes) -> None:
        """Record the copied values, element by element, if values are observed."""
        recorder = warp.counters.values
        for slot in () if recorder is None else recorder.slots.get(self.site, ()):
            bytes = slot.kind.bits // 8
            reading = lanes[sizes[lanes] >= bytes * (slot.element + 1)]
            elements = data.view(f"u{bytes}")[reading, slot.element]
            assert recorder is not None
            recorder.add(slot, "global", reading, sources[reading], elements, False, warp.number)

    def _sizes(self, warp: ReferenceWarp) -> Lanes:
        """Bytes that each lane copies."""
        sizes = np.full(32, self.bytes, np.int64)
        if self.read_size is not None:
            sizes = np.minimum(every_lane(self.read_size(warp)).astype(np.int64), self.bytes)
        if self.read_ignore is not None:
            sizes = np.where(every_lane(self.read_ignore(warp)), 0, sizes)
        return sizes

    def _count(self, row: list[int], lanes: Lanes, filled: Lanes, sources: Lanes, targets: Lanes) -> None:
        needed, ideal = wavefronts(targets, lanes, self.bytes)
        counted = {
            "requests": 1,
            "lanes": int(lanes.size),
            "sectors": sectors(sources[filled]),
            "lines": sectors(sources[filled], LINE_BYTES),
            "global_wavefronts": wavefronts(sources[filled], filled, self.bytes)[0],
            "wavefronts": needed,
            "ideal": ideal,
        }
        for name, amount in counted.items():
            row[SITE_COLUMNS.index(name)] += amount
