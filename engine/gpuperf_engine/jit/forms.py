"""Which of its two forms of compiled code a launch runs: shared or direct.

In shared code, instructions of one form share functions (``Program.outlined``): LLVM needs a third of the time for it, and it runs up
to twice as long. If a program executes each of its instructions a few thousand times, as in most tests, compiling takes longer than
running. So a program begins with shared code, and continues with direct code once what it has executed, or is about to execute, is
worth it. Direct code that is already in memory or on disk is always taken. Results and counts are the same, and the choice depends
on counters, not on time.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import Program

__all__ = ["instructions_of", "is_often", "note_executed", "prefers_shared", "runs_much"]

#: the instructions of a program from which on shared code is compiled faster, the functions that it shares included
LEAST = 128
#: executions of each instruction by warps from which on direct code pays off: compiling it takes 0.2 ms more for an instruction, and
#: each execution 1 to 3 ns less
OFTEN = 1 << 16


def instructions_of(program: Program) -> int:
    """The instructions of a program, with inlined functions wherever they are called."""
    return sum(len(block.instructions) for block in program.blocks)


def is_often(program: Program, executed: float) -> bool:
    """Whether direct code pays off for so many executions of instructions by warps."""
    return executed > OFTEN * program.once(instructions_of)


def prefers_shared(program: Program, plan: LaunchPlan) -> bool:
    """Whether a launch of a program without direct code should run shared code."""
    return (
        program.once(instructions_of) >= LEAST
        # most warps execute most instructions at least once
        and plan.ctas * plan.warps_per_cta <= OFTEN
        and not runs_much(program)
    )


def runs_much(program: Program) -> bool:
    """Whether what the program has executed in shared code is worth direct code."""
    return is_often(program, _executed(program))


def note_executed(program: Program, observation: Observation) -> None:
    """Add what a launch of shared code has executed."""
    program.kernel.memo[_key(program)] = _executed(program) + observation.warp_instructions(program)


def _executed(program: Program) -> int:
    executed = program.kernel.memo.get(_key(program), 0)
    assert isinstance(executed, int)
    return executed


def _key(program: Program) -> Hashable:
    return "executed in shared code", program.variant
