"""mbarrier objects in the reference backend: lanes of one instruction follow each other in ascending order.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import EngineError
from ..flow.operands import matched
from ..isa.mbarriers import (
    COUNT_MAX,
    Mbarrier,
    arrive,
    change_transactions,
    fresh,
    is_valid,
    parity,
    pending,
    waits_for,
)
from ..isa.spaces import RANK_SHIFT
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Instruction, Operand
from .diagnose import bad_mbarrier, lanes_of
from .lanes_memory import MemoryStep, address_reader
from .lanes_operands import Prepare, Reader, destinations, every_lane, guard_of, integer, reader
from .lanes_regions import Region
from .lanes_values import LaneValue
from .memory import SHARED_WINDOW, WINDOW_BYTES

if TYPE_CHECKING:
    from .lanes_warp import LanesCta, LanesWarp

__all__ = ["MbarrierStep", "Objects", "WaitStep", "operation"]

Lanes = npt.NDArray[Any]
_U32, _U64, _PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")
_ONE = integer(1, _U32)


def operation(instruction: Instruction) -> int:
    """What an instruction does to its object, in the numbers of ``Mbarrier``."""
    words = instruction.opcode.split(".")
    if words[0] == "cp":
        return Mbarrier.ARRIVE if "noinc" in words else Mbarrier.CHECK
    kinds = {
        "init": Mbarrier.INIT,
        "inval": Mbarrier.INVAL,
        "expect_tx": Mbarrier.EXPECT,
        "complete_tx": Mbarrier.COMPLETE,
    }
    found = kinds.get(words[1], Mbarrier.ARRIVE)
    if found == Mbarrier.ARRIVE:
        found |= Mbarrier.DROP * (words[1] == "arrive_drop") | Mbarrier.STAYS * ("noComplete" in words)
        found |= Mbarrier.EXPECTS * ("expect_tx" in words)
    return found


class _Object(NamedTuple):
    """Where one lane's object is."""

    region: Region
    offset: int
    cta: LanesCta

    @property
    def word(self) -> int:
        return int.from_bytes(self.region.bytes[self.offset : self.offset + 8].tobytes(), "little")

    def put(self, word: int) -> None:
        self.region.bytes[self.offset : self.offset + 8] = np.frombuffer(word.to_bytes(8, "little"), np.uint8)


class Objects:
    """The mbarrier objects at an address operand."""

    def __init__(self, to: Prepare, instruction: Instruction, operand: Address, space: str) -> None:
        self.instruction = instruction
        self.generic = space == "generic"
        self.addresses = address_reader(to, operand, space)
        self.access = MemoryStep(to, instruction, "store", "shared", 8)

    def read(self, warp: LanesWarp) -> Lanes:
        """The lanes' addresses."""
        return every_lane(self.addresses(warp))

    def at(self, warp: LanesWarp, lane: int, addresses: Lanes, marks: bool = False) -> _Object:
        """One lane's object. Raises ``TrapError`` if it is not in shared memory, ``MemoryFault`` if beyond its bounds."""
        place = addresses[lane : lane + 1]
        if self.generic:
            place = place - np.uint64(SHARED_WINDOW)
            if place[0] >= np.uint64(WINDOW_BYTES):
                raise self.error(warp, lane, Mbarrier.NOT_SHARED, int(addresses[lane]), 0, 0)
        (part,) = self.access.reach(warp, np.array([lane]), place, marks)
        own = (
            warp.cta
            if warp.cta.plan.cluster_ctas == 1
            else warp.cta.cluster.members[int(place[0]) >> RANK_SHIFT]
        )
        return _Object(part.region, int(part.offsets[0]), own)

    def error(
        self, warp: LanesWarp, lane: int, problem: int, address: int, word: int, amount: int
    ) -> EngineError:
        return bad_mbarrier(warp.place(), self.instruction, lane, problem, address, word, amount)

    def change(
        self, warp: LanesWarp, lane: int, addresses: Lanes, how: int, count: int, transactions: int = 0
    ) -> int:
        """One operation; gives the object as it was before. Raises ``TrapError``."""
        kind = how & 15
        place, address = self.at(warp, lane, addresses, kind == Mbarrier.INIT), int(addresses[lane])
        old = place.word
        completed, problem = False, 0
        if kind == Mbarrier.INIT:
            if not 1 <= count <= COUNT_MAX:
                raise self.error(warp, lane, Mbarrier.COUNT, address, old, count)
            made = fresh(count)
        elif not is_valid(old):
            raise self.error(warp, lane, Mbarrier.UNINITIALISED, address, old, 0)
        elif kind == Mbarrier.INVAL:
            made = 0
        elif kind == Mbarrier.CHECK:
            made, problem = old, Mbarrier.TOO_MANY if pending(old)[0] == COUNT_MAX else 0
        elif kind in (Mbarrier.EXPECT, Mbarrier.COMPLETE):
            made, completed, problem = change_transactions(
                old, transactions if kind == Mbarrier.EXPECT else -transactions
            )
        else:
            made, completed, problem = arrive(old, count, how, transactions)
        if problem:
            amount = transactions if problem == Mbarrier.RANGE else count
            raise self.error(warp, lane, problem, address, old, amount)
        place.put(made)
        place.cta.barriers.phases += completed
        return old


