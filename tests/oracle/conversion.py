"""``cvt``: between integer and float types of all widths."""

from __future__ import annotations

from collections.abc import Callable

from . import floats, narrow
from .integers import clamp, mask
from .operands import Builder, Step
from .registry import apply, semantics
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
        if source is target:  # without rounding the bits of a NaN stay
            result = target.nan if floats.is_nan(target, x) and (mode or ftz or sat) else x
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


@semantics("cvt")
def cvt(b: Builder) -> Step:
    if b.has("pack"):
        return pack(b)
    if len(b.types) != 2 or any(b.has(word) for word in ("rs", "pzo", "scaled")):
        raise b.fail("the oracle does not know this conversion")
    target, source = b.types
    to, of = floats.FORMATS.get(target), floats.FORMATS.get(source)
    if narrow.is_narrow(target) or narrow.is_narrow(source):
        return narrow.cvt(b, target, source)
    if target.endswith("x2") and source == "f32":  # d = {b, a}: the first source is the upper half
        half = floats.FORMATS.get(target.removesuffix("x2"))
        assert half is not None
        one = narrow_float(b, floats.F32, half)
        return apply(b, lambda x, y: one(x) << 16 | one(y), [b.get(1, 32), b.get(2, 32)])
    if target == "tf32":
        short = narrow_float(b, floats.F32, floats.TF32)
        return apply(b, lambda x: NAN32 if floats.is_nan(floats.F32, x) else short(x) << 13, [b.get(1, 32)])
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
        text = "" if saturating else "{0}"
        return apply(b, lambda v: clamp(v, width, is_signed) if saturating else v, [x], text=text)
    raise b.fail("the oracle does not know this conversion")


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
