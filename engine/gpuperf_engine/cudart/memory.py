"""Memory: allocations, copies and fills, by address. Device addresses are addresses of the process, so all kinds of memory share one
address space."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import Structure, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import NamedTuple

from ..device.rows import Rows
from ..errors import LaunchError
from .calls import FUNCTIONS, Function, function
from .codes import CudaError
from .registration import symbol_address
from .state import Kind, State

__all__ = [
    "DEFAULT_POOL",
    "Extent",
    "Pitched",
    "Side",
    "allocate_in_graph",
    "copy",
    "copy_later",
    "copy_rows",
    "fill",
    "fill_rows",
    "graph_memory",
]

_PITCH = 512
_KINDS = range(5)
#: ``cudaPointerAttributes``: unregistered, host, device, managed
_HOST, _DEVICE, _MANAGED = 1, 2, 3
_ACCESSED = {_HOST: "pinned", _DEVICE: "", _MANAGED: "managed"}
_NO_DEVICE = -2
#: the host in place of a device; ``cudaMemLocationType``: device, host, NUMA nodes of the host
_CPU, _ON_DEVICE, _LOCATIONS = -1, 1, range(1, 5)
#: ``cudaMemAllocationType``: not movable, managed
_UNMOVED_TYPE, _MANAGED_TYPE = 1, 2
#: ``cudaMemcpyDefault``
_BY_ADDRESS = 4
#: ``cudaMemcpySrcAccessOrder``: of the stream, during the call, any
_SOURCE_ORDERS = (1, 2, 3)
#: ``cudaMemoryAdvise``, and those with a location
_ADVICE, _LOCATED = range(1, 7), (3, 5, 6)
DEFAULT_POOL = 1
"""The handle of the default memory pool."""


class Extent(Structure):
    """``cudaExtent``: bytes (elements for arrays), rows, slices."""

    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]


class Pitched(Structure):
    """``cudaPitchedPtr``."""

    _fields_ = [("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t)]


class _PointerAttributes(Structure):
    _fields_ = [
        ("type", c_int),
        ("device", c_int),
        ("devicePointer", c_void_p),
        ("hostPointer", c_void_p),
        ("reserved", ctypes.c_long * 8),
    ]


def graph_memory(state: State, size: int) -> int:
    """Reserve an address for memory that a graph allocates and frees when it runs; it is not accessible before. Raises
    ``CudaError``."""
    try:
        address = state.device.allocate(size, written=not state.followed)
    except LaunchError as error:
        raise CudaError(2, str(error)) from None
    state.objects["graph memory", address] = size
    if not state.observed:  # if values are observed, freed memory is kept for findings, so this memory is too
        state.device.free(address, hold=True)
    return address


def allocate_in_graph(state: State, address: int) -> None:
    """Execute an allocation node. Raises ``CudaError`` if its previous allocation was not freed."""
    if ("memory", address) in state.objects:
        raise CudaError(
            1,
            f"{address:#x}, which an allocation node of this graph gives, was not freed since its last launch: add a free node, or "
            "instantiate it with cudaGraphInstantiateFlagAutoFreeOnLaunch",
        )
    if not state.observed:
        size = state.objects["graph memory", address]
        state.device.allocate(size, written=not state.followed, at=address)
    state.objects["memory", address] = _DEVICE


def _allocate(state: State, out: int, size: int, kind: int, pool: int = 0) -> None:
    if not out:
        raise CudaError(1)
    if not size:
        c_void_p.from_address(out).value = None
        return
    try:
        address = state.device.allocate(size, host=_ACCESSED[kind], written=not state.followed)
    except LaunchError as error:
        left, whole = state.device.memory_left
        text = f"{size:,} bytes, but {left:,} of {whole:,} bytes of device memory are left"
        raise CudaError(2, text if size > left else str(error)) from None
    state.objects["memory", address] = kind
    context = state.context
    if context:
        state.objects["context", address] = context
    if pool:
        state.objects["pool", address] = pool, size
        state.used_of(pool).add(size)
    c_void_p.from_address(out).value = address


@function(c_void_p, c_size_t)
def cudaMalloc(state: State, out: int, size: int) -> None:
    _allocate(state, out, size, _DEVICE)


@function(c_void_p, c_size_t, c_void_p)
def cudaMallocAsync(state: State, out: int, size: int, stream: int | None) -> None:
    """In a capturing stream, adds an allocation node."""
    _allocate_from(state, out, size, DEFAULT_POOL, stream)


def _allocate_from(state: State, out: int, size: int, pool: int, stream: int | None) -> None:
    capture = state.capture_of(stream)
    if capture is None or not out or not size:
        _allocate(state, out, size, _DEVICE, pool)
        return
    address = graph_memory(state, size)
    capture.append(lambda: allocate_in_graph(state, address), Kind.ALLOCATION).memory = address
    c_void_p.from_address(out).value = address


@function(c_void_p, c_size_t, c_void_p, c_void_p)
def cudaMallocFromPoolAsync(state: State, out: int, size: int, pool: int, stream: int | None) -> None:
    _allocate_from(state, out, size, pool, stream)


@function(c_void_p, c_size_t, c_uint)
def cudaMallocManaged(state: State, out: int, size: int, flags: int) -> None:
    if not size:
        raise CudaError(1, "0 bytes of managed memory")
    _allocate(state, out, size, _MANAGED)


@function(c_void_p, c_size_t)
def cudaMallocHost(state: State, out: int, size: int) -> None:
    _allocate(state, out, size, _HOST)


@function(c_void_p, c_size_t, c_uint)
def cudaHostAlloc(state: State, out: int, size: int, flags: int) -> None:
    _allocate(state, out, size, _HOST)


@function(c_void_p, c_void_p, c_size_t, c_size_t)
def cudaMallocPitch(state: State, out: int, pitch: int, width: int, height: int) -> None:
    row = -(-width // _PITCH) * _PITCH
    c_size_t.from_address(pitch).value = row
    _allocate(state, out, row * height, _DEVICE)


@function(c_void_p, Extent)
def cudaMalloc3D(state: State, out: int, extent: Extent) -> None:
    result = Pitched.from_address(out)
    result.pitch = -(-extent.width // _PITCH) * _PITCH
    result.xsize, result.ysize = extent.width, extent.height
    _allocate(state, out, result.pitch * extent.height * extent.depth, _DEVICE)


@function(c_void_p, also=("cudaFreeHost",))
def cudaFree(state: State, address: int | None) -> None:
    if not address:
        return
    if state.objects.pop(("memory", address), None) is None:
        raise CudaError(1, f"{address:#x} was not allocated, or has been freed")
    state.objects.pop(("context", address), None)
    pool, size = state.objects.pop(("pool", address), (0, 0))
    if pool:
        state.used_of(pool).add(-size)
    if state.objects.pop(("imported", address), None):
        state.device.close_shared(address)
        return
    held = ("graph memory", address) in state.objects
    if not (held and state.observed):
        state.device.free(address, hold=held)


@function(c_void_p, c_void_p)
def cudaFreeAsync(state: State, address: int, stream: int) -> None:
    state.enqueue(stream, lambda: cudaFree(state, address), Kind.FREE)


@function(c_void_p, c_size_t, c_uint)
def cudaHostRegister(state: State, address: int, size: int, flags: int) -> None:
    if ("host", address) in state.objects:
        raise CudaError(712)
    # while values are observed, kernels access only memory of the device
    state.objects["host", address] = None if state.observed else state.device.adopt(address, size)


@function(c_void_p)
def cudaHostUnregister(state: State, address: int) -> None:
    if ("host", address) not in state.objects:
        raise CudaError(713)
    array = state.objects.pop(("host", address))
    if array is not None:
        state.device.free(array)


@function(c_void_p, c_void_p, c_uint)
def cudaHostGetDevicePointer(state: State, out: int, address: int, flags: int) -> None:
    c_void_p.from_address(out).value = address


@function(c_void_p, c_void_p)
def cudaHostGetFlags(state: State, out: int, address: int) -> None:
    c_uint.from_address(out).value = 0


@function(c_void_p, c_void_p)
def cudaPointerGetAttributes(state: State, out: int, address: int) -> None:
    result = _PointerAttributes.from_address(out)
    ctypes.memset(out, 0, ctypes.sizeof(result))
    result.device = _NO_DEVICE
    array = state.device.array_at(address) if address else None
    if array is None:
        result.hostPointer = address
        return
    result.type = state.objects.get(("memory", array.address), _DEVICE)
    if ("host", array.address) in state.objects:
        result.type = _HOST
    result.device = 0
    result.devicePointer = address
    result.hostPointer = None if result.type == _DEVICE else address


@function(c_void_p, c_void_p)
def cudaMemGetInfo(state: State, free: int | None, total: int | None) -> None:
    for address, value in zip((free, total), state.device.memory_left):
        if address:
            c_size_t.from_address(address).value = value


# -- copies ---------------------------------------------------------------------------------------------------------------


def copy(state: State, target: int | None, source: int | None, size: int, kind: int) -> None:
    """Copy ``size`` bytes. Raises ``CudaError``."""
    copy_rows(state, Side(target, size), Side(source, size), size, 1, kind)


class Side(NamedTuple):
    """One side of a copy of rows: the address of the first row, and the distances between rows and between planes."""

    address: int | None
    pitch: int
    plane: int = 0


def copy_rows(
    state: State, target: Side, source: Side, width: int, height: int, kind: int, depth: int = 1
) -> None:
    """Copy ``height`` rows of ``width`` bytes in each of ``depth`` planes, in one step. Raises ``CudaError``."""
    if width > target.pitch or width > source.pitch:
        raise CudaError(
            12, f"rows of {width:,} bytes do not fit into pitches of {target.pitch:,} and {source.pitch:,}"
        )
    if kind not in _KINDS:
        raise CudaError(21, f"{kind} is not a direction of a copy")
    into, of = (Rows(width, height, depth, side.pitch, side.plane) for side in (target, source))
    if not into.bytes:
        return
    if not target.address or not source.address:
        raise CudaError(1, "a copy from or to a null pointer")
    try:
        state.device.copy_rows(target.address, into, source.address, of)
    except LaunchError as error:
        raise CudaError(1, str(error)) from None


def copy_later(
    state: State, target: int | None, source: int | None, size: int, kind: int, stream: int | None
) -> None:
    """Copy in the order of a stream. Behind a kernel that waits, pageable memory is read now, and the call waits before it is written
    (CUDA Runtime API, "API synchronization behavior"). Raises ``CudaError``."""
    kept = None
    if state.work.operations and state.capture_of(stream) is None and target and source:
        if state.device.array_at(target) is None:
            state.work.wait(state.work.of(state.number_of(stream)))
            if state.sticky:
                raise CudaError(state.sticky)
        elif state.device.array_at(source) is None:
            kept = ctypes.create_string_buffer(ctypes.string_at(source, size), size)

    def operation() -> None:
        copy(state, target, source if kept is None else ctypes.addressof(kept), size, kind)

    state.enqueue(stream, operation)


def _queued(state: State, stream: int | None, operation: Callable[[], None], kind: int = Kind.MEMCPY) -> None:
    state.enqueue(stream, operation, kind)


@function(c_void_p, c_void_p, c_size_t, c_int)
def cudaMemcpy(state: State, target: int, source: int, size: int, kind: int) -> None:
    copy(state, target, source, size, kind)


@function(c_void_p, c_void_p, c_size_t, c_int, c_void_p)
def cudaMemcpyAsync(state: State, target: int, source: int, size: int, kind: int, stream: int) -> None:
    copy_later(state, target, source, size, kind, stream)


class _CopyAttributes(Structure):
    """``cudaMemcpyAttributes``; the hints and flags have no effect."""

    _fields_ = [("order", c_int), ("source_hint", c_int * 2), ("target_hint", c_int * 2), ("flags", c_uint)]


def _copy_batch(
    state: State,
    targets: int,
    sources: int,
    sizes: int,
    count: int,
    attributes: int,
    firsts: int,
    number: int,
    stream: int,
) -> None:
    """Copies of pointers, each in the order of the stream. ``firsts``: the first copy of each of the attributes."""
    if not (count and targets and sources and sizes and attributes and firsts and 0 < number <= count):
        raise CudaError(1, f"{count} copies with {number} attributes, or an array of a batch is missing")
    if not stream:
        raise CudaError(1, "a batch of copies needs a stream other than the legacy default stream")
    starts = list((c_size_t * number).from_address(firsts))
    if starts[0] or sorted({*starts}) != starts or starts[-1] >= count:
        raise CudaError(
            1, f"the attributes begin at the copies {starts}, which must ascend from 0 and be below {count}"
        )
    for each in (_CopyAttributes * number).from_address(attributes):
        if each.order not in _SOURCE_ORDERS:
            raise CudaError(1, f"{each.order} is not an order of accesses to the source")
    for target, source, size in zip(
        (c_void_p * count).from_address(targets),
        (c_void_p * count).from_address(sources),
        (c_size_t * count).from_address(sizes),
    ):
        copy_later(state, target, source, size, _BY_ADDRESS, stream)


# CUDA 12 also has the index of the copy that failed, before the stream
@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)
def cudaMemcpyBatchAsync(
    state: State, targets: int, sources: int, sizes: int, count: int, attributes: int, firsts: int, number: int, failed: int,
    stream: int,
) -> None:  # fmt: skip
    _copy_batch(state, targets, sources, sizes, count, attributes, firsts, number, stream)


FUNCTIONS["cudaMemcpyBatchAsync@13"] = Function(
    _copy_batch,
    (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p),
    c_int,
    plain=True,
)


@function(c_void_p, c_int, c_void_p, c_int, c_size_t)
def cudaMemcpyPeer(state: State, target: int, _: int, source: int, __: int, size: int) -> None:
    copy(state, target, source, size, 3)


@function(c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p)
def cudaMemcpyPeerAsync(
    state: State, target: int, _: int, source: int, __: int, size: int, stream: int
) -> None:
    _queued(state, stream, lambda: copy(state, target, source, size, 3))


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int)
def cudaMemcpy2D(
    state: State, target: int, to: int, source: int, by: int, width: int, height: int, kind: int
) -> None:
    copy_rows(state, Side(target, to), Side(source, by), width, height, kind)


@function(c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpy2DAsync(
    state: State, target: int, to: int, source: int, by: int, width: int, height: int, kind: int, stream: int
) -> None:
    _queued(state, stream, lambda: copy_rows(state, Side(target, to), Side(source, by), width, height, kind))


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_int)
def cudaMemcpyToSymbol(state: State, symbol: int, source: int, size: int, offset: int, kind: int) -> None:
    copy(state, symbol_address(state, symbol)[0] + offset, source, size, kind)


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_int)
def cudaMemcpyFromSymbol(state: State, target: int, symbol: int, size: int, offset: int, kind: int) -> None:
    copy(state, target, symbol_address(state, symbol)[0] + offset, size, kind)


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpyToSymbolAsync(
    state: State, symbol: int, source: int, size: int, offset: int, kind: int, stream: int
) -> None:
    _queued(state, stream, lambda: cudaMemcpyToSymbol(state, symbol, source, size, offset, kind))


@function(c_void_p, c_void_p, c_size_t, c_size_t, c_int, c_void_p)
def cudaMemcpyFromSymbolAsync(
    state: State, target: int, symbol: int, size: int, offset: int, kind: int, stream: int
) -> None:
    _queued(state, stream, lambda: cudaMemcpyFromSymbol(state, target, symbol, size, offset, kind))


# -- fills ----------------------------------------------------------------------------------------------------------------


def fill(state: State, target: int | None, value: bytes, count: int) -> None:
    """Store ``value`` in each of a number of bytes. Raises ``CudaError`` unless kernels may access them."""
    fill_rows(state, target, value, Rows(len(value) * count))


def fill_rows(state: State, target: int | None, value: bytes, rows: Rows) -> None:
    """Fill each row with ``value``, in one step. Raises ``CudaError`` as ``fill``."""
    if not rows.bytes:
        return
    if not target or state.device.array_at(target) is None:
        raise CudaError(1, f"a memset of {target or 0:#x}, which is not device memory")
    try:
        state.device.fill_rows(target, rows, value)
    except LaunchError as error:
        raise CudaError(1, str(error)) from None


def _fill(state: State, target: int | None, value: int, size: int) -> None:
    fill(state, target, bytes([value & 0xFF]), size)


def _fill_rows(state: State, target: int | None, value: int, rows: Rows) -> None:
    fill_rows(state, target, bytes([value & 0xFF]), rows)


@function(c_void_p, c_int, c_size_t)
def cudaMemset(state: State, target: int, value: int, size: int) -> None:
    _fill(state, target, value, size)


@function(c_void_p, c_int, c_size_t, c_void_p)
def cudaMemsetAsync(state: State, target: int, value: int, size: int, stream: int) -> None:
    _queued(state, stream, lambda: _fill(state, target, value, size), Kind.MEMSET)


@function(c_void_p, c_size_t, c_int, c_size_t, c_size_t)
def cudaMemset2D(state: State, target: int, pitch: int, value: int, width: int, height: int) -> None:
    _fill_rows(state, target, value, Rows(width, height, 1, pitch))


@function(c_void_p, c_size_t, c_int, c_size_t, c_size_t, c_void_p)
def cudaMemset2DAsync(
    state: State, target: int, pitch: int, value: int, width: int, height: int, stream: int
) -> None:
    _queued(
        state, stream, lambda: _fill_rows(state, target, value, Rows(width, height, 1, pitch)), Kind.MEMSET
    )


@function(Pitched, c_int, Extent)
def cudaMemset3D(state: State, target: Pitched, value: int, extent: Extent) -> None:
    plane = target.pitch * target.ysize
    _fill_rows(state, target.ptr, value, Rows(extent.width, extent.height, extent.depth, target.pitch, plane))


# -- advice: no effect, as there is only one memory ---------------------------------------------------------------------------


def _located(device: int) -> None:
    """Raises ``CudaError`` (invalid device) unless this is the device or the host."""
    if device not in (_CPU, 0):
        raise CudaError(101, f"there is one device, 0; asked for {device}")


def _located_at(location: int) -> None:
    """The same for a ``cudaMemLocation``: a type, and the number of a device in the upper half."""
    kind, number = location & 0xFFFFFFFF, location >> 32
    if kind not in _LOCATIONS:
        raise CudaError(1, f"{kind} is not a type of a location")
    _located(number if kind == _ON_DEVICE else 0)


def _advised(advice: int) -> None:
    if advice not in _ADVICE:
        raise CudaError(1, f"{advice} is not an advice")


@function(c_void_p, c_size_t, c_int, c_int)
def cudaMemAdvise(state: State, address: int, size: int, advice: int, device: int) -> None:
    """No effect: host and device share the memory."""
    _advised(advice)
    if advice in _LOCATED:
        _located(device)


# a cudaMemLocation has two ints and is passed in one register
@function(c_void_p, c_size_t, c_int, c_ulonglong, also=("cudaMemAdvise@13",))
def cudaMemAdvise_v2(state: State, address: int, size: int, advice: int, location: int) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    _advised(advice)
    if advice in _LOCATED:
        _located_at(location)


@function(c_void_p, c_size_t, c_int, c_void_p)
def cudaMemPrefetchAsync(state: State, address: int, size: int, device: int, stream: int) -> None:
    _located(device)
    state.enqueue(stream, _nothing, Kind.EMPTY)


@function(c_void_p, c_size_t, c_ulonglong, c_uint, c_void_p, also=("cudaMemPrefetchAsync@13",))
def cudaMemPrefetchAsync_v2(
    state: State, address: int, size: int, location: int, flags: int, stream: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    _located_at(location)
    state.enqueue(stream, _nothing, Kind.EMPTY)


@function(c_void_p, c_void_p, c_size_t, c_uint)
def cudaStreamAttachMemAsync(state: State, stream: int, address: int, size: int, flags: int) -> None:
    state.enqueue(stream, _nothing, Kind.EMPTY)


def _nothing() -> None:
    pass


@function(c_void_p, c_int)
def cudaDeviceGetDefaultMemPool(state: State, out: int, device: int) -> None:
    c_void_p.from_address(out).value = DEFAULT_POOL


@function(c_void_p, c_int)
def cudaDeviceGetMemPool(state: State, out: int, device: int) -> None:
    c_void_p.from_address(out).value = DEFAULT_POOL


def _pool_at(location: int, kind: int) -> None:
    """Raises ``CudaError`` unless this is the place of the only memory that pools have: the device. ``location``: of a
    ``cudaMemLocation``; ``kind``: a ``cudaMemAllocationType``."""
    place, number = (c_int * 2).from_address(location) if location else (0, 0)
    if kind not in (_UNMOVED_TYPE, _MANAGED_TYPE) or (
        place not in _LOCATIONS and (place, kind) != (0, _MANAGED_TYPE)
    ):
        raise CudaError(1, f"no pools of type {kind} at a location of type {place}")
    if place != _ON_DEVICE or kind == _MANAGED_TYPE:
        raise CudaError(
            801, "memory pools of the host, and of managed memory, are not supported: pools of the device are"
        )
    _located(number)


@function(c_void_p, c_void_p, c_int, also=("cudaMemGetMemPool",))
def cudaMemGetDefaultMemPool(state: State, out: int, location: int, kind: int) -> None:
    _pool_at(location, kind)
    c_void_p.from_address(out).value = DEFAULT_POOL


@function(c_void_p, c_int, c_void_p)
def cudaMemSetMemPool(state: State, location: int, kind: int, pool: int) -> None:
    """No effect, as ``cudaDeviceSetMemPool``."""
    _pool_at(location, kind)


@function(c_void_p, c_void_p)
def cudaMemPoolCreate(state: State, out: int, properties: int) -> None:
    c_void_p.from_address(out).value = state.new("pool")


@function(also=("cudaMemPoolTrimTo", "cudaMemPoolDestroy", "cudaMemPoolSetAccess"))
def cudaDeviceSetMemPool(state: State) -> None:
    """No effect: all pools behave the same."""
