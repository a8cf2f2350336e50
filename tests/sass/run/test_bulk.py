"""Copies of boxes of tensors and of runs of bytes, run as machine code: counted by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.support import needs_assembler

pytestmark = needs_assembler

INPUTS = {"memory", "inputs"}
#: one thread copies a box and a run of bytes in, then adds to them, and copies them out
COPIES = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u32 turns, .param .align 64 .b8 map[128], .param .u64 out, .param .u64 in)
{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %q<9>;
.shared .align 1024 .b8 tile[8192];
.shared .align 8 .b64 bar;
mov.b64 %q1, map; cvta.param.u64 %q1, %q1;
ld.param.u64 %q2, [out]; ld.param.u64 %q3, [in]; ld.param.u32 %r9, [turns];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r5, 0; mov.u32 %r6, 8;
setp.ne.u32 %p0, %r1, 0;
@%p0 bra MEET;
mbarrier.init.shared.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 3072;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%q3], 1024, [bar];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile+1024], [%q1, {%r5, %r6}], [bar];
MEET:
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra WAIT;
mad.lo.u32 %r3, %r1, 4, %r2; ld.shared.u32 %r4, [%r3]; mad.lo.u32 %r4, %r4, %r9, %r1; st.shared.u32 [%r3], %r4;
fence.proxy.async.shared::cta; bar.sync 0;
@%p0 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%q2], [tile], 1024;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%q2], [tile+2048], 512;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q1, {%r5, %r5}], [tile];
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%q1, {%r6, %r5}], [tile];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
ret;
}
"""


@pytest.mark.parametrize("architecture", ["sm_90", "sm_90a", "sm_100a"])
def test_copies_are_run(architecture: str) -> None:
    """A box of 16 rows of 128 bytes, 64 sectors, and 1,024 bytes, 32 sectors, come in; as many go out, and of those added to the
    second one is of 512 bytes, 16 sectors, the other a box."""
    device = ge.Device(observe=INPUTS, races="off", memory_bytes=1 << 24)
    tensor = device.array(np.arange(64 * 64, dtype=np.uint32).reshape(64, 64))
    given = device.array(np.random.default_rng(1).integers(0, 1 << 31, 1 << 12, dtype=np.uint32))
    out = device.zeros(1 << 12, np.uint32)
    kernel = ge.parse(COPIES, path="copies.ptx")["k"]
    profile = device.launch(kernel, 1, 64, [np.uint32(7), ge.TensorMap(tensor, box=(16, 32)), out, given])
    code = counted_code(profile, architecture)
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert (code.global_load_sectors, code.global_store_sectors) == (64 + 32, 64 + 32)
    assert code.global_atomic_sectors == 64 + 16
    executed: Counter[str] = Counter()
    for item in code.instructions:
        if item.opcode.startswith(("UTMA", "UBLK")):
            executed[item.opcode] += item.warps
    assert executed == {
        name: 1
        for name in (
            "UBLKCP.S.G", "UTMALDG.2D", "UBLKCP.G.S", "UBLKRED.G.S.ADD", "UTMASTG.2D", "UTMAREDG.2D.ADD", "UTMACMDFLUSH",
        )
    }  # fmt: skip


#: each CTA of a cluster of two copies a box into both
MULTICAST = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1
{
.reg .pred %p<9>; .reg .b16 %h; .reg .b32 %r<20>; .reg .b64 %q<9>;
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 bar;
mov.b64 %q1, map; cvta.param.u64 %q1, %q1; ld.param.u64 %q2, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, bar; mov.u16 %h, 3;
setp.ne.u32 %p0, %r1, 0;
@%p0 bra MEET;
mbarrier.init.shared.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
MEET:
barrier.cluster.arrive; barrier.cluster.wait;
@%p0 bra WAIT;
mad.lo.u32 %r5, %r3, 2048, %r2; mul.lo.u32 %r6, %r3, 16; mov.u32 %r7, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
[%r5], [%q1, {%r6, %r7}], [%r4], %h;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra WAIT;
mad.lo.u32 %r5, %r1, 16, %r2; ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r5];
mad.lo.u32 %r6, %r3, 256, %r1; mad.wide.u32 %q2, %r6, 16, %q2; st.global.v4.u32 [%q2], {%r8, %r9, %r10, %r11};
barrier.cluster.arrive; barrier.cluster.wait;
ret;
}
"""


def test_a_box_goes_to_several_blocks() -> None:
    device = ge.Device(observe=INPUTS, races="off", memory_bytes=1 << 24)
    values = np.arange(32 * 32, dtype=np.uint32).reshape(32, 32)
    out = device.zeros(2048, np.uint32)
    kernel = ge.parse(MULTICAST, path="multicast.ptx")["k"]
    profile = device.launch(kernel, 2, 256, [ge.TensorMap(device.array(values), box=(32, 16)), out])
    both: Any = np.concatenate([values[:, :16].ravel(), values[:, 16:].ravel()])
    assert np.array_equal(out.numpy(), np.tile(both, 2))
    code = counted_code(profile, "sm_90a")
    assert (code.ways, code.residue) == ("flow and run", 0.0)
    assert [item.opcode for item in code.instructions if item.opcode.startswith("UTMA")] == [
        "UTMALDG.2D.MULTICAST"
    ]
    assert code.global_load_sectors == 2 * 64
