"""``WARPSYNC`` by lanes that a branch outside all regions separated."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.support import head, needs_assembler

pytestmark = needs_assembler
START = (
    "{\n.reg .b64 %q<4>; .reg .b32 %r<12>; .reg .pred %p<4>;\nld.param.u64 %q1, [data]; mov.u32 %r1, %tid.x; "
    "mad.wide.u32 %q1, %r1, 4, %q1; ld.global.u32 %r2, [%q1];\n"
)
#: Lanes leave a loop at different iterations; in each, those that are left add up what is equal.
LOOP = START + (
    "again: activemask.b32 %r3; bar.warp.sync %r3; match.any.sync.b32 %r4, %r2, %r3; popc.b32 %r4, %r4; add.u32 %r5, %r5, %r4;\n"
    "shr.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra again;\nst.global.u32 [%q1], %r5; ret;\n}\n"
)
#: Lanes 0 to 19 and the others exchange values among themselves, then all of them.
PARTS = START + (
    "mov.u32 %r9, %laneid; setp.ge.u32 %p1, %r9, 20; @%p1 bra others;\n"
    "shfl.sync.up.b32 %r3, %r2, 1, 0, 0xfffff; add.u32 %r2, %r2, %r3; shfl.sync.up.b32 %r3, %r2, 2, 0, 0xfffff;\n"
    "add.u32 %r2, %r2, %r3; bra.uni end;\nothers: shfl.sync.bfly.b32 %r3, %r2, 3, 31, 0xfff00000; setp.gt.u32 %p2, %r3, 9;\n"
    "vote.sync.ballot.b32 %r4, %p2, 0xfff00000; add.u32 %r2, %r3, %r4;\n"
    "end: bar.warp.sync -1; shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; add.u32 %r2, %r2, %r3; st.global.u32 [%q1], %r2; ret;\n}\n"
)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("body", [LOOP, PARTS], ids=["loop", "parts"])
def test_lanes_that_are_all_here_wait_for_nobody(body: str, architecture: str) -> None:
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array(np.random.default_rng(5).integers(1, 64, 64).astype(np.uint32))
    text = head("8.7", architecture) + ".visible .entry k(.param .u64 data)\n" + body
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [data])
    code = counted_code(profile, architecture)
    assert any(item.opcode.startswith("WARPSYNC") for item in code.instructions) or architecture == "sm_80"
    assert "run" in code.ways and code.residue == 0.0, code.notes


#: Lanes with the same lowest bits of a value add up their values.
CLASSES = START + (
    "and.b32 %r3, %r2, {bits}; match.any.sync.b32 %r4, %r3, -1; redux.sync.add.s32 %r5, %r2, %r4;\n"
    "st.global.u32 [%q1], %r5; ret;\n}\n"
)
MACHINES = {
    "sm_80": "a100-sxm-40gb",
    "sm_89": "rtx-4090",
    "sm_90": "h100-sxm",
    "sm_100": "b200",
    "sm_120": "rtx-5090",
}


@pytest.mark.parametrize("architecture", MACHINES)
@pytest.mark.parametrize("bits", [1, 3, 7])
def test_lanes_that_name_the_same_lanes_take_turns(bits: int, architecture: str) -> None:
    """``WARPSYNC.EXCLUSIVE``. The second warp has a class less."""
    values = np.random.default_rng(7).integers(0, 64, (2, 32)).astype(np.uint32)
    values[1] -= values[1] & bits == bits
    device = ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)
    data = device.array(values.reshape(-1))
    text = (
        head("8.7", architecture)
        + ".visible .entry k(.param .u64 data)\n"
        + CLASSES.replace("{bits}", str(bits))
    )
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 64, [data])
    same = (values[:, :, None] & bits) == (values[:, None, :] & bits)
    assert np.array_equal(data.numpy().reshape(2, 32), (same * values[:, None, :]).sum(2))
    code = counted_code(profile, architecture)
    assert "run" in code.ways and not any("not run" in note or "differ" in note for note in code.notes), (
        code.notes
    )
    time = ge.estimate(profile, MACHINES[architecture], model="simulation")
    assert time.model == "simulation", time.notes
    sums = [item for item in code.instructions if "REDUX.SUM" in item.text]
    groups = sum(len(np.unique(row & bits)) for row in values)
    assert (sum(item.warps for item in sums), sum(item.threads for item in sums)) == (groups, 64)
    assert sum(item.issued for item in time.stalled if "REDUX.SUM" in item.text) == groups
    assert any("EXCLUSIVE" in item.text for item in code.instructions)
    assert sum(item.issued for item in time.stalled) == code.warp_instructions
