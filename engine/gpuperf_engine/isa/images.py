"""Textures and surfaces: how coordinates become texels, and texels values.

Sources: CUDA C++ Programming Guide, "Texture Fetching" (nearest and linear filtering, address modes) and "Surface Functions"; PTX
manual, "Texture Instructions" and "Surface Instructions". What they leave open is decided here:

- the 8 bits of fraction of a filter weight are rounded to nearest even; the weighted sum is made in double precision, first along x,
  and rounded once to f32;
- address modes act on texels, so that filtering at an edge takes the edge texel twice (clamp), the opposite one (wrap), or the border;
- components that a format lacks are 0, the fourth 1;
- what ``sust.p`` stores is limited to the range of the format;
- filtering stays within the face of a cube map, where address modes hold as in any layer;
- the nearest level of detail is the lower one of two that are equally far; between two levels the weight has 8 bits of fraction too,
  and each level's value is rounded to f32 before.

An image is described by a row of 32-bit words (``FIELDS``) that its handle leads to; semantics are written on the values of all lanes,
which may have different images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from .primitives import Value, maximum, minimum, select, split
from .types import ScalarType, scalar_type

__all__ = [
    "ADDRESS_MODES",
    "FACES",
    "FIELDS",
    "ROW_WORDS",
    "SURFACE",
    "TEXTURE",
    "Image",
    "gather_texels",
    "gradient_level",
    "is_kind",
    "query",
    "query_level",
    "read_surface",
    "reduce_surface",
    "sample",
    "write_samples",
    "write_surface",
]

U16, U32, U64, S32 = (scalar_type(name) for name in ("u16", "u32", "u64", "s32"))
B32, F16, F32, F64 = (scalar_type(name) for name in ("b32", "f16", "f32", "f64"))

ROW_WORDS = 64
#: where each property lies in the row of an image, in words; those named ``…_low`` have their upper half behind them. ``layers`` are
#: apart by ``slice`` bytes, like the planes of a three-dimensional image; of a ``cube`` each face is one. Of ``levels`` of detail the
#: first has this row, and the rows of the others are behind it. What is chosen is ``level_bias`` + the level asked for, from
#: ``level_least`` to ``level_most`` (f32).
FIELDS = {
    name: index
    for index, name in enumerate(
        (
            "object", "base_low", "base_high", "width", "height", "depth", "layers", "row", "slice_low", "slice_high",
            "texel", "channels", "bits", "kind", "normalized_read", "normalized_coords", "filter_mode", "addr_mode_0",
            "addr_mode_1", "addr_mode_2", "channel_data_type", "channel_order", "dimensions", "layered", "border_0",
            "border_1", "border_2", "border_3", "zero_outside", "cube", "levels", "level_filter", "level_bias", "level_least",
            "level_most",
        )
    )
}  # fmt: skip
#: ``object``: 0 is none
TEXTURE, SURFACE = 1, 2
#: ``kind`` of a channel
UNSIGNED, SIGNED, FLOAT = 0, 1, 2
#: faces of a cube
FACES = 6
#: PTX manual, "Texture, Sampler, and Surface Types"
ADDRESS_MODES = {"wrap": 0, "mirror": 1, "clamp": 3, "border": 4}


class Image(ABC):
    """What a handle leads to, in each lane. Lanes without such an image have 0 in all fields, and read 0."""

    @abstractmethod
    def word(self, index: int) -> Value:
        """A word of the row, u32."""

    @abstractmethod
    def word_behind(self, index: int, rows: Value) -> Value:
        """A word of the row that is so many rows (u32) behind."""

    @abstractmethod
    def load(self, address: Value, where: Value) -> Value:
        """The aligned 32-bit words at device addresses, 0 where the predicate does not hold."""

    def reads(self, address: Value, size: Value, where: Value) -> None:
        """An access reads so many bytes (u32) at device addresses: those that ``load`` takes for it may be more."""
        return

    def writes(self, address: Value, values: Sequence[Value], where: Value) -> None:
        """An access is about to store values of one type side by side at device addresses, by one ``store`` or several."""
        return

    @abstractmethod
    def store(self, address: Value, value: Value, where: Value) -> None:
        """Store values at addresses aligned to their size; of equal ones the highest lane's stays."""

    @abstractmethod
    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        """Memory becomes ``memory op value``, lane after lane, at any addresses, of which those that differ do not overlap.
        ``op``: add min max and or, by the value's type."""

    @abstractmethod
    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        """What ``yes`` gives if the predicate holds in any running lane, else what ``no`` gives."""

    @abstractmethod
    def refuse(self, where: Value) -> None:
        """It is an error if the predicate holds in a running lane."""

    def field(self, name: str) -> Value:
        """A property: u32, or u64 of those with two words."""
        if f"{name}_low" not in FIELDS:
            return self.word(FIELDS[name])
        low, high = (self.word(FIELDS[f"{name}_{part}"]).convert(U64) for part in ("low", "high"))
        return low | (high << 32)

    def is_(self, name: str, value: int) -> Value:
        """Whether a property has a value."""
        return self.field(name).compare("eq", value)

    def expect(self, kind: int, geometry: str) -> None:
        """It is an error if this is not an image of that kind and geometry (``1d`` … ``a2d``)."""
        layered, dimensions, cube = _shape(geometry)
        wrong = self.field("object").compare("ne", kind)
        for name, wanted in (("dimensions", dimensions), ("layered", int(layered)), ("cube", int(cube))):
            # the faces of a cube map are layers of a surface
            if name != "cube" or kind == TEXTURE:
                wrong = wrong | self.field(name).compare("ne", wanted)
        self.refuse(wrong)


