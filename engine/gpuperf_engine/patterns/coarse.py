"""Value patterns of the objects that each step of the recorded program accesses.

The coarse-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated
Applications", ASPLOS 2022, section 3) for the range that a step wrote, and patterns that need a record of all accesses: unread stores,
redundant copies, uninitialised reads, unused memory. They are exact, as every byte that a step read or wrote is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..device.contents import Contents, percent
from ..device.events import Use
from ..device.thresholds import Thresholds
from ..memory.arena import Allocation
from ..memory.arrays import DeviceArray
from ..results import Finding, Traffic
from .program import Pattern, Step
from .traffic import Readers, written_less

__all__ = ["PATTERNS", "REDUNDANT_SHARE"]

REDUNDANT_SHARE = Thresholds().redundant

Pair = tuple[Step, Finding]


class RedundantValues:
    """A step writes values that memory already has, or the host copies out data of which it has a copy."""

    rules = ("redundant-values",)

    def __init__(self, share: float = REDUNDANT_SHARE) -> None:
        self.share = share

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """One finding for each object of a step."""
        idle = _idle_calls(steps)
        for step in steps:
            whole = (step.call, step.event.kernel) in idle
            for use in step.event.uses:
                if use.bytes_held:
                    yield step, self._copied_out(step, use)
                if not use.written or use.unchanged < self.share * use.written:
                    continue
                yield (
                    step,
                    step.finding(
                        "redundant-values",
                        use.array,
                        f"{step} writes {use.written:,} {_unit(use.array)} of {step.shown(use.array)!r}; {use.unchanged:,} "
                        f"({percent(use.unchanged, use.written)}) already held the same value",
                        waste=use.bytes_unchanged,
                        advice=_SKIP_COPY if step.event.kind != "launch" else _SKIP_STORE,
                        traffic=written_less(step, use.bytes_unchanged, whole),
                        written=use.written,
                        unchanged=use.unchanged,
                        bytes=use.unchanged * use.array.dtype.itemsize,
                    ),
                )

    def _copied_out(self, step: Step, use: Use) -> Finding:
        name = step.shown(use.array)
        return step.finding(
            "redundant-values",
            use.array,
            f"{step} copies {use.bytes_held:,} bytes of {name!r} to the host, which has them already",
            severity="note",
            waste=use.bytes_held,
            advice="keep the host's copy",
            traffic=[Traffic(step.event.number, copied=use.bytes_held, way=step.event.kind)],
            bytes=use.bytes_held,
        )


def _idle_calls(steps: Sequence[Step]) -> set[tuple[str, str]]:
    """Calls whose writes never change anything. A call that does so only sometimes may be needed, like the last iteration of a
    loop."""
    idle: dict[tuple[str, str], bool] = {}
    for step in steps:
        same = all(use.unchanged == use.written for use in step.event.writes)
        key = step.call, step.event.kernel
        idle[key] = idle.get(key, True) and same
    return {key for key, always in idle.items() if always}


_SKIP_COPY = "omit it if nothing changed since the last one"
_SKIP_STORE = "store only elements that change, or omit the launch if none does"


class ContentsOf:
    """Patterns of the elements that a step wrote."""

    rules = (
        "single-zero",
        "single-value",
        "frequent-values",
        "heavy-type",
        "structured-values",
        "approximate-values",
    )

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """Findings for each object of a step, except single values by a memset. A single value fails only if the call always writes
        one; otherwise the array is needed."""
        readers = Readers(steps)
        writes = [
            (step, use)
            for step in steps
            if step.event.kind in ("copy-in", "launch")
            for use in step.event.writes
        ]
        counts = Counter(_target(step, use) for step, use in writes)
        times = Counter(
            _target(step, use)
            for step, use in writes
            if any(contents.rule in _SINGLE for contents in use.contents)
        )
        for step, use in writes:
            for contents in use.contents:
                always = times[_target(step, use)] == counts[_target(step, use)]
                yield step, self._finding(step, use, contents, readers, always)

    def _finding(self, step: Step, use: Use, contents: Contents, readers: Readers, always: bool) -> Finding:
        rule = contents.rule
        width = use.array.dtype.itemsize
        single = rule in _SINGLE
        count = f"all {use.written:,}" if use.written == use.elements else f"the {use.written:,} written"
        verb = {
            "frequent-values": "mostly hold",
            "heavy-type": "need",
            "structured-values": "follow",
            "approximate-values": "are about",
        }.get(rule, "are")
        evidence = {"elements": use.written, **dict(contents.evidence)}
        share = 1 - contents.width / width
        # loads remain necessary, as the elements with the frequent value are unknown before
        loads = readers.without(step, use, share) if rule != "frequent-values" else ()
        return step.finding(
            rule,
            use.array,
            f"after {step} {count} {_unit(use.array)} of {step.shown(use.array)!r} {verb} {contents.text}",
            severity="fail" if single and always and use.written == use.elements else "note",
            waste=int(use.written * (width - contents.width)),
            advice=_ADVICE[rule, step.event.kind == "launch"],
            traffic=[*written_less(step, share * use.bytes_written), *loads],
            **evidence,
        )


_SINGLE = ("single-zero", "single-value")


def _unit(array: DeviceArray) -> str:
    """The unit of an array's size, for messages."""
    return "elements" if array.dtype.kind != "V" or array.dtype.itemsize > 1 else "bytes of unknown type"


