"""Executions of opcodes, by CUDA Flux's identity: the sum over basic blocks of a block's executions times its instructions.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..emulate.observe import Observation
from ..emulate.program import BasicBlock, Program
from ..isa.matrix_work import matrix_work
from ..isa.model import Spelling
from ..ptx.syntax import Instruction
from .groups import PRECISIONS, add_groups, empty_groups

__all__ = ["Totals", "count_opcodes", "lanes_on", "work_of"]


@dataclass(slots=True)
class _Executions:
    """Of one opcode: by lanes, by lanes whose guard held, by warps."""

    lanes: int = 0
    on: int = 0
    warps: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """By the names of ``Profile``, mappings sorted by key, those of fixed keys in their order."""

    thread_instructions: int
    warp_instructions: int
    thread_instructions_predicated_on: int
    opcodes: dict[str, int]
    warp_opcodes: dict[str, int]
    by_category: dict[str, int]
    units: dict[str, int]
    flops: dict[str, int]
    nvprof: dict[str, int]


def count_opcodes(program: Program, observation: Observation) -> Totals:
    """From the counters of blocks, predicated instructions and branches."""
    executed: dict[Spelling, _Executions] = {}
    for block in program.blocks:
        warps, lanes = int(observation.block_warps[block.index]), int(observation.block_lanes[block.index])
        if not lanes:
            continue
        for instruction in block.tally:
            spelling = instruction.spelling
            seen = executed.get(spelling)
            if seen is None:
                seen = executed[spelling] = _Executions()
            seen.lanes += lanes
            seen.warps += warps
            seen.on += lanes_on(instruction, block, program, observation)
    return _totals(executed)


def lanes_on(instruction: Instruction, block: BasicBlock, program: Program, observation: Observation) -> int:
    """Lanes of an instruction whose guard, if it has one, held."""
    if instruction.guard is None:
        return int(observation.block_lanes[block.index])
    counter = program.predicated_of.get(instruction)
    if counter is not None:
        return int(observation.predicated[counter])
    if block.counted and instruction is block.terminator:
        return int(observation.taken[block.index])
    # a guarded call or barrier: the lanes of the block of its own, which the uncounted branch leads to
    return int(observation.block_lanes[program.block_of[instruction]])


def work_of(spelling: Spelling) -> tuple[str, int] | tuple[()]:
    """Floating-point operations of one thread: the precision, or the type of a matrix product's factors, and how many; nothing for an
    instruction that makes none."""
    if spelling.flops and spelling.type is not None and spelling.type.name in PRECISIONS:
        return PRECISIONS[spelling.type.name], spelling.flops
    return (spelling.category == "matrix" and matrix_work(spelling.opcode)) or ()


def _totals(executed: dict[Spelling, _Executions]) -> Totals:
    opcodes, warp_opcodes, categories, units = (Counter[str]() for _ in range(4))
    flops, groups = Counter({"hp": 0, "sp": 0, "dp": 0}), empty_groups()
    for spelling, seen in executed.items():
        opcodes[spelling.opcode] += seen.lanes
        warp_opcodes[spelling.opcode] += seen.warps
        categories[spelling.category] += seen.lanes
        units[spelling.unit] += seen.warps
        if work := work_of(spelling):
            flops[work[0]] += seen.on * work[1]
        add_groups(groups, spelling, seen.on, seen.warps)
    return Totals(
        thread_instructions=opcodes.total(),
        warp_instructions=warp_opcodes.total(),
        thread_instructions_predicated_on=sum(seen.on for seen in executed.values()),
        opcodes=dict(sorted(opcodes.items())),
        warp_opcodes=dict(sorted(warp_opcodes.items())),
        by_category=dict(sorted(categories.items())),
        units=dict(sorted(units.items())),
        flops=dict(flops),
        nvprof=dict(groups),
    )
