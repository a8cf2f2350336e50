"""Functions of the subset of Python that ``compile_python`` translates, beside arithmetic: they are translated, never called."""

from __future__ import annotations

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
    "store8",
    "store16",
    "store32",
    "store64",
    "trailing_zeros",
    "unsigned_less",
]


def load8(address: int) -> int:
    """The byte at a host address, zero-extended."""
    raise NotImplementedError


load16 = load32 = load64 = load8


def store8(address: int, value: int) -> None:
    """The low byte of a value to a host address."""
    raise NotImplementedError


store16 = store32 = store64 = store8


def copy(target: int, source: int, size: int) -> None:
    """``memcpy``."""
    raise NotImplementedError


def fill(target: int, byte: int, size: int) -> None:
    """``memset``."""
    raise NotImplementedError


def trailing_zeros(value: int) -> int:
    """Of a 64-bit value; 64 for zero."""
    raise NotImplementedError


leading_zeros = bits_count = trailing_zeros


def unsigned_less(a: int, b: int) -> bool:
    """``a < b`` as unsigned numbers."""
    raise NotImplementedError


def numbers(target: int, source: int, down: int, keep: int, group: int) -> None:
    """``target[l] = ((source[l] >> down) & keep) << 5 | l >> group`` for 32 numbers (see ``vector_intrinsics``)."""
    raise NotImplementedError


def sectors_of(source: int, lanes: int) -> int:
    """How many 32-byte sectors the addresses of lanes lie in, + 64 · that of 128-byte lines."""
    raise NotImplementedError


def first_of(source: int, lanes: int) -> int:
    """The lanes that have a number before all others that have it."""
    raise NotImplementedError


def last_of(source: int, lanes: int) -> int:
    """The lanes that have a number behind all others that have it."""
    raise NotImplementedError


def most_alike(source: int, lanes: int) -> int:
    """How many lanes have the number that most of them have."""
    raise NotImplementedError


def neighbours(source: int, distance: int) -> int:
    """The lanes l that have the number of lane l xor ``distance`` (1 or 2)."""
    raise NotImplementedError


def alike(source: int, lane: int, size: int) -> int:
    """The lanes whose element, of 1, 2, 4 or 8 bytes, is that of one lane."""
    raise NotImplementedError


def in_row(source: int, lane: int, size: int) -> int:
    """The lanes whose number is that of one lane and ``size`` more for each lane between."""
    raise NotImplementedError


def differing(one: int, other: int) -> int:
    """Which of 64 bytes at two host addresses differ."""
    raise NotImplementedError


def pieces_loaded(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int, proxy: int, noted: int
) -> int:  # fmt: skip
    """Whether loads of 16 bytes of shared memory race with nothing; they are noted (see ``races.pieces``)."""
    raise NotImplementedError


def pieces_stored(
    record: int, me: int, epoch: int, info: int, each: int, lanes: int, places: int, limit: int
) -> int:  # fmt: skip
    """The same of stores."""
    raise NotImplementedError


def claimed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, stores: int, count: int,
    notes: int, shift: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory others have accessed; the others are noted (see ``races.claims``)."""
    raise NotImplementedError


def renewed(
    lanes: int, addresses: int, words: int, from_: int, data: int, span: int, claim: int, first: int, before: int, again: int,
    stores: int, values: int
) -> int:  # fmt: skip
    """The lanes whose words of global memory others have accessed; the others are noted (see ``races.renewed``)."""
    raise NotImplementedError


def claimed_beside(at: int, count: int, claim: int, first: int, power: int, stores: int) -> int:
    """How many words side by side are noted, until others have accessed one."""
    raise NotImplementedError


def batch_places(
    lanes: int, addresses: int, from_: int, span: int, batches: int, places: int, unit: int
) -> int:
    """Put the numbers of words of global memory there; whether these are such (see ``races.batches``)."""
    raise NotImplementedError


def batch_claim(lanes: int, places: int, bits: int, count: int, least: int) -> int:
    """The lanes whose words had not been accessed."""
    raise NotImplementedError


def batch_row(places: int, first: int, power: int) -> int:
    """Words of lanes side by side."""
    raise NotImplementedError


def batch_keep(target: int, places: int) -> int:
    """Put the numbers of words there, too."""
    raise NotImplementedError


def batch_same(lanes: int, places: int, others: int) -> int:
    """Whether words of lanes are those of others."""
    raise NotImplementedError


def batch_holding(lanes: int, places: int, place: int) -> int:
    """The lanes that have a word."""
    raise NotImplementedError


def batch_compare(
    lanes: int, places: int, data: int, values: int, differs: int, size: int, unit: int, before: int
) -> int:
    """Note which bytes of words differ from those that are there."""
    raise NotImplementedError


def call(code: int, *given: int) -> int:
    """Call a function by its address, which takes pointers, as those of warps do: context, CTA and state."""
    raise NotImplementedError


def compare_swap(address: int, expected: int, value: int) -> int:
    """Atomic compare and swap of a byte; returns the value found."""
    raise NotImplementedError


def compare_swap64(address: int, expected: int, value: int) -> int:
    """The same of a number at a host address that is a multiple of 8."""
    raise NotImplementedError


def add64(address: int, value: int) -> int:
    """Add to such a number, atomically; returns the one before."""
    raise NotImplementedError


def prefetch(address: int) -> None:
    """Have what lies at a host address brought near: it will be written soon."""
    raise NotImplementedError


def acquire64(address: int) -> int:
    """The number at a host address that is a multiple of 8, loaded by ``memory_order_acquire``."""
    raise NotImplementedError


def release8(address: int, value: int) -> int:
    """Store a byte there by ``memory_order_release``."""
    raise NotImplementedError


def release64(address: int, value: int) -> int:
    """Store a number there by ``memory_order_release``."""
    raise NotImplementedError
