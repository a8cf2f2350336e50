"""Calls in warp-class execution: parameters, arguments, results. Recursive functions are refused.

A ``.param`` variable of a call or a device function maps offsets to values; accesses of other sizes at the same offset are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..affine.lanes import lanes_of
from ..affine.space import NoPhase, Refusal
from ..affine.values import Affine
from ..errors import PtxError
from ..flow.blocks import BasicBlock
from ..flow.operands import formal_register, matched
from ..interp.operands import Prepare, address_operand, destinations
from ..isa.primitives import Value
from ..isa.types import ScalarType, scalar_type
from ..ptx.module import Function
from ..ptx.syntax import CallTarget, Immediate, Instruction, Register, Sink, Variable, Vector
from .operands import Reader, as_type, guard_of, reader

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["Activation", "Call", "parameter_step"]

_U64 = scalar_type("u64")


def parameter_step(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Callable[[State], None]:
    """``ld.param`` or ``st.param`` of a variable that is not a parameter of the kernel."""
    operand = address_operand(instruction)
    variable = operand.base
    assert isinstance(variable, Variable)
    type_ = scalar_type(str(instruction.form.modifier("type")))
    targets = destinations(instruction)
    stored = [item for slot, item in matched(instruction) if slot.role == "source"]
    elements = stored[0].elements if stored and isinstance(stored[0], Vector) else stored[:1]
    readers = [reader(run, to, item, type_ if isinstance(item, Immediate) else None) for item in elements]
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction)
    last = operand.offset + type_.bytes * max(len(readers), len(targets))
    if operand.offset < 0 or last > variable.size:
        raise PtxError("the access must lie inside the parameter")

    def step(state: State) -> None:
        where = state.paths.mask if guard is None else guard(state)
        run.space.active = where
        for index, read in enumerate(readers if where else ()):
            value = as_type(read(state), type_)
            state.put_parameter(variable, operand.offset + index * type_.bytes, value, where)
        for index, target in enumerate(targets if where and not readers else ()):
            if target is not None:
                value = state.parameter(variable, operand.offset + index * type_.bytes, type_)
                state.write(target, value, where)
        if counter is not None:
            state.counts[counter] = state.counts.get(counter, 0) + where.bit_count()

    return step


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """Payload of a call frame: the call and the function called."""

    call: Call
    callee: int


class Call:
    """The call that ends a block."""

    def __init__(self, run: WarpClassRun, to: Prepare, block: BasicBlock) -> None:
        instruction = block.terminator
        assert instruction is not None
        program, symbols = run.program, run.program.symbol_of
        self.run = run
        self.back = block.successors[0]
        self.target = next(operand for operand in instruction.operands if isinstance(operand, CallTarget))
        self.place = f"{instruction.opcode} at {instruction.span.path}:{instruction.span.line}"
        self.callees = program.callees(self.target)
        self.arguments: list[Variable | Reader | None] = []
        for operand in self.target.arguments:
            if isinstance(operand, Variable) and operand.space == "param":
                self.arguments.append(operand)
            else:
                self.arguments.append(None if isinstance(operand, Sink) else reader(run, to, operand, None))
        self.pointer = (
            reader(run, to, self.target.register, _U64) if self.target.register is not None else None
        )
        self.addresses = {
            int(run.plan.symbols[symbols[program.functions[number]]]): number
            for number in self.callees
            if program.functions[number] in symbols
        }
        if any(number in program.recursive for number in self.callees):
            raise Refusal(f"{self.place}: a recursive function")
        if self.pointer is None and not self.callees:
            system = instruction.system
            callee = f"{system.effect} of the system" if system else "a function that no module given defines"
            raise Refusal(f"{self.place}: {callee}")

    def __call__(self, state: State) -> None:
        """The running lanes make the call."""
        groups = self._groups(state)
        paths = state.paths
        if len(groups) == 1:
            number = groups[0][0]
            entry = self.run.program.entries[number]
            paths.call(number, entry, self.back, self.enter(state, number, paths.mask))
        else:
            paths.call_each([((self, number), lanes) for number, lanes in groups], self.back)

    def _groups(self, state: State) -> list[tuple[int, int]]:
        """The called functions with the lanes that call them, in order of the candidates."""
        if self.pointer is None:
            return [(self.callees[0], state.paths.mask)]
        addresses = self.pointer(state)
        assert isinstance(addresses, Affine)
        known = self.run.space.known(addresses.lanes, state.paths.mask)
        lanes = dict.fromkeys(self.callees, 0)
        for lane in lanes_of(state.paths.mask):
            number = self.addresses.get(known[lane if len(known) > 1 else 0] & ((1 << 64) - 1))
            if number is None:
                raise Refusal(f"{self.place}: no function is there")
            lanes[number] |= 1 << lane
        return [(number, own) for number, own in lanes.items() if own]

    def enter(self, state: State, callee: int, lanes: int) -> Activation:
        """Lanes call a function: registers that it reads before writing become 0, and the arguments are passed."""
        run, function = self.run, self.run.program.functions[callee]
        run.space.active = lanes
        values = [
            argument if argument is None or isinstance(argument, Variable) else argument(state)
            for argument in self.arguments
        ]
        for register in run.live(run.program.entries[callee]):
            state.write(register, run.zero(register.type), lanes)
        for formal, value in zip(function.params, values):
            _pass(state, function, formal, value, lanes)
        return Activation(self, callee)

    def leave(self, state: State, callee: int, lanes: int) -> None:
        """Lanes return: passes the results to the caller."""
        run, function = self.run, self.run.program.functions[callee]
        run.space.active = lanes
        for formal, result in zip(function.returns, self.target.returns):
            register = formal_register(function, formal)
            value: Value | Variable = formal if register is None else state.read(register)
            if isinstance(result, Variable):
                _pass(state, function, result, value, lanes)
            elif isinstance(result, Register):
                if isinstance(value, Variable):
                    value = state.parameter(value, 0, value.type)
                state.write(result, value, lanes)


def _pass(
    state: State, function: Function, formal: Variable, value: Value | Variable | None, lanes: int
) -> None:
    """Store a value, or the contents of a parameter, in a formal parameter or a result variable."""
    if value is None:
        return
    register = formal_register(function, formal) if formal.space == "reg" else None
    if register is not None:
        if isinstance(value, Variable):
            value = state.parameter(value, 0, _fitting(formal.type, value))
        state.write(register, value, lanes)
    elif isinstance(value, Variable):
        given = {offset: part for (item, offset), part in state.parameters.items() if item is value}
        for (item, offset), part in list(state.parameters.items()):
            if item is formal and offset not in given and part is not None:
                state.put_parameter(formal, offset, state.run.zero(part.type), lanes)
        for offset, part in given.items():
            if part is None:
                raise NoPhase
            if offset + part.type.bytes <= formal.size:
                state.put_parameter(formal, offset, part, lanes)
    else:
        state.put_parameter(formal, 0, as_type(value, formal.type), lanes)


def _fitting(type_: ScalarType, variable: Variable) -> ScalarType:
    return type_ if type_.bytes <= variable.size else variable.type
