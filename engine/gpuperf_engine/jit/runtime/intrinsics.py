"""Functions, in addition to arithmetic, of the subset of Python that ``compile_python`` translates. They are translated to LLVM IR
and have no body."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = [
    "acquire64",
    "add64",
    "alike",
    "batch_claim",
    "batch_compare",
    "batch_holding",
    "batch_keep",
    "batch_places",
    "batch_row",
    "batch_same",
    "bits_count",
    "call",
    "claimed",
    "claimed_beside",
    "compare_swap",
    "compare_swap64",
    "copy",
    "differing",
    "earliest",
    "expanded",
    "fill",
    "first_of",
    "in_row",
    "last_of",
    "leading_zeros",
    "load8",
    "load16",
    "load32",
    "load64",
    "most_alike",
    "neighbours",
    "numbers",
    "pieces_loaded",
    "pieces_stored",
    "prefetch",
    "release8",
    "release64",
    "renewed",
    "sectors_of",
    "separate",
    "store8",
    "store16",
    "store32",
    "store64",
    "trailing_zeros",
    "unsigned_less",
]


_Function = TypeVar("_Function", bound=Callable[..., int])


def expanded(function: _Function) -> _Function:
    """Decorates a function that is expanded at all its calls."""
    return function


def separate(function: _Function) -> _Function:
    """Decorates a function that is expanded at none of its calls, so that its caller keeps its own values in registers."""
    return function


def load8(address: int) -> int:
    """The byte at a host address, zero-extended."""
    raise NotImplementedError


load16 = load32 = load64 = load8


def store8(address: int, value: int) -> None:
    """Store the low byte of a value at a host address."""
    raise NotImplementedError


store16 = store32 = store64 = store8


def copy(target: int, source: int, size: int) -> None:
    """``memcpy``."""
    raise NotImplementedError


def fill(target: int, byte: int, size: int) -> None:
    """``memset``."""
    raise NotImplementedError


def trailing_zeros(value: int) -> int:
    """The number of trailing zeros of a 64-bit value; 64 for zero."""
    raise NotImplementedError


leading_zeros = bits_count = trailing_zeros


def unsigned_less(a: int, b: int) -> bool:
    """``a < b`` as unsigned numbers."""
    raise NotImplementedError


def numbers(target: int, source: int, down: int, keep: int, group: int) -> None:
    """``target[l] = ((source[l] >> down) & keep) << 5 | l >> group`` for 32 numbers (see ``vector_intrinsics``)."""
    raise NotImplementedError


def sectors_of(source: int, lanes: int) -> int:
    """The number of 32-byte sectors that the addresses of lanes are in, + 64 · the number of 128-byte lines."""
    raise NotImplementedError


def first_of(source: int, lanes: int) -> int:
    """The lanes with a number that no earlier lane has."""
    raise NotImplementedError


def last_of(source: int, lanes: int) -> int:
    """The lanes with a number that no later lane has."""
    raise NotImplementedError


def most_alike(source: int, lanes: int) -> int:
    """The number of lanes with the most frequent number."""
    raise NotImplementedError


def neighbours(source: int, distance: int) -> int:
    """The lanes l with the same number as lane l xor ``distance`` (1 or 2)."""
    raise NotImplementedError


def alike(source: int, lane: int, size: int) -> int:
    """The lanes whose element, of 1, 2, 4 or 8 bytes, equals that of one lane."""
    raise NotImplementedError


def in_row(source: int, lane: int, size: int) -> int:
    """The lanes whose number is that of one lane plus ``size`` times their distance from it."""
    raise NotImplementedError


def differing(one: int, other: int) -> int:
    """A mask of the bytes that differ between two 64-byte arrays at host addresses."""
    raise NotImplementedError


def earliest(keys: int, uses: int, count: int, pipes: int, room: int, slot: int, out: int) -> int:
    """The least of ``count`` keys of warps, except number ``out``, after each is raised to the time from which the warp can issue (see
    ``earliest``)."""
    raise NotImplementedError


def pieces_loaded(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int, proxy: int, noted: int
) -> int:  # fmt: skip
    """Whether loads of 16 bytes of shared memory race with no access; they are then recorded (see ``races.pieces``)."""
    raise NotImplementedError


def pieces_stored(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int
) -> int:  # fmt: skip
    """The same for stores."""
    raise NotImplementedError


def claimed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, stores: int, count: int,
    notes: int, shift: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory other accessors have accessed; the others are recorded (see ``races.claims``)."""
    raise NotImplementedError


def renewed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, before: int, again: int,
    stores: int, values: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory other accessors have accessed without order; the others are recorded (see
    ``races.renewed``)."""
    raise NotImplementedError


def claimed_beside(at: int, count: int, claim: int, first: int, power: int, stores: int) -> int:
    """Record adjacent words up to the first that other accessors have accessed; returns how many were recorded."""
    raise NotImplementedError


def batch_places(
    lanes: int, addresses: int, from_: int, span: int, batches: int, places: int, unit: int
) -> int:
    """Write the numbers of words of global memory; returns whether all are in its range (see ``races.batches``)."""
    raise NotImplementedError


def batch_claim(lanes: int, places: int, bits: int, count: int, least: int) -> int:
    """The lanes whose words were not accessed before."""
    raise NotImplementedError


def batch_row(places: int, first: int, power: int) -> int:
    """Write the numbers of the words of adjacent lanes."""
    raise NotImplementedError


def batch_keep(target: int, places: int) -> int:
    """Copy the numbers of words."""
    raise NotImplementedError


def batch_same(lanes: int, places: int, others: int) -> int:
    """Whether lanes have the same words as in another batch."""
    raise NotImplementedError


def batch_holding(lanes: int, places: int, place: int) -> int:
    """The lanes that access a word."""
    raise NotImplementedError


def batch_compare(
    lanes: int, places: int, data: int, values: int, differs: int, size: int, unit: int, before: int
) -> int:
    """Record which bytes of words differ from those in memory."""
    raise NotImplementedError


def call(code: int, *given: int) -> int:
    """Call a function by its address, with three pointers, such as the function of a warp: context, CTA and state."""
    raise NotImplementedError


def compare_swap(address: int, expected: int, value: int) -> int:
    """Atomic compare and swap of a byte; returns the value found."""
    raise NotImplementedError


def compare_swap64(address: int, expected: int, value: int) -> int:
    """Atomic compare and swap of a number at a host address that is a multiple of 8; returns the value found."""
    raise NotImplementedError


def add64(address: int, value: int) -> int:
    """Atomic addition to a number at a host address that is a multiple of 8; returns the previous value."""
    raise NotImplementedError


def prefetch(address: int) -> None:
    """Prefetch a host address for a store."""
    raise NotImplementedError


def acquire64(address: int) -> int:
    """Load the number at a host address that is a multiple of 8, with ``memory_order_acquire``."""
    raise NotImplementedError


def release8(address: int, value: int) -> int:
    """Store a byte at a host address, with ``memory_order_release``."""
    raise NotImplementedError


def release64(address: int, value: int) -> int:
    """Store a number at a host address that is a multiple of 8, with ``memory_order_release``."""
    raise NotImplementedError
