"""Exact counts of PTX instructions and of the directions of branches, as observed in launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..flow.blocks import BasicBlock
from ..flow.dominators import postorder, predecessors
from ..isa.effects import BRANCH, RETURN, THREAD_EXIT
from ..profile.build import LaunchRecord
from ..profile.sums import Columns
from ..ptx.syntax import Instruction
from ..simt.counters import SITE_COLUMNS
from ..simt.program import EXIT, Program, Site

__all__ = ["Access", "PtxCount", "PtxCounts", "Side", "is_jump", "ptx_counts"]


@dataclass(frozen=True, slots=True)
class Access:
    """The counts of a memory instruction over all launches. ``requests``: executions with an active lane; ``sectors``: of global
    memory; ``wavefronts``: of shared memory; ``global_wavefronts``: of loads of global memory in the banks of L1. ``kind``, ``space``
    and ``bytes`` are those of ``Site``."""

    kind: str
    space: str
    bytes: int
    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    global_wavefronts: int = 0


@dataclass(slots=True)
class PtxCount:
    """The counts of one PTX instruction over all launches: executions by ``warps`` and ``threads``.

    ``access``: of a memory instruction, ``None`` if memory was not observed. ``diverged``: executions of a branch in which lanes took
    both directions; ``taken``: threads that took the branch. ``lanes_on``: threads for which the guard held, of a guarded instruction.
    """

    warps: int = 0
    threads: int = 0
    access: Access | None = None
    diverged: int | None = None
    taken: int = 0
    lanes_on: int | None = None

    @property
    def requests(self) -> int | None:
        return None if self.access is None else self.access.requests


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a branch. ``threads`` and ``warps``: executions (``None`` if the counters do not determine them); ``numbers``:
    the PTX instructions that only this direction reaches before the branch is executed again; ``ends``: whether it leads directly to
    the exit; ``back``: whether it is a back edge."""

    threads: int
    warps: int | None
    numbers: frozenset[int]
    ends: bool
    back: bool


@dataclass(slots=True)
class PtxCounts:
    """``warps`` and ``threads`` of the launches, and the counts of each instruction by its number (``assemble.numbered``)."""

    warps: int
    threads: int
    of: dict[int, PtxCount]
    program: Program
    number_of: dict[Instruction, int] = field(repr=False)

    def sides(self, number: int) -> tuple[Side, ...]:
        """The two directions of a conditional branch, first that in which the guard holds; empty for other instructions."""
        count = self.of.get(number)
        if count is None or count.diverged is None:
            return ()
        program = self.program
        block = next(
            (
                b
                for b in program.blocks
                if b.counted and b.terminator and self.number_of.get(b.terminator) == number
            ),
            None,
        )
        if block is None or len(block.successors) != 2:
            return ()
        inner = self._graph(block.function)
        first = program.entries[block.function]
        reached = [self._reached(inner, target, block.index - first, first) for target in block.successors]
        threads = count.taken, count.threads - count.taken
        warps = self._warps(count, block, inner, first)
        return tuple(
            Side(
                threads[side],
                warps[side],
                self._numbers(reached[side] - reached[1 - side]),
                self._ends(target),
                target in block.back_edges,
            )
            for side, target in enumerate(block.successors)
        )

    def _graph(self, function: int) -> list[list[int]]:
        blocks = self.program.blocks_of(function)
        first = self.program.entries[function]
        return [[target - first for target in block.successors if target >= 0] for block in blocks]

    def _reached(self, inner: list[list[int]], target: int, without: int, first: int) -> set[int]:
        if target < 0 or target - first == without:
            return set()
        kept = inner[without]
        inner[without] = []
        reached = {block + first for block in postorder(inner, target - first)} - {without + first}
        inner[without] = kept
        return reached

    def _numbers(self, blocks: Iterable[int]) -> frozenset[int]:
        tallies = (self.program.blocks[index].tally for index in blocks)
        return frozenset(
            self.number_of[item] for tally in tallies for item in tally if item in self.number_of
        )

    def _warps(
        self, count: PtxCount, block: BasicBlock, inner: list[list[int]], first: int
    ) -> list[int | None]:
        """Executions of both directions by warps. Those of a direction equal those of its target, if the target has no other
        predecessor and is not the reconvergence point of diverged lanes. The other direction has the rest."""
        before = predecessors(inner)
        known: list[int | None] = []
        for target in block.successors:
            tally = self.program.blocks[target].tally if target >= 0 else ()
            alone = bool(tally) and len(before[target - first]) == 1 and target != first
            alone &= target != block.reconvergence or not count.diverged
            known.append(self.of[self.number_of[tally[0]]].warps if alone else None)
        every = count.warps + (count.diverged or 0)
        if count.diverged == 0 and count.taken in (0, count.threads):
            return [count.warps, 0] if count.taken else [0, count.warps]
        return [
            mine if mine is not None else None if other is None else every - other
            for mine, other in zip(known, reversed(known))
        ]

    def _ends(self, target: int) -> bool:
        """Whether control leaves the function from this block without executing anything else."""
        for _ in range(4):
            if target == EXIT:
                return True
            block = self.program.blocks[target]
            if not all(is_jump(item) and item.guard is None for item in block.tally):
                return False
            if block.kind in ("return", "exit"):
                return True
            if len(block.successors) != 1:
                return False
            target = block.successors[0]
        return False


