"""Command line and ini file: every setting that holds for a whole run, typed and checked. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .declared import check_targets, check_tolerances, unknown

__all__ = ["MARKER", "Settings", "add_options", "enabled", "settings_of"]

MARKER = (
    "gpuperf(targets=None, tolerance=None, limits=None, max_instructions=None): the test launches GPU kernels through the "
    "'gpuperf' fixture, which are counted and compared with a baseline; the arguments are defaults for its kernels."
)

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "stale": ("fail", "warn", "ignore"),
    "on_improvement": ("fail", "warn", "ignore"),
    "on_unmodelled": ("fail", "warn"),
    "resources": ("estimate", "ptxas"),
    "uninitialized": ("warn", "error", "ignore"),
    "backend": ("auto", "native", "lanes"),
    "baseline_layout": ("module", "case"),
}
_KEY = pytest.StashKey["Settings"]()


def add_options(parser: pytest.Parser) -> None:
    """Registers all options and ini keys."""
    group = parser.getgroup("gpuperf", "GPU kernel performance, without a GPU (pytest-gpuperf)")
    flag = group.addoption
    flag("--gpuperf", action="store_true", help="run, count and gate the GPU kernels of tests")
    flag("--gpuperf-only", action="store_true", help="deselect all other tests (implies --gpuperf)")
    flag(
        "--gpuperf-update",
        action="store_true",
        help="accept what was measured into the baselines and remove entries proved unused (implies --gpuperf)",
    )
    flag(
        "--gpuperf-update-new",
        action="store_true",
        help="only add missing baseline entries (implies --gpuperf)",
    )
    flag("--gpuperf-no-prune", action="store_true", help="with --gpuperf-update: keep unused entries")
    flag(
        "--gpuperf-stale",
        choices=_CHOICES["stale"],
        help="unused baseline entries (default: ini gpuperf_stale, fail)",
    )
    flag("--gpuperf-targets", metavar="ID,ID", help="of the declared targets judge only these")
    flag(
        "--gpuperf-tolerance",
        metavar="METRIC=TOL",
        action="append",
        default=[],
        help="tolerance of a metric or glob for this run: 0, 2%%, +5, 2%%&0.5us (repeatable)",
    )
    flag(
        "--gpuperf-report",
        metavar="DIR",
        help="write gpuperf.json, .html, .md and candidates/ (default: ini gpuperf_report_dir)",
    )
    flag(
        "--gpuperf-github",
        choices=("auto", "on", "off"),
        default="auto",
        help="annotations and job summary for GitHub Actions (default: auto)",
    )
    flag(
        "--gpuperf-min-cases",
        metavar="N",
        type=int,
        help="fail if fewer kernels were analysed (default: ini gpuperf_min_cases, 1)",
    )
    flag(
        "--gpuperf-max-instructions",
        metavar="N",
        type=int,
        help="warp instructions that one warp may execute (default: ini gpuperf_max_instructions, 10**8)",
    )
    flag("--gpuperf-details", action="store_true", help="list unchanged, new and unused entries by name")
    ini = parser.addini
    ini("gpuperf_targets", "machines for which time is predicted", type="linelist", default=[])
    ini(
        "gpuperf_target_files",
        "folders with machine descriptions of your own, below the rootdir",
        type="linelist",
        default=[],
    )
    ini(
        "gpuperf_tolerances",
        "tolerances, one 'metric or glob = tolerance' per line",
        type="linelist",
        default=[],
    )
    ini("gpuperf_stale", "unused baseline entries: fail, warn or ignore", type="string", default="fail")
    ini(
        "gpuperf_on_improvement",
        "exact metrics that got better: fail, warn or ignore",
        type="string",
        default="fail",
    )
    ini(
        "gpuperf_on_unmodelled",
        "kernels that the time model does not cover: fail or warn",
        type="string",
        default="fail",
    )
    ini(
        "gpuperf_baseline_dir",
        "folder of the baselines, below the rootdir",
        type="string",
        default="baselines",
    )
    ini(
        "gpuperf_baseline_layout",
        "one baseline file per test module, or per case",
        type="string",
        default="module",
    )
    ini("gpuperf_report_dir", "folder of the report, below the rootdir", type="string", default="")
    ini(
        "gpuperf_functional",
        "without --gpuperf, run the tests for their results alone",
        type="bool",
        default=False,
    )
    ini(
        "gpuperf_resources",
        "registers and shared memory: estimate or ptxas",
        type="string",
        default="estimate",
    )
    ini(
        "gpuperf_uninitialized",
        "reads of memory never written: warn, error or ignore",
        type="string",
        default="warn",
    )
    ini("gpuperf_backend", "emulator: auto, native or lanes", type="string", default="auto")
    ini("gpuperf_min_cases", "fail if fewer kernels were analysed", type="string", default="1")
    ini("gpuperf_max_instructions", "warp instructions that one warp may execute", type="string", default="")


@dataclass(frozen=True)
class Settings:
    """Everything that holds for a whole run."""

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
    details: bool
    targets: tuple[str, ...]
    target_files: tuple[str, ...]
    tolerances: tuple[tuple[str, str], ...]
    on_improvement: str
    on_unmodelled: str
    baseline_dir: Path
    baseline_layout: str
    functional: bool
    resources: str
    uninitialized: str
    backend: str
    rootdir: Path


def enabled(config: pytest.Config) -> bool:
    """Whether this run analyses kernels."""
    option = config.option
    return bool(option.gpuperf or option.gpuperf_only or option.gpuperf_update or option.gpuperf_update_new)


def settings_of(config: pytest.Config) -> Settings:
    """The settings of a run; raises ``pytest.UsageError`` for one that means nothing."""
    if _KEY not in config.stash:
        config.stash[_KEY] = _read(config)
    return config.stash[_KEY]


def _read(config: pytest.Config) -> Settings:
    option, rootdir = config.option, config.rootpath
    values = {key: str(config.getini(f"gpuperf_{key}")).strip() for key in _CHOICES}
    for key, value in values.items():
        if value not in _CHOICES[key]:
            raise unknown(f"gpuperf_{key} = {value!r}", value, _CHOICES[key])
    report = option.gpuperf_report or str(config.getini("gpuperf_report_dir")).strip()
    max_instructions = option.gpuperf_max_instructions
    if max_instructions is None:
        max_instructions = _integer(config, "gpuperf_max_instructions", minimum=1)
    elif max_instructions < 1:
        raise pytest.UsageError("--gpuperf-max-instructions must be at least 1")
    min_cases = option.gpuperf_min_cases
    if min_cases is None:
        min_cases = _integer(config, "gpuperf_min_cases", minimum=0)
    only = option.gpuperf_targets
    settings = Settings(
        enabled=enabled(config),
        only=option.gpuperf_only,
        update=option.gpuperf_update,
        update_new=option.gpuperf_update_new,
        prune=not option.gpuperf_no_prune,
        stale=option.gpuperf_stale or values["stale"],
        only_targets=_names(only.split(",")) if only is not None else None,
        override=_pairs(option.gpuperf_tolerance, "--gpuperf-tolerance"),
        report_dir=(config.invocation_params.dir if option.gpuperf_report else rootdir) / report
        if report
        else None,
        github=option.gpuperf_github,
        min_cases=1 if min_cases is None else min_cases,
        max_instructions=max_instructions,
        max_instructions_cli=option.gpuperf_max_instructions is not None,
        details=option.gpuperf_details,
        targets=_names(part for line in config.getini("gpuperf_targets") for part in str(line).split(",")),
        target_files=tuple(
            str(rootdir / str(line).strip()) for line in config.getini("gpuperf_target_files")
        ),
        tolerances=_pairs(config.getini("gpuperf_tolerances"), "gpuperf_tolerances"),
        on_improvement=values["on_improvement"],
        on_unmodelled=values["on_unmodelled"],
        baseline_dir=rootdir / str(config.getini("gpuperf_baseline_dir")).strip(),
        baseline_layout=values["baseline_layout"],
        functional=bool(config.getini("gpuperf_functional")),
        resources=values["resources"],
        uninitialized=values["uninitialized"],
        backend=values["backend"],
        rootdir=rootdir,
    )
    if settings.update and settings.update_new:
        raise pytest.UsageError("--gpuperf-update and --gpuperf-update-new exclude each other: give one")
    if settings.only_targets == ():
        raise pytest.UsageError(
            "--gpuperf-targets names no target: give ids separated by commas, or leave it out"
        )
    if settings.enabled:
        check_targets(settings.targets, "gpuperf_targets", settings.target_files)
        check_targets(settings.only_targets or (), "--gpuperf-targets", settings.target_files)
    return settings


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


def _names(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _pairs(lines: Iterable[str], where: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in lines:
        name, sign, text = str(line).partition("=")
        if not sign:
            raise pytest.UsageError(f"{where}: {line!r} is not METRIC=TOL, for example time_us=5%")
        pairs.append((name.strip(), text.strip()))
    check_tolerances(pairs, where)
    return tuple(pairs)
