"""What a launch is about to change, kept so that it can begin again."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .arena import Allocation, Memory

__all__ = ["Undo"]


class Undo:
    """Contents of allocations as they were before a launch: of those that it writes, kept when it first does (``keep``, by any host
    thread), and at once those behind images, whose accesses are not told, and the heap."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        #: bytes and shadow; ``None`` where nothing was written
        self._kept: dict[Allocation, tuple[NDArray[np.uint8], NDArray[np.uint8] | None] | None] = {}
        self._heap = memory.save_heap()
        for allocation in memory.images.allocations:
            if allocation is not None:
                self.keep(allocation)

    def keep(self, allocation: Allocation) -> None:
        """An allocation is about to be written for the first time."""
        with self._lock:
            if allocation in self._kept or allocation.kind != "global":
                return
            memory = self._memory
            written = allocation.initialized or bool(memory.shadow_of(allocation).any())
            shadow = None if allocation.initialized else memory.shadow_of(allocation).copy()
            self._kept[allocation] = (memory.view(allocation).copy(), shadow) if written else None

    def restore(self) -> None:
        """Memory is as it was."""
        memory = self._memory
        memory.restore_heap(self._heap)
        for allocation, kept in self._kept.items():
            contents, shadow = kept if kept is not None else (0, 0)
            memory.view(allocation)[:] = contents
            if shadow is not None:
                memory.shadow_of(allocation)[:] = shadow
        memory.generation += 1
