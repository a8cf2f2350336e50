"""The roofline of the toy machine with a launch under it, by hand, and peak rates against data sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine, load_machine
from gpuperf_engine.machines.rates import peak_rate, unit_of
from gpuperf_engine.timing.estimate import estimate
from gpuperf_engine.timing.roofline import roofline

KERNELS = Path(__file__).parents[2] / "examples" / "kernels"


def test_saxpy(toy: Machine) -> None:
    """n elements: 2n operations, 8n bytes read and 4n written, all through DRAM and L2."""
    n = 4096
    kernel = ge.parse((KERNELS / "saxpy.ptx").read_text(), path="saxpy.ptx")["saxpy"]
    device = ge.Device()
    profile = device.launch(kernel, n // 256, 256, [n, 2.0, device.zeros(n), device.zeros(n)])
    found = roofline(profile, toy)
    assert (found.machine, found.unit, found.work) == ("toy", "FLOP", 2 * n)
    # 2 SMs of 4 sub-partitions of 32 lanes, 2 operations each, 1000 cycles a µs
    assert [(item.name, item.rate) for item in found.ceilings] == [("sp", 2 * 4 * 32 * 2 * 1000)]
    # a third of the bytes is written, which is as slow as half
    assert [item.rate for item in found.slopes] == pytest.approx([125e3, 80e3, 200e3])
    time = estimate(profile, toy)
    for point, level in zip(found.points, ("DRAM", "L2"), strict=True):
        assert (point.level, point.bytes, point.intensity) == (level, 12 * n, 1 / 6)
        assert point.rate == pytest.approx(2 * n / (time.time_us - time.launch_us))
    # two launches are twice the work at the same rate
    twice = roofline(ge.add_profiles([profile, profile]), toy)
    assert twice.work == 4 * n and twice.points[0].rate == pytest.approx(found.points[0].rate)


def test_a_kernel_without_floating_point(toy: Machine) -> None:
    """Is drawn by the instructions of its warps, under the issue slots: 2 SMs, 4 a cycle."""
    text = """
    .version 7.0
    .target sm_70
    .address_size 64
    .visible .entry k(.param .u64 out) {
    .reg .b32 %r<2>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret; }"""
    device = ge.Device()
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [device.zeros(64, np.uint32)])
    found = roofline(profile, toy)
    assert (found.unit, found.work) == ("warp instruction", 2 * 6)
    assert [(item.name, item.rate) for item in found.ceilings] == [("issue", 8e3)]


@pytest.mark.parametrize(
    ("machine", "kind", "teraflops"),
    [
        # NVIDIA's data sheets: H100 SXM5 at its boost clock for tensor cores (1 830 MHz), A100, T4, all dense
        ("h100-sxm", "tensor_fp16", 989.4 * 1980 / 1830), ("h100-sxm", "tensor_tf32", 494.7 * 1980 / 1830),
        ("h100-sxm", "tensor_fp8", 1978.9 * 1980 / 1830), ("a100-sxm-80gb", "tensor_fp16", 312),
        ("a100-sxm-80gb", "tensor_tf32", 156), ("a100-sxm-80gb", "tensor_int8", 624),
        ("a100-sxm-80gb", "tensor_int4", 1248), ("a100-sxm-80gb", "tensor_fp64", 19.5),
        ("a100-sxm-80gb", "dp", 9.7), ("a100-sxm-80gb", "sp", 19.5), ("t4", "sp", 8.1), ("t4", "tensor_fp16", 65),
        ("a100-sxm-80gb", "hp", 78), ("a100-sxm-80gb", "tensor_int1", 4992),
        # from 8.6 on no faster than other units: 1/64 of single precision (whitepapers of GA102 and Ada)
        ("h100-sxm", "tensor_fp64", 66.9), ("a30", "tensor_fp64", 10.3), ("a40", "tensor_fp64", 37.4 / 64),
        ("rtx-4090", "tensor_fp64", 82.6 / 64),
    ],
)  # fmt: skip
def test_peak_rates_are_those_of_the_data_sheets(machine: str, kind: str, teraflops: float) -> None:
    of = load_machine(machine)
    assert peak_rate(kind, of) * of.sm_count * of.clock_mhz / 1e6 == pytest.approx(teraflops, rel=0.01)


def test_a_unit_that_a_machine_lacks() -> None:
    assert unit_of("tensor_fp16", (6, 0)) == "tensor"
    assert peak_rate("tensor_fp16", load_machine("p100")) == 0
