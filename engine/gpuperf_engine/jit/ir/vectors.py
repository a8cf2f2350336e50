"""Runtime functions on whole vectors, for operations that LLVM would expand to many instructions at every use.

``vector_function("v_div_u32")`` is the IR of one of them. The name describes the operation: ``v_div_s64``, ``v_add_f32_rz``,
``v_cvt_f64_s32``, ``v_f32_bf16_rn`` … All are total: no trap and no poison for any lane values.
"""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter
from .operands import LANES, Ref, constant, element_of, lanes_of
from .vectors_float import extreme, from_float, half_fma, narrow, parameters, rounded, vector_text, widen
from .vectors_wide import wide_function

__all__ = ["vector_function"]


def vector_function(name: str, wide: bool = False) -> str:
    """Return the IR of a runtime function. ``wide``: the host has AVX-512. Raises ``KeyError`` for an unknown name."""
    parts = name.split("_")[1:]
    word = parts[0]
    if wide and word == "permute":
        return _permute_wide(name)
    if wide and (text := wide_function(name, parts)) is not None:
        return text
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
    to = Emitter()
    a, b = parameters("i32", "i32")
    guarded = zero = to.icmp("eq", b, 0)
    if signed:
        guarded = to.or_(zero, to.icmp("eq", b, -1))
    divisor = to.select(guarded, constant(a.type, 1), b)
    # a quotient of 32-bit integers in double never rounds up to the next integer
    x, y = (to.sitofp(value, "double") if signed else to.uitofp(value, "double") for value in (a, divisor))
    exact = to.fdiv(x, y)
    quotient = to.fptosi(exact, "i32") if signed else to.fptoui(exact, "i32")
    if signed:
        quotient = to.select(guarded, to.minus(a), quotient)
    quotient = to.select(zero, constant(a.type, -1), quotient)
    return vector_text(name, to, to.sub(a, to.mul(quotient, b)) if "rem" in name else quotient, a, b)


_Lane = Callable[[Emitter, list[Ref], list[Ref], Ref], Ref]


def _lane_loop(
    name: str,
    result: str,
    given: list[Ref],
    compute: _Lane,
    *more: Ref,
    shortcut: Callable[[Emitter, list[Ref]], None] | None = None,
) -> str:
    """Write a loop over the lanes. ``compute`` returns the result of a lane from its values, the pointers to all lanes' values, and
    its index; ``more`` are parameters that only ``compute`` uses. ``shortcut`` writes code that may return before the loop."""
    to = Emitter()
    to.start("entry")
    rooms = [to.alloca(value.type, 64) for value in given]
    results = to.alloca(lanes_of(result), 64)
    if shortcut is not None:
        shortcut(to, given)
    for value, room in zip(given, rooms):
        to.store(value, room, 64)
    with to.count_to(LANES) as lane:
        own = [
            to.load(element_of(value.type), to.element(room, element_of(value.type), lane))
            for value, room in zip(given, rooms)
        ]
        value = compute(to, own, rooms, lane)
        to.store(value, to.element(results, result, lane))
    return vector_text(name, to, to.load(lanes_of(result), results, 64), *given, *more)


def _loop_divide(name: str, kind: str) -> str:
    def compute(to: Emitter, own: list[Ref], rooms: list[Ref], lane: Ref) -> Ref:
        a, b = own
        one = constant("i64", 1)
        zero = to.icmp("eq", b, 0)
        if kind[0] == "s":
            inverted = to.icmp("eq", b, -1)
            quotient = to.sdiv(a, to.select(to.or_(zero, inverted), one, b))
            quotient = to.select(inverted, to.minus(a), quotient)
        else:
            quotient = to.udiv(a, to.select(zero, one, b))
        quotient = to.select(zero, constant("i64", -1), quotient)
        return to.sub(a, to.mul(quotient, b)) if "rem" in name else quotient

    def shortcut(to: Emitter, given: list[Ref]) -> None:
        to.branch(_all_narrow(to, given, kind), "narrow", "wide")
        to.start("narrow")
        to.give(_narrow_divide(to, name, given, kind))
        to.start("wide")

    return _lane_loop(name, "i64", parameters("i64", "i64"), compute, shortcut=shortcut)


