"""Sums of polynomials over ranges and under lines, exactly, in time that does not depend on their length."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import comb, lcm

__all__ = ["Affine", "Polynomial", "antidifference", "floor_powers", "floor_sum", "substitute"]

#: exponents of symbols 0..n−1 → coefficient
Polynomial = dict[tuple[int, ...], int]
#: symbol → coefficient, and the constant
Affine = tuple[Mapping[int, int], int]
#: displacement in x and y, and Σ xⁱyʲ over the points of a staircase, at [i·(degree of y + 1) + j]
_Stairs = tuple[int, int, list[int]]


@lru_cache(maxsize=64)
def _faulhaber(degree: int) -> tuple[tuple[int, ...], int]:
    """Integer coefficients by power, and a common divisor, of F with F(n) − F(n−1) = n**degree and F(0) = 0."""
    bernoulli = [Fraction(1)]
    for m in range(1, degree + 1):
        bernoulli.append(-sum((comb(m + 1, k) * bernoulli[k] for k in range(m)), Fraction(0)) / (m + 1))
    if degree:
        bernoulli[1] = Fraction(1, 2)
    terms = [Fraction(0)] * (degree + 2)
    for k, number in enumerate(bernoulli):
        terms[degree + 1 - k] = comb(degree + 1, k) * number / (degree + 1)
    divisor = lcm(*(term.denominator for term in terms))
    return tuple(int(term * divisor) for term in terms), divisor


def antidifference(weight: Polynomial, symbol: int) -> tuple[Polynomial, int]:
    """G and a divisor D with (G(…, z, …) − G(…, z−1, …)) / D = weight, where z is the symbol."""
    divisor = lcm(*(_faulhaber(exponents[symbol])[1] for exponents in weight))
    result: Polynomial = {}
    for exponents, factor in weight.items():
        powers, own = _faulhaber(exponents[symbol])
        factor *= divisor // own
        for power, coefficient in enumerate(powers):
            if coefficient:
                key = (*exponents[:symbol], power, *exponents[symbol + 1 :])
                result[key] = result.get(key, 0) + factor * coefficient
    return result, divisor


def substitute(weight: Polynomial, symbol: int, value: Affine) -> Polynomial:
    """The polynomial with a symbol replaced by an affine form."""
    terms, constant = value
    highest = max((exponents[symbol] for exponents in weight), default=0)
    size = len(next(iter(weight), ()))
    powers: list[Polynomial] = [{(0,) * size: 1}]
    for _ in range(highest):
        product: Polynomial = {}
        for exponents, factor in powers[-1].items():
            if constant:
                product[exponents] = product.get(exponents, 0) + factor * constant
            for other, coefficient in terms.items():
                key = (*exponents[:other], exponents[other] + 1, *exponents[other + 1 :])
                product[key] = product.get(key, 0) + factor * coefficient
        powers.append(product)
    result: Polynomial = {}
    for exponents, factor in weight.items():
        for more, coefficient in powers[exponents[symbol]].items():
            key = tuple(b if s == symbol else a + b for s, (a, b) in enumerate(zip(exponents, more)))
            result[key] = result.get(key, 0) + factor * coefficient
    return {key: factor for key, factor in result.items() if factor}


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Σ floor((a·t + b) / m) for 0 ≤ t < n, with m > 0: Euclid's algorithm on (a, m)."""
    total = 0
    while n > 0:
        total += n * (n - 1) // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        # the points under the remaining line, by rows instead of columns
        top = a * n + b
        n, b, m, a = top // m, top % m, a, m
        if not n:
            break
    return total


def floor_powers(n: int, m: int, a: int, b: int, x_degree: int, y_degree: int) -> list[list[int]]:
    """Σ tⁱ · floor((a·t + b) / m)ʲ for 0 ≤ t < n at [i][j], with m > 0, i ≤ ``x_degree``, j ≤ ``y_degree``.

    The staircase under the line is a word of steps up and to the right; Euclid's algorithm writes it as O(log) products
    and powers of shorter words, and the sums over a product follow from those over its factors by the binomial theorem.
    """
    width = y_degree + 1
    size = (x_degree + 1) * width

    def product(first: _Stairs, second: _Stairs) -> _Stairs:
        x, y, sums = first
        more = second[2]
        xs, ys = [x**i for i in range(x_degree + 1)], [y**j for j in range(width)]
        result = sums[:]
        for i in range(x_degree + 1):
            for j in range(width):
                result[i * width + j] += sum(
                    comb(i, p) * xs[i - p] * comb(j, q) * ys[j - q] * more[p * width + q]
                    for p in range(i + 1)
                    for q in range(j + 1)
                )
        return x + second[0], y + second[1], result

    def power(base: _Stairs, exponent: int) -> _Stairs:
        result: _Stairs = (0, 0, [0] * size)
        while exponent:
            if exponent & 1:
                result = product(result, base)
            base = product(base, base)
            exponent >>= 1
        return result

    up: _Stairs = (0, 1, [0] * size)
    # a point is counted at the beginning of a step to the right
    right: _Stairs = (1, 0, [1] + [0] * (size - 1))
    before: _Stairs = (0, b // m, [0] * size)
    after: _Stairs = (0, 0, [0] * size)
    b %= m
    if n > 0:
        before, n = product(before, right), n - 1
        right = product((0, a // m, [0] * size), right)
        a %= m
    else:
        n = 0
    while n:
        if a >= m:
            right, a = product(power(up, a // m), right), a % m
        k = (a * n + b) // m
        if not k:
            before = product(before, power(right, n))
            break
        before = product(product(before, power(right, (m - b - 1) // a)), up)
        after = product(power(right, n - (m * k - b - 1) // a), after)
        n, a, m, b, up, right = k - 1, m, a, (m - b - 1) % a, right, up
    sums = product(before, after)[2]
    return [sums[i * width : (i + 1) * width] for i in range(x_degree + 1)]
