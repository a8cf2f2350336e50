"""Matrix products of a warpgroup in the reference backend: the part of ``wgmma.mma_async`` in one warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..isa.evaluation import evaluate
from ..isa.rows.products import sizes
from ..isa.rows.sparse import sparsity_of
from ..isa.rows.warpgroup import left_type
from ..isa.types import scalar_type
from ..ptx.syntax import Immediate, Instruction
from ..simt.faults import awaited_warps, long_line, meaningless_operands, no_warpgroup, unequal_descriptors
from ..simt.schedule import Status
from .memory import MemoryStep
from .operands import Guarded, Prepare, every_lane, lane_value
from .values import Lanes, LaneValue

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["CommitStep", "GroupFence", "GroupWait", "WarpgroupStep"]

Words = npt.NDArray[np.uint32]
_B32, _F16, _PRED = (scalar_type(name) for name in ("b32", "f16", "pred"))
#: row and column of the elements of D in each 8 columns, from which their lane and register follow
_ROW, _COLUMN = np.meshgrid(np.arange(16), np.arange(8), indexing="ij")
_LANE = 4 * (_ROW % 8) + _COLUMN // 2


class _Ordering:
    """The base class of ``wgmma.commit_group`` and ``.wait_group``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.guarded = Guarded(to, instruction)

    def counts(self, warp: ReferenceWarp, lanes: int) -> bool:
        """Whether the execution counts for the warp: if it is diverged, which the manual leaves undefined, only that of the lowest
        lane."""
        return bool(lanes & warp.live & -warp.live)

    def lanes(self, warp: ReferenceWarp, counts: bool) -> int:
        """The lanes that take part, as a mask."""
        _, active = self.guarded(warp, counts)
        return int(np.packbits(active, bitorder="little").view("<u4")[0])


class CommitStep(_Ordering):
    """``wgmma.commit_group``: the warp has issued a group."""

    def __call__(self, warp: ReferenceWarp) -> None:
        if self.counts(warp, self.lanes(warp, True)):
            warp.cta.groups[warp.index] += 1


class GroupFence(_Ordering):
    """``wgmma.fence``: the warps of the warpgroup wait for each other, so that their products read the contents of shared memory after
    the last of them arrived. The manual does not require this, so a wait that cannot end expires."""

    #: status of a warp that waits here
    status = Status.GATHERS

    def count(self, warp: ReferenceWarp) -> None:
        """Count an execution."""
        if self.counts(warp, self.lanes(warp, True)):
            warp.cta.fences[warp.index] += 1

    def __call__(self, warp: ReferenceWarp) -> bool:
        """Whether all warps have arrived."""
        warp.wanted = warp.cta.fences[warp.index]
        warp.awaited = warp.cta.fences
        over = warp.expired or warp.is_complete() or not self.lanes(warp, False)
        warp.expired = warp.expired and not over
        return over

    def reason(self, warp: ReferenceWarp, shared: npt.NDArray[np.uint8]) -> str:
        """What the warp waits for, for messages."""
        return awaited_warps(self.instruction, warp.missing)


class GroupWait(_Ordering):
    """``wgmma.wait_group``: a product is complete when all four warps of the warpgroup have issued it."""

    #: status of a warp that waits here
    status = Status.WARPGROUP

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        super().__init__(to, instruction)
        (operand,) = instruction.operands
        assert isinstance(operand, Immediate) and isinstance(operand.value, int)
        self.left = operand.value

    def count(self, warp: ReferenceWarp) -> None:
        """Count an execution."""
        self.lanes(warp, True)

    def __call__(self, warp: ReferenceWarp) -> bool:
        """Whether the groups are complete."""
        if not self.lanes(warp, False):
            return True
        warp.wanted = max(0, warp.cta.groups[warp.index] - self.left)
        warp.awaited = warp.cta.groups
        return warp.is_complete()

    def reason(self, warp: ReferenceWarp, shared: npt.NDArray[np.uint8]) -> str:
        """What the warp waits for, for messages."""
        return awaited_warps(self.instruction, warp.missing)


