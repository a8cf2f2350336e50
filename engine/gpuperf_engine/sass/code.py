"""The machine code of a launch: what ``ptxas`` makes of its kernel for a target, and how often each instruction is executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import MachineError, NotObserved
from ..flow.operands import access_bytes
from ..isa.effects import LOAD, STORE
from ..ptx.syntax import Function, Instruction
from ..results import Profile
from ..simt.effects import site_space
from ..source import SourcePosition
from .assemble import assemble, numbered
from .counts import PtxCounts, ptx_counts
from .disassemble import disassemble
from .flow import Executions, executions
from .graph import Graph, build_graph
from .listing import Decoded
from .pipes import pipe_of
from .resources import resources_of
from .tools import find_tool

__all__ = ["MachineCode", "MachineInstruction", "machine_code", "machine_instructions"]

#: bits that a load of shared memory brings each lane, where they are not 32
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128}


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One machine instruction and its executions by ``warps`` and ``threads``, predicated off or not.

    ``address``: bytes from the start of its section. ``function``: the label that it stands behind. ``ptx_line``: the line of the PTX
    instruction that it was made of, 0 for code of the assembler's own; ``source``: that of the program (``kernel.cu:17``), ``""``
    without ``.loc``; ``inlined_at``: the calls that it was inlined at, innermost first. ``stall`` is in cycles; scoreboards are
    numbered 0 to 5 (``encoding.Control``). ``exact``: whether the counts of PTX leave no other count than these. Without a
    launch both counts are 0 and not exact.
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


@dataclass(frozen=True)
class MachineCode:
    """What a launch executes on a GPU, as the assembler makes it: exact, given that.

    ``registers`` and ``stack_bytes`` are per thread. ``least`` and ``greatest``: warp instructions that fit the counts of PTX equally
    well; ``warp_instructions`` and ``thread_instructions`` are those of a solution with the least. ``residue``: the share of
    the warp instructions that is not certain, 0 to 1, and ``notes`` say why. ``shared_load_wavefronts`` is ``None`` where it does
    not follow from those of PTX: where loads were merged or memory was not observed.
    """

    kernel: str
    target: str
    architecture: str
    assembler: str
    disassembler: str
    instructions: tuple[MachineInstruction, ...]
    registers: int
    shared_bytes: int
    stack_bytes: int
    warp_instructions: int
    thread_instructions: int
    least: int
    greatest: int
    residue: float
    spill_loads: int
    spill_stores: int
    shared_load_requests: int
    shared_load_wavefronts: int | None
    spill_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def code_bytes(self) -> int:
        """Size of the code, without what fills it up."""
        return 16 * len(self.instructions)

    @property
    def by_opcode(self) -> Mapping[str, int]:
        """Executed warp instructions by opcode without modifiers, most first."""
        return self._sums((item.opcode.partition(".")[0], item.warps) for item in self.instructions)

    @property
    def by_pipe(self) -> Mapping[str, int]:
        """Executed warp instructions by pipe, most first."""
        return self._sums((item.pipe, item.warps) for item in self.instructions)

    @staticmethod
    def _sums(items: Iterable[tuple[str, int]]) -> Mapping[str, int]:
        sums: Counter[str] = Counter()
        for name, count in items:
            sums[name] += count
        return {name: count for name, count in sums.most_common() if count}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary in a fixed key order, with what follows from its fields."""
        more = {"code_bytes": self.code_bytes, "by_opcode": self.by_opcode, "by_pipe": self.by_pipe}
        return {**asdict(self), **more}


def machine_code(profile: Profile, architecture: str, target: str = "") -> MachineCode:
    """The machine code of a profile's kernel for an architecture (``sm_89``), and its executions in the profile's launches.

    Raises ``MachineError`` for what ``ptxas`` and ``nvdisasm`` cannot do, ``NotObserved`` if the profile has no counters any more.
    """
    if not profile.records:
        raise NotObserved(
            f"the counters of {profile.kernel!r} are not in this profile",
            hint="machine code needs profiles of device.launch, or sums of them, in the process that launched them",
        )
    kernel = profile.records[0].program.kernel
    _, instructions = numbered(kernel)
    assembly = assemble(kernel, architecture)
    graph = build_graph(disassemble(assembly), kernel.name)
    counts = ptx_counts(profile, instructions)
    threads = executions(graph, instructions, counts, threads=True)
    warps = threads and executions(graph, instructions, counts, threads=False, never=threads.never)
    if warps is None or threads is None:
        raise MachineError(
            f"no executions of the machine code of {kernel.name!r} for {architecture} fit the counts of its PTX",
            hint="the counts of PTX stand; please report the kernel",
        )
    made = _instructions(graph, instructions, warps, threads, _number(architecture))
    resources = resources_of(assembly, profile.records[0].plan.dynamic_shared)
    greatest = max(warps.least, min(warps.greatest, threads.greatest))
    return MachineCode(
        kernel.name,
        target,
        architecture,
        f"ptxas {assembly.tool.full_version}",
        f"nvdisasm {find_tool('nvdisasm').full_version}",
        made,
        resources.registers,
        resources.shared_bytes,
        resources.local_bytes,
        sum(item.warps for item in made),
        sum(item.threads for item in made),
        warps.least,
        greatest,
        _residue(graph, warps, greatest),
        *_spills(graph, instructions, warps),
        *_shared_loads(graph, instructions, warps, counts),
        resources.spill_loads + resources.spill_stores,
        _notes(graph, warps, greatest),
    )


