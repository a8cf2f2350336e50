"""``alloca``, ``stacksave`` and ``stackrestore``: every activation has its own, and freed memory is used again."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import BACKENDS, head

HEAD = head("8.0", "sm_80")
STACK = 16384

#: r = sum of n numbers i · n, kept in memory of its own meanwhile
FILL = """.func (.param .b32 r) fill (.param .b32 n) {
.reg .pred p; .reg .b32 r<9>; .reg .b64 l<5>;
ld.param.b32 r0, [n]; cvt.u64.u32 l0, r0; shl.b64 l0, l0, 2;
alloca.u64 l1, l0; mov.u32 r1, 0; mov.u64 l2, l1;
ONE: setp.ge.u32 p, r1, r0; @p bra MIDDLE;
mul.lo.u32 r2, r1, r0; st.local.u32 [l2], r2; add.u64 l2, l2, 4; add.u32 r1, r1, 1; bra ONE;
MIDDLE: mov.u32 r3, 0; mov.u32 r1, 0; mov.u64 l2, l1;
TWO: setp.ge.u32 p, r1, r0; @p bra DONE;
ld.local.u32 r2, [l2]; add.u32 r3, r3, r2; add.u64 l2, l2, 4; add.u32 r1, r1, 1; bra TWO;
DONE: st.param.b32 [r], r3; ret; }
"""
#: r = n + (n − 1) + … + 1, each n kept in allocated memory and in a local variable while the others are found
SUM = """.func (.param .b32 r) sum (.param .b32 n) {
.reg .pred p; .reg .b32 r<5>; .reg .b64 l<3>; .local .align 4 .b32 kept;
ld.param.b32 r0, [n]; st.local.u32 [kept], r0;
alloca.u64 l0, 12, 16; st.local.u32 [l0+4], r0; cvta.local.u64 l1, l0;
mov.u32 r2, 0; setp.eq.u32 p, r0, 0; @p bra DONE; sub.u32 r1, r0, 1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], r1; call (b), sum, (a); ld.param.b32 r2, [b]; }
DONE: ld.u32 r3, [l1+4]; ld.local.u32 r4, [kept]; add.u32 r2, r2, r3; sub.u32 r2, r2, r0; add.u32 r2, r2, r4;
st.param.b32 [r], r2; ret; }
"""
ENTRY = """.visible .entry k(.param .u64 out, .param .u32 n) {
.reg .pred p<3>; .reg .b32 r<9>; .reg .b64 l<9>; .local .align 16 .b8 mine[40];
ld.param.u64 l0, [out]; ld.param.u32 r8, [n]; mov.u32 r0, %tid.x; mul.wide.u32 l1, r0, 16; add.u64 l0, l0, l1;
setp.lt.u32 p0, r0, 20; cvt.u64.u32 l8, r8; st.local.u32 [mine], r8;
"""


def launch(
    backend: str, text: str, n: int = 0, threads: int = 40, demand: str = "values"
) -> tuple[np.ndarray, ge.Profile]:
    device = ge.Device(backend=backend)
    out = device.zeros((threads, 4), np.uint32)
    module = ge.parse(HEAD + text, path="k.ptx")
    profile = device.launch(module["k"], 1, threads, [out, np.uint32(n)], demand=demand)
    return out.numpy() if demand == "values" else out, profile


CALLS = (
    FILL + ENTRY
    + """alloca.u64 l2, 24; st.local.u32 [l2], r0; st.local.u32 [l2+20], r8; @!p0 bra SKIP;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], r0; call (b), fill, (a); ld.param.b32 r1, [b]; }
