"""What the terminal shows at the end of a run. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..options import Settings
from ..textsafe import clean, one_line
from ..update import FilePlan
from ..verdict import SYMBOLS, WORDS
from .document import Run
from .message import headline

__all__ = ["summarise"]

_SHOWN = 10


def summarise(
    reporter: Any, run: Run, written: Sequence[FilePlan], files: Mapping[str, str], settings: Settings
) -> None:
    """Writes the section "gpuperf": counts, what moved, unused entries, what was written, where the report is."""
    lines = list(_lines(run, written, files, settings))
    reporter.section("gpuperf", sep="=")
    for line, markup in lines:
        reporter.write_line(clean(line), **markup)


def _lines(
    run: Run, written: Sequence[FilePlan], files: Mapping[str, str], settings: Settings
) -> list[tuple[str, dict[str, bool]]]:
    plain: dict[str, bool] = {}
    red, yellow, green = {"red": True}, {"yellow": True}, {"green": True}
    updating = settings.update or settings.update_new
    lines: list[tuple[str, dict[str, bool]]] = []
    counts = ", ".join(f"{number} {WORDS[verdict]}" for verdict, number in run.counts().items())
    kernels = f"{len(run.records)} kernel{'' if len(run.records) == 1 else 's'} analysed"
    lines.append((f"{kernels}: {counts}" if counts else kernels, green if run.passed else red))
    if run.too_few:
        wanted = f"at least {run.min_cases} expected (--gpuperf-min-cases=0 allows none)"
        lines.append(
            (
                f"{SYMBOLS['nothing-analysed']} nothing-analysed: {len(run.records)} kernels were analysed, {wanted}",
                red,
            )
        )
    moved = [record for record in run.records if record["verdict"] not in ("ok", "new")]
    if moved and not updating:
        lines.append(
            (
                f"{SYMBOLS[moved[0]['verdict']]} {headline(_worst_first(moved))}",
                red if not run.passed else yellow,
            )
        )
    if updating:
        lines += [(line, plain) for record in moved for line in _accepted(record)][: 4 * _SHOWN]
    quiet = [
        record
        for record in run.records
        if record["verdict"] in ("changed", "improved") and not record["fails"]
    ]
    if quiet and not updating:
        names = ", ".join(one_line(record["id"], 60) for record in quiet[:_SHOWN])
        lines.append((f"not failing, but not as stored: {names}", yellow))
    notes = dict.fromkeys(f"{r['id']}: {note}" for r in run.records for note in r["detail"]["notes"])
    lines += [
        (f"note: {one_line(note)}", yellow) for note in [*notes][: None if settings.details else _SHOWN]
    ]
    lines += _stale(run, settings, red, yellow)
    for module in run.staleness_not_judged():
        lines.append((f"unused entries of {module['module']} not judged: {module['reason']}", plain))
    for problem in run.problems:
        lines += [(line, red) for line in problem.splitlines()]
    if updating:
        lines += _writes(written, run)
    if settings.details:
        lines += [
            (f"  {SYMBOLS[record['verdict']]} {record['module']}: {record['id']}: {record['verdict']}", plain)
            for record in run.records
        ]
    lines += [(line, plain) for line in _not_judged(run, settings)]
    if files:
        lines.append((f"report: {files.get('html') or next(iter(files.values()))}", plain))
    return lines


def _not_judged(run: Run, settings: Settings) -> list[str]:
    tests = [test for test in run.not_judged() if test["outcome"] == "failed" or settings.details]
    shown = tests if settings.details else tests[:_SHOWN]
    lines = [
        f"not judged: {one_line(test['nodeid'])} ({test['outcome']}: {one_line(test['reason'], 120)})"
        for test in shown
    ]
    more = len(tests) - len(shown)
    return [*lines, f"… and {more} more tests (--gpuperf-details lists all)"] if more else lines


def _worst_first(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    from ..verdict import CASE_VERDICTS

    return sorted(records, key=lambda record: CASE_VERDICTS.index(record["verdict"]))


def _accepted(record: Mapping[str, Any]) -> list[str]:
    return [f"accepted {SYMBOLS[record['verdict']]} {one_line(record['id'])}: {headline([record])}"]


def _stale(
    run: Run, settings: Settings, red: dict[str, bool], yellow: dict[str, bool]
) -> list[tuple[str, dict[str, bool]]]:
    if not run.stale or (settings.stale == "ignore" and not settings.details):
        return []
    if run.pruned:
        return [
            (f"removed {len(run.stale)} unused baseline entries", {}),
            *[(f"  − {one_line(e)}", {}) for e in run.stale[:_SHOWN]],
        ]
    style = red if settings.stale == "fail" else yellow
    shown = run.stale if settings.details else run.stale[:_SHOWN]
    lines = [
        (f"{SYMBOLS['stale']} stale: {len(run.stale)} baseline entries that no test makes any more", style)
    ]
    lines += [(f"  − {one_line(entry)}", style) for entry in shown]
    if len(shown) < len(run.stale):
        lines.append((f"  … {len(run.stale) - len(shown)} more (--gpuperf-details lists all)", style))
    lines += [(f"  {hint}", style) for hint in _renames(run)]
    lines.append(("  remove them: pytest --gpuperf --gpuperf-update", style))
    return lines


def _renames(run: Run) -> list[str]:
    """New cases whose kernel is that of an unused entry of the same module: most likely the test was renamed."""
    from ..baseline import BaselineError, parse_baseline

    hints = []
    for plan in run.plans:
        new = {
            r["measured"]["kernel"]: r["id"]
            for r in run.records
            if r["module"] == plan.module and r["stored"] is None
        }
        try:
            stored = parse_baseline(plan.before or b"", plan.module, plan.shown)
        except BaselineError:
            continue
        for key in plan.stale if stored is not None else []:
            kernel = stored.cases[key].get("kernel") if stored is not None and key in stored.cases else None
            if kernel in new:
                hints.append(f"renamed? {one_line(key)} → {one_line(new[kernel])} (same PTX)")
    return hints


def _writes(written: Sequence[FilePlan], run: Run) -> list[tuple[str, dict[str, bool]]]:
    if not written:
        return [("baselines: nothing to write", {})]
    lines: list[tuple[str, dict[str, bool]]] = []
    for plan in written:
        parts = [
            f"{len(getattr(plan, what))} {what}"
            for what in ("changed", "added", "pruned")
            if getattr(plan, what)
        ]
        deed = "removed" if plan.after is None else "wrote"
        lines.append((f"{deed} {plan.shown}: {', '.join(parts) or 'representation only'}", {"green": True}))
    return lines
