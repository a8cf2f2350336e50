"""The terminal summary at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..config.settings import Settings
from ..core.escaping import clean, one_line
from ..core.records import Case
from ..core.verdict import CASE_VERDICTS, SYMBOLS, WORDS
from ..store.update import FilePlan
from .document import Run
from .message import headline, other_opcodes, same_code, unjudged, updating

if TYPE_CHECKING:
    import pytest

__all__ = ["summarise"]

_SHOWN = 10
_Line: TypeAlias = tuple[str, str]  # colour (or none) and text


def summarise(
    reporter: pytest.TerminalReporter,
    run: Run,
    written: Sequence[FilePlan],
    files: Mapping[str, str],
    settings: Settings,
) -> None:
    """Writes the section "gpuperf": counts, what moved, unused entries, what was written, where the report is."""
    updating = settings.update or settings.update_new
    reporter.section("gpuperf", sep="=")
    for colour, line in [
        *_counts(run),
        *(_accepted(run) if settings.update else _moved(run, added=settings.update_new)),
        *_notes(run, settings),
        *([] if settings.update else _unjudged(run)),
        *_stale(run, settings),
        *_unsettled(run, settings),
        *(_writes(run, written) if updating else []),
        *(_details(run) if settings.details else []),
    ]:
        reporter.write_line(clean(line), **({colour: True} if colour else {}))
    if files:
        reporter.write_line(clean(f"report: {_from_here(files['html'])}"))


def _from_here(path: str) -> str:
    """A path below the current folder, as one types it; another one as it is."""
    try:
        return Path(path).relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        return path


def _counts(run: Run) -> Iterator[_Line]:
    counts = ", ".join(f"{number} {WORDS[verdict]}" for verdict, number in run.counts().items())
    kernels = f"{len(run.records)} kernel{'' if len(run.records) == 1 else 's'} analysed"
    yield "green" if run.passed else "red", f"{kernels}: {counts}" if counts else kernels
    if run.too_few:
        wanted = f"at least {run.min_cases} expected (--gpuperf-min-cases=0 allows none)"
        yield (
            "red",
            f"{SYMBOLS['nothing-analysed']} nothing-analysed: {len(run.records)} kernels were analysed, {wanted}",
        )


def _moved(run: Run, *, added: bool) -> Iterator[_Line]:
    """Yield the lines of a run without update; ``added``: new cases are stored already and are not listed."""
    failing = sorted(
        (record for record in run.records if record["fails"] and not (added and record["verdict"] == "new")),
        key=lambda record: CASE_VERDICTS.index(record["verdict"]),
    )
    if failing:
        yield "red", f"{SYMBOLS[failing[0]['verdict']]} {headline(failing)}"
    new = sum(record["verdict"] == "new" for record in failing)
    if new:
        yield (
            "red",
            f"{new} without a baseline; store what they do now: {updating(failing, '--gpuperf-update-new')}",
        )
    quiet = [record for record in run.records if not record["fails"] and not _silent(record)]
    if quiet:
        names = ", ".join(one_line(record["id"], 60) + same_code(record) for record in quiet[:_SHOWN])
        more = f" and {len(quiet) - _SHOWN} more" if len(quiet) > _SHOWN else ""
        yield "yellow", f"moved without failing: {names}{more}"
        yield from (("yellow", f"  {line}") for line in other_opcodes(quiet))


def _silent(record: Case) -> bool:
    unwanted = record["verdict"] == "improved" and record["policy"]["on_improvement"] == "ignore"
    return bool(record["verdict"] == "ok" or unwanted)


def _accepted(run: Run) -> Iterator[_Line]:
    refused = {plan.module for plan in run.plans if plan.problem}
    taken = [
        test for module, test in run.outcomes.tests() if module not in refused and test.outcome == "passed"
    ]
    moved = [record for test in taken for record in test.records if record["verdict"] not in ("ok", "new")]
    for record in moved[: 4 * _SHOWN]:
        yield "", f"accepted {SYMBOLS[record['verdict']]} {one_line(record['id'])}: {headline([record])}"
    if len(moved) > 4 * _SHOWN:
        yield "", f"… and {len(moved) - 4 * _SHOWN} more"


def _notes(run: Run, settings: Settings) -> Iterator[_Line]:
    cases: dict[str, list[str]] = {}
    for record in run.records:
        for note in dict.fromkeys(record["detail"]["notes"]):
            cases.setdefault(note, []).append(record["id"])
    # what holds for many cases, such as a version that is too new, is printed once
    merged = (
        f"{ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''}: {note}" for note, ids in cases.items()
    )
    notes = [*run.notes(), *merged]
    shown = notes if settings.details else notes[:_SHOWN]
    yield from (("yellow", f"note: {one_line(note)}") for note in shown)
    if len(shown) < len(notes):
        yield "yellow", f"… and {len(notes) - len(shown)} more notes (--gpuperf-details lists all)"


def _unjudged(run: Run) -> Iterator[_Line]:
    sentence = unjudged(run.records)
    if sentence:
        yield "yellow", sentence


def _unsettled(run: Run, settings: Settings) -> Iterator[_Line]:
    for module in run.staleness_not_judged():
        yield "", f"unused entries of {module['module']} not judged: {module['reason']}"
    for problem in run.problems:
        yield from (("red", line) for line in problem.splitlines())
    tests = [test for test in run.not_judged() if test["outcome"] == "failed" or settings.details]
    shown = tests if settings.details else tests[:_SHOWN]
    for test in shown:
        yield (
            "",
            f"not judged: {one_line(test['nodeid'])} ({test['outcome']}: {one_line(test['reason'], 120)})",
        )
    if len(shown) < len(tests):
        yield "", f"… and {len(tests) - len(shown)} more tests (--gpuperf-details lists all)"


def _details(run: Run) -> Iterator[_Line]:
    for record in run.records:
        verdict = record["verdict"]
        yield "", f"  {SYMBOLS[verdict]} {record['module']}: {one_line(record['id'])}: {verdict}"


def _stale(run: Run, settings: Settings) -> Iterator[_Line]:
    if not run.stale or (settings.stale == "ignore" and not settings.details):
        return
    shown = run.stale if settings.details else run.stale[:_SHOWN]
    style = "" if run.pruned else "red" if settings.stale == "fail" else "yellow"
    if run.pruned:
        yield "", f"removed {len(run.stale)} unused baseline entries"
    else:
        yield (
            style,
            f"{SYMBOLS['stale']} stale: {len(run.stale)} baseline entries without a test",
        )
    yield from ((style, f"  {SYMBOLS['stale']} {one_line(entry)}") for entry in shown)
    if len(shown) < len(run.stale):
        yield style, f"  … {len(run.stale) - len(shown)} more (--gpuperf-details lists all)"
    if not run.pruned:
        yield from ((style, f"  {hint}") for hint in _renames(run))
        yield style, f"  remove them: {updating(run.records)}"


def _renames(run: Run) -> list[str]:
    """New cases whose kernel is that of an unused entry of the same module: most likely the test was renamed."""
    hints = []
    for plan in run.plans:
        new = {
            r["measured"]["kernel"]: r["id"]
            for r in run.records
            if r["module"] == plan.module and r["stored"] is None
        }
        for key in plan.stale:
            kernel = plan.kernels.get(key)
            if kernel in new:
                hints.append(f"renamed? {one_line(key)} → {one_line(new[kernel])} (same PTX)")
    return hints


def _writes(run: Run, written: Sequence[FilePlan]) -> Iterator[_Line]:
    failed = any(plan.problem for plan in run.plans)
    if not written and not failed and not (run.pruned and run.stale):
        yield "", "baselines: nothing to write"
    for plan in written:
        parts = [
            f"{len(getattr(plan, what))} {what}"
            for what in ("changed", "added", "pruned")
            if getattr(plan, what)
        ]
        deed = "wrote" if plan.after else "removed"
        yield "green", f"{deed} {plan.shown}: {', '.join(parts) or 'representation only'}"
