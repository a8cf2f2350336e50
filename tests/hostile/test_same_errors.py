"""Of several things that are wrong the same is named, at the same place, by either backend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.hostile.kernels import module
from tests.hostile.sandbox import Job, Sandbox

BAD_LOAD = "mov.u64 %rd0, 64; ld.global.u32 %r0, [%rd0];"
COUNT = "mov.u32 %r0, {}; {}: sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra {};"
FRAGMENT = "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"
CASES = {
    "a refused load before a trap": (f"{BAD_LOAD}\ntrap;", "MemoryFault", "k.ptx:14:19: ld.global.u32"),
    "a refused load before a guarded trap": (
        f"mov.u32 %r1, %laneid; setp.eq.u32 %p0, %r1, 3;\n{BAD_LOAD}\n@%p0 trap; ret;",
        "MemoryFault",
        "ld.global.u32",
    ),
    "a refused load before a texture that is none": (
        f"{BAD_LOAD}\ntex.1d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%rd0, {{%f4}}]; ret;",
        "MemoryFault",
        "ld.global.u32",
    ),
    "a refused load before too large an allocation": (
        f"{BAD_LOAD}\nalloca.u64 %rd1, 1000000; ret;",
        "MemoryFault",
        "ld.global.u32",
    ),
    "a refused load before a lane outside its own mask": (
        f"{BAD_LOAD}\nvote.sync.all.pred %p0, %p1, 1; ret;",
        "MemoryFault",
        "ld.global.u32",
    ),
    "a texture that is none before a refused load": (
        f"tex.1d.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%rd0, {{%f4}}];\n{BAD_LOAD}\nret;",
        "TrapError",
        "tex.1d.v4.f32.f32",
    ),
    "a loop too long, and a barrier": (
        f"{COUNT.format(5000, 'L', 'L')} bar.sync 0; mov.u32 %r5, 5; ret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "a loop too long, and the end": (
        f"{COUNT.format(5000, 'L', 'L')}\nmov.u32 %r5, 5; ret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "more than is allowed in one turn": (
        f"mov.u32 %r0, 30; L: {'add.u32 %r1, %r1, 1; ' * 200} sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;\n@%p0 bra L;\nret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "more than is allowed in one turn, by lanes that end last": (
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 7; @%p1 bra E;\n"
        f"mov.u32 %r0, 30; L: {'add.u32 %r1, %r1, 1; ' * 200} sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;\n"
        "@%p0 bra L;\nret;\nE: ret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "more than is allowed in one turn, up to a barrier": (
        f"mov.u32 %r0, 30; L: {'add.u32 %r1, %r1, 1; ' * 200} sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;\n@%p0 bra L;\n"
        "bar.sync 0;\nret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "a loop too long for lanes that part where the turn ends": (
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 5; selp.u32 %r0, 4096, 5000, %p1;\n"
        "L: sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra L; mov.u32 %r5, 5; ret;",
        "BudgetExceeded",
        "thread (5, 0, 0)",
    ),
    "a second loop too long": (
        f"{COUNT.format(30, 'K', 'K')}\n{COUNT.format(5000, 'L', 'L')}\nmov.u32 %r5, 5; ret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "more than is allowed in one turn, with a call of the system": (
        f"mov.u32 %r0, 30; L: {'add.u32 %r1, %r1, 1; ' * 200}\n"
        "{ .param .b64 a; .param .b64 r; st.param.b64 [a], 16; call (r), malloc, (a); }\n"
        "sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;\n@%p0 bra L;\nret;",
        "BudgetExceeded",
        "warp instructions executed, 4,000 allowed",
    ),
    "a misaligned part of a matrix fragment": (
        f"mov.u64 %rd0, 68; wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {FRAGMENT}, [%rd0], %r1; ret;",
        "MemoryFault",
        "the address must be a multiple of",
    ),
    "a misaligned matrix fragment, stored": (
        f"mov.u64 %rd0, 66; wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%rd0], {FRAGMENT}, %r1; ret;",
        "MemoryFault",
        "16-byte store",
    ),
    "a matrix fragment out of bounds": (
        "mov.u64 %rd0, 1048576;\nwmma.load.a.sync.aligned.row.m16n16k16.shared.f16 "
        "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd0], %r8; ret;",
        "MemoryFault",
        "16-byte load",
    ),
    "several misaligned matrices": (
        "mov.u64 %rd0, 8; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%rd0]; ret;",
        "MemoryFault",
        "16-byte load",
    ),
    "several misaligned matrices, stored": (
        "mov.u64 %rd0, 8; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%rd0], {%r0, %r1, %r2, %r3}; ret;",
        "MemoryFault",
        "16-byte store",
    ),
    "an assertion in unprintable words": (
        "{ .param .b64 m; .param .b32 l; .param .b64 s; cvta.global.u64 %rd0, words; st.param.b64 [m], %rd0;\n"
        "st.param.b32 [l], 7; st.param.b64 [s], 1; call __assertfail, (m, m, l, m, s); }\nret;",
        "TrapError",
        r"k.ptx:15:43: a\x1b[2J b \xff:7: a\x1b[2J b \xff: block: [0,0,0], thread: [0,0,0] Assertion `a\x1b[2J b \xff` failed.",
    ),
    "another block of a cluster of one": (
        "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r0, 16777216; ld.shared::cluster.u32 %r1, [%r0]; ret;",
        "MemoryFault",
        "ld.shared::cluster.u32: 4-byte load from shared address 0x1000000",
    ),
}
DECLARED = {
    "malloc": ".extern .func (.param .b64 r) malloc (.param .b64 a);",
    "__assertfail": ".extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 g, .param .b64 s);"
    " .global .b8 words[] = {97, 27, 91, 50, 74, 10, 98, 13, 10, 255, 0};",
    ".shared": ".shared .align 128 .b8 tile[4096];",
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_is_named_alike(sandbox: Sandbox, name: str) -> None:
    body, kind, part = CASES[name]
    before = next((text for name, text in DECLARED.items() if name in body), "")
    job = Job(module(f"\n{body}", before=before), options={"max_instructions": 4000})
    native, lanes = (sandbox.run(replace(job, backend=backend)) for backend in ("llvm", "reference"))
    assert (native.kind, native.type) == ("error", kind), native.text
    assert part in native.text
    assert native.text == lanes.text


#: 64 trips of this loop are a turn, of about 1,600 warp instructions: within 4,000 of them two rounds end, and not four
SPIN = f"L: {'add.u32 %r9, %r9, 0; ' * 20} {{}} ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; ret;"
CIRCLES = {
    "what nobody reads": SPIN.format("ld.volatile.global.u32 %r5, [%rd0+4];"),
    "what nobody reads, of a predicate": SPIN.format(
        "ld.volatile.global.u32 %r5, [%rd0+4]; setp.eq.u32 %p5, %r5, 0;"
    ),
    "what the lanes that have ended had": "mov.u32 %r7, %laneid; setp.gt.u32 %p2, %r7, 3; mov.u32 %r8, 0;\n"
    + SPIN.format(
        "ld.volatile.global.u32 %r5, [%rd0+4]; add.u32 %r8, %r5, 3; @%p2 exit; and.b32 %r9, %r8, 0;"
    ),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_circles_are_found_in_the_same_round(sandbox: Sandbox, name: str) -> None:
    """A second warp changes in the first round what the loop of the first loads in the next, and does not use."""
    body = (
        "mov.u64 %rd0, flag; mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 32; @%p0 bra S;\n"
        f"{CIRCLES[name]}\nS: mov.u32 %r2, 1; st.volatile.global.u32 [%rd0+4], %r2; ret;"
    )
    job = Job(module(body, before=".global .u32 flag[2];"), block=64, options={"max_instructions": 4000})
    native, lanes = (sandbox.run(replace(job, backend=backend)) for backend in ("llvm", "reference"))
    assert (native.kind, native.type) == ("error", "Deadlock"), native.text
    assert native.text == lanes.text
