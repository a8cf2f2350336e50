"""Logic and shifts (manual: "Logic and Shift Instructions")."""

from __future__ import annotations

from ..primitives import Value, minimum, select
from ..table import instruction
from ..types import scalar_type

U32, U64 = scalar_type("u32"), scalar_type("u64")
LOGIC = "pred b16 b32 b64"
BITS = "b16 b32 b64"
SHIFTED = "b16 b32 b64 u16 u32 u64 s16 s32 s64"
PERMUTE_MODES = "f4e b4e rc8 ecl ecr rc16"


@instruction("and.type d, {!}a, {!}b", type=LOGIC, category="logic", unit="alu")
def bitwise_and(a: Value, b: Value) -> Value:
    """a and b, bit by bit."""
    return a & b


@instruction("or.type d, {!}a, {!}b", type=LOGIC, category="logic", unit="alu")
def bitwise_or(a: Value, b: Value) -> Value:
    """a or b, bit by bit."""
    return a | b


@instruction("xor.type d, {!}a, {!}b", type=LOGIC, category="logic", unit="alu")
def bitwise_xor(a: Value, b: Value) -> Value:
    """a exclusive or b, bit by bit."""
    return a ^ b


@instruction("not.type d, {!}a", type=LOGIC, category="logic", unit="alu")
def complement(a: Value) -> Value:
    """All bits of a inverted."""
    return ~a


@instruction("cnot.type d, a", type=BITS, category="logic", unit="alu")
def cnot(a: Value) -> Value:
    """1 if a is zero, else 0 (C's logical negation)."""
    return select(a.compare("eq", 0), a.constant(1, a.type), 0)


@instruction("lop3.b32 d, a, b, c, lut:imm", category="logic", unit="alu", since=(4, 3), target=50)
def lop3(a: Value, b: Value, c: Value, lut: int) -> Value:
    """The function of three bits whose truth table is lut: bit 4a + 2b + c of lut, for each bit."""
    without_c = sum(((lut >> 2 * index) & 1) << index for index in range(4))
    with_c = sum(((lut >> 2 * index + 1) & 1) << index for index in range(4))
    changed = without_c ^ with_c
    if changed == 0:
        return _of_two(without_c, a, b)
    change = c if changed == 15 else _of_two(changed, a, b) & c
    return change if without_c == 0 else _of_two(without_c, a, b) ^ change


def _of_two(table: int, a: Value, b: Value) -> Value:
    """The function of two bits whose value is bit 2a + b of the table."""
    if table > 7:
        return a.constant(-1, a.type) if table == 15 else _of_two_or(table, a, b)
    if table == 0:
        return a.constant(0, a.type)
    return ~_of_two_or(table ^ 15, a, b) if table in (1, 3, 5, 7) else _of_two_or(table, a, b)


def _of_two_or(table: int, a: Value, b: Value) -> Value:
    return {
        2: lambda: ~a & b,
        4: lambda: a & ~b,
        6: lambda: a ^ b,
        8: lambda: a & b,
        9: lambda: ~(a ^ b),
        10: lambda: b,
        11: lambda: ~a | b,
        12: lambda: a,
        13: lambda: a | ~b,
        14: lambda: a | b,
    }[table]()


@instruction(
    "lop3.op.b32 d|p:pred, a, b, c, lut:imm, {!}q:pred",
    op="or and",
    category="logic",
    unit="alu",
    since=(8, 2),
    target=70,
)
def lop3_predicate(a: Value, b: Value, c: Value, lut: int, q: Value, *, op: str) -> tuple[Value, Value]:
    """lop3, and whether its result is not zero, combined with q."""
    result = lop3(a, b, c, lut)
    nonzero = result.compare("ne", 0)
    return result, nonzero | q if op == "or" else nonzero & q


@instruction("shl.type d, a, b:u32", type=BITS, category="logic", unit="alu")
def shl(a: Value, b: Value) -> Value:
    """a shifted left by b, zeros coming in; 0 for b of the width and more."""
    return a << b


@instruction("shr.type d, a, b:u32", type=SHIFTED, category="logic", unit="alu")
def shr(a: Value, b: Value) -> Value:
    """a shifted right by b, the sign (signed types) or zeros coming in; b is limited to the width."""
    return a >> b


@instruction(
    "shf.dir.mode.b32 d, a, b, c:u32",
    dir="l r",
    leads="dir",
    mode="clamp wrap",
    category="logic",
    unit="alu",
    since=(3, 1),
    target=32,
)
def shf(a: Value, b: Value, c: Value, *, dir: str, mode: str) -> Value:
    """The upper (l) or lower (r) word of the 64 bits b:a shifted by c modulo 32 (wrap) or at most 32 (clamp)."""
    amount = c & 31 if mode == "wrap" else minimum(c, 32)
    both = (b.convert(U64) << 32) | a.convert(U64)
    return ((both << amount) >> 32).convert(U32) if dir == "l" else (both >> amount).convert(U32)


@instruction(
    "prmt.b32{.mode} d, a, b, c", mode=PERMUTE_MODES, category="logic", unit="alu", since=(2, 0), target=20
)
def prmt(a: Value, b: Value, c: Value, *, mode: str | None) -> Value:
    """Four of the eight bytes b:a, chosen by the nibbles of c (bit 3: the byte's sign in all its bits) or by a mode."""
    if mode is None and c.known is not None:
        return _permute(a, b, c.known)
    source = (b.convert(U64) << 32) | a.convert(U64)
    control, result = c.bits(U32), a.constant(0, U32)
    for index in range(4):
        selector = (control >> (4 * index)) & 15 if mode is None else _selector(control & 3, index, mode)
        byte = (source >> ((selector & 7) << 3)).convert(U32) & 0xFF
        if mode is None:
            sign = (byte >> 7) * 0xFF
            byte = select((selector & 8).compare("ne", 0), sign, byte)
        result = result | (byte << (8 * index))
    return result


def _permute(a: Value, b: Value, control: int) -> Value:
    """prmt with a constant selection: bytes that move together are shifted and masked together."""
    masks: dict[tuple[bool, bool, int], int] = {}
    for index in range(4):
        selector = control >> (4 * index) & 15
        key = bool(selector & 4), bool(selector & 8), index - (selector & 3)
        masks[key] = masks.get(key, 0) | 0xFF << (8 * index)
    result = None
    for (second, sign, distance), mask in masks.items():
        word = (b if second else a).bits(U32)
        if sign:
            word = ((word >> 7) & 0x01010101) * 0xFF
        moved = word << 8 * distance if distance > 0 else word >> -8 * distance if distance else word
        part = moved if mask == 0xFFFFFFFF else moved & mask
        result = part if result is None else result | part
    assert result is not None
    return result


def _selector(control: Value, index: int, mode: str) -> Value:
    """The number of the byte that a mode of prmt puts at ``index``."""
    if mode == "f4e":
        return control + index
    if mode == "b4e":
        return (control - index) & 7
    if mode == "rc8":
        return control
    if mode == "ecl":
        return select(control.compare("gt", index), control, index)
    if mode == "ecr":
        return select(control.compare("lt", index), control, index)
    return ((control & 1) << 1) + (index & 1)
