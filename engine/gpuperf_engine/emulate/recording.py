"""The recorded program: what the host did, from which line, and what each step changed in memory.

While values are observed every array is compared with itself before each step; which bytes a launch stored to is read off
the shadow (see ``memory``).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import DeviceArray
from .memory import Allocation, Memory

__all__ = ["CallSite", "Event", "Snapshot", "Write", "call_site", "changes", "snapshot", "watch", "written"]


@dataclass(frozen=True, slots=True)
class CallSite:
    """The line of the host program that asked for something: its text without indentation, path and number."""

    text: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Write:
    """What one event did to one object. Digests are of the whole object; counts are in elements of its dtype.

    ``written`` elements were stored to (in part or whole), ``unchanged`` of them had been written before and hold the same bits
    as then. ``single`` is the one value that all elements hold afterwards, or ``None``; ``zero`` says that its bits are 0.
    """

    array: DeviceArray
    elements: int
    written: int
    unchanged: int
    single: str | None
    zero: bool
    digest: str


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the recorded program. ``kind`` is ``allocate copy-in copy memset launch copy-out``; ``objects`` are the
    arrays concerned, the destination first; ``writes`` is filled while values are observed."""

    kind: str
    site: CallSite
    objects: tuple[DeviceArray, ...] = ()
    kernel: str = ""
    bytes: int = 0
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An object before an event: its bytes, and which of them had been written (``None``: all of them)."""

    bytes: NDArray[np.uint8]
    written: NDArray[np.bool_] | None

    @property
    def any_written(self) -> bool:
        return self.written is None or bool(self.written.any())


def call_site() -> CallSite:
    """The innermost line outside this project on the call stack."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("gpuperf_engine", "pytest_gpuperf")):
            path, line = frame.f_code.co_filename, frame.f_lineno
            return CallSite(linecache.getline(path, line).strip(), path, line)
        frame = frame.f_back
    return CallSite("", "", 0)


def snapshot(memory: Memory, allocation: Allocation) -> Snapshot:
    """An allocation as it is now."""
    known = None if allocation.initialized else memory.shadow_of(allocation) != 0
    return Snapshot(memory.view(allocation).copy(), known)


def watch(memory: Memory, arrays: Iterable[DeviceArray]) -> dict[Allocation, Snapshot]:
    """Snapshot the arrays before a launch, and set the shadow so that the launch's own writes can be told."""
    saved: dict[Allocation, Snapshot] = {}
    for array in arrays:
        allocation = array.allocation
        saved[allocation] = snapshot(memory, allocation)
        if saved[allocation].any_written:
            shadow = memory.shadow_of(allocation)
            np.add(shadow, shadow, out=shadow)
        allocation.initialized = allocation.size == 0
    memory.generation += 1
    return saved


def changes(
    memory: Memory, arrays: Iterable[DeviceArray], before: dict[Allocation, Snapshot]
) -> tuple[Write, ...]:
    """What the launch since ``watch`` wrote; sets the shadow back."""
    found = []
    for array in arrays:
        old = before.get(array.allocation)
        if old is None:
            continue
        shadow = memory.shadow_of(array.allocation)
        mask = shadow == 1
        stored = bool(mask.any())
        if stored:
            found.append(written(memory, array, mask, old))
        if stored or old.any_written:  # pages of an array that was never written stay uncommitted
            np.not_equal(shadow, 0, out=shadow.view(np.bool_))
    return tuple(found)


def written(memory: Memory, array: DeviceArray, mask: NDArray[np.bool_], before: Snapshot) -> Write:
    """What a step did to an array; ``mask`` are the bytes of its allocation that the step wrote."""
    now = memory.view(array.allocation)
    width = array.dtype.itemsize
    whole = now.size // width * width
    touched = _any(mask[:whole], width)
    same = touched & _equal(now[:whole], before.bytes[:whole], width)
    if before.written is not None:
        same &= _all(before.written[:whole], width)
    value = now[:width].tobytes()
    single = bool(whole) and _repeats(now[:whole], width)
    return Write(
        array=array,
        elements=whole // width,
        written=int(np.count_nonzero(touched)),
        unchanged=int(np.count_nonzero(same)),
        single=str(np.frombuffer(value, dtype=array.dtype)[0]) if single else None,
        zero=single and not any(value),
        digest=hashlib.sha1(now, usedforsecurity=False).hexdigest(),
    )


#: sizes of elements that NumPy has integers for
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _elements(raw: NDArray[Any], width: int) -> NDArray[Any]:
    """Bytes or flags as elements of so many bytes: one integer each, or a row of bytes where there is no such integer."""
    word = _WORDS.get(width)
    return raw.reshape(-1, width) if word is None else raw.view(word)


def _any(flags: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether any of its bytes is marked."""
    marked = _elements(flags, width) != 0
    return np.asarray(marked if marked.ndim == 1 else marked.any(axis=1))


def _all(flags: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether all of its bytes are marked."""
    elements = _elements(flags, width)
    return np.asarray(
        elements == int.from_bytes(b"\1" * width, "little") if elements.ndim == 1 else elements.all(axis=1)
    )


def _equal(left: NDArray[np.uint8], right: NDArray[np.uint8], width: int) -> NDArray[np.bool_]:
    """For each element of so many bytes whether its bytes are the same."""
    same = _elements(left, width) == _elements(right, width)
    return np.asarray(same if same.ndim == 1 else same.all(axis=1))


def _repeats(raw: NDArray[np.uint8], width: int) -> bool:
    """Whether all elements are equal."""
    rows = _elements(raw, width)
    return bool((rows[:64] == rows[:1]).all()) and bool((rows == rows[:1]).all())
