"""Parameters: of kernels (the launch's buffer) and of calls (words of the warp's state), and results of calls.

A ``.param`` variable of a call or of a device function is an array of 4-byte words, each word a vector over the lanes, so
that an access at a constant offset is whole vectors whatever its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Unsupported
from ...flow.operands import formal_register, matched
from ...isa.effects import LOAD
from ...isa.evaluation import extend
from ...isa.types import ScalarType, scalar_type
from ...ptx.module import Function
from ...ptx.syntax import CallTarget, Immediate, Instruction, Operand, Register, Sink, Variable, Vector
from ..ir.operands import LANES, Ref, scalar_ll, vector_ll
from ..ir.values import NativeValue
from .operands import address_operand
from .recursion import leave_activation, take_back
from .stack import pass_stack

if TYPE_CHECKING:
    from .block import BlockWriter

__all__ = [
    "load_results",
    "pass_arguments",
    "read_arguments",
    "store_arguments",
    "take_results",
    "write_parameter",
]

WORD = 4 * LANES
U32 = scalar_type("u32")
U64 = scalar_type("u64")


def write_parameter(to: BlockWriter, instruction: Instruction) -> None:
    """``ld.param`` and ``st.param``."""
    _, operand = address_operand(instruction)
    guard = to.guard(instruction)
    kind = scalar_type(str(instruction.form.modifier("type")))
    kernel = to.generator.program.kernel
    base = operand.base
    if instruction.effect is LOAD:
        count = max(
            (len(item.elements) for item in instruction.operands if isinstance(item, Vector)), default=1
        )
        offsets = [operand.offset + element * kind.bytes for element in range(count)]
        if isinstance(base, Variable) and base in kernel.params and to.number == 0:
            _check_range(instruction, base, operand.offset, kind.bytes * count)
            values = [_kernel_parameter(to, base.offset + offset, kind) for offset in offsets]
        elif isinstance(base, Variable):
            _check_range(instruction, base, operand.offset, kind.bytes * count)
            values = [read_words(to, base, offset, kind) for offset in offsets]
        else:
            raise Unsupported(f"{instruction.opcode} of an absolute address", span=instruction.span)
        to.assign(instruction, values, guard)
        return
    if not isinstance(base, Variable) or base in kernel.params:
        raise Unsupported(
            f"{instruction.opcode} to an address that is not a parameter of a call", span=instruction.span
        )
    values = []
    for slot, source in matched(instruction):
        if slot.role == "source" and slot.name != "policy":
            for element in source.elements if isinstance(source, Vector) else (source,):
                values.append(_typed(to, element, kind))
    _check_range(instruction, base, operand.offset, kind.bytes * len(values))
    for number, value in enumerate(values):
        write_words(to, base, operand.offset + number * kind.bytes, value, to.effective_mask(guard))


def _typed(to: BlockWriter, operand: Operand, kind: ScalarType) -> NativeValue:
    if isinstance(operand, Immediate):
        return to.source(operand, kind)
    return to.as_type(to.source(operand, None), kind)


def _check_range(instruction: Instruction, variable: Variable, offset: int, size: int) -> None:
    if not 0 <= offset <= variable.size - size:
        raise Unsupported(
            f"{instruction.opcode} of {size} bytes at offset {offset} of parameter {variable.name!r} ({variable.size} bytes)",
            span=instruction.span,
            hint="the access must lie inside the parameter",
        )


def _kernel_parameter(to: BlockWriter, offset: int, kind: ScalarType) -> NativeValue:
    cell = to.writer.at("%params", offset)
    return to.value(kind, to.writer.load_fixed(scalar_ll(kind), cell, 1), True)


def read_words(to: BlockWriter, variable: Variable, offset: int, kind: ScalarType) -> NativeValue:
    """A value from a call parameter, all lanes."""
    writer = to.writer
    first, last = offset // 4, (offset + kind.bytes - 1) // 4
    bits = 32 * (last - first + 1)
    total: Ref | None = None
    for word in range(first, last + 1):
        cell = to.writer.at("%st", to.generator.slots.parameter(variable) + WORD * word)
        part = writer.load(f"<{LANES} x i32>", cell, 64)
        if last > first:
            part = writer.zext(part, f"i{bits}")
            if word > first:
                part = writer.shl(part, 32 * (word - first))
        total = part if total is None else writer.or_(total, part)
    assert total is not None
    if offset % 4:
        total = writer.lshr(total, 8 * (offset % 4))
    if kind.bits < bits:
        total = writer.trunc(total, f"i{kind.bits}")
    raw = to.value(scalar_type(f"b{kind.bits}"), total)
    return raw.bits_as(kind)


def write_words(to: BlockWriter, variable: Variable, offset: int, value: NativeValue, mask: Ref) -> None:
    """Write a value to a call parameter, in the lanes of a mask."""
    writer = to.writer
    raw = value.bits_as(scalar_type(f"b{value.type.bits}"))
    bits, lanes = value.type.bits, to.spread(mask)
    for word in range(offset // 4, (offset + value.type.bytes - 1) // 4 + 1):
        cell = to.writer.at("%st", to.generator.slots.parameter(variable) + WORD * word)
        old = writer.load(f"<{LANES} x i32>", cell, 64)
        part = raw.vector()
        if bits < 32:
            shift = 8 * (offset % 4)
            part = writer.zext(part, "i32")
            if shift:
                part = writer.shl(part, shift)
            hole = ~(((1 << bits) - 1) << shift) & 0xFFFFFFFF
            part = writer.or_(part, writer.and_(old, hole))
        elif bits > 32:
            shift = 8 * (4 * word - offset)
            if shift:
                part = writer.lshr(part, shift)
            part = writer.trunc(part, "i32")
        merged = writer.select(lanes, part, old)
        writer.store(merged, cell, 64)


#: an assignment: a register, or a parameter and an offset, and the value
Move = tuple[Register | Variable, int, NativeValue]


def read_arguments(to: BlockWriter, target: CallTarget, number: int) -> list[Move]:
    """The arguments of a call for the formal parameters of function ``number``. All are read before any is written, as the function
    may be the caller itself."""
    function: Function = to.generator.program.functions[number]
    moves: list[Move] = []
    for formal, given in zip(function.params, target.arguments):
        if isinstance(given, Sink):
            continue
        register = formal_register(function, formal)
        if register is None:
            moves += _pieces(to, formal, given)
        else:
            moves.append((register, 0, _argument(to, formal, given)))
    return moves


def pass_arguments(to: BlockWriter, moves: list[Move], number: int, mask: Ref) -> None:
    """Write arguments in the lanes of a mask."""
    pass_stack(to, number, mask)
    for destination, offset, value in moves:
        if isinstance(destination, Register):
            _put(to, number, destination, value, mask)
        else:
            write_words(to, destination, offset, value, mask)


def _argument(to: BlockWriter, formal: Variable, given: Operand) -> NativeValue:
    """The value of an argument for a parameter that is a register."""
    if isinstance(given, Variable) and given.space == "param":
        return read_words(to, given, 0, formal.type)
    return to.source(given, None) if isinstance(given, Register) else to.source(given, formal.type)


def _put(to: BlockWriter, number: int, register: Register, value: NativeValue, mask: Ref) -> None:
    """Write the slot of another function's register in some lanes."""
    offset = to.generator.slots.of[number].get(register)
    if offset is None:
        return
    extended = extend(value, register.type)
    assert isinstance(extended, NativeValue)
    writer, cell = to.writer, to.writer.at("%st", offset)
    if register.type.is_predicate:
        bits = writer.and_(to.bits_of(extended), mask)
        kept = writer.and_(writer.load("i32", cell), writer.xor(mask, -1))
        writer.store(writer.or_(bits, kept), cell)
        return
    ll = vector_ll(register.type)
    old = writer.load(ll, cell, 64)
    text = writer.select(to.spread(mask), extended.clean().vector(), old)
    writer.store(text, cell, 64)


