"""Instructions of the slice prepared for warp-class execution: each becomes a step that is called with the state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast

from ..affine.lanes import FULL, Lanes, lanes_of
from ..affine.space import Refusal
from ..affine.values import Affine, Mask, from_patterns
from ..errors import EngineError
from ..interp.operands import Prepare, address_of, address_operand, destinations, value_sources
from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    FENCE,
    HINT,
    LOAD,
    PURE,
    REDUCTION,
    STORE,
    TENSOR_ORDER,
    TRAP,
    WARP_BARRIER,
    WARPGROUP_COMMIT,
    WARPGROUP_FENCE,
    WARPGROUP_WAIT,
)
from ..isa.evaluation import evaluate
from ..isa.primitives import Value
from ..isa.spaces import WINDOWS, space_of
from ..isa.types import scalar_type
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Instruction, Register, Variable
from ..simt.effects import completes_at_issue
from . import exchange  # noqa: F401  (registers its handlers)
from .accesses import access_step
from .calls import parameter_step
from .handlers import Step, handles
from .operands import guard_of, reader
from .value_forms import value_step

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["make_step"]

_U32 = scalar_type("u32")


def _sources(
    run: WarpClassRun, to: Prepare, instruction: Instruction
) -> list[Callable[[State], Value | int]]:
    readers: list[Callable[[State], Value | int]] = []
    roles = [slot.role for slot in instruction.form.operands if slot.role != "destination"]
    if instruction.effect is PURE and (not roles or "address" in roles):
        raise Refusal("the control flow depends on it")  # a cache policy
    for slot, operand in value_sources(instruction):
        number = getattr(operand, "value", None)
        if slot.constant and isinstance(number, int):
            readers.append(lambda state, number=number: number)  # type: ignore[misc]
        else:
            readers.append(reader(run, to, operand, slot.type))
    return readers


def make_step(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    """The step of one instruction, ``None`` if it does nothing. Unsupported instructions are refused only if they are reached."""
    try:
        step = _make_step(run, to, instruction)
    except Refusal as refusal:
        return _refusing(instruction, str(refusal))
    except EngineError as error:
        return _refusing(instruction, error.message)
    return step if step is None else _named(run, instruction, step)


def _refusing(instruction: Instruction, reason: str) -> Step:
    def step(state: State) -> None:
        raise Refusal(f"{instruction.opcode} at {_position_of(instruction)}: {reason}")

    return step


def _position_of(instruction: Instruction) -> str:
    return f"{instruction.span.path}:{instruction.span.line}"


def _named(run: WarpClassRun, instruction: Instruction, step: Step) -> Step:
    """The step, with the instruction's name added to refusals."""

    def named(state: State) -> None:
        try:
            step(state)
        except Refusal as refusal:
            raise Refusal(f"{instruction.opcode} at {_position_of(instruction)}: {refusal}") from None
        except EngineError as error:
            raise Refusal(f"{instruction.opcode} at {_position_of(instruction)}: {error.message}") from None

    return named


