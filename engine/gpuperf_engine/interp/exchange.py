"""Exchange between the lanes of a warp in the reference backend: shfl, vote, match, redux, activemask, elect, bar.warp.sync, mma.

The *participants* are the lanes of the member mask that have not exited, or the active lanes if there is no mask. They may
be at several instructions (``simt.stack.Convergence``), whose operands are merged first. ``shfl`` from a lane that does not take part
returns 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..flow.operands import matched
from ..isa.effects import (
    ACTIVEMASK,
    CONVERGENCE,
    ELECT,
    MATCH,
    MATRIX,
    MATRIX_LOAD,
    MATRIX_STORE,
    REDUX,
    SHFL,
    TENSOR_LOAD,
    TENSOR_STORE,
    VOTE,
    WARP_BARRIER,
    WARPGROUP,
)
from ..isa.evaluation import evaluate
from ..isa.types import ScalarType, scalar_type
from ..ptx.syntax import Instruction, Vector
from ..simt.faults import bad_member_mask, incomplete_warp, lanes_of, meaningless_operands
from ..simt.rule_breaches import Breach
from .handlers import handles
from .matrix import MatrixRows
from .operands import Prepare, Reader, destinations, every_lane, guard_of, lane_value, reader
from .tensor_memory import Fragments
from .values import LaneValue, dtype_of
from .warpgroup import WarpgroupStep

if TYPE_CHECKING:
    from .warp import ReferenceWarp

__all__ = ["Exchange", "mask_array", "perform"]

_U32, _PRED = scalar_type("u32"), scalar_type("pred")
_WHOLE = 0xFFFFFFFF
_LANE = LaneValue(np.arange(32, dtype=np.uint32), _U32)


def mask_array(mask: int) -> npt.NDArray[np.bool_]:
    """The lanes of a mask as 32 ``bool``."""
    return np.unpackbits(np.array([mask], "<u4").view(np.uint8), bitorder="little").astype(np.bool_)


@handles(WARP_BARRIER, CONVERGENCE)
class Exchange:
    """One prepared instruction that the lanes of a warp execute together; the base class has no results."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        self.instruction = instruction
        self.form = instruction.form
        self.readers: dict[str, Reader] = {}
        self.types: dict[str, ScalarType] = {}
        for slot, operand in matched(instruction):
            if slot.role in ("source", "predicate_source") or slot.updated:
                type_ = slot.type or _U32
                elements = operand.elements if isinstance(operand, Vector) else (operand,)
                for index, element in enumerate(elements):
                    name = f"{slot.name}{index}" if isinstance(operand, Vector) else slot.name
                    self.types[name] = type_
                    self.readers[name] = reader(to, element, type_)
        self.targets = destinations(instruction)
        self.guard = guard_of(instruction.guard) if instruction.guard is not None else None
        self.predicated = to.program.predicated_of.get(instruction)

    def __call__(self, warp: ReferenceWarp) -> None:
        """Without ``.sync``: the active lanes take part."""
        lanes = warp.mask
        if self.guard is not None and self.predicated is not None:
            lanes &= int(
                np.packbits(np.broadcast_to(self.guard(warp), (32,)), bitorder="little").view("<u4")[0]
            )
            warp.count_guard(self.predicated, warp.lanes_array(lanes))
        if lanes:
            perform(warp, lanes, [(self, lanes)])

    def masks(self, warp: ReferenceWarp, *, strict: bool = False) -> dict[int, int]:
        """The member masks of the active lanes (all lanes for matrices), and the lanes of each. Raises ``TrapError`` if a lane is
        not in its own mask, except in a shuffle by all live lanes: unless ``strict``, all take part regardless of the mask (rule
        ``shuffle-mask``)."""
        if "membermask" not in self.readers:
            return {_WHOLE: warp.mask}
        member_masks = self.readers["membermask"](warp).data
        if (
            member_masks.shape == (1,)
            or not (member_masks[warp.active] != member_masks[warp.active][0]).any()
        ):
            masks = {
                int(
                    member_masks[0] if member_masks.shape == (1,) else member_masks[warp.active][0]
                ): warp.mask
            }
        else:
            masks = {}
            for lane in lanes_of(warp.mask):
                masks[int(member_masks[lane])] = masks.get(int(member_masks[lane]), 0) | 1 << lane
        for mask, lanes in masks.items():
            if lanes & ~mask:
                if not strict and self._shuffles_whole(warp, lanes):
                    breach = Breach(
                        "shuffle-mask",
                        self.instruction,
                        warp.cta.index,
                        warp.index,
                        lanes_of(lanes & ~mask)[0],
                        mask,
                    )
                    warp.counters.breaches.append(breach)
                    return {lanes: lanes}
                raise bad_member_mask(warp.position(), self.instruction, lanes_of(lanes & ~mask)[0], mask)
        return masks

    def _shuffles_whole(self, warp: ReferenceWarp, lanes: int) -> bool:
        """Whether all live lanes execute a shuffle with one member mask, so that they may be outside of it."""
        return (
            self.instruction.effect is SHFL and lanes == warp.paths.live and warp.cta.plan.strict != "error"
        )

    def results(
        self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]
    ) -> Sequence[LaneValue]:
        """The results of each lane, from the operands of all participants."""
        return ()


