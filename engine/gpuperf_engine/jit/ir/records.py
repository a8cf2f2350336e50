"""Records at host addresses: fields with an offset and a width.

A field is an integer, its offset in bytes, so that generated code and Python's ``struct`` can use it. In the runtime's subset of
Python (``jit.runtime.compile_python``) a ``Record`` is an address with a type, and ``state.MASK`` is the content of the field, as
an unsigned number of 64 bits; it can be assigned. ``state.MEMBERS[lane]`` is an element of an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

__all__ = [
    "U8",
    "U16",
    "U32",
    "U64",
    "Array8",
    "Array16",
    "Array32",
    "Array64",
    "Field",
    "Pointer",
    "Pointers",
    "Record",
]

_Content = TypeVar("_Content")


class Record(int):
    """The host address of a record."""


_Record = TypeVar("_Record", bound=Record)


class Field(int, Generic[_Content]):
    """The offset of a field in its record, in bytes; ``BITS``: the width of the field, or of an element."""

    BITS: ClassVar[int] = 64

    if TYPE_CHECKING:

        @overload
        def __get__(self, record: None, owner: object) -> Field[Any]: ...
        @overload
        def __get__(self, record: Record, owner: object) -> _Content: ...
        def __get__(self, record: Record | None, owner: object) -> object: ...
        def __set__(self, record: Record, value: _Content) -> None: ...


class U64(Field[int]):
    """A number of 64 bits."""


class U32(Field[int]):
    """A number of 32 bits."""

    BITS = 32


class U16(Field[int]):
    """A number of 16 bits."""

    BITS = 16


class U8(Field[int]):
    """A byte."""

    BITS = 8


class Pointer(Field[_Record]):
    """The address of another record; the annotation has its type: ``CTA: Pointer[Cta] = Pointer(312)``."""


class Array(Field[list[_Content]]):
    """Consecutive elements."""


class Array64(Array[int]):
    """Numbers of 64 bits."""


class Array32(Array[int]):
    """Numbers of 32 bits."""

    BITS = 32


class Array16(Array[int]):
    """Numbers of 16 bits."""

    BITS = 16


class Array8(Array[int]):
    """Bytes."""

    BITS = 8


class Pointers(Array[_Record]):
    """Consecutive addresses of records; the annotation has their type."""
