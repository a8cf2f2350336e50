"""Memory by address: fills, copies, and pointer attributes. Allocations are those of the runtime."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int, c_size_t, c_uint, c_ulonglong, c_ushort, c_void_p

from ...device.rows import Rows
from ..arrays import CudaArray
from ..calls import function
from ..codes import CudaError
from ..memory import Side, copy, copy_later, copy_rows, cudaMallocPitch, fill_rows
from ..memory import fill as fill_bytes
from ..state import Kind, State

__all__ = ["Copy2D", "Copy3D"]

_ANY = 4
_HOST, _DEVICE, _ARRAY, _UNIFIED = 1, 2, 3, 4
_MANAGED = 3
#: ``CUpointer_attribute``
_CONTEXT, _TYPE, _DEVICE_POINTER, _HOST_POINTER, _BUFFER_ID, _IS_MANAGED, _ORDINAL = 1, 2, 3, 4, 7, 8, 9
_RANGE_START, _RANGE_SIZE, _MAPPED = 11, 12, 13


class _Side2D(Structure):
    _fields_ = [
        ("x", c_size_t), ("y", c_size_t), ("kind", c_uint), ("host", c_void_p), ("device", c_void_p),
        ("array", c_void_p), ("pitch", c_size_t),
    ]  # fmt: skip


class _Side3D(Structure):
    _fields_ = [
        ("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("level", c_size_t), ("kind", c_uint), ("host", c_void_p),
        ("device", c_void_p), ("array", c_void_p), ("reserved", c_void_p), ("pitch", c_size_t), ("height", c_size_t),
    ]  # fmt: skip


class Copy2D(Structure):
    """``CUDA_MEMCPY2D``; width in bytes."""

    _fields_ = [("source", _Side2D), ("target", _Side2D), ("width", c_size_t), ("height", c_size_t)]


class Copy3D(Structure):
    """``CUDA_MEMCPY3D``, and ``CUDA_MEMCPY3D_PEER``, which has contexts in place of reserved words."""

    _fields_ = [
        ("source", _Side3D), ("target", _Side3D), ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    ]  # fmt: skip


def _place(state: State, side: _Side2D | _Side3D, width: int) -> Side:
    """The address, pitch and bytes from one slice to the next of one side."""
    z = getattr(side, "z", 0)
    if side.kind == _ARRAY:
        known = state.of(side.array, CudaArray)
        return Side(known.address(side.x, side.y, z), known.pitch, known.pitch * max(1, known.height))
    start = (side.host if side.kind == _HOST else side.device) or 0
    pitch = side.pitch or width
    plane = pitch * getattr(side, "height", 0)
    return Side(start + side.x + side.y * pitch + z * plane, pitch, plane)


def copy_between(state: State, asked: Copy2D | Copy3D) -> None:
    to, by = (_place(state, side, asked.width) for side in (asked.target, asked.source))
    depth = max(1, getattr(asked, "depth", 1))
    copy_rows(state, to, by, asked.width, max(1, asked.height), _ANY, depth)


@function(c_void_p, also=("cuMemcpy2DUnaligned",))
def cuMemcpy2D(state: State, given: int) -> None:
    copy_between(state, Copy2D.from_address(given))


@function(c_void_p, c_void_p)
def cuMemcpy2DAsync(state: State, given: int, stream: int) -> None:
    kept = Copy2D.from_buffer_copy(ctypes.string_at(given, ctypes.sizeof(Copy2D)))
    state.enqueue(stream, lambda: copy_between(state, kept))


@function(c_void_p, also=("cuMemcpy3DPeer",))
def cuMemcpy3D(state: State, given: int) -> None:
    copy_between(state, Copy3D.from_address(given))


@function(c_void_p, c_void_p, also=("cuMemcpy3DPeerAsync",))
def cuMemcpy3DAsync(state: State, given: int, stream: int) -> None:
    kept = Copy3D.from_buffer_copy(ctypes.string_at(given, ctypes.sizeof(Copy3D)))
    state.enqueue(stream, lambda: copy_between(state, kept))


@function(c_void_p, c_void_p, c_size_t, also=("cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD"))
def cuMemcpy(state: State, target: int, source: int, size: int) -> None:
    copy(state, target, source, size, _ANY)


@function(
    c_void_p,
    c_void_p,
    c_size_t,
    c_void_p,
    also=("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"),
)
def cuMemcpyAsync(state: State, target: int, source: int, size: int, stream: int) -> None:
    copy_later(state, target, source, size, _ANY, stream)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
def cuMemcpyPeer(state: State, target: int, _: int, source: int, __: int, size: int) -> None:
    copy(state, target, source, size, _ANY)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cuMemcpyPeerAsync(
    state: State, target: int, _: int, source: int, __: int, size: int, stream: int
) -> None:
    state.enqueue(stream, lambda: copy(state, target, source, size, _ANY))


def _element(state: State, array: int, offset: int) -> int:
    address: int = state.of(array, CudaArray).address(offset)
    return address


@function(c_void_p, c_size_t, c_void_p, c_size_t, also=("cuMemcpyDtoA",))
def cuMemcpyHtoA(state: State, array: int, offset: int, source: int, size: int) -> None:
    copy(state, _element(state, array, offset), source, size, _ANY)


@function(c_void_p, c_void_p, c_size_t, c_size_t, also=("cuMemcpyAtoD",))
def cuMemcpyAtoH(state: State, target: int, array: int, offset: int, size: int) -> None:
    copy(state, target, _element(state, array, offset), size, _ANY)


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t)
def cuMemcpyAtoA(state: State, target: int, to: int, source: int, by: int, size: int) -> None:
    copy(state, _element(state, target, to), _element(state, source, by), size, _ANY)


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_void_p)
def cuMemcpyHtoAAsync(state: State, array: int, offset: int, source: int, size: int, stream: int) -> None:
    state.enqueue(stream, lambda: cuMemcpyHtoA(state, array, offset, source, size))


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)
def cuMemcpyAtoHAsync(state: State, target: int, array: int, offset: int, size: int, stream: int) -> None:
    state.enqueue(stream, lambda: cuMemcpyAtoH(state, target, array, offset, size))


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_uint)
def cuMemAllocPitch(state: State, out: int, pitch: int, width: int, height: int, element: int) -> None:
    cudaMallocPitch(state, out, pitch, width, height)


# -- fills ----------------------------------------------------------------------------------------------------------------


def _fill(state: State, target: int, pitch: int, value: int, element: int, width: int, height: int) -> None:
    """Fill rows of ``width`` elements of ``element`` bytes."""
    raw = (value & (1 << 8 * element) - 1).to_bytes(element, "little")
    fill_rows(state, target, raw, Rows(width * element, height, 1, pitch))


def _fills(element: int, value: type) -> None:
    bits = 8 * element

    def fill(state: State, target: int, value: int, count: int) -> None:
        _fill(state, target or 0, 0, value, element, count, 1)

    def fill_later(state: State, target: int, value: int, count: int, stream: int) -> None:
        state.enqueue(stream, lambda: fill(state, target, value, count), Kind.MEMSET)

    def rows(state: State, target: int, pitch: int, value: int, width: int, height: int) -> None:
        _fill(state, target or 0, pitch, value, element, width, height)

    def rows_later(
        state: State, target: int, pitch: int, value: int, width: int, height: int, stream: int
    ) -> None:
        state.enqueue(stream, lambda: rows(state, target, pitch, value, width, height), Kind.MEMSET)

    for name, implementation, types in (
        (f"cuMemsetD{bits}", fill, (c_void_p, value, c_size_t)),
        (f"cuMemsetD{bits}Async", fill_later, (c_void_p, value, c_size_t, c_void_p)),
        (f"cuMemsetD2D{bits}", rows, (c_void_p, c_size_t, value, c_size_t, c_size_t)),
        (f"cuMemsetD2D{bits}Async", rows_later, (c_void_p, c_size_t, value, c_size_t, c_size_t, c_void_p)),
    ):
        implementation.__name__ = name
        function(*types)(implementation)


_fills(1, ctypes.c_ubyte)
_fills(2, c_ushort)
_fills(4, c_uint)


# -- what is known of an address ------------------------------------------------------------------------------------------


@function(c_void_p, c_void_p, c_void_p)
def cuMemGetAddressRange(state: State, base: int | None, size: int | None, address: int) -> None:
    array = state.device.array_at(address) if address else None
    if array is None:
        raise CudaError(500, f"{address or 0:#x} is not device memory")
    if base:
        c_void_p.from_address(base).value = array.address
    if size:
        c_size_t.from_address(size).value = array.nbytes


def _pointer(state: State, out: int, attribute: int, address: int | None) -> bool:
    """Write an attribute of an address; returns whether the attribute exists."""
    array = state.device.array_at(address) if address else None
    if array is None:
        return False
    kind = (
        _HOST
        if ("host", array.address) in state.objects
        else state.objects.get(("memory", array.address), _DEVICE)
    )
    if attribute in (_TYPE, _ORDINAL):
        c_uint.from_address(out).value = 0 if attribute == _ORDINAL else _HOST if kind == _HOST else _DEVICE
    elif attribute in (_IS_MANAGED, _MAPPED):
        ctypes.c_ubyte.from_address(out).value = int(attribute == _MAPPED or kind == _MANAGED)
    elif attribute in (_DEVICE_POINTER, _HOST_POINTER):
        if attribute == _HOST_POINTER and kind == _DEVICE:
            return False
        c_void_p.from_address(out).value = address
    elif attribute == _RANGE_SIZE:
        c_size_t.from_address(out).value = array.nbytes
    elif attribute in (_RANGE_START, _BUFFER_ID):
        c_ulonglong.from_address(out).value = array.address
    elif attribute == _CONTEXT:
        known = state.objects.get(("context", array.address)) or state.objects.get("primary")
        c_void_p.from_address(out).value = known
    else:
        c_uint.from_address(out).value = 0
    return True


@function(c_void_p, c_int, c_void_p)
def cuPointerGetAttribute(state: State, out: int, attribute: int, address: int) -> None:
    if not _pointer(state, out, attribute, address):
        raise CudaError(1)


@function(c_uint, c_void_p, c_void_p, c_void_p)
def cuPointerGetAttributes(state: State, count: int, attributes: int, out: int, address: int) -> None:
    """Missing attributes are written as 0 without an error; missing device ordinals as -2."""
    for attribute, place in zip(
        (c_int * count).from_address(attributes), (c_void_p * count).from_address(out)
    ):
        if not _pointer(state, place or 0, attribute, address):
            wide = attribute in (
                _CONTEXT,
                _DEVICE_POINTER,
                _HOST_POINTER,
                _BUFFER_ID,
                _RANGE_START,
                _RANGE_SIZE,
            )
            if wide:
                c_ulonglong.from_address(place or 0).value = 0
            elif attribute in (_IS_MANAGED, _MAPPED):
                ctypes.c_ubyte.from_address(place or 0).value = 0
            else:
                c_int.from_address(place or 0).value = -2 if attribute == _ORDINAL else 0


@function(c_void_p, c_int, c_void_p)
def cuPointerSetAttribute(state: State, value: int, attribute: int, address: int) -> None:
    """Accepted without effect: copies are synchronous."""


@function(c_void_p, c_void_p, c_uint, c_uint)
def cuStreamWriteValue32(state: State, stream: int, address: int, value: int, flags: int) -> None:
    state.enqueue(
        stream, lambda: fill_bytes(state, address, value.to_bytes(4, "little"), 1), Kind.MEMORY_OPERATION
    )


@function(c_void_p, c_void_p, c_ulonglong, c_uint)
def cuStreamWriteValue64(state: State, stream: int, address: int, value: int, flags: int) -> None:
    state.enqueue(
        stream, lambda: fill_bytes(state, address, value.to_bytes(8, "little"), 1), Kind.MEMORY_OPERATION
    )
