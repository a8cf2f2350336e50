"""Rules that a kernel broke in a way that works on today's GPUs (``isa.rules``): what is kept of them, and said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..isa.spaces import RANK_SHIFT
from ..ptx.syntax import Instruction
from .clusters import BROKEN, peer_of
from .faults import cta_of, thread_of
from .launch import LaunchPlan

__all__ = ["Breach", "breach_note", "first_breaches"]


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule (``isa.rules.RULES``) and the thread that broke it: ``cta`` is its linear index, ``address`` a place in the shared memory
    of the cluster."""

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


def breach_note(plan: LaunchPlan, breach: Breach) -> str:
    """A breach of a rule about the shared memory of another CTA, in a line."""
    rank, item = breach.address >> RANK_SHIFT, breach.instruction
    reason, _ = BROKEN[breach.rule]
    thread = f"thread {thread_of(plan, breach.warp, breach.lane)} of block {cta_of(plan, breach.cta)}"
    peer = f"block {peer_of(plan, breach.cta, rank)}, rank {rank} of the cluster"
    return f"{item.span}: {item.opcode} by {thread}: {peer}, {reason} [{breach.rule}]"
