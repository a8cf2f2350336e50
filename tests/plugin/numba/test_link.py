"""Texts linked to one module: what is called across them, what is defined twice, files, and the barrier over the grid."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from pytest_gpuperf.numba.link import limited, link

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = (
    HEAD
    + """
.extern .func (.param .b32 r) twice (.param .b32 a) ;
.weak .func (.param .b32 r) one () { .reg .b32 %r1; mov.u32 %r1, 1; st.param.b32 [r], %r1; ret; }
.const .align 1 .b8 text[3] = {123, 125, 0};
.visible .entry k(.param .u64 out) // } not a brace
{
    .reg .b64 %rd<3>; .reg .b32 %r<4>;
    .loc 1 3 0
    { .param .b32 a; .param .b32 r; .reg .b32 %t;
      call (r), one, ();
      ld.param.b32 %t, [r]; st.param.b32 [a], %t;
      call (r), twice, (a); ld.param.b32 %r1, [r]; }
    ld.param.u64 %rd1, [out];
    st.global.u32 [%rd1], %r1;
    ret;
}
.file 1 "first.py"
"""
)
DEVICE = (
    HEAD
    + """
.file 1 "second.cu"
.weak .func (.param .b32 r) one () { .reg .b32 %r1; mov.u32 %r1, 50; st.param.b32 [r], %r1; ret; }
.visible .func (.param .b32 r) twice (.param .b32 a)
{
    .reg .b32 %r<2>;
    .loc 1 9 0
    ld.param.b32 %r1, [a];
    shl.b32 %r1, %r1, 1;
    st.param.b32 [r], %r1;
    ret;
}
.section .debug_info { .b8 0 }
"""
)
GRID = (
    HEAD
    + """
.extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 h, .param .b32 f) ;
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 s) ;
.visible .entry k(.param .u64 x)
{
    .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd1, %rd1;
    { .param .b32 s; .param .b64 r; mov.u32 %r1, 1; st.param.b32 [s], %r1;
      call (r), cudaCGGetIntrinsicHandle, (s); ld.param.b64 %rd2, [r]; }
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %rd3, %r2, 4; add.s64 %rd3, %rd1, %rd3;
    mov.u32 %r9, 0;
again:
    // each CTA adds one to its own number, then reads that of the next
    ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, 1; st.global.u32 [%rd3], %r4;
    { .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %rd2; st.param.b32 [f], %r9;
      call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r5, [r]; }
    add.u32 %r6, %r2, 1; rem.u32 %r6, %r6, %r3;
    mul.wide.u32 %rd4, %r6, 4; add.s64 %rd4, %rd1, %rd4; ld.global.u32 %r7, [%rd4];
    { .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %rd2; st.param.b32 [f], %r9;
      call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r5, [r]; }
    st.global.u32 [%rd3], %r7;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 3; @%p1 bra again;
    ret;
}
"""
)


def test_calls_across_texts_and_the_first_of_weak_definitions(backend: str) -> None:
    device = ge.Device(backend=backend)
    out = device.zeros(1, np.uint32)
    device.launch(ge.parse(link([KERNEL, DEVICE]))["k"], 1, 1, [out])
    assert out.numpy().tolist() == [2]


def test_one_text_is_left_alone() -> None:
    assert link([KERNEL]) == KERNEL


def test_files_are_numbered_through_and_sections_of_others_left_out() -> None:
    text = link([KERNEL, DEVICE])
    assert [line for line in text.splitlines() if line.startswith(".file")] == [
        '.file 1 "first.py"',
        '.file 2 "second.cu"',
    ]
    assert ".loc 1 3 0" in text and ".loc 2 9 0" in text
    assert text.count(".version") == 1 and ".section" not in text


def test_what_was_linked_is_linked_again() -> None:
    assert link([link([GRID])]) == link([GRID])
    assert "cudaCGSynchronize" in ge.parse(link([link([GRID]), DEVICE])).functions


@pytest.mark.parametrize("ctas", [1, 5])
def test_a_barrier_over_the_grid(backend: str, ctas: int) -> None:
    device = ge.Device(backend=backend, **({"races": "error"} if backend == "llvm" else {}))
    start = np.arange(ctas, dtype=np.uint32) * 10
    x = device.array(start)
    for _ in range(2):  # the counter goes on from launch to launch
        device.launch(ge.parse(link([GRID]))["k"], ctas, 32 if ctas == 1 else 1, [x], cooperative=True)
    # each round adds one and moves the numbers by one place
    assert x.numpy().tolist() == (np.roll(start, -6) + 6).tolist() or ctas == 1


def test_a_limit_of_registers():
    """As ``-maxrregcount``: a kernel's own directive takes precedence."""
    text = """.version 8.0
.target sm_80
.address_size 64
.func helper(.param .b32 x) { ret; }
.visible .entry first(
    .param .u64 .ptr .global .align 4 x
)
.maxntid 128, 1, 1
{
    ret;
}
.entry second { ret; }
.visible .entry third(.param .u64 x) .maxnreg 20
{ ret; }
"""
    module = ge.parse(limited(text, 38))
    assert [module[name].maxnreg for name in ("first", "second", "third")] == [38, 38, 20]
    assert module["first"].maxntid == (128, 1, 1)
