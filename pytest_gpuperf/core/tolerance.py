"""Tolerances of metrics: ``0``, ``2%``, ``+5``, ``2%&0.5us``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Tolerance", "parse_tolerance"]

_TERM = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|[A-Za-zµ]*)\s*")


@dataclass(frozen=True, slots=True)
class _Term:
    sign: str
    amount: float
    relative: bool

    def exceeded(self, old: float, new: float) -> bool:
        delta = new - old
        allowed = abs(old) * self.amount / 100.0 if self.relative else self.amount
        if self.sign and (delta < 0) != (self.sign == "-"):
            allowed = 0.0
        # a difference equal to the tolerance is allowed, despite the rounding of binary fractions
        return abs(delta) > allowed and not math.isclose(abs(delta), allowed, rel_tol=1e-12)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An allowed difference. ``text`` is as written; of several terms a difference must exceed all to count."""

    text: str
    terms: tuple[_Term, ...]

    def exceeded(self, old: float, new: float) -> bool:
        """Whether going from ``old`` to ``new`` is more than this allows."""
        return old != new and all(term.exceeded(old, new) for term in self.terms)


def parse_tolerance(text: object, unit: str | None = None) -> Tolerance:
    """Reads a tolerance: terms joined by ``&``, each a number, relative with ``%``, else absolute in the metric's unit
    (which may be written behind it); ``+`` or ``-`` allows a difference in that direction only.

    Raises ``ValueError`` with a sentence for people.
    """
    return _parsed(str(text).strip(), isinstance(text, bool), unit)


@lru_cache(maxsize=1024)
def _parsed(written: str, refused: bool, unit: str | None) -> Tolerance:
    terms = []
    for part in written.split("&"):
        match = _TERM.fullmatch(part)
        if match is None or refused:
            raise ValueError(f"tolerance {written!r} is not valid: write 0, 2%, +5 or 2%&0.5us")
        sign, number, suffix = match.groups()
        suffix = suffix.replace("µs", "us")
        if suffix not in ("", "%") and unit is not None and suffix != unit:
            raise ValueError(
                f"tolerance {written!r} has the unit {suffix!r}, the metric has {unit or 'none'!r}"
            )
        terms.append(_Term(sign, float(number), suffix == "%"))
    return Tolerance(written, tuple(terms))
