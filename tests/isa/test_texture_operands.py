"""Further operands of texture fetches (PTX manual, ``tex`` and ``tld4``): texel offsets, depth comparison, residency, samples.

The expected values come from exact fractions: the coordinate in texels plus the offset selects texels of the endless image that the
address modes make of the texture.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.6", "sm_80")
ENTRY = """.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 x) {
.reg .b32 r<16>; .reg .b64 l<9>; .reg .f32 f<16>; .reg .f32 d<4>; .reg .pred p;
ld.param.u64 l1, [image]; ld.param.u64 l2, [out]; ld.param.u64 l3, [x];
mov.u32 r0, %tid.x; mul.wide.u32 l4, r0, 32; add.u64 l2, l2, l4; add.u64 l3, l3, l4; setp.ne.u32 p, r0, r0;
ld.global.v4.f32 {f1,f2,f3,f4}, [l3]; ld.global.v4.f32 {f5,f6,f7,f8}, [l3+16];
ld.global.v4.b32 {r1,r2,r3,r4}, [l3]; ld.global.v4.b32 {r5,r6,r7,r8}, [l3+16];
"""
END = "selp.u32 r9, 1, 0, p; st.global.v4.f32 [l2], {d0,d1,d2,d3}; st.global.b32 [l2+16], r9; ret; }\n"
RNG = np.random.default_rng(4)
SHAPES = {"1d": (8,), "2d": (4, 8), "3d": (2, 4, 8), "a1d": (3, 8), "a2d": (3, 4, 8)}
MODES = ("clamp", "border", "wrap", "mirror")
COMPARISONS = {
    "less": operator.lt,
    "less_equal": operator.le,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
#: where a thread finds its numbers: a layer, coordinates, offsets
LAYER, PLACE, OFFSET = "r8", ("f1", "f2", "f3"), ("r5", "r6", "r7")


def run(backend: str, body: str, make: Any, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The four floats d0 … d3 and the predicate p of each thread, which has eight words in f1 … f8 and r1 … r8."""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(HEAD + ENTRY + body + "\n" + END, path="k.ptx")["k"]
    given = np.zeros((len(words), 8), np.uint32)
    given[:, : words.shape[1]] = words
    out = device.zeros((len(words), 8), np.uint32)
    device.launch(kernel, 1, len(words), [make(device), out, device.array(given)])
    found = out.numpy()
    return found[:, :4].view(np.float32), found[:, 4]


def as_words(*columns: np.ndarray) -> np.ndarray:
    """The words of 32-bit columns, one row for each thread."""
    return np.stack([np.ascontiguousarray(column).view(np.uint32) for column in columns], axis=1)


def vector(names: Sequence[str]) -> str:
    return "{" + ",".join([*names, names[-1]] if len(names) == 3 else names) + "}"


def texel_index(i: int, size: int, mode: str, repeats: bool) -> int | None:
    """The texel with an index of the endless image, ``None`` for the border."""
    if mode == "wrap" and repeats:
        return i % size
    if mode == "mirror" and repeats:
        return min(i % (2 * size), 2 * size - 1 - i % (2 * size))
    if mode == "border" and not 0 <= i < size:
        return None
    return min(max(i, 0), size - 1)


def around(image: np.ndarray, at: Sequence[Fraction], mode: str, repeats: bool, linear: bool) -> list[Any]:
    """Texels and weights at a place, in texels: x first, the image with its last axis for components; a border has no texel."""
    sizes = image.shape[:-1][::-1]
    corners = [math.floor(x - Fraction(1, 2) if linear else x) for x in at]
    parts = [Fraction(round((x - Fraction(1, 2) - low) * 256), 256) for x, low in zip(at, corners)]
    found = []
    for sides in product((0, 1) if linear else (0,), repeat=len(at)):
        weight = math.prod(
            (part if side else 1 - part for part, side in zip(parts, sides)), start=Fraction(1)
        )
        places = [
            texel_index(low + side, size, mode, repeats) for low, side, size in zip(corners, sides, sizes)
        ]
        found.append((None if None in places else tuple(places[::-1]), weight if linear else Fraction(1)))
    return found


def mean(image: np.ndarray, texels: list[Any], border: float, depth: Any = None) -> list[float]:
    """The weighted mean of texels, or of the results of their comparison with a depth."""
    total = [Fraction(0)] * image.shape[-1]
    for place, weight in texels:
        values = [border] * image.shape[-1] if place is None else image[place].tolist()
        if depth is not None:
            reference, passes = depth
            values = [float(passes(reference, value)) for value in values]
        total = [one + weight * Fraction(value) for one, value in zip(total, values)]
    return [float(value) for value in total]


def places(
    spatial: Sequence[int], count: int, normalized: bool
) -> tuple[list[list[Fraction]], list[np.ndarray]]:
    """Coordinates in texels, none on an edge of two texels or half-way, up to three images away; and as the kernel gets them."""
    exact = [
        [Fraction(2 * int(k) + 1, 16) for k in RNG.integers(-24 * size, 32 * size, count)]
        for size in reversed(spatial)
    ]
    given = [
        np.array([float(x / size if normalized else x) for x in axis], np.float32)
        for axis, size in zip(exact, reversed(spatial))
    ]
    return exact, given


def fetch(opcode: str, geometry: str, more: str = "", pair: str = "", level: str = "") -> str:
    """The text of a fetch with coordinates of that geometry."""
    names = [LAYER] * geometry.startswith("a") + [*PLACE[: int(geometry.removeprefix("a")[0])]]
    return f"{opcode}.{geometry}.v4.f32.f32 {{d0,d1,d2,d3}}{pair}, [l1, {vector(names)}]{level}{more};"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("geometry", SHAPES)
def test_offsets(geometry: str, mode: str, backend: str) -> None:
    shape, layered, count = SHAPES[geometry], geometry[0] == "a", 64
    spatial = shape[1:] if layered else shape
    image = (RNG.integers(-99, 99, (*shape, 4)) / 4).astype(np.float32)
    layers = RNG.integers(0, 3, count).astype(np.uint32)
    offsets = [RNG.integers(-8, 8, count).astype(np.int32) for _ in spatial]
    for normalized, linear in product((False, True), repeat=2):
        if not normalized and mode in ("wrap", "mirror"):
            continue
        exact, given = places(spatial, count, normalized)

        def texture(device: ge.Device, normalized: bool = normalized, linear: bool = linear) -> Any:
            return device.texture(
                device.array(image), channels=4, layered=layered, normalized=normalized, address=mode,
                filter="linear" if linear else "nearest", border=(0.5,) * 4,
            )  # fmt: skip

        zeros = np.zeros(count, np.float32)
        columns = [*given, *[zeros] * (4 - len(given)), *offsets, *[zeros] * (3 - len(offsets)), layers]
        line = fetch("tex", geometry, f", {vector(OFFSET[: len(spatial)])}")
        found, _ = run(backend, line, texture, as_words(*columns))
        for lane in range(count):
            layer = image[layers[lane]] if layered else image
            moved = [axis[lane] + int(offset[lane]) for axis, offset in zip(exact, offsets)]
            wanted = mean(layer, around(layer, moved, mode, normalized, linear), 0.5)
            assert found[lane].tolist() == wanted, (lane, normalized, linear, moved)


@pytest.mark.parametrize("opcode", ["tex.level", "tex.grad"])
def test_offsets_in_levels_of_detail(opcode: str, backend: str) -> None:
    """An offset counts texels of the level that is read."""
    levels = [(RNG.integers(0, 99, (4 >> n, 8 >> n))).astype(np.float32) for n in range(3)]
    exact, given = places((4, 8), 48, True)
    level = RNG.integers(0, 3, 48)
    x_offsets, y_offsets = (RNG.integers(-8, 8, 48).astype(np.int32) for _ in range(2))
    # a step of 2ⁿ texels in x means level n
    number = level.astype(np.float32) if opcode == "tex.level" else (2.0**level / 8).astype(np.float32)
    chosen = ", f3" if opcode == "tex.level" else ", {f3,f4}, {f4,f4}"
    found, _ = run(
        backend, fetch(opcode, "2d", ", {r5,r6}", level=chosen),
        lambda d: d.texture([d.array(one) for one in levels], normalized=True, address="wrap"),
        as_words(*given, number, 0 * number, x_offsets, y_offsets),
    )  # fmt: skip
    for lane in range(48):
        image = levels[level[lane]]
        column = math.floor(exact[0][lane] / 2 ** int(level[lane])) + int(x_offsets[lane])
        row = math.floor(exact[1][lane] / 2 ** int(level[lane])) + int(y_offsets[lane])
        assert found[lane, 0] == image[row % image.shape[0], column % image.shape[1]]


def test_offsets_of_whole_coordinates(backend: str) -> None:
    image = RNG.integers(1, 99, (4, 8)).astype(np.float32)
    x, y = (np.arange(64, dtype=np.int32) % n - 10 for n in (29, 31))
    x[:4], y[:4] = [-(2**31), 2**31 - 1, 0, 7], 0
    x_offsets, y_offsets = (RNG.integers(-8, 8, 64).astype(np.int32) for _ in range(2))
    line = "tex.2d.v4.f32.s32 {d0,d1,d2,d3}, [l1, {r1,r2}], {r5,r6};"
    words = as_words(x, y, x, y, x_offsets, y_offsets)
    for mode in ("clamp", "border"):
        found, _ = run(backend, line, lambda d, m=mode: d.texture(d.array(image), address=m), words)
        for lane in range(64):
            column, row = int(x[lane]) + int(x_offsets[lane]), int(y[lane]) + int(y_offsets[lane])
            inside = 0 <= column < 8 and 0 <= row < 4
            nearest = image[min(max(row, 0), 3), min(max(column, 0), 7)]
            assert found[lane, 0] == (nearest if inside or mode == "clamp" else 0), lane


@pytest.mark.parametrize("geometry", ["2d", "a2d"])
def test_offsets_of_gathered_texels(geometry: str, backend: str) -> None:
    shape, layered = SHAPES[geometry], geometry[0] == "a"
    image = RNG.integers(0, 99, shape).astype(np.float32)
    layers = RNG.integers(0, 3, 64).astype(np.uint32)
    exact, given = places((4, 8), 64, False)
    offsets = [RNG.integers(-8, 8, 64).astype(np.int32) for _ in range(2)]
    zeros = np.zeros(64, np.uint32)
    found, _ = run(
        backend, fetch("tld4.r", geometry, ", {r5,r6}"), lambda d: d.texture(d.array(image), layered=layered),
        as_words(*given, zeros, zeros, *offsets, zeros, layers),
    )  # fmt: skip
    for lane in range(64):
        layer = image[layers[lane]] if layered else image
        x, y = (
            math.floor(axis[lane] - Fraction(1, 2)) + int(offset[lane])
            for axis, offset in zip(exact, offsets)
        )
        corners = [(x, y + 1), (x + 1, y + 1), (x + 1, y), (x, y)]
        assert found[lane].tolist() == [layer[min(max(j, 0), 3), min(max(i, 0), 7)] for i, j in corners]


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_depths_are_compared_before_they_are_filtered(comparison: str, backend: str) -> None:
    image = (RNG.integers(0, 4, (4, 8, 1)) / 4).astype(np.float32)
    exact, given = places((4, 8), 64, False)
    depth = (RNG.integers(0, 4, 64) / 4).astype(np.float32)
    for filter, mode in product(("nearest", "linear"), ("clamp", "border")):

        def texture(device: ge.Device, filter: str = filter, mode: str = mode) -> Any:
            array = device.array(image[..., 0])
            return device.texture(array, compare=comparison, filter=filter, address=mode, border=(0.5,))

        found, _ = run(backend, fetch("tex", "2d", ", f3"), texture, as_words(*given, depth))
        for lane in range(64):
            texels = around(image, [axis[lane] for axis in exact], mode, False, filter == "linear")
            wanted = mean(image, texels, 0.5, (float(depth[lane]), COMPARISONS[comparison]))
            assert found[lane, 0] == wanted[0], (filter, mode, lane)
        # a plain fetch of the same texture reads depths
        found, _ = run(backend, fetch("tex", "2d"), texture, as_words(*given, depth))
        for lane in range(64):
            texels = around(image, [axis[lane] for axis in exact], mode, False, filter == "linear")
            assert found[lane, 0] == mean(image, texels, 0.5)[0]
        # four results of the comparison
        found, _ = run(backend, fetch("tld4.r", "2d", ", f3"), texture, as_words(*given, depth))
        for lane in range(64):
            texels = around(image, [axis[lane] for axis in exact], mode, False, True)
            single = [
                mean(image, [(place, 1)], 0.5, (float(depth[lane]), COMPARISONS[comparison]))
                for place, _ in texels
            ]
            assert found[lane].tolist() == [single[corner][0] for corner in (1, 3, 2, 0)]


def test_depths_of_other_formats_and_components(backend: str) -> None:
    """Depths of 16 bits are compared as the numbers that a fetch reads; components that the format lacks stay 0, 0, 1."""
    stored = RNG.integers(0, 65536, 8).astype(np.uint16)
    x = np.arange(8).astype(np.float32) + np.float32(0.5)
    exact = (stored / np.float32(65535)).astype(np.float32)
    depth = np.where(np.arange(8) % 2, exact, exact + np.float32(0.01)).astype(np.float32)
    found, _ = run(
        backend, fetch("tex", "1d", ", f2"),
        lambda d: d.texture(d.array(stored), read="normalized", compare="equal"), as_words(x, depth),
    )  # fmt: skip
    assert found.tolist() == [[float(n % 2), 0, 0, 1] for n in range(8)]
    pairs = np.array([[1, 3], [2, 2]], np.float16)
    found, _ = run(
        backend, fetch("tex", "1d", ", f2"),
        lambda d: d.texture(d.array(pairs), channels=2, compare="less"), as_words(x[:2], np.float32([2, 1])),
    )  # fmt: skip
    assert found.tolist() == [[0, 1, 0, 1], [1, 1, 0, 1]]
    half = "tex.1d.v2.f16x2.f32 {r9,r10}, [l1, {f1}], f2; mov.b32 d0, r9; mov.b32 d1, r10;"
    found, _ = run(
        backend, half, lambda d: d.texture(d.array(pairs), channels=2, compare="less"),
        as_words(x[:2], np.float32([2, 1])),
    )  # fmt: skip
    assert found[:, :2].view(np.float16).tolist() == [[0, 1, 0, 1], [1, 1, 0, 1]]


def test_no_number_is_unequal_to_any(backend: str) -> None:
    depths, x = np.float32([np.nan, 1]), np.float32([0.5, 0.5, 1.5, 1.5])
    reference = np.float32([1, np.nan, np.nan, 1])
    for comparison, passes in COMPARISONS.items():
        found, _ = run(
            backend, fetch("tex", "1d", ", f2"),
            lambda d, c=comparison: d.texture(d.array(depths), compare=c), as_words(x, reference),
        )  # fmt: skip
        texels = depths[x.astype(int)]
        assert found[:, 0].tolist() == [float(passes(a, b)) for a, b in zip(reference, texels)]


@pytest.mark.parametrize("geometry", ["a1d", "a2d", "cube", "acube"])
def test_depths_of_layers_and_faces(geometry: str, backend: str) -> None:
    count, layered, cube = 32, geometry[0] == "a", "cube" in geometry
    layers = RNG.integers(0, 2, count).astype(np.uint32)
    depth = (RNG.integers(0, 4, count) / 4).astype(np.float32)
    if cube:
        image = (RNG.integers(0, 4, (6 * (1 + layered), 1, 1)) / 4).astype(np.float32)
        face = RNG.integers(0, 6, count)
        axes = np.zeros((count, 3), np.float32)
        axes[np.arange(count), face // 2] = 1 - 2 * (face % 2)
        names = ([LAYER] if layered else []) + ["f1", "f2", "f3"]
        coordinates = "{" + ",".join([*names, "f3"][:4]) + "}"
        line = f"tex.{geometry}.v4.f32.f32 {{d0,d1,d2,d3}}, [l1, {coordinates}], f4;"
        texels = image[6 * layers.astype(int) * layered + face, 0, 0]
        columns = [*axes.T, depth, *[depth] * 3, layers]
    else:
        shape = SHAPES[geometry]
        image = (RNG.integers(0, 4, shape) / 4).astype(np.float32)
        at = [RNG.integers(0, size, count) for size in shape[:0:-1]]
        line = fetch("tex", geometry, ", f4")
        texels = image[(layers, *at[::-1])]
        points = [axis.astype(np.float32) + np.float32(0.5) for axis in at]
        columns = [*points, *[depth] * (7 - len(points)), layers]
    found, _ = run(
        backend, line, lambda d: d.texture(d.array(image), layered=layered, cube=cube, normalized=cube, compare="less_equal"),
        as_words(*columns),
    )  # fmt: skip
    assert found[:, 0].tolist() == (depth <= texels).astype(float).tolist()


@pytest.mark.parametrize(
    ("dtype", "channels"), [("uint8", 1), ("uint16", 1), ("float32", 1), ("float32", 2), ("float32", 4)]
)
def test_everything_is_resident_or_the_texels_of_the_mask(dtype: str, channels: int, backend: str) -> None:
    """Texels of 1 to 16 bytes."""
    image = RNG.integers(1, 99, (4, 8, channels)).astype(dtype)
    mask = RNG.random((4, 8)) < 0.6
    exact, given = places((4, 8), 64, False)
    host = image if channels > 1 else image[..., 0]
    how = {"read": "normalized"} if dtype != "float32" else {}
    for filter, resident in product(("nearest", "linear"), (None, mask)):

        def texture(device: ge.Device, filter: str = filter, resident: Any = resident) -> Any:
            return device.texture(
                device.array(host),
                channels=channels,
                filter=filter,
                address="border",
                resident=resident,
                **how,
            )

        plain, _ = run(backend, fetch("tex", "2d"), texture, as_words(*given))
        found, there = run(backend, fetch("tex", "2d", pair="|p"), texture, as_words(*given))
        for lane in range(64):
            texels = around(image, [axis[lane] for axis in exact], "border", False, filter == "linear")
            counted = [place for place, weight in texels if place is not None and weight]
            wanted = resident is None or all(mask[place] for place in counted)
            assert there[lane] == wanted, lane
            assert found[lane].tolist() == (plain[lane].tolist() if wanted else [0] * 4), lane


def test_residency_of_volumes_layers_gathers_and_levels(backend: str) -> None:
    for geometry in ("3d", "a2d"):
        shape, layered = SHAPES[geometry], geometry[0] == "a"
        image, mask = RNG.random(shape).astype(np.float32), RNG.random(shape) < 0.5
        at = [RNG.integers(0, size, 32) for size in shape[::-1]]
        points = [axis.astype(np.float32) + np.float32(0.5) for axis in at[:2]]
        points.append(at[2].astype(np.float32) + np.float32(0.5))
        columns = [*points, *[points[0]] * 4, at[2].astype(np.uint32)]
        found, there = run(
            backend, fetch("tex", geometry, pair="|p"),
            lambda d, i=image, a=layered, m=mask: d.texture(d.array(i), layered=a, resident=m), as_words(*columns),
        )  # fmt: skip
        place = tuple(at[::-1])
        assert there.tolist() == mask[place].tolist()
        assert found[:, 0].tolist() == np.where(mask[place], image[place], 0).tolist()
    image, mask = RNG.random((4, 8)).astype(np.float32), RNG.random((4, 8)) < 0.8
    x, y = RNG.integers(0, 7, 32), RNG.integers(0, 3, 32)
    found, there = run(
        backend, fetch("tld4.r", "2d", pair="|p"), lambda d: d.texture(d.array(image), resident=mask),
        as_words((x + 1).astype(np.float32), (y + 1).astype(np.float32)),
    )  # fmt: skip
    four = [(y + 1, x), (y + 1, x + 1), (y, x + 1), (y, x)]
    wanted = np.all([mask[corner] for corner in four], axis=0)
    assert there.tolist() == wanted.tolist()
    assert found.tolist() == [
        [float(image[j[n], i[n]]) if wanted[n] else 0 for j, i in four] for n in range(32)
    ]
    # between two levels, both count that have a weight
    levels = [np.full(shape, value, np.float32) for shape, value in (((4, 8), 1), ((2, 4), 3))]
    masks = [np.ones((4, 8), np.bool_), np.zeros((2, 4), np.bool_)]
    masks[1][0] = True
    where = as_words(
        np.float32([0.5] * 4), np.float32([0.25, 0.25, 0.75, 0.75]), np.float32([0, 0.5, 0, 0.5])
    )
    found, there = run(
        backend, fetch("tex.level", "2d", pair="|p", level=", f3"),
        lambda d: d.texture([d.array(one) for one in levels], normalized=True, level_filter="linear", resident=masks), where,
    )  # fmt: skip
    assert there.tolist() == [1, 1, 1, 0]
    assert found[:, 0].tolist() == [1, 2, 1, 0]


def test_a_level_without_weight_does_not_count(backend: str) -> None:
    """Infinity in the second level reaches only lanes that are between the levels."""
    levels = [np.ones((2, 4), np.float32), np.full((1, 2), np.inf, np.float32)]
    found, _ = run(
        backend, fetch("tex.level", "2d", level=", f3"),
        lambda d: d.texture([d.array(one) for one in levels], normalized=True, level_filter="linear"),
        as_words(*[np.float32([0.5] * 3)] * 2, np.float32([0, 0.5, 1])),
    )  # fmt: skip
    assert found[:, 0].tolist() == [1, np.inf, np.inf]


def test_everything_at_once(backend: str) -> None:
    image = (RNG.integers(0, 4, (4, 8)) / 4).astype(np.float32)
    mask = RNG.random((4, 8)) < 0.7
    x, y = RNG.integers(0, 8, 64), RNG.integers(0, 4, 64)
    offsets = [RNG.integers(-8, 8, 64).astype(np.int32) for _ in range(2)]
    depth = (RNG.integers(0, 4, 64) / 4).astype(np.float32)
    points = [axis.astype(np.float32) + np.float32(0.5) for axis in (x, y)]
    found, there = run(
        backend, fetch("tex", "2d", ", {r5,r6}, f3", "|p"),
        lambda d: d.texture(d.array(image), compare="greater", resident=mask),
        as_words(*points, depth, depth, *offsets),
    )  # fmt: skip
    place = np.clip(y + offsets[1], 0, 3), np.clip(x + offsets[0], 0, 7)
    assert there.tolist() == mask[place].tolist()
    assert found[:, 0].tolist() == (mask[place] & (depth > image[place])).astype(float).tolist()


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("layered", [False, True])
def test_samples_of_texels(layered: bool, channels: int, backend: str) -> None:
    """The sample is first, the layer second (ptxas 13.0 clamps the second one to the largest layer)."""
    shape = (3, 4, 8, 4) if layered else (4, 8, 4)
    image, mask = RNG.random((*shape, channels)).astype(np.float32), RNG.random(shape) < 0.7
    sample, layer = RNG.integers(0, 4, 64), RNG.integers(0, 5, 64)
    x, y = RNG.integers(-3, 11, 64), RNG.integers(-3, 7, 64)
    offsets = [RNG.integers(-8, 8, 64) for _ in range(2)]
    coordinates = [sample, *([layer] if layered else []), x, y, x][:4]
    words = as_words(*[one.astype(np.int32) for one in [*coordinates, *offsets]])
    line = f"tex.{'a' * layered}2dms.v4.f32.s32 {{d0,d1,d2,d3}}|p, [l1, {{r1,r2,r3,r4}}]"
    for resident, more in product((None, mask), ("", ", {r5,r6}")):

        def texture(device: ge.Device, resident: Any = resident) -> Any:
            host = device.array(image if channels > 1 else image[..., 0])
            return device.texture(host, channels=channels, layered=layered, samples=4, resident=resident)

        found, there = run(backend, line + more + ";", texture, words)
        moved = [axis + (offset if more else 0) for axis, offset in zip((x, y), offsets)]
        place = np.clip(moved[1], 0, 3), np.clip(moved[0], 0, 7), sample
        place = (np.minimum(layer, 2), *place) if layered else place
        wanted = np.ones(64, np.bool_) if resident is None else mask[place]
        assert there.tolist() == wanted.tolist()
        assert (found[:, :channels] == image[place] * wanted[:, None]).all()
    query = "txq.num_samples.b32 r9, [l1]; mov.b32 d0, r9; txq.width.b32 r9, [l1]; mov.b32 d1, r9;"
    found, _ = run(backend, query, texture, words)
    assert found[0, :2].view(np.uint32).tolist() == [4, 8]


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("tex.2d.v4.f32.f32 {d0,d1,d2,d3}, [l1, {f1,f2}], {8, 0};", {}, r"an offset of operand e.*\n.*\n.*-8 to 7 texels"),
        ("tex.2d.v4.f32.s32 {d0,d1,d2,d3}, [l1, {r1,r2}], {0, -9};", {}, "tex.2d.v4.f32.s32: an offset of operand e"),
        ("tld4.g.2d.v4.f32.f32 {d0,d1,d2,d3}, [l1, {f1,f2}], {r5, 9};", {}, "tld4.g.2d.v4.f32.f32: an offset"),
        ("tex.2d.v4.f32.f32 {d0,d1,d2,d3}, [l1, {f1,f2}], f3;", {}, r"no comparison for the depth.*\n.*\n.*compare='less_equal'"),
        ("tld4.r.2d.v4.f32.f32 {d0,d1,d2,d3}, [l1, {f1,f2}], {0,0}, f3;", {}, "no comparison for the depth"),
        ("tex.2d.v4.f32.f32 {d0,d1,d2,d3}, [l1, {f1,f2}], {9, 0}, f3;", {"compare": "less"}, "an offset of operand e"),
        ("tex.1d.v4.f32.f32 {d0,d1,d2,d3}|p, [l1, {f1}], {9}, f3;", {}, "the texture is 2d"),
        ("tex.2dms.v4.f32.s32 {d0,d1,d2,d3}, [l1, {r1,r1,r1,r1}];", {}, "the texture is 2d"),
    ],
)  # fmt: skip
def test_operands_that_mean_nothing(line: str, options: dict[str, Any], message: str, backend: str) -> None:
    with pytest.raises(ge.TrapError, match=message) as caught:
        run(
            backend,
            line,
            lambda d: d.texture(d.zeros((4, 4), np.float32), **options),
            np.zeros((1, 1), np.uint32),
        )
    assert str(caught.value).startswith("k.ptx:")


