"""Instructions that several threads carry out together: barriers of the CTA and of a warp, and exchanges.

A thread that meets one waits (``thread.waiting``) until its partners are there too. CTA barriers count
threads; ``.sync`` instructions wait for every lane of the mask that has not exited, at any instruction of
the same form and mask; matrix instructions want the same instruction. ``activemask`` and the older
exchanges without a mask act on the lanes that stand at the same instruction once no lane of the warp can
go on without them, the lowest instruction first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import floats, matrices, mbarriers, tensor_memory, warpgroup, wmma
from .clusters import cluster_step
from .integers import mask, signed
from .memory import OracleError
from .operands import Builder, Get, Put
from .syntax import WIDTHS

if TYPE_CHECKING:
    from .threads import Cta, Thread

MATRIX_NAMES = {"mma": matrices.product, "ldmatrix": matrices.load, "stmatrix": matrices.store, "wmma": wmma.product,
                "wgmma": warpgroup.product, "tcgen05": tensor_memory.access}  # fmt: skip
WARP_NAMES = ("shfl", "vote", "match", "redux", "elect", "activemask")
# From the values and masks of the lanes to what each lane writes.
Exchange = Callable[[dict[int, "WarpWait"]], dict[int, tuple[int, ...]]]


@dataclass
class WarpWait:
    """A lane at a warp instruction: ``key`` says which partners fit, ``values`` what it brings."""

    key: tuple[str, int]
    members: int
    values: tuple[int, ...]
    puts: list[Put]
    exchange: Exchange
    order: tuple[int, int]
    masked: bool
    thread: Thread
    late: str = ""  # where a shuffle is whose mask may lack lanes that come: it waits until no lane of the CTA can run


@dataclass
class BarrierWait:
    barrier: int


@dataclass
class Barrier:
    """One of a CTA's barriers while threads arrive: arrivals per warp, the count asked for, the reduction."""

    arrived: dict[int, set[int]] = field(default_factory=dict)
    expected: int | None = None
    value: list[int] = field(default_factory=list)
    waiting: list[tuple[Thread, Callable[[list[int]], int] | None, Put | None]] = field(default_factory=list)


def is_exchange(b: Builder) -> bool:
    base = b.statement.base
    if base == "wgmma":
        return not b.has("commit_group")
    if base == "wmma":
        return b.has("mma")
    if base == "tcgen05":
        return b.mods[0] in ("ld", "st")
    if base == "mbarrier":
        return b.has("test_wait") or b.has("try_wait")
    return base in WARP_NAMES or base in MATRIX_NAMES or base in ("bar", "barrier")


def build(b: Builder) -> Callable[[Thread], None]:
    """The closure that makes a thread arrive at the statement."""
    base = b.statement.base
    if base in ("bar", "barrier"):
        if b.mods[0] == "warp":
            return warp_step(b, 0, [], [], lambda waits: {lane: () for lane in waits})
        if b.mods[0] == "cluster":
            return cluster_step(b)
        return barrier_step(b)
    if base == "mbarrier":
        return mbarriers.wait(b)
    if base == "wgmma" and not b.has("mma_async"):
        return warpgroup.wait(b)
    if base in MATRIX_NAMES:
        return MATRIX_NAMES[base](b, lambda b, gets, puts, exchange: warp_step(b, -1, gets, puts, exchange))
    return {"shfl": shuffle, "vote": vote, "match": match, "redux": redux, "elect": elect,
            "activemask": activemask}[base](b)  # fmt: skip


# -- CTA barriers


