"""Coordinates of textures: address modes along an axis, layers, and the faces of cubes."""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import Value, maximum, minimum, select
from ..types import scalar_type
from .image import ADDRESS_MODES, FACES, Image, shape_of

__all__ = ["OFFSETS", "Axis", "axes_of", "on_face"]

#: the smallest and the largest offset of a coordinate (PTX manual, tex)
OFFSETS = -8, 7

U32, U64, S32, F32 = (scalar_type(name) for name in ("u32", "u64", "s32", "f32"))


class Axis:
    """One coordinate of a texture: the texel at the coordinate (``first``), or the two around it, with the weight of the second in
    1/256. ``offset`` (s32) moves it by whole texels before the address mode applies."""

    def __init__(
        self,
        image: Image,
        number: int,
        coordinate: Value,
        *,
        integer: bool,
        cube: bool = False,
        offset: Value | None = None,
    ) -> None:
        self.size = image.field(("width", "height", "depth")[number]).bits(S32)
        self.mode = image.field(f"addr_mode_{number}")
        self.normalized = image.field("normalized_coords").compare("ne", 0)
        if cube:
            self.normalized = self.normalized | ~self.normalized
        self.offset = offset
        if integer:
            self.outside = image.field("zero_outside").compare("ne", 0)
            self.wraps = self.mirrors = self.backwards = self.normalized & ~self.normalized
            self.nearest = self._moved(coordinate.bits(S32))
            return
        self.outside = self.normalized & ~self.normalized
        self.wraps = self.normalized & self.mode.compare("eq", ADDRESS_MODES["wrap"])
        self.mirrors = self.normalized & self.mode.compare("eq", ADDRESS_MODES["mirror"])
        unit, odd = self._unit(coordinate)
        self.backwards = self.mirrors & odd
        texels = select(self.normalized, unit * self.size.convert(F32), coordinate)
        self.nearest = self._moved(texels.convert(S32, "rmi"))
        before = texels - 0.5
        corner = before.apply("round_integral", rounding="rmi")
        self.first = self._moved(corner.convert(S32, "rmi"))
        self.weight = ((before - corner) * 256.0).convert(U32, "rni")

    def _unit(self, x: Value) -> tuple[Value, Value]:
        """A normalized coordinate after wrapping or mirroring, and whether a mirrored one runs backwards there."""
        floor = x.apply("round_integral", rounding="rmi")
        fraction = x - floor
        half = floor * 0.5
        odd = half.compare("ne", half.apply("round_integral", rounding="rmi"))
        mirrored = select(odd, fraction.constant(1.0, F32) - fraction, fraction)
        wrapped = select(self.mode.compare("eq", ADDRESS_MODES["wrap"]), fraction, x)
        return select(self.mode.compare("eq", ADDRESS_MODES["mirror"]), mirrored, wrapped), odd

    def _moved(self, index: Value) -> Value:
        """An index after the offset. It is clamped first, so far outside that it stays outside and on its side."""
        if self.offset is None:
            return index
        near = maximum(minimum(index, self.size + 2 * OFFSETS[1]), 2 * OFFSETS[0])
        return near + select(self.backwards, -self.offset, self.offset)

    def _repeated(self, index: Value) -> Value:
        """An index after the address modes that repeat the image, which an offset may leave by more than a texel."""
        size = maximum(self.size, 1)
        period = select(self.mirrors, size + size, size)
        rest = index.rem(period)
        rest = select(rest.compare("lt", 0), rest + period, rest)
        rest = select(self.mirrors & rest.compare("ge", size), period - 1 - rest, rest)
        return select(self.wraps | self.mirrors, rest, index)

    def texel(self, index: Value) -> tuple[Value, Value]:
        """An index within the image (u32), and whether it is outside of it, so that the border applies."""
        last = self.size - 1
        if self.offset is not None:
            index = self._repeated(index)
        over, under = index.compare("gt", last), index.compare("lt", 0)
        border = (over | under) & (self.outside | self.mode.compare("eq", ADDRESS_MODES["border"]))
        around = select(under, last, index.constant(0, S32))
        clamped = maximum(minimum(index, last), 0)
        return select(self.wraps & (over | under), around, clamped).bits(U32), border

    def pair(self) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        """The two texels around the coordinate."""
        first = self.first if self.offset is not None else maximum(minimum(self.first, self.size), -2)
        return self.texel(first), self.texel(first + 1)


def axes_of(
    image: Image, operands: Sequence[Value], geometry: str, *, integer: bool, offsets: Sequence[Value] = ()
) -> tuple[list[Axis], Value]:
    """The coordinates, and the address of the layer that they select. ``offsets``: those of the coordinates (s32), if any."""
    layered, dimensions, cube = shape_of(geometry)
    kind = S32 if integer else F32
    given = [value.bits(kind) for value in operands[layered : layered + (3 if cube else dimensions)]]
    address, layer = image.field("base"), None
    if layered:
        layer = minimum(operands[0].bits(U32), image.field("layers") - 1)
    if cube:
        face, *given = _face(given)
        layer = face if layer is None else minimum(layer * FACES, image.field("layers") - FACES) + face
    axes = [
        Axis(image, index, value, integer=integer, cube=cube, offset=offsets[index] if offsets else None)
        for index, value in enumerate(given)
    ]
    if layer is not None:
        address = address + layer.convert(U64) * image.field("slice")
    return axes, address


def _face(direction: Sequence[Value]) -> tuple[Value, Value, Value]:
    """The face that a direction selects, and the coordinates on it, from 0 to 1 (guide: "Cubemap Textures")."""
    face, (s, t, m) = on_face(direction, direction)
    return face, (s.div(m) + 1.0) * 0.5, (t.div(m) + 1.0) * 0.5


def on_face(direction: Sequence[Value], vector: Sequence[Value]) -> tuple[Value, list[Value]]:
    """The face that a direction selects, and the coordinates of another vector along the two axes of the face and its normal: s, t
    and m of the guide."""
    x, y, z = (abs(component) for component in direction)
    along_x = x.compare("ge", y) & x.compare("ge", z)
    along_y = ~along_x & y.compare("ge", z)
    negative = [component.compare("lt", 0.0) for component in direction]
    a, b, c = vector
    by_axis = (
        (along_x, negative[0], (select(negative[0], c, -c), -b, select(negative[0], -a, a)), 0),
        (along_y, negative[1], (a, select(negative[1], -c, c), select(negative[1], -b, b)), 2),
    )
    chosen: list[Value] = [select(negative[2], -a, a), -b, select(negative[2], -c, c)]
    face = select(negative[2], x.constant(5, U32), x.constant(4, U32))
    for along, below, parts, first in by_axis:
        chosen = [select(along, part, other) for part, other in zip(parts, chosen)]
        face = select(along, select(below, x.constant(first + 1, U32), x.constant(first, U32)), face)
    return face, chosen
