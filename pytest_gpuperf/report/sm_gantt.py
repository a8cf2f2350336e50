"""Timeline of the warps and units of a simulated SM in a window of clocks, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.numbers import number
from .picture import bar, line, picture, words

if TYPE_CHECKING:
    from gpuperf_engine.sass.sm.window import Bar, Window

__all__ = ["sm_gantt_svg"]

_STYLES = {
    "selected": "third",
    "busy": "first",
    "barrier": "fourth",
    "mbarrier": "fourth",
    "not_selected": "second",
}
_LEFT, _ACROSS, _ROW, _TOP = 110.0, 900.0, 14, 44.0
_LEGEND = (
    ("selected", "third"),
    ("waits", "wait"),
    ("barrier", "fourth"),
    ("could issue, or pipe or queue busy", "second"),
    ("unit busy", "first"),
)
_UNITS = ("lsu", "l2", "dram")


def sm_gantt_svg(window: Window, title: str) -> str:
    """A row for each warp, by sub-partition, and below for each unit; what is waited for where a bar is pointed at."""
    scale = _ACROSS / (window.end - window.start)
    rows = sorted({item.row for item in window.bars}, key=_order)
    places = {row: _TOP + _ROW * index for index, row in enumerate(rows)}
    below = _TOP + _ROW * len(rows)

    def parts() -> Iterator[str]:
        yield words(
            f"{title}: clocks {number(window.start)} to {number(window.end)} of {number(window.clocks)} of one SM",
            _LEFT,
            22,
        )
        for mark in range(9):
            x = _LEFT + _ACROSS * mark / 8
            yield line([(x, _TOP - 6), (x, below)], "grid")
            yield words(
                number(window.start + (window.end - window.start) * mark // 8), x, below + 16, anchor="middle"
            )
        for row, y in places.items():
            yield words(f"warp {row}" if "." in row else row, 8, y + 11)
        for item in window.bars:
            style = _STYLES.get(item.what, "wait")
            about = _about(window, item)
            x, width = _LEFT + (item.start - window.start) * scale, (item.end - item.start) * scale
            yield bar(x, places[item.row] + 2, width, _ROW - 4, style, about)
        x = _LEFT
        for name, style in _LEGEND:
            yield bar(x, below + 28, 14, 12, style, name)
            yield words(name, x + 20, below + 38)
            x += 50 + 7.4 * len(name)

    return picture(title, _LEFT + _ACROSS + 40, below + 56, parts())


def _order(row: str) -> tuple[int, int, int, str]:
    """Warps by sub-partition, then its pipes, then what all share."""
    if "." in row:
        part, warp = row.split(".")
        return 0, int(part), int(warp), ""
    if row in _UNITS:
        return 2, _UNITS.index(row), 0, row
    return 1, int(row.split()[0]), 0, row


def _about(window: Window, item: Bar) -> str:
    what = {"selected": "issues", "busy": "works for"}.get(item.what, f"{item.what}, before")
    on = f", for {window.texts[item.on]}" if item.on != item.at else ""
    return f"{item.start} to {item.end}: {what} {window.texts[item.at]}{on}"
