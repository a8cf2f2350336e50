"""Functions that nvcc's host code calls before ``main``: they register fat binaries, kernels and variables, which are parsed on first
use."""

from __future__ import annotations

import ctypes
import struct
import sys
from ctypes import Structure, c_char_p, c_long, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..api import parse
from ..binaries import is_binary, read_images
from ..machines.targets import most_specific, stand_in
from ..ptx.module import Function as Kernel
from ..ptx.module import Module
from ..ptx.retarget import retargeted
from .call_paths import object_at
from .calls import function, say
from .codes import CudaError
from .device_runtime import is_device_runtime, linked
from .state import State

__all__ = [
    "Library",
    "Registrations",
    "Symbol",
    "handle_of_kernel",
    "image_at",
    "kernel_of",
    "library_of",
    "program_name",
    "ptx_of",
    "registered",
    "symbol_address",
]

_WRAPPER = struct.Struct("<IIQQ")
_LINKED = 2
_WRAPPER_MAGIC, _FAT_MAGIC, _ELF_MAGIC = 0x466243B1, 0xBA55ED50, 0x464C457F
_ELF = struct.Struct("<16xHHIQQQIHHHHHH")
_FAT_HEADER = struct.Struct("<IHHQ")


@dataclass
class Library:
    """The image at an address: nvcc's wrapper of a fat binary, or a fat binary, cubin or zero-terminated PTX."""

    address: int
    state: State
    variables: list[Symbol] = field(default_factory=list)
    #: handles of its kernels that were requested by name
    handles: dict[str, int] = field(default_factory=dict)

    @cached_property
    def module(self) -> Module:
        """The module of the PTX chosen for the device. Raises ``CudaError`` (no kernel image) if there is none."""
        known = object_at(self.address)
        name = known[0].name if known else program_name()
        data = images_at(self.address)
        if len(data) == 1 and not is_binary(data[0]):
            return parse(data[0].decode("utf-8", "replace"), f"{name}[PTX]")
        found, lacking = [], CudaError(209)
        for item in data:
            try:
                found.append(ptx_of(item, self.state, name))
            except CudaError as error:  # CUDA's own device runtime, or an image that nothing may need
                lacking = error
        if not found:
            raise lacking
        return parse(linked([text for text, _ in found]), f"{name}[{found[0][1]}]")


def ptx_of(data: bytes, state: State, name: str) -> tuple[str, str]:
    """The PTX chosen for the device, and its target. Raises ``CudaError`` (no kernel image) if there is none."""
    images = read_images(data, name)
    readable = {image.named_target: image for image in images if image.kind == "PTX"}
    best = most_specific(readable, state.machine)
    if best is None:
        code = [image.target for image in images if image.kind == "machine code"]
        standing = stand_in(readable, code, state.machine)
        if standing is not None and is_device_runtime(readable[standing[1]].text):
            raise CudaError(209)
        if standing is not None:
            return _in_place(state, name, readable[standing[1]].text, *standing)
        held = (
            ", ".join(readable)
            or f"none, only machine code for {', '.join(sorted({i.target for i in images}))}"
        )
        capability = "{}{}".format(*state.machine.compute_capability)
        if data.startswith(_ELF_MAGIC.to_bytes(4, "little")) and not readable:
            # code that the program generates at run time (nvJitLink, ptxas), not code that it contains
            raise CudaError(
                209,
                f"{name} loads a cubin of machine code for {images[0].target}, which cannot be run; compile it with -lineinfo, which "
                "keeps its PTX (PyCUDA: PYCUDA_DEFAULT_NVCC_FLAGS=-lineinfo), or load the PTX that it comes from: "
                "link it with cuLinkAddData instead of nvJitLink, or use nvJitLinkGetLinkedPtx on code compiled with -dlto "
                "(options -lto -ptx)",
            )
        raise CudaError(
            209,
            f"{name} has no PTX that runs on {state.machine.id}: it has {held}; compile with "
            f"-gencode arch=compute_{capability},code=compute_{capability}, or choose another --target",
        )
    if is_device_runtime(readable[best].text):
        raise CudaError(209)
    return readable[best].text, best


