"""Every metric the gate knows: its class, which way is better, its unit and where it stands in a baseline. PYTEST_DONT_REWRITE

The order here is the order of baselines and reports. All else follows from the rows: what a baseline must hold, what is compared,
the published schemas.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

__all__ = [
    "ANALYSIS",
    "ESTIMATE",
    "FAMILIES",
    "METRICS",
    "UNKNOWN",
    "UNSAID",
    "Metric",
    "find",
    "flatten",
    "known_pattern",
    "put",
    "significant",
]

ESTIMATE = "estimate"
"""Where registers come from that ``ptxas`` did not assign, as baselines say it."""

SIGNIFICANT_DIGITS = 4
"""Digits to which modelled numbers are stored and compared."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of them (``counts.by_category.*``).

    ``kind`` is ``exact``, ``ratio``, ``modelled`` or ``set``; ``better`` is ``lower``, ``higher`` or ``neutral``; ``path`` is
    where it stands in a case of a baseline (below the target for metrics per target). ``name`` is also where it stands in the
    engine's profile, that of a metric per target in its estimate; it is stored with so many significant ``digits``, a whole number
    with 0. ``since`` is the revision of the table that brought it: baselines of earlier ones lack it.

    What follows from registers is an estimate unless ``ptxas`` assigned them: then ``estimated`` is its tolerance, and its class
    ``modelled``. ``source`` says which of the two a metric of a case is, ``estimated`` or ``ptxas``; it is empty for all others.
    """

    name: str
    kind: str
    better: str
    unit: str
    path: tuple[str, ...]
    group: str = "counts"
    per_target: bool = False
    digits: int = 0
    since: int = 1
    estimated: str = ""
    source: str = ""

    def of(self, case: Mapping[str, Any]) -> Metric:
        """The metric as it holds for a case, by the source of the registers of that."""
        if not self.estimated:
            return self
        if case["resources"]["from"] != ESTIMATE:
            return replace(self, source="ptxas")
        return replace(self, kind="modelled", source="estimated")

    def read(self, source: Any) -> float:
        """The metric off a profile (per target: an estimate), as a baseline stores it."""
        value = attrgetter(self.name)(source)
        return significant(value, self.digits) if self.digits else int(value)

    @property
    def default_tolerance(self) -> str:
        """Exact numbers and ratios of them may not move; predicted times by 2 % or 0.05 µs; estimates as ``estimated`` says."""
        if self.source == "estimated":
            return self.estimated
        return "2%&0.05us" if self.kind == "modelled" else "0"


METRICS: tuple[Metric, ...] = (
    Metric("launches", "exact", "lower", "", ("launches",)),
    Metric("thread_instructions", "exact", "lower", "", ("counts", "thread_instructions")),
    Metric("warp_instructions", "exact", "lower", "", ("counts", "warp_instructions")),
    Metric(
        "thread_instructions_predicated_on",
        "exact",
        "neutral",
        "",
        ("counts", "thread_instructions_predicated_on"),
        since=2,
    ),
    Metric("opcodes", "set", "neutral", "", ("counts", "opcodes")),
    Metric("branches.executed", "exact", "lower", "", ("branches", "executed")),
    Metric("branches.divergent", "exact", "lower", "", ("branches", "divergent")),
    Metric("branches.efficiency", "ratio", "higher", "%", ("branches", "efficiency"), digits=6),
    Metric("memory.global_load_sectors", "exact", "lower", "", ("memory", "global_load_sectors")),
    Metric("memory.global_store_sectors", "exact", "lower", "", ("memory", "global_store_sectors")),
    Metric(
        "memory.global_load_wavefronts", "exact", "lower", "", ("memory", "global_load_wavefronts"), since=2
    ),
    Metric(
        "memory.global_atomic_sectors", "exact", "lower", "", ("memory", "global_atomic_sectors"), since=2
    ),
    Metric("memory.global_atomic_turns", "exact", "lower", "", ("memory", "global_atomic_turns"), since=2),
    Metric("memory.shared_wavefronts", "exact", "lower", "", ("memory", "shared_wavefronts"), since=2),
    Metric("memory.shared_conflicts", "exact", "lower", "", ("memory", "shared_conflicts")),
    Metric("memory.local_sectors", "exact", "lower", "", ("memory", "local_sectors"), since=2),
    Metric("memory.local_bytes", "exact", "lower", "B", ("memory", "local_bytes")),
    Metric(
        "resources.registers",
        "exact",
        "lower",
        "",
        ("resources", "registers"),
        "resources",
        estimated="25%&8",
    ),
    Metric("resources.shared_bytes", "exact", "lower", "B", ("resources", "shared_bytes"), "resources"),
    Metric("resources.local_bytes", "exact", "lower", "B", ("resources", "local_bytes"), "resources"),
    Metric("findings", "set", "lower", "", ("findings",), "findings"),
    Metric("time_us", "modelled", "lower", "us", ("time_us",), "time", True, SIGNIFICANT_DIGITS),
    Metric(
        "occupancy", "ratio", "neutral", "", ("occupancy",), "time", True, SIGNIFICANT_DIGITS, estimated="25%"
    ),
)
"""A new row takes a ``since`` that no released version has had."""

FAMILIES: tuple[Metric, ...] = (
    Metric("flops.*", "exact", "neutral", "", ("flops",)),
    Metric("counts.by_category.*", "exact", "neutral", "", ("counts", "by_category")),
)
"""Metrics whose last name part the engine decides (a precision, a category); a missing one is 0."""

UNKNOWN = 0
"""Revision of numbers of which nobody knows how they were made: never the present one."""

ANALYSIS: Mapping[str, int] = {
    "counts": 1,
    "findings": 1,
    "time": 4,
    "metrics": max(metric.since for metric in METRICS),
}
"""Revision of the meaning of each group of metrics, and of the table of ``metrics``. Raise one of the groups by hand when a number
of it comes to mean something else: stored numbers then count as incomparable instead of as regressions."""

UNSAID: Mapping[str, int] = {**dict.fromkeys(ANALYSIS, UNKNOWN), "metrics": 1}
"""What holds where a baseline says nothing: the table had no revisions at first."""

_BY_NAME = {metric.name: metric for metric in METRICS}


def find(name: str) -> Metric | None:
    """The metric of that name; a member of a family, a target's metric (``h100-sxm.time_us``) included."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    for family in FAMILIES:
        prefix = family.name[:-1]
        if name.startswith(prefix) and len(name) > len(prefix):
            return Metric(name, family.kind, family.better, family.unit, (*family.path, name[len(prefix) :]))
    target, _, rest = name.partition(".")
    metric = _BY_NAME.get(rest)
    return metric if target and metric is not None and metric.per_target else None


