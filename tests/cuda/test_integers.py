"""Integer intrinsics, 128-bit integers, bit fields and packed (SIMD) intrinsics against Python integers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from .compiled import TESTS
from .running import Array, run

EDGES = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x80008000,
    0x7FFF8001,
    0x01020304,
    0xFEFDFCFB,
    0x80FF7F01,
    0xAAAAAAAA,
    0x55555555,
    0x00800080,
    0xDEADBEEF,
    0x12345678,
    31,
    32,
    33,
    63,
    64,
    0x00FF00FF,
    0xFF00FF00,
    0x7F7F7F7F,
    0x80808080,
    100,
]


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def cut(a: int, b: int) -> int:
    """Quotient towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def pieces(word: int, width: int, is_signed: bool = False) -> list[int]:
    found = [(word >> at) & ((1 << width) - 1) for at in range(0, 32, width)]
    return [signed(piece, width) for piece in found] if is_signed else found


def word(parts: list[int], width: int) -> int:
    return sum((part & ((1 << width) - 1)) << (width * place) for place, part in enumerate(parts))


def permuted(a: int, b: int, selector: int) -> int:
    """__byte_perm with the selectors' upper bits clear."""
    data = pieces(a, 8) + pieces(b, 8)
    return word([data[(selector >> (4 * place)) & 7] for place in range(4)], 8)


def find_nth(a: int, base: int, offset: int) -> int:
    """__fns with a positive offset: where the offset-th one stands, counted upwards from base."""
    ones = [place for place in range(base, 32) if a >> place & 1]
    return ones[offset - 1] if len(ones) >= offset else 0xFFFFFFFF


def dots(a: int, b: int, width: int, is_signed: bool, upper: bool = False) -> int:
    left, right = pieces(a, width, is_signed), pieces(b, 8, is_signed)
    return sum(x * y for x, y in zip(left, right[2:] if upper else right))


# In the order of the kernel's results.
BITS: list[Callable[[int, int], int]] = [
    lambda a, b: 32 - a.bit_length(),
    lambda a, b: (a & -a).bit_length(),
    lambda a, b: a.bit_count(),
    lambda a, b: int(f"{a:032b}"[::-1], 2),
    lambda a, b: permuted(a, b, 0x5140),
    lambda a, b: permuted(a, b, a & 0x7777),
    lambda a, b: signed(a, 24) * signed(b, 24),
    lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    lambda a, b: signed(a) * signed(b) >> 32,
    lambda a, b: a * b >> 32,
    lambda a, b: abs(signed(a) - signed(b)) + 7,
    lambda a, b: abs(a - b) + 7,
    lambda a, b: (signed(a) + signed(b)) >> 1,
    lambda a, b: (signed(a) + signed(b) + 1) >> 1,
    lambda a, b: (a + b) >> 1,
    lambda a, b: (a + b + 1) >> 1,
    lambda a, b: ((b << 32 | a) << (a & 31)) >> 32,
    lambda a, b: ((b << 32 | a) << min(b & 63, 32)) >> 32,
    lambda a, b: (b << 32 | a) >> (a & 31),
    lambda a, b: (b << 32 | a) >> min(b & 63, 32),
    lambda a, b: dots(a, b, 8, True) + 5,
    lambda a, b: dots(a, b, 8, False) + 5,
    lambda a, b: dots(a, b, 16, True) + 5,
    lambda a, b: dots(a, b, 16, False, True) + 5,
    lambda a, b: abs(signed(a)),
    lambda a, b: min(signed(a), signed(b)),
    lambda a, b: max(a, b),
    lambda a, b: cut(signed(a), signed(b | 1)),
    lambda a, b: signed(a) - cut(signed(a), signed(b | 1)) * signed(b | 1),
    lambda a, b: a // (b | 1),
    lambda a, b: a % (b | 1),
    lambda a, b: signed(a) >> (b & 31),
    lambda a, b: a >> (b & 31),
    lambda a, b: a << (b & 31),
    lambda a, b: (a >> 5) & 0x1FF,
    lambda a, b: signed(a << 7) >> 20,
    lambda a, b: find_nth(a, b & 31, 1),
]


def test_bits() -> None:
    x = np.repeat(np.array(EDGES, np.uint32), len(EDGES))
    y = np.tile(np.array(EDGES, np.uint32), len(EDGES))
    (_, _, out), _ = run(
        "integers", "bits", len(x) // 128, 128, [x, y, np.zeros((len(BITS), len(x)), np.uint32)]
    )
    for number, (exact, found) in enumerate(zip(BITS, out, strict=True)):
        expected = np.array(
            [exact(a, b) & 0xFFFFFFFF for a, b in zip(x.tolist(), y.tolist(), strict=True)], np.uint32
        )
        wrong = np.flatnonzero(found != expected)
        assert not wrong.size, f"result {number} of {x[wrong[0]]:#x}, {y[wrong[0]]:#x}"