def _in_place(state: State, name: str, text: str, code: str, compiled_for: str) -> tuple[str, str]:
    """PTX in place of machine code; notes this once."""
    said = f"note: {name}: PTX for {compiled_for} runs instead of machine code for {code}, as {name} has no PTX that runs on "
    said += f"{state.machine.id}: counts and times refer to this PTX"
    if said not in state.said:
        state.said.add(said)
        say(said)
    major, minor = state.machine.compute_capability
    return retargeted(text, f"sm_{major}{minor}", compiled_for, code), compiled_for


def program_name() -> str:
    """The file name of the running program."""
    file = Path("/proc/self/exe")
    return file.resolve().name if file.exists() else Path(sys.executable).name


def images_at(address: int) -> list[bytes]:
    """The image at an address, or the images that it was linked from if nvcc's wrapper of ``-rdc=true`` lists them."""
    if c_uint.from_address(address).value == _WRAPPER_MAGIC:
        _, version, _, others = _WRAPPER.unpack(ctypes.string_at(address, _WRAPPER.size))
        if version == _LINKED and others:
            found: list[bytes] = []
            while part := c_void_p.from_address(others + 8 * len(found)).value:
                found.append(image_at(part))
            if found:
                return found
    return [image_at(address)]


def image_at(address: int) -> bytes:
    """The bytes of a fat binary, cubin or PTX (without the terminating zero). Raises ``CudaError`` (invalid image)."""
    magic = c_uint.from_address(address).value
    if magic == _WRAPPER_MAGIC:
        address = _WRAPPER.unpack(ctypes.string_at(address, _WRAPPER.size))[2]
        magic = c_uint.from_address(address).value
    if magic == _FAT_MAGIC:
        _, _, header, size = _FAT_HEADER.unpack(ctypes.string_at(address, _FAT_HEADER.size))
        return ctypes.string_at(address, header + size)
    if magic == _ELF_MAGIC:
        _, _, _, _, _, sections, _, _, _, _, size, count, _ = _ELF.unpack(
            ctypes.string_at(address, _ELF.size)
        )
        return ctypes.string_at(address, _elf_size(address, sections, size * count))
    text = ctypes.string_at(address)
    if b".version" not in text:
        raise CudaError(200, f"what is at {address:#x} is not a fat binary, cubin or PTX")
    return text


def _elf_size(address: int, sections: int, table: int) -> int:
    """The size of an ELF file in memory: the end of its section table or of its last section."""
    rows = struct.iter_unpack("<IIQQQQIIQQ", ctypes.string_at(address + sections, table))
    ends = [row[4] + row[5] for row in rows if row[1] != 8]
    return int(max([sections + table, *ends]))


@dataclass
class Symbol:
    """A variable of the program; for a managed one, also the address of the host's pointer to it."""

    library: Library
    name: str
    size: int
    pointer: int = 0

    @cached_property
    def address(self) -> int:
        """The device address."""
        return self.library.state.device.variable(self.library.module, self.name).address


def _libraries(state: State) -> list[Library]:
    return [item for item in state.objects.values() if isinstance(item, Library)]


class _Row(Structure):
    """A registration: 0 a fat binary with the wrapper ``host``, 1 a kernel, 2 a variable, 3 a managed variable."""

    _fields_ = [
        ("kind", c_long),
        ("handle", c_void_p),
        ("host", c_void_p),
        ("name", c_char_p),
        ("size", c_size_t),
    ]


class _Chunk(Structure):
    _fields_ = [("rows", _Row * 512), ("next", c_void_p)]


@dataclass
class Registrations:
    """Registrations by the program's constructors with one library, recorded by ``shim.c``; the first ``done`` have been read."""

    chunk: int
    count: int
    done: int = 0

    def read(self, state: State) -> None:
        """Read new registrations."""
        while self.done < c_long.from_address(self.count).value:
            chunk, place = _Chunk.from_address(self.chunk), self.done % 512
            _register(state, chunk.rows[place])
            self.done += 1
            if place == 511:
                self.chunk = chunk.next


