"""Instructions of the slice prepared for class execution: each becomes a step that is called with the state.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..affine.lanes import FULL, Lanes, lanes_of
from ..affine.space import Refusal
from ..affine.values import Affine, Mask, from_patterns
from ..errors import EngineError
from ..flow.operands import matched
from ..isa.frame import evaluate, has_meaning
from ..isa.spaces import WINDOWS
from ..isa.table import OperandForm
from ..isa.types import SCALAR_TYPES, ScalarType, scalar_type
from ..isa.words import Value
from ..ptx.syntax import Guard, Instruction, Negated, Operand, Register, SpecialRegister, Variable
from . import lanes_operands
from .lanes_operands import Prepare, address_of, address_operand, destinations, value_sources
from .lanes_values import LaneValue, dtype_of
from .memory import Memory
from .program import is_done_at_once

if TYPE_CHECKING:
    from .classes import ClassRun
    from .classes_state import State

__all__ = ["Reader", "Step", "as_type", "concretely", "guard_of", "make_step", "reader"]

Step = Callable[["State"], None]
Reader = Callable[["State"], Value]

_PRED, _U32 = scalar_type("pred"), scalar_type("u32")
_CLOCKS = ("clock", "globaltimer")
_ANY = LaneValue(np.zeros(1, np.uint32), _U32)


def _lane_value(patterns: Sequence[int], type: ScalarType) -> LaneValue:
    dtype = dtype_of(type)
    if dtype.kind in "Ob":
        return LaneValue(np.array(patterns, dtype), type)
    return LaneValue(np.array(patterns, f"u{dtype.itemsize}").view(dtype), type)


def _patterns(value: LaneValue) -> list[int]:
    wide = (1 << value.type.bits) - 1
    return [int(item) & wide for item in value.data.tolist()]


def concretely(
    primitive: str, operands: list[tuple[Sequence[int], str]], attributes: dict[str, object]
) -> tuple[Sequence[int], str]:
    """A primitive on known values, by the reference backend; see ``affine.space.Concretely``."""
    with np.errstate(all="ignore"):
        if primitive == "constant":
            made = _ANY.constant(cast(Any, attributes["value"]), cast(ScalarType, attributes["type"]))
        else:
            first, *others = (_lane_value(patterns, SCALAR_TYPES[name]) for patterns, name in operands)
            made = first.apply(primitive, *others, **attributes)
    value = cast(LaneValue, made)
    return _patterns(value), value.type.name


def as_type(value: Value, type: ScalarType | None) -> Value:
    """The content of a register as an operand of a type: the same bits, or the low ones."""
    if type is None or type == value.type:
        return value
    if type.is_predicate:
        return value.compare("ne", 0)
    if value.type.is_predicate:
        return value.apply("predicate_to", type=type)
    if value.type.bits != type.bits:
        value = value.bits(scalar_type(f"b{value.type.bits}")).convert(scalar_type(f"b{type.bits}"))
    return value.bits(type)


def reader(run: ClassRun, to: Prepare, operand: Operand, type: ScalarType | None) -> Reader:
    """Reads an operand as a value of a type (of its own where ``None``)."""
    if isinstance(operand, Register):
        if type is None or type == operand.type:
            return lambda state: state.read(operand)
        return lambda state: as_type(state.read(operand), type)
    if isinstance(operand, Negated):
        inner = reader(run, to, operand.operand, _PRED)
        return lambda state: ~inner(state)
    if isinstance(operand, SpecialRegister):
        name, _, part = operand.name.partition(".")
        if name.startswith(_CLOCKS):
            raise Refusal(f"%{operand.name} is read")
        if name in ("tid", "ctaid", "clusterid", "warpid"):
            key = "ctaid" if name == "clusterid" else name
            axis = "xyzw".find(part) if part else 0
            return lambda state: as_type(state.coordinates[key, axis], type)
    read = lanes_operands.reader(to, operand, type)
    constant = read(cast(Any, None))  # of what is left, nothing depends on the warp
    value = from_patterns(run.space, _patterns(constant), constant.type)
    return lambda state: value


def guard_of(guard: Guard) -> Callable[[State], int]:
    """Reads where a guard holds, in the running lanes."""
    register, negated = guard.register, guard.negated

    def read(state: State) -> int:
        value = state.read(register)
        assert isinstance(value, Mask)
        return state.splits.mask & (~value.mask if negated else value.mask)

    return read


def _sources(run: ClassRun, to: Prepare, instruction: Instruction) -> list[Callable[[State], Value | int]]:
    found: list[Callable[[State], Value | int]] = []
    for form, operand in value_sources(instruction):
        number = getattr(operand, "value", None)
        if form.constant and isinstance(number, int):
            found.append(lambda state, number=number: number)  # type: ignore[misc]
        else:
            found.append(reader(run, to, operand, form.type))
    return found


def make_step(run: ClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    """The step of one instruction, ``None`` if nothing has to be done. What cannot be done is refused where it is reached."""
    try:
        step = _make_step(run, to, instruction)
    except Refusal as refusal:
        return _refusing(instruction, str(refusal))
    except EngineError as error:
        return _refusing(instruction, error.message)
    return step if step is None else _named(run, instruction, step)


def _refusing(instruction: Instruction, reason: str) -> Step:
    def step(state: State) -> None:
        raise Refusal(f"{instruction.opcode} at {_place(instruction)}: {reason}")

    return step


def _place(instruction: Instruction) -> str:
    return f"{instruction.span.path}:{instruction.span.line}"


def _named(run: ClassRun, instruction: Instruction, step: Step) -> Step:
    """Refusals get the instruction's name."""

    def named(state: State) -> None:
        try:
            step(state)
        except Refusal as refusal:
            raise Refusal(f"{instruction.opcode} at {_place(instruction)}: {refusal}") from None

    return named


