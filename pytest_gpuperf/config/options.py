"""Options of the command line and keys of the ini file.

Loaded in every run of pytest, so it imports nothing; ``settings`` parses the values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Literal

import pytest

__all__ = ["CHOICES", "MARKER", "PROGRAMS", "add_options", "check_idle", "enabled"]

PROGRAMS = ("--gpuperf-triton", "--gpuperf-numba", "--gpuperf-cuda")
"""Options with an effect without the gate."""
MARKER = (
    "gpuperf(targets=None, tolerance=None, limits=None, max_instructions=None, budget=None, strict=None, races=None, "
    "accept=None): the test launches GPU kernels through the 'gpuperf' fixture, which are counted and compared with a baseline; the "
    "arguments are defaults for its kernels."
)

FINDINGS_BYTES, FINDINGS_US = "1024", "0.05"
"""Least saving of a finding that fails."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "stale": ("fail", "warn", "ignore"),
    "on_improvement": ("fail", "warn", "ignore"),
    "on_unmodelled": ("fail", "warn"),
    "resources": ("estimate", "ptxas"),
    "judge": ("auto", "machine", "ptx"),
    "time_model": ("auto", "simulation", "simulation-expanded", "kleimenov-popova"),
    "uninitialized": ("warn", "error", "ignore"),
    "strict": ("note", "error", "off"),
    "races": ("note", "error", "off"),
    "values": ("objects", "proven", "accesses"),
    "program_values": ("off", "objects", "accesses"),
    "backend": ("auto", "llvm", "reference"),
    "baseline_layout": ("module", "case"),
}


#: ini keys: name, help, type and default
_KEYS: tuple[tuple[str, str, Literal["string", "linelist", "bool"], object], ...] = (
    ("gpuperf_targets", "machines for which time is predicted", "linelist", []),
    (
        "gpuperf_target_files",
        "folders with your own machine descriptions, below the rootdir",
        "linelist",
        [],
    ),
    ("gpuperf_tolerances", "tolerances, one 'metric or glob = tolerance' per line", "linelist", []),
    (
        "gpuperf_findings",
        "severities of value findings, one 'rule or glob = fail, note or off' per line",
        "linelist",
        [],
    ),
    ("gpuperf_findings_bytes", "bytes that a finding must save to fail", "string", FINDINGS_BYTES),
    ("gpuperf_findings_us", "predicted time that a finding must save to fail", "string", FINDINGS_US),
    ("gpuperf_stale", "unused baseline entries: fail, warn or ignore", "string", "fail"),
    ("gpuperf_on_improvement", "exact metrics that got better: fail, warn or ignore", "string", "fail"),
    ("gpuperf_on_unmodelled", "kernels that the time model does not cover: fail or warn", "string", "fail"),
    ("gpuperf_baseline_dir", "folder of the baselines, below the rootdir", "string", "baselines"),
    ("gpuperf_baseline_layout", "one baseline file per test module, or per case", "string", "module"),
    ("gpuperf_report_dir", "folder of the report, relative to the rootdir", "string", ""),
    ("gpuperf_functional", "without --gpuperf, run the tests for their results only", "bool", False),
    ("gpuperf_resources", "registers and shared memory: estimate or ptxas", "string", "estimate"),
    (
        "gpuperf_judge",
        "what is judged: machine code, PTX counts (ptx), or machine code if ptxas and nvdisasm are found (auto)",
        "string",
        "auto",
    ),
    (
        "gpuperf_time_model",
        "time model: simulation, simulation-expanded, kleimenov-popova, or that of the baseline, otherwise the first of these that is "
        "possible (auto)",
        "string",
        "auto",
    ),
    ("gpuperf_uninitialized", "reads of uninitialised memory: warn, error or ignore", "string", "warn"),
    ("gpuperf_strict", "violations of rules that work on today's GPUs: note, error or off", "string", "note"),
    ("gpuperf_races", "races in shared and global memory: note, error or off", "string", "note"),
    (
        "gpuperf_values",
        "value patterns of whole objects only (objects), or also of instructions: proven ones (proven), or all (accesses)",
        "string",
        "objects",
    ),
    (
        "gpuperf_program_values",
        "value patterns of programs (gpuperf.run, --gpuperf-triton, --gpuperf-numba, --gpuperf-cuda): off, objects or accesses",
        "string",
        "off",
    ),
    (
        "gpuperf_accept",
        "intended value findings, one 'rule:object = reason' per line; both may be globs",
        "linelist",
        [],
    ),
    ("gpuperf_backend", "emulator: auto, llvm or reference", "string", "auto"),
    ("gpuperf_min_cases", "fail if fewer kernels were analysed", "string", "1"),
    (
        "gpuperf_budget",
        "what the launches of one test may cost: warp instructions (20e9), seconds (600s) or none",
        "string",
        "20e9",
    ),
    ("gpuperf_kernels", "kernels of programs that are cases, by globs of their names", "linelist", []),
    ("gpuperf_max_instructions", "warp instructions that one warp may execute", "string", ""),
)


