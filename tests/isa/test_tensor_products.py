"""``tcgen05.mma`` against NumPy, on both backends: kinds, shapes, layouts of shared memory, transposition, D in tensor memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.isa.tensor_kernels import (
    COLUMNS,
    WORK,
    Words,
    idesc,
    image,
    interpreted,
    on_both,
    run,
    spread,
    text,
)
from tests.support import BACKENDS

KINDS = ("f16", "tf32", "f8f6f4", "i8")
LINES = (
    *(f"tcgen05.mma.cta_group::1.kind::{kind} [%r11], %x0, %x1, %r16, %p5;" for kind in KINDS),
    *(f"tcgen05.mma.cta_group::1.kind::{kind} [%r11], [%r12], %x1, %r16, %p5;" for kind in KINDS),
    "tcgen05.mma.cta_group::1.kind::f16 [%r11], %x0, %x1, %r16, {%m0, %m1, %m2, %m3}, %p5;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r11], %x0, %x1, %r16, %p5, 3;",
    "tcgen05.mma.ws.cta_group::1.kind::f16 [%r11], %x0, %x1, %r16, %p5;",
    "tcgen05.mma.ws.cta_group::1.kind::f16 [%r11], %x0, %x1, %r16, %p5, %x5;",
    *(f"tcgen05.mma.cta_group::1.kind::{kind}.ashift [%r11], [%r12], %x1, %r16, %p5;" for kind in KINDS),
    "tcgen05.shift.cta_group::1.down [%r12];",
)
MASKED, SCALED, WEIGHTS, ZEROS, SHIFTED, SHIFT = 8, 9, 10, 11, 12, 16
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}
#: codes of −2 … 2 in formats of a byte: e4m3, e5m2
SMALL = {0: {-2: 0xC0, -1: 0xB8, 0: 0, 1: 0x38, 2: 0x40}, 1: {-2: 0xC0, -1: 0xBC, 0: 0, 1: 0x3C, 2: 0x40}}


@cache
def kernel() -> ge.Kernel:
    return ge.parse(text(LINES), path="k.ptx")["k"]


def integers(seed: int, *shape: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-2, 3, shape)


def coded(kind: str, form: int, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Small integers as the elements of a kind."""
    if kind == "f16":
        wide = numbers.astype(np.float32).view(np.uint32) >> 16
        return wide.astype(np.uint16) if form else numbers.astype(np.float16)
    if kind == "tf32":
        return numbers.astype(np.float32)
    if kind == "i8":
        return numbers.astype(np.int8)
    return np.vectorize(SMALL[form].get)(numbers).astype(np.uint8)


def words_of(numbers: NDArray[Any], d: int) -> Words:
    """Elements of D as words of tensor memory: f16 in the lower half, f32, s32."""
    if d == 0:
        return numbers.astype(np.float16).view(np.uint16).astype(np.uint32)
    return numbers.astype(np.float32 if d == 1 else np.int32).view(np.uint32)


