"""Arrays of the host on a device, with their strides: arrays that overlap there overlap on the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.memory.arrays import check_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuperf_engine.memory.arrays import DeviceArray

__all__ = ["ArrayStructure", "MovedArrays"]


class ArrayStructure(bytes):
    """A structure as an argument, which begins with an address in ``array``; ``None``: it has no elements."""

    array: DeviceArray | None

    def __new__(cls, contents: bytes, array: DeviceArray | None) -> ArrayStructure:
        made = super().__new__(cls, contents)
        made.array = array
        return made


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes of the host from ``start``, and where they are on the device."""

    start: int
    host: NDArray[np.generic]
    array: DeviceArray
    writeable: bool


class MovedArrays:
    """``move`` makes a device array of a host array, with a name, and with its contents or without."""

    def __init__(self, move: Callable[[Any, str, bool], DeviceArray]) -> None:
        self._move = move
        self._ranges: list[_Range] = []

    def take(self, arrays: Sequence[tuple[str, NDArray[np.generic]]]) -> None:
        """Move arrays with their names; those that overlap become one array of the device. Raises ``LaunchError`` for a type that
        devices do not have."""
        for _, array in arrays:
            check_dtype(array.dtype)
        bounds = sorted((*_bounds(array), number) for number, (_, array) in enumerate(arrays) if array.size)
        groups: list[tuple[int, int, list[int]]] = []
        for start, end, number in bounds:
            if groups and start < groups[-1][1]:
                first, last, numbers = groups[-1]
                groups[-1] = (first, max(last, end), [*numbers, number])
            else:
                groups.append((start, end, [number]))
        # the order of the arguments, not that of addresses of the host, which differ between runs
        for start, end, numbers in sorted(groups, key=lambda group: min(group[2])):
            self._keep(start, end - start, [arrays[number] for number in sorted(numbers)])

    def place(self, array: NDArray[np.generic]) -> tuple[DeviceArray, int]:
        """The device array that has the first element of a host array, and the bytes before that. The array was taken before."""
        address = array.ctypes.data
        for known in self._ranges:
            if known.start <= address < known.start + known.host.nbytes:
                return known.array, address - known.start
        raise AssertionError("an array that was not moved")

    def scratch(self, like: NDArray[np.generic], name: str) -> ArrayStructure:
        """The address of memory of the device like an array of the host, without its contents."""
        array = self._move(like, name, False)
        return ArrayStructure(array.address.to_bytes(8, "little"), array)

    def write_back(self) -> None:
        """Give the host what the kernel left in its memory. Raises ``LaunchError`` for what may not be written."""
        for known in self._ranges:
            result = known.array.numpy()
            if known.writeable:
                known.host[:] = result
            elif not np.array_equal(known.host.view(np.uint8), result.view(np.uint8)):
                raise LaunchError(
                    f"the kernel wrote to {known.array.name!r}, which is read-only", hint="give it a copy"
                )

    def _keep(self, start: int, size: int, arrays: Sequence[tuple[str, NDArray[np.generic]]]) -> None:
        raw = np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)
        kinds = {array.dtype for _, array in arrays}
        kind = kinds.pop() if len(kinds) == 1 else np.dtype(np.uint8)
        host = raw.view(kind) if size % kind.itemsize == 0 else raw
        writeable = all(array.flags.writeable for _, array in arrays)
        self._ranges.append(_Range(start, host, self._move(host, arrays[0][0], True), writeable))


def _bounds(array: NDArray[np.generic]) -> tuple[int, int]:
    """The first byte of an array's elements and the one after the last, for strides of either sign."""
    reaches = [(length - 1) * stride for length, stride in zip(array.shape, array.strides)]
    start = array.ctypes.data
    before, after = sum(min(0, reach) for reach in reaches), sum(max(0, reach) for reach in reaches)
    return start + before, start + after + array.itemsize
