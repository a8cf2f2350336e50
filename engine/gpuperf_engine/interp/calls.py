"""Calls of the reference backend: parameters, activations, returns.

``.param`` variables of calls and of device functions are bytes per lane, stored per variable, as most functions have one
activation per lane. For functions that may have several, a call saves the live registers, condition code and parameters of the
calling function in its activation, and restores them in the lanes that return.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PtxError, Unsupported
from ..flow.blocks import BasicBlock
from ..flow.operands import formal_register
from ..isa.effects import STORE
from ..isa.types import scalar_type
from ..ptx.module import Function
from ..ptx.syntax import Address, CallTarget, Immediate, Instruction, Operand, Register, Sink, Variable
from ..simt.faults import bad_target, lanes_of, stack_overflow, too_deep
from ..simt.program import MAX_DEPTH
from ..simt.system import undefined
from .memory import MemoryStep, stored_readers
from .operands import (
    Guarded,
    Prepare,
    Reader,
    address_operand,
    as_type,
    destinations,
    every_lane,
    integer,
    reader,
)
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["Activation", "Call", "ParameterStep", "argument_reader", "parameter_step", "put_bytes"]

_U64, _PRED = scalar_type("u64"), scalar_type("pred")


def parameter_step(to: Prepare, instruction: Instruction) -> ParameterStep | MemoryStep:
    """``ld.param`` or ``st.param``; with a register as address it accesses the kernel's parameters in device memory."""
    if isinstance(address_operand(instruction).base, Variable):
        return ParameterStep(to, instruction)
    return MemoryStep(to, instruction)


class ParameterStep:
    """``ld.param`` or ``st.param`` of a variable by name."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operand = address_operand(instruction)
        assert isinstance(operand.base, Variable)
        self.variable = operand.base
        self.type = scalar_type(str(instruction.form.modifier("type")))
        self.targets = destinations(instruction)
        self.values: list[Reader] = []
        self.constants: list[LaneValue] = []
        self.guarded = Guarded(to, instruction)
        if instruction.effect is STORE:
            self.values = stored_readers(to, instruction, self.type)[0]
        count = len(self.values) or len(self.targets)
        self._check(instruction, operand, count * self.type.bytes)
        self.offsets = [operand.offset + element * self.type.bytes for element in range(count)]
        if self.variable in to.program.kernel.params:
            if self.values:
                raise Unsupported(f"{instruction.opcode} to a parameter of the kernel", span=instruction.span)
            self.constants = [self._constant(to, self.variable.offset + offset) for offset in self.offsets]

    def _check(self, instruction: Instruction, operand: Address, size: int) -> None:
        if not 0 <= operand.offset <= self.variable.size - size:
            raise PtxError(
                f"{instruction.opcode} of {size} bytes at offset {operand.offset} of parameter {self.variable.name!r} "
                f"({self.variable.size} bytes)",
                span=instruction.span,
                hint="the access must lie inside the parameter",
            )

    def _constant(self, to: Prepare, offset: int) -> LaneValue:
        raw = to.plan.parameters[offset : offset + self.type.bytes]
        return integer(int.from_bytes(raw, "little"), self.type)

    def __call__(self, warp: ReferenceWarp) -> None:
        guard, where = self.guarded(warp)
        if self.values:
            for offset, read in zip(self.offsets, self.values):
                put_bytes(warp, self.variable, offset, read(warp), where)
            return
        for index, target in enumerate(self.targets):
            if target is not None:
                value = self.constants[index] if self.constants else get_bytes(
                    warp, self.variable, self.offsets[index], self.type.name
                )  # fmt: skip
                warp.write(target, value, guard)


def get_bytes(warp: ReferenceWarp, variable: Variable, offset: int, type_name: str) -> LaneValue:
    """A value in a parameter's bytes."""
    type_ = scalar_type(type_name)
    raw = warp.parameter(variable)[:, offset : offset + type_.bytes].copy()
    if type_.bits == 128:
        pairs = raw.view(np.uint64).astype(object)
        return LaneValue(pairs[:, 0] | (pairs[:, 1] << 64), type_)
    return LaneValue(raw.view(f"u{type_.bytes}").reshape(32).view(dtype_of(type_)), type_)


