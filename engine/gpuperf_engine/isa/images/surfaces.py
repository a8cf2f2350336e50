"""Surfaces: bytes and samples at a coordinate are read, written and updated."""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import Value, maximum, minimum, select, split
from ..types import ScalarType, scalar_type
from .image import FLOAT, SIGNED, SURFACE, Image, shape_of

__all__ = ["read_surface", "reduce_surface", "write_samples", "write_surface"]

U16, U32, U64, S32, F16, F32 = (scalar_type(name) for name in ("u16", "u32", "u64", "s32", "f16", "f32"))


def _locate(
    image: Image, operands: Sequence[Value], geometry: str, size: Value, mode: str, *, samples: bool
) -> tuple[Value, Value]:
    """The address of an access of ``size`` bytes (u32), and the predicate of lanes that access memory. The first coordinate counts
    bytes, or samples."""
    image.expect(SURFACE, geometry)
    layered, dimensions, _ = shape_of(geometry)
    given = [value.bits(S32) for value in operands[layered : layered + dimensions]]
    address = image.field("base")
    inside = image.is_("object", SURFACE)
    if layered:
        layer = operands[0].bits(U32)
        inside = inside & layer.compare("lt", image.field("layers"))
        if mode == "clamp":
            layer, inside = minimum(layer, image.field("layers") - 1), image.is_("object", SURFACE)
        address = address + layer.convert(U64) * image.field("slice")
    texel = image.field("texel")
    unit = texel if samples else texel.constant(1, U32)
    row_bytes = (image.field("width") * texel).bits(S32)
    limits = [
        (row_bytes - size.bits(S32)).bits(S32),
        image.field("height").bits(S32) - 1,
        image.field("depth").bits(S32) - 1,
    ]
    steps = (unit.convert(U64), image.field("row").convert(U64), image.field("slice"))
    for number, (x, limit, step) in enumerate(zip(given, limits, steps)):
        if number == 0:
            fits = limit.compare("ge", 0)
            if samples:
                limit = image.field("width").bits(S32) - 1
            else:
                fits = fits & (x.bits(U32) & (size - 1)).compare("eq", 0)
            image.refuse(~fits & image.is_("object", SURFACE))
            inside = inside & fits
        if mode == "clamp":
            x = maximum(minimum(x, limit), 0)
        else:
            inside = inside & x.compare("ge", 0) & x.compare("le", limit)
        address = address + maximum(x, 0).bits(U32).convert(U64) * step
    if mode == "trap":
        image.refuse(~inside)
    return address, inside


def _size(image: Image, count: int) -> Value:
    return image.field("width").constant(count, U32)


def _word(image: Image, address: Value, inside: Value) -> Value:
    """Four bytes at any address, as rows of narrow texels may begin at any address."""
    shift = (address.convert(U32) & 3) << 3
    low = image.load(address & ~3, inside).bits(U32)
    high = image.load((address & ~3) + 4, inside & shift.compare("ne", 0)).bits(U32)
    return (low >> shift) | (high << (shift.constant(32, U32) - shift))


def _put(image: Image, address: Value, value: Value, inside: Value) -> None:
    """Store the bytes of a value at an address that is a multiple only of the size of a channel."""
    raw = value.bits(scalar_type(f"b{value.type.bits}"))
    for width in (8, 16, 32):
        # texels consist of whole channels, so a value no larger than a channel is stored unsplit
        whole = width == 32 or value.type.bits == width
        chosen = image.field("bits").compare("ge" if whole else "eq", width)
        pieces = (raw,) if value.type.bits <= width else split(raw, value.type.bits // width)
        for index, piece in enumerate(pieces):
            image.store(address + index * width // 8, piece, inside & chosen)
        if whole:
            return


def read_surface(
    image: Image, operands: Sequence[Value], geometry: str, dtype: ScalarType, count: int, mode: str
) -> tuple[Value, ...]:
    """Bytes of a surface, unconverted; 0 in lanes that access nothing."""
    size = _size(image, dtype.bytes * count)
    address, inside = _locate(image, operands, geometry, size, mode, samples=False)
    image.reads(address, size, inside)
    channels: list[Value] = []
    for index in range(count):
        at = address + index * dtype.bytes
        word = _word(image, at, inside)
        if dtype.bytes == 8:
            high = _word(image, at + 4, inside).convert(U64)
            channels.append((word.convert(U64) | (high << 32)).bits(dtype))
        else:
            channels.append(word.convert(scalar_type(f"u{dtype.bits}")).bits(dtype))
    return tuple(channels)


def write_surface(
    image: Image, operands: Sequence[Value], geometry: str, ctype: ScalarType, count: int, mode: str
) -> None:
    """Store the last ``count`` operands as bytes of a surface."""
    address, inside = _locate(
        image, operands, geometry, _size(image, ctype.bytes * count), mode, samples=False
    )
    values = operands[len(operands) - count :]
    image.writes(address, values, inside)
    for index, value in enumerate(values):
        _put(image, address + index * ctype.bytes, value, inside)


def write_samples(image: Image, operands: Sequence[Value], geometry: str, count: int, mode: str) -> None:
    """Convert the last ``count`` operands to the format and store them as components of a sample."""
    bits, kind = image.field("bits"), image.field("kind")
    address, inside = _locate(image, operands, geometry, image.field("texel"), mode, samples=True)
    for channel, value in enumerate(operands[len(operands) - count :]):
        there = inside & image.field("channels").compare("gt", channel)
        raw = value.bits(U32)
        most = (bits.constant(1, U32) << (bits - kind)) - 1
        unsigned = minimum(raw, most)
        top = (most & 0x7FFFFFFF).bits(S32)
        signed = maximum(minimum(raw.bits(S32), top), -top - 1).bits(U32)
        half = raw.bits(F32).convert(F16).bits(U16).convert(U32)
        real = select(bits.compare("eq", 16), half, raw)
        word = select(kind.compare("eq", SIGNED), signed, select(kind.compare("eq", FLOAT), real, unsigned))
        at = address + (bits >> 3).convert(U64) * channel
        for width in (8, 16, 32):
            part = word.convert(scalar_type(f"u{width}")).bits(scalar_type(f"b{width}"))
            chosen = there & bits.compare("eq", width)
            image.writes(at, [part], chosen)
            image.store(at, part, chosen)


def reduce_surface(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    ctype: ScalarType,
    op: str,
    mode: str,
    *,
    samples: bool,
) -> None:
    """Memory becomes ``memory op value``. Samples are compared as signed or unsigned, by their format."""
    value = operands[-1]
    size = _size(image, ctype.bytes)
    address, inside = _locate(image, operands, geometry, size, mode, samples=samples)
    if samples:
        fits = image.field("texel").compare("eq", ctype.bytes)
        image.refuse(inside & ~fits)
        inside = inside & fits
        signed = image.is_("kind", SIGNED)
        image.change(address, value.bits(scalar_type(f"s{ctype.bits}")), op, inside & signed)
        image.change(address, value.bits(scalar_type(f"u{ctype.bits}")), op, inside & ~signed)
    else:
        image.change(address, value.bits(ctype), op, inside)
