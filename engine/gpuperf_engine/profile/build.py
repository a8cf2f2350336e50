"""From the counters of one launch to its profile. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..emulate.breaches import breach_note
from ..emulate.launch import LaunchPlan
from ..emulate.observe import Observation
from ..emulate.program import BasicBlock, Program
from ..garbage import uncollected
from ..ptx.syntax import Instruction
from ..results import (
    BlockProfile,
    Branches,
    BranchProfile,
    LineProfile,
    Profile,
    Resources,
    SiteProfile,
)
from .memory import memory_totals, site_profiles
from .opcodes import count_opcodes
from .threads import Threads

__all__ = ["LaunchRecord", "build_profile"]


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """What a profile was made from: analyses that need more than totals go back to it."""

    program: Program
    plan: LaunchPlan
    observation: Observation


@dataclass
class _Line:
    instructions: int = 0
    warps: int = 0
    lanes: int = 0
    sectors: int = 0
    conflicts: int = 0
    divergent: int = 0


_Lines = defaultdict[tuple[str, int], _Line]


@uncollected
def build_profile(program: Program, plan: LaunchPlan, observation: Observation) -> Profile:
    """The profile of one launch of a program, whatever part of it ran."""
    executed = observation.executed
    totals = count_opcodes(program, observation)
    lines, sources = _Lines(_Line), _Lines(_Line)
    for block in program.blocks:
        _count_lines(block, observation, lines, sources)
    branches = list(_branches(program, observation, lines, sources))
    sites = site_profiles(program, observation)
    _count_sites(program, sites, lines, sources)
    kernel = program.kernel
    return Profile(
        kernel=kernel.name,
        path=kernel.module.path,
        target=kernel.module.target,
        version=kernel.module.version,
        address_size=kernel.module.address_size,
        grid=plan.grid,
        block=plan.block,
        cluster=plan.cluster,
        launches=1,
        demand="values" if executed is None else executed.demand,
        share_executed=observation.executed_in(program) / max(1, totals.thread_instructions),
        slice_share=observation.sliced_in(program) / max(1, totals.thread_instructions),
        thread_instructions=totals.thread_instructions,
        warp_instructions=totals.warp_instructions,
        thread_instructions_predicated_on=totals.thread_instructions_predicated_on,
        opcodes=totals.opcodes,
        warp_opcodes=totals.warp_opcodes,
        by_category=totals.by_category,
        units=totals.units,
        flops=totals.flops,
        nvprof=totals.nvprof,
        branches=Branches(sum(item.executed for item in branches), sum(item.divergent for item in branches)),
        resources=Resources(program.registers, plan.shared_bytes, program.local_bytes),
        blocks=tuple(_block(block, program, observation) for block in program.blocks if block.tally),
        branch_sites=tuple(branches),
        by_line=_listed(lines),
        by_source_line=_listed(sources),
        static_instructions=sum(len(function.instructions) for function in program.functions),
        observed_memory=memory_totals(sites) if observation.sites is not None else None,
        sites=sites,
        observed_footprint=observation.footprint,
        observed_threads=None if observation.threads is None else Threads(program, plan, observation.threads),
        records=(LaunchRecord(program, plan, observation),),
        method=observation.method,
        method_reason=observation.method_reason,
        remarks=observation.remarks,
        notes=(
            *kernel.module.notes,
            *plan.console.notes,
            *_found(program, plan, observation),
            *(race.message for race in observation.races),
        ),
        races=observation.races,
        printed=plan.console.text,
    )


def _count_lines(block: BasicBlock, observation: Observation, lines: _Lines, sources: _Lines) -> None:
    warps, lanes = int(observation.block_warps[block.index]), int(observation.block_lanes[block.index])
    for instruction in block.tally:
        for line in _lines_of(instruction, lines, sources):
            line.instructions += 1
            line.warps += warps
            line.lanes += lanes


def _lines_of(instruction: Instruction, lines: _Lines, sources: _Lines) -> tuple[_Line, ...]:
    span, location = instruction.span, instruction.location
    line = lines[span.path, span.line]
    return (line,) if location is None else (line, sources[location.path, location.line])


def _branches(
    program: Program,
    observation: Observation,
    lines: _Lines,
    sources: _Lines,
) -> Iterable[BranchProfile]:
    for block in program.blocks:
        if not block.counted or block.terminator is None:
            continue
        divergent = int(observation.divergent[block.index])
        for line in _lines_of(block.terminator, lines, sources):
            line.divergent += divergent
        yield BranchProfile(
            program.functions[block.function].name,
            block.terminator.span.line,
            block.terminator.opcode,
            int(observation.block_warps[block.index]),
            divergent,
        )


def _count_sites(
    program: Program,
    sites: tuple[SiteProfile, ...],
    lines: _Lines,
    sources: _Lines,
) -> None:
    for site, found in zip(program.sites, sites):
        for line in _lines_of(site.instruction, lines, sources):
            line.sectors += found.sectors + found.local_sectors
            line.conflicts += found.conflicts


def _block(block: BasicBlock, program: Program, observation: Observation) -> BlockProfile:
    return BlockProfile(
        function=program.functions[block.function].name,
        index=block.index,
        label=block.label,
        first_line=block.tally[0].span.line,
        last_line=block.tally[-1].span.end_line,
        instructions=len(block.tally),
        warp_executions=int(observation.block_warps[block.index]),
        thread_executions=int(observation.block_lanes[block.index]),
    )


def _listed(lines: _Lines) -> tuple[LineProfile, ...]:
    return tuple(
        LineProfile(
            path,
            number,
            line.instructions,
            line.warps,
            line.lanes,
            line.sectors,
            line.conflicts,
            line.divergent,
        )
        for (path, number), line in sorted(lines.items())
    )


def _found(program: Program, plan: LaunchPlan, observation: Observation) -> tuple[str, ...]:
    """One note per instruction that broke a rule, and per memory instruction that read bytes nobody had written."""
    instructions = [program.sites[index].instruction for index in sorted(observation.uninitialized)]
    return (
        *(breach_note(plan, item) for item in observation.breaches if plan.strict != "off"),
        *observation.notes,
        *(f"{item.span}: {item.opcode} reads uninitialised memory" for item in instructions),
    )
