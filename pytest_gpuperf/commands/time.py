"""``gpuperf time``: predicted times of a launch by all models, side by side, and its roofline."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf_engine.errors import EngineError, nearest

from .._engine import engine
from ..core.escaping import one_line
from ..core.numbers import number
from ..judge.why import why_lines
from ..report.roofline import roofline_svg
from ..report.sm_gantt import sm_gantt_svg
from .common import OK, Subcommands, UsageError, check_targets, choose_kernel, columns, parse_file, write
from .launch_options import ARGUMENTS, add_launch_options
from .profile_view import from_here

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, Profile

__all__ = ["add_parser"]

ALL = "all"
_BOUNDS = 3
"""Most bounds in a row of the table."""
_MOST_CLOCKS = 8192
_DIGITS = 15
_LEAST = 0.01
"""Least part of all clocks of warps of a listed reason."""


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "time",
        help="predict the time of a launch by several models",
        usage="gpuperf time FILE.ptx [--entry NAME] --grid X --block X [--arg TYPE=VALUE …] --target ID… [options]",
        epilog=ARGUMENTS,
    )
    parser.add_argument("file", metavar="FILE.ptx")
    add_launch_options(parser)
    parser.add_argument(
        "--target",
        metavar="ID",
        action="append",
        required=True,
        help="a machine (repeatable; see gpuperf targets)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        action="append",
        help="a model (repeatable), or all (the default); see docs/timing.md",
    )
    parser.add_argument(
        "--caches",
        choices=("cold", "warm", "dirty"),
        default="cold",
        help="warm: L2 holds the data that the same launch leaves; dirty: L2 is full of data that others have written, as where a "
        "benchmark overwrites it (default: cold)",
    )
    parser.add_argument(
        "--resources",
        choices=("estimate", "ptxas"),
        default="estimate",
        help="source of register counts (default: estimate)",
    )
    parser.add_argument(
        "--roofline", metavar="DIR", help="draw a roofline for each target to TARGET.svg in this folder"
    )
    parser.add_argument(
        "--gantt",
        metavar="DIR",
        help="draw the activity of warps and units of one simulated SM, for each target, to TARGET-gantt.svg in this folder",
    )
    parser.add_argument(
        "--window",
        metavar="[FROM:]CLOCKS",
        default="512",
        help=f"the clocks to draw, at most {_MOST_CLOCKS:,} (default: 512 in the middle of the simulated time)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gpuperf_engine.machines.machine import load_machine
    from gpuperf_engine.timing.roofline import roofline

    models = _models(arguments.model or [ALL])
    targets = tuple(dict.fromkeys(arguments.target))
    check_targets(*targets)
    for name in ("grid", "block"):
        if getattr(arguments, name) is None:
            raise UsageError(f"--{name} is needed")
    window = _window(arguments.window)
    if arguments.gantt is not None and not _simulations(models):
        raise UsageError("--gantt needs a simulation: add --model simulation, or --model simulation-expanded")
    profile = _profile(arguments)
    estimates = {
        target: [
            engine.estimate(profile, target, model=model, caches=arguments.caches, why=True)
            for model in models
        ]
        for target in targets
    }
    not_simulated = _without_fallbacks(models, estimates)
    drawn = {target: roofline(profile, load_machine(target), caches=arguments.caches) for target in targets}
    if arguments.gantt is not None:
        folder = _folder(arguments.gantt)
        for target in targets:
            possible = [name for name in _simulations(models) if name not in not_simulated[target]]
            if possible:
                drawing = _gantt(profile, target, possible[0], arguments, window)
                write(drawing, str(folder / f"{target}-gantt.svg"))
    if arguments.roofline is not None:
        folder = _folder(arguments.roofline)
        for target, plot in drawn.items():
            write(roofline_svg(plot, f"{profile.kernel} on {target}"), str(folder / f"{target}.svg"))
    if arguments.format == "json":
        document = {
            "schema_version": 1,
            "kernel": profile.kernel,
            "caches": arguments.caches,
            "targets": {
                target: {
                    "estimates": [_record(estimate) for estimate in estimates[target]],
                    "not_simulated": not_simulated[target],
                    "roofline": asdict(drawn[target]),
                }
                for target in targets
            },
        }
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    else:
        text = "\n".join(_lines(profile, estimates, not_simulated)) + "\n"
    write(text, arguments.output)
    return OK


def _folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineError(f"{folder}: not written: {error.strerror or error}") from None
    return folder


def _window(text: str) -> tuple[int | None, int]:
    """Return the first drawn clock, ``None`` by default, and their number."""
    first, colon, clocks = text.rpartition(":")
    if not clocks.isdecimal() or not 0 < int(clocks) <= _MOST_CLOCKS or (colon and not first.isdecimal()):
        raise UsageError(
            f"--window {text!r} is not FROM:CLOCKS or CLOCKS, of which there are 1 to {_MOST_CLOCKS:,}"
        )
    if len(first) > _DIGITS:
        raise UsageError(f"--window {text!r} begins later than any launch ends")
    return (int(first) if colon else None), int(clocks)


def _gantt(
    profile: Profile,
    target: str,
    model: str,
    arguments: argparse.Namespace,
    window: tuple[int | None, int],
) -> str:
    from gpuperf_engine.machines.machine import load_machine
    from gpuperf_engine.timing.estimate import EXPANDED
    from gpuperf_engine.timing.models.simulation import Simulation

    record = profile.records[0].each
    used = replace(profile.resources, shared_bytes=record.plan.shared_bytes) if model == EXPANDED else None
    simulation = Simulation(record, load_machine(target), arguments.caches, expanded=used)
    by = f", {EXPANDED}" if model == EXPANDED else ""
    return sm_gantt_svg(simulation.window(*window), f"{profile.kernel} on {target}{by}")


def _simulations(models: Sequence[str]) -> list[str]:
    """Return those of the models that simulate an SM, the most exact first."""
    from gpuperf_engine.timing.estimate import EXPANDED, SIMULATION

    return [name for name in (SIMULATION, EXPANDED) if name in models]


def _models(wanted: Sequence[str]) -> tuple[str, ...]:
    from gpuperf_engine.timing.estimate import EXPANDED, MODELS, SIMULATION

    every = (*MODELS, EXPANDED, SIMULATION)
    for model in wanted:
        if model not in (*every, ALL):
            raise UsageError(f"--model {model!r} is not known; {nearest(model, [*every, ALL], noun='model')}")
    return every if ALL in wanted else tuple(dict.fromkeys(wanted))


def _profile(arguments: argparse.Namespace) -> Profile:
    """Profile the launch; only computations of addresses and control flow run."""
    from .arguments import make_argument

    module = parse_file(arguments.file, arguments.entry, arguments.target[0])
    kernel = choose_kernel(module, arguments.file, arguments.entry)
    device = engine.Device(observe={"memory", "inputs"}, resources=arguments.resources)
    return device.launch(
        kernel,
        arguments.grid,
        arguments.block,
        [make_argument(spec, device) for spec in arguments.arg],
        shared_bytes=arguments.shared_bytes,
        cluster=arguments.cluster,
        cooperative=arguments.cooperative,
        demand="addresses",
    )


def _record(estimate: Estimate) -> dict[str, Any]:
    record = asdict(estimate)
    del record["timeline"]
    return record


def _without_fallbacks(
    models: Sequence[str], estimates: dict[str, list[Estimate]]
) -> dict[str, dict[str, str]]:
    """Remove fallback predictions of simulations by another model, if that model is listed too, or is that of another fallback.
    Returns by target and simulation why that did not predict the launch."""
    reasons: dict[str, dict[str, str]] = {}
    for target, predictions in estimates.items():
        by_model = dict(zip(models, predictions, strict=True))
        reasons[target] = {
            name: by_model[name].notes[0] for name in _simulations(models) if by_model[name].model != name
        }
        shown = [name for name in models if name not in reasons[target]]
        for name in reasons[target]:
            if by_model[name].model not in {by_model[other].model for other in shown}:
                shown.append(name)
        estimates[target] = [by_model[name] for name in shown]
    return reasons


def _lines(
    profile: Profile, estimates: dict[str, list[Estimate]], not_simulated: dict[str, dict[str, str]]
) -> list[str]:
    rows: list[tuple[str, ...]] = [("target", "model", "us", "to first", "limiter", "largest bounds, us")]
    for predictions in estimates.values():
        for estimate in predictions:
            bounds = sorted(estimate.bounds.items(), key=lambda item: (-item[1], item[0]))[:_BOUNDS]
            rows.append(
                (
                    estimate.machine,
                    estimate.model,
                    f"{estimate.time_us:.2f}",
                    f"{estimate.time_us / predictions[0].time_us:.2f}",
                    estimate.limiter,
                    ", ".join(f"{name} {value:.2f}" for name, value in bounds),
                )
            )
    shape = " × ".join(map(str, profile.grid)), " × ".join(map(str, profile.block))
    head = one_line(f"{profile.kernel}, grid {shape[0]}, block {shape[1]}")
    lines = [head, "", *columns(rows, right=(2, 3))]
    for target, predictions in estimates.items():
        for estimate in predictions:
            why = [
                *_of_simulation(estimate),
                *why_lines(estimate.stalls, estimate.advice, estimate.time_us, from_here),
            ]
            lines += ["", f"{target}, {estimate.model}:", *(f"  {line}" for line in why)] if why else []
        for reason in not_simulated[target].values():
            lines += ["", f"{target}, {one_line(reason)}"]
    return lines


def _of_simulation(estimate: Estimate) -> list[str]:
    """Return the use of each resource and the states of warps of a simulated launch, in parts of the clocks; nothing of others."""
    clocks = estimate.warp_clocks
    if not clocks:
        return []
    exec_us = estimate.time_us - estimate.launch_us
    bounds = sorted(estimate.bounds.items(), key=lambda item: (-item[1], item[0]))
    needed = [
        f"{name} {number(round(estimate.cycles * us / exec_us))} ({100 * us / exec_us:.0f} %)"
        for name, us in bounds
        if name != "launch" and us >= _LEAST * exec_us
    ]
    reasons = {"selected": float(sum(item.issued for item in estimate.stalled))}
    for item in estimate.stalled:
        for name, waited in item.stalls.items():
            reasons[name] = reasons.get(name, 0.0) + waited
    shares = [
        f"{name} {100 * waited / clocks:.0f} %"
        for name, waited in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        if waited >= _LEAST * clocks
    ]
    return [
        f"{number(round(estimate.cycles))} cycles, limited by {estimate.limiter}; of these need: {', '.join(needed)}",
        f"occupancy {100 * estimate.occupancy:.0f} % ({estimate.ctas_per_sm} CTAs per SM, limited by {estimate.occupancy_limiter})",
        f"warps: {', '.join(shares)}",
        *(
            [f"{number(estimate.l2_read_sectors)} sectors read from L2 (modelled)"]
            if estimate.l2_read_sectors is not None
            else []
        ),
    ]
