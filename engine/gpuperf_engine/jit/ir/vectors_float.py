"""Runtime functions on vectors of floating-point numbers: rounding modes, narrow formats, conversions, extremes."""

from __future__ import annotations

from .emitter import LANES
from .function_emitter import Body, lanes_of

__all__ = ["extreme", "from_float", "half_fma", "narrow", "rounded", "widen"]

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


def extreme(name: str, parts: list[str]) -> str:
    """−0 < +0; a NaN loses, or wins for ``_nan``; two NaNs give a NaN."""
    kind = parts[0]
    ll, raw = _LL[kind], f"i{kind[1:]}"
    smaller = name.startswith("v_min")
    body = Body()
    better = body.op(f"fcmp {'olt' if smaller else 'ogt'} {lanes_of(ll)} %a, %b")
    found = body.select(better, ll, "%a", "%b")
    equal = body.op(f"fcmp oeq {lanes_of(ll)} %a, %b")
    x, y = (body.cast("bitcast", ll, value, raw) for value in ("%a", "%b"))
    zero = body.cast("bitcast", raw, body.binary("or" if smaller else "and", raw, x, y), ll)
    found = body.select(equal, ll, zero, found)
    none_a, none_b = (body.op(f"fcmp uno {lanes_of(ll)} {value}, {value}") for value in ("%a", "%b"))
    if parts[1:] == ["nan"]:
        found = body.select(none_b, ll, "%b", body.select(none_a, ll, "%a", found))
    else:
        found = body.select(none_b, ll, "%a", body.select(none_a, ll, "%b", found))
    return body.function(name, ll, [ll, ll], found)


def rounded(name: str, word: str, kind: str, mode: str) -> str:
    """Arithmetic in a rounding mode; the processor's mode is restored."""
    ll = _LL[kind]
    count = {"fma": 3, "sqrt": 1}.get(word, 2)
    operation = word if word in ("fma", "sqrt") else f"f{word}"
    intrinsic = f"llvm.experimental.constrained.{operation}.v{LANES}{kind}"
    kinds = ", ".join([lanes_of(ll)] * count)
    given = ", ".join(f"{lanes_of(ll)} %{letter}" for letter in "abc"[:count])
    return "\n".join(
        [
            "declare void @llvm.set.rounding(i32)",
            f"declare {lanes_of(ll)} @{intrinsic}({kinds}, metadata, metadata)",
            f"define {lanes_of(ll)} @{name}({given}) nounwind strictfp {{",
            f"call void @llvm.set.rounding(i32 {_ROUNDING[mode]}) strictfp",
            f'%r = call {lanes_of(ll)} @{intrinsic}({given}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp',
            "call void @llvm.set.rounding(i32 1) strictfp",
            f"ret {lanes_of(ll)} %r",
            "}",
            "",
        ]
    )


def widen(name: str) -> str:
    """f16 as f32."""
    body = Body()
    raw = body.cast("zext", "i16", "%a", "i32")
    sign = body.binary("shl", "i32", body.binary("and", "i32", raw, 0x8000), 16)
    magnitude = body.binary("and", "i32", raw, 0x7FFF)
    normal = body.binary("add", "i32", body.binary("shl", "i32", magnitude, 13), 112 << 23)
    large = body.binary("icmp uge", "i32", magnitude, 0x7C00)
    normal = body.select(large, "i32", body.binary("or", "i32", normal, 0x7F800000), normal)
    count = body.cast("uitofp", "i32", magnitude, "float")
    small = body.op(f"fmul {lanes_of('float')} {count}, {body.lit('float', '0x3E70000000000000')}")
    tiny = body.binary("icmp ult", "i32", magnitude, 0x400)
    bits = body.select(tiny, "i32", body.cast("bitcast", "float", small, "i32"), normal)
    return body.function(
        name, "float", ["i16"], body.cast("bitcast", "i32", body.binary("or", "i32", bits, sign), "float")
    )


def narrow(name: str, source: str, target: str, mode: str) -> str:
    body = Body()
    value = body.cast("fpext", "float", "%a", "double") if source == "f32" else "%a"
    bits = _encode(body, body.cast("bitcast", "double", value, "i64"), target, mode)
    result, ll = _finish(body, bits, target)
    return body.function(name, ll, [_LL[source]], result)


def _finish(body: Body, bits: str, target: str) -> tuple[str, str]:
    """Encoded bits in i64 as the type in which values of that format are held."""
    if target == "f64":
        return body.cast("bitcast", "i64", bits, "double"), "double"
    if target == "tf32":
        return body.cast("trunc", "i64", body.binary("shl", "i64", bits, 13), "i32"), "i32"
    width = f"i{_FORMATS[target][2]}"
    narrow = body.cast("trunc", "i64", bits, width)
    return (body.cast("bitcast", "i32", narrow, "float"), "float") if target == "f32" else (narrow, width)


