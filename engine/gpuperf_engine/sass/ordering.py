"""Basic blocks of machine code whose executions depend on the order in which threads run, or on the duration of waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..flow.dependence import Aliases
from ..flow.dominators import immediate_post_dominators
from ..flow.ordering import Ordered, by_order, observes_order
from ..profile.build import LaunchRecord
from ..ptx.syntax import Instruction, Variable
from ..results import Profile
from ..symbolic.slice_program import dependence_of
from .anchors import MOVES, NO_ANCHORS
from .flow import deciding
from .graph import Graph
from .listing import Decoded

__all__ = ["Unordered", "aliases_of", "unordered"]


@dataclass(frozen=True, slots=True)
class Unordered:
    """``decided``: blocks whose executions depend on the order of threads; ``waiting``: blocks that are repeated while a phase of an
    mbarrier is incomplete; ``lines``: of the PTX branches that ``decided`` depends on."""

    decided: frozenset[int]
    waiting: frozenset[int]
    lines: tuple[int, ...]


def unordered(profile: Profile, graph: Graph, instructions: Sequence[Instruction]) -> Unordered:
    """Finds these blocks in the machine code of a profile's kernel.

    A block is among them if it is control dependent on a machine branch whose PTX branch depends on the order, or if all of its PTX
    instructions are in such blocks. ``ptxas`` adds loops around atomics that the hardware lacks (``ATOMS.CAST``), which depend on the
    order too.
    """
    program = profile.records[0].program
    found: list[tuple[Ordered, Ordered]] = []
    if observes_order(program):
        asked = {tuple(aliases.items()): aliases for aliases in map(aliases_of, profile.records)}
        found = [by_order(dependence_of(program), aliases) for aliases in asked.values()]
    number_of = {item: number for number, item in enumerate(instructions, 1)}
    parts: list[frozenset[int]] = []
    branches: set[Instruction] = set()
    for which in (0, 1):
        some = [pair[which] for pair in found]
        numbers = {
            number_of[item]
            for ordered in some
            for index in ordered.blocks
            for item in program.blocks[index].tally
            if item in number_of
        }
        deciders = {number_of[item] for ordered in some for item in ordered.branches if item in number_of}
        blocks = _behind(graph, instructions, deciders, own=not which) | _made_of(graph, numbers)
        parts.append(blocks & graph.reached)
        if not which:
            branches = {item for ordered in some for item in ordered.branches}
    lines = sorted({item.span.line for item in branches})
    return Unordered(parts[0], parts[1] - parts[0], tuple(lines))


def aliases_of(record: LaunchRecord) -> Aliases:
    """What points into the same object in a launch: the parameter words and the variables that point into the same allocation."""
    plan, starts = record.plan, [start for start, _ in record.plan.pointed_at]
    aliases: dict[int | Variable, int] = {}

    def number(address: int) -> int | None:
        return next(
            (at for at, (start, size) in enumerate(plan.pointed_at) if start <= address < start + size), None
        )

    for offset in range(0, len(plan.parameters) - 7, 8):
        found = number(int.from_bytes(plan.parameters[offset : offset + 8], "little"))
        if found is not None:
            aliases[offset] = found
    for place, (target, address) in enumerate(zip(record.program.symbols, plan.symbols), len(starts)):
        if isinstance(target, Variable):
            found = number(int(address))
            aliases[target] = place if found is None else found
    return aliases


def _made_of(graph: Graph, numbers: set[int]) -> frozenset[int]:
    """Blocks all of whose PTX instructions are among these, not counting moves of operands."""
    found = set()
    for block in graph.blocks:
        made = {
            item.ptx
            for item in graph.instructions(block)
            if item.ptx
            and item.base not in NO_ANCHORS
            and not item.opcode.removeprefix("U").startswith(MOVES)
        }
        if made and made <= numbers:
            found.add(block.index)
    return frozenset(found)


def _behind(
    graph: Graph, instructions: Sequence[Instruction], numbers: set[int], *, own: bool
) -> frozenset[int]:
    """Blocks between a branch of one of these PTX numbers and its immediate post-dominator; ``own``: also of loops around
    ``ATOMS.CAST``."""
    found: set[int] = set()
    onward = [list(block.successors) for block in graph.blocks]
    branches = [
        block.index
        for block in graph.blocks
        if block.kind in ("branch", "exit")
        and deciding(graph.instructions(block)[-1].ptx, instructions) in numbers
    ]
    if own:
        branches += _retries(graph, instructions)
    if not branches:
        return frozenset()
    ends = [[-1] if block.kind in ("exit", "return") else [] for block in graph.blocks]
    meets = immediate_post_dominators(
        [[*targets, *end] or [-1] for targets, end in zip(onward, ends, strict=True)]
    )
    for branch in branches:
        seen: set[int] = set()
        left = list(onward[branch])
        while left:
            index = left.pop()
            if index == meets[branch] or index in seen:
                continue
            seen.add(index)
            left += onward[index]
            callee = graph.blocks[index].callee
            if callee is not None:
                left += [callee] if callee >= 0 else graph.entries[1:]
        found |= seen
    return frozenset(found)


def _retries(graph: Graph, instructions: Sequence[Instruction]) -> Iterator[int]:
    """Blocks with the exit branches of loops that the assembler adds to repeat a compare-and-swap until it succeeds."""
    for block in graph.blocks:
        if not any(_is_retry(item, instructions) for item in graph.instructions(block)):
            continue
        around = [body for _, body in graph.loops if block.index in body]
        for body in sorted(around, key=len)[:1]:
            for index in body:
                if len({*graph.blocks[index].successors} - body) and len(graph.blocks[index].successors) > 1:
                    yield index


def _is_retry(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    if not {"CAST", "CAS"} & {*item.opcode.split(".")[1:]}:
        return False
    return not 0 < item.ptx <= len(instructions) or "cas" not in instructions[item.ptx - 1].opcode.split(".")
