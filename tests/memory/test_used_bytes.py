"""``.pragma "used_bytes_mask"``: bytes of a load that the program does not use may be uninitialised, or past the end of an object."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import launch

POINTER = ".param .u64 data, .param .u64 out"
LOAD = "ld.{space}.v4.u32 {{%r1, %r2, %r3, %r4}}, [{address}];"


def device_of(backend: str) -> ge.Device:
    return ge.Device(backend=backend, memory_bytes=1 << 24)


def run(
    backend: str, size: int, mask: str, load: str, written: int, step: int = 0, threads: int = 1
) -> ge.Profile:
    """Load from an array of ``size`` bytes of which a kernel has written the first bytes of each 16, and store three words."""
    device = device_of(backend)
    data, out = device.empty(size, np.uint8), device.empty(12 * threads, np.uint8)
    first = f"""
        ld.param.u64 %rd0, [data]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, {step}; add.u64 %rd0, %rd0, %rd1;
        add.u32 %r1, %r0, 1;
        {"".join(f"st.global.u8 [%rd0+{byte}], %r1;" for byte in range(written))} ret;"""
    launch(backend, first, parameters=POINTER, args=[data, out], device=device, block=threads)
    second = f"""
        ld.param.u64 %rd0, [data]; ld.param.u64 %rd2, [out];
        mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, {step}; add.u64 %rd0, %rd0, %rd1;
        mul.wide.u32 %rd1, %r0, 12; add.u64 %rd2, %rd2, %rd1;
        {f'.pragma "used_bytes_mask {mask}";' if mask else ""}
        {load}
        st.global.u32 [%rd2], %r1; st.global.u32 [%rd2+4], %r2; st.global.u32 [%rd2+8], %r3; ret;"""
    profile = launch(backend, second, parameters=POINTER, args=[data, out], device=device, block=threads)
    words = out.numpy().view(np.uint32).reshape(threads, 3)
    assert (words == (np.arange(threads, dtype=np.uint32) * 0x01010101 + 0x01010101)[:, None]).all()
    return profile


GLOBAL = LOAD.format(space="global", address="%rd0")
GENERIC = "ld.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0];"
WIDE = "ld.global.v2.b64 {%rd5, %rd6}, [%rd0]; mov.b64 {%r1, %r2}, %rd5; mov.b64 {%r3, %r4}, %rd6;"


@pytest.mark.parametrize("mask", ["0xfff", "4095", "07777", "0xfffU", "0xff000fff"])
@pytest.mark.parametrize("load", [GLOBAL, GENERIC, WIDE])
def test_unused_bytes_past_the_end_of_an_array(backend: str, mask: str, load: str) -> None:
    assert run(backend, 12, mask, load, 12).notes == ()


@pytest.mark.parametrize("mask", ["", "0x1fff", "0xffff"])
def test_used_bytes_must_be_inside(backend: str, mask: str) -> None:
    with pytest.raises(ge.MemoryFault, match="4 bytes past the end"):
        run(backend, 12, mask, GLOBAL, 12)


def test_the_address_is_aligned_all_the_same(backend: str) -> None:
    with pytest.raises(ge.MemoryFault, match="misaligned"):
        run(backend, 32, "0xfff", LOAD.format(space="global", address="%rd0+4"), 16)


@pytest.mark.parametrize("threads", [1, 32, 40])
@pytest.mark.parametrize("load", [GLOBAL, GENERIC])
def test_unused_bytes_that_nothing_has_written(backend: str, threads: int, load: str) -> None:
    assert run(backend, 16 * threads, "0xfff", load, 12, 16, threads).notes == ()
    (note,) = run(backend, 16 * threads, "0x1fff", load, 12, 16, threads).notes
    assert "reads uninitialised memory" in note
    (note,) = run(backend, 16 * threads, "", load, 12, 16, threads).notes
    assert "reads uninitialised memory" in note


@pytest.mark.parametrize("narrow", [False, True])
def test_shared_memory(backend: str, narrow: bool) -> None:
    """With stores of bytes compiled code keeps a shadow of shared memory, otherwise unwritten words have a pattern."""
    stores = "st.shared.u32 [tile], %r0; st.shared.u32 [tile+4], %r0; st.shared.u32 [tile+8], %r0;"
    if narrow:
        stores = "".join(f"st.shared.u8 [tile+{byte}], 1;" for byte in range(12))
    pointer = "ld.param.u64 %rd2, [out]; mov.u32 %r0, 0x01010101;"
    end = "st.global.u32 [%rd2], %r1; st.global.u32 [%rd2+4], %r2; st.global.u32 [%rd2+8], %r3; ret;"
    for size, mask, fails, notes in (
        (12, "0xfff", False, 0), (16, "0xfff", False, 0), (16, "0x1fff", False, 1), (16, "", False, 1),
        (12, "", True, 0), (12, "0x1fff", True, 0),
    ):  # fmt: skip
        device = device_of(backend)
        out = device.empty(12, np.uint8)
        pragma = f'.pragma "used_bytes_mask {mask}";' if mask else ""
        body = pointer + stores + pragma + LOAD.format(space="shared", address="tile") + end

        def go(
            size: int = size, body: str = body, device: ge.Device = device, out: ge.Array = out
        ) -> ge.Profile:
            before = f".shared .align 16 .b8 tile[{size}];"
            return launch(backend, body, before=before, parameters=POINTER, args=[out, out], device=device)

        if fails:
            with pytest.raises(ge.MemoryFault, match="beyond the 12 bytes"):
                go()
            continue
        assert len(go().notes) == notes, (size, mask)
        assert (out.numpy() == 1).all()


def test_local_memory(backend: str) -> None:
    device = device_of(backend)
    out = device.empty(12, np.uint8)
    for mask, notes in (("0xfff", 0), ("0xff0f", 1), ("", 1)):
        pragma = f'.pragma "used_bytes_mask {mask}";' if mask else ""
        body = f"""
            .local .align 16 .b8 stack[16];
            ld.param.u64 %rd2, [out]; mov.u32 %r0, 7;
            st.local.u32 [stack], %r0; st.local.u32 [stack+4], %r0; st.local.u32 [stack+8], %r0;
            {pragma} {LOAD.format(space="local", address="stack")}
            st.global.u32 [%rd2], %r1; st.global.u32 [%rd2+4], %r2; st.global.u32 [%rd2+8], %r3; ret;"""
        profile = launch(backend, body, parameters=POINTER, args=[out, out], device=device)
        assert len(profile.notes) == notes, mask
        assert out.numpy().view(np.uint32).tolist() == [7, 7, 7]


def test_the_pragma_is_ignored_before_other_instructions(backend: str) -> None:
    device = device_of(backend)
    out = device.empty(12, np.uint8)
    body = """
        ld.param.u64 %rd2, [out]; mov.u32 %r0, 7;
        .pragma "used_bytes_mask 0xfff";
        st.global.v4.u32 [%rd2], {%r0, %r0, %r0, %r0}; ret;"""
    with pytest.raises(ge.MemoryFault, match="4 bytes past the end"):
        launch(backend, body, parameters=POINTER, args=[out, out], device=device)
