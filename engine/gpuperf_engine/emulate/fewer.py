"""How many blocks of a launch must run for its control flow: by classes of blocks that behave alike, or every one.

Blocks whose slice sees nothing of the others, and writes nothing that they see, need not all run. If the slice does not ask for the
block index, or not for its last axes, the first blocks tell all others, whatever it does: calls, floating point, barriers. Else
classes are counted on affine values (``classes``). What is tried depends on how much the first block executes, so the method is
the same on every host.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetExceeded
from ..flow.operands import special_registers
from ..flow.slicing import Slice
from .classes import MOST_OPERATIONS, Refusal, count_by_classes
from .launch import LaunchPlan
from .memory import Memory
from .observe import Observation
from .program import Program

__all__ = ["observe_control"]

#: warp instructions of the slice that run in less time than it takes to think
QUICK = 500_000
#: warp instructions that one warp of the first block may execute to find out how many those are
PROBE = 200_000
#: warp instructions that take about the time of one operation of class execution, and operations worth it at any rate
RATE = 1_200
LEAST_OPERATIONS = 400
_AXES = {"x": 1, "y": 2, "z": 3}
#: of these the value is the same in all blocks
_SAME = ("tid", "ntid", "nctaid", "laneid", "lanemask", "warpid", "nwarpid", "envreg", "nsmid")
_SIZES = ("total_smem_size", "dynamic_smem_size", "aggr_smem_size", "reserved_smem_offset")

Run = Callable[[LaunchPlan], Observation]


def observe_control(
    program: Program, plan: LaunchPlan, executed: Slice, memory: Memory, run: Run
) -> Observation:
    """The counters of a launch of which only the control flow is asked for. ``run`` runs the slice for a plan."""
    if plan.cluster_ctas > 1:
        return _every(
            run(plan),
            executed,
            f"blocks run in clusters of {plan.cluster_ctas}, which are not counted in classes",
        )
    reason = _others(executed)
    if reason:
        return _every(run(plan), executed, reason)
    standing = _standing(executed, plan)
    work = _work(program, plan, executed, standing, run)
    if work is None or work > QUICK:
        try:
            budget = (
                MOST_OPERATIONS if work is None else min(MOST_OPERATIONS, LEAST_OPERATIONS + work // RATE)
            )
            return _by_classes(program, plan, executed, memory, budget)
        except Refusal as refusal:
            reason = str(refusal)
    if standing == plan.ctas:
        return _every(run(plan), executed, reason or "there are too few for classes to be quicker")
    found = run(replace(plan, kept=range(standing), only_kept=True))
    found.executed, found.method = executed, "classes"
    found.ran = found.executed_in(program)
    found.times(plan.ctas // standing)
    return found


def _every(found: Observation, executed: Slice, reason: str) -> Observation:
    found.executed, found.method_reason = executed, reason
    return found


def _others(executed: Slice) -> str:
    """Why a block may see another's doings, or ``""``."""
    graph = executed.dependence
    for instruction in executed.complete:
        if any("global" in access.spaces for access in graph.writes_memory(instruction)):
            return f"the control flow depends on what is written to global memory at {instruction.span}"
        outside = any("global" in access.spaces for access in graph.reads_memory(instruction))
        if outside and any(graph.writers_of(instruction, executed.aliases)):
            return f"the control flow depends on memory that the launch may write, read at {instruction.span}"
    return ""


def _standing(executed: Slice, plan: LaunchPlan) -> int:
    """How many blocks, the first ones in index order, tell all others: a divisor of ``plan.ctas``."""
    axes = 0
    for instruction in executed.instructions:
        for name in special_registers(instruction):
            base, _, axis = name.partition(".")
            if base == "ctaid":
                axes = max(axes, _AXES.get(axis, 0))
            elif not base.startswith(_SAME + _SIZES):
                return plan.ctas
    x, y, _ = plan.grid
    return (1, x, x * y, plan.ctas)[axes]


def _work(program: Program, plan: LaunchPlan, executed: Slice, standing: int, run: Run) -> int | None:
    """About how many warp instructions of the slice the blocks execute that tell all others: so many times what the first
    does; ``None`` if that is more than is worth finding out."""
    if standing * plan.warps_per_cta > QUICK:
        return None
    probe = replace(plan, kept=(0,), only_kept=True, max_instructions=min(PROBE, plan.max_instructions))
    try:
        found = run(probe)
    except BudgetExceeded:
        if plan.max_instructions <= PROBE:
            raise
        return None
    only = executed.instructions
    return standing * sum(
        int(found.block_warps[block.index]) * sum(item in only for item in block.tally)
        for block in program.blocks
    )


def _by_classes(
    program: Program, plan: LaunchPlan, executed: Slice, memory: Memory, budget: int
) -> Observation:
    counts = count_by_classes(
        program, plan, executed.instructions, memory, guards=executed.guards, most_operations=budget
    )
    columns = (counts.block_warps, counts.block_lanes, counts.divergent, counts.taken, counts.predicated)
    warps, lanes, divergent, taken, predicated = map(_table, columns)
    return Observation(
        warps,
        lanes,
        divergent,
        taken,
        predicated,
        None,
        executed=executed,
        method="classes",
        ran=32 * counts.operations,
    )


def _table(numbers: tuple[int | None, ...]) -> NDArray[np.int64]:
    """Python integers as counters; such as leave 64 bits stay what they are."""
    known = [number or 0 for number in numbers]
    return np.array(known, dtype=np.int64 if max(known, default=0) < 1 << 62 else object)
