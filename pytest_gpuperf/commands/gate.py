"""``gpuperf report``, ``check``, ``compare`` and ``accept``: the gate outside pytest."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ..config.declared import CaseSettings
from ..core.mangling import stable_id
from ..core.metric import Table
from ..core.metrics import ANALYSIS, TABLE, UNSAID
from ..core.numbers import counted
from ..core.records import BaselineRow, Case, Document, Entry, ListingRow
from ..core.verdict import SESSION_VERDICTS, worst
from ..judge.judgement import judgement
from ..judge.listing import Listing
from ..judge.machine_lines import moved_machine_lines
from ..report.files import write_views
from ..report.message import failure_text, other_opcodes, unjudged
from ..report.validate import ReportError, load_report
from ..store.baseline import Baseline, BaselineError, baseline_path, write_if_changed
from ..store.files import digest_of, read_files, read_module, render_files
from ..store.update import is_baseline
from .common import FAILED, NOT_JUDGED, OK, Subcommands, UsageError, write

__all__ = ["add_parser"]

_FIRST_ANALYSIS = {"counts": 1, "findings": 1, "time": 3, "metrics": 1}
"""Revisions of reports without revisions."""


def add_parser(commands: Subcommands) -> None:
    """Registers the subcommands."""
    report = commands.add_parser(
        "report",
        help="render gpuperf.json again; several are merged into one report",
        epilog="example: gpuperf report shard-*/gpuperf.json -o build/gpuperf",
    )
    report.add_argument("reports", metavar="REPORT.json", nargs="+")
    report.add_argument("-o", "--output", metavar="DIR", required=True, help="write the report there")
    report.set_defaults(run=_report)
    check = commands.add_parser(
        "check",
        help="gate a report, as its run did or against the baselines in a folder",
        epilog="example: gpuperf check build/gpuperf/gpuperf.json --baselines baselines",
    )
    check.add_argument("report", metavar="REPORT.json")
    check.add_argument(
        "--baselines", metavar="DIR", help="judge against these baselines instead of those of the run"
    )
    check.add_argument("-o", "--output", metavar="DIR", help="write the judged report to this folder")
    check.set_defaults(run=_check)
    compare = commands.add_parser(
        "compare",
        help="gate one report against another, without baselines",
        epilog="example: gpuperf compare main/gpuperf.json build/gpuperf/gpuperf.json -o build/difference",
    )
    compare.add_argument("base", metavar="BASE.json")
    compare.add_argument("head", metavar="HEAD.json")
    compare.add_argument("-o", "--output", metavar="DIR", help="write the judged report to this folder")
    compare.set_defaults(run=_compare)
    accept = commands.add_parser(
        "accept",
        help="accept the baselines that a run proposes",
        epilog="example: gpuperf accept downloaded-artefact -k test_saxpy",
    )
    accept.add_argument(
        "directory", metavar="DIR", help="a report's folder, with gpuperf.json and candidates/"
    )
    accept.add_argument("-k", metavar="TEXT", default="", help="only cases whose id contains this")
    accept.add_argument(
        "--baselines", metavar="DIR", default="baselines", help="folder of the baselines (default: baselines)"
    )
    accept.set_defaults(run=_accept)


def _report(arguments: argparse.Namespace) -> int:
    documents = [load_report(path) for path in arguments.reports]
    files = write_views(Path(arguments.output), _merged(documents))
    write(f"{files['html']}\n", None)
    return OK


def _merged(documents: list[Document]) -> Document:
    """Merge the shards of one run into one report. Raises ``ReportError`` if two have different results of one case."""
    if len(documents) == 1:
        return documents[0]
    cases: dict[tuple[str, str], Case] = {}
    for document in documents:
        for record in document["cases"]:
            known = cases.setdefault((record["module"], record["id"]), record)
            if known != record:
                raise ReportError(
                    f"two reports hold different results of {record['nodeid']} ({record['id']})"
                )
    listings = {listing["id"]: listing for d in documents for listing in d["listings"]}
    merged: Document = {
        "schema_version": 1,
        "verdict": worst((d["verdict"] for d in documents), SESSION_VERDICTS),
        "passed": all(d["passed"] for d in documents),
        "counts": dict(sorted(Counter(record["verdict"] for record in cases.values()).items())),
        "cases": [cases[key] for key in sorted(cases)],
        "not_judged": [item for d in documents for item in d["not_judged"]],
        "stale": [item for d in documents for item in d["stale"]],
        "staleness_not_judged": [item for d in documents for item in d["staleness_not_judged"]],
        "problems": [item for d in documents for item in d["problems"]],
        "baselines": [item for d in documents for item in d["baselines"]],
        "notes": [*dict.fromkeys(note for d in documents for note in d.get("notes", ()))],
        "listings": [listings[key] for key in sorted(listings)],
    }
    plugins = {plugin["name"]: plugin for d in documents for plugin in d.get("plugins", ())}
    if plugins:
        merged["plugins"] = [plugins[name] for name in sorted(plugins)]
    return merged


def _rejudged(
    record: Case,
    stored: Entry | None,
    stored_analysis: Mapping[str, int],
    listing: ListingRow | None,
    metrics: Table,
    policy: Mapping[str, str] | None = None,
) -> Case:
    """Judge the record against another reference, with the tolerances and limits of its own run."""
    rules = record["policy"]
    case = CaseSettings(
        targets=tuple(rules["targets"]),
        skipped_targets=tuple(record["skipped_targets"]),
        limits=rules["limits"],
        tolerances=tuple(tuple((name, tol) for name, tol in source) for source in rules["tolerances"]),
    )
    return {
        **record,
        **judgement(
            record["measured"],
            stored,
            stored_analysis=stored_analysis,
            analysis=_analysis(record),
            failures={target: (verdict, message) for target, (verdict, message) in rules["failures"].items()},
            policy=policy
            or {
                "on_improvement": rules["on_improvement"],
                "on_unmodelled": rules["on_unmodelled"],
                "judge": rules.get("judge", "auto"),
                "time_model": rules.get("time_model", "auto"),
            },
            case=case,
            unexplained=False,
            detail=record["detail"],
            listing=Listing.of_report(record["kernel"]["path"], listing),
            metrics=metrics,
        ),
    }


def _analysis(record: Case) -> Mapping[str, int]:
    """Return the revisions under which a record was measured."""
    revisions: Mapping[str, int] = record.get("analysis", _FIRST_ANALYSIS)
    return {**UNSAID, **revisions}


def _metrics(document: Document) -> Table:
    return TABLE.with_plugins(document.get("plugins", ()))


def _listings(document: Document) -> dict[str, ListingRow]:
    return {listing["id"]: listing for listing in document["listings"]}


def _check(arguments: argparse.Namespace) -> int:
    document = load_report(arguments.report)
    if arguments.baselines is not None:
        listings, baselines, metrics = _listings(document), {}, _metrics(document)
        for module in sorted({record["module"] for record in document["cases"]}):
            path = baseline_path(Path(arguments.baselines), module)
            _inside(path, Path(arguments.baselines))
            try:
                files = _files(Path(arguments.baselines), module)
                baselines[module] = read_module(files, module, arguments.baselines) or Baseline()
            except BaselineError as error:
                raise ReportError(str(error)) from None
        records = []
        for record in document["cases"]:
            baseline = baselines[record["module"]]
            stored = baseline.cases.get(stable_id(record["id"]))
            analysis = baseline.analysis_of(stable_id(record["id"])) if stored is not None else ANALYSIS
            listing = listings.get(record["detail"]["listing"])
            records.append(_rejudged(record, stored, analysis, listing, metrics))
        notes = [note for baseline in baselines.values() for note in baseline.notes]
        document = {**_with_records(document, records), "notes": [*notes, *document.get("notes", ())]}
        write("".join(f"note: {note}\n" for note in notes), None)
    return _concluded(document, arguments.output)


def _compare(arguments: argparse.Namespace) -> int:
    base, head = load_report(arguments.base), load_report(arguments.head)
    before = {(record["module"], stable_id(record["id"])): record for record in base["cases"]}
    listings, records, metrics = _listings(head), [], _metrics(head)
    old_listings = _listings(base)
    # there is no baseline to update or extend: only regressions fail
    policy = {"on_improvement": "warn", "on_unmodelled": "fail", "judge": "auto"}
    for record in head["cases"]:
        known = before.get((record["module"], stable_id(record["id"])))
        stored, analysis = (known["measured"], _analysis(known)) if known is not None else (None, ANALYSIS)
        listing = listings.get(record["detail"]["listing"])
        rejudged = _rejudged(record, stored, analysis, listing, metrics, policy)
        if known is not None:
            old_listing = old_listings.get(known["detail"]["listing"])
            rejudged["because"] += moved_machine_lines(record, known, listing, old_listing)
        if stored is None:
            rejudged["rows"] = [
                {**row, "fails": row["fails"] and row["verdict"] != "new"} for row in rejudged["rows"]
            ]
            rejudged["fails"] = any(row["fails"] for row in rejudged["rows"])
        records.append(rejudged)
    removed = sorted(set(before) - {(record["module"], stable_id(record["id"])) for record in head["cases"]})
    document = _with_records({**head, "stale": [], "staleness_not_judged": []}, records)
    code = _concluded(document, arguments.output)
    if removed:
        write("".join(f"no longer there: {module}: {key}\n" for module, key in removed), None)
    return code


def _with_records(document: Document, records: list[Case]) -> Document:
    failed = any(test["outcome"] == "failed" for test in document["not_judged"])
    verdicts = [record["verdict"] for record in records]
    if failed or document["problems"]:
        verdicts.append("error")
    return {
        **document,
        "verdict": worst(verdicts, SESSION_VERDICTS) if records else "nothing-analysed",
        "passed": not failed and not document["problems"] and not any(record["fails"] for record in records),
        "counts": dict(sorted(Counter(record["verdict"] for record in records).items())),
        "cases": records,
    }


def _concluded(document: Document, output: str | None) -> int:
    """Print the failures and the number of kernels by verdict; return the exit code."""
    failing = [record for record in document["cases"] if record["fails"]]
    for record in failing:
        write(failure_text([record]) + "\n\n", None)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in document["counts"].items())
    write(
        f"{document['verdict']}: {counted(len(document['cases']), 'kernel')}{': ' + counts if counts else ''}\n",
        None,
    )
    for line in other_opcodes(document["cases"]):
        write(f"{line}\n", None)
    if sentence := unjudged(document["cases"]):
        write(f"{sentence}\n", None)
    for entry in document["stale"]:
        write(f"stale: {entry}\n", None)
    for problem in document["problems"]:
        write(f"{problem}\n", None)
    if output is not None:
        write_views(Path(output), document)
    if document["verdict"] == "nothing-analysed" and not document["passed"]:
        return NOT_JUDGED
    return OK if document["passed"] else FAILED


def _inside(path: Path, directory: Path) -> None:
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ReportError(f"{path} is outside {directory}: nothing there is read or written")


def _accept(arguments: argparse.Namespace) -> int:
    source, directory = Path(arguments.directory), Path(arguments.baselines)
    document = load_report(source / "gpuperf.json")
    candidates = source / "candidates"
    proposes = any(entry["changed"] or entry["added"] for entry in document["baselines"])
    if proposes and not candidates.is_dir():
        raise UsageError(f"{candidates} does not exist: give the folder of --gpuperf-report")
    bases = {entry["module"]: entry for entry in document["baselines"]}
    taken = []
    for module, entry in sorted(bases.items()):
        for folder in (candidates, directory):
            _inside(baseline_path(folder, module), folder)
        proposed = _files(candidates, module)
        for name in proposed:
            _inside(candidates / name, candidates)
            _inside(directory / name, directory)
            if not is_baseline(candidates / name):
                raise ReportError(f"{candidates / name} is not a baseline")
        taken += _taken(proposed, directory, module, entry, arguments.k)
    removed = [path for path, data in taken if data is None]
    try:
        written = [
            path for path, data in taken if data is not None and write_if_changed(path, data, directory)
        ]
        for path in removed:
            path.unlink()
    except OSError as error:
        raise ReportError(f"{error.filename}: not written: {error.strerror or error}") from None
    lines = [*(f"wrote {path}\n" for path in written), *(f"removed {path}\n" for path in removed)]
    write("".join(lines) or "nothing to accept\n", None)
    return OK


def _files(directory: Path, module: str) -> dict[str, bytes]:
    try:
        return read_files(directory, module, directory)
    except OSError as error:
        raise ReportError(f"{error.filename}: {error.strerror or error}") from None


def _taken(
    files: Mapping[str, bytes], directory: Path, module: str, entry: BaselineRow, wanted: str
) -> list[tuple[Path, bytes | None]]:
    """Return the files of the module with the selected candidates; ``None`` for files to remove."""
    touched = [*entry["changed"], *entry["added"], *entry["pruned"]]
    chosen = [key for key in touched if wanted in key]
    if not chosen or (not files and {*chosen} - {*entry["pruned"]}):
        return []
    current = _files(directory, module)
    stale = digest_of(current) != entry["base"]
    try:
        proposed = read_module(files, module, "candidates") or Baseline()
        merged = read_module(current, module, str(directory)) or Baseline()
    except BaselineError as error:
        raise ReportError(str(error)) from None
    for key in chosen:
        if key in proposed.cases:
            merged.cases[key] = {**proposed.cases[key], "analysis": dict(proposed.analysis_of(key))}
        else:
            merged.cases.pop(key, None)
    layout = "module" if baseline_path(Path(), module).as_posix() in (files or current) else "case"
    after = render_files(merged, module, layout)
    if stale and after != current:
        raise ReportError(
            f"{baseline_path(directory, module)} is not what the run saw: its proposal would undo other changes",
            hint="run the tests on this state and accept that report",
        )
    return [
        *((directory / name, data) for name, data in after.items()),
        *((directory / name, None) for name in sorted(current.keys() - after.keys())),
    ]
