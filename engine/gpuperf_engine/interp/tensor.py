"""Tensor copies of the reference backend: executed when they are issued, lane by lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..flow.operands import matched
from ..isa.rows.tensor import combine_elements
from ..isa.tensor_maps import FIELDS, Problem, field_word
from ..isa.types import ScalarType, scalar_type
from ..memory.spaces import bit_of
from ..memory.tensor_boxes import Box, Override, box_of, copy_of, problem_of, swizzled
from ..memory.tensor_maps import MAP_BYTES, Layout, Place, field_bit, field_place
from ..ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from ..simt.counters import LINE_BYTES
from ..simt.faults import bad_mbarrier
from .bulk import BULK_PIECE, Targets, count, spans, validity_pattern
from .memory import MemoryStep, address_reader
from .operands import Guarded, Prepare, every_lane, lane_value, reader
from .value_recorder import ValueRecorder
from .values import Lanes, LaneValue, dtype_of

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["ReplaceStep", "TensorStep"]

_S32, _U16, _U32, _U64 = (scalar_type(name) for name in ("s32", "u16", "u32", "u64"))


class _Map:
    """The tensor map at an address operand."""

    def __init__(
        self, to: Prepare, instruction: Instruction, operand: Address, space: str, kind: str
    ) -> None:
        self.instruction = instruction
        self.addresses = address_reader(to, operand, space)
        self.access = MemoryStep(to, instruction, kind, space, BULK_PIECE)

    def read(self, warp: ReferenceWarp, lane: int, begins: bool = False) -> tuple[Layout, Any, int]:
        """The map of a lane, and its bytes; ``begins``: 128 zero bytes are a map whose fields are not set yet. Raises ``TrapError``
        if there is none."""
        address = int(every_lane(self.addresses(warp))[lane])
        addresses = np.uint64(address) + np.arange(0, MAP_BYTES, BULK_PIECE, dtype=np.uint64)
        (part,) = self.access.reach(warp, np.repeat(lane, addresses.size), addresses)
        first = int(part.offsets[0])
        contents = part.region.bytes[first : first + MAP_BYTES]
        layout = Layout.decode(contents.tobytes())
        if layout is None and begins and not contents.any():
            layout = Layout.begun()
            contents[:] = np.frombuffer(layout.encode(), np.uint8)
        if layout is None:
            raise bad_mbarrier(warp.position(), self.instruction, lane, Problem.NO_MAP, address, 0, 0)
        return layout, part.region, first


class TensorStep:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        self.to, self.instruction, self.copy = to, instruction, copy_of(instruction)
        loads = self.copy.loads
        map_operand, shared = operands["t"], operands["d" if loads else "a"]
        assert isinstance(map_operand, Address)
        assert isinstance(shared, Address)
        self.map = _Map(to, instruction, map_operand, "generic", "load")
        self.read_start = [reader(to, item, _S32) for item in _elements(operands["c"])]
        self.read_offsets = [reader(to, item, _U16) for item in _elements(operands.get("offsets"))]
        self.read_base = reader(to, operands["base"], _U64) if "base" in operands else None
        small = {slot.name: slot.type for slot, _ in matched(instruction)}.get("sizes") or _U16
        kind = scalar_type(f"u{small.bits}")
        self.read_sizes = [reader(to, item, kind) for item in _elements(operands.get("sizes"))]
        self.read_lower = [reader(to, item, _U32) for item in _elements(operands.get("lower"))]
        self.read_upper = reader(to, operands["upper"], _U16) if "upper" in operands else None
        self.pattern = validity_pattern(instruction)
        self.read_places = address_reader(to, shared, "shared")
        self.targets = Targets(to, instruction, operands, "shared")
        self.inner_kind = "store" if loads else "load"
        self.outer_kind = "load" if loads else "reduction" if self.copy.operation else "store"
        self.guarded = Guarded(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: ReferenceWarp) -> None:
        lanes = np.flatnonzero(self.guarded(warp)[1]).tolist()
        if not lanes:
            return
        count(warp, self.site, requests=1)
        for lane in lanes:
            layout, _, _ = self.map.read(warp, lane)
            if layout.missing is not None:
                map_address = int(every_lane(self.map.addresses(warp))[lane])
                raise bad_mbarrier(
                    warp.position(), self.instruction, lane, Problem.UNSET, map_address, layout.missing, 0
                )
            offset = int(every_lane(self.read_places(warp))[lane])
            start, offsets = (
                [int(every_lane(read(warp))[lane]) for read in readers]
                for readers in (self.read_start, self.read_offsets)
            )
            problem = None
            override = self._override(warp, lane)
            if override is not None:
                problem = override.problem(start)
                layout = override.applied(layout)
            problem = problem or problem_of(self.copy, layout, offset, start, offsets)
            if problem is not None:
                number, word, amount = problem
                raise bad_mbarrier(warp.position(), self.instruction, lane, number, offset, word, amount)
            box = box_of(self.copy, layout, start, offsets, warp.cta.plan.shared_bytes)
            for copy, rank in enumerate(self.targets.ranks(warp, lane)):
                self._move(warp, lane, box, self.targets.address_in(offset, rank))
                self.targets.signal(warp, lane, rank, box.bytes, self._is_reported(warp, lane, box))
                self._tally(warp, box, again=copy > 0)

    def _override(self, warp: ReferenceWarp, lane: int) -> Override | None:
        """The properties that operands override, or ``None``."""
        if self.read_base is None:
            return None
        sizes, lower = (
            tuple(int(every_lane(read(warp))[lane]) for read in readers)
            for readers in (self.read_sizes, self.read_lower)
        )
        upper = 0 if self.read_upper is None else int(every_lane(self.read_upper(warp))[lane])
        address = int(every_lane(self.read_base(warp))[lane])
        return Override(address, tuple(size & 0xFF for size in sizes), lower, upper)

    def _is_reported(self, warp: ReferenceWarp, lane: int, box: Box) -> bool:
        """Whether a copied element of the tensor, the first of each 16 bytes, has the pattern of invalid data and its size."""
        pattern = self.pattern
        if pattern is None:
            return False
        size = box.layout.unit.size
        element_bytes = max(1, pattern.bits // 8)
        starts = box.addresses[box.inside]
        addresses = (
            (starts[:, None] + np.arange(size - element_bytes + 1, dtype=np.uint64)).ravel()
            if element_bytes <= size
            else starts[:0]
        )
        if not pattern.every:
            addresses = addresses[addresses % np.uint64(BULK_PIECE) == 0]
        if not addresses.size:
            return False
        words, indices = self._outside(
            warp, lane, addresses[:, None] + np.arange(element_bytes, dtype=np.uint64), 1
        )
        return pattern.matches(words[indices])

    def _move(self, warp: ReferenceWarp, lane: int, box: Box, offset: int) -> None:
        """Copy in words that both ends contain completely."""
        layout, unit = box.layout, box.layout.unit
        packs = layout.type == Place.PACKED_6 and not self.copy.loads
        wide = layout.element.size if self.copy.operation else _word(unit.size)
        units = offset + np.arange(box.inside.size)[:, None] * unit.held
        inner = self._inside(warp, lane, box, units, offset, unit.held if packs else unit.size, wide)
        chosen = box.addresses[box.inside][:, None] + np.arange(0, unit.size, wide, dtype=np.uint64)
        if self.copy.loads:
            data = np.full(inner[1].shape, layout.padding & (1 << 8 * wide) - 1, inner[0].dtype)
            if chosen.size:
                outer, source = self._outside(warp, lane, chosen, wide)
                data[box.inside] = _rounded(layout, outer[source])
            inner[0][inner[1]] = data
        elif chosen.size:
            outer, target = self._outside(warp, lane, chosen, wide)
            new = inner[0][inner[1]][box.inside]
            if self.copy.operation:
                self._combine(layout, outer, target.ravel(), new.ravel())
            else:
                outer[target] = _packed(new) if packs else new

    def _inside(
        self, warp: ReferenceWarp, lane: int, box: Box, units: Lanes, offset: int, size: int, wide: int
    ) -> tuple[Lanes, Lanes]:
        """Shared memory in words, and the indices of the words of the units."""
        layout = box.layout
        pads = layout.unit.held != size
        piece = wide if pads else BULK_PIECE
        access = MemoryStep(self.to, self.instruction, self.inner_kind, "shared", piece)
        moved = swizzled(layout, units + np.arange(0, size, wide))
        # padding is not written; without it, the pieces of the box are contiguous in one CTA
        offsets = moved.ravel() if pads else offset + np.arange(0, box.held, BULK_PIECE)
        (tile,) = access.reach(warp, np.repeat(lane, offsets.size), offsets.astype(np.uint64))
        words: Lanes = tile.region.words(wide)
        return words, (moved + (int(tile.offsets[0]) - int(offsets[0]))) // wide

    def _outside(self, warp: ReferenceWarp, lane: int, addresses: Lanes, wide: int) -> tuple[Lanes, Lanes]:
        """Device memory in words, and the indices of the words at the addresses."""
        access = MemoryStep(self.to, self.instruction, self.outer_kind, "global", wide)
        if self.copy.loads:
            # the address comes from the map, and may be that of constant memory
            access.reaches |= bit_of("const")
        (part,) = access.reach(warp, np.repeat(lane, addresses.size), addresses.ravel())
        return part.region.words(wide), (part.offsets // wide).reshape(addresses.shape)

    def _record(self, recorder: ValueRecorder, units: Lanes, size: int) -> None:
        """Record the units of a row in global memory."""
        first, last = int(units[0]), int(units[-1]) + size
        if last - first == units.size * size:
            recorder.add_range(self.site, first, last - first)
        else:
            for address in units.tolist():
                recorder.add_range(self.site, address, size)

    def _combine(self, layout: Layout, words: Lanes, word_indices: Lanes, new: Lanes) -> None:
        """Combine element by element if several have one address, as along an axis without a stride."""
        kind: ScalarType = scalar_type(layout.element.name.removesuffix(".ftz"))
        rest = np.arange(word_indices.size)
        while rest.size:
            _, first = np.unique(word_indices[rest], return_index=True)
            chosen = rest[first]
            operands = [
                LaneValue(item.view(dtype_of(kind)), kind)
                for item in (words[word_indices[chosen]], new[chosen])
            ]
            combined = combine_elements(*operands, op=self.copy.operation, element=layout.element.name)
            words[word_indices[chosen]] = np.ascontiguousarray(lane_value(combined).data).view(words.dtype)
            rest = np.delete(rest, first)

    def _tally(self, warp: ReferenceWarp, box: Box, again: bool) -> None:
        waves = -(-box.held // 128)
        count(warp, self.site, wavefronts=waves, ideal=waves)
        if again:
            return
        size = box.layout.unit.size
        sectors = lines = 0
        for addresses, inside in zip(box.addresses.reshape(-1, box.row), box.inside.reshape(-1, box.row)):
            if inside.any():
                first, last = int(addresses[inside][0]), int(addresses[inside][-1]) + size
                if warp.counters.values is not None:
                    self._record(warp.counters.values, addresses[inside], size)
                sectors += spans(first, last - first, 32)
                lines += spans(first, last - first, LINE_BYTES)
                if self.copy.operation and warp.counters.targets is not None:
                    warp.counters.targets.add_bytes(addresses[inside], size)
        pieces = -(-int(box.inside.sum()) * size // BULK_PIECE)
        count(warp, self.site, sectors=sectors, lines=lines, lanes=pieces)


def _elements(operand: Operand | None) -> tuple[Operand, ...]:
    if operand is None:
        return ()
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _word(size: int) -> int:
    """The longest word that divides a unit."""
    return min(8, size & -size)


def _rounded(layout: Layout, words: Lanes) -> Lanes:
    """Loaded words rounded to tf32, to nearest even, with one NaN."""
    if not Place.ROUNDED >> layout.type & 1:
        return words
    wide = words.astype(np.uint64)
    kept = (wide + 0xFFF + (wide >> 13 & 1)) & ~np.uint64(0x1FFF)
    return np.where((wide & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, kept).astype(words.dtype)


def _packed(words: Lanes) -> Lanes:
    """The low six bits of each of sixteen bytes, packed from four words to three."""
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 16, 1), axis=2, bitorder="little")[:, :, :6]
    return np.packbits(bits.reshape(-1, 96), axis=1, bitorder="little").view(np.uint32)


class ReplaceStep:
    """``tensormap.replace``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {slot.name: operand for slot, operand in matched(instruction)}
        map_operand, ordinal = operands["a"], operands.get("ordinal")
        assert isinstance(map_operand, Address)
        space = instruction.form.space or "generic"
        self.instruction = instruction
        self.map = _Map(to, instruction, map_operand, space, "store")
        self.field = str(instruction.form.modifier("field"))
        self.ordinal = ordinal.value if isinstance(ordinal, Immediate) else 0
        self.read_value = reader(to, operands["value"], _U64 if ".b64" in instruction.opcode else _U32)
        self.guarded = Guarded(to, instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        field = FIELDS[self.field]
        field_offset, size, bias = field_place(self.field, self.ordinal)
        for lane in np.flatnonzero(self.guarded(warp)[1]).tolist():
            layout, region, first = self.map.read(warp, lane, begins=True)
            value = int(every_lane(self.read_value(warp))[lane])
            if self.ordinal >= field.number or not field.low <= value <= field.high or value % field.multiple:
                word = field_word(self.field, self.ordinal)
                address = int(every_lane(self.map.addresses(warp))[lane])
                raise bad_mbarrier(
                    warp.position(), self.instruction, lane, Problem.VALUE, address, word, value
                )
            raw = (value + bias).to_bytes(size, "little")
            region.bytes[first + field_offset : first + field_offset + size] = np.frombuffer(raw, np.uint8)
            unset = layout.unset & ~field_bit(self.field, self.ordinal)
            end = first + Place.UNSET + 4
            region.bytes[end - 4 : end] = np.frombuffer(unset.to_bytes(4, "little"), np.uint8)
