"""Measured streaming kernels beside predictions: the kernels run on the emulator at a small size, counts grow with the grid."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.machines.targets import can_run
from gpuperf_engine.profile.build import LaunchRecord
from gpuperf_engine.results import Resources
from gpuperf_engine.timing.estimate import estimate
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import MemoryTraffic, TimingInput
from gpuperf_engine.timing.models.simulation import NotRun, simulated

DATA = Path(__file__).parent / "data"
ELEMENTS = 1 << 28
SMALL_GRID = 64
MACHINES = {
    "v100": "v100-pcie",
    "a100_40": "a100-sxm-40gb",
    "a40": "a40",
    "gh200": "gh200",
    "h200": "h200-sxm",
    "l40": "l40",
}
TWO_ARRAY_TRIADS = frozenset({"a100_40", "h200", "l40"})
BYTES = {"init": 8, "read": 8, "scale": 16, "triad2": 24, "triad3": 32, "stencil3pt": 16, "stencil5pt": 16}


@dataclass(frozen=True)
class Row:
    """One measurement: ``microseconds`` for ``ELEMENTS`` elements."""

    gpu: str
    kernel: str
    threads: int
    ctas_per_sm: int
    microseconds: float

    @property
    def machine(self) -> Machine:
        return load_machine(MACHINES[self.gpu])


def measured(name: str) -> Iterator[Row]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            gpu, kernel = line["gpu"], line["kernel"]
            if kernel == "triad":
                kernel = "triad2" if gpu in TWO_ARRAY_TRIADS else "triad3"
            threads, ctas = int(line["block_size"]), int(line["blocks_per_sm"])
            if threads > 1024:
                threads, ctas = threads // 2, 2
            yield Row(gpu, kernel, threads, ctas, BYTES[kernel] * ELEMENTS / float(line["GBps"]) / 1e3)


@lru_cache(maxsize=1)
def _module() -> ge.Module:
    return ge.parse((DATA / "stream.ptx").read_text(encoding="utf-8"), path="stream.ptx")


@cache
def _profile(kernel: str, threads: int) -> ge.Profile:
    count = SMALL_GRID * threads
    device = ge.Device()
    arrays = [device.array(np.ones(count)) for _ in range(4)]
    return device.launch(_module()[kernel], grid=SMALL_GRID, block=threads, args=[*arrays, np.int32(count)])


@cache
def launch(kernel: str, threads: int, ctas_per_sm: int, machine_id: str) -> TimingInput:
    """The kernel on ``ELEMENTS`` elements, with so much shared memory that ``ctas_per_sm`` CTAs fit on an SM."""
    machine = load_machine(machine_id)
    shared = min(
        machine.shared_per_cta, machine.shared_per_sm // ctas_per_sm - machine.shared_reserved_per_cta
    )
    shared -= shared % machine.shared_allocation_unit
    profile = _profile(kernel, threads)
    small = timing_input(profile.records[0], machine, Resources(16, shared, 0))
    factor = ELEMENTS / threads / SMALL_GRID
    traffic = {
        item.name: getattr(small.memory, item.name) * factor
        for item in fields(MemoryTraffic)
        if getattr(small.memory, item.name) is not None
    }
    return replace(
        small,
        grid=(-(-ELEMENTS // threads), 1, 1),
        warp_instructions={unit: count * factor for unit, count in small.warp_instructions.items()},
        memory=MemoryTraffic(**traffic),
    )


@cache
def _small(kernel: str, threads: int) -> LaunchRecord:
    """A launch of PTX that assemblers of earlier CUDA versions know too. That of ``read``, which stores where it loads a given number,
    keeps what it reads, an array of full size that nothing has written."""
    text = (DATA / "stream.ptx").read_text(encoding="utf-8").replace(".version 9.5", ".version 8.0")
    count = SMALL_GRID * threads
    if kernel == "read":
        device = ge.Device(memory_bytes=9 * ELEMENTS, observe={"memory", "inputs"})
    else:
        device = ge.Device()
    arrays = [device.array(np.ones(count)) for _ in range(4)]
    if kernel == "read":
        arrays[1] = device.empty(ELEMENTS, np.float64)
    kernel_ = ge.parse(text, path="stream.ptx")[kernel]
    profile: ge.Profile = device.launch(kernel_, SMALL_GRID, threads, [*arrays, np.int32(count)])
    record: LaunchRecord = profile.records[0]
    return record


def simulated_error(row: Row, *, assembled: bool = True) -> float:
    """The same by the simulation, on the code of ``ptxas`` or without an assembler, with arrays of full size; raises ``MachineError``
    or ``NotRun`` where that is not possible."""
    machine = row.machine
    given = launch(row.kernel, row.threads, row.ctas_per_sm, machine.id)
    record = _small(row.kernel, row.threads)
    if not can_run(record.program.kernel.module.target, machine):
        raise NotRun(f"the PTX cannot run on {machine.id}")
    raw = bytearray(record.plan.parameters)
    for number in range(4 * (row.kernel != "read")):
        # 2 GiB each, at addresses whose words have numbers of 32 bits
        raw[8 * number : 8 * number + 8] = ((number + 1) * (8 * ELEMENTS + (1 << 20))).to_bytes(8, "little")
    raw[32:36] = ELEMENTS.to_bytes(4, "little")
    shared = given.shared_bytes
    plan = replace(
        record.plan, grid=given.grid, dynamic_shared=shared, shared_bytes=shared, parameters=bytes(raw)
    )
    expanded = None if assembled else Resources(given.registers_per_thread, shared, 0)
    return simulated(replace(record, plan=plan), machine, expanded=expanded).time_us / row.microseconds - 1


@cache
def error(row: Row, model: str) -> float:
    """Predicted over measured time, less one."""
    given = launch(row.kernel, row.threads, row.ctas_per_sm, MACHINES[row.gpu])
    found = estimate(given, row.machine, model=model)
    assert found.ctas_per_sm == row.ctas_per_sm
    return found.time_us / row.microseconds - 1
