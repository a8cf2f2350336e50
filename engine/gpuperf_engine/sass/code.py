"""The machine code of a launch: the output of ``ptxas`` for its kernel and a target, and the executions of each instruction."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .._gc import uncollected
from ..errors import NotObserved
from ..isa.targets import sm_number
from ..jit import cache
from ..ptx.module import Function
from ..ptx.syntax import Instruction
from ..results import Profile
from ..source import SourcePosition
from .assemble import assemble, instructions_of
from .counts import PtxCounts, ptx_counts
from .disassemble import disassemble
from .flow import Executions
from .graph import Graph, build_graph
from .listing import Decoded
from .memory import Traffic, as_run, traffic
from .pipes import pipe_of
from .resources import resources_of
from .tools import find_tool
from .ways import NothingFits, count_ways

__all__ = [
    "MachineCode",
    "MachineCounts",
    "MachineInstruction",
    "counted_code",
    "machine_code",
    "machine_counts",
    "machine_instructions",
]


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One machine instruction and its executions by ``warps`` and ``threads``, predicated off or not.

    ``address``: bytes from the start of its section. ``function``: the preceding label. ``text``: the instruction as ``nvdisasm``
    prints it; ``predicate`` (``@!P0``, ``""`` if there is none), ``opcode`` with modifiers and ``operands``: its parts; ``pipe``: the
    pipe that executes it, by the names of Nsight Compute. ``ptx_line``: the line of the PTX instruction from which it was generated,
    0 for code that the assembler adds; ``source``: the source line (``kernel.cu:17``), ``""`` without ``.loc``; ``inlined_at``: the
    calls at which it was inlined, innermost first.

    The control code (``encoding.Control``): ``stall``: cycles until the warp's next instruction may issue; ``yields``: another warp is
    preferred next; ``write_scoreboard``, ``read_scoreboard``: held until the result is written or the operands are read, ``None`` for
    none; ``waits``: the scoreboards that must be free before it issues; ``reuse``: the operand slots whose register is kept.
    Scoreboards are numbered 0 to 5.

    ``exact``: whether PTX counts determine these counts, and they depend neither on the order of threads nor on the time of a wait.
    Without a launch both counts are 0 and not exact.
    """

    address: int
    function: str
    text: str
    predicate: str
    opcode: str
    operands: tuple[str, ...]
    pipe: str
    ptx_line: int
    source: str
    inlined_at: tuple[str, ...]
    stall: int
    yields: bool
    write_scoreboard: int | None
    read_scoreboard: int | None
    waits: tuple[int, ...]
    reuse: tuple[int, ...]
    warps: int
    threads: int
    exact: bool


_OF_INSTRUCTION = tuple(field.name for field in fields(MachineInstruction))


