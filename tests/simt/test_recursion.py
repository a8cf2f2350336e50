"""Recursive functions: every activation has registers, parameters and local variables of its own, whichever way its lanes go."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.oracle.scalar import Buffer
from tests.oracle.scalar import run as oracle
from tests.support import head

HEAD = head("8.0", "sm_80")
BACKENDS = ("llvm", "reference")
THREADS = 40


def entry(body: str) -> str:
    """A kernel that stores ``%r9`` of each thread; ``%r0`` is n and ``%r1`` the thread."""
    return f"""
.visible .entry k(.param .u64 out, .param .u32 n) {{
.reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %d<4>;
ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1;
{body}
st.global.u32 [%d0], %r9; ret; }}
"""


def calls(function: str, *arguments: str) -> str:
    names = [f"a{place}" for place in range(len(arguments))]
    declared = "".join(
        f".param .b32 {name}; st.param.b32 [{name}], {given}; " for name, given in zip(names, arguments)
    )
    return (
        f"{{ {declared}.param .b32 b; call (b), {function}, ({', '.join(names)}); ld.param.b32 %r9, [b]; }}\n"
    )


def launch(
    backend: str, text: str, n: int, threads: int = THREADS, demand: str = "values", limit: int | None = None
) -> tuple[list[int], ge.Profile]:
    device = ge.Device(backend=backend)
    out = device.zeros(threads, np.uint32)
    kernel = ge.parse(HEAD + text, path="k.ptx")["k"]
    profile = device.launch(kernel, 1, threads, [out, np.uint32(n)], demand=demand, max_instructions=limit)
    assert profile.remarks == ()
    return out.numpy().tolist() if demand == "values" else [], profile


def both(text: str, n: int, threads: int = THREADS) -> list[int]:
    """What both backends find, with the same counts."""
    (found, native), (expected, lanes) = (launch(backend, text, n, threads) for backend in BACKENDS)
    assert found == expected and native == lanes
    return found


#: two calls of which the first result is needed behind the second
FIBONACCI = """.func (.param .b32 r) fib (.param .b32 n) {
.reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d; .reg .b16 %h;
ld.param.b32 %r0, [n]; setp.lt.u32 %p, %r0, 2; @%p bra DONE;
cvt.u16.u32 %h, %r0; mul.wide.u32 %d, %r0, %r0;
sub.u32 %r1, %r0, 1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), fib, (a); ld.param.b32 %r2, [b]; }
sub.u32 %r1, %r0, 2; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), fib, (a); ld.param.b32 %r3, [b]; }
cvt.u32.u16 %r4, %h; mul.lo.u32 %r4, %r4, %r4; cvt.u32.u64 %r5, %d; sub.u32 %r4, %r4, %r5;
add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;
DONE: st.param.b32 [r], %r0; ret; }
"""


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_lanes_at_different_depths() -> None:
    """Values are the host's; what was executed is what the oracle counts, one thread at a time."""
    text = FIBONACCI + entry("and.b32 %r2, %r1, 5;" + calls("fib", "%r2"))
    assert both(text, 0) == [fibonacci(thread & 5) for thread in range(THREADS)]
    told = oracle(
        HEAD + text, "k", grid=1, block=THREADS, args=[Buffer(np.zeros(THREADS, np.uint32)), np.uint32(0)]
    )
    profile = launch("llvm", text, 0)[1]
    assert dict(profile.opcodes) == dict(told.opcodes)
    for demand in ("control", "addresses"):
        assert launch("llvm", text, 0, demand=demand)[1].opcodes == profile.opcodes


#: parameters in registers, given back in the other order: m + (n − 1) · 10 + (m − 2) · 100 …
SWAPPED = """.func (.reg .b32 %o) swap (.reg .b32 %a, .reg .b32 %b) {
.reg .pred %p; .reg .b32 %t;
mov.u32 %o, 0; setp.eq.u32 %p, %a, 0; @%p ret;
sub.u32 %t, %a, 1; call (%o), swap, (%b, %t); mad.lo.u32 %o, %o, 10, %a; ret; }
"""


def swap(a: int, b: int) -> int:
    return 0 if a == 0 else swap(b, a - 1) * 10 + a


def test_parameters_in_registers() -> None:
    text = SWAPPED + entry("and.b32 %r2, %r1, 3; call (%r9), swap, (%r0, %r2);")
    assert both(text, 4) == [swap(4, thread & 3) for thread in range(THREADS)]