class _Level(Image):
    """An image of which what is fetched lies in the level of detail of each lane (u32)."""

    def __init__(self, image: Image, level: Value) -> None:
        self.image, self.level = image, level
        self.words: dict[int, Value] = {}

    def word(self, index: int) -> Value:
        if index not in self.words:
            self.words[index] = self.image.word_behind(index, self.level)
        return self.words[index]

    def word_behind(self, index: int, rows: Value) -> Value:
        return self.image.word_behind(index, self.level + rows)

    def load(self, address: Value, where: Value) -> Value:
        return self.image.load(address, where)

    def reads(self, address: Value, size: Value, where: Value) -> None:
        self.image.reads(address, size, where)

    def store(self, address: Value, value: Value, where: Value) -> None:
        self.image.store(address, value, where)

    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        self.image.change(address, value, op, where)

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        # what is known in one of the two is not there behind them
        known = dict(self.words)

        def forgetting(make: Callable[[], Sequence[Value]]) -> Callable[[], Sequence[Value]]:
            def made() -> Sequence[Value]:
                self.words = dict(known)
                return make()

            return made

        chosen = self.image.either(condition, forgetting(yes), forgetting(no))
        self.words = known
        return chosen

    def refuse(self, where: Value) -> None:
        self.image.refuse(where)


def _shape(geometry: str) -> tuple[bool, int, bool]:
    """Whether a geometry (``2d``, ``acube``) has layers, its dimensions, and whether it is a cube."""
    layered, cube = geometry.startswith("a"), geometry.endswith("cube")
    return layered, 2 if cube else int(geometry.removeprefix("a")[0]), cube


class _Axis:
    """One coordinate of a texture: the texel at it (``first``) or the two around it with the weight of the second in 1/256."""

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
        """An index within the image (u32), and whether the border is meant instead."""
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


def _axes(
    image: Image, operands: Sequence[Value], geometry: str, *, integer: bool
) -> tuple[list[_Axis], Value]:
    """The coordinates, and the address of the layer that they lie in."""
    layered, dimensions, cube = _shape(geometry)
    kind = S32 if integer else F32
    given = [value.bits(kind) for value in operands[layered : layered + (3 if cube else dimensions)]]
    address, layer = image.field("base"), None
    if layered:
        layer = minimum(operands[0].bits(U32), image.field("layers") - 1)
    if cube:
        face, *given = _face(given)
        layer = face if layer is None else minimum(layer * FACES, image.field("layers") - FACES) + face
    axes = [_Axis(image, index, value, integer=integer, cube=cube) for index, value in enumerate(given)]
    if layer is not None:
        address = address + layer.convert(U64) * image.field("slice")
    return axes, address


def _face(direction: Sequence[Value]) -> tuple[Value, Value, Value]:
    """The face that a direction leads to, and where on it, from 0 to 1 (guide: "Cubemap Textures")."""
    face, (s, t, m) = _on_face(direction, direction)
    return face, (s.div(m) + 1.0) * 0.5, (t.div(m) + 1.0) * 0.5


def _on_face(direction: Sequence[Value], vector: Sequence[Value]) -> tuple[Value, list[Value]]:
    """The face that a direction leads to, and another vector along its two axes and away from the centre: s, t and m of the guide."""
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


