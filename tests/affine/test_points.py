"""Counting integer points: equal to enumeration on small polyhedra, to closed forms on large ones."""

from __future__ import annotations

import random
import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf_engine.affine.points import Box, Inequality, TooComplex, bounds, count, is_empty
from gpuperf_engine.affine.sums import floor_powers, floor_sum

G = 10**9


def enumerated(box: Box, inequalities: list[Inequality]) -> int:
    return sum(
        all(sum(c * s for c, s in zip(terms, point)) + k >= 0 for terms, k in inequalities)
        for point in product(*(range(low, high + 1) for low, high in box))
    )


def agree(box: Box, inequalities: list[Inequality]) -> None:
    expected = enumerated(box, inequalities)
    assert count(box, inequalities) == expected, (box, inequalities)
    assert is_empty(box, inequalities) == (expected == 0), (box, inequalities)
    tight = bounds(box, inequalities)
    assert enumerated(tight, inequalities) == expected
    assert all(old[0] <= new[0] and new[1] <= old[1] for old, new in zip(box, tight)) or not expected


#: symbols, largest extent, largest coefficient, how many
SHAPES = [
    (1, 30, 9, 300),
    (2, 14, 3, 900),
    (2, 25, 40, 600),
    (3, 9, 1, 900),
    (3, 9, 5, 700),
    (4, 6, 1, 500),
    (4, 5, 3, 400),
]


