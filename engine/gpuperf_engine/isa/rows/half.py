"""Half precision and bfloat16, scalar and packed (manual: "Half Precision Floating Point Instructions", "Half Precision
Comparison Instructions"). ``evaluation`` runs packed types lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Accepts
from ..primitives import Value, fma, maximum, minimum, select
from ..table import Options, instruction
from ..tensor_maps import OUT_OF_BOUNDS
from ..types import ScalarType, scalar_type
from .compare import (
    BOOL_OPS,
    FLOAT_OPS,
    INTEGER_OPS,
    INTEGERS,
    combine_predicates,
    comparable,
    compare_values,
)
from .floating import of_sign

F16, BF16 = "f16 f16x2", "bf16 bf16x2"
HALF: Options = {"category": "fp16", "unit": "fp16"}
COMPARE: Options = {"category": "compare_select", "unit": "fp16"}
SINCE_F16: Options = {"since": (4, 2), "target": 53}
SINCE_BF16: Options = {"since": (7, 8), "target": 90}
AMPERE: Options = {"since": (7, 0), "target": 80}


@instruction("add{.rnd}.type d, a, b", rnd="rn", type=BF16, flop="add", **HALF, **SINCE_BF16)
@instruction("add{.rnd}{.ftz}{.sat}.type d, a, b", rnd="rn", type=F16, flop="add", **HALF, **SINCE_F16)
def add(a: Value, b: Value) -> Value:
    """a + b."""
    return a + b


@instruction("sub{.rnd}.type d, a, b", rnd="rn", type=BF16, flop="add", **HALF, **SINCE_BF16)
@instruction("sub{.rnd}{.ftz}{.sat}.type d, a, b", rnd="rn", type=F16, flop="add", **HALF, **SINCE_F16)
def sub(a: Value, b: Value) -> Value:
    """a − b."""
    return a - b


@instruction("mul{.rnd}.type d, a, b", rnd="rn", type=BF16, flop="mul", **HALF, **SINCE_BF16)
@instruction("mul{.rnd}{.ftz}{.sat}.type d, a, b", rnd="rn", type=F16, flop="mul", **HALF, **SINCE_F16)
def mul(a: Value, b: Value) -> Value:
    """a · b."""
    return a * b


@instruction("fma.rnd{.relu}.type d, a, b, c", rnd="rn", type=BF16, flop="fma", **HALF, **AMPERE)
@instruction("fma.rnd{.ftz}.relu.type d, a, b, c", rnd="rn", type=F16, flop="fma", **HALF, **AMPERE)
@instruction("fma.rnd{.ftz}{.sat}.type d, a, b, c", rnd="rn", type=F16, flop="fma", **HALF, **SINCE_F16)
def fused(a: Value, b: Value, c: Value) -> Value:
    """a · b + c with one rounding."""
    return fma(a, b, c)


@instruction(
    "fma.rnd.oob{.relu}.type d, a, b, c",
    rnd="rn",
    type=f"{F16} {BF16}",
    flop="fma",
    since=(8, 1),
    target=90,
    **HALF,
)
def fused_in_bounds(a: Value, b: Value, c: Value) -> Value:
    """a · b + c with one rounding, +0 if a or b is the NaN that fills tensor elements out of bounds (here 0x7FF7, of either sign)."""
    raw, magnitude = scalar_type("u16"), 0x7FFF
    outside = (a.bits(raw) & magnitude).compare("eq", OUT_OF_BOUNDS)
    outside |= (b.bits(raw) & magnitude).compare("eq", OUT_OF_BOUNDS)
    return select(outside, a.constant(0.0, a.type), fma(a, b, c))


@instruction("neg.type d, a", type=BF16, **HALF, **AMPERE)
@instruction("neg{.ftz}.type d, a", type=F16, since=(6, 0), target=53, **HALF)
def neg(a: Value) -> Value:
    """a with the sign bit flipped."""
    return -a


@instruction("abs.type d, a", type=BF16, **HALF, **AMPERE)
@instruction("abs{.ftz}.type d, a", type=F16, since=(6, 5), target=53, **HALF)
def absolute(a: Value) -> Value:
    """a with the sign bit cleared."""
    return abs(a)


XORSIGN = {"xorsign": ((7, 2), 86)}


@instruction("min{.NaN}{.xorsign.abs}.type d, a, b", type=BF16, requires=XORSIGN, **HALF, **AMPERE)
@instruction("min{.ftz}{.NaN}{.xorsign.abs}.type d, a, b", type=F16, requires=XORSIGN, **HALF, **AMPERE)
def smaller(a: Value, b: Value, *, NaN: bool | None, xorsign: bool | None) -> Value:
    """The smaller of a and b, as for f32."""
    return _extreme(minimum, a, b, bool(NaN), xorsign)


@instruction("max{.NaN}{.xorsign.abs}.type d, a, b", type=BF16, requires=XORSIGN, **HALF, **AMPERE)
@instruction("max{.ftz}{.NaN}{.xorsign.abs}.type d, a, b", type=F16, requires=XORSIGN, **HALF, **AMPERE)
def larger(a: Value, b: Value, *, NaN: bool | None, xorsign: bool | None) -> Value:
    """The larger of a and b, as for f32."""
    return _extreme(maximum, a, b, bool(NaN), xorsign)


def _extreme(choose: Callable[..., Value], a: Value, b: Value, nan: bool, xorsign: bool | None) -> Value:
    if not xorsign:
        return choose(a, b, nan=nan)
    return of_sign(choose(abs(a), abs(b), nan=nan), a, b)


@instruction("setp.cmp.type p:pred|q:pred, a, b", cmp=FLOAT_OPS, type="bf16x2", **COMPARE, **SINCE_BF16)
@instruction("setp.cmp{.ftz}.type p:pred|q:pred, a, b", cmp=FLOAT_OPS, type="f16x2", **COMPARE, **SINCE_F16)
@instruction("setp.cmp.type p:pred, a, b", cmp=FLOAT_OPS, type="bf16", **COMPARE, **SINCE_BF16)
@instruction("setp.cmp{.ftz}.type p:pred, a, b", cmp=FLOAT_OPS, type="f16", **COMPARE, **SINCE_F16)
def setp(a: Value, b: Value, *, cmp: str) -> tuple[Value, Value]:
    """Whether a cmp b, and its complement; packed: the low lanes', and the high lanes'."""
    truth = compare_values(cmp, a, b)
    return truth, ~truth


@instruction(
    "setp.cmp.op.type p:pred|q:pred, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    type="bf16x2",
    **COMPARE,
    **SINCE_BF16,
)
@instruction(
    "setp.cmp.op{.ftz}.type p:pred|q:pred, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    type="f16x2",
    **COMPARE,
    **SINCE_F16,
)
@instruction(
    "setp.cmp.op.type p:pred, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    type="bf16",
    **COMPARE,
    **SINCE_BF16,
)
@instruction(
    "setp.cmp.op{.ftz}.type p:pred, a, b, {!}c:pred",
    cmp=FLOAT_OPS,
    op=BOOL_OPS,
    type="f16",
    **COMPARE,
    **SINCE_F16,
)
def setp_combined(a: Value, b: Value, c: Value, *, cmp: str, op: str) -> tuple[Value, Value]:
    """(a cmp b) op c, and with the complement of the comparison; packed: of the low lanes, and of the high lanes."""
    truth = compare_values(cmp, a, b)
    return combine_predicates(op, truth, c), combine_predicates(op, ~truth, c)


def set_number(a: Value, b: Value, *, cmp: str, dtype: ScalarType) -> Value:
    """1.0 or all ones (in each lane) if a cmp b, else 0."""
    return _as_number(compare_values(cmp, a, b), dtype)


def set_number_combined(a: Value, b: Value, c: Value, *, cmp: str, op: str, dtype: ScalarType) -> Value:
    """1.0 or all ones (in each lane) if (a cmp b) op c, else 0."""
    return _as_number(combine_predicates(op, compare_values(cmp, a, b), c), dtype)


def set_mask(a: Value, b: Value, *, cmp: str) -> Value:
    """All ones in each 16-bit half if a cmp b, else 0."""
    return _as_number(compare_values(cmp, a, b), scalar_type("u16"))


def set_mask_combined(a: Value, b: Value, c: Value, *, cmp: str, op: str) -> Value:
    """All ones in each 16-bit half if (a cmp b) op c, else 0."""
    return _as_number(combine_predicates(op, compare_values(cmp, a, b), c), scalar_type("u16"))


def _as_number(truth: Value, dtype: ScalarType) -> Value:
    return select(truth, truth.constant(1.0 if dtype.is_float else -1, dtype), 0)


def _set_rows() -> None:
    """All ``set`` with a half-precision side: they differ in types and in ``.ftz`` only."""
    lines: list[tuple[str, Options]] = []
    for half, since, ftz in (("f16", SINCE_F16, "{.ftz}"), ("bf16", SINCE_BF16, "")):
        integers = {
            "dtype": half,
            "stype": INTEGERS,
            "cmp": INTEGER_OPS,
            "accepts": Accepts(valid=comparable),
        }
        lines.append(("set.cmp@.dtype.stype", {**integers, **since}))
        lines.append(("set.cmp@.dtype.stype", {"dtype": half, "stype": "f64", "cmp": FLOAT_OPS, **since}))
        lines.append(
            (f"set.cmp@{ftz}.dtype.stype", {"dtype": half, "stype": "f32", "cmp": FLOAT_OPS, **since})
        )
        lines.append(
            (f"set.cmp@{ftz}.dtype.stype", {"dtype": half, "stype": half, "cmp": FLOAT_OPS, **since})
        )
        if half == "bf16":
            lines.append(("set.cmp@.dtype.stype", {"dtype": half, "stype": "f16", "cmp": FLOAT_OPS, **since}))
        numbers = {
            "dtype": "u16 s16 u32 s32",
            "stype": half,
            "cmp": FLOAT_OPS,
            "since": max(since["since"], (6, 5)),
        }
        lines.append((f"set.cmp@{ftz}.dtype.stype", {**since, **numbers}))
        for dtype in (f"{half}x2", "u32 s32"):
            packed = {"dtype": dtype, "stype": f"{half}x2", "cmp": FLOAT_OPS}
            first = max(since["since"], (6, 5) if dtype == "u32 s32" else (4, 2))
            lines.append((f"set.cmp@{ftz}.dtype.stype", {**since, **packed, "since": first}))
    for line, options in lines:
        mask = options["dtype"] == "u32 s32" and options["stype"].endswith("x2")
        plain = line.replace("@", "") + " d:dtype, a:stype, b:stype"
        instruction(plain, **COMPARE, **options)(set_mask if mask else set_number)
        combined = line.replace("@", ".op") + " d:dtype, a:stype, b:stype, {!}c:pred"
        instruction(combined, op=BOOL_OPS, **COMPARE, **options)(
            set_mask_combined if mask else set_number_combined
        )


_set_rows()