@pytest.mark.parametrize(
    ("backend", "kind", "rows", "columns", "form", "d", "mode", "across", "held"),
    on_both(
        [
            ("f16", 128, 56, 0, 1, "128", (0, 0), False),
            ("f16", 128, 32, 1, 1, "64", (0, 0), True),
            ("f16", 64, 24, 0, 0, "none", (0, 0), False),
            ("f16", 64, 64, 1, 1, "32", (1, 1), False),
            ("f16", 128, 64, 0, 1, "none", (1, 1), False),
            ("f16", 64, 64, 0, 1, "128", (1, 0), False),
            ("tf32", 128, 16, 2, 1, "32", (0, 0), True),
            ("tf32", 64, 64, 2, 1, "128 of 32", (1, 1), False),
            ("f8f6f4", 128, 48, 0, 1, "32", (0, 0), False),
            ("f8f6f4", 64, 32, 1, 0, "128", (0, 1), True),
            ("i8", 128, 32, 1, 2, "64", (0, 0), False),
            ("i8", 64, 64, 1, 2, "64", (1, 1), False),
        ]
    ),
)
def test_products(
    backend: str,
    kind: str,
    rows: int,
    columns: int,
    form: int,
    d: int,
    mode: str,
    across: tuple[int, int],
    held: bool,
) -> None:
    """Small integers, whose sums are exact: each element of D, and nothing else, is what NumPy says."""
    depth = DEPTH[kind]
    a, b, before = integers(1, rows, depth), integers(2, columns, depth), integers(3, rows, columns)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded(kind, form, a), mode, 1024, shared, bool(across[0])),
        "b": image(coded(kind, form, b), mode, 24576, shared, bool(across[1])),
        "idesc": idesc(rows, columns, a=form, b=form, d=d, transpose_a=across[0], transpose_b=across[1]),
    }
    lanes = np.arange(rows) if rows == 128 else spread(rows)
    tensor = np.random.default_rng(4).integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    first = 56
    tensor[lanes, first : first + columns] = words_of(before, d)
    if held:
        tensor[lanes, 40:48] = np.ascontiguousarray(coded(kind, form, a)).view(np.uint32)
        given["a"] = 40
    which = KINDS.index(kind) + 4 * held
    for reads in (0, 1) if backend == "llvm" else (1,):
        expected = tensor.copy()
        expected[lanes, first : first + columns] = words_of(a @ b.T + reads * before, d)
        (after,) = run(backend, kernel(), which, shared, tensor, d=first, reads=reads, **given)
        np.testing.assert_array_equal(after, expected)
        factor = {"f16": "bf16" if form else "fp16", "f8f6f4": "fp8", "i8": "int8"}.get(kind, kind)
        assert {f"tensor_{factor}": 2 * rows * columns * depth} == WORK


#: by format, its bits and the codes of 0, 1 and 2: e2m3, e3m2, e2m1
PACKED = {3: (6, (0, 8, 16)), 4: (6, (0, 12, 16)), 5: (4, (0, 2, 4))}


def packed(kinds: NDArray[np.int64], form: int, mode: str, start: int, shared: NDArray[np.uint8]) -> int:
    """As ``image`` across K, of small integers in a format that is packed: 16 of them at the beginning of 16 bytes, ones behind."""
    bits, codes = PACKED[form]
    bytes_ = np.array(codes, np.uint8)[abs(kinds)] | ((kinds < 0).astype(np.uint8) << (bits - 1))
    unpacked = np.zeros_like(shared)
    descriptor = image(bytes_, mode, start, unpacked, True)
    single = np.unpackbits(unpacked.reshape(-1, 16, 1), axis=-1, bitorder="little", count=bits)
    pieces = np.ones((len(single), 128), np.uint8)
    pieces[:, : 16 * bits] = single.reshape(len(single), -1)
    shared[start : start + 16384] = np.packbits(pieces, axis=-1, bitorder="little").reshape(-1)[
        start : start + 16384
    ]
    return descriptor


