"""What accesses do, cost and refuse: in every space, for every width, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import collect, launch

POINTER = ".param .u64 data"


def device_of(backend: str) -> ge.Device:
    return ge.Device(backend=backend, memory_bytes=1 << 24)


def site(profile: ge.Profile, opcode: str) -> object:
    """The only memory site with an opcode."""
    (found,) = [item for item in profile.sites if item.opcode == opcode]
    return found


ADDRESS = """
        mov.u32 %r1, %tid.x;
        ld.param.u64 %rd0, [data];
"""


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_loads_extend_into_wider_registers(backend: str, bits: int, sign: str) -> None:
    device = device_of(backend)
    numbers = np.array([0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1] * 8, f"u{bits // 8}")[
        :32
    ]
    out = device.zeros(32, np.uint64, name="out")
    body = f"""
        {ADDRESS}
        ld.param.u64 %rd1, [out];
        mul.wide.u32 %rd2, %r1, {bits // 8};
        add.u64 %rd2, %rd0, %rd2;
        ld.global.{sign}{bits} %rd3, [%rd2];
        mul.wide.u32 %rd4, %r1, 8;
        add.u64 %rd4, %rd1, %rd4;
        st.global.u64 [%rd4], %rd3;
        ret;
    """
    launch(
        backend,
        body,
        parameters=f"{POINTER}, .param .u64 out",
        args=[device.array(numbers), out],
        device=device,
    )
    wide = (
        numbers.view(f"i{bits // 8}").astype(np.int64).view(np.uint64)
        if sign == "s"
        else numbers.astype(np.uint64)
    )
    np.testing.assert_array_equal(out.numpy(), wide)


@pytest.mark.parametrize(
    "vector,kind,registers,words",
    [("v2", "u32", "%r2, %r3", 2), ("v4", "u32", "%r2, %r3, %r4, %r5", 4), ("v2", "b64", "%rd2, %rd3", 4)],
)
def test_vectors(backend: str, vector: str, kind: str, registers: str, words: int) -> None:
    device = device_of(backend)
    data = device.array(np.arange(32 * words, dtype=np.uint32))
    body = f"""
        {ADDRESS}
        mul.wide.u32 %rd1, %r1, {4 * words};
        add.u64 %rd1, %rd0, %rd1;
        ld.global.{vector}.{kind} {{{registers}}}, [%rd1];
        st.global.{vector}.{kind} [%rd1], {{{", ".join(reversed(registers.split(", ")))}}};
        ret;
    """
    profile = launch(backend, body, parameters=POINTER, args=[data], device=device)
    rows = np.arange(32 * words, dtype=np.uint32).reshape(32, len(registers.split(",")), -1)
    np.testing.assert_array_equal(data.numpy(), rows[:, ::-1].reshape(-1))
    assert profile.memory is not None
    assert profile.memory.global_load_sectors == profile.memory.global_store_sectors == 32 * words * 4 // 32
    assert profile.memory.accesses == {f"load.global.{words * 32}": 32, f"store.global.{words * 32}": 32}


@pytest.mark.parametrize("stride,sectors", [(0, 1), (4, 4), (8, 8), (32, 32), (64, 32)])
def test_sectors_of_a_stride(backend: str, stride: int, sectors: int) -> None:
    device = device_of(backend)
    data = device.array(np.zeros(1024, np.uint32))
    body = f"""
        {ADDRESS}
        mul.wide.u32 %rd1, %r1, {stride};
        add.u64 %rd1, %rd0, %rd1;
        ld.global.u32 %r2, [%rd1];
        ret;
    """
    profile = launch(backend, body, parameters=POINTER, args=[data], device=device)
    found = site(profile, "ld.global.u32")
    assert (found.requests, found.lanes, found.sectors) == (1, 32, sectors)  # type: ignore[attr-defined]


@pytest.mark.parametrize("guard,lanes,sectors", [("lt.u32 %p1, %r1, 5", 5, 1), ("gt.u32 %p1, %r1, 90", 0, 0)])
def test_only_lanes_that_access_count(backend: str, guard: str, lanes: int, sectors: int) -> None:
    device = device_of(backend)
    body = f"""
        {ADDRESS}
        setp.{guard};
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd0, %rd1;
        @%p1 st.global.u32 [%rd1], %r1;
        ret;
    """
    profile = launch(backend, body, parameters=POINTER, args=[device.zeros(32, np.uint32)], device=device)
    found = site(profile, "st.global.u32")
    assert (found.requests, found.lanes, found.sectors) == (int(lanes > 0), lanes, sectors)  # type: ignore[attr-defined]


@pytest.mark.parametrize("stride,fronts", [(4, 1), (8, 2), (128, 32), (132, 1), (0, 1)])
def test_bank_conflicts(backend: str, stride: int, fronts: int) -> None:
    body = f"""
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, tile;
        mad.lo.u32 %r3, %r1, {stride}, %r2;
        st.shared.u32 [%r3], %r1;
        ret;
    """
    profile = launch(backend, body, before=".shared .align 4 .b8 tile[4224];")
    found = site(profile, "st.shared.u32")
    assert (found.wavefronts, found.ideal_wavefronts) == (fronts, 1)  # type: ignore[attr-defined]
    assert profile.memory is not None and profile.memory.shared_conflicts == fronts - 1


def test_shared_atomics_of_one_address_take_turns(backend: str) -> None:
    body = """
        mov.u32 %r1, 1;
        atom.shared.add.u32 %r0, [cell], %r1;
        """
    values, profile = collect(backend, body, before=".shared .align 4 .u32 cell;")
    assert values.tolist() == list(range(32))
    assert site(profile, "atom.shared.add.u32").wavefronts == 32  # type: ignore[attr-defined]


def test_the_highest_lane_wins(backend: str) -> None:
    device = device_of(backend)
    data = device.zeros(2, np.uint32)
    body = f"{ADDRESS}\nst.global.v2.u32 [%rd0], {{%r1, %r1}};\nret;"
    launch(backend, body, parameters=POINTER, args=[data], device=device)
    assert data.numpy().tolist() == [31, 31]


@pytest.mark.parametrize(
    "operation,start,results,last",
    [
        ("add.u32", 5, [5 + lane * (lane - 1) // 2 for lane in range(32)], 501),
        ("max.s32", 10, [10] * 11 + list(range(10, 31)), 31),
        ("and.b32", 0xFF, [0xFF] + [0] * 31, 0),
        ("inc.u32", 30, None, None),
        ("exch.b32", 77, [77, *range(31)], 31),
    ],
)
def test_atomics_in_ascending_lane_order(
    backend: str, operation: str, start: int, results: list[int] | None, last: int | None
) -> None:
    device = device_of(backend)
    data = device.array(np.array([start], np.uint32))
    body = f"{ADDRESS}\natom.global.{operation} %r0, [%rd0], %r1;\n"
    values, _ = collect(backend, body, parameters=POINTER, args=[data], device=device)
    if results is None:  # old ≥ operand gives 0, else old + 1
        results, old = [], start
        for lane in range(32):
            results.append(old)
            old = 0 if old >= lane else old + 1
        last = old
    assert values.tolist() == results
    assert data.numpy().tolist() == [last]


def test_compare_and_swap(backend: str) -> None:
    device = device_of(backend)
    data = device.array(np.array([3], np.uint64))
    body = f"""
        {ADDRESS}
        cvt.u64.u32 %rd1, %r1;
        add.u64 %rd2, %rd1, 1;
        atom.global.cas.b64 %rd3, [%rd0], %rd1, %rd2;
        cvt.u32.u64 %r0, %rd3;
        """
    values, _ = collect(backend, body, parameters=POINTER, args=[data], device=device)
    assert values.tolist() == [3] * 4 + list(range(4, 32))
    assert data.numpy().tolist() == [32]


def test_float_reduction_in_order(backend: str) -> None:
    device = device_of(backend)
    data = device.array(np.array([2.0**24], np.float32))
    body = f"{ADDRESS}\nmov.f32 %f1, 0f3F800000;\nred.global.add.f32 [%rd0], %f1;\nret;"
    launch(backend, body, parameters=POINTER, args=[data], device=device)
    assert data.numpy().tolist() == [2.0**24]  # each sum rounds back


GENERIC = """
        mov.u32 %r1, %tid.x;
        mov.u64 %rd1, tile;
        cvta.shared.u64 %rd1, %rd1;
        mov.u64 %rd2, stack;
        cvta.local.u64 %rd2, %rd2;
        mul.wide.u32 %rd3, %r1, 4;
        add.u64 %rd1, %rd1, %rd3;
        setp.lt.u32 %p1, %r1, 12;
        selp.b64 %rd4, %rd1, %rd2, %p1;
        setp.ge.u32 %p2, %r1, 20;
        add.u64 %rd5, %rd0, %rd3;
        selp.b64 %rd4, %rd5, %rd4, %p2;
        add.u32 %r2, %r1, 100;
        st.u32 [%rd4], %r2;
        ld.u32 %r0, [%rd4];
        isspacep.shared %p3, %rd4;
        @%p3 add.u32 %r0, %r0, 1000;
        isspacep.local %p3, %rd4;
        @%p3 add.u32 %r0, %r0, 2000;
        isspacep.global %p3, %rd4;
        @%p3 add.u32 %r0, %r0, 4000;
"""


def test_generic_addresses_reach_three_spaces_at_once(backend: str) -> None:
    device = device_of(backend)
    data = device.zeros(32, np.uint32)
    values, profile = collect(
        backend,
        ".local .align 4 .u32 stack;\nld.param.u64 %rd0, [data];\n" + GENERIC,
        before=".shared .align 4 .b32 tile[32];",
        parameters=POINTER,
        args=[data],
        device=device,
    )
    added = [1000] * 12 + [2000] * 8 + [4000] * 12
    assert values.tolist() == [100 + lane + more for lane, more in enumerate(added)]
    assert data.numpy().tolist() == [0] * 20 + [100 + lane for lane in range(20, 32)]
    for opcode in ("st.u32", "ld.u32"):
        found = site(profile, opcode)
        counts = (
            found.requests,
            found.lanes,
            found.shared_lanes,
            found.local_lanes,
            found.sectors,
            found.wavefronts,
        )  # type: ignore[attr-defined]
        assert counts == (1, 32, 12, 8, 2, 1)


def test_local_memory_is_private(backend: str) -> None:
    values, _ = collect(
        backend,
        """
        .local .align 4 .b8 frame[16];
        mov.u32 %r1, %tid.x;
        st.local.u32 [frame+8], %r1;
        mov.u32 %r2, frame;
        ld.local.u32 %r0, [%r2+8];
        """,
        block=64,
    )
    assert values.tolist() == list(range(64))


def test_a_negative_index_wraps_in_32_bit_addresses(backend: str) -> None:
    """``[%r + 4]`` with ``%r = −4``: shared addresses are computed in the width of their register."""
    values, _ = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        mov.u32 %r3, tile;
        mad.lo.u32 %r2, %r1, 4, %r3;
        sub.u32 %r2, %r2, 4;
        st.shared.u32 [%r2+4], %r1;
        ld.shared.u32 %r0, [%r2+4];
        """,
        before=".shared .align 4 .b32 tile[32];",
    )
    assert values.tolist() == list(range(32))


