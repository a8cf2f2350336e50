"""Approximate functions (manual: rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh with ``.approx``).

The manual only bounds their errors. Here each is one fixed sequence of double-precision operations, rounded once to the type, so that
results are the same on every host; the errors are far below those of the manual.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import Value, copysign, fma, maximum, minimum, select, sqrt
from ..table import Options, instruction
from ..types import ScalarType, scalar_type

F64, U64, S64 = scalar_type("f64"), scalar_type("u64"), scalar_type("s64")
MUFU: Options = {"category": "special_function", "unit": "xu", "flop": "special"}

#: Taylor coefficients: sin x / x and cos x in x² on |x| ≤ π/4, 2ˣ on |x| ≤ ½, log₂ by atanh.
SINE = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800)
COSINE = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)
LN2 = 0.6931471805599453
EXPONENTIAL = tuple(
    LN2**n / f for n, f in enumerate((1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800))
)
LOGARITHM = tuple(2 / ((2 * n + 1) * LN2) for n in range(9))
TWO_OVER_PI = 0.6366197723675814
#: π/2 in three pieces of 33 bits and a rest (as in fdlibm).
HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


SQRT2 = 1.4142135623730951
UPPER_HALF = 0xFFFFFFFF00000000


@instruction("rsqrt.approx.f64 d, a", since=(1, 4), target=13, **MUFU)
@instruction("rsqrt.approx{.ftz}.f32 d, a", since=(1, 4), **MUFU)
def rsqrt(a: Value) -> Value:
    """1 / √a, within 2^−22.9 relative (f32)."""
    wide = a.convert(F64)
    return _narrow(wide.constant(1.0, F64).div(sqrt(wide)), a.type)


@instruction("rcp.approx.ftz.f64 d, a", since=(2, 1), target=20, **MUFU)
def rcp_gross(a: Value) -> Value:
    """1 / a from the upper 32 bits of a; the lower 32 bits of the result are zero."""
    rough = _upper(a)
    return _upper(rough.constant(1.0, F64).div(rough))


@instruction("rsqrt.approx.ftz.f64 d, a", since=(4, 0), target=20, **MUFU)
def rsqrt_gross(a: Value) -> Value:
    """1 / √a from the upper 32 bits of a; the lower 32 bits of the result are zero."""
    return _upper(rsqrt(_upper(a)))


@instruction("sin.approx{.ftz}.f32 d, a", since=(1, 4), **MUFU)
def sin(a: Value) -> Value:
    """sin a, a in radians, within 2^−20.5 absolute on [−π, π]."""
    angle, quadrant = _reduce(a.convert(F64))
    return _narrow(_of_quadrant(angle, quadrant), a.type)


@instruction("cos.approx{.ftz}.f32 d, a", since=(1, 4), **MUFU)
def cos(a: Value) -> Value:
    """cos a, a in radians, within 2^−20.5 absolute on [−π, π]."""
    angle, quadrant = _reduce(a.convert(F64))
    return _narrow(_of_quadrant(angle, quadrant + 1), a.type)


@instruction("lg2.approx{.ftz}.f32 d, a", since=(1, 4), **MUFU)
def lg2(a: Value) -> Value:
    """log₂ a, within 2^−22 absolute on (0.5, 2) and 2^−22 relative elsewhere."""
    wide = a.convert(F64)
    pattern = wide.bits(U64)
    exponent = (pattern >> 52).bits(S64) - 1023
    mantissa = ((pattern & ((1 << 52) - 1)) | (1023 << 52)).bits(F64)
    upper = mantissa.compare("gt", SQRT2)
    mantissa = select(upper, mantissa * 0.5, mantissa)
    exponent = select(upper, exponent + 1, exponent)
    ratio = (mantissa - 1.0).div(mantissa + 1.0)
    result = exponent.convert(F64, rounding="rn") + ratio * _polynomial(ratio * ratio, LOGARITHM)
    result = select(wide.compare("eq", 0.0), wide.constant(float("-inf"), F64), result)
    # the logarithm of NaN and +∞ is the operand itself, that of a negative number is NaN, by its square root
    result = select(wide.compare("lt", float("inf")), result, wide + wide)
    return _narrow(select(wide.compare("lt", 0.0), sqrt(wide), result), a.type)


@instruction("ex2.approx.ftz.type d, a", type="bf16 bf16x2", since=(7, 8), target=90, **MUFU)
@instruction("ex2.approx.type d, a", type="f16 f16x2", since=(7, 0), target=75, **MUFU)
@instruction("ex2.approx{.ftz}.f32 d, a", since=(1, 4), **MUFU)
def ex2(a: Value) -> Value:
    """2^a, within 2 ulp (f32)."""
    return _narrow(_exp2(a.convert(F64)), a.type)


@instruction("tanh.approx.type d, a", type="bf16 bf16x2", since=(7, 8), target=90, **MUFU)
@instruction("tanh.approx.type d, a", type="f16 f16x2 f32", since=(7, 0), target=75, **MUFU)
def tanh(a: Value) -> Value:
    """tanh a, within 2^−11 relative (f32)."""
    wide = a.convert(F64)
    magnitude = abs(wide)
    decay = _exp2(magnitude * (-2 / LN2))
    far = (1.0 - decay).div(decay + 1.0)
    near = magnitude * fma(
        magnitude * magnitude, magnitude.constant(-1 / 3, F64), magnitude.constant(1.0, F64)
    )
    return _narrow(copysign(select(magnitude.compare("lt", 2.0**-10), near, far), wide), a.type)


def _exp2(x: Value) -> Value:
    """2^x in double precision; x limited to ±1000."""
    limited = minimum(maximum(x, -1000.0, nan=True), 1000.0, nan=True)
    whole = limited.apply("round_integral", rounding="rni")
    scale = ((whole.convert(S64, rounding="rzi") + 1023) << 52).bits(F64)
    return _polynomial(limited - whole, EXPONENTIAL) * scale


def _reduce(x: Value) -> tuple[Value, Value]:
    """x less the nearest multiple of π/2, limited to where the polynomials hold, and which multiple it was (s64)."""
    multiple = (x * TWO_OVER_PI).apply("round_integral", rounding="rni")
    rest = x
    for piece in HALF_PI:
        rest = fma(-multiple, x.constant(piece, F64), rest)
    rest = select(multiple.compare("eq", 0.0), x, rest)  # keeps the sign of −0
    limited = minimum(maximum(rest, -0.79, nan=True), 0.79, nan=True)
    return limited, multiple.convert(S64, rounding="rzi")


def _of_quadrant(angle: Value, quadrant: Value) -> Value:
    """sin(angle + quadrant · π/2)."""
    square = angle * angle
    even = angle * _polynomial(square, SINE)
    result = select((quadrant & 1).compare("ne", 0), _polynomial(square, COSINE), even)
    return select((quadrant & 2).compare("ne", 0), -result, result)


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Σ coefficients[n] · xⁿ by Horner's rule."""
    result = x.constant(coefficients[-1], F64)
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, x.constant(coefficient, F64))
    return result


def _upper(a: Value) -> Value:
    return (a.bits(U64) & UPPER_HALF).bits(F64)


def _narrow(wide: Value, to: ScalarType) -> Value:
    return wide if to == F64 else wide.convert(to, rounding="rn")
