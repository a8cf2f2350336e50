"""The report as one document, the source of every other form of it.

Its JSON Schema is ``schemas/report-1.json``. Same results, same bytes: no clock, host, version or absolute path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from ..core.escaping import one_line
from ..core.metric import Table
from ..core.metrics import TABLE
from ..core.numbers import counted
from ..core.records import Case, Document, Judged, NotJudged, StalenessNotJudged
from ..store.outcomes import Outcomes
from ..store.update import FilePlan

__all__ = ["SCHEMA_VERSION", "Run", "build_document"]

SCHEMA_VERSION = 1


@dataclass
class Run:
    """A judged run."""

    verdict: str
    passed: bool
    records: list[Judged]
    outcomes: Outcomes
    plans: list[FilePlan]
    stale: list[str] = field(default_factory=list)
    pruned: bool = False
    problems: list[str] = field(default_factory=list)
    too_few: bool = False
    min_cases: int = 1
    metrics: Table = TABLE

    def not_judged(self) -> list[NotJudged]:
        """Tests that declare kernels but were not judged, with the reason."""
        return [
            {"nodeid": test.nodeid, "outcome": test.outcome, "reason": test.reason}
            for _, test in self.outcomes.tests()
            if test.case and not test.records
        ]

    def staleness_not_judged(self) -> list[StalenessNotJudged]:
        """Modules whose unused entries could not be determined, with the reason."""
        return [{"module": plan.module, "reason": plan.not_judged} for plan in self.plans if plan.not_judged]

    def notes(self) -> list[str]:
        """Notes on unused parts of baselines, and on the analysis of kernels; they are no properties of cases, so the document has
        them apart from the records."""
        remarks = (f"{record['id']}: {remark}" for record in self.records for remark in record["remarks"])
        return [
            *dict.fromkeys(
                (*(note for plan in self.plans for note in plan.notes), *self._absent_plugins(), *remarks)
            )
        ]

    def _absent_plugins(self) -> Iterator[str]:
        absent: Counter[str] = Counter()
        for plan in self.plans:
            absent.update(plan.absent_plugins)
        for plugin, cases in sorted(absent.items()):
            yield (
                f"plugin {one_line(plugin, 80)!r} is not loaded: its metrics of {counted(cases, 'kernel')} are not judged; an "
                "update keeps them while kernel and inputs are the same"
            )

    def counts(self) -> dict[str, int]:
        """Number of cases by verdict."""
        return dict(sorted(Counter(record["verdict"] for record in self.records).items()))


def build_document(run: Run) -> Document:
    """The plain JSON document."""
    listings = run.outcomes.listings
    used = sorted({record["detail"]["listing"] for record in run.records} & set(listings))
    document: Document = {
        "schema_version": SCHEMA_VERSION,
        "verdict": run.verdict,
        "passed": run.passed,
        "counts": run.counts(),
        "cases": [
            cast(Case, {name: value for name, value in record.items() if name != "remarks"})
            for record in run.records
        ],
        "not_judged": run.not_judged(),
        "stale": run.stale,
        "staleness_not_judged": run.staleness_not_judged(),
        "problems": run.problems,
        "notes": run.notes(),
        "baselines": [
            {
                "module": plan.module,
                "path": plan.shown,
                "base": plan.base,
                "changed": plan.changed,
                "added": plan.added,
                "pruned": plan.pruned,
            }
            for plan in run.plans
        ],
        "listings": [listings[key] for key in used],
    }
    if run.metrics.plugins:
        document["plugins"] = run.metrics.to_dicts()
    return document
