"""Graphs: operations with dependencies, captured from streams or added one by one, and their execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import (
    CFUNCTYPE,
    Array,
    addressof,
    c_char,
    c_int,
    c_size_t,
    c_uint,
    c_ulonglong,
    c_void_p,
    create_string_buffer,
)
from dataclasses import dataclass, field

from .calls import function
from .codes import CudaError
from .memory import cudaFree
from .state import Kind, State

__all__ = [
    "EDGE_BYTES",
    "Capture",
    "Condition",
    "Executable",
    "Graph",
    "Node",
    "executable_node",
    "handle_of",
    "handles_at",
]

EDGE_BYTES = 8
"""The size of ``cudaGraphEdgeData``; zeros are a full dependency."""

_AUTO_FREE, _MOVE = 1, 1
_DESTROY = CFUNCTYPE(None, c_void_p)
#: ``cudaGraphExecUpdateResult``
_TOPOLOGY_CHANGED, _TYPE_CHANGED = 2, 3
_NONE, _ACTIVE, _INVALIDATED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a node: the address of its value in device memory, and the type: if (0), while (1) or switch (2)."""

    address: int
    type: int

    def bodies(self, state: State, bodies: Sequence[Graph]) -> Iterator[Graph]:
        """The bodies to execute, one after the other, by the value at that time."""
        while True:
            value = int.from_bytes(state.device.read_bytes(self.address, 4), "little")
            number = value if self.type == 2 else int(not value)
            if number >= len(bodies):
                return
            yield bodies[number]
            if self.type != 1:
                return


@dataclass(eq=False)
class Node:
    """An operation of a ``cudaGraphNodeType``, and the nodes that it depends on. ``memory``: the address of an allocation node.
    ``bodies``: the graph of a child node, those of a conditional node. ``given``: the parameters, if they can be queried."""

    graph: Graph
    operation: Callable[[], object]
    kind: int
    before: list[Node] = field(default_factory=list)
    memory: int = 0
    bodies: list[Graph] = field(default_factory=list)
    condition: Condition | None = None
    given: object = None
    handle: int = 0
    #: what pointers in parameters that the program has queried refer to
    kept: list[object] = field(default_factory=list)


@dataclass(eq=False)
class UserObject:
    """What a program keeps as long as something refers to it: how often, and the function that is called then, with its argument."""

    destroy: Callable[[int | None], object]
    argument: int | None
    count: int

    def retain(self, count: int) -> None:
        """More references."""
        self.count += count

    def release(self, count: int = 1) -> None:
        """Fewer references. Raises ``CudaError`` if there are not as many."""
        if not 0 < count <= self.count:
            raise CudaError(1, f"{count} of {self.count} references to a user object are released")
        self.count -= count
        if not self.count:
            self.destroy(self.argument)


@dataclass(eq=False)
class Graph:
    """A graph: its nodes in the order in which they were added. ``origins``: of a clone, its nodes by those of the original.
    ``defaults``: values of conditions that a launch sets, by address. ``users``: user objects, one for each reference."""

    nodes: list[Node] = field(default_factory=list)
    origins: dict[Node, Node] = field(default_factory=dict)
    defaults: dict[int, int] = field(default_factory=dict)
    users: list[UserObject] = field(default_factory=list)
    #: whether an operation that cannot be captured has ended its capture
    invalid: bool = False
    handle: int = 0

    def append(self, operation: Callable[[], object], kind: int) -> Node:
        """Add an operation."""
        self.nodes.append(Node(self, operation, kind))
        return self.nodes[-1]

    def ordered(self) -> list[Node]:
        """Nodes in topological order; independent nodes stay in the order in which they were added. Raises ``CudaError`` if there is
        none."""
        ordered: dict[Node, None] = {}
        entered: set[Node] = set()
        stack = list(reversed(self.nodes))
        while stack:
            node = stack[-1]
            waiting = [other for other in node.before if other not in ordered]
            if waiting and node not in ordered:
                if node in entered:
                    raise CudaError(1, "nodes of the graph depend on each other in a cycle")
                entered.add(node)
                stack += waiting
            else:
                ordered.setdefault(stack.pop())
        return list(ordered)

    def clone(self) -> Graph:
        """A copy with nodes of its own."""
        copied = Graph(defaults=dict(self.defaults), users=list(self.users))
        _retain(copied.users)
        for node in self.nodes:
            new = copied.append(node.operation, node.kind)
            new.memory, new.given, new.condition = node.memory, node.given, node.condition
            new.bodies = [body.clone() for body in node.bodies]
            copied.origins[node] = new
        for node, new in copied.origins.items():
            new.before = [copied.origins[other] for other in node.before]
        return copied

    def all_defaults(self) -> dict[int, int]:
        """``defaults`` with those of all graphs inside."""
        found = dict(self.defaults)
        for node in self.nodes:
            for body in node.bodies:
                found |= body.all_defaults()
        return found


