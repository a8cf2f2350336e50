"""Memory of the SM that ``sm.core`` simulates: the lines in L1, and the path of memory instructions through the shared units.

Written in the subset of ``compile_python`` and compiled, never run as Python.
"""

from __future__ import annotations

from ...ir.sm_records import (
    AT_BIT,
    FRACTION,
    GROUPS,
    MOST_QUEUED,
    SEEN_BIT,
    SINGLE,
    TAG_SETS,
    Change,
    Kind,
    Line,
    Op,
    Signal,
    Slot,
    Sm,
    Warp,
)
from ..intrinsics import bits_count, load8, load32, load64, separate, store64
from .mbarriers import sm_told
from .stalls import sm_event, sm_position


def sm_forget(sm: Sm, line: Line) -> int:
    """Remove a line from those in L1."""
    kept = sm.KEPT_AT
    if kept:
        sm.KEPT -= 1
        last = Line(load64(kept + 8 * sm.KEPT))
        store64(kept + 8 * line.OLDER, last)
        last.OLDER = line.OLDER
        return 0
    newer = Line(line.NEWER)
    older = Line(line.OLDER)
    if newer:
        newer.OLDER = older
    else:
        sm.NEWEST = older
    if older:
        older.NEWER = newer
    else:
        sm.OLDEST = newer
    line.NEWER = 0
    line.OLDER = 0
    sm.KEPT -= 1
    return 0


def sm_draw(sm: Sm, line: Line) -> int:
    """Insert a line in L1, in the place of a random one if L1 is full."""
    kept = sm.KEPT_AT
    place = sm.KEPT
    if place < sm.L1_LINES:
        sm.KEPT = place + 1
    else:
        # Knuth's MMIX generator; its upper bits are the random ones
        sm.DRAWN = sm.DRAWN * 6364136223846793005 + 1442695040888963407
        place = (sm.DRAWN >> 33 & 0x7FFFFFFF) % sm.L1_LINES
        Line(load64(kept + 8 * place)).VALID = 0
    store64(kept + 8 * place, line)
    line.OLDER = place
    return 0


def sm_keep(sm: Sm, line: Line) -> int:
    """Insert a line as the most recently used one in L1; the least recently used one, or a random one, is evicted if L1 is full."""
    if sm.KEPT_AT:
        return sm_draw(sm, line)
    newest = sm.NEWEST
    line.OLDER = newest
    line.NEWER = 0
    if newest:
        newest.NEWER = line
    else:
        sm.OLDEST = line
    sm.NEWEST = line
    sm.KEPT += 1
    if sm.KEPT > sm.L1_LINES:
        victim = sm.OLDEST
        sm_forget(sm, victim)
        victim.VALID = 0
    return 0


def sm_below(sm: Sm, now: int, sectors: int, far: int) -> int:
    """The queueing delay of sectors that L1 reads or writes, beyond the latency: the largest of the delays of the port, L2 and DRAM
    (``far``). L2 and DRAM may be used ahead of the SM's share by ``LEAD``, L2 by ``L2_AHEAD`` at most."""
    at = now << FRACTION
    port = sm.PORT
    if port < at:
        port = at
    port += sectors * sm.PORT_COST
    sm.PORT = port
    late = port - at
    level = sm.L2
    if level < at:
        level = at
    level += sectors * sm.L2_COST
    sm.L2 = level
    sm.L2_SECTORS += sectors
    ahead = sm.LEAD
    if ahead > sm.L2_AHEAD:
        ahead = sm.L2_AHEAD
    if level - at - ahead > late:
        late = level - at - ahead
    if far:
        level = sm.DRAM
        if level < at:
            level = at
        level += sectors * sm.DRAM_COST
        sm.DRAM = level
        sm.DRAM_SECTORS += sectors
        if level - at - sm.LEAD > late:
            late = level - at - sm.LEAD
    return late >> FRACTION


