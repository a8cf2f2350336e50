"""Integer, logic and shift semantics against the manual's pseudo-code on Python integers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .reference import run

WORD = st.integers(0, 2**32 - 1)
LONG = st.integers(0, 2**64 - 1)
SMALL = st.one_of(st.integers(0, 40), WORD)


def signed(pattern: int, bits: int = 32) -> int:
    return pattern - (1 << bits) if pattern >> (bits - 1) else pattern


def unsigned(number: int, bits: int = 32) -> int:
    return number & ((1 << bits) - 1)


@pytest.mark.parametrize(
    ("opcode", "sources", "expected"),
    [
        ("add.u16", (0xFFFF, 2), 1),
        ("add.s64", (2**63 - 1, 1), 2**63),
        ("add.sat.s32", (0x7FFFFFFF, 1), 0x7FFFFFFF),
        ("add.sat.s32", (0x80000000, 0xFFFFFFFF), 0x80000000),
        ("add.u16x2", (0xFFFF0001, 0x00010001), 0x00000002),
        ("sub.sat.s32", (0x80000000, 1), 0x80000000),
        ("sub.u32", (0, 1), 0xFFFFFFFF),
        ("mul.lo.s32", (0xFFFFFFFF, 7), 0xFFFFFFF9),
        ("mul.hi.s32", (0xFFFFFFFF, 7), 0xFFFFFFFF),
        ("mul.hi.u32", (0xFFFFFFFF, 7), 6),
        ("mul.hi.u64", (2**64 - 1, 2**64 - 1), 2**64 - 2),
        ("mul.wide.s16", (0xFFFF, 2), 0xFFFFFFFE),
        ("mul.wide.u16", (0xFFFF, 2), 0x1FFFE),
        ("mul.wide.s32", (0x80000000, 0x80000000), 2**62),
        ("mad.lo.u32", (3, 5, 7), 22),
        ("mad.wide.s32", (0xFFFFFFFF, 2, 1), 2**64 - 1),
        ("mad.hi.sat.s32", (0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF), 0x7FFFFFFF),
        ("mul24.lo.u32", (0xFF000003, 5), 15),
        ("mul24.hi.u32", (0xFFFFFF, 0xFFFFFF), (0xFFFFFF * 0xFFFFFF) >> 16),
        ("mul24.lo.s32", (0xFFFFFF, 5), 0xFFFFFFFB),
        ("mad24.lo.s32", (0xFFFFFF, 5, 6), 1),
        ("sad.s32", (3, 0xFFFFFFFE, 10), 15),
        ("sad.u32", (3, 0xFFFFFFFE, 10), 0xFFFFFFFB + 10 - 2**32),
        ("div.s32", (0xFFFFFFF9, 2), 0xFFFFFFFD),
        ("div.u32", (7, 0), 0xFFFFFFFF),
        ("div.s32", (0x80000000, 0xFFFFFFFF), 0x80000000),
        ("rem.s32", (0xFFFFFFF9, 2), 0xFFFFFFFF),
        ("rem.s32", (0x80000000, 0xFFFFFFFF), 0),
        ("rem.u64", (9, 0), 9),
        ("abs.s32", (0xFFFFFFFB,), 5),
        ("abs.s16", (0x8000,), 0x8000),
        ("neg.s64", (1,), 2**64 - 1),
        ("min.s32", (0xFFFFFFFF, 0), 0xFFFFFFFF),
        ("min.u32", (0xFFFFFFFF, 0), 0),
        ("max.relu.s32", (0xFFFFFFFF, 0xFFFFFFF0), 0),
        ("min.relu.s16x2", (0x00058000, 0x00070001), 0x00050000),
        ("max.u16x2", (0xFFFF0001, 0x00010002), 0xFFFF0002),
        ("popc.b64", (0xF0F0F0F0F0F0F0F0,), 32),
        ("clz.b32", (0,), 32),
        ("clz.b64", (1,), 63),
        ("bfind.u32", (0,), 0xFFFFFFFF),
        ("bfind.u32", (0x00010000,), 16),
        ("bfind.s32", (0xFFFFFFFF,), 0xFFFFFFFF),
        ("bfind.s32", (0xFFFFFFF0,), 3),
        ("bfind.shiftamt.u32", (0x00010000,), 15),
        ("bfind.s64", (2**64 - 2**40,), 39),
        ("brev.b32", (1,), 0x80000000),
        ("brev.b64", (0xF,), 0xF << 60),
        ("cnot.b32", (0,), 1),
        ("cnot.b64", (7,), 0),
        ("not.b16", (0x00FF,), 0xFF00),
        ("and.pred", (1, 0), 0),
        ("xor.b64", (2**63 + 1, 1), 2**63),
        ("shl.b32", (1, 31), 0x80000000),
        ("shl.b32", (1, 32), 0),
        ("shl.b16", (0x00FF, 8), 0xFF00),
        ("shr.u32", (0x80000000, 33), 0),
        ("shr.s32", (0x80000000, 33), 0xFFFFFFFF),
        ("shr.s16", (0x8000, 4), 0xF800),
        ("shr.b64", (2**63, 63), 1),
        ("shf.l.wrap.b32", (0x80000000, 1, 33), 3),
        ("shf.l.clamp.b32", (0x80000000, 1, 40), 0x80000000),
        ("shf.r.wrap.b32", (0, 3, 1), 0x80000000),
        ("shf.r.clamp.b32", (5, 9, 32), 9),
        ("dp4a.u32.u32", (0x01020304, 0x05060708, 10), 5 + 12 + 21 + 32 + 10),
        ("dp4a.s32.s32", (0xFF020304, 0x05060708, 0), -5 + 12 + 21 + 32),
        ("dp4a.s32.u32", (0xFF000000, 0xFF000000, 0), 2**32 - 255),
        ("dp2a.lo.u32.u32", (0x00020003, 0x09080504, 1), 10 + 12 + 1),
        ("dp2a.hi.s32.u32", (0xFFFF0003, 0x09080504, 1), -9 + 24 + 1),
        # (x + 1)² = x² + 1 without carries; x⁶³ · x⁶³ = x¹²⁶
        ("clmad.lo.u64", (3, 3, 0), 5),
        ("clmad.hi.u64", (2**63, 2**63, 1), 2**62 + 1),
        ("clmad.hi.u64", (2**64 - 1, 2**64 - 1, 0), 0x5555555555555555),
    ],
)
def test_by_hand(opcode: str, sources: tuple[int, ...], expected: int) -> None:
    assert run(opcode, *sources) == (expected,)


@given(WORD, SMALL, SMALL, st.sampled_from(["u32", "s32"]))
@example(0xFFFFFFFF, 31, 4, "s32")
@example(0x40000000, 30, 0, "s32")
def test_bfe(a: int, b: int, c: int, kind: str) -> None:
    position, length = b & 0xFF, c & 0xFF
    sign = 0 if kind == "u32" or length == 0 else (a >> min(position + length - 1, 31)) & 1
    expected = sum(
        ((a >> (position + i)) & 1 if i < length and position + i <= 31 else sign) << i for i in range(32)
    )
    assert run(f"bfe.{kind}", a, b, c) == (expected,)


@given(LONG, st.integers(0, 80), st.integers(0, 80))
def test_bfe_signed_long(a: int, b: int, c: int) -> None:
    sign = 0 if c == 0 else (a >> min(b + c - 1, 63)) & 1
    expected = sum(((a >> (b + i)) & 1 if i < c and b + i <= 63 else sign) << i for i in range(64))
    assert run("bfe.s64", a, b, c) == (expected,)


@given(WORD, WORD, SMALL, SMALL)
def test_bfi(a: int, b: int, c: int, d: int) -> None:
    position, length = c & 0xFF, d & 0xFF
    expected = b
    for i in range(length):
        if position + i <= 31:
            expected = expected & ~(1 << (position + i)) | ((a >> i) & 1) << (position + i)
    assert run("bfi.b32", a, b, c, d) == (expected,)


@given(WORD, st.integers(0, 31), st.integers(-33, 33))
@example(0xFFFFFFFF, 31, -32)
@example(0x80000001, 31, -2)
def test_fns(mask: int, base: int, offset: int) -> None:
    expected = 0xFFFFFFFF
    if offset == 0:
        expected = base if (mask >> base) & 1 else expected
    else:
        position, count = base, abs(offset) - 1
        while 0 <= position < 32:
            if (mask >> position) & 1:
                if count == 0:
                    expected = position
                    break
                count -= 1
            position += 1 if offset > 0 else -1
    assert run("fns.b32", mask, base, unsigned(offset)) == (expected,)


@given(WORD, SMALL, st.sampled_from(["clamp", "wrap"]), st.sampled_from(["u32", "s32"]))
def test_szext(a: int, b: int, mode: str, kind: str) -> None:
    width = b & 31
    too_large = b >= 32 and mode == "clamp"
    mask = 0 if too_large else unsigned(-1 << width)
    negative = kind == "s32" and width != 0 and not too_large and (a >> ((width - 1) & 31)) & 1
    assert run(f"szext.{mode}.{kind}", a, b) == ((a & ~mask) | (mask if negative else 0),)


@given(SMALL, SMALL, st.sampled_from(["clamp", "wrap"]))
def test_bmsk(a: int, b: int, mode: str) -> None:
    start, width = a & 31, b & 31
    lower, upper = unsigned(-1 << start), unsigned(-1 << (start + width))
    clamped = mode == "clamp"
    if start + width >= 32 or (clamped and (a >= 32 or b >= 32)):
        upper = 0
    if clamped and a >= 32:
        lower = 0
    assert run(f"bmsk.{mode}.b32", a, b) == (lower & ~upper,)


@given(WORD, WORD, WORD, st.integers(0, 255))
@example(0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0x96)
def test_lop3(a: int, b: int, c: int, table: int) -> None:
    expected = 0
    for i in range(32):
        index = ((a >> i) & 1) * 4 + ((b >> i) & 1) * 2 + ((c >> i) & 1)
        expected |= ((table >> index) & 1) << i
    assert run("lop3.b32", a, b, c, table) == (expected,)


def test_lop3_tables() -> None:
    """The manual's recipe: the function of 0xF0, 0xCC and 0xAA is its own table."""
    for table in range(256):
        assert run("lop3.b32", 0xF0, 0xCC, 0xAA, table) == (table | (0xFFFFFF00 if table & 1 else 0),)


