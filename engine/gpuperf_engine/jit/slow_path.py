"""Events that compiled code leaves to Python: system calls, exchanges of lanes at different instructions, and errors."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ..interp.exchange import perform
from ..simt.faults import lanes_of
from ..simt.stack_entries import WAIT
from ..simt.system import SystemCall
from .host_arrays import address_of
from .ir.abi import Context, State
from .ir.codes import Event, Status, Wait
from .warp_errors import WarpErrors

if TYPE_CHECKING:
    from ..interp.warp import ReferenceWarp

__all__ = ["NativeWarp"]

#: reasons of a warp that waits for others
_GROUPED = (Wait.BARRIER, Wait.CLUSTER, Wait.GATHERS, Wait.WARPGROUP)


class NativeWarp(WarpErrors):
    """A warp of compiled code, whose events Python handles."""

    def attend(self, status: int) -> None:
        """Handle an event of compiled code. Raises the errors of the kernel."""
        if status == Status.FAULT:
            raise self.fault()
        if status == Status.SLICE_OVER:
            raise self.over_budget()
        event = self.header(State.EVENT)
        if event == Event.SYSTEM:
            self.worker.left[event, self.header(State.DETAIL)] += 1
            self._call_system()
        elif event == Event.CONVERGE:
            self._converge()
        else:
            raise self.error(event)

    def _converge(self) -> None:
        """Execute an exchange of lanes at several instructions, and release them."""
        members = self.header(State.CULPRITS)
        wanted = struct.unpack_from("<32I", self.state, State.MEMBERS)
        there = sum(1 << lane for lane in range(32) if wanted[lane] == members)
        entries = list(self.entries())
        first_block, _, _, reason = entries[self.header(State.DETAIL) - 1]
        parts = [
            (self.exchange(block), lanes & there)
            for block, lanes, kind, why in entries
            if kind == WAIT and why == reason and lanes & there
        ]
        self.worker.left[Event.CONVERGE, first_block] += 1
        perform(cast("ReferenceWarp", self), members & self.header(State.LIVE), parts)
        for _, lanes in parts:
            for lane in lanes_of(lanes):
                struct.pack_into("<I", self.state, State.MEMBERS + 4 * lane, 0)
        get = self.worker.get
        status = self.worker.call(
            "settle_again", get(Context.CTA), get(Context.STATE), self.header(State.STOPS)
        )
        if status:
            self.attend(status - 8)

    def _call_system(self) -> None:
        """Execute a system call, whose arguments and result are in the warp's state."""
        instruction = self.program.blocks[self.header(State.DETAIL)].terminator
        assert instruction is not None and instruction.system is not None
        launch, plan = self.worker.launch, self._position.plan
        start = launch.code.generated.system
        cells = self.state[start : start + 256 * max(1, len(instruction.system.arguments))]
        values = cells.view(np.uint64).reshape(-1, 32)
        call = SystemCall(
            instruction,
            self.position(),
            launch.memory,
            self.mask,
            tuple(row.copy() for row in values),
            self._local_memory,
            self.slot.shared[: plan.shared_bytes],
        )
        values[0] = call.perform()
        launch.refresh_heap()

    def _local_memory(self, lane: int) -> NDArray[np.uint8]:
        """A lane's local memory, which is interleaved: rows have one word per lane."""
        size, warp = self.program.local_area, self._position.warp
        own = self.slot.local[warp * 32 * size : (warp + 1) * 32 * size]
        return own.reshape(size // 4, 32, 4)[:, lane].reshape(-1)

    def force_yield(self) -> bool:
        """Make the warp yield from now on, as the state of the launch repeats. Returns whether it did not before."""
        if self.header(State.WAIT) in _GROUPED and self.mask:
            return False
        return bool(self.worker.call("force_yield", address_of(self.state)))
