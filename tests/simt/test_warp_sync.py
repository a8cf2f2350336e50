"""Warp-synchronising instructions: within one branch, across branches, with masks that come together late or never."""

from __future__ import annotations

import pytest

from gpuperf_engine.jit.slow_path import NativeWarp
from tests.engine.running import collect
from tests.oracle import kernels

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


#: the first 12 threads wait for the rest of their warp, which comes to the matrices before them
MATRICES = f"""
        .shared .align 16 .b8 rows[1024];
        {SPLIT}
        shl.b32 %r3, %r1, 4; mov.u32 %r4, rows; add.u32 %r4, %r4, %r3;
        mul.lo.u32 %r5, %r1, 3001; add.u32 %r6, %r5, 77; st.shared.v4.u32 [%r4], {{%r5, %r6, %r5, %r1}};
        @%p1 bra OTHER;
        bra JOIN;
    OTHER: bar.warp.sync {FULL}; add.u32 %r2, %r2, 5;
    JOIN: @%p1 bra TOGETHER;
        bar.warp.sync {FULL};
    TOGETHER: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r7, %r8, %r9, %r10}}, [%r4];
        mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {{%r11, %r12, %r13, %r14}}, {{%r7, %r8}}, {{%r9}}, {{%r1, %r2, %r1, %r2}};
        add.u32 %r11, %r11, %r14; add.u32 %r0, %r11, %r10;
"""


def test_matrix_instructions_of_a_diverged_warp_are_compiled() -> None:
    found, profile = collect("llvm", MATRICES, block=64)
    assert profile.remarks == ()
    # the first warp comes to the matrices, and to the end, on two paths, the second one as a whole
    for opcode in ("bar.warp.sync", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "st.global.u32"):
        assert profile.warp_opcodes[opcode] == 3
    assert found.tolist() == kernels.collect(MATRICES, block=64)


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