def _target(step: Step, use: Use) -> tuple[str, str, str]:
    """The call and what it writes."""
    return step.call, step.event.kernel, step.identity(use.array)


_ADVICE = {
    ("single-zero", True): "use a memset, or do not compute what stays zero",
    ("single-zero", False): "use a memset instead of a copy",
    ("single-value", True): "pass the value as a parameter, or fill once outside the loop",
    ("single-value", False): "use a memset, or pass the value as a parameter",
    (
        "frequent-values",
        True,
    ): "treat the frequent value separately: test for it before loading, storing or computing",
    (
        "frequent-values",
        False,
    ): "fill with the frequent value on the device and copy the elements that differ",
    ("heavy-type", True): "store the elements in the narrower type",
    ("heavy-type", False): "copy the elements in the narrower type and widen them in the kernel",
    ("structured-values", True): "compute the value from the index where it is used",
    ("structured-values", False): "compute the value from the index on the device instead of copying it",
    ("approximate-values", True): "if the error is acceptable, use one value, or a type with fewer bits",
    ("approximate-values", False): "if the error is acceptable, use one value, or a type with fewer bits",
}


class DuplicateValues:
    """After a step other memory has the same contents; objects that were only filled with the same value are excluded."""

    rules = ("duplicate-values",)

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """One finding for each object of a step, about the memory that held the contents first."""
        origins = {step.event.number: step for step in steps}
        for step in steps:
            for use in step.event.writes if step.event.kind != "memset" else ():
                same = use.same
                origin = origins.get(same.writer) if same is not None else None
                if same is None or origin is None:
                    continue
                name, other = step.shown(use.array), step.shown(same.array)
                width = use.array.dtype.itemsize
                whole = same.bytes == use.array.allocation.size
                written_text = f"{name!r}" if whole else f"what it wrote to {name!r}"
                other_text = f"{other!r}" if same.start == 0 else f"{other!r} from byte {same.start:,} on"
                yield (
                    step,
                    step.finding(
                        "duplicate-values",
                        use.array,
                        f"after {step} {written_text} holds the same {same.bytes // width:,} {_unit(use.array)} as {other_text} "
                        f"(written by {origin} at {origin.place}{', freed since' if same.freed else ''})",
                        # freeing may have been necessary
                        severity="note" if same.freed or step.event.kind == "copy" else "fail",
                        waste=min(same.bytes, use.bytes_written),
                        advice=f"keep {other!r} instead of freeing it and writing the same again"
                        if same.freed
                        else f"use {other!r} instead of a second copy",
                        traffic=written_less(step, min(same.bytes, use.bytes_written)),
                        other=other,
                        written_at=origin.place,
                        bytes=same.bytes,
                    ),
                )


