"""Handles of textures and surfaces, and the rows of properties that they lead to (``isa.images``)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..isa.images import FIELDS, ROW_WORDS

if TYPE_CHECKING:
    from .arena import Allocation

__all__ = ["HANDLE_BASE", "HANDLE_STEP", "Images"]

#: handles lie outside every window and the arena, like the addresses of functions
HANDLE_BASE = 0x0000_7D80_0000_0000
HANDLE_STEP = 4 * ROW_WORDS
_SIZES = ("texel", "width", "height", "depth", "layers")


class Images:
    """All images of a device. Row 0 is that of handles which lead to none."""

    def __init__(self) -> None:
        self.rows: NDArray[np.uint32] = np.zeros((1, ROW_WORDS), np.uint32)
        self.allocations: list[Allocation | None] = [None]

    def __bool__(self) -> bool:
        return len(self.rows) > 1

    def add(self, row: NDArray[np.uint32], allocation: Allocation) -> int:
        """The handle of a new image."""
        self.rows = np.concatenate([self.rows, row[None]])
        self.allocations.append(allocation)
        return HANDLE_BASE + HANDLE_STEP * (len(self.rows) - 1)

    def find(self, handles: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each handle, 0 for none."""
        offsets = handles - np.uint64(HANDLE_BASE)
        good = (offsets % np.uint64(HANDLE_STEP) == 0) & (offsets < np.uint64(HANDLE_STEP * len(self.rows)))
        return np.where(good, offsets // np.uint64(HANDLE_STEP), np.uint64(0)).astype(np.int64)

    def sizes(self, words: NDArray[np.uint64]) -> tuple[tuple[int, int], ...]:
        """Bytes of a texel and of the whole image, of those that some of the words are handles of, each once."""
        sizes = []
        for index in sorted({int(index) for index in self.find(words)} - {0}):
            row = {name: int(self.rows[index, FIELDS[name]]) for name in _SIZES}
            sizes.append((row["texel"], prod(row.values())))
        return tuple(sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the allocations begin that handles lead to, each once."""
        return tuple(dict.fromkeys(item.address for item in self.allocations if item is not None))

    @property
    def targets(self) -> tuple[int, ...]:
        """Where the allocation of each row begins; 0: it has none."""
        return tuple(0 if item is None else item.address for item in self.allocations)

    def allocation_of(self, handle: int) -> Allocation | None:
        """The memory that a handle leads to."""
        return self.allocations[int(self.find(np.array([handle % (1 << 64)], np.uint64))[0])]
