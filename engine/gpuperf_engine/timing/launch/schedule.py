"""The order of machine instructions inside a basic block, as an assembler would choose it.

PTX alternates loads and uses; ptxas moves loads up so that a warp waits once for all of them. This is list scheduling by height:
among the instructions whose operands have been issued, the one with the longest latency path to the end of the block comes first;
ties keep the order of the program. True, anti and output dependences of registers are kept; so is the order of memory accesses,
which the caller expresses as registers too.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from .inputs import Instruction

__all__ = ["schedule"]


def schedule(instructions: Sequence[Instruction], latencies: Mapping[str, float]) -> tuple[Instruction, ...]:
    """The instructions in scheduled order. The last one stays last if it is a branch or barrier (unit ``cbu`` or ``adu``).

    ``latencies`` as for ``path_time``; only their relations matter here.
    """
    count = len(instructions)
    fixed = count > 0 and instructions[-1].unit in ("cbu", "adu")
    before, after = _dependences(instructions, fixed)
    heights = [0.0] * count
    for index in range(count - 1, -1, -1):
        item = instructions[index]
        own = 1.0 if item.latency == "none" else latencies[item.latency]
        heights[index] = max(
            (heights[later] + (own if true else 1.0) for later, true in after[index].items()), default=own
        )
    ready = [(-heights[index], index) for index in range(count) if not before[index]]
    heapq.heapify(ready)
    order: list[Instruction] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(instructions[index])
        for later in after[index]:
            before[later] -= 1
            if not before[later]:
                heapq.heappush(ready, (-heights[later], later))
    return tuple(order)


def _dependences(instructions: Sequence[Instruction], fixed: bool) -> tuple[list[int], list[dict[int, bool]]]:
    """The number of instructions that each one waits for, and the instructions that wait for it (True: for its result, False: only for
    its issue)."""
    after: list[dict[int, bool]] = [{} for _ in instructions]
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for index, item in enumerate(instructions):
        for register in item.reads:
            if register in writer:
                after[writer[register]][index] = True
            readers.setdefault(register, []).append(index)
        for register in item.writes:
            for reader in readers.pop(register, ()):
                if reader != index:
                    after[reader].setdefault(index, False)
            if register in writer and writer[register] != index:
                after[writer[register]].setdefault(index, False)
            writer[register] = index
    if fixed:
        for index in range(len(instructions) - 1):
            after[index].setdefault(len(instructions) - 1, False)
    before = [0] * len(instructions)
    for laters in after:
        for later in laters:
            before[later] += 1
    return before, after
