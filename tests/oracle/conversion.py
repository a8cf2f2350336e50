"""``cvt``: between integer and float types of all widths."""

from __future__ import annotations

from collections.abc import Callable

from . import floats
from .integers import clamp, mask
from .operands import Builder, Step
from .registry import apply, meaning
from .syntax import WIDTHS

NAN32 = floats.F32.nan


def narrow_float(b: Builder, source: floats.Format, target: floats.Format) -> Callable[[int], int]:
    """Float to float with the modifiers of ``cvt``."""
    mode = b.mode
    ftz, sat, relu, finite = b.has("ftz"), b.has("sat"), b.has("relu"), b.has("satfinite")

    def one(x: int) -> int:
        if ftz and source is floats.F32:
            x = floats.flush(source, x)
        if mode.endswith("i"):
            x = floats.round_to_integral(source, x, mode[:2])
        if source is target:
            result = floats.FORMATS[target.name].nan if floats.is_nan(target, x) else x
        else:
            result = floats.convert(source, target, x, mode if mode and not mode.endswith("i") else "rn")
        if ftz and target is floats.F32:
            result = floats.flush(target, result)
        if finite and floats.is_infinite(target, result):
            result = result & target.sign_bit | target.largest
        if sat:
            return floats.saturate(target, result)
        return floats.relu(target, result) if relu else result

    return one


def float_to_integer(b: Builder, source: floats.Format, target: str) -> Callable[[int], int]:
    """Out of range saturates; NaN gives 0, or the top bit alone from f64 or to 64 bits (manual, "cvt")."""
    mode = b.mode.removesuffix("i") or "rz"
    width, is_signed = WIDTHS[target], target.startswith("s")
    flush = b.has("ftz") and source is floats.F32

    def one(x: int) -> int:
        if floats.is_nan(source, x):
            return 1 << (width - 1) if source is floats.F64 or width == 64 else 0
        if floats.is_infinite(source, x):
            return clamp(-(1 << 200) if x & source.sign_bit else 1 << 200, width, is_signed)
        return clamp(
            floats.to_integer(source, floats.flush(source, x) if flush else x, mode), width, is_signed
        )

    return one


@meaning("cvt")
def cvt(b: Builder) -> Step:
    target, source = b.types[:2]
    if b.has("pack"):
        return pack(b)
    to, of = floats.FORMATS.get(target), floats.FORMATS.get(source)
    if target in EIGHTS or source in EIGHTS:
        return eight(b, target, source)
    if target.endswith("x2") and source == "f32":  # d = {b, a}: the first source is the upper half
        half = floats.FORMATS.get(target.removesuffix("x2"))
        assert half is not None
        one = narrow_float(b, floats.F32, half)
        return apply(b, lambda x, y: one(x) << 16 | one(y), [b.get(1, 32), b.get(2, 32)])
    if target == "tf32":
        narrow = narrow_float(b, floats.F32, floats.TF32)
        return apply(b, lambda x: NAN32 if floats.is_nan(floats.F32, x) else narrow(x) << 13, [b.get(1, 32)])
    x = b.get(1, WIDTHS[source], source.startswith("s"))
    saturating = b.has("sat")
    if to is not None and of is not None:
        return apply(b, narrow_float(b, of, to), [x])
    if to is not None and source[0] in "su":
        f, mode = to, b.mode or "rn"

        def from_integer(value: int) -> int:
            result = floats.pack(f, value, 0, mode)
            return floats.saturate(f, result) if saturating else result

        return apply(b, from_integer, [x])
    if of is not None and target[0] in "su":
        return apply(b, float_to_integer(b, of, target), [x])
    if target[0] in "su" and source[0] in "su":
        width, is_signed = b.width, b.signed
        return apply(b, lambda v: clamp(v, width, is_signed) if saturating else v, [x])
    raise b.fail("the oracle does not know this conversion")


# The 8-bit formats: bits of mantissa, exponent of the smallest subnormal, pattern of the largest number.
EIGHTS = {"e4m3x2": (3, -9, 0x7E), "e5m2x2": (2, -16, 0x7B)}


def to_eight(f: floats.Format, x: int, name: str, relu: bool) -> int:
    """A number as 8 bits, rounded to nearest even and limited to the finite numbers (``.satfinite``)."""
    bits, least, largest = EIGHTS[name]
    if floats.is_nan(f, x):
        return 0x7F
    if relu and x & f.sign_bit:
        return 0
    sign = 0x80 if x & f.sign_bit else 0
    if floats.is_infinite(f, x):
        return sign | largest
    m, e = floats.unpack(f, floats.absolute(f, x))
    if not m:
        return sign
    last = max(m.bit_length() + e - 1 - bits, least)
    drop = last - e
    m = m << -drop if drop <= 0 else floats.round_quotient(m >> drop, m & mask(drop), drop, False, "rn")
    if m >> (bits + 1):
        m, last = m >> 1, last + 1
    pattern = m if m < 1 << bits else (last - least + 1 << bits) | m & mask(bits)
    return sign | min(pattern, largest)


def from_eight(x: int, name: str) -> int:
    """8 bits as the half precision number that they are exactly."""
    bits, least, largest = EIGHTS[name]
    sign, x = x & 0x80, x & 0x7F
    if x > largest:
        infinite = name == "e5m2x2" and x == largest + 1
        return sign << 8 | floats.F16.infinity if infinite else floats.F16.nan
    field = x >> bits
    m, e = (x & mask(bits) | 1 << bits, least + field - 1) if field else (x, least)
    return floats.pack(floats.F16, -m if sign else m, e, "rn", bool(sign))


def eight(b: Builder, target: str, source: str) -> Step:
    relu = b.has("relu")
    if source in EIGHTS:

        def widen(x: int) -> int:
            halves = [from_eight(x >> shift & 0xFF, source) for shift in (0, 8)]
            low, high = (floats.relu(floats.F16, h) if relu else h for h in halves)
            return high << 16 | low

        return apply(b, widen, [b.get(1, 16)])
    if source == "f16x2":

        def narrow(x: int) -> int:
            low, high = (to_eight(floats.F16, x >> shift & 0xFFFF, target, relu) for shift in (0, 16))
            return high << 8 | low

        return apply(b, narrow, [b.get(1, 32)])
    if source != "f32":
        raise b.fail("the oracle does not know this conversion")
    f = floats.F32
    return apply(
        b,
        lambda x, y: to_eight(f, x, target, relu) << 8 | to_eight(f, y, target, relu),
        [b.get(1, 32), b.get(2, 32)],
    )


def pack(b: Builder) -> Step:
    """``cvt.pack``: a in the upper, b in the lower part; c fills from above for the narrow forms."""
    target = b.type
    width, is_signed = WIDTHS[target], target.startswith("s")
    gets = [b.get(1, 32, True), b.get(2, 32, True)]
    if len(b.operands) > 3:
        gets.append(b.get(3, 32))

    def join(x: int, y: int, c: int = 0) -> int:
        low = clamp(x, width, is_signed) & mask(width)
        high = clamp(y, width, is_signed) & mask(width)
        return low << width | high | c << 2 * width

    return apply(b, join, gets, 32, False)
