"""Value patterns of single instructions: what the accesses of one of them to one object have in common.

The fine-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated Applications",
ASPLOS 2022, section 3), sought in records of all accesses (``Device(observe={"accesses"})``), not in a sample of them. Each family
has a module: ``fine_single``, ``fine_frequent``, ``fine_structured``, ``fine_types``, ``fine_stores``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..device.thresholds import Thresholds
from ..results import Finding, ValueRecord
from .fine_frequent import frequent_values
from .fine_single import approximate_values, single_value
from .fine_stores import repeated_loads, silent_stores, uninitialized_reads
from .fine_structured import structured_values
from .fine_types import heavy_type
from .matches import Match
from .program import Step

__all__ = ["FINE_PATTERNS", "FinePatterns"]


class _Family(Protocol):
    def __call__(self, record: ValueRecord, thresholds: Thresholds) -> Match | None: ...


#: of these only the first that is there is reported: it implies the others, or makes their remedy needless
_VALUES: tuple[_Family, ...] = (
    single_value,
    structured_values,
    frequent_values,
    heavy_type,
    approximate_values,
)
#: these say something else
_OTHERS: tuple[_Family, ...] = (silent_stores, repeated_loads, uninitialized_reads)
_VERBS = {"load": "loads", "store": "stores"}


@dataclass(frozen=True, slots=True)
class FinePatterns:
    """All patterns of single instructions, one finding for each instruction, object and call. ``thresholds``: if others than those
    of the device."""

    thresholds: Thresholds | None = None

    rules = (
        "single-zero",
        "single-value",
        "structured-values",
        "frequent-values",
        "heavy-type",
        "approximate-values",
        "silent-stores",
        "repeated-loads",
        "uninitialized-reads",
    )

    def find(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Finding]]:
        """One finding for each instruction and object of a call; what further launches of that call add is in its ``waste``."""
        found: dict[str, tuple[Step, Finding]] = {}
        for step in steps:
            for finding in self._of(step):
                known = found.get(finding.identity)
                found[finding.identity] = (
                    (step, finding) if known is None else (known[0], _added(known[1], finding))
                )
        yield from found.values()

    def _of(self, step: Step) -> Iterator[Finding]:
        names = _instruction_names(step.carried)
        thresholds = self.thresholds or step.device.thresholds
        for record in step.carried:
            if record.space not in ("global", "shared") or record.kind not in _VERBS:
                continue
            if record.count < thresholds.accesses:
                continue
            values = next(filter(None, (family(record, thresholds) for family in _VALUES)), None)
            for match in (values, *(family(record, thresholds) for family in _OTHERS)):
                if match is not None:
                    yield _finding(step, record, match, names[record.site, record.element])


def _instruction_names(records: Sequence[ValueRecord]) -> dict[tuple[int, int], str]:
    """Names that lines added above an instruction leave as they are: function, opcode, which one of those alike, and the element."""
    sites = {record.site: (record.function, record.opcode) for record in records}
    number: dict[tuple[str, str], int] = {}
    names = {}
    for site, alike in sorted(sites.items()):
        number[alike] = number.get(alike, 0) + 1
        names[site] = " ".join((*alike, f"#{number[alike]}"))
    several = {record.site for record in records if record.element}
    return {
        (record.site, record.element): names[record.site]
        + (f"[{record.element}]" if record.site in several else "")
        for record in records
    }


def _finding(step: Step, record: ValueRecord, match: Match, instruction: str) -> Finding:
    place = record.source or f"line {record.line}"
    evidence: dict[str, Any] = {
        "fraction": round(match.fraction, 4),
        "bytes": record.bytes,
        "line": record.line,
        "source": record.source,
        "opcode": record.opcode,
        "kind": record.kind,
        "type": record.type,
        "launches": 1,
        **match.evidence,
    }
    what = f"{record.opcode} at {place} {_VERBS[record.kind]} {record.count:,} elements"
    return Finding(
        rule=match.rule,
        object=record.object or "memory",
        call=f"{step.call}: {instruction}",
        message=f"{what} {'from' if record.kind == 'load' else 'to'} {record.object or 'memory'!r}: {match.text}",
        path=step.event.site.path,
        line=step.event.site.line,
        kernel=step.event.kernel,
        severity=match.severity,
        waste=match.waste,
        advice=match.advice,
        evidence=evidence,
    )


def _added(known: Finding, more: Finding) -> Finding:
    """A finding with what another launch of the call adds."""
    evidence = dict(known.evidence)
    evidence["bytes"] += more.evidence["bytes"]
    evidence["launches"] += 1
    return replace(known, waste=known.waste + more.waste, calls=known.calls + 1, evidence=evidence)


FINE_PATTERNS: tuple[FinePatterns, ...] = (FinePatterns(),)
