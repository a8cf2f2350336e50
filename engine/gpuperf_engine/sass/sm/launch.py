"""A launch on one SM of a machine: traced once for each architecture, simulated with the numbers of each machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...jit.ir.sm_records import Kind, Op
from ...profile.build import LaunchRecord
from ...profile.images import ImageTraffic, image_traffic
from ...results import LINE_BYTES as _LINE
from ...results import SECTOR_BYTES as _SECTOR
from ..assemble import Assembly, assemble
from ..disassemble import disassemble
from ..graph import Graph, build_graph
from ..listing import Decoded
from ..run.trace_kernel import TraceKernel
from ..run.tracing import Tracer
from ..run.writer import NotRun
from .asynchronous import Copies
from .classes import Classes
from .numbers import SmNumbers
from .operations import Operations, unit_of
from .sampling import classes_of
from .settings import (
    FIRST_CTAS,
    MOST_INSTRUCTIONS,
    MOST_INSTRUCTIONS_AGAIN,
    MOST_RUNS,
    MOST_WAVES,
    START_INSTRUCTIONS,
)
from .sharing import Group, Reuse, reuse_of, rows_of
from .simulate import Memory, Simulated, simulate
from .stores import atomic_turns, filled_of, partly_written, weighted_turns
from .waits import Wait, caused_by, waits_of
from .window import Window, window_of

__all__ = ["Clocks", "NotRun", "Stalled", "Timed", "Traced", "further", "trace_launch"]


@dataclass(frozen=True, slots=True)
class Stalled:
    """A machine instruction on the simulated SM. ``issued``: how often warps issued it; ``stalled``: clocks that warps waited before
    it; ``caused``: clocks that warps waited because of it (``waits.caused_by``), both summed over warps. ``ptx``: the number of the
    PTX instruction (``assemble.instructions_of``); ``unit``: its unit in a machine description. ``excess_lines``: lines of global
    memory that its lanes touched beyond those that their bytes fill; ``excess_clocks``: of an access to shared memory, clocks of
    the LSU beyond those that its bytes need; ``again``: sectors that its CTA had touched before and L1 had evicted; ``lanes``: of
    accesses to memory that had an address."""

    address: int
    text: str
    issued: int
    stalled: float
    caused: float
    ptx: int
    unit: str
    excess_lines: int = 0
    excess_clocks: int = 0
    again: int = 0
    lanes: int = 0

    @property
    def base(self) -> str:
        """The opcode without modifiers."""
        return Decoded("", "", 0, self.text, self.ptx, 0).base


class Clocks(NamedTuple):
    """``cycles``: of a launch without its overhead; ``bounds``: cycles that each resource alone needs."""

    cycles: float
    bounds: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Ran:
    """``simulated``: how many of the ``ctas`` CTAs of the SM were simulated."""

    clocks: Clocks
    operations: Operations
    whole: Simulated
    simulated: int
    ctas: int


@dataclass(frozen=True, slots=True)
class Timed:
    """``cycles``: of the launch without its overhead; ``bounds``: cycles that each resource alone needs; ``instructions``: of the
    simulated CTAs; ``waits``: of the warps, whose positions index ``instructions``; ``simulated``: the number of CTAs simulated, of
    the ``ctas`` of the SM; ``strata``: the number of sampled CTAs, if each CTA of the launch executes different instructions, else
    0; ``reads``: the sectors that are read from L2, ``None`` if unknown."""

    cycles: float
    bounds: dict[str, float]
    instructions: tuple[Stalled, ...]
    waits: tuple[Wait, ...]
    simulated: int
    ctas: int
    strata: int = 0
    reads: int | None = None


@dataclass(eq=False)
class Traced:
    """A launch for one architecture, with the trace kernel of its code and the classes of its CTAs."""

    record: LaunchRecord
    tracer: TraceKernel
    classes: Classes
    #: By group and number of concurrent CTAs. Machines that hold equally many CTAs share an entry.
    reuse: dict[tuple[int, int], Reuse] = field(default_factory=dict)
    #: By group and number of CTAs that share a DRAM row: rows per CTA with sharing, and without.
    shared_rows: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    _operations: tuple[SmNumbers, Operations] | None = field(default=None, repr=False)
    _memory: tuple[tuple[object, ...], Memory] | None = field(default=None, repr=False)

    @property
    def of_inputs(self) -> bool:
        """Whether the result depends on the contents of memory before the launch too."""
        copying = self.classes.copying
        return self.classes.of_inputs or (copying is not None and copying.of_inputs)

    @property
    def graph(self) -> Graph:
        return self.tracer.graph

    def timed(self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str) -> Timed:
        """The time on a machine with at most ``resident`` CTAs on an SM and ``shared_per_cta`` bytes of shared memory for each.
        ``caches``: as in ``timing.estimate``."""
        found = self._ran(numbers, resident, shared_per_cta, caches, {})
        operations, whole = found.operations, found.whole
        strata = 0 if self.classes.exact else len(self.classes.classes)
        instructions, waits = _instructions(operations, whole), waits_of(operations, whole)
        return Timed(*found.clocks, instructions, waits, found.simulated, found.ctas, strata)

    def clocks(
        self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str, changed: Mapping[int, int]
    ) -> Clocks:
        """The clocks of ``timed`` with changes of instructions (``sm_records.Change``), by position."""
        return self._ran(numbers, resident, shared_per_cta, caches, changed).clocks

    def _ran(
        self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str, changed: Mapping[int, int]
    ) -> _Ran:
        found = self._ran_on(numbers, resident, shared_per_cta, caches, changed)
        if found.ctas >= resident or found.whole.issued.sum() > MOST_INSTRUCTIONS_AGAIN:
            return found
        # All CTAs run at once. The launch takes no longer than on fewer SMs with one more CTA on each.
        size = self.record.plan.cluster_ctas
        clusters = -(-(self.record.plan.ctas // size) // (found.ctas + 1))
        fewer = replace(numbers, sm_count=clusters * size)
        if self.ctas_of_sm(fewer) == found.ctas:
            return found
        other = self._ran_on(fewer, resident, shared_per_cta, caches, changed)
        cycles, bounds = found.clocks
        least = max(min(cycles, other.clocks.cycles), *bounds.values())
        return replace(found, clocks=Clocks(least, bounds))

    def _ran_on(
        self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str, changed: Mapping[int, int]
    ) -> _Ran:
        plan = self.record.plan
        clusters, ctas = self._clusters(numbers), self.ctas_of_sm(numbers)
        resident = min(resident, ctas)
        copies = self._copies(numbers, resident)
        memory = self.memory(numbers, resident, shared_per_cta, caches)
        numbers = self.used(numbers)
        operations = self.operations(numbers, changed)

        def run(ran: NDArray[np.int64], at_once: int) -> Simulated:
            return simulate(
                operations, self.classes, copies, numbers, memory, ran, at_once, plan.warps_per_cta
            )

        one, part = self.classes.alone(ctas, clusters, resident)
        alone = run(one, 1)
        count = _simulated(ctas, resident, int(alone.instructions * part))
        ran = self.classes.on_sm(ctas, clusters, count, resident)
        whole = run(ran, resident)
        seen = count - whole.skipped
        each = 0.0
        if whole.skipped:
            each = whole.skipped_cycles / whole.skipped
        elif count < ctas:
            each = further(whole, resident)
        equal: float = ctas
        if self.classes.layout is not None and count < ctas:
            equal *= self.classes.work_of_sm(ctas, clusters, resident) / self.classes.work_of(ran)
        bounds = self._bounds(operations, numbers, memory, resident, whole, equal / seen)
        bounds["latency"] = alone.ended
        cycles = max(whole.cycles + (equal - seen) * each, *bounds.values())
        return _Ran(Clocks(cycles, bounds), operations, whole, seen, ctas)

    def window(
        self,
        numbers: SmNumbers,
        resident: int,
        shared_per_cta: int,
        caches: str,
        start: int | None,
        clocks: int,
    ) -> Window:
        """``clocks`` clocks of the SM from ``start`` on (``None``: in the middle of the simulated CTAs). Other arguments as
        ``timed``."""
        plan = self.record.plan
        clusters, ctas = self._clusters(numbers), self.ctas_of_sm(numbers)
        resident = min(resident, ctas)
        copies, memory = (
            self._copies(numbers, resident),
            self.memory(numbers, resident, shared_per_cta, caches),
        )
        numbers = self.used(numbers)
        operations = self.operations(numbers)

        def run(ran: NDArray[np.int64], at_once: int, window: tuple[int, int] | None) -> Simulated:
            return simulate(
                operations,
                self.classes,
                copies,
                numbers,
                memory,
                ran,
                at_once,
                plan.warps_per_cta,
                window,
            )

        one, part = self.classes.alone(ctas, clusters, resident)
        count = _simulated(ctas, resident, int(run(one, 1, None).instructions * part))
        ran = self.classes.on_sm(ctas, clusters, count, resident)
        if start is None:
            start = max(0, (run(ran, resident, None).ended - clocks) // 2)
        seen = run(ran, resident, (start, start + clocks))
        each = -(-min(resident, count) * plan.warps_per_cta // numbers.parts)
        return window_of(operations, seen, start, start + clocks, each)

    def operations(self, numbers: SmNumbers, changed: Mapping[int, int] = MappingProxyType({})) -> Operations:
        """The records of the instructions, with the changes of ``clocks``; those of the last call are used again, as the number of SMs
        does not matter for them."""
        key = replace(numbers, sm_count=0)
        if self._operations is None or self._operations[0] != key:
            self._operations = key, Operations(self.graph, numbers)
        operations = self._operations[1]
        operations.change(changed)
        return operations

    def _clusters(self, numbers: SmNumbers) -> int:
        """Clusters that run concurrently. Each CTA of a cluster runs on its own SM."""
        return max(1, numbers.sm_count // self.record.plan.cluster_ctas)

    def ctas_of_sm(self, numbers: SmNumbers) -> int:
        """CTAs of the SM that has the most."""
        plan = self.record.plan
        return -(-(plan.ctas // plan.cluster_ctas) // self._clusters(numbers))

    def used(self, numbers: SmNumbers) -> SmNumbers:
        """The numbers with the fewest SMs that do not raise the most CTAs on an SM: additional SMs do not slow down those that have
        CTAs."""
        size = self.record.plan.cluster_ctas
        clusters = -(-(self.record.plan.ctas // size) // self.ctas_of_sm(numbers))
        return replace(numbers, sm_count=min(numbers.sm_count, clusters * size))

    def _part(self, numbers: SmNumbers, resident: int) -> float:
        """The SM's share of the global memory accesses of all CTAs, which is its share of the L2 and DRAM bandwidth: SMs with less
        work leave bandwidth to others. With bulk or tensor copies, the share is that of the CTAs."""
        ctas, classes, even = (
            self.ctas_of_sm(numbers),
            self.classes,
            self.ctas_of_sm(numbers) / self.record.plan.ctas,
        )
        copying = classes.copying is not None and classes.copying.named.kind_count
        spaces = np.array([group.space == "global" for group in classes.groups] + [False])
        lines = np.array([spaces[item.groups].sum() for item in classes.classes], np.float64)
        of_cluster = lines.reshape(-1, classes.cluster).mean(axis=1)
        if copying and classes.areas is not None:
            of_cluster = classes.work
        seen = classes.on_sm(ctas, self._clusters(numbers), min(ctas, FIRST_CTAS), resident)
        own, mean = of_cluster[seen // classes.cluster].mean(), of_cluster @ classes.shares()
        if (copying and classes.areas is None) or not own or not mean:
            return even
        return min(1.0, even * float(own / mean))

    def _copies(self, numbers: SmNumbers, resident: int) -> Copies:
        copying = self.classes.copying
        return Copies() if copying is None else copying.of(resident * numbers.sm_count)

    def memory(self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str) -> Memory:
        """The capacity of L1, the SM's share of the bandwidths, and the share of its accesses that comes from DRAM; that of the last
        call is used again."""
        key = numbers, resident, shared_per_cta, caches, image_traffic(self.record)
        if self._memory is None or self._memory[0] != key:
            self._memory = key, self._memory_of(numbers, resident, shared_per_cta, caches)
        return self._memory[1]

    def _memory_of(self, numbers: SmNumbers, resident: int, shared_per_cta: int, caches: str) -> Memory:
        plan, part = self.record.plan, self._part(numbers, resident)
        classes, typical = self.classes, self.classes.typical
        found: list[Reuse | None] = []
        for number, group in enumerate(classes.groups):
            sectors = typical.touched(number)
            if group.space != "global" or not len(sectors):
                found.append(None)
            elif group.moves is not None:
                found.append(self._reuse(number, sectors, group, resident * numbers.sm_count))
            else:
                found.append(self._scattered(number, resident * numbers.sm_count))
        copies = self._copies(numbers, resident)
        images = self._images(numbers)
        ctas = round(classes.equal(plan.ctas))
        footprint = sum(one.once_of_all for one in found if one is not None) * _SECTOR + copies.footprint(
            ctas
        )
        footprint += images.read + images.written
        kept = footprint <= numbers.l2_kept
        left = 0.0
        if caches == "warm":
            left = min(1.0, max(0.0, (numbers.l2_lost - footprint) / (numbers.l2_lost - numbers.l2_kept)))
        shares, behind, rows, moved = [], [], [], {True: 0.0, False: 0.0}
        local = sum(
            int((typical.groups == number).sum())
            for number, group in enumerate(classes.groups)
            if group.space == "local"
        )
        running = min(plan.ctas, resident * numbers.sm_count)
        for number, (group, one) in enumerate(zip(classes.groups, found)):
            if group.space == "local":
                shares.append(max(0.0, 1.0 - numbers.l2_kept / max(1, local * _LINE * running)))
                behind.append(0.0)
                rows.append(0.0)
                continue
            share = 1.0 if group.space == "global" else 0.0
            if one is not None:
                share = one.once_of_all / one.summed_of_all if kept else one.once / one.summed
            share *= 1.0 - left
            shares.append(share)
            behind.append(0.0 if one is None else one.behind(share, numbers.l2_kept))
            rows.append(self._rows(number, group, share, numbers, running, kept))
            moved[group.store] += share * len(typical.touched(number))
        copied = []
        for item in copies.moved:
            share = copies.share(item, kept, ctas) * (1.0 - left)
            copied.append(share)
            moved[item.way in (1, 2)] += share * item.sectors * item.count
        moved[False] += images.read * (1.0 - left) / (_SECTOR * ctas)
        moved[True] += images.written * (1.0 - left) / (_SECTOR * ctas)
        summed = max(1e-9, sum(moved.values()))
        if caches == "dirty":
            # What is read takes the place of what others have written.
            moved[True] += min(moved[False], numbers.l2_kept / (_SECTOR * ctas))
        lesser = min(moved.values()) / max(1e-9, sum(moved.values()))
        mix = min(1.0, lesser / numbers.fully_mixed)
        dram = 1.0 / ((1.0 - mix) / numbers.one_way + mix / numbers.mixed)
        dram *= summed / max(1e-9, sum(moved.values()))
        l1 = max(0, numbers.l1_bytes - resident * shared_per_cta) // _LINE
        return Memory(
            l1, numbers.l2_rate * part, dram * part, tuple(shares), tuple(copied), mix, tuple(behind),
            numbers.row_rate * part, tuple(rows), numbers.partial_rate * part, numbers.single_rate * part,
            self._filled(numbers, running, kept),
            l2_kept=math.inf if kept else numbers.l2_kept * part, l2_lost=math.inf if kept else numbers.l2_lost * part,
            texel=images.texel, fetched=images.missed * images.texel / _SECTOR, stored=images.new * images.texel / _SECTOR,
            image_share=1.0 - left,
        )  # fmt: skip

    def _images(self, numbers: SmNumbers) -> ImageTraffic:
        """The traffic of textures and surfaces. Raises ``NotRun`` if the machine has no texture units."""
        traffic = image_traffic(self.record)
        if traffic is not None and not {"tex"} <= numbers.lanes.keys() & numbers.latencies.keys():
            raise NotRun("the description of the machine lacks lanes.tex or latency.tex")
        return traffic or ImageTraffic()

    def _rows(
        self, number: int, group: Group, share: float, numbers: SmNumbers, running: int, kept: bool
    ) -> float:
        """The share, 0 to 1, of a group's DRAM rows that the SM opens itself; CTAs that access a row while it is open share it.
        ``share``: the part of the group's first touches that comes from DRAM. L2 holds stores until it is full."""
        plan, typical = self.record.plan, self.classes.typical
        sectors = typical.touched(number)
        if group.space != "global" or group.moves is None or not len(sectors) or not share:
            return 1.0
        whole = self._touched_bytes()
        # CTAs start one after another: those that start while a row is open share it.
        takes = numbers.turnaround + numbers.latencies["dram"] + running * whole / numbers.mixed
        meeting = max(1, int(running * min(1.0, numbers.row_open / takes)))
        if group.store:
            meeting = max(meeting, self._held(numbers, kept))
        meeting = min(meeting, self.classes.reaching(number, plan.ctas))
        key = number, meeting
        if key not in self.shared_rows:
            places = self.classes.places(number, meeting)
            self.shared_rows[key] = rows_of(sectors, group, plan.grid, meeting, places)
        once, summed = self.shared_rows[key]
        lines = int((typical.groups == number).sum())
        return min(1.0, once / max(1e-9, min(summed, share * lines)))

    def _touched_bytes(self) -> int:
        """What a CTA touches."""
        typical = self.classes.typical
        return sum(len(typical.touched(number)) for number in range(len(self.classes.groups))) * _SECTOR

    def _held(self, numbers: SmNumbers, kept: bool) -> int:
        """How many CTAs, one after another, touch no more than L2 holds. ``kept``: all of them."""
        return self.record.plan.ctas if kept else int(numbers.l2_kept // max(1, self._touched_bytes()))

    def _filled(self, numbers: SmNumbers, running: int, kept: bool) -> tuple[NDArray[np.uint8], ...]:
        """``filled_of`` the stores of the CTAs between whose accesses L2 loses nothing."""
        ctas = min(self.record.plan.ctas, max(running, self._held(numbers, kept)))

        def alone(number: int) -> float:
            group, sectors = self.classes.groups[number], self.classes.typical.touched(number)
            if group.moves is None:
                reuse = self._scattered(number, ctas)
            else:
                reuse = self._reuse(number, sectors, group, ctas)
            return reuse.once / reuse.summed

        return filled_of(self.classes, alone)

    def _scattered(self, number: int, running: int) -> Reuse:
        """The reuse of a group whose sectors do not move with the CTAs: modelled as random draws from the arrays of the group."""
        plan, each = self.record.plan, self.classes.classes
        sectors = [item.touched(number) for item in each]
        mean, ctas = self.classes.mean([len(item) for item in sectors]), plan.ctas
        if self.classes.areas is not None:
            ctas = max(1, self.classes.reaching(number, plan.ctas))
            mean *= plan.ctas / ctas
        room = self._room(np.concatenate(sectors))
        return Reuse.drawn(mean, room, min(ctas, running), ctas)

    def _reuse(self, number: int, sectors: NDArray[np.int64], group: Group, running: int) -> Reuse:
        key = number, min(running, self.record.plan.ctas)
        if key not in self.reuse:
            assert group.moves is not None
            room = self._room(sectors) if group.seen else 0
            self.reuse[key] = reuse_of(
                sectors,
                group.moves,
                self.record.plan.grid,
                running,
                group.seen,
                room,
                self.classes.places(number, MOST_RUNS),
                self.classes.reaching(number, self.record.plan.ctas),
            )
        return self.reuse[key]

    def _room(self, touched: NDArray[np.int64]) -> int:
        """The number of sectors of the arrays that contain these sectors."""
        room = 0
        for start, size in self.record.plan.pointed_at:
            first, last = (at // _SECTOR % (1 << 29) for at in (start, start + max(1, size) - 1))
            if ((touched >= first) & (touched <= last)).any():
                room += last - first + 1
        return room

    def _bounds(
        self,
        operations: Operations,
        numbers: SmNumbers,
        memory: Memory,
        resident: int,
        seen: Simulated,
        times: float,
    ) -> dict[str, float]:
        """Cycles that each resource needs for all CTAs of the SM; ``times``: the ratio of all CTAs to those simulated."""
        classes = self.classes
        bounds = {"issue": seen.instructions / (numbers.parts * numbers.issue_rate)}
        bounds |= {unit: clocks / numbers.parts for unit, clocks in operations.occupied(seen.issued).items()}
        bounds |= {
            "lsu": float(seen.lsu_clocks),
            **_parts_of_lsu(operations, seen),
            "tensor": max(bounds.get("tensor", 0.0), seen.tensor_clocks),
            "tex": max(bounds.get("tex", 0.0), seen.image_clocks),
            "fetch": float(seen.fetch_clocks),
            "l2": max(
                seen.l2_sectors * _SECTOR / min(numbers.port_rate, memory.l2_rate),
                seen.l2_sectors * _SECTOR / memory.l2_rate
                + (partly_written(operations, seen) - seen.singles) * memory.partial_clocks
                + seen.singles * memory.single_clocks,
            ),
            "dram": max(seen.dram_sectors * _SECTOR / memory.dram_rate, seen.row_clocks),
        }
        if numbers.atomic_turns and classes.atomics:
            of_items = weighted_turns(operations, seen)
            turns = atomic_turns(classes, self.record.plan, of_items, self._room)
            bounds["atomics"] = turns / numbers.atomic_turns / self._part(numbers, resident)
        bounds = {name: clocks * times for name, clocks in bounds.items()}
        return bounds | {"dispatch": self.record.plan.ctas / numbers.cta_rate}


def _instructions(operations: Operations, seen: Simulated) -> tuple[Stalled, ...]:
    items, numbers = operations.items, operations.numbers
    kinds, words = operations.counted(Op.KIND, np.uint16), operations.counted(Op.ARGUMENT)
    least = (seen.lanes * words + np.uint64(31)) // np.uint64(32)
    through = (
        (kinds >= Kind.LOAD) & (kinds <= Kind.COPY) & (kinds != Kind.LOCAL_LOAD) & (kinds != Kind.LOCAL_STORE)
    )
    lines = np.where(through, seen.lines.astype(np.int64) - least.astype(np.int64), 0)
    needed = np.maximum(
        numbers.lsu_clocks * seen.issued.astype(np.int64), least.astype(np.int64) * numbers.wavefront_clocks
    )
    clocks = np.where(kinds == Kind.SHARED, seen.moved.astype(np.int64) - needed, 0)
    columns = zip(
        seen.issued.tolist(),
        np.bincount(seen.stalls.at, seen.stalls.clocks, len(items)).tolist(),
        caused_by(operations, seen).tolist(),
        np.maximum(lines, 0).tolist(),
        np.maximum(clocks, 0).tolist(),
        seen.again.tolist(),
        seen.lanes.tolist(),
    )
    return tuple(
        Stalled(
            item.address,
            item.text,
            issued,
            waited,
            caused,
            item.ptx,
            unit_of(item, numbers.architecture),
            *excess,
        )
        for item, (issued, waited, caused, *excess) in zip(items, columns)
    )


def _parts_of_lsu(operations: Operations, seen: Simulated) -> dict[str, float]:
    """Clocks of the LSU that all sub-partitions share, for shared memory and for L1."""
    kinds = operations.counted(Op.KIND, np.uint16)
    shared = kinds == Kind.SHARED
    through = (kinds >= Kind.LOAD) & (kinds <= Kind.COPY)
    parts = {"shared": float(seen.moved[shared].sum()), "l1": float(seen.moved[through].sum())}
    return {name: clocks for name, clocks in parts.items() if clocks}


def _simulated(ctas: int, resident: int, instructions: int) -> int:
    """The number of the SM's CTAs to simulate, each of ``instructions`` warp instructions. The rest is a whole number of waves."""
    instructions = max(instructions, START_INSTRUCTIONS)
    if ctas * instructions <= MOST_INSTRUCTIONS or ctas < 3 * resident:
        return ctas
    waves = max(2, min(MOST_WAVES, MOST_INSTRUCTIONS // (instructions * resident), ctas // resident))
    return min(ctas, ctas % resident + waves * resident)


def further(seen: Simulated, resident: int) -> float:
    """Clocks that a further CTA adds: its instructions at the issue rate between the end of the first wave and the end of the first
    CTA that no other CTA replaces. If fewer are issued in that time than one CTA has, as where some CTAs of the first wave get few
    turns, it begins at an earlier end."""
    order = np.argsort(seen.finished, kind="stable")
    last = order[len(order) - resident]
    one = seen.instructions / len(order)
    clocks, issued = int(seen.finished[last]), int(seen.progress[last])
    for first in order[resident - 1 :: -1]:
        if issued - int(seen.progress[first]) >= one:
            clocks -= int(seen.finished[first])
            issued -= int(seen.progress[first])
            break
    return clocks * one / max(1, issued)


def trace_launch(record: LaunchRecord, architecture: str) -> Traced:
    """Traces a launch, or returns its earlier trace. Raises ``NotRun`` if it cannot be simulated, ``MachineError`` if the assembler
    fails."""
    kernel, plan = record.program.kernel, record.plan
    assembly = assemble(kernel, architecture)
    tracer = kernel.memo.get((Tracer, architecture, assembly.tool))
    inputs = plan.inputs if isinstance(tracer, Tracer) and tracer.reads_memory else None
    key = (plan.grid, plan.block, plan.dynamic_shared, plan.parameters, inputs)
    known = kernel.memo.get((Traced, architecture, assembly.tool))
    if isinstance(known, tuple) and known[0] == key:
        if isinstance(known[1], str):
            raise NotRun(known[1])
        traced = known[1]
        assert isinstance(traced, Traced)
        if traced.record.plan.inputs is plan.inputs or not traced.of_inputs:
            return replace(traced, record=record)
    try:
        traced = _traced(record, assembly)
    except NotRun as reason:
        kernel.memo[Traced, architecture, assembly.tool] = key, str(reason)
        raise
    key = (*key[:-1], plan.inputs if traced.classes.of_inputs else None)
    kernel.memo[Traced, architecture, assembly.tool] = key, traced
    return traced


def _traced(record: LaunchRecord, assembly: Assembly) -> Traced:
    kernel = record.program.kernel
    graph = build_graph(disassemble(assembly), kernel.name)
    tracer = kernel.memo.get((Tracer, assembly.architecture, assembly.tool))
    if not isinstance(tracer, Tracer):
        tracer = kernel.memo[Tracer, assembly.architecture, assembly.tool] = Tracer(kernel, assembly, graph)
    return Traced(record, tracer, classes_of(tracer, record))
