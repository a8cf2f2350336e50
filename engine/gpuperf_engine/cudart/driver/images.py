"""Arrays, texture and surface objects, and tensor maps, from the descriptors of the driver API."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import replace

import numpy as np

from ...errors import LaunchError
from ...isa.tensor_maps import ELEMENTS
from ...memory.tensor_descriptions import TensorMap
from ...memory.tensor_maps import Layout
from ..arrays import (
    Channels,
    CudaArray,
    Mipmapped,
    Resource,
    Texture,
    cudaCreateSurfaceObject,
    cudaCreateTextureObject,
    make_array,
    make_mipmapped,
)  # fmt: skip
from ..calls import function
from ..codes import CudaError
from ..state import State

__all__ = ["cuTensorMapEncodeTiled"]

#: ``CUarray_format``: bits, and the kind of ``cudaChannelFormatKind`` (signed, unsigned, float)
_FORMATS = {1: (8, 1), 2: (16, 1), 3: (32, 1), 8: (8, 0), 9: (16, 0), 10: (32, 0), 16: (16, 2), 32: (32, 2)}
_AS_INTEGER, _NORMALIZED, _SEAMLESS = 1, 2, 0x40
_ARRAY, _MIPMAPPED = 0, 1


class _Descriptor(Structure):
    """``CUDA_ARRAY_DESCRIPTOR``."""

    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


class _Descriptor3D(Structure):
    """``CUDA_ARRAY3D_DESCRIPTOR``."""

    _fields_ = [
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
        ("flags", c_uint),
    ]  # fmt: skip


class _Resource(Structure):
    """``CUDA_RESOURCE_DESC``, with the fields of linear memory (``width`` in bytes) and pitched memory; arrays have their handle in
    ``address``."""

    _fields_ = [
        ("kind", c_int), ("address", c_void_p), ("format", c_int), ("channels", c_uint), ("width", c_size_t),
        ("height", c_size_t), ("pitch", c_size_t),
    ]  # fmt: skip


class _Texture(Structure):
    """``CUDA_TEXTURE_DESC``."""

    _fields_ = [
        ("modes", c_int * 3), ("filter", c_int), ("flags", c_uint), ("anisotropy", c_uint), ("level_filter", c_int),
        ("bias", c_float), ("least", c_float), ("most", c_float), ("border", c_float * 4),
    ]  # fmt: skip


def _channels(kind: int, count: int) -> Channels:
    if kind not in _FORMATS:
        raise CudaError(801, f"arrays of CUarray_format {kind:#x} are not supported")
    bits, values = _FORMATS[kind]
    return Channels((c_int * 4)(*[bits] * count), values)


def _kind(channels: Channels) -> int:
    return next(number for number, known in _FORMATS.items() if known == (channels.bits[0], channels.kind))


@function(c_void_p, c_void_p)
def cuArrayCreate(state: State, out: int, given: int) -> None:
    asked = _Descriptor.from_address(given)
    described = _channels(asked.format, asked.channels)
    make_array(state, out, ctypes.addressof(described), asked.width, asked.height, 0, 0)


@function(c_void_p, c_void_p)
def cuArray3DCreate(state: State, out: int, given: int) -> None:
    asked = _Descriptor3D.from_address(given)
    described = _channels(asked.format, asked.channels)
    make_array(state, out, ctypes.addressof(described), asked.width, asked.height, asked.depth, asked.flags)


@function(c_void_p, c_void_p, c_uint)
def cuMipmappedArrayCreate(state: State, out: int, given: int, count: int) -> None:
    asked = _Descriptor3D.from_address(given)
    described = _channels(asked.format, asked.channels)
    extent = asked.width, asked.height, asked.depth
    make_mipmapped(state, out, ctypes.addressof(described), extent, count, asked.flags)


@function(c_void_p, c_void_p)
def cuArrayGetDescriptor(state: State, out: int, array: int) -> None:
    known, result = state.of(array, CudaArray), _Descriptor.from_address(out)
    result.width, result.height, result.channels = known.width, known.height, known.channels
    result.format = _kind(Channels.from_buffer_copy(known.described))


@function(c_void_p, c_void_p)
def cuArray3DGetDescriptor(state: State, out: int, array: int) -> None:
    known, result = state.of(array, CudaArray), _Descriptor3D.from_address(out)
    result.width, result.height, result.depth = known.width, known.height, known.depth
    result.channels, result.flags = known.channels, known.flags
    result.format = _kind(Channels.from_buffer_copy(known.described))


# -- textures and surfaces ------------------------------------------------------------------------------------------------


@function(c_void_p, c_void_p, c_void_p, c_void_p)
def cuTexObjectCreate(state: State, out: int, resource: int, texture: int, view: int) -> None:
    given, asked = _Resource.from_address(resource), _Texture.from_address(texture)
    source = Resource(given.kind, given.address)
    if given.kind in (_ARRAY, _MIPMAPPED):
        mipmapped = given.kind == _MIPMAPPED
        array = state.of(given.address, Mipmapped).levels[0] if mipmapped else given.address
        channels = Channels.from_buffer_copy(state.of(array, CudaArray).described)
    else:
        channels = _channels(given.format, given.channels)
        source.channels = channels
        source.width, source.height, source.pitch = given.width, given.height, given.pitch
    integer = channels.kind != 2 and channels.bits[0] < 32
    sampler = Texture(
        modes=asked.modes, filter=asked.filter, border=asked.border,
        read=int(integer and not asked.flags & _AS_INTEGER), normalized=int(bool(asked.flags & _NORMALIZED)),
        level_filter=asked.level_filter, level_bias=asked.bias, least=asked.least, most=asked.most,
        seamless=asked.flags & _SEAMLESS,
    )  # fmt: skip
    cudaCreateTextureObject(state, out, ctypes.addressof(source), ctypes.addressof(sampler), 0)


@function(c_void_p, c_void_p)
def cuSurfObjectCreate(state: State, out: int, resource: int) -> None:
    given = _Resource.from_address(resource)
    source = Resource(given.kind, given.address)
    cudaCreateSurfaceObject(state, out, ctypes.addressof(source))


# -- tensor maps ----------------------------------------------------------------------------------------------------------

#: ``CUtensorMapDataType``
_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip
#: ``CUtensorMapSwizzle``: swizzle and atomicity
_SWIZZLES = (
    ("none", "16B"), ("32B", "16B"), ("64B", "16B"), ("128B", "16B"), ("128B", "32B"), ("128B", "32B_FLIP_8B"),
    ("128B", "64B"),
)  # fmt: skip
#: ``CUtensorMapInterleave``
_INTERLEAVES = ("none", "16B", "32B")


def _described(
    kind: int,
    rank: int,
    shape: int,
    strides: int | None,
    steps: int,
    interleave: int,
    swizzle: int,
    fill: int,
) -> dict[str, object]:
    """The arguments of ``TensorMap`` that all kinds of maps have. In the driver API, axes are innermost first, and the first has no
    stride."""
    try:
        name, (pattern, atoms) = _TYPES[kind], _SWIZZLES[swizzle]
    except IndexError:
        raise CudaError(1, f"data type {kind} or swizzle {swizzle} of a tensor map is not known") from None
    if interleave:
        raise CudaError(801, f"tensor maps with interleave {_INTERLEAVES[interleave]} are not supported")
    if not 1 <= rank <= 5:
        raise CudaError(1, f"a tensor map of {rank} axes")
    size = next(element.size for element in ELEMENTS if element.driver == name)
    outer = (c_ulonglong * (rank - 1)).from_address(strides) if strides and rank > 1 else ()
    packed = name.startswith("16U")
    return {
        "shape": list((c_ulonglong * rank).from_address(shape))[::-1],
        "strides": [*list(outer)[::-1], 1 if packed else size],
        "dtype": np.dtype("u1" if packed else f"u{size}"),
        "data_type": name,
        "swizzle": pattern,
        "atomicity": atoms,
        "element_strides": list((c_uint * rank).from_address(steps))[::-1] if steps else None,
        "fill": "nan" if fill else "zero",
    }


@function(c_void_p, c_int, c_uint, *[c_void_p] * 5, c_int, c_int, c_int, c_int)
def cuTensorMapEncodeTiled(
    state: State, out: int, kind: int, rank: int, address: int, shape: int, strides: int, box: int, steps: int,
    interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    described = _described(kind, rank, shape, strides, steps, interleave, swizzle, fill)
    lengths = list((c_uint * rank).from_address(box))[::-1]
    try:
        made = bytes(TensorMap(address or 0, lengths, **described))  # type: ignore[arg-type]
    except LaunchError as error:
        raise CudaError(1, str(error)) from None
    ctypes.memmove(out, made, len(made))


@function(c_void_p, c_int, c_uint, *[c_void_p] * 5, c_uint, c_uint, c_void_p, c_int, c_int, c_int, c_int)
def cuTensorMapEncodeIm2col(
    state: State, out: int, kind: int, rank: int, address: int, shape: int, strides: int, lower: int, upper: int,
    channels: int, pixels: int, steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    described = _described(kind, rank, shape, strides, steps, interleave, swizzle, fill)
    spatial = max(0, rank - 2)
    corners = {
        name: list((c_int * spatial).from_address(place))[::-1]
        for name, place in (("lower", lower), ("upper", upper))
    }
    try:
        made = bytes(TensorMap.im2col(address or 0, channels, pixels, **corners, **described))  # type: ignore[arg-type]
    except LaunchError as error:
        raise CudaError(1, str(error)) from None
    ctypes.memmove(out, made, len(made))


@function(c_void_p, c_void_p)
def cuTensorMapReplaceAddress(state: State, given: int, address: int) -> None:
    layout = Layout.decode(ctypes.string_at(given, 128))
    if layout is None:
        raise CudaError(1, f"what is at {given:#x} is not a tensor map")
    ctypes.memmove(given, replace(layout, address=address).encode(), 128)
