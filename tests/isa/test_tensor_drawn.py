"""Tensor copies of boxes, slices and pixels that are drawn at random, against plain loops over the manual's words."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.tensors import (
    EMPTY,
    NAN,
    SHARED,
    Array,
    expected_load,
    load,
    moved,
    random_bytes,
    run,
    shared_after,
    walk,
)


def drawn(seed: int) -> Any:
    """A tensor, its strides, and a copy: dtype, shape, strides, box, start (innermost first), options."""
    rng = np.random.default_rng([17, seed])
    dtype = [np.uint8, np.uint16, np.int32, np.float32, np.float64, np.float16][rng.integers(6)]
    width = np.dtype(dtype).itemsize
    rank = int(rng.integers(1, 6))
    piece = 16 // width
    swizzle = str(rng.choice(["none", "32B", "64B", "128B"]))
    most = {"none": 4, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    inner = piece * int(rng.integers(1, most + 1))
    shape, box, room = [int(rng.integers(1, 3 * inner))], [inner], 512 // (inner * width)
    for _ in range(rank - 1):
        shape.append(int(rng.integers(1, 9)))
        box.append(int(rng.integers(1, max(2, min(6, room + 1)))))
        room //= box[-1]
    steps = [int(rng.integers(1, 4)) if rng.random() < 0.3 else 1 for _ in box]
    start = [int(rng.integers(-size, 2 * size)) // 2 for size in shape]
    pitch, strides = -(-shape[0] * width // 16) * 16, [width]
    for size in shape[1:]:
        strides.append(pitch)
        pitch = (size + int(rng.integers(0, 2))) * pitch
    options: dict[str, Any] = {"swizzle": swizzle, "element_strides": tuple(steps[::-1])}
    if np.dtype(dtype).kind == "f" and rng.random() < 0.5:
        options["fill"] = "nan"
    return dtype, tuple(shape[::-1]), tuple(strides[::-1]), pitch, tuple(box[::-1]), tuple(start), options


@pytest.mark.parametrize("seed", range(40))
def test_drawn_boxes(seed: int, backend: str) -> None:
    dtype, shape, strides, size, box, start, options = drawn(seed)
    memory = np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)
    array = np.lib.stride_tricks.as_strided(memory.view(dtype), shape, strides)
    steps = (*options["element_strides"][:-1], 1)
    width = np.dtype(dtype).itemsize
    padding = NAN * (width // 2) if "fill" in options else bytes(width)
    wanted = expected_load(array, box[::-1], start, steps[::-1], options["swizzle"], padding, 2048)
    moves = width * int(np.prod([-(-length // step) for length, step in zip(box, steps)]))
    text = load(f"{len(shape)}d.shared::cluster.global.tile", start, moves, offset=2048)
    make = partial(ge.TensorMap, box=box, shape=shape, strides=strides, dtype=dtype, **options)
    _, found, _ = run(backend, text, memory, np.zeros(SHARED, np.uint8), make)
    assert (found == wanted).all()


def column(
    rng: np.random.Generator, wide: bool
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Sizes of W, H, D; corners and strides of those that are walked; where a copy begins along all of them."""
    sizes = [int(rng.integers(1, 8)) for _ in range(rng.integers(1, 4))]
    walked = sizes[:1] if wide else sizes
    lower = [int(rng.integers(-3, size)) for size in walked]
    upper = [int(rng.integers(low + 1, size + 4)) - size for low, size in zip(lower, walked)]
    steps = [int(rng.integers(1, 4)) for _ in walked]
    start = [int(rng.integers(low, size + high)) for low, high, size in zip(lower, upper, walked)]
    if wide:
        start = [start[0] - int(rng.integers(0, 4)), *(int(rng.integers(-1, size + 1)) for size in sizes[1:])]
    return sizes, lower, upper, steps, start


def pixel(image: Array, at: tuple[int, ...], first: int, length: int) -> bytes:
    """Channels of a pixel (W first), or what stands for them outside."""
    if all(0 <= here < size for here, size in zip(at, image.shape[-2::-1])):
        channels = np.zeros(length, image.dtype)
        inside = image[at[::-1]][first : first + length]
        channels[: inside.size] = inside
        if image.dtype == np.float16:
            channels.view(np.uint16)[inside.size :] = 0x7FF7
        return channels.tobytes()
    return NAN * length if image.dtype == np.float16 else bytes(length)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("mode", ["im2col", "im2col::w", "im2col::w::128"])
