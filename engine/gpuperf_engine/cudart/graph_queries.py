"""Graphs as the program sees them: their nodes and edges, and changes of these."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p, memset
from pathlib import Path

from .calls import function
from .codes import CudaError
from .graphs import EDGE_BYTES, Graph, Node, executable_node, handle_of, handles_at
from .launches import Launch
from .state import Kind, State

__all__: list[str] = []

_NAMES = (
    "kernel",
    "copy",
    "fill",
    "host",
    "child graph",
    "empty",
    "wait",
    "record",
    "",
    "",
    "allocate",
    "free",
    "",
    "condition",
)


def _list(state: State, nodes: Sequence[Node], out: int | None, count: int) -> int:
    """Write the handles of as many nodes as there is room for, and their number. Returns how many were written."""
    known = c_size_t.from_address(count)
    if not out:
        known.value = len(nodes)
        return 0
    room, known.value = known.value, min(known.value, len(nodes))
    table = (c_void_p * room).from_address(out)
    for index in range(room):
        table[index] = handle_of(state, nodes[index]) if index < len(nodes) else None
    return known.value


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphGetNodes(state: State, graph: int, out: int | None, count: int) -> None:
    _list(state, state.of(graph, Graph).nodes, out, count)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphGetRootNodes(state: State, graph: int, out: int | None, count: int) -> None:
    _list(state, [node for node in state.of(graph, Graph).nodes if not node.before], out, count)


@function(c_void_p, c_void_p, c_void_p, c_void_p)
def cudaGraphGetEdges(state: State, graph: int, first: int | None, then: int | None, count: int) -> None:
    cudaGraphGetEdges_v2(state, graph, first, then, None, count)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, also=("cudaGraphGetEdges@13",))
def cudaGraphGetEdges_v2(
    state: State, graph: int, first: int | None, then: int | None, edges: int | None, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    pairs = [(earlier, node) for node in state.of(graph, Graph).nodes for earlier in node.before]
    room = c_size_t.from_address(count).value
    written = _list(state, [earlier for earlier, _ in pairs], first, count)
    if then and first:
        c_size_t.from_address(count).value = room
        _list(state, [node for _, node in pairs], then, count)
    if edges and written:
        memset(edges, 0, EDGE_BYTES * written)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphNodeGetDependencies(state: State, node: int, out: int | None, count: int) -> None:
    _list(state, state.of(node, Node).before, out, count)


@function(c_void_p, c_void_p, c_void_p, c_void_p, also=("cudaGraphNodeGetDependencies@13",))
def cudaGraphNodeGetDependencies_v2(
    state: State, node: int, out: int | None, edges: int | None, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    written = _list(state, state.of(node, Node).before, out, count)
    if edges and written:
        memset(edges, 0, EDGE_BYTES * written)


def _dependents(node: Node) -> list[Node]:
    return [other for other in node.graph.nodes if node in other.before]


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphNodeGetDependentNodes(state: State, node: int, out: int | None, count: int) -> None:
    _list(state, _dependents(state.of(node, Node)), out, count)


@function(c_void_p, c_void_p, c_void_p, c_void_p, also=("cudaGraphNodeGetDependentNodes@13",))
def cudaGraphNodeGetDependentNodes_v2(
    state: State, node: int, out: int | None, edges: int | None, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    written = _list(state, _dependents(state.of(node, Node)), out, count)
    if edges and written:
        memset(edges, 0, EDGE_BYTES * written)


def _pairs(state: State, first: int, then: int, count: int) -> list[tuple[Node, Node]]:
    both = zip(handles_at(first, count), handles_at(then, count))
    return [(state.of(earlier, Node), state.of(later, Node)) for earlier, later in both]


@function(c_void_p, c_void_p, c_void_p, c_size_t)
def cudaGraphAddDependencies(state: State, graph: int, first: int, then: int, count: int) -> None:
    for earlier, later in _pairs(state, first, then, count):
        if earlier not in later.before:
            later.before.append(earlier)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, also=("cudaGraphAddDependencies@13",))
def cudaGraphAddDependencies_v2(
    state: State, graph: int, first: int, then: int, edges: int, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    cudaGraphAddDependencies(state, graph, first, then, count)


@function(c_void_p, c_void_p, c_void_p, c_size_t)
def cudaGraphRemoveDependencies(state: State, graph: int, first: int, then: int, count: int) -> None:
    for earlier, later in _pairs(state, first, then, count):
        if earlier not in later.before:
            raise CudaError(1, "there is no such dependency")
        later.before.remove(earlier)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, also=("cudaGraphRemoveDependencies@13",))
def cudaGraphRemoveDependencies_v2(
    state: State, graph: int, first: int, then: int, edges: int, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    cudaGraphRemoveDependencies(state, graph, first, then, count)


@function(c_void_p)
def cudaGraphDestroyNode(state: State, node: int) -> None:
    known = state.of(node, Node)
    for other in _dependents(known):
        other.before.remove(known)
    known.graph.nodes.remove(known)
    del state.objects[node]


@function(c_void_p, c_void_p)
def cudaGraphNodeGetType(state: State, node: int, out: int) -> None:
    c_int.from_address(out).value = state.of(node, Node).kind


@function(c_void_p, c_void_p)
def cudaGraphNodeGetContainingGraph(state: State, node: int, out: int) -> None:
    c_void_p.from_address(out).value = handle_of(state, state.of(node, Node).graph)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphNodeFindInClone(state: State, out: int, node: int, clone: int) -> None:
    found = state.of(clone, Graph).origins.get(state.of(node, Node))
    if found is None:
        raise CudaError(1, "the graph is not a clone of the one with this node")
    c_void_p.from_address(out).value = handle_of(state, found)


@function(c_void_p, c_void_p, c_uint)
def cudaGraphNodeSetEnabled(state: State, graph: int, node: int, enabled: int) -> None:
    executable, known = executable_node(state, graph, node)
    if known.kind not in range(3):
        raise CudaError(1, "only kernels, copies and fills can be disabled")
    if enabled:
        executable.disabled.discard(known)
    else:
        executable.disabled.add(known)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphNodeGetEnabled(state: State, graph: int, node: int, out: int) -> None:
    executable, known = executable_node(state, graph, node)
    c_uint.from_address(out).value = int(known not in executable.disabled)


@function(c_void_p, c_char_p, c_uint)
def cudaGraphDebugDotPrint(state: State, graph: int, path: bytes, flags: int) -> None:
    """With any flag, kernels have their shape."""
    lines = ["digraph {", *_dot(state.of(graph, Graph), "n", bool(flags)), "}"]
    try:
        Path(path.decode("utf-8", "surrogateescape")).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise CudaError(304, f"the graph could not be written: {error}") from None


def _dot(graph: Graph, prefix: str, shapes: bool) -> list[str]:
    names = {node: f"{prefix}{number}" for number, node in enumerate(graph.nodes)}
    lines = []
    for node, name in names.items():
        lines.append(f'  {name} [label="{_label(node, shapes)}"];')
        lines += [f"  {names[earlier]} -> {name};" for earlier in node.before]
        for number, body in enumerate(node.bodies):
            label = f"body {number}" if node.kind == Kind.CONDITIONAL else "graph"
            lines += [f'  subgraph cluster_{name}_{number} {{ label="{name}: {label}";']
            lines += [*_dot(body, f"{name}_{number}_", shapes), "  }"]
    return lines


def _label(node: Node, shapes: bool) -> str:
    launch = node.operation
    if not isinstance(launch, Launch):
        return _NAMES[node.kind]
    shape = f"\\n<<<{launch.grid}, {launch.block}, {launch.shared}>>>" if shapes else ""
    return launch.kernel.name + shape
