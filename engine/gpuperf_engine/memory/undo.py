"""Copies of memory that a launch is about to change, so that it can restart."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .arena import Allocation, Memory

__all__ = ["Undo"]


class Undo:
    """Contents of allocations before a launch: of those that it writes, copied on the first access (``keep``, by any host thread), and
    immediately those of images, whose accesses are not announced, and the heap."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        #: bytes and shadow; ``None`` where nothing was written
        self._saved: dict[Allocation, tuple[NDArray[np.uint8], NDArray[np.uint8] | None] | None] = {}
        self._heap = memory.save_heap()
        for allocation in memory.images.allocations:
            if allocation is not None:
                self.keep(allocation)

    def keep(self, allocation: Allocation) -> None:
        """Copy an allocation that is about to be written for the first time."""
        with self._lock:
            if allocation in self._saved or allocation.kind != "global":
                return
            memory = self._memory
            written = allocation.initialized or bool(memory.shadow_of(allocation).any())
            shadow = None if allocation.initialized else memory.shadow_of(allocation).copy()
            self._saved[allocation] = (memory.view(allocation).copy(), shadow) if written else None

    def restore(self) -> None:
        """Restore the memory."""
        memory = self._memory
        memory.restore_heap(self._heap)
        for allocation, saved in self._saved.items():
            contents, shadow = saved if saved is not None else (0, 0)
            memory.view(allocation)[:] = contents
            if shadow is not None:
                memory.shadow_of(allocation)[:] = shadow
        memory.generation += 1
