"""What a launch accessed: memory behaviour of all warps, of each memory instruction and of each object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .renamed import renamed

__all__ = ["LINE_BYTES", "SECTOR_BYTES", "Memory", "ObjectFootprint", "SiteProfile"]

SECTOR_BYTES = 32
"""Unit of transfers of global and local memory since Volta (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""
LINE_BYTES = 128
"""A line of L1 and L2 (Nsight Compute, "L1/TEX Cache"): four sectors."""


def _efficiency(requested: int, sectors: int) -> float:
    return 100.0 * requested / (SECTOR_BYTES * sectors) if sectors else 100.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory behaviour of all warps. A request is one warp instruction with at least one active lane; a sector is one
    distinct 32-byte piece of one request, a line one of 128 bytes; a wavefront is what the banks of shared memory serve at once; a
    conflict is a wavefront beyond those that the width alone needs; ``global_load_wavefronts`` are those of loads from global memory
    in the banks of L1, by the same rule without merging. Bytes are those that the lanes request. ``serializations`` of atomics: the
    largest number of lanes on one address, summed over requests; ``global_atomic_hottest``: the lanes of global atomics on the
    hottest address (docs/metrics.md says when others may be included), summed over launches. ``accesses`` counts lanes per
    ``<kind>.<space>.<bits>`` such as ``load.global.128``."""

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_conflicts: int = 0
    local_bytes: int = 0
    global_load_bytes: int = 0
    global_store_bytes: int = 0
    accesses: Mapping[str, int] = field(default_factory=dict)
    global_load_lines: int = 0
    global_store_lines: int = 0
    global_atomic_lines: int = 0
    global_atomic_bytes: int = 0
    global_atomic_serializations: int = 0
    shared_load_bytes: int = 0
    shared_store_bytes: int = 0
    shared_atomic_requests: int = 0
    shared_atomic_wavefronts: int = 0
    shared_atomic_bytes: int = 0
    shared_atomic_serializations: int = 0
    local_load_requests: int = 0
    local_load_sectors: int = 0
    local_store_requests: int = 0
    local_store_sectors: int = 0
    global_load_wavefronts: int = 0
    global_atomic_hottest: int = 0

    global_atomic_turns = renamed("global_atomic_turns", "global_atomic_serializations")
    shared_atomic_turns = renamed("shared_atomic_turns", "shared_atomic_serializations")

    @property
    def global_load_efficiency(self) -> float:
        """Bytes that lanes load from global memory per 100 bytes of sectors (nvprof's ``gld_efficiency``): above 100 if lanes read
        the same bytes, 100 if nothing was loaded."""
        return _efficiency(self.global_load_bytes, self.global_load_sectors)

    @property
    def global_store_efficiency(self) -> float:
        """The same for stores (``gst_efficiency``)."""
        return _efficiency(self.global_store_bytes, self.global_store_sectors)

    @property
    def global_moved_bytes(self) -> int:
        """Bytes of all sectors of global memory, those of atomics included."""
        return SECTOR_BYTES * (
            self.global_load_sectors + self.global_store_sectors + self.global_atomic_sectors
        )

    @property
    def shared_wavefronts(self) -> int:
        """Wavefronts of shared memory, of loads, stores and atomics."""
        return self.shared_load_wavefronts + self.shared_store_wavefronts + self.shared_atomic_wavefronts

    @property
    def local_sectors(self) -> int:
        """Sectors of local memory, of loads and stores."""
        return self.local_load_sectors + self.local_store_sectors

    @property
    def local_moved_bytes(self) -> int:
        """Bytes of the sectors of local memory that are moved for ``local_bytes``."""
        return SECTOR_BYTES * self.local_sectors

    def to_dict(self) -> dict[str, Any]:
        """All figures, those that follow from others included."""
        more = (
            "global_load_efficiency",
            "global_store_efficiency",
            "global_moved_bytes",
            "shared_wavefronts",
            "local_sectors",
            "local_moved_bytes",
        )
        return {**asdict(self), **{name: getattr(self, name) for name in more}}


@dataclass(frozen=True, slots=True)
class SiteProfile:
    """One memory instruction: what it asked for and what that cost, as in ``Memory``. ``source`` is its source line
    (``kernel.cu:17``), empty if the PTX does not say. ``wavefronts`` are those of shared memory, ``global_wavefronts`` those of a load
    from global memory in the banks of L1. A generic access may go anywhere: ``shared_lanes`` and ``local_lanes`` say
    how many of ``lanes`` went to shared and local memory, and requests are counted for each space that one reaches."""

    function: str
    line: int
    opcode: str
    space: str
    kind: str  # load, store, atomic, reduction
    bytes_per_lane: int
    source: str
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    shared_lanes: int = 0
    local_lanes: int = 0
    cache_lines: int = 0
    local_sectors: int = 0
    serializations: int = 0
    shared_serializations: int = 0
    global_requests: int = 0
    shared_requests: int = 0
    local_requests: int = 0
    global_wavefronts: int = 0

    turns = renamed("turns", "serializations")
    shared_turns = renamed("shared_turns", "shared_serializations")

    @property
    def other_lanes(self) -> int:
        """Lanes that went neither to shared nor to local memory."""
        return self.lanes - self.shared_lanes - self.local_lanes

    @property
    def global_bytes(self) -> int:
        """Bytes that lanes ask of global memory."""
        return self.other_lanes * self.bytes_per_lane if self.global_requests else 0

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond those that the width alone needs."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def sectors_per_request(self) -> float:
        """Sectors of global memory per request that reached it; 0 if none did."""
        return self.sectors / self.global_requests if self.global_requests else 0.0

    @property
    def ideal_sectors_per_request(self) -> float:
        """The sectors that as many bytes fill when they are distinct and lie side by side, aligned: 4 for 32 lanes of 4 bytes."""
        return self.global_bytes / SECTOR_BYTES / self.global_requests if self.global_requests else 0.0

    @property
    def efficiency(self) -> float:
        """Bytes asked of global memory per 100 bytes moved; 100 if none were moved."""
        return _efficiency(self.global_bytes, self.sectors)

    @property
    def conflicts_per_request(self) -> float:
        """Conflicts per request that reached shared memory."""
        return self.conflicts / self.shared_requests if self.shared_requests else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, those that follow from others included."""
        more = (
            "global_bytes", "conflicts", "sectors_per_request", "ideal_sectors_per_request", "efficiency",
            "conflicts_per_request",
        )  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in more}}


@dataclass(frozen=True, slots=True)
class ObjectFootprint:
    """What a launch touched of one array or variable in device memory: bytes that it read, that it wrote, and either; and their
    32-byte sectors. Each counts once, however often it was accessed. ``bytes`` is the size of the object."""

    object: str
    bytes: int
    bytes_read: int
    bytes_written: int
    bytes_touched: int
    sectors_read: int
    sectors_written: int
    sectors_touched: int

    @property
    def share(self) -> float:
        """Bytes touched in per cent of the object."""
        return 100.0 * self.bytes_touched / self.bytes

    def to_dict(self) -> dict[str, Any]:
        """All figures, the share included."""
        return {**asdict(self), "share": self.share}
