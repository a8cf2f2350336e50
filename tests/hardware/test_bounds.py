"""The table of errors: what is allowed and what is not, on numbers worked out by hand or with ``math``."""

from __future__ import annotations

import math
import struct

import mpmath
import numpy as np
import pytest

from tests.hardware.bounds import BOUNDS, FORMATS, within
from tests.hardware.listing import stores

F32 = FORMATS["f32"]


def f32(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


@pytest.mark.parametrize(("kind", "numpy"), [("f32", np.float32), ("f16", np.float16), ("f64", np.float64)])
def test_patterns_are_decoded(kind: str, numpy: type[np.floating]) -> None:
    form = FORMATS[kind]
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 63, 300, np.uint64) >> np.uint64(64 - form.bits)
    for word in (*map(int, words), 0, 1, 1 << form.bits - 1):
        want = float(np.array([word], f"u{form.bits // 8}").view(numpy)[0])
        found = form.value(word)
        assert found == want or (found != found and want != want), hex(word)


def test_bf16_is_decoded() -> None:
    assert FORMATS["bf16"].value(0x3FC0) == 1.5
    assert FORMATS["bf16"].value(0xFF80) == -math.inf


@pytest.mark.parametrize(
    ("opcode", "given", "exact", "far"),
    [
        ("rcp.approx.f32", (3.0,), 1 / 3, 2),
        ("sqrt.approx.ftz.f32", (2.0,), math.sqrt(2), 2),
        ("rsqrt.approx.f32", (2.0,), 1 / math.sqrt(2), 4),
        ("ex2.approx.f32", (0.3,), 2 ** float(np.float32(0.3)), 4),
        ("lg2.approx.f32", (10.0,), math.log2(10), 5),
        ("div.approx.f32", (1.0, 3.0), 1 / 3, 4),
        ("div.full.f32", (1.0, 3.0), 1 / 3, 4),
        ("tanh.approx.f32", (0.5,), math.tanh(0.5), 9000),
    ],
)
def test_the_nearest_number_is_allowed_and_a_far_one_is_not(
    opcode: str, given: tuple[float, ...], exact: float, far: int
) -> None:
    nearest = f32(exact)
    operands = tuple(f32(x) for x in given)
    assert within(opcode, F32, nearest, operands) is not None
    assert within(opcode, F32, nearest + far, operands) is None
    assert within(opcode, F32, nearest - far, operands) is None


def test_sines_are_held_to_the_range_of_their_argument() -> None:
    for x, allowed, refused in ((1.0, 2**-21, 2**-20), (100.0, 2**-15, 2**-14), (1e6, 0.5, 4.0)):
        exact = float(mpmath.sin(x))
        assert within("sin.approx.f32", F32, f32(exact + allowed), (f32(x),)) is not None
        assert within("sin.approx.f32", F32, f32(exact + refused), (f32(x),)) is None


@pytest.mark.parametrize(
    ("opcode", "operand", "result"),
    [
        ("rcp.approx.f32", 0, 0x7F7FFFFF),
        ("sqrt.approx.f32", f32(-1.0), f32(1.0)),
        ("lg2.approx.f32", 0x7F800000, f32(128.0)),
        ("ex2.approx.f32", 0x7FC00000, f32(1.0)),
        ("ex2.approx.f32", f32(1.0), 0x7FC00000),
        ("rsqrt.approx.ftz.f32", 1, f32(1.0)),
        ("add.rn.f32", f32(1.0), f32(1.0)),
    ],
)
def test_nothing_is_allowed_where_the_manual_has_a_table_or_no_error(
    opcode: str, operand: int, result: int
) -> None:
    assert within(opcode, F32, result, (operand,)) is None


def test_results_beyond_the_largest_number_may_be_infinite() -> None:
    assert within("ex2.approx.f32", F32, 0x7F800000, (f32(128.5),)) is not None
    assert within("ex2.approx.f32", F32, 0x7F800000, (f32(126.0),)) is None
    assert within("ex2.approx.f32", F32, 0xFF800000, (f32(128.5),)) is None


def test_small_results_may_be_flushed_where_the_instruction_says_so() -> None:
    assert within("ex2.approx.ftz.f32", F32, 0, (f32(-130.0),)) is not None
    assert within("ex2.approx.f32", F32, 0, (f32(-130.0),)) is None


def test_division_by_large_numbers_may_give_zero() -> None:
    assert within("div.approx.f32", F32, 0, (f32(1e38), f32(2.0**127))) is not None
    assert within("div.full.f32", F32, 0, (f32(1e38), f32(2.0**127))) is None
    assert within("div.approx.f32", F32, 0, (f32(1e38), f32(2.0**125))) is None


def test_every_row_names_a_section_and_an_error() -> None:
    for row in BOUNDS:
        assert row.section.startswith(("9.7.3.", "9.7.4."))
        assert row.absolute or row.relative or row.ulps or row.exact(1, 1) == 0
        assert "PTX ISA 9.7." in str(row)


def test_stores_of_a_kernel_are_read_off_its_text() -> None:
    text = "\n".join(
        [
            ".version 7.8",
            "setp.lt.s32 p8, r8, r0;",
            "st.global.v2.b64 [l8], {l1, l2};",
            "atom.global.add.u32 r0, [l8], r1;",
            "st.global.b32 [%out+0], r0;",
            "ld.global.b64 %a2, [l8+8];",
            "st.global.b64 [%out+8], %a2;",
            "setp.eq.u32 p0, r1, r2;",
            "selp.u32 %t2, 1, 0, p0;",
            "st.global.u32 [%out+16], %t2;",
        ]
    )
    atomic, memory, predicate = stores(text)
    assert (atomic.index, atomic.place, atomic.line, atomic.sources, atomic.mask) == (
        0,
        "r0",
        4,
        ("l8", "r1"),
        2**32 - 1,
    )
    assert (memory.index, memory.place, memory.opcode, memory.mask) == (
        1,
        "memory+8",
        "atom.global.add.u32",
        2**64 - 1,
    )
    assert (predicate.index, predicate.line, predicate.sources) == (2, 8, ("r1", "r2"))
