"""The integer instructions that are more than one Python operator, on unsigned bit patterns."""

from __future__ import annotations


def mask(width: int) -> int:
    return (1 << width) - 1


def signed(x: int, width: int) -> int:
    """The two's complement value of the low ``width`` bits."""
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def clamp(x: int, width: int, is_signed: bool) -> int:
    low = -(1 << (width - 1)) if is_signed else 0
    high = (1 << (width - is_signed)) - 1
    return min(max(x, low), high)


def quotient(a: int, b: int) -> int:
    """Division that truncates; by zero all bits are set (what the hardware leaves; PTX leaves it open)."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    """The remainder with the dividend's sign; by zero the dividend."""
    return a if b == 0 else a - quotient(a, b) * b


def shift_left(a: int, n: int, width: int) -> int:
    return a << n if n < width else 0


def shift_right(a: int, n: int, width: int) -> int:
    """``a`` may be negative (arithmetic shift); amounts of ``width`` and more clamp."""
    return a >> min(n, width)


def extract(a: int, b: int, c: int, width: int, is_signed: bool) -> int:
    """``bfe``."""
    position, length, msb = b & 0xFF, c & 0xFF, width - 1
    sign = a >> min(position + length - 1, msb) & 1 if is_signed and length else 0
    result = 0
    for i in range(width):
        inside = i < length and position + i <= msb
        result |= (a >> (position + i) & 1 if inside else sign) << i
    return result


def insert(a: int, b: int, c: int, d: int, width: int) -> int:
    """``bfi``: ``a`` into ``b`` at ``c`` for ``d`` bits."""
    position, length = c & 0xFF, d & 0xFF
    for i in range(length):
        if position + i < width:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


def find_leading(a: int, width: int, is_signed: bool, shift_amount: bool) -> int:
    """``bfind``: position of the highest bit that is not a sign bit; all ones if there is none."""
    if is_signed and a >> (width - 1):
        a = ~a & mask(width)
    if a == 0:
        return 0xFFFFFFFF
    position = a.bit_length() - 1
    return width - 1 - position if shift_amount else position


def find_nth_set(bits: int, base: int, offset: int) -> int:
    """``fns``: the |offset|-th set bit from ``base``, upwards if ``offset`` is positive."""
    if offset == 0:
        return base if bits >> base & 1 else 0xFFFFFFFF
    position, left, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= position < 32:
        if bits >> position & 1:
            if left == 0:
                return position
            left -= 1
        position += step
    return 0xFFFFFFFF


def bit_mask(a: int, b: int, clamped: bool) -> int:
    """``bmsk``: ``b`` ones from bit ``a``."""
    if clamped:
        position, length = min(a, 32), min(b, 32)
    else:
        position, length = a & 31, b & 31
    return mask(length) << position & 0xFFFFFFFF


def extend(a: int, b: int, is_signed: bool, clamped: bool) -> int:
    """``szext``: sign- or zero-extend the low ``b`` bits."""
    if clamped and b >= 32:
        return a
    width = b & 31
    if width == 0:
        return 0
    return (signed(a, width) if is_signed else a & mask(width)) & 0xFFFFFFFF


def logic3(a: int, b: int, c: int, table: int) -> int:
    """``lop3``: bit i of the result is ``table`` at index abc (a the highest bit)."""
    result = 0
    for index in range(8):
        if table >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result & 0xFFFFFFFF


def reverse(a: int, width: int) -> int:
    return int(format(a, f"0{width}b")[::-1], 2)


# Bytes of b:a (7…4 of b, 3…0 of a) for result bytes 3, 2, 1, 0 by the selector's two low bits: the tables
# of the manual, section "Logic and Shift Instructions: prmt".
PRMT = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}


def permute(a: int, b: int, selector: int, mode: str) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    if mode:
        return int.from_bytes(bytes(source[i] for i in PRMT[mode][selector & 3]), "big")
    result = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source[nibble & 7]
        if nibble & 8:  # replicate the sign bit
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def dot(a: int, b: int, c: int, a_signed: bool, b_signed: bool, halves: str) -> int:
    """``dp4a`` (``halves`` empty) and ``dp2a`` (``lo``/``hi`` bytes of ``b``)."""
    total = c
    for i in range(2 if halves else 4):
        width = 16 if halves else 8
        x = a >> width * i & mask(width)
        y = b >> (8 * i + (16 if halves == "hi" else 0)) & 0xFF
        total += (signed(x, width) if a_signed else x) * (signed(y, 8) if b_signed else y)
    return total


def funnel(a: int, b: int, n: int, left: bool, clamped: bool) -> int:
    """``shf``: shift the 64-bit b:a; left keeps the high word, right the low word."""
    n = min(n, 32) if clamped else n & 31
    double = b << 32 | a
    return (double << n >> 32 if left else double >> n) & 0xFFFFFFFF
