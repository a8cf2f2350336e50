"""The memory traffic of machine code, derived from the traffic of the PTX accesses that it was compiled from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from ..isa.effects import LOAD, STORE
from ..ptx.syntax import Instruction
from ..simt.effects import site_space
from .anchors import MEMORY
from .counts import Access, PtxCounts
from .flow import Executions
from .graph import Graph
from .listing import NEVER, Decoded
from .run.machine import Ran

__all__ = ["Traffic", "as_run", "traffic"]

#: Bits that an access moves per lane, if not 32.
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
_COPIES = ("UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Executed accesses. ``spill_loads``, ``spill_stores``: accesses of local memory without a PTX access; requests and wavefronts of
    shared loads, and wavefronts of all shared accesses; requests of global loads into registers, their wavefronts in L1, and sectors
    of global memory by kind. ``None`` if the PTX accesses do not determine the count."""

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


@dataclass(slots=True)
class _Made:
    """The sum of the machine instructions of one PTX access. ``executed``: by warps; ``bits``: moved per lane; ``guarded``: whether
    one of them has a predicate; ``widest``: the bits of the widest; ``unsized``: whether the opcode of one does not specify a width,
    as for bulk copies and matrices."""

    executed: int = 0
    bits: int = 0
    widest: int = 0
    guarded: bool = False
    unsized: bool = False

    def add(self, item: Decoded, warps: int) -> None:
        width = next((_WIDTHS[name] for name in item.opcode.split(".")[1:] if name in _WIDTHS), 32)
        self.executed += warps
        self.bits += warps * width
        self.widest = max(self.widest, width)
        self.guarded |= bool(item.predicate)
        self.unsized |= item.base in (*_COPIES, "LDSM")


def traffic(
    graph: Graph, instructions: Sequence[Instruction], warps: Executions, counts: PtxCounts
) -> Traffic:
    """The traffic of executed machine code. ``instructions`` and ``counts`` are those of the PTX."""
    made: defaultdict[int, _Made] = defaultdict(_Made)
    shared: defaultdict[int, _Made] = defaultdict(_Made)
    loads: defaultdict[int, _Made] = defaultdict(_Made)
    spills = Counter[str]()
    for block in graph.blocks:
        executed = warps.blocks.get(block.index, 0)
        for item in graph.instructions(block):
            if item.predicate in NEVER:
                continue
            if item.base in ("LDL", "STL") and not (item.ptx and _may_be_local(instructions[item.ptx - 1])):
                spills[item.base] += executed
            elif item.base in MEMORY or item.base in _COPIES:
                made[item.ptx].add(item, executed)
                if item.base in ("LDS", "LDSM"):
                    shared[item.ptx].add(item, executed)
                elif item.base in _LOADS:
                    loads[item.ptx].add(item, executed)
    accesses = {number: count.access for number, count in counts.of.items() if count.access is not None}
    return Traffic(
        spills["LDL"],
        spills["STL"],
        *_shared_loads(shared, accesses),
        _kept(made, accesses, attrgetter("wavefronts")),
        _global_loads(loads, accesses),
        _kept(made, accesses, attrgetter("global_wavefronts")),
        *(
            _kept(
                made,
                {number: access for number, access in accesses.items() if access.kind in kinds},
                attrgetter("sectors"),
            )
            for kinds in (("load",), ("store",), ("atomic", "reduction"))
        ),
    )


def _may_be_local(instruction: Instruction) -> bool:
    return instruction.effect in (LOAD, STORE) and site_space(instruction) in ("local", "generic")


def _shared_loads(made: Mapping[int, _Made], accesses: Mapping[int, Access]) -> tuple[int, int | None]:
    """Requests and wavefronts of shared loads. The wavefronts are those of the PTX loads, if each load has its width and its
    executions."""
    requests = wavefronts = 0
    told = True
    for number, load in made.items():
        access = accesses.get(number)
        if access is None or (access.space, access.kind) != ("shared", "load"):
            requests, told = requests + load.executed, False
            continue
        executed = min(load.executed, access.requests) if load.guarded else load.executed
        requests += executed
        told &= executed == access.requests and (load.unsized or load.widest == access.bytes * 8)
        wavefronts += access.wavefronts
    return requests, wavefronts if told else None


def _global_loads(made: Mapping[int, _Made], accesses: Mapping[int, Access]) -> int:
    """Requests of global loads: executions, for a guarded load at most the requests of the PTX load."""
    requests = 0
    for number, load in made.items():
        access = accesses.get(number)
        if access is not None and access.space == "generic" and not access.sectors:
            continue
        told = load.guarded and access is not None and access.kind == "load"
        requests += min(load.executed, access.requests) if told and access is not None else load.executed
    return requests


def _kept(
    made: Mapping[int, _Made], accesses: Mapping[int, Access], read: Callable[[Access], int]
) -> int | None:
    """The sum over the accesses that the assembler kept; ``None`` if it kept part of one, or merged it into a wider one."""
    total = 0
    for number, access in accesses.items():
        if not read(access) or number not in made:
            continue
        same = made[number]
        wanted = access.requests * access.bytes * 8
        whole = same.bits == wanted or (same.guarded and same.bits > wanted)
        if not (same.unsized or (whole and same.widest <= access.bytes * 8)):
            return None
        total += read(access)
    return total


#: Loads of global memory into registers.
_LOADS = ("LDG", "LD")
_GLOBAL = {
    "global_load_sectors": ("LDG", "LD", "LDGSTS", "UTMALDG", "UBLKCP.S"),
    "global_store_sectors": ("STG", "ST", "UTMASTG", "UBLKCP.G"),
    "global_atomic_sectors": ("ATOMG", "ATOM", "RED", "REDG", "UTMAREDG", "UBLKRED"),
}


def as_run(graph: Graph, ran: Ran, counted: Traffic) -> Traffic:
    """The traffic that a run observed, which includes merged accesses."""
    items = graph.listing.instructions
    sectors: Counter[str] = Counter()
    wavefronts = requests = loads = 0
    for position, row in ran.rows.items():
        base = items[position].base
        if base == "UBLKCP":  # the state space of the destination
            base = items[position].opcode[: len("UBLKCP.S")]
        for name, bases in _GLOBAL.items():
            sectors[name] += row.sectors * (base in bases)
        if base in ("LDS", "LDSM"):
            requests += row.requests
            wavefronts += row.wavefronts
        elif base == "LDG" or (base == "LD" and row.sectors):
            loads += row.requests
    return replace(
        counted,
        shared_load_requests=requests,
        shared_load_wavefronts=wavefronts,
        shared_wavefronts=sum(row.wavefronts for row in ran.rows.values()),
        global_load_requests=loads,
        global_load_wavefronts=sum(row.global_wavefronts for row in ran.rows.values()),
        global_load_sectors=sectors["global_load_sectors"],
        global_store_sectors=sectors["global_store_sectors"],
        global_atomic_sectors=sectors["global_atomic_sectors"],
    )
