"""Streams, events and errors. Stream operations execute when they are enqueued, except behind a kernel that waits (``work``)."""

from __future__ import annotations

import ctypes
import time
from ctypes import CFUNCTYPE, c_float, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass, field
from typing import Any

from .calls import function
from .codes import CudaError, described
from .state import Kind, State, Stream
from .work import Operation

__all__ = ["Event", "text_address"]

_HOST_FUNCTION = CFUNCTYPE(None, c_void_p)
#: of a record or wait in a capture: a node of the graph
_EXTERNAL = 1
_NOT_READY = 600
_STREAM_CALLBACK = CFUNCTYPE(None, c_void_p, c_int, c_void_p)
_texts: dict[str, ctypes.Array[ctypes.c_char]] = {}


@dataclass
class Event:
    """The time at which it was recorded, in seconds; if a stream was captured then, its graph and the nodes before the event."""

    seconds: float | None = None
    #: the operation that records it, if operations before it have not ended
    pending: Operation | None = None
    graph: object = None
    before: list[Any] = field(default_factory=list)


def _nothing() -> None:
    """An operation without effect."""


# -- streams --------------------------------------------------------------------------------------------------------------


@function(c_void_p)
def cudaStreamCreate(state: State, out: int) -> None:
    c_void_p.from_address(out).value = state.new(Stream())


@function(c_void_p, c_uint)
def cudaStreamCreateWithFlags(state: State, out: int, flags: int) -> None:
    c_void_p.from_address(out).value = state.new(Stream(flags))


@function(c_void_p, c_uint, c_int)
def cudaStreamCreateWithPriority(state: State, out: int, flags: int, priority: int) -> None:
    c_void_p.from_address(out).value = state.new(Stream(flags, priority))


@function(c_void_p)
def cudaStreamDestroy(state: State, stream: int) -> None:
    state.of(stream, Stream)
    del state.objects[stream]
    state.captures.pop(stream, None)


@function(c_void_p)
def cudaStreamSynchronize(state: State, stream: int) -> None:
    """A stream that is captured has nothing to wait for, and its capture ends with an error."""
    _refuse_captured(state, stream)
    if state.work.operations:
        state.work.wait(state.work.of(state.number_of(stream)))
        _raise_sticky(state)


@function(c_void_p)
def cudaStreamQuery(state: State, stream: int) -> None:
    _refuse_captured(state, stream)
    if state.work.operations:
        if state.work.unfinished(state.work.of(state.number_of(stream))):
            raise CudaError(_NOT_READY)
        _raise_sticky(state)


def _refuse_captured(state: State, stream: int) -> None:
    capture = state.capture_of(stream)
    if capture is not None:
        capture.graph.invalid = True
        raise CudaError(900)


def _raise_sticky(state: State) -> None:
    """Raise the error of a kernel that has ended meanwhile."""
    if state.sticky:
        raise CudaError(state.sticky)


@function(c_void_p, c_void_p)
def cudaStreamGetFlags(state: State, stream: int, out: int) -> None:
    c_uint.from_address(out).value = state.stream_of(stream).flags


@function(c_void_p, c_void_p)
def cudaStreamGetPriority(state: State, stream: int, out: int) -> None:
    c_int.from_address(out).value = state.stream_of(stream).priority


@function(c_void_p, c_void_p)
def cudaStreamGetDevice(state: State, stream: int, out: int) -> None:
    state.stream_of(stream)
    c_int.from_address(out).value = 0


@function(c_void_p, c_void_p)
def cudaStreamGetId(state: State, stream: int, out: int) -> None:
    state.stream_of(stream)
    c_ulonglong.from_address(out).value = stream or 0


@function(c_void_p, c_void_p, c_uint)
def cudaStreamWaitEvent(state: State, stream: int, event: int, flags: int) -> None:
    """An event that was recorded in a capture brings the stream into it. Flags: 1 adds a node that waits outside of the graph."""
    own = state.capture_of(stream)
    awaited = state.of(event, Event)
    opened = next((item for item in state.captures.values() if item.graph is awaited.graph), None)
    if own is not None and flags & _EXTERNAL:
        own.append(_nothing, Kind.WAIT).given = c_void_p(event)
    elif opened is not None and own is None:
        state.captures[stream or 0] = type(opened)(awaited.graph, opened.origin, list(awaited.before))
    elif opened is not None and own.graph is awaited.graph:
        own.before = list(dict.fromkeys([*own.before, *awaited.before]))
    elif opened is not None:
        raise CudaError(902, "the event was recorded in the capture of another graph")
    elif own is None and _is_pending(awaited):
        assert awaited.pending is not None
        joined = not state.stream_of(stream).flags & 1
        state.work.submit(state.number_of(stream), joined, _nothing, after=[awaited.pending])


def _is_pending(event: Event) -> bool:
    return event.pending is not None and not event.pending.ended


