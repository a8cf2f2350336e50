"""What the library calls when a program loads it, and when the program ends."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from . import arrays, events, graphs, launches, memory, properties, registration  # noqa: F401
from .build import IN_C, names
from .calls import FUNCTIONS, bound, missing
from .state import State

__all__ = ["attach", "ended"]

_VARIANT = re.compile(r"_pt[ds][sz]$")
_state: State | None = None
#: callbacks must live as long as C may call them
_kept: list[Any] = []


def attach(library: str, slots: int, caller: int) -> None:
    """Fills the slots of a library that was loaded. ``caller`` is its function that says where a launch returns to."""
    global _state
    _state = _state or State.from_environment(os.environ)
    table = (ctypes.c_void_p * len(names())).from_address(slots)
    version = int(library.rpartition(".")[2])
    _state.version = version
    _state.callers.append(ctypes.PYFUNCTYPE(ctypes.c_void_p)(caller))
    for number, name in enumerate(names()):
        if name in IN_C:
            continue
        plain = _VARIANT.sub("", name)
        known = FUNCTIONS.get(f"{plain}@{version}") or FUNCTIONS.get(plain)
        call = missing(plain, _state) if known is None else bound(plain, known, _state)
        _kept.append(call)
        table[number] = ctypes.cast(call, ctypes.c_void_p).value


def ended() -> None:
    """The program is about to end."""
    if _state is not None:
        _state.report()
