"""Texels of textures: their addresses, and their components as values."""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import Value, clz, maximum, minimum, select
from ..types import ScalarType, scalar_type
from .image import EQUAL, FLOAT, GREATER, LESS, SIGNED, UNORDERED, Image

__all__ = ["channel_of", "compared", "converted", "is_resident", "texel_address"]

U16, U32, U64, S32, B32, F16, F32 = (
    scalar_type(name) for name in ("u16", "u32", "u64", "s32", "b32", "f16", "f32")
)


def texel_address(image: Image, layer: Value, texels: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """The address of a texel, and whether it is outside of the image, so that the border applies."""
    steps = (image.field("step").convert(U64), image.field("row").convert(U64), image.field("slice"))
    address, border = layer, texels[0][1]
    for (index, beyond), step in zip(texels, steps):
        address, border = address + index.convert(U64) * step, border | beyond
    return address, border


def is_resident(image: Image, address: Value, border: Value) -> Value:
    """1 for texels that are in memory, and for the border, otherwise 0 (b32)."""
    map = image.field("resident")
    sparse = map.compare("ne", 0) & ~border

    def looked_up() -> list[Value]:
        # the size of a texel is a power of two
        texels = (address - image.field("base")) >> (map.constant(31, U32) - clz(image.field("texel")))
        flag = map + texels
        word = image.load(flag & ~3, sparse).bits(U32)
        byte = (word >> ((flag.convert(U32) & 3) << 3)) & 0xFF
        return [select(sparse, minimum(byte, 1), byte.constant(1, U32)).bits(B32)]

    return image.either(sparse, looked_up, lambda: [border.constant(1, U32).bits(B32)])[0]


def compared(image: Image, depth: Value, value: Value, number: int) -> Value:
    """The result for a component of a texel of a depth texture (b32): 1.0 if the comparison with the depth passes, otherwise 0.0."""
    texel, comparison = value.bits(F32), image.field("comparison")
    passes = depth.compare("nan", texel) & (comparison & UNORDERED).compare("ne", 0)
    for op, bit in (("lt", LESS), ("eq", EQUAL), ("gt", GREATER)):
        passes = passes | (depth.compare(op, texel) & (comparison & bit).compare("ne", 0))
    result = select(passes, depth.constant(1.0, F32), depth.constant(0.0, F32)).bits(B32)
    return select(image.field("channels").compare("gt", number), result, value)


def _is_float(image: Image) -> Value:
    """Whether fetched values are f32: for floating-point formats, and for integers that are read normalized."""
    return image.is_("kind", FLOAT) | image.field("normalized_read").compare("ne", 0)


def channel_of(image: Image, address: Value, border: Value, number: int) -> Value:
    """One component of a texel, b32: f32, or an integer extended to 32 bits."""
    bits = image.field("bits")
    there = image.field("channels").compare("gt", number)
    channel_address = address + (bits >> 3).convert(U64) * number
    word = image.load(channel_address & ~3, there & ~border).bits(U32)
    shift = (channel_address.convert(U32) & 3) << 3
    unused = bits.constant(32, U32) - bits
    high = (word >> shift) << unused
    unsigned, signed = high >> unused, (high.bits(S32) >> unused).bits(U32)
    integer = select(image.is_("kind", SIGNED), signed, unsigned)
    most = (bits.constant(1, U32) << (bits - image.field("kind"))) - 1
    scale = most.convert(F32)
    plain = select(image.is_("kind", SIGNED), signed.bits(S32).convert(F32), unsigned.convert(F32))
    normalized = maximum(plain.div(scale), -1.0).bits(U32)
    half = unsigned.convert(U16).bits(F16).convert(F32).bits(U32)
    wide = select(bits.compare("eq", 16), half, unsigned)
    value = select(image.is_("kind", FLOAT), wide, integer)
    value = select(image.field("normalized_read").compare("ne", 0), normalized, value)
    missing = value.constant(0, U32)
    if number == 3:
        missing = select(_is_float(image), value.constant(0x3F800000, U32), value.constant(1, U32))
    return select(border, image.field(f"border_{number}"), select(there, value, missing)).bits(B32)


def converted(image: Image, channels: Sequence[Value], dtype: ScalarType) -> tuple[Value, ...]:
    """Convert components to the type of the destination."""
    if dtype.bits == 32 and dtype.lanes == 1:
        return tuple(value.bits(dtype) for value in channels)
    halves = [value.bits(F32).convert(F16) for value in channels]
    if dtype.lanes == 1:
        return tuple(halves)
    words = [value.bits(U16).convert(U32) for value in halves]
    return tuple((words[i] | (words[i + 1] << 16)).bits(dtype) for i in (0, 2))
