"""CTA barriers: of all threads, of some, in both halves of a pipeline, with reductions, without alignment, and gone wrong."""

from __future__ import annotations

import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt.barriers import Barriers
from tests.engine.running import collect

SHARED = ".shared .align 4 .b32 cell[256];"
#: %r1 = tid, %r2 = shared address of the thread's word
OWN = """
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, cell;
        mad.lo.u32 %r2, %r1, 4, %r2;
"""


def test_values_cross_warps(backend: str) -> None:
    values, profile = collect(
        backend,
        OWN
        + """
        mul.lo.u32 %r3, %r1, 10;
        st.shared.u32 [%r2], %r3;
        bar.sync 0;
        xor.b32 %r4, %r1, 96;
        mov.u32 %r5, cell;
        mad.lo.u32 %r5, %r4, 4, %r5;
        ld.shared.u32 %r0, [%r5];
        """,
        before=SHARED,
        block=128,
    )
    assert values.tolist() == [(thread ^ 96) * 10 for thread in range(128)]
    assert profile.warp_opcodes["bar.sync"] == 4
    assert profile.opcodes["bar.sync"] == 128


def test_barriers_in_a_loop(backend: str) -> None:
    """Eight rounds of neighbours' sums over three and a bit warps: wrong as soon as one warp runs ahead."""
    threads = 100
    values, _ = collect(
        backend,
        OWN
        + """
        mov.u32 %r0, %r1;
        mov.u32 %r6, 0;
        add.u32 %r3, %r1, 1;
        rem.u32 %r3, %r3, 100;
        mov.u32 %r4, cell;
        mad.lo.u32 %r4, %r3, 4, %r4;
    LOOP:
        st.shared.u32 [%r2], %r0;
        bar.sync 0;
        ld.shared.u32 %r5, [%r4];
        bar.sync 0;
        add.u32 %r0, %r0, %r5;
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p1, %r6, 8;
        @%p1 bra LOOP;
        """,
        before=SHARED,
        block=threads,
    )
    wanted = list(range(threads))
    for _ in range(8):
        wanted = [wanted[thread] + wanted[(thread + 1) % threads] for thread in range(threads)]
    assert values.tolist() == [number % 2**32 for number in wanted]


def test_exited_warps_are_not_waited_for(backend: str) -> None:
    values, _ = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.ge.u32 %p1, %r1, 64;
        @%p1 exit;
        bar.sync 0;
        mov.u32 %r0, 3;
        """,
        block=128,
    )
    assert values.tolist() == [3] * 64 + [0] * 64


def test_a_barrier_of_some_warps(backend: str) -> None:
    """Two pairs of warps use barriers of their own."""
    values, _ = collect(
        backend,
        OWN
        + """
        shr.u32 %r3, %r1, 6;
        add.u32 %r3, %r3, 1;
        st.shared.u32 [%r2], %r1;
        barrier.sync.aligned %r3, 64;
        xor.b32 %r4, %r1, 32;
        mov.u32 %r5, cell;
        mad.lo.u32 %r5, %r4, 4, %r5;
        ld.shared.u32 %r0, [%r5];
        """,
        before=SHARED,
        block=128,
    )
    assert values.tolist() == [thread ^ 32 for thread in range(128)]


def test_producer_and_consumer_warps(backend: str) -> None:
    """Warp 0 fills a buffer of one warp's words six times; warp 1 waits for "full" and announces "empty"."""
    values, _ = collect(
        backend,
        OWN
        + """
        mov.u32 %r0, 0;
        mov.u32 %r6, 0;
        and.b32 %r7, %r1, 31;
        mov.u32 %r8, cell;
        mad.lo.u32 %r8, %r7, 4, %r8;
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bra PRODUCE;
    CONSUME:
        bar.sync 1, 64;
        ld.shared.u32 %r3, [%r8];
        mad.lo.u32 %r0, %r0, 10, %r3;
        bar.arrive 2, 64;
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p2, %r6, 6;
        @%p2 bra CONSUME;
        bra END;
    PRODUCE:
        add.u32 %r6, %r6, 1;
        st.shared.u32 [%r8], %r6;
        bar.arrive 1, 64;
        bar.sync 2, 64;
        setp.lt.u32 %p2, %r6, 6;
        @%p2 bra PRODUCE;
    END:
        """,
        before=SHARED,
        block=64,
    )
    assert values.tolist() == [0] * 32 + [123456] * 32


