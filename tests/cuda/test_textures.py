"""Textures and surfaces against the formulas of the CUDA C++ Programming Guide ("Texture Fetching"), in exact fractions."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import BACKENDS

from .running import module

RNG = np.random.default_rng(11)
EDGES = [
    -1e30,
    -7.3,
    -1.5,
    -1.0,
    -0.75,
    -0.5,
    -1e-6,
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
    1.5,
    2.5,
    3.0,
    3.999,
    4.5,
    5.0,
    9.25,
    1e30,
]
COUNT = 64
TYPES: dict[str, tuple[str, int]] = {
    "float": ("float32", 1),
    "float2": ("float32", 2),
    "float4": ("float32", 4),
    "int": ("int32", 1),
    "unsigned": ("uint32", 1),
    "short": ("int16", 1),
    "ushort2": ("uint16", 2),
    "char4": ("int8", 4),
    "uchar4": ("uint8", 4),
}


def texels(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes that the type has."""
    if np.dtype(dtype).kind == "f":
        return (RNG.integers(-1000, 1000, shape) / 8).astype(dtype)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def coordinates(sizes: list[int], *, normalized: bool) -> list[np.ndarray]:
    """For each dimension COUNT coordinates: edges, exact halves, 256ths, and anything."""
    found = []
    for size in sizes:
        anything = RNG.uniform(-2 * size, 3 * size, COUNT - len(EDGES) - 12)
        eighths = RNG.integers(-2 * size, 4 * size, 12) / 8
        x = np.concatenate([EDGES, eighths, anything])
        found.append((x / size if normalized else x).astype(np.float32)[RNG.permutation(COUNT)])
    return found


def place(x: float, size: int, mode: str, *, normalized: bool) -> np.float32:
    """The coordinate in texels, as the guide replaces it, in single precision."""
    value = np.float32(x)
    with np.errstate(all="ignore"):
        if normalized:
            whole = np.floor(value)
            fraction = np.float32(value - whole)
            if mode == "wrap":
                value = fraction
            elif mode == "mirror":
                odd = abs(float(whole)) < 2**24 and int(whole) % 2 == 1
                value = np.float32(np.float32(1) - fraction) if odd else fraction
            value = np.float32(value * np.float32(size))
    return value


def index(i: int, size: int, mode: str, *, normalized: bool) -> int | None:
    """The texel that index i means, ``None`` for the border."""
    if 0 <= i < size:
        return i
    if mode == "border":
        return None
    if mode == "wrap" and normalized:
        return i % size
    return min(max(i, 0), size - 1)


def read(value: Any, dtype: np.dtype[Any], how: str) -> Fraction | float:
    """A component as the kernel sees it."""
    if how != "normalized":
        return Fraction(float(value)) if math.isfinite(value) else float(value)
    most = np.iinfo(dtype).max
    return Fraction(float(max(np.float32(value) / np.float32(most), np.float32(-1))))


def fetch(
    image: np.ndarray,
    point: list[float],
    mode: str,
    *,
    normalized: bool,
    linear: bool,
    how: str,
    border: float = 0.0,
) -> list[float]:
    """``image``: (…, height, width, channels). ``point``: x, y, z. The components, as numbers of the destination."""
    sizes = list(image.shape[:-1][::-1])
    at = [place(x, size, mode, normalized=normalized) for x, size in zip(point, sizes, strict=True)]

    def texel(indices: list[int]) -> list[Fraction | float]:
        chosen = [index(i, size, mode, normalized=normalized) for i, size in zip(indices, sizes, strict=True)]
        if any(i is None for i in chosen):
            return [Fraction(border)] * image.shape[-1]
        return [read(value, image.dtype, how) for value in image[tuple(chosen[::-1])]]

    if not linear:
        return [float(v) for v in texel([math.floor(max(min(float(x), 1e9), -1e9)) for x in at])]
    corners, weights = [], []
    for x in at:
        before = np.float32(x - np.float32(0.5))
        corner = np.floor(before)
        corners.append(math.floor(max(min(float(before), 1e9), -1e9)))
        weights.append(Fraction(round(Fraction(float(np.float32(before - corner))) * 256), 256))
    total = [Fraction(0)] * image.shape[-1]
    for sides in product((0, 1), repeat=len(at)):
        weight = math.prod(
            (w if side else 1 - w for w, side in zip(weights, sides, strict=True)), start=Fraction(1)
        )
        found = texel([i + side for i, side in zip(corners, sides, strict=True)])
        total = [t + weight * v for t, v in zip(total, found, strict=True)]
    return [float(np.float32(float(t))) for t in total]


