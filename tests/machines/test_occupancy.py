"""Occupancy against hand-worked examples and against NVIDIA's own calculator, where its header and a C compiler are."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuperf_engine.errors import LaunchError
from gpuperf_engine.machines.machine import Machine, load_machine, machine_ids
from gpuperf_engine.machines.occupancy import occupancy


@pytest.mark.parametrize(
    ("machine", "threads", "registers", "shared", "ctas", "ratio", "limiter"),
    [
        # 256 threads are 8 warps; 64 warps / 8 = 8 CTAs; 32 registers: 65536 / (32 * 256) = 8 CTAs.
        ("a100-sxm-80gb", 256, 32, 0, 8, 1.0, "warps"),
        # 40 registers: 1280 per warp, 16384 / 1280 = 12 warps per sub-partition, 48 per SM, 6 CTAs of 8 warps.
        ("a100-sxm-80gb", 256, 40, 0, 6, 0.75, "registers"),
        # 33 registers: 1056 per warp become 1280: the same as 40.
        ("a100-sxm-80gb", 256, 33, 0, 6, 0.75, "registers"),
        # 128 registers: 4096 per warp, 4 warps per sub-partition, 2 CTAs.
        ("a100-sxm-80gb", 256, 128, 0, 2, 0.25, "registers"),
        # 64 threads: 2 warps, 32 CTAs are the limit: 64 warps.
        ("a100-sxm-80gb", 64, 16, 0, 32, 1.0, "warps"),
        # 32 threads: one warp, 32 CTAs, half of the warps.
        ("a100-sxm-80gb", 32, 16, 0, 32, 0.5, "ctas"),
        # 48 KiB plus 1 KiB reserve: 164 / 49 = 3.
        ("a100-sxm-80gb", 256, 32, 49152, 3, 0.375, "shared"),
        # On V100 without reserve: 96 / 48 = 2; A100's 163 KiB is one.
        ("v100-sxm2", 256, 32, 49152, 2, 0.25, "shared"),
        ("a100-sxm-80gb", 128, 32, 163 * 1024, 1, 0.0625, "shared"),
        ("h100-sxm", 128, 32, 227 * 1024, 1, 0.0625, "shared"),
        # 1024 threads: 32 warps; V100 and A100 hold two, the 48 warps of 8.9 one.
        ("v100-sxm2", 1024, 32, 0, 2, 1.0, "warps"),
        ("rtx-4090", 1024, 32, 0, 1, 32 / 48, "warps"),
        ("rtx-4090", 256, 32, 0, 6, 1.0, "warps"),
        # 24 CTAs of one warp on 8.9, 16 on 8.6.
        ("rtx-4090", 32, 16, 0, 24, 0.5, "ctas"),
        ("a40", 32, 16, 0, 16, 16 / 48, "ctas"),
        # 100 threads take 4 warps; 1 byte of shared memory takes 128 plus the reserve: 167936 // 1152 = 145.
        ("a100-sxm-80gb", 100, 32, 1, 16, 1.0, "warps"),
    ],
)
def test_hand_worked(
    machine: str, threads: int, registers: int, shared: int, ctas: int, ratio: float, limiter: str
) -> None:
    found = occupancy(
        load_machine(machine), threads_per_cta=threads, registers_per_thread=registers, shared_bytes=shared
    )
    assert (found.ctas_per_sm, found.ratio, found.limiter) == (ctas, ratio, limiter)


def test_allocation_is_reported(toy: Machine) -> None:
    found = occupancy(toy, threads_per_cta=48, registers_per_thread=9, shared_bytes=1025)
    # 2 warps of 9 * 32 = 288, rounded to 512; 1025 + 1024 rounded to 3072.
    assert (found.registers_per_cta, found.shared_per_cta) == (1024, 3072)
    assert found.limits == {"warps": 8, "registers": 64, "shared": 21, "ctas": 8}
    assert (found.warps_per_sm, found.limiter) == (16, "warps")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "message"),
    [
        (1025, 16, 0, "1025 threads per CTA on a100-sxm-80gb"),
        (0, 16, 0, "0 threads per CTA"),
        (32, 256, 0, "256 registers per thread"),
        (1024, 65, 0, "1024 threads with 65 registers each need 73728 registers per CTA"),
        (32, 16, 163 * 1024 + 1, "166913 bytes of shared memory per CTA"),
    ],
)
def test_impossible_launches_are_refused(threads: int, registers: int, shared: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        occupancy(
            load_machine("a100-sxm-80gb"),
            threads_per_cta=threads,
            registers_per_thread=registers,
            shared_bytes=shared,
        )
    assert caught.value.hint


def test_a_cta_larger_than_the_sm_is_refused(toy: Machine) -> None:
    with pytest.raises(LaunchError, match="no CTA of 1024 threads"):
        occupancy(toy, threads_per_cta=1024)


_C_SOURCE = """
#include <limits.h>
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
    int major, minor, warps, regs, threads; long smem, optin, reserved, shared;
    while (scanf("%d %d %d %ld %ld %ld %d %d %ld", &major, &minor, &warps, &smem, &optin, &reserved,
                 &threads, &regs, &shared) == 9) {
        struct cudaOccDeviceProp p = {0};
        struct cudaOccFuncAttributes a = {0};
        struct cudaOccDeviceState s = {0};
        struct cudaOccResult r;
        p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
        p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
        p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = smem; p.numSms = 1;
        p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = reserved;
        a.maxThreadsPerBlock = INT_MAX; a.numRegs = regs; a.sharedSizeBytes = 0;
        a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        a.maxDynamicSharedSizeBytes = optin; a.numBlockBarriers = 1;
        s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
        printf("%d\\n", status ? -1 : r.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""


def _header_directory() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for header in sorted(Path(folder).glob("*/include/cuda_occupancy.h")):
            return header.parent
    return None


def test_agrees_with_nvidias_calculator(tmp_path: Path) -> None:
    include, compiler = _header_directory(), shutil.which("cc") or shutil.which("gcc")
    if include is None or compiler is None:
        pytest.skip("needs cuda_occupancy.h (pip install nvidia-cuda-runtime) and a C compiler")
    (tmp_path / "occupancy.c").write_text(_C_SOURCE)
    subprocess.run(
        [compiler, "-w", f"-I{include}", "-o", tmp_path / "occupancy", tmp_path / "occupancy.c"],
        check=True,
        timeout=60,
    )
    asked, lines = [], []
    for identifier in machine_ids():
        machine = load_machine(identifier)
        major, minor = machine.compute_capability
        if major < 7:
            continue
        for threads, registers, shared in itertools.product(
            (1, 32, 33, 64, 96, 128, 160, 256, 384, 512, 640, 768, 992, 1024),
            (1, 8, 9, 24, 32, 33, 48, 64, 65, 96, 128, 168, 255),
            (0, 1, 1024, 8191, 16384, 33000, 49152, 65536, 98304, 100000, 166912, 232448),
        ):
            asked.append((machine, threads, registers, shared))
            properties = (
                machine.max_warps_per_sm,
                machine.shared_per_sm,
                machine.shared_per_cta + machine.shared_reserved_per_cta,
            )
            lines.append(
                " ".join(
                    map(
                        str,
                        (
                            major,
                            minor,
                            *properties,
                            machine.shared_reserved_per_cta,
                            threads,
                            registers,
                            shared,
                        ),
                    )
                )
            )
    answer = subprocess.run(
        [tmp_path / "occupancy"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for (machine, threads, registers, shared), expected in zip(
        asked, map(int, answer.stdout.split()), strict=True
    ):
        try:
            found = occupancy(
                machine, threads_per_cta=threads, registers_per_thread=registers, shared_bytes=shared
            ).ctas_per_sm
        except LaunchError:
            found = 0
        assert found == max(expected, 0), (machine.id, threads, registers, shared)
