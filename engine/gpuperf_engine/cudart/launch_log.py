"""All launches of a program, by kernel, launch site and shape, in a file for the gate: written by the program's process
(``LaunchLog``), read and checked by the process of the gate (``read_launches``)."""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..api import Device
from ..device.recorded import RecordedProgram
from ..profile.budget import Budget
from ..profile.merged import MergedLaunches, one_launch
from ..profile.stored import Contents, StoredError, profile_from, stored
from ..profile.stored_program import program_from, stored_program
from ..ptx.module import Function as Kernel
from ..ptx.module import Module
from ..results import Profile
from ..simt.program import program_of
from .call_paths import located
from .calls import say

__all__ = ["LaunchLog", "LaunchSite", "LoggedCase", "LoggedLaunches", "LoggedProgram", "read_launches"]

MOST_STEPS = 10_000
"""The number of events after which the observation of values ends."""
MOST_RECORDS = 100_000
"""The number of access records after which the observation of values ends, 1 KiB each."""

_SCHEMA = 1
_LOG, _CONTENTS, _BEGUN = ".launches.json", ".inputs", ".begun"
"""Suffixes of the file of a process, of the file with the contents of memory before its launches, and of the marker that it has
started."""


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """The location of a launch in host code: a program or library, the address of the call in that file, and the exported function
    that contains it. All empty if it is unknown."""

    file: str = ""
    address: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class LoggedCase:
    """The launches of one kernel, site and shape, as profiles; ``launches`` of each says how many launches it describes."""

    kernel: Kernel
    site: LaunchSite
    profiles: tuple[Profile, ...]


@dataclass(frozen=True, slots=True)
class LoggedProgram:
    """What a process recorded while values were observed. ``launches``: by event number, the index of the launch's case in
    ``LoggedLaunches.cases``, and the profile of one launch. Event numbers of different processes do not overlap."""

    program: RecordedProgram
    launches: Mapping[int, tuple[int, Profile]]


@dataclass(frozen=True, slots=True)
class LoggedLaunches:
    """The launches of all processes of a program, in the order in which they started. ``over``: why a process was ended, if it
    exceeded its budget; ``lost``: the number of processes that ended without writing their launches; ``programs``: the processes that
    observed values."""

    cases: tuple[LoggedCase, ...]
    over: str
    lost: int
    programs: tuple[LoggedProgram, ...] = ()


