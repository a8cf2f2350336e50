"""Runtime functions on whole vectors: what LLVM would expand at great length at every use, written once each.

``vector_function("v_div_u32")`` is the IR of one of them. Names say what they do: ``v_div_s64``, ``v_add_f32_rz``,
``v_cvt_f64_s32``, ``v_f32_bf16_rn`` … All are total: no trap, no poison, whatever the lanes hold.
"""

from __future__ import annotations

from collections.abc import Callable

from .native_values import LANES

__all__ = ["vector_function"]

_ROUNDING = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
#: fraction bits, exponent bias, bits of the result
_FORMATS = {"f16": (10, 15, 16), "bf16": (7, 127, 16), "f32": (23, 127, 32), "f64": (52, 1023, 64), "tf32": (10, 127, 19)}
_LL = {"f32": "float", "f64": "double"}


def _v(kind: str) -> str:
    return f"<{LANES} x {kind}>"


class _Body:
    """Instructions of one function; literals are splatted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}

    def op(self, text: str) -> str:
        name = f"%x{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def lit(self, kind: str, number: int | str) -> str:
        return f"splat ({kind} {number})"

    def binary(self, word: str, kind: str, a: str, b: str | int) -> str:
        return self.op(f"{word} {_v(kind)} {a}, {self.lit(kind, b) if isinstance(b, int) else b}")

    def select(self, test: str, kind: str, yes: str | int, no: str | int) -> str:
        a, b = (self.lit(kind, item) if isinstance(item, int) else item for item in (yes, no))
        return self.op(f"select {_v('i1')} {test}, {_v(kind)} {a}, {_v(kind)} {b}")

    def cast(self, word: str, source: str, value: str, target: str) -> str:
        return self.op(f"{word} {_v(source)} {value} to {_v(target)}")

    def intrinsic(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        self.declared[name] = f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})"
        return self.op(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def function(self, name: str, result: str, kinds: list[str], value: str, attributes: str = "nounwind") -> str:
        head = ", ".join(f"{_v(kind)} %{letter}" for kind, letter in zip(kinds, "abcd"))
        lines = [*self.lines, f"ret {_v(result)} {value}"]
        return "\n".join(
            [*self.declared.values(), f"define {_v(result)} @{name}({head}) {attributes} {{", *lines, "}", ""]
        )


def vector_function(name: str) -> str:
    """The IR of a runtime function. Raises ``KeyError`` for a name that means nothing."""
    parts = name.split("_")[1:]
    word = parts[0]
    maker = _MAKERS.get(word)
    if maker is not None and not (word in ("add", "sub", "mul", "fma", "sqrt", "div") and parts[1][0] in "fb"):
        return maker(name, parts[1:])
    if word in ("add", "sub", "mul", "div", "fma", "sqrt"):
        if word == "fma" and parts[1] in ("f16", "bf16"):
            return _half_fma(name, parts[1])
        return _rounded(name, word, parts[1], parts[2])
    if word == "f16" and parts[1] == "f32":
        return _widen(name)
    if word in ("f32", "f64") and len(parts) == 3:
        return _narrow(name, word, parts[1], parts[2])
    raise KeyError(name)


# ------------------------------------------------------------------------------------------------------- integers


def _divide(name: str, parts: list[str]) -> str:
    kind = parts[0]
    if kind.endswith("64"):
        return _loop_divide(name, kind)
    signed = kind[0] == "s"
    body = _Body()
    zero = body.binary("icmp eq", "i32", "%b", 0)
    guarded = zero
    if signed:
        guarded = body.op(f"or {_v('i1')} {zero}, {body.binary('icmp eq', 'i32', '%b', -1)}")
    divisor = body.select(guarded, "i32", 1, "%b")
    # a quotient of 32-bit integers in double never rounds up to the next integer
    word = "sitofp" if signed else "uitofp"
    x, y = (body.cast(word, "i32", value, "double") for value in ("%a", divisor))
    quotient = body.cast("fptosi" if signed else "fptoui", "double", body.op(f"fdiv {_v('double')} {x}, {y}"), "i32")
    if signed:
        quotient = body.select(guarded, "i32", body.binary("sub", "i32", "zeroinitializer", "%a"), quotient)
    quotient = body.select(zero, "i32", -1, quotient)
    if "rem" in name:
        quotient = body.binary("sub", "i32", "%a", body.binary("mul", "i32", quotient, "%b"))
    return body.function(name, "i32", ["i32", "i32"], quotient)


def _lane_loop(name: str, result: str, kinds: list[str], lines: list[str]) -> str:
    """A loop over the lanes: ``lines`` compute ``%r`` from ``%a0``, ``%b0`` …"""
    letters = "abcd"[: len(kinds)]
    head = ", ".join(f"{_v(kind)} %{letter}" for kind, letter in zip(kinds, letters))
    text = [f"define {_v(result)} @{name}({head}) nounwind {{", "entry:"]
    for kind, letter in zip(kinds, letters):
        text += [f"%p{letter} = alloca {_v(kind)}, align 64", f"store {_v(kind)} %{letter}, ptr %p{letter}, align 64"]
    text += [f"%pr = alloca {_v(result)}, align 64", "br label %loop", "loop:", "%i = phi i64 [ 0, %entry ], [ %n, %loop ]"]
    for kind, letter in zip(kinds, letters):
        text += [f"%q{letter} = getelementptr {kind}, ptr %p{letter}, i64 %i", f"%{letter}0 = load {kind}, ptr %q{letter}"]
    text += [*lines, f"%qr = getelementptr {result}, ptr %pr, i64 %i", f"store {result} %r, ptr %qr", "%n = add i64 %i, 1"]
    text += [f"%e = icmp eq i64 %n, {LANES}", "br i1 %e, label %out, label %loop", "out:"]
    text += [f"%v = load {_v(result)}, ptr %pr, align 64", f"ret {_v(result)} %v", "}", ""]
    return "\n".join(text)


def _loop_divide(name: str, kind: str) -> str:
    signed = kind[0] == "s"
    lines = ["%z = icmp eq i64 %b0, 0"]
    if signed:
        lines += ["%m = icmp eq i64 %b0, -1", "%g = or i1 %z, %m", "%d = select i1 %g, i64 1, i64 %b0"]
        lines += ["%q = sdiv i64 %a0, %d", "%neg = sub i64 0, %a0", "%q1 = select i1 %m, i64 %neg, i64 %q"]
    else:
        lines += ["%d = select i1 %z, i64 1, i64 %b0", "%q1 = udiv i64 %a0, %d"]
    lines += ["%q2 = select i1 %z, i64 -1, i64 %q1"]
    if "rem" in name:
        lines += ["%t = mul i64 %q2, %b0", "%r = sub i64 %a0, %t"]
    else:
        lines += ["%r = add i64 %q2, 0"]
    return _lane_loop(name, "i64", ["i64", "i64"], lines)


def _high(name: str, parts: list[str]) -> str:
    word = "sext" if parts[0][0] == "s" else "zext"
    lines = [f"%x = {word} i64 %a0 to i128", f"%y = {word} i64 %b0 to i128", "%p = mul i128 %x, %y"]
    return _lane_loop(name, "i64", ["i64", "i64"], [*lines, "%h = lshr i128 %p, 64", "%r = trunc i128 %h to i64"])


def _counted(name: str, parts: list[str]) -> str:
    word, kind = name.split("_")[1], f"i{parts[0]}"
    body = _Body()
    given = [(_v(kind), "%a"), *([("i1", "false")] if word == "ctlz" else [])]
    found = body.intrinsic(f"llvm.{word}.v{LANES}{kind}", _v(kind), given)
    if kind == "i64":
        found = body.cast("trunc", kind, found, "i32")
    return body.function(name, "i32", [kind], found)


def _reversed(name: str, parts: list[str]) -> str:
    kind = f"i{parts[0]}"
    body = _Body()
    return body.function(name, kind, [kind], body.intrinsic(f"llvm.bitreverse.v{LANES}{kind}", _v(kind), [(_v(kind), "%a")]))


def _match(name: str, parts: list[str]) -> str:
    kind = f"i{parts[0]}"
    return "\n".join(
        [
            f"define {_v('i32')} @{name}({_v(kind)} %a, i32 %m) nounwind {{",
            "entry:",
            f"%p = alloca {_v(kind)}, align 64",
            f"store {_v(kind)} %a, ptr %p, align 64",
            f"%pr = alloca {_v('i32')}, align 64",
            "br label %loop",
            "loop:",
            "%i = phi i64 [ 0, %entry ], [ %n, %loop ]",
            f"%q = getelementptr {kind}, ptr %p, i64 %i",
            f"%x = load {kind}, ptr %q",
            f"%one = insertelement {_v(kind)} poison, {kind} %x, i32 0",
            f"%all = shufflevector {_v(kind)} %one, {_v(kind)} poison, {_v('i32')} zeroinitializer",
            f"%c = icmp eq {_v(kind)} %a, %all",
            f"%w = bitcast {_v('i1')} %c to i32",
            "%r = and i32 %w, %m",
            "%qr = getelementptr i32, ptr %pr, i64 %i",
            "store i32 %r, ptr %qr",
            "%n = add i64 %i, 1",
            f"%e = icmp eq i64 %n, {LANES}",
            "br i1 %e, label %out, label %loop",
            "out:",
            f"%v = load {_v('i32')}, ptr %pr, align 64",
            f"ret {_v('i32')} %v",
            "}",
            "",
        ]
    )


def _permute(name: str, parts: list[str]) -> str:
    lines = ["%k = and i32 %b0, 31", "%s = getelementptr i32, ptr %pa, i32 %k", "%r = load i32, ptr %s"]
    return _lane_loop(name, "i32", ["i32", "i32"], lines)


# --------------------------------------------------------------------------------------------------------- floats


def _extreme(name: str, parts: list[str]) -> str:
    """−0 < +0; a NaN loses, or wins for ``_nan``; two NaNs give a NaN."""
    kind = parts[0]
    ll, raw = _LL[kind], f"i{kind[1:]}"
    smaller = name.startswith("v_min")
    body = _Body()
    better = body.op(f"fcmp {'olt' if smaller else 'ogt'} {_v(ll)} %a, %b")
    found = body.select(better, ll, "%a", "%b")
    equal = body.op(f"fcmp oeq {_v(ll)} %a, %b")
    x, y = (body.cast("bitcast", ll, value, raw) for value in ("%a", "%b"))
    zero = body.cast("bitcast", raw, body.binary("or" if smaller else "and", raw, x, y), ll)
    found = body.select(equal, ll, zero, found)
    none_a, none_b = (body.op(f"fcmp uno {_v(ll)} {value}, {value}") for value in ("%a", "%b"))
    if parts[1:] == ["nan"]:
        found = body.select(none_b, ll, "%b", body.select(none_a, ll, "%a", found))
    else:
        found = body.select(none_b, ll, "%a", body.select(none_a, ll, "%b", found))
    return body.function(name, ll, [ll, ll], found)


def _rounded(name: str, word: str, kind: str, mode: str) -> str:
    """Arithmetic in a rounding mode; the processor's mode is restored."""
    ll = _LL[kind]
    count = {"fma": 3, "sqrt": 1}.get(word, 2)
    operation = word if word in ("fma", "sqrt") else f"f{word}"
    intrinsic = f"llvm.experimental.constrained.{operation}.v{LANES}{kind}"
    kinds = ", ".join([_v(ll)] * count)
    given = ", ".join(f"{_v(ll)} %{letter}" for letter in "abc"[:count])
    return "\n".join(
        [
            "declare void @llvm.set.rounding(i32)",
            f"declare {_v(ll)} @{intrinsic}({kinds}, metadata, metadata)",
            f"define {_v(ll)} @{name}({given}) nounwind strictfp {{",
            f"call void @llvm.set.rounding(i32 {_ROUNDING[mode]}) strictfp",
            f'%r = call {_v(ll)} @{intrinsic}({given}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp',
            "call void @llvm.set.rounding(i32 1) strictfp",
            f"ret {_v(ll)} %r",
            "}",
            "",
        ]
    )


