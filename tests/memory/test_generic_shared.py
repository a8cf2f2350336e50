"""Generic addresses that go to shared memory whole, by an instruction that goes elsewhere at other times: both backends, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.counters import sectors, wavefronts

#: distance of the lanes in bytes, by turn; the accesses of a thread go to shared memory, to global memory, and to both by turns
STRIDES = (4, 16, 4, 0, 64, 8, 4, 4, 128, 0, 12, 4)
TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 strides, .param .u32 rounds)
{{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<30>; .reg .b64 %rd<20>;
    .shared .align 16 .b8 sm[8192];
    ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [strides]; ld.param.u32 %r9, [rounds];
    mov.u32 %r0, %tid.x; mov.u32 %r1, 0;
    mul.wide.u32 %rd2, %r0, 4; mov.u64 %rd3, sm; add.u64 %rd3, %rd3, %rd2; mov.u32 %r10, 0;
clear:
    st.shared.u32 [%rd3], %r0; add.u64 %rd3, %rd3, 128; add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 64; @%p1 bra clear;
    bar.sync 0; mov.u64 %rd4, sm; cvta.shared.u64 %rd4, %rd4;
loop:
    mul.wide.u32 %rd5, %r1, 4; add.u64 %rd6, %rd1, %rd5; ld.global.u32 %r2, [%rd6];
    mul.lo.u32 %r3, %r0, %r2; cvt.u64.u32 %rd7, %r3; add.u64 %rd8, %rd4, %rd7; add.u64 %rd9, %rd0, %rd7;
    and.b32 %r4, %r1, 3; setp.ne.u32 %p2, %r4, 1; selp.b64 %rd10, %rd8, %rd9, %p2;
    setp.eq.u32 %p3, %r4, 3; and.b32 %r5, %r0, 1; setp.eq.u32 %p4, %r5, 0; and.pred %p3, %p3, %p4; selp.b64 %rd10, %rd9, %rd10, %p3;
    {access}
    add.u32 %r1, %r1, 1; setp.lt.u32 %p5, %r1, %r9; @%p5 bra loop;
    ret;
}}
"""
ACCESSES = {
    "ld.u32": ("ld.u32 %r7, [%rd10];", 4),
    "st.u32": ("st.u32 [%rd10], %r0;", 4),
    "ld.u8": ("ld.u8 %r7, [%rd10];", 1),
    "ld.v2.u16": ("ld.v2.u16 {%h1, %h2}, [%rd10];", 4),
    "st.u16": ("cvt.u16.u32 %h1, %r0; st.u16 [%rd10], %h1;", 2),
}


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("threads", [32, 23])
def test_turns_in_shared_and_in_global_memory(access: str, threads: int) -> None:
    text, size = ACCESSES[access]
    lanes = np.arange(threads)
    memories, left = [], []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend)
        data, strides = device.zeros(2048, np.uint32), device.array(np.array(STRIDES, np.uint32))
        profile = device.launch(
            ge.parse(TEXT.format(access=text), path="k.ptx")["k"], 1, threads, [data, strides, len(STRIDES)]
        )
        (site,) = [item for item in profile.sites if item.opcode == access]
        memories.append((site, profile.memory))
        left.append(data.numpy())
    assert memories[0] == memories[1]
    np.testing.assert_array_equal(left[0], left[1])
    found_sectors = found_fronts = 0
    loads = access.startswith("ld")
    for turn, stride in enumerate(STRIDES):
        there = np.full(threads, turn % 4 == 1)
        if turn % 4 == 3:
            there = lanes % 2 == 0
        places = (lanes * stride).astype(np.uint64)
        if there.any():
            found_sectors += sectors(places[there])
        if not there.all():
            found_fronts += wavefronts(places[~there], lanes[~there], size, loads)[0]
    site, memory = memories[0]
    own_stores = 64
    assert (memory.global_load_sectors if loads else memory.global_store_sectors) == found_sectors + (
        len(STRIDES) if loads else 0
    )
    fronts = memory.shared_load_wavefronts if loads else memory.shared_store_wavefronts - own_stores
    assert fronts == found_fronts


def test_refusals_name_the_place_in_shared_memory(backend: str) -> None:
    for change, message in (
        ("add.u64 %rd10, %rd10, 8190;", "misaligned"),
        ("add.u64 %rd10, %rd10, 8192;", "beyond the 8,192 bytes"),
    ):
        device = ge.Device(backend=backend)
        data, strides = device.zeros(2048, np.uint32), device.array(np.array(STRIDES, np.uint32))
        text = TEXT.format(access=f"{change} ld.u32 %r7, [%rd10];")
        with pytest.raises(ge.MemoryFault) as caught:
            device.launch(ge.parse(text, path="k.ptx")["k"], 1, 32, [data, strides, 1])
        assert message in str(caught.value)
        assert "shared address 0x" in str(caught.value)
