"""What the compiled backend cannot do: put off to where it is reached, or left to the reference backend with a remark."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit import backend as llvm_backend
from gpuperf_engine.memory.arena import Memory
from gpuperf_engine.memory.undo import Undo
from tests.support import head, launch, refused

HEAD = head("8.0", "sm_80")
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


def run(backend: str, text: str, n: int, threads: int = 40) -> tuple[list[int], ge.Profile]:
    (out,), profile = launch(backend, HEAD + text, 1, threads, [np.zeros(threads, np.uint32), np.uint32(n)])
    return out.tolist(), profile


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
    results = [run(backend, text, 100) for backend in ("llvm", "reference")]
    assert results[0] == results[1]
    assert results[0][0] == list(range(40))
    assert results[0][1].remarks == ()  # it was compiled all the same

    messages = []
    for backend in ("llvm", "reference"):
        with pytest.raises(ge.EngineError, match=reason) as error:
            run(backend, text, 35)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_an_assertion_that_fails_on_the_device_is_told_with_its_thread() -> None:
    text = ASSERT + ENTRY + "@!%p bra GO;\n" + CALL_ASSERT + "GO:\n" + STORE
    assert run("llvm", text, 100)[1].remarks == ()
    with pytest.raises(ge.TrapError, match=r"\?:17: .*\n  device assertion failed in thread \(35, 0, 0\)"):
        run("llvm", text, 35)


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
    (found, native), (expected, lanes) = (run(backend, TREE, 32, 64) for backend in ("llvm", "reference"))
    assert found == expected == [100000 + 63 * 32] * 64
    assert native == lanes and native.remarks == ()


def test_a_launch_begins_again_where_a_warp_is_diverged_at_a_barrier() -> None:
    kernel = ge.parse(HEAD + TREE, path="k.ptx")["k"]
    device = ge.Device()
    out = device.zeros(64, np.uint32)
    profiles = [device.launch(kernel, 1, 64, [out, np.uint32(n)]) for n in (32, 40, 32)]
    # what had been added before the barrier is there once
    assert out.numpy().tolist() == [3 * (100000 + 63 * 32)] * 64
    assert [profile.remarks for profile in profiles] == [()] * 3
    assert profiles[1] == run("reference", TREE, 40, 64)[1]


@pytest.mark.parametrize("barrier", ["barrier.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;"])
def test_only_launches_that_may_begin_again_keep_the_memory(
    barrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no branch parts the lanes of a warp, or those that are left are all, none is diverged."""
    saved: list[Memory] = []
    begin = Undo.__init__

    def note(self: Undo, memory: Memory) -> None:
        saved.append(memory)
        begin(self, memory)

    monkeypatch.setattr(Undo, "__init__", note)
    text = ENTRY + f"@%p bra NEXT; add.u32 %r1, %r1, 5;\nNEXT: {barrier} @%p exit;\n{barrier}\n" + STORE
    (out,), _ = launch("llvm", head("8.0", "sm_90") + text, 1, 40, [np.zeros(45, np.uint32), np.uint32(30)])
    assert out[:40].tolist() == [0] * 5 + list(range(5, 35)) + [0] * 5 and not saved
    branch = text.replace("@%p exit;", f"@%p bra LOW; {barrier} bra END;\nLOW:").replace(
        "mul.wide", "END: mul.wide"
    )
    (out,), _ = launch("llvm", head("8.0", "sm_90") + branch, 1, 40, [np.zeros(45, np.uint32), np.uint32(30)])
    assert out.tolist()[5:35] == list(range(5, 35)) and len(saved) == 1


#: odd threads arrive at the barrier of the cluster for themselves
CLUSTER = """.visible .entry k(.param .u64 out, .param .u32 n) .reqnctapercluster 2, 1, 1 {
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<3>;
ld.param.u64 %d0, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.ne.u32 %p, %r2, 0; @%p bra ODD;
barrier.cluster.arrive; barrier.cluster.wait; bra END;
ODD: barrier.cluster.arrive; barrier.cluster.wait;
END: mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1; red.global.add.u32 [%d0], %r1; ret; }
"""


def in_clusters(backend: str) -> ge.Profile:
    (out,), profile = launch(
        backend, head("8.0", "sm_90") + CLUSTER, 2, 64, [np.zeros(64, np.uint32), np.uint32(0)]
    )
    assert out.tolist() == [2 * thread for thread in range(64)]
    return profile


def test_a_warp_diverged_at_the_barrier_of_its_cluster_is_compiled() -> None:
    native, lanes = (in_clusters(backend) for backend in ("llvm", "reference"))
    assert native == lanes and native.remarks == ()


def test_a_kernel_left_to_the_reference_backend_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise RuntimeError("no memory for code")

    lanes = in_clusters("reference")
    monkeypatch.setenv("GPUPERF_CACHE", "off")
    monkeypatch.setattr(llvm_backend, "compile_object", refuse)
    native = in_clusters("llvm")
    # else this test would fail
    assert [reason.partition(" (")[2] for reason in refused] == ["no memory for code)"]
    refused.clear()
    remark, unchecked = native.remarks
    assert "'k': races are detected on the backend 'llvm' only" in unchecked
    assert (
        "'k' runs on the reference backend, which is slow: LLVM cannot generate code for it on this host (no memory"
        in remark
    )
    # how it ran is not a result
    assert native == lanes and lanes.remarks == ()
    assert native.to_dict() == lanes.to_dict() and "remarks" not in native.to_dict()
    assert ge.add_profiles([native, native, lanes]).remarks == (remark, unchecked)


#: each third of the threads comes to a barrier of its own, some with a result, within a loop
THIRDS = """.visible .entry k(.param .u64 out, .param .u32 n) {
.shared .b32 s[3]; .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>;
ld.param.u64 %d0, [out]; mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3; mul.wide.u32 %d1, %r1, 4; add.u64 %d0, %d0, %d1;
mov.u32 %r3, 0; mov.u32 %r4, 0;
LOOP: setp.eq.u32 %p0, %r2, 0; @%p0 bra NONE; setp.eq.u32 %p0, %r2, 1; @%p0 bra ONE;
setp.lt.u32 %p1, %r1, 30; barrier.red.popc.u32 %r5, 0, %p1; add.u32 %r4, %r4, %r5; bra NEXT;
NONE: setp.lt.u32 %p1, %r1, 60; barrier.red.popc.u32 %r5, 0, %p1; mad.lo.u32 %r4, %r5, 100, %r4; bra NEXT;
ONE: setp.ge.u32 %p1, %r1, 90; barrier.red.or.pred %p2, 0, %p1; selp.u32 %r5, 10000, 20000, %p2; add.u32 %r4, %r4, %r5;
NEXT: add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 2; @%p0 bra LOOP;
st.global.u32 [%d0], %r4; ret; }
"""


def test_results_of_barriers_at_which_warps_are_diverged() -> None:
    """The predicates of all threads count, from whichever instruction."""
    (found, native), (expected, lanes) = (run(backend, THIRDS, 0, 96) for backend in ("llvm", "reference"))
    count = len(range(2, 30, 3)) + len(range(0, 60, 3)) + len(range(91, 96, 3))
    assert found == expected == [2 * (100 * count, 10000, count)[thread % 3] for thread in range(96)]
    assert native == lanes and native.remarks == ()
