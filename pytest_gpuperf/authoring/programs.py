"""CUDA programs in their own processes, on the emulator: starts them with our libraries, and records their launches as cases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf_engine.cudart.launch_log import LoggedCase, LoggedLaunches, read_launches
from gpuperf_engine.cudart.program import check_program
from gpuperf_engine.errors import EngineError
from gpuperf_engine.results import race_error

from .._engine import are_inputs_kept, parse
from ..config.declared import CaseSettings, case_settings, way
from ..core.fingerprint import digest_parts
from ..programs.device import DEFAULT_MACHINE
from ..programs.start import OFF, environment, observing, say_nothing_ran
from .budget import over_budget
from .device import check_uninitialized
from .launches import fits
from .observed import observed
from .record import CallSite, CaseRecord, LaunchRecord
from .sites import source_lines

if TYPE_CHECKING:
    import pytest

    from gpuperf_engine import Profile

    from .fixture import Gpuperf

__all__ = ["ProgramError", "run_program"]

_SHOWN = 20


class ProgramError(subprocess.CalledProcessError):
    """A program ended with another exit code than 0; the message has the end of its stderr."""

    def __str__(self) -> str:
        lines = str(self.stderr or self.stdout or "").rstrip().splitlines()
        left_out = [f"… ({len(lines) - _SHOWN} lines before)"] if len(lines) > _SHOWN else []
        return "\n  ".join([super().__str__(), *left_out, *lines[-_SHOWN:]])


def run_program(
    gpuperf: Gpuperf,
    command: Sequence[str | os.PathLike[str]],
    declared: Mapping[str, object],
    site: CallSite,
    *,
    check: bool = True,
    input: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    captured: bool = True,
    values: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """``Gpuperf.run``; unless ``captured``, the program inherits stdout and stderr of this process."""
    item, settings = gpuperf._item, gpuperf._settings
    values = settings.program_values if values is None else values
    values = values if settings.enabled else OFF
    if not command:
        raise EngineError(
            "no program was given", hint='for example gpuperf.run(["build/app", "--size", "1000"])'
        )
    words = [_program(command[0], item), *(os.fspath(word) for word in command[1:])]
    has_cuda = check_program(Path(words[0]))
    rules = case_settings(settings, item, declared)
    machine = next(iter((*rules.targets, *rules.skipped_targets)), DEFAULT_MACHINE)
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        variables = _environment(gpuperf, machine, values, folder)
        done = _completed(
            words,
            input=input,
            capture_output=captured,
            cwd=cwd,
            env={**(os.environ if env is None else env), **variables},
            timeout=timeout,
        )
        if not captured and not any(Path(folder).iterdir()):
            say_nothing_ran(os.fspath(command[0]), has_cuda)
        logged = read_launches(Path(folder), parse)
    sys.stdout.write(done.stdout or "")
    sys.stderr.write(done.stderr or "")
    if logged.over:
        raise over_budget(logged.over)
    if check and done.returncode:
        raise ProgramError(done.returncode, words, done.stdout, done.stderr)
    if settings.enabled:
        _check_complete(logged, words[0])
        _record(gpuperf, logged, rules, site, values)
    return done


def _program(word: str | os.PathLike[str], item: pytest.Item) -> str:
    """Return the program's file. Raises ``EngineError`` if there is none."""
    name = os.fspath(word)
    if os.sep in name:
        folders = [item.path.parent, item.config.rootpath, Path.cwd()]
        for folder in folders:
            if (path := folder / name).is_file():
                return str(path)
        looked = ", ".join(dict.fromkeys(map(str, folders)))
        raise EngineError(f"no program {name}", hint=f"build it first; looked in {looked}")
    executable = shutil.which(name)
    if executable is None:
        raise EngineError(f"no program {name} on the search path", hint="give its path: build/app, ./app")
    return executable


