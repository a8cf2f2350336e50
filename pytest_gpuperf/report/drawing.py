"""Graphs as SVG: readable without script or network, in light and in dark, in a page or by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from ..core.escaping import clean
from .graph import Edge, Node
from .layout import LINE, PAD, Box, Route, lay_out

__all__ = ["SVG_NAMESPACE", "to_svg"]

SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_TIP = 7
_RULES = (
    (".ground", "fill:#ffffff"),
    ("text", "font:12px monospace;fill:#1b1f24"),
    (".box", "fill:#f4f6f8;stroke:#57606a"),
    (".edge", "fill:none;stroke:#57606a;stroke-linejoin:round"),
    (".tip", "fill:#57606a"),
    (".back", "stroke-dasharray:5 3"),
    (".wasted", "stroke:#b3261e"),
    (".tip.wasted", "fill:#b3261e;stroke:none"),
    (".label", "font-size:11px;fill:#57606a;stroke:#ffffff;stroke-width:3px;paint-order:stroke"),
    (".title", "font-weight:bold"),
)
_DARK = (
    (".ground", "fill:#15191d"),
    ("text", "fill:#e6e9ec"),
    (".box", "fill:#232a31;stroke:#9aa4ae"),
    (".edge", "stroke:#9aa4ae"),
    (".tip", "fill:#9aa4ae"),
    (".wasted", "stroke:#ff8a80"),
    (".tip.wasted", "fill:#ff8a80"),
    (".label", "fill:#b6bfc8;stroke:#15191d"),
)


def _style(rules: Sequence[tuple[str, str]]) -> str:
    """For this picture alone, which may be part of a page."""
    return "".join(f".graph {name}{{{rule}}}" for name, rule in rules)


_STYLE = f"{_style(_RULES)}@media(prefers-color-scheme:dark){{{_style(_DARK)}}}"


def to_svg(
    name: str,
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    what: str = "Control flow",
    legend: Sequence[tuple[Edge, str]] = (),
) -> str:
    """The graph as one image; ``what`` it is of is in its title. ``legend``: edges as an example, each with what it means."""
    layout = lay_out(nodes, edges)
    samples = [edge for edge, _ in legend]
    texts = [text for _, text in legend]
    width = max([layout.width, *(70 + 7 * len(text) for text in texts)])
    height = layout.height + (1.4 * LINE * len(legend) + PAD if legend else 0)
    parts = [
        f'<svg xmlns="{SVG_NAMESPACE}" class="graph" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{what} of {escape(clean(name))}</title>",
        f"<style>{_STYLE}</style>",
        f'<path class="ground" d="M0 0H{width:.0f}V{height:.0f}H0z"/>',
        *(_line(route) for route in layout.routes),
        *(_box(box) for box in layout.boxes),
        *(_label(route) for route in layout.routes if route.edge.label),
        *(
            _sample(edge, text, layout.height + 1.4 * LINE * (row + 0.5))
            for row, (edge, text) in enumerate(zip(samples, texts))
        ),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _box(box: Box) -> str:
    parts = [
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3"/>'
    ]
    for number, line in enumerate(box.lines):
        style = ' class="title"' if number == 0 else ""
        y = box.y + PAD + LINE * (number + 0.8)
        parts.append(
            f'<text{style} x="{box.x + PAD:.1f}" y="{y:.1f}" xml:space="preserve">{escape(line)}</text>'
        )
    return "".join(parts)


def _classes(edge: Edge) -> str:
    return "edge" + " back" * edge.back + " wasted" * edge.wasted


def _line(route: Route) -> str:
    """The line, and the arrow at its end, which always points down."""
    *before, (x, y) = route.points
    points = [*before, (x, y - _TIP)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        if route.edge.back or x1 == x2:
            path += f"L{x2:.1f} {y2:.1f}"
        else:
            middle = (y1 + y2) / 2
            path += f"C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    half = 3 + route.edge.width / 2
    tip = f"M{x - half:.1f} {y - _TIP - 1:.1f}H{x + half:.1f}L{x:.1f} {y:.1f}z"
    return (
        f'<path class="{_classes(route.edge)}" stroke-width="{route.edge.width:.1f}" d="{path}"/>'
        f'<path class="tip{" wasted" * route.edge.wasted}" d="{tip}"/>'
    )


def _label(route: Route) -> str:
    """Beside the line; along it where that goes back, beside the graph."""
    x, y = route.label
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})" text-anchor="middle"' if route.edge.back else ""
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(clean(route.edge.label))}</text>'


def _sample(edge: Edge, text: str, y: float) -> str:
    return (
        f'<path class="{_classes(edge)}" stroke-width="{edge.width:.1f}" d="M{PAD} {y:.1f}H{PAD + 36}"/>'
        f'<text class="label" x="{PAD + 46}" y="{y + 4:.1f}">{escape(text)}</text>'
    )
