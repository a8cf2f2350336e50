"""Rows of bytes with pitches, for 2-D and 3-D copies and memsets."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ..errors import LaunchError

__all__ = ["Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """``height`` rows of ``width`` bytes in each of ``depth`` planes; rows begin ``pitch`` bytes apart, planes ``plane``."""

    width: int
    height: int = 1
    depth: int = 1
    pitch: int = 0
    plane: int = 0

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.depth) < 0:
            raise LaunchError(
                f"{self.depth} planes of {self.height} rows of {self.width} bytes",
                hint="accepted: numbers from 0 on",
            )

    @property
    def bytes(self) -> int:
        """Bytes of the rows, without gaps."""
        return self.width * self.height * self.depth

    @property
    def extent(self) -> int:
        """Bytes from the first to the last one, including gaps."""
        return (self.depth - 1) * self.plane + (self.height - 1) * self.pitch + self.width

    def over(self, whole: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The rows of ``extent`` bytes: shape (depth, height, width), in place."""
        return as_strided(whole, (self.depth, self.height, self.width), (self.plane, self.pitch, 1))

    def at(self, address: int) -> NDArray[np.uint8]:
        """The rows at an address of this process: shape (depth, height, width), in place."""
        whole = (ctypes.c_uint8 * self.extent).from_address(address)
        return self.over(np.frombuffer(whole, np.uint8))

    @property
    def mask(self) -> NDArray[np.bool_] | None:
        """Whether each byte of the extent is in a row; ``None`` if all are."""
        if self.bytes == self.extent:
            return None
        flags = np.zeros(self.extent, np.uint8)
        self.over(flags)[:] = 1
        return flags.view(np.bool_)
