"""Exchange between the lanes of a warp in warp-class execution; see ``interp.exchange`` for the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..affine.lanes import FULL, Lanes, constant, lanes_of, merge
from ..affine.space import Refusal
from ..affine.values import Affine, Mask
from ..flow.operands import matched
from ..interp.operands import Prepare, destinations
from ..isa.effects import ACTIVEMASK, ELECT, MATCH, REDUX, SHFL, VOTE
from ..isa.evaluation import evaluate
from ..isa.primitives import Value
from ..isa.types import ScalarType, scalar_type
from ..ptx.syntax import Instruction
from .handlers import handles
from .operands import Reader, guard_of, reader

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["Exchange", "make_exchange", "perform"]

_U32 = scalar_type("u32")


class Exchange:
    """One prepared instruction that the lanes of a warp execute together; in the base class they only wait for each other. Results are
    computed only if the instruction belongs to the slice."""

    def __init__(self, run: WarpClassRun, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.form = instruction.form
        self.wanted = instruction in run.executed and instruction.effect.exchanges
        self.readers: dict[str, Reader] = {}
        self.types: dict[str, ScalarType] = {}
        for slot, operand in matched(instruction):
            if slot.role in ("source", "predicate_source") and (self.wanted or slot.name == "membermask"):
                self.types[slot.name] = slot.type or _U32
                self.readers[slot.name] = reader(run, to, operand, self.types[slot.name])
        self.targets = destinations(instruction)
        self.guard = guard_of(instruction.guard) if instruction.guard is not None else None
        self.counter = run.predicated(instruction)

    def __call__(self, state: State) -> None:
        """Without ``.sync``: the active lanes take part."""
        lanes = state.paths.mask if self.guard is None else self.guard(state)
        if lanes:
            perform(state, lanes, [(self, lanes)])
        if self.counter is not None:
            state.counts[self.counter] = state.counts.get(self.counter, 0) + lanes.bit_count()

    def masks(self, state: State) -> dict[int, int]:
        """The member masks of the running lanes, and the lanes of each."""
        lanes = state.paths.mask
        if "membermask" not in self.readers:
            return {FULL: lanes}  # matrix instructions: all lanes
        member_masks = self.readers["membermask"](state)
        assert isinstance(member_masks, Affine)
        known = state.run.space.known(member_masks.lanes, lanes)
        masks: dict[int, int] = {}
        for lane in lanes_of(lanes):
            mask = known[lane if len(known) > 1 else 0] & FULL
            masks[mask] = masks.get(mask, 0) | 1 << lane
        if any(own & ~mask for mask, own in masks.items()):
            raise Refusal(f"{self.instruction.opcode}: a lane is not in its own member mask")
        return masks

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> Sequence[Value]:
        """The results of each lane, from the operands of all participants."""
        return ()


def make_exchange(run: WarpClassRun, to: Prepare, instruction: Instruction) -> Exchange:
    """A ``.sync`` instruction, prepared."""
    if not instruction.effect.exchanges:
        return Exchange(run, to, instruction)
    handler = handles.for_effect(instruction.effect)
    assert handler is not None, instruction.effect
    exchange = handler(run, to, instruction)
    assert isinstance(exchange, Exchange)
    return exchange


def perform(state: State, participants: int, parts: Sequence[tuple[Exchange, int]]) -> None:
    """Execute the operation over the participants; the lanes of each part write the registers of their own instruction."""
    first = parts[0][0]
    if not any(exchange.wanted for exchange, _ in parts):
        return
    if len(parts) > 1:
        raise Refusal(f"{first.instruction.opcode}: lanes reach it on different paths")
    space = state.run.space
    space.active = participants
    joint = {name: read(state) for name, read in first.readers.items()}
    for target, value in zip(first.targets, first.results(state, participants, joint)):
        if target is not None:
            state.write(target, value, parts[0][1])


def _number(state: State, value: int) -> Value:
    return Affine(constant(value), _U32, state.run.space)


@handles(SHFL)
class Shuffle(Exchange):
    """``shfl``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        space = state.run.space
        own = Affine(Lanes(range(32), ((FULL, (), 0),)), _U32, space)
        source, inside = evaluate(self.form, [own, joint["b"], joint["c"]])
        value = joint["a"]
        assert isinstance(source, Affine) and isinstance(value, Affine)
        known = space.known(source.lanes, participants)
        sources = [known[lane if len(known) > 1 else 0] & 31 for lane in range(32)]
        present = sum(1 << lane for lane, source in enumerate(sources) if participants >> source & 1)
        moved = merge(
            present, value.lanes.permuted(sources), constant(0)
        )  # from lanes that do not take part: 0
        return [Affine(moved, value.type, space), inside]


@handles(VOTE)
class Vote(Exchange):
    """``vote``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        predicate = joint["a"]
        assert isinstance(predicate, Mask)
        members = predicate.mask & participants
        mode = self.form.modifier("mode")
        if mode is None:
            return [_number(state, members)]
        answers = {"all": members == participants, "any": members != 0, "uni": members in (0, participants)}
        return [Mask(FULL if answers[str(mode)] else 0, state.run.space)]


@handles(MATCH)
class Match(Exchange):
    """``match``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        value = joint["a"]
        assert isinstance(value, Affine)
        wide = (1 << value.type.bits) - 1
        known = state.run.space.known(value.lanes, participants)
        words = [known[lane if len(known) > 1 else 0] & wide for lane in range(32)]
        same: dict[int, int] = {}
        for lane in lanes_of(participants):
            same[words[lane]] = same.get(words[lane], 0) | 1 << lane
        if self.form.modifier("all"):
            every = len(same) == 1
            return [_number(state, participants if every else 0), Mask(FULL * every, state.run.space)]
        members = [same.get(number, 0) for number in words]
        return [Affine(Lanes(members, ((FULL, (), 0),)), _U32, state.run.space)]


@handles(REDUX)
class Redux(Exchange):
    """``redux``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        value = joint["a"]
        assert isinstance(value, Affine)
        known = state.run.space.known(value.lanes, participants)
        first, *others = (known[lane if len(known) > 1 else 0] for lane in lanes_of(participants))
        total: Value = Affine(constant(first), value.type, state.run.space)
        for number in others:
            (total,) = evaluate(self.form, [total, Affine(constant(number), value.type, state.run.space)])
        return [total]


@handles(ACTIVEMASK)
class ActiveMask(Exchange):
    """``activemask``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        return [_number(state, participants)]


@handles(ELECT)
class Elect(Exchange):
    """``elect``."""

    def results(self, state: State, participants: int, joint: dict[str, Value]) -> list[Value]:
        leader = lanes_of(participants)[0]
        return [_number(state, leader), Mask(1 << leader, state.run.space)]
