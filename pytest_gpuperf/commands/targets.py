"""``gpuperf targets``: the machines for which time can be predicted."""

from __future__ import annotations

import argparse
import json

from gpuperf_engine.timing.document import render
from gpuperf_engine.timing.machine import Machine, load_machine, machine_ids

from .common import OK, Subcommands, columns, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser("targets", help="list the machines for which time can be predicted")
    parser.add_argument(
        "--all", action="store_true", help="every number with its unit and source; the table is Markdown"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    machines = [load_machine(name) for name in machine_ids()]
    if arguments.format == "json":
        rows = [
            {
                "id": m.id,
                "name": m.name,
                "revision": m.revision,
                "compute_capability": list(m.compute_capability),
                "sm_count": m.sm_count,
                "clock_mhz": m.clock_mhz,
                "dram_gb_per_s": m.dram_bandwidth,
                **({"numbers": _numbers(m)} if arguments.all else {}),
            }
            for m in machines
        ]
        write(json.dumps(rows, indent=1) + "\n", None)
        return OK
    if arguments.all:
        write(render(), None)
        return OK
    table = [("id", "name", "compute", "SMs", "MHz", "DRAM GB/s", "revision")]
    table += [
        (
            m.id,
            m.name,
            ".".join(str(part) for part in m.compute_capability),
            str(m.sm_count),
            f"{m.clock_mhz:g}",
            f"{m.dram_bandwidth:g}",
            str(m.revision),
        )
        for m in machines
    ]
    write("\n".join(columns(table, right=(3, 4, 5, 6))) + "\n", None)
    return OK


def _numbers(machine: Machine) -> dict[str, dict[str, object]]:
    return {
        name: {"value": number.value, "unit": number.unit, "source": number.source, "note": number.note}
        for name, number in machine.quantities.items()
    }
