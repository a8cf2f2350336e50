"""Warp-synchronising instructions: within one branch, across branches, with masks that come together late or never."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.slow_path import NativeWarp
from tests.engine.running import collect

FULL = "0xffffffff"
SPLIT = """
        mov.u32 %r1, %tid.x;
        add.u32 %r2, %r1, 100;
        setp.lt.u32 %p1, %r1, 12;
"""


@pytest.mark.parametrize(
    "mode,b,c,source",
    [
        ("up", 3, 0, lambda lane: lane - 3 if lane >= 3 else lane),
        ("down", 5, 31, lambda lane: lane + 5 if lane + 5 < 32 else lane),
        ("bfly", 9, 31, lambda lane: lane ^ 9),
        ("idx", 7, 31, lambda lane: 7),
        ("down", 1, 0x181F, lambda lane: lane + 1 if lane % 8 < 7 else lane),  # segments of eight
        ("idx", 2, 0x181F, lambda lane: lane // 8 * 8 + 2),
    ],
)
def test_shuffles(backend: str, mode: str, b: int, c: int, source: object) -> None:
    values, _ = collect(
        backend,
        f"mov.u32 %r1, %tid.x;\nadd.u32 %r1, %r1, 100;\nshfl.sync.{mode}.b32 %r0, %r1, {b}, {c}, {FULL};",
    )
    assert values.tolist() == [100 + source(lane) for lane in range(32)]  # type: ignore[operator]


def test_shuffle_tells_which_lanes_were_in_range(backend: str) -> None:
    values, _ = collect(
        backend,
        f"mov.u32 %r1, %tid.x;\nshfl.sync.up.b32 %r2|%p1, %r1, 4, 0, {FULL};\nselp.u32 %r0, 1, 0, %p1;",
    )
    assert values.tolist() == [0] * 4 + [1] * 28


def test_a_lane_that_takes_no_part_gives_zero(backend: str) -> None:
    values, _ = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        add.u32 %r1, %r1, 100;
        mov.u32 %r0, 7;
        setp.ge.u32 %p1, %r1, 116;
        @%p1 bra END;
        shfl.sync.bfly.b32 %r0, %r1, 16, 31, 0xffff;
    END:
        """,
    )
    assert values.tolist() == [0] * 16 + [7] * 16


@pytest.mark.parametrize(
    "instruction,expected",
    [
        ("vote.sync.ballot.b32 %r0, %p1, 0xffffffff;", [0xFFF] * 32),
        ("vote.sync.ballot.b32 %r0, !%p1, 0xffffffff;", [0xFFFFF000] * 32),
        ("vote.sync.any.pred %p2, %p1, 0xffffffff; selp.u32 %r0, 1, 0, %p2;", [1] * 32),
        ("vote.sync.all.pred %p2, %p1, 0xffffffff; selp.u32 %r0, 1, 0, %p2;", [0] * 32),
        ("vote.sync.uni.pred %p2, %p1, 0xffffffff; selp.u32 %r0, 1, 0, %p2;", [0] * 32),
        ("and.b32 %r3, %r1, 1; match.any.sync.b32 %r0, %r3, 0xffffffff;", [0x55555555, 0xAAAAAAAA] * 16),
        ("match.all.sync.b32 %r0|%p2, %r1, 0xffffffff;", [0] * 32),
        ("mov.u32 %r3, 5; match.all.sync.b32 %r0|%p2, %r3, 0xffffffff;", [0xFFFFFFFF] * 32),
        ("redux.sync.add.u32 %r0, %r1, 0xffffffff;", [496] * 32),
        ("redux.sync.max.s32 %r0, %r1, 0xffffffff;", [31] * 32),
        ("redux.sync.xor.b32 %r0, %r2, 0xffffffff;", [0] * 32),
        ("activemask.b32 %r0;", [0xFFFFFFFF] * 32),
        ("elect.sync %r0|%p2, 0xffffffff; selp.u32 %r0, 77, %r0, %p2;", [77] + [0] * 31),
    ],
)
def test_other_exchanges(backend: str, instruction: str, expected: list[int]) -> None:
    values, _ = collect(backend, SPLIT + instruction)
    assert values.tolist() == expected


