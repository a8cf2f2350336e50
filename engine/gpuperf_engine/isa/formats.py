"""The narrow formats of ``cvt`` and of matrices: 8, 6 and 4 bits of floating point, powers of two, fixed point.

All conversions use integers and single precision, so that backends need not support the formats. Sources: PTX manual,
"Alternate Floating-Point Data Formats", "Fixed-point Data format" and "cvt"; OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from .primitives import Value, is_nan, maximum, minimum, select
from .types import scalar_type

__all__ = ["FORMATS", "Narrow", "decode", "encode", "fixed", "power", "scale", "unfixed"]

F32, U32, S32, U8, S8 = (scalar_type(name) for name in ("f32", "u32", "s32", "u8", "s8"))
NAN32, INFINITY32, LARGEST32 = 0x7FFFFFFF, 0x7F800000, 0x7F7FFFFF


@dataclass(frozen=True)
class Narrow:
    """A format: its width in bits, bits of mantissa, least exponent of a normal number, pattern of the largest number,
    pattern of NaN (``None``: it has none, and NaN becomes the largest number) and whether it has a sign."""

    width: int
    mantissa: int
    least: int
    largest: int
    nan: int | None = None
    signed: bool = True

    @property
    def mask(self) -> int:
        """The bits of the magnitude."""
        return (1 << (self.width - self.signed)) - 1


#: The only format with infinities; theirs is the pattern after the largest number.
E5M2 = Narrow(8, 2, -14, 0x7B, 0x7F)
_ELEMENTS = {
    "e4m3": Narrow(8, 3, -6, 0x7E, 0x7F),
    "e5m2": E5M2,
    "e2m3": Narrow(6, 3, 0, 0x1F),
    "e3m2": Narrow(6, 2, -2, 0x1F),
    "e2m1": Narrow(4, 1, 0, 0x7),
    "ue5m3": Narrow(8, 3, -14, 0xFE, 0xFF, signed=False),
}
#: By the name of the element or the packed type.
FORMATS = {f"{name}{lanes}": form for name, form in _ELEMENTS.items() for lanes in ("", "x2", "x4")}


def encode(
    a: Value,
    form: Narrow,
    rounding: str = "rn",
    random: Value | None = None,
    finite: bool = True,
    positive_zero: bool = False,
) -> Value:
    """The code (u32) of a (f32): NaN by the format, too large numbers as the largest one or (not ``finite``) as ∞, else NaN.

    ``rounding`` is one of rn rz rp, or rs with 16 ``random`` bits (u32), which are added to the uppermost bits dropped.
    Formats without sign take the magnitude. ``positive_zero``: no −0.
    """
    pattern = a.bits(U32)
    magnitude = pattern & 0x7FFFFFFF
    dropped = 23 - form.mantissa
    bias = (form.least + 126) << form.mantissa
    tiny = magnitude.compare("lt", (form.least + 127) << 23)
    if rounding == "rn":
        half = magnitude + ((1 << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1)
        # subnormal numbers: adding the anchor rounds to multiples of the format's smallest number
        anchor = a.constant(float(2.0 ** (form.least - form.mantissa + 23)), F32)
        small = (magnitude.bits(F32) + anchor).bits(U32) - anchor.bits(U32)
        code = select(tiny, small, (half >> dropped) - bias)
    else:
        exponent = maximum(magnitude >> 23, 1)
        significand = select(magnitude.compare("lt", 1 << 23), magnitude, (magnitude & 0x7FFFFF) | (1 << 23))
        shift = exponent.constant(form.least + 127 + dropped, U32) - exponent
        small = _shifted(significand, shift, rounding, random)
        normal = _shifted(magnitude, magnitude.constant(dropped, U32), rounding, random)
        code = select(tiny, small, normal - bias)
    if finite or form.nan is None:
        code = minimum(code, form.largest)
    elif rounding == "rz":
        past = magnitude.compare("eq", INFINITY32)
        code = select(past, code.constant(form.largest + 1, U32), minimum(code, form.largest))
    else:
        code = minimum(code, form.largest + 1)  # ∞, or NaN where there is none
    none = form.largest if form.nan is None else form.nan
    if form.signed:
        sign = (pattern >> (32 - form.width)) & (1 << (form.width - 1))
        code = select(code.compare("eq", 0), code, code | sign) if positive_zero else code | sign
    return select(magnitude.compare("gt", INFINITY32), code.constant(none, U32), code)


def _shifted(significand: Value, shift: Value, rounding: str, random: Value | None) -> Value:
    """``significand`` without its lowest ``shift`` bits, rounded."""
    if random is not None:
        return ((significand >> (shift - 16)) + random) >> 16
    kept = significand >> shift
    if rounding == "rz":
        return kept
    inexact = (significand & ((shift.constant(1, U32) << shift) - 1)).compare("ne", 0)
    return select(inexact, kept + 1, kept)


def decode(code: Value, form: Narrow) -> Value:
    """The exact number (f32) that a code (any integer type) encodes; bits above the format's width are ignored."""
    code = code.bits(scalar_type(f"u{code.type.bits}")).convert(U32)
    magnitude = code & form.mask
    bias = form.least - 1 + 127
    number = (magnitude << (23 - form.mantissa)).bits(F32) * float(2.0**bias)  # exact, subnormals too
    if form is E5M2:
        number = select(
            magnitude.compare("eq", form.largest + 1), number.constant_bits(INFINITY32, F32), number
        )
    if form.signed:
        sign = (code & (1 << (form.width - 1))) << (32 - form.width)
        number = (number.bits(U32) | sign).bits(F32)
    if form.nan is None:
        return number
    none = magnitude.compare("gt", form.largest + (form is E5M2))
    return select(none, number.constant_bits(NAN32, F32), number)


def power(a: Value, rounding: str, finite: bool) -> Value:
    """The ue8m0 code (u32) of the magnitude of a (f32): its power of two, at most (rz) or at least (rp)."""
    magnitude = a.bits(U32) & 0x7FFFFFFF
    code = magnitude >> 23
    if rounding == "rp":
        between = code.compare("ne", 0) & (magnitude & 0x7FFFFF).compare("ne", 0)
        above_least = code.compare("eq", 0) & magnitude.compare("gt", 1 << 22)
        code = select(between | above_least, code + 1, code)
    if finite:
        code = minimum(code, 0xFE)
    return select(magnitude.compare("gt", INFINITY32), code.constant(0xFF, U32), code)


def scale(code: Value) -> Value:
    """The power of two (f32) that a ue8m0 code (any integer type) encodes; NaN for 255."""
    code = code.bits(scalar_type(f"u{code.type.bits}")).convert(U32)
    pattern = select(code.compare("eq", 0), code.constant(1 << 22, U32), code << 23)
    return select(code.compare("eq", 0xFF), code.constant(NAN32, U32), pattern).bits(F32)


def fixed(a: Value, rounding: str) -> Value:
    """The s2f6 code (u32) of a (f32): in units of 1/64, limited to a signed byte; 127 for NaN."""
    whole = (a * 64.0).convert(S32, rounding=f"{rounding}i")
    limited = minimum(maximum(whole, -128), 127)
    return select(is_nan(a), limited.constant(127, S32), limited).bits(U32) & 0xFF


def unfixed(code: Value) -> Value:
    """The number (f32) that an s2f6 code (8 bits) encodes."""
    return code.bits(S8).convert(S32).convert(F32, rounding="rn") * (1 / 64)
