"""What finding out less costs: by what is executed and tried, never by the clock."""

from __future__ import annotations

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.jit.backend import LlvmBackend
from gpuperf_engine.simt.launch import LaunchPlan
from gpuperf_engine.symbolic import choose as fewer
from gpuperf_engine.symbolic.backend import WarpClassRun
from tests.engine.running import module

#: each thread does steps of the Collatz sequence from its number on: there are as many classes as threads
ENTANGLED = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    add.u32 %r1, %r1, 1;
LOOP:
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra DONE;
    and.b32 %r4, %r1, 1;
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra EVEN;
    mad.lo.u32 %r1, %r1, 3, 1;
    bra LOOP;
EVEN:
    shr.u32 %r1, %r1, 1;
    bra LOOP;
DONE:
    ret;
"""
#: one class, however long the loop
PLAIN = """
    mov.u32 %r1, 0;
    mov.u32 %r2, %ctaid.x;
    min.u32 %r2, %r2, 1;
    ld.param.u32 %r3, [n];
    add.u32 %r3, %r3, %r2;
LOOP:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, %r3;
    @%p1 bra LOOP;
    ret;
"""


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Steps of class execution, and launches of compiled code, so far."""
    found = {"steps": 0, "runs": 0}
    count, run = WarpClassRun.count, LlvmBackend.run

    def counted(self: WarpClassRun) -> object:
        try:
            return count(self)
        finally:
            found["steps"] += self.operations + self.effort + self.most_steps - self.counting.left

    def ran(self: LlvmBackend, *given: object) -> object:
        found["runs"] += 1
        return run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(WarpClassRun, "count", counted)
    monkeypatch.setattr(LlvmBackend, "run", ran)
    return found


@pytest.mark.parametrize("blocks", [4, 64, 1000, 8000])
def test_a_kernel_with_very_many_classes(blocks: int, spent: dict[str, int]) -> None:
    kernel = ge.parse(module(ENTANGLED), path="k.ptx")["k"]
    device = ge.Device(observe=())
    whole = device.launch(kernel, blocks, 64)
    spent["runs"] = 0
    part = device.launch(kernel, blocks, 64, demand="control")
    assert (part.blocks, part.branch_sites) == (whole.blocks, whole.branch_sites)
    assert part.method == "every block"
    assert spent["steps"] * fewer.RATE < 0.2 * whole.warp_instructions + 12 * fewer.RATE
    tried = spent["steps"]
    again = device.launch(kernel, blocks, 64, demand="control")
    assert spent["steps"] == tried  # it is not tried again
    assert again.method_reason == part.method_reason
    assert spent["runs"] <= 6


def test_a_small_launch_runs_once(spent: dict[str, int]) -> None:
    kernel = ge.parse(module(PLAIN, ".param .u32 n"), path="k.ptx")["k"]
    profile = ge.Device(observe=()).launch(kernel, 4, 64, [np.uint32(100)], demand="control")
    assert (spent["runs"], spent["steps"]) == (1, 0)
    assert profile.warp_instructions == 4 * 2 * 6 + 2 * (3 * 100 + 3 * (3 * 101))


@pytest.mark.parametrize("trips", [10_000, 10_000_000, 1_000_000_000])
def test_a_long_loop_is_gone_over_at_once(trips: int, spent: dict[str, int]) -> None:
    kernel = ge.parse(module(PLAIN, ".param .u32 n"), path="k.ptx")["k"]
    device = ge.Device(observe=(), max_instructions=10**11)
    profile = device.launch(kernel, 1000, 64, [np.uint32(trips)], demand="control")
    assert profile.method == "classes"
    assert profile.warp_instructions == 2 * (1000 * (6 + 3 * trips) + 999 * 3)
    assert spent["steps"] < 300


def test_probes_do_not_multiply(spent: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run to find out how much there is stays small beside the launch."""
    plans: list[LaunchPlan] = []
    run = LlvmBackend.run
    monkeypatch.setattr(
        LlvmBackend,
        "run",
        lambda self, program, plan, memory, observe: (
            plans.append(plan),
            run(self, program, plan, memory, observe),
        )[1],
    )
    kernel = ge.parse(module(ENTANGLED), path="k.ptx")["k"]
    ge.Device(observe=()).launch(kernel, 20_000, 256, demand="control")
    *probes, last = plans
    assert not last.only_kept
    assert sum(len(plan.kept) for plan in probes) <= 8
