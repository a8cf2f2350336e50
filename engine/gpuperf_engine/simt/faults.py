"""Errors of kernels, the same for both backends: threads, location, and a hint.

Threads are named as CUDA names them: ``thread (x, y, z) of block (x, y, z)``. Lanes come as an ``int`` with one bit each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import BudgetExceeded, Deadlock, TrapError
from ..isa import mbarriers, tensor_maps, tensor_memory
from ..isa.effects import INDIRECT_BRANCH, WARPGROUP_WAIT
from ..ptx.syntax import Instruction
from ..results.cxx_names import readable_name
from ..source import Span
from .launch import Dim3, LaunchPlan
from .program import ALLOCA_STACK, BasicBlock, Program
from .stack_entries import AT_END, AT_WAIT

__all__ = [
    "INSTEAD_OF_ALIGNED",
    "Waiting",
    "WarpPosition",
    "awaited_warps",
    "bad_barrier",
    "bad_cluster_barrier",
    "bad_mbarrier",
    "bad_member_mask",
    "bad_stack",
    "bad_target",
    "budget",
    "deadlock",
    "divergent_barrier",
    "doing",
    "executed_by",
    "lanes_of",
    "livelock",
    "long_line",
    "meaningless_operands",
    "name_cancelled",
    "no_warpgroup",
    "stack_overflow",
    "thread_of",
    "too_deep",
    "trap",
    "unequal_descriptors",
    "uneven_products",
]


def lanes_of(mask: int) -> list[int]:
    """The lanes of a mask in ascending order."""
    return [lane for lane in range(32) if mask >> lane & 1]


def thread_of(plan: LaunchPlan, warp: int, lane: int) -> Dim3:
    """``%tid`` of a lane of a warp of any CTA."""
    wide, tall, _ = plan.block
    number = warp * 32 + lane
    return number % wide, number // wide % tall, number // (wide * tall)


def cta_of(plan: LaunchPlan, cta: int) -> Dim3:
    """``%ctaid`` of the CTA with that number in index order."""
    wide, tall, _ = plan.grid
    return cta % wide, cta // wide % tall, cta // (wide * tall)


@dataclass(frozen=True, slots=True)
class WarpPosition:
    """The position of a warp in the grid, for messages."""

    program: Program
    plan: LaunchPlan
    cta: int
    warp: int

    def thread(self, lane: int) -> str:
        """``thread (…) of block (…) of kernel '…'``."""
        x, y, z = thread_of(self.plan, self.warp, lane)
        return f"thread ({x}, {y}, {z}) of {self.block()}"

    def block(self) -> str:
        x, y, z = cta_of(self.plan, self.cta)
        return f"block ({x}, {y}, {z}) of kernel {readable_name(self.program.kernel.name)!r}"

    def lanes(self, mask: int) -> str:
        """``lanes 0-15 of warp 3 of block …``."""
        return f"{_ranges(lanes_of(mask), 'lane')} of warp {self.warp} of {self.block()}"


def _ranges(numbers: Sequence[int], noun: str) -> str:
    """``lanes 0-3, 8``."""
    parts: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    shown = parts if len(parts) <= 6 else [*parts[:5], "…"]
    return f"{noun}{'s' * (len(numbers) > 1)} {', '.join(shown)}"


def _source(instruction: Instruction) -> list[str]:
    return [] if instruction.location is None else [f"source line {instruction.location.described}"]


def _line(item: Waiting) -> str:
    instruction = item.at
    if instruction is None:
        return "the end of the function"
    return ", ".join([f"{instruction.span.path}:{instruction.span.line}", *_source(instruction)])


def trap(position: WarpPosition, instruction: Instruction, mask: int) -> TrapError:
    """``trap`` or ``brkpt`` was executed."""
    reason, hint = "", None
    if _misses_grid_barrier(position, instruction):
        reason = ": the kernel has a barrier of the whole grid (cooperative groups, grid.sync()), but the launch is not cooperative"
        hint = "launch it with cudaLaunchCooperativeKernel, the attribute cudaLaunchAttributeCooperative, or cooperative=True"
    return TrapError(
        f"{instruction.opcode} executed{reason}", span=instruction.span,
        details=[position.thread(lanes_of(mask)[0]), *_source(instruction)], hint=hint,
    )  # fmt: skip


def _misses_grid_barrier(position: WarpPosition, instruction: Instruction) -> bool:
    """Whether a ``trap`` is that of CUDA's ``cooperative_groups.h`` for a launch without a workspace for barriers of the grid, whose
    address is in ``%envreg1`` and ``%envreg2``. Without source lines, any ``trap`` of a kernel that reads them is."""
    location = instruction.location
    of_header = location is None or location.path.endswith("cooperative_groups.h")
    return of_header and position.program.grid_workspace is not None and not position.plan.cooperative


def bad_member_mask(position: WarpPosition, instruction: Instruction, lane: int, mask: int) -> TrapError:
    """A lane is not in its own member mask."""
    return TrapError(
        f"{instruction.opcode}: lane {lane} executes it with member mask {mask:#010x}, which does not contain that lane",
        span=instruction.span,
        details=[position.thread(lane), *_source(instruction)],
        hint="every lane that executes a .sync instruction must be in its member mask",
    )


def incomplete_warp(position: WarpPosition, instruction: Instruction, lanes: int) -> TrapError:
    """A matrix instruction is executed without some lanes of its warp, which the manual leaves undefined."""
    present = lanes_of(lanes)
    return TrapError(
        f"{instruction.opcode}: {len(present)} of the 32 lanes of a warp execute it",
        span=instruction.span,
        details=[position.thread(present[0]), *_source(instruction)],
        hint="all threads of the warp must: no divergent branch around it, and blocks of a multiple of 32 threads",
    )


def meaningless_operands(position: WarpPosition, instruction: Instruction, lanes: int) -> TrapError:
    """Operands for which the manual defines no result."""
    assert instruction.form.row.applied.checked is not None
    problem, accepted = instruction.form.row.applied.checked
    return TrapError(
        f"{instruction.opcode}: {problem}",
        span=instruction.span,
        details=[position.thread(lanes_of(lanes)[0]), *_source(instruction)],
        hint=accepted,
    )


def _of_lane(
    position: WarpPosition, instruction: Instruction, lanes: int, problem: str, hint: str
) -> TrapError:
    details = [position.thread(lanes_of(lanes)[0]), *_source(instruction)]
    return TrapError(f"{instruction.opcode}: {problem}", span=instruction.span, details=details, hint=hint)


def no_warpgroup(position: WarpPosition, instruction: Instruction, lanes: int) -> TrapError:
    """A warp of an incomplete warpgroup: four warps of which the first has a number divisible by four."""
    hint = "warps 4k to 4k + 3 execute it together: launch blocks of a multiple of 128 threads"
    return _of_lane(
        position, instruction, lanes, "the warpgroup of this warp has fewer than four warps", hint
    )


def unequal_descriptors(position: WarpPosition, instruction: Instruction, lanes: int) -> TrapError:
    """A matrix descriptor that differs between lanes."""
    hint = "compute it from values that are the same in all threads of the warpgroup"
    return _of_lane(
        position, instruction, lanes, "a matrix descriptor differs among the threads of a warp", hint
    )


def uneven_products(
    position: WarpPosition, instruction: Instruction, one: tuple[int, int], other: tuple[int, int]
) -> TrapError:
    """Two warps of a warpgroup that have executed different numbers of matrix products."""
    counts = " and ".join(f"warp {warp} {count}" for warp, count in sorted((one, other)))
    problem = f"not all warps of a warpgroup execute it: {counts} times in all, including the other instructions of its kind"
    hint = "all threads of a warpgroup must: no branch around it on which its warps differ"
    return _of_lane(position, instruction, 1, problem, hint)


def awaited_warps(instruction: Instruction, warps: Sequence[int]) -> str:
    """What a warp waits for at ``wgmma.fence`` and ``.wait_group``: warps of its warpgroup, by their number in the block."""
    named = f"warp{'s' * (len(warps) > 1)} {', '.join(map(str, warps))} of the warpgroup,"
    what = "the products of " * (instruction.effect is WARPGROUP_WAIT)
    return f"at {instruction.opcode}, for {what}{named}"


def long_line(position: WarpPosition, instruction: Instruction, lanes: int) -> TrapError:
    """A descriptor whose swizzling is narrower than the lines of the matrix."""
    hint = "64 bytes of a line of B need a swizzling of 64 or 128 bytes, or none"
    problem = "a line of the matrix is longer than the swizzling pattern of its descriptor"
    return _of_lane(position, instruction, lanes, problem, hint)


def bad_target(
    position: WarpPosition, instruction: Instruction, lane: int, value: int, targets: int
) -> TrapError:
    """``brx.idx`` beyond its table, or an indirect call of an address that is not a candidate's."""
    hint = None
    if instruction.effect is INDIRECT_BRANCH:
        message = f"{instruction.opcode}: index {value} of a table of {targets} labels"
    else:
        description = position.plan.describe(value)
        message = f"{instruction.opcode}: {value:#x} is not the address of a function that it may call, but {description}"
        hint = (
            "accepted: functions of its module whose address is taken anywhere and that match its prototype"
        )
    return TrapError(
        message, span=instruction.span, details=[position.thread(lane), *_source(instruction)], hint=hint
    )