def barrier_step(b: Builder) -> Callable[[Thread], None]:
    kind = next(word for word in b.mods if word in ("sync", "arrive", "red"))
    put: Put | None = None
    reduce: Callable[[list[int]], int] | None = None
    at = 0
    if kind == "red":
        put = b.put(0, 32 if b.has("popc") else 1)
        reduce = sum if b.has("popc") else lambda xs: int(all(xs)) if b.has("and") else int(any(xs))
        at = 1
    name = b.get(at, 32) if len(b.operands) > at else (lambda t: 0)
    operands = len(b.operands) - at - (kind == "red")
    count = b.get(at + 1, 32) if operands > 1 else None
    predicate = b.get(len(b.operands) - 1, 1) if kind == "red" else None

    def step(t: Thread) -> None:
        number = name(t)
        if number > 15:
            raise OracleError(f"line {b.statement.line}: there is no barrier {number}")
        barrier = t.cta.barriers.setdefault(number, Barrier())
        if count is not None:
            barrier.expected = count(t)
        barrier.arrived.setdefault(t.number // 32, set()).add(t.lane)
        if predicate is not None:
            barrier.value.append(predicate(t))
        if kind != "arrive":
            barrier.waiting.append((t, reduce, put))
            t.waiting = BarrierWait(number)
        settle_barrier(t.cta, number)

    return step


def settle_barrier(cta: Cta, number: int) -> None:
    """Release the barrier if all have arrived. A warp counts whole: lanes it lacks or that exited too."""
    barrier, alive = cta.barriers[number], cta.alive
    expected = 32 * (len(alive) - alive.count(0)) if barrier.expected is None else barrier.expected
    if 32 * len(barrier.arrived) < expected:
        return
    if sum(len(lanes) + 32 - alive[warp] for warp, lanes in barrier.arrived.items()) < expected:
        return
    del cta.barriers[number]
    for thread, reduce, put in barrier.waiting:
        if reduce is not None and put is not None:
            put(thread, reduce(barrier.value))
        thread.waiting = None


# -- warp instructions


def warp_step(b: Builder, mask_at: int | None, gets: list[Get], puts: list[Put],
              exchange: Exchange) -> Callable[[Thread], None]:  # fmt: skip
    """Arrive with the values of ``gets``; without a mask operand (``None``) the partners are whoever stands here too, -1 is the
    whole warp."""
    members = None if mask_at is None else (lambda t: 0xFFFFFFFF) if mask_at < 0 else b.get(mask_at, 32)
    opcode, index, whole = b.statement.opcode, b.statement.index, mask_at == -1

    def step(t: Thread) -> None:
        wanted = members(t) if members is not None else 0
        late = b.statement.base == "shfl" and members is not None and wanted != 0xFFFFFFFF
        if members is not None and not wanted >> t.lane & 1 and not late:
            raise OracleError(f"line {b.statement.line}: lane {t.lane} is not in the mask 0x{wanted:x}")
        place = f"{t.frame.function.name}:{index}"
        # of matrix instructions the manual wants the same one, of others one of the same form
        key = (place, wanted) if members is None or whole else (opcode, wanted)
        values = tuple(get(t) for get in gets)
        # Deeper calls first, then the lowest instruction: who stands there cannot be waiting for later ones.
        t.waiting = WarpWait(
            key,
            wanted,
            values,
            puts,
            exchange,
            (-len(t.frames), index),
            members is not None,
            t,
            place if late else "",
        )
        if not late:
            settle_lane(t.cta.warps[t.number // 32], t.waiting)

    return step


def finish(group: dict[int, Thread]) -> None:
    waits = {lane: t.waiting for lane, t in group.items() if isinstance(t.waiting, WarpWait)}
    results = next(iter(waits.values())).exchange(waits)
    for lane, thread in group.items():
        wait = waits[lane]
        thread.waiting = None
        for put, value in zip(wait.puts, results[lane], strict=True):
            put(thread, value)


def settle_warp(warp: list[Thread]) -> None:
    """Carry out every masked exchange whose living members have all arrived."""
    for thread in warp:
        if not isinstance(thread.waiting, WarpWait) or not thread.waiting.late:
            settle_lane(warp, thread.waiting)


def settle_late(warp: list[Thread]) -> bool:
    """Shuffles with a mask that is not of the whole warp: by all living lanes where they are together, whatever the mask, as GPUs
    do; else by the mask, which must have each lane."""
    living = [t for t in warp if not t.done]
    waits = {t.lane: t.waiting for t in living if isinstance(t.waiting, WarpWait) and t.waiting.late}
    outside = [lane for lane, wait in waits.items() if not wait.members >> lane & 1]
    if (
        outside
        and len(waits) == len(living)
        and len({(wait.late, wait.members) for wait in waits.values()}) == 1
    ):
        finish({t.lane: t for t in living})
        return True
    for lane in outside:
        raise OracleError(f"{waits[lane].late}: lane {lane} is not in the mask 0x{waits[lane].members:x}")
    for wait in waits.values():
        settle_lane(warp, wait)
    return any(t.waiting is None for t in living)


def settle_lane(warp: list[Thread], wait: object) -> None:
    """Carry out the exchange that a lane waits for, if all have arrived; the last lanes come last."""
    if not isinstance(wait, WarpWait) or not wait.masked:
        return
    wanted = wait.members
    for t in reversed(warp):
        comes = wanted >> t.lane & 1 and not t.done
        if comes and (not isinstance(t.waiting, WarpWait) or t.waiting.key != wait.key):
            return
    finish({t.lane: t for t in warp if wanted >> t.lane & 1 and not t.done})


def settle_unmasked(warp: list[Thread]) -> bool:
    """Every living lane waits: carry out the foremost exchange that has no mask, if there is one."""
    living = [t for t in warp if not t.done]
    if not living or any(t.waiting is None for t in living):
        return False
    waits = [(t.waiting.order, t.waiting.key) for t in living if isinstance(t.waiting, WarpWait)
             and not t.waiting.masked]  # fmt: skip
    if not waits:
        return False
    key = min(waits)[1]
    finish({t.lane: t for t in living if isinstance(t.waiting, WarpWait) and t.waiting.key == key})
    return True


def shuffle(b: Builder) -> Callable[[Thread], None]:
    mode = next(word for word in b.mods if word in ("up", "down", "bfly", "idx"))
    d, p = b.pair(0)
    puts = [b.put(d, 32), b.put(p, 1)]

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        results: dict[int, tuple[int, ...]] = {}
        for lane, wait in waits.items():
            _, amount, control = wait.values
            amount, limit, segment = amount & 31, control & 31, control >> 8 & 31
            highest = lane & segment | limit & ~segment
            lowest = lane & segment
            if mode == "up":
                source, inside = lane - amount, lane - amount >= highest
            elif mode == "down":
                source, inside = lane + amount, lane + amount <= highest
            elif mode == "bfly":
                source, inside = lane ^ amount, lane ^ amount <= highest
            else:
                source = lowest | amount & ~segment
                inside = source <= highest
            if not inside:
                source = lane
            # a lane outside the exchange has no value to give: the manual leaves the result open, here it is 0
            results[lane] = (waits[source].values[0] if source in waits else 0, int(inside))
        return results

    return warp_step(b, 4 if b.has("sync") else None, [b.get(i, 32) for i in (1, 2, 3)], puts, exchange)


def vote(b: Builder) -> Callable[[Thread], None]:
    mode = next(word for word in b.mods if word in ("all", "any", "uni", "ballot"))

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        values = [wait.values[0] for wait in waits.values()]
        result = {
            "all": int(all(values)),
            "any": int(any(values)),
            "uni": int(len(set(values)) == 1),
            "ballot": sum(wait.values[0] << lane for lane, wait in waits.items()),
        }[mode]
        return dict.fromkeys(waits, (result,))

    put = b.put(0, 32 if mode == "ballot" else 1)
    return warp_step(b, 2 if b.has("sync") else None, [b.get(1, 1)], [put], exchange)


def match(b: Builder) -> Callable[[Thread], None]:
    width = b.width
    d, p = b.pair(0)
    everyone = b.has("all")

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        results: dict[int, tuple[int, ...]] = {}
        for lane, wait in waits.items():
            same = sum(1 << other for other, w in waits.items() if w.values == wait.values)
            if everyone:
                equal = len({w.values for w in waits.values()}) == 1
                results[lane] = (same if equal else 0, int(equal))
            else:
                results[lane] = (same, 0)
        return results

    return warp_step(b, 2, [b.get(1, width)], [b.put(d, 32), b.put(p, 1)], exchange)


def redux(b: Builder) -> Callable[[Thread], None]:
    op = next(word for word in b.mods if word in ("add", "min", "max", "and", "or", "xor"))
    f = b.float

    def fold(x: int, y: int) -> int:
        if f is not None:
            return floats.extremum(f, x, y, op == "max", b.has("NaN"))
        return {"add": x + y, "min": min(x, y), "max": max(x, y), "and": x & y, "or": x | y, "xor": x ^ y}[op]

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        values = [wait.values[0] for wait in waits.values()]
        if f is not None and b.has("abs"):
            values = [floats.absolute(f, x) for x in values]
        if b.signed:
            values = [signed(x, 32) for x in values]
        result = values[0]
        for value in values[1:]:
            result = fold(result, value)
        return dict.fromkeys(waits, (result & mask(WIDTHS[b.type]),))

    return warp_step(b, 2, [b.get(1)], [b.put(0)], exchange)


def elect(b: Builder) -> Callable[[Thread], None]:
    d, p = b.pair(0)

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        leader = min(waits)
        return {lane: (leader, int(lane == leader)) for lane in waits}

    return warp_step(b, 1, [], [b.put(d, 32), b.put(p, 1)], exchange)


def activemask(b: Builder) -> Callable[[Thread], None]:
    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        return dict.fromkeys(waits, (sum(1 << lane for lane in waits),))

    return warp_step(b, None, [], [b.put(0, 32)], exchange)
