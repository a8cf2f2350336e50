"""Measured loads from L1, strided and in blocks, beside the model's cycles: the benchmark's launch on the emulator."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.machines.occupancy import occupancy
from gpuperf_engine.results import Resources
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.bounds import resource_bounds
from gpuperf_engine.timing.launch.caches import estimate_caches

DATA = Path(__file__).parent / "data" / "l1_strides.csv"
MACHINES = {"a100": "a100-sxm-40gb", "a40": "a40", "h200": "h200-sxm"}
SIZES = {"float": 4, "double": 8}
THREADS = 1024
PITCH = 4098
"""Elements from one row of a block to the next."""
OFFSETS = (0, 4, 8, 12, 20, 16, 24, 28)
"""Elements from the thread's place to what each of its eight loads reads."""


@dataclass(frozen=True)
class Stride:
    """One measurement: cycles of an SM per load of a warp, whose lanes are ``step`` elements apart (``mode`` stride) or lie in rows
    of ``step`` elements side by side (``block``); ``wavefronts`` in the banks and ``tags``, those of the tag stage, per load, as
    Nsight Compute's counters have them."""

    gpu: str
    kind: str
    mode: str
    step: int
    cycles: float
    wavefronts: float
    tags: float


def measured() -> Iterator[Stride]:
    """All rows; not the doubles of the A40, where the addition of what was loaded takes longer (8 cycles a warp)."""
    with DATA.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if (line["gpu"], line["type"]) != ("a40", "double"):
                yield Stride(
                    line["gpu"],
                    line["type"],
                    line["mode"],
                    int(line["stride_or_block"]),
                    float(line["cycles_per_warp_instr"]),
                    float(line["c1"]),
                    float(line["c2"]),
                )


@cache
def _kernel(kind: str) -> ge.Kernel:
    size, letter = SIZES[kind], {"float": "f", "double": "d"}[kind]
    loads = "\n".join(f"ld.global.f{8 * size} %{letter}1, [%rd3+{size * offset}];" for offset in OFFSETS)
    text = f"""
    .version 7.0
    .target sm_70
    .address_size 64
    .visible .entry k(.param .u64 data, .param .u32 across, .param .u32 down)
    {{
    .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<2>; .reg .f64 %d<2>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [across];
    ld.param.u32 %r2, [down];
    mov.u32 %r3, %tid.x;
    and.b32 %r4, %r3, 63;
    mov.u32 %r5, %tid.y;
    and.b32 %r6, %r5, 31;
    mul.lo.u32 %r7, %r4, %r1;
    mad.lo.u32 %r8, %r6, %r2, %r7;
    mul.wide.u32 %rd2, %r8, {size};
    add.u64 %rd3, %rd1, %rd2;
    {loads}
    ret;
    }}"""
    return ge.parse(text, path="strides.ptx")["k"]


@cache
def profile(kind: str, mode: str, step: int) -> ge.Profile:
    """The launch: 1024 threads, of which warps and lanes share places modulo 64 across and 32 down."""
    device = ge.Device()
    across, down, block = (step, 0, (THREADS, 1)) if mode == "stride" else (1, PITCH, (step, THREADS // step))
    elements = 63 * across + 31 * down + max(OFFSETS) + 1
    data = device.zeros(elements, np.dtype(f"f{SIZES[kind]}"))
    return device.launch(_kernel(kind), 1, block, [data, np.uint32(across), np.uint32(down)])


@cache
def predicted(row: Stride) -> float:
    """Cycles of the slower of L1 and the load/store units."""
    machine = load_machine(MACHINES[row.gpu])
    given = timing_input(profile(row.kind, row.mode, row.step).records[0], machine, Resources(16, 0, 0))
    resident = occupancy(machine, threads_per_cta=THREADS, registers_per_thread=16, shared_bytes=0)
    resources = resource_bounds(given, machine, estimate_caches(given, machine, resident))
    cycles = max(
        resource.cycles(1, machine, given) for resource in resources if resource.name in ("l1", "lsu")
    )
    return cycles / (THREADS // 32 * len(OFFSETS))


#: label → whether a row belongs there; the lanes of powers of two meet in the same banks of L1
GROUPS = {
    "strides 0, 1, 2, 4, 8": lambda row: row.mode == "stride" and row.step in (0, 1, 2, 4, 8),
    "strides 16, 32, 64": lambda row: row.mode == "stride" and row.step in (16, 32, 64),
    "all other strides": lambda row: row.mode == "stride" and row.step not in (0, 1, 2, 4, 8, 16, 32, 64),
    "blocks": lambda row: row.mode == "block",
}
