"""What the library calls when a program loads it, and when the program ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
from dataclasses import dataclass
from threading import RLock
from typing import Any

from . import arrays, driver, events, graphs, launches, memory, properties, registration, settings, sharing  # noqa: F401
from .build import names
from .calls import DRIVER, bound
from .registration import Registrations
from .state import State

__all__ = ["attach", "begin", "ended", "forgive"]

_state: State | None = None
#: callbacks must live as long as C may call them
_kept: list[Any] = []
_lock = RLock()
_RELEASES = re.compile(r"(Free|Destroy|Unload|Release|Unregister)")


@dataclass(frozen=True, slots=True)
class _Attached:
    """A library: the table of its slots, and the functions of C that they lead to when Python is about to end: by name, of what
    releases, and of all others."""

    library: str
    table: Any
    named: dict[str, int]
    released: int
    others: int


_attached: dict[int, _Attached] = {}


def begin(state: State) -> None:
    """Have the libraries use this state, not one of the environment: before a function of theirs is called. Raises ``RuntimeError``
    after that."""
    global _state
    with _lock:
        if _state is not None and _state is not state:
            raise RuntimeError("a function of CUDA was called before")
        _state = state


def forgive() -> None:
    """Have the device work again after a kernel that failed, as ``cudaDeviceReset`` does, but with memory and modules as they are."""
    if _state is not None:
        _state.sticky = _state.last = 0


def attach(library: str, slots: int, parts: int) -> None:
    """Fills the slots of a library, of which a function was called; ``parts``: seven pointers, see ``shim.c``."""
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
    """Python is about to end: objects that outlive this module may call, and get the error code of a driver that has shut down."""
    ended()
    for one in _attached.values():
        for number, name in enumerate(names(one.library)):
            other = one.released if _RELEASES.search(name) else one.others
            one.table[number] = one.named.get(name, other)


def ended() -> None:
    """The program is about to end."""
    if _state is not None:
        _state.report()
