"""Textures and surfaces of a device: creation of handles and of their rows of properties (``isa.images``)."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import wrong_type
from ..errors import LaunchError, TrapError
from ..isa.images.coordinates import OFFSETS
from ..isa.images.image import (
    ADDRESS_MODES,
    COMPARISONS,
    FACES,
    FIELDS,
    FLOAT,
    ROW_WORDS,
    SAMPLER,
    SAMPLER_FIELDS,
    SIGNED,
    SURFACE,
    TEXTURE,
    UNSIGNED,
)
from ..ptx.syntax import Instruction, Variable
from .image_rows import Images

if TYPE_CHECKING:
    from .arrays import DeviceArray

__all__ = [
    "ImageObject", "SamplerObject", "check_flags", "declared_sampler", "image_fault", "levels_of", "resident_map", "sampler_row",
    "set_resident", "surface_row", "texture_row",
]  # fmt: skip

_NUMBERS = (int, float, np.floating, np.integer)
_KINDS = {"u": UNSIGNED, "i": SIGNED, "f": FLOAT}
#: by kind and bytes: results of ``txq.channel_data_type`` for elements and for normalized reads (numbers of OpenCL, to which the PTX
#: manual refers)
_DATA_TYPES = {
    ("i", 1): (0x10D7, 0x10D0),
    ("i", 2): (0x10D8, 0x10D1),
    ("i", 4): (0x10D9, 0),
    ("u", 1): (0x10DA, 0x10D2),
    ("u", 2): (0x10DB, 0x10D3),
    ("u", 4): (0x10DC, 0),
    ("f", 2): (0x10DD, 0),
    ("f", 4): (0x10DE, 0),
}
_ORDERS = {1: 0x10B0, 2: 0x10B2, 4: 0x10B5}
_NAMES = {TEXTURE: "texture", SURFACE: "surface", SAMPLER: "sampler"}


class ImageObject:
    """A texture or surface on a device: an argument of kernels, as ``cudaTextureObject_t`` and ``cudaSurfaceObject_t`` are.
    ``handle`` is its number, for structures; ``array`` holds its texels."""

    def __init__(
        self, array: DeviceArray, row: NDArray[np.uint32], handle: int, resident: bytes = b""
    ) -> None:
        self.array = array
        self.handle = handle
        #: everything but addresses, with the maps of resident texels; equal for images that are read in the same way
        self.properties = row[FIELDS["width"] :].tobytes() + resident
        self.kind = _NAMES[int(row[FIELDS["object"]])]
        self.geometry = _geometry(row)

    def __repr__(self) -> str:
        return f"<{self.geometry} {self.kind} of {self.array!r}>"


class SamplerObject:
    """A sampler on a device, for ``.samplerref`` variables and parameters; ``handle`` is its number, ``owner`` the memory that it
    belongs to."""

    kind = "sampler"

    def __init__(self, owner: object, row: NDArray[np.uint32], handle: int) -> None:
        self.owner = owner
        self.handle = handle
        #: equal for samplers that read in the same way
        self.properties = row.tobytes()

    def __repr__(self) -> str:
        return f"<sampler {self.handle:#x}>"


def _geometry(row: NDArray[np.uint32]) -> str:
    samples = "ms" if row[FIELDS["samples"]] else ""
    extent = "cube" if row[FIELDS["cube"]] else f"{int(row[FIELDS['dimensions']])}d{samples}"
    return "a" * int(row[FIELDS["layered"]]) + extent


def _base_row(
    array: DeviceArray, channels: object, *, layered: bool, cube: bool = False, samples: int = 0
) -> NDArray[np.uint32]:
    """``samples``: how many samples each texel has, along the axis in front of the channels; 0: none, and no such axis."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    channels = _channels(array, channels)
    shape = _texels(array, channels)
    if samples:
        if shape[-1:] != (samples,):
            raise LaunchError(
                f"a texture of {samples} samples from an array of shape {array.shape}",
                hint="the last axis before that of the channels holds the samples",
            )
        shape = shape[:-1]
    layers, extent = _layers_and_extent(array, shape, layered, cube)
    depth, height, width = (1,) * (3 - len(extent)) + extent
    texel = size * channels
    step = texel * max(1, samples)
    if step * width >= 1 << 31 or max(height, depth, layers) >= 1 << 31:
        raise LaunchError(f"an image of shape {shape}", hint="a row has less than 2^31 bytes")
    plane = step * width * height
    values = {
        "base_low": array.address & 0xFFFFFFFF,
        "base_high": array.address >> 32,
        "width": width,
        "height": height,
        "depth": depth,
        "layers": layers,
        "row": step * width,
        "slice_low": plane & 0xFFFFFFFF,
        "slice_high": plane >> 32,
        "texel": texel,
        "samples": samples,
        "step": step,
        "channels": channels,
        "bits": 8 * size,
        "kind": _KINDS[kind],
        "channel_data_type": _DATA_TYPES[kind, size][0],
        "channel_order": _ORDERS[channels],
        "dimensions": len(extent),
        "layered": int(layered),
        "cube": int(cube),
        "levels": 1,
    }
    row = np.zeros(ROW_WORDS, np.uint32)
    _set_fields(row, values)
    return row


