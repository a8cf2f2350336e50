"""Statistics of the values that a launch accessed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AffineFit", "ProvenValues", "ValueRecord"]


@dataclass(frozen=True, slots=True)
class AffineFit:
    """An affine function of the index of an element (bytes from the object's start / width of an element): element ``start`` holds
    ``base``, and ``slope`` more each next one, or the one ``every`` so many elements behind, as in an array of structures; integers
    modulo 2^32 or 2^64, floats to their rounding. Of an array of two or three
    axes ``slope`` is that of the last one, ``beyond`` has those of the axes before it, the last one first, and ``sizes`` the elements
    of the last axis, and of the last two. ``fits`` of the accesses carried the value of the function; it goes through one
    access, and along each axis through one elsewhere. ``before``: accesses before that one, which are not held against it."""

    start: int
    base: int | float
    slope: int | float
    fits: int
    beyond: tuple[int | float, ...] = ()
    sizes: tuple[int, ...] = ()
    every: int = 1
    before: int = 0

    @property
    def slopes(self) -> tuple[int | float, ...]:
        """Along each axis, the last one first."""
        return self.slope, *self.beyond

    @property
    def at_zero(self) -> int | float:
        """The value of the function at element 0."""
        index, value = self.start, self.base
        for size, slope in zip(reversed(self.sizes), reversed(self.beyond)):
            value -= index // size * slope
            index %= size
        return value - (index * self.slope if self.every == 1 else index / self.every * self.slope)


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """The values of the accesses of one instruction to one object. Counts are of elements: a lane that loads ``.v4`` counts four
    times.

    ``function``, ``line`` and ``opcode`` as in ``SiteProfile``, and so ``source``, but for inlined functions of CUDA's headers the
    line that calls them; ``site`` is its index in ``Profile.sites``, ``element`` that of the element in a vector access. ``kind``
    is ``load``, ``store``, ``atomic`` or ``reduction`` (for the last two the operand of the lanes is recorded); ``space``
    ``global``, ``const``, ``param``, ``shared`` or ``local``; ``object`` the name of the allocation, ``shared memory`` or ``local
    memory``. ``type`` is the type of the bits (``f32``, ``s32``, ``u8`` …), ``b32`` if it is unknown.

    ``minimum`` and ``maximum`` ignore NaN and are ``None`` if all are NaN. ``zeros`` also counts −0.0. ``silent``: stores to global
    memory that do not change its bits. ``reloads``: loads from global or constant memory, none of them strong, of bits that the
    thread has loaded from there before, with this instruction or another one of its width: the last 1,024 loads of warps are
    remembered, so that some may be missed. ``top``: up to 16 values with counts, most frequent first; a value may have at most
    ``top_error`` more accesses than counted, and other values have at most ``top_error`` ≤ count / 8: a summary (Misra and Gries,
    1982) of 16 warps at a time, which may omit values with less than a sixteenth, merged as by Agarwal et al., "Mergeable
    summaries", 2012. It is exact up to 16 distinct values, and for 8-bit values. ``distinct`` counts distinct bit patterns; it is
    exact if ``distinct_exact``, which is so up to 384 of them, otherwise an estimate whose standard error is 1.2/√192 = 9 % at most
    (adaptive sampling, Flajolet, 1990). ``mantissa_bits``: the bits of the fraction from the first to the last one that is set in
    any value; ``None`` for integers. ``smallest``: the smallest nonzero absolute value of floats. ``affine``: see there; ``None``
    if all accesses are at one index, if none of eight functions fits (for integers with integer slopes: if fewer than half of 256
    or more accesses are on it), and for 16-bit floats. ``mean`` and ``deviation`` (standard) of floats of 32 and 64 bits, ``None``
    if a value differs from the first one by more than the first value itself. ``elements``: the number of elements of that width in
    the object, ``None`` for shared and local memory. ``several_elements``: whether accesses are at more than one index.
    ``uninitialized``: whether the instruction, in any object, read uninitialised bytes. ``dead_bytes``: for stores to global memory
    the bytes that the same thread overwrote before they were read (``simt.dead_stores``), ``None`` if that is not traced;
    ``overwriter``: line and source of the store that overwrote most of them. ``neutral``: for atomics and reductions whose result
    is unused, the operand that does not change memory (0 for ``add``, ``or``, ``xor``, and ``max`` of unsigned integers), ``None``
    for others.
    """

    function: str
    line: int
    opcode: str
    source: str
    site: int
    element: int
    kind: str
    space: str
    object: str
    type: str
    width: int
    count: int
    minimum: int | float | None
    maximum: int | float | None
    zeros: int
    nans: int
    silent: int
    reloads: int
    top: tuple[tuple[int | float, int], ...]
    top_error: int
    distinct: int
    distinct_exact: bool
    mantissa_bits: int | None
    smallest: float | None
    affine: AffineFit | None
    mean: float | None
    deviation: float | None
    elements: int | None
    several_elements: bool
    uninitialized: bool
    dead_bytes: int | None = None
    overwriter: tuple[int, str] | None = None
    neutral: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes that the accesses moved."""
        return self.count * self.width

    @property
    def single(self) -> bool:
        """Whether all accesses carried one value."""
        return self.zeros == self.count or (self.distinct_exact and self.distinct == 1)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, ``bytes`` included."""
        return {**asdict(self), "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class ProvenValues:
    """Values that one element of an instruction loads from or stores to one object, as warp classes prove for a launch of which not
    every block ran: the values are ``base + slope · index``, modulo 2^bits, with the index of the element in the object (bytes from
    its start / ``width``), and ``base`` alone where the slope is 0.

    ``function``, ``line``, ``opcode``, ``source``, ``site``, ``element``, ``kind`` (``load`` or ``store``), ``object``, ``type`` and
    ``width`` as in ``ValueRecord``; ``count`` is exact, of elements. ``elements``: a lower bound of the distinct elements accessed;
    ``capacity``: the number of elements of that width in the object. ``moved``: bytes that the whole launch loads from, or stores
    to, global memory; 0 if accesses were not counted.
    """

    function: str
    line: int
    opcode: str
    source: str
    site: int
    element: int
    kind: str
    object: str
    type: str
    width: int
    count: int
    base: int | float
    slope: int
    elements: int
    capacity: int
    moved: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that the accesses moved."""
        return self.count * self.width

    @property
    def single(self) -> bool:
        """Whether all accesses carry one value."""
        return not self.slope

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, ``bytes`` included."""
        return {**asdict(self), "bytes": self.bytes}
