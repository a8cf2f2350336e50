"""Bulk and tensor copies of a launch: the bytes that each kind of copy moves, and the share of them that comes from DRAM."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import Copy, Stream
from ...jit.runtime_libraries import runtime_addresses
from ...memory.tensor_maps import MAP_BYTES, Layout
from ...profile.build import LaunchRecord
from ...results import LINE_BYTES as _LINE
from ...results import SECTOR_BYTES as _SECTOR
from ..listing import Decoded
from ..run.asynchronous import PARAMETERS
from ..run.trace_kernel import Trace, TraceKernel
from ..run.writer import NotRun
from .settings import SEEN_COPIES

__all__ = ["BULK", "Copies", "Copying", "Moved", "Named", "ctas_of", "way_of"]

LOAD, STORE, REDUCTION, PREFETCH, BETWEEN = range(5)
#: Flag in the form of a kind: a bulk copy, of 16 · (form >> 16) bytes.
BULK = 1 << 8
_MOST = 255
#: The widest load of a lane, in bytes.
_WIDEST = 32
_ROW = 8
Place = tuple[int, int, int]


def way_of(item: Decoded) -> int:
    """The direction of a copy."""
    words = item.opcode.split(".")
    if item.base in ("UTMAPF", "UBLKPF"):
        return PREFETCH
    if item.base in ("UTMAREDG", "UBLKRED"):
        return REDUCTION
    if item.base == "UBLKCP":
        return {("S", "G"): LOAD, ("G", "S"): STORE}.get((words[1], words[2]), BETWEEN)
    return STORE if item.base == "UTMASTG" else LOAD


@dataclass(frozen=True, slots=True)
class Moved:
    """A kind of copies. ``bytes``: in shared memory; ``sectors`` and ``requests`` (of up to 128 bytes): in global memory; ``way``: the
    direction; ``lines``: of the whole tensor, 0 if unknown; ``count``: copies of this kind that a CTA makes; ``distinct``: the share,
    0 to 1, of the copies of concurrent CTAs that move different bytes; ``key``: identifies the tensor."""

    bytes: int
    sectors: int
    requests: int
    way: int
    lines: int
    key: int
    count: float
    distinct: float


@dataclass(eq=False)
class Named:
    """Mbarriers and kinds of copies, with one numbering for the streams of all CTAs. ``sites``: four bytes for each site of the trace;
    ``firsts``: the first site of each block."""

    sites: NDArray[np.uint8]
    firsts: NDArray[np.uint32]
    mbarriers: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(_MOST + 1, np.uint32))
    kinds: NDArray[np.uint64] = field(
        default_factory=lambda: np.zeros((_MOST + 1, Copy.BYTES // 8), np.uint64)
    )
    mbarrier_count: int = 0
    kind_count: int = 0

    def given(self) -> NDArray[np.uint64]:
        """A ``Stream`` that continues this numbering."""
        given = np.zeros(Stream.BYTES // 8, np.uint64)
        for place, array in (
            (Stream.SITES, self.sites), (Stream.FIRST_SITE, self.firsts), (Stream.MBARRIERS, self.mbarriers), (Stream.COPIES,
            self.kinds),
        ):  # fmt: skip
            given[place // 8] = array.ctypes.data
        given[Stream.BLOCKS // 8] = max(0, len(self.firsts) - 1)
        given[Stream.MBARRIER_COUNT // 8], given[Stream.COPY_COUNT // 8] = (
            self.mbarrier_count,
            self.kind_count,
        )
        return given

    def keep(self, given: NDArray[np.uint64]) -> None:
        """Stores the numbers of mbarriers and kinds after a stream was made. Raises ``NotRun`` if there are too many."""
        self.mbarrier_count = int(given[Stream.MBARRIER_COUNT // 8])
        self.kind_count = int(given[Stream.COPY_COUNT // 8])
        if max(self.mbarrier_count, self.kind_count) >= _MOST:
            raise NotRun("its CTAs use more mbarriers, or kinds of copies, than are distinguished")

    def blocks(self, warps: Sequence[NDArray[np.uint32]]) -> NDArray[np.int64]:
        """How often warps executed each block of the trace kernel."""
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
            runtime_addresses(("sm_blocks",))["sm_blocks"]
        )
        given, counts = self.given(), np.zeros(len(self.firsts), np.int64)
        given[Stream.OUT // 8] = counts.ctypes.data
        for words in warps:
            given[Stream.WORDS // 8], given[Stream.COUNT // 8] = words.ctypes.data, len(words)
            if not function(int(given.ctypes.data)):
                raise NotRun("its records are not whole blocks of its code")
        return counts[:-1]

    def copies(self, warps: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """The copies of warps, a row for each; the first column is the kind."""
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(
            runtime_addresses(("sm_copied",))["sm_copied"]
        )
        # a copy is recorded in 32 words
        room = np.zeros((sum(map(len, warps)) // 32 + 1) * _ROW, np.uint32)
        given = self.given()
        given[Stream.OUT // 8], given[Stream.OUT_ENDS // 8] = room.ctypes.data, room.ctypes.data + room.nbytes
        for words in warps:
            given[Stream.WORDS // 8], given[Stream.COUNT // 8] = words.ctypes.data, len(words)
            given[Stream.OUT // 8] = function(int(given.ctypes.data))
            if not given[Stream.OUT // 8]:
                raise NotRun("its records are not whole blocks of its code")
        self.keep(given)
        return room[: (int(given[Stream.OUT // 8]) - int(room.ctypes.data)) // 4].reshape(-1, _ROW)


@dataclass(eq=False)
class Copies:
    """The copies of a launch for a given number of concurrent CTAs. ``moved`` is indexed by kind; ``mbarriers`` is the number of
    mbarriers."""

    moved: tuple[Moved, ...] = ()
    mbarriers: int = 0

    def footprint(self, ctas: int) -> float:
        """Bytes of global memory that ``ctas`` CTAs copy, each byte counted once."""
        tensors = {item.key: item.lines for item in self.moved if item.lines}
        others = sum(item.bytes * item.count * item.distinct for item in self.moved if not item.lines)
        return float(sum(tensors.values()) * _LINE + others * ctas)

    def share(self, item: Moved, kept: bool, ctas: int) -> float:
        """The share of the bytes of a kind that comes from DRAM or goes to it. ``kept``: the footprint of the launch fits in L2."""
        if item.way == BETWEEN:
            return 0.0
        if item.way in (STORE, REDUCTION):
            return item.distinct
        total = item.sectors * item.count * ctas
        if kept and item.lines and total:
            return min(1.0, item.lines * (_LINE // _SECTOR) / total)
        return item.distinct

    def records(self, shares: Sequence[float]) -> NDArray[np.uint64]:
        """A ``Copy`` record for each kind."""
        table = np.zeros((len(self.moved) + 1, Copy.BYTES // 8), np.uint64)
        for row, item, share in zip(table, self.moved, shares):
            row[:6] = item.bytes, item.sectors, item.requests, item.way, round(65536 * share), 32768
            row[Copy.IN_STEP // 8] = item.distinct < 1.0
        return table


@dataclass(eq=False)
class Copying:
    """The copies of a launch, independent of the number of concurrent CTAs. ``words``: the records of the CTAs of one cluster."""

    tracer: TraceKernel
    record: LaunchRecord
    named: Named
    words: list[list[NDArray[np.uint32]]]
    _known: dict[int, Copies] = field(default_factory=dict)

    @cached_property
    def each(self) -> list[NDArray[np.uint32]]:
        """The copies of each warp."""
        return [self.named.copies([words]) for cta in self.words for words in cta]

    def check(self, trace: Trace) -> None:
        """Raises ``NotRun`` if a load that decides about control flow or addresses may read shared memory that a copy, or a store of
        the result of a matrix product, writes: the trace executes neither."""
        if trace.read is None:
            return
        kinds = self.named.kinds[: self.named.kind_count, Copy.KEY // 8 : Copy.FORM // 8 + 1].tolist()
        into = [(key, form) for key, form in kinds if form & 255 in (LOAD, BETWEEN)]
        sizes = [
            _moved(self.record, self.tracer.parameter_at, key, form, 0.0, 1.0).bytes for key, form in into
        ]
        for written, most in ((trace.written, _WIDEST), (trace.copied, max([0, *sizes]))):
            if (
                written is not None
                and written[0] < trace.read[1] + _WIDEST
                and trace.read[0] < written[1] + most
            ):
                raise NotRun(
                    "its control flow or addresses depend on values loaded from shared memory that copies or products write"
                )

    @property
    def of_inputs(self) -> bool:
        """Whether tensor maps lie in global memory, so that the trace depends on its contents before the launch."""
        kinds = self.named.kinds[: self.named.kind_count]
        tensors = [int(row[Copy.KEY // 8]) for row in kinds if not int(row[Copy.FORM // 8]) & BULK]
        return any(key >> 32 != PARAMETERS for key in tensors)

    def of(self, running: int) -> Copies:
        """The copies, with the overlap that the first copies of ``running`` concurrent CTAs show."""
        plan, size = self.record.plan, self.record.plan.cluster_ctas
        wide, tall, deep = plan.clusters
        count = min(wide * tall * deep, max(1, running // size))
        if not any(site.space == "copy" for site in self.tracer.sites):
            return Copies(mbarriers=self.named.mbarrier_count)
        if count not in self._known:
            warps = {number % plan.warps_per_cta for number, rows in enumerate(self.each) if len(rows)}
            clusters = [
                (number % wide, number // wide % tall, number // (wide * tall)) for number in range(count)
            ]
            mask = sum(1 << warp for warp in warps)
            window = self.tracer.copies(self.record, ctas_of(clusters, plan.cluster), SEEN_COPIES, mask)
            together = self.named.copies([words for cta in window.words for words in cta if len(words)])
            own = np.concatenate(self.each)
            self._known[count] = self._seen(own, together)
        return self._known[count]

    def _seen(self, own: NDArray[np.uint32], together: NDArray[np.uint32]) -> Copies:
        size, moved = self.record.plan.cluster_ctas, []
        for number in range(self.named.kind_count):
            key, form = (int(value) for value in self.named.kinds[number, Copy.KEY // 8 : Copy.FORM // 8 + 1])
            rows = together[together[:, 0] == number, 1:]
            distinct = len(np.unique(rows, axis=0)) / len(rows) if len(rows) else 1.0
            count = int((own[:, 0] == number).sum()) / size
            moved.append(_moved(self.record, self.tracer.parameter_at, key, form, count, distinct))
        return Copies(tuple(moved), self.named.mbarrier_count)


def ctas_of(clusters: list[Place], size: Place) -> list[Place]:
    """The CTAs of clusters, ordered by rank."""
    ranks = [(x, y, z) for z in range(size[2]) for y in range(size[1]) for x in range(size[0])]
    return [(x * size[0] + a, y * size[1] + b, z * size[2] + c) for x, y, z in clusters for a, b, c in ranks]


def _moved(
    record: LaunchRecord,
    parameter_at: Callable[[int], int],
    key: int,
    form: int,
    count: float,
    distinct: float,
) -> Moved:
    way = form & 255
    if form & BULK:
        size = 16 * (form >> 16)
        return Moved(size, -(-size // _SECTOR), -(-size // _LINE), way, 0, key, count, distinct)
    layout = Layout.decode(_map_bytes(record, parameter_at, key & 0xFFFFFFFF, key >> 32))
    if layout is None:
        raise NotRun("a tensor map that is created during the launch, or not by the engine")
    unit, counts = layout.unit, layout.counts()
    if layout.mode:
        counts = [layout.pixel_units, layout.pixels]
    rows, inner = prod(counts[1:]), counts[0] * unit.size
    tensor = prod(layout.shape[: layout.rank]) * layout.element.size // layout.element.elements
    return Moved(
        prod(counts) * unit.held,
        rows * -(-inner // _SECTOR),
        rows * -(-inner // _LINE),
        way,
        -(-tensor // _LINE),
        key,
        count,
        distinct,
    )


def _map_bytes(record: LaunchRecord, parameter_at: Callable[[int], int], low: int, high: int) -> bytes:
    """The tensor map at an address in global memory or at an offset of the parameters."""
    if high == PARAMETERS:
        start = parameter_at(low)
        return record.plan.parameters[start : start + MAP_BYTES].ljust(MAP_BYTES, b"\0")
    inputs = record.plan.inputs
    if inputs is None:
        raise NotRun("its tensor maps are in global memory, whose contents before the launch were not kept")
    address = low | high << 32
    contents = inputs.bytes_at(address, MAP_BYTES)
    if contents is None:
        raise NotRun("a tensor map that is not in global memory")
    return contents