def bad_barrier(position: WarpPosition, instruction: Instruction, lane: int, problem: str) -> TrapError:
    """An invalid barrier number or thread count."""
    return TrapError(
        f"{instruction.opcode}: {problem}", span=instruction.span,
        details=[position.thread(lane), *_source(instruction)],
        hint="barriers are numbered 0 to 15; a thread count is a multiple of 32, at most 1024",
    )  # fmt: skip


def bad_cluster_barrier(position: WarpPosition, instruction: Instruction, lane: int) -> TrapError:
    """A thread arrives at the cluster's barrier twice without waiting, or waits without having arrived."""
    waits = "wait" in instruction.opcode.split(".")
    return TrapError(
        f"{instruction.opcode} by a thread that {'has not arrived' if waits else 'has arrived before, and not waited since'}",
        span=instruction.span,
        details=[position.thread(lane), *_source(instruction)],
        hint="each thread executes barrier.cluster.arrive and barrier.cluster.wait alternately",
    )


def bad_mbarrier(
    position: WarpPosition,
    instruction: Instruction,
    lane: int,
    problem: int,
    address: int,
    word: int,
    amount: int,
) -> TrapError:
    """An operation that an mbarrier object, a tensor map or tensor memory does not allow; numbers as in ``isa.mbarriers``,
    ``isa.tensor_maps`` and ``isa.tensor_memory``."""
    if problem >= tensor_memory.TensorProblem.FIRST:
        message, hint = tensor_memory.explain(problem, word, amount)
        return _of_lane(position, instruction, 1 << lane, message, hint)
    explain = tensor_maps.explain if problem >= tensor_maps.Problem.FIRST else mbarriers.explain
    message, hint = explain(problem, word, amount)
    return TrapError(
        f"{instruction.opcode} at {address:#x}: {message}", span=instruction.span,
        details=[position.thread(lane), *_source(instruction)], hint=hint,
    )  # fmt: skip


