"""Runtime of generated code: vector clocks, and what happens before what.

``Race`` says how they lie in memory. The order is that of vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009). Agents are
warps, whose lanes are taken to be in order, and asynchronous copies. An agent's time passes where it releases something; the epoch of
an access is agent and time. What happened before the last barrier of all warps is known by one comparison with the base of a warp.
"""

from __future__ import annotations

from ..ir.abi import Cluster, Cta, Race, State
from .compile_python import load32, load64, store32, store64


def race_me(record: int, warp: int) -> int:
    """The record of a warp of a CTA."""
    return load64(record + Race.WARPS) + warp * load64(record + Race.WARP)


def race_clock(record: int, number: int) -> int:
    """A clock of a CTA."""
    return record + Race.CLOCKS + number * load64(record + Race.CLOCK_BYTES)


def race_more(record: int) -> int:
    """Something is done asynchronously: from now on there are agents that are no warps, in all CTAs of the cluster."""
    if load64(record + Race.AGENTS) == 128:
        return 0
    store64(record + Race.AGENTS, 128)
    cluster = load64(load64(record + Race.CTA) + Cta.CLUSTER)
    rank = 0
    while cluster and rank < load64(cluster + Cluster.SIZE):
        store64(load64(load64(cluster + Cluster.PEERS + rank * 8) + Cta.RACES) + Race.AGENTS, 128)
        rank += 1
    return 0


def race_tick(record: int) -> int:
    """Another time."""
    now = load64(record + Race.NOW) + load64(record + Race.STEP)
    if now > Race.LAST:
        # of a CTA that goes on for ever without a barrier of all its warps no more is checked
        now = Race.LAST
    store64(record + Race.NOW, now)
    return now


def race_join(clock: int, known: int, agents: int, flip: int, put: int, keep: int) -> int:
    """A clock learns what another one knows of as many agents."""
    agent = 0
    while agent < agents:
        to = clock + agent * 4
        from_ = known + agent * 4
        if flip == 0 and load64(from_) == load64(to) and load64(from_ + 8) == load64(to + 8):
            # of most agents there is nothing new
            agent += 4
            continue
        time = ((load32(known + agent * 4) ^ flip) | put) & keep
        old = load32(clock + agent * 4)
        if time < old:
            time = old
        store32(clock + agent * 4, time)
        agent += 1
    return 0


def race_join_clocks(record: int, clock: int, known: int, turn: int) -> int:
    """A clock learns all that another one knows; ``turn``: the ranks of their CTAs, xor."""
    twin = load64(record + Race.TWIN)
    race_join_clock(record, clock, known, turn)
    if twin:
        race_join_clock(record, clock + twin, known + twin, turn)
    return 0


def race_join_clock(record: int, clock: int, known: int, turn: int) -> int:
    """As ``race_join_clocks``, of one of twins. Warps of the own CTA have times of the common kind."""
    agents = load64(record + Race.AGENTS)
    warps = agents
    if agents > 32:
        warps = 32
    rank = 0
    if turn == 0:
        race_join(clock, known, agents, 0, 0, -1)
        rank = 1
    while rank < load64(record + Race.STEP):
        to = clock + (rank ^ turn) * Race.PEER
        from_ = known + rank * Race.PEER
        if turn == 0:
            race_join(to, from_, agents, 0, 0, -1)
        else:
            if rank == 0:
                race_join(to, from_, warps, turn, Race.ASYNCHRONOUS, -1)
            elif rank == turn:
                race_join(to, from_, warps, turn, 0, Race.ASYNCHRONOUS - 1)
            else:
                race_join(to, from_, warps, turn, 0, -1)
            race_join(to + 32 * 4, from_ + 32 * 4, agents - 32, turn, 0, -1)
        rank += 1
    return 0


def race_release(record: int, me: int, clock: int, turn: int) -> int:
    """A warp releases what it knows to a clock; ``turn``: the rank of that clock's CTA xor the own one."""
    race_advance(record, me)
    race_join_clocks(record, clock, me + Race.CLOCK, turn)
    return 0


def race_advance(record: int, me: int) -> int:
    """The clock of a warp has its own time, too; what it does from now on is later."""
    epoch = load64(me + Race.EPOCH)
    base = (load64(me + Race.BASE) >> 8) - load64(record + Race.STEP)
    agent = 0
    while agent < 32:
        time = load32(me + Race.CLOCK + agent * 4)
        if time < base:
            time = base
        store32(me + Race.CLOCK + agent * 4, time)
        agent += 1
    store32(me + Race.CLOCK + (epoch & 127) * 4, epoch >> 8)
    store64(me + Race.EPOCH, race_tick(record) << 8 | (epoch & 127))
    return 0


def race_proxy(cta: int, state: int) -> int:
    """``fence.proxy.async``: the async proxy sees what comes before. So it does where a warp finds that products or bulk copies are
    complete, which an implicit fence follows."""
    record = load64(cta + Cta.RACES)
    if record == 0 or load64(record + Race.TWIN) == 0:
        return 0
    me = race_me(record, load32(state + State.INDEX))
    race_advance(record, me)
    race_join_clock(record, me + Race.CLOCK + load64(record + Race.TWIN), me + Race.CLOCK, 0)
    store64(record + Race.FENCED_PROXY, 1)
    return 0


def race_acquire(record: int, me: int, warps: int, clock: int, turn: int) -> int:
    """A warp acquires what a clock knows; ``turn`` as in ``race_release``."""
    own = load64(me + Race.EPOCH) & 127
    base = load64(me + Race.BASE) >> 8
    step = load64(record + Race.STEP)
    least = Race.LAST
    race_join_clocks(record, me + Race.CLOCK, clock, turn)
    agent = 0
    while agent < warps:
        time = load32(me + Race.CLOCK + agent * 4)
        if agent != own and time < least:
            least = time
        agent += 1
    if warps > 1 and least >= base:
        store64(me + Race.BASE, (least + step) << 8)
    store64(record + Race.JOINED_PEER, 1)
    return 0


def race_shared(cta: int) -> int:
    """The record of the first CTA of the cluster, or of the CTA itself."""
    cluster = load64(cta + Cta.CLUSTER)
    if cluster:
        cta = load64(cluster + Cluster.PEERS)
    return load64(cta + Cta.RACES)


def race_fenced(record: int, me: int) -> int:
    """The clock of a warp at its last fence."""
    return me + Race.CLOCK + load64(record + Race.CLOCK_BYTES)


def race_happened_before(me: int, epoch: int) -> int:
    """Whether what has an epoch comes before what the warp does now."""
    turn = load64(me + Race.TURN)
    if turn:
        # the epoch is one in the memory of another CTA
        epoch = epoch ^ turn << 8
        if epoch & 127 < 32:
            epoch = epoch | Race.ASYNCHRONOUS << 8
            if epoch & load64(me + Race.MASK) < 32:
                epoch = epoch ^ Race.ASYNCHRONOUS << 8
    agent = epoch & load64(me + Race.MASK)
    if epoch < load64(me + Race.BASE) or agent == load64(me + Race.EPOCH) & 127:
        return 1
    return load32(me + Race.CLOCK + agent * 4) >= epoch >> 8
