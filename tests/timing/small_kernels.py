"""Measured kernels that scale an array of doubles again and again, beside predictions: every size from launch-bound to DRAM-bound."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.results import Resources
from gpuperf_engine.timing.estimate import estimate
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import MemoryTraffic, TimingInput
from tests.timing.streams import SMALL_GRID, _profile

DATA = Path(__file__).parent / "data" / "small_kernels.csv"
MACHINES = {
    "a100_80_graph": "a100-sxm-80gb",
    "a40_graph": "a40",
    "h200_graph": "h200-sxm",
    "l40_graph": "l40",
}
BYTES = 16
#: times that the file gives with an error of more than 2.5 % are left out: its rates are whole GB/s
LEAST_RATE = 20


REGIONS = {
    "small": "up to half of L2",
    "middle": "half of L2 to twice L2",
    "large": "beyond twice L2",
}
#: rows that machine descriptions take a number from: the launch overhead from the smallest size, the rate at which CTAs start from
#: the smallest CTAs (those of 4 threads on the A100, which are no rows here), the H200's sustained rate from the largest arrays
SMALLEST = 4096
SMALLEST_CTAS = {"a40_graph": 32, "h200_graph": 32, "l40_graph": 32}
LARGEST = {"h200_graph": 10**9}


@dataclass(frozen=True)
class Small:
    """One measurement: a launch of ``threads`` per CTA on ``elements`` doubles, in a graph of 10 000."""

    series: str
    elements: int
    threads: int
    microseconds: float

    @property
    def machine(self) -> Machine:
        return load_machine(MACHINES[self.series])

    @property
    def footprint(self) -> int:
        """Bytes read and written."""
        return BYTES * self.elements


def measured() -> Iterator[Small]:
    """All rows with CTAs of at least a warp."""
    with DATA.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            rates = [line[f"GBps_cfg{index}"] for index in range(9)]
            rates = [rate for rate in rates if rate]
            for place, rate in enumerate(reversed(rates)):
                threads = 1024 >> place
                if threads >= 32 and float(rate) >= LEAST_RATE:
                    elements = int(line["n_elements"])
                    yield Small(line["series"], elements, threads, BYTES * elements / float(rate) / 1e3)


def judged(row: Small) -> bool:
    """Whether no machine description takes a number from this row."""
    return (
        row.elements > SMALLEST
        and row.threads > SMALLEST_CTAS.get(row.series, 0)
        and row.footprint < LARGEST.get(row.series, 1 << 62)
    )


def region(row: Small) -> str:
    """A key of ``REGIONS``."""
    size = row.machine.l2_bytes
    return "small" if row.footprint <= size / 2 else "middle" if row.footprint <= 2 * size else "large"


@cache
def launch(elements: int, threads: int, machine_id: str) -> TimingInput:
    """The kernel on so many elements."""
    machine = load_machine(machine_id)
    small = timing_input(_profile("scale", threads).records[0], machine, Resources(16, 0, 0))
    factor = elements / threads / SMALL_GRID
    traffic = {
        item.name: getattr(small.memory, item.name) * factor
        for item in fields(MemoryTraffic)
        if getattr(small.memory, item.name) is not None
    }
    return replace(
        small,
        grid=(elements // threads + 1, 1, 1),
        warp_instructions={unit: count * factor for unit, count in small.warp_instructions.items()},
        memory=MemoryTraffic(**traffic),
    )


@cache
def error(row: Small, model: str = "kleimenov-popova") -> float:
    """Predicted over measured time, less one."""
    found = estimate(
        launch(row.elements, row.threads, MACHINES[row.series]), row.machine, model=model, caches="warm"
    )
    return found.time_us / row.microseconds - 1
