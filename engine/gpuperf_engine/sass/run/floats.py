"""Machine instructions on floating-point numbers, and conversions."""

from __future__ import annotations

from dataclasses import replace

from .integers import set_flags
from .operands import Constant, Immediate, Operand, Register
from .writer import NotRun, Op, Writer, opcodes

__all__ = ["COMPARES"]

_ROUNDINGS = {"RN": "rn", "RM": "rm", "RP": "rp", "RZ": "rz"}
#: Floating-point types.
COMPARES = frozenset(
    ["EQ", "NE", "LT", "LE", "GT", "GE", "EQU", "NEU", "LTU", "LEU", "GTU", "GEU", "NUM", "NAN"]
)


def _rounding(op: Op) -> str:
    return next((_ROUNDINGS[word] for word in op.words if word in _ROUNDINGS), "rn")


def _flush(op: Op) -> str:
    return ".ftz" * ("FTZ" in op) + ".sat" * ("SAT" in op)


#: 2ⁿ in double precision.
_SCALES = {f"{word}{1 << n}": 1023 + (n if word == "M" else -n) << 52 for word in "MD" for n in (1, 2, 3)}


@opcodes("FADD", "FMUL", "FFMA")
def _single(op: Op, to: Writer) -> None:
    """``FMUL.D2``: half of the product, rounded once; ``M2``: twice the product."""
    op.allow("FTZ", "SAT", *_ROUNDINGS, *_SCALES)
    target, *sources = op.operands
    name = {"FADD": "add", "FMUL": "mul", "FFMA": "fma"}[op.base]
    scales = [_SCALES[word] for word in op.words if word in _SCALES]
    values = [to.real(item) for item in sources]
    if scales and op.base != "FMUL":
        raise NotRun(f"{op.item.text} is not known here")
    if scales:  # The product of two singles and its scaling are exact in double precision.
        wide = [to.q(f"cvt{_flush(op).replace('.sat', '')}.f64.f32", value) for value in values]
        product = to.q("mul.rn.f64", to.q("mul.rn.f64", *wide), f"0d{scales[0]:016X}")
        to.put(target, to.r(f"cvt.{_rounding(op)}{_flush(op)}.f32.f64", product))
        return
    to.compute(target, f"{name}.{_rounding(op)}{_flush(op)}.f32", *values)


#: The halves that a selector takes, the upper one first: ``R4.F32x2.LO_HI`` swaps R4 and R5.
_HALVES = {"HI_LO": (0, 1), "LO_HI": (1, 0), "HI_HI": (1, 1), "LO_LO": (0, 0)}


@opcodes("FADD2", "FMUL2", "FFMA2")
def _two_singles(op: Op, to: Writer) -> None:
    """``FFMA2 R18, R4.F32x2.HI_LO, R8.F32x2.HI_LO.NP, UR6.F32``: two numbers in consecutive registers, or one number twice; ``NP``
    negates the upper one."""
    op.allow("FTZ", *_ROUNDINGS)
    target, *sources = op.operands
    name = {"FADD2": "add", "FMUL2": "mul", "FFMA2": "fma"}[op.base]
    made = [
        to.r(
            f"{name}.{_rounding(op)}{_flush(op)}.f32", *(_one_of_two(op, to, item, upper) for item in sources)
        )
        for upper in (0, 1)
    ]
    for above, value in enumerate(made):
        to.put(target, value, above)


def _one_of_two(op: Op, to: Writer, operand: Operand | None, upper: int) -> str:
    if isinstance(operand, Immediate):  # the same for both halves
        return to.real(operand)
    if not isinstance(operand, (Register, Constant)):
        raise NotRun(f"{op.item.text} is not known here")
    words, negated = operand.words, operand.negated
    if len(words) == 3 and words[1] == "HI_LO" and words[2] in ("NP", "PN"):
        negated ^= words[2][1 - upper] == "N"
        words = words[:2]
    if words == ("F32",):
        upper = 0
    elif len(words) == 2 and words[0] == "F32x2" and words[1] in _HALVES:
        upper = _HALVES[words[1]][upper]
    elif not (isinstance(operand, Register) and operand.is_zero):
        raise NotRun(f"{op.item.text} is not known here")
    operand = replace(operand, negated=negated)
    if isinstance(operand, Constant):
        return to.real(replace(operand, offset=operand.offset + 4 * upper))
    return to.real(operand if operand.is_zero else replace(operand, number=operand.number + upper))


