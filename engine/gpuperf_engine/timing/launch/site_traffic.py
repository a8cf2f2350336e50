"""The traffic of all memory instructions of a launch, and the wait of each, as input of the models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from ...machines.machine import Machine
from ...profile.build import LaunchRecord
from ...simt.counters import SITE_COLUMNS
from .bounds import WAVEFRONT
from .caches import SECTOR
from .footprint import footprint
from .inputs import MemoryTraffic

__all__ = [
    "CONSTANT_SPACES",
    "Site",
    "coalesced",
    "mean_waits",
    "memory_traffic",
    "observed_sites",
    "tag_wavefronts",
    "without_conflicts",
]

#: State spaces that are read from constant banks.
CONSTANT_SPACES = ("const", "param")


@dataclass(frozen=True, slots=True)
class Site:
    """Counters of one memory instruction. ``space``: the state space of most of its lanes; ``ideal``: its wavefronts of shared memory
    without bank conflicts."""

    space: str
    requests: int
    lanes: int
    global_requests: int
    sectors: int
    lines: int
    wavefronts: int
    global_wavefronts: int
    local_sectors: int
    ideal: int


def observed_sites(record: LaunchRecord) -> list[Site]:
    """The counters of the memory sites of the program, in order."""
    assert record.observation.sites is not None
    sites = []
    for site, row in zip(record.program.sites, record.observation.sites.tolist(), strict=True):
        counters = dict(zip(SITE_COLUMNS, row, strict=True))
        space = site.space
        if space == "generic":
            if 2 * counters["shared_lanes"] > counters["lanes"]:
                space = "shared"
            elif 2 * counters["local_lanes"] > counters["lanes"]:
                space = "local"
        counters["global_requests"] = counters["requests"] - counters["elsewhere"]
        names = (
            "requests",
            "lanes",
            "global_requests",
            "sectors",
            "lines",
            "wavefronts",
            "global_wavefronts",
            "local_sectors",
            "ideal",
        )
        sites.append(Site(space, *(counters[name] for name in names)))
    return sites


def tag_wavefronts(requests: int, lines: int, rate: float) -> float:
    """Wavefronts in which L1 looks up the ``lines`` lines of ``requests`` requests, ``rate`` lines in each; requests share none.

    Only the mean number of lines per request is known: each request is assumed to have the integer below or above it.
    """
    if not requests:
        return 0.0
    least, rest = divmod(lines, requests)
    return (requests - rest) * ceil(least / rate) + rest * ceil((least + 1) / rate)


def mean_waits(sites: list[Site], machine: Machine) -> dict[int, float]:
    """Cycles of a mean request of each memory instruction beyond its first wavefront, by index of the site; none that is 0."""
    waits = {}
    for index, seen in enumerate(sites):
        cycles = 0.0
        if seen.space in CONSTANT_SPACES:
            cycles = seen.lanes / seen.requests if seen.requests else 0.0
        elif seen.global_requests and seen.global_wavefronts:
            data = seen.global_wavefronts * WAVEFRONT / machine.l1_bandwidth
            tags = tag_wavefronts(seen.global_requests, seen.lines, machine.l1_tag_rate)
            cycles = max(data, tags) / seen.global_requests
        if seen.wavefronts and seen.requests:
            cycles = max(cycles, seen.wavefronts * WAVEFRONT / machine.l1_bandwidth / seen.requests)
        if cycles > 1.0:
            waits[index] = cycles - 1.0
    return waits


def memory_traffic(record: LaunchRecord, sites: list[Site], machine: Machine) -> MemoryTraffic:
    """The traffic of the launch: requests, sectors, footprints and wavefronts of all sites."""
    requests = dict.fromkeys(("load", "store", "atomic", "reduction"), 0)
    sectors = dict(requests)
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    apart, apart_sectors = dict(requests), dict(requests)
    local = 0
    data = tags = 0.0
    for site, seen in zip(record.program.sites, sites, strict=True):
        local += seen.local_sectors
        if seen.sectors and seen.space not in CONSTANT_SPACES:
            requests[site.kind] += seen.global_requests
            sectors[site.kind] += seen.sectors
            if _is_uncoalesced(seen, site.bytes):
                apart[site.kind] += seen.global_requests
                apart_sectors[site.kind] += seen.sectors
            if seen.global_wavefronts:
                data += seen.global_wavefronts
                tags += tag_wavefronts(seen.global_requests, seen.lines, machine.l1_tag_rate)
            elif site.kind == "load":  # a bulk copy, which has no lanes
                data += seen.sectors * SECTOR / WAVEFRONT
            (read if site.kind == "load" else written)[site.index] = seen.sectors
    return MemoryTraffic(
        load_requests=requests["load"],
        load_sectors=sectors["load"],
        store_requests=requests["store"],
        store_sectors=sectors["store"],
        read_footprint=footprint(record.program, record.plan, read),
        write_footprint=footprint(record.program, record.plan, written),
        shared_requests=sum(seen.requests for seen in sites if seen.wavefronts),
        shared_wavefronts=sum(seen.wavefronts for seen in sites),
        local_sectors=local,
        atomic_sectors=sectors["atomic"] + sectors["reduction"],
        load_wavefronts=data,
        load_tag_wavefronts=tags,
        uncoalesced_load_requests=apart["load"],
        uncoalesced_load_sectors=apart_sectors["load"],
        uncoalesced_store_requests=apart["store"],
        uncoalesced_store_sectors=apart_sectors["store"],
    )


def coalesced(seen: Site, width: int) -> Site:
    """The same accesses of ``width`` bytes per lane, with the lanes of each uncoalesced request contiguous from the start of a
    line."""
    if not _is_uncoalesced(seen, width):
        return seen
    size, requests = seen.lanes / seen.requests * width, seen.global_requests
    filled = requests * ceil(size / WAVEFRONT)
    return replace(
        seen,
        sectors=min(seen.sectors, requests * ceil(size / SECTOR)),
        lines=min(seen.lines, filled),
        global_wavefronts=min(seen.global_wavefronts, filled),
    )


def without_conflicts(seen: Site, width: int) -> Site:
    """The same accesses without bank conflicts."""
    return replace(seen, wavefronts=min(seen.wavefronts, seen.ideal))


def _is_uncoalesced(seen: Site, width: int) -> bool:
    """Whether a mean request needs more sectors than contiguous lanes at any alignment."""
    if not seen.global_requests:
        return False
    lanes = seen.lanes / seen.requests
    return seen.sectors / seen.global_requests > ceil(lanes * width / SECTOR) + 1
