"""CTA barriers: of all threads, of some, in both halves of a pipeline, with reductions, without alignment, and gone wrong."""

from __future__ import annotations

from gpuperf_engine.simt.barriers import Barriers
from tests.engine.running import collect


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
