"""The controller's state of a run: outcomes, records and completeness, from test reports only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ..core.escaping import one_line
from ..core.payload import PAYLOAD
from ..core.records import Judged, ListingRow
from .baseline import Baseline

__all__ = ["ModuleState", "Outcomes", "TestState"]


@dataclass
class TestState:
    """One test: ``outcome`` is ``running``, ``passed``, ``failed``, ``skipped`` or ``xfailed``; ``finished`` after teardown;
    ``gate_failed`` if all but the comparison with its baseline was well, so that all its cases are known."""

    __test__ = False

    nodeid: str
    case: bool = False
    outcome: str = "running"
    reason: str = ""
    finished: bool = False
    gate_failed: bool = False
    records: list[Judged] = field(default_factory=list)


@dataclass
class ModuleState:
    """One test module: how many tests were collected and selected, and what became of them."""

    collected: int = 0
    selected: int = 0
    narrowed: bool = False
    passed_over: tuple[str, ...] = ()
    crashed: bool = False
    tests: dict[str, TestState] = field(default_factory=dict)

    def incomplete(self) -> str:
        """Why the module's unused entries cannot be known; empty if they can."""
        finished = sum(test.finished for test in self.tests.values())
        if self.crashed:
            return "a worker crashed in it"
        if self.narrowed:
            return "node ids or --lf narrowed it"
        if self.selected < self.collected:
            return f"{self.collected - self.selected} of {self.collected} tests were deselected"
        if finished < self.selected:
            return f"only {finished} of {self.selected} tests ran"
        return ""

    def stale(self, baseline: Baseline) -> list[str]:
        """Entries of the baseline that no test makes any more, if the module is complete.

        Entries of tests that were skipped, xfailed or failed by themselves may well be made by the next run.
        """
        if self.incomplete():
            return []
        measured = {record["id"] for test in self.tests.values() for record in test.records}
        unfinished = [
            n for n, test in self.tests.items() if test.outcome != "passed" and not test.gate_failed
        ]
        protected = tuple(f"{name}/" for name in (*unfinished, *self.passed_over))
        return [
            key for key in sorted(baseline.cases) if key not in measured and not key.startswith(protected)
        ]


class Outcomes:
    """Collects test reports; the last run of a test counts."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleState] = {}
        self.listings: dict[str, ListingRow] = {}

    def add(self, report: pytest.TestReport) -> None:
        payload: Mapping[str, Any] | None = getattr(report, PAYLOAD, None)
        if payload is None:
            self.modules.setdefault(report.nodeid.split("::", 1)[0], ModuleState()).crashed = True
            return
        module = self.modules.setdefault(payload["module"], ModuleState())
        module.collected, module.selected = payload["collected"], payload["selected"]
        module.narrowed |= payload["narrowed"]
        module.passed_over = tuple(payload["passed_over"])
        name = payload["test"]
        if report.when == "setup" or name not in module.tests:
            module.tests[name] = TestState(f"{payload['module']}::{name}")
        test = module.tests[name]
        test.case |= payload["case"]
        if report.when == "teardown":
            test.finished = True
        if report.failed:
            test.outcome, test.reason = "failed", _reason(report)
            judged = payload["records"] if report.when == "call" else []
            # an xfail test does not update its baseline, though its kernel was judged
            test.gate_failed = any(record["fails"] for record in judged) and not payload["xfail"]
        elif report.skipped:
            test.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            test.reason = _reason(report)
        elif report.when == "call":
            # an xfail test that passed unexpectedly does not update its baseline either
            test.outcome = "xfailed" if hasattr(report, "wasxfail") else "passed"
        if report.when == "call":
            test.records = [self._without_listing(record) for record in payload["records"]]

    def _without_listing(self, record: Judged) -> Judged:
        listing = record.get("listing")
        if listing is not None:
            self.listings[listing["id"]] = listing
        return cast(Judged, {key: value for key, value in record.items() if key != "listing"})

    def tests(self) -> Iterator[tuple[str, TestState]]:
        """(module, test), sorted by module and name."""
        for module in sorted(self.modules):
            for name in sorted(self.modules[module].tests):
                yield module, self.modules[module].tests[name]

    def records(self) -> list[Judged]:
        """All case records, sorted by module and id."""
        all_records = [record for _, test in self.tests() for record in test.records]
        return sorted(all_records, key=lambda record: (record["module"], record["id"]))


def _reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return one_line(str(longrepr[2]).removeprefix("Skipped: "))
    crash = getattr(longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else longrepr or "")
    return one_line(text.splitlines()[0] if text else "")