def sm_opened(sm: Sm, slot: Slot, number: int, times: int, now: int) -> int:
    """The delay until the DRAM row of a line is open. Opening a row, ``times`` times, takes time; accesses that follow soon use the
    open row. The cost of rows that CTAs on other SMs access too is shared among the SMs."""
    program = slot.PROGRAM
    first = Line(slot.LINES + load32(program.ROWS + 4 * number) * Line.BYTES)
    open_until = first.OPEN
    first.OPEN = now + sm.ROW_OPEN
    if open_until > now:
        return 0
    part = load64(sm.SHARES + 16 * GROUPS + 8 * load8(program.GROUPS + number))
    cost = sm.ROW_COST * times * part >> 16
    at = now << FRACTION
    level = sm.ROWS
    if level < at:
        level = at
    level += cost
    sm.ROWS = level
    sm.ROW_BUSY += cost
    if level - at > sm.LEAD:
        return level - at - sm.LEAD >> FRACTION
    return 0


def sm_lead(sm: Sm, slot: Slot, start: int) -> int:
    """Set ``LEAD``, the clocks by which the SM may be ahead of other SMs. SMs that start in step queue once. After that they are
    staggered, so the bursts of later CTAs do not collide as long as the demand of all SMs fits into the time of one CTA: the SM may
    be ahead by the time since the previous CTA in the slot, at most by what that one took. Where DRAM alternates between reads and
    writes, loads wait much longer than these queues predict: there, SMs count as in step whenever a CTA starts, and the lead is half
    the time since then."""
    most = start - slot.BEFORE
    if slot.SINCE > slot.BEFORE and most > slot.SINCE - slot.BEFORE:
        most = slot.SINCE - slot.BEFORE
    half = start - slot.SINCE
    if half > most:
        half = most
    sm.LEAD = most * (256 - sm.MIXED) + (half * sm.MIXED >> 1)
    return 0


def sm_fetched(sectors: int, size: int) -> int:
    """The sectors that L2 reads from DRAM for ``sectors``: all of each aligned group of ``size``."""
    if size >= 4 and sectors:
        return 15
    if size == 2:
        return sectors | (sectors & 5) << 1 | (sectors & 10) >> 1
    return sectors


def sm_lost(sm: Sm, line: Line) -> int:
    """Forget what the CTA has touched of a line if L2 has lost it: since the last access DRAM has moved as many sectors as L2
    holds. Only if that was of the same warp, as how far warps drift apart depends on more than is simulated."""
    known = line.SEEN
    line.SEEN = sm.DRAM_SECTORS & (1 << SEEN_BIT) - 1 | sm.ACCESSES << SEEN_BIT
    moved = sm.DRAM_SECTORS - known & (1 << SEEN_BIT) - 1
    if moved <= sm.L2_KEPT or line.TOUCHED == 0 or known >> SEEN_BIT != sm.ACCESSES:
        return 0
    if moved < sm.L2_LOST:
        left = sm.LOST_LEFT + ((moved - sm.L2_KEPT) << 16) // (sm.L2_LOST - sm.L2_KEPT)
        sm.LOST_LEFT = left & 65535
        if left < 65536:
            return 0
    line.TOUCHED = 0
    line.FETCHED = 0
    line.DRAM = 0
    return 1


def sm_touch(sm: Sm, slot: Slot, number: int, line: Line, sectors: int, size: int) -> int:
    """The sectors that L2 reads from DRAM, in aligned groups of ``size``: those that the CTA touches for the first time, if the data
    of the line come from DRAM. Some of the other lines are marked as in flight: an SM in step with this one has just requested
    them from DRAM."""
    program = slot.PROGRAM
    if line.TOUCHED == 0:
        group = load8(program.GROUPS + number)
        sums = load64(sm.SUMS + 8 * group) + load64(sm.SHARES + 8 * group)
        if sums >= 65536:
            sums -= 65536
            line.DRAM = 1
        store64(sm.SUMS + 8 * group, sums)
        behind = load64(sm.SHARES + 8 * GROUPS + 8 * group)
        if behind and line.DRAM == 0:
            sums = load64(sm.SUMS + 8 * GROUPS + 8 * group) + behind
            if sums >= 65536:
                sums -= 65536
                line.DRAM = 2
            store64(sm.SUMS + 8 * GROUPS + 8 * group, sums)
    held = line.TOUCHED | line.FETCHED
    new = sm_fetched(sectors & ~held, size) & ~held
    line.TOUCHED |= sectors
    if size > 1:
        line.FETCHED |= new
    if line.DRAM == 1:
        return new
    return 0