@pytest.mark.parametrize("symbols, extent, coefficient, number", SHAPES)
def test_equals_enumeration(symbols: int, extent: int, coefficient: int, number: int) -> None:
    chance = random.Random(symbols * 1000 + coefficient)
    for _ in range(number):
        box = tuple(
            (
                low := chance.randint(-extent, extent),
                low + chance.randint(-1, extent) * (chance.random() > 0.1),
            )
            for _ in range(symbols)
        )
        inequalities = [
            (
                tuple(
                    chance.randint(-coefficient, coefficient) * (chance.random() < 0.7)
                    for _ in range(symbols)
                ),
                chance.randint(-2 * extent, 3 * extent),
            )
            for _ in range(chance.randint(0, 5))
        ]
        agree(box, inequalities)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_equals_enumeration_of_anything(data: st.DataObject) -> None:
    symbols = data.draw(st.integers(0, 4))
    lows = data.draw(st.lists(st.integers(-50, 50), min_size=symbols, max_size=symbols))
    box = tuple((low, low + data.draw(st.integers(-1, 6))) for low in lows)
    row = st.tuples(st.tuples(*[st.integers(-6, 6)] * symbols), st.integers(-300, 300))
    agree(box, data.draw(st.lists(row, max_size=6)))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.integers(-1, 12),
    st.integers(1, 40),
    st.integers(-100, 100),
    st.integers(-100, 100),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_sums_under_a_line(n: int, m: int, a: int, b: int, i: int, j: int) -> None:
    expected = [
        [sum(t**p * ((a * t + b) // m) ** q for t in range(n)) for q in range(j + 1)] for p in range(i + 1)
    ]
    assert floor_powers(n, m, a, b, i, j) == expected
    assert floor_sum(n, m, a, b) == sum((a * t + b) // m for t in range(n))


def triangle(n: int) -> int:
    return n * (n + 1) // 2


LARGE = [
    # a box, a half-line, an empty one
    (((0, G - 1), (0, 2 * G - 1)), [], 2 * G * G),
    (((0, G),), [((7,), -7 * G + 20)], 3),
    (((0, G), (0, G)), [((1, 1), -2 * G - 1)], 0),
    # y ≤ x, and the rest of the square
    (((0, G - 1), (0, G - 1)), [((1, -1), 0)], triangle(G)),
    (((0, G - 1), (0, G - 1)), [((-1, 1), -1)], triangle(G - 1)),
    # a band of width 3 about the diagonal, and the diagonal alone
    (((0, G - 1), (0, G - 1)), [((1, -1), 1), ((-1, 1), 1)], 3 * G - 2),
    (((0, G - 1), (0, G - 1)), [((1, -1), 0), ((-1, 1), 0)], G),
    # 16·x + 15 ≤ 16·y, x + 2·y ≤ 2·G
    (((0, G - 1), (0, G - 1)), [((-16, 16), -15)], triangle(G - 1)),
    (((0, 2 * G), (0, 2 * G)), [((-1, -2), 2 * G)], (G + 1) ** 2),
    # 3·x = 7·y: x = 7·t
    (((0, 7 * G), (0, 7 * G)), [((3, -7), 0), ((-3, 7), 0)], G + 1),
    # 3·x = 7·y + 1 on the rectangle 7·G by 3·G: one in each period
    (((0, 7 * G - 1), (0, 3 * G - 1)), [((3, -7), -1), ((-3, 7), 1)], G),
    # z ≤ y ≤ x: tetrahedron; w ≤ z ≤ y ≤ x: the next simplex
    (((0, G - 1),) * 3, [((1, -1, 0), 0), ((0, 1, -1), 0)], G * (G + 1) * (G + 2) // 6),
    (
        ((0, G - 1),) * 4,
        [((1, -1, 0, 0), 0), ((0, 1, -1, 0), 0), ((0, 0, 1, -1), 0)],
        G * (G + 1) * (G + 2) * (G + 3) // 24,
    ),
    # x + y + z + w ≤ n: simplex
    (((0, G),) * 4, [((-1, -1, -1, -1), G)], (G + 1) * (G + 2) * (G + 3) * (G + 4) // 24),
    # octahedron |x| + |y| + |z| ≤ n, as eight inequalities
    (
        ((-G, G),) * 3,
        [((a, b, c), G) for a in (1, -1) for b in (1, -1) for c in (1, -1)],
        (2 * G + 1) * (2 * G * G + 2 * G + 3) // 3,
    ),
    # 0 ≤ x < 1009·q, x = 1009·q + r: flattened index below the last multiple
    (
        ((0, G - 1), (0, 1008), (0, G)),
        [((-1009, -1, 0), 500 * 1009 - 1)],
        500 * 1009 * (G + 1),
    ),
    # max(x, y) ≤ z ≤ min(x + 10, y + 10): |x − y| = d leaves 11 − d
    (
        ((0, G - 1), (0, G - 1), (-G, 3 * G)),
        [((-1, 0, 1), 0), ((0, -1, 1), 0), ((1, 0, -1), 10), ((0, 1, -1), 10)],
        11 * G + sum(2 * (G - d) * (11 - d) for d in range(1, 11)),
    ),
]


@pytest.mark.parametrize("box, inequalities, expected", LARGE)
def test_large_ranges(box: Box, inequalities: list[Inequality], expected: int) -> None:
    assert count(box, inequalities) == expected
    assert is_empty(box, inequalities) == (expected == 0)


def test_lattice_points_under_a_line_with_a_weight() -> None:
    # the z layers of {3·x + 7·y ≤ 21·n, 0 ≤ z ≤ x}: Σ (x + 1) over the triangle, by columns
    n = 40
    expected = sum((x + 1) * ((21 * n - 3 * x) // 7 + 1) for x in range(7 * n + 1))
    assert count(((0, G), (0, G), (0, G)), [((-3, -7, 0), 21 * n), ((1, 0, -1), 0)]) == expected


def test_disjoint_halves_add_up() -> None:
    """A cut by any half-space splits the count, at sizes that cannot be enumerated."""
    chance = random.Random(7)
    for _ in range(60):
        symbols = chance.randint(2, 3)
        box = tuple((0, chance.choice([65534, 2**31 - 2, 999, G])) for _ in range(symbols))
        rows: list[Inequality] = []
        for _ in range(chance.randint(1, 3)):
            terms = [chance.choice([-3, -1, 0, 1, 1, 256]) for _ in range(symbols)]
            terms[-1] = chance.choice([-1, 1])
            rows.append((tuple(terms), chance.randint(-G, G)))
        *rest, (terms, constant) = rows
        inside = count(box, [*rest, (terms, constant)])
        outside = count(box, [*rest, (tuple(-c for c in terms), -constant - 1)])
        assert inside + outside == count(box, rest)


def test_many_symbols_with_few_in_each_inequality() -> None:
    symbols = 60
    box = ((0, G - 1),) * symbols
    pairs = [
        (tuple(1 if s == 2 * p else -1 if s == 2 * p + 1 else 0 for s in range(symbols)), 0)
        for p in range(symbols // 2)
    ]
    start = time.perf_counter()
    assert count(box, pairs) == triangle(G) ** (symbols // 2)
    assert time.perf_counter() - start < 1


def test_gives_up_within_its_budget() -> None:
    # three symbols, none with unit coefficients, all long
    box, row = ((0, G),) * 3, [((2, 3, 5), -7 * G), ((3, -5, 7), 11), ((-7, 2, 3), 13)]
    with pytest.raises(TooComplex):
        count(box, row)
    # a chain of more symbols than are tried
    chain = [(tuple(1 if s == p else -1 if s == p + 1 else 0 for s in range(50)), 0) for p in range(49)]
    with pytest.raises(TooComplex):
        count(((0, G),) * 50, chain)


def test_no_symbols() -> None:
    assert count((), []) == 1 and count((), [((), -1)]) == 0 and count((), [((), 0)]) == 1
    assert bounds((), []) == ()


def test_bounds_are_propagated_through_several_inequalities() -> None:
    box: Box = ((0, G), (0, G), (0, 10))
    # x ≤ y ≤ 3·z
    assert bounds(box, [((-1, 1, 0), 0), ((0, -1, 3), 0)]) == ((0, 30), (0, 30), (0, 10))
    # and 2·x ≥ 55: x, y ≥ 28, z ≥ 10
    rows: list[Inequality] = [((-1, 1, 0), 0), ((0, -1, 3), 0), ((2, 0, 0), -55)]
    assert bounds(box, rows) == ((28, 30), (28, 30), (10, 10))
    assert all(low > high for low, high in bounds(box, [*rows, ((0, 0, -1), 9)]))
