"""Pieces of address space that were given back."""

from __future__ import annotations

from collections import deque

__all__ = ["Holes"]


#: so many pieces of a size are left alone before the oldest of them is given again, so that what uses freed memory is noticed
_LEFT_ALONE = 32


class Holes:
    """``[start, end)`` of each piece. ``grain``: starts are multiples of it, ends need not be."""

    def __init__(self, grain: int) -> None:
        self._grain = grain
        self._ends: dict[int, int] = {}
        self._joined = True
        #: by size, the oldest first
        self._alike: dict[int, deque[int]] = {}

    def copy(self) -> Holes:
        """The same pieces, to try what fits."""
        same = Holes(self._grain)
        same._ends, same._joined = dict(self._ends), self._joined
        return same

    def put(self, start: int, end: int) -> None:
        """A piece is free again."""
        end = self._whole(end)
        self._ends[start] = end
        self._alike.setdefault(end - start, deque()).append(start)
        self._joined = False

    def take_alike(self, size: int, step: int) -> int | None:
        """The start of a piece of just so many bytes, if there are many and that is a multiple of ``step``."""
        alike = self._alike.get(self._whole(size))
        if alike is None or len(alike) <= _LEFT_ALONE or alike[0] % step:
            return None
        start = alike.popleft()
        del self._ends[start]
        return start

    def take(self, size: int, step: int) -> int | None:
        """The first multiple of ``step`` from which so many bytes are free, taken from their piece; ``None`` if there is none."""
        if not self._joined:
            self._join()
        for start, end in self._ends.items():
            address = -(-start // step) * step
            if address + size <= end:
                break
        else:
            return None
        self._alike.clear()  # first: what is interrupted here must leave no start that is none
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
        """Pieces that touch become one, in order of address."""
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