def sm_farther(sm: Sm, slot: Slot, number: int) -> int:
    """By how many clocks the slice of L2 that holds a line is farther than the mean of all slices. The slice is a hash of the line and
    its CTA, which stands for the hash of the address. Latencies of slices are evenly spaced around the mean."""
    mixed = (number + slot.NUMBER * 40503) * 2654435761 & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 2246822519 & 0xFFFFFFFF
    most = sm.SLICES - 1
    if most < 1:
        return 0
    far = 2 * ((mixed ^ mixed >> 13) % sm.SLICES) - most
    if far < 0:
        return 0 - (0 - far) * sm.SPREAD // most
    return far * sm.SPREAD // most


def sm_busy(sm: Sm, slot: Slot, number: int, start: int) -> int:
    """By how many clocks a load of a line from DRAM waits longer because DRAM is busy: evenly distributed over the lines, up to
    ``DRAM_WAIT`` times the mean latency times the part of the time in which DRAM was busy so far. The mean latency includes the mean,
    half the longest, of these waits."""
    if sm.DRAM_WAIT == 0:
        return 0
    passed = start + sm.LATENCY_DRAM
    busy = sm.DRAM_SECTORS * sm.DRAM_COST >> FRACTION
    if busy > passed:
        busy = passed
    part = sm.DRAM_WAIT * busy // passed
    longest = sm.LATENCY_DRAM * part // (65536 - (part >> 1))
    mixed = (number * 40503 + slot.NUMBER) * 2246822519 & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 2654435761 & 0xFFFFFFFF
    return longest * (mixed >> 16) >> 16


def sm_loaded(sm: Sm, slot: Slot, op: Op, word: int, start: int) -> int:
    """When the sectors of a line that a load reads are ready."""
    number = word >> 4
    sectors = word & 15
    line = Line(slot.LINES + number * Line.BYTES)
    valid = line.VALID
    if op.PAST_L1:
        valid = 0
    missing = sectors & ~valid
    if valid and sm.NEWEST != line and sm.KEPT_AT == 0:
        sm_forget(sm, line)
        sm_keep(sm, line)
    ready = start + sm.LATENCY_L1
    if missing:
        if sm.READS:
            read = sm.READS + 8 * slot.NUMBER
            store64(read, load64(read) + bits_count(missing))
        if valid == 0 and op.PAST_L1 == 0:
            line.VALID = sectors
            sm_keep(sm, line)
        sm_lost(sm, line)
        first = missing & ~line.TOUCHED & ~line.FETCHED
        fetched = sm_touch(sm, slot, number, line, sectors, op.FETCH)
        far = bits_count(fetched & missing)
        beside = bits_count(fetched) - far
        near = bits_count(missing) - far
        # data from DRAM pass through their slice too
        farther = sm_farther(sm, slot, number)
        latency = sm.LATENCY_L2 + farther
        if first and line.DRAM == 2:
            latency = sm.LATENCY_DRAM + farther + sm_busy(sm, slot, number, start)
        late = 0
        if near:
            late = sm_below(sm, start, near, 0)
        if far:
            late = sm_below(sm, start, far, 1)
            sm.DRAM += beside * sm.DRAM_COST
            sm.DRAM_SECTORS += beside
            behind = sm_opened(sm, slot, number, 1, start)
            if behind > late:
                late = behind
            behind = sm_busy(sm, slot, number, start)
            if behind > late:
                late = behind
            latency = sm.LATENCY_DRAM + farther
        if start + latency + late > ready:
            ready = start + latency + late
        if missing & line.FETCHED and line.READY > ready:
            # what was fetched with other sectors is in L2 when they are
            ready = line.READY
        if op.PAST_L1 == 0:
            line.VALID = line.VALID | sectors
        if ready > line.READY:
            line.READY = ready
        return ready
    if line.READY > ready:
        ready = line.READY
    return ready