def put_bytes(warp: ReferenceWarp, variable: Variable, offset: int, value: LaneValue, where: Lanes) -> None:
    """Stores a value in a parameter's bytes, in some lanes."""
    data = every_lane(value)
    if value.type.is_predicate:
        data = data.astype(np.uint8)
    if value.type.bits == 128:
        words = np.stack([(data & ((1 << 64) - 1)).astype(np.uint64), (data >> 64).astype(np.uint64)], axis=1)
        raw = words.view(np.uint8)
    else:
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(32, -1)
    warp.parameter(variable)[where, offset : offset + raw.shape[1]] = raw[where]


def argument_reader(to: Prepare, formal: Variable, argument: Operand) -> Reader:
    """Reads an argument of a call, as an unsigned number of the parameter's size."""
    kind = scalar_type(f"u{8 * formal.type.bytes}")
    if isinstance(argument, Variable) and argument.space == "param":
        variable = argument
        return lambda warp: get_bytes(warp, variable, 0, kind.name)
    if isinstance(argument, Sink):
        return lambda warp: integer(0, kind)
    read = reader(to, argument, kind if isinstance(argument, Immediate) else None)
    return lambda warp: as_type(read(warp), kind)


#: location of an argument or result: a parameter's bytes, a register, or (for arguments) a constant
_Location = Variable | Register | Reader | None


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """Payload of a call frame: the call, the function called, and the saved state of the caller."""

    call: Call
    callee: int
    registers: dict[Register, LaneValue] | None
    parameters: dict[Variable, Lanes] | None
    carry: LaneValue | None
    #: addresses of the callee's previous local variables, if each of its activations has its own
    locals: Lanes | None = None
    #: stack depth of the caller
    stack: Lanes | None = None