@pytest.mark.parametrize(
    ("backend", "form", "columns", "mode"),
    on_both([(5, 64, "128"), (3, 40, "none"), (4, 64, "32"), (5, 24, "64")], 2),
)
def test_packed_elements_across_k(backend: str, form: int, columns: int, mode: str) -> None:
    """Triton makes such matrices of tensors that are packed along M and N (``tl.dot_scaled`` with ``lhs_k_pack=False``)."""
    a, b = integers(1, 64, 32), integers(2, columns, 32)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": packed(a, form, mode, 1024, shared),
        "b": packed(b, form, mode, 24576, shared),
        "idesc": idesc(64, columns, a=form, b=form, transpose_a=1, transpose_b=1),
    }
    tensor = np.full((128, COLUMNS), 7, np.uint32)
    expected = tensor.copy()
    expected[spread(64), :columns] = words_of(a @ b.T, 1)
    which = KINDS.index("f8f6f4")
    (after,) = run(backend, kernel(), which, shared, tensor, **given)
    np.testing.assert_array_equal(after, expected)
    if backend == "llvm":
        np.testing.assert_array_equal(interpreted(LINES[which], shared, tensor, **given)[0], expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounding_signs_and_scale(backend: str) -> None:
    """Sums are those of exact numbers, rounded once to f32; a negated A; D is halved three times."""
    random = np.random.default_rng(5)
    a = random.standard_normal((128, 16)).astype(np.float16)
    b = random.standard_normal((16, 16)).astype(np.float16)
    before = random.standard_normal((128, 16)).astype(np.float32)
    shared = np.zeros(40960, np.uint8)
    given = {"a": image(a, "128", 1024, shared), "b": image(b, "128", 24576, shared)}
    tensor = np.zeros((128, COLUMNS), np.uint32)
    tensor[:, :16] = before.view(np.uint32)
    given |= {"reads": 1, "idesc": idesc(128, 16, negate_a=1)}
    (after,) = run(backend, kernel(), SCALED, shared, tensor, **given)
    np.testing.assert_array_equal(after, interpreted(LINES[SCALED], shared, tensor, **given)[0])
    exact = before.astype(np.float64) / 8 - a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(after[:, :16].view(np.float32), exact, rtol=2**-23, atol=2**-40)


@pytest.mark.parametrize("backend", BACKENDS)
def test_disabled_lanes(backend: str) -> None:
    a, b = integers(6, 128, 16), integers(7, 16, 16)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded("f16", 0, a), "128", 1024, shared),
        "b": image(coded("f16", 0, b), "128", 24576, shared),
    }
    masks = [0xFFFF0000, 0, 0x1, 0xFFFFFFFF]
    off = np.array([masks[lane // 32] >> lane % 32 & 1 for lane in range(128)], np.bool_)
    tensor = np.full((128, COLUMNS), 7, np.uint32)
    expected = tensor.copy()
    expected[~off, :16] = words_of(a @ b.T, 1)[~off]
    given |= {f"m{number}": mask for number, mask in enumerate(masks)}
    given["idesc"] = idesc(128, 16)
    (after,) = run(backend, kernel(), MASKED, shared, tensor, **given)
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(interpreted(LINES[MASKED], shared, tensor, **given)[0], expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [32, 64])
def test_weights_kept(backend: str, rows: int) -> None:
    """``.ws``: the columns of D lie in parts one below the other (manual: layouts E and G)."""
    a, b = integers(8, rows, 16), integers(9, 64, 16)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded("f16", 0, a), "128", 1024, shared),
        "b": image(coded("f16", 0, b), "128", 24576, shared),
    }
    tensor = np.full((128, COLUMNS), 7, np.uint32)
    expected = tensor.copy()
    product = words_of(a @ b.T, 1)
    parts = 128 // rows
    for part in range(parts):
        own = product[:, part * 64 // parts : (part + 1) * 64 // parts]
        expected[part * rows : (part + 1) * rows, : 64 // parts] = own
    (after,) = run(backend, kernel(), WEIGHTS, shared, tensor, idesc=idesc(rows, 64), **given)
    np.testing.assert_array_equal(after, expected)


#: the manual's examples 1 to 4 of zero-column masks, the last without its shift: M; the descriptor; the first bits of each part, from
#: column 0 on
MASKS_OF_COLUMNS = [
    (128, 0x0003_0400_0000_0000, ["0" * 14]),
    (128, 0x0003_0280_0000_0000, ["00001110000111"]),
    (64, 0x0003_0281_0000_0000, ["11100001110000", "00001110000111"]),
    (32, 0x0003_0283_0102_0100, ["11100001110000", "11000011100001", "00111000011100", "00011100001110"]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rows", "zeros", "bits"), MASKS_OF_COLUMNS)
def test_zeros_for_columns_of_b(backend: str, rows: int, zeros: int, bits: list[str]) -> None:
    a, b = integers(8, rows, 16), integers(9, 64, 16)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded("f16", 0, a), "128", 1024, shared),
        "b": image(coded("f16", 0, b), "128", 24576, shared),
    }
    tensor = np.full((128, COLUMNS), 7, np.uint32)
    (after,) = run(backend, kernel(), ZEROS, shared, tensor, idesc=idesc(rows, 64), scale_a=zeros, **given)
    product = a @ b.T
    for part, mask in enumerate(bits):
        first = part * 64 // len(bits)
        own = product[:, first : first + 14] * [1 - int(bit) for bit in mask]
        np.testing.assert_array_equal(after[part * rows : (part + 1) * rows, :14], words_of(own, 1))


@pytest.mark.parametrize(
    ("backend", "rows", "shift", "most", "across"),
    on_both([(32, 2, 1, False), (64, 32, 3, False), (128, 11, 2, True), (32, 16, 3, True)], 2),
)
def test_shifted_columns_of_b(backend: str, rows: int, shift: int, most: int, across: bool) -> None:
    """As many columns of B from a later one on (manual, example 4 of zero-column masks: 2 to 129 of 128); the mask is of those."""
    a, b = integers(8, rows, 16), integers(9, 64 + shift, 16)
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded("f16", 0, a), "128", 1024, shared),
        "b": image(coded("f16", 0, b), "64", 24576, shared, across),
        "idesc": idesc(rows, 64, transpose_b=across) | most << 30,
        "scale_a": 0x0003_0283_0102_0100 | shift << 56,
    }
    tensor = np.full((128, COLUMNS), 7, np.uint32)
    (after,) = run(backend, kernel(), ZEROS, shared, tensor, **given)
    _, _, masks = next(case for case in MASKS_OF_COLUMNS if case[0] == 32)
    parts, product = 128 // rows, a @ b[shift:].T
    for part in range(parts):
        first = part * 64 // parts
        own = product[:, first : first + 14] * [1 - int(bit) for bit in masks[part]]
        np.testing.assert_array_equal(after[part * rows : (part + 1) * rows, :14], words_of(own, 1))
    (interpreter,) = interpreted(LINES[ZEROS], shared, tensor, **given)
    np.testing.assert_array_equal(after, interpreter)


@pytest.mark.parametrize(
    ("backend", "rows", "zeros", "most", "message"),
    on_both(
        [
            (128, 1 << 62, 0, "zero-column mask descriptor"),
            (128, 1 << 37, 0, "zero-column mask descriptor"),
            (128, 0x0003_0280_0000_0004, 0, "zero-column mask descriptor"),
            (128, 2 << 56, 0, "shifts columns by 2"),
            (64, 17 << 56, 2, "shifts columns by 17"),
            (32, 17 << 56, 3, "shifts columns by 17"),
        ],
        2,
    ),
)
def test_refused_masks_of_columns(backend: str, rows: int, zeros: int, most: int, message: str) -> None:
    tensor, word = np.zeros((128, COLUMNS), np.uint32), idesc(rows, 64) | most << 30
    with pytest.raises(ge.TrapError, match=message):
        run(backend, kernel(), ZEROS, np.zeros(16, np.uint8), tensor, idesc=word, scale_a=zeros)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("saturates", [0, 1])
def test_integers_wrap_or_are_limited(backend: str, saturates: int) -> None:
    a, b = np.full((64, 32), 127, np.int8), np.full((8, 32), 127, np.int8)
    shared = np.zeros(40960, np.uint8)
    given = {"a": image(a, "32", 1024, shared), "b": image(b, "32", 24576, shared)}
    tensor = np.full((128, COLUMNS), 0x7FFFFFFF, np.uint32)
    word = idesc(64, 8, a=1, b=1, d=2, saturate=saturates)
    (after,) = run(backend, kernel(), KINDS.index("i8"), shared, tensor, reads=1, idesc=word, **given)
    total = 0x7FFFFFFF + 32 * 127 * 127
    assert (after[spread(64), :8] == (0x7FFFFFFF if saturates else total)).all()


@pytest.mark.parametrize(
    ("backend", "given", "message"),
    on_both(
        [
            ({"idesc": idesc(128, 264)}, "says N = 264"),
            ({"idesc": idesc(96, 16)}, "says M = 96"),
            ({"idesc": idesc(128, 16, a=2)}, "names types"),
            ({"idesc": idesc(128, 16, sparse=1)}, "sparsity"),
            ({"idesc": idesc(128, 16), "d": 504}, "columns 504 to 519 of tensor memory"),
            ({"idesc": idesc(128, 16), "d": 16 << 16}, "lane 16 of tensor memory"),
            ({"idesc": idesc(128, 16), "b": 3 << 61}, "swizzling mode"),
        ]
    ),
)
def test_refused(backend: str, given: dict[str, int], message: str) -> None:
    with pytest.raises(ge.TrapError, match=message) as caught:
        run(backend, kernel(), 0, np.zeros(16, np.uint8), np.zeros((128, COLUMNS), np.uint32), **given)
    assert "k.ptx:" in str(caught.value) and "of kernel 'k'" in str(caught.value)


@pytest.mark.parametrize(("which", "columns"), [(KINDS.index("i8"), 40), (WEIGHTS, 96)])
def test_refused_columns(which: int, columns: int) -> None:
    """The steps of N of 8-bit integers are 8 up to 32, then 16; ``.ws`` has three sizes (manual, table of shapes)."""
    word = idesc(128, columns, a=int(which < WEIGHTS), b=int(which < WEIGHTS), d=1 + (which < WEIGHTS))
    with pytest.raises(ge.TrapError, match=f"says N = {columns}"):
        run("llvm", kernel(), which, np.zeros(16, np.uint8), np.zeros((128, COLUMNS), np.uint32), idesc=word)


@pytest.mark.parametrize(
    ("kind", "rows", "d", "mode", "across", "held"),
    [("f16", 64, 1, "128", (1, 0), False), ("i8", 64, 2, "none", (0, 1), True)],
)  # fmt: skip
def test_interpreter_agrees(
    kind: str, rows: int, d: int, mode: str, across: tuple[int, int], held: bool
) -> None:
    """All of tensor memory is that of the interpreter of ``tests/oracle``, with numbers whose sums are rounded."""
    random = np.random.default_rng(11)
    columns, depth = 16, DEPTH[kind]
    raw = [
        random.integers(0, 256, (lines, depth * (1 + (kind == "f16")))).astype(np.uint8)
        for lines in (rows, columns)
    ]
    if kind == "f16":
        matrices: list[NDArray[Any]] = [
            random.standard_normal((lines, depth)).astype(np.float16) for lines in (rows, columns)
        ]
    else:
        matrices = [part & 0xBF for part in raw]
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(matrices[0], mode, 1024, shared, bool(across[0])),
        "b": image(matrices[1], mode, 24576, shared, bool(across[1])),
        "idesc": idesc(rows, columns, a=kind == "i8", b=0, d=d, transpose_a=across[0], transpose_b=across[1]),
    }
    tensor = random.integers(0, 1 << 14, (128, COLUMNS), dtype=np.uint32)
    if held:
        tensor[spread(rows), 40:48] = matrices[0].view(np.uint32)
        given["a"] = 40
    which = KINDS.index(kind) + 4 * held
    (after,) = run("llvm", kernel(), which, shared, tensor, d=64, reads=1, **given)
    (interpreter,) = interpreted(LINES[which], shared, tensor, d=64, reads=1, **given)
    np.testing.assert_array_equal(after, interpreter)


