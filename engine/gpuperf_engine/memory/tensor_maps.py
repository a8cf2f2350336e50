"""Tensor maps as bytes. Results of ``cuTensorMapEncode…`` of the CUDA driver are opaque to programs (manual: "Tensor-map"); here the
128 bytes are, little-endian (offsets: ``Place``):

=========== ==========================================================================================================
bytes       field
=========== ==========================================================================================================
0 … 7       ``MAGIC``
8 … 15      rank, and by the numbers of ``isa.tensor_maps`` element type; 32 bits each
16 … 23     address
24 … 39     by the numbers of ``isa.tensor_maps`` swizzle, fill, mode, interleave; 32 bits each
40 … 49     box, innermost axis first, 16 bits each
50 … 54     element strides, 8 bits each
55          swizzle atomicity
56 … 87     strides of the axes but the innermost, in bytes, 64 bits each
88 … 107    sizes of the axes less one, 32 bits each
108 … 123   im2col: lower corner and upper corner (16 bits each, from the axis W on), channels, pixels
124 … 127   of a map that began as zeros: the fields that it still lacks (``isa.tensor_maps.UNSET_BITS``)
=========== ==========================================================================================================

CUTLASS (from 4.3.4 on, for drivers up to CUDA 13.1) clears bit 21 of bytes 8 … 15 in maps of tensors below 128 KiB, which is 0 here.
In an interleaved map the innermost axis is W, and its elements are slices of 16 or 32 bytes of the channels; the slices of a pixel
are the last axis but one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..isa.tensor_maps import (
    ATOMS,
    CHANNELS_MAX,
    ELEMENTS,
    FIELDS,
    FILLS,
    HALO_LIMITS,
    INTERLEAVES,
    MODES,
    OUT_OF_BOUNDS,
    PIXELS_MAX,
    SWIZZLES,
    UNSET_BITS,
    W_OFFSET_LIMIT,
    WIDE_PIXELS,
    Element,
    field_word,
)

__all__ = ["MAGIC", "MAP_BYTES", "Layout", "Place", "field_bit", "field_place"]

MAP_BYTES = 128
MAGIC = 0x3150414D_52534E54
_FORMAT = "<Q2IQ4I5H5BB4Q5I6h2HI"
_PADDED = tuple(number for number, element in enumerate(ELEMENTS) if element.held != element.size)


class Place:
    """Offsets of the fields, and tables by element type with so many bits per entry."""

    RANK = 8
    TYPE = 12
    ADDRESS = 16
    SWIZZLE = 24
    FILL = 28
    MODE = 32
    INTERLEAVE = 36
    BOX = 40
    STEPS = 50
    ATOM = 55
    STRIDES = 56
    SHAPE = 88
    LOWER = 108
    UPPER = 114
    CHANNELS = 120
    PIXELS = 122
    UNSET = 124
    #: bytes of a unit in global memory, four bits each
    SIZES = sum(element.size << 4 * number for number, element in enumerate(ELEMENTS))
    #: types by number, one bit each: padded ones, those that may be filled with NaN, and those that are rounded
    PADDED = sum(1 << number for number in _PADDED)
    FLOATS = sum(1 << number for number, element in enumerate(ELEMENTS) if element.is_float)
    ROUNDED = sum(1 << number for number, element in enumerate(ELEMENTS) if element.name.startswith("tf32"))
    PACKED_4 = next(number for number, element in enumerate(ELEMENTS) if element.name == "b4x16")
    PACKED_6 = next(number for number, element in enumerate(ELEMENTS) if element.name == "b6x16_p32")
    #: elements of a padded unit, its bytes in shared memory, and the multiple that the first coordinate must be
    PADDED_ELEMENTS, PADDED_HELD, PADDED_START = next(
        (ELEMENTS[number].elements, ELEMENTS[number].held, ELEMENTS[number].start) for number in _PADDED
    )
    #: numbers of values with restrictions
    SWIZZLE_128 = SWIZZLES.index("128B")
    SWIZZLE_96 = SWIZZLES.index("96B")
    FLIPPED = ATOMS.index("32B_FLIP_8B")
    ATOM_64B = ATOMS.index("64B")
    #: all fields that a map may lack, the bit of the first of each, and their names in messages
    EVERY_FIELD = sum(((1 << FIELDS[name].number) - 1) << bit for name, bit in UNSET_BITS.items())
    NO_ADDRESS, NO_BOX, NO_SHAPE, NO_STEP, NO_STRIDE = UNSET_BITS.values()
    ADDRESS_WORD, BOX_WORD, SHAPE_WORD, STEP_WORD, STRIDE_WORD = map(field_word, UNSET_BITS)
    #: exclusive bounds of numbers, and limits of some fields
    TYPES, WIDTHS, FILLINGS, KINDS = len(ELEMENTS), len(SWIZZLES), len(FILLS), len(MODES)
    SLICES, ATOMICITIES = len(INTERLEAVES), len(ATOMS)
    MOST_BOX, MOST_STEP = FIELDS["box_dim"].high, FIELDS["element_stride"].high
    MOST_CHANNELS, MOST_PIXELS = CHANNELS_MAX, PIXELS_MAX
    WIDE = MODES.index("im2col::w")
    WIDE_128 = MODES.index("im2col::w::128")
    WIDE_128_PIXELS = WIDE_PIXELS
    WIDE_HALO = HALO_LIMITS["im2col::w"]
    WIDE_128_HALO = HALO_LIMITS["im2col::w::128"]
    WIDE_OFFSET = W_OFFSET_LIMIT
    #: 64 bits of the value of elements out of bounds
    NAN = OUT_OF_BOUNDS * 0x0001_0001_0001_0001


#: field of ``tensormap.replace`` → offset, bytes, and a number that is added to the value
_FIELDS = {
    "global_address": (Place.ADDRESS, 8, 0),
    "rank": (Place.RANK, 4, 1),
    "box_dim": (Place.BOX, 2, 0),
    "global_dim": (Place.SHAPE, 4, -1),
    "global_stride": (Place.STRIDES, 8, 0),
    "element_stride": (Place.STEPS, 1, 0),
    "elemtype": (Place.TYPE, 4, 0),
    "interleave_layout": (Place.INTERLEAVE, 4, 0),
    "swizzle_mode": (Place.SWIZZLE, 4, 0),
    "swizzle_atomicity": (Place.ATOM, 1, 0),
    "fill_mode": (Place.FILL, 4, 0),
}


def field_place(name: str, ordinal: int) -> tuple[int, int, int]:
    """The offset at which ``tensormap.replace`` writes, the number of bytes, and what it adds to the value."""
    offset, size, bias = _FIELDS[name]
    return offset + min(ordinal, FIELDS[name].number - 1) * size, size, bias


def field_bit(name: str, ordinal: int) -> int:
    """The bit mask of a field that a map may lack; 0 for fields that are always set."""
    return 1 << UNSET_BITS[name] + ordinal if name in UNSET_BITS else 0


def _takes(name: str, value: int) -> bool:
    return FIELDS[name].low <= value <= FIELDS[name].high


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a tensor map; axes innermost first, as the driver has them. ``strides[0]`` is that of axis 1."""

    address: int
    rank: int
    type: int
    swizzle: int
    fill: int
    mode: int
    interleave: int
    box: tuple[int, ...]
    steps: tuple[int, ...]
    atom: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    corners: tuple[int, ...] = (0,) * 6
    channels: int = 0
    pixels: int = 0
    unset: int = 0

    @classmethod
    def begun(cls) -> Layout:
        """The map that 128 zero bytes become when their first field is set."""
        none, ones = (0,) * 5, (1,) * 5
        return cls(0, 1, 0, 0, 0, 0, 0, ones, ones, 0, none[:4], ones, unset=Place.EVERY_FIELD)

    @property
    def missing(self) -> int | None:
        """The first field that a copy needs and that has not been set, as ``field_word``."""
        bits = UNSET_BITS
        wanted = [("global_address", 0)]
        for axis in range(self.rank):
            wanted += [(name, axis) for name in ("box_dim", "global_dim", "element_stride")]
            wanted += [("global_stride", axis)] * (axis + 1 < self.rank)
        return next((field_word(*item) for item in wanted if self.unset >> bits[item[0]] + item[1] & 1), None)

    def encode(self) -> bytes:
        """The 128 bytes."""
        return struct.pack(
            _FORMAT, MAGIC, self.rank, self.type, self.address, self.swizzle, self.fill, self.mode, self.interleave,
            *self.box, *self.steps, self.atom, *self.strides, *(size - 1 for size in self.shape), *self.corners,
            self.channels, self.pixels, self.unset,
        )  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> Layout | None:
        """``None`` if these bytes are not a tensor map."""
        magic, rank, kind, address, swizzle, fill, mode, interleave, *rest = struct.unpack(_FORMAT, raw)
        layout = cls(
            address, rank, kind, swizzle, fill, mode, interleave, tuple(rest[:5]), tuple(rest[5:10]), rest[10],
            tuple(rest[11:15]), tuple(item + 1 for item in rest[15:20]), tuple(rest[20:26]), *rest[26:],
        )  # fmt: skip
        return layout if magic == MAGIC and layout._is_one() else None

    def _is_one(self) -> bool:
        """Whether all fields are valid, as programs can write anything."""
        names = (
            (self.type, ELEMENTS),
            (self.swizzle, SWIZZLES),
            (self.fill, FILLS),
            (self.interleave, INTERLEAVES),
        )
        return (
            1 <= self.rank <= 5
            and all(number < len(known) for number, known in (*names, (self.atom, ATOMS), (self.mode, MODES)))
            and all(_takes("box_dim", length) for length in self.box)
            and all(_takes("element_stride", step) for step in self.steps)
            and self.channels <= CHANNELS_MAX
            and self.pixels <= PIXELS_MAX
        )

    @property
    def element(self) -> Element:
        """The element type."""
        return ELEMENTS[self.type]

    @property
    def unit(self) -> Element:
        """The unit of copies: for an interleaved tensor a slice."""
        if not self.interleave:
            return self.element
        size = 8 << self.interleave
        return Element(self.element.driver, self.element.name, size, size)

    @property
    def step(self) -> int:
        """The distance between the first coordinates of consecutive units."""
        return self.steps[0] if self.interleave else self.element.elements

    def counts(self) -> list[int]:
        """Units along the first axis, and elements along the others, of a box."""
        counts = [-(-length // step) for length, step in zip(self.box[: self.rank], self.steps)]
        if not self.interleave:
            counts[0] = self.box[0] // self.element.elements
        elif self.rank > 1:
            counts[self.rank - 2] = 1
        return counts

    @property
    def pixel_units(self) -> int:
        """Units of a pixel of an im2col copy."""
        return 1 if self.interleave else self.channels // self.element.elements

    @property
    def padding(self) -> int:
        """64 bits of the value of elements out of bounds."""
        return Place.NAN if self.fill and self.element.is_float else 0
