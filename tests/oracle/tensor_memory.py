"""``tcgen05`` of one CTA: allocation, ``ld`` and ``st``, products of dense matrices, ``commit``. All is done at once, element after
element; each thread loads and stores what is its own, and the first thread of a warp allocates for it.

Manual: "Tensor Memory", "Matrix Fragments", "Instruction descriptor", "Canonical Layouts", "Data Path Layout Organization" (D and F).
"""

from __future__ import annotations

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
    """Where an element of a matrix begins in shared memory."""
    start, leading, stride = ((descriptor >> at & mask(14)) << 4 for at in (0, 16, 32))
    mode = descriptor >> 61
    width, unit = WIDTH[mode], 128 // bits
    if not across:
        piece, within = divmod(k, unit)
        at = line % 8 * width + line // 8 * stride + piece * (16 if mode else leading)
    else:
        group, within = divmod(line, unit)
        high, units = 4 if mode == 1 else 8, width // 16
        steps = (leading, stride) if mode else (stride, leading)
        at = group % units * 16 + group // units * steps[0] + k % high * width + k // high * steps[1]
    at += start + within * bits // 8
    chosen, down = SWIZZLE[mode]
    return at ^ (at & chosen) >> down


def product(b: Builder) -> Step:
    words = b.statement.modifiers
    kind = next(word for word in words if word.startswith("kind::")).removeprefix("kind::")
    if kind not in KINDS or {"sp", "ws"} & {*b.mods} or "cta_group::2" in words or len(b.operands) != 5:
        raise b.fail("the oracle multiplies no such matrices")
    types, depth = KINDS[kind]
    held = isinstance(b.operands[1], Address)
    if isinstance(b.operands[4], Constant):
        raise b.fail("the oracle takes a predicate")
    d_at, a_at, b_at = b.address(0), b.address(1) if held else b.get(1, 64), b.get(2, 64)
    idesc, reads, line = b.get(3, 32), b.get(4, 1), b.statement.line

    def shared(t: Thread, descriptor: int, lines: int, name: str, across: bool) -> list[list[Number]]:
        size = BITS[name] // 8
        found = []
        for row in range(lines):
            places = [byte_of(descriptor, row, k, BITS[name], across) for k in range(depth)]
            found.append(
                [number(name, int.from_bytes(t.cta.shared[at : at + size], "little")) for at in places]
            )
        return found

    def step(t: Thread) -> None:
        word = idesc(t)
        rows, columns = (word >> 24 & 31) * 16, (word >> 17 & 63) * 8
        left, right = types[word >> 7 & 7], types[word >> 10 & 7]
        result = ("f16", "f32", "s32")[word >> 4 & 3]
        add = summation(result, result, "", bool(word >> 3 & 1))
        lanes = [row if rows == 128 else row // 16 * 32 + row % 16 for row in range(rows)]
        if held:
            first, per = a_at(t) & mask(16), 32 // BITS[left]
            a = [
                [
                    number(
                        left,
                        t.cta.words.get((lane, first + k // per), 0) >> k % per * BITS[left]
                        & mask(BITS[left]),
                    )
                    for k in range(depth)
                ]
                for lane in lanes
            ]
        else:
            a = shared(t, a_at(t), rows, left, bool(word >> 15 & 1))
        turned = shared(t, b_at(t), columns, right, bool(word >> 16 & 1))
        if word >> 13 & 1 != word >> 14 & 1:
            a = [[-x for x in row] for row in a]
        base, wide, kept = d_at(t) & mask(16), BITS[result], reads(t)
        places = [[cell(t.cta, line, lane, base + column) for column in range(columns)] for lane in lanes]
        starts = [[t.cta.words.get(at, 0) & mask(wide) if kept else 0 for at in row] for row in places]
        for row, sums in zip(places, add(starts, a, turned), strict=True):
            t.cta.words.update(zip(row, sums, strict=True))
        for warp in range(4) if b.has("ashift") else ():
            move_rows(t.cta, line, range(32 * warp, 32 * warp + 31), a_at(t) & mask(16))

    return step
