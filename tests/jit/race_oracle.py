"""Races of random kernels in global memory, by comparing every two accesses of every byte.

A kernel is a list of statements that all threads execute in order, each an access at an address that NumPy computes as the kernel
does, or a barrier. Blocks cannot wait for one another, so nothing orders two blocks; in a block only barriers order warps. The lanes
of a warp are taken to be in order, and the warps of a block to run one after the other up to the next barrier (``docs/engine.md``,
"Races").
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Finding", "Kernel", "Pairs", "pairs_of"]

Numbers = NDArray[np.int64]

_HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 index) {
.reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<2>; .reg .b16 %h<2>;
ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [index];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r6, %r2, %r3, %r1;
mul.wide.u32 %rd3, %r6, 4; add.u64 %rd3, %rd2, %rd3; ld.global.u32 %r7, [%rd3]; shr.u32 %r10, %r1, 5;
"""
#: a statement of the kernel takes one line; so many come first
_FIRST_LINE = _HEAD.count("\n") + 1
#: places and values by name: how the kernel computes them, in %r8 or %r9
_NUMBERS = {
    "zero": "mov.u32 {to}, 0;",
    "one": "mov.u32 {to}, 1;",
    "thread": "mov.u32 {to}, %r1;",
    "block": "mov.u32 {to}, %r2;",
    "global": "mov.u32 {to}, %r6;",
    "data": "mov.u32 {to}, %r7;",
    "warp": "mov.u32 {to}, %r10;",
    "few": "and.b32 {to}, %r7, 7;",
    "some": "and.b32 {to}, %r1, 63;",
    "turned": "xor.b32 {to}, %r1, 31;",
    "parity": "and.b32 {to}, %r1, 1;",
    "row": "mul.wide.u32 %rd7, %r2, 4; add.u64 %rd7, %rd2, %rd7; ld.global.u32 {to}, [%rd7]; mad.lo.u32 {to}, {to}, ROW, %r1;",
}
_GUARDS = ("", "", "", "first", "odd", "sparse", "late", "early")


@dataclass(frozen=True)
class Statement:
    """An access of ``count`` elements of ``width`` bytes by the threads that are ``on``: ``places``, in bytes, and ``values`` of them;
    or a barrier (``kind`` ``bar``)."""

    kind: str
    width: int = 4
    count: int = 1
    places: Numbers | None = None
    values: Numbers | None = None
    on: NDArray[np.bool_] | None = None

    @property
    def stores(self) -> bool:
        return self.kind != "ld"

    @property
    def strong(self) -> int:
        """Among all threads: 2; among those of a block: 1."""
        return {"red": 2, "vol": 2, "cta": 1}.get(self.kind, 0)


