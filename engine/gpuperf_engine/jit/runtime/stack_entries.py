"""Runtime of generated code: the paths of a warp whose lanes wait for others, have ended, or whose quantum is used up.



Written in the subset of ``compile_python`` and compiled, never run as Python. These are the moves of ``simt.stack.SimtStack`` on the
stack in a warp's state, with the same outcome; entries are numbered from 1, bottom first, and 0 stands for the outermost group.
What needs Python is left to it: calls inside one another, and operations whose lanes stand at several instructions.
"""

from __future__ import annotations

from ...simt.stack import SLICE_SHIFT, YIELD_THRESHOLD
from ...simt.stack_entries import CALL_FRAME, PENDING, RECONVERGE, WAIT
from ..ir.abi import (
    APART,
    AREA_SHIFT,
    CONVERGE_CODE,
    EXIT_CODE,
    GATHER_CODE,
    KIND,
    RETURN_CODE,
    SYNC_CODE,
    Context,
    Event,
    Reason,
    State,
    Status,
    YieldBits,
)
from .compile_python import call, copy, load32, load64, store32, store64, trailing_zeros


def entry_at(state: int, number: int) -> int:
    """Address of an entry of the stack."""
    return state + State.STACK + (number - 1) * State.ENTRY


def kind_of(state: int, number: int) -> int:
    """The kind of an entry."""
    return load32(entry_at(state, number) + 12) & KIND


def opens(state: int, number: int) -> int:
    """Whether an entry opens a group."""
    kind = kind_of(state, number)
    return (kind == RECONVERGE) | (kind == CALL_FRAME)


def point_of(state: int, number: int) -> int:
    """Where the lanes of a group converge: a reconvergence point, or the exit of a function."""
    entry = entry_at(state, number)
    if kind_of(state, number) == CALL_FRAME:
        return EXIT_CODE - 1 + (load32(entry + 12) >> AREA_SHIFT)
    return load32(entry)


def owner_of(context: int, number: int) -> int:
    """The group of an entry, as ``look`` found it."""
    return load32(load64(context + Context.SCRATCH) + number * 4)


def look(context: int, state: int) -> int:
    """Note the group of each entry: the innermost open one whose point is its own."""
    owners = load64(context + Context.SCRATCH)
    depth = load32(state + State.DEPTH)
    number = 1
    while number <= depth:
        identity = load32(entry_at(state, number) + 8)
        group = innermost(context, state, number - 1)
        while group and point_of(state, group) != identity:
            group = load32(owners + group * 4)
        store32(owners + number * 4, group)
        number += 1
    return 0


def innermost(context: int, state: int, number: int) -> int:
    """The innermost group that is open behind an entry."""
    if number and not opens(state, number):
        return owner_of(context, number)
    return number


def turn_round(state: int, first: int, middle: int, end: int) -> int:
    """Entries from ``middle`` to before ``end`` come before those from ``first`` to before ``middle``."""
    turn_back(state, first, middle - 1)
    turn_back(state, middle, end - 1)
    turn_back(state, first, end - 1)
    return 0


def turn_back(state: int, first: int, last: int) -> int:
    """Entries in the opposite order."""
    while first < last:
        one = entry_at(state, first)
        other = entry_at(state, last)
        low = load64(one)
        high = load64(one + 8)
        copy(one, other, 16)
        store64(other, low)
        store64(other + 8, high)
        first += 1
        last -= 1
    return 0


def runs(state: int, first: int) -> int:
    """Whether a path from that entry on can run."""
    live = load32(state + State.LIVE)
    depth = load32(state + State.DEPTH)
    while first <= depth:
        if kind_of(state, first) == PENDING and load32(entry_at(state, first) + 4) & live:
            return 1
        first += 1
    return 0


def activate(context: int, state: int, group: int) -> int:
    """Bring a path of a group that can run, the topmost, to the top; there is one, and the group is at the top."""
    depth = load32(state + State.DEPTH)
    while 1:
        top = depth
        while owner_of(context, top) != group:
            top -= 1
        if runs(state, top):
            if not opens(state, top):
                return 0
            group = top
        else:
            turn_round(state, group + 1, top, depth + 1)
            look(context, state)
    return 0