class WarpgroupStep:
    """One product, prepared."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.form = instruction.form
        shape = str(self.form.modifier("shape"))
        _, self.columns, _ = sizes(shape)
        slots = {slot.name: slot for slot in self.form.operands}
        self.result = slots["d"]
        self.from_registers = slots["a"].vector > 1
        self.sparsity = sparsity_of(shape, left_type(self.form), 2) if "metadata" in slots else None
        self.memory = MemoryStep(to, instruction, "load", "shared", 16)

    def __call__(self, warp: ReferenceWarp, operands: dict[str, LaneValue]) -> list[LaneValue]:
        if warp.index | 3 >= warp.cta.plan.warps_per_cta:
            raise no_warpgroup(warp.position(), self.instruction, 0xFFFFFFFF)
        warp.products += 1
        number = {
            name: int(operands[name].data[0]) for name in ("sign_a", "sign_b", "trans_a", "trans_b", "selector") if name in operands
        }  # fmt: skip
        if warp.counters.sites is not None and self.memory.site is not None:
            warp.counters.sites[self.memory.site][0] += 1
        if self.from_registers:
            left = self._rows_in_registers(operands)
        else:
            left = self._fetch(warp, 0, operands["a"], 16 * (warp.index & 3), 16, 8, number.get("trans_a", 0))
        words = 16 if self.sparsity else 8
        right = self._fetch(warp, 1, operands["b"], 0, self.columns, words, number.get("trans_b", 0))
        metadata: list[LaneValue] = []
        if self.sparsity is not None:
            metadata_value = LaneValue(every_lane(operands["metadata"]), _B32)
            wrong = lane_value(self.sparsity.refused(metadata_value, number["selector"], False))
            if (bad := every_lane(wrong)).any():
                mask = int(np.packbits(bad, bitorder="little").view("<u4")[0])
                raise meaningless_operands(warp.position(), self.instruction, mask)
            rows = self.sparsity.row_words(metadata_value, number["selector"])
            for low, high in zip(*rows):
                parts = [every_lane(lane_value(part))[::4] for part in (low, high)]
                metadata.append(LaneValue(np.concatenate(parts)[:, None], _B32))
        a = [number_ for word in left for number_ in self._numbers(0, word[:, None], number.get("sign_a", 1))]
        b = [
            number_ for word in right for number_ in self._numbers(1, word[None, :], number.get("sign_b", 1))
        ]
        c, scale = self._before(operands)
        (product,) = evaluate(self.form, [2, 1, 1, scale, c, *a, *b, *metadata])
        return self._after(lane_value(product).data)

    def _numbers(self, operation: int, word: Lanes, sign: int) -> list[LaneValue]:
        numbers = evaluate(self.form, [operation, LaneValue(np.ascontiguousarray(word), _B32)])
        return [lane_value(-number if sign in (-1, 0xFFFFFFFF) else number) for number in numbers]

    def _rows_in_registers(self, operands: dict[str, LaneValue]) -> list[Words]:
        """Words of the rows of A in registers: each lane holds two words of each of two rows."""
        rows_of_words = []
        for word in range(8):
            rows = [every_lane(operands[f"a{2 * (word // 4) + half}"])[word % 4 :: 4] for half in (0, 1)]
            rows_of_words.append(np.concatenate(rows).view(np.uint32))
        return rows_of_words

    def _fetch(
        self,
        warp: ReferenceWarp,
        matrix: int,
        descriptor: LaneValue,
        first: int,
        lines: int,
        words: int,
        across: int,
    ) -> list[Words]:
        """Words of the lines of a matrix, A or B. Source: manual, "Matrix Descriptor Format" and "Strides"."""
        every = every_lane(descriptor)
        if (every != every[0]).any():
            mask = int(np.packbits(every != every[0], bitorder="little").view("<u4")[0])
            raise unequal_descriptors(warp.position(), self.instruction, mask)
        bits = int(every[0])
        start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
        phase, mode = bits >> 49 & 7, bits >> 62
        width = 256 >> mode if mode else 16
        if not across and mode and 4 * words > width:
            raise long_line(warp.position(), self.instruction, 0xFFFFFFFF)
        row = width // 16
        line = np.arange(first, first + lines)[:, None]
        if across:
            line = line[::8] // 8
            piece = np.arange(2 * words)[None, :]
            if mode:
                offsets = line % row * 16 + line // row * leading + piece % 8 * width + piece // 8 * stride
            else:
                offsets = line * stride + piece % 8 * 16 + piece // 8 * leading
        else:
            piece = np.arange(words // 4)[None, :]
            offsets = line % 8 * width + line // 8 * stride + piece * (16 if mode else leading)
        addresses = (start + offsets) & 0x3FFFF
        addresses ^= ((addresses >> 7) - phase & row - 1) << 4
        # descriptors do not contain the rank of a CTA in its cluster: they refer to the CTA's own memory
        flat = addresses.reshape(-1).astype(np.uint64) + np.uint64(warp.cta.window)
        (part,) = self.memory.reach(warp, np.zeros(flat.size, np.int64), flat)
        data = part.region.bytes[part.offsets[:, None] + np.arange(16)]
        # all warps of a warpgroup read the same B
        if (
            warp.counters.values is not None
            and self.memory.site is not None
            and not (matrix and warp.index & 3)
        ):
            offsets = addresses.reshape(-1).astype(np.uint64)
            warp.counters.values.add_pieces(self.memory.site, matrix, offsets, data)
        if across:  # eight lines of one k: (line, k)
            halves = data.view("<u2").reshape(-1, 2 * words, 8).transpose(0, 2, 1).reshape(lines, 2 * words)
            fetched = np.ascontiguousarray(halves).view("<u4")
        else:
            fetched = data.view("<u4").reshape(lines, words)
        return list(np.ascontiguousarray(fetched.T))

    def _before(self, operands: dict[str, LaneValue]) -> tuple[LaneValue, LaneValue]:
        """The previous elements of D, (16, columns), and the mask of those that are accumulated."""
        half, blocks = self.result.type == _B32, self.columns // 8
        assert self.result.type is not None
        registers = [every_lane(operands[f"d{index}"]) for index in range(self.result.vector)]
        elements = np.zeros((16, self.columns), np.uint16 if half else registers[0].dtype)
        for block in range(blocks):
            own = elements[:, 8 * block : 8 * block + 8]
            for high in (0, 1):
                for odd in (0, 1):
                    chosen = (high == _ROW // 8) & (odd == _COLUMN % 2)
                    if half:
                        data = registers[2 * block + high] >> np.uint32(16 * odd) & np.uint32(0xFFFF)
                    else:
                        data = registers[4 * block + 2 * high + odd]
                    own[chosen] = data[_LANE[chosen]]
        kind = _F16 if half else self.result.type
        scale = np.tile(every_lane(operands["scale"])[_LANE], (1, blocks))
        return LaneValue(elements.view(np.float16) if half else elements, kind), LaneValue(scale, _PRED)

    def _after(self, elements: Lanes) -> list[LaneValue]:
        """The registers of D."""
        half = self.result.type == _B32
        assert self.result.type is not None
        whole = np.ascontiguousarray(np.broadcast_to(elements, (16, self.columns)))
        registers = []
        lane = np.arange(32)
        for index in range(self.result.vector):
            block, inner = divmod(index, 2 if half else 4)
            high = inner if half else inner // 2
            column = 8 * block + 2 * (lane % 4)
            if half:
                bits = whole.view(np.uint16)
                low, top = bits[lane // 4 + 8 * high, column], bits[lane // 4 + 8 * high, column + 1]
                registers.append(
                    LaneValue(low.astype(np.uint32) | top.astype(np.uint32) << np.uint32(16), _B32)
                )
            else:
                registers.append(LaneValue(whole[lane // 4 + 8 * high, column + inner % 2], self.result.type))
        return registers
