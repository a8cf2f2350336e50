"""Freed ranges of address space."""

from __future__ import annotations

from collections import deque

__all__ = ["Holes"]


#: the number of freed ranges of one size before the oldest is reused, so that uses of freed memory are detected
_LEFT_ALONE = 32


class Holes:
    """Freed ranges ``[start, end)``. ``grain``: starts are multiples of it, ends need not be."""

    def __init__(self, grain: int) -> None:
        self._grain = grain
        self._ends: dict[int, int] = {}
        self._joined = True
        #: by size, the oldest first
        self._alike: dict[int, deque[int]] = {}

    def copy(self) -> Holes:
        """A copy, to test what fits."""
        same = Holes(self._grain)
        same._ends, same._joined = dict(self._ends), self._joined
        return same

    def put(self, start: int, end: int) -> None:
        """Add a freed range."""
        end = self._whole(end)
        self._ends[start] = end
        self._alike.setdefault(end - start, deque()).append(start)
        self._joined = False

    def take_alike(self, size: int, step: int) -> int | None:
        """Remove and return the start of a range of exactly this size, if there are enough and it is a multiple of ``step``."""
        alike = self._alike.get(self._whole(size))
        if alike is None or len(alike) <= _LEFT_ALONE or alike[0] % step:
            return None
        start = alike.popleft()
        del self._ends[start]
        return start

    def take(self, size: int, step: int) -> int | None:
        """Remove the first free range of so many bytes that starts at a multiple of ``step``. Returns its start, or ``None``."""
        if not self._joined:
            self._join()
        for start, end in self._ends.items():
            address = -(-start // step) * step
            if address + size <= end:
                break
        else:
            return None
        self._alike.clear()  # first, so that an interrupt leaves no invalid starts in it
        del self._ends[start]
        behind = self._whole(address + size)
        for first, last in ((start, address), (behind, end)):
            if first < last:
                self._ends[first] = last
        self._joined = False
        return address

    def _whole(self, address: int) -> int:
        return -(-address // self._grain) * self._grain

    def _join(self) -> None:
        """Merge adjacent ranges, in order of address."""
        joined: dict[int, int] = {}
        last = -1
        for start, end in sorted(self._ends.items()):
            if last >= 0 and joined[last] >= start:
                joined[last] = max(joined[last], end)
            else:
                joined[start] = end
                last = start
        self._alike.clear()
        self._ends, self._joined = joined, True
