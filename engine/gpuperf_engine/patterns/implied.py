"""Findings that stronger ones imply: only the strongest fails.

A finding about an object is stronger than one about an instruction with the same remedy: if all elements that a launch wrote are zero,
so are those that each of its stores wrote, and those that later launches load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..results import Finding

__all__ = ["without_implied"]

#: patterns of values, the strongest first; each implies the following ones, or makes their remedy needless
_VALUES = (
    "single-zero",
    "single-value",
    "structured-values",
    "heavy-type",
    "frequent-values",
    "approximate-values",
)
#: if the first applies to everything that a step writes, the others do not matter
_NEEDLESS = {
    "redundant-values": _VALUES,
    "dead-stores": (*_VALUES, "silent-stores", "dead-stores"),
}
#: the remedy of the first is also that of the others
_SAME_REMEDY = {
    "redundant-values": ("redundant-values", "silent-stores"),
    "uninitialized-reads": ("uninitialized-reads",),
}


def without_implied(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, of which those that a stronger one implies are notes and name it."""
    every = tuple(findings)
    of_object: dict[str, list[Finding]] = {}
    for finding in every:
        of_object.setdefault(finding.site or finding.object, []).append(finding)
    return tuple(_marked(finding, of_object[finding.site or finding.object]) for finding in every)


def _marked(finding: Finding, alike: list[Finding]) -> Finding:
    stronger = [other for other in alike if _implies(other, finding)]
    if not stronger:
        return finding
    strongest = next(
        (other for other in stronger if not any(_implies(more, other) for more in alike)), stronger[0]
    )
    return replace(finding, severity="note", implied_by=strongest.identity)


def _implies(strong: Finding, weak: Finding) -> bool:
    if strong is weak:
        return False
    if strong.instruction:
        return _stores_last_alone(strong, weak)
    if strong.rule in _NEEDLESS and weak.rule in _NEEDLESS[strong.rule]:
        # no store is needed if memory already has all values, or if they are not read
        return (
            strong.severity == "fail"
            and weak.evidence.get("kind") != "load"
            and set(weak.steps) <= set(strong.steps)
            and _is_whole(strong)
        )
    if not weak.instruction:
        return False
    if strong.rule in _SAME_REMEDY:
        return weak.rule in _SAME_REMEDY[strong.rule] and not {*weak.steps}.isdisjoint(strong.steps)
    if strong.rule not in _VALUES or weak.rule not in _VALUES[_VALUES.index(strong.rule) :]:
        return False
    kind = "loads" if weak.evidence.get("kind") == "load" else "stores"
    removed = {item.step for item in strong.traffic if getattr(item, kind) > 0}
    return bool(removed) and removed.issuperset(weak.steps)


def _stores_last_alone(strong: Finding, weak: Finding) -> bool:
    """Whether silent stores disappear if each thread only stores its last value."""
    same = (strong.instruction, strong.kernel, strong.call) == (weak.instruction, weak.kernel, weak.call)
    return (
        same
        and (strong.rule, weak.rule) == ("dead-stores", "silent-stores")
        and strong.severity == "fail"
        and set(weak.steps) <= set(strong.steps)
        and strong.waste >= weak.waste
    )


def _is_whole(finding: Finding) -> bool:
    """Whether a finding is about everything that all executions of its call write to the object."""
    evidence = finding.evidence
    return bool(evidence.get("whole", evidence.get("unchanged") == evidence.get("written")))
