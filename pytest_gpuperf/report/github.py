"""Annotations and job summary of GitHub Actions. PYTEST_DONT_REWRITE

GitHub shows ten annotations of a level per step and drops the rest silently, so ours say how many are left out. All text
is escaped: PTX and test ids never form a workflow command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..textsafe import one_line
from ..verdict import CASE_VERDICTS, WORDS
from .message import headline, update_command

__all__ = ["active", "workflow_commands", "write_summary"]

_LIMIT = 10


def active(mode: str) -> bool:
    """Whether to speak to GitHub: ``on``, or ``auto`` inside an action."""
    return mode == "on" or (mode == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")


def workflow_commands(records: Sequence[Mapping[str, Any]], *, level: str) -> Iterator[str]:
    """Workflow commands for the failing cases, worst first; ``level`` is ``error`` or ``notice``."""
    failing = sorted(
        (record for record in records if record["fails"]),
        key=lambda r: (CASE_VERDICTS.index(r["verdict"]), r["module"], r["id"]),
    )
    for record in failing[:_LIMIT]:
        path, line = _place(record)
        properties = {"file": path, "line": str(line), "title": f"gpuperf: {WORDS[record['verdict']]}"}
        text = f"{headline([record])} (accept: {update_command(record['nodeid'])})"
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        yield f"::{level} {listed}::{_data(one_line(text, 1000))}"
    if len(failing) > _LIMIT:
        yield f"::notice title=gpuperf::{len(failing) - _LIMIT} more kernels are in the job summary"


def _place(record: Mapping[str, Any]) -> tuple[str, int]:
    """The line of PTX to look at if the PTX is a file, else the launch."""
    path = record["kernel"]["path"]
    if path.startswith("<") or not record["line"]:
        return record["call"]["path"], record["call"]["line"]
    return path, record["line"]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text, 500)).replace(":", "%3A").replace(",", "%2C")


def write_summary(document: Mapping[str, Any]) -> None:
    """Appends the Markdown report to the job summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        from ..render import render_markdown

        with open(path, "a", encoding="utf-8") as stream:
            stream.write(render_markdown(document))
