"""The flow of values: from allocations, the host and earlier calls to later calls.

The value flow graph of ValueExpert (Zhou et al., ASPLOS 2022, section 4), built as its published analysis builds it
(``data_flow.cpp`` of ``redshow``): a vertex is a kind of operation at one call path, for all of its executions. The bytes of an
object that an operation reads or overwrites are an edge from the vertex that last wrote the object; copies from and to the host are
edges from and to the host. Operations between the same vertices on one object share an edge.

The *vertex slice graph* of a vertex contains the vertices that reach it and that it reaches through the objects that it accesses; the
*important graph* the edges whose importance is at least a threshold, their vertices, and other vertices of that importance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from ..device.events import CallSite, Event, Use
from ..device.recorded import Program
from ..errors import NotObserved
from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray
from ..results import Finding

__all__ = ["FlowEdge", "FlowGraph", "Vertex", "flow_graph"]

SPACES = ("host", "constant", "shared", "local", "managed")
"""Memory spaces that are not tracked: each is a vertex, even without edges. Variables in constant memory are objects and tracked."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """One operation at one call path. ``kind`` is ``allocation memset copy launch`` or a memory space that is not tracked, such as
    the host. ``label`` is its name for readers; ``calls`` the number of executions; ``path`` the call stack, the innermost call
    first."""

    number: int
    kind: str
    label: str
    path: tuple[CallSite, ...] = ()
    calls: int = 0


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """Values of one object, from the vertex that wrote it last to one that reads or overwrites it.

    ``object`` is the number of the vertex of the object's allocation, ``name`` its name (that of the first, if one line allocates
    several); ``kind`` is ``read``, ``write`` or ``sink`` (to the host). ``bytes`` were read or written, of which ``unchanged`` did
    not change; ``size`` is the size of the object, summed over accesses.
    """

    source: int
    target: int
    object: int
    name: str
    kind: str
    bytes: int = 0
    unchanged: int = 0
    size: int = 0

    @property
    def redundancy(self) -> float:
        """The share of the bytes written that did not change."""
        return self.unchanged / self.bytes if self.bytes and self.kind != "read" else 0.0


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Vertices in the order of their first call, and edges in the order of their first use."""

    vertices: tuple[Vertex, ...]
    edges: tuple[FlowEdge, ...]
    findings: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def slice(self, vertex: int) -> FlowGraph:
        """The vertices that reach a vertex, and that it reaches, along edges of the objects that it touches."""
        objects = {edge.object for edge in self.edges if vertex in (edge.source, edge.target)}
        edges = [edge for edge in self.edges if edge.object in objects]
        indices = _reached(vertex, edges, lambda edge: (edge.source, edge.target))
        indices |= _reached(vertex, edges, lambda edge: (edge.target, edge.source))
        numbers = {vertex}.union(*(_ends(edges[index]) for index in indices))
        return self._only(numbers, [edges[index] for index in sorted(indices)])

    def important(
        self,
        edge_threshold: float,
        vertex_threshold: float = float("inf"),
        *,
        of_edge: Callable[[FlowEdge], float] = lambda edge: edge.bytes,
        of_vertex: Callable[[Vertex], float] = lambda vertex: vertex.calls,
    ) -> FlowGraph:
        """The edges at least as important as the threshold, with their vertices, and other vertices of that importance."""
        edges = [edge for edge in self.edges if of_edge(edge) >= edge_threshold]
        numbers = {end for edge in edges for end in _ends(edge)}
        numbers |= {vertex.number for vertex in self.vertices if of_vertex(vertex) >= vertex_threshold}
        return self._only(numbers, edges)

    def marked(self, findings: Iterable[Finding]) -> FlowGraph:
        """The graph with the rules of findings at the calls concerned, those that fail first."""
        rules: dict[tuple[str, int, str], list[str]] = {}
        for finding in sorted(findings, key=lambda item: (item.severity != "fail", bool(item.implied_by))):
            named = rules.setdefault((finding.path, finding.line, finding.kernel), [])
            named.append(f"{finding.rule} {finding.object}")
        marked = {}
        for vertex in self.vertices:
            kernel = vertex.label if vertex.kind == "launch" else ""
            place = (vertex.path[0].file, vertex.path[0].line, kernel) if vertex.path else ("", 0, "")
            if vertex.kind != "allocation" and place in rules:
                marked[vertex.number] = tuple(dict.fromkeys(rules[place]))
        return FlowGraph(self.vertices, self.edges, marked)

    def drawn(self) -> FlowGraph:
        """The graph without vertices that have no edges."""
        return self._only({end for edge in self.edges for end in _ends(edge)}, self.edges)

    def _only(self, numbers: set[int], edges: Sequence[FlowEdge]) -> FlowGraph:
        vertices = tuple(vertex for vertex in self.vertices if vertex.number in numbers)
        return FlowGraph(vertices, tuple(edges), {n: f for n, f in self.findings.items() if n in numbers})

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "vertices": [
                {
                    "number": vertex.number,
                    "kind": vertex.kind,
                    "label": vertex.label,
                    "calls": vertex.calls,
                    "path": [_shown(site) for site in vertex.path],
                    "findings": list(self.findings.get(vertex.number, ())),
                }
                for vertex in self.vertices
            ],
            "edges": [asdict(edge) for edge in self.edges],
        }


def _shown(site: CallSite) -> dict[str, object]:
    row = asdict(site)
    if not site.address:  # a line of Python
        del row["address"]
    return row


