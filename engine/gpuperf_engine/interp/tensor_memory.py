"""Tensor memory of a CTA in the reference backend, and its loads and stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..flow.operands import matched
from ..isa.effects import TENSOR_LOAD
from ..isa.tensor_memory import SHAPES, Tensor, TensorProblem, columns_of, fragment, reduced
from ..isa.types import scalar_type
from ..ptx.syntax import Address, Immediate, Instruction
from ..simt.faults import bad_mbarrier
from .operands import Prepare, every_lane, lane_value
from .values import LaneValue

if TYPE_CHECKING:
    from .warp import LanesCta, ReferenceWarp

__all__ = ["Fragments", "TensorMemory", "refuse"]

Words = npt.NDArray[np.uint32]
_B32 = scalar_type("b32")


class TensorMemory:
    """Tensor memory of one CTA: ``words``, shape (columns, lanes), and allocated columns."""

    def __init__(self) -> None:
        self.closed = False
        #: number of columns of each allocation, by its first column
        self.sizes: dict[int, int] = {}
        self._words: Words | None = None

    @property
    def words(self) -> Words:
        """All words, allocated on first use."""
        if self._words is None:
            self._words = np.zeros((Tensor.COLUMNS, Tensor.LANES), np.uint32)
        return self._words

    def allocate(self, columns: int) -> int | None:
        """The first column of a new allocation, ``None`` if there is no free range."""
        allocated = self.allocated
        for first in range(0, Tensor.COLUMNS, columns):
            if not allocated[first : first + columns].any():
                self.sizes[first] = columns
                self.words[first : first + columns] = 0
                return first
        return None

    @property
    def allocated(self) -> npt.NDArray[np.bool_]:
        """Whether each column is allocated."""
        mask = np.zeros(Tensor.COLUMNS, np.bool_)
        for first, columns in self.sizes.items():
            mask[first : first + columns] = True
        return mask

    def has(self, first: int, columns: int) -> bool:
        """Whether columns are allocated."""
        return first + columns <= Tensor.COLUMNS and bool(self.allocated[first : first + columns].all())


def refuse(
    warp: ReferenceWarp, instruction: Instruction, lane: int, problem: int, word: int, amount: int
) -> NoReturn:
    """Raise ``TrapError``."""
    raise bad_mbarrier(warp.position(), instruction, lane, problem, 0, word, amount)


def require(
    warp: ReferenceWarp, cta: LanesCta, instruction: Instruction, lane: int, address: int, columns: int
) -> int:
    """The first column of an address. Raises ``TrapError`` unless ``columns`` columns from it on are allocated."""
    first = address & 0xFFFF
    if not cta.tensor.has(first, columns):
        refuse(warp, instruction, lane, TensorProblem.NOT_ALLOCATED, first, columns)
    return first


class Fragments:
    """One ``tcgen05.ld`` or ``.st``, prepared."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        from .memory import address_reader

        self.instruction = instruction
        operands = {slot.name: operand for slot, operand in matched(instruction)}
        slots = {slot.name: slot for slot in instruction.form.operands}
        modifiers = instruction.form.modifiers
        self.loads = instruction.effect is TENSOR_LOAD
        self.slot = slots["d" if self.loads else "b"]
        address, second = operands["taddr"], operands.get("offset")
        assert isinstance(address, Address)
        self.address = address_reader(to, address, "local")
        shape = next(item for item in SHAPES if item in instruction.opcode.split("."))
        offset = int(second.value) if isinstance(second, Immediate) else 0
        self.packed = bool(modifiers.get("pack::16b") or modifiers.get("unpack::16b"))
        self.columns = columns_of(shape, self.slot.vector, self.packed, offset)
        self.align = 32 if shape == "32x32b" else 16
        positions = np.array(
            [
                [fragment(shape, register, lane, self.packed, offset) for lane in range(32)]
                for register in range(self.slot.vector)
            ]
        )
        #: lane and column of each register (axis 0) of each thread (axis 1)
        self.rows, self.places = positions[..., 0], positions[..., 1]

    def __call__(self, warp: ReferenceWarp, operands: list[LaneValue]) -> list[LaneValue]:
        """The registers loaded, or none."""
        address = int(every_lane(self.address(warp))[0])
        row = address >> 16
        if row % self.align or row // 32 != warp.index % 4:
            refuse(warp, self.instruction, 0, TensorProblem.LANE, row, 0)
        first = require(warp, warp.cta, self.instruction, 0, address, self.columns)
        words = warp.cta.tensor.words
        index: tuple[Any, Any] = self.places + first, self.rows + row
        if self.loads:
            return self._load(words, index)
        data = np.stack([every_lane(value) for value in operands]).view(np.uint32)
        if self.packed:
            words[index[0] + 1, index[1]] = data >> np.uint32(16)
            data = data & np.uint32(0xFFFF)
        words[index] = data
        return []

    def _load(self, words: Words, index: tuple[Any, Any]) -> list[LaneValue]:
        data = words[index]
        if self.packed:
            data = data & np.uint32(0xFFFF) | words[index[0] + 1, index[1]] << np.uint32(16)
        kind = self.slot.type
        assert kind is not None
        loaded = [lane_value(LaneValue(np.ascontiguousarray(row), _B32).bits(kind)) for row in data]
        if self.instruction.form.modifier("red"):
            loaded.append(lane_value(reduced(self.instruction.form.modifiers, loaded)))
        return loaded
