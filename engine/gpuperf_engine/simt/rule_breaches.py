"""Violations of rules that today's GPUs tolerate (``isa.rules``): their records and notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..isa.spaces import RANK_SHIFT
from ..ptx.syntax import Instruction
from ..results.cxx_names import readable_name
from .clusters import BROKEN, peer_of
from .faults import INSTEAD_OF_ALIGNED, cta_of, executed_by, thread_of
from .launch import LaunchPlan

__all__ = ["Breach", "breach_note", "first_breaches"]


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule (``isa.rules.RULES``) and the thread that violated it: ``cta`` is its linear index, ``address`` that in the shared memory
    of the cluster; at a barrier, the lanes of the warp that arrived together and, from bit 32 on, the other live lanes; at a shuffle
    the member mask."""

    rule: str
    instruction: Instruction
    cta: int
    warp: int
    lane: int
    address: int


def first_breaches(breaches: Iterable[Breach]) -> tuple[Breach, ...]:
    """For each rule and instruction, the violation in the first CTA, in textual order."""
    first: dict[tuple[str, Instruction], Breach] = {}
    for item in breaches:
        known = first.setdefault((item.rule, item.instruction), item)
        if item.cta < known.cta:
            first[item.rule, item.instruction] = item
    return tuple(sorted(first.values(), key=lambda item: (item.instruction.span.line, item.rule)))


def breach_note(plan: LaunchPlan, breach: Breach, kernel: str) -> str:
    """A note about a violation, in one line."""
    item, kernel = breach.instruction, readable_name(kernel)
    thread = f"thread {thread_of(plan, breach.warp, breach.lane)} of block {cta_of(plan, breach.cta)}"
    if item.location is not None:
        thread += f", source line {item.location.described}"
    if breach.rule == "aligned-barrier":
        came = executed_by(breach.address & 0xFFFFFFFF, breach.address >> 32 & 0xFFFFFFFF)
        where = f"{item.span}: {kernel!r}: {item.opcode} {came}, first {thread}"
        return f"{where}: GPUs from sm_70 on count threads; {INSTEAD_OF_ALIGNED} [{breach.rule}]"
    if breach.rule == "shuffle-mask":
        mask = f"{item.opcode} with member mask {breach.address:#010x}, which does not contain lane {breach.lane}"
        return (
            f"{item.span}: {kernel!r}: {mask} ({thread}): all lanes that execute it exchange [{breach.rule}]"
        )
    if breach.rule == "local-order":
        where = f"{item.span}: {kernel!r}: {item.opcode} at local address {breach.address:#x} ({thread})"
        return (
            f"{where}: GPUs access the thread's own variable, which no other thread can see [{breach.rule}]"
        )
    if breach.rule == "invalid-again":
        where = f"{item.span}: {kernel!r}: {item.opcode} at {breach.address:#x} ({thread})"
        return f"{where}: there is no mbarrier object, and GPUs do nothing [{breach.rule}]"
    if breach.rule == "unseen-phase":
        where = f"{item.span}: {kernel!r}: {item.opcode} at {breach.address:#x} ({thread})"
        return f"{where}: threads that wait for a phase have not seen its end; here they see it now [{breach.rule}]"
    if breach.rule == "after-inval":
        where = f"{item.span}: {kernel!r}: {item.opcode} at {breach.address:#x} ({thread})"
        return f"{where}: the object was invalidated; GPUs go on with it [{breach.rule}]"
    rank = breach.address >> RANK_SHIFT
    reason, _ = BROKEN[breach.rule]
    peer = f"block {peer_of(plan, breach.cta, rank)}, rank {rank} of the cluster"
    return f"{item.span}: {item.opcode} by {thread}: {peer}, {reason} [{breach.rule}]"
