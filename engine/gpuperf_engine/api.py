"""The public interface: parse, device, launch, estimate, patterns."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arguments import takes_annotated
from .device.attributes import attributes_of
from .device.device import Runtime
from .device.events import Event
from .device.recorded import Program, RecordedProgram
from .device.thresholds import Thresholds
from .errors import MachineError
from .memory.arrays import DeviceArray
from .memory.tensor_descriptions import TensorMap
from .patterns.coarse import PATTERNS as COARSE_PATTERNS
from .patterns.fine import FINE_PATTERNS, FinePatterns
from .patterns.flow import FlowEdge, FlowGraph, Vertex
from .patterns.flow import flow_graph as _flow_graph
from .patterns.program import Pattern, Step
from .patterns.program import find_patterns as _find_patterns
from .patterns.proven import PROVEN_PATTERNS
from .profile import add_profiles, build_profile, csv_rows, csv_text
from .profile.explain import explain
from .profile.threads import Sample, Threads
from .ptx.module import Function, Kernel, Module
from .ptx.parse import parse
from .results import (
    Estimate,
    Finding,
    KernelAttributes,
    Profile,
    Resources,
    Traffic,
    ValueRecord,
    race_error,
)

if TYPE_CHECKING:
    from .machines.machine import Machine
    from .sass.code import MachineCode, MachineCounts, MachineInstruction
    from .timing.estimate import Predictor

__all__ = [
    "PATTERNS",
    "Device",
    "DeviceArray",
    "FinePatterns",
    "FlowEdge",
    "FlowGraph",
    "Kernel",
    "Module",
    "Pattern",
    "RecordedProgram",
    "Step",
    "TensorMap",
    "Thresholds",
    "ValueRecord",
    "Vertex",
    "add_profiles",
    "best_target",
    "csv_rows",
    "csv_text",
    "estimate",
    "explain",
    "find_patterns",
    "flow_graph",
    "machine_code",
    "machine_code_tools",
    "machine_counts",
    "machine_ids",
    "machine_instructions",
    "parse",
    "predictor",
    "saving_us",
]

#: all patterns that are sought by default
PATTERNS: tuple[Pattern, ...] = (*COARSE_PATTERNS, *FINE_PATTERNS, *PROVEN_PATTERNS)
Shape = int | tuple[int, ...]


class Device(Runtime):
    """A GPU on the CPU: memory with named arrays, and launches that count exactly.

    ``Device(observe={"memory"}, memory_bytes=None, backend="llvm", resources="estimate")``: ``observe`` is a
    subset of ``memory`` (the default), ``accesses``, ``footprint``, ``inputs`` (the memory contents before each launch, for
    ``machine_code``), ``proofs``, ``threads`` and ``values``; ``backend`` is ``llvm`` or ``reference`` (NumPy: slow, same results);
    ``resources`` is ``estimate`` (from liveness) or ``ptxas``; ``races`` is ``off``, ``note`` (races are in ``profile.races`` and
    in its notes) or ``error`` (they raise ``RaceError``); ``thresholds`` define when values are a pattern. ``mapped``: device
    addresses are addresses of this process, so that the host can access device memory by pointer, and kernels memory that it
    ``adopt``s (Linux; one such device at a time). ``memory_bytes``: ``None`` for 4 GiB, mapped 64 GiB if the host can reserve that.
    ``history``: the minimum number of the last steps that are kept as ``events``, instead of all.
    """

    def launch(
        self,
        kernel: Function,
        grid: Shape,
        block: Shape,
        args: Sequence[object] | bytes = (),
        *,
        shared_bytes: int = 0,
        cluster: Shape | None = None,
        cooperative: bool = False,
        demand: str = "values",
        max_instructions: int | None = None,
        keep: bool = True,
        threads_of: object = None,
    ) -> Profile:
        """Run a kernel and count its execution.

        ``args``: arrays, views, device addresses, ``None`` (null), NumPy scalars (integers match by width), Python numbers
        (range-checked), NumPy structured scalars or ``bytes`` for by-value structs; or, as ``bytes``, the whole parameter buffer,
        as in the driver API. ``shared_bytes`` is dynamic shared memory per CTA; ``cluster`` the shape of clusters in CTAs
        (``None``: that of ``.reqnctapercluster``, otherwise no clusters); ``cooperative`` makes all CTAs co-resident;
        ``max_instructions`` limits the warp instructions of one warp; without ``keep`` memory is restored afterwards.

        ``demand`` is how much of the kernel runs: ``values`` all of it; ``addresses`` the instructions that decide control flow and
        the addresses of memory accesses; ``control`` those that decide control flow; ``auto`` the smallest demand that the
        observations of the device need. Counts are the same; results that were not computed, including arrays that the kernel may
        have written, raise ``NotObserved`` when they are requested.

        ``threads_of``: the CTAs whose threads are counted separately if the device observes ``threads``: ``None`` (all),
        ``"centre"``, a number of CTAs spread evenly, or a list of linear indices and (x, y, z).

        Raises ``LaunchError`` for invalid shapes and arguments, and ``MemoryFault``, ``Deadlock``, ``BudgetExceeded``,
        ``TrapError`` and ``Unsupported`` for errors of the kernel.
        """
        start = time.perf_counter()
        program, plan, observation = self.run(
            kernel,
            grid,
            block,
            args,
            shared_bytes=shared_bytes,
            cluster=cluster,
            cooperative=cooperative,
            demand=demand,
            max_instructions=max_instructions,
            keep=keep,
            threads_of=threads_of,
        )
        resources = self._assembled(kernel, plan.dynamic_shared)
        profile = build_profile(program, plan, observation, resources, start)
        if self.races == "error" and profile.races:
            raise race_error(profile.kernel, profile.races)
        return profile

    def attributes(self, kernel: Function) -> KernelAttributes:
        """The attributes of a kernel before a launch; the device's ``resources`` determine the source of registers. Raises
        ``LaunchError``, ``PtxError`` and, with ``ptxas``, ``MachineError``."""
        program = self.program_of(kernel)
        resources = self._assembled(kernel)
        return attributes_of(
            program, resources or Resources(program.registers, program.shared_static, program.local_bytes)
        )

    def _assembled(self, kernel: Function, dynamic_shared: int = 0) -> Resources | None:
        if self.resources != "ptxas":
            return None
        from .sass.resources import ptxas_resources

        return ptxas_resources(kernel, dynamic_shared)

    def sample(
        self,
        kernel: Function,
        grid: Shape,
        block: Shape,
        args: Sequence[object] = (),
        *,
        ctas: object = "centre",
        shared_bytes: int = 0,
        cluster: Shape | None = None,
        cooperative: bool = False,
        max_instructions: int | None = None,
    ) -> Sample:
        """An **estimate** of a launch from one thread, the centre one, of each of few CTAs: ``"centre"`` (CUDA Flux), a number of CTAs
        spread evenly, or a list as for ``threads_of``.

        Only the instructions that decide control flow run (demand ``control``). If no CTA can observe others (no clusters, no
        atomic whose result is used, no communication through global memory, not cooperative), only these CTAs run, otherwise all.
        Memory is not changed, and nothing is recorded. Arguments and errors as ``launch``.
        """
        program, plan, observation = self.run(
            kernel,
            grid,
            block,
            args,
            shared_bytes=shared_bytes,
            cluster=cluster,
            cooperative=cooperative,
            max_instructions=max_instructions,
            threads_of=ctas,
            keep=False,
            sampled=True,
        )
        assert observation.threads is not None
        return Threads(program, plan, observation.threads).sample()

    @property
    def program(self) -> Device:
        """The recorded program of allocations, copies, memsets and launches, for ``find_patterns``."""
        return self

    @takes_annotated
    def program_without(self, events: Collection[Event]) -> Device:
        """The recorded program without these of its ``events``, for ``find_patterns``."""
        program = copy(self)
        program.events = [event for event in self.events if not any(event is other for other in events)]
        return program


@takes_annotated
def best_target(
    targets: Iterable[str], machine: str | Machine, search: Iterable[str | Path] = ()
) -> str | None:
    """Of these ``.target`` names the most specific that runs on the machine, ``None`` if none does: the highest compute
    capability; of equal ones ``a`` before ``f`` before the plain one. Raises ``UnknownName`` for an unknown machine."""
    from .machines.machine import load_machine
    from .machines.targets import most_specific

    return most_specific(targets, load_machine(machine, search) if isinstance(machine, str) else machine)


def estimate(profile: Profile, machine: str | Machine, **options: Any) -> Estimate:
    """Predicted time of a launch (or of all launches of a sum) on a machine; see ``timing.estimate.estimate``."""
    from .timing.estimate import estimate as predict

    return predict(profile, machine, **options)


@takes_annotated
def saving_us(finding: Finding, profiles: Mapping[int, Profile], machine: str | Machine | Predictor) -> float:
    """Predicted time that a program saves without the ``traffic`` of a finding.

    ``profiles``: those of launches, by the numbers of their events (``device.events``); launches that are missing save nothing.
    Copies and memsets save the time of their bytes at the rate of the link to the host, or of device memory
    (``Predictor.copy_us``). For errors see ``estimate``.
    """
    from .timing.estimate import MODELS, Predictor

    predictor = machine if isinstance(machine, Predictor) else Predictor(machine, model=MODELS[0])
    return sum(_saved(gone, profiles.get(gone.step), predictor) for gone in finding.traffic)


def _saved(gone: Traffic, profile: Profile | None, predictor: Predictor) -> float:
    if gone.copied:
        return predictor.copy_us(gone.way, gone.copied)
    if profile is None:
        return 0.0
    if gone.whole:
        return predictor.estimate(profile).time_us
    return predictor.saving_us(profile, loads=gone.loads, stores=gone.stores)


@takes_annotated
def predictor(machine: str | Machine, search: Iterable[str | Path] = (), **options: Any) -> Predictor:
    """Predicts times on one machine, once for identical launches; see ``timing.estimate.Predictor``."""
    from .timing.estimate import Predictor

    return Predictor(machine, search=search, **options)


@takes_annotated
def machine_code(
    profile: Profile, machine: str | Machine, search: Iterable[str | Path] = (), *, running: bool = True
) -> MachineCode:
    """The machine code that the launch of a profile (or all launches of a sum) executes on a machine: the instructions that
    ``ptxas`` generates for its architecture, the origin of each, and how often it is executed.

    ``machine``: an id of ``machine_ids`` or a description; ``search``: folders with more descriptions. Needs ``ptxas`` and
    ``nvdisasm``, no GPU. If the device observed ``inputs``, the machine code is also run on them, unless ``running`` is false, and
    both counts are compared (``ways``).

    Raises ``UnknownName`` for an unknown machine, ``MachineError`` if the PTX does not run there and for errors of the programs,
    ``NotObserved`` if the profile's counters are gone.
    """
    from .sass import code

    described, architecture = _assembled_for(profile.kernel, profile.target, machine, search)
    return code.machine_code(profile, architecture, described.id, running=running)


@takes_annotated
def machine_counts(
    profile: Profile, machine: str | Machine, search: Iterable[str | Path] = ()
) -> MachineCounts:
    """``machine_code`` without its instructions, kept in the cache of compiled code; arguments and errors as there."""
    from .sass import code

    described, architecture = _assembled_for(profile.kernel, profile.target, machine, search)
    return code.machine_counts(profile, architecture, described.id)


def machine_code_tools() -> tuple[str, str]:
    """The versions of the ``ptxas`` and the ``nvdisasm`` that ``machine_code`` uses (``ptxas 13.0.88``). Raises ``MachineError`` if
    one is missing, or does not run."""
    from .sass.tools import find_tool

    assembler, disassembler = (find_tool(name) for name in ("ptxas", "nvdisasm"))
    return f"ptxas {assembler.full_version}", f"nvdisasm {disassembler.full_version}"


@takes_annotated
def machine_instructions(
    kernel: Function, machine: str | Machine, search: Iterable[str | Path] = ()
) -> tuple[MachineInstruction, ...]:
    """The machine code of a kernel for a machine, in its order and without executions; arguments and errors as ``machine_code``."""
    from .sass import code

    _, architecture = _assembled_for(kernel.name, kernel.module.target, machine, search)
    return code.machine_instructions(kernel, architecture)


def _assembled_for(
    kernel: str, target: str, machine: str | Machine, search: Iterable[str | Path]
) -> tuple[Machine, str]:
    from .machines.machine import load_machine
    from .machines.targets import assembled_for

    described = load_machine(machine, search) if isinstance(machine, str) else machine
    architecture = assembled_for(target, described)
    if architecture is None:
        raise MachineError(
            f"{kernel!r} is PTX for {target}, which does not run on {described.name}",
            hint=f"compile it for {described.targets[0]} or earlier",
        )
    return described, architecture


@takes_annotated
def machine_ids(search: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """The ids of all machines described here and in the folders ``search``."""
    from .machines.machine import machine_ids as listed

    return tuple(listed(search))


@takes_annotated
def find_patterns(program: Program, patterns: Iterable[Pattern] = PATTERNS) -> tuple[Finding, ...]:
    """The findings of these patterns in everything recorded on a device, in the order of its steps, without repetition.

    Raises ``NotObserved`` unless the device observes ``values`` (whole objects), ``accesses`` (single instructions) or ``proofs``.
    """
    return _find_patterns(program, patterns)


@takes_annotated
def flow_graph(program: Program) -> FlowGraph:
    """The value flow of everything recorded on a device, with the findings of its calls. Raises ``NotObserved`` unless it observes
    ``values``."""
    findings = find_patterns(program)
    return _flow_graph(program).marked(findings)
