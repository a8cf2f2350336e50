"""The time of a launch as that of its waves: latency, issue, pipes and memory of each wave, and what limits it.

The default model is Kleimenov and Popova's in its corrected form (``timing.kleimenov_popova``): a wave of resident CTAs
takes as long as the slowest of what it needs, and longer where latency and memory bandwidth meet. It starts from exact counts;
what it assumes stands in ``docs/timing.md``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..results import Estimate
from .caches import CacheEstimate
from .inputs import TimingInput
from .kleimenov_popova import fix_point, loaded_latency
from .machine import Machine
from .occupancy import Occupancy
from .path_time import PathTime, path_time
from .roofs import WAVEFRONT, Roof, dispatch_roof, dram_rate, load_passes, roofs

__all__ = ["MODELS", "WaveModel", "knee"]

_NOTED_INSTRUCTIONS = 2000
"""Static instructions of a path up to which the latency under load, which takes several passes over it, is worked out."""

MODELS = ("kleimenov-popova", "kleimenov-popova-as-printed", "roofline")


def knee(latency: float, bandwidth: float) -> float:
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
class WaveModel:
    """One launch on one machine, by one of ``MODELS``."""

    given: TimingInput
    machine: Machine
    resident: Occupancy
    caches: CacheEstimate
    model: str
    _paths: dict[float, PathTime] = field(default_factory=dict, compare=False, repr=False)

    def estimate(self) -> Estimate:
        machine, given = self.machine, self.given
        found = roofs(given, machine, self.caches)
        if self.model == MODELS[0]:  # the others are what they were published as
            found.append(dispatch_roof(machine))
        base = self.base_latency()
        alone = self.path(base)
        latency = alone.cycles + self.turnaround() + self.barriers()
        waves = self.waves()

        bounds = dict.fromkeys(["latency", *(roof.name for roof in found)], 0.0)
        decided = dict.fromkeys(bounds, 0.0)
        cycles = self.dispatch_cycles()
        for number, (count, ctas) in enumerate(waves):
            parts = {roof.name: roof.cycles(ctas, machine, given) for roof in found}
            if self.model != "roofline":
                parts["latency"] = latency
            for name, part in parts.items():
                bounds[name] += count * part
            # The first of equals in the order of the table decides, so that ties do not depend on anything else.
            slowest = max(parts, key=lambda name: parts[name])
            decided[slowest] += count * parts[slowest]
            if self.model == "kleimenov-popova-as-printed":
                cycles += count * self.printed_cycles(parts, ctas, base)
            elif self.model == "roofline":
                cycles += count * max(parts.values())
            else:
                ends = number == len(waves) - 1
                cycles += (count - ends) * self.wave_cycles(parts, alone)
                if ends:
                    cycles += self.wave_cycles(parts, alone, ramp=(ctas - 1) / machine.cta_rate)
        launch_us = machine.launch_overhead_us
        exec_us = machine.microseconds(cycles)
        limiter = max(decided, key=lambda name: decided[name])
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
            cycles=cycles,
            limiter=limiter,
            bounds={"launch": launch_us, **in_us},
            occupancy=self.resident.ratio,
            ctas_per_sm=self.resident.ctas_per_sm,
            occupancy_limiter=self.resident.limiter,
            waves=given.ctas / (self.resident.ctas_per_sm * machine.sm_count),
            notes=self.notes(base, alone, waves[0][1], found),
        )

    def notes(self, base: float, alone: PathTime, ctas: int, found: list[Roof]) -> tuple[str, ...]:
        """Remarks for people: where the inputs come from, and what loads wait for."""
        notes = [f"registers and shared memory: {self.given.resources}", *self.given.notes]
        if alone.global_latencies and alone.instructions <= _NOTED_INSTRUCTIONS:
            loaded = self.loaded_latency(base, ctas, found)
            notes.append(f"a wait for global loads takes {base:.0f} cycles, {loaded:.0f} under this load")
        return tuple(notes)

    def waves(self) -> list[tuple[int, int]]:
        """(how many, CTAs in each): the full waves and the tail."""
        capacity = self.resident.ctas_per_sm * self.machine.sm_count
        full, tail = divmod(self.given.ctas, capacity)
        return [wave for wave in ((full, capacity), (1, tail)) if wave[0] and wave[1]]

    def base_latency(self) -> float:
        """Cycles that a warp waits for its global loads each time it waits, on a machine without load.

        The paper takes the mean over all accesses. A warp that waits for several loads at once waits for the slowest of
        them: with misses spread evenly over its waits, a wait for *n* loads of miss rate *m* meets a miss with
        probability min(1, n · m). ``as-printed`` keeps the mean (n = 1).
        """
        latencies, caches, memory = self.machine.latencies, self.caches, self.given.memory
        at_once = 1.0
        if self.model != "kleimenov-popova-as-printed":
            alone = self.path(float(latencies["dram"]))
            at_once = max(1.0, alone.global_loads / alone.global_latencies) if alone.global_latencies else 1.0
        beyond_l1 = min(1.0, at_once * (1.0 - caches.l1_hit))
        beyond_l2 = min(beyond_l1, at_once * (1.0 - caches.l1_hit) * (1.0 - caches.l2_hit))
        mean = (
            (1.0 - beyond_l1) * latencies["l1"]
            + (beyond_l1 - beyond_l2) * self.machine.l2_latency(caches.l2_far)
            + beyond_l2 * latencies["dram"]
        )
        if memory.load_requests:
            data = load_passes(memory) * WAVEFRONT / self.machine.l1_bandwidth
            mean += max(0.0, max(data, memory.load_tag_wavefronts) / memory.load_requests - 1.0)
        return mean

    def path(self, global_latency: float) -> PathTime:
        """The way of the longest warp where global loads take so many cycles."""
        found = self._paths.get(global_latency)
        if found is None:
            found = self._paths[global_latency] = self._follow(global_latency)
        return found

    def _follow(self, global_latency: float) -> PathTime:
        machine = self.machine
        latencies: dict[str, float] = {**machine.latencies, **self.given.latencies}
        latencies["global"] = global_latency
        latencies["local"] = latencies["constant"] = latencies["l1"]
        # atomics are done in the partition that the address belongs to
        latencies["atomic"] = machine.l2_latency(1.0 - 1.0 / machine.l2_partitions)
        memory = self.given.memory
        if memory.shared_requests:
            passes = memory.shared_wavefronts / memory.shared_requests * WAVEFRONT / machine.l1_bandwidth
            latencies["shared"] += max(0.0, passes - 1.0)
        if memory.texture_misses and "tex" in latencies:
            near = machine.l2_latency(self.caches.l2_far)
            below = near + (1.0 - self.caches.l2_hit) * (latencies["dram"] - near)
            latencies["tex"] += memory.texture_misses * (below - latencies["l1"])
        return path_time(
            self.given.path,
            machine.lanes,
            latencies,
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

    def wave_cycles(self, parts: Mapping[str, float], alone: PathTime, *, ramp: float | None = None) -> float:
        """The corrected model's time of a wave: until the next has taken its place, or of the last one to its end.

        ``ramp``, for the last wave only, is when its last CTA starts: all others have been started before it, so its latency comes
        on top. And nothing is in the pipe of a unit before the first warps come to it, nor after the last have left it: what
        their way is longer than their stay at the unit comes on top of the time that it is busy, unless other CTAs are there
        meanwhile.
        """
        latency = parts["latency"]
        memory = max(parts.get("l2", 0.0), parts.get("dram", 0.0))
        longest = max(*parts.values(), knee(latency + (ramp or 0.0), memory))
        if ramp is not None or self.resident.ctas_per_sm == 1:
            for name, stay in self.stays(alone).items():
                longest = max(longest, latency + parts.get(name, 0.0) - stay)
        return longest

    def stays(self, alone: PathTime) -> Mapping[str, float]:
        """How long a warp alone stays at each resource of its SM: from its first instruction there, or that of a unit that shares
        the pipe, to the last; at least the longest of these units' stays. Barriers are taken to lie in between."""
        barriers = self.barriers()
        stays = {unit: span + barriers for unit, span in alone.spans.items()}
        for guest, pipe in self.machine.shared_pipes.items():
            if guest in stays:
                stays[pipe] = max(stays.get(pipe, 0.0), stays[guest])
        if "lsu" in stays:
            stays["l1"] = stays["lsu"]
        return stays

    def printed_cycles(self, parts: Mapping[str, float], ctas: int, base: float) -> float:
        """The wave through the fix-points as printed: L2, then DRAM, each from the latency that the one before left."""
        delays = max(part for name, part in parts.items() if name not in ("latency", "l2", "dram"))
        share = ctas / self.given.ctas
        fixed = self.barriers()

        def time(latency: float) -> float:
            return max(self.path(latency).cycles + fixed, delays)

        found = fix_point(
            time, base, self.caches.l2_bytes * share, self.machine.l2_bandwidth, as_printed=True
        )
        rate = dram_rate(self.caches, self.machine)
        return fix_point(time, found.latency, self.caches.dram_bytes * share, rate, as_printed=True).time

    def loaded_latency(self, base: float, ctas: int, found: list[Roof]) -> float:
        """Effective latency of a global load in a wave of this many CTAs: the corrected fix-points of L2, then DRAM."""
        fixed = self.turnaround() + self.barriers()

        def time(latency: float) -> tuple[float, float]:
            alone = self.path(latency)
            return alone.cycles + fixed, alone.global_latencies

        latency = base
        for roof in found:
            if roof.name in ("l2", "dram"):
                latency = loaded_latency(
                    time, latency, roof.cycles(ctas, self.machine, self.given), 1.0
                ).latency
        return latency
