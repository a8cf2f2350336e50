"""Read-only tables of compiled code about the sites of a program: the same in all launches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..isa.effects import BULK_COPY, LOAD, STORE
from ..isa.types import scalar_type
from ..memory.spaces import ANY, bit_of, reachable
from ..simt.clusters import reaches_peers
from ..simt.counters import Observation
from ..simt.program import Program
from .host_arrays import HostTable
from .ir.access_records import SITE_COUNTERS
from .runtime.access.text import Form
from .runtime_libraries import generation, runtime_addresses

__all__ = ["Layout", "SiteTables"]

#: counters begin at multiples of so many words
_WORDS = 8


class Layout:
    """Where the counters of a program are in an array of words: four rows of those of blocks, then those of predicated instructions
    and of sites."""

    def __init__(self, program: Program) -> None:
        self._program = program
        sizes = (
            4 * len(program.blocks), max(1, len(program.predicated)), SITE_COUNTERS * max(1, len(program.sites))
        )  # fmt: skip
        self.predicated, self.sites, self.words = accumulate(-(-size // _WORDS) * _WORDS for size in sizes)

    def observation(self, counters: NDArray[np.int64], memory: bool) -> Observation:
        """An observation with these counters; with those of sites only if ``memory`` is observed."""
        blocks, predicated = len(self._program.blocks), len(self._program.predicated)
        sites = None
        if memory:
            sites = counters[self.sites :][: SITE_COUNTERS * len(self._program.sites)].reshape(
                -1, SITE_COUNTERS
            )
        return Observation(
            counters[:blocks],
            counters[blocks : 2 * blocks],
            counters[2 * blocks : 3 * blocks],
            counters[3 * blocks : 4 * blocks],
            counters[self.predicated : self.predicated + predicated],
            sites,
        )


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
        self.layout = layout = Layout(program)
        #: counters of sites that follow from others: those of requests from the executions of the block, those of lanes from the lanes
        #: of the block or those for which the guard holds
        self._derived, self._from = _columns([*_derived(program, layout)])

    def fill(self, counters: NDArray[np.int64]) -> None:
        """Set the requests and lanes of sites that follow from the counters of blocks and guards."""
        if self._derived.size:
            counters[self._derived] = counters[self._from]

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


def _derived(program: Program, layout: Layout) -> Iterator[tuple[int, int]]:
    """Pairs of a counter of a site and that which it equals."""
    for site in program.sites:
        requests, lanes = (layout.sites + SITE_COUNTERS * site.index + column for column in (0, 1))
        guard = program.predicated_of.get(site.instruction)
        if guard is None:
            yield requests, site.block
        if site.instruction.effect is BULK_COPY:
            continue  # counts pieces
        if guard is not None:
            yield lanes, layout.predicated + guard
        elif not site.instruction.effect.whole_warp:  # of matrix accesses only some lanes provide addresses
            yield lanes, len(program.blocks) + site.block


def _columns(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.array([left for left, _ in pairs], np.intp), np.array([right for _, right in pairs], np.intp)
