"""CTA barriers: of all threads, of some, in both halves of a pipeline, with reductions, without alignment, and gone wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gpuperf_engine.jit.slow_path import NativeWarp
from gpuperf_engine.simt.barriers import Barriers
from tests.engine.running import collect
from tests.oracle import kernels


def test_a_guarded_barrier(backend: str) -> None:
    values, profile = collect(
        backend,
        """
        mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bar.sync 1, 32;
        mov.u32 %r0, 1;
        """,
        block=64,
    )
    assert values.tolist() == [1] * 64
    assert profile.opcodes["bar.sync"] == 64
    assert profile.thread_instructions_predicated_on == profile.thread_instructions - 32


# Warps that are diverged at barriers without ``.aligned``

#: the same barrier in both branches, by odd and by even threads, of which some leave before
BRANCHES = """
    mov.u32 %r1, %tid.x; mov.u32 %r0, %ctaid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p0, %r2, 0; setp.lt.u32 %p1, %r1, 21;
    {before}
    @%p0 bra EVEN;
    {barrier} mad.lo.u32 %r0, %r0, 3, %r1; bra NEXT;
EVEN: {barrier} add.u32 %r0, %r0, 1000;
NEXT: {barrier} add.u32 %r0, %r0, 7;
"""
#: lanes of a warp come to the barrier in a loop, each from the branch that it took the time before
LOOP = """
    mov.u32 %r1, %tid.x; mov.u32 %r0, 0; mov.u32 %r3, 0; setp.lt.u32 %p1, %r1, 40;
    {before}
AGAIN: {barrier} add.u32 %r3, %r3, 1; add.u32 %r2, %r1, %r3; rem.u32 %r2, %r2, 3; setp.eq.u32 %p0, %r2, 0;
    setp.lt.u32 %p2, %r3, 4; @%p0 bra OTHER;
    mad.lo.u32 %r0, %r0, 5, %r3; @%p2 bra AGAIN; bra END;
OTHER: xor.b32 %r0, %r0, %r1; @%p2 bra AGAIN;
END:
"""
#: and from different depths of a recursive function
DEPTHS = """
    .func (.param .b32 r) deep (.param .b32 n, .param .b32 x) {{
    .reg .pred %p<4>; .reg .b32 %r<12>;
    ld.param.b32 %r4, [n]; ld.param.b32 %r1, [x]; mov.u32 %r0, %r1; setp.eq.u32 %p3, %r4, 0; @%p3 bra BOTTOM;
    sub.u32 %r2, %r4, 1;
    {{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r2; st.param.b32 [b], %r1;
    call (c), deep, (a, b); ld.param.b32 %r0, [c]; }}
    mad.lo.u32 %r0, %r0, 3, %r4; bra DONE;
    BOTTOM: setp.lt.u32 %p1, %r1, 9; {barrier}
    DONE: st.param.b32 [r], %r0; ret; }}
"""
CALLED = """
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3;
    {{ .param .b32 a; .param .b32 b; .param .b32 c; st.param.b32 [a], %r2; st.param.b32 [b], %r1;
    call (c), deep, (a, b); ld.param.b32 %r0, [c]; }}
"""
FORMS = {
    "sync": "barrier.sync 3;",
    "popc": "barrier.red.popc.u32 %r7, 1, %p1; add.u32 %r0, %r0, %r7;",
    "or": "barrier.red.or.pred %p3, 0, %p1; selp.u32 %r7, 3, 5, %p3; add.u32 %r0, %r0, %r7;",
    "and": "barrier.red.and.pred %p3, 0, %p1; selp.u32 %r7, 7, 11, %p3; add.u32 %r0, %r0, %r7;",
    "cluster": "barrier.cluster.arrive; add.u32 %r0, %r0, 1; barrier.cluster.wait;",
}
#: the same, but that the manual wants whole warps: GPUs from sm_70 on count threads
ALIGNED = {
    **{
        f"aligned {name}": text.replace("barrier.", "bar.")
        for name, text in FORMS.items()
        if name != "cluster"
    },
    "aligned cluster": "barrier.cluster.arrive.aligned; add.u32 %r0, %r0, 1; barrier.cluster.wait.aligned;",
}
FORMS |= ALIGNED


EXIT = "setp.ge.u32 %p3, %r1, 50; @%p3 exit;"


@pytest.mark.parametrize(
    ("kernel", "form", "before"),
    [
        *((BRANCHES, form, "" if form == "popc" else EXIT) for form in FORMS),
        *((LOOP, "popc", EXIT), (LOOP, "cluster", ""), (CALLED, "and", ""), (CALLED, "cluster", "")),
        *((LOOP, "aligned popc", EXIT), (LOOP, "aligned cluster", ""), (CALLED, "aligned and", "")),
        (CALLED, "aligned cluster", ""),
    ],
)
def test_diverged_warps(kernel: str, form: str, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In compiled code, with the values of the interpreter and the counts of the reference backend."""
    given = {"barrier": FORMS[form], "before": before}
    body, function = kernel.format(**given), DEPTHS.format(**given) if kernel is CALLED else ""
    arguments: dict[str, Any] = {"before": function, "grid": 4, "block": 72}
    launched = {"cluster": 2} if form.endswith("cluster") else {}
    expected, counted = collect("reference", body, **arguments, **launched)
    # where all branches lead to one aligned barrier, the lanes come to it together
    broken = form in ALIGNED and kernel is not LOOP
    assert any("[aligned-barrier]" in note for note in counted.notes) == broken
    attend = NativeWarp.attend
    left: list[int] = []

    def leave(warp: NativeWarp, status: int) -> None:
        left.append(status)
        attend(warp, status)

    monkeypatch.setattr(NativeWarp, "attend", leave)
    found, profile = collect("llvm", body, **arguments, **launched)
    # at most to begin again, with code for warps that are diverged
    assert len(left) <= 1 and profile.remarks == ()
    assert found.tolist() == expected.tolist() and profile == counted
    assert found.tolist() == kernels.collect(body, **arguments, **launched)


# The bookkeeping on its own


def test_a_split_warp_counts_whole_once_all_its_lanes_have_come() -> None:
    barriers = Barriers()
    live = {0: 0xFFFF, 1: 0xFFFFFFFF}  # warp 0 has sixteen threads
    barriers.arrive(0, 0, 0x00FF, live=0xFFFF, expected=64, waits=True)
    barriers.arrive(0, 1, 0xFFFFFFFF, live=0xFFFFFFFF, expected=64, waits=True)
    assert barriers.complete(live) == []
    barriers.arrive(0, 0, 0xFF00, live=0xFFFF, expected=64, waits=True)
    (done,) = barriers.complete(live)
    assert dict(done.waiting) == {0: 0xFFFF, 1: 0xFFFFFFFF}


def test_a_barrier_of_all_completes_when_the_last_missing_lanes_exit() -> None:
    barriers = Barriers()
    barriers.arrive(3, 0, 0x0F, live=0xFF, expected=0, waits=True, holds=0x05)
    assert barriers.complete({0: 0xFF}) == []
    (done,) = barriers.complete({0: 0x0F})
    assert (done.true, done.false) == (2, 2)
    assert barriers.state() == ()
