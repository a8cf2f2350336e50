"""Dominators of a graph by the iterative algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "dominance_frontiers",
    "immediate_dominators",
    "immediate_post_dominators",
    "postorder",
    "predecessors",
]

Graph = Sequence[Sequence[int]]


def predecessors(successors: Graph) -> list[list[int]]:
    """The graph with its edges reversed."""
    result: list[list[int]] = [[] for _ in successors]
    for node, targets in enumerate(successors):
        for target in targets:
            result[target].append(node)
    return result


def postorder(successors: Graph, root: int) -> list[int]:
    """Nodes reachable from ``root`` in the postorder of a depth-first search (iterative, as graphs may be deep)."""
    seen = {root}
    order: list[int] = []
    stack = [(root, iter(successors[root]))]
    while stack:
        node, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(successors[target])))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def immediate_dominators(successors: Graph, root: int) -> list[int]:
    """For each node its immediate dominator; ``root`` is its own; −1 for nodes that ``root`` does not reach."""
    order = postorder(successors, root)
    number = {node: position for position, node in enumerate(order)}
    before = predecessors(successors)
    dominator = [-1] * len(successors)
    dominator[root] = root
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            best = -1
            for source in before[node]:
                if dominator[source] < 0:
                    continue
                best = source if best < 0 else _common_dominator(best, source, dominator, number)
            if dominator[node] != best:
                dominator[node] = best
                changed = True
    return dominator


def _common_dominator(a: int, b: int, dominator: list[int], number: dict[int, int]) -> int:
    while a != b:
        while number[a] < number[b]:
            a = dominator[a]
        while number[b] < number[a]:
            b = dominator[b]
    return a


def dominance_frontiers(before: Graph, dominator: Sequence[int]) -> list[list[int]]:
    """For each node those that it does not strictly dominate although it dominates a predecessor of them, where its definitions need
    φs. ``before`` are the predecessors; node 0 is the root, which is also entered from outside."""
    frontiers: list[dict[int, None]] = [{} for _ in before]
    for node, sources in enumerate(before):
        if len(sources) < 2 and node != 0:
            continue
        stop = dominator[node] if node else -1
        for runner in sources:
            while runner != stop and node not in frontiers[runner]:
                frontiers[runner][node] = None
                runner = dominator[runner] if runner else -1
    return [list(nodes) for nodes in frontiers]


def immediate_post_dominators(successors: Graph) -> list[int]:
    """For each node its immediate post-dominator, ``-1`` for the virtual exit.

    A successor of −1 is the virtual exit. Nodes from which no path leads to the exit (endless loops) get an edge to it, so that every
    node has a post-dominator: in an endless loop it is where the paths of the loop converge, or the exit.
    """
    count = len(successors)
    exit_node = count
    forward = [[exit_node if target < 0 else target for target in targets] for targets in successors]
    forward.append([])
    reverse = predecessors(forward)
    reached = set(postorder(reverse, exit_node))
    for node in range(count):
        if node not in reached:
            reverse[exit_node].append(node)
            reached.update(postorder(reverse, node))
    dominators = immediate_dominators(reverse, exit_node)[:count]
    return [-1 if node == exit_node else node for node in dominators]
