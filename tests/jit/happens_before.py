"""Which lines of a kernel race in shared memory, from the accesses and synchronisations of one run of the interpreter, if an
instruction that waits were not there.

The rules are those of the manual. ``bar.sync``: what threads did before is performed for all that took part.
``cp.async.wait_group n``: all but the last n groups of the thread that executes it are complete, and what they store visible to it;
until then a copy is ordered with nothing but what came before it, other groups of the thread neither ("cp.async").
``wgmma.wait_group n``: the same for groups of products of the warpgroup, which read their matrices until then ("Asynchronous warpgroup
level matrix multiply-accumulate operation"). The lanes of a warp are taken to be in order. Every pair of accesses of a word is
compared; of those of one line in one interval between waits, the last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracle import exchange, machine, threads, warpgroup

#: who accesses memory: a warp, its ``cp.async``, its ``wgmma``
WARP, COPIES, PRODUCTS = range(3)


@dataclass(frozen=True)
class Event:
    """What a thread does, or all (``what`` ``meet``): ``words`` are accessed, or groups waited for but the last ``left``."""

    phase: int
    thread: int
    step: int
    what: str
    line: int
    kind: int = WARP
    stores: bool = False
    words: range = range(0)
    left: int = 0


@dataclass
class Trace:
    """Of each CTA its events, and how many barriers it has passed."""

    events: dict[Any, list[Event]] = field(default_factory=lambda: defaultdict(list))
    phases: Counter[Any] = field(default_factory=Counter)
    thread: Any = None
    statement: Any = None
    #: of each CTA its events in order, once all has run
    ordered: dict[Any, list[tuple[Event, Any]]] = field(default_factory=dict)

    def note(self, thread: Any, what: str, **more: Any) -> None:
        self.events[thread.cta].append(
            Event(self.phases[thread.cta], thread.number, thread.steps, what, self.statement.line, **more)
        )

    def begin(self, thread: Any, statement: Any) -> None:
        """A thread executes a statement."""
        self.thread, self.statement = thread, statement
        words = statement.opcode.split(".")
        kind = {"cp": COPIES, "wgmma": PRODUCTS}.get(words[0], WARP)
        if kind == COPIES and "bulk" in words:
            raise NotImplementedError(statement.opcode)
        if "commit_group" in words:
            self.note(thread, "commit", kind=kind)
        elif "wait_group" in words:
            self.note(thread, "wait", kind=kind, left=int(statement.operands[0].value))
        elif "wait_all" in words:
            self.note(thread, "commit", kind=kind)
            self.note(thread, "wait", kind=kind)

    def access(self, thread: Any, space: str, address: int, size: int, stores: bool) -> None:
        space, place = thread.resolve(space, address)
        if space == "shared":
            kind = COPIES if self.statement.base == "cp" else WARP
            self.note(
                thread, "access", kind=kind, stores=stores, words=range(place // 4, -(-(place + size) // 4))
            )

    def read(self, places: NDArray[np.int64]) -> None:
        """A product reads elements."""
        for word in np.unique(places // 4).tolist():
            self.note(self.thread, "access", kind=PRODUCTS, words=range(word, word + 1))

    def meet(self, cta: Any) -> None:
        """All warps have passed a barrier together."""
        self.note(self.thread, "meet")
        self.phases[cta] += 1

    def races(self, without: int = 0) -> set[tuple[int, int]]:
        """Pairs of lines, where waits and barriers of a line are left out."""
        if not self.ordered:
            self.ordered = {cta: _in_order(events) for cta, events in self.events.items()}
        return {
            pair for cta, events in self.ordered.items() for pair in _races(events, without, len(cta.warps))
        }


def _in_order(events: list[Event]) -> list[tuple[Event, Any]]:
    """Of a warp in the order of its instructions: lanes of the interpreter run one after the other."""
    order = sorted(events, key=lambda e: (e.phase, e.what == "meet", e.thread // 32, e.step, e.thread))
    return list(_together(order))


def _site(at: Event, warps: int) -> tuple[int, int, bool]:
    """Who accesses, where, and whether it stores."""
    return at.kind * warps + at.thread // 32, at.line, at.stores


def _races(events: list[tuple[Event, Any]], without: int, warps: int) -> set[tuple[int, int]]:
    clocks = np.zeros((warps, 3 * warps), np.int64)
    groups: Counter[tuple[int, int]] = Counter()
    sites = sorted({_site(at, warps) for at, words in events if words is not None})
    row_of = {site: row for row, site in enumerate(sites)}
    actors, lines, stored = np.array(sites, np.int64).reshape(-1, 3).T
    size = 1 + max((int(words[-1]) for _, words in events if words is not None), default=0)
    #: of each site and word when it was accessed last
    last = np.full((len(sites), size), -1)
    found: set[tuple[int, int]] = set()
    for at, words in events:
        warp, place = at.thread // 32, (at.thread, at.kind)
        if at.what == "access":
            actor, row = at.kind * warps + warp, row_of[_site(at, warps)]
            time = groups[place] if at.kind else clocks[warp, warp]
            times = last[:, words]
            pending = times >= clocks[warp, actors, None]
            pending &= (actors != actor)[:, None] | (times != time)
            races = pending.any(axis=1) & (actors != warp) & (stored.astype(bool) | at.stores)
            found |= {(min(line, at.line), max(line, at.line)) for line in lines[races].tolist()}
            last[row, words] = time
        elif at.what == "commit":
            groups[place] += 1
        elif at.line == without:
            continue
        elif at.what == "meet":
            joined = clocks.max(axis=0)
            joined[:warps] += 1
            clocks[:] = joined
        else:
            first, others = (warp // 4 * 4, 4) if at.kind == PRODUCTS else (warp, 1)
            start = at.kind * warps + first
            done = clocks[warp, start : start + others]
            np.maximum(done, groups[place] - at.left, out=done)
    return found


def _together(order: list[Event]) -> Iterator[tuple[Event, Any]]:
    """Accesses of a warp by one instruction are one."""
    pending: list[Event] = []
    for event in order:
        key = (event.thread // 32, event.step, event.line, event.stores, event.what)
        if pending and key != (
            pending[0].thread // 32,
            pending[0].step,
            pending[0].line,
            pending[0].stores,
            pending[0].what,
        ):
            yield pending[0], _words(pending)
            pending = []
        if event.what != "access":
            yield event, None
        else:
            pending.append(event)
    if pending:
        yield pending[0], _words(pending)


def _words(events: list[Event]) -> Any:
    return np.unique(np.concatenate([np.arange(event.words.start, event.words.stop) for event in events]))


@contextmanager
def traced() -> Iterator[Trace]:
    """What the interpreter does meanwhile."""
    trace = Trace()
    load, store, settle = threads.Thread.load, threads.Thread.store, exchange.settle_barrier
    plan, places = machine.Machine.plan_statement, warpgroup.places

    def watched_plan(self: Any, function: Any, statement: Any) -> Any:
        made = plan(self, function, statement)
        for name in ("step", "control"):
            run: Callable[[Any], Any] | None = getattr(made, name)
            if run is not None:
                setattr(made, name, lambda thread, run=run: (trace.begin(thread, statement), run(thread))[1])
        return made

    def watched_load(self: Any, space: str, address: int, size: int, align: int = 0) -> int:
        trace.access(self, space, address, size, False)
        return load(self, space, address, size, align)

    def watched_store(self: Any, space: str, address: int, size: int, value: int) -> None:
        trace.access(self, space, address, size, True)
        store(self, space, address, size, value)

    def watched_settle(cta: Any, number: int) -> None:
        barrier = cta.barriers[number]
        settle(cta, number)
        if cta.barriers.get(number) is not barrier:
            assert len(barrier.arrived) == sum(alive > 0 for alive in cta.alive)
            trace.meet(cta)

    def watched_places(descriptor: int, bits: int, across: bool) -> Callable[..., NDArray[np.int64]]:
        place = places(descriptor, bits, across)

        def found(lines: NDArray[np.int64], k: NDArray[np.int64]) -> NDArray[np.int64]:
            where = place(lines, k)
            trace.read(where)
            return where

        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "OFTEN", 0)  # one function for many statements would tell of none
        patch.setattr(machine.Machine, "plan_statement", watched_plan)
        patch.setattr(threads.Thread, "load", watched_load)
        patch.setattr(threads.Thread, "store", watched_store)
        patch.setattr(exchange, "settle_barrier", watched_settle)
        patch.setattr(threads, "settle_barrier", watched_settle)
        patch.setattr(warpgroup, "places", watched_places)
        yield trace
