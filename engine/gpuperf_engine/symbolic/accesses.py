"""Accesses to memory in warp-class execution: counted once for all warps of a piece.

Counters of an access depend on its addresses modulo a line of 128 bytes, and on the distances between lanes. If a symbol moves an
address by other distances than whole lines, it is split into lines and a remainder, and the piece is cut into the values of the
remainder. That an access stays within its array is a condition like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, cast

import numpy as np

from ..affine.lanes import FULL, Lanes, lanes_of, reduce
from ..affine.linear import Linear
from ..affine.space import MOST_SYMBOLS, NoPhase, Refusal, Reparametrise, Space
from ..affine.values import Affine
from ..interp.memory import MemoryStep
from ..interp.operands import Prepare, address_of, address_operand
from ..isa.effects import ATOMIC, REDUCTION
from ..isa.types import scalar_type
from ..memory.arena import Allocation, Memory
from ..ptx.syntax import Instruction, Register, Variable
from ..simt.counters import LINE_BYTES, SITE_COLUMNS
from .operands import guard_of

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["Accesses", "access_step", "address_reader", "array_of"]

_U64 = scalar_type("u64")
#: spaces in constant banks, whose accesses have a count but no address
_CONSTANT = ("const", "param")


class Accesses:
    """Results of the accesses of a launch other than counts: sites that read partly ``unwritten`` arrays, and ``stored`` arrays."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.unwritten: set[int] = set()
        self.stored: set[Allocation] = set()
        self._whole: dict[Allocation, bool] = {}

    def note(self, kind: str, site: int, allocation: Allocation) -> None:
        """An access of a site to an array."""
        if kind != "load":
            self.stored.add(allocation)
        if kind != "store":
            initialized = self._whole.get(allocation)
            if initialized is None:
                initialized = allocation.initialized or bool(self.memory.shadow_of(allocation).all())
                self._whole[allocation] = initialized
            if not initialized:
                self.unwritten.add(site)


def access_step(
    run: WarpClassRun, to: Prepare, instruction: Instruction, load: Callable[[State], None] | None
) -> Callable[[State], None]:
    """Counts an access, and calls ``load`` to execute it if the slice uses its result."""
    accesses, site, space = run.accesses, run.program.site_of[instruction], run.space
    assert accesses is not None
    if instruction.form.space in ("shared", "local"):
        raise Refusal(f"accesses to {instruction.form.space} memory are counted in every block")
    if instruction.effect in (ATOMIC, REDUCTION):
        raise Refusal("lanes of atomics on one address are counted in every block")
    counted = MemoryStep(to, instruction)
    address = None if counted.space in _CONSTANT else address_reader(to, instruction)
    guard = guard_of(instruction.guard) if instruction.guard is not None else None
    counter = run.predicated(instruction) if load is None else None
    first = run.first_site + site * len(SITE_COLUMNS)
    known: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}

    def row(lanes: int, addresses: tuple[int, ...]) -> list[tuple[int, int]]:
        counters = known.get((lanes, addresses))
        if counters is None:
            counts = [0] * len(SITE_COLUMNS)
            counted.tally(counts, np.array(lanes_of(lanes)), np.array(addresses, np.uint64))
            counters = [(first + column, number) for column, number in enumerate(counts) if number]
            known[lanes, addresses] = counters
        return counters

    def step(state: State) -> None:
        lanes = state.paths.mask if guard is None else guard(state)
        added: list[tuple[int, int]] = []
        if lanes:
            space.active = lanes
            addresses = (0,) * lanes.bit_count()
            if address is not None:
                allocation, addresses = _representatives(
                    space, address(state), lanes, counted.bytes, accesses.memory
                )
                accesses.note(counted.kind, site, allocation)
            added = row(lanes, addresses)
        if load is not None:
            load(state)
        counts = state.counts
        for column, number in added:
            counts[column] = counts.get(column, 0) + number
        if counter is not None:
            counts[counter] = counts.get(counter, 0) + lanes.bit_count()

    return step


