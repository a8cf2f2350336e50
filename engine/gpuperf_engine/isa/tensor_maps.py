"""The fields of tensor maps, with the numbers of ``tensormap.replace``, and errors of copies (manual: "Tensors", "Restriction
on Tensor Copy instructions"; CUDA driver API: ``cuTensorMapEncodeTiled``, ``…Im2col``, ``…Im2colWide``).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ATOMS",
    "CHANNELS_MAX",
    "ELEMENTS",
    "FIELDS",
    "FILLS",
    "HALO_LIMITS",
    "INTERLEAVES",
    "MODES",
    "OFFSET_BITS",
    "OUT_OF_BOUNDS",
    "PIXELS_MAX",
    "REDUCTIONS",
    "SWIZZLES",
    "UNSET_BITS",
    "WIDE_PIXELS",
    "W_OFFSET_LIMIT",
    "Element",
    "Field",
    "Problem",
    "explain",
    "field_word",
]


class Element(NamedTuple):
    """An element type. Copies move units of ``elements`` elements, with so many bytes each in global and in shared memory."""

    #: ``CU_TENSOR_MAP_DATA_TYPE_…`` and PTX
    driver: str
    name: str
    size: int
    held: int
    elements: int = 1
    #: the first coordinate must be a multiple of this
    start: int = 1

    @property
    def is_float(self) -> bool:
        """Whether elements out of bounds may be filled with NaN."""
        return "F" in self.driver


#: by number
ELEMENTS = (
    Element("UINT8", "u8", 1, 1),
    Element("UINT16", "u16", 2, 2),
    Element("UINT32", "u32", 4, 4),
    Element("INT32", "s32", 4, 4),
    Element("UINT64", "u64", 8, 8),
    Element("INT64", "s64", 8, 8),
    Element("FLOAT16", "f16", 2, 2),
    Element("FLOAT32", "f32", 4, 4),
    Element("FLOAT32_FTZ", "f32.ftz", 4, 4),
    Element("FLOAT64", "f64", 8, 8),
    Element("BFLOAT16", "bf16", 2, 2),
    Element("TFLOAT32", "tf32", 4, 4),
    Element("TFLOAT32_FTZ", "tf32.ftz", 4, 4),
    # a byte holds two elements, and copies move whole bytes
    Element("16U4_ALIGN8B", "b4x16", 1, 1, 2, 2),
    Element("16U4_ALIGN16B", "b4x16_p64", 8, 16, 16, 128),
    Element("16U6_ALIGN16B", "b6x16_p32", 12, 16, 16, 128),
)
#: the last one can only be set by ``tensormap.replace``, on sm_103a
SWIZZLES = ("none", "32B", "64B", "128B", "96B")
ATOMS = ("16B", "32B", "32B_FLIP_8B", "64B")
FILLS = ("zero", "nan")
INTERLEAVES = ("none", "16B", "32B")
#: by number; ``tile::gather4`` and ``tile::scatter4`` use maps for ``tile``
MODES = ("tile", "im2col", "im2col::w", "im2col::w::128")
#: limits of im2col maps
CHANNELS_MAX, PIXELS_MAX = 256, 1024
#: pixels of ``im2col::w::128``
WIDE_PIXELS = 128
#: bits of an im2col offset, and of a corner of the bounding box, by the number of axes between N and C
OFFSET_BITS = {1: 16, 2: 8, 3: 5}
#: exclusive upper bounds of wHalo and wOffset
HALO_LIMITS = {"im2col::w": 512, "im2col::w::128": 32}
W_OFFSET_LIMIT = 32
#: 16 bits of OOB-NaN, whose value the manual does not specify: that of an SM100, as reported by other simulators that were compared
#: with one
OUT_OF_BOUNDS = 0x7FF7
#: operation of ``cp.reduce.async.bulk.tensor`` → the types that it accepts
REDUCTIONS = {
    **dict.fromkeys(("and", "or", "xor"), "u32 s32 u64 s64"),
    **dict.fromkeys(("inc", "dec"), "u32"),
    **dict.fromkeys(("min", "max"), "u32 s32 u64 s64 f16 bf16"),
    "add": "u32 s32 u64 f16 f32 f32.ftz f64 bf16",
}


class Field(NamedTuple):
    """A field that ``tensormap.replace`` changes: its number of elements, and the accepted values."""

    number: int
    low: int
    high: int
    multiple: int = 1


FIELDS = {
    "global_address": Field(1, 0, (1 << 64) - 1, 16),
    "rank": Field(1, 0, 4),
    "box_dim": Field(5, 1, 256),
    "global_dim": Field(5, 1, (1 << 32) - 1),
    "global_stride": Field(4, 0, (1 << 40) - 1, 16),
    "element_stride": Field(5, 1, 8),
    "elemtype": Field(1, 0, len(ELEMENTS) - 1),
    "interleave_layout": Field(1, 0, len(INTERLEAVES) - 1),
    "swizzle_mode": Field(1, 0, len(SWIZZLES) - 1),
    "swizzle_atomicity": Field(1, 0, len(ATOMS) - 1),
    "fill_mode": Field(1, 0, len(FILLS) - 1),
}

#: fields for which 0 is not a valid value, with their bit in the set of fields that a map, initialised with zeros, still lacks. A zero
#: in other fields is valid: rank 1, elements .u8 (Triton's ``TMAToLLVM.cpp`` since 840081d4 sets no field to 0)
UNSET_BITS = {
    "global_address": 0,
    "box_dim": 1,
    "global_dim": 6,
    "element_stride": 11,
    "global_stride": 16,
}


def field_word(name: str, ordinal: int = 0) -> int:
    """A field in one number, for messages."""
    return list(FIELDS).index(name) << 8 | ordinal


class Problem:
    """Errors of tensor copies and ``tensormap.replace``, numbered after those of ``isa.mbarriers``."""

    FIRST = 32
    NO_MAP = 32
    RANK = 33
    MODE = 34
    LINE = 35
    OPERATION = 36
    ROWS = 37
    BOX = 38
    PADDED_STORE = 39
    FLIPPED = 40
    ATOM = 41
    START = 42
    NEGATIVE = 43
    CORNERS = 44
    OFFSET = 45
    BASE = 46
    VALUE = 47
    SWIZZLE_96 = 48
    AXES = 49
    SLICES = 50
    OVERRIDE = 51
    UNSET = 52


def explain(problem: int, word: int, amount: int) -> tuple[str, str]:
    """The message and the hint of an error; ``amount`` may be modulo 2^64."""
    if problem == Problem.VALUE:
        return _bad_value(word, amount)
    if problem == Problem.UNSET:
        return _not_set(word)
    amount -= (amount >> 63 == 1) << 64
    if problem == Problem.OVERRIDE:
        return _bad_override(word, amount)
    if problem == Problem.ROWS:
        what = (
            f"four rows, with a box of {amount} rows" if word == 0 else "four rows of an interleaved tensor"
        )
        return what, "gather4 and scatter4 take a map whose box is one row, not interleaved"
    what, remedy = _TEXTS.get(problem, _OUTSIDE)
    mode = MODES[amount] if 0 <= amount < len(MODES) else ""
    element = ELEMENTS[amount].name if 0 <= amount < len(ELEMENTS) else ""
    return what.format(amount=amount, word=word, mode=mode, element=element), remedy.format(word=word)


_OUTSIDE = (
    "coordinate {word} is {amount:,}, outside of the bounding box",
    "im2col copies begin in the bounding box of the map (im2col::w: before its end)",
)
_TEXTS = {
    Problem.NO_MAP: (
        "there is not a tensor map",
        "pass a TensorMap for the parameter, or copy bytes(map) to device memory",
    ),
    Problem.RANK: (
        "the tensor map has {amount} axes",
        "the instruction must name as many dimensions as the map has",
    ),
    Problem.MODE: (
        "the tensor map is one for {mode!r}",
        "TensorMap(…) creates maps for tiles, TensorMap.im2col and TensorMap.im2col_wide those for im2col",
    ),
    Problem.AXES: ("an interleaved tensor of {amount} axes", "interleaved tensors have 3 to 5"),
    Problem.SLICES: (
        "an interleaved tensor of elements of type .{element}",
        "padded elements cannot be interleaved",
    ),
    Problem.LINE: (
        "the address in shared memory is not a multiple of 128",
        "align the memory of tensor copies to 128 bytes",
    ),
    Problem.OPERATION: (
        "no such operation on elements of type .{element}",
        "see cp.reduce.async.bulk.tensor in the PTX manual",
    ),
    Problem.BOX: (
        "the box has {amount} bytes along the last axis",
        "they must be a positive multiple of 16",
    ),
    Problem.PADDED_STORE: (
        "a store of elements of type .{element}",
        "they can only be loaded; .b4x16 can be loaded and stored",
    ),
    Problem.FLIPPED: (
        "swizzle 128B with atomicity 32B_FLIP_8B",
        "it is for loads only, of elements that are not padded",
    ),
    Problem.ATOM: (
        "a load of elements of type .{element} with atomicity 64B",
        "elements that are padded are loaded with atomicity 16B or 32B",
    ),
    Problem.START: (
        "the first coordinate is {amount:,}",
        "for elements of this type it is a multiple of {word}",
    ),
    Problem.NEGATIVE: (
        "coordinate {word} of the store is {amount:,}",
        "stores and reductions begin at coordinates that are not negative",
    ),
    Problem.CORNERS: (
        "corner {amount} of the bounding box lies outside of the tensor",
        "maps for stores have lower corners of at least 0 and upper corners of at most 0",
    ),
    Problem.OFFSET: ("an im2col offset or halo of {amount:,}", "here it is less than {word:,}"),
    Problem.SWIZZLE_96: (
        "swizzle 96B, with {amount} bytes along the last axis",
        "it takes at most 96, atomicity 16B, no interleave, elements that are not padded, and not im2col::w::128",
    ),
}


def _bad_override(word: int, amount: int) -> tuple[str, str]:
    """``word``: 0 for the address, 1 + axis for a coordinate, 16 + axis for a size."""
    if word == 0:
        return f"the tensor is to begin at {amount:#x}", "override::global_address takes multiples of 16"
    if word < 16:
        return f"coordinate {word - 1} is {amount}", "copies that override sizes and strides begin at 0"
    return f"axis {word - 16} is to have no elements", "override::global_dim takes sizes from 1 to 255"


def _not_set(word: int) -> tuple[str, str]:
    name, field = list(FIELDS.items())[word >> 8]
    which = f"{name} {word & 255}" if field.number > 1 else name
    return (
        f"the tensor map has no {which} yet",
        f"it began as 128 zero bytes: set the field before the copy, with tensormap.replace.tile.{name}",
    )


def _bad_value(word: int, amount: int) -> tuple[str, str]:
    index, ordinal = word >> 8, word & 255
    name, field = list(FIELDS.items())[index]
    if ordinal >= field.number:
        return f"there is no {name} {ordinal}", f"tensor maps have {field.number} of them"
    several = f", a multiple of {field.multiple}" if field.multiple > 1 else ""
    return f"{name} {amount:,}", f"accepted: {field.low} to {field.high:,}{several}"
