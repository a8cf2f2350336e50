"""Launches in several steps, as before CUDA 4: the shape and the parameters of a function are set one by one."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_uint, c_void_p
from dataclasses import dataclass, field

from ..calls import function
from ..codes import CudaError
from ..launches import prepared
from ..registration import kernel_of
from ..state import Kind, State

__all__: list[str] = []


@dataclass
class _Setting:
    """What the next launch of a function takes."""

    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    parameters: bytearray = field(default_factory=bytearray)

    def put(self, offset: int, data: bytes) -> None:
        """Set bytes of the parameters."""
        if offset < 0:
            raise CudaError(1, f"{offset} is not an offset of a parameter")
        self.parameters.extend(bytes(max(0, offset + len(data) - len(self.parameters))))
        self.parameters[offset : offset + len(data)] = data


def _setting(state: State, handle: int) -> _Setting:
    kernel_of(state, handle)
    setting: _Setting = state.settings.setdefault(("function", handle), _Setting())
    return setting


@function(c_void_p, c_int, c_int, c_int)
def cuFuncSetBlockShape(state: State, handle: int, x: int, y: int, z: int) -> None:
    if min(x, y, z) < 1:
        raise CudaError(1, f"a block of {x} x {y} x {z} threads")
    _setting(state, handle).block = x, y, z


@function(c_void_p, c_uint)
def cuFuncSetSharedSize(state: State, handle: int, size: int) -> None:
    _setting(state, handle).shared = size


@function(c_void_p, c_uint)
def cuParamSetSize(state: State, handle: int, size: int) -> None:
    _setting(state, handle).put(0, bytes(_setting(state, handle).parameters[:size]).ljust(size, b"\0"))


@function(c_void_p, c_int, c_uint)
def cuParamSeti(state: State, handle: int, offset: int, value: int) -> None:
    _setting(state, handle).put(offset, value.to_bytes(4, "little"))


@function(c_void_p, c_int, c_float)
def cuParamSetf(state: State, handle: int, offset: int, value: float) -> None:
    _setting(state, handle).put(offset, bytes(c_float(value)))


@function(c_void_p, c_int, c_void_p, c_uint)
def cuParamSetv(state: State, handle: int, offset: int, data: int, size: int) -> None:
    _setting(state, handle).put(offset, ctypes.string_at(data, size))


@function(c_void_p)
def cuLaunch(state: State, handle: int) -> None:
    cuLaunchGridAsync(state, handle, 1, 1, 0)


@function(c_void_p, c_int, c_int)
def cuLaunchGrid(state: State, handle: int, width: int, height: int) -> None:
    cuLaunchGridAsync(state, handle, width, height, 0)


@function(c_void_p, c_int, c_int, c_void_p)
def cuLaunchGridAsync(state: State, handle: int, width: int, height: int, stream: int | None) -> None:
    kernel, setting = kernel_of(state, handle), _setting(state, handle)
    parameters = bytes(setting.parameters)
    launch = prepared(state, kernel, (width, height, 1), setting.block, parameters, setting.shared)
    state.enqueue(stream, launch, Kind.KERNEL)