def _make_step(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    if instruction not in run.executed and instruction.effect is not TRAP:
        return _count_guard(run, to, instruction)
    handler = handles.for_effect(instruction.effect)
    if handler is None or not instruction.form.row.runs:
        raise Refusal("the control flow depends on it")
    return handler(run, to, instruction)


@handles(LOAD, STORE, ATOMIC, REDUCTION)
def _access(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step:
    loads, space = instruction.effect is LOAD, instruction.form.space
    if space == "param":
        base = address_operand(instruction).base
        if isinstance(base, Variable) and base not in run.program.kernel.params:
            return parameter_step(run, to, instruction)
    if run.forms is not None and instruction in run.forms.watched:
        return value_step(run, to, instruction, _load(run, to, instruction) if loads else None)
    if run.accesses is not None and instruction in run.program.site_of:
        carried_out = loads and (space in ("const", "param") or instruction in run.complete)
        if loads or instruction not in run.complete:
            return access_step(run, to, instruction, _load(run, to, instruction) if carried_out else None)
    if loads:
        return _load(run, to, instruction)
    raise Refusal(f"the control flow depends on {space} memory that the kernel writes")


@handles(ASYNC_COPY)
def _copy(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    if completes_at_issue(instruction):
        return _count_guard(run, to, instruction)
    raise Refusal("the control flow depends on it")


@handles(FENCE, HINT, TENSOR_ORDER, WARP_BARRIER, WARPGROUP_FENCE, WARPGROUP_COMMIT, WARPGROUP_WAIT)
def _count_guard(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step | None:
    """A step that counts the lanes whose guard holds, if requested."""
    counter = run.predicated(instruction)
    if counter is None or instruction.guard is None:
        return None
    guard = guard_of(instruction.guard)

    def step(state: State) -> None:
        state.counts[counter] = state.counts.get(counter, 0) + guard(state).bit_count()

    return step


@handles(TRAP)
def _trap(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step:
    guard = guard_of(instruction.guard) if instruction.guard is not None else None

    def step(state: State) -> None:
        if guard is None or guard(state):
            raise Refusal("it is reached")

    return step


@handles(PURE)
def _compute(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step:
    form = instruction.form
    readers = _sources(run, to, instruction)
    targets = destinations(instruction)
    function, space = to.number, run.space
    reads_carry, writes_carry = form.reads_carry, form.writes_carry
    reads_rank, is_checked = form.reads_rank, form.row.applied.checked is not None
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction)

    def step(state: State) -> None:
        where = state.paths.mask
        if guard is not None:
            where = space.active = guard(state)
        if where:
            values: list[Value | int] = [read(state) for read in readers]
            if reads_carry:
                values.append(state.read_carry(function))
            if reads_rank:
                values.append(
                    from_patterns(space, [0], _U32)
                )  # launches with clusters are not counted by warp classes
            results = evaluate(form, values)
            if is_checked:
                wrong = results[-1]
                assert isinstance(wrong, Mask)
                if wrong.mask & where:
                    raise Refusal("its operands are invalid")
            for target, value in zip(targets, results):
                if target is not None:
                    state.write(target, value, where)
            if writes_carry:
                carry = results[-1]
                assert isinstance(carry, Mask)
                state.put_carry(function, carry.mask, where)
        if counter is not None:
            state.counts[counter] = state.counts.get(counter, 0) + where.bit_count()

    return step


def _load(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Step:
    """A load from kernel parameters, constants, or memory that the launch does not write, at known addresses."""
    space_name = instruction.form.space
    operand = address_operand(instruction)
    element = scalar_type(str(instruction.form.modifier("type")))
    targets = destinations(instruction)
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction)
    fetch = _fetcher(run, str(space_name), instruction)
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
    window = WINDOWS[str(space_name)][0] if space_name in ("const", "param") else 0
    offset, size, space = operand.offset + window, element.bytes, run.space
    wide = (1 << 64) - 1

    def step(state: State) -> None:
        lanes = state.paths.mask if guard is None else guard(state)
        if not lanes:
            return
        space.active = lanes
        try:
            addresses = space.known(base(state), lanes)
        except Refusal:
            raise Refusal("its address differs between many blocks") from None
        for index, target in enumerate(targets):
            if target is None:
                continue
            first = offset + index * size
            if len(addresses) == 1:
                loaded = [fetch((addresses[0] + first) & wide, size)]
            else:
                loaded = [0] * 32
                for lane in lanes_of(lanes):
                    loaded[lane] = fetch((addresses[lane] + first) & wide, size)
            state.write(target, from_patterns(space, loaded, element), lanes)
        if counter is not None:
            state.counts[counter] = state.counts.get(counter, 0) + lanes.bit_count()

    return step


def _fetcher(run: WarpClassRun, space: str, instruction: Instruction) -> Callable[[int, int], int]:
    plan, memory = run.plan, run.memory
    start = plan.parameter_address
    if space in ("shared", "local"):
        raise Refusal(f"values that it reads from {space} memory may differ between blocks")
    if instruction.effect is not LOAD or "volatile" in instruction.opcode.split("."):
        raise Refusal("another thread may write the memory that it reads")
    if space in ("global", "generic") and run.stores:
        raise Refusal("the launch may write the memory that it reads")

    def fetch(address: int, size: int) -> int:
        if start <= address and address + size <= start + len(plan.parameters):
            return int.from_bytes(plan.parameters[address - start : address - start + size], "little")
        return _from_memory(memory, address, size, () if run.forms is None else run.forms.unknown)

    return fetch


def _from_memory(memory: Memory | None, address: int, size: int, unknown: Collection[Allocation]) -> int:
    if memory is None:
        raise Refusal("it reads memory")
    if space_of(address)[0] in ("shared", "local"):
        raise Refusal("it reads shared or local memory")
    allocation = memory.resolve(address, size)
    if allocation is None or address % size:
        raise Refusal("it reads outside every array")
    if allocation in unknown:
        raise Refusal("it reads values that another launch did not compute")
    offset = address - allocation.address
    if not allocation.initialized and not memory.shadow_of(allocation)[offset : offset + size].all():
        raise Refusal("it reads uninitialised memory")
    return int.from_bytes(memory.view(allocation)[offset : offset + size].tobytes(), "little")
