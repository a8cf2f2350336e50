"""Barriers, warp exchanges and atomics: who waits for whom and what each thread gets."""

from __future__ import annotations

import numpy as np
import pytest

from .kernels import collect, module
from .scalar import Buffer, OracleError, run

FULL = 0xFFFFFFFF
LANES = list(range(32))


def lanes(instruction: str) -> list[int]:
    """``$d`` of every lane, with the lane number in ``%r1``."""
    return collect(f"    mov.u32 %r1, %laneid;\n    {instruction.replace('$d', '%r0')}")


def test_shuffle_modes() -> None:
    assert lanes("shfl.sync.idx.b32 $d, %r1, 5, 31, -1;") == [5] * 32
    # up: the first three lanes of the segment keep their own value; c is 0
    assert lanes("shfl.sync.up.b32 $d, %r1, 3, 0, -1;") == [max(x - 3, x if x < 3 else 0) for x in LANES]
    assert lanes("shfl.sync.down.b32 $d, %r1, 3, 31, -1;") == [x + 3 if x < 29 else x for x in LANES]
    assert lanes("shfl.sync.bfly.b32 $d, %r1, 16, 31, -1;") == [x ^ 16 for x in LANES]


def test_shuffle_segments_and_clamps() -> None:
    # Width 8: c = 0x181f (mask bits 0x18), lanes 8k … 8k + 7 are a segment.
    assert lanes("shfl.sync.idx.b32 $d, %r1, 2, 0x181f, -1;") == [x // 8 * 8 + 2 for x in LANES]
    assert lanes("shfl.sync.down.b32 $d, %r1, 1, 0x181f, -1;") == [x + 1 if x % 8 < 7 else x for x in LANES]
    assert lanes("shfl.sync.up.b32 $d, %r1, 1, 0x1800, -1;") == [x - 1 if x % 8 else x for x in LANES]
    assert lanes("shfl.sync.bfly.b32 $d, %r1, 8, 0x181f, -1;") == [x if x & 8 == 0 else x - 8 for x in LANES]
    # idx takes the index within the segment
    assert lanes("shfl.sync.idx.b32 $d, %r1, 10, 0x181f, -1;") == [x // 8 * 8 + 2 for x in LANES]


def test_shuffle_predicate_says_whether_the_source_was_inside() -> None:
    text = "shfl.sync.up.b32 %r2|%p0, %r1, 3, 0, -1; selp.u32 $d, 1, 0, %p0;"
    assert lanes(text) == [int(x >= 3) for x in LANES]


def test_each_lane_chooses_its_own_source() -> None:
    assert lanes("xor.b32 %r2, %r1, 1; shfl.sync.idx.b32 $d, %r1, %r2, 31, -1;") == [x ^ 1 for x in LANES]


def test_votes() -> None:
    odd = "and.b32 %r2, %r1, 1; setp.ne.u32 %p0, %r2, 0;"
    assert lanes(odd + "vote.sync.ballot.b32 $d, %p0, -1;") == [0xAAAAAAAA] * 32
    assert lanes(odd + "vote.sync.ballot.b32 $d, !%p0, -1;") == [0x55555555] * 32
    for mode, result in (("all", 0), ("any", 1), ("uni", 0)):
        assert lanes(odd + f"vote.sync.{mode}.pred %p1, %p0, -1; selp.u32 $d, 1, 0, %p1;") == [result] * 32
    assert (
        lanes("setp.lt.u32 %p0, %r1, 99; vote.sync.uni.pred %p1, %p0, -1; selp.u32 $d, 1, 0, %p1;")
        == [1] * 32
    )


def test_votes_of_part_of_a_warp() -> None:
    text = """
    setp.lt.u32 %p0, %r1, 4;
    mov.u32 $d, 7;
    @!%p0 bra AWAY;
    setp.ge.u32 %p1, %r1, 2;
    vote.sync.ballot.b32 $d, %p1, 0xf;
AWAY:
"""
    assert lanes(text) == [0b1100] * 4 + [7] * 28


def test_match_and_reductions() -> None:
    thirds = "rem.u32 %r2, %r1, 3;"
    masks = [sum(1 << y for y in LANES if y % 3 == x % 3) for x in LANES]
    assert lanes(thirds + "match.any.sync.b32 $d, %r2, -1;") == masks
    assert lanes(thirds + "match.all.sync.b32 $d|%p0, %r2, -1;") == [0] * 32
    assert lanes("match.all.sync.b64 $d|%p0, 77, -1;") == [FULL] * 32
    assert lanes("redux.sync.add.u32 $d, %r1, -1;") == [496] * 32
    assert lanes("sub.s32 %r2, %r1, 5; redux.sync.min.s32 $d, %r2, -1;") == [FULL - 4] * 32
    assert lanes("sub.s32 %r2, %r1, 5; redux.sync.max.u32 $d, %r2, -1;") == [FULL] * 32


def test_elect_takes_the_lowest_member() -> None:
    text = """
    setp.ge.u32 %p0, %r1, 4;
    mov.u32 $d, 99;
    @!%p0 bra AWAY;
    elect.sync $d|%p1, 0xfffffff0;
    @%p1 add.u32 $d, $d, 100;
AWAY:
"""
    assert lanes(text) == [99] * 4 + [104] + [4] * 27


def test_active_mask_is_who_stands_there() -> None:
    text = """
    setp.lt.u32 %p0, %r1, 8;
    @%p0 bra LOW;
    activemask.b32 $d;
    bra JOIN;
LOW:
    activemask.b32 $d;
JOIN:
    activemask.b32 %r3;
    xor.b32 $d, $d, %r3;
"""
    assert lanes(text) == [0xFFFFFF00] * 8 + [0xFF] * 24


def test_exchange_met_in_different_branches() -> None:
    text = """
    setp.lt.u32 %p0, %r1, 8;
    @%p0 bra LOW;
    shfl.sync.bfly.b32 $d, %r1, 31, 31, -1;
    bra JOIN;
LOW:
    shfl.sync.bfly.b32 $d, %r1, 31, 31, -1;
JOIN:
"""
    assert lanes(text) == [31 - x for x in LANES]


def test_exited_lanes_are_not_waited_for() -> None:
    body = "mov.u32 %r1, %laneid; setp.ge.u32 %p0, %r1, 16; @%p0 exit;"
    body += "setp.ge.u32 %p1, %r1, 0; vote.sync.ballot.b32 %r0, %p1, -1;"
    assert collect(body) == [0xFFFF] * 16 + [0] * 16


def test_a_lane_outside_its_mask_is_an_error() -> None:
    with pytest.raises(OracleError, match="lane 1 is not in the mask 0x1"):
        lanes("bar.warp.sync 1;")


REVERSE = """
    .shared .align 4 .b8 tile[512];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    st.shared.u32 [%r4], %r1;
    BARRIER
    mov.u32 %r5, %ntid.x;
    sub.u32 %r5, %r5, %r1;
    shl.b32 %r5, %r5, 2;
    add.u32 %r4, %r2, %r5;
    ld.shared.u32 %r0, [%r4+-4];
"""


@pytest.mark.parametrize(
    "barrier", ["bar.sync 0;", "barrier.sync 3;", "barrier.cta.sync.aligned 1, 128;", "bar.cta.sync 15;"]
)
def test_barriers_exchange_through_shared_memory(barrier: str) -> None:
    assert collect(REVERSE.replace("BARRIER", barrier), 128, 2) == list(range(127, -1, -1)) * 2


def test_a_barrier_counts_whole_warps() -> None:
    # 48 threads are two warps: 64 is what an explicit count must say.
    assert collect(REVERSE.replace("BARRIER", "bar.sync 0;"), 48) == list(range(47, -1, -1))
    assert collect(REVERSE.replace("BARRIER", "bar.sync 1, 64;"), 48) == list(range(47, -1, -1))


@pytest.mark.parametrize(("op", "results"), [("popc.u32", [20]), ("and.pred", [0]), ("or.pred", [1])])
def test_barrier_reductions(op: str, results: list[int]) -> None:
    target = "%r0" if op == "popc.u32" else "%p1"
    body = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 20; bar.red.{op} {target}, 0, %p0;"
    if target == "%p1":
        body += "selp.u32 %r0, 1, 0, %p1;"
    assert collect(body, 64) == results * 64
    negated = body.replace(", 0, %p0", ", 0, 64, !%p0")
    assert collect(negated, 64) == [44 if op == "popc.u32" else results[0]] * 64


def test_producer_arrives_and_consumer_waits() -> None:
    body = """
    .shared .u32 box;
    mov.u32 %r1, %tid.x;
    mov.u32 %r0, 1;
    setp.lt.u32 %p0, %r1, 32;
    @%p0 bra CONSUME;
    st.shared.u32 [box], 42;
    bar.arrive 1, 64;
    bra DONE;
CONSUME:
    bar.sync 1, 64;
    ld.shared.u32 %r0, [box];
DONE:
"""
    assert collect(body, 64) == [42] * 32 + [1] * 32


def test_a_barrier_nobody_completes_is_a_deadlock() -> None:
    with pytest.raises(OracleError, match=r"deadlock: 32 threads wait.*line"):
        collect("bar.sync 1, 64;")
    with pytest.raises(OracleError, match="deadlock"):
        lanes("setp.lt.u32 %p0, %r1, 8; @%p0 bar.warp.sync -1; @!%p0 bar.sync 0;")


def test_exited_threads_do_not_hold_up_a_barrier() -> None:
    body = "mov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, 40; @%p0 ret; bar.sync 0; mov.u32 %r0, 1;"
    assert collect(body, 96) == [1] * 40 + [0] * 56


def test_spin_lock_within_a_warp() -> None:
    body = """
    .shared .u32 lock;
    .shared .u32 sum;
    mov.u32 %r5, 0;
AGAIN:
    atom.shared.cas.b32 %r1, [lock], 0, 1;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra AGAIN;
    ld.shared.u32 %r2, [sum];
    add.u32 %r2, %r2, 1;
    st.shared.u32 [sum], %r2;
    membar.cta;
    atom.shared.exch.b32 %r1, [lock], 0;
    bar.sync 0;
    ld.shared.u32 %r0, [sum];
"""
    assert collect(body, 64) == [64] * 64


def test_grid_wide_barrier() -> None:
    body = """
    atom.global.add.u32 %r1, [arrived], 1;
WAIT:
    ld.volatile.global.u32 %r0, [arrived];
    setp.lt.u32 %p0, %r0, 12;
    @%p0 bra WAIT;
"""
    before = ".global .u32 arrived;"
    assert collect(body, 4, 3, before) == [12] * 12


ATOMICS = [
    # op, start, operands of the threads in turn, end, values returned
    ("add.u32", 5, [1, 2], 8, [5, 6]),
    ("min.s32", 5, [0xFFFFFFFF, 3], 0xFFFFFFFF, [5, 0xFFFFFFFF]),
    ("max.u32", 5, [9, 0xFFFFFFFF], 0xFFFFFFFF, [5, 9]),
    ("inc.u32", 2, [3, 3], 0, [2, 3]),
    ("dec.u32", 0, [3, 3], 2, [0, 3]),
    ("and.b32", 12, [10, 9], 8, [12, 8]),
    ("or.b32", 1, [2, 4], 7, [1, 3]),
    ("xor.b32", 1, [3, 3], 1, [1, 2]),
    ("exch.b32", 1, [2, 3], 3, [1, 2]),
    ("add.f32", 0x3F800000, [0x3F800000, 0x40000000], 0x40800000, [0x3F800000, 0x40000000]),
    ("add.noftz.f16x2", 0x3C003C00, [0x40003C00, 0], 0x42004000, [0x3C003C00, 0x42004000]),
]


@pytest.mark.parametrize(
    ("op", "start", "operands", "end", "returned"), ATOMICS, ids=[row[0] for row in ATOMICS]
)
def test_atomics(op: str, start: int, operands: list[int], end: int, returned: list[int]) -> None:
    again = "red.relaxed.gpu.global." + op if "exch" not in op else "atom.global.exch.b32 %r4,"
    body = f"""
    ld.param.u64 %rd0, [cell];
    ld.param.u64 %rd1, [given];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u32 %r2, [%rd1];
    atom.global.{op} %r3, [%rd0], %r2;
    st.global.u32 [%rd1], %r3;
    {again} [%rd0+4], %r2;
    ret;
"""
    text = module(body, ".param .u64 cell, .param .u64 given")
    cells, given = (Buffer(np.array(x, np.uint32)) for x in ([start, start], operands))
    result = run(text, "k", 1, len(operands), [cells, given])
    assert result.memory[0].tolist() == [end, end]
    assert result.memory[1].tolist() == returned


def test_float_atomics_flush_subnormals_in_global_memory_only() -> None:
    body = """
    .shared .f32 s;
    ld.param.u64 %rd0, [cell];
    st.shared.u32 [s], 1;
    red.shared.add.f32 [s], 0f00000001;
    ld.shared.u32 %r1, [s];
    st.global.u32 [%rd0+4], %r1;
    red.global.add.f32 [%rd0], 0f00000001;
    ret;
"""
    cell = Buffer(np.array([1, 0], np.uint32))
    assert run(module(body, ".param .u64 cell"), "k", 1, 1, [cell]).memory[0].tolist() == [0, 2]


def test_compare_and_swap() -> None:
    body = """
    ld.param.u64 %rd0, [cell];
    atom.acq_rel.sys.global.cas.b64 %rd1, [%rd0], 7, 9;
    atom.global.cas.b64 %rd2, [%rd0], 7, 11;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u64 [%rd0+8], %rd3;
    ret;
"""
    cell = Buffer(np.array([7, 0], np.uint64))
    assert run(module(body, ".param .u64 cell"), "k", 1, 1, [cell]).memory[0].tolist() == [9, 16]
