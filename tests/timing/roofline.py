"""Measured kernels between DRAM-bound and bound by single-precision arithmetic, beside predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.estimate import estimate

DATA = Path(__file__).parent / "data" / "roofline.csv"
MACHINES = {"a100_40": "a100-sxm-40gb", "a40": "a40", "h200": "h200-sxm", "l40": "l40"}
THREADS = 256
STEPS = 16
"""Elements per thread on the emulator; the benchmark has 4 000, in a loop that does the same for each two."""


@dataclass(frozen=True)
class Roofline:
    """One measurement: rate in GFLOP/s, at a clock in MHz, of ``iterations`` multiply-adds per element read twice."""

    gpu: str
    iterations: int
    clock: float
    rate: float

    @property
    def flops(self) -> int:
        """Of one thread, as the benchmark counts them."""
        return STEPS * (2 + 2 * self.iterations)

    @property
    def bound(self) -> str:
        """``memory`` while the measured rate of bytes is at least nine tenths of the highest, else ``arithmetic``."""
        return "memory" if self.rate / self.flops > 0.9 * _highest(self.gpu) else "arithmetic"


def measured() -> Iterator[Roofline]:
    with DATA.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            yield Roofline(
                line["gpu"], int(line["iterations"]), float(line["clock_mhz"]), float(line["GFps"])
            )


@cache
def _highest(gpu: str) -> float:
    return max(row.rate / row.flops for row in measured() if row.gpu == gpu)


@cache
def _kernel(iterations: int) -> ge.Kernel:
    chain = "\n".join(
        "fma.rn.f32 %f5, %f5, %f1, %f7;\nfma.rn.f32 %f6, %f6, %f3, %f8;" for _ in range(iterations)
    )
    offset = 4 * THREADS
    text = f"""
    .version 7.0
    .target sm_70
    .address_size 64
    .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)
    {{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<9>; .reg .f32 %f<12>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, {THREADS * STEPS}, %r1;
    mul.wide.u32 %rd4, %r3, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    mov.f32 %f9, 0f00000000;
    mov.u32 %r4, 0;
    L:
    ld.global.f32 %f1, [%rd5];
    ld.global.f32 %f2, [%rd6];
    ld.global.f32 %f3, [%rd5+{offset}];
    ld.global.f32 %f4, [%rd6+{offset}];
    sub.f32 %f5, %f1, %f2;
    sub.f32 %f6, %f3, %f4;
    neg.f32 %f7, %f2;
    neg.f32 %f8, %f4;
    {chain}
    add.f32 %f10, %f5, %f6;
    add.f32 %f9, %f9, %f10;
    add.u64 %rd5, %rd5, {2 * offset};
    add.u64 %rd6, %rd6, {2 * offset};
    add.u32 %r4, %r4, 2;
    setp.lt.u32 %p1, %r4, {STEPS};
    @%p1 bra L;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    mul.wide.u32 %rd7, %r2, 4;
    add.u64 %rd8, %rd3, %rd7;
    st.global.f32 [%rd8], %f9;
    ret;
    }}"""
    return ge.parse(text, path="roofline.ptx")["k"]


@cache
def _profile(iterations: int, ctas: int) -> ge.Profile:
    device = ge.Device(memory_bytes=1 << 30)
    elements = ctas * THREADS * STEPS
    arrays = [device.zeros(elements, np.float32), device.zeros(elements, np.float32)]
    return device.launch(
        _kernel(iterations), ctas, THREADS, [*arrays, device.zeros(ctas, np.float32)], demand="addresses"
    )


@cache
def predicted(row: Roofline, model: str = "kleimenov-popova") -> float:
    """GFLOP/s: as many CTAs as the machine holds, the launch overhead left out, at the measured clock."""
    machine = replace(load_machine(MACHINES[row.gpu]), clock_mhz=row.clock, launch_overhead_us=0.0)
    ctas = machine.sm_count * (machine.max_threads_per_sm // THREADS)
    found = estimate(_profile(row.iterations, ctas), machine, model=model)
    return row.flops * THREADS * ctas / found.time_us / 1e3