def _retain(users: Sequence[UserObject]) -> None:
    for user in users:
        user.retain(1)


def _release(users: list[UserObject]) -> None:
    while users:
        users.pop().release()


@dataclass(eq=False)
class Capture:
    """The capture of a stream into a graph, begun by the stream ``origin``, and the nodes on which the next one depends.
    ``handles`` and ``edges``: those last returned to the program."""

    graph: Graph
    origin: int
    before: list[Node] = field(default_factory=list)
    handles: Array[c_void_p] | None = None
    edges: Array[c_char] | None = None

    def append(self, operation: Callable[[], object], kind: int = Kind.MEMCPY) -> Node:
        """Add an operation of the stream."""
        node = self.graph.append(operation, kind)
        node.before, self.before = self.before, [node]
        return node

    def joins(self, other: Capture) -> bool:
        """Whether what another stream has done comes before what this one does next."""
        found, stack = set(), list(self.before)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack += node.before
        return found.issuperset(other.before)


class Executable:
    """An instantiated graph: the order of its nodes and of those inside, and their operations. ``frees``: whether a launch first
    frees memory that the graph allocated and nobody freed."""

    def __init__(self, graph: Graph, flags: int = 0) -> None:
        self.graph, self.flags = graph, flags
        self.operations: dict[Node, Callable[[], object]] = {}
        self.disabled: set[Node] = set()
        self._orders: dict[Graph, list[Node]] = {}
        self._defaults = graph.all_defaults()
        self._take(graph)
        self.users = list(graph.users)
        _retain(self.users)

    def _take(self, graph: Graph) -> None:
        self._orders[graph] = graph.ordered()
        for node in self._orders[graph]:
            self.operations[node] = node.operation
            for body in node.bodies:
                self._take(body)

    def run(self, state: State) -> None:
        """Execute all operations."""
        for node in self.operations if self.flags & _AUTO_FREE else ():
            if node.memory and ("memory", node.memory) in state.objects:
                cudaFree(state, node.memory)
        for address, value in self._defaults.items():
            state.device.write_bytes(address, value.to_bytes(4, "little"))
        self._run(state, self.graph)

    def _run(self, state: State, graph: Graph) -> None:
        for node in self._orders[graph]:
            if node in self.disabled:
                continue
            if not state.sticky:
                self.operations[node]()
            bodies = node.condition.bodies(state, node.bodies) if node.condition else iter(node.bodies)
            while not state.sticky and (body := next(bodies, None)) is not None:
                self._run(state, body)

    def update(self, graph: Graph) -> tuple[int, Node | None]:
        """Take the operations of a graph with the same nodes. Returns a ``cudaGraphExecUpdateResult``, and the first node that
        differs."""
        pairs: list[tuple[Node, Node]] = []
        result = self._pair(self.graph, graph, pairs)
        if not result[0]:
            for own, new in pairs:
                self.operations[own] = new.operation
        return result

    def update_body(self, node: Node, graph: Graph) -> int:
        """The same for the graph of a child node. Returns the result."""
        pairs: list[tuple[Node, Node]] = []
        result = self._pair(node.bodies[0], graph, pairs)[0] if node.bodies else _TYPE_CHANGED
        for own, new in pairs if not result else ():
            self.operations[own] = new.operation
        return result

    def _pair(self, graph: Graph, other: Graph, pairs: list[tuple[Node, Node]]) -> tuple[int, Node | None]:
        own, new = self._orders[graph], other.ordered()
        numbers = [{node: number for number, node in enumerate(nodes)} for nodes in (own, new)]
        for first, second in zip(own, new):
            if first.kind != second.kind or len(first.bodies) != len(second.bodies):
                return _TYPE_CHANGED, second
            sides = zip((first, second), numbers)
            before, after = ({known[item] for item in node.before} for node, known in sides)
            if before != after:
                return _TOPOLOGY_CHANGED, second
            pairs.append((first, second))
            for body, inside in zip(first.bodies, second.bodies):
                result = self._pair(body, inside, pairs)
                if result[0]:
                    return result
        return (_TOPOLOGY_CHANGED, None) if len(own) != len(new) else (0, None)


