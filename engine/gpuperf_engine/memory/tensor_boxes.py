"""The elements that a tensor copy moves, their addresses in shared memory, and errors of copies (manual: "Tensor Access
Modes", "Swizzling Modes", "Restriction on Tensor Copy instructions").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..isa.tensor_maps import (
    ATOMS,
    HALO_LIMITS,
    MODES,
    OFFSET_BITS,
    REDUCTIONS,
    W_OFFSET_LIMIT,
    WIDE_PIXELS,
    Problem,
)
from ..ptx.syntax import Instruction
from .tensor_maps import Layout, Place

__all__ = ["Box", "Copy", "Override", "box_of", "copy_of", "problem_of", "swizzled"]

Places = NDArray[np.int64]


class Copy(NamedTuple):
    """The properties of a copy in its opcode. ``mode`` is that of its map; ``operation`` is empty except for reductions."""

    rank: int
    mode: int
    loads: bool
    four_rows: bool
    operation: str


def copy_of(instruction: Instruction) -> Copy:
    """The properties of a tensor copy in its opcode."""
    form = instruction.form
    mode = str(form.modifier("mode") or "tile").replace("_no_offs", "")
    return Copy(
        rank=int(str(form.modifier("dim"))[0]),
        mode=0 if mode.startswith("tile") else MODES.index(mode),
        loads=form.modifier("src") == "global",
        four_rows=mode.endswith("4"),
        operation=str(form.modifier("op") or ""),
    )


@dataclass(frozen=True, slots=True)
class Box:
    """The units of one copy, in the order of shared memory: device addresses, and whether they are in bounds. ``row``: the number of
    contiguous units."""

    addresses: NDArray[np.uint64]
    inside: NDArray[np.bool_]
    row: int
    layout: Layout

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        return self.addresses.size * self.layout.unit.size

    @property
    def held(self) -> int:
        """Bytes of shared memory, including padding."""
        return self.addresses.size * self.layout.unit.held


class Override(NamedTuple):
    """Properties that operands override; without axes only the address (manual: "Overriding tensor property value")."""

    address: int
    sizes: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: int = 0

    def problem(self, start: Sequence[int]) -> tuple[int, int, int] | None:
        """Why it is an error: ``Problem``, and its word and amount."""
        if self.address % 16:
            return Problem.OVERRIDE, 0, self.address
        if self.sizes:
            for axis, at in enumerate(start):
                if at:
                    return Problem.OVERRIDE, 1 + axis, at
            for axis, size in enumerate(self.sizes):
                if size == 0:
                    return Problem.OVERRIDE, 16 + axis, 0
        return None

    def applied(self, layout: Layout) -> Layout:
        """The map with these values."""
        if not self.sizes:
            return replace(layout, address=self.address)
        strides = [(low | (self.upper >> 4 * axis & 15) << 32) << 4 for axis, low in enumerate(self.lower)]
        return replace(
            layout,
            address=self.address,
            shape=(*self.sizes, *layout.shape[len(self.sizes) :]),
            strides=(*strides, *layout.strides[len(strides) :]),
        )


def problem_of(
    copy: Copy, layout: Layout, target: int, start: Sequence[int], offsets: Sequence[int]
) -> tuple[int, int, int] | None:
    """The error of a copy: ``Problem``, and its word and amount, or ``None``."""
    element, first = layout.element, int(not layout.interleave)
    if layout.rank != copy.rank:
        return Problem.RANK, 0, layout.rank
    if layout.mode != copy.mode:
        return Problem.MODE, 0, layout.mode
    if layout.interleave and layout.rank < 3:
        return Problem.AXES, 0, layout.rank
    padded = Place.PADDED >> layout.type & 1
    if layout.interleave and padded:
        return Problem.SLICES, 0, layout.type
    if target % 128:
        return Problem.LINE, 0, 0
    if copy.operation and element.name not in REDUCTIONS[copy.operation].split():
        return Problem.OPERATION, 0, layout.type
    if copy.four_rows and (layout.interleave or layout.box[1] != 1):
        return Problem.ROWS, int(layout.interleave != 0), layout.box[1]
    row = (layout.pixel_units if layout.mode else layout.counts()[0]) * layout.unit.held
    if row == 0 or row % 16:
        return Problem.BOX, 0, row
    atom = ATOMS[layout.atom] if layout.swizzle == Place.SWIZZLE_128 else ""
    if not copy.loads and padded and layout.type != Place.PACKED_6:
        return Problem.PADDED_STORE, 0, layout.type
    if atom == "32B_FLIP_8B" and (padded or not copy.loads):
        return Problem.FLIPPED, 0, 0
    if atom == "64B" and padded and copy.loads:
        return Problem.ATOM, 0, layout.type
    odd = layout.atom or layout.interleave or padded or layout.mode == Place.WIDE_128 or row > 96
    if layout.swizzle == Place.SWIZZLE_96 and odd:
        return Problem.SWIZZLE_96, 0, row
    if first and start[0] % element.start:
        return Problem.START, element.start, start[0]
    if not copy.loads:
        for axis, at in enumerate(start):
            if at < 0:
                return Problem.NEGATIVE, axis, at
    if not layout.mode:
        return None
    wide, spatial = layout.mode > 1, layout.rank - 2
    if not copy.loads:
        for axis in range(spatial):
            if layout.corners[axis] < 0 or layout.corners[3 + axis] > 0:
                return Problem.CORNERS, 0, axis
    limits = [1 << OFFSET_BITS[spatial]] * spatial
    if wide:
        limits = [HALO_LIMITS[MODES[layout.mode]], W_OFFSET_LIMIT]
    for offset, limit in zip(offsets, limits):
        if offset >= limit:
            return Problem.OFFSET, limit, offset
    for axis in range(1 if wide else spatial):
        at, lower = start[first + axis], layout.corners[axis]
        if (at < lower and not wide) or at >= layout.shape[first + axis] + layout.corners[3 + axis]:
            return Problem.BASE, first + axis, at
    return None


def box_of(copy: Copy, layout: Layout, start: Sequence[int], offsets: Sequence[int], most: int) -> Box:
    """The units of a copy that begins at these coordinates, innermost first; ``offsets`` are those of im2col. ``most``: the bytes of
    shared memory, to which a larger copy is truncated."""
    if layout.mode:
        row, lines = layout.pixel_units, _pixels(layout, start, offsets)
    elif copy.four_rows:
        row, lines = layout.counts()[0], np.array([[start[0], at] for at in start[1:5]], np.int64)
    else:
        row, *counts = layout.counts()
        rows = min(int(np.prod(counts)), most // (row * layout.unit.held) + 2)
        rest = np.arange(rows)
        columns = [np.full(rest.size, start[0])]
        for first, step, count in zip(start[1:], layout.steps[1:], counts):
            columns.append(first + step * (rest % count))
            rest //= count
        lines = np.stack(columns, 1)
    unit = layout.unit
    inner = np.tile(np.arange(row) * layout.step, len(lines)) + np.repeat(lines[:, 0], row)
    inside = (inner >= 0) & (inner < layout.shape[0])
    # modulo 2^64, as programs can write any map
    addresses = np.uint64(layout.address) + (inner // unit.elements * unit.size).astype(np.uint64)
    for axis in range(1, layout.rank):
        at = np.repeat(lines[:, axis], row)
        inside &= (at >= 0) & (at < layout.shape[axis])
        addresses += at.astype(np.uint64) * np.uint64(layout.strides[axis - 1])
    return Box(addresses, inside, row, layout)


def _pixels(layout: Layout, start: Sequence[int], offsets: Sequence[int]) -> Places:
    """Coordinates of the pixels of an im2col copy, one after the other (manual: "im2col mode", "im2col::w and im2col::w::128 modes").

    The manual specifies the order of halo pixels of ``im2col::w::128`` only by a figure: they follow all other pixels, first those of
    each of the four groups of 32, then the second ones, as the rows of ``tcgen05.cp`` with shape ``4x256b``.
    """
    wide, first = layout.mode > 1, int(not layout.interleave)
    spatial = 1 if wide else layout.rank - 2
    halo, moved = (offsets[0], offsets[1]) if wide and offsets else (0, 0)
    lower = [corner + moved for corner in layout.corners[:spatial]]
    upper = [layout.shape[first + axis] + layout.corners[3 + axis] + moved for axis in range(spatial)]
    groups = WIDE_PIXELS // 32 if MODES[layout.mode] == "im2col::w::128" else 1
    pixels = layout.pixels if groups == 1 else WIDE_PIXELS
    coordinates = list(start)
    coordinates[first] += moved
    walk = []
    for _ in range(pixels + halo):
        walk.append(list(coordinates))
        for axis in range(spatial):
            coordinates[first + axis] += layout.steps[first + axis]
            if coordinates[first + axis] < upper[axis]:
                break
            coordinates[first + axis] = lower[axis]
        else:
            coordinates[layout.rank - 1] += 1
    each = pixels // groups
    order = [*range(pixels), *(each * (group + 1) + more for more in range(halo) for group in range(groups))]
    table = np.array(walk, np.int64)[order]
    if not wide and offsets:
        table[:, first : first + spatial] += np.array(offsets[:spatial])
    return table


def swizzled(layout: Layout, offsets: Places) -> Places:
    """Swizzled addresses of shared memory."""
    if layout.swizzle != Place.SWIZZLE_128:
        bits = 1 if layout.swizzle == Place.SWIZZLE_96 else layout.swizzle
        return offsets ^ ((offsets >> 7 & (1 << bits) - 1) << 4)
    atom = ATOMS[layout.atom]
    bits, shift = {"16B": (3, 4), "64B": (1, 6)}.get(atom, (2, 5))
    moved = offsets ^ ((offsets >> 7 & (1 << bits) - 1) << shift)
    return moved ^ (offsets >> 4 & 8) if atom == "32B_FLIP_8B" else moved
