"""Runtime of generated code: operations of the SIMT stack on the entries in a warp's state.

Written in the subset of ``compile_python`` and compiled, never run as Python. These are the operations of ``simt.stack.SimtStack``,
with the same results; entries are numbered from 1, bottom first, and 0 stands for the outermost group.
"""

from __future__ import annotations

from ...simt.stack_entries import CALL_FRAME, PENDING, RECONVERGE, WAIT
from ..ir.abi import Context, Entry, State
from ..ir.codes import AREA_SHIFT, EXIT_CODE, KIND, NO_AREA, Reason, YieldBits
from .intrinsics import copy, load32, load64, store32, store64
from .waiting_paths import waits_for


def entry_at(state: State, number: int) -> Entry:
    """Return the address of an entry of the stack."""
    return Entry(state + State.STACK + (number - 1) * State.ENTRY)


def kind_of(state: State, number: int) -> int:
    """The kind of an entry."""
    return entry_at(state, number).KIND & KIND


def opens(state: State, number: int) -> int:
    """Whether an entry opens a group."""
    kind = kind_of(state, number)
    return (kind == RECONVERGE) | (kind == CALL_FRAME)


def point_of(state: State, number: int) -> int:
    """Return the reconvergence point of a group, or the exit of its function."""
    entry = entry_at(state, number)
    if kind_of(state, number) == CALL_FRAME:
        return EXIT_CODE + (entry.KIND >> AREA_SHIFT ^ NO_AREA)
    return entry.PLACE


def owner_of(context: Context, number: int) -> int:
    """Return the group of an entry, as ``look`` recorded it."""
    return load32(context.SCRATCH + number * 4)


def look(context: Context, state: State) -> int:
    """Record the group of each entry: the innermost open one with the entry's reconvergence point."""
    owners = context.SCRATCH
    depth = state.DEPTH
    number = 1
    while number <= depth:
        identity = entry_at(state, number).ID
        group = innermost(context, state, number - 1)
        while group and point_of(state, group) != identity:
            group = load32(owners + group * 4)
        store32(owners + number * 4, group)
        number += 1
    return 0


def innermost(context: Context, state: State, number: int) -> int:
    """Return the innermost group that is open after an entry."""
    if number and not opens(state, number):
        return owner_of(context, number)
    return number


def turn_round(state: State, first: int, middle: int, end: int) -> int:
    """Rotate entries: those in [``middle``, ``end``) move before those in [``first``, ``middle``)."""
    turn_back(state, first, middle - 1)
    turn_back(state, middle, end - 1)
    turn_back(state, first, end - 1)
    return 0


def turn_back(state: State, first: int, last: int) -> int:
    """Reverse entries."""
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


def runs(state: State, first: int) -> int:
    """Whether any path from that entry on can run."""
    live = state.LIVE
    depth = state.DEPTH
    while first <= depth:
        if kind_of(state, first) == PENDING and entry_at(state, first).MASK & live:
            return 1
        first += 1
    return 0


def activate(context: Context, state: State, group: int) -> int:
    """Bring the topmost path of a group that can run to the top. Requires such a path, and the group at the top."""
    depth = state.DEPTH
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


def arrived(context: Context, state: State, group: int) -> int:
    """Return the lanes of a group that have arrived: those in none of its members."""
    lanes = entry_at(state, group).MASK & state.LIVE
    depth = state.DEPTH
    number = group + 1
    while number <= depth:
        if owner_of(context, number) == group:
            lanes = lanes & ~entry_at(state, number).MASK
        number += 1
    return lanes


def let_leave(context: Context, state: State, group: int, lanes: int) -> int:
    """Arrived lanes leave their group, and run."""
    entry = entry_at(state, group)
    area = entry.KIND >> AREA_SHIFT
    if is_area(area):
        # the other lanes need the caller's saved registers too
        kept = area
        area = fresh_area(context, state)
        copy(area_at(context, state, area), area_at(context, state, kept), context.AREA_BYTES)
    state.AREA = area
    entry.MASK &= ~lanes
    state.YIELDING |= YieldBits.LEFT_EARLY
    state.PC = entry.PLACE
    state.MASK = lanes
    state.ID = entry.ID
    return 0


def is_area(area: int) -> int:
    """Whether an entry has an area, by the upper bits of its kind."""
    return (area > 0) & (area < NO_AREA)


def area_at(context: Context, state: State, area: int) -> int:
    """Return the address of an area of a warp of the running CTA."""
    areas = context.CTA.AREAS + state.INDEX * context.AREAS_BYTES
    return areas + area * context.AREA_BYTES


def fresh_area(context: Context, state: State) -> int:
    """Allocate an area and return its number; there always is one (``codegen.recursion.CAPACITY``)."""
    area = state.FREE
    if area:
        state.FREE = load32(area_at(context, state, area))
    else:
        area = state.AREAS + 1
        state.AREAS = area
    return area


def leave_innermost(context: Context, state: State) -> int:
    """The arrived lanes of the innermost group that has any leave it, top members first; 0 if there are none."""
    depth = state.DEPTH
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
    if state.PC == state.ID:
        pop(context, state)
    return 1


def end_of(context: Context, group: int, depth: int) -> int:
    """Return the number after the last entry inside a group."""
    number = group + 1
    while number <= depth and owner_of(context, number) >= group:
        number += 1
    return number


def pop(context: Context, state: State) -> int:
    """Pop the next path, which becomes the running one."""
    while state.DEPTH:
        depth = state.DEPTH
        entry = entry_at(state, depth)
        lanes = entry.MASK & state.LIVE
        if lanes and entry.KIND & KIND == WAIT:
            return choose(context, state)
        state.DEPTH = depth - 1
        kind = entry.KIND
        area = kind >> AREA_SHIFT
        calls = state.CALLS
        if calls and kind & KIND == CALL_FRAME:
            state.CALLS = calls - 1
        if lanes == 0 and kind & KIND != WAIT and is_area(area):
            store32(area_at(context, state, area), state.FREE)
            state.FREE = area
        if lanes:
            state.AREA = area
            state.PC = entry.PLACE
            state.MASK = lanes
            state.ID = entry.ID
            if entry.PLACE != entry.ID:
                return 0
    state.MASK = 0
    return 0


def choose(context: Context, state: State) -> int:
    """Select the next path to run, from the innermost group outwards. The mask is 0 if there is none."""
    state.MASK = 0
    look(context, state)
    depth = state.DEPTH
    group = innermost(context, state, depth)
    while 1:
        if runs(state, group + 1):
            activate(context, state, group)
            return pop(context, state)
        if group == 0:
            break
        group = owner_of(context, group)
    if state.YIELDING & YieldBits.LEFT_EARLY == 0 and waits_for(state, Reason.ALIGNED):
        return 0
    return leave_innermost(context, state)
