"""Affine numbers of the 32 lanes of a warp, and arithmetic that does not use ranges.

Lane i holds floor((bᵢ + Σ c·s) / 2^shift). The lanes of a *part* share the linear part and the shift; usually there
is one part. Numerators are over the integers, or modulo 2^(w + shift) for a number modulo 2^w: all operations here are
homomorphisms of that ring. A shift greater than 0 is a quotient that has not been evaluated yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from .linear import Linear, plus, substituted, times

__all__ = ["FULL", "Lanes", "Part", "add", "constant", "gathered", "lanes_of", "merge", "reduce", "scale"]

FULL = 0xFFFFFFFF
#: mask of lanes, linear part, shift; lanes in no mask are never read
Part = tuple[int, Linear, int]
_WHOLE = (FULL, (), 0)


@lru_cache(1 << 12)
def lanes_of(mask: int) -> tuple[int, ...]:
    """The lanes of a mask, ascending."""
    return tuple(lane for lane in range(32) if mask >> lane & 1)


@lru_cache(1 << 12)
def _flags(mask: int) -> tuple[int, ...]:
    return tuple(mask >> lane & 1 for lane in range(32))


class Lanes:
    """``base`` has one element for all lanes or 32. ``factor``: the numerators are known to be a product with it (1: unknown) of a
    number whose magnitude is at most ``limit`` (0: unknown)."""

    __slots__ = ("base", "factor", "limit", "parts")

    def __init__(self, base: Sequence[int], parts: tuple[Part, ...], factor: int = 1, limit: int = 0) -> None:
        self.base = base
        self.parts = parts
        self.factor = factor
        self.limit = limit

    def __repr__(self) -> str:
        return f"Lanes({self.base}, {self.parts})"

    @property
    def concrete(self) -> bool:
        """Whether no lane has symbols."""
        return not any(linear or shift for _, linear, shift in self.parts)

    @property
    def shifted(self) -> bool:
        """Whether a lane is a quotient that has not been evaluated."""
        return any(shift for _, _, shift in self.parts)

    def every(self) -> Sequence[int]:
        """The bases of all 32 lanes."""
        return (
            self.base
            if len(self.base) == 32
            else self.base * 32
            if isinstance(self.base, tuple)
            else list(self.base) * 32
        )

    def of(self, lanes: int) -> list[Part]:
        """The parts that contain some lanes, restricted to these."""
        return [(mask & lanes, linear, shift) for mask, linear, shift in self.parts if mask & lanes]

    def permuted(self, sources: Sequence[int]) -> Lanes:
        """Lane i of the result is lane ``sources[i]``."""
        if len(self.base) == 1 and len(self.parts) == 1 and self.parts[0][0] == FULL:
            return self
        every = self.every()
        parts = []
        for mask, linear, shift in self.parts:
            moved = sum(1 << lane for lane, source in enumerate(sources) if mask >> source & 1)
            parts.append((moved, linear, shift))
        return Lanes([every[source] for source in sources], tuple(parts))

    def substituted(self, symbol: int, low: int, quotient: int, period: int, bits: int) -> Lanes:
        """With symbol = low + period·q + r; see ``linear.substituted``."""
        if not any(symbol == s for _, linear, _ in self.parts for s, _ in linear):
            return self
        results = []
        for mask, linear, shift in self.parts:
            rewritten, own = substituted(linear, symbol, quotient, period, bits + shift if bits else 0)
            results.append(
                (mask, rewritten, shift, [b + own * low for b in self.base] if own * low else self.base)
            )
        joint = gathered(results)
        return Lanes(joint.base, joint.parts, self.factor, self.limit) if len(results) == 1 else joint

    def fixed(self, values: Mapping[int, int]) -> Lanes:
        """With symbols replaced by values."""
        if not any(s in values for _, linear, _ in self.parts for s, _ in linear):
            return self
        results = []
        for mask, linear, shift in self.parts:
            known = sum(c * values[s] for s, c in linear if s in values)
            left = tuple((s, c) for s, c in linear if s not in values)
            results.append((mask, left, shift, [b + known for b in self.base] if known else self.base))
        return gathered(results)


def constant(value: int) -> Lanes:
    """The same integer in all lanes."""
    return Lanes((value,), (_WHOLE,))


def gathered(results: Sequence[tuple[int, Linear, int, Sequence[int]]]) -> Lanes:
    """From ``(mask, linear, shift, base)`` with disjoint masks; other lanes are undefined."""
    if len(results) == 1:
        _, linear, shift, base = results[0]
        return Lanes(base, ((FULL, linear, shift),))
    joint = [0] * 32
    groups: dict[tuple[Linear, int], int] = {}
    for mask, linear, shift, base in results:
        single = len(base) == 1
        for lane in lanes_of(mask):
            joint[lane] = base[0] if single else base[lane]
        groups[linear, shift] = groups.get((linear, shift), 0) | mask
    return Lanes(joint, tuple((mask, linear, shift) for (linear, shift), mask in groups.items()))


def reduce(a: Lanes, bits: int) -> Lanes:
    """The same number modulo 2^bits, with numerators of least magnitude."""
    if len(a.parts) == 1:
        _, linear, shift = a.parts[0]
        base, reduced = _reduced(a.base, bits + shift), times(linear, 1, bits + shift)
        if base is a.base and reduced == linear:
            return a
        return Lanes(base, ((FULL, reduced, shift),))
    return gathered(
        [
            (mask, times(linear, 1, bits + shift), shift, _reduced(a.base, bits + shift))
            for mask, linear, shift in a.parts
        ]
    )


def _reduced(base: Sequence[int], bits: int) -> Sequence[int]:
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    if max(base) < half and min(base) >= -half:
        return base
    return [((b + half) & mask) - half for b in base]


def add(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a + b modulo 2^bits (0: over the integers). At most one may be shifted in each lane."""
    if len(a.parts) == 1 and len(b.parts) == 1:
        (_, left, shift), (_, right, other) = a.parts[0], b.parts[0]
        if not shift and not other:
            return Lanes(_sum(a.base, b.base, bits), ((FULL, plus(left, right, bits), 0),))
        if other:
            a, b, left, right, shift = b, a, right, left, other
        width = bits + shift if bits else 0
        raised = times(right, 1 << shift, width)
        total = _sum(a.base, [y << shift for y in b.base], width)
        linear = plus(left, raised, width)
        factor, limit = a.factor, 0
        if a.factor != 1 and left == times(right, a.factor, 0):  # M·u / 2^k + u = (M + 2^k)·u / 2^k
            more = a.factor + (1 << shift)
            numbers = list(zip(a.every(), b.every(), Lanes(total, ()).every()))
            if linear == times(right, more, 0) and all(
                x == a.factor * y and z == more * y for x, y, z in numbers
            ):
                factor, limit = more, a.limit
        return Lanes(total, ((FULL, linear, shift),), factor, limit)
    results = []
    for mask, left, shift in a.parts:
        for other_mask, right, other in b.parts:
            both = mask & other_mask
            if both:
                most = max(shift, other)
                up, down = most - shift, most - other
                width = bits + most if bits else 0
                linear = plus(times(left, 1 << up, width), times(right, 1 << down, width), width)
                base = _sum([x << up for x in a.base], [y << down for y in b.base], width)
                results.append((both, linear, most, base))
    return gathered(results)


