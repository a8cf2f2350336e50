"""``gpuperf profile``: launches of kernels, counted, with their predicted times."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuperf_engine.errors import NotObserved

from .._engine import engine
from ..authoring.progress import on_terminal, step
from ..core.escaping import clean
from .common import OK, Subcommands, UsageError, check_targets, write
from .launch_options import ARGUMENTS, add_launch_options
from .profile_view import Shown, document_of, lines_of
from .programs import LaunchSpec, ProgramSpec, read_program

if TYPE_CHECKING:
    from gpuperf_engine import Device, Estimate, Finding, Profile

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "profile",
        help="run kernels and show what was counted",
        usage="gpuperf profile FILE.ptx [--entry NAME] --grid X --block X [--arg TYPE=VALUE …] [options]\n"
        "       gpuperf profile --launches FILE [options]",
        epilog=ARGUMENTS,
    )
    parser.add_argument("file", metavar="FILE.ptx", nargs="?")
    parser.add_argument(
        "--launches",
        metavar="FILE",
        help="YAML or JSON with arrays and launches, instead of the options for one launch",
    )
    add_launch_options(parser)
    _add_machines(parser)
    _add_format(parser)
    _add_counting(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def _add_machines(parser: argparse.ArgumentParser) -> None:
    """Options for the machines of predicted times, and for the emulator that runs the kernels."""
    parser.add_argument(
        "--target",
        metavar="ID",
        action="append",
        default=[],
        help="predict the time on this machine (repeatable)",
    )
    parser.add_argument(
        "--resources",
        choices=("estimate", "ptxas"),
        default="estimate",
        help="source of register counts (default: estimate)",
    )
    parser.add_argument(
        "--backend",
        type=_backend,
        choices=("llvm", "reference"),
        default="llvm",
        help="emulator: LLVM, or the slow reference in NumPy (default: llvm)",
    )
    parser.add_argument(
        "--max-instructions",
        metavar="N",
        type=int,
        help="warp instructions that one warp may execute (default: 10**8)",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    """Options for the output of the counts."""
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="json holds every opcode and line, csv a row per launch (default: table)",
    )
    parser.add_argument(
        "--groups",
        choices=("categories", "nvprof"),
        help="group opcodes by category (the default) or by the metrics of nvprof; adds columns to csv",
    )


def _add_counting(parser: argparse.ArgumentParser) -> None:
    """Options for the counts, and for estimates from a sample."""
    parser.add_argument(
        "--demand",
        choices=("auto", "control", "addresses", "values"),
        default="auto",
        help="how much of the kernel to run: control flow, also addresses, or everything "
        "(default: the smallest demand that the output needs)",
    )
    parser.add_argument(
        "--footprint",
        action="store_true",
        help="show which bytes of each array were read and written, each counted once",
    )
    parser.add_argument(
        "--thread",
        metavar="CTA:THREAD",
        action="append",
        default=[],
        type=_thread,
        help="also count this thread separately; CTA and thread as N or X,Y[,Z] (repeatable)",
    )
    parser.add_argument(
        "--sample",
        metavar="centre|K",
        type=_sample,
        help="an estimate from the centre thread of the centre CTA, or of each of K CTAs",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="with --sample: also count everything exactly, and show the errors",
    )


def _backend(name: str) -> str:
    """Return the name of a backend; map former names to the present one, with a warning."""
    from gpuperf_engine.device.options import FORMER_BACKENDS

    present = FORMER_BACKENDS.get(name, name)
    if present != name:
        sys.stderr.write(f"gpuperf profile: warning: --backend {name} is now --backend {present}\n")
    return present


def _thread(text: str) -> tuple[object, object]:
    """CTA and thread as ``by_thread`` takes them."""
    try:
        cta, thread = (tuple(int(part) for part in position.split(",")) for position in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not CTA:THREAD") from None
    return (cta[0] if len(cta) == 1 else cta), (thread[0] if len(thread) == 1 else thread)


def _sample(text: str) -> str | int:
    if text == "centre":
        return text
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither 'centre' nor a number of CTAs")


def run(arguments: argparse.Namespace) -> int:
    # NumPy comes with it
    from .profile_run import run_program

    _check(arguments)
    program = _program(arguments)
    _check_sample(arguments, program)
    progress = on_terminal(sys.stderr)
    for demand in _demands(arguments):
        device = _device(arguments, demand)
        try:
            ran = run_program(program, device, arguments, demand, progress)
            break
        except NotObserved:
            # a launch reads values that an earlier one would have computed
            if arguments.demand != "auto" or demand == "values":
                raise
    profiles = [profile for _, profile in ran if profile is not None]
    targets = tuple(dict.fromkeys(arguments.target))
    with step(progress, "predicting time"):
        estimates = [
            {target: engine.estimate(profile, target, why=True) for target in targets} for profile in profiles
        ]
    findings: tuple[Finding, ...] = ()
    if not device.observe.isdisjoint(("proofs", "values")):
        with step(progress, "looking for findings"):
            findings = engine.find_patterns(device)
    for profile in profiles:
        # standard output is for the table, JSON or CSV
        sys.stderr.write(clean(profile.printed))
    for remark in dict.fromkeys(remark for profile in profiles for remark in profile.remarks):
        sys.stderr.write(f"note: {clean(remark)}\n")
    if arguments.format == "csv":
        _write_csv(
            engine.csv_text(profiles, _further(profiles, estimates, arguments.groups)), arguments.output
        )
        return OK
    launches = [
        Shown(sample, profile, estimates[number] if profiles else {}, _threads(profile, arguments.thread))
        for number, (sample, profile) in enumerate(ran)
    ]
    text = _json if arguments.format == "json" else _table
    write(text(arguments, launches, findings) + "\n", arguments.output)
    return OK


def _check(arguments: argparse.Namespace) -> None:
    check_targets(*arguments.target)
    if arguments.target and arguments.demand == "control":
        raise UsageError("--target needs addresses: use --demand addresses, or values")
    if arguments.footprint and arguments.format == "csv":
        raise UsageError("--format csv cannot show footprints: use table or json")
    if arguments.footprint and arguments.demand not in ("auto", "values"):
        raise UsageError("--footprint needs everything to run: use --demand values")


def _device(arguments: argparse.Namespace, demand: str) -> Device:
    observe = {"values": {"memory", "values"}, "addresses": {"memory"}, "control": set()}[demand]
    if demand != "values" and arguments.format != "csv":
        observe.add("proofs")
    if arguments.thread:
        observe.add("threads")
    if arguments.target:
        observe.add("inputs")  # simulations run on them
    if arguments.footprint:
        observe.add("footprint")
    return engine.Device(observe=observe, backend=arguments.backend, resources=arguments.resources)


def _json(arguments: argparse.Namespace, launches: Sequence[Shown], findings: Sequence[Finding]) -> str:
    documents = [document_of(shown) for shown in launches]
    rows = [
        {key: getattr(f, key) for key in ("rule", "severity", "object", "message", "advice")}
        for f in findings
    ]
    document = {
        "schema_version": 1,
        **({"launches": documents} if arguments.launches else documents[0]),
        "findings": rows,
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def _table(arguments: argparse.Namespace, launches: Sequence[Shown], findings: Sequence[Finding]) -> str:
    lines: list[str] = []
    for shown in launches:
        lines += [*lines_of(shown, arguments.groups or "categories"), ""]
    lines += [
        f"finding: {finding.rule} {finding.object}: {finding.message}"
        for finding in findings
        if finding.severity == "fail"
    ]
    return "\n".join(lines).rstrip("\n")


def _demands(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The demands to try. Findings are in tables and JSON only; predicted times need addresses."""
    if arguments.demand != "auto":
        return (arguments.demand,)
    if arguments.format != "csv":
        return ("values",)
    return ("addresses" if arguments.target else "control", "values")


