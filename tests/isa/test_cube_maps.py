"""Cube maps and levels of detail against the formulas of the CUDA C++ Programming Guide ("Cubemap Textures") and the PTX manual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.6", "sm_80")
ENTRY = """.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 x) {
.reg .b32 r<9>; .reg .b64 l<9>; .reg .f32 f<16>;
ld.param.u64 l1, [image]; ld.param.u64 l2, [out]; ld.param.u64 l3, [x];
mov.u32 r8, %tid.x; mul.wide.u32 l8, r8, 16; add.u64 l2, l2, l8; mul.wide.u32 l8, r8, 32; add.u64 l3, l3, l8;
ld.global.v4.f32 {f1,f2,f3,f4}, [l3]; ld.global.v4.f32 {f5,f6,f7,f8}, [l3+16]; mov.b32 r1, f1; mov.b32 r2, f2;
"""


def run(backend: str, body: str, make: Any, x: np.ndarray) -> np.ndarray:
    """The four floats that each thread stores to [l2], having read its eight numbers of x to f1 … f8."""
    device = ge.Device(backend=backend, memory_bytes=1 << 22)
    kernel = ge.parse(HEAD + ENTRY + body + "\nst.global.v4.f32 [l2], {f12,f13,f14,f15}; ret; }\n")["k"]
    out = device.zeros((len(x), 4), np.float32)
    given = np.zeros((len(x), 8), np.float32)
    given[:, : x.shape[1]] = x
    device.launch(kernel, 1, len(x), [make(device), out, device.array(given)])
    return out.numpy()


def face_of(v: np.ndarray) -> tuple[int, float, float, float]:
    """The table of the guide: face, s, t and m of a direction."""
    x, y, z = map(float, v)
    if abs(x) >= abs(y) and abs(x) >= abs(z):
        return (0, -z, -y, x) if x >= 0 else (1, z, -y, -x)
    if abs(y) >= abs(z):
        return (2, x, z, y) if y >= 0 else (3, x, -z, -y)
    return (4, x, -y, z) if z >= 0 else (5, -x, -y, -z)


def directions(count: int = 96) -> np.ndarray:
    generator = np.random.default_rng(5)
    drawn = generator.integers(-64, 65, (count, 3)).astype(np.float32) / 16
    drawn[:8] = [
        [1, 1, 1],
        [-1, 1, 1],
        [1, -1, 1],
        [1, 1, -1],
        [-1, -1, 1],
        [-2, -2, -2],
        [0, 0, 1],
        [0, -3, 3],
    ]
    return drawn[np.abs(drawn).max(1) > 0]


@pytest.mark.parametrize("layered", [False, True])
def test_a_direction_leads_to_a_face_and_a_texel_of_it(layered: bool, backend: str) -> None:
    size, cubes = 5, 3 if layered else 1
    faces = np.random.default_rng(1).standard_normal((6 * cubes, size, size, 2)).astype(np.float32)
    v = directions()
    layer = np.arange(len(v)) % 5 if layered else np.zeros(len(v), int)
    x = np.concatenate([layer.astype(np.int32).view(np.float32)[:, None], v], 1) if layered else v
    coordinates = "{r1,f2,f3,f4}" if layered else "{f1,f2,f3,f3}"
    found = run(
        backend,
        f"tex.{'a' * layered}cube.v4.f32.f32 {{f12,f13,f14,f15}}, [l1, {coordinates}];",
        lambda d: d.texture(d.array(faces), channels=2, cube=True, layered=layered, normalized=True),
        x,
    )
    for lane, direction in enumerate(v):
        face, s, t, m = face_of(direction)
        column, row = (
            min(int(np.floor(np.float32((np.float32(c / m) + 1) * 0.5) * np.float32(size))), size - 1)
            for c in (s, t)
        )
        cube = min(int(layer[lane]), cubes - 1)
        assert found[lane].tolist() == [*faces[6 * cube + face, row, column].tolist(), 0, 1], direction


def test_filtering_stays_within_a_face(backend: str) -> None:
    size = 4
    faces = np.random.default_rng(2).integers(-99, 99, (6, size, size)).astype(np.float32)
    v = directions()
    found = run(
        backend,
        "tex.cube.v4.f32.f32 {f12,f13,f14,f15}, [l1, {f1,f2,f3,f3}];",
        lambda d: d.texture(d.array(faces), cube=True, normalized=True, filter="linear"),
        v,
    )
    for lane, direction in enumerate(v):
        face, s, t, m = face_of(direction)
        rows, columns = [], []
        for c, to in ((s, columns), (t, rows)):
            at = (c / m + 1) / 2 * size - 0.5
            low = int(np.floor(at))
            to += [(low, 1 - (at - low)), (low + 1, at - low)]
        wanted = sum(
            wy * wx * faces[face, min(max(y, 0), size - 1), min(max(x, 0), size - 1)]
            for y, wy in rows
            for x, wx in columns
        )
        assert abs(found[lane, 0] - wanted) <= 198 * 3 / 256, direction


def test_four_texels_of_a_face(backend: str) -> None:
    faces = np.arange(6 * 4 * 4, dtype=np.float32).reshape(6, 4, 4)
    v = np.array([[1, 0, 0], [-0.1, 2, 0.1], [0, 0, -1]], np.float32)
    found = run(
        backend,
        "tld4.r.cube.v4.f32.f32 {f12,f13,f14,f15}, [l1, {f1,f2,f3,f3}];",
        lambda d: d.texture(d.array(faces), cube=True, normalized=True),
        v,
    )
    for lane, (face, x, y) in enumerate([(0, 1, 1), (2, 1, 1), (5, 1, 1)]):
        wanted = [faces[face, y + 1, x], faces[face, y + 1, x + 1], faces[face, y, x + 1], faces[face, y, x]]
        assert found[lane].tolist() == wanted


def pyramid(shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    """Levels whose texels are all the number of the level, the first 100."""
    return [
        np.full([max(1, side >> level) for side in shape], 100 + level, np.float32) for level in range(count)
    ]


@pytest.mark.parametrize("way", ["nearest", "linear"])
def test_levels_that_are_asked_for(way: str, backend: str) -> None:
    x = np.array([[-3], [0], [0.25], [0.5], [0.75], [1], [1.5], [2.25], [3], [9], [np.inf]], np.float32)

    def texture(device: ge.Device, **options: Any) -> Any:
        levels = [device.array(level) for level in pyramid((9, 6), 4)]
        return device.texture(levels, normalized=True, level_filter=way, **options)

    body = "tex.level.2d.v4.f32.f32 {f12,f13,f14,f15}, [l1, {0f3F000000,0f3F000000}], f1;"
    found = run(backend, body, texture, x)[:, 0] - 100
    wanted = np.clip(np.minimum(x[:, 0], 9), 0, 3)
    assert found.tolist() == (np.ceil(wanted - 0.5) if way == "nearest" else wanted).tolist()
    found = run(backend, body, lambda d: texture(d, level_bias=0.5, level_range=(1, 2.5)), x)[:, 0] - 100
    shifted = np.clip(np.minimum(x[:, 0], 9) + 0.5, 1, 2.5)
    assert found.tolist() == (np.ceil(shifted - 0.5) if way == "nearest" else shifted).tolist()


def test_texels_of_a_level(backend: str) -> None:
    """Each level has its own size, row length and memory; without a level the first is read."""
    generator = np.random.default_rng(3)
    levels = [
        generator.standard_normal((max(1, 7 >> n), max(1, 12 >> n))).astype(np.float32) for n in range(4)
    ]
    x = np.array(
        [[column, row, level] for level in range(4) for row in (0, 1, 9) for column in (0, 2, 11)], np.int32
    )

    def texture(device: ge.Device) -> Any:
        return device.texture([device.array(level) for level in levels])

    given = x.view(np.float32)
    body = "mov.b32 r3, f3; tex.level.2d.v4.f32.s32 {f12,f13,f14,f15}, [l1, {r1,r2}], r3;"
    found = run(backend, body, texture, given)
    for lane, (column, row, level) in enumerate(x):
        image = levels[level]
        assert found[lane, 0] == image[min(row, image.shape[0] - 1), min(column, image.shape[1] - 1)]
    found = run(backend, "tex.2d.v4.f32.s32 {f12,f13,f14,f15}, [l1, {r1,r2}];", texture, given)
    assert found[:, 0].tolist() == [levels[0][min(row, 6), min(column, 11)] for column, row, _ in x]
    body = "mov.b32 r3, f3; txq.level.width.b32 r4, [l1], r3; txq.level.height.b32 r5, [l1], r3;"
    body += "txq.num_mipmap_levels.b32 r6, [l1]; mov.b32 f12, r4; mov.b32 f13, r5; mov.b32 f14, r6;"
    found = run(backend, body, texture, given).view(np.uint32)
    assert found[:, :3].tolist() == [[*levels[level].shape[::-1], 4] for _, _, level in x]


def test_gradients_choose_a_level(backend: str) -> None:
    """A step of 2ⁿ texels means level n: the longer of the two, in texels of each axis."""
    x = np.zeros((6, 4), np.float32)
    x[:, 0], x[:, 1] = [1 / 16, 2 / 16, 0, 4 / 16, 0.5, 0], [0, 0, 0, 0, 0, 0]
    x[:, 2], x[:, 3] = [0, 0, 0, 1 / 16, 0, 1], [0, 0, 2 / 8, 0, 1 / 8, 1]

    def texture(device: ge.Device) -> Any:
        return device.texture(
            [device.array(level) for level in pyramid((8, 16), 5)], normalized=True, level_filter="linear"
        )

    body = "tex.grad.2d.v4.f32.f32 {f12,f13,f14,f15}, [l1, {0f3F000000,0f3F000000}], {f1,f2}, {f3,f4};"
    found = run(backend, body, texture, x)[:, 0] - 100
    steps = np.hypot(x[:, ::2] * 16, x[:, 1::2] * 8)
    wanted = np.clip(np.log2(np.maximum(steps.max(1), 1e-9)), 0, 4)
    assert np.abs(found - wanted).max() <= 1 / 512
    # on the face of a cube: s and t of the direction change, and how far away it is does not count
    cube = np.array(
        [[1, 0, 0, 0, 0, 0.5], [4, 0, 0, 1, 0, 2], [-1, 0.5, 0.25, 0.25, -0.125, 0.375]], np.float32
    )

    def cube_map(device: ge.Device) -> Any:
        levels = [device.array(level) for level in pyramid((8, 8), 4)]
        six = [device.array(np.stack([level.numpy()] * 6)) for level in levels]
        return device.texture(six, cube=True, normalized=True, level_filter="linear")

    body = "tex.grad.cube.v4.f32.f32 {f12,f13,f14,f15}, [l1, {f1,f2,f3,f3}], {f4,f5,f6,f6}, {f4,f5,f6,f6};"
    found = run(backend, body, cube_map, cube)[:, 0] - 100
    for lane, given in enumerate(cube.astype(float)):
        epsilon = 1e-6
        _, s, t, m = face_of(given[:3])
        _, other_s, other_t, other_m = face_of(given[:3] + epsilon * given[3:])
        step = np.hypot(other_s / other_m - s / m, other_t / other_m - t / m) / epsilon / 2 * 8
        assert abs(found[lane] - np.clip(np.log2(max(step, 1e-9)), 0, 3)) <= 1 / 256


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.texture(d.zeros((5, 4, 4), "f4"), cube=True), "a cube map from an array of shape"),
        (lambda d: d.texture(d.zeros((6, 4, 3), "f4"), cube=True), "which are equal"),
        (lambda d: d.texture(d.zeros((9, 4, 4), "f4"), cube=True, layered=True), "a multiple of 6"),
        (lambda d: d.texture([]), "a texture of no arrays"),
        (
            lambda d: d.texture([d.zeros((4, 4), "f4"), d.zeros((2, 1), "f4")]),
            "level 1 of a texture has the width 1, not 2",
        ),
        (lambda d: d.texture([d.zeros(4, "f4"), d.zeros(2, "i4")]), "level 1 of a texture has the kind"),
        (lambda d: d.texture(d.zeros(4, "i4"), level_filter="linear"), "needs a floating-point dtype"),
        (lambda d: d.texture(d.zeros(4, "f4"), level_filter="cubic"), "level_filter='cubic'"),
        (lambda d: d.texture(d.zeros(4, "f4"), level_range=(1,)), "the smallest and the largest level"),
    ],
)
def test_what_goes_not_together(make: Any, message: str) -> None:
    with pytest.raises(ge.LaunchError) as caught:
        make(ge.Device(memory_bytes=1 << 16))
    assert message in str(caught.value)


def test_a_plain_texture_is_no_cube(backend: str) -> None:
    for body, cube, named in (
        ("tex.cube.v4.f32.f32 {f12,f13,f14,f15}, [l1, {f1,f1,f1,f1}];", False, "the texture is a2d"),
        ("tex.a2d.v4.f32.f32 {f12,f13,f14,f15}, [l1, {r1,f1,f1,f1}];", True, "the texture is cube"),
    ):
        with pytest.raises(ge.TrapError, match=named):
            run(
                backend, body, lambda d, cube=cube: d.texture(d.zeros((6, 4, 4), "f4"), cube=cube, layered=not cube),
                np.zeros((1, 1), np.float32),
            )  # fmt: skip
