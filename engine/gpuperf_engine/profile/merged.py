"""Launches of one kernel in one shape, as a stream of them may repeat: those with equal counters are kept once, with their number."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ..results import Profile, Race, Resources
from ..simt.console import Console
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from .build import LaunchRecord, build_profile

__all__ = ["MergedLaunches", "one_launch"]

#: launches with different counters that are kept apart; further ones are added up
DISTINCT = 32
#: plans of launches whose inputs are known, each with their number
_Plans = dict[Hashable, tuple[LaunchPlan, int]]
#: notes, remarks and races that are kept of each kind
_NOTED = 100
_MEAN = "the time of {:,} launches with different counts is predicted from their mean"


class MergedLaunches:
    """Merges profiles of launches to at most ``DISTINCT`` + 1, so that memory and time per launch are bounded. Counts are exact; the
    time of launches that are added up is predicted from their mean."""

    def __init__(self) -> None:
        self.launches = 0
        self._groups: dict[Hashable, list[int]] = {}
        self._records: list[LaunchRecord] = []
        #: of each of these the plans of launches whose inputs are known, and their number
        self._same: list[_Plans] = []
        self._rest: LaunchRecord | None = None
        self._same_of_rest: _Plans = {}
        self._resources: Resources | None = None
        self._notes: dict[str, None] = {}
        self._remarks: dict[str, None] = {}
        self._races: dict[Hashable, Race] = {}

    def add(self, profile: Profile) -> int:
        """Add a result of ``Device.launch``. Returns the index of its profile in ``profiles()``."""
        self.launches += 1
        self._resources = self._resources or profile.resources
        self._note(profile)
        (record,) = profile.records
        key = _key(record)
        group = self._groups.get(key)
        if group is not None:
            group[0] += 1
            _keep(self._same[group[1]], record.plan)
            return group[1]
        if len(self._groups) < DISTINCT:
            self._groups[key] = [1, len(self._records)]
            self._records.append(_quiet(record))
            self._same.append({})
            _keep(self._same[-1], record.plan)
            return len(self._records) - 1
        _keep(self._same_of_rest, record.plan)
        if self._rest is None:
            quiet = _quiet(record)
            self._rest = replace(quiet, plan=replace(quiet.plan, inputs=None))
        else:
            rest, other = self._rest, record.observation
            hottest = rest.observation.hottest.followed_by(other.hottest)
            observation = replace(rest.observation.added(other), hottest=hottest)
            self._rest = replace(rest, observation=observation, times=rest.times + 1)
        return DISTINCT

    def _note(self, profile: Profile) -> None:
        if profile.remarks and len(self._remarks) < _NOTED:
            self._remarks.update(dict.fromkeys(profile.remarks))
        of_module = profile.records[0].program.kernel.module.notes
        if len(profile.notes) > len(of_module) and len(self._notes) < _NOTED:
            known = {*of_module, *(race.message for race in profile.races)}
            self._notes.update(dict.fromkeys(note for note in profile.notes if note not in known))
        if profile.races and len(self._races) < _NOTED:
            for race in profile.races:
                self._races.setdefault(
                    (race.kind, race.object, race.first.location, race.second.location, race.missing), race
                )

    def profiles(self) -> tuple[Profile, ...]:
        """One for all launches with equal counters, in order of the first; the notes and races of all are with the first."""
        records = []
        for record, same, (times, _) in zip(self._records, self._same, self._groups.values(), strict=True):
            counted = replace(record.observation)
            counted.times(times)
            known = tuple(same.values())
            records.append(replace(record, observation=counted, times=times, same=known))
        notes = [*self._notes]
        if self._rest is not None:
            rest = self._rest
            plan = rest.plan
            if rest.times > 1:
                notes.append(_MEAN.format(rest.times))
                plan = replace(plan, parameters=b"")  # of one launch alone, and they differ
            kept = tuple(self._same_of_rest.values())
            if sum(number for _, number in kept) < rest.times:
                kept = ()  # none of them stands for another
            records.append(replace(rest, plan=plan, same=kept))
        if records:
            first = records[0]
            told = replace(
                first.observation,
                notes=tuple(notes),
                remarks=tuple(self._remarks),
                races=tuple(self._races.values()),
            )
            records[0] = replace(first, observation=told)
        return tuple(
            build_profile(
                record.program,
                record.plan,
                record.observation,
                self._resources,
                times=record.times,
                same=record.same,
            )
            for record in records
        )


def _keep(known: _Plans, plan: LaunchPlan) -> None:
    """Adds a launch, if its inputs were kept."""
    if plan.inputs is not None:
        key = id(plan.inputs), plan.parameters
        _, times = known.get(key, (None, 0))
        known[key] = replace(plan, console=Console()), times + 1


def one_launch(profile: Profile) -> Profile:
    """One of the launches of one of ``MergedLaunches.profiles()``; where they differ, their mean."""
    (record,) = profile.records
    each = record.each
    return build_profile(each.program, each.plan, each.observation, profile.resources)


def _key(record: LaunchRecord) -> Hashable:
    """Equal for launches of one program and shape that count the same and whose predicted times are equal."""
    plan, observation = record.plan, record.observation
    return (
        observation.block_warps.tobytes(),
        observation.block_lanes.tobytes(),
        observation.divergent.tobytes(),
        observation.taken.tobytes(),
        observation.predicated.tobytes(),
        None if observation.sites is None else observation.sites.tobytes(),
        observation.hottest,
        observation.cancelled,
        tuple(observation.tensor_work.items()),
        plan.pointed_at,
        plan.images,
    )


def _quiet(record: LaunchRecord) -> LaunchRecord:
    """The record without the fields that are kept for all launches together, and without its output."""
    silent: Observation = replace(
        record.observation,
        notes=(),
        remarks=(),
        races=(),
        breaches=(),
        uninitialized=frozenset(),
        beyond={},
        blank={},
        threads=None,
        footprint=None,
        values=None,
    )
    return replace(record, plan=replace(record.plan, console=Console()), observation=silent)