# -- handles --------------------------------------------------------------------------------------------------------------


def handle_of(state: State, item: Node | Graph) -> int:
    """The handle of a node or graph, a new one if the program does not know it yet."""
    if not item.handle:
        item.handle = state.new(item)
    return item.handle


def handles_at(address: int | None, count: int) -> Sequence[int]:
    """The handles in an array of the program."""
    return list((c_void_p * count).from_address(address)) if address and count else []


def executable_node(state: State, graph: int, node: int) -> tuple[Executable, Node]:
    """An instantiated graph and one of its nodes. Raises ``CudaError`` if it is not."""
    executable, known = state.of(graph, Executable), state.of(node, Node)
    if known not in executable.operations:
        raise CudaError(1, "the node does not belong to the graph of this executable")
    return executable, known


# -- capture --------------------------------------------------------------------------------------------------------------


@function(c_void_p, c_int)
def cudaStreamBeginCapture(state: State, stream: int, mode: int) -> None:
    _begin(state, stream, Capture(Graph(), stream))


def _begin(state: State, stream: int, capture: Capture) -> None:
    if not stream:
        raise CudaError(900, "the default stream cannot be captured")
    state.stream_of(stream)
    state.captures[stream] = capture


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int)
def cudaStreamBeginCaptureToGraph(
    state: State, stream: int, graph: int, before: int, edges: int, count: int, mode: int
) -> None:
    nodes = [state.of(handle, Node) for handle in handles_at(before, count)]
    _begin(state, stream, Capture(state.of(graph, Graph), stream, nodes))


@function(c_void_p, c_void_p)
def cudaStreamEndCapture(state: State, stream: int, out: int | None) -> None:
    ended = state.capture_of(stream)
    if ended is None:
        raise CudaError(401, "the stream is not being captured")
    graph = ended.graph
    if ended.origin != stream:
        graph.invalid = True
        raise CudaError(903, "the capture was begun by another stream")
    others = [known for known in state.captures.values() if known.graph is graph]
    state.captures = {other: known for other, known in state.captures.items() if known.graph is not graph}
    if out:
        c_void_p.from_address(out).value = None
    if graph.invalid:
        graph.invalid = False
        raise CudaError(901, "an operation before cannot be captured")
    if not all(ended.joins(other) for other in others):
        raise CudaError(
            904, "the stream does not wait for an event of another stream that is captured with it"
        )
    if out:
        c_void_p.from_address(out).value = handle_of(state, ended.graph)


@function(c_void_p, c_void_p)
def cudaStreamIsCapturing(state: State, stream: int, out: int) -> None:
    c_int.from_address(out).value = _status(state.capture_of(stream))


def _status(capture: Capture | None) -> int:
    return _NONE if capture is None else _INVALIDATED if capture.graph.invalid else _ACTIVE