class DeadStores:
    """Later steps overwrite the values of a step before they are read: at least the same share as for redundant values, for every
    execution of the call, as a store that is read once is needed. If only some of the arrays that one line allocates in a loop are
    needed, the others are a note.

    Clearing memory at its allocation is excluded, and so are values that the later step does not change, which is redundant there.
    """

    rules = ("dead-stores",)

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """One finding for each object that a step wrote in vain, at that step."""
        lost: dict[tuple[int, DeviceArray], tuple[int, Step]] = {}
        left: dict[int, int] = {}
        for step in steps:
            left[step.event.number] = sum(use.bytes_written for use in step.event.uses)
            for use in step.event.writes:
                if use.unchanged < REDUNDANT_SHARE * use.written:
                    for number, size in use.unread:
                        before, _ = lost.get((number, use.array), (0, step))
                        left[number] = left.get(number, 0) - size
                        lost[number, use.array] = before + size, step
        calls: dict[tuple[str, str, str], list[_Written]] = {}
        for step in steps:
            for use in step.event.writes:
                size, last = lost.get((step.event.number, use.array), (0, step))
                calls.setdefault(_target(step, use), []).append(_Written(step, use, size, last))
        for every in calls.values():
            dead = _in_vain(every)
            needed = len(dead) < len(every)
            whole = not needed and all(item.lost == item.use.bytes_written for item in dead)
            for item in dead:
                severity = "note" if needed else "fail"
                idle = not left[item.step.event.number]
                yield item.step, self._finding(item, idle, whole, severity)

    def _finding(self, written: _Written, idle: bool, whole: bool, severity: str) -> Finding:
        step, use, size, last = written
        return step.finding(
            "dead-stores",
            use.array,
            f"{step} writes {size:,} bytes of {step.shown(use.array)!r} that {last} at {last.place} overwrites before "
            "anybody reads them",
            severity=severity,
            waste=size,
            advice="omit the first of the two, or write only what the second does not",
            traffic=written_less(step, size, idle),
            bytes=size,
            whole=whole,
            written_at=last.place,
        )


class _Written(NamedTuple):
    """The bytes that a step wrote to an object, and how many of them were overwritten unread, by the step ``last``."""

    step: Step
    use: Use
    lost: int
    last: Step

    @property
    def is_dead(self) -> bool:
        return self.lost >= REDUNDANT_SHARE * self.use.bytes_written and not self.step.made(self.use.array)


def _in_vain(every: list[_Written]) -> list[_Written]:
    """The dead writes of a call: if all of its executions are dead; or, for arrays that one line allocates in a loop, if all
    executions for some of them are dead and these reach the share of redundant values."""
    arrays: dict[Allocation, list[_Written]] = {}
    for item in every:
        arrays.setdefault(item.use.array.allocation, []).append(item)
    dead = [item for alike in arrays.values() if all(item.is_dead for item in alike) for item in alike]
    lost, written = sum(item.lost for item in dead), sum(item.use.bytes_written for item in every)
    return dead if lost >= REDUNDANT_SHARE * written else []


class UninitializedReads:
    """A step reads memory that was never written."""

    rules = ("uninitialized-reads",)

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """One finding for each array of a step; variables of modules are loaded with zeros."""
        for step in steps:
            for use in step.event.uses:
                if use.bytes_blank and step.is_array(use.array):
                    yield (
                        step,
                        step.finding(
                            "uninitialized-reads",
                            use.array,
                            f"{step} reads {use.bytes_blank:,} bytes of {step.shown(use.array)!r} that are uninitialised",
                            severity="note",
                            advice="write them first, or do not read them",
                            bytes=use.bytes_blank,
                        ),
                    )


class UnusedValues:
    """Memory that the host writes but that is never read, or that is never accessed."""

    rules = ("unused-values",)

    def find(self, steps: Sequence[Step]) -> Iterator[Pair]:
        """One finding for each array, at the step that made it, and for each copy from the host to one that was there."""
        copies = {step.event.number: step for step in steps if step.event.kind == "copy-in"}
        launches = any(step.event.kind == "launch" for step in steps)
        reported = set()
        for step in steps if launches and steps[0].program.observed_all else ():
            for array in step.event.objects[:1]:
                if array.allocation in reported or not step.is_array(array):
                    continue
                reported.add(array.allocation)
                untouched, unread = step.untouched(array)
                by_host = step.event.kind == "copy-in"
                lost = untouched + (unread if by_host else 0)
                if lost:
                    yield step, self._finding(step, array, lost, by_host)
                for number, size in () if by_host else step.never_read(array).items():
                    if number in copies:
                        yield copies[number], self._finding(copies[number], array, size, True)

    def _finding(self, step: Step, array: DeviceArray, lost: int, by_host: bool) -> Finding:
        copied = Traffic(step.event.number, copied=lost, way=step.event.kind)
        return step.finding(
            "unused-values",
            array,
            f"{lost:,} of {array.allocation.size:,} bytes of {step.shown(array)!r} "
            + ("nobody reads" if by_host else "nobody touches"),
            severity="note",
            waste=lost if by_host else 0,
            advice="copy or allocate only the bytes that are used",
            traffic=[copied] if by_host else (),
            bytes=lost,
        )


PATTERNS: tuple[Pattern, ...] = (
    RedundantValues(),
    ContentsOf(),
    DuplicateValues(),
    DeadStores(),
    UninitializedReads(),
    UnusedValues(),
)
