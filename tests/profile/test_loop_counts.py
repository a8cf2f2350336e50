"""Trip counts of loops, by closed form."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.profile.explaining import BRANCH, DATA, NEST, START, THREAD, N, causes, explained, kernel_of, trips


def test_a_count_that_a_loop_hands_on_depends_on_what_ends_the_loop() -> None:
    found = explained(
        f"""
        ld.global.u32 %r4, [%rd1];
        mov.u32 %r3, 0;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, %r4;
        @%p2 bra LOOP;
        setp.gt.u32 %p1, %r3, 2;
        {BRANCH}
        """,
        given=[1, 2, 3],
    )
    assert [set(branch.causes) for branch in found.branches] == [{DATA}, {DATA}]
    (loop,) = found.loops
    lengths = np.resize([1, 2, 3], 32)
    assert trips(loop) == (32, lengths.sum(), lengths.sum() / 32, 1)
    assert (loop.head_thread_executions, loop.head_warp_executions, loop.lanes) == (
        lengths.sum(),
        3,
        lengths.sum() / 3,
    )
    assert set(loop.causes) == {DATA}


@pytest.mark.parametrize("n", [0, 1, 7])
def test_trip_counts_of_a_nest(n: int) -> None:
    """The outer loop is tested at its head, the inner one, of 1, 2, … n trips, at its end."""
    found = explained(NEST, n=n, block=48, grid=5)
    outer = next(loop for loop in found.loops if loop.depth == 1)
    assert trips(outer) == (240, 240 * n, n, 1)
    assert (outer.head_thread_executions, outer.head_warp_executions) == (240 * (n + 1), 10 * (n + 1))
    assert outer.causes == (N,)
    inner = [loop for loop in found.loops if loop.depth == 2]
    if n == 0:
        assert not inner  # never reached
    else:
        total = 240 * n * (n + 1) // 2
        assert trips(inner[0]) == (240 * n, total, (n + 1) / 2, 2)
        assert inner[0].thread_instructions == 3 * total
        assert outer.thread_instructions == 240 * (2 * (n + 1) + 3 * n) + 3 * total
    assert found.branches == ()


def test_a_loop_that_ends_in_its_middle() -> None:
    """Thread t comes to the test with 0, 1, … and leaves when it is t: t whole trips and the begun one."""
    found = explained(
        """
        mov.u32 %r3, 0;
        LOOP: mul.lo.u32 %r5, %r3, 3;
        bar.warp.sync -1;
        setp.eq.u32 %p1, %r3, %r1;
        @%p1 bra DONE;
        add.u32 %r3, %r3, 1;
        bra LOOP;
        DONE:
        """,
        n=6,
    )
    assert [trips(loop) for loop in found.loops] == [(32, 32 * 7, 7, 1)]


def test_an_irreducible_loop_has_passes_only() -> None:
    found = explained(
        """
        setp.lt.u32 %p1, %r0, 8;
        @%p1 bra B;
        A: add.u32 %r3, %r3, 1;
        B: add.u32 %r3, %r3, 2;
        setp.lt.u32 %p2, %r3, %r1;
        @%p2 bra A;
        """,
        n=9,
    )
    (loop,) = found.loops
    assert (loop.entries, loop.iterations, loop.mean) == (None, None, None)
    assert loop.head_thread_executions == 8 * 4 + 24 * 3  # 2, 5, 8, 11 from B; 3, 6, 9 from A


def test_a_loop_entered_by_brx_idx() -> None:
    found = explained(
        """
        T: .branchtargets LOOP, SKIP;
        and.b32 %r4, %r0, 1;
        brx.idx %r4, T;
        SKIP: bra DONE;
        LOOP: add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        DONE:
        """,
        n=5,
    )
    assert [trips(loop) for loop in found.loops] == [(16, 80, 5, 1)]
    assert causes(found) == {THREAD}


def test_a_loop_around_a_call_and_a_barrier_in_a_device_function() -> None:
    function = """
    .func wait ()
    { .reg .b32 %i; .reg .pred %p; mov.u32 %i, 0;
      AGAIN: bar.sync 0; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4; @%p bra AGAIN; ret; }
    """
    found = explained(
        """
        mov.u32 %r3, 0;
        LOOP: call wait, ();
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p1, %r3, %r1;
        @%p1 bra LOOP;
        """,
        n=3,
        block=64,
        extra=function,
    )
    assert {(loop.function, loop.entries, loop.iterations) for loop in found.loops} == {
        ("k", 64, 192),
        ("wait", 192, 768),
    }
    assert {loop.causes for loop in found.loops} == {(N,), ()}


def test_the_least_and_the_most_iterations_of_a_thread() -> None:
    """Of top-tested loops too; threads that never enter do not count."""
    body = f"""{START}
        ld.global.u32 %r4, [%rd1];
        setp.eq.u32 %p1, %r4, 9;
        @%p1 bra DONE;
        mov.u32 %r3, 0;
        LOOP: setp.ge.u32 %p1, %r3, %r4;
        @%p1 bra DONE;
        add.u32 %r3, %r3, 1;
        bra LOOP;
        DONE: ret;
    """
    kernel = kernel_of(body, ".param .u64 given, .param .u32 n")
    device = ge.Device(observe={"threads"}, memory_bytes=1 << 20)
    profiles = [
        device.launch(kernel, 1, 40, [device.array(np.resize(np.array(given, np.uint32), 64)), 3])
        for given in ([9, 2, 5], [9, 4, 7, 3])
    ]
    for profile, expected in zip(
        [*profiles, ge.add_profiles(profiles)], [(2, 5), (3, 7), (2, 7)], strict=True
    ):
        (loop,) = ge.explain(profile).loops
        assert (loop.least, loop.most) == expected
    device = ge.Device(memory_bytes=1 << 20)
    (loop,) = ge.explain(device.launch(kernel, 1, 32, [device.zeros(64, np.uint32), 3])).loops
    assert (loop.iterations, loop.least, loop.most) == (0, None, None)
