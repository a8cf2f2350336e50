"""The call stack of a program at a call of CUDA: return addresses on the stack of the thread, as locations in files."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..device.events import CallSite, call_path
from .build import LIBRARIES, PRELOAD

__all__ = ["CallPaths", "located", "object_at"]

_DEPTH = 128
#: libraries between a program and the engine (libffi, ctypes, Python), and those that call ``main``
_BETWEEN = ("libffi", "_ctypes", "libpython", "python3", *LIBRARIES, PRELOAD)
_BELOW = ("libc.so", "libc-", "ld-linux", "libpthread")


class _Info(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def object_at(address: int) -> tuple[Path, Any] | None:
    """The file of the program or library that the dynamic linker has mapped at an address, and its ``Dl_info``."""
    info = _Info()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return None
    return Path(_file(info.file or b"")[0]), info


def located(address: int) -> tuple[str, int, str]:
    """The location of the call before a return address, by the dynamic linker: the file, the address of the call in it (as in its
    symbol table, independent of the load address) and the exported function. Empty if the address is in no file."""
    known = object_at(address - 1) if address else None
    if known is None:
        return "", 0, ""
    info = known[1]
    path, fixed = _file(info.file or b"")
    base = 0 if fixed else info.base or 0
    return path, address - 1 - base, (info.symbol or b"").decode("utf-8", "replace")


@lru_cache(maxsize=256)
def _file(name: bytes) -> tuple[str, bool]:
    """The path of a loaded file, and whether its addresses are absolute (``ET_EXEC``)."""
    file = os.fsdecode(name)
    path = Path("/proc/self/exe").resolve() if not Path(file).is_file() else Path(file).resolve()
    with path.open("rb") as stream:
        return str(path), stream.read(18)[16:18] == b"\x02\x00"


class CallPaths:
    """Returns the call stack of the program: its Python lines if there are any, otherwise a ``CallSite`` for each call of its C code,
    the innermost first, with ``path`` and ``address`` in a file. ``launch_site``: the return address of the current launch, which
    comes first; 0 if there is none or it is unknown. ``function``: the CUDA function that is called."""

    def __init__(self, launch_site: Callable[[], int], function: Callable[[], str]) -> None:
        self._launch_site, self._function = launch_site, function
        self._backtrace = getattr(ctypes.CDLL(None), "backtrace", None)
        self._buffer = (ctypes.c_void_p * _DEPTH)()
        self._known: dict[tuple[str, int, tuple[int | None, ...]], tuple[CallSite, ...]] = {}

    def __call__(self) -> tuple[CallSite, ...]:
        python = call_path()
        if python:
            return python
        count = self._backtrace(self._buffer, _DEPTH) if self._backtrace is not None else 0
        key = self._function(), self._launch_site(), tuple(self._buffer[:count])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._sites(*key)
        return known

    @staticmethod
    def _sites(function: str, launch: int, addresses: tuple[int | None, ...]) -> tuple[CallSite, ...]:
        places = [located(address or 0)[:2] for address in addresses]
        start = 0
        while start < len(places) and _is(places[start][0], _BETWEEN):
            start += 1
        called = [place for place in places[start:] if place[0] and not _is(place[0], (*_BETWEEN, *_BELOW))]
        if launch:
            called.insert(0, located(launch)[:2])
        return tuple(
            CallSite(function if not index else "", *place[:1], 0, "", place[1])
            for index, place in enumerate(called)
        )


def _is(path: str, names: tuple[str, ...]) -> bool:
    return os.path.basename(path).startswith(names)
