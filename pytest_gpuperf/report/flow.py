"""Value flow graphs as text, DOT and SVG, from what a report's JSON has of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.records import Flow, FlowEdgeRow, VertexRow
from .graph import Edge, Node, to_dot, to_svg

if TYPE_CHECKING:
    from gpuperf_engine import FlowGraph

__all__ = ["flow_dot", "flow_graph_of", "flow_svg", "flow_text"]

_REDUNDANT = 1 / 3
_UNITS = ("B", "KiB", "MiB", "GiB")


def flow_dot(flow: Flow, name: str) -> str:
    """In the DOT language."""
    return to_dot(name, *_drawn(flow))


def flow_svg(flow: Flow, name: str) -> str:
    """As one SVG image; edges along which at least a third of the bytes written were there already are drawn red."""
    return to_svg(name, *_drawn(flow), what="Value flow")


def flow_text(flow: Flow) -> str:
    """One line for each vertex, and below it one for each edge that comes to it."""
    rows = []
    for vertex in flow["vertices"]:
        coming = [edge for edge in flow["edges"] if edge["target"] == vertex["number"]]
        if not coming and not any(edge["source"] == vertex["number"] for edge in flow["edges"]):
            continue
        place = f"  {_place(vertex)}" if vertex["path"] else ""
        rows.append(f"{vertex['number']:>3} {_title(vertex)}{place}")
        rows += [f"      {finding}" for finding in vertex["findings"]]
        rows += [f"      from {edge['source']:>3}: {_label(edge)} ({edge['kind']})" for edge in coming]
    return "\n".join([*rows, ""])


def flow_graph_of(flow: Flow) -> FlowGraph:
    """The graph itself, to slice and prune."""
    from gpuperf_engine import FlowEdge, FlowGraph, Vertex
    from gpuperf_engine.device.events import CallSite

    vertices = [
        Vertex(
            vertex["number"],
            vertex["kind"],
            vertex["label"],
            tuple(CallSite(**site) for site in vertex["path"]),
            vertex["calls"],
        )
        for vertex in flow["vertices"]
    ]
    edges = [FlowEdge(**edge) for edge in flow["edges"]]
    findings = {vertex["number"]: tuple(vertex["findings"]) for vertex in flow["vertices"]}
    return FlowGraph(tuple(vertices), tuple(edges), findings)


def _title(vertex: VertexRow) -> str:
    label, kind = vertex["label"], vertex["kind"]
    title = label if kind in (label, "copy") or kind not in ("launch", "allocation") else f"{kind} {label}"
    title = "allocation" if label == kind == "allocation" else title
    return title if vertex["calls"] < 2 else f"{title} ({vertex['calls']} times)"


def _place(vertex: VertexRow) -> str:
    site = vertex["path"][0]
    return f"{site['path'].rpartition('/')[2]}:{site['line']}"


def _label(edge: FlowEdgeRow) -> str:
    size, unit = float(edge["bytes"]), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    text = f"{edge['name']} {size:.4g} {_UNITS[unit]}"
    return f"{text}, {100 * edge['unchanged'] / edge['bytes']:.3g} % unchanged" if edge["unchanged"] else text


def _drawn(flow: Flow) -> tuple[list[Node], list[Edge]]:
    """Boxes and arrows. The host is drawn above what it gives and below what it gets; reads and writes of one object between the same
    calls are one arrow."""
    joined = {
        end for edge in flow["edges"] for end in (edge["source"], edge["target"]) if edge["kind"] != "sink"
    }
    joined |= {edge["source"] for edge in flow["edges"] if edge["kind"] == "sink"}
    shown = [vertex for vertex in flow["vertices"] if vertex["number"] in joined]
    place = {vertex["number"]: index for index, vertex in enumerate(shown)}
    nodes = [Node(_title(vertex), tuple(_lines(vertex))) for vertex in shown]
    if any(edge["kind"] == "sink" for edge in flow["edges"]):
        nodes.append(Node("host", ()))
    groups: dict[tuple[int, int, str], list[FlowEdgeRow]] = {}
    for edge in flow["edges"]:
        target = len(nodes) - 1 if edge["kind"] == "sink" else place[edge["target"]]
        groups.setdefault((place[edge["source"]], target, edge["name"]), []).append(edge)
    return nodes, [_arrow(source, target, group) for (source, target, _), group in groups.items()]


def _arrow(source: int, target: int, group: Sequence[FlowEdgeRow]) -> Edge:
    edge = max(group, key=lambda item: (item["unchanged"], item["bytes"]))
    wasted = edge["kind"] != "read" and edge["unchanged"] >= _REDUNDANT * max(1, edge["bytes"])
    return Edge(source, target, _label(edge), back=target <= source, wasted=wasted)


def _lines(vertex: VertexRow) -> list[str]:
    lines = [_place(vertex), vertex["path"][0]["text"]] if vertex["path"] else []
    return [*lines, *(f"! {finding}" for finding in vertex["findings"])]
