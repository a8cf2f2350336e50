"""Tensor maps: what ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` of the CUDA driver make, from a description in Python.

The 128 bytes are opaque to programs (manual: "Tensor-map"); here they are, little-endian:

=========== ==========================================================================================================
bytes       field
=========== ==========================================================================================================
0 … 7       ``MAGIC``
8 … 15      address
16 … 35     rank, bytes of an element, its type (numbers of ``tensormap.replace``), swizzle, fill; 32 bits each
36 … 39     mode: 0 tiles, 1 im2col
40 … 49     box, innermost axis first, 16 bits each
50 … 54     element strides, 8 bits each
56 … 87     strides of the axes but the innermost, in bytes, 64 bits each
88 … 107    sizes of the axes less one, 32 bits each
108 … 123   im2col: lower corner and upper corner (16 bits each, from the axis W on), channels, pixels
124         swizzle atomicity
=========== ==========================================================================================================

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import LaunchError
from .arrays import DeviceArray, as_dtype

__all__ = ["MAGIC", "MAP_BYTES", "SWIZZLES", "Box", "Layout", "TensorMap", "box_of", "swizzled"]

MAP_BYTES = 128
MAGIC = 0x3150414D_52534E54
#: names of the swizzles in the order of their numbers
SWIZZLES = ("none", "32B", "64B", "128B")
_FILLS = ("zero", "nan")
_ATOMS = ("16B", "32B", "", "64B")
#: type numbers by NumPy's names of kinds and widths; what NumPy has no name for goes as unsigned integers
_TYPES = {
    "uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 9,
    "bfloat16": 10,
}  # fmt: skip
_FORMAT = "<QQ5IIH4H5BxQ3Q5I6hHHBxxx"
_NAN = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}
_FLOATS = (6, 7, 8, 9, 10, 11, 12)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a tensor map; axes innermost first, as the driver has them. ``stride[0]`` is that of axis 1."""

    address: int
    rank: int
    size: int
    type: int
    swizzle: int
    fill: int
    mode: int
    box: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    corners: tuple[int, ...] = (0,) * 6
    channels: int = 0
    pixels: int = 0
    atom: int = 0

    def encode(self) -> bytes:
        """The 128 bytes."""
        return struct.pack(
            _FORMAT, MAGIC, self.address, self.rank, self.size, self.type, self.swizzle, self.fill, self.mode,
            *self.box, *self.steps, *self.strides, *(size - 1 for size in self.shape), *self.corners,
            self.channels, self.pixels, self.atom,
        )  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> Layout | None:
        """``None`` if these bytes are no tensor map."""
        magic, address, rank, size, kind, swizzle, fill, mode, *rest = struct.unpack(_FORMAT, raw)
        if magic != MAGIC or not 1 <= rank <= 5 or size not in (1, 2, 4, 8):
            return None
        return cls(
            address, rank, size, kind, swizzle, fill, mode, tuple(rest[:5]), tuple(rest[5:10]), tuple(rest[10:14]),
            tuple(item + 1 for item in rest[14:19]), tuple(rest[19:25]), rest[25], rest[26], rest[27],
        )  # fmt: skip

    def replaced(self, field: str, ordinal: int, value: int) -> Layout:
        """With a field changed as ``tensormap.replace`` does."""
        if field == "global_address":
            return replace(self, address=value)
        if field == "rank":
            return replace(self, rank=value + 1)
        if field == "elemtype":
            size = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)[value] if value < 13 else 1
            return replace(self, type=value, size=size)
        if field == "swizzle_mode":
            return replace(self, swizzle=value)
        if field == "swizzle_atomicity":
            return replace(self, atom=value)
        if field == "fill_mode":
            return replace(self, fill=value)
        if field == "interleave_layout" or (field == "element_stride" and ordinal == 0):
            return self
        name = {
            "box_dim": "box",
            "global_dim": "shape",
            "global_stride": "strides",
            "element_stride": "steps",
        }[field]
        items = list(getattr(self, name))
        items[min(ordinal, len(items) - 1)] = value
        changed: dict[str, Any] = {name: tuple(items)}
        return replace(self, **changed)

    @property
    def padding(self) -> int:
        """Bits of the elements that lie outside."""
        return _NAN.get(self.size, 0) if self.fill and self.type in _FLOATS else 0