class Kernel:
    """A random kernel: its text, its launch, and its statements. ``whole``: all accesses are of 4, 8 or 16 bytes. ``indexed``: most
    are at elements, or in rows, whose numbers are loaded, of which mostly no two are the same. ``alone``: one block does all."""

    def __init__(self, seed: int, whole: bool, indexed: bool = False, alone: bool = False) -> None:
        rng = random.Random(seed)
        self.grid, self.block = rng.choice(((20, 32), (12, 64), (9, 100), (7, 128), (30, 40)))
        if alone:
            self.grid, self.block = 1, 256
        count = self.grid * self.block
        self.table = np.random.default_rng(seed).permutation(count)
        if rng.random() < (0.05 if indexed else 0.3):
            self.table %= 50
        self._usual: tuple[str, int] | None = None
        row = self.block
        if indexed:
            row = rng.choice((32, 64, 128, self.block, self.block))
            self._usual = rng.choice(("data", "row")), rng.choice((4, 4, 8, 16, 32))
            if rng.random() < 0.3:
                # those of any two threads, or of any two blocks
                some = rng.choice((self.grid, count))
                self.table[rng.randrange(some)] = self.table[rng.randrange(some)]
        thread = np.tile(np.arange(self.block), self.grid)
        block = np.repeat(np.arange(self.grid), self.block)
        self.block_of, self.thread_of = block, thread
        self._by_name = {
            "zero": 0 * thread, "one": 0 * thread + 1, "thread": thread, "block": block, "global": np.arange(count),
            "data": self.table, "warp": thread >> 5, "few": self.table & 7, "some": thread & 63, "turned": thread ^ 31,
            "parity": thread & 1, "row": self.table[block] * row + thread,
        }  # fmt: skip
        self.statements: list[Statement] = []
        self.lines: list[str] = []
        for _ in range(rng.randint(2, 6)):
            self._add(rng, whole)
            if rng.random() < 0.25:
                self.statements.append(Statement("bar"))
                self.lines.append("bar.sync 0;")
        self.lines = [line.replace("ROW", str(row)) for line in self.lines]

    @property
    def text(self) -> str:
        return _HEAD + "\n".join((*self.lines, "ret; }", ""))

    @property
    def unit(self) -> int | None:
        """The logarithm of the bytes of a word where words are looked at; ``None``: they are not, as some accesses are too wide."""
        sizes = [item.width * item.count for item in self.statements if item.kind != "bar"]
        least = min([4, *sizes])
        return None if max(sizes, default=0) > 8 * least else least.bit_length() - 1

    def line_of(self, number: int) -> int:
        """The line of a statement."""
        return _FIRST_LINE + number

    def _add(self, rng: random.Random, whole: bool) -> None:
        kind = rng.choice(("st",) * 6 + ("ld",) * 4 + ("red", "vol", "cta"))
        size = rng.choice((4, 4, 4, 8, 16) if whole else (1, 2, 4, 4, 8, 16))
        if kind in ("red", "vol", "cta"):
            size = 4
        width = min(size, rng.choice((4, 8))) if size < 16 else 4
        place = rng.choice(
            ("zero", "thread", "block", "global", "data", "data", "warp", "few", "some", "turned")
        )
        value = rng.choice(("one", "one", "thread", "block", "warp", "data", "parity"))
        scale, offset = size * rng.choice((1, 1, 2, 4)), size * rng.randint(0, 5)
        if self._usual and self._usual[1] % size == 0 and rng.random() < 0.9:
            # not much of it overlaps what other elements have
            place, scale = self._usual
            offset = size * rng.randint(0, max(0, scale // size - (rng.random() < 0.9)))
        guard, on = self._guard(rng)
        line = (
            f"{_NUMBERS[place].format(to='%r8')} mul.wide.u32 %rd4, %r8, {scale}; add.u64 %rd4, %rd4, {offset}; "
            f"add.u64 %rd4, %rd1, %rd4; {_NUMBERS[value].format(to='%r9')} cvt.u64.u32 %rd5, %r9; cvt.u16.u32 %h1, %r9; {guard}"
        )
        count = size // width
        registers = {1: "%h1", 2: "%h1", 4: "%r9", 8: "%rd5"}[width]
        if kind == "ld":
            registers = {1: "%h0", 2: "%h0", 4: "%r11", 8: "%rd6"}[width]
        if count > 1:
            loaded = ("%r11", "%r12", "%r13", "%r14") if width == 4 else ("%rd6", "%rd7")
            registers = f"{{{', '.join(loaded[:count] if kind == 'ld' else (registers,) * count)}}}"
        vector = f".v{count}" if count > 1 else ""
        line += {
            "st": f"st.global{vector}.u{8 * width} [%rd4], {registers};",
            "ld": f"ld.global{vector}.u{8 * width} {registers}, [%rd4];",
            "red": "red.global.add.u32 [%rd4], %r9;",
            "vol": "st.volatile.global.u32 [%rd4], %r9;",
            "cta": "st.relaxed.cta.global.u32 [%rd4], %r9;",
        }[kind]
        self.lines.append(line)
        places = self._by_name[place] * scale + offset
        self.statements.append(Statement(kind, width, count, places, self._by_name[value], on))

    def _guard(self, rng: random.Random) -> tuple[str, NDArray[np.bool_]]:
        name, limit = rng.choice(_GUARDS), rng.randint(0, 9)
        given = {
            "": ("", np.ones(len(self.table), np.bool_)),
            "first": ("setp.eq.u32 %p1, %r1, 0;", self.thread_of == 0),
            "odd": ("and.b32 %r15, %r1, 1; setp.eq.u32 %p1, %r15, 1;", self.thread_of % 2 == 1),
            "sparse": ("and.b32 %r15, %r7, 3; setp.eq.u32 %p1, %r15, 1;", self.table % 4 == 1),
            "late": (f"setp.gt.u32 %p1, %r2, {limit};", self.block_of > limit),
            "early": (f"setp.lt.u32 %p1, %r2, {limit};", self.block_of < limit),
        }
        text, on = given[name]
        return text + (" @%p1 " if text else ""), on


@dataclass(frozen=True)
class Finding:
    """A race: its kind, both blocks, both lines, both warps, and the byte."""

    kind: str
    blocks: tuple[int, int]
    lines: tuple[int, int]
    warps: tuple[int, int]
    byte: int


@dataclass(frozen=True)
class Pairs:
    """Every two accesses of a byte that are a race, the earlier one first: columns of numbers. ``kinds``: 1 RAW, 2 WAR, 3 WAW."""

    kinds: Numbers
    blocks: Numbers  # two columns, as those below
    lines: Numbers
    warps: Numbers
    bytes: Numbers
    #: whether the blocks, if there are two, are among the first four that store, or load, in the word, and in the 64 bytes; of the
    #: warps of one block, whether there are four at most
    first_of_word: NDArray[np.bool_]
    first_of_line: NDArray[np.bool_]
    #: whether the later one changes what it finds, or is no plain store: what is stored before may be ordered with it through stores
    #: of the same value
    changing: NDArray[np.bool_]
    #: bytes of an element, by line
    elements: Mapping[int, int]

    NAMES = ("", "RAW", "WAR", "WAW")

    def kinds_of(self, within: bool, kept: NDArray[np.bool_] | None = None) -> set[str]:
        """The kinds of races in a block, or between blocks."""
        some = (self.blocks[:, 0] == self.blocks[:, 1]) == within
        some &= self.changing | (not within)
        if kept is not None:
            some &= kept
        return {self.NAMES[kind] for kind in np.unique(self.kinds[some]).tolist()}

    def first_blocks(self, kind: str) -> tuple[int, int] | None:
        """Of the pairs of blocks that have a race of a kind, and are kept of a word, the least."""
        some = (
            (self.kinds == self.NAMES.index(kind))
            & (self.blocks[:, 0] != self.blocks[:, 1])
            & self.first_of_word
        )
        return min(map(tuple, self.blocks[some].tolist()), default=None)

    def has(self, found: Finding, exact: bool) -> bool:
        """Whether a finding is one of them, in the smaller element of its lines. ``exact``: with its lines and warps."""
        element = min(self.elements[line] for line in found.lines)
        some = (self.kinds == self.NAMES.index(found.kind)) & (
            self.bytes - self.bytes % element == found.byte
        )
        some &= (self.blocks == found.blocks).all(axis=1)
        if exact:
            some &= (self.lines == found.lines).all(axis=1) & (self.warps == found.warps).all(axis=1)
        return bool(some.any())


def _events(kernel: Kernel) -> Iterator[Numbers]:
    """Of each byte and access of a warp a row: byte, block, interval between barriers, warp, statement, whether it stores, strength,
    value."""
    interval = 0
    for number, statement in enumerate(kernel.statements):
        if statement.kind == "bar":
            interval += 1
            continue
        assert statement.places is not None and statement.values is not None and statement.on is not None
        on = np.flatnonzero(statement.on)
        for byte in range(statement.width * statement.count):
            value = statement.values[on] >> 8 * (byte % statement.width) & 255
            if statement.kind == "red":
                value = -1 - on  # one that nobody stores
            columns = (
                statement.places[on] + byte, kernel.block_of[on], interval, kernel.thread_of[on] >> 5, number,
                int(statement.stores), statement.strong, value,
            )  # fmt: skip
            rows = np.stack([np.broadcast_to(column, on.shape) for column in columns], axis=1)
            # the last lane of a warp stays
            _, last = np.unique(rows[::-1, :5], axis=0, return_index=True)
            yield rows[len(rows) - 1 - last]


def pairs_of(kernel: Kernel) -> Pairs:
    """All races of a kernel."""
    events = np.concatenate([*_events(kernel), np.empty((0, 8), np.int64)])
    events = events[np.lexsort(events.T[4::-1])]
    byte = events[:, 0]
    starts = np.flatnonzero(np.r_[True, byte[1:] != byte[:-1]]) if len(byte) else np.empty(0, np.int64)
    counts = np.diff(np.r_[starts, len(byte)])
    group = np.repeat(np.arange(len(starts)), counts)
    # each event with all that follow in its group
    following = (starts + counts)[group] - np.arange(len(byte)) - 1
    one = np.repeat(np.arange(len(byte)), following)
    other = np.arange(len(one)) - np.repeat(np.cumsum(following) - following, following) + one + 1
    a, b = events[one], events[other]
    among = a[:, 1] != b[:, 1]
    strong = np.where(among, (a[:, 6] == 2) & (b[:, 6] == 2), (a[:, 6] > 0) & (b[:, 6] > 0))
    unordered = among | ((a[:, 2] == b[:, 2]) & (a[:, 3] != b[:, 3]))
    kinds = np.where(a[:, 5] & b[:, 5], 3, np.where(a[:, 5], 1, np.where(b[:, 5], 2, 0)))
    plain = (kinds == 3) & (a[:, 6] == 0) & (b[:, 6] == 0)
    several = _several_values(events, starts)[group][one]
    changes = _changes(events)[other]
    races = unordered & ~strong & (kinds > 0) & (~plain | np.where(among, several, changes))
    a, b = a[races], b[races]
    one, other, among = one[races], other[races], among[races]
    few = _few(events)
    kept = [
        np.where(among, (rank[one] < 4) & (rank[other] < 4), few[one] & few[other])
        for rank in (_ranks(events, bits) for bits in (2 if kernel.unit is None else kernel.unit, 6))
    ]
    lines = np.stack([a[:, 4], b[:, 4]], axis=1) + kernel.line_of(0)
    sure = (kinds[races] != 3) | (b[:, 6] > 0) | changes[races]
    return Pairs(
        kinds[races],
        np.stack([a[:, 1], b[:, 1]], axis=1),
        lines,
        np.stack([a[:, 3], b[:, 3]], axis=1),
        a[:, 0],
        kept[0],
        kept[1],
        sure,
        {kernel.line_of(number): statement.width for number, statement in enumerate(kernel.statements)},
    )


def _several_values(events: Numbers, starts: Numbers) -> NDArray[np.bool_]:
    """Whether stores give a byte several values; what is strong counts as such."""
    if not len(starts):
        return np.empty(0, np.bool_)
    stores, value = events[:, 5] == 1, events[:, 7]
    least = np.minimum.reduceat(np.where(stores, value, 1 << 40), starts)
    most = np.maximum.reduceat(np.where(stores, value, -(1 << 40)), starts)
    strong = np.maximum.reduceat(events[:, 6] * events[:, 5], starts) > 0
    return (least < most) | strong


def _changes(events: Numbers) -> NDArray[np.bool_]:
    """Whether a store changes what its block stored there before; events are in order."""
    changes = np.zeros(len(events), np.bool_)
    stores = np.flatnonzero(events[:, 5] == 1)
    here, before = events[stores[1:]], events[stores[:-1]]
    same = (here[:, :2] == before[:, :2]).all(axis=1)
    changes[stores[1:]] = same & (here[:, 7] != before[:, 7])
    return changes


def _ranks(events: Numbers, bits: int) -> Numbers:
    """How many blocks come before that of an event, of those that store, or that load, in its word or line."""
    keys = np.stack([events[:, 0] >> bits, events[:, 5], 2 * events[:, 1] + (events[:, 6] == 2)], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    if not len(unique):
        return inverse
    first = np.r_[True, (unique[1:, :2] != unique[:-1, :2]).any(axis=1)]
    starts = np.flatnonzero(first)
    ranks: Numbers = np.arange(len(unique)) - starts[np.cumsum(first) - 1]
    return np.take(ranks, inverse.reshape(-1))


def _few(events: Numbers) -> NDArray[np.bool_]:
    """Whether at most four warps of the block store, or load, in the 64 bytes, between barriers and by each kind of access."""
    lines = np.stack([events[:, 1], events[:, 0] >> 6, events[:, 5]], axis=1)
    agents = np.concatenate([lines, events[:, [2, 3, 6]]], axis=1)
    _, first = np.unique(agents, axis=0, return_index=True)
    _, inverse, counts = np.unique(lines, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    few: NDArray[np.bool_] = np.bincount(inverse[first], minlength=len(counts))[inverse] <= 4
    return few
