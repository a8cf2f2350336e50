"""``make bench``: how fast the engine is, as a Markdown table.

Every figure is the median of several runs in this one process or in fresh ones as said; the machine's plain 32-lane add
rate, measured in the same run, tells how fast the machine is. Counts are checked against closed forms while timing: a
fast wrong answer stops the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

from benchmarks import counting, demands, gate, kernels, launches, machine, races, values, warps  # noqa: E402

RUNS = 7


def median(action: Callable[[], float], runs: int = RUNS) -> float:
    """Median of what ``action`` returns."""
    return statistics.median(action() for _ in range(runs))


def _environment() -> dict[str, str]:
    """The environment, with Python's own cache of bytecode on as everywhere by default, and without ``GPUPERF_CACHE``, which would
    win over the empty folders for ``XDG_CACHE_HOME`` that the first runs are measured with."""
    dropped = {"PYTHONDONTWRITEBYTECODE", "GPUPERF_CACHE"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def fresh(code: str, **environment: str) -> dict[str, float]:
    """Run a snippet of this package in a process of its own; it prints one JSON object last."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def first_and_cached(case: str) -> tuple[float, float]:
    """Milliseconds from PTX text to results with an empty cache, and again in a new process with the cache filled: medians
    of three empty caches and of all further processes."""
    code = f"from benchmarks import kernels; kernels.print_first_run({case!r})"
    first, cached = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            # the runtime functions, compiled once per installation, are made by another kernel first
            fresh("from benchmarks import kernels; kernels.print_first_run('warm-up')", XDG_CACHE_HOME=cache)
            first.append(fresh(code, XDG_CACHE_HOME=cache)["ms"])
            cached += [fresh(code, XDG_CACHE_HOME=cache)["ms"] for _ in range(2)]
    return statistics.median(first), statistics.median(cached)


def engine_rows() -> list[str]:
    """The four kernels that other emulators publish."""
    rows = [
        "| kernel | thread instructions | warm run, ms | M thread instr/s | gpuocelot JIT, ms | first run, ms | cached start, ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case, jit in kernels.PUBLISHED.items():
        bench = kernels.Bench(case)
        bench.run()
        bench.settle()
        seconds = median(bench.run)
        first, cached = first_and_cached(case)
        rows.append(
            f"| {bench.title} | {bench.thread_instructions:,} | {seconds * 1e3:.2f} "
            f"| {bench.thread_instructions / seconds / 1e6:,.0f} | {jit} | {first:.0f} | {cached:.0f} |"
        )
    return rows


def other_rows() -> list[str]:
    """Parsing, large kernels, and what a test suite feels."""
    rows = ["| what | figure |", "|---|---:|"]
    rows.append(f"| parse and resolve 100 000 instructions | {kernels.parse_seconds(100_000):.2f} s |")
    with tempfile.TemporaryDirectory() as cache:
        code = "from benchmarks import kernels; kernels.print_first_run('saxpy')"
        installed = fresh(code, XDG_CACHE_HOME=cache)
    rows.append(
        f"| saxpy as the first kernel of an installation (compiles the runtime functions too) | {installed['ms']:.0f} ms |"
    )
    large = fresh("from benchmarks import kernels; kernels.print_large(3000)", GPUPERF_CACHE="off")
    rows.append(f"| compile and run a 3 000-instruction kernel, no cache | {large['ms'] / 1e3:.2f} s |")
    with tempfile.TemporaryDirectory() as cache:
        cold = suite(cache)
        warm = suite(cache)
        machine_code = machine_code_row(cache)
    rows.append(f"| `pytest --gpuperf examples`, empty cache | {cold.seconds:.1f} s |")
    rows.append(f"| `pytest --gpuperf examples`, again | {warm.seconds:.1f} s |")
    rows += machine_code
    rows.append(f"| what the gate adds to a test, mean of 1 000 | {gate.overhead_seconds() * 1e3:.1f} ms |")
    rows.append(counting.summary(RUNS))
    rows.append(launches.summary(RUNS))
    rows += warps.rows(RUNS)
    rows.append(f"| peak memory of `pytest --gpuperf examples` | {cold.peak_bytes / 2**20:.0f} MiB |")
    return rows


def machine_code_row(cache: str) -> list[str]:
    """What machine code adds to the gate on the examples once it is in the cache, if there is an assembler: means of three pairs."""
    import gpuperf_engine as ge

    try:
        ge.machine_code_tools()
    except ge.MachineError:
        return ["| machine code in that | no assembler here |"]
    without = {"GPUPERF_PTXAS": os.devnull, "GPUPERF_NVDISASM": os.devnull}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    suite(cache)
    for _ in range(3):
        for there, environment in ((True, {}), (False, without)):
            seconds[there].append(suite(cache, **environment).cpu_seconds)
    means = [statistics.mean(seconds[there]) for there in (True, False)]
    return [f"| CPU time of that, with and without machine code | {means[0]:.1f} and {means[1]:.1f} s |"]


class Cost(NamedTuple):
    """What a process took, its own children included; the peak is that of its resident memory, or of the starter's if larger."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measured(command: list[str], environment: dict[str, str]) -> Cost:
    """What a command takes in the root of the repository. Ends this process with the command's output if it fails."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        # RUSAGE_CHILDREN would be the highest peak of all children so far
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(output.read())
    # ru_maxrss is in KiB, on macOS in bytes
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit)


def suite(cache: str, **environment: str) -> Cost:
    """What the gate on the examples takes in one process."""
    command = [sys.executable, "-m", "pytest", "-q", "--gpuperf", "-p", "no:cacheprovider", "examples"]
    return measured(command, {**_environment(), "XDG_CACHE_HOME": cache, **environment})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--engine-only", action="store_true", help="only the four kernels")
    options = parser.parse_args()
    print(
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, {machine.cpu_name()}; "
        f"plain 32-lane f32 add: {machine.add_rate() / 1e9:.1f} G lane operations/s on one core. "
        f"Python {platform.python_version()}. Medians: warm run of {RUNS}, first run of 3, cached start of 6 processes.\n"
    )
    print("\n".join(engine_rows()))
    if not options.engine_only:
        print()
        print("\n".join(other_rows()))
        print("\nCounting at a cost that does not grow with the grid:\n")
        print("\n".join(counting.rows(RUNS)))
        print("\nControl flow alone against whole kernels:\n")
        print("\n".join(demands.rows(3)))
        print("\nWhat observing memory costs:\n")
        print("\n".join(demands.observed_rows(3)))
        print("\nWhat slices and a second core cost where they save nothing:\n")
        print("\n".join(demands.cost_rows(3)))
        print("\nWhat looking for races costs:\n")
        print("\n".join(races.rows(15)))
        print("\nWhat recording all accesses costs:\n")
        print("\n".join(values.rows(7)))
        print("\nAccesses per second of a core, by what they carry:\n")
        print("\n".join(values.rate_rows(7)))
        print("\nThe same of kernels that store bytes and halves:\n")
        print("\n".join(values.narrow_rows(7)))


if __name__ == "__main__":
    main()
