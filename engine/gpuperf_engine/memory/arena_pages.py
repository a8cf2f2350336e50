"""The pages of device memory, and of metadata per byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pages import FIRST, map_at, reserve, starting_before
from .store_shadow import StoreShadow

__all__ = ["ArenaPages"]

#: CTA numbers have 31 bits
_MOST_NUMBERS = 1 << 31


class ArenaPages:
    """``bytes`` (uint8, the arena), ``shadow`` (uint8, 1 = written): those of device address a at index a − ``origin``.

    The device addresses are ``[base, end)``, of which those from ``start`` on are global memory. Pages are reserved, and committed on
    first use. ``mapped``: they are at their device addresses, and both arrays cover all addresses of the host. Raises ``LaunchError``
    if the host has no such address range.
    """

    def __init__(self, base: int, start: int, end: int, mapped: bool) -> None:
        self.mapped = mapped
        self.origin = FIRST if mapped else base
        self._base, self._global, self._end = base, start, end
        #: the windows before global memory get no huge pages, as they are mostly unused
        self._huge_from = start - base
        pages = map_at(base, end - base, self._huge_from) if mapped else self._reserve(end - base)
        self.bytes: NDArray[np.uint8] = self._over(pages)
        self.shadow: NDArray[np.uint8] = self.beside()
        #: host addresses of both
        self.host, self.host_shadow = int(self.bytes.ctypes.data), int(self.shadow.ctypes.data)
        #: while the footprint is observed: a byte per byte of the arena, 1 if a launch read it, and the same for writes
        self.touched: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
        self._race_lines: NDArray[np.uint8] | None = None
        self._race_words: tuple[NDArray[np.uint8], ...] | None = None
        self._race_segments: NDArray[np.uint8] | None = None
        self._race_number = 1
        self._store_shadow: StoreShadow | None = None

    def _reserve(self, size: int) -> NDArray[np.uint8]:
        return reserve(size, self._huge_from)

    def _over(self, pages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Pages of the arena, or of its metadata, as an array with ``origin`` at index 0."""
        return starting_before(pages, self._base - self.origin) if self.mapped else pages

    def beside(self) -> NDArray[np.uint8]:
        """A zero byte for each byte of the arena, committed on first use."""
        # includes the whole last sector
        return self._over(self._reserve(self._end - self._base + 32))

    def is_arena(self, address: int, size: int) -> bool:
        """Whether any of these bytes is in the arena."""
        return address < self._end and address + size > self._base

    def observe_footprint(self) -> None:
        """Start recording accesses for ``device.footprint``."""
        if self.touched is None:
            self.touched = self.beside(), self.beside()

    @property
    def global_span(self) -> int:
        """Bytes from the first of global memory to the end of the arena."""
        return self._end - self._global

    def race_numbers(self, ctas: int) -> int:
        """Reserve numbers for so many CTAs of a launch, and return the first. Those of earlier launches are lower, so that nothing has
        to be cleared."""
        if self._race_number + ctas >= _MOST_NUMBERS:
            self._race_lines = self._race_words = None
            self._race_number = 1
        first = self._race_number
        self._race_number += ctas
        return first

    def race_lines(self, line: int, cell: int) -> NDArray[np.uint8]:
        """``cell`` bytes of access history for each line of so many bytes of global memory."""
        if self._race_lines is None:
            self._race_lines = self._reserve(-(-self.global_span // line) * cell)
        return self._race_lines

    def race_words(
        self, words: int, accessors: int, cells: int, *, most: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """So many bytes of access history for the words of global memory, and for accessors and cells, initially zero. All are cleared
        once the number of accessors, which is in the first word of theirs, reaches ``most``."""
        if self._race_words is not None and int(self._race_words[1][:8].view(np.int64)[0]) >= most:
            self._race_words = None
        if self._race_words is None:
            # huge pages only for randomly accessed memory
            small = reserve(accessors, accessors - 1), reserve(cells, cells - 1)
            self._race_words = (reserve(words), *small)
        elif len(self._race_words[0]) < words:
            self._race_words = (reserve(words), *self._race_words[1:])
        existing, rows, rooms = self._race_words
        return existing, rows, rooms

    def race_segments(self, size: int) -> NDArray[np.uint8]:
        """So many bytes, initially zero."""
        if self._race_segments is None:
            self._race_segments = self._reserve(size)
        return self._race_segments

    def store_shadow(self) -> StoreShadow:
        """The shadow of last stores to global memory, for a new launch."""
        if self._store_shadow is None or self._store_shadow.epoch == StoreShadow.LAST:
            self._store_shadow = None  # unmaps its pages before new ones are mapped
            self._store_shadow = StoreShadow(self.global_span)
        self._store_shadow.epoch += 1
        return self._store_shadow
