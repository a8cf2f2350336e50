"""The memory that each step of a recorded program reads and changes.

While values are observed, maps of the arena mark the bytes that a launch read and wrote (``Memory.touched``). For each object, the
recorder keeps the contents after the last step, the writers of bytes that were not read since, and whether bytes were ever written and
read. The cost of a step depends only on the objects that it accesses.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import Allocation, Memory
from ..memory.arrays import DeviceArray
from .element_types import UNKNOWN
from .events import Same, Use
from .spans import Marks, Span, all_of_elements, any_of_elements, equal_elements, marked
from .thresholds import Thresholds
from .untyped import WrittenBytes, patterns_of, use_as

__all__ = ["Recorder"]

_READ, _WRITTEN = 1, 2
_MOST_WRITERS = 250
_PIECE = 1 << 16
#: bytes of the widest elements that are numbers
_WORD = 8
#: limit of bytes written by the host that are kept until the type of the elements is known
_WAITING_BYTES = 256 << 20


@dataclass(slots=True)
class _Known:
    """The state of an object between steps."""

    #: ``_READ`` and ``_WRITTEN`` by byte
    flags: Marks
    #: by byte, the index in ``writers`` plus 1 of its writer if it may be unread, else 0
    unread: Marks
    #: contents after the last step
    held: NDArray[np.uint8]
    #: numbers of the events that wrote bytes which may be unread
    writers: list[int] = field(default_factory=list)
    #: ranges of which the host has a current copy
    on_host: list[Span] = field(default_factory=list)
    #: number of the last event that wrote
    writer: int = -1
    keys: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: whether one step wrote every byte
    complete: bool = False
    #: while the type of the elements is unknown: the events that accessed it, and copies and memsets to evaluate later
    events: list[int] = field(default_factory=list)
    waiting: list[WrittenBytes] = field(default_factory=list)


class Recorder:
    """The recorded state of the objects in a device's memory, updated by every step."""

    def __init__(
        self,
        memory: Memory,
        array_of: Callable[[Allocation], DeviceArray | None],
        thresholds: Thresholds,
    ) -> None:
        self.memory = memory
        self.array_of = array_of
        self.thresholds = thresholds
        memory.observe_footprint()
        self._known: dict[Allocation, _Known] = {}
        #: ranges by a key of their length and some of their bytes
        self._alike: dict[bytes, dict[tuple[Allocation, int], None]] = {}
        self._touched: dict[Allocation, None] = {}
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        #: managed objects among the launch's arguments
        self._managed: set[Allocation] = set()
        #: results of ``untouched`` and ``never_read`` for forgotten objects
        self._forgotten: dict[Allocation, tuple[tuple[int, int], dict[int, int]]] = {}

    # -- steps -----------------------------------------------------------------------------------------------------------------------

    def load(self, allocation: Allocation) -> None:
        """Record that a variable of a module was loaded with initial contents; zeros of a variable without do not count as written."""
        known = self._of(allocation)
        known.held[:] = self.memory.view(allocation)
        known.flags.add(Span(0, allocation.size), _WRITTEN)
        known.complete = True

    def host_writes(
        self,
        number: int,
        target: DeviceArray,
        source: DeviceArray | None,
        kind: str,
        masks: Sequence[NDArray[np.bool_] | None] = (None, None),
    ) -> tuple[Use, ...]:
        """Record a copy or memset to an array or view. ``masks``: the bytes of target and source, if not all."""
        span = Span(target.offset, target.offset + target.nbytes, masks[0])
        uses = []
        whole = self._whole(target)
        read = within = None
        if source is not None:
            read = Span(source.offset, source.offset + source.nbytes, masks[1])
        if source is not None and source.allocation is not target.allocation:
            uses.append(self._use(number, self._whole(source), read, None, True))
            self._reconsider(number, source.allocation)
        else:
            within = read
        if whole.dtype == UNKNOWN:
            self._wait(number, target.allocation, span)
        use = self._use(number, whole, within, span, True, kind)
        uses.append(use)
        self._reconsider(number, target.allocation)
        if kind == "copy-in":
            self._of(target.allocation).on_host.append(span)
        return tuple(sorted(uses, key=lambda item: item.array.allocation.address))

    def host_reads(
        self, number: int, array: DeviceArray, mask: NDArray[np.bool_] | None = None
    ) -> tuple[Use, ...]:
        """Record a copy from an array or view to the host. ``mask``: the bytes, if not all."""
        span = Span(array.offset, array.offset + array.nbytes, mask)
        known = self._of(array.allocation)
        has = any(item.contains(span) for item in known.on_host)
        if not has:
            known.on_host.append(span)
        use = self._use(number, self._whole(array), span, None, True)
        self._reconsider(number, array.allocation)
        return (replace(use, bytes_held=span.count if has else 0),)

    def host_accessed(self, allocations: Iterable[Allocation]) -> None:
        """Record that the host may have accessed memory by pointer: it may have read all of it, and wrote the bytes that differ."""
        for allocation in allocations:
            known, whole = self._of(allocation), Span(0, allocation.size)
            changed = self._changed(allocation)
            if changed is not None:
                self._keep(allocation, known, changed, True)
            known.flags.add(whole, _READ)
            known.unread.put(whole, 0)
            known.on_host = [whole]

    def starts(self, pointed: Iterable[Allocation]) -> None:
        """Prepare for a launch with pointers to these objects; other managed objects are not recorded."""
        self._managed = {item for item in pointed if item.host == "managed"}
        self.host_accessed(self._managed)
        self.begin()

    def begin(self) -> None:
        """Start recording a launch, or restart, with memory restored."""
        for allocation in self._touched:
            for touched in self._maps(allocation):
                touched[:] = 0
        self._touched.clear()
        self.memory.on_access, self.memory.begin_again = self._accessed, self.begin

    def _accessed(self, allocation: Allocation) -> None:
        """Note an access; called by any host thread."""
        with self._lock:
            self._touched[allocation] = None

    def end(self, number: int, kept: bool, clear: bool) -> tuple[Use, ...]:
        """Finish a launch: returns its use of each array and variable, in order of address. Memory must be that after the launch.
        ``clear``: clear the maps, which nothing else needs."""
        self.memory.on_access = self.memory.begin_again = None
        uses = []
        images = {item for item in self.memory.images.allocations if item is not None}
        for allocation in sorted({*self._touched, *images}, key=lambda item: item.address):
            followed = not allocation.host or allocation in self._managed
            array = self.array_of(allocation) if followed else None
            maps = self._maps(allocation)
            reads, writes = spans = [marked(touched[: allocation.size]) for touched in maps]
            if allocation in images:  # the maps do not contain their accesses
                reads, writes = Span(0, allocation.size), self._changed(allocation)
            if array is not None and (reads is not None or writes is not None):
                uses.append(self._use(number, array, reads, writes, kept))
                self._reconsider(number, allocation)
            for touched, span in zip(maps, spans) if clear else ():
                # an unmarked map is not committed
                if span is not None:
                    touched[:] = 0
        self._touched.clear()
        return tuple(uses)

    def untouched(self, allocation: Allocation) -> tuple[int, int]:
        """Bytes that nobody has read or written, and bytes that were written and that nobody has read."""
        if allocation in self._forgotten:
            return self._forgotten[allocation][0]
        counts = self._of(allocation).flags.counts(Span(0, allocation.size))
        return counts.get(0, 0), counts.get(_WRITTEN, 0)

    def never_read(self, allocation: Allocation) -> dict[int, int]:
        """By the number of the event that wrote them last the bytes that nobody has ever read."""
        if allocation in self._forgotten:
            return self._forgotten[allocation][1]
        known = self._of(allocation)
        if not known.writers or known.flags.uniform not in (None, _WRITTEN):
            return {}
        whole = slice(0, allocation.size)
        never = None if known.flags.uniform is not None else known.flags.part(whole) == _WRITTEN
        lost = known.unread.counts(Span(0, allocation.size, never))
        return {known.writers[code - 1]: size for code, size in lost.items() if code}

    def forget(self, allocation: Allocation) -> None:
        """Remove an object that was freed, as its memory will be reused."""
        self._forgotten[allocation] = self.untouched(allocation), self.never_read(allocation)
        known = self._known.pop(allocation, None)
        for (start, _), key in known.keys.items() if known is not None else ():
            self._alike[key].pop((allocation, start), None)

    def dropped(self) -> tuple[Allocation, ...]:
        """Return the forgotten objects, and drop their results."""
        gone = tuple(self._forgotten)
        self._forgotten.clear()
        return gone

    # -- elements whose type is not known yet ----------------------------------------------------------------------------------------

    def _wait(self, number: int, allocation: Allocation, span: Span) -> None:
        """Keep the bytes of a copy or memset until the type is known, within the limit."""
        self._waiting_bytes += 2 * (span.end - span.start)
        if self._waiting_bytes > _WAITING_BYTES:
            return
        known = self._of(allocation)
        now = self.memory.view(allocation)[span.slice].copy()
        written = None if known.complete else (known.flags.part(span.slice) & _WRITTEN) != 0
        known.waiting.append(
            WrittenBytes(number, span.start, now, known.held[span.slice].copy(), written, span.mask)
        )

    def _reconsider(self, number: int, allocation: Allocation) -> None:
        """Note that an event accessed an object of unknown type."""
        array = self.array_of(allocation)
        if array is not None and array.dtype == UNKNOWN:
            self._of(allocation).events.append(number)

    def typed(self, array: DeviceArray) -> dict[int, Callable[[Use], Use]]:
        """Set the type of an object's elements. Returns by number of an event a function that updates its use of the object."""
        known = self._of(array.allocation)
        waiting = {item.number: item for item in known.waiting}
        changes: dict[int, Callable[[Use], Use]] = {
            number: partial(use_as, array, waiting.get(number), self.thresholds) for number in known.events
        }
        known.events.clear()
        known.waiting.clear()
        return changes

    def _whole(self, array: DeviceArray) -> DeviceArray:
        """The array of a view."""
        whole = self.array_of(array.allocation)
        return array if whole is None else whole

    # -- one object ------------------------------------------------------------------------------------------------------------------

    def _maps(self, allocation: Allocation) -> list[NDArray[np.uint8]]:
        """The maps of reads and writes of an object, up to the end of its last sector."""
        assert self.memory.touched is not None
        start = allocation.address - self.memory.origin
        return [whole[start : start + -(-allocation.size // 32) * 32] for whole in self.memory.touched]

    def _of(self, allocation: Allocation) -> _Known:
        known = self._known.get(allocation)
        if known is None:
            size = allocation.size
            known = self._known[allocation] = _Known(Marks(size), Marks(size), np.zeros(size, np.uint8))
        return known

    def _changed(self, allocation: Allocation) -> Span | None:
        """Bytes that differ from the contents after the last step."""
        return marked((self.memory.view(allocation) != self._of(allocation).held).view(np.uint8))

    def _use(
        self,
        number: int,
        array: DeviceArray,
        reads: Span | None,
        writes: Span | None,
        kept: bool,
        kind: str = "launch",
    ) -> Use:
        known = self._of(array.allocation)
        width = array.dtype.itemsize
        use = Use(array, array.allocation.size // width if width else 0)
        if reads is not None:
            use = replace(use, bytes_read=reads.count, bytes_blank=_blank(known, reads, writes))
            if kept:
                known.unread.put(reads, 0)
                known.flags.add(reads, _READ)
        if writes is not None and width:
            use = self._written(use, array, writes, known, kind)
            if kept:
                use = replace(use, unread=_note_writer(known, reads, writes, number))
                self._keep(array.allocation, known, writes, use.written > use.unchanged)
                known.writer = number
                if use.single is None:
                    use = replace(use, same=self._same(array, writes, known))
        return use

    def _written(self, use: Use, array: DeviceArray, writes: Span, known: _Known, kind: str) -> Use:
        """The use with the written elements compared with the previous contents."""
        allocation, width = array.allocation, array.dtype.itemsize
        first, last = writes.start // width, min(-(-writes.end // width), use.elements)
        around = slice(first * width, last * width)
        now, before = self.memory.view(allocation)[around], known.held[around]
        same = equal_elements(now, before, width)
        if not known.complete:
            same &= all_of_elements((known.flags.part(around) & _WRITTEN) != 0, width)
        whole = writes.mask is None or (writes.start, writes.end) == (around.start, around.stop)
        touched = None
        if writes.mask is not None:
            mask = writes.mask if whole else writes.within(allocation.size)[around]
            touched = any_of_elements(mask, width)
            same &= touched
        if array.dtype == UNKNOWN:
            same = _same_words(same, touched, around.start)
        values = now.view(array.dtype)
        values = values if touched is None or touched.all() else values[touched]
        unchanged = int(np.count_nonzero(same))
        return replace(
            use,
            written=len(values),
            unchanged=unchanged,
            bytes_written=writes.count,
            bytes_unchanged=min(unchanged * width, writes.count),
            digest=self._digest(allocation, writes) if kind in ("copy-in", "memset") else "",
            **patterns_of(values, array, self.thresholds, len(values) == use.elements),
        )

    def _digest(self, allocation: Allocation, writes: Span) -> str:
        """A digest of the bytes that the host wrote, and of their range."""
        data = self.memory.view(allocation)[writes.slice]
        data = data if writes.mask is None else data[writes.mask]
        written = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        whole = writes.count == allocation.size
        return written if whole else f"{writes.start}+{writes.end - writes.start}:{written}"

    def _keep(self, allocation: Allocation, known: _Known, writes: Span, changes: bool) -> None:
        known.flags.add(writes, _WRITTEN)
        writes.put(known.held, self.memory.view(allocation)[writes.slice])
        known.complete |= writes.mask is None and writes.end - writes.start == allocation.size
        if changes:
            known.on_host = [
                item for item in known.on_host if item.end <= writes.start or writes.end <= item.start
            ]

    # -- equal ranges ----------------------------------------------------------------------------------------------------------------

    def _same(self, array: DeviceArray, writes: Span, known: _Known) -> Same | None:
        """An object or range with the same contents as the object, or as the contiguous written range. Ranges of few elements are
        skipped, as they may be equal by chance."""
        allocation, width = array.allocation, array.dtype.itemsize
        spans = [(0, allocation.size, 2)]
        if writes.mask is None and writes.end - writes.start < allocation.size:
            spans.append((writes.start, writes.end, max(2, self.thresholds.elements)))
        result = None
        for start, end, least in spans:
            if end - start >= least * width:
                result = result or self._alike_to(allocation, start, end, known, width)
        return result

    def _alike_to(
        self, allocation: Allocation, start: int, end: int, known: _Known, width: int
    ) -> Same | None:
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
        start_of = (allocation, start)
        old = known.keys.get((start, end))
        if old is not None and old != key:
            self._alike[old].pop(start_of, None)
        known.keys[start, end] = key
        group = self._alike.setdefault(key, {})
        match = None
        for other, where in sorted(group, key=lambda place: place[0].freed):
            apart = other is not allocation or where >= end or start >= where + len(view)
            array = self.array_of(other)
            if not apart or array is None or not self._equal_now(other, where, view):
                continue
            if self._written_alike(
                known.flags.part(slice(start, end)), other, where, width
            ) and not self._one_value_but_few(view, width):
                match = Same(array, where, len(view), self._of(other).writer, other.freed)
                break
        group[start_of] = None
        return match

    def _written_alike(self, marks: NDArray[np.uint8], other: Allocation, start: int, width: int) -> bool:
        """Whether all or many bytes of two ranges have been written, at the same offsets; unwritten bytes are equal by chance."""
        other_marks = self._of(other).flags.part(slice(start, start + len(marks)))
        written = marks & _WRITTEN
        least = min(len(marks), self.thresholds.elements * width)
        return np.array_equal(written, other_marks & _WRITTEN) and int(np.count_nonzero(written)) >= least

    def _one_value_but_few(self, view: NDArray[np.uint8], width: int) -> bool:
        """Whether all but few elements have one value: such ranges, as of masks, may be equal by chance."""
        count = len(view) // width
        rows = view[: count * width].reshape(count, width)
        for index in (0, count // 2, count - 1):
            others = int(np.count_nonzero((rows != rows[index]).any(axis=1)))
            if others < self.thresholds.elements and count - others >= self.thresholds.most * count:
                return True
        return False

    def _equal_now(self, other: Allocation, start: int, view: NDArray[np.uint8]) -> bool:
        contents = self.memory.view(other)[start : start + len(view)]
        pieces = range(0, len(view), _PIECE)
        return all(np.array_equal(contents[at : at + _PIECE], view[at : at + _PIECE]) for at in pieces)


def _same_words(same: NDArray[np.bool_], touched: NDArray[np.bool_] | None, start: int) -> NDArray[np.bool_]:
    """Of bytes from ``start`` on, those in aligned 8-byte words whose ``touched`` bytes are all the ``same``. So only whole
    elements of any type count as unchanged; single bytes of floats are often equal by chance."""
    changed = ~same if touched is None else touched & ~same
    before = start % _WORD
    words = np.zeros(-(-(before + len(same)) // _WORD) * _WORD, np.bool_)
    words[before : before + len(same)] = changed
    stays = ~words.reshape(-1, _WORD).any(axis=1)
    return same & np.repeat(stays, _WORD)[before : before + len(same)]


def _blank(known: _Known, reads: Span, writes: Span | None) -> int:
    """The number of bytes that were read but had never been written, not even by the step itself."""
    if known.complete:
        return 0
    empty = (known.flags.part(reads.slice) & _WRITTEN) == 0
    if reads.mask is not None:
        empty &= reads.mask
    if writes is not None and empty.any():
        empty &= ~writes.within(known.flags.size)[reads.slice]
    return int(np.count_nonzero(empty))


def _note_writer(known: _Known, reads: Span | None, writes: Span, number: int) -> tuple[tuple[int, int], ...]:
    """The writers of overwritten bytes that were not read, with the number of bytes."""
    lost = known.unread.counts(writes) if known.writers else {}
    result = tuple((known.writers[code - 1], size) for code, size in lost.items() if code)
    if len(known.writers) >= _MOST_WRITERS:
        known.unread = Marks(known.unread.size)
        known.writers.clear()
    known.writers.append(number)
    known.unread.put(writes, len(known.writers))
    if reads is not None:
        # it may have read what it wrote itself
        known.unread.put(reads, 0)
    return result