def arrived(context: int, state: int, group: int) -> int:
    """Lanes of a group that are in none of its members."""
    lanes = load32(entry_at(state, group) + 4) & load32(state + State.LIVE)
    depth = load32(state + State.DEPTH)
    number = group + 1
    while number <= depth:
        if owner_of(context, number) == group:
            lanes = lanes & ~load32(entry_at(state, number) + 4)
        number += 1
    return lanes


def let_leave(context: int, state: int, group: int, lanes: int) -> int:
    """Arrived lanes leave their group, and run."""
    entry = entry_at(state, group)
    store32(entry + 4, load32(entry + 4) & ~lanes)
    store32(state + State.YIELDING, load32(state + State.YIELDING) | YieldBits.LEFT_EARLY)
    store32(state + State.PC, load32(entry))
    store32(state + State.MASK, lanes)
    store32(state + State.ID, load32(entry + 8))
    return 0


def leave_innermost(context: int, state: int) -> int:
    """The arrived lanes of the innermost group that has any leave it, top members first; 0 if there are none."""
    depth = load32(state + State.DEPTH)
    inner = depth
    lanes = 0
    while inner:
        if opens(state, inner):
            lanes = arrived(context, state, inner)
            if lanes:
                break
        inner -= 1
    if inner == 0:
        return 0
    let_leave(context, state, inner, lanes)
    # in each group around it, the members above it go to the bottom
    end = end_of(context, inner, depth)
    group = owner_of(context, inner)
    while 1:
        stop = end_of(context, group, depth)
        turn_round(state, group + 1, end, stop)
        if group == 0:
            break
        end = stop
        group = owner_of(context, group)
    if load32(state + State.PC) == load32(state + State.ID):
        pop(context, state)
    return 1


def end_of(context: int, group: int, depth: int) -> int:
    """The number behind the last entry inside a group."""
    number = group + 1
    while number <= depth and owner_of(context, number) >= group:
        number += 1
    return number


def pop(context: int, state: int) -> int:
    """The next path on the stack runs."""
    while load32(state + State.DEPTH):
        depth = load32(state + State.DEPTH)
        entry = entry_at(state, depth)
        lanes = load32(entry + 4) & load32(state + State.LIVE)
        if lanes and load32(entry + 12) & KIND == WAIT:
            return choose(context, state)
        store32(state + State.DEPTH, depth - 1)
        if lanes:
            store32(state + State.PC, load32(entry))
            store32(state + State.MASK, lanes)
            store32(state + State.ID, load32(entry + 8))
            if load32(entry) != load32(entry + 8):
                return 0
    store32(state + State.MASK, 0)
    return 0


def choose(context: int, state: int) -> int:
    """No path runs: find the next, from the innermost group outwards. The mask is 0 if there is none."""
    store32(state + State.MASK, 0)
    look(context, state)
    depth = load32(state + State.DEPTH)
    group = innermost(context, state, depth)
    while 1:
        if runs(state, group + 1):
            activate(context, state, group)
            return pop(context, state)
        if group == 0:
            break
        group = owner_of(context, group)
    if load32(state + State.YIELDING) & YieldBits.LEFT_EARLY == 0 and waits_for(state, Reason.ALIGNED):
        return 0
    return leave_innermost(context, state)


def waits_for(state: int, reason: int) -> int:
    """How many paths wait for that; for anything, those of which no lane lives too, if it is 0."""
    number = load32(state + State.DEPTH)
    found = 0
    while number:
        entry = entry_at(state, number)
        waits = load32(entry + 12) & KIND == WAIT
        here = load32(entry + 12) >> AREA_SHIFT == reason and load32(entry + 4) & load32(state + State.LIVE)
        if waits and (reason == 0 or here):
            found += 1
        number -= 1
    return found


