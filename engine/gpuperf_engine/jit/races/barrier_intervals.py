"""Accesses to shared memory that cannot conflict with accesses of other warps between two barriers of all threads, and need no check.

The control-flow graph determines which accesses may run between two such barriers, and the thread index determines their addresses,
if these depend only on the thread index and constants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...flow.operands import matched
from ...isa.effects import ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, TENSOR_MAP, WARPGROUP
from ...memory.spaces import bit_of, reachable
from ...ptx.syntax import Instruction
from ...simt.effects import is_strong
from ...simt.launch import LaunchPlan
from ...simt.program import Program, Site

__all__ = ["conflicting_sites", "reaches_shared"]

_STORES = ("store", "atomic", "reduction")
#: effects that access shared memory without being a site, or that continue after a barrier
_ELSEWHERE = frozenset((ASYNC_COPY, BULK_COPY, MBARRIER, MBARRIER_WAIT, TENSOR_MAP, WARPGROUP))


def _is_elsewhere(instruction: Instruction) -> bool:
    return instruction.effect.tensor or instruction.effect in _ELSEWHERE


def reaches_shared(site: Site) -> bool:
    """Whether a site may access shared memory."""
    copies = site.instruction.effect.copies
    return copies or bool(reachable(site.instruction) & bit_of("shared"))


def conflicting_sites(program: Program, plan: LaunchPlan | None) -> frozenset[int] | None:
    """Sites whose accesses to shared memory may conflict with those of other warps, in blocks of a launch's shape, or of any shape.
    ``None``: not analysed, as for copies that may continue after a barrier."""
    reaching = [site for site in program.sites if reaches_shared(site)]
    blocks = program.blocks
    followed = all(not program.blocks[site.block].function for site in reaching)
    followed &= all(not block.function for block in blocks if block.kind == "barrier")
    if not followed or any(_is_elsewhere(item) for block in blocks for item in block.instructions):
        return None
    of_block: dict[int, list[Site]] = defaultdict(list)
    for site in reaching:
        of_block[site.block].append(site)
    whole = {block.index for block in blocks if block.kind == "barrier" and _of_all(block.terminator)}
    starts = {program.entries[0], *(next(iter(blocks[index].successors)) for index in whole)}
    together = _together(program, {start: _reached(program, start, whole) for start in starts}, whole)
    conflicts: set[int] = set()
    for places in together:
        here = [site for index in places for site in of_block[index]]
        if any(site.kind in _STORES for site in here):
            conflicts.update(site.index for site in here)
    return frozenset(
        conflicts if plan is None else conflicts & _conflicting(program, plan, together, of_block)
    )


def _reached(program: Program, start: int, whole: set[int]) -> set[int]:
    """Blocks that are reachable from a block without passing a barrier of all threads, including the block with the barrier."""
    seen, waiting = {start}, [start]
    while waiting:
        index = waiting.pop()
        for after in program.blocks[index].successors if index not in whole else ():
            if after >= 0 and after not in seen:
                seen.add(after)
                waiting.append(after)
    return seen


def _of_all(instruction: Instruction | None) -> bool:
    """Whether a barrier waits for all threads of the CTA."""
    assert instruction is not None
    words = instruction.opcode.split(".")
    given = {slot.name for slot, _ in matched(instruction)}
    return "cluster" not in words and "arrive" not in words and "b" not in given


def _together(program: Program, reached: dict[int, set[int]], whole: set[int]) -> list[set[int]]:
    """Sets of blocks that may run concurrently between two barriers, from the blocks ``reached`` from each."""
    group = {start: start for start in reached}

    def leader(start: int) -> int:
        while group[start] != start:
            start = group[start]
        return start

    for places in reached.values():
        # threads may wait at several of these barriers at once, and continue together
        first, *others = [program.blocks[index].successors[0] for index in sorted(places & whole)] or [-1]
        for other in others:
            group[leader(other)] = leader(first)
    together: dict[int, set[int]] = defaultdict(set)
    for start, places in reached.items():
        together[leader(start)] |= places
    return list(together.values())


def _conflicting(
    program: Program, plan: LaunchPlan, together: Sequence[set[int]], of_block: dict[int, list[Site]]
) -> set[int]:
    """Sites whose addresses conflict or are unknown, within sets of blocks that run concurrently."""
    values = _Places(program, plan)
    conflicts: set[int] = set()
    for places in together:
        conflicts.update(values.conflicts([site for index in sorted(places) for site in of_block[index]]))
    return conflicts


class _Places:
    """Words of shared memory that the warps of a block access."""

    def __init__(self, program: Program, plan: LaunchPlan) -> None:
        from ..addresses.thread_values import ThreadValues

        self._values = ThreadValues(program, plan)
        self._bytes = plan.shared_bytes
        self._warps = np.arange(plan.threads_per_cta) // 32
        self._words: dict[int, NDArray[np.int64] | None] = {}

    def _of(self, site: Site) -> NDArray[np.int64] | None:
        """The words that each thread accesses; words out of bounds map to an additional last one."""
        if site.index not in self._words:
            plain = site.space == "shared" and site.instruction.effect.per_lane
            start = self._values.address(site.instruction) if plain else None
            if start is not None:
                start = np.minimum(start // 4 + np.arange(-(-site.bytes // 4))[:, None], self._bytes // 4)
            self._words[site.index] = start
        return self._words[site.index]

    def conflicts(self, sites: Sequence[Site]) -> set[int]:
        """Sites that share a word with another warp, where at least one stores and not both are atomics."""
        stores = [site for site in sites if site.kind in _STORES]
        if not stores or all(is_strong(site.instruction) for site in sites):
            return set()
        known = {site: words for site in sites if (words := self._of(site)) is not None}
        unknown = [site for site in sites if site not in known]
        if any(site.kind in _STORES for site in unknown):
            return {site.index for site in sites}
        # strong accesses may order others, so they are always checked
        conflicts = {site.index for site in sites if is_strong(site.instruction)}
        conflicts.update(site.index for site in ([*unknown, *stores] if unknown else ()))
        least, most = (np.full(self._bytes // 4 + 1, value) for value in (1 << 30, -1))
        stored, weak = np.zeros((2, len(least)), bool)
        for site, words in known.items():
            for row in words:
                np.minimum.at(least, row, self._warps)
                np.maximum.at(most, row, self._warps)
            stored[words] |= site.kind in _STORES
            weak[words] |= not is_strong(site.instruction)
        common = stored & weak & (least < most)
        common[-1] = False
        return conflicts | {site.index for site, words in known.items() if common[words].any()}
