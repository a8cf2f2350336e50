"""Small kernels to explain."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuperf_engine as ge
from gpuperf_engine.results import Cause, Explanation, LoopProfile
from tests.engine.running import module

THREAD, DATA = Cause("thread", "tid.x", True), Cause("data", "given", True)
N = Cause("parameter", "n", False)

START = """
    ld.param.u64 %rd0, [given];
    ld.param.u32 %r1, [n];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd0, %rd1;
"""


def kernel_of(body: str, parameters: str, before: str = "") -> ge.Kernel:
    return ge.parse(module(body, parameters, before), path="k.ptx")["k"]


def explained(
    body: str,
    given: list[int] | None = None,
    n: int = 3,
    block: int | tuple[int, int] = 32,
    grid: int = 1,
    extra: str = "",
    name: str | None = "given",
) -> Explanation:
    """Of a kernel with an array of 64 words, ``given``, and ``n``; %rd0 points to the array, %rd1 to the thread's word."""
    kernel = kernel_of(f"{START}{body}\n    ret;", ".param .u64 given, .param .u32 n", extra)
    device = ge.Device(memory_bytes=1 << 20)
    values = np.resize(np.array(given or [0], np.uint32), 64)
    return ge.explain(device.launch(kernel, grid, block, [device.array(values, name=name), np.uint32(n)]))


def causes(explanation: Explanation) -> set[Cause]:
    """Of the one branch that diverges, without the shape of the launch."""
    (branch,) = explanation.branches
    return {cause for cause in branch.causes if cause.kind not in ("launch", "block")}


def trips(loop: LoopProfile) -> tuple[Any, ...]:
    return loop.entries, loop.iterations, loop.mean, loop.depth


BRANCH = "@%p1 bra JOIN; add.u32 %r5, %r5, 1; JOIN:"

NEST = """
    mov.u32 %r3, 0;
OUTER:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra DONE;
    mov.u32 %r4, 0;
INNER:
    add.u32 %r4, %r4, 1;
    setp.le.u32 %p2, %r4, %r3;
    @%p2 bra INNER;
    add.u32 %r3, %r3, 1;
    bra OUTER;
DONE:
"""
