"""Bits, comparison and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats, integers
from .integers import mask
from .operands import Builder, Step
from .registry import apply, semantics, sources
from .syntax import WIDTHS, Pair

if TYPE_CHECKING:
    from .threads import Thread


@semantics("and", "or", "xor")
def logic(b: Builder) -> Step:
    if b.statement.base == "and":
        return apply(b, lambda x, y: x & y, sources(b, 2), text="{0} & {1}")
    if b.statement.base == "or":
        return apply(b, lambda x, y: x | y, sources(b, 2), text="{0} | {1}")
    return apply(b, lambda x, y: x ^ y, sources(b, 2), text="{0} ^ {1}")


@semantics("not")
def invert(b: Builder) -> Step:
    return apply(b, lambda x: ~x, sources(b, 1))


@semantics("cnot")
def cnot(b: Builder) -> Step:
    return apply(b, lambda x: int(x == 0), sources(b, 1))


@semantics("lop3")
def lop3(b: Builder) -> Step:
    booleans = [word for word in b.mods if word in ("or", "and")]
    d, p = b.pair(0)
    put, put_p = b.put(d), b.put(p, 1)
    x, y, z = sources(b, 3)
    table = b.get(4, 8)
    q = b.get(5, 1) if booleans else None

    def step(t: Thread) -> None:
        result = integers.logic3(x(t), y(t), z(t), table(t))
        put(t, result)
        if q is not None:
            put_p(t, int(result != 0) | q(t) if booleans[0] == "or" else int(result != 0) & q(t))

    return step


@semantics("shl", "shr")
def shift(b: Builder) -> Step:
    width, amount = b.width, b.get(2, 32)
    if b.statement.base == "shl":
        text = f"{{0}} << {{1}} if {{1}} < {width} else 0"
        return apply(b, lambda x, n: integers.shift_left(x, n, width), [b.get(1), amount], text=text)
    value, text = b.get(1, None, b.signed), f"{{0}} >> ({{1}} if {{1}} < {width} else {width})"
    return apply(b, lambda x, n: integers.shift_right(x, n, width), [value, amount], text=text)


@semantics("shf")
def shf(b: Builder) -> Step:
    left, clamped = b.has("l"), b.has("clamp")
    return apply(b, lambda x, y, n: integers.funnel(x, y, n, left, clamped), sources(b, 3))


@semantics("bfe")
def bfe(b: Builder) -> Step:
    width, is_signed = b.width, b.signed
    return apply(b, lambda x, y, z: integers.extract(x, y, z, width, is_signed),
                 [b.get(1), b.get(2, 32), b.get(3, 32)])  # fmt: skip


@semantics("bfi")
def bfi(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x, y, z, w: integers.insert(x, y, z, w, width),
                 [b.get(1), b.get(2), b.get(3, 32), b.get(4, 32)])  # fmt: skip


@semantics("bfind")
def bfind(b: Builder) -> Step:
    width, is_signed, amount = b.width, b.signed, b.has("shiftamt")
    return apply(b, lambda x: integers.find_leading(x, width, is_signed, amount), sources(b, 1), 32, False)


@semantics("fns")
def fns(b: Builder) -> Step:
    return apply(b, integers.find_nth_set, [b.get(1), b.get(2), b.get(3, 32, True)])


@semantics("bmsk")
def bmsk(b: Builder) -> Step:
    clamped = b.has("clamp")
    return apply(b, lambda x, y: integers.bit_mask(x, y, clamped), sources(b, 2))


@semantics("szext")
def szext(b: Builder) -> Step:
    is_signed, clamped = b.signed, b.has("clamp")
    return apply(b, lambda x, y: integers.extend(x, y, is_signed, clamped), sources(b, 2))


@semantics("brev")
def brev(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x: integers.reverse(x, width), sources(b, 1))


@semantics("popc")
def popc(b: Builder) -> Step:
    return apply(b, lambda x: x.bit_count(), sources(b, 1), 32, False)


@semantics("clz")
def clz(b: Builder) -> Step:
    width = b.width
    return apply(b, lambda x: width - x.bit_length(), sources(b, 1), 32, False)


@semantics("prmt")
def prmt(b: Builder) -> Step:
    mode = next((word for word in b.mods if word in integers.PRMT), "")
    return apply(b, lambda x, y, z: integers.permute(x, y, z, mode), sources(b, 3))


@semantics("dp4a", "dp2a")
def dot(b: Builder) -> Step:
    halves = next((word for word in b.mods if word in ("lo", "hi")), "")
    first, second = (name.startswith("s") for name in b.types[:2])
    return apply(b, lambda x, y, z: integers.dot(x, y, z, first, second, halves), sources(b, 3))


# -- comparison and selection


#: comparisons of unsigned integers that have names of their own, and comparisons as Python
INTEGER_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
ORDER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def comparison(b: Builder, type_name: str, op: str) -> Callable[[int, int], bool]:
    f = floats.FORMATS.get(type_name.removesuffix("x2"))
    if f is not None:
        ftz = b.has("ftz")
        if ftz:
            return lambda x, y: floats.compare(f, op, floats.flush(f, x), floats.flush(f, y))
        return lambda x, y: floats.compare(f, op, x, y)
    name = INTEGER_NAMES.get(op, op)
    width = WIDTHS[type_name]
    if type_name.startswith("s"):
        flip = 1 << (width - 1)  # moves the signed order onto the unsigned one
    else:
        flip = 0
    tests: dict[str, Callable[[int, int], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
        "lt": lambda x, y: x ^ flip < y ^ flip, "le": lambda x, y: x ^ flip <= y ^ flip,
        "gt": lambda x, y: x ^ flip > y ^ flip, "ge": lambda x, y: x ^ flip >= y ^ flip,
    }  # fmt: skip
    return tests[name]


def combined(b: Builder, at: int) -> Callable[[Thread, bool], int]:
    """The optional boolean operator of ``set``/``setp`` with its predicate operand."""
    if len(b.operands) <= at:
        return lambda t, x: int(x)
    c = b.get(at, 1)
    operator = next(word for word in b.mods if word in ("and", "or", "xor"))
    if operator == "and":
        return lambda t, x: int(x) & c(t)
    if operator == "or":
        return lambda t, x: int(x) | c(t)
    return lambda t, x: int(x) ^ c(t)


@semantics("setp")
def setp(b: Builder) -> Step:
    test, join = comparison(b, b.type, b.mods[0]), combined(b, 3)
    if not isinstance(b.operands[0], Pair) and len(b.operands) == 3 and not b.type.endswith("x2"):
        order = ORDER.get(INTEGER_NAMES.get(b.mods[0], b.mods[0])) if b.float is None else None
        flip = 1 << b.width - 1 if b.signed else 0
        text = f"({{0}} ^ {flip}) {order} ({{1}} ^ {flip})" if order else ""
        return apply(b, test, sources(b, 2), 1, False, text)
    p, q = b.pair(0)
    put_p, put_q = b.put(p, 1), b.put(q, 1)
    x, y = sources(b, 2)
    if b.type.endswith("x2"):

        def halves(t: Thread) -> None:
            u, v = x(t), y(t)
            low, high = join(t, test(u & 0xFFFF, v & 0xFFFF)), join(t, test(u >> 16, v >> 16))
            put_p(t, low)
            put_q(t, high)

        return halves

    def step(t: Thread) -> None:
        result = test(x(t), y(t))
        p_value, q_value = join(t, result), join(t, not result)
        put_p(t, p_value)
        put_q(t, q_value)

    return step


@semantics("set")
def set_(b: Builder) -> Step:
    if len(b.types) < 2:
        raise b.fail("the oracle does not know this comparison")
    target, source = b.types[-2:]
    width = WIDTHS[source]
    test, join = comparison(b, source, b.mods[0]), combined(b, 3)
    f = floats.FORMATS.get(target.removesuffix("x2"))
    x, y = b.get(1, width), b.get(2, width)
    put = b.put(0, WIDTHS[target])
    if source.endswith("x2"):
        true = f.one if f is not None else 0xFFFF

        def halves(t: Thread) -> None:
            u, v = x(t), y(t)
            low = true * join(t, test(u & 0xFFFF, v & 0xFFFF))
            put(t, low | true * join(t, test(u >> 16, v >> 16)) << 16)

        return halves
    true = f.one if f is not None else mask(WIDTHS[target])
    return lambda t: put(t, true * join(t, test(x(t), y(t))))


@semantics("selp")
def selp(b: Builder) -> Step:
    x, y = sources(b, 2)
    p, put = b.get(3, 1), b.put(0)
    b.text = b.writing(put, f"{b.reading(x)} if {b.reading(p)} else {b.reading(y)}")
    return lambda t: put(t, x(t) if p(t) else y(t))


@semantics("slct")
def slct(b: Builder) -> Step:
    x, y = sources(b, 2)
    control = b.types[1]
    c, put = b.get(3, 32), b.put(0)
    if control == "f32":
        ftz = b.has("ftz")

        def step(t: Thread) -> None:
            value = floats.flush(floats.F32, c(t)) if ftz else c(t)
            put(t, x(t) if floats.compare(floats.F32, "ge", value, 0) else y(t))

        return step
    return lambda t: put(t, y(t) if c(t) >> 31 else x(t))
