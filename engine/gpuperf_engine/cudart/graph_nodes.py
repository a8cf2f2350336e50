"""Nodes of graphs: their parameters, in the form of the function for each kind and in that of ``cudaGraphAddNode``."""

from __future__ import annotations

import ctypes
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
from functools import partial

from ..device.rows import Rows
from .arrays import Copy3D, cudaMemcpy3D
from .calls import FUNCTIONS, Function, function
from .codes import CudaError
from .events import Event
from .graphs import Condition, Graph, Node, executable_node, handle_of, handles_at
from .launches import Dim3, Launch, prepared, shape_of
from .memory import allocate_in_graph, copy, cudaFree, fill_rows, graph_memory
from .registration import handle_of_kernel, kernel_of, symbol_address
from .state import Kind, State

__all__ = ["BUILDS", "Build", "Operation", "add_node", "nodes_of_any_kind", "settable"]

_HOST_FUNCTION = CFUNCTYPE(None, c_void_p)
#: where the union of ``cudaGraphNodeParams`` begins, and where that of a copy has the copy
_PARAMETERS, _COPY = 16, 16
#: a value of a condition is set to its default by each launch
_ASSIGN_DEFAULT = 1

Operation = Callable[[], object]
#: makes an operation from parameters; returns it with what ``…GetParams`` returns
Build = Callable[[State, int], tuple[Operation, object]]


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


class _ConditionalNode(Structure):
    """``cudaConditionalNodeParams``; ``bodies`` is written: the address of the graphs of its bodies."""

    _fields_ = [
        ("handle", c_ulonglong),
        ("type", c_int),
        ("size", c_uint),
        ("bodies", c_void_p),
    ]


def _copied(kind: type[Structure], given: int) -> Structure:
    return kind.from_buffer_copy(string_at(given, sizeof(kind)))


def _nothing() -> None:
    """An operation without effect."""


# -- operations from parameters -------------------------------------------------------------------------------------------


def _kernel(state: State, given: int) -> tuple[Operation, object]:
    asked = _KernelNode.from_address(given)
    kernel = kernel_of(state, asked.function)
    grid, block = shape_of(asked.grid), shape_of(asked.block)
    return prepared(state, kernel, grid, block, asked.arguments, asked.shared), None


def _memcpy(state: State, given: int) -> tuple[Operation, object]:
    kept = _copied(Copy3D, given)
    return lambda: cudaMemcpy3D(state, addressof(kept)), kept


def _memset(state: State, given: int) -> tuple[Operation, object]:
    asked = _copied(_MemsetNode, given)
    value = asked.value.to_bytes(4, "little")[: asked.size]
    rows = Rows(asked.width * len(value), max(1, asked.height), 1, asked.pitch)
    return lambda: fill_rows(state, asked.target, value, rows), asked


def _host(state: State, given: int) -> tuple[Operation, object]:
    asked = _copied(_HostNode, given)
    called = _HOST_FUNCTION(asked.function)
    return lambda: called(asked.data), asked


def _record(state: State, event: int) -> Operation:
    state.of(event, Event)
    return lambda: FUNCTIONS["cudaEventRecord"].implementation(state, event, 0)


def _wait(state: State, event: int) -> Operation:
    """Everything before has completed."""
    state.of(event, Event)
    return _nothing


# -- adding nodes ---------------------------------------------------------------------------------------------------------


def add_node(
    state: State,
    out: int,
    graph: int,
    before: int | None,
    count: int,
    operation: Operation,
    kind: int,
    given: object = None,
) -> Node:
    """Add a node with dependencies to a graph, and write its handle."""
    earlier = [state.of(handle, Node) for handle in handles_at(before, count)]
    node: Node = state.of(graph, Graph).append(operation, kind)
    node.before, node.given = earlier, given
    c_void_p.from_address(out).value = handle_of(state, node)
    return node


