"""A recorded program without its device, as the input of patterns and the value flow graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray
from ..results import ProvenValues, ValueRecord
from .events import Event
from .thresholds import Thresholds

__all__ = ["Program", "RecordedProgram"]


class Program(Protocol):
    """What a device has recorded. ``arrays``: of modules no variables; ``origins``: numbers of the events that allocated arrays,
    ``ends``: of those that followed when they were freed; ``carried``: what launches accessed, by the numbers of their events, and
    ``proven``: what warp classes prove of that; ``observed_all``: whether later steps were recorded too."""

    @property
    def observe(self) -> frozenset[str]: ...
    @property
    def thresholds(self) -> Thresholds: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def arrays(self) -> Sequence[DeviceArray]: ...
    @property
    def origins(self) -> Mapping[Allocation, int]: ...
    @property
    def ends(self) -> Mapping[Allocation, int]: ...
    @property
    def carried(self) -> Mapping[int, tuple[ValueRecord, ...]]: ...
    @property
    def proven(self) -> Mapping[int, tuple[ProvenValues, ...]]: ...
    @property
    def observed_all(self) -> bool: ...

    def untouched(self, allocation: Allocation) -> tuple[int, int]:
        """Bytes of an object that nobody has read or written, and bytes that were written and that nobody has read."""

    def never_read(self, allocation: Allocation) -> Mapping[int, int]:
        """By the number of the event that wrote them last the bytes of an object that nobody has ever read."""


@dataclass(frozen=True)
class RecordedProgram:
    """See ``Program``. ``left`` and ``lost``: the results of ``untouched`` and ``never_read``."""

    observe: frozenset[str]
    thresholds: Thresholds
    events: Sequence[Event]
    arrays: Sequence[DeviceArray]
    origins: Mapping[Allocation, int]
    ends: Mapping[Allocation, int] = field(default_factory=dict)
    carried: Mapping[int, tuple[ValueRecord, ...]] = field(default_factory=dict)
    left: Mapping[Allocation, tuple[int, int]] = field(default_factory=dict)
    lost: Mapping[Allocation, Mapping[int, int]] = field(default_factory=dict)
    observed_all: bool = True
    proven: Mapping[int, tuple[ProvenValues, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> RecordedProgram:
        """The program that a device has recorded so far, without host memory that was never accessed."""
        touched = {array.allocation for event in program.events for array in event.objects}
        touched |= {use.array.allocation for event in program.events for use in event.uses}
        arrays = [item for item in program.arrays if not item.allocation.host or item.allocation in touched]
        own = [item for item in arrays if not item.allocation.host]
        return cls(
            program.observe,
            program.thresholds,
            tuple(program.events),
            tuple(arrays),
            dict(program.origins),
            dict(program.ends),
            dict(program.carried),
            {item.allocation: program.untouched(item.allocation) for item in own},
            {item.allocation: program.never_read(item.allocation) for item in own},
            program.observed_all,
            dict(program.proven),
        )

    def untouched(self, allocation: Allocation) -> tuple[int, int]:
        return self.left.get(allocation, (0, 0))

    def never_read(self, allocation: Allocation) -> Mapping[int, int]:
        return self.lost.get(allocation, {})

    def without(self, events: Collection[Event]) -> RecordedProgram:
        """The program without some of its events."""
        removed = {id(event) for event in events}
        return replace(self, events=tuple(event for event in self.events if id(event) not in removed))
