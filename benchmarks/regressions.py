"""The page of what the gate catches, from the table that ``tests/regressions`` holds it to."""

from __future__ import annotations

from collections.abc import Iterable

from tests.regressions.changes import CHANGES, NO_OPS, Change
from tests.regressions.rewrites import REWRITES

__all__ = ["render"]

_HEAD = """\
# What the gate catches

{count} edits of the [examples](../examples/README.md), each of a kind that can pass code review. The counts alone catch {red} of them,
without a declared GPU, with the metric and the source line below. {timed} shows only in the predicted time, and
{unseen} are not reported as worse; the last table gives the reasons. {green} edits that change nothing pass: {sources} of the
CUDA source and {texts} of the PTX (registers, labels, comments, line numbers). `tests/regressions` runs all of them.

"""


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


def _caught(changes: Iterable[Change]) -> list[str]:
    rows = ["| edit | example | worse | named with it |", "|---|---|---|---|"]
    for change in changes:
        for place, (metric, line) in enumerate(change.worse.items()):
            first = (change.name.replace("-", " "), f"`{change.source}`") if place == 0 else ("", "")
            code = f"`{_cell(line)}`" if line else ""
            rows.append(f"| {first[0]} | {first[1]} | `{metric}` | {code} |")
    return rows


def render() -> str:
    """Markdown."""
    caught = [change for change in CHANGES if change.worse]
    timed = [change for change in CHANGES if change.only_time]
    missed = [change for change in CHANGES if change.unseen]
    head = _HEAD.format(
        count=len(CHANGES),
        red=len(caught),
        timed=len(timed),
        unseen=len(missed),
        green=len(NO_OPS) + len(REWRITES),
        sources=len(NO_OPS),
        texts=len(REWRITES),
    )
    lines = [
        *_caught(caught),
        "",
        "## Not seen in the counts",
        "",
        "| edit | example | verdict | why |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {change.name.replace('-', ' ')} | `{change.source}` | `time_us` regressed | {_cell(change.only_time)} |"
        for change in timed
    ]
    lines += [
        f"| {change.name.replace('-', ' ')} | `{change.source}` | `{change.verdict}` | {_cell(change.unseen)} |"
        for change in missed
    ]
    return head + "\n".join(lines) + "\n"