def settable(kind: int, name: str, build: Build, prefix: str = "cuda", context: bool = False) -> None:
    """Register the functions that add a node of a kind, and set its parameters in a graph or an executable. ``context``: they have
    one more argument."""

    def add(state: State, out: int, graph: int, before: int, count: int, parameters: int, *_: int) -> None:
        operation, given = build(state, parameters)
        add_node(state, out, graph, before, count, operation, kind, given)

    def set_(state: State, node: int, parameters: int) -> None:
        known = state.of(node, Node)
        known.operation, known.given = build(state, parameters)
        known.kept.clear()

    def set_executable(state: State, graph: int, node: int, parameters: int, *_: int) -> None:
        executable, known = executable_node(state, graph, node)
        executable.operations[known] = build(state, parameters)[0]

    last = [c_void_p] * context
    for implementation, written, types in (
        (add, f"{prefix}GraphAdd{name}Node", [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, *last]),
        (set_, f"{prefix}Graph{name}NodeSetParams", [c_void_p, c_void_p]),
        (set_executable, f"{prefix}GraphExec{name}NodeSetParams", [c_void_p, c_void_p, c_void_p, *last]),
    ):
        FUNCTIONS[written] = Function(implementation, tuple(types), c_int, True)


settable(Kind.KERNEL, "Kernel", _kernel)
settable(Kind.MEMCPY, "Memcpy", _memcpy)
settable(Kind.MEMSET, "Memset", _memset)
settable(Kind.HOST, "Host", _host)


def _one_row(state: State, target: int, source: int, size: int, kind: int) -> tuple[Operation, object]:
    given = Copy3D(kind=kind)
    given.target.ptr, given.source.ptr = target, source
    given.extent.width, given.extent.height, given.extent.depth = size, 1, 1
    return lambda: copy(state, target, source, size, kind), given


def _into_symbol(
    state: State, symbol: int, source: int, size: int, offset: int, kind: int
) -> tuple[Operation, object]:
    return _one_row(state, symbol_address(state, symbol)[0] + offset, source, size, kind)


def _from_symbol(
    state: State, target: int, symbol: int, size: int, offset: int, kind: int
) -> tuple[Operation, object]:
    return _one_row(state, target, symbol_address(state, symbol)[0] + offset, size, kind)


def _copies(suffix: str, build: Callable[..., tuple[Operation, object]], types: tuple[type, ...]) -> None:
    """The functions for copies whose parameters are arguments."""

    def add(state: State, out: int, graph: int, before: int, count: int, *parameters: int) -> None:
        operation, given = build(state, *parameters)
        add_node(state, out, graph, before, count, operation, Kind.MEMCPY, given)

    def set_(state: State, node: int, *parameters: int) -> None:
        known = state.of(node, Node)
        known.operation, known.given = build(state, *parameters)

    def set_executable(state: State, graph: int, node: int, *parameters: int) -> None:
        executable, known = executable_node(state, graph, node)
        executable.operations[known] = build(state, *parameters)[0]

    for implementation, written, first in (
        (add, f"cudaGraphAddMemcpyNode{suffix}", (c_void_p, c_void_p, c_void_p, c_size_t)),
        (set_, f"cudaGraphMemcpyNodeSetParams{suffix}", (c_void_p,)),
        (set_executable, f"cudaGraphExecMemcpyNodeSetParams{suffix}", (c_void_p, c_void_p)),
    ):
        FUNCTIONS[written] = Function(implementation, (*first, *types), c_int, True)


_copies("1D", _one_row, (c_void_p, c_void_p, c_size_t, c_int))
_copies("ToSymbol", _into_symbol, (c_void_p, c_void_p, c_size_t, c_size_t, c_int))
_copies("FromSymbol", _from_symbol, (c_void_p, c_void_p, c_size_t, c_size_t, c_int))