def _widen(name: str) -> str:
    """f16 as f32."""
    body = _Body()
    raw = body.cast("zext", "i16", "%a", "i32")
    sign = body.binary("shl", "i32", body.binary("and", "i32", raw, 0x8000), 16)
    magnitude = body.binary("and", "i32", raw, 0x7FFF)
    normal = body.binary("add", "i32", body.binary("shl", "i32", magnitude, 13), 112 << 23)
    large = body.binary("icmp uge", "i32", magnitude, 0x7C00)
    normal = body.select(large, "i32", body.binary("or", "i32", normal, 0x7F800000), normal)
    count = body.cast("uitofp", "i32", magnitude, "float")
    small = body.op(f"fmul {_v('float')} {count}, {body.lit('float', '0x3E70000000000000')}")
    tiny = body.binary("icmp ult", "i32", magnitude, 0x400)
    bits = body.select(tiny, "i32", body.cast("bitcast", "float", small, "i32"), normal)
    return body.function(name, "float", ["i16"], body.cast("bitcast", "i32", body.binary("or", "i32", bits, sign), "float"))


def _narrow(name: str, source: str, target: str, mode: str) -> str:
    body = _Body()
    value = body.cast("fpext", "float", "%a", "double") if source == "f32" else "%a"
    bits = _encode(body, body.cast("bitcast", "double", value, "i64"), target, mode)
    result, ll = _finish(body, bits, target)
    return body.function(name, ll, [_LL[source]], result)


