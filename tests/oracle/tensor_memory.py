"""``tcgen05`` without products (see ``tensor_products``): allocation, ``ld`` and ``st``, ``cp``, ``shift``, ``commit``. All is done
at once, element after element; each thread loads and stores what is its own, and the first thread of a warp allocates for it.

Manual: "Tensor Memory", "Matrix Fragments", "Packing and Unpacking", "Canonical Layouts", "Absolute address mode for K dimension being
48B", "tcgen05.cp", "Optional Decompression".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .integers import mask, signed
from .matrices import Meet, items
from .mbarriers import mbarrier_at, owner
from .memory import OracleError
from .operands import Builder, Step
from .products import number

if TYPE_CHECKING:
    from .exchange import WarpWait
    from .threads import Cta, Thread

COLUMNS = 512
#: bits of an address that swizzling adds, and to which bits
SWIZZLE = {0: (0, 0), 1: (0x180, 2), 2: (0x380, 3), 4: (0x180, 3), 6: (0x080, 3)}
WIDTH = {0: 16, 1: 128, 2: 128, 4: 64, 6: 32}
#: of each shape that is copied to tensor memory: rows, bytes of a row, and the row that each lane gets (None: lane 32 r gets row r)
COPIES = {
    "128x256b": (128, 32, lambda lane: lane),
    "128x128b": (128, 16, lambda lane: lane),
    "64x128b.02_13": (64, 16, lambda lane: lane % 64),
    "64x128b.01_23": (64, 16, lambda lane: lane // 64 * 32 + lane % 32),
    "32x128b": (32, 16, lambda lane: lane % 32),
    "4x256b": (4, 32, None),
}


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


def pair_of(t: Thread) -> list[Cta]:
    """The CTA of a thread and the other one of its pair, the one with the even rank first."""
    ctas, first = t.cta.cluster.ctas, t.cta.rank & ~1
    if first + 2 > len(ctas):
        raise OracleError(f"the CTA of rank {t.cta.rank} has no peer")
    return list(ctas[first : first + 2])


def commit(b: Builder) -> Step:
    address = b.address(0)
    members = b.get(1, 16) if b.has("multicast") else None

    def step(t: Thread) -> None:
        if members is None:
            put_nothing(mbarrier_at(t, address(t)).arrive(1))
            return
        mbarrier_at(t, address(t))
        for rank, cta in enumerate(t.cta.cluster.ctas):
            if members(t) >> rank & 1:
                put_nothing(cta.mbarriers[owner(t, address(t))[1]].arrive(1))

    return step


def put_nothing(state: int) -> None:
    """The state of the phase goes nowhere."""


def cell(cta: Cta, line: int, lane: int, column: int) -> tuple[int, int]:
    """A word of tensor memory, if its column is allocated."""
    if not any(first <= column < first + count for first, count in cta.columns.items()):
        raise OracleError(f"line {line}: column {column} of tensor memory is not allocated")
    return lane, column


def place_of(shape: str, lane: int, register: int) -> tuple[int, int]:
    """Lane and column that a thread's register holds, from the address on, without the offset of the upper threads."""
    group, four = divmod(lane, 4)
    if shape == "32x32b":
        return lane, register
    if shape == "16x32bx2":
        return lane % 16, register
    if shape == "16x64b":
        return group + 8 * (four % 2), 2 * register + four // 2
    if shape == "16x128b":
        return group + 8 * (register % 2), register // 2 * 4 + four
    return group + register % 4 // 2 * 8, register // 4 * 8 + 2 * four + register % 2