def test_lop3_predicate() -> None:
    assert run("lop3.and.b32", 0xF0, 0x0F, 0, 0xC0, 1) == (0, 0)
    assert run("lop3.or.b32", 0xF0, 0x0F, 0, 0xC0, 1) == (0, 1)
    assert run("lop3.and.b32", 0xF0, 0x1F, 0, 0xC0, 1) == (0x10, 1)


@given(WORD, WORD, WORD)
def test_prmt(a: int, b: int, c: int) -> None:
    source = [(a | b << 32) >> (8 * i) & 0xFF for i in range(8)]
    expected = 0
    for i in range(4):
        selector = c >> (4 * i) & 15
        byte = source[selector & 7]
        expected |= ((0xFF if byte & 0x80 else 0) if selector & 8 else byte) << (8 * i)
    assert run("prmt.b32", a, b, c) == (expected,)
    assert run("prmt.b32", a, b, c, known=True) == (expected,)


#: The manual's table: mode → bytes d.b3 … d.b0 for the selectors 0 to 3.
PERMUTES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@pytest.mark.parametrize("mode", PERMUTES)
def test_prmt_modes(mode: str) -> None:
    for selector, row in enumerate(PERMUTES[mode]):
        expected = int("".join(f"{int(digit):02x}" for digit in row), 16)
        assert run(f"prmt.b32.{mode}", 0x03020100, 0x07060504, selector) == (expected,)


