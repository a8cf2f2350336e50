"""Predicted time of observed launches on a machine: the public entry, with all models (``timing.wave_model``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from ..errors import MachineError, NotObserved, UnknownName, Unsupported, nearest
from ..results import SECTOR_BYTES, Estimate, Profile, Resources
from .adapt import launch_key, timing_input
from .inputs import TimingInput
from .machine import Machine, load_machine
from .occupancy import occupancy
from .targets import can_run
from .wave_model import MODELS, WaveModel

__all__ = ["CACHES", "MODELS", "estimate", "saving_us"]

CACHES = ("cold", "warm")


def estimate(
    profile: Profile | TimingInput,
    machine: Machine | str,
    *,
    resources: Resources | None = None,
    model: str = "kleimenov-popova",
    caches: str = "cold",
    search: Iterable[str] = (),
) -> Estimate:
    """Predict the time of a launch (of all launches, if the profile is a sum of several).

    ``profile`` is what ``Device.launch`` returned, or a :class:`TimingInput`; ``machine`` an id or a loaded machine;
    ``resources`` replaces the profile's registers and shared memory where given; ``caches``: ``cold``, or ``warm`` for a launch
    that is run again and again, so that it finds in L2 what it left there; ``search`` adds folders of machine files.

    In the result ``bounds`` are µs by resource: ``launch``, ``latency``, ``issue``, a unit, ``l1`` (with ``shared``, the
    part of shared memory in it), ``l2``, ``dram``, ``atomics`` (those at the busiest address follow each other), ``dispatch`` (CTAs
    are started one after the other), each the time that this resource alone would allow;
    ``time_us`` is never less than any of them, and ``limiter`` is the resource that decides the
    largest part of it. ``cycles`` are SM clock cycles without ``launch_us``. ``waves`` is how often the grid fills the machine.

    Raises :class:`UnknownName` for an unknown machine or model, :class:`MachineError` for PTX whose ``.target`` cannot run on
    the machine, :class:`Unsupported` for a unit that the machine does not describe, :class:`LaunchError` where no CTA fits
    on an SM, and :class:`NotObserved` if memory was not observed.
    """
    if model not in MODELS:
        raise UnknownName(f"unknown model of time {model!r}", hint=nearest(model, MODELS, noun="model"))
    if caches not in CACHES:
        raise UnknownName(
            f"unknown state of the caches {caches!r}", hint=nearest(caches, CACHES, noun="state")
        )
    if not isinstance(machine, Machine):
        machine = load_machine(machine, search)
    if isinstance(profile, TimingInput):
        return _predict(profile, machine, model, caches)
    if not can_run(profile.target, machine):
        capability = ".".join(map(str, machine.compute_capability))
        raise MachineError(
            f"PTX for {profile.target} cannot run on {machine.id} (compute capability {capability})",
            details=[f"kernel {profile.kernel} of {profile.path}"],
            hint=f"give this machine PTX for {machine.targets[-1]} or lower, or leave it out of the targets",
        )
    predicted: dict[Hashable, tuple[Estimate, int]] = {}
    for record in profile.records:
        key = launch_key(record)
        if key in predicted:
            known, times = predicted[key]
            predicted[key] = known, times + 1
        else:
            used = resources or replace(profile.resources, shared_bytes=record.plan.shared_bytes)
            predicted[key] = _predict(timing_input(record, machine, used), machine, model, caches), 1
    if not predicted:
        raise NotObserved(f"the profile of {profile.kernel!r} holds no launch to predict the time of")
    return _sum(list(predicted.values()))


def saving_us(
    profile: Profile, machine: Machine | str, *, loaded: int = 0, stored: int = 0, search: Iterable[str] = ()
) -> float:
    """How much less the launches are predicted to take without so many bytes of their traffic with global memory; see ``estimate``
    for the machine and the errors.

    Loads and stores shrink alike in all launches, with their requests, sectors and footprints; the instructions stay.
    """
    if not isinstance(machine, Machine):
        machine = load_machine(machine, search)
    now = less = 0.0
    whole = _moved(profile)
    shares = [1.0 - min(1.0, gone / of) if of else 1.0 for gone, of in zip((loaded, stored), whole)]
    known: dict[Hashable, tuple[float, float]] = {}
    for record in profile.records:
        key = launch_key(record)
        if key not in known:
            used = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
            given = timing_input(record, machine, used)
            smaller = replace(given, memory=given.memory.scaled(*shares))
            before, after = (_predict(item, machine, "kleimenov-popova", "cold") for item in (given, smaller))
            known[key] = before.time_us, after.time_us
        now, less = now + known[key][0], less + known[key][1]
    return max(0.0, now - less)


def _moved(profile: Profile) -> tuple[int, int]:
    """Bytes of the sectors that are loaded and stored."""
    memory = profile.memory
    return SECTOR_BYTES * memory.global_load_sectors, SECTOR_BYTES * memory.global_store_sectors


def _predict(given: TimingInput, machine: Machine, model: str, state: str) -> Estimate:
    _check_units(given, machine)
    resident = occupancy(
        machine,
        threads_per_cta=given.threads_per_cta,
        registers_per_thread=given.registers_per_thread,
        shared_bytes=given.shared_bytes,
    )
    return WaveModel(given, machine, resident, state == "warm", model).estimate()


def _sum(parts: list[tuple[Estimate, int]]) -> Estimate:
    """Launches one after the other: times and bounds add up; the rest is that of the launch that takes longest."""
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
    )


def _check_units(given: TimingInput, machine: Machine) -> None:
    for unit in sorted(given.warp_instructions):
        if unit != "none" and given.warp_instructions[unit] and unit not in machine.lanes:
            raise Unsupported(
                f"machine {machine.id!r} does not describe the unit {unit!r}, which the kernel uses",
                hint=f"described: {', '.join(sorted(machine.lanes))}",
            )
