"""Runtime of generated code: paths of a warp that wait for other lanes, at exchanges and barriers, and the choice of the path to run.

Written in the subset of ``compile_python`` and compiled, never run as Python. Python executes the operations whose lanes are at
several instructions.
"""

from __future__ import annotations

from ...simt.stack import SLICE_SHIFT, YIELD_THRESHOLD
from ...simt.stack_entries import PENDING, WAIT
from ..ir.abi import Context, Cta, State
from ..ir.codes import (
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    RETURN_CODE,
    SYNC_CODE,
    Event,
    Reason,
    Status,
    Wait,
    YieldBits,
)
from .intrinsics import call, copy, trailing_zeros
from .stack_entries import (
    activate,
    arrived,
    choose,
    entry_at,
    is_area,
    let_leave,
    look,
    opens,
    owner_of,
    pop,
    turn_round,
)


def waits_for(state: State, reason: int) -> int:
    """Count the paths that wait for ``reason``; if it is 0, those that wait for any, including paths whose lanes have all exited."""
    number = state.DEPTH
    waiting = 0
    while number:
        entry = entry_at(state, number)
        waits = entry.KIND & KIND == WAIT
        here = entry.KIND >> AREA_SHIFT == reason and entry.MASK & state.LIVE
        if waits and (reason == 0 or here):
            waiting += 1
        number -= 1
    return waiting


def switch_path(context: Context, state: State) -> int:
    """The running path yields to another path of the warp, if any can run."""
    depth = push_running(state)
    look(context, state)
    slices = state.SLICES + 1
    state.SLICES = slices
    if slices > YIELD_THRESHOLD:
        state.YIELDING |= YieldBits.YIELDS
        state.SLICE_SHIFT = SLICE_SHIFT
    group = owner_of(context, depth)
    while group and state.YIELDING & YieldBits.YIELDS:
        lanes = arrived(context, state, group)
        if lanes:
            let_leave(context, state, group, lanes)
            if state.PC == state.ID:
                pop(context, state)
            return 0
        group = owner_of(context, group)
    group = owner_of(context, depth)
    top = depth
    while 1:
        turn_round(state, group + 1, top, depth + 1)
        if group == 0:
            break
        top = group
        group = owner_of(context, group)
    look(context, state)
    activate(context, state, 0)
    return pop(context, state)


def complete(context: Context, cta: Cta, state: State) -> int:
    """Execute every ``.sync`` operation whose lanes have all arrived, and make the paths ready that no longer wait. Returns 0, or a
    status of ``proceed`` if Python must continue."""
    number = state.DEPTH
    completed = 0
    while number and completed == 0:
        entry = entry_at(state, number)
        if entry.KIND & KIND == WAIT and entry.KIND >> AREA_SHIFT >= Reason.EXCHANGE:
            rest = entry.MASK & state.LIVE
            while rest and completed == 0:
                member = state.MEMBERS[trailing_zeros(rest)]
                rest = rest & ~wanting(state, rest, member)
                if member:
                    completed = carry_out(context, cta, state, number, member)
        number -= 1
    number = state.DEPTH
    while number:
        entry = entry_at(state, number)
        if entry.KIND & KIND == WAIT and entry.KIND >> AREA_SHIFT >= Reason.EXCHANGE:
            lanes = entry.MASK & state.LIVE
            if lanes == wanting(state, lanes, 0):
                entry.PLACE = SYNC_CODE + entry.PLACE
                entry.KIND = PENDING
        number -= 1
    if completed == 0:
        complete_gathering(context, state)
    return completed


def wanting(state: State, lanes: int, member: int) -> int:
    """Return those of ``lanes`` that wait with member mask ``member`` (0: lanes whose operation is done)."""
    wanted = 0
    rest = lanes
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        if state.MEMBERS[lane] == member:
            wanted = wanted | 1 << lane
    return wanted


def carry_out(context: Context, cta: Cta, state: State, number: int, member: int) -> int:
    """Execute the operation at which an entry waits, for the lanes of a member mask, if all have arrived."""
    reason = entry_at(state, number).KIND
    block = entry_at(state, number).PLACE
    live = state.LIVE
    there = 0
    apart = 0
    other = state.DEPTH
    while other:
        entry = entry_at(state, other)
        if entry.KIND == reason:
            lanes = wanting(state, entry.MASK & live, member)
            if lanes and entry.PLACE != block:
                apart = 1
            there = there | lanes
        other -= 1
    if member & live & ~there:
        return 0
    if apart:
        state.EVENT = Event.CONVERGE
        state.DETAIL = number
        state.CULPRITS = member
        return Status.EVENT + 8
    pc = state.PC
    mask = state.MASK
    state.PC = CONVERGE_CODE + block
    state.MASK = there
    state.CONVERGING = 1
    status = call(context.WARP_CODE, context, cta, state)
    state.CONVERGING = 0
    if status != Status.EVENT or state.EVENT != Event.CONVERGED:
        return status + 8
    state.PC = pc
    state.MASK = mask
    while there:
        state.MEMBERS[trailing_zeros(there)] = 0
        there = there & (there - 1)
    return 0


