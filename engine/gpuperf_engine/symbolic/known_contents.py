"""Objects in device memory with known contents, and those whose contents are unknown because only a slice of a launch ran.

A launch under ``control`` or ``addresses`` does not compute all values that it stores. The contents of objects that a store outside
its slice may write are unknown until the host overwrites them completely; reading them is an error.
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
    """The pointers among the arguments of a launch: numbers of objects for the analyses, and the allocation of each number."""

    aliases: Aliases
    allocations: tuple[Allocation, ...]


def pointers(program: Program, parameters: bytes, symbols: Sequence[int], memory: Memory) -> Pointers:
    """The objects to which the 8-byte words of the parameter buffer and the module variables (``symbols``: addresses of
    ``program.symbols``) point. Numbers are in order of first appearance, so launches with the same pattern have the same numbers."""
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
    """Resolves ``auto`` to the smallest demand that provides what a device observes. Raises ``UnknownName`` for an unknown demand, and
    ``NotObserved`` for one that does not provide it."""
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
    """The known contents of one device. ``unknown`` maps an allocation with unknown contents to the launch that stored to it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.unknown: dict[Allocation, str] = {}

    def slice_for(
        self, program: Program, demand: str, parameters: bytes, symbols: Iterable[int], launch: str | None
    ) -> Slice | None:
        """The slice of a program to run in a launch with these parameters and addresses of ``program.symbols``, ``None`` for all of
        it. Records objects whose contents become unknown under the launch's name, unless that is ``None``, for launches whose
        memory is discarded. Raises ``NotObserved`` if the launch may read unknown contents."""
        if demand == "values" and not self.unknown:
            return None
        objects = pointers(program, parameters, [int(address) for address in symbols], self._memory)
        wanted = slice_of(program, demand, objects.aliases)
        self._check(program.kernel.name, wanted, objects)
        if demand == "values":
            return None
        if launch is not None:
            self._invalidate(launch, wanted, objects)
        return wanted

    def require(self, allocation: Allocation, operation: str) -> None:
        """Raises ``NotObserved`` if the contents of an object are unknown; ``operation`` is the name of the operation that reads
        it."""
        launch = self.unknown.get(allocation)
        if launch is not None:
            raise NotObserved(
                f"the contents of {allocation.name or 'an array'!r} are unknown: {launch} does not compute all values that it stores",
                details=[f"{operation} would read them"],
                hint='give that launch demand="values", or overwrite the whole array first',
            )

    def overwritten(self, allocation: Allocation, size: int) -> None:
        """Record that the host has written so many bytes of an object."""
        if size >= allocation.size:
            self.unknown.pop(allocation, None)

    def _check(self, kernel: str, wanted: Slice, objects: Pointers) -> None:
        graph = wanted.dependence
        for instruction in wanted.complete:
            for allocation in self._touched(graph.reads_memory(instruction), objects):
                self.require(allocation, f"{instruction.opcode} of {kernel!r} at {instruction.span}")

    def _invalidate(self, launch: str, wanted: Slice, objects: Pointers) -> None:
        graph = wanted.dependence
        for instruction in graph.writing:
            if instruction not in wanted.complete:
                for allocation in self._touched(graph.writes_memory(instruction), objects):
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
