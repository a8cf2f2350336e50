"""Texture fetches at a coordinate: nearest or filtered texels, of one level of detail or of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..primitives import Value, maximum, minimum, select
from ..types import ScalarType, scalar_type
from .coordinates import Axis, axes_of, on_face
from .image import TEXTURE, Image, Level, shape_of
from .texels import channel_of, converted, texel_address

__all__ = ["gather_texels", "gradient_level", "sample"]

U32, S32, B32, F32, F64 = (scalar_type(name) for name in ("u32", "s32", "b32", "f32", "f64"))


def sample(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    dtype: ScalarType,
    ctype: ScalarType,
    level: Value | None = None,
) -> tuple[Value, ...]:
    """The four components at a coordinate, with nearest or linear filtering (integer coordinates select texels), at a level of detail
    (s32 for integer coordinates, otherwise f32)."""
    image.expect(TEXTURE, geometry)

    def of_level(of: Image) -> Sequence[Value]:
        return _sampled(of, operands, geometry, integer=ctype == S32)

    if level is None:
        return converted(image, of_level(image), dtype)
    several = image.field("levels").compare("gt", 1)
    channels = image.either(
        several, lambda: _mipmapped(image, level, several, of_level), lambda: of_level(image)
    )
    return converted(image, channels, dtype)


def _mipmapped(
    image: Image, level: Value, several: Value, fetched: Callable[[Image], Sequence[Value]]
) -> Sequence[Value]:
    """Fetch from the requested level of detail, or from two with the weights of a linear filter."""
    last = maximum(image.field("levels"), 1) - 1
    if level.type == S32:
        return fetched(Level(image, maximum(minimum(level, last.bits(S32)), 0).bits(U32)))
    bias, least, most = (
        image.field(f"level_{name}").bits(B32).bits(F32) for name in ("bias", "least", "most")
    )
    wanted = maximum(minimum(level.bits(F32) + bias, most), least)
    wanted = maximum(minimum(wanted, last.convert(F32)), 0.0)
    between = image.field("level_filter").compare("ne", 0)
    # the lower of two levels at equal distance: 0.5 selects level 0
    nearest = (wanted - 0.5).convert(S32, "rpi")
    below = wanted.convert(S32, "rmi")
    weight = ((wanted - below.convert(F32)) * 256.0).convert(U32, "rni")
    first = fetched(Level(image, maximum(select(between, below, nearest), 0).bits(U32)))

    def mixed() -> Sequence[Value]:
        above = minimum(below.bits(U32) + 1, last)
        second = fetched(Level(image, above))
        part = weight.convert(F64) * 2.0**-8
        rest = (weight.constant(256, U32) - weight).convert(F64) * 2.0**-8
        sums = [
            (one.bits(F32).convert(F64) * rest + other.bits(F32).convert(F64) * part).convert(F32, "rn")
            for one, other in zip(first, second)
        ]
        return [select(between, total.bits(B32), one) for total, one in zip(sums, first)]

    return image.either(several & between & weight.compare("ne", 0), mixed, lambda: first)


def gradient_level(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    gradients: Sequence[Sequence[Value]],
    log2: Callable[[Value], Value],
) -> Value:
    """The level of detail at which a step of the larger gradient is about one texel."""
    layered, dimensions, cube = shape_of(geometry)
    sizes = [image.field(name).convert(F32) for name in ("width", "height", "depth")[:dimensions]]
    normalized = image.field("normalized_coords").compare("ne", 0)
    longest: Value | None = None
    for gradient in gradients:
        steps = [value.bits(F32) for value in gradient[: 3 if cube else dimensions]]
        if cube:
            direction = [value.bits(F32) for value in operands[layered : layered + 3]]
            _, (s, t, m) = on_face(direction, direction)
            _, (along_s, along_t, away) = on_face(direction, steps)
            steps = [
                (step - place.div(m) * away).div(m) * 0.5 for place, step in ((s, along_s), (t, along_t))
            ]
        squares = [
            select(normalized, step * size, step) if not cube else step * size
            for step, size in zip(steps, sizes)
        ]
        total = squares[0] * squares[0]
        for part in squares[1:]:
            total = total + part * part
        longest = total if longest is None else maximum(longest, total)
    assert longest is not None
    return log2(longest) * 0.5


def _sampled(image: Image, operands: Sequence[Value], geometry: str, *, integer: bool) -> Sequence[Value]:
    """The four components (b32) at a coordinate of one level."""
    axes, layer = axes_of(image, operands, geometry, integer=integer)
    linear = image.field("filter_mode").compare("ne", 0)

    def nearest() -> list[Value]:
        address, border = texel_address(image, layer, [axis.texel(axis.nearest) for axis in axes])
        image.reads(address, image.field("texel"), ~border if integer else ~(border | linear))
        return [channel_of(image, address, border, number) for number in range(4)]

    if integer:
        return nearest()

    def filtered() -> list[Value]:
        return [
            select(linear, far, near) for far, near in zip(_filter(image, axes, layer, linear), nearest())
        ]

    return image.either(linear, filtered, nearest)


def _filter(image: Image, axes: Sequence[Axis], layer: Value, linear: Value) -> list[Value]:
    """The weighted mean of the 2, 4 or 8 texels around the coordinates. ``linear``: lanes that filter linearly."""
    pairs = [axis.pair() for axis in axes]
    totals: list[Value] = []
    for corner in range(1 << len(axes)):
        sides = [corner >> index & 1 for index in range(len(axes))]
        weight = None
        for axis, side in zip(axes, sides):
            own = axis.weight if side else axis.weight.constant(256, U32) - axis.weight
            weight = own if weight is None else weight * own
        assert weight is not None
        part = weight.convert(F64) * (2.0 ** (-8 * len(axes)))
        address, border = texel_address(image, layer, [pair[side] for pair, side in zip(pairs, sides)])
        image.reads(address, image.field("texel"), linear & ~border & weight.compare("ne", 0))
        for number in range(4):
            term = channel_of(image, address, border, number).bits(F32).convert(F64) * part
            if corner:
                totals[number] = totals[number] + term
            else:
                totals.append(term)
    return [total.convert(F32, "rn").bits(B32) for total in totals]


def gather_texels(
    image: Image, operands: Sequence[Value], geometry: str, component: int, dtype: ScalarType
) -> tuple[Value, ...]:
    """One component of the four texels that a linear filter would read, counter-clockwise from the lower left."""
    image.expect(TEXTURE, geometry)
    axes, layer = axes_of(image, operands, geometry, integer=False)
    across, down = (axis.pair() for axis in axes)
    texels = []
    for x, y in ((0, 1), (1, 1), (1, 0), (0, 0)):
        address, border = texel_address(image, layer, [across[x], down[y]])
        image.reads(address, image.field("texel"), ~border)
        texels.append(channel_of(image, address, border, component).bits(dtype))
    return tuple(texels)
