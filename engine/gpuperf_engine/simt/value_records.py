"""Statistics of accessed values: a record of constant size for each element of a memory instruction and object.

Both backends update these records in the order in which warps run, with equal results. A *batch* is one element of an access, in the
lanes of a warp that access one object; each ``BATCHES`` batches of a record are a *chunk*, and so is the remainder at the end.

- Counts and bounds do not depend on the order.
- The most frequent values are a summary of ``TOP`` counters (Misra and Gries, "Finding repeated elements", 1982), into which each
  chunk is merged (Agarwal et al., "Mergeable summaries", PODS 2012): all counts are reduced by the first count that does not fit,
  in total by at most ``count / (TOP + 1)``. As long as all values fit, all values of a chunk take part; later only those that
  may be more than a sixteenth of it: elements are counted in ``BUCKETS`` by their hash, and values are taken from a bucket until it
  has no more than that; its other values are lost. So no value loses more than an eighth of all accesses.
- Values of 8 bits are all counted, and the ``TOP`` most frequent are kept (for equal counts, the lower bits).
- Distinct values are sampled by their hash (Flajolet, "On adaptive sampling", Computing 43, 1990): all of them until there are more
  than ``MOST_SAMPLED``, then those whose hash has one more leading zero, and so on.
- A warp's load from the arena is stored in a table, and compared with its next load of that width whose first and last lane have the
  same addresses: lanes with the same address and bits are reloads. Another load may replace its entry (``load_place``).
- Differences of 32-bit and 64-bit floats from the first value, and their squares, are summed in doubles, lane by lane, as long as none
  exceeds that value.
- An affine function of the index is fitted to the first access and, along each of up to three axes of the object, another one: the
  last lane of the first batch that contains one which differs along no other axis without a slope. Accesses on the line are
  counted. For floats, it is fitted again to accesses twice as far away, if the slope changes by no more than the rounding of the
  values. For integers, a slope along the only axis may be per several elements, as in arrays of structures. The line is discarded
  if no integer slope fits, if it contains fewer than half of the batch to which it is fitted, or, after a chunk, fewer than half of
  ``LINE_TRIAL`` or more accesses; a new line is then fitted from the next batch, up to ``LINES`` times.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..flow.access_types import access_types
from ..flow.operands import reads, writes
from ..isa.effects import (
    ASYNC_COPY,
    ATOMIC,
    BULK_COPY,
    LOAD,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUCTION,
    STORE,
    TENSOR_PRODUCT,
    WARPGROUP,
)
from ..isa.types import scalar_type
from ..memory.arena import Memory
from ..ptx.syntax import Instruction
from ..results import AffineFit, ValueRecord
from .effects import is_recorded_copy, is_strong, site_kind
from .program import Program

__all__ = [
    "BATCHES",
    "BUCKETS",
    "DISTINCT_SLOTS",
    "FAR",
    "HASH_FACTORS",
    "HEAVY_SHIFT",
    "LINES",
    "LINE_TRIAL",
    "LOADS",
    "LOAD_FACTORS",
    "MOST_SAMPLED",
    "NEAR",
    "TALLIED",
    "TOLERANCE",
    "TOP",
    "WIDE",
    "Carried",
    "ValueKind",
    "ValueSlot",
    "describe",
    "heavy",
    "load_place",
    "object_namer",
    "part_of_word",
    "tallied",
    "value_kind",
    "value_slots",
]

#: the number of most frequent values in a record
TOP = 16
#: batches per chunk, hash buckets for its elements, and the threshold of frequent values: n >> ``HEAVY_SHIFT`` in a chunk of n
BATCHES = 16
BUCKETS = 256
HEAVY_SHIFT = 4
#: size of the table of previous loads
LOADS = 1024
#: number of distinct 8-bit values
TALLIED = 256
#: the maximum number of sampled values, and the size of their table
MOST_SAMPLED = 384
DISTINCT_SLOTS = 1024
#: odd factors of the hash, by bits of a word: x ^= x >> half, x *= factor, twice, and x ^= x >> half
HASH_FACTORS = {32: (0x7FEB352D, 0x846CA68B), 64: (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)}
#: factors of the hash of loads
LOAD_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
#: the maximum distance of a float from a line, relative to its own value and the base's: two units in the last place
TOLERANCE = {32: 2.0**-22, 64: 2.0**-51}
#: accesses after which a line that contains fewer than half of them is discarded, and the maximum number of lines
LINE_TRIAL = 256
LINES = 8
#: larger than any distance of accesses, as the slope of integers is fitted once
FAR = 1 << 31
_OBSERVED = (
    LOAD, STORE, ATOMIC, REDUCTION, ASYNC_COPY, BULK_COPY, MATRIX_LOAD, MATRIX_STORE, WARPGROUP, TENSOR_PRODUCT
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The interpretation of bits: ``kind`` is ``u``, ``s`` or ``f``; floats have ``fraction`` bits. ``fits``: whether lines are
    fitted; ``word``: bits of the words in which lanes are computed."""

    name: str
    kind: str
    bits: int
    fraction: int = 0
    is_float: bool = field(init=False)
    fits: bool = field(init=False)
    word: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind == "f")
        object.__setattr__(self, "fits", self.kind != "f" or self.bits >= 32)
        object.__setattr__(self, "word", 64 if self.bits == 64 else 32)

    @property
    def infinity(self) -> int:
        """The bits of +∞."""
        return (1 << (self.bits - 1)) - (1 << self.fraction)


_FLOATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}


@cache
def value_kind(name: str) -> ValueKind:
    """The interpretation of a type's values; types that are not numbers are unsigned."""
    if name in _FLOATS:
        bits, fraction = _FLOATS[name]
        return ValueKind(name, "f", bits, fraction)
    type = scalar_type(name)
    kind = "s" if type.kind == "s" and type.lanes == 1 else "u"
    return ValueKind(f"{kind}{type.bits}", kind, type.bits)


@dataclass(frozen=True, slots=True)
class ValueSlot:
    """One element of a memory instruction: ``type`` is the name of its type, ``b32`` if unknown."""

    index: int
    site: int
    element: int
    type: str
    kind: ValueKind


def value_slots(program: Program) -> dict[int, tuple[ValueSlot, ...]]:
    """The elements of each site that are recorded, by site."""
    return program.once(_slots)


def _slots(program: Program) -> dict[int, tuple[ValueSlot, ...]]:
    types, slots, count = access_types(program), dict[int, tuple[ValueSlot, ...]](), 0
    for site in program.sites:
        known = types.get(site.instruction)
        if site.instruction.effect not in _OBSERVED or site.space == "param" or known is None:
            continue
        if scalar_type(known[0]).bits not in (8, 16, 32, 64):
            continue
        if site.instruction.effect is BULK_COPY and not is_recorded_copy(site.instruction):
            continue
        slots[site.index] = tuple(
            ValueSlot(count + element, site.index, element, name, value_kind(name))
            for element, name in enumerate(known)
        )
        count += len(known)
    return slots


def part_of_word(slot: ValueSlot, of_site: Sequence[ValueSlot]) -> int | None:
    """The index of an element in its word, if each lane moves whole words in smaller elements; the detection of dead stores uses the
    first one for the whole word."""
    bits = slot.kind.bits
    return slot.element * bits % 32 // bits if bits < 32 and len(of_site) * bits % 32 == 0 else None


