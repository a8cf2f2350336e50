"""Value patterns that a program has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding", "Traffic", "added_traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The needless traffic of one step of a program: ``step`` is the number of its event; ``loads`` and ``stores`` are shares (0 to
    1) of the bytes that a launch loads from and stores to global memory, ``copied`` are bytes of a copy or memset, and ``way`` is
    the ``kind`` of its event; a step without other effects is needless as a ``whole``."""

    step: int
    loads: float = 0.0
    stores: float = 0.0
    copied: int = 0
    whole: bool = False
    way: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One value pattern.

    ``rule`` is e.g. ``redundant-values``; ``object`` the name of the allocation; ``call`` the source line's text with an
    ordinal among equals; ``path``/``line`` the position of that call; ``kernel`` the kernel if the call is a launch. ``severity``
    is ``fail`` or ``note``; ``waste`` the bytes of needless traffic, in all ``calls`` in which it was found; ``advice`` the remedy;
    ``steps`` the numbers of the events in which it was found. ``traffic`` is the traffic that the remedy saves, in these steps and
    in those that load the values; ``implied_by`` the identity of a stronger finding from which it follows.

    Its identity has the ``rule``; the ``site`` that allocates the object, a source line's text and its function with an ordinal
    among equals (or the object's name if it has no site); the ``call``; the ``instruction`` for a finding of one; and the kernel.
    None of these change when lines are added elsewhere.
    """

    rule: str
    object: str
    call: str
    message: str
    severity: str = "fail"
    path: str = ""
    line: int = 0
    kernel: str = ""
    waste: int = 0
    calls: int = 1
    advice: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    site: str = ""
    instruction: str = ""
    steps: tuple[int, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    implied_by: str = ""

    @property
    def identity(self) -> str:
        """One line that is unique among the findings of the program: ``redundant-values | out = gpuperf.zeros(8) in test_fill |
        fill[1, 8](out) | of fill``."""
        return f"{self.of_case} | of {self.kernel}" if self.kernel else self.of_case

    @property
    def of_case(self) -> str:
        """The same among the findings of one kernel, as its baseline holds it."""
        call = "" if self.site == self.call or self.site.startswith(f"{self.call} in ") else self.call
        parts = self.rule, self.site or self.object, call, self.instruction
        return " | ".join(part for part in parts if part)


def added_traffic(traffic: Iterable[Traffic]) -> tuple[Traffic, ...]:
    """One for each step, with the sums; no share is more than 1."""
    steps: dict[int, Traffic] = {}
    for item in traffic:
        known = steps.get(item.step, Traffic(item.step))
        steps[item.step] = Traffic(
            item.step,
            min(1.0, known.loads + item.loads),
            min(1.0, known.stores + item.stores),
            known.copied + item.copied,
            known.whole or item.whole,
            known.way or item.way,
        )
    return tuple(steps.values())
