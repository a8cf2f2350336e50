"""What memory held before launches, so that they can be run again (``observe={"inputs"}``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import Allocation, Memory, Saved
from ..ptx.syntax import Variable
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program

__all__ = ["KEPT_BYTES", "Inputs", "InputsKeeper"]

#: bytes of all inputs that are kept of the launches of a device; later launches keep none
KEPT_BYTES = 256 << 20

Rerun = Callable[[Saved, Program, LaunchPlan, bytes, Callable[[], object]], Observation]


@dataclass(eq=False)
class Inputs:
    """Memory as it was before a launch. ``address``: of a variable of a module; ``rerun``: see ``Runtime.rerun``."""

    memory: Memory
    saved: Saved
    address: Callable[[Variable], int]
    rerun: Rerun

    @cached_property
    def digest(self) -> bytes:
        """Of everything that was written."""
        digest = hashlib.blake2b(digest_size=16)
        for item, _, contents, _ in self.saved.contents:
            digest.update(f"{item.address} {item.size} ".encode())
            digest.update(contents)
        digest.update(self.saved.heap[1])
        return digest.digest()

    def run(self, program: Program, plan: LaunchPlan, parameters: bytes) -> tuple[Observation, bytes]:
        """Runs a program on it: what was counted, and a digest of what global memory held then. Memory is afterwards what it was."""
        results: list[bytes] = []
        observation = self.rerun(
            self.saved, program, plan, parameters, lambda: results.append(self._contents())
        )
        return observation, results[0]

    def _contents(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for item in self.memory.allocations:
            if item.kind == "global":
                digest.update(self.memory.view(item))
        digest.update(self.memory.heap_bytes)
        return digest.digest()


class InputsKeeper:
    """Keeps inputs; what did not change from one launch to the next is kept once."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.bytes = 0
        self._last: dict[Allocation, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}

    def keep(self) -> Saved | None:
        """``Memory.save``; ``None`` once too much is kept."""
        written = [
            item for item in self.memory.allocations if item.initialized or self.memory.shadow_of(item).any()
        ]
        if self.bytes + len(self.memory.heap_bytes) > KEPT_BYTES:
            return None
        contents = []
        for item in written:
            now = self.memory.view(item), self.memory.shadow_of(item)
            known = self._last.get(item)
            if known is None or not all(np.array_equal(old, new) for old, new in zip(known, now)):
                self.bytes += 2 * item.size
                if self.bytes > KEPT_BYTES:
                    return None
                known = self._last[item] = now[0].copy(), now[1].copy()
            contents.append((item, item.initialized, *known))
        return Saved(contents, self.memory.save_heap())