def too_deep(position: WarpPosition, instruction: Instruction, lane: int, limit: int) -> TrapError:
    """Recursion beyond the limit."""
    program = position.program
    function = program.functions[program.blocks[program.block_of[instruction]].function]
    return TrapError(
        f"{instruction.opcode} in {function.name!r}: more than {limit} nested calls", span=instruction.span,
        details=[position.thread(lane), *_source(instruction)], hint="does the recursion end?",
    )  # fmt: skip


def stack_overflow(position: WarpPosition, instruction: Instruction, lane: int, size: int) -> TrapError:
    """Recursion whose local variables exceed the stack."""
    program = position.program
    function = program.functions[program.blocks[program.block_of[instruction]].function]
    return TrapError(
        f"{instruction.opcode} in {function.name!r}: local variables of nested calls need more than {size:,} bytes",
        span=instruction.span,
        details=[position.thread(lane), *_source(instruction)],
        hint="does the recursion end?",
    )


def bad_stack(position: WarpPosition, instruction: Instruction, lane: int, value: int) -> TrapError:
    """An allocation that exceeds the stack of ``alloca``, or an invalid stack pointer."""
    if instruction.form.row.name == "alloca":
        problem = (
            f"{value:,} more bytes do not fit into the stack of {ALLOCA_STACK:,} bytes that each thread has"
        )
        hint = "allocate less, or free what is no longer needed with stackrestore"
    else:
        problem = f"{value:#x} is not within the stack"
        hint = "restore a value of stacksave from the same activation of the function"
    return TrapError(
        f"{instruction.opcode}: {problem}", span=instruction.span,
        details=[position.thread(lane), *_source(instruction)], hint=hint,
    )  # fmt: skip


