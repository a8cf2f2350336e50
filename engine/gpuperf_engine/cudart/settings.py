"""Settings that a program can read back and that have no other effect here: preferences, limits, attributes of streams and pools."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from .calls import function
from .codes import CudaError
from .state import State

__all__: list[str] = []

#: ``cudaLimit``: stack size of a thread, buffer size of printf, heap size
_LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20}
#: ``cudaLaunchAttributeValue``: the attributes that streams have, with their initial values
_VALUE_BYTES = 64
_POLICY, _PRIORITY = 3, 8
_AUTO = 1
#: ``cudaMemPoolAttr``: the first three are ints, initially 1; then the threshold, and reserved or used bytes
_SWITCHES, _THRESHOLD, _LAST = 3, 4, 8
#: ``cudaMemPoolAttrReservedMemHigh``, ``cudaMemPoolAttrUsedMemHigh``
_MOST = (6, 8)
_READ_WRITE = 3


@function(c_int)
def cudaDeviceSetCacheConfig(state: State, config: int) -> None:
    state.settings["cache"] = config


@function(c_void_p)
def cudaDeviceGetCacheConfig(state: State, out: int) -> None:
    c_int.from_address(out).value = state.settings.get("cache", 0)


@function(c_int)
def cudaDeviceSetSharedMemConfig(state: State, config: int) -> None:
    state.settings["banks"] = config


@function(c_void_p)
def cudaDeviceGetSharedMemConfig(state: State, out: int) -> None:
    c_int.from_address(out).value = state.settings.get("banks", 0)


@function(c_uint)
def cudaSetDeviceFlags(state: State, flags: int) -> None:
    state.settings["flags"] = flags


@function(c_void_p)
def cudaGetDeviceFlags(state: State, out: int) -> None:
    c_uint.from_address(out).value = state.settings.get("flags", 0)


@function(c_int, c_size_t)
def cudaDeviceSetLimit(state: State, limit: int, value: int) -> None:
    state.settings["limit", limit] = value


@function(c_void_p, c_int)
def cudaDeviceGetLimit(state: State, out: int, limit: int) -> None:
    value = state.settings.get(("limit", limit), _LIMITS.get(limit, 0))
    c_size_t.from_address(out).value = value


# -- streams --------------------------------------------------------------------------------------------------------------


def _at_first(state: State, stream: int, attribute: int) -> int:
    if attribute == _PRIORITY:
        return state.stream_of(stream).priority
    return _AUTO if attribute == _POLICY else 0


@function(c_void_p, c_int, c_void_p)
def cudaStreamSetAttribute(state: State, stream: int | None, attribute: int, given: int) -> None:
    state.stream_of(stream)
    state.settings["stream", stream or 0, attribute] = ctypes.string_at(given, _VALUE_BYTES)


@function(c_void_p, c_int, c_void_p)
def cudaStreamGetAttribute(state: State, stream: int | None, attribute: int, out: int) -> None:
    state.stream_of(stream)
    first = _at_first(state, stream or 0, attribute).to_bytes(4, "little", signed=True)
    value = state.settings.get(("stream", stream or 0, attribute), first.ljust(_VALUE_BYTES, b"\0"))
    ctypes.memmove(out, value, _VALUE_BYTES)


@function(c_void_p, c_void_p)
def cudaStreamCopyAttributes(state: State, target: int | None, source: int | None) -> None:
    for key, value in [*state.settings.items()]:
        if isinstance(key, tuple) and key[:2] == ("stream", source or 0):
            state.settings["stream", target or 0, key[2]] = value


# -- pools ----------------------------------------------------------------------------------------------------------------


def _check_attribute(attribute: int) -> None:
    if not 1 <= attribute <= _LAST:
        raise CudaError(1, f"{attribute} is not an attribute of a pool")


@function(c_void_p, c_int, c_void_p)
def cudaMemPoolSetAttribute(state: State, pool: int, attribute: int, given: int) -> None:
    """High watermarks can only be reset to 0."""
    _check_attribute(attribute)
    if attribute <= _THRESHOLD:
        kind = c_int if attribute <= _SWITCHES else c_ulonglong
        state.settings["pool", pool, attribute] = kind.from_address(given).value
        return
    used = state.used_of(pool)
    if attribute not in _MOST or c_ulonglong.from_address(given).value:
        raise CudaError(1, "of the counters of a pool only the high watermarks can be set, to 0")
    used.most = used.now


@function(c_void_p, c_int, c_void_p)
def cudaMemPoolGetAttribute(state: State, pool: int, attribute: int, out: int) -> None:
    """Reserved bytes equal used bytes: freed memory is returned at once."""
    _check_attribute(attribute)
    if attribute <= _SWITCHES:
        c_int.from_address(out).value = state.settings.get(("pool", pool, attribute), 1)
        return
    used = state.used_of(pool)
    value = used.most if attribute in _MOST else 0 if attribute == _THRESHOLD else used.now
    c_ulonglong.from_address(out).value = state.settings.get(("pool", pool, attribute), value)


@function(c_void_p, c_void_p, c_void_p)
def cudaMemPoolGetAccess(state: State, out: int, pool: int, location: int) -> None:
    c_int.from_address(out).value = _READ_WRITE