def sm_stored(sm: Sm, slot: Slot, word: int, start: int) -> int:
    """A store writes through to L2: its queueing delay. DRAM reads sectors that are written in part before it writes them."""
    number = word >> 4
    sectors = word & 15
    line = Line(slot.LINES + number * Line.BYTES)
    sm_lost(sm, line)
    touched = sm_touch(sm, slot, number, line, sectors, 1)
    far = bits_count(touched)
    near = bits_count(sectors) - far
    late = 0
    if near:
        late = sm_below(sm, start, near, 0)
    if far:
        late = sm_below(sm, start, far, 1)
        filled = bits_count(touched & load8(slot.PROGRAM.FILLED + number))
        sm.DRAM += filled * sm.DRAM_COST
        sm.DRAM_SECTORS += filled
        behind = sm_opened(sm, slot, number, 1 + (filled > 0), start)
        if behind > late:
            late = behind
    return late


def sm_local_stored(sm: Sm, slot: Slot, word: int, start: int) -> int:
    """A store to local memory writes through to L2, and stays in L1."""
    line = Line(slot.LINES + (word >> 4) * Line.BYTES)
    held = line.VALID
    if held and sm.KEPT_AT == 0:
        sm_forget(sm, line)
        held = 0
    if held == 0:
        sm_keep(sm, line)
    line.VALID |= word & 15
    line.TOUCHED = 15
    sm_below(sm, start, bits_count(word & 15), 0)
    return 0


@separate
def sm_collected(sm: Sm, part: int, op: Op, now: int) -> int:
    """When the queue of a sub-partition begins to read the registers of an instruction."""
    start = sm.ADDRESS[part]
    if start < now:
        start = now
    sm.ADDRESS[part] = start + op.COLLECT
    return start


def sm_queued(sm: Sm, part: int, op: Op, cost: int, now: int) -> int:
    """When the LSU starts an instruction, which occupies it for ``cost`` clocks."""
    start = sm_collected(sm, part, op, now)
    if sm.POOL:
        return sm_pooled(sm, part, op, cost, start)
    if start < sm.LSU:
        start = sm.LSU
    sm.LSU = start + cost
    sm_pushed(sm, part, start)
    return start


def sm_pushed(sm: Sm, part: int, free: int) -> int:
    """Record when the place of an instruction in the memory queue of a sub-partition is free again."""
    queues = sm + Sm.QUEUES + part * 8 * MOST_QUEUED
    number = sm.PUSHED[part]
    place = number % sm.QUEUE
    store64(queues + 8 * place, free)
    sm.PUSHED[part] = number + 1
    place += 1
    if place == sm.QUEUE:
        place = 0
    # those of the first instructions are 0
    sm.ROOM[part] = load64(queues + 8 * place)
    return 0


def sm_pooled(sm: Sm, part: int, op: Op, cost: int, start: int) -> int:
    """As ``sm_queued``, for an instruction whose registers are read from ``start`` on. The units that all sub-partitions share take
    one instruction in ``LSU_CLOCKS`` and hold ``POOL`` of them until they are answered; a sub-partition that fills them has one more
    on its way. Its wavefronts of shared memory take every other clock, and those of others the clocks in between."""
    if start < sm.HANDED:
        start = sm.HANDED
    room = sm.POOLS[sm.POOLED % sm.POOL]
    if start < room:
        start = room
    sm.HANDED = start + sm.LSU_CLOCKS
    number = sm.PUSHED[part]
    free = start
    older = number + sm.QUEUE - sm.POOL - 1
    if older >= 0 and sm.ANSWERED[part * MOST_QUEUED + older % MOST_QUEUED] > free:
        free = sm.ANSWERED[part * MOST_QUEUED + older % MOST_QUEUED]
    sm_pushed(sm, part, free)
    if sm.LSU < start:
        sm.LSU = start
    start = sm.LSU
    sm.LSU += cost
    if op.KIND == Kind.SHARED:
        if start < sm.STREAMED[part]:
            start = sm.STREAMED[part]
        sm.STREAMED[part] = start + 2 * cost
    answered = start + cost + sm.LATENCY_SHARED
    sm.POOLS[sm.POOLED % sm.POOL] = answered
    sm.POOLED += 1
    sm.ANSWERED[part * MOST_QUEUED + number % MOST_QUEUED] = answered
    return start


def sm_worked(sm: Sm, unit: int, warp: Warp, op: Op, start: int, before: int, after: int) -> int:
    """Record an event: L2 or DRAM worked for an instruction."""
    since = before >> FRACTION
    if since < start:
        since = start
    sm_event(sm, 2, unit, warp, op, since, since, after >> FRACTION, 0)
    return 0


