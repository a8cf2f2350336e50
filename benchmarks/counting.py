"""What counting costs where it does not grow with the grid: the kernels of ``tests/symbolic``, through the public interface.

Counts are checked against their closed forms.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import gpuperf_engine as ge
from tests.symbolic.measured import LARGE, Case, lanes_at
from tests.symbolic.running import text

__all__ = ["rows", "summary"]

TEXT = text("measured")


def _shape(size: Any) -> str:
    """``65 535 × 65 535``."""
    return " × ".join(f"{extent:,}" for extent in (size if isinstance(size, tuple) else (size,)))


def _check(case: Case, profile: ge.Profile) -> None:
    """Raise unless the counts are right and by classes."""
    if profile.method != "classes":
        raise AssertionError(f"{case.title}: {profile.method_reason}")
    (record,) = profile.records
    lanes = [int(number) for number in record.observation.block_lanes]
    measured = {part: lanes_at(record.program, lanes, TEXT, part) for part in case.expected}
    if measured != case.expected:
        raise AssertionError(f"{case.title}: {measured}, expected {case.expected}")


def _measure(case: Case, runs: int) -> tuple[float, float]:
    """CPU seconds of the first launch, which also slices the kernel, and the median of so many more."""
    device = ge.Device(races="off", memory_bytes=1 << 16, max_instructions=10**18, observe=())
    out = device.zeros(32, np.uint32)
    kernel = ge.parse(TEXT, path="measured.ptx")[case.entry]
    seconds = []
    for _ in range(runs + 1):
        start = time.process_time()
        profile = device.launch(kernel, case.grid, case.block, [out, *case.numbers], demand="control")
        seconds.append(time.process_time() - start)
        _check(case, profile)
    return seconds[0], statistics.median(seconds[1:])


def rows(runs: int) -> list[str]:
    """A line per launch."""
    lines = ["| kernel | grid | block | first, CPU ms | again, CPU ms |", "|---|---:|---:|---:|---:|"]
    for case in LARGE:
        first, again = (f"{seconds * 1e3:.1f}" for seconds in _measure(case, runs))
        lines.append(f"| {case.title} | {_shape(case.grid)} | {_shape(case.block)} | {first} | {again} |")
    return lines


def summary(runs: int) -> str:
    """A line for a table of figures."""
    wanted = {
        "saxpy_wide": "saxpy on 2³¹−1 blocks of 1,024",
        "rows": "a triangular loop to 10⁹",
        "triple": "a triple nest to 10⁶",
    }
    medians = {case.entry: _measure(case, runs)[1] for case in LARGE if case.entry in wanted}
    figures = ", ".join(f"{medians[entry] * 1e3:.0f}" for entry in wanted)
    return f"| count {', '.join(wanted.values())} | {figures} ms of CPU |"
