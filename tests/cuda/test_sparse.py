"""Sparse textures of CUDA C++: functions with a last argument that says whether the texels are resident."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge

from .running import module

RNG = np.random.default_rng(8)
COUNT = 64
SHAPES = {"plane": (8, 16), "volume": (4, 8, 16), "layers": (3, 8, 16)}


def halved(shape: tuple[int, ...], layered: bool) -> tuple[int, ...]:
    return (*shape[:1], *(size // 2 for size in shape[1:])) if layered else tuple(size // 2 for size in shape)


def launch(device: ge.Device, entry: str, args: list[Any]) -> None:
    profile = device.launch(module("sparse")[entry], COUNT // 32, 32, args)
    assert profile.remarks == ()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("way", ["", "_level", "_slope"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_function(shape: str, way: str, sparse: bool, backend: str) -> None:
    extent, layered, volume = SHAPES[shape], shape == "layers", shape == "volume"
    extents = [extent, halved(extent, layered)]
    texels = [RNG.random(size).astype(np.float32) for size in extents]
    masks = [RNG.random(size) < 0.5 for size in extents]
    # in the volume, kernels ask for level 1, or step over four texels
    level = RNG.integers(0, 2, COUNT) if not volume else np.ones(COUNT, int)
    level = level if way else 0 * level
    whole = [RNG.integers(0, size, COUNT) for size in extent[::-1]]
    x, y, *z = [((axis + 0.5) / size).astype(np.float32) for axis, size in zip(whole, extent[::-1])]
    if not volume:
        # a step over 2ⁿ texels means level n
        z = [(level if way == "_level" else 2.0**level / extent[-1]).astype(np.float32)]
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    texture = device.texture(
        [device.array(one) for one in texels], layered=layered, normalized=True, resident=masks if sparse else None
    )  # fmt: skip
    out, there = device.zeros(COUNT, np.float32), device.zeros(COUNT, np.int32)
    numbers = device.array(whole[-1].astype(np.int32))
    launch(device, shape + way, [texture, *map(device.array, (x, y, z[0])), numbers, out, there])
    for thread in range(COUNT):
        n = int(level[thread])
        place = tuple(
            int(axis[thread]) >> (0 if layered and number == 2 else n) for number, axis in enumerate(whole)
        )[::-1]
        resident = not sparse or bool(masks[n][place])
        assert there.numpy()[thread] == resident, thread
        assert out.numpy()[thread] == (texels[n][place] if resident else 0)


@pytest.mark.parametrize("sparse", [False, True])
def test_gathers(sparse: bool, backend: str) -> None:
    """Between four texels; the kernel takes the third, on the upper right."""
    texels, mask = RNG.random((8, 16)).astype(np.float32), RNG.random((8, 16)) < 0.8
    x, y = RNG.integers(1, 16, COUNT), RNG.integers(1, 8, COUNT)
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    texture = device.texture(device.array(texels), resident=mask if sparse else None)
    points = [device.array(axis.astype(np.float32)) for axis in (x, y, x)]
    out, there = device.zeros(COUNT, np.float32), device.zeros(COUNT, np.int32)
    launch(device, "gather", [texture, *points, device.zeros(COUNT, np.int32), out, there])
    resident = mask[y, x] & mask[y - 1, x] & mask[y, x - 1] & mask[y - 1, x - 1] | (not sparse)
    assert there.numpy().tolist() == resident.tolist()
    assert out.numpy().tolist() == np.where(resident, texels[y - 1, x], 0).tolist()


def test_the_finest_level_in_memory(backend: str) -> None:
    """A loop over levels, whose exit each thread takes where it finds a texel."""
    extents = [(8, 16), (4, 8), (2, 4)]
    texels = [RNG.random(size).astype(np.float32) for size in extents]
    masks = [RNG.random(extents[0]) < 0.3, RNG.random(extents[1]) < 0.6, np.zeros(extents[2], np.bool_)]
    masks[2][0] = True
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    texture = device.texture([device.array(one) for one in texels], normalized=True, resident=masks)
    x, y = RNG.integers(0, 16, COUNT), RNG.integers(0, 8, COUNT)
    out = device.zeros((COUNT, 2), np.float32)
    points = [device.array(((axis + 0.5) / size).astype(np.float32)) for axis, size in ((x, 16), (y, 8))]
    launch(device, "finest", [texture, *points, np.int32(3), out])
    for thread in range(COUNT):
        places = [(y[thread] >> n, x[thread] >> n) for n in range(3)]
        found = next((n for n in range(3) if masks[n][places[n]]), None)
        wanted = [-1, 2] if found is None else [float(texels[found][places[found]]), found]
        assert out.numpy()[thread].tolist() == wanted
