"""Sectors, wavefronts and requests of random accesses equal the definitions, worked out with Python sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import launch

OPCODES = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
SPACE = 4096  # bytes


def wavefronts(addresses: list[int], width: int) -> tuple[int, int]:
    """Passes over 32 banks of 4 bytes, and those that the width alone needs: all lanes at once up to 4 bytes, half warps of 8,
    quarter warps of 16; in a pass a bank gives one word to whoever asks for it."""
    lanes = {4: 32, 8: 16, 16: 8}[max(width, 4)]
    taken = ideal = 0
    for first in range(0, 32, lanes):
        banks: dict[int, set[int]] = {}
        for lane in range(first, first + lanes):
            if addresses[lane] < 0:
                continue
            for byte in range(addresses[lane], addresses[lane] + width):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        if banks:
            ideal += 1
            taken += max(map(len, banks.values()))
    return taken, ideal


def sectors(addresses: list[int], width: int) -> int:
    """Distinct pieces of 32 bytes."""
    return len(
        {byte // 32 for address in addresses if address >= 0 for byte in range(address, address + width)}
    )


def patterns(width: int) -> dict[str, list[int]]:
    """Byte offsets per lane; −1 for a lane that does not take part."""
    rng = np.random.default_rng(width)
    last = SPACE // width - 1
    some = {
        "consecutive": np.arange(32),
        "backwards": np.arange(32)[::-1],
        "shifted": np.arange(32) + 5,
        "all the same": np.full(32, 7),
        "every second": 2 * np.arange(32),
        "every 32nd": np.minimum(32 * np.arange(32), last),
        "every 33rd": np.minimum(33 * np.arange(32), last),
        "pairs": np.arange(32) // 2,
        "random": rng.integers(0, last, 32),
        "random in a corner": rng.integers(0, 64, 32),
    }
    made = {name: [int(place) * width for place in places] for name, places in some.items()}
    made["half of the lanes"] = [offset if lane % 2 else -1 for lane, offset in enumerate(made["random"])]
    made["one lane"] = [offset if lane == 19 else -1 for lane, offset in enumerate(made["random"])]
    made["upper half warp"] = [
        offset if lane >= 16 else -1 for lane, offset in enumerate(made["consecutive"])
    ]
    return made


def access(kind: str, space: str, width: int) -> str:
    if width == 16:
        registers = "{%r10, %r11, %r12, %r13}"
        return (
            f"ld{space}.v4.u32 {registers}, [%rd5];"
            if kind == "load"
            else f"st{space}.v4.u32 [%rd5], {registers};"
        )
    register = {1: "%h1", 2: "%h1", 4: "%r10", 8: "%rd9"}[width]
    type_ = OPCODES[width]
    return (
        f"ld{space}.{type_} {register}, [%rd5];"
        if kind == "load"
        else f"st{space}.{type_} [%rd5], {register};"
    )


def run(
    backend: str, kind: str, space: str, width: int, offsets: list[int], generic: bool = False
) -> ge.Profile:
    """One access per lane at the given offsets from the start of ``space``."""
    base = {
        ".global": "ld.param.u64 %rd4, [data];",
        ".shared": "mov.u64 %rd4, tile;",
        ".local": "mov.u64 %rd4, scratch;",
    }[space]
    if generic and space != ".global":
        base += f" cvta{space}.u64 %rd4, %rd4;"
    body = f"""
    .local .align 16 .b8 scratch[{SPACE}];
    ld.param.u64 %rd1, [offsets];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.s64 %rd3, [%rd1];
    setp.lt.s64 %p1, %rd3, 0;
    {base}
    add.u64 %rd5, %rd4, %rd3;
    @!%p1 {access(kind, "" if generic else space, width)}
    ret;"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    args: list[Any] = [device.array(np.array(offsets, np.int64)), device.zeros(SPACE, np.uint8)]
    before = f".shared .align 16 .b8 tile[{SPACE}];"
    return launch(
        backend,
        body,
        parameters=".param .u64 offsets, .param .u64 data",
        before=before,
        args=args,
        device=device,
    )


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("generic", [False, True])
def test_accesses(backend: str, width: int, generic: bool) -> None:
    for name, offsets in patterns(width).items():
        lanes = sum(offset >= 0 for offset in offsets)
        for kind in ("load", "store"):
            site = run(backend, kind, ".global", width, offsets, generic).sites[-1]
            assert (site.requests, site.lanes, site.bytes_per_lane) == (1, lanes, width), name
            assert site.sectors == sectors(offsets, width), name
            assert (site.wavefronts, site.ideal_wavefronts) == (0, 0), name
            site = run(backend, kind, ".shared", width, offsets, generic).sites[-1]
            assert (site.requests, site.lanes, site.shared_lanes) == (1, lanes, lanes), name
            assert (site.wavefronts, site.ideal_wavefronts) == wavefronts(offsets, width), name
            assert site.sectors == 0, name


def test_nobody_takes_part(backend: str) -> None:
    site = run(backend, "load", ".global", 4, [-1] * 32).sites[-1]
    assert (site.requests, site.lanes, site.sectors) == (0, 0, 0)
    site = run(backend, "store", ".shared", 4, [-1] * 32).sites[-1]
    assert (site.requests, site.lanes, site.wavefronts, site.ideal_wavefronts) == (0, 0, 0, 0)


def test_totals_by_space(backend: str) -> None:
    offsets = patterns(4)["every 32nd"]
    memory = run(backend, "store", ".shared", 4, offsets).memory
    assert (memory.shared_store_requests, memory.shared_store_wavefronts, memory.shared_conflicts) == (
        1,
        32,
        31,
    )
    assert (memory.global_load_requests, memory.global_load_sectors, memory.global_load_bytes) == (1, 8, 256)
    assert dict(memory.accesses) == {"load.global.64": 32, "store.shared.32": 32}
    memory = run(backend, "load", ".local", 8, patterns(8)["half of the lanes"]).memory
    assert memory.local_bytes == 16 * 8
    assert dict(memory.accesses) == {"load.global.64": 32, "load.local.64": 16}


@pytest.mark.parametrize(
    "operation", ["atom.global.add.u32 %r10, [%rd5], 1;", "red.global.add.u32 [%rd5], 1;"]
)
def test_atomics_count_sectors_of_their_own(backend: str, operation: str) -> None:
    body = f"""
    ld.param.u64 %rd4, [data];
    mov.u32 %r1, %tid.x;
    and.b32 %r1, %r1, 15;
    mul.wide.u32 %rd5, %r1, 4;
    add.u64 %rd5, %rd4, %rd5;
    {operation}
    ret;"""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    data = device.zeros(64, np.uint32)
    memory = launch(backend, body, parameters=".param .u64 data", args=[data], device=device).memory
    assert (memory.global_atomic_requests, memory.global_atomic_sectors) == (1, 2)
    assert (memory.global_load_sectors, memory.global_store_sectors) == (0, 0)
    assert data.numpy().tolist() == [2] * 16 + [0] * 48
