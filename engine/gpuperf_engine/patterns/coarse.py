"""Value patterns of whole objects at each step of the recorded program. PYTEST_DONT_REWRITE

The coarse-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated
Applications", ASPLOS 2022, section 3): *redundant values* (a step writes what was already there), *single value* and
*single zero* (all elements equal), *duplicate values* (two objects with the same contents). They are exact: the bytes
before and after each step are compared, and which bytes a launch stored to is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..device.device import Runtime
from ..device.recording import Event, Write
from ..errors import NotObserved
from ..memory.arrays import DeviceArray
from ..results import Finding

__all__ = ["REDUNDANT_SHARE", "find_patterns"]

#: a step is redundant for an object if at least this share of the elements it wrote held the same bits before; the
#: threshold of ValueExpert's coarse-grained analysis
REDUNDANT_SHARE = 1 / 3
WORDS = {"copy-in": "copy from the host", "copy": "copy", "memset": "memset", "launch": "launch"}


def find_patterns(device: Runtime) -> tuple[Finding, ...]:
    """All findings of the program recorded so far, in the order of its steps, without repetition.

    Raises ``NotObserved`` unless the device observes ``values``.
    """
    if "values" not in device.observe:
        raise NotObserved(
            "the values of the program were not observed", hint='use Device(observe={"memory", "values"})'
        )
    names = _object_names(device)
    contents: dict[DeviceArray, tuple[str, Event]] = {}
    found: dict[str, Finding] = {}
    for event, call in _calls(device.events):
        for write in event.writes:
            for finding in _of_write(event, call, write, names):
                found.setdefault(finding.identity, finding)
            for finding in _duplicates(event, call, write, contents, names):
                found.setdefault(finding.identity, finding)
            contents[write.array] = (write.digest, event)
    return tuple(found.values())


def _object_names(device: Runtime) -> dict[DeviceArray, str]:
    """The name of each array; nameless ones are numbered in the order they were made. Variables of modules have theirs."""
    names = {array: array.name or f"array#{number}" for number, array in enumerate(device.arrays, 1)}
    return {**names, **{array: array.name for array in device.set_variables}}


def _calls(events: Iterable[Event]) -> Iterable[tuple[Event, str]]:
    """Events beside the text that identifies them: the source line, with an ordinal where the same text stands on further
    lines. A line that runs again in a loop is the same call."""
    lines: dict[str, list[tuple[str, int]]] = {}
    for event in events:
        text = event.site.text or event.kind
        places = lines.setdefault(text, [])
        place = (event.site.path, event.site.line)
        if place not in places:
            places.append(place)
        ordinal = places.index(place) + 1
        yield event, text if ordinal == 1 else f"{text} #{ordinal}"


def _finding(rule: str, event: Event, call: str, name: str, message: str, **evidence: object) -> Finding:
    return Finding(
        rule=rule,
        object=name,
        call=call,
        message=message,
        path=event.site.path,
        line=event.site.line,
        kernel=event.kernel,
        evidence=evidence,
    )


def _step(event: Event) -> str:
    return f"the launch of {event.kernel!r}" if event.kind == "launch" else f"the {WORDS[event.kind]}"


def _of_write(event: Event, call: str, write: Write, names: dict[DeviceArray, str]) -> Iterable[Finding]:
    name = names[write.array]
    if write.written and write.unchanged >= REDUNDANT_SHARE * write.written:
        share = 100 * write.unchanged / write.written
        yield _finding(
            "redundant-values",
            event,
            call,
            name,
            f"{_step(event)} writes {write.written:,} elements of {name!r}; {write.unchanged:,} ({share:.1f} %) "
            "already held the same value",
            written=write.written,
            unchanged=write.unchanged,
            bytes=write.unchanged * write.array.dtype.itemsize,
        )
    if event.kind == "memset" or write.single is None or write.elements < 2:
        return
    if write.zero:
        yield _finding(
            "single-zero",
            event,
            call,
            name,
            f"after {_step(event)} all {write.elements:,} elements of {name!r} are zero",
            elements=write.elements,
        )
    else:
        yield _finding(
            "single-value",
            event,
            call,
            name,
            f"after {_step(event)} all {write.elements:,} elements of {name!r} are {write.single}",
            elements=write.elements,
            value=write.single,
        )


def _duplicates(
    event: Event,
    call: str,
    write: Write,
    contents: dict[DeviceArray, tuple[str, Event]],
    names: dict[DeviceArray, str],
) -> Iterable[Finding]:
    """Another object with the same contents; two objects that were merely cleared alike are no finding."""
    if write.elements < 2 or event.kind == "memset":
        return
    for other, (digest, origin) in contents.items():
        if (
            other is write.array
            or other.allocation.size != write.array.allocation.size
            or digest != write.digest
        ):
            continue
        yield _finding(
            "duplicate-values",
            event,
            call,
            names[write.array],
            f"after {_step(event)} {names[write.array]!r} holds the same {write.elements:,} elements as {names[other]!r} "
            f"(written by {_step(origin)} at {origin.site.path}:{origin.site.line})",
            other=names[other],
            written_at=f"{origin.site.path}:{origin.site.line}",
            bytes=write.array.allocation.size,
        )
        return
