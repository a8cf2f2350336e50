"""The settings of a whole run, read from command line and ini file, typed and checked."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..core.metric import Table
from .contributions import metrics_of
from .declared import (
    SEVERITIES,
    FindingRules,
    check_targets,
    check_tolerances,
    checked_budget,
    present_names,
    unknown,
    warn_renamed,
)
from .options import CHOICES, PROGRAMS, enabled

__all__ = ["Settings", "settings_of"]

_KEY = pytest.StashKey["Settings"]()


@dataclass(frozen=True)
class Settings:
    """The settings of a whole run."""

    enabled: bool
    only: bool
    update: bool
    update_new: bool
    prune: bool
    stale: str
    only_targets: tuple[str, ...] | None
    override: tuple[tuple[str, str], ...]
    report_dir: Path | None
    github: str
    min_cases: int
    max_instructions: int | None
    max_instructions_cli: bool
    budget: str
    budget_cli: str | None
    kernels: tuple[str, ...]
    programs: tuple[str, ...]
    details: bool
    targets: tuple[str, ...]
    target_files: tuple[str, ...]
    tolerances: tuple[tuple[str, str], ...]
    findings: FindingRules
    on_improvement: str
    on_unmodelled: str
    baseline_dir: Path
    baseline_layout: str
    functional: bool
    resources: str
    judge: str
    time_model: str
    uninitialized: str
    strict: str
    races: str
    values: str
    program_values: str
    accept: tuple[tuple[str, str], ...]
    backend: str
    rootdir: Path
    metrics: Table


def settings_of(config: pytest.Config) -> Settings:
    """Return the settings of a run. Raises ``pytest.UsageError`` for an invalid one."""
    if _KEY not in config.stash:
        settings = _read(config)
        _check(settings)
        config.stash[_KEY] = settings
    return config.stash[_KEY]


def _programs(config: pytest.Config) -> tuple[str, ...]:
    """Return the options with which programs find a GPU and which the ini file does not set."""
    always = config.getini("addopts")
    given = vars(config.option)
    return tuple(name for name in PROGRAMS if given[name[2:].replace("-", "_")] and name not in always)


def _read(config: pytest.Config) -> Settings:
    option, rootdir = config.option, config.rootpath
    values = {key: str(config.getini(f"gpuperf_{key}")).strip() for key in CHOICES}
    values["backend"] = _backend(config, values["backend"])
    for key, value in values.items():
        if value not in CHOICES[key]:
            raise unknown(f"gpuperf_{key} = {value!r}", value, CHOICES[key])
    report = option.gpuperf_report or str(config.getini("gpuperf_report_dir")).strip()
    min_cases = _at_least(config, "min_cases", 0)
    target_files = _folders(config, "gpuperf_target_files")
    only = option.gpuperf_targets
    metrics = metrics_of(config)
    return Settings(
        enabled=enabled(config.option),
        only=option.gpuperf_only,
        update=option.gpuperf_update,
        update_new=option.gpuperf_update_new,
        prune=not option.gpuperf_no_prune,
        stale=option.gpuperf_stale or values["stale"],
        only_targets=_names(only.split(",")) if only is not None else None,
        override=_pairs(config, option.gpuperf_tolerance, "--gpuperf-tolerance", metrics, target_files),
        report_dir=(config.invocation_params.dir if option.gpuperf_report else rootdir) / report
        if report
        else None,
        github=option.gpuperf_github,
        min_cases=1 if min_cases is None else min_cases,
        max_instructions=_at_least(config, "max_instructions", 1),
        max_instructions_cli=option.gpuperf_max_instructions is not None,
        budget=checked_budget(str(config.getini("gpuperf_budget")).strip(), "gpuperf_budget"),
        budget_cli=None
        if option.gpuperf_budget is None
        else checked_budget(option.gpuperf_budget, "--gpuperf-budget"),
        kernels=_names(option.gpuperf_kernels or map(str, config.getini("gpuperf_kernels"))),
        programs=_programs(config),
        details=option.gpuperf_details,
        targets=_names(part for line in config.getini("gpuperf_targets") for part in str(line).split(",")),
        target_files=target_files,
        tolerances=_pairs(
            config, config.getini("gpuperf_tolerances"), "gpuperf_tolerances", metrics, target_files
        ),
        findings=_findings(config),
        on_improvement=values["on_improvement"],
        on_unmodelled=values["on_unmodelled"],
        baseline_dir=_below(rootdir, str(config.getini("gpuperf_baseline_dir")).strip()),
        baseline_layout=values["baseline_layout"],
        functional=_truth(config, "gpuperf_functional"),
        resources=values["resources"],
        judge=values["judge"],
        time_model=values["time_model"],
        uninitialized=values["uninitialized"],
        strict=values["strict"],
        races=values["races"],
        values=values["values"],
        program_values=values["program_values"],
        accept=_accept(config),
        backend=values["backend"],
        rootdir=rootdir,
        metrics=metrics,
    )


def _check(settings: Settings) -> None:
    if settings.update and settings.update_new:
        raise pytest.UsageError("--gpuperf-update and --gpuperf-update-new exclude each other: give one")
    if settings.only_targets == ():
        raise pytest.UsageError("--gpuperf-targets names no target: give ids separated by commas, or omit it")
    if settings.enabled:
        check_targets(settings.targets, "gpuperf_targets", settings.target_files)
        check_targets(settings.only_targets or (), "--gpuperf-targets", settings.target_files)


def _at_least(config: pytest.Config, name: str, minimum: int) -> int | None:
    """A number of the command line or, without it, of the ini file."""
    given: int | None = getattr(config.option, f"gpuperf_{name}")
    if given is None:
        return _integer(config, f"gpuperf_{name}", minimum=minimum)
    if given < minimum:
        raise pytest.UsageError(f"--gpuperf-{name.replace('_', '-')} must be at least {minimum}")
    return given


def _findings(config: pytest.Config) -> FindingRules:
    severities = []
    for line in config.getini("gpuperf_findings"):
        rule, sign, severity = (part.strip() for part in str(line).partition("="))
        if not sign or not rule:
            raise pytest.UsageError(
                f"gpuperf_findings: {line!r} is not RULE=SEVERITY, for example heavy-type=fail"
            )
        if severity not in SEVERITIES:
            raise unknown(f"gpuperf_findings: {rule}={severity!r}", severity, SEVERITIES)
        severities.append((rule, severity))
    text = str(config.getini("gpuperf_findings_us")).strip()
    try:
        least_us = float(text)
    except ValueError:
        raise pytest.UsageError(f"gpuperf_findings_us = {text!r} is not a number") from None
    if not 0 <= least_us < math.inf:
        raise pytest.UsageError("gpuperf_findings_us must be at least 0")
    least_bytes = _integer(config, "gpuperf_findings_bytes", minimum=0)
    return FindingRules(tuple(severities), least_bytes or 0, least_us)


def _accept(config: pytest.Config) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in config.getini("gpuperf_accept"):
        key, _, reason = (part.strip() for part in str(line).partition("="))
        if not key or not reason:
            raise pytest.UsageError(
                f"gpuperf_accept: {line!r} is not RULE:OBJECT = REASON, for example single-zero:mask = cleared for the next frame"
            )
        pairs.append((key, reason))
    return tuple(pairs)


def _backend(config: pytest.Config, name: str) -> str:
    """Return the backend of that name, which may be a former one."""
    if name in CHOICES["backend"]:
        return name
    from gpuperf_engine.device.options import FORMER_BACKENDS

    present = FORMER_BACKENDS.get(name, name)
    if present != name:
        warn_renamed(f"gpuperf_backend = {name} is now gpuperf_backend = {present}: write that", config)
    return present


def _integer(config: pytest.Config, key: str, minimum: int) -> int | None:
    text = str(config.getini(key)).strip()
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise pytest.UsageError(f"{key} = {text!r} is not a whole number") from None
    if value < minimum:
        raise pytest.UsageError(f"{key} must be at least {minimum}")
    return value


def _truth(config: pytest.Config, key: str) -> bool:
    try:
        return bool(config.getini(key))
    except (ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{key}: {error}: write true or false") from None


def _below(rootdir: Path, name: str) -> Path:
    path = Path(os.path.normpath(rootdir / name))
    if not name or not path.is_relative_to(rootdir):
        raise pytest.UsageError(
            f"gpuperf_baseline_dir = {name!r} is not a folder below the rootdir {rootdir}; for example baselines"
        )
    return path


def _folders(config: pytest.Config, key: str) -> tuple[str, ...]:
    folders = [config.rootpath / str(line).strip() for line in config.getini(key)]
    for folder in folders:
        if not folder.is_dir():
            raise pytest.UsageError(f"{key}: there is no folder {folder}")
    return tuple(map(str, folders))


def _names(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _pairs(
    config: pytest.Config, lines: Iterable[str], where: str, metrics: Table, search: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in lines:
        name, sign, text = str(line).partition("=")
        if not sign:
            raise pytest.UsageError(f"{where}: {line!r} is not METRIC=TOL, for example time_us=5%")
        pairs.append((name.strip(), text.strip()))
    check_tolerances(pairs, where, metrics, search, config)
    return present_names(pairs, metrics)
