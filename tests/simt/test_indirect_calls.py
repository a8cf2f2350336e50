"""Calls through pointers by lanes that go different ways, wait for one another and switch paths: compiled, counts as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.0", "sm_80")
ENTRY = """.visible .entry k(.param .u64 out, .param .u64 x) {
.reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<9>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [x]; mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.u32 %r10, %ntid.x;
mad.lo.u32 %r8, %r9, %r10, %r0; mul.wide.u32 %d2, %r8, 4; add.u64 %d0, %d0, %d2; and.b32 %r1, %r0, 3; mul.wide.u32 %d3, %r1, 8;
mov.u64 %d4, table; add.u64 %d4, %d4, %d3; ld.global.u64 %d5, [%d4];
"""
CALL = """{ .param .b32 a; .param .b64 b; .param .b32 c; st.param.b32 [a], %r0; st.param.b64 [b], %d1;
P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);
call (c), %d5, (a, b), P; ld.param.b32 %r2, [c]; }
"""
STORE = "st.global.u32 [%d0], %r2; ret; }\n"
TABLE = ".global .u64 table[4] = {f0, f1, f2, f3};\n"


def function(name: str, body: str) -> str:
    """A function of a number %r0 and a pointer %d1 that returns %r2."""
    return (
        f".func (.param .b32 c) {name} (.param .b32 a, .param .b64 b) {{ .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<9>;\n"
        f"ld.param.b32 %r0, [a]; ld.param.b64 %d1, [b]; mov.b32 %r2, 0;\n{body}\nst.param.b32 [c], %r2; ret; }}\n"
    )


def run(
    functions: list[str], call: str = CALL, threads: int = 32, ctas: int = 1, words: int = 64
) -> tuple[Any, Any, ge.Profile]:
    """On both backends, which must agree in memory and counts; what was stored, what is at ``x``, and the profile."""
    text = (
        HEAD
        + "".join(function(f"f{place}", body) for place, body in enumerate(functions))
        + TABLE
        + ENTRY
        + call
        + STORE
    )
    found = []
    for backend in ("reference", "llvm"):
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        out, x = device.zeros(threads * ctas, np.int32), device.zeros(words, np.int32)
        profile = device.launch(ge.parse(text, path="k.ptx")["k"], ctas, threads, [out, x])
        assert profile.remarks == ()
        found.append((out.numpy().tolist(), x.numpy().tolist(), profile))
    (out0, x0, reference), (out1, x1, profile) = found
    assert out0 == out1
    assert x0 == x1
    assert reference.opcodes == profile.opcodes
    assert reference.warp_opcodes == profile.warp_opcodes
    assert reference.branches == profile.branches
    return out1, x1, profile


def test_lanes_of_several_functions_meet_at_one_instruction() -> None:
    """Each function shuffles with a mask of all lanes: they wait inside until the others have come."""
    bodies = [
        f"add.u32 %r3, %r0, {100 * place}; shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;" for place in range(4)
    ]
    out, _, _ = run(bodies)
    assert out == [(lane ^ 1) + 100 * ((lane ^ 1) & 3) for lane in range(32)]


def test_results_of_some_while_others_wait() -> None:
    """Function 0 returns at once, 1 and 2 meet, 3 goes round a loop before it meets lane by lane."""
    bodies = [
        "mov.b32 %r2, 7;",
        "vote.sync.ballot.b32 %r2, 1, 0x66666666;".replace("1,", "%p0,").replace(
            "vote", "setp.eq.u32 %p0, 0, 0; vote"
        ),
        "setp.eq.u32 %p0, 0, 1; vote.sync.ballot.b32 %r2, %p0, 0x66666666;",
        "L: add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, %r0; @%p0 bra L; bar.warp.sync 0x88888888;",
    ]
    out, _, _ = run(bodies)
    wanted = {0: lambda lane: 7, 1: lambda lane: 0x22222222, 2: lambda lane: 0x22222222, 3: lambda lane: lane}
    assert out == [wanted[lane & 3](lane) for lane in range(32)]


def test_a_flag_that_a_lane_in_another_function_sets() -> None:
    """The lanes of function 0 wait for a flag of function 3, whose lanes come last."""
    bodies = [
        "W: ld.volatile.global.u32 %r3, [%d1]; setp.eq.u32 %p0, %r3, 0; @%p0 bra W; mov.b32 %r2, %r3;",
        "mov.b32 %r2, 11;",
        "W: ld.volatile.global.u32 %r3, [%d1]; setp.eq.u32 %p0, %r3, 0; @%p0 bra W; add.u32 %r2, %r3, 1;",
        "mov.b32 %r2, 33; st.volatile.global.u32 [%d1], 5;",
    ]
    out, x, _ = run(bodies)
    assert out == [[5, 11, 6, 33][lane & 3] for lane in range(32)]
    assert x[0] == 5


def test_a_lock_that_lanes_take_one_after_the_other() -> None:
    """In every function, at once, over several warps and CTAs. What waits costs the square of the number of threads."""
    lock = (
        "T: atom.global.cas.b32 %r3, [%d1], 0, 1; setp.ne.u32 %p0, %r3, 0; @%p0 bra T; ld.volatile.global.u32 %r4, [%d1+4];"
        "add.u32 %r4, %r4, {amount}; st.volatile.global.u32 [%d1+4], %r4; membar.gl;"
        "atom.global.exch.b32 %r3, [%d1], 0; mov.b32 %r2, {amount};"
    )
    out, x, _ = run(
        [lock.replace("{amount}", str(amount)) for amount in (1, 10, 100, 1000)], threads=36, ctas=2
    )
    assert x[:2] == [0, 1111 * 18]
    assert out == [10 ** (place & 3) for place in range(72)]


def test_calls_inside_calls() -> None:
    """Function 0 and 1 call the others through the table again, for some of their lanes, which meet lanes of the outer call."""
    inner = (
        "and.b32 %r3, %r0, 4; setp.eq.u32 %p0, %r3, 0; add.u32 %r2, %r0, 500; @%p0 bra E;"
        "mov.u64 %d4, table; ld.global.u64 %d5, [%d4+{at}]; { .param .b32 a1; .param .b64 b1; .param .b32 c1;"
        "add.u32 %r4, %r0, 1000; st.param.b32 [a1], %r4; st.param.b64 [b1], %d1;"
        "Q: .calltargets f2, f3; call (c1), %d5, (a1, b1), Q; ld.param.b32 %r2, [c1]; } E: bar.warp.sync -1;"
    )
    leaf = "add.u32 %r2, %r0, {more}; bar.warp.sync -1;"
    bodies = [
        inner.replace("{at}", "16"),
        inner.replace("{at}", "24"),
        leaf.replace("{more}", "20"),
        leaf.replace("{more}", "30"),
    ]
    # every lane comes to a bar.warp.sync: those that call f2 and f3 from inside twice, so all others call f2 once more
    again = (
        "mov.b32 %r7, %r2; mov.u64 %d4, table; ld.global.u64 %d5, [%d4+16];"
        + CALL.replace("P:", "P2:")
        .replace(", P;", ", P2;")
        .replace("st.param.b32 [a], %r0", "st.param.b32 [a], 0")
        + "mov.b32 %r2, %r7;"
    )
    guard = "setp.le.u32 %p1, %r1, 1; and.b32 %r6, %r0, 4; setp.ne.and.u32 %p1, %r6, 0, %p1; @%p1 bra DONE;"
    out, _, _ = run(bodies, CALL + guard + again + "DONE:\n")
    wanted = []
    for lane in range(32):
        which = lane & 3
        if which >= 2:
            wanted.append(lane + (20, 30)[which - 2])
        else:
            wanted.append(lane + 1000 + (20, 30)[which] if lane & 4 else lane + 500)
    assert out == wanted


def test_a_barrier_of_the_block_behind_the_call() -> None:
    bodies = [f"mov.b32 %r2, {place};" for place in range(4)]
    bodies[3] += " st.global.u32 [%d1], 100; bar.warp.sync 0x88888888;"
    out, _, _ = run(
        bodies, CALL + "bar.sync 0; ld.global.u32 %r3, [%d1]; add.u32 %r2, %r2, %r3;\n", threads=96
    )
    assert out == [(place & 3) + 100 for place in range(96)]


def test_lanes_that_end_inside() -> None:
    bodies = [
        "mov.b32 %r2, 1; bar.warp.sync -1;",
        "exit;",
        "mov.b32 %r2, 3; bar.warp.sync -1;",
        "trap;".replace("trap", "exit"),
    ]
    out, _, _ = run(bodies)
    assert out == [(1, 0, 3, 0)[lane & 3] for lane in range(32)]


@pytest.mark.parametrize("seed", range(12))
def test_random_functions(seed: int) -> None:
    """Loops of different lengths with flags, exchanges among the lanes of a function, calls in loops."""
    rng = np.random.default_rng(seed)
    bodies = []
    for place in range(4):
        mask = sum(1 << lane for lane in range(32) if lane & 3 == place)
        parts = []
        for step in range(int(rng.integers(1, 4))):
            kind = rng.integers(0, 4)
            if kind == 0:
                parts.append(f"bar.warp.sync {mask}; add.u32 %r2, %r2, {int(rng.integers(1, 9))};")
            elif kind == 1:
                parts.append(f"shfl.sync.bfly.b32 %r3, %r0, 4, 31, {mask}; add.u32 %r2, %r2, %r3;")
            elif kind == 2:
                count = int(rng.integers(1, 6))
                parts.append(
                    f"and.b32 %r5, %r0, 7; add.u32 %r5, %r5, {count}; L{step}: sub.u32 %r5, %r5, 1; add.u32 %r2, %r2, 3;"
                    f"setp.ne.u32 %p0, %r5, 0; @%p0 bra L{step};"
                )
            else:
                parts.append("atom.global.add.u32 %r3, [%d1+8], 1; add.u32 %r2, %r2, 2;")
        bodies.append(" ".join(parts))
    loop = f"mov.b32 %r5, {int(rng.integers(1, 4))}; mov.b32 %r6, 0;\nAGAIN:\n" + CALL
    loop += "add.u32 %r6, %r6, %r2; add.u32 %r0, %r0, 1; sub.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0;"
    loop += "@%p2 bra AGAIN; mov.b32 %r2, %r6;\n"
    run(bodies, loop, threads=64)
