"""The heap of a device, for ``malloc`` in kernels (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and Operations"). It
follows device memory and exists as long as the device.

Sizes and addresses of blocks are multiples of 16 bytes; gaps of 16 separate them, so that an overrun hits no other block. Placement
depends only on the order of calls: the last freed block of the same size, else unused memory, else the smallest freed block that is
large enough.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["HEAP_BYTES", "Heap", "HeapBlock", "Kept"]

#: ``cudaLimitMallocHeapSize`` unless set
HEAP_BYTES = 8 << 20
GRAIN = 16


@dataclass(slots=True)
class HeapBlock:
    """A block: ``size`` bytes were requested, ``room`` are reserved. Not ``live``: freed."""

    address: int
    size: int
    room: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """A saved heap: its blocks, the numbers of freed ones by size, and the address of the next."""

    blocks: tuple[tuple[int, int, int, bool], ...]
    freed: dict[int, tuple[int, ...]]
    used: int
    next: int


class Heap:
    """``limit`` bytes can be in use at once. ``generation`` changes with every call that changes it."""

    def __init__(self, start: int, limit: int) -> None:
        self.start = start
        self.limit = limit
        self.used = 0
        self.generation = 0
        self.blocks: list[HeapBlock] = []
        #: numbers of changed blocks, for copies of the table
        self.changed: list[int] = []
        self._starts: list[int] = []
        self._freed: dict[int, list[int]] = {}
        self._next = start

    @property
    def span(self) -> int:
        """Bytes of address space that it may take."""
        return self.span_of(self.limit)

    @staticmethod
    def span_of(limit: int) -> int:
        """The span of a heap with a limit: twice as much, for gaps and for freed blocks of other sizes."""
        return -(-2 * limit // 4096) * 4096

    def allocate(self, size: int) -> int:
        """The address of a block of ``size`` bytes, 0 if there is none."""
        room = max(GRAIN, -(-size // GRAIN) * GRAIN)
        number = None if room > self.limit - self.used else self._find(room)
        if number is None:
            return 0
        block = self.blocks[number]
        block.size, block.live = size, True
        self.used += block.room
        self._note(number)
        return block.address

    def _find(self, room: int) -> int | None:
        freed = self._freed.get(room)
        if freed:
            return freed.pop()
        if self._next + room + GRAIN <= self.start + self.span:
            self.blocks.append(HeapBlock(self._next, 0, room, False))
            self._starts.append(self._next)
            self._next += room + GRAIN
            return len(self.blocks) - 1
        larger = [size for size, numbers in self._freed.items() if size > room and numbers]
        fits = min(larger, default=0)
        return self._freed[fits].pop() if fits and fits <= self.limit - self.used else None

    def release(self, address: int) -> str:
        """Free a block. Returns ``""``, or why the address is invalid."""
        block = self.below(address)
        if block is None or block.address != address:
            inside = block is not None and block.live and address < block.address + block.size
            return "lies inside a block" if inside else "was not returned by malloc"
        if not block.live:
            return "has been freed before"
        block.live = False
        self.used -= block.room
        number = bisect_right(self._starts, address) - 1
        self._freed.setdefault(block.room, []).append(number)
        self._note(number)
        return ""

    def _note(self, number: int) -> None:
        self.generation += 1
        self.changed.append(number)

    def below(self, address: int) -> HeapBlock | None:
        """The block with the highest start that is not above an address, freed or not."""
        index = bisect_right(self._starts, address) - 1
        return self.blocks[index] if index >= 0 else None

    def holds(self, address: int) -> bool:
        """Whether an address is in the heap's range, in a block or not."""
        return self.start <= address < self.start + self.span

    @property
    def top(self) -> int:
        """The end of all blocks that were ever allocated."""
        return self._next

    def row(self, number: int) -> tuple[int, int, int, int]:
        """A block as a row of ``Memory.table``; a freed block is empty."""
        block = self.blocks[number]
        return block.address, block.address + (block.size if block.live else 0), 0, 0

    def table(self) -> NDArray[np.int64]:
        """All rows, shape ``(blocks, 4)``."""
        rows = [self.row(number) for number in range(len(self.blocks))]
        return np.array(rows, dtype=np.int64).reshape(len(rows), 4)

    def save(self) -> Kept:
        """A copy of the state for ``restore``."""
        blocks = tuple((item.address, item.size, item.room, item.live) for item in self.blocks)
        freed = {size: tuple(numbers) for size, numbers in self._freed.items()}
        return Kept(blocks, freed, self.used, self._next)

    def restore(self, kept: Kept) -> None:
        """Restore a saved state; later allocations disappear."""
        self.used, self._next = kept.used, kept.next
        self.blocks = [HeapBlock(*item) for item in kept.blocks]
        self._starts = [item.address for item in self.blocks]
        self._freed = {size: list(numbers) for size, numbers in kept.freed.items()}
        self.changed.clear()
        self.generation += 1