def access(b: Builder, meet: Meet) -> Step:
    """``ld`` and ``st``, of all lanes of a warp at once: one lane may hold what lies in the row of another."""
    loads, packed = b.mods[0] == "ld", b.has("pack") or b.has("unpack")
    shapes = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
    shape = next((word for word in b.mods if word in shapes), "")
    if not shape or b.has("spcompress"):
        raise b.fail("the oracle does not know this form")
    behind = 2 if b.has("red") else int(loads)
    address = b.address(behind)
    offset = b.get(behind + 1, 32) if shape == "16x32bx2" else (lambda t: 0)
    held, line = items(b, 0 if loads else len(b.operands) - 1), b.statement.line
    puts = [b.put(item, 32) for item in (*held, *([b.operands[1]] if b.has("red") else []))] if loads else []
    gets = [] if loads else [b.get(item, 32) for item in held]

    def cells(t: Thread, register: int) -> list[tuple[int, int]]:
        """The word, or the two words whose lower halves are held."""
        first, column = divmod(address(t) & mask(32), 1 << 16)
        row, further = place_of(shape, t.lane, register)
        wide, column = 1 + packed, column + (offset(t) if t.lane >= 16 else 0)
        return [cell(t.cta, line, first + row, column + wide * further + half) for half in range(wide)]

    def loaded(t: Thread) -> tuple[int, ...]:
        found = []
        for register in range(len(held)):
            words = [t.cta.words.get(at, 0) for at in cells(t, register)]
            found.append(words[0] & mask(16) | words[1] << 16 & mask(32) if packed else words[0])
        return (*found, *([reduced(b, found)] if b.has("red") else []))

    def exchange(waits: dict[int, WarpWait]) -> dict[int, tuple[int, ...]]:
        if loads:
            return {lane: loaded(wait.thread) for lane, wait in waits.items()}
        for wait in waits.values():
            for register, word in enumerate(wait.values):
                halves = (word & mask(16), word >> 16) if packed else (word,)
                wait.thread.cta.words.update(zip(cells(wait.thread, register), halves, strict=True))
        return {lane: () for lane in waits}

    return meet(b, gets, puts, exchange)


def reduced(b: Builder, words: list[int]) -> int:
    """The smallest or largest number of a lane."""

    def meant(bits: int) -> float | int:
        if not b.has("f32"):
            return signed(bits, 32) if b.has("s32") else bits
        found = number("f32", bits & mask(31) if b.has("abs") else bits)
        if found != found:
            raise b.fail("the oracle reduces no NaN")
        return found

    found = (max if b.has("max") else min)(words, key=meant)
    return found & mask(31) if b.has("abs") else found


def piece_of(descriptor: int, line: int, k: int, unit: int, across: bool) -> tuple[int, int]:
    """The address of the 16 bytes of shared memory that hold an element, and its index in them; they hold ``unit`` elements."""
    start, leading, stride = ((descriptor >> at & mask(14)) << 4 for at in (0, 16, 32))
    mode = descriptor >> 61
    width = WIDTH[mode]
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
    at += start
    chosen, down = SWIZZLE[mode]
    return at ^ (at & chosen) >> down, within


def copy(b: Builder) -> Step:
    words = b.statement.modifiers
    shape = next(word for word in words if word.endswith("b") and "x" in word)
    shape += next((f".{word[8:]}" for word in words if word.startswith("warpx2::")), "")
    rows, size, row_of = COPIES[shape]
    bits = 4 if "b4x16_p64" in words else 6 if "b6x16_p32" in words else 8
    address, matrix, line = b.address(0), b.get(1, 64), b.statement.line

    def step(t: Thread) -> None:
        first, column = divmod(address(t) & mask(32), 1 << 16)
        for cta in pair_of(t) if "cta_group::2" in words else [t.cta]:
            data = []
            for row in range(rows):
                whole = 0
                for byte in range(size):
                    at, within = piece_of(matrix(t), row, byte, 16, False)
                    code = int.from_bytes(cta.shared[at : at + 16], "little") >> within * bits & mask(bits)
                    whole |= code << (8 * byte + (2 if bits == 4 else 0))
                data.append(whole)
            for lane in range(128) if row_of else range(first, 128, 32):
                held = data[row_of(lane) if row_of else lane // 32]
                for word in range(size // 4):
                    cta.words[cell(cta, line, lane, column + word)] = held >> 32 * word & mask(32)

    return step


def shift(b: Builder) -> Step:
    address, line = b.address(0), b.statement.line

    def step(t: Thread) -> None:
        first, column = divmod(address(t) & mask(32), 1 << 16)
        for cta in pair_of(t) if "cta_group::2" in b.statement.modifiers else [t.cta]:
            move_rows(cta, line, range(first, first + 31), column)

    return step


def move_rows(cta: Cta, line: int, lanes: range, column: int) -> None:
    """Each of these lanes gets 32 bytes of the next one (NVIDIA/cutlass 7107b055, ``1cta_mma_a_from_tmem.py``)."""
    for lane in lanes:
        for further in range(column, column + 8):
            cta.words[cell(cta, line, lane, further)] = cta.words.get((lane + 1, further), 0)
