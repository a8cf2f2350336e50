"""Findings about single instructions, from records of all accesses or from a proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..results import Finding, ProvenValues, Traffic, ValueRecord
from ..results.cxx_names import readable_name
from .matches import Match
from .program import Step

__all__ = ["ATOMICS", "COMPILERS", "MOVES", "accesses_of", "instruction_finding", "instruction_names"]

#: prefixes of variables of the compiler's library, which users cannot change
COMPILERS = ("__cudart_", "__internal_", "__nv_")
#: kind of access → verb, and preposition before the object
MOVES = {"load": ("loads", "from"), "store": ("stores", "to")}
ATOMICS = {"atomic": ("combines", "with"), "reduction": ("combines", "with")}


def instruction_finding(
    step: Step,
    record: ValueRecord | ProvenValues,
    match: Match,
    instruction: str,
    moved: int,
    severity: str = "",
    proof: str = "",
) -> Finding:
    """A pattern of an instruction's accesses to an object. ``moved``: the bytes that all instructions of its kind move to and from
    global memory, 0 where the models of time know of no less traffic; ``severity``: if not that of the pattern; ``proof``: of what is
    not observed, what proves it."""
    position = record.source or f"line {record.line}"
    evidence: dict[str, Any] = {
        "fraction": round(match.fraction, 4),
        "bytes": record.bytes,
        "line": record.line,
        "source": record.source,
        "opcode": record.opcode,
        "kind": record.kind,
        "type": record.type,
        "launches": 1,
        **({"proof": proof} if proof else {}),
        **match.evidence,
    }
    verb, preposition = (MOVES | ATOMICS)[record.kind]
    name = record.object or "memory"
    of_vector = f" (vector element {record.element})" if instruction.endswith("]") else ""
    elements = f"{record.count:,} elements {preposition} {readable_name(name)!r}{of_vector}"
    message = f"{record.opcode} at {position} {verb} {elements}: {match.text}"
    share = min(1.0, match.waste / moved) if moved else 0.0
    loads, stores = (share if record.kind == kind else 0.0 for kind in MOVES)
    return Finding(
        rule=match.rule,
        object=name,
        call=step.call,
        message=message + (f", as {proof} prove" if proof else ""),
        path=step.event.site.file,
        line=step.event.site.line,
        kernel=step.event.kernel,
        severity=severity or match.severity,
        waste=match.waste,
        advice=match.advice,
        evidence=evidence,
        site=step.site_of(record.object),
        instruction=instruction,
        steps=(step.event.number,),
        traffic=(Traffic(step.event.number, loads, stores),) if share else (),
    )


def accesses_of(finding: Finding) -> tuple[str, ...]:
    """A key of the accesses of a finding, independent of its rule."""
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
