"""Pieces hold the points they should: cut, counted, bounded, and with other symbols, against enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from gpuperf_engine.affine.lanes import FULL, Lanes
from gpuperf_engine.affine.linear import Linear
from gpuperf_engine.affine.pieces import Condition, Piece
from gpuperf_engine.affine.points import Budget, TooComplex
from gpuperf_engine.affine.space import Reparametrise, Space, Split
from gpuperf_engine.symbolic.operands import concretely

Point = tuple[int, ...]


def value(linear: Linear, point: Point) -> int:
    return sum(c * point[s] for s, c in linear)


def points(piece: Piece) -> set[Point]:
    """Those of the box that satisfy the conditions kept."""
    box = itertools.product(*(range(low, high + 1) for low, high in piece.box))
    return {p for p in box if all(value(form, p) >= least for form, least in piece.lower.items())}


def random_linear(chance: random.Random, symbols: int) -> Linear:
    terms = [(s, chance.choice([0, 0, 1, -1, 2, -3, 4, 7, -8, 16])) for s in range(symbols)]
    return tuple((s, c) for s, c in terms if c)


@pytest.mark.parametrize("seed", range(120))
def test_cutting(seed: int) -> None:
    chance = random.Random(seed)
    symbols = chance.randint(1, 4)
    starts = [chance.choice([0, 0, -3, 5]) for _ in range(symbols)]
    piece = Piece([(low, low + chance.randint(0, 6)) for low in starts])
    inside = points(piece)
    for _ in range(chance.randint(1, 7)):
        conditions: list[Condition] = [
            (random_linear(chance, symbols), chance.randint(-12, 14)) for _ in range(chance.randint(1, 2))
        ]
        piece = piece.cut(conditions)
        inside = {p for p in inside if all(value(form, p) + k >= 0 for form, k in conditions)}
        assert piece.empty == (not inside) and piece.weight == len(inside)
        if not inside:
            return
        assert points(piece) == inside
        for form in [*piece.lower, *(random_linear(chance, symbols) for _ in range(3))]:
            low, high = piece.range(form)
            start, step = piece.step(form)
            found = {value(form, p) for p in inside}
            assert low <= min(found) and max(found) <= high
            assert all((one - start) % step == 0 for one in found)
    symbol = chance.randrange(symbols)
    low, high = piece.box[symbol]
    if high > low:
        period = chance.randint(1, high - low)
        other = piece.reparametrised(symbol, period)
        found = {
            (*p[:symbol], low + period * p[symbols] + p[symbols + 1], *p[symbol + 1 : symbols])
            for p in points(other)
        }
        assert found == inside and other.weight == len(inside)


def test_regions_are_counted_with_the_piece() -> None:
    # 0 ≤ j ≤ 2·x + y, and 0 ≤ k ≤ 10 − j
    piece = Piece([(0, 4), (0, 3)]).cut([(((0, 1), (1, 1)), -1)])
    region = ((2, ((0, 2), (1, 1)), 0), (3, ((2, -1),), 10))
    expected = sum(
        1
        for x, y in points(piece)
        for j in range(2 * x + y + 1)
        for k in range(10 - j + 1)
    )  # fmt: skip
    assert piece.points(region) == expected
    assert piece.most(region) >= max((2 * x + y + 1) * 11 for x, y in points(piece))
    assert piece.points(((2, (), -1),)) == 0


def test_a_symbol_that_becomes_fixed_leaves_the_conditions() -> None:
    # else the parallel condition is not found again, and a split on x + 16·y is repeated for ever
    piece = Piece([(0, 9), (0, 9), (0, 9)]).cut([(((0, 1), (1, 16), (2, 5)), -35)])
    fixed = piece.cut([(((2, 1),), 0), (((2, -1),), 0)])
    assert fixed.box[2] == (0, 0)
    assert fixed.lower == {((0, 1), (1, 16)): 35}
    assert fixed.range(((0, 1), (1, 16), (2, 5)))[0] == 35


def test_emptiness_is_that_of_integers() -> None:
    # 2·x + 2·y = 7 has solutions in the box, but no integer ones; 6·x + 10·y + 15·z = 29 neither: x, y, z ≤ 1
    line = Piece([(0, 9), (0, 9)]).cut([(((0, 2), (1, 2)), -7), (((0, -2), (1, -2)), 7)])
    plane = ((0, 6), (1, 10), (2, 15))
    cube = Piece([(0, 1)] * 3).cut([(plane, -29), (tuple((s, -c) for s, c in plane), 29)])
    assert line.empty and cube.empty


def test_remainders_are_those_nearest_to_zero() -> None:
    # −256·x and 2²⁰ − 256·x over one quotient: one border, where remainders from 0 up would have thousands
    space = Space(concretely)
    space.piece = Piece([(0, 4095)])
    with pytest.raises(Split) as split:
        space.floor_div(Lanes((0,), ((FULL, ((0, -256),), 0),)), 1 << 20, FULL)
    assert len(split.value.cells) == 2
    space.piece = Piece([(1, 4095)])
    found = space.floor_div(Lanes((1 << 20,), ((FULL, ((0, (1 << 20) - 256),), 0),)), 1 << 20, FULL)
    assert found.parts == ((FULL, ((0, 1),), 0),) and list(found.base) == [0]


def test_a_symbol_with_a_period_is_written_as_quotient_and_rest() -> None:
    space = Space(concretely)
    space.piece = Piece([(0, 10**6)])
    with pytest.raises(Reparametrise) as change:
        space.floor_div(Lanes((0,), ((FULL, ((0, 256),), 0),)), 1009, FULL)
    assert (change.value.symbol, change.value.period) == (0, 1009)


def test_only_active_lanes_ask_for_splits() -> None:
    space = Space(concretely)
    space.piece = Piece([(0, 9)])
    lanes = Lanes([-5, *[100] * 31], ((FULL, ((0, 1),), 0),))
    assert space.nonnegative(lanes, FULL & ~1) == FULL & ~1
    with pytest.raises(Split):
        space.nonnegative(lanes, FULL)


def test_the_work_of_counting_is_bounded() -> None:
    piece = Piece([(0, 10**9)] * 3, (), Budget(50))
    rows = [(((0, 2), (1, 3), (2, 5)), -(10**9)), (((0, 3), (1, -5), (2, 7)), 11)]
    with pytest.raises(TooComplex):
        _ = piece.cut(rows).weight


def test_numbers_of_iterations_are_affine_where_few_values_are_left_over() -> None:
    space = Space(concretely)
    whole = Piece([(2, 9999), (0, 3)])
    space.piece = whole
    linear = ((0, 128), (1, 32))
    with pytest.raises(Split) as split:
        space.bound(linear, -200, 128)
    parts = [whole.cut(cell) for cell in split.value.cells]
    assert sum(part.weight for part in parts) == whole.weight
    for part in parts:
        space.piece = part
        form, constant = space.bound(linear, -200, 128)
        for point in points(part.cut([(((0, -1),), 12)])):
            assert value(form, point) + constant == (value(linear, point) - 200) // 128
    # of 999 · x over 1000 a lower bound is taken
    space.piece = Piece([(0, 10**6)])
    assert space.bound(((0, 999),), 5000, 1000) == ((), 5)