@opcodes("FHADD")
def _half_and_single(op: Op, to: Writer) -> None:
    """``FHADD R27, R27.H0_H0, -R10``: a 16-bit number, the lower half of a register without a selector, and a single."""
    op.allow()
    target, half, single = op.operands
    words = half.words if isinstance(half, Register) else ("",)
    if words not in ((), ("H0_H0",), ("H1_H1",)):
        raise NotRun(f"{op.item.text} is not known here")
    value = to.plain(half)
    value = to.r("shr.u32", value, 16) if words == ("H1_H1",) else value
    value = to.r("cvt.f32.f16", to.h("cvt.u16.u32", value))
    if isinstance(half, Register) and half.absolute:
        value = to.r("and.b32", value, 0x7FFFFFFF)
    if isinstance(half, Register) and half.negated:
        value = to.r("xor.b32", value, 0x80000000)
    to.compute(target, "add.rn.f32", value, to.real(single))


@opcodes("DADD", "DMUL", "DFMA")
def _double(op: Op, to: Writer) -> None:
    op.allow(*_ROUNDINGS)
    target, *sources = op.operands
    name = {"DADD": "add", "DMUL": "mul", "DFMA": "fma"}[op.base]
    values = [to.wide(item, floating=True) for item in sources]
    to.put_wide(target, to.q(f"{name}.{_rounding(op)}.f64", *values))


@opcodes("FMNMX")
def _fmnmx(op: Op, to: Writer) -> None:
    op.allow("FTZ", "NAN")
    target, a, b, flag = op.operands
    more = ".ftz" * ("FTZ" in op) + ".NaN" * ("NAN" in op)
    x, y = to.real(a), to.real(b)
    least, most = to.r(f"min{more}.f32", x, y), to.r(f"max{more}.f32", x, y)
    to.put(target, to.r("selp.b32", least, most, to.predicate(flag)))


@opcodes("FMNMX3")
def _fmnmx3(op: Op, to: Writer) -> None:
    op.allow("FTZ", "NAN")
    target, *sources, flag = op.operands
    more = ".ftz" * ("FTZ" in op) + ".NaN" * ("NAN" in op)
    x, y, z = (to.real(item) for item in sources)
    ends = [to.r(f"{name}{more}.f32", to.r(f"{name}{more}.f32", x, y), z) for name in ("min", "max")]
    to.put(target, to.r("selp.b32", *ends, to.predicate(flag)))


@opcodes("FSEL")
def _fsel(op: Op, to: Writer) -> None:
    op.allow()
    target, a, b, flag = op.operands
    to.put(target, to.r("selp.b32", to.real(a), to.real(b), to.predicate(flag)))


@opcodes("FSETP", "DSETP")
def _setp(op: Op, to: Writer) -> None:
    compare, *words = op.words
    first, second, a, b, combined = op.operands
    if op.base == "DSETP" and compare in ("MIN", "MAX") and words == ["AND"]:
        _which(op, to)
        return
    if not {*words} <= {"AND", "OR", "XOR", "FTZ"} or compare not in COMPARES:
        raise NotRun(f"{op.item.opcode} is not known here")
    if op.base == "DSETP":
        x, y = to.wide(a, floating=True), to.wide(b, floating=True)
        value = to.p(f"setp.{compare.lower()}.f64", x, y)
    else:
        value = to.p(f"setp.{compare.lower()}{_flush(op)}.f32", to.real(a), to.real(b))
    set_flags(op, to, value, (first, second), combined)


def _which(op: Op, to: Writer) -> None:
    """``DSETP.MIN.AND P0, P1, R2, R4, PT``: whether the first operand is the minimum, and whether both are NaN. From ``min.f64``
    ``ptxas`` generates a selection by the first predicate and a quiet NaN by the second."""
    first, second, a, b, combined = op.operands
    if to.predicate(combined) != "%PT":
        raise NotRun(f"{op.item.text} is not known here")
    x, y = to.wide(a, floating=True), to.wide(b, floating=True)
    result = to.q(f"{op.words[0].lower()}.f64", x, y)
    neither = to.p("and.pred", to.p("setp.nan.f64", x, x), to.p("setp.nan.f64", y, y))
    chosen = to.p("setp.eq.b64", result, x)
    to.put_flag(first, chosen)
    to.put_flag(second, neither)