@pytest.mark.parametrize(
    "below,results", [(0, (0, 0, 0)), (5, (5, 0, 1)), (100, (80, 1, 1)), (64, (64, 0, 1))]
)
def test_barrier_reductions(backend: str, below: int, results: tuple[int, int, int]) -> None:
    count, every, some = results
    values, _ = collect(
        backend,
        f"""
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, {below};
        bar.red.popc.u32 %r2, 0, %p1;
        bar.red.and.pred %p2, 0, %p1;
        bar.red.or.pred %p3, 1, %p1;
        selp.u32 %r3, 1000, 0, %p2;
        selp.u32 %r4, 10000, 0, %p3;
        add.u32 %r0, %r2, %r3;
        add.u32 %r0, %r0, %r4;
        """,
        block=80,
    )
    assert values.tolist() == [count + 1000 * every + 10000 * some] * 80


def test_an_aligned_barrier_in_a_branch_is_an_error(backend: str) -> None:
    with pytest.raises(
        ge.EngineError, match=r"k\.ptx:\d+:\d+: bar\.sync executed by lanes 0-4 while lanes 5-31"
    ) as caught:
        collect(
            backend,
            """
            mov.u32 %r1, %tid.x;
            setp.lt.u32 %p1, %r1, 37;
            @!%p1 bra END;
            bar.sync 0;
        END:
            """,
            block=64,
        )
    assert "warp 1 of block (0, 0, 0) of kernel 'k'" in str(caught.value)


def test_an_unaligned_barrier_counts_threads_in_both_branches(backend: str) -> None:
    values, _ = collect(
        backend,
        OWN
        + """
        st.shared.u32 [%r2], %r1;
        xor.b32 %r4, %r1, 63;
        mov.u32 %r5, cell;
        mad.lo.u32 %r5, %r4, 4, %r5;
        setp.lt.u32 %p1, %r1, 5;
        @%p1 bra LOW;
        barrier.sync 0;
        ld.shared.u32 %r0, [%r5];
        bra END;
    LOW:
        barrier.sync 0;
        ld.shared.u32 %r0, [%r5];
        add.u32 %r0, %r0, 1000;
    END:
        """,
        before=SHARED,
        block=64,
    )
    assert values.tolist() == [(thread ^ 63) + (1000 if thread < 5 else 0) for thread in range(64)]


def test_waiting_at_different_barriers_is_a_deadlock(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="no thread can go on") as caught:
        collect(
            backend,
            """
            mov.u32 %r1, %tid.x;
            shr.u32 %r2, %r1, 5;
            bar.sync %r2;
            """,
            block=64,
        )
    text = str(caught.value)
    assert "64 threads at bar.sync at k.ptx:" in text and "thread (0, 0, 0) of block (0, 0, 0)" in text
    assert len(text.splitlines()) <= 5


def test_too_few_warps_for_a_barrier(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="no thread can go on"):
        collect(backend, "bar.sync 0, 64;", block=32)


def test_a_barrier_number_that_does_not_exist(backend: str) -> None:
    with pytest.raises(ge.EngineError, match=r"bar\.sync: barrier 16"):
        collect(backend, "mov.u32 %r1, 16;\nbar.sync %r1;")


def test_a_guarded_barrier(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bar.sync 1, 32;
        mov.u32 %r0, 1;
        """,
        block=64,
    )
    assert values.tolist() == [1] * 64
    assert profile.opcodes["bar.sync"] == 64
    assert profile.thread_instructions_predicated_on == profile.thread_instructions - 32


# The bookkeeping on its own


def test_a_split_warp_counts_whole_once_all_its_lanes_have_come() -> None:
    barriers = Barriers()
    live = {0: 0xFFFF, 1: 0xFFFFFFFF}  # warp 0 has sixteen threads
    barriers.arrive(0, 0, 0x00FF, live=0xFFFF, expected=64, waits=True)
    barriers.arrive(0, 1, 0xFFFFFFFF, live=0xFFFFFFFF, expected=64, waits=True)
    assert barriers.complete(live) == []
    barriers.arrive(0, 0, 0xFF00, live=0xFFFF, expected=64, waits=True)
    (done,) = barriers.complete(live)
    assert dict(done.waiting) == {0: 0xFFFF, 1: 0xFFFFFFFF}


def test_a_barrier_of_all_completes_when_the_last_missing_lanes_exit() -> None:
    barriers = Barriers()
    barriers.arrive(3, 0, 0x0F, live=0xFF, expected=0, waits=True, holds=0x05)
    assert barriers.complete({0: 0xFF}) == []
    (done,) = barriers.complete({0: 0x0F})
    assert (done.true, done.false) == (2, 2)
    assert barriers.state() == ()
