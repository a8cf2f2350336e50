"""What looking for races costs: the same launches with and without, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import case_programs as programs
import numpy as np
from cases import cuda

import gpuperf_engine as ge

__all__ = ["CASES", "launches", "rows"]

CASES = (
    cuda("saxpy", "saxpy, 1 M", programs.saxpy, 1 << 20),
    cuda("saxpy", "saxpy_grid_stride, 1 M", programs.saxpy_grid_stride, 1 << 20, 128),
    cuda("sgemm", "sgemm_tiled 256³", programs.sgemm, "sgemm_tiled", 256, 256, 256),
    cuda("reduce", "reduce_shared, 1 M", programs.reduce_shared, 1 << 20, 1),
    cuda("transpose", "transpose_padded 1,024²", programs.transpose, "transpose_padded", 1024, 1024),
    cuda("histogram", "histogram_shared, 256 K", programs.histogram, "histogram_shared", 1 << 18, 64),
    cuda("cluster", "cluster_histogram, 100 K", programs.cluster_histogram, 100_000, 8),
    cuda("scan", "scan, 256 K", programs.scan, 1 << 18),
    cuda("bitonic", "bitonic, 32 K", programs.bitonic, 1 << 15),
    cuda("softmax", "softmax 256 × 1,024", programs.softmax, 256, 1024),
    cuda("fft512", "fft512 × 512", programs.fft512, 512),
    cuda("matmul.sm_80", "Triton matmul 256³, sm_80", programs.triton_matmul, 16384, 256, 256, 256, folder="triton"),
    cuda("matmul.sm_90", "Triton matmul 256³, sm_90", programs.triton_matmul, 24576, 256, 256, 256, folder="triton"),
    cuda("tensor_gemm", "hgemm_mma 256³", programs.tensor_gemm, "hgemm_mma", 256, 256, 256),
    cuda("warpgroup_gemm", "hgemm_specialised 128 × 256 × 512", programs.tensor_gemm, "hgemm_specialised", 128, 256, 512),
)  # fmt: skip


def launches(case: Any, **options: Any) -> Callable[[], float]:
    """CPU seconds of all launches of a case, on a device with these options. Raises ``RaceError`` for a race."""
    device, program = ge.Device(**options), case.program()
    module = ge.parse(case.ptx.read_text(), path=case.ptx.name)
    arrays = {id(buffer): device.array(buffer) for buffer in program.buffers}

    def run() -> float:
        total = 0.0
        for launch in program.launches:
            given = [
                arrays.get(id(item), item) if isinstance(item, np.ndarray) else item for item in launch.args
            ]
            start = time.process_time()
            device.launch(
                module[launch.entry], launch.grid, launch.block, given, shared_bytes=launch.shared_bytes
            )
            total += time.process_time() - start
        return total

    return run


def rows(runs: int) -> list[str]:
    """A Markdown table: medians of the time without and of the ratio of pairs."""
    lines = ["| launch | plain, CPU ms | with `races` |", "|---|---:|---:|"]
    for case in CASES:
        plain, checked = launches(case, races="off"), launches(case, races="error")
        deadline = time.perf_counter() + 3.0
        while time.perf_counter() < deadline:  # until code that was compiled in haste has been replaced
            plain()
            checked()
        pairs = [(plain(), checked()) for _ in range(runs)]
        ratio = statistics.median(after / before for before, after in pairs)
        lines.append(
            f"| {case.name} | {statistics.median(before for before, _ in pairs) * 1e3:.1f} | {ratio:.2f} × |"
        )
    return lines
