"""How many blocks of a launch must run for its control flow: by warp classes, or every one.

Blocks whose slice sees nothing of the others, and writes nothing that they see, need not all run. If the slice does not ask for the
block index, or not for its last axes, the first blocks give the counts of all others, whatever it does: calls, floating point,
barriers. Else classes are counted on affine values (``backend``). How long that is tried depends on how much a few blocks execute,
so the method is the same on every host, and the control flow costs no more than the whole program.
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
#: of other instructions, about so many plain ones take as long, by effect
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
#: warp instructions that run in less time than it takes to think, if so many are left for each warp
QUICK = 500_000
LEAST = 200
#: steps without which nothing is counted
LEAST_STEPS = 8
#: warp instructions that one warp of the first blocks may execute to find out how many those are, and how much more the next time
PROBE = 200_000
FURTHER = 16
#: how many times as many steps must be worth it before a kernel that took too many is tried again
AGAIN = 4
#: the part of the time of a launch that may be lost on counting accesses by warp classes
PART = 4
#: blocks that are looked at for what the others may do, where there are many
LOOKED_AT = 4
_MANY = 64
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
    """The counters of a launch of which the addresses are asked for. ``run`` runs them for a plan. Classes are tried where that takes
    a quarter of the time of the blocks, at most, and not again where it was in vain."""
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
        # block 0 runs first: what it finds unwritten is, and no other may find more
        first = run(replace(plan, kept=range(1), only_kept=True))
        if not accesses.unwritten <= first.uninitialized:
            raise Refusal("reads of uninitialised memory differ between blocks")
        observation.uninitialized = first.uninitialized
    for allocation in accesses.stored:
        memory.set_initialized(allocation, True)
    return observation


def _quickly(plan: LaunchPlan, standing: int, run: Run) -> Observation | None:
    """All blocks that stand for all others, if that is done before one could find out how long it takes."""
    limit = QUICK // (standing * plan.warps_per_cta)
    if limit < LEAST:
        return None
    whole = plan if standing == plan.ctas else replace(plan, kept=range(standing), only_kept=True)
    try:
        return run(replace(whole, max_instructions=min(limit, plan.max_instructions)))
    except BudgetExceeded:
        if plan.max_instructions <= limit:
            raise
        return None


def _times(
    observation: Observation, program: Program, plan: LaunchPlan, executed: Slice, standing: int, reason: str
) -> Observation:
    """What all blocks did, from what those did that stand for all others."""
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
    """Why a block may see another's doings, or ``""``."""
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
    """How many blocks, the first ones in index order, stand for all others: a divisor of ``plan.ctas``."""
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
    """What some blocks did, ``None`` if that was too much to find out, and about what all others that have to run cost, in plain warp
    instructions: the whole program, and the slice."""

    blocks: Sequence[int]
    observation: Observation | None
    whole: int
    ran: int


def _probe(
    program: Program, plan: LaunchPlan, executed: Slice, standing: int, limit: int, run: Run
) -> _Probe:
    """Run some blocks; ``standing`` are those that stand for all others."""
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
        # one warp of each at least, and perhaps many more: a quarter of that is not too much to try
        return _Probe(blocks, None, standing * limit * 5 // 4, standing * limit)
    only = executed.instructions
    warps = [(int(observation.block_warps[block.index]), block.tally) for block in program.blocks]
    whole = sum(count * sum(map(_cost, tally)) for count, tally in warps)
    ran = sum(count * sum(_cost(item) for item in tally if item in only) for count, tally in warps)
    return _Probe(blocks, observation, whole * left // len(blocks), ran * left // len(blocks))


def _cost(instruction: Instruction) -> int:
    """What an instruction costs, in plain ones."""
    return COSTS.get(instruction.effect, 1)


def _steps(probe: _Probe) -> int:
    """How many steps of warp-class execution may be tried: they may take as long as running the blocks, and both together about as
    long as the whole program."""
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
    """Python integers as counters; such as leave 64 bits stay what they are."""
    known = [number or 0 for number in numbers]
    return np.array(known, dtype=np.int64 if max(known, default=0) < 1 << 62 else object)
