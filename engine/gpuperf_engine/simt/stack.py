"""The SIMT stack of one warp: the program counters of its lanes, and the rules by which they diverge, converge, wait and yield.

It is independent of registers and memory; blocks are numbers and lanes are bits of an ``int``. The reference backend and
warp classes use this class; the LLVM backend implements the same operations in compiled code (``jit.runtime.stack_entries``).

**State.** ``(pc, mask, id)`` is the running path: its block, its lanes, and its reconvergence point. ``id`` is a
block index, or negative for the exit of the running function (``-1`` in the kernel). ``live`` are the lanes that have not
exited. An entry of the stack is one of

``RECONVERGE``    ``pc`` is a reconvergence point; ``mask`` are all lanes that reach it, ``id`` is their next reconvergence point.
``CALL_FRAME``    of a call: ``pc`` is the block after it, ``mask`` the lanes that called, ``id`` the caller's; ``group`` is the
                  callee's exit.
``PENDING``       a path that still has to run from ``pc`` to its ``id``.
``PENDING_CALL``  lanes that still have to make an indirect call (``payload`` is the callee), returning to ``pc``.
``WAIT``          a path that waits inside block ``pc`` for other lanes (``payload``: for which), and then runs to its ``id``.

A ``RECONVERGE`` or ``CALL_FRAME`` opens a *group*: the entries above it whose ``id`` is its ``group`` (of a ``RECONVERGE``: its
``pc``), including nested groups. The running path belongs to the innermost group, the one at the top. Lanes of a group's
entry that are in none of its members have *arrived*.

**Branch** with reconvergence point J. If lanes diverge: unless ``id`` is J, push ``RECONVERGE (J, mask, id)``.
The paths are pushed so that the first runs now and the others are popped in order; lanes whose target is J itself
wait there (no entry). The point ``EXIT`` opens no group: the paths belong to the current one, and lanes whose target is
``EXIT`` have arrived.

**Reaching** ``id`` pops the next entry. Lanes that have exited are removed from popped masks; empty entries are dropped. An entry
whose ``pc`` is its own ``id`` has arrived too and is dropped. Paths never merge with one another, only in their group's entry.

**Waiting** (``arrive``). At a ``.sync`` instruction with member mask M, all live lanes of M must be present: in this path, or
waiting with the same M at an instruction with the same key (``effects.convergence_key``). Then they *converge*: the operation is
executed for all of them; a path continues when the operations of all of its lanes have been executed (lanes of one path may have
different masks). Otherwise the path waits and another one runs: in the innermost group with a member that can run, the topmost such
member; those above it move to the bottom in order. A member can run if it is not a ``WAIT``; a group, if a member can. If there is
none, the arrived lanes of the innermost group with such lanes leave it (below). Lanes that exit may complete the mask of waiting
lanes.

**Leaving early.** Arrived lanes that leave a group become a path ``(pc, arrived, id)`` of the group's entry, on top of the
group; the entry keeps its other lanes. For a ``CALL_FRAME`` this is their return.

**Switching paths** (``switch_path``), when the quantum is used up in a loop that may wait for other lanes. In every group around
the running path the top member moves to the bottom, and from the outermost group inwards the topmost member that can run is
chosen, so that every path gets a time slice. But if the warp *yields*, and a group around the running path has arrived lanes, those
of the innermost such group leave it and run instead, as they may hold a lock. A warp yields after ``YIELD_THRESHOLD`` such
slices, or once the schedule has detected that nothing else can run (``force_yield``); so lanes stay converged if waiting for other
warps suffices.

**mbarriers** (manual: "mbarrier.try_wait"). At a wait whose phase is incomplete, the warp switches to another path that can run. If
there is none, it is suspended until a phase of an mbarrier of its CTA completes. ``schedule`` describes when waits expire.

**Gathering** (``gather``). An aligned CTA barrier needs all live lanes in one path. A path that arrives without the others waits; when
all live lanes wait at that barrier, in one group, they become one path. So paths converge that an early return has kept apart, and
lanes that have left a group early. If only lanes that would leave a group early can run, they do not leave, unless some have left
before. When nothing else in the CTA can run (``schedule``), the paths arrive separately (``arrive_diverged``), which violates the rule
``aligned-barrier`` (``isa.rules``); GPUs count the threads in this case.
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

#: time slices after which arrived lanes no longer wait for spinning lanes
YIELD_THRESHOLD = 256
#: log2 of the factor by which time slices are then shortened, as lanes that depend on each other progress faster with short ones
SLICE_SHIFT = 4


@dataclass(slots=True)
class Yielding:
    """How long arrived lanes of a warp wait for spinning lanes: ``slices`` is the number of time slices that ended in a loop that
    may wait; ``yields``: arrived lanes may leave; ``left_early``: some have left a group early."""

    slices: int = 0
    yields: bool = False
    left_early: bool = False

    def end_slice(self) -> bool:
        """Count a time slice that ended in a loop that may wait. Returns whether arrived lanes may leave now."""
        self.slices += 1
        self.yields = self.yields or self.slices > YIELD_THRESHOLD
        return self.yields

    @property
    def slice_shift(self) -> int:
        """log2 of the factor by which time slices are shortened."""
        return SLICE_SHIFT if self.yields else 0


class Convergence(NamedTuple):
    """A ``.sync`` instruction that is executed: the lanes ``participants`` of ``mask``, by path: ``(block, lanes)``."""

    mask: int
    participants: int
    paths: tuple[tuple[int, int], ...]


class Hooks(Protocol):
    """Callbacks of the stack to the owner of the registers."""

    def converge(self, convergence: Convergence) -> None:
        """Execute a ``.sync`` operation for all paths."""

    def enter(self, function: Any, lanes: int) -> tuple[int, int, Any]:
        """Lanes make a pending indirect call. Returns the callee's number and first block, and the payload of its call frame."""

    def leave(self, payload: Any, lanes: int, others: bool) -> Any:
        """Lanes return through a call frame with that payload; ``others``: other lanes of the call have not returned yet. Returns the
        work that remains when they run, or ``None``."""


