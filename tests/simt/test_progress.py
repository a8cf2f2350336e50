"""Threads that wait for each other make progress, and those that wait in vain are found out."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.simt import launch as simt_launch
from tests.engine.running import collect, launch
from tests.support import head

LOCK = ".global .align 4 .u32 lock; .global .align 4 .u32 counter; .global .align 4 .u32 flag;"
INCREMENT = """
        ld.volatile.global.u32 %r3, [counter];
        add.u32 %r3, %r3, 1;
        st.volatile.global.u32 [counter], %r3;
        membar.gl;
        atom.global.exch.b32 %r4, [lock], 0;
"""
#: the lock is taken and released inside one trip of the loop
TRY_LOCK = f"""
        mov.u32 %r0, 0;
    TRY:
        atom.global.cas.b32 %r2, [lock], 0, 1;
        setp.ne.u32 %p1, %r2, 0;
        @%p1 bra AGAIN;
        {INCREMENT}
        mov.u32 %r0, %r3;
    AGAIN:
        setp.eq.u32 %p2, %r0, 0;
        @%p2 bra TRY;
"""
#: lanes that got the lock leave the loop and release it behind: only lanes that leave the others early get there
SPIN_LOCK = f"""
    SPIN:
        atom.global.cas.b32 %r2, [lock], 0, 1;
        setp.ne.u32 %p1, %r2, 0;
        @%p1 bra SPIN;
        {INCREMENT}
        mov.u32 %r0, %r3;
"""


@pytest.mark.parametrize("body", [TRY_LOCK, SPIN_LOCK], ids=["inside", "behind"])
def test_a_lock_inside_a_warp(backend: str, body: str) -> None:
    values, _ = collect(backend, body, before=LOCK, block=10)
    assert sorted(values.tolist()) == list(range(1, 11))


WAIT_FOR_THE_LAST = (
    head("8.0", "sm_90")
    + """
.visible .entry k(.param .u64 flag, .param .u32 last) {
    .reg .b64 %rd<2>; .reg .b32 %r<6>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [flag]; ld.param.u32 %r1, [last];
    mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;
    @%p1 ret;
    mov.u32 %r3, %ctaid.x; setp.ne.u32 %p1, %r3, %r1;
    @%p1 bra WAIT;
    st.volatile.global.u32 [%rd1], 1;
WAIT:
    ld.volatile.global.u32 %r4, [%rd1]; setp.eq.u32 %p2, %r4, 0;
    @%p2 bra WAIT;
    ret;
}
"""
)


@pytest.mark.parametrize(("grid", "cluster"), [(5, None), (8, 2)])
def test_blocks_that_wait_for_one_that_has_not_started(
    backend: str, monkeypatch: pytest.MonkeyPatch, grid: int, cluster: int | None
) -> None:
    """Two blocks are resident at first, then four, then eight."""
    monkeypatch.setattr(simt_launch, "RESIDENT_THREADS", 128)
    monkeypatch.setattr(simt_launch, "COOPERATIVE_THREADS", 512)
    device = ge.Device(backend=backend)
    kernel = ge.parse(WAIT_FOR_THE_LAST)["k"]
    flag = device.zeros(1, np.uint32)
    device.launch(kernel, grid, 64, [flag, grid - 1], cluster=cluster)
    assert flag.numpy().tolist() == [1]
    never = "a lock that is never released, or a flag that is never set"
    with pytest.raises(ge.Deadlock, match=never):
        device.launch(kernel, grid, 64, [device.zeros(1, np.uint32), grid], cluster=cluster)
    with pytest.raises(ge.Deadlock, match=f"(?s)8 threads running.*{never}"):
        device.launch(kernel, 10, 64, [device.zeros(1, np.uint32), 9], cluster=cluster)


def test_as_many_blocks_wait_as_an_h100_holds() -> None:
    device = ge.Device()
    flag = device.zeros(1, np.uint32)
    device.launch(ge.parse(WAIT_FOR_THE_LAST)["k"], 132 * 2, 1024, [flag, 132 * 2 - 1])
    assert flag.numpy().tolist() == [1]


@pytest.mark.parametrize("body", [TRY_LOCK, SPIN_LOCK], ids=["inside", "behind"])
def test_a_lock_between_blocks(backend: str, body: str) -> None:
    leader = f"""
        mov.u32 %r1, %tid.x;
        mov.u32 %r0, 0;
        setp.ne.u32 %p3, %r1, 0;
        @%p3 bra END;
        {body}
    END:
    """
    values, _ = collect(backend, leader, before=LOCK, grid=3, block=64)
    assert sorted(values[values != 0].tolist()) == [1, 2, 3]
    assert values.nonzero()[0].tolist() == [0, 64, 128]


def test_lanes_that_left_a_lock_early_are_gathered_at_the_barrier(backend: str) -> None:
    body = f"""
        mov.u32 %r1, %tid.x;
        {SPIN_LOCK}
        setp.gt.u32 %p3, %r3, 5;
        bar.red.popc.u32 %r5, 0, %p3;
        mad.lo.u32 %r0, %r5, 100, %r3;
        """
    values, profile = collect(backend, body, before=LOCK, block=8)
    assert sorted(values.tolist()) == [300 + turn for turn in range(1, 9)]
    assert profile.opcodes["bar.red.popc.u32"] == 8
    # the warp leaves the barrier as one split again
    assert profile.warp_opcodes["mad.lo.u32"] == 2


GRID_BARRIER = """
        mov.u32 %r1, %tid.x;
        mov.u32 %r6, %nctaid.x;
        mov.u32 %r5, 0;
        mov.u32 %r0, 0;
    ROUND:
        bar.sync 0;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra WAITED;
        atom.global.add.u32 %r2, [counter], 1;
        add.u32 %r7, %r5, 1;
        mul.lo.u32 %r7, %r7, %r6;
    SPIN:
        ld.acquire.gpu.global.u32 %r3, [counter];
        setp.lt.u32 %p2, %r3, %r7;
        @%p2 bra SPIN;
        mov.u32 %r0, %r3;
    WAITED:
        bar.sync 0;
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p3, %r5, 3;
        @%p3 bra ROUND;