def test_different_masks_in_one_instruction(backend: str) -> None:
    values, _ = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 8;
        selp.b32 %r3, 0xff, 0xffffff00, %p1;
        redux.sync.add.u32 %r0, %r1, %r3;
        """,
    )
    assert values.tolist() == [28] * 8 + [468] * 24


def test_lanes_meet_at_instructions_of_two_branches(backend: str) -> None:
    """Twelve lanes wait in one branch until the other twenty come to the same kind of instruction in the other."""
    values, profile = collect(
        backend,
        SPLIT
        + f"""
        @%p1 bra LOW;
        shfl.sync.bfly.b32 %r0, %r2, 16, 31, {FULL};
        bra END;
    LOW:
        add.u32 %r3, %r2, 1000;
        shfl.sync.bfly.b32 %r0, %r3, 16, 31, {FULL};
        add.u32 %r0, %r0, 1;
    END:
        """,
    )
    assert values.tolist() == [
        (lane + 16) + 100 + 1 if lane < 12 else (lane ^ 16) + 100 + (1000 if lane ^ 16 < 12 else 0)
        for lane in range(32)
    ]
    assert profile.warp_opcodes["shfl.sync.bfly.b32"] == 2
    assert profile.opcodes["shfl.sync.bfly.b32"] == 32
    assert profile.warp_instructions == 4 + 2 + 3 + 9
    assert (profile.branches.executed, profile.branches.divergent) == (1, 1)


def test_a_wait_ends_when_the_others_have_exited(backend: str) -> None:
    values, _ = collect(
        backend,
        SPLIT
        + f"""
        @%p1 bra LOW;
        setp.lt.u32 %p2, %r1, 20;
        @%p2 exit;
        exit;
    LOW:
        vote.sync.ballot.b32 %r0, %p1, {FULL};
        """,
    )
    assert values.tolist() == [0xFFF] * 12 + [0] * 20


def test_lanes_at_the_meeting_point_go_on_for_a_mask_that_needs_them(backend: str) -> None:
    """The first ``shfl`` waits for lanes that skipped it; they come to the second one, which matches."""
    values, profile = collect(
        backend,
        SPLIT
        + f"""
        mov.u32 %r0, 0;
        @!%p1 bra MEET;
        shfl.sync.idx.b32 %r0, %r2, 20, 31, {FULL};
        bra DONE;
    MEET:
        shfl.sync.idx.b32 %r0, %r2, 3, 31, {FULL};
    DONE:
        """,
    )
    assert values.tolist() == [120] * 12 + [103] * 20
    assert profile.warp_opcodes["shfl.sync.idx.b32"] == 2


def test_bar_warp_sync_in_two_branches(backend: str) -> None:
    values, _ = collect(
        backend,
        SPLIT
        + f"""
        @%p1 bra LOW;
        bar.warp.sync {FULL};
        mov.u32 %r0, 1;
        bra END;
    LOW:
        bar.warp.sync {FULL};
        mov.u32 %r0, 2;
    END:
        """,
    )
    assert values.tolist() == [2] * 12 + [1] * 20


def test_a_guarded_exchange(backend: str) -> None:
    values, profile = collect(backend, SPLIT + "mov.u32 %r0, 9;\n@%p1 vote.sync.ballot.b32 %r0, %p1, 0xfff;")
    assert values.tolist() == [0xFFF] * 12 + [9] * 20
    assert profile.opcodes["vote.sync.ballot.b32"] == 32
    assert profile.warp_opcodes["vote.sync.ballot.b32"] == 1
    assert profile.branches.executed == 0


def test_a_lane_outside_its_own_mask(backend: str) -> None:
    with pytest.raises(
        ge.EngineError, match="member mask 0xfffffffe, which does not contain that lane"
    ) as caught:
        collect(backend, SPLIT + "shfl.sync.idx.b32 %r0, %r2, 0, 31, 0xfffffffe;")
    assert "lane 0 " in str(caught.value)
    assert "thread (0, 0, 0)" in str(caught.value)


def test_a_mask_that_never_comes_together(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="no thread can go on") as caught:
        collect(
            backend,
            SPLIT
            + f"""
        @%p1 bra LOW;
        shfl.sync.up.b32 %r0, %r2, 1, 0, {FULL};
        bra END;
    LOW:
        shfl.sync.down.b32 %r0, %r2, 1, 31, {FULL};
    END:
        """,
        )
    text = str(caught.value)
    assert "12 threads at shfl.sync.down.b32 for lanes that do not come at k.ptx:" in text
    assert "20 threads at shfl.sync.up.b32 for lanes that do not come at k.ptx:" in text
    assert len(text.splitlines()) <= 5


def test_64_bit_match_and_wide_votes_in_a_ragged_warp(backend: str) -> None:
    values, _ = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 1;
        mov.b64 %rd1, {%r2, %r2};
        match.any.sync.b64 %r0, %rd1, 0xffffffff;
        """,
        block=40,
    )
    assert values[:32].tolist() == [0x55555555, 0xAAAAAAAA] * 16
    assert values[32:].tolist() == [0x55, 0xAA] * 4
    assert values.dtype == np.uint32


