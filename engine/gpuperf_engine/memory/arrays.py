"""Arrays in device memory, and conversion of shapes, dtypes and contents from arguments of host programs."""

from __future__ import annotations

import math
import operator
import reprlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import LaunchError
from ..ptx.syntax import Variable
from .arena import Allocation, Memory

__all__ = [
    "ArrayOwner",
    "DeviceArray",
    "HostArray",
    "as_dtype",
    "as_shape",
    "as_whole",
    "axes_of",
    "check_dtype",
    "converted",
    "dtype_of_variable",
]


HostArray: TypeAlias = NDArray[Any]
"""An array of the host, of any dtype."""


class ArrayOwner(Protocol):
    """The device whose memory an array lies in: copies and memsets go through it, because it records them."""

    @property
    def memory(self) -> Memory: ...

    def read(self, array: DeviceArray) -> HostArray: ...

    def memset(self, array: DeviceArray, value: object) -> None: ...

    def copy(self, target: DeviceArray, source: HostArray | DeviceArray) -> None: ...


@dataclass(unsafe_hash=True)
class DeviceArray:
    """An array in device memory, or a view of one. ``shape`` and ``dtype`` as NumPy's; ``address`` is the device address of
    its first element. ``numpy()`` copies out. Equal are arrays of the same memory, shape and dtype."""

    runtime: ArrayOwner = field(repr=False, compare=False)
    allocation: Allocation = field(repr=False)
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def address(self) -> int:
        return self.allocation.address + self.offset

    @property
    def name(self) -> str:
        return self.allocation.name

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def recorded(self) -> DeviceArray:
        """The same array without a reference to the device, for the device's own records, so that they do not keep it alive."""
        if isinstance(self.runtime, weakref.ProxyType):
            return self
        return DeviceArray(weakref.proxy(self.runtime), self.allocation, self.offset, self.shape, self.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a zero-dimensional device array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: slice | int) -> DeviceArray:
        """A view of consecutive elements along the first axis; ``x[128:]``, ``x[8:16]``, ``x[3]``. No steps."""
        if not self.shape:
            raise LaunchError("a zero-dimensional device array cannot be sliced")
        try:
            index = key.indices(self.shape[0]) if isinstance(key, slice) else operator.index(key)
        except TypeError:
            raise LaunchError(
                f"a device array cannot be indexed with {key!r:.60}",
                hint="accepted: x[128:], x[8:16], x[3]; x.numpy()[…] takes everything NumPy does",
            ) from None
        if isinstance(index, tuple):
            start, stop, step = index
            if step != 1:
                raise LaunchError(
                    f"a view with step {step}", hint="device views are consecutive: use steps of 1"
                )
            shape = (max(0, stop - start), *self.shape[1:])
        else:
            start = index + (self.shape[0] if index < 0 else 0)
            if not 0 <= start < self.shape[0]:
                raise LaunchError(f"index {index} of an array of length {self.shape[0]}")
            shape = self.shape[1:]
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        return DeviceArray(self.runtime, self.allocation, self.offset + start * row, shape, self.dtype)

    def view(self, dtype: DTypeLike) -> DeviceArray:
        """The same bytes as elements of another dtype, as ``numpy.ndarray.view``: the last axis is divided accordingly. For
        variables, which nvcc declares as bytes: ``kernel.symbol("table").view(np.float32)``. Raises ``LaunchError``."""
        other = as_dtype(dtype)
        check_dtype(other)
        shape = self.shape
        if other.itemsize != self.dtype.itemsize:
            row = (shape[-1] if shape else 1) * self.dtype.itemsize
            if not other.itemsize or row % other.itemsize or (not shape and row != other.itemsize):
                raise LaunchError(
                    f"{row} bytes of {self.dtype} are not a whole number of {other}",
                    hint=f"accepted: a dtype whose size divides {row} bytes",
                )
            shape = (*shape[:-1], row // other.itemsize)
        return replace(self, shape=shape, dtype=other)

    def numpy(self) -> HostArray:
        """A copy on the host, shape and dtype as made."""
        return self.runtime.read(self)

    def fill(self, value: object) -> None:
        """Set every element, recorded as a memset."""
        self.runtime.memset(self, value)

    def copy_from(self, source: HostArray | DeviceArray) -> None:
        """Overwrite with host data or another device array of the same size in bytes."""
        self.runtime.copy(self, source)

    def bytes(self) -> NDArray[np.uint8]:
        """The bytes themselves in the arena (not a copy, not recorded)."""
        return self.runtime.memory.view(self.allocation)[self.offset : self.offset + self.nbytes]


def as_dtype(dtype: DTypeLike) -> np.dtype[np.generic]:
    """The dtype meant. Raises ``LaunchError``."""
    try:
        return np.dtype(dtype)
    except TypeError as error:
        raise LaunchError(
            f"{dtype!r} is not a dtype: {error}",
            hint="a dtype of NumPy, or of ml_dtypes such as ml_dtypes.bfloat16",
        ) from None


def check_dtype(dtype: np.dtype[np.generic]) -> None:
    """Raises ``LaunchError`` for a dtype that no array of a device has."""
    if dtype.hasobject or dtype.kind in "USmM" or not dtype.isnative:
        raise LaunchError(
            f"an array of dtype {dtype} has no device representation",
            hint="accepted: booleans, numbers and structures of them in the byte order of the host",
        )


def converted(source: object, dtype: np.dtype[np.generic]) -> HostArray:
    """Host data as a contiguous array of a dtype, without loss of kind or range. Raises ``LaunchError``."""
    try:
        array = np.asarray(source)
        if not isinstance(source, (np.ndarray, np.generic)) and array.dtype.kind in "iu":
            array = np.asarray(
                source, dtype=dtype
            )  # Python integers have no width, so only their range is checked
        return np.ascontiguousarray(array.astype(dtype, casting="same_kind", copy=False))
    except (TypeError, ValueError, OverflowError) as error:
        shown = reprlib.repr(source.tolist() if isinstance(source, np.generic) else source)
        if isinstance(source, np.ndarray):
            shown = f"an array of {source.dtype}, shape {source.shape},"
        raise LaunchError(
            f"cannot put {shown} into an array of {dtype}: {error}", hint=_conversion(source, dtype)
        ) from None


def _conversion(source: object, dtype: np.dtype[np.generic]) -> str:
    if not isinstance(source, (np.ndarray, np.generic)) or source.dtype.kind not in "biufc":
        return f"accepted: what NumPy converts to {dtype} without loss of kind or range"
    as_bytes = f"array.view(np.{source.dtype}) on the device, for the same bytes"
    if dtype == np.uint8 and source.dtype.itemsize > 1:
        return f"{as_bytes}: nvcc declares variables of any type as bytes"
    return f"source.astype(np.{dtype}) converts it; {as_bytes}"


def as_whole(value: object, what: str, least: int) -> int:
    """The value as an int of at least ``least``, at most 2**62, which no run and no host reaches."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value.__index__()) < least:
        raise LaunchError(f"{what} is {value!r}", hint=f"accepted: an int, {least} or more")
    return min(int(value.__index__()), 1 << 62)


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple. Raises ``LaunchError``."""
    parts = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    for part in parts:
        if isinstance(part, bool) or not hasattr(part, "__index__") or int(part) < 0:
            raise LaunchError(f"shape {shape!r}", hint="accepted: an int or a tuple of ints, 0 or more")
    return tuple(int(part) for part in parts)


def axes_of(shape: tuple[int, ...], width: int) -> tuple[int, int]:
    """``Allocation.axes`` of an array of elements of so many bytes."""
    long = [size for size in shape if size > 1]
    if len(long) not in (2, 3):
        return 0, 0
    row = long[-1] * width
    return row, long[-2] * row if len(long) == 3 else 0


def dtype_of_variable(variable: Variable) -> np.dtype[np.generic]:
    """The NumPy dtype of a PTX variable's elements; unsigned integers where NumPy has no such type."""
    kind, size = variable.type.kind, variable.type.bytes
    if kind == "f" and size in (2, 4, 8) and variable.type.lanes == 1:
        return np.dtype(f"f{size}")
    if kind in "su" and size <= 8:
        return np.dtype(f"{'i' if kind == 's' else 'u'}{size}")
    return np.dtype(f"u{size}") if size <= 8 else np.dtype(np.uint8)
