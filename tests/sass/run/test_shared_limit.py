"""Kernels with all the shared memory that a block of their architecture may have: their translations and traces need more."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.machines.machine import load_machine
from gpuperf_engine.sass.code import counted_code
from gpuperf_engine.timing.models.simulation import simulated
from tests.support import head, needs_assembler

pytestmark = needs_assembler
#: a loop whose number of turns, 5 and 6 for the two warps, is in the last words of shared memory
KERNEL = """
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 out, .param .u32 last) {
.reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .pred %p;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r0, 2;
ld.param.u32 %r3, [last]; mov.u32 %r4, dyn; add.u32 %r4, %r4, %r3; sub.u32 %r4, %r4, %r2; add.u32 %r5, %r1, 5;
st.volatile.shared.u32 [%r4], %r5; bar.sync 0;
ld.volatile.shared.u32 %r6, [%r4];
LOOP: ld.volatile.shared.u32 %r7, [%r4]; atom.shared.add.u32 %r8, [%r4], %r7; sub.u32 %r6, %r6, 1; setp.ne.u32 %p, %r6, 0;
@%p bra LOOP;
ld.volatile.shared.u32 %r6, [%r4]; ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
st.global.u32 [%rd0], %r6; ret; }
"""
#: from "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide
LIMITS = [
    ("sm_80", 163, "a100-sxm-80gb"),
    ("sm_86", 99, "rtx-3090"),
    ("sm_90", 227, "h100-sxm"),
    ("sm_100", 227, "b200"),
]


@pytest.mark.parametrize(("target", "kibibytes", "machine"), LIMITS, ids=[item[0] for item in LIMITS])
def test_all_shared_memory(target: str, kibibytes: int, machine: str) -> None:
    size = kibibytes << 10
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 20)
    out = device.zeros(64, np.uint32)
    kernel = ge.parse(head("8.7", target) + KERNEL, path="k.ptx")["k"]
    profile = device.launch(kernel, 1, 64, [out, np.uint32(size - 4)], shared_bytes=size)
    # each turn doubles the word
    assert out.numpy().tolist() == [5 << 5] * 32 + [6 << 6] * 32
    code = counted_code(profile, target)
    assert code.ways in ("run", "flow and run"), code.notes
    added = sum(item.warps for item in code.instructions if item.text.startswith("ATOMS.ADD"))
    assert added == 5 + 6
    (record,) = profile.records
    estimate = simulated(record, load_machine(machine))
    assert estimate.model == "simulation", estimate.notes
    with pytest.raises(ge.LaunchError, match=rf"at most {size:,} bytes per block"):
        device.launch(kernel, 1, 64, [out, np.uint32(size - 4)], shared_bytes=size + 1)