def perform(warp: ReferenceWarp, participants: int, parts: Sequence[tuple[Exchange, int]]) -> None:
    """Execute the operation over the participants; the lanes of each part write the registers of their own instruction."""
    first = parts[0][0]
    if first.instruction.effect.whole_warp and participants != _WHOLE:
        raise incomplete_warp(warp.position(), first.instruction, participants)
    joint: dict[str, LaneValue] = {}
    for name, type_ in first.types.items():
        data = np.zeros(32, dtype_of(type_))
        for exchange, lanes in parts:
            np.copyto(data, exchange.readers[name](warp).data, where=mask_array(lanes))
        joint[name] = LaneValue(data, type_)
    results = first.results(warp, participants, joint)
    for exchange, lanes in parts:
        where = mask_array(lanes)
        for target, value in zip(exchange.targets, results):
            if target is not None:
                warp.put(target, value, where)


def _u32(number: int) -> LaneValue:
    return LaneValue(np.array([number], np.uint32), _U32)


def _pred(value: bool) -> LaneValue:
    return LaneValue(np.array([value]), _PRED)


def _ballot(predicate: LaneValue, participants: int) -> int:
    return int(np.packbits(every_lane(predicate), bitorder="little").view("<u4")[0]) & participants


@handles(SHFL)
class Shuffle(Exchange):
    """``shfl``: 0 from a lane that does not take part."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        source, inside = evaluate(self.form, [_LANE, joint["b"], joint["c"]])
        value = joint["a"]
        present = np.where(mask_array(participants), value.data, value.data.dtype.type(0))
        lanes = every_lane(lane_value(source)) & np.uint32(31)
        return [LaneValue(present[lanes], value.type), LaneValue(every_lane(lane_value(inside)), _PRED)]


@handles(VOTE)
class Vote(Exchange):
    """``vote``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        ballot = _ballot(joint["a"], participants)
        mode = self.form.modifier("mode")
        if mode is None:
            return [_u32(ballot)]
        answers = {"all": ballot == participants, "any": ballot != 0, "uni": ballot in (0, participants)}
        return [_pred(answers[str(mode)])]


@handles(MATCH)
class Match(Exchange):
    """``match``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        data = joint["a"].data
        equal = (data[:, None] == data[None, :]) & mask_array(participants)
        same = np.packbits(equal, axis=1, bitorder="little").view("<u4").reshape(32).astype(np.uint32)
        if not self.form.modifier("all"):
            return [LaneValue(same, _U32)]
        every = int(same[lanes_of(participants)[0]]) == participants
        return [_u32(participants if every else 0), _pred(every)]


@handles(REDUX)
class Redux(Exchange):
    """``redux``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        value = joint["a"]
        if (
            value.type.is_float
        ):  # so that the result of a single lane is its magnitude or the canonical NaN as well
            (alone,) = evaluate(self.form, [value, value])
            value = lane_value(alone)
        first, *others = lanes_of(participants)
        total = LaneValue(value.data[first : first + 1], value.type)
        for lane in others:
            (combined,) = evaluate(self.form, [total, LaneValue(value.data[lane : lane + 1], value.type)])
            total = lane_value(combined)
        return [total]


@handles(ACTIVEMASK)
class ActiveMask(Exchange):
    """``activemask``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        return [_u32(participants)]


@handles(ELECT)
class Elect(Exchange):
    """``elect``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        leader = lanes_of(participants)[0]
        return [_u32(leader), LaneValue(_LANE.data == leader, _PRED)]


@handles(MATRIX)
class Matrix(Exchange):
    """``mma``, ``wmma.mma``, ``movmatrix``."""

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        slots = [slot for slot in self.form.sources for _ in range(slot.vector)]
        values = [
            int(value.data[0]) if slot.constant else value for slot, value in zip(slots, joint.values())
        ]
        results = [lane_value(result) for result in evaluate(self.form, values)]
        if self.form.row.applied.checked is not None and (wrong := _ballot(results.pop(), participants)):
            raise meaningless_operands(warp.position(), self.instruction, wrong)
        return results


@handles(MATRIX_LOAD, MATRIX_STORE)
class Rows(Exchange):
    """``ldmatrix``, ``stmatrix``, ``wmma.load``, ``wmma.store``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        super().__init__(to, instruction)
        self.rows = MatrixRows(to, instruction)

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        return self.rows(warp, participants, list(joint.values()))


@handles(WARPGROUP)
class Product(Exchange):
    """``wgmma.mma_async``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        super().__init__(to, instruction)
        self.product = WarpgroupStep(to, instruction)

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        return self.product(warp, joint)


@handles(TENSOR_LOAD, TENSOR_STORE)
class TensorAccess(Exchange):
    """``tcgen05.ld`` and ``tcgen05.st``."""

    def __init__(self, to: Prepare, instruction: Instruction) -> None:
        super().__init__(to, instruction)
        self.fragments = Fragments(to, instruction)

    def results(self, warp: ReferenceWarp, participants: int, joint: dict[str, LaneValue]) -> list[LaneValue]:
        values = [value for name, value in joint.items() if name != "offset"]
        return self.fragments(warp, values)