def address_reader(to: Prepare, instruction: Instruction) -> Callable[[State], Lanes]:
    """Reads the address of an access, modulo 2^64."""
    operand = address_operand(instruction)
    base, offset = operand.base, operand.offset
    if isinstance(base, Register):
        register, own = base, scalar_type(f"u{base.type.bits}")
        return lambda state: cast(Affine, state.read(register).bits(own).convert(_U64) + offset).lanes
    start = address_of(to, base, offset, operand) if isinstance(base, Variable) else offset
    fixed = Lanes((start,), ((FULL, (), 0),))
    return lambda state: fixed


def _representatives(
    space: Space, value: Lanes, lanes: int, size: int, memory: Memory
) -> tuple[Allocation, tuple[int, ...]]:
    """The array of an access, and representative addresses for all warps of the piece."""
    value = reduce(space.settled(value, lanes), 64)
    linears = {linear for _, linear, _ in value.of(lanes)}
    if len(linears) > 1:
        raise Refusal("the stride of its address differs between lanes")
    (linear,) = linears
    box = space.piece.box
    for symbol, number in linear:
        if number % LINE_BYTES:
            if symbol >= len(box):
                raise NoPhase
            _settle(space, symbol, LINE_BYTES // gcd(number, LINE_BYTES), lanes)
    own = tuple((symbol, number) for symbol, number in linear if symbol < len(box))
    allocation, _ = array_of(space, value, linear, lanes, size, memory)
    every = value.every()
    bases = [every[lane] for lane in lanes_of(lanes)]
    corner = sum(number * box[symbol][0] for symbol, number in own)
    lowest = (min(bases) + corner) // LINE_BYTES * LINE_BYTES
    moved = allocation.address // LINE_BYTES * LINE_BYTES - lowest
    addresses = tuple(base + corner + moved for base in bases)
    if any(address % size for address in addresses):
        raise Refusal("its address is not aligned")
    return allocation, addresses


def array_of(
    space: Space, value: Lanes, linear: Linear, lanes: int, size: int, memory: Memory
) -> tuple[Allocation, Lanes]:
    """The array that all lanes of all warps of the piece access, and their offsets in it. All lanes move by ``linear``. Raises
    ``Refusal`` unless there is one."""
    own = tuple((symbol, number) for symbol, number in linear if symbol < len(space.piece.box))
    low, high = space.piece.range(own) if own else (0, 0)
    first = value.every()[lanes_of(lanes)[0]]
    # the bounds may be outside if a condition cuts off a corner of the piece
    tried = (memory.resolve((first + at) % (1 << 64), size) for at in (low, high, (low + high) // 2))
    allocation = next((item for item in tried if item is not None), None)
    if allocation is None or allocation.kind != "global" or allocation.index < 0 or high - low >= 1 << 62:
        raise Refusal("it is not known to stay in an array")
    return allocation, _stays(space, value, lanes, allocation, size)


def _settle(space: Space, symbol: int, period: int, lanes: int) -> None:
    """Raises ``Split`` or ``Reparametrise`` unless the symbol moves the address by whole lines, or not at all."""
    low, high = space.piece.box[symbol]
    if low == high:
        return
    if period <= high - low and len(space.piece.box) < MOST_SYMBOLS:
        raise Reparametrise(symbol, period)
    space.known(Lanes((0,), ((FULL, ((symbol, 1),), 0),)), lanes)


def _stays(space: Space, value: Lanes, lanes: int, allocation: Allocation, size: int) -> Lanes:
    """The offsets of lanes in the array. Raises ``Refusal`` unless all lanes of all warps access bytes of it."""
    above = reduce(Lanes([base - allocation.address for base in value.base], value.parts), 64)
    room = allocation.size - size
    below = Lanes(
        [room - base for base in above.base],
        tuple((mask, tuple((s, -c) for s, c in linear), shift) for mask, linear, shift in above.parts),
    )
    if space.nonnegative(above, lanes) != lanes or space.nonnegative(below, lanes) != lanes:
        raise Refusal("it accesses memory outside its array")
    return above
