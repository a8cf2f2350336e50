"""Handles of textures and surfaces, and their rows of properties (``isa.images.image``)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..isa.images.image import FIELDS, ROW_WORDS

if TYPE_CHECKING:
    from .arena import Allocation

__all__ = ["HANDLE_BASE", "HANDLE_STEP", "Images"]

#: handles lie outside every window and the arena, like the addresses of functions
HANDLE_BASE = 0x0000_7D80_0000_0000
HANDLE_STEP = 4 * ROW_WORDS
_SIZES = ("step", "width", "height", "depth", "layers")


class Images:
    """All images of a device. Row 0 is for invalid handles."""

    def __init__(self) -> None:
        self.rows: NDArray[np.uint32] = np.zeros((1, ROW_WORDS), np.uint32)
        self.allocations: list[Allocation | None] = [None]

    def __bool__(self) -> bool:
        return len(self.rows) > 1

    def add(self, row: NDArray[np.uint32], allocation: Allocation | None) -> int:
        """The handle of a new image; a sampler has no memory."""
        self.rows = np.concatenate([self.rows, row[None]])
        self.allocations.append(allocation)
        return HANDLE_BASE + HANDLE_STEP * (len(self.rows) - 1)

    def add_levels(self, rows: Sequence[NDArray[np.uint32]], allocations: Sequence[Allocation]) -> int:
        """The handle of a new image whose levels of detail have these rows."""
        first, *_ = [self.add(row, allocation) for row, allocation in zip(rows, allocations, strict=True)]
        return first

    def find(self, handles: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each handle, 0 for none."""
        offsets = handles - np.uint64(HANDLE_BASE)
        good = (offsets % np.uint64(HANDLE_STEP) == 0) & (offsets < np.uint64(HANDLE_STEP * len(self.rows)))
        return np.where(good, offsets // np.uint64(HANDLE_STEP), np.uint64(0)).astype(np.int64)

    def _levels(self, number: int) -> int:
        return max(1, int(self.rows[number, FIELDS["levels"]]))

    def sizes(self, words: NDArray[np.uint64]) -> tuple[tuple[int, int], ...]:
        """Bytes of a texel and of the whole image, for each distinct image whose handle is among the words."""
        sizes = []
        for index in sorted({int(index) for index in self.find(words)} - {0}):
            levels = self.rows[index : index + self._levels(index)]
            texels = [[int(row[FIELDS[name]]) for name in _SIZES] for row in levels]
            sizes.append((int(levels[0, FIELDS["texel"]]), sum(map(prod, texels))))
        return tuple(sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """The distinct addresses of the allocations of all images."""
        return tuple(dict.fromkeys(item.address for item in self.allocations if item is not None))

    @property
    def targets(self) -> tuple[int, ...]:
        """The address of the allocation of each row; 0 if it has none."""
        return tuple(0 if item is None else item.address for item in self.allocations)

    def allocation_of(self, handle: int) -> Allocation | None:
        """The allocation of an image."""
        return self.allocations[int(self.find(np.array([handle % (1 << 64)], np.uint64))[0])]

    def levels_of(self, handle: int) -> tuple[Allocation, ...]:
        """The memory of each level of detail of an image."""
        number = int(self.find(np.array([handle % (1 << 64)], np.uint64))[0])
        levels = self.allocations[number : number + self._levels(number)]
        return tuple(item for item in levels if item is not None)
