"""How the matrices of ``mma`` lie in the registers of a warp (manual: "Matrix fragments for mma.…").

A *layout* says for each lane and each element of its fragment which element of the matrix that is. Elements are numbered through
the registers, those of one register from the low bits up. ``inverse`` turns it round: in which lane and element a lane finds an
element of the matrix that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

__all__ = ["LANES", "Layout", "Move", "Moves", "Place", "Tile", "gather", "layouts", "tile_of"]

LANES = 32
#: (matrix, row, column): ``m8n8k4`` of f16 multiplies four pairs of matrices at once, one per quad pair, all others one
Place = tuple[int, int, int]
Layout = Callable[[int, int], Place]


def _left(per_register: int, rows: int) -> Layout:
    """A: a lane's group is the row; each register holds neighbouring columns; with 16 rows every other register is eight rows on."""
    halves = rows // 8

    def element_at(lane: int, element: int) -> Place:
        register, within = divmod(element, per_register)
        block, half = divmod(register, halves)
        return 0, lane // 4 + 8 * half, (4 * block + lane % 4) * per_register + within

    return element_at


def _right(per_register: int) -> Layout:
    """B: a lane's group is the column; each register holds neighbouring rows."""

    def element_at(lane: int, element: int) -> Place:
        register, within = divmod(element, per_register)
        return 0, (4 * register + lane % 4) * per_register + within, lane // 4

    return element_at


def _result(lane: int, element: int) -> Place:
    """C and D: two neighbouring columns, and the same two eight rows on."""
    return 0, lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2


def _quad(lane: int) -> tuple[int, int]:
    """Quad pair of a lane (lanes 0–3 with 16–19, and so on), and 4 for the upper quad of the pair."""
    return lane // 4 % 4, 4 * (lane // 16)


def _volta_left(layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        pair, upper = _quad(lane)
        return (pair, lane % 4 + upper, element) if layout == "row" else (pair, element + upper, lane % 4)

    return element_at


def _volta_right(layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        pair, upper = _quad(lane)
        return (pair, lane % 4, element + upper) if layout == "row" else (pair, element, lane % 4 + upper)

    return element_at


def _volta_result(single: bool) -> Layout:
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
        return _volta_left(left), _volta_right(right), _volta_result(accumulator), _volta_result(result)
    return _left(per_register, rows), _right(per_register), _result, _result


@cache
def _inverse(layout: Layout, elements: int) -> dict[Place, tuple[int, int]]:
    return {layout(lane, element): (lane, element) for lane in range(LANES) for element in range(elements)}


@lru_cache(maxsize=4096)
def gather(
    layout: Layout, elements: int, wanted: tuple[Place, ...]
) -> list[tuple[int, tuple[int, ...], tuple[bool, ...]]]:
    """How every lane gets the element of the matrix that it uses: for each element of the fragment that some lane needs,
    the lanes to take it from, and the lanes that use it."""
    where = [_inverse(layout, elements)[place] for place in wanted]
    needed = sorted({element for _, element in where})
    return [
        (element, tuple(lane for lane, _ in where), tuple(at == element for _, at in where))
        for element in needed
    ]


@dataclass(frozen=True, slots=True)
class Move:
    """One access by which the lanes of a warp load or store their parts of a matrix.

    ``count`` elements of ``bytes`` each, one after the other, by the first ``lanes`` lanes. A lane's address is that of the
    instruction, plus ``lines`` times the distance between the lines of the matrix, plus ``offsets`` bytes.
    """

    bytes: int
    count: int
    lanes: int = LANES
    lines: tuple[int, ...] = (0,) * LANES
    offsets: tuple[int, ...] = (0,) * LANES


@dataclass(frozen=True, slots=True)
class Moves:
    """All accesses of one instruction, in order. ``bits`` is the size of an element of the matrix and ``inner`` the elements of a
    line: the distance between lines where the instruction does not give another."""

    parts: tuple[Move, ...]
    bits: int = 0
    inner: int = 0

    @property
    def bytes(self) -> int:
        """What one lane accesses in all."""
        return sum(part.bytes * part.count for part in self.parts)

    @property
    def piece(self) -> int:
        """What one lane accesses at a time: the same in all parts."""
        return self.parts[0].bytes * self.parts[0].count


class Tile:
    """A matrix of ``rows`` × ``columns`` elements of ``bits`` as ``wmma`` holds it.

    The manual leaves open which lane holds which element. Here lane after lane holds a piece of at most 16 bytes, in the order of
    memory (of accumulators: of the rows), and so on with a second piece each until the matrix ends.
    """

    def __init__(self, rows: int, columns: int, bits: int) -> None:
        self.rows, self.columns, self.bits = rows, columns, bits
        self.elements = rows * columns // LANES
        self.piece = min(self.elements, 128 // bits)

    def inner(self, layout: str) -> int:
        """Elements of a line."""
        return self.columns if layout == "row" else self.rows

    def line(self, layout: str, lane: int, element: int) -> tuple[int, int]:
        """The line of an element of a lane's fragment, and its place there."""
        round, within = divmod(element, self.piece)
        return divmod((round * LANES + lane) * self.piece + within, self.inner(layout))

    def place(self, layout: str) -> Layout:
        """Which element a lane's fragment holds where; always the same function, by which distributions are remembered."""
        return _tile_layout(self, layout)

    def moves(self, layout: str, held: str) -> Moves:
        """How a matrix comes from memory in one layout to fragments in another, or goes there."""
        return Moves(self._parts(layout, held), self.bits, self.inner(layout))

    def _parts(self, layout: str, held: str) -> tuple[Move, ...]:
        if layout == held:
            total = self.piece * self.bits // 8
            size = 8 if self.bits == 64 else min(4, total)
            return tuple(
                self._move(size, total // size, [self.line(layout, lane, first) for lane in range(LANES)])
                for first in range(0, self.elements, self.piece)
            )
        return tuple(
            self._move(self.bits // 8, 1, [self.line(held, lane, element)[::-1] for lane in range(LANES)])
            for element in range(self.elements)
        )

    def _move(self, size: int, count: int, starts: list[tuple[int, int]]) -> Move:
        offsets = tuple(within * self.bits // 8 for _, within in starts)
        return Move(size, count, LANES, tuple(line for line, _ in starts), offsets)


@cache
def tile_of(rows: int, columns: int, bits: int) -> Tile:
    """The one tile of a size."""
    return Tile(rows, columns, bits)


@cache
def _tile_layout(tile: Tile, layout: str) -> Layout:
    def element_at(lane: int, element: int) -> Place:
        line, within = tile.line(layout, lane, element)
        return (0, line, within) if layout == "row" else (0, within, line)

    return element_at
