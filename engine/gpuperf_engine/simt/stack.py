"""Where the lanes of one warp are: the stack of splits, and the rules by which lanes part, meet, wait and take turns.

Nothing here knows about registers or memory; blocks are numbers and lanes are bits of an ``int``. The reference backend
runs on this class; the LLVM backend does the frequent moves (branch, reconverge) inline on the same stack and comes here
for the rare ones (waiting, taking turns).

**State.** ``(pc, mask, id)`` is the running split: its block, its lanes, and the reconvergence point in force. ``id`` is a
block index, or negative for the exit of the function that runs (``-1`` in the kernel). ``live`` are the lanes that have not
exited. An entry of the stack is one of

``REJOIN``  ``pc`` is a reconvergence point; ``mask`` are all lanes that come to it, ``id`` is in force from there.
``FRAME``   of a call: ``pc`` is the block after it, ``mask`` the lanes that made it, ``id`` the caller's; ``group`` is the
            callee's exit.
``SIDE``    lanes that still have to run from ``pc``, up to their ``id``.
``CALL``    lanes that still have to make an indirect call (``payload`` says of what), returning to ``pc``.
``WAIT``    lanes that wait inside block ``pc`` for others (``payload`` says for whom), up to their ``id``.

A ``REJOIN`` or ``FRAME`` opens a *group*: the entries above it whose ``id`` is its ``group`` (of a ``REJOIN``: its ``pc``),
groups among them included. The running split belongs to the innermost group, the one at the top. Lanes of a group's entry
that are in none of its members have *arrived*.

**Branch** with reconvergence point J. If lanes go to more than one block: unless ``id`` is J, push ``REJOIN (J, mask, id)``. The
sides, ordered as given, are pushed so that the first runs now and the others pop in order; lanes that go to J itself
wait there (no entry). A point of ``EXIT`` opens no group: the sides belong to the one in force, and lanes that go to
``EXIT`` have arrived.

**Reaching** ``id`` pops the next entry. Popped masks lose the lanes that exited; empty entries are dropped. An entry whose
``pc`` is its own ``id`` has arrived too and is dropped. Sides are never merged with one another, only in their group's entry.

**Waiting** (``arrive``). At a ``.sync`` instruction with member mask M, the lanes of M that live must all be there: in this split, or
waiting with the same M at an instruction with the same opcode, wherever it stands. Then the operation takes place, at
once for all of them; a split goes on when all of its lanes have had theirs (lanes of one split may give different masks).
Otherwise the split waits and another goes on: of the innermost group with one that can run, the topmost such member, the ones
above it moving to the bottom in order. A member can run if it is no ``WAIT``; a group, if a member can. Failing that, of the
innermost group with arrived lanes they leave it (below). Lanes that exit may complete a mask that others wait for.

**Leaving early.** Arrived lanes that leave a group become a split ``(pc, arrived, id)`` of the group's entry, on top of the
group; the entry keeps its other lanes. For a ``FRAME`` this is their return.

**Taking turns** (``take_turns``), when the fuel ends in a loop that may wait for other lanes. In every group around the running
split the top member goes to the bottom, and from the outermost group inwards the topmost member that can run is chosen:
every split gets its turn. But if the warp is *tired*, and a group around the running split has arrived lanes, the innermost
such group lets them leave, and they run instead: a lock may be in their hands. A warp is tired after ``PATIENCE`` such turns, or
once the schedule has found that nothing else can go on (``urge``); so lanes stay together wherever waiting for other warps
is enough.

**mbarriers** (manual: "mbarrier.try_wait"). Where a wait finds its phase incomplete the warp is suspended, if no other of its
splits is ready to run, until a phase of an mbarrier of its CTA completes; else its splits take turns. ``schedule`` says when
waits give up.

**Gathering** (``gather``). An aligned CTA barrier needs all living lanes in one split. A split that comes there without the others
waits; when all living lanes wait at that barrier, in one group, they are one split again. So splits meet that an early return
has kept apart, and lanes that have left a group early. The barrier is divergent, which is an error, where nothing can run but lanes
that would leave a group early, if none has before.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .stack_entries import (
    AFTER,
    ALIGNED,
    AT_END,
    AT_WAIT,
    BARRIER,
    CALL,
    EXIT,
    FRAME,
    REJOIN,
    SIDE,
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
    "CALL",
    "EXIT",
    "FRAME",
    "HASTE",
    "PATIENCE",
    "REJOIN",
    "SIDE",
    "WAIT",
    "Entry",
    "Hooks",
    "Meeting",
    "Patience",
    "Wait",
    "Warp",
]

#: turns after which lanes that have arrived no longer wait for lanes that spin
PATIENCE = 256
#: by how many bits turns are shortened then: lanes that need each other to get on had better change often
HASTE = 4


@dataclass(slots=True)
class Patience:
    """How long the lanes of a warp wait at a reconvergence point for lanes that spin. ``left``: some have left a group early."""

    turns: int = 0
    eager: bool = False
    left: bool = False

    def tired(self) -> bool:
        """Another turn ended in a loop that may wait; whether arrived lanes may leave now."""
        self.turns += 1
        self.eager = self.eager or self.turns > PATIENCE
        return self.eager

    @property
    def haste(self) -> int:
        """By how many bits turns are shortened."""
        return HASTE if self.eager else 0


class Meeting(NamedTuple):
    """A ``.sync`` instruction that takes place: the lanes ``participants`` of ``mask``, and where they stand: ``(block, lanes)``."""

    mask: int
    participants: int
    parts: tuple[tuple[int, int], ...]


class Hooks(Protocol):
    """What the owner of the registers does when lanes move."""

    def meet(self, meeting: Meeting) -> None:
        """Carry out a ``.sync`` operation for all parts."""

    def enter(self, function: Any, lanes: int) -> tuple[int, int, Any]:
        """These lanes make a pending indirect call: the callee's number and first block, and the payload of its frame."""

    def leave(self, payload: Any, lanes: int, others: bool) -> Any:
        """These lanes return through a frame with that payload; ``others``: not all that made the call do. Gives what is left to do
        when they run, ``None`` if nothing."""


