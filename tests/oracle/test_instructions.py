"""Single instructions: the table of integer instructions, and what takes more than one instruction to see."""

from __future__ import annotations

import pytest

from .integer_table import INTEGERS, M32, M64
from .kernels import check, evaluate


@pytest.mark.parametrize(("text", "widths", "width", "cases"), INTEGERS, ids=[row[0] for row in INTEGERS])
def test_instruction(
    text: str, widths: tuple[int, ...], width: int, cases: dict[tuple[int, ...], int]
) -> None:
    check(text, widths, width, cases)


def test_add_with_carry_chain() -> None:
    """A 128-bit sum, a 64-bit difference with borrow and a wide product from 32-bit parts."""
    add = "{ .reg .b64 lo; add.cc.u64 lo, $0, $1; addc.u64 $d, 0, 0; }"
    assert evaluate(add, (64, 64), [(M64, 1), (M64, 0), (M64, M64)], 64) == [1, 0, 1]
    middle = "{ .reg .b32 t; add.cc.u32 t, $0, $1; addc.cc.u32 t, $2, $2; addc.u32 $d, 0, 7; }"
    # carry out of the first goes into the second: 0x7fffffff·2 + 1 carries nothing, 0x80000000·2 + 1 does
    assert evaluate(middle, (32, 32, 32), [(M32, 1, 0x7FFFFFFF), (M32, 1, 0x80000000)], 32) == [7, 8]
    borrow = "{ .reg .b32 t; sub.cc.u32 t, $0, $1; subc.u32 $d, 10, 3; }"
    assert evaluate(borrow, (32, 32), [(0, 1), (1, 1)], 32) == [6, 7]
    product = "{ .reg .b32 t; mad.lo.cc.u32 t, $0, $1, $2; madc.hi.u32 $d, $0, $1, 0; }"
    # 0xffffffff² = 0xfffffffe_00000001; adding 0xffffffff to the low word carries
    assert evaluate(product, (32, 32, 32), [(M32, M32, M32), (M32, M32, 0)], 32) == [M32, 0xFFFFFFFE]


def test_predicate_pairs() -> None:
    text = "{ .reg .pred p, q; setp.lt.and.s32 p|q, $0, $1, $2; selp.u32 $d, 1, 0, p; @q add.u32 $d, $d, 2; }"
    rows = [(1, 2, 1), (2, 1, 1), (1, 2, 0), (2, 1, 0)]
    assert evaluate(text, (32, 32, 1), rows) == [1, 2, 0, 0]
    either = "{ .reg .pred p; lop3.or.b32 $d|p, $0, $1, $0, 0xC0, $2; selp.u32 $d, 1, 0, p; }"
    assert evaluate(either, (32, 32, 1), [(1, 1, 0), (1, 2, 0), (1, 2, 1)]) == [1, 0, 1]


def test_special_address_predicates() -> None:
    text = (
        "{ .reg .pred p; .shared .b32 s; .reg .b64 a; mov.u64 a, s; cvta.shared.u64 a, a; isspacep.%s p, a; "
        "selp.u32 $d, 1, 0, p; }"
    )
    assert evaluate(text % "shared", (), [()]) == [1]
    assert evaluate(text % "global", (), [()]) == [0]
    assert evaluate(text % "local", (), [()]) == [0]
