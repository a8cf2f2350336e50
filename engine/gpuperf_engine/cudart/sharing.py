"""Memory and events shared with other processes of this host (CUDA Runtime API, "Interprocess Communication")."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import Structure, c_int, c_ubyte, c_uint, c_void_p
from typing import TypeVar

from ..errors import LaunchError
from ..memory.shared_pages import HANDLE_BYTES
from .calls import function
from .codes import CudaError
from .events import Event
from .state import State

__all__: list[str] = []

_LAZY_PEER_ACCESS = 1
#: ``cudaMemHandleTypePosixFileDescriptor``
_FILE = 1
#: ``cudaMemoryTypeDevice``
_DEVICE = 2
#: the handle of every event: recorded work is already complete
_EVENT = b"gpuperf event"
_Result = TypeVar("_Result")


class _Handle(Structure):
    """``cudaIpcMemHandle_t``, ``cudaIpcEventHandle_t``."""

    _fields_ = [("bytes", c_ubyte * HANDLE_BYTES)]


def _checked(code: int, act: Callable[[], _Result]) -> _Result:
    """The result of a call; an error of the device becomes a ``CudaError`` with this code."""
    try:
        return act()
    except LaunchError as error:
        raise CudaError(code, str(error)) from None


@function(c_void_p, c_void_p)
def cudaIpcGetMemHandle(state: State, out: int, address: int | None) -> None:
    ctypes.memmove(out, _checked(1, lambda: state.device.share(address or 0)), HANDLE_BYTES)


@function(c_void_p, _Handle, c_uint)
def cudaIpcOpenMemHandle(state: State, out: int, handle: _Handle, flags: int) -> None:
    if flags != _LAZY_PEER_ACCESS:
        raise CudaError(1, f"flags {flags} are not supported; accepted: cudaIpcMemLazyEnablePeerAccess")
    opened = _checked(201, lambda: state.device.open_shared(bytes(handle.bytes)))
    c_void_p.from_address(out).value = opened


@function(c_void_p)
def cudaIpcCloseMemHandle(state: State, address: int | None) -> None:
    _checked(1, lambda: state.device.close_shared(address or 0))


@function(c_void_p, c_void_p)
def cudaIpcGetEventHandle(state: State, out: int, event: int) -> None:
    state.of(event, Event)
    ctypes.memmove(out, _EVENT.ljust(HANDLE_BYTES, b"\0"), HANDLE_BYTES)


@function(c_void_p, _Handle)
def cudaIpcOpenEventHandle(state: State, out: int, handle: _Handle) -> None:
    if not bytes(handle.bytes).startswith(_EVENT):
        raise CudaError(400, "the handle is not one for an event of a process under gpuperf")
    c_void_p.from_address(out).value = state.new(Event())


# -- pools: the handle of a pool is an empty file, as pointers carry all shared data -------------------------------------


def _check_file(kind: int) -> None:
    if kind != _FILE:
        raise CudaError(1, "pools are shared as a file (cudaMemHandleTypePosixFileDescriptor)")


@function(c_void_p, c_void_p, c_int, c_uint)
def cudaMemPoolExportToShareableHandle(state: State, out: int, pool: int, kind: int, flags: int) -> None:
    _check_file(kind)
    c_int.from_address(out).value = os.memfd_create("gpuperf")


@function(c_void_p, c_void_p, c_int, c_uint)
def cudaMemPoolImportFromShareableHandle(
    state: State, out: int, given: int | None, kind: int, flags: int
) -> None:
    _check_file(kind)
    try:
        os.fstat(given or 0)
    except OSError as error:
        raise CudaError(1, f"file {given or 0}: {error.strerror}") from None
    c_void_p.from_address(out).value = state.new("pool")


@function(c_void_p, c_void_p)
def cudaMemPoolExportPointer(state: State, out: int, address: int | None) -> None:
    ctypes.memmove(out, _checked(1, lambda: state.device.share(address or 0)), HANDLE_BYTES)


@function(c_void_p, c_void_p, c_void_p)
def cudaMemPoolImportPointer(state: State, out: int, pool: int, given: int) -> None:
    """The memory is freed like memory allocated by this process."""
    handle = ctypes.string_at(given, HANDLE_BYTES)
    address = _checked(201, lambda: state.device.open_shared(handle))
    state.objects["memory", address] = _DEVICE
    state.objects["imported", address] = True
    c_void_p.from_address(out).value = address
