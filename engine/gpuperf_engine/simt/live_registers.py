"""The registers that decide how lanes go on, by where they stand: those that they may still read.

Whether a launch runs in circles is seen by comparing states (``schedule``). What is left in other registers says nothing about
that, and compiled code does not even keep it.
"""

from __future__ import annotations

from ..flow.operands import formal_register, writes
from ..ptx.syntax import Register
from .program import Program
from .stack_entries import AFTER, AT_END, AT_WAIT, CALL_FRAME

__all__ = ["BEHIND", "live_at"]

#: ``pc = BEHIND + block``, as ``AFTER``: behind the call or barrier that ends the block
BEHIND = 1 << 31


def live_at(program: Program, pc: int, kind: int) -> frozenset[tuple[int, Register]] | None:
    """Registers that lanes at a place may still read, with the numbers of their functions; ``None`` if that is not known. ``kind``: of
    the entry of the stack."""
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
        # results of lanes that have returned while others have not
        for number, function in enumerate(program.functions):
            formals = (formal_register(function, formal) for formal in function.returns)
            live |= {(number, register) for register in formals if register is not None}
    return frozenset(live)
