"""The steps of a recorded program: what the host did, from which line, and what each step did with each object."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..memory.arrays import DeviceArray
from ..ptx.module import Function
from .contents import Contents

__all__ = ["CallSite", "Event", "Same", "Use", "call_path", "call_site"]


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of the host program: its text without indentation, path and number, and the function that it is in. Where no line is
    known, ``path`` is a program or library, ``address`` that of the call in it, and ``text`` says what is called and where."""

    text: str
    path: str
    line: int
    function: str = ""
    address: int = 0

    @property
    def file(self) -> str:
        """The path; with the address where there is no line: ``path+0x1234``."""
        return f"{self.path}+{self.address:#x}" if self.address and not self.line else self.path

    @property
    def place(self) -> str:
        """``path:line``, or ``path+0x1234``."""
        return self.file if self.address and not self.line else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Same:
    """Bytes that hold the same as those that a step wrote: of another object, or elsewhere in the same one. ``writer`` is the number
    of the event that wrote them; ``freed``: the other object had been freed by then."""

    array: DeviceArray
    start: int
    bytes: int
    writer: int
    freed: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """What one event did with one object. Elements are of its dtype, ``bytes_…`` are bytes, each counted once.

    ``written`` elements were stored to (in part or whole), ``unchanged`` of them had been written before and hold the same bits
    as then. ``single`` is the one value that all written elements hold, or ``None``; ``zero`` says that it is 0; ``contents`` are the
    patterns that they follow, the strongest first. ``bytes_blank`` were read though nobody had written them, ``bytes_held`` copied to
    the host though it had them already. ``unread``: by the number of an earlier event the bytes that it had written, that nobody
    read, and that this one overwrote. ``digest`` is that of the whole object after a copy or memset of the host's, else empty.
    """

    array: DeviceArray
    elements: int
    written: int = 0
    unchanged: int = 0
    single: str | None = None
    zero: bool = False
    digest: str = ""
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_unchanged: int = 0
    bytes_blank: int = 0
    bytes_held: int = 0
    contents: tuple[Contents, ...] = ()
    unread: tuple[tuple[int, int], ...] = ()
    same: Same | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the recorded program. ``kind`` is ``allocate copy-in copy memset launch copy-out``; ``objects`` are the
    arrays concerned, the destination first; ``uses`` is filled while values are observed, in order of address. ``path`` are the calls
    that led to it, the innermost first. A launch that is not ``kept`` left memory as it was; its
    ``function`` is the kernel."""

    kind: str
    path: tuple[CallSite, ...]
    objects: tuple[DeviceArray, ...] = ()
    kernel: str = ""
    bytes: int = 0
    uses: tuple[Use, ...] = ()
    number: int = 0
    kept: bool = True
    function: Function | None = None

    @property
    def site(self) -> CallSite:
        """The innermost line outside this project."""
        return self.path[0] if self.path else CallSite("", "", 0)

    @property
    def writes(self) -> tuple[Use, ...]:
        """The objects that the event wrote to."""
        return tuple(use for use in self.uses if use.written)


@lru_cache(maxsize=4096)
def _site(path: str, line: int, function: str) -> CallSite:
    return CallSite(linecache.getline(path, line).strip(), path, line, function)


def call_path(between: tuple[str, ...] = ()) -> tuple[CallSite, ...]:
    """The lines on the call stack that are neither this project's nor pytest's, nor of packages ``between`` a program and this
    one, the innermost first."""
    frame: Any = sys._getframe(1)
    sites: list[CallSite] = []
    while frame is not None:
        kind = _kind(frame.f_globals.get("__name__", ""), between)
        if kind == _RUNNER and sites:
            break
        if kind != _INSIDE:
            code = frame.f_code
            sites.append(_site(code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    return tuple(sites)


#: modules between a program and its device, pytest's, and all others
_INSIDE, _RUNNER, _PROGRAM = range(3)


@lru_cache(maxsize=4096)
def _kind(module: str, between: tuple[str, ...]) -> int:
    if module.startswith(("gpuperf_engine", "pytest_gpuperf")) or module.partition(".")[0] in between:
        return _INSIDE
    return _RUNNER if module.startswith(("_pytest.", "pluggy.")) else _PROGRAM


def call_site() -> CallSite:
    """The innermost line outside this project on the call stack."""
    path = call_path()
    return path[0] if path else CallSite("", "", 0)
