"""What a comparison adds to the record of a case: rows, verdict, where and why. PYTEST_DONT_REWRITE

The same for a test that has just run and for a report that is judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .attribution import attribute, position
from .compare import compare_case
from .declared import CaseSettings
from .explained import divergence
from .verdict import judged

__all__ = ["judgement"]


def judgement(
    measured: Mapping[str, Any],
    stored: Mapping[str, Any] | None,
    *,
    stored_analysis: Mapping[str, int],
    analysis: Mapping[str, int],
    failures: Mapping[str, tuple[str, str]],
    policy: Mapping[str, str],
    case: CaseSettings,
    unexplained: bool,
    detail: Mapping[str, Any],
    text: Mapping[int, str],
    path: str,
) -> dict[str, Any]:
    """The part of a case record that depends on what it is compared with.

    ``measured`` and ``stored`` are cases as baselines hold them, ``analysis`` and ``stored_analysis`` the revisions under which
    they were made, ``text`` the lines of the PTX and ``path`` its name; for the rest see ``compare_case``.
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
    )
    lines, sources = detail["lines"], {int(line): where for line, where in detail["sources"].items()}
    line, where = position(measured, stored, lines, text, path, sources)
    because = attribute(measured, stored, lines, text, path, sources) if stored is not None else []
    if any(row["fails"] and row["metric"].startswith("branches.") for row in rows):
        because += filter(None, [divergence(detail.get("explanation"), path)])
    return {
        "verdict": judged(rows),
        "fails": any(row["fails"] for row in rows),
        "error": "",
        "line": line,
        "position": where,
        "rows": rows,
        "because": because,
        "stored": stored,
        "inputs_changed": stored is not None and stored.get("inputs") != measured["inputs"],
        "kernel_changed": stored is not None and stored.get("kernel") != measured["kernel"],
    }
