"""Why a simulated launch takes its time: stalls by the instruction that causes them, and simulations with one change each.

A gain is the difference of two simulations. Gains of several changes do not add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import LaunchError
from ..jit.ir.sm_records import Change
from ..profile.build import LaunchRecord
from ..ptx.syntax import Instruction
from ..results import Advice, CodeLine, Estimate, Resources, Stall
from ..sass.assemble import instructions_of
from ..sass.sm.launch import NotRun, Stalled, Timed
from ..sass.sm.waits import Wait
from .models.simulation import Simulation
from .why import MIN_GAIN, by_gain, one_more_resident, sorted_stalls

__all__ = ["explain_simulated"]

_LINES = 3
"""The most lines of each kind that are tried, those with the most stalls or excess first."""
_SIMULATED = 60_000_000
"""Warp instructions that the simulations of changes may take together; at least two changes are simulated."""
_LATENCIES = ("long_scoreboard", "short_scoreboard", "wait")
"""Causes of stalls that end when the result is available."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a launch, with its description ``what``. ``promise``: warp clocks that it may save, by which changes are selected;
    ``changed``: ``sm_records.Change`` by position; ``resources`` replace those of the launch."""

    what: str
    line: CodeLine | None
    promise: float
    changed: Mapping[int, int]
    resources: Resources | None = None


def explain_simulated(found: Estimate, simulation: Simulation) -> Estimate:
    """The estimate with stalls and advice. ``simulation`` is that of ``found``."""
    timed, record = simulation.timed(), simulation.record
    lines = _code_lines(record, timed)
    waits = _stalls(record, timed, lines)
    return replace(found, stalls=waits, advice=_advice(found, simulation, timed, lines))


def _code_lines(record: LaunchRecord, timed: Timed) -> list[CodeLine]:
    """The code lines of instructions, by position."""
    origins, path = instructions_of(record.program.kernel), record.program.kernel.module.path
    return [_code_line(item, origins, path) for item in timed.instructions]


def _code_line(item: Stalled, origins: tuple[Instruction, ...], path: str) -> CodeLine:
    words = item.text.split()
    opcode = next((word for word in words if not word.startswith("@")), "").rstrip(";")
    if not 0 < item.ptx <= len(origins):
        return CodeLine(path, 0, opcode, item.unit, "", item.address)
    origin = origins[item.ptx - 1]
    source = "" if origin.location is None else str(origin.location)
    return CodeLine(path, origin.span.line, opcode, item.unit, source, item.address)


def _stalls(record: LaunchRecord, timed: Timed, lines: list[CodeLine]) -> tuple[Stall, ...]:
    """The stalls of all warps of the launch, extrapolated from the simulated SM."""
    scale = record.plan.ctas / timed.simulated
    return sorted_stalls(
        Stall(wait.cause, lines[wait.at], lines[wait.on], wait.clocks * scale, wait.times * scale)
        for wait in timed.waits
        if wait.cause != "selected"
    )


def _advice(
    found: Estimate, simulation: Simulation, timed: Timed, lines: list[CodeLine]
) -> tuple[Advice, ...]:
    """Changes whose simulation saves at least ``MIN_GAIN`` of the time, the largest gain first."""
    issued = sum(item.issued for item in timed.instructions)
    clocks = issued + sum(item.stalled for item in timed.instructions)
    changes = [*_at_lines(timed, lines), *_more_resident(simulation, clocks)]
    changes.sort(key=lambda change: (-change.promise, change.what, str(change.line)))
    most = max(2, _SIMULATED // max(1, issued))
    rows, atomics = [], simulation.atomics(timed)
    for change in changes[:most]:
        if change.promise < MIN_GAIN * clocks:
            continue
        other = replace(simulation, resources=change.resources or simulation.resources)
        try:
            gain = found.time_us - found.launch_us - other.changed_us(change.changed, atomics)
        except (NotRun, LaunchError):  # for example, without a barrier that other warps count on
            continue
        if gain >= MIN_GAIN * found.time_us:
            rows.append(Advice(change.what, gain, change.line))
    return by_gain([*rows, *_without_contention(found, simulation, timed)])


def _at_lines(timed: Timed, lines: list[CodeLine]) -> Iterator[_Change]:
    """Changes of single lines."""
    waits = timed.waits
    latencies = [wait for wait in waits if wait.cause in _LATENCIES]
    hidden = "its latency hidden (issued earlier, or more warps)"
    yield from _longest(latencies, lines, hidden, Change.HIDDEN)
    again = {at for at, item in enumerate(timed.instructions) if item.again and _is_load(lines[at])}
    loads = [wait for wait in waits if wait.cause == "long_scoreboard" and wait.on in again]
    yield from _longest(loads, lines, "its repeated loads hit in L1", Change.NEAR)
    held = [replace(wait, on=wait.at) for wait in waits if wait.cause == "barrier"]
    yield from _longest(held, lines, "no wait at this barrier", Change.NO_BARRIER)
    clocks = sum(item.issued + item.stalled for item in timed.instructions)
    for kind, bits, words in (
        ("excess_clocks", Change.NO_CONFLICTS, "no bank conflicts"),
        (
            "excess_lines",
            Change.SIDE_BY_SIDE | Change.NO_CONFLICTS,
            "its lanes contiguous, in the fewest lines of 128 bytes",
        ),
    ):
        excess = [
            Wait(at, kind, at, float(getattr(item, kind)), 1.0) for at, item in enumerate(timed.instructions)
        ]
        for change in _longest([one for one in excess if one.clocks], lines, words, bits):
            # The gain depends on other limiters; only the simulation shows it.
            yield replace(change, promise=clocks)


def _is_load(line: CodeLine) -> bool:
    return line.opcode.startswith(("LDG", "LD.", "LDL"))


def _longest(waits: Iterable[Wait], lines: list[CodeLine], what: str, bits: int) -> Iterator[_Change]:
    """For each of the lines that cause the longest waits, a change of those of its instructions that warps wait for."""
    clocks: dict[str, float] = {}
    of_line: dict[str, dict[int, float]] = {}
    for wait in waits:
        position = lines[wait.on].position
        clocks[position] = clocks.get(position, 0.0) + wait.clocks
        each = of_line.setdefault(position, {})
        each[wait.on] = each.get(wait.on, 0.0) + wait.clocks
    for position in sorted(clocks, key=lambda name: (-clocks[name], name))[:_LINES]:
        each = of_line[position]
        first = max(each, key=lambda at: (each[at], -at))
        yield _Change(what, lines[first], clocks[position], dict.fromkeys(each, bits))


def _more_resident(simulation: Simulation, clocks: float) -> Iterator[_Change]:
    """One more CTA on an SM, if registers or shared memory limit the occupancy."""
    machine, now = simulation.machine, simulation.occupied()
    plan, resources = simulation.record.plan, simulation.used()
    if plan.ctas <= now.ctas_per_sm * machine.sm_count:
        return
    more = one_more_resident(machine, now, plan.warps_per_cta, resources.registers, resources.shared_bytes)
    if more is None:
        return
    changed = replace(resources, registers=more.registers, shared_bytes=more.shared_bytes)
    reached = replace(simulation, resources=changed).occupied().ctas_per_sm
    if reached > now.ctas_per_sm:
        what = f"{more.words}: {reached} CTAs per SM instead of {now.ctas_per_sm}"
        yield _Change(what, None, clocks, {}, changed)


def _without_contention(found: Estimate, simulation: Simulation, timed: Timed) -> Iterator[Advice]:
    """All lanes of global atomics on different addresses."""
    if not simulation.atomics(timed):
        return
    cycles = max(timed.cycles, *timed.bounds.values())
    gain = found.time_us - found.launch_us - simulation.microseconds(cycles, timed.bounds)
    if gain >= MIN_GAIN * found.time_us:
        yield Advice("no two atomics on one address of global memory", gain)