WIDE_EDGES = [
    0,
    1,
    3,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    0x0123456789ABCDEF,
    0xFEDCBA9876543210,
    40,
    63,
    64,
    10**15,
]
BITS64: list[Callable[[int, int], int]] = [
    lambda a, b: 64 - a.bit_length(),
    lambda a, b: (a & -a).bit_length(),
    lambda a, b: a.bit_count(),
    lambda a, b: int(f"{a:064b}"[::-1], 2),
    lambda a, b: signed(a, 64) * signed(b, 64) >> 64,
    lambda a, b: a * b >> 64,
    lambda a, b: abs(signed(a, 64)),
    lambda a, b: min(signed(a, 64), signed(b, 64)),
    lambda a, b: max(a, b),
    lambda a, b: cut(signed(a, 64), signed(b | 1, 64)),
    lambda a, b: signed(a, 64) - cut(signed(a, 64), signed(b | 1, 64)) * signed(b | 1, 64),
    lambda a, b: a // (b | 1),
    lambda a, b: a % (b | 1),
    lambda a, b: signed(a, 64) >> (b & 63),
    lambda a, b: a << (b & 63),
    lambda a, b: a * b,
    lambda a, b: (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) + b,
]


def test_bits_of_long_integers() -> None:
    x = np.repeat(np.array(WIDE_EDGES, np.uint64), len(WIDE_EDGES))
    y = np.tile(np.array(WIDE_EDGES, np.uint64), len(WIDE_EDGES))
    (_, _, out), _ = run("integers", "bits64", 2, 128, [x, y, np.zeros((len(BITS64), len(x)), np.uint64)])
    for number, (exact, found) in enumerate(zip(BITS64, out, strict=True)):
        for a, b, value in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
            assert value == exact(a, b) & (1 << 64) - 1, f"result {number} of {a:#x}, {b:#x}"


TOP = 1 << 128
WIDE: list[Callable[[int, int], int]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // (b | 1),
    lambda a, b: a % (b | 1),
    lambda a, b: cut(signed(a, 128), signed(b | 1, 128)),
    lambda a, b: signed(a, 128) - cut(signed(a, 128), signed(b | 1, 128)) * signed(b | 1, 128),
    lambda a, b: a << (b & 127),
    lambda a, b: a >> (b & 127),
    lambda a, b: signed(a, 128) >> (b & 127),
    lambda a, b: a < b,
    lambda a, b: signed(a, 128) < signed(b, 128),
    lambda a, b: -a,
    lambda a, b: a ^ (b & ~a),
]


def test_wide_integers() -> None:
    values = [
        0,
        1,
        7,
        127,
        (1 << 64) - 1,
        1 << 64,
        (1 << 127) - 1,
        1 << 127,
        TOP - 1,
        0x0123456789ABCDEFFEDCBA9876543210,
        10**30,
        TOP - 10**20,
    ]
    pairs = [(a, b) for a in values for b in values][:128]
    x, y = (
        np.array([[n & (1 << 64) - 1, n >> 64] for n in column], np.uint64)
        for column in zip(*pairs, strict=True)
    )
    (_, _, out), _ = run(
        "integers", "wide_integers", 4, 32, [x, y, np.zeros((len(WIDE), len(pairs), 2), np.uint64)]
    )
    for number, exact in enumerate(WIDE):
        for (a, b), (low, high) in zip(pairs, out[number].tolist(), strict=True):
            assert high << 64 | low == exact(a, b) % TOP, f"result {number} of {a:#x}, {b:#x}"


def test_bit_fields() -> None:
    fields = (
        ("sign", 0, 1),
        ("exponent", 1, 8),
        ("mantissa", 9, 23),
        ("small", 32, 5),
        ("middle", 37, 13),
        ("big", 64, 40),
    )
    rng = np.random.default_rng(5)
    items = rng.integers(0, 1 << 63, (64, 2), np.uint64) * np.uint64(2) + rng.integers(
        0, 2, (64, 2), np.uint64
    )
    (after, sums), _ = run("integers", "bit_fields", 2, 32, [items, np.zeros(64, np.int64)])
    for (low, high), (new_low, new_high), total in zip(
        items.tolist(), after.tolist(), sums.tolist(), strict=True
    ):
        before, now = high << 64 | low, new_high << 64 | new_low
        value = {}
        for name, at, width in fields:
            raw = before >> at & (1 << width) - 1
            value[name] = signed(raw, width) if at >= 32 else raw
        assert total == sum(value.values())
        value["sign"] ^= 1
        value["exponent"] += 3
        value["small"] -= 2
        value["middle"] *= 3
        value["big"] = -value["big"]
        for name, at, width in fields:
            assert now >> at & (1 << width) - 1 == value[name] & (1 << width) - 1, name


