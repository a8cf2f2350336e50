"""Value patterns of whole objects at each step of the recorded program.

The coarse-grained patterns of ValueExpert (Zhou et al., "ValueExpert: Exploring Value Patterns in GPU-Accelerated
Applications", ASPLOS 2022, section 3): *redundant values* (a step writes what was already there), *single value* and
*single zero* (all elements equal), *duplicate values* (two objects with the same contents). They are exact: the bytes
before and after each step are compared, and which bytes a launch stored to is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..memory.arrays import DeviceArray
from ..results import Finding
from .program import Pattern, Step

__all__ = ["PATTERNS", "REDUNDANT_SHARE", "DuplicateValues", "RedundantValues", "SingleValues"]

#: a step is redundant for an object if at least this share of the elements it wrote held the same bits before; the
#: threshold of ValueExpert's coarse-grained analysis
REDUNDANT_SHARE = 1 / 3


class RedundantValues:
    """A step writes what was already there."""

    rules = ("redundant-values",)

    def find(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Finding]]:
        """One finding for each object of a step."""
        for step in steps:
            for write in step.event.writes:
                if not write.written or write.unchanged < REDUNDANT_SHARE * write.written:
                    continue
                share = 100 * write.unchanged / write.written
                yield (
                    step,
                    step.finding(
                        "redundant-values",
                        write.array,
                        f"{step} writes {write.written:,} elements of {step.name(write.array)!r}; {write.unchanged:,} "
                        f"({share:.1f} %) already held the same value",
                        written=write.written,
                        unchanged=write.unchanged,
                        bytes=write.unchanged * write.array.dtype.itemsize,
                    ),
                )


class SingleValues:
    """After a step that is not a memset all elements of an object are equal."""

    rules = ("single-value", "single-zero")

    def find(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Finding]]:
        """One finding for each object of a step."""
        for step in steps:
            for write in step.event.writes if step.event.kind != "memset" else ():
                if write.single is None or write.elements < 2:
                    continue
                rule, value = ("single-zero", "zero") if write.zero else ("single-value", write.single)
                evidence = {} if write.zero else {"value": write.single}
                yield (
                    step,
                    step.finding(
                        rule,
                        write.array,
                        f"after {step} all {write.elements:,} elements of {step.name(write.array)!r} are {value}",
                        elements=write.elements,
                        **evidence,
                    ),
                )


class DuplicateValues:
    """After a step another object has the same contents; two that were merely cleared alike are no finding."""

    rules = ("duplicate-values",)

    def find(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Finding]]:
        """One finding for each object of a step, about the object that held the contents first."""
        contents: dict[DeviceArray, tuple[str, Step]] = {}
        for step in steps:
            for write in step.event.writes:
                array = write.array
                if write.elements >= 2 and step.event.kind != "memset":
                    alike = (
                        (other, origin)
                        for other, (digest, origin) in contents.items()
                        if other is not array
                        and digest == write.digest
                        and other.allocation.size == array.allocation.size
                    )
                    for other, origin in alike:
                        yield (
                            step,
                            step.finding(
                                "duplicate-values",
                                array,
                                f"after {step} {step.name(array)!r} holds the same {write.elements:,} elements as "
                                f"{step.name(other)!r} (written by {origin} at {origin.place})",
                                other=step.name(other),
                                written_at=origin.place,
                                bytes=array.allocation.size,
                            ),
                        )
                        break
                contents[array] = (write.digest, step)


PATTERNS: tuple[Pattern, ...] = (RedundantValues(), SingleValues(), DuplicateValues())
