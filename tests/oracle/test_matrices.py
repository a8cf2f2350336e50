"""Matrix instructions: small whole numbers, whose sums are exact in any order, against NumPy, and layouts by the manual's figures."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from .kernels import collect, module
from .products import summation
from .scalar import Buffer, OracleError, run
from .warpgroup import places

RNG = np.random.default_rng(3)


def ints(*shape: int) -> np.ndarray:
    return RNG.integers(-4, 5, shape)


def bits(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def test_sums_begin_with_c_and_are_rounded_once() -> None:
    def one(types: tuple[str, str], start: int, row: list, column: list, **options: object) -> int:
        return summation(*types, **options)([[start]], [row], [column])[0][0]

    f32, s32 = ("f32", "f32"), ("s32", "s32")
    # 2^24 + 1 is not a single-precision number, but double precision carries it on
    assert one(f32, bits(2.0**24), [1.0, 1.0], [1.0, 1.0]) == bits(2.0**24 + 2)
    # 2^53 + 1 is not a double: the ones are lost when they come one by one, and -2^53 comes last
    assert one(f32, bits(2.0**53), [1.0, 1.0, -(2.0**53)], [1.0, 1.0, 1.0]) == bits(0.0)
    assert one(f32, bits(0.0), [2.0**100], [2.0**100]) == 0x7F800000
    assert one(f32, bits(0.0), [float("inf")], [0.0]) == 0x7FFFFFFF
    assert one(s32, 0x7FFFFFFF, [1], [1], saturates=True) == 0x7FFFFFFF
    assert one(s32, 0x7FFFFFFF, [1], [1]) == 0x80000000
    assert one(s32, 1, [0b1, 0b0], [0b0, 0b0], op="xor") == 2


def words(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


@pytest.mark.parametrize("layouts", ["row.col", "row.row", "col.col"])
@pytest.mark.parametrize(("kind", "added", "shape"), [
    ("f16", "f32", (16, 16, 16)), ("f16", "f16", (32, 8, 16)), ("s8", "s32", (8, 32, 16)), ("f64", "f64", (8, 8, 4)),
])  # fmt: skip
def test_wmma(layouts: str, kind: str, added: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    dtypes = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s8": np.int8, "s32": np.int32}
    a, b, c = ints(m, k), ints(k, n), ints(m, n)
    first, second = layouts.split(".")
    count = {"f16": (8, 8), "s8": (1 if m == 8 else 4, 4), "f64": (1, 1)}[kind]
    sums = {"f32": 8, "f16": 4, "s32": 8, "f64": 2}[added]
    size = f"m{m}n{n}k{k}"
    types = {"f16": f"{added}.{added}"}.get(kind, f"{added}.{kind}.{kind}.{added}")
    width = 64 if kind == "f64" else 32

    def listed(name: str, number: int) -> str:
        return "{" + ", ".join(f"{name}{i}" for i in range(number)) + "}"

    body = f"""
    .reg .b{width} a<8>, b<8>, c<8>; .reg .b64 p<4>;
    ld.param.u64 p0, [a]; ld.param.u64 p1, [b]; ld.param.u64 p2, [c]; ld.param.u64 p3, [d];
    wmma.load.a.sync.aligned.{first}.{size}.global.{kind} {listed("a", count[0])}, [p0];
    wmma.load.b.sync.aligned.{second}.{size}.global.{kind} {listed("b", count[1])}, [p1];
    wmma.load.c.sync.aligned.row.{size}.global.{added} {listed("c", sums)}, [p2];
    wmma.mma.sync.aligned.{layouts}.{size}.{types} {listed("c", sums)}, {listed("a", count[0])},
        {listed("b", count[1])}, {listed("c", sums)};
    wmma.store.d.sync.aligned.row.{size}.global.{added} [p3], {listed("c", sums)}, {n + 2};
    ret;"""
    given = [item.astype(dtypes[kind]) if order == "row" else item.T.astype(dtypes[kind])
             for item, order in ((a, first), (b, second))]  # fmt: skip
    d = Buffer(np.zeros((m, n + 2), dtypes[added]))
    text = module(body, ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d")
    run(text, "k", 1, 32, [*(Buffer(item) for item in given), Buffer(c.astype(dtypes[added])), d])
    np.testing.assert_array_equal(d.numpy()[:, :n], a @ b + c)
    assert not d.numpy()[:, n:].any()


def test_stored_matrices_are_those_that_were_loaded() -> None:
    """Two matrices, one transposed on the way; lane 4 r + c holds columns 2 c and 2 c + 1 of row r."""
    text = """
    .shared .align 16 .b8 from[256]; .shared .align 16 .b8 to[256];
    mov.u32 %r1, %laneid; mul.lo.u32 %r2, %r1, 8; mov.u32 %r3, from; mov.u32 %r4, to;
    add.u32 %r5, %r3, %r2; mul.lo.u32 %r6, %r1, 0x40004; add.u32 %r7, %r6, 0x10000; add.u32 %r8, %r7, 0x20002;
    st.shared.v2.u32 [%r5], {%r7, %r8}; bar.warp.sync -1;
    and.b32 %r9, %r1, 15; shl.b32 %r9, %r9, 4; add.u32 %r10, %r3, %r9; add.u32 %r11, %r4, %r9;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r12, %r13}, [%r10];
    stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r11], {%r12, %r13}; bar.warp.sync -1;
    shl.b32 %r14, %r1, 2; add.u32 %r15, %r4, %r14; ld.shared.u32 %r0, [%r15];"""
    # element (r, c) of the first matrix was 8 r + c; stored transposed, word l holds (2 (l % 4), l // 4) and the one below it
    found = collect(text)
    first = [8 * (2 * (lane % 4)) + lane // 4 for lane in range(32)]
    assert found == [at | at + 8 << 16 for at in first]


@pytest.mark.parametrize(("opcode", "shape", "dtype"), [
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (8, 8, 4), np.float64),
    ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", (16, 8, 16), np.float64),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", (16, 8, 8), np.float32),
])  # fmt: skip
def test_mma_of_one_element_per_register(opcode: str, shape: tuple[int, int, int], dtype: type) -> None:
    """Lane 4 g + t holds rows g and g + 8 and columns t, t + 4 … of A, the same of the transpose of B, and columns 2 t and 2 t + 1
    of C."""
    m, n, k = shape
    a, b, c = ints(m, k).astype(dtype), ints(k, n).astype(dtype), ints(m, n).astype(dtype)
    rows = [g + 8 * h for g in range(8) for h in range(m // 8)]
    assert len(rows) == m
    packed = np.zeros((32, 16), dtype)
    halves = m // 8
    for lane in range(32):
        g, t = divmod(lane, 4)
        for i in range(k // 4):
            for h in range(halves):
                packed[lane, i * halves + h] = a[g + 8 * h, t + 4 * i]
            packed[lane, 8 + i] = b[t + 4 * i, g]
        for h in range(halves):
            packed[lane, 12 + 2 * h : 14 + 2 * h] = c[g + 8 * h, 2 * t : 2 * t + 2]
    size, count = np.dtype(dtype).itemsize, (k // 4 * halves, k // 4, 2 * halves)
    kind = f"b{8 * size}"
    listed = ["{" + ", ".join(f"x{first + i}" for i in range(number)) + "}"
              for first, number in zip((0, 8, 12), count, strict=True)]  # fmt: skip
    loads = "\n".join(f"ld.global.{kind} x{i}, [p+{size * i}];" for i in range(16))
    stores = "\n".join(f"st.global.{kind} [p+{size * i}], x{i};" for i in range(12, 12 + count[2]))
    body = f""".reg .{kind} x<16>; .reg .b64 p; mov.u32 %r0, %laneid; ld.param.u64 p, [a];
    mad.wide.u32 p, %r0, {16 * size}, p; {loads}
    {opcode} {listed[2]}, {listed[0]}, {listed[1]}, {listed[2]}; {stores} ret;"""
    buffer = Buffer(packed)
    run(module(body, ".param .u64 a"), "k", 1, 32, [buffer])
    found = np.zeros((m, n), dtype)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for h in range(halves):
            found[g + 8 * h, 2 * t : 2 * t + 2] = buffer.numpy()[lane, 12 + 2 * h : 14 + 2 * h]
    np.testing.assert_array_equal(found, a @ b + c)


def descriptor(start: int, leading: int, stride: int, mode: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


def test_layouts_of_shared_memory() -> None:
    """Elements of 16 bits; unit: 16 bytes, 8 elements. In the modes 1, 2, 3 the pattern's lines are 128, 64 and 32 bytes long."""
    plain = places(descriptor(0x400, 0x800, 0x100, 0), 16, False)
    assert plain(0, 0) == 0x400 and plain(0, 1) == 0x402
    assert plain(1, 0) == 0x410  # rows of a core matrix: 16 bytes apart
    assert plain(8, 0) == 0x500 and plain(0, 8) == 0xC00  # 8 rows: stride; 8 of k: leading dimension
    wide = places(descriptor(0x400, 0, 0x400, 1), 16, False)
    assert wide(0, 63) == 0x47E and wide(8, 0) == 0x800
    assert wide(1, 0) == 0x490 and wide(7, 8) == 0x780 + 0x60  # line l: units exchanged by l
    half, quarter = (places(descriptor(0x400, 0, 0x200, mode), 16, False) for mode in (2, 3))
    assert half(2, 0) == 0x490 and quarter(4, 0) == 0x490  # the pattern's bits are those of the address
    turned = places(descriptor(0x400, 0x800, 0x400, 1), 16, True)
    assert turned(1, 0) == 0x402 and turned(64, 0) == 0xC00  # 64 rows are a line; then the leading dimension
    assert turned(0, 1) == 0x490 and turned(0, 8) == 0x800  # 8 of k: stride
    flat = places(descriptor(0x400, 0x800, 0x100, 0), 16, True)
    assert flat(8, 0) == 0x500 and flat(0, 8) == 0xC00 and flat(0, 1) == 0x410
    moved = places(descriptor(0x420, 0, 0x400, 1), 16, False)  # 32 bytes further on: k + 16
    assert [moved(line, 0) for line in range(8)] == [wide(line, 16) for line in range(8)]


