"""The recorded program: what the host did, from which line, and what each step changed in memory.

While values are observed every array that a step stores to is compared with itself before; which bytes a launch stored to is read
off the shadow (see ``memory``).
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import Allocation, Memory
from ..memory.arrays import DeviceArray

__all__ = ["CallSite", "Event", "Snapshot", "Watching", "Write", "call_site", "snapshot", "written"]


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


class Watching:
    """What a launch changes in some arrays, given by their allocations, and variables: each is saved just before the first store to
    it, and its shadow set so that the launch's own writes can be told. What a launch does not store to costs nothing."""

    def __init__(
        self,
        memory: Memory,
        arrays: Mapping[Allocation, DeviceArray],
        variables: Sequence[DeviceArray] = (),
    ) -> None:
        self.memory = memory
        self.arrays = arrays
        self.variables = {variable.allocation: variable for variable in variables}
        self.saved: dict[Allocation, Snapshot] = {}
        self._lock = threading.Lock()
        memory.before_store, memory.begin_again = self.save, self._begin
        self._begin()

    def save(self, allocation: Allocation) -> None:
        """A store is about to be made, by any host thread."""
        with self._lock:
            known = allocation in self.arrays or allocation in self.variables
            if allocation in self.saved or not known:
                return
            before = snapshot(self.memory, allocation)
            shadow = self.memory.shadow_of(allocation)
            if before.written is None:  # perhaps without having been written to
                shadow[:] = 2
            elif before.any_written:
                np.add(shadow, shadow, out=shadow)
            self.memory.set_initialized(allocation, allocation.size == 0)
            self.saved[allocation] = before

    def _begin(self) -> None:
        """The launch begins, perhaps again, with memory as it was."""
        self.saved.clear()
        for allocation in self.memory.images.allocations:
            if allocation is not None:  # surfaces are stored to without looking an address up
                self.save(allocation)

    def changes(self) -> tuple[Write, ...]:
        """What the launch wrote, arrays in order of address and then variables; sets the shadow back."""
        self.memory.before_store = self.memory.begin_again = None
        changes = []
        arrays = sorted(self.saved.keys() - self.variables.keys(), key=lambda item: item.address)
        for allocation in [*arrays, *(item for item in self.variables if item in self.saved)]:
            old = self.saved[allocation]
            shadow = self.memory.shadow_of(allocation)
            mask = shadow == 1
            stored = bool(mask.any())
            if stored:
                known = self.variables if allocation in self.variables else self.arrays
                changes.append(written(self.memory, known[allocation], mask, old))
            if stored or old.any_written:  # pages of an array that was never written stay uncommitted
                np.not_equal(shadow, 0, out=shadow.view(np.bool_))
            if old.written is None:
                self.memory.set_initialized(allocation, True)
        return tuple(changes)


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