def _calls() -> list[str]:
    """The intrinsics of the kernel, in the order of its results."""
    text = (TESTS / "cuda/kernels/packed.cu").read_text(encoding="utf-8")
    return re.findall(r"PUT\(__(\w+)\(", text)


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def limited(value: int, width: int, is_signed: bool) -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    return max(low, min(high, value))


def simd(name: str, a: int, b: int, c: int) -> int:
    """What the CUDA Math API says a SIMD intrinsic gives."""
    wide = re.fullmatch(r"(vimax3|vimin3|viaddmax|viaddmin|vimax|vimin)_([su])(16x2|32)(_relu)?", name)
    if wide:
        operation, sign, shape, relu = wide.groups()
        width = 16 if shape == "16x2" else 32
        parts = [pieces(value, width, sign == "s") for value in (a, b, c)]
        result = []
        for x, y, z in zip(*parts, strict=True):
            if "add" in operation:
                total = x + y
                total = signed(total, width) if sign == "s" else total & (1 << width) - 1
                chosen = max(total, z) if operation.endswith("max") else min(total, z)
            else:
                given = (x, y, z) if operation.endswith("3") else (x, y)
                chosen = max(given) if "max" in operation else min(given)
            result.append(max(chosen, 0) if relu else chosen)
        return word(result, width)
    base, width = name[:-1], 32 // int(name[-1])
    compare = re.fullmatch(r"v(cmp|set)(eq|ne|lt|le|gt|ge)([su]?)", base)
    if compare:
        kind, op, sign = compare.groups()
        found = [
            COMPARISONS[op](x, y)
            for x, y in zip(pieces(a, width, sign == "s"), pieces(b, width, sign == "s"))
        ]
        return word([holds * (-1 if kind == "cmp" else 1) for holds in found], width)
    s, u = (pieces(a, width, True), pieces(b, width, True)), (pieces(a, width), pieces(b, width))
    one: dict[str, Callable[[int], int]] = {
        "vabs": abs,
        "vneg": lambda x: -x,
        "vabsss": lambda x: limited(abs(x), width, True),
        "vnegss": lambda x: limited(-x, width, True),
    }
    if base in one:
        return word([one[base](x) for x in s[0]], width)
    two: dict[str, tuple[tuple[list[int], list[int]], Callable[[int, int], int]]] = {
        "vadd": (u, lambda x, y: x + y),
        "vaddss": (s, lambda x, y: limited(x + y, width, True)),
        "vaddus": (u, lambda x, y: limited(x + y, width, False)),
        "vavgs": (s, lambda x, y: (x + y + (x + y >= 0)) >> 1),
        "vavgu": (u, lambda x, y: (x + y + 1) >> 1),
        "vhaddu": (u, lambda x, y: (x + y) >> 1),
        "vsub": (u, lambda x, y: x - y),
        "vsubss": (s, lambda x, y: limited(x - y, width, True)),
        "vsubus": (u, lambda x, y: limited(x - y, width, False)),
        "vmaxs": (s, max),
        "vmins": (s, min),
        "vmaxu": (u, max),
        "vminu": (u, min),
        "vabsdiffs": (s, lambda x, y: abs(x - y)),
        "vabsdiffu": (u, lambda x, y: abs(x - y)),
        "vsads": (s, lambda x, y: abs(x - y)),
        "vsadu": (u, lambda x, y: abs(x - y)),
    }
    given, operation_of = two[base]
    found_parts = [operation_of(x, y) for x, y in zip(*given, strict=True)]
    return sum(found_parts) if base in ("vsads", "vsadu") else word(found_parts, width)


@pytest.fixture(scope="module")
def packed() -> tuple[list[tuple[int, int, int]], Array]:
    rng = np.random.default_rng(3)
    values = np.concatenate(
        [np.array([(a, b) for a in EDGES[9:21] for b in EDGES[9:21]]), rng.integers(0, 1 << 32, (48, 2))]
    )
    x, y = values[:, 0].astype(np.uint32), values[:, 1].astype(np.uint32)
    z = np.roll(x, 7) ^ np.uint32(0x00010001)
    (_, _, _, out), _ = run(
        "packed", "packed", 2, 96, [x, y, z, np.zeros((len(_calls()), len(x)), np.uint32)]
    )
    return list(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)), out


@pytest.mark.parametrize(("place", "name"), list(enumerate(_calls())))
def test_packed(place: int, name: str, packed: tuple[list[tuple[int, int, int]], Array]) -> None:
    given, out = packed
    for (a, b, c), found in zip(given, out[place].tolist(), strict=True):
        assert found == simd(name, a, b, c) & 0xFFFFFFFF, f"{name}({a:#x}, {b:#x}, {c:#x}) gives {found:#x}"
