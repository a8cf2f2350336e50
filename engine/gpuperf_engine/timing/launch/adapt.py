"""Converts an observed launch to the input of the models: machine instructions and the path of a warp (``warp_path``), memory traffic
(``site_traffic``), registers, barriers and atomics."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ...errors import NotObserved
from ...machines.machine import Machine
from ...profile.build import LaunchRecord
from ...profile.images import NOTE, ImageTraffic, image_traffic
from ...results import Resources
from .allocation import allocate
from .caches import SECTOR
from .contention import contention
from .inputs import MemoryTraffic, TimingInput
from .registers import operand_reads
from .site_traffic import Site, mean_waits, memory_traffic, observed_sites
from .warp_path import PathBuilder

__all__ = ["launch_key", "timing_input"]


def launch_key(record: LaunchRecord) -> Hashable:
    """A key that is equal for launches of one program with equal predicted times on every machine."""
    plan, seen = record.plan, record.observation
    sites = b"" if seen.sites is None else seen.sites.tobytes()
    shape = plan.grid, plan.block, plan.shared_bytes, plan.pointed_at, plan.images
    fetched = seen.block_lanes.tobytes() + seen.predicated.tobytes() if plan.images else b""
    return id(record.program), shape, seen.block_warps.tobytes(), sites, seen.hottest, fetched


def timing_input(
    record: LaunchRecord, machine: Machine, resources: Resources, sites: list[Site] | None = None
) -> TimingInput:
    """The input of the models for a launch on this machine, with these registers and this shared memory; ``sites`` replace the
    counters of its memory instructions.

    Raises :class:`NotObserved` if the launch's memory behaviour was not observed.
    """
    plan, seen = record.plan, record.observation
    if seen.sites is None:
        raise NotObserved(
            f"predicted time of {record.program.kernel.name!r} needs its memory behaviour, which was not observed",
            hint='use Device(observe={"memory"}) and demand="addresses" or "values"',
        )
    warps = (plan.ctas - seen.cancelled) * plan.warps_per_cta
    allocated = allocate(record, machine, resources)
    builder = PathBuilder(
        record.program,
        [int(n) for n in seen.block_warps],
        observed_sites(record) if sites is None else sites,
        machine,
        allocated,
    )
    path = builder.path_of(0, warps)
    images = image_traffic(record)
    atomics = contention(record, machine)
    memory = memory_traffic(record, builder.sites, machine)
    declared = record.program.local_bytes if memory.local_sectors else 0
    memory = _with_conflicts_and_spills(memory, atomics.operations, builder)
    return TimingInput(
        grid=plan.grid,
        cancelled=seen.cancelled,
        block=plan.block,
        registers_per_thread=allocated.registers,
        shared_bytes=resources.shared_bytes,
        warp_instructions=builder.counts(),
        path=path,
        memory=memory if images is None else _with_images(memory, images),
        barriers=_barriers(builder) / warps,
        operand_reads=_operand_reads(builder),
        local_bytes=declared + 4 * allocated.words,
        resources=resources.source,
        latencies=builder.latencies,
        waits=mean_waits(builder.sites, machine) | atomics.waits,
        hottest=atomics.hottest,
        origins=builder.origins,
        barriers_at=builder.barriers_at(warps),
        notes=(*allocated.notes, *(() if images is None else (NOTE,))),
    )


def _barriers(builder: PathBuilder) -> int:
    """The number of waits at barriers, summed over warps."""
    return sum(
        executions
        for block, executions in zip(builder.program.blocks, builder.executions, strict=True)
        if block.kind == "barrier"
    )


def _operand_reads(builder: PathBuilder) -> int:
    """Operands that instructions read from registers, summed over warps."""
    return sum(
        executions * operand_reads(block.tally)
        for block, executions in zip(builder.program.blocks, builder.executions, strict=True)
        if executions
    )


def _with_conflicts_and_spills(
    memory: MemoryTraffic, atomic_operations: float, builder: PathBuilder
) -> MemoryTraffic:
    return replace(
        memory,
        atomic_operations=atomic_operations,
        constant_serializations=builder.constant_serializations(),
        local_sectors=memory.local_sectors + builder.spilled_sectors(),
    )


def _with_images(memory: MemoryTraffic, images: ImageTraffic) -> MemoryTraffic:
    return replace(
        memory,
        load_sectors=memory.load_sectors + images.read / SECTOR,
        store_sectors=memory.store_sectors + images.written / SECTOR,
        read_footprint=memory.read_footprint + images.read,
        write_footprint=memory.write_footprint + images.written,
        texture_misses=images.missed,
    )
