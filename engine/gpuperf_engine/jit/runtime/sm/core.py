"""The simulation of one SM: warps issue machine instructions, which wait for one another, for pipes and for memory.

Written in the subset of ``compile_python`` and compiled, never run as Python. All numbers of the machine are in the records of
``jit.ir.sm_records``. The time at which the result of an instruction is ready is computed when it issues, from the times at which the
units on its path are free. So the simulation advances from issue to issue and skips the clocks in between.
"""

from __future__ import annotations

from ...ir.sm_records import (
    AT_BIT,
    CAUSE_BIT,
    EITHER,
    END,
    FRACTION,
    NEVER,
    NONE,
    SUB_CORES,
    Cause,
    Change,
    Kind,
    Line,
    Mbarrier,
    Op,
    Program,
    Slot,
    Sm,
    Warp,
)
from ..intrinsics import expanded, fill, load16, load32, load64, separate, store64
from .asynchronous import sm_cluster, sm_gathered, sm_grid, sm_product, sm_together, sm_transfer
from .choice import sm_again, sm_choose, sm_latest, sm_turn, sm_youngest
from .fetch import sm_enter, sm_fetch
from .images import sm_image
from .memory import sm_collected, sm_forget, sm_memory
from .stalls import sm_behind, sm_event, sm_held, sm_mark, sm_position, sm_step, sm_waited
from .tensor import (
    sm_allocate,
    sm_deallocate,
    sm_fragment,
    sm_freed,
    sm_in_order,
    sm_multiply,
    sm_stored_tensor,
    sm_told_products,
)


