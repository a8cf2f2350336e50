"""The time of a launch as that of its waves: latency, issue, pipes and memory of each wave, and what limits it.

The default model is Kleimenov and Popova's in its corrected form (``timing.models.kleimenov_popova``): a wave of resident CTAs
takes as long as the slowest of what it needs, and longer where latency and memory bandwidth meet. It starts from exact counts;
what it assumes stands in ``docs/timing.md``.
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
"""Static instructions of a path up to which the latency under load, which takes several passes over it, is worked out."""

MODELS = ("kleimenov-popova", "kleimenov-popova-as-printed", "roofline", "roofline-datasheet")

_AT_DATA_SHEET = frozenset({"dram", "issue", *UNITS})
"""Resources whose rates a data sheet gives."""


def smooth_max(latency: float, bandwidth: float) -> float:
    """The cube root of the sum of the cubes: how long what waits for latency and for bandwidth takes.

    Real latency rises before the bandwidth is used up. Of the exponents 2, 3, 4 and 6 the third has the least median error on
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
    """A warp alone on its sub-partition: its ``cycles``, the ``latency`` of a wait for global loads, and its ``path`` at that."""

    cycles: float
    latency: float
    path: PathTime


@dataclass(frozen=True, slots=True)
class Waves:
    """A launch as waves of ``resident`` CTAs per SM: its cycles, those that each resource needs for all waves (``bounds``), and those
    of the waves that it decides."""

    resident: int
    cycles: float
    bounds: Mapping[str, float]
    decided: Mapping[str, float]
    alone: WarpAlone
    resources: list[ResourceBound]


