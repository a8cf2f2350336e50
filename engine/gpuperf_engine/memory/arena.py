"""Device memory: one arena with virtual, fixed addresses (``access_faults`` has the messages for accesses that miss it).

Global addresses do not depend on the host: the first allocation of every device starts at ``GLOBAL_BASE``, each further
one at the next multiple of 256 behind a gap of one page, so that an overrun lands in no allocation. Constant variables and kernel
parameters are allocations too, each kind in its window of the generic address space, below. ``host address = arena base +
(device address − ARENA_BASE)``.

The shadow has one byte per byte of the arena: 0 means never written. A kernel's store writes 1 there unless its allocation
is ``initialized``.

Generic addresses (PTX manual, "Generic Addressing"): the shared and local windows lie outside the arena, so a generic
address belongs to exactly one state space. All addresses here are generic.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError
from ..isa.spaces import WINDOWS
from ..ptx.syntax import Variable
from ..source import Span
from .heap import HEAP_BYTES, Heap, Kept
from .image_rows import Images
from .spaces import KINDS

__all__ = [
    "ALIGNMENT",
    "ARENA_BASE",
    "DEFAULT_BYTES",
    "FAR",
    "GAP",
    "GLOBAL_BASE",
    "LOCAL_WINDOW",
    "PADDED",
    "READ_ONLY",
    "SHARED_WINDOW",
    "WINDOW_BYTES",
    "Allocation",
    "Memory",
    "Saved",
]

GLOBAL_BASE = 0x7F00_0000_0000
#: a generic address belongs to a window if it is less than ``WINDOW_BYTES`` above its base
SHARED_WINDOW, WINDOW_BYTES = WINDOWS["shared"]
LOCAL_WINDOW = WINDOWS["local"][0]
#: where the arena begins: with the first of the windows that it holds
ARENA_BASE = min(WINDOWS["const"][0], WINDOWS["param"][0])
ALIGNMENT = 256
GAP = 4096
DEFAULT_BYTES = 4 << 30
#: numbers of CTAs that fit 31 bits
_MOST_NUMBERS = 1 << 31
#: in the column of kinds of ``Memory.table``
PADDED = 256
#: kinds of memory in windows of their own, which kernels do not write
READ_ONLY = {"const": "constant", "param": "parameter"}
#: stands for all addresses of shared memory beyond 32 bits: in none, and a multiple of the size of any access
FAR = 0xFFFFFF00
#: ``MAP_NORESERVE`` of Linux's mman.h, which Python names only from 3.13 on
_NORESERVE = 0x4000 if sys.platform == "linux" else 0


def _gap(kind: str) -> int:
    """Bytes after an allocation that belong to none; windows are too small for pages of them."""
    return GAP if kind == "global" else 1


@dataclass(slots=True, eq=False)
class Allocation:
    """A named piece of the arena: ``[address, address + size)``. ``kind`` is ``global``, ``const`` or ``param``; the last two
    cannot be stored to. ``initialized`` is true once every byte has been written. ``index`` counts all in the order made.
    ``pad`` are the bytes behind it that may be accessed too; ``None``: those of an element that begins inside (``padding``). ``axes``:
    of an array of two or three axes longer than one element the bytes of the last one, and of the last two if there are three."""

    name: str
    address: int
    size: int
    kind: str = "global"
    initialized: bool = False
    index: int = 0
    pad: int | None = 0
    axes: tuple[int, int] = (0, 0)

    @property
    def end(self) -> int:
        return self.address + self.size


#: allocations with whether they were initialised, their bytes and their shadow
Contents: TypeAlias = "list[tuple[Allocation, bool, NDArray[np.uint8], NDArray[np.uint8]]]"


@dataclass(frozen=True, slots=True)
class Saved:
    """What launches can change. ``heap``: its state, bytes and shadow."""

    contents: Contents
    heap: tuple[Kept, NDArray[np.uint8], NDArray[np.uint8]]


class Memory:
    """The arena of one device: ``bytes`` (uint8, the arena), ``shadow`` (uint8, 1 = written), allocations in address order.

    The host pages are reserved, not committed: an arena of 4 GiB costs what is touched. Raises ``LaunchError`` when an
    allocation does not fit.
    """

    def __init__(self, capacity: int = DEFAULT_BYTES, heap_bytes: int = HEAP_BYTES) -> None:
        self.capacity = capacity
        #: where ``malloc`` of kernels takes from: behind everything else, so that its rows of ``table`` come last
        self.heap = Heap(GLOBAL_BASE + -(-(capacity + GAP) // GAP) * GAP, heap_bytes)
        self._reserved = self.heap.start + self.heap.span - ARENA_BASE
        self.bytes: NDArray[np.uint8] = _reserve(self._reserved)
        self.shadow: NDArray[np.uint8] = _reserve(self._reserved)
        #: host addresses of both
        self.host, self.host_shadow = int(self.bytes.ctypes.data), int(self.shadow.ctypes.data)
        self.allocations: list[Allocation] = []
        self.images = Images()
        self._starts: list[int] = []
        #: by kind: the first address that is free and the end; nothing lies at the first page of a window, where null points
        self._room = {
            "global": [GLOBAL_BASE, GLOBAL_BASE + capacity],
            **{
                kind: [base + GAP, base + size] for kind, (base, size) in WINDOWS.items() if kind in READ_ONLY
            },
        }
        #: the rows of ``table``, as far as they are there
        self._rows = np.zeros((0, 4), np.int64)
        self._filled = 0
        #: allocations that are not wholly written yet, and launches since all of them were looked at
        self._pending: dict[Allocation, None] = {}
        self._since = 0
        #: called with each allocation when a launch accesses it for the first time; ``None``: no observer
        self.on_access: Callable[[Allocation], object] | None = None
        #: called when a launch begins again, with memory restored
        self.begin_again: Callable[[], object] | None = None
        #: raised whenever an allocation is made or its ``initialized`` changes: caches keyed by it stay right
        self.generation = 0
        #: while the footprint is observed: a byte each for the bytes of the arena, 1 where a launch read, and where it wrote
        self.touched: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None
        self._race_lines: NDArray[np.uint8] | None = None
        self._race_segments: NDArray[np.uint8] | None = None
        self._race_number = 1

    @property
    def global_span(self) -> int:
        """Bytes from ``GLOBAL_BASE`` to the end of the arena."""
        return self._reserved - (GLOBAL_BASE - ARENA_BASE)

    def race_numbers(self, ctas: int) -> int:
        """The number of the first of so many CTAs of a launch: those of earlier launches are lower, so that nothing has to be
        cleared."""
        if self._race_number + ctas >= _MOST_NUMBERS:
            self._race_lines = None
            self._race_number = 1
        first = self._race_number
        self._race_number += ctas
        return first

    def race_lines(self, line: int, cell: int) -> NDArray[np.uint8]:
        """``cell`` bytes for each line of so many bytes of global memory, for what is known of who accessed it."""
        if self._race_lines is None:
            self._race_lines = _reserve(-(-self.global_span // line) * cell)
        return self._race_lines

    def race_segments(self, size: int) -> NDArray[np.uint8]:
        """So many bytes, zero where no launch has written to them."""
        if self._race_segments is None:
            self._race_segments = _reserve(size)
        return self._race_segments

    def observe_footprint(self) -> None:
        """Have accesses noted for ``device.footprint``."""
        if self.touched is None:
            # room for the whole last sector
            self.touched = (_reserve(self._reserved + 32), _reserve(self._reserved + 32))

    def beside(self) -> NDArray[np.uint8]:
        """A byte for each of the arena's: zero, and costing what is touched."""
        return _reserve(self._reserved)

    def allocate(
        self, size: int, name: str, kind: str = "global", align: int = ALIGNMENT, pad: int | None = 0
    ) -> Allocation:
        """A new allocation of ``size`` bytes (0 is allowed), 256-byte aligned, contents zero but uninitialised. ``pad``: see
        ``Allocation``."""
        free, _ = self._room[kind]
        behind = pad or 0
        address = self._placed(kind, free, size + behind, repr(name) if name else "an array", align)
        allocation = Allocation(name, address, size, kind, size == 0, len(self.allocations), pad)
        index = bisect.bisect(self._starts, address)
        self.allocations.insert(index, allocation)
        self._starts.insert(index, address)
        self._filled = min(self._filled, index)
        if size:
            self._pending[allocation] = None
        self._room[kind][0] = address + size + behind + _gap(kind)
        self.generation += 1
        return allocation

    def require(self, variables: Iterable[Variable]) -> None:
        """Raises ``LaunchError`` for the first of these that there is no room for, if all of them are to be allocated."""
        free = {kind: room[0] for kind, room in self._room.items()}
        for item in variables:
            what = f"variable {item.name!r} (.{item.space})"
            kind = item.space if item.space in self._room else "global"
            address = self._placed(kind, free[kind], item.size, what, item.align, item.span)
            free[kind] = address + item.size + _gap(kind)

    def _placed(
        self, kind: str, free: int, size: int, what: str, align: int, span: Span | None = None
    ) -> int:
        """The address of so many bytes, where everything from ``free`` on is."""
        step = max(ALIGNMENT, align)
        address = -(-free // step) * step
        end = self._room[kind][1]
        if size < 0 or address + size > end:
            whole = self.capacity if kind == "global" else WINDOWS[kind][1]
            raise LaunchError(
                f"{what} needs {size:,} bytes, but {max(0, end - free):,} of {whole:,} bytes of "
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
        start = allocation.address - ARENA_BASE
        return self.bytes[start : start + allocation.size]

    def shadow_of(self, allocation: Allocation) -> NDArray[np.uint8]:
        """One byte per byte of the allocation: 1 where it was written."""
        start = allocation.address - ARENA_BASE
        return self.shadow[start : start + allocation.size]

    def write(self, allocation: Allocation, offset: int, data: bytes | NDArray[np.uint8]) -> None:
        """Copy from the host. The range must lie inside the allocation."""
        raw = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data
        self.view(allocation)[offset : offset + raw.size] = raw
        self.mark(allocation, offset, raw.size)

    def mark(self, allocation: Allocation, offset: int, size: int) -> None:
        """Note that the host or a kernel wrote these bytes."""
        if allocation.initialized:
            return
        if offset == 0 and size == allocation.size:
            self.shadow_of(allocation)[:] = 1
            self.set_initialized(allocation, True)
        else:
            shadow = self.shadow_of(allocation)
            shadow[offset : offset + size] = 1

    def set_initialized(self, allocation: Allocation, initialized: bool) -> None:
        """Note whether every byte of an allocation has been written."""
        if allocation.initialized == initialized:
            return
        allocation.initialized = initialized
        if initialized:
            self._pending.pop(allocation, None)
        else:
            self._pending[allocation] = None
        index = bisect.bisect_left(self._starts, allocation.address)
        if index < self._filled:
            self._rows[index, 3] = initialized
        self.generation += 1

    def clear(self, allocation: Allocation) -> None:
        """Note that a fresh allocation is zero as was asked for; its pages stay uncommitted."""
        self.set_initialized(allocation, True)

    def settle(self, touched: Iterable[Allocation] = ()) -> None:
        """Raise ``initialized`` on allocations that a kernel has filled completely: of those ``touched`` now, of all others once in as
        many launches as there are, so that a launch costs the same beside any number of them."""
        self._since += 1
        everything = self._since >= len(self._pending)
        if everything:
            self._since = 0
        for allocation in [*self._pending] if everything else touched:
            if not allocation.initialized and _all_set(self.shadow_of(allocation)):
                self.set_initialized(allocation, True)

    def save(self) -> Saved:
        """Everything that launches can change, for ``restore``; memory that was never written costs nothing."""
        contents = [
            (item, item.initialized, self.view(item).copy(), self.shadow_of(item).copy())
            for item in self.allocations
            if item.initialized or bool(self.shadow_of(item).any())
        ]
        return Saved(contents, self.save_heap())

    def save_heap(self) -> tuple[Kept, NDArray[np.uint8], NDArray[np.uint8]]:
        """The part of ``save`` that is the heap's: its state, bytes and shadow."""
        heap = self._heap_part()
        return self.heap.save(), self.bytes[heap].copy(), self.shadow[heap].copy()

    def _heap_part(self) -> slice:
        """Where in the arena the blocks are that were ever given."""
        return slice(self.heap.start - ARENA_BASE, self.heap.top - ARENA_BASE)

    @property
    def heap_bytes(self) -> NDArray[np.uint8]:
        """All blocks of the heap, and what lies between them."""
        return self.bytes[self._heap_part()]

    def restore(self, saved: Saved) -> None:
        """Put back what ``save`` kept; what was written since where nothing had been written is unwritten again."""
        state, heap_bytes, heap_shadow = saved.heap
        self.heap.restore(state)
        self.heap_bytes[:] = heap_bytes
        self.shadow[self._heap_part()] = heap_shadow
        known = {item for item, *_ in saved.contents}
        for item, initialized, contents, shadow in saved.contents:
            self.set_initialized(item, initialized)
            self.view(item)[:] = contents
            self.shadow_of(item)[:] = shadow
        for item in self.allocations:
            if item not in known and item.kind == "global" and bool(self.shadow_of(item).any()):
                self.view(item)[:] = 0
                self.shadow_of(item)[:] = 0
                self.set_initialized(item, item.size == 0)
        self.generation += 1

    def resolve(self, address: int, size: int = 1) -> Allocation | None:
        """The allocation that holds ``[address, address + size)`` whole, or ``None``."""
        allocation = self.below(address)
        return allocation if allocation is not None and address + size <= allocation.end else None

    def below(self, address: int) -> Allocation | None:
        """The allocation with the highest start that is not above ``address``; in the heap, one made of the block."""
        if self.heap.holds(address):
            block = self.heap.below(address)
            if block is None:
                return None
            name = "a block of malloc" if block.live else "a freed block of malloc"
            return Allocation(name, block.address, block.size if block.live else 0, index=-1)
        index = bisect.bisect_right(self._starts, address) - 1
        return self.allocations[index] if index >= 0 else None

    def holder(self, address: int) -> Allocation | None:
        """The allocation that an address lies in; blocks of the heap are none."""
        index = bisect.bisect_right(self._starts, address) - 1
        allocation = self.allocations[index] if index >= 0 else None
        return allocation if allocation is not None and address < allocation.end else None

    def table(self) -> NDArray[np.int64]:
        """Shape ``(allocations, 4)``, dtype int64, in address order: start, end, kind (``KINDS``; others than global memory are
        read-only) with ``PADDED`` for a padding of elements that begin inside and 512 for each byte of another one, 1 if initialised.
        Not to be written to."""
        fresh = [
            (
                item.address,
                item.end,
                KINDS[item.kind] + (PADDED if item.pad is None else 2 * PADDED * item.pad),
                int(item.initialized),
            )
            for item in self.allocations[self._filled :]
        ]
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

    @property
    def version(self) -> tuple[int, int]:
        """Changes with ``table``."""
        return self.generation, self.heap.generation


def _all_set(flags: NDArray[np.uint8]) -> bool:
    """Whether no byte is 0; looks no further than the first piece that has one, so that large untouched arrays cost nothing."""
    if flags.size and not (flags[0] and flags[-1]):
        return False
    piece = 1 << 16
    return all(bool(flags[start : start + piece].all()) for start in range(0, flags.size, piece))


def _reserve(size: int) -> NDArray[np.uint8]:
    flags = (
        getattr(mmap, "MAP_PRIVATE", 0)
        | getattr(mmap, "MAP_ANONYMOUS", 0)
        | getattr(mmap, "MAP_NORESERVE", _NORESERVE)
    )
    try:
        pages = mmap.mmap(-1, max(size, 1), flags=flags) if flags else mmap.mmap(-1, max(size, 1))
    except (OSError, OverflowError, ValueError) as error:
        raise LaunchError(
            f"cannot reserve {size:,} bytes for device memory: {error}",
            hint="give the device less with memory_bytes=",
        ) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # not for the windows, of which little is ever touched
        start = (GLOBAL_BASE - ARENA_BASE) // mmap.PAGESIZE * mmap.PAGESIZE
        with contextlib.suppress(OSError):  # a kernel without huge pages; only speed is lost
            pages.madvise(mmap.MADV_HUGEPAGE, start)
    return np.frombuffer(pages, dtype=np.uint8)
