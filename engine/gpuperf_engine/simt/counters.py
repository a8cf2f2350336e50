"""The raw counters of one launch, and how sectors, wavefronts and serialisations are counted from lane addresses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..flow.slicing import Slice
from ..results import LINE_BYTES, SECTOR_BYTES, ObjectFootprint, ProvenValues, Race, ValueRecord
from .atomic_targets import HottestAddress
from .padding import BlankRead, Overrun
from .program import Program
from .rule_breaches import Breach
from .thread_counters import ThreadTable

__all__ = [
    "LINE_BYTES",
    "SITE_COLUMNS",
    "Observation",
    "atomic_wavefronts",
    "local_sectors",
    "sectors",
    "serializations",
    "wavefronts",
]

#: columns of ``Observation.sites``. ``requests`` and ``lanes`` count all spaces, ``sectors`` and ``lines`` are those of global
#: memory, ``wavefronts`` and ``ideal`` those of shared memory; ``serializations`` and ``shared_serializations`` are of atomics.
#: ``shared_lanes``, ``local_lanes`` and the requests of both are only counted at generic sites, by the window that they access;
#: ``elsewhere`` are requests of which no lane accesses global memory. ``global_wavefronts`` are those of global loads in the banks of
#: L1.
SITE_COLUMNS = (
    "requests", "lanes", "sectors", "wavefronts", "ideal", "shared_lanes", "local_lanes", "lines", "local_sectors",
    "serializations", "shared_serializations", "elsewhere", "shared_requests", "local_requests", "global_wavefronts",
)  # fmt: skip


@dataclass
class Observation:
    """Counters of one launch, all int64, exact.

    ``block_warps``, ``block_lanes``: shape (blocks,), executions by paths of warps and by lanes. ``divergent``: (blocks,),
    executions of the block's counted branch in which lanes went to more than one target. ``taken``: (blocks,), lanes whose guard
    held at the block's counted branch. ``predicated``: (predicated instructions,), lanes whose guard held. ``sites``: (sites,
    SITE_COLUMNS) or ``None`` if memory was not observed. ``uninitialized``: indices of sites that read bytes that no thread had
    written; ``beyond``: those whose accesses extended into the padding after an object. ``executed`` is the slice that ran, ``None``
    for the whole program; ``method``: for which CTAs it ran, and ``method_reason`` why not for fewer; ``ran`` counts the thread
    instructions executed, ``None``: those of the slice in all CTAs."""

    block_warps: NDArray[np.int64]
    block_lanes: NDArray[np.int64]
    divergent: NDArray[np.int64]
    taken: NDArray[np.int64]
    predicated: NDArray[np.int64]
    sites: NDArray[np.int64] | None
    uninitialized: frozenset[int] = field(default_factory=frozenset)
    beyond: dict[int, Overrun] = field(default_factory=dict)
    #: the first read of each of the ``uninitialized`` sites
    blank: dict[int, BlankRead] = field(default_factory=dict)
    executed: Slice | None = None
    method: str = "every block"
    method_reason: str = ""
    ran: int | None = None
    #: the hottest address of global memory, if memory was observed
    hottest: HottestAddress = field(default_factory=HottestAddress)
    #: counters of single threads, if ``threads`` was observed
    threads: ThreadTable | None = None
    #: footprint of each accessed object, if ``footprint`` was observed
    footprint: tuple[ObjectFootprint, ...] | None = None
    #: values of accesses, if ``accesses`` was observed
    values: tuple[ValueRecord, ...] | None = None
    #: properties of values that warp classes prove, if ``proofs`` were observed
    proven: tuple[ProvenValues, ...] | None = None
    #: violations of rules that today's GPUs tolerate, one per instruction
    breaches: tuple[Breach, ...] = ()
    #: races, if they were detected
    races: tuple[Race, ...] = ()
    #: executed operations of products in tensor memory, by type as in ``isa.tensor_memory.WORK``
    tensor_work: dict[str, int] = field(default_factory=dict)
    #: whether it waited for the program that launched it, so that its counts depend on how long that took
    waited: bool = False
    #: remarks about the kernel's behaviour
    notes: tuple[str, ...] = ()
    #: CTAs whose launch was cancelled
    cancelled: int = 0
    #: remarks about how the launch was run, which are no properties of the program
    remarks: tuple[str, ...] = ()

    @classmethod
    def empty(cls, program: Program, observe: frozenset[str]) -> Observation:
        """All zero."""
        blocks = len(program.blocks)
        sites = (
            np.zeros((len(program.sites), len(SITE_COLUMNS)), dtype=np.int64) if "memory" in observe else None
        )
        return cls(
            np.zeros(blocks, dtype=np.int64),
            np.zeros(blocks, dtype=np.int64),
            np.zeros(blocks, dtype=np.int64),
            np.zeros(blocks, dtype=np.int64),
            np.zeros(len(program.predicated), dtype=np.int64),
            sites,
        )

    def times(self, count: int) -> None:
        """Multiply the counters, for so many CTAs or launches like this one. Counters beyond 64 bits become Python integers."""
        self.hottest = self.hottest.times(count)
        self.tensor_work = {name: work * count for name, work in self.tensor_work.items()}
        for name in ("block_warps", "block_lanes", "divergent", "taken", "predicated", "sites"):
            counters = getattr(self, name)
            if counters is not None:
                fits = int(counters.max(initial=0)) * count < 1 << 62
                setattr(self, name, (counters if fits else counters.astype(object)) * count)

    def warp_instructions(self, program: Program) -> int:
        """Executions of instructions by paths of warps, in all blocks."""
        return int(self.block_warps @ program.once(_lengths))

    def added(self, other: Observation) -> Observation:
        """The counters of both launches of one program; the rest is that of this one."""
        arrays = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("block_warps", "block_lanes", "divergent", "taken", "predicated")
        }
        both = self.sites is not None and other.sites is not None
        return replace(
            self,
            **arrays,
            sites=self.sites + other.sites if both else None,  # type: ignore[operator]
            cancelled=self.cancelled + other.cancelled,
            waited=self.waited or other.waited,
            hottest=max(self.hottest, other.hottest, key=lambda item: item.lanes),
            tensor_work={
                name: self.tensor_work.get(name, 0) + other.tensor_work.get(name, 0)
                for name in {**self.tensor_work, **other.tensor_work}
            },
        )

    def mean(self, count: int) -> Observation:
        """The mean of so many launches whose sum these counters are, rounded down."""
        arrays = {
            name: getattr(self, name) // count
            for name in ("block_warps", "block_lanes", "divergent", "taken", "predicated")
        }
        return replace(
            self,
            **arrays,
            sites=None if self.sites is None else self.sites // count,
            cancelled=self.cancelled // count,
            hottest=self.hottest.mean(count),
            tensor_work={name: work // count for name, work in self.tensor_work.items()},
        )

    def executed_in(self, program: Program) -> int:
        """Executed thread instructions by these counters, without those that the slice omits."""
        return self.sliced_in(program) if self.ran is None else self.ran

    def sliced_in(self, program: Program) -> int:
        """Thread instructions of the slice in all CTAs, including those that did not have to run."""
        only = None if self.executed is None else self.executed.instructions
        return sum(
            int(self.block_lanes[block.index]) * sum(only is None or item in only for item in block.tally)
            for block in program.blocks
        )


def _lengths(program: Program) -> NDArray[np.int64]:
    """The number of counted instructions of each block."""
    return np.array([len(block.tally) for block in program.blocks], dtype=np.int64)


BANKS = 32
WORD_BYTES = 4


def sectors(addresses: NDArray[np.uint64], piece: int = SECTOR_BYTES) -> int:
    """Distinct 32-byte sectors (or units of another size) of one request. ``addresses``: those of the active lanes, uint64; as
    accesses are aligned to their size, none spans two sectors."""
    return _distinct(addresses // piece)


def _distinct(numbers: NDArray[np.uint64]) -> int:
    """The number of distinct numbers; for 32 of them, this takes a tenth of the time of ``np.unique``."""
    return len(set(numbers.tolist()))


def local_sectors(offsets: NDArray[np.uint64], lanes: NDArray[np.intp], size: int) -> int:
    """Distinct sectors of one request to local memory. ``offsets``: addresses within local memory, ``size`` bytes per lane.

    In local memory the same word of consecutive lanes is consecutive (CUDA C++ Programming Guide, "Local Memory"): word w of
    lane l is at 128 · w + 4 · l, with eight lanes per sector.
    """
    words = max(1, size // WORD_BYTES)
    groups = offsets // (WORD_BYTES * words) * 4 + lanes.astype(offsets.dtype) // 8
    return _distinct(groups) * words


def wavefronts(
    addresses: NDArray[np.uint64], lanes: NDArray[np.intp], size: int, loads: bool = False
) -> tuple[int, int]:
    """Wavefronts of one request to shared memory, and the minimum for its width.

    ``addresses`` and ``lanes`` (0 to 31) of the active lanes, ``size`` bytes per lane. In one wavefront each of the 32 banks provides
    one 4-byte word, to any number of lanes. Accesses of 8 bytes are processed by half warps, of 16 bytes by quarter warps, one phase
    each. Two neighbouring phases of a load are merged if in both all active lanes i and i xor 1 (or all i and i xor 2) have the same
    address, and if that needs fewer wavefronts.

    Loads from global memory take as many wavefronts in the banks of L1, where phases are not merged (``loads`` false). This agrees
    with Nsight Compute's ``l1tex__data_pipe_lsu_wavefronts`` for the strided loads of tests/timing/data/l1_strides.csv.
    """
    if not addresses.size:
        return 0, 0
    # offsets that are multiples of all banks' words do not matter, and removing them makes the cache hit more often
    near = addresses - addresses.min() // LINE_BYTES * LINE_BYTES
    return _wavefronts(
        near.astype(np.int64).tobytes(), lanes.astype(np.int64, copy=False).tobytes(), size, loads
    )


@lru_cache(maxsize=4096)
def _wavefronts(near: bytes, at: bytes, size: int, loads: bool) -> tuple[int, int]:
    addresses, lanes = np.frombuffer(near, np.int64), np.frombuffer(at, np.int64)
    width = max(WORD_BYTES, size)
    words = addresses // width
    phases = lanes // (BANKS * WORD_BYTES // width)
    total = ideal = 0
    for pair in np.unique(phases // 2):
        both = phases // 2 == pair
        parts = [words[phases == phase] for phase in np.unique(phases[both])]
        needed, count = sum(_wavefronts_of(part, width) for part in parts), len(parts)
        if (
            loads
            and count == 2
            and (_paired(words[both], lanes[both], 1) or _paired(words[both], lanes[both], 2))
        ):
            merged = _wavefronts_of(words[both], width)
            if merged < needed:
                needed, count = merged, 1
        total, ideal = total + needed, ideal + count
    return total, ideal


def _wavefronts_of(words: NDArray[np.uint64], width: int) -> int:
    """The maximum number of distinct words of ``width`` bytes in the same banks."""
    banks = np.unique(words) % (BANKS * WORD_BYTES // width)
    return int(np.bincount(banks.astype(np.int64)).max())


def _paired(words: NDArray[np.uint64], lanes: NDArray[np.intp], distance: int) -> bool:
    table = np.full(32, -1, dtype=np.int64)
    table[lanes] = words
    partners = table[lanes ^ distance]
    return bool(((partners == -1) | (partners == words.astype(np.int64))).all())


def serializations(addresses: NDArray[np.uint64]) -> int:
    """The maximum number of lanes of one request with the same address, whose atomics are serialised."""
    return max(Counter(addresses.tolist()).values())


def atomic_wavefronts(addresses: NDArray[np.uint64], lanes: NDArray[np.intp], size: int) -> tuple[int, int]:
    """As ``wavefronts``, for atomics: lanes with the same address are served one by one, so the most frequent address adds a wavefront
    for each of its lanes but the first."""
    total, ideal = wavefronts(addresses, lanes, size)
    return total + serializations(addresses) - 1, ideal
