"""Arithmetic on the lanes of a warp that may use ranges: products, quotients, bits."""

from __future__ import annotations

from collections.abc import Sequence

from .lanes import FULL, Lanes, add, constant, gathered, lanes_of, merge, reduce, scale
from .space import Space

__all__ = [
    "and_known",
    "bounded",
    "difference",
    "disjoint",
    "product",
    "scaled",
    "shifted",
    "total_of",
    "truncated",
]


def bounded(exact: Lanes, bits: int) -> Lanes:
    """The same number, known to be of so many bits."""
    return Lanes(exact.base, exact.parts, 1, 1 << bits) if exact.factor == 1 else exact


def total_of(space: Space, a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a + b modulo 2^bits (0: over the integers)."""
    if a.shifted and b.shifted:
        b = space.settled(b, space.active)
    return add(a, b, bits)


def difference(space: Space, a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a − b modulo 2^bits (0: over the integers)."""
    if a.shifted and b.shifted:
        b = space.settled(b, space.active)
    return total_of(space, a, scale(b, -1, bits), bits)


def product(space: Space, a: Lanes, b: Lanes, bits: int) -> Lanes:
    """a · b, where at least one must be known."""
    active = space.active
    if not b.concrete:
        if not a.concrete:
            a, b = space.folded(a, active), space.folded(b, active)
        if a.concrete or (not b.concrete and space.values(a, active) < space.values(b, active)):
            a, b = b, a
    factors = space.known(b, active)
    return scaled(space.settled(a, active), factors, bits, active)


def scaled(a: Lanes, factors: Sequence[int], bits: int, active: int) -> Lanes:
    """a times an integer in each lane."""
    if len(set(factors)) == 1:
        factor = factors[0]
        if factor not in (0, 1, -1) and not a.concrete:
            product = scale(a, factor, 0)
            raw = Lanes(product.base, product.parts, factor, a.limit if a.factor == 1 else 0)
            return reduce(raw, bits) if bits else raw
        return scale(a, factor, bits)
    if a.concrete:
        every = a.every()
        return reduce(Lanes([x * y for x, y in zip(every, factors)], ((FULL, (), 0),)), bits or 256)
    results = []
    for factor in set(factors[lane] for lane in lanes_of(active)):
        own = sum(1 << lane for lane in lanes_of(active) if factors[lane] == factor)
        product = scale(a, factor, bits)
        results += [(mask, linear, shift, product.base) for mask, linear, shift in product.of(own)]
    return gathered(results)


def shifted(space: Space, exact: Lanes, count: int) -> Lanes:
    """floor(exact / 2^count), evaluated only if that does not split the piece."""
    if exact.concrete:
        return Lanes([b >> count for b in exact.base], exact.parts)
    result = Lanes(
        exact.base,
        tuple((mask, linear, shift + count) for mask, linear, shift in exact.parts),
        exact.factor,
        exact.limit,
    )
    return space.settled(result, space.active) if space.is_plain(result, space.active) else result


def _low(space: Space, a: Lanes, count: int, bits: int) -> Lanes:
    """a mod 2^count."""
    if count >= bits:
        return a
    a = space.settled(a, space.active)
    return add(a, scale(space.floor_div(a, 1 << count, space.active), -1 << count, 0), 0)


def and_known(space: Space, a: Lanes, mask: int, bits: int) -> Lanes:
    """a & mask: for each run of ones from bit i up to bit j the difference of a mod 2^j and a mod 2^i."""
    total: Lanes | None = None
    bit = 0
    while mask >> bit:
        if not mask >> bit & 1:
            bit += 1
            continue
        end = bit
        while mask >> end & 1:
            end += 1
        run = _low(space, a, end, bits)
        if bit:
            run = difference(space, run, _low(space, a, bit, bits), bits)
        total = run if total is None else total_of(space, total, run, bits)
        bit = end
    return constant(0) if total is None else reduce(total, bits)


def disjoint(space: Space, a: Lanes, b: Lanes, bits: int) -> bool:
    """Whether a is a multiple of 2^k in all lanes, and b in [0, 2^k)."""
    active = space.active
    if a.shifted or b.shifted:
        return False
    joint = 1 << bits
    for mask, linear, _ in a.of(active):
        for _, coefficient in linear:
            joint |= coefficient
        for lane in lanes_of(mask):
            joint |= a.base[lane if len(a.base) > 1 else 0]
    limit = joint & -joint
    low = [b.base[lane if len(b.base) > 1 else 0] for lane in lanes_of(active)]
    for _, linear, _ in b.of(active):
        if linear and linear[-1][0] >= len(space.piece.box):
            return False
        least, most = space.piece.range(linear) if linear else (0, 0)
        if min(low) + least < 0 or max(low) + most >= limit:
            return False
    return True


def truncated(space: Space, dividend: Lanes, divisors: Sequence[int], signed: bool) -> tuple[Lanes, Lanes]:
    """Quotient and remainder of exact numbers, truncated; for a divisor of 0 −1 and the dividend."""
    active = space.active
    dividend = space.settled(dividend, active)
    quotient = remainder = constant(0)
    for divisor in set(divisors[lane] for lane in (lanes_of(active) if len(divisors) > 1 else (0,))):
        own = active
        if len(divisors) > 1:
            own = sum(1 << lane for lane in lanes_of(active) if divisors[lane] == divisor)
        if divisor == 0:
            some, left = constant(-1), dividend
        else:
            positive = space.nonnegative(dividend, own) if signed else own
            magnitude = merge(positive, dividend, scale(dividend, -1, 0))
            ratio = space.floor_div(magnitude, abs(divisor), own)
            same = positive if divisor > 0 else own & ~positive
            some = merge(same, ratio, scale(ratio, -1, 0)) if same != own else ratio
            left = add(dividend, scale(some, -divisor, 0), 0)
        if own == active:
            return some, left
        quotient, remainder = merge(own, some, quotient), merge(own, left, remainder)
    return quotient, remainder
