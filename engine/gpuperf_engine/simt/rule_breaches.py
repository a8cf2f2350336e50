"""Rules that a kernel broke in a way that works on today's GPUs (``isa.rules``): what is kept of them, and said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..isa.spaces import RANK_SHIFT
from ..ptx.syntax import Instruction
from .clusters import BROKEN, peer_of
from .faults import INSTEAD_OF_ALIGNED, cta_of, executed_by, thread_of
from .launch import LaunchPlan

__all__ = ["Breach", "breach_note", "first_breaches"]


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule (``isa.rules.RULES``) and the thread that broke it: ``cta`` is its linear index, ``address`` a place in the shared memory
    of the cluster; at a barrier, the lanes of its warp that came with it and, from bit 32 on, the others that live; at a shuffle the
    member mask."""

    rule: str
    instruction: Instruction
    cta: int
    warp: int
    lane: int
    address: int


def first_breaches(breaches: Iterable[Breach]) -> tuple[Breach, ...]:
    """Of each rule and instruction the breach in the CTA that comes first, in order of the text."""
    first: dict[tuple[str, Instruction], Breach] = {}
    for item in breaches:
        known = first.setdefault((item.rule, item.instruction), item)
        if item.cta < known.cta:
            first[item.rule, item.instruction] = item
    return tuple(sorted(first.values(), key=lambda item: (item.instruction.span.line, item.rule)))


def breach_note(plan: LaunchPlan, breach: Breach, kernel: str) -> str:
    """A breach of a rule by a kernel, in a line."""
    item = breach.instruction
    thread = f"thread {thread_of(plan, breach.warp, breach.lane)} of block {cta_of(plan, breach.cta)}"
    if breach.rule == "aligned-barrier":
        came = executed_by(breach.address & 0xFFFFFFFF, breach.address >> 32 & 0xFFFFFFFF)
        where = f"{item.span}: {kernel!r}: {item.opcode} {came}, first {thread}"
        return f"{where}: GPUs from sm_70 on count threads; {INSTEAD_OF_ALIGNED} [{breach.rule}]"
    if breach.rule == "shuffle-mask":
        mask = f"{item.opcode} with member mask {breach.address:#010x}, which does not contain lane {breach.lane}"
        return (
            f"{item.span}: {kernel!r}: {mask} ({thread}): all lanes that execute it exchange [{breach.rule}]"
        )
    rank = breach.address >> RANK_SHIFT
    reason, _ = BROKEN[breach.rule]
    peer = f"block {peer_of(plan, breach.cta, rank)}, rank {rank} of the cluster"
    return f"{item.span}: {item.opcode} by {thread}: {peer}, {reason} [{breach.rule}]"
