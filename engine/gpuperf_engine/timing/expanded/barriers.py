"""The numbers of barriers and of the threads that they wait for, where PTX has them in registers that hold constants: inline assembly
as that of CUTLASS does (``bar.sync %r1, %r2``), of which an assembler makes ``BAR.SYNC 0x5, 0x80``."""

from __future__ import annotations

from dataclasses import replace

from ...flow.operands import matched, writes
from ...isa.effects import BARRIER
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.syntax import Immediate, Instruction, Operand, Register
from ...simt.program import Program
from .rewriting import Rewriter, Rewritten

__all__ = ["with_constants"]


def with_constants(program: Program) -> Rewritten | None:
    """The kernel with constants as operands of its barriers; ``None`` if there are none in registers."""
    barriers = [item for item in program.kernel.instructions if item.effect is BARRIER]
    if not any(isinstance(operand, Register) for item in barriers for operand in item.operands):
        return None
    writer = _Writer(program.kernel)
    return writer.written() if any(writer.changed(item) is not item for item in barriers) else None


class _Writer(Rewriter):
    def __init__(self, kernel: Function) -> None:
        super().__init__(kernel)
        self.definitions: dict[Register, list[Instruction]] = {}
        for item in kernel.instructions:
            for register in writes(item):
                self.definitions.setdefault(register, []).append(item)

    def body(self) -> None:
        for item in self.kernel.instructions:
            self.labels(item.index)
            if item.effect is BARRIER:
                self.line(spell.instruction(self.changed(item), self.names), item)
            else:
                self.add(item)
        self.labels(len(self.kernel.instructions))

    def changed(self, item: Instruction) -> Instruction:
        """A barrier with constants as operands, or itself if there are none."""
        known = {
            operand: constant
            for slot, operand in matched(item)
            if slot.name in ("a", "b") and (constant := self.constant(operand)) is not None
        }
        if not known:
            return item
        return replace(item, operands=tuple(known.get(operand, operand) for operand in item.operands))

    def constant(self, operand: Operand) -> Immediate | None:
        made = self.definitions.get(operand, []) if isinstance(operand, Register) else []
        if len(made) != 1 or made[0].guard is not None or not made[0].opcode.startswith("mov."):
            return None
        value = made[0].operands[1]
        return value if isinstance(value, Immediate) and value.kind == "int" else None
