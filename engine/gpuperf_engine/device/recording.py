"""The recorded program: what the host did, from which line, and what each step read and changed in memory.

While values are observed, maps beside the arena say which bytes a launch read and wrote (``Memory.touched``), what each byte held
after the last step, who wrote it without its having been read since, and whether it was ever written and read. A step costs what it
touches; objects that it does not touch are not looked at.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import ARENA_BASE, Allocation, Memory
from ..memory.arrays import DeviceArray
from .contents import Contents, Thresholds, describe

__all__ = ["CallSite", "Event", "Recorder", "Same", "Use", "call_path", "call_site"]

_READ, _WRITTEN, _LAUNCHED = 1, 2, 4
_MOST_WRITERS = 250
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of the host program: its text without indentation, path and number, and the function that it is in."""

    text: str
    path: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Same:
    """Bytes that hold the same as those that a step wrote: of another object, or elsewhere in the same one. ``writer`` is the number
    of the event that wrote them."""

    array: DeviceArray
    start: int
    bytes: int
    writer: int


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
    that led to it, the innermost first. A launch that is not ``kept`` left memory as it was."""

    kind: str
    path: tuple[CallSite, ...]
    objects: tuple[DeviceArray, ...] = ()
    kernel: str = ""
    bytes: int = 0
    uses: tuple[Use, ...] = ()
    number: int = 0
    kept: bool = True

    @property
    def site(self) -> CallSite:
        """The innermost line outside this project."""
        return self.path[0] if self.path else CallSite("", "", 0)

    @property
    def writes(self) -> tuple[Use, ...]:
        """The objects that the event wrote to."""
        return tuple(use for use in self.uses if use.written)


def call_path() -> tuple[CallSite, ...]:
    """The lines on the call stack that are neither this project's nor pytest's, the innermost first."""
    frame: Any = sys._getframe(1)
    sites: list[CallSite] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("gpuperf_engine", "pytest_gpuperf")):
            if module.startswith(("_pytest.", "pluggy.")) and sites:
                break
            path, line, code = frame.f_code.co_filename, frame.f_lineno, frame.f_code
            text = linecache.getline(path, line).strip()
            sites.append(CallSite(text, path, line, getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    return tuple(sites)


def call_site() -> CallSite:
    """The innermost line outside this project on the call stack."""
    path = call_path()
    return path[0] if path else CallSite("", "", 0)


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Some bytes of an object: those from ``start`` to ``end``, of which ``mask`` tells which (``None``: all)."""

    start: int
    end: int
    mask: NDArray[np.bool_] | None = None

    @property
    def count(self) -> int:
        return self.end - self.start if self.mask is None else int(np.count_nonzero(self.mask))

    @property
    def slice(self) -> slice:
        return slice(self.start, self.end)

    def of(self, part: NDArray[Any]) -> NDArray[Any]:
        """These bytes of something that has one for each of the object's."""
        piece = part[self.slice]
        return piece if self.mask is None else piece[self.mask]

    def put(self, part: NDArray[Any], value: Any) -> None:
        if self.mask is None:
            part[self.slice] = value
        else:
            np.copyto(part[self.slice], value, where=self.mask)

    def within(self, size: int) -> NDArray[np.bool_]:
        """One flag for each byte of the object."""
        flags = np.zeros(size, np.bool_)
        self.put(flags, True)
        return flags


@dataclass(slots=True)
class _Known:
    """What is kept of an object between steps."""

    #: numbers of the events that wrote bytes which may be unread; the map ``unread`` has their places here, from 1
    writers: list[int] = field(default_factory=list)
    #: every byte was written
    complete: bool = False
    #: ranges that the host holds as they are
    held: list[tuple[int, int]] = field(default_factory=list)
    #: number of the last event that wrote
    writer: int = -1
    keys: dict[tuple[int, int], bytes] = field(default_factory=dict)


