"""Operands that instructions read from the register file, whose bandwidth is limited.

An operand is a register of any width (banks are 64 bits wide); predicates, constants and immediates do not count. An operand that the
preceding instruction read is cached (``.reuse`` in machine code) unless it was written meanwhile: ptxas orders multiply-adds for this
reuse. Memory instructions read their operands through a separate queue and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...flow.operands import reads, writes
from ...ptx.syntax import Instruction, Register

__all__ = ["operand_reads"]

_QUEUED = frozenset({"none", "lsu", "tex", "cbu", "adu", "tensor"})
"""Units whose operands bypass the register ports at issue: the memory queue, branches, fragments that are held."""


def operand_reads(instructions: Iterable[Instruction]) -> int:
    """Operands that one execution of a block reads."""
    total = 0
    kept: frozenset[Register] = frozenset()
    for item in instructions:
        if item.form.unit in _QUEUED:
            continue
        used = frozenset(register for register in reads(item) if register.type.name != "pred")
        total += len(used - kept)
        kept = used - frozenset(writes(item))
    return total
