"""From an observed launch to the input of the models: machine instructions, the path of a warp, and its memory traffic.

Counts are exact up to the expansion of PTX into machine instructions (``machines/expansion.yaml``). The path is that of the
*average* warp: block executions divided by the number of warps, loops nested as in the control-flow graph.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from ..errors import NotObserved
from ..flow.blocks import natural_loop
from ..flow.operands import reads, writes
from ..isa.effects import ATOMIC, LOAD
from ..profile.build import LaunchRecord
from ..ptx import syntax
from ..results import Resources
from ..simt.counters import SITE_COLUMNS
from ..simt.program import BasicBlock, Program
from .allocation import NO_REGISTER, Allocation, allocate
from .bounds import WAVEFRONT
from .caches import SECTOR
from .calls import Calls
from .contention import contention
from .expansion import expansion_of
from .footprint import footprint
from .inputs import Block, Instruction, Loop, MemoryTraffic, Path, TimingInput
from .machine import Machine
from .registers import operand_reads
from .schedule import schedule
from .schema import UNITS
from .textures import NOTE, ImageTraffic, image_traffic

__all__ = ["launch_key", "timing_input"]

_LOAD_LATENCY = {
    "global": "global",
    "generic": "global",
    "local": "local",
    "const": "constant",
    "param": "constant",
    "shared": "shared",
}


#: what is read from banks of constants
_CONSTANT = ("const", "param")

# Spaces in which the order of accesses matters, and the registers that stand for it.
_SPACES = ("global", "shared", "local")
_ORDER = (-1, -2, -3)


def launch_key(record: LaunchRecord) -> Hashable:
    """Equal for launches of one program whose predicted times are equal on every machine."""
    plan, seen = record.plan, record.observation
    sites = b"" if seen.sites is None else seen.sites.tobytes()
    shape = plan.grid, plan.block, plan.shared_bytes, plan.pointed_at, plan.images
    fetched = seen.block_lanes.tobytes() + seen.predicated.tobytes() if plan.images else b""
    return id(record.program), shape, seen.block_warps.tobytes(), sites, fetched


def timing_input(record: LaunchRecord, machine: Machine, resources: Resources) -> TimingInput:
    """The launch as the models see it on this machine, with these registers and this shared memory.

    Raises :class:`NotObserved` if the launch's memory behaviour was not observed.
    """
    if record.observation.sites is None:
        raise NotObserved(
            f"predicted time of {record.program.kernel.name!r} needs its memory behaviour, which was not observed",
            hint='use Device(observe={"memory"}) and demand="addresses" or "values"',
        )
    plan = record.plan
    warps = plan.ctas * plan.warps_per_cta
    allocated = allocate(record, machine, resources)
    builder = _Builder(
        record.program,
        [int(n) for n in record.observation.block_warps],
        _sites(record),
        machine,
        allocated,
    )
    path = builder.path_of(0, warps)
    barriers = sum(
        builder.executions[block.index] for block in record.program.blocks if block.kind == "barrier"
    )
    images = image_traffic(record)
    atomics = contention(record, machine)
    memory = _traffic(record, builder.sites, machine)
    declared = record.program.local_bytes if memory.local_sectors else 0
    memory = replace(
        memory,
        atomic_operations=atomics.operations,
        constant_serializations=builder.constant_serializations(),
        local_sectors=memory.local_sectors + builder.spilled_sectors(),
    )
    return TimingInput(
        grid=plan.grid,
        block=plan.block,
        registers_per_thread=allocated.registers,
        shared_bytes=resources.shared_bytes,
        warp_instructions=builder.counts(),
        path=path,
        memory=memory if images is None else _with_images(memory, images),
        barriers=barriers / warps,
        operand_reads=sum(
            executions * operand_reads(block.tally)
            for block, executions in zip(record.program.blocks, builder.executions, strict=True)
            if executions
        ),
        local_bytes=declared + 4 * allocated.words,
        resources=resources.source,
        latencies=builder.latencies,
        waits=_waits(builder.sites, machine) | atomics.waits,
        notes=(*allocated.notes, *(() if images is None else (NOTE,))),
    )


def _with_images(memory: MemoryTraffic, images: ImageTraffic) -> MemoryTraffic:
    return replace(
        memory,
        load_sectors=memory.load_sectors + images.read / SECTOR,
        store_sectors=memory.store_sectors + images.written / SECTOR,
        read_footprint=memory.read_footprint + images.read,
        write_footprint=memory.write_footprint + images.written,
        texture_misses=images.missed,
    )


@dataclass(frozen=True, slots=True)
class _Site:
    """Counters of one memory instruction; ``space`` is where most of its lanes went."""

    space: str
    requests: int
    lanes: int
    global_requests: int
    sectors: int
    lines: int
    wavefronts: int
    global_wavefronts: int
    local_sectors: int


def _sites(record: LaunchRecord) -> list[_Site]:
    assert record.observation.sites is not None
    found = []
    for site, row in zip(record.program.sites, record.observation.sites.tolist(), strict=True):
        counters = dict(zip(SITE_COLUMNS, row, strict=True))
        space = site.space
        if space == "generic":
            if 2 * counters["shared_lanes"] > counters["lanes"]:
                space = "shared"
            elif 2 * counters["local_lanes"] > counters["lanes"]:
                space = "local"
        counters["global_requests"] = counters["requests"] - counters["elsewhere"]
        names = (
            "requests",
            "lanes",
            "global_requests",
            "sectors",
            "lines",
            "wavefronts",
            "global_wavefronts",
            "local_sectors",
        )
        found.append(_Site(space, *(counters[name] for name in names)))
    return found


def tag_wavefronts(requests: int, lines: int, rate: float) -> float:
    """Passes in which L1 looks up ``lines`` lines of so many requests, ``rate`` of them at a time, each request by itself.

    What is known of the single requests is their mean: each is taken to have the whole number of lines below or above it.
    """
    if not requests:
        return 0.0
    least, rest = divmod(lines, requests)
    return (requests - rest) * ceil(least / rate) + rest * ceil((least + 1) / rate)


def _waits(sites: list[_Site], machine: Machine) -> dict[int, float]:
    """Cycles that a request of each memory instruction takes beyond one wavefront, in the mean; what takes none is left out."""
    found = {}
    for index, seen in enumerate(sites):
        cycles = 0.0
        if seen.space in _CONSTANT:
            cycles = seen.lanes / seen.requests if seen.requests else 0.0
        elif seen.global_requests and seen.global_wavefronts:
            data = seen.global_wavefronts * WAVEFRONT / machine.l1_bandwidth
            tags = tag_wavefronts(seen.global_requests, seen.lines, machine.l1_tag_rate)
            cycles = max(data, tags) / seen.global_requests
        if seen.wavefronts and seen.requests:
            cycles = max(cycles, seen.wavefronts * WAVEFRONT / machine.l1_bandwidth / seen.requests)
        if cycles > 1.0:
            found[index] = cycles - 1.0
    return found


def _traffic(record: LaunchRecord, sites: list[_Site], machine: Machine) -> MemoryTraffic:
    requests = dict.fromkeys(("load", "store", "atomic", "reduction"), 0)
    sectors = dict(requests)
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    local = 0
    data = tags = 0.0
    for site, seen in zip(record.program.sites, sites, strict=True):
        local += seen.local_sectors
        if seen.sectors and seen.space not in _CONSTANT:
            requests[site.kind] += seen.global_requests
            sectors[site.kind] += seen.sectors
            if seen.global_wavefronts:
                data += seen.global_wavefronts
                tags += tag_wavefronts(seen.global_requests, seen.lines, machine.l1_tag_rate)
            elif site.kind == "load":  # a bulk copy, which no lanes make
                data += seen.sectors * SECTOR / WAVEFRONT
            (read if site.kind == "load" else written)[site.index] = seen.sectors
    return MemoryTraffic(
        load_requests=requests["load"],
        load_sectors=sectors["load"],
        store_requests=requests["store"],
        store_sectors=sectors["store"],
        read_footprint=footprint(record.program, record.plan, read),
        write_footprint=footprint(record.program, record.plan, written),
        shared_requests=sum(seen.requests for seen in sites if seen.wavefronts),
        shared_wavefronts=sum(seen.wavefronts for seen in sites),
        local_sectors=local,
        atomic_sectors=sectors["atomic"] + sectors["reduction"],
        load_wavefronts=data,
        load_tag_wavefronts=tags,
    )


@dataclass
class _Machined:
    """A basic block in machine instructions: in scheduled order, with the latencies of its chains, and all of its units."""

    instructions: tuple[Instruction, ...]
    latencies: Mapping[str, float]
    units: Mapping[str, int]


@dataclass
class _Builder:
    program: Program
    executions: list[int]
    sites: list[_Site]
    machine: Machine
    allocated: Allocation
    latencies: dict[str, float] = field(default_factory=dict)
    known: dict[int, _Machined] = field(default_factory=dict)
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

    def machined(self, block: BasicBlock) -> _Machined:
        """A block as this machine executes it; the same for all launches whose accesses go to the same spaces."""
        found = self.known.get(block.index)
        if found is None:
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
            found = self.known[block.index] = _Machined(
                schedule(expanded, self.order_latencies),
                {name: self.latencies[name] for name in chains},
                units,
            )
        self.latencies.update(found.latencies)
        return found

    def reloaded(self, block: BasicBlock) -> Iterable[Instruction]:
        """Loads of spilled registers that a block reads."""
        base = block.function << 20
        for index, _ in self.allocated.loads.get(block.index, ()):
            yield Instruction("lsu", "local", (), () if index == NO_REGISTER else (base + index,))

    def with_stores(self, expanded: list[Instruction], block: BasicBlock) -> list[Instruction]:
        """The instructions of a block with the stores of spilled registers, before the branch or barrier that ends it."""
        base = block.function << 20
        stores = [
            Instruction("lsu", "none", () if index == NO_REGISTER else (base + index,))
            for index, _ in self.allocated.stores.get(block.index, ())
        ]
        ends = bool(expanded) and expanded[-1].unit in ("cbu", "adu")
        return [*expanded[:-1], *stores, expanded[-1]] if ends else [*expanded, *stores]

    def constant_serializations(self) -> int:
        """Lanes that read constants at addresses of their own, each served after another."""
        return sum(
            seen.lanes - seen.requests
            for site, seen in zip(self.program.sites, self.sites, strict=True)
            if self.constant(site.instruction, self.program.blocks[site.block]) == "load"
        )

    def spilled_sectors(self) -> float:
        """Sectors of the loads and stores of spilled registers: each word of a warp fills a line."""
        allocated, total = self.allocated, 0
        for of in (allocated.loads, allocated.stores):
            for index, registers in of.items():
                total += self.executions[index] * sum(words for _, words in registers)
        return total * WAVEFRONT / SECTOR

    @property
    def order_latencies(self) -> Mapping[str, float]:
        """Latencies to schedule by: loads as an assembler that knows nothing of caches takes them."""
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

    def constant(self, found: syntax.Instruction, block: BasicBlock) -> str:
        """What a load from constants or parameters is: an ``operand`` of the instructions that use it, where all lanes read one
        address, or a ``load`` through the cache of constants; empty for everything else."""
        if found.effect is not LOAD or found.form.space not in _CONSTANT:
            return ""
        uniform = self.program.uniform[block.function]
        bases = (item.base for item in found.operands if isinstance(item, syntax.Address))
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
        """The path of one function, which was entered ``entries`` times, without the calls of itself."""
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
        self, members: set[int], head: int | None, passes: float, loops: Mapping[int, set[int]]
    ) -> Path:
        """Blocks of a region in text order, inner loops folded; ``passes`` is how often the region was run through."""
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
                    parts.append(Loop(body, executions / passes))
            else:
                left.discard(index)
                parts += self.block(self.program.blocks[index], executions, passes)
        return tuple(parts)

    def block(self, block: BasicBlock, executions: int, passes: float) -> Iterable[Block | Loop]:
        if not executions:
            return
        share = executions / passes
        instructions = self.machined(block).instructions
        if instructions:
            yield Block(instructions, share) if share <= 1.0 else Loop((Block(instructions),), share)
        for number, entered, each in self.calls.entered(block):
            body = self.path_of(number, entered)
            if body:
                yield Loop(body, share * each)

    def expand(self, found: syntax.Instruction, block: BasicBlock) -> Iterable[Instruction]:
        """Machine instructions of one PTX instruction: the first carries operands and result, the others take their slots."""
        base = block.function << 20
        sources = tuple(dict.fromkeys(base + register.index for register in reads(found)))
        results = tuple(dict.fromkeys(base + register.index for register in writes(found)))
        after, before = self.memory_order(found)
        sources, results = sources + after, results + before
        if constant := self.constant(found, block):
            if constant == "operand":
                yield Instruction("none", "none", sources, results)
            else:
                site = self.program.site_of.get(found, -1)
                yield Instruction("lsu", "constant", sources, results, site)
            return
        expansion = expansion_of(found.opcode, self.machine.compute_capability)
        if expansion is None:
            unit = found.form.unit
            latency = self.latency(found, unit) if len(results) > len(before) else "none"
            yield Instruction(unit, latency, sources, results, self.program.site_of.get(found, -1))
            return
        units = [unit for unit, count in expansion.units.items() for _ in range(count)]
        if not units:
            yield Instruction("none", "none", sources, results)
            return
        yield Instruction(units[0], self.chain(expansion.chain) if results else "none", sources, results)
        for unit in units[1:]:
            yield Instruction(unit)

    def memory_order(self, found: syntax.Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Registers (negative, one per space) that keep loads behind the stores before them: those read and those written."""
        effect = found.effect
        if not (effect.per_lane or effect.orders) or (effect is LOAD and "nc" in found.opcode.split(".")):
            return (), ()
        if effect.orders:
            return _ORDER, _ORDER
        token = (_ORDER[_SPACES.index(self.space(found))],) if self.space(found) in _SPACES else ()
        return token, () if found.effect is LOAD else token

    def latency(self, found: syntax.Instruction, unit: str) -> str:
        """The name of the latency of an instruction that is one machine instruction."""
        if found.effect is LOAD:
            return _LOAD_LATENCY.get(self.space(found), "none")
        if found.effect is ATOMIC:
            return "shared" if self.space(found) == "shared" else "atomic"
        if unit == "lsu":
            return "shuffle"
        return unit if unit in self.machine.latencies else "none"

    def space(self, found: syntax.Instruction) -> str:
        """Where a memory instruction went: at generic addresses as observed."""
        site = self.program.site_of.get(found)
        return self.sites[site].space if site is not None else found.form.space or "generic"

    def chain(self, chain: Mapping[str, int]) -> str:
        cycles = sum(count * self.machine.latencies.get(unit, 0) for unit, count in chain.items())
        name = "+".join(f"{count} {unit}" for unit, count in chain.items()) or "none"
        if name != "none":
            self.latencies[name] = float(cycles)
        return name