HALF = """
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 5;
        setp.ge.u32 %p3, %r1, 16;
        setp.lt.u32 %p2, %r1, 8;
        @%p3 bra END;
"""
CALLED = """
    .func (.reg .b32 %v) halved (.reg .b32 %n)
    {
        shfl.sync.down.b32 %v, %n, 8, 31, 0xffffffff;
        ret;
    }
"""


@pytest.mark.parametrize(
    "body",
    [
        f"{HALF} shfl.sync.down.b32 %r2|%p1, %r1, 8, 31, {FULL}; add.u32 %r0, %r2, %r1; END:",
        f"{HALF} vote.sync.ballot.b32 %r0, %p2, {FULL}; END:",
        f"{HALF} vote.sync.all.pred %p1, %p2, {FULL}; selp.b32 %r0, 1, 2, %p1; END:",
        f"{HALF} match.any.sync.b32 %r0, %r1, {FULL}; END:",
        f"{HALF} redux.sync.add.u32 %r0, %r1, {FULL}; END:",
        f"{HALF} bar.warp.sync {FULL}; activemask.b32 %r0; END:",
        f"{HALF} elect.sync %r0|%p1, {FULL}; END:",
        f"{HALF} call (%r0), halved, (%r1); END:",
        # lanes of one split give different masks
        f"{HALF} selp.b32 %r2, 0xff, 0xffffff00, %p2; shfl.sync.bfly.b32 %r0, %r1, 3, 31, %r2; END:",
        # some of the lanes get there in a later trip of a loop
        f"""mov.u32 %r1, %tid.x; mov.u32 %r0, 0; and.b32 %r2, %r1, 3;
        AGAIN: sub.u32 %r2, %r2, 1; setp.ge.s32 %p1, %r2, 0; @%p1 bra AGAIN;
        setp.ge.u32 %p3, %r1, 16; @%p3 exit; redux.sync.add.u32 %r0, %r1, {FULL};""",
    ],
    ids=["shfl", "ballot", "all", "match", "redux", "barrier", "elect", "called", "masks", "loop"],
)
def test_waiting_for_lanes_that_end_takes_no_python(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, counted = collect("lanes", body, grid=3, block=48, before=CALLED)
    left: list[object] = []
    attend = NativeWarp.attend
    monkeypatch.setattr(NativeWarp, "attend", lambda *given: (left.append(given), attend(*given)))
    found, profile = collect("native", body, grid=3, block=48, before=CALLED)
    assert not left
    assert found.tolist() == expected.tolist()
    assert profile == counted


def test_what_python_does_often_is_told() -> None:
    body = f"""
        {SPLIT}
        @%p1 bra OTHER;
        shfl.sync.bfly.b32 %r0, %r2, 16, 31, {FULL};
        bra END;
    OTHER:
        shfl.sync.bfly.b32 %r0, %r2, 16, 31, {FULL};
    END:
    """
    values, profile = collect("native", body, grid=600)
    assert values.reshape(600, 32)[599].tolist() == [100 + (lane ^ 16) for lane in range(32)]
    (remark,) = profile.remarks
    assert "k.ptx:" in remark and "left compiled code 600 times at shfl.sync.bfly.b32" in remark
    assert not collect("native", body, grid=3)[1].remarks