def known_pattern(pattern: str) -> str | None:
    """``None`` if the name or glob can match a metric, else a hint with the nearest one."""
    if find(pattern) is not None:
        return None
    names = [metric.name for metric in (*METRICS, *FAMILIES)]
    if any(char in pattern for char in "*?["):
        candidates = [*names, *(f"target.{metric.name}" for metric in METRICS if metric.per_target)]
        if any(fnmatchcase(name, pattern) for name in candidates):
            return None
        if any(pattern.startswith(family.name[:-1]) for family in FAMILIES):
            return None
        target, _, rest = pattern.partition(".")
        if target and any(metric.per_target and fnmatchcase(metric.name, rest) for metric in METRICS):
            return None
    close = difflib.get_close_matches(pattern, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known metrics: {', '.join(names)}"


def significant(value: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """``value`` rounded to so many significant decimal digits."""
    return float(f"{value:.{digits}g}")


def put(case: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Stores a value in a case, or below its target, making the mappings on the way."""
    *way, name = path
    for key in way:
        case = case.setdefault(key, {})
    case[name] = value


def _lookup(case: Mapping[str, Any], path: Iterable[str]) -> Any:
    node: Any = case
    for key in path:
        if not isinstance(node, (dict, Mapping)) or key not in node:  # the first is found at once
            return None
        node = node[key]
    return node


def flatten(case: Mapping[str, Any]) -> Iterator[tuple[Metric, str, Any]]:
    """All metrics of a baseline case but the findings: (metric, target or ``""``, value)."""
    for metric in METRICS:
        if metric.kind == "set" or metric.per_target:
            continue
        value = _lookup(case, metric.path)
        if value is not None:
            yield metric.of(case), "", value
    for family in FAMILIES:
        for key, value in (_lookup(case, family.path) or {}).items():
            yield (
                Metric(
                    f"{family.name[:-1]}{key}", family.kind, family.better, family.unit, (*family.path, key)
                ),
                "",
                value,
            )
    for target, entry in case.get("targets", {}).items():
        for metric in METRICS:
            if metric.per_target and metric.path[0] in entry:
                yield metric.of(case), target, entry[metric.path[0]]
