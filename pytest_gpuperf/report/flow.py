"""Value flow graphs as text, DOT and SVG, from a report's JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.records import Flow, FlowEdgeRow, VertexRow
from .drawing import to_svg
from .graph import Edge, Node, to_dot

if TYPE_CHECKING:
    from gpuperf_engine import FlowGraph

__all__ = ["flow_dot", "flow_graph_of", "flow_svg", "flow_text"]

_REDUNDANT = 1 / 3
#: pixels of the edge with the most bytes, and how much thinner one with half as many is
_WIDEST, _STEP = 5.0, 0.4
#: most findings in a box, the most severe ones
_FINDINGS = 8
_UNITS = ("B", "KiB", "MiB", "GiB")


def flow_dot(flow: Flow, name: str) -> str:
    """In the DOT language."""
    return to_dot(name, *_drawn(flow))


def flow_svg(flow: Flow, name: str) -> str:
    """As one SVG image with a legend."""
    nodes, edges = _drawn(flow)
    most = max((edge["bytes"] for edge in flow["edges"]), default=0)
    thickest = f"bytes of the object: {_size(most)}; fewer are thinner, by their logarithm"
    legend = [(Edge(0, 0, width=_WIDEST), thickest)]
    if any(edge.wasted for edge in edges):
        legend.append(
            (Edge(0, 0, wasted=True, width=2), "a third or more of the bytes written held the same before")
        )
    if any(edge.back for edge in edges):
        legend.append((Edge(0, 0, back=True), "to a call that was made earlier, or to itself"))
    return to_svg(name, nodes, edges, what="Value flow", legend=legend)


def flow_text(flow: Flow) -> str:
    """One line for each vertex, and below it one for each edge that comes to it."""
    rows = []
    for vertex in flow["vertices"]:
        coming = [edge for edge in flow["edges"] if edge["target"] == vertex["number"]]
        if not coming and not any(edge["source"] == vertex["number"] for edge in flow["edges"]):
            continue
        where = f"  {_place(vertex)}" if vertex["path"] else ""
        rows.append(f"{vertex['number']:>3} {_title(vertex)}{where}")
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


def _size(amount: float) -> str:
    unit = 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.4g} {_UNITS[unit]}"


def _label(edge: FlowEdgeRow) -> str:
    text = f"{edge['name']} {_size(edge['bytes'])}"
    return f"{text}, {100 * edge['unchanged'] / edge['bytes']:.3g} % unchanged" if edge["unchanged"] else text


def _drawn(flow: Flow) -> tuple[list[Node], list[Edge]]:
    """Return boxes and arrows. The host has a box above its outputs and one below its inputs; reads and writes of one object
    between the same calls are one arrow."""
    joined = {
        end for edge in flow["edges"] for end in (edge["source"], edge["target"]) if edge["kind"] != "sink"
    }
    joined |= {edge["source"] for edge in flow["edges"] if edge["kind"] == "sink"}
    shown = [vertex for vertex in flow["vertices"] if vertex["number"] in joined]
    index_of = {vertex["number"]: index for index, vertex in enumerate(shown)}
    nodes = [Node(_title(vertex), tuple(_lines(vertex))) for vertex in shown]
    if any(edge["kind"] == "sink" for edge in flow["edges"]):
        nodes.append(Node("host", ()))
    groups: dict[tuple[int, int, str], list[FlowEdgeRow]] = {}
    for edge in flow["edges"]:
        target = len(nodes) - 1 if edge["kind"] == "sink" else index_of[edge["target"]]
        groups.setdefault((index_of[edge["source"]], target, edge["name"]), []).append(edge)
    most = max((edge["bytes"] for edge in flow["edges"]), default=0)
    return nodes, [_arrow(source, target, group, most) for (source, target, _), group in groups.items()]


def _arrow(source: int, target: int, group: Sequence[FlowEdgeRow], most: int) -> Edge:
    edge = max(group, key=lambda item: (item["unchanged"], item["bytes"]))
    wasted = edge["kind"] != "read" and edge["unchanged"] >= _REDUNDANT * max(1, edge["bytes"])
    steps = math.log2(max(1, most) / max(1, edge["bytes"]))
    width = max(Edge.width, _WIDEST - _STEP * steps)
    return Edge(source, target, _label(edge), back=target <= source, wasted=wasted, width=width)


def _lines(vertex: VertexRow) -> list[str]:
    lines = [_place(vertex), vertex["path"][0]["text"]] if vertex["path"] else []
    findings = [f"! {finding}" for finding in vertex["findings"]]
    if len(findings) > _FINDINGS:
        findings[_FINDINGS - 1 :] = [f"… {len(findings) - _FINDINGS + 1} more findings"]
    return [*lines, *findings]