class LaunchLog:
    """The log of one process, in the ``folder`` of the gate."""

    def __init__(self, folder: Path, budget: Budget, device: Device) -> None:
        self._device = device
        #: by event number of a recorded launch: the indices of its case and of its profile
        self._recorded: dict[int, tuple[int, int]] = {}
        self._records = 0
        self._program: RecordedProgram | None = None
        self._pid = os.getpid()
        # file names sort in the order in which processes start
        self._name = f"{time.monotonic_ns():020}-{self._pid}"
        self._folder = folder
        self._budget = budget
        self._cases: dict[Hashable, MergedLaunches] = {}
        self._places: dict[Hashable, int] = {}
        (folder / (self._name + _BEGUN)).touch()

    def add(self, profile: Profile, site: int) -> None:
        """Add a launch; ``site`` is its return address. Ends the process if the budget is exceeded."""
        (record,) = profile.records
        plan = record.plan
        key = (
            record.program.kernel, site, plan.grid, plan.block, plan.shared_bytes, plan.cluster, plan.cooperative
        )  # fmt: skip
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = MergedLaunches()
            self._places[key] = len(self._places)
        which = case.add(profile)
        if "values" in self._device.observe:
            number = self._device.events[-1].number
            self._recorded[number] = self._places[key], which
            self._records += len(self._device.carried.get(number, ()))
        over = self._budget.spend(profile)
        if over:
            self._end(over)

    def bound(self) -> None:
        """End the observation of values when the number of records reaches its limit, to bound memory."""
        device = self._device
        if "values" not in device.observe:
            return
        if len(device.events) >= MOST_STEPS or self._records >= MOST_RECORDS:
            self._program = replace(RecordedProgram.of(device), observed_all=False)
            device.end_observation()
            device.events.clear()
            device.carried.clear()

    def _end(self, over: str) -> NoReturn:
        self.write(over)
        ctypes.CDLL(None).fflush(None)
        os._exit(3)

    def write(self, over: str = "") -> None:
        """Write the file. Only the process that created the log does this, not its forks."""
        if os.getpid() != self._pid:
            return
        modules: dict[Module, int] = {}
        cases = []
        contents = Contents()
        for key, merged in self._cases.items():
            kernel, site = key[0], key[1]  # type: ignore[index]
            number = modules.setdefault(kernel.module, len(modules))
            launches = [stored(profile, contents) for profile in merged.profiles()]
            cases.append(
                {
                    "module": number,
                    "kernel": kernel.name,
                    "site": asdict(LaunchSite(*located(site))),
                    "launches": launches,
                }
            )
        document = {
            "schema_version": _SCHEMA,
            "over": over,
            "modules": [{"path": module.path, "text": module.text} for module in modules],
            "cases": cases,
        }
        program = self._program
        if program is None and "values" in self._device.observe:
            program = RecordedProgram.of(self._device)
        if program is not None:
            kernels = dict.fromkeys(key[0] for key in self._cases)  # type: ignore[index]
            document["program"] = {
                **stored_program(program, tuple(kernels)),
                "kernels": [[modules[kernel.module], kernel.name] for kernel in kernels],
                "launches": {str(number): list(pair) for number, pair in self._recorded.items()},
            }
        path = self._folder / (self._name + _LOG)
        try:
            if contents.arrays:
                with path.with_name(self._name + _CONTENTS).open("wb") as file:
                    for array in contents.arrays:
                        array.tofile(file)
            path.with_suffix(".part").write_text(json.dumps(document, default=_plain), encoding="utf-8")
            os.replace(path.with_suffix(".part"), path)
        except OSError as error:
            say(f"{path}: not written: {error.strerror or error}")


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python number."""
    return value.item()


def read_launches(folder: Path, parse: Callable[[str, str], Module]) -> LoggedLaunches:
    """Read the launches that the processes of a program have logged in a folder; ``parse`` makes a module from PTX and its path.

    Launches of one kernel, site and shape by several processes form one case. Raises ``StoredError`` for invalid files.
    """
    known: dict[Hashable, LoggedCase] = {}
    programs: list[LoggedProgram] = []
    over = ""
    for path in sorted(folder.glob("*" + _LOG)):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            over = over or _text(document, "over")
            modules = [
                parse(_text(row, "text"), _text(row, "path")) for row in _of(document, "modules", list)
            ]
            cases = _cases(
                document, modules, _contents(path.with_name(path.name.removesuffix(_LOG) + _CONTENTS))
            )
            places = []
            for case in cases:
                first = case.profiles[0]
                shape = first.grid, first.block, first.cluster, first.resources.shared_bytes
                key = case.kernel.name, case.kernel.module, case.site, shape
                before = known.get(key)
                merged = case.profiles if before is None else (*before.profiles, *case.profiles)
                known[key] = LoggedCase(case.kernel, case.site, merged)
                places.append([*known].index(key))
            if "program" in document:
                programs.append(_program(document["program"], modules, cases, places, len(programs)))
        except (OSError, ValueError, IndexError, TypeError, RecursionError, StoredError) as error:
            raise StoredError(
                f"{path.name}: what the program launched cannot be read: {getattr(error, 'message', error)}",
                hint="run it again; if that fails too, please report this",
            ) from None
    begun = Counter(path.name.removesuffix(_BEGUN) for path in folder.glob("*" + _BEGUN))
    written = {path.name.removesuffix(_LOG) for path in folder.glob("*" + _LOG)}
    return LoggedLaunches(tuple(known.values()), over, len(begun.keys() - written), tuple(programs))


def _program(
    row: object, modules: list[Module], cases: list[LoggedCase], places: list[int], before: int
) -> LoggedProgram:
    """What a process recorded. ``before``: the number of processes before it, from which its event numbers are made unique;
    ``places``: the indices of its cases among all cases."""
    first = (before + 1) << 32
    kernels = [modules[number][name] for number, name in _of(row, "kernels", list)]
    launches = {}
    for number, (place, which) in _of(row, "launches", dict).items():
        profile = cases[place].profiles[which]
        launches[int(number) + first] = places[place], one_launch(profile)
    return LoggedProgram(program_from(row, kernels, first), launches)


def _contents(path: Path) -> Contents:
    """The contents of memory before launches, mapped, so the file may be deleted."""
    if not path.exists() or not path.stat().st_size:
        return Contents()
    return Contents(np.memmap(path, np.uint8, "r"))


def _cases(document: object, modules: list[Module], contents: Contents) -> list[LoggedCase]:
    if _of(document, "schema_version", int) != _SCHEMA:
        raise StoredError(f"its schema_version is not {_SCHEMA}")
    return [_case(row, modules, contents) for row in _of(document, "cases", list)]


def _case(row: object, modules: list[Module], contents: Contents) -> LoggedCase:
    number, name = _of(row, "module", int), _text(row, "kernel")
    if not 0 <= number < len(modules) or name not in modules[number].kernels:
        raise StoredError(f"there is no kernel {name!r} in its module")
    kernel = modules[number][name]
    program = program_of(kernel)
    site = _of(row, "site", dict)
    launches = _of(row, "launches", list)
    if not launches:
        raise StoredError(f"a case of {name!r} has no launch")
    return LoggedCase(
        kernel,
        LaunchSite(_text(site, "file"), _of(site, "address", int), _text(site, "function")),
        tuple(profile_from(program, launch, contents) for launch in launches),
    )


def _of(row: object, name: str, kind: type) -> Any:
    if not isinstance(row, Mapping) or not isinstance(row.get(name), kind) or isinstance(row[name], bool):
        raise StoredError(f"{name} is missing or no {kind.__name__}")
    return row[name]


def _text(row: object, name: str) -> str:
    text: str = _of(row, name, str)
    return text