@dataclass(slots=True)
class Carried:
    """One record. ``maximum`` is a key, with the same order as values, and ``minimum`` the complement of a key; ``tiny`` is the
    complement of the least nonzero magnitude, or 0; ``top`` maps bits to counts; ``sampled`` counts hashes up to 2^(bits − ``level``),
    without that of 0. ``dead`` are bytes overwritten unread (``dead_stores``), ``overwriter`` is the slot + 1 that
    overwrote most of them, ``lead`` bytes more than others (a majority vote: Boyer and Moore, 1981)."""

    slot: int
    space: int
    start: int
    count: int = 0
    zeros: int = 0
    negative_zeros: int = 0
    nans: int = 0
    silent: int = 0
    reloads: int = 0
    minimum: int = 0
    maximum: int = 0
    ors: int = 0
    tiny: int = 0
    line: int = 0
    line_index: int = 0
    line_base: int = 0
    slopes: tuple[int | float, ...] = (0, 0, 0)
    run: int = 1
    row: int = 0
    plane: int = 0
    tries: int = 0
    fits: int = 0
    #: accesses since the line was fitted
    seen: int = 0
    spread: tuple[float, float, float] | None = None
    top_error: int = 0
    top: dict[int, int] = field(default_factory=dict)
    level: int = 0
    sampled: int = 0
    dead: int = 0
    overwriter: int = 0
    lead: int = 0

    def overwritten(self, overwriter: int, bytes: int) -> None:
        """So many bytes are dead, overwritten by a slot (+ 1)."""
        self.dead += bytes
        if self.overwriter == overwriter:
            self.lead += bytes
        elif self.lead >= bytes:
            self.lead -= bytes
        else:
            self.overwriter, self.lead = overwriter, bytes - self.lead


#: whether all differences of floats from the first value are at most that value, or one is larger
NEAR, WIDE = 1, 2
#: states of ``Carried.line``: fitted to one access, fitted to two, discarded
ANCHORED, SLOPED, BROKEN = 1, 2, 3


def describe(
    program: Program,
    records: Iterable[Carried],
    object_at: Callable[[int, int], tuple[str, str, int | None]],
    uninitialized: Collection[int],
    traced: bool,
) -> tuple[ValueRecord, ...]:
    """The records as users see them, in program order. ``object_at`` returns space, name and bytes of an object for the kind of its
    space (0 the arena, 1 shared, 2 local) and its start; ``uninitialized`` are the sites that read uninitialised memory;
    ``traced``: dead stores were detected."""
    described = program.once(_described_slots)
    ordered = sorted(records, key=attrgetter("slot", "space", "start"))
    return tuple(
        _described(
            *described[item.slot], item, program, uninitialized, traced, *object_at(item.space, item.start)
        )
        for item in ordered
    )