def divergent_barrier(
    position: WarpPosition, instruction: Instruction, arrived: int, elsewhere: int
) -> TrapError:
    """An aligned barrier executed by part of a warp."""
    return TrapError(
        f"{instruction.opcode} {executed_by(arrived, elsewhere)} [aligned-barrier]",
        span=instruction.span,
        details=[f"warp {position.warp} of {position.block()}", *_source(instruction)],
        hint=f"all threads of a warp must execute an aligned barrier together: {INSTEAD_OF_ALIGNED}",
    )


#: hint for lanes of a diverged warp at an aligned barrier
INSTEAD_OF_ALIGNED = "move it out of the branch, or write barrier without .aligned, which counts threads"


def executed_by(arrived: int, elsewhere: int) -> str:
    """The lanes of a warp that execute an aligned barrier, and those that do not, as text."""
    return (
        f"executed by {_ranges(lanes_of(arrived), 'lane')} while {_ranges(lanes_of(elsewhere), 'lane')} of the same warp "
        f"{'is' if elsewhere.bit_count() == 1 else 'are'} elsewhere"
    )


def budget(position: WarpPosition, block: BasicBlock, executed: int, mask: int) -> BudgetExceeded:
    """A warp exceeded its instruction limit."""
    first = block.instructions[0] if block.instructions else None
    return BudgetExceeded(
        f"{executed:,} warp instructions executed, {position.plan.max_instructions:,} allowed: the kernel does not seem to end",
        span=None if first is None else first.span,
        details=[
            position.thread(lanes_of(mask)[0] if mask else 0),
            *([] if first is None else _source(first)),
        ],
        hint="raise max_instructions (--gpuperf-max-instructions, of gpuperf run --max-instructions) if it does end",
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting lanes: those of ``mask`` in a warp, their block (and instruction), and the reason."""

    position: WarpPosition
    mask: int
    block: BasicBlock
    reason: str
    instruction: Instruction | None = None

    @property
    def at(self) -> Instruction | None:
        """The instruction at which they wait, by default the first of the block."""
        instructions = (self.instruction, *self.block.instructions, *self.block.tally)
        return next((item for item in instructions if item is not None), None)


def doing(pc: int) -> str:
    """The state of lanes that do not wait, by their program counter, as text."""
    return "waiting for an mbarrier" if AT_WAIT <= pc < AT_END else "running"


def deadlock(waiting: Iterable[Waiting]) -> Deadlock:
    """Threads that wait forever."""
    listed = list(waiting)
    return Deadlock(
        "deadlock: no thread can continue",
        span=_span(listed),
        details=_thread_lines(listed),
        hint="the threads that these wait for have ended, or wait elsewhere",
    )


def livelock(waiting: Iterable[Waiting]) -> Deadlock:
    """Threads in a loop without progress."""
    listed = list(waiting)
    return Deadlock(
        "no thread can make progress: the kernel repeats an earlier state",
        span=_span(listed),
        details=_thread_lines(listed),
        hint="a lock that is never released, or a flag that is never set",
    )


def name_cancelled(error: Deadlock, ctas: int) -> None:
    """Replace the hint if CTAs were cancelled, as the threads may wait for them."""
    if ctas:
        subject = "1 block was cancelled" if ctas == 1 else f"{ctas:,} blocks were cancelled"
        error.hint = f"{subject} and never runs (clusterlaunchcontrol.try_cancel): no other may wait for one"


def _span(waiting: Sequence[Waiting]) -> Span | None:
    instruction = waiting[0].at if waiting else None
    return instruction.span if instruction is not None else None


def _thread_lines(waiting: Sequence[Waiting]) -> list[str]:
    """Up to three lines, each with the threads at one instruction, and the number of others."""
    groups: dict[tuple[int, str], list[Waiting]] = {}
    for item in waiting:
        groups.setdefault((item.block.index, item.reason), []).append(item)
    lines = []
    for (_, reason), items in list(groups.items())[: 3 if len(groups) <= 3 else 2]:
        threads = sum(item.mask.bit_count() for item in items)
        first = items[0]
        lines.append(
            f"{threads:,} thread{'s' * (threads > 1)} {reason} at {_line(first)}, "
            f"first {first.position.thread(lanes_of(first.mask)[0])}"
        )
    if len(groups) > 3:
        rest = sum(item.mask.bit_count() for items in list(groups.values())[2:] for item in items)
        lines.append(f"and {rest:,} threads at {len(groups) - 2} other places")
    return lines
