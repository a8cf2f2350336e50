"""Clusters: CTAs that run together, see each other's shared memory and wait for each other.

The shared memory of the CTA of rank r begins at r · 2^24 in the shared space, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .integers import mask
from .memory import WINDOWS, OracleError, window_of
from .registry import semantics

if TYPE_CHECKING:
    from .operands import Builder, Step
    from .threads import Cta, Thread

RANK = 24
OFFSET = mask(RANK)


class ClusterWait:
    """A thread at the barrier of its cluster."""


@dataclass(eq=False)
class Cluster:
    """``index`` is its place in the grid of clusters; ``ctas`` are by rank. ``arrived`` threads have come to the barrier that is not
    complete, ``passed`` ones do not know yet that theirs is."""

    index: tuple[int, int, int]
    ctas: list[Cta] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    #: whether a thread has asked for another cluster in this turn
    asked: bool = False

    def step(self) -> bool:
        """Let every thread that can run do so once; returns whether threads remain."""
        moved = [cta.step() for cta in self.ctas]
        left = [thread for cta in self.ctas for thread in cta.threads if not thread.done]
        if left and not any(moved):
            stuck = ", ".join(
                f"{t.tid} of {t.cta.index} at line {t.frame.function.code[t.frame.pc - 1].line}"
                for t in left[:4]
            )
            raise OracleError(f"deadlock: {len(left)} threads wait for what cannot come: {stuck}")
        return bool(left)

    def settle(self) -> None:
        """All threads that live have arrived: let those that wait go on."""
        if len(self.arrived) < max(1, sum(sum(cta.alive) for cta in self.ctas)):
            return
        living = [thread for cta in self.ctas for thread in cta.threads if not thread.done]
        if any(id(thread) not in self.arrived for thread in living):
            return
        self.passed |= self.arrived
        self.arrived = set()
        for thread in living:
            if isinstance(thread.waiting, ClusterWait):
                thread.waiting = None
                self.passed.discard(id(thread))


def cluster_step(b: Builder) -> Callable[[Thread], None]:
    """``barrier.cluster.arrive`` and ``.wait``."""
    if b.has("wait"):

        def wait(t: Thread) -> None:
            cluster = t.cta.cluster
            if id(t) in cluster.arrived:
                t.waiting = ClusterWait()
            elif id(t) in cluster.passed:
                cluster.passed.discard(id(t))
            else:
                raise OracleError(f"line {b.statement.line}: waits without having arrived")

        return wait

    def arrive(t: Thread) -> None:
        cluster = t.cta.cluster
        if id(t) in cluster.arrived or id(t) in cluster.passed:
            raise OracleError(f"line {b.statement.line}: arrives twice")
        cluster.arrived.add(id(t))
        cluster.settle()

    return arrive


def shared_of(t: Thread, address: int) -> tuple[bytearray, int]:
    """The shared memory that an address in the shared space lies in, and the place there."""
    own, rank = t.cta, address >> RANK
    if rank == own.rank:
        return own.shared, address & OFFSET
    ctas = own.cluster.ctas
    if rank >= len(ctas):
        raise OracleError(f"the cluster has no CTA of rank {rank}")
    if all(thread.done for thread in ctas[rank].threads):
        raise OracleError(f"the CTA of rank {rank} has ended")
    return ctas[rank].shared, address & OFFSET


@semantics("mapa")
def mapa(b: Builder) -> Step:
    address, rank, put = b.get(1), b.get(2, 32), b.put(0)

    def step(t: Thread) -> None:
        if rank(t) >= len(t.cta.cluster.ctas):
            raise OracleError(f"line {b.statement.line}: the cluster has no CTA of rank {rank(t)}")
        put(t, address(t) - (rank_of(address(t)) << RANK) + (rank(t) << RANK))

    return step


@semantics("getctarank")
def getctarank(b: Builder) -> Step:
    address, put = b.get(1), b.put(0, 32)
    return lambda t: put(t, rank_of(address(t)))


def rank_of(address: int) -> int:
    """Of an address in the shared space or its window."""
    start = WINDOWS["shared"] if window_of(address)[0] == "shared" else 0
    return address - start >> RANK
