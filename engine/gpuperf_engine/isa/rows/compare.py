"""Comparison and selection (manual: "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Accepts
from ..primitives import Value, select
from ..table import Modifier, instruction
from ..types import ScalarType

ORDERED = "eq ne lt le gt ge"
INTEGER_OPS = "eq ne lt le gt ge lo ls hi hs"
FLOAT_OPS = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"
BOOL_OPS = "and or xor"
INTEGERS = "b16 b32 b64 u16 u32 u64 s16 s32 s64"
#: The unsigned comparisons have names of their own.
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def comparable(modifiers: Mapping[str, Modifier]) -> str:
    """Why the operator does not accept that type, or ``""``."""
    kind, op = str(modifiers.get("stype") or modifiers["type"])[0], modifiers["cmp"]
    if kind == "b" and op not in ("eq", "ne"):
        return f"bit-size types have no order, '.{op}' needs a signed or unsigned type"
    if kind == "s" and op in UNSIGNED_NAMES:
        return f"'.{op}' compares unsigned values, write '.{UNSIGNED_NAMES[str(op)]}' for a signed type"
    return ""


@instruction(
    "setp.cmp.type p:pred{|q:pred}, a, b",
    cmp=INTEGER_OPS,
    type=INTEGERS,
    accepts=Accepts(valid=comparable),
    category="compare_select",
    unit="alu",
)
@instruction("setp.cmp{.ftz}.f32 p:pred{|q:pred}, a, b", cmp=FLOAT_OPS, category="compare_select", unit="alu")
@instruction(
    "setp.cmp.f64 p:pred{|q:pred}, a, b", cmp=FLOAT_OPS, category="compare_select", unit="fp64", target=13
)
def setp(a: Value, b: Value, *, cmp: str) -> tuple[Value, Value]:
    """Whether a cmp b, and its complement."""
    truth = compare_values(cmp, a, b)
    return truth, ~truth


@instruction(
    "setp.cmp.op.type p:pred{|q:pred}, a, b, {!}c:pred",
    cmp=INTEGER_OPS,
    op=BOOL_OPS,
    type=INTEGERS,
    accepts=Accepts(valid=comparable),
    category="compare_select",
    unit="alu",
)
@instruction(
    "setp.cmp.op{.ftz}.f32 p:pred{|q:pred}, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    category="compare_select",
    unit="alu",
)
@instruction(
    "setp.cmp.op.f64 p:pred{|q:pred}, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    category="compare_select",
    unit="fp64",
    target=13,
)
def setp_combined(a: Value, b: Value, c: Value, *, cmp: str, op: str) -> tuple[Value, Value]:
    """(a cmp b) op c, and its complement's (not (a cmp b)) op c."""
    truth = compare_values(cmp, a, b)
    return combine_predicates(op, truth, c), combine_predicates(op, ~truth, c)


SET_TYPES = "u32 s32 f32"


@instruction(
    "set.cmp.dtype.stype d:dtype, a:stype, b:stype",
    cmp=INTEGER_OPS,
    dtype=SET_TYPES,
    stype=INTEGERS,
    accepts=Accepts(valid=comparable),
    category="compare_select",
    unit="alu",
)
@instruction(
    "set.cmp{.ftz}.dtype.f32 d:dtype, a:f32, b:f32",
    cmp=FLOAT_OPS,
    dtype=SET_TYPES,
    category="compare_select",
    unit="alu",
)
@instruction(
    "set.cmp.dtype.f64 d:dtype, a:f64, b:f64",
    cmp=FLOAT_OPS,
    dtype=SET_TYPES,
    category="compare_select",
    unit="fp64",
    target=13,
)
def set_number(a: Value, b: Value, *, cmp: str, dtype: ScalarType) -> Value:
    """All ones (1.0 for f32) if a cmp b, else 0."""
    return _as_number(compare_values(cmp, a, b), dtype)


@instruction(
    "set.cmp.op.dtype.stype d:dtype, a:stype, b:stype, {!}c:pred",
    cmp=INTEGER_OPS,
    op=BOOL_OPS,
    dtype=SET_TYPES,
    stype=INTEGERS,
    accepts=Accepts(valid=comparable),
    category="compare_select",
    unit="alu",
)
@instruction(
    "set.cmp.op{.ftz}.dtype.f32 d:dtype, a:f32, b:f32, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    dtype=SET_TYPES,
    category="compare_select",
    unit="alu",
)
@instruction(
    "set.cmp.op.dtype.f64 d:dtype, a:f64, b:f64, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    dtype=SET_TYPES,
    category="compare_select",
    unit="fp64",
    target=13,
)
def set_number_combined(a: Value, b: Value, c: Value, *, cmp: str, op: str, dtype: ScalarType) -> Value:
    """All ones (1.0 for f32) if (a cmp b) op c, else 0."""
    return _as_number(combine_predicates(op, compare_values(cmp, a, b), c), dtype)


SELECTED = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"


@instruction("selp.type d, a, b, {!}c:pred", type=SELECTED, category="compare_select", unit="alu")
def selp(a: Value, b: Value, c: Value) -> Value:
    """a where c holds, else b."""
    return select(c, a, b)


@instruction(
    "slct.dtype.s32 d:dtype, a:dtype, b:dtype, c:s32", dtype=SELECTED, category="compare_select", unit="alu"
)
@instruction(
    "slct{.ftz}.dtype.f32 d:dtype, a:dtype, b:dtype, c:f32",
    dtype=SELECTED,
    category="compare_select",
    unit="alu",
)
def slct(a: Value, b: Value, c: Value, *, ftz: bool | None) -> Value:
    """a where c ≥ 0 (−0 too), else b; b for NaN. .ftz flushes c only."""
    if ftz:
        c = c.flush()
    return select(c.compare("ge", 0), a, b)


def compare_values(cmp: str, a: Value, b: Value) -> Value:
    """a cmp b under any of the operator's names."""
    return a.compare(UNSIGNED_NAMES.get(cmp, cmp), b)


def combine_predicates(op: str, truth: Value, c: Value) -> Value:
    """truth op c."""
    return truth & c if op == "and" else truth | c if op == "or" else truth ^ c


def _as_number(truth: Value, dtype: ScalarType) -> Value:
    yes = truth.constant(1.0 if dtype.is_float else -1, dtype)
    return select(truth, yes, 0)