def _finish(body: _Body, bits: str, target: str) -> tuple[str, str]:
    """Encoded bits in i64 as the type in which values of that format are held."""
    if target == "f64":
        return body.cast("bitcast", "i64", bits, "double"), "double"
    if target == "tf32":
        return body.cast("trunc", "i64", body.binary("shl", "i64", bits, 13), "i32"), "i32"
    width = f"i{_FORMATS[target][2]}"
    narrow = body.cast("trunc", "i64", bits, width)
    return (body.cast("bitcast", "i32", narrow, "float"), "float") if target == "f32" else (narrow, width)


def _increment(body: _Body, quotient: str, rest: str, half: str, negative: str, mode: str) -> str:
    """1 where the magnitude is rounded up."""
    if mode in ("rn", "rna", "odd"):
        above = body.op(f"icmp ugt {_v('i64')} {rest}, {half}")
        tie = body.op(f"icmp eq {_v('i64')} {rest}, {half}")
        odd = body.cast("trunc", "i64", quotient, "i1")
        up = body.op(f"or {_v('i1')} {above}, {_tie(body, tie, odd, mode)}")
    elif mode == "rz":
        return "zeroinitializer"
    else:
        some = body.binary("icmp ne", "i64", rest, 0)
        side = negative if mode == "rm" else body.op(f"xor {_v('i1')} {negative}, splat (i1 true)")
        up = body.op(f"and {_v('i1')} {some}, {side}")
    return body.cast("zext", "i1", up, "i64")


