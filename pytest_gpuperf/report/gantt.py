"""Timeline of the warps of a tile, work and waits, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .picture import bar, line, picture, words

if TYPE_CHECKING:
    from gpuperf_engine.warp_specialization import Interval, Timeline

__all__ = ["gantt_svg", "gantt_text"]

_MARKS = {"load A": "A", "load B": "B", "math": "#", "epilogue": "E", "wait empty": ".", "wait full": "."}
_STYLES = {
    "load A": "first",
    "load B": "fourth",
    "math": "third",
    "epilogue": "second",
    "wait empty": "wait",
    "wait full": "wait",
}
_ROW = 34


def gantt_text(timeline: Timeline, width: int = 72) -> list[str]:
    """A line for each warp: ``A`` and ``B`` loads, ``#`` MATH, ``E`` epilogue, ``.`` waiting. A column shows its longest interval.
    Intervals are clipped at the end of the timeline."""
    scale = width / timeline.end if timeline.end else 0.0
    lines = []
    for warp in timeline.warps:
        shares: list[dict[str, float]] = [{} for _ in range(width)]
        for item in timeline.intervals:
            if item.warp == warp:
                for column, share in _columns(item, scale, width):
                    marks = shares[column]
                    marks[_MARKS[item.what]] = marks.get(_MARKS[item.what], 0.0) + share
        row = "".join(max(sorted(marks), key=lambda mark: marks[mark]) if marks else " " for marks in shares)
        lines.append(f"{warp:5} |{row}|")
    end = f"{timeline.end:.3f} us"
    lines.append(f"{'':5}  0{end.rjust(width - 1)}")
    return lines


def _columns(item: Interval, scale: float, width: int) -> Iterator[tuple[int, float]]:
    """The columns of an interval, each with how much of it the interval fills."""
    start, end = item.start * scale, item.end * scale
    for column in range(int(start), min(int(end) + 1, width)):
        share = min(end, column + 1) - max(start, column)
        if share > 0:
            yield column, share


def gantt_svg(timeline: Timeline, title: str) -> str:
    """A row for each warp, with a bar per interval; tooltips have the numbers."""
    left, across = 70.0, 860.0
    scale = across / timeline.end if timeline.end else 0.0
    below = 40.0 + _ROW * len(timeline.warps)
    parts = [words(title, left, 22)]
    for mark in range(6):
        x = left + across * mark / 5
        parts += [
            line([(x, 34), (x, below)], "grid"),
            words(f"{timeline.end * mark / 5:.2f}", x, below + 16, anchor="middle"),
        ]
    parts.append(words("us", left + across + 24, below + 16))
    for row, warp in enumerate(timeline.warps):
        y = 40.0 + _ROW * row
        parts.append(words(warp, 10, y + 18))
        parts += [
            bar(
                left + item.start * scale,
                y,
                (min(item.end, timeline.end) - item.start) * scale,
                _ROW - 8,
                _STYLES[item.what],
                _about(item),
            )
            for item in timeline.intervals
            if item.warp == warp
        ]
    x = left
    for what, style in (
        ("load A", "first"),
        ("load B", "fourth"),
        ("math", "third"),
        ("epilogue", "second"),
        ("wait", "wait"),
    ):
        parts += [bar(x, below + 30, 14, 12, style, what), words(what, x + 20, below + 40)]
        x += 110
    return picture(title, left + across + 60, below + 56, parts)


def _about(item: Interval) -> str:
    return f"{item.what}, stage {item.stage}: {item.start:.4f} to {item.end:.4f} us"
