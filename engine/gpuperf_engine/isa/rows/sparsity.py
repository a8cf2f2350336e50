"""Products with a sparse matrix A (manual: mma.sp) and with scaled blocks (mma with .block_scale).

Only the possibly nonzero elements of A are stored; *metadata* holds their positions (manual, "Sparse matrix storage"). Registers hold
them like a matrix of half as many columns. Scale factors multiply the elements, exactly, before the products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..fragments import LANES, Place
from ..primitives import Value, choose, permute, select
from ..types import scalar_type
from .products import F32, F64, U32, Fetched, Pairs, small_number

__all__ = ["Scales", "Sparsity"]

U64 = scalar_type("u64")
#: the first lane of each lane's quad
_QUADS = [lane // 4 * 4 for lane in range(LANES)]


@dataclass(frozen=True)
class Sparsity:
    """The positions of stored elements for one shape.

    The size of an element, ``bits``, determines the granularity: 1:2 for 32 bits, 2:4 for 16 and 8, pairs in 4:8 for 4. ``depth`` is
    that of the product; half of it is stored. A word of metadata belongs to one row, or 16 bits each to two rows eight apart;
    ``segments`` are the parts of k with separate words.
    """

    bits: int
    depth: int
    segments: int

    @property
    def threads(self) -> int:
        """The number of threads of a quad that provide metadata."""
        return self.segments * (1 if self.bits >= 16 else 2)

    def _candidates(self, stored: int) -> list[int]:
        """The possible k of a stored element; its index chooses one."""
        if self.bits == 32:
            return [2 * stored, 2 * stored + 1]
        if self.bits == 4:
            return [8 * (stored // 4) + 2 * index + stored % 2 for index in range(4)]
        return [4 * (stored // 2) + index for index in range(4)]

    def _index(self, stored: int, segment: int) -> tuple[int, ...]:
        """The bit positions of an element's index in the metadata of its row, low bit first; ``segment``: elements per segment."""
        within = stored % segment
        if self.bits == 32:  # 0b0100 is the first, 0b1110 the second
            return (4 * within + 1,)
        first = 2 * (within // 2 if self.bits == 4 else within)
        return first, first + 1

    def pairs(self, first: Fetched, second: Fetched, metadata: Value, selector: int) -> Pairs:
        """The stored elements of A, each with the element of B that it is multiplied with."""
        base = selector % (4 // self.threads) * self.threads
        word = metadata.bits(U32)
        parts: dict[tuple[int, int], Value] = {}
        bits: dict[tuple[int, int, int], Value] = {}

        def part(half: int, segment: int) -> Value:
            metadata = parts.get((half, segment))
            if metadata is None:
                holder = base + (segment if self.bits >= 16 else 2 * segment + half)
                metadata = permute(word, tuple(quad + holder for quad in _QUADS))
                metadata = parts[half, segment] = metadata >> (16 * half) if self.bits >= 16 else metadata
            return metadata

        def bit(half: int, segment: int, position: int) -> Value:
            predicate = bits.get((half, segment, position))
            if predicate is None:
                predicate = bits[half, segment, position] = (part(half, segment) & (1 << position)).compare(
                    "ne", 0
                )
            return predicate

        def pairs(places: list[Place]) -> Iterator[tuple[Value, Value]]:
            half = places[0][1] // 8
            for stored in range(self.depth // 2):
                segment = stored // (self.depth // 2 // self.segments)
                candidates = [
                    second([(pair, k, column) for pair, _, column in places])
                    for k in self._candidates(stored)
                ]
                for position in self._index(stored, self.depth // 2 // self.segments):
                    holds = bit(half, segment, position)
                    candidates = [
                        select(holds, odd, even) for even, odd in zip(candidates[::2], candidates[1::2])
                    ]
                yield first([(pair, row, stored) for pair, row, _ in places]), candidates[0]

        return pairs

    def chosen(self, column: Sequence[Value], words: Sequence[Value], stored: int) -> Value:
        """The element of a column of B that a stored element of A is multiplied with; ``words``: all metadata of the row."""
        candidates = [column[k] for k in self._candidates(stored)]
        for position in self._index(stored, self.depth // 2):
            holds = (words[position // 32] & (1 << position % 32)).compare("ne", 0)
            candidates = [select(holds, odd, even) for even, odd in zip(candidates[::2], candidates[1::2])]
        return candidates[0]

    def row_words(self, metadata: Value, selector: int) -> list[list[Value]]:
        """The words of metadata of a lane's two rows: that of its group, and eight further."""
        base = selector % (4 // self.threads) * self.threads
        word = metadata.bits(U32)

        def from_thread(thread: int) -> Value:
            return permute(word, tuple(quad + base + thread for quad in _QUADS))

        if self.bits >= 16:
            low, high = from_thread(0), from_thread(1)
            return [[(low & 0xFFFF) | (high << 16)], [(low >> 16) | (high & 0xFFFF0000)]]
        return [[from_thread(half), from_thread(2 + half)] for half in (0, 1)]

    def refused(self, metadata: Value, selector: int, ordered: bool) -> Value:
        """The lanes with invalid metadata; all of them if the selector is invalid."""
        word = metadata.bits(U32)
        if selector >= 4 // self.threads:
            return word.compare("eq", word)
        if self.bits == 32:
            wrong = ((word ^ 0x44444444) & 0x55555555) | ((word ^ (word >> 2)) & 0x22222222)
        else:
            low, high = word & 0x33333333, (word >> 2) & 0x33333333
            if ordered:
                wrong = ((high | 0x44444444) - low - 0x11111111 & 0x44444444) ^ 0x44444444
            else:
                same = low ^ high
                wrong = ((same | (same >> 1)) & 0x11111111) ^ 0x11111111
        base = selector * self.threads
        holders = tuple(base <= lane % 4 < base + self.threads for lane in range(LANES))
        return choose(holders, wrong.compare("ne", 0), word.compare("ne", word))


@dataclass(frozen=True)
class Scales:
    """The scale factors of a row of A or a column of B (manual, "Block Scaling for mma.sync"): ``count`` of them, of one type."""

    count: int
    type: str

    def _factor(self, code: Value) -> Value:
        if self.type == "ue8m0":
            power = ((code.convert(U64) + (1023 - 127)) << 52).bits(F64)
            return select(code.compare("eq", 0xFF), power.constant_bits(0x7FFFFFFFFFFFFFFF, F64), power)
        magnitude = small_number(code & 0x7F, 3, 7)
        none = (code & 0x7F).compare("eq", 0x7F)
        return select(none, magnitude.constant_bits(0x7FFFFFFF, F32), magnitude).convert(F64)

    def _factors(self, byte: Value, thread: Value, words: list[Value]) -> list[Value]:
        """The factors along k, in the selected thread's word from the selected byte on."""
        chosen = words[0]
        for number, other in enumerate(words[1:], 1):
            chosen = select(thread.compare("eq", number), other, chosen)
        scales = chosen >> (byte.convert(U32) << 3)
        return [self._factor((scales >> (8 * index)) & 0xFF) for index in range(self.count)]

    def pairs(self, plain: Pairs, operands: tuple[Value, ...], steps: int) -> Pairs:
        """The factors of ``steps`` products, each with its scale. ``operands``: data, byte and thread of A, then of B."""
        data_a, byte_a, thread_a, data_b, byte_b, thread_b = operands
        first, second = data_a.bits(U32), data_b.bits(U32)
        factors_of: dict[tuple[str, tuple[int, ...]], list[Value]] = {}

        def of_rows(rows: tuple[int, ...]) -> list[Value]:
            factors = factors_of.get(("a", rows))
            if factors is None:
                holders = [
                    permute(first, tuple(row % 8 * 4 + 2 * thread + row // 8 for row in rows))
                    for thread in (0, 1)
                ]
                factors = factors_of["a", rows] = self._factors(byte_a, thread_a, holders)
            return factors

        def of_columns(columns: tuple[int, ...]) -> list[Value]:
            factors = factors_of.get(("b", columns))
            if factors is None:
                holders = [
                    permute(second, tuple(4 * column + thread for column in columns)) for thread in range(4)
                ]
                factors = factors_of["b", columns] = self._factors(byte_b, thread_b, holders)
            return factors

        products: dict[tuple[int, int], tuple[Value, Value, Value]] = {}

        def scaled(value: Value, factor: Value) -> Value:
            """``value * factor``, computed once; the cache also keeps both alive, so that their ids stay unique."""
            product = products.get((id(value), id(factor)))
            if product is None:
                product = products[id(value), id(factor)] = value * factor, value, factor
            return product[0]

        def pairs(places: list[Place]) -> Iterator[tuple[Value, Value]]:
            left = of_rows(tuple(row for _, row, _ in places))
            right = of_columns(tuple(column for _, _, column in places))
            for number, (x, y) in enumerate(plain(places)):
                block = number * self.count // steps
                yield scaled(x, left[block]), scaled(y, right[block])

        return pairs

    def refused(self, operands: tuple[Value, ...]) -> Value:
        """The lanes with invalid selectors."""
        _, byte_a, thread_a, _, byte_b, thread_b = operands
        wrong = thread_a.compare("gt", 1) | thread_b.compare("gt", 3)
        for byte in (byte_a, byte_b):
            if self.count == 2:
                wrong = wrong | (byte & 0xFFFD).compare("ne", 0)
            else:
                wrong = wrong | byte.compare("gt", 3 if self.count == 1 else 0)
        return wrong
