"""``tcgen05`` of one CTA: allocation, ``ld`` and ``st``, products of dense matrices, also with scales and ``.ws``, ``commit``. All is
done at once, element after element; each thread loads and stores what is its own, and the first thread of a warp allocates for it.

Manual: "Tensor Memory", "Matrix Fragments", "Instruction descriptor", "Zero-Column Mask Descriptor", "Canonical Layouts", "Absolute
address mode for K dimension being 48B", "Block Scaling", "Data Path Layout Organization" (D to G).
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from .integers import mask
from .matrices import items
from .mbarriers import mbarrier_at
from .memory import OracleError
from .operands import Builder, Step
from .products import BITS, Number, number, summation
from .registry import semantics
from .syntax import Address
from .syntax import Number as Constant

if TYPE_CHECKING:
    from .threads import Cta, Thread

UNIT, COLUMNS = 32, 512
#: of each kind: its types by their number in the descriptor, and K
KINDS = {
    "f16": ({0: "f16", 1: "bf16"}, 16),
    "tf32": ({2: "tf32"}, 8),
    "f8f6f4": ({0: "e4m3", 1: "e5m2"}, 32),
    "i8": ({0: "u8", 1: "s8"}, 32),
    "mxf8f6f4": ({0: "e4m3", 1: "e5m2"}, 32),
    "mxf4": ({1: "e2m1"}, 64),
    "mxf4nvf4": ({1: "e2m1"}, 64),
}
#: bits of an address that swizzling adds, and to which bits
SWIZZLE = {0: (0, 0), 1: (0x180, 2), 2: (0x380, 3), 4: (0x180, 3), 6: (0x080, 3)}
WIDTH = {0: 16, 1: 128, 2: 128, 4: 64, 6: 32}


@semantics("tcgen05")
def tensor_memory(b: Builder) -> Step:
    name = b.mods[0]
    known = {
        "alloc": alloc, "dealloc": dealloc, "ld": access, "st": access, "mma": product, "commit": commit, "shift": shift
    }  # fmt: skip
    if name in known:
        return known[name](b)
    if name not in ("wait", "fence", "relinquish_alloc_permit"):
        raise b.fail("the oracle does not know this instruction")
    return lambda t: None


def alloc(b: Builder) -> Step:
    address, columns, space = b.address(0), b.get(1, 32), b.space()

    def step(t: Thread) -> None:
        if t.lane:
            return
        wanted, taken = columns(t), t.cta.columns
        for first in range(0, COLUMNS, wanted):
            if all(first + wanted <= start or first >= start + count for start, count in taken.items()):
                taken[first] = wanted
                t.store(space, address(t), 4, first)
                return
        raise OracleError(f"line {b.statement.line}: no {wanted} columns are free")

    return step


def dealloc(b: Builder) -> Step:
    first, columns = b.get(0, 32), b.get(1, 32)

    def step(t: Thread) -> None:
        if t.lane == 0 and t.cta.columns.pop(first(t), 0) != columns(t):
            raise OracleError(f"line {b.statement.line}: these columns were not allocated")

    return step


def commit(b: Builder) -> Step:
    address = b.address(0)
    return lambda t: put_nothing(mbarrier_at(t, address(t)).arrive(1))


def put_nothing(state: int) -> None:
    """The state of the phase goes nowhere."""


def cell(cta: Cta, line: int, lane: int, column: int) -> tuple[int, int]:
    """A word of tensor memory, if its column is allocated."""
    if not any(first <= column < first + count for first, count in cta.columns.items()):
        raise OracleError(f"line {line}: column {column} of tensor memory is not allocated")
    return lane, column


def place_of(shape: str, lane: int, register: int) -> tuple[int, int]:
    """Lane and column that a thread's register holds, from the address on."""
    group, four = divmod(lane, 4)
    if shape == "32x32b":
        return lane, register
    if shape == "16x64b":
        return group + 8 * (four % 2), 2 * register + four // 2
    if shape == "16x128b":
        return group + 8 * (register % 2), register // 2 * 4 + four
    return group + register % 4 // 2 * 8, register // 4 * 8 + 2 * four + register % 2