@given(LONG, LONG, LONG)
def test_carry_chain(a: int, b: int, c: int) -> None:
    """128-bit sums and differences of 32-bit words, as compilers write them."""
    first, second = a << 64 | b, c << 64 | a
    for start, middle, end, expected in (
        ("add.cc.u32", "addc.cc.u32", "addc.u32", first + second),
        ("sub.cc.u32", "subc.cc.u32", "subc.u32", first - second),
    ):
        words, carry = [], 0
        for index in range(4):
            pair = (first >> 32 * index & 0xFFFFFFFF, second >> 32 * index & 0xFFFFFFFF)
            if index == 0:
                word, carry = run(start, *pair)
            elif index < 3:
                word, carry = run(middle, *pair, carry)
            else:
                (word,) = run(end, *pair, carry)
            words.append(word)
        assert sum(word << 32 * index for index, word in enumerate(words)) == expected % 2**128


@given(WORD, WORD)
def test_carry_of_a_difference(a: int, b: int) -> None:
    """Set where nothing is borrowed, as the machines have it; nvcc's 128-bit division reads it with addc."""
    assert run("sub.cc.u32", a, b) == ((a - b) & 0xFFFFFFFF, int(a >= b))
    assert run("subc.cc.u32", a, b, 0) == ((a - b - 1) & 0xFFFFFFFF, int(a > b))


@given(WORD, WORD, WORD, st.booleans())
def test_mad_carry(a: int, b: int, c: int, carry: bool) -> None:
    low, high = a * b & 0xFFFFFFFF, a * b >> 32
    assert run("mad.lo.cc.u32", a, b, c) == ((low + c) & 0xFFFFFFFF, (low + c) >> 32)
    assert run("madc.hi.cc.u32", a, b, c, carry) == (
        (high + c + carry) & 0xFFFFFFFF,
        (high + c + carry) >> 32,
    )
    assert run("madc.hi.u32", a, b, c, carry) == ((high + c + carry) & 0xFFFFFFFF,)


