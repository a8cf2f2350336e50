"""Machine instructions on pairs of 16-bit floating-point numbers."""

from __future__ import annotations

from collections.abc import Sequence

from .floats import COMPARES
from .operands import Constant, Immediate, Operand, Predicate, Register
from .writer import NotRun, Op, Writer, opcodes

__all__: list[str] = []


@opcodes("HFMA2", "HADD2", "HMUL2")
def _half(op: Op, to: Writer) -> None:
    op.allow("MMA", "BF16_V2", "FTZ", "SAT", "RELU", "F32")
    target, *sources = op.operands
    kind = "bf16x2" if "BF16_V2" in op else "f16x2"
    merged = [item for item in _merged(sources) if not isinstance(item, Predicate)]
    if "F32" in op:
        _half_to_single(op, to, target, merged)
        return
    values = [_pair_of_halves(to, item) for item in merged]
    name = {"HFMA2": "fma", "HADD2": "add", "HMUL2": "mul"}[op.base]
    more = ".ftz" * ("FTZ" in op) + ".sat" * ("SAT" in op) + ".relu" * ("RELU" in op)
    if kind == "bf16x2" and name != "fma":
        more = ""
    to.put(target, to.r(f"{name}.rn{more}.{kind}", *values))


def _merged(sources: Sequence[Operand | None]) -> list[Operand | None]:
    """The operands, with the two halves of an immediate merged into one."""
    merged: list[Operand | None] = []
    for item in sources:
        if not (isinstance(item, Immediate) and merged and isinstance(merged[-1], Immediate)):
            merged.append(item)
    return merged


def _half_to_single(op: Op, to: Writer, target: Operand | None, sources: Sequence[Operand | None]) -> None:
    """``HADD2.F32 R0, -RZ, R1.H0_H0``: the lower half of a sum as a single; ``ptxas`` adds −0."""
    if (
        op.base != "HADD2"
        or "BF16_V2" in op
        or not all(isinstance(item, Register | Constant) for item in sources)
    ):
        raise NotRun(f"{op.item.text} is not known here")
    halves = [to.h("cvt.u16.u32", _pair_of_halves(to, item)) for item in sources]
    to.put(target, to.r("add.rn.f32", *(to.r("cvt.f32.f16", half) for half in halves)))


def _pair_of_halves(to: Writer, operand: Operand | None) -> str:
    value = to.plain(operand)
    if isinstance(operand, Immediate):
        return to.r("mov.b32", to.encoding >> 32 & 0xFFFFFFFF)
    words = getattr(operand, "words", ())
    value = to.r("mov.b32", value)
    if "H0_H0" in words:
        value = to.r("prmt.b32", value, value, 0x1010)
    elif "H1_H1" in words:
        value = to.r("prmt.b32", value, value, 0x3232)
    elif "H0_NH1" in words:
        value = to.r("xor.b32", to.r("prmt.b32", value, value, 0x1032), 0x8000)
    elif any(word not in ("H1_H0", "F32") for word in words):
        raise NotRun("a selector of halves that is not known here")
    if getattr(operand, "absolute", False):
        value = to.r("and.b32", value, 0x7FFF7FFF)
    if getattr(operand, "negated", False):
        value = to.r("xor.b32", value, 0x80008000)
    return value


@opcodes("HMNMX2", "VHMNMX")
def _hmnmx2(op: Op, to: Writer) -> None:
    """``HMNMX2.NAN R25, R3, R6, !PT``: the larger numbers, or with PT the smaller ones."""
    op.allow("BF16_V2", "NAN", "XORSIGN")
    target, a, b, flag = _merged(op.operands)
    more = ".NaN" * ("NAN" in op) + ".xorsign.abs" * ("XORSIGN" in op)
    kind = "bf16x2" if "BF16_V2" in op else "f16x2"
    values = _pair_of_halves(to, a), _pair_of_halves(to, b)
    ends = [to.r(f"{name}{more}.{kind}", *values) for name in ("min", "max")]
    to.put(target, to.r("selp.b32", *ends, to.predicate(flag)))


def _compared_halves(op: Op, to: Writer, words: list[str], sources: list[Operand | None]) -> list[str]:
    """The results of the comparison for the lower and the upper half, compared as singles, which represent the same numbers."""
    bfloat = "BF16_V2" in words
    compare = next((word for word in words if word in COMPARES), "")
    if not compare or not {*words} <= {compare, "BF", "BF16_V2", "AND", "OR", "XOR"}:
        raise NotRun(f"{op.item.opcode} is not known here")
    singles: list[list[str]] = []
    for source in sources:
        pair = _pair_of_halves(to, source)
        if bfloat:
            singles.append([to.r("shl.b32", pair, 16), to.r("and.b32", pair, 0xFFFF0000)])
        else:
            parts = pair, to.r("shr.u32", pair, 16)
            singles.append([to.r("cvt.f32.f16", to.h("cvt.u16.u32", part)) for part in parts])
    return [to.p(f"setp.{compare.lower()}.f32", x, y) for x, y in zip(*singles)]


@opcodes("HSETP2")
def _hsetp2(op: Op, to: Writer) -> None:
    """Writes the two comparisons to two predicates, each combined with the last operand."""
    first, second, a, b, combined = _merged(op.operands)
    how = next((word.lower() for word in op.words if word in ("AND", "OR", "XOR")), "and")
    results = [
        to.p(f"{how}.pred", held, to.predicate(combined))
        for held in _compared_halves(op, to, list(op.words), [a, b])
    ]
    for flag, result in zip((first, second), results):
        if isinstance(flag, Predicate) and flag.number >= 0:
            to.put_flag(flag, result)


@opcodes("HSET2")
def _hset2(op: Op, to: Writer) -> None:
    """Each half is 1.0 (``BF``) or all ones if the comparison holds, else 0."""
    target, a, b, combined = _merged(op.operands)
    one = 0x3F80 if "BF16_V2" in op else 0x3C00
    held = one if "BF" in op else 0xFFFF
    other = to.predicate(combined)
    low, high = (
        to.r("selp.b32", held << place, 0, to.p("and.pred", result, other))
        for place, result in zip((0, 16), _compared_halves(op, to, list(op.words), [a, b]))
    )
    if "OR" in op or "XOR" in op:
        raise NotRun(f"{op.item.opcode} is not known here")
    to.put(target, to.r("or.b32", low, high))
