"""Why a predicted time is as long as it is: stalls by the instruction that causes them, and what-if predictions.

Each what-if predicts the same launch with one change; nothing is run. Gains are those of the model, and gains of several changes do
not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..machines.machine import Machine
from ..machines.occupancy import WARP_SIZE, Occupancy
from ..profile.build import LaunchRecord
from ..results import Advice, CodeLine, Resources, Stall
from ..sass.causes import pipe_cause
from .launch.adapt import timing_input
from .launch.contention import contention
from .launch.inputs import NO_ORIGIN, Block, Loop, Path, TimingInput
from .launch.site_traffic import Site, coalesced, mean_waits, observed_sites, without_conflicts
from .launch.warp_path import origin_of
from .models.wave_model import WaveModel

__all__ = [
    "MIN_GAIN",
    "add_advice",
    "add_stalls",
    "advice",
    "by_gain",
    "one_more_resident",
    "sorted_stalls",
    "stalls",
]

MIN_GAIN = 0.02
"""Changes that save a smaller part of the time are not reported: the model is not accurate enough."""

_LINES = 3
"""The most lines whose latency, accesses or bank conflicts are tried, those with the most stalls or excess first."""

_COUNTERS = {
    "sectors": "sectors (coalesced)",
    "wavefronts": "wavefronts of shared memory (no bank conflicts)",
}
"""The counters of a memory instruction, and a change that reduces them."""

_LATENCIES = ("long_scoreboard", "short_scoreboard", "wait")
"""Causes of stalls that end when the result is available."""


def stalls(model: WaveModel) -> tuple[Stall, ...]:
    """The waits of all warps of a launch, the longest first."""
    given, origins = model.given, model.given.origins
    warps = given.ctas * given.warps_per_cta
    found: dict[tuple[str, CodeLine, CodeLine], tuple[float, float]] = {}

    def add(cause: str, at: CodeLine, on: CodeLine, cycles: float, times: float) -> None:
        known = found.get((cause, at, on), (0.0, 0.0))
        found[cause, at, on] = known[0] + cycles * warps, known[1] + times * warps

    for wait, (cycles, times) in model.stalls().items():
        producer, waiter = origins.get(wait.producer), origins.get(wait.waiter)
        if producer is None:
            continue
        if wait.waiter == NO_ORIGIN:
            add("drain", producer.line, producer.line, cycles, times)
        elif waiter is not None:
            cause = pipe_cause(wait.pipe, producer.queue) if wait.pipe else producer.result
            add(cause, waiter.line, producer.line, cycles, times)
    each = model.barriers() / given.barriers if given.barriers else 0.0
    for number, passed in given.barriers_at.items():
        if number in origins:
            add("barrier", origins[number].line, origins[number].line, each * passed, passed)
    return _sorted(found)


def _sorted(found: Mapping[tuple[str, CodeLine, CodeLine], tuple[float, float]]) -> tuple[Stall, ...]:
    return sorted_stalls(Stall(*key, *amounts) for key, amounts in found.items() if amounts[0] > 0.0)


def sorted_stalls(rows: Iterable[Stall]) -> tuple[Stall, ...]:
    """The longest first."""
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                -row.cycles,
                row.at.path,
                *map(_place, (row.at, row.on)),
                row.cause,
                row.at.opcode,
            ),
        )
    )


def _place(line: CodeLine) -> tuple[int, int]:
    return line.line, line.address or 0


def add_stalls(parts: Iterable[tuple[Stall, int]]) -> tuple[Stall, ...]:
    """The sum of the stalls of launches, each with its number of equal launches."""
    found: dict[tuple[str, CodeLine, CodeLine], tuple[float, float]] = {}
    for stall, times in parts:
        key = stall.cause, stall.at, stall.on
        known = found.get(key, (0.0, 0.0))
        found[key] = known[0] + times * stall.cycles, known[1] + times * stall.times
    return _sorted(found)


def add_advice(parts: Iterable[tuple[Advice, int]]) -> tuple[Advice, ...]:
    """The sum of the advice for launches, each with its number of equal launches."""
    gains: dict[tuple[str, CodeLine | None], float] = {}
    for item, times in parts:
        key = item.what, item.line
        gains[key] = gains.get(key, 0.0) + times * item.gain_us
    return by_gain(Advice(what, gain, line) for (what, line), gain in gains.items())


def by_gain(rows: Iterable[Advice]) -> tuple[Advice, ...]:
    """The largest gain first."""
    return tuple(sorted(rows, key=lambda row: (-row.gain_us, row.what, str(row.line))))


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a launch, with its description for users."""

    what: str
    line: CodeLine | None
    given: TimingInput


