"""Machine code that reads textures and reads and writes surfaces: the run must leave the same bytes, which NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from gpuperf_engine.sass.code import counted_code
from tests.cuda import compiled
from tests.support import needs_assembler

pytestmark = needs_assembler

ARCHITECTURES = ("sm_86", "sm_90a", "sm_120a")
SHAPES = {"1d": (9,), "2d": (5, 9), "3d": (4, 5, 9), "a1d": (3, 9), "a2d": (3, 5, 9)}
KINDS = {"float": (np.float32, 1), "ushort2": (np.uint16, 2), "char4": (np.int8, 4)}
MODULE = ge.parse(compiled.ptx("cuda/kernels/textures"), path="textures.ptx")
SPARSE = ge.parse(compiled.ptx("cuda/kernels/sparse"), path="sparse.ptx")
RNG = np.random.default_rng(3)


def a_device() -> ge.Device:
    return ge.Device(observe={"memory", "inputs"}, memory_bytes=1 << 24)


def check(profile: ge.Profile, opcode: str, executed: int) -> None:
    for architecture in ARCHITECTURES:
        code = counted_code(profile, architecture)
        assert (code.ways, code.residue) == ("flow and run", 0.0), (architecture, code.notes)
        assert code.by_opcode[opcode] == executed, architecture


@pytest.mark.parametrize("geometry", SHAPES)
def test_nearest_texels(geometry: str) -> None:
    shape, layered = SHAPES[geometry], geometry[0] == "a"
    places = [RNG.integers(0, size, 64) for size in shape[::-1]]
    for kind, (dtype, channels) in KINDS.items():
        device = a_device()
        texels = RNG.integers(0, 100, (*shape, channels)).astype(dtype)
        image = device.array(texels if channels > 1 else texels[..., 0])
        texture = device.texture(image, channels=channels, layered=layered)
        axes = places[: len(places) - layered]
        points = [(axis + np.float32(0.5)).astype(np.float32) for axis in axes]
        points += [np.zeros(64, np.float32)] * (3 - len(points))
        out = device.zeros((64, 4), np.float32 if kind == "float" else np.int32)
        layers = places[-1].astype(np.int32)
        args = [texture, *map(device.array, points), device.array(layers), out]
        profile = device.launch(MODULE[f"fetch_{geometry}_{kind}"], 2, 32, args)
        assert (out.numpy()[:, :channels] == texels[tuple(places[::-1])]).all()
        check(profile, "TEX", 2)


def test_whole_coordinates_and_levels() -> None:
    device = a_device()
    texels = RNG.integers(0, 100, 40).astype(np.int32)
    x, out = np.arange(-12, 52).astype(np.int32), device.zeros((64, 4), np.int32)
    texture = device.texture(device.array(texels), linear_memory=True)
    profile = device.launch(MODULE["fetch_int_int"], 2, 32, [texture, device.array(x), out])
    assert (out.numpy()[:, 0] == np.where((x >= 0) & (x < 40), texels[np.clip(x, 0, 39)], 0)).all()
    check(profile, "TLD", 2)
    plane = device.texture(device.array(RNG.random((4, 6)).astype(np.float32)), filter="linear")
    points = [device.array((RNG.random(64) * 6).astype(np.float32)) for _ in range(2)]
    profile = device.launch(MODULE["levels"], 2, 32, [plane, *points, device.zeros((64, 2), np.float32)])
    check(profile, "TXD", 2)
    four = device.texture(device.array(RNG.random((4, 6, 4)).astype(np.float32)), channels=4)
    profile = device.launch(MODULE["gathers"], 2, 32, [four, *points, device.zeros((64, 16), np.float32)])
    check(profile, "TLD4", 2 * 4)


def test_handles_in_memory() -> None:
    """Each lane reads the texture with the number of its remainder by four, the last of them none."""
    device = a_device()
    images = [RNG.random((4, 6)).astype(np.float32) for _ in range(3)]
    handles = np.array([device.texture(device.array(image)).handle for image in images], np.uint64)
    x, y = RNG.integers(0, 6, 64), RNG.integers(0, 4, 64)
    points = [device.array((axis + 0.5).astype(np.float32)) for axis in (x, y)]
    out = device.zeros(64, np.float32)
    profile = device.launch(MODULE["table"], 2, 32, [device.array(handles), np.int32(3), *points, out])
    wanted = [images[at % 4][y[at], x[at]] if at % 4 < 3 else np.float32(-1) for at in range(64)]
    assert out.numpy().tolist() == [float(value) for value in wanted]
    for architecture, executed in zip(ARCHITECTURES, (2, 2 * 3, 2 * 3)):  # later ones in a loop over handles
        code = counted_code(profile, architecture)
        assert "run" in code.ways and code.residue == 0, (architecture, code.notes)
        assert code.by_opcode["TEX"] == executed, architecture


def test_surfaces() -> None:
    device = a_device()
    image = RNG.random((6, 32)).astype(np.float32)
    target = device.empty((6, 32), np.float32)
    surfaces: list[Any] = [device.surface(device.array(image)), device.surface(target)]
    profile = device.launch(MODULE["shift"], (4, 3), (8, 2), surfaces)
    left = np.concatenate([np.zeros((6, 1), np.float32), image[:, :-1]], axis=1)
    assert (target.numpy() == image + left).all()
    check(profile, "SULD", 12 * 2)
    check(profile, "SUST", 12)
    volume, layers = device.zeros((3, 4, 8), np.int16), device.zeros((3, 4, 8), np.uint8)
    written = [device.surface(volume), device.surface(layers, layered=True)]
    profile = device.launch(MODULE["scatter"], 1, (16, 8, 5), written)
    z, y, x = np.indices((3, 4, 8))
    assert (volume.numpy() == 100 * z + 10 * y + x).all()
    assert (layers.numpy() == (16 * z + 4 * y + x) % 256).all()
    check(profile, "SUST", 2 * 16 * 8 * 5 // 32)
    texel = RNG.integers(0, 100, (20, 4)).astype(np.uint8)
    for mode in ("zero", "clamp"):
        out = device.zeros((32, 3, 4), np.int32)
        surface = device.surface(device.array(texel), channels=4)
        profile = device.launch(MODULE[f"around_{mode}"], 1, 32, [surface, out])
        at = 16 * (np.arange(32) - 8)
        start = np.clip(at, 0, 64)
        wanted = np.stack([texel.reshape(-1)[place : place + 16].view(np.int32) for place in start])
        if mode == "zero":
            wanted[(at < 0) | (at > 64)] = 0
        assert (out.numpy()[:, 2] == wanted).all()
        check(profile, "SULD", 2)  # two of the three reads are of the same four bytes


def test_residency() -> None:
    """Predicates of fetches decide how often a loop runs."""
    device = a_device()
    sizes = [(8, 16), (4, 8), (2, 4)]
    texels = [RNG.random(size).astype(np.float32) for size in sizes]
    masks = [RNG.random(size) < share for size, share in zip(sizes, (0.3, 0.6, 0.7))]
    texture = device.texture(list(map(device.array, texels)), normalized=True, resident=masks)
    x, y = (RNG.random(64).astype(np.float32) for _ in range(2))
    points = [device.array(axis) for axis in (x, y)]
    out = device.zeros((64, 2), np.float32)
    profile = device.launch(SPARSE["finest"], 2, 32, [texture, *points, np.int32(3), out])
    there = [mask[(y * mask.shape[0]).astype(int), (x * mask.shape[1]).astype(int)] for mask in masks]
    tries = 1 + ~there[0] + (~there[0] & ~there[1])
    assert (out.numpy()[:, 1] == tries - 1).all()
    check(profile, "TEX", sum(int(warp.max()) for warp in tries.reshape(2, 32)))
    level = device.array(np.zeros(64, np.float32))
    layers, value, found = (device.zeros(64, kind) for kind in (np.int32, np.float32, np.int32))
    for name, opcode in (("plane", "TEX"), ("plane_level", "TEX"), ("gather", "TLD4")):
        profile = device.launch(SPARSE[name], 2, 32, [texture, *points, level, layers, value, found])
        assert name == "gather" or found.numpy().tolist() == there[0].tolist()
        check(profile, opcode, 2)
