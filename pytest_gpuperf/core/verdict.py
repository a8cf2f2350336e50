"""Verdicts of comparisons, worst first, and which of them fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import Row

__all__ = [
    "CASE_VERDICTS",
    "SAME_CODE",
    "SESSION_VERDICTS",
    "SILENT",
    "SYMBOLS",
    "WORDS",
    "fails",
    "judged",
    "leading",
    "worst",
]

CASE_VERDICTS = (
    "error",
    "over-limit",
    "unmodelled",
    "regressed",
    "new",
    "incomparable",
    "changed",
    "improved",
    "unjudged",
    "ok",
)
"""Verdicts of a case or a metric, worst first; only metrics are ``unjudged``, if the baseline does not have them yet."""

SILENT = ("unjudged", "ok")
"""Verdicts of metrics that did not move as far as is known."""

SAME_CODE = "the machine code is the same"
"""The note of metrics of PTX that changed while the machine code did not."""

SESSION_VERDICTS = (*CASE_VERDICTS[:-4], "nothing-analysed", "stale", "changed", "improved", "ok")
"""Verdicts of a run: those of its cases and two of its own."""

SYMBOLS = {
    "error": "✖",
    "over-limit": "▲",
    "unmodelled": "?",
    "regressed": "▲",
    "new": "+",
    "incomparable": "≁",
    "changed": "≠",
    "improved": "▼",
    "unjudged": "·",
    "ok": "=",
    "stale": "−",
    "nothing-analysed": "∅",
}

WORDS = {
    "error": "error",
    "over-limit": "over limit",
    "unmodelled": "not modelled",
    "regressed": "worse",
    "new": "new",
    "incomparable": "not comparable",
    "changed": "changed",
    "improved": "better",
    "unjudged": "not judged yet",
    "ok": "equal",
    "stale": "unused",
    "nothing-analysed": "nothing analysed",
}


def worst(verdicts: Iterable[str], order: tuple[str, ...] = SESSION_VERDICTS) -> str:
    """The worst of the verdicts, ``ok`` of none."""
    return min(verdicts, key=order.index, default="ok")


def judged(rows: Iterable[Row]) -> str:
    """The verdict of a case: the worst of its rows that fail, where one does (an improvement to be banked outranks a
    neutral change), else of all."""
    rows = [row for row in rows if row["verdict"] != "unjudged"]
    return worst((row["verdict"] for row in [row for row in rows if row["fails"]] or rows), CASE_VERDICTS)


def leading(rows: Sequence[Row], verdict: str) -> Row:
    """Return the most important row: of the worst verdict, exact before modelled, then the largest change. The time matters most,
    but the instruction count is certain."""
    rows = [row for row in rows if row["verdict"] == verdict] or rows

    def moved(row: Row) -> float:
        if row["old"] is None or row["new"] is None:
            return 0.0
        return abs(row["new"] - row["old"]) / abs(row["old"]) if row["old"] else float("inf")

    order = {"exact": 0, "set": 1, "ratio": 2, "modelled": 3}
    return max(rows, key=lambda row: (row["fails"], -order[row["class"]], moved(row)))


def fails(verdict: str, kind: str, *, on_improvement: str = "fail", on_unmodelled: str = "fail") -> bool:
    """Whether a metric of that class (``exact``, ``ratio``, ``modelled``, ``set``) with that verdict fails its test.

    An improvement of an exact metric fails as long as it is not stored: an unbanked gain hides the next loss.
    """
    if verdict == "improved":
        return kind != "modelled" and on_improvement == "fail"
    if verdict == "unmodelled":
        return on_unmodelled == "fail"
    return verdict not in (*SILENT, "changed")
