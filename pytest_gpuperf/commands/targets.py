"""``gpuperf targets``: the machines for which time can be predicted."""

from __future__ import annotations

import argparse
import json

from gpuperf_engine.machines.document import render
from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids

from .common import OK, Subcommands, columns, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser("targets", help="list the machines for which time can be predicted")
    parser.add_argument(
        "--all", action="store_true", help="every number with its unit and source; the table is Markdown"
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        metavar="ID",
        help="the numbers in which these machines differ; with --all, all their numbers",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.compare:
        return _compare([load_machine(name) for name in dict.fromkeys(arguments.compare)], arguments)
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


def _compare(machines: list[Machine], arguments: argparse.Namespace) -> int:
    """Print a row for each number, a column for each machine. A number is missing if the machine lacks the unit."""
    numbers = [_numbers(machine) for machine in machines]
    names = [
        name
        for name in dict.fromkeys(name for machine in numbers for name in machine)
        if arguments.all or len({machine.get(name, {}).get("value") for machine in numbers}) > 1
    ]
    if arguments.format == "json":
        rows = {name: {m.id: own.get(name) for m, own in zip(machines, numbers)} for name in names}
        write(json.dumps(rows, indent=1) + "\n", None)
        return OK
    table = [("number", "unit", *(machine.id for machine in machines))]
    for name in names:
        own = [machine.get(name) for machine in numbers]
        unit = next(str(number["unit"]) for number in own if number)
        table.append((name, unit, *(_cell(number) for number in own)))
    right = range(2, 2 + len(machines))
    write(
        "\n".join(columns(table, right=tuple(right))) + "\n~ assumed: gpuperf targets --all says why\n", None
    )
    return OK


def _cell(number: dict[str, object] | None) -> str:
    if number is None:
        return "–"
    return f"{'~' if number['source'] == 'assumed' else ''}{number['value']:,.10g}"


def _numbers(machine: Machine) -> dict[str, dict[str, object]]:
    return {
        name: {"value": number.value, "unit": number.unit, "source": number.source, "note": number.note}
        for name, number in machine.quantities.items()
    }
