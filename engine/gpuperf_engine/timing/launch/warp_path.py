"""The instructions of a launch as machine instructions, and the path of its average warp through them.

Counts are exact up to the expansion of PTX into machine instructions (``machines/expansion.yaml``). Block executions are divided
by the number of warps; loops nest as in the control-flow graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...flow.blocks import natural_loop
from ...flow.operands import reads, writes
from ...isa.effects import ATOMIC, LOAD
from ...machines.expansion import expansion_of
from ...machines.machine import Machine
from ...machines.schema import UNITS
from ...ptx import syntax
from ...results import CodeLine
from ...sass.causes import queue_cause, result_cause
from ...simt.program import BasicBlock, Program
from .allocation import NO_REGISTER, Allocation
from .bounds import WAVEFRONT
from .caches import SECTOR
from .calls import Calls
from .inputs import NO_ORIGIN, Block, Instruction, Loop, Origin, Path
from .schedule import schedule
from .site_traffic import CONSTANT_SPACES, Site

__all__ = ["MachineBlock", "PathBuilder", "origin_of"]

_LOAD_LATENCY = {
    "global": "global",
    "generic": "global",
    "local": "local",
    "const": "constant",
    "param": "constant",
    "shared": "shared",
}


# Spaces in which the order of accesses matters, and the registers that represent it.
_SPACES = ("global", "shared", "local")
_ORDER = (-1, -2, -3)


@dataclass
class MachineBlock:
    """A basic block in machine instructions, scheduled; the latencies of its chains; its instructions by unit; and the PTX origins of
    its instructions."""

    instructions: tuple[Instruction, ...]
    latencies: Mapping[str, float]
    units: Mapping[str, int]
    origins: Mapping[int, Origin]


def origin_of(instruction: syntax.Instruction, block: BasicBlock) -> int:
    """The number of an instruction in the program (``Instruction.origin``)."""
    return (block.function << 20) + instruction.index


def spill_origin(block: BasicBlock) -> int:
    """The origin of the loads and stores of spilled registers in a block."""
    return NO_ORIGIN - 1 - block.index


def _code_line(instruction: syntax.Instruction, opcode: str, unit: str) -> CodeLine:
    span, source = instruction.span, instruction.location
    return CodeLine(span.path, span.line, opcode, unit, "" if source is None else str(source))


@dataclass
class PathBuilder:
    """The machine instructions of one launch: ``executions`` of each block by warps, observed ``sites``, ``allocated`` registers.

    ``latencies`` collects the latencies of chains on the path, ``origins`` the PTX instructions on it.
    """

    program: Program
    executions: list[int]
    sites: list[Site]
    machine: Machine
    allocated: Allocation
    latencies: dict[str, float] = field(default_factory=dict)
    origins: dict[int, Origin] = field(default_factory=dict)
    known: dict[int, MachineBlock] = field(default_factory=dict)
    calls: Calls = field(init=False)

    def __post_init__(self) -> None:
        self.calls = Calls(self.program, self.executions)
        machine = self.machine
        spaces = tuple(site.space for site in self.sites)
        spills = tuple(self.allocated.loads.items()), tuple(self.allocated.stores.items())
        key = machine.compute_capability, tuple(machine.latencies.items()), spaces, spills
        known = self.program.kernel.memo.setdefault("timing.blocks", {})
        assert isinstance(known, dict)
        self.known = known.setdefault(key, self.known)

    def machined(self, block: BasicBlock) -> MachineBlock:
        """A block in machine instructions; launches whose accesses go to the same spaces share it."""
        machine_block = self.known.get(block.index)
        if machine_block is None:
            expanded = [*self.reloaded(block)]
            expanded += (
                item for instruction in block.instructions for item in self.expand(instruction, block)
            )
            expanded = self.with_stores(expanded, block)
            chains = {item.latency for item in expanded} & self.latencies.keys()
            units: dict[str, int] = {}
            for instruction in block.tally:
                for unit, count in self.units_of(instruction, block).items():
                    units[unit] = units.get(unit, 0) + count
            spilled = len(self.allocated.loads.get(block.index, ())) + len(
                self.allocated.stores.get(block.index, ())
            )
            if spilled:
                units["lsu"] = units.get("lsu", 0) + spilled
            machine_block = self.known[block.index] = MachineBlock(
                schedule(expanded, self.order_latencies),
                {name: self.latencies[name] for name in chains},
                units,
                self.origins_of(block, expanded),
            )
        self.latencies.update(machine_block.latencies)
        self.origins.update(machine_block.origins)
        return machine_block

    def reloaded(self, block: BasicBlock) -> Iterable[Instruction]:
        """Loads of spilled registers that a block reads."""
        base = block.function << 20
        for index, _ in self.allocated.loads.get(block.index, ()):
            result = () if index == NO_REGISTER else (base + index,)
            yield Instruction("lsu", "local", (), result, origin=spill_origin(block))

    def with_stores(self, expanded: list[Instruction], block: BasicBlock) -> list[Instruction]:
        """The instructions of a block with the stores of spilled registers, which precede its terminator."""
        base = block.function << 20
        stores = [
            Instruction(
                "lsu", "none", () if index == NO_REGISTER else (base + index,), origin=spill_origin(block)
            )
            for index, _ in self.allocated.stores.get(block.index, ())
        ]
        ends = bool(expanded) and expanded[-1].unit in ("cbu", "adu")
        return [*expanded[:-1], *stores, expanded[-1]] if ends else [*expanded, *stores]

    def origins_of(self, block: BasicBlock, expanded: Iterable[Instruction]) -> Mapping[int, Origin]:
        """The PTX origins of the instructions of a block, with the names of waits for them."""
        # The first machine instruction of a PTX instruction carries its latency.
        first: dict[int, Instruction] = {}
        for item in expanded:
            first.setdefault(item.origin, item)
        origins = {}
        for instruction in block.instructions:
            number = origin_of(instruction, block)
            if number in first:
                line = _code_line(instruction, instruction.opcode, first[number].unit)
                queue = queue_cause(self.space(instruction))
                origins[number] = Origin(line, result_cause(first[number].latency), queue)
        if spill_origin(block) in first:
            line = _code_line(block.instructions[0], "spilled register", "lsu")
            origins[spill_origin(block)] = Origin(line, result_cause("local"), queue_cause("local"))
        return origins

    def barriers_at(self, warps: int) -> Mapping[int, float]:
        """The number of barriers that a warp passes, by instruction."""
        return {
            origin_of(block.instructions[-1], block): self.executions[block.index] / warps
            for block in self.program.blocks
            if block.kind == "barrier" and self.executions[block.index]
        }

    def constant_serializations(self) -> int:
        """Lanes that read different constant addresses in one request, which are serialised."""
        return sum(
            seen.lanes - seen.requests
            for site, seen in zip(self.program.sites, self.sites, strict=True)
            if self.constant(site.instruction, self.program.blocks[site.block]) == "load"
        )

    def spilled_sectors(self) -> float:
        """Sectors of the loads and stores of spilled registers: one word of all lanes of a warp fills a line."""
        allocated, total = self.allocated, 0
        for of in (allocated.loads, allocated.stores):
            for index, registers in of.items():
                total += self.executions[index] * sum(words for _, words in registers)
        return total * WAVEFRONT / SECTOR

    @property
    def order_latencies(self) -> Mapping[str, float]:
        """Latencies for scheduling: an assembler does not know which cache serves a load."""
        known = self.machine.latencies
        loads = {"global": known["l2"], "local": known["l1"], "constant": known["l1"], "atomic": known["l2"]}
        return {**known, **loads, **self.latencies}

    def counts(self) -> Mapping[str, float]:
        total = dict.fromkeys(UNITS, 0)
        for block, executions in zip(self.program.blocks, self.executions, strict=True):
            if executions:
                for unit, count in self.machined(block).units.items():
                    total[unit] += count * executions
        return {unit: count for unit, count in total.items() if count}

    def constant(self, instruction: syntax.Instruction, block: BasicBlock) -> str:
        """How a load from constants or parameters is executed: as an ``operand`` of the instructions that use it if all lanes read one
        address, or as a ``load`` through the constant cache; empty for other instructions."""
        if instruction.effect is not LOAD or instruction.form.space not in CONSTANT_SPACES:
            return ""
        uniform = self.program.uniform[block.function]
        bases = (item.base for item in instruction.operands if isinstance(item, syntax.Address))
        varying = any(isinstance(base, syntax.Register) and base not in uniform for base in bases)
        return "load" if varying else "operand"

    def units_of(self, instruction: syntax.Instruction, block: BasicBlock) -> Mapping[str, int]:
        if constant := self.constant(instruction, block):
            return {} if constant == "operand" else {"lsu": 1}
        expansion = expansion_of(instruction.opcode, self.machine.compute_capability)
        if expansion is not None:
            return expansion.units
        unit = instruction.form.unit
        return {} if unit == "none" else {unit: 1}

    # -- the path -------------------------------------------------------------------------------------------------------

    def path_of(self, function: int, entries: float) -> Path:
        """The path of one function, entered ``entries`` times, without its recursive calls."""
        if not entries:
            return ()
        blocks = self.program.blocks_of(function)
        first = blocks[0].index
        loops: dict[int, set[int]] = {}
        for block in blocks:
            for head in sorted(block.back_edges):
                loops.setdefault(head, set()).update(natural_loop(blocks, block.index, head, first))
        return self.region({block.index for block in blocks}, None, entries, loops)

    def region(
        self, members: set[int], head: int | None, entries: float, loops: Mapping[int, set[int]]
    ) -> Path:
        """Blocks of a region in text order, inner loops folded; ``entries`` is how often control entered the region."""
        parts: list[Block | Loop] = []
        left = set(members)
        for index in sorted(members):
            if index not in left:
                continue
            executions = self.executions[index]
            if index in loops and index != head:
                inner = loops[index] & left
                left -= inner
                if executions:
                    body = self.region(inner, index, executions, loops)
                    parts.append(Loop(body, executions / entries))
            else:
                left.discard(index)
                parts += self.block(self.program.blocks[index], executions, entries)
        return tuple(parts)

    def block(self, block: BasicBlock, executions: int, entries: float) -> Iterable[Block | Loop]:
        if not executions:
            return
        share = executions / entries
        instructions = self.machined(block).instructions
        if instructions:
            yield Block(instructions, share) if share <= 1.0 else Loop((Block(instructions),), share)
        for number, entered, each in self.calls.entered(block):
            body = self.path_of(number, entered)
            if body:
                yield Loop(body, share * each)

    def expand(self, instruction: syntax.Instruction, block: BasicBlock) -> Iterable[Instruction]:
        """The machine instructions of one PTX instruction: the first carries operands and result, the others only occupy their
        units."""
        base, origin = block.function << 20, origin_of(instruction, block)
        sources = tuple(dict.fromkeys(base + register.index for register in reads(instruction)))
        results = tuple(dict.fromkeys(base + register.index for register in writes(instruction)))
        after, before = self.memory_order(instruction)
        sources, results = sources + after, results + before
        if constant := self.constant(instruction, block):
            if constant == "operand":
                yield Instruction("none", "none", sources, results)
            else:
                site = self.program.site_of.get(instruction, -1)
                yield Instruction("lsu", "constant", sources, results, site, origin)
            return
        expansion = expansion_of(instruction.opcode, self.machine.compute_capability)
        if expansion is None:
            unit = instruction.form.unit
            latency = self.latency(instruction, unit) if len(results) > len(before) else "none"
            site = self.program.site_of.get(instruction, -1)
            yield Instruction(unit, latency, sources, results, site, origin)
            return
        units = [unit for unit, count in expansion.units.items() for _ in range(count)]
        if not units:
            yield Instruction("none", "none", sources, results)
            return
        latency = self.chain(expansion.chain) if results else "none"
        yield Instruction(units[0], latency, sources, results, origin=origin)
        for unit in units[1:]:
            yield Instruction(unit, origin=origin)

    def memory_order(self, instruction: syntax.Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Registers (negative, one per space) that order loads after preceding stores: those read and those written."""
        effect = instruction.effect
        if not (effect.per_lane or effect.orders) or (
            effect is LOAD and "nc" in instruction.opcode.split(".")
        ):
            return (), ()
        if effect.orders:
            return _ORDER, _ORDER
        token = (
            (_ORDER[_SPACES.index(self.space(instruction))],) if self.space(instruction) in _SPACES else ()
        )
        return token, () if effect is LOAD else token

    def latency(self, instruction: syntax.Instruction, unit: str) -> str:
        """The name of the latency of a single machine instruction."""
        if instruction.effect is LOAD:
            return _LOAD_LATENCY.get(self.space(instruction), "none")
        if instruction.effect is ATOMIC:
            return "shared" if self.space(instruction) == "shared" else "atomic"
        if unit == "lsu":
            return "shuffle"
        return unit if unit in self.machine.latencies else "none"

    def space(self, instruction: syntax.Instruction) -> str:
        """The state space of a memory instruction; for generic addresses the observed one."""
        site = self.program.site_of.get(instruction)
        return self.sites[site].space if site is not None else instruction.form.space or "generic"

    def chain(self, chain: Mapping[str, int]) -> str:
        cycles = sum(count * self.machine.latencies.get(unit, 0) for unit, count in chain.items())
        name = "+".join(f"{count} {unit}" for unit, count in chain.items()) or "none"
        if name != "none":
            self.latencies[name] = float(cycles)
        return name