def switch_path(context: int, state: int) -> int:
    """The running path lets others of the warp go on, if any can."""
    depth = load32(state + State.DEPTH) + 1
    entry = entry_at(state, depth)
    store32(entry, load32(state + State.PC))
    store32(entry + 4, load32(state + State.MASK))
    store32(entry + 8, load32(state + State.ID))
    store32(entry + 12, PENDING)
    store32(state + State.DEPTH, depth)
    look(context, state)
    slices = load32(state + State.SLICES) + 1
    store32(state + State.SLICES, slices)
    if slices > YIELD_THRESHOLD:
        store32(state + State.YIELDING, load32(state + State.YIELDING) | YieldBits.YIELDS)
        store32(state + State.SLICE_SHIFT, SLICE_SHIFT)
    group = owner_of(context, depth)
    while group and load32(state + State.YIELDING) & YieldBits.YIELDS:
        lanes = arrived(context, state, group)
        if lanes:
            let_leave(context, state, group, lanes)
            if load32(state + State.PC) == load32(state + State.ID):
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


def complete(context: int, cta: int, state: int) -> int:
    """Carry out every ``.sync`` operation that has all its lanes, and let paths go on that wait for none any more. Gives 0, or what
    ``proceed`` returns if Python has to go on."""
    number = load32(state + State.DEPTH)
    found = 0
    while number and found == 0:
        entry = entry_at(state, number)
        if load32(entry + 12) & KIND == WAIT and load32(entry + 12) >> AREA_SHIFT >= Reason.EXCHANGE:
            rest = load32(entry + 4) & load32(state + State.LIVE)
            while rest and found == 0:
                member = load32(state + State.MEMBERS + trailing_zeros(rest) * 4)
                rest = rest & ~wanting(state, rest, member)
                if member:
                    found = carry_out(context, cta, state, number, member)
        number -= 1
    number = load32(state + State.DEPTH)
    while number:
        entry = entry_at(state, number)
        if load32(entry + 12) & KIND == WAIT and load32(entry + 12) >> AREA_SHIFT >= Reason.EXCHANGE:
            lanes = load32(entry + 4) & load32(state + State.LIVE)
            if lanes == wanting(state, lanes, 0):
                store32(entry, SYNC_CODE + load32(entry))
                store32(entry + 12, PENDING)
        number -= 1
    if found == 0:
        complete_gathering(context, state)
    return found


def wanting(state: int, lanes: int, member: int) -> int:
    """Those of some lanes that gave a member mask; 0 for those that have had their operation."""
    found = 0
    rest = lanes
    while rest:
        lane = trailing_zeros(rest)
        rest = rest & (rest - 1)
        if load32(state + State.MEMBERS + lane * 4) == member:
            found = found | 1 << lane
    return found


def carry_out(context: int, cta: int, state: int, number: int, member: int) -> int:
    """Carry out the operation at which an entry waits, for the lanes of a member mask, if all are there."""
    reason = load32(entry_at(state, number) + 12)
    block = load32(entry_at(state, number))
    live = load32(state + State.LIVE)
    there = 0
    apart = 0
    other = load32(state + State.DEPTH)
    while other:
        entry = entry_at(state, other)
        if load32(entry + 12) == reason:
            lanes = wanting(state, load32(entry + 4) & live, member)
            if lanes and load32(entry) != block:
                apart = 1
            there = there | lanes
        other -= 1
    if member & live & ~there:
        return 0
    if apart:
        return APART
    place = load32(state + State.PC)
    mask = load32(state + State.MASK)
    store32(state + State.PC, CONVERGE_CODE + block)
    store32(state + State.MASK, there)
    store32(state + State.CONVERGING, 1)
    status = call(load64(context + Context.WARP_CODE), context, cta, state)
    store32(state + State.CONVERGING, 0)
    if status != Status.EVENT or load32(state + State.EVENT) != Event.CONVERGED:
        return status + 8
    store32(state + State.PC, place)
    store32(state + State.MASK, mask)
    while there:
        store32(state + State.MEMBERS + trailing_zeros(there) * 4, 0)
        there = there & (there - 1)
    return 0