def test_samples_that_a_texture_lacks(backend: str) -> None:
    for line, message in (
        ("tex.2dms.v4.f32.s32 {d0,d1,d2,d3}, [l1, {2,0,0,0}];", r"lacks this sample\n.*\n.*accepted: 0 to 1"),
        ("tex.2dms.v4.f32.s32 {d0,d1,d2,d3}, [l1, {0x7fffffff,0,0,0}];", "lacks this sample"),
        (
            "tex.2dms.v4.f32.s32 {d0,d1,d2,d3}, [l1, {2,0,0,0}], {0,0};",
            "is out of range or the texture lacks the sample",
        ),
        ("tex.2d.v4.f32.s32 {d0,d1,d2,d3}, [l1, {0,0}];", "the texture is 2dms"),
    ):
        with pytest.raises(ge.TrapError, match=message):
            run(
                backend,
                line,
                lambda d: d.texture(d.zeros((4, 4, 2), np.float32), samples=2),
                np.zeros((1, 1), np.uint32),
            )


def test_textures_without_these_properties() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    plane = device.zeros((4, 8), np.float32)
    mask = np.ones((4, 8), np.bool_)
    for make, message in (
        (lambda: device.texture(plane, compare="always"), "compare='always'\n  accepted: 'less'"),
        (lambda: device.texture(plane, compare=3), "compare=3"),
        (lambda: device.texture(device.zeros(4, np.int32), compare="less"), "a depth texture of int32"),
        (lambda: device.texture(plane, resident=mask[0]), r"resident= of bool and shape (8,)"),
        (lambda: device.texture(plane, resident=mask.astype(int)), "resident= of int64"),
        (lambda: device.texture(plane, resident=True), "resident= of bool and shape ()"),
        (lambda: device.texture([plane, device.zeros((2, 4), np.float32)], resident=mask), "2 levels with resident= for 1"),
        (lambda: device.texture(plane, samples=3), "samples=3"),
        (lambda: device.texture(plane, samples=4), "a texture of 4 samples from an array of shape (4, 8)"),
        (lambda: device.texture(plane, samples=8), "a texture with samples has two dimensions"),
        (lambda: device.texture([device.zeros((4, 4, 2)), device.zeros((2, 2, 2))], samples=2), "2 levels with samples"),
    ):  # fmt: skip
        with pytest.raises((ge.LaunchError, ge.ArgumentError)) as caught:
            make()
        assert message in str(caught.value)
