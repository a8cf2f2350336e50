"""Operands read from the register file: counted by hand, and what they limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.registers import operand_reads
from tests.timing.counted import estimate

HEADER = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<99>; .reg .f64 %d<9>;
"""


def parsed(body: str) -> ge.Kernel:
    return ge.parse(HEADER + body + "\nret;\n}\n", path="k.ptx")["k"]


@pytest.mark.parametrize(
    ("body", "operands"),
    [
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", 3),
        ("fma.rn.f32 %f1, %f2, %f2, %f4;", 2),
        ("fma.rn.f32 %f1, %f2, 0f3F800000, %f4;", 2),
        ("fma.rn.f64 %d1, %d2, %d3, %d4;", 3),
        ("add.u64 %rd1, %rd2, 8;", 1),
        ("@%p1 add.f32 %f1, %f2, %f3;", 2),
        # the second finds %f2 where the first has read it
        ("fma.rn.f32 %f1, %f2, %f3, %f1;\nfma.rn.f32 %f4, %f2, %f5, %f4;", 3 + 2),
        # but not %f1, which was written since
        ("fma.rn.f32 %f1, %f2, %f3, %f4;\nmul.f32 %f5, %f1, %f6;", 3 + 2),
        ("fma.rn.f32 %f2, %f2, %f3, %f4;\nmul.f32 %f5, %f2, %f6;", 3 + 2),
        # two chains in turn share nothing with their neighbours
        (2 * "fma.rn.f32 %f1, %f1, %f2, %f3;\nfma.rn.f32 %f4, %f4, %f5, %f6;\n", 4 * 3),
        # a load between them reads through a queue of its own and leaves what is kept
        ("mul.f32 %f1, %f2, %f3;\nld.global.f32 %f7, [%rd1];\nmul.f32 %f4, %f2, %f5;", 2 + 1),
    ],
)
def test_operands_of_a_block(body: str, operands: int) -> None:
    instructions = [item for item in parsed(body).instructions if item.opcode != "ret"]
    assert operand_reads(instructions) == operands


def test_the_register_file_may_be_what_limits(toy: Machine) -> None:
    # 100 trips of two chains of 20 multiply-adds, three operands each, and counting: add and setp read %r1 and find it, or find it
    # newly written: 1 + 1. 4 CTAs of 256 threads on 2 SMs are 4 warps on each sub-partition.
    chains = "fma.rn.f32 %f1, %f1, %f2, %f3;\nfma.rn.f32 %f4, %f4, %f5, %f6;\n" * 10
    body = f"mov.u32 %r1, 0;\nL:\n{chains}add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 100;\n@%p1 bra L;"
    device = ge.Device()
    profile = device.launch(parsed(body), 4, 256, [device.zeros(1, np.float32)])
    given = timing_input(profile.records[0], toy, profile.resources)
    assert given.operand_reads == 32 * 100 * (20 * 3 + 2)
    assert estimate(profile, toy).bounds["registers"] == pytest.approx(4 * 100 * 62 / 4 / 1000)
    narrow = estimate(profile, replace(toy, register_read_rate=2))
    assert narrow.bounds["registers"] == pytest.approx(4 * 100 * 62 / 2 / 1000)
    assert narrow.limiter == "registers"


def test_a_product_of_registers_keeps_one_factor() -> None:
    """An outer product of four by four, as a matrix product is written: of each multiply-add's three operands one is kept."""
    steps = [
        f"fma.rn.f32 %f{40 + 4 * i + j}, %f{i}, %f{20 + j}, %f{40 + 4 * i + j};"
        for i in range(4)
        for j in range(4)
    ]
    instructions = [item for item in parsed("\n".join(steps)).instructions if item.opcode != "ret"]
    assert operand_reads(instructions) == 4 * (3 + 3 * 2)