@dataclass(frozen=True)
class MachineCounts:
    """The counts of the machine code of a launch: exact, given the assembler.

    ``kernel``: its name in the PTX; ``target``: the id of the machine; ``architecture``: what it was assembled for (``sm_89``);
    ``assembler``, ``disassembler``: programs and versions (``ptxas 13.0.88``). ``code`` is a digest of the machine code: equal code
    executes the same instructions on the same inputs. ``registers`` and ``stack_bytes`` (local memory) are per thread,
    ``shared_bytes`` per block, dynamic shared memory included; ``code_bytes`` is the size of the code without padding.

    ``warp_instructions``, ``thread_instructions``: executions, predicated off or not. ``least`` and ``greatest``: the smallest and the
    largest number of warp instructions that fit the PTX counts equally well; the counts, also of memory, are those of a solution with
    the smallest. ``residue``: the share of the warp instructions that is uncertain, 0 to 1, and ``notes`` give the reasons. ``ways``:
    the source of the counts, ``flow`` (PTX counts), ``run`` (the machine code was run) or ``flow and run``, if both agree.

    ``spill_bytes``: bytes of the spill instructions in the code, loads and stores; ``spill_loads``, ``spill_stores``: their executions
    by warps. ``shared_load_requests``, ``global_load_requests``: executed loads by warps; merged loads are one.
    ``shared_load_wavefronts``, ``shared_wavefronts`` (all accesses), ``global_load_wavefronts``: wavefronts;
    ``global_load_sectors``, ``global_store_sectors``, ``global_atomic_sectors``: sectors of 32 bytes. Wavefronts and sectors are those
    of the run, or of the PTX accesses that the assembler kept; ``None`` if they do not follow from these: if accesses were merged, or
    partly kept, or memory was not observed. ``by_opcode`` (without modifiers) and ``by_pipe`` are executed warp instructions, most
    first.
    """

    kernel: str
    target: str
    architecture: str
    assembler: str
    disassembler: str
    code: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    code_bytes: int
    warp_instructions: int
    thread_instructions: int
    least: int
    greatest: int
    residue: float
    ways: str
    spill_bytes: int
    spill_loads: int
    spill_stores: int
    shared_load_requests: int
    shared_load_wavefronts: int | None
    shared_wavefronts: int | None
    global_load_requests: int
    global_load_wavefronts: int | None
    global_load_sectors: int | None
    global_store_sectors: int | None
    global_atomic_sectors: int | None
    by_opcode: Mapping[str, int]
    by_pipe: Mapping[str, int]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary in a fixed key order."""
        return asdict(self)


@dataclass(frozen=True)
class MachineCode(MachineCounts):
    """``MachineCounts`` with each of the ``instructions``, in the order of the code."""

    instructions: tuple[MachineInstruction, ...]


def machine_code(
    profile: Profile, architecture: str, target: str = "", *, running: bool = True
) -> MachineCode:
    """``counted_code``, or its result from the cache. Raises the same errors."""
    kernel, counts, _ = _counted(profile)
    name = _name(profile, kernel, counts, architecture, target)
    if running and _inputs_kept(profile):
        name = _with_inputs(name, profile)
    stored, rows = cache.read(name), cache.read(cache.key("instructions", name))
    if stored is not None and rows is not None:
        instructions = tuple(MachineInstruction(*map(_as_tuple, row)) for row in json.loads(rows))
        return MachineCode(**_fields(_counts(stored)), instructions=instructions)
    code = counted_code(profile, architecture, target, running=running)
    _keep(name, code)
    listed = [[getattr(item, field) for field in _OF_INSTRUCTION] for item in code.instructions]
    cache.keep(cache.key("instructions", name), json.dumps(listed).encode())
    return code


@uncollected
def counted_code(
    profile: Profile, architecture: str, target: str = "", *, running: bool = True
) -> MachineCode:
    """The machine code of a profile's kernel for an architecture (``sm_89``), and its executions in the profile's launches.

    ``running``: whether to run the machine code on inputs that were kept, in addition to the evaluation of PTX counts.

    Raises ``MachineError`` if ``ptxas`` or ``nvdisasm`` fails, ``NotObserved`` if the profile no longer has its counters.
    """
    kernel, counts, numbers = _counted(profile)
    assembly = assemble(kernel, architecture)
    graph = build_graph(disassemble(assembly), kernel.name)
    counted = count_ways(profile, assembly, graph, numbers, counts, running=running)
    instructions = _instructions(
        graph, numbers, counted.warps, counted.threads, sm_number(architecture), counted.unsettled
    )
    resources = resources_of(assembly, profile.records[0].plan.dynamic_shared)
    moved = traffic(graph, numbers, counted.warps, counts)
    return MachineCode(
        kernel=kernel.name,
        target=target,
        architecture=architecture,
        assembler=f"ptxas {assembly.tool.full_version}",
        disassembler=f"nvdisasm {find_tool('nvdisasm').full_version}",
        code=_digest(graph),
        registers=resources.registers,
        shared_bytes=resources.shared_bytes,
        stack_bytes=resources.local_bytes,
        code_bytes=16 * len(instructions),
        warp_instructions=sum(item.warps for item in instructions),
        thread_instructions=sum(item.threads for item in instructions),
        least=counted.least,
        greatest=counted.greatest,
        residue=counted.residue,
        ways=counted.ways,
        spill_bytes=resources.spill_loads + resources.spill_stores,
        **asdict(moved if counted.ran is None else as_run(graph, counted.ran, moved)),
        by_opcode=_sums((item.opcode.partition(".")[0], item.warps) for item in instructions),
        by_pipe=_sums((item.pipe, item.warps) for item in instructions),
        notes=counted.notes,
        instructions=instructions,
    )


def machine_counts(profile: Profile, architecture: str, target: str = "") -> MachineCounts:
    """``machine_code`` without the instructions, or its result from the cache. Raises the same errors.

    The machine code is run only if PTX counts do not determine executions or the traffic of merged accesses.
    """
    kernel, counts, _ = _counted(profile)
    name = _name(profile, kernel, counts, architecture, target)
    kept = _inputs_kept(profile)
    try:
        first = _cached(name, profile, architecture, target, running=False)
    except NothingFits:
        if not kept:
            raise
    else:
        told = None not in (getattr(first, field.name) for field in fields(Traffic))
        if (told and not first.residue) or not kept:
            return first
    return _cached(_with_inputs(name, profile), profile, architecture, target, running=True)


def _name(profile: Profile, kernel: Function, counts: PtxCounts, architecture: str, target: str) -> str:
    """The cache key of the results that depend only on PTX counts."""
    return cache.key(
        "machine counts",
        find_tool("ptxas", architecture, kernel.module.version).full_version,
        find_tool("nvdisasm").full_version,
        architecture,
        target,
        kernel.name,
        kernel.module.text,
        profile.records[0].plan.dynamic_shared,
        repr((counts.warps, counts.threads, sorted(counts.of.items()))),
    )


def _inputs_kept(profile: Profile) -> bool:
    return any(record.kept for record in profile.records)


def _with_inputs(name: str, profile: Profile) -> str:
    """The cache key of the results that depend on a run too."""
    inputs = [
        (
            plan.grid,
            plan.block,
            plan.cluster,
            plan.dynamic_shared,
            plan.parameters,
            plan.inputs and plan.inputs.digest,
            times,
        )
        for record in profile.records
        for plan, times in record.kept
    ]
    return cache.key("run", name, repr((inputs, [record.times for record in profile.records])))


def _cached(name: str, profile: Profile, architecture: str, target: str, *, running: bool) -> MachineCounts:
    known = cache.read(name)
    if known is not None:
        return _counts(known)
    return _keep(name, counted_code(profile, architecture, target, running=running))


def _counts(stored: bytes) -> MachineCounts:
    known = json.loads(stored)
    return MachineCounts(**{**known, "notes": tuple(known["notes"])})


def _fields(counts: MachineCounts) -> dict[str, Any]:
    return {field.name: getattr(counts, field.name) for field in fields(MachineCounts)}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _keep(name: str, code: MachineCode) -> MachineCounts:
    counted = MachineCounts(**_fields(code))
    cache.keep(name, json.dumps(counted.to_dict()).encode())
    return counted


def _counted(profile: Profile) -> tuple[Function, PtxCounts, tuple[Instruction, ...]]:
    """The kernel of a profile, the counts of its PTX, and the instructions that the counts number."""
    if not profile.records:
        raise NotObserved(
            f"the counters of {profile.kernel!r} are not in this profile",
            hint="machine code needs profiles of device.launch, or sums of them, in the process that launched them",
        )
    kernel = profile.records[0].program.kernel
    numbers = instructions_of(kernel)
    return kernel, ptx_counts(profile.records, numbers), numbers


def _digest(graph: Graph) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for item in graph.listing.instructions:
        digest.update(item.encoding.to_bytes(16, "little"))
    return digest.hexdigest()


def _sums(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, count in items:
        sums[name] += count
    return {name: count for name, count in sums.most_common() if count}


def machine_instructions(kernel: Function, architecture: str) -> tuple[MachineInstruction, ...]:
    """The machine code of a kernel for an architecture, without executions. Raises ``MachineError`` as ``machine_code``."""
    instructions = instructions_of(kernel)
    graph = build_graph(disassemble(assemble(kernel, architecture)), kernel.name)
    nothing = Executions({}, 0, 0, frozenset(range(len(graph.blocks))), frozenset(), False)
    return _instructions(graph, instructions, nothing, nothing, sm_number(architecture))


def _instructions(
    graph: Graph,
    instructions: Sequence[Instruction],
    warps: Executions,
    threads: Executions,
    architecture: int,
    unsettled: frozenset[int] = frozenset(),
) -> tuple[MachineInstruction, ...]:
    uncertain = warps.open | threads.open | warps.unexplained | threads.unexplained | unsettled
    whole = warps.whole and threads.whole
    made: list[MachineInstruction] = []
    for block in graph.blocks:
        executed = warps.blocks.get(block.index, 0), threads.blocks.get(block.index, 0)
        exact = whole and block.index not in uncertain
        for item in graph.instructions(block):
            origin = instructions[item.ptx - 1] if 0 < item.ptx <= len(instructions) else None
            made.append(_instruction(item, origin, executed, exact, architecture))
    return tuple(made)


def _instruction(
    item: Decoded, origin: Instruction | None, executed: tuple[int, int], exact: bool, architecture: int
) -> MachineInstruction:
    location = None if origin is None else origin.location
    control = item.control
    return MachineInstruction(
        item.address,
        item.function,
        item.text,
        item.predicate,
        item.opcode,
        item.operands,
        pipe_of(item.opcode, architecture),
        0 if origin is None else origin.span.line,
        "" if location is None else str(location),
        _inlined_at(location),
        control.stall,
        control.yields,
        control.write_scoreboard,
        control.read_scoreboard,
        control.waits,
        control.reuse,
        *executed,
        exact,
    )


def _inlined_at(location: SourcePosition | None) -> tuple[str, ...]:
    calls: list[str] = []
    while location is not None and location.inlined_at is not None:
        location = location.inlined_at
        calls.append(str(location))
    return tuple(calls)
