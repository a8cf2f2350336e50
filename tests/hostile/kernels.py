"""Bodies around what a hostile kernel does, and what every refusal must look like."""

from __future__ import annotations

from tests.hostile.sandbox import Job, Outcome, Sandbox
from tests.support import head

HEAD = head("8.0", "sm_90")
REGISTERS = """
    .reg .pred %p<10>;
    .reg .b16 %h<10>;
    .reg .b32 %r<20>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<10>;
"""


def module(body: str, parameters: str = "", before: str = "") -> str:
    """A module with the entry ``k``."""
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{{{REGISTERS}{body}\n}}\n"


def line_of(text: str, part: str) -> int:
    """The number of the line of the text that holds ``part``."""
    (found,) = [number for number, line in enumerate(text.split("\n"), 1) if part in line]
    return found


def refusal(sandbox: Sandbox, job: Job, kind: str, *parts: str, seconds: float = 20.0) -> str:
    """The message of an error of the class ``kind`` that holds all ``parts``, in one to five lines."""
    outcome = sandbox.run(job, seconds)
    assert outcome.kind == "error", f"{outcome.kind}: {outcome.text}"
    assert outcome.type == kind, outcome.text
    assert 1 <= len(outcome.text.splitlines()) <= 5, outcome.text
    assert max(map(len, outcome.text.splitlines())) <= 400, outcome.text
    for part in parts:
        assert part in outcome.text, outcome.text
    return outcome.text


def success(sandbox: Sandbox, job: Job, seconds: float = 20.0) -> Outcome:
    """The outcome of a job that must run."""
    outcome = sandbox.run(job, seconds)
    assert outcome.kind == "ok", f"{outcome.kind}: {outcome.type} {outcome.text}"
    return outcome
