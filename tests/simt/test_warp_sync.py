"""Warp-synchronising instructions: within one branch, across branches, with masks that come together late or never."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
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


SHUFFLE = """
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 out) {
        .reg .b32 %r<5>; .reg .b64 %rd<3>; .reg .pred %p<2>;
        mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
        @BEFORE@
        shfl.sync.idx.b32 %r3, %r1, 3, 31, %r2;
        st.global.u32 [%rd1], %r3; ret; }
"""


@pytest.mark.parametrize(
    "before, threads, passes",
    [
        ("mov.b32 %r2, 0xf0;", 32, True),
        # the same in all lanes, though it is computed; 20 lanes live
        ("shr.u32 %r2, %r1, 6; add.u32 %r2, %r2, 4;", 20, True),
        # a mask of its own for each lane
        ("mov.u32 %r2, %lanemask_gt;", 32, False),
        # lanes 24 to 31 are gone: all that live are there
        ("mov.b32 %r2, 0x7; setp.ge.u32 %p1, %r1, 24; @%p1 ret;", 32, True),
    ],
)
def test_a_shuffle_by_lanes_outside_their_mask(backend, before, threads, passes):
    """Machine code of a shuffle has no mask: of a warp that is not diverged all lanes exchange, which is noted."""
    module = ge.parse(SHUFFLE.replace("@BEFORE@", before))
    for strict in ("note", "off", "error"):
        device = ge.Device(backend=backend, strict=strict)
        out = device.array(np.full(32, 99, np.uint32))
        if not passes or strict == "error":
            with pytest.raises(ge.TrapError, match="which does not contain that lane"):
                device.launch(module["k"], 1, threads, [out])
            continue
        profile = device.launch(module["k"], 1, threads, [out])
        here = 24 if "ret" in before else threads
        assert out.numpy().tolist() == [3] * here + [99] * (32 - here)
        assert [note.endswith("[shuffle-mask]") for note in profile.notes] == [True] * (strict == "note")
