"""Graphs, and their text in the DOT language: control flow of kernels, value flow of programs (``drawing`` makes pictures of them)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.escaping import clean

__all__ = ["Edge", "Node", "to_dot"]

_SHOWN = 14


@dataclass(frozen=True)
class Node:
    """One box: a title and lines of text, of a basic block its instructions."""

    title: str
    lines: tuple[str, ...]

    def shown(self) -> list[str]:
        """The lines to draw; long blocks are cut in the middle."""
        lines = [clean(line) for line in self.lines]
        if len(lines) > _SHOWN:
            lines = [*lines[: _SHOWN - 3], f"… {len(lines) - _SHOWN + 1} more", *lines[-2:]]
        return [clean(self.title), *(line if len(line) <= 64 else line[:63] + "…" for line in lines)]


@dataclass(frozen=True)
class Edge:
    """From one node to another, by index; ``label`` is e.g. ``taken``; ``back`` edges close loops;
    those that are ``wasted`` stand out; ``width`` is that of the line, in pixels."""

    source: int
    target: int
    label: str = ""
    back: bool = False
    wasted: bool = False
    width: float = 1.2


def to_dot(name: str, nodes: Sequence[Node], edges: Iterable[Edge]) -> str:
    """The graph in the DOT language."""
    rows = [f"digraph {_quote(name)} {{", '  node [shape=box, fontname="monospace"];']
    for index, node in enumerate(nodes):
        rows.append(f"  n{index} [label={_quote(chr(10).join(node.shown()), left=True)}];")
    for edge in edges:
        style = (", style=dashed" if edge.back else "") + (", color=red" if edge.wasted else "")
        style += f", penwidth={edge.width:.1f}" if edge.width > Edge.width else ""
        rows.append(f"  n{edge.source} -> n{edge.target} [label={_quote(edge.label)}{style}];")
    return "\n".join([*rows, "}", ""])


def _quote(text: str, *, left: bool = False) -> str:
    # "\l" ends a line that is set flush left.
    escaped = clean(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (escaped.replace("\n", "\\l") + "\\l" if left else escaped.replace("\n", "\\n")) + '"'
