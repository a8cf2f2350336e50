"""Launches of one kernel in turn with other shapes, arguments, variables and devices: none finds what an earlier one left."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.launch import LaunchShape

#: stores the number of threads, of CTAs and of CTAs of a cluster, the bytes of dynamic shared memory, an argument and a variable
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.global .u32 variable;
.visible .entry k(.param .u64 to, .param .u32 number)
{
    .reg .b32 %r<7>;
    .reg .b64 %to, %o, %v;
    ld.param.u64 %to, [to];
    ld.param.u32 %r4, [number];
    mov.u32 %r0, %ntid.x;
    mov.u32 %r1, %nctaid.x;
    mov.u32 %r2, %cluster_nctaid.x;
    mov.u32 %r3, %dynamic_smem_size;
    mov.u64 %v, variable;
    ld.global.u32 %r5, [%v];
    mov.u32 %r6, %ctaid.x;
    mul.wide.u32 %o, %r6, 24;
    add.u64 %to, %to, %o;
    st.global.u32 [%to], %r0;
    st.global.u32 [%to+4], %r1;
    st.global.u32 [%to+8], %r2;
    st.global.u32 [%to+12], %r3;
    st.global.u32 [%to+16], %r4;
    st.global.u32 [%to+20], %r5;
    ret;
}
"""
SHAPES = [(1, 32, 1, 0), (4, 64, 1, 0), (4, 64, 2, 0), (4, 96, 1, 256), (8, 1024, 4, 512), (1, 33, 1, 0)]


@pytest.mark.parametrize("observe", [(), ("memory",), ("values",)], ids=["counts", "memory", "values"])
def test_launches_in_turn(observe: tuple[str, ...]) -> None:
    kernel = ge.parse(KERNEL, path="k.ptx")["k"]
    devices = [ge.Device(observe, memory_bytes=1 << 20) for _ in range(2)]
    for index, device in enumerate(devices):
        device.symbol(kernel, "variable").copy_from(np.array([100 + index], np.uint32))
        device.launch(kernel, 1, 32, [device.zeros(6, np.uint32), 0])
    arrays = [device.zeros((8, 6), np.uint32) for device in devices]
    order = [*itertools.permutations(range(len(SHAPES)), 2)]
    for number, (index, shape) in enumerate(
        itertools.product(range(2), [item for two in order for item in two])
    ):
        grid, block, cluster, shared = SHAPES[shape]
        profile = devices[index].launch(
            kernel, grid, block, [arrays[index], number], shared_bytes=shared, cluster=cluster
        )
        expected = [block, grid, cluster, shared, number, 100 + index]
        np.testing.assert_array_equal(arrays[index].numpy()[:grid], [expected] * grid)
        assert profile.thread_instructions == 18 * grid * block
        assert profile.warp_instructions == 18 * grid * -(-block // 32)


def test_numbers_of_a_shape() -> None:
    shape = LaunchShape((6, 3, 2), (33, 2, 1), cluster=(2, 3, 1), resident=12)
    assert (shape.ctas, shape.threads_per_cta, shape.warps_per_cta) == (36, 66, 3)
    assert (shape.cluster_ctas, shape.clusters) == (6, (3, 1, 2))


def test_events_share_whole_arrays() -> None:
    """A program of many launches holds one record of an array, not one per launch."""
    device = ge.Device()
    kernel, array = ge.parse(KERNEL, path="k.ptx")["k"], device.zeros(12, np.uint32)
    for number in range(2):
        device.launch(kernel, 1, 32, [array, number])
    device.launch(kernel, 1, 32, [array[6:], 2])
    first, second, view = (event.objects[0] for event in device.events[-3:])
    assert first is second
    assert (view.offset, view.shape) == (24, (6,))
