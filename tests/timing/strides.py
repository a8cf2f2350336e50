"""Measured strided loads from L1 beside the model's cycles: one warp instruction, data in L1, nothing else limits."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuperf_engine.timing.caches import estimate_caches
from gpuperf_engine.timing.inputs import MemoryTraffic, TimingInput
from gpuperf_engine.timing.machine import load_machine
from gpuperf_engine.timing.occupancy import occupancy
from gpuperf_engine.timing.roofs import roofs

DATA = Path(__file__).parent / "data" / "l1_strides.csv"
MACHINES = {"a100": "a100-sxm-40gb", "a40": "a40", "h200": "h200-sxm"}
SIZES = {"float": 4, "double": 8}


@dataclass(frozen=True)
class Stride:
    """One measurement: cycles of an SM per load of a warp whose lanes are ``stride`` elements apart."""

    gpu: str
    kind: str
    stride: int
    cycles: float


def measured() -> Iterator[Stride]:
    """All strides; not the doubles of the A40, where the addition of what was loaded takes longer (8 cycles a warp)."""
    with DATA.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["mode"] == "stride" and (line["gpu"], line["type"]) != ("a40", "double"):
                yield Stride(
                    line["gpu"],
                    line["type"],
                    int(line["stride_or_block"]),
                    float(line["cycles_per_warp_instr"]),
                )


def sectors(stride: int, size: int) -> int:
    """32-byte sectors that a warp touches."""
    return len(np.unique(np.arange(32) * stride * size // 32))


def predicted(row: Stride) -> float:
    """Cycles of the slower of L1 and the load/store units."""
    machine = load_machine(MACHINES[row.gpu])
    # enough CTAs that no rounding to whole ones is seen
    count = machine.sm_count * 1000
    traffic = MemoryTraffic(load_requests=count, load_sectors=count * sectors(row.stride, SIZES[row.kind]))
    given = TimingInput((count, 1, 1), (32, 1, 1), 16, 0, {"lsu": count}, (), traffic)
    resident = occupancy(machine, threads_per_cta=32, registers_per_thread=16, shared_bytes=0)
    found = roofs(given, machine, estimate_caches(given, machine, resident))
    return max(roof.cycles(count, machine, given) for roof in found if roof.name in ("l1", "lsu")) / 1000


#: label → whether a row belongs there; the lanes of powers of two meet in the same banks of L1
GROUPS = {
    "strides 0, 1, 2, 4, 8": lambda row: row.stride in (0, 1, 2, 4, 8),
    "strides 16, 32, 64": lambda row: row.stride in (16, 32, 64),
    "all others": lambda row: row.stride not in (0, 1, 2, 4, 8, 16, 32, 64),
}