def advice(
    model: WaveModel,
    waits: Iterable[Stall],
    record: LaunchRecord | None,
    resources: Resources | None,
    occupied: Callable[[TimingInput], Occupancy],
) -> tuple[Advice, ...]:
    """Changes that shorten a launch by at least ``MIN_GAIN`` of its time, the largest gain first.

    ``waits`` are its ``stalls``; without ``record`` and ``resources`` there is no advice on single memory instructions. ``occupied``
    gives the occupancy of a launch on the machine of the model.
    """
    machine = model.machine
    changes = [*_sooner(model.given, waits), *_more_resident(model, occupied)]
    if record is not None and resources is not None:
        changes += _without_contention(model.given, record, machine)
        changes += _better_accesses(record, machine, resources, model.given)
    now = machine.launch_overhead_us + machine.microseconds(model.waves().cycles)
    rows = []
    for change in changes:
        after = replace(model, given=change.given, resident=occupied(change.given), _paths={}).waves()
        gain = now - machine.launch_overhead_us - machine.microseconds(after.cycles)
        if gain >= MIN_GAIN * now:
            rows.append(Advice(change.what, gain, change.line))
    return by_gain(rows)


def _sooner(given: TimingInput, waits: Iterable[Stall]) -> Iterator[_Change]:
    """Without the latency of the results of one kind at one line."""
    cycles: dict[tuple[str, str], float] = {}
    longest: dict[tuple[str, str], CodeLine] = {}
    for stall in waits:
        if stall.cause in _LATENCIES:
            key = stall.on.position, stall.cause
            longest.setdefault(key, stall.on)
            cycles[key] = cycles.get(key, 0.0) + stall.cycles
    for key in sorted(cycles, key=lambda key: (-cycles[key], key))[:_LINES]:
        numbers = frozenset(
            number for number, origin in given.origins.items() if (origin.line.position, origin.result) == key
        )
        what = "its latency hidden (issued earlier, or more warps)"
        yield _Change(what, longest[key], replace(given, path=_without_latency(given.path, numbers)))


def _without_latency(path: Path, numbers: frozenset[int]) -> Path:
    parts: list[Block | Loop] = []
    for part in path:
        if isinstance(part, Loop):
            parts.append(Loop(_without_latency(part.body, numbers), part.trips))
        else:
            instructions = tuple(
                replace(item, latency="none") if item.origin in numbers else item
                for item in part.instructions
            )
            parts.append(Block(instructions, part.weight))
    return tuple(parts)


def _more_resident(model: WaveModel, occupied: Callable[[TimingInput], Occupancy]) -> Iterator[_Change]:
    """One more CTA on an SM, if registers or shared memory limit the occupancy."""
    given, machine, now = model.given, model.machine, model.resident
    if given.ctas <= now.ctas_per_sm * machine.sm_count:
        return
    limit = one_more_resident(
        machine, now, given.warps_per_cta, given.registers_per_thread, given.shared_bytes
    )
    if limit is None:
        return
    changed = replace(given, registers_per_thread=limit.registers, shared_bytes=limit.shared_bytes)
    reached = occupied(changed).ctas_per_sm
    if reached > now.ctas_per_sm:
        yield _Change(f"{limit.words}: {reached} CTAs per SM instead of {now.ctas_per_sm}", None, changed)


