"""Views of host arguments on the device, for Numba's launcher."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuperf_engine.memory.arrays import DeviceArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Move", "StandIn"]

Move = Callable[["NDArray[np.generic]", str, bool], DeviceArray]
"""Makes a device array of a host array, with a name; with its contents or without."""


class StandIn:
    """The interface of a memory view that Numba's launcher uses; ``ptr`` is a device array instead of an address.

    Arrays keep their strides: the device array of a non-contiguous one has all bytes from the first to the last element.
    """

    def __init__(self, obj: Any, name: str, move: Move, copy: bool) -> None:
        self._write: Callable[[], None] | None = None
        self.ptr: DeviceArray | None
        if isinstance(obj, DeviceArray):
            self.ptr, self.shape, self.dtype = obj, obj.shape, obj.dtype
            strides = _contiguous(obj.shape, obj.dtype.itemsize)
        else:
            on_device = hasattr(obj, "copy_to_host")
            host = obj.copy_to_host() if on_device else np.asarray(obj)
            self.shape, self.dtype, strides = host.shape, host.dtype, host.strides
            self.ptr = self._moved(host, name, move, copy)
            if on_device:
                self._then(lambda: obj.copy_to_device(host))
            elif isinstance(obj, np.void):
                self._then(lambda: _set_record(obj, host[()]))
            elif not host.flags.writeable:
                self._write = None
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self._layout = SimpleNamespace(strides_in_bytes=tuple(strides))

    def write_back(self) -> None:
        """Copy the array back to the host."""
        if self._write is not None:
            self._write()

    def _then(self, more: Callable[[], None]) -> None:
        before = self._write

        def both() -> None:
            if before is not None:
                before()
                more()

        self._write = both

    def _moved(self, host: NDArray[np.generic], name: str, move: Move, copy: bool) -> DeviceArray | None:
        if not host.nbytes:
            return None
        if host.flags.c_contiguous or host.flags.f_contiguous:
            plain = host if host.flags.c_contiguous else host.T
            if plain.dtype.kind in "mM":
                plain = plain.view(np.int64)
            array = move(plain, name, copy)
            self._write = lambda: np.copyto(plain, array.numpy().reshape(plain.shape))
            return array
        low, high = np.lib.array_utils.byte_bounds(host)
        extent = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
        whole = move(extent, name, True)
        self._write = lambda: np.copyto(extent, whole.numpy())
        return whole[host.ctypes.data - low :]


def _contiguous(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


def _set_record(record: np.void, value: Any) -> None:
    for name in record.dtype.names or ():
        record[name] = value[name]
