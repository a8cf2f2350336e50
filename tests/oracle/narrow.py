"""Conversions from and to the formats of four to eight bits, two of them side by side (manual, "Alternate Floating-Point Data
Formats" and "cvt")."""

from __future__ import annotations

from dataclasses import dataclass

from . import floats
from .integers import mask
from .operands import Builder, Step
from .registry import apply


@dataclass(frozen=True)
class Narrow:
    """A format: bits of its mantissa, the exponent of the smallest subnormal, the pattern of the largest number, its NaN (the largest
    number where it has none), its infinity, and its width."""

    mantissa: int
    least: int
    largest: int
    nan: int
    infinity: int | None = None
    width: int = 8

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)


NARROW = {
    "e4m3": Narrow(3, -9, 0x7E, 0x7F),
    "e5m2": Narrow(2, -16, 0x7B, 0x7F, 0x7C),
    "e2m3": Narrow(3, -3, 0x1F, 0x1F, width=6),
    "e3m2": Narrow(2, -4, 0x1F, 0x1F, width=6),
    "e2m1": Narrow(1, -1, 0x07, 0x07, width=4),
}
POWER_BIAS, POWER_NAN = 127, 0xFF  # of ue8m0


def encode(n: Narrow, f: floats.Format, x: int, relu: bool, mode: str) -> int:
    """A number rounded and limited to the finite numbers (``.satfinite``)."""
    if floats.is_nan(f, x):
        return n.nan
    if relu and x & f.sign_bit:
        return 0
    sign = n.sign if x & f.sign_bit else 0
    if floats.is_infinite(f, x):
        return sign | n.largest
    m, e = floats.unpack(f, floats.absolute(f, x))
    if not m:
        return sign
    last = max(m.bit_length() + e - 1 - n.mantissa, n.least)
    drop = last - e
    m = m << -drop if drop <= 0 else floats.round_quotient(m >> drop, m & mask(drop), drop, False, mode)
    if m >> (n.mantissa + 1):
        m, last = m >> 1, last + 1
    pattern = m if m < 1 << n.mantissa else (last - n.least + 1 << n.mantissa) | m & mask(n.mantissa)
    return sign | min(pattern, n.largest)


def decode(n: Narrow, x: int) -> int:
    """As the half precision number that it is exactly."""
    negative, magnitude = bool(x & n.sign), x & (n.sign - 1)
    if magnitude > n.largest:
        infinite = magnitude == n.infinity
        return negative << 15 | floats.F16.infinity if infinite else floats.F16.nan
    field = magnitude >> n.mantissa
    if field:
        m, e = magnitude & mask(n.mantissa) | 1 << n.mantissa, n.least + field - 1
    else:
        m, e = magnitude, n.least
    return floats.pack(floats.F16, -m if negative else m, e, "rn", negative)


def power(f: floats.Format, x: int, mode: str, finite: bool) -> int:
    """The ue8m0 of a number's magnitude: an exponent and nothing else, rounded to zero or up."""
    if floats.is_nan(f, x):
        return POWER_NAN
    top = POWER_NAN - finite
    if floats.is_infinite(f, x):
        return top
    m, e = floats.unpack(f, floats.absolute(f, x))
    if not m:
        return 0
    exponent = m.bit_length() - 1 + e
    if mode == "rp" and m != 1 << (m.bit_length() - 1):
        exponent += 1
    return min(max(exponent + POWER_BIAS, 0), top)


def is_narrow(name: str) -> bool:
    return name.endswith("x2") and (name[:-2] in NARROW or name == "ue8m0x2")


def cvt(b: Builder, target: str, source: str) -> Step:
    """Of two operands the first goes to the upper part. Formats of six and eight bits lie in bytes, those of four in halves of one."""
    relu, mode = b.has("relu"), b.mode
    f = floats.FORMATS.get(source.removesuffix("x2"))

    if is_narrow(source):
        part = 4 if source == "e2m1x2" else 8

        def widen(x: int) -> int:
            low, high = (x >> shift & mask(part) for shift in (0, part))
            if source == "ue8m0x2":
                low, high = (floats.BF16.nan if p == POWER_NAN else
                             floats.pack(floats.BF16, 1, p - POWER_BIAS) for p in (low, high))  # fmt: skip
            else:
                n = NARROW[source[:-2]]
                low, high = (
                    floats.convert(floats.F16, to, decode(n, p & mask(n.width))) for p in (low, high)
                )
            if finite:
                low, high = (
                    h & to.sign_bit | to.largest if floats.is_infinite(to, h) else h for h in (low, high)
                )
            if relu:
                low, high = (floats.relu(to, h) for h in (low, high))
            return high << 16 | low

        to, finite = floats.FORMATS[target.removesuffix("x2")], b.has("satfinite")
        return apply(b, widen, [b.get(1, 2 * part)], 32)
    if f is None:
        raise b.fail("the oracle does not know this conversion")

    def one(x: int) -> int:
        if target == "ue8m0x2":
            return power(f, x, mode, b.has("satfinite"))
        return encode(NARROW[target[:-2]], f, x, relu, mode)

    part = 4 if target == "e2m1x2" else 8
    if source == "f32":
        return apply(
            b, lambda x, y: one(x) << part | one(y), [b.get(1, 32), b.get(2, 32)], 2 * part, is_signed=False
        )
    return apply(
        b, lambda x: one(x >> 16) << part | one(x & 0xFFFF), [b.get(1, 32)], 2 * part, is_signed=False
    )
