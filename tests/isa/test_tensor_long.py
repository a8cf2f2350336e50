"""``tcgen05.mma`` with K = 96 (``.target sm_103a``): 48 bytes of a line in shared memory, three or six scales of a row in two words of
tensor memory. Against NumPy, on both backends, and against the interpreter of ``tests/oracle``."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

import gpuperf_engine as ge
from tests.isa.tensor_kernels import COLUMNS, WORK, Words, idesc, image, interpreted, on_both, run, text
from tests.isa.test_tensor_scaled import E2M1, e4m3
from tests.support import BACKENDS

DEPTH, ROWS = 96, 128
_MMA = (
    "tcgen05.mma{sparse}.cta_group::{group}.kind::{kind} [%r11], {a}, %x1, {meta}%r16, [%r14], [%r15], %p5;"
)
KINDS = ("mxf4.block_scale", "mxf4nvf4.block_scale.block32", "mxf4nvf4.block_scale.block16")
LINES = (
    *(_MMA.format(sparse="", meta="", group=1, kind=kind, a="%x0") for kind in KINDS),
    _MMA.format(sparse="", meta="", group=1, kind=KINDS[2], a="[%r12]"),
    _MMA.format(sparse=".sp", meta="[%r13], ", group=1, kind=KINDS[2], a="%x0"),
    _MMA.format(sparse="", meta="", group=1, kind="mxf8f6f4.block_scale", a="%x0"),
)
HELD, SPARSE, BYTES = 3, 4, 5
#: bit 31 of the instruction descriptor, and the number of e2m1 in its fields of types
LONG, TYPE = 1 << 31, 1


@cache
def kernel(target: str = "sm_103a") -> ge.Kernel:
    return ge.parse(text(LINES, target=target), path="k.ptx")["k"]


def in_two(raw: NDArray[np.uint8], begins: int, first: int, second: int, shared: NDArray[np.uint8]) -> int:
    """Put lines into shared memory with a swizzling of 128 bytes: from byte ``begins`` of a line's 128 bytes at ``first`` on, and what
    does not fit at the start of those at ``second``. Gives the descriptor with an absolute address (manual: "Absolute address mode for
    K dimension being 48B")."""
    for line, elements in enumerate(raw):
        for byte, element in enumerate(elements.tolist()):
            at = begins + byte
            place = (first + at if at < 128 else second + at - 128) + line * 128
            place ^= (place & 0x380) >> 3
            shared[place] = element
    return (first + begins) >> 4 | second >> 4 << 16 | 1024 >> 4 << 32 | 1 << 46 | 1 << 52 | 2 << 61


def scales_in(tensor: Words, column: int, codes: NDArray[np.uint8], selector: int) -> None:
    """Put the scales of rows (codes, axis 1 along K) into tensor memory: bytes from that of the selector on, four in a word. Row r has
    them in lane r % 32 of each 32 and column r / 32; four columns hold a word for each of 128 rows, eight for more (CUTLASS,
    ``tmem_sf_frg`` and ``sm103_blockscaled_mma_warpspecialized.hpp``)."""
    raw = tensor.view(np.uint8).reshape(128, COLUMNS, 4)
    block = 4 if len(codes) <= 128 else 8
    for row, own in enumerate(codes):
        for byte, code in enumerate(own, selector):
            raw[row % 32 :: 32, column + row // 32 + byte // 4 * block, byte % 4] = code


def scaled_matrix(
    random: np.random.Generator, lines: int, per: int, codes: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """A random matrix: its bytes, the codes of its scales, and its numbers."""
    nibbles = random.integers(0, 16, (lines, DEPTH)).astype(np.uint8)
    low, high = (124, 131) if codes == "ue8m0" else (0x20, 0x50)
    scale = random.integers(low, high, (lines, per)).astype(np.uint8)
    meant = 2.0 ** (scale.astype(float) - 127) if codes == "ue8m0" else e4m3(scale)
    return (
        nibbles[:, ::2] | nibbles[:, 1::2] << 4,
        scale,
        E2M1[nibbles] * np.repeat(meant, DEPTH // per, axis=1),
    )


def prepared(
    which: int, codes: str, selectors: tuple[int, int], columns: int, mode: str, begins: int
) -> tuple[dict[str, int], NDArray[np.uint8], Words, NDArray[np.float64], int]:
    """The operands, shared and tensor memory, the product, and the first column of D."""
    random = np.random.default_rng(columns)
    per = 6 if which >= 2 else 3
    shared = np.zeros(40960, np.uint8)
    tensor = random.integers(0, 1 << 32, (128, COLUMNS), dtype=np.uint32)
    given, numbers, places = {}, {}, {"a": (ROWS, 0, 16384, 56), "b": (columns, 32768, 35840, 68)}
    for (name, (lines, first, second, column)), selector in zip(places.items(), selectors, strict=True):
        raw, scale, numbers[name] = scaled_matrix(random, lines, per, codes)
        scales_in(tensor, column, scale, selector)
        given[f"scale_{name}"] = column
        if name == "a" and which == HELD:
            tensor[:, 40:52] = raw.view(np.uint32)
            given[name] = 40
        elif mode == "two":
            given[name] = in_two(raw, begins, first, second, shared)
        else:
            given[name] = image(raw, mode, first if columns < 128 or name == "a" else 16384, shared)
    given["idesc"] = LONG | idesc(
        ROWS, columns, a=TYPE, b=TYPE, d=0, ue8m0=codes == "ue8m0", scale_a=selectors[0], scale_b=selectors[1]
    )
    return given, shared, tensor, numbers["a"] @ numbers["b"].T, 92


CASES = [
    (0, "ue8m0", (0, 1), 24, "two", 96),
    (1, "ue8m0", (2, 3), 136, "64", 0),
    (2, "ue4m3", (2, 0), 24, "two", 112),
    (2, "ue8m0", (0, 2), 152, "none", 0),
    (HELD, "ue4m3", (0, 2), 24, "two", 80),
]


@pytest.mark.parametrize(
    ("backend", "which", "codes", "selectors", "columns", "mode", "begins"), on_both(CASES, 2)
)
def test_products(
    backend: str, which: int, codes: str, selectors: tuple[int, int], columns: int, mode: str, begins: int
) -> None:
    given, shared, tensor, product, first = prepared(which, codes, selectors, columns, mode, begins)
    seen = min(columns, COLUMNS - first)
    before = tensor[:, first : first + seen].view(np.float32)
    before[:] = np.random.default_rng(0).standard_normal(before.shape)
    (after,) = run(backend, kernel(), which, shared, tensor, d=first, reads=1, **given)
    exact = before + product[:, :seen]
    np.testing.assert_allclose(
        after[:, first : first + seen].view(np.float32), exact, rtol=2**-22, atol=2**-18
    )
    np.testing.assert_array_equal(after[:, :first], tensor[:, :first])
    assert {"tensor_fp4": 2 * ROWS * columns * DEPTH} == WORK


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[4]])
def test_interpreter_agrees(case: tuple[int, str, tuple[int, int], int, str, int]) -> None:
    """All of tensor memory is that of the interpreter of ``tests/oracle``."""
    given, shared, tensor, _, first = prepared(*case)
    (after,) = run("llvm", kernel(), case[0], shared, tensor, d=first, **given)
    (interpreter,) = interpreted(LINES[case[0]], shared, tensor, target="sm_103a", d=first, **given)
    np.testing.assert_array_equal(after, interpreter)


@pytest.mark.parametrize("backend", BACKENDS)
def test_pairs(backend: str) -> None:
    """Each CTA has 128 rows of A and D, half of the columns of B, and the scales of all of them."""
    random = np.random.default_rng(7)
    columns = 32
    line = _MMA.format(sparse="", meta="", group=2, kind=KINDS[2], a="%x0")
    pair = ge.parse(text([line], pair=True, target="sm_103a"), path="k.ptx")["k"]
    shared, tensor = np.zeros((2, 40960), np.uint8), np.zeros((2, 128, COLUMNS), np.uint32)
    right, right_scale, b = scaled_matrix(random, columns, 6, "ue4m3")
    given, expected = {}, []
    for cta in range(2):
        left, left_scale, a = scaled_matrix(random, ROWS, 6, "ue4m3")
        given = {
            "a": in_two(left, 96, 0, 16384, shared[cta]),
            "b": in_two(right[16 * cta : 16 * cta + 16], 96, 32768, 35840, shared[cta]),
            "scale_a": 56,
            "scale_b": 68,
        }
        scales_in(tensor[cta], 56, left_scale, 0)
        scales_in(tensor[cta], 68, right_scale, 0)
        expected.append(a @ b.T)
    word = LONG | idesc(256, columns, a=TYPE, b=TYPE, d=0)
    after = run(backend, pair, 0, shared, tensor, True, d=0, idesc=word, **given)
    np.testing.assert_allclose(after[:, :, :columns].view(np.float32), expected, rtol=2**-22, atol=2**-18)


_WORD = LONG | idesc(ROWS, 16, a=TYPE, b=TYPE, d=0)
_ABSOLUTE, _LEFT = 1 << 46 | 1 << 52, 64 << 32


@pytest.mark.parametrize(
    ("backend", "target", "which", "given", "message"),
    on_both(
        [
            ("sm_100a", 2, {"idesc": _WORD}, "says K = 96"),
            ("sm_103a", SPARSE, {"idesc": _WORD | 4}, "says K = 96"),
            ("sm_103a", BYTES, {"idesc": _WORD | 1 << 23}, "says K = 96"),
            ("sm_103a", 2, {"idesc": _WORD | 1 << 29}, "selects scales"),
            ("sm_103a", 0, {"idesc": _WORD}, "selects scales"),
            ("sm_103a", 2, {"idesc": _WORD, "scale_a": 508}, "columns 508 to 515"),
            ("sm_100a", 2, {"idesc": _WORD & ~LONG, "b": _ABSOLUTE | 2 << 61}, "has an absolute address"),
            ("sm_103a", 2, {"idesc": _WORD, "a": _ABSOLUTE | 4 << 61}, "has an absolute address"),
            ("sm_103a", 2, {"idesc": _WORD, "a": 96 >> 4 | _LEFT | 1 << 46 | 2 << 61}, "is longer than"),
            ("sm_103a", 2, {"idesc": _WORD, "b": 32 >> 4 | _LEFT | 1 << 46 | 4 << 61}, "is longer than"),
            ("sm_103a", 2, {"idesc": _WORD, "b": 1 << 46 | 6 << 61}, "is longer than"),
        ],
        3,
    ),
)
def test_refused(backend: str, target: str, which: int, given: dict[str, int], message: str) -> None:
    with pytest.raises(ge.TrapError, match=message):
        run(
            backend,
            kernel(target),
            which,
            np.zeros(16, np.uint8),
            np.zeros((128, COLUMNS), np.uint32),
            **given,
        )
