"""Wide loads of shared memory whose lanes share words, from PTX to the clocks of the unit that serves them."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from tests.support import needs_assembler

pytestmark = needs_assembler
LOADS = 64
#: 64 times each lane loads four words, or stores them, where ``PLACE`` puts them
WIDE = f""".version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 a)
{{
.reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %q<4>;
.shared .align 16 .b8 tile[1024];
ld.param.u64 %q1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r4, tile; mov.f32 %f5, 0f00000000;
PLACE
mad.lo.u32 %r3, %r2, 16, %r4;
{"ACCESS " * LOADS}
mul.wide.u32 %q2, %r1, 4; add.u64 %q3, %q1, %q2; st.global.f32 [%q3], %f5;
ret;
}}
"""
LOAD = "ld.volatile.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r3]; add.f32 %f5, %f5, %f1;"
STORE = "st.volatile.shared.v4.f32 [%r3], {%f5, %f5, %f5, %f5};"
PLACES = {
    "one": "mov.u32 %r2, 0;",
    "halves": "shr.u32 %r2, %r1, 4;",
    "pairs": "shr.u32 %r2, %r1, 1;",
    "even and odd": "and.b32 %r2, %r1, 1;",
    "sixteen": "and.b32 %r2, %r1, 15;",
    "each its own": "mov.u32 %r2, %r1;",
}


def wavefronts(place: str, access: str, machine: str) -> float:
    """Clocks of one access in the unit of shared memory, at 128 bytes a clock."""
    device = ge.Device()
    kernel = ge.parse(WIDE.replace("PLACE", PLACES[place]).replace("ACCESS", access), path="wide.ptx")["k"]
    profile = device.launch(kernel, 1, 32, [device.zeros(32, np.float32)])
    found = ge.estimate(profile, machine, model="simulation")
    described = load_machine(machine)
    return found.bounds["shared"] * described.clock_mhz / LOADS / (128 / described.l1_bandwidth)


@pytest.mark.parametrize("machine", ["a100-sxm-40gb", "rtx-3080", "h100-sxm"])
@pytest.mark.parametrize(
    ("place", "loads"),
    [("one", 2), ("halves", 2), ("pairs", 2), ("even and odd", 2), ("sixteen", 4), ("each its own", 4)],
)
def test_neighbours_that_load_the_same_halve_the_wavefronts(machine: str, place: str, loads: int) -> None:
    # as counted in products on an A800 and an RTX 3080, on an H100 and an RTX 5090 (docs/simulation.md)
    assert wavefronts(place, LOAD, machine) == pytest.approx(loads, rel=0.02)


@pytest.mark.parametrize("place", ["pairs", "each its own"])
def test_stores_take_all_of_them(place: str) -> None:
    assert wavefronts(place, STORE, "rtx-3080") == pytest.approx(4, rel=0.02)
