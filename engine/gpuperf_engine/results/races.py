"""Races of a launch, and the error that ``races="error"`` raises for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import RaceError
from .cxx_names import readable_name

__all__ = ["LAUNCH_END", "PROXY_FENCE", "Race", "RaceAccess", "race_error"]

#: what ``Race.missing`` may be
PROXY_FENCE, LAUNCH_END = "fence.proxy.async", "end of the launch"


@dataclass(frozen=True, slots=True)
class RaceAccess:
    """One side of a race: the position in the PTX text (``file:line:column``), that in the source (``file:line``, ``""`` without
    ``.loc``), the opcode, and the indices of the block and of the thread in it."""

    location: str
    source: str
    opcode: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    @property
    def place(self) -> str:
        """``softmax.cu:12 (softmax.ptx:88:2)``."""
        return f"{self.source} ({self.location})" if self.source else self.location

    def __str__(self) -> str:
        return f"{self.opcode or 'the access'} by thread {self.thread} of block {self.block}"


@dataclass(frozen=True, slots=True)
class Race:
    """Two unordered accesses of different warps to the same memory, at least one of which is a store.

    ``kind``: ``RAW`` if the later one, in the order in which they ran here, reads what the other stores, ``WAR`` if it stores what
    the other has read, ``WAW`` if both store; for blocks that cannot wait for one another, in the order of their numbers.
    ``object`` is a variable or an argument, with the offset in bytes; ``address`` the address in the state space; ``count`` the
    number of such conflicts of these two instructions in shared memory. The threads are those of the first occurrence in the first
    blocks. ``missing``: the missing fence if the accesses are ordered, but the later one uses another proxy
    (``fence.proxy.async``); ``end of the launch`` if it reads through a texture or surface what the same launch, or even the same
    thread, has stored; otherwise ``""``. ``nearby``: the two warps conflict, but of at least one of them only its last access of
    the same 64 bytes is known: another of its threads or instructions may be the one that conflicts.
    """

    kind: str
    space: str
    object: str
    address: int
    first: RaceAccess
    second: RaceAccess
    count: int = 1
    missing: str = ""
    nearby: bool = False

    @property
    def message(self) -> str:
        """One line: where, what, and who."""
        did = {"RAW": "reads what", "WAR": "stores to what", "WAW": "stores to what"}[self.kind]
        done = "has read" if self.kind == "WAR" else "has stored"
        other = f"{self.first} at {self.first.place} {done}"
        if self.first.block == self.second.block:
            other = other.replace(f" of block {self.first.block}", "", 1)
        return (
            f"{self.second.place}: race on {self.space} memory ({self.kind}): {self.second} {did} {other}, at {self.object}, "
            f"with {f'no {self.missing} between' if self.missing else 'nothing between that orders them'}"
            + (", or by other threads or instructions of these warps near there" if self.nearby else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


_HINTS = {
    "": "order them (a barrier, or a fence and a flag), or make both accesses atomic",
    PROXY_FENCE: "execute fence.proxy.async after the stores and before the barrier that orders them before the reads",
    LAUNCH_END: "read it with a plain load, or through the texture or surface in a later launch",
}


def race_error(kernel: str, races: Sequence[Race]) -> RaceError:
    """The error that ``races="error"`` raises."""
    more = [race.message for race in races[1:3]]
    if len(races) > 3:
        more.append(f"and {len(races) - 3} more")
    return RaceError(
        races[0].message,
        details=[f"kernel {readable_name(kernel)}", *more],
        hint=_HINTS[races[0].missing],
    )
