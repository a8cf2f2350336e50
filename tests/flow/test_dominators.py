"""Dominators against definitions: x dominates y if y cannot be reached once x is taken out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuperf_engine.flow.dominators import immediate_dominators, immediate_post_dominators, postorder


def reachable(successors: list[list[int]], root: int, without: int | None = None) -> set[int]:
    seen: set[int] = set()
    stack = [root] if root != without else []
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [target for target in successors[node] if target != without]
    return seen


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 9))
    return [draw(st.lists(st.integers(0, size - 1), max_size=3)) for _ in range(size)]


@given(graphs())
def test_immediate_dominator_is_the_last_of_all_dominators(successors: list[list[int]]) -> None:
    all_nodes = reachable(successors, 0)
    found = immediate_dominators(successors, 0)
    for node in range(len(successors)):
        if node not in all_nodes:
            assert found[node] == -1
            continue
        dominators = {other for other in all_nodes if node not in reachable(successors, 0, without=other)}
        chain = {node}
        walk = node
        while walk != 0:
            walk = found[walk]
            chain.add(walk)
        assert chain == dominators | {node}


@given(graphs())
def test_postorder_visits_every_reachable_node_once(successors: list[list[int]]) -> None:
    order = postorder(successors, 0)
    assert len(order) == len(set(order))
    assert set(order) == reachable(successors, 0)
    assert order[-1] == 0


def test_post_dominators_of_a_diamond_with_an_early_exit() -> None:
    # 0 → 1 | 2;  1 → 3 | exit;  2 → 3;  3 → exit
    assert immediate_post_dominators([[1, 2], [3, -1], [3], [-1]]) == [-1, -1, 3, -1]


def test_post_dominators_of_an_endless_loop_are_defined() -> None:
    # 0 → 1 | 2;  1 → 1 (for ever);  2 → exit
    assert immediate_post_dominators([[1, 2], [1], [-1]]) == [-1, -1, -1]
