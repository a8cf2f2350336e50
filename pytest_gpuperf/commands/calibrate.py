"""``gpuperf calibrate``: a machine description from microbenchmarks that ran on the machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpuperf_engine.machines.machine import load_machine, machine_path
from gpuperf_engine.timing.calibration.calibrate import calibrate
from gpuperf_engine.timing.calibration.collected import read_part
from gpuperf_engine.timing.calibration.machine_file import write_machine

from .common import OK, Subcommands, UsageError, columns, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser(
        "calibrate", help="write a machine description from microbenchmarks that ran on the machine"
    )
    parser.add_argument("folder", metavar="DIR", help="what tests/hardware/collect.py wrote")
    parser.add_argument(
        "--base",
        required=True,
        metavar="MACHINE",
        help="id or file of the machine that provides the numbers that were not measured",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="NAME.yaml",
        help="the file to write; its name is the machine's id",
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.output)
    if path.exists() and not arguments.force:
        raise UsageError(f"{path} exists already: overwrite it with --force")
    base = load_machine(arguments.base)
    collected = read_part(arguments.folder, "micro")
    calibration = calibrate(collected, base)
    machine = write_machine(path, base, machine_path(arguments.base), collected.machine, calibration)
    rows = [("number", base.id, "measured", "unit", "from")]
    for number in calibration.numbers.values():
        before = base.quantities.get(number.path)
        shown = f"{before.value:g}" if before else "–"
        rows.append((number.path, shown, f"{number.value:g}", number.unit, number.note))
    lines = columns(rows, right=(1, 2))
    unchanged = len(machine.quantities) - len(calibration.numbers)
    lines += ["", f"{path}: {len(calibration.numbers)} numbers measured, {unchanged} kept from {base.id}"]
    lines += [f"not measured: {name}: {reason}" for name, reason in calibration.missing.items()]
    if calibration.observed:
        lines += ["", "also measured, but used by no model:"]
        lines += columns(
            [(f"{item.value:g}", item.unit, item.path) for item in calibration.observed.values()], right=(0,)
        )
    write("\n".join(lines) + "\n", None)
    return OK
