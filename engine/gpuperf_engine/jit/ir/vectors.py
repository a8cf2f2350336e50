"""Runtime functions on whole vectors: what LLVM would expand at great length at every use, written once each.

``vector_function("v_div_u32")`` is the IR of one of them. Names say what they do: ``v_div_s64``, ``v_add_f32_rz``,
``v_cvt_f64_s32``, ``v_f32_bf16_rn`` … All are total: no trap, no poison, whatever the lanes hold.
"""

from __future__ import annotations

from collections.abc import Callable

from .emitter import LANES
from .function_emitter import Body, lanes_of
from .vectors_float import extreme, from_float, half_fma, narrow, rounded, widen

__all__ = ["vector_function"]


def vector_function(name: str, wide: bool = False) -> str:
    """The IR of a runtime function. ``wide``: the host has AVX-512. Raises ``KeyError`` for a name that means nothing."""
    parts = name.split("_")[1:]
    word = parts[0]
    if wide and word == "permute":
        return _permute_wide(name)
    maker = _MAKERS.get(word)
    if maker is not None and not (
        word in ("add", "sub", "mul", "fma", "sqrt", "div") and parts[1][0] in "fb"
    ):
        return maker(name, parts[1:])
    if word in ("add", "sub", "mul", "div", "fma", "sqrt"):
        if word == "fma" and parts[1] in ("f16", "bf16"):
            return half_fma(name, parts[1])
        return rounded(name, word, parts[1], parts[2])
    if word == "f16" and parts[1] == "f32":
        return widen(name)
    if word in ("f32", "f64") and len(parts) == 3:
        return narrow(name, word, parts[1], parts[2])
    raise KeyError(name)


def _divide(name: str, parts: list[str]) -> str:
    kind = parts[0]
    if kind.endswith("64"):
        return _loop_divide(name, kind)
    signed = kind[0] == "s"
    body = Body()
    zero = body.binary("icmp eq", "i32", "%b", 0)
    guarded = zero
    if signed:
        guarded = body.op(f"or {lanes_of('i1')} {zero}, {body.binary('icmp eq', 'i32', '%b', -1)}")
    divisor = body.select(guarded, "i32", 1, "%b")
    # a quotient of 32-bit integers in double never rounds up to the next integer
    word = "sitofp" if signed else "uitofp"
    x, y = (body.cast(word, "i32", value, "double") for value in ("%a", divisor))
    quotient = body.cast(
        "fptosi" if signed else "fptoui", "double", body.op(f"fdiv {lanes_of('double')} {x}, {y}"), "i32"
    )
    if signed:
        quotient = body.select(guarded, "i32", body.binary("sub", "i32", "zeroinitializer", "%a"), quotient)
    quotient = body.select(zero, "i32", -1, quotient)
    if "rem" in name:
        quotient = body.binary("sub", "i32", "%a", body.binary("mul", "i32", quotient, "%b"))
    return body.function(name, "i32", ["i32", "i32"], quotient)


def _lane_loop(name: str, result: str, kinds: list[str], lines: list[str]) -> str:
    """A loop over the lanes: ``lines`` compute ``%r`` from ``%a0``, ``%b0`` …"""
    letters = "abcd"[: len(kinds)]
    head = ", ".join(f"{lanes_of(kind)} %{letter}" for kind, letter in zip(kinds, letters))
    text = [f"define {lanes_of(result)} @{name}({head}) nounwind {{", "entry:"]
    for kind, letter in zip(kinds, letters):
        text += [
            f"%p{letter} = alloca {lanes_of(kind)}, align 64",
            f"store {lanes_of(kind)} %{letter}, ptr %p{letter}, align 64",
        ]
    text += [
        f"%pr = alloca {lanes_of(result)}, align 64",
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %entry ], [ %n, %loop ]",
    ]
    for kind, letter in zip(kinds, letters):
        text += [
            f"%q{letter} = getelementptr {kind}, ptr %p{letter}, i64 %i",
            f"%{letter}0 = load {kind}, ptr %q{letter}",
        ]
    text += [
        *lines,
        f"%qr = getelementptr {result}, ptr %pr, i64 %i",
        f"store {result} %r, ptr %qr",
        "%n = add i64 %i, 1",
    ]
    text += [f"%e = icmp eq i64 %n, {LANES}", "br i1 %e, label %out, label %loop", "out:"]
    text += [f"%v = load {lanes_of(result)}, ptr %pr, align 64", f"ret {lanes_of(result)} %v", "}", ""]
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
    return _lane_loop(
        name, "i64", ["i64", "i64"], [*lines, "%h = lshr i128 %p, 64", "%r = trunc i128 %h to i64"]
    )


