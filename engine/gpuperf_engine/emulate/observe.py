"""What a run observed: the raw counters of one launch, and how memory behaviour is counted from lane addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .program import Program

__all__ = ["SITE_COLUMNS", "Observation"]

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
