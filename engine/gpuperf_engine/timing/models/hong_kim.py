"""The model of Hong and Kim (*An Analytical Model for a GPU Architecture with Memory-level and Thread-level Parallelism
Awareness*, ISCA 2009): memory warp parallelism (MWP) against computation warp parallelism (CWP).

``hong-kim-2009`` takes what was particular to the GPUs of 2009, an issue in 4 cycles and delays between departing requests, from
the paper's FX 5600, and everything else from the machine. ``hong-kim`` takes all of it from the machine, with caches: each
sub-partition issues warp instructions at its rate, latency is the mean over the levels that serve loads, requests depart at the rate
of the slowest of L1, L2 and DRAM for the sectors that reach it, and a partial wave takes the time of a full one.

The paper leaves two cases open. Without memory instructions the time is that of the computation. If memory serves less than one
request of a warp at a time (MWP < 1), no other warp overlaps with it, so that the terms in MWP - 1 are 0, not negative.
Memory instructions are loads from and stores to global memory; atomics, local memory and textures are not in the model. A request
is uncoalesced if it needs more sectors than contiguous lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf

from ...machines.common import common
from ...machines.machine import Machine
from ...machines.occupancy import Occupancy
from ...results import Estimate
from ..launch.bounds import dram_rate
from ..launch.caches import SECTOR, CacheEstimate, estimate_caches
from ..launch.inputs import TimingInput

__all__ = [
    "HONG_KIM",
    "HONG_KIM_MODELS",
    "HONG_KIM_ORIGINAL",
    "Launch",
    "Parallelism",
    "estimate_hong_kim",
    "parallelism",
]

HONG_KIM_ORIGINAL = "hong-kim-2009"
HONG_KIM = "hong-kim"
HONG_KIM_MODELS = (HONG_KIM, HONG_KIM_ORIGINAL)


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of the paper: instructions of a warp, delays and latencies in cycles, ``bandwidth`` of DRAM in bytes per cycle.

    ``uncoalesced`` are memory instructions that need ``transactions`` each, ``bytes_per_request`` what a memory instruction of a
    warp moves, ``warps`` those active on an SM, ``repetitions`` how often the active CTAs are replaced.
    """

    instructions: float
    coalesced: float
    uncoalesced: float
    transactions: float
    barriers: float
    bytes_per_request: float
    warps: float
    ctas_per_sm: float
    active_sms: float
    repetitions: float
    issue_cycles: float
    latency: float
    departure_coalesced: float
    departure_uncoalesced: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Parallelism:
    """``cycles`` of the launch, ``mwp`` and ``cwp``, and the limiter: ``issue``, ``latency`` (too few warps), ``departure`` (requests
    leave the SM one after another) or ``bandwidth``."""

    mwp: float
    cwp: float
    cycles: float
    limiter: str


def parallelism(given: Launch) -> Parallelism:
    """The equations of the paper, with its names."""
    n = given.warps
    comp_cycles = given.issue_cycles * given.instructions
    mem_insts = given.coalesced + given.uncoalesced
    if not mem_insts:
        return Parallelism(0.0, 1.0, comp_cycles * n * given.repetitions, "issue")
    share = given.uncoalesced / mem_insts
    mem_l_uncoal = given.latency + (given.transactions - 1.0) * given.departure_uncoalesced
    mem_l = share * mem_l_uncoal + (1.0 - share) * given.latency
    departure = (
        share * given.departure_uncoalesced * given.transactions + (1.0 - share) * given.departure_coalesced
    )
    without_bandwidth = mem_l / departure if departure else inf
    moved = given.bytes_per_request * given.active_sms
    of_bandwidth = given.bandwidth * mem_l / moved if moved else inf
    mwp = min(without_bandwidth, of_bandwidth, n)
    others = max(0.0, mwp - 1.0)
    mem_cycles = mem_l_uncoal * given.uncoalesced + given.latency * given.coalesced
    cwp = min((mem_cycles + comp_cycles) / comp_cycles, n)
    between = comp_cycles / mem_insts * others
    if mwp == n == cwp:
        cycles, limiter = mem_cycles + comp_cycles + between, "latency"
    elif cwp >= mwp or comp_cycles > mem_cycles:
        waiting = mem_cycles * n / mwp
        cycles = waiting + between
        if between >= waiting:
            limiter = "issue"
        elif mwp == n:
            limiter = "latency"
        else:
            limiter = "bandwidth" if of_bandwidth <= without_bandwidth else "departure"
    else:
        cycles, limiter = mem_l + comp_cycles * n, "issue"
    synchronisation = departure * others * given.barriers * given.ctas_per_sm
    return Parallelism(mwp, cwp, (cycles + synchronisation) * given.repetitions, limiter)


