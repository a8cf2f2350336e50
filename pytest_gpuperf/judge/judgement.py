"""The results of a comparison in the record of a case: rows, verdict, position and reasons.

Tests that have just run and reports that are judged again share this code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..config.declared import CaseSettings
from ..core.metric import Table
from ..core.metrics import TABLE
from ..core.records import Detail, Entry, Judgement, PlaceRow, Row
from ..core.verdict import SILENT, judged, leading
from .attribution import Attribution, Place
from .compare import compare_case
from .explanation import divergence
from .listing import Listing
from .stalled import grown_stalls

__all__ = ["judgement"]

_LOOK_AT = 10


def judgement(
    measured: Entry,
    stored: Entry | None,
    *,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    failures: Mapping[str, tuple[str, str]],
    policy: Mapping[str, str],
    case: CaseSettings,
    unexplained: bool,
    detail: Detail,
    listing: Listing,
    metrics: Table = TABLE,
) -> Judgement:
    """The part of a case record that depends on what it is compared with.

    ``measured`` and ``stored`` are cases as baselines hold them, ``analysis`` and ``stored_analysis`` the revisions under which
    they were made, ``detail`` what a report says beside ``measured``; for the rest see ``compare_case``.
    """
    rows = compare_case(
        measured,
        stored,
        stored_analysis=stored_analysis,
        analysis=analysis,
        failures=failures,
        policy=policy,
        case=case,
        unexplained=unexplained,
        metrics=metrics,
        uncounted={
            target: shown["no_machine_code"]
            for target, shown in detail["targets"].items()
            if "no_machine_code" in shown
        },
    )
    attribution = Attribution(measured, stored, detail, listing, metrics)
    places = {
        row["metric"]: attribution.lines_of(row["metric"])
        for row in rows
        if row["verdict"] not in ("new", *SILENT)
    }
    because = [*attribution.sentences(rows), *grown_stalls(measured, stored, detail, rows)]
    if any(row["fails"] and row["metric"].startswith("branches.") for row in rows):
        grown = places.get("branches.divergent") or places.get("branches.efficiency")
        because += filter(
            None, [divergence(detail.get("explanation"), listing.path, grown.line if grown else 0)]
        )
    verdict = judged(rows)
    position = _position(rows, verdict, places, attribution)
    return {
        "verdict": verdict,
        "fails": any(row["fails"] for row in rows),
        "error": "",
        "line": position.line if position is not None else 0,
        "position": _said(position, listing.path),
        "look_at": _look_at([position, *places.values()], detail),
        "rows": [
            {**row, "where": str(lines)} if (lines := places.get(row["metric"])) is not None else row
            for row in rows
        ],
        "because": because,
        "stored": stored,
        "inputs_changed": stored is not None and stored.get("inputs") != measured["inputs"],
        "kernel_changed": stored is not None and stored.get("kernel") != measured["kernel"],
    }


def _position(
    rows: list[Row], verdict: str, places: Mapping[str, Place | None], attribution: Attribution
) -> Place | None:
    """Return the first line to inspect: of the leading metric's change, else of another failing one, else of any; else the hottest."""
    first = leading(rows, verdict)
    order = [first, *(row for row in rows if row["fails"]), *rows] if rows else []
    located = (lines for row in order if (lines := places.get(row["metric"])) is not None and lines.line)
    return next(located, None) or attribution.grown_opcode() or attribution.hottest()


def _said(lines: Place | None, path: str) -> str:
    if lines is None:
        return path
    return f"hottest line: {lines}" if lines.guess else str(lines)


def _look_at(places: Iterable[Place | None], detail: Detail) -> list[PlaceRow]:
    """Return lines of the project's source to annotate, best first: those of the places, and of the calls that inlined them."""
    known = set(detail.get("files", ()))
    lines: dict[tuple[str, int], None] = {}
    for moved in places:
        for at in (moved.source, *moved.inlined[1:]) if moved is not None and not moved.guess else ():
            path, _, line = at.rpartition(":")
            if path in known and line.isdigit():
                lines.setdefault((path, int(line)))
    return [{"path": path, "line": line} for path, line in [*lines][:_LOOK_AT]]
