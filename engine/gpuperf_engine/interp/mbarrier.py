"""mbarrier objects in the reference backend: the lanes of an instruction execute one by one, in ascending order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import EngineError
from ..flow.operands import matched
from ..isa.mbarriers import (
    Mbarrier,
    arrive,
    change_transactions,
    ended,
    fresh,
    is_ended,
    is_valid,
    max_arrivals,
    parity,
    pending,
    report,
    revived,
    waits_for,
    was_reported,
)
from ..isa.spaces import RANK_SHIFT
from ..isa.types import scalar_type
from ..memory.arena import SHARED_WINDOW, WINDOW_BYTES
from ..ptx.syntax import Address, Instruction, Operand
from ..simt.clusters import MOST_CTAS
from ..simt.effects import mbarrier_operation, takes_short_addresses
from ..simt.faults import bad_mbarrier, lanes_of
from ..simt.rule_breaches import Breach
from ..simt.schedule import Status
from .memory import MemoryStep, address_reader
from .operands import Guarded, Prepare, Reader, destinations, every_lane, integer, reader
from .regions import Region
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .warp import LanesCta, ReferenceWarp

__all__ = ["MbarrierStep", "Objects", "WaitStep", "in_rank", "ranks_in", "ranks_of"]

_U32, _U64, _PRED = scalar_type("u32"), scalar_type("u64"), scalar_type("pred")
_B8 = scalar_type("b8")
_ONE = integer(1, _U32)
#: the reported value, which is always 0
_NO_VALUE = np.zeros(1, np.uint8)


class _Object(NamedTuple):
    """The location of one lane's object."""

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
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, operand, space, short)
        self.access = MemoryStep(to, instruction, "store", "shared", 8)

    def read(self, warp: ReferenceWarp) -> Lanes:
        """The lanes' addresses."""
        return every_lane(self.addresses(warp))

    def at(self, warp: ReferenceWarp, lane: int, addresses: Lanes, marks: bool = False) -> _Object:
        """One lane's object. Raises ``TrapError`` if it is not in shared memory, ``MemoryFault`` if beyond its bounds."""
        offset = addresses[lane : lane + 1]
        if self.generic:
            offset = offset - np.uint64(SHARED_WINDOW)
            if offset[0] >= np.uint64(WINDOW_BYTES):
                raise self.error(warp, lane, Mbarrier.NOT_SHARED, int(addresses[lane]), 0, 0)
        (part,) = self.access.reach(warp, np.array([lane]), offset, marks)
        own = (
            warp.cta
            if warp.cta.plan.cluster_ctas == 1
            else warp.cta.cluster.members[int(offset[0]) >> RANK_SHIFT]
        )
        return _Object(part.region, int(part.offsets[0]), own)

    def error(
        self, warp: ReferenceWarp, lane: int, problem: int, address: int, word: int, amount: int
    ) -> EngineError:
        return bad_mbarrier(warp.position(), self.instruction, lane, problem, address, word, amount)

    def breach(
        self, warp: ReferenceWarp, lane: int, rule: str, problem: int, address: int, word: int
    ) -> None:
        """Record that a lane violates a rule. Raises ``TrapError`` if that is an error."""
        if warp.cta.plan.strict == "error":
            raise self.error(warp, lane, problem, address, word, 0)
        breach = Breach(rule, self.instruction, warp.cta.index, warp.index, lane, address)
        warp.counters.breaches.append(breach)

    def in_rank(self, addresses: Lanes, rank: int) -> Lanes:
        """The same offsets in the shared memory of the CTA of that rank."""
        base = SHARED_WINDOW * self.generic
        offsets = [int(offset) - base for offset in addresses]
        return np.array(
            [base + (in_rank(offset, rank) if 0 <= offset < WINDOW_BYTES else offset) for offset in offsets],
            np.uint64,
        )

    def report(self, warp: ReferenceWarp, lane: int, addresses: Lanes) -> None:
        """Set the report flag of an object. Raises ``TrapError``."""
        cell, address = self.at(warp, lane, addresses), int(addresses[lane])
        old = cell.word
        word, problem = report(old) if is_valid(old) else (old, Mbarrier.UNINITIALISED)
        if problem:
            raise self.error(warp, lane, problem, address, old, 0)
        cell.put(word)

    def change(
        self,
        warp: ReferenceWarp,
        lane: int,
        addresses: Lanes,
        operation: int,
        count: int,
        transactions: int = 0,
    ) -> int:
        """Perform one operation. Returns the previous object. Raises ``TrapError``."""
        kind = operation & 15
        cell, address = self.at(warp, lane, addresses, kind == Mbarrier.INIT), int(addresses[lane])
        old = cell.word
        completed, problem = False, 0
        if kind == Mbarrier.INIT and (is_valid(old) or is_ended(old)) and _show_phase(cell, old):
            self.breach(warp, lane, "unseen-phase", Mbarrier.UNSEEN, address, old)
        if kind not in (Mbarrier.INIT, Mbarrier.INVAL) and is_ended(old):
            self.breach(warp, lane, "after-inval", Mbarrier.USED, address, old)
            old = revived(old)
        if kind == Mbarrier.INIT:
            word = fresh(count, bool(operation & Mbarrier.REPORTS))
            if not 1 <= count <= max_arrivals(word):
                raise self.error(warp, lane, Mbarrier.COUNT, address, old, count)
        elif not is_valid(old):
            if kind != Mbarrier.INVAL:
                raise self.error(warp, lane, Mbarrier.UNINITIALISED, address, old, 0)
            self.breach(warp, lane, "invalid-again", Mbarrier.INVALID, address, old)
            word = old
        elif kind == Mbarrier.INVAL:
            word = ended(old)
        elif kind == Mbarrier.CHECK:
            word, problem = old, Mbarrier.TOO_MANY if pending(old)[0] == max_arrivals(old) else 0
        elif kind == Mbarrier.LAYOUT:
            word = old
        elif kind in (Mbarrier.EXPECT, Mbarrier.COMPLETE):
            word, completed, problem = change_transactions(
                old, transactions if kind == Mbarrier.EXPECT else -transactions
            )
        else:
            word, completed, problem = arrive(old, count, operation, transactions)
        if problem:
            amount = transactions if problem == Mbarrier.RANGE else count
            raise self.error(warp, lane, problem, address, old, amount)
        cell.put(word)
        cell.cta.barriers.phases += completed
        return old


