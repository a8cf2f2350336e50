"""Allocation of tensor memory, and copies to it, in the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ..flow.operands import matched
from ..isa import tensor_layouts
from ..isa.tensor_layouts import element_bytes, pieces_before, swizzle_width
from ..isa.tensor_memory import COPIES, Tensor, TensorProblem, packed_bits
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Instruction, Operand
from ..simt.effects import takes_short_addresses
from ..simt.schedule import Status
from .memory import MemoryStep, address_reader
from .operands import Guarded, Prepare, Reader, every_lane, reader
from .tensor_memory import refuse, require
from .values import Lanes

if TYPE_CHECKING:
    from .warp import LanesCta, ReferenceWarp

__all__ = [
    "AllocStep",
    "FreeStep",
    "Matrices",
    "TensorCopy",
    "TensorShift",
    "count_request",
    "metadata_bit",
    "metadata_row",
    "operand_reader",
    "peers_of",
    "row_lane",
    "shift_rows",
]

Bytes = npt.NDArray[np.uint8]
#: functions of ``isa.tensor_layouts``, applied to arrays
_OfArrays = Callable[..., Lanes]
line_offset, transposed_offset, swizzled, row_lane, metadata_row, metadata_bit = (
    cast(_OfArrays, getattr(tensor_layouts, name))
    for name in ("line_offset", "transposed_offset", "swizzled", "row_lane", "metadata_row", "metadata_bit")
)
_U32, _U64 = scalar_type("u32"), scalar_type("u64")


def operand_reader(to: Prepare, operand: Operand, kind: Any) -> Reader:
    """Reads an operand, or the address of an operand in tensor memory."""
    if isinstance(operand, Address):
        return address_reader(to, operand, "local")
    return reader(to, operand, kind)


def count_request(warp: ReferenceWarp, site: int | None, active: Lanes) -> None:
    """Count a request of a site if any lane is active."""
    if warp.counters.sites is not None and site is not None and active.any():
        warp.counters.sites[site][0] += 1
        warp.counters.sites[site][1] += int(active.sum())


class AllocStep:
    """``tcgen05.alloc``."""

    #: status of a warp that waits here
    status = Status.SUSPENDED

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        address = operands["a"]
        assert isinstance(address, Address)
        short = takes_short_addresses(instruction, to.program.kernel.module.target)
        self.addresses = address_reader(to, address, instruction.form.space or "generic", short)
        self.columns = reader(to, operands["columns"], _U32)
        self.access = MemoryStep(to, instruction, "store", size=4)
        self.guarded = Guarded(to, instruction)

    def count(self, warp: ReferenceWarp) -> None:
        """Count an execution."""
        count_request(warp, self.access.site, self.guarded(warp)[1])

    def __call__(self, warp: ReferenceWarp) -> bool:
        """Allocate. Returns ``False`` if the columns are not free."""
        _, active = self.guarded(warp, False)
        if not active.any():
            return True
        lane = int(np.flatnonzero(active)[0])
        columns = int(every_lane(self.columns(warp))[lane])
        tensor = warp.cta.tensor
        if columns not in (32, 64, 128, 256, 512):
            refuse(warp, self.instruction, lane, TensorProblem.COLUMNS, 0, columns)
        if tensor.closed:
            refuse(warp, self.instruction, lane, TensorProblem.CLOSED, 0, columns)
        first = tensor.allocate(columns)
        if first is None:
            if warp.expired:
                refuse(warp, self.instruction, lane, TensorProblem.FULL, 0, columns)
            return False
        warp.expired = False
        (part,) = self.access.reach(warp, np.array([lane]), every_lane(self.addresses(warp))[lane : lane + 1])
        part.region.scatter(part.offsets, np.array([first], np.uint32), _U32)
        return True

    def reason(self, warp: ReferenceWarp, shared: npt.NDArray[np.uint8]) -> str:
        """What the warp waits for, for messages."""
        return f"at {self.instruction.opcode}, for columns of tensor memory,"


class FreeStep:
    """``tcgen05.dealloc`` and ``relinquish_alloc_permit``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        self.readers = [reader(to, operands[name], _U32) for name in ("taddr", "columns") if operands]
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        _, active = self.guarded(warp)
        if not active.any():
            return
        tensor = warp.cta.tensor
        if not self.readers:
            tensor.closed = True
            return
        lane = int(np.flatnonzero(active)[0])
        address, columns = (int(every_lane(read(warp))[lane]) for read in self.readers)
        if columns == 0 or tensor.sizes.get(address) != columns:
            refuse(warp, self.instruction, lane, TensorProblem.NOT_FREED, address, columns)
        del tensor.sizes[address]
        # warps that wait for columns try again
        warp.cta.barriers.phases += 1


