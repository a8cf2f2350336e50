"""The entries of a SIMT stack, and its tree of groups (see ``stack``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    "WAIT",
    "Entry",
    "Group",
    "Wait",
    "can_run",
    "grow",
]

#: As a target: the exit of the running function.
EXIT = -1
#: ``pc = AFTER + block``: continue in that block after its first instruction, which has been executed
AFTER = 1 << 30
#: ``pc = AT_END + block``: continue at the terminator of that block, a CTA barrier
AT_END = 1 << 29
#: ``pc = AT_WAIT + block``: continue at the mbarrier wait at the start of that block, which has been counted
AT_WAIT = 1 << 28
#: keys of waits at CTA barriers: of a path at an unaligned one, and for the rest of the warp at an aligned one
BARRIER, ALIGNED = "barrier", "aligned barrier"

RECONVERGE, PENDING, CALL_FRAME, PENDING_CALL, WAIT = range(5)


class Entry(NamedTuple):
    """One entry of the stack; see ``stack``. ``group`` is only used for ``RECONVERGE`` and ``CALL_FRAME``."""

    pc: int
    mask: int
    id: int
    kind: int
    group: int = 0
    payload: Any = None


@dataclass(slots=True)
class Wait:
    """What a ``WAIT`` entry waits for. ``key`` is that of a ``.sync`` instruction (``effects.convergence_key``) and ``masks``
    maps member masks to the lanes that have them and still wait; at a CTA barrier ``key`` is ``BARRIER``, and the schedule
    ends the wait, or ``ALIGNED``. ``resume`` is the block where the path continues."""

    key: str
    resume: int
    masks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group in the tree of a stack; the root has no entry."""

    entry: Entry | None
    id: int
    members: list[Group | Entry] = field(default_factory=list)

    def lanes(self) -> int:
        """All lanes of its members."""
        lanes = 0
        for member in self.members:
            lanes |= member.mask if isinstance(member, Entry) else member.entry.mask if member.entry else 0
        return lanes

    def arrived(self, live: int) -> int:
        return self.entry.mask & live & ~self.lanes() if self.entry is not None else 0

    def can_run(self, live: int) -> bool:
        return any(can_run(member, live) for member in self.members)

    def groups(self) -> Iterator[Group]:
        """This group and all nested groups."""
        yield self
        for member in self.members:
            if isinstance(member, Group):
                yield from member.groups()

    def flat(self) -> Iterator[Entry]:
        """The entries of the stack, bottom first."""
        if self.entry is not None:
            yield self.entry
        for member in self.members:
            if isinstance(member, Group):
                yield from member.flat()
            else:
                yield member

    def innermost_chain(self) -> list[Group]:
        """This group and its topmost nested groups, outermost first."""
        chain = [self]
        while chain[-1].members and isinstance(chain[-1].members[-1], Group):
            chain.append(chain[-1].members[-1])
        return chain


def can_run(node: Group | Entry, live: int) -> bool:
    """Whether a member is not a ``WAIT``, or a group with a member that can run."""
    if isinstance(node, Group):
        return node.can_run(live)
    return node.kind != WAIT and bool(node.mask & live)


def grow(entries: Sequence[Entry]) -> Group:
    """The root of the tree of a stack, bottom first. An entry belongs to the innermost group whose ``id`` is its own."""
    root = Group(None, EXIT)
    open_groups = [root]
    for entry in entries:
        while open_groups[-1].id != entry.id and len(open_groups) > 1:
            open_groups.pop()
        if entry.kind in (RECONVERGE, CALL_FRAME):
            group = Group(entry, entry.group)
            open_groups[-1].members.append(group)
            open_groups.append(group)
        else:
            open_groups[-1].members.append(entry)
    return root