def access(b: Builder) -> Step:
    loads = b.mods[0] == "ld"
    shape = next((word for word in b.mods if word in ("32x32b", "16x64b", "16x128b", "16x256b")), "")
    if not shape or b.has("red") or b.has("pack") or b.has("unpack"):
        raise b.fail("the oracle does not know this form")
    address = b.address(int(loads))
    held = items(b, int(not loads))
    line = b.statement.line
    puts, gets = [b.put(item, 32) for item in held], [] if loads else [b.get(item, 32) for item in held]

    def step(t: Thread) -> None:
        first, column = divmod(address(t) & mask(32), 1 << 16)
        for register, put in enumerate(puts):
            row, further = place_of(shape, t.lane, register)
            at = cell(t.cta, line, first + row, column + further)
            if loads:
                put(t, t.cta.words.get(at, 0))
            else:
                t.cta.words[at] = gets[register](t)

    return step


def shift(b: Builder) -> Step:
    address, line = b.address(0), b.statement.line
    if "cta_group::2" in b.statement.modifiers:
        raise b.fail("the oracle shifts no rows of another block")

    def step(t: Thread) -> None:
        first, column = divmod(address(t) & mask(32), 1 << 16)
        move_rows(t.cta, line, range(first, first + 31), column)

    return step


def move_rows(cta: Cta, line: int, lanes: range, column: int) -> None:
    """Each of these lanes gets 32 bytes of the next one (NVIDIA/cutlass 7107b055, ``1cta_mma_a_from_tmem.py``)."""
    for lane in lanes:
        for further in range(column, column + 8):
            cta.words[cell(cta, line, lane, further)] = cta.words.get((lane + 1, further), 0)


def byte_of(descriptor: int, line: int, k: int, bits: int, across: bool) -> int:
    """Where an element of a matrix begins in shared memory, in bytes, rounded down."""
    start, leading, stride = ((descriptor >> at & mask(14)) << 4 for at in (0, 16, 32))
    mode = descriptor >> 61
    width, unit = WIDTH[mode], 128 // bits
    if not across:
        piece, within = divmod(k, unit)
        over = start % 128 + 16 * piece - 128
        if descriptor >> 52 & 1 and over >= 0:  # the second of two chunks
            start, piece = leading, over // 16
        at = line % 8 * width + line // 8 * stride + piece * (16 if mode else leading)
    else:
        group, within = divmod(line, unit)
        high, units = 4 if mode == 1 else 8, width // 16
        steps = (leading, stride) if mode else (stride, leading)
        at = group % units * 16 + group // units * steps[0] + k % high * width + k // high * steps[1]
    at += start + within * bits // 8
    chosen, down = SWIZZLE[mode]
    return at ^ (at & chosen) >> down


def scale_number(code: int, powers: bool) -> float:
    """What the code of a scale means: a power of two (``ue8m0``), or e4m3 without a sign."""
    if powers:
        return float("nan") if code == mask(8) else 2.0 ** (code - 127)
    return float(number("e4m3", code & mask(7)))