def _place(image: Image, layer: Value, texels: Sequence[tuple[Value, Value]]) -> tuple[Value, Value]:
    """The address of a texel, and whether the border is meant."""
    steps = (image.field("texel").convert(U64), image.field("row").convert(U64), image.field("slice"))
    address, border = layer, texels[0][1]
    for (index, beyond), step in zip(texels, steps):
        address, border = address + index.convert(U64) * step, border | beyond
    return address, border


def _is_float(image: Image) -> Value:
    """Whether fetched values are f32: floating-point formats, and integers that are read normalized."""
    return image.is_("kind", FLOAT) | image.field("normalized_read").compare("ne", 0)


def _channel(image: Image, address: Value, border: Value, number: int) -> Value:
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


def _result(image: Image, channels: Sequence[Value], dtype: ScalarType) -> tuple[Value, ...]:
    """Components in the type of the destination."""
    if dtype.bits == 32 and dtype.lanes == 1:
        return tuple(value.bits(dtype) for value in channels)
    halves = [value.bits(F32).convert(F16) for value in channels]
    if dtype.lanes == 1:
        return tuple(halves)
    words = [value.bits(U16).convert(U32) for value in halves]
    return tuple((words[i] | (words[i + 1] << 16)).bits(dtype) for i in (0, 2))


def sample(
    image: Image,
    operands: Sequence[Value],
    geometry: str,
    dtype: ScalarType,
    ctype: ScalarType,
    level: Value | None = None,
) -> tuple[Value, ...]:
    """The four components at a coordinate, by nearest or linear filtering (integer coordinates are texels), of a level of detail
    (s32 where coordinates are, else f32)."""
    image.expect(TEXTURE, geometry)

    def of_level(of: Image) -> Sequence[Value]:
        return _sampled(of, operands, geometry, integer=ctype == S32)

    if level is None:
        return _result(image, of_level(image), dtype)
    several = image.field("levels").compare("gt", 1)
    channels = image.either(
        several, lambda: _mipmapped(image, level, several, of_level), lambda: of_level(image)
    )
    return _result(image, channels, dtype)


def _mipmapped(
    image: Image, level: Value, several: Value, fetched: Callable[[Image], Sequence[Value]]
) -> Sequence[Value]:
    """What is fetched of the level of detail that is asked for, or of two with the weights of a linear filter."""
    last = maximum(image.field("levels"), 1) - 1
    if level.type == S32:
        return fetched(_Level(image, maximum(minimum(level, last.bits(S32)), 0).bits(U32)))
    bias, least, most = (
        image.field(f"level_{name}").bits(B32).bits(F32) for name in ("bias", "least", "most")
    )
    wanted = maximum(minimum(level.bits(F32) + bias, most), least)
    wanted = maximum(minimum(wanted, last.convert(F32)), 0.0)
    between = image.field("level_filter").compare("ne", 0)
    # the lower level of two that are equally far: 0.5 is nearest to 0
    nearest = (wanted - 0.5).convert(S32, "rpi")
    below = wanted.convert(S32, "rmi")
    weight = ((wanted - below.convert(F32)) * 256.0).convert(U32, "rni")
    first = fetched(_Level(image, maximum(select(between, below, nearest), 0).bits(U32)))

    def mixed() -> Sequence[Value]:
        above = minimum(below.bits(U32) + 1, last)
        second = fetched(_Level(image, above))
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
    """The level of detail in which a step of either gradient is about one texel."""
    layered, dimensions, cube = _shape(geometry)
    sizes = [image.field(name).convert(F32) for name in ("width", "height", "depth")[:dimensions]]
    normalized = image.field("normalized_coords").compare("ne", 0)
    longest: Value | None = None
    for gradient in gradients:
        steps = [value.bits(F32) for value in gradient[: 3 if cube else dimensions]]
        if cube:
            direction = [value.bits(F32) for value in operands[layered : layered + 3]]
            _, (s, t, m) = _on_face(direction, direction)
            _, (along_s, along_t, away) = _on_face(direction, steps)
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
    axes, layer = _axes(image, operands, geometry, integer=integer)
    linear = image.field("filter_mode").compare("ne", 0)

    def nearest() -> list[Value]:
        address, border = _place(image, layer, [axis.texel(axis.nearest) for axis in axes])
        image.reads(address, image.field("texel"), ~border if integer else ~(border | linear))
        return [_channel(image, address, border, number) for number in range(4)]

    if integer:
        return nearest()

    def filtered() -> list[Value]:
        return [
            select(linear, far, near) for far, near in zip(_filter(image, axes, layer, linear), nearest())
        ]

    return image.either(linear, filtered, nearest)


