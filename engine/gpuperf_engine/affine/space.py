"""The piece and the phases during the execution of a warp class, and the two primitives that observe values.

Only ``nonnegative`` and ``floor_div`` split a piece. They raise ``Split`` with the cells, or ``Reparametrise``, without side effects,
and the caller repeats the operation on each part.

Symbols below ``len(piece.box)`` are those of the piece; the others count the iterations of the phases that are being tried,
outermost first. An outcome that depends on such a symbol is that at 0, with a corresponding condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import gcd

from .lanes import Lanes, add, gathered, lanes_of, merge, scale
from .linear import Linear, divide, plus, times
from .pieces import Condition, Piece

__all__ = ["NoPhase", "Phase", "Refusal", "Reparametrise", "Space", "Split"]

#: quotients with more values than this are reparametrised instead of split
FEW = 4
#: limit of the values of a quotient, or of a number that must be known, on a piece
MOST_WINDOWS = 4096
#: limit of divisors of iteration counts that are reparametrised
SMALL = 64
MOST_VALUES = 512
#: limit of the symbols of a piece
MOST_SYMBOLS = 24


class Split(Exception):
    """The piece must be cut: ``cells`` are conditions, disjoint, together the whole piece; some may be empty."""

    def __init__(self, cells: list[list[Condition]]) -> None:
        super().__init__(cells)
        self.cells = cells


class Reparametrise(Exception):
    """A symbol must be written as low + period·q + r."""

    def __init__(self, symbol: int, period: int) -> None:
        super().__init__(symbol, period)
        self.symbol, self.period = symbol, period


class Refusal(Exception):
    """Warp-class execution does not support something; the message names it in one line."""


class NoPhase(Exception):
    """The iterations are not a phase."""


class Phase:
    """Iterations 0 ≤ symbol of a loop that are tried at once, and the conditions under which they execute the same instructions."""

    __slots__ = ("conditions", "symbol")

    def __init__(self, symbol: int) -> None:
        self.symbol = symbol
        self.conditions: dict[Linear, int] = {}

    def require(self, linear: Linear, constant: int) -> None:
        known = self.conditions.get(linear)
        if known is None or constant < known:
            self.conditions[linear] = constant


#: ``(primitive, [(bit patterns of one lane or 32, type name)], attributes)`` → ``(bit patterns, type name)``
Concretely = Callable[
    [str, "list[tuple[Sequence[int], str]]", "dict[str, object]"], "tuple[Sequence[int], str]"
]


class Space:
    """``active``: the lanes whose values matter. ``concretely`` evaluates primitives on known values."""

    def __init__(self, concretely: Concretely) -> None:
        self.piece = Piece(())
        self.active = 0
        self.phases: list[Phase] = []
        self.concretely = concretely

    def _phase_of(self, linear: Linear) -> Phase | None:
        """The innermost phase whose symbol occurs."""
        if linear:
            index = linear[-1][0] - len(self.piece.box)
            if index >= 0:
                return self.phases[index]
        return None

    # -- the primitives --------------------------------------------------------------------------------------------------

    def nonnegative(self, value: Lanes, lanes: int) -> int:
        """The lanes in which an exact number is ≥ 0."""
        nonnegative_lanes = 0
        for mask, linear, _ in value.of(lanes):  # floor(n / d) ≥ 0 if n ≥ 0
            nonnegative_lanes |= self._nonnegative(linear, value.base, mask)
        return nonnegative_lanes

    def _nonnegative(self, linear: Linear, base: Sequence[int], lanes: int) -> int:
        phase = self._phase_of(linear)
        if phase is not None:
            true = self._nonnegative(linear[:-1], base, lanes)
            false = lanes & ~true
            if linear[-1][1] < 0 and true:
                phase.require(linear, _extremes(base, true)[0])
            elif linear[-1][1] > 0 and false:
                phase.require(times(linear, -1, 0), -1 - _extremes(base, false)[1])
            return true
        low, high = self.piece.range(linear) if linear else (0, 0)
        least, most = _extremes(base, lanes)
        if least + low >= 0:
            return lanes
        if most + high < 0:
            return 0
        nonnegative_lanes = 0
        thresholds = set()
        single = len(base) == 1
        for lane in lanes_of(lanes):
            own = base[0] if single else base[lane]
            if own + low >= 0:
                nonnegative_lanes |= 1 << lane
            elif own + high >= 0:
                thresholds.add(-own)
        if thresholds:
            raise Split(self._cells(linear, thresholds))
        return nonnegative_lanes

    def _cells(self, linear: Linear, thresholds: set[int]) -> list[list[Condition]]:
        """The piece cut where the form reaches the thresholds."""
        start, step = self.piece.step(linear)
        borders = sorted({start - (start - threshold) // step * step for threshold in thresholds})
        below = times(linear, -1, 0)
        cells: list[list[Condition]] = [[(below, borders[0] - 1)]]
        for border, following in pairwise(borders):
            cells.append([(linear, -border), (below, following - 1)])
        cells.append([(linear, -borders[-1])])
        return cells

    def floor_div(self, value: Lanes, divisor: int, lanes: int) -> Lanes:
        """floor(value / divisor) of an exact number, a divisor > 0."""
        if divisor == 1 and not value.shifted:
            return value
        if value.factor > 1:
            quotient = self._by_factor(value, divisor, lanes)
            if quotient is not None:
                return quotient
        results = []
        for mask, linear, shift in value.of(lanes):
            whole, rest = divide(linear, divisor << shift)
            results.append((mask, whole, 0, self._quotients(rest, value.base, divisor << shift, mask)))
        return gathered(results)

    def _division(self, value: Lanes, divisor: int, lanes: int) -> tuple[int, Lanes, Lanes] | None:
        """``(d, u, v)`` with floor(value / divisor) = floor(u / d) + v for all u ≥ 0 in range, where value = M·u + divisor·v for its
        factor M. Any such v is valid; it exists as M and the divisor are coprime."""
        factor = value.factor
        (_, linear, shift), *others = value.parts
        if factor <= 1 or others or not linear:
            return None
        divisor <<= shift
        if gcd(factor, divisor) > 1:
            if any(c % factor for _, c in linear) or any(b % factor for b in value.base):
                return None
            inverse = 0
        else:
            inverse = pow(divisor, -1, factor)

        def whole(number: int) -> int:
            residue = number * inverse % factor
            return residue - factor if 2 * residue > factor else residue

        more = [whole(b) for b in value.base]
        added = [(s, whole(c)) for s, c in linear]
        rest = tuple((s, (c - divisor * v) // factor) for (s, c), (_, v) in zip(linear, added))
        rest = tuple((s, c) for s, c in rest if c)
        base = [(b - divisor * v) // factor for b, v in zip(value.base, more)]
        limit = 0 if any(more) or any(v for _, v in added) else value.limit
        if self._phase_of(linear) is None:
            low, high = self.piece.range(rest) if rest else (0, 0)
            least, most = _extremes(base, lanes)
            limit = max(abs(least + low), abs(most + high), 1)
        by = -(-divisor // factor)
        if not limit or (factor * by - divisor) * limit >= divisor:
            return None
        extra = gathered([(lanes, tuple((s, v) for s, v in added if v), 0, more)])
        return by, gathered([(lanes, rest, 0, base)]), extra

    def _by_factor(self, value: Lanes, divisor: int, lanes: int) -> Lanes | None:
        """floor(M·u / 2^k) as u div d with d = ceil(2^k / M): equal where 0 ≤ u and e·u < 2^k for e = M·d − 2^k; for negative
        u it is −(−u div d) − 1 (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994)."""
        division = self._division(value, divisor, lanes)
        if division is None:
            return None
        by, argument, extra = division
        ((_, _, shift),) = value.parts
        if value.factor * by == divisor << shift:
            return add(self.floor_div(argument, by, lanes), extra, 0)
        positive = self.nonnegative(argument, lanes)
        result = self.floor_div(argument, by, positive) if positive else argument
        if positive != lanes:
            negative = self.floor_div(scale(argument, -1, 0), by, lanes & ~positive)
            complement = scale(negative, -1, 0)
            shown = Lanes([b - 1 for b in complement.base], complement.parts)
            result = merge(positive, result, shown)
        return add(result, extra, 0)

    def _quotients(self, rest: Linear, base: Sequence[int], divisor: int, lanes: int) -> Sequence[int]:
        """floor((b + rest) / divisor), an integer in each lane."""
        phase = self._phase_of(rest)
        if phase is not None:
            quotients = self._quotients(rest[:-1], base, divisor, lanes)
            remainders = [b - divisor * q for b, q in zip(_every(base), _every(quotients))]
            if rest[-1][1] < 0:
                phase.require(rest, _extremes(remainders, lanes)[0])
            else:
                phase.require(times(rest, -1, 0), divisor - 1 - _extremes(remainders, lanes)[1])
            return quotients
        if not rest:
            return [b // divisor for b in base]
        low, high = self.piece.range(rest)
        least, most = _extremes(base, lanes)
        first, last = (least + low) // divisor, (most + high) // divisor
        if first == last:
            return (first,)
        lowest = [(b + low) // divisor for b in base]
        if low == high:
            return lowest
        highest = [(b + high) // divisor for b in base]
        concerned = (0,) if len(base) == 1 else lanes_of(lanes)
        windows = max(highest[lane] - lowest[lane] for lane in concerned)
        if not windows:
            return lowest
        if windows > FEW:
            self._reparametrise(rest, divisor)
        if windows > MOST_WINDOWS:
            raise Refusal(f"a quotient by {divisor} takes {windows + 1} values")
        thresholds = {
            border * divisor - base[lane]
            for lane in concerned
            for border in range(lowest[lane] + 1, highest[lane] + 1)
        }
        raise Split(self._cells(rest, thresholds))

    def _reparametrise(self, rest: Linear, divisor: int) -> None:
        """Raises ``Reparametrise`` for the symbol that contributes most values of the quotient, if its coefficient has a period."""
        best = (0, 0, 0)
        for symbol, coefficient in rest:
            low, high = self.piece.box[symbol]
            period = divisor // gcd(coefficient, divisor)
            if period <= high - low and len(self.piece.box) < MOST_SYMBOLS:
                best = max(best, (abs(coefficient) * (high - low), symbol, period))
        if best[0]:
            raise Reparametrise(best[1], best[2])

    def is_plain(self, value: Lanes, lanes: int) -> bool:
        """Whether quotients can be evaluated without a condition or a split."""
        for mask, linear, shift in value.of(lanes):
            rest = divide(linear, 1 << shift)[1]
            if rest:
                if self._phase_of(rest) is not None:
                    return False
                low, high = self.piece.range(rest)
                least, most = _extremes(value.base, mask)
                if low != high and (least + low) >> shift != (most + high) >> shift:
                    return False
        return True

    # -- derived operations ------------------------------------------------------------------------------------------------

    def settled(self, value: Lanes, lanes: int) -> Lanes:
        """The number with its quotients evaluated."""
        return self.floor_div(value, 1, lanes) if value.shifted else value

    def normalised(self, value: Lanes, bits: int, signed: bool, lanes: int) -> Lanes:
        """The exact number of a number modulo 2^bits."""
        bottom = -(1 << (bits - 1)) if signed else 0
        parts = value.of(lanes)
        results = []
        for mask, linear, shift in parts:
            window = 1 << (bits + shift)
            whole, rest = divide(linear, window)
            offset = bottom << shift
            base = [b - offset for b in value.base] if offset else value.base
            quotients = self._quotients(rest, base, window, mask)
            if len(quotients) == 1:
                if not whole and not quotients[0] and len(parts) == 1:
                    return value
                less = window * quotients[0]
                results.append((mask, rest, shift, [b - less for b in value.base]))
            else:
                results.append(
                    (
                        mask,
                        rest,
                        shift,
                        [b - window * q for b, q in zip(_every(value.base), _every(quotients))],
                    )
                )
        return gathered(results)

    def folded(self, value: Lanes, lanes: int) -> Lanes:
        """The number without symbols, if all of them have a single value on the piece; else unchanged."""
        results = []
        for mask, linear, shift in value.of(lanes):
            if self._phase_of(linear) is not None:
                return value
            low, high = self.piece.range(linear) if linear else (0, 0)
            if low != high:
                return value
            results.append((mask, (), 0, [(b + low) >> shift for b in value.base]))
        return gathered(results)

    def known(self, value: Lanes, lanes: int) -> Sequence[int]:
        """The number in each lane, without symbols. Splits the piece by the values of the number if they are few."""
        value = self.folded(value, lanes)
        if not value.concrete:
            value = self.folded(self.settled(value, lanes), lanes)
        if value.concrete:
            return value.base
        for _, linear, _ in value.of(lanes):
            if self._phase_of(linear) is not None:
                raise NoPhase
            low, high = self.piece.range(linear) if linear else (0, 0)
            if low != high:
                step = self.piece.step(linear)[1]
                if (high - low) // step >= MOST_VALUES:
                    raise Refusal(f"a number that has to be known takes {(high - low) // step + 1} values")
                raise Split(self._cells(linear, set(range(low + step, high + 1, step))))
        raise AssertionError("unreachable")

    def values(self, value: Lanes, lanes: int) -> int:
        """An approximate upper bound of the number's distinct values."""
        most = 1
        for _, linear, _ in value.of(lanes):
            if self._phase_of(linear) is not None:
                return 1 << 64
            low, high = self.piece.range(linear) if linear else (0, 0)
            most = max(most, high - low + 1)
        return most

    def bound(self, linear: Linear, constant: int, divisor: int) -> tuple[Linear, int]:
        """An affine lower bound of floor((linear + constant) / divisor), exact if it can be affine; the dividend is ≥ 0."""
        whole, rest = divide(linear, divisor)
        if not rest:
            return whole, constant // divisor
        free = tuple((s, c) for s, c in rest if s < len(self.piece.box))
        low, high = self.piece.range(free) if free else (0, 0)
        if divisor <= SMALL or (constant + high) // divisor - (constant + low) // divisor <= FEW:
            try:
                return whole, self._quotients(rest, (constant,), divisor, 1)[0]
            except Refusal:
                pass
        own = tuple((s, c) for s, c in linear if s < len(self.piece.box))
        low = self.piece.range(own)[0] if own else 0
        least = max(0, (constant + low) // divisor)
        self._nonnegative(linear, (constant - divisor * least,), 1)
        return (), least

    def least(self, bounds: Sequence[tuple[Linear, int]]) -> tuple[Linear, int]:
        """The least of affine forms."""
        best = bounds[0]
        for other in bounds[1:]:
            if not self._nonnegative(plus(other[0], times(best[0], -1, 0), 0), (other[1] - best[1],), 1):
                best = other
        return best


def _every(base: Sequence[int]) -> Sequence[int]:
    return list(base) * 32 if len(base) == 1 else base


def _extremes(base: Sequence[int], lanes: int) -> tuple[int, int]:
    if len(base) == 1:
        return base[0], base[0]
    if lanes == 0xFFFFFFFF:
        return min(base), max(base)
    own = [base[lane] for lane in lanes_of(lanes)]
    return min(own), max(own)
