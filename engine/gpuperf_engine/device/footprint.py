"""The footprint of a launch: the bytes of each object that it read and wrote, each counted once.

Two maps (``Memory.touched``) have a byte for each byte of the arena; accesses only set them, so host threads need no synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import Memory
from ..results import SECTOR_BYTES, ObjectFootprint

__all__ = ["take_footprint"]

_PIECE = 1 << 17


def take_footprint(memory: Memory) -> tuple[ObjectFootprint, ...]:
    """The objects that were accessed since the last call, in order of creation."""
    return tuple(_footprints(memory)) if memory.touched is not None else ()


def _footprints(memory: Memory) -> Iterator[ObjectFootprint]:
    assert memory.touched is not None
    for allocation in sorted(memory.allocations, key=lambda item: item.index):
        start = allocation.address - memory.origin
        # whole sectors: objects begin at multiples of 256 bytes, and no other begins in the last one's sector
        end = start + -(-allocation.size // SECTOR_BYTES) * SECTOR_BYTES
        counts = _counted([whole[start:end] for whole in memory.touched])
        if allocation.kind != "param" and counts.any():
            numbers, sectors = counts.tolist()
            yield ObjectFootprint(allocation.name, allocation.size, *numbers, *sectors)


def _counted(maps: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """Shape (2, 3): bytes and sectors that were read, written, and either; clears the maps.

    Works in chunks that fit the cache, as each is read several times.
    """
    counts = np.zeros((2, 3), dtype=np.int64)
    for start in range(0, len(maps[0]), _PIECE):
        pieces = [whole[start : start + _PIECE] for whole in maps]
        per_piece = [_count(piece) for piece in pieces]
        decided = not min(per_piece)[0] or max(per_piece)[0] == len(pieces[0])
        either = max(per_piece) if decided else _count(pieces[0] | pieces[1])
        counts += np.array([*per_piece, either]).T
        for piece, (touched, _) in zip(pieces, per_piece):
            if touched:
                piece[:] = 0
    return counts


def _count(piece: NDArray[np.uint8]) -> tuple[int, int]:
    """Bytes and sectors that are marked in a map."""
    marked = int(np.count_nonzero(piece.view(np.bool_)))
    if marked in (0, len(piece)):
        return marked, marked // SECTOR_BYTES
    words = piece.view(np.uint64).reshape(-1, SECTOR_BYTES // 8)
    return marked, int(np.count_nonzero(words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]))
