"""Predicted time of observed launches on a machine: the public entry, with all models (``timing.models.wave_model``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .._arguments import takes_annotated
from ..errors import MachineError, NotObserved, UnknownName, Unsupported, nearest
from ..machines.machine import Machine, load_machine
from ..machines.occupancy import Occupancy, occupancy
from ..machines.targets import can_run
from ..profile.build import LaunchRecord
from ..results import Estimate, Profile, Resources
from .launch.adapt import launch_key, timing_input
from .launch.inputs import EXPANDED, SIMULATION, TimingInput
from .models.hong_kim import HONG_KIM_MODELS, estimate_hong_kim
from .models.wave_model import MODELS as WAVE_MODELS
from .models.wave_model import WaveModel
from .why import add_advice, add_stalls, advice, stalls

__all__ = ["AUTO", "CACHES", "EXPANDED", "MODELS", "SIMULATION", "Predictor", "estimate"]

CACHES = ("cold", "warm", "dirty")

MODELS = (*WAVE_MODELS, *HONG_KIM_MODELS)
"""Models of the counts of a launch: first the one that replaces the simulations, then those for comparison."""

AUTO = "auto"
"""The simulation if there is an assembler and the launch can be simulated, else that on expanded PTX, else the first of ``MODELS``."""

_SIMULATIONS = {AUTO: (SIMULATION, EXPANDED), SIMULATION: (SIMULATION,), EXPANDED: (EXPANDED,)}
"""By ``model`` the simulations that are tried before the first of ``MODELS`` predicts, in order."""


@takes_annotated
def estimate(
    profile: Profile | TimingInput,
    machine: Machine | str,
    *,
    resources: Resources | None = None,
    model: str = AUTO,
    caches: str = "cold",
    search: Iterable[str | Path] = (),
    why: bool = False,
) -> Estimate:
    """Predict the time of a launch (of all launches, if the profile is a sum of several).

    ``profile`` is what ``Device.launch`` returned, or a :class:`TimingInput`; ``machine`` an id or a loaded machine;
    ``resources`` replaces the profile's registers and shared memory if given; ``caches``: ``cold``, ``warm`` for a launch
    that is run repeatedly, so that L2 holds the data of the previous run, or ``dirty`` if it is full of data that others have
    written, as where a benchmark overwrites it before each launch (``triton.testing.do_bench``, NVBench): what the launch reads
    makes DRAM write as much; ``search`` adds folders of machine files; ``why`` adds
    ``stalls`` and ``advice``, which take several additional predictions: simulations of a simulated launch, else predictions of
    Kleimenov-Popova.
    ``model``: ``simulation`` (of an SM on the machine code of ``ptxas``), ``simulation-expanded`` (on the machine code that the PTX
    suggests; needs no assembler), ``auto`` (the first of these two that is possible), or one of ``MODELS``. If there is no assembler
    or the launch cannot be simulated, the first of ``MODELS`` predicts; ``model`` of the result names the model, and the first note
    gives the reasons.

    In the result ``bounds`` are µs by resource: ``launch``, ``latency``, ``issue``, a unit, ``l1`` (with ``shared``, the
    part of shared memory in it), ``l2``, ``dram``, ``atomics`` (serialised at the hottest address), ``dispatch`` (CTAs are
    started one after another), each the time that this resource alone needs; ``time_us`` is never less than any of them, and
    ``limiter`` is the resource with the largest part of it. ``cycles`` are SM clock cycles without ``launch_us``. ``waves``
    is the number of times that the grid fills the machine.

    Raises :class:`UnknownName` for an unknown machine or model, :class:`MachineError` for PTX whose ``.target`` cannot run on
    the machine, :class:`Unsupported` for a unit that the machine does not describe, :class:`LaunchError` where no CTA fits
    on an SM, and :class:`NotObserved` if memory was not observed and the launch is not simulated.
    """
    return Predictor(machine, search=search, model=model, caches=caches).estimate(profile, resources, why=why)


@dataclass(frozen=True, slots=True)
class _Launch:
    """Equal launches of one program, and their prediction. ``record`` and ``resources`` are ``None`` if a ``TimingInput`` was
    given."""

    estimate: Estimate
    record: LaunchRecord | None = None
    resources: Resources | None = None
    #: Replacements of the resources that ``ptxas`` assigns.
    given_resources: Resources | None = None
    #: The input of the models, computed when needed; a simulated launch does not need it.
    seen: list[TimingInput] = field(default_factory=list)
    #: The estimate with stalls and advice, computed on request.
    explained: list[Estimate] = field(default_factory=list)
    #: Savings in µs without these shares of loads and stores.
    saved: dict[tuple[float, float], float] = field(default_factory=dict)

    def given(self, machine: Machine) -> TimingInput:
        """The input of the models. Raises ``NotObserved``."""
        if not self.seen:
            assert self.record is not None and self.resources is not None
            self.seen.append(timing_input(self.record, machine, self.resources))
        return self.seen[0]


class Predictor:
    """Predicts times of launches on one machine, once for equal launches. Arguments and errors as for ``estimate``.

    Launches are identified by the objects of their profiles, which must exist as long as the predictor is used.
    """

    def __init__(
        self,
        machine: Machine | str,
        *,
        search: Iterable[str | Path] = (),
        model: str = AUTO,
        caches: str = CACHES[0],
    ) -> None:
        self.model, self.caches = _checked(model, caches)
        self.machine = _machine(machine, search)
        self._known: dict[Hashable, _Launch] = {}

    def estimate(
        self, profile: Profile | TimingInput, resources: Resources | None = None, *, why: bool = False
    ) -> Estimate:
        """The time of a launch, or of all launches of a sum. ``resources`` and ``why`` as for ``estimate``."""
        alike = self._launches(profile, resources)
        return _sum([(self._explained(launch) if why else launch.estimate, times) for launch, times in alike])

    def _explained(self, launch: _Launch) -> Estimate:
        """The estimate with stalls and advice, if a simulation or the first of ``MODELS`` predicted it."""
        found = launch.estimate
        observed = launch.record is None or launch.record.observation.sites is not None
        simulated = found.model in (SIMULATION, EXPANDED)
        if not simulated and (found.model != MODELS[0] or not observed):
            return found
        if not launch.explained and simulated:
            from .models.simulation import Simulation
            from .simulated_why import explain_simulated

            assert launch.record is not None
            simulation = Simulation(
                launch.record,
                self.machine,
                self.caches,
                launch.given_resources,
                expanded=launch.resources if found.model == EXPANDED else None,
            )
            launch.explained.append(explain_simulated(found, simulation))
        if not launch.explained:

            def occupied(given: TimingInput) -> Occupancy:
                return _occupancy(given, self.machine)

            given = launch.given(self.machine)
            model = WaveModel(given, self.machine, occupied(given), self.caches, MODELS[0])
            waits = stalls(model)
            helps = advice(model, waits, launch.record, launch.resources, occupied)
            launch.explained.append(replace(found, stalls=waits, advice=helps))
        return launch.explained[0]

    def saving_us(self, profile: Profile | TimingInput, *, loads: float = 0.0, stores: float = 0.0) -> float:
        """The predicted saving without these shares (0 to 1) of the launches' loads from and stores to global memory.

        Requests, sectors and footprints of each shrink in proportion; the instructions stay.
        """
        gone = min(1.0, max(0.0, loads)), min(1.0, max(0.0, stores))
        return sum(times * self._saved(launch, gone) for launch, times in self._launches(profile))

    def copy_us(self, way: str, size: int) -> float:
        """The least time of a copy or memset of ``size`` bytes, with ``way`` as in ``Event.kind``. Copies to and from the host have
        the rate of the link in one direction (0 µs if the machine has none); others have the sustained rates of device memory, which a
        copy reads and writes. Overheads of the call are not included."""
        machine = self.machine
        if way in ("copy-in", "copy-out"):
            return size / (machine.host_bandwidth * 1e3) if machine.host_bandwidth else 0.0
        if way == "memset":
            return size / (machine.dram_sustained_one_way * 1e3)
        return 2 * size / (machine.dram_sustained_mixed * 1e3)

    def _saved(self, launch: _Launch, gone: tuple[float, float]) -> float:
        if gone not in launch.saved:
            given = launch.given(self.machine)
            loads, stores = gone
            smaller = replace(given, memory=given.memory.scaled(1.0 - loads, 1.0 - stores))
            before, after = (_predict(one, self.machine, self.model, self.caches) for one in (given, smaller))
            launch.saved[gone] = max(0.0, before.time_us - after.time_us) if any(gone) else 0.0
        return launch.saved[gone]

    def _launches(
        self, profile: Profile | TimingInput, resources: Resources | None = None
    ) -> list[tuple[_Launch, int]]:
        """Equal launches, each with its number."""
        if isinstance(profile, TimingInput):  # a ``TimingInput`` has no machine code
            found = _predict(profile, self.machine, self.model, self.caches)
            return [(_Launch(found, seen=[profile]), 1)]
        if not can_run(profile.target, self.machine):
            capability = ".".join(map(str, self.machine.compute_capability))
            raise MachineError(
                f"PTX for {profile.target} cannot run on {self.machine.id} (compute capability {capability})",
                details=[f"kernel {profile.kernel} of {profile.path}"],
                hint=f"give this machine PTX for {self.machine.targets[-1]} or lower, or remove it from the targets",
            )
        numbers: dict[Hashable, int] = {}
        for record in profile.records:
            used = resources or replace(profile.resources, shared_bytes=record.plan.shared_bytes)
            each = record.each
            key = self._key(each), used
            numbers[key] = numbers.get(key, 0) + record.times
            if key not in self._known:
                self._known[key] = self._launch(each, used, resources)
        if not numbers:
            raise NotObserved(f"the profile of {profile.kernel!r} holds no launch to predict the time of")
        return [(self._known[key], times) for key, times in numbers.items()]

    def _key(self, record: LaunchRecord) -> Hashable:
        """A key that is equal for launches with equal predictions of this model."""
        plan, key = record.plan, launch_key(record)
        return (key, plan.dynamic_shared, plan.parameters) if self.model in _SIMULATIONS else key

    def _launch(self, record: LaunchRecord, used: Resources, given: Resources | None) -> _Launch:
        """The prediction of one launch. If it cannot be simulated, the first of ``MODELS`` predicts it, with a note."""
        reasons: dict[str, str] = {}
        for name in _SIMULATIONS.get(self.model, ()):
            from .models.simulation import NotRun, simulated

            try:
                found = simulated(
                    record,
                    self.machine,
                    caches=self.caches,
                    resources=given,
                    expanded=used if name == EXPANDED else None,
                )
            except (MachineError, NotRun) as reason:
                reasons[name] = str(getattr(reason, "message", reason))
            else:
                notes = _not_simulated(reasons, name)
                return _Launch(replace(found, notes=(*notes, *found.notes)), record, used, given)
        notes = _not_simulated(reasons, MODELS[0])
        seen = timing_input(record, self.machine, used)
        found = _predict(seen, self.machine, self.model, self.caches)
        return _Launch(replace(found, notes=(*notes, *found.notes)), record, used, given, [seen])


def _not_simulated(reasons: dict[str, str], instead: str) -> tuple[str, ...]:
    """The note on why other models did not predict a launch, if any: ``reasons`` by model; one reason of all is said once."""
    if not reasons:
        return ()
    *first, last = reasons
    used = f"not possible, so {instead} is used"
    if len({*reasons.values()}) == 1:
        return (f"{' and '.join(reasons)}: {used}: {reasons[last]}",)
    said = [*(f"{name}: not possible: {reasons[name]}" for name in first), f"{last}: {used}: {reasons[last]}"]
    return ("; ".join(said),)


def _machine(machine: Machine | str, search: Iterable[str | Path]) -> Machine:
    return machine if isinstance(machine, Machine) else load_machine(machine, search)


def _checked(model: str, caches: str) -> tuple[str, str]:
    models = (*_SIMULATIONS, *MODELS)
    if model not in models:
        raise UnknownName(f"unknown time model {model!r}", hint=nearest(model, models, noun="model"))
    if caches not in CACHES:
        raise UnknownName(f"unknown cache state {caches!r}", hint=nearest(caches, CACHES, noun="state"))
    return model, caches


def _predict(given: TimingInput, machine: Machine, model: str, state: str) -> Estimate:
    _check_units(given, machine)
    if model in _SIMULATIONS:
        model = MODELS[0]
    resident = _occupancy(given, machine)
    if model in HONG_KIM_MODELS:
        return estimate_hong_kim(given, machine, resident, model, state=state)
    if model == "roofline-datasheet":
        machine = replace(
            machine,
            dram_sustained_one_way=machine.dram_bandwidth,
            dram_sustained_mixed=machine.dram_bandwidth,
        )
    return WaveModel(given, machine, resident, state, model).estimate()


def _occupancy(given: TimingInput, machine: Machine) -> Occupancy:
    return occupancy(
        machine,
        threads_per_cta=given.threads_per_cta,
        registers_per_thread=given.registers_per_thread,
        shared_bytes=given.shared_bytes,
    )


def _sum(parts: list[tuple[Estimate, int]]) -> Estimate:
    """The sum of consecutive launches: times and bounds add up; the other fields are those of the longest launch."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    bounds: dict[str, float] = {}
    limiters: dict[str, float] = {}
    for part, times in parts:
        limiters[part.limiter] = limiters.get(part.limiter, 0.0) + times * part.time_us
        for name, bound in part.bounds.items():
            bounds[name] = bounds.get(name, 0.0) + times * bound
    longest = max(parts, key=lambda part: part[0].time_us * part[1])[0]
    return replace(
        longest,
        time_us=sum(times * part.time_us for part, times in parts),
        launch_us=sum(times * part.launch_us for part, times in parts),
        cycles=sum(times * part.cycles for part, times in parts),
        limiter=max(limiters, key=lambda name: limiters[name]),
        bounds=bounds,
        notes=tuple(dict.fromkeys(note for part, _ in parts for note in part.notes)),
        stalls=add_stalls((stall, times) for part, times in parts for stall in part.stalls),
        advice=add_advice((item, times) for part, times in parts for item in part.advice),
        l2_read_sectors=_read(parts),
    )


def _read(parts: list[tuple[Estimate, int]]) -> int | None:
    """The sum of the sectors read from L2, if all launches have it."""
    found = [(part.l2_read_sectors, times) for part, times in parts]
    return (
        sum(times * (sectors or 0) for sectors, times in found)
        if all(s is not None for s, _ in found)
        else None
    )


def _check_units(given: TimingInput, machine: Machine) -> None:
    for unit in sorted(given.warp_instructions):
        if unit != "none" and given.warp_instructions[unit] and unit not in machine.lanes:
            raise Unsupported(
                f"machine {machine.id!r} does not describe the unit {unit!r}, which the kernel uses",
                hint=f"described: {', '.join(sorted(machine.lanes))}",
            )
