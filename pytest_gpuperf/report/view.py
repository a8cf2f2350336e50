"""Prepares the document for the templates: content and order of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuperf_engine.results.cxx_names import readable_name

from ..core.finding_groups import FindingGroup, finding_groups
from ..core.fingerprint import digest_parts
from ..core.mangling import stable_name
from ..core.metric import ESTIMATE
from ..core.numbers import change, number
from ..core.records import Case, Document, ListingRow, Row
from ..core.verdict import CASE_VERDICTS, SILENT, SYMBOLS, WORDS
from ..judge.accesses import per_request, remark
from ..judge.explanation import explanation_tables, marks
from .charts import opcode_bars, target_bars, waterfall
from .drawing import SVG_NAMESPACE
from .flow import flow_svg, flow_text
from .message import accepting, headline, metric_label, unjudged
from .sass import machine_listing
from .structure import structural_differences

__all__ = ["build_view"]

_DRAWN_EDGES = 80
_LISTING_LINES, _SHORT_LISTING_LINES, _ALL_LISTING_LINES = 5_000, 300, 12_000
"""Lines of PTX, and of machine code, shown per case that fails for more than being new, per other case, and in all."""

_OPEN = 10
"""Cases that are open at first: more would take a browser seconds to lay out."""

_PLACE = re.compile(r"(\S[^:\n]*:\d+):\d+: ")

_GROUPS = ("Failing", "Better: store the gain", "New", "Changed without failing", "Equal to the baseline")


def _group(case: Case) -> str:
    if case["verdict"] == "new":
        return "New"
    if case["fails"]:
        return "Better: store the gain" if case["verdict"] == "improved" else "Failing"
    return "Equal to the baseline" if case["verdict"] == "ok" else "Changed without failing"


def build_view(document: Document) -> dict[str, object]:
    """Everything the templates need, as plain values; text in it is as untrusted as in the document."""
    listings = {listing["id"]: listing for listing in document["listings"]}
    order = sorted(document["cases"], key=lambda c: (CASE_VERDICTS.index(c["verdict"]), c["module"], c["id"]))
    budget = code_budget = _ALL_LISTING_LINES
    opened = 0
    groups: dict[str, list[dict[str, object]]] = {title: [] for title in _GROUPS}
    for record in order:
        known = listings.get(record["detail"]["listing"])
        wanted = _LISTING_LINES if record["fails"] and record["verdict"] != "new" else _SHORT_LISTING_LINES
        listing = _listing(record, known, min(wanted, budget))
        budget -= len(listing["lines"])
        code = machine_listing(record, known, min(wanted, code_budget))
        code_budget -= len(code["lines"])
        opened += record["fails"]
        more = {"machine_code": code, "open": record["fails"] and opened <= _OPEN}
        groups[_group(record)].append({**_case(record, listing), **more})
    return {
        "verdict": document["verdict"],
        "passed": document["passed"],
        "symbol": SYMBOLS[document["verdict"]],
        "word": WORDS[document["verdict"]],
        "headline": _headline(document, order),
        "counts": [
            (WORDS[verdict], SYMBOLS[verdict], count) for verdict, count in document["counts"].items()
        ],
        "verdicts": [(WORDS[verdict], verdict) for verdict in document["counts"]],
        "targets": sorted({t for record in order for t in record["measured"].get("targets", {})}),
        "total": len(document["cases"]),
        "changed": sorted(_changed(order), key=lambda row: not row["fails"]),
        "groups": [(title, cases) for title, cases in groups.items() if cases],
        "stale": document["stale"],
        "not_judged": document["not_judged"],
        "staleness_not_judged": document["staleness_not_judged"],
        "problems": document["problems"],
        "unjudged": unjudged(document["cases"]),
        "notes": document.get("notes", []),  # reports of earlier versions have none
    }


def _changed(order: Iterable[Case]) -> Iterator[dict[str, object]]:
    for record in order:
        for row in record["rows"]:
            if row["verdict"] not in (*SILENT, "new"):
                yield {
                    **_row(row),
                    "case": record["id"],
                    "anchor": _anchor(record),
                    "module": record["module"],
                }


def _headline(document: Document, order: list[Case]) -> str:
    moved = [record for record in order if record["verdict"] != "ok"]
    if moved:
        return headline(moved)
    if document["verdict"] == "nothing-analysed":
        return "too few kernels were analysed"
    if document["stale"]:
        return f"{len(document['stale'])} baseline entries are unused"
    if document["problems"]:
        return str(document["problems"][0]).splitlines()[0]
    return (
        "every kernel matches its baseline"
        if document["passed"]
        else "tests failed before they could be judged"
    )


def _anchor(record: Case) -> str:
    return "case-" + digest_parts([record["module"], record["id"]], 10)


def _case(record: Case, listing: Mapping[str, object]) -> dict[str, object]:
    detail = record["detail"]
    return {
        "id": record["id"],
        "anchor": _anchor(record),
        "nodeid": record["nodeid"],
        "baseline": record["baseline"],
        "verdict": record["verdict"],
        "symbol": SYMBOLS[record["verdict"]],
        "word": WORDS[record["verdict"]],
        "fails": record["fails"],
        "error": record["error"],
        "kernel": record["kernel"],
        "kernel_name": readable_name(stable_name(record["kernel"]["name"])),
        "position": record["position"],
        "call": f"{record['call']['path']}:{record['call']['line']}",
        "rows": [_row(row) for row in record["rows"]],
        "moved": sorted(
            (_row(row) for row in record["rows"] if row["verdict"] not in SILENT),
            key=lambda row: not row["fails"],
        ),
        "because": record["because"],
        "inputs_changed": record["inputs_changed"],
        "command": accepting(record),
        "opcodes": opcode_bars(record),
        "waterfall": waterfall(record),
        "structure": _structure(record),
        "targets": [target_bars(name, record) for name in sorted(record["measured"].get("targets", {}))],
        "findings": [_finding(group) for group in finding_groups(detail["findings"])],
        "flow": _flow(record),
        "notes": detail["notes"],
        "shape": ", ".join(
            f"{name} {_shape(detail[name])}" for name in ("grid", "block", "cluster") if name in detail
        ),
        "fingerprints": {"kernel": record["measured"]["kernel"], "inputs": record["measured"]["inputs"]},
        "resources": record["measured"]["resources"],
        "registers": "estimated" if record["measured"]["resources"]["from"] == ESTIMATE else "ptxas",
        "listing": listing,
        "explanation": _explanation(record),
    }


def _finding(group: FindingGroup) -> dict[str, Any]:
    """With what earlier versions do not say."""
    finding, saved = group.first, group.saved("µs")
    more = [finding.get("advice", ""), f"saves {saved}" if saved else ""]
    accepted = finding.get("accepted", "")
    more.append(f"accepted: {accepted}" if accepted else "")
    return {**finding, "message": group.message, "more": [text for text in more if text]}


def _flow(record: Case) -> dict[str, str]:
    """The value flow graph, drawn and as text; none of a graph that is too large to be read."""
    flow = record["detail"].get("flow")
    if flow is None or len(flow["edges"]) > _DRAWN_EDGES:
        return {}
    # SVG inside HTML needs no namespace
    drawing = flow_svg(flow, record["nodeid"]).replace(f' xmlns="{SVG_NAMESPACE}"', "")
    return {"svg": drawing, "text": flow_text(flow)}


def _explanation(record: Case) -> list[dict[str, object]]:
    """Tables of hot lines, loops and divergent branches."""
    explained = record["detail"].get("explanation")
    if explained is None:
        return []
    total = record["measured"]["counts"]["thread_instructions"]
    return [
        {"numbers": numbers, "head": rows[0], "rows": rows[1:]}
        for numbers, rows in explanation_tables(
            explained, record["kernel"]["path"].rpartition("/")[2], total, limit=10
        )
    ]


def _shape(parts: Iterable[int]) -> str:
    return " × ".join(str(part) for part in parts)


def _row(row: Row) -> dict[str, object]:
    return {
        "label": metric_label(row),
        "old": number(row["old"], row["unit"]),
        "new": number(row["new"], row["unit"]),
        "change": change(row["old"], row["new"]),
        "allowed": row["allowed"],
        "verdict": row["verdict"],
        "symbol": SYMBOLS[row["verdict"]],
        "word": WORDS[row["verdict"]],
        "note": row["note"],
        "where": row.get("where", ""),
        "fails": row["fails"],
    }


def _structure(record: Case) -> list[str]:
    if record["stored"] is None or record["stored"] == record["measured"]:
        return []
    return structural_differences(record["stored"], record["measured"])


def _marks(record: Case) -> dict[str, list[str]]:
    """Findings, notes and explanations by the ``file:line`` that they name, of PTX or source."""
    explanation = record["detail"].get("explanation")
    path = record["kernel"]["path"]
    marked = marks(explanation, record["kernel"]["path"]) if explanation is not None else {}
    for access in record["detail"].get("accesses", ()):
        if said := remark(access):
            marked.setdefault(f"{path}:{access['line']}", []).append(said)
    for group in finding_groups(record["detail"]["findings"]):
        finding = group.first
        times = f" ({1 + len(group.more)} times)" if group.more else ""
        marked.setdefault(f"{finding['path']}:{finding['line']}", []).append(finding["rule"] + times)
    for note in record["detail"]["notes"]:
        named = _PLACE.match(note)
        if named:
            marked.setdefault(named[1], []).append(note[named.end() :].strip())
    return marked


def _listing(record: Case, listing: ListingRow | None, limit: int) -> dict[str, Any]:
    """The PTX with counts per line; ``heat`` is 0 to 9, by share of the hottest line."""
    if listing is None:
        return {"path": record["kernel"]["path"], "lines": [], "left_out": 0}
    counts = {row[0]: row for row in record["detail"]["lines"]}
    sources = record["detail"]["sources"]
    most = max((row[1] for row in counts.values()), default=0) or 1
    accesses = {row["line"]: row for row in record["detail"].get("accesses", ())}
    previous, lines = "", []
    marked = _marks(record)
    for line, text in listing["lines"][: max(0, limit)]:
        row = counts.get(line, [line, 0, 0, 0, 0, 0])
        source = sources.get(str(line), "")
        lines.append(
            {
                "number": line,
                "text": text,
                "threads": f"{row[1]:,}" if row[1] else "",
                "warps": f"{row[2]:,}" if row[2] else "",
                "sectors": f"{row[3]:,}" if row[3] else "",
                "conflicts": f"{row[4]:,}" if row[4] else "",
                "per_request": per_request(accesses[line]) if line in accesses else "",
                "divergent": f"{row[5]:,}" if row[5] else "",
                "source": source,
                "original": listing["source"].get(source, "").strip() if source != previous else "",
                "marks": [*marked.get(f"{listing['path']}:{line}", []), *marked.get(source, [])],
                "heat": min(9, 10 * row[1] // (most + 1)),
            }
        )
        previous = source
    return {"path": listing["path"], "lines": lines, "left_out": len(listing["lines"]) - len(lines)}
