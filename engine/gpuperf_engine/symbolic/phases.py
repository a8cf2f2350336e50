"""Phases: iterations of a loop that execute the same instructions, counted at once.

Between two arrivals at a loop header with the same lanes and stack, the registers that are live there have changed by a step. If
the steps are constant, the body is executed once more with multiples of them by a new symbol k: outcomes that depend on k are fixed
to those at k = 0, with a condition (``affine.space``). If the registers change by the same step again, then, by induction over k,
all iterations up to the first that violates a condition are equal. Their number K is affine, or bounded from below by an affine
form. Their counts are added over the region 0 ≤ k < K, and the registers of the running lanes alone advance by K steps.
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

#: after failed attempts at a loop, the iterations until the next one double, up to this many
MOST_SKIPPED = 1 << 10
#: the minimum number of iterations of a phase
WORTHWHILE = 4

Steps = dict[Register, Sequence[int]]


def arrive(run: WarpClassRun, state: State, head: int) -> None:
    """The lanes reach a loop header: skip the iterations that equal the last one, if any."""
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
    """Try a phase. Returns whether iterations were skipped."""
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
    constant_parameters = {key: value for key, value in body.parameters.items() if value is not None}
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
        if not all(_same(body.parameters[key], value, mask) for key, value in constant_parameters.items()):
            raise NoPhase
    except (NoPhase, Refusal):  # single iterations may still be possible
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
        if value is not None and key not in constant_parameters:
            last = _last(value, symbol, limit, constant)
            old = state.parameters.get(key) or run.zero(value.type)
            state.parameters[key] = merged(mask, last, old)
    return True


def _steps(run: WarpClassRun, state: State, head: int, seen: Seen) -> Steps | None:
    """The steps of the live registers that have changed; ``None`` unless these are constant."""
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
    distance = gathered(
        [(lanes, times(linear, own, bits), 0, (own * constant,)) for own, lanes in groups.items()]
    )
    covered = merge(mask, distance, Lanes((0,), ((FULL, (), 0),)))
    return Affine(merge(mask, add(value.lanes, covered, bits), value.lanes), value.type, value.space)


def _last(value: Value, symbol: int, limit: Linear, constant: int) -> Value:
    """A value of the body in the last iteration, in which the symbol is linear + constant."""
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
    """Add the counts of the body for each point of the region; inside another phase, at the end of that phase."""
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
