"""Runtime of generated code: vector clocks, and what happens before what.

``Race`` says how they lie in memory. The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are
warps, whose lanes are taken to be in order, and asynchronous copies. An agent's time passes where it releases something; the epoch of
an access is agent and time. What happened before the last barrier of all warps is known by one comparison with the base of a warp.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta, State
from ...ir.race_records import Race, RaceClock, RaceWarp
from ..intrinsics import load64


def race_me(record: Race, warp: int) -> RaceWarp:
    """The record of a warp of a CTA."""
    return RaceWarp(record.WARPS + warp * record.WARP)


def race_clock(record: Race, number: int) -> RaceClock:
    """A clock of a CTA."""
    return RaceClock(record + Race.CLOCKS + number * record.CLOCK_BYTES)


def race_more(record: Race) -> int:
    """Something is done asynchronously: from now on there are agents that are no warps, in all CTAs of the cluster."""
    if record.AGENTS == 128:
        return 0
    record.AGENTS = 128
    cluster = record.CTA.CLUSTER
    rank = 0
    while cluster and rank < cluster.SIZE:
        cluster.PEERS[rank].RACES.AGENTS = 128
        rank += 1
    return 0


def race_tick(record: Race) -> int:
    """Another time."""
    now = record.NOW + record.STEP
    if now > Race.LAST:
        # of a CTA that goes on for ever without a barrier of all its warps no more is checked
        now = Race.LAST
    record.NOW = now
    return now


def race_join(clock: RaceClock, known: RaceClock, agents: int, flip: int, put: int, keep: int) -> int:
    """A clock learns what another one knows of as many agents."""
    agent = 0
    while agent < agents:
        to = clock + agent * 4
        from_ = known + agent * 4
        if flip == 0 and load64(from_) == load64(to) and load64(from_ + 8) == load64(to + 8):
            # of most agents there is nothing new
            agent += 4
            continue
        time = ((known.TIMES[agent] ^ flip) | put) & keep
        old = clock.TIMES[agent]
        if time < old:
            time = old
        clock.TIMES[agent] = time
        agent += 1
    return 0


def race_join_clocks(record: Race, clock: RaceClock, known: RaceClock, turn: int) -> int:
    """A clock learns all that another one knows; ``turn``: the ranks of their CTAs, xor."""
    race_join_clock(record, clock, known, turn)
    if record.TWIN:
        race_join_clock(record, race_twin(record, clock), race_twin(record, known), turn)
    return 0


def race_join_clock(record: Race, clock: RaceClock, known: RaceClock, turn: int) -> int:
    """As ``race_join_clocks``, of one of twins. Warps of the own CTA have times of the common kind."""
    agents = record.AGENTS
    warps = agents
    if agents > 32:
        warps = 32
    rank = 0
    others = clock.TIMES[Race.OF_OTHERS]
    if turn == 0:
        race_join(clock, known, agents, 0, 0, -1)
        rank = 1
    while rank < record.STEP:
        to = RaceClock(clock + (rank ^ turn) * Race.PEER)
        from_ = RaceClock(known + rank * Race.PEER)
        if turn == 0:
            race_join(to, from_, agents, 0, 0, -1)
        else:
            if rank == 0:
                race_join(to, from_, warps, turn, Race.ASYNCHRONOUS, -1)
            elif rank == turn:
                race_join(to, from_, warps, turn, 0, Race.ASYNCHRONOUS - 1)
            else:
                race_join(to, from_, warps, turn, 0, -1)
            race_join(RaceClock(to + 32 * 4), RaceClock(from_ + 32 * 4), agents - 32, turn, 0, -1)
        rank += 1
    if record.SEGMENTS:
        # releases are counted, not timed, by the number that they have in all CTAs; and known where no other agents are but warps
        if known.TIMES[Race.OF_OTHERS] > others:
            others = known.TIMES[Race.OF_OTHERS]
        clock.TIMES[Race.OF_OTHERS] = others
    return 0


def race_release(record: Race, me: RaceWarp, clock: RaceClock, turn: int) -> int:
    """A warp releases what it knows to a clock; ``turn``: the rank of that clock's CTA xor the own one."""
    race_advance(record, me)
    race_join_clocks(record, clock, race_known(me), turn)
    return 0