def _ends(edge: FlowEdge) -> tuple[int, int]:
    return edge.source, edge.target


def _reached(start: int, edges: Sequence[FlowEdge], ends: Callable[[FlowEdge], tuple[int, int]]) -> set[int]:
    """The edges on paths from a vertex, by index."""
    leaving: dict[int, list[int]] = {}
    for index, edge in enumerate(edges):
        leaving.setdefault(ends(edge)[0], []).append(index)
    reached: set[int] = set()
    waiting = [start]
    while waiting:
        for index in leaving.get(waiting.pop(), ()):
            if index not in reached:
                reached.add(index)
                waiting.append(ends(edges[index])[1])
    return reached


def flow_graph(device: Program) -> FlowGraph:
    """The value flow graph of the program recorded so far. Raises ``NotObserved`` unless the device observes ``values``."""
    if "values" not in device.observe:
        raise NotObserved(
            "the values of the program were not observed", hint='use Device(observe={"memory", "values"})'
        )
    builder = _Builder(device)
    for event in device.events:
        builder.step(event)
    return builder.graph()


class _Builder:
    def __init__(self, device: Program) -> None:
        self.device = device
        self._numbers: dict[tuple[object, ...], int] = {}
        self._vertices: list[Vertex] = []
        self._edges: dict[tuple[int, int, int, str], FlowEdge] = {}
        #: by object the vertex of its allocation, and that of its last writer
        self._made: dict[Allocation, int] = {}
        self._last: dict[Allocation, int] = {}
        self._arrays = {array.allocation for array in device.arrays}
        self.host, *_ = [self._vertex(space, space, (), 0) for space in SPACES]

    def step(self, event: Event) -> None:
        """Add an event."""
        first = event.objects[0].allocation if event.objects else None
        if first in self._arrays and first not in self._made:
            self._allocate(event.objects[0], event.path)
        if event.kind == "allocate" or not event.kept:
            return
        kind, label = {
            "launch": ("launch", event.kernel),
            "memset": ("memset", "memset"),
            "copy-in": ("copy", "copy from the host"),
            "copy-out": ("copy", "copy to the host"),
        }.get(event.kind, ("copy", "copy"))
        vertex = self._vertex(kind, label, event.path)
        # reads are from the writers before the step, except that a copy within an object reads from itself, as published
        before = dict(self._last)
        for use in event.uses:
            self._allocate(use.array)
            before.setdefault(use.array.allocation, self._last[use.array.allocation])
        for use in event.uses:
            if use.bytes_read and event.kind != "copy":
                self._edge(before, vertex, use, "read", use.bytes_read, 0)
        for use in event.uses:
            if use.written:
                self._edge(before, vertex, use, "write", use.bytes_written, use.bytes_unchanged)
                if event.kept:
                    self._last[use.array.allocation] = vertex
        for use in event.uses if event.kind == "copy" else ():
            if use.bytes_read:
                self._edge(self._last, vertex, use, "read", use.bytes_read, 0)
        self._with_host(event, vertex)

    def _with_host(self, event: Event, vertex: int) -> None:
        """Add the edge of a copy from or to the host."""
        for use in event.uses:
            if event.kind == "copy-in":
                self._add(self.host, vertex, self.host, "host", "read", event.bytes, 0, event.bytes)
            elif event.kind == "copy-out":
                name = self._name(use.array)
                made = self._made[use.array.allocation]
                self._add(vertex, self.host, made, name, "sink", event.bytes, use.bytes_held, event.bytes)

    def _edge(
        self, last: dict[Allocation, int], vertex: int, use: Use, kind: str, size: int, same: int
    ) -> None:
        allocation = use.array.allocation
        made = self._made[allocation]
        self._add(last[allocation], vertex, made, self._name(use.array), kind, size, same, allocation.size)

    def _add(self, source: int, target: int, made: int, name: str, kind: str, *amounts: int) -> None:
        """Add to an edge; ``amounts``: bytes, unchanged bytes, and the size of the object."""
        key = (source, target, made, kind)
        known = self._edges.get(key) or FlowEdge(source, target, made, name, kind)
        size, unchanged, whole = amounts
        self._edges[key] = replace(
            known, bytes=known.bytes + size, unchanged=known.unchanged + unchanged, size=known.size + whole
        )

    def _name(self, array: DeviceArray) -> str:
        return array.name or "an array"

    def _allocate(self, array: DeviceArray, path: tuple[CallSite, ...] = ()) -> None:
        """Add the vertex of an object's allocation; variables of modules are allocated when the module is loaded."""
        allocation = array.allocation
        if allocation in self._made:
            return
        label = array.name if allocation not in self._arrays else "allocation"
        self._made[allocation] = self._last[allocation] = self._vertex("allocation", label, path)

    def _vertex(self, kind: str, label: str, path: tuple[CallSite, ...], calls: int = 1) -> int:
        """Count a call of a vertex, and return its number. Calls from the same lines are one vertex."""
        places = tuple((site.place, site.function) for site in path)
        key = (kind, label, places)
        number = self._numbers.setdefault(key, len(self._vertices))
        if number == len(self._vertices):
            self._vertices.append(Vertex(number, kind, label, path))
        known = self._vertices[number]
        self._vertices[number] = Vertex(number, kind, label, known.path, known.calls + calls)
        return number

    def graph(self) -> FlowGraph:
        """The graph so far."""
        return FlowGraph(tuple(self._vertices), tuple(self._edges.values()))
