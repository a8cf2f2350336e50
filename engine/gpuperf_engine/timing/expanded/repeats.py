"""Results that the same blocks have computed before, as PTX: an assembler uses the first one (local value numbering).

``nvcc`` leaves none in what it understands, but repeats inline assembly, such as its conversions of numbers of 16 bits."""

from __future__ import annotations

from collections import Counter

from ...flow.operands import reads, writes
from ...ptx import spell
from ...ptx.module import Function
from ...ptx.syntax import Instruction, Operand, Register, SpecialRegister, Vector
from ...ptx.write import Names
from ...simt.program import Program
from .chains import as_one, chains_of
from .rewriting import Rewriter, Rewritten

__all__ = ["is_repeatable", "without_repeats"]

#: Special registers that have one value while a thread runs.
_CONSTANT = frozenset(("tid", "ntid", "ctaid", "nctaid", "laneid"))


def without_repeats(program: Program) -> Rewritten | None:
    """The kernel without instructions whose results another one has; ``None`` if there are none."""
    blocks = program.blocks_of(0)
    defined = Counter(
        register for block in blocks for item in block.instructions for register in writes(item)
    )
    names = Names(program.kernel.module, program.kernel)
    writer = _Writer(program.kernel)
    for block in map(as_one, chains_of(program)):
        seen: dict[tuple[object, ...], Instruction] = {}
        version: Counter[Register] = Counter()
        used: set[Register] = set()
        for item in block.instructions:
            targets = writes(item)
            if is_repeatable(item) and all(defined[one] == 1 and one not in used for one in targets):
                operands = tuple(
                    spell.operand(one, names) for one in item.operands if one is not item.operands[0]
                )
                key = (
                    item.opcode,
                    _shape(item.operands[0]),
                    operands,
                    tuple(version[one] for one in reads(item)),
                )
                first = seen.setdefault(key, item)
                if first is not item:
                    for one, other in zip(targets, writes(first)):
                        names.registers[one.index] = names.registers[other.index]
                        writer.same[one] = other
                    writer.gone.add(item)
            version.update(targets)
            used.update(reads(item))
    return writer.written() if writer.gone else None


def _shape(target: Operand) -> object:
    """The types of what is written, in their places: ``mov`` writes a register, or parts of it."""
    if isinstance(target, Vector):
        return tuple(map(_shape, target.elements))
    return target.type.name if isinstance(target, Register) else type(target)


def is_repeatable(item: Instruction) -> bool:
    """Whether an instruction computes the same whenever its operands are the same, and costs something."""
    targets = writes(item)
    if item.guard is not None or item.effect.name != "pure" or item.effect.site or item.system is not None:
        return False
    if not targets or "cc" in item.opcode.split(".") or len(set(targets)) != len(targets):
        return False
    special = [operand for operand in item.operands if isinstance(operand, SpecialRegister)]
    if any(operand.name.partition(".")[0] not in _CONSTANT for operand in special):
        return False
    return bool(special or reads(item)) and not set(targets) & set(reads(item))


class _Writer(Rewriter):
    def __init__(self, kernel: Function) -> None:
        super().__init__(kernel)
        self.gone: set[Instruction] = set()
        #: The register that has the value of another one.
        self.same: dict[Register, Register] = {}

    def body(self) -> None:
        original = list(self.names.registers)
        for one, other in self.same.items():
            self.names.registers[one.index] = self.names.registers[other.index]
        for item in self.kernel.instructions:
            self.labels(item.index)
            if item not in self.gone:
                self.add(item)
        self.labels(len(self.kernel.instructions))
        self.names.registers[:] = original
