"""What recording all accesses costs: the same launches with and without, in turn, and accesses per second by what they carry."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gpuperf_engine as ge
from benchmarks.races import CASES, launches

__all__ = ["narrow_rows", "rate_rows", "rows"]

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
#: what a thread does with its x and y in ``_COPY``, and the types of both
_NARROW = {
    "bytes: y = 255 − x": (
        "ld.global.u8 %h, [%rd4]; sub.u16 %h, 255, %h; st.global.u8 [%rd5], %h;",
        "u1",
        "u1",
    ),
    "bytes in place: x = 255 − x": (
        "ld.global.u8 %h, [%rd4]; sub.u16 %h, 255, %h; st.global.u8 [%rd4], %h;",
        "u1",
        "u1",
    ),
    "halves: y = x + y": (
        "ld.global.b16 %h, [%rd4]; ld.global.b16 %g, [%rd5]; add.f16 %h, %h, %g; st.global.b16 [%rd5], %h;",
        "f2",
        "f2",
    ),
    "int8 of floats": (
        "ld.global.f32 %f, [%rd4]; mul.f32 %f, %f, 0f42000000; cvt.rni.sat.s8.f32 %h, %f; st.global.u8 [%rd5], %h;",
        "f4",
        "i1",
    ),
    "bytes, 3 × 3: y = mean of x": (
        "mov.b32 %r3, 0; \n"
        + "".join(
            f"ld.global.u8 %r1, [%rd4+{line * 1000 + column}]; add.u32 %r3, %r3, %r1;\n"
            for line in range(3)
            for column in range(3)
        )
        + "div.u32 %r3, %r3, 9; cvt.u16.u32 %h, %r3; st.global.u8 [%rd5+1001], %h;",
        "u1",
        "u1",
    ),
}
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


def narrow_rows(runs: int) -> list[str]:
    """A Markdown table: as ``rows``, and accesses per second, of kernels that load or store elements of less than a word."""
    table = [
        "| kernel, 1 M | `memory`, CPU ms | with `accesses` | M accesses/s | of recording alone |",
        "|---|---:|---:|---:|---:|",
    ]
    rng = np.random.default_rng(7)
    for name, (body, source, target) in _NARROW.items():
        size, other = np.dtype(source).itemsize, np.dtype(target).itemsize
        text = _COPY.replace("ld.global.f32 %f, [%rd4];\n    st.global.f32 [%rd5], %f;", body)
        text = text.replace("%f;", "%f; .reg .b16 %h, %g;", 1)
        text = text.replace("mul.wide.u32 %rd3, %r4, 4;", f"mul.wide.u32 %rd3, %r4, {size};")
        text = text.replace(
            "add.s64 %rd5, %rd2, %rd3;", f"mul.wide.u32 %rd3, %r4, {other}; add.s64 %rd5, %rd2, %rd3;"
        )
        x = (
            rng.normal(size=_COUNT + 4096).astype(source)
            if source[0] == "f"
            else rng.integers(0, 256, _COUNT + 4096).astype(source)
        )
        y = rng.integers(0, 99, _COUNT + 4096).astype(target)
        plain, recorded = (
            _launches(text, [x, y], observe) for observe in ({"memory"}, {"memory", "accesses"})
        )
        pairs = _pairs(plain, recorded, runs)
        accesses = 1e-6 * _COUNT * (body.count("ld.") + body.count("st."))
        before, whole = (statistics.median(item) for item in zip(*pairs))
        own, ratio = (
            statistics.median(after - before for before, after in pairs),
            statistics.median(a / b for b, a in pairs),
        )
        table.append(
            f"| {name} | {before * 1e3:.1f} | {ratio:.1f} × | {accesses / whole:,.0f} | {accesses / own:,.0f} |"
        )
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
    text = _PAIRS if values.dtype == np.float16 else _COPY
    return _launches(text, [values, np.zeros_like(values)], observe)


def _launches(text: str, arrays: Sequence[NDArray[Any]], observe: set[str]) -> Callable[[], float]:
    """CPU seconds of a launch."""
    device: Any = ge.Device(races="off", observe=observe)
    kernel, given = ge.parse(text)["copy"], [device.array(item) for item in arrays]

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
