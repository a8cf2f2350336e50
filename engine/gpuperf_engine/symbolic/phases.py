"""Iterations of a loop that behave alike, counted at once.

Between two arrivals at a loop header with the same lanes and stack, registers that are live there have moved by a step. If the
steps are constants, the body is run once more with them as multiples of a new symbol k: outcomes that depend on k keep what
they are at k = 0 and give conditions (``affine.space``). If the registers come out one step further, then, by induction over k,
all iterations up to the first that violates a condition are alike. Their number K is affine, or a lower bound of it is taken.
They are credited on the region 0 ≤ k < K, and the registers of the running lanes, of no others, move by K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..affine.lanes import FULL, Lanes, add, gathered, lanes_of, merge, scale
from ..affine.linear import Linear, centred, plus, times
from ..affine.pieces import Region
from ..affine.space import NoPhase, Phase, Refusal
from ..affine.values import Affine, Mask
from ..isa.primitives import Value
from ..ptx.syntax import Register
from .state import Credit, Seen, State, merged

if TYPE_CHECKING:
    from .backend import WarpClassRun

__all__ = ["arrive"]

#: attempts at a loop in vain double the iterations until the next, up to this many
MOST_SKIPPED = 1 << 10
#: iterations at once that make an attempt worth it
WORTHWHILE = 4

Steps = dict[Register, Sequence[int]]


def arrive(run: WarpClassRun, state: State, head: int) -> None:
    """The lanes come to a loop header: go over the iterations that are like the last one, if any."""
    key = state.key()
    seen = state.loops.get(head)
    if seen is not None and seen.key == key:
        tried, skip = state.failures.get(head, (0, 0))
        if skip:
            state.failures[head] = (tried, skip - 1)
        elif _try(run, state, head, seen):
            state.failures.pop(head, None)
            del state.loops[head]
            return
        else:
            state.failures[head] = (tried + 1, min(2**tried, MOST_SKIPPED))
    registers = {
        register: state.registers[register] for register in run.live(head) if register in state.registers
    }
    state.loops[head] = Seen(key, registers, dict(state.parameters))


def _try(run: WarpClassRun, state: State, head: int, seen: Seen) -> bool:
    """Whether iterations were gone over."""
    space, mask = run.space, state.paths.mask
    steps = _steps(run, state, head, seen)
    if not steps:
        return False
    outer = [dict(phase.conditions) for phase in space.phases]
    symbol = len(state.piece.box) + len(space.phases)
    phase = Phase(symbol)
    body = state.copy()
    body.loops, body.instructions, body.inside = {}, 0, run.loops[head]
    for register, step in steps.items():
        body.registers[register] = _moved(state.read(register), step, ((symbol, 1),), 0, mask)
    body.parameters = {
        key: value if _same(value, seen.parameters.get(key), mask) else None
        for key, value in state.parameters.items()
    }
    kept = {key: value for key, value in body.parameters.items() if value is not None}
    space.phases.append(phase)
    try:
        if not run.go_on(body, until=head) or body.key() != seen.key:
            raise NoPhase
        for register in run.live(head):
            if register not in body.registers:
                continue
            wanted = state.read(register)
            if register in steps:
                wanted = _moved(wanted, steps[register], ((symbol, 1),), 1, mask)
            if not _equal(body.read(register), wanted, mask):
                raise NoPhase
        if not all(_same(body.parameters[key], value, mask) for key, value in kept.items()):
            raise NoPhase
    except (NoPhase, Refusal):  # what cannot be done for many iterations may be possible for each
        for known, conditions in zip(space.phases, outer):
            known.conditions = conditions
        return False
    finally:
        space.phases.pop()
    if not phase.conditions:
        spans = [item.span for item in run.program.blocks[head].instructions[:1]]
        raise Refusal("".join(f"{span.path}:{span.line}: " for span in spans) + "the loop does not end")
    limit, constant = space.least(
        [space.bound(linear[:-1], number, -linear[-1][1]) for linear, number in phase.conditions.items()]
    )
    if not limit and constant < WORTHWHILE and not space.phases:
        return False
    _credit(run, state, body, ((symbol, limit, constant),))
    for register, step in steps.items():
        state.registers[register] = _moved(state.read(register), step, limit, constant + 1, mask)
    state.carry = body.carry
    for key, value in body.parameters.items():
        if value is not None and key not in kept:
            last = _last(value, symbol, limit, constant)
            old = state.parameters.get(key) or run.zero(value.type)
            state.parameters[key] = merged(mask, last, old)
    return True


def _steps(run: WarpClassRun, state: State, head: int, seen: Seen) -> Steps | None:
    """By how much each live register has moved, for those that have; ``None`` if not by constants."""
    mask = state.paths.mask
    steps: Steps = {}
    for register in run.live(head):
        now, before = state.registers.get(register), seen.registers.get(register)
        if now is before:
            continue
        if now is None or before is None:
            now, before = state.read(register), before or run.zero(register.type)
        if isinstance(now, Mask):
            if not _equal(now, before, mask):
                return None
            continue
        assert isinstance(now, Affine) and isinstance(before, Affine)
        if now.lanes.shifted or before.lanes.shifted:
            if not _equal(now, before, mask):
                return None
            continue
        bits = register.type.bits
        moved = add(now.lanes, scale(before.lanes, -1, bits), bits)
        if any(linear for _, linear, _ in moved.of(mask)):
            return None
        if register.type.is_float or register.type.lanes > 1:
            if not _equal(now, before, mask):
                return None
            continue
        step = [centred(base, bits) for base in moved.base]
        if any(step[lane if len(step) > 1 else 0] for lane in lanes_of(mask)):
            steps[register] = step
    return steps


def _moved(value: Value, step: Sequence[int], linear: Linear, constant: int, mask: int) -> Value:
    """The value plus step · (linear + constant), in the lanes of a mask."""
    assert isinstance(value, Affine)
    bits = value.type.bits
    groups: dict[int, int] = {}
    for lane in lanes_of(mask):
        own = step[lane if len(step) > 1 else 0]
        groups[own] = groups.get(own, 0) | 1 << lane
    way = gathered([(lanes, times(linear, own, bits), 0, (own * constant,)) for own, lanes in groups.items()])
    covered = merge(mask, way, Lanes((0,), ((FULL, (), 0),)))
    return Affine(merge(mask, add(value.lanes, covered, bits), value.lanes), value.type, value.space)


def _last(value: Value, symbol: int, limit: Linear, constant: int) -> Value:
    """What a value of the body is in the last iteration: the symbol is linear + constant."""
    if not isinstance(value, Affine):
        return value
    bits = value.type.bits
    results = []
    for mask, linear, shift in value.lanes.parts:
        own = dict(linear).get(symbol, 0)
        left = tuple((s, c) for s, c in linear if s != symbol)
        base = [b + own * constant for b in value.lanes.base]
        results.append((mask, plus(left, times(limit, own, 0), bits + shift), shift, base))
    return Affine(gathered(results), value.type, value.space)


def _same(a: Value | None, b: Value | None, mask: int) -> bool:
    return a is not None and b is not None and a.type.bits == b.type.bits and _equal(a, b, mask)


def _equal(a: Value, b: Value, mask: int) -> bool:
    """Whether two values are the same form in the lanes of a mask."""
    if isinstance(a, Mask):
        assert isinstance(b, Mask)
        return not (a.mask ^ b.mask) & mask
    assert isinstance(a, Affine) and isinstance(b, Affine)
    bits = a.type.bits
    for lanes, linear, shift in a.lanes.of(mask):
        width = bits + shift
        for other, right, other_shift in b.lanes.of(lanes):
            if shift != other_shift or times(linear, 1, width) != times(right, 1, width):
                return False
            for lane in lanes_of(other):
                one = a.lanes.base[lane if len(a.lanes.base) > 1 else 0]
                two = b.lanes.base[lane if len(b.lanes.base) > 1 else 0]
                if (one - two) % (1 << width):
                    return False
    return True


def _credit(run: WarpClassRun, state: State, body: State, region: Region) -> None:
    """What the body counted, for each point of the region; inside another phase that is left to its end."""
    credits = [Credit(region, body.counts, body.instructions)]
    credits += [Credit(region + inner.region, inner.counts, inner.instructions) for inner in body.credits]
    if run.space.phases:
        state.credits += credits
        return
    for credit in credits:
        points = state.piece.points(credit.region)
        for counter, number in credit.counts.items():
            run.totals[counter] += number * points
        state.spend(credit.instructions * state.piece.most(credit.region))