def _described_slots(program: Program) -> list[tuple[ValueSlot, dict[str, Any], bool]]:
    """The slots in order, the common fields of the records of each, and whether its stores may be dead."""
    described = []
    used = {
        register
        for function in program.functions
        for item in function.instructions
        for register in reads(item)
    }
    for site, slots in value_slots(program).items():
        of_site = program.sites[site]
        instruction = of_site.instruction
        location = instruction.location
        common = {
            "function": program.functions[program.blocks[of_site.block].function].name,
            "line": instruction.span.line,
            "opcode": instruction.opcode,
            "source": "" if location is None else str(location.own),
            "site": site,
            "kind": of_site.kind,
            "neutral": None if used.intersection(writes(instruction)) else _neutral(instruction),
        }
        may_be_dead = _may_be_dead(instruction)
        for slot in slots:
            own = {"element": slot.element, "type": slot.type, "width": slot.kind.bits // 8}
            described.append((slot, common | own, may_be_dead))
    return described


def object_namer(memory: Memory) -> Callable[[int, int], tuple[str, str, int | None]]:
    """A function that returns space, name and bytes of an object for the kind of its space and its start."""

    def name(space: int, start: int) -> tuple[str, str, int | None]:
        if space:
            word = ("shared", "local")[space - 1]
            return word, f"{word} memory", None
        allocation = memory.below(start)
        return (
            ("global", "memory", None)
            if allocation is None
            else (allocation.kind, allocation.name, allocation.size)
        )

    return name


def _described(
    slot: ValueSlot,
    common: dict[str, Any],
    may_be_dead: bool,
    item: Carried,
    program: Program,
    uninitialized: Collection[int],
    traced: bool,
    space: str,
    name: str,
    size: int | None,
) -> ValueRecord:
    kind = slot.kind
    numbers = item.count != item.nans
    top = sorted(item.top.items(), key=_frequent_first)
    mean, deviation = _spread(item)
    distinct = (item.sampled << item.level) + (item.zeros > item.negative_zeros)
    return ValueRecord(
        **common,
        space=space,
        object=name,
        count=item.count,
        minimum=_of_key(kind, ~item.minimum) if numbers else None,
        maximum=_of_key(kind, item.maximum) if numbers else None,
        zeros=item.zeros,
        nans=item.nans,
        silent=item.silent,
        reloads=item.reloads,
        top=tuple([(number_of(kind, bits), count) for bits, count in top]),
        top_error=item.top_error,
        distinct=min(distinct, item.count),
        distinct_exact=item.level == 0,
        mantissa_bits=_mantissa_bits(kind, item.ors) if kind.is_float else None,
        smallest=_smallest(kind, item) if kind.is_float else None,
        affine=_affine(kind, item) if kind.fits and item.line == SLOPED else None,
        mean=mean,
        deviation=deviation,
        elements=None if size is None else size // common["width"],
        several_elements=item.line > ANCHORED or item.tries > 0,
        uninitialized=slot.site in uninitialized,
        dead_bytes=item.dead if may_be_dead and traced and space == "global" else None,
        overwriter=_overwriter(program, item) if item.overwriter else None,
    )


def _frequent_first(counted: tuple[int, int]) -> tuple[int, int]:
    return -counted[1], counted[0]


def _neutral(instruction: Instruction) -> int | None:
    """The operand with which an atomic or a reduction does not change memory, except for the sign of a zero."""
    words = instruction.opcode.split(".")
    if instruction.effect not in (ATOMIC, REDUCTION) and site_kind(instruction) != "reduction":
        return None
    return 0 if {"add", "or", "xor"}.intersection(words) or ("max" in words and words[-1][0] == "u") else None


def _may_be_dead(instruction: Instruction) -> bool:
    """Whether it is a store that other threads cannot observe before they synchronise."""
    return instruction.effect in (STORE, MATRIX_STORE) and not is_strong(instruction)


def _overwriter(program: Program, item: Carried) -> tuple[int, str]:
    """PTX line and source line of the store that overwrote most of the dead bytes."""
    _, common, _ = program.once(_described_slots)[item.overwriter - 1]
    return common["line"], common["source"]


def number_of(kind: ValueKind, bits: int) -> int | float:
    """Bits as a number."""
    bits &= (1 << kind.bits) - 1
    if not kind.is_float:
        return bits - (1 << kind.bits) if kind.kind == "s" and bits >> (kind.bits - 1) else bits
    if kind.name == "bf16":
        bits <<= 16
    number, words = _NUMBERS[kind.name]
    unpacked: float = number(words(bits))[0]
    return unpacked


#: by float type: unpacks a number, and packs its word
_NUMBERS = {
    name: (struct.Struct(number).unpack, struct.Struct(word).pack)
    for name, number, word in (
        ("f16", "<e", "<H"), ("bf16", "<f", "<I"), ("f32", "<f", "<I"), ("f64", "<d", "<Q"),
    )
}  # fmt: skip


def _of_key(kind: ValueKind, key: int) -> int | float:
    """The number of a key."""
    if kind.is_float:
        key &= (1 << kind.bits) - 1
        sign = 1 << (kind.bits - 1)
        return number_of(kind, key ^ sign if key & sign else ~key)
    key &= (1 << kind.word) - 1
    return key - (1 << (kind.word - 1)) if kind.kind == "s" else key


def _mantissa_bits(kind: ValueKind, ors: int) -> int:
    fraction = ors & ((1 << kind.fraction) - 1)
    return kind.fraction - ((fraction & -fraction).bit_length() - 1) if fraction else 0


def _smallest(kind: ValueKind, item: Carried) -> float | None:
    if not item.tiny:
        return None
    return float(number_of(kind, ~item.tiny & ((1 << kind.word) - 1)))


def _spread(item: Carried) -> tuple[float | None, float | None]:
    """Mean and standard deviation of the values, ``None`` if unknown."""
    if item.spread is None:
        return None, None
    reference, differences, squares = item.spread
    off = differences / item.count
    return reference + off, math.sqrt(max(0.0, squares / item.count - off * off))


def _affine(kind: ValueKind, item: Carried) -> AffineFit:
    slopes: list[int | float] = [*item.slopes]
    if not kind.is_float:
        slopes = [number_of(ValueKind("", "s", kind.word), int(slope)) for slope in slopes]
    every = item.run
    if every > 1:
        common = math.gcd(int(slopes[0]), every)
        slopes[0], every = int(slopes[0]) // common, every // common
    axes = 1 if not item.row else 2 if item.plane >= FAR - 1 else 3
    return AffineFit(
        item.line_index,
        number_of(kind, item.line_base),
        slopes[0],
        item.fits,
        tuple(slopes[1:axes]),
        (item.row, item.plane)[: axes - 1],
        every,
        item.count - item.seen,
    )


def key_of(kind: ValueKind, values: NDArray[Any]) -> NDArray[Any]:
    """Keys with the same order as the values, from their bits in unsigned words."""
    word = values.dtype.type
    if kind.is_float:
        sign, whole = word(1 << (kind.bits - 1)), word((1 << kind.bits) - 1)
        return np.asarray(np.where(values & sign, values ^ whole, values | sign))
    return np.asarray(values ^ word(1 << (kind.word - 1))) if kind.kind == "s" else values


def hashed(values: NDArray[Any]) -> NDArray[Any]:
    """Hashes of words; the hash is a bijection."""
    word, width = values.dtype.type, values.dtype.itemsize * 8
    half = word(width // 2)
    for factor in HASH_FACTORS[width]:
        values = (values ^ (values >> half)) * word(factor)
    return np.asarray(values ^ (values >> half))


def load_place(first: int, last: int, warp: int) -> int:
    """The table index of a load, from the addresses of its first and last lane and the number of its warp in the launch + 1."""
    mixed = (first + last * LOAD_FACTORS[0] + warp * LOAD_FACTORS[1]) % (1 << 64)
    return (mixed ^ mixed >> 32) * LOAD_FACTORS[1] % (1 << 64) >> 64 - (LOADS.bit_length() - 1)


def tallied(item: Carried, counts: dict[int, int]) -> None:
    """Store the counts of 8-bit values, by the bits of the word, in a record."""
    ordered = sorted(counts.items(), key=_frequent_first)
    item.top = dict(ordered[:TOP])
    item.top_error = ordered[TOP][1] if len(ordered) > TOP else 0
    item.sampled = len(counts) - (0 in counts)


def heavy(words: NDArray[Any]) -> tuple[dict[int, int], int]:
    """The frequent values of a chunk with their counts, and the maximum count of other values. Values are taken from a hash bucket, in
    order of occurrence, until few elements are left in it."""
    few = len(words) >> HEAVY_SHIFT
    buckets = (hashed(words) & words.dtype.type(BUCKETS - 1)).astype(np.int64)
    counts = np.bincount(buckets, minlength=BUCKETS)
    values, lost = dict[int, int](), int(counts[counts <= few].max(initial=0))
    for bucket in np.flatnonzero(counts > few).tolist():
        different, first, own = np.unique(words[buckets == bucket], return_index=True, return_counts=True)
        left = int(counts[bucket])
        for position in np.argsort(first).tolist():
            if left <= few:
                break
            values[int(different[position])] = int(own[position])
            left -= int(own[position])
        lost = max(lost, left)
    return values, lost


def merged(top: dict[int, int], batch: Sequence[tuple[int, int]]) -> tuple[dict[int, int], int]:
    """A summary merged with a batch of values and counts, and the amount by which all counts were reduced."""
    together = dict(top)
    for value, count in batch:
        together[value] = together.get(value, 0) + count
    if len(together) <= TOP:
        return together, 0
    less = sorted(together.values(), reverse=True)[TOP]
    return {value: count - less for value, count in together.items() if count > less}, less
