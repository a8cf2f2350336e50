"""Wavefronts of atomics in shared memory: a bank changes one word at a time, and lanes at one word take turns, unless the instruction
adds their number (``ATOMS.POPC.INC``). Expected values are arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.timing.models.simulation import Simulation
from tests.support import needs_assembler

KERNEL = """.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 array)
{
.reg .b32 %r<12>; .reg .b64 %q<4>; .shared .align 4 .b8 pool[4096];
ld.param.u64 %q1, [array]; cvta.to.global.u64 %q1, %q1; mov.u32 %r1, %tid.x;
PLACE mov.u32 %r3, pool; add.u32 %r3, %r3, %r2;
BODY
bar.sync 0; ld.shared.u32 %r4, [%r3]; mul.wide.u32 %q2, %r1, 4; add.u64 %q2, %q2, %q1; st.global.u32 [%q2], %r4; ret;
}
"""
TIMES = 64
#: Clocks of a wavefront: the LSU of 7.5 takes 16 lanes a clock.
CLOCKS = {"a100-sxm-80gb": 1, "rtx-2080-ti": 2}
#: Where the lanes of a warp access shared memory, and the wavefronts of a load there. That lanes meet is not known to an assembler.
ONE, OWN, BANK = ("shr.u32 %r2, %r1, 10;", 1), ("shl.b32 %r2, %r1, 2;", 1), ("shl.b32 %r2, %r1, 7;", 32)


@pytest.mark.parametrize("assembled", [False, pytest.param(True, marks=needs_assembler)])
@pytest.mark.parametrize(
    ("atomic", "place", "wavefronts", "machine"),
    [
        ("add.u32 [%r3], 1", ONE, 1, "a100-sxm-80gb"),
        ("add.u32 [%r3], 1", OWN, 1, "a100-sxm-80gb"),
        ("add.u32 [%r3], 1", BANK, 32, "a100-sxm-80gb"),
        ("inc.u32 [%r3], -1", ONE, 1, "a100-sxm-80gb"),
        ("inc.u32 [%r3], 7", ONE, 32, "a100-sxm-80gb"),
        ("add.s32 [%r3], 1", ONE, 32, "a100-sxm-80gb"),
        ("add.u32 [%r3], 2", ONE, 32, "a100-sxm-80gb"),
        ("add.u32 [%r3], 2", OWN, 1, "a100-sxm-80gb"),
        ("add.u32 [%r3], 2", BANK, 32, "a100-sxm-80gb"),
        ("add.u32 [%r3], 1", ONE, 32, "rtx-2080-ti"),
    ],
)
def test_lanes_that_meet(
    atomic: str, place: tuple[str, int], wavefronts: int, machine: str, assembled: bool
) -> None:
    offset, loads = place
    text = KERNEL.replace("PLACE", offset).replace("BODY", f"red.shared.{atomic};" * TIMES)
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 26)
    profile = device.launch(ge.parse(text, path="own.ptx")["k"], 1, 32, [device.zeros(32, np.uint32)])
    (record,) = profile.records
    resources = replace(profile.resources, shared_bytes=record.plan.shared_bytes)
    simulation = Simulation(record, load_machine(machine), expanded=None if assembled else resources)
    assert simulation.timed().bounds["shared"] == CLOCKS[machine] * (TIMES * wavefronts + loads)