def _environment(gpuperf: Gpuperf, machine: str, values: str, folder: str) -> dict[str, str]:
    """Return the environment in which a program finds this machine and writes its launches to the folder."""
    settings = gpuperf._settings
    return environment(
        machine,
        search=settings.target_files,
        device={**_device_options(gpuperf), **observing(values)},
        folder=folder,
        budget=_remaining_budget(gpuperf),
        inputs=settings.enabled and are_inputs_kept(settings.judge, settings.time_model),
    )


def _completed(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` for text, with any exit code. Raises ``EngineError`` for a file that cannot be run."""
    try:
        return subprocess.run(words, text=True, errors="backslashreplace", check=False, **options)
    except OSError as error:
        raise EngineError(f"{words[0]} cannot be run: {error.strerror or error}") from None


def _device_options(gpuperf: Gpuperf) -> dict[str, object]:
    settings, item = gpuperf._settings, gpuperf._item
    # the program's process only notes races, and this one raises the error, so that a program which ignores errors hides none
    races = way(settings, item, "races")
    options: dict[str, object] = {"races": "off" if races == "off" or not settings.enabled else "note"}
    if settings.backend != "auto":
        options["backend"] = settings.backend
        if settings.backend == "reference":
            options["races"] = "off"
    if settings.resources != "estimate":
        options["resources"] = settings.resources
    if (strict := way(settings, item, "strict")) != "note":
        options["strict"] = strict
    if settings.max_instructions is not None:
        options["max_instructions"] = settings.max_instructions
    return options


def _remaining_budget(gpuperf: Gpuperf) -> dict[str, object]:
    """Return the rest of the test's budget."""
    budget = gpuperf._budget
    if budget.instructions is not None:
        return {"instructions": max(0, budget.instructions - budget.executed)}
    if budget.seconds is not None:
        return {"seconds": max(0.0, budget.seconds - budget.elapsed)}
    return {}


def _check_complete(logged: LoggedLaunches, program: str) -> None:
    if logged.lost:
        raise EngineError(
            f"{program} ended without the launches of {logged.lost} of its processes having been written",
            hint="it was killed, or called _exit: end it with exit or by returning from main",
        )


def _record(
    gpuperf: Gpuperf, logged: LoggedLaunches, rules: CaseSettings, site: CallSite, values: str
) -> None:
    recorder, settings = gpuperf._recorder, gpuperf._settings
    races = way(settings, gpuperf._item, "races")
    lines = source_lines([case.site for case in logged.cases], recorder.rootdir)
    cases: list[CaseRecord | None] = []
    for case in logged.cases:
        if not fits(case.kernel.name, settings.kernels):
            cases.append(None)
            continue
        profiles = [check_uninitialized(profile, settings) for profile in case.profiles]
        for profile in profiles:
            if races == "error" and profile.races:
                raise race_error(profile.kernel, profile.races)
            gpuperf._spend(profile)
        line = lines[case.site] or site
        address = f"{Path(case.site.file).name}:{case.site.address:#x}"
        record = gpuperf._streams.case_of(case.kernel, line, profiles[0], "", rules, address)
        record.inputs_known = False
        record.values = "" if values == OFF else values
        cases.append(record)
        for profile in profiles:
            record.launches.append(LaunchRecord(profile, _inputs(case, profile), line, _event(gpuperf, case)))
    gpuperf._observed += observed(logged, cases)


def _event(gpuperf: Gpuperf, case: LoggedCase) -> Any:
    from gpuperf_engine.device.events import Event

    return Event(
        "launch", (), kernel=case.kernel.name, number=gpuperf._recorder.number(), function=case.kernel
    )


def _inputs(case: LoggedCase, profile: Profile) -> str:
    """Return a digest of the shape and scalars, without addresses and memory."""
    plan = profile.records[0].plan
    spans = plan.pointed_at
    scalars = []
    for parameter in case.kernel.params:
        raw = plan.parameters[parameter.offset : parameter.offset + parameter.size]
        words = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw) - 7, 8)]
        if not any(start <= word <= start + size for word in words for start, size in spans):
            scalars.append(raw.hex())
    return digest_parts([profile.grid, profile.block, profile.cluster, profile.launches, *scalars], 16)
