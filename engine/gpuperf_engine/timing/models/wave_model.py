"""The time of a launch as the sum of its waves: latency, issue, pipes and memory of each wave, and the limiter.

The default model is the corrected model of Kleimenov and Popova (``timing.models.kleimenov_popova``): the time of a wave of resident
CTAs is the largest bound of its resources, and more if latency and memory bandwidth both limit it. The input is exact counts;
``docs/timing.md`` lists the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...machines.machine import Machine
from ...machines.occupancy import Occupancy
from ...machines.schema import UNITS
from ...results import Estimate
from ..launch.bounds import ResourceBound, atomics_bound, dispatch_bound, dram_rate, resource_bounds
from ..launch.caches import SECTOR, CacheEstimate, estimate_caches
from ..launch.inputs import TimingInput
from .kleimenov_popova import fix_point, loaded_latency
from .path_time import PathTime, Wait, path_stalls, path_time

__all__ = ["MODELS", "WaveModel", "smooth_max"]

_NOTED_INSTRUCTIONS = 2000
"""The most static instructions of a path for which the latency under load is computed, which takes several passes."""

MODELS = ("kleimenov-popova", "kleimenov-popova-as-printed", "roofline", "roofline-datasheet")

_AT_DATA_SHEET = frozenset({"dram", "issue", *UNITS})
"""Resources whose rates are in data sheets."""


def smooth_max(latency: float, bandwidth: float) -> float:
    """The cube root of the sum of the cubes: the time of work that latency and bandwidth both limit.

    Latency rises before the bandwidth is saturated. Of the exponents 2, 3, 4 and 6 the third has the least median error on
    streaming kernels on four GPUs (tests/timing/data/stream_measured.csv); two other GPUs and other kernels are the check. The
    root is found by multiplications alone, so that it is the same on every host.
    """
    longer, shorter = max(latency, bandwidth), min(latency, bandwidth)
    if longer <= 0.0:
        return 0.0
    part = shorter / longer
    cubed = 1.0 + part * part * part
    root = 1.0 + (cubed - 1.0) / 3.0
    for _ in range(5):
        root = (2.0 * root + cubed / (root * root)) / 3.0
    return longer * max(1.0, root)


@dataclass(frozen=True, slots=True)
class WarpAlone:
    """A warp alone on its sub-partition: ``cycles``, the ``latency`` of a wait for global loads, and the ``path`` with that
    latency."""

    cycles: float
    latency: float
    path: PathTime


@dataclass(frozen=True, slots=True)
class Waves:
    """A launch as waves of ``resident`` CTAs per SM: its cycles, those that each resource needs for all waves (``bounds``), and the
    cycles of the waves in which the resource is the limiter (``decided``)."""

    resident: int
    cycles: float
    bounds: Mapping[str, float]
    decided: Mapping[str, float]
    alone: WarpAlone
    resources: list[ResourceBound]


@dataclass(frozen=True, slots=True)
class WaveModel:
    """One launch on one machine by one of ``MODELS``; ``caches``: as in ``timing.estimate``."""

    given: TimingInput
    machine: Machine
    resident: Occupancy
    caches: str
    model: str
    _paths: dict[float, PathTime] = field(default_factory=dict, compare=False, repr=False)

    def estimate(self) -> Estimate:
        machine, given = self.machine, self.given
        best = self.waves()
        launch_us = machine.launch_overhead_us
        exec_us = machine.microseconds(best.cycles)
        bounds = best.bounds
        limiter = max(best.decided, key=lambda name: best.decided[name])
        if limiter == "l1" and bounds.get("shared", 0.0) > bounds["l1"] / 2:
            limiter = "shared"
        if launch_us > exec_us:
            limiter = "launch"
        in_us = {name: machine.microseconds(part) for name, part in bounds.items() if part > 0.0}
        return Estimate(
            machine=machine.id,
            machine_revision=machine.revision,
            model=self.model,
            time_us=launch_us + exec_us,
            launch_us=launch_us,
            cycles=best.cycles,
            limiter=limiter,
            bounds={"launch": launch_us, **in_us},
            occupancy=self.resident.ratio,
            ctas_per_sm=self.resident.ctas_per_sm,
            occupancy_limiter=self.resident.limiter,
            waves=given.ctas / (self.resident.ctas_per_sm * machine.sm_count),
            notes=self.notes(best, limiter),
        )

    def stalls(self) -> dict[Wait, tuple[float, float]]:
        """The waits of the average warp, with their cycles and number. Global loads have the latency under the load of a wave if it is
        computed, else that of a warp alone."""
        best = self.waves()
        loaded = self.under_load(best)
        return path_stalls(
            self.given.path,
            self.machine.lanes,
            self.latencies(best.alone.latency if loaded is None else loaded),
            waits=self.given.waits,
            issue_rate=self.machine.issue_rate,
        )

    def waves(self) -> Waves:
        """The launch in waves of as many CTAs per SM as fit, or of fewer if these take less.

        Only the model has waves that wait for each other: hardware starts a CTA as soon as there is room, and more room never slows it
        down. In the model, one CTA after a full wave may take longer than two waves of half the size.
        """
        most = self.resident.ctas_per_sm
        if self.model != MODELS[0]:
            return self.in_waves_of(most, self.caches_of(most))
        best: Waves | None = None
        known: dict[CacheEstimate, tuple[list[ResourceBound], WarpAlone]] = {}
        # No more CTAs are resident than the grid has for an SM.
        for resident in range(min(most, -(-self.given.ctas // self.machine.sm_count)), 0, -1):
            waves = self.in_waves_of(resident, self.caches_of(resident), known)
            if best is None or waves.cycles < best.cycles:
                best = waves
        assert best is not None
        return best

    def caches_of(self, resident: int) -> CacheEstimate:
        return estimate_caches(
            self.given, self.machine, replace(self.resident, ctas_per_sm=resident), caches=self.caches
        )

    def in_waves_of(
        self,
        resident: int,
        caches: CacheEstimate,
        known: dict[CacheEstimate, tuple[list[ResourceBound], WarpAlone]] | None = None,
    ) -> Waves:
        machine, given = self.machine, self.given
        if known is None or caches not in known:
            resources = resource_bounds(given, machine, caches)
            if self.model == "roofline-datasheet":
                resources = [resource for resource in resources if resource.name in _AT_DATA_SHEET]
            if self.model == MODELS[0]:  # The other models are kept as published.
                resources.append(dispatch_bound(machine))
                if given.memory.atomic_operations:
                    resources.append(atomics_bound(given, machine))
            alone = self.warp_alone(caches)
            if known is not None:
                known[caches] = resources, alone
        else:
            resources, alone = known[caches]
        latency = alone.cycles + self.turnaround() + self.barriers()
        capacity = resident * machine.sm_count
        full, tail = divmod(given.ctas, capacity)
        bounds = dict.fromkeys(["latency", *(resource.name for resource in resources)], 0.0)
        decided = dict.fromkeys(bounds, 0.0)
        cycles = self.dispatch_cycles()
        before = last = 0.0
        for count, ctas in ((full, capacity), (1, tail)):
            if not count or not ctas:
                continue
            parts = {resource.name: resource.cycles(ctas, machine, given) for resource in resources}
            if not self.model.startswith("roofline"):
                parts["latency"] = latency
            for name, part in parts.items():
                bounds[name] += count * part
            # Ties are decided by the order of the table.
            slowest = max(parts, key=lambda name: parts[name])
            decided[slowest] += count * parts[slowest]
            if self.model == "kleimenov-popova-as-printed":
                cycles += count * self.printed_cycles(parts, ctas, alone.latency, caches)
            elif self.model.startswith("roofline"):
                cycles += count * max(parts.values())
            else:
                # A launch ends with its last wave, but not before the last CTA of the full wave before it.
                steady = self.wave_cycles(parts, alone, resident)
                ending = self.wave_cycles(parts, alone, resident, ramp=(ctas - 1) / machine.cta_rate)
                last = max(last, before + (count - 1) * steady + ending)
                before += count * steady
        return Waves(resident, cycles + last, bounds, decided, alone, resources)

    def notes(self, waves: Waves, limiter: str) -> tuple[str, ...]:
        """Notes for users: the source of the input, and the effect of atomics and loads."""
        notes = [f"registers and shared memory: {self.given.resources}", *self.given.notes]
        if limiter == "atomics":
            notes.append(self.given.hottest)
        loaded = self.under_load(waves)
        if loaded is not None:
            latency = waves.alone.latency
            notes.append(f"a wait for global loads takes {latency:.0f} cycles, {loaded:.0f} under this load")
        return tuple(notes)

    def under_load(self, waves: Waves) -> float | None:
        """Cycles of a global load in a full wave; ``None`` if no instruction waits for loads, or the path is too long."""
        alone = waves.alone
        if not alone.path.global_latencies or alone.path.instructions > _NOTED_INSTRUCTIONS:
            return None
        ctas = min(self.given.ctas, waves.resident * self.machine.sm_count)
        return self.loaded_latency(alone.latency, ctas, waves.resources)

    def warp_alone(self, caches: CacheEstimate) -> WarpAlone:
        """The time of a warp alone on the machine, from the levels that serve its loads.

        The paper gives every load the mean latency of all accesses, which ``as-printed`` keeps. A warp that waits for several sectors
        at once waits for the slowest of them. Each sector from beyond a level of memory lengthens at most one wait, by the additional
        latency, and no wait is longer than with all data in DRAM. The time is therefore the minimum of several bounds: every wait has
        the latency of DRAM; every wait has that of L2, plus the additional latency of each sector from DRAM; and so on. On a path with
        *w* waits, of which the farther sectors lengthen *m*, that is exactly min(w, m) long and w - min(w, m) short ones.
        """
        latencies = self.machine.latencies
        dram = float(latencies["dram"])
        if self.model == "kleimenov-popova-as-printed":
            mean = (
                caches.l1_hit * latencies["l1"]
                + (1.0 - caches.l1_hit) * caches.l2_hit * self.machine.l2_latency(caches.l2_far)
                + (1.0 - caches.l1_hit) * (1.0 - caches.l2_hit) * dram
            )
            path = self.path(mean)
            return WarpAlone(path.cycles, mean, path)
        path = self.path(dram)
        best = WarpAlone(path.cycles, dram, path)
        loads = path.global_loads
        sectors = SECTOR * self.given.ctas * self.given.warps_per_cta
        # Concurrent CTAs that read the same data all wait for it.
        shared = min(self.given.ctas, self.resident.ctas_per_sm * self.machine.sm_count)
        from_l2 = caches.l2_read_bytes / sectors
        from_dram = min(from_l2, shared * caches.dram_read_bytes / sectors)
        from_afar = min(from_l2, shared * (caches.dram_read_bytes + caches.l2_far_bytes) / sectors)
        near, l1 = float(latencies["l2"]), float(latencies["l1"])
        far = self.machine.l2_latency(1.0)
        # The probability that the first read from a partition is of a sector in another one.
        mixed = self.machine.l2_latency(1.0 - 1.0 / self.machine.l2_partitions)
        beyond_near = (from_afar - from_dram) * (far - near) + from_dram * (dram - near)
        levels = (
            (mixed, from_dram, from_dram * (dram - mixed)),
            (near, from_afar, beyond_near),
            (l1, from_l2, from_l2 * (near - l1) + beyond_near),
        )
        for latency, farther, more in levels:
            if latency < best.latency and farther < loads:
                path = self.path(latency)
                if path.cycles + more < best.cycles:
                    waits = path.global_latencies
                    effective = min(dram, latency + more / waits) if waits else latency
                    best = WarpAlone(path.cycles + more, effective, path)
        if best.latency not in self._paths:
            best = replace(best, path=self.path(best.latency))
        return best

    def path(self, global_latency: float) -> PathTime:
        """The path of the average warp with this latency of global loads."""
        path = self._paths.get(global_latency)
        if path is None:
            path = self._paths[global_latency] = self._follow(global_latency)
        return path

    def latencies(self, global_latency: float) -> dict[str, float]:
        """Cycles by name of the latency, with this latency of global loads."""
        machine = self.machine
        latencies: dict[str, float] = {**machine.latencies, **self.given.latencies}
        latencies["global"] = global_latency
        latencies["constant"] = latencies["l1"]
        caches = self.caches_of(self.resident.ctas_per_sm)
        below = caches.local_dram_bytes / caches.local_l2_bytes if caches.local_l2_bytes else 0.0
        beyond = latencies["l2"] - latencies["l1"] + below * (latencies["dram"] - latencies["l2"])
        latencies["local"] = latencies["l1"] + (1.0 - caches.local_hit) * beyond
        # Atomics are executed in the partition of their address.
        latencies["atomic"] = machine.l2_latency(1.0 - 1.0 / machine.l2_partitions)
        memory = self.given.memory
        if memory.texture_misses and "tex" in latencies:
            left = caches.l2_left
            below = latencies["atomic"] + (1.0 - left) * (latencies["dram"] - latencies["atomic"])
            latencies["tex"] += memory.texture_misses * (below - latencies["l1"])
        return latencies

    def _follow(self, global_latency: float) -> PathTime:
        machine = self.machine
        return path_time(
            self.given.path,
            machine.lanes,
            self.latencies(global_latency),
            waits=self.given.waits,
            issue_rate=machine.issue_rate,
            as_printed=self.model == "kleimenov-popova-as-printed",
        )

    def turnaround(self) -> float:
        return 0.0 if self.model == "kleimenov-popova-as-printed" else float(self.machine.cta_turnaround)

    def dispatch_cycles(self) -> float:
        """The paper's ``gridSize · x1``: all slots start CTAs one after another, at the rate of an empty kernel."""
        if self.model != "kleimenov-popova-as-printed":
            return 0.0
        slots = self.machine.sm_count * self.resident.ctas_per_sm
        return self.machine.cta_turnaround * self.given.ctas / slots

    def barriers(self) -> float:
        """Cycles on the path of a warp until all warps of its CTA have passed the barriers, one after another."""
        lanes = self.machine.lanes.get("adu", 32.0) * self.machine.sub_partitions
        return self.given.barriers * self.given.warps_per_cta * 32 / lanes

    def wave_cycles(
        self, parts: Mapping[str, float], alone: WarpAlone, resident: int, *, ramp: float | None = None
    ) -> float:
        """The corrected model's time of a wave: until the next wave has replaced it, or the last wave has ended.

        ``ramp``, for the last wave only, is the start of its last CTA: all other CTAs have started before, so the latency is added to
        it. A unit is idle before the first warps reach it and after the last instruction has left it. The latency before and after is
        added to the time in which the unit is busy, unless other CTAs use it meanwhile.
        """
        latency = parts["latency"]
        memory = max(parts.get(name, 0.0) for name in ("l2", "dram", "atomics"))
        longest = max(*parts.values(), smooth_max(latency + (ramp or 0.0), memory))
        if ramp is not None or resident == 1:
            for name, share, idle in self.idle(alone.path):
                longest = max(longest, share * parts.get(name, 0.0) + idle)
        return longest

    def idle(self, alone: PathTime) -> Iterator[tuple[str, float, float]]:
        """Resources of the SM, each with a share of its work (0 to 1) and the cycles in which it is idle for this work at the start
        and the end of a wave. A pipe that units share appears with the work of its own unit, and with all work."""
        turnaround, counts = self.turnaround(), self.given.warp_instructions
        for name, head in alone.heads.items():
            guests = [
                unit
                for unit, pipe in self.machine.shared_pipes.items()
                if pipe == name and unit in alone.heads
            ]
            all_of_it = sum(counts.get(unit, 0.0) for unit in (name, *guests))
            if all_of_it:
                yield name, counts.get(name, 0.0) / all_of_it, turnaround + head + alone.tails[name]
            first = min(alone.heads[unit] for unit in (name, *guests))
            rest = min(alone.tails[unit] for unit in (name, *guests))
            yield name, 1.0, turnaround + first + rest
            if name == "lsu":
                yield "l1", 1.0, turnaround + first + rest

    def printed_cycles(
        self, parts: Mapping[str, float], ctas: int, base: float, caches: CacheEstimate
    ) -> float:
        """The time of a wave through the printed fix-points of L2, then DRAM, each starting from the previous latency."""
        delays = max(part for name, part in parts.items() if name not in ("latency", "l2", "dram"))
        share = ctas / self.given.ctas
        fixed = self.barriers()

        def time(latency: float) -> float:
            return max(self.path(latency).cycles + fixed, delays)

        at_l2 = fix_point(time, base, caches.l2_bytes * share, self.machine.l2_bandwidth, as_printed=True)
        rate = dram_rate(caches, self.machine)
        return fix_point(time, at_l2.latency, caches.dram_bytes * share, rate, as_printed=True).time

    def loaded_latency(self, base: float, ctas: int, resources: list[ResourceBound]) -> float:
        """The effective latency of a global load in a wave of ``ctas`` CTAs: the corrected fix-points of L2, then DRAM."""
        fixed = self.turnaround() + self.barriers()

        def time(latency: float) -> tuple[float, float]:
            alone = self.path(latency)
            return alone.cycles + fixed, alone.global_latencies

        latency = base
        for resource in resources:
            if resource.name in ("l2", "dram"):
                latency = loaded_latency(
                    time, latency, resource.cycles(ctas, self.machine, self.given), 1.0
                ).latency
        return latency