def complete_gathering(context: int, state: int) -> int:
    """Make one path of the paths at an aligned barrier, if they are all that live, at one barrier, in one group."""
    number = load32(state + State.DEPTH)
    first = 0
    there = 0
    while number:
        entry = entry_at(state, number)
        if load32(entry + 12) == WAIT | Reason.ALIGNED << AREA_SHIFT:
            if first and load32(entry) != load32(entry_at(state, first)):
                return 0
            first = number
            there = there | load32(entry + 4)
        number -= 1
    if first == 0 or load32(state + State.LIVE) & ~there:
        return 0
    look(context, state)
    depth = load32(state + State.DEPTH)
    number = first + 1
    while number <= depth:
        gathers = load32(entry_at(state, number) + 12) == WAIT | Reason.ALIGNED << AREA_SHIFT
        if gathers and owner_of(context, number) != owner_of(context, first):
            return 0
        number += 1
    number = first + 1
    last = first
    while number <= depth:
        entry = entry_at(state, number)
        if load32(entry + 12) != WAIT | Reason.ALIGNED << AREA_SHIFT:
            last += 1
            copy(entry_at(state, last), entry, 16)
        number += 1
    store32(state + State.DEPTH, last)
    entry = entry_at(state, first)
    store32(entry, GATHER_CODE + load32(entry))
    store32(entry + 4, there)
    store32(entry + 12, PENDING)
    return 0


def settle(context: int, cta: int, state: int) -> int:
    """What the paths of a warp do at an event: 0 if the warp goes on, 1 if its time slice is over, else status + 8, as ``proceed``."""
    event = load32(state + State.EVENT)
    stops = event == Event.PARK or event == Event.DIVERGENT_BARRIER
    if not stops and event != Event.CHOOSE and event != Event.EXITED and event != Event.SPIN:
        return Status.EVENT + 8
    # one entry more, at most
    if load64(context + Context.ENTRIES) <= load32(state + State.DEPTH):
        return Status.EVENT + 8
    over = 0
    if event == Event.SPIN:
        over = 1
        if load32(state + State.PC) >= EXIT_CODE:
            store32(state + State.PC, load32(state + State.ID))
        if load32(state + State.PC) == load32(state + State.ID):
            pop(context, state)
        if load32(state + State.MASK):
            switch_path(context, state)
    elif event == Event.CHOOSE:
        choose(context, state)
    else:
        if stops:
            stop_here(state, event)
        found = complete(context, cta, state)
        if found == APART:
            store32(state + State.EVENT, Event.CONVERGE)
            store32(state + State.DETAIL, stops)
            found = Status.EVENT + 8
        if found:
            return found
        if stops:
            choose(context, state)
        elif load32(state + State.MASK) == 0:
            pop(context, state)
    store32(state + State.WAITS, waits_for(state, 0))
    place = load32(state + State.PC)
    whole = load32(state + State.MASK) == load32(state + State.LIVE)
    if whole and place >= GATHER_CODE and place < RETURN_CODE:
        store32(state + State.BARRIER_LANES, load32(state + State.HOLDS))
        copy(state + State.BARRIER_ID, state + State.GATHERED, 12)
        store32(state + State.HOLDS, 0)
    if load32(state + State.MASK) == 0 and load32(state + State.LIVE):
        store32(state + State.EVENT, Event.BLOCKED)
        return Status.EVENT + 8
    return over


def stop_here(state: int, event: int) -> int:
    """The running path waits for others: at an exchange, or at an aligned barrier."""
    place = load32(state + State.PC)
    reason = load32(state + State.DETAIL)
    if event == Event.DIVERGENT_BARRIER:
        place = place - GATHER_CODE
        reason = Reason.ALIGNED
        store32(state + State.HOLDS, load32(state + State.HOLDS) | load32(state + State.BARRIER_LANES))
        # until all are there, other lanes may come to another barrier
        copy(state + State.GATHERED, state + State.BARRIER_ID, 12)
    depth = load32(state + State.DEPTH) + 1
    store32(state + State.DEPTH, depth)
    entry = entry_at(state, depth)
    store32(entry, place)
    store32(entry + 4, load32(state + State.MASK))
    store32(entry + 8, load32(state + State.ID))
    store32(entry + 12, WAIT | reason << AREA_SHIFT)
    store32(state + State.MASK, 0)
    return 0
