"""Addresses in all threads of a grid, if linear forms do not decide whether they are disjoint: quotients and remainders, reversed
bits, hashes, and values loaded from arrays that the launch only reads.

They depend only on ``%tid``, ``%ctaid``, parameters and memory before the launch. This part of the kernel is computed before it
runs, for some blocks at a time, and the warp that accesses each element is recorded. Conditions of an access are evaluated if they
depend only on the same; otherwise the access is assumed to happen, so that conflicts may be overestimated. The loop around an
access is evaluated if its address depends on no other loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...flow.conditions import Condition, Conditions
from ...flow.loops import Loop
from ...flow.operands import access_bytes
from ...flow.ssa import Merge, Node
from ...interp.operands import address_of, as_type, destinations, integer
from ...interp.values import LaneValue, dtype_of
from ...isa.effects import LOAD
from ...isa.evaluation import extend
from ...isa.types import ScalarType, scalar_type
from ...memory.arena import Allocation, Memory
from ...ptx.syntax import Address, Guard, Instruction, Operand, Register, Symbol, Variable
from ...simt.launch import LaunchPlan
from ...simt.program import Program, Site
from .index_arrays import Elements, elements
from .linear import loops_of
from .thread_values import DEPTH, ThreadValues

__all__ = ["GridValues"]

#: threads that are computed at once, so that their values fit into the L2 cache of the host
_AT_ONCE = 1 << 15
#: limits of the accesses of a launch, and of the elements of an allocation
_ACCESSES, _ELEMENTS = 1 << 24, 1 << 25
#: limit of bytes of an array on which addresses depend
_LOADED = 1 << 25
#: bytes of a line, and the ratio of accessed to necessary lines from which accesses are scattered
_LINE, _SCATTERED = 64, 4
_U64 = scalar_type("u64")

_Lanes = NDArray[np.bool_]


class GridValues(ThreadValues):
    """Values of a kernel in all threads of a launch. ``reads``: the sites that load from memory that the launch does not store to."""

    def __init__(self, program: Program, plan: LaunchPlan, memory: Memory, reads: Iterable[Site]) -> None:
        super().__init__(program, plan)
        self._memory = memory
        self._reads = {site.instruction for site in reads}
        self._blocks = np.zeros(0, np.uint32)
        self._flow = Conditions(program.blocks_of(0))
        self._loops = loops_of(program)
        #: current values of the φs of the evaluated loop
        self._now: dict[Node, LaneValue] = {}
        self._plans: dict[int, _Plan] = {}
        #: address of an allocation → the range of its loaded bytes
        self._loaded: dict[int, tuple[Allocation, int, int]] = {}

    def apart(self, sites: Sequence[Site]) -> tuple[bool, bool]:
        """Whether blocks, and whether the warps of each block, access disjoint bytes at all of these sites; ``False`` if unknown."""
        plan = self.plan
        if not all(map(self._is_followed, sites)):
            return False, False
        size = min(site.bytes for site in sites)
        if sum(site.bytes // size for site in sites) * plan.ctas * plan.threads_per_cta > _ACCESSES:
            return False, False
        owners = _Owners(self._memory, size, plan.warps_per_cta)
        at_once = max(_AT_ONCE // plan.threads_per_cta, 1)
        first = 0
        with np.errstate(all="ignore"):
            while first < plan.ctas and owners.among:
                # a single block first, as it shows whether the addresses can be computed
                count = min(at_once if first else 1, plan.ctas - first)
                warps = self._begin(first, count)
                if not all(self._note(site, warps, owners) for site in sites):
                    return False, False
                first += count
        return owners.among, owners.among and owners.within

    def are_scattered(self, sites: Iterable[Site]) -> bool:
        """Whether warps of the first block access ``_SCATTERED`` times as many lines as necessary at one of these sites."""
        with np.errstate(all="ignore"):
            warps = self._begin(0, 1)
            return any(self._is_scattered(site, warps) for site in sites if self._is_followed(site))

    def _is_scattered(self, site: Site, warps: NDArray[np.uint32]) -> bool:
        where = next(self._executions(site, len(warps)), None)
        starts = None if where is None else self._starts(site.instruction, DEPTH)
        self._now = {}
        if starts is None or where is None:
            return False
        lines = np.broadcast_to(starts, len(warps))[where] // _LINE
        filled = len(lines) * site.bytes / _LINE
        return len(np.unique(np.stack((warps[where], lines)), axis=1).T) >= _SCATTERED * max(
            filled, len(np.unique(warps[where]))
        )

    def _is_followed(self, site: Site) -> bool:
        """Whether the address of a site may be computable."""
        program = self.program
        known = site.index < len(program.sites) and site.instruction.effect.per_lane
        return known and program.blocks[site.block].function == 0

    def loaded(self) -> list[Elements]:
        """The loaded elements."""
        found = []
        for allocation, begin, end in self._loaded.values():
            start = allocation.address + begin
            values = elements(self._memory, start, end - begin, 1, np.dtype(np.uint8))
            assert values is not None
            found.append(Elements(start, values))
        return found

    def _begin(self, first: int, count: int) -> NDArray[np.uint32]:
        """Continue with some blocks. Returns the number of each thread's warp in the launch, from 1 on."""
        threads = self.plan.threads_per_cta
        self._blocks = np.repeat(np.arange(first, first + count, dtype=np.uint32), threads)
        self._indices.clear()
        self._known.clear()
        warp = np.arange(threads, dtype=np.uint32) // 32 + np.uint32(1)
        return self._blocks * np.uint32(self.plan.warps_per_cta) + np.tile(warp, count)

    def _index(self, name: str) -> NDArray[np.uint32] | None:
        word, _, axis = name.partition(".")
        wide, tall, _ = self.plan.grid
        if word == "nctaid" and axis:
            return np.array([self.plan.grid["xyz".index(axis)]], np.uint32)
        if word == "ctaid" and axis:
            if axis == "z":
                return self._blocks // (wide * tall)
            return self._blocks % wide if axis == "x" else self._blocks // wide % tall
        index = super()._index(name)
        return index if index is None or len(index) == 1 else np.tile(index, len(self._blocks) // len(index))

    def _note(self, site: Site, warps: NDArray[np.uint32], owners: _Owners) -> bool:
        """Record the accesses of a site. Returns ``False`` if they are unknown."""
        for where in self._executions(site, len(warps)):
            starts = self._starts(site.instruction, DEPTH)
            if where is None or starts is None:
                return False
            starts = np.broadcast_to(starts, len(warps))
            owners.note(*((warps, starts) if where.all() else (warps[where], starts[where])), site)
            if not owners.among:
                return True
        return True

    def _starts(self, instruction: Instruction, depth: int) -> NDArray[np.int64] | None:
        """The addresses of a load or store."""
        addresses = [item for item in instruction.operands if isinstance(item, Address)]
        if len(addresses) != 1 or addresses[0].base is None:
            return None
        base = self._operand(instruction, addresses[0].base, None, depth)
        if base is None or base.data.dtype.kind not in "iu":
            return None
        return base.data.astype(np.int64) + addresses[0].offset

    # -- control flow ----------------------------------------------------------------------------------------------------

    def _executions(self, site: Site, count: int) -> Iterator[_Lanes | None]:
        """The threads that execute a site: once, or in each iteration of the loop on which its address depends, whose φs have their
        values of that iteration meanwhile. ``None``: unknown."""
        plan = self._plans.get(site.index) or self._plans.setdefault(site.index, self._planned(site))
        everyone = np.ones(count, np.bool_)
        if plan.loop is None:
            yield self._holding(plan.conditions, site.instruction, everyone) if plan.known else None
            return
        lanes: _Lanes | None = self._holding(plan.enters, None, everyone)
        self._now = {phi: value for phi, node in plan.begins.items() if (value := self._of_phi(phi, node))}
        while lanes is not None and lanes.any():
            self._forget(plan.loop)
            yield self._holding(plan.conditions, site.instruction, lanes)
            left = self._holding(plan.stays, None, lanes)
            # without a known condition the loop would not end
            lanes = None if left is lanes else left
            self._now = {phi: value for phi, node in plan.nexts.items() if (value := self._of_phi(phi, node))}
        self._now = {}
        self._forget(plan.loop)
        if lanes is None:
            yield None

    def _planned(self, site: Site) -> _Plan:
        """The conditions of a site's execution."""
        flow, instruction = self._flow, site.instruction
        conditions = flow.of_block(site.block)
        addresses = (item.base for item in instruction.operands if isinstance(item, Address))
        bases = [base for base in addresses if isinstance(base, Register)]
        used = self._closure(self._graph.origins_of(instruction, bases))
        heads = {phi.block for phi in self._heads(used)}
        if not heads:
            return _Plan(True, conditions)
        loop = self._loops[heads.pop()]
        before = flow.predecessors(loop.head)
        if (
            heads
            or not loop.reducible
            or len(loop.latches) > 1
            or len(before) != 2
            or site.block not in loop.body
        ):
            return _Plan(False)
        (latch,) = loop.latches
        stays = flow.of_edge(latch, loop.head)
        branches = (condition.branch for condition in (*conditions, *stays))
        used |= self._closure(node for branch in branches for node in self._graph.uses[branch])
        phis = [phi for phi in self._heads(used) if phi.block == loop.head and len(phi.sources) == 2]
        last = before.index(latch)
        return _Plan(
            True,
            conditions,
            loop,
            flow.of_block(loop.head),
            stays,
            {phi: phi.sources[1 - last] for phi in phis},
            {phi: phi.sources[last] for phi in phis},
        )

    def _closure(self, nodes: Iterable[Node]) -> set[Node]:
        """The transitive sources of some nodes."""
        left = [*nodes]
        seen = {*left}
        while left:
            more = [node for node in self._graph.sources(left.pop()) if node not in seen]
            seen.update(more)
            left += more
        return seen

    def _heads(self, nodes: Iterable[Node]) -> list[Merge]:
        """The φs at loop heads among some nodes."""
        merges = (node for node in nodes if isinstance(node, Merge) and node.kind == "phi")
        return [merge for merge in merges if merge.block in self._loops]

    def _of_phi(self, phi: Merge, node: Node) -> LaneValue | None:
        assert isinstance(phi.name, Register)
        return self._node(node, phi.name, DEPTH)

    def _forget(self, loop: Loop) -> None:
        """Drop cached values of a loop."""
        block_of = self.program.block_of
        for node in [*self._known]:
            if (node.block if isinstance(node, Merge) else block_of[node]) in loop.body:
                del self._known[node]

    def _holding(self, conditions: Iterable[Condition], own: Instruction | None, lanes: _Lanes) -> _Lanes:
        """The lanes in which all known conditions and the guard of an instruction hold."""
        for item in conditions:
            lanes = self._where(item.branch, item.guard, item.taken, lanes)
        return lanes if own is None or own.guard is None else self._where(own, own.guard, True, lanes)

    def _where(self, instruction: Instruction, guard: Guard, holds: bool, lanes: _Lanes) -> _Lanes:
        value = self._operand(instruction, guard.register, None, DEPTH)
        if value is None:
            return lanes
        return lanes & (value.data if holds != guard.negated else ~value.data)

    # -- values ----------------------------------------------------------------------------------------------------------

    def _operand(
        self, reading: Instruction, operand: Operand, type: ScalarType | None, depth: int
    ) -> LaneValue | None:
        target, offset = (operand.target, operand.offset) if isinstance(operand, Symbol) else (operand, 0)
        if isinstance(target, Variable) and target.space == "global" and target in self.program.symbol_of:
            return as_type(integer(address_of(self._to, target, offset, operand), _U64), type)
        return super()._operand(reading, operand, type, depth)

    def _node(self, node: Node, register: Register, depth: int) -> LaneValue | None:
        if node in self._now:
            return self._now[node]
        if node not in self._known and depth and not register.type.is_float:
            self._known[node] = None
            if isinstance(node, Merge):
                self._known[node] = self._merged(node, register, depth - 1)
            elif node in self._graph.kept:
                self._known[node] = self._partly(node, register, depth - 1)
            else:
                self._known[node] = self._result(node, register, depth - 1)
        return self._known.get(node)

    def _merged(self, merge: Merge, register: Register, depth: int) -> LaneValue | None:
        """The value of a φ of two definitions."""
        choice = self._flow.choice(merge.block) if merge.kind == "phi" and len(merge.sources) == 2 else None
        if choice is None:
            return None
        condition, sides = choice
        guard = self._operand(condition.branch, condition.guard.register, None, depth)
        one, other = (self._node(merge.sources[side], register, depth) for side in sides)
        return _selected(guard, condition.guard.negated, one, other)

    def _partly(self, instruction: Instruction, register: Register, depth: int) -> LaneValue | None:
        """The value of a register after a guarded instruction."""
        kept = self._graph.kept[instruction]
        if len(kept) > 1 or instruction.guard is None:
            return None
        guard = self._operand(instruction, instruction.guard.register, None, depth)
        result, old = self._result(instruction, register, depth), self._node(kept[0], register, depth)
        return _selected(guard, instruction.guard.negated, result, old)

    def _result(self, instruction: Instruction, register: Register, depth: int) -> LaneValue | None:
        if instruction.effect is not LOAD:
            return super()._result(instruction, register, depth)
        type_ = instruction.form.type
        if destinations(instruction) != [register] or type_ is None or type_.is_float or type_.bits > 64:
            return None
        data = (
            self._parameter(instruction)
            if instruction.form.space == "param"
            else self._elements(instruction, depth)
        )
        if data is None:
            return None
        value = extend(LaneValue(data.view(dtype_of(type_)), type_), register.type)
        assert isinstance(value, LaneValue)
        return value

    def _parameter(self, instruction: Instruction) -> NDArray[np.generic] | None:
        (address,) = (item for item in instruction.operands if isinstance(item, Address))
        base = address.base
        if not isinstance(base, Variable) or base not in self.program.kernel.params:
            return None
        start = base.offset + address.offset
        return np.frombuffer(
            self.plan.parameters[start : start + access_bytes(instruction)], f"u{access_bytes(instruction)}"
        )

    def _elements(self, instruction: Instruction, depth: int) -> NDArray[np.generic] | None:
        """The elements that threads load from an array; indices are clipped, as loads out of bounds are errors of the launch."""
        if instruction not in self._reads or depth <= 0:
            return None
        starts, size = self._starts(instruction, depth), access_bytes(instruction)
        if starts is None:
            return None
        allocation = self._memory.holder(int(starts[len(starts) // 2]))
        if allocation is None or allocation.pad or allocation.address % size:
            return None
        last = allocation.size // size - 1
        if last < 0:
            return None
        places = np.clip((starts - allocation.address) // size, 0, last)
        _, low, high = self._loaded.get(allocation.address, (allocation, allocation.size, 0))
        low, high = min(low, int(places.min()) * size), max(high, int(places.max() + 1) * size)
        if high - low > _LOADED:
            return None
        self._loaded[allocation.address] = allocation, low, high
        return self._memory.view(allocation)[: (last + 1) * size].view(f"u{size}")[places]


def _selected(
    guard: LaneValue | None, negated: bool, one: LaneValue | None, other: LaneValue | None
) -> LaneValue | None:
    """One of two values by a guard."""
    if guard is None or one is None or other is None:
        return None
    where = ~guard.data if negated else guard.data
    return LaneValue(np.where(where, one.data, as_type(other, one.type).data), one.type)


@dataclass
class _Plan:
    """The execution of a site: whether it is known; its conditions; the evaluated loop, with the conditions of its entry and of
    another iteration, and the initial and next values of its φs."""

    known: bool
    conditions: Sequence[Condition] = ()
    loop: Loop | None = None
    enters: Sequence[Condition] = ()
    stays: Sequence[Condition] = ()
    begins: Mapping[Merge, Node] = field(default_factory=dict)
    nexts: Mapping[Merge, Node] = field(default_factory=dict)


class _Owners:
    """The warp that accessed each element of an allocation, of ``size`` bytes."""

    def __init__(self, memory: Memory, size: int, warps_per_cta: int) -> None:
        self._memory = memory
        self._size = size
        self._warps_per_cta = warps_per_cta
        self._allocation: Allocation | None = None
        self._warps = np.zeros(0, np.uint32)
        self._noted = 0
        #: whether no two blocks, and no two warps, have accessed one element
        self.among = self.within = True

    def note(self, warps: NDArray[np.uint32], starts: NDArray[np.int64], site: Site) -> None:
        """Record an access. ``warps``: the number of each thread's warp, from 1 on."""
        self._noted += len(starts) * (site.bytes // self._size)
        if not len(starts) or not self._is_in_one(starts, site.bytes) or self._noted > _ACCESSES:
            self.among &= not len(starts)
            return
        assert self._allocation is not None
        first = (starts - (self._allocation.address & -32)) >> (self._size.bit_length() - 1)
        for piece in range(site.bytes // self._size):
            places = first + piece
            self._compare(warps, self._warps[places], 0)
            self._warps[places] = warps
            self._compare(warps, self._warps[places], None)

    def _is_in_one(self, starts: NDArray[np.int64], size: int) -> bool:
        """Whether all lie in the allocation that all before do."""
        low, high = int(starts.min()), int(starts.max()) + size
        if self._allocation is None:
            self._allocation = allocation = self._memory.holder(low)
            if allocation is not None and allocation.size // self._size < _ELEMENTS:
                self._warps = np.zeros((allocation.size + 32) // self._size + 1, np.uint32)
        allocation = self._allocation
        return (
            allocation is not None
            and len(self._warps) > 0
            and allocation.address <= low
            and high <= allocation.end
        )

    def _compare(self, warps: NDArray[np.uint32], others: NDArray[np.uint32], nobody: int | None) -> None:
        differ = others != warps
        if nobody is not None:
            differ &= others != nobody
        if differ.any():
            self.within = False
            block, other = ((item[differ] - 1) // self._warps_per_cta for item in (warps, others))
            self.among &= bool((block == other).all())
