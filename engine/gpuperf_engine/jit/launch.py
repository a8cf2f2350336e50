"""One launch of compiled code: its memory, its CTAs in flight, and the loop that runs them.

The compiled runtime runs CTAs by itself as long as each ends in one visit; here is what happens around that: sweeps over the
window of resident CTAs, several host threads for order-free programs, and everything that ends a launch early.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import math
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LaunchError
from ..isa.effects import BULK_COPY, LOAD, STORE
from ..isa.rules import NOTED, Noted
from ..isa.types import scalar_type
from ..memory.arena import ARENA_BASE, GLOBAL_BASE, LOCAL_WINDOW, PADDED, SHARED_WINDOW, WINDOW_BYTES, Memory
from ..memory.spaces import ANY, KINDS, bit_of, reachable
from ..simt.barriers import Barriers
from ..simt.clusters import reaches_peers
from ..simt.counters import Observation
from ..simt.faults import Place, deadlock
from ..simt.launch import LaunchPlan
from ..simt.padding import Overrun, merge
from ..simt.program import Program
from ..simt.rule_breaches import Breach, first_breaches
from ..simt.schedule import QUANTUM, Standing, Watch
from ..simt.thread_counters import COLUMN_BYTES, columns_of, make_table
from .clusters import Group, run_clusters
from .codegen.function import Generated
from .codegen.recursion import CAPACITY
from .codegen.waits import reasons_to_wait, remarks_on
from .ir.abi import (
    BEYOND_BYTES,
    SITE_COUNTERS,
    Cluster,
    Context,
    Cta,
    GlobalShape,
    Line,
    Race,
    Segment,
    Segments,
    SiteCache,
    State,
    Status,
    Wait,
    instruction_at,
)
from .llvm import Library, generation, link, runtime_addresses, runtime_library
from .races import race_flags, races_of
from .runtime.access_text import Form
from .workers import run_parallel

if TYPE_CHECKING:
    from .slow_path import NativeWarp
    from .state_digest import Decisive

__all__ = ["Code", "Known", "Launch", "Slot", "Worker", "aligned"]

_Visit = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Begin = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
#: as ``native_script.call`` calls it
_Saver = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_FUNCTIONS = {
    **dict.fromkeys(("run", "run_clusters"), _Run),
    **dict.fromkeys(("visit", "proceed", "visit_cluster", "expire", "races_settle"), _Visit),
    **dict.fromkeys(("begin_cluster", "race_settle"), _Begin),
    **dict.fromkeys(("visited",), _Run),
}
_NEEDS_PYTHON = 8
_WORD = struct.Struct("<Q")
_WHOLE = (1 << 64) - 1
#: in ``Worker``: the context, among its parts
_CONTEXT = -1
#: most of what a launch allocates that is kept for the next
_KEPT_BYTES = 1 << 18
_KEPT_WORKERS = 4
#: what was known of the order of accesses in CTAs that have ended, by its shape
_race_records: dict[tuple[int, ...], list[NDArray[np.uint8]]] = {}
#: after all lines of global memory
_NO_LINE = (1 << 63) - 1
#: seconds of compiled code at a time
_PIECE = 0.1


def aligned(size: int) -> NDArray[np.uint8]:
    """Zero bytes that begin at a multiple of 64."""
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def address_of(array: NDArray[Any]) -> int:
    """Host address of an array's first byte."""
    return int(array.__array_interface__["data"][0])


@dataclass(eq=False)
class Slot:
    """Room for one CTA in flight. ``warps`` are views of its warps for the rare moves that Python makes."""

    record: NDArray[np.uint8]
    states: NDArray[np.uint8]
    shared: NDArray[np.uint8]
    local: NDArray[np.uint8]
    #: what calls inside recursive functions keep, shape (warps, ``CAPACITY``, bytes)
    areas: NDArray[np.uint8]
    #: what is known of the order of accesses, if races are looked for
    races: NDArray[np.uint8]
    warps: dict[int, NativeWarp] = field(default_factory=dict)
    #: the cluster of the CTA, if it runs in one
    group: Group | None = None
    #: those at which warps are diverged
    barriers: Barriers = field(default_factory=Barriers)

    def get(self, offset: int) -> int:
        """A field of the CTA record."""
        return int(struct.unpack_from("<q", self.record, offset)[0])

    def put(self, offset: int, value: int) -> None:
        """Set a field of the CTA record."""
        struct.pack_into("<q", self.record, offset, value)

    @property
    def bytes(self) -> int:
        """Bytes of host memory."""
        parts = self.record, self.states, self.shared, self.local, self.areas, self.races
        return sum(part.nbytes for part in parts)

    def end(self) -> None:
        """The CTA has ended: what Python knows of it is forgotten."""
        self.warps.clear()
        self.barriers = Barriers()


