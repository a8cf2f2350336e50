"""Functions that the libraries call when a program first uses them, and when it ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
from dataclasses import dataclass
from threading import RLock
from typing import Any

from . import driver  # noqa: F401 - it imports the modules of all functions
from .build import names
from .calls import DRIVER, bound
from .registration import Registrations
from .state import State

__all__ = ["after_fork", "attach", "before_fork", "begin", "ended", "forgive"]

_state: State | None = None
#: keeps callbacks alive as long as C may call them
_kept: list[Any] = []
_lock = RLock()
_RELEASES = re.compile(
    r"(Free|Destroy|Unload|Release|Unregister|Detach|CtxPushCurrent|CtxPopCurrent|CtxSetCurrent)"
)


@dataclass(frozen=True, slots=True)
class _Attached:
    """A loaded library: the table of its slots, and the C functions that replace the slots before Python is finalised: by name, for
    functions that release something, and for all others."""

    library: str
    table: Any
    named: dict[str, int]
    released: int
    others: int


_attached: dict[int, _Attached] = {}


def before_fork() -> None:
    """Wait until no other thread is inside a function of CUDA, which a forked process would never leave. To be called before the locks
    of the compiler are taken, which such a thread may wait for."""
    if _state is not None:
        _state.lock.acquire()


def after_fork() -> None:
    """To be called in both processes."""
    if _state is not None:
        _state.lock.release()


def begin(state: State) -> None:
    """Set the state that the libraries use, instead of one from the environment. Must be called before any of their functions, else
    it raises ``RuntimeError``."""
    global _state
    with _lock:
        if _state is not None and _state is not state:
            raise RuntimeError("a function of CUDA was called before")
        _state = state


def forgive() -> None:
    """Clear the error of a kernel that failed, so that the device can be used again, as ``cudaDeviceReset`` does, but keep memory and
    modules."""
    if _state is not None:
        _state.sticky = _state.last = 0


def attach(library: str, slots: int, parts: int) -> None:
    """Fill the slots of a library on its first call; ``parts``: seven pointers, see ``shim.c``."""
    global _state
    with _lock:
        _state = _state or State.from_environment(os.environ)
        if slots in _attached:
            return
        if not _attached:
            atexit.register(_unload)
        caller, others, released, text, driver_text, chunk, count = (ctypes.c_void_p * 7).from_address(parts)
        _state.callers.append(ctypes.PYFUNCTYPE(ctypes.c_void_p)(caller or 0))
        if library != DRIVER:
            _state.version = int(library.rpartition(".")[2])
            _state.registrations.append(Registrations(chunk or 0, count or 0))
        table = (ctypes.c_void_p * len(names(library))).from_address(slots)
        texts = dict.fromkeys(("cudaGetErrorName", "cudaGetErrorString"), text or 0)
        texts |= dict.fromkeys(("cuGetErrorName", "cuGetErrorString"), driver_text or 0)
        _attached[slots] = _Attached(library, table, texts, released or 0, others or 0)
        for number, name in enumerate(names(library)):
            call = bound(name, library, _state)
            _kept.append(call)
            table[number] = ctypes.cast(call, ctypes.c_void_p).value


def _unload() -> None:
    """whether values are observed; their call paths use ``called``, the current CUDA function, and ``launching``, the return address
    of the launch"""
    ended()
    for one in _attached.values():
        for number, name in enumerate(names(one.library)):
            other = one.released if _RELEASES.search(name) else one.others
            one.table[number] = one.named.get(name, other)


def ended() -> None:
    """The program is about to end: write its reports."""
    if _state is not None:
        _state.work.finish()
        _state.report()