st.global.u32 [l0], r1;
SKIP: ld.local.u32 r3, [l2]; st.global.u32 [l0+4], r3; ld.local.u32 r3, [l2+20]; st.global.u32 [l0+8], r3; ret; }
"""
)  # fmt: skip


def test_calls(backend: str) -> None:
    """What the caller has allocated stays where a part of the warp calls a function that allocates too."""
    found, profile = launch(backend, CALLS, 77)
    assert profile.remarks == ()
    for thread, row in enumerate(found.tolist()):
        inside = sum(i * thread for i in range(thread)) if thread < 20 else 0
        assert row == [inside, thread, 77, 0]
    for demand in ("control", "addresses"):
        assert launch(backend, CALLS, 77, demand=demand)[1].opcodes == profile.opcodes


def test_recursion(backend: str) -> None:
    """Each activation has a local variable and allocated memory of its own; lanes end at different depths."""
    text = (
        SUM + ENTRY + "stacksave.u64 l2; "
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], r0; call (b), sum, (a); ld.param.b32 r1, [b]; }\n"
        "stacksave.u64 l3; sub.u64 l3, l2, l3; cvt.u32.u64 r2, l3; st.global.u32 [l0], r1; st.global.u32 [l0+4], r2; ret; }"
    )
    found, _ = launch(backend, text)
    assert found[:, 0].tolist() == [thread * (thread + 1) // 2 for thread in range(40)]
    assert not found[:, 1].any()


def test_addresses(backend: str) -> None:
    """The stack grows down; alignment is 8 at least; guarded and in a part of the warp it moves only there."""
    text = ENTRY + (
        "stacksave.u64 l1; alloca.u64 l2, 3; sub.u64 l3, l1, l2; cvt.u32.u64 r1, l3; st.global.u32 [l0], r1;\n"
        "@p0 alloca.u64 l2, l8, 128; stacksave.u64 l3; sub.u64 l3, l1, l3; cvt.u32.u64 r1, l3; st.global.u32 [l0+4], r1;\n"
        "and.b64 l4, l2, 127; cvt.u32.u64 r2, l4; @p0 st.global.u32 [l0+8], r2;\n"
        "stackrestore.u64 l1; stacksave.u32 r3; cvt.u32.u64 r4, l1; sub.u32 r3, r3, r4; st.global.u32 [l0+12], r3; ret; }"
    )
    found, _ = launch(backend, text, 300)
    # the end of local memory is 48 + 16384 bytes away from its beginning
    end = 48 + STACK
    lower = end - (end - 8 - 300 & -128)
    assert found.tolist() == [[8, lower if thread < 20 else 8, 0, 0] for thread in range(40)]


def test_short_registers(backend: str) -> None:
    text = ENTRY + (
        "stacksave.u32 r1; alloca.u32 r2, r8, 32; st.local.u32 [r2+4], r0; ld.local.u32 r3, [r2+4]; st.global.u32 [l0], r3;\n"
        "sub.u32 r4, r1, r2; st.global.u32 [l0+4], r4; stackrestore.u32 r1; ret; }"
    )
    found, _ = launch(backend, text, 64)
    assert found[:, 0].tolist() == list(range(40))
    assert set(found[:, 1].tolist()) == {64 + (48 + STACK) % 32}


LOOP = (
    ENTRY
    + "mov.u32 r1, 0; mov.u32 r2, 0;\nLOOP: stacksave.u64 l1; alloca.u64 l2, 4096; st.local.u32 [l2+4092], r1;\n"
    "ld.local.u32 r3, [l2+4092]; add.u32 r2, r2, r3; FREE add.u32 r1, r1, 1; setp.lt.u32 p1, r1, 10; @p1 bra LOOP;\n"
    "st.global.u32 [l0], r2; ret; }"
)


def test_a_loop_that_frees(backend: str) -> None:
    found, _ = launch(backend, LOOP.replace("FREE", "stackrestore.u64 l1;"))
    assert set(found[:, 0].tolist()) == {45}


def test_a_loop_that_does_not(backend: str) -> None:
    with pytest.raises(
        ge.TrapError, match=r"alloca\.u64: 4,096 more bytes do not fit into the stack of 16,384 bytes"
    ) as caught:
        launch(backend, LOOP.replace("FREE", ""))
    assert "thread (0, 0, 0) of block (0, 0, 0)" in str(caught.value)
    assert "stackrestore" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alloca.u64 l2, l8;", r"alloca\.u64: 4,294,967,295 more bytes"),
        ("alloca.u64 l2, -8;", r"alloca\.u64: 18,446,744,073,709,551,608 more bytes"),
        (
            "stacksave.u64 l2; add.u64 l2, l2, 8; stackrestore.u64 l2;",
            r"stackrestore\.u64: 0x4038 is not within the stack",
        ),
        ("mov.u64 l2, 8; stackrestore.u64 l2;", r"stackrestore\.u64: 0x8 is not within the stack"),
    ],
)
def test_errors(backend: str, line: str, message: str) -> None:
    with pytest.raises(ge.TrapError, match=message):
        launch(backend, ENTRY + line + "ret; }", 2**32 - 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alloca.u64 l2, 64, 12;", "align is 12"),
        ("alloca.u64 l2, 64, 0;", "align is 0"),
        ("alloca.u64 l2, 64, 16777216;", "a power of two, at most 8,388,608"),
        ("alloca.u64 l2, 64, r0;", "integer constant"),
        ("stackrestore.u64 100;", "must be a register"),
        ("stacksave.b64 l2;", "no modifier '.b64'"),
    ],
)
def test_refused(line: str, message: str) -> None:
    with pytest.raises(ge.EngineError, match=message):
        ge.parse(HEAD + ENTRY + line + "ret; }", path="k.ptx").function("k")


def test_pointers_that_may_be_allocated() -> None:
    """A store through a pointer that may be an allocated one decides what a load through it reads: both run in a slice."""
    text = ENTRY + (
        "alloca.u64 l2, 8; cvta.local.u64 l2, l2; setp.eq.u32 p1, r8, 1; selp.b64 l3, l2, l0, p1; st.local.u32 [mine], r0;\n"
        "cvta.to.local.u64 l4, l2; st.local.u32 [l4], r0; ld.u32 r1, [l3]; setp.gt.u32 p2, r1, 10; @p2 bra END;\n"
        "add.u32 r2, r2, 1;\nEND: ret; }"
    )
    for backend in BACKENDS:
        whole = launch(backend, text, 1)[1]
        assert launch(backend, text, 1, demand="control")[1].opcodes == whole.opcodes
        assert whole.opcodes["add.u32"] == 11
