"""Operands of LLVM IR: their text, and their types.

An operand is its text (``%n7``, ``0``, ``splat (i32 4)``); a ``Ref`` knows its type as well. Where a vector meets a Python number, the
number is meant for all its elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from ...isa.types import ScalarType

__all__ = [
    "LANES",
    "Ref",
    "alike",
    "constant",
    "count_of",
    "element_of",
    "indices",
    "lanes_of",
    "literal",
    "numbers",
    "scalar_ll",
    "typed",
    "vector_ll",
    "vector_of",
]

LANES = 32


@cache
def scalar_ll(type: ScalarType) -> str:
    """LLVM type of one lane."""
    if type.kind == "f" and type.lanes == 1 and type.bits >= 32:
        return "float" if type.bits == 32 else "double"
    return f"i{type.bits}"


@cache
def vector_ll(type: ScalarType) -> str:
    """LLVM type of all lanes."""
    return f"<{LANES} x {scalar_ll(type)}>"


def vector_of(count: int, scalar: str) -> str:
    """LLVM type of a vector."""
    return f"<{count} x {scalar}>"


def lanes_of(scalar: str) -> str:
    """LLVM type of all lanes, from that of one."""
    return f"<{LANES} x {scalar}>"


@lru_cache(256)
def count_of(vector: str) -> int:
    """Elements of a vector type; 0 of a scalar type."""
    return int(vector[1 : vector.index(" ")]) if vector[0] == "<" else 0


@lru_cache(256)
def element_of(vector: str) -> str:
    """LLVM type of an element."""
    return vector[vector.rindex(" ") + 1 : -1]


@lru_cache(1024)
def alike(type: str, scalar: str) -> str:
    """A scalar type with the shape of another type: ``i1`` for ``<32 x i64>`` is ``<32 x i1>``."""
    return f"{type[: type.index('x')]}x {scalar}>" if type[0] == "<" else scalar


@lru_cache(4096)
def literal(type: str, number: int | str) -> str:
    """A number as operand of that type: of a vector it stands for all elements."""
    return f"splat ({element_of(type)} {number})" if type[0] == "<" else str(number)


@lru_cache(4096)
def constant(type: str, number: int | str) -> Ref:
    """A number of that type, for all elements of a vector; of floating point as LLVM writes it (``1.0``, ``0x3E70000000000000``)."""
    return Ref(type, literal(type, number))


def typed(type: str, value: str | int) -> Ref:
    """A number, or an operand that does not know its type, as one that does."""
    return constant(type, value) if isinstance(value, int) else Ref(type, value)


def numbers(scalar: str, values: Iterable[int]) -> Ref:
    """A vector of numbers."""
    texts = [f"{scalar} {value}" for value in values]
    return Ref(f"<{len(texts)} x {scalar}>", f"<{', '.join(texts)}>")


@lru_cache(1024)
def indices(order: tuple[int, ...]) -> tuple[int, str]:
    """How many elements are picked, and which, as operand."""
    listed = ", ".join([f"i32 {index}" for index in order])
    return len(order), f"<{len(order)} x i32> <{listed}>"


class Ref(str):
    """An operand that knows its LLVM type."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, type: str, text: str) -> Ref:
        self = str.__new__(cls, text)
        self.type = type
        return self
