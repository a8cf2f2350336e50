"""Breadth-first search on a random graph, level by level: the host launches until nothing new is found."""

import numpy as np
import pytest

VERTICES, EDGES, BLOCK = 20_000, 60_000, 256


@pytest.fixture(scope="module")
def graph():
    """Offsets and neighbours of an undirected graph in compressed sparse rows."""
    pairs = np.random.default_rng(10).integers(0, VERTICES, (EDGES, 2))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    first, second = np.divmod(np.unique(both[:, 0] * VERTICES + both[:, 1]), VERTICES)
    offsets = np.searchsorted(first, np.arange(VERTICES + 1)).astype(np.int32)
    return offsets, second.astype(np.int32)


def distances(offsets, neighbours):
    """Distance of every vertex from vertex 0, -1 where it cannot be reached."""
    source, distance = np.repeat(np.arange(VERTICES), np.diff(offsets)), np.full(VERTICES, -1, np.int32)
    level, reached = 0, np.array([0])
    while reached.size:
        distance[reached] = level
        reached = neighbours[distance[source] == level]
        level, reached = level + 1, reached[distance[reached] < 0]
    return distance


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_bfs(gpuperf, graph):
    """Every thread looks after one vertex: expansion marks the next level, commitment enters it."""
    expand = gpuperf.kernel("kernels/bfs.ptx", entry="bfs_expand")
    commit = gpuperf.kernel("kernels/bfs.ptx", entry="bfs_commit")
    offsets, neighbours = (gpuperf.array(part) for part in graph)
    distance = gpuperf.array(np.where(np.arange(VERTICES) == 0, 0, -1).astype(np.int32))
    marked, found = gpuperf.zeros(VERTICES, np.uint8), gpuperf.empty(1, np.int32)

    n, blocks, level, more = np.int32(VERTICES), (VERTICES + BLOCK - 1) // BLOCK, 0, True
    while more:
        gpuperf.memset(found, 0)
        expand[blocks, BLOCK](n, np.int32(level), offsets, neighbours, distance, marked)
        commit[blocks, BLOCK](n, np.int32(level), distance, marked, found)
        level, more = level + 1, found.numpy()[0] == 1

    np.testing.assert_array_equal(distance.numpy(), distances(*graph))


@pytest.mark.gpuperf(targets=["a100-sxm-80gb", "h100-sxm"])
def test_bfs_frontier(gpuperf, graph):
    """Threads only for the vertices of the frontier, which they pass on through a queue with atomics."""
    search = gpuperf.kernel("kernels/bfs.ptx", entry="bfs_frontier")
    offsets, neighbours = (gpuperf.array(part) for part in graph)
    distance = gpuperf.array(np.where(np.arange(VERTICES) == 0, 0, -1).astype(np.int32))
    frontier, following = gpuperf.zeros(VERTICES, np.int32), gpuperf.empty(VERTICES, np.int32)
    sizes = gpuperf.array(np.array([1] + 99 * [0], np.int32))

    level, size = 0, 1
    while size > 0:
        search[(size + BLOCK - 1) // BLOCK, BLOCK](
            np.int32(level), offsets, neighbours, distance, frontier, following, sizes
        )
        frontier, following = following, frontier
        level += 1
        size = int(sizes.numpy()[level])

    np.testing.assert_array_equal(distance.numpy(), distances(*graph))
