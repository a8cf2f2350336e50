"""The parts of the state of compiled code on which the continuation of warps depends."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..simt.live_registers import live_at
from ..simt.program import Program
from ..simt.stack_entries import PENDING
from .codegen.generator import Generated
from .ir.abi import State
from .ir.codes import KIND, Wait
from .ir.operands import LANES
from .stack_codes import decoded

__all__ = ["Decisive"]

#: fields with temporary values, and counts of executed work
_IDLE = (State.QUANTUM, State.SLICES, State.EVENT, State.DETAIL, State.CULPRITS, State.SLICE_END)
_EVERY = 0xFFFFFFFF
_MOST_KEPT = 256


class Decisive:
    """Clears everything else in copies of the states."""

    def __init__(self, program: Program, generated: Generated) -> None:
        self.program = program
        self.generated = generated
        #: masks by running path and stack, which are the same for most warps of a launch
        self._kept: dict[bytes, NDArray[np.uint8]] = {}
        self._known: dict[tuple[int, int], tuple[NDArray[np.uint32], list[int]]] = {}
        #: the lanes of each byte of all registers, and the offsets of predicates
        self._all = self._owners(
            (number, index) for number, slots in enumerate(generated.slots) for index in slots
        )

    def clear(self, states: NDArray[np.uint8]) -> None:
        """``states``: of some warps, shape (warps, bytes)."""
        generated, words = self.generated, states.view("<u4")
        for field in _IDLE:
            words[:, field // 4] = 0
        words[words[:, State.WAIT // 4] != Wait.SUSPENDED, State.SEEN // 4] = 0
        words[words[:, State.MASK // 4] == 0, State.PC // 4] = 0
        words[words[:, State.MASK // 4] == 0, State.ID // 4] = 0
        first, width = State.STACK // 4, State.ENTRY // 4
        depth = words[:, State.DEPTH // 4]
        stack = words[:, first : first + generated.stack_entries * width]
        stack[np.arange(stack.shape[1]) >= width * depth[:, None].astype(np.int64)] = 0
        states[:, generated.report : generated.parameters_start] = 0
        running = words[:, [State.LIVE // 4, State.PC // 4, State.MASK // 4]]
        shapes, which = np.unique(
            np.hstack([running, stack[:, : width * int(depth.max(initial=0))]]), axis=0, return_inverse=True
        )
        for number, shape in enumerate(shapes):
            raw = shape.tobytes()
            kept = self._kept.get(raw)
            if kept is None:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                live, pc, mask, *entries = shape.tolist()
                paths = [(pc, mask, PENDING)]
                paths += zip(entries[::width], entries[1::width], (kind & KIND for kind in entries[3::width]))
                kept = self._kept[raw] = self._bits(live, paths)
            if len(shapes) == 1:
                states &= kept
            else:
                states[which.reshape(-1) == number] &= kept

    def _bits(self, live: int, paths: list[tuple[int, int, int]]) -> NDArray[np.uint8]:
        """The mask of the relevant bits of a state."""
        owners, predicates = self._all
        kept = np.where(owners != 0, 0, 0xFF).astype(np.uint8)
        words = kept.view("<u4")
        words[[offset // 4 for offset in predicates]] = 0
        for pc, mask, kind in paths:
            if mask & live:
                owners, predicates = self._at(pc, kind)
                kept[owners & np.uint32(mask & live) != 0] = 0xFF
                words[[offset // 4 for offset in predicates]] |= np.uint32(mask & live)
        return kept

    def _at(self, pc: int, kind: int) -> tuple[NDArray[np.uint32], list[int]]:
        owners = self._known.get((pc, kind))
        if owners is None:
            live = live_at(self.program, decoded(pc), kind)
            owners = self._all
            if live is not None:
                owners = self._owners((number, register.index) for number, register in live)
            self._known[pc, kind] = owners
        return owners

    def _owners(self, registers: Iterable[tuple[int, int]]) -> tuple[NDArray[np.uint32], list[int]]:
        """For each byte of a state, the lanes to which it belongs in one of these registers, and the offsets of predicates."""
        owners = np.zeros(self.generated.state_bytes, np.uint32)
        predicates = []
        for number, index in registers:
            if index not in self.generated.slots[number]:
                continue
            offset, uniform = self.generated.slots[number][index]
            type = self.program.functions[number].registers[index].type
            if uniform:
                owners[offset : offset + max(4, type.bytes)] = _EVERY
            elif type.is_predicate:
                predicates.append(offset)
            else:
                lanes = np.left_shift(np.uint32(1), np.arange(LANES, dtype=np.uint32))
                owners[offset : offset + LANES * type.bytes] = np.repeat(lanes, type.bytes)
        return owners, predicates