def test_drawn_pixels(mode: str, seed: int, backend: str) -> None:
    rng = np.random.default_rng([23, seed])
    wide = mode != "im2col"
    sizes, lower, upper, steps, start = column(rng, wide)
    dtype = [np.uint8, np.float16][seed % 2]
    length = 16 // np.dtype(dtype).itemsize * (1 if wide else int(rng.integers(1, 4)))
    n, first = int(rng.integers(0, 3)), int(rng.integers(0, 2)) * length // 2
    image = random_bytes((3, *sizes[::-1], 2 * length * np.dtype(dtype).itemsize), seed).view(dtype)
    pixels, groups = (128, 4) if mode.endswith("128") else (int(rng.integers(1, 60)), 1)
    swizzle = str(rng.choice(["64B", "128B"] if wide else ["none", "64B", "128B"]))
    options: dict[str, Any] = {"swizzle": swizzle, "fill": "nan" if dtype is np.float16 else "zero"}
    ends = [size + high for size, high in zip(sizes, upper)]
    if wide:
        halo, moves = int(rng.integers(0, 6)), int(rng.integers(0, 4))
        offsets = [halo, moves]
        found = walk((start[0] + moves, n), [lower[0] + moves], [ends[0] + moves], steps, pixels + halo)
        order = [*range(pixels)]
        order += [pixels // groups * (g + 1) + more for more in range(halo) for g in range(groups)]
        places = [(found[number][0], *start[1:], found[number][1]) for number in order]
        make = partial(
            ge.TensorMap.im2col_wide, channels=length, pixels=None if groups > 1 else pixels, lower=lower[0], upper=upper[0],
            element_strides=(1, *(1,) * (len(sizes) - 1), steps[0], 1), **options,
        )  # fmt: skip
    else:
        offsets = [int(rng.integers(0, 4)) for _ in sizes]
        found = walk((*start, n), lower, ends, steps, pixels)
        places = [(*(here + off for here, off in zip(at, offsets)), at[-1]) for at in found]
        make = partial(
            ge.TensorMap.im2col, channels=length, pixels=pixels, lower=lower[::-1], upper=upper[::-1],
            element_strides=(1, *steps[::-1], 1), **options,
        )  # fmt: skip
    raw = b"".join(pixel(image, at, first, length) for at in places)
    pieces = [(moved(place, swizzle), raw[place : place + 16]) for place in range(0, len(raw), 16)]
    text = load(
        f"{len(sizes) + 2}d.shared::cta.global.{mode}",
        (first, *start, n),
        len(raw),
        offsets=offsets,
        target="sm_100a",
    )
    _, result, _ = run(backend, text, image, EMPTY, make)
    assert (result == shared_after(pieces)).all()


@pytest.mark.parametrize("seed", range(16))
def test_drawn_slices(seed: int, backend: str) -> None:
    rng = np.random.default_rng([29, seed])
    size = [16, 32][seed % 2]
    shape = [int(rng.integers(1, 7)) for _ in range(rng.integers(3, 6))]
    box = [int(rng.integers(1, 5)) for _ in shape]
    box[1] = 1
    steps = [int(rng.integers(1, 4)) if rng.random() < 0.4 else 1 for _ in shape]
    start = [int(rng.integers(-2, length)) for length in shape]
    swizzle = "32B" if size == 32 else str(rng.choice(["none", "32B", "64B", "128B"]))
    tensor = random_bytes((*shape, size), seed)
    pieces = []
    for index in itertools.product(*(range(-(-length // step)) for length, step in zip(box, steps))):
        at = tuple(first + step * here for first, step, here in zip(start, steps, index))
        good = all(0 <= here < length for here, length in zip(at, shape))
        raw = tensor[at].tobytes() if good else bytes(size)
        pieces += [
            (moved(16 * (len(pieces) + half), swizzle), raw[16 * half : 16 * half + 16])
            for half in range(size // 16)
        ]
    text = load(f"{len(shape)}d.shared::cta.global.tile", start[::-1], 16 * len(pieces))
    make = partial(ge.TensorMap, box=box, element_strides=steps, interleave=f"{size}B", swizzle=swizzle)
    _, result, _ = run(backend, text, tensor, EMPTY, make)
    assert (result == shared_after(pieces)).all()
