"""Coordinates of textures: address modes along an axis, layers, and the faces of cubes."""

from __future__ import annotations

from collections.abc import Sequence

from ..primitives import Value, maximum, minimum, select
from ..types import scalar_type
from .image import ADDRESS_MODES, FACES, Image, shape_of

__all__ = ["Axis", "axes_of", "on_face"]

U32, U64, S32, F32 = (scalar_type(name) for name in ("u32", "u64", "s32", "f32"))


class Axis:
    """One coordinate of a texture: the texel at the coordinate (``first``), or the two around it, with the weight of the second in
    1/256."""

    def __init__(
        self, image: Image, number: int, coordinate: Value, *, integer: bool, cube: bool = False
    ) -> None:
        self.size = image.field(("width", "height", "depth")[number]).bits(S32)
        self.mode = image.field(f"addr_mode_{number}")
        self.normalized = image.field("normalized_coords").compare("ne", 0)
        if cube:
            self.normalized = self.normalized | ~self.normalized
        if integer:
            self.outside = image.field("zero_outside").compare("ne", 0)
            self.nearest = coordinate.bits(S32)
            self.wraps = self.normalized & ~self.normalized
            return
        self.outside = self.normalized & ~self.normalized
        self.wraps = self.normalized & self.mode.compare("eq", ADDRESS_MODES["wrap"])
        texels = select(self.normalized, self._unit(coordinate) * self.size.convert(F32), coordinate)
        self.nearest = texels.convert(S32, "rmi")
        before = texels - 0.5
        corner = before.apply("round_integral", rounding="rmi")
        self.first = corner.convert(S32, "rmi")
        self.weight = ((before - corner) * 256.0).convert(U32, "rni")

    def _unit(self, x: Value) -> Value:
        """A normalized coordinate after wrapping or mirroring."""
        floor = x.apply("round_integral", rounding="rmi")
        fraction = x - floor
        half = floor * 0.5
        odd = half.compare("ne", half.apply("round_integral", rounding="rmi"))
        mirrored = select(odd, fraction.constant(1.0, F32) - fraction, fraction)
        wrapped = select(self.mode.compare("eq", ADDRESS_MODES["wrap"]), fraction, x)
        return select(self.mode.compare("eq", ADDRESS_MODES["mirror"]), mirrored, wrapped)

    def texel(self, index: Value) -> tuple[Value, Value]:
        """An index within the image (u32), and whether it is outside of it, so that the border applies."""
        last = self.size - 1
        over, under = index.compare("gt", last), index.compare("lt", 0)
        border = (over | under) & (self.outside | self.mode.compare("eq", ADDRESS_MODES["border"]))
        around = select(under, last, index.constant(0, S32))
        clamped = maximum(minimum(index, last), 0)
        return select(self.wraps & (over | under), around, clamped).bits(U32), border

    def pair(self) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        """The two texels around the coordinate."""
        first = maximum(minimum(self.first, self.size), -2)
        return self.texel(first), self.texel(first + 1)


def axes_of(
    image: Image, operands: Sequence[Value], geometry: str, *, integer: bool
) -> tuple[list[Axis], Value]:
    """The coordinates, and the address of the layer that they select."""
    layered, dimensions, cube = shape_of(geometry)
    kind = S32 if integer else F32
    given = [value.bits(kind) for value in operands[layered : layered + (3 if cube else dimensions)]]
    address, layer = image.field("base"), None
    if layered:
        layer = minimum(operands[0].bits(U32), image.field("layers") - 1)
    if cube:
        face, *given = _face(given)
        layer = face if layer is None else minimum(layer * FACES, image.field("layers") - FACES) + face
    axes = [Axis(image, index, value, integer=integer, cube=cube) for index, value in enumerate(given)]
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
