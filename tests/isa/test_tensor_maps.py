"""Kinds of tensor maps against the manual's tables and plain loops: swizzles, interleaved tensors, packed elements, im2col along W,
rounding, and reductions of every type."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.tensors import (
    EMPTY,
    NAN,
    SHARED,
    STORE,
    Array,
    load,
    moved,
    random_bytes,
    run,
    shared_after,
    store,
    walk,
)

#: the tables of "Swizzling Modes": lines of 128 bytes in pieces of 16, as the manual has them
TABLES: dict[tuple[str, str], str] = {
    ("32B", "16B"): "01234567 10325476",
    ("64B", "16B"): "01234567 10325476 23016745 32107654",
    ("128B", "16B"): "01234567 10325476 23016745 32107654 45670123 54761032 67452301 76543210",
    ("128B", "32B"): "01234567 23016745 45670123 67452301",
    ("128B", "32B_FLIP_8B"): "01234567 23016745 45670123 67452301",
    ("128B", "64B"): "01234567 45670123",
}


def table_places(swizzle: str, atomicity: str, size: int) -> list[int]:
    """Where each 8 bytes of a copy lie; with the flip those of 16 bytes change places in every other line."""
    lines = TABLES[swizzle, atomicity].split()
    found = [0] * (size // 8)
    for piece in range(size // 16):
        line, column = divmod(piece, 8)
        source = line * 8 + int(lines[line % len(lines)][column])
        flipped = atomicity == "32B_FLIP_8B" and line % 2
        for half in (0, 1):
            found[2 * source + half] = 16 * piece + 8 * (half ^ int(flipped))
    return found


@pytest.mark.parametrize(("swizzle", "atomicity"), list(TABLES), ids="-".join)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_swizzles(swizzle: str, atomicity: str, dtype: Any, backend: str) -> None:
    span, size = int(swizzle.rstrip("B")), 2048
    raw = random_bytes((size // span, span))
    array = raw.view(dtype)
    options: dict[str, Any] = {"swizzle": swizzle, "atomicity": atomicity}
    make = partial(ge.TensorMap, box=array.shape, **options)
    places = table_places(swizzle, atomicity, size)
    text = load("2d.shared::cluster.global.tile", (0, 0), size)
    _, found, _ = run(backend, text, array, EMPTY, make)
    flat = raw.reshape(-1)
    wanted = shared_after((to, flat[8 * place : 8 * place + 8].tobytes()) for place, to in enumerate(places))
    assert (found == wanted).all()
    # elements outside go where their own places are
    text = load("2d.shared::cluster.global.tile", (16 // array.itemsize, 0), size)
    _, found, _ = run(backend, text, array, EMPTY, make)
    shifted = np.zeros_like(raw)
    shifted[:, : span - 16] = raw[:, 16:]
    wanted = shared_after(
        (to, shifted.reshape(-1)[8 * place : 8 * place + 8].tobytes()) for place, to in enumerate(places)
    )
    assert (found == wanted).all()
    if atomicity == "32B_FLIP_8B":
        return
    given = random_bytes(SHARED, 4)
    found, _, _ = run(backend, store(STORE.format("2d", "tile"), (0, 0)), np.zeros_like(array), given, make)
    stored = np.concatenate([given[to : to + 8] for to in places])
    assert (found.view(np.uint8).reshape(-1) == stored).all()


def test_swizzle_of_96_bytes(backend: str) -> None:
    """Which only tensormap.replace sets, on sm_103a: two pieces change places in every other line of 128 bytes."""
    raw = random_bytes((16, 96))
    change = "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 4;"
    text = load("2d.shared::cta.global.tile", (0, 0), 16 * 96, target="sm_103a").replace("8.6", "8.8", 1)
    text = text.replace(
        "    @!%p0 bra READY;", f"    @!%p0 bra READY;\n    add.u64 %rd1, %rd2, {SHARED};\n    {change}", 1
    )
    for bytes_wide in (96, 112):
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        array = device.array(raw if bytes_wide == 96 else random_bytes((16, 112)))
        given = bytes(ge.TensorMap(array, (16, bytes_wide)))
        result = device.array(np.concatenate([EMPTY, np.frombuffer(given, np.uint8)]))
        kernel = ge.parse(text, path="k.ptx")["k"]
        if bytes_wide > 96:
            with pytest.raises(ge.TrapError, match="swizzle 96B, with 112 bytes along the last axis"):
                device.launch(kernel, 1, 128, [given, result])
            continue
        device.launch(kernel, 1, 128, [given, result])
        flat = raw.reshape(-1)
        pieces = []
        for piece in range(flat.size // 16):
            to = piece ^ (piece // 8 % 2)
            pieces.append((16 * to, flat[16 * piece : 16 * piece + 16].tobytes()))
        assert (result.numpy()[:SHARED] == shared_after(pieces)).all()


#: shape N, slices, (D,) (H,) W, channels of a slice; box and strides of all but the last; start W first
INTERLEAVED: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, str]]] = [
    (np.float16, (2, 3, 9, 8), (1, 1, 4), (1, 1, 1), (2, 1, 0), {"interleave": "16B"}),
    (np.float16, (2, 3, 5, 6, 8), (2, 1, 3, 4), (1, 1, 1, 2), (1, 2, 2, 0), {"interleave": "16B", "fill": "nan"}),
    (np.uint8, (2, 2, 3, 4, 5, 16), (1, 1, 2, 3, 2), (1, 1, 1, 2, 1), (-1, 3, 1, 1, 1), {"interleave": "16B", "swizzle": "64B"}),
    (np.float32, (2, 3, 5, 6, 8), (1, 1, 4, 6), (1, 1, 1, 1), (0, 2, 1, 1), {"interleave": "32B", "swizzle": "32B"}),
    (np.float16, (3, 2, 10, 10, 16), (1, 1, 10, 10), (1, 1, 1, 1), (0, 0, 1, 2), {"interleave": "32B", "swizzle": "32B"}),
]  # fmt: skip


@pytest.mark.parametrize("case", INTERLEAVED, ids=lambda case: "-".join(map(str, case[1])))
def test_interleaved(case: Any, backend: str) -> None:
    """Slices of W, H, D of one slice of the channels, image after image."""
    dtype, shape, box, steps, start, options = case
    raw = random_bytes((*shape[:-1], shape[-1] * np.dtype(dtype).itemsize))
    array, size = raw.view(dtype), raw.shape[-1]
    counts = [-(-length // step) for length, step in zip(box, steps)]
    pieces = []
    for place, index in enumerate(itertools.product(*map(range, counts))):
        at = tuple(first + step * here for first, step, here in zip(start[::-1], steps, index))
        good = all(0 <= here < most for here, most in zip(at, shape))
        piece = raw[at].tobytes() if good else (NAN * 16)[:size] if "fill" in options else bytes(size)
        for half in range(0, size, 16):
            to = moved(1024 + place * size + half, options.get("swizzle", "none"))
            pieces.append((to, piece[half : half + 16]))
    text = load(f"{len(box)}d.shared::cluster.global.tile", start, len(pieces) * 16, offset=1024)
    make = partial(ge.TensorMap, box=box, element_strides=steps, **options)
    _, found, _ = run(backend, text, array, EMPTY, make)
    assert (found == shared_after(pieces)).all()
    if min(start) < 0:
        return
    given = random_bytes(SHARED, 5)
    text = store(STORE.format(f"{len(box)}d", "tile"), start, offset=1024)
    stored, _, _ = run(backend, text, array, given, make)
    wanted = raw.copy()
    for place, index in enumerate(itertools.product(*map(range, counts))):
        at = tuple(first + step * here for first, step, here in zip(start[::-1], steps, index))
        if all(0 <= here < most for here, most in zip(at, shape)):
            for half in range(0, size, 16):
                to = moved(1024 + place * size + half, options.get("swizzle", "none"))
                wanted[at][half : half + 16] = given[to : to + 16]
    assert (stored.view(np.uint8) == wanted).all()


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_im2col_axes(rank: int, backend: str) -> None:
    """Padded images of every number of axes, with strides between the pixels, and stored where nothing is padded."""
    sizes, steps = (7, 5, 4)[: rank - 2], (2, 1, 3)[: rank - 2]
    image = random_bytes((2, *sizes[::-1], 32))
    lower, upper = (-1,) * len(sizes), (-1, 0, -1)[: rank - 2]
    start, offsets, pixels = (16, 1, *(0,) * (rank - 3), 0), (2, 1, 1)[: rank - 2], 40
    ends = [size + high for size, high in zip(sizes, upper)]
    pieces = []
    for place, at in enumerate(walk(start[1:], lower, ends, steps, pixels)):
        moved_at = [*(here + off for here, off in zip(at, offsets)), at[-1]]
        good = all(0 <= here < size for here, size in zip(moved_at, (*sizes, 2)))
        raw = image[tuple(moved_at[::-1])][16:32].tobytes() if good else bytes(16)
        pieces.append((moved(place * 16, "64B"), raw))
    text = load(f"{rank}d.shared::cluster.global.im2col", start, 16 * pixels, offsets=offsets)
    make = partial(
        ge.TensorMap.im2col, channels=16, pixels=pixels, lower=lower[::-1], upper=upper[::-1],
        element_strides=(1, *steps[::-1], 1), swizzle="64B",
    )  # fmt: skip
    _, found, _ = run(backend, text, image, EMPTY, make)
    assert (found == shared_after(pieces)).all()
    given = random_bytes(SHARED, 6)
    make = partial(
        ge.TensorMap.im2col, channels=16, pixels=pixels, lower=(0,) * len(sizes), upper=(0, -1, 0)[: rank - 2],
        element_strides=(1, *steps[::-1], 1),
    )  # fmt: skip
    ends = [size + high for size, high in zip(sizes, (0, -1, 0)[: rank - 2][::-1])]
    found, _, _ = run(
        backend, store(STORE.format(f"{rank}d", "im2col_no_offs"), (16, *start[1:])), image, given, make
    )
    wanted = image.copy()
    for place, at in enumerate(walk(start[1:], (0, 0, 0), ends, steps, pixels)):
        if at[-1] < 2:
            wanted[tuple(at[::-1])][16:32] = given[16 * place : 16 * place + 16]
    assert (found == wanted).all()


def test_im2col_of_an_interleaved_image(backend: str) -> None:
    """Pixels are slices; coordinates W, H, slice, N."""
    image = random_bytes((2, 3, 4, 5, 16))
    start, offsets, pixels = (-1, 0, 2, 0), (1, 2), 30
    pieces = []
    for place, (w, h, n) in enumerate(walk((-1, 0, 0), (-1, -1), (5 - 2, 4 - 1), (1, 1), pixels)):
        x, y = w + 1, h + 2
        good = 0 <= x < 5 and 0 <= y < 4 and n < 2
        pieces.append((16 * place, image[n, 2, y, x].tobytes() if good else bytes(16)))
    text = load("4d.shared::cluster.global.im2col", start, 16 * pixels, offsets=offsets)
    make = partial(
        ge.TensorMap.im2col, channels=16, pixels=pixels, lower=(-1, -1), upper=(-1, -2), interleave="16B"
    )
    _, found, _ = run(backend, text, image, EMPTY, make)
    assert (found == shared_after(pieces)).all()


#: sizes W and H; corners of W; stride; start W, H, N; wHalo and wOffset: the examples of "wHalo" and "wOffset", and more
WIDE = [
    ((9, 7), (0, 0), 1, (2, 3, 0), (2, 0)),
    ((9, 67), (-1, 0), 2, (-1, 5, 0), (1, 0)),
    ((9, 67), (-1, 0), 2, (-1, 5, 0), (0, 1)),
    ((7, 7), (-1, -1), 3, (-1, 2, 3), (0, 2)),
    ((6, 4), (1, -1), 1, (-2, 1, 1), (3, 0)),
]


@pytest.mark.parametrize("case", WIDE, ids=str)
@pytest.mark.parametrize("groups", [1, 4])
def test_im2col_wide(case: Any, groups: int, backend: str) -> None:
    """Along W and then N, H stays; the halo is what comes next: of ``::128`` after each 32 pixels, behind all of them."""
    (width, height), (low, high), step, (w, h, n), (halo, moves) = case
    image = random_bytes((30, height, width, 16))
    pixels = 128 if groups == 4 else 40
    steps = walk((w + moves, n), (low + moves,), (width + high + moves,), (step,), pixels + halo)
    order = [*range(pixels)]
    for more in range(halo):
        order += [pixels // groups * (group + 1) + more for group in range(groups)]
    pieces = []
    for place, number in enumerate(order):
        x, z = steps[number]
        raw = image[z, h, x].tobytes() if 0 <= x < width and z < 30 else bytes(16)
        pieces.append((moved(16 * place, "64B"), raw))
    mode = "im2col::w::128" if groups == 4 else "im2col::w"
    text = load(
        f"4d.shared::cta.global.{mode}",
        (0, w, h, n),
        16 * len(order),
        offsets=(halo, moves),
        target="sm_100a",
    )
    make = partial(
        ge.TensorMap.im2col_wide, channels=16, pixels=None if groups == 4 else pixels, lower=low, upper=high,
        element_strides=(1, 1, step, 1), swizzle="64B",
    )  # fmt: skip
    _, found, profile = run(backend, text, image, EMPTY, make)
    assert (found == shared_after(pieces)).all()
    assert not profile.remarks


@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize(
    ("data_type", "size", "held"),
    [("16U4_ALIGN8B", 8, 8), ("16U4_ALIGN16B", 8, 16), ("16U6_ALIGN16B", 12, 16)],
)
def test_packed_loads(data_type: str, size: int, held: int, swizzle: str, backend: str) -> None:
    """Sixteen elements in 8 or 12 bytes, which have 8 or 16 in shared memory: what is behind them stays as it was."""
    elements = 128 // held * 16 if held == 8 else 128
    array = random_bytes((12, 2 * elements // 16 * size))
    row = elements // 16
    pieces = []
    for place, (line, unit) in enumerate(itertools.product(range(9, 13), range(row))):
        raw = (
            array[line, (row + unit) * size : (row + unit + 1) * size].tobytes() if line < 12 else bytes(size)
        )
        for half in range(0, size, 4):
            pieces.append((moved(1024 + place * held + half, swizzle), raw[half : half + 4]))
    text = load("2d.shared::cta.global.tile", (elements, 9), 4 * row * size, offset=1024, target="sm_100a")
    _, found, profile = run(
        backend,
        text,
        array,
        EMPTY,
        partial(ge.TensorMap, box=(4, elements), data_type=data_type, swizzle=swizzle),
    )
    assert (found == shared_after(pieces)).all()
    assert profile.memory.global_load_bytes == 3 * row * size


@pytest.mark.parametrize("atomicity", ["16B", "64B"])
def test_packed_stores(atomicity: str, backend: str) -> None:
    """The low six bits of each byte, side by side; four-bit elements as they are."""
    given = random_bytes(SHARED, 7)
    rows = []
    for line in range(4):
        number = sum(
            (int(given[byte_of(128 * line + place, atomicity)]) & 63) << 6 * place for place in range(128)
        )
        rows.append(number.to_bytes(96, "little"))
    make = partial(ge.TensorMap, box=(4, 128), data_type="16U6_ALIGN16B", swizzle="128B", atomicity=atomicity)
    array = random_bytes((6, 192))
    found, _, _ = run(backend, store(STORE.format("2d", "tile"), (128, 3)), array, given, make)
    wanted = array.copy()
    wanted[3:, 96:] = np.frombuffer(b"".join(rows[:3]), np.uint8).reshape(3, 96)
    assert (found == wanted).all()
    make = partial(ge.TensorMap, box=(4, 64), data_type="16U4_ALIGN8B")
    found, _, _ = run(backend, store(STORE.format("2d", "tile"), (34, 1)), array, given, make)
    wanted = array.copy()
    wanted[1:5, 17:49] = given[:128].reshape(4, 32)
    assert (found == wanted).all()


def byte_of(place: int, atomicity: str) -> int:
    """Where a byte lies with swizzle 128B."""
    return table_places("128B", atomicity, 1024)[place // 8] + place % 8


@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"])
def test_rounding(data_type: str, backend: str) -> None:
    """As tf32 the low 13 bits are rounded away, to nearest even; NaN is 0x7FFFE000. As f32 nothing changes."""
    words = [0x3F800000, 0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0x3F802FFF, 0xBF803000, 0x7F7FFFFF]
    words += [0x00000001, 0x80001000, 0x00001001, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFF800001, 0x80000000]
    text = load("1d.shared::cluster.global.tile", (0,), 80)
    _, found, _ = run(
        backend, text, np.array(words, np.uint32).view(np.float32), EMPTY,
        partial(ge.TensorMap, box=20, data_type=data_type, fill="nan"),
    )  # fmt: skip
    wanted = []
    for word in words:
        if data_type.startswith("F"):
            wanted.append(word)
        elif word & 0x7FFFFFFF > 0x7F800000:
            wanted.append(0x7FFFE000)
        else:
            kept, rest = word >> 13, word & 0x1FFF
            wanted.append(kept + (rest > 0x1000 or (rest == 0x1000 and kept & 1)) << 13)
    assert found[:80].view(np.uint32).tolist() == [*wanted, *[0x7FF77FF7] * 4]


SUBNORMAL = np.array([1, 0x80000001, 0x007FFFFF, 0x3F800000] * 8, np.uint32).view(np.float32)
KINDS: dict[str, Any] = {
    "UINT32": np.uint32, "INT32": np.int32, "UINT64": np.uint64, "INT64": np.int64, "FLOAT16": np.float16, "FLOAT32": np.float32,
    "FLOAT32_FTZ": np.float32, "FLOAT64": np.float64, "BFLOAT16": ml_dtypes.bfloat16,
}  # fmt: skip
#: the manual's table of operations, with single and double precision as ptxas and the driver have them
TAKEN = {
    "add": "UINT32 INT32 UINT64 FLOAT16 BFLOAT16 FLOAT32 FLOAT32_FTZ FLOAT64",
    "min": "UINT32 INT32 UINT64 INT64 FLOAT16 BFLOAT16",
    "max": "UINT32 INT32 UINT64 INT64 FLOAT16 BFLOAT16",
    "inc": "UINT32",
    "dec": "UINT32",
    "and": "UINT32 INT32 UINT64 INT64",
    "or": "UINT32 INT32 UINT64 INT64",
    "xor": "UINT32 INT32 UINT64 INT64",
}


def flushed(values: Array) -> Array:
    words = values.view(np.uint32)
    return np.where(words >> 23 & 0xFF, words, words & 0x80000000).astype(np.uint32).view(np.float32)


def combined(operation: str, kind: str, old: Array, new: Array) -> Array:
    if operation == "add" and kind == "FLOAT32_FTZ":
        return flushed(flushed(old) + flushed(new))
    if operation == "inc":
        return np.where(old >= new, 0, old + 1).astype(old.dtype)
    if operation == "dec":
        return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
    names: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    return np.asarray(names[operation](old, new))


@pytest.mark.parametrize("operation", TAKEN)
def test_reductions_of_all_types(operation: str, backend: str) -> None:
    text = store(f"reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group", (0, 1))
    for kind, dtype in KINDS.items():
        rng = np.random.default_rng(8)
        array, given = (
            rng.integers(0, 200, count).astype(dtype)
            for count in ((4, 16), SHARED // np.dtype(dtype).itemsize)
        )
        if np.dtype(dtype) == np.float32:
            array[1, :], given[:16] = SUBNORMAL[:16], SUBNORMAL[1:17]
        make = partial(ge.TensorMap, box=(4, 16), data_type=kind)
        if kind not in TAKEN[operation].split():
            with pytest.raises(ge.TrapError, match=r"no such operation on elements of type \.\w+"):
                run(backend, text, array, given.view(np.uint8), make)
            continue
        found, _, profile = run(backend, text, array, given.view(np.uint8), make)
        wanted = array.copy()
        wanted[1:] = combined(operation, kind, array[1:], given[:48].reshape(3, 16))
        assert found.tobytes() == wanted.tobytes(), kind
        assert not profile.remarks


def test_reductions_in_other_layouts(backend: str) -> None:
    """Of slices of an interleaved tensor, and of the pixels of im2col."""
    array = np.arange(2 * 3 * 4 * 8, dtype=np.float16).reshape(2, 3, 4, 8)
    given = (np.arange(SHARED // 2) % 100).astype(np.float16)
    text = store("reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group", (1, 2, 0))
    make = partial(ge.TensorMap, box=(2, 1, 3), interleave="16B")
    found, _, _ = run(backend, text, array, given.view(np.uint8), make)
    wanted = array.copy()
    wanted[:, 2, 1:] += given[:48].reshape(2, 3, 8)
    assert (found == wanted).all()
    image = np.arange(2 * 5 * 16, dtype=np.int32).reshape(2, 5, 16)
    numbers = np.arange(SHARED // 4, dtype=np.int32)
    text = store("reduce.async.bulk.tensor.3d.global.shared::cta.max.im2col_no_offs.bulk_group", (8, 2, 0))
    make = partial(ge.TensorMap.im2col, channels=4, pixels=6, lower=0, upper=-1)
    found, _, _ = run(backend, text, image, numbers.view(np.uint8), make)
    expected = image.copy()
    for place, (w, n) in enumerate(walk((2, 0), (0,), (4,), (1,), 6)):
        expected[n, w, 8:12] = np.maximum(expected[n, w, 8:12], numbers[4 * place : 4 * place + 4])
    assert (found == expected).all()


def test_reductions_into_one_place(backend: str) -> None:
    """Along an axis without a stride each element is added, in order."""
    array = np.array([3.0, 1e8, -2.5, 0.1] * 4, np.float32)
    given = np.random.default_rng(3).normal(size=SHARED // 4).astype(np.float32) * 1e4
    text = store("reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", (0, 0))
    make = partial(ge.TensorMap, box=(5, 8), shape=(5, 16), strides=(0, 4))
    found, _, _ = run(backend, text, array, given.view(np.uint8), make)
    wanted = array.copy()
    for row in given[:40].reshape(5, 8):
        wanted[:8] += row
    assert (found == wanted).all()


@pytest.mark.parametrize("address", [0x3000_0022_1000, 0x3000_0002_1000, 0x7FFF_FFFF_F000])
def test_what_cutlass_clears_means_nothing(address: int) -> None:
    """Bit 21 of the second word, of maps of tensors below 128 KiB, for drivers up to that of CUDA 13.1 (NVIDIA/cutlass 7107b055,
    ``cute/atom/copy_traits_sm90_tma.hpp``): a copy through the map must be the same."""
    shape: dict[str, Any] = {"shape": [3, 48, 128], "strides": [6144, 128, 1], "dtype": np.dtype("u1")}
    words = np.frombuffer(bytes(ge.TensorMap(address, [1, 12, 128], **shape)), "<u8")
    assert not int(words[1]) >> 21 & 1
