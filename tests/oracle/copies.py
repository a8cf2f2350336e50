"""Asynchronous copies without their asynchrony: done at once and their mbarriers told; groups and waits have nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .integers import signed
from .mbarriers import mbarrier_at, owner
from .operands import Builder, Step
from .registry import semantics
from .syntax import Address, Register
from .tensors import MAP_BYTES, TensorMap

if TYPE_CHECKING:
    from .threads import Thread

NOTHING = ("commit_group", "wait_group", "wait_all", "prefetch")


@semantics("cp")
def cp(b: Builder) -> Step:
    if any(b.has(word) for word in NOTHING):
        return lambda t: None
    if b.has("reduce"):
        raise b.fail("the oracle does not know this instruction")
    if b.has("tensor"):
        return tensor(b)
    if b.has("bulk"):
        return bulk(b)
    if b.has("mbarrier"):
        return arrival(b)
    return small(b)


def arrival(b: Builder) -> Step:
    """``cp.async.mbarrier.arrive``: the copies are done, so it arrives; without ``.noinc`` it was first expected once more."""
    address, noinc = b.address(0), b.has("noinc")

    def step(t: Thread) -> None:
        barrier = mbarrier_at(t, address(t))
        barrier.pending += not noinc
        barrier.arrive(1)

    return step


def small(b: Builder) -> Step:
    """4, 8 or 16 bytes."""
    if not (b.has("ca") or b.has("cg")):
        raise b.fail("the oracle does not know this instruction")
    to, source, size = b.address(0), b.address(1), b.get(2, 32)
    has_size = len(b.operands) > 3 + ("L2::cache_hint" in b.statement.modifiers)
    given = b.get(3, 32) if has_size else size
    last = b.operands[3] if has_size else None
    ignores = isinstance(last, Register) and last.width == 1

    def step(t: Thread) -> None:
        count = min(given(t), size(t)) if not ignores else 0 if given(t) else size(t)
        data = t.load("global", source(t), count, size(t)) if count else 0
        t.store("shared", to(t), size(t), data)

    return step


def targets(b: Builder, operands: int) -> Callable[[Thread], list[int]]:
    """The ranks of the CTAs that get the data, or -1 for the address's own; the mask stands behind so many operands."""
    if not b.has("multicast"):
        return lambda t: [-1]
    members = b.get(operands, 16)
    return lambda t: [rank for rank in range(16) if members(t) >> rank & 1]


def deliver(t: Thread, rank: int, to: int, barrier: int, data: dict[int, int] | bytes) -> None:
    """Write bytes to a shared address, there or at the same place of another CTA, and tell the mbarrier."""
    cta, offset = owner(t, to)
    told = mbarrier_at(t, barrier)
    if rank >= 0:
        cta = t.cta.cluster.ctas[rank]
        told = cta.mbarriers[owner(t, barrier)[1]]
    places = data.items() if isinstance(data, dict) else enumerate(data, offset)
    for place, byte in places:
        cta.shared[place] = byte
    told.complete(len(data))


def bulk(b: Builder) -> Step:
    to, source, size = b.address(0), b.address(1), b.get(2, 32)
    spaces = [word for word in b.mods if word in ("shared", "global")]
    arrived = b.address(3) if b.has("mbarrier") else None
    ranks = targets(b, 4)

    def step(t: Thread) -> None:
        count = size(t)
        for address in (to(t), source(t)):
            t.check_alignment(address, 16)
        memory, at = t.place(spaces[1], source(t), count)
        data = bytes(memory[at : at + count])
        if arrived is not None:
            for rank in ranks(t):
                deliver(t, rank, to(t), arrived(t), data)
            return
        memory, at = t.place(spaces[0], to(t), count)
        memory[at : at + count] = data

    return step


def tensor(b: Builder) -> Step:
    """Boxes of tiles between a tensor and shared memory."""
    loads = b.mods.index("shared") < b.mods.index("global")
    if any(b.has(word) for word in ("im2col", "gather4", "scatter4")):
        raise b.fail("the oracle copies tiles only")
    at = 1 if loads else 0
    operand = b.operands[at]
    assert isinstance(operand, Address)
    tensor_map, other = b.address(at), b.address(1 - at)
    starts = [b.get(item, 32) for item in operand.coordinates]
    arrived = b.address(2) if loads else None
    ranks = targets(b, 3)

    def step(t: Thread) -> None:
        raw = t.load("generic", tensor_map(t), MAP_BYTES, 64).to_bytes(MAP_BYTES, "little")
        found = TensorMap.decode(raw)
        memory, size = found.buffer.data, found.size
        _, shared = owner(t, other(t))
        pattern: dict[int, int] = {}
        for number, place in enumerate(found.elements([signed(get(t), 32) for get in starts])):
            for byte in range(size):
                here = found.shared_place(shared + number * size + byte)
                if arrived is not None:
                    pattern[here] = 0 if place is None else memory[place + byte]
                elif place is not None:
                    memory[place + byte] = t.cta.shared[here]
        if arrived is not None:
            for rank in ranks(t):
                deliver(t, rank, other(t), arrived(t), pattern)

    return step
