"""Inputs of the launches of a program: the memory that is reachable from their arguments, so that they can be run again on a separate
device after the program has freed it or ended."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import GLOBAL_BASE, NOTHING, Allocation, Memory, Saved
from ..memory.arrays import HostArray
from ..memory.heap import HEAP_BYTES
from ..ptx.module import Function
from ..ptx.syntax import Variable
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .device import Runtime
from .inputs import KEPT_BYTES, Inputs

__all__ = ["LOOKED_AT_BYTES", "MOST_KEPT", "FirstInputs", "KeptArray", "ReachedInputs"]

#: the number of different inputs that are kept per kernel and shape; more for launches of few threads, which are cheap to run again
MOST_KEPT = 32
MOST_SMALL_KEPT, SMALL_THREADS = 128, 1 << 16
#: the total number of bytes that are compared with kept inputs and searched for pointers
LOOKED_AT_BYTES = 4 << 30


@dataclass(frozen=True, eq=False, slots=True)
class KeptArray:
    """An allocation before a launch. ``contents`` and ``shadow`` (uint8) are empty if nothing had been written; the shadow also if
    everything had been."""

    allocation: Allocation
    initialized: bool
    contents: NDArray[np.uint8]
    shadow: NDArray[np.uint8]

    @property
    def bytes(self) -> int:
        return self.contents.nbytes + self.shadow.nbytes

    def is_in(self, memory: Memory) -> bool:
        """Whether the allocation still has these contents."""
        item = self.allocation
        if item.freed or item.initialized != self.initialized:
            return False
        if not len(self.contents):
            return self.initialized or not memory.shadow_of(item).any()
        same = _same(memory.view(item), self.contents)
        return same and (self.initialized or _same(memory.shadow_of(item), self.shadow))


@dataclass(eq=False)
class ReachedInputs:
    """The memory that a launch can reach. It is run again on a device that is created on first use, with only this memory at the same
    addresses, so a kernel that accesses other memory fails there. ``addresses``: those of the program's variables."""

    arrays: tuple[KeptArray, ...]
    addresses: Mapping[Variable | Function, int]

    @cached_property
    def _inputs(self) -> Inputs:
        ends = (row.allocation.end + (row.allocation.pad or 0) for row in self.arrays)
        room = max((GLOBAL_BASE, *ends)) - GLOBAL_BASE
        device = Runtime({"memory"}, memory_bytes=room + (64 << 20), heap_bytes=HEAP_BYTES, races="off")
        rows = [(row.allocation, row.initialized, row.contents, row.shadow) for row in self.arrays]
        device.memory.mirror(Saved(rows, device.memory.save_heap()), [row.allocation for row in self.arrays])
        return Inputs(device.memory, device.memory.save(), self.address, device.rerun)

    @property
    def memory(self) -> Memory:
        return self._inputs.memory

    @property
    def saved(self) -> Saved:
        return self._inputs.saved

    @property
    def digest(self) -> bytes:
        return self._inputs.digest

    def address(self, variable: Variable | Function) -> int:
        """The address of a variable or function, 0 if the launch cannot reach it."""
        return self.addresses.get(variable, 0)

    def bytes_at(self, address: int, size: int) -> bytes | None:
        return self._inputs.bytes_at(address, size)

    def run(self, program: Program, plan: LaunchPlan, parameters: bytes) -> tuple[Observation, bytes]:
        return self._inputs.run(program, plan, parameters)

    def arrays_after(self, program: Program, plan: LaunchPlan, parameters: bytes) -> list[NDArray[np.uint8]]:
        return self._inputs.arrays_after(program, plan, parameters)


@dataclass(eq=False, slots=True)
class _Known:
    """Kept inputs, with the parameters and symbols of their launch."""

    parameters: bytes
    symbols: bytes
    inputs: ReachedInputs


