"""Moves, addresses, loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats
from .clusters import rank_of
from .integers import mask, signed
from .mbarriers import mbarrier_at
from .memory import WINDOWS
from .operands import Builder, Step
from .registry import apply, packed, semantics, sources
from .syntax import Vector

if TYPE_CHECKING:
    from .threads import Thread


@semantics("mov")
def mov(b: Builder) -> Step:
    operand = b.operands[0]
    lanes = len(operand.items) if isinstance(operand, Vector) and (b.has("v2") or b.has("v4")) else 1
    return apply(b, None, [b.get(1, lanes * b.width)], lanes * b.width, False)


@semantics("cvta")
def cvta(b: Builder) -> Step:
    window = WINDOWS.get(b.space(), 0)
    if b.has("to"):
        window = -window
    return apply(b, lambda x: x + window, sources(b, 1), text=f"{{0}} + {window}")


@semantics("isspacep")
def isspacep(b: Builder) -> Step:
    space = b.space()
    x, put = b.get(1, 64), b.put(0, 1)
    anywhere = "shared::cluster" in b.statement.modifiers

    def step(t: Thread) -> None:
        actual, _ = t.resolve(space="generic", address=x(t))
        if actual == space == "shared" and not anywhere:
            actual = "shared" if rank_of(x(t)) == t.cta.rank else "another CTA"
        put(t, int(actual == space))

    return step


@semantics("ld", "ldu")
def ld(b: Builder) -> Step:
    space, address = b.space(), b.address(1)
    size = b.width // 8
    target = b.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    puts = [b.put(item, b.width, b.signed) for item in items]
    if len(puts) == 1:
        put = puts[0]
        b.text = b.writing(put, f"t.load({space!r}, {b.reading(address)}, {size})")
        if put not in b.written:
            return lambda t: put(t, t.load(space, address(t), size))
        index, bits = b.written[put]

        def read(t: Thread) -> None:
            t.regs[index] = t.load(space, address(t), size) & bits

        return read
    total = size * len(puts)

    def step(t: Thread) -> None:
        data = t.load(space, address(t), total)
        for i, put in enumerate(puts):
            put(t, data >> 8 * size * i)

    return step


@semantics("st")
def st(b: Builder) -> Step:
    if b.has("bulk"):
        raise b.fail("the oracle does not know this instruction")
    space, address = b.space(), b.address(0)
    size, source = b.width // 8, b.operands[1]
    total = size * len(source.items) if isinstance(source, Vector) else size
    value = b.get(source, total * 8)
    if b.has("async"):
        arrived = b.address(2)

        def step(t: Thread) -> None:
            t.store(space, address(t), total, value(t))
            mbarrier_at(t, arrived(t)).complete(total)

        return step
    b.text = f"t.store({space!r}, {b.reading(address)}, {total}, {b.reading(value)})"
    return lambda t: t.store(space, address(t), total, value(t))


def float_atomic(b: Builder, op: str) -> Callable[[int, int], int]:
    f = b.float
    assert f is not None
    one: Callable[[int, int], int] = {
        "add": lambda x, y: floats.add(f, x, y),
        "min": lambda x, y: floats.extremum(f, x, y, False),
        "max": lambda x, y: floats.extremum(f, x, y, True),
        "exch": lambda x, y: y,
    }[op]
    return packed(b.type, one)


def integer_atomic(b: Builder, op: str) -> Callable[[int, int], int]:
    width, is_signed = b.width, b.signed

    def value(x: int) -> int:
        return signed(x, width) if is_signed else x

    table: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "exch": lambda x, y: y,
        "min": lambda x, y: min(x, y, key=value),
        "max": lambda x, y: max(x, y, key=value),
        "inc": lambda x, y: 0 if x >= y else x + 1,
        "dec": lambda x, y: y if x == 0 or x > y else x - 1,
    }
    return table[op]


@semantics("atom", "red")
def atom(b: Builder) -> Step:
    at = 0 if b.statement.base == "red" else 1
    op = next(
        w for w in b.mods if w in ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    )
    space, address, size, width = b.space(), b.address(at), b.width // 8, b.width
    target = b.operands[0]
    source = b.operands[at + 1]
    values = [b.get(x) for x in (source.items if isinstance(source, Vector) else (source,))]
    items = target.items if isinstance(target, Vector) else (target,)
    puts = [b.put(item) for item in items] if at else []
    swap = b.get(at + 2) if op == "cas" else None
    combine = None if swap else float_atomic(b, op) if b.float is not None else integer_atomic(b, op)
    # atom.add.f32 in global memory flushes subnormals, in shared memory it does not (manual, "atom"); vectors do as well: of
    # .v4.add.f32 ptxas makes ATOMG.E.ADD.F32x4.FTZ.RN
    flushes = op == "add" and b.type == "f32"
    arrived = b.address(2) if b.has("async") else None

    def step(t: Thread) -> None:
        start = address(t)
        flush = flushes and t.resolve(space, start)[0] == "global"
        t.check_alignment(start, size * len(values))
        olds = []
        for i, new in enumerate([get(t) for get in values]):
            old = t.load(space, start + size * i, size)
            olds.append(old)
            if swap is not None:
                new = swap(t) if old == new else old
            elif flush:
                f = floats.F32
                new = floats.flush(f, floats.add(f, floats.flush(f, old), floats.flush(f, new)))
            elif combine is not None:
                new = combine(old, new)
            t.store(space, start + size * i, size, new & mask(width))
        for put, old in zip(puts, olds, strict=bool(puts)):
            put(t, old)
        if arrived is not None:
            mbarrier_at(t, arrived(t)).complete(size)

    return step


@semantics("membar", "fence", "prefetch", "prefetchu", "nanosleep", "pmevent", "griddepcontrol", "discard",
         "applypriority", "setmaxnreg")  # fmt: skip
def nothing(b: Builder) -> Step:
    return lambda t: None


@semantics("createpolicy")
def createpolicy(b: Builder) -> Step:
    put = b.put(0, 64)
    return lambda t: put(t, 0)