"""


def test_a_barrier_of_the_whole_grid(backend: str) -> None:
    values, _ = collect(backend, GRID_BARRIER, before=LOCK, grid=5, block=64, cooperative=True)
    assert values[::64].tolist() == [15] * 5
    assert not values.reshape(5, 64)[:, 1:].any()


def test_a_runaway_loop_ends_at_its_budget(backend: str) -> None:
    with pytest.raises(ge.EngineError, match="1,000 allowed") as caught:
        launch(
            backend,
            """
            mov.u32 %r1, 0;
        LOOP:
            add.u32 %r1, %r1, 1;
            ld.volatile.global.u32 %r0, [flag];
            setp.eq.u32 %p1, %r0, 0;
            @%p1 bra LOOP;
            """,
            before=LOCK,
            max_instructions=1000,
        )
    assert str(caught.value).startswith("k.ptx:")
    assert "thread (0, 0, 0) of block (0, 0, 0) of kernel 'k'" in str(caught.value)
    assert "max_instructions" in str(caught.value)


def test_the_same_schedule_every_time_and_on_both_backends() -> None:
    """Who gets a contended lock when is defined, and so are the counts of a spinning loop."""
    found = [
        collect(name, SPIN_LOCK, before=LOCK, grid=2, block=4) for name in ("reference", "llvm", "reference")
    ]
    for values, profile in found[1:]:
        np.testing.assert_array_equal(values, found[0][0])
        assert profile.to_dict() == found[0][1].to_dict()


def test_a_loop_behind_a_look_at_the_clock_ends_at_the_budget(backend: str) -> None:
    """No state of the launch comes again where time counts, read or not, so nothing shows that it runs in circles."""
    loop = "AGAIN: ld.volatile.global.u32 %r1, [lock]; setp.eq.u32 %p0, %r1, 0; @%p0 bra AGAIN; ret;"
    with pytest.raises(ge.Deadlock):
        launch(backend, loop, before=LOCK, max_instructions=6_000)
    with pytest.raises(ge.BudgetExceeded):
        launch(backend, "mov.u32 %r0, %clock;" + loop, before=LOCK, max_instructions=6_000)


#: as nvcc compiles ``grid.sync()``: the address of the grid's workspace, and a trap if there is none
GRID_SYNC = """
    .loc 1 12 5
    .loc 2 66 9, inlined_at 1 12 5
    mov.u32 %r1, %envreg2;
    mov.u32 %r2, %envreg1;
    or.b32 %r3, %r1, %r2;
    setp.ne.u32 %p1, %r3, 0;
    .loc 2 180 13, inlined_at 1 12 5
    @!%p1 trap;
    ret;
"""
SOURCES = '.file 1 "app.cu"\n.file 2 "/usr/local/cuda/include/cooperative_groups.h"\n'


@pytest.mark.parametrize("lines", [True, False])
def test_a_barrier_of_the_grid_in_a_launch_that_is_not_cooperative(backend: str, lines: bool) -> None:
    body = GRID_SYNC if lines else "\n".join(line for line in GRID_SYNC.splitlines() if ".loc" not in line)
    before = SOURCES if lines else ""
    with pytest.raises(ge.TrapError, match=r"trap executed: .* but the launch is not cooperative") as caught:
        launch(backend, body, before=before)
    assert "cudaLaunchCooperativeKernel" in str(caught.value)
    assert ("source line app.cu:12" in str(caught.value)) == lines
    launch(backend, body, before=before, cooperative=True)
    # another trap of such a kernel, on a line of the program
    with pytest.raises(ge.TrapError, match="trap executed") as caught:
        launch(
            backend,
            GRID_SYNC.replace("@!%p1 trap;", "@!%p1 bra OWN;\nret;\nOWN: .loc 1 14 5\ntrap;"),
            before=SOURCES,
        )
    assert "cooperative" not in str(caught.value)
