"""Warp-synchronising instructions: within one branch, across branches, with masks that come together late or never."""

from __future__ import annotations

import pytest

from gpuperf_engine.jit.slow_path import NativeWarp
from tests.engine.running import collect

FULL = "0xffffffff"
SPLIT = """
        mov.u32 %r1, %tid.x;
        add.u32 %r2, %r1, 100;
        setp.lt.u32 %p1, %r1, 12;
"""


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
    expected, counted = collect("reference", body, grid=3, block=48, before=CALLED)
    left: list[object] = []
    attend = NativeWarp.attend
    monkeypatch.setattr(NativeWarp, "attend", lambda *given: (left.append(given), attend(*given)))
    found, profile = collect("llvm", body, grid=3, block=48, before=CALLED)
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
    values, profile = collect("llvm", body, grid=600)
    assert values.reshape(600, 32)[599].tolist() == [100 + (lane ^ 16) for lane in range(32)]
    (remark,) = profile.remarks
    assert "k.ptx:" in remark and "left compiled code 600 times at shfl.sync.bfly.b32" in remark
    assert not collect("llvm", body, grid=3)[1].remarks