def _counted(name: str, parts: list[str]) -> str:
    word, kind = name.split("_")[1], f"i{parts[0]}"
    body = Body()
    given = [(lanes_of(kind), "%a"), *([("i1", "false")] if word == "ctlz" else [])]
    found = body.intrinsic(f"llvm.{word}.v{LANES}{kind}", lanes_of(kind), given)
    if kind == "i64":
        found = body.cast("trunc", kind, found, "i32")
    return body.function(name, "i32", [kind], found)


def _reversed(name: str, parts: list[str]) -> str:
    kind = f"i{parts[0]}"
    body = Body()
    found = body.intrinsic(f"llvm.bitreverse.v{LANES}{kind}", lanes_of(kind), [(lanes_of(kind), "%a")])
    return body.function(name, kind, [kind], found)


def _match(name: str, parts: list[str]) -> str:
    kind = f"i{parts[0]}"
    return "\n".join(
        [
            f"define {lanes_of('i32')} @{name}({lanes_of(kind)} %a, i32 %m) nounwind {{",
            "entry:",
            f"%p = alloca {lanes_of(kind)}, align 64",
            f"store {lanes_of(kind)} %a, ptr %p, align 64",
            f"%pr = alloca {lanes_of('i32')}, align 64",
            "br label %loop",
            "loop:",
            "%i = phi i64 [ 0, %entry ], [ %n, %loop ]",
            f"%q = getelementptr {kind}, ptr %p, i64 %i",
            f"%x = load {kind}, ptr %q",
            f"%one = insertelement {lanes_of(kind)} poison, {kind} %x, i32 0",
            f"%all = shufflevector {lanes_of(kind)} %one, {lanes_of(kind)} poison, {lanes_of('i32')} zeroinitializer",
            f"%c = icmp eq {lanes_of(kind)} %a, %all",
            f"%w = bitcast {lanes_of('i1')} %c to i32",
            "%r = and i32 %w, %m",
            "%qr = getelementptr i32, ptr %pr, i64 %i",
            "store i32 %r, ptr %qr",
            "%n = add i64 %i, 1",
            f"%e = icmp eq i64 %n, {LANES}",
            "br i1 %e, label %out, label %loop",
            "out:",
            f"%v = load {lanes_of('i32')}, ptr %pr, align 64",
            f"ret {lanes_of('i32')} %v",
            "}",
            "",
        ]
    )


def _permute_wide(name: str) -> str:
    """Two permutations of two registers, which look at 5 bits of each index."""
    half = "<16 x i32>"
    orders = {number: ", ".join(f"i32 {lane}" for lane in range(number, number + 16)) for number in (0, 16)}
    picked = [
        f"%{source}{number} = shufflevector <32 x i32> %{source}, <32 x i32> poison, {half} <{order}>"
        for source in "ab"
        for number, order in orders.items()
    ]
    permute = f"call {half} @llvm.x86.avx512.vpermi2var.d.512"
    return f"""declare {half} @llvm.x86.avx512.vpermi2var.d.512({half}, {half}, {half})
define <32 x i32> @{name}(<32 x i32> %a, <32 x i32> %b) nounwind {{
{chr(10).join(picked)}
%r0 = {permute}({half} %a0, {half} %b0, {half} %a16)
%r16 = {permute}({half} %a0, {half} %b16, {half} %a16)
%v = shufflevector {half} %r0, {half} %r16, <32 x i32> <{orders[0]}, {orders[16]}>
ret <32 x i32> %v
}}
"""


def _permute(name: str, parts: list[str]) -> str:
    lines = ["%k = and i32 %b0, 31", "%s = getelementptr i32, ptr %pa, i32 %k", "%r = load i32, ptr %s"]
    return _lane_loop(name, "i32", ["i32", "i32"], lines)


_MAKERS: dict[str, Callable[[str, list[str]], str]] = {
    "div": _divide,
    "rem": _divide,
    "high": _high,
    "ctpop": _counted,
    "ctlz": _counted,
    "brev": _reversed,
    "match": _match,
    "permute": _permute,
    "min": extreme,
    "max": extreme,
    "cvt": from_float,
}
