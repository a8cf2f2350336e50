"""Plots as SVG: readable without script or network, in light and in dark, in a page or by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..core.escaping import clean
from .drawing import SVG_NAMESPACE

__all__ = ["bar", "line", "picture", "point", "words"]

_COLORS = {
    "ground": ("fill:#ffffff", "fill:#15191d"),
    "text": ("fill:#1b1f24", "fill:#e6e9ec"),
    "axis": ("stroke:#57606a", "stroke:#9aa4ae"),
    "grid": ("stroke:#d8dee4", "stroke:#30363d"),
    "first": ("stroke:#0b62c4;fill:#0b62c4", "stroke:#79b8ff;fill:#79b8ff"),
    "second": ("stroke:#9a6700;fill:#9a6700", "stroke:#e3b341;fill:#e3b341"),
    "third": ("stroke:#1a7f37;fill:#1a7f37", "stroke:#56d364;fill:#56d364"),
    "fourth": ("stroke:#8250df;fill:#8250df", "stroke:#d2a8ff;fill:#d2a8ff"),
    "wait": ("stroke:#b3261e;fill:#f7d4d1", "stroke:#ff8a80;fill:#4a2220"),
}


def _rules(theme: int) -> str:
    return "".join(f".plot .{name}{{{colors[theme]}}}" for name, colors in _COLORS.items())


_STYLE = (
    ".plot text{font:12px monospace;stroke:none}.plot path{fill:none}.plot .dashed{stroke-dasharray:5 3}"
    f"{_rules(0)}.plot path.ground{{fill:#ffffff}}"
    f"@media(prefers-color-scheme:dark){{{_rules(1)}.plot path.ground{{fill:#15191d}}}}"
)


def picture(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    """Return the parts as one image with a title for screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="{SVG_NAMESPACE}" class="plot" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(clean(title))}</title>",
            f"<style>{_STYLE}</style>",
            f'<path class="ground" d="M0 0H{width:.0f}V{height:.0f}H0z"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def words(text: str, x: float, y: float, *, anchor: str = "start", turned: bool = False) -> str:
    """Text at a point, or along a vertical line through it."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text class="text" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(clean(text))}</text>'


def line(points: Sequence[tuple[float, float]], style: str, title: str = "") -> str:
    """Return a line through points; ``title`` is its tooltip."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{style}" stroke-width="{1 if style == "grid" else 2}" d="M{path}">{_title(title)}</path>'


def bar(x: float, y: float, width: float, height: float, style: str, title: str) -> str:
    return (
        f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
        f'stroke-width="0.5">{_title(title)}</rect>'
    )


def point(x: float, y: float, style: str, title: str) -> str:
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="5">{_title(title)}</circle>'


def _title(text: str) -> str:
    return f"<title>{escape(clean(text))}</title>" if text else ""
