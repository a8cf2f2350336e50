"""The image of a texture or surface handle: its properties, its memory, and its levels of detail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..primitives import Value, maximum, minimum, select
from ..types import scalar_type

__all__ = [
    "ADDRESS_MODES",
    "COMPARISONS",
    "FACES",
    "FIELDS",
    "FLOAT",
    "ROW_WORDS",
    "SAMPLER",
    "SAMPLER_FIELDS",
    "SIGNED",
    "SURFACE",
    "TEXTURE",
    "UNSIGNED",
    "Image",
    "Level",
    "Sampled",
    "has_samples",
    "is_kind",
    "query",
    "query_level",
    "shape_of",
]

U32, U64, B32 = (scalar_type(name) for name in ("u32", "u64", "b32"))

ROW_WORDS = 64
#: position of each property in the row of an image, in words; those named ``…_low`` are followed by their upper half. ``slice``:
#: bytes from one layer to the next, like the planes of a three-dimensional image; each face of a ``cube`` is a layer. This row
#: describes the first of the ``levels`` of detail; the rows of the others follow it. The level of an access is ``level_bias`` + the
#: requested level, from ``level_least`` to ``level_most`` (f32). ``resident``: the address of a byte for each texel, 0 if it is not
#: resident; 0 if all are. ``comparison``: bits of ``COMPARISONS``, 0 if depths cannot be compared. ``samples``: of each texel, side by
#: side, 0 if the texture has no samples; ``texel``: bytes of one of them; ``step``: bytes from one texel to the next.
FIELDS = {
    name: index
    for index, name in enumerate(
        (
            "object", "base_low", "base_high", "resident_low", "resident_high", "width", "height", "depth", "layers", "row",
            "slice_low", "slice_high", "texel", "channels", "bits", "kind", "normalized_read", "normalized_coords", "filter_mode",
            "addr_mode_0", "addr_mode_1", "addr_mode_2", "channel_data_type", "channel_order", "dimensions", "layered", "border_0",
            "border_1", "border_2", "border_3", "zero_outside", "cube", "levels", "level_filter", "level_bias", "level_least",
            "level_most", "comparison", "samples", "step", "force_unnormalized_coords",
        )
    )
}  # fmt: skip
#: ``object``: 0 means no image
TEXTURE, SURFACE, SAMPLER = 1, 2, 3
#: the properties that a separate sampler has; all others are those of the texture
SAMPLER_FIELDS = ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2")
#: values of ``kind``, the kind of a channel
UNSIGNED, SIGNED, FLOAT = 0, 1, 2
#: the number of faces of a cube
FACES = 6
#: PTX manual, "Texture, Sampler, and Surface Types"
ADDRESS_MODES = {"wrap": 0, "mirror": 1, "clamp": 3, "border": 4}
LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
#: comparisons of a depth (on the left) with a texel: those outcomes that pass
COMPARISONS = {
    "less": LESS,
    "less_equal": LESS | EQUAL,
    "equal": EQUAL,
    "not_equal": LESS | GREATER | UNORDERED,
    "greater": GREATER,
    "greater_equal": GREATER | EQUAL,
}


class Image(ABC):
    """The image of each lane. Lanes without such an image have 0 in all fields, and read 0."""

    @abstractmethod
    def word(self, index: int) -> Value:
        """A word of the row, u32."""

    @abstractmethod
    def word_behind(self, index: int, rows: Value) -> Value:
        """A word of a following row; ``rows`` (u32) further."""

    @abstractmethod
    def word_of(self, handle: Value, index: int) -> Value:
        """A word of the row of another handle (u64)."""

    @abstractmethod
    def load(self, address: Value, where: Value) -> Value:
        """The aligned 32-bit words at device addresses, 0 where the predicate does not hold."""

    def reads(self, address: Value, size: Value, where: Value) -> None:
        """An access reads this many bytes (u32) at device addresses; ``load`` may read more bytes for it."""
        return

    def writes(self, address: Value, values: Sequence[Value], where: Value) -> None:
        """An access is about to store adjacent values of one type at device addresses, by one or several calls of ``store``."""
        return

    @abstractmethod
    def store(self, address: Value, value: Value, where: Value) -> None:
        """Store values at addresses aligned to their size; of several lanes at one address, the highest one's value remains."""

    @abstractmethod
    def change(self, address: Value, value: Value, op: str, where: Value) -> None:
        """Memory becomes ``memory op value``, lane after lane, at any addresses; different addresses do not overlap. ``op``: add min
        max and or, by the value's type."""

    @abstractmethod
    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        """The result of ``yes`` if the predicate holds in any active lane, otherwise that of ``no``."""

    @abstractmethod
    def refuse(self, where: Value) -> None:
        """An error if the predicate holds in an active lane."""

    def field(self, name: str) -> Value:
        """A property: u32, or u64 for a property of two words."""
        if f"{name}_low" not in FIELDS:
            return self.word(FIELDS[name])
        low, high = (self.word(FIELDS[f"{name}_{part}"]).convert(U64) for part in ("low", "high"))
        return low | (high << 32)

    def is_(self, name: str, value: int) -> Value:
        """Whether a property has a value."""
        return self.field(name).compare("eq", value)

    def expect(self, kind: int, geometry: str) -> None:
        """An error unless the handle is of an image of this kind and geometry (``1d`` … ``a2d``)."""
        layered, dimensions, cube = shape_of(geometry)
        wrong = self.field("object").compare("ne", kind)
        wrong = wrong | (self.is_("samples", 0) if has_samples(geometry) else ~self.is_("samples", 0))
        for name, wanted in (("dimensions", dimensions), ("layered", int(layered)), ("cube", int(cube))):
            # the faces of a cube map are layers of a surface
            if name != "cube" or kind == TEXTURE:
                wrong = wrong | self.field(name).compare("ne", wanted)
        self.refuse(wrong)