def sm_start(sm: Sm, slot: Slot, at: int) -> int:
    """Start the next CTA in a slot."""
    number = sm.STARTED
    if number >= sm.CTAS:
        return 0
    sm.STARTED = number + 1
    if number and at < sm.LAST_START + sm.GAP:
        at = sm.LAST_START + sm.GAP
    sm.LAST_START = at
    program = Program(sm.PROGRAMS + load64(sm.CLASSES + 8 * number) * Program.BYTES)
    slot.PROGRAM = program
    slot.NUMBER = number
    slot.BEFORE = slot.SINCE
    slot.SINCE = at
    if number < sm.RESIDENT:
        slot.BEFORE = at
    slot.LIVE = sm.WARPS
    if sm.TOGETHER == 0:
        fill(slot.LINES, 0, program.LINES * Line.BYTES)
    fill(slot + Slot.ARRIVED, 0, 128)
    fill(slot + Slot.WARPGROUPS, 0, 64)
    fill(slot.MBARRIERS, 0, sm.MBARRIERS * Mbarrier.BYTES)
    slot.GATHERED = 0
    slot.PHASE = 0
    index = (slot - sm.SLOT) // Slot.BYTES
    count = 0
    while count < sm.WARPS:
        place = index * sm.WARPS + count
        part = place % sm.PARTS
        warp = Warp(sm.WARP + (part * sm.EACH + place // sm.PARTS) * Warp.BYTES)
        fill(warp, 0, Warp.BYTES)
        warp.STATE = 1
        warp.SLOT = slot
        warp.NUMBER = count
        warp.AGE = number * 64 + count
        warp.TURN = part * sm.ROW + place // sm.PARTS
        sm_youngest(sm, part, warp.TURN)
        warp.PLACE = load64(program.STREAMS + 8 * count)
        warp.SINCE = at
        # the turnaround includes the code fetch before the first instruction
        first = load32(warp.PLACE)
        if first != END:
            warp.LINE = Op(load64(sm.BLOCK + first * 16)).LINE
            sm_enter(sm, warp.LINE)
        sm_next(sm, warp, at, 0)
        sm_turn(sm, warp)
        count += 1
    sm_again(sm)
    return 0


def sm_wave(sm: Sm, now: int) -> int:
    """A wave of CTAs has ended. Once enough consecutive waves have taken the same time, and the backlog of memory has not grown, the
    remaining whole waves are not simulated."""
    took = now - sm.WAVE_ENDED
    sm.WAVE_ENDED = now
    behind = sm.PORT
    if behind < sm.L2:
        behind = sm.L2
    if behind < sm.DRAM:
        behind = sm.DRAM
    if behind < sm.ROWS:
        behind = sm.ROWS
    behind = (behind >> FRACTION) - now
    if behind < 0:
        behind = 0
    more = took - sm.WAVE_TOOK
    if more < 0:
        more = 0 - more
    if more * sm.ALIKE_PART > took or (behind - sm.WAVE_BEHIND) * sm.ALIKE_PART > took:
        sm.WAVES_ALIKE = 0
        sm.WAVE_FIRST = now
        sm.WAVE_TOOK = took
        sm.WAVE_BEHIND = behind
        return 0
    sm.WAVES_ALIKE += 1
    left = (sm.CTAS - sm.STARTED) // sm.RESIDENT * sm.RESIDENT
    if sm.WAVES_ALIKE == sm.ALIKE and left and sm.SKIPPED == 0:
        sm.SKIPPED = left
        sm.SKIPPED_CLOCKS = left // sm.RESIDENT * (now - sm.WAVE_FIRST) // sm.ALIKE
        rank = 0
        while rank < sm.GROUP:
            peer = Sm(sm.PEERS + rank * Sm.BYTES)
            peer.CTAS -= left
            rank += 1
    return 0


@separate
def sm_ended(sm: Sm, warp: Warp, now: int) -> int:
    """A warp has executed its last instruction."""
    warp.STATE = 0
    slot = Slot(warp.SLOT)
    slot.LIVE -= 1
    sm.RESIDED += now - slot.SINCE
    if sm.ENDED < now:
        sm.ENDED = now
    if slot.LIVE == 0:
        store64(sm.FINISHED + 8 * slot.NUMBER, now)
        store64(sm.PROGRESS + 8 * slot.NUMBER, sm.ISSUED)
        sm.DONE += 1
        program = slot.PROGRAM
        line = Line(slot.LINES)
        ends = line + program.LINES * Line.BYTES
        while line < ends and sm.TOGETHER == 0:
            if line.VALID:
                sm_forget(sm, line)
            line = Line(line + Line.BYTES)
        sm_freed(sm, slot, slot.COLUMNS, now)
        slot.ALLOCATIONS = 0
        sm_follow(sm, slot, now)
    else:
        barrier = 0
        while barrier < 16:
            if slot.ARRIVED[barrier] and slot.ARRIVED[barrier] >= slot.LIVE:
                sm_release(sm, slot, barrier, warp, now)
            barrier += 1
        sm_gathered(sm, slot, now)
    return 0


def sm_follow(sm: Sm, slot: Slot, now: int) -> int:
    """A CTA has ended: once all CTAs of its cluster have, start those of the next one."""
    first = Sm(sm.PEERS)
    offset = slot - sm.SLOT
    rank = 0
    while rank < sm.GROUP:
        peer = Sm(sm.PEERS + rank * Sm.BYTES)
        if Slot(peer.SLOT + offset).LIVE:
            sm_gathered(sm, slot, now)
            return 0
        rank += 1
    done = first.DONE
    if done % sm.RESIDENT == 0:
        sm_wave(first, now)
    rank = 0
    while rank < sm.GROUP:
        peer = Sm(sm.PEERS + rank * Sm.BYTES)
        sm_start(peer, Slot(peer.SLOT + offset), now + sm.TURNAROUND)
        rank += 1
    return 0


@expanded
def sm_next(sm: Sm, warp: Warp, soonest: int, why: int) -> int:
    """Advance a warp to its next instruction; ``soonest``: the earliest time, and ``why`` it is not earlier, if no operand is
    ready only then. Returns 0 after the last instruction."""
    at = soonest << AT_BIT
    op = warp.OP
    if op == warp.ENDS:
        number = load32(warp.PLACE)
        if number == END:
            return 0
        warp.PLACE += 4
        block = sm.BLOCK + number * 16
        op = Op(load64(block))
        warp.OP = op
        warp.ENDS = load64(block + 8)
    if op.LINE:
        at = sm_fetch(sm, warp, op, at)
    registers = op.REGISTERS
    ends = registers + 2 * op.READS
    known = warp + Warp.READY
    while registers < ends:
        ready = load64(known + 8 * load16(registers))
        if ready > at:
            at = ready
        registers += 2
    ends = registers + 2 * op.WRITES
    ahead = op.LATENCY - 1
    if op.KIND:
        ahead = 0
    while registers < ends:
        ready = load64(known + 8 * load16(registers)) - (ahead << AT_BIT)
        if ready > at:
            at = ready
        registers += 2
    if op.KIND == Kind.WAIT:
        left = op.ARGUMENT & 255
        group = warp.COMMITTED
        if group > left:
            number = (group - left - 1) % 8
            ready = (warp.GROUPS[number] - (op.ARGUMENT >> 8) << AT_BIT) + warp.GROUP_BY[number]
            if ready > at:
                at = ready
    if op.KIND == Kind.TENSOR_WAIT and warp.STORED > at:
        at = warp.STORED
    if op.KIND == Kind.FENCE and warp.PERFORMED > at:
        at = warp.PERFORMED
    if op.KIND == Kind.MATRIX_WAIT:
        left = op.ARGUMENT
        group = warp.PRODUCED
        if group > left:
            number = (group - left - 1) % 8
            ready = warp.PRODUCTS[number] << AT_BIT | warp.PRODUCT_BY[number]
            if ready > at:
                at = ready
    warp.AT = at >> AT_BIT
    warp.WHY = at & (1 << AT_BIT) - 1
    if at == soonest << AT_BIT:
        warp.WHY = why
    return 1


@separate
def sm_release(sm: Sm, slot: Slot, barrier: int, last: Warp, now: int) -> int:
    """Resume the warps of a CTA that wait at a barrier; ``last`` arrived last."""
    slot.ARRIVED[barrier] = 0
    index = (slot - sm.SLOT) // Slot.BYTES
    until = now + sm.LATENCY_BARRIER
    count = 0
    clocks = 0
    times = 0
    at = Op(0)
    while count < sm.WARPS:
        place = index * sm.WARPS + count
        warp = Warp(sm.WARP + (place % sm.PARTS * sm.EACH + place // sm.PARTS) * Warp.BYTES)
        if warp.STATE == barrier + 2:
            warp.STATE = 1
            if warp.AT < until:
                warp.AT = until
            sm_turn(sm, warp)
            if now > warp.SINCE:
                clocks += now - warp.SINCE
                times += 1
                at = warp.HELD
                if until >= sm.WINDOW_FROM:
                    sm_event(sm, 1, 0, warp, at, warp.SINCE, now, now, Cause.BARRIER << CAUSE_BIT)
                warp.SINCE = now
            sm_held(sm, warp, Cause.BARRIER << CAUSE_BIT | sm_position(sm, warp.HELD), until)
        count += 1
    if times:
        sm_behind(sm, at, last, now, clocks, times)
    sm_again(sm)
    return 0


def sm_read(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """When a sub-partition executes an instruction. Each of its two register banks reads one register per clock. An instruction of
    fixed latency waits, and all behind it, until its reads fit into the next ``WINDOW`` clocks; others read when they can."""
    reads = op.PORTS
    if sm.LAST[part] == warp:
        reads = op.REUSED
    even = reads & 15
    odd = reads >> 4
    at = now
    window = op.WINDOW
    if window:
        if even and sm.EVEN[part] + even - window > at:
            at = sm.EVEN[part] + even - window
        if odd and sm.ODD[part] + odd - window > at:
            at = sm.ODD[part] + odd - window
    sm.EVEN[part] = sm_latest(sm.EVEN[part], at) + even
    sm.ODD[part] = sm_latest(sm.ODD[part], at) + odd
    sm.FREE[part] = at + 1
    sm.LAST[part] = warp
    sm.YIELDED[part] = op.YIELDS
    return at


def sm_noted(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """Count an instruction, and record what its warp waited for."""
    sm.ISSUED += 1
    op.ISSUED += 1
    if warp.SINCE < now:
        sm_waited(sm, part, warp, op, now)
    if sm.TRAILS:
        sm_step(sm, warp, op, now)
    if now >= sm.WINDOW_FROM:
        sm_event(sm, 0, part, warp, op, warp.SINCE, warp.AT, now, warp.WHY)
    sm_mark(sm, part, now)
    warp.SINCE = now + 1
    return 0


def sm_pipe(sm: Sm, part: int, op: Op) -> int:
    """The address of the time until which an instruction's pipe is busy; of two possible pipes, of the one that is free first."""
    pipes = sm + Sm.PIPES + part * 128
    pipe = pipes + 8 * op.PIPE
    if op.OTHER != NONE and load64(pipes + 8 * op.OTHER) < load64(pipe):
        pipe = pipes + 8 * op.OTHER
    return pipe


def sm_either(sm: Sm, part: int) -> int:
    """Record when one of the two pipes for single precision is free."""
    pipes = sm + Sm.PIPES + part * 128
    one = load64(pipes + 8 * sm.ONE)
    other = load64(pipes + 8 * sm.TWO)
    store64(pipes + 8 * EITHER, one if one < other else other)
    return 0


@separate
def sm_common(sm: Sm, op: Op, now: int) -> int:
    """When a unit that all sub-partitions share starts an instruction."""
    start = sm.COMMON[op.PIPE]
    if start < now:
        start = now
    sm.COMMON[op.PIPE] = start + op.BUSY
    return start


@separate
def sm_committed(warp: Warp) -> int:
    """Commit the copies of a warp since the last group as a group."""
    number = warp.COMMITTED % 8
    warp.GROUPS[number] = warp.COPIED
    warp.GROUP_BY[number] = Cause.GROUP << CAUSE_BIT | warp.COPIED_BY
    warp.COMMITTED += 1
    return 0


def sm_written(warp: Warp, op: Op, ready: int) -> int:
    """Record when the registers that an instruction writes are ready, and the instruction they wait for."""
    registers = op.REGISTERS + 2 * op.READS
    ends = registers + 2 * op.WRITES
    target = warp + Warp.READY
    while registers < ends:
        store64(target + 8 * load16(registers), ready)
        registers += 2
    return 0


def sm_barrier(sm: Sm, warp: Warp, named: int, waits: int, now: int) -> int:
    """A warp arrives at a barrier, ``named`` by its number plus 16 times the number of warps, and waits there unless the instruction
    only arrives."""
    slot = Slot(warp.SLOT)
    barrier = named & 15
    expected = named >> 4
    if expected == 0:
        expected = slot.LIVE
    slot.ARRIVED[barrier] += 1
    if waits:
        warp.STATE = barrier + 2
    if slot.ARRIVED[barrier] >= expected:
        sm_release(sm, slot, barrier, warp, now)
    return 0


@separate
def sm_others(sm: Sm, warp: Warp, op: Op, now: int) -> int:
    """Effects of an instruction on other warps: its warp waits for them, or resumes them."""
    warp.HELD = op
    kind = op.KIND
    named = op.ARGUMENT
    if kind == Kind.NAMED_BARRIER or kind == Kind.NAMED_ARRIVE:
        named = warp.WANTED
        warp.WANTED = 0
        if named == END:
            return 0
    if op.CHANGE & Change.NO_BARRIER:
        return 0
    if kind == Kind.BARRIER or kind == Kind.NAMED_BARRIER:
        sm_barrier(sm, warp, named, 1, now)
    elif kind == Kind.ARRIVE or kind == Kind.NAMED_ARRIVE:
        sm_barrier(sm, warp, named, 0, now)
    elif kind == Kind.ALLOCATE and warp.WANTED:
        warp.STATE = 41
    elif kind == Kind.TEST and warp.TESTS:
        warp.STATE = 63 + warp.TESTS
        warp.TESTS = 0
    elif kind == Kind.MATRIX_ARRIVE:
        sm_together(sm, warp, now)
    elif kind == Kind.CLUSTER_ARRIVE or kind == Kind.CLUSTER_WAIT:
        sm_cluster(sm, warp, kind, now)
    elif kind == Kind.GRID_WAIT:
        sm_grid(sm, warp, now)
    return 0


@separate
def sm_tensor(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """Execute a ``tcgen05`` instruction: returns when its result is ready."""
    kind = op.KIND
    if kind == Kind.TENSOR:
        sm_multiply(sm, warp, op, now)
    elif kind == Kind.TENSOR_COPY:
        sm_in_order(sm, warp, op, 0, op.ARGUMENT >> 8, 0, now)
    elif kind == Kind.TENSOR_COMMIT:
        sm_told_products(sm, warp, op, now)
    elif kind == Kind.TENSOR_LOAD:
        return sm_fragment(sm, part, op.ARGUMENT, now) + op.LATENCY
    elif kind == Kind.TENSOR_STORE:
        sm_stored_tensor(sm, part, warp, op, now)
    elif kind == Kind.ALLOCATE:
        sm_allocate(sm, warp, op)
    elif kind == Kind.DEALLOCATE:
        sm_deallocate(sm, warp, now)
    return now + op.LATENCY


@expanded
def sm_issue(sm: Sm, part: int) -> int:
    """Issue the instruction of the warp chosen for a sub-partition."""
    warp = Warp(sm.NEXT[part])
    op = warp.OP
    kind = op.KIND
    now = sm_read(sm, part, warp, op, sm.NEXT_AT[part])
    sm_noted(sm, part, warp, op, now)
    own = sm_position(sm, op)
    pipe = sm_pipe(sm, part, op)
    until = now + op.BUSY
    ready = now + op.LATENCY
    if kind >= Kind.SHARED:
        sm.LATE_BY = 0
        ready = sm_memory(sm, part, warp, op, now)
        by = sm.LATE_BY
        if by:
            own = by
    elif kind == Kind.MATRIX:
        # the warp goes on, and so do others: the tensor cores have a queue
        sm_product(sm, part, warp, op, now)
        until = now + 1
        ready = now + 1
    elif kind == Kind.TRANSFER:
        sm_transfer(sm, warp, now)
    elif kind == Kind.IMAGE:
        ready = sm_image(sm, warp, op, now)
        # each sub-partition holds one instruction that waits for the texture units
        until = sm.IMAGED
    elif kind >= Kind.TENSOR:
        ready = sm_tensor(sm, part, warp, op, now)
    elif kind == Kind.NAMED_BARRIER or kind == Kind.NAMED_ARRIVE:
        # before the next block is read
        warp.WANTED = load32(warp.PLACE)
        warp.PLACE += 4
    elif kind == Kind.COMMIT:
        sm_committed(warp)
    elif op.COMMON:
        # each sub-partition holds one instruction that waits for the shared unit, which serves the sub-partitions in turn
        until = sm_common(sm, op, now)
        ready = until + op.LATENCY
    elif op.COLLECT:
        # its registers are read before those of queued memory instructions
        sm_collected(sm, part, op, now)
    store64(pipe, until)
    sm_either(sm, part)
    if op.CHANGE & Change.HIDDEN:
        ready = now + 1
    sm_written(warp, op, ready << AT_BIT | own)
    warp.OP = Op(op + Op.BYTES)
    more = sm_next(sm, warp, now + op.PAUSE, Cause.PAUSE << CAUSE_BIT | sm_position(sm, op))
    if kind != Kind.PLAIN:
        sm_others(sm, warp, op, now)
    # after ``sm_others``, because the next CTA may start in the same slot
    if more == 0:
        sm_ended(sm, warp, now + 1)
    sm_choose(sm, part)
    # afterwards, as the choice would wait for what is written here; it leaves out the last warp
    sm_turn(sm, warp)
    return 0


def sm_sooner(one: int, other: int) -> int:
    """The earlier of two times."""
    return one if one < other else other


def sm_soonest(sm: Sm) -> int:
    """When an SM issues next, and below it in two bits the sub-partition, of several the first."""
    return sm_sooner(
        sm_sooner(sm.NEXT_AT[0] << 2, sm.NEXT_AT[1] << 2 | 1),
        sm_sooner(sm.NEXT_AT[2] << 2 | 2, sm.NEXT_AT[3] << 2 | 3),
    )


def sm_run(sm: Sm) -> int:
    """Run all CTAs of the SMs of a cluster, of which ``sm`` is the first; returns 1 if all have ended."""
    ends = sm + sm.GROUP * Sm.BYTES
    count = 0
    while count < sm.RESIDENT:
        peer = sm
        while peer < ends:
            sm_start(peer, Slot(peer.SLOT + count * Slot.BYTES), sm.TURNAROUND)
            peer = Sm(peer + Sm.BYTES)
        count += 1
    while 1:
        chosen = sm
        first = sm_soonest(sm)
        peer = Sm(sm + Sm.BYTES)
        while peer < ends:
            other = sm_soonest(peer)
            if other >> 2 < first >> 2:
                first = other
                chosen = peer
            peer = Sm(peer + Sm.BYTES)
        if first >> 2 >= NEVER:
            break
        sm_issue(chosen, first & SUB_CORES - 1)
    peer = sm
    while peer < ends:
        if peer.DONE != peer.CTAS:
            return 0
        peer = Sm(peer + Sm.BYTES)
    return 1
