"""Runtime functions on vectors of floating-point numbers: rounding modes, narrow formats, conversions, extremes."""

from __future__ import annotations

from .emitter import Emitter
from .operands import LANES, Ref, constant, lanes_of

__all__ = [
    "extreme", "from_float", "half_fma", "narrow", "narrowed", "parameters", "rounded", "vector_text", "widen",
]  # fmt: skip

_ROUNDING = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
#: fraction bits, exponent bias, bits of the result
_FORMATS = {
    "f16": (10, 15, 16),
    "bf16": (7, 127, 16),
    "f32": (23, 127, 32),
    "f64": (52, 1023, 64),
    "tf32": (10, 127, 19),
}
_LL = {"f32": "float", "f64": "double"}
#: 2**-24, as LLVM writes it
_SMALLEST_HALF = "0x3E70000000000000"


def parameters(*kinds: str) -> list[Ref]:
    """Return the parameters of a vector function from the types of a lane."""
    return [Ref(lanes_of(kind), f"%{letter}") for kind, letter in zip(kinds, "abcd")]


def vector_text(name: str, to: Emitter, value: Ref, *given: Ref) -> str:
    """Return the IR of a vector function that returns ``value``."""
    to.give(value)
    head = f"{value.type} @{name}({', '.join(f'{item.type} {item}' for item in given)})"
    return "\n".join([*to.needs.values(), to.function(head)])


def extreme(name: str, parts: list[str]) -> str:
    """−0 < +0; a NaN loses, or wins for ``_nan``; two NaNs give a NaN."""
    kind = parts[0]
    ll, raw = _LL[kind], f"i{kind[1:]}"
    smaller = name.startswith("v_min")
    to = Emitter()
    a, b = parameters(ll, ll)
    better = to.select(to.fcmp("olt" if smaller else "ogt", a, b), a, b)
    equal = to.fcmp("oeq", a, b)
    x, y = to.raw(a, raw), to.raw(b, raw)
    zero = to.raw(to.or_(x, y) if smaller else to.and_(x, y), ll)
    better = to.select(equal, zero, better)
    none_a, none_b = to.fcmp("uno", a, a), to.fcmp("uno", b, b)
    if parts[1:] == ["nan"]:
        return vector_text(name, to, to.select(none_b, b, to.select(none_a, a, better)), a, b)
    return vector_text(name, to, to.select(none_b, a, to.select(none_a, b, better)), a, b)


def rounded(name: str, word: str, kind: str, mode: str) -> str:
    """Arithmetic in a rounding mode; the function restores the processor's mode."""
    ll = lanes_of(_LL[kind])
    given = parameters(*[_LL[kind]] * {"fma": 3, "sqrt": 1}.get(word, 2))
    operation = word if word in ("fma", "sqrt") else f"f{word}"
    intrinsic = f"llvm.experimental.constrained.{operation}.v{LANES}{kind}"
    types = ", ".join(ll for _ in given)
    operands = ", ".join(f"{ll} {item}" for item in given)
    to = Emitter()
    to.do(f"call void @llvm.set.rounding(i32 {_ROUNDING[mode]}) strictfp")
    value = to.ref(
        ll,
        f'call {ll} @{intrinsic}({operands}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp',
    )
    to.do("call void @llvm.set.rounding(i32 1) strictfp")
    to.give(value)
    declared = [
        "declare void @llvm.set.rounding(i32)",
        f"declare {ll} @{intrinsic}({types}, metadata, metadata)",
    ]
    return "\n".join([*declared, to.function(f"{ll} @{name}({operands})", "nounwind strictfp")])


def _float_of_half(to: Emitter, half: Ref) -> Ref:
    """f16 as f32."""
    raw = to.zext(half, "i32")
    sign = to.shl(to.and_(raw, 0x8000), 16)
    magnitude = to.and_(raw, 0x7FFF)
    normal = to.add(to.shl(magnitude, 13), 112 << 23)
    large = to.icmp("uge", magnitude, 0x7C00)
    normal = to.select(large, to.or_(normal, 0x7F800000), normal)
    count = to.uitofp(magnitude, "float")
    small = to.fmul(count, constant(count.type, _SMALLEST_HALF))
    tiny = to.icmp("ult", magnitude, 0x400)
    bits = to.select(tiny, to.raw(small, "i32"), normal)
    return to.raw(to.or_(bits, sign), "float")


def widen(name: str) -> str:
    """f16 as f32."""
    to = Emitter()
    (a,) = parameters("i16")
    return vector_text(name, to, _float_of_half(to, a), a)


