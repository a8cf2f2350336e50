"""Where loads are served, estimated from sectors and footprints (exact addresses are not simulated here).

Assumptions:

- both caches are cold when the kernel starts (Nsight Compute's default, ``--cache-control all``), or L2 holds the data that the
  same launch left there (``warm``, as if a kernel is run repeatedly), or is full of what others have written (``dirty``);
- every distinct sector of a launch comes from DRAM once; every distinct written sector goes back to DRAM once. In a warm L2 neither
  happens for the share of the footprint that the previous launch left there: all of it up to ``l2.kept_whole`` of the cache, nothing
  from ``l2.kept_none`` on (``common``), linear in between. In a dirty one, what is read from DRAM makes it write as much, up to
  ``l2.kept_whole`` of the cache;
- L1: a sector that a CTA reads again hits if the resident CTAs' distinct sectors fit into the L1 that their shared memory
  leaves; else the share that fits does. Reuse between CTAs is not counted. Where the distinct sectors per CTA are not known, no
  reuse in L1 is counted at all;
- L2: of the reads that miss L1 and are not the first of their sector, the share of the footprint of concurrent CTAs that
  fits in L2 hits (the whole footprint divided evenly over the grid);
- each partition of L2 holds its part of memory, and a copy of what its SMs have read from another: the first read of a sector in
  a partition goes to another one with the probability that the sector belongs there;
- stores write through to L2; atomics are done there;
- local memory of the threads on an SM stays in the L1 that shared memory leaves, in the share that fits; the rest goes to L2, and
  the part that does not fit there to DRAM.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...machines.common import common
from ...machines.machine import Machine
from ...machines.occupancy import Occupancy
from ...results import SECTOR_BYTES as SECTOR
from .inputs import TimingInput

__all__ = ["SECTOR", "CacheEstimate", "estimate_caches"]


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """Hit rates of loads (0 to 1) and bytes moved between the levels in the whole launch. ``l2_far_bytes``: hits in another partition
    of L2 than the SM's; ``l2_left``: the share (0 to 1) of first reads that hit data in L2 from the previous launch."""

    l1_hit: float
    l2_hit: float
    l2_left: float
    l2_far_bytes: float
    l2_read_bytes: float
    l2_write_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    local_hit: float
    local_l2_bytes: float
    local_dram_bytes: float

    @property
    def l2_far(self) -> float:
        """The share of the L2 hits that another partition serves."""
        hits = self.l2_read_bytes - self.dram_read_bytes
        return self.l2_far_bytes / hits if hits > 0.0 else 0.0

    @property
    def l2_bytes(self) -> float:
        return self.l2_read_bytes + self.l2_write_bytes + self.local_l2_bytes

    @property
    def dram_bytes(self) -> float:
        return self.dram_read_bytes + self.dram_write_bytes + self.local_dram_bytes


def estimate_caches(
    given: TimingInput, machine: Machine, resident: Occupancy, *, caches: str = "cold"
) -> CacheEstimate:
    memory = given.memory
    read = memory.load_sectors * SECTOR
    first = min(memory.read_footprint, read)

    per_cta = memory.cta_read_sectors * SECTOR if memory.cta_read_sectors is not None else read
    per_cta = min(max(per_cta, first), read)
    l1_room = max(0, machine.l1_bytes - resident.ctas_per_sm * resident.shared_per_cta)
    l1_needed = resident.ctas_per_sm * per_cta / given.ctas
    kept = min(1.0, l1_room / l1_needed) if l1_needed > 0.0 else 1.0
    missed = read - (read - per_cta) * kept

    running = min(given.ctas, resident.ctas_per_sm * machine.sm_count)
    local_hit, local_needed = _local(given, machine, resident)
    l2_needed = (first + memory.write_footprint) * running / given.ctas + local_needed
    kept = min(1.0, machine.l2_bytes / l2_needed) if l2_needed > 0.0 else 1.0
    from_dram = first + (missed - first) * (1.0 - kept)

    local_missed = memory.local_sectors * SECTOR * (1.0 - local_hit)
    local_dram = local_missed * (1.0 - kept)

    # Each partition of L2 holds a copy of what its SMs read; written data are in one partition.
    left = _left(machine.l2_partitions * first + memory.write_footprint, machine) if caches == "warm" else 0.0
    from_dram -= first * left

    others = machine.l2_partitions - 1
    foreign = others / machine.l2_partitions
    # The latency of DRAM includes the distance to the partition.
    far = max(0.0, min(first * others, missed * foreign) - from_dram * foreign)

    written = (memory.store_sectors + memory.atomic_sectors) * SECTOR
    to_dram = min(memory.write_footprint, written) * (1.0 - left) if written else 0.0
    if caches == "dirty":
        to_dram += min(from_dram, common("l2.kept_whole") * machine.l2_bytes)
    return CacheEstimate(
        l1_hit=1.0 - missed / read if read else 0.0,
        l2_hit=1.0 - from_dram / missed if missed else 0.0,
        l2_left=left,
        l2_far_bytes=min(far, missed - from_dram),
        l2_read_bytes=missed,
        l2_write_bytes=written,
        dram_read_bytes=from_dram,
        dram_write_bytes=to_dram,
        local_hit=local_hit,
        local_l2_bytes=local_missed,
        local_dram_bytes=local_dram,
    )


def _local(given: TimingInput, machine: Machine, resident: Occupancy) -> tuple[float, float]:
    """The share of local accesses that hit in L1, and the bytes that do not fit there."""
    if not given.local_bytes:
        return 1.0, 0.0
    # Occupancy limits by registers and shared memory are ignored: a launch that needs more of them gains no room in L1.
    ctas = min(resident.limits["warps"], resident.limits["ctas"], -(-given.ctas // machine.sm_count))
    needed = ctas * given.threads_per_cta * given.local_bytes
    room = max(0.0, machine.l1_bytes - min(machine.shared_per_sm, ctas * resident.shared_per_cta))
    hit = min(1.0, room / needed)
    running = min(given.ctas, ctas * machine.sm_count)
    return hit, running * given.threads_per_cta * given.local_bytes * (1.0 - hit)


def _left(footprint: float, machine: Machine) -> float:
    """The share of data in L2 that is still there at the next pass over it."""
    whole, none = common("l2.kept_whole"), common("l2.kept_none")
    return min(1.0, max(0.0, (none - footprint / machine.l2_bytes) / (none - whole)))
