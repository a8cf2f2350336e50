"""The footprint of a launch: which bytes of each object it read and wrote, each counted once.

Two maps beside the arena (``Memory.touched``) have a byte for each of its bytes; accesses only ever set them, so host threads
need not agree.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..results import SECTOR_BYTES, ObjectFootprint
from .memory import GLOBAL_BASE, Memory

__all__ = ["take_footprint"]


def take_footprint(memory: Memory) -> tuple[ObjectFootprint, ...]:
    """The objects that were touched since the last call, in the order in which they were made."""
    return tuple(_taken(memory)) if memory.touched is not None else ()


def _taken(memory: Memory) -> Iterator[ObjectFootprint]:
    assert memory.touched is not None
    for allocation in memory.allocations:
        start = allocation.address - GLOBAL_BASE
        # whole sectors: objects begin at multiples of 256 bytes, and no other begins in the last one's sector
        end = start + -(-allocation.size // SECTOR_BYTES) * SECTOR_BYTES
        parts = [whole[start:end] for whole in memory.touched]
        used = [bool(part.any()) for part in parts]
        if allocation.kind != "param" and any(used):
            # an untouched map adds nothing, and is not worth reading twice
            either = parts[0] | parts[1] if all(used) else parts[used.index(True)]
            counts = [(_bytes(part), _sectors(part)) if dirty else (0, 0) for part, dirty in zip(parts, used)]
            counts.append((_bytes(either), _sectors(either)))
            numbers, sectors = zip(*counts)
            yield ObjectFootprint(allocation.name, allocation.size, *numbers, *sectors)
        for part, dirty in zip(parts, used):
            if dirty:
                part[:] = 0


def _bytes(part: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(part.view(np.bool_)))


def _sectors(part: NDArray[np.uint8]) -> int:
    words = part.view(np.uint64).reshape(-1, SECTOR_BYTES // 8)
    return int(np.count_nonzero(words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]))