@dataclass(frozen=True, slots=True)
class Limit:
    """Registers per thread and bytes of shared memory per CTA with which one more CTA fits on an SM; ``words`` describes which of them
    must fall."""

    registers: int
    shared_bytes: int
    words: str


def one_more_resident(
    machine: Machine, now: Occupancy, warps_per_cta: int, registers: int, shared_bytes: int
) -> Limit | None:
    """The resources with which one more CTA fits on an SM; ``None`` if warps or CTAs limit the occupancy, or no resources would be
    left."""
    more = now.ctas_per_sm + 1
    if min(now.limits["warps"], now.limits["ctas"]) < more:
        return None
    fewer, less = registers, shared_bytes
    words = []
    if now.limits["registers"] < more:
        warps = machine.sub_partitions * (-(-more * warps_per_cta // machine.sub_partitions))
        unit = machine.register_allocation_unit
        fewer = machine.registers_per_sm // warps // unit * unit // WARP_SIZE
        words.append(f"{fewer} registers per thread instead of {registers}, nothing spilled")
    if now.limits["shared"] < more:
        unit = machine.shared_allocation_unit
        less = machine.shared_per_sm // more // unit * unit - machine.shared_reserved_per_cta
        words.append(f"{less:,} bytes of shared memory per CTA instead of {shared_bytes:,}")
    if fewer < 1 or less < 0:
        return None
    return Limit(fewer, less, " and ".join(words))


def _without_contention(given: TimingInput, record: LaunchRecord, machine: Machine) -> Iterator[_Change]:
    """All lanes of global atomics on different addresses."""
    if not given.memory.atomic_operations:
        return
    program, contended = record.program, contention(record, machine).waits
    lines = {
        given.origins[number].line
        for site in program.sites
        if site.kind in ("atomic", "reduction") and site.space != "shared"
        if (number := origin_of(site.instruction, program.blocks[site.block])) in given.origins
    }
    rest = mean_waits(observed_sites(record), machine)
    waits = {site: rest.get(site, 0.0) if site in contended else wait for site, wait in given.waits.items()}
    changed = replace(given, waits=waits, memory=replace(given.memory, atomic_operations=0))
    line = lines.pop() if len(lines) == 1 else None
    yield _Change("no two atomics on one address of global memory", line, changed)


def _better_accesses(
    record: LaunchRecord, machine: Machine, resources: Resources, given: TimingInput
) -> Iterator[_Change]:
    """Contiguous lanes, or no bank conflicts, at one line."""
    yield from _at_lines(record, machine, resources, given, coalesced, "sectors")
    yield from _at_lines(record, machine, resources, given, without_conflicts, "wavefronts")


def _at_lines(
    record: LaunchRecord,
    machine: Machine,
    resources: Resources,
    given: TimingInput,
    better: Callable[[Site, int], Site],
    counter: str,
) -> Iterator[_Change]:
    seen, program = observed_sites(record), record.program
    lines: dict[str, tuple[CodeLine, dict[int, Site]]] = {}
    excess: dict[str, int] = {}
    for site in program.sites:
        origin = given.origins.get(origin_of(site.instruction, program.blocks[site.block]))
        now = seen[site.index]
        after = better(now, site.bytes) if site.kind in ("load", "store") else now
        less = getattr(now, counter) - getattr(after, counter)
        if origin is not None and less > 0:
            position = origin.line.position
            lines.setdefault(position, (origin.line, {}))[1][site.index] = after
            excess[position] = excess.get(position, 0) + less
    for position in sorted(excess, key=lambda name: (-excess[name], name))[:_LINES]:
        line, changed = lines[position]
        before = sum(getattr(seen[index], counter) for index in changed)
        what = f"{before - excess[position]:,} {_COUNTERS[counter]} in place of {before:,}"
        sites = [changed.get(index, site) for index, site in enumerate(seen)]
        yield _Change(what, line, timing_input(record, machine, resources, sites))
