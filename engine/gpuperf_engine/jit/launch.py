"""One launch of compiled code: the memory that it needs, and the tables that compiled code reads."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .._gc import uncollected
from ..errors import LaunchError
from ..isa.rules import NOTED
from ..isa.tensor_memory import Tensor
from ..memory.arena import PADDED, Allocation, Memory
from ..memory.spaces import KINDS
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from ..simt.schedule import cancels_others
from ..simt.thread_counters import COLUMN_BYTES, columns_of, make_table
from .callback import Callback
from .codegen.recursion import CAPACITY
from .compiled import Code
from .host_arrays import HostTable, address_of, aligned
from .ir.abi import Cluster, Context, Cta
from .races.memory import RaceMemory
from .runtime_libraries import generation, load_races, runtime_addresses
from .slots import Group, Slot
from .value_records import LaunchValues
from .worker_context import WorkerContext, fields_of_code

__all__ = ["Launch"]

_Visit = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Begin = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_FUNCTIONS = {
    **dict.fromkeys(("run", "run_clusters"), _Run),
    **dict.fromkeys(
        ("visit", "proceed", "visit_cluster", "expire", "force_yield", "arrive_diverged"), _Visit
    ),
    **dict.fromkeys(("begin_cluster", "race_all_apart", "race_settle", "race_settle_words"), _Begin),
    **dict.fromkeys(("visited", "settle_again"), _Run),
}
#: limit of bytes of a launch's allocations that are kept for the next one
_KEPT_BYTES = 1 << 18
_MOST_KEPT = 4
_WHOLE = (1 << 64) - 1
_NO_RECORDS = np.zeros(0, np.uint8)


class Launch:
    """One launch. ``contexts``: of the workers that ran; ``free``: slots not in use."""

    def __init__(
        self,
        program: Program,
        plan: LaunchPlan,
        memory: Memory,
        observe: frozenset[str],
        code: Code,
        clustered: bool = False,
        diverged: bool = False,
        before: Callable[[Allocation], object] | None = None,
    ) -> None:
        self.clustered = clustered
        #: whether warps may be diverged at its barriers
        self.diverged = diverged
        #: called with each allocation before the launch writes to it, so that the launch can restart
        self.before = before
        #: units of work: clusters, or CTAs without clusters
        self.units = plan.ctas // plan.cluster_ctas
        #: whether CTAs may cancel those that have not started
        self.cancels = cancels_others(program, plan)
        self.program = program
        self.plan = plan
        self.memory = memory
        self.observe = observe
        self.code = code
        #: the direct code of the program, or why there is none, if the launch may replace shared code by it (see ``forms``)
        self.direct: Callable[[], Code | str] | None = None
        #: keeps the code alive while it runs, even if better code replaces it meanwhile
        self._library = code.library
        # arrays may be freed while the collector runs: their rows remain until the launch has ended
        told = self._is_told
        self._table, self._count, self._listed = _table_of(memory, told)
        self._rows = len(self._table)
        self._generation = memory.generation
        self._saver = self._announcing() if told else None
        #: whether threads must stop calling compiled code
        self.stopped = False
        memory.heap.changed.clear()
        # with the row of handles that name nothing
        self._images = memory.images.rows
        #: counters per thread, if they are observed
        self.threads = make_table(program, plan) if "threads" in observe else None
        #: records of accessed values, if they are observed
        self.values = LaunchValues(program, memory) if "accesses" in observe else None
        self._kept = np.array([*plan.kept, -1] if self.threads is not None else [], dtype=np.int64)
        self.contexts: list[WorkerContext] = []
        #: whether these have begun with other code
        self._replaced = False
        self._groups: list[Group] = []
        self.free: list[Slot] = []
        self.races = RaceMemory(program, plan, memory)
        self._near = code.tables.near(plan.shared_bytes > 0, code.generated.watch)
        #: the key of interchangeable slots, apart from the records of the race detector
        self._slots = plan.warps_per_cta, plan.shared_bytes, int(self.races.checked)
        #: runtime functions by name
        self.functions = _functions(generation())
        if self.races.any:
            load_races()

    def replace_code(self, code: Code) -> None:
        """Continue with other code of the same program. No CTA may be in flight, and at most one worker may have begun."""
        self.code, self._library, self.direct = code, code.library, None
        self._near = code.tables.near(self.plan.shared_bytes > 0, code.generated.watch)
        self.free.clear()
        for context in self.contexts:
            context.put(
                {
                    **fields_of_code(code.generated),
                    Context.WARP_CODE: self._library.addresses["warp"],
                    Context.NEAR: self._near.address,
                }
            )
        self._replaced = True

    def stop(self) -> None:
        """Make all threads stop running CTAs."""
        self.stopped = True

    @property
    def _is_told(self) -> bool:
        """Whether compiled code calls Python before the first access, or the first write, to an allocation."""
        return self.memory.on_access is not None or self.before is not None

    def _announcing(self) -> Callback:
        """The function that compiled code calls for that; marks the rows of the table."""
        first = self._table[: self._count]
        self._table = self._table.copy()
        flags = 2 * (self.memory.on_access is not None) + 4 * (self.before is not None)
        self._table[: len(first), 3] += flags * (first[:, 2] % PADDED != KINDS["param"])
        # weak, so that the device's memory is freed without a garbage collection
        launch = weakref.proxy(self)
        return Callback(lambda *where: launch._tell(*where))

    @property
    def failed(self) -> BaseException | None:
        """The exception of a callback, which cannot propagate through compiled code."""
        return self._saver.raised[0] if self._saver is not None and self._saver.raised else None

    def _tell(self, row: int, writes: int) -> None:
        """Handle the first access, or the first write, of compiled code to an allocation."""
        index = (row - address_of(self._table)) // self._table.strides[0]
        allocation = self._listed[index]
        later = self.before is not None and not writes
        if self.before is not None and writes:
            self.before(allocation)
        if self.memory.on_access is not None:
            self.memory.on_access(allocation)
        self._table[index, 3] = allocation.initialized + 4 * later

    # -------------------------------------------------------------------------------------------------------- contexts

    def context(self) -> WorkerContext:
        """A context for another worker, possibly reused from an earlier launch, with zero counters."""
        if self.threads is None and self.code.contexts:
            context = self.code.contexts.pop()
        else:
            spare = 0 if self.threads is None else columns_of(self.program).count * COLUMN_BYTES
            context = WorkerContext(self.program, self.code.generated, self.code.tables, spare)
        plan = self.plan
        shape = plan.grid, plan.block, plan.cluster, plan.explicit_cluster, plan.shared_bytes, self.cancels
        if context.shape != shape:
            tids = _thread_ids(plan.block)
            sizes: dict[int, tuple[int, ...]] = {
                Context.NTID: (*plan.block, *plan.grid),
                Context.CLUSTER_SHAPE: (*plan.cluster, *plan.clusters),
            }
            context.prepare(shape, self._fields_of_shape(tids.address), sizes, tids)
        context.begin(plan.parameters, plan.symbols, self._fields())
        context.put(self.races.fields)
        if self.values is not None:
            context.put(self.values.fields)
        if self._saver is not None:
            context.put({Context.SAVE: self._saver.address, Context.SAVE_RECORD: self._saver.record})
        if self.threads is not None:
            context.put(
                {
                    Context.THREADS: address_of(self.threads.counts),
                    Context.KEPT: address_of(self._kept),
                    Context.KEPT_COUNT: len(plan.kept),
                }
            )
        self.contexts.append(context)
        return context

    def _fields_of_shape(self, tids: int) -> dict[int, int]:
        """The fields that follow from code and shape."""
        plan = self.plan
        last = plan.threads_per_cta - 32 * (plan.warps_per_cta - 1)
        return {
            Context.WARPS: plan.warps_per_cta,
            Context.TIDS: tids,
            Context.SHARED_BYTES: plan.shared_bytes,
            Context.LAST_LANES: (1 << last) - 1,
            Context.DYNAMIC_SHARED: plan.dynamic_shared,
            Context.CLUSTER_CTAS: plan.cluster_ctas if self.clustered else 0,
            Context.EXPLICIT_CLUSTER: int(plan.explicit_cluster),
            Context.BY_LANES: int(self.diverged),
            Context.UNITS: self.units if self.cancels else 0,
        }

    def _fields(self) -> tuple[int, ...]:
        """The first fields of ``Context``, which may differ between launches of the same code and shape."""
        plan, memory, images = self.plan, self.memory, self._images
        return (
            self._library.addresses["warp"],
            plan.max_instructions,
            memory.host - memory.origin & _WHOLE,
            memory.host_shadow - memory.origin & _WHOLE,
            address_of(self._table),
            self._rows,
            plan.parameter_address,
            "memory" in self.observe,
            self._touched(0),
            self._touched(1),
            address_of(images),
            len(images),
            self._near.address,
            (1 << len(NOTED)) - 1 if plan.strict == "error" else 0,
            self.races.sites,
        )

    def _touched(self, number: int) -> int:
        maps = self.memory.touched
        return address_of(maps[number]) - self.memory.origin & _WHOLE if maps is not None else 0

    def lock_lines(self) -> None:
        """Prepare for several threads: each locks the lines of global memory that it checks for races."""
        if self.races.batches:
            self.functions["race_all_apart"](self.contexts[0].address, 1, self.races.batches + 1)
        if self.races.lock_lines():
            for context in self.contexts:
                context.put({Context.RACE_LOCKED: 1, Context.RACE_BITS: 0})

    def refresh_table(self) -> None:
        """Take the allocations that the program has made or freed while it was away."""
        memory = self.memory
        if memory.generation == self._generation or self._saver is not None:
            return
        self._generation = memory.generation
        self._table, self._count, self._listed = _table_of(memory, False)
        self._rows = len(self._table)
        for context in self.contexts:
            context.put({Context.TABLE: address_of(self._table), Context.TABLE_ROWS: self._rows})
            context.cache[:] = 0

    def refresh_heap(self) -> None:
        """Update the rows of heap blocks, the last ones in the table of allocations."""
        heap, first = self.memory.heap, self._count
        if not heap.changed:
            return
        rows = self._rows = first + len(heap.blocks)
        if rows > len(self._table):
            self._table = np.concatenate([self._table, np.zeros((rows + 64, 4), np.int64)])
        for number in heap.changed:
            self._table[first + number] = heap.row(number)
        freed = any(not heap.blocks[number].live for number in heap.changed)
        heap.changed.clear()
        for context in self.contexts:
            context.put({Context.TABLE: address_of(self._table), Context.TABLE_ROWS: rows})
            if freed:  # caches of sites may refer to a freed block
                context.cache[:] = 0

    # ----------------------------------------------------------------------------------------------------------- slots

    def slot(self) -> Slot:
        """Memory for a CTA, reused or new. Raises ``LaunchError`` if the host has too little."""
        if self.free:
            return self.free.pop()
        kept = None if self.clustered else self.code.slots.pop(self._slots, None)
        if kept is not None:
            self._give_records(kept)
            return kept
        generated, plan, program = self.code.generated, self.plan, self.program
        warps, area = plan.warps_per_cta, generated.area_bytes
        shared, local = -(-plan.shared_bytes // 64) * 64 + 64, program.local_area * warps * 32
        try:
            slot = Slot(
                aligned(Cta.BYTES),
                aligned(generated.state_bytes * warps),
                aligned(2 * shared),
                aligned(2 * local + 64),
                aligned(warps * CAPACITY * area).reshape(warps, -1, max(1, area)),
                aligned(Tensor.BYTES * program.uses_tensor_memory),
            )
        except (MemoryError, ValueError):
            raise LaunchError(
                f"{program.local_area + CAPACITY * area // 32:,} bytes of local memory and of state of recursive functions for "
                f"each of {plan.threads_per_cta:,} threads of a block",
                span=program.kernel.span,
                hint="the host does not have that much memory: declare less .local memory, or launch smaller blocks",
            ) from None
        slot.put(Cta.SHARED, address_of(slot.shared))
        slot.put(Cta.SHARED_SHADOW, shared if generated.watch else 0)
        slot.put(Cta.MARKED, 1)
        slot.put(Cta.LOCAL, address_of(slot.local))
        slot.put(Cta.LOCAL_SHADOW, local)
        slot.put(Cta.STATES, address_of(slot.states))
        slot.put(Cta.AREAS, address_of(slot.areas))
        slot.put(Cta.TENSOR, address_of(slot.tensor) if slot.tensor.size else 0)
        self._give_records(slot)
        return slot

    def _give_records(self, slot: Slot) -> None:
        """Attach records of the race detector to a CTA's slot."""
        if self.races.checked:
            slot.races = self.races.records()
            slot.put(Cta.RACE_ROOM, address_of(slot.races))
            self.races.lay_out(slot.races, slot.address)

    def group(self) -> Group:
        """Memory for a cluster."""
        group = Group(aligned(Cluster.BYTES), [self.slot() for _ in range(self.plan.cluster_ctas)])
        group.put(Cluster.SIZE, len(group.slots))
        for rank, slot in enumerate(group.slots):
            group.put(Cluster.PEERS + 8 * rank, slot.address)
            slot.put(Cta.CLUSTER, address_of(group.record))
            slot.group = group
        self._groups.append(group)
        return group

    # --------------------------------------------------------------------------------------------- reuse by the next launch

    def end(self) -> None:
        """Keep small allocations for the next launch, after this one has ended and its counters have been read."""
        if self.races.checked:
            in_clusters = (slot for group in self._groups for slot in group.slots)
            self.races.keep([slot.races for slot in (*self.free, *in_clusters)])
        self.races.end()
        if not self.clustered and self.free and self.free[0].bytes <= _KEPT_BYTES:
            spare = self.code.slots[self._slots] = self.free[0]
            # race records are kept separately, by shape and up to a limit
            spare.races = _NO_RECORDS
        if (
            self.threads is not None or self._replaced
        ):  # contexts point to counters of this launch, or to tables of the other code
            return
        for context in self.contexts:
            if context.whole.size <= _KEPT_BYTES and len(self.code.contexts) < _MOST_KEPT:
                context.reset()
                self.code.contexts.append(context)