def race_advance(record: Race, me: RaceWarp) -> int:
    """The clock of a warp has its own time, too; what it does from now on is later."""
    epoch = me.EPOCH
    base = (me.BASE >> 8) - record.STEP
    warps = record.AGENTS
    if warps > 32:
        warps = 32
    agent = 0
    while agent < warps:
        time = me.CLOCK[agent]
        if time < base:
            time = base
        me.CLOCK[agent] = time
        agent += 1
    me.CLOCK[epoch & 127] = epoch >> 8
    me.EPOCH = race_tick(record) << 8 | (epoch & 127)
    return 0


def race_proxy(cta: Cta, state: State) -> int:
    """``fence.proxy.async``: the async proxy sees what comes before. So it does where a warp finds that products or bulk copies are
    complete, which an implicit fence follows."""
    record = cta.RACES
    if record == 0 or record.TWIN == 0:
        return 0
    me = race_me(record, state.INDEX)
    race_advance(record, me)
    race_join_clock(record, race_twin(record, race_known(me)), race_known(me), 0)
    record.FENCED_PROXY = 1
    return 0


def race_acquire(record: Race, me: RaceWarp, warps: int, clock: RaceClock, turn: int) -> int:
    """A warp acquires what a clock knows; ``turn`` as in ``race_release``."""
    own = me.EPOCH & 127
    base = me.BASE >> 8
    step = record.STEP
    least = Race.LAST
    race_join_clocks(record, race_known(me), clock, turn)
    agent = 0
    while agent < warps:
        time = me.CLOCK[agent]
        if agent != own and time < least:
            least = time
        agent += 1
    if warps > 1 and least >= base:
        me.BASE = (least + step) << 8
    record.JOINED_PEER = 1
    return 0


def race_known(me: RaceWarp) -> RaceClock:
    """The clock of a warp."""
    return RaceClock(me + RaceWarp.CLOCK)


def race_twin(record: Race, clock: RaceClock) -> RaceClock:
    """What of a clock the async proxy sees."""
    return RaceClock(clock + record.TWIN)


def race_shared(cta: Cta) -> Race:
    """The record of the first CTA of the cluster, or of the CTA itself."""
    cluster = cta.CLUSTER
    if cluster:
        cta = cluster.PEERS[0]
    return cta.RACES


def race_fenced(record: Race, me: RaceWarp) -> RaceClock:
    """The clock of a warp at its last fence."""
    return RaceClock(me + RaceWarp.CLOCK + record.CLOCK_BYTES)


def race_epoch(context: Context, rank: int) -> int:
    """The epoch of what accesses memory now, the running warp or the copy that it makes, as memory of the CTA of a rank has it."""
    agent = context.RACE_AGENT
    if agent:
        return (agent & 4294967295) ^ (agent >> 32 ^ rank) << 8
    me = context.RACE_WARP
    turn = me.RECORD.RANK ^ rank
    if turn:
        return (me.EPOCH | Race.ASYNCHRONOUS << 8) ^ turn << 8
    return me.EPOCH


def race_asynchronous(context: Context, record: Race, agent: int, time: int) -> int:
    """What follows is done by an agent of a CTA, until ``RACE_AGENT`` is 0 again."""
    context.RACE_AGENT = record.RANK << 32 | (Race.ASYNCHRONOUS | time) << 8 | agent
    return 0


def race_happened_before(me: RaceWarp, epoch: int) -> int:
    """Whether what has an epoch comes before what the warp does now."""
    turn = me.TURN
    if turn:
        # the epoch is one in the memory of another CTA
        epoch = epoch ^ turn << 8
        if epoch & 127 < 32:
            epoch = epoch | Race.ASYNCHRONOUS << 8
            if epoch & me.MASK < 32:
                epoch = epoch ^ Race.ASYNCHRONOUS << 8
    agent = epoch & me.MASK
    if epoch < me.BASE or agent == me.EPOCH & 127:
        return 1
    return me.CLOCK[agent] >= epoch >> 8