def ptx_counts(records: Sequence[LaunchRecord], instructions: Sequence[Instruction]) -> PtxCounts:
    """The counts of launches of one kernel."""
    number_of = {item: number for number, item in enumerate(instructions, 1)}
    counts: dict[int, PtxCount] = {}
    warps = threads = 0
    for record in records:
        ctas, lanes = (x * y * z for x, y, z in (record.plan.grid, record.plan.block))
        ran = record.times * ctas - record.observation.cancelled
        warps += ran * -(-lanes // 32)
        threads += ran * lanes
        _add(counts, record, number_of)
    return PtxCounts(warps, threads, counts, records[0].program, number_of)


def _add(counts: dict[int, PtxCount], record: LaunchRecord, number_of: dict[Instruction, int]) -> None:
    program, seen = record.program, record.observation
    columns, counters = Columns(program), Columns.counters(seen).tolist()
    for block in program.blocks:
        for instruction in block.tally:
            if instruction not in number_of:
                continue
            count = counts.setdefault(number_of[instruction], PtxCount())
            count.warps += counters[columns.warps(block.index)]
            count.threads += counters[columns.lanes(block.index)]
            if instruction.guard is not None:
                count.lanes_on = (count.lanes_on or 0) + counters[columns.lanes_on(instruction, block)]
            if block.counted and instruction is block.terminator:
                count.diverged = (count.diverged or 0) + counters[columns.divergent(block.index)]
                count.taken += counters[columns.lanes_on(instruction, block)]
            if instruction in program.site_of and seen.sites is not None:
                site = program.sites[program.site_of[instruction]]
                count.access = _with(count.access, site, seen.sites[site.index].tolist())


def _with(before: Access | None, site: Site, row: list[int]) -> Access:
    """The counts of an access plus those of one more launch."""
    more = dict(zip(SITE_COLUMNS, row, strict=True))
    access = before or Access(site.kind, site.space, site.bytes)
    return replace(
        access,
        requests=access.requests + more["requests"],
        sectors=access.sectors + more["sectors"],
        wavefronts=access.wavefronts + more["wavefronts"],
        global_wavefronts=access.global_wavefronts + more["global_wavefronts"],
    )


def is_jump(instruction: Instruction) -> bool:
    """Whether an instruction is a branch, return or exit."""
    return instruction.effect in (BRANCH, RETURN, THREAD_EXIT)
