"""Graphs: operations in order, captured from streams or added one by one."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    Structure,
    addressof,
    c_int,
    c_size_t,
    c_uint,
    c_ulonglong,
    c_void_p,
    sizeof,
    string_at,
)  # fmt: skip
from dataclasses import dataclass, field

from ..device.rows import Rows
from .arrays import Copy3D, cudaMemcpy3D
from .calls import function
from .codes import CudaError
from .launches import Dim3, prepared, shape_of
from .memory import allocate_in_graph, copy, cudaFree, fill_rows, graph_memory
from .registration import kernel_of
from .state import State

__all__ = ["Graph", "Node", "add_node"]

_HOST_FUNCTION = CFUNCTYPE(None, c_void_p)
_AUTO_FREE = 1


@dataclass(eq=False)
class Node:
    """An operation, and the nodes that it depends on. ``memory``: the address of an allocation node."""

    operation: Callable[[], object]
    before: list[Node] = field(default_factory=list)
    memory: int = 0


@dataclass
class Graph:
    """A graph: its nodes in the order in which they were added."""

    nodes: list[Node] = field(default_factory=list)

    def append(self, operation: Callable[[], object]) -> Node:
        """Add an operation that a stream captures."""
        self.nodes.append(Node(operation))
        return self.nodes[-1]

    def ordered(self) -> dict[Node, Callable[[], object]]:
        """Operations by node in topological order; independent nodes stay in the order in which they were added."""
        ordered: dict[Node, None] = {}
        stack = list(reversed(self.nodes))
        while stack:
            node = stack[-1]
            waiting = [other for other in node.before if other not in ordered]
            if waiting and node not in ordered:
                stack += waiting
            else:
                ordered.setdefault(stack.pop())
        return {node: node.operation for node in ordered}


@dataclass
class Executable:
    """An instantiated graph: its operations in order, by node. ``frees``: whether a launch first frees memory that the graph
    allocated and nobody freed."""

    operations: dict[Node, Callable[[], object]]
    frees: bool = False


class _KernelNode(Structure):
    """``cudaKernelNodeParams``."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", Dim3),
        ("block", Dim3),
        ("shared", c_uint),
        ("arguments", c_void_p),
        ("extra", c_void_p),
    ]


class _MemsetNode(Structure):
    """``cudaMemsetParams``."""

    _fields_ = [
        ("target", c_void_p),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("size", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    ]


class _HostNode(Structure):
    """``cudaHostNodeParams``."""

    _fields_ = [("function", c_void_p), ("data", c_void_p)]


@function(c_void_p, c_int)
def cudaStreamBeginCapture(state: State, stream: int, mode: int) -> None:
    if not stream:
        raise CudaError(900, "the default stream cannot be captured")
    state.stream_of(stream)
    state.captures[stream] = Graph()


@function(c_void_p, c_void_p)
def cudaStreamEndCapture(state: State, stream: int, out: int) -> None:
    graph = state.capture_of(stream)
    if graph is None:
        raise CudaError(901, "the stream is not being captured")
    state.captures = {other: known for other, known in state.captures.items() if known is not graph}
    c_void_p.from_address(out).value = state.new(graph)


@function(c_void_p, c_void_p)
def cudaStreamIsCapturing(state: State, stream: int, out: int) -> None:
    c_int.from_address(out).value = int(state.capture_of(stream) is not None)


@function(c_void_p)
def cudaThreadExchangeStreamCaptureMode(state: State, mode: int) -> None:
    """Accepted without effect: the mode does not matter here."""


@function(c_void_p, c_void_p, c_ulonglong, also=("cudaGraphInstantiateWithFlags",))
def cudaGraphInstantiate(state: State, out: int, graph: int, flags: int) -> None:
    frees = bool(flags & _AUTO_FREE)
    c_void_p.from_address(out).value = state.new(Executable(state.of(graph, Graph).ordered(), frees))


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphInstantiateWithParams(state: State, out: int, graph: int, given: int) -> None:
    """``cudaGraphInstantiateParams``: flags, a stream, the node in error, the result."""
    flags = c_ulonglong.from_address(given).value
    cudaGraphInstantiate(state, out, graph, flags)
    c_void_p.from_address(given + 16).value = None
    c_int.from_address(given + 24).value = 0


@function(c_void_p, c_void_p)
def cudaGraphLaunch(state: State, graph: int, stream: int) -> None:
    executable = state.of(graph, Executable)

    def run() -> None:
        for node in executable.operations if executable.frees else ():
            if node.memory and ("memory", node.memory) in state.objects:
                cudaFree(state, node.memory)
        for operation in executable.operations.values():
            if state.sticky:
                return
            operation()

    state.enqueue(stream, run)


@function(c_void_p, c_void_p)
def cudaGraphUpload(state: State, graph: int, stream: int) -> None:
    state.of(graph, Executable)
    state.stream_of(stream)


@function(c_void_p)
def cudaGraphDestroy(state: State, graph: int) -> None:
    state.of(graph, Graph)
    del state.objects[graph]


@function(c_void_p)
def cudaGraphExecDestroy(state: State, graph: int) -> None:
    state.of(graph, Executable)
    del state.objects[graph]


@function(c_void_p, c_uint)
def cudaGraphCreate(state: State, out: int, flags: int) -> None:
    c_void_p.from_address(out).value = state.new(Graph())


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphGetNodes(state: State, graph: int, nodes: int, count: int) -> None:
    if nodes:
        raise CudaError(801, "nodes of graphs are not listed")
    c_size_t.from_address(count).value = len(state.of(graph, Graph).nodes)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphExecUpdate(state: State, executable: int, graph: int, out: int) -> None:
    state.of(executable, Executable).operations = state.of(graph, Graph).ordered()


@function(c_void_p, c_void_p)
def cudaGraphClone(state: State, out: int, graph: int) -> None:
    c_void_p.from_address(out).value = state.new(Graph(list(state.of(graph, Graph).nodes)))


# -- nodes ----------------------------------------------------------------------------------------------------------------


def add_node(
    state: State, out: int, graph: int, before: int | None, count: int, operation: Callable[[], object]
) -> Node:
    """Add a node with dependencies to a graph, and write its handle."""
    node: Node = state.of(graph, Graph).append(operation)
    handles = (c_void_p * count).from_address(before) if before and count else ()
    node.before = [state.of(handle, Node) for handle in handles]
    c_void_p.from_address(out).value = state.new(node)
    return node


def _kernel(state: State, given: int) -> Callable[[], object]:
    asked = _KernelNode.from_address(given)
    kernel = kernel_of(state, asked.function)
    return prepared(state, kernel, shape_of(asked.grid), shape_of(asked.block), asked.arguments, asked.shared)


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddKernelNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    add_node(state, out, graph, before, count, _kernel(state, given))


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_int)
def cudaGraphAddMemcpyNode1D(
    state: State,
    out: int,
    graph: int,
    before: int,
    count: int,
    target: int,
    source: int,
    size: int,
    kind: int,
) -> None:
    add_node(state, out, graph, before, count, lambda: copy(state, target, source, size, kind))


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemcpyNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    kept = Copy3D.from_buffer_copy(string_at(given, sizeof(Copy3D)))
    add_node(state, out, graph, before, count, lambda: cudaMemcpy3D(state, addressof(kept)))


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemsetNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    asked = _MemsetNode.from_address(given)
    value = asked.value.to_bytes(4, "little")[: asked.size]
    target, pitch, width, height = asked.target, asked.pitch, asked.width, asked.height

    def filled() -> None:
        fill_rows(state, target, value, Rows(width * len(value), max(1, height), 1, pitch))

    add_node(state, out, graph, before, count, filled)


