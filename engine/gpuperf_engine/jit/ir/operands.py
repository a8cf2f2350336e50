"""Operands of LLVM IR: their text, and their types.

An operand is its text (``%n7``, ``0``, ``splat (i32 4)``); a ``Ref`` also holds its type. Python numbers that are combined with
vectors are broadcast to all elements.
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
    """Return the scalar type in the shape of another type: ``i1`` in the shape of ``<32 x i64>`` is ``<32 x i1>``."""
    return f"{type[: type.index('x')]}x {scalar}>" if type[0] == "<" else scalar


@lru_cache(4096)
def literal(type: str, number: int | str) -> str:
    """Return a number as operand of the type, broadcast for a vector."""
    return f"splat ({element_of(type)} {number})" if type[0] == "<" else str(number)


@lru_cache(4096)
def constant(type: str, number: int | str) -> Ref:
    """Return a number of the type, broadcast for a vector; floating point as LLVM writes it (``1.0``, ``0x3E70000000000000``)."""
    return Ref(type, literal(type, number))


def typed(type: str, value: str | int) -> Ref:
    """Return a number or untyped operand as a ``Ref`` of the type."""
    return constant(type, value) if isinstance(value, int) else Ref(type, value)


def numbers(scalar: str, values: Iterable[int]) -> Ref:
    """Return a constant vector."""
    texts = [f"{scalar} {value}" for value in values]
    return Ref(f"<{len(texts)} x {scalar}>", f"<{', '.join(texts)}>")


@lru_cache(1024)
def indices(order: tuple[int, ...]) -> tuple[int, str]:
    """Return the mask of a ``shufflevector``: its length, and its text."""
    listed = ", ".join([f"i32 {index}" for index in order])
    return len(order), f"<{len(order)} x i32> <{listed}>"


class Ref(str):
    """An operand with its LLVM type."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, type: str, text: str) -> Ref:
        self = str.__new__(cls, text)
        self.type = type
        return self
