"""The steps of a recorded program, as the input of value patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..device.events import CallSite, Event
from ..device.recorded import Program
from ..errors import NotObserved
from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray
from ..ptx.module import Function
from ..results import Finding, ProvenValues, Traffic, ValueRecord, added_traffic
from ..results.cxx_names import readable_name
from .implied import without_implied

__all__ = ["Pattern", "Step", "find_patterns", "more", "steps_of"]

#: the calls that made an array, and its name without the number among those of one name
_Made = tuple[tuple[CallSite, ...], str]
_NUMBER = re.compile(r"#\d+$")
#: the name of arrays without one
_NAMELESS = "array"
_WORDS = {
    "allocate": "allocation",
    "copy-in": "copy from the host",
    "copy": "copy",
    "copy-out": "copy to the host",
    "memset": "memset",
}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a program. ``call`` is the text that identifies it: the source line, with an ordinal if other lines have the same
    text. A line that runs again in a loop is the same call. ``sites``: where arrays were allocated, as ``Finding.site``."""

    number: int
    event: Event
    call: str
    names: Mapping[Allocation, str]
    sites: Mapping[Allocation, str]
    program: Program

    def __str__(self) -> str:
        event = self.event
        return (
            f"the launch of {readable_name(event.kernel)!r}"
            if event.kind == "launch"
            else f"the {_WORDS[event.kind]}"
        )

    @property
    def place(self) -> str:
        """``path:line`` of the call."""
        return self.event.site.place

    @property
    def carried(self) -> tuple[ValueRecord, ...]:
        """The values of the accesses of a launch, if they were observed."""
        return self.program.carried.get(self.event.number, ())

    @property
    def proven(self) -> tuple[ProvenValues, ...]:
        """Proven values of the accesses of a launch, if they were requested."""
        return self.program.proven.get(self.event.number, ())

    def name(self, array: DeviceArray) -> str:
        """The name of an array; arrays without a name are numbered in the order of their creation."""
        return self.names.get(array.allocation) or array.name or "memory"

    def shown(self, array: DeviceArray) -> str:
        """Its name in messages: of a variable of C++ as in the source."""
        return readable_name(self.name(array))

    def site_of(self, name: str) -> str:
        """Where the only array of this name was allocated; empty for other memory, and if several arrays have the name."""
        sites = {
            self.sites.get(allocation, "") for allocation, called in self.names.items() if called == name
        }
        return sites.pop() if len(sites) == 1 else ""

    def identity(self, array: DeviceArray) -> str:
        """What identifies an array: where it was allocated, or its name."""
        return self.sites.get(array.allocation) or self.name(array)

    def made(self, array: DeviceArray) -> bool:
        """Whether the step is part of allocating an array, as ``zeros`` is."""
        event = self.event
        return (
            event.kind == "memset"
            and self.program.origins.get(array.allocation, event.number) == event.number
        )

    def is_array(self, array: DeviceArray) -> bool:
        """Whether this is an array that the program accesses only by launches and copies: module variables are not."""
        return array.allocation in self.names and not array.allocation.host

    def untouched(self, array: DeviceArray) -> tuple[int, int]:
        """Bytes of an array that were never touched, and bytes that were written but never read."""
        return self.program.untouched(array.allocation)

    def never_read(self, array: DeviceArray) -> Mapping[int, int]:
        """The bytes of an array that have not been read so far, by the number of the event that wrote them last."""
        return self.program.never_read(array.allocation)

    def finding(
        self,
        rule: str,
        array: DeviceArray,
        message: str,
        *,
        severity: str = "fail",
        waste: int = 0,
        advice: str = "",
        traffic: Iterable[Traffic] = (),
        **evidence: object,
    ) -> Finding:
        """The finding of a pattern for an array at this step. ``waste``: bytes of needless traffic; ``advice``: the remedy;
        ``traffic``: the traffic that it saves, in this step and others."""
        event = self.event
        return Finding(
            rule=rule,
            object=self.name(array),
            call=self.call,
            message=message,
            path=event.site.file,
            line=event.site.line,
            kernel=event.kernel,
            severity=severity,
            waste=waste,
            advice=advice,
            evidence=evidence,
            site=self.sites.get(array.allocation, ""),
            steps=(event.number,),
            traffic=added_traffic(traffic),
        )


class Pattern(Protocol):
    """One value pattern; ``rules`` are the rules that its findings may have."""

    @property
    def rules(self) -> tuple[str, ...]: ...

    def find(self, steps: Sequence[Step]) -> Iterable[tuple[Step, Finding]]:
        """The findings of a whole program, each with its step. Findings of equal identity count once."""


