"""What families of fine-grained patterns have in common: their thresholds, and what they say of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Match", "Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as a pattern. ``frequent`` and ``distinct`` are those of GVProf, ValueExpert's implementation: half of the elements,
    and no more different values than a tenth of them.

    ``accesses``: an instruction that accesses fewer elements of an object is passed over. ``frequent``: part of the accesses that one
    value must have. ``distinct``: different values that a dictionary may have, as a part of the accesses and of the elements, and
    ``dictionary`` as a number. ``fits``: part of the accesses that must be on a line; ``line``: different values that they must have.
    ``mantissa``: bits to which approximate values must agree. ``silent``: part of the stores that must be silent.
    """

    accesses: int = 64
    frequent: float = 0.5
    distinct: float = 0.1
    dictionary: int = 256
    fits: float = 1.0
    line: int = 16
    mantissa: int = 10
    silent: float = 1 / 3


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern in a record: ``fraction`` of its accesses show it; ``text`` ends the message; ``waste`` are the bytes that need not be
    moved."""

    rule: str
    fraction: float
    text: str
    waste: int
    advice: str
    severity: str = "fail"
    evidence: Mapping[str, Any] = field(default_factory=dict)
