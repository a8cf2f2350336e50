"""The exact number of integer points of a polyhedron, at a cost that does not depend on this number.

A polyhedron is a box with inequalities. Bounds are propagated; independent sets of symbols are counted separately and
multiplied. A symbol z whose coefficients are all ±1 is eliminated: where its i-th lower and j-th upper bound are binding, Σ 1 over z
is a polynomial in the other symbols, which becomes the weight of a polyhedron with one symbol less (Faulhaber). Two symbols with other
coefficients are summed under their bounding lines by Euclid's algorithm. The remainder is enumerated along its shortest symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from operator import gt

from gpuperf_engine.affine.sums import Polynomial, antidifference, floor_powers, floor_sum, substitute

__all__ = ["Box", "Budget", "Inequality", "TooComplex", "bounds", "count", "is_empty"]

#: inclusive range of each symbol 0..n−1; lo > hi = empty
Box = tuple[tuple[int, int], ...]
#: (coefficients c of symbols 0..n−1, constant k): Σ cᵢ·sᵢ + k ≥ 0
Inequality = tuple[tuple[int, ...], int]

#: limit of sub-polyhedra
BUDGET = 20_000
#: limit of connected symbols
MOST_SYMBOLS = 40
#: passes of bound propagation before elimination
_PASSES = 12

#: ((symbol, coefficient), …) and constant
_Row = tuple[tuple[tuple[int, int], ...], int]
#: (coefficients of the other symbols, constant, divisor > 0): the symbol is bounded by the quotient
_Bound = tuple[dict[int, int], int, int]


class TooComplex(Exception):
    """The points of a polyhedron cannot be counted within the budget; the caller falls back."""


class Budget:
    """The remaining number of sub-polyhedra, which several counts may share."""

    __slots__ = ("left",)

    def __init__(self, left: int = BUDGET) -> None:
        self.left = left


class _System:
    """Ranges and rows, reduced: no fixed symbol occurs in a row, no row is implied by the ranges, none is parallel to
    another. ``empty`` if that showed a contradiction."""

    __slots__ = ("empty", "hi", "lo", "rows")

    def __init__(self, lo: list[int], hi: list[int], rows: Iterable[_Row]) -> None:
        self.lo, self.hi = lo, hi
        self.rows: list[_Row] = list(rows)
        self.empty = any(map(gt, lo, hi)) or not self._reduce()

    def _reduce(self) -> bool:
        """False if a contradiction was found."""
        passes, fixed = 0, True
        while not fixed or self._merge():
            passes += 1
            if passes > _PASSES and all(len(terms) > 1 for terms, _ in self.rows):
                return True
            outcome = self._propagate()
            if outcome is None:
                return False
            changed, fixed = outcome
            if not changed:
                return True
        return False

    def _merge(self) -> bool:
        """Fold fixed symbols, divide by the gcd, keep the tightest of parallel rows; False if two opposite ones exclude
        each other, or a row without symbols fails."""
        lo, hi = self.lo, self.hi
        tightest: dict[tuple[tuple[int, int], ...], int] = {}
        for terms, constant in self.rows:
            for s, c in terms:
                if lo[s] == hi[s]:
                    constant += sum(c * lo[s] for s, c in terms if lo[s] == hi[s])
                    terms = tuple([(s, c) for s, c in terms if lo[s] != hi[s]])
                    break
            if not terms:
                if constant < 0:
                    return False
                continue
            common = gcd(*[c for _, c in terms])
            if common > 1:
                terms, constant = tuple([(s, c // common) for s, c in terms]), constant // common
            known = tightest.get(terms)
            if known is None or constant < known:
                tightest[terms] = constant
        self.rows = list(tightest.items())
        if len(tightest) > 1:
            for terms, constant in self.rows:
                if terms[0][1] < 0:
                    opposite = tightest.get(tuple([(s, -c) for s, c in terms]))
                    if opposite is not None and constant + opposite < 0:
                        return False
        return True

    def _propagate(self) -> tuple[bool, bool] | None:
        """Tighten each range by each row and drop rows that the ranges imply; None if there are no points, else whether a
        range changed, and whether rows may have to be merged."""
        lo, hi = self.lo, self.hi
        changed, fixed, remaining = False, False, []
        for row in self.rows:
            terms, constant = row
            least = most = constant
            for s, c in terms:
                if c > 0:
                    least += c * lo[s]
                    most += c * hi[s]
                else:
                    least += c * hi[s]
                    most += c * lo[s]
            if most < 0:
                return None
            if least >= 0:
                continue
            for s, c in terms:
                # c·s ≥ −(most of the others)
                if c > 0:
                    bound = -((most - c * hi[s]) // c)
                    if bound > lo[s]:
                        lo[s], changed = bound, True
                        fixed |= bound == hi[s]
                else:
                    bound = (most - c * lo[s]) // -c
                    if bound < hi[s]:
                        hi[s], changed = bound, True
                        fixed |= bound == lo[s]
            if len(terms) > 1:
                remaining.append(row)
        self.rows = remaining
        return changed, fixed

    def least(self, terms: dict[int, int], constant: int) -> int:
        """A lower bound of an affine form from the ranges."""
        lo, hi = self.lo, self.hi
        return constant + sum(c * (lo[s] if c > 0 else hi[s]) for s, c in terms.items())

    def limits(self, symbol: int) -> tuple[list[_Bound], list[_Bound]]:
        """The lower and the upper bounds of a symbol that can bind."""
        lower: list[_Bound] = []
        upper: list[_Bound] = []
        for terms, constant in self.rows:
            own = dict(terms).get(symbol)
            if own is None:
                continue
            sign = -1 if own > 0 else 1
            rest = {s: sign * c for s, c in terms if s != symbol}
            (lower if own > 0 else upper).append((rest, sign * constant, abs(own)))
        lower.append(({}, self.lo[symbol], 1))
        upper.append(({}, self.hi[symbol], 1))
        return self._binding(lower, 1), self._binding(upper, -1)

    def _binding(self, limits: list[_Bound], sign: int) -> list[_Bound]:
        """The limits without those that another one exceeds (sign 1) or undercuts (−1) everywhere in the ranges."""
        binding: list[_Bound] = []
        for one in limits:
            if any(self.least(*_difference(other, one, sign)) >= 0 for other in binding):
                continue
            binding = [other for other in binding if self.least(*_difference(one, other, sign)) < 0]
            binding.append(one)
        return binding

    def without(self, symbol: int, value: int, more: Iterable[_Row] = ()) -> _System:
        """The system with a symbol at a value (0 for one that is eliminated, whose rows are dropped) and more rows."""
        lo, hi = self.lo[:], self.hi[:]
        lo[symbol] = hi[symbol] = value
        return _System(lo, hi, [*self.rows, *more])

    def eliminated(self, symbol: int, more: Iterable[_Row]) -> _System:
        """The system without a symbol and the rows that contain it, with more rows."""
        lo, hi = self.lo[:], self.hi[:]
        lo[symbol] = hi[symbol] = 0
        return _System(lo, hi, [*(row for row in self.rows if all(s != symbol for s, _ in row[0])), *more])


def _difference(one: _Bound, other: _Bound, sign: int = 1) -> tuple[dict[int, int], int]:
    """sign · (one − other), times the product of the divisors."""
    a, b = sign * other[2], -sign * one[2]
    terms = {s: a * c for s, c in one[0].items()}
    for s, c in other[0].items():
        terms[s] = terms.get(s, 0) + b * c
    return terms, a * one[1] + b * other[1]


def _row(form: tuple[dict[int, int], int], strict: bool = False) -> _Row:
    """form ≥ 0, or form > 0."""
    return tuple(sorted((s, c) for s, c in form[0].items() if c)), form[1] - strict


def _system(box: Box, inequalities: Sequence[Inequality]) -> _System:
    rows = [(tuple((s, c) for s, c in enumerate(terms) if c), constant) for terms, constant in inequalities]
    return _System([low for low, _ in box], [high for _, high in box], rows)


def count(box: Box, inequalities: Sequence[Inequality] = (), budget: Budget | None = None) -> int:
    """The number of integer points of a box that satisfy all inequalities.

    Raises `TooComplex` when the budget is used up.
    """
    return _Counter(budget or Budget()).sum(_system(box, inequalities), {(0,) * len(box): 1})


def bounds(box: Box, inequalities: Sequence[Inequality] = ()) -> Box:
    """A box with the same points, tightened by propagating bounds; all ranges are empty if that shows that there are none."""
    system = _system(box, inequalities)
    return ((0, -1),) * len(box) if system.empty else tuple(zip(system.lo, system.hi))


def is_empty(box: Box, inequalities: Sequence[Inequality] = (), budget: Budget | None = None) -> bool:
    """Whether no integer point of a box satisfies all inequalities; raises `TooComplex` as `count` does."""
    system = _system(box, inequalities)
    if system.empty:
        return True
    for low in (True, False):
        if _witness(system, low):
            return False
    return _Counter(budget or Budget()).sum(system, {(0,) * len(box): 1}) == 0


def _witness(system: _System, low: bool) -> bool:
    """Whether fixing each symbol at its first (last) value, with propagation, yields a point."""
    while system.rows:
        symbol = system.rows[0][0][0][0]
        system = system.without(symbol, system.lo[symbol] if low else system.hi[symbol])
        if system.empty:
            return False
    return True


class _Counter:
    """Sums a polynomial over the points of systems, within a budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def sum(self, system: _System, weight: Polynomial) -> int:
        """Σ weight over the integer points."""
        if system.empty:
            return 0
        self.budget.left -= 1
        if self.budget.left < 0:
            raise TooComplex("too many sub-polyhedra")
        lo, hi = system.lo, system.hi
        for symbol, low in enumerate(lo):
            if low == hi[symbol] and any(exponents[symbol] for exponents in weight):
                weight = substitute(weight, symbol, ({}, low))
        if not weight:
            return 0
        if len(weight) == 1 and not any(next(iter(weight))):
            return next(iter(weight.values())) * self._points(system)
        return self._eliminate(system, weight, [s for s, low in enumerate(lo) if low < hi[s]])

    def _points(self, system: _System) -> int:
        """The number of points: components multiplied."""
        lo, hi = system.lo, system.hi
        parts: dict[int, set[int]] = {}
        for terms, _ in system.rows:
            joined = {s for s, _ in terms}.union(*(parts.get(s, ()) for s, _ in terms))
            for s in joined:
                parts[s] = joined
        result = 1
        for symbol, low in enumerate(lo):
            if symbol not in parts:
                result *= hi[symbol] - low + 1
        for part in {id(part): part for part in parts.values()}.values():
            order = sorted(part)
            position = {s: index for index, s in enumerate(order)}
            rows = [
                (tuple((position[s], c) for s, c in terms), constant)
                for terms, constant in system.rows
                if terms[0][0] in part
            ]
            if len(order) > MOST_SYMBOLS:
                raise TooComplex(f"{len(order)} connected symbols")
            own = _System.__new__(_System)
            own.lo, own.hi, own.rows, own.empty = [lo[s] for s in order], [hi[s] for s in order], rows, False
            result *= self._eliminate(own, {(0,) * len(order): 1}, list(range(len(order))))
            if not result:
                break
        return result

    def _eliminate(self, system: _System, weight: Polynomial, active: list[int]) -> int:
        """Sum over one symbol, the cheapest, and then over the others."""
        if len(active) == 2:
            return self._plane(system, weight, active)
        options = []
        for symbol in active:
            if all(abs(c) == 1 for terms, _ in system.rows for s, c in terms if s == symbol):
                lower, upper = system.limits(symbol)
                options.append((len(lower) * len(upper), symbol, lower, upper))
        if not options:
            return self._enumerate(system, weight, active)
        _, symbol, lower, upper = min(options, key=lambda option: option[:2])
        summed, divisor = antidifference(weight, symbol)
        total = 0
        for i, low in enumerate(lower):
            for j, high in enumerate(upper):
                rest = system.eliminated(symbol, _binding_conditions(lower, i, upper, j))
                if not rest.empty:
                    inner = substitute(summed, symbol, high[:2])
                    for exponents, factor in substitute(summed, symbol, (low[0], low[1] - 1)).items():
                        inner[exponents] = inner.get(exponents, 0) - factor
                    total += self.sum(rest, {key: factor for key, factor in inner.items() if factor})
        return total // divisor

    def _plane(self, system: _System, weight: Polynomial, active: list[int]) -> int:
        """Sum over two symbols: between the lines of the binding bounds, over the range of x in which they are binding."""
        x, y = active
        if _largest(system, y) > _largest(system, x):
            x, y = y, x
        lower, upper = system.limits(y)
        summed, divisor = antidifference(weight, y)
        total = 0
        for i, low in enumerate(lower):
            for j, high in enumerate(upper):
                rest = system.eliminated(y, _binding_conditions(lower, i, upper, j))
                if not rest.empty:
                    # ceil(N / d) − 1 = floor((N − 1) / d)
                    total += _under(summed, x, y, rest, high)
                    total -= _under(summed, x, y, rest, (low[0], low[1] - 1, low[2]))
        return total // divisor

    def _enumerate(self, system: _System, weight: Polynomial, active: list[int]) -> int:
        """Sum over each value of the shortest symbol."""
        symbol = min(active, key=lambda s: system.hi[s] - system.lo[s])
        low, high = system.lo[symbol], system.hi[symbol]
        if high - low >= min(self.budget.left, BUDGET):
            raise TooComplex(f"{high - low + 1} values to enumerate")
        return sum(self.sum(system.without(symbol, value), weight) for value in range(low, high + 1))