@function(c_void_p, c_void_p, c_void_p)
def cudaStreamGetCaptureInfo(state: State, stream: int, status: int, number: int | None) -> None:
    _capture_info(state, stream, status, number, None, None, None)


@function(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
def cudaStreamGetCaptureInfo_v2(
    state: State, stream: int, status: int, number: int, graph: int, before: int, count: int
) -> None:
    _capture_info(state, stream, status, number, graph, before, count)


@function(*[c_void_p] * 7, also=("cudaStreamGetCaptureInfo@13",))
def cudaStreamGetCaptureInfo_v3(
    state: State,
    stream: int,
    status: int,
    number: int,
    graph: int,
    before: int,
    edges: int | None,
    count: int,
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments. All edges are full dependencies, whose data are zeros."""
    _capture_info(state, stream, status, number, graph, before, count)
    capture = state.capture_of(stream)
    if edges and capture is not None:
        capture.edges = create_string_buffer(EDGE_BYTES * max(1, len(capture.before)))
        c_void_p.from_address(edges).value = addressof(capture.edges)


def _capture_info(
    state: State,
    stream: int,
    status: int,
    number: int | None,
    graph: int | None,
    before: int | None,
    count: int | None,
) -> None:
    capture = state.capture_of(stream)
    c_int.from_address(status).value = _status(capture)
    if capture is None:
        return
    handles = [handle_of(state, node) for node in capture.before]
    capture.handles = (c_void_p * max(1, len(handles)))(*handles)
    if number:
        c_ulonglong.from_address(number).value = handle_of(state, capture.graph)
    if graph:
        c_void_p.from_address(graph).value = handle_of(state, capture.graph)
    if before:
        c_void_p.from_address(before).value = addressof(capture.handles)
    if count:
        c_size_t.from_address(count).value = len(handles)


@function(c_void_p, c_void_p, c_size_t, c_uint)
def cudaStreamUpdateCaptureDependencies(
    state: State, stream: int, before: int, count: int, flags: int
) -> None:
    """Flags: 1 replaces the dependencies, 0 adds to them."""
    capture = state.capture_of(stream)
    if capture is None:
        raise CudaError(401, "the stream is not being captured")
    nodes = [state.of(handle, Node) for handle in handles_at(before, count)]
    known = [] if flags & 1 else capture.before
    capture.before = list(dict.fromkeys([*known, *nodes]))


@function(c_void_p, c_void_p, c_void_p, c_size_t, c_uint, also=("cudaStreamUpdateCaptureDependencies@13",))
def cudaStreamUpdateCaptureDependencies_v2(
    state: State, stream: int, before: int, edges: int, count: int, flags: int
) -> None:
    """From CUDA 13 on, the function without suffix has these arguments."""
    cudaStreamUpdateCaptureDependencies(state, stream, before, count, flags)


@function(c_void_p)
def cudaThreadExchangeStreamCaptureMode(state: State, mode: int) -> None:
    """Accepted without effect: the mode does not matter here."""


# -- graphs as a whole ----------------------------------------------------------------------------------------------------


@function(c_void_p, c_uint)
def cudaGraphCreate(state: State, out: int, flags: int) -> None:
    c_void_p.from_address(out).value = handle_of(state, Graph())


@function(c_void_p, c_void_p)
def cudaGraphClone(state: State, out: int, graph: int) -> None:
    original = state.of(graph, Graph)
    if original.all_defaults() or any(node.condition for node in original.nodes):
        raise CudaError(801, "a graph with conditional nodes cannot be cloned")
    c_void_p.from_address(out).value = handle_of(state, original.clone())


@function(c_void_p)
def cudaGraphDestroy(state: State, graph: int) -> None:
    users = state.of(graph, Graph).users
    del state.objects[graph]
    _release(users)


@function(c_void_p, c_void_p, c_ulonglong, also=("cudaGraphInstantiateWithFlags",))
def cudaGraphInstantiate(state: State, out: int, graph: int, flags: int) -> None:
    c_void_p.from_address(out).value = state.new(Executable(state.of(graph, Graph), flags))


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphInstantiateWithParams(state: State, out: int, graph: int, given: int) -> None:
    """``cudaGraphInstantiateParams``: flags, a stream, the node in error, the result."""
    flags = c_ulonglong.from_address(given).value
    cudaGraphInstantiate(state, out, graph, flags)
    c_void_p.from_address(given + 16).value = None
    c_int.from_address(given + 24).value = 0


@function(c_void_p, c_void_p)
def cudaGraphExecGetFlags(state: State, graph: int, out: int) -> None:
    c_ulonglong.from_address(out).value = state.of(graph, Executable).flags


@function(c_void_p, c_void_p)
def cudaGraphLaunch(state: State, graph: int, stream: int) -> None:
    executable = state.of(graph, Executable)
    state.enqueue(stream, _Run(executable, state), Kind.CHILD)


@dataclass(frozen=True)
class _Run:
    executable: Executable
    state: State

    @property
    def waits(self) -> bool:
        """Whether one of its kernels may wait for the host."""
        return any(getattr(operation, "waits", False) for operation in self.executable.operations.values())

    def __call__(self) -> None:
        self.executable.run(self.state)


@function(c_void_p, c_void_p)
def cudaGraphUpload(state: State, graph: int, stream: int) -> None:
    state.of(graph, Executable)
    state.stream_of(stream)


@function(c_void_p)
def cudaGraphExecDestroy(state: State, graph: int) -> None:
    users = state.of(graph, Executable).users
    del state.objects[graph]
    _release(users)


@function(c_void_p, c_void_p, c_void_p)
def cudaGraphExecUpdate(state: State, executable: int, graph: int, out: int | None) -> None:
    """``cudaGraphExecUpdateResultInfo``: the result, the node in error, and that before it."""
    result, node = state.of(executable, Executable).update(state.of(graph, Graph))
    if out:
        c_int.from_address(out).value = result
        c_void_p.from_address(out + 8).value = None if node is None else handle_of(state, node)
        c_void_p.from_address(out + 16).value = None
    if result:
        reason = "has nodes of other types" if result == _TYPE_CHANGED else "has other nodes or dependencies"
        raise CudaError(910, f"the graph {reason} than the executable: instantiate it anew")


# -- user objects ---------------------------------------------------------------------------------------------------------


@function(c_void_p, c_void_p, c_void_p, c_uint, c_uint)
def cudaUserObjectCreate(
    state: State, out: int, argument: int | None, destroy: int, count: int, flags: int
) -> None:
    if not count:
        raise CudaError(1, "a user object without a reference")
    item = UserObject(_DESTROY(destroy), argument, count)
    c_void_p.from_address(out).value = state.new(item)


@function(c_void_p, c_uint)
def cudaUserObjectRetain(state: State, item: int, count: int) -> None:
    state.of(item, UserObject).retain(count)


@function(c_void_p, c_uint)
def cudaUserObjectRelease(state: State, item: int, count: int) -> None:
    state.of(item, UserObject).release(count)


@function(c_void_p, c_void_p, c_uint, c_uint)
def cudaGraphRetainUserObject(state: State, graph: int, item: int, count: int, flags: int) -> None:
    """Flags: 1 gives the program's references to the graph."""
    user = state.of(item, UserObject)
    state.of(graph, Graph).users += [user] * count
    if not flags & _MOVE:
        user.retain(count)


@function(c_void_p, c_void_p, c_uint)
def cudaGraphReleaseUserObject(state: State, graph: int, item: int, count: int) -> None:
    user, users = state.of(item, UserObject), state.of(graph, Graph).users
    if users.count(user) < count:
        raise CudaError(1, f"the graph has {users.count(user)} references to the user object")
    for _ in range(count):
        users.remove(user)
    user.release(count)
