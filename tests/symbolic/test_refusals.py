"""What warp classes do not count is refused with a reason of one line; budgets end every analysis."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.launch import LaunchPlan, marshal
from gpuperf_engine.simt.program import program_of
from gpuperf_engine.symbolic.backend import Counts, Refusal, count_by_warp_classes
from gpuperf_engine.symbolic.slice_program import slice_of

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>, %n, %i;
    .reg .b64 %rd<4>, %data;
    ld.param.u64 %data, [data];
    ld.param.u32 %n, [n];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %r0, %r1, %i;
"""
GRID, BLOCK = 1 << 20, 96


def count(body: str, n: int = 100, device: ge.Device | None = None, **options: Any) -> Counts:
    """Classes of a kernel whose body this is."""
    kernel = ge.parse(f"{HEAD}{body}\n    ret;\n}}\n", path="k.ptx")["k"]
    program = program_of(kernel)
    device = device or ge.Device(observe=set(), memory_bytes=1 << 20)
    address = device.arrays[0].address if device.arrays else 0
    plan = LaunchPlan(
        (options.pop("grid", GRID), 1, 1),
        (options.pop("block", BLOCK), 1, 1),
        parameters=marshal(kernel, [address, np.uint32(n)], lambda argument: None),
        parameter_address=1 << 40,
        symbols=np.zeros(0, np.uint64),
        max_instructions=options.pop("max_instructions", 10**8),
    )
    wanted = slice_of(program, "control", None)
    return count_by_warp_classes(
        program, plan, wanted.instructions, device.memory, guards=wanted.guards, **options
    )


def reason(body: str, n: int = 100, device: ge.Device | None = None, **options: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        count(body, n, device, **options)
    text = str(refusal.value)
    assert "\n" not in text and len(text) < 120
    return text


BRANCH = "    @%p0 bra $end;\n    add.s32 %r7, %r7, 1;\n$end:"
LOAD = """    mul.wide.u32 %rd0, {index}, 4;
    add.s64 %rd0, %data, %rd0;
    ld.global.u32 %r2, [%rd0];
    setp.lt.u32 %p0, %r2, %i;
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    mov.u32 %r2, %clock;\n    setp.eq.u32 %p0, %r2, 7;\n", "mov.u32 at k.ptx:15: %clock is read"),
        (LOAD.format(index="%i"), "ld.global.u32 at k.ptx:17: its address differs between many blocks"),
        (
            "    mul.lo.u32 %r2, %i, %i;\n    setp.lt.u32 %p0, %r2, %n;\n",
            "mul.lo.u32 at k.ptx:15: a number that has to be known takes 3145728 values",
        ),
        (
            "    atom.global.add.u32 %r2, [%data], 1;\n    setp.eq.u32 %p0, %r2, 7;\n",
            "atom.global.add.u32 at k.ptx:15: the control flow depends on global memory that the kernel writes",
        ),
        (
            "    setp.ge.u32 %p0, %i, %n;\n    @%p0 bra $end;\n    bar.sync 0;\n",
            "lanes of a warp wait for others that do not arrive",
        ),
        ("    setp.eq.u32 %p0, %i, 77;\n    @%p0 trap;\n", "trap at k.ptx:16: it is reached"),
        (
            "    setp.eq.u32 %p0, %i, 77;\n    bar.sync 0;\n    bar.sync 1;\n",
            "the kernel uses several barriers",
        ),
        (
            "    setp.eq.u32 %p0, %i, 77;\n    barrier.sync 1, 64;\n",
            "barrier.sync at k.ptx:16: a barrier of some warps, or with a result",
        ),
    ],
    ids=lambda item: None if "\n" in item else item,
)
def test_reasons(body: str, expected: str) -> None:
    assert reason(body + BRANCH) == expected


def test_a_trap_that_is_not_reached_is_none() -> None:
    counts = count("    setp.ge.u32 %p0, %i, %n;\n    @%p0 trap;\n" + BRANCH, n=GRID * BLOCK)
    assert counts.block_lanes[0] == GRID * BLOCK


def test_loads_of_known_addresses() -> None:
    uniform = LOAD.format(index="%n") + BRANCH
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    device.array(np.array([5, 1000, 7], np.uint32))
    counts = count(uniform, n=1, device=device)
    assert counts.taken[0] == GRID * BLOCK - 1001
    assert "it reads outside every array" in reason(uniform, n=3, device=device)
    device = ge.Device(observe=set(), memory_bytes=1 << 20)
    device.empty(4, np.uint32)
    assert "it reads uninitialised memory" in reason(uniform, n=1, device=device)


LOOP = """    mov.u32 %r2, 0;
$again:
    add.s32 %r2, %r2, {step};
    setp.{test}.u32 %p0, %r2, {limit};
    @%p0 bra $again;
"""


def test_instructions_of_a_warp_are_limited_as_everywhere() -> None:
    # 5 + 1 + 3·(i + 1) + 1 instructions; the last warp ends with its last lane
    body = LOOP.format(step=1, test="le", limit="%i")
    most = 6 + 1 + 3 * 64 * BLOCK + 1
    counts = count(body, grid=64, max_instructions=most)
    assert sum(counts.block_lanes) == 64 * BLOCK * 2 + 64 * BLOCK * (64 * BLOCK + 1) // 2
    assert reason(body, grid=64, max_instructions=most - 1) == "a warp may execute more than max_instructions"


@pytest.mark.parametrize(
    ("step", "test", "limit"),
    [(0, "le", "%i"), (2, "ne", "%r1"), (1, "ge", "0")],
    ids=["still", "odd", "true"],
)
def test_endless_loops_are_given_up(step: int, test: str, limit: str) -> None:
    body = LOOP.format(step=step, test=test, limit=limit)
    start = time.process_time()
    found = reason(body, block=97, max_instructions=10**15, most_steps=5000)
    assert "more than max_instructions" in found or "more than 5,000 steps" in found
    assert time.process_time() - start < 5


def test_classes_are_limited() -> None:
    # t div 1009 odd: many classes, each with its own place in a warp
    body = """    div.u32 %r2, %i, 1009;
    and.b32 %r3, %r2, 1;
    setp.eq.u32 %p0, %r3, 0;
"""
    counts = count(body + BRANCH)
    assert counts.pieces > 100
    assert reason(body + BRANCH, most_pieces=100) == "there are more than 100 warp classes"
    assert reason(body + BRANCH, most_steps=500) == "it takes more than 500 steps"
