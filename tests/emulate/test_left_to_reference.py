"""What the compiled backend cannot do: put off to where it is reached, or left to the reference backend with a remark."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ENTRY = """.visible .entry k(.param .u64 out, .param .u32 n) {
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<3>;
ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n];
mov.u32 %r1, %tid.x; setp.ge.u32 %p, %r1, %r0;
"""
STORE = "mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r1;\nret; }\n"

HELPER = """.extern .func (.param .b32 r) helper (.param .b64 f, .param .b64 a);
"""
CALL = """{ .param .b64 f; .param .b64 a; .param .b32 r;
call (r), helper, (f, a); }
"""
ASSERT = """.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 g, .param .b64 s);
"""
CALL_ASSERT = """{ .param .b64 m; .param .b32 l; st.param.b64 [m], 0; st.param.b32 [l], 17;
call __assertfail, (m, m, l, m, m); }
"""
#: four bytes behind the parameter's end
OUTSIDE = "@%p ld.param.u32 %r2, [n+4];\n"

RECURSION = """.func (.param .b32 r) sum (.param .b32 n) {
.reg .pred %p; .reg .b32 %r<4>;
ld.param.b32 %r0, [n]; mov.u32 %r1, 0; setp.eq.u32 %p, %r0, 0; @%p bra DONE;
sub.u32 %r1, %r0, 1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), sum, (a); ld.param.b32 %r2, [b]; }
add.u32 %r1, %r2, %r0;
DONE: st.param.b32 [r], %r1; ret; }
"""
CALL_SUM = (
    "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), sum, (a); ld.param.b32 %r1, [b]; }\n"
)


def launch(backend: str, text: str, n: int, threads: int = 40) -> tuple[list[int], ge.Profile]:
    device = ge.Device(backend=backend)
    out = device.zeros(threads, np.uint32)
    profile = device.launch(ge.parse(HEAD + text, path="k.ptx")["k"], 1, threads, [out, np.uint32(n)])
    return out.numpy().tolist(), profile


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            HELPER + ENTRY + "@!%p bra GO;\n" + CALL + "GO:\n" + STORE, r"helper", id="undefined function"
        ),
        pytest.param(ENTRY + OUTSIDE + STORE, r"offset 4 of parameter 'n' \(4 bytes\)", id="bad access"),
    ],
)
def test_what_cannot_be_run_is_an_error_only_where_it_is_reached(text: str, reason: str) -> None:
    results = [launch(backend, text, 100) for backend in ("native", "lanes")]
    assert results[0] == results[1]
    assert results[0][0] == list(range(40))
    assert results[0][1].remarks == ()  # it was compiled all the same

    messages = []
    for backend in ("native", "lanes"):
        with pytest.raises(ge.EngineError, match=reason) as error:
            launch(backend, text, 35)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_an_assertion_that_fails_on_the_device_is_told_with_its_thread() -> None:
    text = ASSERT + ENTRY + "@!%p bra GO;\n" + CALL_ASSERT + "GO:\n" + STORE
    assert launch("native", text, 100)[1].remarks == ()
    with pytest.raises(ge.TrapError, match=r"\?:17: .*\n  device assertion failed in thread \(35, 0, 0\)"):
        launch("native", text, 35)


def test_a_kernel_left_to_the_reference_backend_says_why() -> None:
    text = (
        RECURSION
        + ENTRY
        + CALL_SUM
        + STORE.replace("[%d0], %r1", "[%d0], %r2").replace(
            "mul.wide.u32", "mov.u32 %r2, %r1; mov.u32 %r1, %tid.x; mul.wide.u32"
        )
    )
    (found, native), (expected, lanes) = (launch(backend, text, 0) for backend in ("native", "lanes"))
    assert found == expected == [n * (n + 1) // 2 for n in range(40)]
    (remark,) = native.remarks
    assert remark.startswith(
        "k.ptx:11:17: 'k' runs on the reference backend, which is slow: recursion in 'sum'"
    )
    assert "(k.ptx:4:" in remark
    # how it ran is no result
    assert native == lanes and lanes.remarks == ()
    assert native.to_dict() == lanes.to_dict() and "remarks" not in native.to_dict()
    assert ge.add_profiles([native, native, lanes]).remarks == (remark,)


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
ld.local.u32 %y1, [mine]; mad.lo.u32 %y0, %y0, 100000, %y1;
"""


@pytest.mark.parametrize("backend", ["native", "lanes"])
def test_every_activation_has_local_variables_of_its_own(backend: str) -> None:
    text = SQUARES.replace("STOP", "0") + ENTRY + CALL_SQUARES + STORE.replace("[%d0], %r1", "[%d0], %y0")
    found, profile = launch(backend, text, 0)
    sums = [n * (n + 1) * (2 * n + 1) // 6 for n in range(40)]
    assert found == [total * 100000 + 1000 + total for total in sums]
    # one frame of each function: what a thread declares
    assert profile.resources.local_bytes == 32
    assert profile.memory.local_bytes == 4 * sum(2 + 4 * (n + 1) for n in range(40))


@pytest.mark.parametrize("backend", ["native", "lanes"])
def test_recursion_that_runs_out_of_local_memory(backend: str) -> None:
    text = SQUARES.replace("STOP", "99").replace("own[4]", "own[100]") + ENTRY + CALL_SQUARES + STORE
    with pytest.raises(ge.TrapError, match=r"need more than 65,536 bytes\n.*thread \(0, 0, 0\)"):
        launch(backend, text, 0)


#: a tree of sums over 64 threads, as cooperative groups write it: unaligned barriers within a loop and behind a branch;
#: before the last barrier, threads below ``n`` go another way
TREE = """.visible .entry k(.param .u64 out, .param .u32 n) {
.shared .b32 s[64]; .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<3>;
ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1;
mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1; red.global.add.u32 [%d0], 100000;
mov.u32 %r4, 32;
LOOP: barrier.sync 0;
setp.ge.u32 %p, %r1, %r4; @%p bra NEXT;
shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r7, [%r3];
add.u32 %r7, %r7, %r6; st.shared.u32 [%r3], %r7;
NEXT: shr.u32 %r4, %r4, 1; setp.ne.u32 %p, %r4, 0; @%p bra LOOP;
setp.lt.u32 %p, %r1, %r0; @%p bra LOW;
barrier.sync 0; bra END;
LOW: barrier.sync 0;
END: ld.shared.u32 %r7, [s]; red.global.add.u32 [%d0], %r7; ret; }
"""


def test_unaligned_barriers_to_which_warps_come_whole_are_compiled() -> None:
    (found, native), (expected, lanes) = (launch(backend, TREE, 32, 64) for backend in ("native", "lanes"))
    assert found == expected == [100000 + 63 * 32] * 64
    assert native == lanes and native.remarks == ()


def test_a_warp_that_comes_to_a_barrier_in_parts_begins_again_on_the_reference_backend() -> None:
    kernel = ge.parse(HEAD + TREE, path="k.ptx")["k"]
    device = ge.Device()
    out = device.zeros(64, np.uint32)
    profiles = [device.launch(kernel, 1, 64, [out, np.uint32(n)]) for n in (32, 40, 32)]
    # what had been added before the barrier is there once
    assert out.numpy().tolist() == [3 * (100000 + 63 * 32)] * 64
    assert profiles[0].remarks == ()
    for profile in profiles[1:]:
        (remark,) = profile.remarks
        assert "which is slow: a warp came to barrier.sync in parts (k.ptx:" in remark
    assert profiles[1] == launch("lanes", TREE, 40, 64)[1]
