"""Which registers an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from ..isa.effects import (
    ASYNC_COPY,
    BULK_COPY,
    LOAD,
    STORE,
    SURFACE,
    TENSOR_ALLOC,
    TENSOR_MAP,
    TEXTURE,
    WARPGROUP,
)
from ..isa.table import OperandSlot
from ..isa.types import scalar_type
from ..ptx.module import Function
from ..ptx.syntax import (
    Address,
    CallTarget,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Variable,
    Vector,
)

__all__ = [
    "ALL_BYTES",
    "access_bytes",
    "formal_register",
    "left_out",
    "matched",
    "reads",
    "registers_in",
    "special_registers",
    "used_bytes",
    "writes",
]

ALL_BYTES = (1 << 32) - 1


_PLAIN = frozenset([Register, Immediate])


def registers_in(operand: Operand) -> Iterator[Register]:
    """All registers in an operand, in textual order."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from registers_in(element)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, Sum):
        yield operand.register
    elif isinstance(operand, Negated):
        yield from registers_in(operand.operand)
    elif isinstance(operand, Address) and isinstance(operand.base, Register):
        yield operand.base


def matched(instruction: Instruction) -> Iterator[tuple[OperandSlot, Operand]]:
    """Pairs of slots and operands. The two parts of ``d|p`` are separate pairs, and so are further operands in the brackets of an
    address. The slot of an omitted second part is skipped."""
    if not instruction.form.has_pairs:
        for operand in instruction.operands:
            if type(operand) in _PLAIN:
                continue
            if isinstance(operand, Pair) or (isinstance(operand, Address) and operand.further):
                break
        else:
            return zip(instruction.form.operands, instruction.operands)
    return _matched(instruction)


def _matched(instruction: Instruction) -> Iterator[tuple[OperandSlot, Operand]]:
    slots = instruction.form.operands
    index = 0
    for operand in _opened(instruction.operands):
        while index < len(slots) and slots[index].pair:
            index += 1
        if index >= len(slots):
            return
        if isinstance(operand, Pair):
            yield slots[index], operand.first
            index += 1
            yield slots[min(index, len(slots) - 1)], operand.second
        else:
            yield slots[index], operand
        index += 1


def _opened(operands: tuple[Operand, ...]) -> Iterator[Operand]:
    for operand in operands:
        yield operand
        if isinstance(operand, Address):
            yield from operand.further


def writes(instruction: Instruction) -> tuple[Register, ...]:
    """Destination registers. A guarded instruction writes them only in lanes where the guard holds."""
    known = instruction.registers_written
    if known is not None:
        return known
    registers: list[Register] = []
    for slot, operand in matched(instruction):
        if isinstance(operand, CallTarget):
            for result in operand.returns:
                registers += registers_in(result)
        elif slot.role == "destination" and not isinstance(operand, Address):
            registers += registers_in(operand)
    instruction.registers_written = tuple(registers)
    return instruction.registers_written


def reads(instruction: Instruction) -> tuple[Register, ...]:
    """Source registers: value sources, address bases, the guard, and arguments of calls."""
    known = instruction.registers_read
    if known is not None:
        return known
    registers: list[Register] = []
    if instruction.guard is not None:
        registers.append(instruction.guard.register)
    for slot, operand in matched(instruction):
        if isinstance(operand, CallTarget):
            if operand.register is not None:
                registers.append(operand.register)
            for argument in operand.arguments:
                registers += registers_in(argument)
        elif slot.role != "destination" or slot.updated or isinstance(operand, Address):
            registers += registers_in(operand)
    instruction.registers_read = tuple(registers)
    return instruction.registers_read


def access_bytes(instruction: Instruction) -> int:
    """Bytes that one lane of a memory instruction accesses, including all elements of a vector."""
    if instruction.effect is ASYNC_COPY:
        return next((item.value for item in instruction.operands if isinstance(item, Immediate)), 8)
    if instruction.effect.tensor:
        return 4 if instruction.effect is TENSOR_ALLOC else 16
    if instruction.effect in (WARPGROUP, TEXTURE, SURFACE):
        return 16
    if instruction.effect is BULK_COPY:
        modifiers = instruction.form.modifiers
        return 16 if "dst" in modifiers or modifiers["type"] == "b128" else 8
    if instruction.effect is TENSOR_MAP:
        return 128
    moves = instruction.form.moves
    if moves is not None:
        return moves.bytes
    elements = max(
        (len(item.elements) for item in instruction.operands if isinstance(item, Vector)), default=1
    )
    return scalar_type(str(instruction.form.modifier("type"))).bytes * elements


def left_out(instruction: Instruction) -> list[int]:
    """The indices of elements that a vector store does not write: ``{a, _, b, c}``."""
    return [
        index
        for operand in instruction.operands
        if instruction.effect is STORE and isinstance(operand, Vector)
        for index, element in enumerate(operand.elements)
        if isinstance(element, Sink)
    ]


def used_bytes(instruction: Instruction) -> int:
    """A bit for each byte of a load that the program uses (``.pragma "used_bytes_mask"``); 2³² - 1 if it uses all."""
    masks = [
        words[1]
        for words in map(str.split, instruction.pragmas)
        if words[:1] == ["used_bytes_mask"] and words[1:]
    ]
    if instruction.effect is not LOAD or not masks:
        return ALL_BYTES
    text = masks[-1].rstrip("U")
    octal = text.isdigit() and text.startswith("0")
    try:
        return int(text, 8 if octal else 0) & ALL_BYTES
    except ValueError:  # the manual has no other syntax
        return ALL_BYTES


def formal_register(function: Function, formal: Variable) -> Register | None:
    """The register of a parameter in ``.reg`` space; these are the first registers of a function, in order."""
    if formal.space != "reg":
        return None
    inside = [item for item in (*function.params, *function.returns) if item.space == "reg"]
    return function.registers[inside.index(formal)]


def special_registers(instruction: Instruction) -> Iterator[str]:
    """The special registers among the operands, by name."""
    for operand in instruction.operands:
        for item in operand.elements if isinstance(operand, Vector) else (operand,):
            if isinstance(item, SpecialRegister):
                yield item.name