def _show_phase(cell: _Object, word: int) -> bool:
    """Before an object is initialised again, let warps that wait for a phase of it which is complete go on. Returns whether there were
    any."""
    gone_on = [
        warp for warp, awaited in cell.cta.awaited.items() if awaited == (cell.offset, 1 - parity(word))
    ]
    for warp in gone_on:
        warp.seen = True
        del cell.cta.awaited[warp]
    return bool(gone_on)


def _objects(to: Prepare, instruction: Instruction) -> Objects:
    address = next(item for item in instruction.operands if isinstance(item, Address))
    return Objects(to, instruction, address, instruction.form.space or "generic")


def ranks_of(to: Prepare, instruction: Instruction) -> Reader | None:
    """The reader of the CTA mask of a multicast, or ``None``."""
    for slot, operand in matched(instruction):
        if slot.name == "mask" and slot.type is not None:
            return reader(to, operand, scalar_type(f"u{slot.type.bits}"))
    return None


def in_rank(offset: int, rank: int) -> int:
    """An address of the shared window, moved to the CTA of that rank; other addresses unchanged, as they are errors later."""
    return (
        offset if offset >> RANK_SHIFT >= MOST_CTAS else offset & (1 << RANK_SHIFT) - 1 | rank << RANK_SHIFT
    )


def ranks_in(mask: int) -> list[int]:
    """The CTAs whose bit is set."""
    return [rank for rank in range(32) if mask >> rank & 1]


