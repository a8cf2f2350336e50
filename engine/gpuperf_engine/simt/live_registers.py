"""Live registers of lanes, by their program counter.

Livelocks are detected by comparing states (``schedule``). Dead registers do not matter for that, and compiled code does not preserve
them.
"""

from __future__ import annotations

from ..flow.operands import formal_register, writes
from ..ptx.syntax import Register
from .program import Program
from .stack_entries import AFTER, AT_END, AT_WAIT, CALL_FRAME

__all__ = ["BEHIND", "live_at"]

#: ``pc = BEHIND + block``, like ``AFTER``: after the call or barrier that ends the block
BEHIND = 1 << 31


def live_at(program: Program, pc: int, kind: int) -> frozenset[tuple[int, Register]] | None:
    """The live registers at a program counter, with the numbers of their functions; ``None`` if unknown. ``kind``: that of the stack
    entry."""
    index, registers = pc, frozenset[Register]()
    if pc < 0:
        return frozenset()
    for code in (BEHIND, AFTER, AT_END, AT_WAIT):
        if pc >= code:
            index = pc - code
            break
    if index >= len(program.blocks):
        return None
    block = program.blocks[index]
    if pc < BEHIND:
        registers |= block.live_in
    if pc >= AT_END or block.kind == "barrier":
        registers |= block.live_out
    if BEHIND > pc >= AFTER:
        registers |= frozenset(writes(block.instructions[0]))
    live = {(block.function, register) for register in registers}
    if kind == CALL_FRAME:
        # lanes that have returned wait for others, and their results are live
        for number, function in enumerate(program.functions):
            formals = (formal_register(function, formal) for formal in function.returns)
            live |= {(number, register) for register in formals if register is not None}
    return frozenset(live)