class Worker:
    """One host thread's context: counters and caches of its own."""

    def __init__(self, launch: Launch) -> None:
        program = launch.program
        sites, predicated = max(1, len(program.sites)), max(1, len(program.predicated))
        # the last one is that of accesses which are not counted
        unseen = len(program.sites) + 1
        spare = 0 if launch.table_of_threads is None else columns_of(program).count * COLUMN_BYTES
        parts = {
            Context.BLOCKS: 32 * len(program.blocks),
            Context.PREDICATED: 8 * predicated,
            Context.SITES: 8 * SITE_COUNTERS * sites,
            Context.UNSEEN: 8 * unseen,
            Context.CACHE: unseen * SiteCache.BYTES,
            Context.SHAPES: sites * GlobalShape.BYTES,
            Context.BEYOND: unseen * BEYOND_BYTES,
            Context.SCRATCH: 8192,
            Context.THREADS_SPARE: spare,
            Context.NOTED: 8 + Noted.MOST * Noted.BYTES,
            Context.RACES_FOUND: 8 + 8 * Race.MOST_FOUND * Race.COLUMNS,
            _CONTEXT: Context.BYTES,
        }
        starts = [0, *itertools.accumulate(-(-size // 64) * 64 for size in parts.values())]
        #: everything that compiled code writes to, zero where a launch begins, but for the context
        self.whole = aligned(starts[-1])
        first = address_of(self.whole)
        self.addresses = {name: first + start for name, start in zip(parts, starts)}
        views = {name: self.whole[start : start + size] for (name, size), start in zip(parts.items(), starts)}
        self.blocks = views[Context.BLOCKS].view(np.int64).reshape(4, -1)
        self.predicated = views[Context.PREDICATED].view(np.int64)
        self.sites = views[Context.SITES].view(np.int64).reshape(sites, SITE_COUNTERS)
        self.unseen = views[Context.UNSEEN].view(np.int64)
        self.cache = views[Context.CACHE]
        self.beyond = views[Context.BEYOND].view(np.int64).reshape(unseen, BEYOND_BYTES // 8)
        self.context: NDArray[np.uint8] = views[_CONTEXT]
        self.address = self.addresses.pop(_CONTEXT)
        #: how often warps left compiled code, by event and block
        self.left: Counter[tuple[int, int]] = Counter()
        self.races = views[Context.RACES_FOUND].view(np.int64)
        self.noted = views[Context.NOTED].view(np.int64)
        self.groups: list[Group] = []
        self._fixed(launch)
        #: the context as it is where a launch begins, but for what that launch puts there
        self._fresh = self.context.copy()
        self.begin(launch)

    def begin(self, launch: Launch) -> None:
        """Be the worker of a launch that begins; the counters are zero."""
        self.launch = launch
        self._fill()

    def reset(self) -> None:
        """Make ready for another launch of the same code."""
        self.whole[:] = 0
        self.context[:] = self._fresh
        self.left.clear()
        self.groups.clear()
        del self.launch  # and with it the memory of its device

    def _put(self, fields: Mapping[int, int]) -> None:
        context, pack = self.context.data, _WORD.pack_into
        for offset, value in fields.items():
            pack(context, offset, value & _WHOLE)

    def _fixed(self, launch: Launch) -> None:
        """What is the same in all launches of the code."""
        generated, known = launch.code.generated, launch.known
        self._put(
            {
                Context.STATE_BYTES: generated.state_bytes,
                Context.QUANTUM: QUANTUM,
                **self.addresses,
                Context.LOCAL_BYTES: launch.program.local_area,
                Context.ZERO_START: generated.zero_start,
                Context.ZERO_BYTES: generated.zero_bytes,
                Context.PARAMETERS: generated.parameters_start,
                Context.SHARED_WINDOW: SHARED_WINDOW,
                Context.LOCAL_WINDOW: LOCAL_WINDOW,
                Context.WINDOW_BYTES: WINDOW_BYTES,
                Context.WATCH: generated.watch,
                Context.REMOTE: known.remote.address,
                Context.REACHES: known.reaches.address,
                Context.PIECES: known.pieces.address,
                Context.ENTRIES: 0 if launch.program.recursive else generated.stack_entries,
            }
        )

    def _fill(self) -> None:
        launch, plan = self.launch, self.launch.plan
        last = plan.threads_per_cta - 32 * (plan.warps_per_cta - 1)
        fields = {
            Context.WARP_CODE: launch.library.addresses["warp"],
            Context.WARPS: plan.warps_per_cta,
            Context.BUDGET: plan.max_instructions,
            Context.ARENA: launch.memory.host - ARENA_BASE,
            Context.SHADOW: launch.memory.host_shadow - ARENA_BASE,
            Context.TABLE: address_of(launch.table),
            Context.TABLE_ROWS: len(launch.memory.allocations) + len(launch.memory.heap.blocks),
            Context.TIDS: launch.tids.address,
            Context.PARAMS: launch.params.address,
            Context.SHARED_BYTES: plan.shared_bytes,
            Context.LAST_LANES: (1 << last) - 1,
            Context.SYMBOLS: launch.symbols.address,
            Context.DYNAMIC_SHARED: plan.dynamic_shared,
            Context.PARAM_ADDRESS: plan.parameter_address,
            Context.COUNTING: int("memory" in launch.observe),
            Context.READS: self._map(0),
            Context.WRITES: self._map(1),
            Context.CLUSTER_CTAS: plan.cluster_ctas if launch.clustered else 0,
            Context.IMAGES: address_of(launch.images),
            Context.IMAGE_ROWS: len(launch.images),
            Context.EXPLICIT_CLUSTER: int(plan.explicit_cluster),
            Context.NEAR: launch.near.address,
            Context.STRICT: (1 << len(NOTED)) - 1 if plan.strict == "error" else 0,
            Context.RACE_SITES: address_of(launch.races),
            **launch.lines,
        }
        if launch.saver is not None:
            fields[Context.SAVE] = ctypes.cast(launch.saver, ctypes.c_void_p).value or 0
        if launch.table_of_threads is not None:
            fields[Context.THREADS] = address_of(launch.table_of_threads.counts)
            fields[Context.KEPT] = address_of(launch.kept)
            fields[Context.KEPT_COUNT] = len(launch.plan.kept)
        self._put(fields)
        context = self.context.data
        struct.pack_into("<6i", context, Context.NTID, *plan.block, *plan.grid)
        struct.pack_into("<6i", context, Context.CLUSTER_SHAPE, *plan.cluster, *plan.clusters)

    def _map(self, number: int) -> int:
        maps = self.launch.memory.touched
        return address_of(maps[number]) - ARENA_BASE if maps is not None else 0

    def breaches(self) -> Iterator[Breach]:
        """What was noted of rules that the kernel broke."""
        program = self.launch.program
        for rule, site, *where in self.noted[1:].reshape(-1, Noted.BYTES // 8)[: self.noted[0]].tolist():
            yield Breach(NOTED[rule], instruction_at(program, site), *where)

    def overruns(self) -> dict[int, Overrun]:
        """Accesses that ran past an object, by site."""
        found = {}
        for site in self.beyond[:, 0].nonzero()[0].tolist():
            cta, thread, address, farthest = self.beyond[site].tolist()
            found[site] = Overrun(cta - 1, thread // 32, thread % 32, address, farthest)
        return found

    def get(self, offset: int) -> int:
        """A field of the context, unsigned."""
        return int(struct.unpack_from("<Q", self.context, offset)[0])

    # ------------------------------------------------------------------------------------------------- running

    def run(self, slot: Slot, first: int, last: int) -> tuple[int, bool]:
        """CTAs from ``first`` on, until ``last`` or until one does not end in its visit: its index, and whether all ended."""
        run: Callable[..., int] = self.launch.functions["run"]
        some = 32
        while first < last:
            # in pieces, so that an interrupt from the keyboard is seen
            start = time.perf_counter()
            found = run(self.address, address_of(slot.record), first, min(last, first + some))
            some = some * 2 if time.perf_counter() - start < _PIECE else some
            status, index = found & 15, found >> 4
            if status != Status.DONE and not self._settle(slot, status):
                return index, False
            first = index if status == Status.DONE else index + 1
        return last, True

    def visit(self, slot: Slot) -> bool:
        """Another visit of a CTA in flight; whether it has ended."""
        visit: Callable[..., int] = self.launch.functions["visit"]
        return self._settle(slot, visit(self.address, address_of(slot.record)))

    def _settle(self, slot: Slot, status: int) -> bool:
        """Bring a visit to its end, with what Python must do for warps. Returns whether the CTA has ended."""
        proceed: Callable[..., int] = self.launch.functions["proceed"]
        while status >= _NEEDS_PYTHON:
            self.attend(slot, status - _NEEDS_PYTHON)
            status = proceed(self.address, address_of(slot.record))
        if status == Status.BLOCKED:
            raise deadlock(item for warp in self.warps(slot) for item in warp.where())
        if status == Status.DONE:
            slot.end()
        return status == Status.DONE

    def attend(self, slot: Slot, status: int) -> None:
        """Do what compiled code left to Python, for the warp that comes next; where one has stopped otherwise, look after the barriers
        that Python keeps. Raises what the kernel deserves."""
        if status == Status.DONE:
            self.release(slot)
        else:
            self.warp(slot, slot.get(Cta.POSITION)).attend(status)

    def release(self, slot: Slot) -> None:
        """Let the threads go on for whom a barrier that Python keeps is complete."""
        states = slot.states.reshape(-1, self.launch.code.generated.state_bytes)
        lanes = states[:, State.LIVE : State.LIVE + 4].copy().view("<u4")[:, 0].tolist()
        live = {warp: mask for warp, mask in enumerate(lanes) if mask}
        for completed in slot.barriers.complete(live):
            struct.pack_into("<Q", self.context, Context.PASSED, self.get(Context.PASSED) + 1)
            if self.launch.checks_races:
                self.launch.functions["races_settle"](address_of(self.context), address_of(slot.record))
            for warp, waiting in completed.waiting.items():
                self.warp(slot, warp).release(waiting, completed.true, completed.false)
        slot.put(Cta.ACTIVE, slot.get(Cta.ACTIVE) & 0xFFFF | bool(slot.barriers.state()) << 16)

    def standing(self, slot: Slot) -> Standing:
        """Whether a warp of a CTA can go on by itself."""
        states = slot.states.reshape(-1, self.launch.code.generated.state_bytes)
        waits, seen = (
            states[:, offset : offset + 4].copy().view("<u4")[:, 0] for offset in (State.WAIT, State.SEEN)
        )
        suspended = waits == Wait.SUSPENDED
        phases = slot.get(Cta.PHASES) & 0xFFFFFFFF
        if np.isin(waits, (Wait.RUNNABLE, Wait.SLICE_OVER)).any() or (seen[suspended] != phases).any():
            return Standing.RUNS
        return Standing.STUCK if suspended.any() or (waits == Wait.GATHERS).any() else Standing.WAITS

    def expire(self, slot: Slot) -> bool:
        """Waits on mbarriers give up; whether there were any."""
        expire: Callable[..., int] = self.launch.functions["expire"]
        return bool(expire(self.address, address_of(slot.record)))

    def warp(self, slot: Slot, index: int) -> NativeWarp:
        """The view of one warp; kept while its CTA is in flight, as it may hold what lanes wait for."""
        found = slot.warps.get(index)
        if found is None:
            from .slow_path import NativeWarp

            size = self.launch.code.generated.state_bytes
            state = slot.states[index * size : (index + 1) * size]
            place = Place(self.launch.program, self.launch.plan, slot.get(Cta.INDEX), index)
            found = slot.warps[index] = NativeWarp(self, place, state, slot)
        found.worker = self
        return found

    def warps(self, slot: Slot) -> list[NativeWarp]:
        """All warps of a CTA that have not ended."""
        found = [self.warp(slot, index) for index in range(self.launch.plan.warps_per_cta)]
        return [warp for warp in found if warp.header(State.WAIT) != Wait.DONE]


@dataclass
class Code:
    """A compiled program: the object it was made from, and the object in memory."""

    generated: Generated
    content: bytes
    library: Library
    generation: int
    #: what compiled code is told of the program, made for the first launch
    _known: Known | None = None
    #: of earlier launches, for the next one: by shape of the CTA, and zero
    slots: dict[tuple[int, ...], Slot] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    def known(self, make: Callable[[], Known]) -> Known:
        """What ``make`` made for the first launch."""
        if self._known is None:
            self._known = make()
        return self._known

    def refresh(self) -> None:
        """Use the best runtime functions that there are by now."""
        if self.generation != generation():
            self.generation = generation()
            self.library = link([self.content], ("warp",), runtime_addresses(self.generated.needs))


class Launch:
    """One launch. ``workers`` are the contexts that ran, ``free`` the slots not in use."""

    def __init__(
        self,
        program: Program,
        plan: LaunchPlan,
        memory: Memory,
        observe: frozenset[str],
        code: Code,
        clustered: bool = False,
    ) -> None:
        self.clustered = clustered
        #: what is handed to workers: clusters, or CTAs that run by themselves
        self.units = plan.ctas // plan.cluster_ctas
        self.program = program
        self.plan = plan
        self.memory = memory
        self.observe = observe
        self.code = code
        #: kept while it runs, also if better code takes its place meanwhile
        self.library = code.library
        self.table = memory.table()
        self.saver = None if memory.before_store is None else _Saver(self._save)
        self.failed: BaseException | None = None
        if self.saver is not None:
            first = self.table[: len(memory.allocations)]
            self.table = self.table.copy()
            self.table[: len(first), 3] += 2 * (first[:, 2] % PADDED == KINDS["global"])
        memory.heap.changed.clear()
        self.images = np.ascontiguousarray(memory.images.rows)
        self.tids = _thread_ids(plan.block)
        self.params = _Table(np.frombuffer(bytearray(plan.parameters + bytes(16)), np.uint8))
        self.symbols = _Table(np.append(plan.symbols, np.uint64(0))) if len(plan.symbols) else _NO_SYMBOLS
        self.table_of_threads = make_table(program, plan) if "threads" in observe else None
        self.kept = np.array([*plan.kept, -1] if self.table_of_threads is not None else [], dtype=np.int64)
        self.workers: list[Worker] = []
        self.free: list[Slot] = []
        self.races = race_flags(program, plan)
        #: of two CTAs, and whether one of them may wait for the other; of two warps of one
        among = bool((self.races & Race.AMONG).any())
        self.orders_races = among and not program.order_free
        self.windows = bool((self.races & Race.WITHIN).any()) and not self.orders_races
        self.checks_races = self.windows or self.orders_races or bool((self.races & Race.CHECKED).any())
        self.segments = memory.race_segments(Segment.MOST * Segment.BYTES) if self.orders_races else None
        self.proxies = bool((self.races & Race.ASYNC_PROXY).any())
        self.lines = self._lines(among)
        self.known = code.known(lambda: Known(program))
        self.near = self.known.near(plan.shared_bytes > 0, code.generated.watch)
        self.functions = _functions(runtime_library())

    def _lines(self, among: bool) -> dict[int, int]:
        """What the context is told of the lines of global memory."""
        if not among and not self.windows:
            return dict.fromkeys((Context.RACE_LINES, Context.RACE_LOCKED, Context.RACE_SEGMENTS), 0)
        first = self.memory.race_numbers(self.plan.ctas)
        lines = self.memory.race_lines(Line.BYTES, Line.CELL + Line.ROOM) if among else None
        return {
            Context.RACE_LINES: 0 if lines is None else address_of(lines),
            Context.RACE_ROOMS: 0
            if lines is None
            else address_of(lines) + len(lines) // (Line.CELL + Line.ROOM) * Line.CELL,
            Context.RACE_FROM: GLOBAL_BASE,
            Context.RACE_SPAN: self.memory.global_span,
            Context.RACE_FIRST: first,
            Context.RACE_LOCKED: 0,
            Context.RACE_LOWEST: _NO_LINE,
            Context.RACE_HIGHEST: 0,
            Context.RACE_SEGMENTS: 0 if self.segments is None else address_of(self.segments),
            Context.RACE_SEGMENT_COUNT: 0,
            Context.RACE_RELEASES: 1,
        }

    def lock_lines(self) -> None:
        """Several threads will run CTAs: each locks the lines of global memory that it looks at, if races are looked for."""
        if self.lines[Context.RACE_LINES]:
            self.lines[Context.RACE_LOCKED] = 1
            for worker in self.workers:
                struct.pack_into("<Q", worker.context, Context.RACE_LOCKED, 1)

    def _save(self, context: int, row: int, _: int) -> int:
        """Compiled code is about to store to an allocation for the first time."""
        try:
            index = (row - address_of(self.table)) // self.table.strides[0]
            allocation = self.memory.allocations[index]
            if self.memory.before_store is not None:
                self.memory.before_store(allocation)
            self.table[index, 3] = int(allocation.initialized)
        except BaseException as error:  # it cannot be raised through compiled code
            self.failed = error
        return 0

    def worker(self) -> Worker:
        """A fresh context, perhaps that of an earlier launch."""
        if self._pooled and self.code.workers:
            made = self.code.workers.pop()
            made.begin(self)
        else:
            made = Worker(self)
        self.workers.append(made)
        return made

    @property
    def _pooled(self) -> bool:
        """Whether what a launch allocates may serve the next: it is little, and all launches need the same."""
        return not self.clustered and self.table_of_threads is None and not self._checks_global

    @property
    def _checks_global(self) -> bool:
        """Whether what a CTA knows of accesses of global memory is about the memory of one device."""
        return self.windows or self.orders_races

    @property
    def _shape(self) -> tuple[int, ...]:
        """What slots have in common that may take one another's place."""
        races = (*self._race_shape, int(self.proxies)) if self.checks_races else ()
        return self.plan.warps_per_cta, self.plan.shared_bytes, *races

    def end(self) -> None:
        """The launch has come to its end, and its counters have been read: what it allocated may serve the next."""
        if not self._pooled:
            return
        if len(self.workers) == 1 and self.free and self.free[0].bytes <= _KEPT_BYTES:
            self.code.slots[self._shape] = self.free[0]
        elif self.checks_races:
            if sum(map(len, _race_records.values())) > _KEPT_WORKERS:
                _race_records.clear()
            _race_records.setdefault(self._race_shape, []).extend(
                slot.races for slot in self.free[:_KEPT_WORKERS]
            )
        kept = [worker for worker in self.workers if worker.whole.size <= _KEPT_BYTES][:_KEPT_WORKERS]
        for worker in kept:
            worker.reset()
        self.code.workers += kept[: max(0, _KEPT_WORKERS - len(self.code.workers))]

    def slot(self) -> Slot:
        """Room for a CTA, used before or fresh."""
        if self.free:
            return self.free.pop()
        kept = self.code.slots.pop(self._shape, None) if self._pooled else None
        if kept is not None:
            return kept
        plan, program = self.plan, self.program
        warps, area = plan.warps_per_cta, self.code.generated.area_bytes
        shared, local = -(-plan.shared_bytes // 64) * 64 + 64, program.local_area * warps * 32
        try:
            made = Slot(
                aligned(Cta.BYTES),
                aligned(self.code.generated.state_bytes * warps),
                aligned(2 * shared),
                aligned(2 * local + 64),
                aligned(warps * CAPACITY * area).reshape(warps, -1, max(1, area)),
                self._race_records() if self.checks_races else aligned(0),
            )
        except (MemoryError, ValueError):
            raise LaunchError(
                f"{program.local_area + CAPACITY * area // 32:,} bytes of local memory and of what recursive functions keep for "
                f"each of {plan.threads_per_cta:,} threads of a block",
                span=program.kernel.span,
                hint="this machine has not that much memory: declare less .local memory, or launch smaller blocks",
            ) from None
        made.put(Cta.SHARED, address_of(made.shared))
        made.put(Cta.SHARED_SHADOW, shared if self.code.generated.watch else 0)
        made.put(Cta.MARKED, 1)
        made.put(Cta.LOCAL, address_of(made.local))
        made.put(Cta.LOCAL_SHADOW, local)
        made.put(Cta.STATES, address_of(made.states))
        made.put(Cta.AREAS, address_of(made.areas))
        if self.checks_races:
            made.put(Cta.RACE_ROOM, address_of(made.races))
            self._lay_out_races(made)
        return made

    @property
    def _race_sizes(self) -> tuple[int, int, int]:
        """Times from one to the next, bytes of a clock, bytes of all clocks and records of a CTA."""
        if self.plan.cluster_ctas == 1:
            step, clock = 1, 512
        else:
            step = 1 << (self.plan.cluster_ctas - 1).bit_length()
            clock = step * Race.PEER
        clock *= 1 + self.proxies
        records = Race.MOST_MBARRIERS * (Race.ARRIVING + 2 * clock) + 32 * (Race.CLOCK + 2 * clock)
        return step, clock, Race.CLOCKS_COUNT * clock + records

    @property
    def _race_shape(self) -> tuple[int, ...]:
        """What the records of a CTA look like."""
        return (*self._race_sizes, self._race_plane, self.plan.warps_per_cta)

    def _race_records(self) -> NDArray[np.uint8]:
        """What is known of the order of the accesses of a CTA: zeros, or that of an earlier CTA, which the next one forgets."""
        kept = _race_records.get(self._race_shape, []) if self._pooled else []
        try:
            return kept.pop()
        except IndexError:
            return aligned(self._race_room + self._race_extra)

    @property
    def _race_room(self) -> int:
        """Bytes of what is known of the order of the accesses of a CTA, and of its shared memory."""
        return Race.CLOCKS + self._race_sizes[2] + Race.PLANES_COUNT * self._race_plane

    @property
    def _race_plane(self) -> int:
        return -(-self.plan.shared_bytes // 64) * 64 + 320

    @property
    def _race_extra(self) -> int:
        """Bytes of what is known of the accesses of global memory by a CTA."""
        return self.orders_races * Segments.BYTES + self.windows * Line.ALL

    def _lay_out_races(self, made: Slot) -> None:
        step, clock, room = self._race_sizes
        start, mbarrier, warp = address_of(made.races), Race.ARRIVING + 2 * clock, Race.CLOCK + 2 * clock
        mbarriers = start + Race.CLOCKS + Race.CLOCKS_COUNT * clock
        fields = {
            Race.PLANES: start + Race.CLOCKS + room,
            Race.PLANE: self._race_plane,
            Race.AGENTS: 128 if self.orders_races else 32 if step == 1 else self.plan.warps_per_cta,
            Race.STEP: step,
            Race.CLOCK_BYTES: clock,
            Race.WARPS: mbarriers + Race.MOST_MBARRIERS * mbarrier,
            Race.WARP: warp,
            Race.MBARRIERS: mbarriers,
            Race.MBARRIER: mbarrier,
            Race.ROOM: room,
            Race.CTA: address_of(made.record),
            Race.TWIN: clock // 2 * self.proxies,
            Race.WINDOW: (start + self._race_room) * self.windows,
            Race.SEGMENTS: (start + self._race_room) * self.orders_races,
        }
        if struct.unpack_from("<q", made.races, Race.NOW)[0]:
            fields = {Race.CTA: address_of(made.record)}
        for offset, value in fields.items():
            struct.pack_into("<q", made.races, offset, value)

    @cached_property
    def reasons(self) -> dict[int, int]:
        """What paths wait for, by the block where they do."""
        return reasons_to_wait(self.program)

    @staticmethod
    def aligned(size: int) -> NDArray[np.uint8]:
        """Zero bytes that begin at a multiple of 64."""
        return aligned(size)

    def run(self) -> None:
        """All CTAs: on several host threads if nobody can tell, else on the deterministic schedule."""
        self._run()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        if self.plan.only_kept:
            worker = self.worker()
            for index in self.plan.kept:
                self.run_part(worker, index, index + 1)
        elif self.program.order_free and self.plan.threads > 1 and self.units > 1:
            run_parallel(self)
        else:
            self.run_part(self.worker(), 0, self.units)

    def run_part(self, worker: Worker, first: int, last: int) -> None:
        """The clusters, or the CTAs that run by themselves, of these numbers."""
        (run_clusters if self.clustered else Launch.run_sweeps)(self, worker, first, last)

    def refresh_heap(self) -> None:
        """Let compiled code know which blocks of the heap there are: their rows are the last of the table."""
        heap, first = self.memory.heap, len(self.memory.allocations)
        if not heap.changed:
            return
        rows = first + len(heap.blocks)
        if rows > len(self.table):
            self.table = np.concatenate([self.table, np.zeros((rows + 64, 4), np.int64)])
        for number in heap.changed:
            self.table[first + number] = heap.row(number)
        freed = any(not heap.blocks[number].live for number in heap.changed)
        heap.changed.clear()
        for worker in self.workers:
            struct.pack_into("<QQ", worker.context, Context.TABLE, address_of(self.table), rows)
            if freed:  # what a site remembers may be of a block that is no more
                worker.cache[:] = 0

    def run_sweeps(self, worker: Worker, following: int, count: int) -> None:
        """CTAs ``following … count − 1`` on the deterministic schedule (see ``simt.schedule``): sweeps over a window of resident
        CTAs, in index order; one at a time in order-free programs."""
        resident = 1 if self.program.order_free else self.plan.resident
        window: list[Slot] = []
        watch: Watch[Slot] | None = None
        while window or following < count:
            passed = worker.get(Context.PASSED)
            room = resident - len(window)
            left: list[Slot] = []
            for slot in window:
                (self.free if worker.visit(slot) else left).append(slot)
            progress = len(left) < len(window)
            limit = min(count, following + room) if resident > 1 or window else count
            while following < limit:
                slot = self.slot()
                index, ended = worker.run(slot, following, limit)
                progress = progress or ended or index > following
                following = limit if ended else index + 1
                (self.free if ended else left).append(slot)
                if not ended and resident == 1:
                    break
            window = left
            progress = progress or worker.get(Context.PASSED) > passed
            if window and watch is None:
                watch = self.watch(worker)
            if watch is not None:
                watch.after(progress, window)

    def watch(self, worker: Worker) -> Watch[Slot]:
        """What finds out whether the CTAs that a worker runs can still end."""
        return Watch(
            self.digest,
            worker.standing,
            worker.expire,
            lambda slot: any([warp.force_yield() for warp in worker.warps(slot)]),
            lambda slot: (item for warp in worker.warps(slot) for item in warp.where()),
        )

    @cached_property
    def _decisive(self) -> Decisive:
        from .state_digest import Decisive

        return Decisive(self.program, self.code.generated)

    def digest(self, window: Sequence[Slot]) -> bytes:
        """Of everything that decides how the launch goes on."""
        made = hashlib.blake2b()
        for allocation in self.memory.allocations:
            if allocation.kind == "global":
                made.update(self.memory.view(allocation))
        made.update(np.ascontiguousarray(self.memory.heap_bytes))
        size, decisive = self.code.generated.state_bytes, self._decisive
        for slot in window:
            states = slot.states.copy().reshape(-1, size)
            decisive.clear(states)
            if not self.program.reads_clock:
                states[:, State.STEPS : State.STEPS + 8] = 0
            for part in (states, slot.shared, slot.local, slot.record[Cta.BARRIERS :]):
                made.update(np.ascontiguousarray(part))
            used = states[:, State.AREAS : State.AREAS + 4].copy().view("<u4")[:, 0]
            made.update(repr(slot.barriers.state()).encode())
            for warp, most in enumerate(used.tolist()):
                made.update(np.ascontiguousarray(slot.areas[warp, : most + 1]))
            if slot.group is not None:
                made.update(slot.group.record[Cluster.LIVE : Cluster.PEERS])
        return made.digest()

    def observation(self) -> Observation:
        """The counters of all workers."""
        program = self.program
        made = Observation.empty(program, self.observe)
        unseen: set[int] = set()
        for worker in self.workers:
            made.block_warps += worker.blocks[0]
            made.block_lanes += worker.blocks[1]
            made.divergent += worker.blocks[2]
            made.taken += worker.blocks[3]
            made.predicated += worker.predicated[: len(made.predicated)]
            if made.sites is not None:
                made.sites += worker.sites[: len(made.sites)]
            merge(made.beyond, worker.overruns())
            unseen.update(worker.unseen[: len(program.sites)].nonzero()[0].tolist())
        if made.sites is not None:
            self.known.fill(made.sites, made)
        made.uninitialized = frozenset(unseen)
        made.breaches = first_breaches(item for worker in self.workers for item in worker.breaches())
        self._settle_races()
        made.races = races_of(program, self.plan, (worker.races for worker in self.workers))
        made.threads = self.table_of_threads
        made.remarks = (
            *remarks_on(program, sum((worker.left for worker in self.workers), Counter())),
            *self._race_remarks(),
        )
        return made

    def _settle_races(self) -> None:
        """Look at the lines of global memory where CTAs met that may have run at the same time."""
        if not self.lines[Context.RACE_LINES] or self.orders_races:
            return
        first = min(worker.get(Context.RACE_LOWEST) for worker in self.workers)
        if first < _NO_LINE:
            last = max(worker.get(Context.RACE_HIGHEST) for worker in self.workers)
            self.functions["race_settle"](self.workers[0].address, first, last)

    def _race_remarks(self) -> Iterator[str]:
        most = Segment.MOST - 1
        if self.orders_races and self.workers[0].get(Context.RACE_SEGMENT_COUNT) == most:
            kernel = self.program.kernel
            yield (
                f"{kernel.span}: {kernel.name!r}: after {most:,} pieces between fences and barriers accesses of global memory were "
                "no longer checked for races"
            )


class _Table:
    """An array and its host address."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.ascontiguousarray(array)
        self.address = address_of(self.array)


class Known:
    """What compiled code is told of the sites of a program, the same in all its launches."""

    def __init__(self, program: Program) -> None:
        self._program = program
        instructions = [site.instruction for site in program.sites]
        self.remote = _Table(np.array([*map(reaches_peers, instructions), False], np.uint8))
        self.reaches = _Table(np.array([*map(reachable, instructions), ANY], np.uint8))
        self.pieces = _Table(np.frombuffer(program.pieces, np.uint8))
        self._near: dict[tuple[bool, int], tuple[int, _Table]] = {}
        guards = [program.predicated_of.get(instruction) for instruction in instructions]
        #: sites whose requests, and those whose lanes, are the executions of their block, and those whose lanes are counted by guard
        self._requests, self._lanes, self._guarded = (
            (np.array([site for site, _ in pairs], np.intp), np.array([place for _, place in pairs], np.intp))
            for pairs in (
                [(site.index, site.block) for site, guard in zip(program.sites, guards) if guard is None],
                [
                    (site.index, site.block)
                    for site, guard in zip(program.sites, guards)
                    # of matrices some lanes give addresses, of bulk copies pieces are counted
                    if guard is None
                    and not site.instruction.effect.whole_warp
                    and site.instruction.effect is not BULK_COPY
                ],
                [
                    (site.index, guard)
                    for site, guard in zip(program.sites, guards)
                    if guard is not None and site.instruction.effect is not BULK_COPY
                ],
            )
        )

    def fill(self, sites: NDArray[np.int64], seen: Observation) -> None:
        """Set the requests and lanes of sites that the counters of blocks and guards tell."""
        for column, (place, counter), counts in (
            (0, self._requests, seen.block_warps),
            (1, self._lanes, seen.block_lanes),
            (1, self._guarded, seen.predicated),
        ):
            if place.size:
                sites[place, column] = counts[counter]

    def near(self, shared: bool, watch: int) -> _Table:
        """For each generic load or store the function for shared memory (``Context.NEAR``), if the launch has any."""
        now, kept = generation(), self._near.get((shared, watch))
        if kept is None or kept[0] != now:  # better ones may have been compiled meanwhile
            names = self._names(watch) if shared else {}
            addresses = runtime_addresses(tuple(names.values())) if names else {}
            found = np.zeros(max(1, len(self._program.sites)), np.uint64)
            for index, name in names.items():
                found[index] = addresses[name]
            kept = self._near[shared, watch] = (now, _Table(found))
        return kept[1]

    def _names(self, watch: int) -> dict[int, str]:
        space = "watched" if watch == 1 else "shared"
        names: dict[int, str] = {}
        for site in self._program.sites:
            kind = site.instruction.form.modifier("type")
            near = site.space == "generic" and self.reaches.array[site.index] & bit_of("shared")
            if kind and near and site.instruction.effect in (LOAD, STORE):
                width = scalar_type(str(kind)).bytes
                form = Form(width, max(1, site.bytes // width))
                names[site.index] = f"{space}_{site.instruction.effect.name}_{form.name}"
        return names


@lru_cache(maxsize=64)
def _thread_ids(block: tuple[int, int, int]) -> _Table:
    """Shape (warps, 3, 32): tid.x, tid.y, tid.z of each lane."""
    wide, tall, _ = block
    linear = np.arange(-(-math.prod(block) // 32) * 32, dtype=np.int64)
    axes = np.stack([linear % wide, linear // wide % tall, linear // (wide * tall)])
    table = np.ascontiguousarray(axes.reshape(3, -1, 32).transpose(1, 0, 2), dtype=np.int32)
    raw = aligned(table.nbytes)
    raw[:] = table.reshape(-1).view(np.uint8)
    return _Table(raw.view(np.int32))


@lru_cache(maxsize=8)
def _functions(library: Library) -> dict[str, Any]:
    """The functions of the schedule, to be called; they keep their library."""
    return {name: made(library.addresses[name]) for name, made in _FUNCTIONS.items()}


_NO_SYMBOLS = _Table(np.zeros(1, np.uint64))