def _largest(system: _System, symbol: int) -> int:
    """The largest magnitude of a symbol's coefficients."""
    return max((abs(c) for terms, _ in system.rows for s, c in terms if s == symbol), default=0)


def _binding_conditions(lower: list[_Bound], i: int, upper: list[_Bound], j: int) -> list[_Row]:
    """The conditions under which the i-th lower and the j-th upper bound are binding (the first of equal ones) and consistent."""
    rows = [_row(_difference(lower[i], other), k < i) for k, other in enumerate(lower) if k != i]
    rows += [_row(_difference(other, upper[j]), k < j) for k, other in enumerate(upper) if k != j]
    return [*rows, _row(_difference(upper[j], lower[i]))]


def _under(weight: Polynomial, x: int, y: int, rest: _System, limit: _Bound) -> int:
    """Σ weight at y = floor(limit) over the range of x."""
    first, n = rest.lo[x], rest.hi[x] - rest.lo[x] + 1
    slope = limit[0].get(x, 0)
    b = slope * first + limit[1]
    x_degree, y_degree = max(e[x] for e in weight), max(e[y] for e in weight)
    if x_degree and first:
        weight = substitute(weight, x, ({x: 1}, first))
    if x_degree == 0 and y_degree == 1:
        sums = [[n, floor_sum(n, limit[2], slope, b)]]
    else:
        sums = floor_powers(n, limit[2], slope, b, x_degree, y_degree)
    return sum(factor * sums[e[x]][e[y]] for e, factor in weight.items())
