"""Counters of a real GPU beside the emulator's: every launch of every example under Nsight Compute.

    python -m tests.hardware.counters DIR [--report OUT]

``DIR`` is the folder ``counters`` that ``collect.py --parts counters`` left, with ``counters.csv`` and ``examples.jsonl``.
Counters are of machine instructions, ours of PTX: sectors, requests and wavefronts should be equal, instructions show
what ``ptxas`` makes of PTX, class by class. Exit codes: 0 done, 2 nothing to read.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpuperf_engine as ge
from gpuperf_engine.errors import EngineError, MachineError
from gpuperf_engine.timing.calibration.collected import Collected, read_part
from tests.hardware import collect


@dataclass(frozen=True)
class Counted:
    """One launch under Nsight Compute. A metric that the GPU does not have is not among ``metrics``."""

    number: int
    kernel: str
    metrics: Mapping[str, float]


def parse(text: str, path: str = "counters.csv") -> list[Counted]:
    """Output of ``ncu --csv``: lines of its own (``==PROF==``), a header, a row per launch and metric. Columns are found by name.

    Raises :class:`MachineError`, with the line, for output without a table, a row that is cut off, and a value that is not a number.
    """
    lines = text.splitlines()
    start = next(
        (i for i, line in enumerate(lines) if '"Metric Name"' in line and '"Metric Value"' in line), None
    )
    if start is None:
        said = next((line for line in lines if "==ERROR==" in line), "")
        raise MachineError(f"{path} holds no table of ncu --csv" + (f": {said}" if said else ""))
    head = next(csv.reader([lines[start]]))
    try:
        columns = {
            key: head.index(key)
            for key in ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
        }
    except ValueError as problem:
        raise MachineError(f"{path}:{start + 1}: the table has no such column: {problem}") from None
    found: dict[int, tuple[str, dict[str, float]]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if not line.strip() or line.startswith("=="):
            continue
        row = next(csv.reader([line]))
        if len(row) < len(head):
            raise MachineError(f"{path}:{number}: {len(row)} columns of {len(head)}: the output was cut off")
        launch, value = row[columns["ID"]], row[columns["Metric Value"]]
        _, metrics = found.setdefault(int(launch), (row[columns["Kernel Name"]], {}))
        if value.lower() in ("n/a", "", "nan"):
            continue
        try:
            amount = float(value.replace(",", ""))
        except ValueError:
            raise MachineError(f"{path}:{number}: {value!r} is not a number") from None
        unit = row[columns["Metric Unit"]]
        if unit[:1] in ("K", "M", "G") and unit[1:2].islower():
            raise MachineError(f"{path}:{number}: scaled to {unit}", hint="run ncu with --print-units base")
        metrics[row[columns["Metric Name"]]] = amount
    return [Counted(number, kernel, metrics) for number, (kernel, metrics) in sorted(found.items())]


def ours(profile: Any) -> dict[str, float]:
    """The same figures of the emulator."""
    memory, groups = profile.memory, profile.groups("nvprof")
    return {
        "global load requests": memory.global_load_requests,
        "global load sectors": memory.global_load_sectors,
        "global store requests": memory.global_store_requests,
        "global store sectors": memory.global_store_sectors,
        "shared load wavefronts": memory.shared_load_wavefronts,
        "shared store wavefronts": memory.shared_store_wavefronts,
        "shared conflicts": memory.shared_conflicts,
        "warp instructions": profile.warp_instructions,
        "thread instructions": profile.thread_instructions,
        "thread instructions, guard true": profile.thread_instructions_predicated_on,
        "branches": profile.branches.executed,
        "divergent branches": profile.branches.divergent,
        **{
            f"class {name}": count
            for name, count in groups.items()
            if f"class {name}" in collect.OTHER_COUNTERS
        },
    }


def beside(launches: Sequence[Counted], examples: Collected) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Case, kernel, and for each figure (ours, the GPU's), launch by launch, in the order in which the collector ran them."""
    place = 0
    for case in collect.catalogue().CASES:
        record = examples.cases.get(case.name)
        if record is None or "error" in record:
            continue
        program = case.program()
        device = ge.Device()
        arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}
        module = ge.parse(case.text, path=str(case.ptx))
        for launch in program.launches:
            if place >= len(launches):
                print(
                    f"{case.name}: the counters end after {place} launches, ncu was cut off", file=sys.stderr
                )
                return
            counted = launches[place]
            place += 1
            if counted.kernel.split("(")[0] != launch.entry:
                raise MachineError(
                    f"launch {counted.number} is of {counted.kernel}, {launch.entry} of {case.name} was expected",
                    hint="collect into an empty folder, so that no case is passed over",
                )
            arguments = [arrays.get(id(value), value) for value in launch.args]
            profile = device.launch(
                module[launch.entry], launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes
            )
            mine = ours(profile)
            both = {
                name: (mine[name], sum(counted.metrics[metric] for metric in metrics))
                for name, metrics in (collect.SAME_COUNTERS | collect.OTHER_COUNTERS).items()
                if all(metric in counted.metrics for metric in metrics)
            }
            yield case.name, launch.entry, both
    if place < len(launches):
        raise MachineError(f"{len(launches) - place} launches more than the examples have")


