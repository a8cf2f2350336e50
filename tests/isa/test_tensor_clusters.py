"""Tensor copies of several threads at once, and to several blocks of a cluster."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.tensors import SHARED, load, walk


@pytest.mark.parametrize("group", ["", ".cta_group::1"])
def test_multicast(group: str, backend: str) -> None:
    array = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    text = load("2d.shared::cluster.global.tile", (0, 8), 16 * 32 * 4, target="sm_100a" if group else "sm_90")
    text = text.replace("bytes [%r2", f"bytes.multicast::cluster{group} [%r2")
    text = text.replace(", [bar];", ", [bar], %h1;")
    text = text.replace("cp.async.bulk.tensor", "mov.u16 %h1, 3;\n@%p2 cp.async.bulk.tensor")
    text = text.replace(
        "    @!%p0 bra READY;",
        """
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r11, %cluster_ctarank;
    setp.eq.u32 %p2, %r11, 1;
    mad.wide.u32 %rd2, %r11, 8192, %rd2;
    @!%p0 bra READY;""",
    ).replace("    ret;", "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    ret;")
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    tensor, result = device.array(array), device.zeros(2 * SHARED, np.uint8)
    profile = device.launch(
        ge.parse(text, path="k.ptx")["k"], 2, 128, [ge.TensorMap(tensor, (16, 32)), result], cluster=2
    )
    for part in result.numpy().reshape(2, SHARED):
        assert (part[:2048].view(np.float32).reshape(16, 32) == array[8:24]).all()
    assert profile.memory.global_load_sectors == 16 * 4


THREADS = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<4>;
    .shared .align 128 .b8 tile[4096];
    .shared .align 8 .b64 bar;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mad.lo.u32 %r2, %r1, 128, %r2;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 1408;
    bar.warp.sync -1;
    rem.u32 %r3, %r1, 3;
    setp.eq.u32 %p2, %r3, 0;
    and.b32 %r4, %r1, 1;
    and.b32 %r5, %r1, 3;
    shr.u32 %r6, %r1, 3;
    cvt.u16.u32 %h1, %r3;
    cvt.u16.u32 %h2, %r4;
    shl.b32 %r7, %r4, 4;
    @%p2 cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
        [%r2], [%rd1, {%r7, %r5, %r4, %r6}], [bar], {%h2, %h1};
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;
    @!%p3 bra WAIT;
    mad.wide.u32 %rd2, %r1, 128, %rd2;
    mov.u32 %r11, 0;
  NEXT:
    ld.shared.u32 %r10, [%r2];
    st.global.u32 [%rd2], %r10;
    add.u32 %r2, %r2, 4;
    add.u64 %rd2, %rd2, 4;
    add.u32 %r11, %r11, 1;
    setp.lt.u32 %p3, %r11, 32;
    @%p3 bra NEXT;
    ret;
}
"""


def test_threads(backend: str) -> None:
    """Every third lane copies eight pixels of its own: coordinates C, W, H, N and offsets differ."""
    image = np.random.default_rng(1).integers(1, 255, (4, 6, 12, 32)).astype(np.uint8)
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    made = ge.TensorMap.im2col(device.array(image), 16, 8, lower=(0, 0), upper=(0, 0))
    result = device.array(np.zeros((32, 8, 16), np.uint8))
    device.launch(ge.parse(THREADS, path="k.ptx")["k"], 1, 32, [made, result])
    wanted = np.zeros((32, 8, 16), np.uint8)
    for lane in range(0, 32, 3):
        c, w, h, n = 16 * (lane & 1), lane & 3, lane & 1, lane >> 3
        for pixel, (x, y, z) in enumerate(walk((w, h, n), (0, 0), (12, 6), (1, 1), 8)):
            if x + (lane & 1) < 12:
                wanted[lane, pixel] = image[z, y, x + (lane & 1), c : c + 16]
    assert (result.numpy() == wanted).all()


PAIRS = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b16 %h<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 bar;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %cluster_ctarank;
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.and.u32 %p2, %r2, 1, %p1;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u16 %h1, 15;
    @%p2 mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 1024;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2
        [tile], [%rd1, {0, 8}], [bar], %h1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    setp.eq.u32 %p3, %r2, 3;
    @%p3 bra FORTH;
    setp.ne.u32 %p3, %r2, 1;
    @%p3 bra CAME;
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;
    @!%p3 bra WAIT;
    bra CAME;
  FORTH:
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 1024;
    bra WAIT;
  CAME:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mad.lo.u32 %r3, %r2, 32, %r1;
    mad.wide.u32 %rd2, %r3, 16, %rd2;
    mov.u32 %r4, tile;
    mad.lo.u32 %r4, %r1, 16, %r4;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
    st.global.v4.u32 [%rd2], {%r5, %r6, %r7, %r8};
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}
"""


def test_pairs_of_blocks(backend: str) -> None:
    """With cta_group::2 all blocks of a cluster get the box; of each pair the odd one is told of both: the mbarrier is in block 1."""
    array = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    tensor, result = device.array(array), device.zeros((4, 4, 32), np.float32)
    device.launch(
        ge.parse(PAIRS, path="k.ptx")["k"], 4, 32, [ge.TensorMap(tensor, (4, 32)), result], cluster=4
    )
    assert (result.numpy() == array[8:12]).all()
