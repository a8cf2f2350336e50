"""Value patterns of single instructions: patterns in the values that an instruction accesses in one object.

The fine-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated Applications",
ASPLOS 2022, section 3), sought in records of all accesses (``Device(observe={"accesses"})``), not in a sample of them. Each family
has a module: ``fine_single``, ``fine_frequent``, ``fine_structured``, ``fine_types``, ``fine_stores``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..device.thresholds import Thresholds
from ..results import Finding, ValueRecord
from .fine_frequent import frequent_values, idle_atomics
from .fine_single import approximate_values, single_value
from .fine_stores import dead_stores, repeated_loads, silent_stores, uninitialized_reads
from .fine_structured import structured_values
from .fine_types import heavy_type, rounded_type
from .instructions import ATOMICS, COMPILERS, MOVES, accesses_of, instruction_finding, instruction_names
from .matches import Match
from .program import Step

__all__ = ["FINE_PATTERNS", "FinePatterns"]


class _Family(Protocol):
    def __call__(self, record: ValueRecord, thresholds: Thresholds) -> Match | None: ...


#: only the first match is reported: it implies the others, or makes their remedy needless; except that approximate values are
#: reported in addition to structured ones
_VALUES: tuple[_Family, ...] = (
    single_value,
    structured_values,
    frequent_values,
    heavy_type,
    approximate_values,
)
#: independent patterns
_OTHERS: tuple[_Family, ...] = (silent_stores, dead_stores, repeated_loads, uninitialized_reads)
#: patterns that few accesses may show by chance
_SHARES = (frequent_values, heavy_type, approximate_values)
#: rules that fail if all launches of the call show them; rules with the same number count as one
_FAILING = {"single-zero": 0, "single-value": 0, "structured-values": 0, "dead-stores": 1}


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
        """One finding for each instruction and object of a launch. Value patterns and dead stores fail only if every launch of the
        call shows them: otherwise the access is needed."""
        shown, launches = list[tuple[Step, Finding]](), Counter[tuple[str, ...]]()
        for step, instruction, record, findings in self._found(steps):
            site = step.site_of(record.object) or record.object
            launches[step.call, step.event.kernel, instruction, site] += 1
            shown += [(step, finding) for finding in findings]
        times = Counter((_FAILING.get(finding.rule), accesses_of(finding)) for _, finding in shown)
        for step, finding in shown:
            kind, accesses = _FAILING.get(finding.rule), accesses_of(finding)
            needed = kind is not None and times[kind, accesses] < launches[accesses]
            yield step, replace(finding, severity="note") if needed else finding

    def _found(self, steps: Sequence[Step]) -> Iterator[tuple[Step, str, ValueRecord, list[Finding]]]:
        """The records of each instruction of a launch, with their findings."""
        few = _of_few_values(steps)
        for step in steps:
            thresholds = self.thresholds or step.program.thresholds
            names = instruction_names(step.carried)
            moved = _moved(step.carried)
            for record in step.carried:
                if record.space not in moved or record.object.startswith(COMPILERS):
                    continue
                name = names[record.site, record.element, record.object]
                # models of time only take savings of global memory traffic into account, and clearing or padding shared memory
                # is none
                total = moved["global"].get(record.kind, 0) if record.space == "global" else 0
                severity = "" if record.space == "global" else "note"
                matches = _matches(record, step, thresholds, few)
                findings = [
                    instruction_finding(step, record, match, name, total, severity) for match in matches
                ]
                yield step, name, record, findings


def _matches(record: ValueRecord, step: Step, thresholds: Thresholds, few: frozenset[str]) -> Iterator[Match]:
    """The patterns of a record. Patterns of all accesses, or of their bytes, need no minimum number of accesses."""
    many = record.count >= thresholds.accesses
    if record.kind in ATOMICS:
        idle = idle_atomics(record, thresholds) if many else None
        if idle is not None:
            yield idle
        return
    found = (family(record, thresholds) for family in _VALUES if many or family not in _SHARES)
    values = next((match for match in found if match and _holds(match, record, step, few)), None)
    others = _OTHERS
    if many and values is not None and values.rule == "structured-values":
        others = (approximate_values, *_OTHERS)
    for match in (values, *(family(record, thresholds) for family in others)):
        if match:
            yield match
        # beside a structure; alone, an approximation names the type itself
        beside = match and match is not values and match.rule == "approximate-values"
        if match and beside and (narrower := rounded_type(record, match)):
            yield narrower


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
    """Whether a match is significant: frequent values may come from few elements that are loaded repeatedly, which observed objects
    show."""
    table = match.evidence.get("narrower") == "dictionary"
    return (
        not table or record.space != "global" or "values" not in step.program.observe or record.object in few
    )


def _moved(records: Sequence[ValueRecord]) -> dict[str, dict[str, int]]:
    """By space the bytes that a launch loads and stores."""
    moved: dict[str, dict[str, int]] = {space: dict.fromkeys(MOVES, 0) for space in ("global", "shared")}
    for record in records:
        if record.space in moved and record.kind in MOVES:
            moved[record.space][record.kind] += record.bytes
    return moved


FINE_PATTERNS: tuple[FinePatterns, ...] = (FinePatterns(),)