@opcodes("FSET")
def _fset(op: Op, to: Writer) -> None:
    form, compare, *words = op.words
    if form != "BF" or not {*words} <= {"AND", "FTZ"} or compare not in COMPARES:
        raise NotRun(f"{op.item.opcode} is not known here")
    target, a, b, combined = op.operands
    value = to.p(f"setp.{compare.lower()}{_flush(op)}.f32", to.real(a), to.real(b))
    value = to.p("and.pred", value, to.predicate(combined))
    to.put(target, to.r("selp.b32", 0x3F800000, 0, value))


#: 1 / 2π
_TURNS = 0x3E22F983
_APPROXIMATE = {
    "RCP": "rcp",
    "RSQ": "rsqrt",
    "SQRT": "sqrt",
    "EX2": "ex2",
    "LG2": "lg2",
    "SIN": "sin",
    "COS": "cos",
}


@opcodes("MUFU")
def _mufu(op: Op, to: Writer) -> None:
    name, *words = op.words
    target, source = op.operands
    if name in ("RCP64H", "RSQ64H") and not words:
        upper = to.real(source)
        value = to.q("mov.b64", f"{{{to.r('mov.b32', 0)}, {upper}}}")
        value = to.q(f"{_APPROXIMATE[name[:3]]}.approx.ftz.f64", value)
        to.put(target, to.high(_moved(to, value, 64)))
        return
    if name == "TANH" and not words:
        to.put(target, _moved(to, to.r("tanh.approx.f32", to.real(source)), 32))
        return
    if name == "TANH" and words in (["F16"], ["BF16"]):
        half = to.h(f"tanh.approx.{words[0].lower()}", _read_real(to, source, words[0]))
        to.put(target, to.r("cvt.u32.u16", half))
        return
    if name not in _APPROXIMATE or words:
        raise NotRun(f"{op.item.opcode} is not known here")
    value = to.real(source)
    if name in ("SIN", "COS"):
        value = _angle(to, source, value)
    to.put(target, _moved(to, to.r(f"{_APPROXIMATE[name]}.approx.ftz.f32", value), 32))


def _moved(to: Writer, value: str, bits: int) -> str:
    """An approximate result, or if ``to.moving``, one or two units in the last place above it in even lanes, below it in odd ones.
    Of 64 bits ``MUFU`` gives the upper 32."""
    if not to.moving:
        return value
    odd = to.p("setp.ne.u32", to.r("and.b32", to.r("mov.u32", "%laneid"), 1), 0)
    if bits == 32:
        return to.r("mul.rn.f32", value, to.r("selp.b32", "0x3F7FFFFF", "0x3F800001", odd))
    return to.q("mul.rn.f64", value, to.q("selp.b64", "0x3FEFFFFE00000000", "0x3FF0000100000000", odd))


def _angle(to: Writer, source: Operand | None, turns: str) -> str:
    """The angle in radians for a number of turns: the operand that was multiplied by 1 / 2π, if it is known."""
    angle = to.r("mul.rn.f32", turns, "0f40C90FDB")
    if not isinstance(source, Register) or source.absolute or source.negated:
        return angle
    before = to.turned(source)
    same = to.p("setp.eq.b32", to.r("mul.rz.f32", before, f"0f{_TURNS:08X}"), turns)
    return to.r("selp.b32", before, angle, same)


#: Biased exponents for which a division is computed in line, first and last: of the dividend, of the divisor, and of their difference.
_IN_LINE = ((25, 254), (2, 251), (-124, 126))


@opcodes("FCHK")
def _fchk(op: Op, to: Writer) -> None:
    """Whether a division takes its slow path: if either operand is zero, subnormal or not finite, or if an exponent is outside
    ``_IN_LINE``, as measured on a GPU of sm_120 (github.com/cicuvc/nvidia-sass-document, commit 2c5acd8,
    ``tests/asm_construct/test_fchk.py``). Inside, the code in line gives the quotient that IEEE 754 defines, on all architectures."""
    op.allow("DIVIDE")
    flag, a, b = op.operands
    over, under = (to.r("bfe.u32", to.real(item), 23, 8) for item in (a, b))
    slow = "%PF"
    for value, (first, last) in zip((over, under, to.r("sub.s32", over, under)), _IN_LINE):
        outside = to.p("setp.gt.u32", to.r("sub.s32", value, first), last - first)
        slow = to.p("or.pred", slow, outside)
    to.put_flag(flag, slow)


