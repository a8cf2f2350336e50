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
    """An object before an event: its bytes, and which of them had been written."""

    bytes: NDArray[np.uint8]
    written: NDArray[np.bool_]


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
    return Snapshot(memory.view(allocation).copy(), memory.shadow_of(allocation) != 0)


def watch(memory: Memory, arrays: Iterable[DeviceArray]) -> dict[Allocation, Snapshot]:
    """Snapshot the arrays before a launch, and set the shadow so that the launch's own writes can be told."""
    saved: dict[Allocation, Snapshot] = {}
    for array in arrays:
        allocation = array.allocation
        saved[allocation] = snapshot(memory, allocation)
        shadow = memory.shadow_of(allocation)
        shadow[shadow != 0] = 2
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
        if mask.any():
            found.append(written(memory, array, mask, old))
        shadow[shadow != 0] = 1
    return tuple(found)


def written(memory: Memory, array: DeviceArray, mask: NDArray[np.bool_], before: Snapshot) -> Write:
    """What a step did to an array; ``mask`` are the bytes of its allocation that the step wrote."""
    now = memory.view(array.allocation)
    width = array.dtype.itemsize
    whole = now.size // width * width
    touched = _elements(mask[:whole], width)[0]
    same = _elements(((now == before.bytes) & before.written)[:whole], width)[1]
    value = now[:width].tobytes()
    single = bool(whole) and _repeats(now[:whole], width)
    return Write(
        array=array,
        elements=whole // width,
        written=int(touched.sum()),
        unchanged=int((touched & same).sum()),
        single=str(np.frombuffer(value, dtype=array.dtype)[0]) if single else None,
        zero=single and not any(value),
        digest=hashlib.blake2b(now.tobytes(), digest_size=8).hexdigest(),
    )


#: sizes of elements that NumPy has integers for
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _elements(flags: NDArray[np.bool_], width: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each element of so many bytes whether any, and whether all, of its bytes are marked."""
    word = _WORDS.get(width)
    if word is None:
        rows = flags.reshape(-1, width)
        return np.asarray(rows.any(axis=1)), np.asarray(rows.all(axis=1))
    words = flags.view(word)
    marked = np.asarray(words != 0)
    return marked, np.asarray(words == int.from_bytes(b"\1" * width, "little"))


def _repeats(raw: NDArray[np.uint8], width: int) -> bool:
    """Whether all elements are equal."""
    word = _WORDS.get(width)
    rows = raw.reshape(-1, width) if word is None else raw.view(word)
    return bool((rows == rows[:1]).all())
