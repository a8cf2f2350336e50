"""Both ways of counting executed machine code on the examples: ``python -m benchmarks.machine_code [sm_80 …]``.

Needs ``ptxas`` and ``nvdisasm``. For each architecture: kernels that it runs, of which the machine code was run, what was run is among
what fits the counts of PTX, they differ, and the counts of PTX leave more than 1 % open, by themselves and with the run; why the
others were not run; and seconds of CPU of each way. For sm_75, for which no example is PTX, that of sm_80 is taken as such where
it has nothing later.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from cases import SMALL, Case  # noqa: E402

import gpuperf_engine as ge  # noqa: E402
from gpuperf_engine.sass.code import counted_code  # noqa: E402

_OPEN = 0.01


def main(architectures: list[str]) -> None:
    try:
        ge.machine_code_tools()
    except ge.MachineError as error:
        sys.exit(str(error))
    for architecture in architectures:
        counts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for case in SMALL:
            try:
                kernels = launched(case, {"memory", "inputs"}, architecture)
            except ge.PtxError:
                counts["for others"] += 1
                continue
            for profiles in kernels.values():
                measure(ge.add_profiles(profiles), architecture, counts, reasons, seconds)
        print(architecture, dict(counts), {name: round(value, 1) for name, value in seconds.items()})
        for reason, count in reasons.most_common():
            print(f"  {count} × {reason}")


def launched(case: Case, observe: set[str], architecture: str) -> dict[str, list[ge.Profile]]:
    """The profiles of a case's launches, by kernel. Raises ``PtxError`` for PTX of sm_80 that has what sm_75 lacks."""
    text = case.text
    if architecture == "sm_75":
        text = text.replace(".target sm_80", ".target sm_75", 1)
    device, module = ge.Device(observe=observe), ge.parse(text, path=str(case.ptx))
    arrays: dict[int, Any] = {}
    profiles: dict[str, list[ge.Profile]] = {}
    program = case.program()
    for launch in program.launches:
        args = []
        for item in launch.args:
            if isinstance(item, np.ndarray):
                if id(item) not in arrays:
                    arrays[id(item)] = device.array(item)
                item = arrays[id(item)]
            args.append(item)
        profile = device.launch(
            module[launch.entry], launch.grid, launch.block, args, shared_bytes=launch.shared_bytes
        )
        profiles.setdefault(launch.entry, []).append(profile)
    return profiles


def measure(
    profile: ge.Profile,
    architecture: str,
    counts: Counter[str],
    reasons: Counter[str],
    seconds: Counter[str],
) -> None:
    """Both ways for one kernel, if the architecture runs it."""
    start = time.process_time()
    try:
        flow = counted_code(profile, architecture, running=False)
    except ge.MachineError:
        counts["for others"] += 1
        return
    middle = time.process_time()
    both = counted_code(profile, architecture)
    seconds["flow"] += middle - start
    seconds["run"] += time.process_time() - middle
    counts["kernels"] += 1
    counts["run"] += both.ways != "flow"
    counts["agree"] += both.ways == "flow and run"
    counts["differ"] += both.ways == "run" and both.residue > 0
    counts["open by flow"] += flow.residue > _OPEN
    counts["open by both"] += both.residue > _OPEN
    for note in both.notes:
        if note.startswith("the machine code was not run: "):
            reasons[note.removeprefix("the machine code was not run: ").partition(" (")[0]] += 1


if __name__ == "__main__":
    main(sys.argv[1:] or ["sm_80", "sm_86", "sm_90a"])
