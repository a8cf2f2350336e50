"""Runtime of generated code: vector clocks and the happens-before order.

``Race`` describes their layout. The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are warps,
whose lanes are treated as one sequence, and asynchronous copies. The time of an agent advances when it releases; the epoch of an
access is its agent and time. One comparison with the base of a warp tells whether an access of a warp happened before the last
barrier of all warps.
"""

from __future__ import annotations

from ...ir.abi import Context, Cta, State
from ...ir.race_records import Race, RaceClock, RaceWarp
from ..intrinsics import load64


def race_me(record: Race, warp: int) -> RaceWarp:
    """The record of a warp of a CTA."""
    return RaceWarp(record.WARPS + warp * record.WARP)


def race_clock(record: Race, number: int) -> RaceClock:
    """A clock of a CTA, by its number."""
    return RaceClock(record + Race.CLOCKS + number * record.CLOCK_BYTES)


def race_more(record: Race) -> int:
    """An asynchronous operation starts: from now on there are agents other than warps, in all CTAs of the cluster."""
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
    """The next time of a CTA."""
    now = record.NOW + record.STEP
    if now > Race.LAST:
        # a CTA that runs without a barrier of all its warps for too long is no longer checked
        now = Race.LAST
    record.NOW = now
    return now


def race_join(clock: RaceClock, known: RaceClock, agents: int, flip: int, put: int, keep: int) -> int:
    """Join a clock into another one: each time becomes the later of both."""
    agent = 0
    while agent < agents:
        to = clock + agent * 4
        from_ = known + agent * 4
        if flip == 0 and load64(from_) == load64(to) and load64(from_ + 8) == load64(to + 8):
            # the times of most agents are equal
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
    """Join a clock into another one, with the clocks of the async proxy; ``turn``: the ranks of their CTAs, xor."""
    race_join_clock(record, clock, known, turn)
    if record.TWIN:
        race_join_clock(record, race_twin(record, clock), race_twin(record, known), turn)
    return 0


def race_join_clock(record: Race, clock: RaceClock, known: RaceClock, turn: int) -> int:
    """As ``race_join_clocks``, for one clock without its twin. Times of warps are marked ``ASYNCHRONOUS`` only in the clocks of other
    CTAs."""
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
        # times of this agent are numbers of releases, which are the same in all CTAs; they are not in the range of agents joined
        # above if the only agents are warps
        if known.TIMES[Race.OF_OTHERS] > others:
            others = known.TIMES[Race.OF_OTHERS]
        clock.TIMES[Race.OF_OTHERS] = others
    return 0


def race_release(record: Race, me: RaceWarp, clock: RaceClock, turn: int) -> int:
    """A warp releases its clock to another clock; ``turn``: the rank of the other clock's CTA xor the rank of its own CTA."""
    race_advance(record, me)
    race_join_clocks(record, clock, race_known(me), turn)
    return 0


def race_advance(record: Race, me: RaceWarp) -> int:
    """Write the warp's own time, and the times that its base implies, to its clock; its next accesses have a later time."""
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
    """``fence.proxy.async``: earlier accesses become visible to the async proxy. The same holds where a warp observes that ``wgmma``
    or bulk copies are complete, as an implicit proxy fence follows them."""
    record = cta.RACES
    if record == 0 or record.TWIN == 0:
        return 0
    me = race_me(record, state.INDEX)
    race_advance(record, me)
    race_join_clock(record, race_twin(record, race_known(me)), race_known(me), 0)
    record.FENCED_PROXY = 1
    return 0


def race_acquire(record: Race, me: RaceWarp, warps: int, clock: RaceClock, turn: int) -> int:
    """A warp acquires a clock; ``turn`` as in ``race_release``."""
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
    """The copy of a clock for the async proxy: the accesses that are visible to it."""
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
    """The epoch of the current access, by the running warp or by a copy that it issues, in the form used for memory of the CTA with a
    rank."""
    agent = context.RACE_AGENT
    if agent:
        return (agent & 4294967295) ^ (agent >> 32 ^ rank) << 8
    me = context.RACE_WARP
    turn = me.RECORD.RANK ^ rank
    if turn:
        return (me.EPOCH | Race.ASYNCHRONOUS << 8) ^ turn << 8
    return me.EPOCH


def race_asynchronous(context: Context, record: Race, agent: int, time: int) -> int:
    """The following accesses are by an asynchronous agent of a CTA, until ``RACE_AGENT`` is 0 again."""
    context.RACE_AGENT = record.RANK << 32 | (Race.ASYNCHRONOUS | time) << 8 | agent
    return 0


def race_happened_before(me: RaceWarp, epoch: int) -> int:
    """Whether the access with an epoch happened before the current access of the warp."""
    turn = me.TURN
    if turn:
        # the memory is another CTA's, so convert the epoch to the own CTA's form
        epoch = epoch ^ turn << 8
        if epoch & 127 < 32:
            epoch = epoch | Race.ASYNCHRONOUS << 8
            if epoch & me.MASK < 32:
                epoch = epoch ^ Race.ASYNCHRONOUS << 8
    agent = epoch & me.MASK
    if epoch < me.BASE or agent == me.EPOCH & 127:
        return 1
    return me.CLOCK[agent] >= epoch >> 8
