"""Device memory: host-visible buffers, module variables and the windows of the generic address space.

Global and constant memory share one map of exact, 256-byte aligned allocations with a gap after each, by their generic addresses.
Shared, local and parameter memory start at 0 in their own spaces, constant memory a little behind; windows show them in the generic
space.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

HEAP = 0x300000000000
SHARED_WINDOW = 0x10_0000_0000
LOCAL_WINDOW = 0x20_0000_0000
PARAM_WINDOW = 0x30_0000_0000
CONST_WINDOW = 0x40_0000_0000
WINDOW_BYTES = 0x1_0000_0000
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "const": CONST_WINDOW}


class OracleError(Exception):
    """The kernel did something that PTX does not allow, or that the oracle does not know."""


class Buffer:
    """A device allocation over a mutable ``bytearray`` with an address that no other one of this process has.

    ``source`` is a NumPy array (copied), ``bytes`` or a number of zero bytes; ``space`` is ``global`` or ``const``.
    """

    free: ClassVar[dict[str, int]] = {"global": HEAP, "const": CONST_WINDOW + 0x800}

    def __init__(self, source: NDArray[Any] | bytes | bytearray | int, space: str = "global") -> None:
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.shape: tuple[int, ...] | None = None
        if isinstance(source, np.ndarray):
            self.dtype, self.shape = source.dtype, source.shape
            self.data = bytearray(np.ascontiguousarray(source).tobytes())
        else:
            self.data = bytearray(source)
        self.address = Buffer.free[space]
        Buffer.free[space] += (len(self.data) + 255) // 256 * 256 + 256

    def numpy(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """A copy of the contents, in the dtype and shape it was made with unless another dtype is given."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        array = np.frombuffer(bytes(self.data), dtype=kind)
        return array.reshape(self.shape) if self.shape is not None and kind == self.dtype else array


class AddressMap:
    """The allocations of global and constant memory that one launch can reach, by address."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: list[Buffer] = []

    def place(self, buffer: Buffer) -> None:
        """Enter the buffer under its address; entering it again changes nothing."""
        at = bisect_right(self.starts, buffer.address)
        if at and self.buffers[at - 1] is buffer:
            return
        self.starts.insert(at, buffer.address)
        self.buffers.insert(at, buffer)

    def find(self, address: int, size: int) -> tuple[bytearray, int]:
        at = bisect_right(self.starts, address) - 1
        if at >= 0:
            buffer = self.buffers[at]
            offset = address - buffer.address
            if offset + size <= len(buffer.data):
                return buffer.data, offset
        raise OracleError(f"no allocation holds {size} bytes at 0x{address:x}")


def window_of(address: int) -> tuple[str, int]:
    """The space a generic address lies in, and the address inside that space."""
    for space, start in WINDOWS.items():
        if start <= address < start + WINDOW_BYTES:
            return space, address - start
    return "global", address
