"""Accesses counted once for all warps that do the same: counters are those of the whole program, to the last sector."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.symbolic import choose as fewer
from tests.engine.running import module
from tests.symbolic.test_demands import counts

PARAMETERS = ".param .u64 a, .param .u64 b, .param .u32 n"
#: %r0 is the thread's index, %rd0 and %rd1 the arrays, %r1 the number of elements
START = """
    ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r0, %r2, %r3, %r4;
    setp.ge.u32 %p0, %r0, %r1;
    @%p0 ret;
"""
BODIES = {
    "stream": "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; ld.global.f32 %f0, [%rd3];"
    "add.u64 %rd3, %rd1, %rd2; st.global.f32 [%rd3], %f0; ret;",
    "misaligned": "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; ld.global.f32 %f0, [%rd3+20];"
    "add.u64 %rd3, %rd1, %rd2; st.global.f32 [%rd3+4], %f0; ret;",
    "stride of 12 bytes": "mul.wide.u32 %rd2, %r0, 12; add.u64 %rd3, %rd0, %rd2; ld.global.u32 %r5, [%rd3];"
    "st.global.u16 [%rd3+2], %r5; ret;",
    "pairs": "mul.wide.u32 %rd2, %r0, 8; add.u64 %rd3, %rd0, %rd2; ld.v2.f32 {%f0, %f1}, [%rd3];"
    "add.u64 %rd3, %rd1, %rd2; @!%p0 st.v2.f32 [%rd3], {%f1, %f0}; ret;",
    "one word for each block": "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3];"
    "st.global.u32 [%rd3], %r0; st.global.u32 [%rd0+64], %r5; ret;",
    "half warps": "shr.u32 %r5, %r0, 4; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd0, %rd2; ld.global.nc.u32 %r6, [%rd3];"
    "and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 0; @%p1 st.global.u32 [%rd1+8], %r6; ret;",
    "loop by lines": "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd0, %rd2; mov.u32 %r5, 0;\n"
    "LOOP: ld.global.f32 %f0, [%rd3]; add.u64 %rd3, %rd3, 128; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 40;\n"
    "@%p1 bra LOOP; ret;",
    "loop by words": "mul.wide.u32 %rd2, %r2, 64; add.u64 %rd3, %rd0, %rd2; mov.u32 %r5, 0;\n"
    "LOOP: ld.global.f32 %f0, [%rd3]; add.u64 %rd3, %rd3, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 9;\n"
    "@%p1 bra LOOP; ret;",
}  # fmt: skip


@pytest.fixture(autouse=True)
def always_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewer, "PART", 1 / fewer.RATE)


def launched(
    body: str, demand: str, grid: int, block: int, threads: int, written: bool = True, observe: str = "memory"
) -> ge.Profile:
    device = ge.Device(observe={observe, "memory"}, races="off", memory_bytes=1 << 24)
    size = 12 * grid * block + 8192
    make = device.zeros if written else device.empty
    a, b = (make(size // 4, np.uint32, name=name) for name in "ab")
    kernel = ge.parse(module(START + body, PARAMETERS), path="k.ptx")["k"]
    return device.launch(kernel, grid, block, [a, b, threads], demand=demand)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("grid", "block", "threads"), [(57, 96, 57 * 96 - 45), (40, 33, 40 * 33), (3, 256, 100)]
)
def test_counted_as_the_whole_program(name: str, grid: int, block: int, threads: int) -> None:
    values = launched(BODIES[name], "values", grid, block, threads)
    addresses = launched(BODIES[name], "addresses", grid, block, threads)
    assert addresses.method == "classes", addresses.method_reason
    assert counts(addresses) == counts(values)
    assert (addresses.memory, addresses.sites, addresses.notes) == (values.memory, values.sites, values.notes)


def test_closed_form() -> None:
    """2 GiB of which the host touches little: of each full warp four sectors are read and four written."""
    device = ge.Device(memory_bytes=1 << 33)
    n = (1 << 28) - 5
    a, b = device.empty(n, np.float32), device.empty(n, np.float32)
    kernel = ge.parse(module(START + BODIES["stream"], PARAMETERS), path="k.ptx")["k"]
    profile = device.launch(kernel, 1 << 20, 256, [a, b, n], demand="addresses")
    assert profile.method == "classes" and profile.share_executed < 1e-4
    # the last warp has 27 lanes: 108 bytes in 4 sectors
    seen = profile.memory
    assert seen.global_load_requests == seen.global_store_requests == n // 32 + 1
    assert seen.global_load_sectors == seen.global_store_sectors == 4 * (n // 32 + 1)
    assert profile.notes == ("k.ptx:18:54: ld.global.f32 reads uninitialised memory",)


@pytest.mark.parametrize("body", ["stream", "one word for each block"])
def test_what_nobody_has_written(body: str) -> None:
    values, addresses = (
        launched(BODIES[body], demand, 57, 96, 57 * 96 - 45, written=False)
        for demand in ("values", "addresses")
    )
    assert addresses.method == "classes"
    assert addresses.notes == values.notes != ()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("mul.wide.u32 %rd2, %r0, 4096; add.u64 %rd3, %rd0, %rd2; ld.global.f32 %f0, [%rd3]; ret;", "MemoryFault"),
        ("mul.wide.u32 %rd2, %r0, 3; add.u64 %rd3, %rd0, %rd2; ld.global.f32 %f0, [%rd3]; ret;", "MemoryFault"),
        ("and.b32 %r5, %r0, 24; mul.lo.u32 %r5, %r5, %r2; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd0, %rd2;"
         "ld.global.u32 %r6, [%rd3]; setp.lt.u32 %p1, %r6, 9; @%p1 st.global.u32 [%rd1], 1; ret;", "read"),
        ("mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; red.global.add.u32 [%rd3], 1;"
         "atom.global.max.u32 %r5, [%rd1+64], %r0; ret;", "lanes of atomics"),
    ],
)  # fmt: skip
def test_the_same_errors_and_refusals(body: str, reason: str) -> None:
    """What is outside, not aligned, not linear or atomic runs in every block, with the same outcome."""
    found = []
    for demand in ("values", "addresses"):
        try:
            profile = launched(body, demand, 57, 96, 57 * 96)
            found.append(str((profile.memory, profile.sites)))
            assert profile.method == "every block"
        except ge.MemoryFault as error:
            found.append(str(error))
            assert reason == "MemoryFault"
    assert found[0] == found[1]


def test_footprint_runs_every_block() -> None:
    values, addresses = (
        launched(BODIES["stream"], demand, 57, 96, 5400, observe="footprint")
        for demand in ("values", "addresses")
    )
    assert addresses.method == "every block"
    assert addresses.observed_footprint == values.observed_footprint
