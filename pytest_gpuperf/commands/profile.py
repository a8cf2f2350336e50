"""``gpuperf profile``: launches of kernels, counted, with their predicted times. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuperf_engine.errors import nearest

from .._engine import load
from ..explained import explanation_tables
from ..figures import number
from ..progress import Progress, on_terminal, step
from ..textsafe import clean
from .common import OK, UsageError, columns, parse_file, write
from .programs import LaunchSpec, ProgramSpec, read_program

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "profile",
        help="run kernels and show what was counted",
        usage="gpuperf profile FILE.ptx [--entry NAME] --grid X --block X [--arg TYPE=VALUE …] [options]\n"
        "       gpuperf profile --launches FILE [options]",
        epilog="arguments: s32=100, f32=2, 'f32[4,256]=arange|zeros|ones|empty|random|random:SEED|NUMBER|@FILE.npy', ptr=null",
    )
    parser.add_argument("file", metavar="FILE.ptx", nargs="?")
    parser.add_argument(
        "--launches",
        metavar="FILE",
        help="YAML or JSON with arrays and launches, in place of the options for one",
    )
    parser.add_argument("--entry", metavar="NAME", help="the kernel, where there are several")
    parser.add_argument("--grid", metavar="X[,Y[,Z]]", type=_dimensions, help="CTAs of the launch")
    parser.add_argument("--block", metavar="X[,Y[,Z]]", type=_dimensions, help="threads of a CTA")
    parser.add_argument(
        "--arg", metavar="TYPE=VALUE", action="append", default=[], help="one per parameter, in order"
    )
    parser.add_argument(
        "--shared-bytes", metavar="N", type=int, default=0, help="dynamic shared memory of a CTA"
    )
    parser.add_argument("--cooperative", action="store_true", help="all CTAs are resident at once")
    parser.add_argument(
        "--target", metavar="ID", action="append", default=[], help="predict the time there (repeatable)"
    )
    parser.add_argument(
        "--resources",
        choices=("estimate", "ptxas"),
        default="estimate",
        help="where registers come from (default: estimate)",
    )
    parser.add_argument(
        "--backend",
        choices=("native", "lanes"),
        default="native",
        help="emulator: LLVM, or the slow reference in NumPy (default: native)",
    )
    parser.add_argument(
        "--max-instructions",
        metavar="N",
        type=int,
        help="warp instructions that one warp may execute (default: 10**8)",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="json holds every opcode and line, csv a row per launch (default: table)",
    )
    parser.add_argument(
        "--groups",
        choices=("categories", "nvprof"),
        help="how opcodes are grouped: by category (the default), or as the metrics of nvprof; adds columns to csv",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")
    parser.set_defaults(run=run)


def _dimensions(text: str) -> tuple[int, ...]:
    try:
        parts = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not X[,Y[,Z]]") from None
    if not 1 <= len(parts) <= 3:
        raise argparse.ArgumentTypeError(f"{text!r} has {len(parts)} dimensions, a launch has one to three")
    return parts


def run(arguments: argparse.Namespace) -> int:
    engine = load()
    known = engine.machine_ids()
    for target in arguments.target:
        if target not in known:
            raise UsageError(f"--target {target!r} is not known; {nearest(target, known, noun='target')}")
    device = engine.Device(
        observe={"memory", "values"}, backend=arguments.backend, resources=arguments.resources
    )
    program = _program(arguments)
    progress = on_terminal(sys.stderr)
    profiles = _launched(program, device, arguments.max_instructions, progress)
    targets = tuple(dict.fromkeys(arguments.target))
    with step(progress, "predicting time"):
        estimates = [{target: engine.estimate(profile, target) for target in targets} for profile in profiles]
    with step(progress, "looking for findings"):
        findings = engine.find_patterns(device)
    if arguments.format == "csv":
        _write_csv(
            engine.csv_text(profiles, _further(profiles, estimates, arguments.groups)), arguments.output
        )
        return OK
    if arguments.format == "json":
        launches = [_launch(*pair) for pair in zip(profiles, estimates, strict=True)]
        found = [{"rule": f.rule, "object": f.object, "message": f.message} for f in findings]
        document = {
            "schema_version": 1,
            **({"launches": launches} if arguments.launches else launches[0]),
            "findings": found,
        }
        write(json.dumps(document, indent=1, ensure_ascii=False) + "\n", arguments.output)
        return OK
    lines = []
    for profile, predicted in zip(profiles, estimates, strict=True):
        found = engine.explain(profile).to_dict()
        lines += [*_table(profile, predicted, arguments.groups or "categories", found), ""]
    lines += [f"finding: {finding.rule} {finding.object}: {finding.message}" for finding in findings]
    write("\n".join(lines).rstrip("\n") + "\n", arguments.output)
    return OK


def _program(arguments: argparse.Namespace) -> ProgramSpec:
    """The launches of ``--launches``, or the one that the other options describe."""
    single = ("file", "entry", "grid", "block", "arg", "shared_bytes", "cooperative")
    if arguments.launches is not None:
        for name in single:
            if getattr(arguments, name):
                option = "FILE.ptx" if name == "file" else f"--{name.replace('_', '-')}"
                raise UsageError(f"--launches describes all launches: leave out {option}")
        return read_program(arguments.launches)
    for name, option in (("file", "FILE.ptx"), ("grid", "--grid"), ("block", "--block")):
        if getattr(arguments, name) is None:
            raise UsageError(f"{option} is needed (or --launches)")
    given = {name: getattr(arguments, name) for name in single if name != "arg"}
    return ProgramSpec({}, (LaunchSpec(**given, args=tuple(arguments.arg)),), Path())


def _launched(
    program: ProgramSpec, device: Any, max_instructions: int | None, progress: Progress | None
) -> list[Any]:
    from .arguments import make_argument

    arrays = {
        name: make_argument(spec, device, where, program.folder)
        for name, (spec, where) in program.arrays.items()
    }
    modules: dict[str, Any] = {}
    profiles = []
    for launch in program.launches:
        path = str(program.folder / launch.file)
        if path not in modules:
            with step(progress, "reading PTX"):
                modules[path] = parse_file(path)
        kernel = _kernel(modules[path], path, launch.entry)
        with step(progress, f"running {kernel.name}"):
            profile = device.launch(
                kernel,
                grid=launch.grid,
                block=launch.block,
                args=[
                    arrays[spec]
                    if spec in arrays
                    else make_argument(spec, device, launch.where, program.folder)
                    for spec in launch.args
                ],
                shared_bytes=launch.shared_bytes,
                cooperative=launch.cooperative,
                max_instructions=max_instructions,
            )
        profiles.append(profile)
    return profiles


def _kernel(module: Any, path: str, entry: str | None) -> Any:
    names = list(module.kernels)
    if entry is None and len(names) != 1:
        raise UsageError(
            f"{path} has {len(names)} kernels: say which one with --entry ({nearest('', names, noun='kernel')})"
        )
    if entry is not None and entry not in names:
        raise UsageError(f"no kernel {entry!r} in {path}: {nearest(entry, names, noun='kernel')}")
    return module[entry or names[0]]


def _further(
    profiles: Sequence[Any], estimates: Sequence[dict[str, Any]], groups: str | None
) -> dict[str, list[Any]]:
    """Columns behind those that are always there: predicted times in µs and groups of opcodes."""
    made = {f"time_us.{target}": [found[target].time_us for found in estimates] for target in estimates[0]}
    if groups is not None:
        counts = [profile.groups(groups) for profile in profiles]
        names = dict.fromkeys(name for found in counts for name in found)
        made |= {name: [found.get(name, 0) for found in counts] for name in names}
    return made


def _write_csv(text: str, output: str | None) -> None:
    """Its lines end in CR LF, which is neither cleaned away nor translated."""
    if output is None:
        sys.stdout.write("\r\n".join(clean(line) for line in text.split("\r\n")))
    else:
        write(text, output)


def _launch(profile: Any, estimates: dict[str, Any]) -> dict[str, Any]:
    return {
        "profile": profile.to_dict(),
        "explanation": load().explain(profile).to_dict(),
        "estimates": {
            name: {
                "model": e.model,
                "machine_revision": e.machine_revision,
                "time_us": e.time_us,
                "launch_us": e.launch_us,
                "limiter": e.limiter,
                "bounds": dict(e.bounds),
                "occupancy": e.occupancy,
                "ctas_per_sm": e.ctas_per_sm,
                "waves": e.waves,
                "notes": list(e.notes),
            }
            for name, e in estimates.items()
        },
    }


def _metrics(profile: Any) -> Iterator[tuple[str, int | float]]:
    yield "thread_instructions", profile.thread_instructions
    yield "warp_instructions", profile.warp_instructions
    yield "thread_instructions_predicated_on", profile.thread_instructions_predicated_on
    yield "branches.executed", profile.branches.executed
    yield "branches.divergent", profile.branches.divergent
    yield "branches.efficiency", profile.branches.efficiency
    for name, value in asdict(profile.memory).items():
        if isinstance(value, int):
            yield f"memory.{name}", value
    yield "resources.registers", profile.resources.registers
    yield "resources.shared_bytes", profile.resources.shared_bytes
    yield "resources.local_bytes", profile.resources.local_bytes
    for name, value in sorted(profile.flops.items()):
        yield f"flops.{name}", value


def _table(
    profile: Any, estimates: dict[str, Any], groups: str, explanation: dict[str, Any]
) -> Iterator[str]:
    grid, block = (" × ".join(str(part) for part in parts) for parts in (profile.grid, profile.block))
    yield f"{profile.kernel} of {profile.path} ({profile.target}), grid {grid}, block {block}"
    for note in profile.notes:
        yield f"note: {note}"
    yield ""
    yield from columns([(name, number(value)) for name, value in _metrics(profile) if value], right=(1,))
    yield ""
    head = ("category", "thread instructions") if groups == "categories" else ("metric", "executions")
    counts = [(name, number(value)) for name, value in profile.groups(groups).items() if value]
    yield from columns([head, *counts], right=(1,))
    yield ""
    opcodes = sorted(profile.opcodes, key=lambda name: (-profile.opcodes[name], name))
    table = [("opcode", "threads", "warps")]
    table += [
        (name, number(profile.opcodes[name]), number(profile.warp_opcodes.get(name, 0)))
        for name in opcodes[:20]
    ]
    yield from columns(table, right=(1, 2))
    if len(opcodes) > 20:
        yield f"… {len(opcodes) - 20} more opcodes (--format json has all)"
    for numbers, rows in explanation_tables(explanation, profile.path, profile.thread_instructions):
        yield ""
        yield from columns(rows, right=numbers)
    for name, estimate in estimates.items():
        yield ""
        yield f"{name}: {number(estimate.time_us)} µs, limited by {estimate.limiter} ({estimate.model})"
        bounds = sorted(estimate.bounds.items(), key=lambda item: (-item[1], item[0]))
        yield from (
            f"  {line}"
            for line in columns(
                [(f"bound {bound}", f"{value:.4g} µs") for bound, value in bounds], right=(1,)
            )
        )
        yield f"  occupancy {100 * estimate.occupancy:.3g} % ({estimate.ctas_per_sm} CTAs per SM, by {estimate.occupancy_limiter})"
        yield from (f"  note: {note}" for note in estimate.notes)