def _increment(body: Body, quotient: str, rest: str, half: str, negative: str, mode: str) -> str:
    """1 where the magnitude is rounded up."""
    if mode in ("rn", "rna", "odd"):
        above = body.op(f"icmp ugt {lanes_of('i64')} {rest}, {half}")
        tie = body.op(f"icmp eq {lanes_of('i64')} {rest}, {half}")
        odd = body.cast("trunc", "i64", quotient, "i1")
        up = body.op(f"or {lanes_of('i1')} {above}, {_tie(body, tie, odd, mode)}")
    elif mode == "rz":
        return "zeroinitializer"
    else:
        some = body.binary("icmp ne", "i64", rest, 0)
        side = negative if mode == "rm" else body.op(f"xor {lanes_of('i1')} {negative}, splat (i1 true)")
        up = body.op(f"and {lanes_of('i1')} {some}, {side}")
    return body.cast("zext", "i1", up, "i64")


def _tie(body: Body, tie: str, odd: str, mode: str) -> str:
    return tie if mode == "rna" else body.op(f"and {lanes_of('i1')} {tie}, {odd}")


def _encode(body: Body, bits: str, target: str, mode: str) -> str:
    """The bits of doubles in a narrower format, rounded once from the exact value."""
    fraction, bias, width = _FORMATS[target]
    sign_place = width - 1
    magnitude = body.binary("and", "i64", bits, (1 << 63) - 1)
    negative = body.binary("icmp slt", "i64", bits, 0)
    exponent = body.binary("lshr", "i64", magnitude, 52)
    normal = body.cast("zext", "i1", body.binary("icmp ne", "i64", exponent, 0), "i64")
    significand = body.binary("and", "i64", magnitude, (1 << 52) - 1)
    significand = body.binary("or", "i64", significand, body.binary("shl", "i64", normal, 52))
    lowest = 1023 + 1 - bias
    below = body.binary("sub", "i64", body.lit("i64", lowest), exponent)
    below = body.select(body.binary("icmp sgt", "i64", below, 0), "i64", below, 0)
    shift = body.binary("add", "i64", below, 52 - fraction)
    shift = body.select(body.binary("icmp ult", "i64", shift, 63), "i64", shift, 63)
    one = body.binary("shl", "i64", body.lit("i64", 1), shift)
    quotient = body.binary("lshr", "i64", significand, shift)
    rest = body.binary("and", "i64", significand, body.binary("sub", "i64", one, 1))
    half = body.binary("lshr", "i64", one, 1)
    quotient = body.binary("add", "i64", quotient, _increment(body, quotient, rest, half, negative, mode))
    base = body.binary("sub", "i64", exponent, lowest)
    base = body.select(body.binary("icmp sgt", "i64", base, 0), "i64", base, 0)
    encoded = body.binary("add", "i64", quotient, body.binary("shl", "i64", base, fraction))
    infinity = ((1 << (sign_place - fraction)) - 1) << fraction
    over = body.binary("icmp uge", "i64", encoded, infinity)
    largest: str | int = infinity if mode in ("rn", "rna") else infinity - 1
    if mode in ("rm", "rp"):
        yes, no = (infinity, infinity - 1) if mode == "rm" else (infinity - 1, infinity)
        largest = body.select(negative, "i64", yes, no)
    encoded = body.select(over, "i64", largest, encoded)
    encoded = body.select(body.binary("icmp eq", "i64", magnitude, 0x7FF << 52), "i64", infinity, encoded)
    signs = body.select(negative, "i64", 1 << sign_place, 0)
    encoded = body.binary("or", "i64", encoded, signs)
    return body.select(
        body.binary("icmp ugt", "i64", magnitude, 0x7FF << 52), "i64", (1 << sign_place) - 1, encoded
    )


def half_fma(name: str, kind: str) -> str:
    """f16 and bf16: the exact product plus c in double, rounded to odd, then once to the format."""
    body = Body()
    wide = [_half_to_double(body, f"%{letter}", kind) for letter in "abc"]
    ll = lanes_of("double")
    product = body.op(f"fmul {ll} {wide[0]}, {wide[1]}")
    total = body.op(f"fadd {ll} {product}, {wide[2]}")
    part = body.op(f"fsub {ll} {total}, {product}")
    error = body.op(
        f"fadd {ll} {body.op(f'fsub {ll} {product}, {_minus(body, total, part)}')}, {_minus(body, wide[2], part)}"
    )
    raw = body.cast("bitcast", "double", total, "i64")
    finite = body.binary("icmp ult", "i64", body.binary("and", "i64", raw, (1 << 63) - 1), 0x7FF << 52)
    inexact = body.op(f"fcmp one {ll} {error}, zeroinitializer")
    even = body.binary("icmp eq", "i64", body.binary("and", "i64", raw, 1), 0)
    wrong = body.op(f"and {lanes_of('i1')} {inexact}, {even}")
    wrong = body.op(f"and {lanes_of('i1')} {wrong}, {finite}")
    outward = body.binary(
        "icmp sge", "i64", body.binary("xor", "i64", raw, body.cast("bitcast", "double", error, "i64")), 0
    )
    step = body.select(outward, "i64", 1, -1)
    odd = body.select(wrong, "i64", body.binary("add", "i64", raw, step), raw)
    result, held = _finish(body, _encode(body, odd, kind, "rn"), kind)
    return body.function(name, held, ["i16", "i16", "i16"], result)


