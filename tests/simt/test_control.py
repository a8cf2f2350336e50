"""Control flow where lanes diverge and converge, on both backends against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.engine.running import collect, module
from tests.engine.test_oracle_counts import compare_counts
from tests.oracle.scalar import Buffer, run

START = """
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r1, %r1, %r2, %r0;
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd0, %rd0, %rd1;
"""
FUNCTION = """
.func (.param .b32 r) triple (.param .b32 a)
{
    .reg .pred %p;
    .reg .b32 %a;
    ld.param.b32 %a, [a];
    st.param.b32 [r], 7;
    setp.gt.u32 %p, %a, 20;
    @%p ret;
    mul.lo.u32 %a, %a, 3;
    st.param.b32 [r], %a;
    ret;
}
"""
CALL = "{ .param .b32 a0; .param .b32 r0; st.param.b32 [a0], %r3; call (r0), triple, (a0); ld.param.b32 %r3, [r0]; }"

BODIES = {
    "nested conditions": """
    setp.lt.u32 %p1, %r0, 20;
    @!%p1 bra ELSE;
    setp.lt.u32 %p2, %r0, 10;
    @!%p2 bra INNER;
    add.u32 %r3, %r0, 1;
    bra JOIN;
INNER:
    add.u32 %r3, %r0, 2;
    bra JOIN;
ELSE:
    add.u32 %r3, %r0, 3;
JOIN:""",
    "loop with trip counts per lane": """
    mov.u32 %r4, %r0;
LOOP:
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra JOIN;
    add.u32 %r3, %r3, %r4;
    sub.u32 %r4, %r4, 1;
    bra LOOP;
JOIN:""",
    "loop left in two places": """
LOOP:
    add.u32 %r3, %r3, 1;
    setp.gt.u32 %p1, %r3, %r0;
    @%p1 bra JOIN;
    and.b32 %r4, %r3, 7;
    setp.eq.u32 %p2, %r4, 5;
    @%p2 bra JOIN;
    bra LOOP;
JOIN:""",
    "early return": """
    setp.lt.u32 %p1, %r0, 7;
    @!%p1 bra JOIN;
    setp.eq.u32 %p2, %r0, 3;
    @%p2 ret;
    add.u32 %r3, %r0, 5;
JOIN:
    add.u32 %r3, %r3, 1;""",
    "all lanes of a warp return": """
    setp.lt.u32 %p1, %r0, 32;
    @%p1 exit;
    mov.u32 %r3, 9;""",
    "switch": """
    and.b32 %r4, %r0, 3;
TABLE: .branchtargets A, B, A, C;
    brx.idx %r4, TABLE;
A:
    add.u32 %r3, %r0, 100;
    bra JOIN;
B:
    add.u32 %r3, %r0, 200;
C:
    add.u32 %r3, %r3, 300;
JOIN:""",
    "switch straight to the join": """
    and.b32 %r4, %r0, 1;
TABLE: .branchtargets JOIN, A;
    brx.idx %r4, TABLE;
A:
    add.u32 %r3, %r0, 100;
JOIN:""",
    "divergent calls": f"""
    mov.u32 %r3, %r0;
    setp.gt.u32 %p1, %r0, 11;
    @%p1 bra JOIN;
    {CALL}
JOIN:
    {CALL}""",
    "exchange before a call": f"""
    setp.gt.u32 %p1, %r0, 11;
    @%p1 bra JOIN;
    vote.sync.ballot.b32 %r4, %p1, 0xfff;
    shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xfff;
    {CALL}
JOIN:""",
    "exchange before a barrier": """
    shfl.sync.down.b32 %r3, %r0, 1, 31, -1;
    bar.sync 0;
    shfl.sync.down.b32 %r3, %r3, 1, 31, -1;
    bar.red.popc.u32 %r4, 1, %p1;""",
    "two entries into a loop": """
    setp.lt.u32 %p1, %r0, 12;
    @%p1 bra MIDDLE;
TOP:
    add.u32 %r3, %r3, 1;
MIDDLE:
    add.u32 %r3, %r3, 10;
    setp.lt.u32 %p2, %r3, 40;
    @%p2 bra TOP;""",
    "branch to the next instruction": """
    setp.lt.u32 %p1, %r0, 12;
    @%p1 bra NEXT;