def markdown(rows: Sequence[tuple[str, str, dict[str, Any]]], machine: Mapping[str, Any]) -> str:
    """What should be equal, launch by launch where it is not; and ratios of sums, kernel by kernel."""
    lines = [
        f"# Counters of {machine['gpu']}",
        "",
        "## What should be equal",
        "",
        "| figure | launches | equal |",
        "|---|---:|---:|",
    ]
    unlike = []
    for name in collect.SAME_COUNTERS:
        held = [(case, entry, both[name]) for case, entry, both in rows if name in both]
        lines.append(f"| {name} | {len(held)} | {sum(a == b for _, _, (a, b) in held)} |")
        unlike += [(name, case, entry, a, b) for case, entry, (a, b) in held if a != b]
    if unlike:
        lines += ["", "| figure | case | kernel | emulator | GPU |", "|---|---|---|---:|---:|"]
        lines += [
            f"| {name} | {case} | {entry} | {a:,.0f} | {b:,.0f} |" for name, case, entry, a, b in unlike
        ]
    lines += ["", "## Machine instructions per PTX instruction", ""]
    names = [name for name in collect.OTHER_COUNTERS if any(name in both for _, _, both in rows)]
    lines += ["| kernel | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for entry in dict.fromkeys(entry for _, entry, _ in rows):
        cells = []
        for name in names:
            pairs = [both[name] for _, kernel, both in rows if kernel == entry and name in both]
            mine, theirs = sum(a for a, _ in pairs), sum(b for _, b in pairs)
            cells.append(f"{theirs / mine:.2f}" if mine else "–" if not theirs else f"{theirs:,.0f} : 0")
        lines.append(f"| {entry} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Hold counters of a GPU beside the emulator's.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--report", type=Path, metavar="OUT", help="write counters.json and counters.md there"
    )
    options = parser.parse_args(arguments)
    table = options.folder / "counters.csv"
    try:
        if not table.is_file():
            raise MachineError(
                f"there is no {table}", hint="collect.py --parts counters makes it, where ncu is"
            )
        examples = read_part(options.folder, "examples")
        rows = list(beside(parse(table.read_text(encoding="utf-8"), str(table)), examples))
    except EngineError as error:
        print(error, file=sys.stderr)
        return 2
    text = markdown(rows, examples.machine)
    print(text, end="")
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        (options.report / "counters.md").write_text(text, encoding="utf-8")
        document = [{"case": case, "kernel": entry, "figures": both} for case, entry, both in rows]
        (options.report / "counters.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
