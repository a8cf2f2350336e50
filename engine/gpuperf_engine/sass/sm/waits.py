"""The stalls of the warps of a simulated SM in the terms of Nsight Compute, and the instructions that cause them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import Cause, Kind, Op
from ..causes import pipe_cause, queue_cause, result_cause
from ..listing import Decoded
from ..run.needed import LOADS, STORES
from .operations import BRANCHES, Operations, unit_of
from .simulate import Simulated

__all__ = ["Wait", "caused_by", "name_of", "waits_of"]

_SHORT = frozenset(
    [
        Kind.SHARED,
        Kind.SHUFFLE,
        Kind.INIT,
        Kind.SIGNAL,
        Kind.EXPECT,
        Kind.TEST,
        Kind.COPIES_SIGNAL,
        Kind.DATA_SIGNAL,
    ]
)
_NAMES = {
    Cause.GROUP: "long_scoreboard",
    Cause.PRODUCT: "gmma",
    Cause.PORTS: "dispatch_stall",
    Cause.OTHERS: "not_selected",
    Cause.BARRIER: "barrier",
    Cause.CLUSTER: "barrier",
    Cause.WARPGROUP: "warpgroup_arrive",
    Cause.MBARRIER: "mbarrier",
    Cause.FETCH: "no_instruction",
    Cause.COLUMNS: "sleeping",
    Cause.UNKNOWN: "unknown",
}
#: Opcodes whose results a scoreboard guards although they use no queue.
_FROM_AFAR = frozenset(["S2R", "S2UR", "R2UR", "VOTEU", "LDC"])


@dataclass(frozen=True, slots=True)
class Wait:
    """Clocks that warps waited, ``times`` times, before the instruction at ``at`` for the one at ``on``; at a barrier ``on`` is the
    instruction that the last warp waited for or executed meanwhile. ``cause``: as ``results.Stall``; ``selected`` counts one clock for
    each issued instruction."""

    at: int
    cause: str
    on: int
    clocks: float
    times: float


def waits_of(operations: Operations, seen: Simulated) -> tuple[Wait, ...]:
    """Waits by instruction, the longest first. Their clocks add up to those for which warps were resident on the SM."""
    items, stalls = operations.items, seen.stalls
    kinds, architecture = operations.counted(Op.KIND, np.uint16), operations.numbers.architecture
    found: dict[tuple[int, str, int], tuple[float, float]] = {
        (at, "selected", at): (float(count), float(count)) for at, count in enumerate(seen.issued) if count
    }
    rows = zip(
        *(array.tolist() for array in (stalls.at, stalls.cause, stalls.on, stalls.clocks, stalls.times))
    )
    each = _mean_waits(stalls.at, stalls.cause, stalls.clocks, stalls.times)
    for at, cause, on, clocks, times in rows:
        key = at, name_of(cause, items[at], items[on], int(kinds[on]), architecture), on
        known = found.get(key, (0.0, 0.0))
        times = clocks / each[at] if cause == Cause.BARRIER else times
        found[key] = known[0] + clocks, known[1] + times
    waits = [Wait(*key, *amounts) for key, amounts in found.items()]
    return tuple(sorted(waits, key=lambda wait: (wait.at, -wait.clocks, wait.cause, wait.on)))


def _mean_waits(
    at: NDArray[np.int64], cause: NDArray[np.int64], clocks: NDArray[np.float64], times: NDArray[np.float64]
) -> dict[int, float]:
    """The mean clocks of a wait at each barrier."""
    held = cause == Cause.BARRIER
    most = int(at.max(initial=0)) + 1
    waited, often = (np.bincount(at[held], amount[held], most) for amount in (clocks, times))
    return {int(place): float(waited[place] / max(1.0, often[place])) for place in np.flatnonzero(waited)}


def name_of(cause: int, at: Decoded, on: Decoded, kind: int, architecture: int) -> str:
    """The name of a cause (``sm_records.Cause``) of a wait at ``at`` for ``on``, an instruction of the ``kind``."""
    if cause in _NAMES:
        return _NAMES[cause]
    if cause == Cause.RESULT:
        return "membar" if at.base == "MEMBAR" else _of_result(on, kind, architecture)
    if cause == Cause.PAUSE:
        if on.base in BRANCHES:
            return "branch_resolving"
        return "membar" if on.base in ("MEMBAR", "FENCE") else "wait"
    unit = "xu" if at.base in _FROM_AFAR and cause != Cause.QUEUE else unit_of(at, architecture)
    return pipe_cause("lsu" if unit == "tma" or cause == Cause.QUEUE else unit, queue_cause(_space(at)))


def _of_result(on: Decoded, kind: int, architecture: int) -> str:
    if kind in _SHORT:
        return "short_scoreboard"
    if kind > Kind.SHARED or kind in (Kind.TENSOR_LOAD, Kind.TENSOR_STORE):
        return "long_scoreboard"
    if on.base == "LDC":
        return result_cause("constant")
    return result_cause("xu" if on.base in _FROM_AFAR else unit_of(on, architecture))


def _space(item: Decoded) -> str:
    """The state space as for ``causes.queue_cause``; ``shared`` for instructions such as shuffles that use the queue without accessing
    memory."""
    if item.base == "LDGSTS":
        return "global"
    space = LOADS.get(item.base) or STORES.get(item.base) or "shared"
    return "generic" if space == "any" else space


def caused_by(operations: Operations, seen: Simulated) -> NDArray[np.float64]:
    """For each position, the clocks for which the instruction makes warps wait. Waits for a result count in full; waits for a pipe,
    the memory queue or register ports are divided among instructions by the clocks for which these occupied them. ``not_selected``
    does not count."""
    stalls, count = seen.stalls, len(operations.items)
    direct = np.isin(
        stalls.cause, (Cause.PIPE, Cause.QUEUE, Cause.PORTS, Cause.OTHERS, Cause.UNKNOWN), invert=True
    )
    caused = np.bincount(stalls.on[direct], stalls.clocks[direct], count).astype(np.float64)
    issued = seen.issued.astype(np.float64)
    pipes, others = (operations.counted(field, np.uint16) for field in (Op.PIPE, Op.OTHER))
    busy = issued * operations.counted(Op.BUSY, np.uint16)
    for pipe in np.unique(pipes):
        waited = float(stalls.clocks[(stalls.cause == Cause.PIPE) & (pipes[stalls.at] == pipe)].sum())
        _share(caused, waited, busy * ((pipes == pipe) | (others == pipe)))
    _share(caused, float(stalls.clocks[stalls.cause == Cause.QUEUE].sum()), seen.moved.astype(np.float64))
    reads = operations.counted(Op.PORTS, np.uint8)
    held = issued * np.maximum(1, np.maximum(reads & 15, reads >> 4)).astype(np.float64) - issued
    _share(caused, float(stalls.clocks[stalls.cause == Cause.PORTS].sum()), held)
    return caused


def _share(into: NDArray[np.float64], clocks: float, weights: NDArray[np.float64]) -> None:
    total = float(weights.sum())
    if clocks and total:
        into += clocks * weights / total
