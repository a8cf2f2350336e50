"""What products of matrices read from shared memory is recorded: elements of A and B, held against NumPy; both backends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from gpuperf_engine.results import ValueRecord
from tests.isa.tensor_kernels import COLUMNS, IDESC, READS, A, B, D, idesc, image, text
from tests.isa.test_warpgroup import Product, opcode
from tests.support import BACKENDS

_DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "b8": np.uint8,
    "s8": np.int8,
    "u8": np.uint8,
    "b16": np.uint16,
}


def _records(kernel: ge.Kernel, threads: int, *given: object) -> tuple[ValueRecord, ...]:
    """Of the product, which both backends must give alike."""
    seen = []
    for backend in BACKENDS:
        device = ge.Device(backend=backend, observe={"accesses"}, memory_bytes=1 << 22)
        arrays: list[Any] = [device.array(item) if isinstance(item, np.ndarray) else item for item in given]
        profile = device.launch(kernel, 1, threads, arrays)
        assert profile.remarks == ()
        seen.append(profile.values)
    assert repr(seen[0]) == repr(seen[1])
    return tuple(item for item in seen[0] if ".mma" in item.opcode)


def _check(record: ValueRecord, type: str, elements: NDArray[Any]) -> None:
    values = elements.reshape(-1)
    assert (record.type, record.space, record.object) == (type, "shared", "shared memory")
    assert (record.kind, record.count, record.width) == ("load", values.size, values.itemsize)
    assert record.zeros == (values == 0).sum() and record.nans == np.isnan(values).sum()
    numbers = values[~np.isnan(values)]
    assert (record.minimum, record.maximum) == (numbers.min(), numbers.max())
    bits = Counter(values.view(f"u{values.itemsize}").tolist())
    assert record.distinct_exact == (len(bits) <= 384)
    assert abs(record.distinct - len(bits)) <= (0 if record.distinct_exact else 0.35 * len(bits))
    if len(bits) <= 16:
        assert dict(record.top) == Counter(values.tolist())


def _warpgroup(product: Product, threads: int = 128) -> tuple[ValueRecord, ...]:
    words = product.words()
    memory = np.frombuffer(bytes(product.memory) + bytes(4096), np.uint32)
    out = np.zeros((160, 128), np.uint32)
    kernel = ge.parse(product.module(), path="wg.ptx")["k"]
    return _records(kernel, threads, np.concatenate([words, words[:32]]), memory, out)


@pytest.mark.parametrize(
    "types, left, right, modes, across",
    [
        ("f32.f16.f16", "f16", "f16", (1, 2), (False, False)),
        ("f16.f16.f16", "f16", "f16", (3, 0), (True, True)),
        ("f32.tf32.tf32", "f32", "f32", (0, 1), (False, False)),
        ("s32.s8.u8", "s8", "u8", (0, 3), (False, False)),
        ("f16.e4m3.e5m2", "b8", "b8", (2, 1), (False, False)),
    ],
)
def test_wgmma_reads_its_matrices(
    types: str, left: str, right: str, modes: tuple[int, int], across: tuple[bool, bool]
) -> None:
    """B once for all four warps."""
    product = Product(opcode(types, 24), modes=modes, across=across, seed=4)
    a, b = _warpgroup(product)
    for record, type, elements in ((a, left, product.a), (b, right, product.b)):
        kind = np.dtype(_DTYPES[type])
        _check(record, type, np.array(elements, f"u{kind.itemsize}").view(kind))


def test_of_a_in_registers_nothing_is_read() -> None:
    product = Product(opcode("f32.f16.f16", 8), registers=True, seed=1)
    (b,) = _warpgroup(product)
    _check(b, "f16", np.array(product.b, np.uint16).view(np.float16))


@pytest.mark.parametrize(
    "kind, type, mode, across",
    [
        ("f16", "b16", "64", (0, 0)),
        ("f16", "b16", "none", (1, 1)),
        ("tf32", "f32", "32", (0, 0)),
        ("i8", "b8", "128", (0, 0)),
    ],
)
def test_tcgen05_reads_its_matrices(kind: str, type: str, mode: str, across: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    dtype, depth = {"f16": (np.float16, 16), "tf32": (np.float32, 8), "i8": (np.int8, 32)}[kind]
    a, b = rng.integers(-2, 3, (128, depth)).astype(dtype), np.zeros((32, depth), dtype)
    b[3, 2] = 1
    shared = np.zeros(40960, np.uint8)
    numbers = np.zeros(16, np.uint64)
    numbers[A], numbers[B] = (
        image(item, mode, start, shared, bool(flag))
        for item, start, flag in zip((a, b), (1024, 24576), across)
    )
    form = {"f16": 0, "tf32": 2, "i8": 1}[kind]
    numbers[IDESC] = idesc(
        128, 32, a=form, b=form, d=2 if kind == "i8" else 1, transpose_a=across[0], transpose_b=across[1]
    )
    numbers[D], numbers[READS] = 0, 1
    kernel = ge.parse(text([f"tcgen05.mma.cta_group::1.kind::{kind} [%r11], %x0, %x1, %r16, %p5;"]))["k"]
    left, right = _records(kernel, 128, shared, np.zeros((128, COLUMNS), np.uint32), numbers, np.uint32(0))
    raw = {"b16": np.uint16, "b8": np.uint8, "f32": np.float32}[type]
    _check(left, type, a.view(raw))
    _check(right, type, b.view(raw))