def peers_of(
    warp: ReferenceWarp, instruction: Instruction, lane: int, pair: bool, amount: int
) -> list[LanesCta]:
    """The CTAs whose tensor memory an instruction accesses: its own, or both of its pair, by rank."""
    if not pair:
        return [warp.cta]
    members = warp.cta.cluster.members
    rank = warp.cta.rank ^ 1
    if warp.cta.plan.cluster_ctas == 1 or rank >= len(members):
        refuse(warp, instruction, lane, TensorProblem.PAIR, 0, amount)
    return [members[warp.cta.rank & ~1], members[warp.cta.rank | 1]]


class Matrices:
    """Fetches matrices from shared memory, for one instruction."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.memory = MemoryStep(to, instruction, "load", "shared", 16)
        self.memory.remote = True

    def pieces(
        self,
        warp: ReferenceWarp,
        cta: LanesCta,
        lane: int,
        offsets: Lanes,
        pattern: tuple[int, int, int],
        recorded: int | None = None,
    ) -> Bytes:
        """16 bytes at each address of shared memory; ``pattern``: width, atom and phase of swizzling; ``recorded``: the number of the
        matrix under which they are recorded."""
        addresses = swizzled(offsets & 0x3FFFF, *pattern).reshape(-1).astype(np.uint64)
        flat = addresses + np.uint64(cta.window)
        fetched = np.empty((flat.size, 16), np.uint8)
        for part in self.memory.reach(warp, np.full(flat.size, lane), flat):
            fetched[:] = part.region.bytes[part.offsets[:, None] + np.arange(16)]
        if recorded is not None and warp.counters.values is not None and self.memory.site is not None:
            warp.counters.values.add_pieces(self.memory.site, recorded, addresses, fetched)
        return fetched.reshape(*offsets.shape, 16)

    def lines(
        self,
        warp: ReferenceWarp,
        cta: LanesCta,
        lane: int,
        descriptor: int,
        lines: int,
        pieces: int,
        bits: int,
        recorded: int | None = None,
        first: int = 0,
    ) -> Bytes:
        """Lines along K from ``first`` on, shape (lines, bytes); packed elements are expanded to bytes."""
        start, leading, stride, phase, mode = _fields(descriptor)
        width = swizzle_width(mode)
        if width == 0 or mode == 1:
            refuse(warp, self.instruction, lane, TensorProblem.SWIZZLE, 0, descriptor)
        # in the absolute address mode, 48 bytes of a line continue at another address
        before = min(pieces, pieces_before(start, width)) if pieces == 3 and width > 16 else pieces
        if width > 16 and (16 * pieces > width or (before < pieces and not descriptor >> 52 & 1)):
            refuse(warp, self.instruction, lane, TensorProblem.LINE, 0, descriptor)
        line, piece = np.arange(first, first + lines)[:, None], np.arange(pieces)[None, :]
        offsets = start + line_offset(line, piece, width, leading, stride)
        further = leading + line_offset(line, piece - before, width, 0, stride)
        offsets = np.where(piece < before, offsets, further)
        fetched = self.pieces(warp, cta, lane, offsets, (width, 4, phase), recorded)
        return _unpacked(fetched, bits).reshape(lines, 16 * pieces)

    def transposed(
        self,
        warp: ReferenceWarp,
        cta: LanesCta,
        lane: int,
        descriptor: int,
        lines: int,
        depth: int,
        size: int,
        bits: int,
        recorded: int | None = None,
        first: int = 0,
    ) -> Bytes:
        """Lines of a matrix that is not contiguous along K, from ``first`` on, shape (lines, bytes); packed elements are expanded to
        bytes."""
        start, leading, stride, phase, mode = _fields(descriptor)
        width = swizzle_width(mode)
        if width == 0 or (mode == 1) != (size == 4):
            refuse(warp, self.instruction, lane, TensorProblem.SWIZZLE, 0, descriptor)
        per = 16 // size
        skipped = first % per
        groups = np.arange(first // per, -(-(first + lines) // per))
        group, k = groups[:, None], np.arange(depth)[None, :]
        rows = 4 if mode == 1 else 8
        offsets = start + transposed_offset(group, k, width, leading, stride, rows)
        fetched = _unpacked(
            self.pieces(warp, cta, lane, offsets, (width, 4 + (mode == 1), phase), recorded), bits
        )
        elements = fetched.reshape(len(group), depth, per, size).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(elements.reshape(-1, depth * size)[skipped : skipped + lines])

    def matrix(
        self, warp: ReferenceWarp, cta: LanesCta, lane: int, descriptor: int, lines: int, depth: int, kind: int, form: int,
        across: int, number: int, first: int = 0,
    ) -> Bytes:  # fmt: skip
        """A matrix of a product, A (0) or B (1), line by line from ``first`` on."""
        size = element_bytes(kind)
        bits = 8
        if size == 1 and kind != Tensor.I8 and form >= Tensor.E2M3:
            bits = 4 if form == Tensor.E2M1 else 6
        # packed elements are not recorded, as they are not whole bytes
        recorded = number if bits == 8 else None
        if across:
            return self.transposed(warp, cta, lane, descriptor, lines, depth, size, bits, recorded, first)
        pieces = depth * size // 16 if size else depth // 32
        return self.lines(warp, cta, lane, descriptor, lines, pieces, bits, recorded, first)


def _unpacked(pieces: Bytes, bits: int) -> Bytes:
    """The 16 packed elements of pieces of 16 bytes, a byte each, shape (…, 16)."""
    if bits == 8:
        return pieces
    bits_of_elements = np.unpackbits(pieces, axis=-1, bitorder="little")[..., : 16 * bits]
    elements = bits_of_elements.reshape(*pieces.shape[:-1], 16, bits)
    return np.ascontiguousarray(np.packbits(elements, axis=-1, bitorder="little")[..., 0])


def _fields(descriptor: int) -> tuple[int, int, int, int, int]:
    """Start, leading and stride distances in bytes, base offset, and swizzling mode of a descriptor."""
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    return start, leading, stride, descriptor >> 49 & 7, descriptor >> 61


def shift_rows(cta: LanesCta, column: int, lanes: slice) -> None:
    """Give each lane the row of the next one, except the last of each 32, in the columns of a shift."""
    columns = cta.tensor.words[column : column + Tensor.SHIFTED_COLUMNS, lanes]
    moved = np.roll(columns, -1, axis=1)
    moved[:, 31::32] = columns[:, 31::32]
    columns[:] = moved


class TensorShift:
    """``tcgen05.shift``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        self.pair = instruction.form.modifier("group") == "cta_group::2"
        self.addresses = operand_reader(to, operands["taddr"], _U32)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        _, active = self.guarded(warp)
        addresses = every_lane(self.addresses(warp)).tolist()
        # each active lane, usually one, shifts a matrix of its own
        for lane in np.flatnonzero(active).tolist():
            row = addresses[lane] >> 16
            for cta in own_first(warp, self.instruction, lane, self.pair):
                if row % 32 or row >= Tensor.LANES:
                    refuse(warp, self.instruction, lane, TensorProblem.SHIFT_LANE, row, 0)
                column = require(warp, cta, self.instruction, lane, addresses[lane], Tensor.SHIFTED_COLUMNS)
                shift_rows(cta, column, slice(row, row + 32))


