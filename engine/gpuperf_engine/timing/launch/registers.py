"""Operands that instructions read from the register file, which gives only so many in a cycle.

An operand is a register of any width (banks are 64 bits wide); predicates, constants and immediates are none. What the
instruction before has read is kept for the next one (``.reuse`` in machine code) unless it was written meanwhile: ptxas orders
multiply-adds so that they follow each other in this way. Memory instructions read through a queue of their own and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...flow.operands import reads, writes
from ...ptx.syntax import Instruction, Register

__all__ = ["operand_reads"]

_QUEUED = frozenset({"none", "lsu", "tex", "cbu", "adu", "tensor"})
"""Units whose operands do not go through the ports as they issue: memory's queue, branches, fragments that are held."""


def operand_reads(instructions: Iterable[Instruction]) -> int:
    """Of the instructions of a block, executed once, in their order."""
    total = 0
    kept: frozenset[Register] = frozenset()
    for item in instructions:
        if item.form.unit in _QUEUED:
            continue
        used = frozenset(register for register in reads(item) if register.type.name != "pred")
        total += len(used - kept)
        kept = used - frozenset(writes(item))
    return total