NEXT:
    mov.u32 %r3, 5;""",
    "guarded instructions": """
    setp.lt.u32 %p1, %r0, 12;
    @%p1 mov.u32 %r3, 5;
    @!%p1 add.u32 %r3, %r0, 5;
    @%p1 add.u32 %r3, %r3, %r3;""",
    "exit inside a call": """
    setp.gt.u32 %p1, %r0, 11;
    @%p1 call leave;
    mov.u32 %r3, 5;""",
}
LEAVE = ".func leave() { exit; }\n"


@pytest.mark.parametrize("block", [1, 32, 45, 96])
@pytest.mark.parametrize("name", BODIES)
def test_against_the_interpreter(backend: str, name: str, block: int) -> None:
    body = f"{START}{BODIES[name]}\n    st.global.u32 [%rd0], %r3;\n    ret;"
    if name == "exchange before a call" and block < 32:
        block = 12
    text = module(body, ".param .u64 out", FUNCTION + LEAVE)
    out = Buffer(np.zeros(2 * block, np.uint32))
    expected = run(text, "k", 2, block, [out])
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    array = device.zeros(2 * block, np.uint32)
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 2, block, [array])
    np.testing.assert_array_equal(array.numpy(), expected.memory[0])
    compare_counts(profile, expected)


GATHERING = """
    setp.lt.u32 %p1, %r0, 7;
    @!%p1 bra JOIN;
    setp.eq.u32 %p2, %r0, 3;
    @%p2 ret;
JOIN:
    mov.u32 %r4, tile;
    mad.lo.u32 %r5, %r0, 4, %r4;
    st.shared.u32 [%r5], %r0;
    bar.sync 0;
    xor.b32 %r5, %r5, 4;
    ld.shared.u32 %r3, [%r5];
    add.u32 %r3, %r3, 1;
"""


def test_counted_labels(backend: str) -> None:
    out, _ = collect(
        backend,
        """mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
TS: .branchtargets L<3>, END;
    brx.idx %r2, TS;
L0: mov.u32 %r0, 10; bra END;
L1: mov.u32 %r0, 11; bra END;
L2: mov.u32 %r0, 12;
END:""",
    )
    assert out.tolist() == [10, 11, 12, 0] * 8


def test_the_first_of_two_destinations_discarded(backend: str) -> None:
    text = module(
        """ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    setp.ge.u32 %p1, %r1, 16;
    lop3.or.b32 _|%p2, %r1, 1, WARP_SZ-1, 0x80, %p1;
    selp.u32 %r0, 1, 0, %p2;
    st.global.u32 [%rd1], %r0;
    ret;""",
        ".param .u64 out",
    ).replace(".version 8.0", ".version 8.2")
    device = ge.Device(backend=backend)
    out = device.zeros(32, np.uint32)
    device.launch(ge.parse(text)["k"], 1, 32, [out])
    assert out.numpy().tolist() == [int(lane >= 16 or lane & 1 == 1) for lane in range(32)]


@pytest.mark.parametrize("block", [32, 64])
def test_lanes_that_an_early_return_keeps_apart_meet_at_a_barrier(backend: str, block: int) -> None:
    """The point where all lanes meet is the exit, but the barrier behind brings those that live together."""
    body = f"{START}{GATHERING}\n    st.global.u32 [%rd0], %r3;\n    ret;"
    text = module(body, ".param .u64 out", ".shared .align 4 .b32 tile[64];")
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    array = device.zeros(block, np.uint32)
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, block, [array])
    expected = [0 if lane == 3 else (lane ^ 1) + 1 if lane != 2 else 1 for lane in range(block)]
    assert array.numpy().tolist() == expected
    warps = block // 32
    # warp 0 comes to the barrier in two paths; from there on they are one
    assert profile.warp_opcodes["st.shared.u32"] == profile.warp_opcodes["bar.sync"] == warps + 1
    assert profile.warp_opcodes["ld.shared.u32"] == profile.warp_opcodes["st.global.u32"] == warps
    assert (profile.branches.executed, profile.branches.divergent) == (2 * warps - (warps - 1), 2)


def test_aliases_stand_for_their_functions(backend: str) -> None:
    """Also in calls and tables that stand before ``.alias``, after the declaration that it needs."""
    before = """
.visible .func (.param .b32 r) real (.param .b32 x);
.visible .func (.param .b32 r) other (.param .b32 x);
.global .u64 table[2] = {other, real};
.func (.param .b32 r) early (.param .b32 x) {
    .reg .b32 %q; .param .b32 a; .param .b32 b;
    ld.param.b32 %q, [x]; st.param.b32 [a], %q; call (b), other, (a); ld.param.b32 %q, [b]; st.param.b32 [r], %q; ret; }
.visible .func (.param .b32 r) real (.param .b32 x) {
    .reg .b32 %q; ld.param.b32 %q, [x]; add.u32 %q, %q, 5; st.param.b32 [r], %q; ret; }
.alias other, real;
"""
    body = """mov.u32 %r1, %tid.x;
    ld.global.u64 %rd1, [table];
    PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), early, (a); ld.param.b32 %r0, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call (b), other, (a); ld.param.b32 %r0, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call (b), %rd1, (a), PROTO; ld.param.b32 %r0, [b]; }"""
    out, profile = collect(backend, body, before=before)
    assert out.tolist() == [lane + 15 for lane in range(32)]
    assert profile.remarks == ()