class _AllocationNode(Structure):
    """``cudaMemAllocNodeParams``: the properties of a pool (88 bytes), access descriptors, size, and the address, which is
    written."""

    _fields_ = [
        ("pool", c_ulonglong * 11),
        ("accesses", c_void_p),
        ("access_count", c_size_t),
        ("size", c_size_t),
        ("address", c_void_p),
    ]


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemAllocNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    asked = _AllocationNode.from_address(given)
    if not asked.size:
        raise CudaError(1, "an allocation node of 0 bytes")
    address = graph_memory(state, asked.size)
    node = add_node(state, out, graph, before, count, lambda: allocate_in_graph(state, address))
    node.memory = asked.address = address


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemFreeNode(
    state: State, out: int, graph: int, before: int, count: int, address: int
) -> None:
    if ("graph memory", address) not in state.objects:
        raise CudaError(1, f"{address or 0:#x} is not an address of an allocation node")
    add_node(state, out, graph, before, count, lambda: cudaFree(state, address))


def _graph_memory(state: State) -> int:
    """Bytes that graphs have allocated and that were not freed."""
    held = [key for key in state.objects if isinstance(key, tuple) and key[0] == "graph memory"]
    return sum(state.objects[key] for key in held if ("memory", key[1]) in state.objects)


@function(c_int, c_int, c_void_p)
def cudaDeviceGetGraphMemAttribute(state: State, device: int, attribute: int, out: int) -> None:
    """Used and reserved bytes are the same here."""
    if attribute not in range(4):
        raise CudaError(1, f"{attribute} is not an attribute of graph memory")
    c_ulonglong.from_address(out).value = _graph_memory(state)


@function(also=("cudaDeviceSetGraphMemAttribute",))
def cudaDeviceGraphMemTrim(state: State) -> None:
    """Nothing to do: freed memory is returned at once."""


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddHostNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    asked = _HostNode.from_address(given)
    called, data = _HOST_FUNCTION(asked.function), asked.data
    add_node(state, out, graph, before, count, lambda: called(data))


@function(c_void_p, c_void_p, c_void_p, c_size_t)
def cudaGraphAddEmptyNode(state: State, out: int, graph: int, before: int, count: int) -> None:
    add_node(state, out, graph, before, count, lambda: None)


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddChildGraphNode(
    state: State, out: int, graph: int, before: int, count: int, child: int
) -> None:
    operations = list(state.of(child, Graph).ordered().values())
    add_node(state, out, graph, before, count, lambda: [operation() for operation in operations])


@function(c_void_p, c_void_p, c_void_p, c_size_t)
def cudaGraphAddDependencies(state: State, graph: int, first: int, then: int, count: int) -> None:
    pairs = zip((c_void_p * count).from_address(first), (c_void_p * count).from_address(then))
    for earlier, later in pairs:
        state.of(later, Node).before.append(state.of(earlier, Node))


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, also=("cudaGraphAddDependencies@13",))
def cudaGraphAddDependencies_v2(
    state: State, graph: int, first: int, then: int, edges: int, count: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    cudaGraphAddDependencies(state, graph, first, then, count)


@function(c_void_p, c_void_p)
def cudaGraphKernelNodeSetParams(state: State, node: int, given: int) -> None:
    state.of(node, Node).operation = _kernel(state, given)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphExecKernelNodeSetParams(state: State, graph: int, node: int, given: int) -> None:
    operations = state.of(graph, Executable).operations
    known = state.of(node, Node)
    if known not in operations:
        raise CudaError(1, "the node does not belong to the graph of this executable")
    operations[known] = _kernel(state, given)