class Call:
    """The call that ends a block."""

    def __init__(self, to: Prepare, block: BasicBlock) -> None:
        instruction = block.terminator
        assert instruction is not None
        self.instruction = instruction
        self.program = to.program
        self.number = to.number
        self.back = block.successors[0]
        self.target = next(operand for operand in instruction.operands if isinstance(operand, CallTarget))
        self.recursive = to.number in to.program.recursive
        self.callees = to.program.callees(self.target)
        self.arguments = [self._argument(to, operand) for operand in self.target.arguments]
        self.pointer: Reader | None = None
        if self.target.register is not None:
            self.pointer = reader(to, self.target.register, _U64)
        symbols = to.program.symbol_of
        self.addresses = {
            number: int(to.plan.symbols[symbols[to.program.functions[number]]])
            for number in self.callees
            if to.program.functions[number] in symbols
        }

    def _argument(self, to: Prepare, operand: Operand) -> _Location:
        if isinstance(operand, Variable) and operand.space == "param":
            return operand
        return None if isinstance(operand, Sink) else reader(to, operand, None)

    def groups(self, warp: ReferenceWarp) -> list[tuple[int, int]]:
        """The called functions with the active lanes that call them, in order of the candidates. Raises for invalid addresses."""
        if self.pointer is None:
            if not self.callees:
                assert self.target.function is not None
                raise self._undefined(warp, self.target.function)
            return [(self.callees[0], warp.mask)]
        addresses = every_lane(self.pointer(warp))
        left, by_function = warp.mask, []
        for number in self.callees:
            lanes = 0
            for lane in lanes_of(left):
                if number in self.addresses and int(addresses[lane]) == self.addresses[number]:
                    lanes |= 1 << lane
            left &= ~lanes
            by_function.append((number, lanes))
        if left:
            lane = lanes_of(left)[0]
            raise bad_target(warp.position(), self.instruction, lane, int(addresses[lane]), 0)
        return by_function

    def _undefined(self, warp: ReferenceWarp, function: Function) -> Exception:
        return undefined(function, self.instruction, warp.position().thread(lanes_of(warp.mask)[0]))

    def enter(self, warp: ReferenceWarp, callee: int, lanes: int) -> Activation:
        """Lanes call a function: saves the caller's state and passes the arguments."""
        if warp.paths.call_depth >= MAX_DEPTH:
            raise too_deep(warp.position(), self.instruction, lanes_of(lanes)[0], MAX_DEPTH)
        where = warp.lanes_array(lanes)
        function = self.program.functions[callee]
        values = [self._value(warp, argument) for argument in self.arguments]
        activation = self._activation(warp, callee)
        if activation.locals is not None:
            self._push(warp, callee, where)
        for register in self.program.blocks[self.program.entries[callee]].live_in:
            warp.put(register, integer(0, register.type), where)
        for formal, value in zip(function.params, values):
            self._pass(warp, function, formal, value, where)
        if self.program.uses_stack:
            own = warp.stack_depth(self.number)
            warp.stack_depths[callee] = np.where(where, own, warp.stack_depth(callee))
            activation = replace(activation, stack=own)
        return activation

    def _value(self, warp: ReferenceWarp, argument: _Location) -> Lanes | LaneValue | None:
        if argument is None:
            return None
        if isinstance(argument, Variable):
            return warp.parameter(argument).copy()
        assert not isinstance(argument, Register)
        return argument(warp)

    def _push(self, warp: ReferenceWarp, callee: int, where: Lanes) -> None:
        """Allocates a stack frame for the callee's local variables in the calling lanes. Raises ``TrapError`` if the stack is full."""
        fresh, size = (
            np.where(where, warp.stack_top, warp.frame_addresses[callee]),
            self.program.frame_bytes[callee],
        )
        full = where & (fresh + np.uint64(size) + warp.stack_depth(self.number) > warp.local_bytes)
        if full.any():
            bytes_ = warp.local_bytes - self.program.local_static
            raise stack_overflow(warp.position(), self.instruction, int(full.argmax()), bytes_)
        warp.frame_addresses[callee] = fresh
        warp.stack_top = warp.stack_top + where * np.uint64(size)

    def _activation(self, warp: ReferenceWarp, callee: int) -> Activation:
        before = None
        if callee in self.program.frame_bytes:
            before = warp.frame_addresses.setdefault(callee, np.zeros(32, np.uint64))
        if not self.recursive:
            return Activation(self, callee, None, None, None, before)
        own = self.program.functions[self.number]
        mine = set(own.registers)
        saved = {register: value for register, value in warp.registers.items() if register in mine}
        variables = {*own.params, *own.returns, *own.variables}
        parameters = {item: data.copy() for item, data in warp.parameters.items() if item in variables}
        return Activation(self, callee, saved, parameters, warp.carry.get(self.number), before)

    def leave(self, warp: ReferenceWarp, activation: Activation, lanes: int) -> None:
        """Lanes return: restores the caller's state and passes the results."""
        where = warp.lanes_array(lanes)
        function = self.program.functions[activation.callee]
        results: list[Lanes | LaneValue] = []
        for formal in function.returns:
            register = formal_register(function, formal)
            results.append(warp.parameter(formal).copy() if register is None else warp.read(register))
        if activation.locals is not None:
            warp.frame_addresses[activation.callee] = np.where(
                where, activation.locals, warp.frame_addresses[activation.callee]
            )
            warp.stack_top = warp.stack_top - where * np.uint64(self.program.frame_bytes[activation.callee])
        if activation.stack is not None:
            now = warp.stack_depth(self.number)
            warp.stack_depths[self.number] = np.where(where, activation.stack, now)
        if activation.registers is not None:
            for register in self.program.functions[self.number].registers:
                saved = activation.registers.get(register)
                if saved is not None or register in warp.registers:
                    warp.put(register, saved or integer(0, register.type), where)
        for variable, data in (activation.parameters or {}).items():
            warp.parameter(variable)[where] = data[where]
        if activation.registers is not None:
            warp.put_carry(self.number, activation.carry or integer(0, _PRED), where)
        caller = self.program.functions[self.number]
        for formal, value, result in zip(function.returns, results, self.target.returns):
            if isinstance(result, Variable):
                self._pass(warp, caller, result, value, where)
            elif isinstance(result, Register):
                if not isinstance(value, LaneValue):
                    value = _typed(value, formal)
                warp.put(result, value, where)

    def _pass(
        self,
        warp: ReferenceWarp,
        function: Function,
        formal: Variable,
        value: Lanes | LaneValue | None,
        where: Lanes,
    ) -> None:
        """Store a value (or the bytes of a parameter) in a formal parameter or a result variable."""
        if value is None:
            return
        register = formal_register(function, formal)
        if register is not None:
            warp.put(register, value if isinstance(value, LaneValue) else _typed(value, formal), where)
        elif isinstance(value, LaneValue):
            put_bytes(warp, formal, 0, as_type(value, formal.type), where)
        else:
            size = min(formal.size, value.shape[1])
            warp.parameter(formal)[where, :size] = value[where, :size]


def _typed(data: Lanes, variable: Variable) -> LaneValue:
    """The bytes of a parameter as a value of its type."""
    size = variable.type.bytes
    raw = np.zeros((32, size), np.uint8)
    raw[:, : data.shape[1]] = data[:, :size]
    return LaneValue(raw.view(f"u{size}").reshape(32).view(dtype_of(variable.type)), variable.type)