def _all_narrow(to: Emitter, given: list[Ref], kind: str) -> Ref:
    """Whether 64-bit numbers of all lanes are numbers of 32 bits."""
    raised = [to.add(item, 1 << 31) if kind[0] == "s" else item for item in given]
    return to.icmp("eq", to.bits(to.icmp("ne", to.lshr(to.or_(*raised), 32), 0)), 0)


def _narrow_divide(to: Emitter, name: str, given: list[Ref], kind: str) -> Ref:
    """Divide numbers of 32 bits in 64: as in ``_divide``, but the quotient of the smallest number and −1 fits."""
    a, b = given
    zero = to.icmp("eq", b, 0)
    divisor = to.select(zero, constant(b.type, 1), b)
    short = [to.trunc(item, "i32") for item in (a, divisor)]
    x, y = (to.sitofp(item, "double") if kind[0] == "s" else to.uitofp(item, "double") for item in short)
    exact = to.fdiv(x, y)
    quotient = to.fptosi(exact, "i64") if kind[0] == "s" else to.fptoui(exact, "i64")
    quotient = to.select(zero, constant(quotient.type, -1), quotient)
    return to.sub(a, to.mul(quotient, b)) if "rem" in name else quotient


def _high(name: str, parts: list[str]) -> str:
    def compute(to: Emitter, own: list[Ref], rooms: list[Ref], lane: Ref) -> Ref:
        x, y = (to.sext(value, "i128") if parts[0][0] == "s" else to.zext(value, "i128") for value in own)
        return to.trunc(to.lshr(to.mul(x, y), 64), "i64")

    return _lane_loop(name, "i64", parameters("i64", "i64"), compute)


def _counted(name: str, parts: list[str]) -> str:
    word, kind = name.split("_")[1], f"i{parts[0]}"
    to = Emitter()
    (a,) = parameters(kind)
    zero_counts = [constant("i1", "false")] if word == "ctlz" else []
    count = to.intrinsic(f"{word}.v{LANES}{kind}", a.type, a, *zero_counts)
    return vector_text(name, to, to.trunc(count, "i32") if kind == "i64" else count, a)


def _reversed(name: str, parts: list[str]) -> str:
    kind = f"i{parts[0]}"
    to = Emitter()
    (a,) = parameters(kind)
    return vector_text(name, to, to.intrinsic(f"bitreverse.v{LANES}{kind}", a.type, a), a)


def _match(name: str, parts: list[str]) -> str:
    """Write ``match``: for each lane, the lanes of a mask with the same value."""
    given, mask = parameters(f"i{parts[0]}"), Ref("i32", "%m")

    def compute(to: Emitter, own: list[Ref], rooms: list[Ref], lane: Ref) -> Ref:
        return to.and_(to.bits(to.icmp("eq", given[0], to.splat(own[0]))), mask)

    return _lane_loop(name, "i32", given, compute, mask)


def _permute_wide(name: str) -> str:
    """Write a permutation as two ``vpermi2d`` on two registers each; the instruction uses 5 bits of each index."""
    to = Emitter()
    given = parameters("i32", "i32")
    (values, more), (low, high) = (
        [to.pick(item, range(start, start + 16)) for start in (0, 16)] for item in given
    )
    halves = [
        to.intrinsic("x86.avx512.vpermi2var.d.512", values.type, values, order, more) for order in (low, high)
    ]
    return vector_text(name, to, to.pick(halves[0], range(LANES), halves[1]), *given)


def _permute(name: str, parts: list[str]) -> str:
    def compute(to: Emitter, own: list[Ref], rooms: list[Ref], lane: Ref) -> Ref:
        return to.load("i32", to.element(rooms[0], "i32", to.and_(own[1], 31)))

    return _lane_loop(name, "i32", parameters("i32", "i32"), compute)


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
