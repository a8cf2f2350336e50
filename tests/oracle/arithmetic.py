"""Arithmetic on integers and floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import floats, integers
from .integers import clamp, mask, signed
from .operands import Builder, Step
from .registry import apply, floating, half_lanes, meaning, sources

if TYPE_CHECKING:
    from .threads import Thread


@meaning("add", "sub")
def add(b: Builder) -> Step:
    sign = 1 if b.statement.base == "add" else -1
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        if sign == 1:
            return floating(b, lambda x, y: floats.add(f, x, y, mode), 2)
        # a − b: subtracting is adding the negated operand; a NaN stays a NaN
        return floating(b, lambda x, y: floats.add(f, x, floats.negate(f, y), mode), 2)
    if b.type.endswith("x2"):
        return apply(b, half_lanes(lambda x, y: x + sign * y), sources(b, 2), is_signed=False)
    if b.has("cc"):
        return carry(b)
    if b.has("sat"):
        return apply(b, lambda x, y: clamp(x + sign * y, 32, True), sources(b, 2, True))
    return apply(b, lambda x, y: x + sign * y, sources(b, 2))


@meaning("addc", "subc")
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


@meaning("mul")
def mul(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        return floating(b, lambda x, y: floats.mul(f, x, y, mode), 2)
    gets = sources(b, 2, b.signed)
    if b.has("wide"):
        return apply(b, lambda x, y: x * y, gets, 2 * b.width)
    shift = b.width if b.has("hi") else 0
    return apply(b, lambda x, y: x * y >> shift, gets)


@meaning("fma", "mad", "madc")
def mad(b: Builder) -> Step:
    f, mode = b.float, b.mode or "rn"
    if f is not None:
        return floating(b, lambda x, y, z: floats.fma(f, x, y, z, mode), 3)
    wide = 2 * b.width if b.has("wide") else b.width
    shift = b.width if b.has("hi") else 0
    x, y = sources(b, 2, b.signed)
    if b.has("sat"):  # mad.hi.sat.s32
        return apply(b, lambda p, q, r: clamp((p * q >> 32) + r, 32, True), [x, y, b.get(3, 32, True)])
    z = b.get(3, wide)
    if not (b.has("cc") or b.statement.base == "madc"):
        return apply(b, lambda p, q, r: (p * q >> shift) + r, [x, y, z], wide)
    reads, writes, put, width = b.statement.base == "madc", b.has("cc"), b.put(0), b.width

    def step(t: Thread) -> None:
        total = (x(t) * y(t) >> shift & mask(width)) + z(t) + (t.carry if reads else 0)
        put(t, total)
        if writes:
            t.carry = total >> width & 1

    return step


@meaning("mul24", "mad24")
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


@meaning("div")
def div(b: Builder) -> Step:
    f = b.float
    if f is not None:  # .approx and .full: the correctly rounded quotient is within their bounds
        mode = b.mode or "rn"
        return floating(b, lambda x, y: floats.div(f, x, y, mode), 2)
    return apply(b, integers.quotient, sources(b, 2, b.signed))


@meaning("rem")
def rem(b: Builder) -> Step:
    return apply(b, integers.remainder, sources(b, 2, b.signed))


@meaning("abs", "neg")
def absolute(b: Builder) -> Step:
    negate = b.statement.base == "neg"
    f = b.float
    if f is not None:
        return floating(b, lambda x: floats.negate(f, x) if negate else floats.absolute(f, x), 1)
    return apply(b, lambda x: -x if negate else abs(x), sources(b, 1, True))


@meaning("min", "max")
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
    if b.type.endswith("x2"):

        def lane(x: int, y: int) -> int:
            result = pick(signed(x, 16), signed(y, 16)) if b.signed else pick(x, y)
            return max(result, 0) if relu else result

        return apply(b, half_lanes(lane), sources(b, 2), is_signed=False)
    return apply(b, lambda x, y: max(pick(x, y), 0) if relu else pick(x, y), sources(b, 2, b.signed))


@meaning("sad")
def sad(b: Builder) -> Step:
    return apply(b, lambda x, y, z: z + abs(x - y), [*sources(b, 2, b.signed), b.get(3)])


@meaning("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
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


@meaning("copysign")
def copysign(b: Builder) -> Step:
    f = b.float
    assert f is not None
    return apply(b, lambda x, y: floats.absolute(f, y) | x & f.sign_bit, sources(b, 2))


@meaning("testp")
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
