"""Runtime functions on vectors of floating-point numbers for hosts with AVX-512, whose instructions name the rounding mode.

Other hosts set the mode of the processor for these operations, or compute with integers (``vectors_float``), which takes up to
twenty times as long.
"""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter
from .operands import LANES, Ref, constant, count_of, element_of, vector_of
from .vectors_float import narrowed, parameters, vector_text

__all__ = ["wide_function"]

#: an operand of the instructions: the rounding mode, without exceptions (Intel 64 manual, volume 2, "Embedded Rounding")
_MODES = {"rn": 8, "rm": 9, "rp": 10, "rz": 11}
#: LLVM's name of an instruction, without the type
_WORDS = {"fma": "vfmadd"}
_LL = {"f32": "float", "f64": "double"}
#: bytes of a register
_REGISTER = 64


def wide_function(name: str, parts: list[str]) -> str | None:
    """The IR of a function (``parts``: its name without ``v``), or ``None`` if the general one serves."""
    word, kind, *modes = parts
    if word == "fma" and kind in ("f16", "bf16"):
        return _half_fma(name, kind)
    if word in ("add", "sub", "mul", "div", "fma", "sqrt") and kind in _LL and modes and modes[0] in _MODES:
        return _rounded(name, word, kind, modes[0])
    if parts == ["f16", "f32"]:
        return _widen(name)
    if parts[:2] == ["f32", "f16"] and modes[0] in _MODES:
        return _narrow(name, "float", lambda to, part: _half(to, part, modes[0]))
    if parts[:2] == ["f64", "f32"] and modes[0] in _MODES:
        return _narrow(name, "double", lambda to, part: _single(to, part, modes[0]))
    return None


def _in_registers(to: Emitter, given: list[Ref], write: Callable[..., Ref], scalar: str) -> Ref:
    """Apply ``write`` to the parts of vectors that are registers of ``scalar``, and join the results."""
    lanes = _REGISTER // {"float": 4, "double": 8}[scalar]
    parts = [
        write(to, *(to.pick(item, range(first, first + lanes)) for item in given))
        for first in range(0, LANES, lanes)
    ]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2])
        parts = [to.pick(low, range(2 * count_of(low.type)), high) for low, high in pairs]
    return parts[0]


def _operation(to: Emitter, word: str, mode: str, *given: Ref) -> Ref:
    suffix = {"float": "ps", "double": "pd"}[element_of(given[0].type)]
    name = f"x86.avx512.{_WORDS.get(word, word)}.{suffix}.512"
    return to.intrinsic(name, given[0].type, *given, constant("i32", _MODES[mode]))


def _rounded(name: str, word: str, kind: str, mode: str) -> str:
    to, scalar = Emitter(), _LL[kind]
    given = parameters(*[scalar] * {"fma": 3, "sqrt": 1}.get(word, 2))
    value = _in_registers(to, given, lambda to, *items: _operation(to, word, mode, *items), scalar)
    return vector_text(name, to, value, *given)


def _converted(to: Emitter, instruction: str, result: str, value: Ref, *more: Ref) -> Ref:
    """A conversion, which LLVM has with a mask: of all lanes."""
    lanes = count_of(value.type)
    type = vector_of(lanes, result)
    rest = [Ref(type, "zeroinitializer"), constant(f"i{lanes}", -1)]
    before, after = ([], more) if instruction != "vcvtps2ph" else (more, [])
    return to.intrinsic(f"x86.avx512.mask.{instruction}.512", type, value, *before, *rest, *after)


def _half(to: Emitter, value: Ref, mode: str) -> Ref:
    """16 floats as halves."""
    return _converted(to, "vcvtps2ph", "i16", value, constant("i32", _MODES[mode] & 3))


def _single(to: Emitter, value: Ref, mode: str) -> Ref:
    """Eight doubles as floats."""
    return _converted(to, "cvtpd2ps", "float", value, constant("i32", _MODES[mode]))


def _float(to: Emitter, value: Ref) -> Ref:
    """16 halves as floats; the operand means no exceptions."""
    return _converted(to, "vcvtph2ps", "float", value, constant("i32", _MODES["rn"]))


def _widen(name: str) -> str:
    to = Emitter()
    (a,) = parameters("i16")
    return vector_text(name, to, _in_registers(to, [a], _float, "float"), a)


def _narrow(name: str, scalar: str, write: Callable[[Emitter, Ref], Ref]) -> str:
    to = Emitter()
    (a,) = parameters(scalar)
    return vector_text(name, to, _in_registers(to, [a], write, scalar), a)


def _half_fma(name: str, kind: str) -> str:
    """f16 and bf16: in f32, rounded to odd, then once to the format, which has at least two bits less (Boldo and Melquiond, 2008).

    The sums rounded down and up are neighbours unless they are equal, so one of them is odd. If they are equal, only the signs of
    zeros differ: that of the sum rounded up is the one of rounding to nearest.
    """
    to = Emitter()
    given = parameters("i16", "i16", "i16")

    def write(to: Emitter, *halves: Ref) -> Ref:
        items = [_float(to, half) if kind == "f16" else _float_of_brain(to, half) for half in halves]
        down, up = (_operation(to, "fma", mode, *items) for mode in ("rm", "rp"))
        odd = to.and_(to.icmp("ne", to.and_(to.raw(down, "i32"), 1), 0), to.fcmp("one", down, up))
        total = to.select(odd, down, up)
        return _half(to, total, "rn") if kind == "f16" else narrowed(to, total, "bf16", "rn")

    return vector_text(name, to, _in_registers(to, given, write, "float"), *given)


def _float_of_brain(to: Emitter, half: Ref) -> Ref:
    return to.raw(to.shl(to.zext(half, "i32"), 16), "float")