def _texels(array: DeviceArray, channels: int) -> tuple[int, ...]:
    """The shape of an array without the axis of the channels."""
    return array.shape if channels == 1 else array.shape[:-1]


def _channels(array: DeviceArray, channels: object) -> int:
    """The number of channels of a texel. Raises ``LaunchError`` if the array's elements cannot have them."""
    if (array.dtype.kind, array.dtype.itemsize) not in _DATA_TYPES:
        raise LaunchError(
            f"an image of {array.dtype}", hint="accepted: 8-, 16- and 32-bit integers, float16 and float32"
        )
    if not isinstance(channels, (int, np.integer)) or channels not in _ORDERS:
        raise LaunchError(f"an image of {channels!r} channels", hint="accepted: 1, 2, or 4")
    if channels > 1 and array.shape[-1:] != (channels,):
        raise LaunchError(
            f"an image of {int(channels)} channels from an array of shape {array.shape}",
            hint="the last axis holds the channels",
        )
    return int(channels)


def _layers_and_extent(
    array: DeviceArray, shape: tuple[int, ...], layered: bool, cube: bool
) -> tuple[int, tuple[int, ...]]:
    """Layers or faces, and (depth, height,) width of one, of an array with so many texels along each axis. Raises ``LaunchError``."""
    layers, extent = (shape[0], shape[1:]) if (layered or cube) and shape else (1, shape)
    if cube and (
        len(extent) != 2 or extent[0] != extent[1] or (layers % FACES if layered else layers - FACES)
    ):
        raise LaunchError(
            f"a cube map from an array of shape {array.shape}",
            hint=f"accepted: {f'a multiple of {FACES}' if layered else FACES} faces, then height and width, which are equal",
        )
    if not 1 <= len(extent) <= (2 if layered else 3) or 0 in shape:
        raise LaunchError(
            f"an image from an array of shape {array.shape}",
            hint="accepted: (layers,) height, width (, channels) if layered; else (depth, height,) width (, channels)",
        )
    return layers, extent


def _set_fields(row: NDArray[np.uint32], values: dict[str, int]) -> None:
    for name, value in values.items():
        row[FIELDS[name]] = value


def surface_row(array: DeviceArray, channels: object, *, layered: bool) -> NDArray[np.uint32]:
    """The row of a surface. Raises ``LaunchError``."""
    row = _base_row(array, channels, layered=layered)
    row[FIELDS["object"]] = SURFACE
    return row


def sampler_row(filter: str, address: str | Sequence[str], *, force_unnormalized: bool) -> NDArray[np.uint32]:
    """The row of a sampler; see ``Device.sampler``. Raises ``LaunchError``."""
    if filter not in ("nearest", "linear"):
        raise LaunchError(f"a sampler with filter={filter!r}", hint="accepted: 'nearest' or 'linear'")
    row = np.zeros(ROW_WORDS, np.uint32)
    values = (int(filter == "linear"), *_address_modes(address))
    fields = dict(zip(SAMPLER_FIELDS, values, strict=True))
    _set_fields(row, {**fields, "object": SAMPLER, "force_unnormalized_coords": int(force_unnormalized)})
    return row