def sm_told_state(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """As ``sm_told_by``, of an access to the state of an mbarrier in shared memory, which may have bank conflicts."""
    head = load32(warp.PLACE)
    warp.PLACE += 4
    waves = head & 255
    op.LANES += head >> 16 & 255
    start = now
    if head:
        start = sm_served(sm, part, warp, op, waves * sm.WAVE, 0, now)
    told = sm_told(sm, warp, op, start)
    own = start + op.LATENCY
    if waves:
        own += (waves - 1) * sm.WAVE
    if own < told:
        return told
    sm.LATE_BY = 0
    return own


def sm_told_by(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """When the result of an instruction on mbarriers is ready."""
    if op.ARGUMENT & Signal.STATE:
        return sm_told_state(sm, part, warp, op, now)
    start = sm_queued(sm, part, op, sm.LSU_CLOCKS, now)
    sm.LSU_BUSY += sm.LSU_CLOCKS
    op.MOVED += sm.LSU_CLOCKS
    return sm_told(sm, warp, op, start)


def sm_looked_up(sm: Sm, slot: Slot, op: Op, place: int, lines: int) -> int:
    """The clocks in which L1 looks up the tags of the lines whose words are at ``place``: in each one line of each of its sets. Each
    set has an equal part of the lines of a local access, which are consecutive."""
    kind = op.KIND
    if lines < 2 or kind == Kind.LOCAL_LOAD or kind == Kind.LOCAL_STORE:
        return (lines + sm.TAGS - 1) // sm.TAGS
    sets = slot.PROGRAM.SETS
    # the lines of each of the four sets in 16 bits
    counts = 0
    while lines:
        counts += 1 << 16 * load8(sets + (load32(place) >> 4))
        place += 4
        lines -= 1
    fullest = 0
    while counts:
        if counts & 65535 > fullest:
            fullest = counts & 65535
        counts = counts >> 16
    return (TAG_SETS * fullest + sm.TAGS - 1) // sm.TAGS


def sm_served(sm: Sm, part: int, warp: Warp, op: Op, passes: int, looked: int, now: int) -> int:
    """When the LSU starts an instruction, which occupies it for its wavefronts, and at least for the ``looked`` clocks in which
    the tags of its lines are looked up."""
    cost = passes
    if cost < looked:
        cost = looked
    if cost < sm.LSU_CLOCKS and sm.POOL == 0:
        cost = sm.LSU_CLOCKS
    start = sm_queued(sm, part, op, cost, now)
    sm.LSU_BUSY += cost
    if start + cost >= sm.WINDOW_FROM:
        sm_event(sm, 2, 0, warp, op, start, start, start + cost, 0)
    op.MOVED += cost
    return start


def sm_wanted(slot: Slot, op: Op, word: int) -> int:
    """The sectors of a line that an instruction requests. Counts those that were evicted from L1 since the CTA touched them."""
    if op.CHANGE & Change.SIDE_BY_SIDE:
        word = word | 15
    if op.KIND == Kind.STORE or op.PAST_L1:
        return word
    line = Line(slot.LINES + (word >> 4) * Line.BYTES)
    again = word & 15 & line.TOUCHED & ~line.VALID
    op.AGAIN += bits_count(again)
    if op.CHANGE & Change.NEAR:
        word = word & ~again
    return word


def sm_accessed(sm: Sm, slot: Slot, op: Op, word: int, start: int) -> int:
    """When an instruction has completed its access to the sectors of a line, if it waits for them."""
    kind = op.KIND
    if word & 15 == 0:
        return start
    if kind == Kind.LOAD or kind == Kind.COPY or kind == Kind.LOCAL_LOAD:
        return sm_loaded(sm, slot, op, word, start)
    if kind == Kind.LOCAL_STORE:
        sm_local_stored(sm, slot, word, start)
        return start
    late = sm_stored(sm, slot, word, start)
    if sm.TOGETHER and kind == Kind.STORE:
        line = Line(slot.LINES + (word >> 4) * Line.BYTES)
        if line.VALID == 0:
            sm_keep(sm, line)
        line.VALID = line.VALID | word & 15
    return start + sm.LATENCY_L2 + late


def sm_lines(sm: Sm, warp: Warp, op: Op, place: int, lines: int, start: int) -> int:
    """When an instruction has completed its accesses to all its lines, whose words are at ``place``."""
    slot = Slot(warp.SLOT)
    sm.ACCESSES = warp.NUMBER
    sm_lead(sm, slot, start)
    ready = start + sm.LATENCY_L1
    if op.KIND == Kind.ATOMIC:
        ready = start + sm.LATENCY_L2
    near = sm.L2
    far = sm.DRAM
    while lines:
        at = sm_accessed(sm, slot, op, sm_wanted(slot, op, load32(place)), start)
        if at > ready:
            ready = at
        place += 4
        lines -= 1
    if sm.L2 >> FRACTION >= sm.WINDOW_FROM and sm.L2 != near:
        sm_worked(sm, 1, warp, op, start, near, sm.L2)
    if sm.DRAM >> FRACTION >= sm.WINDOW_FROM and sm.DRAM != far:
        sm_worked(sm, 2, warp, op, start, far, sm.DRAM)
    return ready


def sm_partial(sm: Sm, partial: int, now: int) -> int:
    """Lines of which a store writes sectors only in part occupy L2 for longer."""
    at = now << FRACTION
    lines = partial & SINGLE - 1
    cost = sm.PARTIAL_COST
    if partial & SINGLE:
        cost = sm.SINGLE_COST
        sm.SINGLES += lines
    if lines and cost:
        if sm.L2 < at:
            sm.L2 = at
        sm.L2 += lines * cost
    return 0


@separate
def sm_memory(sm: Sm, part: int, warp: Warp, op: Op, now: int) -> int:
    """Execute a memory instruction: returns when its result is ready."""
    place = warp.PLACE
    kind = op.KIND
    if kind >= Kind.INIT:
        return sm_told_by(sm, part, warp, op, now)
    head = 65537
    if kind != Kind.SHUFFLE:
        head = load32(place)
        place += 4
    more = 0
    if kind == Kind.COPY:
        more = head & 255
        head = load32(place)
        place += 4
    lines = head >> 8 & 255
    warp.PLACE = place + 4 * lines
    if head == 0:
        return now + op.LATENCY
    waves = head & 255
    op.LINES += lines
    op.LANES += head >> 16 & 255
    op.TURNS += head >> 24 & SINGLE - 1
    change = op.CHANGE
    if change:
        words = (head >> 16 & 255) * op.ARGUMENT
        least = (words + 31) // 32
        if change & Change.NO_CONFLICTS and waves > least:
            waves = least
        if change & Change.SIDE_BY_SIDE and lines > least:
            place += 4 * (op.ISSUED * least % (lines - least + 1))
            lines = least
    # a copy through L1 takes one wavefront there, and those of shared memory read its banks and write them at once
    passes = waves
    if kind == Kind.COPY:
        passes = more
        if waves:
            if passes < waves:
                passes = waves
            passes += 1
    passes = passes * sm.WAVE
    looked = 0
    if lines * TAG_SETS > passes * sm.TAGS:
        looked = sm_looked_up(sm, Slot(warp.SLOT), op, place, lines)
    start = sm_served(sm, part, warp, op, passes, looked, now)
    # each wavefront after the first adds to the latency
    behind = (waves - 1) * sm.WAVE
    if sm.POOL and kind == Kind.SHARED:
        behind = behind * 2
    if kind == Kind.SHARED or kind == Kind.SHUFFLE:
        return start + op.LATENCY + behind
    if lines == 0 and kind != Kind.COPY:
        # a generic address in shared memory of the CTA, or of another CTA of its cluster
        if sm.GROUP == 1:
            return start + sm.LATENCY_L1 + behind
        return start + sm.LATENCY_CLUSTER + behind
    if kind == Kind.STORE:
        sm_partial(sm, head >> 24, start)
    ready = sm_lines(sm, warp, op, place, lines, start)
    if change & Change.HIDDEN:
        ready = start
    if kind != Kind.COPY:
        ready += behind
        if ready > warp.PERFORMED >> AT_BIT and kind <= Kind.ATOMIC:
            warp.PERFORMED = ready << AT_BIT | sm_position(sm, op)
        return ready
    if ready + more > warp.COPIED:
        warp.COPIED = ready + more
        warp.COPIED_BY = sm_position(sm, op)
    return now + 1
