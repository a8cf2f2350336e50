"""The CUDA runtime and driver API on a device of the engine: unmodified programs load these libraries instead of NVIDIA's"""

from __future__ import annotations

import os

__all__ = ["THREADS_BEFORE", "threads"]


def threads() -> frozenset[str]:
    """The threads of this process by their ids in Linux; empty if they are unknown."""
    try:
        return frozenset(os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


#: those that there were before NumPy started its own, which no program starts
THREADS_BEFORE = threads()
