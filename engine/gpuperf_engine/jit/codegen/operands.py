"""Operands of an instruction by their role."""

from __future__ import annotations

from ...errors import Unsupported
from ...flow.blocks import BasicBlock
from ...flow.operands import matched
from ...isa.table import OperandSlot
from ...ptx.syntax import Address, CallTarget, Instruction

__all__ = ["address_operand", "call_target"]


def call_target(block: BasicBlock) -> CallTarget:
    """The call operand of a call block."""
    assert block.terminator is not None
    for _, operand in matched(block.terminator):
        if isinstance(operand, CallTarget):
            return operand
    raise Unsupported("a call without target", span=block.terminator.span)


def address_operand(instruction: Instruction) -> tuple[OperandSlot, Address]:
    """The address operand of a memory instruction and its form."""
    for slot, operand in matched(instruction):
        if isinstance(operand, Address):
            return slot, operand
    raise Unsupported(f"{instruction.opcode} without an address", span=instruction.span)
