"""Annotations and job summary of GitHub Actions.

GitHub shows ten annotations of a level per step and drops the rest silently, so ours say how many are left out. All text
is escaped: PTX and test ids never form a workflow command.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from ..core.escaping import one_line
from ..core.records import Case, Document
from ..core.verdict import CASE_VERDICTS, WORDS
from .message import accepting, headline
from .repository import Repository

__all__ = ["active", "workflow_commands", "write_summary"]

_LIMIT = 10


def active(mode: str) -> bool:
    """Whether to speak to GitHub: ``on``, or ``auto`` inside an action."""
    return mode == "on" or (mode == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def workflow_commands(records: Sequence[Case], *, level: str, repository: Repository) -> Iterator[str]:
    """Workflow commands for the failing cases, worst first; ``level`` is ``error`` or ``notice``."""
    failing = sorted(
        (record for record in records if record["fails"]),
        key=lambda r: (CASE_VERDICTS.index(r["verdict"]), r["module"], r["id"]),
    )
    shown = failing[:_LIMIT]
    there = repository.holds(path for record in shown for path, _ in _places(record)) if shown else set()
    changed = repository.changed() if shown else set()
    for record in shown:
        path, line = _place(record, there, changed)
        properties = {
            "file": repository.path(path),
            "line": str(line),
            "title": f"gpuperf: {WORDS[record['verdict']]}",
        }
        text = f"{headline([record])} (accept: {accepting(record)})"
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        yield f"::{level} {listed}::{_data(one_line(text, 1000))}"
    if len(failing) > _LIMIT:
        yield f"::notice title=gpuperf::{len(failing) - _LIMIT} more kernels are in the job summary"


def _places(record: Case) -> list[tuple[str, int]]:
    """The lines of the source that grew, and that of the PTX."""
    places = [(position["path"], position["line"]) for position in record["look_at"]]
    path = record["kernel"]["path"]
    return [*places, (path, record["line"])] if record["line"] and not path.startswith("<") else places


def _place(record: Case, there: Collection[str], changed: Collection[str]) -> tuple[str, int]:
    """Return the line to annotate: one that grew in a file of the pull request, else one in a source file of the repository, else the
    launch in the test. Unchanged PTX is not annotated, as people do not read it."""
    places = [position for position in _places(record) if position[0] in there]
    sources = [position for position in places if position[0] != record["kernel"]["path"]]
    touched = (position for position in places if position[0] in changed)
    call = (record["call"]["path"], record["call"]["line"])
    return next(touched, sources[0] if sources else call)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text, 500)).replace(":", "%3A").replace(",", "%2C")


def write_summary(document: Document) -> None:
    """Appends the Markdown report to the job summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        from .render import render_markdown
        from .view import build_view

        with open(path, "a", encoding="utf-8") as stream:
            stream.write(render_markdown(build_view(document)))