def _tie(body: _Body, tie: str, odd: str, mode: str) -> str:
    return tie if mode == "rna" else body.op(f"and {_v('i1')} {tie}, {odd}")


def _encode(body: _Body, bits: str, target: str, mode: str) -> str:
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
    return body.select(body.binary("icmp ugt", "i64", magnitude, 0x7FF << 52), "i64", (1 << sign_place) - 1, encoded)


def _half_fma(name: str, kind: str) -> str:
    """f16 and bf16: the exact product plus c in double, rounded to odd, then once to the format."""
    body = _Body()
    wide = [_half_to_double(body, f"%{letter}", kind) for letter in "abc"]
    ll = _v("double")
    product = body.op(f"fmul {ll} {wide[0]}, {wide[1]}")
    total = body.op(f"fadd {ll} {product}, {wide[2]}")
    part = body.op(f"fsub {ll} {total}, {product}")
    error = body.op(f"fadd {ll} {body.op(f'fsub {ll} {product}, {_minus(body, total, part)}')}, {_minus(body, wide[2], part)}")
    raw = body.cast("bitcast", "double", total, "i64")
    finite = body.binary("icmp ult", "i64", body.binary("and", "i64", raw, (1 << 63) - 1), 0x7FF << 52)
    inexact = body.op(f"fcmp one {ll} {error}, zeroinitializer")
    even = body.binary("icmp eq", "i64", body.binary("and", "i64", raw, 1), 0)
    wrong = body.op(f"and {_v('i1')} {inexact}, {even}")
    wrong = body.op(f"and {_v('i1')} {wrong}, {finite}")
    outward = body.binary("icmp sge", "i64", body.binary("xor", "i64", raw, body.cast("bitcast", "double", error, "i64")), 0)
    step = body.select(outward, "i64", 1, -1)
    odd = body.select(wrong, "i64", body.binary("add", "i64", raw, step), raw)
    result, held = _finish(body, _encode(body, odd, kind, "rn"), kind)
    return body.function(name, held, ["i16", "i16", "i16"], result)


