"""Value patterns of single instructions: what the accesses of one of them to one object have in common.

The fine-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated Applications",
ASPLOS 2022, section 3), sought in records of all accesses (``Device(observe={"accesses"})``), not in a sample of them. Each family
has a module: ``fine_single``, ``fine_frequent``, ``fine_structured``, ``fine_types``, ``fine_stores``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..device.thresholds import Thresholds
from ..results import Finding, ProvenValues, Traffic, ValueRecord
from .fine_frequent import frequent_values
from .fine_single import approximate_values, single_value
from .fine_stores import dead_stores, repeated_loads, silent_stores, uninitialized_reads
from .fine_structured import structured_values
from .fine_types import heavy_type
from .matches import Match
from .program import Step

__all__ = ["COMPILERS", "FINE_PATTERNS", "VERBS", "FinePatterns", "accesses_of", "instruction_names"]


class _Family(Protocol):
    def __call__(self, record: ValueRecord, thresholds: Thresholds) -> Match | None: ...


#: of these only the first that is there is reported: it implies the others, or makes their remedy needless; that values which are
#: structured are about one value as well is worth knowing
_VALUES: tuple[_Family, ...] = (
    single_value,
    structured_values,
    frequent_values,
    heavy_type,
    approximate_values,
)
#: these say something else
_OTHERS: tuple[_Family, ...] = (silent_stores, dead_stores, repeated_loads, uninitialized_reads)
#: shares among few accesses are chance
_SHARES = (frequent_values, heavy_type, approximate_values)
#: rules that fail if each launch of the call shows them; those of ``_VALUES`` stand for each other
_FAILING = {"single-zero": 0, "single-value": 0, "structured-values": 0, "dead-stores": 1}
#: tables of the compiler's library, which nobody can change
COMPILERS = ("__cudart_", "__internal_", "__nv_")
VERBS = {"load": "loads", "store": "stores"}


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
        "dead-stores",
        "repeated-loads",
        "uninitialized-reads",
    )

    def find(self, steps: Sequence[Step]) -> Iterable[tuple[Step, Finding]]:
        """One finding for each instruction and object of a launch. What its values have in common, and that they are overwritten
        unread, fails if it is so in each launch of the call: else the access is needed."""
        shown, made = list[tuple[Step, Finding]](), Counter[tuple[str, ...]]()
        for step, instruction, record, findings in self._found(steps):
            site = step.site_of(record.object) or record.object
            made[step.call, step.event.kernel, instruction, site] += 1
            shown += [(step, finding) for finding in findings]
        times = Counter((_FAILING.get(finding.rule), accesses_of(finding)) for _, finding in shown)
        for step, finding in shown:
            kind, accesses = _FAILING.get(finding.rule), accesses_of(finding)
            needed = kind is not None and times[kind, accesses] < made[accesses]
            yield step, replace(finding, severity="note") if needed else finding

    def _found(self, steps: Sequence[Step]) -> Iterator[tuple[Step, str, ValueRecord, list[Finding]]]:
        """What each instruction of a launch accesses, and the findings about it."""
        few = _of_few_values(steps)
        for step in steps:
            thresholds = self.thresholds or step.program.thresholds
            names = instruction_names(step.carried)
            moved = _moved(step.carried)
            for record in step.carried:
                if record.space not in moved or record.kind not in VERBS:
                    continue
                if record.object.startswith(COMPILERS):
                    continue
                name = names[record.site, record.element, record.object]
                matches = _matches(record, step, thresholds, few)
                findings = [_finding(step, record, match, name, moved) for match in matches]
                yield step, name, record, findings


def _matches(record: ValueRecord, step: Step, thresholds: Thresholds, few: frozenset[str]) -> Iterator[Match]:
    """The patterns of a record. What all accesses or their bytes have in common holds of any number of them."""
    many = record.count >= thresholds.accesses
    found = (family(record, thresholds) for family in _VALUES if many or family not in _SHARES)
    values = next((match for match in found if match and _holds(match, record, step, few)), None)
    others = _OTHERS
    if many and values is not None and values.rule == "structured-values":
        others = (approximate_values, *_OTHERS)
    for match in (values, *(family(record, thresholds) for family in others)):
        if match:
            yield match


def _of_few_values(steps: Sequence[Step]) -> frozenset[str]:
    """Names of objects that held few values after some step."""
    return frozenset(
        use.array.name
        for step in steps
        for use in step.event.writes
        for contents in use.contents
        if contents.rule != "structured-values"
    )


def _holds(match: Match, record: ValueRecord, step: Step, few: frozenset[str]) -> bool:
    """Few values may be due to few elements that an instruction loads again and again. Where objects are observed, they say so."""
    table = match.evidence.get("narrower") == "dictionary"
    return (
        not table or record.space != "global" or "values" not in step.program.observe or record.object in few
    )


def accesses_of(finding: Finding) -> tuple[str, ...]:
    """What the finding is about, whatever it says."""
    return finding.call, finding.kernel, finding.instruction, finding.site or finding.object


def instruction_names(records: Sequence[ValueRecord | ProvenValues]) -> dict[tuple[int, int, str], str]:
    """Names that lines added above an instruction leave as they are: function, opcode, which one of those alike that access the
    object, and the element."""
    sites = {(record.site, record.object): (record.function, record.opcode) for record in records}
    number: dict[tuple[str, str, str], int] = {}
    names = {}
    for (site, name), alike in sorted(sites.items()):
        key = (*alike, name)
        number[key] = number.get(key, 0) + 1
        names[site, name] = " ".join((*alike, f"#{number[key]}"))
    several = {record.site for record in records if record.element}
    return {
        (record.site, record.element, record.object): names[record.site, record.object]
        + (f"[{record.element}]" if record.site in several else "")
        for record in records
    }


def _moved(records: Sequence[ValueRecord]) -> dict[str, dict[str, int]]:
    """By space the bytes that a launch loads and stores."""
    moved: dict[str, dict[str, int]] = {space: dict.fromkeys(VERBS, 0) for space in ("global", "shared")}
    for record in records:
        if record.space in moved and record.kind in VERBS:
            moved[record.space][record.kind] += record.bytes
    return moved


def _finding(
    step: Step, record: ValueRecord, match: Match, instruction: str, moved: Mapping[str, Mapping[str, int]]
) -> Finding:
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
    what = f"{record.opcode} at {place} {VERBS[record.kind]} {record.count:,} elements"
    # the models of time are told of less traffic with global memory alone
    share = match.waste / max(1, moved["global"][record.kind]) if record.space == "global" else 0.0
    loads, stores = (min(1.0, share) if record.kind == kind else 0.0 for kind in VERBS)
    return Finding(
        rule=match.rule,
        object=record.object or "memory",
        call=step.call,
        message=f"{what} {'from' if record.kind == 'load' else 'to'} {record.object or 'memory'!r}: {match.text}",
        path=step.event.site.file,
        line=step.event.site.line,
        kernel=step.event.kernel,
        # what shared memory is cleared with and padded by is no traffic with memory
        severity=match.severity if record.space == "global" else "note",
        waste=match.waste,
        advice=match.advice,
        evidence=evidence,
        site=step.site_of(record.object),
        instruction=instruction,
        steps=(step.event.number,),
        traffic=(Traffic(step.event.number, loads, stores),) if share else (),
    )


FINE_PATTERNS: tuple[FinePatterns, ...] = (FinePatterns(),)
