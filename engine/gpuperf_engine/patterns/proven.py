"""Patterns of single instructions that warp classes prove of a whole launch (``symbolic.proven_values``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..device.thresholds import Thresholds
from ..memory.arena import are_addresses
from ..results import Finding, ProvenValues
from .fine_single import flag_match, single_match
from .fine_structured import structured_match
from .instructions import COMPILERS, accesses_of, instruction_finding, instruction_names
from .matches import Match
from .program import Step

__all__ = ["PROVEN_PATTERNS", "ProvenPatterns"]


@dataclass(frozen=True, slots=True)
class ProvenPatterns:
    """The patterns of ``FinePatterns`` that apply to all accesses of an instruction to an object, for accesses that were not observed.
    ``thresholds``: by default those of the device."""

    thresholds: Thresholds | None = None

    rules = ("single-zero", "single-value", "structured-values")

    def find(self, steps: Sequence[Step]) -> Iterable[tuple[Step, Finding]]:
        """One finding for each instruction and object of a launch. It fails only if it is proven of each launch of the call."""
        launches = Counter((step.call, step.event.kernel) for step in steps if step.event.kernel)
        shown = list(self._found(steps))
        times = Counter(accesses_of(finding) for _, finding in shown)
        for step, finding in shown:
            every = times[accesses_of(finding)] == launches[step.call, step.event.kernel]
            yield step, finding if every else replace(finding, severity="note")

    def _found(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Finding]]:
        for step in steps:
            if step.carried:
                continue  # observed records are more precise
            thresholds = self.thresholds or step.program.thresholds
            names = instruction_names(step.proven)
            for item in step.proven:
                if item.object.startswith(COMPILERS):
                    continue
                match = _match(item, thresholds)
                if match is not None:
                    name = names[item.site, item.element, item.object]
                    yield step, instruction_finding(step, item, match, name, item.moved, proof="warp classes")


def _match(item: ProvenValues, thresholds: Thresholds) -> Match | None:
    if item.slope:
        largest = int(item.base) + item.slope * (item.capacity - 1)
        low, high = sorted((int(item.base), largest))
        if item.elements < thresholds.line or are_addresses(low, high, item.width):
            return None
        text = f"element i is {item.base} + {item.slope} · i"
        return structured_match(
            item.kind == "load",
            text,
            item.count,
            item.count,
            item.width,
            0,
            {"base": item.base, "slope": item.slope},
        )
    if item.kind == "store" and item.capacity == 1 and item.count > 1:
        return flag_match(item.base or 0, item.bytes, item.width)
    return single_match(item.base or 0, item.bytes) if item.elements > 1 else None


PROVEN_PATTERNS: tuple[ProvenPatterns, ...] = (ProvenPatterns(),)
