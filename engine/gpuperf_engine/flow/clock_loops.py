"""Loops that only wait for the clock.

``while (clock64() - start < cycles);`` runs as many instructions as there are cycles, if the clock counts instructions. In such a
loop the clock therefore goes faster: each time that the loop reads it, it is ahead of the instructions by ``GAP`` more, and ``GAP``
grows by an eighth, and by one. A wait of n cycles takes about 8 + 8 · ln(n / 64) iterations, and ends at most an eighth of its time
too late. ``GAP`` is 0 again when the loop is entered: when more instructions have been executed since it was last read than one
iteration has.
All this follows from the instructions that the warp has executed, so it is the same on all hosts and for all demands.

A loop waits for the clock alone if it reads it, if all its instructions are functions of registers, constants and the clock, if no
register depends on its own value in an earlier iteration (as a counter does), and if a branch that leaves it depends on the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..isa.effects import BRANCH, HINT, LOAD, PURE
from ..ptx.syntax import Instruction, Register
from .blocks import BasicBlock, natural_loop
from .operands import reads, special_registers, writes

__all__ = ["LARGEST_GAP", "MORE", "mark_clock_loops", "reads_clock"]

MORE = 3
"""``GAP`` grows by its value shifted right by this, and by 1."""
LARGEST_GAP = 1 << 30
"""From this value on ``GAP`` stays."""


def reads_clock(instruction: Instruction) -> bool:
    """Whether an instruction reads a clock."""
    return any(name.startswith(("clock", "globaltimer")) for name in special_registers(instruction))


def mark_clock_loops(blocks: Sequence[BasicBlock]) -> None:
    """Set ``clock_loop`` of the blocks of such loops, in the blocks of one function."""
    if not any(reads_clock(item) for block in blocks for item in block.instructions):
        return
    first = blocks[0].index
    for block in blocks:
        for head in block.back_edges:
            body = [blocks[index - first] for index in natural_loop(blocks, block.index, head, first)]
            if _only_waits(body):
                length = sum(item.counts for item in body)
                for item in body:
                    item.clock_loop = max(length, item.clock_loop)


def _only_waits(body: Sequence[BasicBlock]) -> bool:
    instructions = [item for block in body for item in block.instructions]
    if not any(map(reads_clock, instructions)) or not all(map(_is_function, instructions)):
        return False
    if any(block.kind not in ("fall", "branch") or block.synchronises or block.waits for block in body):
        return False
    before = _dependences(instructions)
    if _is_cyclic(before):
        return False
    by_clock = {register for item in instructions if reads_clock(item) for register in writes(item)}
    while more := {register for register, sources in before.items() if sources & by_clock} - by_clock:
        by_clock |= more
    inside = {block.index for block in body}
    return any(
        block.guard is not None
        and block.guard.register in by_clock
        and any(target not in inside for target in block.successors)
        for block in body
    )


def _is_function(instruction: Instruction) -> bool:
    if instruction.effect is LOAD:
        return instruction.form.space in ("param", "const")
    return instruction.effect in (PURE, HINT, BRANCH)


def _dependences(instructions: Iterable[Instruction]) -> dict[Register, set[Register]]:
    """The registers from which each one is computed. A guarded instruction may leave the value that there was."""
    before: dict[Register, set[Register]] = {}
    for item in instructions:
        sources = set(reads(item))
        for register in writes(item):
            kept = {register} if item.guard is not None else set()
            before.setdefault(register, set()).update(sources | kept)
    return before


def _is_cyclic(before: dict[Register, set[Register]]) -> bool:
    """Whether a register depends on itself."""
    left = {register: sources & before.keys() for register, sources in before.items()}
    while left:
        free = [register for register, sources in left.items() if not sources & left.keys()]
        if not free:
            return True
        for register in free:
            del left[register]
    return False
