"""CUDA arrays, textures and surfaces. An array is dense: rows, then slices or layers, without gaps."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_float, c_int, c_longlong, c_size_t, c_uint, c_void_p
from dataclasses import dataclass

import numpy as np

from ..errors import LaunchError
from ..isa.images.image import FACES, FIELDS
from ..memory.arrays import DeviceArray
from ..memory.images import levels_of, surface_row, texture_row
from .calls import function
from .codes import CudaError
from .memory import Extent, Pitched, Side, copy, copy_rows
from .state import State

__all__ = [
    "Channels",
    "Copy3D",
    "CudaArray",
    "Mipmapped",
    "Resource",
    "Texture",
    "cudaMemcpy3D",
    "make_array",
    "make_mipmapped",
]

_KINDS = {0: "i", 1: "u", 2: "f"}
_LAYERED, _CUBEMAP, _SPARSE, _DEFERRED = 1, 4, 0x40, 0x80
_MODES = ("wrap", "clamp", "mirror", "border")
_ARRAY, _MIPMAPPED, _LINEAR, _PITCH2D = range(4)


class Channels(Structure):
    """``cudaChannelFormatDesc``: bits of up to four channels, and the kind of their values."""

    _fields_ = [("bits", c_int * 4), ("kind", c_int)]


class Resource(Structure):
    """``cudaResourceDesc``, with the fields of linear and pitched memory; arrays have their handle in ``address``."""

    _fields_ = [
        ("kind", c_int),
        ("address", c_void_p),
        ("channels", Channels),
        ("width", c_size_t),
        ("height", c_size_t),
        ("pitch", c_size_t),
    ]


class Texture(Structure):
    """``cudaTextureDesc``."""

    _fields_ = [
        ("modes", c_int * 3),
        ("filter", c_int),
        ("read", c_int),
        ("srgb", c_int),
        ("border", c_float * 4),
        ("normalized", c_int),
        ("anisotropy", c_uint),
        ("level_filter", c_int),
        ("level_bias", c_float),
        ("least", c_float),
        ("most", c_float),
        ("no_trilinear", c_int),
        ("seamless", c_int),
    ]


class Copy3D(Structure):
    """``cudaMemcpy3DParms``."""

    _fields_ = [
        ("source_array", c_void_p),
        ("source_at", Extent),
        ("source", Pitched),
        ("target_array", c_void_p),
        ("target_at", Extent),
        ("target", Pitched),
        ("extent", Extent),
        ("kind", c_int),
    ]


@dataclass
class CudaArray:
    """A CUDA array. ``height`` and ``depth`` are 0 for absent dimensions; ``flags`` as given by the program."""

    memory: DeviceArray
    channels: int
    width: int
    height: int
    depth: int
    flags: int
    described: bytes

    @property
    def texel(self) -> int:
        """Bytes of a texel."""
        return self.channels * self.memory.dtype.itemsize

    @property
    def pitch(self) -> int:
        """Bytes of a row."""
        return self.width * self.texel

    def address(self, byte: int = 0, row: int = 0, layer: int = 0) -> int:
        """The device address of a byte of a row."""
        return self.memory.address + byte + self.pitch * (row + layer * max(1, self.height))


@dataclass
class Mipmapped:
    """A mipmapped array: the handles of its levels of detail, the finest first."""

    levels: list[int]


def _format(described: Channels) -> tuple[np.dtype[np.generic], int]:
    """The type of the channels, and their number."""
    bits = [width for width in described.bits if width]
    if (
        described.kind not in _KINDS
        or not bits
        or len(set(bits)) > 1
        or bits[0] not in (8, 16, 32)
        or len(bits) == 3
    ):
        raise CudaError(
            801, f"channels of {list(described.bits)} bits, kind {described.kind}, are not supported"
        )
    return np.dtype(f"{_KINDS[described.kind]}{bits[0] // 8}"), len(bits)


def make_array(
    state: State, out: int, described: int, width: int, height: int, depth: int, flags: int
) -> None:
    """Create the array of ``cudaMallocArray`` and write its handle to ``out``; ``described`` is the address of its
    ``cudaChannelFormatDesc``."""
    if flags & (_SPARSE | _DEFERRED):
        raise CudaError(
            801,
            "arrays whose memory is mapped later (cudaArraySparse, cudaArrayDeferredMapping) are not supported, as "
            "cudaDevAttrSparseCudaArraySupported and cudaDevAttrDeferredMappingCudaArraySupported say; accepted: other arrays, "
            "all of whose texels are resident",
        )
    if flags & _CUBEMAP and (width != height or (depth % FACES if flags & _LAYERED else depth - FACES)):
        raise CudaError(
            1,
            f"a cube map of {width} x {height} x {depth} texels; accepted: faces as wide as high, "
            f"{f'a multiple of {FACES}' if flags & _LAYERED else FACES} of them",
        )
    dtype, channels = _format(Channels.from_address(described))
    extent = [size for size in (depth, height, width) if size]
    shape = (*extent, channels) if channels > 1 else tuple(extent)
    array = CudaArray(
        state.device.zeros(shape, dtype),
        channels,
        width,
        height,
        depth,
        flags,
        ctypes.string_at(described, 20),
    )
    c_void_p.from_address(out).value = state.new(array)


@function(c_void_p, c_int, c_int, c_int, c_int, c_int, result=c_void_p, plain=False)
def cudaCreateChannelDesc(state: State, out: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    """The structure is returned in memory at the address in the first argument (System V ABI of x86-64)."""
    result = Channels.from_address(out)
    result.bits[:] = [x, y, z, w]
    result.kind = kind
    return out


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_uint)
def cudaMallocArray(state: State, out: int, described: int, width: int, height: int, flags: int) -> None:
    make_array(state, out, described, width, height, 0, flags)


@function(c_void_p, c_void_p, Extent, c_uint)
def cudaMalloc3DArray(state: State, out: int, described: int, extent: Extent, flags: int) -> None:
    make_array(state, out, described, extent.width, extent.height, extent.depth, flags)


@function(c_void_p)
def cudaFreeArray(state: State, array: int | None) -> None:
    if array:
        state.device.free(state.of(array, CudaArray).memory)
        del state.objects[array]


@function(c_void_p, c_void_p, Extent, c_uint, c_uint)
def cudaMallocMipmappedArray(
    state: State, out: int, described: int, extent: Extent, count: int, flags: int
) -> None:
    make_mipmapped(state, out, described, (extent.width, extent.height, extent.depth), count, flags)


def make_mipmapped(
    state: State, out: int, described: int, extent: tuple[int, int, int], count: int, flags: int
) -> None:
    """Create a mipmapped array of ``count`` levels of detail, or of as many as its size allows; parameters as in ``make_array``."""
    width, height, depth = extent
    planes = 1 if flags & (_LAYERED | _CUBEMAP) else depth
    most = max(width, height, planes).bit_length()
    made, handle = Mipmapped([]), c_void_p()
    for level in range(max(1, min(count, most))):
        halved = [max(1, size >> level) if size else 0 for size in (width, height, planes)]
        slices = halved[2] if planes == depth else depth
        make_array(state, ctypes.addressof(handle), described, halved[0], halved[1], slices, flags)
        made.levels.append(handle.value or 0)
    c_void_p.from_address(out).value = state.new(made)


@function(c_void_p, c_void_p, c_uint, also=("cuMipmappedArrayGetLevel",))
def cudaGetMipmappedArrayLevel(state: State, out: int, array: int, level: int) -> None:
    levels = state.of(array, Mipmapped).levels
    if level >= len(levels):
        raise CudaError(1, f"level {level} of an array of {len(levels)} levels")
    c_void_p.from_address(out).value = levels[level]


@function(c_void_p, also=("cuMipmappedArrayDestroy",))
def cudaFreeMipmappedArray(state: State, array: int | None) -> None:
    if array:
        for level in state.of(array, Mipmapped).levels:
            cudaFreeArray(state, level)
        del state.objects[array]


@function(c_void_p, c_void_p)
def cudaGetChannelDesc(state: State, out: int, array: int) -> None:
    ctypes.memmove(out, state.of(array, CudaArray).described, 20)


@function(c_void_p, c_void_p, c_void_p, c_void_p)
def cudaArrayGetInfo(state: State, channels: int, extent: int, flags: int, array: int) -> None:
    known = state.of(array, CudaArray)
    if channels:
        ctypes.memmove(channels, known.described, 20)
    if extent:
        (c_size_t * 3).from_address(extent)[:] = [known.width, known.height, known.depth]
    if flags:
        c_uint.from_address(flags).value = known.flags


# -- copies ---------------------------------------------------------------------------------------------------------------


@function(c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_int)
def cudaMemcpyToArray(state: State, array: int, x: int, y: int, source: int, size: int, kind: int) -> None:
    copy(state, state.of(array, CudaArray).address(x, y), source, size, kind)


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_int)
def cudaMemcpyFromArray(state: State, target: int, array: int, x: int, y: int, size: int, kind: int) -> None:
    copy(state, target, state.of(array, CudaArray).address(x, y), size, kind)


@function(c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int)
def cudaMemcpy2DToArray(
    state: State, array: int, x: int, y: int, source: int, pitch: int, width: int, height: int, kind: int
) -> None:
    known = state.of(array, CudaArray)
    copy_rows(state, Side(known.address(x, y), known.pitch), Side(source, pitch), width, height, kind)


@function(c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpy2DToArrayAsync(state: State, *arguments: int) -> None:
    *given, stream = arguments
    state.enqueue(stream, lambda: cudaMemcpy2DToArray(state, *given))


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_int)
def cudaMemcpy2DFromArray(
    state: State, target: int, pitch: int, array: int, x: int, y: int, width: int, height: int, kind: int
) -> None:
    known = state.of(array, CudaArray)
    copy_rows(state, Side(target, pitch), Side(known.address(x, y), known.pitch), width, height, kind)


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpy2DFromArrayAsync(state: State, *arguments: int) -> None:
    *given, stream = arguments
    state.enqueue(stream, lambda: cudaMemcpy2DFromArray(state, *given))


def _side(state: State, array: int | None, at: Extent, memory: Pitched) -> tuple[int, int, int, int]:
    """One side of a copy: its first address, its pitch, the bytes from one slice to the next, and the bytes of a texel (0 for
    memory)."""
    if array:
        known = state.of(array, CudaArray)
        return (
            known.address(at.width * known.texel, at.height, at.depth),
            known.pitch,
            known.pitch * max(1, known.height),
            known.texel,
        )
    plane = memory.pitch * memory.ysize
    return (memory.ptr or 0) + at.width + at.height * memory.pitch + at.depth * plane, memory.pitch, plane, 0


@function(c_void_p)
def cudaMemcpy3D(state: State, given: int) -> None:
    asked = Copy3D.from_address(given)
    to, target_pitch, target_plane, into = _side(state, asked.target_array, asked.target_at, asked.target)
    by, source_pitch, source_plane, out = _side(state, asked.source_array, asked.source_at, asked.source)
    width = asked.extent.width * (into or out or 1)
    target, source = Side(to, target_pitch, target_plane), Side(by, source_pitch, source_plane)
    height, depth = max(1, asked.extent.height), max(1, asked.extent.depth)
    copy_rows(state, target, source, width, height, asked.kind, depth)


@function(c_void_p, c_void_p)
def cudaMemcpy3DAsync(state: State, given: int, stream: int) -> None:
    kept = Copy3D.from_buffer_copy(ctypes.string_at(given, ctypes.sizeof(Copy3D)))
    state.enqueue(stream, lambda: cudaMemcpy3D(state, ctypes.addressof(kept)))


# -- textures and surfaces ------------------------------------------------------------------------------------------------


def _view(state: State, resource: Resource) -> tuple[DeviceArray, int]:
    """The array in linear or pitched memory that a resource describes, and its number of channels."""
    dtype, channels = _format(resource.channels)
    holder = state.device.array_at(resource.address or 0)
    if holder is None:
        raise CudaError(1, f"a texture of {resource.address or 0:#x}, which is not device memory")
    texel = channels * dtype.itemsize
    # for linear memory "width" is its size in bytes
    shape = (resource.width // texel,) if resource.kind == _LINEAR else (resource.height, resource.width)
    shape = (*shape, channels) if channels > 1 else shape
    return DeviceArray(
        state.device, holder.allocation, resource.address - holder.address, shape, dtype
    ), channels


@function(c_void_p, c_void_p, c_void_p, c_void_p)
def cudaCreateTextureObject(state: State, out: int, resource: int, texture: int, view: int) -> None:
    given, asked = Resource.from_address(resource), Texture.from_address(texture)
    layered = cube = False
    if given.kind in (_ARRAY, _MIPMAPPED):
        handles = [given.address] if given.kind == _ARRAY else state.of(given.address, Mipmapped).levels
        arrays = [state.of(handle, CudaArray) for handle in handles]
        levels, channels, flags = [one.memory for one in arrays], arrays[0].channels, arrays[0].flags
        layered, cube = bool(flags & _LAYERED), bool(flags & _CUBEMAP)
    else:
        memory, channels = _view(state, given)
        levels = [memory]
    linear = given.kind == _LINEAR
    if cube and asked.seamless and asked.filter:
        raise CudaError(
            801,
            "cube maps are not filtered across the edges of their faces; accepted: seamlessCubemap 0, or cudaFilterModePoint",
        )
    # coordinates that are not normalized are clamped in the modes wrap and mirror
    modes = [_MODES[mode] if asked.normalized or cube or mode in (1, 3) else "clamp" for mode in asked.modes]
    try:
        rows = [
            texture_row(
                level, channels, layered=layered, cube=cube, normalized=bool(asked.normalized) and not linear,
                read="normalized" if asked.read else "element",
                filter="linear" if asked.filter and not linear else "nearest",
                address="clamp" if linear else modes, border=list(asked.border), linear_memory=linear,
                level_filter="linear" if asked.level_filter and len(levels) > 1 else "nearest",
                level_bias=asked.level_bias, level_range=(asked.least, asked.most),
            )
            for level in levels
        ]  # fmt: skip
        levels_of(rows)
    except LaunchError as error:
        raise CudaError(1, str(error)) from None
    if given.kind == _PITCH2D:
        rows[0][FIELDS["row"]] = given.pitch
    allocations = [level.allocation for level in levels]
    c_longlong.from_address(out).value = state.device.memory.images.add_levels(rows, allocations)


@function(c_void_p, c_void_p)
def cudaCreateSurfaceObject(state: State, out: int, resource: int) -> None:
    given = Resource.from_address(resource)
    if given.kind != _ARRAY:
        raise CudaError(1, "a surface is made of an array")
    known = state.of(given.address, CudaArray)
    try:
        row = surface_row(known.memory, known.channels, layered=bool(known.flags & (_LAYERED | _CUBEMAP)))
    except LaunchError as error:
        raise CudaError(1, str(error)) from None
    c_longlong.from_address(out).value = state.device.memory.images.add(row, known.memory.allocation)


@function(c_longlong, also=("cudaDestroySurfaceObject",))
def cudaDestroyTextureObject(state: State, handle: int) -> None:
    """Handles are not reused."""
