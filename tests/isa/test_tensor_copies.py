"""Tensor copies against plain loops over the manual's words: boxes of one to five axes, swizzles, what lies outside, im2col, rows,
reductions, maps that change, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.tensors import (
    FILL,
    HEAD,
    NAN,
    SHARED,
    elements,
    expected_load,
    inside,
    listed,
    load,
    moved,
    run,
)
from tests.support import BACKENDS

CASES: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    # dtype, shape, box (NumPy order), start (innermost first), options
    (np.float32, (100,), (64,), (7,), {}),
    (np.float32, (100,), (64,), (60,), {}),
    (np.float32, (100,), (64,), (-10,), {"fill": "nan"}),
    (np.float16, (40, 64), (16, 32), (8, 4), {"swizzle": "64B"}),
    (np.float16, (40, 64), (16, 64), (0, 30), {"swizzle": "128B", "fill": "nan"}),
    (np.float16, (40, 64), (32, 64), (16, -3), {"swizzle": "128B"}),
    (np.uint8, (30, 48), (20, 32), (3, 2), {"swizzle": "32B"}),
    (np.int32, (9, 12), (5, 8), (-2, 6), {}),
    (np.float64, (6, 10), (4, 6), (5, -1), {"fill": "nan"}),
    (ml_dtypes.bfloat16, (20, 24), (8, 16), (10, 14), {"fill": "nan"}),
    (np.uint16, (5, 6, 16), (3, 4, 8), (1, 3, 2), {}),
    (np.int64, (4, 5, 6), (2, 3, 2), (5, -1, 3), {}),
    (np.float32, (3, 4, 5, 8), (2, 3, 2, 4), (2, 3, 2, 1), {}),
    (np.int32, (2, 3, 4, 5, 8), (2, 2, 2, 3, 4), (6, 1, -1, 2, 1), {}),
    (np.float32, (20, 40), (10, 32), (3, 1), {"element_strides": (3, 2)}),
    (np.int32, (6, 6, 32), (4, 5, 16), (-4, 1, 0), {"element_strides": (2, 1, 4)}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_boxes(case: Any, backend: str) -> None:
    dtype, shape, box, start, options = case
    rng = np.random.default_rng(5)
    array = rng.integers(0, 100, shape).astype(dtype)
    steps = (*options.get("element_strides", (1,) * len(shape))[:-1], 1)
    width = array.itemsize
    padding = NAN * (width // 2) if "fill" in options else bytes(width)
    wanted = expected_load(
        array, box[::-1], start, steps[::-1], options.get("swizzle", "none"), padding, 1024
    )
    size = width * int(np.prod([-(-length // step) for length, step in zip(box, steps)]))
    text = load(f"{len(shape)}d.shared::cluster.global.tile", start, size, offset=1024)
    _, found, profile = run(
        backend, text, array, np.zeros(SHARED, np.uint8), lambda tensor: ge.TensorMap(tensor, box, **options)
    )
    assert (found == wanted).all()
    assert not profile.remarks
    assert profile.memory.shared_store_wavefronts >= size // 128


def test_an_axis_may_have_no_stride(backend: str) -> None:
    """As CUTLASS describes batches of one: all of the axis is in the same place."""
    array = np.arange(20 * 24, dtype=np.uint16).reshape(20, 24)
    wanted = expected_load(
        np.broadcast_to(array, (3, 20, 24)), (8, 4, 2), (1, 3, 1), (1, 1, 1), "none", bytes(2), 0
    )
    _, found, _ = run(
        backend,
        load("3d.shared::cluster.global.tile", (1, 3, 1), 2 * 4 * 8 * 2),
        array,
        np.zeros(SHARED, np.uint8),
        lambda tensor: ge.TensorMap(tensor, (2, 4, 8), shape=(3, 20, 24), strides=(0, 48, 2)),
    )
    assert (found == wanted).all()


def test_both_backends_count_alike() -> None:
    for case in CASES:
        dtype, shape, box, start, options = case
        array = np.zeros(shape, dtype)
        size = array.itemsize * int(
            np.prod(
                [
                    -(-a // b)
                    for a, b in zip(box, (*options.get("element_strides", (1,) * 5)[: len(box) - 1], 1))
                ]
            )
        )
        text = load(f"{len(shape)}d.shared::cluster.global", start, size)
        make = partial(ge.TensorMap, box=box, **options)
        memory = [run(name, text, array, np.zeros(SHARED, np.uint8), make)[2].memory for name in BACKENDS]
        assert memory[0] == memory[1]
    # 16 rows of 64 halves: 4 sectors each, whole rows inside
    text = load("2d.shared::cluster.global", (0, 4), 16 * 64 * 2)
    _, _, profile = run(
        "llvm",
        text,
        np.zeros((40, 64), np.float16),
        np.zeros(SHARED, np.uint8),
        lambda item: ge.TensorMap(item, (16, 64)),
    )
    assert profile.memory.global_load_sectors == 16 * 4
    assert profile.memory.global_load_bytes == 16 * 128


@pytest.mark.parametrize("swizzle", ["none", "64B"])
@pytest.mark.parametrize("start", [(8, 4), (5, 30), (50, 39)])
def test_stores(start: tuple[int, int], swizzle: str, backend: str) -> None:
    """What of the box lies in the tensor is written; strides with room between the rows."""
    rng = np.random.default_rng(6)
    memory = rng.integers(0, 100, (40, 64)).astype(np.float16)
    given = rng.integers(0, 256, SHARED).astype(np.uint8)
    text = (
        HEAD.format(target="sm_90")
        + FILL
        + f"@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {listed(start)}], [%r2+512];\n"
        + "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nret;\n}\n"
    )
    wanted = memory.copy()
    tensor = wanted[:, :56]
    for place, at in elements((32, 16), (1, 1), start):
        if inside(tensor, at):
            byte = moved(512 + 2 * place, swizzle)
            tensor[at[1], at[0]] = given[byte : byte + 2].view(np.float16)[0]
    found, _, profile = run(
        backend, text, memory, given,
        lambda item: ge.TensorMap(item, (16, 32), shape=(40, 56), strides=(128, 2), swizzle=swizzle),
    )  # fmt: skip
    assert (found.view(np.uint16) == wanted.view(np.uint16)).all()
    assert profile.memory.global_store_requests == 1


def test_rows(backend: str) -> None:
    """tile::gather4 and tile::scatter4: four rows of a map whose box is one row."""
    array = np.arange(20 * 32, dtype=np.float32).reshape(20, 32)
    rows = (3, 19, -1, 7)
    text = load("2d.shared::cta.global.tile::gather4", (8, *rows), 4 * 16 * 4, target="sm_100a")
    _, found, _ = run(
        backend, text, array, np.zeros(SHARED, np.uint8), lambda item: ge.TensorMap(item, (1, 16))
    )
    wanted = np.stack([array[row, 8:24] if row >= 0 else np.zeros(16, np.float32) for row in rows])
    assert (found[:256].view(np.float32).reshape(4, 16) == wanted).all()
    rows = (3, 19, 20, 7)
    given = np.random.default_rng(1).integers(0, 256, SHARED).astype(np.uint8)
    text = (
        HEAD.format(target="sm_100a")
        + FILL
        + f"@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd1, {listed((8, *rows))}], [%r2];\n"
        + "ret;\n}\n"
    )
    found, _, _ = run(backend, text, array, given, lambda item: ge.TensorMap(item, (1, 16)))
    wanted = array.copy()
    for place, row in enumerate(rows):
        if row < 20:
            wanted[row, 8:24] = given[64 * place : 64 * place + 64].view(np.float32)
    assert (found.view(np.uint32) == wanted.view(np.uint32)).all()


@pytest.mark.parametrize("offsets", [(0, 0), (2, 1)])
def test_im2col(offsets: tuple[int, int], backend: str) -> None:
    """Pixels of a padded image one after the other, as the manual's example for a filter of 3 × 3: lower −1, upper −1."""
    image = np.random.default_rng(2).integers(1, 100, (2, 5, 6, 16)).astype(np.float16)
    pixels, channels = 25, 8
    # coordinates c, w, h, n of the first pixel
    start = (8, -1, -1, 0)
    size = pixels * channels * 2
    text = load("4d.shared::cluster.global.im2col", start, size, offsets=offsets)
    _, found, profile = run(
        backend, text, image, np.zeros(SHARED, np.uint8),
        lambda item: ge.TensorMap.im2col(item, channels, pixels, lower=(-1, -1), upper=(-1, -1)),
    )  # fmt: skip
    w, h, n = -1, -1, 0
    wanted = []
    for _ in range(pixels):
        x, y = w + offsets[0], h + offsets[1]
        good = 0 <= x < 6 and 0 <= y < 5 and n < 2
        wanted.append(image[n, y, x, 8:16] if good else np.zeros(8, np.float16))
        w += 1
        if w >= 6 - 1:
            w, h = -1, h + 1
            if h >= 5 - 1:
                h, n = -1, n + 1
    assert (found[:size].view(np.float16).reshape(pixels, channels) == np.stack(wanted)).all()
    assert (found[size:] == 0x11).all()
    assert not profile.remarks


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("add", np.float32),
        ("add", np.float16),
        ("min", np.int32),
        ("max", np.uint64),
        ("xor", np.uint32),
        ("inc", np.uint32),
    ],
)
def test_reductions(operation: str, dtype: Any, backend: str) -> None:
    rng = np.random.default_rng(9)
    array, given = (
        rng.integers(0, 50, count).astype(dtype) for count in ((12, 16), SHARED // np.dtype(dtype).itemsize)
    )
    text = (
        HEAD.format(target="sm_90")
        + FILL
        + f"@%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group [%rd1, {{4, 9}}], [%r2];\nret;\n}}\n"
    )
    found, _, profile = run(
        backend, text, array, given.view(np.uint8), lambda item: ge.TensorMap(item, (4, 8))
    )
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor,
        "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    }  # fmt: skip
    wanted = array.copy()
    tile = given[:32].reshape(4, 8)[:3]
    wanted[9:12, 4:12] = functions[operation](array[9:12, 4:12], tile)
    assert (found == wanted).all()
    assert profile.memory.global_atomic_requests == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_reductions_come_to_words(dtype: Any, backend: str) -> None:
    """Two boxes that overlap, each with two rows in the same place: each row comes to each of its words once."""
    array = np.zeros((20, 24), dtype)
    width = array.itemsize
    copy = "@%p0 cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%rd1, {{{}, 18, 1}}], [%r2];\n"
    text = HEAD.format(target="sm_90") + FILL + copy.format(1) + copy.format(2) + "ret;\n}\n"
    _, _, profile = run(
        backend,
        text,
        array,
        np.zeros(SHARED, np.uint8),
        lambda item: ge.TensorMap(item, (2, 4, 8), shape=(3, 20, 24), strides=(0, 24 * width, width)),
    )
    words = [
        np.unique((24 * row + np.arange(first, first + 8)) * width // 4)
        for first in (1, 2)
        for row in (18, 19)
        for _ in range(2)
    ]
    assert profile.memory.global_atomic_hottest == np.bincount(np.concatenate(words)).max() == 4


def test_changed_maps(backend: str) -> None:
    """tensormap.replace on a copy of the map in shared memory, which then goes to global memory."""
    array = np.arange(16 * 32, dtype=np.int32).reshape(16, 32)
    text = load("2d.shared::cluster.global.tile", (0, 0), 4 * 8 * 4, target="sm_90a").replace(
        "@!%p0 bra READY;",
        """
        @!%p0 bra READY;
        add.u64 %rd1, %rd2, 8192;
        tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 0, 6;
        tensormap.replace.tile.global_dim.b1024.b32 [%rd1], 1, 3;
        tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 1, 4;
        ld.global.u64 %rd6, [%rd1+16];
        add.u64 %rd6, %rd6, 128;
        tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd6;
        fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
        """,
    )
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    tensor = device.array(array)
    made = ge.TensorMap(tensor, (8, 8))
    result = device.array(np.concatenate([np.zeros(SHARED, np.uint8), np.frombuffer(bytes(made), np.uint8)]))
    device.launch(ge.parse(text, path="k.ptx")["k"], 1, 128, [bytes(made), result])
    wanted = np.zeros((4, 8), np.int32)
    wanted[:3, :6] = array[1:4, :6]
    assert (result.numpy()[:128].view(np.int32).reshape(4, 8) == wanted).all()


def test_copied_map(backend: str) -> None:
    """A warp copies a map from shared to global memory: once, whatever its lanes."""
    text = (
        HEAD.format(target="sm_90")
        + FILL
        + "setp.lt.u32 %p2, %r1, 32;\n@!%p2 bra END;\n"
        + "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2+256], [%r2], 128;\n"
        + "END: ret;\n}\n"
    )
    given = np.random.default_rng(4).integers(0, 256, SHARED).astype(np.uint8)
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    array = device.array(given)
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 128, [bytes(128), array])
    wanted = given.copy()
    wanted[256:384] = given[:128]
    assert (array.numpy() == wanted).all()
    assert profile.memory.global_store_bytes == 128


def test_maps_are_checked() -> None:
    device = ge.Device(memory_bytes=1 << 24)
    x = device.zeros((40, 64), np.float16)
    odd = device.zeros((40, 60), np.uint8)
    for make, message in (
        (lambda: ge.TensorMap(x, (16,)), "box is (16,)"),
        (lambda: ge.TensorMap(x, (16, 257)), "box has 257"),
        (lambda: ge.TensorMap(x, (16, 0)), "box has 0"),
        (lambda: ge.TensorMap(x, (16, 4)), "box has 8 bytes along the last axis"),
        (lambda: ge.TensorMap(x, (16, 64), swizzle="64B"), "128 bytes along the last axis"),
        (lambda: ge.TensorMap(x, (16, 64), swizzle="96B"), "swizzle is '96B'"),
        (lambda: ge.TensorMap(x, (16, 64), element_strides=(1, 9)), "element_strides has 9"),
        (lambda: ge.TensorMap(x, (16, 64), fill="nan", dtype=np.int16), "fill 'nan' of integers"),
        (lambda: ge.TensorMap(odd, (8, 16)), "a stride of 60 bytes"),
        (lambda: ge.TensorMap(x, (8, 64), shape=(41, 64)), "bytes from"),
        (lambda: ge.TensorMap(x[1:], (8, 64), strides=(100, 2)), "a stride of 100 bytes"),
        (lambda: ge.TensorMap(x.address + 2, (8, 64), shape=(4, 64), dtype=np.float16), "multiple of 16"),
        (lambda: ge.TensorMap("x", (8, 64)), "TensorMap of str"),  # type: ignore[arg-type]
        (lambda: ge.TensorMap.im2col(x, 8, 8, lower=(0,), upper=(0,)), "a tensor of 2 axes"),
    ):
        with pytest.raises(ge.LaunchError) as caught:
            make()
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) == 2


