"""Texture fetches at a coordinate: nearest or filtered texels, of one level of detail or of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..primitives import Value, maximum, minimum, select
from ..types import ScalarType, scalar_type
from .coordinates import OFFSETS, Axis, axes_of, on_face
from .image import TEXTURE, Image, Level, has_samples, shape_of
from .texels import channel_of, compared, converted, is_resident, texel_address

__all__ = ["PLAIN", "Further", "gather_texels", "gradient_level", "sample"]

U32, U64, S32, B32, F32, F64 = (scalar_type(name) for name in ("u32", "u64", "s32", "b32", "f32", "f64"))


@dataclass(frozen=True)
class Further:
    """What a fetch does beyond the plain one. ``offsets``: of the coordinates, in texels (s32); ``depth``: the value that texels of a
    depth texture are compared with (f32); ``asks``: whether the fetch says if its texels are resident."""

    offsets: Sequence[Value] = ()
    depth: Value | None = None
    asks: bool = False

    def check(self, image: Image) -> None:
        """An error for offsets that are out of range, and for a texture whose texels cannot be compared."""
        if self.depth is not None:
            image.refuse(image.is_("comparison", 0))
        least, most = OFFSETS
        for offset in self.offsets:
            image.refuse(offset.compare("lt", least) | offset.compare("gt", most))


PLAIN = Further()


def sample(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    dtype: ScalarType,
    ctype: ScalarType,
    level: Value | None = None,
    further: Further = PLAIN,
) -> tuple[Value, ...]:
    """The four components at a coordinate, with nearest or linear filtering (integer coordinates select texels), at a level of detail
    (s32 for integer coordinates, otherwise f32); if asked, then whether the texels are resident. If one is not, components are 0."""
    image.expect(TEXTURE, geometry)
    further.check(image)

    def of_level(of: Image) -> Sequence[Value]:
        return _sampled(of, operands, geometry, further, integer=ctype == S32)

    if level is None:
        return _answer(image, of_level(image), dtype)
    several = image.field("levels").compare("gt", 1)
    fetched = image.either(
        several, lambda: _mipmapped(image, level, several, of_level), lambda: of_level(image)
    )
    return _answer(image, fetched, dtype)


def _answer(image: Image, fetched: Sequence[Value], dtype: ScalarType) -> tuple[Value, ...]:
    """The destinations, from four components and, if it is asked for, whether all texels are resident (b32)."""
    channels, resident = fetched[:4], fetched[4:]
    if not resident:
        return converted(image, channels, dtype)
    there = resident[0].bits(U32).compare("ne", 0)
    present = [select(there, channel, channel.constant(0, B32)) for channel in channels]
    return *converted(image, present, dtype), there


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
    mixes = several & between & weight.compare("ne", 0)
    first = fetched(Level(image, maximum(select(between, below, nearest), 0).bits(U32)))

    def mixed() -> Sequence[Value]:
        above = minimum(below.bits(U32) + 1, last)
        second = fetched(Level(image, above))
        part = weight.convert(F64) * 2.0**-8
        rest = (weight.constant(256, U32) - weight).convert(F64) * 2.0**-8
        sums = [
            (one.bits(F32).convert(F64) * rest + other.bits(F32).convert(F64) * part).convert(F32, "rn")
            for one, other in zip(first[:4], second[:4])
        ]
        means = [total.bits(B32) for total in sums]
        both = [one & other for one, other in zip(first[4:], second[4:])]
        # the second level does not count in lanes where it has no weight, whatever other lanes do
        return [select(mixes, mean, one) for mean, one in zip([*means, *both], first)]

    return image.either(mixes, mixed, lambda: first)


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


def _sampled(
    image: Image, operands: Sequence[Value], geometry: str, further: Further, *, integer: bool
) -> Sequence[Value]:
    """The four components (b32) at a coordinate of one level, in front of which is the number of a sample if the geometry has them; if
    asked, then 1 if all their texels are resident, otherwise 0."""
    sample: Value | None = None
    if has_samples(geometry):
        sample, *operands = operands
        sample, count = sample.bits(U32), image.field("samples")
        image.refuse(sample.compare("ge", count))
        # loads of lanes that are refused stay within the image
        sample = minimum(sample, maximum(count, 1) - 1)
    axes, layer = axes_of(image, operands, geometry, integer=integer, offsets=further.offsets)
    if sample is not None:
        layer = layer + (sample * image.field("texel")).convert(U64)
    linear = image.field("filter_mode").compare("ne", 0)

    def nearest() -> list[Value]:
        address, border = texel_address(image, layer, [axis.texel(axis.nearest) for axis in axes])
        image.reads(address, image.field("texel"), ~border if integer else ~(border | linear))
        resident = [is_resident(image, address, border)] if further.asks else []
        return [*(_component(image, address, border, number, further) for number in range(4)), *resident]

    if integer:
        return nearest()

    def filtered() -> list[Value]:
        mean = _filter(image, axes, layer, linear, further)
        return [select(linear, far, near) for far, near in zip(mean, nearest())]

    return image.either(linear, filtered, nearest)


def _component(image: Image, address: Value, border: Value, number: int, further: Further) -> Value:
    """One component of a texel, or the result of its comparison (b32)."""
    value = channel_of(image, address, border, number)
    return value if further.depth is None else compared(image, further.depth, value, number)


def _filter(image: Image, axes: Sequence[Axis], layer: Value, linear: Value, further: Further) -> list[Value]:
    """The weighted mean of the 2, 4 or 8 texels around the coordinates; if asked, then 1 if those with a weight are resident, or else
    0. ``linear``: lanes that filter linearly."""
    pairs = [axis.pair() for axis in axes]
    totals: list[Value] = []
    resident: list[Value] = []
    for corner in range(1 << len(axes)):
        sides = [corner >> index & 1 for index in range(len(axes))]
        weight = None
        for axis, side in zip(axes, sides):
            own = axis.weight if side else axis.weight.constant(256, U32) - axis.weight
            weight = own if weight is None else weight * own
        assert weight is not None
        part = weight.convert(F64) * (2.0 ** (-8 * len(axes)))
        address, border = texel_address(image, layer, [pair[side] for pair, side in zip(pairs, sides)])
        counts = weight.compare("ne", 0)
        image.reads(address, image.field("texel"), linear & ~border & counts)
        if further.asks:
            resident.append(is_resident(image, address, border | ~counts))
        for number in range(4):
            term = _component(image, address, border, number, further).bits(F32).convert(F64) * part
            if corner:
                totals[number] = totals[number] + term
            else:
                totals.append(term)
    means = [total.convert(F32, "rn").bits(B32) for total in totals]
    return [*means, *([_all(resident)] if resident else [])]


def _all(resident: Sequence[Value]) -> Value:
    together = resident[0]
    for one in resident[1:]:
        together = together & one
    return together


def gather_texels(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    component: int,
    dtype: ScalarType,
    further: Further = PLAIN,
) -> tuple[Value, ...]:
    """One component of the four texels that a linear filter would read, counter-clockwise from the lower left; if asked, then whether
    they are resident."""
    image.expect(TEXTURE, geometry)
    further.check(image)
    axes, layer = axes_of(image, operands, geometry, integer=False, offsets=further.offsets)
    across, down = (axis.pair() for axis in axes)
    texels = []
    resident = []
    for x, y in ((0, 1), (1, 1), (1, 0), (0, 0)):
        address, border = texel_address(image, layer, [across[x], down[y]])
        image.reads(address, image.field("texel"), ~border)
        texels.append(_component(image, address, border, component, further))
        if further.asks:
            resident.append(is_resident(image, address, border))
    return _answer(image, [*texels, *([_all(resident)] if resident else [])], dtype)
