"""Driver initialisation, the device, contexts and errors. A context is only a handle: memory and modules belong to the device."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from ..calls import DRIVER, function
from ..codes import CudaError, described, driver_name
from ..driver_names import symbol_of
from ..events import cudaDeviceReset, text_address
from ..properties import VERSIONS, attribute_values
from ..state import Context, State

__all__ = ["entry_point"]

_PER_THREAD = 2
_FOUND, _NO_SYMBOL, _TOO_OLD = range(3)


@function(c_uint, plain=False)
def cuInit(state: State, flags: int) -> None:
    """Nothing to do: loading the library creates the device."""


@function(c_void_p, plain=False)
def cuDriverGetVersion(state: State, out: int) -> None:
    c_int.from_address(out).value = VERSIONS[state.version]


def entry_point(state: State, name: str, version: int, flags: int) -> tuple[int | None, int]:
    """The address of a driver function by name, and a ``CUdriverProcAddressQueryResult``."""
    symbol, known = symbol_of(name, version, per_thread=flags == _PER_THREAD)
    if symbol is None:
        return None, _TOO_OLD if known else _NO_SYMBOL
    library = state.objects.setdefault(DRIVER, ctypes.CDLL(DRIVER))
    return ctypes.cast(getattr(library, symbol), c_void_p).value, _FOUND


@function(c_char_p, c_void_p, c_int, c_ulonglong, plain=False)
def cuGetProcAddress(state: State, name: bytes, out: int, version: int, flags: int) -> None:
    address, _ = entry_point(state, name.decode(), version, flags)
    c_void_p.from_address(out).value = address
    if address is None:
        raise CudaError(500)


@function(c_char_p, c_void_p, c_int, c_ulonglong, c_void_p, plain=False)
def cuGetProcAddress_v2(
    state: State, name: bytes, out: int, version: int, flags: int, result: int | None
) -> None:
    address, status = entry_point(state, name.decode(), version, flags)
    c_void_p.from_address(out).value = address
    if result:
        c_int.from_address(result).value = status
    elif address is None:
        raise CudaError(500)


@function(c_char_p, c_void_p, c_ulonglong, c_void_p)
def cudaGetDriverEntryPoint(state: State, name: bytes, out: int, flags: int, result: int | None) -> None:
    cuGetProcAddress_v2(state, name, out, VERSIONS[state.version], flags, result)


@function(c_char_p, c_void_p, c_uint, c_ulonglong, c_void_p)
def cudaGetDriverEntryPointByVersion(
    state: State, name: bytes, out: int, version: int, flags: int, result: int | None
) -> None:
    cuGetProcAddress_v2(state, name, out, version, flags, result)


@function(c_int, c_void_p, plain=False)
def cuGetErrorName(state: State, code: int, out: int) -> None:
    name = driver_name(code)
    c_void_p.from_address(out).value = text_address(name) if name else None
    if not name:
        raise CudaError(1)


@function(c_int, c_void_p, plain=False)
def cuGetErrorString(state: State, code: int, out: int) -> None:
    known = driver_name(code)
    c_void_p.from_address(out).value = text_address(described(code)[1]) if known else None
    if not known:
        raise CudaError(1)


@function(c_void_p, c_void_p, plain=False)
def cuGetExportTable(state: State, out: int, identifier: int) -> None:
    """Undocumented tables of functions are not provided."""
    c_void_p.from_address(out).value = None
    raise CudaError(500)


# -- the device -----------------------------------------------------------------------------------------------------------


@function(c_void_p)
def cuDeviceGetCount(state: State, out: int) -> None:
    c_int.from_address(out).value = 1


@function(c_void_p, c_int)
def cuDeviceGet(state: State, out: int, ordinal: int) -> None:
    if ordinal:
        raise CudaError(101, f"there is one device, 0; asked for {ordinal}")
    c_int.from_address(out).value = 0


@function(c_void_p, c_int, c_int)
def cuDeviceGetName(state: State, out: int, size: int, device: int) -> None:
    name = attribute_values(state)["name"][: max(0, size - 1)] + b"\0"
    ctypes.memmove(out, name, len(name))


@function(c_void_p, c_int)
def cuDeviceTotalMem(state: State, out: int, device: int) -> None:
    c_size_t.from_address(out).value = state.device.memory_left[1]


@function(c_void_p, c_void_p, c_int)
def cuDeviceComputeCapability(state: State, major: int, minor: int, device: int) -> None:
    c_int.from_address(major).value, c_int.from_address(minor).value = state.machine.compute_capability


@function(c_void_p, c_int)
def cuDeviceGetUuid(state: State, out: int, device: int) -> None:
    ctypes.memmove(out, bytes(16), 16)


@function(c_void_p, c_int)
def cuDeviceGetProperties(state: State, out: int, device: int) -> None:
    known = attribute_values(state)
    (c_int * 14).from_address(out)[:] = [
        known["maxThreadsPerBlock"], *known["maxThreadsDim"], *known["maxGridSize"], known["sharedMemPerBlock"],
        known["totalConstMem"], known["warpSize"], known["memPitch"], known["regsPerBlock"], known["clockRate"],
        known["textureAlignment"],
    ]  # fmt: skip


# -- contexts -------------------------------------------------------------------------------------------------------------


def _needed(state: State) -> Context:
    """The current context. Raises ``CudaError`` (invalid context) without a message, as cuda.core asks whether there is one."""
    if not state.context:
        raise CudaError(201)
    context: Context = state.of(state.context, Context)
    return context


def _write(out: int | None, value: int) -> None:
    if out:
        c_void_p.from_address(out).value = value or None


def _create(state: State, out: int, flags: int) -> None:
    handle = state.new(Context(flags))
    state.contexts.append(handle)
    _write(out, handle)


@function(c_void_p, c_uint, c_int)
def cuCtxCreate(state: State, out: int, flags: int, device: int) -> None:
    _create(state, out, flags)


@function(c_void_p, c_void_p, c_int, c_uint, c_int)
def cuCtxCreate_v3(state: State, out: int, affinity: int, count: int, flags: int, device: int) -> None:
    _create(state, out, flags)


@function(c_void_p, c_void_p, c_uint, c_int)
def cuCtxCreate_v4(state: State, out: int, given: int, flags: int, device: int) -> None:
    _create(state, out, flags)


@function(c_void_p, plain=False, also=("cuCtxDetach",))
def cuCtxDestroy(state: State, context: int) -> None:
    state.of(context, Context)
    del state.objects[context]
    stack = state.contexts
    if stack and stack[-1] == context:
        stack.pop()


@function(c_void_p)
def cuCtxGetCurrent(state: State, out: int) -> None:
    _write(out, state.context)


@function(c_void_p)
def cuCtxSetCurrent(state: State, context: int | None) -> None:
    stack = state.contexts
    if stack:
        stack.pop()
    if context:
        state.of(context, Context)
        stack.append(context)


@function(c_void_p)
def cuCtxPushCurrent(state: State, context: int) -> None:
    state.of(context, Context)
    state.contexts.append(context)


@function(c_void_p)
def cuCtxPopCurrent(state: State, out: int | None) -> None:
    stack = state.contexts
    if not stack:
        raise CudaError(201, "there is no current context")
    _write(out, stack.pop())


@function(c_void_p)
def cuCtxGetDevice(state: State, out: int) -> None:
    _needed(state)
    c_int.from_address(out).value = 0


@function(c_void_p)
def cuCtxGetFlags(state: State, out: int) -> None:
    c_uint.from_address(out).value = _needed(state).flags


@function(c_uint)
def cuCtxSetFlags(state: State, flags: int) -> None:
    _needed(state).flags = flags


@function(c_void_p, c_void_p)
def cuCtxGetApiVersion(state: State, context: int, out: int) -> None:
    c_uint.from_address(out).value = VERSIONS[state.version]


@function(c_void_p, c_void_p)
def cuCtxGetId(state: State, context: int | None, out: int) -> None:
    c_ulonglong.from_address(out).value = context or state.context


@function(also=("cuCtxSynchronize_v2",))
def cuCtxSynchronize(state: State) -> None:
    """Nothing to wait for: all work has completed."""


@function(c_void_p, c_void_p)
def cuStreamGetCtx(state: State, stream: int, out: int) -> None:
    state.stream_of(stream)
    _write(out, state.context or state.primary)


@function(c_void_p, c_int)
def cuDevicePrimaryCtxRetain(state: State, out: int, device: int) -> None:
    if device:
        raise CudaError(101, f"there is one device, 0; asked for {device}")
    handle = state.primary
    state.of(handle, Context).retained += 1
    _write(out, handle)


@function(c_int, plain=False)
def cuDevicePrimaryCtxRelease(state: State, device: int) -> None:
    context = state.of(state.primary, Context)
    context.retained = max(0, context.retained - 1)


@function(c_int, plain=False)
def cuDevicePrimaryCtxReset(state: State, device: int) -> None:
    cudaDeviceReset(state)


@function(c_int, c_uint)
def cuDevicePrimaryCtxSetFlags(state: State, device: int, flags: int) -> None:
    state.of(state.primary, Context).flags = flags


@function(c_int, c_void_p, c_void_p)
def cuDevicePrimaryCtxGetState(state: State, device: int, flags: int, active: int) -> None:
    context = state.of(state.primary, Context)
    c_uint.from_address(flags).value = context.flags
    c_int.from_address(active).value = int(context.retained > 0 or bool(state.registrations))
