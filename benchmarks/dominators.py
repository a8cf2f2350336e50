"""Our dominators against those of networkx, on the control-flow graphs of the examples and of the tests' compiled kernels.

``python -m benchmarks.dominators`` prints CPU times of both; it ends with an error if they disagree.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import networkx as nx

import gpuperf_engine as ge
from gpuperf_engine.flow.blocks import cut
from gpuperf_engine.flow.dominators import Graph, immediate_dominators, immediate_post_dominators
from tests.cuda import compiled as cuda
from tests.regressions import compiled as regressions

RUNS = 7
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def graphs() -> list[list[list[int]]]:
    """The successors of each basic block, for each function with more than one; −1 is the end of the function."""
    texts = chain(
        (path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.rglob("*.ptx"))),
        (entry["ptx"] for entry in chain(cuda.packed().values(), regressions.packed().values())),
    )
    every = []
    for text in texts:
        for function in ge.parse(text).functions.values():
            blocks = cut(function) if function.instructions else []
            if len(blocks) > 1:
                every.append([list(block.successors) or [-1] for block in blocks])
    return every


def networkx_dominators(successors: Graph, root: int) -> list[int]:
    """As ``immediate_dominators``."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(successors)))
    graph.add_edges_from((node, target) for node, targets in enumerate(successors) for target in targets)
    dominator = nx.immediate_dominators(graph, root)
    return [root if node == root else dominator.get(node, -1) for node in range(len(successors))]


def networkx_post_dominators(successors: Graph) -> list[int]:
    """As ``immediate_post_dominators``, with its rule for endless loops."""
    leave = len(successors)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(leave + 1))
    graph.add_edges_from(
        (leave if target < 0 else target, node)
        for node, targets in enumerate(successors)
        for target in targets
    )
    reached = nx.descendants(graph, leave)
    for node in range(leave):
        if node not in reached:
            graph.add_edge(leave, node)
            reached |= {node} | nx.descendants(graph, node)
    dominator = nx.immediate_dominators(graph, leave)
    return [-1 if dominator[node] == leave else dominator[node] for node in range(leave)]


def _seconds(solve: Callable[[Graph], Sequence[int]], every: Sequence[Graph]) -> float:
    """CPU seconds for all graphs, the best of several runs."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        for graph in every:
            solve(graph)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Compare, measure and print."""
    every = graphs()
    inner = [[[target for target in targets if target >= 0] for targets in graph] for graph in every]
    for graph, within in zip(every, inner):
        if immediate_dominators(within, 0) != networkx_dominators(within, 0):
            sys.exit(f"dominators differ: {within}")
        if immediate_post_dominators(graph) != networkx_post_dominators(graph):
            sys.exit(f"post-dominators differ: {graph}")
    blocks = [len(graph) for graph in every]
    print(
        f"{len(every):,} functions of 2 to {max(blocks):,} basic blocks, {sum(blocks):,} in all; networkx {nx.__version__}"
    )
    for name, ours, theirs, graphs_ in (
        (
            "dominators",
            lambda graph: immediate_dominators(graph, 0),
            lambda graph: networkx_dominators(graph, 0),
            inner,
        ),
        ("post-dominators", immediate_post_dominators, networkx_post_dominators, every),
    ):
        mine, others = _seconds(ours, graphs_), _seconds(theirs, graphs_)
        print(
            f"{name}: {1e3 * mine:.1f} ms, networkx {1e3 * others:.1f} ms ({others / mine:.1f} times as long)"
        )
    start = "import time; start = time.process_time(); import networkx; print(time.process_time() - start)"
    times = [float(subprocess.check_output([sys.executable, "-c", start])) for _ in range(RUNS)]
    print(f"import networkx: {1e3 * min(times):.0f} ms")


if __name__ == "__main__":
    main()
