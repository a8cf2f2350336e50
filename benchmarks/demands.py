"""What ``control`` saves and what observing memory costs: examples run whole, as the slice that decides control flow (with equal
counts), and with memory observed."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cases import BENCH, SMALL, Launch

import gpuperf_engine as ge

__all__ = ["cost_rows", "observed_rows", "rows"]

KERNELS = Path(__file__).resolve().parent.parent / "examples" / "kernels"


@dataclass(frozen=True)
class Case:
    """A launch of ``entry`` of an example's file; ``args`` makes its arguments, NumPy arrays for device memory."""

    title: str
    stem: str
    entry: str
    grid: Any
    block: Any
    args: Callable[[np.random.Generator], list[Any]]
    shared_bytes: int = 0


def _sgemm(entry: str, size: int, grid: int, block: Any) -> Case:
    def args(rng: np.random.Generator) -> list[Any]:
        return [np.int32(size)] * 3 + [rng.standard_normal((size, size), np.float32) for _ in range(3)]

    return Case(f"{entry} {size:,}³", "sgemm", entry, (grid, grid), block, args)


def _softmax(rng: np.random.Generator) -> list[Any]:
    return [np.int32(1024), *rng.standard_normal((2, 4096, 1024), np.float32)]


def _heat(rng: np.random.Generator) -> list[Any]:
    return [np.int32(2048), np.int32(2048), *rng.standard_normal((2, 2048, 2048), np.float32)]


def _spmv(rng: np.random.Generator) -> list[Any]:
    rows = 100_000
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(20, rows))]).astype(np.int32)
    columns = rng.integers(0, rows, int(offsets[-1]), np.int32)
    x, y = rng.standard_normal(rows, np.float32), np.zeros(rows, np.float32)
    return [np.int32(rows), offsets, columns, rng.standard_normal(columns.size, np.float32), x, y]


#: in the last one data decide where threads go
CASES = (
    _sgemm("sgemm_naive", 512, 32, (16, 16)),
    _sgemm("sgemm_coalesced", 512, 32, (16, 16)),
    _sgemm("sgemm_tiled", 1024, 64, (16, 16)),
    _sgemm("sgemm_register", 2048, 32, 256),
    Case("fft512 × 16,384", "fft512", "fft512", 16384, 64, lambda rng: [rng.standard_normal((16384, 1024))]),
    Case("softmax 4,096 × 1,024", "softmax", "softmax", 4096, 128, _softmax, 4096),
    Case("heat_step 2,048²", "stencil", "heat_step", (64, 256), (32, 8), _heat),
    Case("spmv_scalar, 100,000 rows", "spmv", "spmv_scalar", 782, 128, _spmv),
)


def _launch(
    kernel: ge.Kernel, case: Case, host: list[Any], demand: str, observe: set[str]
) -> tuple[float, ge.Profile]:
    """CPU seconds of one launch on a device of its own, and its profile."""
    device = ge.Device(observe=observe, races="off", memory_bytes=1 << 30)
    args = [device.array(item) if isinstance(item, np.ndarray) else item for item in host]
    start = time.process_time()
    profile = device.launch(
        kernel, case.grid, case.block, args, shared_bytes=case.shared_bytes, demand=demand
    )
    return time.process_time() - start, profile


def _load(case: Case) -> ge.Kernel:
    path = KERNELS / f"{case.stem}.ptx"
    return ge.parse(path.read_text(encoding="utf-8"), path=path.name)[case.entry]


