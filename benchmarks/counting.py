"""What counting costs where it does not grow with the grid: the kernels of ``tests/engine/classes``, through the public interface.

Counts are checked against their closed forms.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import gpuperf_engine as ge
from tests.engine.classes.measured import LARGE, Case, lanes_at
from tests.engine.classes.running import KERNELS

__all__ = ["rows"]

TEXT = (KERNELS / "measured.ptx").read_text(encoding="utf-8")


def _shape(size: Any) -> str:
    """``65 535 × 65 535``."""
    return " × ".join(f"{extent:,}" for extent in (size if isinstance(size, tuple) else (size,)))


def _check(case: Case, profile: ge.Profile) -> None:
    """Raise unless the counts are right and by classes."""
    if profile.method != "classes":
        raise AssertionError(f"{case.title}: {profile.method_reason}")
    (record,) = profile.records
    lanes = [int(number) for number in record.observation.block_lanes]
    found = {part: lanes_at(record.program, lanes, TEXT, part) for part in case.expected}
    if found != case.expected:
        raise AssertionError(f"{case.title}: {found}, expected {case.expected}")


def rows(runs: int) -> list[str]:
    """A line per launch: the median of so many on one device, after a first one, which also slices the kernel."""
    lines = [
        "| kernel | grid | block | threads | first, s | again, s | goal, s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    module = ge.parse(TEXT, path="measured.ptx")
    for case in LARGE:
        seconds = []
        device = ge.Device(memory_bytes=1 << 16, max_instructions=10**18, observe=())
        out = device.zeros(32, np.uint32)
        for _ in range(runs + 1):
            start = time.perf_counter()
            profile = device.launch(
                module[case.entry], case.grid, case.block, [out, *case.numbers], demand="control"
            )
            seconds.append(time.perf_counter() - start)
            _check(case, profile)
        threads = math.prod(profile.grid) * math.prod(profile.block)
        first, *again = seconds
        lines.append(
            f"| {case.title} | {_shape(case.grid)} | {_shape(case.block)} | {threads:.1e} | {first:.3f} "
            f"| {sorted(again)[runs // 2]:.3f} | {case.seconds:g} |"
        )
    return lines
