"""How the matrices of ``mma`` are distributed over the registers of a warp (manual: "Matrix fragments for mma.…").

A *layout* maps a lane and an element of its fragment to an element of the matrix. The elements of a fragment are numbered register
by register, and within a register from the low bits up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

__all__ = ["LANES", "Layout", "Move", "Moves", "Place", "Tile", "gather", "layouts", "tile_of"]

LANES = 32
#: (matrix, row, column): ``m8n8k4`` of f16 multiplies four pairs of matrices at once, one per quad pair; all other shapes one
Place = tuple[int, int, int]
Layout = Callable[[int, int], Place]


def _layout_of_a(per_register: int, rows: int) -> Layout:
    """A: the row is the lane's group; a register holds neighbouring columns; with 16 rows, every other register is 8 rows further."""
    halves = rows // 8

    def element_at(lane: int, element: int) -> Place:
        register, within = divmod(element, per_register)
        block, half = divmod(register, halves)
        return 0, lane // 4 + 8 * half, (4 * block + lane % 4) * per_register + within

    return element_at


def _layout_of_b(per_register: int) -> Layout:
    """B: the column is the lane's group; a register holds neighbouring rows."""

    def element_at(lane: int, element: int) -> Place:
        register, within = divmod(element, per_register)
        return 0, (4 * register + lane % 4) * per_register + within, lane // 4

    return element_at


def _layout_of_c(lane: int, element: int) -> Place:
    """C and D: two neighbouring columns, and the same two columns 8 rows further."""
    return 0, lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2


def _quad(lane: int) -> tuple[int, int]:
    """Quad pair of a lane (lanes 0–3 with 16–19, and so on), and 4 for the upper quad of the pair."""
    return lane // 4 % 4, 4 * (lane // 16)


def _volta_layout_of_a(layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        pair, upper = _quad(lane)
        return (pair, lane % 4 + upper, element) if layout == "row" else (pair, element + upper, lane % 4)

    return element_at


def _volta_layout_of_b(layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        pair, upper = _quad(lane)
        return (pair, lane % 4, element + upper) if layout == "row" else (pair, element, lane % 4 + upper)

    return element_at


def _volta_layout_of_c(single: bool) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        pair, upper = _quad(lane)
        if not single:
            return pair, lane % 4 + upper, element
        return pair, (lane & 1) + (element & 2) + upper, (element & 4) + (lane & 2) + (element & 1)

    return element_at


@cache
def layouts(
    rows: int, per_register: int, volta: tuple[str, str, bool, bool] | None = None
) -> tuple[Layout, Layout, Layout, Layout]:
    """Layouts of A, B, C and D. ``per_register``: elements of A and B in one register; ``volta``: layouts of A and B and whether C and
    D are f32, for ``m8n8k4`` of f16."""
    if volta is not None:
        left, right, accumulator, result = volta
        return (
            _volta_layout_of_a(left),
            _volta_layout_of_b(right),
            _volta_layout_of_c(accumulator),
            _volta_layout_of_c(result),
        )
    return _layout_of_a(per_register, rows), _layout_of_b(per_register), _layout_of_c, _layout_of_c


@cache
def _inverse(layout: Layout, elements: int) -> dict[Place, tuple[int, int]]:
    return {layout(lane, element): (lane, element) for lane in range(LANES) for element in range(elements)}


@lru_cache(maxsize=4096)
def gather(
    layout: Layout, elements: int, wanted: tuple[Place, ...]
) -> list[tuple[int, tuple[int, ...], tuple[bool, ...]]]:
    """The exchanges of lanes by which every lane gets the element of the matrix that it uses: for each element of the fragment
    that a lane needs, the source lanes, and whether each lane uses it."""
    sources = [_inverse(layout, elements)[place] for place in wanted]
    needed = sorted({element for _, element in sources})
    return [
        (element, tuple(lane for lane, _ in sources), tuple(at == element for _, at in sources))
        for element in needed
    ]


@dataclass(frozen=True, slots=True)
class Move:
    """One access by which the lanes of a warp load or store their parts of a matrix.

    The first ``lanes`` lanes each access ``count`` consecutive elements of ``bytes``. A lane's address is that of the
    instruction, plus ``lines`` times the distance between the lines of the matrix, plus ``offsets`` bytes.
    """

    bytes: int
    count: int
    lanes: int = LANES
    lines: tuple[int, ...] = (0,) * LANES
    offsets: tuple[int, ...] = (0,) * LANES


@dataclass(frozen=True, slots=True)
class Moves:
    """All accesses of one instruction, in order. ``bits`` is the size of an element of the matrix, and ``inner`` the elements of a
    line: the distance between lines unless the instruction specifies it."""

    parts: tuple[Move, ...]
    bits: int = 0
    inner: int = 0

    @property
    def bytes(self) -> int:
        """Bytes that one lane accesses in total."""
        return sum(part.bytes * part.count for part in self.parts)

    @property
    def piece(self) -> int:
        """Bytes of one access of a lane, the same in all parts."""
        return self.parts[0].bytes * self.parts[0].count


class Tile:
    """The fragments of ``wmma`` for a matrix of ``rows`` × ``columns`` elements of ``bits``.

    The manual does not specify which lane holds which element. Here consecutive lanes hold consecutive pieces of at most 16 bytes, in
    the order of memory (for accumulators: row by row), followed by a second piece per lane, until the end of the matrix.
    """

    def __init__(self, rows: int, columns: int, bits: int) -> None:
        self.rows, self.columns, self.bits = rows, columns, bits
        self.elements = rows * columns // LANES
        self.piece = min(self.elements, 128 // bits)

    def inner(self, layout: str) -> int:
        """Elements of a line."""
        return self.columns if layout == "row" else self.rows

    def line(self, layout: str, lane: int, element: int) -> tuple[int, int]:
        """The line of an element of a lane's fragment, and its index in the line."""
        round, within = divmod(element, self.piece)
        return divmod((round * LANES + lane) * self.piece + within, self.inner(layout))

    def place(self, layout: str) -> Layout:
        """The layout of the fragments; always the same function object, as ``gather`` caches by it."""
        return _tile_layout(self, layout)

    def moves(self, layout: str, fragment_layout: str) -> Moves:
        """The accesses that load a matrix of one layout in memory into fragments of another, or store it."""
        return Moves(self._parts(layout, fragment_layout), self.bits, self.inner(layout))

    def _parts(self, layout: str, fragment_layout: str) -> tuple[Move, ...]:
        if layout == fragment_layout:
            total = self.piece * self.bits // 8
            size = 8 if self.bits == 64 else min(4, total)
            return tuple(
                self._move(size, total // size, [self.line(layout, lane, first) for lane in range(LANES)])
                for first in range(0, self.elements, self.piece)
            )
        return tuple(
            self._move(
                self.bits // 8, 1, [self.line(fragment_layout, lane, element)[::-1] for lane in range(LANES)]
            )
            for element in range(self.elements)
        )

    def _move(self, size: int, count: int, starts: list[tuple[int, int]]) -> Move:
        offsets = tuple(within * self.bits // 8 for _, within in starts)
        return Move(size, count, LANES, tuple(line for line, _ in starts), offsets)


@cache
def tile_of(rows: int, columns: int, bits: int) -> Tile:
    """The only ``Tile`` object of a size."""
    return Tile(rows, columns, bits)


@cache
def _tile_layout(tile: Tile, layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        line, within = tile.line(layout, lane, element)
        return (0, line, within) if layout == "row" else (0, within, line)

    return element_at
