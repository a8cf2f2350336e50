"""Which registers an instruction reads and writes. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator

from ..isa.table import OperandForm
from ..ptx.syntax import Address, CallTarget, Instruction, Negated, Operand, Pair, Register, Vector

__all__ = ["matched", "reads", "registers_in", "writes"]


def registers_in(operand: Operand) -> Iterator[Register]:
    """All registers that stand in an operand, in order of writing."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from registers_in(element)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, Negated):
        yield from registers_in(operand.operand)
    elif isinstance(operand, Address) and isinstance(operand.base, Register):
        yield operand.base


def matched(instruction: Instruction) -> Iterator[tuple[OperandForm, Operand]]:
    """Operands beside the forms of the spelling; the two halves of ``d|p`` come one by one, like their forms. The form of
    an optional second half that is not written is passed over."""
    forms = instruction.spelling.operands
    place = 0
    for operand in instruction.operands:
        while place < len(forms) and forms[place].pair:
            place += 1
        if place >= len(forms):
            return
        if isinstance(operand, Pair):
            yield forms[place], operand.first
            place += 1
            yield forms[min(place, len(forms) - 1)], operand.second
        else:
            yield forms[place], operand
        place += 1


def writes(instruction: Instruction) -> tuple[Register, ...]:
    """Destination registers. A guarded instruction writes them only in lanes where the guard holds."""
    known = instruction.registers_written
    if known is not None:
        return known
    found: list[Register] = []
    for form, operand in matched(instruction):
        if isinstance(operand, CallTarget):
            for result in operand.returns:
                found += registers_in(result)
        elif form.role == "destination" and not isinstance(operand, Address):
            found += registers_in(operand)
    instruction.registers_written = tuple(found)
    return instruction.registers_written


def reads(instruction: Instruction) -> tuple[Register, ...]:
    """Source registers: value sources, address bases, the guard, and arguments of calls."""
    known = instruction.registers_read
    if known is not None:
        return known
    found: list[Register] = []
    if instruction.guard is not None:
        found.append(instruction.guard.register)
    for form, operand in matched(instruction):
        if isinstance(operand, CallTarget):
            if operand.register is not None:
                found.append(operand.register)
            for argument in operand.arguments:
                found += registers_in(argument)
        elif form.role != "destination" or isinstance(operand, Address):
            found += registers_in(operand)
    instruction.registers_read = tuple(found)
    return instruction.registers_read
