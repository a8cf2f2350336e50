"""``mbarrier``: phases, pending arrivals and bytes still to come. A thread that tests for a phase that is not complete waits until
it is.

The objects are kept beside shared memory, under the addresses that hold them; what a program sees there and in the state of a
phase is opaque (manual, "mbarrier").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clusters import OFFSET, RANK
from .integers import mask
from .memory import OracleError
from .operands import Builder, Put, Step
from .registry import semantics
from .syntax import Address

if TYPE_CHECKING:
    from .threads import Cta, Thread

#: of a state: the bits of the pending count below the number of the phase
PENDING = 20


class PhaseWait:
    """A thread that waits for a phase."""


@dataclass(eq=False)
class Mbarrier:
    """``expected`` arrivals make a phase, ``pending`` of them and ``bytes`` are missing in this one, number ``phase``."""

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0
    waiting: list[tuple[Thread, int, Put]] = field(default_factory=list)

    @property
    def state(self) -> int:
        return self.phase << PENDING | self.pending

    def arrive(self, count: int, drop: bool = False) -> int:
        """Returns the state before."""
        before = self.state
        if count > self.pending:
            raise OracleError(f"{count} arrivals at an mbarrier that waits for {self.pending}")
        self.pending -= count
        self.expected -= count * drop
        self.settle()
        return before

    def complete(self, count: int) -> None:
        """Bytes have come."""
        self.bytes -= count
        self.settle()

    def settle(self) -> None:
        if self.pending or self.bytes:
            return
        self.phase += 1
        self.pending = self.expected
        for thread, phase, put in list(self.waiting):
            if phase < self.phase:
                put(thread, 1)
                thread.waiting = None
        self.waiting = [entry for entry in self.waiting if entry[1] >= self.phase]


def owner(t: Thread, address: int) -> tuple[Cta, int]:
    """The CTA in whose shared memory a shared or generic address lies, and the place there."""
    space, offset = t.resolve("generic", address)
    offset &= mask(32)
    if space not in ("shared", "global") or offset >> RANK >= len(t.cta.cluster.ctas):
        raise OracleError(f"0x{address:x} is not in the shared memory of the cluster")
    return t.cta.cluster.ctas[offset >> RANK], offset & OFFSET


def mbarrier_at(t: Thread, address: int) -> Mbarrier:
    cta, offset = owner(t, address)
    if offset not in cta.mbarriers:
        raise OracleError(f"there is no mbarrier at 0x{address:x}")
    return cta.mbarriers[offset]


@semantics("mbarrier")
def mbarrier(b: Builder) -> Step:
    kind = b.mods[0]
    if kind == "pending_count":
        state, put = b.get(1, 64), b.put(0, 32)
        return lambda t: put(t, state(t) & mask(PENDING))
    if kind in ("arrive", "arrive_drop"):
        return arrive(b)
    address, count = b.address(0), b.get(1, 32) if len(b.operands) > 1 else (lambda t: 0)

    def step(t: Thread) -> None:
        cta, offset = owner(t, address(t))
        if kind == "init":
            cta.mbarriers[offset] = Mbarrier(count(t), count(t))
        elif kind == "inval":
            cta.mbarriers.pop(offset, None)  # nothing happens if there is none
        elif kind == "expect_tx":
            mbarrier_at(t, address(t)).bytes += count(t)
        elif kind == "complete_tx":
            mbarrier_at(t, address(t)).complete(count(t))
        else:
            raise b.fail("the oracle does not know this instruction")

    return step


def arrive(b: Builder) -> Step:
    """``{state,} [address]{, count}``, or with ``.expect_tx`` the bytes to expect."""
    at = 0 if isinstance(b.operands[0], Address) else 1
    put: Put = b.put(0, 64) if at else lambda t, value: None
    address = b.address(at)
    number = b.get(at + 1, 32) if len(b.operands) > at + 1 else (lambda t: 1)
    expects, drop, partly = b.has("expect_tx"), b.mods[0] == "arrive_drop", b.has("noComplete")

    def step(t: Thread) -> None:
        barrier = mbarrier_at(t, address(t))
        if partly and number(t) >= barrier.pending:
            raise OracleError(f"line {b.statement.line}: the arrival completes the phase")
        if expects:
            barrier.bytes += number(t)
        put(t, barrier.arrive(1 if expects else number(t), drop))

    return step


def wait(b: Builder) -> Callable[[Thread], None]:
    """``test_wait`` and ``try_wait``: a thread has its answer when the phase is complete."""
    put, address = b.put(0, 1), b.address(1)
    parity = b.has("parity")
    operand = b.get(2, 32 if parity else 64)

    def step(t: Thread) -> None:
        barrier = mbarrier_at(t, address(t))
        phase = operand(t) >> PENDING
        if parity:  # the phase under way, or the one before it
            phase = barrier.phase - (barrier.phase & 1 ^ operand(t) & 1)
        if phase < barrier.phase:
            put(t, 1)
            return
        t.waiting = PhaseWait()
        barrier.waiting.append((t, phase, put))

    return step
