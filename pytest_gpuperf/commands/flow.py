"""``gpuperf flow``: the value flow of a test's program, or of one that ``gpuperf run`` ran, from the file written then."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import cast

from gpuperf_engine.errors import nearest

from ..core.records import Flow
from ..report.flow import flow_dot, flow_graph_of, flow_svg, flow_text
from ..report.validate import ReportError, load_flows
from .common import OK, Subcommands, UsageError, write

__all__ = ["add_parser"]


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommand."""
    parser = commands.add_parser("flow", help="show the value flow of the program of a test")
    parser.add_argument(
        "report",
        metavar="gpuperf.json",
        help="written by pytest --gpuperf-report=DIR, or by gpuperf run --values objects -o",
    )
    parser.add_argument("--test", metavar="NODEID", help="the test, or the end of its id")
    parser.add_argument(
        "--format", choices=("text", "dot", "svg", "json"), default="text", help="default: text"
    )
    parser.add_argument(
        "--slice", metavar="N", type=int, help="only vertices that reach vertex N, or that it reaches"
    )
    parser.add_argument(
        "--important", metavar="BYTES", type=int, help="only edges with at least this many bytes"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        flows = load_flows(arguments.report)
    except ReportError as error:
        raise UsageError(str(error)) from None
    test = _chosen(flows, arguments)
    flow = _part(flows[test], arguments)
    if arguments.format == "json":
        text = json.dumps(flow, indent=1, ensure_ascii=False) + "\n"
    elif arguments.format == "text":
        text = flow_text(flow)
    else:
        text = (flow_dot if arguments.format == "dot" else flow_svg)(flow, test)
    write(text, arguments.output)
    return OK


def _chosen(known: Mapping[str, Flow], arguments: argparse.Namespace) -> str:
    """Return the requested test."""
    if not known:
        raise UsageError(f"{arguments.report} has no value flow: it was written by an earlier version")
    named = arguments.test or ""
    fitting = [nodeid for nodeid in known if nodeid == named] or [
        nodeid for nodeid in known if nodeid.endswith(named)
    ]
    if len(fitting) != 1:
        problem = f"--test {named!r} fits {len(fitting)} tests" if named else f"{len(known)} tests"
        raise UsageError(
            f"{arguments.report}: {problem}; name one with --test ({nearest(named, list(known), noun='test')})"
        )
    return fitting[0]


def _part(flow: Flow, arguments: argparse.Namespace) -> Flow:
    graph = flow_graph_of(flow)
    if arguments.slice is not None:
        if arguments.slice not in {vertex.number for vertex in graph.vertices}:
            raise UsageError(
                f"--slice {arguments.slice}: vertices have the numbers 0 to {len(graph.vertices) - 1}"
            )
        graph = graph.slice(arguments.slice)
    if arguments.important is not None:
        graph = graph.important(arguments.important)
    return cast(Flow, graph.to_dict())