@pytest.mark.parametrize(
    "access,message",
    [
        ("ld.global.u32 %r0, [%rd1+64];", "out-of-bounds ld.global.u32: 4-byte load from"),
        ("st.global.u32 [%rd1+2], %r1;", "misaligned st.global.u32: 4-byte store to"),
        ("atom.global.add.u32 %r0, [%rd1+64], %r1;", "out-of-bounds atom.global.add.u32: 4-byte atomic on"),
        ("mov.u64 %rd2, 0; ld.global.u32 %r0, [%rd2];", "null pointer"),
        (
            "ld.shared.u32 %r0, [tile+16];",
            "out-of-bounds ld.shared.u32: 4-byte load from shared address 0x10",
        ),
        ("ld.shared.u16 %h0, [tile+1];", "misaligned ld.shared.u16: 2-byte load from shared address 0x1"),
        ("st.local.u64 [stack+16], %rd1;", "out-of-bounds st.local.u64: 8-byte store to local address 0x10"),
        ("mov.u32 %r2, 8; st.local.u32 [%r2+8], %r1;", "out-of-bounds st.local.u32"),
        ("ld.u32 %r0, [%rd1+64];", "out-of-bounds ld.u32"),
        ("mov.u64 %rd2, table; cvta.const.u64 %rd2, %rd2; st.global.u32 [%rd2], %r1;", "is constant memory"),
        ("ld.const.u32 %r0, [table+8];", "out-of-bounds ld.const.u32"),
    ],
)
def test_refused_accesses(backend: str, access: str, message: str) -> None:
    device = device_of(backend)
    body = f"""
        .local .align 8 .b8 stack[8];
        {ADDRESS}
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd0, %rd1;
        setp.ge.u32 %p1, %r1, 16;
        @%p1 ret;
        {access.replace("; ", ";")}
        ret;
    """
    before = ".shared .align 4 .b8 tile[16]; .const .align 4 .u32 table[2] = {1, 2};"
    with pytest.raises(ge.EngineError) as caught:
        launch(
            backend,
            body,
            before=before,
            parameters=POINTER,
            args=[device.zeros(16, np.uint32)],
            device=device,
        )
    text = str(caught.value)
    assert message in text
    assert text.startswith("k.ptx:") and "thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'" in text
    assert len(text.splitlines()) <= 5


def test_the_lowest_refused_lane_is_named(backend: str) -> None:
    device = device_of(backend)
    body = f"""
        {ADDRESS}
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd0, %rd1;
        ld.global.u32 %r0, [%rd1];
        ret;
    """
    with pytest.raises(ge.EngineError) as caught:
        launch(backend, body, block=64, parameters=POINTER, args=[device.zeros(41, np.uint32)], device=device)
    assert "thread (41, 0, 0)" in str(caught.value)
    assert "4 bytes past the end of" in str(caught.value)


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
