"""Values that depend only on the index of the thread in its block and on constants, for all threads of a block at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import Unsupported
from ...flow.ssa import Merge, Node
from ...interp.operands import Prepare, as_type, destinations, reader, value_sources
from ...interp.values import LaneValue
from ...isa.effects import PURE
from ...isa.evaluation import evaluate, has_semantics
from ...isa.primitives import Value
from ...isa.types import ScalarType, scalar_type
from ...ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    SpecialRegister,
    Symbol,
    Variable,
)
from ...simt.launch import LaunchPlan
from ...simt.program import Program
from ...symbolic.slice_program import dependence_of

__all__ = ["DEPTH", "ThreadValues"]

#: limit of the length of chains of definitions
DEPTH = 64
_U32 = scalar_type("u32")


@dataclass
class ThreadValues:
    """The values of a program in blocks of the shape of a launch, the same in all blocks and launches."""

    program: Program
    plan: LaunchPlan
    _known: dict[Node, LaneValue | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graph = dependence_of(self.program)
        self._to = Prepare(self.program, self.plan, 0)
        self._indices: dict[str, NDArray[np.uint32] | None] = {}

    def address(self, instruction: Instruction) -> NDArray[np.int64] | None:
        """The addresses of a load, store or atomic in shared memory, one per thread; ``None`` if unknown."""
        addresses = [item for item in instruction.operands if isinstance(item, Address)]
        if len(addresses) != 1:
            return None
        (address,) = addresses
        base = address.base
        with np.errstate(all="ignore"):
            value = None if base is None else self._operand(instruction, base, None, DEPTH)
        if value is None or value.data.dtype.kind not in "iu":
            return None
        offsets = value.data.astype(np.int64) + address.offset
        return np.broadcast_to(offsets & 0xFFFFFFFF, self.plan.threads_per_cta)

    def same_in_warps(self, instruction: Instruction, register: Register) -> bool:
        """Whether a register that an instruction reads is known to hold one value in all threads of each warp."""
        with np.errstate(all="ignore"):
            value = self._operand(instruction, register, None, DEPTH)
        if value is None:
            return False
        threads = np.broadcast_to(value.data, self.plan.threads_per_cta)
        firsts = threads[np.arange(len(threads)) // 32 * 32]
        return bool((threads == firsts).all())

    def _operand(
        self, reading: Instruction, operand: Operand, type: ScalarType | None, depth: int
    ) -> LaneValue | None:
        if isinstance(operand, Register):
            # an instruction may read a register twice
            node = self._node(next(self._graph.origins_of(reading, [operand])), operand, depth)
        elif isinstance(operand, SpecialRegister):
            if operand.name not in self._indices:
                self._indices[operand.name] = self._index(operand.name)
            special = self._indices[operand.name]
            node = None if special is None else LaneValue(special, _U32)
        else:
            target = operand.target if isinstance(operand, Symbol) else operand
            inside = isinstance(target, Variable) and target.space == "shared"
            if not inside and not isinstance(operand, Immediate):
                return None
            return reader(self._to, operand, type)(None)  # type: ignore[arg-type]  # the same for all warps
        return None if node is None else as_type(node, type)

    def _index(self, name: str) -> NDArray[np.uint32] | None:
        """A special register: one element, or one per thread; ``None`` if unknown."""
        word, _, axis = name.partition(".")
        wide, tall, _ = self.plan.block
        if word == "ntid" and axis:
            return np.array([self.plan.block["xyz".index(axis)]], np.uint32)
        threads = np.arange(self.plan.threads_per_cta, dtype=np.uint32)
        known = {
            "tid.x": lambda: threads % wide if wide < len(threads) else threads,
            "tid.y": lambda: threads // wide % tall,
            "tid.z": lambda: threads // (wide * tall),
            "laneid": lambda: threads % 32,
            "warpid": lambda: threads // 32,
        }
        return known[name]() if name in known else None

    def _node(self, node: Node, register: Register, depth: int) -> LaneValue | None:
        if node not in self._known:
            self._known[node] = None
            if depth and not isinstance(node, Merge) and node not in self._graph.kept:
                self._known[node] = self._result(node, register, depth - 1)
        return self._known[node]

    def _result(self, instruction: Instruction, register: Register, depth: int) -> LaneValue | None:
        form = instruction.form
        plain = instruction.effect is PURE and has_semantics(form) and destinations(instruction) == [register]
        if not plain or form.reads_carry or form.reads_rank:
            return None
        if any(isinstance(item, Address) for item in instruction.operands):
            return None
        given: list[Value | int] = []
        for slot, operand in value_sources(instruction):
            if slot.constant and isinstance(operand, Immediate):
                given.append(operand.value)
                continue
            value = self._operand(instruction, operand, slot.type, depth)
            if value is None:
                return None
            given.append(value)
        try:
            (result,) = evaluate(form, given)
        except Unsupported:
            return None
        assert isinstance(result, LaneValue)
        return as_type(result, register.type) if result.type.bits == register.type.bits else None
