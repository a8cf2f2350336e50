"""Virtual memory management (CUDA Driver API, "Virtual Memory Management"): reservation of addresses, creation of memory, and
mapping.

Created memory is memory of the host that can be mapped several times; adjacent mappings form one array.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from ctypes import Structure, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p, memmove, sizeof
from dataclasses import dataclass, field

from ...errors import LaunchError
from ...memory.pages import map_file, map_nothing
from ..calls import function
from ..codes import CudaError
from ..state import State

__all__: list[str] = []

#: granularity of creation and mapping in bytes, as on GPUs
_GRANULARITY = 2 << 20
_DEVICE = 1
#: ``CU_MEM_ALLOCATION_TYPE_PINNED``, ``CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR``
_PINNED, _FILE = 1, 1
_NONE, _READ, _READ_WRITE = 0, 1, 3


class _Location(Structure):
    """``CUmemLocation``."""

    _fields_ = [("kind", c_int), ("ordinal", c_int)]


class _Properties(Structure):
    """``CUmemAllocationProp``."""

    _fields_ = [
        ("kind", c_int),
        ("handles", c_int),
        ("location", _Location),
        ("security", c_void_p),
        ("flags", c_ubyte * 8),
    ]


class _Access(Structure):
    """``CUmemAccessDesc``."""

    _fields_ = [("location", _Location), ("flags", c_int)]


@dataclass(eq=False)
class _Made:
    """Created memory: an anonymous file. ``holders``: the number of its handles and mappings; releasing the last one closes it."""

    file: int
    size: int
    properties: bytes
    holders: int = 1

    def let_go(self) -> None:
        self.holders -= 1
        if not self.holders:
            os.close(self.file)


@dataclass
class _Mapping:
    size: int
    made: _Made
    access: int = _NONE

    @property
    def accessible(self) -> bool:
        return self.access != _NONE


@dataclass(eq=False)
class _Reserved:
    """Reserved addresses, their mappings by address, and the arrays that kernels access: address and size."""

    address: int
    size: int
    mappings: dict[int, _Mapping] = field(default_factory=dict)
    arrays: list[tuple[int, int]] = field(default_factory=list)

    def inside(self, address: int, size: int) -> list[int]:
        """The mappings within a range of bytes. Raises ``CudaError`` unless they fill it exactly."""
        found = [
            start
            for start, mapping in self.mappings.items()
            if start < address + size and start + mapping.size > address
        ]
        if sum(self.mappings[start].size for start in found) != size:
            raise CudaError(1, f"{size:,} bytes at {address:#x} are not whole mappings of cuMemMap")
        return sorted(found)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The accessible ranges, with adjacent mappings merged."""
        first = end = 0
        for start in sorted(key for key, mapping in self.mappings.items() if mapping.accessible):
            if start != end:
                if first:
                    yield first, end - first
                first = start
            end = start + self.mappings[start].size
        if first:
            yield first, end - first

    def settle(self, state: State) -> None:
        """Update the arrays that kernels may access to the accessible ranges."""
        now = [*self.runs()]
        for address, size in self.arrays:
            if (address, size) not in now:
                state.device.free(address, hold=True)
        for address, size in now:
            if (address, size) not in self.arrays:
                state.device.allocate(size, written=True, at=address)
        self.arrays = now


def _reserved(state: State, address: int | None, size: int) -> _Reserved:
    """The reservation that contains these bytes. Raises ``CudaError``."""
    for item in state.objects.values():
        if (
            isinstance(item, _Reserved)
            and item.address <= (address or 0)
            and (address or 0) + size <= item.address + item.size
        ):
            return item
    raise CudaError(1, f"{size:,} bytes at {address or 0:#x} are not reserved by cuMemAddressReserve")


def _whole(size: int) -> None:
    if not size or size % _GRANULARITY:
        raise CudaError(1, f"{size:,} bytes are not a multiple of the granularity, {_GRANULARITY:,}")


@function(c_void_p, c_void_p, c_int)
def cuMemGetAllocationGranularity(state: State, out: int, given: int, option: int) -> None:
    c_size_t.from_address(out).value = _GRANULARITY


@function(c_void_p, c_size_t, c_size_t, c_void_p, c_ulonglong)
def cuMemAddressReserve(
    state: State, out: int, size: int, alignment: int, wish: int | None, flags: int
) -> None:
    """``wish``: a preferred address, which is not guaranteed."""
    _whole(size)
    if alignment & (alignment - 1):
        raise CudaError(1, f"an alignment of {alignment:,} bytes is not a power of two")
    if state.observed:
        raise CudaError(801, "values are observed in memory of cuMemAlloc, not in mapped memory")
    try:
        address = state.device.allocate(size, written=True, align=max(_GRANULARITY, alignment))
    except LaunchError as error:
        raise CudaError(2, str(error)) from None
    state.device.free(address, hold=True)
    state.objects["reserved", address] = _Reserved(address, size)
    c_void_p.from_address(out).value = address


@function(c_void_p, c_size_t)
def cuMemAddressFree(state: State, address: int | None, size: int) -> None:
    reserved = state.objects.get(("reserved", address))
    if reserved is None or reserved.size != size:
        raise CudaError(
            1, f"{size:,} bytes at {address or 0:#x} are not a reservation of cuMemAddressReserve"
        )
    if reserved.mappings:
        raise CudaError(1, f"memory is mapped at {min(reserved.mappings):#x}: call cuMemUnmap first")
    del state.objects["reserved", address]
    state.device.free(state.device.allocate(size, written=True, at=address))


