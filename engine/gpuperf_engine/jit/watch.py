"""Detection of launches that cannot end, by a digest of the state on which their continuation depends (see ``simt.schedule``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from ..simt.schedule import Watch
from .ir.abi import Cluster, Cta, State
from .slots import Slot
from .worker import Worker

__all__ = ["make_watch"]


def make_watch(worker: Worker, grow: Callable[[], bool]) -> Watch[Slot]:
    """The watch over the CTAs of a worker; ``grow`` makes more of them resident."""
    return Watch(
        _make_digest(worker),
        worker.standing,
        worker.expire,
        worker.arrive_diverged,
        lambda slot: any([warp.force_yield() for warp in worker.warps(slot)]),
        lambda slot: (item for warp in worker.warps(slot) for item in warp.waiting()),
        grow,
        worker.launch.plan.launcher,
    )


def _make_digest(worker: Worker) -> Callable[[Sequence[Slot]], bytes]:
    from .state_digest import Decisive  # few launches need it

    launch = worker.launch
    generated, memory, reads_clock = launch.code.generated, launch.memory, launch.program.reads_clock
    decisive = Decisive(launch.program, generated)

    def digest(window: Sequence[Slot]) -> bytes:
        # where the clock is part of the state, that is the same only if no warp has executed anything, so neither has memory changed
        state = hashlib.blake2b()
        if not reads_clock:
            for allocation in memory.allocations:
                if allocation.kind == "global":
                    state.update(memory.view(allocation))
            state.update(np.ascontiguousarray(memory.heap_bytes))
        state.update(worker.following.to_bytes(8, "little"))
        for slot in window:
            states = slot.states.copy().reshape(-1, generated.state_bytes)
            decisive.clear(states)
            if not reads_clock:
                states[:, State.STEPS : State.STEPS + 8] = 0
            for part in (states, slot.shared, slot.local, slot.tensor, slot.record[Cta.BARRIERS :]):
                state.update(np.ascontiguousarray(part))
            used = states[:, State.AREAS : State.AREAS + 4].copy().view("<u4")[:, 0]
            for warp, most in enumerate(used.tolist()):
                state.update(np.ascontiguousarray(slot.areas[warp, : most + 1]))
            if slot.group is not None:
                state.update(slot.group.record[Cluster.LIVE : Cluster.PEERS])
        return state.digest()

    return digest
