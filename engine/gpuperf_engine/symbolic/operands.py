"""Operands in warp-class execution, and known values for the reference backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..affine.space import Refusal
from ..affine.values import Mask, from_patterns
from ..interp import operands as lanes_operands
from ..interp.operands import Prepare
from ..interp.values import LaneValue, dtype_of
from ..isa.primitives import Value
from ..isa.types import SCALAR_TYPES, ScalarType, scalar_type
from ..ptx.syntax import Guard, Negated, Operand, Register, SpecialRegister, Sum

if TYPE_CHECKING:
    from .backend import WarpClassRun
    from .state import State

__all__ = ["Reader", "as_type", "concretely", "guard_of", "reader"]

Reader = Callable[["State"], Value]

_PRED, _U32 = scalar_type("pred"), scalar_type("u32")
_CLOCKS = ("clock", "globaltimer")
_ANY = LaneValue(np.zeros(1, np.uint32), _U32)


def _lane_value(patterns: Sequence[int], type: ScalarType) -> LaneValue:
    dtype = dtype_of(type)
    if dtype.kind in "Ob":
        return LaneValue(np.array(patterns, dtype), type)
    return LaneValue(np.array(patterns, f"u{dtype.itemsize}").view(dtype), type)


def _patterns(value: LaneValue) -> list[int]:
    wide = (1 << value.type.bits) - 1
    return [int(item) & wide for item in value.data.tolist()]


def concretely(
    primitive: str, operands: list[tuple[Sequence[int], str]], attributes: dict[str, object]
) -> tuple[Sequence[int], str]:
    """A primitive on known values, by the reference backend; see ``affine.space.Concretely``."""
    with np.errstate(all="ignore"):
        if primitive == "constant":
            result = _ANY.constant(cast(Any, attributes["value"]), cast(ScalarType, attributes["type"]))
        else:
            first, *others = (_lane_value(patterns, SCALAR_TYPES[name]) for patterns, name in operands)
            result = first.apply(primitive, *others, **attributes)
    value = cast(LaneValue, result)
    return _patterns(value), value.type.name


def as_type(value: Value, type: ScalarType | None) -> Value:
    """The content of a register as an operand of a type: the same bits, or the low ones."""
    if type is None or type is value.type:
        return value
    if type.is_predicate:
        return value.compare("ne", 0)
    if value.type.is_predicate:
        return value.apply("predicate_to", type=type)
    if value.type.bits != type.bits:
        value = value.bits(scalar_type(f"b{value.type.bits}")).convert(scalar_type(f"b{type.bits}"))
    return value.bits(type)


def reader(run: WarpClassRun, to: Prepare, operand: Operand, type: ScalarType | None) -> Reader:
    """Reads an operand as a value of a type (``None``: its own)."""
    if isinstance(operand, Register):
        if type is None or type is operand.type:
            return lambda state: state.read(operand)
        return lambda state: as_type(state.read(operand), type)
    if isinstance(operand, Sum):
        register, offset, width = (
            operand.register,
            operand.offset,
            scalar_type(f"u{operand.register.type.bits}"),
        )
        return lambda state: as_type(state.read(register).bits(width) + offset, type)
    if isinstance(operand, Negated):
        inner = reader(run, to, operand.operand, _PRED)
        return lambda state: ~inner(state)
    if isinstance(operand, SpecialRegister):
        name, _, part = operand.name.partition(".")
        if name.startswith(_CLOCKS):
            raise Refusal(f"%{operand.name} is read")
        if name in ("tid", "ctaid", "clusterid", "warpid"):
            key = "ctaid" if name == "clusterid" else name
            axis = "xyzw".find(part) if part else 0
            return lambda state: as_type(state.coordinates[key, axis], type)
    read = lanes_operands.reader(to, operand, type)
    constant = read(cast(Any, None))  # the remaining operands do not depend on the warp
    value = from_patterns(run.space, _patterns(constant), constant.type)
    return lambda state: value


def guard_of(guard: Guard) -> Callable[[State], int]:
    """Reads a guard as a mask of the running lanes."""
    register, negated = guard.register, guard.negated

    def read(state: State) -> int:
        value = state.read(register)
        assert isinstance(value, Mask)
        return state.paths.mask & (~value.mask if negated else value.mask)

    return read
