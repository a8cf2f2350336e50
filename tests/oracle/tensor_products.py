"""``tcgen05.mma``: products of dense and sparse matrices, with scales, with ``.ws`` and of pairs of CTAs, element after element.

Manual: "Instruction descriptor", "Zero-Column Mask Descriptor", "Packing Formats", "Data Path Layout Organization", "Block Scaling",
"Sparse Matrices"; layouts that it shows in figures only are those of CUTLASS 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from . import floats
from .integers import mask
from .operands import Builder, Step
from .products import BITS, Number, number, summation
from .registry import semantics
from .syntax import Address, Vector
from .syntax import Number as Constant
from .tensor_memory import alloc, cell, commit, copy, dealloc, move_rows, pair_of, piece_of, shift

if TYPE_CHECKING:
    from .threads import Cta, Thread

_BYTES = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
#: of each kind: its types by their number in the descriptor, and K of dense matrices
KINDS = {
    "f16": ({0: "f16", 1: "bf16"}, 16),
    "tf32": ({2: "tf32"}, 8),
    "f8f6f4": (_BYTES, 32),
    "i8": ({0: "u8", 1: "s8"}, 32),
    "mxf8f6f4": (_BYTES, 32),
    "mxf4": ({1: "e2m1"}, 64),
    "mxf4nvf4": ({1: "e2m1"}, 64),
}
Rows = list[list[Number]]


def scale_number(code: int, powers: bool) -> float:
    """What the code of a scale means: a power of two (``ue8m0``), or e4m3 without a sign."""
    if powers:
        return float("nan") if code == mask(8) else 2.0 ** (code - 127)
    return float(number("e4m3", code & mask(7)))


def zero_columns(descriptor: int, columns: int, parts: int) -> list[bool]:
    """The mask of a zero-column mask descriptor: of each part, ones where the first span is 1, and so on."""
    found = []
    skip, use = (descriptor >> at & mask(8) for at in (40, 48))
    for part in range(parts):
        spans = [[False] * (use + 1), [True] * (skip + 1)]
        if descriptor >> (32 + part) & 1:
            spans.reverse()
        first = descriptor >> 8 * part & mask(8)
        found += islice(cycle(spans[0] + spans[1]), first, first + columns // parts)
    return [bit and bool(descriptor >> 39 & 1) for bit in found]


@semantics("tcgen05")
def tensor_memory(b: Builder) -> Step:
    name = b.mods[0]
    known = {
        "alloc": alloc, "dealloc": dealloc, "mma": product, "commit": commit, "shift": shift, "cp": copy
    }  # fmt: skip
    if name in known:
        return known[name](b)
    if name not in ("wait", "fence", "relinquish_alloc_permit"):
        raise b.fail("the oracle does not know this instruction")
    return lambda t: None


class Product:
    """One product: what its opcode says, and then what its descriptor says."""

    def __init__(self, kind: str, words: Sequence[str], word: int, line: int) -> None:
        self.kind, self.word, self.line = kind, word, line
        self.fours = kind.startswith("mxf4")
        self.sparse, self.weights = "sp" in words, "ws" in words
        self.pair = "cta_group::2" in words
        self.fine = "block16" in words or "scale_vec::4X" in words
        types, shortest = KINDS[kind]
        self.stored = 96 if self.fours and word >> 31 else shortest
        self.depth = self.stored * (2 if self.sparse else 1)
        self.rows, self.columns = (word >> 24 & 31) * 16 // (2 if self.pair else 1), (word >> 17 & 63) * 8
        self.left, self.right = types[word >> 7 & 7], types[word >> 10 & (3 if self.fours else 7)]
        self.result = "f32" if kind.startswith("mx") else ("f16", "f32", "s32")[word >> 4 & 3]
        #: the lanes of the rows, once for each range of columns of D, which lie one below the other
        own = range(self.rows)
        self.lanes: list[list[int]] = [list(own)]
        if self.weights or (self.pair and self.rows == 64 and not self.sparse):
            self.lanes = [[first + row for row in own] for first in range(0, 128, self.rows)]
        elif self.rows == 64:
            self.lanes = [[row // 16 * 32 + row % 16 for row in own]]

    def in_bytes(self, name: str) -> bool:
        """Whether elements of four and six bits are packed to 16 bytes, with padding, and fill a byte each in tensor memory."""
        return self.kind.endswith("f8f6f4") and BITS[name] < 8

    def shared(self, cta: Cta, descriptor: int, lines: range, name: str, across: bool, depth: int) -> Rows:
        bits = BITS[name]
        unit = 16 if self.in_bytes(name) else 128 // bits
        found = []
        for row in lines:
            elements = []
            for k in range(depth):
                at, within = piece_of(descriptor, row, k, unit, across)
                whole = int.from_bytes(cta.shared[at : at + 16], "little")
                elements.append(number(name, whole >> within * bits & mask(bits)))
            found.append(elements)
        return found

    def tensor(self, cta: Cta, column: int, lanes: Sequence[int]) -> Rows:
        """A in tensor memory; of elements of four bits that fill bytes these are the middle ones."""
        bits = BITS[self.left]
        wide = 8 if self.in_bytes(self.left) else bits
        low, per = 2 if (wide, bits) == (8, 4) else 0, 32 // wide
        return [
            [
                number(
                    self.left,
                    cta.words.get((lane, column + k // per), 0) >> (k % per * wide + low) & mask(bits),
                )
                for k in range(self.stored)
            ]
            for lane in lanes
        ]

    def scaled(self, cta: Cta, matrix: Rows, address: int, first: int, ks: Sequence[Sequence[int]]) -> Rows:
        """The matrix, each element times the scale of its k. Row r has bytes from ``first`` on of a word in lane r mod 32 and column
        r / 32, and further ones 4 columns on, or 8 if there are more than 128 rows."""
        further = 4 if len(matrix) <= 128 else 8
        count = self.depth // (16 if self.fine and self.stored == 96 else 32)
        if self.stored != 96:
            count = (4 if self.fine else 2) if self.fours else 1
        powers = bool(self.word >> 23 & 1)
        found: Rows = []
        for row, elements in enumerate(matrix):
            factors = []
            for byte in range(first, first + count):
                place = cell(cta, self.line, row % 32, (address & mask(16)) + row // 32 + byte // 4 * further)
                factors.append(scale_number(cta.words.get(place, 0) >> byte % 4 * 8 & mask(8), powers))
            found.append(
                [x * factors[k * count // self.depth] for x, k in zip(elements, ks[row], strict=True)]
            )
        return found

    def stored_ks(self, cta: Cta, address: int, lanes: Sequence[int], row: int) -> list[int]:
        """The k of each stored element of a row of A, by its metadata: four bits for each group of elements."""
        tf32, column = self.kind == "tf32", address & mask(16)
        halves = self.kind in ("f16", "tf32")
        group_size = 2 if tf32 else 8 if self.fours else 4
        found: list[int] = []
        for group in range(self.depth // group_size):
            if halves:  # 16 rows share 16 lanes: half of K in eight of them, rows 8 and on in the upper half of a word
                place = lanes[row // 16 * 16 + row % 8 + 8 * (group // 4)], column + (self.word & 3)
                bit = row % 16 // 8 * 16 + group % 4 * 4
            else:
                place, bit = (lanes[row], column + group // 8), group % 8 * 4
            bits = cta.words.get(place, 0) >> bit & mask(4)
            first = group * group_size
            if tf32:
                found.append(first + {0b1110: 1, 0b0100: 0}[bits])
            elif self.fours:
                found += [first + 2 * pair + one for pair in (bits & 3, bits >> 2) for one in (0, 1)]
            else:
                found += [first + (bits & 3), first + (bits >> 2)]
        return found


def product(b: Builder) -> Step:
    words = b.statement.modifiers
    kind = next(word for word in words if word.startswith("kind::")).removeprefix("kind::")
    if kind not in KINDS or "decompress" in b.mods:
        raise b.fail("the oracle multiplies no such matrices")
    held = isinstance(b.operands[1], Address)
    places = ["d", "a", "b", *(["meta"] if b.has("sp") else []), "idesc"]
    places += ["scale_a", "scale_b"] if b.has("block_scale") else []
    if isinstance(b.operands[len(places)], Vector):
        places.append("mask")
    at = {name: index for index, name in enumerate([*places, "enable", "last"])}
    if isinstance(b.operands[at["enable"]], Constant):
        raise b.fail("the oracle takes a predicate")
    addresses = {name: b.address(at[name]) for name in ("d", "meta", "scale_a", "scale_b") if name in at}
    a_at, b_at = b.address(1) if held else b.get(1, 64), b.get(2, 64)
    idesc, reads, line = b.get(at["idesc"], 32), b.get(at["enable"], 1), b.statement.line
    last = b.get(at["last"], 64 if b.has("ws") else 32) if len(b.operands) > at["last"] else (lambda t: 0)
    vector = b.operands[at["mask"]] if "mask" in at else None
    masks = [b.get(item, 32) for item in vector.items] if isinstance(vector, Vector) else []

    def step(t: Thread) -> None:
        p = Product(kind, words, idesc(t), line)
        zeros, factor = (last(t), 1.0) if p.weights else (0, 2.0 ** -last(t))
        ctas = pair_of(t) if p.pair else [t.cta]
        shift, lines = zeros >> 56 & mask(6), p.columns // len(ctas)
        b_rows: Rows = []
        for cta in ctas:
            b_rows += p.shared(
                cta, b_at(t), range(shift, shift + lines), p.right, bool(p.word >> 16 & 1), p.depth
            )
        for rank, cta in enumerate(ctas):
            off = [masks[4 * rank + word](t) for word in range(4)] if masks else [0] * 4
            multiply(t, p, cta, b_rows, zeros, factor, off)

    def multiply(
        t: Thread, p: Product, cta: Cta, b_rows: Rows, zeros: int, factor: float, off: Sequence[int]
    ) -> None:
        """The part of D in one CTA."""
        parts = len(p.lanes)
        own, whole = p.columns // parts, [range(p.depth)] * p.columns
        turned = b_rows
        if "scale_b" in addresses:
            turned = p.scaled(cta, turned, addresses["scale_b"](t), p.word >> 4 & 3, whole)
        empty = zero_columns(zeros, p.columns, parts)
        turned = [[0.0] * p.depth if zero else column for zero, column in zip(empty, turned, strict=True)]
        add = summation(p.result, p.result, "", bool(p.word >> 3 & 1))
        base, wide = addresses["d"](t) & mask(16), BITS[p.result]
        # rows of D, and of A and metadata, may be in the upper half of the lanes of each warp
        up = addresses["d"](t) >> 16 & mask(16)
        for part, lanes_of_part in enumerate(p.lanes):
            lanes = [lane + up for lane in lanes_of_part]
            if held:
                a = p.tensor(cta, a_at(t) & mask(16), lanes)
            else:
                a = p.shared(cta, a_at(t), range(p.rows), p.left, bool(p.word >> 15 & 1), p.stored)
            ks: list[Sequence[int]] = [range(p.depth)] * p.rows
            if p.sparse:
                ks = [p.stored_ks(cta, addresses["meta"](t), lanes, row) for row in range(p.rows)]
            if "scale_a" in addresses:
                a = p.scaled(cta, a, addresses["scale_a"](t), p.word >> 29 & 3, ks)
            if p.word >> 13 & 1 != p.word >> 14 & 1:
                a = [[-x for x in row] for row in a]
            columns = turned[part * own : part * own + own]
            places = [[cell(cta, line, lane, base + column) for column in range(own)] for lane in lanes]
            starts = [[cta.words.get(at, 0) & mask(wide) if reads(t) else 0 for at in row] for row in places]
            if factor != 1.0:
                starts = [[halved(p.result, bits, factor) for bits in row] for row in starts]
            if not p.sparse:
                sums = add(starts, a, columns)
            else:
                sums = []
                for start, row, k in zip(starts, a, ks, strict=True):
                    sums += add([start], [row], [[column[one] for one in k] for column in columns])
            for lane, row_places, row_sums in zip(lanes, places, sums, strict=True):
                if not off[lane // 32] >> lane % 32 & 1:
                    cta.words.update(zip(row_places, row_sums, strict=True))
        for warp in range(4) if b.has("ashift") else ():
            move_rows(cta, line, range(32 * warp, 32 * warp + 31), a_at(t) & mask(16))

    return step


def halved(kind: str, bits: int, factor: float) -> int:
    """An element of D times a power of two, if the result is exact."""
    exact = float(number(kind, bits)) * factor
    scaled = floats.from_python(floats.FORMATS[kind], exact)
    if float(number(kind, scaled)) != exact:
        raise ValueError(f"{exact} is no {kind}: the oracle scales numbers only if that is exact")
    return scaled
