"""Some bytes of an object, and small numbers about each of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arrays import HostArray

__all__ = ["Marks", "Span", "all_of_elements", "any_of_elements", "equal_elements", "marked"]

_PIECE = 1 << 16
#: sizes of elements that NumPy has integers for
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Span:
    """Some bytes of an object: those from ``start`` to ``end`` that ``mask`` selects (``None``: all)."""

    start: int
    end: int
    mask: NDArray[np.bool_] | None = None

    @property
    def count(self) -> int:
        return self.end - self.start if self.mask is None else int(np.count_nonzero(self.mask))

    @property
    def slice(self) -> slice:
        return slice(self.start, self.end)

    @property
    def where(self) -> bool | NDArray[np.bool_]:
        """For ``where=`` of NumPy's functions on the slice."""
        return True if self.mask is None else self.mask

    def contains(self, other: Span) -> bool:
        """Whether this span contains another one; spans with gaps are only compared for equality."""
        if self.mask is None:
            return self.start <= other.start and other.end <= self.end
        same = (self.start, self.end) == (other.start, other.end)
        return same and other.mask is not None and np.array_equal(self.mask, other.mask)

    def put(self, part: HostArray, value: Any) -> None:
        """Set the elements of these bytes in an array with one element per byte of the object."""
        if self.mask is None:
            part[self.slice] = value
        else:
            np.copyto(part[self.slice], value, where=self.mask)

    def within(self, size: int) -> NDArray[np.bool_]:
        """One flag for each byte of the object."""
        flags = np.zeros(size, np.bool_)
        self.put(flags, True)
        return flags


class Marks:
    """A number below 256 for each byte of an object: one for all of them until they differ."""

    __slots__ = ("_each", "size", "uniform")

    def __init__(self, size: int) -> None:
        self.size = size
        #: the number of all bytes, ``None`` if they may differ
        self.uniform: int | None = 0
        self._each: NDArray[np.uint8] | None = None

    def put(self, span: Span, number: int) -> None:
        """Set the numbers of these bytes."""
        if self._is_whole(span):
            self.uniform, self._each = number, None
        elif self.uniform != number:
            span.put(self._expanded(), number)

    def add(self, span: Span, bits: int) -> None:
        """Set these bits of the numbers of these bytes."""
        if self.uniform is not None and (self._is_whole(span) or self.uniform | bits == self.uniform):
            self.uniform |= bits
        else:
            part = self._expanded()[span.slice]
            np.bitwise_or(part, bits, out=part, where=span.where)

    def part(self, where: slice) -> NDArray[np.uint8]:
        """The numbers of these bytes; not to be written to."""
        if self._each is not None:
            return self._each[where]
        return np.broadcast_to(np.uint8(self.uniform or 0), len(range(self.size)[where]))

    def counts(self, span: Span) -> dict[int, int]:
        """How many of these bytes have each number."""
        if self._each is None:
            return {self.uniform or 0: span.count}
        numbers = self._each[span.slice]
        numbers = numbers if span.mask is None else numbers[span.mask]
        if len(numbers) and (numbers == numbers[0]).all():
            return {int(numbers[0]): len(numbers)}
        counts = np.bincount(numbers)
        return {number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}

    def _is_whole(self, span: Span) -> bool:
        return span.mask is None and span.end - span.start == self.size

    def _expanded(self) -> NDArray[np.uint8]:
        if self._each is None:
            self._each = np.full(self.size, self.uniform or 0, np.uint8)
            self.uniform = None
        return self._each


def marked(flags: NDArray[np.uint8]) -> Span | None:
    """The bytes whose flag is not 0, ``None`` if there are none."""
    marks = flags.view(np.bool_)
    counts = [int(np.count_nonzero(marks[start : start + _PIECE])) for start in range(0, len(marks), _PIECE)]
    count = sum(counts)
    if not count:
        return None
    filled = [piece for piece, number in enumerate(counts) if number]
    first, last = filled[0] * _PIECE, filled[-1] * _PIECE
    start = first + int(marks[first : first + _PIECE].argmax())
    behind = marks[last : last + _PIECE]
    end = last + len(behind) - int(behind[::-1].argmax())
    return Span(start, end, None if count == end - start else marks[start:end].copy())


def _elements(raw: HostArray, width: int) -> HostArray:
    """Bytes or flags as elements of so many bytes: one integer each, or a row of bytes where there is no such integer."""
    word = _WORDS.get(width)
    return raw.reshape(-1, width) if word is None else raw.view(word)


def any_of_elements(flags: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether any of its bytes is marked."""
    elements = _elements(flags, width) != 0
    return np.asarray(elements if elements.ndim == 1 else elements.any(axis=1))


def all_of_elements(flags: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether all of its bytes are marked."""
    elements = _elements(flags, width)
    return np.asarray(
        elements == int.from_bytes(b"\1" * width, "little") if elements.ndim == 1 else elements.all(axis=1)
    )


def equal_elements(left: NDArray[np.uint8], right: NDArray[np.uint8], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether its bytes are the same."""
    same = _elements(left, width) == _elements(right, width)
    return np.asarray(same if same.ndim == 1 else same.all(axis=1))