class MbarrierStep:
    """``mbarrier.init`` … ``arrive_drop`` and ``cp.async.mbarrier.arrive``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        self.operation = mbarrier_operation(instruction)
        self.objects = _objects(to, instruction)
        self.objects.access.arrives = self.operation & 15 == Mbarrier.ARRIVE
        moves = self.operation & 15 in (Mbarrier.EXPECT, Mbarrier.COMPLETE)
        self.count: Reader = lambda warp: _ONE
        self.transactions: Reader | None = None
        if "tx" in operands or moves:
            self.transactions = reader(to, operands["count" if moves else "tx"], _U32)
        elif "count" in operands:
            self.count = reader(to, operands["count"], _U32)
        self.ranks = ranks_of(to, instruction)
        self.targets = destinations(instruction)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        where, active = self.guarded(warp)
        addresses = self.objects.read(warp)
        counts = every_lane(self.count(warp))
        transactions = every_lane(self.transactions(warp)) if self.transactions is not None else None
        masks = None if self.ranks is None else every_lane(self.ranks(warp))
        states = np.zeros(32, np.uint64)
        for lane in np.flatnonzero(active).tolist():
            more = 0 if transactions is None else int(transactions[lane])
            by_rank = [addresses]
            if masks is not None:
                by_rank = [self.objects.in_rank(addresses, rank) for rank in ranks_in(int(masks[lane]))]
            for target_addresses in by_rank:
                states[lane] = self.objects.change(
                    warp, lane, target_addresses, self.operation, int(counts[lane]), more
                )
        if self.targets and self.targets[0] is not None:
            result = LaneValue(states, _U64)
            if self.operation & 15 == Mbarrier.LAYOUT:
                expected_tag = Mbarrier.REPORTING if self.operation & Mbarrier.REPORTS else Mbarrier.VALID
                result = LaneValue(states >> np.uint64(Mbarrier.TAG) == expected_tag, _PRED)
            warp.write(self.targets[0], result, where)


class WaitStep:
    """``mbarrier.test_wait`` and ``try_wait``."""

    #: status of a warp that waits here
    status = Status.SUSPENDED

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        self.instruction = instruction
        self.objects = _objects(to, instruction)
        self.parity = "parity" in operands
        self.conditional = instruction.form.modifier("phase_type") == "phase_type::conditional"
        self.state = (
            reader(to, operands["parity"], _U32) if self.parity else reader(to, operands["state"], _U64)
        )
        self.targets = destinations(instruction)
        self.guarded = Guarded(to, instruction)

    def count(self, warp: ReferenceWarp) -> None:
        """Count an execution."""
        self.guarded(warp)

    def __call__(self, warp: ReferenceWarp) -> bool:
        """Write the results of the lanes; returns ``False`` instead if a phase is incomplete and the warp may wait, or if other warps
        run first."""
        guard, active = self.guarded(warp, counts=False)
        lanes = np.flatnonzero(active).tolist()
        addresses = self.objects.read(warp)
        complete, reported = np.zeros(32, np.bool_), np.zeros(32, np.bool_)
        warp.cta.awaited.pop(warp, None)
        if warp.seen:
            complete[lanes] = True
        else:
            awaited = set()
            for lane in lanes:
                complete[lane], reported[lane], phase = self._look(warp, lane, addresses)
                awaited.add(phase)
            if not self._passes(warp, complete[lanes]):
                phase = awaited.pop() if len(awaited) == 1 else None
                if phase is not None:
                    warp.cta.awaited[warp] = phase
                return False
        warp.expired = warp.seen = False
        answers = (LaneValue(complete, _PRED), LaneValue(reported, _PRED), LaneValue(_NO_VALUE, _B8))
        for target, answer in zip(self.targets, answers):
            if target is not None:
                warp.write(target, answer, guard)
        return True

    def _passes(self, warp: ReferenceWarp, complete: Lanes) -> bool:
        """Whether a warp goes on, by whether the phases of its lanes are complete."""
        if not complete.all():
            if warp.expired and warp.mask != warp.live:
                warp.quantum = 0
            return warp.expired
        if complete.size and warp.began != warp.cta.barriers.phases:
            warp.began = warp.cta.barriers.phases
            warp.lets_others = True
            return False
        return True

    def _look(
        self, warp: ReferenceWarp, lane: int, addresses: Lanes
    ) -> tuple[bool, bool, tuple[int, int] | None]:
        """Whether the phase is complete, whether it had a report, and which it is, as in ``LanesCta.awaited``."""
        cell = self.objects.at(warp, lane, addresses)
        word = cell.word
        if is_ended(word):
            self.objects.breach(warp, lane, "after-inval", Mbarrier.USED, int(addresses[lane]), word)
            word = revived(word)
        state = int(every_lane(self.state(warp))[lane])
        for problem, bad in (
            (Mbarrier.UNINITIALISED, not is_valid(word)),
            (Mbarrier.STATE, not self.parity and not is_valid(state)),
        ):
            if bad:
                raise self.objects.error(warp, lane, problem, int(addresses[lane]), word, 0)
        complete = not waits_for(word, state, self.parity, self.conditional)
        awaited = None
        if word >> Mbarrier.TAG == Mbarrier.VALID:
            awaited = cell.offset, parity(state if not self.parity else state << Mbarrier.PARITY)
        return complete, complete and was_reported(word), awaited

    def reason(self, warp: ReferenceWarp, shared: npt.NDArray[np.uint8]) -> str:
        """What the running lanes wait for, for messages; ``shared`` is the memory of their CTA."""
        addresses, states = self.objects.read(warp), every_lane(self.state(warp))
        for lane in lanes_of(warp.mask):
            address = int(addresses[lane]) - SHARED_WINDOW * self.objects.generic & (1 << RANK_SHIFT) - 1
            word = int.from_bytes(shared[address : address + 8].tobytes(), "little")
            if is_valid(word) and waits_for(word, int(states[lane]), self.parity, self.conditional):
                arrivals, transactions = pending(word)
                return (
                    f"at {self.instruction.opcode}, for {arrivals:,} arrivals and {transactions:,} bytes of the phase of "
                    f"parity {parity(word)} of the mbarrier at {address:#x},"
                )
        return f"at {self.instruction.opcode}"