@dataclass(frozen=True, slots=True)
class Box:
    """The elements of one copy, in the order of shared memory: device addresses, whether they lie in the tensor, and the bytes
    of an element."""

    addresses: NDArray[np.uint64]
    inside: NDArray[np.bool_]
    size: int

    @property
    def bytes(self) -> int:
        return self.addresses.size * self.size


def box_of(layout: Layout, start: Sequence[int], mode: str, offsets: Sequence[int] = ()) -> Box:
    """The elements of a box that begins at these coordinates, innermost first; ``offsets`` are those of im2col."""
    if mode.startswith("im2col"):
        places = _pixels(layout, start, [*offsets, 0, 0, 0])
    elif mode in ("tile::gather4", "tile::scatter4"):
        counts = _counts(layout)[:1]
        inner = start[0] + layout.steps[0] * np.arange(counts[0])
        places = [np.tile(inner, 4), np.repeat(np.array(start[1:5]), counts[0])]
    else:
        counts = _counts(layout)
        grid = np.indices(counts[::-1]).reshape(layout.rank, -1)[::-1]
        places = [first + step * index for first, step, index in zip(start, layout.steps, grid)]
    inside = np.ones(places[0].size, np.bool_)
    addresses = np.full(places[0].size, layout.address, np.int64)
    for axis, place in enumerate(places):
        inside &= (place >= 0) & (place < layout.shape[axis])
        addresses += place * (layout.size if axis == 0 else layout.strides[axis - 1])
    return Box(addresses.astype(np.uint64), inside, layout.size)


