"""Bulk and tensor copies: tensor maps, flags of a copy, and the instruction of a copy's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory.tensor_maps import Place
from .codes import PLACE_SHIFT, TERMINATOR
from .records import U8, U16, U32, U64, Array8, Array16, Array32, Array64, Record

if TYPE_CHECKING:
    from ...ptx.syntax import Instruction
    from ...simt.program import Program

__all__ = ["Bulk", "TensorMap", "instruction_at"]


class TensorMap(Record):
    """A tensor map; see ``memory.tensor_maps``."""

    ADDRESS = U64(Place.ADDRESS)
    RANK = U32(Place.RANK)
    TYPE = U32(Place.TYPE)
    SWIZZLE = U32(Place.SWIZZLE)
    FILL = U32(Place.FILL)
    MODE = U32(Place.MODE)
    INTERLEAVE = U32(Place.INTERLEAVE)
    BOX = Array16(Place.BOX)
    STEPS = Array8(Place.STEPS)
    ATOM = U8(Place.ATOM)
    STRIDES = Array64(Place.STRIDES)
    SHAPE = Array32(Place.SHAPE)
    LOWER = Array16(Place.LOWER)
    UPPER = Array16(Place.UPPER)
    CHANNELS = U16(Place.CHANNELS)
    PIXELS = U16(Place.PIXELS)
    UNSET = U32(Place.UNSET)


class Bulk:
    """Flags of a bulk copy: its direction and destination; and the offset in ``SCRATCH`` of the coordinates of tensor copies."""

    FROM_GLOBAL = 1
    TO_GLOBAL = 2
    MULTICAST = 4
    MASKED = 8
    FOUR_ROWS = 16
    AGAIN = 32  # the same elements to a further CTA
    ANSWER = 64  # the 16-byte response to ``clusterlaunchcontrol.try_cancel``; of a multicast: to all CTAs of the cluster
    GENERIC = 128  # the addresses are generic ones
    EDGES = 2048  # the words are bytes at the ends that are left out: first eight bits, and the next
    REPORT = 12  # from this bit on: 1 + the place of the pattern in ``PATTERNS``
    #: patterns, by hexadecimal digits, with which the first element of 16 bytes is compared, and one for single bytes
    PATTERNS = ("80000000", "8000", "80", "8", "ff")
    #: a tensor copy: the mode of the map that it takes, two bits from this one on
    MODE = 8
    PAIRED = 1024  # mbarriers in one of each two CTAs are signalled
    CURSOR = 6144
    #: a tensor copy whose address, and whose sizes and strides, are operands; the offset of the map with these values
    READDRESSED = 1 << 16
    RESIZED = 1 << 17
    CHANGED = 6400
    #: whether something is to be reported
    FOUND = 6528
    #: offsets of these operands from those of the coordinates
    BASE = 1024
    EXTENTS = 1280
    LOWER = 1920
    UPPER = 2432
    #: or-ed to the number of a site where the mbarrier caused the fault
    SIGNALS = 1 << 40


def instruction_at(program: Program, site: int) -> Instruction:
    """The instruction of a site, or the one that is not a site of that number."""
    if site >= 0:
        return program.sites[site & ~Bulk.SIGNALS].instruction
    block, index = divmod(-1 - site, 1 << PLACE_SHIFT)
    ending = program.blocks[block].terminator if index == TERMINATOR else None
    return program.blocks[block].instructions[index] if ending is None else ending