def shifted(rows: NDArray[Any]) -> NDArray[Any]:
    """What NVIDIA observed on a B200 and compares with there (NVIDIA/cutlass 7107b055, ``1cta_mma_a_from_tmem.py`` in the CuTeDSL
    examples of tcgen05): row r is row r + 1 afterwards, of each 32 the last one stays."""
    return np.concatenate([np.concatenate([part[1:], part[31:]]) for part in np.split(rows, len(rows) // 32)])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_product_shifts_the_rows_of_a(backend: str, kind: str) -> None:
    """D is that of A as it was; then A, and nothing else, is moved."""
    depth, form, d = DEPTH[kind], {"tf32": 2, "i8": 1}.get(kind, 0), 2 if kind == "i8" else 1
    a, b = integers(1, 128, depth), integers(2, 16, depth)
    shared = np.zeros(40960, np.uint8)
    descriptor = image(coded(kind, form, b), "none", 24576, shared)
    tensor = np.random.default_rng(4).integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    tensor[:, 40:48] = np.ascontiguousarray(coded(kind, form, a)).view(np.uint32)
    expected = tensor.copy()
    expected[:, 56:72] = words_of(a @ b.T, d)
    expected[:, 40:48] = shifted(tensor[:, 40:48])
    (after,) = run(
        backend,
        kernel(),
        SHIFTED + KINDS.index(kind),
        shared,
        tensor,
        a=40,
        b=descriptor,
        d=56,
        idesc=idesc(128, 16, a=form, b=form, d=d),
    )
    np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warp", range(4))
def test_rows_of_a_warp_are_shifted(backend: str, warp: int) -> None:
    """31 rows of 32 bytes (manual: "Data Movement Shape", .31x256b), from a lane on that is a multiple of 32."""
    tensor = np.random.default_rng(4).integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    expected = tensor.copy()
    lanes = slice(32 * warp, 32 * warp + 32)
    expected[lanes, 21:29] = shifted(tensor[lanes, 21:29])
    (after,) = run(backend, kernel(), SHIFT, np.zeros(40960, np.uint8), tensor, a=32 * warp << 16 | 21)
    np.testing.assert_array_equal(after, expected)


@cache
def shift_of_pairs() -> ge.Kernel:
    lines = (
        "tcgen05.shift.cta_group::2.down [%r12];",
        "tcgen05.mma.cta_group::2.kind::f16.ashift [%r11], [%r12], %x1, %r16, %p5;",
    )
    return ge.parse(text(lines, pair=True), path="k.ptx")["k"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_shifted_in_both_ctas_of_a_pair(backend: str) -> None:
    tensor = np.random.default_rng(4).integers(0, 1 << 32, (2, 128, COLUMNS), dtype=np.uint32)
    tensor[:, :, 40:48] = integers(1, 2, 128, 16).astype(np.float16).view(np.uint32)
    shared = np.zeros((2, 40960), np.uint8)
    expected = tensor.copy()
    for rank in range(2):
        expected[rank, :32, 40:48] = shifted(tensor[rank, :32, 40:48])
    after = run(backend, shift_of_pairs(), 0, shared, tensor, pair=True, a=40)
    np.testing.assert_array_equal(after, expected)
    b = image(np.zeros((16, 16), np.float16), "none", 24576, shared[0])
    expected = tensor.copy()
    for rank in range(2):
        expected[rank, :, 40:48] = shifted(tensor[rank, :, 40:48])
        expected[rank, :, 56:88] = 0
    after = run(
        backend, shift_of_pairs(), 1, shared, tensor, pair=True, a=40, b=b, d=56, idesc=idesc(256, 32)
    )
    np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_shifted(backend: str) -> None:
    tensor, shared = np.zeros((128, COLUMNS), np.uint32), np.zeros(40960, np.uint8)
    for which, given, message in (
        (SHIFT, {"a": 16 << 16}, "rows are shifted from lane 16 of tensor memory on"),
        (SHIFT, {"a": 128 << 16}, "rows are shifted from lane 128 of tensor memory on"),
        (SHIFT, {"a": 505}, "columns 505 to 512 of tensor memory are not all allocated"),
        (SHIFTED, {"a": 40, "idesc": idesc(64, 16)}, "says M = 64, and A is shifted"),
    ):
        with pytest.raises(ge.TrapError, match=message):
            run(backend, kernel(), which, shared, tensor, **given)


@pytest.mark.parametrize("which", [SHIFTED, SHIFT], ids=["a product", "a shift"])
def test_shifts_as_an_independent_interpreter_does_them(which: int) -> None:
    """Uneven values, whose sums are rounded."""
    random = np.random.default_rng(7)
    shared = np.zeros(40960, np.uint8)
    b = image(random.standard_normal((16, 16)).astype(np.float16), "none", 24576, shared)
    tensor = random.standard_normal((128, 2 * COLUMNS)).astype(np.float16).view(np.uint32)
    given = {"a": 40, "b": b, "idesc": idesc(128, 16), "d": 56}
    (after,) = run("llvm", kernel(), which, shared, tensor, **given)
    (interpreter,) = interpreted(LINES[which], shared, tensor, **given)
    np.testing.assert_array_equal(after, interpreter)