def _minus(body: _Body, a: str, b: str) -> str:
    return body.op(f"fsub {_v('double')} {a}, {b}")


def _half_to_double(body: _Body, value: str, kind: str) -> str:
    raw = body.cast("zext", "i16", value, "i32")
    if kind == "bf16":
        return body.cast("fpext", "float", body.cast("bitcast", "i32", body.binary("shl", "i32", raw, 16), "float"), "double")
    sign = body.binary("shl", "i32", body.binary("and", "i32", raw, 0x8000), 16)
    magnitude = body.binary("and", "i32", raw, 0x7FFF)
    normal = body.binary("add", "i32", body.binary("shl", "i32", magnitude, 13), 112 << 23)
    large = body.binary("icmp uge", "i32", magnitude, 0x7C00)
    normal = body.select(large, "i32", body.binary("or", "i32", normal, 0x7F800000), normal)
    small = body.op(f"fmul {_v('float')} {body.cast('uitofp', 'i32', magnitude, 'float')}, {body.lit('float', '0x3E70000000000000')}")
    tiny = body.binary("icmp ult", "i32", magnitude, 0x400)
    bits = body.select(tiny, "i32", body.cast("bitcast", "float", small, "i32"), normal)
    single = body.cast("bitcast", "i32", body.binary("or", "i32", bits, sign), "float")
    return body.cast("fpext", "float", single, "double")


def _convert(name: str, parts: list[str]) -> str:
    source, target = parts[0], parts[1]
    if source[0] in "su":
        return _from_integer(name, source, target, parts[2])
    ll, kind = _LL[source], f"i{target[1:]}"
    signed = target[0] == "s"
    bits = int(target[1:]) - signed
    low, high = (-(1 << bits) if signed else 0), (1 << bits) - 1
    body = _Body()
    top = body.op(f"fcmp oge {_v(ll)} %a, {body.lit(ll, f'{float(1 << bits):.1f}')}")
    bottom = body.op(f"fcmp {'olt' if signed else 'ole'} {_v(ll)} %a, {body.lit(ll, f'{float(low):.1f}')}")
    none = body.op(f"fcmp uno {_v(ll)} %a, %a")
    outside = body.op(f"or {_v('i1')} {_either(body, top, bottom)}, {none}")
    inside = body.select(outside, ll, "zeroinitializer", "%a")
    found = body.cast("fptosi" if signed else "fptoui", ll, inside, kind)
    found = body.select(top, kind, high, body.select(bottom, kind, low, found))
    return body.function(name, kind, [ll], found)


def _either(body: _Body, a: str, b: str) -> str:
    return body.op(f"or {_v('i1')} {a}, {b}")


def _from_integer(name: str, source: str, target: str, mode: str) -> str:
    """64-bit integers, rounded once from the exact value."""
    fraction, bias, _ = _FORMATS[target]
    body = _Body()
    negative = body.binary("icmp slt", "i64", "%a", 0) if source[0] == "s" else "zeroinitializer"
    magnitude = body.select(negative, "i64", body.binary("sub", "i64", "zeroinitializer", "%a"), "%a")
    zeros = body.intrinsic(f"llvm.ctlz.v{LANES}i64", _v("i64"), [(_v("i64"), magnitude), ("i1", "false")])
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


_MAKERS: dict[str, Callable[[str, list[str]], str]] = {
    "div": _divide,
    "rem": _divide,
    "high": _high,
    "ctpop": _counted,
    "ctlz": _counted,
    "brev": _reversed,
    "match": _match,
    "permute": _permute,
    "min": _extreme,
    "max": _extreme,
    "cvt": _convert,
}
