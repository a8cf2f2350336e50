"""Arithmetic on integers and floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats, integers
from .integers import clamp, mask, signed
from .operands import Builder, Step
from .registry import LANES, apply, floating, packed, semantics, sources

if TYPE_CHECKING:
    from .threads import Thread


@semantics("add", "sub")
def add(b: Builder) -> Step:
    sign = 1 if b.statement.base == "add" else -1
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        if len(b.types) == 2:
            return mixed(
                b,
                lambda x, y: floats.add(
                    floats.F32, x, y if sign == 1 else floats.negate(floats.F32, y), mode
                ),
            )
        if sign == 1:
            return floating(b, lambda x, y: floats.add(f, x, y, mode), 2)
        # a − b: subtracting is adding the negated operand; a NaN stays a NaN
        return floating(b, lambda x, y: floats.add(f, x, floats.negate(f, y), mode), 2)
    if b.has("cc"):
        return carry(b)
    if b.type in LANES or b.has("sat"):
        bits, is_signed, saturates = LANES.get(b.type, (1, b.width))[1], b.signed, b.has("sat")

        def one(x: int, y: int) -> int:
            if is_signed:
                x, y = signed(x, bits), signed(y, bits)
            return clamp(x + sign * y, bits, is_signed) if saturates else x + sign * y

        return apply(b, packed(b.type, one), sources(b, 2), is_signed=False)
    return apply(b, lambda x, y: x + sign * y, sources(b, 2), text="{0} + {1}" if sign == 1 else "{0} - {1}")


def mixed(b: Builder, function: Callable[..., int]) -> Step:
    """Sources of 16 bits but the last, which is single precision like the result."""
    narrow = floats.FORMATS.get(b.types[1])
    if b.types[0] != "f32" or narrow not in (floats.F16, floats.BF16):
        raise b.fail("the oracle does not know numbers of these types")
    count, saturates = len(b.operands) - 1, b.has("sat")

    def one(*xs: int) -> int:
        result = function(*(floats.convert(narrow, floats.F32, x) for x in xs[:-1]), xs[-1])
        return floats.saturate(floats.F32, result) if saturates else result

    return apply(b, one, [*(b.get(at, 16) for at in range(1, count)), b.get(count, 32)], 32)


@semantics("addc", "subc")
def carry(b: Builder) -> Step:
    """Extended precision: ``.cc`` writes the flag, ``addc``/``subc`` read it. Subtraction adds the complement and 1, as the
    machines do: the flag is set where nothing is borrowed."""
    base = b.statement.base
    reads, subtract, writes = base in ("addc", "subc"), base.startswith("sub"), b.has("cc")
    x, y = sources(b, 2)
    put, width = b.put(0), b.width

    def step(t: Thread) -> None:
        flag = t.carry if reads else int(subtract)
        total = x(t) + (mask(width) - y(t)) + flag if subtract else x(t) + y(t) + flag
        put(t, total)
        if writes:
            t.carry = total >> width & 1

    return step


@semantics("mul")
def mul(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        return floating(b, lambda x, y: floats.mul(f, x, y, mode), 2)
    gets = sources(b, 2, b.signed)
    if b.has("wide"):
        return apply(b, lambda x, y: x * y, gets, 2 * b.width, text="{0} * {1}")
    shift = b.width if b.has("hi") else 0
    return apply(b, lambda x, y: x * y >> shift, gets, text=f"{{0}} * {{1}} >> {shift}")


@semantics("fma", "mad", "madc")
def mad(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None and len(b.types) == 2:
        return mixed(b, lambda x, y, z: floats.fma(floats.F32, x, y, z, mode))
    if f is not None:
        return floating(b, lambda x, y, z: floats.fma(f, x, y, z, mode), 3)
    wide = 2 * b.width if b.has("wide") else b.width
    shift = b.width if b.has("hi") else 0
    x, y = sources(b, 2, b.signed)
    if b.has("sat"):  # mad.hi.sat.s32
        return apply(b, lambda p, q, r: clamp((p * q >> 32) + r, 32, True), [x, y, b.get(3, 32, True)])
    z = b.get(3, wide)
    if not (b.has("cc") or b.statement.base == "madc"):
        text = f"({{0}} * {{1}} >> {shift}) + {{2}}"
        return apply(b, lambda p, q, r: (p * q >> shift) + r, [x, y, z], wide, text=text)
    reads, writes, put, width = b.statement.base == "madc", b.has("cc"), b.put(0), b.width

    def step(t: Thread) -> None:
        total = (x(t) * y(t) >> shift & mask(width)) + z(t) + (t.carry if reads else 0)
        put(t, total)
        if writes:
            t.carry = total >> width & 1

    return step


@semantics("mul24", "mad24")
def mul24(b: Builder) -> Step:
    shift = 16 if b.has("hi") else 0
    narrow = (lambda x: signed(x, 24)) if b.signed else (lambda x: x & 0xFFFFFF)
    gets = sources(b, 2)
    if b.statement.base == "mul24":
        return apply(b, lambda x, y: narrow(x) * narrow(y) >> shift, gets)
    gets.append(b.get(3, 32, b.signed))
    if b.has("sat"):
        return apply(b, lambda x, y, z: clamp((narrow(x) * narrow(y) >> 16) + z, 32, True), gets)
    return apply(b, lambda x, y, z: (narrow(x) * narrow(y) >> shift) + z, gets)


@semantics("div")
def div(b: Builder) -> Step:
    f = b.float
    if f is not None:  # .approx and .full: the correctly rounded quotient is within their bounds
        mode = b.mode or "rn"
        return floating(b, lambda x, y: floats.div(f, x, y, mode), 2)
    return apply(b, integers.quotient, sources(b, 2, b.signed))


@semantics("rem")
def rem(b: Builder) -> Step:
    return apply(b, integers.remainder, sources(b, 2, b.signed))


@semantics("abs", "neg")
def absolute(b: Builder) -> Step:
    negate = b.statement.base == "neg"
    f = b.float
    if f is not None:
        return floating(b, lambda x: floats.negate(f, x) if negate else floats.absolute(f, x), 1)
    bits = LANES.get(b.type, (1, b.width))[1]

    def one(x: int) -> int:
        return -signed(x, bits) if negate else abs(signed(x, bits))

    return apply(b, packed(b.type, one), sources(b, 1))


@semantics("min", "max")
def extremum(b: Builder) -> Step:
    largest = b.statement.base == "max"
    f = b.float
    count = len(b.operands) - 1
    if f is not None:
        nan, xorsign = b.has("NaN"), b.has("xorsign")
        magnitudes = b.has("abs") and not xorsign

        def fold(*xs: int) -> int:
            if magnitudes:
                xs = tuple(floats.absolute(f, x) for x in xs)
            result = xs[0]
            for x in xs[1:]:
                result = floats.extremum(f, result, x, largest, nan, xorsign)
            return result

        return floating(b, fold, count)
    pick = max if largest else min
    relu = b.has("relu")
    bits, is_signed = LANES.get(b.type, (1, b.width))[1], b.signed

    def lane(x: int, y: int) -> int:
        result = pick(signed(x, bits), signed(y, bits)) if is_signed else pick(x, y)
        return max(result, 0) if relu else result

    return apply(b, packed(b.type, lane), sources(b, 2))


@semantics("sad")
def sad(b: Builder) -> Step:
    return apply(b, lambda x, y, z: z + abs(x - y), [*sources(b, 2, b.signed), b.get(3)])


@semantics("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def unary(b: Builder) -> Step:
    f, base, mode = b.float, b.statement.base, b.mode
    assert f is not None
    if mode and base == "rcp":
        return floating(b, lambda x: floats.div(f, f.one, x, mode), 1)
    if mode and base == "sqrt":
        return floating(b, lambda x: floats.sqrt(f, x, mode), 1)
    if f is floats.F64 and b.has("ftz") and base in ("rcp", "rsqrt"):  # the upper words only
        return floating(b, lambda x: floats.approximate(f, base, x & ~mask(32)) & ~mask(32), 1)
    return floating(b, lambda x: floats.approximate(f, base, x), 1)


@semantics("clmad")
def clmad(b: Builder) -> Step:
    """A product without carries, one half of it, added without carries to c."""
    shift = 64 if b.has("hi") else 0

    def one(x: int, y: int, z: int) -> int:
        total = 0
        for i in range(64):
            total ^= (x << i) * (y >> i & 1)
        return total >> shift ^ z

    return apply(b, one, sources(b, 3))


@semantics("copysign")
def copysign(b: Builder) -> Step:
    f = b.float
    assert f is not None
    return apply(b, lambda x, y: floats.absolute(f, y) | x & f.sign_bit, sources(b, 2))


@semantics("testp")
def testp(b: Builder) -> Step:
    f = b.float
    assert f is not None
    kind = b.mods[0]

    def test(x: int) -> int:
        magnitude = x & (f.sign_bit - 1)
        subnormal = 0 < magnitude < 1 << f.mantissa_bits
        return int(
            {
                "finite": magnitude < f.infinity,
                "infinite": magnitude == f.infinity,
                "number": magnitude <= f.infinity,
                "notanumber": magnitude > f.infinity,
                "normal": magnitude < f.infinity and not subnormal,  # zero is normal (manual, "testp")
                "subnormal": subnormal,
            }[kind]
        )

    return apply(b, test, sources(b, 1), 1, False)