def narrow(name: str, source: str, target: str, mode: str) -> str:
    """f32 or f64 to a narrower format."""
    to = Emitter()
    (a,) = parameters(_LL[source])
    if source == "f32" and _FORMATS[target][1] == _FORMATS["f32"][1] and mode != "odd":
        return vector_text(name, to, narrowed(to, a, target, mode), a)
    value = to.fpext(a, "double") if source == "f32" else a
    bits = _encode(to, to.raw(value, "i64"), target, mode)
    return vector_text(name, to, _finish(to, bits, target), a)


def narrowed(to: Emitter, value: Ref, target: str, mode: str) -> Ref:
    """Floats in a format with the exponents of f32 (``bf16``, ``tf32``), which has only fewer fraction bits: those above are rounded
    as an integer, whose carry increments the exponent, up to infinity."""
    fraction, _, width = _FORMATS[target]
    shift = _FORMATS["f32"][0] - fraction
    bits = to.raw(value, "i32")
    if mode == "rn":
        odd = to.and_(to.lshr(bits, shift), 1)
        bits_up = to.add(bits, to.add(odd, (1 << (shift - 1)) - 1))
    elif mode == "rna":
        bits_up = to.add(bits, 1 << (shift - 1))
    elif mode == "rz":
        bits_up = bits
    else:
        outward = to.icmp("slt" if mode == "rm" else "sge", bits, 0)
        bits_up = to.add(bits, to.select(outward, constant(bits.type, (1 << shift) - 1), 0))
    none = constant(bits.type, ((1 << (width - 1)) - 1) << shift)
    result = to.select(to.fcmp("uno", value, value), none, bits_up)
    if target == "tf32":
        return to.and_(result, -1 << shift)
    return to.trunc(to.lshr(result, shift), f"i{width}")


def _finish(to: Emitter, bits: Ref, target: str) -> Ref:
    """Convert encoded bits in i64 to the type that stores values of the format."""
    if target == "f64":
        return to.raw(bits, "double")
    if target == "tf32":
        return to.trunc(to.shl(bits, 13), "i32")
    narrow = to.trunc(bits, f"i{_FORMATS[target][2]}")
    return to.raw(narrow, "float") if target == "f32" else narrow


def _increment(to: Emitter, quotient: Ref, rest: Ref, half: Ref, negative: Ref, mode: str) -> Ref:
    """1 where the magnitude is rounded up."""
    if mode in ("rn", "rna", "odd"):
        above = to.icmp("ugt", rest, half)
        tie = to.icmp("eq", rest, half)
        odd = to.trunc(quotient, "i1")
        up = to.or_(above, tie if mode == "rna" else to.and_(tie, odd))
    elif mode == "rz":
        return Ref(quotient.type, "zeroinitializer")
    else:
        some = to.icmp("ne", rest, 0)
        up = to.and_(some, negative if mode == "rm" else to.not_(negative))
    return to.zext(up, "i64")


def _encode(to: Emitter, bits: Ref, target: str, mode: str) -> Ref:
    """The bits of doubles in a narrower format, rounded once from the exact value."""
    fraction, bias, width = _FORMATS[target]
    sign_bit = width - 1
    magnitude = to.and_(bits, (1 << 63) - 1)
    negative = to.icmp("slt", bits, 0)
    exponent = to.lshr(magnitude, 52)
    significand = _significand(to, magnitude, exponent)
    lowest = 1023 + 1 - bias
    below = to.sub(constant(bits.type, lowest), exponent)
    below = to.select(to.icmp("sgt", below, 0), below, 0)
    shift = to.add(below, 52 - fraction)
    shift = to.select(to.icmp("ult", shift, 63), shift, 63)
    one = to.shl(constant(bits.type, 1), shift)
    quotient = to.lshr(significand, shift)
    rest = to.and_(significand, to.sub(one, 1))
    half = to.lshr(one, 1)
    quotient = to.add(quotient, _increment(to, quotient, rest, half, negative, mode))
    base = to.sub(exponent, lowest)
    base = to.select(to.icmp("sgt", base, 0), base, 0)
    encoded = to.add(quotient, to.shl(base, fraction))
    infinity = ((1 << (sign_bit - fraction)) - 1) << fraction
    encoded = to.select(to.icmp("uge", encoded, infinity), _largest(to, infinity, negative, mode), encoded)
    encoded = to.select(to.icmp("eq", magnitude, 0x7FF << 52), constant(bits.type, infinity), encoded)
    encoded = to.or_(encoded, to.select(negative, constant(bits.type, 1 << sign_bit), 0))
    none = constant(bits.type, (1 << sign_bit) - 1)
    return to.select(to.icmp("ugt", magnitude, 0x7FF << 52), none, encoded)