def _check_sample(arguments: argparse.Namespace, program: ProgramSpec) -> None:
    if arguments.sample is None:
        if arguments.exact:
            raise UsageError("--exact needs --sample; without it everything is exact")
        return
    if arguments.format == "csv":
        raise UsageError("--format csv cannot show estimates: omit --sample, or use json")
    if arguments.exact:
        return
    for given, option in (
        (arguments.target, "--target"),
        (arguments.thread, "--thread"),
        (arguments.footprint, "--footprint"),
    ):
        if given:
            raise UsageError(f"{option} needs what --sample alone does not count: add --exact")
    if len(program.launches) > 1:
        raise UsageError("--sample does not change memory: for several launches add --exact")


def _program(arguments: argparse.Namespace) -> ProgramSpec:
    """The launches of ``--launches``, or the one that the other options describe."""
    single = ("file", "entry", "grid", "block", "arg", "shared_bytes", "cluster", "cooperative")
    if arguments.launches is not None:
        for name in single:
            if getattr(arguments, name):
                option = "FILE.ptx" if name == "file" else f"--{name.replace('_', '-')}"
                raise UsageError(f"--launches describes all launches: omit {option}")
        return read_program(arguments.launches)
    for name, option in (("file", "FILE.ptx"), ("grid", "--grid"), ("block", "--block")):
        if getattr(arguments, name) is None:
            raise UsageError(f"{option} is needed (or --launches)")
    options = {name: getattr(arguments, name) for name in single if name != "arg"}
    return ProgramSpec({}, (LaunchSpec(**options, args=tuple(arguments.arg)),), Path())


def _threads(profile: Profile | None, wanted: Sequence[tuple[object, object]]) -> list[tuple[str, object]]:
    if profile is None:
        return []
    return [(f"CTA {cta} thread {thread}", profile.by_thread[cta, thread]) for cta, thread in wanted]


def _further(
    profiles: Sequence[Profile], estimates: Sequence[dict[str, Estimate]], groups: str | None
) -> dict[str, list[float]]:
    """Columns after the fixed ones: predicted times in µs and groups of opcodes."""
    columns = {
        f"time_us.{target}": [amounts[target].time_us for amounts in estimates] for target in estimates[0]
    }
    if groups is not None:
        counts = [profile.groups(groups) for profile in profiles]
        names = dict.fromkeys(name for amounts in counts for name in amounts)
        columns |= {name: [amounts.get(name, 0) for amounts in counts] for name in names}
    return columns


def _write_csv(text: str, output: str | None) -> None:
    """Write CSV, whose CR LF line ends must be neither escaped nor translated."""
    if output is None:
        sys.stdout.write("\r\n".join(clean(line) for line in text.split("\r\n")))
    else:
        write(text, output)