def machine_instructions(kernel: Function, architecture: str) -> tuple[MachineInstruction, ...]:
    """The machine code of a kernel for an architecture, without executions. Raises ``MachineError`` as ``machine_code``."""
    _, instructions = numbered(kernel)
    graph = build_graph(disassemble(assemble(kernel, architecture)), kernel.name)
    nothing = Executions({}, 0, 0, frozenset(range(len(graph.blocks))), frozenset(), False)
    return _instructions(graph, instructions, nothing, nothing, _number(architecture))


def _number(architecture: str) -> int:
    """``sm_90a`` → 90."""
    return int(architecture[3:].rstrip("af"))


def _instructions(
    graph: Graph,
    instructions: Sequence[Instruction],
    warps: Executions,
    threads: Executions,
    architecture: int,
) -> tuple[MachineInstruction, ...]:
    uncertain = warps.open | threads.open | warps.unexplained | threads.unexplained
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


def _residue(graph: Graph, warps: Executions, greatest: int) -> float:
    """The share of the range, and of blocks that nothing explains; all if counts had to be rounded."""
    if not greatest or not warps.whole:
        return 0.0 if warps.whole else 1.0
    unexplained = sum(
        warps.blocks[index] * (graph.blocks[index].end - graph.blocks[index].start)
        for index in warps.unexplained
    )
    return min(1.0, (greatest - warps.least + unexplained) / greatest)


def _notes(graph: Graph, warps: Executions, greatest: int) -> tuple[str, ...]:
    notes: list[str] = []
    if greatest > warps.least:
        called = {block.callee for block in graph.blocks if block.index in warps.open and block.callee}
        names = {graph.instructions(graph.blocks[entry])[0].function for entry in called if entry > 0}
        why = f", how often {', '.join(sorted(names))} is called among them" if names else ""
        notes.append(
            f"the counts of PTX do not tell all: {warps.least:,} to {greatest:,} warp instructions fit them{why}"
        )
    if warps.unexplained:
        lines = sorted(graph.instructions(graph.blocks[index])[0].address for index in warps.unexplained)
        places = ", ".join(f"{address:#06x}" for address in lines[:4]) + (", …" if len(lines) > 4 else "")
        notes.append(f"no PTX instruction explains how often the code at {places} is executed")
    if not warps.whole:
        notes.append("counts were rounded: copies of a loop whose lanes leave at different turns")
    return tuple(notes)


def _spills(graph: Graph, instructions: Sequence[Instruction], warps: Executions) -> tuple[int, int]:
    """Executed loads and stores of local memory that no access of PTX asked for."""
    executed = {"LDL": 0, "STL": 0}
    for block in graph.blocks:
        for item in graph.instructions(block):
            if item.base in executed and not (item.ptx and _may_be_local(instructions[item.ptx - 1])):
                executed[item.base] += warps.blocks.get(block.index, 0)
    return executed["LDL"], executed["STL"]


def _may_be_local(instruction: Instruction) -> bool:
    return instruction.effect in (LOAD, STORE) and site_space(instruction) in ("local", "generic")


def _shared_loads(
    graph: Graph, instructions: Sequence[Instruction], warps: Executions, counts: PtxCounts
) -> tuple[int, int | None]:
    """Requests, and wavefronts: those of PTX where each of its loads is one of the same width, executed as often."""
    executed: Counter[int] = Counter()
    guarded: set[int] = set()
    merged = False
    for block in graph.blocks:
        for item in graph.instructions(block):
            if item.base in ("LDS", "LDSM"):
                executed[item.ptx] += warps.blocks.get(block.index, 0)
                guarded.update([item.ptx] if item.predicate else [])
                merged |= item.base == "LDS" and not _same_width(item, instructions)
    known = {number: count for number, count in counts.of.items() if count.shared_load_wavefronts is not None}
    for number in guarded & set(known):
        executed[number] = min(executed[number], known[number].requests or 0)
    same = not merged and all(executed[number] == count.requests for number, count in known.items())
    wavefronts = sum(count.shared_load_wavefronts or 0 for count in known.values())
    return executed.total(), wavefronts if same and set(+executed) <= set(known) else None


def _same_width(item: Decoded, instructions: Sequence[Instruction]) -> bool:
    if not item.ptx:
        return False
    modifiers = item.opcode.split(".")[1:]
    bits = next((_WIDTHS[name] for name in modifiers if name in _WIDTHS), 32)
    return access_bytes(instructions[item.ptx - 1]) * 8 == bits
