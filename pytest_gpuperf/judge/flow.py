"""The value flow graph of a test, as reports have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .._engine import engine
from ..authoring.record import shown_path
from ..core.escaping import storable
from ..core.records import Flow, SiteRow

if TYPE_CHECKING:
    from gpuperf_engine import FlowGraph
    from gpuperf_engine.device.recorded import Program

__all__ = ["flow_of"]


def flow_of(programs: Iterable[Program], rootdir: Path) -> Flow:
    """Return the graph of all events on the device, and of each process of a program. Paths are relative to the rootdir; calls from
    outside it are dropped."""
    flow: Flow = {"vertices": [], "edges": []}
    for program in programs:
        graph = _moved(engine.flow_graph(program), len(flow["vertices"]))
        shown = cast(Flow, graph.to_dict())
        for vertex, source in zip(shown["vertices"], graph.vertices, strict=True):
            vertex["label"] = storable(vertex["label"])
            sites = [_site(site, call.file, rootdir) for site, call in zip(vertex["path"], source.path)]
            vertex["path"] = [site for site in sites if not Path(site["path"]).is_absolute()] or sites[:1]
            vertex["findings"] = [storable(text) for text in vertex["findings"]]
        for edge in shown["edges"]:
            edge["name"] = storable(edge["name"])
        flow["vertices"] += shown["vertices"]
        flow["edges"] += shown["edges"]
    return flow


def _moved(graph: FlowGraph, first: int) -> FlowGraph:
    """Return the graph with its vertices numbered from ``first``."""
    if not first:
        return graph
    return replace(
        graph,
        vertices=tuple(replace(vertex, number=vertex.number + first) for vertex in graph.vertices),
        edges=tuple(
            replace(edge, source=edge.source + first, target=edge.target + first, object=edge.object + first)
            for edge in graph.edges
        ),
        findings={number + first: rules for number, rules in graph.findings.items()},
    )


def _site(site: SiteRow, path: str, rootdir: Path) -> SiteRow:
    return {
        "text": storable(site["text"]),
        "path": shown_path(path, rootdir),
        "line": site["line"],
        "function": storable(site["function"]),
    }
