"""The time of a launch from the simulation of one SM on machine code (``sass.sm``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...machines.common import common
from ...machines.machine import Machine
from ...machines.occupancy import WARP_SIZE, Occupancy, occupancy
from ...machines.targets import assembled_for
from ...profile.build import LaunchRecord
from ...profile.images import NOTE, image_traffic
from ...ptx.syntax import Instruction
from ...results import Estimate, Resources, StalledInstruction
from ...sass.assemble import instructions_of
from ...sass.sm.kept import AssembledCode, CodeSource, changed_clocks, timed_launch
from ...sass.sm.launch import Clocks, NotRun, Timed
from ...sass.sm.numbers import CodeCaches, SmNumbers
from ...sass.sm.window import Window
from ...sass.tools import find_tool
from ..expanded.launch import REVISION as EXPANDED_REVISION
from ..expanded.launch import ExpandedCode
from ..launch.bounds import WAVEFRONT
from ..launch.contention import contention
from ..launch.inputs import EXPANDED, SIMULATION
from .executed import check_executed

__all__ = ["NotRun", "Simulation", "estimate_of", "numbers_of", "simulated"]

REVISION = 36
"""To be raised when the simulated time of a launch changes: stored times are then not comparable."""
_ATOMICS = frozenset(["ATOM", "ATOMG", "RED", "REDG"])
_EXPANDED = 1000
"""Times on expanded code depend on the simulation and on the expansion: their revision is 29001 for 29 and 1."""
_DECIDES = 0.8
"""A resource is the limiter of a launch if its bound is at least this part of the time; else latency is."""


@dataclass(frozen=True)
class Simulation:
    """A launch on a machine that runs its PTX. ``caches``: as in ``timing.estimate``; ``resources`` replace those of the code;
    ``expanded``: the registers and shared memory of a launch whose code follows from the PTX and the expansion table
    (``timing.expanded``), ``None`` for the code of ``ptxas``.

    The methods raise ``MachineError`` if ``ptxas`` or ``nvdisasm`` is missing or fails, ``NotRun`` if the launch cannot be simulated,
    and ``LaunchError`` if no CTA fits on an SM.
    """

    record: LaunchRecord
    machine: Machine
    caches: str = "cold"
    resources: Resources | None = None
    expanded: Resources | None = None

    def architecture(self) -> str:
        """The architecture that the PTX is assembled for."""
        target = self.record.program.kernel.module.target
        architecture = assembled_for(target, self.machine)
        if architecture is None:
            raise NotRun(f"PTX for {target} cannot run on {self.machine.id}")
        return architecture

    def code(self) -> CodeSource:
        """The machine code of the launch."""
        if self.expanded is None:
            return AssembledCode(self.record, self.architecture())
        return ExpandedCode(self.record, self.architecture(), self.machine, self.expanded)

    def used(self) -> Resources:
        """Registers per thread and shared memory per CTA."""
        return self.resources or self.code().used()

    def occupied(self) -> Occupancy:
        """The occupancy of an SM."""
        resources = self.used()
        return occupancy(
            self.machine,
            threads_per_cta=self.record.plan.threads_per_cta,
            registers_per_thread=resources.registers,
            shared_bytes=resources.shared_bytes,
        )

    def timed(self) -> Timed:
        """The simulated time in clocks."""
        numbers, resident = numbers_of(self.machine), self.occupied()
        return timed_launch(self.code(), numbers, resident.ctas_per_sm, resident.shared_per_cta, self.caches)

    def changed_us(self, changed: Mapping[int, int], atomics: float) -> float:
        """The time without the launch overhead if instructions were changed (``sm_records.Change``), by position. ``atomics``: as the
        method of this name."""
        numbers, resident = numbers_of(self.machine), self.occupied()
        found = changed_clocks(
            self.code(), numbers, resident.ctas_per_sm, resident.shared_per_cta, self.caches, changed
        )
        return self.microseconds(*_with_atomics(found, atomics))

    def window(self, start: int | None, clocks: int) -> Window:
        """The activity of warps and units of the SM in ``clocks`` clocks, from ``start`` or in the middle of the simulated CTAs."""
        numbers, resident = numbers_of(self.machine), self.occupied()
        return (
            self.code()
            .trace()
            .window(numbers, resident.ctas_per_sm, resident.shared_per_cta, self.caches, start, clocks)
        )

    def atomics(self, timed: Timed) -> float:
        """Clocks that the atomics at the hottest address need. Of instructions that one lane executes for its warp, each execution is
        one: assemblers combine the lanes if their address is the same."""
        if self.record.observation.sites is None:
            return 0.0
        operations = contention(self.record, self.machine, _of_single_lanes(timed)).operations
        return operations / self.machine.atomic_rate

    def microseconds(self, cycles: float, bounds: Mapping[str, float]) -> float:
        """The time of clocks without the launch overhead; tensor cores and multiply-adds are busy for a part of them."""
        return self.machine.microseconds(cycles, *_busy(bounds, cycles))


def _of_single_lanes(timed: Timed) -> frozenset[int]:
    """The numbers of PTX instructions whose atomics of global memory have one active lane each."""
    issued: dict[int, int] = {}
    lanes: dict[int, int] = {}
    for item in timed.instructions:
        if item.base in _ATOMICS:
            issued[item.ptx] = issued.get(item.ptx, 0) + item.issued
            lanes[item.ptx] = lanes.get(item.ptx, 0) + item.lanes
    return frozenset(number for number, count in lanes.items() if count <= issued[number])


def _with_atomics(found: Clocks, atomics: float) -> Clocks:
    """The clocks if atomics at the hottest address need ``atomics`` of them."""
    bounds = dict(found.bounds)
    if most := max(bounds.get("atomics", 0.0), atomics):
        bounds["atomics"] = most
    return Clocks(max(found.cycles, *bounds.values()), bounds)


def _busy(bounds: Mapping[str, float], cycles: float) -> tuple[float, float]:
    """The shares of the clocks in which tensor cores and multiply-adds are busy."""
    return bounds.get("tensor", 0.0) / cycles, bounds.get("fma", 0.0) / cycles


def simulated(
    record: LaunchRecord,
    machine: Machine,
    *,
    caches: str = "cold",
    resources: Resources | None = None,
    expanded: Resources | None = None,
) -> Estimate:
    """The predicted time of one launch. Arguments and errors as for ``Simulation``."""
    numbers_of(machine)
    if expanded is None:
        find_tool("ptxas")
    return estimate_of(Simulation(record, machine, caches, resources, expanded=expanded))


def estimate_of(simulation: Simulation) -> Estimate:
    """The predicted time. Errors as for ``Simulation``."""
    record, machine = simulation.record, simulation.machine
    assembler = ""
    if simulation.expanded is None:
        version = record.program.kernel.module.version
        assembler = f"ptxas {find_tool('ptxas', simulation.architecture(), version).full_version}"
    timed, resident = simulation.timed(), simulation.occupied()
    check_executed(timed, record)
    cycles, bounds = _with_atomics(Clocks(timed.cycles, timed.bounds), simulation.atomics(timed))
    exec_us = simulation.microseconds(cycles, bounds)
    busy = _busy(bounds, cycles)
    in_us = {name: machine.microseconds(bound, *busy) for name, bound in bounds.items() if bound > 0.0}
    return Estimate(
        machine=machine.id,
        machine_revision=machine.revision,
        model=SIMULATION if assembler else EXPANDED,
        time_us=machine.launch_overhead_us + exec_us,
        launch_us=machine.launch_overhead_us,
        cycles=cycles,
        limiter=_limiter(bounds, cycles, machine.launch_overhead_us > exec_us),
        bounds={"launch": machine.launch_overhead_us, **in_us},
        occupancy=resident.ratio,
        ctas_per_sm=resident.ctas_per_sm,
        occupancy_limiter=resident.limiter,
        waves=record.plan.ctas / (resident.ctas_per_sm * machine.sm_count),
        assembler=assembler,
        model_revision=REVISION if assembler else REVISION * _EXPANDED + EXPANDED_REVISION,
        notes=(*_notes(timed, simulation.code()), *((NOTE,) if image_traffic(record) else ())),
        stalled=_stalled(record, timed),
        l2_read_sectors=timed.reads,
    )


def _stalled(record: LaunchRecord, timed: Timed) -> tuple[StalledInstruction, ...]:
    reasons: list[tuple[dict[str, float], dict[str, float]]] = [({}, {}) for _ in timed.instructions]
    for wait in timed.waits:
        if wait.cause != "selected":
            for own in (reasons[wait.at][0], reasons[wait.on][1]):
                own[wait.cause] = own.get(wait.cause, 0.0) + wait.clocks
    origins = instructions_of(record.program.kernel)
    rows = []
    for item, (before, behind) in zip(timed.instructions, reasons):
        line, source = _origin(origins, item.ptx)
        rows.append(
            StalledInstruction(
                item.address,
                item.text,
                item.issued,
                item.stalled,
                item.caused,
                line,
                source,
                _longest_first(before),
                _longest_first(behind),
            )
        )
    return tuple(rows)


def _longest_first(reasons: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(reasons.items(), key=lambda row: (-row[1], row[0])))


def _origin(origins: tuple[Instruction, ...], number: int) -> tuple[int, str]:
    """The line of the PTX and the line of the source for the number of an instruction."""
    if not 0 < number <= len(origins):
        return 0, ""
    origin = origins[number - 1]
    return origin.span.line, "" if origin.location is None else str(origin.location)


def _limiter(bounds: dict[str, float], cycles: float, launched: bool) -> str:
    if launched:
        return "launch"
    most = max((name for name in bounds if name != "latency"), key=lambda name: bounds[name])
    return most if bounds[most] >= _DECIDES * cycles else "latency"


def _notes(timed: Timed, code: CodeSource) -> tuple[str, ...]:
    parts = [f"simulation of one SM on {code.name}"]
    if timed.simulated != timed.ctas:
        parts.append(f"{timed.simulated} of its {timed.ctas} CTAs; the time of the others follows from these")
    if timed.strata:
        parts.append(f"CTAs differ: {timed.strata}, spread evenly over the grid, stand for all")
    if not isinstance(code, ExpandedCode):
        return ("; ".join(parts),)
    return "; ".join(parts), f"registers and shared memory: {code.given.source}"


def numbers_of(machine: Machine) -> SmNumbers:
    """The numbers of a machine that the simulation needs; raises ``NotRun`` if its description lacks one."""
    if machine.memory_queue is None or machine.address_rate is None or "barrier" not in machine.latencies:
        raise NotRun(
            f"the description of {machine.id} lacks sm.memory_queue, sm.address_rate or latency.barrier"
        )
    return SmNumbers(
        architecture=machine.compute_capability[0] * 10 + machine.compute_capability[1],
        sm_count=machine.sm_count,
        parts=machine.sub_partitions,
        issue_rate=machine.issue_rate,
        lanes=machine.lanes,
        pipes=machine.shared_pipes,
        latencies=machine.latencies,
        queue=machine.memory_queue,
        pool=machine.memory_pool or 0,
        address_clocks=round(1 / machine.address_rate),
        operand_clocks=round(1 / machine.operand_rate) if machine.operand_rate else 0,
        lsu_clocks=max(1, round(WARP_SIZE / (machine.sub_partitions * machine.lanes["lsu"]))),
        wavefront_clocks=max(1, round(WAVEFRONT / machine.l1_bandwidth)),
        tag_rate=max(1, int(machine.l1_tag_rate)),
        l1_bytes=machine.l1_bytes,
        l2_kept=common("l2.kept_whole") * machine.l2_bytes,
        l2_lost=common("l2.kept_none") * machine.l2_bytes,
        port_rate=machine.l2_sm_bandwidth,
        l2_rate=machine.l2_bandwidth,
        one_way=machine.dram_bytes_per_cycle(machine.dram_sustained_one_way),
        mixed=machine.dram_bytes_per_cycle(machine.dram_sustained_mixed),
        fully_mixed=common("dram.fully_mixed"),
        turnaround=_turnaround(machine),
        cta_rate=machine.cta_rate,
        code=_code_caches(machine),
        partial_rate=machine.l2_partial_rate or 0.0,
        single_rate=machine.l2_single_rate or machine.l2_partial_rate or 0.0,
        atomic_turns=machine.atomic_turns or 0.0,
        float_turns=common("atomics.float_turns"),
        tensor_read=machine.tensor_memory_read or 0.0,
        tensor_write=machine.tensor_memory_write or 0.0,
        tensor_fp16_accumulate=machine.tensor_fp16_accumulate or 0.0,
        logic_lanes=machine.logic_lanes or 0.0,
        shared_unit=machine.shared_carve_out or 0,
        other_reads=machine.l2_other_reads or 0.0,
        slices=round(common("l2.slices")),
        read_clocks=round(common("registers.read_clocks")),
        wide_read_clocks=round(common("registers.wide_read_clocks")),
        wide_rate=common("integers.wide_rate"),
        spread=round(3**0.5 * common("l2.spread") * machine.latencies["l2"]),
        wait_one_way=machine.dram_wait_one_way or 0.0,
        wait_mixed=machine.dram_wait_mixed or 0.0,
        **_rows(machine),
    )


#: Clocks beyond 23 from the first use of a special register to the end of ``init``, by the stall counts of ptxas 13.0 (7.0: as 7.5)
_STALLED, _STALLED_LATER = {(7, 0): 18, (7, 5): 18, (8, 0): 21, (8, 6): 16, (8, 9): 16}, 11


def _turnaround(machine: Machine) -> int:
    """The clocks between two CTAs without what the simulation executes. ``cta_turnaround`` is measured on a kernel (``init``) less 23
    clocks, its arithmetic and its store. The number includes its wait for special registers, from 9.0 on, where constants are
    loaded, that for a constant, and the rest of its stall counts."""
    waits = machine.latencies["xu"] + _STALLED.get(machine.compute_capability, _STALLED_LATER)
    if machine.compute_capability[0] >= 9:
        waits += machine.latencies["l1"]
    return max(0, machine.cta_turnaround - waits)


def _rows(machine: Machine) -> dict[str, Any]:
    """The rate at which DRAM opens rows, if the description has it."""
    channels, interval = machine.dram_channels, machine.dram_row_interval
    if channels is None or interval is None:
        return {}
    clocks = interval * machine.clock_mhz / 1e3
    return {"row_rate": channels / clocks, "row_open": round(common("dram.row_open") * clocks)}


def _code_caches(machine: Machine) -> CodeCaches | None:
    """The instruction caches, if the description has them."""
    size, ways, rate = machine.icc_bytes, machine.icc_ways, machine.icc_l2_bandwidth
    if size is None or ways is None or rate is None:
        return None
    behind = machine.gcc_bytes is not None and machine.gcc_bandwidth is not None
    return CodeCaches(
        icc_bytes=size,
        ways=ways,
        ahead=machine.icc_prefetch or 0,
        gcc_bytes=(machine.gcc_bytes or 0) if behind else 0,
        gcc_rate=machine.gcc_bandwidth or rate,
        gcc_latency=machine.latencies.get("gcc", machine.latencies["l2"]),
        l2_rate=rate,
    )