def _sum(a: Sequence[int], b: Sequence[int], bits: int) -> list[int]:
    total: list[int]
    if len(a) == len(b):
        total = [x + y for x, y in zip(a, b)]
    else:
        if len(a) == 1:
            a, b = b, a
        y = b[0]
        total = [x + y for x in a]
    if bits and (max(total) >= 1 << (bits - 1) or min(total) < -1 << (bits - 1)):
        half, mask = 1 << (bits - 1), (1 << bits) - 1
        return [((x + half) & mask) - half for x in total]
    return total


def scale(a: Lanes, factor: int, bits: int) -> Lanes:
    """a · factor modulo 2^bits (0: over the integers). The only factor of a shifted number is −1: −floor(n / d) = floor((d − 1 − n)
    / d)."""
    if factor == 1:
        return a
    results = []
    for mask, linear, shift in a.parts:
        width = bits + shift if bits else 0
        extra = (1 << shift) - 1
        base = [b * factor + extra for b in a.base]
        results.append((mask, times(linear, factor, width), shift, _reduced(base, width) if width else base))
    return gathered(results)


def merge(mask: int, new: Lanes, old: Lanes) -> Lanes:
    """``new`` in the lanes of a mask, ``old`` in the others."""
    if mask == FULL:
        return new
    if not mask:
        return old
    if len(new.base) == 1 and len(old.base) == 1 and new.base[0] == old.base[0]:
        base: Sequence[int] = new.base
    else:
        base = [x if flag else y for flag, x, y in zip(_flags(mask), new.every(), old.every())]
    if len(new.parts) == 1 and len(old.parts) == 1 and new.parts[0][1:] == old.parts[0][1:]:
        return Lanes(base, ((FULL, *new.parts[0][1:]),))
    groups: dict[tuple[Linear, int], int] = {}
    for lanes, linear, shift in _restricted(new.parts, mask):
        groups[linear, shift] = groups.get((linear, shift), 0) | lanes
    for lanes, linear, shift in _restricted(old.parts, FULL & ~mask):
        groups[linear, shift] = groups.get((linear, shift), 0) | lanes
    return Lanes(base, tuple((lanes, linear, shift) for (linear, shift), lanes in groups.items()))


def _restricted(parts: Iterable[Part], lanes: int) -> Iterable[Part]:
    return ((mask & lanes, linear, shift) for mask, linear, shift in parts if mask & lanes)