@function(c_void_p, c_size_t, c_void_p, c_ulonglong)
def cuMemCreate(state: State, out: int, size: int, given: int, flags: int) -> None:
    _whole(size)
    properties = _Properties.from_address(given)
    if properties.location.kind != _DEVICE or properties.location.ordinal:
        raise CudaError(101, "memory is created on device 0 (CU_MEM_LOCATION_TYPE_DEVICE)")
    try:
        file = os.memfd_create("gpuperf")
        os.ftruncate(file, size)
    except OSError as error:
        raise CudaError(2, f"{size:,} bytes: {error.strerror}") from None
    c_ulonglong.from_address(out).value = state.new(_Made(file, size, bytes(properties)))


@function(c_void_p, c_ulonglong, c_int, c_ulonglong)
def cuMemExportToShareableHandle(state: State, out: int, handle: int, kind: int, flags: int) -> None:
    made = state.of(handle, _Made)
    if kind != _FILE or not _Properties.from_buffer_copy(made.properties).handles & _FILE:
        raise CudaError(1, "accepted here and by cuMemCreate: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR")
    c_int.from_address(out).value = os.dup(made.file)


@function(c_void_p, c_void_p, c_int)
def cuMemImportFromShareableHandle(state: State, out: int, given: int | None, kind: int) -> None:
    """``given``: a file descriptor, which the caller keeps."""
    if kind != _FILE:
        raise CudaError(1, "accepted: a file descriptor (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)")
    try:
        file = os.dup(given or 0)
        size = os.fstat(file).st_size
    except OSError as error:
        raise CudaError(1, f"file {given or 0}: {error.strerror}") from None
    if not size:
        os.close(file)
        raise CudaError(1, f"file {given or 0} is not one of cuMemExportToShareableHandle")
    properties = _Properties(kind=_PINNED, handles=_FILE, location=_Location(_DEVICE, 0))
    c_ulonglong.from_address(out).value = state.new(_Made(file, size, bytes(properties)))


@function(c_ulonglong)
def cuMemRelease(state: State, handle: int) -> None:
    state.of(handle, _Made).let_go()
    del state.objects[handle]


@function(c_void_p, c_void_p)
def cuMemRetainAllocationHandle(state: State, out: int, address: int) -> None:
    reserved = _reserved(state, address, 1)
    made = next((m.made for start, m in reserved.mappings.items() if start <= address < start + m.size), None)
    if made is None:
        raise CudaError(1, f"no memory is mapped at {address:#x}")
    made.holders += 1
    c_ulonglong.from_address(out).value = state.new(made)


@function(c_void_p, c_ulonglong)
def cuMemGetAllocationPropertiesFromHandle(state: State, out: int, handle: int) -> None:
    memmove(out, state.of(handle, _Made).properties, sizeof(_Properties))


@function(c_void_p, c_size_t, c_size_t, c_ulonglong, c_ulonglong)
def cuMemMap(state: State, address: int, size: int, offset: int, handle: int, flags: int) -> None:
    _whole(size)
    made = state.of(handle, _Made)
    if offset or size > made.size or address % _GRANULARITY:
        raise CudaError(
            1, f"{size:,} bytes of {made.size:,} cannot be mapped at {address:#x} from byte {offset:,}"
        )
    reserved = _reserved(state, address, size)
    for start, mapping in reserved.mappings.items():
        if start < address + size and start + mapping.size > address:
            raise CudaError(1, f"memory is mapped at {start:#x} already")
    try:
        map_file(address, size, made.file)
    except OSError as error:
        raise CudaError(2, f"{size:,} bytes at {address:#x}: {error.strerror}") from None
    made.holders += 1
    reserved.mappings[address] = _Mapping(size, made)


@function(c_void_p, c_size_t)
def cuMemUnmap(state: State, address: int, size: int) -> None:
    reserved = _reserved(state, address, size)
    gone = [reserved.mappings.pop(start) for start in reserved.inside(address, size)]
    reserved.settle(state)
    map_nothing(address, size)
    for mapping in gone:
        mapping.made.let_go()


@function(c_void_p, c_size_t, c_void_p, c_size_t)
def cuMemSetAccess(state: State, address: int, size: int, given: int, count: int) -> None:
    """Memory with read access is writable too."""
    reserved = _reserved(state, address, size)
    mappings = [reserved.mappings[start] for start in reserved.inside(address, size)]
    for access in (_Access * count).from_address(given):
        if access.flags not in (_NONE, _READ, _READ_WRITE):
            raise CudaError(1, f"{access.flags} is not an access")
        if access.location.kind == _DEVICE:
            for mapping in mappings:
                mapping.access = access.flags
    reserved.settle(state)


@function(c_void_p, c_void_p, c_void_p)
def cuMemGetAccess(state: State, out: int, location: int, address: int) -> None:
    reserved = _reserved(state, address, 1)
    found = (m.access for start, m in reserved.mappings.items() if start <= address < start + m.size)
    c_uint.from_address(out).value = next(found, _NONE)