#: the address modes of PTX by their names here
_PTX_MODES = {"wrap": "wrap", "mirror": "mirror", "clamp_to_edge": "clamp", "clamp_to_border": "border"}


def declared_sampler(variable: Variable) -> NDArray[np.uint32]:
    """The row of the sampler that the initialiser of a ``.samplerref`` describes; what it leaves out is as for ``Device.sampler``.
    Raises ``LaunchError``."""
    members = dict(variable.members)
    modes = [members.get(f"addr_mode_{axis}", "clamp_to_edge") for axis in range(3)]
    if "clamp_ogl" in modes:
        raise LaunchError(
            f"{variable.name!r} has the address mode clamp_ogl, which is not run",
            span=variable.span,
            hint=f"accepted: {', '.join(_PTX_MODES)}",
        )
    forced = members.get("force_unnormalized_coords", "0") != "0"
    names = [_PTX_MODES[mode] for mode in modes]
    return sampler_row(members.get("filter_mode", "nearest"), names, force_unnormalized=forced)


def check_flags(function: str, **flags: object) -> None:
    """Raises ``ArgumentError`` for flags that are not ``bool``."""
    for name, value in flags.items():
        if not isinstance(value, (bool, np.bool_, numbers.Integral)):
            raise wrong_type(function, name, value, "bool")


def _listed(values: object) -> list[Any]:
    """The values of an iterable; for others a list with an invalid value."""
    try:
        return [*values]  # type: ignore[misc]
    except TypeError:
        return [None]


def texture_row(
    array: DeviceArray,
    channels: object,
    *,
    layered: bool,
    normalized: bool,
    read: str,
    filter: str,
    address: str | Sequence[str],
    border: Sequence[float],
    linear_memory: bool,
    cube: bool = False,
    level_filter: str = "nearest",
    level_bias: float = 0.0,
    level_range: Sequence[float] = (0.0, np.inf),
    compare: str | None = None,
    samples: int | None = None,
) -> NDArray[np.uint32]:
    """The row of a texture; see ``Device.texture``. Raises ``LaunchError``."""
    row = _base_row(array, channels, layered=layered, cube=cube, samples=_samples(samples, cube))
    if samples is not None and (
        row[FIELDS["dimensions"]] != 2 or normalized or compare or filter == "linear"
    ):
        raise LaunchError(
            "a texture with samples has two dimensions, integer coordinates, no filtering and no comparison",
            hint="omit normalized=, filter= and compare=",
        )
    kind, size = array.dtype.kind, array.dtype.itemsize
    _check_reading(array, read, filter, level_filter)
    modes = _address_modes(address)
    floats = kind == "f" or read == "normalized"
    if linear_memory and (
        len(array.shape) > (2 if channels != 1 else 1) or layered or cube or normalized or filter == "linear"
    ):
        raise LaunchError(
            "a texture of linear memory has one dimension, plain coordinates and no filtering",
            hint="omit linear_memory= for a CUDA array",
        )
    values = {
        "object": TEXTURE,
        "normalized_read": int(read == "normalized"),
        "normalized_coords": int(normalized),
        "filter_mode": int(filter == "linear"),
        "zero_outside": int(linear_memory),
        "level_filter": int(level_filter == "linear"),
        **_levels(level_range, level_bias),
        **{f"addr_mode_{axis}": mode for axis, mode in enumerate(modes)},
        **_border(border, floats),
        "comparison": _comparison(compare, array, floats),
    }
    if read == "normalized":
        values["channel_data_type"] = _DATA_TYPES[kind, size][1]
    _set_fields(row, values)
    return row


