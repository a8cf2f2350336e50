"""Current contexts: those of the driver API belong to a thread, and the runtime makes the primary one current where it is used (CUDA's
manual, "Interactions with the CUDA Driver API", and of the driver API, "Context Management")."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest

import gpuperf_engine as ge
from gpuperf_engine.cudart import boot  # noqa: F401  # it registers the functions
from gpuperf_engine.cudart.calls import DRIVER, bound
from gpuperf_engine.cudart.state import State
from gpuperf_engine.machines.machine import load_machine

RUNTIME = "libcudart.so.13"


@pytest.fixture
def state() -> State:
    made = State(ge.Device(memory_bytes=1 << 24, mapped=True), load_machine("h100-sxm"))
    made.registrations.append(object())  # as in a program of the runtime
    return made


def call(state: State, name: str, *arguments: Any) -> int:
    code: int = bound(name, RUNTIME if name.startswith("cuda") else DRIVER, state)(*arguments)
    return code


def current(state: State) -> int | None:
    handle = ctypes.c_void_p(77)
    assert call(state, "cuCtxGetCurrent", ctypes.addressof(handle)) == 0
    return handle.value


def in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_the_runtime_makes_the_primary_context_current_in_the_thread_that_uses_it(state: State) -> None:
    out, count = ctypes.c_void_p(), ctypes.c_int()
    assert current(state) is None
    # these describe the device, and make no context
    assert call(state, "cudaGetDeviceCount", ctypes.addressof(count)) == 0
    assert call(state, "cudaDeviceGetAttribute", ctypes.addressof(count), 16, 0) == 0
    assert call(state, "cudaGetLastError") == 0
    assert current(state) is None
    assert call(state, "cudaMalloc", ctypes.addressof(out), 64) == 0
    primary = ctypes.c_void_p()
    assert call(state, "cuDevicePrimaryCtxRetain", ctypes.addressof(primary), 0) == 0
    assert current(state) == primary.value is not None
    assert in_thread(lambda: current(state)) is None
    assert in_thread(lambda: (call(state, "cudaFree", None), current(state))) == (0, primary.value)
    # a new thread may have the identifier of one that has ended
    assert [in_thread(lambda: current(state)) for _ in range(5)] == [None] * 5


def test_the_runtime_uses_a_context_that_is_current(state: State) -> None:
    own, popped = ctypes.c_void_p(), ctypes.c_void_p()
    assert call(state, "cuCtxCreate_v2", ctypes.addressof(own), 0, 0) == 0
    assert call(state, "cudaFree", None) == 0
    assert current(state) == own.value
    assert call(state, "cuCtxPopCurrent_v2", ctypes.addressof(popped)) == 0
    assert (popped.value, current(state)) == (own.value, None)
    assert call(state, "cudaFree", None) == 0
    assert current(state) not in (None, own.value)
    assert call(state, "cuCtxSetCurrent", None) == 0
    assert current(state) is None


def test_there_is_no_device_without_a_context(state: State) -> None:
    device = ctypes.c_int()
    for name in ("cuCtxGetDevice", "cuCtxGetFlags"):
        assert in_thread(lambda asked=name: call(state, asked, ctypes.addressof(device))) == 201
    assert call(state, "cudaSetDevice", 0) == 0
    assert call(state, "cuCtxGetDevice", ctypes.addressof(device)) == 0