def find_patterns(device: Program, patterns: Iterable[Pattern]) -> tuple[Finding, ...]:
    """All findings of the program recorded so far, in the order of its steps, without repetition: where a call makes one again, its
    bytes are added to the first.

    Raises ``NotObserved`` unless the device observes ``values``, of whole objects, or ``accesses`` or ``proofs``, of instructions.
    """
    if not device.observe & {"accesses", "proofs", "values"}:
        raise NotObserved(
            "the values of the program were not observed", hint='use Device(observe={"memory", "values"})'
        )
    steps = steps_of(device)
    pairs = [pair for pattern in patterns for pair in pattern.find(steps)]
    pairs.sort(key=lambda pair: pair[0].number)
    findings: dict[str, dict[int, list[Finding]]] = {}
    for step, finding in pairs:
        findings.setdefault(finding.identity, {}).setdefault(step.number, []).append(finding)
    return without_implied(_together([*of_steps.values()]) for of_steps in findings.values())


def _together(of_steps: Sequence[Sequence[Finding]]) -> Finding:
    """Findings of equal identity, by step: as one, which names the first object and says that it is not the only one."""
    finding = more(*(_beside(*alike) for alike in of_steps))
    if len({item.object for alike in of_steps for item in alike}) == 1 == max(map(len, of_steps)):
        return finding
    return replace(finding, message=f"{finding.message}; likewise for other arrays that are allocated there")


def _beside(known: Finding, *others: Finding) -> Finding:
    """One finding for several objects that one line allocates in a loop."""
    if not others:
        return known
    together = more(known, *others)
    launches = {"launches": known.evidence["launches"]} if "launches" in known.evidence else {}
    failing = any(item.severity == "fail" for item in (known, *others))
    return replace(
        together,
        severity="fail" if failing else known.severity,
        evidence={**together.evidence, **launches},
        calls=known.calls,
        steps=known.steps,
    )


def more(known: Finding, *again: Finding) -> Finding:
    """A finding with the bytes of further executions of its call added."""
    if not again:
        return known
    evidence = dict(known.evidence)
    if "launches" in evidence:
        evidence["bytes"] += sum(item.evidence["bytes"] for item in again)
        evidence["launches"] += len(again)
    every = (known, *again)
    return replace(
        known,
        evidence=evidence,
        waste=sum(item.waste for item in every),
        calls=known.calls + len(again),
        steps=tuple(step for item in every for step in item.steps),
        traffic=added_traffic(traffic for item in every for traffic in item.traffic),
    )


def steps_of(device: Program) -> tuple[Step, ...]:
    """The steps of the program recorded so far."""
    names = {
        array.allocation: array.name or f"array#{number}" for number, array in enumerate(device.arrays, 1)
    }
    sites = _sites(device)
    return tuple(
        Step(number, event, call, names, sites, device)
        for number, (event, call) in enumerate(_calls(device.events))
    )


def _sites(device: Program) -> dict[Allocation, str]:
    """Where arrays were allocated: the function and the text of the line, with an ordinal among those of equal text that are there at
    once: an array that takes the place of a freed one, as in a loop, has its ordinal, and so have those of one name that the same
    calls make in a loop."""
    events = {event.number: event for event in device.events}
    there: dict[str, list[tuple[_Made, Allocation]]] = {}
    sites = {}
    for allocation, number in device.origins.items():
        call = events[number].site if number in events else CallSite("", "", 0)
        inside = f" in {call.function.rpartition('.')[2]}" if call.function or not call.address else ""
        text = f"{call.text}{inside}".strip() if call.path else ""
        alike = there.setdefault(text, [])
        own: _Made = (events[number].path if number in events else (), _NUMBER.sub("", allocation.name))
        loop = own[1] not in ("", _NAMELESS)
        again = (place for place, (made, _) in enumerate(alike) if loop and made == own)
        freed = (
            place for place, (_, other) in enumerate(alike) if device.ends.get(other, number + 1) <= number
        )
        place = next(again, next(freed, len(alike)))
        alike[place : place + 1] = [(own, allocation)]
        sites[allocation] = text if place == 0 or not text else f"{text} #{place + 1}"
    return sites


def _calls(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    """Events with the text that identifies them: the source line, with an ordinal among lines of equal text."""
    lines: dict[str, list[str]] = {}
    alike: dict[str, list[bytes]] = {}
    digests: dict[Function, bytes] = {}
    for event in events:
        text = event.site.text or event.kind
        places = lines.setdefault(text, [])
        site = event.site.place
        if site not in places:
            places.append(site)
        ordinal = places.index(site) + 1
        text = text if ordinal == 1 else f"{text} #{ordinal}"
        if event.function is not None:
            if event.function not in digests:
                digests[event.function] = event.function.module.digest
            kernels = alike.setdefault(event.kernel, [])
            if digests[event.function] not in kernels:
                kernels.append(digests[event.function])
            which = kernels.index(digests[event.function]) + 1
            text = text if which == 1 else f"{text} (kernel #{which})"
        yield event, text
