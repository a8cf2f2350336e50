"""Exact counts of PTX instructions and of the ways that branches went, as launches observed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import NotObserved
from ..flow.dominators import postorder, predecessors
from ..isa.effects import BRANCH, RETURN, THREAD_EXIT
from ..profile.build import LaunchRecord
from ..profile.sums import Columns
from ..ptx.syntax import Instruction
from ..results import Profile
from ..simt.counters import SITE_COLUMNS
from ..simt.program import EXIT, Program

__all__ = ["PtxCount", "PtxCounts", "Side", "is_jump", "ptx_counts"]

_REQUESTS, _WAVEFRONTS = map(SITE_COLUMNS.index, ("requests", "wavefronts"))


@dataclass(slots=True)
class PtxCount:
    """Of one PTX instruction, over all launches: executions by ``warps`` and ``threads``.

    ``requests``: executions of a memory instruction in which a lane was on; ``shared_load_wavefronts``: those of a load from shared
    memory; ``None`` if not observed. ``diverged``: executions of a branch in which lanes went both ways; ``taken``: threads that it
    took. ``lanes_on``: threads for which the guard held, of an instruction that has one.
    """

    warps: int = 0
    threads: int = 0
    requests: int | None = None
    diverged: int | None = None
    taken: int = 0
    lanes_on: int | None = None
    shared_load_wavefronts: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Where a branch goes: executions of the way there by threads and by warps (``None`` if the counters do not tell), the PTX
    instructions that only this side leads to before it comes to the branch again, whether it leads to the end at once, and whether it
    closes a loop."""

    threads: int
    warps: int | None
    numbers: frozenset[int]
    ends: bool
    back: bool


@dataclass(slots=True)
class PtxCounts:
    """``warps`` and ``threads`` that were launched, and the counts of each instruction by its number (``assemble.numbered``)."""

    warps: int
    threads: int
    of: dict[int, PtxCount]
    program: Program
    number_of: dict[Instruction, int] = field(repr=False)

    def sides(self, number: int) -> tuple[Side, ...]:
        """The two ways from a conditional branch, where it goes if its guard holds first; none for another instruction."""
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
        warps = self._warps(count, block.successors, inner, first)
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
        self, count: PtxCount, targets: Sequence[int], inner: list[list[int]], first: int
    ) -> list[int | None]:
        """A side's executions are those of its block if nothing else leads there; the other's follow."""
        before = predecessors(inner)
        known: list[int | None] = []
        for target in targets:
            tally = self.program.blocks[target].tally if target >= 0 else ()
            alone = bool(tally) and len(before[target - first]) == 1 and target != first
            known.append(self.of[self.number_of[tally[0]]].warps if alone else None)
        every = count.warps + (count.diverged or 0)
        if count.diverged == 0 and count.taken in (0, count.threads):
            return [count.warps, 0] if count.taken else [0, count.warps]
        return [
            mine if mine is not None else None if other is None else every - other
            for mine, other in zip(known, reversed(known))
        ]

    def _ends(self, target: int) -> bool:
        """Whether a block does nothing but leave."""
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


def ptx_counts(profile: Profile, instructions: Sequence[Instruction]) -> PtxCounts:
    """The counts of a profile's launches. Raises ``NotObserved`` if it no longer has them."""
    if not profile.records:
        raise NotObserved(
            f"the counters of {profile.kernel!r} are not in this profile",
            hint="machine code needs profiles of device.launch, or sums of them, in the process that launched them",
        )
    number_of = {item: number for number, item in enumerate(instructions, 1)}
    counts: dict[int, PtxCount] = {}
    warps = threads = 0
    for record in profile.records:
        ctas, lanes = (x * y * z for x, y, z in (record.plan.grid, record.plan.block))
        warps += ctas * -(-lanes // 32)
        threads += ctas * lanes
        _add(counts, record, number_of)
    return PtxCounts(warps, threads, counts, profile.records[0].program, number_of)


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
            site = program.site_of.get(instruction)
            if site is not None and seen.sites is not None:
                count.requests = (count.requests or 0) + int(seen.sites[site, _REQUESTS])
                if program.sites[site].kind == "load" and program.sites[site].space == "shared":
                    more = int(seen.sites[site, _WAVEFRONTS])
                    count.shared_load_wavefronts = (count.shared_load_wavefronts or 0) + more


def is_jump(instruction: Instruction) -> bool:
    """Whether control leaves there: a branch, return or exit."""
    return instruction.effect in (BRANCH, RETURN, THREAD_EXIT)