class SimtStack:
    """The paths of one warp. ``mask`` is 0 if no path runs: then the warp is ``done`` or blocked (all paths wait)."""

    __slots__ = ("call_depth", "entries", "hooks", "id", "kept", "live", "mask", "pc", "yielding")

    def __init__(self, pc: int, lanes: int, hooks: Hooks, yielding: Yielding | None = None) -> None:
        self.pc = pc
        self.mask = lanes
        self.id = EXIT
        self.live = lanes
        self.entries: list[Entry] = []
        self.call_depth = 0
        #: the result of ``Hooks.leave`` for the running path
        self.kept: Any = None
        self.hooks = hooks
        self.yielding = yielding if yielding is not None else Yielding()

    @property
    def done(self) -> bool:
        """All lanes have exited."""
        return not self.live

    @property
    def blocked(self) -> bool:
        """There are live lanes, but all of them wait for others."""
        return not self.mask and bool(self.live)

    def state(self) -> tuple[object, ...]:
        """The state, without registers and memory, on which the continuation of the warp depends, for comparing."""
        waits = [
            (entry.payload.key, tuple(sorted(entry.payload.masks.items())))
            for entry in self.entries
            if entry.kind == WAIT
        ]
        running = (self.pc, self.mask, self.id) if self.mask else ()
        yielding = self.yielding.yields, self.yielding.left_early
        return running, self.live, tuple(entry[:5] for entry in self.entries), tuple(waits), yielding

    # Control flow of the running path

    def jump(self, target: int) -> None:
        """Move all lanes to a block (or ``EXIT``)."""
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
        """All lanes call function number ``callee``, whose first block is ``entry``, and continue at block ``back`` afterwards."""
        group = EXIT - callee
        open_groups = {entry.group for entry in self.entries if entry.kind == CALL_FRAME}
        if group in open_groups:  # a recursive activation
            group = min(open_groups) - 1
        self.entries.append(Entry(back, self.mask, self.id, CALL_FRAME, group, payload))
        self.call_depth += 1
        self.pc, self.id = entry, group

    def call_each(self, calls: Sequence[tuple[object, int]], back: int) -> None:
        """An indirect call: ``(function, lanes)`` in order of the candidates, the function as for ``Hooks.enter``. The calls run
        one by one and converge at ``back``, in a separate group."""
        self.entries.append(Entry(back, self.mask, self.id, RECONVERGE, back))
        self.entries += [
            Entry(back, lanes, back, PENDING_CALL, payload=function)
            for function, lanes in reversed(calls)
            if lanes
        ]
        self._pop()

    def exit(self, lanes: int) -> None:
        """Some of the running lanes exit."""
        self.live &= ~lanes
        self.mask &= ~lanes
        if any(entry.kind == WAIT for entry in self.entries):
            self._complete_waits()
        if not self.mask:
            self._pop()

    # Waiting

    def arrive(self, key: str, masks: Mapping[int, int]) -> bool:
        """The running path reaches the ``.sync`` instruction at the start of its block; ``masks`` maps each member mask to the running
        lanes with it. Returns whether the path continues after it; otherwise it waits, and another one runs (or none)."""
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
        """The running path waits at a CTA barrier, and continues at block ``resume`` after ``release``; another one runs (or none)."""
        self.entries.append(Entry(self.pc, self.mask, self.id, WAIT, payload=Wait(BARRIER, resume)))
        self._choose()

    def gather(self) -> None:
        """The running path reaches the aligned CTA barrier at the end of its block, without all live lanes. It waits for them, and
        another path runs, or all of them at ``AT_END``, or none if the warp is blocked."""
        block = self.pc & (AT_WAIT - 1)
        self.entries.append(Entry(block, self.mask, self.id, WAIT, payload=Wait(ALIGNED, AT_END + block)))
        self._complete_waits()
        self._choose()

    def arrive_diverged(self, arrive: Callable[[int, int], tuple[int, bool]]) -> bool:
        """The paths at aligned CTA barriers stop waiting for the rest of the warp. ``arrive`` receives the block and the lanes of
        each, and returns the block where they continue, and whether they wait. Returns whether there was one."""
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
        """Make the warp yield from now on, as nothing else can run. Returns whether this may make progress."""
        if self.yielding.yields or not any(group.arrived(self.live) for group in self._tree().groups()):
            return False
        self.yielding.yields = True
        return True

    def release(self, lanes: int) -> None:
        """Release the paths with these lanes from their CTA barrier."""
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
        """Execute every ``.sync`` operation whose lanes are all present, and release paths without outstanding operations."""
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
            present = 0
            for _, lanes in paths:
                present |= lanes
            if mask & self.live & ~present:
                continue
            if present:
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
        """Merge the paths at an aligned barrier, if they contain all live lanes, at one barrier and in one group."""
        waiting = [entry for entry in self.entries if entry.kind == WAIT and entry.payload.key == ALIGNED]
        present = 0
        for entry in waiting:
            present |= entry.mask
        if not waiting or self.live & ~present or len({entry.pc for entry in waiting}) > 1:
            return
        for group in self._tree().groups():
            if all(any(member is entry for member in group.members) for entry in waiting):
                first = next(index for index, entry in enumerate(self.entries) if entry is waiting[0])
                self.entries[first] = Entry(waiting[0].payload.resume, present, waiting[0].id, PENDING)
                self.entries = [
                    entry for entry in self.entries if not any(entry is other for other in waiting)
                ]

    def others_can_run(self) -> bool:
        """Whether a path other than the running one can run."""
        return any(entry.kind in (PENDING, PENDING_CALL) and entry.mask & self.live for entry in self.entries)

    # Choice of the running path

    def switch_path(self) -> None:
        """Switch to another path of the warp, if any can run; see the module's docstring."""
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
        """Run the next path on the stack."""
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
        """Choose the next path if none runs, from the innermost group outwards."""
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
        """Let the arrived lanes of the innermost group that has any leave it; searches top members first."""
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
        """Move a path that can run to the top; there must be one."""
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
        """Flatten the tree to the stack, and run its topmost path."""
        self.entries = list(root.flat())
        self._pop()
