"""What accesses do, cost and refuse: in every space, for every width, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import collect, launch

POINTER = ".param .u64 data"


def device_of(backend: str) -> ge.Device:
    return ge.Device(backend=backend, memory_bytes=1 << 24)


@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_reads_of_unwritten_memory_are_noted(backend: str, space: str) -> None:
    device = device_of(backend)
    data = device.empty(64, np.uint32)
    before = ".shared .align 4 .b32 tile[64];" if space == "shared" else ""
    declared = ".local .align 4 .b32 stack[64];" if space == "local" else ""
    base = {
        "global": "ld.param.u64 %rd0, [data];",
        "shared": "mov.u64 %rd0, tile;",
        "local": "mov.u64 %rd0, stack;",
    }
    body = f"""
        {declared}
        {base[space]}
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd0, %rd1;
        st.{space}.u32 [%rd1], %r1;
        ld.{space}.u32 %r2, [%rd1];
        ld.{space}.u16 %r3, [%rd1+128];
        ret;
    """
    profile = launch(backend, body, before=before, parameters=POINTER, args=[data], device=device)
    assert len(profile.notes) == 1
    assert f"ld.{space}.u16 reads uninitialised memory" in profile.notes[0]


def test_bytes_of_a_word_written_one_by_one(backend: str) -> None:
    body = """
        mov.u32 %r1, 3;
        mov.u32 %r2, tile;
        st.shared.u8 [%r2], %r1;
        st.shared.u8 [%r2+1], %r1;
        ld.shared.u16 %r0, [%r2];
        st.shared.u8 [%r2+2], %r1;
        ld.shared.u32 %r3, [%r2];
        """
    values, profile = collect(backend, body, before=".shared .align 4 .b8 tile[4];")
    assert values.tolist() == [0x303] * 32
    assert len(profile.notes) == 1 and "ld.shared.u32 reads uninitialised memory" in profile.notes[0]


#: as nvcc reads a structure that is passed by value
STRUCTURE = """
    mov.b64 %rd0, given;
    add.s64 %rd1, %rd0, 16;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd2, [%rd1+-16];
    ld.param.v2.u32 {%r2, %r3}, [%rd1+8];
    and.b32 %r4, %r1, 3;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.param.u32 %r5, [%rd4];
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 ret;
    add.u32 %r6, %r3, %r5;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.u32 [%rd6], %r6;
    ret;
"""


def structure(device: ge.Device, words: list[int]) -> tuple[ge.DeviceArray, np.void]:
    """An output array, and the structure: its address, 8 bytes that nobody reads, four words."""
    out = device.zeros(32, np.uint32, name="out")
    kind = np.dtype([("out", "u8"), ("unused", "u8"), ("words", "u4", 4)])
    return out, np.array((out.address, 0, words), kind)[()]


def test_parameters_are_read_through_registers(backend: str) -> None:
    device = device_of(backend)
    words = [5, 6, 20, 1000]
    out, given = structure(device, words)
    profile = launch(
        backend, STRUCTURE, parameters=".param .align 8 .b8 given[32]", args=[given], device=device
    )
    assert out.numpy().tolist() == [1000 + words[lane & 3] if lane < 20 else 0 for lane in range(32)]
    assert profile.opcodes["ld.param.u32"] == 32
    assert profile.memory.global_load_sectors == 0 and not profile.memory.accesses.keys() - {
        "store.global.32"
    }


def test_parameters_read_through_registers_decide_control_flow(backend: str) -> None:
    device = device_of(backend)
    _, given = structure(device, [5, 6, 20, 1000])
    profile = launch(
        backend,
        STRUCTURE,
        parameters=".param .align 8 .b8 given[32]",
        args=[given],
        device=device,
        demand="control",
    )
    assert profile.opcodes["st.global.u32"] == 20
    assert profile.branches.divergent == 1


def test_no_parameter_lies_behind_the_last(backend: str) -> None:
    device = device_of(backend)
    body = "mov.b64 %rd0, given; ld.param.u32 %r1, [%rd0+1024]; ret;"
    with pytest.raises(ge.MemoryFault, match=r"ld\.param\.u32"):
        launch(backend, body, parameters=".param .align 8 .b8 given[32]", args=[bytes(32)], device=device)