def test_what_is_not_known() -> None:
    text = module(
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r0}, {%f0}, %r0, 0; ret;"
    )
    with pytest.raises(OracleError, match="multiplies no such matrices"):
        run(text, "k", 1, 32, [])


@pytest.mark.parametrize("quantum", [1, 7, 2000])
def test_a_wait_for_the_warpgroup_holds_until_all_have_issued(quantum: int) -> None:
    """Thread 0 clears the matrices behind the wait; they are all ones, so every sum is 16."""
    text = module(
        """
        .shared .align 128 .b8 tile[2304]; .reg .f32 %c<4>; .reg .b64 %da, %db;
        mov.u32 %r1, tile; mov.u32 %r2, %tid.x; mov.u32 %r3, 0; setp.ne.u32 %p1, %r2, 0;
        fill: add.u32 %r4, %r1, %r3; st.shared.b32 [%r4], 0x3c003c00; add.u32 %r3, %r3, 4;
        setp.lt.u32 %p2, %r3, 2304; @%p2 bra fill;
        bar.sync 0;
        mov.f32 %c0, 0f00000000; mov.f32 %c1, %c0; mov.f32 %c2, %c0; mov.f32 %c3, %c0;
        mov.b64 %da, 0x800400000; mov.b64 %db, 0x800080080; setp.eq.u32 %p2, %r2, %r2;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, %da, %db, %p2, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        @%p1 bra cleared;
        mov.u32 %r3, 0;
        clear: add.u32 %r4, %r1, %r3; st.shared.b32 [%r4], 0; add.u32 %r3, %r3, 4;
        setp.lt.u32 %p2, %r3, 2304; @%p2 bra clear;
        cleared: ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r2, 16; add.u64 %rd1, %rd1, %rd2;
        st.global.v4.f32 [%rd1], {%c0, %c1, %c2, %c3};
        """,
        ".param .u64 out",
    ).replace("sm_80", "sm_90a")
    out = Buffer(np.zeros((128, 4), np.float32))
    (found, *_) = run(text, "k", 1, 128, [out], quantum=quantum).memory
    assert (found == 16).all()
