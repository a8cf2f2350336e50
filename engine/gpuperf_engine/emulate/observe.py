"""What a run observed: the raw counters of one launch, and how memory behaviour is counted from lane addresses.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .program import Program

__all__ = ["SITE_COLUMNS", "Observation", "atomic_wavefronts", "sectors", "wavefronts"]

#: columns of ``Observation.sites``. ``requests`` and ``lanes`` count all spaces; ``sectors`` those of global memory (for sites in
#: local memory, of local); ``wavefronts`` and ``ideal`` those of shared memory; ``shared_lanes`` and ``local_lanes`` matter at
#: generic sites, where they tell how many of ``lanes`` went to those windows.
SITE_COLUMNS = ("requests", "lanes", "sectors", "wavefronts", "ideal", "shared_lanes", "local_lanes")


@dataclass
class Observation:
    """Counters of one launch, all int64, exact.

    ``block_warps``, ``block_lanes``: shape (blocks,), executions by warp splits and by lanes. ``divergent``: (blocks,), executions of
    the block's counted branch in which lanes went to more than one target. ``taken``: (blocks,), lanes whose guard held at the
    block's counted branch. ``predicated``: (predicated instructions,), lanes whose guard held. ``sites``: (sites, SITE_COLUMNS) or
    ``None`` if memory was not observed. ``uninitialized``: indices of sites that read bytes nobody had written.
    """

    block_warps: NDArray[np.int64]
    block_lanes: NDArray[np.int64]
    divergent: NDArray[np.int64]
    taken: NDArray[np.int64]
    predicated: NDArray[np.int64]
    sites: NDArray[np.int64] | None
    uninitialized: frozenset[int] = field(default_factory=frozenset)

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

    def add(self, other: Observation) -> None:
        """Add the counters of other CTAs of the same launch."""
        for mine, theirs in (
            (self.block_warps, other.block_warps),
            (self.block_lanes, other.block_lanes),
            (self.divergent, other.divergent),
            (self.taken, other.taken),
            (self.predicated, other.predicated),
        ):
            mine += theirs
        if self.sites is not None and other.sites is not None:
            self.sites += other.sites
        self.uninitialized |= other.uninitialized


SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4


def sectors(addresses: NDArray[Any]) -> int:
    """Distinct 32-byte sectors of one request. ``addresses``: those of the active lanes, uint64; accesses are aligned to their
    size, so none lies in two sectors."""
    return int(np.unique(addresses // SECTOR_BYTES).size)


def wavefronts(addresses: NDArray[Any], lanes: NDArray[Any], size: int) -> tuple[int, int]:
    """Wavefronts of one request to shared memory, and how many its width alone would need.

    ``addresses`` and ``lanes`` (0 to 31) of the active lanes, ``size`` bytes per lane. In one wavefront each of the 32 banks gives one
    4-byte word, to any number of lanes. Accesses of 8 bytes go by half warps, of 16 bytes by quarter warps, one phase each.
    """
    words = max(1, size // WORD_BYTES)
    phases = lanes // (32 // words)
    total = 0
    found = np.unique(phases)
    for phase in found:
        first = addresses[phases == phase] // WORD_BYTES
        touched = np.unique((first[:, None] + np.arange(words, dtype=first.dtype)).reshape(-1))
        total += int(np.bincount((touched % BANKS).astype(np.int64)).max())
    return total, int(found.size)


def atomic_wavefronts(addresses: NDArray[Any], lanes: NDArray[Any], size: int) -> tuple[int, int]:
    """As ``wavefronts``, for atomics: lanes that hit the same address go one after the other, so the most frequent address adds a
    wavefront for each of its lanes but the first."""
    total, ideal = wavefronts(addresses, lanes, size)
    return total + int(np.unique(addresses, return_counts=True)[1].max()) - 1, ideal