def _counts(layout: Layout) -> list[int]:
    """Elements of a box along each axis."""
    return [-(-length // step) for length, step in zip(layout.box[: layout.rank], layout.steps)]


def _pixels(layout: Layout, start: Sequence[int], offsets: Sequence[int]) -> list[NDArray[np.int64]]:
    """im2col: pixels of the bounding box one after the other, each with its channels (manual: "Im2col mode")."""
    spatial = layout.rank - 2
    lower = layout.corners[:spatial]
    upper = [layout.shape[axis + 1] + layout.corners[3 + axis] for axis in range(spatial)]
    place = [*start[1 : layout.rank]]
    rows = []
    for _ in range(layout.pixels):
        rows.append([at + off for at, off in zip(place, [*offsets[:spatial], 0])])
        for axis in range(spatial + 1):
            if axis == spatial:
                place[axis] += 1
                break
            place[axis] += layout.steps[axis + 1]
            if place[axis] < upper[axis]:
                break
            place[axis] = lower[axis]
    table = np.array(rows, np.int64).reshape(layout.pixels, spatial + 1)
    channels = start[0] + np.arange(layout.channels)
    return [np.tile(channels, layout.pixels), *(np.repeat(column, layout.channels) for column in table.T)]


def swizzled(layout: Layout, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Addresses of shared memory where the bytes lie that would lie at these without a swizzle."""
    if layout.swizzle == 0:
        return places
    bits = (0, 1, 2, 3)[layout.swizzle]
    unit = 4
    if layout.swizzle == 3 and layout.atom:
        bits, unit = (2, 5) if layout.atom == 1 else (1, 6)
    return places ^ ((places >> 7 & (1 << bits) - 1) << unit)


def _whole(values: object, rank: int, what: str, low: int, high: int) -> tuple[int, ...]:
    given = values if isinstance(values, (tuple, list)) else (values,)
    if len(given) != rank or not all(isinstance(item, (int, np.integer)) for item in given):
        raise LaunchError(
            f"TensorMap: {what} is {values!r}", hint=f"accepted: {rank} integers, one for each axis"
        )
    for item in given:
        if not low <= item <= high:
            raise LaunchError(f"TensorMap: {what} has {int(item):,}", hint=f"accepted: {low} to {high:,}")
    return tuple(int(item) for item in given)


class TensorMap:
    """A tensor map, to be passed for a ``const __grid_constant__ CUtensorMap`` parameter, or copied to device memory as
    ``bytes(map)``.

    ``array`` is a device array, or an address with ``shape`` and ``dtype``. Axes are in NumPy's order, the last one
    innermost: ``box`` gives the elements of a copy along each, ``strides`` (bytes) is for tensors that are not packed,
    ``element_strides`` takes every n-th element along all axes but the last (there the driver ignores it). ``swizzle`` is
    ``none``, ``32B``, ``64B`` or ``128B``, with ``atomicity`` ``16B``, ``32B`` or ``64B``; ``fill`` of what lies outside
    ``zero`` or ``nan``. Raises ``LaunchError`` for what the driver refuses (CUDA driver API, ``cuTensorMapEncodeTiled``).
    """

    layout: Layout
    #: the device array that it was made of, if it was
    array: DeviceArray | None

    def __init__(
        self,
        array: DeviceArray | int,
        box: Sequence[int] | int,
        *,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        swizzle: str = "none",
        atomicity: str = "16B",
        element_strides: Sequence[int] | None = None,
        fill: str = "zero",
    ) -> None:
        base = _tensor(array, shape, strides, dtype, element_strides)
        lengths = _whole(box, base.rank, "box", 1, 256)[::-1]
        made = replace(
            base, box=_five(lengths), swizzle=_name(swizzle, SWIZZLES, "swizzle"), fill=_name(fill, _FILLS, "fill"),
            atom=_name(atomicity, _ATOMS, "atomicity"),
        )  # fmt: skip
        _check_inner(made, lengths[0], "box")
        self.layout = made
        self.array = array if isinstance(array, DeviceArray) else None

    @classmethod
    def im2col(
        cls,
        array: DeviceArray | int,
        channels: int,
        pixels: int,
        *,
        lower: Sequence[int],
        upper: Sequence[int],
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        swizzle: str = "none",
        element_strides: Sequence[int] | None = None,
        fill: str = "zero",
    ) -> TensorMap:
        """A map for im2col copies of a tensor N, (D,) (H,) W, C: ``pixels`` of the bounding box, which begins ``lower`` away from
        the first and ends ``upper`` away from the last element of each axis between N and C, with ``channels`` each
        (``cuTensorMapEncodeIm2col``)."""
        base = _tensor(array, shape, strides, dtype, element_strides)
        if not 3 <= base.rank <= 5:
            raise LaunchError(
                f"TensorMap.im2col: a tensor of {base.rank} axes", hint="accepted: 3, 4 or 5 axes, N … C"
            )
        spatial = base.rank - 2
        corners = [
            _whole(item, spatial, name, -(1 << 16 // spatial - 1), (1 << 16 // spatial - 1) - 1)[::-1]
            for item, name in ((lower, "lower"), (upper, "upper"))
        ]
        (count,), (points,) = _whole(channels, 1, "channels", 1, 256), _whole(pixels, 1, "pixels", 1, 1024)
        made = replace(
            base, mode=1, channels=count, pixels=points, swizzle=_name(swizzle, SWIZZLES, "swizzle"),
            fill=_name(fill, _FILLS, "fill"),
            corners=(*corners[0], *(0,) * (3 - spatial), *corners[1], *(0,) * (3 - spatial)),
        )  # fmt: skip
        _check_inner(made, count, "channels")
        found = cls.__new__(cls)
        found.layout = made
        found.array = array if isinstance(array, DeviceArray) else None
        return found

    def __bytes__(self) -> bytes:
        return self.layout.encode()

    def __repr__(self) -> str:
        return f"<TensorMap {self.layout.shape[: self.layout.rank][::-1]} at {self.layout.address:#x}>"


def _five(items: Sequence[int]) -> tuple[int, ...]:
    return (*items, *(1,) * (5 - len(items)))


def _name(value: object, names: Sequence[str], what: str) -> int:
    if not isinstance(value, str) or value not in names or not value:
        accepted = ", ".join(repr(name) for name in names if name)
        raise LaunchError(f"TensorMap: {what} is {value!r}", hint=f"accepted: {accepted}")
    return names.index(value)


def _tensor(
    array: DeviceArray | int,
    shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    dtype: DTypeLike | None,
    element_strides: Sequence[int] | None,
) -> Layout:
    """What both kinds of map have in common."""
    if isinstance(array, DeviceArray):
        address, shape = array.address, shape if shape is not None else array.shape
        kind: np.dtype[Any] = array.dtype if dtype is None else as_dtype(dtype)
    elif isinstance(array, (int, np.integer)) and shape is not None and dtype is not None:
        address, kind = int(array), as_dtype(dtype)
    else:
        raise LaunchError(
            f"TensorMap of {type(array).__name__}",
            hint="accepted: a device array, or an address with shape= and dtype=",
        )
    rank = len(shape) if isinstance(shape, (tuple, list)) else 0
    if not 1 <= rank <= 5:
        raise LaunchError(f"TensorMap: a tensor of shape {shape!r}", hint="accepted: 1 to 5 axes")
    sizes = _whole(shape, rank, "shape", 1, 1 << 32)[::-1]
    if address % 16:
        raise LaunchError(f"TensorMap: address {address:#x}", hint="it must be a multiple of 16")
    width = kind.itemsize
    number = _TYPES.get(kind.name, {1: 0, 2: 1, 4: 2, 8: 4}.get(width))
    if number is None:
        raise LaunchError(
            f"TensorMap: elements of type {kind}", hint="accepted: elements of 1, 2, 4 or 8 bytes"
        )
    if strides is None:
        steps, packed = [], width
        for size in sizes[:-1]:
            packed *= size
            steps.append(packed)
        inner = width
    else:
        inner, *steps = _whole(strides, rank, "strides", 0, (1 << 40) - 1)[::-1]
    if inner != width:
        raise LaunchError(
            f"TensorMap: a stride of {inner:,} bytes along the last axis",
            hint=f"elements must lie side by side, {width} bytes",
        )
    for step in steps:
        if step % 16 or step >= 1 << 40:
            raise LaunchError(
                f"TensorMap: a stride of {step:,} bytes",
                hint="strides of all axes but the last are multiples of 16, less than 2^40; pad the rows, or give strides=",
            )
    every: Sequence[int] = (1,) * rank
    if element_strides is not None:
        # as in the driver, that of the innermost axis counts only for interleaved layouts
        every = (1, *_whole(element_strides, rank, "element_strides", 1, 8)[-2::-1])
    if isinstance(array, DeviceArray):
        last = address + width * sizes[0] + sum((size - 1) * step for size, step in zip(sizes[1:], steps))
        if last > array.allocation.end:
            raise LaunchError(
                f"TensorMap: {last - address:,} bytes from {array.name!r} on, which has {array.allocation.end - address:,}",
                hint="shape and strides must lie inside the array",
            )
    return Layout(
        address,
        rank,
        width,
        number,
        0,
        0,
        0,
        (1,) * 5,
        _five(every),
        (*steps, *(0,) * (4 - len(steps))),
        _five(sizes),
    )


def _check_inner(made: Layout, length: int, what: str) -> None:
    inner = length * made.size
    if inner % 16:
        raise LaunchError(
            f"TensorMap: {what} has {inner:,} bytes along the last axis", hint="they must be a multiple of 16"
        )
    most = 16 << made.swizzle
    if made.swizzle and inner > most:
        raise LaunchError(
            f"TensorMap: {what} has {inner:,} bytes along the last axis",
            hint=f"swizzle {SWIZZLES[made.swizzle]!r} takes at most {most}",
        )
    if made.fill and made.type not in _FLOATS:
        raise LaunchError(
            "TensorMap: fill 'nan' of integers", hint="accepted for floating-point elements; else 'zero'"
        )
