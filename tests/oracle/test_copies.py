"""mbarriers, bulk copies and tensor copies: phases worked out by hand, boxes cut out with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from .kernels import collect, module
from .scalar import Buffer, OracleError, TensorMap, run

INIT = """
    .shared .align 8 .b64 bar; .reg .pred %first;
    mov.u32 %r1, %tid.x; setp.eq.u32 %first, %r1, 0;
"""


def test_a_phase_needs_its_arrivals() -> None:
    """Thread t writes before it arrives; whoever has waited sees all 64."""
    text = (
        INIT
        + """
    .shared .align 4 .b32 sum;
    @%first mbarrier.init.shared::cta.b64 [bar], 64; bar.sync 0;
    red.shared.add.u32 [sum], %r1;
    mbarrier.arrive.shared::cta.b64 %rd1, [bar];
AGAIN:
    mbarrier.try_wait.shared::cta.b64 %p1, [bar], %rd1; @!%p1 bra AGAIN;
    ld.shared.u32 %r0, [sum];"""
    )
    assert collect(text, block=64) == [2016] * 64


def test_pending_counts_drops_and_parities() -> None:
    steps = """
    mbarrier.init.shared.b64 [bar], 3;
    mbarrier.arrive.shared.b64 %rd1, [bar]; mbarrier.pending_count.b64 %r2, %rd1;
    mbarrier.arrive_drop.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r3, %rd2;
    mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 0;
    mbarrier.arrive.shared.b64 _, [bar];
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;
    mbarrier.test_wait.shared.b64 %p2, [bar], %rd1;
    mbarrier.arrive.shared.b64 %rd4, [bar], 2; mbarrier.pending_count.b64 %r4, %rd4;
    mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1;
    mad.lo.u32 %r0, %r2, 10, %r3; mad.lo.u32 %r0, %r0, 10, %r4;
    selp.u32 %r5, 1000, 0, %p1; add.u32 %r0, %r0, %r5; @%p2 add.u32 %r0, %r0, 2000; @%p3 add.u32 %r0, %r0, 4000;
    mbarrier.inval.shared.b64 [bar];"""
    # three missing, then two; one dropped for good, so two in the next phase
    assert collect(INIT + steps, block=1) == [7322]


def test_bytes_belong_to_a_phase() -> None:
    """A bulk copy of 64 bytes and st.async of 4 are expected; the order of telling and coming does not matter."""
    text = """
    .global .align 16 .b32 data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
"""
    body = (
        INIT
        + """
    .shared .align 16 .b32 copy[16]; .shared .align 4 .b32 more;
    @%first mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
    @!%first bra WAIT;
    mov.u64 %rd1, data; mov.u32 %r2, copy; mov.u32 %r3, bar; mov.u32 %r4, more; mov.u32 %r5, 1000;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r5, [%r3];
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 68;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 64, [%r3];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
    ld.shared.u32 %r6, [copy+60]; ld.shared.u32 %r7, [more]; add.u32 %r0, %r6, %r7;"""
    )
    assert collect(body, before=text) == [1016] * 32


def test_a_phase_that_cannot_come_is_a_deadlock() -> None:
    body = INIT + "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %rd1, [bar];"
    with pytest.raises(OracleError, match="deadlock: 1 threads wait"):
        collect(body + "mbarrier.try_wait.shared.b64 %p1, [bar], %rd1;", block=1)
    with pytest.raises(OracleError, match="3 arrivals at an mbarrier that waits for 2"):
        collect(INIT + "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 3;", block=1)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_boxes_of_a_matrix(swizzle: str) -> None:
    """8 rows of 16 words that hang over two edges, loaded into two CTAs at once, and stored one row and column further on."""
    inner = {"none": 16, "32B": 8, "64B": 16, "128B": 16}[swizzle]
    host = np.arange(1, 401, dtype=np.uint32).reshape(20, 20)
    body = f"""
    .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b64 bar;
    .reg .pred %first, %leader;
    mov.u32 %r1, %tid.x; setp.eq.u32 %first, %r1, 0; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %leader, %r2, 0;
    and.pred %leader, %leader, %first; mov.u32 %r3, tile; mov.u32 %r4, bar;
    ld.param.u64 %rd3, [out]; mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, target; cvta.param.u64 %rd2, %rd2;
    @%first mbarrier.init.shared.b64 [bar], 1;
    @%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], {32 * inner};
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r5, -2; mov.u32 %r6, 15; mov.u16 %h1, 3;
    @%leader cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
             [%r3], [%rd1, {{%r5, %r6}}], [%r4], %h1;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
    @%leader cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {{-1, 16}}], [%r3];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    mad.lo.u32 %r7, %r1, 4, %r3; mad.lo.u32 %r8, %r2, 256, %r1; mad.wide.u32 %rd3, %r8, 4, %rd3;
    ld.shared.u32 %r9, [%r7]; st.global.u32 [%rd3], %r9;
    ret;"""
    out, target = Buffer(np.zeros((2, 256), np.uint32)), Buffer(np.zeros((20, 20), np.uint32))
    parameters = ".param .align 64 .b8 map[128], .param .align 64 .b8 target[128], .param .u64 out"
    maps = [TensorMap(buffer, (8, inner), swizzle) for buffer in (Buffer(host), target)]
    run(module(body, parameters), "k", 2, 256, [*maps, out], cluster=2)
    box = np.zeros((8, inner), np.uint32)
    box[:5, 2:] = host[15:, : inner - 2]
    units, seen = box.reshape(-1, 4), np.zeros((64, 4), np.uint32)
    for number, unit in enumerate(units):
        line = number // 8 & {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
        seen[number ^ line] = unit
    np.testing.assert_array_equal(out.numpy(), [seen.reshape(-1)] * 2)
    expected = np.zeros((20, 20), np.uint32)
    expected[16:, : inner - 1] = box[:4, 1:]
    np.testing.assert_array_equal(target.numpy(), expected)