def _register(state: State, row: _Row) -> None:
    if row.kind == 0:
        state.objects[row.handle] = Library(row.host, state)
        return
    library, name = state.objects[row.handle], row.name.decode()
    if row.kind == 1:
        state.objects[row.host] = (library, name)
        return
    symbol = Symbol(library, name, row.size, row.host if row.kind == 3 else 0)
    state.objects[row.host] = symbol
    if row.kind == 3:
        library.variables.append(symbol)


def registered(state: State, host: int | None) -> Any:
    """The object registered for a host function or variable."""
    for library in state.registrations:
        library.read(state)
    return state.objects.get(host or 0)


@function(c_void_p, plain=False)
def __cudaInitModule(state: State, handle: int) -> int:
    """Set the host's pointers to managed variables."""
    for library in _libraries(state):
        for symbol in library.variables:
            ctypes.c_void_p.from_address(symbol.pointer).value = symbol.address
            state.device.note_managed(symbol.address, symbol.size)
        library.variables.clear()
    return 1


def kernel_of(state: State, host: int | None) -> Kernel:
    """The kernel of a host function. Raises ``CudaError`` (invalid device function)."""
    found = registered(state, host)
    if isinstance(found, Kernel):
        return found
    if not isinstance(found, tuple):
        known = object_at(host) if host else None
        of = f", in {known[0].name}: was that loaded before the emulator?" if known else ""
        raise CudaError(98, f"{host or 0:#x} is the host function of no kernel{of}")
    library, name = found
    if name not in library.module.kernels:
        raise CudaError(98, f"the PTX of {library.module.path} has no kernel {name!r}")
    __cudaInitModule(state, 0)
    kernel: Kernel = library.module[name]
    state.objects[host or 0] = kernel
    return kernel


def handle_of_kernel(state: State, kernel: Kernel) -> int:
    """The host function, or the handle, by which the program knows a kernel."""
    known = (key for key, value in state.objects.items() if value is kernel and isinstance(key, int))
    return next(known, 0)


def library_of(state: State, handle: int) -> int:
    """The module handle for a kernel handle. Raises ``CudaError`` (invalid handle)."""
    for key, value in state.objects.items():
        if isinstance(value, Library) and handle in value.handles.values():
            return int(key)
    raise CudaError(400, f"{handle or 0:#x} is not a function of a module")


def symbol_address(state: State, host: int | None) -> tuple[int, int]:
    """Address and size of the device variable of a host variable. Raises ``CudaError`` (invalid symbol)."""
    found = registered(state, host)
    if not isinstance(found, Symbol):
        raise CudaError(13, f"{host or 0:#x} is not a __device__ or __constant__ variable")
    return found.address, found.size


@function(c_void_p, c_void_p)
def cudaGetSymbolAddress(state: State, out: int, symbol: int) -> None:
    c_void_p.from_address(out).value = symbol_address(state, symbol)[0]


@function(c_void_p, c_void_p)
def cudaGetSymbolSize(state: State, out: int, symbol: int) -> None:
    c_size_t.from_address(out).value = symbol_address(state, symbol)[1]


@function(c_void_p, c_void_p, also=("cudaGetKernel",))
def __cudaGetKernel(state: State, out: int, host: int) -> None:
    c_void_p.from_address(out).value = host


@function(c_void_p, c_void_p)
def cudaGetFuncBySymbol(state: State, out: int, host: int) -> None:
    c_void_p.from_address(out).value = host


@function(c_void_p, c_void_p)
def cudaFuncGetName(state: State, out: int, host: int) -> None:
    name = ctypes.create_string_buffer(kernel_of(state, host).name.encode())
    state.new(name)
    c_void_p.from_address(out).value = ctypes.addressof(name)