@uncollected
def _table_of(memory: Memory, listed: bool) -> tuple[NDArray[np.int64], int, list[Allocation]]:
    """The table of allocations, their number, and, if ``listed``, themselves."""
    return memory.table(), len(memory.allocations), memory.allocations.copy() if listed else []


@lru_cache(maxsize=64)
def _thread_ids(block: tuple[int, int, int]) -> HostTable:
    """Shape (warps, 3, 32): tid.x, tid.y, tid.z of each lane."""
    wide, tall, _ = block
    linear = np.arange(-(-math.prod(block) // 32) * 32, dtype=np.int64)
    axes = np.stack([linear % wide, linear // wide % tall, linear // (wide * tall)])
    table = np.ascontiguousarray(axes.reshape(3, -1, 32).transpose(1, 0, 2), dtype=np.int32)
    raw = aligned(table.nbytes)
    raw[:] = table.reshape(-1).view(np.uint8)
    return HostTable(raw.view(np.int32))


class _Functions(dict[str, Callable[..., int]]):
    """Runtime functions as Python callables, loaded on first use."""

    def __missing__(self, name: str) -> Callable[..., int]:
        function = self[name] = _FUNCTIONS[name](runtime_addresses((name,))[name])
        return function


@lru_cache(maxsize=8)
def _functions(generation: int) -> _Functions:
    """The runtime functions of a generation; optimised ones have a higher number."""
    return _Functions()
