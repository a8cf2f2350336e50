"""The choice of CTAs that must run to count a launch's control flow: representatives, warp classes, or all.

CTAs whose slice neither reads data of other CTAs nor writes data that they read need not all run. If the slice does not read the block
index, or not its last axes, the first CTAs determine the counts of all others, whatever it contains: calls, floating point, barriers.
Otherwise warp classes are counted on affine values (``backend``). The limit of steps depends on the instructions of a few CTAs, so the
method is the same on every host, and the control flow costs no more than the whole program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetExceeded
from ..flow.operands import special_registers
from ..flow.slicing import Slice
from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BARRIER,
    BULK_COPY,
    CLUSTER_BARRIER,
    CONVERGENCE,
    EFFECTS,
    LOAD,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    MBARRIER,
    MBARRIER_WAIT,
    REDUCTION,
    STORE,
)
from ..memory.arena import Memory
from ..ptx.syntax import Instruction
from ..simt.counters import SITE_COLUMNS, Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .accesses import Accesses
from .backend import MOST_STEPS, Refusal, TooLong, count_by_warp_classes

__all__ = ["observe_addresses", "observe_control", "others_may_see"]

#: plain warp instructions that compiled code executes in the time of one step of warp-class execution: 1.6 ns each, at the least, for
#: about 20 µs of Python, at most 55
RATE = 12_000
#: the cost of instructions by effect, in plain instructions
COSTS = {
    **dict.fromkeys((LOAD, STORE, ASYNC_COPY, *(effect for effect in EFFECTS if effect.exchanges)), 4),
    **dict.fromkeys(
        (
            *(ATOMIC, REDUCTION, BARRIER, CLUSTER_BARRIER, MATRIX, MATRIX_LOAD, MATRIX_STORE, CONVERGENCE),
            *(BULK_COPY, MBARRIER, MBARRIER_WAIT),
        ),
        32,
    ),
}
#: warp instructions that run in less time than the choice of a method takes
QUICK = 500_000
LEAST = 200
#: the minimum number of steps
LEAST_STEPS = 8
#: instruction limit per warp of the probe of the first CTAs, and the factor by which it grows
PROBE = 200_000
FURTHER = 16
#: the factor by which the limit of steps must exceed that of a failed attempt before another one
AGAIN = 4
#: at most 1/``PART`` of a launch's time is spent on attempts to count accesses by warp classes
PART = 4
#: number of CTAs that are probed if there are many
LOOKED_AT = 4
_MANY = 64
_AXES = {"x": 1, "y": 2, "z": 3}
#: special registers with the same values in all CTAs
_SAME = ("tid", "ntid", "nctaid", "laneid", "lanemask", "warpid", "nwarpid", "envreg", "nsmid")
_SIZES = ("total_smem_size", "dynamic_smem_size", "aggr_smem_size", "reserved_smem_offset")

Run = Callable[[LaunchPlan], Observation]


def observe_control(
    program: Program, plan: LaunchPlan, executed: Slice, memory: Memory, run: Run
) -> Observation:
    """The counters of a launch under ``control``. ``run`` runs the slice for a plan."""
    if plan.cluster_ctas > 1:
        return _every(
            run(plan),
            executed,
            f"blocks run in clusters of {plan.cluster_ctas}, which are not counted by warp classes",
        )
    reason = others_may_see(program, executed)
    if reason:
        return _every(run(plan), executed, reason)
    standing = _standing(executed, plan)
    observation = _quickly(plan, standing, run)
    if observation is not None:
        return _times(observation, program, plan, executed, standing, "")
    memo, key = program.kernel.memo, ("too long", executed.demand, plan.block)
    limit = PROBE
    while True:
        probe = _probe(program, plan, executed, standing, limit, run)
        steps = _steps(probe)
        tried = memo.get(key, 0)
        if isinstance(tried, int) and LEAST_STEPS <= steps < AGAIN * tried:
            reason = f"it takes more than {tried:,} steps"
        elif steps >= LEAST_STEPS:
            try:
                return _by_warp_classes(program, plan, executed, memory, steps)
            except TooLong as refusal:
                reason, memo[key] = str(refusal), steps
            except Refusal as refusal:
                reason = str(refusal)
                break
        if probe.observation is not None or limit >= plan.max_instructions:
            break
        limit *= FURTHER
    if probe.observation is not None and len(probe.blocks) == standing:
        observation = probe.observation
    elif standing == plan.ctas:
        observation = run(plan)
    else:
        observation = run(replace(plan, kept=range(standing), only_kept=True))
    return _times(observation, program, plan, executed, standing, reason)


def observe_addresses(
    program: Program, plan: LaunchPlan, executed: Slice, memory: Memory, run: Run
) -> Observation:
    """The counters of a launch under ``addresses``. ``run`` runs the slice for a plan. Warp classes are tried if that takes at most a
    quarter of the time of the CTAs, and not again after a failure."""
    reason = "blocks run in clusters" if plan.cluster_ctas > 1 else others_may_see(program, executed)
    standing = plan.ctas if reason else _standing(executed, plan)
    if standing < plan.ctas:
        observation = run(replace(plan, kept=range(standing), only_kept=True))
        return _times(observation, program, plan, executed, standing, "")
    if not reason:
        once = sum(_cost(item) for block in program.blocks_of(0) for item in block.tally)
        steps = int(min(MOST_STEPS, plan.ctas * plan.warps_per_cta * once // (PART * RATE)))
        memo, key = program.kernel.memo, ("in vain", executed, plan.block)
        known = memo.get(key)
        if isinstance(known, tuple) and steps < known[0]:
            reason = known[1]
        elif steps >= LEAST_STEPS:
            try:
                return _accesses_by_warp_classes(program, plan, executed, memory, steps, run)
            except Refusal as refusal:
                reason = str(refusal)
                memo[key] = (AGAIN * steps if isinstance(refusal, TooLong) else 1 << 62, reason)
    return _times(run(plan), program, plan, executed, plan.ctas, reason)


def _accesses_by_warp_classes(
    program: Program, plan: LaunchPlan, executed: Slice, memory: Memory, steps: int, run: Run
) -> Observation:
    accesses = Accesses(memory)
    observation = _by_warp_classes(program, plan, executed, memory, steps, accesses)
    if accesses.unwritten:
        # CTA 0 runs first, as other CTAs must not find more unwritten memory than it does
        first = run(replace(plan, kept=range(1), only_kept=True))
        if not accesses.unwritten <= first.uninitialized:
            raise Refusal("reads of uninitialised memory differ between blocks")
        observation.uninitialized, observation.blank = first.uninitialized, first.blank
    for allocation in accesses.stored:
        memory.set_initialized(allocation, True)
    return observation


def _quickly(plan: LaunchPlan, standing: int, run: Run) -> Observation | None:
    """The counters by the representative CTAs, if running them is faster than probing; else ``None``."""
    limit = QUICK // (standing * plan.warps_per_cta)
    if limit < LEAST:
        return None
    partial_plan = plan if standing == plan.ctas else replace(plan, kept=range(standing), only_kept=True)
    try:
        return run(replace(partial_plan, max_instructions=min(limit, plan.max_instructions)))
    except BudgetExceeded:
        if plan.max_instructions <= limit:
            raise
        return None


def _times(
    observation: Observation, program: Program, plan: LaunchPlan, executed: Slice, standing: int, reason: str
) -> Observation:
    """The counters of all CTAs, from those of the representatives."""
    if standing == plan.ctas:
        return _every(observation, executed, reason or "there are too few for warp classes to be faster")
    observation.executed, observation.method = executed, "classes"
    observation.ran = observation.executed_in(program)
    observation.times(plan.ctas // standing)
    return observation


def _every(observation: Observation, executed: Slice, reason: str) -> Observation:
    observation.executed, observation.method_reason = executed, reason
    return observation


def others_may_see(program: Program, executed: Slice) -> str:
    """Why a CTA may observe another one, or ``""``."""
    graph = executed.dependence
    if program.cancels:
        return "blocks cancel the launch of others"
    for instruction in executed.complete:
        if any("global" in access.spaces for access in graph.writes_memory(instruction)):
            return f"the control flow depends on a store to global memory at {instruction.span}"
        outside = any("global" in access.spaces for access in graph.reads_memory(instruction))
        if outside and any(graph.writers_of(instruction, executed.aliases)):
            return f"the control flow depends on memory that the launch may write, read at {instruction.span}"
    return ""


def _standing(executed: Slice, plan: LaunchPlan) -> int:
    """The number of representative CTAs, the first ones in index order: a divisor of ``plan.ctas``."""
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


@dataclass(frozen=True)
class _Probe:
    """The counters of the probed CTAs, ``None`` if they exceeded the limit, and the estimated cost of all CTAs that have to run, in
    plain warp instructions: of the whole program, and of the slice."""

    blocks: Sequence[int]
    observation: Observation | None
    whole: int
    ran: int


def _probe(
    program: Program, plan: LaunchPlan, executed: Slice, standing: int, limit: int, run: Run
) -> _Probe:
    """Run some CTAs; ``standing``: the number of representatives."""
    blocks = range(1)
    if standing >= _MANY:
        blocks = range(0, standing, -(-standing // LOOKED_AT))
    some = replace(plan, kept=blocks, only_kept=True, max_instructions=min(limit, plan.max_instructions))
    left = standing - len(blocks)
    try:
        observation = run(some)
    except BudgetExceeded:
        if plan.max_instructions <= limit:
            raise
        # at least one warp of each CTA exceeds the limit, and perhaps many more, so a quarter more is a cautious estimate
        return _Probe(blocks, None, standing * limit * 5 // 4, standing * limit)
    only = executed.instructions
    warps = [(int(observation.block_warps[block.index]), block.tally) for block in program.blocks]
    whole = sum(count * sum(map(_cost, tally)) for count, tally in warps)
    ran = sum(count * sum(_cost(item) for item in tally if item in only) for count, tally in warps)
    return _Probe(blocks, observation, whole * left // len(blocks), ran * left // len(blocks))


def _cost(instruction: Instruction) -> int:
    """The cost of an instruction, in plain instructions."""
    return COSTS.get(instruction.effect, 1)


def _steps(probe: _Probe) -> int:
    """The limit of steps of warp-class execution: as long as running the CTAs takes, and together with these about as long as the
    whole program."""
    worth = min(probe.whole * 11 // 10 - probe.ran, probe.ran)
    return min(MOST_STEPS, max(0, worth) // RATE)


def _by_warp_classes(
    program: Program,
    plan: LaunchPlan,
    executed: Slice,
    memory: Memory,
    steps: int,
    accesses: Accesses | None = None,
) -> Observation:
    counts = count_by_warp_classes(
        program,
        plan,
        executed.instructions,
        memory,
        guards=executed.guards,
        most_steps=steps,
        accesses=accesses,
        complete=executed.complete,
    )
    columns = (counts.block_warps, counts.block_lanes, counts.divergent, counts.taken, counts.predicated)
    warps, lanes, divergent, taken, predicated = map(_table, columns)
    return Observation(
        warps,
        lanes,
        divergent,
        taken,
        predicated,
        None if counts.sites is None else _table(counts.sites).reshape(-1, len(SITE_COLUMNS)),
        executed=executed,
        method="classes",
        ran=32 * counts.operations,
    )


def _table(numbers: Sequence[int | None]) -> NDArray[np.int64]:
    """Python integers as an array of counters; an object array if they exceed 64 bits."""
    known = [number or 0 for number in numbers]
    return np.array(known, dtype=np.int64 if max(known, default=0) < 1 << 62 else object)
