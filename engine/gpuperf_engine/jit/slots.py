"""Host memory of the CTAs and clusters in flight."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..simt.faults import Waiting
from .host_arrays import address_of
from .ir.abi import Cta, Presence

__all__ = ["Group", "Slot", "Warp"]


class Warp(Protocol):
    """A warp of a CTA in flight, for the events that compiled code leaves to Python; see ``slow_path``."""

    def header(self, offset: int) -> int:
        """A field of the warp's state, unsigned."""
        ...

    def attend(self, status: int) -> None:
        """Handle the event for which the warp left compiled code."""
        ...

    def refuse_diverged(self) -> None:
        """Raise the error of lanes at aligned barriers that must arrive without the rest of the warp, in code that cannot count
        them."""
        ...

    def force_yield(self) -> bool:
        """Make the warp yield from now on. Returns whether it did not before."""
        ...

    def waiting(self) -> Iterable[Waiting]:
        """Where its lanes are or wait."""
        ...


@dataclass(eq=False)
class Slot:
    """Memory of one CTA in flight, and its warps that Python has handled."""

    record: NDArray[np.uint8]
    states: NDArray[np.uint8]
    shared: NDArray[np.uint8]
    local: NDArray[np.uint8]
    #: saved state of calls in recursive functions, shape (warps, ``CAPACITY``, bytes)
    areas: NDArray[np.uint8]
    #: its tensor memory; empty if the program uses none
    tensor: NDArray[np.uint8]
    #: clocks and shadow of the race detector, for the duration of a launch; empty if races are not checked
    races: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    warps: dict[int, Warp] = field(default_factory=dict)
    #: the cluster of the CTA, if it runs in one
    group: Group | None = None
    #: host address of the record
    address: int = field(init=False)
    #: bytes of host memory that are its own
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.address = address_of(self.record)
        arrays = self.record, self.states, self.shared, self.local, self.areas, self.tensor
        self.bytes = sum(array.nbytes for array in arrays)

    def get(self, offset: int) -> int:
        """A field of the CTA record."""
        return int(struct.unpack_from("<q", self.record, offset)[0])

    def put(self, offset: int, value: int) -> None:
        """Set a field of the CTA record."""
        struct.pack_into("<q", self.record, offset, value)

    def end(self) -> None:
        """The CTA has ended: drop its warps."""
        self.warps.clear()


@dataclass(eq=False)
class Group:
    """Memory of one cluster in flight: its record, and the slots of its CTAs by rank."""

    record: NDArray[np.uint8]
    slots: list[Slot]

    def get(self, offset: int) -> int:
        """A field of the record."""
        return int(struct.unpack_from("<q", self.record, offset)[0])

    def put(self, offset: int, value: int) -> None:
        """Set a field of the record."""
        struct.pack_into("<q", self.record, offset, value)

    @property
    def left(self) -> list[Slot]:
        """The slots of CTAs that have not ended."""
        return [slot for slot, state in zip(self.slots, self.states) if state != Presence.ENDED]

    @property
    def states(self) -> list[int]:
        """The ``Presence`` of each CTA."""
        return [slot.get(Cta.PRESENCE) for slot in self.slots]
