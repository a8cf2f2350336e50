"""Loops that wait for the clock: how long they wait, what they execute, and which loops they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gpuperf_engine as ge

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 word, .param .u64 n) {{
    .reg .b64 %rd<12>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 4 .b32 flag;
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd10, [word]; ld.param.u64 %rd9, [n]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8; add.u64 %rd0, %rd0, %rd3;
    {before}
    mov.u64 %rd1, %{clock};
L:  {body}
    @%p1 bra L;
    {after}
    ret; }}"""
WAIT = "mov.u64 %rd2, %{clock}; sub.u64 %rd3, %rd2, %rd1; setp.lt.u64 %p1, %rd3, %rd9;"
STORE = "mov.u64 %rd2, %{clock}; sub.u64 %rd3, %rd2, %rd1; st.global.u64 [%rd0], %rd3;"


def run(
    n: int,
    body: str = WAIT,
    before: str = "",
    after: str = STORE,
    clock: str = "clock64",
    backend: str = "llvm",
    block: int = 32,
    **options: object,
) -> tuple[list[int], ge.Profile]:
    parts = {"body": body, "before": before, "after": after}
    parts = {name: text.format(clock=clock) for name, text in parts.items()}
    device = ge.Device(backend=backend, memory_bytes=1 << 24, observe=())
    out, word = device.zeros(block, np.uint64, name="out"), device.zeros(1, np.uint32, name="word")
    kernel = ge.parse(KERNEL.format(clock=clock, **parts), path="k.ptx")["k"]
    profile = device.launch(kernel, 1, block, [out, word, np.uint64(n)], **options)
    return [] if options else out.numpy().tolist(), profile


@pytest.mark.parametrize("clock", ["clock64", "globaltimer"])
@pytest.mark.parametrize("n", [1, 30, 100, 5_000, 200_000, 10**9])
def test_a_wait_ends_soon_and_hardly_too_late(backend: str, n: int, clock: str) -> None:
    """At most an eighth too late, and one iteration of four instructions with the read behind it, as without the rule."""
    waited, profile = run(n, clock=clock, backend=backend)
    assert len({*waited}) == 1
    assert n <= waited[0] <= n + n / 8 + 12
    iterations = (profile.warp_instructions - 12) / 4
    assert iterations <= min(n, 16 + 8 * math.log(1 + n / 64))


@pytest.mark.parametrize("n", [500, 70_000])
def test_what_is_counted_is_the_same_however_it_is_found(n: int) -> None:
    waited, profile = run(n)
    others, reference = run(n, backend="reference")
    assert others == waited and reference.opcodes == profile.opcodes
    for demand in ("control", "addresses"):
        assert run(n, demand=demand)[1].opcodes == profile.opcodes


#: loops that do something else, or count: the clock goes on by one for each instruction
OTHERS = {
    "counts": f"add.u64 %rd8, %rd8, 1; {WAIT}",
    "counts in turns": f"add.u64 %rd8, %rd7, 1; mov.u64 %rd7, %rd8; {WAIT}",
    "counts under a guard": f"setp.eq.u32 %p2, %r1, 0; @%p2 mov.u64 %rd8, %rd2; {WAIT}",
    "looks at a flag": f"ld.volatile.global.u32 %r2, [%rd10]; {WAIT} setp.eq.and.u32 %p1, %r2, 0, %p1;",
    "stores": f"st.global.u64 [%rd0], %rd1; {WAIT}",
    "waits for the block": f"bar.sync 0; {WAIT}",
    "votes": f"{WAIT} vote.sync.any.pred %p1, %p1, 0xffffffff;",
    "is left by a count": "mov.u64 %rd2, %{clock}; add.u64 %rd8, %rd8, 4; setp.lt.u64 %p1, %rd8, %rd9;",
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_loops_read_a_clock_of_instructions(backend: str, case: str) -> None:
    n = 3_000
    waited, profile = run(n, OTHERS[case], backend=backend)
    assert n <= waited[0] <= n + 20
    assert n <= profile.warp_instructions <= n + 40


def test_loops_of_constants_and_sleep_only_wait(backend: str) -> None:
    """A value of the iteration before, as of a loop that is tested at its head, is one of the clock too."""
    body = """setp.lt.u64 %p1, %rd3, %rd9; @!%p1 bra OUT; nanosleep.u32 20; ld.param.u64 %rd9, [n];
    mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %rd1; setp.eq.u64 %p1, %rd2, %rd2;"""
    waited, profile = run(10_000, body, "mov.u64 %rd3, 0;", "OUT: " + STORE, backend=backend)
    assert 10_000 <= waited[0] <= 11_300
    assert profile.warp_instructions < 700


def test_each_wait_begins_slowly(backend: str) -> None:
    """After a long wait, a short one is not longer than alone."""
    again = (
        "mov.u64 %rd9, 100; add.u64 %rd4, %rd4, 0; add.u64 %rd4, %rd4, 0; add.u64 %rd4, %rd4, 0; mov.u64 %rd1, %clock64;"
        f"M: {WAIT} @%p1 bra M; {STORE}"
    )
    waited, _ = run(10**6, after=again, backend=backend)
    alone, _ = run(100, backend=backend)
    assert waited == alone


def test_lanes_that_wait_for_different_times(backend: str) -> None:
    before = "mul.lo.u64 %rd9, %rd9, %rd3; shr.u64 %rd9, %rd9, 3;"
    waited, profile = run(1_000, before=before, backend=backend)
    for lane, cycles in enumerate(waited):
        assert 1_000 * lane <= cycles
    assert waited[-1] <= 31_000 * 9 / 8 + 20 * 32
    assert profile.warp_instructions < 2_000


def test_a_clock_that_is_read_in_order_never_goes_back(backend: str) -> None:
    body = f"mov.u64 %rd4, %clock64; {WAIT} setp.gt.u64 %p2, %rd4, %rd2; @%p2 bra BAD;"
    after = f"{STORE} ret; BAD: trap;"
    waited, _ = run(100_000, body, after=after, backend=backend)
    assert waited[0] >= 100_000
