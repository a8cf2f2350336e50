"""What the library calls when a program loads it, and when the program ends."""

from __future__ import annotations

import ctypes
import os
from threading import RLock
from typing import Any

from . import arrays, driver, events, graphs, launches, memory, properties, registration  # noqa: F401
from .build import names
from .calls import DRIVER, bound
from .registration import Registrations
from .state import State

__all__ = ["attach", "ended"]

_state: State | None = None
#: callbacks must live as long as C may call them
_kept: list[Any] = []
_attached: set[int] = set()
_lock = RLock()


def attach(library: str, slots: int, parts: int) -> None:
    """Fills the slots of a library, of which a function was called; ``parts``: three pointers, see ``shim.c``."""
    global _state
    with _lock:
        _state = _state or State.from_environment(os.environ)
        if slots in _attached:
            return
        _attached.add(slots)
        caller, chunk, count = (ctypes.c_void_p * 3).from_address(parts)
        _state.callers.append(ctypes.PYFUNCTYPE(ctypes.c_void_p)(caller or 0))
        if library != DRIVER:
            _state.version = int(library.rpartition(".")[2])
            _state.registrations.append(Registrations(chunk or 0, count or 0))
        table = (ctypes.c_void_p * len(names(library))).from_address(slots)
        for number, name in enumerate(names(library)):
            call = bound(name, library, _state)
            _kept.append(call)
            table[number] = ctypes.cast(call, ctypes.c_void_p).value


def ended() -> None:
    """The program is about to end."""
    if _state is not None:
        _state.report()
