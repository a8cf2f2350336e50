"""``gpuperf sass``: source, PTX and machine code side by side, with executions where a launch is given."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gpuperf_engine.results.cxx_names import readable_name

from .._engine import engine
from ..core.escaping import clean, one_line
from ..core.mangling import stable_name
from ..judge.stalled import stalled_code
from ..report.sass import heat, is_global
from ..sources.original import source_texts
from ..sources.paths import SourcePaths
from .common import OK, Subcommands, UsageError, check_targets, choose_kernel, columns, parse_file, write
from .launch_options import ARGUMENTS, add_launch_options

if TYPE_CHECKING:
    from gpuperf_engine import Estimate, Kernel, MachineCode, MachineInstruction

    from ..core.records import StalledCode

__all__ = ["add_parser"]

_WIDTH = 44
"""Shown characters of a source or PTX line."""
_PLACE = 30
"""Of these, characters for file and line."""
_BAR = "█"
_LEAST = 0.0005
"""Least shown part of all clocks of warps."""


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "sass",
        help="show machine code next to PTX and source",
        usage="gpuperf sass FILE.ptx --target ID [--entry NAME] [--grid X --block X [--arg TYPE=VALUE …]] [options]",
        epilog=ARGUMENTS,
    )
    parser.add_argument("file", metavar="FILE.ptx")
    parser.add_argument("--target", metavar="ID", required=True, help="the machine (see gpuperf targets)")
    add_launch_options(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_targets(arguments.target)
    if (arguments.grid is None) != (arguments.block is None):
        raise UsageError("--grid and --block must be given together; without them no launch is counted")
    if arguments.grid is None and arguments.arg:
        raise UsageError("--arg is for a launch: add --grid and --block")
    kernel, code, estimate, sectors = _code(arguments)
    instructions = (
        engine.machine_instructions(kernel, arguments.target) if code is None else code.instructions
    )
    if arguments.format == "json":
        document: dict[str, Any] = (
            {"kernel": kernel.name, "target": arguments.target}
            | {"instructions": [asdict(item) for item in instructions]}
            if code is None
            else code.to_dict() | _simulated(estimate)
        )
        write(
            json.dumps({"schema_version": 1, **document}, indent=1, ensure_ascii=False) + "\n",
            arguments.output,
        )
        return OK
    stalled = stalled_code(estimate, instructions) if estimate is not None else []
    lines = _table(kernel, instructions, stalled, sectors, executed=code is not None)
    if estimate is not None and not stalled:
        lines += ["", f"no stalls: {one_line(estimate.notes[0], 400)}"]
    write(
        "\n".join([*_head(kernel, code, arguments.target, len(instructions)), "", *lines]) + "\n",
        arguments.output,
    )
    return OK


def _simulated(estimate: Estimate | None) -> dict[str, Any]:
    """Return the simulated stalls of each instruction, or why there is no simulation."""
    if estimate is None or not estimate.stalled:
        return {"stalled": None, "not_simulated": estimate.notes[0] if estimate is not None else None}
    return {"stalled": [asdict(item) for item in estimate.stalled], "not_simulated": None}


def _code(
    arguments: argparse.Namespace,
) -> tuple[Kernel, MachineCode | None, Estimate | None, dict[int, int]]:
    """The kernel, and its machine code, the simulation, and sectors of global memory by PTX line if a launch is given."""
    from .arguments import make_argument

    kernel = choose_kernel(
        parse_file(arguments.file, arguments.entry, arguments.target), arguments.file, arguments.entry
    )
    if arguments.grid is None:
        return kernel, None, None, {}
    device = engine.Device(observe={"memory", "inputs"})
    profile = device.launch(
        kernel,
        arguments.grid,
        arguments.block,
        [make_argument(spec, device) for spec in arguments.arg],
        shared_bytes=arguments.shared_bytes,
        cluster=arguments.cluster,
        cooperative=arguments.cooperative,
    )
    estimate = engine.estimate(profile, arguments.target, model="simulation")
    sectors = {row.line: row.sectors for row in profile.by_line if row.path == kernel.module.path}
    return kernel, engine.machine_code(profile, arguments.target), estimate, sectors


def _head(kernel: Kernel, code: MachineCode | None, target: str, instructions: int) -> list[str]:
    if code is None:
        return [
            one_line(f"{readable_name(stable_name(kernel.name))} for {target}: {instructions:,} instructions")
        ]
    spills = f"{code.spill_bytes} bytes of spills" if code.spill_bytes else "no spills"
    return [
        one_line(
            f"{readable_name(stable_name(code.kernel))} for {target} ({code.architecture}, {code.assembler})"
        ),
        f"{code.warp_instructions:,} warp instructions, {code.thread_instructions:,} thread instructions; "
        f"{instructions:,} in the code",
        f"{code.registers} registers, {code.stack_bytes} bytes of stack, {spills}; residue {100 * code.residue:.1f} %, by {code.ways}",
        *(f"note: {one_line(note, 400)}" for note in code.notes),
    ]


def _table(
    kernel: Kernel,
    instructions: Sequence[MachineInstruction],
    stalled: Sequence[StalledCode],
    sectors: Mapping[int, int],
    *,
    executed: bool,
) -> list[str]:
    """A line for each machine instruction; source and PTX where they are other ones than on the line before. ``stalled``: as
    ``judge.stalled``, empty where the launch was not simulated; ``sectors`` by PTX line."""
    ptx = kernel.module.text.split("\n")
    files = SourcePaths([Path(kernel.module.path).parent], Path())
    positions = {item.source: files.place(item.source) for item in instructions if item.source}
    texts = source_texts(positions.values(), files)
    short = {place: _shortened(place) for place in positions.values()}
    hottest = heat(instructions, stalled)
    left = dict(sectors)
    rows = [
        [
            "source",
            "PTX",
            *(["heat", "warps", "threads"] if executed else []),
            "stall",
            "waits",
            *(["sectors"] if executed else []),
            *(["stalled", "mostly", "causes"] if stalled else []),
            "address",
            "machine code",
        ]
    ]
    source, line = "", 0
    for number, item in enumerate(instructions):
        position = positions.get(item.source, "")
        shown = (
            f"{short[position]} {texts.get(position, '').strip()}" if position and position != source else ""
        )
        text = f"{item.ptx_line} {ptx[item.ptx_line - 1].strip()}" if item.ptx_line not in (0, line) else ""
        source, line = position, item.ptx_line
        rows.append(
            [
                one_line(shown, _WIDTH),
                one_line(text, _WIDTH),
                *(
                    [_BAR * hottest[number], _count(item.warps, item), _count(item.threads, item)]
                    if executed
                    else []
                ),
                str(item.stall),
                _numbers(item.waits),
                *([_sectors(item, left)] if executed else []),
                *(_stalled(*stalled[number]) if stalled else []),
                f"{item.address:04x}",
                clean(item.text),
            ]
        )
    right = (3, 4, 5, 7, *((8, 10, 11) if stalled else (8,))) if executed else (2, 4)
    return columns(rows, right=right)


def _sectors(item: MachineInstruction, left: dict[int, int]) -> str:
    """Those of the PTX line, at the first executed access of global memory that is made of it."""
    count = left.pop(item.ptx_line, 0) if item.warps and is_global(item.text) else 0
    return f"{count:,}" if count else ""


def _shortened(position: str) -> str:
    """Return file and line, without folders if they leave no room for the text."""
    return position if len(position) <= _PLACE else PurePosixPath(position).name


def _stalled(waited: float, reason: str, caused: float) -> list[str]:
    """Parts of all clocks of warps in percent; nothing where that rounds to none."""
    shares = [f"{100 * part:.1f} %" if part >= _LEAST else "" for part in (waited, caused)]
    return [shares[0], reason if shares[0] else "", shares[1]]


def _count(count: int, item: MachineInstruction) -> str:
    """Format a count, with a question mark if the counts of PTX do not determine it."""
    return f"{count:,}" if item.exact else f"{count:,}?"


def _numbers(waits: Iterable[int]) -> str:
    return ",".join(map(str, waits))