class Recorder:
    """What is known of the values in a device's memory, brought up to date by every step."""

    def __init__(self, memory: Memory, array_of: Callable[[Allocation], DeviceArray | None]) -> None:
        self.memory = memory
        self.array_of = array_of
        self.thresholds = Thresholds()
        memory.observe_footprint()
        #: beside the arena: what each byte held after the last step, its unread writer, and ``_READ``, ``_WRITTEN`` and ``_LAUNCHED``
        self.held, self.unread, self.flags = (memory.beside() for _ in range(3))
        self._known: dict[Allocation, _Known] = {}
        #: ranges by their length and some of their bytes
        self._alike: dict[bytes, dict[tuple[Allocation, int], None]] = {}
        self._touched: dict[Allocation, None] = {}
        self._lock = threading.Lock()

    # -- steps -----------------------------------------------------------------------------------------------------------------------

    def load(self, allocation: Allocation) -> None:
        """A variable of a module has been loaded with initial contents; the zeros of one without are nothing that anybody wrote."""
        part = self._part(allocation)
        self.held[part] = self.memory.view(allocation)
        self.flags[part] |= _WRITTEN

    def host_writes(
        self, number: int, target: DeviceArray, source: DeviceArray | None, kind: str
    ) -> tuple[Use, ...]:
        """A copy or memset has written to an array or view."""
        span = _Bytes(target.offset, target.offset + target.nbytes)
        uses = []
        whole = self._whole(target)
        if source is not None and source.allocation is not target.allocation:
            read = _Bytes(source.offset, source.offset + source.nbytes)
            uses.append(self._use(number, self._whole(source), read, None, True))
        within: _Bytes | None = None
        if source is not None and source.allocation is target.allocation:
            within = _Bytes(source.offset, source.offset + source.nbytes)
        use = self._use(number, whole, within, span, True, kind)
        uses.append(use)
        if kind == "copy-in":
            self._of(target.allocation).held.append((span.start, span.end))
        return tuple(sorted(uses, key=lambda item: item.array.allocation.address))

    def host_reads(self, array: DeviceArray) -> tuple[Use, ...]:
        """A copy to the host has read an array or view."""
        span = _Bytes(array.offset, array.offset + array.nbytes)
        known = self._of(array.allocation)
        has = any(start <= span.start and span.end <= end for start, end in known.held)
        if not has:
            known.held.append((span.start, span.end))
        use = self._use(0, self._whole(array), span, None, True)
        return (replace(use, bytes_held=span.count if has else 0),)

    def begin(self) -> None:
        """A launch begins, perhaps again, with memory as it was."""
        for allocation in self._touched:
            for touched in self._maps(allocation):
                touched[:] = 0
        self._touched.clear()
        self.memory.on_access, self.memory.begin_again = self._accessed, self.begin

    def _accessed(self, allocation: Allocation) -> None:
        """By any host thread."""
        with self._lock:
            self._touched[allocation] = None

    def end(self, number: int, kept: bool, clear: bool) -> tuple[Use, ...]:
        """The launch has ended: what it did with each array and variable, in order of address. Memory must be as it left it.
        ``clear``: nobody else wants the maps."""
        self.memory.on_access = self.memory.begin_again = None
        uses = []
        images = {item for item in self.memory.images.allocations if item is not None}
        for allocation in sorted({*self._touched, *images}, key=lambda item: item.address):
            array = self.array_of(allocation)
            maps = self._maps(allocation)
            reads, writes = (_bytes_of(touched[: allocation.size]) for touched in maps)
            if allocation in images:  # their accesses are in no map
                reads, writes = _Bytes(0, allocation.size), self._changed(allocation)
            if array is not None and (reads is not None or writes is not None):
                uses.append(self._use(number, array, reads, writes, kept))
            for touched in maps if clear else ():
                touched[:] = 0
        self._touched.clear()
        return tuple(uses)

    def untouched(self, allocation: Allocation) -> tuple[int, int]:
        """Bytes that nobody has read or written, and bytes that were written and that nobody has read."""
        flags = self.flags[self._part(allocation)]
        return (
            int(np.count_nonzero(flags == 0)),
            int(np.count_nonzero((flags & (_READ | _WRITTEN)) == _WRITTEN)),
        )

    def _whole(self, array: DeviceArray) -> DeviceArray:
        """The array that a view is of."""
        whole = self.array_of(array.allocation)
        return array if whole is None else whole

    # -- one object ------------------------------------------------------------------------------------------------------------------

    def _part(self, allocation: Allocation) -> slice:
        start = allocation.address - ARENA_BASE
        return slice(start, start + allocation.size)

    def _maps(self, allocation: Allocation) -> list[NDArray[np.uint8]]:
        """What was read and written of an object and of the last sector it begins."""
        assert self.memory.touched is not None
        start = allocation.address - ARENA_BASE
        return [whole[start : start + -(-allocation.size // 32) * 32] for whole in self.memory.touched]

    def _of(self, allocation: Allocation) -> _Known:
        return self._known.setdefault(allocation, _Known())

    def _changed(self, allocation: Allocation) -> _Bytes | None:
        """Bytes that differ from what was there."""
        return _bytes_of((self.memory.view(allocation) != self.held[self._part(allocation)]).view(np.uint8))

    def _use(
        self,
        number: int,
        array: DeviceArray,
        reads: _Bytes | None,
        writes: _Bytes | None,
        kept: bool,
        kind: str = "launch",
    ) -> Use:
        part, known = self._part(array.allocation), self._of(array.allocation)
        flags, unread = self.flags[part], self.unread[part]
        width = array.dtype.itemsize
        use = Use(array, array.allocation.size // width if width else 0)
        if reads is not None:
            blank = self._blank(flags, reads, writes) if not known.complete else 0
            use = replace(use, bytes_read=reads.count, bytes_blank=blank)
            if kept:
                reads.put(unread, 0)
                np.bitwise_or(flags[reads.slice], _READ, out=flags[reads.slice], where=_where(reads))
        if writes is not None and width:
            use = self._written(use, array, writes, known, kind)
            if kept:
                use = replace(use, unread=self._note_writer(known, unread, reads, writes, number))
                self._keep(array.allocation, known, writes, kind, use.written > use.unchanged)
                known.writer = number
                if use.single is None:
                    use = replace(use, same=self._same(array, writes, known))
        return use

    def _blank(self, flags: NDArray[np.uint8], reads: _Bytes, writes: _Bytes | None) -> int:
        """Bytes that were read and that nobody had written, nor the step itself."""
        empty = (flags[reads.slice] & _WRITTEN) == 0
        if reads.mask is not None:
            empty &= reads.mask
        if writes is not None and empty.any():
            empty &= ~writes.within(len(flags))[reads.slice]
        return int(np.count_nonzero(empty))

    def _written(self, use: Use, array: DeviceArray, writes: _Bytes, known: _Known, kind: str) -> Use:
        """What is written now, against what was there."""
        allocation, width = array.allocation, array.dtype.itemsize
        part = self._part(allocation)
        first, last = writes.start // width, min(-(-writes.end // width), use.elements)
        around = slice(first * width, last * width)
        now, before = self.memory.view(allocation)[around], self.held[part][around]
        same = _equal(now, before, width)
        if not known.complete:
            same &= _all((self.flags[part][around] & _WRITTEN) != 0, width)
        whole = writes.mask is None or (writes.start, writes.end) == (around.start, around.stop)
        touched = None
        if writes.mask is not None:
            mask = writes.mask if whole else writes.within(allocation.size)[around]
            touched = _any(mask, width)
            same &= touched
        values = now.view(array.dtype)
        values = values if touched is None or touched.all() else values[touched]
        contents = describe(values, array.shape, self.thresholds, len(values) == use.elements)
        strongest = contents[0] if contents else None
        single = strongest is not None and strongest.rule.startswith("single")
        unchanged = int(np.count_nonzero(same))
        host = kind in ("copy-in", "memset")
        return replace(
            use,
            written=len(values),
            unchanged=unchanged,
            bytes_written=writes.count,
            bytes_unchanged=min(unchanged * width, writes.count),
            contents=contents,
            single=str(values[0]) if single else None,
            zero=single and strongest is not None and strongest.rule == "single-zero",
            digest=hashlib.sha1(self.memory.view(allocation), usedforsecurity=False).hexdigest()
            if host
            else "",
        )

    def _note_writer(
        self,
        known: _Known,
        unread: NDArray[np.uint8],
        reads: _Bytes | None,
        writes: _Bytes,
        number: int,
    ) -> tuple[tuple[int, int], ...]:
        """Who had written what is overwritten and was not read."""
        result: tuple[tuple[int, int], ...] = ()
        codes = writes.of(unread) if known.writers else np.zeros(0, np.uint8)
        if len(codes) and (codes == codes[0]).all():
            result = ((known.writers[codes[0] - 1], len(codes)),) if codes[0] else ()
        elif len(codes):
            lost = np.bincount(codes)
            result = tuple(
                (known.writers[code - 1], int(lost[code])) for code in np.flatnonzero(lost).tolist() if code
            )
        if len(known.writers) >= _MOST_WRITERS:
            unread[:] = 0
            known.writers.clear()
        known.writers.append(number)
        writes.put(unread, len(known.writers))
        if reads is not None:
            # it may have read what it wrote itself
            reads.put(unread, 0)
        return result

    def _keep(self, allocation: Allocation, known: _Known, writes: _Bytes, kind: str, changes: bool) -> None:
        part = self._part(allocation)
        flags = self.flags[part]
        mark = _WRITTEN | (_LAUNCHED if kind == "launch" else 0)
        np.bitwise_or(flags[writes.slice], mark, out=flags[writes.slice], where=_where(writes))
        writes.put(self.held[part], self.memory.view(allocation)[writes.slice])
        known.complete |= writes.mask is None and writes.end - writes.start == allocation.size
        if changes:
            known.held = [
                (start, end) for start, end in known.held if end <= writes.start or writes.end <= start
            ]

    # -- equal ranges ----------------------------------------------------------------------------------------------------------------

    def _same(self, array: DeviceArray, writes: _Bytes, known: _Known) -> Same | None:
        """The object, or the range without gaps that was written, against others of its length."""
        allocation = array.allocation
        spans = [(0, allocation.size)]
        if writes.mask is None and (writes.start, writes.end) != spans[0]:
            spans.append((writes.start, writes.end))
        result = None
        for start, end in spans:
            if end - start >= 2 * array.dtype.itemsize:
                result = result or self._alike_to(allocation, start, end, known)
        return result

    def _alike_to(self, allocation: Allocation, start: int, end: int, known: _Known) -> Same | None:
        view = self.memory.view(allocation)[start:end]
        middle = len(view) // 2
        key = b"".join(
            (
                len(view).to_bytes(8, "little"),
                bytes(view[:32]),
                bytes(view[middle : middle + 32]),
                bytes(view[-32:]),
            )
        )
        place = (allocation, start)
        old = known.keys.get((start, end))
        if old is not None and old != key:
            self._alike[old].pop(place, None)
        known.keys[start, end] = key
        group = self._alike.setdefault(key, {})
        match = None
        for other, where in group:
            apart = other is not allocation or where >= end or start >= where + len(view)
            array = self.array_of(other)
            if apart and array is not None and self._equal_now(other, where, view):
                match = Same(array, where, len(view), self._of(other).writer)
                break
        group[place] = None
        return match

    def _equal_now(self, other: Allocation, start: int, view: NDArray[np.uint8]) -> bool:
        there = self.memory.view(other)[start : start + len(view)]
        return bool(np.array_equal(there, view))


def _where(span: _Bytes) -> Any:
    return True if span.mask is None else span.mask


def _bytes_of(flags: NDArray[np.uint8]) -> _Bytes | None:
    """The bytes that are marked."""
    marks = flags.view(np.bool_)
    counts = [int(np.count_nonzero(marks[start : start + _PIECE])) for start in range(0, len(marks), _PIECE)]
    count = sum(counts)
    if not count:
        return None
    filled = [piece for piece, marked in enumerate(counts) if marked]
    first, last = filled[0] * _PIECE, filled[-1] * _PIECE
    start = first + int(marks[first : first + _PIECE].argmax())
    behind = marks[last : last + _PIECE]
    end = last + len(behind) - int(behind[::-1].argmax())
    return _Bytes(start, end, None if count == end - start else marks[start:end].copy())


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