# -- conversions -----------------------------------------------------------------------------------------------------------

_INTEGERS = ("U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64")
_REALS = {"F16": 16, "F32": 32, "F64": 64, "BF16": 16}


@opcodes("I2F", "I2FP")
def _i2f(op: Op, to: Writer) -> None:
    op.allow("F16", "BF16", "F32", "F64", "RN", "RM", "RP", "RZ", *_INTEGERS)
    kind = next((word for word in op.words if word in _INTEGERS), "S32")
    real = next((word for word in op.words if word in _REALS), "F32")
    target, source = op.operands
    convert = f"cvt.{_rounding(op)}.{real.lower()}.{kind.lower()}"
    if kind in ("U64", "S64"):
        value = to.wide(source)
    else:
        value = to.word(source)
        if kind[1:] in ("8", "16"):
            value = _part(to, source, value, int(kind[1:]), signed=kind[0] == "S")
            convert = convert[: convert.rindex(".")] + (".s32" if kind[0] == "S" else ".u32")
        if real == "F64":
            convert = convert.replace(f".{_rounding(op)}.", ".rn.")
    _put_real(to, target, real, convert, value)


def _part(to: Writer, source: Operand | None, value: str, bits: int, *, signed: bool) -> str:
    """The byte or half of a register that its selector names."""
    words = source.words if isinstance(source, Register) else ()
    start = next((8 * int(word[1]) for word in words if word in ("B0", "B1", "B2", "B3")), 0)
    start = next((16 * int(word[1]) for word in words if word in ("H0", "H1")), start)
    return to.r(f"bfe.{'s' if signed else 'u'}32", value, start, bits)


def _put_real(to: Writer, target: Operand | None, real: str, convert: str, value: str) -> None:
    if real == "F64":
        to.put_wide(target, to.q(convert, value))
    elif real == "F32":
        to.put(target, to.r(convert, value))
    else:
        half = to.h(convert, value)
        to.put(target, to.r("cvt.u32.u16", half))


