"""Executions of machine code, computed in two ways that check each other: from PTX counts (``flow``), and by running it (``run``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import MachineError
from ..profile.build import LaunchRecord
from ..ptx.syntax import Instruction
from ..results import Profile
from .assemble import Assembly
from .counts import PtxCounts, ptx_counts
from .flow import Executions, executions
from .graph import Block, Graph
from .ordering import Unordered, unordered
from .run.machine import NotRun, Ran, run
from .run.paths import TRAP

__all__ = ["Counted", "NothingFits", "count_ways"]

_APPROXIMATE = (
    "it leaves other bytes in memory than the PTX, and its execution depends on approximate results"
)
_CONVERGING = ": its lanes converge elsewhere than those of the PTX, and execute the same"
_ROUNDED = (
    "approximate results may decide what is executed, and the run rounds them otherwise than the PTX: its counts fit those of "
    "the PTX, and are not certain where these leave something open"
)
_STEADY = (
    "approximate results may decide what is executed, and the run rounds them otherwise than the PTX: it executes the same if each is "
    "moved by a unit in its last place"
)


class NothingFits(MachineError):
    """No executions of the machine code fit its PTX counts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Executions by ``warps`` and ``threads``; ``least`` and ``greatest`` warp instructions; ``residue``, ``notes`` and ``ways`` are
    as in ``MachineCounts``. ``ran``: the results of the run, if the counts are those of the run."""

    warps: Executions
    threads: Executions
    least: int
    greatest: int
    residue: float
    notes: tuple[str, ...]
    ways: str
    ran: Ran | None = None
    #: Blocks whose executions depend on the order of threads or on waits, were assumed from other launches, or differ by way.
    unsettled: frozenset[int] = frozenset()
    #: Blocks whose executions by threads differ between the two ways.
    apart: frozenset[int] = frozenset()


def count_ways(
    profile: Profile,
    assembly: Assembly,
    graph: Graph,
    instructions: Sequence[Instruction],
    counts: PtxCounts,
    *,
    running: bool,
) -> Counted:
    """The executions of a profile's launches. ``running``: in both ways, for launches whose inputs were kept.

    Raises ``NothingFits`` if neither way gives a result.
    """
    found = unordered(profile, graph, instructions)
    kept = [record for record in profile.records if record.kept] if running else []
    others = [record for record in profile.records if not record.kept]
    if not kept:
        counted = _known(_by_flow(graph, instructions, counts), assembly)
    elif not others:
        counted = _counted(kept, assembly, graph, instructions, counts, found.waiting)
    else:
        apart = _by_flow(graph, instructions, ptx_counts(others, instructions))
        first = _counted(kept, assembly, graph, instructions, ptx_counts(kept, instructions), found.waiting)
        counted = _together(first, _known(apart, assembly), kept, others)
    return _of_one_order(counted, graph, found)


def _together(
    first: Counted, second: Counted, kept: Sequence[LaunchRecord], others: Sequence[LaunchRecord]
) -> Counted:
    """The sum of launches that were run, and of ``others``, which only have PTX counts."""
    warps, threads = (
        Executions(
            {index: count + more.blocks.get(index, 0) for index, count in one.blocks.items()},
            one.least + more.least,
            one.greatest + more.greatest,
            one.open | more.open,
            one.unexplained | more.unexplained,
            one.whole and more.whole,
        )
        for one, more in ((first.warps, second.warps), (first.threads, second.threads))
    )
    greatest = first.greatest + second.greatest
    uncertain = first.residue * first.greatest + second.residue * second.greatest
    number, every = (sum(record.times for record in records) for records in (others, [*kept, *others]))
    note = f"{number:,} of {every:,} launches were not run: the PTX counts alone tell what they execute"
    return Counted(
        warps,
        threads,
        first.least + second.least,
        greatest,
        uncertain / max(1, greatest),
        (*first.notes, *second.notes, note),
        first.ways if first.ways == "flow" else "run",
        unsettled=first.unsettled,
        apart=first.apart,
    )


def _counted(
    records: Sequence[LaunchRecord],
    assembly: Assembly,
    graph: Graph,
    instructions: Sequence[Instruction],
    counts: PtxCounts,
    waiting: frozenset[int],
) -> Counted:
    """Counts, in both ways, launches whose inputs were kept; ``waiting``: blocks whose executions may differ between the two."""
    by_flow = _by_flow(graph, instructions, counts)
    try:
        ran = run(records, assembly, graph)
    except NotRun as reason:
        return _not_run(by_flow, assembly, str(reason))
    compared = _compared(by_flow, _by_run(graph, ran), graph, waiting)
    if ran.approximate:
        # The run rounds differently from the PTX, and a rounded result affects control flow or addresses.
        if by_flow is None or compared.ways != "flow and run":
            return _not_run(by_flow, assembly, _APPROXIMATE)
        unsettled = compared.unsettled | _left_open(by_flow, graph)
        if ran.steady:
            compared = replace(compared, notes=(*compared.notes, _STEADY), unsettled=unsettled)
        else:
            compared = replace(
                compared,
                least=by_flow.least,
                greatest=by_flow.greatest,
                residue=by_flow.residue,
                notes=(*by_flow.notes, _ROUNDED),
                unsettled=unsettled,
            )
    return _of_launches(compared, by_flow, ran, records, graph)


def _not_run(by_flow: Counted | None, assembly: Assembly, reason: str) -> Counted:
    known = _known(by_flow, assembly, f"; it was not run: {reason}")
    return replace(known, notes=(*known.notes, f"the machine code was not run: {reason}"))


def _of_launches(
    counted: Counted, by_flow: Counted | None, ran: Ran, records: Sequence[LaunchRecord], graph: Graph
) -> Counted:
    """Adds the uncertainty of launches that were not run: executions that PTX counts do not determine."""
    if not ran.assumed:
        return counted
    apart = sum(record.times - sum(times for _, times in record.kept) for record in records)
    total = sum(record.observation.warp_instructions(record.program) for record in records)
    share = ran.assumed / max(1, total) * (1.0 if by_flow is None else by_flow.residue)
    launches = sum(record.times for record in records)
    return replace(
        counted,
        least=counted.least if by_flow is None else min(counted.least, by_flow.least),
        greatest=counted.greatest if by_flow is None else max(counted.greatest, by_flow.greatest),
        residue=min(1.0, counted.residue + share),
        notes=(
            *counted.notes,
            f"{apart:,} of {launches:,} launches were not run: they are counted like the first launch with the same PTX counts",
        ),
        unsettled=counted.unsettled | (frozenset() if by_flow is None else _left_open(by_flow, graph)),
    )


def _of_one_order(counted: Counted, graph: Graph, found: Unordered) -> Counted:
    """Marks executions that depend on the order of threads as uncertain, in whichever way they were counted."""
    executed = counted.warps.blocks
    total = sum(executed.get(block.index, 0) * _size(block) for block in graph.blocks)
    decided, more = (
        sum(executed.get(index, 0) * _size(graph.blocks[index]) for index in blocks)
        for blocks in (found.decided, found.decided - counted.apart)
    )
    notes = []
    if found.decided:
        lines = ", ".join(map(str, found.lines[:4])) + (", …" if len(found.lines) > 4 else "")
        where = (
            f"the branch at line {lines} of the PTX"
            if found.lines
            else "a loop that the assembler adds around an atomic"
        )
        notes.append(
            f"the order in which threads run decides about {decided:,} of {total:,} warp instructions, by {where}: "
            "these counts are those of one order"
        )
    if found.waiting:
        notes.append(
            "waits for an mbarrier are counted as if each ended at the first test: on a GPU this depends on timing"
        )
    return replace(
        counted,
        residue=min(1.0, counted.residue + more / max(1, total)),
        notes=(*counted.notes, *notes),
        unsettled=counted.unsettled | found.decided | found.waiting,
    )


def _known(by_flow: Counted | None, assembly: Assembly, why: str = "") -> Counted:
    if by_flow is None:
        raise NothingFits(
            f"no executions of the machine code of {assembly.kernel!r} for {assembly.architecture} fit its PTX counts{why}",
            hint="the PTX counts are used; please report the kernel",
        )
    return by_flow


def _by_flow(graph: Graph, instructions: Sequence[Instruction], counts: PtxCounts) -> Counted | None:
    trapped = _trapped(graph)
    threads = executions(graph, instructions, counts, threads=True, never=trapped)
    warps = threads and executions(
        graph, instructions, counts, threads=False, never=trapped | threads.never, most=threads.certain
    )
    if warps is None or threads is None:
        return None
    greatest = max(warps.least, min(warps.greatest, threads.greatest))
    residue, notes = _residue(graph, warps, greatest), _notes(graph, warps, greatest)
    return Counted(warps, threads, warps.least, greatest, residue, notes, "flow")


def _trapped(graph: Graph) -> frozenset[int]:
    """Blocks that are not executed in a launch that ends normally: functions of ``ptxas`` that end a launch which violates rules of
    tensor memory, and their calls."""
    ending = {block.index for block in graph.blocks if TRAP.search(graph.instructions(block)[0].function)}
    return frozenset(block.index for block in graph.blocks if block.index in ending or block.callee in ending)


def _by_run(graph: Graph, ran: Ran) -> Counted:
    executed = [
        Executions(dict(blocks), total, total, frozenset(), frozenset(), True)
        for blocks in (ran.warps, ran.threads)
        for total in [sum(blocks[block.index] * _size(block) for block in graph.blocks)]
    ]
    warps, threads = executed
    return Counted(warps, threads, warps.least, warps.least, 0.0, (), "run", ran)


def _compared(
    by_flow: Counted | None, by_run: Counted, graph: Graph, waiting: frozenset[int] = frozenset()
) -> Counted:
    """The counts of the run. A block is exact if the other way gives the same executions or does not determine them, else
    uncertain."""
    if by_flow is None:
        return by_run
    pairs = ((by_flow.warps.blocks, by_run.warps.blocks), (by_flow.threads.blocks, by_run.threads.blocks))
    left_open = _left_open(by_flow, graph) | waiting
    agreed, apart, blocks_apart, converging = _among_solutions(by_flow, by_run), 0, set[int](), set[int]()
    for block in graph.blocks:
        warps, threads = ([blocks.get(block.index, 0) for blocks in pair] for pair in pairs)
        if agreed or block.index in left_open or (warps[0] == warps[1] and threads[0] == threads[1]):
            continue
        if (
            threads[0] == threads[1]
        ):  # the same lanes in more or fewer groups: the machine code decides where lanes converge
            apart += abs(warps[0] - warps[1]) * _size(block)
            converging.add(block.index)
            continue
        # if only threads differ, no warp instruction is uncertain
        apart += (warps[0] != warps[1]) * max(warps) * _size(block)
        blocks_apart.add(block.index)
    if agreed:
        return replace(by_run, ways="flow and run")
    note = f"PTX counts give {by_flow.least:,} warp instructions, a run of the machine code {by_run.least:,}"
    if not blocks_apart and not converging:  # only blocks that the flow leaves open differ
        return by_run
    least, greatest = sorted((by_flow.least, by_run.least))
    return replace(
        by_run,
        least=least,
        greatest=greatest,
        residue=min(1.0, apart / max(1, greatest)),
        notes=(note if blocks_apart else note + _CONVERGING,),
        unsettled=frozenset(blocks_apart | converging),
        apart=frozenset(blocks_apart),
    )


def _among_solutions(by_flow: Counted, by_run: Counted) -> bool:
    """Whether the counts of the run are among the solutions that fit the PTX counts best."""
    return all(
        one.blocks == other.blocks or (one.solutions is not None and one.solutions.have(other.blocks))
        for one, other in ((by_flow.warps, by_run.warps), (by_flow.threads, by_run.threads))
    )


def _left_open(by_flow: Counted, graph: Graph) -> frozenset[int]:
    """Blocks that PTX counts do not determine; all blocks if counts had to be rounded."""
    warps, threads = by_flow.warps, by_flow.threads
    if not (warps.whole and threads.whole):
        return frozenset(block.index for block in graph.blocks)
    return warps.open | threads.open | warps.unexplained | threads.unexplained


def _size(block: Block) -> int:
    return block.end - block.start


def _residue(graph: Graph, warps: Executions, greatest: int) -> float:
    """The uncertain share: of the range, and of unexplained blocks; all if counts had to be rounded."""
    if not greatest or not warps.whole:
        return 0.0 if warps.whole else 1.0
    unexplained = sum(warps.blocks[index] * _size(graph.blocks[index]) for index in warps.unexplained)
    return min(1.0, (greatest - warps.least + unexplained) / greatest)


def _notes(graph: Graph, warps: Executions, greatest: int) -> tuple[str, ...]:
    notes: list[str] = []
    if greatest > warps.least:
        called = {block.callee for block in graph.blocks if block.index in warps.open and block.callee}
        names = {graph.instructions(graph.blocks[entry])[0].function for entry in called if entry > 0}
        why = f", how often {', '.join(sorted(names))} is called, among others" if names else ""
        notes.append(
            f"PTX counts do not determine all instructions: {warps.least:,} to {greatest:,} warp instructions fit them{why}"
        )
    if warps.unexplained:
        lines = sorted(graph.instructions(graph.blocks[index])[0].address for index in warps.unexplained)
        places = ", ".join(f"{address:#06x}" for address in lines[:4]) + (", …" if len(lines) > 4 else "")
        notes.append(f"no PTX instruction explains how often the code at {places} is executed")
    if not warps.whole:
        notes.append("counts were rounded: copies of a loop that lanes leave at different iterations")
    return tuple(notes)
