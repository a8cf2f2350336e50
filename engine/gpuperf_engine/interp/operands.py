"""Operands of the reference backend: each becomes a reader once per instruction, which is called whenever it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Unsupported
from ..flow.operands import matched
from ..isa.effects import PURE
from ..isa.primitives import Value
from ..isa.spaces import WINDOWS
from ..isa.table import OperandSlot
from ..isa.types import ScalarType, scalar_type
from ..ptx.module import Function
from ..ptx.syntax import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Symbol,
    Variable,
    Vector,
)
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .special import read_special
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = [
    "Destination",
    "Prepare",
    "Reader",
    "address_of",
    "address_operand",
    "as_type",
    "bits_of",
    "by_warp",
    "destinations",
    "every_lane",
    "guard_of",
    "integer",
    "reader",
    "sources",
    "value_sources",
]

Reader = Callable[["ReferenceWarp"], LaneValue]
Destination = Register | None

_U32, _U64, _PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")
_ANY = LaneValue(np.zeros(1, np.uint32), _U32)
_FALSE, _TRUE = LaneValue(np.zeros(1, np.bool_), _PRED), LaneValue(np.ones(1, np.bool_), _PRED)


class Prepare:
    """The context of preparation: the program, the launch, and the function of the code."""

    __slots__ = ("function", "number", "plan", "program")

    def __init__(self, program: Program, plan: LaunchPlan, number: int) -> None:
        self.program = program
        self.plan = plan
        self.number = number
        self.function: Function = program.functions[number]


def lane_value(value: Value) -> LaneValue:
    assert isinstance(value, LaneValue)
    return value


def integer(number: int, type: ScalarType) -> LaneValue:
    """A constant by its bits."""
    if type.is_predicate:
        return _TRUE if number & 1 else _FALSE
    return lane_value(_ANY.constant_bits(number & ((1 << type.bits) - 1), type))


def every_lane(value: LaneValue) -> Lanes:
    """The value's array with an element for each of the 32 lanes."""
    return value.data if value.data.shape == (32,) else np.broadcast_to(value.data, (32,))


def bits_of(value: LaneValue) -> int:
    """A predicate as a mask of lanes."""
    return int(np.packbits(every_lane(value), bitorder="little").view("<u4")[0])


def as_type(value: LaneValue, type: ScalarType | None) -> LaneValue:
    """The content of a register as an operand of a type: the same bits, or the low ones."""
    if type is None or type is value.type or type == value.type:
        return value
    if type.is_predicate or value.type.is_predicate:
        return LaneValue(value.data.astype(dtype_of(type)), type)
    if value.type.bits != type.bits:
        raw = value.bits(scalar_type(f"b{value.type.bits}"))
        value = lane_value(raw.convert(scalar_type(f"b{type.bits}")))
    return lane_value(value.bits(type))


def reader(to: Prepare, operand: Operand, type: ScalarType | None) -> Reader:
    """Reads an operand as a value of a type (``None``: its own)."""
    if isinstance(operand, Register):
        if type is None or type == operand.type:
            return lambda warp: warp.read(operand)
        return lambda warp: as_type(warp.read(operand), type)
    if isinstance(operand, Sum):
        register, width = operand.register, scalar_type(f"u{operand.register.type.bits}")
        added = integer(operand.offset, width)
        return lambda warp: as_type(lane_value(warp.read(register).bits(width) + added), type)
    if isinstance(operand, Negated):
        inner = reader(to, operand.operand, _PRED)
        return lambda warp: lane_value(~inner(warp))
    if isinstance(operand, SpecialRegister):
        special = read_special(operand, to.program, to.plan)
        return lambda warp: as_type(special(warp), type)
    if isinstance(operand, (Symbol, Variable)):
        target, offset = (operand.target, operand.offset) if isinstance(operand, Symbol) else (operand, 0)
        if (moving := by_warp(to, target, offset)) is not None:
            return lambda warp: as_type(moving(warp), type)
    constant = as_type(_constant(to, operand, type), type)
    return lambda warp: constant


def by_warp(to: Prepare, target: Variable | Function, offset: int) -> Reader | None:
    """Reads the address of a variable whose address differs between warps: a local variable of a recursive function, in the stack
    frame of the current activation, or a shared variable, in the window of a CTA of a cluster."""
    program = to.program
    if isinstance(target, Variable) and target.space == "shared" and to.plan.cluster_ctas > 1:
        local_address = program.shared.get(target, program.shared_static) + offset
        return lambda warp: integer(warp.cta.window + local_address, _U64)
    owner = target.function if isinstance(target, Variable) and target.space == "local" else None
    number = program.function_of.get(owner.name, -1) if owner is not None else -1
    if number not in program.frame_bytes:
        return None
    assert isinstance(target, Variable)
    within = np.uint64((program.local[target] + offset) % (1 << 64))
    return lambda warp: LaneValue(warp.frame_addresses[number] + within, _U64)


