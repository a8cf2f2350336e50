"""The SIMT stack of one warp: which lanes are where, and by which rules they diverge, converge, wait and yield.

Nothing here knows about registers or memory; blocks are numbers and lanes are bits of an ``int``. The reference backend and
warp classes run on this class; the LLVM backend makes the same moves in compiled code (``jit.runtime.stack_entries``).

**State.** ``(pc, mask, id)`` is the running path: its block, its lanes, and the reconvergence point in force. ``id`` is a
block index, or negative for the exit of the function that runs (``-1`` in the kernel). ``live`` are the lanes that have not
exited. An entry of the stack is one of

``RECONVERGE``    ``pc`` is a reconvergence point; ``mask`` are all lanes that come to it, ``id`` is in force from there.
``CALL_FRAME``    of a call: ``pc`` is the block after it, ``mask`` the lanes that made it, ``id`` the caller's; ``group`` is the
                  callee's exit.
``PENDING``       a path that still has to run from ``pc``, up to its ``id``.
``PENDING_CALL``  lanes that still have to make an indirect call (``payload`` says of what), returning to ``pc``.
``WAIT``          a path that waits inside block ``pc`` for other lanes (``payload`` says for which), up to its ``id``.

A ``RECONVERGE`` or ``CALL_FRAME`` opens a *group*: the entries above it whose ``id`` is its ``group`` (of a ``RECONVERGE``: its
``pc``), groups among them included. The running path belongs to the innermost group, the one at the top. Lanes of a group's
entry that are in none of its members have *arrived*.

**Branch** with reconvergence point J. If lanes go to more than one block: unless ``id`` is J, push ``RECONVERGE (J, mask, id)``.
The paths, ordered as given, are pushed so that the first runs now and the others pop in order; lanes that go to J itself
wait there (no entry). A point of ``EXIT`` opens no group: the paths belong to the one in force, and lanes that go to
``EXIT`` have arrived.

**Reaching** ``id`` pops the next entry. Popped masks lose the lanes that exited; empty entries are dropped. An entry whose
``pc`` is its own ``id`` has arrived too and is dropped. Paths never merge with one another, only in their group's entry.

**Waiting** (``arrive``). At a ``.sync`` instruction with member mask M, the lanes of M that live must all be there: in this path,
or waiting with the same M at an instruction with the same key (``effects.convergence_key``). Then they *converge*: the operation takes
place, at once for all of them; a path goes on when all of its lanes have had theirs (lanes of one path may give different
masks). Otherwise the path waits and another goes on: of the innermost group with one that can run, the topmost such member, the
ones above it moving to the bottom in order. A member can run if it is not a ``WAIT``; a group, if a member can. Failing that, of the
innermost group with arrived lanes they leave it (below). Lanes that exit may complete a mask that others wait for.

**Leaving early.** Arrived lanes that leave a group become a path ``(pc, arrived, id)`` of the group's entry, on top of the
group; the entry keeps its other lanes. For a ``CALL_FRAME`` this is their return.

**Switching paths** (``switch_path``), when the quantum is used up in a loop that may wait for other lanes. In every group around
the running path the top member goes to the bottom, and from the outermost group inwards the topmost member that can run is
chosen: every path gets a time slice. But if the warp *yields*, and a group around the running path has arrived lanes, the
innermost such group lets them leave, and they run instead: they may hold a lock. A warp yields after ``YIELD_THRESHOLD`` such
slices, or once the schedule has found that nothing else can go on (``force_yield``); so lanes stay together wherever waiting for
other warps is enough.

**mbarriers** (manual: "mbarrier.try_wait"). Where a wait finds its phase incomplete the warp is suspended, if no other of its
paths is ready to run, until a phase of an mbarrier of its CTA completes; else it switches to another path. ``schedule`` says when
waits give up.

**Gathering** (``gather``). An aligned CTA barrier needs all living lanes in one path. A path that comes there without the others
waits; when all living lanes wait at that barrier, in one group, they are one path again. So paths converge that an early return
has kept apart, and lanes that have left a group early. Where nothing can run but lanes that would leave a group early, they stay,
if none has left before. When nothing else in the CTA can go on (``schedule``), the paths arrive without one another
(``arrive_diverged``): that breaks the rule ``aligned-barrier`` (``isa.rules``), and GPUs count the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .stack_entries import (
    AFTER,
    ALIGNED,
    AT_END,
    AT_WAIT,
    BARRIER,
    CALL_FRAME,
    EXIT,
    PENDING,
    PENDING_CALL,
    RECONVERGE,
    WAIT,
    Entry,
    Group,
    Wait,
    can_run,
    grow,
)

__all__ = [
    "AFTER",
    "ALIGNED",
    "AT_END",
    "AT_WAIT",
    "BARRIER",
    "CALL_FRAME",
    "EXIT",
    "PENDING",
    "PENDING_CALL",
    "RECONVERGE",
    "SLICE_SHIFT",
    "WAIT",
    "YIELD_THRESHOLD",
    "Convergence",
    "Entry",
    "Hooks",
    "SimtStack",
    "Wait",
    "Yielding",
]

#: time slices after which lanes that have arrived no longer wait for lanes that spin
YIELD_THRESHOLD = 256
#: by how many bits time slices are shortened then: a warp whose lanes depend on each other progresses faster if it switches often
SLICE_SHIFT = 4


@dataclass(slots=True)
class Yielding:
    """How long the lanes of a warp wait at a reconvergence point for lanes that spin: ``slices`` so far that ended in a loop that
    may wait; ``yields``: arrived lanes may leave; ``left_early``: some have left a group early."""

    slices: int = 0
    yields: bool = False
    left_early: bool = False

    def end_slice(self) -> bool:
        """Another time slice ended in a loop that may wait; whether arrived lanes may leave now."""
        self.slices += 1
        self.yields = self.yields or self.slices > YIELD_THRESHOLD
        return self.yields

    @property
    def slice_shift(self) -> int:
        """By how many bits time slices are shortened."""
        return SLICE_SHIFT if self.yields else 0


class Convergence(NamedTuple):
    """A ``.sync`` instruction that takes place: the lanes ``participants`` of ``mask``, by path: ``(block, lanes)``."""

    mask: int
    participants: int
    paths: tuple[tuple[int, int], ...]


class Hooks(Protocol):
    """What the owner of the registers does when lanes move."""

    def converge(self, convergence: Convergence) -> None:
        """Carry out a ``.sync`` operation for all paths."""

    def enter(self, function: Any, lanes: int) -> tuple[int, int, Any]:
        """These lanes make a pending indirect call: the callee's number and first block, and the payload of its call frame."""

    def leave(self, payload: Any, lanes: int, others: bool) -> Any:
        """These lanes return through a call frame with that payload; ``others``: not all that made the call do. Gives what is left
        to do when they run, ``None`` if nothing."""


