"""Memory of the reference backend: bytes with their shadow, and the table of allocations of device memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .._gc import uncollected
from ..isa.types import ScalarType
from ..memory.arena import PADDED, Allocation, Memory
from ..memory.spaces import ANY, KINDS, bit_of
from .values import Lanes, dtype_of

__all__ = ["Arena", "Region"]


class Region:
    """Bytes and their shadow; ``words`` are views of the bytes in other widths."""

    __slots__ = ("_views", "bytes", "shadow")

    def __init__(self, data: npt.NDArray[np.uint8], shadow: npt.NDArray[np.uint8]) -> None:
        self.bytes = data
        self.shadow = shadow
        self._views: dict[int, Lanes] = {}

    @classmethod
    def fresh(cls, size: int) -> Region:
        """Zero bytes that no thread has written."""
        whole = -(-size // 16) * 16
        return cls(np.zeros(whole, np.uint8), np.zeros(whole, np.uint8))

    def words(self, width: int) -> Lanes:
        view = self._views.get(width)
        if view is None:
            usable = self.bytes.size // width * width
            view = self._views[width] = self.bytes[:usable].view(f"u{width}")
        return view

    def gather(self, offsets: Lanes, type: ScalarType) -> Lanes:
        """Values at aligned byte offsets."""
        if type.bits == 128:
            pairs = self.words(8)
            words = offsets >> 3
            wide: Lanes = pairs[words].astype(object) | (pairs[words + 1].astype(object) << 64)
            return wide
        gathered: Lanes = self.words(type.bytes)[offsets // type.bytes]
        seen: Lanes = gathered.view(dtype_of(type))
        return seen

    def scatter(self, offsets: Lanes, data: Lanes, type: ScalarType) -> None:
        """Store values at aligned byte offsets; the last of equal offsets wins."""
        if type.bits == 128:
            words = offsets >> 3
            self.words(8)[words] = (data & ((1 << 64) - 1)).astype(np.uint64)
            self.words(8)[words + 1] = (data >> 64).astype(np.uint64)
        else:
            self.words(type.bytes)[offsets // type.bytes] = data.view(f"u{type.bytes}")

    def unwritten(self, offsets: Lanes, size: int) -> bool:
        """Whether any byte of these accesses was never written."""
        return not self.shadow[offsets[:, None] + np.arange(size)].all()

    def mark(self, offsets: Lanes, size: int) -> None:
        """Mark these bytes as written."""
        self.shadow[offsets[:, None] + np.arange(size)] = 1


class Arena:
    """Device memory with its table of allocations, looked up for all lanes at once."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.region = Region(memory.bytes, memory.shadow)
        self._version = (-1, -1)
        self._changes_read = 0
        self._listed: list[Allocation] = []
        self._refresh()

    def _refresh(self) -> None:
        if self._version != self.memory.version:
            self._read()

    # finalizers of a program's arrays may free others while the collector runs, so it does not while the table is read
    @uncollected
    def _read(self) -> None:
        memory, heap = self.memory, self.memory.heap
        if self._version[0] != memory.generation:
            self._table = memory.table().astype(np.uint64).T.copy()
            self._listed = memory.allocations.copy()
        first = len(self._listed)
        count = first + len(heap.blocks)
        if self._version[0] == memory.generation:
            # only blocks of malloc and free, of which kernels may have very many
            if count > self._table.shape[1]:
                self._table = np.pad(self._table, ((0, 0), (0, count)))
            for number in heap.changed[self._changes_read :]:
                self._table[:, first + number] = heap.row(number)
        self._version, self._changes_read = memory.version, len(heap.changed)
        self._starts, self._ends, self._kinds, self._initialized = self._table[:, :count]

    def check(
        self, addresses: Lanes, size: int, writes: bool, reaches: int = ANY, parameters: int = 0
    ) -> tuple[Lanes, Lanes]:
        """Whether each access lies in one allocation that it may read (or write), and whether that allocation is initialised; the
        second is true for invalid accesses. ``reaches``: bits of ``spaces``; ``parameters``: the address of the kernel's
        parameters."""
        self._refresh()
        if not self._starts.size:
            return np.zeros(addresses.shape, np.bool_), np.ones(addresses.shape, np.bool_)
        number = self._of_all(addresses, size, writes, reaches, parameters)
        if number is not None:
            self._announce((number,))
            initialized = bool(self._initialized[number])
            return np.ones(addresses.shape, np.bool_), np.full(addresses.shape, initialized)
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        known = index >= 0
        index = np.maximum(index, 0)
        room = self._ends[index] - addresses  # wraps beyond the end, and is then larger than any allocation
        size_of = self._ends[index] - self._starts[index]
        good = known & (room >= np.uint64(size)) & (room <= size_of)
        kinds = self._kinds[index] % PADDED
        if writes:
            good &= kinds == KINDS["global"]
        if reaches != ANY:
            good &= (np.uint64(reaches) >> kinds & np.uint64(1)) != 0
        if reaches == bit_of("param"):
            good &= self._starts[index] == np.uint64(parameters)
        self._announce(index[good].tolist())
        return good, ~good | (self._initialized[index] != 0)

    def _of_all(self, addresses: Lanes, size: int, writes: bool, reaches: int, parameters: int) -> int | None:
        """The number of the allocation that contains all accesses, if there is one and all are valid."""
        if not addresses.size:
            return None
        index = int(self._starts.searchsorted(addresses.min(), side="right")) - 1
        if index < 0 or int(addresses.max()) + size > int(self._ends[index]):
            return None
        kind = int(self._kinds[index]) % PADDED
        if (writes and kind != KINDS["global"]) or (reaches != ANY and not reaches >> kind & 1):
            return None
        if reaches == bit_of("param") and int(self._starts[index]) != parameters:
            return None
        return index

    def _announce(self, indices: Sequence[int]) -> None:
        """Announce accesses to the allocations with these numbers."""
        if self.memory.on_access is not None:
            for number in sorted({*indices}):
                if number < len(self._listed):  # larger numbers are blocks of the heap
                    self.memory.on_access(self._listed[number])

    def beyond(self, addresses: Lanes, size: int, piece: int, reaches: int) -> tuple[Lanes, Lanes, Lanes]:
        """For accesses that no allocation contains: which may extend into the padding after one (see ``simt.padding``), the end of
        that allocation, and whether it is initialised. ``piece``: bytes of an element, which must begin inside."""
        if not self._starts.size:
            none = np.zeros(addresses.shape, np.bool_)
            return none, addresses, none
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        known = (index >= 0) & bool(reaches & bit_of("global"))
        index = np.maximum(index, 0)
        ends, pads = self._ends[index], self._kinds[index] // PADDED
        last = addresses + np.uint64(size)
        begins = (pads % 2 == 1) & (piece > 0) & (last - np.uint64(piece) < ends)
        good = known & (pads > 0) & (self._kinds[index] % PADDED == KINDS["global"])
        good &= begins | ((pads % 2 == 0) & (last <= ends + pads // 2))
        self._announce(index[good].tolist())
        return good, ends, self._initialized[index] != 0
