"""Reads of memory that nobody has written: noted once per instruction, on both backends alike, and never an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.isa.spaces import WINDOWS
from tests.engine.running import GLOBAL_THREAD, launch, module

READ = f"""
    {GLOBAL_THREAD}
    ld.param.u64 %rd0, [data];
    mul.wide.u32 %rd1, %r19, 4;
    add.u64 %rd0, %rd0, %rd1;
    ld.global.u32 %r1, [%rd0];
    ret;"""
WRITE = READ.replace("ld.global.u32 %r1, [%rd0];", "st.global.u32 [%rd0], %r19;")
HALF = READ.replace("ld.global.u32 %r1, [%rd0];", "st.global.u16 [%rd0], %h1;")
PARAMETERS = ".param .u64 data"


def device_of(backend: str) -> ge.Device:
    return ge.Device(backend=backend, memory_bytes=1 << 20)


def notes(
    backend: str, body: str, device: ge.Device | None = None, args: Any = (), before: str = "", **options: Any
) -> list[str]:
    """What is noted, without the position."""
    parameters = PARAMETERS if args else ""
    profile = launch(backend, body, parameters=parameters, before=before, args=args, device=device, **options)
    return [note.split(": ", 1)[1] for note in profile.notes]


def test_a_position_and_an_opcode(backend: str) -> None:
    device = device_of(backend)
    profile = launch(backend, READ, parameters=PARAMETERS, args=[device.empty(32, np.uint32)], device=device)
    line = module(READ, PARAMETERS).split("\n").index("    ld.global.u32 %r1, [%rd0];") + 1
    assert profile.notes == (f"k.ptx:{line}:5: ld.global.u32 reads uninitialised memory",)


def test_what_was_written_is_not_noted(backend: str) -> None:
    device = device_of(backend)
    for array in (device.zeros(32, np.uint32), device.array(np.ones(32, np.uint32))):
        assert notes(backend, READ, device, [array]) == []
    filled = device.empty(32, np.uint32)
    filled.fill(3)
    assert notes(backend, READ, device, [filled]) == []
    copied = device.empty(32, np.uint32)
    copied.copy_from(filled)
    assert notes(backend, READ, device, [copied]) == []


def test_one_element_is_enough(backend: str) -> None:
    device = device_of(backend)
    array = device.empty(32, np.uint32)
    array[:17].fill(1)
    array[18:].fill(1)
    assert notes(backend, READ, device, [array]) == ["ld.global.u32 reads uninitialised memory"]
    array[17].fill(1)
    assert notes(backend, READ, device, [array]) == []


REVERSED = READ.replace("mul.wide", "not.b32 %r19, %r19; add.u32 %r19, %r19, 1024; mul.wide")


@pytest.mark.parametrize(("body", "first"), [(READ, 333), (REVERSED, 1023 - 999)])
def test_the_first_thread_is_kept(backend: str, body: str, first: int) -> None:
    """Of 1,024 threads in blocks of 64, each on one word, upwards and downwards; words 333 to 999 are uninitialised."""
    device = device_of(backend)
    array = device.empty(1024, np.uint32)
    array[:333].fill(1)
    array[1000:].fill(1)
    profile = launch(backend, body, parameters=PARAMETERS, grid=16, block=64, args=[array], device=device)
    (read,) = profile.records[0].observation.blank.values()
    word = first if body == READ else 1023 - first
    cta, thread = divmod(first, 64)
    assert read == (cta, thread // 32, thread % 32, array.address + 4 * word)


def test_a_kernel_writes(backend: str) -> None:
    device = device_of(backend)
    array = device.empty(64, np.uint32)
    assert notes(backend, WRITE, device, [array]) == []
    assert notes(backend, READ, device, [array]) == []
    assert notes(backend, READ, device, [array], grid=2) == ["ld.global.u32 reads uninitialised memory"]
    assert notes(backend, WRITE, device, [array], grid=2) == []
    assert notes(backend, READ, device, [array], grid=2) == []


def test_half_an_element(backend: str) -> None:
    device = device_of(backend)
    array = device.empty(32, np.uint32)
    assert notes(backend, HALF, device, [array]) == []
    assert notes(backend, READ, device, [array]) == ["ld.global.u32 reads uninitialised memory"]


def test_read_after_write_in_one_kernel(backend: str) -> None:
    device = device_of(backend)
    both = WRITE.replace("ret;", "ld.global.u32 %r1, [%rd0]; ret;")
    assert notes(backend, both, device, [device.empty(32, np.uint32)]) == []


@pytest.mark.parametrize(
    "atomic",
    [
        "atom.global.add.u32 %r1, [%rd0], 1;",
        "red.global.add.u32 [%rd0], 1;",
        "atom.global.cas.b32 %r1, [%rd0], 0, 1;",
    ],
)
def test_atomics_read_and_write(backend: str, atomic: str) -> None:
    device = device_of(backend)
    array = device.empty(32, np.uint32)
    body = READ.replace("ld.global.u32 %r1, [%rd0];", atomic)
    opcode = atomic.split()[0]
    assert notes(backend, body, device, [array]) == [f"{opcode} reads uninitialised memory"]
    assert notes(backend, READ, device, [array]) == []


def test_lanes_that_do_not_read(backend: str) -> None:
    device = device_of(backend)
    array = device.empty(32, np.uint32)
    array[:16].fill(1)
    body = READ.replace("ld.global", "setp.lt.u32 %p1, %r19, 16;\n    @%p1 ld.global")
    assert notes(backend, body, device, [array]) == []


@pytest.mark.parametrize("space", ["shared", "local"])
def test_other_spaces(backend: str, space: str) -> None:
    before = ".shared .align 16 .b8 place[64];" if space == "shared" else ""
    local = ".local .align 16 .b8 place[64];" if space == "local" else ""
    read, write = f"ld.{space}.u32 %r1, [place+4];", f"st.{space}.u32 [place+4], %r1;"
    noted = [f"ld.{space}.u32 reads uninitialised memory"]
    assert notes(backend, f"{local} {read} ret;", before=before) == noted
    assert notes(backend, f"{local} {write} {read} ret;", before=before) == []
    assert notes(backend, f"{local} st.{space}.u8 [place+4], %r1; {read} ret;", before=before) == noted
    assert notes(backend, f"{local} {write} ld.{space}.u64 %rd1, [place]; ret;", before=before) == [
        f"ld.{space}.u64 reads uninitialised memory"
    ]


def test_every_block_has_shared_memory_of_its_own(backend: str) -> None:
    """Block 0 writes, block 1 only reads."""
    body = """
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [place], %r1;
    ld.shared.u32 %r2, [place];
    ret;"""
    before = ".shared .align 4 .b32 place;"
    assert notes(backend, body, before=before) == []
    assert notes(backend, body, before=before, grid=2) == ["ld.shared.u32 reads uninitialised memory"]


def test_values_read_are_zero(backend: str) -> None:
    device = device_of(backend)
    array = device.empty(8, np.uint32)
    assert array.numpy().tolist() == [0] * 8


def test_notes_do_not_depend_on_observing_memory(backend: str) -> None:
    found = []
    for observe in ((), ("memory",), ("memory", "values")):
        device = ge.Device(observe=observe, backend=backend, memory_bytes=1 << 20)
        found.append(notes(backend, READ, device, [device.empty(32, np.uint32)]))
    assert found[1] == found[2] == ["ld.global.u32 reads uninitialised memory"]


PRIVATE = {
    # the address of the first byte that is read and that nothing has written
    "shared": (".shared .align 16 .b8 tile[512];", "mov.u32 %r19, tile; add.u32 %r19, %r19, 256;", "shared.u32", 256),
    "shared, bytes": (".shared .align 16 .b8 tile[512];", "mov.u32 %r19, tile; add.u32 %r19, %r19, 3;", "shared.u8", 3),
    "local": (".local .align 16 .b8 own[64];", "mov.u32 %r19, own; add.u32 %r19, %r19, 24;", "local.u32", 24),
    "two words, of which one is written": (
        ".local .align 16 .b8 own[64];",
        "mov.u32 %r19, own; st.local.u32 [%r19+16], %r19; add.u32 %r19, %r19, 16;",
        "local.u64",
        20,
    ),
    "two words of the block, of which one is written": (
        ".shared .align 16 .b8 tile[512];",
        "mov.u32 %r19, tile; st.shared.u32 [%r19+64], %r19; add.u32 %r19, %r19, 64;",
        "shared.u64",
        68,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PRIVATE)
def test_the_address_in_shared_and_local_memory_is_kept(backend: str, case: str) -> None:
    declared, before, what, place = PRIVATE[case]
    target = {"u8": "%h0", "u32": "%r2", "u64": "%rd2"}[what.partition(".")[2]]
    text = f""".version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k() {{
        {declared} .reg .b32 %r<20>; .reg .b64 %rd<3>; .reg .b16 %h<1>; .reg .pred %p<1>;
        {before}
        mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 40; @%p0 exit;
        ld.{what} {target}, [%r19];
        ret; }}"""
    device = device_of(backend)
    profile = device.launch(ge.parse(text)["k"], 1, 64)
    (read,) = profile.records[0].observation.blank.values()
    window = WINDOWS[what.partition(".")[0]][0]
    assert read == (0, 1, 8, window + place)