@dataclass(frozen=True, slots=True)
class WaveModel:
    """One launch on one machine, by one of ``MODELS``; ``warm`` caches or cold ones."""

    given: TimingInput
    machine: Machine
    resident: Occupancy
    warm: bool
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
        """The waits of the average warp, their cycles and number: global loads take as long as under the load of a wave, where that
        is worked out, else as long as those of a warp alone."""
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
        """The launch in waves of as many CTAs per SM as fit, or of fewer where these take less.

        Waves that wait for each other are the model's, not the hardware's, which starts a CTA as soon as there is room: it is
        never slower with more room, while one CTA behind a full wave may take longer than two waves of half the size.
        """
        most = self.resident.ctas_per_sm
        if self.model != MODELS[0]:
            return self.in_waves_of(most, self.caches_of(most))
        best: Waves | None = None
        known: dict[CacheEstimate, tuple[list[ResourceBound], WarpAlone]] = {}
        # More than the grid has for an SM never come together.
        for resident in range(min(most, -(-self.given.ctas // self.machine.sm_count)), 0, -1):
            waves = self.in_waves_of(resident, self.caches_of(resident), known)
            if best is None or waves.cycles < best.cycles:
                best = waves
        assert best is not None
        return best

    def caches_of(self, resident: int) -> CacheEstimate:
        return estimate_caches(
            self.given, self.machine, replace(self.resident, ctas_per_sm=resident), warm=self.warm
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
            if self.model == MODELS[0]:  # the others are what they were published as
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
            # The first of equals in the order of the table decides, so that ties do not depend on anything else.
            slowest = max(parts, key=lambda name: parts[name])
            decided[slowest] += count * parts[slowest]
            if self.model == "kleimenov-popova-as-printed":
                cycles += count * self.printed_cycles(parts, ctas, alone.latency, caches)
            elif self.model.startswith("roofline"):
                cycles += count * max(parts.values())
            else:
                # A launch ends when its last wave ends, and not before the last CTA of the full wave before it has ended.
                steady = self.wave_cycles(parts, alone, resident)
                ending = self.wave_cycles(parts, alone, resident, ramp=(ctas - 1) / machine.cta_rate)
                last = max(last, before + (count - 1) * steady + ending)
                before += count * steady
        return Waves(resident, cycles + last, bounds, decided, alone, resources)

    def notes(self, waves: Waves, limiter: str) -> tuple[str, ...]:
        """Remarks for people: where the inputs come from, what atomics and what loads wait for."""
        notes = [f"registers and shared memory: {self.given.resources}", *self.given.notes]
        if limiter == "atomics":
            notes.append(self.given.hottest)
        loaded = self.under_load(waves)
        if loaded is not None:
            latency = waves.alone.latency
            notes.append(f"a wait for global loads takes {latency:.0f} cycles, {loaded:.0f} under this load")
        return tuple(notes)

    def under_load(self, waves: Waves) -> float | None:
        """Cycles of a global load in a full wave; ``None`` where nothing waits for loads, or the path is too long to work it out."""
        alone = waves.alone
        if not alone.path.global_latencies or alone.path.instructions > _NOTED_INSTRUCTIONS:
            return None
        ctas = min(self.given.ctas, waves.resident * self.machine.sm_count)
        return self.loaded_latency(alone.latency, ctas, waves.resources)

    def warp_alone(self, caches: CacheEstimate) -> WarpAlone:
        """The time of a warp that has the machine for itself, from where its loads are served.

        The paper gives every load the mean latency over all accesses, which ``as-printed`` keeps. A warp that waits for several
        sectors at once waits for the slowest of them: of those that come from further away than a level of memory, each makes one
        wait at most longer by the way beyond that level, and no wait is longer than if everything came from DRAM. So the time is
        the least of: every wait as long as for DRAM; every wait as long as for L2, and as much more for each sector
        from DRAM; and so on. On a path with *w* waits, of which the farther sectors lengthen *m*, that is exactly min(w, m) long
        and w - min(w, m) short ones.
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
        # CTAs that run together and read the same all wait for it, whoever was first
        shared = min(self.given.ctas, self.resident.ctas_per_sm * self.machine.sm_count)
        from_l2 = caches.l2_read_bytes / sectors
        from_dram = min(from_l2, shared * caches.dram_read_bytes / sectors)
        from_afar = min(from_l2, shared * (caches.dram_read_bytes + caches.l2_far_bytes) / sectors)
        near, l1 = float(latencies["l2"]), float(latencies["l1"])
        far = self.machine.l2_latency(1.0)
        # what is read from a partition for the first time lies in another one with this probability
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
        """The way of the longest warp where global loads take so many cycles."""
        path = self._paths.get(global_latency)
        if path is None:
            path = self._paths[global_latency] = self._follow(global_latency)
        return path

    def latencies(self, global_latency: float) -> dict[str, float]:
        """Cycles by name of a latency, where global loads take so many."""
        machine = self.machine
        latencies: dict[str, float] = {**machine.latencies, **self.given.latencies}
        latencies["global"] = global_latency
        latencies["constant"] = latencies["l1"]
        caches = self.caches_of(self.resident.ctas_per_sm)
        below = caches.local_dram_bytes / caches.local_l2_bytes if caches.local_l2_bytes else 0.0
        beyond = latencies["l2"] - latencies["l1"] + below * (latencies["dram"] - latencies["l2"])
        latencies["local"] = latencies["l1"] + (1.0 - caches.local_hit) * beyond
        # atomics are done in the partition that the address belongs to
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
        """The paper's ``gridSize · x1``: with CTAs started one after the other on every slot, as an empty kernel does."""
        if self.model != "kleimenov-popova-as-printed":
            return 0.0
        slots = self.machine.sm_count * self.resident.ctas_per_sm
        return self.machine.cta_turnaround * self.given.ctas / slots

    def barriers(self) -> float:
        """Cycles on the path of a warp for all warps of its CTA to pass the barriers (they pass one after the other)."""
        lanes = self.machine.lanes.get("adu", 32.0) * self.machine.sub_partitions
        return self.given.barriers * self.given.warps_per_cta * 32 / lanes

    def wave_cycles(
        self, parts: Mapping[str, float], alone: WarpAlone, resident: int, *, ramp: float | None = None
    ) -> float:
        """The corrected model's time of a wave: until the next has taken its place, or of the last one to its end.

        ``ramp``, for the last wave only, is when its last CTA starts: all others have been started before it, so its latency comes
        on top. And a unit has nothing to do before the first warps come to it, nor after the last instruction has left it: their way
        there, and the rest of that instruction's latency, come on top of the time that it is busy, unless other CTAs are there
        meanwhile.
        """
        latency = parts["latency"]
        memory = max(parts.get(name, 0.0) for name in ("l2", "dram", "atomics"))
        longest = max(*parts.values(), smooth_max(latency + (ramp or 0.0), memory))
        if ramp is not None or resident == 1:
            for name, share, idle in self.idle(alone.path):
                longest = max(longest, share * parts.get(name, 0.0) + idle)
        return longest

    def idle(self, alone: PathTime) -> Iterator[tuple[str, float, float]]:
        """Resources of the SM with a share of their work (0 to 1) and the cycles in which they have nothing of it to do while a wave
        starts and ends: until the first instruction is there, and after the last has left. Of a pipe that units share: with
        the work of its own unit, and with all."""
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
        """The wave through the fix-points as printed: L2, then DRAM, each from the latency that the one before left."""
        delays = max(part for name, part in parts.items() if name not in ("latency", "l2", "dram"))
        share = ctas / self.given.ctas
        fixed = self.barriers()

        def time(latency: float) -> float:
            return max(self.path(latency).cycles + fixed, delays)

        at_l2 = fix_point(time, base, caches.l2_bytes * share, self.machine.l2_bandwidth, as_printed=True)
        rate = dram_rate(caches, self.machine)
        return fix_point(time, at_l2.latency, caches.dram_bytes * share, rate, as_printed=True).time

    def loaded_latency(self, base: float, ctas: int, resources: list[ResourceBound]) -> float:
        """Effective latency of a global load in a wave of this many CTAs: the corrected fix-points of L2, then DRAM."""
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
