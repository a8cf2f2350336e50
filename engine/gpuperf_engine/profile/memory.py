"""Memory behaviour: from the counters of the memory instructions to their records, and to totals by space."""

from __future__ import annotations

from collections import Counter

from ..results import Memory, SiteProfile
from ..simt.atomic_targets import HottestAddress
from ..simt.counters import SITE_COLUMNS, Observation
from ..simt.program import Program, Site

__all__ = ["memory_totals", "site_profiles"]


def site_profiles(program: Program, observation: Observation) -> tuple[SiteProfile, ...]:
    """One record per memory instruction, in program order; empty if memory was not observed."""
    if observation.sites is None:
        return ()
    rows = observation.sites.tolist()
    return tuple(_record(program, site, rows[site.index]) for site in program.sites)


def _record(program: Program, site: Site, row: list[int]) -> SiteProfile:
    counters = dict(zip(SITE_COLUMNS, row, strict=True))
    counters["global_requests"] = 0
    if site.space == "generic":
        counters["global_requests"] = counters["requests"] - counters["elsewhere"]
    else:
        counters[f"{site.space}_requests"] = counters["requests"]
        counters[f"{site.space}_lanes"] = counters["lanes"]
        if site.space == "global" and counters["wavefronts"]:  # a copy to shared memory
            counters["shared_requests"] = counters["requests"]
    instruction = site.instruction
    return SiteProfile(
        function=program.functions[program.blocks[site.block].function].name,
        line=instruction.span.line,
        opcode=instruction.opcode,
        space=site.space,
        kind=site.kind,
        bytes_per_lane=site.bytes,
        source=str(instruction.location or ""),
        requests=counters["requests"],
        lanes=counters["lanes"],
        sectors=counters["sectors"],
        wavefronts=counters["wavefronts"],
        ideal_wavefronts=counters["ideal"],
        shared_lanes=counters["shared_lanes"],
        local_lanes=counters["local_lanes"],
        cache_lines=counters["lines"],
        local_sectors=counters["local_sectors"],
        serializations=counters["serializations"],
        shared_serializations=counters["shared_serializations"],
        global_requests=counters["global_requests"],
        shared_requests=counters["shared_requests"],
        local_requests=counters["local_requests"],
        global_wavefronts=counters["global_wavefronts"],
    )


def memory_totals(sites: tuple[SiteProfile, ...], hottest: HottestAddress) -> Memory:
    """Totals by space and kind; generic accesses count for the space that each lane accessed."""
    total: Counter[str] = Counter(global_atomic_hottest=hottest.lanes)
    accesses: Counter[str] = Counter()
    for site in sites:
        if site.space == "param":
            continue
        kind = "atomic" if site.kind in ("atomic", "reduction") else site.kind
        elsewhere = "const" if site.space == "const" else "global"
        lanes = {"shared": site.shared_lanes, "local": site.local_lanes, elsewhere: site.other_lanes}
        for space, count in lanes.items():
            if count:
                accesses[f"{site.kind}.{space}.{site.bytes_per_lane * 8}"] += count
        if site.global_requests:
            total[f"global_{kind}_requests"] += site.global_requests
            total[f"global_{kind}_sectors"] += site.sectors
            total[f"global_{kind}_lines"] += site.cache_lines
            total[f"global_{kind}_bytes"] += site.global_bytes
            total["global_atomic_serializations"] += site.serializations
            total["global_load_wavefronts"] += site.global_wavefronts
        if site.shared_requests:
            copied = site.space == "global"
            way = ("store" if kind == "load" else "load") if copied else kind
            total[f"shared_{way}_requests"] += site.shared_requests
            total[f"shared_{way}_wavefronts"] += site.wavefronts
            total[f"shared_{way}_bytes"] += (
                site.lanes if copied else site.shared_lanes
            ) * site.bytes_per_lane
            total["shared_atomic_serializations"] += site.shared_serializations
            total["shared_conflicts"] += site.conflicts
        if site.local_requests:
            # an atomic of a local variable is a load and a store: ptxas generates LD and ST for addresses in local memory
            ways = ("load", "store") if kind == "atomic" else (kind,)
            for way in ways:
                total[f"local_{way}_requests"] += site.local_requests
                total[f"local_{way}_sectors"] += site.local_sectors
                total["local_bytes"] += site.local_lanes * site.bytes_per_lane
    return Memory(accesses=dict(sorted(accesses.items())), **total)