def _check_reading(array: DeviceArray, read: str, filter: str, level_filter: str) -> None:
    """Raises ``LaunchError`` for an unknown read mode or filter, or one that the array's elements do not support."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if read not in ("element", "normalized"):
        raise LaunchError(f"a texture with read={read!r}", hint="accepted: 'element' or 'normalized'")
    if read == "normalized" and (kind == "f" or size > 2):
        raise LaunchError(
            f"a texture of {array.dtype} read normalized", hint="only 8- and 16-bit integers can be"
        )
    for name, given in (("filter", filter), ("level_filter", level_filter)):
        if given not in ("nearest", "linear"):
            raise LaunchError(f"a texture with {name}={given!r}", hint="accepted: 'nearest' or 'linear'")
    if "linear" in (filter, level_filter) and kind != "f" and read == "element":
        raise LaunchError(
            f"a texture of {array.dtype} filtered linearly",
            hint="linear filtering needs a floating-point dtype, or read='normalized'",
        )


def _address_modes(address: str | Sequence[str]) -> list[int]:
    """The address modes of three axes; missing ones equal the last one."""
    modes = [address] * 3 if isinstance(address, str) else _listed(address)
    if not modes or any(not isinstance(mode, str) or mode not in ADDRESS_MODES for mode in modes):
        raise LaunchError(
            f"a texture with address={address!r}",
            hint=f"accepted: {', '.join(map(repr, ADDRESS_MODES))}, one or one for each dimension",
        )
    return [ADDRESS_MODES[mode] for mode in (*modes, modes[-1], modes[-1])[:3]]


def _samples(samples: int | None, cube: bool) -> int:
    """The field of samples. Raises ``LaunchError`` for other numbers than GPUs have."""
    if samples is None:
        return 0
    if isinstance(samples, bool) or samples not in (1, 2, 4, 8, 16) or cube:
        raise LaunchError(
            f"a texture with samples={samples!r}",
            hint="accepted: 1, 2, 4, 8 or 16, for plain and layered images",
        )
    return int(samples)


def _comparison(compare: str | None, array: DeviceArray, floats: bool) -> int:
    """The field of a comparison. Raises ``LaunchError`` if it is none, or if reads do not give floats."""
    if compare is None:
        return 0
    if not isinstance(compare, str) or compare not in COMPARISONS:
        raise LaunchError(
            f"a texture with compare={compare!r}", hint=f"accepted: {', '.join(map(repr, COMPARISONS))}"
        )
    if not floats:
        raise LaunchError(
            f"a depth texture of {array.dtype}",
            hint="depths are compared with a floating-point dtype, or with read='normalized'",
        )
    return COMPARISONS[compare]


def resident_map(array: DeviceArray, channels: int, mask: object) -> NDArray[np.uint8]:
    """A byte for each texel of an array: 1 where the mask holds. Raises ``LaunchError`` for a mask of another shape."""
    given, shape = np.asarray(mask), _texels(array, channels)
    if given.dtype != np.bool_ or given.shape != shape:
        raise LaunchError(
            f"a texture with resident= of {given.dtype} and shape {given.shape}",
            hint=f"accepted: an array of bool for its texels, of shape {shape}; for several levels a sequence of them",
        )
    return given.astype(np.uint8)


def set_resident(row: NDArray[np.uint32], address: int) -> None:
    """Let a row have the map of resident texels at an address."""
    _set_fields(row, {"resident_low": address & 0xFFFFFFFF, "resident_high": address >> 32})


def _levels(range: Sequence[float], bias: float) -> dict[str, int]:
    """The fields of levels of detail."""
    levels = [*_listed(range), bias]
    if len(levels) != 3 or not all(isinstance(level, _NUMBERS) for level in levels):
        raise LaunchError(
            f"a texture with level_range={range!r}, level_bias={bias!r}",
            hint="accepted: the smallest and the largest level; a number",
        )
    names = ("level_least", "level_most", "level_bias")
    return {name: _float_bits(level) for name, level in zip(names, levels, strict=True)}


def _border(border: Sequence[float], floating: bool) -> dict[str, int]:
    """The fields of the colour outside; ``floating``: whether reads give floats."""
    colour = _listed(border)
    if len(colour) > 4 or not all(
        isinstance(part, _NUMBERS) and (floating or np.isfinite(part)) for part in colour
    ):
        raise LaunchError(f"a texture with border={border!r}", hint="accepted: up to four numbers")
    colour += [0] * (4 - len(colour))
    return {
        f"border_{index}": _float_bits(part) if floating else int(part) & 0xFFFFFFFF
        for index, part in enumerate(colour)
    }


def _float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def levels_of(rows: Sequence[NDArray[np.uint32]]) -> None:
    """Make rows of textures the levels of detail of the first. Raises ``LaunchError`` if their sizes do not match."""
    first = rows[0]
    same = ("texel", "channels", "bits", "kind", "dimensions", "layered", "cube")
    for level, row in enumerate(rows):
        sizes = {name: max(1, int(first[FIELDS[name]]) >> level) for name in ("width", "height", "depth")}
        wanted = sizes | {name: int(first[FIELDS[name]]) for name in (*same, "layers")}
        wrong = next((name for name, value in wanted.items() if row[FIELDS[name]] != value), None)
        if wrong:
            raise LaunchError(
                f"level {level} of a texture has the {wrong} {int(row[FIELDS[wrong]])}, not {wanted[wrong]}",
                hint="each level has half the width, height and depth of the one before, rounded down, at least 1",
            )
        if level:
            # the texture's own handle becomes invalid
            row[FIELDS["object"]] = 0
    first[FIELDS["levels"]] = len(rows)


def image_fault(thread: str, instruction: Instruction, handle: int, images: Images) -> TrapError:
    """The error of an instruction that cannot use the image of a thread's handle."""
    row = images.rows[int(images.find(np.array([handle], np.uint64))[0])]
    kind_of_image: object = _NAMES.get(int(row[FIELDS["object"]]))
    opcode = instruction.opcode
    expected = (
        "texture" if opcode.startswith(("tex", "tld4")) else "surface" if opcode[:2] == "su" else "image"
    )
    geometry = str(instruction.form.modifier("geom") or "")
    names = {slot.name for slot in instruction.form.sources}
    hint = f"make one with device.{expected if expected != 'image' else 'texture'}(array)"
    if kind_of_image is None:
        message = f"{opcode}: {handle:#x} is not a texture or surface"
    elif expected not in (kind_of_image, "image"):
        message = f"{opcode}: {handle:#x} is a {kind_of_image}, not a {expected}"
    elif geometry and geometry != _geometry(row):
        message = f"{opcode}: the {kind_of_image} is {_geometry(row)}"
        hint = "the shape of the array decides: (depth, height,) width (, channels), layers first; cube=True makes a cube map"
    elif expected == "texture" and "f" in names and not row[FIELDS["comparison"]]:
        message = f"{opcode}: the texture has no comparison for the depth of operand f"
        hint = "device.texture(…, compare='less_equal') sets it; CUDA has no way to set one, so what a program gets is not documented"
    elif expected == "texture" and "b" in names:
        message = (
            f"{opcode}: b is not the handle of a sampler{', or an offset is out of range' * ('e' in names)}"
        )
        hint = f"make one with device.sampler(); offsets are {OFFSETS[0]} to {OFFSETS[1]} texels"
    elif expected == "texture" and "e" not in names:
        message = f"{opcode}: the texture lacks this sample"
        hint = f"accepted: 0 to {int(row[FIELDS['samples']]) - 1}, the first element of the coordinates"
    elif expected == "texture":
        lacks = " or the texture lacks the sample" if row[FIELDS["samples"]] else ""
        message = f"{opcode}: an offset of operand e is out of range{lacks}"
        hint = f"accepted: {OFFSETS[0]} to {OFFSETS[1]} texels (PTX manual, {opcode.partition('.')[0]})"
    else:
        size = " × ".join(str(int(row[FIELDS[name]])) for name in ("width", "height", "depth", "layers"))
        message = f"{opcode}: outside the surface, or not aligned"
        hint = (
            f"it has {size} texels of {int(row[FIELDS['texel']])} bytes (width × height × depth × layers); the first coordinate "
            "counts bytes, in multiples of the access size (.p: texels)"
        )
    source = [] if instruction.location is None else [f"source line {instruction.location.described}"]
    return TrapError(message, span=instruction.span, details=[thread, *source], hint=hint)
