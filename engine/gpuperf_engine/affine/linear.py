"""Linear parts of affine forms: Σ cᵢ·sᵢ as sorted pairs, reduced modulo a width."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

__all__ = ["Linear", "centred", "divide", "plus", "primitive", "substituted", "times"]

#: ((symbol, coefficient ≠ 0), …), by symbol
Linear = tuple[tuple[int, int], ...]

_CACHED = 1 << 14


def centred(value: int, bits: int) -> int:
    """The representative modulo 2^bits in (−2^(bits−1), 2^(bits−1)]; unchanged for 0 bits."""
    if not bits:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value > 1 << (bits - 1) else value


@lru_cache(_CACHED)
def plus(a: Linear, b: Linear, bits: int) -> Linear:
    """The sum; ``bits`` 0 means over the integers."""
    total = dict(a)
    for symbol, coefficient in b:
        total[symbol] = total.get(symbol, 0) + coefficient
    return _sorted_terms(total, bits)


@lru_cache(_CACHED)
def times(a: Linear, factor: int, bits: int) -> Linear:
    """The product with an integer; a factor of 1 only reduces."""
    return _sorted_terms({symbol: coefficient * factor for symbol, coefficient in a}, bits)


def _sorted_terms(terms: dict[int, int], bits: int) -> Linear:
    reduced = ((symbol, centred(coefficient, bits)) for symbol, coefficient in sorted(terms.items()))
    return tuple((symbol, coefficient) for symbol, coefficient in reduced if coefficient)


@lru_cache(_CACHED)
def divide(a: Linear, divisor: int) -> tuple[Linear, Linear]:
    """``(whole, rest)`` with a = divisor·whole + rest, the coefficients of the rest nearest to zero."""
    whole, rest = [], []
    for symbol, coefficient in a:
        quotient = (2 * coefficient + divisor) // (2 * divisor)
        left = coefficient - divisor * quotient
        if quotient:
            whole.append((symbol, quotient))
        if left:
            rest.append((symbol, left))
    return tuple(whole), tuple(rest)


@lru_cache(_CACHED)
def primitive(a: Linear) -> tuple[Linear, int]:
    """The form divided by the gcd of its coefficients, and that gcd (0 for no terms)."""
    common = gcd(*(coefficient for _, coefficient in a))
    return (a if common == 1 else tuple((s, c // common) for s, c in a)), common


def substituted(a: Linear, symbol: int, quotient: int, period: int, bits: int) -> tuple[Linear, int]:
    """The form with x = low + period·q + r for a symbol x, where q and r are the symbols ``quotient`` and ``quotient`` + 1; and the
    coefficient of x, by which the caller multiplies ``low``."""
    terms = dict(a)
    own = terms.pop(symbol, 0)
    if own:
        terms[quotient], terms[quotient + 1] = own * period, own
    return (_sorted_terms(terms, bits) if own else a), own
