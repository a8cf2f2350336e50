"""The memory that compiled code writes on one host thread: the context record, counters and caches."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..isa.rules import NOTED, Noted
from ..isa.tensor_memory import WORK
from ..memory.arena import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from ..simt import schedule
from ..simt.atomic_targets import SLOTS, has_global_atomics
from ..simt.padding import BlankRead, Overrun
from ..simt.program import Program
from ..simt.rule_breaches import Breach
from .codegen.generator import Generated
from .codegen.recursion import CAPACITY
from .host_arrays import address_of, aligned
from .ir.abi import Context
from .ir.access_records import BEYOND_BYTES, UNSEEN_BYTES, GlobalShape, SiteCache, Target
from .ir.copy_records import instruction_at
from .ir.race_records import Race
from .ir.tensor_records import TensorWork
from .site_tables import SiteTables

__all__ = ["WorkerContext", "fields_of_code"]

_WORD = struct.Struct("<Q")
#: the fields of a launch, at the beginning of the record
_LAUNCH = struct.Struct(f"<{Context.RACE_SITES // 8 + 1}Q")
_WHOLE = (1 << 64) - 1
#: the key of the context record itself, among the arrays that it points to
_CONTEXT = -1


def fields_of_code(generated: Generated) -> dict[int, int]:
    """The fields of a context that depend on the code which runs, apart from addresses."""
    return {
        Context.STATE_BYTES: generated.state_bytes,
        Context.ZERO_START: generated.zero_start,
        Context.ZERO_BYTES: generated.zero_bytes,
        Context.PARAMETERS: generated.parameters_start,
        Context.WATCH: generated.watch,
        Context.ENTRIES: generated.stack_entries,
        Context.AREA_BYTES: generated.area_bytes,
        Context.AREAS_BYTES: CAPACITY * generated.area_bytes,
    }


class WorkerContext:
    """One allocation: the context record and the arrays that it points to. ``thread_bytes``: bytes of a scratch row of counters per
    thread, 0 if threads are not counted."""

    def __init__(self, program: Program, generated: Generated, tables: SiteTables, thread_bytes: int) -> None:
        self._program = program
        sites = max(1, len(program.sites))
        # the last one is for accesses that are not counted
        unseen = len(program.sites) + 1
        layout = tables.layout
        sizes = {
            Context.BLOCKS: 8 * layout.predicated,
            Context.PREDICATED: 8 * (layout.sites - layout.predicated),
            Context.SITES: 8 * (layout.words - layout.sites),
            Context.UNSEEN: unseen * UNSEEN_BYTES,
            Context.BEYOND: unseen * BEYOND_BYTES,
            Context.CACHE: unseen * SiteCache.BYTES,
            Context.SHAPES: sites * GlobalShape.BYTES,
            Context.SCRATCH: 8192,
            Context.THREADS_SPARE: thread_bytes,
            Context.TARGETS: SLOTS * Target.BYTES * program.once(has_global_atomics),
            Context.TENSOR_WORK: TensorWork.BYTES * program.uses_tensor_memory,
            Context.NOTED: 8 + Noted.MOST * Noted.BYTES,
            Context.RACES_FOUND: 8 + 8 * Race.MOST_FOUND * Race.COLUMNS,
            # with room for a vector that begins in the last parameter
            Context.PARAMS: program.kernel.param_bytes + 16,
            Context.SYMBOLS: 8 * len(program.symbols),
            _CONTEXT: Context.BYTES,
        }
        starts = [0, *itertools.accumulate(-(-size // 64) * 64 for size in sizes.values())]
        #: all memory that compiled code writes
        self.whole = aligned(starts[-1])
        first = address_of(self.whole)
        addresses = {name: first + start for name, start in zip(sizes, starts)}
        views = {name: self.whole[start : start + size] for (name, size), start in zip(sizes.items(), starts)}
        #: of blocks, predicated instructions and sites, see ``SiteTables.layout``
        self.counters: NDArray[np.int64] = self.whole[: 8 * layout.words].view(np.int64)
        self.unseen = views[Context.UNSEEN].view(np.int64).reshape(unseen, UNSEEN_BYTES // 8)
        self._beyond = views[Context.BEYOND].view(np.int64).reshape(unseen, BEYOND_BYTES // 8)
        start = addresses[Context.UNSEEN] - first
        #: everything about single accesses to global memory that compiled code notes, zero in most launches
        self._remarkable = self.whole[start : addresses[Context.CACHE] - first].view(np.int64)
        self.cache = views[Context.CACHE]
        self.races = views[Context.RACES_FOUND].view(np.int64)
        #: lanes of atomics at each address, as in ``simt.atomic_targets``; empty if there are none
        self.targets = views[Context.TARGETS].view(np.int64).reshape(-1, Target.BYTES // 8)
        #: operations of products in tensor memory, by ``isa.tensor_memory.WORK``; empty if there are none
        self.tensor_work = views[Context.TENSOR_WORK][TensorWork.OPERATIONS :][: 8 * len(WORK)].view(np.int64)
        self._noted = views[Context.NOTED].view(np.int64)
        #: what must be zero at the beginning of a launch, apart from the numbers of rows of the two lists after it
        self._counting = self.whole[: addresses[Context.NOTED] - first].view(np.int64)
        self._parameters = views[Context.PARAMS].data
        self._symbols = views[Context.SYMBOLS].view(np.uint64)
        self._record: NDArray[np.uint8] = views[_CONTEXT]
        self._bytes = self._record.data
        #: host address of the context record
        self.address = addresses.pop(_CONTEXT)
        #: how often warps left compiled code, by event and block
        self.left: Counter[tuple[int, int]] = Counter()
        self._put_fixed(program, generated, tables, addresses)
        #: the initial record of a launch of this shape, without the fields of a launch
        self._fresh = self._fixed = self._record.copy()
        self.shape: Hashable = None
        #: what the fields of the shape point to
        self._kept: object = None

    def _put_fixed(
        self, program: Program, generated: Generated, tables: SiteTables, addresses: Mapping[int, int]
    ) -> None:
        """Set the fields that are the same in all launches of the code."""
        self.put(
            {
                **fields_of_code(generated),
                Context.QUANTUM: schedule.QUANTUM,
                **addresses,
                **({} if self.targets.size else {Context.TARGETS: 0}),
                Context.LOCAL_BYTES: program.local_area,
                Context.SHARED_WINDOW: SHARED_WINDOW,
                Context.LOCAL_WINDOW: LOCAL_WINDOW,
                Context.WINDOW_BYTES: WINDOW_BYTES,
                Context.REMOTE: tables.remote.address,
                Context.REACHES: tables.reaches.address,
                Context.PIECES: tables.pieces.address,
                Context.USED: tables.used.address,
            }
        )

    def prepare(
        self, shape: Hashable, fields: Mapping[int, int], sizes: Mapping[int, tuple[int, ...]], kept: object
    ) -> None:
        """Set the fields that follow from the shape of launches: 64-bit fields, and fields of several 32-bit sizes; ``kept``: what
        they point to."""
        self._record[:] = self._fixed
        self.put(fields)
        for offset, values in sizes.items():
            struct.pack_into(f"<{len(values)}i", self._bytes, offset, *values)
        self._fresh = self._record.copy()
        self.shape, self._kept = shape, kept

    def begin(self, parameters: bytes, symbols: NDArray[np.uint64], fields: tuple[int, ...]) -> None:
        """Set what differs between launches: parameters, addresses of symbols, and the first fields of the record."""
        self._parameters[: len(parameters)] = parameters
        if self._symbols.size:
            self._symbols[:] = symbols
        _LAUNCH.pack_into(self._bytes, 0, *fields)

    def put(self, fields: Mapping[int, int]) -> None:
        """Set fields of the record, 64 bits each."""
        record, pack = self._bytes, _WORD.pack_into
        for offset, value in fields.items():
            pack(record, offset, value & _WHOLE)

    def get(self, offset: int) -> int:
        """A field of the record, unsigned."""
        return int(_WORD.unpack_from(self._bytes, offset)[0])

    def reset(self) -> None:
        """Reset for another launch of the same code."""
        self._counting.fill(0)
        self._noted[0] = self.races[0] = 0
        self._record[:] = self._fresh
        self.left.clear()

    @property
    def is_remarkable(self) -> bool:
        """Whether there are ``unseen`` sites, overruns or breaches."""
        return bool(np.count_nonzero(self._remarkable) or self._noted[0])

    def breaches(self) -> Iterator[Breach]:
        """Violations of the rules in ``isa.rules`` that compiled code recorded."""
        if not self._noted[0]:
            return
        for rule, site, *where in self._noted[1:].reshape(-1, Noted.BYTES // 8)[: self._noted[0]].tolist():
            yield Breach(NOTED[rule], instruction_at(self._program, site), *where)

    def blank_reads(self) -> dict[int, BlankRead]:
        """The first read of uninitialised memory, by site."""
        reads = {}
        for site in self.unseen[:-1, 0].nonzero()[0].tolist():
            cta, thread, address = self.unseen[site].tolist()
            reads[site] = BlankRead(cta - 1, thread // 32, thread % 32, address)
        return reads

    def overruns(self) -> dict[int, Overrun]:
        """Accesses that extended past an object, by site."""
        overruns = {}
        for site in self._beyond[:, 0].nonzero()[0].tolist():
            cta, thread, address, farthest = self._beyond[site].tolist()
            overruns[site] = Overrun(cta - 1, thread // 32, thread % 32, address, farthest)
        return overruns
