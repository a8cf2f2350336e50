"""Instructions on images that CUDA C++ does not write: queries, reductions, formatted stores, half precision, references by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuperf_engine as ge
from tests.support import head

HEAD = head("8.6", "sm_80")
ENTRY = """.visible .entry k(.param .u64 image, .param .u64 out, .param .u64 x) {
.reg .b32 r<9>; .reg .b64 l<9>; .reg .f32 f<9>; .reg .b16 h<9>; .reg .f16 g<9>; .reg .pred p<4>;
ld.param.u64 l1, [image]; ld.param.u64 l2, [out]; ld.param.u64 l3, [x];
mov.u32 r8, %tid.x; mul.wide.u32 l8, r8, 16; add.u64 l2, l2, l8;
mul.wide.u32 l8, r8, 4; add.u64 l3, l3, l8; ld.global.b32 r1, [l3]; mov.b32 f1, r1; setp.ge.s32 p1, r8, 3;
"""


def run(
    backend: str, body: str, image: Any, x: np.ndarray | None = None, threads: int = 32, before: str = ""
) -> np.ndarray:
    """The four words that each thread stores to [l2]; ``image`` makes the first argument from the device."""
    device = ge.Device(backend=backend, memory_bytes=1 << 20)
    kernel = ge.parse(HEAD + before + ENTRY + body + "\nret; }\n", path="k.ptx")["k"]
    given = image(device)
    if isinstance(given, dict):
        for name, bound in given.items():
            device.bind(kernel, name, bound)
        given = None
    out = device.zeros((threads, 4), np.uint32)
    values = device.array(np.arange(threads, dtype=np.int32) if x is None else x)
    profile = device.launch(kernel, 1, threads, [given, out, values])
    assert profile.remarks == ()
    return out.numpy()


#: numbers of the OpenCL headers, which the PTX manual refers to for data types and orders
SNORM8, UNORM16, UNSIGNED8, HALF, R, RG, RGBA = 0x10D0, 0x10D3, 0x10DA, 0x10DD, 0x10B0, 0x10B2, 0x10B5


def test_queries_of_textures(backend: str) -> None:
    def texture(device: ge.Device) -> Any:
        return device.texture(
            device.zeros((5, 3, 7, 2), np.uint16), channels=2, read="normalized", filter="linear", normalized=True,
            address=("wrap", "mirror", "border"),
        )  # fmt: skip

    wanted = {
        "width": 7, "height": 3, "depth": 5, "array_size": 0, "channel_data_type": UNORM16, "channel_order": RG,
        "normalized_coords": 1, "num_mipmap_levels": 0, "num_samples": 0, "filter_mode": 1, "addr_mode_0": 0, "addr_mode_1": 1,
        "addr_mode_2": 4, "force_unnormalized_coords": 0,
    }  # fmt: skip
    for name, value in wanted.items():
        found = run(backend, f"txq.{name}.b32 r2, [l1]; st.global.b32 [l2], r2;", texture)
        assert (found[:, 0] == value).all(), name
    layered = run(
        backend,
        "txq.array_size.b32 r2, [l1]; txq.channel_data_type.b32 r3, [l1];"
        "txq.addr_mode_1.b32 r4, [l1]; txq.channel_order.b32 r5, [l1];"
        "st.global.v4.b32 [l2], {r2, r3, r4, r5};",
        lambda device: device.texture(device.zeros((6, 4), np.int8), layered=True, read="normalized"),
    )
    assert layered[0].tolist() == [6, SNORM8, 3, R]


def test_queries_of_surfaces(backend: str) -> None:
    body = "".join(
        f"suq.{name}.b32 r{place + 2}, [l1];"
        for place, name in enumerate(
            ("width", "height", "channel_data_type", "channel_order", "memory_layout")
        )
    )
    found = run(
        backend,
        body + "add.u32 r2, r2, r6; st.global.v4.b32 [l2], {r2, r3, r4, r5};",
        lambda device: device.surface(device.zeros((3, 9, 4), np.uint8), channels=4),
    )
    assert found[0].tolist() == [9, 3, UNSIGNED8, RGBA]


def test_kinds_of_handles(backend: str) -> None:
    body = (
        "istypep.texref p0, l1; istypep.surfref p2, l1; istypep.samplerref p3, l1; selp.u32 r2, 1, 0, p0; selp.u32 r3, 1, 0, p2;"
        "selp.u32 r4, 1, 0, p3; istypep.texref p0, l2; selp.u32 r5, 1, 0, p0; st.global.v4.b32 [l2], {r2, r3, r4, r5};"
    )
    texture = run(backend, body, lambda device: device.texture(device.zeros(4, np.float32)))
    surface = run(backend, body, lambda device: device.surface(device.zeros(4, np.float32)))
    nothing = run(backend, body, lambda device: 77)
    assert [found[3].tolist() for found in (texture, surface, nothing)] == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 0],
    ]


def test_half_precision_results(backend: str) -> None:
    texels = np.array([[1.5, -2, 65504, 3e-8], [0.1, 1e6, -0.0, 7]], np.float32)
    with np.errstate(over="ignore"):
        halves = texels.astype(np.float16).view(np.uint16).astype(np.uint32)
    x = np.arange(32, dtype=np.int32) % 2

    def texture(device: ge.Device) -> Any:
        return device.texture(device.array(texels), channels=4)

    packed = run(
        backend, "tex.1d.v2.f16x2.s32 {r2, r3}, [l1, {r1}]; st.global.v2.b32 [l2], {r2, r3};", texture, x
    )
    assert (packed[:, :2] == (halves[:, ::2] | halves[:, 1::2] << 16)[x]).all()
    single = run(
        backend,
        "tex.base.1d.v4.f16.s32 {g1, g2, g3, g4}, [l1, r1]; mov.b32 r2, {g1, g2}; mov.b32 r3, {g3, g4};"
        "st.global.v2.b32 [l2], {r2, r3};",
        texture,
        x,
    )
    assert (single == packed).all()


def test_a_guard_leaves_lanes_as_they_are(backend: str) -> None:
    body = (
        "mov.b32 r2, 9; mov.b32 r3, 8; selp.b64 l4, l1, 5, p1; @p1 tex.1d.v4.s32.s32 {r2, _, _, r3}, [l4, {r1}];"
        "st.global.v2.b32 [l2], {r2, r3};"
    )
    image = np.arange(100, 140, dtype=np.int32)
    found = run(backend, body, lambda device: device.texture(device.array(image)))
    assert found[:, 0].tolist() == [9, 9, 9, *range(103, 132)]
    assert found[:, 1].tolist() == [8, 8, 8, *[1] * 29]


def test_references_by_name(backend: str) -> None:
    before = ".global .texref first; .global .texref second; .global .surfref target;\n"
    body = (
        "tex.1d.v4.s32.s32 {r2, r4, r4, r4}, [first, {r1}]; mov.u64 l4, second; tex.1d.v4.s32.s32 {r3, r4, r4, r4}, [l4, {r1}];"
        "shl.b32 r5, r1, 2; add.s32 r6, r2, r3; sust.b.1d.b32.trap [target, {r5}], {r6}; st.global.v2.b32 [l2], {r2, r3};"
    )
    one, other = np.arange(40, dtype=np.int32), np.arange(900, 940, dtype=np.int32)
    kept: list[Any] = []

    def bind(device: ge.Device) -> dict[str, Any]:
        kept.append(device.zeros(32, np.int32))
        return {
            "first": device.texture(device.array(one)),
            "second": device.texture(device.array(other)),
            "target": device.surface(kept[0]),
        }

    found = run(backend, body, bind, before=before)
    assert (found[:, 0] == one[:32]).all()
    assert (found[:, 1] == other[:32]).all()
    assert (kept[0].numpy() == (one + other)[:32]).all()
    with pytest.raises(ge.LaunchError, match=r"'first' is bound to no image\n  bind one first: device.bind"):
        run(backend, body, lambda device: 0, before=before)
    with pytest.raises(ge.LaunchError, match=r"cannot bind .*surface.* to 'first'"):
        run(backend, body, lambda device: {"first": device.surface(device.zeros(4, np.int32))}, before=before)
    with pytest.raises(ge.LaunchError, match=r"'word' is not a .texref, .surfref or .samplerref variable"):
        run(
            backend, body, lambda device: {"word": device.texture(device.zeros(4, np.int32))},
            before=before + ".global .u32 word;\n",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "given", "stored"),
    [
        ("uint8", [0, 255, 256, 2**32 - 1], [0, 255, 255, 255]),
        ("int8", [5, -200 % 2**32, 127, 128], [5, -128, 127, 127]),
        ("uint16", [65535, 65536, 7, 0], [65535, 65535, 7, 0]),
        ("int16", [40000, -40000 % 2**32, -1 % 2**32, 3], [32767, -32768, -1, 3]),
        ("uint32", [2**32 - 1, 1, 2, 3], [2**32 - 1, 1, 2, 3]),
        ("int32", [-1 % 2**32, 1, 2, 3], [-1, 1, 2, 3]),
    ],
)
def test_formatted_stores_of_integers(dtype: str, given: list[int], stored: list[int], backend: str) -> None:
    kept: list[Any] = []

    def surface(device: ge.Device) -> Any:
        kept.append(device.zeros((33, 4), dtype))
        return device.surface(kept[0], channels=4)

    numbers = ", ".join(f"r{place + 2}" for place in range(4))
    body = "".join(f"mov.b32 r{place + 2}, {value};" for place, value in enumerate(given))
    run(backend, body + f"sust.p.1d.v4.b32.trap [l1, {{r1}}], {{{numbers}}};", surface)
    assert kept[0].numpy()[:32].tolist() == [stored] * 32
    assert not kept[0].numpy()[32].any()


def test_formatted_stores_of_floats(backend: str) -> None:
    x = (np.arange(32) * 0.3 - 4).astype(np.float32)
    for dtype in ("float16", "float32"):
        kept: list[Any] = []

        def surface(device: ge.Device, dtype: str = dtype, kept: list[Any] = kept) -> Any:
            kept.append(device.zeros((4, 8, 2), dtype))
            return device.surface(kept[0], channels=2)

        body = "and.b32 r2, r8, 7; shr.u32 r3, r8, 3; neg.f32 f2, f1; sust.p.2d.v2.b32.zero [l1, {r2, r3}], {f1, f2};"
        run(backend, body, surface, x)
        assert (kept[0].numpy().reshape(32, 2) == np.stack([x, -x], 1).astype(dtype)).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_wide_accesses_of_narrow_texels(dtype: str, backend: str) -> None:
    """Rows of 19 bytes or 7 halves begin anywhere; words and double words are read and written all the same."""
    width = {"uint8": 19, "uint16": 11, "uint32": 6}[dtype]
    size = np.dtype(dtype).itemsize
    texels = np.random.default_rng(2).integers(0, 256, (8, width * size), dtype=np.uint8)
    kept: list[Any] = []

    def surface(device: ge.Device) -> Any:
        kept[:] = [device.array(texels.view(dtype))]
        return device.surface(kept[0])

    body = "and.b32 r2, r8, 7; shr.u32 r3, r8, 3; shl.b32 r3, r3, 2; suld.b.2d.b32.zero r4, [l1, {r3, r2}];"
    body += "shl.b32 r5, r3, 1; suld.b.2d.b64.zero l5, [l1, {r5, r2}]; suld.b.2d.v2.b16.zero {h1, h2}, [l1, {r3, r2}];"
    body += "mov.b64 {r5, r6}, l5; mov.b32 r7, {h1, h2}; st.global.v4.b32 [l2], {r4, r5, r6, r7};"
    found = run(backend, body, surface)
    for thread in range(32):
        row = texels[thread % 8].tobytes()
        x = thread // 8 * 4

        def read(at: int, count: int, row: bytes = row) -> int:
            return int.from_bytes(row[at : at + count], "little") if at + count <= len(row) else 0

        low, high = divmod(read(2 * x, 8), 1 << 32)[::-1]
        assert found[thread].tolist() == [read(x, 4), low, high, read(x, 4)]
    body = "and.b32 r2, r8, 7; shr.u32 r3, r8, 3; shl.b32 r3, r3, 3; mul.lo.u32 r4, r8, 0x01030507; mov.b64 l5, {r4, r8};"
    body += (
        "shr.u32 r5, r8, 3; setp.gt.u32 p2, r5, 1; @p2 bra END; sust.b.2d.b64.zero [l1, {r3, r2}], l5; END:"
    )
    run(backend, body, surface)
    wanted = texels.copy()
    for thread in range(16):
        pair = (thread * 0x01030507 & 0xFFFFFFFF) | thread << 32
        at = thread // 8 * 8
        wanted[thread % 8, at : at + 8] = np.frombuffer(pair.to_bytes(8, "little"), np.uint8)
    assert (kept[0].numpy().view(np.uint8).reshape(8, -1) == wanted).all()


REDUCTIONS = [
    ("b", "add", "u32"), ("b", "add", "s32"), ("b", "add", "u64"), ("b", "min", "u32"), ("b", "min", "s32"), ("b", "max", "u64"),
    ("b", "max", "s64"), ("b", "and", "b32"), ("b", "or", "b32"), ("p", "min", "b32"), ("p", "add", "b32"), ("p", "or", "b32"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "op", "kind"), REDUCTIONS)
@pytest.mark.parametrize("sign", ["u", "i"])
def test_reductions(how: str, op: str, kind: str, sign: str, backend: str) -> None:
    """Several lanes meet at each place."""
    bits = int(kind[1:])
    signed = kind[0] == "s" or (how == "p" and sign == "i")
    start = [3, -5, 1 << (bits - 1), 77]
    x = np.array([(i * 2654435761) % 2**32 for i in range(32)], np.uint32)
    kept: list[Any] = []

    def surface(device: ge.Device) -> Any:
        words = np.array([value % 2**bits for value in start], f"u{bits // 8}")
        host = words.view(np.uint32).reshape(-1) if bits == 64 else words
        kept.append(device.array(host.view(f"{sign}4")))
        return device.surface(kept[0])

    scale = 1 if how == "p" else bits // 8
    body = f"and.b32 r2, r8, 3; mul.lo.u32 r2, r2, {scale}; mov.b32 r3, r1; mov.b64 l5, {{r1, r1}};"
    value = "l5" if bits == 64 else "r3"
    run(backend, body + f"sured.{how}.{op}.1d.{kind}.trap [l1, {{r2}}], {value};", surface, x.view(np.int32))

    def number(raw: int) -> int:
        return raw - 2**bits if signed and raw >> (bits - 1) else raw

    wanted = []
    for place, value_ in enumerate(start):
        total = value_ % 2**bits
        for lane in range(place, 32, 4):
            other = int(x[lane]) * (2**32 + 1) % 2**bits
            if op == "add":
                total = (total + other) % 2**bits
            elif op in ("and", "or"):
                total = total & other if op == "and" else total | other
            else:
                total = (min if op == "min" else max)(total, other, key=number)
        wanted.append(total)
    assert kept[0].numpy().view(f"u{bits // 8}").tolist() == wanted


@pytest.mark.parametrize("kind", ["u32", "s64"])
def test_reductions_in_rows_of_any_length(kind: str, backend: str) -> None:
    """Rows of 11 bytes begin anywhere; coordinates are counted from the beginning of the row."""
    size = int(kind[1:]) // 8
    start = (np.arange(55, dtype=np.int64) * 37 % 256).astype(np.uint8).reshape(5, 11)
    kept: list[Any] = []

    def surface(device: ge.Device) -> Any:
        kept.append(device.array(start))
        return device.surface(kept[0])

    x = (np.arange(32, dtype=np.int64) * 2654435761 % 2**32).astype(np.uint32)
    op, value = ("add", "r1") if size == 4 else ("max", "l5")
    # five rows, and places 0, 4, 8 or 0, 8 of each, of which the last does not fit
    body = (
        f"rem.u32 r2, r8, 5; shr.u32 r3, r8, 2; rem.u32 r3, r3, {11 // size + 1}; mul.lo.u32 r3, r3, {size};"
    )
    body += f"mov.b64 l5, {{r8, r1}}; sured.b.{op}.2d.{kind}.zero [l1, {{r3, r2}}], {value};"
    run(backend, body, surface, x.view(np.int32))
    wanted = start.copy()
    for lane in range(32):
        row, at = wanted[lane % 5], lane // 4 % (11 // size + 1) * size
        if at + size > 11:
            continue
        old = int.from_bytes(row[at : at + size].tobytes(), "little", signed=size == 8)
        if size == 4:
            new = (old + int(x[lane])) % 2**32
        else:
            new = max(old, int.from_bytes(bytes([lane, 0, 0, 0]) + x[lane].tobytes(), "little", signed=True))
        row[at : at + size] = np.frombuffer(new.to_bytes(size, "little", signed=size == 8), np.uint8)
    assert (kept[0].numpy() == wanted).all()
    assert (wanted != start).any()


@pytest.mark.parametrize(
    ("body", "image", "message"),
    [
        (
            "tex.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1}];",
            "texture",
            r"tex\.2d\.v4\.f32\.f32: the texture is 1d",
        ),
        ("tex.a1d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {r1,f1}];", "texture", "the texture is 1d"),
        ("tex.1d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1}];", "surface", "is a surface, not a texture"),
        ("suld.b.1d.b32.zero r2, [l1, r1];", "texture", "is a texture, not a surface"),
        (
            "suld.b.1d.b32.zero r2, [l1, r1];",
            "surface",
            r"outside the surface, or not aligned\n.*thread \(1, 0, 0\)",
        ),
        ("sust.b.1d.v2.b32.clamp [l1, 4], {r1, r1};", "surface", "outside the surface, or not aligned"),
        ("txq.width.b32 r2, [l3];", "texture", "is not a texture or surface"),
        ("sured.p.add.1d.b64.trap [l1, r1], l2;", "surface", None),
        (
            "@p1 bra END; tex.1d.v4.f32.f32 {f2,f3,f4,f5}, [l3, {f1}]; END:",
            "texture",
            "is not a texture or surface",
        ),
    ],
)
def test_wrong_images(body: str, image: str, message: str | None, backend: str) -> None:
    def make(device: ge.Device) -> Any:
        array = device.zeros(4, np.float32)
        return device.texture(array) if image == "texture" else device.surface(array)

    if message is None:
        with pytest.raises(ge.PtxError):
            run(backend, body, make)
        return
    with pytest.raises(ge.TrapError, match=message) as caught:
        run(backend, body, make)
    assert str(caught.value).startswith("k.ptx:9:")
    assert len(str(caught.value).splitlines()) <= 5


FURTHER = [
    "tld4.r.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1}], {r1,r1}, f1;",
    "tex.2dms.v4.f32.s32 {f2,f3,f4,f5}, [l1, {r1,r1,r1,r1}];",
    "tex.a2dms.v4.f32.s32 {f2,f3,f4,f5}|p0, [l1, {r1,r1,r1,r1}], {r1,r1};",
    "tex.cube.v4.f32.f32 {f2,f3,f4,f5}|p0, [l1, {f1,f1,f1,f1}];",
    "tex.level.acube.v4.f32.f32 {f2,f3,f4,f5}, [l1, {r1,f1,f1,f1}], f1, f1;",
    "tex.2d.v4.f32.f32 {f2,f3,f4,f5}|p0, [l1, {f1,f1}], {r1,r1}, f1;",
]


REFUSED = [
    "tex.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1}];", "tex.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1], {f1,f1};",
    "tex.2d.v4.f32.f32 {f2,f3,f4,f5}, l1, {f1,f1};", "tex.1d.v4.f32.f32 {f2,f3,f4}, [l1, {f1}];",
    "tex.1d.v4.s32.f32 {f2,f3,f4,f5}, [l1, {f1}];", "tex.1d.v4.f32.s32 {f2,f3,f4,f5}, [l1, {f1}];",
    "tex.1d.v4.f32.f32 {f2,f3,f4,f5}, [r1, {f1}];", "tex.1d.f32.f32 f2, [l1, {f1}];", "tex.1d.v2.f32.f32 {f2,f3}, [l1, {f1}];",
    "tex.1d.v4.f64.f32 {f2,f3,f4,f5}, [l1, {f1}];", "tex.4d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1}];",
    "tex.level.1d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1}];", "tex.grad.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1}], {f1}, {f1};",
    "tex.3d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1,f1,f1}], f1;", "tex.level.2dms.v4.f32.s32 {f2,f3,f4,f5}, [l1, {r1,r1,r1,r1}], r1;",
    "tex.cube.v4.f32.s32 {f2,f3,f4,f5}, [l1, {r1,r1,r1,r1}];", "tld4.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1}];",
    "tld4.x.2d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1,f1}];", "tld4.r.1d.v4.f32.f32 {f2,f3,f4,f5}, [l1, {f1}];",
    "tld4.r.2d.v4.f16.f32 {h2,h3,h4,h5}, [l1, {f1,f1}];", "txq.width.u32 r2, [l1];", "txq.size.b32 r2, [l1];",
    "txq.level.array_size.b32 r2, [l1], r1;", "suq.normalized_coords.b32 r2, [l1];", "istypep.texref p0, r1;",
    "istypep.texture p0, l1;", "suld.b.1d.b32 r2, [l1, r1];", "suld.b.1d.f32.trap f2, [l1, r1];",
    "suld.b.1d.v4.b64.trap {l1,l2,l3,l4}, [l1, r1];", "suld.p.1d.v4.b32.trap {r1,r2,r3,r4}, [l1, r1];",
    "suld.b.1d.wb.b32.trap r2, [l1, r1];", "suld.b.2d.b32.trap r2, [l1, {r1}];", "sust.b.1d.ca.b32.trap [l1, r1], r1;",
    "sust.b.1d.b32.trap [l1], r1;", "sust.p.1d.b64.trap [l1, r1], l1;", "sust.b.1d.v2.b32.trap [l1, r1], {r1,r2,r3};",
    "sured.b.add.1d.s64.trap [l1, r1], l1;", "sured.b.and.1d.u32.trap [l1, r1], r1;", "sured.b.add.a1d.u32.trap [l1, {r1,r1}], r1;",
    "sured.p.add.1d.b64.trap [l1, r1], l1;", "sured.b.add.1d.f32.trap [l1, r1], f1;", "sured.b.add.1d.u32 [l1, r1], r1;",
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_near_misses_are_refused(line: str) -> None:
    with pytest.raises(ge.PtxError):
        ge.parse(HEAD + ENTRY + line + "\nret; }\n", path="k.ptx")["k"]


def test_ptxas_refuses_them_too(tmp_path: Any) -> None:
    from .assembler import PTXAS, ptxas_version, refused

    if PTXAS is None:
        pytest.skip("no ptxas on the PATH")
    lines = [line.replace("h2,h3,h4,h5", "h1,h2,h3,h4") for line in REFUSED]
    assert [line for line in lines if line not in refused(lines, ptxas_version(), "80", tmp_path)] == []


def test_the_text_is_written_as_it_was_read() -> None:
    lines = [*FURTHER]
    lines += ["sust.b.2d.v2.b32.clamp [l1, {r1, r2}], {r3, r4};", "sured.b.add.1d.u32.trap [l1, r1], r1;"]
    module = ge.parse(HEAD + ENTRY + "\n".join(lines) + "\nret; }\n", path="k.ptx")
    module["k"]
    from gpuperf_engine.ptx.write import write

    again = ge.parse(write(module), path="again.ptx")["k"]
    assert [item.opcode for item in again.instructions] == [item.opcode for item in module["k"].instructions]
    assert write(again.module) == write(module)
