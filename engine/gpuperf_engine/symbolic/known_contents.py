"""Which objects in device memory hold what the program computed, and which are unknown because a launch ran only in part.

A launch under ``control`` or ``addresses`` does not compute all values that it stores. Objects that a store outside its slice may
reach are unknown from then on, until the host overwrites them completely; reading them is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import NotObserved, UnknownName, nearest
from ..flow.dependence import Access, Aliases, objects
from ..flow.slicing import DEMANDS, Slice
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Variable
from ..simt.program import Program
from .slice_program import slice_of

__all__ = ["KnownContents", "Pointers", "pointers", "resolve_demand"]


@dataclass(frozen=True)
class Pointers:
    """What the arguments of a launch say about memory: objects by number for the analyses, and the allocation of each number."""

    aliases: Aliases
    allocations: tuple[Allocation, ...]


def pointers(program: Program, parameters: bytes, symbols: Sequence[int], memory: Memory) -> Pointers:
    """Where the 8-byte words of the parameter buffer and the module variables (``symbols``: addresses of
    ``program.symbols``) point. Numbers are in order of first appearance, so launches with the same pattern have the same."""
    numbers: dict[Allocation, int] = {}
    aliases: dict[int | Variable, int] = {}

    def note(key: int | Variable, address: int) -> None:
        allocation = memory.holder(address) or memory.images.allocation_of(address)
        if allocation is not None:
            aliases[key] = numbers.setdefault(allocation, len(numbers))

    for offset in range(0, len(parameters) - 7, 8):
        note(offset, int.from_bytes(parameters[offset : offset + 8], "little"))
    for target, address in zip(program.symbols, symbols):
        if isinstance(target, Variable):
            note(target, int(address))
    return Pointers(aliases, tuple(numbers))


def resolve_demand(demand: str, observe: frozenset[str]) -> str:
    """The demand meant: ``auto`` is the smallest that answers what a device observes. Raises ``UnknownName`` for none, and
    ``NotObserved`` for one that cannot answer it."""
    if demand == "auto":
        if observe & {"accesses", "values"}:
            return "values"
        return "addresses" if observe & {"footprint", "memory"} else "control"
    if demand not in DEMANDS:
        raise UnknownName(f"no demand {demand!r}", hint=nearest(demand, (*DEMANDS, "auto"), noun="demand"))
    if demand != "values" and observe & {"accesses", "values"}:
        raise NotObserved(
            f"demand={demand!r} computes no values, which this device observes",
            hint='use Device(observe={"memory"}), or demand="values"',
        )
    if demand == "control" and "footprint" in observe:
        raise NotObserved(
            f"demand={demand!r} skips accesses, but this device observes their footprint",
            hint='use Device(observe=set()), or demand="addresses" or "values"',
        )
    return demand


class KnownContents:
    """Of one device. ``unknown`` maps an allocation to the launch that left it so."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.unknown: dict[Allocation, str] = {}

    def slice_for(
        self, program: Program, demand: str, parameters: bytes, symbols: Iterable[int], launch: str | None
    ) -> Slice | None:
        """What runs of a program in a launch with these parameters and addresses of ``program.symbols``, ``None`` for all of it.
        What it leaves unknown is noted under the launch's name, unless that is ``None``: then memory is not kept. Raises
        ``NotObserved`` if it may read what is unknown."""
        if demand == "values" and not self.unknown:
            return None
        where = pointers(program, parameters, [int(address) for address in symbols], self._memory)
        wanted = slice_of(program, demand, where.aliases)
        self._check(program.kernel.name, wanted, where)
        if demand == "values":
            return None
        if launch is not None:
            self._invalidate(launch, wanted, where)
        return wanted

    def require(self, allocation: Allocation, what: str) -> None:
        """Raises ``NotObserved`` if the contents of an object are not known; ``what`` names the operation that reads it."""
        launch = self.unknown.get(allocation)
        if launch is not None:
            raise NotObserved(
                f"the contents of {allocation.name or 'an array'!r} are unknown: {launch} does not compute all values that it stores",
                details=[f"{what} would read them"],
                hint='give that launch demand="values", or overwrite the whole array first',
            )

    def overwritten(self, allocation: Allocation, size: int) -> None:
        """The host has written so many bytes of an object."""
        if size >= allocation.size:
            self.unknown.pop(allocation, None)

    def _check(self, kernel: str, wanted: Slice, where: Pointers) -> None:
        graph = wanted.dependence
        for instruction in wanted.complete:
            for allocation in self._touched(graph.reads_memory(instruction), where):
                self.require(allocation, f"{instruction.opcode} of {kernel!r} at {instruction.span}")

    def _invalidate(self, launch: str, wanted: Slice, where: Pointers) -> None:
        graph = wanted.dependence
        for instruction in graph.writing:
            if instruction not in wanted.complete:
                for allocation in self._touched(graph.writes_memory(instruction), where):
                    if allocation.kind == "global":
                        self.unknown[allocation] = launch

    def _touched(self, accesses: Iterable[Access], where: Pointers) -> Iterable[Allocation]:
        for access in accesses:
            if "global" not in access.spaces:
                continue
            touched = objects(access, where.aliases)
            if touched is None:
                yield from self._memory.allocations
            else:
                yield from (
                    where.allocations[number]
                    for space, number in touched
                    if space == "global" and isinstance(number, int)
                )
