"""Any control flow has a path: random kernels, irreducible loops included, keep the invariants of the path and the estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import Machine
from gpuperf_engine.timing.launch.adapt import timing_input
from gpuperf_engine.timing.launch.inputs import Loop, Path
from tests.engine.random_kernels import ACCUMULATORS, INPUTS, WORDS, Seeded, structured, tangled
from tests.timing.counted import estimate


def _issued(path: Path) -> float:
    total = 0.0
    for part in path:
        if isinstance(part, Loop):
            total += part.trips * _issued(part.body)
        else:
            total += part.weight * sum(item.unit != "none" for item in part.instructions)
    return total


@pytest.mark.parametrize("shape", [structured, tangled], ids=["structured", "tangled"])
@pytest.mark.parametrize("seed", range(12))
def test_path_and_counts_agree_on_any_control_flow(toy: Machine, shape, seed: int) -> None:
    choices = Seeded(seed)
    block, grid = choices.number(1, 3) * 32, choices.number(1, 3)
    text = shape(choices)
    machine = replace(toy, compute_capability=(10, 0))
    device = ge.Device(backend="reference", memory_bytes=1 << 22)
    inputs = np.random.default_rng(seed).integers(0, 2**32, INPUTS, dtype=np.uint64).astype(np.uint32)
    start = [inputs, np.zeros(grid * block * WORDS, np.uint32), np.zeros(ACCUMULATORS, np.uint32)]
    arrays = [device.array(array) for array in start]
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], grid, block, arrays)
    given = timing_input(profile.records[0], machine, profile.resources)
    # The average warp's path issues its share of all machine instructions, but for barriers and calls that are counted where
    # their guard lets nobody through.
    warps = grid * block // 32
    assert _issued(given.path) == pytest.approx(sum(given.warp_instructions.values()) / warps, rel=0.02)
    found = estimate(profile, machine)
    assert found.time_us >= max(found.bounds.values()) * (1 - 1e-12)
    assert found == estimate(profile, machine)


RECURSIVE = """.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 %v) odd (.reg .b32 %n);
.func (.reg .b32 %v) even (.reg .b32 %n)
{
    .reg .pred %p; .reg .b32 %m;
    mov.u32 %v, %n;
    setp.eq.u32 %p, %n, 0;
    @%p ret;
    sub.u32 %m, %n, 1;
    call (%v), NEXT, (%m);
    mad.lo.u32 %v, %v, 3, %n;
    ret;
}
.func (.reg .b32 %v) odd (.reg .b32 %n)
{
    .reg .b32 %m;
    add.u32 %m, %n, 0;
    call (%v), even, (%m);
    xor.b32 %v, %v, 5;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, 0;
    call (%r1), even, (9);
    call (%r2), odd, (6);
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd0], %r1;
    ret;
}
"""


@pytest.mark.parametrize("next_one", ["even", "odd"])
def test_functions_that_call_themselves(toy: Machine, next_one: str) -> None:
    """Each activation takes its time, by whatever way it was called: the path of the one warp issues what was counted."""
    device = ge.Device()
    kernel = ge.parse(RECURSIVE.replace("NEXT", next_one), path="k.ptx")["k"]
    profile = device.launch(kernel, 1, 32, [device.zeros(32, np.uint32)])
    # 10 activations of the first call and 7 of the second, of which all but the last of each come to the product
    assert profile.warp_opcodes["mad.lo.u32"] == 9 + 6
    given = timing_input(profile.records[0], toy, profile.resources)
    assert _issued(given.path) == pytest.approx(sum(given.warp_instructions.values()), rel=1e-9)
