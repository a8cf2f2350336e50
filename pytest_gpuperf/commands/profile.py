"""``gpuperf profile``: one launch of one kernel, counted, with its predicted time. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gpuperf_engine.errors import nearest

from .._engine import load
from ..figures import number
from .common import OK, UsageError, columns, parse_file, write

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "profile",
        help="run one kernel and show what was counted",
        epilog="arguments: s32=100, f32=2, 'f32[4,256]=arange|zeros|ones|empty|random|random:SEED|NUMBER|@FILE.npy', ptr=null",
    )
    parser.add_argument("file", metavar="FILE.ptx")
    parser.add_argument("--entry", metavar="NAME", help="the kernel, where there are several")
    parser.add_argument(
        "--grid", metavar="X[,Y[,Z]]", required=True, type=_dimensions, help="CTAs of the launch"
    )
    parser.add_argument(
        "--block", metavar="X[,Y[,Z]]", required=True, type=_dimensions, help="threads of a CTA"
    )
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
        help="json and csv hold every opcode and line (default: table)",
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
    from .arguments import make_argument

    engine = load()
    known = engine.machine_ids()
    for target in arguments.target:
        if target not in known:
            raise UsageError(f"--target {target!r} is not known; {nearest(target, known, noun='target')}")
    module = parse_file(arguments.file)
    names = list(module.kernels)
    if arguments.entry is None and len(names) != 1:
        raise UsageError(
            f"{arguments.file} has {len(names)} kernels: say which one with --entry ({nearest('', names, noun='kernel')})"
        )
    if arguments.entry is not None and arguments.entry not in names:
        raise UsageError(
            f"no kernel {arguments.entry!r} in {arguments.file}: {nearest(arguments.entry, names, noun='kernel')}"
        )
    device = engine.Device(
        observe={"memory", "values"}, backend=arguments.backend, resources=arguments.resources
    )
    profile = device.launch(
        module[arguments.entry or names[0]],
        grid=arguments.grid,
        block=arguments.block,
        args=[make_argument(spec, device) for spec in arguments.arg],
        shared_bytes=arguments.shared_bytes,
        cooperative=arguments.cooperative,
        max_instructions=arguments.max_instructions,
    )
    estimates = {target: engine.estimate(profile, target) for target in dict.fromkeys(arguments.target)}
    findings = engine.find_patterns(device.program)
    if arguments.format == "json":
        write(
            json.dumps(_document(profile, estimates, findings), indent=1, ensure_ascii=False) + "\n",
            arguments.output,
        )
    elif arguments.format == "csv":
        write(_csv(profile, estimates), arguments.output)
    else:
        write("\n".join(_table(profile, estimates, findings)) + "\n", arguments.output)
    return OK


def _document(profile: Any, estimates: dict[str, Any], findings: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "profile": profile.to_dict(),
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
        "findings": [{"rule": f.rule, "object": f.object, "message": f.message} for f in findings],
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


def _csv(profile: Any, estimates: dict[str, Any]) -> str:
    """``kind,name,threads,warps``: metrics, categories, opcodes and PTX lines; times have kind ``time_us``."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(("kind", "name", "value", "warps"))
    for name, value in _metrics(profile):
        table.writerow(("metric", name, value, ""))
    for name, estimate in estimates.items():
        table.writerow(("time_us", name, estimate.time_us, ""))
    for name, value in sorted(profile.by_category.items()):
        table.writerow(("category", name, value, ""))
    for name, value in sorted(profile.opcodes.items()):
        table.writerow(("opcode", name, value, profile.warp_opcodes.get(name, 0)))
    for line in profile.by_line:
        table.writerow(("line", f"{line.path}:{line.line}", line.thread_instructions, line.warp_instructions))
    return stream.getvalue()


def _table(profile: Any, estimates: dict[str, Any], findings: Any) -> Iterator[str]:
    grid, block = (" × ".join(str(part) for part in parts) for parts in (profile.grid, profile.block))
    yield f"{profile.kernel} of {profile.path} ({profile.target}), grid {grid}, block {block}"
    for note in profile.notes:
        yield f"note: {note}"
    yield ""
    yield from columns([(name, number(value)) for name, value in _metrics(profile) if value], right=(1,))
    yield ""
    rows = [("category", "thread instructions")]
    yield from columns(
        [*rows, *((name, number(value)) for name, value in sorted(profile.by_category.items()))], right=(1,)
    )
    yield ""
    opcodes = sorted(profile.opcodes, key=lambda name: (-profile.opcodes[name], name))
    table = [("opcode", "threads", "warps")]
    table += [
        (name, number(profile.opcodes[name]), number(profile.warp_opcodes.get(name, 0)))
        for name in opcodes[:20]
    ]
    yield from columns(table, right=(1, 2))
    if len(opcodes) > 20:
        yield f"… {len(opcodes) - 20} more opcodes (--format json or csv has all)"
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
    if findings:
        yield ""
        yield from (f"finding: {finding.rule} {finding.object}: {finding.message}" for finding in findings)