@dataclass(eq=False)
class FirstInputs:
    """Keeps the inputs of the first ``MOST_KEPT`` launches of each kernel and shape that differ in them (``MOST_SMALL_KEPT`` of those
    of few threads), ``KEPT_BYTES`` in all. A later launch that finds what one of these has found has the same, until
    ``LOOKED_AT_BYTES`` have been looked at."""

    held: int = 0
    looked_at: int = 0
    _known: dict[Hashable, list[_Known]] = field(default_factory=dict)
    _last: dict[Allocation, KeptArray] = field(default_factory=dict)
    #: kernels and shapes whose limit is reached
    _ended: set[Hashable] = field(default_factory=set)

    def keep(
        self,
        memory: Memory,
        program: Program,
        shape: Hashable,
        parameters: bytes,
        symbols: NDArray[np.uint64],
        pointed: Iterable[Allocation],
        threads: int,
    ) -> ReachedInputs | None:
        """What a launch of so many threads finds in memory; ``None`` where that is not kept: it reaches memory of the host, images or
        a heap, or too much is kept. ``pointed``: what its parameters point into."""
        if memory.heap.blocks or memory.images:
            return None
        case = program.kernel, shape
        known = self._known.setdefault(case, [])
        named = symbols.tobytes()
        for item in known:
            if item.parameters == parameters and item.symbols == named and self._holds(item.inputs, memory):
                return item.inputs
        most = MOST_SMALL_KEPT if threads <= SMALL_THREADS else MOST_KEPT
        if len(known) >= most or case in self._ended or self.looked_at > LOOKED_AT_BYTES:
            return None
        variables = (memory.holder(address) for address in symbols.tolist())
        roots = [*pointed, *(item for item in variables if item is not None)]
        if any(item.adopted for item in roots):
            return None
        reached = _reached(roots, memory)
        arrays = None if reached is None else self._copied(reached, memory)
        if arrays is None:
            self._ended.add(case)
            return None
        self.looked_at += sum(row.allocation.size for row in arrays)
        addresses = dict(zip(program.symbols, symbols.tolist(), strict=True))
        inputs = ReachedInputs(arrays, addresses)
        known.append(_Known(parameters, named, inputs))
        return inputs

    def _holds(self, inputs: ReachedInputs, memory: Memory) -> bool:
        """Whether memory has the contents of these inputs."""
        for row in inputs.arrays:
            if self.looked_at > LOOKED_AT_BYTES:
                return False
            self.looked_at += row.allocation.size
            if not row.is_in(memory):
                return False
        return True

    def _copied(self, reached: Iterable[Allocation], memory: Memory) -> tuple[KeptArray, ...] | None:
        """Copies of these allocations; unchanged ones share the previous copy. ``None`` if the limit is exceeded."""
        rows = []
        for item in reached:
            row = self._last.get(item)
            if row is None or not row.is_in(memory):
                written = item.initialized or bool(memory.shadow_of(item).any())
                needed = item.size * (2 - item.initialized) if written else 0
                if self.held + needed > KEPT_BYTES:
                    return None
                self.held += needed
                contents = memory.view(item).copy() if written else NOTHING
                shadow = memory.shadow_of(item).copy() if written and not item.initialized else NOTHING
                row = self._last[item] = KeptArray(item, item.initialized, contents, shadow)
            rows.append(row)
        return tuple(rows)


def _reached(roots: Iterable[Allocation], memory: Memory) -> list[Allocation] | None:
    """All allocations reachable from these through aligned pointers, in order of address, without host memory; ``None`` if they exceed
    the limit."""
    reached: dict[Allocation, None] = {}
    waiting = [*dict.fromkeys(roots)]
    every = [item for item in memory.allocations if item.kind == "global" and item.size]
    starts = np.array([item.address for item in every], np.uint64)
    ends = np.array([item.end for item in every], np.uint64)
    size = 0
    while waiting:
        item = waiting.pop()
        if item in reached:
            continue
        size += item.size
        if size > KEPT_BYTES:
            return None
        reached[item] = None
        if not every or not (item.initialized or memory.shadow_of(item).any()):
            continue
        words = memory.view(item)[: item.size // 8 * 8].view(np.uint64)
        words = words[(words >= starts[0]) & (words < ends[-1])]
        indices = np.searchsorted(starts, words, "right") - 1
        pointed = np.unique(indices[words < ends[indices]])
        waiting.extend(every[index] for index in pointed.tolist() if not every[index].adopted)
    return sorted(reached, key=lambda item: item.address)


@lru_cache(maxsize=1)
def _memcmp() -> Callable[..., int]:
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes, compare.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    found: Callable[..., int] = compare
    return found


def _same(first: HostArray, second: HostArray) -> bool:
    """Whether two contiguous arrays have the same bytes; stops at the first difference."""
    return first.nbytes == second.nbytes and not _memcmp()(
        first.ctypes.data, second.ctypes.data, first.nbytes
    )
