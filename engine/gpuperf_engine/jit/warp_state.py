"""Python's view of the state of one warp of compiled code: its stack and registers.

The exchange operations of the reference backend read and write the warp's registers through ``read`` and ``put`` here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..flow.blocks import BasicBlock
from ..interp.blocks import make_step
from ..interp.exchange import Exchange, mask_array
from ..interp.operands import Prepare, every_lane, integer, lane_value
from ..interp.values import LaneValue, dtype_of
from ..isa.evaluation import extend
from ..ptx.syntax import Register
from ..simt.faults import WarpPosition
from .ir.abi import Cta, State
from .ir.codes import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    RETURN_CODE,
    SYNC_CODE,
    WAIT_CODE,
    Wait,
)
from .launch import Launch
from .slots import Slot

__all__ = ["WarpState", "Worker"]


@dataclass(frozen=True)
class _Window:
    window: int


class Worker(Protocol):
    """The interface of the worker for its warps."""

    @property
    def launch(self) -> Launch: ...

    @property
    def left(self) -> Counter[tuple[int, int]]:
        """How often warps left compiled code, by event and block."""
        ...

    def get(self, offset: int) -> int:
        """A field of the context, unsigned."""
        ...

    def warp(self, slot: Slot, index: int) -> WarpState:
        """Another warp of the CTA."""
        ...

    def call(self, name: str, record: int, *more: int) -> int:
        """Call a function of the runtime on the record of a CTA, or on the state of a warp."""
        ...


class WarpState:
    """A warp's state."""

    def __init__(self, worker: Worker, position: WarpPosition, state: NDArray[np.uint8], slot: Slot) -> None:
        self.worker = worker
        self.slot = slot
        self._position = position
        self.program = position.program
        self.state = state
        self.exchanges: dict[int, Exchange] = {}

    def header(self, offset: int) -> int:
        """A field of the header, unsigned."""
        return int(struct.unpack_from("<I", self.state, offset)[0])

    @property
    def cta(self) -> _Window:
        """The part of the CTA on which addresses of shared variables depend."""
        return _Window(self.slot.get(Cta.WINDOW))

    @property
    def mask(self) -> int:
        return self.header(State.MASK)

    @property
    def active(self) -> NDArray[np.bool_]:
        return mask_array(self.mask)

    @property
    def block(self) -> BasicBlock:
        """The current block of the warp."""
        index = self.header(State.PC)
        for code in (SYNC_CODE, RETURN_CODE, GATHER_CODE, WAIT_CODE, CONVERGE_CODE):
            if code <= index < EXIT_CODE:
                index -= code
        return self.program.blocks[min(index, len(self.program.blocks) - 1)]

    def position(self) -> WarpPosition:
        """The position of the warp, for messages."""
        return self._position

    def steps(self) -> int:
        """Warp instructions executed."""
        return int(struct.unpack_from("<q", self.state, State.STEPS)[0])

    def entries(self) -> Iterator[tuple[int, int, int, int]]:
        """The entries of the stack, bottom first: program counter, live lanes, kind, and the other bits of the kind field."""
        live = self.header(State.LIVE)
        for depth in range(self.header(State.DEPTH)):
            pc, mask, _, kind = struct.unpack_from("<4I", self.state, State.STACK + depth * State.ENTRY)
            yield pc, mask & live, kind & KIND, kind >> AREA_SHIFT

    @property
    def missing(self) -> list[int]:
        """Warps of the warpgroup that have not reached the fence or group that this one waits for."""
        first, end = self._position.warp & ~3, self._position.plan.warps_per_cta
        others = (self.worker.warp(self.slot, warp) for warp in range(first, min(first + 4, end)))
        wanted = self.header(State.WANTED)
        field = State.FENCES if self.header(State.WAIT) == Wait.GATHERS else State.COMMITS
        return [warp._position.warp for warp in others if warp.header(field) < wanted]

    def exchange(self, block: int) -> Exchange:
        """The reference backend's operation for the exchange at the start of a block."""
        exchange: object = self.exchanges.get(block)
        if not isinstance(exchange, Exchange):
            basic = self.program.blocks[block]
            prepare = Prepare(self.program, self.worker.launch.plan, basic.function)
            exchange = make_step(prepare, basic.instructions[0])
            assert isinstance(exchange, Exchange)
            self.exchanges[block] = exchange
        return exchange

    def reported(self, lane: int) -> int:
        """The value of a lane that compiled code reported for a message."""
        return int(struct.unpack_from("<32Q", self.state, self.worker.launch.code.generated.report)[lane])

    # ------------------------------------------------------------------------------------------------ registers

    def _slot(self, register: Register) -> tuple[int, bool] | None:
        for number, slots in enumerate(self.worker.launch.code.generated.slots):
            slot = slots.get(register.index)
            if slot is not None and self.program.functions[number].registers[register.index] is register:
                return slot
        return None

    def read(self, register: Register) -> LaneValue:
        """The value of a register at the start of a block."""
        constants = self.worker.launch.code.generated.constants
        for number, known in enumerate(constants):
            if (
                register.index in known
                and self.program.functions[number].registers[register.index] is register
            ):
                return integer(known[register.index], register.type)
        slot = self._slot(register)
        if slot is None:
            return integer(0, register.type)
        offset, uniform = slot
        if register.type.is_predicate:
            bits = struct.unpack_from("<I", self.state, offset)[0]
            return LaneValue(np.full(32, bool(bits)) if uniform else mask_array(bits), register.type)
        count, size = (1, register.type.bytes) if uniform else (32, register.type.bytes)
        raw = self.state[offset : offset + count * size]
        if size == 16:
            pairs = raw.view(np.uint64).reshape(count, 2)
            return LaneValue(
                np.array([int(low) | int(high) << 64 for low, high in pairs], object), register.type
            )
        return LaneValue(raw.view(dtype_of(register.type)).copy(), register.type)

    def put(self, register: Register, value: LaneValue, where: NDArray[np.bool_]) -> None:
        """Write some lanes of a register."""
        if value.type is not register.type:
            value = lane_value(extend(value, register.type))
        slot = self._slot(register)
        if slot is None:
            return
        offset, uniform = slot
        data = np.where(where, value.data, every_lane(self.read(register)))
        if register.type.is_predicate:
            bits = int(np.packbits(data.astype(np.bool_), bitorder="little").view("<u4")[0])
            struct.pack_into("<I", self.state, offset, (bits != 0) if uniform else bits)
        elif register.type.bytes == 16:
            raw = b"".join(int(item).to_bytes(16, "little") for item in data)
            self.state[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        else:
            chosen = data[where][:1] if uniform else data
            raw_data = np.ascontiguousarray(chosen.astype(dtype_of(register.type), copy=False)).view(np.uint8)
            self.state[offset : offset + raw_data.size] = raw_data