class SimtStack:
    """The paths of one warp. ``mask`` is 0 when no path runs: then the warp is ``done`` or blocked (all paths wait)."""

    __slots__ = ("call_depth", "entries", "hooks", "id", "kept", "live", "mask", "pc", "yielding")

    def __init__(self, pc: int, lanes: int, hooks: Hooks, yielding: Yielding | None = None) -> None:
        self.pc = pc
        self.mask = lanes
        self.id = EXIT
        self.live = lanes
        self.entries: list[Entry] = []
        self.call_depth = 0
        #: of the running path: what ``Hooks.leave`` gave
        self.kept: Any = None
        self.hooks = hooks
        self.yielding = yielding if yielding is not None else Yielding()

    @property
    def done(self) -> bool:
        """All lanes have exited."""
        return not self.live

    @property
    def blocked(self) -> bool:
        """Lanes live, but all of them wait for others."""
        return not self.mask and bool(self.live)

    def state(self) -> tuple[object, ...]:
        """Everything that decides how the warp goes on, registers and memory aside, for comparing."""
        waits = [
            (entry.payload.key, tuple(sorted(entry.payload.masks.items())))
            for entry in self.entries
            if entry.kind == WAIT
        ]
        running = (self.pc, self.mask, self.id) if self.mask else ()
        yielding = self.yielding.yields, self.yielding.left_early
        return running, self.live, tuple(entry[:5] for entry in self.entries), tuple(waits), yielding

    # Moves of the running path

    def jump(self, target: int) -> None:
        """All lanes go to a block (or ``EXIT``)."""
        if target == self.id or target == EXIT:
            self._pop()
        else:
            self.pc, self.kept = target, None

    def branch(self, paths: Sequence[tuple[int, int]], point: int) -> bool:
        """Lanes diverge: ``paths`` are ``(target, lanes)``, targets distinct and lanes disjoint, together the running ones; paths
        without lanes are ignored. Returns whether there was more than one."""
        taken = [path for path in paths if path[1]]
        if len(taken) == 1:
            self.jump(taken[0][0])
            return False
        if point == EXIT:
            point = self.id
        elif point != self.id:
            self.entries.append(Entry(point, self.mask, self.id, RECONVERGE, point))
        running = [path for path in taken if path[0] not in (point, EXIT)]
        self.entries += [Entry(target, lanes, point, PENDING) for target, lanes in reversed(running)]
        self._pop()
        return True

    def call(self, callee: int, entry: int, back: int, payload: object = None) -> None:
        """All lanes call function number ``callee``, whose first block is ``entry``, and go on at block ``back`` afterwards."""
        group = EXIT - callee
        open_groups = {entry.group for entry in self.entries if entry.kind == CALL_FRAME}
        if group in open_groups:  # an activation inside another of the same function
            group = min(open_groups) - 1
        self.entries.append(Entry(back, self.mask, self.id, CALL_FRAME, group, payload))
        self.call_depth += 1
        self.pc, self.id = entry, group

    def call_each(self, calls: Sequence[tuple[object, int]], back: int) -> None:
        """An indirect call: ``(function, lanes)`` in order of the candidates, the function as ``Hooks.enter`` takes it; one after
        the other, all going on at ``back``, where they converge again: a group of their own."""
        self.entries.append(Entry(back, self.mask, self.id, RECONVERGE, back))
        self.entries += [
            Entry(back, lanes, back, PENDING_CALL, payload=function)
            for function, lanes in reversed(calls)
            if lanes
        ]
        self._pop()

    def exit(self, lanes: int) -> None:
        """These of the running lanes end."""
        self.live &= ~lanes
        self.mask &= ~lanes
        if any(entry.kind == WAIT for entry in self.entries):
            self._complete_waits()
        if not self.mask:
            self._pop()

    # Waiting

    def arrive(self, key: str, masks: Mapping[int, int]) -> bool:
        """The running path comes to the ``.sync`` instruction at the start of its block; ``masks`` maps each member mask to the
        running lanes that give it. Returns whether the path goes on behind it; else it waits, and another runs (or none)."""
        if len(masks) == 1:
            ((mask, lanes),) = masks.items()
            if not mask & self.live & ~lanes:
                self.hooks.converge(Convergence(mask, mask & self.live, ((self.pc, lanes),)))
                return True
        block = self.pc
        wait = Wait(key, AFTER + block, dict(masks))
        self.entries.append(Entry(block, self.mask, self.id, WAIT, payload=wait))
        self._complete_waits()
        last = self.entries[-1]
        if last.kind != WAIT:
            self.entries.pop()
            return True
        self._choose()
        return False

    def wait(self, resume: int) -> None:
        """The running path waits at a CTA barrier, to go on at block ``resume`` after ``release``; another runs (or none)."""
        self.entries.append(Entry(self.pc, self.mask, self.id, WAIT, payload=Wait(BARRIER, resume)))
        self._choose()

    def gather(self) -> None:
        """The running path comes to the aligned CTA barrier at the end of its block, without all living lanes. It waits for them
        there, and another path runs, or all of them at ``AT_END``, or none: then the warp is blocked."""
        block = self.pc & (AT_WAIT - 1)
        self.entries.append(Entry(block, self.mask, self.id, WAIT, payload=Wait(ALIGNED, AT_END + block)))
        self._complete_waits()
        self._choose()

    def arrive_diverged(self, arrive: Callable[[int, int], tuple[int, bool]]) -> bool:
        """The paths at aligned CTA barriers wait no longer for the rest of the warp. ``arrive`` is given the block and the lanes of
        each; it gives where they go on, and whether they wait for that. Returns whether there was one."""
        some = False
        for index, entry in enumerate(self.entries):
            lanes = entry.mask & self.live
            if entry.kind != WAIT or entry.payload.key != ALIGNED or not lanes:
                continue
            some = True
            onward, waits = arrive(entry.pc, lanes)
            self.entries[index] = (
                Entry(entry.pc, lanes, entry.id, WAIT, payload=Wait(BARRIER, onward))
                if waits
                else Entry(onward, lanes, entry.id, PENDING)
            )
        if some and not self.mask:
            self._choose()
        return some

    def force_yield(self) -> bool:
        """Nothing else can go on: the warp yields from now on. Returns whether that may help."""
        if self.yielding.yields or not any(group.arrived(self.live) for group in self._tree().groups()):
            return False
        self.yielding.yields = True
        return True

    def release(self, lanes: int) -> None:
        """The paths with these lanes wait no longer at their CTA barrier."""
        for index, entry in enumerate(self.entries):
            if entry.kind == WAIT and entry.payload.key == BARRIER and entry.mask & lanes:
                self.entries[index] = Entry(entry.payload.resume, entry.mask, entry.id, PENDING)
        if not self.mask:
            self._choose()

    def waiting(self) -> Iterator[tuple[int, int, Wait]]:
        """Blocks, lanes and reasons of all paths that wait."""
        for entry in self.entries:
            if entry.kind == WAIT and entry.mask & self.live:
                yield entry.pc, entry.mask & self.live, entry.payload

    def _complete_waits(self) -> None:
        """Carries out every ``.sync`` operation that has all its lanes, and lets paths go on that wait for none any more."""
        by_mask: dict[tuple[str, int], list[int]] = {}
        for index, entry in enumerate(self.entries):
            if entry.kind == WAIT:
                for mask in entry.payload.masks:
                    by_mask.setdefault((entry.payload.key, mask), []).append(index)
        for (_, mask), waiting in by_mask.items():
            paths = [
                (self.entries[index].pc, self.entries[index].payload.masks[mask] & self.live)
                for index in waiting
            ]
            there = 0
            for _, lanes in paths:
                there |= lanes
            if mask & self.live & ~there:
                continue
            if there:
                self.hooks.converge(
                    Convergence(mask, mask & self.live, tuple(path for path in paths if path[1]))
                )
            for index in waiting:
                entry = self.entries[index]
                del entry.payload.masks[mask]
                if not entry.payload.masks:
                    self.entries[index] = Entry(entry.payload.resume, entry.mask, entry.id, PENDING)
        self._complete_gathering()

    def _complete_gathering(self) -> None:
        """Makes one path of the paths at an aligned barrier, if they are all that live, at one barrier, in one group."""
        waiting = [entry for entry in self.entries if entry.kind == WAIT and entry.payload.key == ALIGNED]
        there = 0
        for entry in waiting:
            there |= entry.mask
        if not waiting or self.live & ~there or len({entry.pc for entry in waiting}) > 1:
            return
        for group in self._tree().groups():
            if all(any(member is entry for member in group.members) for entry in waiting):
                first = next(index for index, entry in enumerate(self.entries) if entry is waiting[0])
                self.entries[first] = Entry(waiting[0].payload.resume, there, waiting[0].id, PENDING)
                self.entries = [
                    entry for entry in self.entries if not any(entry is other for other in waiting)
                ]

    def others_can_run(self) -> bool:
        """Whether a path other than the running one is ready to run."""
        return any(entry.kind in (PENDING, PENDING_CALL) and entry.mask & self.live for entry in self.entries)

    # Choosing who runs

    def switch_path(self) -> None:
        """Another path of the warp runs, if any can; see the module's text."""
        if self.pc == self.id:
            self._pop()
        root = self._tree()
        chain = root.innermost_chain()
        yields = self.yielding.end_slice()
        for inner, outer in zip(chain[:0:-1], chain[-2::-1]):
            if yields and inner.arrived(self.live):
                self._let_leave(inner, outer)
                self._adopt(root)
                return
        for group in chain:
            group.members.insert(0, group.members.pop())
        self._activate(root)
        self._adopt(root)

    def _pop(self) -> None:
        """The next path on the stack runs."""
        while self.entries:
            entry = self.entries.pop()
            lanes = entry.mask & self.live
            if entry.kind == CALL_FRAME:
                self.call_depth -= 1
            if not lanes:
                continue
            if entry.kind == WAIT:
                self.entries.append(entry)
                self._choose()
                return
            self._run(entry, lanes)
            if self.pc != self.id:
                return
        self.mask = 0

    def _run(self, entry: Entry, lanes: int) -> None:
        self.pc, self.mask, self.id = entry.pc, lanes, entry.id
        self.kept = entry.payload if entry.kind == PENDING else None
        if entry.kind == CALL_FRAME:
            self.kept = self.hooks.leave(entry.payload, lanes, False)
        elif entry.kind == PENDING_CALL:
            callee, first, payload = self.hooks.enter(entry.payload, lanes)
            self.call(callee, first, entry.pc, payload)

    def _choose(self) -> None:
        """No path runs: finds the next, from the innermost group outwards."""
        self.mask = 0
        root = self._tree()
        chain = root.innermost_chain()
        for group in reversed(chain):
            if group.can_run(self.live):
                self._activate(group)
                break
        else:
            if not self.yielding.left_early and any(wait.key == ALIGNED for _, _, wait in self.waiting()):
                return
            if not self._leave_innermost(root):
                return
        self._adopt(root)

    def _leave_innermost(self, group: Group) -> bool:
        """Lets the arrived lanes of the innermost group that has any leave it, top members first."""
        for index in range(len(group.members) - 1, -1, -1):
            member = group.members[index]
            if not isinstance(member, Group):
                continue
            if self._leave_innermost(member):
                group.members[index + 1 :], group.members[:0] = [], group.members[index + 1 :]
                return True
            if member.arrived(self.live):
                group.members[index + 1 :], group.members[:0] = [], group.members[index + 1 :]
                self._let_leave(member, group)
                return True
        return False

    def _activate(self, group: Group) -> None:
        """Brings a path that can run to the top; there is one."""
        members = group.members
        for _ in range(len(members)):
            top = members[-1]
            if can_run(top, self.live):
                if isinstance(top, Group):
                    self._activate(top)
                return
            members.insert(0, members.pop())

    def _let_leave(self, group: Group, outer: Group) -> None:
        entry = group.entry
        assert entry is not None
        lanes = group.arrived(self.live)
        self.yielding.left_early = True
        group.entry = entry._replace(mask=entry.mask & ~lanes)
        kept = self.hooks.leave(entry.payload, lanes, True) if entry.kind == CALL_FRAME else None
        outer.members.append(Entry(entry.pc, lanes, entry.id, PENDING, payload=kept))

    def _tree(self) -> Group:
        """The stack and, if a path runs, that path on top, as groups."""
        running = Entry(self.pc, self.mask, self.id, PENDING, payload=self.kept)
        return grow([*self.entries, running] if self.mask else self.entries)

    def _adopt(self, root: Group) -> None:
        """The tree becomes the stack, and its topmost path runs."""
        self.entries = list(root.flat())
        self._pop()