def estimate_hong_kim(
    given: TimingInput, machine: Machine, resident: Occupancy, model: str, *, state: str
) -> Estimate:
    """The estimate of a launch by one of ``HONG_KIM_MODELS``. The model has no bounds of single resources: the bound of its limiter is
    the whole time."""
    caches = estimate_caches(given, machine, resident, caches=state)
    modern = model == HONG_KIM
    launch, slowest = _launch(given, machine, resident, caches, modern=modern)
    found = parallelism(launch)
    names = {"bandwidth": "dram", "departure": slowest}
    limiter = names.get(found.limiter, found.limiter)
    exec_us = machine.microseconds(found.cycles)
    launch_us = machine.launch_overhead_us
    return Estimate(
        machine=machine.id,
        machine_revision=machine.revision,
        model=model,
        time_us=launch_us + exec_us,
        launch_us=launch_us,
        cycles=found.cycles,
        limiter="launch" if launch_us > exec_us else limiter,
        bounds={"launch": launch_us, limiter: exec_us},
        occupancy=resident.ratio,
        ctas_per_sm=resident.ctas_per_sm,
        occupancy_limiter=resident.limiter,
        waves=given.ctas / (resident.ctas_per_sm * machine.sm_count),
        notes=(
            f"registers and shared memory: {given.resources}",
            *given.notes,
            f"MWP {found.mwp:.3g}, CWP {found.cwp:.3g} of {launch.warps:g} warps on an SM",
        ),
    )


def _launch(
    given: TimingInput, machine: Machine, resident: Occupancy, caches: CacheEstimate, *, modern: bool
) -> tuple[Launch, str]:
    """The paper's parameters of a launch, and the level of memory with the slowest departure of requests."""
    memory = given.memory
    warps = given.ctas * given.warps_per_cta
    requests = memory.load_requests + memory.store_requests
    sectors = memory.load_sectors + memory.store_sectors
    uncoalesced = memory.uncoalesced_load_requests + memory.uncoalesced_store_requests
    uncoalesced_sectors = memory.uncoalesced_load_sectors + memory.uncoalesced_store_sectors
    of_request = SECTOR * sectors / requests if requests else 0.0
    active_sms = min(machine.sm_count, given.ctas)
    ctas_per_sm = min(resident.ctas_per_sm, ceil(given.ctas / machine.sm_count))
    repetitions = given.ctas / (ctas_per_sm * active_sms)
    levels = dict(_departures(machine, caches, SECTOR * sectors, active_sms)) if modern and sectors else {}
    slowest = max(levels, key=lambda name: levels[name], default="lsu")
    of_byte = levels.get(slowest, 0.0)
    coalesced_sectors = sectors - uncoalesced_sectors
    coalesced = requests - uncoalesced
    beyond = caches.dram_bytes / (SECTOR * sectors) if sectors else 0.0
    return Launch(
        instructions=sum(count for unit, count in given.warp_instructions.items() if unit != "none") / warps,
        coalesced=coalesced / warps,
        uncoalesced=uncoalesced / warps,
        transactions=uncoalesced_sectors / uncoalesced if uncoalesced else 1.0,
        barriers=given.barriers,
        bytes_per_request=of_request * beyond if modern else of_request,
        warps=ctas_per_sm * given.warps_per_cta,
        ctas_per_sm=ctas_per_sm,
        active_sms=active_sms,
        repetitions=ceil(repetitions) if modern else repetitions,
        issue_cycles=1.0 / (machine.sub_partitions * machine.issue_rate)
        if modern
        else common("hong_kim_2009.issue"),
        latency=_mean_latency(machine, caches) if modern else machine.latencies["dram"],
        departure_coalesced=(
            of_byte * SECTOR * (coalesced_sectors / coalesced if coalesced else 0.0)
            if modern
            else common("hong_kim_2009.departure_coalesced")
        ),
        departure_uncoalesced=of_byte * SECTOR if modern else common("hong_kim_2009.departure_uncoalesced"),
        bandwidth=(
            dram_rate(caches, machine) if modern else machine.dram_bytes_per_cycle(machine.dram_bandwidth)
        ),
    ), slowest


def _mean_latency(machine: Machine, caches: CacheEstimate) -> float:
    """The mean latency of a load over the levels that serve the loads."""
    missed = 1.0 - caches.l1_hit
    return (
        caches.l1_hit * machine.latencies["l1"]
        + missed * caches.l2_hit * machine.l2_latency(caches.l2_far)
        + missed * (1.0 - caches.l2_hit) * machine.latencies["dram"]
    )


def _departures(
    machine: Machine, caches: CacheEstimate, requested: float, active_sms: int
) -> Iterator[tuple[str, float]]:
    """Cycles of an SM for each requested byte at each level of memory, with the SM's share of the bandwidth."""
    yield "dram", caches.dram_bytes / requested * active_sms / dram_rate(caches, machine)
    of_l2 = max(1.0 / machine.l2_sm_bandwidth, active_sms / machine.l2_bandwidth)
    yield "l2", caches.l2_bytes / requested * of_l2
    yield "l1", 1.0 / machine.l1_bandwidth