def add_options(parser: pytest.Parser) -> None:
    """Registers all options and ini keys."""
    group = parser.getgroup("gpuperf", "GPU kernel performance, without a GPU (pytest-gpuperf)")
    _add_flags(group.addoption)
    for key, text, kind, default in _KEYS:
        parser.addini(key, text, type=kind, default=default)


def _add_flags(flag: Callable[..., None]) -> None:
    flag("--gpuperf", action="store_true", help="run, count and gate the GPU kernels of tests")
    flag("--gpuperf-only", action="store_true", help="deselect all other tests (implies --gpuperf)")
    _add_baselines(flag)
    _add_judging(flag)
    _add_reports(flag)
    _add_bounds(flag)
    _add_programs(flag)
    flag("--gpuperf-details", action="store_true", help="list unchanged, new and unused entries by name")


def _add_baselines(flag: Callable[..., None]) -> None:
    """Options for baseline entries that changed, are missing or are unused."""
    flag(
        "--gpuperf-update",
        action="store_true",
        help="store the measurements in the baselines and remove unused entries (implies --gpuperf)",
    )
    flag(
        "--gpuperf-update-new",
        action="store_true",
        help="only add missing baseline entries (implies --gpuperf)",
    )
    flag("--gpuperf-no-prune", action="store_true", help="with --gpuperf-update: keep unused entries")
    flag(
        "--gpuperf-stale",
        choices=CHOICES["stale"],
        help="unused baseline entries (default: ini gpuperf_stale, fail)",
    )


def _add_judging(flag: Callable[..., None]) -> None:
    """Options for the comparison with the baselines: targets and tolerances."""
    flag("--gpuperf-targets", metavar="ID,ID", help="judge only these of the declared targets")
    flag(
        "--gpuperf-tolerance",
        metavar="METRIC=TOL",
        action="append",
        default=[],
        help="tolerance of a metric or glob for this run: 0, 2%%, +5, 2%%&0.5us (repeatable)",
    )


def _add_reports(flag: Callable[..., None]) -> None:
    """Options for reports."""
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


def _add_bounds(flag: Callable[..., None]) -> None:
    """Options for the least number of kernels, and their budgets."""
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
    flag(
        "--gpuperf-budget",
        metavar="N",
        help="warp instructions (20e9) or seconds (600s) that the launches of one test may cost (default: ini gpuperf_budget)",
    )


def _add_programs(flag: Callable[..., None]) -> None:
    """Options for kernels of programs, and for the drivers through which programs see a GPU."""
    flag(
        "--gpuperf-kernels",
        metavar="GLOB",
        action="append",
        default=[],
        help="only these of the kernels that programs launch are cases (repeatable; default: ini gpuperf_kernels, all)",
    )
    flag(
        "--gpuperf-triton",
        action="store_true",
        help="let Triton and torch see a GPU, the first of gpuperf_targets; with --gpuperf gate every launch",
    )
    flag(
        "--gpuperf-numba",
        action="store_true",
        help="let Numba see a GPU, the first of gpuperf_targets; with --gpuperf gate every launch",
    )
    flag(
        "--gpuperf-cuda",
        action="store_true",
        help="let CuPy, the driver API and extension modules see a GPU, the first of gpuperf_targets; with --gpuperf gate every "
        "launch",
    )


def enabled(option: argparse.Namespace) -> bool:
    """Whether a run with these options analyses kernels."""
    return bool(option.gpuperf or option.gpuperf_only or option.gpuperf_update or option.gpuperf_update_new)


def launches_by_itself(option: argparse.Namespace) -> bool:
    """Whether tests of a run with these options launch through one of our drivers."""
    return bool(option.gpuperf_triton or option.gpuperf_numba or option.gpuperf_cuda)


def check_idle(config: pytest.Config) -> None:
    """Check a run without the gate. Raises ``pytest.UsageError`` for options of the gate on the command line (those in ``addopts``
    have no effect), and for invalid settings that its tests use all the same."""
    for argument in config.invocation_params.args:
        if str(argument).startswith("--gpuperf-") and argument not in PROGRAMS:
            name = str(argument).partition("=")[0]
            raise pytest.UsageError(f"{name} does nothing without --gpuperf: give both")
    try:
        functional = config.getini("gpuperf_functional")
    except (ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"gpuperf_functional: {error}: write true or false") from None
    if functional:
        from .settings import settings_of

        settings_of(config)