@function(c_void_p, c_void_p, c_void_p, c_size_t)
def cudaGraphAddEmptyNode(state: State, out: int, graph: int, before: int, count: int) -> None:
    add_node(state, out, graph, before, count, _nothing, Kind.EMPTY)


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddChildGraphNode(
    state: State, out: int, graph: int, before: int, count: int, child: int
) -> None:
    body = state.of(child, Graph).clone()
    add_node(state, out, graph, before, count, _nothing, Kind.CHILD).bodies.append(body)


@function(c_void_p, c_void_p)
def cudaGraphChildGraphNodeGetGraph(state: State, node: int, out: int) -> None:
    known = state.of(node, Node)
    if known.kind != Kind.CHILD or not known.bodies:
        raise CudaError(1, "the node has no graph")
    c_void_p.from_address(out).value = handle_of(state, known.bodies[0])


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphExecChildGraphNodeSetParams(state: State, graph: int, node: int, child: int) -> None:
    executable, known = executable_node(state, graph, node)
    if executable.update_body(known, state.of(child, Graph)):
        raise CudaError(1, "the graph has other nodes or dependencies than that of the node")


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemAllocNode(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    asked = _AllocationNode.from_address(given)
    if not asked.size:
        raise CudaError(1, "an allocation node of 0 bytes")
    address = graph_memory(state, asked.size)
    operation = partial(allocate_in_graph, state, address)
    node = add_node(state, out, graph, before, count, operation, Kind.ALLOCATION)
    node.memory = asked.address = address
    node.given = _copied(_AllocationNode, given)


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
def cudaGraphAddMemFreeNode(
    state: State, out: int, graph: int, before: int, count: int, address: int
) -> None:
    if ("graph memory", address) not in state.objects:
        raise CudaError(1, f"{address or 0:#x} is not an address of an allocation node")
    operation = partial(cudaFree, state, address)
    add_node(state, out, graph, before, count, operation, Kind.FREE, c_void_p(address))


def _events(name: str, kind: int, build: Callable[[State, int], Operation]) -> None:
    """The functions for nodes that record an event, or wait for one."""

    def add(state: State, out: int, graph: int, before: int, count: int, event: int) -> None:
        add_node(state, out, graph, before, count, build(state, event), kind, c_void_p(event))

    def set_(state: State, node: int, event: int) -> None:
        known = state.of(node, Node)
        known.operation, known.given = build(state, event), c_void_p(event)

    def set_executable(state: State, graph: int, node: int, event: int) -> None:
        executable, known = executable_node(state, graph, node)
        executable.operations[known] = build(state, event)

    def get(state: State, node: int, out: int) -> None:
        _write(state.of(node, Node), kind, out)

    for implementation, written, types in (
        (add, f"cudaGraphAddEvent{name}Node", (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
        (set_, f"cudaGraphEvent{name}NodeSetEvent", (c_void_p, c_void_p)),
        (set_executable, f"cudaGraphExecEvent{name}NodeSetEvent", (c_void_p, c_void_p, c_void_p)),
        (get, f"cudaGraphEvent{name}NodeGetEvent", (c_void_p, c_void_p)),
    ):
        FUNCTIONS[written] = Function(implementation, types, c_int, True)


_events("Record", Kind.RECORD, _record)
_events("Wait", Kind.WAIT, _wait)


# -- conditions -----------------------------------------------------------------------------------------------------------


@function(c_void_p, c_void_p, c_uint, c_uint)
def cudaGraphConditionalHandleCreate(state: State, out: int, graph: int, default: int, flags: int) -> None:
    """A handle is the address of the value, which kernels set by ``cudaGraphSetConditional`` (``device_runtime``)."""
    known = state.of(graph, Graph)
    address = state.device.allocate(4, name="the condition of a graph", written=True)
    state.device.write_bytes(address, (default if flags & _ASSIGN_DEFAULT else 0).to_bytes(4, "little"))
    state.objects["condition", address] = known
    if flags & _ASSIGN_DEFAULT:
        known.defaults[address] = default
    c_ulonglong.from_address(out).value = address


@function(c_void_p, c_void_p, c_void_p, c_uint, c_uint, also=("cuGraphConditionalHandleCreate",))
def cudaGraphConditionalHandleCreate_v2(
    state: State, out: int, graph: int, context: int, default: int, flags: int
) -> None:
    """The same, with a context."""
    cudaGraphConditionalHandleCreate(state, out, graph, default, flags)


def _add_conditional(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
    asked = _ConditionalNode.from_address(given)
    if ("condition", asked.handle) not in state.objects:
        raise CudaError(1, f"{asked.handle:#x} is not a handle of a condition")
    if asked.type not in (0, 1, 2) or not 1 <= asked.size <= (2, 1, 1 << 20)[asked.type]:
        raise CudaError(1, f"a conditional node of type {asked.type} with {asked.size} graphs")
    node = add_node(state, out, graph, before, count, _nothing, Kind.CONDITIONAL)
    node.condition = Condition(asked.handle, asked.type)
    node.bodies += [Graph() for _ in range(asked.size)]
    handles = (c_void_p * asked.size)(*(handle_of(state, body) for body in node.bodies))
    node.kept.append(handles)
    asked.bodies = addressof(handles)


# -- nodes of any kind ----------------------------------------------------------------------------------------------------

BUILDS: dict[int, Build] = {
    Kind.KERNEL: _kernel,
    Kind.MEMCPY: _memcpy,
    Kind.MEMSET: _memset,
    Kind.HOST: _host,
}


def _pointer(at: int) -> int:
    return c_void_p.from_address(at).value or 0


def _add(
    state: State, out: int, graph: int, before: int, count: int, given: int, builds: dict[int, Build]
) -> None:
    kind, at = c_int.from_address(given).value, given + _PARAMETERS
    if kind in builds:
        operation, kept = builds[kind](state, at + _COPY * (kind == Kind.MEMCPY))
        add_node(state, out, graph, before, count, operation, kind, kept)
    elif kind == Kind.CHILD:
        cudaGraphAddChildGraphNode(state, out, graph, before, count, _pointer(at))
    elif kind == Kind.EMPTY:
        cudaGraphAddEmptyNode(state, out, graph, before, count)
    elif kind in (Kind.WAIT, Kind.RECORD):
        operation = (_wait if kind == Kind.WAIT else _record)(state, _pointer(at))
        add_node(state, out, graph, before, count, operation, kind, c_void_p(_pointer(at)))
    elif kind == Kind.ALLOCATION:
        cudaGraphAddMemAllocNode(state, out, graph, before, count, at)
    elif kind == Kind.FREE:
        cudaGraphAddMemFreeNode(state, out, graph, before, count, _pointer(at))
    elif kind == Kind.CONDITIONAL:
        _add_conditional(state, out, graph, before, count, at)
    else:
        raise CudaError(
            801, f"nodes of type {kind} are not supported: semaphores of graphics APIs are not here"
        )


def nodes_of_any_kind(prefix: str, builds: dict[int, Build]) -> None:
    """Register ``GraphAddNode`` and the functions that set parameters of any node."""

    def add(state: State, out: int, graph: int, before: int, count: int, given: int) -> None:
        _add(state, out, graph, before, count, given, builds)

    def add_with_edges(
        state: State, out: int, graph: int, before: int, edges: int, count: int, given: int
    ) -> None:
        _add(state, out, graph, before, count, given, builds)

    def build(state: State, node: Node, given: int) -> tuple[Operation, object]:
        kind, at = c_int.from_address(given).value, given + _PARAMETERS
        if kind != node.kind:
            raise CudaError(1, f"parameters of type {kind} for a node of type {node.kind}")
        if kind in (Kind.WAIT, Kind.RECORD):
            return (_wait if kind == Kind.WAIT else _record)(state, _pointer(at)), c_void_p(_pointer(at))
        if kind not in builds:
            raise CudaError(801, f"parameters of nodes of type {kind} cannot be changed")
        return builds[kind](state, at + _COPY * (kind == Kind.MEMCPY))

    def set_(state: State, node: int, given: int) -> None:
        known = state.of(node, Node)
        known.operation, known.given = build(state, known, given)
        known.kept.clear()

    def set_executable(state: State, graph: int, node: int, given: int) -> None:
        executable, known = executable_node(state, graph, node)
        if known.kind == Kind.CHILD:
            cudaGraphExecChildGraphNodeSetParams(state, graph, node, _pointer(given + _PARAMETERS))
            return
        executable.operations[known] = build(state, known, given)[0]

    for implementation, names, types in (
        (add, ("AddNode",), (c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
        (add_with_edges, ("AddNode_v2", "AddNode@13"), (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
        (set_, ("NodeSetParams",), (c_void_p, c_void_p)),
        (set_executable, ("ExecNodeSetParams",), (c_void_p, c_void_p, c_void_p)),
    ):  # fmt: skip
        for name in names:
            FUNCTIONS[f"{prefix}Graph{name}"] = Function(implementation, types, c_int, True)


nodes_of_any_kind("cuda", BUILDS)


# -- parameters of nodes --------------------------------------------------------------------------------------------------


def _write(node: Node, kind: int, out: int) -> None:
    """Write the parameters of a node of a kind."""
    if node.kind != kind:
        raise CudaError(1, f"the node has type {node.kind}, not {kind}")
    if not isinstance(node.given, (Structure, c_void_p)):
        raise CudaError(801, "the parameters of a captured copy or fill are not known as a node has them")
    ctypes.memmove(out, addressof(node.given), sizeof(node.given))


def _getter(kind: int, name: str) -> None:
    def get(state: State, node: int, out: int) -> None:
        _write(state.of(node, Node), kind, out)

    FUNCTIONS[f"cudaGraph{name}NodeGetParams"] = Function(get, (c_void_p, c_void_p), c_int, True)


for _kind, _name in (
    (Kind.MEMCPY, "Memcpy"), (Kind.MEMSET, "Memset"), (Kind.HOST, "Host"), (Kind.ALLOCATION, "MemAlloc"), (Kind.FREE, "MemFree"),
):  # fmt: skip
    _getter(_kind, _name)


@function(c_void_p, c_void_p)
def cudaGraphKernelNodeGetParams(state: State, node: int, out: int) -> None:
    """The arguments are those with which the node was made."""
    known = state.of(node, Node)
    launch = known.operation
    if known.kind != Kind.KERNEL or not isinstance(launch, Launch):
        raise CudaError(1, f"the node has type {known.kind}, not {Kind.KERNEL}")
    values = ctypes.create_string_buffer(launch.raw, len(launch.raw))
    table = (c_void_p * max(1, len(launch.kernel.params)))(
        *(addressof(values) + param.offset for param in launch.kernel.params)
    )
    known.kept[:] = [values, table]
    asked = _KernelNode.from_address(out)
    asked.function = handle_of_kernel(state, launch.kernel)
    asked.grid, asked.block = Dim3(*launch.grid), Dim3(*launch.block)
    asked.shared, asked.arguments, asked.extra = launch.shared, addressof(table), None


@function(c_void_p, c_void_p)
def cudaGraphKernelNodeCopyAttributes(state: State, source: int, target: int) -> None:
    """Clusters and cooperation of a launch; other attributes have no effect."""
    of, into = state.of(source, Node).operation, state.of(target, Node).operation
    if not isinstance(of, Launch) or not isinstance(into, Launch):
        raise CudaError(1, "the node is not a kernel")
    into.cluster, into.cooperative = of.cluster, of.cooperative


# -- memory of graphs -----------------------------------------------------------------------------------------------------


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
