"""The table of semantics and what its families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import floats
from .integers import mask
from .operands import Builder, Get, Put, Step

if TYPE_CHECKING:
    from .threads import Thread

SEMANTICS: dict[str, Callable[[Builder], Step]] = {}


def semantics(*names: str) -> Callable[[Callable[[Builder], Step]], Callable[[Builder], Step]]:
    def register(function: Callable[[Builder], Step]) -> Callable[[Builder], Step]:
        SEMANTICS.update(dict.fromkeys(names, function))
        return function

    return register


def apply(b: Builder, function: Callable[..., int] | None, gets: list[Get], width: int | None = None,
          is_signed: bool | None = None, text: str = "") -> Step:  # fmt: skip
    """Write ``function(operands…)`` to operand 0, or the operand as it is. ``text`` is the function as Python, with places for
    operands."""
    put = b.put(0, width, b.signed if is_signed is None else is_signed)
    values = [b.reading(get) for get in gets]
    if function is None:
        b.text = b.writing(put, values[0])
        return _copy(b, gets[0], put)
    text = text or f"{b.name(function)}({', '.join(f'{{{i}}}' for i in range(len(gets)))})"
    b.text = b.writing(put, text.format(*values))
    if put in b.written and (step := _on_registers(b, function, gets, *b.written[put])):
        return step
    if len(gets) == 1:
        (x,) = gets
        return lambda t: put(t, function(x(t)))
    if len(gets) == 2:
        x, y = gets
        return lambda t: put(t, function(x(t), y(t)))
    if len(gets) == 3:
        x, y, z = gets
        return lambda t: put(t, function(x(t), y(t), z(t)))
    return lambda t: put(t, function(*[get(t) for get in gets]))


def _copy(b: Builder, get: Get, put: Put) -> Step:
    if put not in b.written:
        return lambda t: put(t, get(t))
    to, bits = b.written[put]

    def step(t: Thread) -> None:
        t.regs[to] = get(t) & bits

    return step


def _on_registers(
    b: Builder, function: Callable[..., int], gets: list[Get], to: int, bits: int
) -> Step | None:
    """The same in one call where the operands are whole registers, the second perhaps a constant: most instructions by far."""
    places = [b.registers.get(get) for get in gets]
    match places:
        case [int(i)]:

            def step(t: Thread) -> None:
                regs = t.regs
                regs[to] = function(regs[i]) & bits

        case [int(i), int(j)]:

            def step(t: Thread) -> None:
                regs = t.regs
                regs[to] = function(regs[i], regs[j]) & bits

        case [int(i), None] if gets[1] in b.constants:
            value = b.constants[gets[1]]

            def step(t: Thread) -> None:
                regs = t.regs
                regs[to] = function(regs[i], value) & bits

        case [int(i), int(j), None] if gets[2] in b.constants:
            value = b.constants[gets[2]]

            def step(t: Thread) -> None:
                regs = t.regs
                regs[to] = function(regs[i], regs[j], value) & bits

        case [int(i), int(j), int(k)]:

            def step(t: Thread) -> None:
                regs = t.regs
                regs[to] = function(regs[i], regs[j], regs[k]) & bits

        case _:
            return None
    return step


def sources(b: Builder, count: int, is_signed: bool = False, first: int = 1) -> list[Get]:
    return [b.get(i, None, is_signed) for i in range(first, first + count)]


#: number and width of the lanes of packed types
LANES = {"f16x2": (2, 16), "bf16x2": (2, 16), "u16x2": (2, 16), "s16x2": (2, 16), "u8x4": (4, 8), "s8x4": (4, 8),
         "f32x2": (2, 32)}  # fmt: skip


def packed(type_name: str, function: Callable[..., int]) -> Callable[..., int]:
    """The function on each lane of packed operands, or itself."""
    if type_name not in LANES:
        return function
    count, bits = LANES[type_name]
    return lambda *xs: sum(
        (function(*[x >> bits * i & mask(bits) for x in xs]) & mask(bits)) << bits * i for i in range(count)
    )


def floating(b: Builder, function: Callable[..., int], count: int) -> Step:
    """A float instruction: ``.ftz`` around it, then ``.sat`` or ``.relu``, per half when packed."""
    f = b.float
    assert f is not None
    ftz, sat, relu = b.has("ftz"), b.has("sat"), b.has("relu")
    if b.has("oob"):
        raise b.fail("the oracle does not know out-of-bounds NaN")
    if len(b.types) > 1 or b.has("scaled"):
        raise b.fail("the oracle does not know numbers of several types")

    def one(*xs: int) -> int:
        if ftz:
            result = floats.flush(f, function(*[floats.flush(f, x) for x in xs]))
        else:
            result = function(*xs)
        if sat:
            return floats.saturate(f, result)
        return floats.relu(f, result) if relu else result

    plain = function if not (ftz or sat or relu) else one
    return apply(b, packed(b.type, plain), sources(b, count))
