"""Launches that are large enough to be counted by warp classes, and small enough to run whole: the profiles are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from benchmarks import counting
from tests.symbolic.measured import (
    LARGE,
    Case,
    after,
    all_pairs,
    digits,
    flat_picture,
    grid_stride,
    lower_triangle,
    rows,
    saxpy_narrow,
    saxpy_wide,
    stencil,
    swizzle,
)
from tests.symbolic.running import module
from tests.symbolic.test_demands import counts, in_classes

MEDIUM = (
    saxpy_wide(90_000, 128, 11_000_003),
    saxpy_narrow(90_000, 128, 11_000_003),
    grid_stride(64, 256, 200_000_001),
    stencil((250, 400), (32, 8), 7_991, 3_190),
    after(60, 256, 15_360),
    lower_triangle((300, 300), (16, 16), 4_790),
    all_pairs(24, 256, 6_144),
    flat_picture(40_000, 256, 10_239_900, 128, 30_000),
    digits(20_000, 256, 5_200_000, 2_000, 100_000),
    swizzle(400, 300, 8),
)


@pytest.mark.parametrize("case", MEDIUM, ids=lambda case: case.entry)
def test_same_profile(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    in_classes(monkeypatch)
    found = {}
    for demand in ("control", "values"):
        device = ge.Device(memory_bytes=1 << 16, observe=())
        arguments: list[Any] = [device.zeros(32, np.uint32), *case.numbers]
        kernel = module("measured")[case.entry]
        found[demand] = device.launch(kernel, case.grid, case.block, arguments, demand=demand)
    classes, every = found["control"], found["values"]
    assert (classes.method, every.method) == ("classes", "every block"), classes.method_reason
    assert counts(classes) == counts(every)
    assert 0 < classes.share_executed < 0.01


def test_counts_of_more_than_64_bits() -> None:
    planes = 65535 * 65535
    case = rows(3_906_250, 256, 10**9)
    device = ge.Device(memory_bytes=1 << 16, max_instructions=10**12, observe=())
    arguments: list[Any] = [device.zeros(32, np.uint32), *case.numbers]
    kernel = module("measured")["rows"]
    profile = device.launch(kernel, (case.grid, 65535, 65535), case.block, arguments, demand="control")
    assert case.branches is not None
    executed, divergent = case.branches
    assert profile.branches == ge.results.Branches(executed * planes, divergent * planes)
    assert profile.opcodes["st.global.u32"] == 10**9 * planes
    assert profile.thread_instructions == sum(profile.opcodes.values()) > 2**90
    assert profile.to_dict()["thread_instructions"] == profile.thread_instructions
    assert ge.add_profiles([profile, profile]).thread_instructions == 2 * profile.thread_instructions


def test_table_of_the_benchmark() -> None:
    """It raises where a launch is not counted by warp classes, or wrongly."""
    lines = counting.rows(1)
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == [case.title for case in LARGE]
