"""Programs with observed values, apart from the test's own program on its device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuperf_engine.cudart.launch_log import LoggedLaunches
from gpuperf_engine.device.recorded import RecordedProgram
from gpuperf_engine.profile.merged import MergedLaunches, one_launch

from ..core.mangling import function_name
from ..programs.device import MOST_EVENTS, Launch, shared_device
from .call_sites import named_after_sites, with_lines
from .record import CaseRecord

if TYPE_CHECKING:
    from gpuperf_engine import Profile

__all__ = ["ObservedProgram", "ObservedWindow", "observed"]


@dataclass(frozen=True)
class ObservedProgram:
    """``cases``: by the number of its event the case of each launch, ``None`` of kernels that are no cases; ``profiles``: by the same
    number one launch."""

    program: RecordedProgram
    cases: Mapping[int, CaseRecord | None]
    profiles: Mapping[int, Profile]


class ObservedWindow:
    """The events of one test on the device that all programs of this process share, from its beginning to ``program``."""

    def __init__(self) -> None:
        device = shared_device()
        if device is not None:
            device.begin_program(MOST_EVENTS)
        self.cases: dict[int, CaseRecord | None] = {}
        self._merged: dict[Hashable, MergedLaunches] = {}
        #: by launch, the key and number of the merged launches that contain it
        self._parts: dict[int, tuple[Hashable, int]] = {}

    def launched(self, launch: Launch, case: CaseRecord | None) -> None:
        """Adds a launch of the test and its case."""
        if launch.event >= 0:
            profile = launch.profile
            key = launch.kernel, profile.grid, profile.block, profile.cluster, profile.resources.shared_bytes
            self.cases[launch.event] = case
            self._parts[launch.event] = key, self._merged.setdefault(key, MergedLaunches()).add(profile)

    def program(self) -> ObservedProgram:
        """All that was recorded."""
        device = shared_device()
        assert device is not None
        program = _by_function(named_after_sites(RecordedProgram.of(device)))
        each = {
            key: [one_launch(profile) for profile in merged.profiles()]
            for key, merged in self._merged.items()
        }
        profiles = {event: each[key][part] for event, (key, part) in self._parts.items()}
        return ObservedProgram(program, self.cases, profiles)


def observed(logged: LoggedLaunches, cases: Sequence[CaseRecord | None] = ()) -> list[ObservedProgram]:
    """Return the recording of each process of a program, with lines of its source, names of arrays, and kernels by the function's
    name. ``cases``: the cases of ``logged.cases``."""
    programs = []
    for item in logged.programs:
        program = _by_function(named_after_sites(with_lines(item.program)))
        owners = {number: cases[place] for number, (place, _) in item.launches.items() if cases}
        profiles = {number: profile for number, (_, profile) in item.launches.items()}
        programs.append(ObservedProgram(program, owners, profiles))
    return programs


def _by_function(program: RecordedProgram) -> RecordedProgram:
    """The program with kernels by the function's name."""
    names = {event.kernel: function_name(event.kernel) for event in program.events if event.kernel}
    events = (replace(event, kernel=names.get(event.kernel, "")) for event in program.events)
    return replace(program, events=tuple(events))
