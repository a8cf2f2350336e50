"""Whether a warp may be diverged at a barrier: if it may, launches of the program must be able to restart."""

from __future__ import annotations

from collections.abc import Iterator

from ..flow.blocks import BasicBlock
from ..flow.uniformity import sides_of
from ..simt.launch import LaunchPlan
from ..simt.program import Program
from .addresses.thread_values import ThreadValues
from .codegen.barrier import is_loose

__all__ = ["may_arrive_diverged"]


def may_arrive_diverged(program: Program, plan: LaunchPlan) -> bool:
    """Whether a warp may be diverged at a barrier in blocks of the launch's shape; an actual divergence is detected at run time.

    Lanes at an aligned barrier wait for their warp, so they arrive together unless a branch leads some of them elsewhere.
    """
    if not program.once(_may_in_any):
        return False
    memo, key = program.kernel.memo, f"may arrive diverged {plan.block}{program.variant}"
    if key not in memo:
        memo[key] = _may_arrive_diverged(program, plan)
    return bool(memo[key])


def _barriers(program: Program) -> Iterator[BasicBlock]:
    return (block for block in program.blocks if block.kind == "barrier" and block.terminator is not None)


def _at_any_time(program: Program, block: BasicBlock) -> bool:
    """Whether lanes may arrive at a barrier at different times for other reasons than branches, such as a call by a part of a warp."""
    assert block.terminator is not None
    uniformity = program.uniformity[block.function]
    return block.function > 0 or (uniformity.may_diverge and is_loose(block.terminator))


def _may_in_any(program: Program) -> bool:
    """The same for blocks of any shape."""
    return any(
        _at_any_time(program, block) or block.index in program.uniformity[block.function].divergent
        for block in _barriers(program)
    )


def _may_arrive_diverged(program: Program, plan: LaunchPlan) -> bool:
    if any(_at_any_time(program, block) for block in _barriers(program)):
        return True
    barriers = {block.index for block in _barriers(program)}
    blocks, uniform = program.blocks_of(0), program.uniformity[0].uniform
    values: ThreadValues | None = None
    for branch in blocks:
        if not any(not barriers.isdisjoint(side) for side in sides_of(branch, blocks, uniform)):
            continue
        if branch.kind != "branch" or branch.guard is None or branch.terminator is None:
            return True
        values = values or ThreadValues(program, plan)
        if not values.same_in_warps(branch.terminator, branch.guard.register):
            return True
    return False