#: each calls the other through a table, some lanes themselves
MUTUAL = """.func (.param .b32 r) even (.param .b32 n, .param .b32 x);
.func (.param .b32 r) odd (.param .b32 n, .param .b32 x);
.global .align 8 .u64 table[2] = {even, odd};
"""
BODY = """.func (.param .b32 r) NAME (.param .b32 n, .param .b32 x) {
.reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<3>; .local .align 4 .b32 own;
ld.param.b32 %r0, [n]; ld.param.b32 %r1, [x]; mad.lo.u32 %r2, %r0, FACTOR, %r1; st.local.b32 [own], %r2;
mov.u32 %r3, 1; setp.eq.u32 %p, %r0, 0; @%p bra DONE;
sub.u32 %r4, %r0, 1; add.u32 %r5, %r0, %r1; and.b32 %r5, %r5, 1;
mul.wide.u32 %d0, %r5, 8; mov.u64 %d1, table; add.u64 %d1, %d1, %d0; ld.global.u64 %d2, [%d1];
SHAPE: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r4; st.param.b32 [b], %r1;
call (c), %d2, (a, b), SHAPE; ld.param.b32 %r3, [c]; }
DONE: ld.local.b32 %r6, [own]; mad.lo.u32 %r3, %r3, 3, %r6; st.param.b32 [r], %r3; ret; }
"""


def mutual(n: int, x: int, factor: int) -> int:
    inner = 1 if n == 0 else mutual(n - 1, x, (7, 11)[(n + x) & 1])
    return inner * 3 + n * factor + x


def test_calls_through_pointers() -> None:
    text = MUTUAL + "".join(
        BODY.replace("NAME", name).replace("FACTOR", str(factor))
        for name, factor in (("even", 7), ("odd", 11))
    )
    text += entry("and.b32 %r2, %r1, 3; add.u32 %r2, %r2, %r0;" + calls("even", "%r2", "%r1"))
    assert both(text, 3) == [mutual(3 + (thread & 3), thread, 7) for thread in range(THREADS)]


#: all lanes vote, each from the depth that it is at
VOTE = """.func (.param .b32 r) deep (.param .b32 n, .param .b32 x) {
.reg .pred %p<2>; .reg .b32 %r<9>;
ld.param.b32 %r0, [n]; ld.param.b32 %r1, [x]; setp.eq.u32 %p0, %r0, 0; @%p0 bra BOTTOM;
sub.u32 %r2, %r0, 1;
{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r2; st.param.b32 [b], %r1; call (c), deep, (a, b);
ld.param.b32 %r3, [c]; }
xor.b32 %r3, %r3, %r0; bra DONE;
BOTTOM: and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; vote.sync.ballot.b32 %r3, %p1, -1;
DONE: st.param.b32 [r], %r3; ret; }
"""


def test_lanes_that_meet_at_different_depths() -> None:
    text = VOTE + entry("and.b32 %r2, %r1, 3;" + calls("deep", "%r2", "%r1"))
    turned = [0, 1, 2 ^ 1, 3 ^ 2 ^ 1]
    assert both(text, 0, 64) == [0xAAAAAAAA ^ turned[thread & 3] for thread in range(64)]


#: a lock of the block, taken at the bottom of the recursion by one lane at a time
LOCK = """.func (.param .b32 r) locked (.param .b32 n, .param .b32 x) {
.reg .pred %p<2>; .reg .b32 %r<9>;
ld.param.b32 %r0, [n]; ld.param.b32 %r1, [x]; setp.ne.u32 %p0, %r0, 0; @%p0 bra DEEPER;
TAKE: atom.shared.cas.b32 %r2, [lock], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra TAKE;
ld.volatile.shared.u32 %r3, [lock+4]; add.u32 %r3, %r3, 1; st.volatile.shared.u32 [lock+4], %r3;
atom.shared.exch.b32 %r2, [lock], 0; mov.u32 %r3, 0; bra DONE;
DEEPER: sub.u32 %r2, %r0, 1;
{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r2; st.param.b32 [b], %r1; call (c), locked, (a, b);
ld.param.b32 %r3, [c]; }
add.u32 %r3, %r3, %r0; add.u32 %r3, %r3, %r1;
DONE: st.param.b32 [r], %r3; ret; }
"""


