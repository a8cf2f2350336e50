"""Memory contents before launches, so that these can be run again (``observe={"inputs"}``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import NOTHING, Allocation, Memory, Saved
from ..ptx.module import Function
from ..ptx.syntax import Variable
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .events import Event

__all__ = ["KEPT_BYTES", "Inputs", "InputsKeeper"]

#: the total bytes of inputs per device; later launches keep none
KEPT_BYTES = 256 << 20

Rerun = Callable[[Saved, Program, LaunchPlan, bytes, Callable[[], object]], Observation]


@dataclass(eq=False)
class Inputs:
    """Memory as it was before a launch. ``address``: of a variable of a module; ``rerun``: see ``Runtime.rerun``."""

    memory: Memory
    saved: Saved
    address: Callable[[Variable | Function], int]
    rerun: Rerun

    @cached_property
    def digest(self) -> bytes:
        """A digest of all written memory."""
        digest = hashlib.blake2b(digest_size=16)
        for item, _, contents, _ in self.saved.contents:
            digest.update(f"{item.address} {item.size} ".encode())
            digest.update(contents)
        digest.update(self.saved.heap[1])
        return digest.digest()

    def bytes_at(self, address: int, size: int) -> bytes | None:
        """The contents of global memory; ``None`` for memory that had not been written."""
        for item, _, contents, _ in self.saved.contents:
            start = address - item.address
            if start >= 0 and start + size <= item.size:
                return bytes(contents[start : start + size])
        return None

    def run(self, program: Program, plan: LaunchPlan, parameters: bytes) -> tuple[Observation, bytes]:
        """Run a program on this memory. Returns its counters and a digest of the resulting global memory; the device's memory is
        restored."""
        results: list[bytes] = []
        observation = self.rerun(
            self.saved, program, plan, parameters, lambda: results.append(self._contents())
        )
        return observation, results[0]

    def arrays_after(self, program: Program, plan: LaunchPlan, parameters: bytes) -> list[NDArray[np.uint8]]:
        """The contents of each allocation of global memory after the program has run on it."""
        results: list[NDArray[np.uint8]] = []
        self.rerun(
            self.saved,
            program,
            plan,
            parameters,
            lambda: results.extend(
                self.memory.view(item).copy() for item in self.memory.allocations if item.kind == "global"
            ),
        )
        return results

    def _contents(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for item in self.memory.allocations:
            if item.kind == "global":
                digest.update(self.memory.view(item))
        digest.update(self.memory.heap_bytes)
        return digest.digest()


class InputsKeeper:
    """Keeps inputs; arrays that did not change between launches are stored once. If events record what was written, unwritten
    arrays are not even compared."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.bytes = 0
        self._last: dict[Allocation, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}
        #: number of events at the last launch, and whether it has ended and become an event
        self._events = 0
        self._ended = True

    def launched(self) -> None:
        """Note that a launch has ended and become an event, which records what it wrote."""
        self._ended = True

    def keep(self, arrays: Mapping[Allocation, object], events: Sequence[Event] | None) -> Saved | None:
        """``Memory.save``; ``None`` once too much is kept. ``events``: of the program so far, with what they wrote in the arrays;
        ``None`` if that was not observed."""
        unwritten = self._unwritten(arrays, events)
        written = [
            item for item in self.memory.allocations if item.initialized or self.memory.shadow_of(item).any()
        ]
        if self.bytes + len(self.memory.heap_bytes) > KEPT_BYTES:
            return None
        contents = []
        for item in written:
            # the shadow of initialised memory does not change
            whole = item.initialized and not item.cleared
            now = self.memory.view(item), NOTHING if whole else self.memory.shadow_of(item)
            known = self._last.get(item)
            same = item in unwritten or (known is not None and all(map(np.array_equal, known, now)))
            if known is None or not same:
                self.bytes += sum(part.nbytes for part in now)
                if self.bytes > KEPT_BYTES:
                    return None
                known = self._last[item] = now[0].copy(), now[1].copy()
            contents.append((item, item.initialized, *known))
        return Saved(contents, self.memory.save_heap())

    def _unwritten(
        self, arrays: Mapping[Allocation, object], events: Sequence[Event] | None
    ) -> set[Allocation]:
        """Arrays that were not written since the last launch began; none after a failed launch."""
        ended, self._ended = self._ended, False
        if events is None:
            return set()
        since, self._events = events[self._events :], len(events)
        if not ended:
            return set()
        return {*arrays} - {
            use.array.allocation for event in since for use in event.uses if use.bytes_written
        }
