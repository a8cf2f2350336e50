"""Why the counts are what they are: hot lines, trip counts of loops, and what diverging branches depend on.

Counts of edges follow from those of blocks and of guards that held, so the trip counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._arguments import takes_annotated
from ..errors import NotObserved
from ..flow.control_dependence import may_end
from ..flow.loops import Loop, find_loops
from ..isa.effects import THREAD_EXIT
from ..ptx.syntax import Instruction
from ..results import DivergentBranch, Explanation, LineProfile, LoopProfile, Profile
from ..simt.counters import Observation
from ..simt.program import EXIT, BasicBlock, Program
from ..simt.thread_counters import ThreadTable, columns_of
from ..symbolic.slice_program import dependence_of
from .causes import CauseFinder

__all__ = ["explain"]


@takes_annotated
def explain(profile: Profile, lines: int = 10) -> Explanation:
    """Explain a launch, or several launches of one kernel added up. ``lines``: how many of the hottest to list.

    Raises ``NotObserved`` for a profile that was not made by running a kernel here (read back from JSON, for example).
    """
    if not profile.records:
        raise NotObserved(
            f"only numbers are left of the profile of {profile.kernel!r}",
            hint="explain the profile that Device.launch returned",
        )
    program: Program = profile.records[0].program
    if len({(record.program.kernel.name, len(record.program.blocks)) for record in profile.records}) > 1:
        raise NotObserved(
            f"the profile of {profile.kernel!r} is a sum over different kernels",
            hint="explain each of them",
        )
    counters = _summed([record.observation for record in profile.records])
    tables = [record.observation.threads for record in profile.records if record.observation.threads]
    causes = CauseFinder(program, dependence_of(program), [record.plan for record in profile.records])
    return Explanation(
        tuple(_loops(program, counters, tables, causes)),
        tuple(_branches(program, counters, causes)),
        _hottest(profile.by_source_line or profile.by_line, lines),
    )


def _summed(parts: Sequence[Observation]) -> Observation:
    """The counters of several launches, as Python integers where a sum could leave 64 bits."""
    if len(parts) == 1:
        return parts[0]
    names = ("block_warps", "block_lanes", "divergent", "taken", "predicated")
    sums = {name: sum(getattr(part, name).astype(object) for part in parts) for name in names}
    return Observation(**sums, sites=None)


def _hottest(lines: Sequence[LineProfile], count: int) -> tuple[LineProfile, ...]:
    ran = (line for line in lines if line.thread_instructions)
    return tuple(sorted(ran, key=lambda line: (-line.thread_instructions, line.path, line.line))[:count])


def _source(instruction: Instruction) -> str:
    location = instruction.location
    return str(location) if location is not None and location.line > 0 else ""


def _branches(program: Program, counters: Observation, causes: CauseFinder) -> list[DivergentBranch]:
    branches = []
    for block in program.blocks:
        divergent = int(counters.divergent[block.index])
        if not divergent or block.terminator is None:
            continue
        branches.append(
            DivergentBranch(
                program.functions[block.function].name,
                block.terminator.span.line,
                _source(block.terminator),
                block.terminator.opcode,
                int(counters.block_warps[block.index]),
                divergent,
                causes.of([block.index]),
            )
        )
    return sorted(branches, key=lambda branch: (-branch.divergent, branch.line))


def _loops(
    program: Program, counters: Observation, tables: Sequence[ThreadTable], causes: CauseFinder
) -> list[LoopProfile]:
    loops = []
    for number, function in enumerate(program.functions):
        blocks = program.blocks_of(number)
        edges = _all_threads(program, blocks, counters)
        threads = [_each_thread(program, blocks, table) for table in tables]
        for loop in find_loops(blocks):
            body = [program.blocks[index] for index in sorted(loop.body)]
            text = [instruction for block in body for instruction in block.instructions]
            if not counters.block_warps[loop.head] or not text:
                continue
            latch = program.blocks[loop.latches[-1]].terminator or text[-1]
            ends = [block.index for block in body if may_end(block, loop)]
            loops.append(
                LoopProfile(
                    function.name,
                    min(instruction.span.line for instruction in text),
                    max(instruction.span.end_line for instruction in text),
                    _source(latch),
                    loop.depth,
                    edges.entries(loop),
                    edges.iterations(loop),
                    int(counters.block_lanes[loop.head]),
                    int(counters.block_warps[loop.head]),
                    sum(block.counts * int(counters.block_lanes[block.index]) for block in body),
                    causes.of(ends),
                    *_extremes(loop, threads),
                )
            )
    return sorted(loops, key=lambda loop: (-loop.thread_instructions, loop.line, loop.depth))


class _Edges:
    """The numbers of threads that took each edge between blocks of a function, from the counters of blocks: for all threads
    together, or for each thread (arrays)."""

    def __init__(
        self,
        program: Program,
        blocks: Sequence[BasicBlock],
        lanes: Callable[[int], Any],
        taken: Callable[[int], Any],
    ) -> None:
        self._blocks = {block.index: block for block in blocks}
        self._lanes, self._taken = lanes, taken
        self._sources: dict[int, list[BasicBlock]] = {}
        for block in blocks:
            for target in dict.fromkeys(block.successors):
                self._sources.setdefault(target, []).append(block)
        self._calls_end = any(
            instruction.effect is THREAD_EXIT
            for function in program.functions[1:]
            for instruction in function.instructions
        )

    def _along(self, block: BasicBlock, target: int) -> Any:
        """Threads that took the edge from ``block`` to its successor ``target``; ``None`` if unknown."""
        if len(set(block.successors)) == 1 and not (block.kind == "call" and self._calls_end):
            return self._lanes(block.index)
        if block.kind == "branch" and block.counted:
            taken = self._taken(block.index)
            return taken if target == block.successors[0] else self._lanes(block.index) - taken
        if target != EXIT and len(self._sources[target]) == 1 and target != next(iter(self._blocks)):
            return self._lanes(target)
        if block.kind == "branch":  # the guard of a call or barrier
            return self._lanes(block.index) - self._lanes(block.successors[0])
        return None

    def _sum(self, edges: Iterable[tuple[BasicBlock, int]]) -> Any:
        counts = [self._along(block, target) for block, target in edges]
        return None if any(count is None for count in counts) else sum(counts)

    def entries(self, loop: Loop) -> Any:
        """Threads that entered a loop, at its head."""
        if not loop.reducible:
            return None
        again = self._sum((self._blocks[index], loop.head) for index in loop.latches)
        if again is not None:
            return self._lanes(loop.head) - again
        outside = [block for block in self._sources[loop.head] if block.index not in loop.body]
        # the function's first block is entered by calls and the launch as well
        first = loop.head == next(iter(self._blocks))
        return None if first else self._sum((block, loop.head) for block in outside)

    def iterations(self, loop: Loop) -> Any:
        """Executions of the head that do not end at its test; a loop of one block is tested at its end."""
        head = self._blocks[loop.head]
        if not loop.reducible:
            return None
        executions = self._lanes(loop.head)
        if loop.head in loop.latches:
            return executions
        left = self._sum((head, target) for target in set(head.successors) if target not in loop.body)
        return None if left is None else executions - left


def _all_threads(program: Program, blocks: Sequence[BasicBlock], counters: Observation) -> _Edges:
    return _Edges(
        program,
        blocks,
        lambda index: int(counters.block_lanes[index]),
        lambda index: int(counters.taken[index]),
    )


def _each_thread(program: Program, blocks: Sequence[BasicBlock], table: ThreadTable) -> _Edges:
    taken = columns_of(program).taken
    return _Edges(
        program,
        blocks,
        lambda index: table.counts[:, :, index],
        lambda index: table.counts[:, :, taken[index]],
    )


def _extremes(loop: Loop, threads: Iterable[_Edges]) -> tuple[int | None, int | None]:
    """The minimum and maximum number of iterations of a thread that entered a loop."""
    counts: list[int] = []
    for edges in threads:
        entries, iterations = edges.entries(loop), edges.iterations(loop)
        if entries is not None and iterations is not None and (entered := iterations[entries > 0]).size:
            counts += [int(entered.min()), int(entered.max())]
    return (min(counts), max(counts)) if counts else (None, None)
