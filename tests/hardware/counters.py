"""Counters of a real GPU beside the emulator's: every launch of every example under Nsight Compute.

    python -m tests.hardware.counters DIR [--report OUT] [--run]

``--run`` starts ``ncu`` on ``collect.py --parts examples`` and leaves ``DIR/counters.csv`` and ``DIR/examples.jsonl``; without it they
are read. Counters are of machine instructions, ours of PTX: sectors, requests and wavefronts should be equal, instructions show
what ``ptxas`` makes of PTX, class by class. Exit codes: 0 done, 2 nothing to read, or no ``ncu``.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpuperf_engine as ge
from gpuperf_engine.errors import EngineError, MachineError
from gpuperf_engine.timing.collected import Collected, read_part
from tests.hardware import collect

#: what is held against what: our name → metrics of Nsight Compute whose sum it is (its documentation, "nvprof Metric Comparison")
EQUAL = {
    "global load requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "global load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global store requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "global store sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "shared load wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared store wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "shared conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
}
#: what PTX and machine code have different numbers of
RATIOS = {
    "warp instructions": ("smsp__inst_executed.sum",),
    "thread instructions": ("smsp__thread_inst_executed.sum",),
    "thread instructions, guard true": ("smsp__thread_inst_executed_pred_on.sum",),
    "branches": ("smsp__sass_branch_targets.sum",),
    "divergent branches": ("smsp__sass_branch_targets_threads_divergent.sum",),
    **{
        f"class {ours}": (f"smsp__sass_thread_inst_executed_op_{theirs}_pred_on.sum",)
        for ours, theirs in (
            ("inst_integer", "integer"), ("inst_fp_16", "fp16"), ("inst_fp_32", "fp32"), ("inst_fp_64", "fp64"),
            ("inst_bit_convert", "conversion"), ("inst_control", "control"), ("inst_compute_ld_st", "memory"),
            ("inst_inter_thread_communication", "inter_thread_communication"), ("inst_misc", "misc"),
        )
    },
}  # fmt: skip
METRICS = tuple(name for group in (EQUAL, RATIOS) for names in group.values() for name in names)


@dataclass(frozen=True)
class Counted:
    """One launch under Nsight Compute. A metric that the GPU does not have is not among ``metrics``."""

    number: int
    kernel: str
    metrics: Mapping[str, float]


def parse(text: str, path: str = "counters.csv") -> list[Counted]:
    """Output of ``ncu --csv``: lines of its own (``==PROF==``), a header, a row per launch and metric. Columns are found by name.

    Raises :class:`MachineError`, with the line, for output without a table, a row that is cut off, and a value that is no number.
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
            raise MachineError(f"{path}:{number}: {value!r} is no number") from None
        unit = row[columns["Metric Unit"]]
        if unit[:1] in ("K", "M", "G") and unit[1:2].islower():
            raise MachineError(f"{path}:{number}: scaled to {unit}", hint="run ncu with --print-units base")
        metrics[row[columns["Metric Name"]]] = amount
    return [Counted(number, kernel, metrics) for number, (kernel, metrics) in sorted(found.items())]


def command(ncu: str, out: Path) -> list[str]:
    """What is run: the collector's examples, each launch replayed once per pass of counters, with cold caches."""
    collector = [
        sys.executable,
        str(Path(collect.__file__)),
        str(out),
        "--alone",
        "--parts",
        "examples",
        "--budget",
        "3600",
    ]
    return [ncu, "--csv", "--print-units", "base", "--metrics", ",".join(METRICS), *collector]


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
        **{f"class {name}": count for name, count in groups.items() if f"class {name}" in RATIOS},
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
                raise MachineError(f"{case.name}: the counters end after {place} launches")
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
                for name, metrics in (EQUAL | RATIOS).items()
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
    for name in EQUAL:
        held = [(case, entry, both[name]) for case, entry, both in rows if name in both]
        lines.append(f"| {name} | {len(held)} | {sum(a == b for _, _, (a, b) in held)} |")
        unlike += [(name, case, entry, a, b) for case, entry, (a, b) in held if a != b]
    if unlike:
        lines += ["", "| figure | case | kernel | emulator | GPU |", "|---|---|---|---:|---:|"]
        lines += [
            f"| {name} | {case} | {entry} | {a:,.0f} | {b:,.0f} |" for name, case, entry, a, b in unlike
        ]
    lines += ["", "## Machine instructions per PTX instruction", ""]
    names = [name for name in RATIOS if any(name in both for _, _, both in rows)]
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
    parser.add_argument("--run", action="store_true", help="run ncu first")
    parser.add_argument(
        "--report", type=Path, metavar="OUT", help="write counters.json and counters.md there"
    )
    options = parser.parse_args(arguments)
    table = options.folder / "counters.csv"
    try:
        if options.run:
            ncu = shutil.which("ncu")
            if ncu is None:
                raise MachineError("ncu, the command of Nsight Compute, is not in the search path")
            options.folder.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(command(ncu, options.folder), capture_output=True, text=True, check=False)
            table.write_text(done.stdout, encoding="utf-8")
            if done.returncode:
                raise MachineError(
                    f"ncu ended with code {done.returncode}: {(done.stderr or done.stdout)[-500:].strip()}"
                )
        if not table.is_file():
            raise MachineError(f"there is no {table}", hint="--run makes it, where ncu is")
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