ERRORS = [
    ("2d.shared::cluster.global.tile", 64, lambda item: bytes(128), "there is not a tensor map"),
    ("2d.shared::cluster.global.tile", 0, lambda item: ge.TensorMap(item.address, 64, shape=(64,), dtype="f4"), "has 1 axes"),
    ("2d.shared::cluster.global.tile", 64, lambda item: ge.TensorMap(item, (8, 8)), "not a multiple of 128"),
    (
        "2d.shared::cluster.global.tile", 0,
        lambda item: ge.TensorMap(item.address, (8, 8), shape=(64, 32), dtype="f4"), "out-of-bounds",
    ),
    ("2d.shared::cluster.global.tile", 7680, lambda item: ge.TensorMap(item, (16, 32)), "out-of-bounds"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    opcode, offset, make, message = ERRORS[number]
    texts = []
    for backend in BACKENDS:
        text = load(opcode, (0, 12), 256, offset=offset)
        with pytest.raises((ge.TrapError, ge.MemoryFault)) as caught:
            run(backend, text, np.zeros((16, 32), np.float32), np.zeros(SHARED, np.uint8), make)
        texts.append(str(caught.value))
        assert message in texts[-1]
        assert "thread (0, 0, 0) of block (0, 0, 0)" in texts[-1]
    assert texts[0] == texts[1]
