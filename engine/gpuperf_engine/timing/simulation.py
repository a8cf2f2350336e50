"""The time of a launch from the simulation of one SM on machine code (``sass.sm``)."""

from __future__ import annotations

from ..profile.build import LaunchRecord
from ..results import Estimate, Resources, StalledInstruction
from ..sass.sm.kept import assembled_resources, timed_launch
from ..sass.sm.launch import NotRun, Timed
from ..sass.sm.numbers import SmNumbers
from ..sass.tools import find_tool
from .bounds import WAVEFRONT
from .caches import KEPT_NONE, KEPT_WHOLE
from .contention import contention
from .inputs import SIMULATION
from .machine import Machine
from .occupancy import WARP_SIZE, occupancy
from .targets import assembled_for

__all__ = ["NotRun", "numbers_of", "simulated"]

REVISION = 1
"""Raise it when launches that were simulated before come to take another time: stored times are incomparable then."""
_DECIDES = 0.8
"""A resource limits a launch of which it needs this part of the time; else latency does."""


def simulated(
    record: LaunchRecord, machine: Machine, *, warm: bool = False, resources: Resources | None = None
) -> Estimate:
    """The predicted time of one launch on a machine that runs its PTX; ``warm``: L2 holds what the same launch left there;
    ``resources`` stand in for those that ``ptxas`` assigns.

    Raises ``MachineError`` where ``ptxas`` or ``nvdisasm`` is missing or fails, ``NotRun`` for what is not simulated, and
    ``LaunchError`` where no CTA fits on an SM.
    """
    numbers = numbers_of(machine)
    assembler = f"ptxas {find_tool('ptxas').full_version}"
    target = record.program.kernel.module.target
    architecture = assembled_for(target, machine)
    if architecture is None:
        raise NotRun(f"PTX for {target} cannot run on {machine.id}")
    plan = record.plan
    resources = resources or assembled_resources(record, architecture)
    resident = occupancy(
        machine,
        threads_per_cta=plan.threads_per_cta,
        registers_per_thread=resources.registers,
        shared_bytes=resources.shared_bytes,
    )
    timed = timed_launch(record, architecture, numbers, resident.ctas_per_sm, resident.shared_per_cta, warm)
    bounds = dict(timed.bounds)
    if record.observation.sites is not None:
        bounds["atomics"] = contention(record, machine).operations / machine.atomic_rate
    cycles = max(timed.cycles, *bounds.values())
    tensor = bounds.get("tensor", 0.0) / cycles
    exec_us = machine.microseconds(cycles, tensor)
    in_us = {name: machine.microseconds(bound, tensor) for name, bound in bounds.items() if bound > 0.0}
    return Estimate(
        machine=machine.id,
        machine_revision=machine.revision,
        model=SIMULATION,
        time_us=machine.launch_overhead_us + exec_us,
        launch_us=machine.launch_overhead_us,
        cycles=cycles,
        limiter=_limiter(bounds, cycles, machine.launch_overhead_us > exec_us),
        bounds={"launch": machine.launch_overhead_us, **in_us},
        occupancy=resident.ratio,
        ctas_per_sm=resident.ctas_per_sm,
        occupancy_limiter=resident.limiter,
        waves=plan.ctas / (resident.ctas_per_sm * machine.sm_count),
        assembler=assembler,
        model_revision=REVISION,
        notes=_notes(timed, assembler),
        stalled=tuple(
            StalledInstruction(item.address, item.text, item.issued, item.stalled)
            for item in timed.instructions
        ),
    )


def _limiter(bounds: dict[str, float], cycles: float, launched: bool) -> str:
    if launched:
        return "launch"
    most = max((name for name in bounds if name != "latency"), key=lambda name: bounds[name])
    return most if bounds[most] >= _DECIDES * cycles else "latency"


def _notes(timed: Timed, assembler: str) -> tuple[str, ...]:
    parts = [f"simulation of one SM on the machine code of {assembler}"]
    if timed.simulated != timed.ctas:
        parts.append(
            f"{timed.simulated} of its {timed.ctas} CTAs; further waves take as long as the last of these"
        )
    if timed.strata:
        parts.append(f"CTAs differ: {timed.strata}, evenly over the grid, stand for all")
    return ("; ".join(parts),)


def numbers_of(machine: Machine) -> SmNumbers:
    """What the simulation needs to know of a machine; raises ``NotRun`` where its description lacks some of it."""
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
        address_clocks=round(1 / machine.address_rate),
        lsu_clocks=max(1, round(WARP_SIZE / (machine.sub_partitions * machine.lanes["lsu"]))),
        wavefront_clocks=max(1, round(WAVEFRONT / machine.l1_bandwidth)),
        tag_rate=max(1, int(machine.l1_tag_rate)),
        l1_bytes=machine.l1_bytes,
        l2_kept=KEPT_WHOLE * machine.l2_bytes,
        l2_lost=KEPT_NONE * machine.l2_bytes,
        port_rate=machine.l2_sm_bandwidth,
        l2_rate=machine.l2_bandwidth,
        one_way=machine.dram_bytes_per_cycle(machine.dram_sustained_one_way),
        mixed=machine.dram_bytes_per_cycle(machine.dram_sustained_mixed),
        turnaround=machine.cta_turnaround,
        cta_rate=machine.cta_rate,
    )
