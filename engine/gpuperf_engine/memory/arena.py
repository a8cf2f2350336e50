"""Device memory: one arena with virtual, fixed addresses (``access_faults`` has the messages for invalid accesses).

Global addresses do not depend on the host: the first allocation of every device starts at ``GLOBAL_BASE``, each further
one at the next multiple of 256 after a gap of one page, so that an overrun hits no other allocation. Freed memory is reused only when
no unused memory is left. Constant variables and kernel parameters are allocations too, in their windows of the generic address space
below. ``host address = arena base + (device address − ARENA_BASE)``; in a mapped arena both are the same number, far from the
addresses at which Linux maps programs and libraries, and host memory can be an allocation too (``adopt``).

The shadow has one byte per byte of the arena: 0 means never written. A kernel's store sets it to 1 unless the allocation is
``initialized``, as one that the host writes completely.

Generic addresses (PTX manual, "Generic Addressing"): the shared and local windows lie outside the arena, so a generic
address belongs to exactly one state space. All addresses here are generic.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._arguments import wrong_type
from .._gc import uncollected
from ..errors import LaunchError
from ..isa.spaces import WINDOWS
from ..ptx.syntax import Variable
from ..source import Span
from .arena_pages import ArenaPages
from .heap import HEAP_BYTES, Heap, Kept
from .holes import Holes
from .image_rows import Images
from .pages import FIRST, LAST, SMALL, at, give_back
from .spaces import KINDS

__all__ = [
    "ALIGNMENT",
    "ARENA_BASE",
    "DEFAULT_BYTES",
    "FAR",
    "GAP",
    "GLOBAL_BASE",
    "LARGEST_BYTES",
    "LOCAL_WINDOW",
    "MAPPED_BYTES",
    "NOTHING",
    "PADDED",
    "READ_ONLY",
    "SHARED_WINDOW",
    "WINDOW_BYTES",
    "Allocation",
    "Memory",
    "Saved",
    "are_addresses",
]

GLOBAL_BASE = 0x3000_0000_0000
#: a generic address belongs to a window if it is less than ``WINDOW_BYTES`` above its base
SHARED_WINDOW, WINDOW_BYTES = WINDOWS["shared"]
LOCAL_WINDOW = WINDOWS["local"][0]
#: the beginning of the arena: that of its first window
ARENA_BASE = min(WINDOWS["const"][0], WINDOWS["param"][0])
ALIGNMENT = 256
#: the end of the addresses of processes
_ADDRESSES_END = 1 << 47
GAP = 4096
DEFAULT_BYTES = 4 << 30
#: size of a mapped arena of no GPU in particular
MAPPED_BYTES = 64 << 30
#: more than any GPU has
LARGEST_BYTES = 1 << 40
#: flag in the column of kinds of ``Memory.table``
PADDED = 256
#: kinds of memory with windows of their own, which kernels cannot write → names in messages
READ_ONLY = {"const": "constant", "param": "parameter"}
#: represents all shared addresses above 32 bits: outside of shared memory, and aligned for any access
FAR = 0xFFFFFF00
#: number of freed allocations that messages know
_FORMER = 1000


#: the shadow of initialised allocations
NOTHING = np.zeros(0, np.uint8)


def _gap(kind: str) -> int:
    """Unallocated bytes after an allocation: a page, or less in windows, which are small."""
    return GAP if kind == "global" else 1


def are_addresses(low: int, high: int, bytes: int) -> bool:
    """Whether integers of so many bytes between two bounds are addresses of a device or of a process, whose values depend on the
    allocator: other data rarely has numbers as large."""
    return bytes == 8 and low >= GLOBAL_BASE and high < _ADDRESSES_END


@dataclass(slots=True, eq=False)
class Allocation:
    """A named range of the arena: ``[address, address + size)``. ``kind`` is ``global``, ``const`` or ``param``; the last two
    are read-only. ``initialized`` is true once every byte has been written. ``index`` numbers allocations in order of creation.
    ``pad``: accessible bytes after it; ``None``: the rest of an element that begins inside (``padding``). ``axes``: for an array with
    two or three axes longer than one element, the bytes along the last axis, and along the last two if there are three.
    ``adopted``: host memory outside the arena. ``cleared``: initialised from the start, so that its shadow is unused.
    ``host``: how the host accesses it other than by copies: ``pinned`` is host memory, ``managed`` belongs to both; empty: not at
    all."""

    name: str
    address: int
    size: int
    kind: str = "global"
    initialized: bool = False
    index: int = 0
    pad: int | None = 0
    axes: tuple[int, int] = (0, 0)
    adopted: bool = False
    freed: bool = False
    cleared: bool = False
    host: str = ""

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def called(self) -> str:
        """For messages: arrays of programs have no names."""
        return repr(self.name) if self.name else "an array"


#: allocations with whether they were initialised, their bytes, and their shadow unless they were
Contents: TypeAlias = "list[tuple[Allocation, bool, NDArray[np.uint8], NDArray[np.uint8]]]"


@dataclass(frozen=True, slots=True)
class Saved:
    """A copy of the state that launches can change. ``heap``: its state, bytes and shadow."""

    contents: Contents
    heap: tuple[Kept, NDArray[np.uint8], NDArray[np.uint8]]


class Memory(ArenaPages):
    """The memory of one device: its pages, and the allocations in them in order of address. Raises ``LaunchError`` when an allocation
    does not fit."""

    def __init__(
        self, capacity: int = DEFAULT_BYTES, heap_bytes: int = HEAP_BYTES, mapped: bool = False
    ) -> None:
        self.capacity = capacity
        #: memory for ``malloc`` of kernels, after all other addresses, so that its rows of ``table`` come last
        self.heap = Heap(GLOBAL_BASE + -(-(capacity + GAP) // GAP) * GAP, heap_bytes)
        super().__init__(ARENA_BASE, GLOBAL_BASE, self.heap.start + self.heap.span, mapped)
        self.allocations: list[Allocation] = []
        self.images = Images()
        self._starts: list[int] = []
        self._next_index = 0
        #: freed ranges of global memory, including their gaps
        self._holes = Holes(ALIGNMENT)
        #: recently freed allocations
        self.former: deque[Allocation] = deque(maxlen=_FORMER)
        #: bytes of global memory that are allocated
        self.used = 0
        #: by kind: the first free address and the end; the first page of a window, where null points, stays unused
        self._room = {
            "global": [GLOBAL_BASE, GLOBAL_BASE + capacity],
            **{
                kind: [base + GAP, base + size] for kind, (base, size) in WINDOWS.items() if kind in READ_ONLY
            },
        }
        #: cached rows of ``table``
        self._rows = np.zeros((0, 4), np.int64)
        self._filled = 0
        #: allocations that are not initialised yet, and launches since all of them were checked
        self._pending: dict[Allocation, None] = {}
        self._since = 0
        #: allocations that count as initialised but were never written
        self._fresh: set[Allocation] = set()
        #: called with each allocation when a launch accesses it for the first time; ``None``: no observer
        self.on_access: Callable[[Allocation], object] | None = None
        #: called when a launch restarts, with memory restored
        self.begin_again: Callable[[], object] | None = None
        #: incremented whenever an allocation is created or its ``initialized`` changes; key of caches
        self.generation = 0

    def allocate(
        self,
        size: int,
        name: str,
        kind: str = "global",
        align: int = ALIGNMENT,
        pad: int | None = 0,
        at: int | None = None,
    ) -> Allocation:
        """A new allocation of ``size`` bytes (0 is allowed), 256-byte aligned, contents zero but uninitialised. ``pad``: see
        ``Allocation``. ``at``: an address in a reserved range (``free``), whose contents are kept."""
        if not isinstance(name, str):
            raise wrong_type("an array", "name", name, "str | None")
        behind = pad or 0
        what = repr(name) if name else "an array"
        free = self._room[kind][0]
        alike = None
        if kind == "global" and size <= SMALL and at is None:
            alike = self._holes.take_alike(size + behind + GAP, max(ALIGNMENT, align))
        address = at or alike or self._placed(kind, free, self._holes, size + behind, what, align)
        self._room[kind][0] = max(free, address + size + behind + _gap(kind))
        allocation = Allocation(name, address, size, kind, size == 0, self._next_index, pad)
        self._insert(allocation)
        if size:
            self._pending[allocation] = None
        return allocation

    def mirror(self, saved: Saved, others: Iterable[Allocation]) -> None:
        """Copy the saved allocations of another memory into this empty one, at the same addresses; ``others``, of which no contents
        were saved, are empty."""
        contents_of = {id(row[0]): row[1:] for row in saved.contents}
        for item in {id(item): item for item in (*others, *(row[0] for row in saved.contents))}.values():
            if item.kind == "param" or item.adopted:
                continue
            initialized, contents, shadow = contents_of.get(id(item), (False, NOTHING, NOTHING))
            copied = Allocation(
                item.name, item.address, item.size, item.kind, False, self._next_index, item.pad
            )
            self._insert(copied)
            if len(contents):
                self.view(copied)[:] = contents
                self.shadow_of(copied)[:] = shadow if len(shadow) else initialized
            if initialized:
                self.set_initialized(copied, True)
            elif item.size:
                self._pending[copied] = None
            room = self._room[item.kind]
            room[0] = max(room[0], item.end + (item.pad or 0) + _gap(item.kind))

    def adopt(self, address: int, size: int, name: str, pad: int | None = 0) -> Allocation:
        """An allocation for existing host memory outside the arena, which counts as initialised. Raises ``LaunchError``."""
        if not self.mapped:
            raise LaunchError(
                "the addresses of this device are not those of the host",
                hint="adopt memory with Device(mapped=True), or copy it with array()",
            )
        if self.heap.blocks:
            raise LaunchError("memory of the host cannot be adopted once kernels have called malloc")
        below, end = self.below(address + max(size, 1) - 1), address + size
        if not FIRST <= address <= end <= LAST or self.is_arena(address, size):
            raise LaunchError(f"{size:,} bytes at {address:#x} are not memory of the host")
        if below is not None and below.end > address and size:
            raise LaunchError(
                f"{size:,} bytes at {address:#x} overlap {below.called} ({below.size:,} bytes at {below.address:#x})",
                hint="free that first",
            )
        allocation = Allocation(name, address, size, "global", True, self._next_index, pad, adopted=True)
        self._insert(allocation)
        return allocation

    # finalizers of a program's arrays may free others while the collector runs, so it does not while these change together
    @uncollected
    def _insert(self, allocation: Allocation) -> None:
        index = bisect.bisect(self._starts, allocation.address)
        try:
            self.allocations.insert(index, allocation)
            self._starts.insert(index, allocation.address)
            self._next_index += 1
            if index < self._filled:
                self._rows = np.insert(self._rows, index, self._row(allocation), axis=0)
                self._filled += 1
            if allocation.kind == "global" and not allocation.adopted:
                self.used += allocation.size
            self.generation += 1
        except BaseException:
            self._derive()
            raise

    def _derive(self) -> None:
        """Recompute everything that follows from ``allocations``, as a signal handler may raise between any two changes."""
        self._starts = [item.address for item in self.allocations]
        self._filled = 0
        self._next_index = max((self._next_index, *(item.index + 1 for item in self.allocations)))
        self.used = sum(item.size for item in self.allocations if item.kind == "global" and not item.adopted)
        self.generation += 1

    @uncollected
    def free(self, allocation: Allocation, again: bool = True) -> None:
        """Free an existing allocation. Unless ``again``, its addresses stay reserved until ``give_again``."""
        index = self._index(allocation)
        assert index is not None
        try:
            # new lists, as finalizers free arrays while others walk or search the old ones
            self.allocations = self.allocations[:index] + self.allocations[index + 1 :]
            self._starts = self._starts[:index] + self._starts[index + 1 :]
            allocation.freed = True
            self.former.append(allocation)
            if index < self._filled:
                self._rows = np.delete(self._rows, index, axis=0)
                self._filled -= 1
            self._pending.pop(allocation, None)
            self._fresh.discard(allocation)
            self.generation += 1
            if allocation.adopted:
                return
            if allocation.kind == "global":
                self.used -= allocation.size
        except BaseException:
            self._derive()
            raise
        if again:
            self.give_again(allocation)

    def give_again(self, allocation: Allocation) -> None:
        """Return the pages of a freed allocation to the host, and make its addresses available."""
        self.empty(allocation)
        if allocation.kind == "global":
            self._holes.put(allocation.address, allocation.end + (allocation.pad or 0) + GAP)

    def empty(self, allocation: Allocation) -> None:
        """Return the pages of a freed allocation to the host."""
        for host in (self.host, self.host_shadow)[: 1 if allocation.cleared else 2]:
            give_back(host + allocation.address - self.origin, allocation.size)

    def _index(self, allocation: Allocation) -> int | None:
        """The index of an allocation in ``allocations``, ``None`` if it was freed."""
        index = bisect.bisect_left(self._starts, allocation.address)
        while index < len(self._starts) and self._starts[index] == allocation.address:
            if self.allocations[index] is allocation:
                return index
            index += 1
        return None

    def require(self, variables: Iterable[Variable]) -> None:
        """Raises ``LaunchError`` for the first of these variables that does not fit, if all are to be allocated."""
        free = {kind: room[0] for kind, room in self._room.items()}
        holes = self._holes.copy()
        for item in variables:
            what = f"variable {item.name!r} (.{item.space})"
            kind = item.space if item.space in self._room else "global"
            address = self._placed(kind, free[kind], holes, item.size, what, item.align, item.span)
            free[kind] = max(free[kind], address + item.size + _gap(kind))

    def _placed(
        self, kind: str, free: int, holes: Holes, size: int, what: str, align: int, span: Span | None = None
    ) -> int:
        """An address for so many bytes: from ``free`` on, or else, for global memory, in ``holes``."""
        step = max(ALIGNMENT, align)
        address = -(-free // step) * step
        end = self._room[kind][1]
        if size < 0 or address + size > end:
            freed = holes.take(size + GAP, step) if kind == "global" and size >= 0 else None
            if freed is not None:
                return freed
            available = self.capacity if kind == "global" else WINDOWS[kind][1]
            raise LaunchError(
                f"{what} needs {size:,} bytes, but {max(0, end - free):,} of {available:,} bytes of "
                f"{'device' if kind == 'global' else READ_ONLY[kind]} memory are left",
                span=span,
                hint="make it smaller"
                + (
                    ", or the device with more memory_bytes="
                    if kind == "global"
                    else ", or use another device"
                ),
            )
        return address

    def view(self, allocation: Allocation) -> NDArray[np.uint8]:
        """The allocation's bytes, writable."""
        if allocation.adopted:
            return at(allocation.address, allocation.size)
        start = allocation.address - self.origin
        return self.bytes[start : start + allocation.size]

    def shadow_of(self, allocation: Allocation) -> NDArray[np.uint8]:
        """One byte per byte of the allocation: 1 where it was written."""
        if allocation.adopted:
            return np.ones(allocation.size, np.uint8)
        start = allocation.address - self.origin
        return self.shadow[start : start + allocation.size]

    def write(self, allocation: Allocation, offset: int, data: bytes | NDArray[np.uint8]) -> None:
        """Copy from the host. The range must lie inside the allocation."""
        raw = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
        self.view(allocation)[offset : offset + raw.size] = raw
        self.mark(allocation, offset, raw.size)

    def mark(self, allocation: Allocation, offset: int, size: int) -> None:
        """Mark bytes that the host or a kernel wrote."""
        self._fresh.discard(allocation)
        if allocation.initialized:
            return
        if offset == 0 and size == allocation.size:
            # its shadow is not used any more; committing it would take as much memory as the array
            self.set_initialized(allocation, True)
        else:
            self.shadow_of(allocation)[offset : offset + size] = 1

    @uncollected
    def set_initialized(self, allocation: Allocation, initialized: bool) -> None:
        """Set whether every byte of an allocation has been written."""
        if allocation.initialized == initialized:
            return
        allocation.initialized = initialized
        if initialized:
            self._pending.pop(allocation, None)
        else:
            self._pending[allocation] = None
        index = self._index(allocation)
        if index is not None and index < self._filled:
            self._rows[index, 3] = initialized
        self.generation += 1

    def zero(self, allocation: Allocation) -> None:
        """Zero an allocation; pages that no kernel writes afterwards stay uncommitted."""
        give_back(self.host + allocation.address - self.origin, allocation.size)
        self.set_initialized(allocation, True)

    def clear(self, allocation: Allocation, fresh: bool = True) -> None:
        """Mark an allocation with an empty shadow as initialised, without committing its pages. ``fresh``: they are zero, and the host
        writes them only by copies."""
        allocation.cleared = True
        self.set_initialized(allocation, True)
        if fresh:
            self._fresh.add(allocation)

    def is_fresh(self, allocation: Allocation) -> bool:
        """Whether zeroing an allocation is free: it was not written completely, so that most pages are not committed yet."""
        return not allocation.initialized or allocation in self._fresh

    def settle(self, touched: Iterable[Allocation] = ()) -> None:
        """Set ``initialized`` on allocations that kernels have written completely. Checks those ``touched`` now, and all others
        once in as many launches as there are allocations, so that the cost of a launch does not depend on their number."""
        self._since += 1
        self._fresh.clear()
        everything = self._since >= len(self._pending)
        if everything:
            self._since = 0
        for allocation in [*self._pending] if everything else touched:
            if not allocation.initialized and _all_set(self.shadow_of(allocation)):
                self.set_initialized(allocation, True)

    def save(self) -> Saved:
        """A copy of the state that launches can change, for ``restore``; memory that was never written is not copied."""
        contents = [
            (item, item.initialized, self.view(item).copy(), self.shadow_of(item).copy())
            for item in self.allocations
            if item.initialized or bool(self.shadow_of(item).any())
        ]
        return Saved(contents, self.save_heap())

    def save_heap(self) -> tuple[Kept, NDArray[np.uint8], NDArray[np.uint8]]:
        """The heap's part of ``save``: its state, bytes and shadow."""
        heap = self._heap_part()
        return self.heap.save(), self.bytes[heap].copy(), self.shadow[heap].copy()

    def restore_heap(self, saved: tuple[Kept, NDArray[np.uint8], NDArray[np.uint8]]) -> None:
        """Restore the result of ``save_heap``."""
        state, heap_bytes, heap_shadow = saved
        self.heap.restore(state)
        self.heap_bytes[:] = heap_bytes
        self.shadow[self._heap_part()] = heap_shadow

    def _heap_part(self) -> slice:
        """The range of the arena with all blocks that were ever allocated."""
        return slice(self.heap.start - self.origin, self.heap.top - self.origin)

    @property
    def heap_bytes(self) -> NDArray[np.uint8]:
        """All blocks of the heap, and what lies between them."""
        return self.bytes[self._heap_part()]

    def restore(self, saved: Saved) -> None:
        """Restore the result of ``save``; memory that was unwritten then becomes unwritten again."""
        self.restore_heap(saved.heap)
        known = {item for item, *_ in saved.contents}
        for item, initialized, contents, shadow in saved.contents:
            if item.freed:
                continue
            self.set_initialized(item, initialized)
            self.view(item)[:] = contents
            self.shadow_of(item)[:] = shadow if len(shadow) else initialized
        for item in self.allocations:
            if item in known or item.kind != "global":
                continue
            if item.initialized or bool(self.shadow_of(item).any()):
                self.view(item)[:] = 0
                self.shadow_of(item)[:] = 0
                self.set_initialized(item, item.size == 0)
        self.generation += 1

    def resolve(self, address: int, size: int = 1) -> Allocation | None:
        """The allocation that contains ``[address, address + size)``, or ``None``."""
        allocation = self.below(address)
        return allocation if allocation is not None and address + size <= allocation.end else None

    def below(self, address: int) -> Allocation | None:
        """The allocation with the highest start that is not above ``address``; for the heap, one that represents the block."""
        if self.heap.holds(address):
            block = self.heap.below(address)
            if block is None:
                return None
            name = "a block of malloc" if block.live else "a freed block of malloc"
            return Allocation(name, block.address, block.size if block.live else 0, index=-1)
        allocations, starts = self.allocations, self._starts
        index = bisect.bisect_right(starts, address) - 1
        return allocations[index] if index >= 0 else None

    def holder(self, address: int) -> Allocation | None:
        """The allocation that contains an address; excludes blocks of the heap."""
        allocations, starts = self.allocations, self._starts
        index = bisect.bisect_right(starts, address) - 1
        allocation = allocations[index] if index >= 0 else None
        return allocation if allocation is not None and address < allocation.end else None

    @uncollected
    def table(self) -> NDArray[np.int64]:
        """Shape ``(allocations, 4)``, dtype int64, in address order: start, end, kind (``KINDS``; others than global memory are
        read-only) with ``PADDED`` for a padding of elements that begin inside and 512 for each byte of another one, 1 if initialised.
        Not to be written to."""
        fresh = [self._row(item) for item in self.allocations[self._filled :]]
        if fresh:
            needed = self._filled + len(fresh)
            if needed > len(self._rows):
                grown = np.zeros((2 * needed, 4), np.int64)
                grown[: self._filled] = self._rows[: self._filled]
                self._rows = grown
            self._rows[self._filled : needed] = fresh
            self._filled = needed
        rows = self._rows[: self._filled]
        return np.concatenate([rows, self.heap.table()]) if self.heap.blocks else rows

    @staticmethod
    def _row(item: Allocation) -> tuple[int, int, int, int]:
        pad = PADDED if item.pad is None else 2 * PADDED * item.pad
        return item.address, item.end, KINDS[item.kind] + pad, int(item.initialized)

    @property
    def version(self) -> tuple[int, int]:
        """Changes with ``table``."""
        return self.generation, self.heap.generation


def _all_set(flags: NDArray[np.uint8]) -> bool:
    """Whether no byte is 0; stops at the first chunk with a 0, so that large untouched arrays are cheap."""
    if flags.size and not (flags[0] and flags[-1]):
        return False
    piece = 1 << 16
    return all(bool(flags[start : start + piece].all()) for start in range(0, flags.size, piece))