def test_lanes_that_take_turns_at_different_depths() -> None:
    text = (
        ".shared .b32 lock[2];\n"
        + LOCK
        + entry(
            "st.shared.u32 [lock], 0; st.shared.u32 [lock+4], 0; bar.sync 0; and.b32 %r2, %r1, 3;"
            + calls("locked", "%r2", "%r1")
            + "bar.sync 0; ld.shared.u32 %r3, [lock+4]; mad.lo.u32 %r9, %r3, 1000, %r9;"
        )
    )
    expected = [64 * 1000 + sum(range((thread & 3) + 1)) + (thread & 3) * thread for thread in range(64)]
    assert both(text, 0, 64) == expected


def test_lanes_that_end_inside() -> None:
    """Odd threads end at the bottom: others of their warp go on as if these had never been."""
    text = FIBONACCI.replace("@%p bra DONE;", "@!%p bra ON; mov.u32 %r7, %tid.x; and.b32 %r7, %r7, 1; "
                             "setp.ne.u32 %p, %r7, 0; @%p exit; bra DONE; ON:")  # fmt: skip
    text += entry("mov.u32 %r9, 0; and.b32 %r2, %r1, 5;" + calls("fib", "%r2"))
    assert both(text, 0) == [0 if thread & 1 else fibonacci(thread & 5) for thread in range(THREADS)]


#: adds the squares up to n in a variable of each activation, whose address the next one is given
SQUARES = """.func (.param .b32 r) squares(.param .b32 n, .param .b64 p) {
.local .align 8 .b32 own[4]; .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<3>;
ld.param.b32 %r0, [n]; ld.param.b64 %d0, [p];
mul.lo.u32 %r1, %r0, %r0; st.local.u32 [own+4], %r1;
setp.eq.u32 %p, %r0, STOP; @%p bra DONE;
sub.u32 %r2, %r0, 1; mov.u64 %d1, own; cvta.local.u64 %d1, %d1; add.u64 %d1, %d1, 4;
{ .param .b32 a; .param .b64 b; .param .b32 c; st.param.b32 [a], %r2; st.param.b64 [b], %d1; call (c), squares, (a, b); }
DONE: ld.local.u32 %r1, [own+4]; ld.u32 %r3, [%d0]; add.u32 %r3, %r3, %r1; st.u32 [%d0], %r3;
st.param.b32 [r], %r1; ret; }
"""
CALL_SQUARES = """.local .b32 mine; .reg .b64 %x; .reg .b32 %y<2>;
st.local.u32 [mine], 1000; mov.u64 %x, mine; cvta.local.u64 %x, %x;
{ .param .b32 a; .param .b64 b; .param .b32 c; st.param.b32 [a], %r1; st.param.b64 [b], %x; call (c), squares, (a, b);
ld.param.b32 %y0, [c]; }
ld.local.u32 %y1, [mine]; mad.lo.u32 %r9, %y0, 100000, %y1;
"""


def test_every_activation_has_local_variables_of_its_own() -> None:
    text = SQUARES.replace("STOP", "0") + entry(CALL_SQUARES)
    sums = [n * (n + 1) * (2 * n + 1) // 6 for n in range(THREADS)]
    assert both(text, 0) == [total * 100000 + 1000 + total for total in sums]
    profile = launch("llvm", text, 0)[1]
    # one frame of each function: what a thread declares
    assert profile.resources.local_bytes == 32
    assert profile.memory.local_bytes == 4 * sum(2 + 4 * (n + 1) for n in range(THREADS))


def _told(text: str, n: int, limit: int | None = None) -> str:
    """The error of both backends."""
    messages = []
    for backend in BACKENDS:
        with pytest.raises(ge.EngineError) as caught:
            launch(backend, text, n, limit=limit)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    return messages[0]


def test_no_more_room_for_local_variables() -> None:
    text = SQUARES.replace("STOP", "99").replace("own[4]", "own[100]") + entry(CALL_SQUARES)
    message = _told(text, 0)
    assert "need more than 65,536 bytes" in message and "thread (0, 0, 0)" in message


def test_recursion_without_end() -> None:
    text = FIBONACCI.replace("setp.lt.u32 %p, %r0, 2", "setp.eq.u32 %p, %r0, 5000") + entry(
        calls("fib", "%r1")
    )
    message = _told(text, 0)
    assert "more than 1024 nested calls" in message and "does the recursion end?" in message


def test_a_runaway_of_bounded_depth() -> None:
    """Some 10^20 calls, at most 100 inside one another."""
    text = FIBONACCI + entry(calls("fib", "%r0"))
    assert "1,000 allowed: the kernel does not seem to end" in _told(text, 100, limit=1000)