def _make_step(run: ClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    effect = instruction.effect
    wanted = instruction in run.executed
    if effect == "trap":
        return _trap(run, instruction)
    if not wanted:
        return _count_guard(run, instruction)
    if effect in ("fence", "hint", "warp_barrier") or is_done_at_once(instruction):
        return _count_guard(run, instruction)
    if effect == "load":
        return _load(run, to, instruction)
    if effect in ("", "special") and has_meaning(instruction.spelling):
        return _compute(run, to, instruction)
    raise Refusal("what it does may differ between blocks")


def _count_guard(run: ClassRun, instruction: Instruction) -> Step | None:
    """Lanes whose guard holds are counted, where that is wanted."""
    counter = run.predicated(instruction)
    if counter is None or instruction.guard is None:
        return None
    guard = guard_of(instruction.guard)

    def step(state: State) -> None:
        state.counts[counter] = state.counts.get(counter, 0) + guard(state).bit_count()

    return step


def _trap(run: ClassRun, instruction: Instruction) -> Step:
    guard = guard_of(instruction.guard) if instruction.guard is not None else None

    def step(state: State) -> None:
        if guard is None or guard(state):
            raise Refusal("it is reached")

    return step


def _compute(run: ClassRun, to: Prepare, instruction: Instruction) -> Step:
    spelling = instruction.spelling
    readers = _sources(run, to, instruction)
    targets = destinations(instruction)
    function, space = to.number, run.space
    reads_carry, writes_carry = spelling.reads_carry, spelling.writes_carry
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction)

    def step(state: State) -> None:
        where = state.splits.mask
        if guard is not None:
            where = space.active = guard(state)
        if where:
            values: list[Value | int] = [read(state) for read in readers]
            if reads_carry:
                values.append(state.carry.get(function) or Mask(0, space))
            results = evaluate(spelling, values)
            for target, value in zip(targets, results):
                if target is not None:
                    state.write(target, value, where)
            if writes_carry:
                carry, old = results[-1], state.carry.get(function)
                assert isinstance(carry, Mask)
                kept = old.mask & ~where if old is not None else 0
                state.carry[function] = Mask(carry.mask & where | kept, space)
        if counter is not None:
            state.counts[counter] = state.counts.get(counter, 0) + where.bit_count()

    return step


def _load(run: ClassRun, to: Prepare, instruction: Instruction) -> Step:
    """From kernel parameters, constants, and memory that the launch does not write, at addresses that are known."""
    space_name = instruction.spelling.space
    operand = address_operand(instruction)
    element = scalar_type(str(instruction.spelling.modifier("type")))
    targets = destinations(instruction)
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction)
    fetch = _fetcher(run, str(space_name), operand.base, instruction)
    base: Callable[[State], Lanes]
    if isinstance(operand.base, Register):
        register = operand.base
        base = lambda state: cast(Affine, state.read(register)).lanes  # noqa: E731
    else:
        start = 0
        if isinstance(operand.base, Variable):
            start = address_of(to, operand.base, 0, operand)
        fixed = Lanes((start,), ((FULL, (), 0),))
        base = lambda state: fixed  # noqa: E731
    offset, size, space = operand.offset, element.bytes, run.space
    wide = (1 << 64) - 1

    def step(state: State) -> None:
        lanes = state.splits.mask if guard is None else guard(state)
        if not lanes:
            return
        space.active = lanes
        addresses = space.known(base(state), lanes)
        for place, target in enumerate(targets):
            if target is None:
                continue
            first = offset + place * size
            if len(addresses) == 1:
                found = [fetch((addresses[0] + first) & wide, size)]
            else:
                found = [0] * 32
                for lane in lanes_of(lanes):
                    found[lane] = fetch((addresses[lane] + first) & wide, size)
            state.write(target, from_patterns(space, found, element), lanes)
        if counter is not None:
            state.counts[counter] = state.counts.get(counter, 0) + lanes.bit_count()

    return step


def _fetcher(run: ClassRun, space: str, base: object, instruction: Instruction) -> Callable[[int, int], int]:
    plan, memory = run.plan, run.memory
    start = plan.parameter_address
    if space == "param" and isinstance(base, Variable) and base not in run.program.kernel.params:
        raise Refusal("a parameter of a call")
    if space in ("shared", "local"):
        raise Refusal(f"what it reads from {space} memory may differ between blocks")
    if instruction.effect != "load" or "volatile" in instruction.opcode.split("."):
        raise Refusal("another thread may write what it reads")
    if space in ("global", "generic") and run.stores:
        raise Refusal("the launch may write what it reads")

    def fetch(address: int, size: int) -> int:
        if start <= address and address + size <= start + len(plan.parameters):
            return int.from_bytes(plan.parameters[address - start : address - start + size], "little")
        return _from_memory(memory, address, size)

    return fetch


def _from_memory(memory: Memory | None, address: int, size: int) -> int:
    if memory is None:
        raise Refusal("it reads memory")
    if any(base and base <= address < base + extent for base, extent in WINDOWS.values()):
        raise Refusal("it reads shared or local memory")
    allocation = memory.resolve(address, size)
    if allocation is None or address % size:
        raise Refusal("it reads outside every array")
    place = address - allocation.address
    if not allocation.initialized and not memory.shadow_of(allocation)[place : place + size].all():
        raise Refusal("it reads uninitialised memory")
    return int.from_bytes(memory.view(allocation)[place : place + size].tobytes(), "little")


def forms(instruction: Instruction) -> dict[str, tuple[OperandForm, Operand]]:
    """The operands by the names of their forms."""
    return {form.name: (form, operand) for form, operand in matched(instruction)}
