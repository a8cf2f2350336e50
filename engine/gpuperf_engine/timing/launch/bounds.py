"""The bounds of a launch, the time that each resource alone needs: issue slots, pipes, L1 and shared memory per SM, L2 and DRAM
for the whole machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...machines.common import common
from ...machines.machine import Machine
from ...machines.occupancy import WARP_SIZE
from ...machines.schema import UNITS
from .caches import SECTOR, CacheEstimate
from .inputs import MemoryTraffic, TimingInput

__all__ = [
    "WAVEFRONT",
    "ResourceBound",
    "atomics_bound",
    "dispatch_bound",
    "dram_rate",
    "load_wavefronts",
    "resource_bounds",
]

_SM_WIDE = frozenset({"lsu", "tex"})
"""Units that the sub-partitions of an SM share: one warp alone can use all of their lanes."""

WAVEFRONT = 128
"""Bytes of one wavefront of shared memory or L1: 32 banks of 4 bytes."""


@dataclass(frozen=True, slots=True)
class ResourceBound:
    """The time that one resource needs: ``sm_cycles`` of an SM per CTA that it runs, ``chip_cycles`` per CTA of the wave.

    ``split`` marks work that is bound to sub-partitions, so that warps which do not fill them all leave lanes idle.
    """

    name: str
    sm_cycles: float = 0.0
    chip_cycles: float = 0.0
    split: bool = False

    def cycles(self, ctas: int, machine: Machine, given: TimingInput) -> float:
        """Cycles for a wave of ``ctas`` CTAs, dealt to the SMs in turn."""
        on_busiest = -(-ctas // machine.sm_count)
        cycles = on_busiest * self.sm_cycles
        if self.split:
            warps = on_busiest * given.warps_per_cta
            cycles *= -(-warps // machine.sub_partitions) * machine.sub_partitions / warps
        return max(cycles, ctas * self.chip_cycles)


def resource_bounds(given: TimingInput, machine: Machine, caches: CacheEstimate) -> list[ResourceBound]:
    """All resources with work, in a fixed order: DRAM, L2, L1, shared memory, LSU, issue, the register file, then the other
    units."""
    ctas, memory = given.ctas, given.memory
    counts = {unit: count for unit, count in given.warp_instructions.items() if count and unit != "none"}
    shared = memory.shared_wavefronts * WAVEFRONT
    through_l1 = load_wavefronts(memory) * WAVEFRONT
    through_l1 += (memory.store_sectors + memory.local_sectors + memory.atomic_sectors) * SECTOR
    resources = [
        ResourceBound("dram", chip_cycles=caches.dram_bytes / dram_rate(caches, machine) / ctas),
        ResourceBound(
            "l2",
            sm_cycles=caches.l2_bytes / machine.l2_sm_bandwidth / ctas,
            chip_cycles=caches.l2_bytes / machine.l2_bandwidth / ctas,
        ),
        ResourceBound(
            "l1",
            sm_cycles=max((through_l1 + shared) / machine.l1_bandwidth, memory.load_tag_wavefronts) / ctas,
        ),
        ResourceBound("shared", sm_cycles=shared / machine.l1_bandwidth / ctas),
    ]
    if "lsu" in counts:
        resources.append(_pipe("lsu", counts["lsu"] + memory.constant_serializations, machine, ctas))
    issued = sum(counts[unit] for unit in UNITS if unit in counts)
    resources.append(
        ResourceBound(
            "issue", sm_cycles=issued / (machine.sub_partitions * machine.issue_rate) / ctas, split=True
        )
    )
    reads = given.operand_reads / (machine.sub_partitions * machine.register_read_rate)
    resources.append(ResourceBound("registers", sm_cycles=reads / ctas, split=True))
    for unit in UNITS:
        if unit != "lsu":
            guests = sum(counts.get(guest, 0) for guest, pipe in machine.shared_pipes.items() if pipe == unit)
            if unit in counts or guests:
                resources.append(_pipe(unit, counts.get(unit, 0) + guests, machine, ctas))
    return [resource for resource in resources if resource.sm_cycles or resource.chip_cycles]


def load_wavefronts(memory: MemoryTraffic) -> float:
    """Wavefronts of the global loads in the banks of L1."""
    if memory.load_wavefronts is None:
        return memory.load_sectors * SECTOR / WAVEFRONT
    return memory.load_wavefronts


def _pipe(unit: str, count: float, machine: Machine, ctas: int) -> ResourceBound:
    lanes = machine.lanes[unit] * machine.sub_partitions
    return ResourceBound(unit, sm_cycles=count * WARP_SIZE / lanes / ctas, split=unit not in _SM_WIDE)


def dispatch_bound(machine: Machine) -> ResourceBound:
    """The time to start all CTAs: the machine starts them one after another, whatever their size."""
    return ResourceBound("dispatch", chip_cycles=1.0 / machine.cta_rate)


def atomics_bound(given: TimingInput, machine: Machine) -> ResourceBound:
    """The time of the atomics at the hottest address, which L2 executes one after another."""
    return ResourceBound(
        "atomics", chip_cycles=given.memory.atomic_operations / machine.atomic_rate / given.ctas
    )


def dram_rate(caches: CacheEstimate, machine: Machine) -> float:
    """Sustained bytes per cycle for the launch's mix of reads and writes.

    Traffic in one direction has the rate ``sustained_one_way``. If the smaller direction has at least the share ``dram.fully_mixed``
    of the bytes, turnarounds of the bus reduce the rate to ``sustained_mixed``. In between, the time per byte is linear.
    """
    one_way = machine.dram_bytes_per_cycle(machine.dram_sustained_one_way)
    mixed = machine.dram_bytes_per_cycle(machine.dram_sustained_mixed)
    if not caches.dram_bytes:
        return one_way
    local = caches.local_dram_bytes / 2  # each stored byte is loaded once
    lesser = min(caches.dram_read_bytes + local, caches.dram_write_bytes + local) / caches.dram_bytes
    mix = min(1.0, lesser / common("dram.fully_mixed"))
    return 1.0 / ((1.0 - mix) / one_way + mix / mixed)
