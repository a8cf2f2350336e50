"""The references that the example kernels are compared with, against formulas of another kind."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import numpy as np
import numpy_reference as reference
import pytest


def nearest(exact: Fraction, dtype: type[np.floating]) -> float:
    """The value of the dtype nearest to an exact number, ties to even, by search around a first guess."""
    guess = dtype(float(exact))
    around = [np.nextafter(guess, dtype(-np.inf)), guess, np.nextafter(guess, dtype(np.inf))]
    finite = [value for value in around if np.isfinite(value)]
    unsigned = np.uint16 if dtype is np.float16 else np.uint32
    return float(min(finite, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(unsigned)) & 1)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_fma_rounds_the_exact_value_once(dtype):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 500)).astype(dtype)
    c[:250] = -(a[:250] * b[:250]) * dtype(1.001)  # cancellation: what the product rounds away decides
    ties = np.array([2.0 ** -(np.finfo(dtype).nmant + 1), 3 * 2.0 ** -(np.finfo(dtype).nmant + 1)], dtype)
    a, b, c = np.append(a, ties), np.append(b, dtype([1, 1])), np.append(c, dtype([1, 1]))

    expected = [
        nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype)
        for x, y, z in zip(a, b, c, strict=True)
    ]

    np.testing.assert_array_equal(reference.fma(a, b, c), np.array(expected, dtype), strict=True)


def test_fma_differs_from_two_roundings():
    a = np.float32(1 + 2**-12)
    assert reference.fma(a, a, np.float32(-1)) == np.float32(2**-11 + 2**-24)
    assert a * a - np.float32(1) == np.float32(2**-11)


def test_sums_and_products_agree_with_exact_arithmetic():
    rng = np.random.default_rng(1)
    values = rng.standard_normal(1000, np.float32)
    exact = math.fsum(values.tolist())
    whole = rng.integers(-50, 50, 1000).astype(np.float32)
    a, b = rng.integers(-9, 9, (7, 11)).astype(np.float32), rng.integers(-9, 9, (11, 5)).astype(np.float32)

    assert math.fsum(reference.reduce_shared(values).tolist()) == pytest.approx(exact, abs=1e-4)
    assert reference.reduce_shared(whole).sum() == whole.sum()
    assert reference.reduce_shuffle(whole, 3).sum() == whole.sum()
    assert reference.reduce_shared(np.zeros(0, np.float32)).tolist() == [0]
    np.testing.assert_array_equal(reference.sgemm(a, b), a @ b)


def test_collatz_lengths_are_the_published_ones():
    """OEIS A006577."""
    steps = reference.collatz(97)
    first = [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4, 12, 20, 20, 7, 7, 15, 15, 10, 23]
    assert steps[:25].tolist() == first
    assert (steps[27 - 1], steps[97 - 1]) == (111, 118)


def test_mandelbrot_follows_the_definition():
    view = np.array([(-2.0, -1.0, 0.25, 0.25, 13, 9, 60)], reference.VIEW)[0]
    times = reference.mandelbrot(view)
    for row in range(9):
        for col in range(13):
            c, z, step = complex(-2 + 0.25 * col, -1 + 0.25 * row), 0j, 0
            while step < 60 and abs(z) <= 2:
                z, step = z * z + c, step + 1
            assert abs(times[row, col] - step) <= (step > 12)  # late escapes hang on the last bit
    assert times[4, 8] == 60 and times[4, 0] == 60  # 0 and -2 are in the set


def test_breadth_first_search_agrees_with_networkx():
    offsets, neighbours = reference.random_graph(200, 260, np.random.default_rng(2))
    graph = nx.Graph()
    graph.add_nodes_from(range(200))
    graph.add_edges_from((v, int(w)) for v in range(200) for w in neighbours[offsets[v] : offsets[v + 1]])
    lengths = nx.single_source_shortest_path_length(graph, 0)

    assert graph.number_of_edges() * 2 == neighbours.size
    assert nx.number_of_selfloops(graph) == 0
    assert reference.bfs(offsets, neighbours, 0).tolist() == [lengths.get(v, -1) for v in range(200)]


def test_sparse_product_agrees_with_the_dense_one():
    rng = np.random.default_rng(3)
    offsets, columns = reference.random_csr(40, 30, 4.0, rng)
    values, x = rng.standard_normal(columns.size, np.float32), rng.standard_normal(30, np.float32)
    dense = np.zeros((40, 30))
    for row in range(40):
        dense[row, columns[offsets[row] : offsets[row + 1]]] = values[offsets[row] : offsets[row + 1]]

    assert (np.diff(offsets) == 0).any() and (np.diff(offsets) > 4).any()
    np.testing.assert_allclose(reference.spmv(offsets, columns, values, x), dense @ x, rtol=1e-12, atol=1e-12)


def test_heat_step_by_hand():
    field = np.zeros((4, 5), np.float32)
    field[1, 2], field[0, 0] = 8, 3
    after = reference.heat_step(field)
    assert after.tolist() == [[3, 0, 0, 0, 0], [0, 1, 4, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]


def test_normalisations_have_their_defining_properties():
    rows = np.random.default_rng(4).standard_normal((3, 50), np.float32)
    ones, zeros = np.ones(50, np.float32), np.zeros(50, np.float32)
    powers, normal = reference.softmax(rows), reference.layernorm(rows, ones, zeros, 0.0)

    np.testing.assert_allclose(powers.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(powers[:, 1:] / powers[:, :1]), rows[:, 1:] - rows[:, :1], atol=1e-6)
    np.testing.assert_allclose(normal.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose((normal**2).mean(axis=1), 1, rtol=1e-12)
    doubled = reference.layernorm(rows, 2 * ones, ones, 0.0)
    np.testing.assert_allclose(doubled, 2 * normal + 1, rtol=1e-12)


def test_expressions_by_hand():
    steps = [(1, 0), (0, 3), (4, 0), (0, 10), (3, 0), (7, 0), (8, 0), (6, 0), (0, 0.5), (1, 0), (5, 0)]
    code = np.array(steps, reference.INSTRUCTION)
    values = reference.evaluate(np.array([0, 8, 11], np.int32), code, 2.0)
    assert values.tolist() == [-2, 0.25]  # -sqrt(|2 * 3 - 10|) and 0.5 / 2


def test_random_expressions_are_valid():
    starts, code = reference.random_expressions(100, 30, np.random.default_rng(5))
    effect = np.select([code["operation"] < 2, code["operation"] < 6], [1, -1], 0)
    for first, last in pairwise(starts):
        depth = np.cumsum(effect[first:last])
        assert depth[-1] == 1 and depth.min() >= 1 and depth.max() <= 8
    assert set(code["operation"].tolist()) == set(range(9))