class _Same(Image):
    """The memory of another image, with some properties of its own."""

    def __init__(self, image: Image) -> None:
        self.image = image

    def word_of(self, handle: Value, index: int) -> Value:
        return self.image.word_of(handle, index)

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
        return self.image.either(condition, yes, no)

    def refuse(self, where: Value) -> None:
        self.image.refuse(where)


class Level(_Same):
    """An image at the level of detail of each lane (u32)."""

    def __init__(self, image: Image, level: Value) -> None:
        super().__init__(image)
        self.level = level
        self.words: dict[int, Value] = {}

    def word(self, index: int) -> Value:
        if index not in self.words:
            self.words[index] = self.image.word_behind(index, self.level)
        return self.words[index]

    def word_behind(self, index: int, rows: Value) -> Value:
        return self.image.word_behind(index, self.level + rows)

    def either(
        self, condition: Value, yes: Callable[[], Sequence[Value]], no: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        # values emitted within one of the two branches are not defined after them
        known = dict(self.words)

        def forgetting(make: Callable[[], Sequence[Value]]) -> Callable[[], Sequence[Value]]:
            def made() -> Sequence[Value]:
                self.words = dict(known)
                return make()

            return made

        chosen = self.image.either(condition, forgetting(yes), forgetting(no))
        self.words = known
        return chosen


class Sampled(_Same):
    """A texture that is read through the sampler of another handle (u64)."""

    def __init__(self, image: Image, handle: Value) -> None:
        super().__init__(image)
        image.refuse(image.word_of(handle, FIELDS["object"]).compare("ne", SAMPLER))
        self.own = {FIELDS[name]: image.word_of(handle, FIELDS[name]) for name in SAMPLER_FIELDS}
        forced = image.word_of(handle, FIELDS["force_unnormalized_coords"])
        normalized = image.field("normalized_coords")
        self.own[FIELDS["normalized_coords"]] = select(
            forced.compare("ne", 0), normalized.constant(0, U32), normalized
        )

    def word(self, index: int) -> Value:
        return self.own[index] if index in self.own else self.image.word(index)

    def word_behind(self, index: int, rows: Value) -> Value:
        return self.own[index] if index in self.own else self.image.word_behind(index, rows)


def shape_of(geometry: str) -> tuple[bool, int, bool]:
    """Whether a geometry (``2d``, ``acube``) has layers, its dimensions, and whether it is a cube."""
    layered, cube = geometry.startswith("a"), geometry.endswith("cube")
    return layered, 2 if cube else int(geometry.removeprefix("a")[0]), cube


def has_samples(geometry: str) -> bool:
    """Whether a geometry has several samples for each texel (``2dms``)."""
    return geometry.endswith("ms")


def query(image: Image, name: str) -> Value:
    """A property of a texture, its sampler, or a surface; 0 if it has no layers, levels or samples to be counted."""
    image.refuse(image.is_("object", 0))
    none = image.field("width").constant(0, U32)
    if name == "num_mipmap_levels":
        levels = image.field("levels")
        return select(levels.compare("gt", 1), levels, none).bits(B32)
    if name == "num_samples":
        return image.field("samples").bits(B32)
    if name == "array_size":
        return select(image.is_("layered", 0), none, image.field("layers")).bits(B32)
    if name == "memory_layout":
        return none.bits(B32)
    return image.field(name).bits(B32)


def query_level(image: Image, name: str, level: Value) -> Value:
    """The size of a level of detail of a texture."""
    image.refuse(image.field("object").compare("ne", TEXTURE))
    last = maximum(image.field("levels"), 1) - 1
    return Level(image, minimum(level, last)).field(name).bits(B32)


def is_kind(image: Image, kind: int) -> Value:
    """Whether a handle is of a texture, a surface or a sampler."""
    return image.is_("object", kind)
