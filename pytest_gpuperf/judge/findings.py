"""Findings of a kernel in the gate: which fail, what they would save, which are accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gpuperf_engine.results.cxx_names import readable_name

from ..config.declared import CaseSettings, FindingRules
from .prediction import Prediction

if TYPE_CHECKING:
    from gpuperf_engine import Finding

__all__ = ["Weighed", "unused_accepts", "weigh"]


@dataclass(frozen=True)
class Weighed:
    """A finding with its severity in this project (``fail`` or ``note``), predicted savings by target, and why it is accepted."""

    finding: Finding
    severity: str
    saving_us: Mapping[str, float] = field(default_factory=dict)
    accepted: str = ""


def weigh(
    findings: Iterable[Finding],
    prediction: Prediction,
    case: CaseSettings,
    rules: FindingRules,
    notes: bool = True,
) -> list[Weighed]:
    """Return the findings of a kernel, failing ones first, then by descending waste, without those whose rule is ``off``. ``notes``:
    predict the savings of notes too, as a report shows them."""
    weighed = []
    for finding in findings:
        severity = _severity(finding, rules)
        if severity == "off":
            continue
        fails = severity == "fail" and not 0 < finding.waste < rules.least_bytes
        shown = notes and finding.waste >= rules.least_bytes
        saving = prediction.saving_us(finding, case.targets) if fails or shown else {}
        if saving and max(saving.values()) < rules.least_us:
            fails = False
        accepted = _reason(finding, case)
        weighed.append(Weighed(finding, "fail" if fails and not accepted else "note", saving, accepted))
    weighed.sort(key=_rank)
    return weighed


def _rank(item: Weighed) -> tuple[bool, float, int, str]:
    saved = max(item.saving_us.values(), default=0.0)
    return item.severity != "fail", -saved, -item.finding.waste, item.finding.of_case


def unused_accepts(findings: Sequence[Finding], case: CaseSettings) -> list[str]:
    """Return accepted findings of the test that do not occur."""
    return [
        key
        for key in case.accept
        if key not in case.accepted_by_all and not any(_fits(key, finding) for finding in findings)
    ]


def _severity(finding: Finding, rules: FindingRules) -> str:
    chosen = [severity for pattern, severity in rules.severities if fnmatchcase(finding.rule, pattern)]
    severity = chosen[-1] if chosen else finding.severity
    return "note" if severity == "fail" and finding.implied_by else severity


def _reason(finding: Finding, case: CaseSettings) -> str:
    return next((why for key, why in case.accept.items() if _fits(key, finding)), "")


def _fits(key: str, finding: Finding) -> bool:
    rule, _, name = key.partition(":")
    names = (finding.object, readable_name(finding.object))
    return fnmatchcase(finding.rule, rule) and (not name or any(fnmatchcase(each, name) for each in names))
