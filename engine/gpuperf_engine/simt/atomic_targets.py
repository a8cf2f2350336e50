"""The number of atomics and reductions at the hottest address of global memory.

The lanes of a launch are counted in a table of ``SLOTS`` slots. The slot of an access is the top bits of the number of the 4-byte word
in which it begins, times 2⁶⁴ over the golden ratio φ. The products of n consecutive words, as fractions of 2⁶⁴, differ by at least
1 / φᵐ, where Fₘ is the last Fibonacci number below n: up to n = 2,584 = F₁₈ this is more than 1 / ``SLOTS``, so all have different
slots, and the fullest slot is the hottest address. If a slot counts lanes of several words, which it records, its count is their
sum: an upper bound.

Counts are sums, so they do not depend on the order of warps, and tables of several host threads can be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..memory.arena import GLOBAL_BASE
from ..ptx.syntax import Instruction
from .program import Program

__all__ = [
    "GOLDEN",
    "HALF",
    "MIXED",
    "OFFSET",
    "SLOTS",
    "SLOT_SHIFT",
    "WORD_SHIFT",
    "AtomicTargets",
    "HottestAddress",
    "are_combined",
    "has_global_atomics",
    "hottest_of",
    "slots_of",
]

SLOTS = 1 << 12
#: 2⁶⁴ divided by the golden ratio, as a signed number
GOLDEN = 0x9E37_79B9_7F4A_7C15 - (1 << 64)
SLOT_SHIFT = 64 - 12
WORD_SHIFT = 2
_LOW = (((0x7F00_0000_0000 - GLOBAL_BASE) >> WORD_SHIFT) * GOLDEN) & ((1 << 64) - 1)
#: added to the products, so that slots are those of global memory that begins at 0x7F00_0000_0000, as in existing baselines
OFFSET = _LOW - (_LOW >> 63 << 64)
#: lanes whose atomics are combined before L2 (``atomics.lanes`` of a machine, as measured)
HALF = 16
#: word of a slot with several words
MIXED = -1
_COMBINED = frozenset({"add", "inc", "dec", "min", "max", "and", "or", "xor"})
_LANES, _SAVED, _WORD = range(3)


def are_combined(instruction: Instruction) -> bool:
    """Whether lanes with the same address become one operation: 32-bit integers with a commutative and associative operation."""
    parts = instruction.opcode.split(".")
    return parts[-1] in ("u32", "s32", "b32") and not _COMBINED.isdisjoint(parts)


def has_global_atomics(program: Program) -> bool:
    """Whether a program may change global memory by ``atom`` or ``red``, or by bulk copies that reduce."""
    return any(
        site.kind in ("atomic", "reduction") and site.space in ("global", "generic") for site in program.sites
    )


def slots_of(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slots of words, by their numbers."""
    products = (words * GOLDEN + OFFSET).view(np.uint64)
    slots: NDArray[np.int64] = (products >> np.uint64(SLOT_SHIFT)).astype(np.int64)
    return slots


@dataclass(frozen=True, slots=True)
class HottestAddress:
    """The largest number of ``lanes`` of atomics at one address of global memory, and of ``operations``, for which combined lanes of
    a half warp count once. ``word`` is the number of the first word with so many lanes; ``None`` if the counts are sums over several
    words, and so upper bounds."""

    lanes: int = 0
    operations: int = 0
    word: int | None = None

    def times(self, count: int) -> HottestAddress:
        """The sum of so many launches like this one."""
        return HottestAddress(self.lanes * count, self.operations * count, self.word)

    def followed_by(self, other: HottestAddress) -> HottestAddress:
        """The sum of the launches so far and a further one, whose hottest address may be another."""
        word = self.word if self.word == other.word else None
        return HottestAddress(self.lanes + other.lanes, self.operations + other.operations, word)

    def mean(self, count: int) -> HottestAddress:
        """The mean of so many launches whose sum this is."""
        return HottestAddress(self.lanes // count, self.operations // count, self.word)


class AtomicTargets:
    """A NumPy table with, for each slot, the number of lanes, of lanes that are combined with a lower one, and the word, 0 if it
    has no lanes."""

    def __init__(self) -> None:
        self.table = np.zeros((SLOTS, 3), np.int64)

    def add(self, addresses: NDArray[np.uint64], lanes: NDArray[np.intp], combined: bool) -> None:
        """One request. ``addresses``, uint64, of the active ``lanes`` (0 to 31) in global memory."""
        words = (addresses >> np.uint64(WORD_SHIFT)).astype(np.int64)
        if combined:
            _, first = np.unique(2 * words + lanes // HALF, return_index=True)
            np.add.at(self.table[:, _SAVED], slots_of(np.delete(words, first)), 1)
        self._come(words)

    def add_bytes(self, addresses: NDArray[np.uint64], size: int) -> None:
        """A reduction by a bulk copy, which accesses each word once. ``addresses``, uint64, of elements of ``size`` bytes in global
        memory."""
        bytes_ = np.add.outer(addresses, np.arange(size, dtype=np.uint64))
        self._come(np.unique(bytes_ >> np.uint64(WORD_SHIFT)).astype(np.int64))

    def _come(self, words: NDArray[np.int64]) -> None:
        slots = slots_of(words)
        np.add.at(self.table[:, _LANES], slots, 1)
        before = self.table[slots, _WORD]
        self.table[slots, _WORD] = np.where(before == 0, words, before)
        self.table[slots[self.table[slots, _WORD] != words], _WORD] = MIXED


def hottest_of(tables: Sequence[NDArray[np.int64]]) -> HottestAddress:
    """The address with the most lanes, zeros if there are none. ``tables``: by host thread, the slots as in ``AtomicTargets``,
    shape (SLOTS, 3 or more)."""
    if not tables:
        return HottestAddress()
    table = tables[0][:, : _WORD + 1]
    for other in tables[1:]:
        words, others = table[:, _WORD], other[:, _WORD]
        differ = (words != others) & (words != 0) & (others != 0)
        words = np.where(differ, MIXED, np.where(words == 0, others, words))
        table = np.column_stack([table[:, :_WORD] + other[:, :_WORD], words])
    counts = table[:, _LANES]
    lanes = int(counts.max())
    if not lanes:
        return HottestAddress()
    hottest = table[counts == lanes, _WORD]
    word = None if (hottest == MIXED).any() else int(hottest.min())
    return HottestAddress(lanes, int((counts - table[:, _SAVED]).max()), word)