def _get(to: BlockWriter, number: int, register: Register) -> NativeValue:
    """The value of another function's register."""
    offset = to.generator.slots.of[number].get(register)
    if offset is None:
        return to.constant(0, register.type)
    uniform = register in to.generator.program.uniformity[number].uniform
    return to.load_slot(register.type, offset, uniform)


def _pieces(to: BlockWriter, formal: Variable, given: Operand) -> list[Move]:
    """The assignments to a parameter from another one, or from a register or constant."""
    if isinstance(given, Variable) and given.space == "param":
        moves: list[Move] = []
        size = min(formal.size, given.size)
        for offset in range(0, size, 4):
            kind = scalar_type("b32") if size - offset >= 4 else scalar_type("b8")
            for byte in range(0, min(4, size - offset), kind.bytes):
                moves.append((formal, offset + byte, read_words(to, given, offset + byte, kind)))
        return moves
    value = to.source(given, None) if isinstance(given, Register) else to.source(given, formal.type)
    return [(formal, 0, to.as_type(value, formal.type))]


def take_results(to: BlockWriter, target: CallTarget, number: int) -> None:
    """After a call of function ``number``: read its results from its return parameters, and restore the saved state of the caller."""
    to.restart()
    function = to.generator.program.functions[number]
    moves: list[Move] = []
    for formal, result in zip(function.returns, target.returns):
        register = formal_register(function, formal)
        if isinstance(result, Sink):
            continue
        if isinstance(result, Variable) and register is None:
            moves += _pieces(to, result, formal)
        elif isinstance(result, Variable) and register is not None:
            moves.append((result, 0, _get(to, number, register)))
        elif isinstance(result, Register):
            value = read_words(to, formal, 0, formal.type) if register is None else _get(to, number, register)
            moves.append((result, 0, value))
        else:
            raise Unsupported("the result of this call", span=target.span)
    leave_activation(to, number)
    if to.block.index in to.generator.areas.of:
        take_back(to)
    for destination, offset, value in moves:
        if isinstance(destination, Register):
            to.assign_register(destination, value)
        else:
            write_words(to, destination, offset, value, to.mask)
    to.flush()


def store_arguments(to: BlockWriter, target: CallTarget, function: Function) -> None:
    """Store the arguments of a system call for Python (``Slots.system``)."""
    for index, (formal, given) in enumerate(zip(function.params, target.arguments)):
        if isinstance(given, Sink):
            value = to.constant(0, U64)
        else:
            value = to.as_type(_argument(to, formal, given), scalar_type(f"u{8 * formal.type.bytes}"))
        wide = value.convert(U64)
        assert isinstance(wide, NativeValue)
        to.writer.store(wide.vector(), _system_cell(to, index), 64)


def load_results(to: BlockWriter, target: CallTarget, function: Function) -> None:
    """After a system call: read its result from the first cell."""
    to.restart()
    for formal, result in zip(function.returns, target.returns):
        cell = to.value(U64, to.writer.load(vector_ll(U64), _system_cell(to, 0), 64))
        value = to.as_type(cell, formal.type)
        if isinstance(result, Variable):
            write_words(to, result, 0, value, to.mask)
        elif isinstance(result, Register):
            to.assign_register(result, to.as_type(cell, result.type))
    to.flush()


def _system_cell(to: BlockWriter, index: int) -> str:
    return to.writer.at("%st", to.generator.slots.system + 8 * LANES * index)