def _significand(to: Emitter, magnitude: Ref, exponent: Ref) -> Ref:
    """Return the significand of doubles with its implicit bit."""
    normal = to.zext(to.icmp("ne", exponent, 0), "i64")
    return to.or_(to.and_(magnitude, (1 << 52) - 1), to.shl(normal, 52))


def _largest(to: Emitter, infinity: int, negative: Ref, mode: str) -> Ref:
    """Return the encoding of a magnitude beyond the format: infinity or the largest number."""
    type = lanes_of("i64")
    if mode in ("rm", "rp"):
        yes, no = (infinity, infinity - 1) if mode == "rm" else (infinity - 1, infinity)
        return to.select(negative, constant(type, yes), no)
    return constant(type, infinity if mode in ("rn", "rna") else infinity - 1)


def half_fma(name: str, kind: str) -> str:
    """f16 and bf16: the exact product plus c in double, rounded to odd, then once to the format."""
    to = Emitter()
    given = parameters("i16", "i16", "i16")
    a, b, c = (_half_to_double(to, item, kind) for item in given)
    product = to.fmul(a, b)
    total = to.fadd(product, c)
    part = to.fsub(total, product)
    error = to.fadd(to.fsub(product, to.fsub(total, part)), to.fsub(c, part))
    raw = to.raw(total, "i64")
    finite = to.icmp("ult", to.and_(raw, (1 << 63) - 1), 0x7FF << 52)
    inexact = to.fcmp("one", error, "zeroinitializer")
    even = to.icmp("eq", to.and_(raw, 1), 0)
    wrong = to.and_(to.and_(inexact, even), finite)
    outward = to.icmp("sge", to.xor(raw, to.raw(error, "i64")), 0)
    step = to.select(outward, constant(raw.type, 1), -1)
    odd = to.select(wrong, to.add(raw, step), raw)
    return vector_text(name, to, _finish(to, _encode(to, odd, kind, "rn"), kind), *given)


def _half_to_double(to: Emitter, half: Ref, kind: str) -> Ref:
    if kind == "bf16":
        return to.fpext(to.raw(to.shl(to.zext(half, "i32"), 16), "float"), "double")
    return to.fpext(_float_of_half(to, half), "double")


def from_float(name: str, parts: list[str]) -> str:
    """Conversion of floating point to integers, and of 64-bit integers to floating point."""
    source, target = parts[0], parts[1]
    if source[0] in "su":
        return _from_integer(name, source, target, parts[2])
    kind = f"i{target[1:]}"
    signed = target[0] == "s"
    bits = int(target[1:]) - signed
    low, high = (-(1 << bits) if signed else 0), (1 << bits) - 1
    to = Emitter()
    (a,) = parameters(_LL[source])
    top = to.fcmp("oge", a, constant(a.type, f"{float(1 << bits):.1f}"))
    bottom = to.fcmp("olt" if signed else "ole", a, constant(a.type, f"{float(low):.1f}"))
    none = to.fcmp("uno", a, a)
    outside = to.or_(to.or_(top, bottom), none)
    inside = to.select(outside, Ref(a.type, "zeroinitializer"), a)
    value = to.fptosi(inside, kind) if signed else to.fptoui(inside, kind)
    value = to.select(bottom, constant(value.type, low), value)
    return vector_text(name, to, to.select(top, constant(value.type, high), value), a)


def _from_integer(name: str, source: str, target: str, mode: str) -> str:
    """64-bit integers, rounded once from the exact value."""
    fraction, bias, width = _FORMATS[target]
    to = Emitter()
    (a,) = parameters("i64")
    negative = to.icmp("slt", a, 0) if source[0] == "s" else Ref(lanes_of("i1"), "zeroinitializer")
    magnitude = to.select(negative, to.minus(a), a)
    zeros = to.intrinsic(f"ctlz.v{LANES}i64", a.type, magnitude, constant("i1", "false"))
    left = to.shl(magnitude, to.and_(zeros, 63))
    quotient = to.lshr(left, 63 - fraction)
    rest = to.and_(left, (1 << (63 - fraction)) - 1)
    half = constant(a.type, 1 << (62 - fraction))
    quotient = to.add(quotient, _increment(to, quotient, rest, half, negative, mode))
    exponent = to.sub(constant(a.type, 63 + bias - 1), zeros)
    encoded = to.add(quotient, to.shl(exponent, fraction))
    encoded = to.select(to.icmp("eq", magnitude, 0), constant(a.type, 0), encoded)
    signs = to.select(negative, constant(a.type, 1 << (width - 1)), 0)
    return vector_text(name, to, _finish(to, to.or_(encoded, signs), target), a)