def _filter(image: Image, axes: Sequence[_Axis], layer: Value, linear: Value) -> list[Value]:
    """The weighted mean of the 2, 4 or 8 texels around the coordinates. ``linear``: where it is asked for."""
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
        address, border = _place(image, layer, [pair[side] for pair, side in zip(pairs, sides)])
        image.reads(address, image.field("texel"), linear & ~border & weight.compare("ne", 0))
        for number in range(4):
            term = _channel(image, address, border, number).bits(F32).convert(F64) * part
            if corner:
                totals[number] = totals[number] + term
            else:
                totals.append(term)
    return [total.convert(F32, "rn").bits(B32) for total in totals]


def gather_texels(
    image: Image, operands: Sequence[Value], geometry: str, component: int, dtype: ScalarType
) -> tuple[Value, ...]:
    """One component of the four texels that a linear filter would take, counter-clockwise from the lower left."""
    image.expect(TEXTURE, geometry)
    axes, layer = _axes(image, operands, geometry, integer=False)
    across, down = (axis.pair() for axis in axes)
    texels = []
    for x, y in ((0, 1), (1, 1), (1, 0), (0, 0)):
        address, border = _place(image, layer, [across[x], down[y]])
        image.reads(address, image.field("texel"), ~border)
        texels.append(_channel(image, address, border, component).bits(dtype))
    return tuple(texels)


def query(image: Image, name: str) -> Value:
    """A property of a texture, its sampler, or a surface."""
    image.refuse(image.is_("object", 0))
    if name == "num_mipmap_levels":
        return maximum(image.field("levels"), 1).bits(B32)
    if name == "num_samples":
        return image.field("width").constant(1, U32).bits(B32)
    if name in ("force_unnormalized_coords", "memory_layout"):
        return image.field("width").constant(0, U32).bits(B32)
    return image.field({"array_size": "layers"}.get(name, name)).bits(B32)


def query_level(image: Image, name: str, level: Value) -> Value:
    """The size of a level of detail of a texture."""
    image.refuse(image.field("object").compare("ne", TEXTURE))
    last = maximum(image.field("levels"), 1) - 1
    return _Level(image, minimum(level, last)).field(name).bits(B32)


def is_kind(image: Image, kind: int) -> Value:
    """Whether a handle is that of a texture or surface."""
    return image.is_("object", kind)


# -- surfaces --------------------------------------------------------------------------------------------------------------


def _locate(
    image: Image, operands: Sequence[Value], geometry: str, size: Value, mode: str, *, samples: bool
) -> tuple[Value, Value]:
    """The address of an access of ``size`` bytes (u32), and where it takes place. The first coordinate counts bytes, or samples."""
    image.expect(SURFACE, geometry)
    layered, dimensions, _ = _shape(geometry)
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
    """Four bytes at any address: rows of narrow texels begin anywhere."""
    shift = (address.convert(U32) & 3) << 3
    low = image.load(address & ~3, inside).bits(U32)
    high = image.load((address & ~3) + 4, inside & shift.compare("ne", 0)).bits(U32)
    return (low >> shift) | (high << (shift.constant(32, U32) - shift))


def _put(image: Image, address: Value, value: Value, inside: Value) -> None:
    """The bytes of a value to an address that is a multiple of the size of a channel only."""
    raw = value.bits(scalar_type(f"b{value.type.bits}"))
    for width in (8, 16, 32):
        # texels are whole channels: smaller pieces than one are stored as they are
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
    """Bytes of a surface as they are; 0 where nothing is read."""
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
    """Bytes of a surface become those of the last ``count`` operands."""
    address, inside = _locate(
        image, operands, geometry, _size(image, ctype.bytes * count), mode, samples=False
    )
    values = operands[len(operands) - count :]
    image.writes(address, values, inside)
    for index, value in enumerate(values):
        _put(image, address + index * ctype.bytes, value, inside)


def write_samples(image: Image, operands: Sequence[Value], geometry: str, count: int, mode: str) -> None:
    """The components of a sample become the last ``count`` operands, converted to its format."""
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
    """Memory becomes ``memory op value``. Samples are compared by the sign of their format."""
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
