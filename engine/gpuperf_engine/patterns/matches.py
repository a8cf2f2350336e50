"""The result of the families of fine-grained patterns: a match in a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Match"]


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