def scaled(
    t: Thread, line: int, matrix: list[list[Number]], address: int, first: int, count: int, powers: bool
) -> list[list[Number]]:
    """The matrix, each row's elements times its scales: ``count`` bytes from byte ``first`` of a word on. Row r has the word in lane r
    mod 32 and column r / 32, and the following bytes are 4 columns further, or 8 if there are more than 128 rows."""
    further = 4 if len(matrix) <= 128 else 8
    found: list[list[Number]] = []
    for row, elements in enumerate(matrix):
        factors = []
        for byte in range(first, first + count):
            place = cell(t.cta, line, row % 32, (address & mask(16)) + row // 32 + byte // 4 * further)
            factors.append(scale_number(t.cta.words.get(place, 0) >> byte % 4 * 8 & mask(8), powers))
        found.append([x * factors[k * count // len(elements)] for k, x in enumerate(elements)])
    return found


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


def product(b: Builder) -> Step:
    words = b.statement.modifiers
    kind = next(word for word in words if word.startswith("kind::")).removeprefix("kind::")
    scales, weights = b.has("block_scale"), b.has("ws")
    held, count = isinstance(b.operands[1], Address), len(b.operands)
    known = kind in KINDS and not b.has("sp") and "cta_group::2" not in words
    if not known or (weights and held) or count not in ((7,) if scales else (5, 6) if weights else (5,)):
        raise b.fail("the oracle multiplies no such matrices")
    types, shortest = KINDS[kind]
    enabled = 6 if scales else 4
    if isinstance(b.operands[enabled], Constant):
        raise b.fail("the oracle takes a predicate")
    d_at, a_at, b_at = b.address(0), b.address(1) if held else b.get(1, 64), b.get(2, 64)
    scale_at = [b.address(4), b.address(5)] if scales else []
    idesc, reads, line = b.get(3, 32), b.get(enabled, 1), b.statement.line
    zeros = b.get(5, 64) if weights and count == 6 else lambda t: 0

    def shared(
        t: Thread, descriptor: int, lines: range, name: str, across: bool, depth: int
    ) -> list[list[Number]]:
        bits = BITS[name]
        found = []
        for row in lines:
            elements = []
            for k in range(depth):
                at = byte_of(descriptor, row, k, bits, across)
                whole = int.from_bytes(t.cta.shared[at : at + max(1, bits // 8)], "little")
                elements.append(number(name, whole >> k * bits % 8 & mask(bits)))
            found.append(elements)
        return found

    def tensor(t: Thread, address: int, lanes: list[int], name: str, depth: int) -> list[list[Number]]:
        per = 32 // BITS[name]
        return [
            [
                number(
                    name,
                    t.cta.words.get((lane, address + k // per), 0) >> k % per * BITS[name] & mask(BITS[name]),
                )
                for k in range(depth)
            ]
            for lane in lanes
        ]

    def step(t: Thread) -> None:
        word = idesc(t)
        long = kind.startswith("mxf4") and bool(word >> 31)
        depth = 96 if long else shortest
        rows, columns = (word >> 24 & 31) * 16, (word >> 17 & 63) * 8
        left, right = types[word >> 7 & 7], types[word >> 10 & (3 if kind.startswith("mxf4") else 7)]
        result = "f32" if scales else ("f16", "f32", "s32")[word >> 4 & 3]
        add = summation(result, result, "", bool(word >> 3 & 1))
        parts = 128 // rows if weights else 1
        lanes = [row if rows == 128 or weights else row // 16 * 32 + row % 16 for row in range(rows)]
        if held:
            a = tensor(t, a_at(t) & mask(16), lanes, left, depth)
        else:
            a = shared(t, a_at(t), range(rows), left, bool(word >> 15 & 1), depth)
        shift = zeros(t) >> 56 & mask(6)
        turned = shared(t, b_at(t), range(shift, shift + columns), right, bool(word >> 16 & 1), depth)
        if scales:
            fine = b.has("block16") or "scale_vec::4X" in words
            each = depth // (16 if fine else 32)
            powers = bool(word >> 23 & 1)
            a = scaled(t, line, a, scale_at[0](t), word >> 29 & 3, each, powers)
            turned = scaled(t, line, turned, scale_at[1](t), word >> 4 & 3, each, powers)
        if word >> 13 & 1 != word >> 14 & 1:
            a = [[-x for x in row] for row in a]
        empty = zero_columns(zeros(t), columns, parts)
        turned = [[0.0] * depth if zero else column for zero, column in zip(empty, turned, strict=True)]
        base, wide, kept = d_at(t) & mask(16), BITS[result], reads(t)
        own = columns // parts
        places = [
            [cell(t.cta, line, column // own * rows + lane, base + column % own) for column in range(columns)]
            for lane in lanes
        ]
        starts = [[t.cta.words.get(at, 0) & mask(wide) if kept else 0 for at in row] for row in places]
        for row, sums in zip(places, add(starts, a, turned), strict=True):
            t.cta.words.update(zip(row, sums, strict=True))
        for warp in range(4) if b.has("ashift") else ():
            move_rows(t.cta, line, range(32 * warp, 32 * warp + 31), a_at(t) & mask(16))

    return step
