"""Graphs as DOT and as SVG with a layered layout of our own: control flow of kernels, value flow of programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..core.escaping import clean

__all__ = ["SVG_NAMESPACE", "Edge", "Node", "to_dot", "to_svg"]

SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_CHAR, _LINE, _PAD, _GAP_X, _GAP_Y = 7.2, 15, 8, 36, 44
_SHOWN = 14
_RULES = (
    ("text", "font:12px monospace;fill:#1b1f24"),
    (".box", "fill:#f4f6f8;stroke:#57606a"),
    (".edge", "fill:none;stroke:#57606a"),
    (".back", "stroke-dasharray:5 3;stroke:#b3261e"),
    (".wasted", "stroke:#b3261e;stroke-width:2.5"),
    (".label", "font-size:11px;fill:#57606a"),
    (".title", "font-weight:bold"),
)
_DARK = (("text", "fill:#e6e9ec"), (".box", "fill:#1e2328"), (".label", "fill:#9aa4ae"))


def _style(rules: Sequence[tuple[str, str]]) -> str:
    """For this picture alone, which may be part of a page."""
    return "".join(f".graph {name}{{{rule}}}" for name, rule in rules)


_STYLE = f"{_style(_RULES)}@media(prefers-color-scheme:dark){{{_style(_DARK)}}}"


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
    those that are ``wasted`` stand out."""

    source: int
    target: int
    label: str = ""
    back: bool = False
    wasted: bool = False


def to_dot(name: str, nodes: Sequence[Node], edges: Iterable[Edge]) -> str:
    """The graph in the DOT language."""
    rows = [f"digraph {_quote(name)} {{", '  node [shape=box, fontname="monospace"];']
    for index, node in enumerate(nodes):
        rows.append(f"  n{index} [label={_quote(chr(10).join(node.shown()), left=True)}];")
    for edge in edges:
        style = (", style=dashed" if edge.back else "") + (", color=red" if edge.wasted else "")
        rows.append(f"  n{edge.source} -> n{edge.target} [label={_quote(edge.label)}{style}];")
    return "\n".join([*rows, "}", ""])


def _quote(text: str, *, left: bool = False) -> str:
    # "\l" ends a line that is set flush left.
    escaped = clean(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (escaped.replace("\n", "\\l") + "\\l" if left else escaped.replace("\n", "\\n")) + '"'


@dataclass
class _Box:
    lines: list[str]
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def to_svg(name: str, nodes: Sequence[Node], edges: Sequence[Edge], what: str = "Control flow") -> str:
    """The graph as one SVG image that needs neither network nor script; ``what`` it is of is in its title."""
    boxes = []
    for node in nodes:
        lines = node.shown()
        boxes.append(_Box(lines, _CHAR * max(map(len, lines)) + 2 * _PAD, _LINE * len(lines) + 2 * _PAD))
    width, height = _place(boxes, _layers(len(nodes), edges), edges)
    right = width + _GAP_X / 2
    drawn = [_back(boxes, edge, right + 12 * n) for n, edge in enumerate(e for e in edges if e.back)]
    drawn += [_forward(boxes, edge) for edge in edges if not edge.back]
    total = right + 12 * sum(edge.back for edge in edges) + _GAP_X
    parts = [
        f'<svg xmlns="{SVG_NAMESPACE}" class="graph" width="{total:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {total:.0f} {height:.0f}" role="img">',
        f"<title>{what} of {escape(clean(name))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>',
        *drawn,
        *(_box(box) for box in boxes),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way from an entry, over edges that do not close loops. An order of the nodes in which all such edges go
    on exists wherever the back edges were found by dominance; in irreducible graphs the rest goes by index."""
    forward: dict[int, list[int]] = defaultdict(list)
    pending = [0] * count
    for edge in edges:
        if not edge.back and edge.source != edge.target:
            forward[edge.source].append(edge.target)
            pending[edge.target] += 1
    layer = [0] * count
    ready = [node for node in range(count) if pending[node] == 0]
    done: set[int] = set()
    while len(done) < count:
        node = ready.pop(0) if ready else min(set(range(count)) - done)
        if node in done:
            continue
        done.add(node)
        for target in forward[node]:
            if target in done:
                continue
            layer[target] = max(layer[target], layer[node] + 1)
            pending[target] -= 1
            if pending[target] == 0:
                ready.append(target)
    return layer


def _place(boxes: list[_Box], layer: list[int], edges: Sequence[Edge]) -> tuple[float, float]:
    rows: dict[int, list[int]] = defaultdict(list)
    for node, row in enumerate(layer):
        rows[row].append(node)
    above: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        if not edge.back:
            above[edge.target].append(edge.source)
    widest = max((sum(boxes[n].width + _GAP_X for n in row) for row in rows.values()), default=0.0)
    y = _GAP_Y / 2
    for row in sorted(rows):
        # Below the average of what leads there, so that edges cross little.
        order = sorted(
            rows[row],
            key=lambda n: (sum(boxes[s].middle for s in above[n]) / len(above[n]) if above[n] else 0.0, n),
        )
        x = (widest - sum(boxes[n].width + _GAP_X for n in order)) / 2 + _GAP_X / 2
        for node in order:
            boxes[node].x, boxes[node].y = x, y
            x += boxes[node].width + _GAP_X
        y += max(boxes[node].height for node in order) + _GAP_Y
    return widest, y


def _box(box: _Box) -> str:
    parts = [
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3"/>'
    ]
    for number, line in enumerate(box.lines):
        style = ' class="title"' if number == 0 else ""
        y = box.y + _PAD + _LINE * (number + 0.8)
        parts.append(
            f'<text{style} x="{box.x + _PAD:.1f}" y="{y:.1f}" xml:space="preserve">{escape(line)}</text>'
        )
    return "".join(parts)


def _forward(boxes: list[_Box], edge: Edge) -> str:
    source, target = boxes[edge.source], boxes[edge.target]
    x1, y1, x2, y2 = source.middle, source.y + source.height, target.middle, target.y
    bend = max(20.0, (y2 - y1) / 2)
    path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    label = (
        f'<text class="label" x="{(x1 + x2) / 2 + 4:.1f}" y="{(y1 + y2) / 2:.1f}">{escape(edge.label)}</text>'
    )
    return f'<path class="edge{" wasted" * edge.wasted}" marker-end="url(#tip)" d="{path}"/>' + (
        label if edge.label else ""
    )


def _back(boxes: list[_Box], edge: Edge, lane: float) -> str:
    source, target = boxes[edge.source], boxes[edge.target]
    x1, y1 = source.x + source.width, source.y + source.height - _PAD
    x2, y2 = target.x + target.width, target.y + _PAD
    path = f"M{x1:.1f} {y1:.1f}L{lane:.1f} {y1:.1f}L{lane:.1f} {y2:.1f}L{x2:.1f} {y2:.1f}"
    return f'<path class="edge back{" wasted" * edge.wasted}" marker-end="url(#tip)" d="{path}"/>'
