"""System functions, executed for the lanes of one warp: ``printf``, failed assertions, ``malloc`` and ``free``.

The backends only collect the arguments and store the results. Lanes execute one by one, in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError, TrapError, Unsupported
from ..isa.system import DEVICE_LAUNCH, SYSTEM_FUNCTIONS
from ..memory.access_faults import Access, memory_fault
from ..memory.arena import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, Memory
from ..ptx.module import Function
from ..ptx.syntax import Instruction
from ..ptx.text import shorten
from .faults import WarpPosition, cta_of, lanes_of, thread_of
from .printf import conversions, format_text

__all__ = ["SystemCall", "undefined"]

Bytes = NDArray[np.uint8]
#: the maximum length of a text, which may lack its zero
_LONGEST = 1 << 16
_MOST_ARGUMENTS = 32
_NULL, _FAILED = 0xFFFFFFFF, 0xFFFFFFFE


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A call by some lanes of a warp. ``arguments``: for each parameter the values of 32 lanes, uint64; ``local``: a lane's local
    memory; ``shared``: that of the CTA."""

    instruction: Instruction
    position: WarpPosition
    memory: Memory
    lanes: int
    arguments: tuple[NDArray[np.uint64], ...]
    local: Callable[[int], Bytes]
    shared: Bytes

    def perform(self) -> NDArray[np.uint64]:
        """The result of each lane, shape (32,). Raises ``TrapError`` and ``MemoryFault``."""
        system = self.instruction.system
        assert system is not None
        results = np.zeros(32, np.uint64)
        does = _EFFECTS[system.effect]
        for lane in lanes_of(self.lanes):
            results[lane] = does(self, lane, *(int(values[lane]) for values in self.arguments))
        return results

    # -- memory ----------------------------------------------------------------------------------------------------------

    def read(self, lane: int, address: int, size: int) -> bytes:
        """Bytes at a generic address. Raises ``MemoryFault``."""
        data, offset = self._reach(lane, address)
        if data is None or not 0 <= offset <= data.size - size:
            raise self._fault(lane, address, size)
        return data[offset : offset + size].tobytes()

    def text(self, lane: int, address: int) -> bytes:
        """The bytes up to the next zero. Raises ``MemoryFault`` if the object ends before it."""
        data, offset = self._reach(lane, address)
        if data is None or offset >= data.size:
            raise self._fault(lane, address, 1)
        part = data[offset : offset + _LONGEST]
        end = np.flatnonzero(part == 0)
        if not end.size and part.size < _LONGEST:
            raise self._fault(lane, address + part.size, 1)
        return part[: end[0] if end.size else _LONGEST].tobytes()

    def _reach(self, lane: int, address: int) -> tuple[Bytes | None, int]:
        """The object that contains an address, and the offset in it."""
        if 0 <= address - SHARED_WINDOW < WINDOW_BYTES:
            return self.shared, address - SHARED_WINDOW
        if 0 <= address - LOCAL_WINDOW < WINDOW_BYTES:
            return self.local(lane), address - LOCAL_WINDOW
        allocation = self.memory.resolve(address)
        return (
            (None, 0) if allocation is None else (self.memory.view(allocation), address - allocation.address)
        )

    def _fault(self, lane: int, address: int, size: int) -> EngineError:
        plan, space, limit = self.position.plan, "global", 0
        if 0 <= address - SHARED_WINDOW < WINDOW_BYTES:
            space, limit, address = "shared", self.shared.size, address - SHARED_WINDOW
        elif 0 <= address - LOCAL_WINDOW < WINDOW_BYTES:
            space, limit, address = "local", self.local(lane).size, address - LOCAL_WINDOW
        return memory_fault(
            self.memory,
            Access(
                self.instruction, self.position.program.kernel.name, "load", space, address, size,
                thread_of(plan, self.position.warp, lane), cta_of(plan, self.position.cta), limit, self._name(), packed=True,
            ),
        )  # fmt: skip

    def _name(self) -> str:
        call = self.instruction.call
        assert call is not None and call.function is not None
        return call.function.name

    # -- effects ---------------------------------------------------------------------------------------------------------

    def _print(self, lane: int, format_: int, buffer: int) -> int:
        if not format_:
            return _NULL
        pieces = list(conversions(self.text(lane, format_)))
        expected = sum(
            bool(piece.type) + (piece.width == b"*") + (piece.precision == b"*") for piece in pieces
        )
        if expected > _MOST_ARGUMENTS:
            return _FAILED
        if expected and not buffer:
            raise TrapError(
                f"printf: the format asks for {expected} argument{'s' * (expected > 1)}, but none is given",
                span=self.instruction.span,
                details=[self.position.thread(lane), f"format {self.text(lane, format_)[:60]!r}"],
            )
        offset = buffer

        def next_argument(size: int) -> int:
            nonlocal offset
            offset = -(-offset // size) * size
            value = int.from_bytes(self.read(lane, offset, size), "little")
            offset += size
            return value

        text, used = format_text(pieces, next_argument, lambda address: self.text(lane, address))
        self.position.plan.console.write(text)
        return used

    def _assert(self, lane: int, message: int, file: int, line: int, function: int, size: int) -> int:
        block = ",".join(map(str, cta_of(self.position.plan, self.position.cta)))
        thread = ",".join(map(str, thread_of(self.position.plan, self.position.warp, lane)))
        words = [self._words(lane, address) for address in (file, function, message)]
        others = self.lanes.bit_count() - 1
        more = f", and {others} more thread{'s' * (others > 1)} of its warp" if others else ""
        raise TrapError(
            f"{words[0]}:{line & 0xFFFFFFFF}: {words[1]}: block: [{block}], thread: [{thread}] Assertion `{words[2]}` failed.",
            span=self.instruction.span,
            details=[f"device assertion failed in {self.position.thread(lane)}{more}"],
        )

    def _words(self, lane: int, address: int) -> str:
        """A text for the message of a failed assertion; invalid pointers do not hide the failure."""
        try:
            return shorten(self.text(lane, address).decode("utf-8", "backslashreplace"), 400)
        except EngineError:
            return "?"

    def _allocate(self, lane: int, size: int) -> int:
        heap = self.memory.heap
        if any(item.adopted for item in self.memory.allocations[-1:]):
            # blocks of the heap must be at the end of the table of allocations, which adopted memory would follow
            raise Unsupported(
                "malloc in a kernel, on a device that has adopted memory of the host",
                span=self.instruction.span,
                hint="free adopted memory, or copy it with array()",
            )
        address = heap.allocate(size)
        if address:
            start = address - self.memory.origin
            room = -(-size // 16) * 16
            self.memory.bytes[start : start + room] = 0
            self.memory.shadow[start : start + room] = 0
        return address

    def _free(self, lane: int, address: int) -> int:
        reason = self.memory.heap.release(address) if address else ""
        if reason:
            raise TrapError(
                f"free: {address:#x} {reason}",
                span=self.instruction.span,
                details=[self.position.thread(lane)],
                hint="free takes a pointer returned by malloc on this device, once, or null",
            )
        return 0


_EFFECTS: dict[str, Callable[..., int]] = {
    "print": SystemCall._print,
    "assert": SystemCall._assert,
    "allocate": SystemCall._allocate,
    "free": SystemCall._free,
}


def undefined(function: Function, instruction: Instruction, thread: str) -> Unsupported:
    """The error of a thread that calls a function without a body."""
    name = function.name
    if name in DEVICE_LAUNCH:
        message = f"{name}: kernels that launch kernels are not run (CUDA dynamic parallelism)"
        hint = "launch the inner kernel from the host"
    elif name in SYSTEM_FUNCTIONS:
        known = SYSTEM_FUNCTIONS[name]
        message = f"{name!r} is declared with other parameters than the system function: {known.arguments} → {known.results} bytes"
        hint = f"the declaration is at {function.span}"
    else:
        message = f"call of {name!r}, which no module given defines"
        hint = "link the modules that belong together into one PTX file, or compile all sources as one"
    return Unsupported(message, span=instruction.span, details=[thread], hint=hint)
