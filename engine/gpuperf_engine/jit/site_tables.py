"""Read-only tables of compiled code about the sites of a program: the same in all launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..isa.effects import BULK_COPY, LOAD, STORE
from ..isa.types import scalar_type
from ..memory.spaces import ANY, bit_of, reachable
from ..simt.clusters import reaches_peers
from ..simt.counters import Observation
from ..simt.program import Program
from .host_arrays import HostTable
from .runtime.access.text import Form
from .runtime_libraries import generation, runtime_addresses

__all__ = ["SiteTables"]


class SiteTables:
    """The sites that may access other CTAs of the cluster, the spaces of all sites, and the counters that determine their requests."""

    def __init__(self, program: Program) -> None:
        self._program = program
        sites = program.sites
        instructions = [site.instruction for site in sites]
        self.remote = HostTable(np.array([*map(reaches_peers, instructions), False], np.uint8))
        self.reaches = HostTable(np.array([*map(reachable, instructions), ANY], np.uint8))
        self.pieces = HostTable(np.frombuffer(program.pieces, np.uint8))
        self.used = HostTable(np.array(program.used, np.uint32))
        self._near: dict[tuple[bool, int], tuple[int, HostTable]] = {}
        guards = [program.predicated_of.get(instruction) for instruction in instructions]
        unguarded = [site for site, guard in zip(sites, guards) if guard is None]
        #: (sites, blocks) whose requests are the executions of the block
        self._requests = _columns([(site.index, site.block) for site in unguarded])
        #: (sites, blocks) whose lanes are those of the block, without matrix accesses, for which only some lanes provide addresses,
        #: and bulk copies, which count pieces
        self._lanes = _columns(
            [
                (site.index, site.block)
                for site in unguarded
                if not site.instruction.effect.whole_warp and site.instruction.effect is not BULK_COPY
            ]
        )
        #: (sites, guards) whose lanes are those for which the guard holds
        self._guarded = _columns(
            [
                (site.index, guard)
                for site, guard in zip(sites, guards)
                if guard is not None and site.instruction.effect is not BULK_COPY
            ]
        )

    def fill(self, sites: NDArray[np.int64], observed: Observation) -> None:
        """Set the requests and lanes of sites that follow from the counters of blocks and guards."""
        for column, (rows, counters), counts in (
            (0, self._requests, observed.block_warps),
            (1, self._lanes, observed.block_lanes),
            (1, self._guarded, observed.predicated),
        ):
            if rows.size:
                sites[rows, column] = counts[counters]

    def near(self, shared: bool, watch: int) -> HostTable:
        """For each generic load or store the function for shared memory (``Context.NEAR``), if the launch has any."""
        now, kept = generation(), self._near.get((shared, watch))
        if kept is None or kept[0] != now:  # optimised functions may have been compiled meanwhile
            names = self._names(watch) if shared else {}
            addresses = runtime_addresses(tuple(names.values())) if names else {}
            functions = np.zeros(max(1, len(self._program.sites)), np.uint64)
            for index, name in names.items():
                functions[index] = addresses[name]
            kept = self._near[shared, watch] = (now, HostTable(functions))
        return kept[1]

    def _names(self, watch: int) -> dict[int, str]:
        space = "watched" if watch == 1 else "shared"
        names: dict[int, str] = {}
        for site in self._program.sites:
            kind = site.instruction.form.modifier("type")
            near = site.space == "generic" and self.reaches.array[site.index] & bit_of("shared")
            if kind and near and site.instruction.effect in (LOAD, STORE):
                width = scalar_type(str(kind)).bytes
                form = Form(width, max(1, site.bytes // width))
                names[site.index] = f"{space}_{site.instruction.effect.name}_{form.name}"
        return names


def _columns(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.array([left for left, _ in pairs], np.intp), np.array([right for _, right in pairs], np.intp)