def rows(runs: int) -> list[str]:
    """A line per launch: medians of so many warm runs. Raises ``AssertionError`` where counts differ."""
    lines = [
        "| launch | `values`, CPU ms | `control`, CPU ms | times less | slice | blocks run |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for case in CASES:
        host, kernel = case.args(np.random.default_rng(1)), _load(case)
        seconds: dict[str, float] = {}
        profiles: dict[str, ge.Profile] = {}
        for demand in ("values", "control"):
            times = []
            for _ in range(runs + 1):  # the first one slices and compiles
                taken, profiles[demand] = _launch(kernel, case, host, demand, set())
                times.append(taken)
            seconds[demand] = statistics.median(times[1:])
        whole, part = profiles["values"], profiles["control"]
        if (whole.blocks, whole.branch_sites) != (part.blocks, part.branch_sites):
            raise AssertionError(f"{case.title}: counts differ")
        lines.append(
            f"| {case.title} | {seconds['values'] * 1e3:.1f} | {seconds['control'] * 1e3:.1f} "
            f"| {seconds['values'] / seconds['control']:.0f} | {100 * part.slice_share:.0f} % | {part.method} |"
        )
    return lines


#: what is observed, by the heading of its column
OBSERVED: dict[str, set[str]] = {
    "plain": set(),
    "`memory`": {"memory"},
    "`memory` and `footprint`": {"memory", "footprint"},
}


def observed_rows(runs: int) -> list[str]:
    """What observing memory costs, a line per launch: medians of so many rounds, in each of which all are run."""
    lines = [
        "| launch | plain, CPU ms | `memory` | `memory` and `footprint` |",
        "|---|---:|---:|---:|",
    ]
    for case in CASES:
        host, kernel = case.args(np.random.default_rng(1)), _load(case)
        times: dict[str, list[float]] = {name: [] for name in OBSERVED}
        for _ in range(runs + 1):
            for name, observe in OBSERVED.items():
                times[name].append(_launch(kernel, case, host, "values", observe)[0])
        plain, *others = (statistics.median(found[1:]) for found in times.values())
        factors = " | ".join(f"{other / plain:.2f} ×" for other in others)
        lines.append(f"| {case.title} | {plain * 1e3:.1f} | {factors} |")
    return lines


if __name__ == "__main__":
    print("\n".join([*rows(3), "", *observed_rows(3)]))


def cost_rows(runs: int) -> list[str]:
    """What doing less must not cost: all examples at their small and at their large sizes, least of so many warm runs of each launch,
    added up. A slice may cost no more than the whole kernel, and two cores no more than one."""
    lines = [
        "| examples | launches | `values`, ms | `control` | `addresses` | two cores, in time |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for title, cases in (("small", SMALL), ("large", BENCH)):
        seconds: Counter[str] = Counter()
        launches = 0
        for case in cases:
            module = ge.parse(case.text, path=case.ptx.name)
            for item in case.program().launches[:2]:
                launches += 1
                kernel = module[item.entry]
                for demand in ("values", "control", "addresses"):
                    seconds[demand] += min(_once(kernel, item, demand)[0] for _ in range(runs + 1))
                for cores in (1, 2):
                    with _cores(cores):
                        elapsed = min(_once(kernel, item, "values")[1] for _ in range(runs + 1))
                    seconds[f"{cores} cores"] += elapsed
        values = seconds["values"]
        lines.append(
            f"| {title} | {launches} | {values * 1e3:.1f} | {seconds['control'] / values:.2f} × "
            f"| {seconds['addresses'] / values:.2f} × | {seconds['2 cores'] / seconds['1 cores']:.2f} × |"
        )
    return lines


def _once(kernel: ge.Kernel, launch: Launch, demand: str) -> tuple[float, float]:
    """CPU and elapsed seconds of one launch of an example on a device of its own that counts."""
    device = ge.Device(observe=(), races="off", memory_bytes=1 << 30)
    arrays = {
        id(item): device.array(item) for item in launch.args if isinstance(item, np.ndarray) and item.shape
    }
    args = [arrays.get(id(item), item) for item in launch.args]
    start, begun = time.process_time(), time.perf_counter()
    device.launch(kernel, launch.grid, launch.block, args, shared_bytes=launch.shared_bytes, demand=demand)
    return time.process_time() - start, time.perf_counter() - begun


@contextmanager
def _cores(count: int) -> Iterator[None]:
    """Launches run on so many host threads."""
    with mock.patch("gpuperf_engine.device.device.host_threads", lambda: count):
        yield
