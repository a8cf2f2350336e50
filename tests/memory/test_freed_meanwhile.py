"""Arrays that finalizers of a program free whenever Python's collector runs, also while memory is walked or a kernel runs."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.interp.regions import Arena
from gpuperf_engine.memory.arena import Allocation, Memory
from tests.engine.running import launch


def arrays_of(count: int) -> tuple[Memory, list[Allocation]]:
    memory = Memory(1 << 24)
    return memory, [memory.allocate(256, f"a{number}") for number in range(count)]


def test_the_observer_is_told_of_the_arrays_that_were_accessed() -> None:
    """It frees one with a lower address: the arrays accessed next are still those, not their neighbours."""
    memory, arrays = arrays_of(4)
    arena, left, seen = Arena(memory), [arrays[0]], []

    def frees(allocation: Allocation) -> None:
        seen.append(allocation)
        if left:
            memory.free(left.pop())

    memory.on_access = frees
    valid, _ = arena.check(np.array([item.address for item in arrays[1:3]], np.uint64), 4, False)
    assert valid.all() and seen == arrays[1:3]


def test_blocks_of_the_heap_after_an_array_was_freed() -> None:
    memory, arrays = arrays_of(3)
    arena = Arena(memory)
    block = memory.heap.allocate(64)
    arena.check(np.array([block], np.uint64), 4, False)
    memory.free(arrays[1])
    second = memory.heap.allocate(64)
    at = [arrays[0].address, arrays[1].address, arrays[2].address, block, second]
    valid, _ = arena.check(np.array(at, np.uint64), 4, False)
    assert valid.tolist() == [True, False, True, True, True]


def test_nothing_is_freed_while_the_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, arrays = arrays_of(3)
    arena, collects = Arena(memory), []
    table = Memory.table

    def watched(self: Memory) -> object:
        collects.append(gc.isenabled())
        return table(self)

    monkeypatch.setattr(Memory, "table", watched)
    memory.free(arrays[0])
    assert arena.check(np.array([arrays[2].address], np.uint64), 4, False)[0].all()
    assert collects == [False] and gc.isenabled()


def test_walking_the_allocations_while_one_is_freed() -> None:
    memory, arrays = arrays_of(4)
    seen = []
    for item in memory.allocations:
        seen.append(item)
        if item is arrays[1]:
            memory.free(arrays[0])
    assert seen == arrays
    assert memory.allocations == arrays[1:]
    assert memory.resolve(arrays[3].address) is arrays[3] and memory.holder(arrays[0].address) is None


def test_a_restart_leaves_freed_arrays_alone() -> None:
    memory, arrays = arrays_of(2)
    for item in arrays:
        memory.view(item)[:] = 7
        memory.set_initialized(item, True)
    saved = memory.save()
    memory.free(arrays[0])
    memory.view(arrays[1])[:] = 8
    memory.restore(saved)
    assert (memory.view(arrays[1]) == 7).all()
    assert not memory.view(arrays[0]).any() and not memory.shadow_of(arrays[0]).any()
    assert memory.allocations == arrays[1:]


def test_an_array_freed_before_a_launch_starts(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    first, last = device.zeros(64, np.uint32), device.zeros(64, np.uint32)
    below, left = Memory.below, [first]

    def frees(self: Memory, address: int) -> Allocation | None:
        found = below(self, address)
        if left:
            device.free(left.pop())
        return found

    monkeypatch.setattr(Memory, "below", frees)
    body = "ld.param.u64 %rd0, [data]; mov.u32 %r1, 3; st.global.u32 [%rd0], %r1; ret;"
    launch(backend, body, parameters=".param .u64 data", args=[last], device=device)
    assert int(last.numpy()[0]) == 3
