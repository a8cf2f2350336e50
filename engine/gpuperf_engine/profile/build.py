"""From the counters of one launch to its profile."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from .._gc import uncollected
from ..ptx.syntax import Instruction
from ..results import BlockProfile, Branches, BranchProfile, LineProfile, Profile, Resources
from ..results.cxx_names import readable_name
from ..simt.counters import Observation
from ..simt.launch import LaunchPlan
from ..simt.program import BasicBlock, Program, declared_registers
from ..simt.rule_breaches import breach_note
from .memory import memory_totals, site_profiles
from .opcodes import count_opcodes
from .sums import Columns, Row, Sums
from .threads import Threads

__all__ = ["LaunchRecord", "build_profile", "notes_of"]

_WAITED = "waited for the host while it ran: its counts depend on how long the host took, and are not judged"


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """The source of a profile, for analyses that need more than totals. The counters of ``observation`` are sums over ``times``
    launches of this shape. ``same``: plans of launches whose inputs were kept, each with the number of launches with these inputs;
    empty if ``plan`` is the only one."""

    program: Program
    plan: LaunchPlan
    observation: Observation
    times: int = 1
    same: tuple[tuple[LaunchPlan, int], ...] = ()

    @property
    def kept(self) -> tuple[tuple[LaunchPlan, int], ...]:
        """Plans of launches whose inputs were kept, and the number of launches that each represents: at most ``times`` in total."""
        return self.same or (() if self.plan.inputs is None else ((self.plan, self.times),))

    @property
    def each(self) -> LaunchRecord:
        """One of the launches, or their mean if they differ."""
        return (
            self if self.times == 1 else replace(self, observation=self.observation.mean(self.times), times=1)
        )

    def __deepcopy__(self, memo: object) -> LaunchRecord:
        """Records are immutable and programs large, so they are not copied."""
        return self


def build_profile(
    program: Program,
    plan: LaunchPlan,
    observation: Observation,
    resources: Resources | None = None,
    started: float | None = None,
    times: int = 1,
    same: tuple[tuple[LaunchPlan, int], ...] = (),
) -> Profile:
    """The profile of one launch of a program, or of a slice of it. Counts are summed on first use.

    ``resources``: those to report, ``None`` for estimated ones; ``started``: the ``time.perf_counter()`` at which the analysis began;
    ``times``: the number of launches whose sum the counters are; ``same``: as in ``LaunchRecord``.
    """
    executed = observation.executed
    return Profile.counting(
        partial(_counted, program, plan, observation, resources),
        **program.once(_text),
        grid=plan.grid,
        block=plan.block,
        cluster=plan.cluster,
        cancelled_ctas=observation.cancelled,
        waited=observation.waited,
        launches=times,
        demand="values" if executed is None else executed.demand,
        observed_footprint=observation.footprint,
        observed_values=observation.values,
        observed_proofs=observation.proven,
        observed_threads=None if observation.threads is None else Threads(program, plan, observation.threads),
        records=(LaunchRecord(program, plan, observation, times, same),),
        method=observation.method,
        method_reason=observation.method_reason,
        remarks=observation.remarks,
        notes=_all_notes(program, plan, observation),
        races=observation.races,
        printed=plan.console.text,
        seconds=0.0 if started is None else time.perf_counter() - started,
    )


def _text(program: Program) -> Mapping[str, object]:
    """The fields that follow from the text of a program."""
    kernel = program.kernel
    return {
        "kernel": kernel.name,
        "path": kernel.module.path,
        "target": kernel.module.target,
        "version": kernel.module.version,
        "address_size": kernel.module.address_size,
        "static_instructions": program.static_instructions,
    }


@uncollected
def _counted(
    program: Program, plan: LaunchPlan, observation: Observation, resources: Resources | None
) -> Mapping[str, object]:
    """The fields of a profile that are sums of counters, and its resources."""
    table, totals = program.once(_Table), count_opcodes(program, observation)
    counters = Columns.counters(observation).tolist()
    sites = site_profiles(program, observation)
    every = totals.thread_instructions
    complete = observation.executed is None
    sliced = every if complete else observation.sliced_in(program)
    ran = sliced if observation.ran is None else observation.ran
    branches = tuple(
        BranchProfile(*fields, counters[all], counters[some]) for fields, all, some in table.branches
    )
    by_line, by_source_line = table.lines(observation)
    return {
        "resources": resources or Resources(_registers(program), plan.shared_bytes, program.local_bytes),
        "share_executed": ran / max(1, every),
        "slice_share": sliced / max(1, every),
        "thread_instructions": every,
        "warp_instructions": totals.warp_instructions,
        "thread_instructions_predicated_on": totals.thread_instructions_predicated_on,
        "opcodes": totals.opcodes,
        "warp_opcodes": totals.warp_opcodes,
        "by_category": totals.by_category,
        "units": totals.units,
        "flops": totals.flops,
        "nvprof": totals.nvprof,
        "branches": Branches(
            sum(item.executed for item in branches), sum(item.divergent for item in branches)
        ),
        "blocks": tuple(
            BlockProfile(*fields, counters[warps], counters[lanes]) for fields, warps, lanes in table.blocks
        ),
        "branch_sites": branches,
        "by_line": by_line,
        "by_source_line": by_source_line,
        "observed_memory": memory_totals(sites, observation.hottest)
        if observation.sites is not None
        else None,
        "sites": sites,
    }


class _Line:
    """The sums of one line."""

    __slots__ = ("conflicts", "divergent", "instructions", "lanes", "sectors", "warps")

    def __init__(self) -> None:
        self.instructions = 0
        self.warps, self.lanes, self.divergent = Row(), Row(), Row()
        self.sectors, self.conflicts = Row(), Row()


_Lines = defaultdict[tuple[str, int], _Line]


class _Table:
    """The common part of all profiles of a program: names, lines, and the counters whose sums they are."""

    def __init__(self, program: Program) -> None:
        columns = Columns(program)
        #: constant fields, and the columns of both counters
        self.blocks = [
            (_block(block, program), columns.warps(block.index), columns.lanes(block.index))
            for block in program.blocks
            if block.tally
        ]
        self.branches = [
            (
                (program.functions[block.function].name, block.terminator.span.line, block.terminator.opcode),
                columns.warps(block.index),
                columns.divergent(block.index),
            )
            for block in program.blocks
            if block.counted and block.terminator is not None
        ]
        lines, sources = _Lines(_Line), _Lines(_Line)
        for block in program.blocks:
            warps, lanes = columns.warps(block.index), columns.lanes(block.index)
            for instruction in block.tally:
                for line in _lines_of(instruction, lines, sources):
                    line.instructions += 1
                    line.warps[warps] += 1
                    line.lanes[lanes] += 1
            if block.counted and block.terminator is not None:
                for line in _lines_of(block.terminator, lines, sources):
                    line.divergent[columns.divergent(block.index)] += 1
        for site in program.sites:
            for line in _lines_of(site.instruction, lines, sources):
                line.sectors[site.index] += 1
                line.conflicts[len(program.sites) + site.index] += 1
        both = sorted(lines.items()), sorted(sources.items())
        #: path, number and instructions of the lines of the PTX and of those of the source
        self._names = [[(*origin, line.instructions) for origin, line in names] for names in both]
        every = [line for names in both for _, line in names]
        self._executions = Sums([row for line in every for row in (line.warps, line.lanes, line.divergent)])
        self._accesses = Sums([row for line in every for row in (line.sectors, line.conflicts)])

    def lines(self, observation: Observation) -> tuple[tuple[LineProfile, ...], tuple[LineProfile, ...]]:
        """By line of the PTX, and by line of the source."""
        executions = iter(self._executions.of(Columns.counters(observation)))
        accesses = iter(self._accesses.of(Columns.of_sites(observation)))
        ptx, source = (
            tuple(
                LineProfile(path, number, instructions, warps, lanes, sectors, conflicts, divergent)
                for (path, number, instructions), warps, lanes, divergent, sectors, conflicts in zip(
                    names, executions, executions, executions, accesses, accesses
                )
            )
            for names in self._names
        )
        return ptx, source


def _registers(program: Program) -> int:
    """Estimated registers, limited by directives, beyond which registers are spilled."""
    limit = program.kernel.maxnreg
    return min(program.registers, declared_registers(limit)) if limit else program.registers


def _lines_of(instruction: Instruction, lines: _Lines, sources: _Lines) -> tuple[_Line, ...]:
    span, location = instruction.span, instruction.location
    line = lines[span.path, span.line]
    return (line,) if location is None else (line, sources[location.path, location.line])


def _block(block: BasicBlock, program: Program) -> tuple[str, int, str, int, int, int]:
    return (
        program.functions[block.function].name,
        block.index,
        block.label,
        block.tally[0].span.line,
        block.tally[-1].span.end_line,
        len(block.tally),
    )


def _all_notes(program: Program, plan: LaunchPlan, observation: Observation) -> tuple[str, ...]:
    """The notes of the module and of the launch: one per instruction that violated a rule, one per memory instruction that read
    uninitialised bytes, and one per race."""
    notes = (*program.kernel.module.notes, *plan.console.notes)
    remarkable = observation.breaches or observation.notes or observation.waited
    if remarkable or observation.uninitialized or observation.races:
        instructions = [program.sites[index].instruction for index in sorted(observation.uninitialized)]
        notes += notes_of(program, plan, observation)
        notes += (*(f"{item.span}: {item.opcode} reads uninitialised memory" for item in instructions),)
        notes += (*(race.message for race in observation.races),)
    return notes


def notes_of(program: Program, plan: LaunchPlan, observation: Observation) -> tuple[str, ...]:
    """One note per instruction that violated a rule, and the other notes of the launch."""
    breaches = observation.breaches if plan.strict != "off" else ()
    notes = (*(breach_note(plan, item, program.kernel.name) for item in breaches), *observation.notes)
    if observation.waited:
        name = readable_name(program.kernel.name)
        notes += (f"{program.kernel.span}: {name!r} {_WAITED}",)
    return notes