def _objects(to: Prepare, instruction: Instruction) -> Objects:
    address = next(item for item in instruction.operands if isinstance(item, Address))
    return Objects(to, instruction, address, instruction.spelling.space or "generic")


class MbarrierStep:
    """``mbarrier.init`` … ``arrive_drop`` and ``cp.async.mbarrier.arrive``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
        self.how = operation(instruction)
        self.objects = _objects(to, instruction)
        moves = self.how & 15 in (Mbarrier.EXPECT, Mbarrier.COMPLETE)
        self.count: Reader = lambda warp: _ONE
        self.transactions: Reader | None = None
        if "tx" in operands or moves:
            self.transactions = reader(to, operands["count" if moves else "tx"], _U32)
        elif "count" in operands:
            self.count = reader(to, operands["count"], _U32)
        self.targets = destinations(instruction)
        self.guard = guard_of(instruction.guard) if instruction.guard is not None else None
        self.predicated = to.program.predicated_of.get(instruction)

    def __call__(self, warp: LanesWarp) -> None:
        active = _guarded(self, warp)
        addresses = self.objects.read(warp)
        counts = every_lane(self.count(warp))
        transactions = every_lane(self.transactions(warp)) if self.transactions is not None else None
        states = np.zeros(32, np.uint64)
        for lane in np.flatnonzero(active).tolist():
            more = 0 if transactions is None else int(transactions[lane])
            states[lane] = self.objects.change(warp, lane, addresses, self.how, int(counts[lane]), more)
        if self.targets and self.targets[0] is not None:
            warp.write(
                self.targets[0], LaneValue(states, _U64), None if self.guard is None else self.guard(warp)
            )


def _guarded(step: MbarrierStep | WaitStep, warp: LanesWarp, counts: bool = True) -> Lanes:
    """The lanes that take part."""
    if step.guard is None:
        return warp.active
    active = warp.active & step.guard(warp)
    if counts and step.predicated is not None:
        warp.count_guard(step.predicated, active)
    return active


class WaitStep:
    """``mbarrier.test_wait`` and ``try_wait``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
        self.instruction = instruction
        self.objects = _objects(to, instruction)
        self.parity = "parity" in operands
        self.state = (
            reader(to, operands["parity"], _U32) if self.parity else reader(to, operands["state"], _U64)
        )
        self.targets = destinations(instruction)
        self.guard = guard_of(instruction.guard) if instruction.guard is not None else None
        self.predicated = to.program.predicated_of.get(instruction)

    def count(self, warp: LanesWarp) -> None:
        """The warp comes here."""
        _guarded(self, warp)

    def __call__(self, warp: LanesWarp) -> bool:
        """Give the lanes their answers, unless some phase is incomplete and the warp may wait: then gives False."""
        lanes = np.flatnonzero(_guarded(self, warp, counts=False)).tolist()
        addresses = self.objects.read(warp)
        complete = np.zeros(32, np.bool_)
        for lane in lanes:
            complete[lane] = not self._waits(warp, lane, addresses)
        if not complete[lanes].all():
            if not warp.expired:
                return False
            if warp.mask != warp.live:
                warp.fuel = 0
        warp.expired = False
        if self.targets[0] is not None:
            guard = None if self.guard is None else self.guard(warp)
            warp.write(self.targets[0], LaneValue(complete, _PRED), guard)
        return True

    def _waits(self, warp: LanesWarp, lane: int, addresses: Lanes) -> bool:
        word = self.objects.at(warp, lane, addresses).word
        state = int(every_lane(self.state(warp))[lane])
        for problem, bad in (
            (Mbarrier.UNINITIALISED, not is_valid(word)),
            (Mbarrier.STATE, not self.parity and not is_valid(state)),
        ):
            if bad:
                raise self.objects.error(warp, lane, problem, int(addresses[lane]), word, 0)
        return waits_for(word, state, self.parity)

    def reason(self, warp: LanesWarp, shared: npt.NDArray[np.uint8]) -> str:
        """What the running lanes wait for, in words; ``shared`` is the memory of their CTA."""
        addresses, states = self.objects.read(warp), every_lane(self.state(warp))
        for lane in lanes_of(warp.mask):
            address = int(addresses[lane]) - SHARED_WINDOW * self.objects.generic & (1 << RANK_SHIFT) - 1
            word = int.from_bytes(shared[address : address + 8].tobytes(), "little")
            if is_valid(word) and waits_for(word, int(states[lane]), self.parity):
                arrivals, transactions = pending(word)
                return (
                    f"at {self.instruction.opcode}, for {arrivals:,} arrivals and {transactions:,} bytes of the phase of "
                    f"parity {parity(word)} of the mbarrier at {address:#x},"
                )
        return f"at {self.instruction.opcode}"