@function(c_void_p, c_void_p, c_void_p, c_uint)
def cudaStreamAddCallback(state: State, stream: int, callback: int, data: int, flags: int) -> None:
    state.enqueue(stream, lambda: _STREAM_CALLBACK(callback)(stream, 0, data), Kind.HOST)


@function(c_void_p, c_void_p, c_void_p)
def cudaLaunchHostFunc(state: State, stream: int, callback: int, data: int) -> None:
    state.enqueue(stream, lambda: _HOST_FUNCTION(callback)(data), Kind.HOST)


@function()
def cudaCtxResetPersistingL2Cache(state: State) -> None:
    """No effect here: it would only change times."""


# -- events ---------------------------------------------------------------------------------------------------------------


@function(c_void_p)
def cudaEventCreate(state: State, out: int) -> None:
    c_void_p.from_address(out).value = state.new(Event())


@function(c_void_p, c_uint)
def cudaEventCreateWithFlags(state: State, out: int, flags: int) -> None:
    c_void_p.from_address(out).value = state.new(Event())


@function(c_void_p)
def cudaEventDestroy(state: State, event: int) -> None:
    state.of(event, Event)
    del state.objects[event]


@function(c_void_p, c_void_p)
def cudaEventRecord(state: State, event: int, stream: int) -> None:
    recorded, capture = state.of(event, Event), state.capture_of(stream)
    recorded.graph, recorded.before = (None, []) if capture is None else (capture.graph, capture.before)
    recorded.pending = None
    if capture is None and state.work.operations:
        recorded.pending = state.enqueue(stream, lambda: _record(recorded), Kind.RECORD)
    else:
        _record(recorded)


def _record(event: Event) -> None:
    event.seconds = time.perf_counter()


@function(c_void_p, c_void_p, c_uint)
def cudaEventRecordWithFlags(state: State, event: int, stream: int, flags: int) -> None:
    """Flags: 1 adds a node to the graph of a capture that records the event when it runs."""
    capture = state.capture_of(stream)
    if capture is not None and flags & _EXTERNAL:
        state.of(event, Event)
        capture.append(lambda: cudaEventRecord(state, event, 0), Kind.RECORD).given = c_void_p(event)
        return
    cudaEventRecord(state, event, stream)


@function(c_void_p)
def cudaEventSynchronize(state: State, event: int) -> None:
    pending = _recorded(state, event).pending
    if pending is not None:
        state.work.wait(lambda operation: operation is pending)
        _raise_sticky(state)


@function(c_void_p)
def cudaEventQuery(state: State, event: int) -> None:
    pending = _recorded(state, event).pending
    if pending is not None:
        if state.work.unfinished(lambda operation: operation is pending):
            raise CudaError(_NOT_READY)
        _raise_sticky(state)


def _recorded(state: State, event: int) -> Event:
    """An event. Raises ``CudaError`` if it was last recorded in a capture."""
    known: Event = state.of(event, Event)
    if known.graph is not None:
        raise CudaError(907)
    return known


@function(c_void_p, c_void_p, c_void_p, also=("cudaEventElapsedTime_v2",))
def cudaEventElapsedTime(state: State, out: int, start: int, end: int) -> None:
    events = [_recorded(state, event) for event in (start, end)]
    if any(map(_is_pending, events)):
        raise CudaError(_NOT_READY)
    first, last = (event.seconds for event in events)
    if first is None or last is None:
        raise CudaError(400, "the time since an event that was not recorded")
    c_float.from_address(out).value = 1e3 * (last - first)


# -- errors and the device as a whole -------------------------------------------------------------------------------------


@function(plain=False)
def cudaGetLastError(state: State) -> int:
    code, state.last = state.sticky or state.last, 0
    return code


@function(plain=False)
def cudaPeekAtLastError(state: State) -> int:
    return state.sticky or state.last


@function(c_int, result=c_void_p, plain=False)
def cudaGetErrorName(state: State, code: int) -> int:
    return text_address(described(code)[0])


@function(c_int, result=c_void_p, plain=False)
def cudaGetErrorString(state: State, code: int) -> int:
    return text_address(described(code)[1])


def text_address(text: str) -> int:
    """The address of a C string that is kept alive."""
    return ctypes.addressof(_texts.setdefault(text, ctypes.create_string_buffer(text.encode())))


@function(also=("cudaThreadSynchronize",))
def cudaDeviceSynchronize(state: State) -> None:
    """Nothing to wait for: all work has completed."""


@function(plain=False, also=("cudaThreadExit",))
def cudaDeviceReset(state: State) -> None:
    """Free all memory and clear the sticky error."""
    for key in [key for key in state.objects if isinstance(key, tuple) and key[0] == "memory"]:
        del state.objects[key]
        if state.objects.pop(("imported", key[1]), None):
            state.device.close_shared(key[1])
        else:
            state.device.free(key[1])
    state.settings.clear()
    state.sticky = state.last = 0


@function(also=("cudaProfilerStop",))
def cudaProfilerStart(state: State) -> None:
    """No effect here: everything is counted."""