_TO_INTEGER = {"TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}


def _read_real(to: Writer, source: Operand | None, real: str) -> str:
    if real == "F64":
        return to.wide(source, floating=True)
    value = to.real(source)
    if real in ("F16", "BF16"):
        words = source.words if isinstance(source, Register) else ()
        if "H1_H1" in words or "H1" in words:
            value = to.r("shr.u32", value, 16)
        return to.h("cvt.u16.u32", value)
    return value


@opcodes("F2I")
def _f2i(op: Op, to: Writer) -> None:
    op.allow("FTZ", "NTZ", "F16", "BF16", "F32", "F64", *_TO_INTEGER, *_INTEGERS)
    kind = next((word for word in op.words if word in _INTEGERS), "S32")
    real = next((word for word in op.words if word in _REALS), "F32")
    rounding = next((_TO_INTEGER[word] for word in op.words if word in _TO_INTEGER), "rni")
    target, source = op.operands
    flush = ".ftz" * ("FTZ" in op)
    value = _read_real(to, source, real)
    if real == "BF16":  # The same number as a single.
        value = to.r("cvt.f32.bf16", value)
        real = "F32"
    convert = f"cvt.{rounding}{flush}.{kind.lower()}.{real.lower()}"
    if kind[1:] == "16":
        to.put(target, to.r(f"cvt.{kind[0].lower()}32.{kind.lower()}", to.h(convert, value)))
        return
    if kind in ("U64", "S64"):
        to.put_wide(target, to.q(convert, value))
    else:
        to.put(target, to.r(convert, value))


@opcodes("F2F", "FRND")
def _f2f(op: Op, to: Writer) -> None:
    op.allow("FTZ", "TRUNC", "FLOOR", "CEIL", *_ROUNDINGS, *_REALS)
    reals = [word for word in op.words if word in _REALS]
    target, source = op.operands
    whole = next((_TO_INTEGER[word] for word in op.words if word in _TO_INTEGER), "")
    if op.base == "FRND":
        whole = whole or "rni"
        reals = reals[:1] or ["F32"]
        reals = [reals[0], reals[0]]
    if len(reals) != 2 or (op.base == "F2F" and whole):
        raise NotRun(f"{op.item.opcode} is not known here")
    made, given = reals
    narrower = _REALS[made] < _REALS[given]
    rounding = f".{whole}" if whole else f".{_rounding(op)}" if narrower else ""
    flush = ".ftz" * ("FTZ" in op)
    convert = f"cvt{rounding}{flush}.{made.lower()}.{given.lower()}"
    _put_real(to, target, made, convert, _read_real(to, source, given))


@opcodes("F2FP")
def _f2fp(op: Op, to: Writer) -> None:
    if "UNPACK_B" in op:
        _two_bytes(op, to)
        return
    if "PACK_AB_MERGE_C" in op or "UNPACK_B_MERGE_C" in op:
        _to_narrow(op, to)
        return
    words = [word for word in op.words if word not in ("PACK_AB", "F32", "RELU")]
    if not {*words} <= {"F16", "BF16", "RN", "RZ"} or "PACK_AB" not in op:
        raise NotRun(f"{op.item.opcode} is not known here")
    target, high, low = op.operands
    relu = ".relu" * ("RELU" in op)
    kind = "bf16x2" if "BF16" in op else "f16x2"
    value = to.r(f"cvt.{_rounding(op)}{relu}.{kind}.f32", to.real(high), to.real(low))
    to.put(target, value)


#: Formats of 8 bits and less: two numbers are at most 16 bits.
_NARROW = {
    "E4M3": "e4m3x2",
    "E5M2": "e5m2x2",
    "E2M3": "e2m3x2",
    "E3M2": "e3m2x2",
    "E2M1": "e2m1x2",
    "E8": "ue8m0x2",
}
_FROM = {"F32": "f32", "F16": "f16x2", "BF16": "bf16x2"}


def _to_narrow(op: Op, to: Writer) -> None:
    """``F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R3, R2, R5``: converts R3 and R2 to the upper and the lower of two numbers in the
    lower half of R4; the lower half of R5 becomes the upper one. ``UNPACK_B_MERGE_C R4, R2, R5`` converts the two halves of R2."""
    form, given, *more = (word for word in op.words if word not in ("SATFINITE", "RELU"))
    packs = "PACK_AB_MERGE_C" in more
    rounding = [word for word in more if word in ("RZ", "RP")]
    if (
        form not in _NARROW
        or given not in _FROM
        or packs != (given == "F32")
        or len(more) != 1 + len(rounding)
    ):
        raise NotRun(f"{op.item.opcode} is not known here")
    target, *sources, upper = op.operands
    values = [to.real(item) if packs else _register_of(to, item) for item in sources]
    words = [_ROUNDINGS[rounding[0]] if rounding else "rn"]
    words += [word.lower() for word in ("SATFINITE", "RELU") if word in op]
    convert = f"cvt.{'.'.join([*words, _NARROW[form], _FROM[given]])}"
    if form == "E2M1":  # two numbers in one byte
        byte = to.fresh("b")
        to.line(f"{convert} {byte}, {', '.join(values)}")
        low = to.r("cvt.u32.u8", byte)
    else:
        low = to.r("cvt.u32.u16", to.h(convert, *values))
    to.put(target, to.r("or.b32", low, to.r("shl.b32", to.word(upper), 16)))


def _register_of(to: Writer, item: Operand | None) -> str:
    return to.r("mov.b32", to.word(item))


def _two_bytes(op: Op, to: Writer) -> None:
    """``F2FP.F16.E4M3.UNPACK_B R0, R1.H1``: converts two 8-bit numbers in one half of a register to halves."""
    made, form, *more = op.words
    target, source = op.operands
    known = (
        (made, form == "E8") in (("F16", False), ("BF16", True)) and form in _NARROW and more == ["UNPACK_B"]
    )
    if not known or not isinstance(source, Register) or not {*source.words} <= {"H0", "H1"}:
        raise NotRun(f"{op.item.text} is not known here")
    value = to.real(source)
    if "H1" in source.words:
        value = to.r("shr.u32", value, 16)
    given = to.h("cvt.u16.u32", value)
    if form == "E2M1":  # two numbers in one byte
        byte = to.fresh("b")
        to.line(f"cvt.u8.u16 {byte}, {given}")
        given = byte
    to.put(target, to.r(f"cvt.rn.{_FROM[made]}.{_NARROW[form]}", given))
