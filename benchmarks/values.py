"""What recording all accesses costs: the same launches with and without, in turn, and accesses per second by what they carry."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from benchmarks.races import CASES, launches

__all__ = ["rate_rows", "rows"]

_COUNT = 1 << 20
#: y[i] = x[i], by threads of blocks of 256
_COPY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f, [%rd4];
    st.global.f32 [%rd5], %f;
    ret;
}"""
#: the same of pairs of halves, each an element
_PAIRS = _COPY.replace(".f32", ".b32").replace("ret;", "add.f16x2 %f, %f, %f; ret;")


def rows(runs: int) -> list[str]:
    """A Markdown table: medians of the time without and of the ratio of pairs."""
    table = ["| launch | `memory`, CPU ms | with `accesses` |", "|---|---:|---:|"]
    for case in CASES:
        plain = launches(case, races="off")
        recorded = launches(case, races="off", observe={"memory", "accesses"})
        pairs = _pairs(plain, recorded, runs)
        ratio = statistics.median(after / before for before, after in pairs)
        before = statistics.median(before for before, _ in pairs)
        table.append(f"| {case.name} | {before * 1e3:.1f} | {ratio:.1f} × |")
    return table


def rate_rows(runs: int) -> list[str]:
    """A Markdown table: accesses per second of CPU time, all of a launch included, by what they carry."""
    table = ["| data | M accesses/s | of recording alone |", "|---|---:|---:|"]
    for name, values in _data(np.random.default_rng(7)).items():
        plain, recorded = (_copies(values, observe) for observe in ({"memory"}, {"memory", "accesses"}))
        accesses = 2e-6 * values.size
        pairs = _pairs(plain, recorded, runs)
        whole = statistics.median(after for _, after in pairs)
        own = statistics.median(after - before for before, after in pairs)
        table.append(f"| {name} | {accesses / whole:,.0f} | {accesses / own:,.0f} |")
    return table


def _data(rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    random = rng.random(_COUNT, np.float32)
    return {
        "one value": np.ones(_COUNT, np.float32),
        "the index": np.arange(_COUNT, dtype=np.float32),
        "10 random values": random[rng.integers(0, 10, _COUNT)],
        "three quarters zeros, others random": np.where(rng.random(_COUNT) < 0.75, np.float32(0), random),
        "100 random values": random[rng.integers(0, 100, _COUNT)],
        "300 random values": random[rng.integers(0, 300, _COUNT)],
        "random": random,
        "random pairs of halves": rng.random(2 * _COUNT, np.float32).astype(np.float16),
    }


def _copies(values: NDArray[Any], observe: set[str]) -> Callable[[], float]:
    """CPU seconds of a launch that loads and stores these values."""
    device: Any = ge.Device(races="off", observe=observe)
    text = _PAIRS if values.dtype == np.float16 else _COPY
    kernel, given = ge.parse(text)["copy"], [device.array(values), device.zeros(values.size, values.dtype)]

    def run() -> float:
        start = time.process_time()
        device.launch(kernel, _COUNT // 256, 256, given)
        return time.process_time() - start

    return run


def _pairs(plain: Callable[[], float], recorded: Callable[[], float], runs: int) -> list[tuple[float, float]]:
    deadline = time.perf_counter() + 1.0
    while time.perf_counter() < deadline:  # until code that was compiled in haste has been replaced
        plain()
        recorded()
    return [(plain(), recorded()) for _ in range(runs)]
