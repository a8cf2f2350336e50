"""Tensor copies of the reference backend: carried out when they are issued, lane after lane.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..flow.operands import matched
from ..isa.mbarriers import Mbarrier
from ..isa.rows.atomic import combine
from ..isa.types import ScalarType, scalar_type
from ..ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from .diagnose import bad_mbarrier
from .lanes_bulk import Active, count, in_rank, spans
from .lanes_mbarrier import Objects
from .lanes_memory import MemoryStep, address_reader
from .lanes_operands import Prepare, every_lane, lane_value, reader
from .lanes_values import LaneValue, dtype_of
from .observe import LINE_BYTES
from .tensor_maps import MAP_BYTES, Box, Layout, box_of, swizzled

if TYPE_CHECKING:
    from .lanes_warp import LanesWarp

__all__ = ["ReplaceStep", "TensorStep"]

Lanes = npt.NDArray[Any]
_S32, _U16, _U64 = scalar_type("s32"), scalar_type("u16"), scalar_type("u64")
_PIECE = 16
_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16")
_OPERATIONS = {
    **dict.fromkeys(("and", "or", "xor"), "u32 s32 u64 s64"),
    **dict.fromkeys(("inc", "dec"), "u32"),
    **dict.fromkeys(("min", "max"), "u32 s32 u64 s64 f16 bf16"),
    "add": "u32 s32 u64 f16 f32 f64 bf16",
}


class _Map:
    """The tensor map at an address operand."""

    def __init__(
        self, to: Prepare, instruction: Instruction, operand: Address, space: str, kind: str
    ) -> None:
        self.instruction = instruction
        self.addresses = address_reader(to, operand, space)
        self.access = MemoryStep(to, instruction, kind, space, _PIECE)

    def read(self, warp: LanesWarp, lane: int) -> tuple[Layout, Any, int]:
        """The map of a lane, and the bytes where it is. Raises ``TrapError`` if there is none."""
        address = int(every_lane(self.addresses(warp))[lane])
        places = np.uint64(address) + np.arange(0, MAP_BYTES, _PIECE, dtype=np.uint64)
        (part,) = self.access.reach(warp, np.repeat(lane, places.size), places)
        first = int(part.offsets[0])
        layout = Layout.decode(part.region.bytes[first : first + MAP_BYTES].tobytes())
        if layout is None:
            raise bad_mbarrier(warp.place(), self.instruction, lane, Mbarrier.NO_MAP, address, 0, 0)
        return layout, part.region, first


class TensorStep:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
        spelling = instruction.spelling
        self.to, self.instruction = to, instruction
        self.loads = spelling.modifier("src") == "global"
        self.operation = str(spelling.modifier("op") or "")
        self.mode = str(spelling.modifier("mode") or "tile")
        self.rank = int(str(spelling.modifier("dim"))[0])
        where, shared = operands["t"], operands["d" if self.loads else "a"]
        assert isinstance(where, Address)
        assert isinstance(shared, Address)
        (vector,) = where.further
        self.map = _Map(to, instruction, where, "generic", "load")
        self.read_start = [reader(to, item, _S32) for item in _elements(vector)]
        self.read_offsets = [reader(to, item, _U16) for item in _elements(operands.get("offsets"))]
        self.read_places = address_reader(to, shared, "shared")
        self.tile = MemoryStep(to, instruction, "store" if self.loads else "load", "shared", _PIECE)
        self.read_ranks = reader(to, operands["mask"], _U16) if "mask" in operands else None
        told = operands.get("m")
        self.told = Objects(to, instruction, told, "shared") if isinstance(told, Address) else None
        self.active = Active(to, instruction)
        self.site = to.program.site_of[instruction]

    def __call__(self, warp: LanesWarp) -> None:
        lanes = np.flatnonzero(self.active(warp)).tolist()
        if not lanes:
            return
        count(warp, self.site, requests=1)
        for lane in lanes:
            self._lane(warp, lane)

    def _lane(self, warp: LanesWarp, lane: int) -> None:
        layout, _, _ = self.map.read(warp, lane)
        place = int(every_lane(self.read_places(warp))[lane])
        im2col = self.mode.startswith("im2col")
        if layout.rank != self.rank or layout.mode != int(im2col):
            raise self._error(warp, lane, Mbarrier.RANK, place, layout.rank)
        if place % 128:
            raise self._error(warp, lane, Mbarrier.LINE, place, 0)
        start, offsets = (
            [int(every_lane(read(warp))[lane]) for read in readers]
            for readers in (self.read_start, self.read_offsets)
        )
        box = box_of(layout, start, self.mode, offsets)
        ranks = [None] if self.read_ranks is None else _bits(int(every_lane(self.read_ranks(warp))[lane]))
        for turn, rank in enumerate(ranks):
            to = place if rank is None else in_rank(place, rank)
            self._move(warp, lane, layout, box, to)
            if self.told is not None:
                told = self.told.read(warp).copy()
                if rank is not None:
                    told[lane] = in_rank(int(told[lane]), rank)
                self.told.change(warp, lane, told, Mbarrier.COMPLETE, 1, box.bytes)
            self._tally(warp, layout, box, again=turn > 0)

    def _move(self, warp: LanesWarp, lane: int, layout: Layout, box: Box, place: int) -> None:
        places = np.uint64(place) + np.arange(0, box.bytes, _PIECE, dtype=np.uint64)
        (tile,) = self.tile.reach(warp, np.repeat(lane, places.size), places)
        # pieces lie side by side in one CTA, so what is swizzled lies there as well
        distance = int(tile.offsets[0]) - place
        order = swizzled(layout, place + np.arange(box.inside.size) * layout.size) + distance
        inner = tile.region.words(layout.size)
        cells = order // layout.size
        kind = "load" if self.loads else "reduction" if self.operation else "store"
        chosen = box.addresses[box.inside]
        if self.loads:
            data = np.full(box.inside.size, layout.padding, inner.dtype)
            if chosen.size:
                outer, taken = self._outside(warp, lane, layout, chosen, kind)
                data[box.inside] = outer[taken]
            inner[cells] = data
        elif chosen.size:
            outer, given = self._outside(warp, lane, layout, chosen, kind)
            new = inner[cells][box.inside]
            outer[given] = (
                new if not self.operation else self._combined(warp, lane, layout, outer[given], new)
            )

    def _outside(
        self, warp: LanesWarp, lane: int, layout: Layout, addresses: Lanes, kind: str
    ) -> tuple[Lanes, Lanes]:
        """Device memory in elements, and which of them are meant."""
        access = MemoryStep(self.to, self.instruction, kind, "global", layout.size)
        (part,) = access.reach(warp, np.repeat(lane, addresses.size), addresses)
        return part.region.words(layout.size), part.offsets // layout.size

    def _combined(self, warp: LanesWarp, lane: int, layout: Layout, old: Lanes, new: Lanes) -> Lanes:
        name = _TYPES[layout.type] if layout.type < len(_TYPES) else ""
        if name not in _OPERATIONS[self.operation].split():
            raise self._error(warp, lane, Mbarrier.OPERATION, layout.address, 0)
        kind: ScalarType = scalar_type(name)
        given = [LaneValue(item.copy().view(dtype_of(kind)), kind) for item in (old, new)]
        if layout.type == 8:
            given = [lane_value(item.flush()) for item in given]
        made = combine(*given, op=self.operation, space="")
        made = made.flush() if layout.type == 8 else made
        found: Lanes = np.ascontiguousarray(lane_value(made).data).view(old.dtype)
        return found

    def _tally(self, warp: LanesWarp, layout: Layout, box: Box, again: bool) -> None:
        waves = -(-box.bytes // 128)
        count(warp, self.site, wavefronts=waves, ideal=waves)
        if again:
            return
        row = layout.channels if layout.mode else -(-layout.box[0] // layout.steps[0])
        sectors = lines = 0
        for addresses, inside in zip(box.addresses.reshape(-1, row), box.inside.reshape(-1, row)):
            if inside.any():
                first, last = int(addresses[inside][0]), int(addresses[inside][-1]) + layout.size
                sectors += spans(first, last - first, 32)
                lines += spans(first, last - first, LINE_BYTES)
        pieces = -(-int(box.inside.sum()) * layout.size // _PIECE)
        count(warp, self.site, sectors=sectors, lines=lines, lanes=pieces)

    def _error(self, warp: LanesWarp, lane: int, problem: int, address: int, amount: int) -> Exception:
        return bad_mbarrier(warp.place(), self.instruction, lane, problem, address, 0, amount)


def _elements(operand: Operand | None) -> tuple[Operand, ...]:
    if operand is None:
        return ()
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _bits(mask: int) -> list[int]:
    return [rank for rank in range(16) if mask >> rank & 1]


class ReplaceStep:
    """``tensormap.replace``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        operands: dict[str, Operand] = {form.name: operand for form, operand in matched(instruction)}
        where, ordinal = operands["a"], operands.get("ordinal")
        assert isinstance(where, Address)
        space = instruction.spelling.space or "generic"
        self.map = _Map(to, instruction, where, space, "store")
        self.field = str(instruction.spelling.modifier("field"))
        self.ordinal = ordinal.value if isinstance(ordinal, Immediate) else 0
        self.read_value = reader(to, operands["value"], _U64 if self.field.startswith("global_") else None)
        self.active = Active(to, instruction)

    def __call__(self, warp: LanesWarp) -> None:
        active = self.active(warp)
        for lane in np.flatnonzero(active).tolist():
            layout, region, first = self.map.read(warp, lane)
            value = int(every_lane(self.read_value(warp))[lane])
            made = layout.replaced(self.field, self.ordinal, value).encode()
            region.bytes[first : first + MAP_BYTES] = np.frombuffer(made, np.uint8)
