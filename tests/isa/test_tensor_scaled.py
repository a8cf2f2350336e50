"""``tcgen05.mma`` of scaled blocks, of sparse matrices and of pairs of CTAs against NumPy, on both backends."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.isa.tensor_kernels import COLUMNS, Words, idesc, image, interpreted, on_both, run, spread, text
from tests.support import BACKENDS

_MMA = "tcgen05.mma{sparse}.cta_group::{group}.kind::{kind} [%r11], {a}, %x1, {meta}%r16, {scales}%p5;"
SCALED = {
    "mxf8f6f4": "mxf8f6f4.block_scale.scale_vec::1X",
    "mxf4": "mxf4.block_scale.scale_vec::2X",
    "mxf4nvf4": "mxf4nvf4.block_scale.scale_vec::4X",
}
SPARSE = ("f16", "tf32", "f8f6f4", "i8")
#: numbers that a byte or four bits can be: formats of the OCP Microscaling specification, by codes
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _line(kind: str, sparse: bool = False, scaled: bool = False, group: int = 1) -> str:
    return _MMA.format(
        kind=kind,
        group=group,
        a="%x0",
        sparse=".sp" * sparse,
        meta="[%r13], " * sparse,
        scales="[%r14], [%r15], " * scaled,
    )


LINES = (
    *(_line(kind, scaled=True) for kind in SCALED.values()),
    *(_line(kind, sparse=True) for kind in SPARSE),
    *(_line(kind, sparse=True, scaled=True) for kind in SCALED.values()),
)


PAIR_LINES = (
    _line("f16", group=2),
    _line("f16", sparse=True, group=2),
    _line(SCALED["mxf8f6f4"], scaled=True, group=2),
)


@cache
def kernel() -> ge.Kernel:
    return ge.parse(text(LINES), path="k.ptx")["k"]


@cache
def pair_kernel() -> ge.Kernel:
    return ge.parse(text(PAIR_LINES, pair=True), path="k.ptx")["k"]


def e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """What bytes of e4m3, without NaN, mean."""
    exponent, mantissa = (codes.astype(int) >> 3) & 15, codes.astype(int) & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    return np.where(codes >= 128, -size, size)


def scales_in(tensor: Words, column: int, codes: NDArray[np.uint8], selector: int) -> None:
    """Put the scales of rows (codes, axis 1 along K) into tensor memory: row r in lane r % 32 of each 32 and column r / 32, from
    the byte of the selector on (manual: "Layout of the Scale Factor A Matrix")."""
    count, per = codes.shape
    raw = tensor.view(np.uint8).reshape(128, COLUMNS, 4)
    for row in range(count):
        raw[row % 32 :: 32, column + row // 32, selector : selector + per] = codes[row]


@pytest.mark.parametrize(
    ("backend", "kind", "per", "codes", "selector"),
    on_both(
        [
            ("mxf8f6f4", 1, "ue8m0", 3),
            ("mxf4", 2, "ue8m0", 2),
            ("mxf4nvf4", 4, "ue4m3", 0),
            ("mxf4nvf4", 4, "ue8m0", 0),
        ]
    ),
)
def test_scaled_blocks(backend: str, kind: str, per: int, codes: str, selector: int) -> None:
    random = np.random.default_rng(per)
    rows, columns, depth = 128, 40, 32 if kind == "mxf8f6f4" else 64
    shared = np.zeros(40960, np.uint8)
    tensor = random.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    given, numbers = {}, {}
    for name, lines, start, column in (("a", rows, 1024, 100), ("b", columns, 24576, 110)):
        if kind == "mxf8f6f4":
            raw = (
                random.integers(0x28, 0x48, (lines, depth)).astype(np.uint8)
                | random.integers(0, 2, (lines, depth)).astype(np.uint8) << 7
            )
            elements = e4m3(raw)
        else:
            nibbles = random.integers(0, 16, (lines, depth)).astype(np.uint8)
            raw = nibbles[:, ::2] | nibbles[:, 1::2] << 4
            elements = E2M1[nibbles]
        given[name] = image(raw, "32" if name == "a" else "128", start, shared)
        low, high = (124, 131) if codes == "ue8m0" else (0x20, 0x50)
        scale = random.integers(low, high, (lines, per)).astype(np.uint8)
        scales_in(tensor, column, scale, selector)
        meant = 2.0 ** (scale.astype(float) - 127) if codes == "ue8m0" else e4m3(scale)
        numbers[name] = elements * np.repeat(meant, depth // per, axis=1)
    before = random.standard_normal((rows, columns)).astype(np.float32)
    tensor[:, 8 : 8 + columns] = before.view(np.uint32)
    word = idesc(
        rows, columns, a=kind != "mxf8f6f4", b=kind != "mxf8f6f4", d=0,
        ue8m0=codes == "ue8m0", scale_a=selector, scale_b=selector,
    )  # fmt: skip
    which = list(SCALED).index(kind)
    given |= {"d": 8, "scale_a": 100, "scale_b": 110, "idesc": word, "reads": 1}
    (after,) = run(backend, kernel(), which, shared, tensor, **given)
    exact = before + numbers["a"] @ numbers["b"].T
    np.testing.assert_allclose(after[:, 8 : 8 + columns].view(np.float32), exact, rtol=2**-22, atol=2**-18)
    np.testing.assert_array_equal(
        np.delete(after, range(8, 8 + columns), 1), np.delete(tensor, range(8, 8 + columns), 1)
    )
    if backend == "llvm":
        np.testing.assert_array_equal(after, interpreted(LINES[which], shared, tensor, **given)[0])


#: the values of the indices of two elements, or pairs, of four: PTX manual, "Sparse Matrices"
MEANINGFUL = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)


def sparse_row(random: np.random.Generator, kind: str, depth: int) -> tuple[NDArray[np.int64], list[int]]:
    """Where the elements of a row are that are stored, and its metadata, four bits for each group (manual: "Sparse Matrices")."""
    places, metadata = [], []
    if kind == "tf32":
        for group in range(depth // 2):
            upper = int(random.integers(2))
            places.append(2 * group + upper)
            metadata.append(0b1110 if upper else 0b0100)
        return np.array(places), metadata
    wide = 2 if kind.startswith("mxf4") else 1
    for group in range(depth // (4 * wide)):
        bits = MEANINGFUL[int(random.integers(len(MEANINGFUL)))]
        first, second = bits & 3, bits >> 2
        metadata.append(bits)
        for pair in (first, second):
            places += [4 * wide * group + wide * pair + one for one in range(wide)]
    return np.array(places), metadata


def metadata_in(tensor: Words, column: int, kind: str, rows: int, metadata: list[list[int]]) -> None:
    """Put metadata into tensor memory (CUTLASS, ``tmem_e_frg``): of f16 and tf32 each 16 rows share 16 lanes, half of K in eight of
    them, and of these rows 8 and on the upper half of a word; of all others a row has a lane, and two columns."""
    where = spread(rows) if rows == 64 else np.arange(rows)
    half = {"f16": 4, "tf32": 4}.get(kind, 0)
    for row in range(rows):
        for group, bits in enumerate(metadata[row]):
            if half:
                lane = where[row // 16 * 16 + row % 8 + 8 * (group // half)]
                cell, bit = column, row % 16 // 8 * 16 + group % half * 4
            else:
                lane, cell, bit = where[row], column + group // 8, group % 8 * 4
            mask = np.uint32(15 << bit)
            tensor[lane, cell] = tensor[lane, cell] & ~mask | np.uint32(bits << bit)


def sparse_lines(
    random: np.random.Generator, kind: str, rows: int, depth: int
) -> tuple[NDArray[Any], NDArray[Any], list[list[int]]]:
    """A as it is stored (small integers), with its zeros, and its metadata."""
    stored = random.integers(-2, 3, (rows, depth // 2))
    whole = np.zeros((rows, depth), np.int64)
    metadata = []
    for row in range(rows):
        places, bits = sparse_row(random, kind, depth)
        if kind != "tf32" and row % 3 == 0:  # as CUTLASS does, all bits are 0 where all elements are
            wide = depth // 2 // len(bits)
            stored[row, wide : 2 * wide] = bits[1] = 0
        whole[row, places] = stored[row]
        metadata.append(bits)
    return stored, whole, metadata


def coded(kind: str, numbers: NDArray[Any]) -> NDArray[Any]:
    types = {"f16": np.float16, "tf32": np.float32, "i8": np.int8}
    if kind in types:
        return numbers.astype(types[kind])
    if kind.startswith("mxf4"):
        nibbles = np.vectorize({-2: 12, -1: 10, 0: 0, 1: 2, 2: 4}.get)(numbers).astype(np.uint8)
        return nibbles[:, ::2] | nibbles[:, 1::2] << 4
    return np.vectorize({-2: 0xC0, -1: 0xB8, 0: 0, 1: 0x38, 2: 0x40}.get)(numbers).astype(np.uint8)


@pytest.mark.parametrize(
    ("backend", "kind", "rows", "selector"),
    on_both(
        [
            ("f16", 128, 1),
            ("f16", 64, 0),
            ("tf32", 128, 0),
            ("f8f6f4", 64, 0),
            ("i8", 128, 0),
            ("mxf8f6f4", 128, 0),
            ("mxf4nvf4", 128, 0),
        ]
    ),
)
def test_sparse_matrices(backend: str, kind: str, rows: int, selector: int) -> None:
    random = np.random.default_rng(rows)
    scaled = kind in SCALED
    columns, depth = 32, {"f16": 32, "tf32": 16, "mxf4nvf4": 128}.get(kind, 64)
    stored, whole, metadata = sparse_lines(random, kind, rows, depth)
    b = random.integers(-2, 3, (columns, depth))
    shared = np.zeros(40960, np.uint8)
    given = {
        "a": image(coded(kind, stored), "64", 1024, shared),
        "b": image(coded(kind, b), "128", 24576, shared),
    }
    tensor = random.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    metadata_in(tensor, 60 + selector, kind, rows, metadata)
    types = {"tf32": 2, "i8": 1, "mxf4nvf4": 1}.get(kind, 0)
    word = {"a": types, "b": types, "d": 2 if kind == "i8" else 1, "sparse": 1, "selector": selector}
    if scaled:
        tensor[:, 100:120] = 0x7F7F7F7F
        word = {**word, "d": 0, "ue8m0": 1}
    which = 7 + list(SCALED).index(kind) if scaled else 3 + SPARSE.index(kind)
    given |= {"d": 4, "meta": 60, "scale_a": 100, "scale_b": 110, "idesc": idesc(rows, columns, **word)}
    (after,) = run(backend, kernel(), which, shared, tensor, **given)
    product = whole @ b.T
    expected = tensor.copy()
    lanes = spread(rows) if rows == 64 else np.arange(rows)
    expected[lanes, 4 : 4 + columns] = product.astype(np.int32 if kind == "i8" else np.float32).view(
        np.uint32
    )
    np.testing.assert_array_equal(after, expected)
    if backend == "llvm":
        np.testing.assert_array_equal(interpreted(LINES[which], shared, tensor, **given)[0], expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("bits", "data"), [(0x22222222, 0), (0x55555555, 0), (0, 0x3C)])
def test_metadata_that_mean_nothing(backend: str, bits: int, data: int) -> None:
    with pytest.raises(ge.TrapError, match="the metadata of row 0 are invalid"):
        word = idesc(128, 16, sparse=1)
        run(
            backend,
            kernel(),
            3,
            np.full(40960, data, np.uint8),
            np.full((128, COLUMNS), bits, np.uint32),
            idesc=word,
        )


@pytest.mark.parametrize(
    ("backend", "rows", "columns", "sparse", "scaled"),
    on_both(
        [(256, 64, False, False), (128, 48, False, False), (128, 64, True, False), (256, 64, False, True)]
    ),
)
def test_pairs(backend: str, rows: int, columns: int, sparse: bool, scaled: bool) -> None:
    """Each CTA has half of the rows of A and D, and half of the columns of B (manual: layouts A, B and C)."""
    random = np.random.default_rng(rows + sparse)
    kind = "mxf8f6f4" if scaled else "f16"
    depth, own, half = 32 if sparse or scaled else 16, rows // 2, columns // 2
    stored = whole = random.integers(-2, 3, (rows, depth))
    metadata: list[list[int]] = []
    if sparse:
        stored, whole, metadata = sparse_lines(random, kind, rows, depth)
    b = random.integers(-2, 3, (columns, depth))
    shared = np.zeros((2, 40960), np.uint8)
    tensor = random.integers(0, 1 << 32, (2, 128, COLUMNS), dtype=np.uint32)
    given = {}
    for cta in range(2):
        given = {
            "a": image(coded(kind, stored[cta * own : (cta + 1) * own]), "128", 1024, shared[cta]),
            "b": image(coded(kind, b[cta * half : (cta + 1) * half]), "64", 24576, shared[cta]),
        }
        if sparse:
            metadata_in(tensor[cta], 100, kind, own, metadata[cta * own : (cta + 1) * own])
        tensor[cta, :, 104:118] = 0x7F7F7F7F if scaled else tensor[cta, :, 104:118]
    expected = tensor.copy()
    product = (whole @ b.T).astype(np.float32).view(np.uint32)
    for cta in range(2):
        part = product[cta * own : (cta + 1) * own]
        if rows == 256:
            expected[cta, :, :columns] = part
        elif sparse:
            expected[cta, spread(64), :columns] = part
        else:
            expected[cta, :64, :half], expected[cta, 64:, :half] = part[:, :half], part[:, half:]
    word = idesc(rows, columns, d=not scaled, sparse=sparse, ue8m0=scaled)
    given |= {"idesc": word, "meta": 100, "scale_a": 104, "scale_b": 110}
    which = 2 if scaled else int(sparse)
    after = run(backend, pair_kernel(), which, shared, tensor, True, **given)
    np.testing.assert_array_equal(after, expected)
    if backend == "llvm":
        np.testing.assert_array_equal(interpreted(PAIR_LINES[which], shared, tensor, True, **given), expected)
