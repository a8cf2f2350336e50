"""What the PTX manual and the CUDA driver rule out of tensor copies, their maps and tensormap.replace; both backends say and count the
same."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.isa.tensors import EMPTY, STORE, Array, load, random_bytes, run, store
from tests.support import BACKENDS


def test_all_fields_can_be_replaced(backend: str) -> None:
    """A map of something else becomes, field by field, the one that is wanted."""
    array = random_bytes((2, 3, 4, 32)).view(np.uint16)
    device = ge.Device(backend=backend, memory_bytes=1 << 24)
    tensor = device.array(array)
    wanted = ge.TensorMap(tensor, (1, 1, 2), interleave="32B", swizzle="32B", element_strides=(1, 1, 2))
    other = ge.TensorMap(device.zeros(64, np.float64), 32, fill="nan")
    changes = [
        ("global_address", "b64", tensor.address), ("rank", "b32", 2), ("elemtype", "b32", 1), ("interleave_layout", "b32", 2),
        ("swizzle_mode", "b32", 1), ("fill_mode", "b32", 0), ("swizzle_atomicity", "b32", 0),
    ]  # fmt: skip
    changes += [("box_dim", f"b32 {axis}", size) for axis, size in enumerate((2, 1, 1))]
    changes += [("global_dim", f"b32 {axis}", size) for axis, size in enumerate((4, 3, 2))]
    changes += [("global_stride", f"b64 {axis}", size) for axis, size in enumerate((128, 384))]
    changes += [("element_stride", f"b32 {axis}", size) for axis, size in enumerate((2, 1, 1))]
    lines = ["ld.param.u64 %rd1, [out];"]
    for field, suffix, value in changes:
        kind, *ordinal = suffix.split()
        operands = ", ".join(["[%rd1]", *ordinal, str(value)])
        lines.append(f"tensormap.replace.tile.{field}.global.b1024.{kind} {operands};")
    text = ".version 8.6\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n.reg .b64 %rd<9>;\n"
    text += "\n".join(lines) + "\nret;\n}\n"
    result = device.array(np.frombuffer(bytes(other), np.uint8).copy())
    profile = device.launch(ge.parse(text, path="k.ptx")["k"], 1, 1, [result])
    assert result.numpy().tobytes() == bytes(wanted)
    assert not profile.remarks


def expect(backend: str, message: str, text: str, array: Array, make: Any) -> str:
    """The message of a copy that is an error."""
    with pytest.raises(ge.TrapError) as caught:
        run(backend, text, array, EMPTY, make)
    assert message in str(caught.value)
    assert "thread (0, 0, 0) of block (0, 0, 0)" in str(caught.value)
    return str(caught.value)


BYTES = np.zeros((8, 256), np.uint8)
IMAGE = np.zeros((2, 6, 6, 16), np.uint8)
TILE, GATHER, WIDE_LOAD = (
    "2d.shared::cta.global.tile",
    "2d.shared::cta.global.tile::gather4",
    "4d.shared::cta.global.im2col::w",
)
IM2COL = "4d.shared::cta.global.im2col"
MAPS: dict[str, Any] = {
    "plain": lambda item: ge.TensorMap(item, (8, 64)),
    "column": lambda item: ge.TensorMap.im2col(item, 16, 8, lower=(-1, -1), upper=(-1, -1)),
    "wide": lambda item: ge.TensorMap.im2col_wide(item, 16, 8, lower=0, upper=-1),
    "flip": lambda item: ge.TensorMap(item, (8, 64), swizzle="128B", atomicity="32B_FLIP_8B"),
    "four": lambda item: ge.TensorMap(item, (8, 32), data_type="16U4_ALIGN8B"),
    "padded": lambda item: ge.TensorMap(item, (8, 128), data_type="16U4_ALIGN16B"),
    "six": lambda item: ge.TensorMap(
        item, (8, 128), shape=(8, 128), strides=(256, 1), data_type="16U6_ALIGN16B", swizzle="128B", atomicity="64B"
    ),
}  # fmt: skip
REFUSED: list[tuple[str, str, tuple[int, ...], tuple[int, ...], str, str]] = [
    (TILE, "four", (33, 0), (), "the first coordinate is 33", "a multiple of 2"),
    (TILE, "padded", (-64, 0), (), "the first coordinate is -64", "a multiple of 128"),
    (TILE, "six", (0, 0), (), "a load of elements of type .b6x16_p32 with atomicity 64B", "atomicity 16B or 32B"),
    (GATHER, "plain", (0, 0, 1, 2, 3), (), "four rows, with a box of 8 rows", "one row"),
    (IM2COL, "column", (0, 5, 0, 0), (0, 0), "coordinate 1 is 5, outside of the bounding box", "begin in the bounding box"),
    (IM2COL, "column", (0, 0, -2, 0), (0, 0), "coordinate 2 is -2, outside of the bounding box", "begin in the bounding box"),
    (IM2COL, "column", (0, 0, 0, 0), (0, 256), "an im2col offset or halo of 256", "less than 256"),
    (IM2COL, "wide", (0, 0, 0, 0), (0, 0), "the tensor map is one for 'im2col::w'", "TensorMap.im2col_wide"),
    (WIDE_LOAD, "column", (0, 0, 0, 0), (0, 0), "the tensor map is one for 'im2col'", "TensorMap.im2col_wide"),
    (WIDE_LOAD, "wide", (0, 5, 0, 0), (0, 0), "coordinate 1 is 5, outside of the bounding box", "before its end"),
    (WIDE_LOAD, "wide", (0, 0, 0, 0), (512, 0), "an im2col offset or halo of 512", "less than 512"),
    (WIDE_LOAD, "wide", (0, 0, 0, 0), (0, 32), "an im2col offset or halo of 32", "less than 32"),
    ("store", "plain", (0, -1), (), "coordinate 1 of the store is -1", "not negative"),
    ("store", "flip", (0, 0), (), "swizzle 128B with atomicity 32B_FLIP_8B", "loads only"),
    ("store", "padded", (0, 0), (), "a store of elements of type .b4x16_p64", "only be loaded"),
    ("column", "column", (0, 0, 0, 0), (), "corner 0 of the bounding box lies outside of the tensor", "lower corners"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_copies_that_are_refused(number: int) -> None:
    opcode, name, start, offsets, message, hint = REFUSED[number]
    array = IMAGE if name in ("column", "wide") else BYTES
    if opcode == "store":
        text = store(STORE.format("2d", "tile"), start, target="sm_100a")
    elif opcode == "column":
        text = store(STORE.format("4d", "im2col_no_offs"), start, target="sm_100a")
    else:
        text = load(opcode, start, 16, offsets=offsets, target="sm_100a")
    texts = [expect(backend, message, text, array, MAPS[name]) for backend in BACKENDS]
    assert texts[0] == texts[1]
    assert hint in texts[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("global_address.global.b1024.b64 [%rd1], 24", "global_address 24"),
        ("rank.global.b1024.b32 [%rd1], 5", "rank 5"),
        ("box_dim.global.b1024.b32 [%rd1], 1, 257", "box_dim 257"),
        ("box_dim.global.b1024.b32 [%rd1], 0, 0", "box_dim 0"),
        ("global_dim.global.b1024.b32 [%rd1], 0, 0", "global_dim 0"),
        ("global_stride.global.b1024.b64 [%rd1], 0, 24", "global_stride 24"),
        ("global_stride.global.b1024.b64 [%rd1], 4, 16", "there is no global_stride 4"),
        ("element_stride.global.b1024.b32 [%rd1], 1, 9", "element_stride 9"),
        ("elemtype.global.b1024.b32 [%rd1], 16", "value is 16"),
        ("swizzle_mode.global.b1024.b32 [%rd1], 5", "value is 5"),
        ("swizzle_atomicity.global.b1024.b32 [%rd1], 4", "value is 4"),
        ("interleave_layout.global.b1024.b32 [%rd1], 3", "value is 3"),
        ("fill_mode.global.b1024.b32 [%rd1], 2", "value is 2"),
        ("box_dim.global.b1024.b32 [%rd2], 1, 4", "there is not a tensor map"),
        ("box_dim.global.b1024.b32 [%rd3], 1, 4", "out-of-bounds"),
    ],
)
def test_values_that_maps_do_not_take(line: str, message: str) -> None:
    text = f"""
    .version 8.6
    .target sm_100a
    .address_size 64
    .visible .entry k(.param .u64 map)
    {{
        .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [map];
        add.u64 %rd2, %rd1, 128;
        add.u64 %rd3, %rd1, 65536;
        tensormap.replace.tile.{line};
        ret;
    }}
    """
    texts = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        made = bytes(ge.TensorMap(device.zeros((8, 64), np.uint8), (8, 64)))
        array = device.array(np.frombuffer(made + b"\1" * 128, np.uint8))
        with pytest.raises((ge.TrapError, ge.MemoryFault, ge.PtxError)) as caught:
            device.launch(ge.parse(text, path="k.ptx")["k"], 1, 1, [array])
        texts.append(str(caught.value))
        assert message in texts[-1]
        assert "k.ptx:11" in texts[-1]
    assert texts[0] == texts[1]


def test_descriptions_that_the_driver_refuses() -> None:
    device = ge.Device(memory_bytes=1 << 20)
    halves = device.zeros((2, 3, 4, 4, 8), np.float16)
    octets = device.zeros((8, 256), np.uint8)
    image = device.zeros((2, 6, 6, 64), np.uint8)
    at = octets.address + 16
    wide = partial(ge.TensorMap.im2col_wide, image, 16, 8, lower=0, upper=0)
    cases: list[tuple[Any, str]] = [
        (lambda: ge.TensorMap(halves, (1, 1, 2, 4), interleave="8B"), "interleave is '8B'"),
        (lambda: ge.TensorMap(halves, (1, 2, 2, 4), interleave="16B"), "box has 2 slices of the channels"),
        (lambda: ge.TensorMap(halves, (1, 1, 2, 4), interleave="32B", swizzle="32B"), "the last axis has 16 bytes"),
        (lambda: ge.TensorMap(halves, (1, 1, 4), interleave="16B"), "box is (1, 1, 4)"),
        (lambda: ge.TensorMap(octets, (1, 8), interleave="16B"), "a tensor of shape (8, 256)"),
        (lambda: ge.TensorMap(halves, (1, 1, 2, 2), shape=(2, 3, 4, 2, 16), interleave="32B"), "swizzle 'none' with interleave '32B'"),
        (lambda: ge.TensorMap(at, (1,) * 4, shape=(1, 1, 1, 1, 32), dtype="u1", interleave="32B", swizzle="32B"), "multiple of 32"),
        (lambda: ge.TensorMap(octets, (8, 64), swizzle="64B", atomicity="32B"), "atomicity '32B' with swizzle '64B'"),
        (lambda: ge.TensorMap(octets, (8, 64), atomicity="8B"), "atomicity is '8B'"),
        (lambda: ge.TensorMap(octets, (8, 64), data_type="UINT4"), "data_type is 'UINT4'"),
        (lambda: ge.TensorMap(octets, (8, 64), data_type="TFLOAT32"), "data_type 'TFLOAT32' of an array of uint8"),
        (lambda: ge.TensorMap(halves, (1, 1, 1, 1, 8), data_type="16U4_ALIGN8B"), "data_type '16U4_ALIGN8B' of an array of float16"),
        (lambda: ge.TensorMap(octets, (8, 64), data_type="16U6_ALIGN16B", shape=(8, 256)), "box has 64 elements along the last axis"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U6_ALIGN16B", shape=(8, 200)), "200 elements along the last axis"),
        (lambda: ge.TensorMap(octets, (8, 31), data_type="16U4_ALIGN8B"), "box has 15.5 bytes along the last axis"),
        (lambda: ge.TensorMap(octets, (8, 33), data_type="16U4_ALIGN8B", shape=(8, 33)), "33 elements along the last axis"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U4_ALIGN16B", swizzle="64B"), "swizzle '64B' with atomicity '16B'"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U4_ALIGN16B", swizzle="128B", atomicity="64B"), "atomicity '64B'"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U4_ALIGN16B", swizzle="128B", atomicity="32B_FLIP_8B"), "FLIP"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U4_ALIGN16B", fill="nan"), "fill 'nan' of integers"),
        (lambda: ge.TensorMap(octets, (4, 128), data_type="16U6_ALIGN16B", shape=(4, 128), strides=(112, 1)), "multiples of 32"),
        (lambda: ge.TensorMap(at, 128, data_type="16U6_ALIGN16B", shape=(128,), dtype="u1"), "multiple of 32"),
        (lambda: ge.TensorMap(octets, (8, 128), data_type="16U6_ALIGN16B", shape=(8, 384)), "bytes from"),
        (lambda: ge.TensorMap(halves, (1, 1, 2, 4), data_type="16U4_ALIGN16B", interleave="16B"), "an array of float16"),
        (lambda: ge.TensorMap.im2col(image, 16, 8, lower=(3, 0), upper=(-3, 0)), "a bounding box from 3 to 3"),
        (lambda: ge.TensorMap.im2col(image, 16, 8, lower=(-129, 0), upper=(0, 0)), "lower has -129"),
        (lambda: ge.TensorMap.im2col(image, 16, 1025, lower=(0, 0), upper=(0, 0)), "pixels has 1,025"),
        (lambda: ge.TensorMap.im2col(image, 257, 8, lower=(0, 0), upper=(0, 0)), "channels has 257"),
        (lambda: ge.TensorMap.im2col(image, 16, 8, lower=(0, 0), upper=(0, 0), element_strides=(2, 1, 1, 1)), "2 along N"),
        (lambda: ge.TensorMap.im2col(halves, 4, 8, lower=(0, 0), upper=(0, 0), interleave="16B"), "4 channels of an interleaved"),
        (lambda: wide(swizzle="none"), "swizzle 'none' with atomicity '16B'"),
        (lambda: wide(swizzle="128B", atomicity="64B"), "swizzle '128B' with atomicity '64B'"),
        (lambda: ge.TensorMap.im2col_wide(octets, 16, 8, lower=0, upper=0), "a tensor of 2 axes"),
        (lambda: ge.TensorMap.im2col_wide(image, 16, 8, lower=4, upper=-2), "a bounding box from 4 to 4"),
        (lambda: ge.TensorMap.im2col_wide(image, 16, 8, lower=-32769, upper=0), "lower has -32,769"),
    ]  # fmt: skip
    for make, message in cases:
        with pytest.raises(ge.LaunchError) as caught:
            make()
        assert message in str(caught.value)
        assert len(str(caught.value).splitlines()) == 2


def test_both_backends_count_alike() -> None:
    image = random_bytes((4, 6, 6, 16))
    packed = random_bytes((12, 192))
    halves = random_bytes((2, 3, 5, 6, 16))
    column = partial(ge.TensorMap.im2col, channels=16, pixels=20, lower=(-1, -1), upper=(-1, -1))
    wide = partial(ge.TensorMap.im2col_wide, channels=16, pixels=20, lower=0, upper=0)
    six = partial(ge.TensorMap, box=(4, 128), data_type="16U6_ALIGN16B")
    slices = partial(ge.TensorMap, box=(2, 1, 3, 4), element_strides=(1, 1, 1, 2), interleave="16B")
    single = np.ones((12, 16), np.float32)
    reduction = "reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    cases: list[tuple[str, Array, Any]] = [
        (load(IM2COL, (0, -1, -1, 0), 16 * 20, offsets=(1, 0), target="sm_100a"), image, column),
        (load(WIDE_LOAD, (0, 0, 2, 0), 16 * 22, offsets=(2, 1), target="sm_100a"), image, wide),
        (load(TILE, (128, 9), 4 * 96, target="sm_100a"), packed, six),
        (store(STORE.format("2d", "tile"), (128, 9), target="sm_100a"), packed, six),
        (load("4d.shared::cta.global.tile", (1, 2, 2, 0), 16 * 12, target="sm_100a"), halves, slices),
        (store(reduction, (4, 9)), single, partial(ge.TensorMap, box=(4, 8))),
    ]
    for text, array, make in cases:
        profiles = [run(backend, text, array, EMPTY, make)[2].to_dict() for backend in BACKENDS]
        assert profiles[0] == profiles[1]


@pytest.mark.parametrize("loads", [True, False])
def test_constant_memory(loads: bool) -> None:
    """May be what a map describes, but not written."""
    text = load("1d.shared::cluster.global.tile", (0,), 16)
    if not loads:
        text = store(STORE.format("1d", "tile"), (0,))
    text = text.replace(".visible", ".const .align 16 .b32 table[4] = {1, 2, 3, 4};\n.visible", 1)
    kernel = ge.parse(text, path="k.ptx")["k"]
    found = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, memory_bytes=1 << 20)
        result = device.array(EMPTY)
        arguments = [ge.TensorMap(device.symbol(kernel, "table"), 4), result]
        if loads:
            device.launch(kernel, 1, 128, arguments)
            assert result.numpy()[:16].view(np.uint32).tolist() == [1, 2, 3, 4]
            continue
        with pytest.raises(ge.MemoryFault, match="'table' is constant memory") as caught:
            device.launch(kernel, 1, 128, arguments)
        found.append(str(caught.value))
    assert loads or found[0] == found[1]


def test_boxes_larger_than_shared_memory() -> None:
    """However large: the first bytes that are not there."""
    texts = []
    for backend in BACKENDS:
        text = load("5d.shared::cta.global.tile", (0, 0, 0, 0, 0), 16, target="sm_100a")
        with pytest.raises(ge.MemoryFault) as caught:
            run(
                backend, text, np.zeros((1, 1, 1, 1, 256), np.uint8), EMPTY,
                lambda item: ge.TensorMap(item, (256,) * 5),
            )  # fmt: skip
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "out-of-bounds" in texts[0]


@pytest.mark.parametrize("seed", range(4))
def test_maps_that_were_overwritten(seed: int) -> None:
    """Whatever is written to a map, copies end, and alike: with an error or with bytes."""
    rng = np.random.default_rng([31, seed])
    array = random_bytes((6, 8, 64))
    text = load("3d.shared::cta.global.tile", (0, 1, 2), 16, target="sm_100a")
    text = text.replace("    @!%p0 bra READY;", "    @!%p0 bra READY;\n    add.u64 %rd1, %rd2, 8192;", 1)
    text = text.replace("  WAIT:\n", "    bra.uni AFTER;\n  WAIT:\n", 1).replace(
        "  DUMP:\n", "  AFTER:\n  DUMP:\n", 1
    )
    text = text.replace(
        "    mad.lo.u32 %r5, %r1, 16, %r2;\n    mul.wide",
        "  AFTER:\n    mad.lo.u32 %r5, %r1, 16, %r2;\n    mul.wide",
    )
    text = text.replace("  AFTER:\n  DUMP:\n", "  DUMP:\n")
    kernel = ge.parse(text, path="k.ptx")["k"]
    for _ in range(12):
        spoilt = [(int(rng.integers(16, 128)), int(rng.integers(0, 256))) for _ in range(rng.integers(1, 3))]
        found = []
        for backend in BACKENDS:
            device = ge.Device(backend=backend, memory_bytes=1 << 20)
            raw = bytearray(bytes(ge.TensorMap(device.array(array), (2, 4, 16))))
            for place, value in spoilt:
                raw[place] = value
            result = device.array(np.concatenate([EMPTY, np.frombuffer(bytes(raw), np.uint8)]))
            try:
                device.launch(kernel, 1, 128, [bytes(raw), result])
            except ge.EngineError as error:
                found.append(str(error))
            else:
                found.append(result.numpy().tobytes().hex())
        assert found[0] == found[1], spoilt
