"""The roofline of a machine with what a launch does under it (Williams, Waterman and Patterson, CACM 52, 2009)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import NotObserved
from ..machines.machine import Machine
from ..machines.occupancy import occupancy
from ..machines.rates import KINDS, peak_rate, unit_of
from ..results import Profile
from .estimate import estimate
from .launch.adapt import timing_input
from .launch.bounds import dram_rate
from .launch.caches import CacheEstimate, estimate_caches

__all__ = ["Ceiling", "Point", "Roofline", "Slope", "roofline"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rate of work per µs that a unit of the whole machine allows."""

    name: str
    rate: float
    source: str


@dataclass(frozen=True, slots=True)
class Slope:
    """Bytes per µs that a level of memory allows."""

    name: str
    rate: float
    source: str


@dataclass(frozen=True, slots=True)
class Point:
    """Arithmetic intensity at a level of memory, in work per byte, and performance in work per µs of the predicted time without the
    launch overhead."""

    level: str
    bytes: float
    intensity: float
    rate: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roofline. ``work`` is in ``unit``: floating-point operations (``FLOP``), or warp instructions if there are none."""

    machine: str
    unit: str
    work: float
    ceilings: tuple[Ceiling, ...]
    slopes: tuple[Slope, ...]
    points: tuple[Point, ...]


def roofline(profile: Profile, machine: Machine, *, caches: str = "cold") -> Roofline:
    """The roofline of a launch, or of all launches of a sum. Errors as for ``timing.estimate.estimate``."""
    seen = [_caches(profile, index, machine, caches) for index in range(len(profile.records))]
    if not seen:
        raise NotObserved(f"the profile of {profile.kernel!r} holds no launch to draw")
    numbered = [(item, record.times) for item, record in zip(seen, profile.records, strict=True)]
    found = estimate(profile, machine, caches=caches)
    exec_us = found.time_us - found.launch_us
    kinds = [kind for kind in KINDS if profile.flops.get(kind) and peak_rate(kind, machine)]
    work = float(sum(profile.flops[kind] for kind in kinds)) or float(profile.warp_instructions)
    levels = {
        "DRAM": sum(item.dram_bytes * times for item, times in numbered),
        "L2": sum(item.l2_bytes * times for item, times in numbered),
    }
    return Roofline(
        machine.id,
        "FLOP" if kinds else "warp instruction",
        work,
        _ceilings(kinds, machine),
        _slopes(machine, max(seen, key=lambda item: item.dram_bytes)),
        tuple(
            Point(name, moved, work / moved, work / exec_us)
            for name, moved in levels.items()
            if moved and exec_us
        ),
    )


def _caches(profile: Profile, index: int, machine: Machine, caches: str) -> CacheEstimate:
    record = profile.records[index].each
    used = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    given = timing_input(record, machine, used)
    resident = occupancy(
        machine,
        threads_per_cta=given.threads_per_cta,
        registers_per_thread=given.registers_per_thread,
        shared_bytes=given.shared_bytes,
    )
    return estimate_caches(given, machine, resident, caches=caches)


def _ceilings(kinds: list[str], machine: Machine) -> tuple[Ceiling, ...]:
    """The ceilings of the kinds of operations that occur; for instructions, the issue slots."""
    of_machine = machine.sm_count * machine.clock_mhz
    if not kinds:
        path = "sm.issue_rate"
        issued = machine.sub_partitions * machine.issue_rate
        return (Ceiling("issue", issued * of_machine, machine.quantities[path].source),)
    return tuple(
        Ceiling(
            kind,
            peak_rate(kind, machine) * of_machine,
            machine.quantities[f"lanes.{unit_of(kind, machine.compute_capability)}"].source,
        )
        for kind in kinds
    )


def _slopes(machine: Machine, caches: CacheEstimate) -> tuple[Slope, ...]:
    clock = machine.clock_mhz
    numbers = machine.quantities
    return (
        Slope("DRAM, data sheet", machine.dram_bandwidth * 1e3, numbers["dram.bandwidth"].source),
        Slope(
            "DRAM, sustained",
            dram_rate(caches, machine) * clock,
            "; ".join(dict.fromkeys(numbers[f"dram.sustained_{way}"].source for way in ("one_way", "mixed"))),
        ),
        Slope("L2", machine.l2_bandwidth * clock, numbers["cache.l2_bandwidth"].source),
    )