def launch(
    backend: str, entry: str, args: list[Any], make: Callable[[ge.Device], Any], **options: Any
) -> list[Any]:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    image = make(device)
    given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    grid, block = options.get("grid", COUNT // 32), options.get("block", 32)
    profile = device.launch(module("textures")[entry], grid, block, [image, *given])
    assert profile.remarks == ()
    return [made.numpy() if made is not arg else arg for made, arg in zip(given, args, strict=True)]


SHAPES = {"1d": (5,), "2d": (4, 6), "3d": (3, 4, 5), "a1d": (3, 7), "a2d": (2, 3, 5)}


@pytest.mark.parametrize("kind", TYPES)
def test_nearest_fetches_of_every_type(kind: str, backend: str) -> None:
    dtype, channels = TYPES[kind]
    for geometry, shape in SHAPES.items():
        image = texels(dtype, (*shape, channels))
        spatial = shape[1:] if geometry[0] == "a" else shape
        x = coordinates(list(spatial[::-1]), normalized=False)
        layers = RNG.integers(0, 2 * shape[0], COUNT).astype(np.int32)
        points = [*x, *[np.zeros(COUNT, np.float32)] * (3 - len(x))]
        out = np.zeros((COUNT, 4), np.float32 if dtype == "float32" else np.int32)

        def make(device: ge.Device, image: np.ndarray = image, layered: bool = geometry[0] == "a") -> Any:
            host = image if channels > 1 else image[..., 0]
            return device.texture(device.array(host), channels=channels, layered=layered)

        *_, found = launch(backend, f"fetch_{geometry}_{kind}", [*points, layers, out], make)
        for thread in range(COUNT):
            layer = image[min(layers[thread], shape[0] - 1)] if geometry[0] == "a" else image
            wanted = fetch(
                layer,
                [float(axis[thread]) for axis in x],
                "clamp",
                normalized=False,
                linear=False,
                how="element",
            )
            expected = np.array([int(v) if dtype != "float32" else v for v in wanted])
            if dtype == "uint32":
                expected = expected.astype(np.uint32).view(np.int32) if expected.size else expected
            assert found[thread, :channels].tolist() == expected.tolist(), (
                geometry,
                thread,
                [a[thread] for a in x],
            )
            assert not found[thread, channels:].any()


MODES = ["clamp", "border", "wrap", "mirror"]
TEXELS = [
    ("float32", "element"),
    ("float16", "element"),
    ("uint8", "normalized"),
    ("int16", "normalized"),
]


@pytest.mark.parametrize(
    ("dtype", "how", "filter", "normalized", "mode", "backend"),
    [
        (*TEXELS[type_], ("nearest", "linear")[linear], bool(normalized), MODES[mode], BACKENDS[backend])
        for type_, linear, normalized, mode, backend in np.ndindex(4, 2, 2, 4, 2)
        # each on one backend; any three of the choices with each other on both
        if (type_ + linear + normalized + mode) % 2 == backend
    ],
)
def test_filters_and_address_modes(
    dtype: str, how: str, filter: str, normalized: bool, mode: str, backend: str
) -> None:
    for geometry, shape in SHAPES.items():
        image = texels(dtype, (*shape, 4))
        spatial = shape[1:] if geometry[0] == "a" else shape
        x = coordinates(list(spatial[::-1]), normalized=normalized)
        layers = RNG.integers(0, shape[0], COUNT).astype(np.int32)
        points = [*x, *[np.zeros(COUNT, np.float32)] * (3 - len(x))]

        def make(device: ge.Device, image: np.ndarray = image, layered: bool = geometry[0] == "a") -> Any:
            return device.texture(
                device.array(image), channels=4, layered=layered, normalized=normalized, read=how, filter=filter,
                address=mode, border=(0.5, 0.5, 0.5, 0.5),
            )  # fmt: skip

        *_, found = launch(
            backend, f"fetch_{geometry}_float4", [*points, layers, np.zeros((COUNT, 4), np.float32)], make
        )
        for thread in range(COUNT):
            layer = image[layers[thread]] if geometry[0] == "a" else image
            wanted = fetch(
                layer, [float(axis[thread]) for axis in x], mode, normalized=normalized, linear=filter == "linear", how=how,
                border=0.5,
            )  # fmt: skip
            assert found[thread].tolist() == wanted, (geometry, thread, [axis[thread] for axis in x])


def test_address_modes_of_each_dimension(backend: str) -> None:
    image = texels("float32", (4, 6, 1))
    x, y = coordinates([6, 4], normalized=True)
    nothing = np.zeros(COUNT, np.float32)

    def make(device: ge.Device) -> Any:
        return device.texture(device.array(image[..., 0]), normalized=True, address=("wrap", "border"))

    *_, found = launch(
        backend,
        "fetch_2d_float",
        [x, y, nothing, nothing.astype(np.int32), np.zeros((COUNT, 4), np.float32)],
        make,
    )
    for thread in range(COUNT):
        row = math.floor(max(min(float(np.float32(y[thread] * np.float32(4))), 1e9), -1e9))
        wanted = 0.0
        if 0 <= row < 4:
            (wanted,) = fetch(
                image[row], [float(x[thread])], "wrap", normalized=True, linear=False, how="element"
            )
        assert found[thread, 0] == wanted


def test_integer_coordinates(backend: str) -> None:
    image = texels("int32", (40,))
    x = np.arange(-12, COUNT - 12).astype(np.int32)
    inside = (x >= 0) & (x < 40)
    out = np.zeros((COUNT, 4), np.int32)
    for linear, address, outside in ((True, "clamp", 0), (False, "border", 7), (False, "clamp", None)):

        def make(device: ge.Device, linear: bool = linear, address: str = address) -> Any:
            return device.texture(
                device.array(image), linear_memory=linear, address=address, border=(7,) if not linear else ()
            )

        _, found = launch(backend, "fetch_int_int", [x, out], make)
        wanted = (
            image[np.clip(x, 0, 39)]
            if outside is None
            else np.where(inside, image[np.clip(x, 0, 39)], outside)
        )
        assert (found[:, 0] == wanted).all()


def test_textures_have_one_level(backend: str) -> None:
    image = texels("float32", (4, 6, 1))
    x, y = coordinates([6, 4], normalized=False)

    def make(device: ge.Device) -> Any:
        return device.texture(device.array(image[..., 0]), filter="linear")

    *_, found = launch(backend, "levels", [x, y, np.zeros((COUNT, 2), np.float32)], make)
    for thread in range(COUNT):
        wanted = fetch(
            image, [float(x[thread]), float(y[thread])], "clamp", normalized=False, linear=True, how="element"
        )
        assert found[thread].tolist() == wanted * 2


def test_gathers_go_round_from_the_lower_left(backend: str) -> None:
    image = texels("float32", (4, 6, 4))
    x, y = coordinates([6, 4], normalized=False)

    def make(device: ge.Device) -> Any:
        return device.texture(device.array(image), channels=4)

    *_, found = launch(backend, "gathers", [x, y, np.zeros((COUNT, 4, 4), np.float32)], make)
    for thread in range(COUNT):
        left, top = (
            math.floor(max(min(float(np.float32(axis[thread] - np.float32(0.5))), 1e9), -1e9))
            for axis in (x, y)
        )
        around = [(left, top + 1), (left + 1, top + 1), (left + 1, top), (left, top)]
        for component in range(4):
            wanted = [image[min(max(j, 0), 3), min(max(i, 0), 5), component] for i, j in around]
            assert found[thread, component].tolist() == wanted


def test_lanes_may_have_textures_of_their_own(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    images = [
        texels(dtype, (height, width, 1))
        for dtype, height, width in (("float32", 4, 6), ("float16", 9, 2), ("float32", 1, 8))
    ]
    filters = ("linear", "nearest", "nearest")
    textures = [
        device.texture(device.array(image[..., 0]), filter=how)
        for image, how in zip(images, filters, strict=True)
    ]
    handles = np.array([texture.handle for texture in textures], np.uint64)
    x, y = coordinates([6, 4], normalized=False)
    out = device.zeros(COUNT, np.float32)
    args = [device.array(handles), np.int32(3), device.array(x), device.array(y), out]
    device.launch(module("textures")["table"], COUNT // 32, 32, args)
    for thread, found in enumerate(out.numpy().tolist()):
        which = thread % 4
        wanted = [-1.0]
        if which < 3:
            point = [float(x[thread]), float(y[thread])]
            wanted = fetch(images[which], point, "clamp", normalized=False, linear=which == 0, how="element")
        assert [found] == wanted
    handles[1] += 8
    device.copy(args[0], handles)
    with pytest.raises(
        ge.TrapError, match=r"tex\.2d\.v4\.f32\.f32: 0x\w+ is not a texture or surface\n.*thread \(1, 0, 0\)"
    ):
        device.launch(module("textures")["table"], COUNT // 32, 32, args)


def test_a_picture_is_turned(backend: str) -> None:
    height, width = 13, 21
    picture = texels("uint8", (9, 11, 4))
    cosine, sine = np.float32(math.cos(0.4)), np.float32(math.sin(0.4))

    def make(device: ge.Device) -> Any:
        return device.texture(
            device.array(picture),
            channels=4,
            normalized=True,
            read="normalized",
            filter="linear",
            address="wrap",
        )

    (out, *_) = launch(
        backend,
        "rotate",
        [np.zeros((height, width, 4), np.uint8), np.int32(width), np.int32(height), cosine, sine],
        make,
        grid=(2, 2),
        block=(16, 8),
    )
    exact = picture.astype(float)
    for y, x in product(range(height), range(width)):
        u, v = (x + 0.5) / width - 0.5, (y + 0.5) / height - 0.5
        s = (u * float(cosine) - v * float(sine) + 0.5) % 1 * 11 - 0.5
        t = (v * float(cosine) + u * float(sine) + 0.5) % 1 * 9 - 0.5
        i, j, a, b = math.floor(s), math.floor(t), s % 1, t % 1
        near = [exact[(j + q) % 9, (i + p) % 11] for q, p in product((0, 1), repeat=2)]
        wanted = (1 - a) * (1 - b) * near[0] + a * (1 - b) * near[1] + (1 - a) * b * near[2] + a * b * near[3]
        assert abs(out[y, x] - wanted).max() <= 1.6  # weights have 8 bits of fraction


def test_surfaces_are_read_and_written(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    image = texels("float32", (6, 32))
    source, target = device.array(image), device.empty((6, 32), np.float32)
    device.launch(
        module("textures")["shift"], (4, 3), (8, 2), [device.surface(source), device.surface(target)]
    )
    left = np.concatenate([np.zeros((6, 1), np.float32), image[:, :-1]], axis=1)
    assert (target.numpy() == image + left).all()
    assert (source.numpy() == image).all()
    with pytest.raises(
        ge.TrapError,
        match=r"suld\.b\.2d\.b32\.trap: outside the surface.*\n(.*\n)*.*it has 32 × 6 × 1 × 1 texels",
    ):
        device.launch(
            module("textures")["shift"], (5, 3), (8, 2), [device.surface(source), device.surface(target)]
        )


def test_places_outside_a_surface(backend: str) -> None:
    texel = texels("uint8", (20, 4))
    raw = texel.reshape(-1)
    for mode in ("zero", "clamp"):

        def make(device: ge.Device) -> Any:
            return device.surface(device.array(texel), channels=4)

        (out,) = launch(backend, f"around_{mode}", [np.zeros((32, 3, 4), np.int32)], make, grid=1)
        for thread in range(32):
            for place_, (size, dtype) in enumerate(((4, np.uint8), (4, np.int16), (16, np.int32))):
                at = size * (thread - 8)
                if mode == "zero" and not 0 <= at <= 80 - size:
                    wanted = [0, 0, 0, 0]
                else:
                    at = min(max(at, 0), 80 - size)
                    wanted = raw[at : at + size].view(dtype).tolist()
                assert out[thread, place_, : len(wanted)].tolist() == wanted
    with pytest.raises(ge.TrapError, match=r"outside the surface, or not aligned\n.*thread \(0, 0, 0\)"):
        launch(backend, "around_trap", [np.zeros((32, 3, 4), np.int32)], make, grid=1)


def test_volumes_and_layers_are_written(backend: str) -> None:
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    volume, layers = device.zeros((3, 4, 8), np.int16), device.zeros((3, 4, 8), np.uint8)
    device.launch(
        module("textures")["scatter"],
        1,
        (16, 8, 5),
        [device.surface(volume), device.surface(layers, layered=True)],
    )
    z, y, x = np.indices((3, 4, 8))
    assert (volume.numpy() == 100 * z + 10 * y + x).all()
    assert (layers.numpy() == (16 * z + 4 * y + x) % 256).all()


@pytest.mark.parametrize("demand", ["control", "addresses"])
def test_slices_fetch_what_decides(demand: str, backend: str) -> None:
    image, x = np.array([1, 2, 4, 300], np.float32), np.arange(64, dtype=np.float32) / 16
    device = ge.Device(observe=set(), backend=backend, memory_bytes=1 << 24)
    array = device.array(image)
    args = [device.texture(array), device.array(x), device.zeros(64, np.int32)]
    kernel = module("textures")["decides"]
    counted = device.launch(kernel, 2, 32, args, demand=demand)
    args[2] = device.zeros(64, np.int32)
    whole = device.launch(kernel, 2, 32, args)
    assert counted.opcodes == whole.opcodes
    assert counted.branches == whole.branches
    wanted = [math.ceil(math.log2(max(1.0, float(image[i // 16])))) for i in range(64)]
    assert args[2].numpy().tolist() == wanted
    # what another launch has not computed is not fetched
    surface, target = device.surface(device.zeros((6, 32), np.float32)), device.zeros((6, 32), np.float32)
    device.launch(
        module("textures")["shift"], (4, 3), (8, 2), [surface, device.surface(target)], demand="control"
    )
    with pytest.raises(ge.NotObserved, match="contents of"):
        target.numpy()
    flat = device.texture(target[0])
    with pytest.raises(ge.NotObserved, match=r"tex\.1d\.v4\.f32\.f32 of 'decides' at"):
        device.launch(kernel, 2, 32, [flat, *args[1:]], demand=demand)
    device.launch(kernel, 2, 32, args, demand=demand)


def test_counts_and_estimates() -> None:
    device = ge.Device(memory_bytes=1 << 24)
    array = device.array(texels("float32", (4, 6)))
    x = device.zeros(64, np.float32)
    profile = device.launch(
        module("textures")["fetch_2d_float"],
        2,
        32,
        [device.texture(array), x, x, x, device.zeros(64, np.int32), device.zeros((64, 4))],
    )
    assert profile.by_category["texture"] == 64
    assert profile.units["tex"] == 2
    assert profile.groups("nvprof")["inst_executed_tex_ops"] == 2
    assert profile.memory.global_load_requests == 4  # of the coordinates: fetches are in no figure of memory
    predicted = ge.estimate(profile, "h100-sxm")
    assert 0 < predicted.bounds["tex"] < predicted.time_us
    assert any(note.startswith("textures and surfaces:") for note in predicted.notes)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((4, 4)), {}, "an image of float64"),
        (np.zeros((4, 4), np.float32), {"channels": 3}, "an image of 3 channels"),
        (np.zeros((4, 4), np.float32), {"channels": 2}, r"of 2 channels from an array of shape \(4, 4\)"),
        (np.zeros((2, 2, 4, 4), np.float32), {}, "from an array of shape"),
        (np.zeros((0,), np.float32), {}, "from an array of shape"),
        (np.zeros((4,), np.float32), {"layered": True}, "from an array of shape"),
        (np.zeros((4,), np.int32), {"filter": "linear"}, "filtered linearly"),
        (np.zeros((4,), np.int32), {"read": "normalized"}, "read normalized"),
        (np.zeros((4,), np.int8), {"read": "float"}, "read='float'"),
        (np.zeros((4,), np.float32), {"filter": "cubic"}, "filter='cubic'"),
        (np.zeros((4,), np.float32), {"address": "repeat"}, "address='repeat'"),
        (np.zeros((4, 4), np.float32), {"linear_memory": True}, "linear memory has one dimension"),
        (np.zeros((4, 2), np.float32), {"channels": 2.0}, "an image of 2.0 channels"),
        (np.zeros((4,), np.float32), {"address": None}, "address=None"),
        (np.zeros((4,), np.float32), {"address": [[]]}, "address="),
        (np.zeros((4,), np.float32), {"border": None}, "border=None"),
        (np.zeros((4,), np.float32), {"level_range": None}, "level_range=None"),
        (np.zeros((4,), np.float32), {"level_range": ("a", "b")}, "level_range="),
        (np.zeros((4,), np.float32), {"level_bias": None}, "level_bias=None"),
        (np.zeros((4,), np.float32), {"border": ("red",)}, "border="),
        (np.zeros((4,), np.int32), {"border": (np.inf,)}, r"border=\(inf,\)"),
        (np.zeros((4,), np.float32), {"border": (0, 0, 0, 0, 1)}, "border="),
    ],
)
def test_textures_that_no_gpu_has(array: np.ndarray, options: dict[str, Any], message: str) -> None:
    device = ge.Device(memory_bytes=1 << 20)
    with pytest.raises(ge.LaunchError, match=message):
        device.texture(device.array(array), **options)


@pytest.mark.parametrize(
    "border", [[0.0] * 4, (ctypes.c_float * 4)(), np.zeros(4), ()], ids=["list", "ctypes", "array", "none"]
)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
def test_a_border_is_what_the_runtime_has_for_any_type(dtype: type[np.generic], border: Any) -> None:
    """Four floats, of textures of integers too."""
    device = ge.Device(memory_bytes=1 << 20)
    assert device.texture(device.zeros(4, dtype), border=border, address="border")


def test_images_belong_to_their_device() -> None:
    one, other = ge.Device(memory_bytes=1 << 20), ge.Device(memory_bytes=1 << 20)
    texture = one.texture(one.zeros(4, np.float32))
    nothing = [other.zeros(32, np.float32)] * 3
    with pytest.raises(ge.LaunchError, match="is on another device"):
        other.launch(module("textures")["fetch_1d_float"], 1, 32, [texture, *nothing, *nothing[:2]])
    with pytest.raises(ge.LaunchError, match="is not a device array"):
        one.texture(np.zeros(4, np.float32))  # type: ignore[arg-type]
    assert repr(texture).startswith("<1d texture of ")