def _constant(to: Prepare, operand: Operand, type: ScalarType | None) -> LaneValue:
    if isinstance(operand, Immediate):
        return _immediate(operand, type or scalar_type("s64"))
    if isinstance(operand, Symbol):
        return integer(address_of(to, operand.target, operand.offset, operand), _U64)
    if isinstance(operand, Variable):
        return integer(address_of(to, operand, 0, operand), _U64)
    if isinstance(operand, Sink):
        return integer(0, type or _U32)
    raise Unsupported(f"a {operand.__class__.__name__.lower()} as source operand", span=operand.span)


def _immediate(operand: Immediate, type: ScalarType) -> LaneValue:
    if operand.kind == "int":
        # literals of 16-bit formats and packed types are bit patterns, those of f32 and f64 values
        if type.is_float and type.bits > 16 and type.lanes == 1:
            return lane_value(_ANY.constant(operand.value, type))
        if type.is_predicate:
            return integer(int(operand.value != 0), type)
        return integer(operand.value, type)
    literal_type = scalar_type(operand.kind)
    value = integer(operand.value, literal_type)
    return lane_value(value.convert(type)) if type.is_float and type.bits != literal_type.bits else value


def address_of(to: Prepare, target: Variable | Function, offset: int, operand: Operand) -> int:
    """The address of a variable or function in its own state space. Raises ``Unsupported`` for parameters of calls."""
    program, plan = to.program, to.plan
    if isinstance(target, Variable):
        if target.space == "shared":
            return program.shared.get(target, program.shared_static) + offset
        if target.space == "local":
            return program.local[target] + offset
        if target.space == "param" and target in program.kernel.params:
            return plan.parameter_address - WINDOWS["param"][0] + target.offset + offset
    index = program.symbol_of.get(target)
    if index is None:
        raise Unsupported(f"the address of parameter {target.name!r} of a device function", span=operand.span)
    window = WINDOWS["const"][0] if isinstance(target, Variable) and target.space == "const" else 0
    return int(plan.symbols[index]) - window + offset


def value_sources(instruction: Instruction) -> list[tuple[OperandSlot, Operand]]:
    """The value operands with their slots, vectors flattened."""
    operands: list[tuple[OperandSlot, Operand]] = []
    for slot, operand in matched(instruction):
        if slot.role in ("source", "predicate_source") and not isinstance(operand, Address):
            operands += [
                (slot, element)
                for element in (operand.elements if isinstance(operand, Vector) else (operand,))
            ]
    return operands


def sources(to: Prepare, instruction: Instruction) -> list[Callable[[ReferenceWarp], LaneValue | int]]:
    """Readers of the value operands in the order that ``evaluate`` expects; integer constants are ``int``."""
    readers: list[Callable[[ReferenceWarp], LaneValue | int]] = []
    if instruction.effect is PURE:
        readers += _addresses(to, instruction)
    for slot, operand in value_sources(instruction):
        if slot.constant and isinstance(operand, Immediate):
            readers.append(lambda warp, number=operand.value: number)  # type: ignore[misc]
        else:
            readers.append(reader(to, operand, slot.type))
    return readers


def _addresses(to: Prepare, instruction: Instruction) -> list[Reader]:
    """Sources that semantics receive before the value operands: addresses that they only compute with, or a zero if they have none."""
    from .memory import address_reader

    slots = instruction.form.operands
    if all(slot.role == "destination" for slot in slots):
        zero = integer(0, _U32)
        return [lambda warp: zero]
    space = instruction.form.space or "generic"
    return [
        address_reader(to, operand, space)
        for slot, operand in matched(instruction)
        if slot.role == "address" and isinstance(operand, Address)
    ]


def destinations(instruction: Instruction) -> list[Destination]:
    """The registers of the results, in order; ``None`` for sinks."""
    destinations: list[Destination] = []
    for slot, operand in matched(instruction):
        if slot.role == "destination" and not isinstance(operand, Address):
            for element in operand.elements if isinstance(operand, Vector) else (operand,):
                destinations.append(element if isinstance(element, Register) else None)
    return destinations


def address_operand(instruction: Instruction) -> Address:
    """The address operand of a memory instruction."""
    for _, operand in matched(instruction):
        if isinstance(operand, Address):
            return operand
    raise Unsupported(f"{instruction.opcode} without an address", span=instruction.span)


class Guarded:
    """The lanes that execute an instruction: those that are active and whose guard holds."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.holds = guard_of(instruction.guard) if instruction.guard is not None else None
        self.counter = to.program.predicated_of.get(instruction)

    def __call__(self, warp: ReferenceWarp, counts: bool = True) -> tuple[Lanes | None, Lanes]:
        """The guard (``None`` without one), and the executing lanes; ``counts``: counts them, as the instruction is executed."""
        if self.holds is None:
            return None, warp.active
        where = self.holds(warp)
        active = warp.active & where
        if counts and self.counter is not None:
            warp.count_guard(self.counter, active)
        return where, active


def guard_of(guard: Guard) -> Callable[[ReferenceWarp], Lanes]:
    """Reads a guard as a ``bool`` array."""
    register = guard.register
    if guard.negated:
        return lambda warp: ~warp.read(register).data
    return lambda warp: warp.read(register).data
