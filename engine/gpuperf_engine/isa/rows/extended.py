"""Extended-precision integer arithmetic (manual: "Extended-Precision Integer Arithmetic Instructions").

The condition code CC.CF is the last source of the rows that read it and the last result of the forms with ``.cc``. The
manual calls it the borrow after a subtraction; as in the machines it is the carry of a + ~b + 1, which is set where there
is *no* borrow. Both are the same within a chain of subtractions, but nvcc's 128-bit division reads it with ``addc``.
"""

from __future__ import annotations

from ..model import Applied
from ..primitives import Value, high, select
from ..table import instruction
from ..types import scalar_type

WORDS = "u32 s32 u64 s64"
LONG = {"u64": ((4, 3), 20), "s64": ((4, 3), 20)}


@instruction("add.cc.type d, a, b", type=WORDS, category="integer", unit="alu", since=(1, 2), requires=LONG)
def add_carry(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b; CC.CF becomes the carry."""
    return _add(a, b, None)


@instruction(
    "addc{.cc}.type d, a, b",
    type=WORDS,
    category="integer",
    unit="alu",
    since=(1, 2),
    requires=LONG,
    applied=Applied(reads_carry=True),
)
def addc(a: Value, b: Value, carry: Value) -> tuple[Value, Value]:
    """a + b + CC.CF; .cc: CC.CF becomes the carry."""
    return _add(a, b, carry)


@instruction("sub.cc.type d, a, b", type=WORDS, category="integer", unit="alu", since=(1, 2), requires=LONG)
def sub_borrow(a: Value, b: Value) -> tuple[Value, Value]:
    """a − b; CC.CF becomes 1 where nothing is borrowed."""
    return _sub(a, b, None)


@instruction(
    "subc{.cc}.type d, a, b",
    type=WORDS,
    category="integer",
    unit="alu",
    since=(1, 2),
    requires=LONG,
    applied=Applied(reads_carry=True),
)
def subc(a: Value, b: Value, carry: Value) -> tuple[Value, Value]:
    """a − b, less 1 where CC.CF is 0; .cc: CC.CF becomes 1 where nothing is borrowed."""
    return _sub(a, b, ~carry)


@instruction(
    "mad.mode.cc.type d, a, b, c",
    mode="hi lo",
    leads="mode",
    type=WORDS,
    category="integer",
    unit="imad",
    since=(3, 0),
    target=20,
    requires=LONG,
)
def mad_carry(a: Value, b: Value, c: Value, *, mode: str) -> tuple[Value, Value]:
    """The low or high half of a · b, plus c; CC.CF becomes the carry of that addition."""
    return _add(a * b if mode == "lo" else high(a, b), c, None)


@instruction(
    "madc.mode{.cc}.type d, a, b, c",
    mode="hi lo",
    leads="mode",
    type=WORDS,
    category="integer",
    unit="imad",
    since=(3, 0),
    target=20,
    requires=LONG,
    applied=Applied(reads_carry=True),
)
def madc(a: Value, b: Value, c: Value, carry: Value, *, mode: str) -> tuple[Value, Value]:
    """The low or high half of a · b, plus c, plus CC.CF; .cc: CC.CF becomes the carry of those additions."""
    return _add(a * b if mode == "lo" else high(a, b), c, carry)


def _add(a: Value, b: Value, carry: Value | None) -> tuple[Value, Value]:
    unsigned = scalar_type(f"u{a.type.bits}")
    first, second = a.bits(unsigned), b.bits(unsigned)
    total = first + second
    out = total.compare("lt", first)
    if carry is not None:
        one = select(carry, total.constant(1, unsigned), 0)
        total, out = total + one, out | (carry & total.compare("eq", -1))
    return total, out


def _sub(a: Value, b: Value, borrow: Value | None) -> tuple[Value, Value]:
    unsigned = scalar_type(f"u{a.type.bits}")
    first, second = a.bits(unsigned), b.bits(unsigned)
    difference = first - second
    out = first.compare("lt", second)
    if borrow is not None:
        one = select(borrow, difference.constant(1, unsigned), 0)
        difference, out = difference - one, out | (borrow & difference.compare("eq", 0))
    return difference, ~out