def own_first(warp: ReferenceWarp, instruction: Instruction, lane: int, pair: bool) -> list[LanesCta]:
    """The CTA of a warp, and the other one of the pair if ``pair``."""
    both = peers_of(warp, instruction, lane, True, 0) if pair else ()
    return [warp.cta, *(item for item in both if item is not warp.cta)]


class TensorCopy:
    """``tcgen05.cp``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        modifiers = instruction.form.modifiers
        self.shape = COPIES[str(modifiers["shape"]), str(modifiers.get("multicast") or "")]
        self.bits = packed_bits(modifiers)
        self.pair = modifiers.get("group") == "cta_group::2"
        self.addresses = operand_reader(to, operands["taddr"], _U32)
        self.descriptors = operand_reader(to, operands["b"], _U64)
        self.matrices = Matrices(to, instruction)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        _, active = self.guarded(warp)
        count_request(warp, self.matrices.memory.site, active)
        addresses, descriptors = (
            every_lane(read(warp)).tolist() for read in (self.addresses, self.descriptors)
        )
        # each active lane, usually one, copies a matrix of its own
        for lane in np.flatnonzero(active).tolist():
            for cta in own_first(warp, self.instruction, lane, self.pair):
                self._copy(warp, cta, lane, addresses[lane], descriptors[lane])

    def _copy(self, warp: ReferenceWarp, cta: LanesCta, lane: int, address: int, descriptor: int) -> None:
        rows, pieces, multicast = self.shape
        first = require(warp, cta, self.instruction, lane, address, 4 * pieces)
        base = address >> 16
        if base and (rows > 4 or base > 31):
            refuse(warp, self.instruction, lane, TensorProblem.DESTINATION, base, 0)
        fetched = self.matrices.lines(warp, cta, lane, descriptor, rows, pieces, self.bits)
        words = fetched.view("<u4").T
        if self.bits == 4:
            words = words << np.uint32(2)
        place = np.arange(Tensor.LANES)
        source = (place, place & 63, (place & 31) + (place >> 6 << 5), place & 31)[multicast]
        columns = cta.tensor.words[first : first + 4 * pieces]
        if rows == 4:
            columns[:, base::32] = words
        else:
            columns[:] = words[:, source]
