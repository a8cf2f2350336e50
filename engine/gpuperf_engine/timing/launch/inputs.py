"""The input of the timing models: the properties of a launch that they use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from ...machines.occupancy import WARP_SIZE
from ...results import CodeLine

__all__ = [
    "EXPANDED",
    "NO_ORIGIN",
    "SIMULATION",
    "Block",
    "Instruction",
    "Loop",
    "MemoryTraffic",
    "Origin",
    "Path",
    "TimingInput",
]

SIMULATION = "simulation"
"""The model whose input is a launch and its machine code; defined here so that importing it does not import
``timing.models.simulation``."""
EXPANDED = "simulation-expanded"
"""The same simulation on the machine code that the PTX and the expansion table suggest, without an assembler."""
NO_ORIGIN = -1
"""``Instruction.origin`` of instructions without a PTX instruction."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction on the path of a warp.

    ``unit`` is the unit it occupies (``machines.schema.UNITS``, or ``none`` if the hardware does not execute it);
    ``latency`` names the cycles until its result is available: a name of ``machines.schema.LATENCIES``, ``global`` (a load
    served by L1, L2 or DRAM), ``local``, ``constant``, ``atomic`` (a global atomic whose result is used) or ``none``.
    ``reads`` and ``writes`` number registers, predicates and anything else that orders instructions. ``site`` is the number of a
    memory instruction, -1 for all others: ``TimingInput.waits`` has its cycles beyond its latency. ``origin`` is the number of its PTX
    instruction, a key of ``TimingInput.origins``.
    """

    unit: str
    latency: str = "none"
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    site: int = -1
    origin: int = field(default=NO_ORIGIN, compare=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a PTX instruction, for stalls, and the kinds (``results.Stall.cause``) of stalls that wait for its ``result``,
    or in the ``queue`` of the LSU behind it."""

    line: CodeLine
    result: str
    queue: str


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions in order, executed with the probability ``weight`` (0 to 1) each time the path reaches them."""

    instructions: tuple[Instruction, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Loop:
    """A part of the path that is executed ``trips`` times on average each time the path reaches it."""

    body: Path
    trips: float


Path: TypeAlias = "tuple[Block | Loop, ...]"
"""The path of the average warp through the kernel: blocks and loops in the order of execution."""


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Memory traffic of the whole launch, in warp requests, 32-byte sectors, wavefronts and bytes.

    ``read_footprint`` and ``write_footprint`` are distinct bytes of global memory touched (in whole sectors);
    ``cta_read_sectors`` is the sum over CTAs of the distinct sectors that each of them reads, ``None`` if not known.
    ``load_wavefronts`` are those of global loads in the banks of L1, ``None`` if not known: then as many as their sectors
    fill; ``load_tag_wavefronts`` are those of their tag lookups in L1. ``texture_misses`` is the share of texture fetches
    (0 to 1) that miss L1; their sectors are included in those of the loads.
    ``shared_wavefronts`` counts those of shared memory, bank conflicts included (one per conflict-free request of 4
    bytes per lane), ``shared_requests`` the warp instructions that made them.
    ``atomic_sectors`` are sectors of global atomics and reductions, one per distinct sector of a request; ``atomic_operations``
    are those that L2 serialises at the hottest address. ``constant_serializations`` are lanes that read a constant after
    another lane of their request. Uncoalesced requests need more sectors than contiguous lanes.
    """

    load_requests: float = 0
    load_sectors: float = 0
    store_requests: float = 0
    store_sectors: float = 0
    read_footprint: float = 0
    write_footprint: float = 0
    cta_read_sectors: float | None = None
    shared_requests: float = 0
    shared_wavefronts: float = 0
    local_sectors: float = 0
    atomic_sectors: float = 0
    atomic_operations: float = 0
    constant_serializations: float = 0
    load_wavefronts: float | None = None
    load_tag_wavefronts: float = 0
    texture_misses: float = 0
    uncoalesced_load_requests: float = 0
    uncoalesced_load_sectors: float = 0
    uncoalesced_store_requests: float = 0
    uncoalesced_store_sectors: float = 0

    def scaled(self, loads: float, stores: float) -> MemoryTraffic:
        """The traffic with these shares (0 to 1) of the loads and of the stores."""
        of_ctas, wavefronts = self.cta_read_sectors, self.load_wavefronts
        return replace(
            self,
            load_requests=loads * self.load_requests,
            load_sectors=loads * self.load_sectors,
            read_footprint=loads * self.read_footprint,
            cta_read_sectors=None if of_ctas is None else loads * of_ctas,
            load_wavefronts=None if wavefronts is None else loads * wavefronts,
            load_tag_wavefronts=loads * self.load_tag_wavefronts,
            store_requests=stores * self.store_requests,
            store_sectors=stores * self.store_sectors,
            write_footprint=stores * self.write_footprint,
            uncoalesced_load_requests=loads * self.uncoalesced_load_requests,
            uncoalesced_load_sectors=loads * self.uncoalesced_load_sectors,
            uncoalesced_store_requests=stores * self.uncoalesced_store_requests,
            uncoalesced_store_sectors=stores * self.uncoalesced_store_sectors,
        )


@dataclass(frozen=True, slots=True)
class TimingInput:
    """A launch as input of the models.

    ``grid`` and ``block`` are CTAs and threads along x, y, z; ``warp_instructions`` are machine instructions issued by all
    warps of the launch, by unit, and ``operand_reads`` the operands that these read from the register file; ``path`` is the path
    of the average warp; ``barriers`` counts the CTA barriers on it.
    ``local_bytes`` are what a thread keeps in local memory, spilled registers among them. ``resources`` says where
    ``registers_per_thread`` and ``shared_bytes`` (per CTA) come from; ``latencies`` are further
    latencies, in cycles, that instructions of the path name; ``waits`` are the cycles that a request of a memory instruction takes
    beyond the one that an access without conflicts takes (wavefronts of L1 or shared memory, serializations of atomics), the mean of
    its requests, by number of the instruction; ``notes`` are remarks for people, ``hottest`` is
    one about atomics, for launches that they limit. ``origins`` are the PTX instructions of the path by number,
    ``barriers_at`` the barriers that a warp passes at each of them, ``barriers`` in all.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int
    shared_bytes: int
    warp_instructions: Mapping[str, float]
    path: Path
    memory: MemoryTraffic = field(default_factory=MemoryTraffic)
    barriers: float = 0
    operand_reads: float = 0
    local_bytes: float = 0
    resources: str = "estimate"
    latencies: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hottest: str = ""
    origins: Mapping[int, Origin] = field(default_factory=dict)
    barriers_at: Mapping[int, float] = field(default_factory=dict)
    #: CTAs of the grid that never ran, because other CTAs cancelled their launch and took over their work.
    cancelled: int = 0

    @property
    def ctas(self) -> int:
        return prod(self.grid) - self.cancelled

    @property
    def threads_per_cta(self) -> int:
        return prod(self.block)

    @property
    def warps_per_cta(self) -> int:
        return -(-self.threads_per_cta // WARP_SIZE)
