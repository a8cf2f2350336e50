"""What nvcc's host code calls before ``main``: fat binaries, kernels and variables are registered, and read when they are used."""

from __future__ import annotations

import ctypes
import struct
import sys
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..api import parse
from ..binaries import read_images
from ..ptx.module import Function as Kernel
from ..ptx.module import Module
from ..timing.targets import most_specific
from .calls import function
from .codes import CudaError
from .state import State

__all__ = ["Library", "Symbol", "kernel_of", "symbol_address"]

_WRAPPER = struct.Struct("<IIQQ")
_MAGIC = 0x466243B1
_FAT_HEADER = struct.Struct("<IHHQ")


@dataclass
class Library:
    """A fat binary of the program, at an address."""

    address: int
    state: State
    variables: list[Symbol] = field(default_factory=list)

    @cached_property
    def module(self) -> Module:
        """The PTX that the device takes. Raises ``CudaError`` (no kernel image) where there is none."""
        program = (
            Path(sys.executable).name
            if not Path("/proc/self/exe").exists()
            else Path("/proc/self/exe").resolve().name
        )
        _, _, header, size = _FAT_HEADER.unpack(ctypes.string_at(self.address, _FAT_HEADER.size))
        images = read_images(ctypes.string_at(self.address, header + size), program)
        readable = {image.named_target: image for image in images if image.kind == "PTX"}
        best = most_specific(readable, self.state.machine)
        if best is None:
            held = (
                ", ".join(readable)
                or f"none, only machine code for {', '.join(sorted({i.target for i in images}))}"
            )
            capability = "{}{}".format(*self.state.machine.compute_capability)
            raise CudaError(
                209,
                f"{program} has no PTX that runs on {self.state.machine.id}: it has {held}; compile with "
                f"-gencode arch=compute_{capability},code=compute_{capability}, or choose another --target",
            )
        return parse(readable[best].text, f"{program}[{best}]")


@dataclass
class Symbol:
    """A variable of the program, and for managed ones the host's pointer to it."""

    library: Library
    name: str
    size: int
    pointer: int = 0

    @cached_property
    def address(self) -> int:
        """Where it is on the device."""
        return self.library.state.device.variable(self.library.module, self.name).address


def _libraries(state: State) -> list[Library]:
    return [item for item in state.objects.values() if isinstance(item, Library)]


@function(c_void_p, result=c_void_p, plain=False)
def __cudaRegisterFatBinary(state: State, wrapper: int) -> int:
    magic, _, data, _ = _WRAPPER.unpack(ctypes.string_at(wrapper, _WRAPPER.size))
    if magic != _MAGIC:
        raise CudaError(200, f"the fat binary at {wrapper:#x} has no wrapper of nvcc")
    return state.new(Library(data, state))


@function(c_void_p, result=None, plain=False)
def __cudaRegisterFatBinaryEnd(state: State, handle: int) -> None:
    """Registration is complete without it."""


@function(c_void_p, result=None, plain=False)
def __cudaUnregisterFatBinary(state: State, handle: int) -> None:
    """The process ends: nothing is given back."""


@function(c_void_p, c_void_p, c_char_p, c_char_p, c_int, *[c_void_p] * 5, result=None, plain=False)
def __cudaRegisterFunction(state: State, handle: int, host: int, _: bytes, name: bytes, *__: object) -> None:
    state.objects[host] = (state.objects[handle], name.decode())


@function(c_void_p, c_void_p, c_char_p, c_char_p, c_int, c_size_t, c_int, c_int, result=None, plain=False)
def __cudaRegisterVar(
    state: State, handle: int, host: int, _: bytes, name: bytes, __: int, size: int, *___: int
) -> None:
    state.objects[host] = Symbol(state.objects[handle], name.decode(), size)


@function(c_void_p, c_void_p, c_void_p, c_char_p, c_int, c_size_t, c_int, c_int, result=None, plain=False)
def __cudaRegisterManagedVar(
    state: State, handle: int, pointer: int, _: int, name: bytes, __: int, size: int, *___: int
) -> None:
    library = state.objects[handle]
    symbol = Symbol(library, name.decode(), size, pointer)
    library.variables.append(symbol)
    state.objects[pointer] = symbol


@function(c_void_p, plain=False)
def __cudaInitModule(state: State, handle: int) -> int:
    """Lets the host's pointers to managed variables point to them."""
    for library in _libraries(state):
        for symbol in library.variables:
            ctypes.c_void_p.from_address(symbol.pointer).value = symbol.address
            state.device.note_written(symbol.address, symbol.size)
        library.variables.clear()
    return 1


def kernel_of(state: State, host: int | None) -> Kernel:
    """The kernel whose host function is at an address. Raises ``CudaError`` (invalid device function)."""
    found = state.objects.get(host or 0)
    if isinstance(found, Kernel):
        return found
    if not isinstance(found, tuple):
        raise CudaError(98, f"{host or 0:#x} is the host function of no kernel")
    library, name = found
    if name not in library.module.kernels:
        raise CudaError(98, f"the PTX of {library.module.path} has no kernel {name!r}")
    __cudaInitModule(state, 0)
    kernel: Kernel = library.module[name]
    state.objects[host or 0] = kernel
    return kernel


def symbol_address(state: State, host: int | None) -> tuple[int, int]:
    """Address and bytes of the variable whose shadow on the host is at an address. Raises ``CudaError`` (invalid symbol)."""
    found = state.objects.get(host or 0)
    if not isinstance(found, Symbol):
        raise CudaError(13, f"{host or 0:#x} is no __device__ or __constant__ variable")
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