def complete_gathering(context: Context, state: State) -> int:
    """Merge the paths at an aligned barrier into one, if they have all lanes that have not exited, at one barrier and in one group."""
    number = state.DEPTH
    first = 0
    there = 0
    while number:
        entry = entry_at(state, number)
        if entry.KIND == WAIT | Reason.ALIGNED << AREA_SHIFT:
            if first and entry.PLACE != entry_at(state, first).PLACE:
                return 0
            first = number
            there = there | entry.MASK
        number -= 1
    if first == 0 or state.LIVE & ~there:
        return 0
    look(context, state)
    depth = state.DEPTH
    number = first + 1
    while number <= depth:
        gathers = entry_at(state, number).KIND == WAIT | Reason.ALIGNED << AREA_SHIFT
        if gathers and owner_of(context, number) != owner_of(context, first):
            return 0
        number += 1
    number = first + 1
    last = first
    while number <= depth:
        entry = entry_at(state, number)
        if entry.KIND != WAIT | Reason.ALIGNED << AREA_SHIFT:
            last += 1
            copy(entry_at(state, last), entry, 16)
        number += 1
    state.DEPTH = last
    entry = entry_at(state, first)
    entry.PLACE = GATHER_CODE + entry.PLACE
    entry.MASK = there
    entry.KIND = PENDING
    return 0


def settle(context: Context, cta: Cta, state: State) -> int:
    """Handle an event of the running path. Returns 0 if the warp continues, 1 if its quantum expired, else status + 8, as
    ``proceed``."""
    event = state.EVENT
    stops = event == Event.PARK or event == Event.DIVERGENT_BARRIER
    if not stops and event != Event.CHOOSE and event != Event.EXITED and event != Event.SPIN:
        return Status.EVENT + 8
    # one entry more, at most
    if context.ENTRIES <= state.DEPTH:
        return Status.EVENT + 8
    over = 0
    if event == Event.SPIN:
        over = 1
        if state.PC >= EXIT_CODE:
            state.PC = state.ID
        if state.PC == state.ID:
            pop(context, state)
        if state.MASK:
            switch_path(context, state)
    elif event == Event.CHOOSE:
        choose(context, state)
    else:
        if stops:
            stop_here(state, event)
        return settle_waits(context, cta, state, stops)
    return settled(state, over)


def settle_waits(context: Context, cta: Cta, state: State, stops: int) -> int:
    """The part of ``settle`` after an arrival that may complete an operation, run again after Python executed an exchange;
    ``stops``: the running path begins to wait."""
    completed = complete(context, cta, state)
    if completed:
        state.STOPS = stops
        return completed
    if stops:
        choose(context, state)
    elif state.MASK == 0:
        pop(context, state)
    return settled(state, 0)


def settled(state: State, over: int) -> int:
    """The end of ``settle``; ``over``: the quantum expired."""
    state.WAITS = waits_for(state, 0)
    pc = state.PC
    whole = state.MASK == state.LIVE
    if whole and pc >= GATHER_CODE and pc < RETURN_CODE:
        state.BARRIER_LANES = state.HOLDS
        copy(state + State.BARRIER_ID, state + State.GATHERED, 12)
        state.HOLDS = 0
    if state.MASK == 0 and state.LIVE:
        if waits_for(state, Reason.CLUSTER):
            state.WAIT = Wait.CLUSTER
        elif waits_for(state, Reason.BARRIER):
            state.WAIT = Wait.BARRIER
        elif waits_for(state, Reason.ALIGNED):
            state.WAIT = Wait.ALIGNED
        else:
            state.EVENT = Event.BLOCKED
            return Status.EVENT + 8
        return Status.STOPPED + 8
    return over


def force_yield(context: Context, state: State) -> int:
    """When nothing else can continue, make the warp yield from now on. Returns whether other lanes can run then."""
    depth = state.DEPTH
    if state.YIELDING & YieldBits.YIELDS or context.ENTRIES <= depth:
        return 0
    if state.MASK:
        push_running(state)
    look(context, state)
    number = state.DEPTH
    helps = 0
    while number:
        if opens(state, number) and arrived(context, state, number):
            helps = 1
        number -= 1
    state.DEPTH = depth
    if helps:
        state.YIELDING |= YieldBits.YIELDS
        state.SLICE_SHIFT = SLICE_SHIFT
    return helps


def push_running(state: State) -> int:
    """Push the running path to the stack; returns the number of its entry."""
    depth = state.DEPTH + 1
    entry = entry_at(state, depth)
    entry.PLACE = state.PC
    entry.MASK = state.MASK
    entry.ID = state.ID
    entry.KIND = PENDING
    if is_area(state.AREA):
        entry.KIND = PENDING | state.AREA << AREA_SHIFT
    state.DEPTH = depth
    return depth


def stop_here(state: State, event: int) -> int:
    """Suspend the running path at an exchange, or at an aligned barrier."""
    pc = state.PC
    reason = state.DETAIL
    if event == Event.DIVERGENT_BARRIER:
        pc = pc - GATHER_CODE
        reason = Reason.ALIGNED
        state.HOLDS |= state.BARRIER_LANES
        # before all have arrived, other lanes may reach another barrier
        copy(state + State.GATHERED, state + State.BARRIER_ID, 12)
        kind = state.BARRIER_KIND << 8
        tell_lanes(state, state.MASK, state.BARRIER_WARPS << 16 | kind | state.BARRIER_ID)
    return push_waiting(state, pc, reason)


def tell_lanes(state: State, lanes: int, word: int) -> int:
    """Store a word for each of some lanes in ``MEMBERS``."""
    while lanes:
        state.MEMBERS[trailing_zeros(lanes)] = word
        lanes = lanes & (lanes - 1)
    return 0


def push_waiting(state: State, pc: int, reason: int) -> int:
    """Suspend the running path inside a block, for a ``Reason``; no path runs then."""
    entry = entry_at(state, push_running(state))
    entry.PLACE = pc
    entry.KIND = WAIT | reason << AREA_SHIFT
    state.MASK = 0
    return 0
