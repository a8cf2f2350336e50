"""A piece: the integer points of a box with inequalities, for all of which warps execute the same instructions.

Symbols are numbered; those of a box are 0 … n−1. Pieces are immutable; cutting returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .linear import Linear, primitive, substituted, times
from .points import Budget, Inequality, count, is_empty

__all__ = ["Condition", "Piece", "Region"]

#: Σ cᵢ·sᵢ + constant ≥ 0
Condition = tuple[Linear, int]
#: additional symbols with their limits: 0 ≤ k ≤ limit (a form of the preceding symbols)
Region = tuple[tuple[int, Linear, int], ...]
#: rounds of tightening a box by conditions
_PASSES = 6


class Piece:
    """``box`` holds inclusive ranges; ``lower`` maps a primitive linear form of several unfixed symbols to its lower bound.
    ``budget`` limits the counting of points of this piece and of all pieces cut from it."""

    __slots__ = ("_ranges", "_weight", "box", "budget", "lower")

    def __init__(
        self,
        box: Sequence[tuple[int, int]],
        conditions: Iterable[Condition] = (),
        budget: Budget | None = None,
    ) -> None:
        self.box = list(box)
        self.budget = budget or Budget()
        self.lower: dict[Linear, int] = {}
        self._ranges: dict[Linear, tuple[int, int]] = {}
        self._weight: int | None = None
        self._tighten(list(conditions))

    def _tighten(self, conditions: list[Condition]) -> None:
        """Add conditions, and tighten the box until nothing changes, at most ``_PASSES`` times."""
        box = self.box
        for _ in range(_PASSES):
            changed = set()
            for condition in conditions:
                tightened = self._add(*condition)
                if tightened is None:
                    self._weight = 0
                    return
                changed |= tightened
            if not changed:
                return
            # conditions with a changed symbol may now be implied, or tighten the box further
            again = [item for item in self.lower.items() if any(s in changed for s, _ in item[0])]
            conditions = [(form, -least) for form, least in again]
        for form in [form for form in self.lower if any(box[s][0] == box[s][1] for s, _ in form)]:
            if self._add(form, -self.lower[form]) is None:
                self._weight = 0

    def _add(self, linear: Linear, constant: int) -> set[int] | None:
        """Add a condition unless the box implies it. Returns the symbols that it tightens, ``None`` if it never holds."""
        box = self.box
        constant = min(constant, -self.lower.get(linear, -constant))
        free = []
        for s, c in linear:
            low, high = box[s]
            if low == high:
                constant += c * low
            else:
                free.append((s, c))
        if len(free) < len(linear):
            self.lower.pop(linear, None)
        if not free:
            return None if constant < 0 else set()
        form, common = primitive(tuple(free))
        least = -(constant // common)
        most = bottom = 0
        for s, c in form:
            low, high = box[s]
            most += c * (high if c > 0 else low)
            bottom += c * (low if c > 0 else high)
        if most < least:
            return None
        if bottom >= least:
            if self.lower.get(form, bottom) <= bottom:
                self.lower.pop(form, None)
            return set()
        changed = set()
        for s, c in form:
            low, high = box[s]
            if c > 0 and high - (most - least) // c > low:
                box[s] = (high - (most - least) // c, high)
                changed.add(s)
            elif c < 0 and low + (most - least) // -c < high:
                box[s] = (low, low + (most - least) // -c)
                changed.add(s)
        if len(form) > 1 and self.lower.get(form, least) <= least:
            self.lower[form] = least
        return changed

    def cut(self, conditions: Sequence[Condition]) -> Piece:
        """The part where the conditions hold as well."""
        piece = Piece.__new__(Piece)
        piece.box, piece.budget = list(self.box), self.budget
        piece.lower = dict(self.lower)
        piece._ranges = {}
        piece._weight = None
        piece._tighten(list(conditions))
        return piece

    def range(self, linear: Linear) -> tuple[int, int]:
        """Bounds of a form on the piece: from the box and from parallel inequalities."""
        known = self._ranges.get(linear)
        if known is None:
            known = self._ranges[linear] = self._range(linear)
        return known

    def _range(self, linear: Linear) -> tuple[int, int]:
        box, base, low, high = self.box, 0, 0, 0
        free = []
        for s, c in linear:
            first, last = box[s]
            if first == last:
                base += c * first
                continue
            free.append((s, c))
            low += c * (first if c > 0 else last)
            high += c * (last if c > 0 else first)
        if len(free) > 1 and self.lower:
            form, common = primitive(tuple(free))
            least = self.lower.get(form)
            if least is not None:
                low = max(low, common * least)
            least = self.lower.get(times(form, -1, 0))
            if least is not None:
                high = min(high, -common * least)
        return base + low, base + high

    def step(self, linear: Linear) -> tuple[int, int]:
        """``(base, g)``: all values of the form on the piece are base + a multiple of g."""
        base, free = 0, []
        for s, c in linear:
            first, last = self.box[s]
            if first == last:
                base += c * first
            else:
                free.append((s, c))
        return base, primitive(tuple(free))[1] or 1

    @property
    def weight(self) -> int:
        """The number of points. Raises ``TooComplex``."""
        if self._weight is None:
            self._weight = count(*self._system(), self.budget)
        return self._weight

    @property
    def empty(self) -> bool:
        """Whether it has no points. Raises ``TooComplex``."""
        if self._weight is not None:
            return self._weight == 0
        return bool(self.lower) and is_empty(*self._system(), self.budget)

    def points(self, region: Region) -> int:
        """The number of points including the symbols of a region, whose limits are at least −1 everywhere. Raises ``TooComplex``."""
        box = self._with(region)
        if box is None:
            return 0
        conditions = [((*limit, (symbol, -1)), constant) for symbol, limit, constant in region if limit]
        return count(*self._system(box, conditions), self.budget)

    def most(self, region: Region) -> int:
        """An upper bound of the number of values of the region's symbols per point of the piece."""
        box = self._with(region)
        if box is None:
            return 0
        total = 1
        for symbol, _, _ in region:
            total *= box[symbol][1] + 1
        return total

    def _with(self, region: Region) -> dict[int, tuple[int, int]] | None:
        """The ranges of all symbols, ``None`` if the region is empty."""
        box = dict(enumerate(self.box))
        for symbol, limit, constant in region:
            own = tuple((s, c) for s, c in limit if s < len(self.box))
            most = constant + (self.range(own)[1] if own else 0)
            most += sum(c * box[s][c > 0] for s, c in limit if s >= len(self.box))
            if most < 0:
                return None
            box[symbol] = (0, most)
        return box

    def _system(
        self, box: dict[int, tuple[int, int]] | None = None, more: Sequence[Condition] = ()
    ) -> tuple[tuple[tuple[int, int], ...], list[Inequality]]:
        """The box and inequalities for ``points.count``, without fixed symbols."""
        ranges = dict(enumerate(self.box)) if box is None else box
        column: dict[int, int] = {}
        for symbol, (first, last) in ranges.items():
            if first != last:
                column[symbol] = len(column)
        rows: list[Inequality] = []
        for linear, constant in [*((form, -least) for form, least in self.lower.items()), *more]:
            row = [0] * len(column)
            for s, c in linear:
                if s in column:
                    row[column[s]] = c
                else:
                    constant += c * ranges[s][0]
            rows.append((tuple(row), constant))
        return tuple(ranges[symbol] for symbol in column), rows

    def reparametrised(self, symbol: int, period: int) -> Piece:
        """The same points with symbol = low + period·q + r, 0 ≤ r < period; q and r are the next two symbols, the old one is 0."""
        low, high = self.box[symbol]
        quotient, extent = len(self.box), high - low + 1
        box = [*self.box, (0, (extent - 1) // period), (0, period - 1)]
        box[symbol] = (0, 0)
        conditions: list[Condition] = []
        for form, least in self.lower.items():
            rewritten, own = substituted(form, symbol, quotient, period, 0)
            conditions.append((rewritten, own * low - least))
        if extent % period:
            conditions.append((((quotient, -period), (quotient + 1, -1)), extent - 1))
        return Piece(box, conditions, self.budget)
