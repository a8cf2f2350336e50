"""What a gate makes of the findings of a kernel: which fail, what they would save, which are accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gpuperf_engine.errors import EngineError

from .._engine import engine
from ..config.declared import CaseSettings, FindingRules
from ..core.metric import significant

if TYPE_CHECKING:
    from gpuperf_engine import Finding, Profile

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
    total: Profile,
    case: CaseSettings,
    rules: FindingRules,
    search: Sequence[str] = (),
) -> list[Weighed]:
    """The findings of a kernel, what fails first, then what wastes most. Those whose rule is ``off`` are left out. ``total`` are its
    launches, ``search`` folders of machine files."""
    weighed = []
    for finding in findings:
        severity = _severity(finding, rules)
        if severity == "off":
            continue
        saving = _saving(finding, total, case, search)
        if severity == "fail" and _is_small(finding, saving, rules):
            severity = "note"
        accepted = _reason(finding, case)
        weighed.append(Weighed(finding, "note" if accepted else severity, saving, accepted))
    weighed.sort(key=lambda item: (item.severity != "fail", -item.finding.waste, item.finding.of_case))
    return weighed


def unused_accepts(findings: Sequence[Finding], case: CaseSettings) -> list[str]:
    """What is accepted and was not found."""
    return [key for key in case.accept if not any(_fits(key, finding) for finding in findings)]


def _severity(finding: Finding, rules: FindingRules) -> str:
    chosen = [severity for pattern, severity in rules.severities if fnmatchcase(finding.rule, pattern)]
    return chosen[-1] if chosen else finding.severity


def _saving(finding: Finding, total: Profile, case: CaseSettings, search: Sequence[str]) -> dict[str, float]:
    """By target. Copies and memsets are no part of the predicted time of a kernel."""
    if not finding.waste or not finding.kernel:
        return {}
    saving = {}
    for target in case.targets:
        try:
            saved = engine.saving_us(total, target, stored=finding.waste, search=search)
        except EngineError:
            continue  # the prediction itself says why
        saving[target] = significant(saved)
    return saving


def _is_small(finding: Finding, saving: Mapping[str, float], rules: FindingRules) -> bool:
    """Below a threshold; what has no bytes or no prediction is not."""
    few_bytes = 0 < finding.waste < rules.least_bytes
    return few_bytes or (bool(saving) and max(saving.values()) < rules.least_us)


def _reason(finding: Finding, case: CaseSettings) -> str:
    return next((why for key, why in case.accept.items() if _fits(key, finding)), "")


def _fits(key: str, finding: Finding) -> bool:
    rule, _, name = key.partition(":")
    return fnmatchcase(finding.rule, rule) and (not name or fnmatchcase(finding.object, name))