class Warp:
    """The splits of one warp. ``mask`` is 0 when no split runs: then the warp is ``done`` or blocked (all splits wait)."""

    __slots__ = ("frames", "hooks", "id", "kept", "live", "mask", "patience", "pc", "stack")

    def __init__(self, pc: int, lanes: int, hooks: Hooks, patience: Patience | None = None) -> None:
        self.pc = pc
        self.mask = lanes
        self.id = EXIT
        self.live = lanes
        self.stack: list[Entry] = []
        self.frames = 0
        #: of the running split: what ``Hooks.leave`` gave
        self.kept: Any = None
        self.hooks = hooks
        self.patience = patience if patience is not None else Patience()

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
            for entry in self.stack
            if entry.kind == WAIT
        ]
        running = (self.pc, self.mask, self.id) if self.mask else ()
        patience = self.patience.eager, self.patience.left
        return running, self.live, tuple(entry[:5] for entry in self.stack), tuple(waits), patience

    # Moves of the running split

    def jump(self, target: int) -> None:
        """All lanes go to a block (or ``EXIT``)."""
        if target == self.id or target == EXIT:
            self._pop()
        else:
            self.pc, self.kept = target, None

    def branch(self, sides: Sequence[tuple[int, int]], point: int) -> bool:
        """Lanes part: ``sides`` are ``(target, lanes)``, targets distinct and lanes disjoint, together the running ones; empty sides
        are ignored. Returns whether there was more than one."""
        taken = [side for side in sides if side[1]]
        if len(taken) == 1:
            self.jump(taken[0][0])
            return False
        if point == EXIT:
            point = self.id
        elif point != self.id:
            self.stack.append(Entry(point, self.mask, self.id, REJOIN, point))
        running = [side for side in taken if side[0] not in (point, EXIT)]
        self.stack += [Entry(target, lanes, point, SIDE) for target, lanes in reversed(running)]
        self._pop()
        return True

    def call(self, callee: int, entry: int, back: int, payload: object = None) -> None:
        """All lanes call function number ``callee``, whose first block is ``entry``, and go on at block ``back`` afterwards."""
        group = EXIT - callee
        known = {frame.group for frame in self.stack if frame.kind == FRAME}
        if group in known:  # an activation inside another of the same function
            group = min(known) - 1
        self.stack.append(Entry(back, self.mask, self.id, FRAME, group, payload))
        self.frames += 1
        self.pc, self.id = entry, group

    def call_each(self, calls: Sequence[tuple[Any, int]], back: int) -> None:
        """An indirect call: ``(function, lanes)`` in order of the candidates, the function as ``Hooks.enter`` wants it; one after
        the other, all going on at ``back``, where they meet again: a group of their own."""
        self.stack.append(Entry(back, self.mask, self.id, REJOIN, back))
        self.stack += [
            Entry(back, lanes, back, CALL, payload=function) for function, lanes in reversed(calls) if lanes
        ]
        self._pop()

    def exit(self, lanes: int) -> None:
        """These of the running lanes end."""
        self.live &= ~lanes
        self.mask &= ~lanes
        if any(entry.kind == WAIT for entry in self.stack):
            self._complete_waits()
        if not self.mask:
            self._pop()

    # Waiting

    def arrive(self, key: str, masks: Mapping[int, int]) -> bool:
        """The running split comes to the ``.sync`` instruction at the start of its block; ``masks`` maps each member mask to the
        running lanes that give it. Returns whether the split goes on behind it; else it waits, and another runs (or none)."""
        if len(masks) == 1:
            ((mask, lanes),) = masks.items()
            if not mask & self.live & ~lanes:
                self.hooks.meet(Meeting(mask, mask & self.live, ((self.pc, lanes),)))
                return True
        block = self.pc
        wait = Wait(key, AFTER + block, dict(masks))
        self.stack.append(Entry(block, self.mask, self.id, WAIT, payload=wait))
        self._complete_waits()
        last = self.stack[-1]
        if last.kind != WAIT:
            self.stack.pop()
            return True
        self._choose()
        return False

    def wait(self, resume: int) -> None:
        """The running split waits at a CTA barrier, to go on at block ``resume`` after ``release``; another runs (or none)."""
        self.stack.append(Entry(self.pc, self.mask, self.id, WAIT, payload=Wait(BARRIER, resume)))
        self._choose()

    def gather(self) -> None:
        """The running split comes to the aligned CTA barrier at the end of its block, without all living lanes. It waits for them
        there, and another split runs, or all of them at ``AT_END``, or none: then the warp is blocked."""
        block = self.pc & (AT_WAIT - 1)
        self.stack.append(Entry(block, self.mask, self.id, WAIT, payload=Wait(ALIGNED, AT_END + block)))
        self._complete_waits()
        self._choose()

    def urge(self) -> bool:
        """Nothing else can go on: makes the warp tired. Returns whether that may help."""
        if self.patience.eager or not any(group.arrived(self.live) for group in self._tree().groups()):
            return False
        self.patience.eager = True
        return True

    def release(self, lanes: int) -> None:
        """The splits with these lanes wait no longer at their CTA barrier."""
        for place, entry in enumerate(self.stack):
            if entry.kind == WAIT and entry.payload.key == BARRIER and entry.mask & lanes:
                self.stack[place] = Entry(entry.payload.resume, entry.mask, entry.id, SIDE)
        if not self.mask:
            self._choose()

    def waiting(self) -> Iterator[tuple[int, int, Wait]]:
        """Blocks, lanes and reasons of all splits that wait."""
        for entry in self.stack:
            if entry.kind == WAIT and entry.mask & self.live:
                yield entry.pc, entry.mask & self.live, entry.payload

    def _complete_waits(self) -> None:
        """Carries out every ``.sync`` operation that has all its lanes, and lets splits go on that wait for none any more."""
        places: dict[tuple[str, int], list[int]] = {}
        for place, entry in enumerate(self.stack):
            if entry.kind == WAIT:
                for mask in entry.payload.masks:
                    places.setdefault((entry.payload.key, mask), []).append(place)
        for (_, mask), found in places.items():
            parts = [
                (self.stack[place].pc, self.stack[place].payload.masks[mask] & self.live) for place in found
            ]
            there = 0
            for _, lanes in parts:
                there |= lanes
            if mask & self.live & ~there:
                continue
            if there:
                self.hooks.meet(Meeting(mask, mask & self.live, tuple(part for part in parts if part[1])))
            for place in found:
                entry = self.stack[place]
                del entry.payload.masks[mask]
                if not entry.payload.masks:
                    self.stack[place] = Entry(entry.payload.resume, entry.mask, entry.id, SIDE)
        self._complete_gathering()

    def _complete_gathering(self) -> None:
        """Makes one split of the splits at an aligned barrier, if they are all that live, at one barrier, in one group."""
        waiting = [entry for entry in self.stack if entry.kind == WAIT and entry.payload.key == ALIGNED]
        there = 0
        for entry in waiting:
            there |= entry.mask
        if not waiting or self.live & ~there or len({entry.pc for entry in waiting}) > 1:
            return
        for group in self._tree().groups():
            if all(any(member is entry for member in group.members) for entry in waiting):
                first = next(place for place, entry in enumerate(self.stack) if entry is waiting[0])
                self.stack[first] = Entry(waiting[0].payload.resume, there, waiting[0].id, SIDE)
                self.stack = [entry for entry in self.stack if not any(entry is other for other in waiting)]

    def others_can_run(self) -> bool:
        """Whether another split than the running one is ready to run."""
        return any(entry.kind in (SIDE, CALL) and entry.mask & self.live for entry in self.stack)

    # Choosing who runs

    def take_turns(self) -> None:
        """The running split lets others of the warp go on, if any can; see the module's text."""
        if self.pc == self.id:
            self._pop()
        root = self._tree()
        path = root.path()
        tired = self.patience.tired()
        for inner, outer in zip(path[:0:-1], path[-2::-1]):
            if tired and inner.arrived(self.live):
                self._let_leave(inner, outer)
                self._adopt(root)
                return
        for group in path:
            group.members.insert(0, group.members.pop())
        self._activate(root)
        self._adopt(root)

    def _pop(self) -> None:
        """The next split on the stack runs."""
        while self.stack:
            entry = self.stack.pop()
            lanes = entry.mask & self.live
            if entry.kind == FRAME:
                self.frames -= 1
            if not lanes:
                continue
            if entry.kind == WAIT:
                self.stack.append(entry)
                self._choose()
                return
            self._run(entry, lanes)
            if self.pc != self.id:
                return
        self.mask = 0

    def _run(self, entry: Entry, lanes: int) -> None:
        self.pc, self.mask, self.id = entry.pc, lanes, entry.id
        self.kept = entry.payload if entry.kind == SIDE else None
        if entry.kind == FRAME:
            self.kept = self.hooks.leave(entry.payload, lanes, False)
        elif entry.kind == CALL:
            callee, first, payload = self.hooks.enter(entry.payload, lanes)
            self.call(callee, first, entry.pc, payload)

    def _choose(self) -> None:
        """No split runs: finds the next, from the innermost group outwards."""
        self.mask = 0
        root = self._tree()
        path = root.path()
        for group in reversed(path):
            if group.can_run(self.live):
                self._activate(group)
                break
        else:
            if not self.patience.left and any(wait.key == ALIGNED for _, _, wait in self.waiting()):
                return
            if not self._leave_innermost(root):
                return
        self._adopt(root)

    def _leave_innermost(self, group: Group) -> bool:
        """Lets the arrived lanes of the innermost group that has any leave it, top members first."""
        for place in range(len(group.members) - 1, -1, -1):
            member = group.members[place]
            if not isinstance(member, Group):
                continue
            if self._leave_innermost(member):
                group.members[place + 1 :], group.members[:0] = [], group.members[place + 1 :]
                return True
            if member.arrived(self.live):
                group.members[place + 1 :], group.members[:0] = [], group.members[place + 1 :]
                self._let_leave(member, group)
                return True
        return False

    def _activate(self, group: Group) -> None:
        """Brings a split that can run to the top; there is one."""
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
        self.patience.left = True
        group.entry = entry._replace(mask=entry.mask & ~lanes)
        kept = self.hooks.leave(entry.payload, lanes, True) if entry.kind == FRAME else None
        outer.members.append(Entry(entry.pc, lanes, entry.id, SIDE, payload=kept))

    def _tree(self) -> Group:
        """The stack and, if a split runs, that split on top, as groups."""
        running = Entry(self.pc, self.mask, self.id, SIDE, payload=self.kept)
        return grow([*self.stack, running] if self.mask else self.stack)

    def _adopt(self, root: Group) -> None:
        """The tree becomes the stack, and its topmost split runs."""
        self.stack = list(root.flat())
        self._pop()