def _minus(body: Body, a: str, b: str) -> str:
    return body.op(f"fsub {lanes_of('double')} {a}, {b}")


def _half_to_double(body: Body, value: str, kind: str) -> str:
    raw = body.cast("zext", "i16", value, "i32")
    if kind == "bf16":
        return body.cast(
            "fpext",
            "float",
            body.cast("bitcast", "i32", body.binary("shl", "i32", raw, 16), "float"),
            "double",
        )
    sign = body.binary("shl", "i32", body.binary("and", "i32", raw, 0x8000), 16)
    magnitude = body.binary("and", "i32", raw, 0x7FFF)
    normal = body.binary("add", "i32", body.binary("shl", "i32", magnitude, 13), 112 << 23)
    large = body.binary("icmp uge", "i32", magnitude, 0x7C00)
    normal = body.select(large, "i32", body.binary("or", "i32", normal, 0x7F800000), normal)
    count = body.cast("uitofp", "i32", magnitude, "float")
    small = body.op(f"fmul {lanes_of('float')} {count}, {body.lit('float', '0x3E70000000000000')}")
    tiny = body.binary("icmp ult", "i32", magnitude, 0x400)
    bits = body.select(tiny, "i32", body.cast("bitcast", "float", small, "i32"), normal)
    single = body.cast("bitcast", "i32", body.binary("or", "i32", bits, sign), "float")
    return body.cast("fpext", "float", single, "double")


def from_float(name: str, parts: list[str]) -> str:
    source, target = parts[0], parts[1]
    if source[0] in "su":
        return _from_integer(name, source, target, parts[2])
    ll, kind = _LL[source], f"i{target[1:]}"
    signed = target[0] == "s"
    bits = int(target[1:]) - signed
    low, high = (-(1 << bits) if signed else 0), (1 << bits) - 1
    body = Body()
    top = body.op(f"fcmp oge {lanes_of(ll)} %a, {body.lit(ll, f'{float(1 << bits):.1f}')}")
    bottom = body.op(
        f"fcmp {'olt' if signed else 'ole'} {lanes_of(ll)} %a, {body.lit(ll, f'{float(low):.1f}')}"
    )
    none = body.op(f"fcmp uno {lanes_of(ll)} %a, %a")
    outside = body.op(f"or {lanes_of('i1')} {_either(body, top, bottom)}, {none}")
    inside = body.select(outside, ll, "zeroinitializer", "%a")
    found = body.cast("fptosi" if signed else "fptoui", ll, inside, kind)
    found = body.select(top, kind, high, body.select(bottom, kind, low, found))
    return body.function(name, kind, [ll], found)


def _either(body: Body, a: str, b: str) -> str:
    return body.op(f"or {lanes_of('i1')} {a}, {b}")


def _from_integer(name: str, source: str, target: str, mode: str) -> str:
    """64-bit integers, rounded once from the exact value."""
    fraction, bias, _ = _FORMATS[target]
    body = Body()
    negative = body.binary("icmp slt", "i64", "%a", 0) if source[0] == "s" else "zeroinitializer"
    magnitude = body.select(negative, "i64", body.binary("sub", "i64", "zeroinitializer", "%a"), "%a")
    zeros = body.intrinsic(
        f"llvm.ctlz.v{LANES}i64", lanes_of("i64"), [(lanes_of("i64"), magnitude), ("i1", "false")]
    )
    left = body.binary("shl", "i64", magnitude, body.binary("and", "i64", zeros, 63))
    quotient = body.binary("lshr", "i64", left, 63 - fraction)
    rest = body.binary("and", "i64", left, (1 << (63 - fraction)) - 1)
    half = body.lit("i64", 1 << (62 - fraction))
    quotient = body.binary("add", "i64", quotient, _increment(body, quotient, rest, half, negative, mode))
    exponent = body.binary("sub", "i64", body.lit("i64", 63 + bias - 1), zeros)
    encoded = body.binary("add", "i64", quotient, body.binary("shl", "i64", exponent, fraction))
    encoded = body.select(body.binary("icmp eq", "i64", magnitude, 0), "i64", 0, encoded)
    signs = body.select(negative, "i64", 1 << (_FORMATS[target][2] - 1), 0)
    result, held = _finish(body, body.binary("or", "i64", encoded, signs), target)
    return body.function(name, held, ["i64"], result)