@pytest.mark.parametrize(
    ("opcode", "sources", "expected"),
    [
        ("setp.lt.s32", (0xFFFFFFFF, 0), (1, 0)),
        ("setp.lt.u32", (0xFFFFFFFF, 0), (0, 1)),
        ("setp.hi.u32", (0xFFFFFFFF, 0), (1, 0)),
        ("setp.ne.b64", (1, 1), (0, 1)),
        ("setp.eq.and.u16", (3, 3, 0), (0, 0)),
        ("setp.eq.or.u16", (3, 4, 0), (0, 1)),
        ("setp.eq.xor.u16", (3, 3, 1), (0, 1)),
        ("set.lt.u32.s32", (0xFFFFFFFF, 0), (0xFFFFFFFF,)),
        ("set.lt.f32.s32", (0xFFFFFFFF, 0), (0x3F800000,)),
        ("set.ge.and.s32.u64", (5, 5, 0), (0,)),
        ("selp.b32", (1, 2, 0), (2,)),
        ("selp.f64", (1, 2, 1), (1,)),
        ("slct.u32.s32", (1, 2, 0xFFFFFFFF), (2,)),
        ("slct.u32.s32", (1, 2, 0), (1,)),
        ("slct.u32.f32", (1, 2, 0x80000000), (1,)),
        ("slct.u32.f32", (1, 2, 0x7FC00000), (2,)),
        ("slct.u32.f32", (1, 2, 0x80000001), (2,)),
        ("slct.ftz.f32.f32", (1, 2, 0x80000001), (1,)),
    ],
)
def test_compare_select(opcode: str, sources: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert run(opcode, *sources) == expected


def test_moves() -> None:
    assert run("mov.b64", 0x12345678, 0x9ABCDEF0, alternative=1) == (0x9ABCDEF012345678,)
    assert run("mov.b64", 0x9ABCDEF012345678, alternative=2) == (0x12345678, 0x9ABCDEF0)
    assert run("mov.b32", 1, 2, alternative=1) == (0x00020001,)
    assert run("mov.b32", 0x00020001, alternative=2) == (1, 2)
    assert run("mov.v2.f32", 5, 6) == (5, 6)
    assert run("mov.pred", 1) == (1,)


@pytest.mark.parametrize(
    ("opcode", "sources", "expected"),
    [
        ("atom.add.u32", (5, 0xFFFFFFFF), 4),
        ("atom.inc.u32", (5, 5), 0),
        ("atom.inc.u32", (4, 5), 5),
        ("atom.dec.u32", (0, 5), 5),
        ("atom.dec.u32", (6, 5), 5),
        ("atom.dec.u32", (5, 5), 4),
        ("atom.min.s32", (0xFFFFFFFF, 0), 0xFFFFFFFF),
        ("atom.max.u64", (2**63, 1), 2**63),
        ("atom.cas.b32", (7, 7, 9), 9),
        ("atom.cas.b64", (7, 8, 9), 7),
        ("atom.exch.b32", (7, 9), 9),
        ("red.xor.b32", (7, 9), 14),
        ("atom.global.add.f32", (1, 1), 0),
        ("atom.shared.add.f32", (1, 1), 2),
        ("atom.add.noftz.f16x2", (0x3C003C00, 0x3C004000), 0x40004200),
        ("redux.sync.add.s32", (0xFFFFFFFF, 3), 2),
        ("redux.sync.min.s32", (0xFFFFFFFF, 3), 0xFFFFFFFF),
    ],
)
def test_combinations(opcode: str, sources: tuple[int, ...], expected: int) -> None:
    assert run(opcode, *sources) == (expected,)


@given(st.integers(0, 31), WORD, WORD, st.sampled_from(["up", "down", "bfly", "idx"]))
def test_shfl(lane: int, b: int, c: int, mode: str) -> None:
    offset, bound, mask = b & 31, c & 31, c >> 8 & 31
    last, lowest = lane & mask | bound & ~mask & 31, lane & mask
    source = {
        "up": lane - offset,
        "down": lane + offset,
        "bfly": lane ^ offset,
        "idx": lowest | offset & ~mask & 31,
    }[mode]
    inside = source >= last if mode == "up" else source <= last
    assert run(f"shfl.sync.{mode}.b32", lane, b, c) == (source if inside else lane, inside)
