"""The state of a warp class during execution: its piece, registers, SIMT stack and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..affine.lanes import FULL, Lanes, merge
from ..affine.pieces import Piece, Region
from ..affine.space import NoPhase, Refusal
from ..affine.values import Affine, Mask
from ..isa.evaluation import extend
from ..isa.primitives import Value
from ..isa.types import ScalarType, scalar_type
from ..ptx.syntax import Register, Variable
from ..simt.stack import Convergence, SimtStack
from ..simt.stack_entries import WAIT, Wait

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .calls import Activation, Call

__all__ = ["Credit", "Seen", "State"]

U32 = scalar_type("u32")
#: ``("tid", axis)`` …
Coordinate = tuple[str, int]
#: ``position`` of a state that has not entered its block yet
FRESH = -1
#: identifies an arrival at a loop header: running lanes, live lanes, the reconvergence point, and the stack
Key = tuple[int, int, int, tuple[object, ...]]


@dataclass(slots=True)
class Seen:
    """An arrival at a loop header, with the registers that are live there and the parameters of calls."""

    key: Key
    registers: dict[Register, Value]
    parameters: dict[tuple[Variable, int], Value | None]


@dataclass(slots=True)
class Credit:
    """Counts of phases nested in one that is being tried; ``instructions``: those of one warp in one iteration."""

    region: Region
    counts: dict[int, int]
    instructions: int


class State:
    """``position`` is the next step of the block. ``counts`` are those of one warp since the piece was last cut, by counter (see
    ``backend.WarpClassRun``); ``instructions`` is an upper bound of the instructions that a warp of the piece has executed."""

    __slots__ = (
        "carry",
        "coordinates",
        "counts",
        "credits",
        "failures",
        "inside",
        "instructions",
        "loops",
        "parameters",
        "paths",
        "piece",
        "position",
        "registers",
        "run",
    )

    def __init__(
        self, run: WarpClassRun, piece: Piece, coordinates: Mapping[Coordinate, Lanes], lanes: int
    ) -> None:
        self.run = run
        self.piece = piece
        self.paths = SimtStack(run.program.entries[0], lanes, self)
        self.coordinates: dict[Coordinate, Value] = {
            name: Affine(value, U32, run.space) for name, value in coordinates.items()
        }
        self.registers: dict[Register, Value] = {}
        self.carry: dict[int, Mask] = {}
        #: parameters of calls by variable and offset; in a phase ``None`` for those that differ between iterations
        self.parameters: dict[tuple[Variable, int], Value | None] = {}
        self.position = FRESH
        self.counts: dict[int, int] = {}
        self.credits: list[Credit] = []
        self.instructions = 0
        #: arrivals at the headers of the current loops
        self.loops: dict[int, Seen] = {}
        #: by header: failed attempts, and remaining arrivals without an attempt
        self.failures: dict[int, tuple[int, int]] = {}
        #: in a phase: the blocks that lanes must not leave
        self.inside: frozenset[int] | None = None

    def copy(self) -> State:
        """A copy without counts."""
        state = State.__new__(State)
        state.run, state.piece, state.position = self.run, self.piece, self.position
        state.paths = self.saved(state)
        state.coordinates, state.inside = self.coordinates, self.inside
        state.registers, state.carry = dict(self.registers), dict(self.carry)
        state.parameters = dict(self.parameters)
        state.counts, state.credits, state.instructions = {}, [], self.instructions
        state.loops, state.failures = dict(self.loops), dict(self.failures)
        return state

    def change(self, replace: Callable[[Lanes, int], Lanes]) -> None:
        """Replace all numbers by ``put`` of the number and its width."""

        def changed(value: Any) -> Any:
            if not isinstance(value, Affine):
                return value
            lanes = replace(value.lanes, value.type.bits)
            return value if lanes is value.lanes else Affine(lanes, value.type, value.space)

        self.registers = {register: changed(value) for register, value in self.registers.items()}
        self.coordinates = {name: changed(value) for name, value in self.coordinates.items()}
        self.loops = {
            head: Seen(
                seen.key,
                {register: changed(value) for register, value in seen.registers.items()},
                {key: changed(value) for key, value in seen.parameters.items()},
            )
            for head, seen in self.loops.items()
        }
        self.parameters = {key: changed(value) for key, value in self.parameters.items()}

    def saved(self, owner: State | None = None) -> SimtStack:
        """A copy of the stack, to restore."""
        paths = self.paths
        stack = SimtStack(paths.pc, paths.mask, owner or self)
        stack.id, stack.live, stack.call_depth = paths.id, paths.live, paths.call_depth
        stack.entries = [
            entry
            if entry.kind != WAIT
            else entry._replace(
                payload=Wait(entry.payload.key, entry.payload.resume, dict(entry.payload.masks))
            )
            for entry in paths.entries
        ]
        return stack

    def spend(self, instructions: int) -> None:
        """Charge at most so many instructions to every warp of the piece."""
        self.instructions += instructions
        if self.instructions > self.run.plan.max_instructions:
            raise Refusal("a warp may execute more than max_instructions")

    def key(self) -> Key:
        paths = self.paths
        return paths.mask, paths.live, paths.id, tuple(entry[:5] for entry in paths.entries)

    # -- registers -------------------------------------------------------------------------------------------------------

    def read(self, register: Register) -> Value:
        """The value of a register, initially 0."""
        value = self.registers.get(register)
        return self.run.zero(register.type) if value is None else value

    def write(self, register: Register, value: Value, where: int) -> None:
        """Write a register in some lanes; narrower values are extended."""
        if value.type is not register.type:
            value = extend(value, register.type)
        live = self.paths.live
        if where & live != live:
            old = self.registers.get(register)
            if old is None:
                old = self.run.zero(register.type)
            value = merged(where, value, old)
        self.registers[register] = value

    def read_carry(self, function: int) -> Mask:
        """The condition code CC.CF; refused in a phase, as it may come from an earlier iteration."""
        if self.inside is not None:
            raise NoPhase
        return self.carry.get(function) or Mask(0, self.run.space)

    def put_carry(self, function: int, value: int, where: int) -> None:
        old = self.carry.get(function)
        other_lanes = old.mask & ~where if old is not None else 0
        self.carry[function] = Mask(value & where | other_lanes, self.run.space)

    def parameter(self, variable: Variable, offset: int, type_: ScalarType) -> Value:
        """The value of a parameter of a call, initially 0."""
        key = variable, offset
        data = self.parameters.get(key)
        if data is not None and data.type.bits == type_.bits:
            return data if data.type == type_ else data.bits(type_)
        if key in self.parameters and data is None:
            raise NoPhase
        if data is not None or self._overlaps(variable, offset, type_.bytes):
            raise Refusal(f"parameter {variable.name!r} is read in other pieces than it was written in")
        return self.run.zero(type_)

    def put_parameter(self, variable: Variable, offset: int, value: Value, where: int) -> None:
        old = self.parameters.get((variable, offset))
        if old is None or old.type.bits != value.type.bits:
            known = (variable, offset) not in self.parameters or old is not None
            if known and self._overlaps(variable, offset, value.type.bytes):
                raise Refusal(f"parameter {variable.name!r} is written in pieces of several sizes")
            old = self.run.zero(value.type)
        if where & self.paths.live != self.paths.live:
            value = merged(where, value, old)
        self.parameters[variable, offset] = value

    def _overlaps(self, variable: Variable, offset: int, size: int) -> bool:
        return any(
            item is variable
            and (value is None or (start < offset + size and offset < start + value.type.bytes))
            for (item, start), value in self.parameters.items()
        )

    # -- the interface that ``simt.stack.SimtStack`` uses --------------------------------------------------------------------

    def converge(self, convergence: Convergence) -> None:
        self.run.converge(self, convergence)

    def enter(self, function: tuple[Call, int], lanes: int) -> tuple[int, int, Activation]:
        call, number = function
        return number, self.run.program.entries[number], call.enter(self, number, lanes)

    def leave(self, payload: Activation, lanes: int, others: bool) -> None:
        payload.call.leave(self, payload.callee, lanes)


def merged(where: int, new: Value, old: Value) -> Value:
    """``new`` in the lanes of a mask, ``old`` in the others."""
    if isinstance(new, Mask):
        assert isinstance(old, Mask)
        return Mask(new.mask & where | old.mask & ~where & FULL, new.space)
    assert isinstance(new, Affine) and isinstance(old, Affine)
    return Affine(merge(where, new.lanes, old.lanes), new.type, new.space)
